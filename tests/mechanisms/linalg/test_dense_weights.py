"""Dense weights over a cone: sensitivity by brute force, scales asked, audit with a broken twin, what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from auditing import epsilon_lower_bound
from inequalities import Recorder, system

from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.linalg.dense_weights import mechanism as dense_weights
from dpmodel.mechanisms.linalg.dense_weights.mechanism import DENSE_WEIGHTS, best_plan
from dpmodel.mechanisms.linalg.dense_weights import plan as dense_weights_plan
from dpmodel.mechanisms.linalg.dense_weights.plan import DensePlan, candidates, dense_plan, proved_missed, sum_change
from dpmodel.mechanisms.linalg.protocol import SystemMechanism
from dpmodel.mechanisms.linalg.synthetic import KINDS, instance
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.mechanisms.lp.dense_weights.measure import project_dense
from dpmodel.privacy import SeededSource, gaussian_delta, gaussian_epsilon, gaussian_mu

REQUEST = Request(1.0, 1e-6)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def missed(rows: np.ndarray, answer: np.ndarray) -> int:
    return int(np.count_nonzero(rows @ answer < 0))


def fixed(monkeypatch: pytest.MonkeyPatch, density: int, steps: int, rate: float = 3.0) -> None:
    """Run with this plan, whatever simulations say."""

    def plan(model: PrivateInequalities, request: Request) -> DensePlan:
        return dense_plan(model, request, density, steps, rate)

    monkeypatch.setattr(dense_weights, "best_plan", plan)


# ---------------------------------------------------------------------- sensitivity
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("size", "density"), [(1, 1), (2, 3), (4, 6)])
def test_sensitivity_of_the_weighted_sum(neighbors: str, size: int, density: int) -> None:
    """Weights that are functions of their rows alone; few rows and many; opposite rows; close to the bound."""
    generator, most = np.random.default_rng(size), {1: 0.0, 2: 0.0}
    model = system(np.zeros((0, size)), neighbors=neighbors)
    corners = np.sign(generator.standard_normal(size)) / math.sqrt(size)
    for _ in range(1500):
        n, mixed = int(generator.integers(0, 12)), bool(generator.random() < 0.5)
        rows = unit(generator.standard_normal((n + 1, size))) if mixed else np.tile(-corners, (n + 1, 1))
        new = corners if generator.random() < 0.7 else unit(generator.standard_normal((1, size)))[0]
        log = generator.standard_normal(n + 2) * generator.choice([0.1, 3.0, 30.0]) + generator.choice([0.0, 30.0])
        if generator.random() < 0.2:
            log[0] = 80.0  # the row that changes
        start = rows[1:] if neighbors == "add-remove" else rows
        before = log[2:] if neighbors == "add-remove" else np.r_[log[1], log[2:]]
        after_rows, after = np.vstack([new, rows[1:]]), np.r_[log[0], log[2:]]
        change = after_rows.T @ project_dense(after, density, density) - start.T @ project_dense(
            before, density, density
        )
        for order in most:
            most[order] = max(most[order], float(np.linalg.norm(change, order)))
    for order, found in most.items():
        bound = sum_change(model, density, order)
        assert found <= bound
        assert found >= 0.8 * bound


# ---------------------------------------------------------------------- budget
def scales_asked(model: PrivateInequalities, request: Request) -> list[tuple[str, float, int]]:
    recorder = Recorder.of(0)
    DENSE_WEIGHTS.run(model, request, recorder)
    return [(law, scale, values.size) for law, scale, values, _ in recorder.draws]


def within_budget(draws: list[tuple[str, float, int]], request: Request, density: int, size: int) -> bool:
    change = 2 / density
    if request.delta == 0:
        spent = sum(change * math.sqrt(size) / scale for _, scale, _ in draws[:-1]) + 3 / draws[-1][1]
        return {law for law, *_ in draws} == {"laplace"} and spent <= request.epsilon
    mu = math.sqrt(sum((change / scale) ** 2 for _, scale, _ in draws[:-1]) + 3 / draws[-1][1] ** 2)
    return {law for law, *_ in draws} == {"gaussian"} and gaussian_delta(mu, request.epsilon) <= request.delta


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_scales_compose_to_the_budget(monkeypatch: pytest.MonkeyPatch, neighbors: str, delta: float) -> None:
    size, density, request = 3, 7, Request(0.7, delta)
    fixed(monkeypatch, density, 40)
    model = system(instance(system(np.zeros((0, size)), 0.3), 1, 50), 0.3, neighbors=neighbors)
    draws = scales_asked(model, request)
    assert [k for *_, k in draws] == [size] * 40 + [3]
    assert within_budget(draws, request, density, size)
    assert not within_budget([(law, scale * 0.99, k) for law, scale, k in draws], request, density, size)


def test_nothing_that_is_asked_depends_on_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even whether there are fewer rows than the density."""
    fixed(monkeypatch, 7, 30)
    easy = instance(system(np.zeros((0, 3)), 0.9), 1, 100)

    def asked(run: Any) -> list[Any]:
        return [run(system(rows, 0.3, expected=100)) for rows in (np.zeros((0, 3)), easy[:1], easy, -easy)]

    found = asked(lambda model: scales_asked(model, REQUEST))
    assert all(draws == found[0] for draws in found)

    # The twin stops once the weights are as good as settled.
    honest = dense_weights.weigh

    def stopping(values: Any, noisy_sum: Any, measure: Any, *rest: Any) -> Any:
        *before, plan, progress = rest
        settled = float(np.ptp(measure.projected())) == 0.0 if measure.projected().size > 1 else True
        short = DensePlan(**{**plan.__dict__, "steps": 1 if settled and measure.projected().size < 10 else plan.steps})
        return honest(values, noisy_sum, measure, *before, short, progress)

    monkeypatch.setattr(dense_weights, "weigh", stopping)
    found = asked(lambda model: scales_asked(model, REQUEST))
    assert not all(draws == found[0] for draws in found)


