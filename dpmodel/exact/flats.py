"""Flats of rational equations, cut by public rational inequalities: exact coordinates, exact points, exact rows."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import linprog, nnls

from dpmodel._types import Floats, Mask
from dpmodel.errors import SpecificationError
from dpmodel.exact.fields import QQ
from dpmodel.exact.subspaces import Basis, last_first

# ------------------------------------------------------------------
# Rows of integers, exactly: products that never overflow and never round
#
# A row (b, -a) of ``a'x <= b`` times ``(1, x)`` is its slack. All decisions about rows are taken on such products, so
# no tolerance and no rounding can make a row depend on another one.


# (n, D): int64, or Python integers in an object array where they are too large for that.
IntegerRows = npt.NDArray[Any]
Fractions = tuple[Fraction, ...]

_SAFE = 2**62


def slack_rows(A: Any, b: Any, largest: int) -> IntegerRows:
    """(n, d + 1) int64 rows (b, -a).
    Errors: SpecificationError, if some number is no integer or larger than ``largest`` in size."""
    dense = A.toarray() if sp.issparse(A) else np.asarray(A)
    rows = np.hstack([np.asarray(b).reshape(-1, 1), -dense])
    integers = np.rint(rows.astype(np.float64)) if rows.dtype.kind == "f" else rows
    if not ((integers == rows).all() and (np.abs(integers) <= largest).all()):
        raise SpecificationError(
            "the private rows hold numbers that are no integers of the declared size",
            why=f"exact satisfaction is decided over integers of size at most {largest}",
            remedy="scale and round the rows first, or declare the largest size there is",
        )
    return integers.astype(np.int64)


def exact_product(rows: IntegerRows, right: IntegerRows, largest: int) -> IntegerRows:
    """``rows @ right``, exactly: int64 where that cannot overflow, else Python integers.

    ``largest`` : public bound on the entries of ``rows``, so that which of the two it is tells nothing.
    """
    size = largest * int(np.abs(right).max(initial=0)) * max(rows.shape[1], 1)
    if size < _SAFE:
        product: IntegerRows = rows.astype(np.int64) @ right.astype(np.int64)
        return product
    wide: IntegerRows = rows.astype(object) @ right.astype(object)
    return wide


def common_denominator(values: npt.NDArray[Any]) -> tuple[IntegerRows, int]:
    """Python integers and one positive integer L with ``integers / L = values`` (Fractions)."""
    flat = [Fraction(v) for v in values.ravel()]
    scale = lcm(*(v.denominator for v in flat)) if flat else 1
    integers = np.empty(len(flat), dtype=object)
    integers[:] = [v.numerator * (scale // v.denominator) for v in flat]
    return integers.reshape(values.shape), scale


def satisfied(rows: IntegerRows, x: Fractions, largest: int) -> npt.NDArray[np.bool_]:
    """(n,) which rows (b, -a) have ``a'x <= b``, exactly."""
    point = np.empty(len(x) + 1, dtype=object)
    point[:] = [Fraction(1), *x]
    integers, _ = common_denominator(point)
    slack = exact_product(rows, integers[:, None], largest)[:, 0]
    holds: npt.NDArray[np.bool_] = np.asarray(slack >= 0, dtype=bool)
    return holds


def primitive(rows: IntegerRows) -> IntegerRows:
    """Each row divided by the greatest common divisor of its entries: the same line, in small integers."""
    divisor = np.gcd.reduce(rows, axis=1) if rows.size else np.ones(rows.shape[0], dtype=np.int64)
    out: IntegerRows = rows // np.where(divisor == 0, 1, divisor)[:, None]
    if out.dtype == object and int(np.abs(out).max(initial=0)) < _SAFE:
        out = out.astype(np.int64)
    return out


# ------------------------------------------------------------------
# A flat given by rational equations, cut by public rational inequalities: exact coordinates and exact points


FractionRows = npt.NDArray[Any]
_TINY = Fraction(1, 10**120)


@dataclass(frozen=True, eq=False)
class Flat:
    """The points ``x = M (1, z)`` of an affine subspace of Q^d.

    ``frame`` : (d + 1, q + 1) Fractions M, first row (1, 0, .., 0), so that ``(1, x) = M (1, z)``. Some variables are
    the coordinates z themselves: ``free``, their columns in (1, x). ``equations`` : (t, d + 1) Fractions, rows
    (f, -c) of ``c'x = f``.
    """

    frame: FractionRows
    equations: FractionRows
    free: tuple[int, ...]

    @property
    def variables(self) -> int:
        return int(self.frame.shape[0]) - 1

    @property
    def dimension(self) -> int:
        """q: free variables."""
        return int(self.frame.shape[1]) - 1

    @cached_property
    def integer_frame(self) -> tuple[IntegerRows, int]:
        """L M in integers, and L."""
        return common_denominator(self.frame)

    def point(self, z: Fractions) -> Fractions:
        """The point x with coordinates z."""
        return tuple(self.frame[1:] @ _lifted(z))

    def project(self, points: IntegerRows) -> IntegerRows:
        """(n, q) the coordinates of (n, d) points."""
        return points[:, [column - 1 for column in self.free]]

    def holds(self, points: IntegerRows) -> Mask:
        """(n,) which of (n, d) integer points lie in the flat, exactly."""
        return QQ.vanish(np.column_stack([np.ones(len(points), dtype=np.int64), points]), self.equations)


