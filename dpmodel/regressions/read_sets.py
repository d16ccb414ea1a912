"""The public set of the coefficients, read off the user's constraints.

What one constraint says about the coefficients is read first: bounds, a norm ball around zero, or linear rows. The
atoms of the tree say which form may be claimed, its numbers are read off its values, and the claim holds only if the
expression agrees with it at synthetic points of many sizes. Then the pieces are put together to a set of ``sets``; what
has no closed form is computed with solvers and sized by what its single constraints say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.errors import InfeasibleError
from dpmodel.privacy import public_generator
from dpmodel.regressions.public import SOLVER_SLACK, PublicPart, Twin
from dpmodel.regressions.sets import Box, Domain, FreeSpace, L1Ball, L2Ball, Product, Simplex

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
        depends = twin.depends(expression)
        if (np.diff(depends.indptr) != 1).any() or np.unique(depends.indices).size != depends.indices.size:
            return None
        groups = depends.indices.astype(np.int64)[:, None]

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


# ------------------------------------------------------------------ constraints without a closed form


# Up to this many coefficients, norms are tightened by solvers even where the pieces bound them.
_FEW = 20


@dataclass(frozen=True, eq=False)
class ConvexSet(Domain):
    """The set of a ``PublicPart``, of kind "polyhedron" when its constraints are linear, else "general".

    ``pieces`` : what those of its constraints that were recognised say; the others only make the set smaller, so norms
    over the pieces are bounds on norms over the set.
    """

    size: int = field(init=False)
    public: PublicPart
    pieces: tuple[Piece, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.public.size)

    @property
    def kind(self) -> str:
        return "polyhedron" if self.public.linear else "general"

    @property
    def _ask(self) -> bool:
        """Whether solvers are asked for bounds: where the pieces give none, or few runs make them tighter."""
        return self.size <= _FEW or not np.isfinite(piece_bounds(self.size, self.pieces)).all()

    @cached_property
    def sides(self) -> tuple[Floats, Floats]:
        """(p,), (p,) bounds on every coefficient, from the pieces and from solvers where these are asked."""
        lower, upper = piece_bounds(self.size, self.pieces)
        if not self._ask:
            return lower, upper
        found = self.public.bounds()
        return np.maximum(lower, found[0]), np.minimum(upper, found[1])

    def norm(self, order: float) -> float:
        lower, upper = self.sides
        by_pieces = _norm_by_balls(lower, upper, self.pieces, float(order))
        by_pieces += SOLVER_SLACK * (1 + by_pieces)  # a solver's points may miss the set by its tolerance
        return min(by_pieces, self.public.norm(order)) if self._ask else by_pieces

    def diameter(self, order: float) -> float:
        lower, upper = self.sides
        by_box = float(np.linalg.norm(np.maximum(upper - lower, 0.0), ord=order))
        return min(2 * self.norm(order), by_box + 2 * SOLVER_SLACK * (1 + by_box))

    def center(self) -> Floats:
        return self.public.project(np.zeros(self.size))

    def project(self, w: Floats) -> Floats:
        return self.public.project(w)

    def minimise(self, g: Floats) -> Floats:
        return self.public.minimise(g)


def piece_bounds(size: int, pieces: tuple[Piece, ...]) -> tuple[Floats, Floats]:
    """(p,), (p,) the bounds that pieces give; a ball's radius bounds each of its entries."""
    lower, upper = np.full(size, -math.inf), np.full(size, math.inf)
    for piece in pieces:
        if isinstance(piece, Bounds):
            np.maximum.at(lower, piece.where, piece.lower)
            np.minimum.at(upper, piece.where, piece.upper)
        elif isinstance(piece, Ball):
            lower[piece.where] = np.maximum(lower[piece.where], -piece.radius)
            upper[piece.where] = np.minimum(upper[piece.where], piece.radius)
    for ball in _simplices(lower, pieces):
        upper[ball.where] = np.minimum(upper[ball.where], ball.radius)
    return lower, upper


