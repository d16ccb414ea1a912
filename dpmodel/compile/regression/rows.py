"""The private rows themselves: features and labels, as a mechanism's ``run`` sees them.

A mechanism asks a ``Table`` for sums over its rows, ``map_reduce``, and sees a part of them at a time (``Rows``). So it
is the same mechanism whether the rows lie in memory (one ``Rows``) or in blocks elsewhere (``blocks.BlockTable``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray

_CACHED = 1 << 17  # entries of features in one part of the rows
WHOLE = 1 << 62  # rows in a part: all that lie together
T = TypeVar("T")


def added(a: T, b: T) -> T:
    """The sum of two arrays, numbers, or tuples of them."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(map(added, a, b))  # type: ignore[return-value]
    return a + b  # type: ignore[operator, no-any-return]


class Table(Protocol):
    """``count`` rows of ``size`` features, of which nothing is known but sums over them."""

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def in_memory(self) -> Rows | None:
        """All rows, where they lie in memory."""

    def map_reduce(
        self, function: Callable[[Rows], T], combine: Callable[[T, T], T] = added, step: int | None = None
    ) -> T:
        """``function`` of every part of the rows, combined, in one pass.

        ``function``, like ``combine``, is pure and can be pickled: it may run elsewhere, and again if it fails there.
        ``step`` : most rows in a part; None: what fits into a processor's cache.
        """
        ...


@dataclass(frozen=True)
class Rows:
    """Features in blocks, so that neither an intercept nor a sparse block is copied into one dense matrix.

    ``blocks`` : (matrix, start): (n, k) dense or CSR features of the coefficients start .. start + k;
    ``labels`` : (n,), or (n, K) where a record has K predictions, each with p coefficients of its own, which follow one
    another in w (K p,); ``offset`` : (n,) public part of the predictions, or None; ``weights`` : (n,) public, or None.
    ``first`` : number of the first row in the table. ``own`` : whether the matrices are copies made for one call, which
    may overwrite them.
    """

    blocks: tuple[tuple[Any, int], ...]
    labels: PrivateArray
    size: int
    offset: Floats | None = None
    weights: Floats | None = None
    first: int = 0
    own: bool = False

    @property
    def in_memory(self) -> Rows:
        return self

    @property
    def count(self) -> int:
        return int(self.labels.shape[0])

    def part(self, which: Any) -> Rows:
        """The rows of these numbers (or of a slice)."""
        return Rows(
            tuple((matrix[which], start) for matrix, start in self.blocks),
            PrivateArray(self.labels[which]),
            self.size,
            None if self.offset is None else self.offset[which],
            None if self.weights is None else self.weights[which],
            self.first + (which.start or 0) if isinstance(which, slice) else self.first,
        )

    def map_reduce(
        self, function: Callable[[Rows], T], combine: Callable[[T, T], T] = added, step: int | None = None
    ) -> T:
        """As ``Table`` has it. Views; by default sparse rows in one part, others so that two products with a part read
        memory once."""
        if step is None:
            return reduce(combine, map(function, self._cached_parts))
        slices = (slice(at, at + step) for at in range(0, max(self.count, 1), step))
        return reduce(combine, (function(self.part(each)) for each in slices))

    @cached_property
    def _cached_parts(self) -> tuple[Rows, ...]:
        if any(sp.issparse(matrix) for matrix, _ in self.blocks):
            return (self,)
        step = cached_rows(sum(matrix.shape[1] for matrix, _ in self.blocks))
        return tuple(self.part(slice(start, start + step)) for start in range(0, max(self.count, 1), step))

    @property
    def still(self) -> Rows:
        """The same without the offset."""
        return self if self.offset is None else replace(self, offset=None)

    def predict(self, w: Floats) -> PrivateArray:
        """(n,) predictions a_i' w (+ offset), or (n, K). One pass over the features."""
        if self.labels.ndim == 2:
            w = w.reshape(-1, self.size).T
        # Each of K predictions lies in one piece: what is done to a record's K numbers is then done to long arrays.
        z: Any = np.zeros((*w.shape[1:], self.count)).T if w.ndim == 2 else 0.0
        z = z if self.offset is None else self.offset.copy()
        for matrix, start in self.blocks:
            own = w[start : start + matrix.shape[1]]
            # A column times a number: an intercept's takes half as long as a product of matrices does.
            z += matrix[:, 0] * own[0] if own.shape == (1,) and isinstance(matrix, np.ndarray) else matrix @ own
        return PrivateArray(z)

    def combine(self, coefficients: Floats) -> PrivateArray:
        """(p,) sum_i coefficients_i weights_i a_i, or (K p,) for coefficients (n, K). One pass over the features."""
        if self.weights is not None:
            coefficients = (coefficients.T * self.weights).T
        out = np.zeros((self.size, *coefficients.shape[1:]))
        for matrix, start in self.blocks:
            out[start : start + matrix.shape[1]] = matrix.T @ coefficients
        return PrivateArray(out.T.ravel())

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


def cached_rows(width: int) -> int:
    """Rows of so many features that stay in a processor's cache."""
    return max(256, _CACHED // max(width, 1))


Reader = Callable[[], Table]
