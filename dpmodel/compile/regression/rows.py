"""The private rows themselves: features and labels, as a mechanism's ``run`` sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray

_CACHED = 1 << 17  # entries of features in one part of the rows


@dataclass(frozen=True)
class Rows:
    """Features in blocks, so that neither an intercept nor a sparse block is copied into one dense matrix.

    ``blocks`` : (matrix, start): (n, k) dense or CSR features of the coefficients start .. start + k;
    ``labels`` : (n,); ``offset`` : (n,) public part of the predictions, or None; ``weights`` : (n,) public, or None.
    """

    blocks: tuple[tuple[Any, int], ...]
    labels: PrivateArray
    size: int
    offset: Floats | None = None
    weights: Floats | None = None

    @property
    def count(self) -> int:
        return int(self.labels.size)

    def part(self, which: Any) -> Rows:
        """The rows of these numbers (or of a slice)."""
        return Rows(
            tuple((matrix[which], start) for matrix, start in self.blocks),
            PrivateArray(self.labels[which]),
            self.size,
            None if self.offset is None else self.offset[which],
            None if self.weights is None else self.weights[which],
        )

    def parts(self) -> tuple[Rows, ...]:
        """The rows in parts that stay in a processor's cache, so that two products with them read memory once; views.
        Sparse ones in one part."""
        if any(sp.issparse(matrix) for matrix, _ in self.blocks):
            return (self,)
        step = max(256, _CACHED // max(sum(matrix.shape[1] for matrix, _ in self.blocks), 1))
        return tuple(self.part(slice(start, start + step)) for start in range(0, self.count, step))

    def predict(self, w: Floats) -> PrivateArray:
        """(n,) predictions a_i' w (+ offset). One pass over the features."""
        z = np.zeros(self.count) if self.offset is None else self.offset.copy()
        for matrix, start in self.blocks:
            z += matrix @ w[start : start + matrix.shape[1]]
        return PrivateArray(z)

    def combine(self, coefficients: Floats) -> PrivateArray:
        """(p,) sum_i coefficients_i weights_i a_i. One pass over the features."""
        if self.weights is not None:
            coefficients = coefficients * self.weights
        out = np.zeros(self.size)
        for matrix, start in self.blocks:
            out[start : start + matrix.shape[1]] = matrix.T @ coefficients
        return PrivateArray(out)

    def gram(self) -> PrivateArray:
        """(p, p) sum_i weights_i a_i a_i'."""
        out = np.zeros((self.size, self.size))
        for matrix, start in self.blocks:
            weighted = matrix if self.weights is None else _scaled(matrix, self.weights)
            for other, first in self.blocks:
                if first > start:
                    continue
                part = weighted.T @ other
                part = part.toarray() if sp.issparse(part) else np.asarray(part)
                out[start : start + matrix.shape[1], first : first + other.shape[1]] = part
                out[first : first + other.shape[1], start : start + matrix.shape[1]] = part.T
        return PrivateArray(out)


def _scaled(matrix: Any, weights: Floats) -> Any:
    return sp.diags_array(weights) @ matrix if sp.issparse(matrix) else matrix * weights[:, None]


Reader = Callable[[], Rows]
