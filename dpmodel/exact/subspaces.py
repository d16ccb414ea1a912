"""Subspaces in canonical form: the reduced row echelon form, which depends on the subspace alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dpmodel._types import Array, Mask

# (n, d): int64, or Python integers in an object array where they are too large for that.
ExactRows = npt.NDArray[Any]


@runtime_checkable
class Field(Protocol):
    """A field. Elements: QQ has ``fractions.Fraction``; GF(q) has integers 0 .. q - 1 (see ``GF``).

    Rows over QQ are kept as integer rows: each is the given one times a positive rational, which changes no span.
    """

    @property
    def name(self) -> str: ...
    @property
    def order(self) -> int | None:
        """Number of elements, or None for QQ."""
        ...

    def exact_rows(self, data: Any, *, grid: Any = None, what: str = "vectors", ones: bool = False) -> ExactRows:
        """(n, d) rows of ``data``, exactly, zero rows included; floats only with a ``grid``.

        ``ones`` appends a column of exact ones (before rows are scaled): points u become (u, 1).
        """
        ...

    def elements(self, rows: Any) -> Array:
        """The rows as elements with arithmetic: Fractions in an object array, or int64."""
        ...

    def integral(self, elements: Array) -> ExactRows:
        """Rows of elements as exact rows, each times a positive rational."""
        ...

    def add(self, a: Any, b: Any) -> Array: ...
    def subtract(self, a: Any, b: Any) -> Array: ...
    def matmul(self, a: Any, b: Any) -> Array:
        """(n, m) times (m, k), exactly, both of elements (QQ: or integers)."""
        ...

    def rref(self, rows: ExactRows) -> tuple[Array, tuple[int, ...]]:
        """((r, d) elements, r pivot columns): reduced row echelon form without its zero rows."""
        ...

    def echelon(self, rows: ExactRows) -> Basis:
        """The ``Basis`` (reduced row echelon form) of the span of the rows."""
        ...

    def vanish(self, rows: ExactRows, normals: Array) -> Array:
        """(n,) bool: rows with ``normals @ row == 0`` exactly; ``normals`` (k, d) elements."""
        ...


@dataclass(frozen=True, eq=False)
class Basis:
    """The canonical basis of a subspace (KMMST24, Remark 3): the same for whatever vectors spanned it.

    ``rows`` : (r, d) elements of the field in reduced row echelon form: Fractions in an object array (QQ) or int64
    (GF). ``pivots`` : the r columns with the leading ones, ascending. Works as the array ``rows`` in NumPy.
    """

    field: Field
    rows: Array
    pivots: tuple[int, ...]

    @property
    def dimension(self) -> int:
        """r, the dimension of the subspace."""
        return len(self.pivots)

    @property
    def ambient(self) -> int:
        """d, the number of entries of its vectors."""
        return int(self.rows.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """(r, d)."""
        return self.dimension, self.ambient

    def __len__(self) -> int:
        return self.dimension

    def __iter__(self) -> Iterator[Array]:
        return iter(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.rows, dtype=dtype)

    def contains(self, rows: Any) -> Mask:
        """(n,) exactly which rows lie in the subspace; ``rows`` (n, d) as ``field.exact_rows`` returns them."""
        return self.field.vanish(np.asarray(rows), self._normals())

    def null_space(self) -> Basis:
        """Canonical basis of the (d - r)-dimensional space of x with ``row @ x == 0`` for all rows of the subspace."""
        return self.field.echelon(self.field.integral(self._normals()))

    def project(self, vectors: Array) -> Array:
        """(n, d) the orthogonal projections of the vectors (n, d) on the subspace; Fractions, over QQ alone.

        With the basis as the rows of B these are ``v' B' (B B')^-1 B``; B B' is regular because 0 is the only rational
        vector that is orthogonal to itself.
        """
        r, B = self.dimension, self.rows
        if not r:
            return vectors * 0
        system = np.hstack([B @ B.T, B @ vectors.T])
        reduced, _ = self.field.rref(self.field.integral(system))
        return np.asarray(reduced[:, r:].T @ B)

    def _normals(self) -> Array:
        """(d - r, d) elements: x_free = 1, x_pivots = - the column of the free variable."""
        d, r = self.ambient, self.dimension
        pivots = np.array(self.pivots, dtype=np.intp)
        free = np.setdiff1d(np.arange(d), pivots)
        out = self.field.elements(np.zeros((d - r, d), dtype=np.int64))
        one = self.field.elements(np.ones((1, 1), dtype=np.int64))[0, 0]
        out[np.arange(d - r), free] = one
        if r and d > r:
            block = self.rows[:, free]
            out[:, pivots] = self.field.subtract(self.field.elements(np.zeros(block.shape, dtype=np.int64)), block).T
        return out

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Basis):
            return NotImplemented
        return (
            self.field == other.field
            and self.pivots == other.pivots
            and self.rows.shape == other.rows.shape
            and bool((self.rows == other.rows).all())
        )

    def __hash__(self) -> int:
        return hash((self.field, self.pivots, self.rows.shape, tuple(self.rows.ravel().tolist())))

    def to_dict(self) -> dict[str, Any]:
        """Plain data: Fractions as strings, elements of GF(q) as integers."""
        shown = [[x if isinstance(x, int) else show(x) for x in row] for row in self.rows.tolist()]
        return {"field": self.field.name, "ambient": self.ambient, "pivots": list(self.pivots), "rows": shown}

    def __str__(self) -> str:
        head = f"subspace of {self.field.name}^{self.ambient} of dimension {self.dimension}"
        if self.dimension == 0:
            return head
        most = 12
        cells = [[show(x) for x in row[:most]] for row in self.rows[:most]]
        widths = [max(len(row[j]) for row in cells) for j in range(len(cells[0]))]
        tail = "  ..." if self.ambient > most else ""
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) + tail for row in cells]
        if self.dimension > most:
            lines.append(f"... {self.dimension - most} more rows")
        return "\n".join([head, *lines])

    def __repr__(self) -> str:
        return f"Basis({self.field.name}, dimension {self.dimension} of {self.ambient})"


def show(value: Any) -> str:
    """A Fraction or integer in decimal digits, which Python alone would refuse for more than 4300 of them."""
    import flint

    return str(flint.fmpq(int(value.numerator), int(value.denominator)))


def spanning_basis(field: Field, rows: Array, hint: Field | None = None) -> Basis:
    """Canonical basis of the span of many rows: the echelon form of few of them that span all the others.

    ``hint`` : a finite field with a homomorphism from the integers, for QQ; what is independent there is independent.
    Rows that it misses are found by the exact check, and added.
    """
    d = rows.shape[1]
    basis = Basis(field, field.elements(np.zeros((0, d), dtype=np.int64)), ())
    left = rows[(rows != 0).any(axis=1)] if len(rows) else rows
    while len(left) and basis.dimension < d:
        chosen = _independent(field, left) if hint is None else _independent(hint, hint.exact_rows(left))
        if not len(chosen):
            chosen = np.arange(1)  # every row is zero in the hint
        reduced, pivots = field.rref(np.vstack([field.integral(basis.rows), left[chosen]]))
        basis = Basis(field, reduced, pivots)
        left = left[~basis.contains(left)] if hint is not None and basis.dimension < d else left[:0]
    return basis


def _independent(field: Field, rows: Array) -> npt.NDArray[np.intp]:
    """Indices of rows that are a basis of the span of all of them, over a finite field."""
    d = rows.shape[1]
    chosen = np.zeros(0, dtype=np.intp)
    left = np.flatnonzero((rows != 0).any(axis=1))
    while len(left) and len(chosen) < d:
        batch = np.concatenate([chosen, left[: 2 * d]])
        _, pivots = field.rref(np.ascontiguousarray(rows[batch].T))  # independent columns, the first ones first
        chosen = batch[list(pivots)]
        left = left[2 * d :]
        if len(left) and len(chosen) < d:
            basis = Basis(field, *field.rref(rows[chosen]))
            left = left[~basis.contains(rows[left])]
    return chosen


def solve(field: Field, C: Array, d: Array) -> Array | None:
    """(k,) elements x with ``C x = d``, free variables zero, or None; C (m, k) and d (m,) elements."""
    k = C.shape[1]
    basis = field.echelon(field.integral(np.hstack([C, d[:, None]])))
    if k in basis.pivots:
        return None
    x: Array = field.elements(np.zeros((1, k), dtype=np.int64))[0]
    if basis.dimension:
        x[list(basis.pivots)] = basis.rows[:, k]
    return x


def last_first(basis: Basis) -> Basis:
    """The same subspace with the last coordinate moved to the front: if some (x, 1) is in it, the first row of the
    echelon form is (1, point) and the others are (0, direction)."""
    return basis.field.echelon(basis.field.integral(np.hstack([basis.rows[:, -1:], basis.rows[:, :-1]])))
