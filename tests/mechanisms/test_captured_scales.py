"""What mechanisms really ask of the noise, against moves of the data found by brute force; every check has its twin.

Nothing here reads an epsilon, a range or a scale from the plan that is tested: they come from the arguments of the
noise source, from neighbouring data, and from formulas written out again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from games import Game, asked, game, replayed
from replaying import Transcript
from scipy.stats import laplace

from dpmodel._types import Floats
from dpmodel.as_printed.algorithm_2 import ALGORITHM_2
from dpmodel.as_printed.algorithms_4_to_6 import ALGORITHM_4, ALGORITHM_5, ALGORITHM_6
from dpmodel.contract import Options, no_progress
from dpmodel.marks import Private, Records
from dpmodel.privacy import pure_composition_delta, zcdp_rho
from dpmodel.privacy.accounting import valid_step
from dpmodel.programs.dense_weights import DENSE_MULTIPLICATIVE_WEIGHTS, Plan
from dpmodel.programs.points import PointExponential
from dpmodel.programs.rows import private_rows

CHEAPEST_POINT = PointExponential(cheapest=True)
# Rounding allowances enlarge scales by less than this share.
CLOSE = 4e-3


# ------------------------------------------------------------------ cheapest-point: the sparse vector technique
COLUMNS = 25


def ballots(reach: int, neighbors: Any, columns: int = 3) -> Game:
    """Four people; each has ``reach`` rows, violated at the unit point e_j where the person's entry j is 0."""
    A = Private(shape=(4, columns), name="A", unit="row", bounds=[0, 1], records=Records(neighbors=neighbors))
    x = cp.Variable(columns, bounds=[0, 1])
    rows = [A @ x >= 1, 2 * A @ x >= 1.5][:reach]
    return game(cp.Minimize(np.arange(1.0, columns + 1) @ x), rows, A)


def asked_of(made: Game, values: Floats, epsilon: float) -> tuple[Floats, float, float]:
    """(k,) the queries, and the scales of the threshold and of the queries."""
    made.seal(A=values)
    options, source = Options(epsilon, 0.0, vertices=np.eye(values.shape[1])), Transcript(0)
    assert CHEAPEST_POINT.eligible(made.model, options).eligible
    CHEAPEST_POINT.run(made.model, options, source)
    (_, _, threshold), (_, queries, scale) = asked(source)
    assert queries.size == values.shape[1]
    return queries, threshold, scale


@cache
def moves(reach: int, neighbors: str) -> tuple[float, float]:
    """Largest move of a count, and largest range of the moves, over all 0/1 rows of one person."""
    made, rows = ballots(reach, neighbors), np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    others = np.eye(3)
    queries = [asked_of(made, np.vstack([row, others]), 1.0)[0] for row in rows]
    # Under add-remove a row of zeros is nobody, and everybody comes or goes.
    pairs = [(0, j) for j in range(8)] if neighbors == "add-remove" else itertools.permutations(range(8), 2)
    sensitivities = [np.append(queries[j] - queries[i], 0.0 if neighbors == "add-remove" else []) for i, j in pairs]
    return max(float(np.abs(c).max()) for c in sensitivities), max(float(np.ptp(c)) for c in sensitivities)


def check_threshold(move: float, apart: float, scales: tuple[float, float], epsilon: float) -> None:
    """The threshold pays for a move of all queries, the query that passes for the range (Lyu, Su and Li 2017)."""
    spent = move / scales[0] + apart / scales[1]
    assert epsilon * (1 - CLOSE) <= spent <= epsilon * (1 + 1e-9)


CASES = [(reach, neighbors) for reach in (1, 2) for neighbors in ("replace-one", "add-remove")]


@pytest.mark.parametrize(("reach", "neighbors"), CASES)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_cheapest_point_spends_epsilon_on_the_moves_of_its_counts(reach: int, neighbors: str, epsilon: float) -> None:
    move, apart = moves(reach, neighbors)
    assert (move, apart) == (reach, reach if neighbors == "add-remove" else 2 * reach)
    _, r, v = asked_of(ballots(reach, neighbors), np.ones((4, 3)), epsilon)
    check_threshold(move, apart, (r, v), epsilon)
    for broken in ((r / 2, v / 2), (r / 2, v), (r, v / 2)):
        with pytest.raises(AssertionError):
            check_threshold(move, apart, broken, epsilon)


def first_to_pass(queries: Floats, threshold: float, scales: tuple[float, float]) -> Floats:
    """(k + 1,) distribution of the first query to pass (last: none), integrated over the noise of the threshold."""
    r = np.linspace(-45, 45, 20_001)
    left = laplace.pdf(r) * (r[1] - r[0])
    distribution = []
    for q in queries:
        fails = laplace.cdf((threshold + scales[0] * r - q) / scales[1])
        distribution.append(float((left * (1 - fails)).sum()))
        left = left * fails
    return np.array([*distribution, float(left.sum())])


