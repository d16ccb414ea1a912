"""``linalg.affine_span``: points plus directions, and the empty set."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from dpmodel.errors import SpecificationError
from dpmodel.exact.fields import GF, QQ
from dpmodel.linalg import affine_span as _affine_span

affine_span = functools.partial(_affine_span, neighbors="add-remove")  # unless a test says otherwise

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")


def plane(field, seed=0, n=400, d=4):
    """Points p + span of two directions."""
    generator = np.random.default_rng(seed)
    top = 6 if field.order is None else field.order
    start = generator.integers(1, top, size=d)
    directions = generator.integers(0, top, size=(2, d))
    moved = field.matmul(generator.integers(0, top, size=(n, 2)), directions)
    return np.array(field.add(moved, start)), start, directions


def private_plane(points, field, **more):
    return affine_span(points, **({"field": field, "epsilon": 1.0, "delta": 1e-6, "rng": 0} | more))


@pytest.mark.parametrize("field", [QQ, GF(2), GF(7), GF(9)], ids=lambda f: f.name)
def test_a_planted_plane(field):
    points, start, directions = plane(field)
    found = private_plane(points, field)
    assert "point" in str(found) and "directions" in str(found) and not found.point.flags.writeable
    assert found.directions == field.echelon(field.exact_rows(directions))
    assert found.dimension == found.directions.dimension
    assert found.contains(points).all()
    assert found.contains([start.tolist()]).all()
    assert found.contains([[str(x) for x in found.point]] if field is QQ else [found.point.tolist()]).all()
    assert all(found.point[list(found.directions.pivots)] == 0)
    if field.order is None or field.order > 2:
        off = field.add(points[:20], np.array([1, 0, 0, 0]))
        inside = found.directions.contains(np.array([[1, 0, 0, 0]])).all()
        assert inside or not found.contains(off).any()


def test_a_single_point_and_the_origin():
    found = private_plane(np.tile([[2, 3]], (100, 1)), QQ)
    assert (found.dimension, found.point.tolist()) == (0, [2, 3])
    origin = private_plane(np.zeros((100, 2), dtype=int), QQ)
    assert (origin.dimension, origin.point.tolist()) == (0, [0, 0])  # (0, 1) is no zero vector
    assert origin.contains([[0, 0], [0, 1]]).tolist() == [True, False]


def test_nothing_is_the_empty_set():
    found = private_plane([[1, 2], [3, 4]], QQ)
    assert (found.found, found.point, found.dimension) == (False, None, -1)
    assert not found.contains([[1, 2], [0, 0]]).any()
    assert "empty" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["point"] is None


def test_floats_on_a_grid_keep_the_homogenising_one():
    points, *_ = plane(QQ)
    found = private_plane(points / 4, QQ, grid="0.25")
    assert found.contains(points / 4).all()
    assert found.directions == private_plane(points, QQ).directions
    assert [x * 4 for x in found.point] == private_plane(points, QQ).point.tolist()


def test_rank_is_the_affine_dimension():
    points, *_ = plane(GF(7))
    assert private_plane(points, GF(7), rank=2).dimension == 2
    assert private_plane(np.tile([[2, 3]], (100, 1)), QQ, rank=0).dimension == 0
    for rank in (-1, 5):
        with pytest.raises(SpecificationError, match="between 0 and 4"):
            private_plane(points, GF(7), rank=rank)
