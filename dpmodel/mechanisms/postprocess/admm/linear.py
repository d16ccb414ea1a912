"""The x-update of the ADMM: the least-squares problem (15) of LWK15, factorised once, equalities kept exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from dpmodel._types import Floats
from dpmodel.mechanisms.postprocess.admm.splits import Splits

DENSE = 2500  # columns (or equalities) up to which a dense factorisation is used
GRAM = 1500  # equalities up to which their Gram matrix is dense, where K is diagonal
INCONSISTENT = 1e-7  # relative residual of the equalities above which nothing satisfies them
RANK = 1e-11  # relative eigenvalue of a Gram matrix below which a row is taken as redundant
REGULAR, ROUNDS = 1e-8, 2  # delta of the sparse system, and rounds that remove its effect


class InconsistentEqualities(Exception):
    """No x satisfies E x = e."""


class XUpdate(Protocol):
    """``solve(q)`` : argmin over E x = e of 1/2 x'K x - q'x with K = A'diag(p)A."""

    def solve(self, q: Floats) -> Floats: ...


@dataclass(frozen=True, eq=False)
class DiagonalUpdate:
    """K diagonal and no equalities."""

    diagonal: Floats

    def solve(self, q: Floats) -> Floats:
        return q / self.diagonal


@dataclass(frozen=True, eq=False)
class GramUpdate:
    """K diagonal: ``x = v - K^-1 E'(E K^-1 E')^+ (E v - e)`` with v = K^-1 q, the projection onto {E x = e} in the
    norm of K. The Gram matrix's pseudo-inverse is dense (p, p) and drops redundant rows."""

    diagonal: Floats
    equality: sp.csr_array
    transposed: sp.csr_array
    value: Floats
    inverse: Floats

    @staticmethod
    def of(diagonal: Floats, equality: sp.csr_array, value: Floats) -> GramUpdate:
        """Errors: InconsistentEqualities."""
        E = sp.csr_array(equality)
        per_column = np.bincount(E.indices, minlength=E.shape[1]).astype(float)
        gram: Floats
        if per_column @ per_column <= 2e8:
            gram = (E @ sp.diags_array(1 / diagonal) @ E.T).toarray()
        else:
            gram = np.zeros((E.shape[0], E.shape[0]))
            columns = sp.csc_array(E)
            for start in range(0, E.shape[1], 8192):
                block = columns[:, start : start + 8192].toarray() / np.sqrt(diagonal[start : start + 8192])
                gram += block @ block.T
        found = GramUpdate(diagonal, E, sp.csr_array(E.T), value, pseudo_inverse(gram))
        check_equalities(E, value, found.solve(np.zeros(diagonal.size)))
        return found

    def solve(self, q: Floats) -> Floats:
        v = q / self.diagonal
        v -= (self.transposed @ (self.inverse @ (self.equality @ v - self.value))) / self.diagonal
        return v


@dataclass(frozen=True, eq=False)
class DenseUpdate:
    """``x = X q + x0``: the explicit inverse on the equalities, one product with an (n, n) matrix per step."""

    inverse: Floats
    start: Floats

    @staticmethod
    def of(K: Floats, equality: sp.csr_array, value: Floats) -> DenseUpdate:
        """Errors: InconsistentEqualities."""
        # K is positive definite; potri halves the work of a general inverse.
        scale = float(np.mean(np.diag(K)))
        factor, failed = sla.lapack.dpotrf(K / scale, lower=1)
        if failed:
            raise np.linalg.LinAlgError("the matrix of the x-update is not positive definite")
        half, _ = sla.lapack.dpotri(factor, lower=1)
        inverse: Floats = (np.tril(half) + np.tril(half, -1).T) / scale
        start = np.zeros(K.shape[0])
        if equality.shape[0]:
            Y: Floats = np.asarray((equality @ inverse).T)
            pinv = pseudo_inverse(equality @ Y)
            start = Y @ (pinv @ value)
            start += Y @ (pinv @ (value - equality @ start))
            inverse = inverse - Y @ pinv @ Y.T
            check_equalities(equality, value, start)
        return DenseUpdate(inverse, start)

    def solve(self, q: Floats) -> Floats:
        out: Floats = self.inverse @ q + self.start
        return out