@pytest.mark.parametrize(("reach", "neighbors"), CASES)
def test_cheapest_point_on_a_tight_pair(reach: int, neighbors: str) -> None:
    """One person opposes all points but the last, or (replace-one) the last alone; the distribution at many
    thresholds."""
    made, epsilon = ballots(reach, neighbors, COLUMNS), 0.3
    one, two = np.ones((4, COLUMNS)), np.ones((4, COLUMNS))
    one[0] = np.eye(COLUMNS)[-1]
    two[0] = 0.0 if neighbors == "add-remove" else 1 - one[0]
    (a, r, v), (b, *scales) = asked_of(made, one, epsilon), asked_of(made, two, epsilon)
    assert [r, v] == scales
    assert a.tolist() == [-reach] * (COLUMNS - 1) + [0]
    assert b.tolist() == ([0] * COLUMNS if neighbors == "add-remove" else [0] * (COLUMNS - 1) + [-reach])

    def loss(factor: float) -> float:
        distributions = [
            [first_to_pass(queries, at, (r * factor, v * factor)) for queries in (a, b)]
            for at in v * np.linspace(-1.5, 20, 6)
        ]
        return max(float(np.abs(np.log(p / q)).max()) for p, q in distributions) / epsilon

    assert 0.97 <= loss(1.0) <= 1 + 1e-4
    assert loss(0.5) > 1.9


# ------------------------------------------------------------------ dense multiplicative weights: share of one record
SUM = 2.0
STEPS = 4


@cache
def dense(twice: bool, simplex: bool) -> Game:
    """Rows ``2 A x <= 1.7``, with ``twice`` also ``A x <= 1.7``; A is 6 x 3 in [0, 1]."""
    A = Private(shape=(6, 3), name="A", unit="row", bounds=[0, 1])
    x = cp.Variable(3, nonneg=True)
    public = [cp.sum(x) == SUM] if simplex else [x <= 1, np.array([1.0, 2.0, 3.0]) @ x <= 3]
    rows = [2 * A @ x <= 1.7] + ([A @ x <= 1.7] if twice else [])
    made = game(cp.Minimize(0), [*rows, *public], A)
    made.seal(A=np.random.default_rng(1).random((6, 3)))
    return made


def rows_reached(made: Game) -> int:
    """The most private rows that change with one row of A, found by changing it."""
    rows, values = private_rows(made.model), np.random.default_rng(2).random((6, 3))
    G, h = rows.values(made.seal(A=values))
    most = 0
    for i in range(6):
        other = values.copy()
        other[i] = 1 - other[i]
        G2, h2 = rows.values(made.seal(A=other))
        most = max(most, int(((G2 - G).toarray().any(axis=1) | (h2 != h)).sum()))
    return most


def corners(twice: bool) -> Floats:
    """All rows of G with entries of A in {0, 1}."""
    cube = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    return np.vstack([2 * cube, cube]) if twice else 2 * cube


def asked_scales(made: Game, engine: Any, promise: Any, delta: float) -> tuple[set[str], Floats]:
    spent = replace(made, delta=delta).task.spend
    task = replace(made.task, delta=delta, spend=spent)
    source = Transcript(0)
    engine.point(task, promise, made.model.read_private(), source, no_progress)
    return {distribution for distribution, *_ in asked(source)}, np.array([scale for *_, scale in asked(source)])


def dense_scales(made: Game, oracle: str, delta: float, density: int) -> tuple[set[str], Floats]:
    """Distributions and scales of a run of four steps."""
    engine = DENSE_MULTIPLICATIVE_WEIGHTS
    promise = replace(engine.promise(made.task), plan=Plan(density, STEPS, 0.1, 0, oracle))
    return asked_scales(made, engine, promise, delta)


SELECT, NOISE = "exponential mechanism", "noise on the weighted row, exact linear program"


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("simplex", [True, False])
@pytest.mark.parametrize("twice", [False, True])
def test_dense_weights_ask_for_the_rows_of_one_record(twice: bool, simplex: bool, delta: float) -> None:
    made, density = dense(twice, simplex), 4
    reached = rows_reached(made)
    assert reached == (2 if twice else 1)
    rows, rho = corners(twice), zcdp_rho(1.0, 1e-6)
    differences = (rows[:, None] - rows[None]).reshape(-1, 3)
    if simplex:  # (a - b)'(v - w) over the vertices
        moved = float(np.ptp(SUM * differences, axis=1).max())
        expected, distribution = moved * (STEPS if delta == 0 else math.sqrt(STEPS / (8 * rho))), "noisy_max"
    elif delta == 0:
        expected, distribution = float(np.abs(differences).sum(axis=1).max()) * STEPS, "laplace"
    else:
        expected, distribution = (
            float(np.linalg.norm(differences, axis=1).max()) * math.sqrt(STEPS / (2 * rho)),
            "gaussian",
        )
    distributions, scales = dense_scales(made, SELECT if simplex else NOISE, delta, density)
    assert distributions == {distribution} and scales.size == STEPS
    assert fits(scales, expected * reached / density)
    assert not fits(scales / 2, expected * reached / density)
    if twice:
        single = dense_scales(dense(False, simplex), SELECT if simplex else NOISE, delta, density)[1]
        np.testing.assert_allclose(scales, 2 * single, rtol=CLOSE)
        # Never more than all of the weight.
        np.testing.assert_allclose(
            dense_scales(made, SELECT if simplex else NOISE, delta, 1)[1], scales * density / reached, rtol=CLOSE
        )


