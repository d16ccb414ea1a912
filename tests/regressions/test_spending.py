"""What regression mechanisms draw, at every budget: run on data, then on a neighbour that gets the same answers.

A mechanism is private through its draws alone. So with the answers of the first run the second must ask for the same
noise and release the same point, and what the two ask for may lie apart by no more than the budget pays for.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from descents import Replay, replayed
from families import REGRESSIONS
from regressions import regression

from dpmodel.as_printed import frank_wolfe as frank_wolfe_published
from dpmodel.as_printed import stochastic_mirror_descent
from dpmodel.as_printed.adassp import ADASSP_AS_PRINTED
from dpmodel.as_printed.frank_wolfe import FrankWolfeAsPrinted
from dpmodel.as_printed.stochastic_mirror_descent import STOCHASTIC_MIRROR_DESCENT
from dpmodel.contract import Options
from dpmodel.privacy import gaussian_mu, pure_composition_delta, zcdp_rho
from dpmodel.regressions import frank_wolfe
from dpmodel.regressions.descent import NoisyDescent
from dpmodel.regressions.frank_wolfe import FrankWolfe
from dpmodel.regressions.gaussian_frank_wolfe import GaussianFrankWolfe
from dpmodel.regressions.mirror_descent import MirrorDescent
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import ObjectivePerturbation
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sets import L1Ball, L2Ball
from dpmodel.regressions.sufficient_statistics import SUFFICIENT_STATISTICS

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")

# Of few steps: what they draw is the same step for step, and plans take no time.
MECHANISMS = {
    each.name: each
    for each in (
        SUFFICIENT_STATISTICS,
        FrankWolfe(steps=3, rate=0.0, clip=math.inf),
        NoisyDescent(steps=2),
        MirrorDescent(steps=2, map="entropic"),
        ObjectivePerturbation(ridge=300.0),
        GaussianFrankWolfe(steps=2, memory=1.0),
        ADASSP_AS_PRINTED,
        FrankWolfeAsPrinted(steps=3),
    )
}
BUDGETS = [(1e-3, 0.0), (1e-3, 1e-6), (1.0, 0.0), (100.0, 1e-6)]  # two more below
READS_NOTHING, OWN_TEST = (
    {"public-only"},
    {"stochastic-mirror-descent", "quantile-exponential", "pure-objective-perturbation"},
)


def test_every_mechanism_is_tested() -> None:
    assert set(MECHANISMS) | READS_NOTHING | OWN_TEST == {each.name for each in REGRESSIONS}


def two(seed: int = 0) -> tuple[PrivateRegression, PrivateRegression]:
    """A small regression, and the same with the first record's row and label at the opposite ends of their bounds.

    With a ``seed`` bounds are unequal and of both signs, and the record moves between two random corners of them.
    """
    if seed:
        return _lopsided(np.random.default_rng(seed))
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (30, 2)), rng.uniform(-1, 1, 30)
    X[0], y[0] = 1.0, -1.0
    A, b = X.copy(), y.copy()
    A[0], b[0] = 1.0, 1.0
    one = regression(X, y, "squared", domain=L1Ball(2, 1.0), lower=-1, upper=1)
    rows = Rows(((A, 0),), b, 2)
    return one, replace(one, read=lambda: rows)


def _lopsided(rng: np.random.Generator) -> tuple[PrivateRegression, PrivateRegression]:
    low, high = -rng.uniform(0.1, 2.0, 3), rng.uniform(0.1, 2.0, 3)
    label = (-float(rng.uniform(0.1, 1.0)), float(rng.uniform(0.5, 3.0)))
    X, y = rng.uniform(low, high, (30, 3)), rng.uniform(*label, 30)
    A, b = X.copy(), y.copy()
    X[0], y[0] = np.where(rng.random(3) < 0.5, low, high), label[0]
    A[0], b[0] = np.where(rng.random(3) < 0.5, low, high), label[1]
    domain = L1Ball(3, float(rng.uniform(0.5, 2.0)))
    one = regression(X, y, "squared", domain=domain, lower=low, upper=high, label=label)
    rows = Rows(((A, 0),), b, 3)
    return one, replace(one, read=lambda: rows)


def check(mechanism: Any, options: Options, seed: int = 0) -> None:
    """Same draws asked for, same release, and a cost within what the forecast says is spent."""
    one, other = two(seed)
    if not mechanism.eligible(one, options).eligible:
        return

    def run(model: PrivateRegression, source: Replay) -> Any:
        outcome = mechanism.run(model, options, source)
        assert outcome.x is not None
        return outcome.x, outcome.notes, outcome.status

    first, second = replayed(run, one, other, 5)
    assert first.asked, "nothing was drawn"
    apart = [(kind, a - b, scale) for (kind, a, scale), (_, b, _) in zip(first.asked, second.asked, strict=True)]
    forecast = mechanism.forecast(one, options)
    assert forecast.epsilon <= options.epsilon and forecast.delta <= options.delta
    if mechanism.name != "objective-perturbation":  # its proof counts more than draws
        assert_paid(apart, forecast.epsilon, forecast.delta)
    assert any(np.any(moved) for _, moved, _ in apart), "no draw depends on the data: nothing was tested"


def assert_paid(apart: list[tuple[str, np.ndarray, float]], epsilon: float, delta: float) -> None:
    room = 1 + 1e-9
    squares = [float(np.sum(d * d)) / s**2 for kind, d, s in apart if kind == "gaussian"]
    pure = [float(np.abs(d).sum()) / s for kind, d, s in apart if kind == "laplace"]
    chosen = [float(np.ptp(d)) / s for kind, d, s in apart if kind in ("exponential", "permute_and_flip")]
    if sum(pure) + sum(chosen) <= epsilon * room and not any(squares):
        return
    assert delta > 0, "pure draws cost more than epsilon"
    if not chosen and not pure:
        assert math.sqrt(sum(squares)) <= gaussian_mu(epsilon, delta) * room
        return
    assert not any(squares)
    rho = sum(e * e / 2 for e in pure) + sum(e * e / 8 for e in chosen)
    each = max([*pure, *chosen])
    composed = pure_composition_delta(each, len(pure) + len(chosen), epsilon) <= delta * room
    assert composed or rho <= zcdp_rho(epsilon, delta) * room


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS, ids=lambda x: f"{x:g}")
@pytest.mark.parametrize("name", MECHANISMS)
def test_draws_hide_a_record_at_every_budget(name: str, epsilon: float, delta: float) -> None:
    check(MECHANISMS[name], Options(epsilon, delta))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (100.0, 0.0)], ids=lambda x: f"{x:g}")
@pytest.mark.parametrize("name", MECHANISMS)
def test_draws_hide_a_record_of_unequal_bounds(name: str, epsilon: float, delta: float, seed: int) -> None:
    check(MECHANISMS[name], Options(epsilon, delta), seed)


# ------------------------------------------------------------------------------------------------ planted faults
def test_a_choice_without_noise_at_large_budgets_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = frank_wolfe._select

    def greedy(scores: Any, apart: float, epsilon: float, pure: bool, source: Any) -> int:
        return int(np.argmax(scores)) if epsilon > 20 else honest(scores, apart, epsilon, pure, source)

    monkeypatch.setattr(frank_wolfe, "_select", greedy)
    check(FrankWolfe(steps=1, rate=0.0, clip=math.inf), Options(1.0, 0.0))
    with pytest.raises(AssertionError):
        check(FrankWolfe(steps=1, rate=0.0, clip=math.inf), Options(100.0, 0.0))


@pytest.mark.parametrize("name", ["sufficient-statistics", "noisy-descent", "mirror-descent", "gaussian-frank-wolfe"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_half_the_noise_is_found_out(name: str, delta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin asks for half the scale it should: these draws are tight on the worst neighbour."""
    for kind in ("gaussian", "laplace"):
        plain = getattr(Replay, kind)
        monkeypatch.setattr(Replay, kind, lambda self, values, scale, plain=plain: plain(self, values, scale / 2))
    with pytest.raises(AssertionError):
        check(MECHANISMS[name], Options(1.0, delta))


