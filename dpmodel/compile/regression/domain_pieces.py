"""What one public constraint says about the coefficients: bounds, a norm ball around zero, or linear rows.

The atoms of the tree say which form may be claimed, its numbers are read off its values, and the claim holds only if
the expression agrees with it at synthetic points of many sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.regression.public_twin import Twin
from dpmodel.privacy import public_generator

_AGREE = 1e-9


@dataclass(frozen=True)
class Bounds:
    """``lower <= w[where] <= upper``, (k,) each."""

    where: Integers
    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class Ball:
    """``||w[where]||_order <= radius`` (order 1 or 2)."""

    order: float
    where: Integers
    radius: float


@dataclass(frozen=True)
class Rows:
    """``A w <= b`` (``= b`` with ``equality``); A (m, p) CSR, b (m,), every row with two entries or more."""

    A: sp.csr_array
    b: Floats
    equality: bool


Piece = Bounds | Ball | Rows


def read_constraint(constraint: Any, twin: Twin) -> list[Piece] | None:
    """What a constraint of the twin says about w, exactly; None where it is none of the forms above.

    ``twin`` must be plain, and the constraint must use no variable outside the coefficients.
    """
    expression, equality = _normal(constraint)
    if expression is None or not {v.id for v in expression.variables()} <= twin.coefficient_ids:
        return None
    if expression.is_affine():
        read = twin.affine(expression)
        return None if read is None else _split_rows(read[0], -read[1], equality)
    return None if equality else _read_curved(expression, twin)


def _normal(constraint: Any) -> tuple[Any, bool]:
    """(f, False) for ``f <= 0``, (f, True) for ``f = 0``, (None, False) for cones of other kinds."""
    args = constraint.args
    if isinstance(constraint, type(cp.Variable() <= 0)):
        return args[0] - args[1], False
    if isinstance(constraint, type(cp.Variable() == 0)):
        return args[0] - args[1], True
    if isinstance(constraint, cp.NonNeg):
        return -args[0], False
    if isinstance(constraint, cp.NonPos):
        return args[0], False
    if isinstance(constraint, cp.Zero):
        return args[0], True
    if isinstance(constraint, cp.SOC) and args[0].size == 1:
        return cp.norm(cp.vec(args[1], order="F"), 2) - cp.sum(args[0]), False
    return None, False


# ------------------------------------------------------------------ linear rows
def _split_rows(A: sp.csr_array, b: Floats, equality: bool) -> list[Piece] | None:
    """Rows with one entry become bounds; rows that always hold go."""
    count = np.diff(A.indptr)
    held = (count == 0) & ((b == 0) if equality else (b >= 0)) | ((b == np.inf) & (not equality))
    if ((count == 0) & ~held).any() or np.isnan(b).any():
        return None  # 0 <= -1: the solver will find the set empty
    out: list[Piece] = []
    single = np.flatnonzero((count == 1) & ~held)
    if single.size:
        where, derivative = A.indices[A.indptr[single]].astype(np.int64), A.data[A.indptr[single]]
        value = b[single] / derivative
        lower = np.where((derivative < 0) | equality, value, -np.inf)
        upper = np.where((derivative > 0) | equality, value, np.inf)
        out.append(Bounds(where, lower, upper))
    many = np.flatnonzero((count > 1) & ~held)
    if many.size:
        out.append(Rows(sp.csr_array(A[many]), b[many], equality))
    return out


# ------------------------------------------------------------------ balls
def _read_curved(expression: Any, twin: Twin) -> list[Piece] | None:
    leaves, atoms = _curved_parts(expression)
    maps = [read[0] for leaf in leaves if (read := twin.affine(leaf)) is not None]
    if expression.size == 1:
        where = np.unique(np.concatenate([A.indices for A in maps])).astype(np.int64)
        groups = where[None, :]
        # A norm treats coefficients alike, so each stands in as many places as the others. This catches what points
        # may miss: maximum(norm1(w), 3 * w[0]) is a 1-norm but near one of many axes.
        places = np.bincount(np.concatenate([A.indices for A in maps]), minlength=twin.w.size)[where]
        if (places != places[0]).any():
            return None
    else:
        # Entry k of the expression must depend on one coefficient alone.
        if any(A.shape[0] != expression.size or (np.diff(A.indptr) > 1).any() for A in maps):
            return None
        total = sp.csr_array(sum(abs(A) for A in maps))
        if (np.diff(total.indptr) != 1).any() or np.unique(total.indices).size != total.indices.size:
            return None
        groups = total.indices.astype(np.int64)[:, None]

    def f(w: Floats) -> Floats:
        twin.assign(w)
        return np.asarray(expression.value, dtype=np.float64).ravel(order="F")

    # With a single coefficient all norms are its absolute value.
    orders = (1.0, 2.0, np.inf) if groups.shape[1] > 1 else (np.inf,)
    for order in orders:
        if order != 2 and any((np.diff(A.indptr) > 1).any() for A in maps):
            continue  # sums inside an absolute value
        if not (atoms <= _atoms_of(order) or (groups.shape[1] == 1 and atoms <= _all_atoms())):
            continue
        radii = _radii(f, groups, order, twin.w.size)
        if radii is not None:
            if np.isinf(order):
                where = groups.ravel()
                sides = np.repeat(radii, groups.shape[1])
                return [Bounds(where, -sides, sides)]
            return [Ball(order, groups[0], float(radii[0]))]
    return None


def _radii(f: Callable[[Floats], Floats], groups: Integers, order: float, size: int) -> Floats | None:
    """(m,) the radii c_k when ``f_k(w) = a_k ||w[groups_k]||^n - a_k c_k^n`` with n = 1, 2, 3 or 4; else None."""
    origin = f(np.zeros(size))
    if not np.isfinite(origin).all() or (origin > 0).any():
        return None
    first, scale = groups[:, 0], 1.0
    w = np.zeros(size)
    for _ in range(3):
        # Powers of two near the radius, where a value less the value at zero loses nothing.
        w[first] = scale
        once = f(w) - origin
        w[first] = 2 * scale
        twice = f(w) - origin
        if not (np.isfinite(once) & np.isfinite(twice) & (once > 0)).all():
            return None
        powers = np.rint(np.log2(twice / once))
        power = float(powers[0])
        if (powers != power).any() or not 1 <= power <= 4:
            return None
        a = once / scale**power
        radii = (-origin / a) ** (1 / power)
        largest = float(radii.max())
        scale = float(2.0 ** np.round(np.log2(largest))) if largest > 0 else 1.0
    for w in _points(size, groups, scale):
        norms = np.linalg.norm(w[groups], ord=order, axis=1)
        wanted, limit = a * norms**power + origin, _AGREE * (a * norms**power + np.abs(origin))
        if not (np.abs(f(w) - wanted) <= limit).all():
            return None
    out: Floats = np.asarray(radii, dtype=np.float64)
    return out


def _points(size: int, groups: Integers, scale: float) -> list[Floats]:
    """Synthetic points: spread ones of many sizes, sparse ones, and signed unit vectors."""
    draws = public_generator(20)
    out = [draws.standard_normal(size) * scale * factor for factor in (1e-3, 0.3, 1.0, 3.0, 1e3) for _ in range(3)]
    for factor in (1.0, 1e3):
        for _ in range(4):
            keep = draws.uniform(size=size) < min(1.0, 4.0 / groups.shape[1])
            out.append(np.where(keep, draws.standard_normal(size) * scale * factor, 0.0))
    width = groups.shape[1]
    for j in range(width) if width <= 16 else draws.choice(width, 16, replace=False):
        for sign in (-1.0, 1.0):
            w = np.zeros(size)
            w[groups[:, j]] = sign * scale
            out.append(w)
    return out


def _curved_parts(expression: Any) -> tuple[list[Any], set[type]]:
    """Largest affine subexpressions with variables, and the types of atoms above them that are not affine."""
    leaves: list[Any] = []
    atoms: set[type] = set()
    stack = [expression]
    while stack:
        node = stack.pop()
        if node.is_affine():
            if node.variables():
                leaves.append(node)
            continue
        if not (node.is_atom_convex() and node.is_atom_concave()):
            atoms.add(type(node))
        stack.extend(node.args)
    return leaves, atoms


@cache
def _atoms_of(order: float) -> frozenset[type]:
    """The curved atoms in which a norm of this order may be written, found by probing."""
    x, column = cp.Variable(2), cp.Variable((2, 1))  # norms of matrices with one column are those of vectors
    powers = [cp.square(x), cp.power(cp.abs(x), 2)]
    spellings = {
        1.0: [cp.norm1(x), cp.abs(x), cp.maximum(x, -x), cp.minimum(x, 0), cp.norm(column, 1)],
        2.0: [cp.norm(x, 2), cp.sum_squares(x), cp.quad_form(x, np.eye(2)), cp.quad_over_lin(x, 2), cp.norm(column, 2)],
        np.inf: [
            cp.norm_inf(x),
            cp.norm(column, "inf"),
            cp.max(cp.abs(x)),
            cp.maximum(x, -x),
            cp.minimum(x, 0),
            cp.min(x),
        ],
    }
    return frozenset(atom for e in [*spellings[order], *powers] for atom in _curved_parts(e)[1])


@cache
def _all_atoms() -> frozenset[type]:
    return _atoms_of(1.0) | _atoms_of(2.0) | _atoms_of(np.inf)
