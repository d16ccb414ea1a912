"""The accuracy statements, run many times against the true programs; strict feasibility; the least violation.

Frequencies are tested by the exact binomial tail: a statement that holds with its probability is rejected with
probability at most 1e-7 per test.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cases import CASES, Opened, Truth, violation
from families import PORTFOLIO
from families import verdict as verdict_of
from scipy.stats import binom

import dpmodel as dpm
from dpmodel._types import Floats
from dpmodel.contract import no_progress
from dpmodel.marks import Private
from dpmodel.numerics.cone_program import ConeSolution
from dpmodel.privacy import SeededSource
from dpmodel.programs import feasibility as solve_released
from dpmodel.programs.feasibility import LEAST_VIOLATION, relaxed_program
from dpmodel.programs.margins import row_margins
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import design_noise
from dpmodel.programs.noise_once import NoiseOnce, released_parts
from dpmodel.programs.public import certain_point
from dpmodel.programs.rows import private_rows, public_polyhedron
from dpmodel.solve.registry import by_name

FALSE_ALARM = 1e-7
TOLERANCE = 1e-6
# With one common solver tolerance for all models; interior-point solvers of cone programs stop earlier.
SLACK = 2e-5

FAST = [
    ("laplace-once", "prices"),
    ("gaussian-once", "profits"),
    ("vertex-exponential", "prices"),
    ("theorem-34", "profits"),
    ("laplace-once", "running_totals"),
    ("gaussian-once", "flow"),
    ("laplace-once", "signed_coefficients"),
    ("gaussian-once", "rows_and_sides"),
    ("laplace-once", "all_three"),
    ("gaussian-once", "ball"),
    ("laplace-once", "entropies"),
]


# On programs this small, mechanisms that leave rows out or take many steps say nothing at a budget of 1.
AMPLE = 300.0


def opened_for(mechanism: str, name: str, beta: float = 0.1) -> Opened:
    ample = {"epsilon": AMPLE} if by_name(mechanism).serves.leaves_out else {}
    return CASES[name].open(beta=beta, **ample)


def served(mechanism: str, name: str) -> bool:
    """Whether the mechanism is eligible and has a proved statement that says something."""
    which, opened = by_name(mechanism), opened_for(mechanism, name)
    if not verdict_of(which, opened.model, opened.options).eligible:
        return False
    forecast = which.forecast(opened.model, opened.options)
    return not forecast.vacuous and (forecast.proved or isinstance(which, NoiseOnce))


def holds(failures: int, runs: int, beta: float) -> bool:
    return failures == 0 or float(binom.sf(failures - 1, runs, beta)) > FALSE_ALARM


def frequencies(mechanism: str, name: str, runs: int, beta: float = 0.1) -> dict[str, float]:
    """How often the statement failed, and its parts."""
    opened = opened_for(mechanism, name, beta)
    model, options = opened.model, opened.options
    which = by_name(mechanism)
    forecast, truth = which.forecast(model, options), Truth(model)
    scale = 1 + abs(truth.value)
    rows = {"scalar", "matrix"} & set(model.private_parts())
    failed = {"statement": 0, "objective": 0, "violation": 0, "lost": 0}
    for seed in range(runs):
        outcome = which.run(model, options, SeededSource(seed))
        wrong = set()
        if outcome.x is None or outcome.status == LEAST_VIOLATION:
            wrong.add("lost")
        else:
            allowed = 0.0 if math.isnan(forecast.error.objective) else forecast.error.objective
            if truth.objective(outcome.x) > truth.value + allowed + SLACK * scale:
                wrong.add("objective")
            bound = forecast.error.violation if rows else 0.0
            if which.serves.leaves_out:
                missed = left_out(model, outcome.x, bound + outcome.extra_violation + SLACK * scale)
                if missed > forecast.error.slack_rows or public_polyhedron(model).violation(outcome.x) > SLACK * scale:
                    wrong.add("violation")
            elif truth.violation(outcome.x) > bound + SLACK * scale:
                wrong.add("violation")
        for key in wrong:
            failed[key] += 1
        failed["statement"] += bool(wrong)
    if not rows:
        assert failed["violation"] == failed["lost"] == 0
    return {key: count / runs for key, count in failed.items()}


def left_out(model: Program, x: Floats, alpha: float) -> int:
    """How many private rows x violates by more than alpha (of their own width, where they have no declared one)."""
    G, h = private_rows(model).values(model.read_private())
    return int((G @ x - h > alpha).sum())


def check(mechanism: str, name: str, runs: int) -> None:
    found = frequencies(mechanism, name, runs)
    print(f"{mechanism} on {name}: failures in {runs} runs {found}, allowed .1")
    assert holds(round(found["statement"] * runs), runs, 0.1)


@pytest.mark.parametrize(("mechanism", "name"), FAST, ids=[f"{a}-{b}" for a, b in FAST])
def test_the_statement_holds(mechanism: str, name: str) -> None:
    check(mechanism, name, 25)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [each.name for each in PORTFOLIO if not each.name.startswith("strict")])
def test_the_statement_holds_in_many_runs(mechanism: str) -> None:
    for name in CASES:
        if served(mechanism, name):
            check(mechanism, name, 30 if by_name(mechanism).serves.leaves_out else 300)


def test_a_statement_that_is_too_bold_is_found_out() -> None:
    """The same test with a quarter of the forecast fails: it has power."""
    opened = CASES["running_totals"].open()
    which, truth = by_name("laplace-once"), Truth(opened.model)
    bold = which.forecast(opened.model, opened.options).error.violation / 4
    missed = [
        truth.violation(_x(which.run(opened.model, opened.options, SeededSource(seed)))) > bold for seed in range(60)
    ]
    assert not holds(sum(missed), 60, 0.1)


@pytest.mark.parametrize("objective", [False, True])
def test_expressions_split_into_rows_are_not_called_proved(objective: bool) -> None:
    """norm1 has a row per entry; each gives way, and the misses add up to far more than one row's alpha."""
    rng = np.random.default_rng(0)
    centre = rng.normal(size=50)
    p = Private(centre, unit="entry", linf=0.1, name="p")
    x = cp.Variable(50, name="x")
    if objective:
        problem = dpm.Problem(cp.Minimize(cp.norm1(x - p)), [cp.sum(x) == 3])
    else:
        problem = dpm.Problem(cp.Maximize(cp.sum(x)), [cp.norm1(x - p) <= 5])
    value = problem.solve(epsilon=1, rng=0)
    release = problem.release
    assert release is not None and not release.accuracy.proved
    assert "row of the standard form" in release.accuracy.statement
    chosen = next(c for c in release.plan["candidates"] if c["mechanism"] == release.mechanism)  # type: ignore[index]
    assert any("split" in caveat for caveat in chosen["forecast"]["caveats"])
    if objective:
        assert value is None and any("objective" in note for note in release.notes)
        assert "nothing is promised of the objective" in release.accuracy.statement
    else:
        assert value == pytest.approx(x.value.sum())
        assert np.abs(x.value - centre).sum() - 5 > release.accuracy.alpha  # what the statement must not promise


