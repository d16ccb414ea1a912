"""Constants: the spellings that mean one number, what a record moves, what is proved, and where a plan takes one."""

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
from dpmodel.regressions.losses import Loss, Softmax
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.private_constant import PRIVATE_CONSTANT, grid_of, predicted_of_mean
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.sets import Box, FreeSpace
from dpmodel.regressions.synthetic import populations_of

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
    assert problem.release.mechanism == "private-constant"
    low, high = (np.quantile(counts, level, method=how) for how in ("inverted_cdf", "higher"))
    assert low - 0.5 <= float(x.value) <= high + 0.5


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_a_plan_takes_it_at_every_budget_where_it_says_something(epsilon: float) -> None:
    counts = np.round(np.random.default_rng(0).gamma(4, 15, 5000)).clip(0, 200)
    D, x = dpm.Private(counts, name="D", unit="entry", bounds=(0, 200)), cp.Variable()
    problem = dpm.Problem(cp.Minimize(cp.sum(cp.maximum(3 * (D - x), x - D))), [x >= 0])
    problem.solve(epsilon=epsilon, rng=0)
    assert problem.release.mechanism == "private-constant"
    excess = np.maximum(3 * (counts - x.value), x.value - counts).sum()
    best = np.quantile(counts, 0.75, method="inverted_cdf")
    assert excess <= 1.02 * np.maximum(3 * (counts - best), best - counts).sum()


# ------------------------------------------------------------------ what one record moves
LOSSES = [Loss("absolute"), Loss("quantile", 0.75), Loss("quantile", 1.0), Loss("absolute", clip=0.3)]
LOSSES += [Loss("huber", 1.5), Loss("squared", clip=2.0)]


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
    PRIVATE_CONSTANT.run(there, Options(epsilon, 0.0), source)
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
    for trial in range(12 if loss.name in ("absolute", "quantile") else 4):
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
    """With probability 1 - beta = .5: more than 64 of 80 beyond it have probability below 1e-7 (seeds 0 to 79)."""
    model = constant(y, Loss("quantile", 0.4))
    model = replace(model, penalty=replace(model.penalty, linear=np.array([linear])))
    for epsilon in (0.05, 1.0, 50.0):
        options = Options(epsilon, 0.0, beta=0.5)
        at_most = PRIVATE_CONSTANT.forecast(model, options).error.alpha
        grid = np.unique(np.concatenate([grid_of(model, 0.0), y]))
        best = min(objective(model, np.array([t])) for t in grid)
        found = [objective(model, PRIVATE_CONSTANT.run(model, options, seeded(k)).x) for k in range(80)]
        if math.isfinite(at_most):
            assert sum(value - best > at_most for value in found) <= 64


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (regression(np.zeros((3, 2)), np.zeros(3), "absolute"), "no column"),
        (constant(np.zeros(3), Loss("absolute"), 0.0), "no column"),
        (constant(np.zeros(3), Loss("squared"), label=(0.0, math.inf)), "no bounds"),
        (constant(np.ones(3), Loss("hinge"), label=(1.0, 1.0)), "all are the same"),
        (replace(constant(np.zeros(3), Loss("logistic")), offset_bound=1.0), "offsets"),
        (
            replace(constant(np.zeros(3), Loss("squared")), penalty=Penalty(np.zeros(1), np.ones(1), np.zeros(1))),
            "ridge",
        ),
    ],
    ids=["two", "nothing", "no bounds", "folded", "offsets", "l1"],
)
def test_it_refuses(model: PrivateRegression, word: str) -> None:
    verdict = PRIVATE_CONSTANT.eligible(model, Options(1.0, 0.0))
    assert not verdict.eligible
    assert word in verdict.reason


