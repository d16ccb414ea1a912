"""Programs over rows in blocks or a sparse table: the numbers of memory, sensitivity by brute force, and refusals."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from blocks import Broken, features_of, labels_of
from hypothesis import given, settings
from hypothesis import strategies as st
from replaying import Transcript
from test_dense_measure import measures

import dpmodel as dpm
from dpmodel.compile import rows as row_module
from dpmodel.errors import MissingValueError, SourceError, SpecificationError, UnsupportedModelError
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import RowSource, SourceRows
from dpmodel.programs import model as program_model
from dpmodel.programs.dense_weights import HeldWeights, RecomputedWeights
from dpmodel.programs.fewer_records import fewer_records
from dpmodel.programs.model import Program, RecordsProgram
from dpmodel.programs.rows import RowPart, RowTable, private_rows
from dpmodel.solve.registry import KINDS

P = 4
HINGE, DENSE = "noisy-hinge-descent", "dense-multiplicative-weights"
READERS = (HINGE, DENSE)


def table(rows: int = 90, seed: int = 0) -> np.ndarray:
    """(rows, P + 1) in [0, 1], some beyond, and rows of zeros."""
    rng = np.random.default_rng(seed)
    out = rng.uniform(-0.2, 1.2, size=(rows, P + 1)) * (rng.uniform(size=(rows, P + 1)) < 0.7)
    out[::11] = 0
    return out


def ragged(data: np.ndarray) -> MemoryBlocks:
    """Blocks of different sizes, one of them without rows."""
    return MemoryBlocks(np.split(data, [7, 7, 40, 41]))


def _cover(A: Any, b: Any, x: Any) -> list[Any]:
    return [A @ x >= 0.25 + b]


def _two_rows_each(A: Any, b: Any, x: Any) -> list[Any]:
    return [2 * (A @ x) <= 3 + b, cp.sum(x) <= 2, A[:, 1:3] @ x[:2] + x[3] >= 0.5]


def _equal(A: Any, b: Any, x: Any) -> list[Any]:
    return [A @ x == b]


def _right_sides(A: Any, b: Any, x: Any) -> list[Any]:
    return [cp.sum(x) >= b]


WRITTEN = {"cover": _cover, "two rows each": _two_rows_each, "equal": _equal, "right sides": _right_sides}
BOUNDED: dict[str, Any] = {"bounds": (0, 1)}


def problem(name: str, data: Any, neighbors: Any = "replace-one", **declared: Any) -> dpm.Problem:
    """The program of this name over an array (n, P + 1), or over a source of such blocks."""
    people = dpm.Records("people", neighbors)
    A, b = features_of(data) if isinstance(data, np.ndarray) else SourceRows(data, features_of, P), labels_of
    b = b(data) if isinstance(data, np.ndarray) else SourceRows(data, b, None)
    rows = dpm.Private(A, name="A", unit="row", records=people, **(declared or BOUNDED))
    sides = dpm.Private(b, name="b", unit="entry", bounds=(0, 1), records=people)
    x = cp.Variable(P, name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= 0, x <= 1, *WRITTEN[name](rows, sides, x)])


def model_of(asked: dpm.Problem) -> Program:
    made = asked._model(None)
    assert isinstance(made, Program)
    return made


def solved(asked: dpm.Problem, mechanism: str, delta: float = 1e-6, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked.solve(20.0, delta, mechanism=mechanism, rng=3, **({"feasibility": dpm.AllBut(rows=70)} | given))
    return asked.release.variables["x"]


# ------------------------------------------------------------------ the same numbers
CASES = [
    *itertools.product(WRITTEN, READERS, ["replace-one"], [1e-6], [BOUNDED]),
    *itertools.product(["cover"], READERS, ["add-remove"], [1e-6, 0.0], [BOUNDED]),
    *itertools.product(["cover"], READERS, ["add-remove"], [1e-6], [{"max_l2": 1.0}, {"l2": math.inf}]),
]


@pytest.mark.parametrize(
    ("name", "mechanism", "neighbors", "delta", "declared"),
    [*CASES[:4], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[4:])],
)
def test_released_numbers_are_those_of_memory(
    name: str, mechanism: str, neighbors: str, delta: float, declared: Any
) -> None:
    declared = declared if math.inf not in declared.values() else {"bounds": (-math.inf, math.inf)}
    found = []
    for data in (table(), ragged(table())):
        asked = problem(name, data, neighbors, **declared)
        goal = dpm.Search() if (name, delta) == ("cover", 0.0) else dpm.Target(1.5)
        found.append(solved(asked, mechanism, delta, goal=goal))
        facts = private_rows(model_of(asked))
        found.append((facts.count, facts.per_record, facts.absent, facts.relative, facts.residual, facts.norm2))
    assert isinstance(model_of(asked), RecordsProgram)
    np.testing.assert_allclose(found[0], found[2], rtol=1e-7, atol=1e-9)
    assert found[1] == found[3]


def incidence(rows: int = 300, seed: int = 1) -> sp.csr_array:
    return sp.csr_array(sp.random_array((rows, 12), density=0.2, rng=np.random.default_rng(seed)) > 0, dtype=float)


def sparse_program(matrix: sp.csr_array, **given: Any) -> dpm.Problem:
    A = dpm.Private(matrix, name="A", unit="row", positions="private", bounds=(0, 1), **given)
    x = cp.Variable(12, name="x", nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1, x <= 1])


@pytest.mark.parametrize("mechanism", (*READERS, "split-votes"))
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_a_sparse_table_stays_sparse(mechanism: str, neighbors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for largest in (1 << 24, 100):
        monkeypatch.setattr(row_module, "_SPARSE", largest)
        asked = sparse_program(incidence(), max_l1=3, records=dpm.Records("people", neighbors))
        found.append(solved(asked, mechanism, goal=dpm.Target(6.0)))
        assert isinstance(model_of(asked), RecordsProgram) == (largest == 100)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    rows = model_of(asked).read_rows()
    assert isinstance(rows, row_module.MemoryRows)
    (part,) = private_rows(model_of(asked)).table(rows).in_memory or ()
    assert part.blocks[0][0] is dpm.marks.vault.unseal(asked.parameters()[0])  # no copy of it


# ------------------------------------------------------------------ weights that are not kept
def in_parts(logs: np.ndarray) -> RowTable:
    """Rows of which the point (1,) gives these log-weights, in three parts; a second column tells them apart."""
    rows = np.column_stack([logs, np.arange(logs.size, dtype=float)])
    return RowTable(
        tuple(RowPart(((part, 1.0, 0),), np.zeros(len(part)), 2) for part in np.array_split(rows, 3))  # type: ignore[arg-type]
    )


@settings(max_examples=80, deadline=None, derandomize=True)
@given(measures(), st.floats(0.1, 50.0))
def test_recomputed_weights_are_those_that_are_kept(case: Any, far: float) -> None:
    """Of ties, geometric and extreme weights, wherever the first grid lies."""
    logs, density, idle = case
    parts = in_parts(logs)
    kept = HeldWeights(parts.in_memory, 1.0, density, idle)
    again = RecomputedWeights(parts, logs.size, 1.0, density, idle, (-far, far))
    scale = np.array([np.abs(logs).max() + 1e-300, logs.size])
    for _ in range(3):
        assert (np.abs(kept.average() - again.average()) <= 1e-9 * scale).all()
        for each in (kept, again):
            each.learn(np.array([1.0, 0.0]))


# ------------------------------------------------------------------ sensitivity, through blocks
RECORDS = [np.ones(P + 1), np.r_[np.zeros(P), 1.0], np.r_[np.ones(P), 0.0], np.zeros(P + 1), np.full(P + 1, np.nan)]


def changed(data: np.ndarray, place: int, record: Any) -> np.ndarray:
    out = data.copy()
    out[place] = record
    return out


def largest_loss(mechanism: str, make: Any) -> float:
    """The largest share of the budget that tells apart two databases that differ in one record, over many pairs."""
    (data, worst), (epsilon, delta) = (table(60), 0.0), (20.0, 1e-6)
    asked = problem("cover", make(data))
    plan = asked.plan(epsilon, delta, mechanism=mechanism, feasibility=dpm.AllBut(rows=6), goal=dpm.Target(1.5))
    model, algorithm = model_of(asked), next(m for m in KINDS[Program].mechanisms if m.name == mechanism)
    rows: Any = model.read_rows()
    pairs = [(data[5], RECORDS[0]), *itertools.combinations(RECORDS, 2)]
    for place, (one, other) in itertools.product((0, 8, 59), pairs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = Transcript(place)
        for tape, record in ((source, one), (source.replay(), other)):
            made = replace(rows, source=make(changed(data, place, record)))
            copy = replace(model, read=lambda made=made: made, _memo=model._memo)  # type: ignore[call-arg]
            algorithm.run(copy, plan.options, tape)
        worst = max(worst, source.lost(epsilon, delta))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", READERS)
def test_one_record_moves_no_more_than_is_paid_for(mechanism: str) -> None:
    assert 0.15 < largest_loss(mechanism, ragged) <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", READERS)
def test_a_block_counted_twice_is_caught(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the sum; and by the search of worst records, where the sum does not look."""
    with pytest.raises(SourceError, match="counted twice"):
        largest_loss(mechanism, lambda data: Broken(ragged(data).blocks))
    if mechanism == HINGE:
        blind = row_module.Counted
        together = lambda combine, a, b: blind(combine(a.value, b.value), a.blocks | b.blocks)  # noqa: E731
        monkeypatch.setattr(row_module, "_together", together)
        assert largest_loss(mechanism, lambda data: Broken(np.array_split(data, 2))) > 1.2


