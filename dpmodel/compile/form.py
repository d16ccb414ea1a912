"""The public part of a standard form: constants with the public parameters filled in, private maps beside them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.compile.affine_map import AffineMap, LinearMap, by_columns, coordinates_of
from dpmodel.errors import MissingValueError, SpecificationError
from dpmodel.marks import vault
from dpmodel.marks.layout import alike, all_equal, each, free_entries, same_for_all, sum_by
from dpmodel.marks.private import Private


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

    def sums_over_rows(self, cap: Floats, size: Floats) -> Floats:
        """(m,) sums of ``cap_ij size_j`` over the private entries of every row, zeros of ``cap`` left out;
        ``cap`` in the order of ``matrix_positions``, ``size`` (n,)."""
        rows, columns = self.matrix_positions()
        with np.errstate(invalid="ignore"):
            if same_for_all(cap) and cap.size > 1:
                return self.sums_by_column(cap[0] * size if cap[0] > 0 else np.zeros(size.size))
            product = np.where(cap > 0, cap * size[columns], 0.0)
        return sum_by(rows, weights=product, minlength=self.affine.rows)

    def sums_by_column(self, numbers: Floats) -> Floats:
        """(m,) sums of ``numbers`` (n,), one for every column, over the private entries of every row."""
        out = np.zeros(self.affine.rows)
        if not numbers.any():
            return out
        if all_equal(numbers):  # no product with rows that have none: it may be infinite
            np.multiply(numbers[0], self.entries_of_rows, out=out, where=self.entries_of_rows > 0)
            return out
        rows, columns = self.matrix_positions()
        return sum_by(rows, weights=numbers[columns], minlength=self.affine.rows)

    @cached_property
    def entries_of_rows(self) -> Integers:
        """(m,) private entries of A in every row."""
        return np.bincount(self.matrix_positions()[0], minlength=self.affine.rows)

    @cached_property
    def found(self) -> dict[Hashable, Any]:
        """Public facts of this form that are found once."""
        return {}

    @cached_property
    def cost_range(self) -> tuple[Floats, Floats]:
        """(n,), (n,): public range of what private numbers add to c."""
        return value_range(self.affine, self.objective)

    @cached_property
    def side_range(self) -> tuple[Floats, Floats]:
        """(m,), (m,): public range of what private numbers add to b."""
        return value_range(self.affine, self.scalar)

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
        return total_c, total_b, self.A0 + by_columns(entries, rows, columns, shape)

    def matrix_positions(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column of every private entry of A, in increasing order of ``row + m * column``."""
        if self.matrix.positions is self.matrix.row:  # in order, one coefficient each
            return self.matrix_coordinates()
        return coordinates_of(self.matrix.positions, self.affine.rows)

    def matrix_coordinates(self) -> tuple[Integers, Integers]:
        """Row and column of A of every private coefficient, in the order of ``matrix``."""
        return self.affine.private_coordinates


def public_theta(affine: AffineMap) -> Floats:
    """(P,) theta with the public parameters' values, the final 1, and 0 at private entries.
    Errors: MissingValueError, SpecificationError, for a public parameter without a value, or with NaN or infinite
    entries."""
    theta = np.zeros(affine.theta_size)
    theta[-1] = 1.0
    for block in affine.parameters:
        if not block.private:
            theta[block.columns] = _public_entries(block.parameter)
    return theta


def public_values(parameters: Iterable[Any]) -> bytes:
    """The values of the public ones among ``parameters``, to notice that one changed. Errors as ``public_theta``."""
    return b"".join(_public_entries(each).tobytes() for each in parameters if not isinstance(each, Private))


def public_key(problem: Any) -> bytes | None:
    """``public_values`` of a problem, None where one has none yet. Losses and penalties hold such numbers, so that what
    is recognised depends on them; where one is missing and matters, that is refused later."""
    public = [each for each in problem.parameters() if not isinstance(each, Private)]
    return None if any(each.value is None for each in public) else public_values(public)


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


def private_entries(parameter: Any) -> PrivateArray:
    """The entries of one private parameter. For a mechanism's ``run`` only."""
    require_private_values([parameter])
    return PrivateArray(np.asarray(vault.unseal(parameter)))


def standard_form(affine: AffineMap) -> StandardForm:
    """Fill in the public parameters and separate the private maps."""
    theta = public_theta(affine)  # 0 at private entries
    n, m = affine.variables, affine.rows
    matrix = affine.public_matrix
    data = matrix.coefficient * theta[matrix.column]
    shape = (m, n)
    public = by_columns(data, *coordinates_of(matrix.row, m), shape)
    if not matrix.single:
        public.sum_duplicates()
    return StandardForm(
        affine=affine,
        c0=affine.objective.apply(theta),
        d0=float(affine.offset.apply(theta).sum()),
        b0=affine.scalar.apply(theta),
        A0=public,
        **affine.private_parts,
        matrix=affine.private_matrix,
    )


def value_range(affine: AffineMap, part: LinearMap) -> tuple[Floats, Floats]:
    """(height,), (height,): public range of linear functions, from the declared ranges of the private entries."""
    low, high = _terms(affine, part)
    if part.height != part.nnz or not np.array_equal(part.row, np.arange(part.height)):
        low, high = (sum_by(part.row, weights=end, minlength=part.height) for end in (low, high))
    return widened(low, high)


def ranges_in_order(affine: AffineMap, part: LinearMap) -> tuple[Floats, Floats]:
    """The same of the rows that have a coefficient, in increasing order; without memory where all are the same."""
    return widened(*_terms(affine, part)) if part.single else value_range(affine, part.compact())


def widened(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Sums of many bounds are rounded; widened so that the true value always lies inside."""
    return each(lambda end: end - 1e-12 * np.abs(end), low), each(lambda end: end + 1e-12 * np.abs(end), high)


def _terms(affine: AffineMap, part: LinearMap) -> tuple[Floats, Floats]:
    """Least and largest values of every coefficient times its entry of theta."""
    ends = [each(np.multiply, part.coefficient, end) for end in entry_ends(affine, part)]
    return each(np.minimum, *ends), each(np.maximum, *ends)


def entry_ends(affine: AffineMap, part: LinearMap) -> tuple[Floats, Floats]:
    """Least and largest values of these entries of theta."""
    if not part.nnz:
        return np.zeros(0), np.zeros(0)
    if len(affine.private_blocks) == 1 and part.within(affine.private_blocks[0]):
        low, high = affine.private_blocks[0].parameter.entry_range
        if same_for_all(low) and same_for_all(high):
            return alike(low[:1], part.nnz), alike(high[:1], part.nnz)
    low, high = np.full(affine.theta_size, -np.inf), np.full(affine.theta_size, np.inf)
    for block in affine.private_blocks:
        low[block.columns], high[block.columns] = block.parameter.entry_range
    return low[part.column], high[part.column]