def _x(outcome: Any) -> Floats:
    assert outcome.x is not None
    return np.asarray(outcome.x)


# ------------------------------------------------------------------------------------------ strict
def positive_coefficients() -> Opened:
    A = Private(shape=(2, 3), name="A", unit="row", l1=0.1, bounds=[0.1, 2])
    x = cp.Variable(3, nonneg=True)
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= 5.0])
    opened = Opened(problem, {"A": A}, CASES["packing"].open(feasibility="strict").options)
    opened.seal({"A": [[1.0, 0.5, 0.1], [2.0, 0.1, 0.3]]})
    return opened


def strict(name: str, mechanism: str = "strict-truncated-laplace") -> Opened:
    """In cones the public bounds must leave room for the worst noise, so some cases want a large epsilon."""
    if name == "positive_coefficients":
        return positive_coefficients()
    large = 20.0 if mechanism == "strict-truncated-laplace" else 80.0
    return CASES[name].open(feasibility="strict", epsilon=large if STRICT[name].endswith("*") else 1.0)


STRICT = {
    "packing": "b",
    "positive_coefficients": "A with x >= 0",
    "signed_coefficients": "A with signed bounded x",
    "rows_and_sides": "b and A",
    "objective_and_sides": "c and b",
    "all_three": "c, b and A",
    "ball": "second-order with private centre and radius *",
    "moving_ball": "second-order with private coefficients *",
    "matrix_above": "semidefinite",
    "entropies": "exponential *",
    "integers": "integers",
}


