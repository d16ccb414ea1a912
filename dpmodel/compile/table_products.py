"""Products of a private table with a variable, kept out of the lowering and put in afterwards.

A table with millions of stored entries takes dozens of passes over as many triples to lower, and a sparse one as many
zeros. In place of ``A @ x`` a vector variable y of its own is lowered, which costs as much as A has rows; then
``y = A x`` is substituted in the standard form. That is exact wherever the product stands in affine constraints: a
coefficient s of y_i in row r becomes the coefficients ``s A_ij`` of x_j, each with its private entry. Everywhere else
the product is lowered as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_map import AffineMap, LinearMap, ThetaBlock, coordinates_of, joined
from dpmodel.compile.affine_reader import pairs
from dpmodel.marks.private import Private

_CONSTRAINTS = (cp.constraints.Inequality, cp.constraints.Equality)


@dataclass(frozen=True)
class Product:
    """``table @ factor``, which ``stand_in`` (a variable) replaces in the problem that is lowered."""

    stand_in: cp.Variable
    table: Private
    factor: cp.Variable


def without_products(problem: cp.Problem) -> tuple[cp.Problem, tuple[Product, ...]]:
    """``problem`` with variables in place of the products of private tables, and these products; none where a table
    stands anywhere else too."""
    tables = {p.id for p in problem.parameters() if _is_table(p)}
    found: list[Product] = []

    def replaced(node: Any) -> Any:
        if isinstance(node, cp.atoms.MulExpression) and isinstance(node.args[0], Private) and node.args[0].id in tables:
            factor = node.args[1]
            if isinstance(factor, cp.Variable) and factor.ndim == 1 and factor.sparse_idx is None:
                found.append(Product(cp.Variable(node.shape), node.args[0], factor))
                return found[-1].stand_in
        args = [replaced(each) for each in node.args]
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.copy(args)

    def of_constraint(constraint: Any) -> Any:
        if type(constraint) not in _CONSTRAINTS or not tables & {p.id for p in constraint.parameters()}:
            return constraint
        if not all(each.is_affine() for each in constraint.args):
            return constraint
        args = [replaced(each) for each in constraint.args]
        same = all(a is b for a, b in zip(args, constraint.args, strict=True))
        return constraint if same else type(constraint)(*args, constr_id=constraint.id)

    constraints = [of_constraint(each) for each in problem.constraints] if tables else []
    if not found:
        return problem, ()
    other = cp.Problem(problem.objective, constraints)
    left, variables = {p.id for p in other.parameters()}, {v.id for v in other.variables()}
    if left & tables or not {each.factor.id for each in found} <= variables:
        return problem, ()
    return other, tuple(found)


def _is_table(parameter: Any) -> bool:
    if not isinstance(parameter, Private) or parameter.ndim != 2:
        return False
    return not any(parameter.attributes[key] for key in ("diag", "symmetric", "PSD", "NSD"))


def substituted(
    affine: AffineMap, products: tuple[Product, ...], first_column: Mapping[int, int], parameters: Sequence[Any]
) -> tuple[AffineMap, Integers]:
    """The standard form with the products in place of their stand-ins, and which of its columns are left.

    ``first_column`` : id of a variable -> its first column. ``parameters`` : all, in the order of theta.
    """
    m, stay = affine.rows, np.ones(affine.variables, dtype=bool)
    for each in products:
        begin = first_column[each.stand_in.id]
        stay[begin : begin + each.stand_in.size] = False
    theta = np.full(affine.theta_size, -1)  # where its entries go
    before = {block.parameter.id: block for block in affine.parameters}
    tables = {each.table.id: ThetaBlock(each.table, 0, each.table.layout.size, True) for each in products}
    known, blocks, offset = before | tables, [], 0
    for parameter in parameters:
        if (block := known.get(parameter.id)) is not None:
            blocks.append(replace(block, offset=offset))
            if parameter.id in before:
                theta[block.columns] = np.arange(offset, offset + block.size)
            offset += block.size
    start = {block.parameter.id: block.offset for block in blocks}
    theta[-1] = offset
    assert (theta >= 0).all()
    kept = np.flatnonzero(stay)
    place = np.cumsum(stay) - 1

    def moved(part: LinearMap, row: Integers, height: int) -> LinearMap:
        return LinearMap.of(row, theta[part.column], part.coefficient, height)

    rows, columns = coordinates_of(affine.public_matrix.row, m)
    left = stay[columns]
    public = moved(affine.public_matrix.select(left), rows[left] + m * place[columns[left]], m * kept.size)
    rows_of, columns_of = coordinates_of(affine.private_matrix.row, m)
    parts = [moved(affine.private_matrix, rows_of + m * place[columns_of], m * kept.size)]
    in_order = {identity: _by_column(block.parameter) for identity, block in tables.items()}
    for each in products:
        begin = first_column[each.stand_in.id]
        inside = (columns >= begin) & (columns < begin + each.stand_in.size)
        size, to_x = affine.public_matrix.coefficient[inside], int(place[first_column[each.factor.id]])
        place_of = rows[inside], columns[inside] - begin
        entries, first = in_order[each.table.id], start[each.table.id]
        parts.append(_composed(*place_of, size, each.table.layout.height, entries, m, to_x, kept.size, first))
    objective = affine.objective
    new = replace(
        affine,
        variables=kept.size,
        theta_size=offset + 1,
        objective=moved(objective, place[objective.row], kept.size),
        offset=moved(affine.offset, affine.offset.row, 1),
        scalar=moved(affine.scalar, affine.scalar.row, m),
        public_matrix=public,
        private_matrix=joined(parts),
        parameters=tuple(blocks),
        column_names=tuple(affine.column_names[j] for j in kept),
        variable_columns={
            identity: int(place[column])
            for identity, column in affine.variable_columns.items()
            if identity not in {each.stand_in.id for each in products}
        },
        boolean=place[affine.boolean],
        integer=place[affine.integer],
    )
    return new, kept


def _composed(
    row: Integers,
    i: Integers,
    size: Floats,
    height: int,
    entries: tuple[Integers, Integers, Integers],
    m: int,
    to_x: int,
    n: int,
    start: int,
) -> LinearMap:
    """Coefficients ``size`` of y_i in these rows, on the ``entries`` of a table of this ``height``, which begin at
    ``start`` in theta."""
    entry, table_row, counts = entries
    to_column = m * (np.arange(counts.size, dtype=np.int64) + to_x)
    if (np.bincount(i, minlength=height) == 1).all():
        order = np.argsort(i, kind="stable")
        row, size, chosen = row[order], size[order], table_row
        position = np.repeat(to_column, counts)
    else:
        here, chosen = pairs(table_row, i)
        entry, position = entry[here], np.repeat(to_column, counts)[here]
    position += row[chosen]
    alike = size.size > 0 and bool((size == size[0]).all())
    coefficient = np.broadcast_to(size[:1], chosen.shape) if alike else size[chosen]
    return LinearMap.of(position, entry.astype(np.int64) + start, coefficient, m * n)


def _by_column(table: Private) -> tuple[Integers, Integers, Integers]:
    """The table's entries column by column, and by row within, the order of the standard form; their rows, and how many
    each column has."""
    layout = table.layout
    if layout.stored is None:
        return np.arange(layout.size), layout.rows, np.full(layout.width, layout.height)
    # A counting sort, for columns are few.
    short = np.int32 if max(layout.size, *table.shape) < 2**31 else np.int64
    places = layout.columns.astype(short), layout.rows.astype(short)
    by_column = sp.csr_array((np.arange(layout.size, dtype=short), places), shape=table.shape[::-1])
    by_column.sort_indices()
    return by_column.data, by_column.indices, np.diff(by_column.indptr)
