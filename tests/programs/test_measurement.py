"""Measurements: they rebuild the part, no record moves them further than stated, and rounding is what it claims."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cases import CASES, Case
from models import MODELS, Model, random_value
from neighbours import Owned, owned_of, records_of

import dpmodel as dpm
from dpmodel._types import Floats
from dpmodel.compile.affine_map import LinearMap
from dpmodel.compile.footprint import Sensitivity
from dpmodel.compile.form import standard_form
from dpmodel.compile.public_set import PublicSet
from dpmodel.errors import SpecificationError
from dpmodel.kernels.direct_measurement import exact_rows
from dpmodel.marks import DEFAULT_RECORDS, Private, Records
from dpmodel.programs.model import Program, compiled
from dpmodel.programs.noise_design import Measurement, best_measurements, measurements

Declared = dict[str, dict[str, Any]]


def opened(model: Model) -> tuple[Program, list[Private], Declared]:
    made: list[Private] = []
    declared: Declared = {}

    def make(name: str, shape: Any = (), **given: Any) -> Private:
        declared[name] = given
        made.append(Private(shape=shape, name=name, **given))
        return made[-1]

    def public(name: str, shape: Any = (), **attributes: Any) -> cp.Parameter:
        parameter = cp.Parameter(shape, name=name, **attributes)
        parameter.value = np.abs(np.random.default_rng(2).normal(size=shape)) + 0.1
        return parameter

    problem = model.write(make, public)
    # Lowered also where it is a regression, which would not be.
    lowered, _, cells, _ = compiled(dpm.Problem(problem.objective, problem.constraints))
    form = standard_form(lowered.affine)
    return Program(form, cells, PublicSet(form, None)), made, declared


LOW = [m for m in MODELS if "high" not in m.name]
BY_NAME = {m.name: m for m in MODELS}


def every_measurement(model: Program) -> list[Measurement]:
    return [m for part in model.private_parts() for m in measurements(model, part)]


def dense(part: LinearMap, width: int) -> np.ndarray:
    return part.tocsr(width).toarray()


# ------------------------------------------------------------------------------------ rebuilding
@pytest.mark.parametrize("model", LOW, ids=str)
def test_recover_times_queries_is_the_part(model: Model) -> None:
    lp, _, _ = opened(model)
    width = lp.affine.theta_size
    for m in every_measurement(lp):
        if m.recover.nnz * width > 10**7:
            continue
        whole = dense(lp.form.private_part(m.part), width)
        assert np.array_equal(m.positions, np.flatnonzero(np.abs(whole).sum(axis=1)))
        rebuilt = m.recover @ dense(m.queries, width)
        assert np.allclose(rebuilt, whole[m.positions], rtol=1e-13, atol=1e-15)
        theta = np.random.default_rng(0).normal(size=width)
        values = exact_rows(m.queries, theta)
        direct = lp.form.private_part(m.part)
        expected = np.zeros(direct.height)
        np.add.at(expected, direct.row, direct.coefficient * theta[direct.column])
        assert np.allclose(m.rebuild(values, clip=False), expected[m.positions], rtol=1e-12, atol=1e-12)


def test_strategies_and_what_is_measured_once() -> None:
    """Multiples are one number; prefix sums may be measured as rows or as inputs."""
    b = Private(shape=3, name="b", l1=1.0)
    x = cp.Variable(3)
    doubled = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b, x >= 2 * b - 1, 3 * x >= -b])._model(None)
    assert [m.count for m in measurements(doubled, "scalar")] == [3]
    assert measurements(doubled, "scalar")[0].l1 == pytest.approx(1.0, rel=2e-3)
    totals = CASES["running_totals"].open().model
    entries, inputs = measurements(totals, "scalar")
    assert (entries.strategy, inputs.strategy) == ("entries", "inputs")
    # Scaled rows: entry i of S moves by at most one, the first record moves all four.
    assert entries.l1 == pytest.approx(4.0, rel=2e-3)
    assert inputs.l1 == pytest.approx(1.0, rel=2e-3)
    # As many entries from the same column on, and multiples of each other or not.
    alike = dpm.Problem(cp.Minimize(cp.sum(x)), [x[0] >= b[0] + b[1], x[1] >= 2 * b[0] + 2 * b[1], x[2] >= b[0] - b[1]])
    apart = dpm.Problem(cp.Minimize(cp.sum(x)), [x[0] >= b[0] + b[1], x[1] >= b[1] + b[2], x[2] >= b[0]])
    assert [measurements(each._model(None), "scalar")[0].count for each in (alike, apart)] == [2, 3]
    # At their largest entries and inputs are as good under noise with a bound, and inputs less on average.
    kinds = {"truncated": "inputs", "laplace": "inputs", "gaussian": "factor"}
    assert {kind: best_measurements(totals, ("scalar",), kind)["scalar"].strategy for kind in kinds} == kinds  # type: ignore[arg-type]


def test_a_symmetric_matrix_is_measured_once_per_pair() -> None:
    lp, _, _ = opened(BY_NAME["symmetric_a_entries"])
    assert {m.count for m in measurements(lp, "matrix")} == {6}


# ------------------------------------------------------------------------- brute force over neighbours
class ExceededError(AssertionError):
    """A neighbour moved a measurement further than it says."""


def neighbour_values(
    owned: Owned, d: Floats, before: dict[str, Any], declared: Declared, rng: np.random.Generator
) -> dict[str, Any] | None:
    """The data after one record changed by ``d`` (add-remove: sometimes by leaving)."""
    after = dict(before)
    for unit, piece in zip(owned.units, owned.split(d), strict=True):
        records = declared[unit.name].get("records", DEFAULT_RECORDS)
        if records.neighbors == "add-remove":
            new = np.array(after[unit.name], dtype=float)
            for cell in unit.cells:
                new[cell] = 0.0
            after[unit.name] = new
        else:
            after[unit.name] = after[unit.name] + unit.full(piece)
    return after


def brute_force(lp: Program, private: list[Private], declared: Declared, ms: list[Measurement], draws: int) -> float:
    """Largest observed change relative to the bound; raises ExceededError above 1."""
    rng = np.random.default_rng(11)
    by_name = {p.name(): p for p in private}
    closest = 0.0
    for units in records_of(private, declared):
        owned = owned_of(lp.affine, units)
        records = declared[units[0].name].get("records", DEFAULT_RECORDS)
        for _ in range(draws):
            before = {p.name(): random_value(rng, p) * 10.0 ** rng.integers(-1, 2) for p in private}
            after = neighbour_values(owned, owned.inside(rng), before, declared, rng)
            seen = []
            try:
                for values in (before, after):
                    for name, value in values.items():
                        by_name[name].value = value
                    theta = lp.read_private()
                    seen.append([m.values(theta) for m in ms])
            except SpecificationError:
                continue  # the change contradicts an attribute: not a neighbour
            for m, one, two in zip(ms, *seen, strict=True):
                moved = np.abs(one - two)
                for size, limit in (
                    (moved.sum(), m.sensitivity[records].l1),
                    (np.linalg.norm(moved), m.sensitivity[records].l2),
                ):
                    if size > limit * (1 + 1e-9):
                        raise ExceededError(f"{m.part}, {m.strategy}: {size} above {limit}")
                    closest = max(closest, size / limit if limit else 0.0)
    return closest


@pytest.mark.slow
@pytest.mark.parametrize("model", LOW, ids=str)
def test_no_neighbour_moves_a_measurement_further(model: Model) -> None:
    lp, private, declared = opened(model)
    brute_force(lp, private, declared, every_measurement(lp), draws=12)


def without_reuse(m: Measurement) -> Measurement:
    """Forgets that one private entry can stand in several rows: the largest row's change is taken for all."""
    sensitivity = {r: Sensitivity(c.linf, c.linf, c.linf) for r, c in m.sensitivity.items()}
    return replace(m, sensitivity=sensitivity)