def _lifted(z: Fractions) -> FractionRows:
    """(1, z)."""
    return np.array([Fraction(1), *z], dtype=object)


def fractions(rows: Any) -> FractionRows:
    """The same numbers as Fractions; floats are taken for what they are, binary fractions."""
    array = np.asarray(rows)
    out = np.empty(array.shape, dtype=object)
    flat = out.reshape(-1)
    for i, v in enumerate(array.ravel()):
        flat[i] = Fraction(v) if isinstance(v, (int, Fraction)) else Fraction(v.item())
    return out


def flat_through(lifted: Basis) -> Flat | None:
    """The points x with (x, 1) in a subspace (KMMST24, Algorithm 6, Aff2Lin); None where there is none.

    Lemma 9: ``point`` takes a convex combination of projected points to the same combination of the points, since both
    maps are affine on the flat and inverse to each other.
    """
    first = last_first(lifted)
    if not first.pivots or first.pivots[0] != 0:
        return None
    normals = lifted.null_space().rows
    return Flat(first.rows.T, np.hstack([normals[:, -1:], normals[:, :-1]]), first.pivots[1:])


def flat_of(equations: FractionRows, variables: int) -> Flat | None:
    """The flat of ``f - c'x = 0`` for rows (f, -c), or None where the equations contradict each other."""
    reduced, columns = QQ.rref(QQ.integral(np.hstack([equations[:, 1:], equations[:, :1]])))
    if variables in columns:  # 0 = f
        return None
    rows, pivots = np.hstack([reduced[:, -1:], reduced[:, :-1]]), [j + 1 for j in columns]
    free = [j for j in range(1, variables + 1) if j not in pivots]
    frame = np.full((variables + 1, len(free) + 1), Fraction(0), dtype=object)
    frame[[0, *free], np.arange(len(free) + 1)] = Fraction(1)
    frame[pivots] = -rows[:, [0, *free]]  # -c_j is scaled to 1: x_j = -(f + sum of the free terms)
    return Flat(frame, rows, tuple(free))


@dataclass(frozen=True, eq=False)
class Region:
    """A flat cut by the public rows, none of which is an equality on it: it has relative interior.

    ``rows`` : (k, q + 1) Fractions, ``rows (1, z) >= 0``. ``centre`` : (q,) exact, deep inside, all rows positive.
    """

    flat: Flat
    rows: FractionRows
    centre: Fractions

    @cached_property
    def float_rows(self) -> Floats:
        out: Floats = self.rows.astype(np.float64)
        return out

    @cached_property
    def metric(self) -> Floats:
        """(q, q) upper triangular R with ``|R (z - z')| = |x - x'|``."""
        if self.flat.dimension == 0:
            return np.zeros((0, 0))
        directions = self.flat.frame[1:, 1:].astype(np.float64)
        return np.asarray(np.linalg.qr(directions, mode="r"))

    @cached_property
    def middle(self) -> Floats:
        """(q,) the centre in floats."""
        return np.array([float(v) for v in self.centre])

    @cached_property
    def unit_rows(self) -> Floats:
        """(k, q + 1) the public rows in orthonormal coordinates ``w = R (z - centre)``, of unit normals."""
        normals = self.float_rows[:, 1:] @ np.linalg.inv(self.metric)
        depth = self.float_rows[:, 0] + self.float_rows[:, 1:] @ self.middle
        norms = np.linalg.norm(normals, axis=1)[:, None]
        out: Floats = np.hstack([depth[:, None], normals]) / norms
        return out

    @cached_property
    def radius(self) -> float:
        """How far the region reaches: half the diagonal of its bounding box in x, about. The region must be bounded."""
        frame = self.flat.frame[1:, 1:].astype(np.float64)
        if frame.shape[1] == 0:
            return 0.0
        rows = self.float_rows
        widths = []
        for row in frame:
            ends = [
                linprog(s * row, A_ub=-rows[:, 1:], b_ub=rows[:, 0], bounds=[(None, None)] * row.size, method="highs")
                for s in (1.0, -1.0)
            ]
            widths.append(sum(float(-e.fun) for e in ends))
        return max(float(np.linalg.norm(widths)) / 2, 1e-12)

    def rounded(self, z: Floats, bits: int) -> Fractions:
        """An exact point of the region near ``z``: coordinates with ``bits`` binary places, drawn to the centre as far
        as the public rows need."""
        unit = 2**bits
        near = [Fraction(round(float(v) * unit), unit) for v in z]
        if self._holds(tuple(near)):
            return tuple(near)
        for k in range(40, -1, -1):
            part = Fraction(1, 2**k)
            moved = tuple(v + part * (c - v) for v, c in zip(near, self.centre, strict=True))
            if self._holds(moved):
                return moved
        return self.centre

    def full(self, reduced: FractionRows) -> FractionRows:
        """(k, d + 1) equations in (1, x) for equations in (1, z)."""
        out = np.full((reduced.shape[0], self.flat.variables + 1), Fraction(0), dtype=object)
        out[:, [0, *self.flat.free]] = reduced
        return out

    def _holds(self, z: Fractions) -> bool:
        return bool((self.rows @ _lifted(z) >= 0).all())


