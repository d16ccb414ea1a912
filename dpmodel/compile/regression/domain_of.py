"""Recognise the public set of the coefficients on the user's tree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.compile.regression.domain import Box, Domain, FreeSpace, L1Ball, L2Ball, Product, Simplex
from dpmodel.compile.regression.domain_general import ConvexSet, piece_bounds
from dpmodel.compile.regression.domain_pieces import Ball, Bounds, Piece, Rows, read_constraint
from dpmodel.compile.regression.public_part import PublicPart
from dpmodel.errors import InfeasibleError
from dpmodel.privacy import public_generator

# Sets with more rows over several coefficients than this are not products of simplices that anybody wrote.
_MOST_ROWS = 64


def domain_of(public: PublicPart) -> Domain:
    """The set of the coefficients, for the present values of the public parameters.

    Closed forms: everything, 1-norm and 2-norm balls around zero, boxes, simplices, and products of these over
    consecutive coefficients. Redundant constraints (a wide box around a ball) are dropped. What is none of them, uses
    auxiliary variables, or fails the test at synthetic points, is a ``ConvexSet``.

    Raises
    ------
    InfeasibleError
        When no coefficients satisfy the constraints.
    MissingValueError
        When a public parameter has no value.
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
    reach = domain.norm(math.inf)
    scale = reach if 0 < reach < math.inf else 1.0
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
