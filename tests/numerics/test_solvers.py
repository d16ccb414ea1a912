"""The straight way to a solver against the way through CVXPY: status, value, and multipliers that prove the optimum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import highspy
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodel.numerics import polyhedron, solvers
from dpmodel.numerics.array_program import Answer, ArrayProgram, ConeBlock
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program
from dpmodel.numerics.polyhedron import LinearMinimiser, Polyhedron
from dpmodel.numerics.solvers import SOLVER_ERROR, SameRows, ask

NONE = np.zeros(0, dtype=np.int64)
TIGHT: dict[str, dict[str, Any]] = {
    "HIGHS": {},
    "CLARABEL": {},
}


def program(seed: int, *cones: str, ends: str = "finite", whole: bool = False) -> ArrayProgram:
    """A feasible program around a random point: equalities, inequalities, rows with two sides, free and bounded
    columns, and cones of the given kinds. ``ends`` : "finite", or "open": no bounds that keep the objective finite."""
    rng = np.random.default_rng(seed)
    n = 6
    x = rng.normal(size=n)
    R = sp.csr_array(np.where(rng.random((7, n)) < 0.6, rng.normal(size=(7, n)), 0.0))
    at = R @ x
    low, high = np.full(7, -np.inf), at + rng.random(7)
    low[:2] = high[:2] = at[:2]
    low[2:4] = at[2:4] - rng.random(2)
    box = 3.0 if ends == "finite" else np.inf
    lower, upper = np.full(n, -box), np.full(n, box)
    lower[0], upper[1] = x[0] - 0.5, x[1] + 0.5
    gaps, second, semi, exponential, power = [], [], [], 0, []
    if "soc" in cones:
        second = [3, 1, 3, 2]
        for size in second:
            tail = rng.normal(size=size - 1)
            gaps += [np.linalg.norm(tail) + rng.random(), *tail]
    if "psd" in cones:
        semi = [2, 3]
        for side in semi:
            root = rng.normal(size=(side, side))
            gaps += list((root @ root.T).ravel())
    if "exp" in cones:
        exponential = 2
        gaps += [0.1, 1.0, 2.0, -0.5, 0.7, 1.5]
    if "pow3d" in cones:
        power = [0.3, 0.5]
        gaps += [1.0, 1.2, 0.4, 0.9, 1.1, -0.3]
    G = rng.normal(size=(len(gaps), n))
    integer = np.array([2, 3]) if whole else NONE
    if whole:
        lower, upper = np.minimum(lower, -2), np.maximum(upper, 2)
        low[:2] -= 2
        high += 2
    return ArrayProgram(
        *(rng.normal(size=n), R, low, high, lower, upper, np.array([5]) if whole else NONE, integer),
        *(sp.csr_array(G.reshape(len(gaps), n)), np.array(gaps) + G @ x, tuple(second), tuple(semi)),
        *(exponential, tuple(power)),
    )


def gap_of(of: ArrayProgram, answer: Answer) -> float:
    """How far the multipliers are from proving that the point is optimal: 0 where they do."""
    assert answer.x is not None and answer.rows is not None and answer.cones is not None
    reduced = of.c + of.R.T @ answer.rows + of.G.T @ answer.cones
    side = np.where(answer.rows > 0, of.high, of.low)
    ends = np.where(reduced > 0, of.lower, of.upper)
    at_end = np.abs(reduced) > 1e-6
    moved = np.abs(answer.rows) > 1e-7
    assert np.isfinite(ends[at_end]).all() and np.isfinite(side[moved]).all()
    dual = reduced[at_end] @ ends[at_end] - answer.rows[moved] @ side[moved] - answer.cones @ of.h
    return abs(float(dual) - float(of.c @ answer.x))


def both(of: ArrayProgram, solver: str) -> tuple[Answer, Answer]:
    assert solvers._straight(of, solver, TIGHT[solver]) is not None
    return ask(of, solver, TIGHT[solver]), solvers._by_cvxpy(of, solver, TIGHT[solver])


CONES = [(), ("soc",), ("psd",), ("exp",), ("pow3d",), ("soc", "psd", "exp", "pow3d")]
WAYS = [("HIGHS", ()), *(("CLARABEL", each) for each in CONES)]


@pytest.mark.parametrize(("solver", "cones"), WAYS, ids=str)
@settings(max_examples=5, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_both_ways_find_the_same_optimum_and_prove_it(solver: str, cones: tuple[str, ...], seed: int) -> None:
    of = program(seed, *cones)
    straight, through = both(of, solver)
    assert straight.status == through.status == "optimal"
    value = float(of.c @ through.x)
    assert of.c @ straight.x == pytest.approx(value, abs=2e-4 * (1 + abs(value)))
    for answer in (straight, through):
        activity = of.R @ answer.x
        missed = np.concatenate([activity - of.high, of.low - activity, of.lower - answer.x, answer.x - of.upper])
        assert missed.max() < 1e-4
        assert gap_of(of, answer) < 1e-3 * (1 + abs(value))


def impossible(seed: int, *cones: str) -> ArrayProgram:
    of = program(seed, *cones)
    twice = sp.csr_array(sp.vstack([of.R, of.R[[6]]]))
    return ArrayProgram(
        *(of.c, twice, np.append(of.low, of.high[6] + 1.0), np.append(of.high, np.inf), of.lower, of.upper),
        *(NONE, NONE, of.G, of.h, of.second_order),
    )


def endless(seed: int, *cones: str) -> ArrayProgram:
    """A column that stands in no row and may grow for ever."""
    of = program(seed, *cones, ends="open")
    beside = sp.csr_array((of.low.size, 1)), sp.csr_array((of.h.size, 1))
    R, G = (sp.csr_array(sp.hstack([part, more])) for part, more in zip((of.R, of.G), beside, strict=True))
    return ArrayProgram(
        *(np.r_[np.zeros(6), -1.0], R, of.low, of.high, np.append(of.lower, 0.0), np.append(of.upper, np.inf)),
        *(NONE, NONE, G, of.h, of.second_order),
    )


@pytest.mark.parametrize("solver", ["HIGHS", "CLARABEL"])
@pytest.mark.parametrize(("make", "word"), [(impossible, "infeasible"), (endless, "unbounded")])
def test_programs_without_an_optimum(solver: str, make: Any, word: str) -> None:
    for seed in range(3):
        straight, through = both(make(seed), solver)
        assert straight.status == through.status == word
        assert straight.x is None and through.x is None
    if solver == "CLARABEL":
        straight, through = both(make(3, "soc"), solver)
        assert straight.status == through.status == word


def test_integers_by_both_ways() -> None:
    for seed in range(6):
        of = program(seed, whole=True)
        straight, through = both(of, "HIGHS")
        assert straight.status == through.status
        if straight.x is not None:
            assert of.c @ straight.x == pytest.approx(float(of.c @ through.x), rel=1e-4, abs=1e-6)
            assert np.allclose(straight.x[[2, 3, 5]], np.round(straight.x[[2, 3, 5]]), atol=1e-6)
            assert -1e-9 <= straight.x[5] <= 1 + 1e-9
            assert straight.rows is None and through.rows is None


LIMITS = [("HIGHS", {"time_limit": 0.0}), ("CLARABEL", {"max_iter": 1})]


@pytest.mark.parametrize(("solver", "options"), LIMITS, ids=str)
def test_limits_of_the_user_say_the_same(solver: str, options: dict[str, Any]) -> None:
    of = program(3)
    assert solvers._straight(of, solver, options) is not None
    straight = ask(of, solver, options)
    try:
        through = solvers._by_cvxpy(of, solver, options)
    except Exception:  # CVXPY cannot unpack an answer without a point
        through = Answer(SOLVER_ERROR)
    assert straight.status == through.status
    assert (straight.x is None) == (through.x is None)  # where they stopped differs with how rows are written


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        *((solver, {"verbose": True}) for solver in TIGHT),
        *((solver, {"warm_start": True}) for solver in TIGHT),
        *(("HIGHS", {"highs_options": {}}), ("CLARABEL", {"accept_unknown": True}), ("SCS", {"use_indirect": True})),
        *(("SCIPY", {}), (None, {}), ("nobody", {})),
    ],
    ids=str,
)
def test_what_is_unusual_goes_through_cvxpy(solver: str | None, options: dict[str, Any], capfd: Any) -> None:
    of = program(1)
    assert solvers._straight(of, solver, options) is None
    answer = ask(of, solver, options)
    assert answer.status == (SOLVER_ERROR if solver == "nobody" else "optimal")
    assert ("CVXPY" in capfd.readouterr().out) == ("verbose" in options)


def test_the_usual_goes_straight_in_any_spelling(monkeypatch: Any) -> None:
    monkeypatch.setattr(cp.Problem, "solve", None)
    for solver in ("HIGHS", "highs", "Clarabel"):
        assert ask(program(1), solver, {}).status == "optimal"
    assert ask(program(1), "HIGHS", {"presolve": "off", "threads": 1}).status == "optimal"
    assert ask(program(1), "CLARABEL", {"tol_feas": 1e-9}).status == "optimal"


def test_a_wrong_option_is_no_answer() -> None:
    assert ask(program(1), "HIGHS", {"presolve": 3.5}).status == SOLVER_ERROR
    assert ask(program(1), "HIGHS", {"no such option": 1}).status == SOLVER_ERROR
    assert ask(program(1), "CLARABEL", {"max_iter": "many"}).status == SOLVER_ERROR


# ---------------------------------------------------------------------- slack, bands, ceilings, sizes of entries
def cone_program(seed: int) -> ConeProgram:
    rng = np.random.default_rng(seed)
    n, A = 4, rng.normal(size=(9, 4))
    cones = (ConeBlock("zero", 0, 3, (), (), 0, 0, ""), ConeBlock("nonneg", 3, 3, (), (), 1, 1, ""))
    cones += (ConeBlock("soc", 6, 3, (3,), (), 2, 2, ""),)
    b = A @ rng.normal(size=n) + np.r_[np.zeros(3), 0.1, 0.2, 0.3, 2.0, 0.1, 0.1]
    band = np.r_[0.3, 0.0, 0.2, np.zeros(6)]
    return ConeProgram(
        *(rng.normal(size=n), 0.5, b, sp.csr_array(A), cones, NONE, NONE, np.r_[-5.0, -np.inf, -4.0, 0.0]),
        *(np.r_[5.0, 4.0, np.inf, 9.0], band, np.r_[np.ones(5, bool), False, np.ones(3, bool)]),
        np.r_[np.full(3, np.inf), b[3] + 0.5, np.inf, np.inf, np.full(3, np.inf)],
    )


def written_out(of: ConeProgram, direction: Any, limit: float | None, least: bool, weights: Any) -> cp.Problem:
    """The same in CVXPY, as the docstring of ``solve_cone_program`` says it."""
    x, t = cp.Variable(of.c.size), cp.Variable(nonneg=True)
    e = np.zeros(of.b.size) if direction is None else direction
    left = of.A @ x + (0 if weights is None else weights @ cp.abs(x))
    gap = of.b + t * e - of.A @ x  # weights stand in linear rows only
    rows = [left[3:5] <= of.b[3:5] + t * e[3:5], cp.norm(gap[7:9]) <= gap[6]]
    width = of.band[:3] + t * e[:3]
    rows += [left[:3] - of.b[:3] <= width, of.b[:3] - left[:3] <= width] if weights is None else [t >= 0]
    rows += [left[3] <= of.ceiling[3]] if direction is not None else []
    rows += [x[j] >= of.lower[j] for j in np.flatnonzero(np.isfinite(of.lower))]
    rows += [x[j] <= of.upper[j] for j in np.flatnonzero(np.isfinite(of.upper))]
    rows += [t <= limit] if limit is not None else []
    return cp.Problem(cp.Minimize(t if least else of.c @ x + of.d), rows)


E9 = np.r_[1.0, 0.0, 0.5, 1.0, 2.0, 1.0, 1.0, 0.0, 0.0]
CASES = {
    "as it is": (None, None, False),
    "least slack": (E9, None, True),
    "slack up to a limit": (E9, 0.7, False),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "nobody"])
def test_slack_bands_and_ceilings(case: str, solver: str) -> None:
    direction, limit, least = CASES[case]
    for seed in range(4):
        of = cone_program(seed)
        found = solve_cone_program(
            of, direction=direction, slack_limit=limit, minimise_slack=least, solver=solver,
            options={"eps": 1e-8} if solver == "SCS" else {},
        )  # fmt: skip
        truth = written_out(of, direction, limit, least, None)
        truth.solve(solver=cp.CLARABEL)
        assert found.status.startswith(str(truth.status)[:7])
        if found.solved:
            value = found.slack if least else found.value
            assert value == pytest.approx(truth.value, rel=1e-4, abs=1e-4)


def test_sizes_of_entries_stand_for_absolute_values() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        of = cone_program(seed)
        weights = np.zeros((9, 4))
        weights[3:6] = rng.random((3, 4)) * 0.1
        of = of.with_(keep=np.r_[np.zeros(3, bool), of.keep[3:]], c=np.abs(of.c) * [1, -1, 1, 1])
        found = solve_cone_program(of, weights=sp.csr_array(weights), direction=E9, minimise_slack=True)
        truth = written_out(of, E9, None, True, weights)
        truth.solve(solver=cp.CLARABEL)
        assert found.status == truth.status == "optimal"
        assert found.slack == pytest.approx(truth.value, abs=1e-5)


def inequalities(seed: int) -> ConeProgram:
    """Twelve of them between bounds, around zero."""
    rng = np.random.default_rng(seed)
    A, block = sp.csr_array(rng.normal(size=(12, 20))), ConeBlock("nonneg", 0, 12, (), (), 0, 0, "")
    ends = np.full(20, -1.0), np.full(20, 2.0)
    return ConeProgram(
        rng.normal(size=20), 0.0, np.ones(12), A, (block,), NONE, NONE, *ends, np.zeros(12), np.ones(12, bool)
    )


@pytest.mark.parametrize("seed", range(6))
def test_where_the_simplex_method_takes_long_another_solver_answers(seed: int, monkeypatch: Any) -> None:
    """With the same optimum, for programs and for polyhedra, and nothing said of it."""
    given = inequalities(seed)
    polytope = Polyhedron(given.A, given.b, sp.csr_array((0, 20)), np.zeros(0), given.lower, given.upper)
    slow, point = solve_cone_program(given), polytope.minimise(given.c)
    assert point is not None and slow.value is not None
    asked: list[str] = []
    quick = solvers._by_clarabel
    monkeypatch.setattr(solvers, "_by_clarabel", lambda *said: asked.append(said[1]) or quick(*said))
    monkeypatch.setattr(solvers, "_PATIENCE", 1)
    fast, other = solve_cone_program(given), replace(polytope).minimise(given.c)
    assert asked == ["CLARABEL"] * 2 and not fast.notes
    assert [fast.value, given.c @ point, given.c @ other] == pytest.approx([slow.value] * 3)
    assert fast.dual == pytest.approx(slow.dual, abs=1e-5)

    # Where the other has no answer, HiGHS takes the time that it needs.
    monkeypatch.setattr(solvers, "_by_clarabel", lambda *said: Answer(SOLVER_ERROR))
    assert solve_cone_program(given).value == pytest.approx(slow.value)
    assert replace(polytope).minimise(given.c) == pytest.approx(point)


@pytest.mark.parametrize("status", ["infeasible", "unbounded", "optimal_inaccurate", cp.USER_LIMIT])
def test_nothing_but_an_optimum_is_taken_from_the_quick_solver(status: str, monkeypatch: Any) -> None:
    """Interior points call empty sets with a ray unbounded, and stop short of an optimum: HiGHS tells then."""
    given = inequalities(1)
    slow = solve_cone_program(given)
    monkeypatch.setattr(solvers, "_PATIENCE", 1)
    point = np.zeros(20) if status in (cp.OPTIMAL_INACCURATE, cp.USER_LIMIT) else None
    monkeypatch.setattr(solvers, "_by_clarabel", lambda *said: Answer(status, point))
    fast = solve_cone_program(given)
    assert fast.status == "optimal" and fast.value == pytest.approx(slow.value) and not fast.notes


def test_no_set_is_called_empty_because_steps_run_out(monkeypatch: Any) -> None:
    """Where HiGHS loses its way from a basis and begins anew, it is given the time it takes."""
    given = inequalities(0)
    polytope = Polyhedron(given.A, given.b, sp.csr_array((0, 20)), np.zeros(0), given.lower, given.upper)
    point = polytope.minimise(given.c)
    monkeypatch.setattr(solvers, "_PATIENCE", 1)
    lost = LinearMinimiser(polytope)
    monkeypatch.setattr(lost, "_highs", LosesItsWay(lost._highs))
    assert lost.minimise(given.c) == pytest.approx(point)


def wide(seed: int) -> ConeProgram:
    """Two rows of 400 columns."""
    rng = np.random.default_rng(seed)
    A, block = sp.csr_array(rng.uniform(0, 1, (2, 400))), ConeBlock("nonneg", 0, 2, (), (), 0, 0, "")
    ends = np.zeros(400), rng.uniform(0, 1, 400)
    return ConeProgram(
        rng.normal(size=400), 0.0, np.ones(2), A, (block,), NONE, NONE, *ends, np.zeros(2), np.ones(2, bool)
    )


@pytest.mark.parametrize("most", [2000, 1], ids=["enough", "too few"])
@pytest.mark.parametrize("seed", range(3))
def test_a_few_steps_of_the_primal_method_find_the_same_optimum(seed: int, most: int, monkeypatch: Any) -> None:
    """From the bounds of wide programs and from the last vertex; where they are too few, the dual method goes on."""
    limit = {solvers._STEPS_LIMIT: most}
    given, costs = wide(seed), np.random.default_rng(seed).normal(size=(6, 400))
    rows = given.A, given.b, sp.csr_array((0, 400)), np.zeros(0), given.lower, given.upper
    truth = [float(cost @ LinearMinimiser(Polyhedron(*rows)).minimise(cost)) for cost in costs]  # type: ignore[operator]
    monkeypatch.setattr(solvers, "_WIDE", 10**6)
    plain = solve_cone_program(given)
    monkeypatch.setattr(solvers, "_WIDE", 50)
    monkeypatch.setattr(solvers, "_FROM_BOUNDS", most)
    monkeypatch.setattr(polyhedron, "FROM_VERTEX", polyhedron.FROM_VERTEX | limit)
    found = solve_cone_program(given)
    assert found.value == pytest.approx(plain.value) and found.dual == pytest.approx(plain.dual, abs=1e-6)
    again = LinearMinimiser(Polyhedron(*rows))
    assert [float(cost @ again.minimise(cost)) for cost in costs] == pytest.approx(truth)  # type: ignore[operator]
    assert again._near == (most > 1)  # given up once it is not enough


def test_programs_with_the_same_rows_are_solved_as_from_scratch() -> None:
    """Other sides, costs, bounds and rows; one without a point between them; and where the steps are too few."""
    given, rng = wide(1), np.random.default_rng(2)
    programs = [given, given.with_(b=np.array([2.0, 0.5])), given.with_(c=rng.normal(size=400))]
    programs += [given.with_(b=np.array([-1.0, 1.0])), given.with_(upper=0.5 * given.upper), wide(2), given]
    for steps in (4000, 0):
        same = SameRows()
        for program in programs:
            with pytest.MonkeyPatch.context() as patch:
                plain = solve_cone_program(program)
                patch.setattr(solvers, "_FIRST_STEPS", steps)
                patch.setattr(solvers, "_PATIENCE", 17e12 if steps else 0)
                found = solve_cone_program(program, same_rows=same)
            assert found.status == plain.status
            if plain.x is not None:
                assert found.value == pytest.approx(plain.value, rel=1e-6, abs=1e-6)
                assert found.dual == pytest.approx(plain.dual, abs=1e-5)


class LosesItsWay:
    """HiGHS, asked twice for a status that it has not."""

    def __init__(self, highs: Any) -> None:
        self._highs, self._said = highs, iter([highspy.HighsModelStatus.kUnknown] * 2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._highs, name)

    def getModelStatus(self) -> Any:
        return next(self._said, None) or self._highs.getModelStatus()