@pytest.mark.parametrize("name", ["scalar_rhs_aggregate_l1", "columns_of_a", "sparse_a", "objective_maximised"])
def test_the_brute_force_catches_a_measurement_that_forgets_reuse(name: str) -> None:
    lp, private, declared = opened(BY_NAME[name])
    broken = [without_reuse(m) for m in every_measurement(lp)]
    if name == "scalar_rhs_aggregate_l1":  # one 1-norm ball: a single row can take it all, so shrink it instead
        broken = [
            replace(m, sensitivity={r: c.scaled_for_rounding(-0.5) for r, c in m.sensitivity.items()}) for m in broken
        ]
    with pytest.raises(ExceededError):
        brute_force(lp, private, declared, broken, draws=40)


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_the_cases_pairs_are_neighbours(case: Case) -> None:
    """The pairs that the audit uses obey the bounds, and come close to the worst."""
    opened_case = case.open()
    ms = every_measurement(opened_case.model)
    one = [m.values(opened_case.seal(case.values)) for m in ms]
    two = [m.values(opened_case.seal(case.neighbour)) for m in ms]
    for m, a, b in zip(ms, one, two, strict=True):
        assert np.abs(a - b).sum() <= m.l1 and np.linalg.norm(a - b) <= m.l2


# ----------------------------------------------------------------------------------------- rounding
@pytest.mark.parametrize("signs", [False, True], ids=["numbers", "signs"])
def test_exact_rows_rounds_once(signs: bool) -> None:
    rng = np.random.default_rng(5)
    width = 40
    for _ in range(60):
        row, column = rng.integers(0, 12, size=60), rng.integers(0, width, size=60)
        coefficient = rng.normal(size=60) * 10.0 ** rng.integers(-12, 12, size=60)
        if signs:  # their products are not rounded; rows come in any order
            part = LinearMap(row, column, np.sign(coefficient), 12)
        else:
            part = LinearMap.of(np.sort(row), column, coefficient, 12)
        theta = rng.normal(size=width) * 10.0 ** rng.integers(-12, 12, size=width)
        exact = [Fraction(0)] * 12
        for i, j, a in zip(part.row, part.column, part.coefficient, strict=True):
            exact[i] += Fraction(float(a)) * Fraction(float(theta[j]))
        assert exact_rows(part, theta).tolist() == [float(value) for value in exact]


