"""Rows of a mask, against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.numerics.sparse_rows import rows_of


@pytest.mark.parametrize("seed", range(8))
def test_the_same_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = sp.random_array((seed, 5), density=0.4, format="csr", rng=rng)
    for where in (rng.random(seed) < 0.5, np.zeros(seed, dtype=bool), np.ones(seed, dtype=bool)):
        some = rows_of(A, where)
        assert some.shape == (where.sum(), 5) and np.array_equal(some.toarray(), A.toarray()[where])
        assert (some is A) == where.all()