# ---------------------------------------------------------------------- audit
def audited(monkeypatch: pytest.MonkeyPatch, neighbors: str, runs: int = 200_000) -> float:
    """Lower bound on epsilon from the second step, given the first's release, on neighbours that nearly reach 2 r / s.

    200 rows point one way, and so does the first point. The row that differs is then violated, and at density 1 it
    takes nearly all the weight: the sum changes sign. One run on either side records what noise of which scale is added
    to what.
    """
    low, high = np.full((200, 1), -1.0), np.array([[1.0]])
    pair = (np.vstack([low, -high]), np.vstack([low, high])) if neighbors == "replace-one" else (
        low, np.vstack([low, high]))  # fmt: skip

    def plan(model: PrivateInequalities, request: Request) -> DensePlan:
        return replace(dense_plan(model, request, 1, 2, 1.0), rate=4.0)

    with monkeypatch.context() as patch:
        patch.setattr(dense_weights, "best_plan", plan)
        for seed in range(100):
            sides, first = [], []
            for rows in pair:
                recorder = Recorder(SeededSource(seed))
                DENSE_WEIGHTS.run(system(rows, 0.5, neighbors=neighbors, expected=1), Request(1.0, 1e-3), recorder)
                first.append(recorder.draws[0][3][0])
                _, scale, sums, _ = recorder.draws[1]
                sides.append(SeededSource(1000 + len(sides)).gaussian(np.full(runs, sums[0]), scale))
            if max(first) < 0:  # the same first point, -1, on both sides
                return epsilon_lower_bound(*sides, delta=1e-3)
    raise AssertionError("no run started as wanted")


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_audit_and_broken_twin(monkeypatch: pytest.MonkeyPatch, neighbors: str) -> None:
    """One of two steps may use 0.9 / 2 of rho."""
    honest = dense_weights_plan.sum_change
    claimed = gaussian_epsilon(gaussian_mu(1.0, 1e-3) * math.sqrt(0.9 / 2), 1e-3)
    assert 0.3 * claimed <= audited(monkeypatch, neighbors) <= claimed
    monkeypatch.setattr(dense_weights_plan, "sum_change", lambda *arguments: honest(*arguments) / 2)
    assert audited(monkeypatch, neighbors) > claimed