def _simplices(lower: Floats, pieces: tuple[Piece, ...]) -> list[Ball]:
    """Rows ``a sum w[S] <= b`` with a > 0 and w[S] >= 0: the 1-norm over S is at most b / a."""
    out = []
    for piece in pieces:
        if isinstance(piece, Rows):
            for k in range(piece.b.size):
                part = slice(piece.A.indptr[k], piece.A.indptr[k + 1])
                where, derivatives = piece.A.indices[part].astype(np.int64), piece.A.data[part]
                least = float(derivatives.min())
                if piece.equality and float(derivatives.max()) < 0:
                    least, limit = float(-derivatives.max()), -float(piece.b[k])
                else:
                    limit = float(piece.b[k])
                if least > 0 and (lower[where] >= 0).all():
                    out.append(Ball(1.0, where, max(limit, 0.0) / least))
    return out


def _norm_by_balls(lower: Floats, upper: Floats, pieces: tuple[Piece, ...], order: float) -> float:
    """Bound on the norm from balls over disjoint entries joined with the box's sizes elsewhere: the norm of (norm over
    S, sizes elsewhere) is the whole norm, for all three orders. Balls are tried alone, and together where disjoint."""
    sizes = np.maximum(np.abs(lower), np.abs(upper))
    balls = [*(piece for piece in pieces if isinstance(piece, Ball)), *_simplices(lower, pieces)]
    inside = [b.radius * (math.sqrt(b.where.size) if order == 1 and b.order == 2 else 1.0) for b in balls]
    saved = [float(np.linalg.norm(sizes[b.where], ord=order)) - r for b, r in zip(balls, inside, strict=True)]
    together: list[int] = []
    free = np.ones(sizes.size, dtype=bool)
    for k in sorted(range(len(balls)), key=lambda k: -saved[k]):
        if saved[k] > 0 and free[balls[k].where].all():
            together.append(k)
            free[balls[k].where] = False
    best = math.inf
    for chosen in [[], together, *([k] for k in range(len(balls)))]:
        rest = np.ones(sizes.size, dtype=bool)
        for k in chosen:
            rest[balls[k].where] = False
        joined = np.concatenate([[inside[k] for k in chosen], sizes[rest]])
        best = min(best, float(np.linalg.norm(joined, ord=order)))
    return best


# ------------------------------------------------------------------ the set of all constraints


# Sets with more rows over several coefficients than this are not products of simplices that anybody wrote.
_MOST_ROWS = 64


def domain_of(public: PublicPart) -> Domain:
    """The set of the coefficients, for the present values of the public parameters.

    Closed forms: everything, 1-norm and 2-norm balls around zero, boxes, simplices, and products of these over
    consecutive coefficients. Redundant constraints (a wide box around a ball) are dropped. What is none of them, uses
    auxiliary variables, or fails the test at synthetic points, is a ``ConvexSet``.
    Errors: InfeasibleError, when no coefficients satisfy the constraints; MissingValueError, when a public parameter
    has no value.
    """
    public.require_values()
    if public.free or _spans(public):
        return FreeSpace(public.size)
    pieces, complete = _read(public)
    if complete:
        found = _assemble(public.size, pieces)
        if found is not None and _agrees(found, public):
            return found
    public.require_feasible()
    return ConvexSet(public, tuple(pieces))


def _spans(public: PublicPart) -> bool:
    """Whether w is a surjective affine map of variables that nothing constrains."""
    twin = public.twin
    if public.constraints or twin.attributes or twin.tied or public.size > 500:
        return False
    return bool(np.linalg.matrix_rank(twin.jacobian(twin.w)[0].toarray()) == public.size)


def _read(public: PublicPart) -> tuple[list[Piece], bool]:
    """What the constraints say about w, and whether that is all they say."""
    twin = public.twin
    if not twin.plain:
        return [], False
    pieces: list[Piece] = []
    complete = True
    for constraint in [*twin.constraints, *twin.attributes]:
        said = read_constraint(constraint, twin)
        if said is None:
            complete = False
        else:
            pieces += said
    return pieces, complete


def _assemble(size: int, pieces: list[Piece]) -> Domain | None:
    """The closed form that pieces make together, or None."""
    lower, upper = piece_bounds(size, tuple(p for p in pieces if isinstance(p, Bounds)))
    gap = lower - upper
    with np.errstate(invalid="ignore"):
        meeting = (gap > 0) & (gap <= 1e-12 * np.abs(lower))
    if (gap[~meeting] > 0).any():
        raise InfeasibleError(
            "a coefficient's lower bound is above its upper bound",
            why="the public constraints have no common point; nothing was spent",
            remedy="relax or remove constraints",
        )
    upper = np.where(meeting, lower, upper)
    groups = _groups(size, pieces)
    if groups is None:
        return None
    parts: list[tuple[Domain, int]] = []
    at = 0
    for where, members in [*groups, (np.array([size]), [])]:
        start = int(where[0])
        if start < at:
            return None
        if start > at:
            parts.append((_box(lower[at:start], upper[at:start]), at))
        if start == size:
            break
        if where.size != where[-1] - start + 1:
            return None
        part = _one_part(members, lower[where], upper[where])
        if part is None:
            return None
        parts.append((part, start))
        at = start + part.size
    return parts[0][0] if len(parts) == 1 else Product(tuple(parts))


