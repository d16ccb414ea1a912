"""Central cuts: the half stays inside, the volume shrinks as promised, and the closed form is the least ellipsoid."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpmodel.exact.pin_hull import (
    Ellipsoid,
    around_box,
    log_ball,
    log_cut,
    log_least_simplex,
    rounds_needed,
)

INFLATION = 2.0**-9


def inside(ellipsoid: Ellipsoid, points: np.ndarray) -> np.ndarray:
    centre = np.array([float(c) for c in ellipsoid.centre])
    return np.linalg.norm(np.linalg.solve(ellipsoid.shape, (points - centre).T), axis=0)


@pytest.mark.parametrize("q", [1, 2, 3, 5])
def test_cuts_keep_their_half_and_lose_volume(q: int) -> None:
    rng = np.random.default_rng(q)
    ellipsoid = around_box(tuple(rng.integers(2, 50, size=q).tolist()))
    for _ in range(20):
        w = rng.normal(size=(300, q))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        centre = np.array([float(c) for c in ellipsoid.centre])
        points = centre + w @ ellipsoid.shape.T
        u = rng.normal(size=q)
        half = points[(points - centre) @ u >= 0]
        after = ellipsoid.cut(u, 60, INFLATION)
        assert (inside(after, half) <= 1).all()
        sensitivity = after.log_volume - ellipsoid.log_volume
        assert log_cut(q) <= sensitivity <= log_cut(q) + q * math.log1p(INFLATION + 1e-9) + 1e-12
        ellipsoid = after


def test_the_factor_of_a_cut() -> None:
    assert log_cut(1) == math.log(0.5)
    for q in (2, 3, 10):
        assert log_cut(q) < -1 / (2 * (q + 1))


def test_nothing_smaller_holds_the_half_ball() -> None:
    """q = 2, by search over ellipses symmetric about the cut's direction: touching the pole and the two ends."""
    best = min(
        a * math.sqrt(1 / (1 - (c / a) ** 2))  # through (1, 0) with a = 1 - c, and through (0, 1)
        for c in np.linspace(0.0, 0.49, 5000)
        for a in (1 - c,)
    )
    assert math.log(best) == pytest.approx(log_cut(2), abs=1e-6)


def test_box_and_rounds() -> None:
    ellipsoid = around_box((101, 1))
    assert ellipsoid.centre == (50, 0)
    assert (inside(ellipsoid, np.array([[0, 0], [100, 0]])) <= 1).all()
    for levels in ((11,), (101, 101), (11, 11, 11)):
        q, rounds = len(levels), rounds_needed(levels, INFLATION)
        ellipsoid = around_box(levels)
        for _ in range(rounds):
            ellipsoid = ellipsoid.cut(np.eye(q)[0], 28, INFLATION)
            ellipsoid = Ellipsoid(ellipsoid.numerators, ellipsoid.bits, ellipsoid.shape)
        # by then no full-dimensional simplex of grid points fits (bits permitting)
        if q == 1:
            assert ellipsoid.log_volume < log_least_simplex(q)
        assert rounds <= 2 * (q + 1) * (around_box(levels).log_volume - log_least_simplex(q)) + 2
    assert log_ball(2) == pytest.approx(math.log(math.pi))


def test_centres_are_dyadic() -> None:
    ellipsoid = around_box((5, 5)).cut(np.array([1.0, 2.0]), 6, INFLATION)
    assert ellipsoid.bits <= 6
    assert all((c * 2**6).denominator == 1 and isinstance(c, Fraction) for c in ellipsoid.centre)
