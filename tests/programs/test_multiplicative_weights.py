"""Algorithms 4 to 6, tightened and as printed: sensitivities by brute force, promises by hand and kept, refusals.

What games lose is audited with all mechanisms (``tests/audit``, ``tests/mechanisms/test_lopsided.py``).
"""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from games import (
    Game,
    excess_moves,
    game,
    histogram,
    neighbours,
    noisy_rows,
    packing,
    private_case,
    refusal,
    rows_and_sides,
    voters,
)
from scipy.optimize import brentq
from scipy.stats import gamma

from dpmodel.as_printed.algorithms_4_to_6 import ALGORITHM_4, ALGORITHM_5, ALGORITHM_6
from dpmodel.marks import Private, Records
from dpmodel.privacy import pure_composition_delta, zcdp_rho
from dpmodel.programs.weights import MULTIPLICATIVE_WEIGHTS, NOISY_MULTIPLICATIVE_WEIGHTS
from dpmodel.programs.weights_rows import game_rows

SIDES, ROWS = MULTIPLICATIVE_WEIGHTS, NOISY_MULTIPLICATIVE_WEIGHTS


# ------------------------------------------------------------------ private right-hand sides
def several(**declared: Any) -> tuple[Game, dict[str, dict[str, Any]]]:
    """Mixed, scaled and reused right-hand sides in inequalities and equalities."""
    b = Private(shape=4, name="b", **declared)
    x = cp.Variable(3, bounds=[-1, 2], name="x")
    M = np.random.default_rng(2).normal(size=(4, 3))
    made = game(
        cp.Minimize(0), [M @ x <= b, x[:2] == 0.5 * b[:2] - b[2:], M @ x >= -2 * b, x <= np.tril(M.T @ M) @ b[:3]], b
    )
    made.seal(b=[0.5, -0.2, 1.0, 0.3])
    return made, {"b": declared}


DECLARED: dict[str, dict[str, Any]] = {
    "entry": {"unit": "entry", "linf": 0.3},
    "l1": {"l1": 0.3},
    "l2": {"l2": 0.3},
    "linf": {"linf": 0.3},
    "both": {"l1": 0.5, "linf": 0.3},
}


REGISTRY: dict[str, dict[str, dict[str, Any]]] = {
    "demand": {"b": {"unit": "entry", "linf": 1.0}},
    "running_totals": {"b": {"unit": "entry", "linf": 1.0}},
    "packing": {"b": {"l1": 1.0, "bounds": [5, 100]}},
    "flow": {"b": {"linf": 0.5}},
}


def sampled(made: Game, declared: dict[str, dict[str, Any]], draws: int = 60) -> tuple[float, float]:
    """Largest range and largest single change of the scores over random neighbours and points."""
    rng, rows = np.random.default_rng(4), game_rows(made.model)
    x = rng.normal(size=made.model.affine.variables)
    reach = single = 0.0
    for theta, moved in neighbours(made, declared, rng, draws):
        sensitivity = rows.now(moved).scores(x) - rows.now(theta).scores(x)
        reach = max(reach, float(sensitivity.max() - sensitivity.min()))
        single = max(single, float(np.abs(sensitivity).max()))
    return reach, single


@pytest.mark.parametrize("name", [*DECLARED, *REGISTRY])
def test_scores_move_apart_by_at_most_the_range(name: str) -> None:
    made, declared = several(**DECLARED[name]) if name in DECLARED else (private_case(name), REGISTRY[name])
    rows = game_rows(made.model)
    reach, single = sampled(made, declared)
    bound = rows.range_over(made.task.polytope)
    assert reach <= bound * (1 + 1e-9) and single <= rows.single_over(made.task.polytope) * (1 + 1e-9)
    assert reach >= 0.6 * bound, "the bound is of the right size"


