"""How far a fit may be from the truth: standard errors and intervals, from the declared noise alone."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.privacy import PublicGenerator, public_generator
from dpmodel.problem import Problem
from dpmodel.released.faces.consistent import Consistent
from dpmodel.released.faces.refits import form_of, measured_rows, noise_of, refits, solution_of
from dpmodel.released.form import LikelihoodForm, picks
from dpmodel.released.model import Postprocessing
from dpmodel.released.trees import TreeProjector
from dpmodel.solve.progress import Report, shown
from dpmodel.text import wrapped

# Regularisation of the factorised system, relative to its entries, and what it may leave of an undetermined direction.
_RIDGE, _UNDETERMINED = 1e-9, 1e-5
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
    # Right-hand sides at once hold about this many numbers.
    batch = max(1, 2_000_000 // max(form.size + form.equality.shape[0], 1))
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
    problem = model.tree_problem()
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


# ------------------------------------------------------------------ standard errors and intervals


Method = Literal["noise", "percentile", "basic"]
METHODS = ("noise", "percentile", "basic")
# Numbers of simulated fits that are kept for quantiles.
MOST_KEPT = 100_000_000
ProgressArgument = Callable[[str, float], None] | bool | None


@dataclass(frozen=True, eq=False)
class Intervals:
    """(k,) ends ``low`` and ``high``; unpacks as a pair. Each holds its truth with probability ``level``, one at a
    time. They cost no privacy."""

    low: Floats
    high: Floats
    level: float
    method: str

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.low, self.high))

    def __str__(self) -> str:
        width = float(np.median(self.high - self.low)) if self.low.size else math.nan
        return wrapped(
            f"{self.low.size} intervals at level {self.level:g} ({self.method}), median width {width:.4g}; "
            "simulated from the published numbers and their noise distributions: it costs no privacy"
        )


def standard_errors(
    fit: Any,
    of: Any = None,
    *,
    repetitions: int = 200,
    rng: int = 0,
    mechanism: Any = None,
    progress: ProgressArgument = None,
) -> Floats:
    """Standard deviations of the entries of a fit, or of linear functions of them, by parametric bootstrap.

    The fit is taken for the truth; noise is drawn from the declared distributions, and everything is fitted again, by
    the same solver. All of that is post-processing of published numbers: it costs no privacy.

    Parameters
    ----------
    fit : what ``tree.fit``, ``hierarchy.fit`` or ``consistent_table`` gave, or a post-processing ``dpm.Problem``;
        solved.
    of : which numbers. Of a tree: "histogram", a slice of bins, or a list of slices. Of a hierarchy: a level, a
        name, or a list of names. Of tables: the columns of a marginal. Of a problem: one of its variables. Of any: a
        (k, n) matrix, sparse or dense, or (n,) vector of functions of x. None: the entries of x, in the order of the
        model's form (of a problem: variable after variable, each column by column).
    repetitions : simulated fits; the result is off by about 1 / sqrt(2 repetitions) of its size.
    rng : a seed of the simulation. mechanism : another solver for the refits.
    progress : True, or a function (stage, share).

    Returns
    -------
    (k,) standard errors, of a marginal's or variable's own shape: spread around the mean only. Where bounds bind they
    leave out the bias, which for totals of many small non-negative cells exceeds the spread; and at 0 they are those
    of a truth of exactly the fitted size.

    Raises
    ------
    SpecificationError
        Before the fit was solved, and for ``of`` of another size.
    UnsupportedModelError
        For problems with terms outside the likelihood form, and where published numbers enter in another way than by
        their likelihood (in constraints, in part).
    """
    model, x, solver = _solved(fit)
    rows, shape = _functions(fit, of, model, x.size)
    count = _count(repetitions, 2)
    center = _apply(rows, x)
    first, second = np.zeros(center.size), np.zeros(center.size)
    with shown(progress) as report:
        for done, again in enumerate(refits(model, x, count, rng, mechanism or solver), start=1):
            moved = _apply(rows, again) - center
            first += moved
            second += np.square(moved)
            report("simulated fits", done / count)
    return _shaped(np.sqrt(np.maximum(second - np.square(first) / count, 0.0) / (count - 1)), shape)


def intervals(
    fit: Any,
    of: Any = None,
    level: float = 0.95,
    *,
    method: Method = "noise",
    repetitions: int | None = None,
    rng: int = 0,
    mechanism: Any = None,
    progress: ProgressArgument = None,
) -> Intervals:
    """Intervals for the entries behind a fit, or for linear functions of them. They cost no privacy.

    Parameters
    ----------
    level : probability, in (0, 1), that an interval holds its truth (each on its own).
    method : "noise" (default): around the weighted least-squares estimate without bounds, by quantiles of its error,
        which depends on the noise alone. They hold with probability ``level`` at least, whatever the truth, and are cut
        to what the bounds allow; they need not hold the fitted number. Infinite where the measurements do not
        determine a function. "basic": quantiles of refits with the fit taken for the truth, reflected around the fit,
        which takes its bias off: shorter where bounds bind, not guaranteed. "percentile": these quantiles as they are,
        which bias spoils. See Notes.
    repetitions : simulated fits; default 1,000 for "noise", 400 else.
    fit, of, rng, mechanism, progress : as in ``standard_errors``.

    Raises
    ------
    SpecificationError, UnsupportedModelError
        As ``standard_errors``; and for more functions than simulated fits can be kept of.

    Notes
    -----
    "noise": the error of a linear unbiased estimate, drawn R times, is exchangeable with its actual error, so
    the ceil((R + 1) level)-th smallest of the R absolute errors covers the actual one with probability ``level`` or
    more, for any R and any distribution.

    Shares of truths covered at level 0.9 (binary tree of 32 bins, Laplace noise of scale 6, non-negative most likely
    fits, 80 data sets, 100 refits; ``python -m tests.benchmarks.queries.interval_coverage``):

    =====================================  ======  ======  ===========
    ..                                     noise   basic   percentile
    =====================================  ======  ======  ===========
    30 empty bins beside 2 full ones       0.95    0.96    1.00
    the 2 full bins                        0.89    0.88    0.27
    their total                            0.95    0.94    0.72
    32 full bins                           0.90    0.90    0.89
    mean width at the empty bins           11.1    0.9     4.0
    =====================================  ======  ======  ===========

    Percentiles fail at full bins among empty ones: non-negativity draws such bins down, and refits are drawn down once
    more. "basic" relies on the fit being about as sparse as the truth.
    """
    model, x, solver = _solved(fit)
    form = form_of(model)
    rows, shape = _functions(fit, of, model, x.size)
    if not isinstance(level, numbers.Real) or not 0 < float(level) < 1:
        raise SpecificationError(f"level={level!r}", remedy="a probability in (0, 1), such as 0.95")
    if method not in METHODS:
        raise SpecificationError(f"method={method!r}", remedy=" or ".join(map(repr, METHODS)))
    least = math.ceil(2 / (1 - level)) if method != "noise" else math.ceil(level / (1 - level))
    count = _count(max(1000 if method == "noise" else 400, least) if repetitions is None else repetitions, least)
    size = x.size if rows is None else rows.shape[0]
    if size * count > MOST_KEPT:
        raise SpecificationError(
            f"{count} simulated fits of {size} numbers",
            why=f"their quantiles need all of them at once; kept are {MOST_KEPT}",
            remedy="of=, for fewer functions, or fewer repetitions",
        )
    if method == "noise":
        with shown(progress) as report:
            center, errors = linear_errors(model, rows, count, public_generator(rng), report)
        rank = math.ceil((count + 1) * level)
        half = np.partition(np.abs(errors), rank - 1, axis=0)[rank - 1]
        low, high = center - half, center + half
    else:
        center = _apply(rows, x)
        kept = np.empty((count, size))
        with shown(progress) as report:
            for done, again in enumerate(refits(model, x, count, rng, mechanism or solver)):
                kept[done] = _apply(rows, again)
                report("simulated fits", (done + 1) / count)
        low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2], axis=0)
        if method == "basic":
            low, high = 2 * center - high, 2 * center - low
    bottom, top = range_of(form, rows)
    ends = (_shaped(np.clip(end, bottom, top), shape) for end in (low, high))
    return Intervals(*ends, float(level), method)


def range_of(form: LikelihoodForm, rows: sp.csr_array | None) -> tuple[Floats, Floats]:
    """(k,) least and largest value of each function over the box (other constraints left out)."""
    if rows is None:
        return form.lower, form.upper
    up, down = rows.copy(), rows.copy()
    up.data, down.data = np.maximum(rows.data, 0.0), np.maximum(-rows.data, 0.0)
    # Stored zeros would meet infinite bounds.
    up.eliminate_zeros()
    down.eliminate_zeros()
    return up @ form.lower - down @ form.upper, up @ form.upper - down @ form.lower


# ------------------------------------------------------------------ what was given
def _solved(fit: Any) -> tuple[Postprocessing, Floats, Any]:
    """Model, solution and the solver that found it."""
    if isinstance(fit, Consistent):
        return fit.model, np.asarray(fit.x, dtype=np.float64), fit.mechanism
    model = Postprocessing.recognise(fit) if isinstance(fit, Problem) else None
    if model is None:
        raise SpecificationError(
            f"a {type(fit).__name__} that is no post-processing of published numbers",
            remedy="tree.fit(...), hierarchy.fit(...), consistent_table(...), or a dpm.Problem of neg_log_likelihood",
        )
    if fit.release is None or any(variable.value is None for variable, _ in model.columns):
        raise SpecificationError("the problem was not solved yet", remedy="solve() first")
    return model, solution_of(model), fit.release.mechanism


def _functions(
    fit: Any, of: Any, model: Postprocessing, size: int
) -> tuple[sp.csr_array | None, tuple[int, ...] | None]:
    """The functions as rows over x, in the order of NumPy's flat arrays, and the shape of the answer, if it has one."""
    if of is None:
        return None, None
    known = fit.functions(of) if isinstance(fit, Consistent) else None
    if known is not None:
        return known
    if isinstance(of, cp.Variable):
        where = next((span for variable, span in model.columns if variable is of), None)
        if where is None:
            raise SpecificationError(f"variable {of.name()!r} is not one of the problem", remedy="one of its variables")
        order = np.arange(where.start, where.stop).reshape(of.shape, order="F").ravel()
        return picks(order, size), tuple(of.shape)
    try:
        rows = sp.csr_array(of if sp.issparse(of) else np.atleast_2d(np.asarray(of, dtype=np.float64)))
    except (TypeError, ValueError):
        raise SpecificationError("of= is not a matrix of numbers", remedy=f"(k, {size}), sparse or dense") from None
    if rows.shape[1] != size or not np.isfinite(rows.data).all():
        raise SpecificationError(f"of= of shape {rows.shape}", remedy=f"finite numbers, shape (k, {size})")
    return rows.astype(np.float64), None


def _shaped(values: Floats, shape: tuple[int, ...] | None) -> Floats:
    return values if shape is None else np.reshape(values, shape)


def _apply(rows: sp.csr_array | None, x: Floats) -> Floats:
    return x if rows is None else np.asarray(rows @ x)


def _count(repetitions: Any, least: int) -> int:
    good = isinstance(repetitions, numbers.Integral) and not isinstance(repetitions, bool)
    if not good or int(repetitions) < least:
        raise SpecificationError(f"repetitions={repetitions!r}", remedy=f"an integer of {least} or more")
    return int(repetitions)
