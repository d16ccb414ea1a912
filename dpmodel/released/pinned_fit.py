"""Tables that are non-negative and agree, from noisy residuals: post-processing, it reads released and public numbers.

Pinned from the top down: the total, then every column on the simplex of that total, then all larger tables by least
squares over the residuals with the columns fixed. A joint fit with a free total is worse than cutting negative cells
off, because these cells lift the total (twice the error where noise drowns most cells).

The least squares is ADMM. Residual spaces are orthogonal, so its quadratic step has a closed form for each residual,
and the other step cuts at zero: the table over all columns is never formed. It ends with a projection of every table
onto those with the fitted columns, which changes a table by at most twice what its margins were off (Altschuler,
Weed and Rigollet 2017, Algorithm 2). So tables are non-negative exactly, and all have the same total and columns up to
rounding; larger shared parts (pairs of two triples) agree to the tolerance of the fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.released.residuals import Residuals

_STEPS = 400
# Margins that differ by less than this share of the least noise of a cell are taken as equal.
_TOLERANCE = 1e-3
_RELAXED = 1.6


def fitted_tables(
    residuals: Residuals, noisy: Floats, variance: Floats, total: float | None, *, shrink: bool = False
) -> Floats:
    """(entries of tables,) the fit.

    ``noisy`` : (entries of parts,) residuals, ``variance`` : (parts,) of each. ``total`` : where it is public.
    ``shrink`` : pull residuals of two and more columns towards those of independent columns first.
    """
    parts, tables = residuals.parts, residuals.tables
    total = float(max(noisy[0], 1.0)) if total is None else total
    columns = _columns(residuals, noisy, total)
    base = _independent(residuals, columns, total)
    high = int((residuals.order < 2).sum())
    if high == len(parts.sets):
        return base
    cut = int(parts.start[high])
    S = sp.csr_array(residuals.sums[cut:])
    back = sp.csr_array(S.T)
    which, cells = parts.which[cut:], parts.cells[parts.which[cut:]].astype(float)
    per_cell = 1 / tables.cells[tables.which]
    low = noisy.copy()
    low[cut:] = 0.0
    for i, column in columns.items():
        if (i,) in parts.place:
            start = int(parts.start[parts.place[i,]])
            low[start : start + column.size] = column - column.mean()
    low[0] = total
    fixed = (residuals.sums.T @ (low * parts.cells[parts.which])) * per_cell

    def centred(values: Floats) -> Floats:
        return parts.centred(np.concatenate([np.zeros(cut), values]))[cut:]

    target, s = noisy[cut:], variance
    if shrink:
        independent = residuals.residuals_of(base)[cut:]
        target, s = _shrunk(residuals, target, independent, s, high)
    weight = 1 / np.maximum(residuals.variance @ s, 1e-300)  # of every table
    part, table, outside = residuals.within
    pull = np.bincount(part, weight[table] / outside, minlength=len(parts.sets))[which]
    precision, k = 1 / s[which], weight[tables.which] * per_cell
    z, u = np.maximum(base, 0.0), np.zeros(base.size)
    noise = np.sqrt(1 / weight.max())
    for _ in range(_STEPS):
        w = (precision * target + centred(cells * (S @ ((z - u - fixed) * k)))) / (precision + pull)
        found = fixed + (back @ (w * cells)) * per_cell
        mixed = _RELAXED * found + (1 - _RELAXED) * z
        before, z = z, np.maximum(mixed + u, 0.0)
        u += mixed - z
        if max(np.abs(found - z).max(), np.abs(z - before).max()) < _TOLERANCE * noise:
            break
    return _with_columns(residuals, z, columns, total)


def onto_simplex(values: Floats, total: float) -> Floats:
    """The nearest non-negative vector with this sum."""
    down = np.sort(values)[::-1]
    shift = (np.cumsum(down) - total) / np.arange(1, values.size + 1)
    return np.asarray(np.maximum(values - shift[np.flatnonzero(down > shift)[-1]], 0.0))


def _columns(residuals: Residuals, noisy: Floats, total: float) -> dict[int, Floats]:
    """Column -> its fitted table."""
    parts, out = residuals.parts, {}
    for i in sorted({i for m in residuals.tables.sets for i in m}):
        n = residuals.tables.sizes[i]
        out[i] = np.array([total])
        if (i,) in parts.place:
            start = int(parts.start[parts.place[i,]])
            out[i] = onto_simplex(total / n + noisy[start : start + n], total)
    return out


def _independent(residuals: Residuals, columns: dict[int, Floats], total: float) -> Floats:
    """(entries of tables,) what independent columns would give."""
    out = np.empty(int(residuals.tables.start[-1]))
    for block, margins in _blocks(residuals, out, columns):
        block[...] = total * math.prod(m / total for m in margins) if margins else total
    return out


def _blocks(residuals: Residuals, values: Floats, columns: dict[int, Floats]) -> Iterator[tuple[Floats, list[Floats]]]:
    """Tables of one shape as an array (tables, *shape), and the fitted columns of each axis, shaped alike."""
    for sets, entries, shape in residuals.tables.groups:
        block = values[entries].reshape(-1, *shape)
        margins = []
        for axis, n in enumerate(shape):
            stacked = np.array([columns[m[axis]] for m in residuals.tables.sets[sets]])
            margins.append(stacked.reshape([-1, *(n if j == axis else 1 for j in range(len(shape)))]))
        yield block, margins


def _with_columns(residuals: Residuals, values: Floats, columns: dict[int, Floats], total: float) -> Floats:
    """Every table onto those with the fitted columns: scale what is too large down, spread what is missing."""
    for block, margins in _blocks(residuals, values, columns):
        axes = range(1, block.ndim)
        others = [tuple(j for j in axes if j != axis) for axis in axes]
        for margin, rest in zip(margins, others, strict=True):
            now = block.sum(axis=rest, keepdims=True)
            block *= np.minimum(1.0, np.divide(margin, now, out=np.ones_like(now), where=now > margin))
        missing = [
            np.maximum(margin - block.sum(axis=rest, keepdims=True), 0.0)
            for margin, rest in zip(margins, others, strict=True)
        ]
        left = missing[0].sum(axis=tuple(axes), keepdims=True)
        share = [np.divide(m, left, out=np.zeros_like(m), where=left > 0) for m in missing]
        block += left * math.prod(share)
    return values


def _shrunk(residuals: Residuals, noisy: Floats, base: Floats, variance: Floats, high: int) -> tuple[Floats, Floats]:
    """Positive-part James-Stein: what is left of each residual above that of independent columns, and its variance."""
    which = residuals.parts.which[int(residuals.parts.start[high]) :]
    excess = noisy - base
    length = np.bincount(which, excess**2, minlength=variance.size)
    k = residuals.dimension
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(k > 2, 1 - (k - 2) * variance / length, length / (length + variance))
    factor = np.where(residuals.order < 2, 1.0, np.maximum(np.nan_to_num(factor), 1e-9))
    return base + factor[which] * excess, variance * factor