# ------------------------------------------------------------------ the mean label
def sums(model: PrivateRegression, y: np.ndarray, o: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """What the noise is added to, and its scale at epsilon 1."""
    rows, source = model.read_rows(), Replay(0)
    there = replace(model, read=lambda: Rows(rows.blocks, y, rows.size, o, rows.weights))
    PRIVATE_CONSTANT.run(there, Options(1.0, 0.0), source)
    ((kind, values, scale),) = source.asked
    assert kind == "laplace"
    return values, scale


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("loss", "label"),
    [
        ("squared", (-2.0, 5.0)),
        ("squared", (3.0, 5.0)),
        ("logistic", (-1.0, 1.0)),
        ("hinge", (-1.0, 1.0)),
        ("binary_logistic", (0.0, 1.0)),
    ],
)
def test_one_record_moves_the_sum_of_labels_by_the_scale(
    loss: str, label: tuple[float, float], weighted: bool, absent: bool
) -> None:
    """Attained within rounding by the heaviest record at the ends of its range, or absent (label 0)."""
    rng = np.random.default_rng(3)
    weights = rng.uniform(0.5, 3.0, 7) if weighted else None
    y, offsets = rng.uniform(*label, 7), rng.uniform(-1, 1, 7) if loss == "squared" else None
    model = regression(rng.uniform(-1, 1, (7, 2)), y, loss, label=label, absent=absent, intercept=True, weights=weights)
    heavy = 0 if weights is None else int(np.argmax(weights))
    found = []
    for end in label:
        for other in (0.0,) if absent else label:
            one, two = y.copy(), y.copy()
            one[heavy], two[heavy] = end, other
            (a, scale), (b, _) = sums(model, one, offsets), sums(model, two, offsets)
            found.append(float(np.abs(a - b).sum()))
    assert max(found) <= scale
    assert max(found) == pytest.approx(scale, rel=1e-9)


@pytest.mark.parametrize(("absent", "moved"), [(False, 2.0), (True, 1.0)])
def test_one_record_moves_the_counts_of_classes_by_the_scale(absent: bool, moved: float) -> None:
    model, Y = classes(np.array([3, 1, 2]), absent=absent)
    other = Y.copy()
    other[0] = 0.0 if absent else np.eye(3)[2]
    (a, scale), (b, _) = sums(model, Y), sums(model, other)
    assert float(np.abs(a - b).sum()) == moved == pytest.approx(scale, rel=1e-9)


def classes(counts: np.ndarray, absent: bool = False) -> tuple[PrivateRegression, np.ndarray]:
    """Three classes with so many records each, two columns and an intercept."""
    Y = np.repeat(np.eye(3), counts, axis=0)
    made = regression(
        np.zeros((len(Y), 2)), np.zeros(len(Y)), "squared", intercept=True, absent=absent, label=(0.0, 1.0)
    )
    rows, size = made.read_rows(), 9
    return replace(
        made,
        loss=Softmax(classes=3),
        domain=FreeSpace(size),
        penalty=Penalty.none(size),
        read=lambda: Rows(rows.blocks, Y, 3),
    ), Y


# ------------------------------------------------------------------ the constants themselves
BEST = {
    "squared": lambda y: float(y.mean()),
    "logistic": lambda y: math.log((1 + y.mean()) / (1 - y.mean())),
    "hinge": lambda y: 1.0,
    "squared_hinge": lambda y: float(y.mean()),
    "absolute": lambda y: 1.0,
    "huber": lambda y: float(y.mean()),
}


@pytest.mark.parametrize("loss", BEST)
def test_without_noise_it_is_the_best_constant(loss: str) -> None:
    """At epsilon 1e5: 700 signs of 1 and 300 of -1; the intercept's column is 2, other coefficients are 0."""
    y = np.repeat([1.0, -1.0], [700, 300])
    model = regression(np.zeros((1000, 2)), y, Loss(loss, 2.5) if loss == "huber" else loss, intercept=True)
    row = replace(model.row, lower=np.array([-1.0, -1, 2]), upper=np.array([1.0, 1, 2]))
    x = PRIVATE_CONSTANT.run(replace(model, row=row), Options(1e5, 0.0), seeded(0)).x
    assert x is not None
    assert x == pytest.approx([0.0, 0.0, BEST[loss](y) / 2], abs=2e-3)


