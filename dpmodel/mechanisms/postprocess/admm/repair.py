"""The feasible point nearest to a nearly feasible one: the last step of the ADMM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats

ROUNDS = 60  # Newton steps
INNER = 200  # conjugate-gradient steps in each
KEPT = 1e-8  # how far a repaired point may be from the equalities, relative to its largest entry
CLOSE = 1e-11  # distance from the equalities, relative to the largest entry, at which a point keeps them


@dataclass(frozen=True, eq=False)
class Polytope:
    """{z : E z = e, lower <= z <= upper}, known by ``project``, the projection onto {E z = e} in the norm
    ``sum weight_j z_j^2``."""

    project: Callable[[Floats], Floats]
    weight: Floats
    lower: Floats
    upper: Floats

    def nearest(self, start: Floats) -> Floats | None:
        """The point of the polytope nearest to ``start`` in that norm; None where none was found that keeps the
        equalities to ``KEPT`` of its largest entry.

        Semismooth Newton on the dual: the point is z(c) = clip(start + c), with c in W^-1 range(E') such that z(c)
        keeps the equalities. One step solves Q D d = Q(project(z) - z) by conjugate gradients, D marking entries
        strictly inside their bounds and Q the projection onto that range, and is shortened until the dual objective
        rises. From a point that ADMM has nearly finished it takes a few steps.
        """
        W, lower, upper = self.weight, self.lower, self.upper
        base = self.project(np.zeros(start.size))
        flat = self.project(start)  # some point that keeps the equalities
        c = np.zeros(start.size)
        z = np.clip(start, lower, upper)
        size = max(float(np.abs(start).max(initial=0.0)), float(np.abs(base).max(initial=0.0)), 1e-300)
        best, least = z, np.inf
        value = self._dual(start, c, z, flat)
        for _ in range(ROUNDS):
            move = self.project(z) - z
            far = float(np.abs(move).max(initial=0.0))
            if far < least:
                best, least = z, far
            if far <= CLOSE * size:
                break
            inside = (start + c > lower) & (start + c < upper)
            d = self._solve(inside, move, base)
            gain = float((W * d) @ move)
            length = 1.0
            while True:
                trial = np.clip(start + c + length * d, lower, upper)
                new = self._dual(start, c + length * d, trial, flat)
                if new >= value + 1e-4 * length * gain - 1e-13 * abs(value) or length < 1e-6:
                    break
                length /= 2
            c, z, value = c + length * d, trial, new
        return best if least <= KEPT * max(float(np.abs(best).max(initial=0.0)), 1e-300) else None

    def _dual(self, start: Floats, c: Floats, z: Floats, flat: Floats) -> float:
        """min over the box of 1/2 |z - start|^2 - <c, z - flat>, at its minimiser z."""
        away = z - start
        return float(self.weight @ (0.5 * away * away - c * (z - flat)))

    def _solve(self, inside: np.ndarray, move: Floats, base: Floats) -> Floats:
        """d in the range of Q with Q D d = move, roughly."""
        W = self.weight
        d, r = np.zeros(move.size), move.copy()
        s, rr = r.copy(), float((W * r) @ r)
        goal = 1e-8 * rr
        for _ in range(INNER):
            held = np.where(inside, s, 0.0)
            image = held - (self.project(held) - base)
            image += 1e-9 * s
            curve = float((W * s) @ image)
            if curve <= 1e-300:
                break
            step = rr / curve
            d += step * s
            r -= step * image
            new = float((W * r) @ r)
            if new <= goal:
                break
            s = r + (new / rr) * s
            rr = new
        return d