def fits(scales: Floats, expected: float) -> bool:
    """No scale is below what privacy needs, and none is far above it."""
    return bool((scales >= expected * (1 - 1e-9)).all() and (scales <= expected * (1 + CLOSE)).all())


# ------------------------------------------------------------------ published variants
EPSILON, DELTA = 1.0, 1e-6


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("slack", [3, 5])
def test_algorithm_2_selects_with_the_printed_epsilon(twice: bool, slack: int) -> None:
    """Scale 2 Delta / epsilon', Delta the most that two rows' residuals differ at a vertex, times the rows reached."""
    made = dense(twice, True)
    promise = ALGORITHM_2.promise(replace(made.task, slack_rows=slack))
    residuals = SUM * corners(twice) - 1.7
    residuals = np.vstack([residuals, np.zeros(3)])  # the public range contains 0
    sensitivity = min(1.0, rows_reached(made) / promise.plan.density) * float(np.ptp(residuals, axis=0).max())
    distributions, scales = asked_scales(made, ALGORITHM_2, promise, DELTA)
    T = scales.size
    assert distributions == {"noisy_max"} and promise.noise["steps"] == T
    step = valid_step(EPSILON / math.sqrt(8 * T * math.log(1 / DELTA)), T, EPSILON, DELTA)
    assert fits(scales, 2 * sensitivity / step)
    assert not fits(scales / 2, 2 * sensitivity / step)
    assert pure_composition_delta(2 * sensitivity / float(scales.min()), T, EPSILON) <= DELTA


def equality() -> tuple[Game, list[Floats]]:
    b = Private(shape=1, name="b", linf=1e-3)
    x = cp.Variable(3, nonneg=True)
    made = game(cp.Minimize(0), [cp.sum(x) == 1, np.array([[1.0, 0.0, -1.0]]) @ x == b], b)
    return made, [made.seal(b=[0.2]), made.seal(b=[0.201])]


def sides() -> tuple[Game, list[Floats]]:
    """Two sides move against each other."""
    b = Private(shape=2, name="b", linf=1e-3)
    x = cp.Variable(3, nonneg=True)
    made = game(cp.Minimize(0), [cp.sum(x) == 1, np.eye(3)[:2] @ x <= b], b)
    return made, [made.seal(b=[0.4, 0.4]), made.seal(b=[0.401, 0.399])]


MOVE = 2e-4


def entries() -> tuple[Game, list[Floats]]:
    """All entries of one row rise and of the other fall: at points of sum 1 the scores part by twice the move."""
    A = Private(shape=(2, 3), name="A", linf=MOVE, bounds=[-1, 1])
    x = cp.Variable(3, nonneg=True)
    made = game(cp.Minimize(0), [cp.sum(x) == 1, A @ x <= 0.05], A)
    values = np.array([[0.3, -0.4, 0.2], [-0.2, 0.4, 0.1]])
    return made, [made.seal(A=values), made.seal(A=values + MOVE * np.array([[1.0], [-1.0]]))]


def columns() -> tuple[Game, list[Floats]]:
    """One neighbour per column j; the scores part by 2 MOVE x_j, which add up to 2 MOVE over the neighbours."""
    A = Private(shape=(2, 3), name="A", unit="column", linf=MOVE, bounds=[-1, 1])
    x = cp.Variable(3, nonneg=True)
    made = game(cp.Minimize(0), [cp.sum(x) == 1, A @ x <= 0.05], A)
    values = np.array([[0.3, -0.4, 0.2], [-0.2, 0.4, 0.1]])
    moved = [values + MOVE * np.outer([1.0, -1.0], np.eye(3)[j]) for j in range(3)]
    return made, [made.seal(A=v) for v in (values, *moved)]