def largest_move() -> float:
    """The largest 1-norm by which one record moves the weighted row, as a share of what is allowed: 1/s times the
    largest difference of two rows. Heavy rates, so that weights are capped, and the same points for both databases."""
    data, density, rate, worst = table(60), 7, 3.0, 0.0
    model = model_of(problem("cover", ragged(data)))
    facts, rows = private_rows(model), model.read_rows()
    gains, rng = facts.residual_range(model.public.polyhedron), np.random.default_rng(0)
    for place, (one, other) in itertools.product((0, 8, 59), itertools.combinations(RECORDS, 2)):
        points, sums = rng.uniform(size=(6, P)) < rng.uniform(), []
        for record in (one, other):
            changed_rows: Any = replace(rows, source=ragged(changed(data, place, record)))  # type: ignore[type-var]
            weights = RecomputedWeights(facts.table(changed_rows), facts.count, rate, density, 0, gains)
            sums.append([])
            for x in points.astype(float):
                weights.learn(x)
                sums[-1].append(weights.average())
        worst = max(worst, np.abs(np.array(sums[0]) - sums[1]).sum(axis=1).max())
    return worst * density / facts.swing(1)


def test_one_record_moves_the_weighted_row_by_its_share() -> None:
    assert 0.5 < largest_move() <= 1 + 1e-9


