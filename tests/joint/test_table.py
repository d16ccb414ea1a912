"""The rows of people: the same numbers wherever they lie, each person once, and one person alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from blocks import Broken
from models_of_shares import charging, marked

import dpmodel as dpm
from dpmodel._types import PrivateArray
from dpmodel.errors import MissingValueError, SourceError, SpecificationError
from dpmodel.joint.form import People
from dpmodel.joint.read import read
from dpmodel.joint.respond import respond
from dpmodel.joint.table import PeopleTable, people_table
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import SourceRows

N, K = 60, 4
RNG = np.random.default_rng(2)
# Values, power and wish; some beyond what is declared of them.
DATA = np.column_stack([RNG.uniform(-0.2, 1, (N, K)), RNG.uniform(0.4, 1.1, N), RNG.uniform(0, 4, N)])
WEIGHTS = RNG.uniform(0, 1, (N, K))


def _values(block: Any) -> Any:
    return np.asarray(block)[:, :K]


def _power(block: Any) -> Any:
    return np.asarray(block)[:, K]


def _wish(block: Any) -> Any:
    return np.asarray(block)[:, K + 1]


def _table(source: Any = None, **declared: Any) -> PeopleTable:
    """The people of a model with a public number for each entry, from an array or a source of rows."""
    people = dpm.Records("people")

    def private(numbers: Any, width: int | None, **declared: Any) -> dpm.Private:
        value = numbers(DATA) if source is None else SourceRows(source, numbers, width)
        return dpm.Private(value, records=people, **declared)

    v = private(_values, K, name="v", unit="row", **declared)
    p = private(_power, None, name="p", unit="entry", bounds=[0.5, 1])
    w = private(_wish, None, name="w", unit="entry")
    x = dpm.Shares((N, K), records=people, nonneg=True)
    used = cp.sum(cp.multiply(p[:, None], x), axis=0)
    limits = [used <= 5, cp.sum(cp.multiply(WEIGHTS, x), axis=1) <= w, x <= 1]
    return people_table(read(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), limits)))


def _numbers(people: People, first: int) -> tuple[Any, ...]:
    """Sums that tell people and their places apart."""
    place = first + np.arange(people.count)
    parts = [people.values, people.use, people.coefficients, people.limits]
    return (*((place[:, None] * np.asarray(part)).sum(axis=0) for part in parts), people.count)


def _taken(table: PeopleTable, people: People) -> Any:
    return respond(table.form, people, np.linspace(0.1, 0.5, K), 2.0)[0]


def test_rows_in_blocks_are_the_rows_in_memory() -> None:
    inside = _table()
    for blocks in ([20, 20, 41], [], list(range(1, N))):
        outside = _table(MemoryBlocks(np.split(DATA, blocks)))
        assert outside.rows is None and inside.rows is not None
        for one, other in zip(inside.map_reduce(_numbers), outside.map_reduce(_numbers), strict=True):
            np.testing.assert_allclose(one, other)
        for i in (0, 19, 20, N - 1):
            np.testing.assert_array_equal(inside.row(i), outside.row(i))
            np.testing.assert_array_equal(_taken(inside, inside.person(i)), _taken(outside, outside.person(i)))


def test_rows_of_files(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d", "power", "wish"]
    pd.DataFrame(np.clip(DATA, 0, 1), columns=names).to_parquet(tmp_path / "people.parquet")
    bounds = dict.fromkeys(names, (0.0, 1.0))
    data = dpm.Dataset.scan(tmp_path / "people.parquet", bounds=bounds)
    found = []
    for in_blocks in (True, False):
        v = data.rows(names[:K], in_blocks=in_blocks, name="v")
        p, w = (data.rows(each, in_blocks=in_blocks) for each in names[K:])
        x = dpm.Shares(v.shape, records=data.records, nonneg=True)
        limits = [p @ x <= 5, cp.sum(x, axis=1) <= w]
        table = people_table(read(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), limits)))
        found.append(table.map_reduce(_numbers))
        assert (table.rows is None) == in_blocks
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other)


def test_a_person_alone_is_that_person_among_others() -> None:
    table = _table()
    together = table.map_reduce(lambda people, first: [_taken(table, people)], lambda a, b: a + b)
    alone = [_taken(table, table.person(i))[0] for i in range(N)]
    np.testing.assert_array_equal(np.concatenate(together), alone)
    assert table.rows is not None and not table.rows.flags.writeable


def _moved_by(table_of: Any, i: int) -> set[int]:
    """Whose shares change where the row of person i becomes another."""
    other = DATA.copy()
    other[i] = [*np.full(K, 1.0), 0.5, 9.0]
    one, two = (table_of(data) for data in (DATA, other))
    taken = [np.concatenate([_taken(table, table.person(j)) for j in range(N)]) for table in (one, two)]
    return set(np.flatnonzero((taken[0] != taken[1]).any(axis=1)).tolist())


def test_a_row_moves_the_share_of_its_owner_alone() -> None:
    def in_blocks(data: Any) -> PeopleTable:
        return _table(MemoryBlocks(np.split(data, [20])))

    def centred(data: Any) -> PeopleTable:  # a twin that would tell of others
        table = in_blocks(data)
        rows = np.array([table.row(i) for i in range(N)])
        return PeopleTable(table.form, N, PrivateArray(rows - rows.mean(axis=0) + 0.5))

    for i in (0, 19, N - 1):
        assert _moved_by(in_blocks, i) == {i}
        assert len(_moved_by(centred, i)) > 5


def test_parts_do_not_change_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    import dpmodel.joint.table as module

    whole = _table().map_reduce(_numbers)
    monkeypatch.setattr(module, "cached_rows", lambda width: 7)
    parts = _table()
    assert parts.map_reduce(lambda people, first: [first], lambda a, b: a + b) == list(range(0, N, 7))
    for one, other in zip(whole, parts.map_reduce(_numbers), strict=True):
        np.testing.assert_allclose(one, other)


def test_nobody_counts_twice() -> None:
    with pytest.raises(SourceError, match="twice"):
        _table(Broken(np.split(DATA, [20]))).map_reduce(_numbers)


def test_bounds_hold_wherever_rows_lie() -> None:
    for source in (None, MemoryBlocks(np.split(DATA, [20]))):
        table = _table(source, max_l2=0.5)
        rows = np.array([table.row(i) for i in range(N)])
        assert np.linalg.norm(rows[:, :K], axis=1).max() <= 0.5 + 1e-9
        assert rows[:, K].min() == 0.5 and rows[:, K].max() == 1
        limits = np.array([np.asarray(table.person(i).limits) for i in range(N)])
        assert limits.min() >= 0


def _rows_of(value: Any, **declared: Any) -> Any:
    people = dpm.Records("people")
    v = dpm.Private(value, unit="row", records=people, **declared)
    x = dpm.Shares(v.shape, records=people, nonneg=True)
    axis = tuple(range(1, len(v.shape)))
    found = read(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), [cp.sum(x) <= 1, cp.sum(x, axis=axis) <= 1]))
    table = people_table(found)
    return np.array([table.row(i) for i in range(table.count)])


@pytest.mark.filterwarnings("ignore::dpmodel.errors.PublicPatternWarning")
def test_shapes_and_kinds_of_values() -> None:
    cube = RNG.random((5, 3, 2))
    np.testing.assert_array_equal(_rows_of(cube), cube.reshape(5, -1))
    matrix = RNG.random((5, 3)) * (RNG.random((5, 3)) < 0.6)
    for value in (matrix, np.asfortranarray(matrix), pd.DataFrame(matrix, columns=list("abc")), sp.csr_array(matrix)):
        np.testing.assert_array_equal(_rows_of(value), matrix)
    np.testing.assert_array_equal(_rows_of(sp.csr_array(matrix), positions="private"), matrix)


@pytest.mark.parametrize("unit", ["row", "entry"])
def test_a_number_of_each_person(unit: Any) -> None:
    people = dpm.Records("people")
    wish = dpm.Private(np.arange(5.0), unit=unit, records=people)
    x = dpm.Shares((5, 2), records=people, nonneg=True)
    table = people_table(read(dpm.Problem(cp.Maximize(wish @ x[:, 0]), [cp.sum(x) <= 1, cp.sum(x, axis=1) <= wish])))
    np.testing.assert_array_equal(table.row(3), [3.0])


def test_what_is_missing_is_told() -> None:
    people = dpm.Records("people")
    v = dpm.Private(shape=(5, 2), unit="row", records=people, name="v")
    x = dpm.Shares((5, 2), records=people, nonneg=True)
    problem = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), [cp.sum(x, axis=0) <= 1, x <= 1])
    found = read(problem)  # public facts alone
    with pytest.raises(MissingValueError, match="v"):
        people_table(found)


def test_rows_in_two_places_are_refused() -> None:
    people = dpm.Records("people")
    v = dpm.Private(SourceRows(MemoryBlocks([DATA]), _values, K), unit="row", records=people, name="v")
    w = dpm.Private(DATA[:, K], unit="entry", records=people)
    x = dpm.Shares((N, K), records=people, nonneg=True)
    problem = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), [cp.sum(x, axis=0) <= 1, cp.sum(x, axis=1) <= w])
    with pytest.raises(SpecificationError, match="elsewhere"):
        people_table(read(problem))


def test_drawn_people_are_within_what_is_declared() -> None:
    people = dpm.Records("people")
    found = read(marked(charging(50), people)[0])
    rows = found.synthetic_rows(np.random.default_rng(0), 400)
    assert rows.shape == (400, 26)
    values, power, wish = rows[:, :24], rows[:, 24], rows[:, 25]
    assert values.min() >= 0.04 and values.max() <= 2 and len(np.unique(rows)) == rows.size
    assert 0.5 <= power.min() < 0.52 and 0.98 < power.max() <= 1 and 0 <= wish.min() < 0.2 and 7.8 < wish.max() <= 8
    # What a person's numbers have in common.
    assert np.corrcoef(values[:, 0], values[:, 1])[0, 1] > 0.3


def test_drawn_people_have_the_typical_and_public_numbers_and_norms() -> None:
    people = dpm.Records("people")
    typical = np.arange(1.0, 13).reshape(6, 2)
    v = dpm.Private(np.zeros((6, 2)), unit="row", records=people, typical=typical)
    c = dpm.Private(np.zeros((6, 2)), unit="row", records=people, max_l2=0.1, nonneg=True)
    x = dpm.Shares((6, 2), records=people, nonneg=True)
    limits = [cp.sum(x) <= 1, cp.sum(cp.multiply(typical, x), axis=1) <= 1, x <= c]
    found = read(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), limits))
    rows = found.synthetic_rows(np.random.default_rng(0), 300)
    np.testing.assert_array_equal(rows[:, :2], rows[:, 4:])
    assert {tuple(row) for row in rows[:, :2]} == {tuple(row) for row in typical}
    assert np.linalg.norm(rows[:, 2:4], axis=1).max() <= 0.1 + 1e-12 and rows[:, 2:4].min() >= 0


def test_typical_rows_that_are_alike_are_a_level() -> None:
    people = dpm.Records("people")
    v = dpm.Private(np.zeros((300, 2)), unit="row", records=people, bounds=[0, 5], typical=3.0)
    x = dpm.Shares((300, 2), records=people, nonneg=True)
    found = read(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), [cp.sum(x, axis=0) <= 1, x <= 1]))
    rows = found.synthetic_rows(np.random.default_rng(0), 2000)
    assert 2.6 < rows.mean() < 3 and rows.min() > 0.1 and rows.max() == 5 and rows.std() > 1
