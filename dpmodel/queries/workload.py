"""Which tables a query release speaks of: the workload, and the tables over which x is one table or several."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.marks.domain import Domain

Marginal = tuple[str, ...]


def checked_marginals(domain: Domain, given: Any) -> tuple[Marginal, ...]:
    """The marginals of a workload, each with its columns in the order of the domain.

    Raises
    ------
    SpecificationError
        For columns outside the domain, repeated columns or marginals, empty ones, and things that are not names.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SpecificationError("marginals is not a list", remedy="marginals=[('age', 'sex'), ('age',)]")
    out: dict[Marginal, None] = {}
    for number, each in enumerate(given):
        marginal = marginal_named(domain, each, f"marginals[{number}]")
        if not marginal or marginal in out:
            raise SpecificationError(
                f"marginals[{number}] is {'listed twice' if marginal else 'empty'}", remedy="each set of columns once"
            )
        out[marginal] = None
    return tuple(out)


def marginal_named(domain: Domain, columns: Any, what: str) -> Marginal:
    """The columns in the order of the domain; ``()`` is the total.

    Raises
    ------
    SpecificationError
        For columns outside the domain or repeated, and things that are not names.
    """
    names = (columns,) if isinstance(columns, str) else columns
    if not isinstance(names, Iterable):
        raise SpecificationError(f"{what} is a {type(columns).__name__}", remedy="a tuple of column names")
    names = tuple(names)
    outside = [name for name in names if name not in domain.columns]
    if outside:
        raise SpecificationError(
            f"{what} names {outside[0]!r}, which is not in the domain",
            why="a query is answered over the declared domain; nothing was read and nothing was spent",
            remedy=f"columns among {', '.join(map(repr, domain.columns[:12]))}",
        )
    if len(set(names)) != len(names):
        raise SpecificationError(f"{what} repeats a column")
    return domain.ordered(names)


def counts(domain: Domain, codes: Integers, columns: Sequence[str], marginal: Marginal) -> PrivateArray:
    """(cells,) number of records per cell; ``codes`` (n, len(columns)) of the private table."""
    flat = cell_numbers(domain, codes, columns, marginal)
    return PrivateArray(np.bincount(flat, minlength=domain.size(marginal)).astype(np.float64))


def cell_numbers(domain: Domain, codes: Integers, columns: Sequence[str], marginal: Marginal) -> Integers:
    """(n,) the cell of the marginal that each row of ``codes`` (n, len(columns)) is in."""
    if not marginal:
        return np.zeros(codes.shape[0], dtype=np.int64)
    at = tuple(codes[:, columns.index(c)] for c in marginal)
    return np.asarray(np.ravel_multi_index(at, domain.shape(marginal)), dtype=np.int64)


def sums(domain: Domain, table: Marginal, marginal: Marginal) -> Integers:
    """(cells of ``table``,) the cell of ``marginal`` that each cell of the larger table belongs to."""
    shape, inner = domain.shape(table), domain.shape(marginal)
    total = np.zeros(math.prod(shape), dtype=np.int64).reshape(shape)
    stride = 1
    for column, size in zip(reversed(marginal), reversed(inner), strict=True):
        axis = table.index(column)
        view = [1] * len(shape)
        view[axis] = size
        total += stride * np.arange(size, dtype=np.int64).reshape(view)
        stride *= size
    return total.ravel()