def test_a_threshold_that_forgets_what_is_capped_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A twin that divides by the sum of all weights: a heavy row takes from all others, and not just its share."""

    def find(self: RecomputedWeights, point: Any, scale: float) -> float:
        biggest = self._table.map_reduce(partial(_largest, point, scale), max)
        return biggest + math.log(self._table.map_reduce(partial(_sum, point, scale, biggest)) / self._density)

    monkeypatch.setattr(RecomputedWeights, "_find", find)
    assert largest_move() > 1.05


def _largest(point: Any, scale: float, part: RowPart) -> float:
    return float(scale * part.residual(point).max(initial=-np.inf))


def _sum(point: Any, scale: float, biggest: float, part: RowPart) -> float:
    return float(np.exp(scale * part.residual(point) - biggest).sum())


@pytest.mark.parametrize("name", ["cover", "two rows each", "equal"])
@pytest.mark.parametrize("sizes", [[90], [1] * 90, [7, 0, 43, 40]])
def test_no_term_goes_through_more_additions_than_rounding_allows(
    name: str, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding is allowed for by the longest way of a term into the sum, which grows with the rows' number far slower
    than that."""
    for module in (program_model, row_module):
        monkeypatch.setattr(module, "cached_rows", lambda width: 8)
    model = model_of(problem(name, MemoryBlocks(np.split(table(), np.cumsum(sizes)[:-1]))))
    assert isinstance(model, RecordsProgram)
    facts = private_rows(model)
    longest = facts.table(model.read_rows()).map_reduce(_terms, lambda a, b: max(a, b) + 1)
    assert longest <= model.additions(facts.count)
    monkeypatch.undo()
    large = model_of(problem(name, Large()))
    assert large.additions(10**9) < 10**5 and model_of(problem(name, table())).additions(90) == 90


def _terms(part: RowPart) -> int:
    return part.count