def test_scores_of_sides_are_the_violations_of_the_model_as_written() -> None:
    made, _ = several(**DECLARED["entry"])
    x, b = np.array([0.3, -0.5, 1.5]), np.array([0.5, -0.2, 1.0, 0.3])
    M = np.random.default_rng(2).normal(size=(4, 3))
    worst = max(
        float((M @ x - b).max()),
        float(np.abs(x[:2] - 0.5 * b[:2] + b[2:]).max()),
        float((-2 * b - M @ x).max()),
        float((x - np.tril(M.T @ M) @ b[:3]).max()),
        0.0,
    )
    columns = made.model.affine.variables
    assert columns == 3
    assert SIDES.excess(made.task, made.promise(SIDES), x, made.model.read_private()) == (pytest.approx(worst))


def test_huge_values_are_clamped() -> None:
    b = Private(shape=2, name="b", linf=1e-6)
    x = cp.Variable(2, bounds=[0, 1])
    made = game(cp.Minimize(0), [x <= b], b)
    theta = made.seal(b=[1e300, -1e300])
    scores = game_rows(made.model).now(theta).scores(np.zeros(2))
    assert np.abs(scores).max() <= 2.0**39 * 1e-6 * 1.1


# ------------------------------------------------------------------ private coefficients
def table(equality: bool = False, **declared: Any) -> tuple[Game, dict[str, dict[str, Any]]]:
    declared = {"bounds": [-1, 1], **declared}
    A = Private(shape=(3, 4), name="A", **declared)
    x = cp.Variable(4, bounds=[0, 1], name="x")
    rows = A @ x == 0.2 if equality else A @ x <= 0.2
    made = game(cp.Minimize(0), [rows, cp.sum(x) == 1], A)
    made.seal(A=np.random.default_rng(3).uniform(-0.5, 0.5, (3, 4)))
    return made, {"A": declared}


def reused(**declared: Any) -> tuple[Game, dict[str, dict[str, Any]]]:
    """Private entries in several rows, with public factors and beside public numbers at the same places."""
    declared = {"bounds": [-1, 1], **declared}
    A = Private(shape=(3, 4), name="A", **declared)
    x = cp.Variable(4, bounds=[-1, 1], name="x")
    W = np.random.default_rng(5).normal(size=(3, 4))
    made = game(cp.Minimize(0), [(2 * A + W) @ x <= 1, A[::-1] @ x >= -0.5, W @ A.T @ x[:3] <= 3], A)
    made.seal(A=np.random.default_rng(3).uniform(-0.5, 0.5, (3, 4)))
    return made, {"A": declared}


def together() -> tuple[Game, dict[str, dict[str, Any]]]:
    people = Records("people")
    one = {"unit": "row", "l1": 0.2, "bounds": [0, 2], "records": people}
    two = {"unit": "entry", "linf": 0.5, "bounds": [10, 30], "records": people}
    made = private_case("rows_and_sides")
    return made, {"A": one, "b": two}


def strangers() -> tuple[Game, dict[str, dict[str, Any]]]:
    """A and b of different people: one record moves one of them."""
    one = {"unit": "row", "l1": 0.2, "bounds": [0, 2], "records": Records("ours")}
    two = {"linf": 0.5, "bounds": [10, 30], "records": Records("theirs")}
    A, b = Private(shape=(3, 4), name="A", **one), Private(shape=3, name="b", **two)
    x = cp.Variable(4, bounds=[0, 1], name="x")
    made = game(cp.Minimize(0), [A @ x <= b], A, b)
    made.seal(A=np.ones((3, 4)), b=[20.0, 15.0, 12.0])
    return made, {"A": one, "b": two}


def lopsided() -> tuple[Game, dict[str, dict[str, Any]]]:
    """Two tables of the same people with units of their own, coefficients of both signs and of several sizes."""
    people, rng = Records("people"), np.random.default_rng(9)
    one = {"unit": "row", "linf": 0.05, "row_l1": 0.15, "bounds": [-2, 1], "records": people}
    two = {"unit": "column", "linf": 0.03, "l1": 0.07, "bounds": [-1, 3], "records": people}
    A, B = Private(shape=(3, 4), name="A", **one), Private(shape=(2, 4), name="B", **two)
    x = cp.Variable(4, bounds=[-1, [2, 1, 3, 0.5]], name="x")
    W, V = rng.normal(size=(3, 3)) * [0.2, 1, 3], rng.normal(size=(3, 2)) * [[1], [-2], [0.1]]
    made = game(cp.Minimize(0), [W @ A @ x <= 2, V @ B @ x - A @ x >= -3, 3 * B @ x <= 2.5], A, B)
    made.seal(A=rng.uniform(-1, 1, (3, 4)), B=rng.uniform(-1, 1, (2, 4)))
    return made, {"A": one, "B": two}


