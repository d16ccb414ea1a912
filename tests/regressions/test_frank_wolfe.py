"""Private Frank-Wolfe: ranges by brute force, scales asked, forecasts and statements against what happens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from descents import Replay, moves, random_pair, replayed
from regressions import objective, regression
from scipy.stats import binom

from dpmodel.as_printed.frank_wolfe import FRANK_WOLFE_AS_PRINTED
from dpmodel.contract import Options
from dpmodel.errors import SpecificationError
from dpmodel.privacy import SeededSource, pure_composition_delta, zcdp_rho
from dpmodel.regressions import frank_wolfe
from dpmodel.regressions.frank_wolfe import FrankWolfe, selection_epsilon
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.populations import side_by_side
from dpmodel.regressions.sets import L1Ball
from dpmodel.regressions.synthetic import each_population
from dpmodel.regressions.walk import Steps, excess_bound

CLOSE = 4e-3  # rounding allowances enlarge ranges by less than this share
FALSE_ALARM = 1e-7
pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")


class Scripted(Replay):
    """Answers selections with the script, then with the last vertex."""

    def noisy_max(self, scores: Any, scale: float, *, kind: Any) -> int:
        return int(self._answer(kind, scores, scale, lambda values, _: np.size(values) - 1))


@dataclass(frozen=True)
class Given(FrankWolfe):
    """With these settings, and so much for each choice."""

    taken: Steps = field(default_factory=partial(Steps, 1))
    each: float = 1.0

    def settings(self, model: PrivateRegression, options: Options) -> Steps:
        return self.taken

    def selection_epsilon(self, options: Options, steps: int) -> float:
        return self.each


def private_walk(model: PrivateRegression, steps: Steps, epsilon: float, pure: bool, source: Any) -> Any:
    return Given(taken=steps, each=epsilon).run(model, Options(1.0, 0.0 if pure else 1e-6), source).x


# ------------------------------------------------------------------------------------- brute-force sensitivity
def plain(rng: np.random.Generator, n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.choice([-1.0, 1.0], size=(n, p)), rng.choice([-1.0, 1.0], size=n)


@pytest.mark.parametrize("domain", ["l1", "solid", "product"])
def test_random_neighbours_move_scores_within_their_range(domain: str) -> None:
    """The worst neighbours reach all of it: with half of the noise the check fails."""
    generator, worst = np.random.default_rng(2), 0.0
    for number in range(100):
        model, rows, others = random_pair(generator, domain)
        steps = Steps(4, clip=float(generator.choice([0.2, math.inf])))
        pair = [replace(model, read=lambda rows=each: rows) for each in (rows, others)]
        both = replayed(lambda m, s, steps=steps: private_walk(m, steps, 0.3, False, s), *pair, number)
        worst = max(worst, float(moves(*both, 0).max()))
    assert 0.99 * 0.3 < worst <= 0.3 * (1 + 1e-12)


def test_the_scales_asked_of_the_source() -> None:
    """Against formulas written out: range 4 C reach / n, and a composition of T selections."""
    rng = np.random.default_rng(0)
    n, C = 50, 0.7
    X, y = plain(rng, n, 3)
    model = regression(X, y, domain=L1Ball(3, C), lower=-1, upper=1)
    for delta, count in ((1e-6, 1), (1e-6, 40), (0.0, 7)):
        source = Scripted(0, [0] * count)
        FrankWolfe(steps=count, rate=0.0, clip=math.inf).run(model, Options(0.9, delta), source)
        assert len(source.asked) == count
        first = 4 * C * 2 / n  # w = 0: derivatives of at most 2
        later = 4 * C * 2 * (1 + C) / n  # at a vertex
        for step, (kind, _, scale) in enumerate(source.asked):
            each = (first if step == 0 else later) / scale
            if delta == 0:
                assert kind == "permute_and_flip" and each <= 0.9 / count * (1 + 1e-9)
            else:
                assert kind == "exponential"
                pure = pure_composition_delta(each, count, 0.9) <= delta or each * count <= 0.9
                assert pure or count * each * each / 8 <= zcdp_rho(0.9, delta) * (1 + 1e-9)
            assert each * (1 + CLOSE) >= selection_epsilon(Options(0.9, delta), count)


def test_the_published_scales() -> None:
    rng = np.random.default_rng(0)
    n, C, epsilon, delta = 4000, 1.0, 0.9, 1e-6
    X, y = plain(rng, n, 3)
    model = regression(X, y, domain=L1Ball(3, C), lower=-1, upper=1)
    source, options = Scripted(), Options(epsilon, delta)
    FRANK_WOLFE_AS_PRINTED.run(model, options, source)
    T = round((8 * C * C * epsilon / (2 * (1 + C) * C / n)) ** (2 / 3))
    assert len(source.asked) == T
    step = epsilon / math.sqrt(8 * T * math.log(1 / delta))
    assert source.scales[-1] == pytest.approx(4 * C * 2 * (1 + C) / n / step, rel=CLOSE)
    assert pure_composition_delta(step, T, epsilon) <= delta
    # The noise as printed, with epsilon put in, is a quarter of it.
    printed = 2 * (1 + C) * C * math.sqrt(8 * T * math.log(1 / delta)) / (n * epsilon)
    assert source.scales[-1] == pytest.approx(4 * printed, rel=CLOSE)


# ------------------------------------------------------------------------------- exact distributions of all paths, and
# twins


def test_slopes_are_cut_whatever_the_rows_are() -> None:
    """Rows beyond their bounds (a fault elsewhere) still do not reach further than the clip."""
    X = np.array([[1.0, 1.0], [-1.0, 1.0]])
    models = [
        regression(X, y, domain=L1Ball(2, 1.0), lower=-1, upper=1) for y in (np.array([1e9, 0]), np.array([-1e9, 0]))
    ]
    sources = Scripted(0, [0, 1]), Scripted(0, [0, 1])
    options = Options(1.0, 1e-6)
    for model, source in zip(models, sources, strict=True):
        FrankWolfe(steps=2, rate=0.0, clip=0.3).run(model, options, source)
    assert 0 < moves(*sources, 0).max() <= selection_epsilon(options, 2) * (1 + 1e-9)


# ---------------------------------------------------------------------------------------------- what it says and does
def sparse_truth(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 1.0], size=(n, p))
    truth = np.zeros(p)
    truth[:10] = 0.1
    return X, X @ truth + 0.1 * rng.normal(size=n), truth


def test_the_proved_statement_holds() -> None:
    X, y, _ = sparse_truth(3000, 20)
    model = regression(X, np.clip(y, -1, 1), domain=L1Ball(20, 1.0), lower=-1, upper=1)
    # So much epsilon that the bound is below the public point's; bounds that this point keeps too are not stated.
    options, mechanism = Options(4.0, 1e-6, beta=0.2), FrankWolfe(clip=math.inf)
    forecast = mechanism.forecast(model, options)
    assert forecast.proved and "at most" in forecast.statement
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    lower_bound = objective(model, model.domain.project(best))
    excess = []
    for seed in range(40):
        x = mechanism.run(model, options, SeededSource(seed)).x
        assert x is not None
        excess.append(objective(model, x) - lower_bound)
    above = int((np.array(excess) > forecast.alpha).sum())
    assert binom.sf(above - 1, 40, 0.2) > FALSE_ALARM
    twin = float(np.median(excess)) / 2  # a statement that does not hold is found out
    assert binom.sf(int((np.array(excess) > twin).sum()) - 1, 40, 0.2) < FALSE_ALARM


def test_the_bound_is_the_theorem() -> None:
    """Without noise: 2 Gamma / (T + 2) for sizes 2 / (t + 2) and the last iterate; noise adds at least R ln k / eps."""
    model = regression(np.ones((4, 3)), np.ones(4), domain=L1Ball(3, 1.0), lower=-1, upper=1)
    for count in (1, 5, 50):
        steps = Steps(count, average=0.0)
        plain_part = excess_bound(model, steps, 0.0, 6, 0.05)
        assert plain_part <= 2 * 8 / (count + 2) * (1 + 1e-9)
        assert steps.pulls.sum() == pytest.approx(1.0)  # the first step has size 1
        assert excess_bound(model, steps, 0.1, 6, 0.05) >= plain_part + 0.1 * math.log(6)
    even = Steps(7, rate=2.0, average=0.5)
    w, out = 1.0, 0.0
    for size, share in zip(even.sizes, even.shares, strict=True):
        w *= 1 - size
        out += share * w
    assert even.pulls.sum() == pytest.approx(1 - out) and even.shares.sum() == pytest.approx(1.0)


def test_predictions_are_what_happens() -> None:
    """Rows drawn from a synthetic population: the excess predicted for it is the one that comes."""
    n, p = 4000, 30
    blank = regression(np.zeros((n, p)), np.zeros(n), domain=L1Ball(p, 1.0), lower=-1, upper=1, label=(-2.0, 2.0))
    risk, options = each_population(blank)[0], Options(1.0, 1e-6)
    mechanism = FrankWolfe(steps=32, rate=0.0, clip=0.5)
    steps = mechanism.settings(blank, options)
    epsilon = selection_epsilon(options, 32)
    among = side_by_side([risk])
    foreseen = frank_wolfe.simulated_excess(blank, lambda _: epsilon, [steps], among, range(12)).mean()
    found, rng = [], np.random.default_rng(0)
    for seed in range(12):
        X = rng.choice([-1.0, 1.0], size=(n, p))
        y = X @ risk.truth[0] + risk.noise * rng.normal(size=n)
        model = regression(X, np.clip(y, -2, 2), domain=L1Ball(p, 1.0), lower=-1, upper=1, label=(-2.0, 2.0))
        x = mechanism.run(model, options, SeededSource(seed)).x
        assert x is not None
        found.append(risk.excess(x[None])[0])
    assert risk.nothing[0] > 3 * foreseen > 0
    assert 0.6 < np.mean(found) / foreseen < 1.6


def test_sparse_rows_give_the_same_point_and_every_step_is_one_pass() -> None:
    rng = np.random.default_rng(3)
    X = np.where(rng.random((400, 30)) < 0.1, rng.choice([-1.0, 1.0], size=(400, 30)), 0.0)
    y = np.clip(X[:, 0] - X[:, 1] + 0.1 * rng.normal(size=400), -1, 1)
    mechanism, passes, points = FrankWolfe(steps=9, rate=0.0, clip=0.5), [], []
    for matrix in (X, sp.csr_array(X)):
        model = regression(matrix, y, domain=L1Ball(30, 1.0), lower=-1, upper=1, intercept=False)
        rows = model.read_rows()

        class Counting(type(rows)):  # type: ignore[misc]
            def map_reduce(self, *given: Any) -> Any:
                passes.append(self.count)
                return super().map_reduce(*given)

        counted = Counting(rows.blocks, rows.labels, rows.size)
        model = replace(model, read=lambda counted=counted: counted)
        points.append(mechanism.run(model, Options(50.0, 1e-6), SeededSource(4)).x)
    np.testing.assert_allclose(*points, atol=1e-9)
    assert passes == [400] * 18


def test_penalties_are_public() -> None:
    """A strong linear term decides without moving the scales by more than rounding."""
    X, y, _ = sparse_truth(200, 12)
    model = regression(X, np.clip(y, -1, 1), domain=L1Ball(12, 1.0), lower=-1, upper=1)
    linear = np.zeros(12)
    linear[7] = 50.0
    pulled = replace(model, penalty=Penalty(np.full(12, 0.1), np.zeros(12), linear))
    sources = Scripted(0, [0]), Scripted(0, [0])
    mechanism = FrankWolfe(steps=1, rate=0.0, clip=0.5)
    mechanism.run(model, Options(1.0, 1e-6), sources[0])
    mechanism.run(pulled, Options(1.0, 1e-6), sources[1])
    assert sources[0].scales[0] == pytest.approx(sources[1].scales[0], rel=1e-9)
    x = FrankWolfe(steps=20, rate=0.0, clip=0.5).run(pulled, Options(1.0, 1e-6), SeededSource(0)).x
    assert x is not None and x[7] == pytest.approx(-1.0)


@pytest.mark.parametrize("wrong", [{"count": 0}, {"rate": -1.0}, {"average": 2.0}, {"clip": 0.0}])
def test_settings_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecificationError, match="steps >= 1"):
        Steps(**({"count": 3} | wrong))
