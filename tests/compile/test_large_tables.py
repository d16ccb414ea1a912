"""A shortcut for tables of millions of entries says what the general way says: footprints of entries that are alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.compile.affine_map import AffineMap
from dpmodel.compile.bridge import lower
from dpmodel.compile.footprint import AlikeView, entry_sensitivities, footprint

SHAPE = (7, 4)
PATTERN = sp.coo_array((np.random.default_rng(3).random(SHAPE) < 0.5) * 1.0)


def table(**declared: Any) -> dpm.Private:
    return dpm.Private(shape=SHAPE, name="A", **declared)


DECLARED = [
    {"unit": "row", "bounds": [-1, 1]},
    {"unit": "row", "bounds": [0, 1], "max_l1": 2.5},
    {"unit": "row", "max_l2": 3},
    {"unit": "row", "linf": 1, "l1": 2.5, "l2": 1.5},
    {"unit": "row", "linf": 1, "row_l1": 2.5},
    {"unit": "column", "linf": 2, "l1": 5},
    {"unit": "column", "linf": 2, "row_l1": 2.5},
    {"unit": "entry", "linf": 0.7},
    {"unit": "all", "linf": 1, "l2": 2},
    {"unit": "all", "linf": 1, "row_l1": 2},
    {"unit": "row", "bounds": [np.zeros(SHAPE), 1 + np.arange(28.0).reshape(SHAPE)]},
]


def footprints(affine: AffineMap, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for alike in (True, False):
        with monkeypatch.context() as patch:
            if not alike:
                patch.setattr(AlikeView, "of", staticmethod(lambda block, part: None))
            yield footprint(affine).parts, entry_sensitivities(affine, affine.private_matrix)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("declared", DECLARED, ids=str)
def test_entries_that_are_alike_have_the_footprint_of_any(
    declared: dict[str, Any], sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sparse and isinstance(declared.get("bounds", [0])[0], np.ndarray):
        pytest.skip("bounds of these entries are no bounds of that pattern")
    A = table(**declared, **({"sparsity": PATTERN.coords} if sparse else {}))
    x, t = cp.Variable(4), cp.Variable()
    turned = cp.Variable(7)
    for constraints in (
        [2 * (A @ x) <= 1],
        [-A @ x >= t],
        [A[2:6] @ x <= 1],
        [A.T @ turned == 3],
        [cp.sum(A @ x) <= 1],
    ):
        ours, general = footprints(lower(cp.Problem(cp.Minimize(0), constraints)).affine, monkeypatch)
        for part, found in ours[0].items():
            for norm, bound in general[0][part].as_mapping().items():
                assert found.as_mapping()[norm] == pytest.approx(bound, rel=1e-12), (part, norm)
            assert found.exact == general[0][part].exact
        assert ours[1] == pytest.approx(general[1], rel=1e-12)