MODELS: dict[str, Any] = {
    "lopsided": lopsided,
    "all, rows of several entries": lambda: table(linf=0.1, row_l1=0.3),
    "row": lambda: table(unit="row", l1=0.2, linf=0.1),
    "row 2-norm": lambda: table(unit="row", l2=0.2),
    "column": lambda: table(unit="column", linf=0.1),
    "entry": lambda: table(unit="entry", linf=0.1),
    "all": lambda: table(linf=0.1),
    "all, rows bounded": lambda: table(linf=0.1, row_l1=0.15),
    "magnitude": lambda: table(unit="row", bounds=[0, 1], max_l1=1.5),
    "equalities": lambda: table(equality=True, unit="row", linf=0.1),
    "reused rows": lambda: reused(unit="row", l1=0.2),
    "reused columns": lambda: reused(unit="column", l2=0.2),
    "reused, all": lambda: reused(l1=0.2),
    "coefficients and sides": together,
    "of different people": strangers,
}


def points(made: Game, rng: np.random.Generator) -> list[np.ndarray]:
    n = made.model.affine.variables
    corners = [made.task.polytope.minimise(rng.normal(size=n)) for _ in range(4)]
    return [c for c in corners if c is not None] + [np.mean(corners, axis=0)]


@pytest.mark.parametrize("name", MODELS)
def test_no_record_moves_scores_or_rows_further_than_stated(name: str) -> None:
    made, declared = MODELS[name]()
    rows, rng = game_rows(made.model), np.random.default_rng(6)
    assert not rows.rows.relative
    xs = points(made, rng)
    exact, closed = [rows.range_at(x) for x in xs], [rows.range_at(x, exact=False) for x in xs]
    over, single_over = rows.range_over(made.task.polytope), rows.single_over(made.task.polytope)
    assert max(exact) <= max(closed) * (1 + 1e-9) <= over * (1 + 1e-6)
    found, single, l1, l2, linf = np.zeros(len(xs)), 0.0, 0.0, 0.0, 0.0
    for theta, moved in neighbours(made, declared, rng, 12):
        now, then = rows.now(theta), rows.now(moved)
        for k, x in enumerate(xs):
            sensitivity = then.scores(x) - now.scores(x)
            found[k] = max(found[k], sensitivity.max() - sensitivity.min())
            single = max(single, np.abs(sensitivity).max())
        difference = (then.parts[0] - now.parts[0]).toarray()
        l1 = max(l1, np.abs(difference).sum(axis=1).max())
        l2 = max(l2, np.linalg.norm(difference, axis=1).max())
        linf = max(linf, np.abs(difference).max())
    assert (found <= np.array(exact) * (1 + 1e-9)).all()
    assert (found >= 0.5 * np.array(exact)).all(), "the range is of the right size"
    assert single <= single_over
    assert l1 <= rows.row_l1 and l2 <= rows.row_l2 and linf <= rows.linf
    assert l2 >= 0.5 * rows.row_l2


def beside_public_numbers(neighbors: Any) -> Game:
    """Some of the entries of each row are public, at places with private ones and at others."""
    A = Private(shape=(5, 2), name="A", unit="row", bounds=[0, 1], records=Records("people", neighbors=neighbors))
    x = cp.Variable(4, bounds=[0, 1], name="x")
    return game(cp.Minimize(0), [A @ x[:2] + np.arange(10.0).reshape(5, 2) @ x[1:3] <= 1], A)


COUNTED = {name: lambda make=make: make()[0] for name, make in MODELS.items()} | {
    "voters": voters,
    "beside public numbers": lambda: beside_public_numbers("replace-one"),
    "beside public numbers, absent": lambda: beside_public_numbers("add-remove"),
}