def test_exact_rows_survives_cancellation_and_huge_numbers() -> None:
    part = LinearMap.of([0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [1.0, 1.0, -1.0, 1.0, 1.0], 2)
    assert exact_rows(part, np.array([1e16, 1.0, 1e16])).tolist() == [1.0, 1e16]
    with np.errstate(over="raise", invalid="raise"):
        for theta in ([1e308, 1e308, -1e308], [-1e308, 1e308, 1e308]):
            assert np.isfinite(exact_rows(part, np.array(theta))).all()


@pytest.mark.parametrize("values", [[1e308, 1e308], [1e308, -1e308], [-1e300, 1e300]])
def test_huge_data_does_not_stop_a_solve(values: list[float]) -> None:
    """A crash that depends on the data would be a message about the data."""
    b = Private(values, name="b", l1=1.0)
    x = cp.Variable(2, nonneg=True)
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), [x[0] + x[1] <= 5 * b[0] + 3 * b[1], x <= 10])
    problem.solve(epsilon=1.0, rng=1)
    assert problem.release is not None


def test_rounding_stays_inside_the_allowance_at_the_clamp() -> None:
    """Values far above their change, a factor that is no power of two, and changes of one unit in the last place.

    Every entry's change rounds up from 1.5 to 2 units; without a clamp that counts the entries, the 1-norm sensitivity
    would be 4/3 of what the footprint says.
    """
    k = 16384
    low = np.full(k, 2.0**38)
    high = low + 1 / 3
    high[0] = low[0] + 1.0
    b = Private(shape=k, name="b", l1=1.0, bounds=[low, high])
    x = cp.Variable(k)
    lp = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])._model(None)
    m = measurements(lp, "scalar")[0]
    grid = low[:, None] + 2.0**-14 * np.arange(4)[None, :]
    scaled = m.queries.coefficient[:, None] * grid
    start = np.argmax(np.diff(scaled, axis=1), axis=1)  # where one step of b moves the product most
    before = grid[np.arange(k), start]
    changed = []
    for value in (before, before + 2.0**-14):
        b.value = value
        changed.append(m.values(lp.read_private()))
    assert np.abs(before + 2.0**-14 - before).sum() <= 1.0
    assert np.abs(changed[1] - changed[0]).sum() <= m.l1
    assert np.linalg.norm(changed[1] - changed[0]) <= m.l2


