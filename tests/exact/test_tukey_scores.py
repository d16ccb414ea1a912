"""Exact depths: against the definition, and their sensitivity by brute force."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hull_membership import in_hull
from scipy.optimize import Bounds, LinearConstraint, milp

from dpmodel.exact.tukey_depth import cut_depths, outer_layers, possible_corners

Integers = npt.NDArray[np.int64]


def grid(levels: tuple[int, ...]) -> Integers:
    return np.stack(np.unravel_index(np.arange(np.prod(levels)), levels), axis=1)


def depth_by_search(points: Integers, at: Integers) -> int:
    """Fewest points in a closed half-space with ``at``, as a mixed-integer program: s_i = 1 where z_i is in it."""
    n, d = points.shape
    rows = np.hstack([points - at, -1e4 * np.eye(n)])
    found = milp(
        np.append(np.zeros(d), np.ones(n)),
        constraints=LinearConstraint(rows, -np.inf, -1),
        integrality=np.append(np.zeros(d), np.ones(n)),
        bounds=Bounds(np.append(np.full(d, -500.0), np.zeros(n)), np.append(np.full(d, 500.0), np.ones(n))),
    )
    return round(found.fun)


def depth_in_the_plane(points: Integers, at: Integers) -> int:
    """Half-planes through ``at`` and each point, turned a little to either side."""
    away = points - at
    here = (away == 0).all(axis=1)
    away = away[~here]
    if not len(away):
        return int(here.sum())
    cross = away[:, None, 0] * away[None, :, 1] - away[:, None, 1] * away[None, :, 0]
    dot = away @ away.T
    counts = [((s * cross > 0) | ((cross == 0) & (t * dot > 0))).sum(axis=1).min() for s in (1, -1) for t in (1, -1)]
    return int(min(counts)) + int(here.sum())


def some_points(rng: np.random.Generator, levels: tuple[int, ...], n: int, kind: int) -> Integers:
    points = np.column_stack([rng.integers(0, k, size=n) for k in levels]).astype(np.int64).reshape(n, len(levels))
    if len(levels) > 1 and n:
        if kind == 1:  # on a line or a plane
            points[:, 1] = np.minimum(points[:, 0], levels[1] - 1)
        if kind == 2:
            points[:, 0] = points[0, 0]
        if kind == 3:  # few places
            points = points[rng.integers(0, min(n, 3), size=n)]
    return points


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
def test_depth_is_that_of_the_definition(d: int) -> None:
    rng = np.random.default_rng(d)
    for trial in range(8):
        levels = tuple(int(k) for k in rng.integers(2, 6 if d < 4 else 4, size=d))
        points = some_points(rng, levels, int(rng.integers(1, 11)), trial % 4)
        depths = cut_depths(points, levels, 100)
        for index in rng.choice(len(depths), size=3, replace=False) if len(depths) > 3 else range(len(depths)):
            assert depths[index] == depth_by_search(points, grid(levels)[index])


def test_dense_planes_where_points_are_left_out() -> None:
    rng = np.random.default_rng(5)
    for cap in (1, 3, 6):
        levels = (17, 13)
        points = some_points(rng, levels, 300, 0)
        some = rng.choice(17 * 13, size=40, replace=False)
        expected = [min(depth_in_the_plane(points, at), cap) for at in grid(levels)[some]]
        assert (cut_depths(points, levels, cap)[some] == expected).all()
        distinct, weights = np.unique(points, axis=0, return_counts=True)
        corners = possible_corners(distinct, weights, cap) & outer_layers(distinct, cap)
        assert corners.sum() < len(distinct) / 2  # the shortcut is taken


def test_depth_one_is_membership() -> None:
    rng = np.random.default_rng(6)
    for d, levels in ((2, (4, 4)), (3, (2, 2, 3))):
        for kind in range(4):
            points = some_points(rng, levels, d + 2, kind)
            inside = [in_hull(points, [int(v) for v in at]) for at in grid(levels)]
            assert ((cut_depths(points, levels, 50) >= 1) == inside).all()


@pytest.mark.parametrize("levels", [(9,), (6, 5), (4, 3, 4), (3, 2, 3, 2)])
def test_one_point_moves_all_scores_the_same_way_by_at_most_one(levels: tuple[int, ...]) -> None:
    rng = np.random.default_rng(7)
    moved = 0
    for trial in range(16):
        points = some_points(rng, levels, int(rng.integers(0, 9)), trial % 4)
        extra, other = some_points(rng, levels, 2, 0)
        cap = int(rng.integers(1, 6))
        less = cut_depths(points, levels, cap)
        more = cut_depths(np.vstack([points, extra]), levels, cap)
        assert set(np.unique(more - less)) <= {0, 1}
        swapped = cut_depths(np.vstack([points, other]), levels, cap)
        moved = max(moved, int(np.ptp(more - swapped)))
        assert np.abs(more - swapped).max() <= 1
    assert moved == 2  # replace-one needs the factor 2


@pytest.mark.parametrize("levels", [(30,), (8, 7), (5, 4, 4)])
def test_some_grid_point_is_deep(levels: tuple[int, ...]) -> None:
    """Doignon: depth n / 2^d on the grid itself."""
    rng = np.random.default_rng(8)
    for trial in range(40):
        points = some_points(rng, levels, int(rng.integers(1, 26)), trial % 4)
        assert cut_depths(points, levels, 100).max() >= -(-len(points) // 2 ** len(levels))


def test_the_bound_on_depth_is_met() -> None:
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    assert cut_depths(np.repeat(corners, 3, axis=0), (2, 2), 100).max() == 3
    cube = grid((2, 2, 2))
    assert cut_depths(np.repeat(cube, 2, axis=0), (2, 2, 2), 100).max() == 2