@pytest.mark.parametrize("name", COUNTED)
def test_entries_are_counted_as_the_tables_have_them(name: str) -> None:
    """What bounds the rounding of scores is found without laying the rows out."""
    rows = game_rows(COUNTED[name]().model)
    inside, beside = (np.diff(each.indptr) for each in rows.tables)
    assert rows.sizes == (inside.sum() + beside.sum(), inside.max(), beside.max())
    assert name != "beside public numbers" or inside.max() > 0 < beside.max()
    assert rows.rows.absent == (name in ("voters", "beside public numbers, absent"))


def test_scores_of_rows_are_the_violations_of_the_model_as_written() -> None:
    made, _ = MODELS["reused rows"]()
    A, W = np.random.default_rng(3).uniform(-0.5, 0.5, (3, 4)), np.random.default_rng(5).normal(size=(3, 4))
    x = np.array([0.5, -0.3, 1.0, 0.2])
    worst = max(((2 * A + W) @ x - 1).max(), (-0.5 - A[::-1] @ x).max(), (W @ A.T @ x[:3] - 3).max(), 0.0)
    assert made.violation(ROWS, x) == pytest.approx(worst)


def test_absent_rows_are_released_as_noise_on_every_place() -> None:
    """The public part of an absent row would tell that it is absent."""
    people = Records("people", neighbors="add-remove")
    A = Private(shape=(4, 2), name="A", unit="row", bounds=[0, 1], records=people)
    x = cp.Variable(3, bounds=[0, 1])
    made = game(cp.Minimize(0), [A @ x[:2] + 0.5 * x[2] >= 1], A)
    made.seal(A=[[1, 1], [0, 0], [1, 0], [0, 0]])
    rows = game_rows(made.model)
    assert rows.rest.nnz == 0 and (np.diff(rows.pattern.indptr) == 3).all()
    assert not rows.now(made.model.read_private()).parts[0].toarray()[1].any()


# ------------------------------------------------------------------ promises
def test_the_promise_of_sides_by_hand() -> None:
    """On the unit simplex with rows of zeros and ones: W = 1, equalities twice, R = 2 linf."""
    made = histogram(cells=64, queries=40, people=20_000)
    rho, R, k, beta = zcdp_rho(1.0, 1e-6), 2 / 20_000, 81, 0.1

    def error(T: int) -> float:
        scale = R / math.sqrt(8 * rho / T)
        return math.sqrt(math.log(64) / (2 * T)) + scale * (math.log(k) + gamma.ppf(1 - beta, T) / T)

    best = min(error(T) for T in range(100, 5000))
    promise = made.promise(SIDES)
    assert promise.error == pytest.approx(best, rel=2e-3)
    assert promise.width == 1.0 and promise.rows == 40 and promise.gain == 1.0 and promise.slack_rows == 0


def test_printed_constants_of_sides_by_hand() -> None:
    """alpha = 6 Delta sqrt(8 T ln 1/delta) ln(mT/beta)/epsilon with T = 9 rho^2 ln d/alpha^2."""
    made = histogram(cells=64, queries=40, people=20_000)
    m, d, delta, beta = 81, 64, 1e-6, 0.1

    def gap(alpha: float) -> float:
        T = 9 * math.log(d) / alpha**2
        return 6 / 20_000 * math.sqrt(8 * T * math.log(1 / delta)) * math.log(m * T / beta) - alpha

    alpha = float(brentq(gap, 1e-3, 10))
    promise = made.promise(ALGORITHM_4)
    assert promise.error == pytest.approx(alpha, rel=5e-3)
    assert (
        promise.plan.count == math.ceil(9 * math.log(d) / alpha**2)
        or abs(promise.plan.count - 9 * math.log(d) / alpha**2) <= 1
    )
    assert pure_composition_delta(promise.plan.epsilon, promise.plan.count, 1.0) <= delta
    assert promise.error > made.promise(SIDES).error