def region_of(equations: FractionRows, public: FractionRows, variables: int) -> Region | None:
    """The flat of the equations within ``public (1, x) >= 0``, rows (h, -g); None where that is empty.

    Public rows that can only hold with equality on the flat join its equations, until the rest has an interior point,
    which is found by a linear program in floats and then checked in rationals. None also where the interior is too thin
    for floats (below 1e-9).
    """
    for _ in range(variables + 1):
        flat = flat_of(equations, variables)
        if flat is None:
            return None
        rows = public @ flat.frame if public.size else public.reshape(0, flat.dimension + 1)
        moving = np.array([any(v != 0 for v in row[1:]) for row in rows], dtype=bool)
        if any(row[0] < 0 for row in rows[~moving]):
            return None
        rows = rows[moving]
        if flat.dimension == 0:
            return Region(flat, rows, ())
        if not _fit_floats(flat.frame) or not _fit_floats(rows):
            return None
        found = _depths(rows.astype(np.float64))
        if found is None:
            return None
        z, depth = found
        tight = depth < 1e-9
        if not tight.any():
            unit = 2**40
            centre = tuple(Fraction(round(float(v) * unit), unit) for v in z)
            region = Region(flat, rows, centre)
            return region if region._holds(centre) else None
        equations = np.vstack([equations.reshape(-1, variables + 1), public[moving][tight]])
    return None


def _fit_floats(values: FractionRows) -> bool:
    """Whether all are zero or of a size whose square a float can hold."""
    return all(v == 0 or _TINY < abs(v) < 1 / _TINY for v in values.flat)


def _depths(rows: Floats) -> tuple[Floats, Floats] | None:
    """A point z as deep as possible in all rows, and how deep (at most 1) each row can be at once; None where empty."""
    norms = np.linalg.norm(rows[:, 1:], axis=1)
    unit = rows / norms[:, None]
    k, q = unit.shape[0], unit.shape[1] - 1
    free = [(None, None)] * q
    # The deepest ball first: one number t for all rows.
    ball = linprog(
        np.r_[np.zeros(q), -1.0],
        A_ub=np.hstack([-unit[:, 1:], np.ones((k, 1))]),
        b_ub=unit[:, 0],
        bounds=[*free, (None, None)] if k else None,
        method="highs",
    )
    if k == 0 or ball.status == 3:
        return np.zeros(q), np.ones(k)
    if ball.status != 0 or ball.x[-1] < -1e-9:
        return None
    if ball.x[-1] > 1e-9:
        return np.asarray(ball.x[:-1]), np.full(k, float(ball.x[-1]))
    # No ball: how deep each row alone can be. Those that stay at 0 are equalities; the mean of the points is as deep as
    # can be told in all the others.
    points = []
    for row in unit:
        alone = linprog(-np.r_[row[1:], 0.0][:q], A_ub=-unit[:, 1:], b_ub=unit[:, 0], bounds=free, method="highs")
        if alone.status == 3:  # unbounded: any point where it is at least 1
            alone = linprog(
                np.zeros(q), A_ub=np.vstack([-unit[:, 1:], -row[1:]]), b_ub=np.r_[unit[:, 0], row[0] - 1], bounds=free
            )
        if alone.status != 0:
            return None
        points.append(alone.x)
    z = np.mean(points, axis=0)
    return z, unit[:, 0] + unit[:, 1:] @ z


def nearest(rows: Floats, v: Floats) -> Floats:
    """The nearest point to ``v`` with ``rows (1, w) >= 0`` (unit normals), by least distance programming.

    Lawson and Hanson 1974, chapter 23: with E u >= f, the residual r of min |(E', f') l - e|, l >= 0, gives u. Public
    and released numbers only.
    """
    depth = rows[:, 0] + rows[:, 1:] @ v
    if rows.shape[0] == 0 or depth.min() >= 0:
        return v
    scale = max(float(-depth.min()), 1e-300)
    system = np.vstack([rows[:, 1:].T, -depth[None, :] / scale])
    target = np.zeros(system.shape[0])
    target[-1] = 1.0
    try:
        weights, _ = nnls(system, target)
    except RuntimeError:  # it gave up: the point itself, which callers clip or check
        return v
    residual = system @ weights - target
    if residual[-1] > -1e-14:
        return v
    out: Floats = v - scale * residual[:-1] / residual[-1]
    return out