# ------------------------------------------------------------------------------------ clamps and ranges
def test_values_beyond_the_clamp_are_cut() -> None:
    b = Private([1e15, -1e15], name="b", unit="entry", linf=1.0)
    x = cp.Variable(2)
    lp = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])._model(None)
    (m,) = measurements(lp, "scalar")
    assert np.abs(m.values(lp.read_private())).tolist() == [2.0**40, 2.0**40]


def test_a_strict_promise_is_refused_where_the_clamp_would_break_it() -> None:
    b = Private([1e15], name="b", l1=1.0, bounds=[0, 2e15])
    x = cp.Variable(1, nonneg=True)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])
    plan = problem.plan(1.0, 1e-6, feasibility="strict")
    assert "clamped" in plan.why("strict-truncated-laplace") and plan.chosen.mechanism == "public-only"
    with pytest.raises(dpm.errors.UnsupportedModelError, match="clamped"):
        problem.plan(1.0, 1e-6, feasibility="strict", mechanism="strict-truncated-laplace")


def test_statements_name_the_clamp_beyond_which_they_do_not_hold() -> None:
    x = cp.Variable(1)
    unbounded = dpm.Problem(cp.Minimize(x[0]), [x >= Private([5e12], unit="entry", linf=1, name="b")])
    bounded = Private([5.0], unit="entry", linf=1, bounds=[0, 9], name="b")
    plan = unbounded.plan(1)
    assert plan.chosen.forecast is not None
    assert any("for private numbers up to" in caveat for caveat in plan.chosen.forecast.caveats)
    assert "for private numbers up to" in str(plan)
    within = dpm.Problem(cp.Minimize(x[0]), [x >= bounded]).plan(1).chosen.forecast
    assert within is not None and not any("private numbers up to" in caveat for caveat in within.caveats)


@pytest.mark.parametrize("model", LOW, ids=str)
def test_the_public_range_contains_the_truth(model: Model) -> None:
    lp, private, _ = opened(model)
    rng = np.random.default_rng(6)
    for _ in range(10):
        for p in private:
            p.value = random_value(rng, p)
        theta = lp.read_private()
        for m in every_measurement(lp):
            exact = exact_rows(m.queries, theta)
            assert ((exact >= m.lower) & (exact <= m.upper)).all()
            assert np.array_equal(np.clip(exact, -m.limit, m.limit), m.values(theta))
            assert math.isfinite(m.l1) and m.l2 <= m.l1 * (1 + 1e-12)


def test_records_are_told_apart() -> None:
    """Each Records has its own change, and the measurement's is the largest."""
    one, two = Records("one"), Records("two")
    a = Private(shape=2, name="a", l1=1.0, records=one)
    b = Private(shape=2, name="b", l1=5.0, records=two)
    x = cp.Variable(2)
    lp = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= a + b])._model(None)
    entries, inputs = measurements(lp, "scalar")
    assert entries.sensitivity[two].l1 == pytest.approx(5 * entries.sensitivity[one].l1)
    assert entries.l1 == entries.sensitivity[two].l1
    # Inputs are scaled to equal change, so that each of the two gets all of the budget.
    assert inputs.sensitivity[two].l1 == pytest.approx(inputs.sensitivity[one].l1)
