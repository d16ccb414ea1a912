"""The same problem with fewer of its records, for what is simulated or only has to be near: plans of large problems.

A problem whose private rows belong to one record each is a mean over its records: with a share of them, and as much
more budget, an algorithm moves the same way (noise on a sum of n rows, divided by n, stays what it was). Public facts
only: which records stay is decided by their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask
from dpmodel.compile.affine_map import LinearMap, ThetaBlock, coordinates_of, most_items
from dpmodel.compile.form import StandardForm
from dpmodel.contract import Options
from dpmodel.marks.layout import Layout, same_for_all, some
from dpmodel.marks.private import Private
from dpmodel.memo import cached
from dpmodel.privacy import gaussian_epsilon, gaussian_mu
from dpmodel.programs.model import Program, RecordsProgram
from dpmodel.programs.rows import first_records, owners, public_polyhedron

# Private numbers of a problem that is simulated as it is.
ENTRIES = 100_000
# Gaussian mu beyond which noise is as good as none.
_MOST_MU = 100.0


@dataclass(frozen=True)
class FewerRecords(Program):
    """``whole`` : the problem of which this has a ``share`` of the records (all of them, where that reads rows a part
    at a time, and these are written out)."""

    whole: Program
    share: float

    @property
    def entries(self) -> int:
        return self.whole.entries


@cached
def fewer_records(model: Program) -> FewerRecords | None:
    """About ``ENTRIES`` private numbers of ``model``, evenly spaced records; None where it has no more, or where its
    rows do not belong to one record each (with public coefficients they hang together), or the objective is private."""
    if isinstance(model, RecordsProgram):
        return FewerRecords(model.form, model.classification, model.public, model, model.few / model.count)
    form, affine = model.form, model.affine
    numbers = form.matrix.nnz + form.scalar.nnz
    if numbers <= ENTRIES or not form.matrix.nnz or form.objective.nnz or form.offset.nnz or not affine.is_linear():
        return None
    if any(block.parameter.unit == "all" for block in affine.private_blocks):
        return None
    rows, owner = owners(model)
    if most_items(rows, owner) > 1:
        return None
    record = np.full(affine.rows, -1, dtype=np.int64)
    record[rows] = owner
    most = int(owner.max()) + 1
    count = max(1, most * ENTRIES // numbers)
    chosen = np.zeros(most + 1, dtype=bool)
    chosen[np.linspace(0, most - 1, count).astype(np.int64)] = True
    chosen[-1] = True  # what is nobody's
    few = FewerRecords(_part(form, chosen, record), model.classification, model.public, model, count / most)
    few.cached("public polyhedron", lambda: public_polyhedron(model))
    return few


def _part(form: StandardForm, chosen: Mask, record: Integers) -> StandardForm:
    """The rows and entries of the ``chosen`` records (and of nobody); ``record`` (m,) : owner of each row, or -1."""
    affine, start = form.affine, first_records(form.affine)
    here = chosen[record]
    rows, place = np.flatnonzero(here), _numbered(here)
    blocks: list[ThetaBlock] = []
    entries: list[Integers] = []
    for block in affine.parameters:
        kept, parameter = np.arange(block.size), block.parameter
        if block.private:
            mine = chosen[start[block.offset] : -1]
            kept = np.flatnonzero(mine[parameter.layout.units])
            parameter = _Part(parameter, kept, _layout(parameter.layout, kept, mine))
        blocks.append(ThetaBlock(parameter, sum(each.size for each in entries), kept.size, block.private))
        entries.append(block.offset + kept)
    old = np.concatenate([*entries, [affine.theta_size - 1]])  # in order, as parameters are

    def column_of(column: Integers) -> Integers:
        return np.searchsorted(old, column)

    def part(whole: LinearMap, of_matrix: tuple[Integers, Integers] | None = None) -> LinearMap:
        """Rows of one record hold numbers of this record alone, or public ones: what stays is told by the row."""
        stay = np.flatnonzero(here[whole.row if of_matrix is None else of_matrix[0]])
        row = place[whole.row[stay] if of_matrix is None else of_matrix[0][stay]]
        height = rows.size
        if of_matrix is not None:
            row, height = row + rows.size * of_matrix[1][stay].astype(np.int64), rows.size * affine.variables
        return LinearMap(row, column_of(whole.column[stay]), some(whole.coefficient, stay), height)

    cones, begin = [], 0
    for cone in affine.cones:
        size = int(np.count_nonzero(here[cone.rows]))
        cones.append(replace(cone, start=begin, size=size))
        begin += size
    fewer = replace(
        affine, rows=rows.size, theta_size=old.size, cones=tuple(cones), parameters=tuple(blocks),
        objective=replace(affine.objective, column=column_of(affine.objective.column)),
        offset=replace(affine.offset, column=column_of(affine.offset.column)),
        scalar=part(affine.scalar),
        public_matrix=part(affine.public_matrix, coordinates_of(affine.public_matrix.row, affine.rows)),
        private_matrix=part(affine.private_matrix, affine.private_coordinates),
    )  # fmt: skip
    return replace(
        form, affine=fewer, b0=form.b0[rows], A0=sp.csr_array(form.A0[rows]), matrix=fewer.private_matrix,
        scalar=part(form.scalar),
    )  # fmt: skip


def _numbered(stay: Any) -> Integers:
    """New numbers of what stays, -1 for the rest."""
    return np.where(stay, np.cumsum(stay) - 1, -1)


@dataclass(frozen=True)
class _Part:
    """The entries ``kept`` of a private parameter: what declarations say of them."""

    whole: Private
    kept: Integers
    layout: Layout

    @property
    def entry_range(self) -> tuple[Floats, Floats]:
        low, high = self.whole.entry_range
        return self._some(low), self._some(high)

    @property
    def entry_caps(self) -> Floats:
        return self._some(self.whole.entry_caps)

    def _some(self, numbers: Floats) -> Floats:
        return np.broadcast_to(numbers[0], self.kept.size) if same_for_all(numbers) else numbers[self.kept]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


def _layout(layout: Layout, kept: Integers, chosen: Any) -> Layout:
    """The layout of the entries ``kept``; ``chosen`` : per unit."""
    here = chosen[: layout.unit_count]
    unit, rows, columns = _numbered(here)[layout.units[kept]], layout.rows[kept], layout.columns[kept]
    count, height = int(np.count_nonzero(here)), layout.height
    if layout.unit == "column":
        columns = unit
    elif layout.paired:
        rows, height = unit, count
    return Layout(layout.unit, height, kept.size, count, layout.paired, False, (rows, columns))


def as_noisy(options: Options, share: float) -> Options:
    """``options`` for a ``share`` of the records: as much more budget as makes noise on a mean what it was, and as many
    fewer rows to leave out."""
    slack = None if options.slack_rows is None else max(round(options.slack_rows * share), 0)
    if options.delta == 0:
        return replace(options, epsilon=options.epsilon / share, slack_rows=slack)
    mu = min(gaussian_mu(options.epsilon, options.delta) / share, _MOST_MU)
    return replace(options, epsilon=gaussian_epsilon(mu, options.delta), slack_rows=slack)
