"""One number by ranks: the spellings that mean one, what a record moves, and what is proved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from descents import Replay, seeded
from regressions import objective, regression

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.quantile_exponential import QUANTILE_EXPONENTIAL, grid_of
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sets import Box

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")

# ------------------------------------------------------------------ spellings: x, D, cost of one short, of one over, n
Write = Callable[[Any, Any, float, float, int], Any]
NEWSVENDORS: dict[str, Write] = {
    "max": lambda x, D, u, o, n: cp.Minimize(cp.sum(cp.maximum(u * (D - x), o * (x - D)))),
    "max of negatives": lambda x, D, u, o, n: cp.Minimize(cp.sum(cp.maximum(o * (x - D), -u * (x - D)))),
    "over n": lambda x, D, u, o, n: cp.Minimize(cp.sum(cp.maximum(u * (D - x), o * (x - D))) / n),
    "mean": lambda x, D, u, o, n: cp.Minimize(cp.mean(cp.maximum(u * (D - x), o * (x - D)))),
    "two parts": lambda x, D, u, o, n: cp.Minimize(u * cp.sum(cp.pos(D - x)) + o * cp.sum(cp.pos(x - D))),
    "two parts in one": lambda x, D, u, o, n: cp.Minimize(cp.sum(u * cp.pos(D - x) + o * cp.pos(x - D))),
    "over and short": lambda x, D, u, o, n: cp.Minimize(cp.sum(o * (x - D) + (u + o) * cp.pos(D - x))),
    "sold less bought": lambda x, D, u, o, n: cp.Maximize((u + o) * cp.sum(cp.minimum(x, D)) - o * n * x),
    "sold less bought, each": lambda x, D, u, o, n: cp.Maximize(cp.sum((u + o) * cp.minimum(D, x) - o * x)),
    "mean sold less bought": lambda x, D, u, o, n: cp.Maximize((u + o) * cp.sum(cp.minimum(x, D)) / n - o * x),
    "bought and short": lambda x, D, u, o, n: cp.Minimize(o * x + (u + o) * cp.sum(cp.pos(D - x)) / n),
    "ones": lambda x, D, u, o, n: cp.Minimize(cp.sum(cp.maximum(u * (D - x * np.ones(n)), o * (x * np.ones(n) - D)))),
}
MEDIANS: dict[str, Write] = {
    "abs": lambda x, D, u, o, n: cp.Minimize(cp.sum(cp.abs(D - x))),
    "norm1": lambda x, D, u, o, n: cp.Minimize(cp.norm1(x - D)),
    "norm": lambda x, D, u, o, n: cp.Minimize(cp.norm(D - x, 1)),
    "scaled": lambda x, D, u, o, n: cp.Minimize(cp.sum(cp.abs(2 * x - 2 * D)) / n),
}
SETS: list[Callable[[], tuple[Any, list[Any]]]] = [
    lambda: (cp.Variable(), []),
    lambda: (cp.Variable(bounds=[0, 200]), []),
    lambda: (x := cp.Variable(nonneg=True), [x <= 200]),
]


@pytest.mark.parametrize("name", [*NEWSVENDORS, *MEDIANS])
def test_spellings_of_a_scalar_are_solved_by_rank(name: str) -> None:
    """Costs, sizes, sets and neighbours are drawn; at epsilon 1,000 the answer is within half a unit of the quantile
    (a draw beyond has probability below 1e-40: 30 ranks off at scale 2 / epsilon)."""
    rng = np.random.default_rng(len(name) + 7 * sum(map(ord, name)))
    set_of = SETS[rng.integers(len(SETS))]
    n, short, over = int(rng.integers(400, 1500)), *(float(c) for c in rng.integers(1, 6, 2))
    neighbors: Any = rng.choice(["replace-one", "add-remove"])
    counts = np.round(rng.gamma(4, 15, n)).clip(0, 200)
    D = dpm.Private(counts, name="D", unit="entry", bounds=(0, 200), records=dpm.Records("days", neighbors))
    x, constraints = set_of()
    problem = dpm.Problem((NEWSVENDORS | MEDIANS)[name](x, D, short, over, n), constraints)
    level = 0.5 if name in MEDIANS else short / (short + over)
    problem.solve(epsilon=1000, rng=3)
    assert problem.release.mechanism == "quantile-exponential"
    low, high = (np.quantile(counts, level, method=how) for how in ("inverted_cdf", "higher"))
    assert low - 0.5 <= float(x.value) <= high + 0.5


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_a_plan_takes_it_at_every_budget_where_it_says_something(epsilon: float) -> None:
    counts = np.round(np.random.default_rng(0).gamma(4, 15, 5000)).clip(0, 200)
    D, x = dpm.Private(counts, name="D", unit="entry", bounds=(0, 200)), cp.Variable()
    problem = dpm.Problem(cp.Minimize(cp.sum(cp.maximum(3 * (D - x), x - D))), [x >= 0])
    problem.solve(epsilon=epsilon, rng=0)
    assert problem.release.mechanism == "quantile-exponential"
    excess = np.maximum(3 * (counts - x.value), x.value - counts).sum()
    best = np.quantile(counts, 0.75, method="inverted_cdf")
    assert excess <= 1.02 * np.maximum(3 * (counts - best), best - counts).sum()


# ------------------------------------------------------------------ what one record moves
LOSSES = [Loss("absolute"), Loss("quantile", 0.75), Loss("quantile", 1.0), Loss("absolute", clip=0.3)]


def constant(y: np.ndarray, loss: Loss, column: float = 1.0, **how: Any) -> PrivateRegression:
    """n records with the label y and one column that is the same number for all."""
    made = regression(np.full((y.size, 1), column), y, loss, **{"label": (0.0, 10.0), "mean": False} | how)
    row = replace(made.row, lower=np.array([column]), upper=np.array([column]), constant=np.array([True]))
    return replace(made, row=row)


def scores(model: PrivateRegression, y: np.ndarray, epsilon: float) -> tuple[np.ndarray, float]:
    """The scores and the range that are handed to the sampler."""
    rows = model.read_rows()
    there = replace(model, read=lambda: Rows(rows.blocks, y, 1, rows.offset, rows.weights))
    source = Replay(0)
    QUANTILE_EXPONENTIAL.run(there, Options(epsilon, 0.0), source)
    ((kind, values, scale),) = source.asked
    assert kind == "permute_and_flip"
    return values, scale * epsilon


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("column", [1.0, -2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_record_moves_scores_by_no_more_than_the_range(loss: Loss, column: float, weighted: bool) -> None:
    """Records at, between and beyond points of the grid, at both ends and absent (label 0); the largest move that is
    found uses all of the range, so that half of it would not do."""
    rng, worst = np.random.default_rng(5), 0.0
    for trial in range(12):
        n = int(rng.integers(1, 9))
        weights = rng.uniform(0.5, 3.0, n) if weighted else None
        y = rng.choice([0.0, 10.0, 5.0, 3.3, 7.77], n)
        y[0] = 5.0 if trial % 2 else y[0]
        model = constant(y, loss, column, weights=weights, domain=Box(np.array([-12.0]), np.array([12.0])))
        base, apart = scores(model, y, 2.0)
        first = 0 if weights is None else int(np.argmax(weights))
        for label in (0.0, 10.0, 4.999, 5.0, 3.3):
            other = y.copy()
            other[first] = label
            moved = scores(model, other, 2.0)[0] - base
            assert np.ptp(moved) <= apart
            worst = max(worst, float(np.ptp(moved)) / apart)
    assert worst > 0.49  # all scores on one side of the minimiser move by Delta; on both sides: the next test


def test_half_the_range_would_not_do() -> None:
    """Of two records one moves from one end to the other: scores fall on one side of it and rise on the other."""
    model = constant(np.zeros(2), Loss("absolute"))
    (one, apart), (two, _) = (scores(model, np.array([end, 3.3]), 1.0) for end in (0.0, 10.0))
    assert np.ptp(two - one) == pytest.approx(apart, rel=1e-9)


# ------------------------------------------------------------------ what is proved
@pytest.mark.parametrize(
    "y",
    [
        np.full(400, 3.3333),
        np.concatenate([np.zeros(199), np.full(201, 10.0)]),
        np.linspace(0, 10, 400) ** 2 / 10,
        np.concatenate([np.full(100, 2.00001), np.full(300, 2.00002)]),
    ],
    ids=["one point between two of the grid", "two ends", "spread", "in one cell"],
)
@pytest.mark.parametrize("linear", [0.0, 90.0])
def test_the_proved_bound_holds(y: np.ndarray, linear: float) -> None:
    """With probability 1 - beta = .5: more than 150 of 200 beyond it have probability below 1e-12 (seeds 0 to 199)."""
    model = constant(y, Loss("quantile", 0.4))
    model = replace(model, penalty=replace(model.penalty, linear=np.array([linear])))
    for epsilon in (0.05, 1.0, 50.0):
        options = Options(epsilon, 0.0, beta=0.5)
        at_most = QUANTILE_EXPONENTIAL.forecast(model, options).error.alpha
        grid = np.unique(np.concatenate([grid_of(model, 0.0), y]))
        best = min(objective(model, np.array([t])) for t in grid)
        found = [objective(model, QUANTILE_EXPONENTIAL.run(model, options, seeded(k)).x) for k in range(200)]
        if math.isfinite(at_most):
            assert sum(value - best > at_most for value in found) <= 150


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (regression(np.zeros((3, 2)), np.zeros(3), "absolute"), "one number"),
        (constant(np.zeros(3), Loss("squared")), "ranks"),
        (constant(np.zeros(3), Loss("absolute"), 0.0), "one number"),
    ],
    ids=["two", "squares", "nothing"],
)
def test_it_refuses_what_has_no_ranks(model: PrivateRegression, word: str) -> None:
    verdict = QUANTILE_EXPONENTIAL.eligible(model, Options(1.0, 0.0))
    assert not verdict.eligible
    assert word in verdict.reason


def test_a_linear_term_that_draws_the_number_away_needs_a_set() -> None:
    def drawn(domain: Any) -> PrivateRegression:
        model = constant(np.zeros(3), Loss("absolute"), domain=domain)
        return replace(model, penalty=replace(model.penalty, linear=np.array([3.5])))

    assert "beyond all bounds" in QUANTILE_EXPONENTIAL.eligible(drawn(None), Options(1.0, 0.0)).reason
    inside = drawn(Box(np.array([-5.0]), np.array([7.0])))
    assert QUANTILE_EXPONENTIAL.run(inside, Options(1000.0, 0.0), seeded(0)).x == pytest.approx(-5.0, abs=0.02)
