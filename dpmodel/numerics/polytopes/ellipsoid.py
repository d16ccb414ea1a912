"""Ellipsoids cut through the centre: what PinHull (KMMST24, Algorithm 7, steps 4, 5d and 5e) does to a public
polytope."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpmodel._types import Floats

# Room for the rounding of floats, as a share of the radii.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """``{c + B w : ||w|| <= 1}``.

    ``whole`` (q,), ``bits`` : the centre c = whole / 2^bits, exact. ``shape`` (q, q) : B.
    """

    whole: tuple[int, ...]
    bits: int
    shape: Floats

    @property
    def centre(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(entry, 2**self.bits) for entry in self.whole)

    @property
    def log_volume(self) -> float:
        return log_ball(len(self.whole)) + float(np.linalg.slogdet(self.shape)[1])

    def cut(self, u: Floats, most_bits: int, inflation: float) -> Ellipsoid:
        """The least ellipsoid around the half ``<u, z - c> >= 0``, its centre rounded, widened to make up for that.

        Closed form (Groetschel, Lovasz, Schrijver 1988, section 3.1): with g = B'u / ||B'u|| the centre moves by
        ``B g / (q + 1)``, the radius along g shrinks by q / (q + 1), the others grow by q / sqrt(q^2 - 1); q = 1: the
        interval is halved. *Rounding.* If the centre moves by eta, a point ``c + B w`` with ||w|| <= 1 is
        ``c' + B (w - B^-1 eta)``, so radii ``1 + ||B^-1 eta||`` times as large hold it. The centre goes to multiples of
        2^-bits, bits being as small as keeps that factor below ``1 + inflation``, and at most ``most_bits``.
        """
        q = len(self.whole)
        g = self.shape.T @ u
        g /= np.linalg.norm(g)
        along, across = q / (q + 1), q / math.sqrt(q * q - 1) if q > 1 else 1.0
        shape = self.shape @ (across * np.eye(q) + (along - across) * np.outer(g, g))
        least = float(np.linalg.svd(shape, compute_uv=False)[-1])
        bits = math.ceil(math.log2(math.sqrt(q) / (inflation * least)))
        bits = min(max(bits, 0), most_bits)
        step = self.shape @ g / (q + 1)
        exact = [c + Fraction(float(s)) for c, s in zip(self.centre, step, strict=True)]
        whole = tuple(round(c * 2**bits) for c in exact)
        moved = np.array([float(Fraction(w, 2**bits) - c) for w, c in zip(whole, exact, strict=True)])
        factor = 1 + float(np.linalg.norm(np.linalg.solve(shape, moved))) + _ROUNDING
        return Ellipsoid(whole, bits, factor * shape)


def around_box(levels: tuple[int, ...]) -> Ellipsoid:
    """The least ellipsoid with axes along the coordinates around the box ``0 .. levels[j] - 1``, widened to radius 1/2
    along axes of one level."""
    q = len(levels)
    radii = np.array([max((level - 1) / 2 * math.sqrt(q), 0.5) for level in levels])
    return Ellipsoid(tuple(level - 1 for level in levels), 1, np.diag(radii) * (1 + _ROUNDING))


def log_ball(q: int) -> float:
    """ln of the volume of the unit ball in q dimensions."""
    return q / 2 * math.log(math.pi) - math.lgamma(q / 2 + 1)


def log_least_simplex(q: int) -> float:
    """ln(1 / q!): the least volume of a simplex with integer corners (KMMST24, Lemma 12, in grid steps)."""
    return -math.lgamma(q + 1)


def log_cut(q: int) -> float:
    """ln of the factor by which one cut changes the volume, without widening: below -1 / (2 (q + 1))."""
    across = math.log(q / math.sqrt(q * q - 1)) if q > 1 else 0.0
    return math.log(q / (q + 1)) + (q - 1) * across


def rounds_needed(levels: tuple[int, ...], inflation: float) -> int:
    """Cuts after which points of a box that lie in the ellipsoid are in one hyperplane: its volume is below 1 / q!."""
    q = len(levels)
    drop = -log_cut(q) - q * math.log1p(inflation + _ROUNDING)
    excess = around_box(levels).log_volume - log_least_simplex(q)
    return max(1, math.floor(excess / drop) + 1)
