"""The stable partition into independent sets (KMMST24, Algorithm 1), one pass over the vectors."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpmodel.mechanisms.linalg.echelon import Basis
from dpmodel.mechanisms.linalg.partition_arithmetic import Kernel, PrimeLanes, kernel_of, primes_below

if TYPE_CHECKING:
    from dpmodel.mechanisms.linalg.fields import Field

Array = npt.NDArray[Any]

# Exchanges of one block before its tableau is folded into the coordinates, and vectors of the largest block.
_EXCHANGES = 32
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Partition:
    """The sets of Algorithm 1 as far as anything after it needs them; private.

    ``counts`` (d + 1,) int64: how many sets have k vectors (counts[0] = 0). ``flag`` (D, d) exact rows: every set of
    k vectors spans what ``flag[:k]`` spans; D is the size of the largest set.
    """

    field: Field
    counts: npt.NDArray[np.int64]
    flag: Array

    def basis(self, k: int) -> Basis:
        """Canonical basis of the span of every set of k vectors."""
        return self.field.echelon(self.flag[:k])


def stable_partition(field: Field, rows: Array) -> Partition:
    """Partition the rows, in their order, into linearly independent sets; zero rows are skipped.

    TODO proof
    """
    rows = np.asarray(rows)
    n, d = rows.shape
    rows = rows[(rows != 0).any(axis=1)] if n else rows
    span = field.echelon(rows)
    columns = np.array(span.pivots, dtype=np.intp)
    narrow = np.ascontiguousarray(rows[:, columns])  # injective on the span
    if field.order is None:
        counts, chosen = _rational(narrow)
    else:
        run = _Run(kernel_of(field, len(columns)), len(columns))  # type: ignore[arg-type]
        run.feed(narrow)
        counts, chosen = run.counts, run.chosen
    wide = np.zeros(d + 1, dtype=np.int64)
    wide[: len(counts)] = counts
    return Partition(field, wide, rows[chosen])


def _rational(rows: Array) -> tuple[list[int], list[int]]:
    n, r = rows.shape
    norms = (rows.astype(object) ** 2).sum(axis=1) if rows.dtype == object else _squares(rows)
    largest = sorted((int(x) for x in norms), reverse=True)[:r]
    bounds = [1]
    for x in largest:
        bounds.append(bounds[-1] * x)
    pool = iter(primes_below(PrimeLanes.most(r)).tolist())
    certain = 0
    while True:
        needed = bounds[certain + 1] if certain else 1
        primes: list[int] = []
        product = 1
        while product * product <= needed:
            primes.append(next(pool))
            product *= primes[-1]
        run = _Run(PrimeLanes(np.array(primes, dtype=np.int64)), r, needed)
        if not run.feed(rows):
            continue
        if run.deepest <= certain:
            return run.counts, run.chosen
        certain = run.deepest


def _squares(rows: Array) -> Array:
    largest = max(int(rows.max()), -int(rows.min())) if rows.size else 0
    if largest * largest * max(rows.shape[1], 1) < 2**63:
        return np.einsum("ij,ij->i", rows, rows)
    return (rows.astype(object) ** 2).sum(axis=1)


class _Run:
    def __init__(self, kernel: Kernel, d: int, needed: int = 1) -> None:
        self.kernel = kernel
        self.d = d
        self.needed = needed
        self.counts = [0] * (d + 1)
        self.dims: list[int] = []
        self.deepest = 0
        self.order = np.arange(d)  # order[i]: index of the basis vector at position i
        self.place = np.arange(d)
        self.names = [-1] * d  # row number of each basis vector, by index
        self.inverse = kernel.identity(d)
        self.exchanges = 0

    @property
    def chosen(self) -> list[int]:
        top = self.dims[-1] if self.dims else 0
        return [self.names[i] for i in self.order[:top]]

    def feed(self, rows: Array) -> bool:
        n, d = rows.shape
        start, size = 0, _EXCHANGES
        while start < n:
            block = self.kernel.load(rows[start : start + size])
            coordinates = self.kernel.matmul(block, self.inverse)
            done = self._block(coordinates, start)
            if done < 0:
                return False
            start += done
            size = min(2 * size, _BLOCK) if done == size else max(_EXCHANGES, done)
        return True

    def _block(self, coordinates: Array, start: int) -> int:
        """Number of vectors used up; -1 where too few lanes are left."""
        kernel, d, counts, dims = self.kernel, self.d, self.counts, self.dims
        size = coordinates.shape[1]
        pivots: list[int] = []
        where = np.full(d, -1)
        table = np.zeros((kernel.lanes, _EXCHANGES, d), dtype=coordinates.dtype)
        stale = False
        for i in range(size):
            c = coordinates[:, i]
            if pivots:
                m = len(pivots)
                old = c[:, pivots]
                rest = c.copy()
                rest[:, pivots] = 0
                c = kernel.add(rest[:, None, :], kernel.matmul(old[:, None, :], table[:, :m]))[:, 0]
            nonzero = np.flatnonzero(c[0] if kernel.lanes == 1 else c.any(axis=0))
            places = self.place[nonzero]
            l = int(places.max()) + 1
            at = bisect_left(dims, l)
            top = dims[at] if at < len(dims) else d
            k = dims[at - 1] if at else 0
            if top < d and top > self.deepest:
                self.deepest = top
            if k + 1 == top and top in dims[at:at+1]:
                pass
            else:
                free = nonzero[places >= k]
                if len(free) == 1:
                    r = int(free[0])
                    if self.names[r] < 0:
                        self.names[r] = -2
                else:
                    r = self._pivot(c, free)
                if len(free) > 1:
                    ...
            # TODO
        return size
