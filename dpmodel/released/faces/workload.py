"""The tables that a query release or a consistent table speaks of, and their structural zeros."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask, PrivateArray
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
        As `column_names`.
    """
    return domain.ordered(column_names(domain, columns, what))


def column_names(
    domain: Domain,
    columns: Any,
    what: str,
    place: str = "the domain",
    why: str = "a query is answered over the declared domain; nothing was read and nothing was spent",
) -> Marginal:
    """``columns`` as they are, checked against ``domain``, which messages call ``place``.

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
            f"{what} names {outside[0]!r}, which is not in {place}",
            why=why,
            remedy=f"columns among {', '.join(map(repr, domain.columns[:12]))}",
        )
    if len(set(names)) != len(names):
        raise SpecificationError(
            f"{what} repeats a column", why="a marginal has one axis for each column", remedy="each column once"
        )
    return names


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


# ------------------------------------------------------------------ structural zeros


# Combinations of values that are held at once while allowed cells are listed.
_LOOKED_AT = 4_000_000


def zero_cells(given: Any, tables: Tables, over: str) -> Mask:
    """(n,) which entries of x are structural zeros.

    ``given`` : None, a boolean array of the domain's shape (or flat), or a list of {column: value or values}. Over the
    marginals a rule acts on every table that has all of its columns. None is left where x lists the other cells only.

    Raises
    ------
    SpecificationError
        For masks of another shape, masks over marginals, unknown columns and values, and rules that reach no table.
    """
    out = np.zeros(tables.size, dtype=bool)
    if given is None or tables.cells is not None:
        return out
    domain = tables.domain
    rules = _rules(given, domain)
    if isinstance(rules, np.ndarray):
        if over != "domain":
            raise SpecificationError(
                "a mask of structural zeros over marginals",
                why="it concerns the cells of the whole domain, which has no table here",
                remedy="rules such as {'age': 3, 'pregnant': 'yes'}",
            )
        return rules.ravel().copy()
    for codes in rules:
        held = [table for table in tables.offset if set(codes) <= set(table)]
        if not held:
            raise SpecificationError(
                f"structural zeros of {', '.join(codes)}: no fitted table has these columns together",
                remedy="over='domain', or a measured marginal with them",
            )
        for table in held:
            cells = np.zeros(domain.shape(table), dtype=bool)
            cells[np.ix_(*(codes.get(c, range(n)) for c, n in zip(table, domain.shape(table), strict=True)))] = True
            out[tables.span(table)] |= cells.ravel()
    return out


def allowed_cells(given: Any, domain: Domain, most: int) -> Integers | None:
    """(k, columns) codes of the cells that are no structural zeros, in the order of the flat table; None where more
    than ``most`` are left, or where finding out takes more than ``_LOOKED_AT`` at once.

    Column after column is joined to the combinations that the rules allow so far, so the whole table is never formed.
    """
    rules = [] if given is None else _rules(given, domain)
    if isinstance(rules, np.ndarray):
        left = np.flatnonzero(~rules.ravel())
        return np.stack(np.unravel_index(left, domain.sizes), axis=1) if left.size <= most else None
    ruled_out: dict[Marginal, Mask] = {}
    for rule in rules:
        columns = domain.ordered(rule)
        if domain.size(columns) > _LOOKED_AT:
            return None
        cells = ruled_out.setdefault(columns, np.zeros(domain.shape(columns), dtype=bool))
        cells[np.ix_(*(rule[c] for c in columns))] = True
    codes: dict[str, Integers] = {}
    count = 1
    while len(codes) < len(domain.columns):
        column = _next(domain, codes, ruled_out)
        size = domain.size((column,))
        if count * size > _LOOKED_AT:
            return None
        codes = {c: np.repeat(code, size) for c, code in codes.items()} | {column: np.tile(np.arange(size), count)}
        for columns, cells in ruled_out.items():
            if column in columns and set(columns) <= set(codes):
                kept = ~cells[tuple(codes[c] for c in columns)]
                codes = {c: code[kept] for c, code in codes.items()}
        count = codes[column].size
    if count > most:
        return None
    out = np.stack([codes[c] for c in domain.columns], axis=1)
    return out[np.lexsort(out.T[::-1])]


def _next(domain: Domain, placed: Mapping[str, Integers], ruled_out: Mapping[Marginal, Mask]) -> str:
    """The column to join: one that lets a rule be applied, else the smallest one that rules speak of, else any."""

    def rank(column: str) -> tuple[bool, bool, int]:
        speak = [set(columns) - set(placed) for columns in ruled_out if column in columns]
        return {column} not in speak, not speak, domain.size((column,))

    return min((c for c in domain.columns if c not in placed), key=rank)


def _rules(given: Any, domain: Domain) -> Mask | list[dict[str, list[int]]]:
    """A mask of the domain's shape, or the codes that each rule speaks of."""
    array = given if isinstance(given, np.ndarray) else None
    if array is not None and array.dtype == bool:
        if array.shape not in (domain.sizes, (domain.cells,)):
            raise SpecificationError(
                f"structural_zeros of shape {array.shape}",
                why="a mask says of every cell of the domain whether it is zero",
                remedy=f"shape {domain.sizes}, or {domain.cells} in a row",
            )
        return array
    if isinstance(given, Mapping):
        given = [given]
    if array is not None or not isinstance(given, list | tuple):
        raise SpecificationError(
            f"structural_zeros is a {type(given).__name__}",
            remedy="a boolean array, or [{'age': 3, 'pregnant': 'yes'}]",
        )
    return [_codes(rule, domain) for rule in given]


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(repr, values[:12])) + (", ..." if len(values) > 12 else "")


def _codes(rule: Any, domain: Domain) -> dict[str, list[int]]:
    if not isinstance(rule, Mapping) or not rule:
        raise SpecificationError(
            f"a structural zero given as {type(rule).__name__}", remedy="{column: value}, such as {'age': 3}"
        )
    out = {}
    for column, values in rule.items():
        if column not in domain.columns:
            raise SpecificationError(
                f"structural_zeros: {column!r} is not in the domain",
                why="cells are told by the columns of the domain",
                remedy=f"columns among {', '.join(map(repr, domain.columns[:12]))}",
            )
        (listed,) = domain.labels((column,))
        wanted = list(values) if isinstance(values, list | tuple | set | range) else [values]
        absent = [value for value in wanted if value not in listed]
        if absent:
            raise SpecificationError(
                f"structural_zeros: {column!r} has no value {absent[0]!r}",
                why="cells are told by the values that the domain lists",
                remedy=f"{_listed(listed)}, or a domain that has it",
            )
        out[column] = [listed.index(value) for value in wanted]
    return out
