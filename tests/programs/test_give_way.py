"""``feasibility="safe"`` where tightened rows leave no point: what the release lists is true, and rows give way in two
steps. Frequencies are tested by the exact binomial tail."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cases import cone_gap
from lists import false_lists, released
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options, Outcome
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.numerics.cone_program import solve_cone_program
from dpmodel.privacy import SeededSource
from dpmodel.programs.feasibility import LEAST_VIOLATION, least_each, tightened_program, treat
from dpmodel.programs.margins import shortfalls
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import design_noise
from dpmodel.programs.noise_once import NoiseOnce
from dpmodel.programs.public import leaves_a_point

BETA, DRAWS, FALSE_ALARM = 0.1, 24, 1e-7
MOST = int(binom.isf(FALSE_ALARM, DRAWS, BETA))


def private(value: Any, name: str = "b", **declared: Any) -> Any:
    return dpm.Private(np.asarray(value, dtype=float), name=name, **{"unit": "entry", "linf": 0.5, **declared})


def issue() -> dpm.Problem:
    """Two needs of 2 and 2.9 under a total of 5: with the noise there is nearly never room for both."""
    x = cp.Variable(2, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= private([2.0, 2.9])).set_label("need"), cp.sum(x) <= 5])


def unequal() -> dpm.Problem:
    """Rows whose noise is 1, 10 and 100 in size, some under caps of their own, in a matrix of rows."""
    x = cp.Variable((2, 3), nonneg=True, name="x")
    needs = [private([[5.0, 8, 3], [4, 2, 7]]), private([50.0, 80], "c", linf=5.0), private(700.0, "d", linf=50.0)]
    y = cp.Variable(3, nonneg=True, name="y")
    rows = [x >= needs[0], y[:2] >= needs[1], y[2] >= needs[2], x[0] <= 6, cp.sum(x[1]) <= 15, cp.sum(y) <= 840]
    return dpm.Problem(cp.Minimize(cp.sum(x) + cp.sum(y)), rows)


def coefficients() -> dpm.Problem:
    A = private([[1.0, 2, 1], [3, 1, 2]], "A", linf=0.1)
    x = cp.Variable(3, bounds=[0, 4], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= private([9.0, 11.0]), cp.sum(x) <= 6])


def signed_coefficients() -> dpm.Problem:
    A = private([[1.0, -2, 1], [-3, 1, 2]], "A", linf=0.1)
    x = cp.Variable(3, bounds=[-4, 4], name="x")
    return dpm.Problem(cp.Minimize(cp.norm1(x)), [A @ x >= 7.0, cp.abs(cp.sum(x)) <= 3])


def integers() -> dpm.Problem:
    x = cp.Variable(3, integer=True, bounds=[0, 9], name="x")
    return dpm.Problem(cp.Minimize(np.array([3.0, 2, 1]) @ x), [x >= private([4.2, 2.5, 1.0]), cp.sum(x) <= 10])


def integer_data() -> dpm.Problem:
    x = cp.Variable(3, nonneg=True, name="x")
    need = private([4.0, 2, 1], integer=True, linf=1.0)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [2 * x >= 3 * need + 0.5, cp.sum(x) <= 14])


def both_sides() -> dpm.Problem:
    """One number in two rows of opposite sign: too much and too little."""
    b, x = private([3.0, 4.0]), cp.Variable(2, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(x[0]), [x >= b - 1, x <= b + 1])


def a_cone() -> dpm.Problem:
    x = cp.Variable(2, name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x - private([3.0, 2.0])) <= 1.5, x <= 3])


def costs_too() -> dpm.Problem:
    c, x = private([1.0, 3], "c", bounds=[0, 9]), cp.Variable(2, bounds=[0, 9], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [x >= private([2.0, 2.9]), cp.sum(x) <= 5])


WRITTEN: list[Callable[[], dpm.Problem]] = [
    issue, unequal, coefficients, signed_coefficients, integers, integer_data, both_sides, a_cone, costs_too
]  # fmt: skip


@cache
def runs(write: Callable[[], dpm.Problem], kind: Any = "laplace") -> tuple[Program, list[Outcome]]:
    """The model and ``DRAWS`` answers."""
    model = write()._model(None)
    return model, released(model, DRAWS, BETA, kind)


@pytest.mark.parametrize("write", WRITTEN, ids=lambda write: write.__name__)
def test_what_safe_lists_is_true(write: Any) -> None:
    model, outcomes = runs(write)
    assert not leaves_a_point(model)
    assert sum(bool(outcome.short) for outcome in outcomes) > 5, "draws without a point belong to this test"
    assert false_lists(model, outcomes) <= MOST
    for outcome in outcomes:
        assert outcome.extra_violation == max([amount for _, amount in outcome.short], default=0.0)
        assert bool(outcome.short) == ("except" in outcome.statement)


@pytest.mark.parametrize("write", [issue, unequal, coefficients], ids=lambda write: write.__name__)
def test_what_safe_lists_is_true_of_gaussian_noise(write: Any) -> None:
    assert false_lists(*runs(write, "gaussian")) <= MOST


def test_without_the_list_the_sentence_is_false() -> None:
    """The test above can fail: nothing listed, or what rows lack against the released numbers alone."""
    assert false_lists(*runs(issue), told=lambda outcome: ()) > MOST
    assert false_lists(*runs(coefficients), told=lambda outcome: ()) > MOST
    tau = runs(issue)[0]
    options = Options(1.0, 0.0, BETA, "safe")
    shift = -treat(tau, options, design_noise(tau, options, {"scalar": "laplace"})).relax.min()
    less = false_lists(*runs(issue), told=lambda outcome: tuple((name, size - shift) for name, size in outcome.short))
    assert less > MOST


LEFT: dict[str, tuple[Callable[[], dpm.Problem], bool]] = {}


def left(expected: bool) -> Any:
    def register(write: Any) -> Any:
        LEFT[write.__name__] = write, expected
        return write

    return register


@left(True)
def no_cap() -> dpm.Problem:
    x = cp.Variable(2, nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private([2.0, 2.9])])


@left(True)
def a_cap_elsewhere() -> dpm.Problem:
    x = cp.Variable(3, nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x[:2] >= private([2.0, 2.9]), x[2] <= 1, x[0] - x[2] >= -3])


@left(True)
def bounds_with_room() -> dpm.Problem:
    x = cp.Variable(2, nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private([2.0, 2.9], bounds=[0, 3]), cp.sum(x) <= 6])


@left(True)
def bounds_and_a_way_out() -> dpm.Problem:
    """One number has bounds, the other a way out."""
    x = cp.Variable(2, nonneg=True)
    rows = [x[0] >= private(2.0, bounds=[0, 3]), x[1] >= private(2.9, "c"), x[0] <= 3]
    return dpm.Problem(cp.Minimize(cp.sum(x)), rows)


@left(True)
def whole_numbers() -> dpm.Problem:
    x = cp.Variable(2, integer=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private([2.0, 2.9]), x >= 0.5])


@left(True)
def coefficients_with_room() -> dpm.Problem:
    A, x = private([[1.0, 2]], "A", linf=0.1, bounds=[1, 3]), cp.Variable(2, bounds=[0, 2])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 3.9])


@left(True)
def twice_in_a_row() -> dpm.Problem:
    p, x = private(2.0, "p", bounds=[1, 3]), cp.Variable(2, nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [p * x[0] - p * x[1] >= 0, x[0] == x[1], cp.sum(x) == 2])


@left(False)
def bounds_without_room() -> dpm.Problem:
    x = cp.Variable(2, nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private([2.0, 2.9], bounds=[0, 3]), cp.sum(x) <= 5.9])


@left(False)
def a_loose_cap() -> dpm.Problem:
    x = cp.Variable(2, nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private([2.0, 2.9]), 1e-7 * cp.sum(x) <= 1])


@left(False)
def between_integers() -> dpm.Problem:
    x = cp.Variable(1, integer=True)
    b = private([2.0], bounds=[0, 3])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [2 * x >= b, 2 * x <= b + 0.5])


@left(False)
def two_sides() -> dpm.Problem:
    b, x = private([2.0, 2.9]), cp.Variable(2)
    return dpm.Problem(cp.Minimize(x[0]), [x >= b, x <= b + 2])


@pytest.mark.filterwarnings("ignore::dpmodel.errors.NoGuaranteeWarning")
@pytest.mark.parametrize("name", LEFT)
def test_a_plan_promises_every_row_only_where_a_point_is_left(name: str) -> None:
    """Where it does, no draw lists a row; noise ten times as large as any number."""
    write, expected = LEFT[name]
    problem = write()
    model = problem._model(None)
    assert leaves_a_point(model) == expected
    options = Options(0.05, 0.0, BETA, "safe")
    statement = NoiseOnce().forecast(model, options).statement
    assert ("the release lists" in statement) == (not expected)
    for seed in range(12 if expected else 0):
        outcome = NoiseOnce().run(model, options, SeededSource(seed))
        assert outcome.status == "optimal" and not outcome.short and outcome.extra_violation == 0


def test_a_point_for_all_data_is_released_where_the_tightened_rows_leave_none() -> None:
    """A number that stands in a row twice, with both signs: rows that are tightened entry by entry do not know that."""
    model, options = twice_in_a_row()._model(None), Options(1.0, 0.0, BETA, "safe")
    for seed in range(4):
        outcome = NoiseOnce().run(model, options, SeededSource(seed))
        assert any("whatever the data are" in note for note in outcome.notes) and not outcome.short
        assert outcome.x == pytest.approx([1.0, 1.0])


def test_no_row_is_harder_than_for_the_worst_data_that_are_allowed() -> None:
    """The noise is many times as large as the declared ranges: of coefficients 1 to 3 and needs up to 6."""
    A, b = private([[1.0, 2], [2, 1]], "A", bounds=[1, 3]), private([5.0, 3], bounds=[0, 6])
    x = cp.Variable(2, bounds=[0, 4])
    model, options = dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= b])._model(None), Options(0.05, 0.0, BETA, "safe")
    for seed in range(12):
        outcome = NoiseOnce().run(model, options, SeededSource(seed))
        assert outcome.status == "optimal" and outcome.x.sum() <= 6 + 1e-6  # type: ignore[union-attr]


def test_intervals_of_coefficients_lie_in_their_ranges() -> None:
    """Gaussian noise on many numbers is released as it is, in the declared range or far from it."""
    A, x = dpm.Private(np.zeros((1, 200)), name="A", linf=0.001, bounds=[0, 1]), cp.Variable(200, bounds=[0, 1])
    model = dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= 2.0])._model(None)
    options = Options(1.0, 1e-6, BETA, "safe")
    noise = design_noise(model, options, {"matrix": "gaussian"})
    assert not noise.parts["matrix"].clip, "this test wants noise beyond the range"
    (row,) = np.flatnonzero(model.form.private_rows)
    for value in (-7.0, -0.001, 0.0, 0.5, 1.001, 9.0):
        entries = np.full(200, value)
        program, weights = tightened_program(model, noise, treat(model, options, noise), None, None, entries)
        assert weights is not None
        middle, half = program.A.toarray()[row], weights.toarray()[row]
        assert (half >= 0).all() and (middle - half >= -1e-9).all() and (middle + half <= 1 + 1e-9).all()


@pytest.mark.parametrize("write", [issue, unequal], ids=lambda write: write.__name__)
def test_release_and_sentence_name_the_rows(write: Any) -> None:
    problem = write()
    problem.solve(epsilon=0.3, feasibility="safe", mechanism="laplace-once", rng=1)
    release = problem.release
    assert release.status == LEAST_VIOLATION and release.accuracy.proved and release.accuracy.short
    amounts = [amount for _, amount in release.accuracy.short]
    assert amounts == pytest.approx(sorted(amounts, reverse=True), rel=1e-3)
    assert release.accuracy.violation_alpha == max(amounts)
    for name, _ in release.accuracy.short[:4]:
        assert name in release.accuracy.statement
    assert ("more" in release.accuracy.statement.split(";")[0]) == (len(amounts) > 4)
    assert "further violation" not in release.accuracy.statement
    again = dpm.Release.from_json(release.to_json())
    assert again.accuracy == release.accuracy


def test_rows_are_named_as_the_user_indexes_them() -> None:
    """Rows count column by column in the standard form; the noise is planted, so that one row alone is short."""
    x = cp.Variable((2, 3), nonneg=True)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= private(np.ones((2, 3)))).set_label("need"), x[1, 2] <= 0.5])
    problem.solve(epsilon=1e4, feasibility="safe", mechanism="laplace-once", rng=0)
    assert [name for name, _ in problem.release.accuracy.short] == ["need[1, 2]"]


def test_many_rows_are_counted() -> None:
    x = cp.Variable(300, nonneg=True)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private(np.full(300, 9.0)), x <= 9])
    problem.solve(epsilon=0.2, feasibility="safe", mechanism="laplace-once", rng=0)
    accuracy = problem.release.accuracy
    assert len(accuracy.short) > 100 and f"{len(accuracy.short) - 4} more" in accuracy.statement
    assert len(accuracy.statement) < 600


# ------------------------------------------------------------------------------------------ two steps
def test_rows_give_way_by_the_least_largest_then_the_least_sum_in_units_of_their_noise() -> None:
    """Against CVXPY. A hopeless row weakens no other, and where two can take a shortage the smaller noise does not."""
    units = np.array([1.0, 10.0, 10.0, 2.0])
    need, cost = np.array([5.0, 60.0, 40.0, 7.0]), np.array([1.0, 1.0, 2.0, 1.0])
    x = cp.Variable(4)
    plain = [x >= 0, x[0] <= 2, x[1] + x[2] <= 95, x[3] <= 100]
    v, t = cp.Variable(4, nonneg=True), cp.Variable(nonneg=True)
    rows = [*plain, x >= need - cp.multiply(units, v), v <= t]
    largest = cp.Problem(cp.Minimize(t), rows).solve()
    least = cp.Problem(cp.Minimize(cp.sum(v)), [*rows, t <= largest]).solve()
    y = cp.Variable(4, nonneg=True)
    held = dpm.Problem(cp.Minimize(cost @ y), [y >= private(need), y[0] <= 2, y[1] + y[2] <= 95, y[3] <= 100])._model(
        None
    )
    program = base_program(held.form)
    b = program.b.copy()
    b[held.form.private_rows] = -need
    program = program.with_(b=b)
    direction = np.zeros(b.size)
    direction[held.form.private_rows] = units
    first = solve_cone_program(program, direction=direction, minimise_slack=True)
    assert first.slack == pytest.approx(largest, rel=1e-6) == 3.0
    each = least_each(program, direction, first.slack)
    assert each is not None
    each = each[held.form.private_rows]
    assert each.sum() == pytest.approx(least, rel=1e-6) and each.max() <= largest * (1 + 1e-6)
    assert each == pytest.approx([3.0, *each[1:3], 0.0]) and each[1:3].sum() == pytest.approx(0.5)


def test_a_hopeless_row_weakens_no_other() -> None:
    """24 rows, one of them under a cap of its own: all others keep their tightening."""
    x = cp.Variable(24, nonneg=True, name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private(np.full(24, 9.0)), x[0] <= 5, x <= 100])
    problem.solve(epsilon=1, feasibility="safe", mechanism="laplace-once", rng=2)
    assert [name for name, _ in problem.release.accuracy.short] == ["constraint 0 (b <= x)[0]"]
    assert x.value[0] == pytest.approx(5, abs=1e-4) and x.value[1:].min() > 9


def test_equalities_and_cones_give_way_by_themselves() -> None:
    """Two second-order cones and two equalities, of which one each cannot be kept."""
    x, y = cp.Variable(2), cp.Variable(2)
    rows = [cp.norm(x) <= private(1.0), cp.norm(y) <= private(1.0, "c"), x[0] >= 30, y[0] >= 0.1]
    problem = dpm.Problem(cp.Minimize(cp.sum(x) + cp.sum(y)), rows)
    problem.solve(epsilon=100, feasibility="relaxed", mechanism="laplace-once", rng=0)
    assert problem.release.status == LEAST_VIOLATION
    assert np.linalg.norm(y.value) <= 1.3 and x.value[0] == pytest.approx(30, abs=1e-3)


# ------------------------------------------------------------------------------------------ shortfalls
BLOCKS = [
    ConeBlock("nonneg", 0, 4, (), (), 0, 0, "linear"),
    ConeBlock("soc", 0, 9, (4, 2, 3), (), 0, 0, "second-order"),
    ConeBlock("psd", 0, 13, (9, 4), (), 0, 0, "semidefinite"),
    ConeBlock("exp", 0, 6, (3, 3), (), 0, 0, "exponential"),
    ConeBlock("pow3d", 0, 6, (3, 3), (0.3, 0.8), 0, 0, "power"),
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.kind)
def test_shortfalls_are_the_least_steps_into_cones(block: ConeBlock) -> None:
    from types import SimpleNamespace

    affine: Any = SimpleNamespace(rows=block.size, cones=(block,))
    rng = np.random.default_rng(4)
    for scale in (1e-3, 1.0, 1e3):
        gap = scale * rng.normal(size=block.size)
        found, start = shortfalls(affine, gap), 0
        for k, size in enumerate(block.sizes or (1,) * block.size):
            part = gap[start : start + size]
            least = max(0.0, -part[0]) if size == 1 else cone_gap(block.kind, part, block.alphas[k : k + 1])
            assert found[start : start + size] == pytest.approx(least, rel=1e-6, abs=1e-9 * scale)
            start += size
