"""Strategies for rows that add up common private numbers: fewer, better combinations to measure than the rows.

Rows ``W theta`` are rebuilt from noised numbers ``S theta`` by ``R`` with ``R S = W``. Under Gaussian noise row i has
the standard deviation ``D_2(S) ||R_i||_2 / mu``, where D_2(S), the 2-norm sensitivity of ``S theta``, is largest column
of S times the change of its entry where a record owns one entry. Whatever S is, the numbers are linear functions of
theta: what one record does to them is computed from S as for any measurement (``noise_design.scaled``), so nothing here
bears on privacy. All of it reads public coefficients and declared changes.

Rows fall into components that have no private entry in common, and each component is factored alone:

* *Running sums*: rows that are nested sums of the same terms, in any order, with any sign and scale. With T of them
  ``W = P D``, P the lower triangle of ones and D the terms that each row adds. P is the square of the lower Toeplitz
  matrix L with the coefficients f_k = binom(2k, k) / 4^k, since ``(sum f_k z^k)^2 = 1 / (1 - z)``. So ``R = L`` and
  ``S = L D``: the squares of a column and of a row add up to ``sum_{k < T} f_k^2 = 1 + (ln T) / pi + ...`` at most, in
  place of T in one of the two (Fichtenberger, Henzinger and Upadhyay 2023). A scale r_i of row i,
  as in discounted sums, goes to both sides: ``diag(r) P = (diag(r) L diag(1/r)) (diag(r) L)``.
* *Windows*: sums of w neighbouring terms. They are rows of a circulant matrix C with eigenvalues z. With eigenvalues
  ``|z|^(1/2)`` for S and ``z / |z|^(1/2)`` for R the squares of a column and of a row add up to the mean of ``|z|``,
  in place of w in one of the two.
* *Any other rows*, up to a hundred terms: for X = S'S the square of row i is ``w_i' X^-1 w_i``. For weights q of rows
  the least weighted sum with ``diag X <= 1`` has ``X = V^(-1/2) (V^(1/2) W'QW V^(1/2))^(1/2) V^(-1/2)`` with V the
  diagonal that makes ``diag X = 1`` (stationarity; Denisov and others 2022), found by iteration, while q moves to the
  worst rows. It is stopped after a number of steps: any S with ``R S = W`` will do, and the measurement with the least
  noise is taken.

Laplace noise goes by the 1-norm, in which a column of L has ``2 sqrt(T / pi)``: nothing is won there.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
from scipy.linalg import toeplitz

from dpmodel._types import Floats
from dpmodel.compile.affine_map import LinearMap, numbered

# Most terms of a component that is factored by a formula, and by iteration; steps of the iteration.
_DENSE, _ITERATED, _STEPS = 1000, 120, 25
# Cubes of sizes that all iterations may cost together, each counted as at least that of a small component.
_MOST_WORK, _SMALL = 1e7, 3e5


def factored(queries: LinearMap, recover: sp.csr_array, change: Floats) -> tuple[LinearMap, sp.csr_array] | None:
    """S and R with ``R S = recover queries``; None where no component is won.

    ``queries`` : k distinct rows; ``recover`` : (h, k), one entry a row; ``change`` : (P,) how far one record moves
    each entry of theta. Rows of S are scaled so that every component is moved equally far.
    """
    columns, number = numbered(queries.column)
    matrix = sp.csr_array((queries.coefficient, (queries.row, number)), shape=(queries.height, columns.size))
    links = sp.block_array([[None, matrix], [matrix.T, None]], format="csr")
    label = sp.csgraph.connected_components(links, directed=False)[1][: queries.height]
    counts = np.bincount(label)
    shared = np.flatnonzero(counts > 1)
    if not shared.size or shared.size > _DENSE:
        return None
    size = np.zeros(queries.height)
    np.maximum.at(size, recover.indices, np.abs(recover.data))
    move = change[columns]
    row, column, coefficient, left, blocks = [], [], [], [], []
    found: dict[tuple[bytes, ...], tuple[Floats, Floats] | None] = {}
    work, height, won = _MOST_WORK, 0, False
    order = np.argsort(label, kind="stable")
    for rows in np.split(order, np.cumsum(counts)[:-1]):
        own = matrix[rows]
        used = np.unique(own.indices)
        if rows.size == 1:
            S, R = sp.csr_array(own[:, used]), sp.csr_array(np.ones((1, 1)))
        else:
            if max(used.size, rows.size / 2) > _DENSE:
                return None
            dense = own[:, used].toarray()
            key = dense.tobytes(), size[rows].tobytes(), move[used].tobytes()
            cost = max(float(used.size) ** 3, _SMALL)
            if key not in found:
                iterate = used.size <= _ITERATED and rows.size <= 3 * _ITERATED and cost <= work
                work -= cost if iterate else 0.0
                found[key] = _factor(dense, size[rows], move[used], iterate)
            best = found[key]
            won = won or best is not None
            S, R = map(sp.csr_array, best or (dense, np.eye(rows.size)))
        reach = math.sqrt(float((S.multiply(S).sum(axis=0) * move[used] ** 2).max()))
        S = sp.coo_array(S / reach) if reach > 0 else sp.coo_array(S)
        row.append(S.coords[0] + height)
        column.append(columns[used[S.coords[1]]])
        coefficient.append(S.data)
        height += S.shape[0]
        left.append(rows)
        blocks.append(R * reach if reach > 0 else R)
    if not won:
        return None
    rebuilt = sp.block_diag(blocks, format="csr")[np.argsort(np.concatenate(left))]
    S = LinearMap.of(np.concatenate(row), np.concatenate(column), np.concatenate(coefficient), height)
    return S, sp.csr_array(recover @ rebuilt)


def _factor(W: Floats, size: Floats, move: Floats, iterate: bool) -> tuple[Floats, Floats] | None:
    """The best of the factors (S, R) of one component (k, p); None where the rows, or the entries, are as good.

    ``size`` : (k,) by how much each row counts; ``move`` : (p,) how far a record moves each entry.
    """
    plain = [(size[:, None] * W, np.diag(1 / size)), (np.diag(1 / move), W * move)] if (move > 0).all() else []
    candidates = [*_running_sums(W, size), *_windows(W)]
    if iterate and plain and not candidates:
        candidates.append(_iterated(W * move, size, move))

    def noise(factor: tuple[Floats, Floats]) -> float:
        S, R = factor
        return float(np.linalg.norm(S * move, axis=0).max() * (size * np.linalg.norm(R, axis=1)).max())

    exact = [f for f in candidates if np.abs(f[1] @ f[0] - W).max() <= 1e-12 * np.abs(W).max()]
    best = min(exact, key=noise, default=None)
    if best is None or any(noise(best) >= 0.999 * noise(other) for other in plain):
        return None
    return best


def _running_sums(W: Floats, size: Floats) -> tuple[tuple[Floats, Floats], ...]:
    """Of rows that are nested: each, over its coefficient in the shortest one, adds terms to the one before. With their
    scales on both sides, and on one."""
    entries = W != 0
    order = np.argsort(entries.sum(axis=1), kind="stable")
    scale = W[:, np.argmax(entries.sum(axis=0))]  # a term of all rows, if they are nested
    if not scale.all():
        return ()
    sums = (W / scale[:, None])[order]
    terms = np.diff(sums, axis=0, prepend=0.0)
    terms[np.abs(terms) <= 1e-12 * np.abs(sums).max(axis=0)] = 0.0
    if not ((terms != 0).sum(axis=0) == 1).all():
        return ()
    T = order.size
    f = np.cumprod(np.r_[1.0, (2 * np.arange(1, T) - 1) / (2 * np.arange(1, T))])
    L = toeplitz(f, np.zeros(T))
    back = np.argsort(order)
    scales = (np.abs(scale) * size)[order], np.ones(T)
    return tuple((r[:, None] * (L @ terms), (scale[order, None] * L / r)[back]) for r in scales)


def _windows(W: Floats) -> tuple[tuple[Floats, Floats], ...]:
    """Of rows that are sums of as many neighbours, in the order of the entries."""
    k, p = W.shape
    first = np.argmax(W != 0, axis=1)
    width = int((W[0] != 0).sum())
    place = np.arange(p)
    if not np.array_equal(W, W[np.arange(k), first][:, None] * ((place - first[:, None]) % p < width)):
        return ()
    z = np.fft.fft((place < width).astype(np.float64))
    root = np.sqrt(np.abs(z))
    left = np.fft.ifft(np.divide(z, root, out=np.zeros(p, dtype=complex), where=root > 1e-12)).real
    shift = (place[:, None] - place[None, :]) % p
    scale = W[np.arange(k), first]
    # Row i of the circulant matrix is the window that begins at i.
    S, R = np.fft.ifft(root).real[shift], left[-shift % p]
    return ((S, scale[:, None] * R[first]),)


def _iterated(W: Floats, size: Floats, move: Floats) -> tuple[Floats, Floats]:
    """S with columns of like norm over ``move``, nearly of least largest row (the module's docstring)."""
    k, p = W.shape
    weighted = W * size[:, None]
    q, v = np.full(k, 1 / k), np.ones(p)
    for _ in range(_STEPS):
        A = weighted * np.sqrt(v)
        values, vectors = np.linalg.eigh((A * q[:, None]).T @ A)
        values = np.sqrt(np.maximum(values, 1e-14 * values[-1]))
        errors = ((A @ vectors) ** 2 / values).sum(axis=1)
        v = (vectors**2 * values).sum(axis=1)
        q = q * np.sqrt(errors / errors.max())
        q = np.maximum(q / q.sum(), 1e-9 / k)
    A = weighted * np.sqrt(v)
    _, sigma, right = np.linalg.svd(np.sqrt(q)[:, None] * A, full_matrices=False)
    rank = int((sigma > 1e-13 * sigma[0]).sum())
    sigma, right = np.sqrt(sigma[:rank]), right[:rank]
    S = (right.T * sigma) @ right / np.sqrt(v) / move
    return S, (A @ right.T / sigma) @ right / size[:, None]
