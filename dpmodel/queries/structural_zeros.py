"""Cells that are zero for a public reason, such as a pregnancy at age three."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dpmodel.errors import SpecificationError
from dpmodel.queries.domain import Domain
from dpmodel.queries.workload import Tables

Mask = npt.NDArray[np.bool_]


def zero_cells(given: Any, tables: Tables, over: str) -> Mask:
    """(n,) which entries of x are structural zeros.

    ``given`` : None, a boolean array of the domain's shape (or flat), or a list of {column: value or values}. Over the
    marginals a rule acts on every table that has all of its columns.

    Raises
    ------
    SpecificationError
        For masks of another shape, masks over marginals, unknown columns and values, and rules that reach no table.
    """
    out = np.zeros(tables.size, dtype=bool)
    if given is None:
        return out
    domain = tables.domain
    array = given if isinstance(given, np.ndarray) else None
    if array is not None and array.dtype == bool:
        if over != "domain":
            raise SpecificationError(
                "a mask of structural zeros over marginals",
                why="it concerns the cells of the whole domain, which has no table here",
                remedy="rules such as {'age': 3, 'pregnant': 'yes'}",
            )
        if array.shape not in (domain.sizes, (domain.cells,)):
            raise SpecificationError(f"structural_zeros of shape {array.shape}", remedy=f"shape {domain.sizes}")
        return array.ravel().copy()
    if isinstance(given, Mapping):
        given = [given]
    if array is not None or not isinstance(given, list | tuple):
        raise SpecificationError(
            f"structural_zeros is a {type(given).__name__}",
            remedy="a boolean array, or [{'age': 3, 'pregnant': 'yes'}]",
        )
    for rule in given:
        codes = _codes(rule, domain)
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


def _codes(rule: Any, domain: Domain) -> dict[str, list[int]]:
    if not isinstance(rule, Mapping) or not rule:
        raise SpecificationError(
            f"a structural zero given as {type(rule).__name__}", remedy="{column: value}, such as {'age': 3}"
        )
    out = {}
    for column, values in rule.items():
        if column not in domain.columns:
            raise SpecificationError(f"structural_zeros: {column!r} is not in the domain")
        at = domain.columns.index(column)
        listed = domain.categories[at] or tuple(range(domain.sizes[at]))
        wanted = list(values) if isinstance(values, list | tuple | set | range) else [values]
        absent = [value for value in wanted if value not in listed]
        if absent:
            raise SpecificationError(f"structural_zeros: {column!r} has no value {absent[0]!r}")
        out[column] = [listed.index(value) for value in wanted]
    return out