def test_the_promise_of_rows_by_hand() -> None:
    made, _ = MODELS["column"]()
    promise = made.promise(ROWS)
    rows, plan, rho = game_rows(made.model), promise.plan, zcdp_rho(1.0, 1e-6)
    T, d, k, beta = plan.count, plan.form.columns, 4, 0.1
    share = plan.epsilon**2 * T / 8 / rho
    sigma = 0.1 * math.sqrt(T / (2 * rho * (1 - share)))
    assert plan.noise == pytest.approx(sigma, rel=2e-3)
    V = plan.form.row_range(-np.ones(4), np.ones(4)) ** 2 / 8 + plan.form.diameter**2 * sigma**2 / 2
    late = math.log(k) + gamma.ppf(1 - beta / 2, T) / T
    expected = 2 * math.sqrt(V * math.log(2 * d / beta) / T) + rows.range_over(made.task.polytope) / plan.epsilon * late
    assert promise.error == pytest.approx(expected, rel=5e-3)


def test_printed_constants_of_rows_by_hand() -> None:
    """24 for 12: alpha = 12 (Delta/eps') ln(2dTm/beta) with T = 144 ln d/alpha^2, for entries in [-1, 1]."""
    for engine, unit, factor in ((ALGORITHM_5, "all", 10), (ALGORITHM_6, "column", 1)):
        made = noisy_rows(unit)
        Delta = 1e-5 if unit == "all" else 2e-4

        def gap(alpha: float, Delta: float = Delta, factor: int = factor) -> float:
            T = 144 * math.log(10) / alpha**2
            step = 1 / (4 * math.sqrt(factor * T * math.log(1e6)))
            return 12 * Delta / step * math.log(2 * 10 * T * 26 / 0.1) - alpha

        alpha = float(brentq(gap, 1e-3, 100))
        promise = made.promise(engine)
        assert promise.error == pytest.approx(alpha, rel=5e-3)
        T = promise.plan.count
        releases = T * (11 if factor == 10 else 2)
        assert pure_composition_delta(promise.plan.epsilon, releases, 1.0) <= 1e-6
        assert promise.error > made.promise(ROWS).error


@pytest.mark.parametrize(
    ("engine", "write"),
    [
        *((engine, write) for engine in (SIDES, ALGORITHM_4) for write in (histogram, packing)),
        (ROWS, noisy_rows),
        (ROWS, lambda: noisy_rows("column")),
        pytest.param(ROWS, rows_and_sides, marks=pytest.mark.slow),
        (ROWS, voters),
        pytest.param(ROWS, lambda: noisy_rows("row", delta=0.0), marks=pytest.mark.slow),
        (ALGORITHM_5, lambda: noisy_rows("all")),
        (ALGORITHM_6, lambda: noisy_rows("column")),
    ],
)
def test_the_promise_is_kept(engine: Any, write: Any) -> None:
    made, runs = write(), 3
    made.beta = 0.003  # all three runs fail with probability 3e-8, if each does with at most beta
    verdict = engine.suits(made.model, made.options)
    assert verdict.eligible, verdict.reason
    promise = made.promise(engine)
    found = [made.play(engine, seed) for seed in range(runs)]
    missed = sum(made.violation(engine, point.x) > promise.error + point.extra_violation for point in found)
    assert missed < runs
    assert max(made.task.polytope.violation(point.x) for point in found) <= 1e-9
    assert all(not point.notes for point in found)


def packed(x: Any) -> list[Any]:
    """The rows of ``packing``."""
    W = np.random.default_rng(5).random((30, 12))
    return [W @ x <= W @ np.full(12, 4.2 / 12) + 0.01, cp.sum(x) >= 4, np.arange(1.0, 13) @ x <= 30, x <= 1]


def columns(x: Any) -> list[Any]:
    """The rows of ``noisy_rows``."""
    A = np.random.default_rng(6).uniform(-1, 1, (25, 10))
    A[:, 3] = -np.abs(A[:, 3]) * 0.2
    return [A @ x <= 0.05, cp.sum(x) == 1]


