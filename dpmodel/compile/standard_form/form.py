"""The public part of a standard form: constants with the public parameters filled in, private maps beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.annotate import vault
from dpmodel.annotate.layout import free_entries
from dpmodel.annotate.per_entry import same_for_all
from dpmodel.annotate.private import Private
from dpmodel.compile.standard_form.affine_map import AffineMap, LinearMap, coordinates_of, sum_by
from dpmodel.errors import MissingValueError, SpecificationError


@dataclass(frozen=True)
class StandardForm:
    """Minimise ``c'x + d`` subject to ``b - A x`` in K, as public constants plus linear maps of private theta.

    ``c0`` (n,), ``d0``, ``b0`` (m,), ``A0`` (m x n, CSR): public constants. ``objective``, ``offset``, ``scalar``,
    ``matrix``: the private coefficients of ``affine``'s maps. ``private_rows`` (m,): rows whose b or A
    entries depend on private parameters.
    """

    affine: AffineMap
    c0: Floats
    d0: float
    b0: Floats
    A0: sp.csr_array
    objective: LinearMap
    offset: LinearMap
    scalar: LinearMap
    matrix: LinearMap

    @cached_property
    def private_rows(self) -> np.ndarray:
        mask = np.zeros(self.affine.rows, dtype=bool)
        mask[self.scalar.row] = True
        if self.matrix.nnz:
            mask[self.matrix_coordinates()[0]] = True
        mask.setflags(write=False)  # handed out again and again
        return mask

    def private_part(self, name: str) -> LinearMap:
        part: LinearMap = getattr(self, name)
        return part

    def with_noise(
        self, c: Floats | None, b: Floats | None, entries: Floats | None
    ) -> tuple[Floats, Floats, sp.csr_array]:
        """(c, b, A) with released private parts added to the public constants.

        ``c`` : (n,), ``b`` : (m,) or None; ``entries`` : values of the private A entries, in the order of
        ``matrix_positions``.
        """
        total_c = self.c0 if c is None else self.c0 + c
        total_b = self.b0 if b is None else self.b0 + b
        if entries is None:
            return total_c, total_b, self.A0
        rows, columns = self.matrix_positions()
        shape = (self.affine.rows, self.affine.variables)
        return total_c, total_b, self.A0 + sp.csr_array((entries, (rows, columns)), shape=shape)

    def matrix_positions(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of every private entry of A, in increasing order of ``row + m * column``."""
        if self.matrix.positions is self.matrix.row:  # in order, one coefficient each
            return self.matrix_coordinates()
        return coordinates_of(self.matrix.positions, self.affine.rows)

    def matrix_coordinates(self) -> tuple[Integers, Integers]:
        """Row and column of A of every private coefficient, in the order of ``matrix``."""
        return self._coordinates

    @cached_property
    def _coordinates(self) -> tuple[Integers, Integers]:
        row, column = coordinates_of(self.matrix.row, self.affine.rows)
        if max(self.affine.rows, self.affine.variables) < 2**31:  # what scipy's matrices have, in half the memory
            row, column = row.astype(np.int32), column.astype(np.int32)
        row.setflags(write=False)
        column.setflags(write=False)
        return row, column


def public_theta(affine: AffineMap) -> Floats:
    """(P,) theta with the public parameters' values, the final 1, and 0 at private entries.

    Raises
    ------
    MissingValueError, SpecificationError
        For a public parameter without a value, or with NaN or infinite entries.
    """
    theta = np.zeros(affine.theta_size)
    theta[-1] = 1.0
    for block in affine.parameters:
        if not block.private:
            theta[block.columns] = _public_entries(block.parameter)
    return theta


def public_values(parameters: Iterable[Any]) -> bytes:
    """The values of the public ones among ``parameters``, to notice that one changed. Errors as ``public_theta``."""
    return b"".join(_public_entries(each).tobytes() for each in parameters if not isinstance(each, Private))