@dataclass(frozen=True)
class Tables:
    """Tables whose cells, one table after the other, make up x.

    ``offset`` : table -> its first entry of x; ``size`` : entries of x. One table over the whole domain, or the tables
    of a workload with every set of columns that two of them share, largest first. ``cells`` : (size, columns) codes of
    the cells of the one table, where x lists a part of them (those that are no structural zeros); None: all of them.
    """

    domain: Domain
    offset: Mapping[Marginal, int]
    size: int
    cells: Integers | None = None

    @staticmethod
    def of(domain: Domain, tables: Iterable[Marginal]) -> Tables:
        offset, start = {}, 0
        for table in tables:
            offset[table] = start
            start += domain.size(table)
        return Tables(domain, offset, start)

    @staticmethod
    def whole(domain: Domain, cells: Integers | None = None) -> Tables:
        if cells is not None:
            return Tables(domain, {domain.columns: 0}, cells.shape[0], cells)
        return Tables.of(domain, [domain.columns])

    @staticmethod
    def local(domain: Domain, marginals: Iterable[Marginal]) -> Tables:
        """The marginals, what any two maximal ones share, and the total ``()``."""
        wanted = {frozenset(m) for m in marginals}
        maximal = [s for s in wanted if not any(s < other for other in wanted)]
        shared: set[frozenset[str]] = {a & b for a, b in itertools.combinations(maximal, 2)} | {frozenset()}
        named = {domain.ordered(s) for s in wanted | shared}
        return Tables.of(domain, sorted(named, key=lambda t: (-len(t), [domain.columns.index(c) for c in t])))

    def span(self, table: Marginal) -> slice:
        start = self.offset[table]
        return slice(start, self.size if self.cells is not None else start + self.domain.size(table))

    def holding(self, marginal: Marginal) -> Marginal | None:
        """The smallest table that has all columns of ``marginal``."""
        fits = [table for table in self.offset if set(marginal) <= set(table)]
        return min(fits, key=self.domain.size, default=None)

    def incidence(self, marginal: Marginal) -> sp.csr_array:
        """(cells of marginal, size) 0/1 matrix: the marginal's cells as sums of x."""
        table = self.holding(marginal)
        assert table is not None
        cell = self._summed(table, marginal)
        column = self.offset[table] + np.arange(cell.size, dtype=np.int64)
        shape = (self.domain.size(marginal), self.size)
        return sp.csr_array((np.ones(cell.size), (cell, column)), shape=shape)

    def _summed(self, table: Marginal, marginal: Marginal) -> Integers:
        """The cell of the marginal that each cell of the table belongs to."""
        if self.cells is None:
            return sums(self.domain, table, marginal)
        return cell_numbers(self.domain, self.cells, self.domain.columns, marginal)

    def _steps_down(self) -> Iterator[tuple[Marginal, Marginal]]:
        """Every table with each largest smaller one among its columns."""
        for table in self.offset:
            smaller = [s for s in self.offset if set(s) < set(table)]
            yield from ((table, s) for s in smaller if not any(set(s) < set(other) for other in smaller))

    def consistency_rows(self) -> int:
        return sum(self.domain.size(inner) for _, inner in self._steps_down())

    def consistency(self) -> sp.csr_array:
        """(rows, size) matrix C: C x = 0 says that every table sums to the next smaller ones among its columns."""
        blocks = []
        for table, inner in self._steps_down():
            cell = sums(self.domain, table, inner)
            k = self.domain.size(inner)
            row = np.r_[cell, np.arange(k)]
            column = np.r_[self.offset[table] + np.arange(cell.size), self.offset[inner] + np.arange(k)]
            value = np.r_[np.ones(cell.size), -np.ones(k)]
            blocks.append(sp.csr_array((value, (row, column)), shape=(k, self.size)))
        return sp.csr_array(sp.vstack(blocks, format="csr")) if blocks else sp.csr_array((0, self.size))

    def table(self, x: Floats, marginal: Marginal) -> Floats:
        """The marginal of x as an array with one axis per column."""
        held = self.holding(marginal)
        assert held is not None
        if self.cells is not None:
            summed = np.bincount(self._summed(held, marginal), weights=x, minlength=self.domain.size(marginal))
            return np.asarray(summed.reshape(self.domain.shape(marginal)))
        full = x[self.span(held)].reshape(self.domain.shape(held))
        return np.asarray(full.sum(axis=tuple(i for i, c in enumerate(held) if c not in marginal)))