@pytest.mark.parametrize(
    ("engine", "made", "rows"), [(SIDES, packing, packed), (ROWS, lambda: noisy_rows("column"), columns)]
)
def test_a_tilt_is_paid_for_by_the_same_error(engine: Any, made: Any, rows: Any) -> None:
    """w'x + V(x) <= w'x* + error, whatever the size of w."""
    game = made()
    x = cp.Variable(game.model.affine.variables, nonneg=True)
    cost = np.random.default_rng(1).normal(size=x.size)
    best = cp.Problem(cp.Minimize(cost @ x), rows(x)).solve(solver=cp.HIGHS)
    for weight in (0.1, 50.0):
        point = game.play(engine, 3, tilt=weight * cost)
        value = weight * float(cost @ point.x) + game.violation(engine, point.x)
        assert value <= weight * best + game.promise(engine).error


def test_a_signed_solution_in_a_one_norm_ball() -> None:
    """Free variables, of which only the sum of magnitudes is bounded: a sparse signed truth is found."""
    rng = np.random.default_rng(3)
    M, truth = rng.choice([-1.0, 1.0], size=(60, 20)), np.zeros(20)
    truth[[2, 7]] = 0.6, -0.4
    b = Private(shape=60, name="b", linf=1e-5)
    x = cp.Variable(20, name="x")
    made = game(cp.Minimize(0), [cp.norm1(x) <= 1, M @ x == b], b)
    made.seal(b=M @ truth)
    verdict = SIDES.suits(made.model, made.options)
    assert verdict.eligible, verdict.reason
    point, promise = made.play(SIDES, 1), made.promise(SIDES)
    assert promise.noise["L"] == pytest.approx(1) and promise.width == pytest.approx(2)
    assert made.violation(SIDES, point.x) <= promise.error < 0.2
    user = point.x[promise.plan.form.signed]
    assert np.abs(user).sum() <= 1 + 1e-9 and np.abs(user - truth).max() < 0.1


@pytest.mark.parametrize(
    ("engine", "made", "least"),
    [(SIDES, lambda: several(**DECLARED["l1"]), 0.3), (ROWS, MODELS["coefficients and sides"], 0.1)],
)
def test_the_excess_of_a_search_moves_by_at_most_its_change(engine: Any, made: Any, least: float) -> None:
    game, declared = made()
    rng, limit = np.random.default_rng(9), engine.excess_sensitivity(game.task)
    pairs = list(neighbours(game, declared, rng, 20))
    assert least * limit <= excess_moves(game, engine, pairs, points(game, rng)) <= limit


# ------------------------------------------------------------------ refusals
def sides(**declared: Any) -> Game:
    b, x = Private(shape=3, name="b", **declared), cp.Variable(3, bounds=[0, 1], name="x")
    return game(cp.Minimize(0), [x <= b], b)


def coefficients(**declared: Any) -> Game:
    A, x = Private(shape=(2, 3), name="A", unit="row", **declared), cp.Variable(3, bounds=[0, 1], name="x")
    return game(cp.Minimize(0), [A @ x <= 1], A)


def many_public_rows() -> Game:
    b, x = Private(shape=1, name="b", linf=1.0), cp.Variable(400, bounds=[0, 1])
    return game(cp.Minimize(0), [x[0] <= b, x[1:] + x[:-1] <= 1], b)


REFUSED: list[tuple[Any, Any, str]] = [
    (SIDES, lambda: sides(unit="entry"), "arbitrarily"),
    (SIDES, noisy_rows, "right-hand sides"),
    (SIDES, many_public_rows, "public rows"),
    (ALGORITHM_4, lambda: histogram(people=10**9), "steps"),
    (ROWS, coefficients, "arbitrarily"),
    (ROWS, lambda: coefficients(linf=1.0), "magnitude"),
    (ROWS, packing, "coefficients"),
    (ALGORITHM_5, rows_and_sides, "right-hand sides"),
    (ALGORITHM_6, voters, "absent"),
    (ALGORITHM_6, lambda: noisy_rows("column", scale=1e-6), "steps"),
]


@pytest.mark.parametrize(("engine", "made", "words"), REFUSED)
def test_refusals(engine: Any, made: Any, words: str) -> None:
    assert words in refusal(engine, made())


@pytest.mark.parametrize(("engine", "made"), [(ALGORITHM_4, histogram), (ALGORITHM_5, noisy_rows)])
def test_printed_constants_need_a_delta(engine: Any, made: Any) -> None:
    assert "delta > 0" in refusal(engine, made(), delta=0.0)