# ------------------------------------------------------------------ nothing as long as the data, and what is refused
class Large(RowSource):
    """As many rows as it is told, of which none exist."""

    sizes = (2_500_000,) * 400

    def map_reduce(self, function: Any, combine: Any) -> Any:
        raise AssertionError("read")


def test_what_the_plan_says_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows that are written out say what all of them say."""
    monkeypatch.setattr(row_module, "ENTRIES", 100)
    inside, outside = (model_of(problem("two rows each", data)) for data in (table(), ragged(table())))
    few = fewer_records(outside)
    assert few is not None and few.form.affine.rows < inside.form.affine.rows
    rows, all_rows = private_rows(outside), private_rows(inside)
    for name in ("count", "per_record", "residual", "norm1", "norm2", "norminf", "h_lower", "h_upper"):
        assert getattr(rows, name) == pytest.approx(getattr(all_rows, name)), name
    assert outside.entries == pytest.approx(inside.entries, rel=0.1)


def test_refusals() -> None:
    source, budget = ragged(table()), dpm.Budget(1.0, 1e-6)
    people = dpm.Records("people")
    A = dpm.Private(SourceRows(source, features_of, P), name="A", unit="row", bounds=(0, 1), records=people)
    b = dpm.Private(SourceRows(source, labels_of, None), name="b", unit="entry", bounds=(0, 1), records=people)
    here = dpm.Private(np.zeros(90), unit="entry", bounds=(0, 1), records=people)
    x, slack = cp.Variable(P, nonneg=True), cp.Variable(90)
    cost = cp.sum(x)
    cases: dict[str, tuple[Any, list[Any], type[Exception], str]] = {
        "sums of records": (cost, [cp.sum(A @ x) >= 1], UnsupportedModelError, "Dataset"),
        "running sums": (cost, [cp.cumsum(A @ x) >= 1], UnsupportedModelError, "Dataset"),
        "sides": (cost, [A @ x >= np.arange(90.0)], UnsupportedModelError, "columns of the table"),
        "some rows": (cost, [A[:60] @ x >= b[:60]], UnsupportedModelError, "some of the rows"),
        "a variable a row": (cost, [A @ x + slack >= 1], UnsupportedModelError, "rows"),
        "an array": (cost, [A @ x >= here], SpecificationError, "same source"),
        "a cone": (cost, [cp.SOC(cp.sum(x), A @ x)], UnsupportedModelError, "every record"),
        "objective": (cp.sum(A @ x), [A @ x >= 1], UnsupportedModelError, "Dataset"),
        "open set": (cost, [A @ x >= 1], UnsupportedModelError, "bound"),
    }
    for name, (objective, constraints, error, words) in cases.items():
        asked = dpm.Problem(cp.Minimize(objective), constraints)
        with pytest.raises(error, match=words):
            asked.solve(epsilon=1, delta=1e-6, budget=budget)
        assert not budget.spent.epsilon, name


def test_what_needs_all_rows_is_refused() -> None:
    asked, budget = problem("cover", ragged(table())), dpm.Budget(1.0, 1e-6)
    plan = asked.plan(1, 1e-6)
    reading = {m.name for m in KINDS[Program].mechanisms if m.serves.reads_blocks}
    assert reading == {*READERS, "split-votes", "public-only"}
    told = {each.mechanism: each.reason for each in plan.candidates}
    assert all("a part at a time" in reason for name, reason in told.items() if name not in reading)
    with pytest.raises(UnsupportedModelError, match="a part at a time"):
        asked.solve(1, 1e-6, mechanism="gaussian-once", budget=budget)
    with pytest.raises(UnsupportedModelError, match="a part at a time"):
        asked.solve(1, 1e-6, feasibility=dpm.Exact(), budget=budget)
    with pytest.raises(SpecificationError, match="a part at a time"):
        plan.simulate(runs=1, mechanisms=[DENSE])
    assert not budget.spent.epsilon


def test_a_value_that_is_missing_is_told_before_the_charge() -> None:
    asked, budget = problem("cover", ragged(table())), dpm.Budget(1.0, 1e-6)
    asked.plan(1, 1e-6)
    asked.parameters()[0].value = None
    with pytest.raises(MissingValueError):
        asked.solve(1, 1e-6, budget=budget)
    assert not budget.spent.epsilon