def _public_entries(parameter: Any) -> Floats:
    value = parameter.value_sparse if parameter.sparse_idx is not None else parameter.value
    if value is None:
        raise MissingValueError(
            f"public parameter {parameter.name()} has no value",
            why="plans and solutions need every public number",
            remedy=f"{parameter.name()}.value = ... before planning",
        )
    entries = free_entries(parameter, value if parameter.sparse_idx is not None else np.asarray(value, dtype=float))
    if not np.isfinite(entries).all():
        raise SpecificationError(
            f"public parameter {parameter.name()} has NaN or infinite entries", remedy="finite numbers"
        )
    return entries


def require_private_values(parameters: Iterable[Any]) -> None:
    """Raise MissingValueError unless every private parameter was given a value."""
    missing = [parameter.name() for parameter in parameters if not parameter.has_value]
    if missing:
        raise MissingValueError(
            f"private parameter{'s' if len(missing) > 1 else ''} {', '.join(missing)} without a value",
            why="planning needs none, solving does",
            remedy=f"{missing[0]}.value = ... (it is checked, copied and sealed)",
        )


def private_theta(affine: AffineMap) -> PrivateArray:
    """(P,) theta with the private parameters' values, 0 elsewhere. For a mechanism's ``run`` only."""
    theta = np.zeros(affine.theta_size)
    for block in affine.private_blocks:
        entries = vault.unseal(block.parameter)
        if entries is None:
            require_private_values(block.parameter for block in affine.private_blocks)
        else:
            # A parameter that hides the positions of its entries is kept sparse; here it takes its full size.
            theta[block.columns] = entries.toarray().ravel(order="F") if sp.issparse(entries) else entries
    return PrivateArray(theta)


def standard_form(affine: AffineMap) -> StandardForm:
    """Fill in the public parameters and separate the private maps."""
    theta = public_theta(affine)
    private = affine.private_columns
    n, m = affine.variables, affine.rows

    def split(part: LinearMap) -> tuple[LinearMap, LinearMap]:
        mask = private[part.column]
        if not mask.any():
            return part, LinearMap.of([], [], [], part.height)
        return part.select(~mask), part.select(mask)

    objective, private_objective = split(affine.objective)
    offset, private_offset = split(affine.offset)
    scalar, private_scalar = split(affine.scalar)
    matrix = affine.public_matrix
    data = matrix.coefficient * theta[matrix.column]
    shape = (m, n)
    public = sp.csr_array((data, coordinates_of(matrix.row, m)), shape=shape)
    return StandardForm(
        affine=affine,
        c0=objective.apply(theta),
        d0=float(offset.apply(theta).sum()),
        b0=scalar.apply(theta),
        A0=public,
        objective=private_objective,
        offset=private_offset,
        scalar=private_scalar,
        matrix=affine.private_matrix,
    )


def value_range(affine: AffineMap, part: LinearMap) -> tuple[Floats, Floats]:
    """(height,), (height,): public range of linear functions, from the declared ranges of the private entries."""
    low, high = _ends(affine, part.column)
    a = part.coefficient * low
    b = part.coefficient * high
    lower, upper = np.minimum(a, b), np.maximum(a, b)
    if part.height != part.nnz or not np.array_equal(part.row, np.arange(part.height)):
        lower = sum_by(part.row, weights=lower, minlength=part.height)
        upper = sum_by(part.row, weights=upper, minlength=part.height)
    # Sums of many bounds are rounded; widened so that the true value always lies inside.
    return lower - 1e-12 * np.abs(lower), upper + 1e-12 * np.abs(upper)


def _ends(affine: AffineMap, columns: Integers) -> tuple[Floats, Floats]:
    """Least and largest values of these entries of theta; single numbers where all have the same."""
    if columns.size and len(affine.private_blocks) == 1:
        block = affine.private_blocks[0]
        low, high = block.parameter.entry_range
        inside = block.offset <= int(columns.min()) and int(columns.max()) < block.offset + block.size
        if inside and same_for_all(low) and same_for_all(high):
            return low[0], high[0]
    low, high = np.full(affine.theta_size, -np.inf), np.full(affine.theta_size, np.inf)
    for block in affine.private_blocks:
        low[block.columns], high[block.columns] = block.parameter.entry_range
    return low[columns], high[columns]