@dataclass(frozen=True, eq=False)
class SparseUpdate:
    """Sparse factors of ``[[K, E'], [E, -delta I]]`` (symmetric ordering, no pivoting: the matrix is quasi-definite).

    Each round after the first is one of the proximal method of multipliers, which takes the effect of delta away: two
    leave about delta^2 of the multipliers. Redundant rows of E are harmless.
    """

    factors: Any
    equality: sp.csr_array
    value: Floats
    scale: float

    @staticmethod
    def of(K: sp.csr_array, equality: sp.csr_array, value: Floats) -> SparseUpdate:
        """Errors: InconsistentEqualities."""
        scale = float(K.diagonal().mean())
        norms = np.sqrt(np.asarray(equality.power(2).sum(axis=1)).ravel())
        norms[norms == 0] = 1.0
        E = sp.csr_array(sp.diags_array(1 / norms) @ equality)
        blocks = [[K / scale, E.T], [E, -REGULAR * sp.eye_array(E.shape[0])]] if E.shape[0] else [[K / scale]]
        system = sp.csc_array(sp.block_array(blocks))
        factors = spla.splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        found = SparseUpdate(factors, E, value / norms, scale)
        check_equalities(E, found.value, found.solve(np.zeros(K.shape[0])))
        return found

    def solve(self, q: Floats) -> Floats:
        n = q.size
        if not self.value.size:
            x: Floats = self.factors.solve(q / self.scale)
            return x
        multiplier = np.zeros(self.value.size)
        for _ in range(ROUNDS):
            found = self.factors.solve(np.concatenate([q / self.scale, self.value - REGULAR * multiplier]))
            multiplier = found[n:]
        out: Floats = found[:n]
        return out


def pseudo_inverse(gram: Floats) -> Floats:
    """Of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    keep = values > RANK * max(float(values.max(initial=0.0)), np.finfo(float).tiny)
    inverse: Floats = (vectors[:, keep] / values[keep]) @ vectors[:, keep].T
    return inverse


def check_equalities(equality: sp.csr_array, value: Floats, x: Floats) -> None:
    """Errors: InconsistentEqualities, if x, which satisfies them as well as possible, does not."""
    residual = float(np.abs(equality @ x - value).max(initial=0.0))
    size = max(float(np.abs(value).max(initial=0.0)), float((abs(equality) @ np.abs(x)).max(initial=0.0)))
    if residual > INCONSISTENT * size:
        raise InconsistentEqualities


def x_update(splits: Splits, equality: sp.csr_array, value: Floats, weight: Floats | None = None) -> XUpdate:
    """The cheapest of the four for these sizes; with other penalty weights than the splits' own, (m,), if given.

    Errors: InconsistentEqualities.
    """
    n = splits.size
    B, p = splits.rows, splits.weight if weight is None else weight
    weighted = sp.csr_array(sp.diags_array(p[n:]) @ B)
    if np.all(np.diff(B.indptr) <= 1):
        return diagonal_update(p[:n] + _diagonal(B, p[n:]), equality, value)
    if n <= DENSE and (n <= 300 or B.nnz > 20 * n) and value.size <= DENSE:
        dense = B.toarray() * np.sqrt(p[n:])[:, None]
        return DenseUpdate.of(dense.T @ dense + np.diag(p[:n]), equality, value)
    K = sp.csr_array(splits.transposed @ weighted + sp.diags_array(p[:n]))
    return SparseUpdate.of(K, equality, value)


def gram_is_dense(equality: sp.csr_array) -> bool:
    """Whether few rows of many entries (or few rows at all) make the dense Gram matrix the better choice."""
    rows: int = equality.shape[0]
    return rows <= min(100, GRAM) or (rows <= GRAM and equality.nnz >= 30 * rows)


def diagonal_update(diagonal: Floats, equality: sp.csr_array, value: Floats) -> XUpdate:
    """The cheapest for a diagonal K.

    Errors: InconsistentEqualities.
    """
    if not value.size:
        return DiagonalUpdate(diagonal)
    if gram_is_dense(equality):
        return GramUpdate.of(diagonal, equality, value)
    return SparseUpdate.of(sp.csr_array(sp.diags_array(diagonal)), equality, value)


def _diagonal(B: sp.csr_array, p: Floats) -> Floats:
    found: Floats = np.asarray(B.power(2).T @ p)
    return found