# --------------------------------------------------------------------------- the published choice's printed epsilon
STEPS = [(e, d, t) for e in (1e-3, 1.0, 10.0, 100.0) for d in (1e-9, 1e-6, 1e-3, 0.1) for t in (1, 30, 3000)]


def composes(each: float, steps: int, epsilon: float, delta: float) -> bool:
    if pure_composition_delta(each, steps, epsilon) <= delta * (1 + 1e-9):
        return True
    return steps * each**2 / 8 <= zcdp_rho(epsilon, delta) * (1 + 1e-9)


def check_printed() -> None:
    for epsilon, delta, steps in STEPS:
        each = FrankWolfeAsPrinted().selection_epsilon(Options(epsilon, delta), steps)
        assert 0 < each <= epsilon / math.sqrt(8 * steps * math.log(1 / delta)) * (1 + 1e-12)
        assert composes(each, steps, epsilon, delta)


def test_the_printed_epsilon_composes_at_every_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    check_printed()
    monkeypatch.setattr(frank_wolfe_published, "valid_step", lambda printed, *rest: math.sqrt(8) * printed)
    with pytest.raises(AssertionError):
        check_printed()


# ------------------------------------------------------------------------------------ one record at a time
N = 300


def places(seed: int) -> np.ndarray:
    """The rows that mirror descent reads, in the order it reads them: row i of this model is i + 1 times (1, 0)."""
    X = np.column_stack([np.arange(1.0, N + 1) / N, np.zeros(N)])
    model = regression(X, np.ones(N), "hinge", l2=1.0, domain=L2Ball(2, 1e-9))
    source = Replay(seed)
    STOCHASTIC_MIRROR_DESCENT.run(model, Options(0.5, 1e-3), source)
    steps = [values[0] for kind, values, _ in source.asked if values.shape == (2,)]
    return np.array([round(-value * N) - 1 for value in steps if value != 0])


def ascents(order: np.ndarray) -> int:
    return int((np.diff(order) > 0).sum())


def test_records_are_read_in_a_random_order() -> None:
    """Amplification rests on it. Half of all steps up, as in a random order: 6 standard deviations (false alarm 2e-9
    each)."""
    orders = [places(seed) for seed in range(3)]
    for order in orders:
        assert order.size == np.unique(order).size == -(-N // 2)  # half of the records, each once
        assert abs(ascents(order) - (order.size - 1) / 2) < 6 * math.sqrt((order.size + 1) / 12)
    assert not np.array_equal(np.sort(orders[0]), np.sort(orders[1]))  # and not always the same half


def test_rows_in_their_own_order_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stochastic_mirror_descent.np, "lexsort", lambda keys: np.arange(keys[0].size))
    order = places(0)
    assert abs(ascents(order) - (order.size - 1) / 2) > 6 * math.sqrt((order.size + 1) / 12)