def run_strict(name: str, mechanism: str, runs: int, draws: type[SeededSource] = SeededSource) -> float:
    opened = strict(name, mechanism)
    which = by_name(mechanism)
    verdict = verdict_of(which, opened.model, opened.options)
    assert verdict.eligible, verdict.reason
    forecast, truth = which.forecast(opened.model, opened.options), Truth(opened.model)
    assert forecast.error.violation == 0.0
    worst = 0.0
    for seed in range(runs):
        outcome = which.run(opened.model, opened.options, draws(seed))
        assert outcome.status in ("optimal", "optimal_inaccurate"), outcome.status
        worst = max(worst, truth.violation(_x(outcome)) / (1 + np.abs(truth.program.b).max()))
    return worst


class CornerSource(SeededSource):
    """The extreme draws that truncated noise allows: the ends of the window, signs at random."""

    def truncated_laplace(self, values: object, scale: float, half_width: float) -> Any:
        array = np.asarray(values, dtype=float)
        return array + np.where(self._rng.random(array.shape) < 0.5, -half_width, half_width)

    truncated_gaussian = truncated_laplace


@pytest.mark.parametrize("draws", [SeededSource, CornerSource])
@pytest.mark.parametrize("mechanism", ["strict-truncated-laplace", "strict-truncated-gaussian"])
@pytest.mark.parametrize("name", STRICT)
def test_strict_never_violates(name: str, mechanism: str, draws: type[SeededSource]) -> None:
    """For every draw, so no probability enters: a single violation is a bug."""
    assert run_strict(name, mechanism, 6, draws) <= TOLERANCE


@pytest.mark.parametrize("name", ["packing", "positive_coefficients", "rows_and_sides", "all_three", "integers"])
def test_strict_serves_where_a_public_point_satisfies_all_data(name: str) -> None:
    """Whatever the noise is: in linear rows what is declared is used beside what is released."""
    opened = strict(name)
    which, truth = by_name("strict-truncated-laplace"), Truth(opened.model)
    options = replace(opened.options, epsilon=0.02, delta=1e-9)
    assert certain_point(opened.model) is not None and which.eligible(opened.model, options).eligible
    for seed in range(6):
        outcome = which.run(opened.model, options, CornerSource(seed))
        assert outcome.status == "optimal" and truth.violation(_x(outcome)) <= TOLERANCE * 10


def test_strict_costs_at_most_its_tightening_in_one_row() -> None:
    """max x subject to x <= b: the loss is the tightening."""
    b = Private([50.0], name="b", l1=1.0, bounds=[20, 90])
    x = cp.Variable(1, nonneg=True)
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), [x <= b])
    alpha = problem.plan(1.0, 1e-6, feasibility="strict").chosen.forecast.noise["tightening"]  # type: ignore[union-attr]
    losses = []
    for seed in range(30):
        value = problem.solve(epsilon=1.0, delta=1e-6, feasibility="strict", rng=seed)
        losses.append(50.0 - value)  # type: ignore[operator]
    assert min(losses) >= -1e-6 and max(losses) <= alpha + 1e-6