def test_classes_get_their_logs() -> None:
    model, _ = classes(np.array([500, 300, 200]))
    x = PRIVATE_CONSTANT.run(model, Options(1e5, 0.0), seeded(0)).x
    assert x is not None
    W = x.reshape(3, 3)
    assert not W[:, :2].any()
    assert np.diff(W[:, 2]) == pytest.approx(np.log([300 / 500, 200 / 300]), abs=1e-3)


def test_a_ridge_on_the_constant_is_minded() -> None:
    y = np.repeat([1.0, -1.0], [700, 300])
    model = regression(np.zeros((1000, 1)), y, "squared", intercept=True)
    model = replace(model, penalty=replace(model.penalty, ridge=np.array([0.0, 1.0])))
    x = PRIVATE_CONSTANT.run(model, Options(1e5, 0.0), seeded(0)).x
    assert x == pytest.approx([0.0, 0.2], abs=1e-3)


# ------------------------------------------------------------------ where a plan takes it
@pytest.mark.parametrize(
    ("loss", "neighbors"),
    [("logistic", "replace-one"), ("squared", "add-remove"), ("absolute", "replace-one"), ("hinge", "add-remove")],
)
def test_small_budgets_take_the_constant_and_large_ones_a_fit(loss: str, neighbors: Any) -> None:
    """2,000 records, 12 columns, labels that these explain well: at epsilon .02 and 50."""
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (2000, 12))
    score = rows[:, 0] - rows[:, 1] + 0.5
    labels = np.sign(score) if loss in ("logistic", "hinge") else np.clip(score / 2, -1, 1)
    people = dpm.Records("people", neighbors)
    X = dpm.Private(rows, name="X", unit="row", bounds=[-1, 1], records=people)
    y = dpm.Private(labels, name="y", unit="entry", bounds=[-1, 1], records=people)
    w, b = cp.Variable(12), cp.Variable()
    z = X @ w + b
    losses = {
        "logistic": lambda: cp.logistic(-cp.multiply(y, z)),
        "squared": lambda: cp.square(z - y),
        "absolute": lambda: cp.abs(z - y),
        "hinge": lambda: cp.pos(1 - cp.multiply(y, z)),
        "huber": lambda: cp.huber(z - y, 0.2),
    }
    problem = dpm.Problem(cp.Minimize(cp.sum(losses[loss]()) / 2000))
    assert problem.plan(epsilon=0.02).chosen.mechanism == "private-constant"
    assert problem.plan(epsilon=50).chosen.mechanism != "private-constant"
    problem.solve(epsilon=0.02, rng=0)
    assert not w.value.any()
    assert problem.release.guarantee.delta == 0


@pytest.mark.parametrize(("loss", "share"), [("logistic", 0.15), ("hinge", 0.6)])
def test_without_noise_it_is_predicted_to_miss_what_columns_explain_in_the_other_tables(
    loss: str, share: float
) -> None:
    rng = np.random.default_rng(0)
    model = regression(rng.uniform(-1, 1, (30, 4)), np.repeat([1.0, -1.0], [10, 20]), loss, intercept=True)
    people = populations_of(model)
    explained = (people.constant_values(np.linspace(-3, 3, 601)).min(axis=1) - people.best).mean()
    assert predicted_of_mean(model, 1e-9) == pytest.approx((1 - share) * explained, rel=1e-2)


def test_a_linear_term_that_draws_the_number_away_needs_a_set() -> None:
    def drawn(domain: Any) -> PrivateRegression:
        model = constant(np.zeros(3), Loss("absolute"), domain=domain)
        return replace(model, penalty=replace(model.penalty, linear=np.array([3.5])))

    assert "beyond all bounds" in PRIVATE_CONSTANT.eligible(drawn(None), Options(1.0, 0.0)).reason
    inside = drawn(Box(np.array([-5.0]), np.array([7.0])))
    assert PRIVATE_CONSTANT.run(inside, Options(1000.0, 0.0), seeded(0)).x == pytest.approx(-5.0, abs=0.02)
