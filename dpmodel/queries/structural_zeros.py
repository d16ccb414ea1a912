"""Cells that are zero for a public reason, such as a pregnancy at age three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpmodel._types import Integers, Mask
from dpmodel.errors import SpecificationError
from dpmodel.marks.domain import Domain
from dpmodel.queries.workload import Marginal, Tables

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
            raise SpecificationError(f"structural_zeros of shape {array.shape}", remedy=f"shape {domain.sizes}")
        return array
    if isinstance(given, Mapping):
        given = [given]
    if array is not None or not isinstance(given, list | tuple):
        raise SpecificationError(
            f"structural_zeros is a {type(given).__name__}",
            remedy="a boolean array, or [{'age': 3, 'pregnant': 'yes'}]",
        )
    return [_codes(rule, domain) for rule in given]


def _codes(rule: Any, domain: Domain) -> dict[str, list[int]]:
    if not isinstance(rule, Mapping) or not rule:
        raise SpecificationError(
            f"a structural zero given as {type(rule).__name__}", remedy="{column: value}, such as {'age': 3}"
        )
    out = {}
    for column, values in rule.items():
        if column not in domain.columns:
            raise SpecificationError(f"structural_zeros: {column!r} is not in the domain")
        (listed,) = domain.labels((column,))
        wanted = list(values) if isinstance(values, list | tuple | set | range) else [values]
        absent = [value for value in wanted if value not in listed]
        if absent:
            raise SpecificationError(f"structural_zeros: {column!r} has no value {absent[0]!r}")
        out[column] = [listed.index(value) for value in wanted]
    return out
