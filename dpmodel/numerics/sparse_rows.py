"""Some rows of a sparse matrix: the same as ``A[rows]``, in half the time where there are few."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def rows_of(A: sp.csr_array, where: Any) -> sp.csr_array:
    """The rows of the mask ``where`` (m,); all of them without a copy."""
    if where.all():
        return A
    counts = np.diff(A.indptr)
    entries, ends = np.repeat(where, counts), np.cumsum(counts[where])
    shape = ends.size, A.shape[1]
    return sp.csr_array((A.data[entries], A.indices[entries], np.r_[0, ends]), shape=shape)
