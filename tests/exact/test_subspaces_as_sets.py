"""Released subspaces as sets of vectors: membership, equality, projection, NumPy; and how they print."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpmodel.errors import SpecificationError
from dpmodel.linalg import GF, QQ, affine_span, span

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")
FIELDS = [QQ, GF(2), GF(7), GF(256)]
ASKED = {"epsilon": 1.0, "delta": 1e-6, "neighbors": "add-remove", "rng": 0}


def plane(field, n=500, seed=0):
    """Vectors of a plane of F^4: the first two entries free, the others combinations of these."""
    free = np.random.default_rng(seed).integers(0, 2 if field.order == 2 else 7, (n, 2))
    other = field.matmul(free, np.array([[1, 1], [0, 1]]))
    return np.hstack([free, np.asarray(other, dtype=np.int64)])


@pytest.mark.parametrize("field", FIELDS, ids=lambda f: f.name)
@pytest.mark.parametrize("find", [span, affine_span], ids=["span", "affine span"])
def test_membership_of_one_vector_and_of_many_agree(field, find) -> None:
    rows = plane(field)
    found = find(rows, field=field, **ASKED)
    outside = rows[0] + [0, 0, 1, 0] if field.order is None else field.add(rows[0], np.array([0, 0, 1, 0]))
    for vector, inside in ((rows[0], True), (outside, False)):
        assert found.contains(vector) is inside
        assert (vector.tolist() in found) is inside
        assert found.contains([vector]).tolist() == [inside]
    assert found.contains(rows).all()
    with pytest.raises(SpecificationError, match="one vector"):
        _ = rows[:2] in found
    with pytest.raises(SpecificationError, match="entries where"):
        found.contains(rows[0][:3])


@pytest.mark.parametrize("field", FIELDS, ids=lambda f: f.name)
@pytest.mark.parametrize("find", [span, affine_span], ids=["span", "affine span"])
def test_equal_subspaces_are_equal_whatever_spanned_them(field, find) -> None:
    first = find(plane(field), field=field, **ASKED)
    again = find(plane(field, seed=1), field=field, **ASKED)
    other = find(plane(field)[:, ::-1], field=field, **ASKED)
    assert first == again and hash(first) == hash(again) and len({first, again, other}) == 2
    assert first != other and first != "a subspace"


def test_a_subspace_is_an_array_of_its_basis() -> None:
    found = span(plane(QQ), field=QQ, **ASKED)
    np.testing.assert_array_equal(np.asarray(found, dtype=float), [[1, 0, 1, 1], [0, 1, 0, 1]])
    assert np.asarray(span(plane(GF(7)), field=GF(7), **ASKED)).dtype == np.int64


@pytest.mark.parametrize("seed", range(3))
def test_projections_are_exact_nearest_points(seed) -> None:
    """Against least squares, and exactly: the rest is orthogonal to the subspace, and a projection stays in place."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-9, 10, (6, 4))
    linear = span(plane(QQ), field=QQ, **ASKED)
    nearest = linear.project(vectors)
    basis = np.asarray(linear, dtype=float)
    expected = np.linalg.lstsq(basis.T, vectors.T.astype(float), rcond=None)[0].T @ basis
    np.testing.assert_allclose(nearest.astype(float), expected, atol=1e-12)
    assert not (np.asarray(linear) @ (vectors - nearest).T).any()
    assert linear.contains(nearest).all() and (linear.project(nearest) == nearest).all()
    assert (linear.project(vectors[0]) == nearest[0]).all()

    moved = affine_span(plane(QQ) + np.array([0, 0, 5, 0]), field=QQ, **ASKED)
    nearest = moved.project(vectors)
    assert moved.contains(nearest).all()
    assert not (np.asarray(moved.directions) @ (vectors - nearest).T).any()
    assert all(isinstance(entry, Fraction) for entry in nearest.ravel())


def test_a_subspace_of_nothing_projects_to_zero_and_finite_fields_do_not_project() -> None:
    nothing = span(plane(QQ)[:3], field=QQ, **ASKED)
    assert not nothing.found and not nothing.project([1, 2, 3, 4]).any()
    assert [0, 0, 0, 0] in nothing and [1, 0, 0, 0] not in nothing
    with pytest.raises(SpecificationError, match="no distance"):
        span(plane(GF(7)), field=GF(7), **ASKED).project([1, 2, 3, 4])
    with pytest.raises(SpecificationError, match="grid"):
        nothing.project([0.5, 1, 1, 1])
    empty = affine_span(plane(QQ)[:3], field=QQ, **ASKED)
    assert [0, 0, 0, 0] not in empty
    with pytest.raises(SpecificationError, match="empty"):
        empty.project([1, 2, 3, 4])


def test_the_estimate_stands_first_and_is_right() -> None:
    """Stray vectors in general position: each set above the plane has one of them, so their noisy count is about
    their number. False alarm below 1e-6: five standard deviations of the noise."""
    rng = np.random.default_rng(5)
    stray = rng.integers(1, 10**6, (20, 4))
    rows = np.vstack([plane(QQ, n=1500), stray])[rng.permutation(1520)]
    estimates = []
    for seed in range(3):
        found = span(rows, field=QQ, **(ASKED | {"rng": seed}), corrupted=0.02, mechanism="stable-span")
        missed = int((~found.contains(rows)).sum())
        assert found.dimension == 2 and missed == 20
        estimates.append((found.estimate - missed) / found.sigma)
        assert found.estimate <= found.missed
        line = next(line for line in str(found).splitlines() if "records missed" in line)
        assert line.index("or more") < line.index("standard deviation") < line.index("at most")
    assert np.abs(estimates).max() < 5 and found.to_dict()["estimate"] == found.estimate