def _box(lower: Floats, upper: Floats) -> Domain:
    if np.isinf(lower).all() and np.isinf(upper).all():
        return FreeSpace(lower.size)
    return Box(lower, upper)


def _groups(size: int, pieces: list[Piece]) -> list[tuple[Integers, list[Any]]] | None:
    """The sets of coefficients that a ball or a row speaks of, in order, each with its balls and rows (derivative,
    limit, equality); None when two overlap without being the same or a row's coefficients differ."""
    out: dict[bytes, tuple[Integers, list[Any]]] = {}
    for piece in pieces:
        found: list[tuple[Integers, Any]] = []
        if isinstance(piece, Ball):
            found = [(np.sort(piece.where), piece)]
        elif isinstance(piece, Rows):
            if piece.b.size > _MOST_ROWS:
                return None
            for k in range(piece.b.size):
                part = slice(piece.A.indptr[k], piece.A.indptr[k + 1])
                derivatives = piece.A.data[part]
                if np.ptp(derivatives) > 1e-12 * abs(derivatives[0]):
                    return None
                where = np.sort(piece.A.indices[part]).astype(np.int64)
                found.append((where, (float(derivatives[0]), float(piece.b[k]), piece.equality)))
        for where, member in found:
            out.setdefault(where.tobytes(), (where, []))[1].append(member)
    taken = np.zeros(size, dtype=np.int64)
    for where, _ in out.values():
        taken[where] += 1
    if (taken > 1).any():
        return None
    return sorted(out.values(), key=lambda group: int(group[0][0]))


def _one_part(members: list[Any], lower: Floats, upper: Floats) -> Domain | None:
    """The set of k coefficients within bounds and some balls or rows over all of them; None when it has no name."""
    size = lower.size
    balls = [member for member in members if isinstance(member, Ball)]
    rows = [member for member in members if not isinstance(member, Ball)]
    if rows:
        return None if balls else _simplex(rows, lower, upper)
    one = min((ball.radius for ball in balls if ball.order == 1), default=math.inf)
    two = min((ball.radius for ball in balls if ball.order == 2), default=math.inf)
    # The smaller ball counts alone where it lies inside the other.
    if two < one < math.sqrt(size) * two:
        return None
    radius = min(one, two)
    if (lower <= -radius).all() and (upper >= radius).all():
        return L1Ball(size, one) if one <= two else L2Ball(size, two)
    if one <= two and (lower == 0).all() and (upper >= radius).all():
        return Simplex(size, one, solid=True)
    return None


def _simplex(rows: list[tuple[float, float, bool]], lower: Floats, upper: Floats) -> Domain | None:
    if not (lower == 0).all() or any(derivative < 0 and not equality for derivative, _, equality in rows):
        return None
    totals = [limit / derivative for derivative, limit, _ in rows]
    equalities = {equality for _, _, equality in rows}
    total = min(totals)
    if len(equalities) > 1 or (True in equalities and max(totals) > total) or total < 0 or (upper < total).any():
        return None  # other shapes, or none at all: the solver will say
    return Simplex(lower.size, total, solid=False in equalities)


def _agrees(domain: Domain, public: PublicPart) -> bool:
    """Whether nearest points of the claimed set lie in the written one, and points just beyond them do not."""
    draws = public_generator(21)
    size = domain.norm(math.inf)
    scale = size if 0 < size < math.inf else 1.0
    for factor in (0.5, 3.0, 30.0):
        v = draws.standard_normal(domain.size) * scale * factor
        w = domain.project(v)
        beyond = v - w
        far = float(np.linalg.norm(beyond))
        if public.twin.violation(w) > 1e-8 * scale * max(1.0, scale):
            return False
        if far > 1e-6 * scale and public.twin.violation(w + beyond * min(1.0, 1e-3 * scale / far)) <= 0:
            return False
    return True
