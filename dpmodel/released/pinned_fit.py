"""Tables that are non-negative and agree, from noisy residuals: post-processing, it reads released and public numbers.

Pinned from the top down: the total, then every column on the simplex of that total, then all larger tables by least
squares over the residuals with the columns fixed. A joint fit with a free total is worse than cutting negative cells
off, because these cells lift the total (twice the error where noise drowns most cells).

Pairs share columns only, so each is the nearest one with the fitted columns, by Newton's method. With larger tables the
least squares is ADMM: residual spaces are orthogonal, so its quadratic step has a closed form for each residual, and
the other step cuts at zero: the table over all columns is never formed. All end with a projection that changes them by
at most twice what their margins are still off (Altschuler, Weed and Rigollet 2017, Algorithm 2). So tables are
non-negative exactly, and all have the same total and columns up to rounding; larger shared parts (pairs of two triples)
agree to the tolerance of the fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.released.residuals import Layout, Residuals

Fit = Literal["plain", "shrunk", "independent"]

_STEPS = 400
# Margins that differ by less than this share of the least noise of a cell are taken as equal.
_TOLERANCE = 1e-3
_RELAXED = 1.6
_NEWTON_STEPS = 60


def fitted_tables(
    residuals: Residuals, noisy: Floats, variance: Floats, total: float | None, fit: Fit = "plain"
) -> Floats:
    """(entries of tables,) the fit.

    ``noisy`` : (entries of parts,) residuals, ``variance`` : (parts,) of each. ``total`` : where it is public.
    ``fit`` : "shrunk" pulls residuals of two and more columns towards those of independent columns first,
    "independent" takes these.
    """
    parts, tables = residuals.parts, residuals.tables
    total = float(max(noisy[0], 1.0)) if total is None else total
    if total == 0:
        return np.zeros(tables.which.size)
    columns = _columns(residuals, noisy, total)
    base = _independent(residuals, columns, total)
    high = int((residuals.order < 2).sum())
    if high == len(parts.sets) or fit == "independent":
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

    larger = Layout(parts.sets[high:], parts.sizes)

    target = noisy[cut:]
    if fit == "shrunk":
        target = _shrunk(residuals, target, residuals.residuals_of(base)[cut:], variance, high)
    if len(tables.sets[-1]) == 2:  # pairs share columns only: each alone
        return _with_columns(residuals, fixed + (back @ (target * cells)) * per_cell, columns, total)
    weight = 1 / np.maximum(residuals.variance @ variance, 1e-300)  # of every table
    part, table, outside = residuals.within
    pull = np.bincount(part, weight[table] / outside, minlength=len(parts.sets))[which]
    precision, k = 1 / variance[which], weight[tables.which] * per_cell
    z, u = np.maximum(base, 0.0), np.zeros(base.size)
    noise = np.sqrt(1 / weight.max())
    for _ in range(_STEPS):
        w = (precision * target + larger.centred(cells * (S @ ((z - u - fixed) * k)))) / (precision + pull)
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
    """Every table onto those with the fitted columns: pairs by ``_nearest``, and all by scaling what is too large down
    and spreading what is missing, which would gather in a few cells if much were."""
    for block, margins in _blocks(residuals, values, columns):
        axes = range(1, block.ndim)
        others = [tuple(j for j in axes if j != axis) for axis in axes]
        if len(margins) == 2:
            block[...] = _nearest(block, margins[0], margins[1], total)
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


def _nearest(tables: Floats, rows: Floats, columns: Floats, total: float) -> Floats:
    """(tables, n, m) the nearest non-negative tables with these sums: ``(table + a 1' + 1 b')^+``, (a, b) by Newton.

    The dual is concave and piecewise quadratic; its derivative is what the sums miss, its second derivative counts the
    positive cells. Its blocks of rows and of columns are diagonal, so the longer side is eliminated: each step takes
    ``min(n, m)^2 max(n, m)``. Levenberg's damping grows where the sums would miss more; what is left at the end is for
    the caller.
    """
    n, m = tables.shape[1:]
    if n > m:
        return _nearest(tables.swapaxes(1, 2), columns, rows, total).swapaxes(1, 2)
    wanted = np.concatenate([rows.reshape(-1, n), columns.reshape(-1, m)], axis=1)
    dual = np.zeros_like(wanted)

    def at(dual: Floats) -> tuple[Floats, Floats, Floats]:
        shifted = tables + dual[:, :n, None] + dual[:, None, n:]
        found = np.maximum(shifted, 0.0)
        gap = wanted - np.concatenate([found.sum(axis=2), found.sum(axis=1)], axis=1)
        return found, gap, (gap**2).sum(axis=1)

    found, gap, size = at(dual)
    damping = np.full(len(tables), 1e-3)
    for _ in range(_NEWTON_STEPS):
        if size.max() <= (1e-9 * total) ** 2:
            break
        positive = (found > 0).astype(float)
        own, others = positive.sum(axis=2) + damping[:, None], positive.sum(axis=1) + damping[:, None]
        divided = positive / others[:, None, :]
        H = -divided @ positive.swapaxes(1, 2)
        H[:, range(n), range(n)] += own
        first = np.linalg.solve(H, gap[:, :n, None] - divided @ gap[:, n:, None])
        move = np.concatenate([first[..., 0], gap[:, n:] / others - (first.swapaxes(1, 2) @ divided)[:, 0]], axis=1)
        tried = at(dual + move)
        better = tried[2] < size
        dual = np.where(better[:, None], dual + move, dual)
        found, gap = np.where(better[:, None, None], tried[0], found), np.where(better[:, None], tried[1], gap)
        size, damping = np.where(better, tried[2], size), np.where(better, np.maximum(damping / 8, 1e-6), 8 * damping)
    return found


def _shrunk(residuals: Residuals, noisy: Floats, base: Floats, variance: Floats, high: int) -> Floats:
    """What is left of residuals of two and more columns above those of independent columns.

    Of a residual, a matrix of its first column by the others, d are the singular values above independence. Noise of
    variance s in m x N dimensions, m <= N, b = m / N: with y = d / sqrt(s N), each becomes sqrt(s N) times
    ``sqrt((y^2 - b - 1)^2 - 4 b) / y``, 0 up to y = 1 + sqrt(b), which has the least squared error for large matrices
    of low rank (Gavish and Donoho 2017). So one strong cell is left alone where the rest is noise. Residuals of m <= 2
    are small: positive-part James-Stein there, ``1 - (k - 2) s / |e|^2`` of k = m N dimensions.
    """
    out, start = noisy - base, int(residuals.parts.start[high])
    for sets, entries, shape in residuals.parts.groups:
        if len(shape) < 2:
            continue
        here = slice(entries.start - start, entries.stop - start)
        U, d, V = np.linalg.svd(out[here].reshape(-1, shape[0], math.prod(shape[1:])), full_matrices=False)
        s, k = variance[sets, None], int(residuals.dimension[sets.start])
        m = min(shape[0] - 1, k // (shape[0] - 1))
        length = np.maximum((d**2).sum(axis=1, keepdims=True), 1e-300)
        if m <= 2:
            d = d * (np.maximum(1 - (k - 2) * s / length, 0) if k > 2 else length / (length + s))
        else:
            b, y = m * m / k, np.maximum(d / np.sqrt(s * k / m), 1e-300)
            left = np.sqrt(np.maximum((y**2 - b - 1) ** 2 - 4 * b, 0.0)) / y
            d = np.where(y > 1 + math.sqrt(b), left, 0.0) * np.sqrt(s * k / m)
        out[here] = ((U * d[:, None, :]) @ V).ravel()
    return base + out
