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

from dpmodel._types import Floats, Integers
from dpmodel.annotate.layout import Layout
from dpmodel.annotate.per_entry import same_for_all
from dpmodel.annotate.private import Private
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.standard_form.affine_map import LinearMap, ThetaBlock, coordinates_of
from dpmodel.compile.standard_form.extremes import most_items
from dpmodel.compile.standard_form.form import StandardForm
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.lp.private_rows import owners, public_polyhedron, records_of_entries
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import gaussian_epsilon, gaussian_mu

# Private numbers of a problem that is simulated as it is.
ENTRIES = 100_000
# Gaussian mu beyond which noise is as good as none.
_MOST_MU = 100.0


@dataclass(frozen=True)
class FewerRecords(PrivateLP):
    """``whole`` : the problem of which this has a ``share`` of the records."""

    whole: PrivateLP
    share: float

    @property
    def entries(self) -> int:
        return self.whole.entries


@cached
def fewer_records(model: PrivateLP) -> FewerRecords | None:
    """About ``ENTRIES`` private numbers of ``model``, evenly spaced records; None where it has no more, or where its
    rows do not belong to one record each (with public coefficients they hang together), or the objective is private."""
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


def _part(form: StandardForm, chosen: Any, record: Integers) -> StandardForm:
    """The rows and entries of the ``chosen`` records (and of nobody); ``record`` (m,) : owner of each row, or -1."""
    affine = form.affine
    rows, (owner, start) = np.flatnonzero(chosen[record]), records_of_entries(affine)
    place, column = _numbered(chosen[record]), _numbered(chosen[owner])
    blocks = []
    for block in affine.parameters:
        kept, parameter = np.flatnonzero(chosen[owner[block.columns]]), block.parameter
        if block.private:
            first = start[block.offset]
            parameter = _Part(parameter, kept, _layout(parameter.layout, kept, chosen[first:-1]))
        begin = int(column[block.offset + kept[0]]) if kept.size else 0
        blocks.append(ThetaBlock(parameter, begin, kept.size, block.private))

    def part(whole: LinearMap, height: int, of_matrix: bool = False) -> LinearMap:
        whole_rows, columns = coordinates_of(whole.row, affine.rows) if of_matrix else (whole.row, 0)
        stay = (place[whole_rows] >= 0) & (column[whole.column] >= 0)
        row = (place[whole_rows] + rows.size * columns)[stay]
        return LinearMap(row, column[whole.column][stay], whole.coefficient[stay], height)

    cones, begin = [], 0
    for cone in affine.cones:
        size = int(np.count_nonzero(place[cone.rows] >= 0))
        cones.append(replace(cone, start=begin, size=size))
        begin += size
    height = rows.size * affine.variables
    fewer = replace(
        affine, rows=rows.size, theta_size=int(column[-1]) + 1, cones=tuple(cones), parameters=tuple(blocks),
        objective=replace(affine.objective, column=column[affine.objective.column]),
        offset=replace(affine.offset, column=column[affine.offset.column]),
        scalar=part(affine.scalar, rows.size),
        public_matrix=part(affine.public_matrix, height, of_matrix=True),
        private_matrix=part(affine.private_matrix, height, of_matrix=True),
    )  # fmt: skip
    return replace(
        form, affine=fewer, b0=form.b0[rows], A0=sp.csr_array(form.A0[rows]), matrix=fewer.private_matrix,
        scalar=part(form.scalar, rows.size),
        objective=part(form.objective, affine.variables) if form.objective.nnz else form.objective,
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


def as_noisy(request: Request, share: float) -> Request:
    """``request`` for a ``share`` of the records: as much more budget as makes noise on a mean what it was, and as many
    fewer rows to leave out."""
    slack = None if request.slack_rows is None else max(round(request.slack_rows * share), 0)
    if request.delta == 0:
        return replace(request, epsilon=request.epsilon / share, slack_rows=slack)
    mu = min(gaussian_mu(request.epsilon, request.delta) / share, _MOST_MU)
    return replace(request, epsilon=gaussian_epsilon(mu, request.delta), slack_rows=slack)
