"""The projection onto a public cone."""

from __future__ import annotations

import numpy as np
import pytest

from dpmodel.exact.cones import into_ball, project, projector


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def cones(generator: np.random.Generator) -> list[np.ndarray]:
    d = 6
    plain = [unit(generator.standard_normal((k, d))) for k in (1, 2, 4, 30)]
    flat = unit(generator.standard_normal((2, d)))
    return [*plain, np.eye(d), -np.eye(d)[:2], np.vstack([flat, -flat]), np.vstack([np.eye(d), unit(np.ones((1, d)))])]


def test_nearest_point_of_the_cone() -> None:
    """p is nearest if and only if p is in the cone, <y - p, p> = 0 and <y - p, q> <= 0 for all q of the cone."""
    generator = np.random.default_rng(1)
    for B in cones(generator):
        others = np.array([project(B, generator.standard_normal(B.shape[1])) for _ in range(20)])
        for _ in range(20):
            y = generator.standard_normal(B.shape[1]) * 10 ** generator.uniform(-6, 6)
            p, size = project(B, y), float(np.linalg.norm(y))
            assert (B @ p).min() >= -1e-12 * size
            assert abs((y - p) @ p) <= 1e-11 * size**2
            assert (others @ (y - p)).max() <= 1e-11 * size
            assert np.array_equal(project(B, p), p)


def test_no_rows_is_the_identity() -> None:
    y = np.array([1.0, -2.0])
    assert np.array_equal(project(np.zeros((0, 2)), y), y)
    assert np.array_equal(project(np.zeros((3, 2)), y), y)


def test_orthant_is_clipping() -> None:
    assert np.array_equal(project(2 * np.eye(3), np.array([1.0, -1.0, 0.0])), [1.0, 0.0, 0.0])
    both = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert np.array_equal(project(both, np.array([3.0, -4.0])), [0.0, -4.0])


def test_the_apex() -> None:
    B = unit(np.array([[1.0, 1.0], [-1.0, 1.0], [0.1, -1.0], [-0.1, -1.0]]))
    assert np.array_equal(project(B, np.array([3.0, -1.0])), [0.0, 0.0])
    assert np.array_equal(project(B, np.zeros(2)), [0.0, 0.0])


def test_agrees_with_a_quadratic_program() -> None:
    cp = pytest.importorskip("cvxpy")
    generator = np.random.default_rng(3)
    B, y = unit(generator.standard_normal((8, 5))), generator.standard_normal(5)
    x = cp.Variable(5)
    cp.Problem(cp.Minimize(cp.sum_squares(x - y)), [B @ x >= 0]).solve(solver="CLARABEL")
    np.testing.assert_allclose(project(B, y), x.value, atol=1e-6)


def test_ball_and_cone_together() -> None:
    """Projecting onto the cone, then scaling, is nearest in the cone's part of the ball."""
    generator = np.random.default_rng(4)
    B = unit(generator.standard_normal((4, 5)))
    onto = projector(B)
    inside = [into_ball(onto(generator.standard_normal(5) * 3)) for _ in range(50)]
    for _ in range(20):
        y = generator.standard_normal(5) * 3
        p = into_ball(onto(y))
        assert max((y - p) @ (q - p) for q in inside) <= 1e-10
