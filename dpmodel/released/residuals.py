"""Residuals of marginals: orthogonal parts of a table, how precisely each is measured, and what one record moves.

The residual of a set A of columns is what the marginal of A says that no smaller one does: ``w_A = C_A (marginal of
A)``, C_A the Kronecker product of ``I - 11'/n_i`` over its columns of n_i values. A marginal M is the sum of its parts,
``M = sum over A in M of w_A spread evenly over the columns M without A``. Residuals are orthogonal, so noise of
variance s_A on each gives every cell of M the variance (``p_A = prod over A of (1 - 1/n_i)``)

    V_M = sum over A in M of s_A p_A / n_{M without A}^2.

Source: ResidualPlanner (Xiao, He, Zhang and Kifer, NeurIPS 2023); the largest deviation by a convex program of our own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import logsumexp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.marks.records import Neighbors

Loss = Literal["mean", "max"]
Columns = tuple[int, ...]

# Up to this many columns every set in which two people may differ is tried.
_EVERY_SET = 16


@dataclass(frozen=True)
class Layout:
    """Arrays over sets of columns, one after the other in one vector, those of equal shape side by side.

    ``sets`` : column numbers, by order and shape. ``sizes`` : values of every column of the domain.
    """

    sets: tuple[Columns, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def of(sets: Iterable[Columns], sizes: tuple[int, ...]) -> Layout:
        return Layout(tuple(sorted(set(sets), key=lambda a: (len(a), [sizes[i] for i in a], a))), sizes)

    def shape(self, columns: Columns) -> tuple[int, ...]:
        return tuple(self.sizes[i] for i in columns)

    @cached_property
    def cells(self) -> Integers:
        """(sets,) cells of each array."""
        return np.array([math.prod(self.shape(a)) for a in self.sets], dtype=np.int64)

    @cached_property
    def start(self) -> Integers:
        """(sets + 1,) where each begins, and the length of the vector."""
        return np.concatenate([[0], np.cumsum(self.cells)])

    @cached_property
    def which(self) -> Integers:
        """(cells,) the set that each entry belongs to."""
        return np.repeat(np.arange(len(self.sets)), self.cells)

    @cached_property
    def place(self) -> dict[Columns, int]:
        return {a: k for k, a in enumerate(self.sets)}

    @cached_property
    def groups(self) -> tuple[tuple[slice, slice, tuple[int, ...]], ...]:
        """(numbers of the sets, their entries, shape) of every run of equal shapes."""
        out, k = [], 0
        for shape, run in itertools.groupby(self.sets, self.shape):
            more = k + len(list(run))
            out.append((slice(k, more), slice(int(self.start[k]), int(self.start[more])), shape))
            k = more
        return tuple(out)

    def centred(self, values: Floats) -> Floats:
        """C_A of every array, in place."""
        for sets, entries, shape in self.groups:
            block = values[entries].reshape(sets.stop - sets.start, *shape)
            for axis, n in enumerate(shape, 1):
                block -= np.add.reduce(block, axis, keepdims=True) / n  # half the time of ``mean``, for small tables
        return values


@dataclass(frozen=True)
class Residuals:
    """The geometry of a workload: public.

    ``tables`` : the marginals. ``parts`` : every set of columns that one of them has, without columns of one value.
    """

    tables: Layout
    parts: Layout

    @staticmethod
    def of(marginals: Iterable[Columns], sizes: Sequence[int]) -> Residuals:
        tables, sizes = Layout.of(marginals, tuple(sizes)), tuple(sizes)
        free = [tuple(i for i in m if sizes[i] > 1) for m in tables.sets]
        subsets = {a for m in free for k in range(len(m) + 1) for a in itertools.combinations(m, k)}
        return Residuals(tables, Layout.of(subsets, sizes))

    @cached_property
    def order(self) -> Integers:
        """(parts,) columns of each."""
        return np.array([len(a) for a in self.parts.sets], dtype=np.int64)

    @cached_property
    def p(self) -> Floats:
        """(parts,) squared length of what one record adds to each residual."""
        return np.array([math.prod(1 - 1 / n for n in self.parts.shape(a)) for a in self.parts.sets])

    @cached_property
    def dimension(self) -> Integers:
        """(parts,) of each residual space."""
        return np.array([math.prod(n - 1 for n in self.parts.shape(a)) for a in self.parts.sets], dtype=np.int64)

    @cached_property
    def within(self) -> tuple[Integers, Integers, Floats]:
        """(part, table, cells of the table for one of the part), for every part of every table."""
        found = []
        for t, m in enumerate(self.tables.sets):
            free = tuple(i for i in m if self.tables.sizes[i] > 1)
            for k in range(len(free) + 1):
                found += [(self.parts.place[a], t) for a in itertools.combinations(free, k)]
        part, table = np.array(found, dtype=np.int64).T
        return part, table, self.tables.cells[table] / self.parts.cells[part]

    @cached_property
    def variance(self) -> sp.csr_array:
        """(tables, parts) K: K s is the variance of a cell of every table."""
        part, table, outside = self.within
        shape = len(self.tables.sets), len(self.parts.sets)
        return sp.csr_array((self.p[part] / outside**2, (table, part)), shape=shape)

    @cached_property
    def sums(self) -> sp.csr_array:
        """(entries of parts, entries of tables) 0/1: every table summed to every part in it, added up over tables."""
        row: list[Integers] = []
        column: list[Integers] = []
        for part, table, _ in zip(*self.within, strict=True):
            a, m = self.parts.sets[part], self.tables.sets[table]
            strides = np.cumprod([1, *self.parts.shape(a)[:0:-1]], dtype=np.int64)[::-1]
            cell = np.zeros(self.tables.shape(m), dtype=np.int64)
            for i, stride in zip(a, strides, strict=False):
                at = [1] * cell.ndim
                at[m.index(i)] = -1
                cell += (stride * np.arange(self.parts.sizes[i])).reshape(at)
            row.append(self.parts.start[part] + cell.ravel())
            column.append(np.arange(self.tables.start[table], self.tables.start[table + 1]))
        shape = int(self.parts.start[-1]), int(self.tables.start[-1])
        rows, columns = np.concatenate(row), np.concatenate(column)
        return sp.csr_array((np.ones(rows.size), (rows, columns)), shape=shape)

    @cached_property
    def tables_of(self) -> Integers:
        """(parts,) the smallest table that has it."""
        part, table, _ = self.within
        order = np.argsort(self.tables.cells[table], kind="stable")[::-1]
        out = np.zeros(len(self.parts.sets), dtype=np.int64)
        out[part[order]] = table[order]
        return out

    def summed(self, counts: Integers) -> Integers:
        """(entries of parts,) the smallest table that has a part, summed to it. PRIVATE."""
        first = self.sums.tocoo()
        own = self.tables_of[self.parts.which[first.row]] == self.tables.which[first.col]
        chosen = sp.csr_array((np.ones(own.sum(), dtype=np.int64), (first.row[own], first.col[own])), shape=first.shape)
        return np.asarray(chosen @ counts)

    @property
    def most(self) -> int:
        """Counts up to this are exact numbers, and have exact brackets in 64-bit integers.

        The bracket of one axis is at most 2 (n - 1) times its largest entry, of counts that are not negative (n - 1)
        times: of k axes 2^(k - 1) times the product of their n - 1. An entry of a summed table is at most the cells
        that it sums times the largest count. So a bracket is below 2^(k - 1) times the cells times that count.
        """
        return min(2**52, int(2**62 // (2 ** int(self.order.max()) * self.tables.cells.max())))

    def coordinates(self, counts: Integers) -> tuple[PrivateArray, Integers]:
        """The residuals of tables of counts in an orthonormal basis, and the part each number belongs to. PRIVATE.

        ``counts`` : (entries of tables,). The basis is Helmert's: number j of a column is ``(q_0 + ... + q_{j-1} -
        j q_j) / sqrt(j (j + 1))``; the bracket is computed in 64-bit integers without rounding.
        """
        summed, out, which = self.summed(counts), [], []
        for sets, entries, shape in self.parts.groups:
            block, scale = summed[entries].reshape(-1, *shape), np.ones((1,) * (len(shape) + 1))
            for axis, n in enumerate(shape, 1):
                j = np.arange(1, n).reshape([-1 if k == axis else 1 for k in range(block.ndim)])
                before = np.cumsum(block, axis=axis).take(range(n - 1), axis)
                block, scale = before - j * block.take(range(1, n), axis), scale / np.sqrt(j * (j + 1.0))
            out.append((block * scale).ravel())
            which.append(np.repeat(np.arange(sets.start, sets.stop), self.dimension[sets]))
        return PrivateArray(np.concatenate(out)), np.concatenate(which)

    def residuals_of(self, tables: Floats) -> Floats:
        """(entries of parts,) residuals of tables that agree."""
        return from_tables(self, tables, np.ones(len(self.tables.sets)))[0]

    def rebuilt(self, coordinates: Floats) -> Floats:
        """(entries of parts,) residuals from their coordinates: post-processing."""
        out, start = np.zeros(int(self.parts.start[-1])), 0
        for sets, entries, shape in self.parts.groups:
            end = start + int(self.dimension[sets].sum())
            block = coordinates[start:end].reshape(sets.stop - sets.start, *(n - 1 for n in shape))
            for axis, n in enumerate(shape, 1):
                block = np.moveaxis(np.tensordot(block, _helmert(n), (axis, 0)), -1, axis)
            out[entries], start = block.ravel(), end
        return out


def _helmert(n: int) -> Floats:
    """(n - 1, n) orthonormal rows, each orthogonal to ones."""
    j = np.arange(1.0, n)[:, None]
    rows = np.where(np.arange(n) < j, 1.0, np.where(np.arange(n) == j, -j, 0.0))
    return np.asarray(rows / np.sqrt(j * (j + 1)))


# ------------------------------------------------------------------ how precisely each is measured
def best_variances(residuals: Residuals, importance: Floats, loss: Loss, measured: Floats) -> Floats:
    """(parts,) s_A with ``sum p_A / s_A = 1`` that make the workload's variances small; 0 where not ``measured``.

    "mean": ``sum over M of importance_M^2 (cells of M) V_M`` is least at ``s_A ~ sqrt(p_A / v_A)``, v_A the coefficient
    of ``s_A p_A`` in it (Cauchy-Schwarz). "max": the largest ``importance_M^2 V_M``, convex in s. In log s its
    log-sum-exp of power P plus ``log sum p_A / s_A`` is convex and does not depend on the scale of s: minimised for P =
    2, 8, ..., 512 by L-BFGS. It is above the largest by a factor of at most ``(marginals)^(1/P)``, 2 % for 5,000.
    """
    K = residuals.variance[:, measured > 0].multiply(importance[:, None] ** 2).tocsr()
    moved = np.flatnonzero(K.sum(axis=1))  # not a table of one cell, where the number of records is public
    K = sp.csr_array(K[moved])
    p = residuals.p[measured > 0]
    s = np.sqrt(p / (K.T @ residuals.tables.cells[moved].astype(float)))

    def objective(log_s: Floats, power: float) -> tuple[float, Floats]:
        s = np.exp(log_s)
        variance = np.log(K @ s)
        each, total = np.exp(power * variance - logsumexp(power * variance)), logsumexp(np.log(p) - log_s)
        derivative = s * (K.T @ (each / np.exp(variance))) - np.exp(np.log(p) - log_s - total)
        return float(logsumexp(power * variance) / power + total), derivative

    if loss == "max":
        log_s = np.log(s)
        for power in (2.0, 8.0, 32.0, 128.0, 512.0):
            log_s = minimize(objective, log_s, (power,), method="L-BFGS-B", jac=True, options={"maxiter": 300}).x
        s = np.exp(log_s)
    out = np.zeros(measured.size)
    out[measured > 0] = s * (p / s).sum()
    return out


def largest_change(residuals: Residuals, s: Floats, neighbors: Neighbors) -> float:
    """The largest squared length of what one record does to all residuals, each divided by sqrt(s_A); 0 is unmeasured.

    *Add-remove.* A record adds ``C_A e_x``, e_x its cell, of squared length p_A: the sum of ``p_A / s_A``, whatever x.

    *Replace-one.* Two records that differ in the columns D move residual A by ``C_A (e_x - e_y)``. As ``e_x' C_A e_y``
    is the product over the columns of A of ``1 - 1/n_i`` where they agree and of ``-1/n_i`` where not, its squared
    length is ``2 (p_A - that product)``. The sum over A depends on D alone. It may be above twice ``sum p_A / s_A``, as
    the product may be negative: a lone pair of two values each is moved by 4 times what add-remove moves it. Up to 16
    columns all D are tried; beyond, every term is at most ``2 p_A m / (m - 1)``, m the fewest values of a column of A:
    the most negative product has one factor ``-1/n_i`` in place of ``1 - 1/n_i``, ratio ``-1/(n_i - 1)``. For pairs
    ``_of_pairs`` is closer.
    """
    used = np.flatnonzero((s > 0) & ((residuals.order > 0) | (neighbors == "add-remove")))
    if neighbors == "add-remove":
        return float((residuals.p[used] / s[used]).sum())
    sets = [residuals.parts.sets[k] for k in used]
    columns = sorted({i for a in sets for i in a})
    if len(columns) > _EVERY_SET:
        fewest = np.array([min(residuals.parts.shape(a)) for a in sets])
        each = float((2 * residuals.p[used] * fewest / (fewest - 1) / s[used]).sum())
        return min(each, _of_pairs(residuals, s, used)) if len(sets[-1]) <= 2 else each
    differ = np.array(list(itertools.product([False, True], repeat=len(columns))))
    at = {i: np.where(differ[:, k], 0.0, 1.0) - 1 / residuals.parts.sizes[i] for k, i in enumerate(columns)}
    moved = np.zeros(len(differ))
    for k, a in zip(used, sets, strict=True):
        product = np.ones(len(differ))
        for i in a:
            product *= at[i]
        moved += 2 * (residuals.p[k] - product) / s[k]
    return float(moved.max(initial=0.0))


def _of_pairs(residuals: Residuals, s: Floats, used: Integers) -> float:
    """A bound on the largest change under replace-one where no part has more than two columns.

    With y the indicator of D and x_i = 1 - 1/n_i - y_i, the change is ``sum 2 p_A / s_A - 2 g(y)``, g(y) = ``sum over
    columns x_i / s_i + sum over pairs x_i x_j / s_ij``. Adding ``c (y_i^2 - y_i) / 2``, 0 at 0 and 1, with c minus the
    least eigenvalue of the matrix of 1 / s_ij makes g convex, so that from any point of the box its tangent is below
    it: the least value of the tangent at the corners bounds g. The point is the minimum that L-BFGS finds.
    """
    rest = 1 - 1 / np.array(residuals.parts.sizes, dtype=float)
    linear, pairs = np.zeros(rest.size), np.zeros((rest.size, rest.size))
    for k in used:
        a = residuals.parts.sets[k]
        if len(a) == 1:
            linear[a[0]] = 1 / s[k]
        else:
            pairs[a], pairs[a[::-1]] = 1 / s[k], 1 / s[k]
    c = max(-np.linalg.eigvalsh(pairs)[0], 0.0) * (1 + 1e-9)

    def convex(y: Floats) -> tuple[float, Floats]:
        x = rest - y
        value = linear @ x + x @ pairs @ x / 2 + c * (y @ y - y.sum()) / 2
        return float(value), -linear - pairs @ x + c * (y - 0.5)

    y = minimize(convex, np.full(rest.size, 0.5), method="L-BFGS-B", jac=True, bounds=[(0.0, 1.0)] * rest.size).x
    value, slope = convex(y)
    least = value + float(np.minimum(-slope * y, slope * (1 - y)).sum())
    added = float((2 * residuals.p[used] / s[used]).sum())
    return (added - 2 * least) * (1 + 1e-9)


def from_tables(residuals: Residuals, values: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Residuals from noisy tables, and the variance of each: least squares without bounds.

    ``values`` : (entries of tables,); ``variance`` : (tables,) of a cell, inf where a table was not measured. A table
    summed to A has noise of variance ``variance (cells of M for one of A)``; what several tables say of A is weighted
    by its precision.
    """
    part, table, outside = residuals.within
    precision = np.bincount(part, 1 / (variance[table] * outside), minlength=len(residuals.parts.sets))
    weight = 1 / (variance * residuals.tables.cells)
    summed = residuals.sums @ (values * weight[residuals.tables.which]) * residuals.parts.cells[residuals.parts.which]
    return residuals.parts.centred(summed / precision[residuals.parts.which]), 1 / precision
