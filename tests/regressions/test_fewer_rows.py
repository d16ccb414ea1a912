"""Models of rows in blocks are recognised on fewer rows: as the same models of arrays are, or not at all."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from regression_spellings import SPELLINGS, Leaves, N

from dpmodel.errors import DPModelError
from dpmodel.marks.private import Private
from dpmodel.marks.rows import RowSource, SourceRows
from dpmodel.regressions.features import Features, Label
from dpmodel.regressions.read import recognise, recognise_blocks


class Nowhere(RowSource):
    sizes = (4, N - 4)

    def map_reduce(self, function: Any, combine: Any) -> Any:
        raise AssertionError("read")


class InBlocks(Leaves):
    """The same leaves, their rows in a source."""

    def __post_init__(self) -> None:
        super().__post_init__()
        source = Nowhere()
        for name, declared in (
            ("X", {"unit": "row", "max_l2": 1}),
            ("Z", {"unit": "row", "bounds": [-1, 2]}),
            ("x", {"unit": "entry", "bounds": [0, 3]}),
            ("y", {"unit": "entry", "bounds": [-1, 1]}),
            ("Y", {"unit": "row", "bounds": [-1, 1]}),
            ("D", {"unit": "row", "bounds": [-1, 1]}),
            ("t", {"unit": "entry", "bounds": [0, 1]}),
        ):
            shape = getattr(self, name).shape
            rows = SourceRows(source, len, shape[1] if len(shape) == 2 else None)
            setattr(self, name, Private(rows, name=name, records=self.people, **declared))


def alike(public: Any, rows: int) -> np.ndarray | None:
    """The one row of a public table, repeated."""
    if public is None:
        return None
    table = public.toarray() if hasattr(public, "toarray") else np.asarray(public)
    assert (table == table[:1]).all()
    return np.repeat(table[:1], rows, axis=0)


# Numbers of single records, loops over records, stacks of rows or turned tables.
OF_RECORDS = (
    *("loop", "weight", "public", "offset", "columns are records", "stack", "picked", "diagonal", "groups"),
    *("recoded, half", "turned", "one-sided", "scalar product", "by record", "both labels", "concatenated"),
)


@pytest.mark.parametrize("name", SPELLINGS)
def test_as_arrays_are(name: str) -> None:
    """What is alike for all records is read as in memory; what is refused says what to try."""
    write, inside = SPELLINGS[name][2], Leaves()
    try:
        found: Any = recognise_blocks(cp.Problem(cp.Minimize(write(InBlocks()))))
    except DPModelError as refusal:
        assert refusal.remedy and any(word in name for word in OF_RECORDS)
        return
    wanted: Any = recognise(cp.Problem(cp.Minimize(write(inside))))
    assert (found.count, found.loss.name) == (
        wanted.count,
        wanted.loss.name,
    ) and found.weights is wanted.weights is None
    assert found.loss.parameter == pytest.approx(wanted.loss.parameter, nan_ok=True)
    assert found.scale == pytest.approx(wanted.scale)
    np.testing.assert_array_equal(found.constant, wanted.constant)
    np.testing.assert_array_equal(found.penalty.ridge, wanted.penalty.ridge)
    np.testing.assert_array_equal(found.penalty.l1, wanted.penalty.l1)
    assert len(found.blocks) == len(wanted.blocks)
    for (mine, start), (theirs, first) in zip(found.blocks, wanted.blocks, strict=True):
        assert start == first
        _same(mine, theirs)
    _same(found.label, wanted.label)
    _same(found.offset, wanted.offset)


def test_public_numbers_of_all_rows_stay() -> None:
    for leaves in (Leaves(), InBlocks()):
        ones = cp.Constant(np.ones(N))
        objective = cp.sum_squares(leaves.r) / cp.sum(ones) + cp.square(cp.sum(leaves.b * ones))
        asked: Any = cp.Problem(cp.Minimize(objective))
        found: Any = recognise_blocks(asked) if isinstance(leaves, InBlocks) else recognise(asked)
        assert found.scale == pytest.approx(1 / N)
        np.testing.assert_allclose(found.penalty.ridge, [0, 0, 0, N**2])


def _same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, Label):
        for one, other in ((mine.scale, theirs.scale), (mine.shift, theirs.shift)):
            assert np.shape(one) == () and np.all(other == one)
        assert mine.range == pytest.approx(theirs.range)
        mine, theirs = mine.features, theirs.features
    if isinstance(theirs, Features):
        assert mine.parameter.in_blocks and mine.parameter.name() == theirs.parameter.name()
        assert (mine.map is None) == (theirs.map is None) and mine.count == N
        if theirs.map is not None:
            np.testing.assert_array_equal(mine.map.toarray(), theirs.map.toarray())
        return
    assert (mine is None) == (theirs is None)
    if theirs is not None:
        np.testing.assert_allclose(alike(mine, N), alike(theirs, N))


@pytest.mark.parametrize("place", ["offset", "label", "weight", "feature"])
def test_public_numbers_made_row_by_row_are_refused(place: str) -> None:
    """A running sum of ones is 1, 2, 3, ..., and the first of them does not stand for all."""
    leaves, counted = InBlocks(), cp.cumsum(np.ones(N)) / N
    residual = {
        "offset": lambda: leaves.X @ leaves.w + counted - leaves.y,
        "label": lambda: leaves.X @ leaves.w - cp.multiply(counted, leaves.y),
        "weight": lambda: cp.multiply(counted, leaves.X @ leaves.w - leaves.y),
        "feature": lambda: leaves.X @ leaves.w + leaves.b * counted - leaves.y,
    }[place]()
    with pytest.raises(DPModelError, match="differ from row to row"):
        recognise_blocks(cp.Problem(cp.Minimize(cp.sum_squares(residual))))
