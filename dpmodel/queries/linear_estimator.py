"""The weighted least-squares estimate without bounds: linear and unbiased, so its error depends on the noise alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from dpmodel.compile.affine_map import Floats
from dpmodel.compile.postprocessing import LikelihoodForm, Postprocessing
from dpmodel.compile.tree_of import tree_problem
from dpmodel.errors import UnsupportedModelError
from dpmodel.mechanisms.postprocess.tree_projector import TreeProjector
from dpmodel.privacy import PublicGenerator
from dpmodel.progress import Report
from dpmodel.queries.consistent import picks
from dpmodel.queries.refits import form_of, measured_rows, noise_of

# Regularisation of the factorised system, relative to its entries, and what it may leave of an undetermined direction.
_RIDGE, _UNDETERMINED = 1e-9, 1e-5
# Right-hand sides at once hold about this many numbers.
_BATCH = 2_000_000
# Unknowns that a sparse factorisation is tried for.
MOST_UNKNOWNS = 400_000

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
    """By one factorisation of the optimality conditions, regularised: ``[[M' W M + r, A'], [A, -r]]``."""
    M, n = form.matrix, form.size
    fixed = np.flatnonzero(form.lower == form.upper)
    A = sp.vstack([form.equality, picks(fixed, n)], format="csr")
    value = np.concatenate([form.equality_value, form.lower[fixed]])
    if n + A.shape[0] > MOST_UNKNOWNS:
        raise UnsupportedModelError(
            f"intervals from noise for {n} unknowns and {A.shape[0]} equalities",
            why=f"they take a sparse factorisation, which is tried up to {MOST_UNKNOWNS}",
            remedy="method='percentile' or 'basic'",
        )
    W = sp.diags_array(weight / np.median(weight[weight > 0]))
    ridge = _RIDGE
    normal = M.T @ W @ M
    system = sp.block_array(
        [[normal + ridge * sp.eye_array(n), A.T], [A, -ridge * sp.eye_array(A.shape[0])]], format="csc"
    )
    exact = sp.block_array([[normal, A.T], [A, sp.csr_array((A.shape[0], A.shape[0]))]], format="csr")
    factor = splu(system)

    def solved(right: Floats, steps: int = 3) -> Floats:
        out = factor.solve(right)
        for _ in range(steps):  # refinement against the system without the regularisation
            out += factor.solve(right - exact @ out)
        return np.asarray(out[:n])

    def estimate(values: Floats, constants: bool) -> Floats:
        top = M.T @ (W @ values.T)
        low = np.repeat(value[:, None] if constants else np.zeros((value.size, 1)), values.shape[0], axis=1)
        return solved(np.vstack([top, low])).T

    drawn = probe[:n]
    right = np.concatenate([normal @ drawn, A @ drawn])
    missed = drawn - solved(right[:, None])[:, 0]
    return estimate, _reads(missed, float(np.abs(drawn).max(initial=1.0)))


def _reads(missed: Floats, size: float) -> Undetermined:
    def undetermined(rows: sp.csr_array | None) -> npt.NDArray[np.bool_]:
        if rows is None:
            return np.abs(missed) > _UNDETERMINED * size
        lost: npt.NDArray[np.bool_] = np.abs(rows @ missed) > _UNDETERMINED * size * np.maximum(
            abs(rows).sum(axis=1), 1e-300
        )
        return lost

    return undetermined
