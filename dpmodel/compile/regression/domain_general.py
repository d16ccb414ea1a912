"""A public set without a closed form: computed with solvers, sized by what its single constraints say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.regression.domain import Domain
from dpmodel.compile.regression.domain_pieces import Ball, Bounds, Piece, Rows
from dpmodel.compile.regression.public_part import SOLVER_SLACK, PublicPart

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