# ---------------------------------------------------------------------- utility
@pytest.mark.parametrize(
    ("size", "margin"), [(2, 0.3), *(pytest.param(*c, marks=pytest.mark.slow) for c in [(5, 0.1), (20, 0.2)])]
)
def test_planted_systems_are_solved(size: int, margin: float) -> None:
    empty = system(np.zeros((0, size)), margin, public=-np.eye(size), expected=5000)
    request = Request(4.0, 1e-6)
    for kind in KINDS:
        rows = instance(empty, 9, 5000, kind)
        model = system(rows, margin, public=-np.eye(size))
        model.remember(("dense-weights", 4.0, 1e-6, 0.05), lambda: best_plan(empty, request))
        found = DENSE_WEIGHTS.run(model, request, SeededSource(3))
        assert found.answer.min() >= 0
        assert missed(rows, found.answer) <= 100


def test_sparse_rows_and_zero_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed(monkeypatch, 200, 100)
    rows = np.vstack([instance(system(np.zeros((0, 4)), 0.3), 2, 2000), np.zeros((50, 4))])
    dense = DENSE_WEIGHTS.run(system(rows, 0.3), REQUEST, SeededSource(1))
    model = system(np.zeros((0, 4)), 0.3, expected=2050)
    sparse = PrivateInequalities(
        4, True, model.public_rows, model.public_sides, 0.3, None, "add-remove", None, 2050,
        lambda: (sp.csr_array(-rows), np.zeros(2050)),
    )  # fmt: skip
    found = DENSE_WEIGHTS.run(sparse, REQUEST, SeededSource(1))
    np.testing.assert_allclose(found.answer, dense.answer, atol=1e-6)
    assert missed(rows, found.answer) <= 60


def test_the_proved_number_of_missed_rows_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails with probability beta = 0.05 at most: more than 6 of 8 runs would have probability below 1e-8."""
    size, margin, n, request = 2, 0.7, 4000, Request(4.0, 1e-6)
    empty = system(np.zeros((0, size)), margin, expected=n)
    plan = next(p for p in candidates(empty, request) if proved_missed(empty, request, p) < math.inf)
    proved = proved_missed(empty, request, plan)
    assert plan.density <= proved < n / 2
    monkeypatch.setattr(dense_weights, "best_plan", lambda model, request: plan)
    failures = 0
    for seed in range(8):
        rows = instance(empty, seed, n, KINDS[seed % 3])
        found = DENSE_WEIGHTS.run(system(rows, margin), request, SeededSource(seed))
        failures += missed(rows, found.answer) > proved
    assert failures <= 6


def test_fewer_rows_cannot_be_promised() -> None:
    """The proved density is the least: below it the error is above the margin, and more noise needs more rows."""
    size, request = 2, Request(4.0, 1e-6)
    empty = system(np.zeros((0, size)), 0.7, expected=4000)
    plan = next(p for p in candidates(empty, request) if proved_missed(empty, request, p) < math.inf)
    lower = dense_plan(empty, request, plan.density // 2, plan.steps, 1.0)
    assert proved_missed(empty, request, lower) == math.inf
    weaker = Request(1.0, 1e-6)
    assert proved_missed(empty, weaker, dense_plan(empty, weaker, plan.density, plan.steps, 1.0)) == math.inf


# ---------------------------------------------------------------------- what it says
def test_forecast_words_and_vacuity() -> None:
    good = DENSE_WEIGHTS.forecast(system(np.zeros((0, 2)), 0.5, expected=2000), Request(1.0, 0.0))
    assert not good.vacuous
    assert "simulations" in good.statement
    assert good.missed <= 100
    bad = DENSE_WEIGHTS.forecast(system(np.zeros((0, 20)), 0.05, expected=5), Request(0.1, 1e-6))
    assert bad.vacuous and not bad.proved


def test_reasons_why_not() -> None:
    assert DENSE_WEIGHTS.eligible(system(np.zeros((0, 3)), 0.1), REQUEST).eligible
    assert "margin" in DENSE_WEIGHTS.eligible(system(np.zeros((0, 3)), None), REQUEST).reason
    assert "rounding" in DENSE_WEIGHTS.eligible(system(np.zeros((0, 3)), 0.1, expected=2**33), REQUEST).reason
    assert isinstance(DENSE_WEIGHTS, SystemMechanism)