def whole_rows(unit: str, l1: float) -> tuple[Game, list[Floats]]:
    """Every entry of one row moves, and their moves add up to three times the largest."""
    A = Private(shape=(2, 3), name="A", unit=unit, linf=MOVE, l1=l1, bounds=[-1, 1])
    x = cp.Variable(3, nonneg=True)
    made = game(cp.Minimize(0), [cp.sum(x) == 1, A @ x <= 0.05], A)
    values = np.array([[0.3, -0.4, 0.2], [-0.2, 0.4, 0.1]])
    return made, [made.seal(A=values), made.seal(A=values + MOVE * np.array([[1.0, -1.0, 1.0], [0.0, 0.0, 0.0]]))]


Doubled = Callable[[Any], Any]


def spending(made: Game, engine: Any, thetas: list[Floats], broken: Doubled | None) -> tuple[int, Floats, Floats]:
    """T; (T,) epsilons of the selections (added up over the neighbours); epsilons of the entries released with noise.

    Log weights and noisy entries are compared between neighbours that see the same past.
    """
    promise = made.promise(engine)
    count = promise.plan.count
    if broken is not None:
        promise = replace(promise, plan=broken(promise.plan))
    draws = replayed(made, engine, promise, thetas, 5)
    sensitivities = [[(two - draw.values[0]) / draw.arguments[0] for two in draw.values[1:]] for draw in draws]
    named = [draw.distribution == "noisy_max" for draw in draws]
    chosen = [sum(map(np.ptp, moved)) for moved, choice in zip(sensitivities, named, strict=True) if choice]
    assert len(chosen) == count
    # Algorithm 5 releases entries one by one, Algorithm 6 a row at once.
    size = np.max if engine is ALGORITHM_5 else np.sum
    noised = [size(np.abs(d)) for moved, choice in zip(sensitivities, named, strict=True) if not choice for d in moved]
    return count, np.array(chosen), np.array(noised)


PUBLISHED: dict[str, tuple[Any, Callable[[], tuple[Game, list[Floats]]], float, int]] = {
    # engine, model, c in epsilon' = epsilon / sqrt(c T ln(1/delta)), releases of a step (Theorems 22, 28, 32)
    "algorithm-4, equality": (ALGORITHM_4, equality, 8, 1),
    "algorithm-4, two sides": (ALGORITHM_4, sides, 8, 1),
    "algorithm-5": (ALGORITHM_5, entries, 16 * 3, 1 + 3),
    "algorithm-6": (ALGORITHM_6, columns, 16, 2),
}


def check_published(name: str, broken: Doubled | None = None) -> None:
    engine, write, c, releases = PUBLISHED[name]
    made, thetas = write()
    T, chosen, noised = spending(made, engine, thetas, broken)
    step = valid_step(EPSILON / math.sqrt(c * T * math.log(1 / DELTA)), releases * T, EPSILON, DELTA)
    assert chosen.max() <= step * (1 + 1e-6) and chosen.min() >= step * (1 - CLOSE)
    if releases > 1:
        # Columns that a neighbour leaves alone do not move; those that move use all of epsilon'.
        assert noised.max() <= step * (1 + 1e-6) and noised.max() >= step * (1 - CLOSE)
    else:
        assert not noised.size
    assert pure_composition_delta(max(chosen.max(), *noised, 0.0), releases * T, EPSILON) <= DELTA


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_variants_spend_the_printed_epsilon(name: str) -> None:
    check_published(name)


@pytest.mark.parametrize("unit", ["row", "all"])
def test_algorithm_6_pays_for_the_whole_row(unit: str) -> None:
    """The 1-norm of a row's change, not its largest entry, is what the noise on a row hides."""

    def spent(broken: Doubled | None = None) -> tuple[float, float]:
        made, thetas = whole_rows(unit, 3 * MOVE)
        T, chosen, noised = spending(made, ALGORITHM_6, thetas, broken)
        step = valid_step(EPSILON / math.sqrt(16 * T * math.log(1 / DELTA)), 2 * T, EPSILON, DELTA)
        assert chosen.max() <= step * (1 + 1e-6)
        return float(noised.max()), step

    most, step = spent()
    assert step * (1 - CLOSE) <= most <= step * (1 + 1e-6)
    assert spent(lambda plan: replace(plan, noise=plan.noise / 3))[0] > 2 * step


@pytest.mark.parametrize("name", PUBLISHED)
def test_doubled_epsilon_is_found_out(name: str) -> None:
    with pytest.raises(AssertionError):
        check_published(name, lambda plan: replace(plan, epsilon=2 * plan.epsilon))
    with pytest.raises(AssertionError):
        check_published(name, lambda plan: replace(plan, epsilon=1.01 * plan.epsilon))


@pytest.mark.parametrize("name", ["algorithm-5", "algorithm-6"])
def test_halved_row_noise_is_found_out(name: str) -> None:
    with pytest.raises(AssertionError):
        check_published(name, lambda plan: replace(plan, noise=plan.noise / 2))