def test_strict_rows_never_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a solver calls the tightened program infeasible: then there is no point, and not one that violates."""
    x = cp.Variable(2, nonneg=True)
    b = Private([50.0, 60.0], unit="entry", linf=1, bounds=[40, 70], name="b")
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), [x <= b])
    calls = []

    def infeasible(*given: object, **named: object) -> ConeSolution:
        calls.append(named)
        return ConeSolution("infeasible", None, None, None, 0.0)

    monkeypatch.setattr(solve_released, "solve_cone_program", infeasible)
    assert problem.solve(epsilon=1, delta=1e-6, feasibility="strict", rng=0) is None
    assert len(calls) == 1 and problem.release is not None
    assert problem.release.status == "infeasible" and x.value is None
    assert problem.release.accuracy.alpha is None


REFUSED = {
    "no public bounds": (lambda b, x: [x <= b], {"l1": 1.0}, 1e-6, "no public bounds"),
    "equality": (lambda b, x: [x == b], {"l1": 1.0, "bounds": [1, 9]}, 1e-6, "equality"),
    "pure": (lambda b, x: [x <= b, x >= 5], {"l1": 1.0, "bounds": [1, 9]}, 0.0, "delta > 0"),
    "no common point": (lambda b, x: [x <= b, x >= 5], {"l1": 1.0, "bounds": [1, 9]}, 1e-6, "do not leave a point"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_strict_refuses_with_a_reason(why: str) -> None:
    write, declared, delta, words = REFUSED[why]
    b = Private([5.0], name="b", **declared)
    x = cp.Variable(1, nonneg=True)
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), write(b, x))  # no public point is the best for all data
    with pytest.raises((dpm.errors.InfeasibleError, dpm.errors.UnsupportedModelError), match="strict") as error:
        problem.solve(epsilon=1.0, delta=delta, feasibility="strict", rng=1)
    assert words in str(error.value)


# ---------------------------------------------------------------------------------- least violation
class PushingSource(SeededSource):
    """Planted noise: every number is moved by the same amount."""

    def __init__(self, push: float) -> None:
        super().__init__(0)
        self.push = push

    def laplace(self, values: object, scale: float) -> Any:
        return np.asarray(values, dtype=float) + self.push


def crowded() -> tuple[dpm.Problem, Private, cp.Variable]:
    b = Private([4.0, 3.0], name="b", unit="entry", linf=0.1)
    x = cp.Variable(2, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(x[0] + 2 * x[1]), [x >= b, cp.sum(x) <= 10]), b, x


def test_the_point_of_least_violation() -> None:
    problem, _, x = crowded()
    push = 5.0
    problem.solve(epsilon=1.0, mechanism="laplace-once", feasibility="relaxed", rng=PushingSource(push))
    release = problem.release
    assert release is not None and release.status == LEAST_VIOLATION
    assert problem.status == "optimal_inaccurate"
    plan = problem.plan(1.0, mechanism="laplace-once", feasibility="relaxed")
    relax = plan.chosen.forecast.error.violation / 2  # type: ignore[union-attr]
    # The same by hand: least t with x >= 4 + push - relax - t and so on.
    t, y = cp.Variable(nonneg=True), cp.Variable(2, nonneg=True)
    rows = [y >= np.array([4.0, 3.0]) + push - relax - t, cp.sum(y) <= 10]
    least = cp.Problem(cp.Minimize(t), rows).solve(solver=cp.CLARABEL)
    best = cp.Problem(cp.Minimize(y[0] + 2 * y[1]), [*rows, t <= least + 1e-6]).solve(solver=cp.CLARABEL)
    assert least > 0.1
    assert release.value == pytest.approx(best, abs=1e-4)
    assert x.value[0] + 2 * x.value[1] == pytest.approx(best, abs=1e-4)
    assert np.sum(x.value) <= 10 + 1e-6, "public constraints hold"
    assert release.accuracy.violation_alpha == pytest.approx(2 * relax + least, abs=1e-4)
    assert release.accuracy.alpha is not None and release.accuracy.alpha >= release.accuracy.violation_alpha  # type: ignore[operator]
    assert "further violation" in release.accuracy.statement
    assert any("least further amount" in note for note in release.notes)


def test_rows_that_contradict_nothing_do_not_give_way() -> None:
    b, x = Private([4.0, 3.0], name="b", unit="entry", linf=0.1), cp.Variable(2, nonneg=True, name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b, x[0] <= 5, x[1] <= 100])
    push = 50.0
    problem.solve(epsilon=1.0, mechanism="laplace-once", feasibility="centred", rng=PushingSource(push))
    assert problem.release is not None and problem.release.status == LEAST_VIOLATION
    assert np.allclose(x.value, [5.0, 3.0 + push], atol=1e-3)


@pytest.mark.parametrize("up", [True, False])
def test_of_equalities_too_only_those_that_contradict_something(up: bool) -> None:
    b, x = Private([3.0, 4.0], name="b", unit="entry", linf=0.1), cp.Variable(2, name="x")
    problem = dpm.Problem(cp.Minimize(x[1]), [x == b, x[0] <= 5, x[0] >= -5, cp.abs(x[1]) <= 100])
    push = 50.0 if up else -50.0
    problem.solve(epsilon=1.0, mechanism="laplace-once", rng=PushingSource(push))
    assert problem.release is not None and problem.release.status == LEAST_VIOLATION
    relax = problem.plan(1.0, mechanism="laplace-once").chosen.forecast.error.violation / 2  # type: ignore[union-attr]
    assert x.value[0] == pytest.approx(5.0 if up else -5.0, abs=1e-3)
    assert abs(x.value[1] - (4.0 + push)) <= relax + 1e-3


def far_equality() -> tuple[dpm.Problem, Private]:
    b = Private([3.0, 4.0], name="b", linf=0.5)
    x = cp.Variable(3, bounds=[0, 60])
    return dpm.Problem(cp.Minimize(x[0]), [x[0] + x[1] == b[0], x[1] + x[2] == b[1]]), b


def far_ball() -> tuple[dpm.Problem, Private]:
    b = Private([1.0, 2.0], name="b", l2=0.2)
    x = cp.Variable(2, bounds=[-20, 20])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [cp.norm2(x - b) <= 1]), b


def far_matrix() -> tuple[dpm.Problem, Private]:
    C = Private([[1.0, 0.5], [0.5, 2.0]], name="C", symmetric=True, unit="entry", linf=0.2)
    X = cp.Variable((2, 2), symmetric=True)
    return dpm.Problem(cp.Minimize(cp.trace(X)), [X >> C, cp.abs(X) <= 50]), C


@pytest.mark.parametrize("write", [far_equality, far_ball, far_matrix], ids=lambda w: w.__name__)
def test_least_violation_in_equalities_and_cones(write: Any) -> None:
    """Planted noise beyond the public box: the reported extra is what the point needs, and no point needs less."""
    problem, _private = write()
    model = problem._model(None)
    options = CASES["demand"].open().options
    which, source = by_name("laplace-once"), PushingSource(200.0)
    outcome = which.run(model, options, source)
    assert outcome.status == LEAST_VIOLATION
    noise = design_noise(model, options, dict.fromkeys(model.private_parts(), "laplace"))  # type: ignore[arg-type]
    c, b, entries = released_parts(model, noise, source, no_progress)
    relax = row_margins(model, noise).one
    program = relaxed_program(model, c, b, entries, relax)
    assert violation(program, _x(outcome)) == pytest.approx(outcome.extra_violation, rel=1e-3, abs=1e-3)
    least = by_hand(write.__name__, float(relax.max()))
    assert outcome.extra_violation == pytest.approx(least, rel=1e-3, abs=1e-3)


def by_hand(name: str, relax: float) -> float:
    """An independent CVXPY model of the least further violation for released data = truth + 200."""
    t = cp.Variable(nonneg=True)
    if name == "far_equality":
        x = cp.Variable(3)
        gap = cp.hstack([x[0] + x[1] - 203.0, x[1] + x[2] - 204.0])
        rows = [cp.abs(gap) <= relax + t, x >= 0, x <= 60]
    elif name == "far_ball":
        y = cp.Variable(2)
        rows = [cp.norm2(y - np.array([201.0, 202.0])) <= 1 + relax + t, cp.abs(y) <= 20]
    else:
        X = cp.Variable((2, 2), symmetric=True)
        C = np.array([[1.0, 0.5], [0.5, 2.0]]) + 200
        rows = [X - C + (relax + t) * np.eye(2) >> 0, cp.abs(X) <= 50]
    return float(cp.Problem(cp.Minimize(t), rows).solve(solver=cp.CLARABEL))


def test_unbounded_and_infeasible_public_parts_are_told_apart() -> None:
    b = Private([1.0], name="b", l1=1.0)
    x = cp.Variable(1)
    unbounded = dpm.Problem(cp.Minimize(cp.sum(x)), [x <= b])
    with pytest.raises(dpm.errors.UnsupportedModelError, match="no bound"):
        unbounded.solve(epsilon=1.0, rng=1)
    with pytest.raises(dpm.errors.InfeasibleError, match="public"):
        dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b, x <= 0, x >= 1]).solve(epsilon=1.0, rng=1)
