"""The weighted least-squares estimate without bounds: linear and unbiased, so its error depends on the noise alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from dpmodel._types import Floats
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm, Postprocessing, picks
from dpmodel.compile.likelihood.tree_of import tree_problem
from dpmodel.errors import UnsupportedModelError
from dpmodel.execute.progress import Report
from dpmodel.numerics.trees.projector import TreeProjector
from dpmodel.privacy import PublicGenerator
from dpmodel.queries.refits import form_of, measured_rows, noise_of

# Regularisation of the factorised system, relative to its entries, and what it may leave of an undetermined direction.
_RIDGE, _UNDETERMINED = 1e-9, 1e-5
# Right-hand sides at once hold about this many numbers.
_BATCH = 2_000_000
# Unknowns that a sparse factorisation is tried for, and entries that M' W M may have in it; gigabytes for either.
MOST_UNKNOWNS, _FILL, _GIGABYTES = 400_000, 2e7, 2.0
# Up to so many sums and equalities the dense factorisation is the faster one.
_FEW = 3_000

# (batch, rows) values to (batch, n), with the known constants or with zeros in their place.
Estimate = Callable[[Floats, bool], Floats]
Undetermined = Callable[[sp.csr_array | None], npt.NDArray[np.bool_]]


def linear_errors(
    model: Postprocessing, rows: sp.csr_array | None, count: int, generator: PublicGenerator, report: Report
) -> tuple[Floats, Floats]:
    """(k,) estimates of the functions ``rows`` of x (None: its entries), and (count, k) simulated errors of them.

    Both are infinite for functions that measurements and equalities do not determine.
    """
    form = form_of(model)
    weight = np.zeros(form.value.size)  # penalties have no say: they would bias the estimate
    for noisy, at in zip(model.measurements, measured_rows(model), strict=True):
        weight[at] = 1.0 / np.square(noisy.standard_deviation).ravel(order="F")
    probe = generator.standard_normal(form.size + 1)
    estimate, undetermined = _tree(model, weight, probe) or _sparse(form, weight, probe)

    def read(x: Floats) -> Floats:
        """(batch, n) -> (batch, k)"""
        return x if rows is None else np.asarray((rows @ x.T).T)

    center = read(estimate(form.value[None, :], True))[0]
    size = center.size
    errors = np.empty((count, size))
    batch = max(1, _BATCH // max(form.size + form.equality.shape[0], 1))
    for start in range(0, count, batch):
        stop = min(start + batch, count)
        noise = np.stack([noise_of(model, generator) for _ in range(stop - start)])
        errors[start:stop] = read(estimate(noise, False))
        report("simulated errors", stop / count)
    lost = undetermined(rows)
    errors[:, lost] = np.inf
    center[lost] = 0.0
    return center, errors


def _tree(model: Postprocessing, weight: Floats, probe: Floats) -> tuple[Estimate, Undetermined] | None:
    """On a tree: two passes over its levels."""
    problem = tree_problem(model)
    if problem is None or not np.array_equal(problem.value, form_of(model).value):
        return None
    tree, select = problem.tree, problem.select
    total = np.bincount(problem.node, weights=weight, minlength=tree.size)
    fixed = np.where(problem.lower == problem.upper, problem.lower, np.nan)
    held = ~np.isnan(fixed)

    def means(values: Floats) -> Floats:
        mean = np.bincount(problem.node, weights=weight * values, minlength=tree.size)
        return np.divide(mean, total, out=np.zeros(tree.size), where=total > 0)

    at_value = TreeProjector(tree, total, fixed if held.any() else None)
    at_zero = TreeProjector(tree, total, np.where(held, 0.0, np.nan) if held.any() else None)

    def estimate(values: Floats, constants: bool) -> Floats:
        projector = at_value if constants else at_zero
        return np.stack([projector.project(means(each))[select] for each in values])

    # Consistent numbers that are drawn at random, measured without noise: what the estimate misses is undetermined.
    drawn = tree.sums(probe[: int(tree.is_leaf.sum())])
    again = TreeProjector(tree, total, np.where(held, drawn, np.nan) if held.any() else None)
    missed = (drawn - again.project(means(drawn[problem.node])))[select]
    return estimate, _reads(missed, float(np.abs(drawn).max(initial=1.0)))


def _sparse(form: LikelihoodForm, weight: Floats, probe: Floats) -> tuple[Estimate, Undetermined]:
    """By the optimality conditions ``[[M' W M, A'], [A, 0]]``: factorised once with a ridge, and refined without it."""
    M, n = form.matrix, form.size
    fixed = np.flatnonzero(form.lower == form.upper)
    A = sp.vstack([form.equality, picks(fixed, n)], format="csr")
    value = np.concatenate([form.equality_value, form.lower[fixed]])
    scaled = weight / np.median(weight[weight > 0])
    try:
        solve = _factorised(M, scaled, A)
    except MemoryError:
        raise _too_large(f"{n} unknowns and {A.shape[0]} equalities", "the factorisation ran out of memory") from None

    def conditions(point: Floats) -> Floats:
        x, multiplier = point[:n], point[n:]
        return np.concatenate([M.T @ (scaled[:, None] * (M @ x)) + A.T @ multiplier, A @ x])

    def solved(right: Floats, steps: int = 3) -> Floats:
        out = solve(right)
        for _ in range(steps):
            out += solve(right - conditions(out))
        return np.asarray(out[:n])

    def estimate(values: Floats, constants: bool) -> Floats:
        top = M.T @ (scaled[:, None] * values.T)
        low = np.repeat(value[:, None] if constants else np.zeros((value.size, 1)), values.shape[0], axis=1)
        return solved(np.vstack([top, low])).T

    drawn = probe[:n, None]
    missed = (drawn - solved(conditions(np.vstack([drawn, np.zeros((A.shape[0], 1))]))))[:, 0]
    return estimate, _reads(missed, float(np.abs(drawn).max(initial=1.0)))


def _factorised(M: sp.csr_array, weight: Floats, A: sp.csr_array) -> Callable[[Floats], Floats]:
    """The solution, up to a ridge, for (n + p, k) right-hand sides.

    Sums over many cells fill M' W M. Where there are few of them they are low-rank terms: with D the weights of cells
    measured alone, H the other rows and A, and z = W H x, what is left after x is one dense system of the size of H.
    """
    n, p = M.shape[1], A.shape[0]
    entries = np.diff(M.indptr)
    alone, several = np.flatnonzero(entries == 1), np.flatnonzero((entries > 1) & (weight > 0))
    H = sp.csr_array(sp.vstack([M[several], A], format="csr"))
    sparse = float(np.square(entries.astype(np.float64)).sum()) <= _FILL and n + p <= MOST_UNKNOWNS
    if sparse and H.shape[0] > _FEW:
        normal = M.T @ sp.diags_array(weight) @ M
        blocks = [[normal + _RIDGE * sp.eye_array(n), A.T], [A, -_RIDGE * sp.eye_array(p)]]
        conditions = sp.csc_array(sp.block_array(blocks, format="csc"))
        if 24 * _fill(conditions) / 1e9 <= _GIGABYTES:  # two factors, a number and its place for each entry
            factor = splu(conditions)
            return lambda right: np.asarray(factor.solve(right))
    gigabytes = 24 * H.shape[0] ** 2 / 1e9  # the sparse product, and its array
    if gigabytes > _GIGABYTES:
        what = f"{n} unknowns under {H.shape[0]} sums and equalities"
        raise _too_large(what, f"a dense factorisation of about {gigabytes:.3g} GB; served are {_GIGABYTES:g}")
    first = M.indptr[alone]
    own = np.bincount(M.indices[first], weight[alone] * M.data[first] ** 2, minlength=n) + 1e-6
    inner = (H @ sp.diags_array(1.0 / own) @ H.T).toarray(order="F")
    diagonal = np.arange(H.shape[0])
    inner[diagonal, diagonal] += np.concatenate(
        [1.0 / weight[several], np.full(p, _RIDGE * float(np.trace(inner)) / max(H.shape[0], 1))]
    )
    factored = cho_factor(inner, overwrite_a=True)

    def solve(right: Floats) -> Floats:
        above, below = right[:n] / own[:, None], np.zeros((H.shape[0], right.shape[1]))
        below[several.size :] = right[n:]
        inside = cho_solve(factored, H @ above - below)
        return np.concatenate([above - (H.T @ inside) / own[:, None], inside[several.size :]])

    return solve


def _fill(matrix: sp.csc_array) -> int:
    """At most so many entries has a triangular factor of the symmetric matrix in one order at least: that of Cuthill
    and McKee, in which it fills the envelope, with the rows of most entries last, which fill up."""
    rows = sp.csr_array(matrix)
    hubs = np.diff(rows.indptr) > 10 * math.sqrt(rows.shape[0])
    rest = rows[~hubs][:, ~hubs]
    order = reverse_cuthill_mckee(rest, symmetric_mode=True)
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    first = np.arange(order.size)
    np.minimum.at(first, np.repeat(place, np.diff(rest.indptr)), place[rest.indices])
    return int((np.arange(order.size) - first + 1).sum()) + int(hubs.sum()) * int(rows.shape[0])


def _too_large(what: str, why: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"intervals from noise for {what}",
        why=why,
        remedy="standard_errors(fit), which only fits again; or method='percentile' or 'basic', or over='marginals'",
    )


def _reads(missed: Floats, size: float) -> Undetermined:
    def undetermined(rows: sp.csr_array | None) -> npt.NDArray[np.bool_]:
        if rows is None:
            return np.abs(missed) > _UNDETERMINED * size
        lost: npt.NDArray[np.bool_] = np.abs(rows @ missed) > _UNDETERMINED * size * np.maximum(
            abs(rows).sum(axis=1), 1e-300
        )
        return lost

    return undetermined
