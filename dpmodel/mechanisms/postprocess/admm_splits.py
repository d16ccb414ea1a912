"""A likelihood as separable functions of ``A x``: the splits of the ADMM and their proximal and conjugate functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dpmodel.compile.affine_map import Floats, Integers
from dpmodel.compile.postprocessing import LikelihoodForm
from dpmodel.compile.tree import TreeProblem

SMALL_PENALTY = 1e-4  # relative penalty of entries that nothing is known of: a proximal term only


@dataclass(frozen=True, eq=False)
class Splits:
    """Minimise ``sum_i h_i((A x)_i)`` with A = [I; B], B : (m - n, n), over x in R^n and equalities kept elsewhere;
    ``h_i(w) = absolute_i |w - centre_i| + square_i (w - centre_i)^2 + linear_i w`` on [lower_i, upper_i].

    This is (8) of LWK15 with its splits y = x - x~ and z = x taken together where a variable is measured by itself:
    a function of one variable on an interval has as proximal point the unconstrained one clipped to the interval, so
    (9) and (10) are one update and two splits become one. Everything else (rows of a strategy, a second measurement
    of the same variable, inequalities G x <= g) is a row of B.

    ``weight`` : (m,) p > 0, fixed: the penalty of split i is rho p_i, so that x-updates do not depend on rho. With
    p_i = absolute_i^2 + 2 square_i the scaled residuals are numbers of noise scales and units do not matter.
    """

    rows: sp.csr_array
    centre: Floats
    absolute: Floats
    square: Floats
    linear: Floats
    lower: Floats
    upper: Floats
    weight: Floats

    @property
    def size(self) -> int:
        """Number of variables n."""
        return int(self.rows.shape[1])

    @cached_property
    def transposed(self) -> sp.csr_array:
        return sp.csr_array(self.rows.T)

    def apply(self, x: Floats) -> Floats:
        """A x, (m,)."""
        return np.concatenate([x, self.rows @ x]) if self.rows.shape[0] else x

    def adjoint(self, y: Floats) -> Floats:
        """A'y, (n,)."""
        n = self.size
        return y[:n] + self.transposed @ y[n:] if self.rows.shape[0] else y

    def loss(self, w: Floats) -> float:
        """sum of h_i(w_i), bounds aside."""
        r = w - self.centre
        return float(self.absolute @ np.abs(r) + self.square @ (r * r) + self.linear @ w)

    def proximal(self, t: Floats, rho: float) -> Floats:
        """argmin h(w) + rho/2 sum p_i (w_i - t_i)^2: the operator Theta of (14), which contains (13) and the corrected
        (25), rho/(1 + rho) (x - x~ + mu) (LWK15 prints 1/(1 + rho), right for rho = 1 only), clipped to the bounds."""
        threshold, shrink, shift = self._proximal_constants(rho)
        s = t - shift
        s = (s - np.clip(s, -threshold, threshold)) * shrink
        s += self.centre
        return np.clip(s, self.lower, self.upper, out=s)

    def _proximal_constants(self, rho: float) -> tuple[Floats, Floats, Floats]:
        found = self._memory.get(rho)
        if found is None:
            penalty = rho * self.weight
            found = (self.absolute / penalty, penalty / (penalty + 2 * self.square), self.centre + self.linear / penalty)
            self._memory.clear()
            self._memory[rho] = found
        return found

    @cached_property
    def _memory(self) -> dict[float, tuple[Floats, Floats, Floats]]:
        return {}

    @cached_property
    def slopes(self) -> tuple[Floats, Floats]:
        """(m,), (m,): least and largest slope of h_i, infinite where a bound or a square makes it so."""
        curved = self.square > 0
        low = np.where(curved | np.isfinite(self.lower), -np.inf, self.linear - self.absolute)
        high = np.where(curved | np.isfinite(self.upper), np.inf, self.linear + self.absolute)
        return low, high

    def conjugate(self, y: Floats, centre: Floats, radius: float) -> float:
        """sum of sup_w y_i w - h_i(w); where the supremum is infinite (a slope that h_i does not have), over
        |w - centre_i| <= radius only."""
        low, high = self.slopes
        lower = np.where(y < low, np.minimum(centre - radius, self.centre), self.lower)
        upper = np.where(y > high, np.maximum(centre + radius, self.centre), self.upper)
        slope = y - self.linear
        excess = np.sign(slope) * np.maximum(np.abs(slope) - self.absolute, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(excess == 0, 0.0, excess / (2 * self.square))
        w = np.clip(self.centre + step, lower, upper)
        r = w - self.centre
        return float(np.sum(slope * w - self.absolute * np.abs(r) - self.square * (r * r)))

    def dual_bound(self, y: Floats, image: Floats, radius: float) -> float:
        """A lower bound on the least loss among the points with ``|w - image| <= radius``, from y with A'y in the
        range of E' and ``image`` = A x for an x with E x = e.

        For feasible x', ``h(A x') >= y'A x' - h*(y)`` and ``y'A x' = y'A x``, as x' - x is in the kernel of E. If no
        point within the radius is better than the bound, then by convexity none outside of it is better by more than
        its distance times as much. Where slopes exceed those of h a little, y is also tried scaled back.
        """
        bound = float(y @ image) - self.conjugate(y, image, radius)
        low, high = self.slopes
        with np.errstate(divide="ignore", invalid="ignore"):
            over = np.where((y > high) & (high > 0), y / high, 1.0)
            under = np.where((y < low) & (low < 0), y / low, 1.0)
        largest = float(max(over.max(initial=1.0), under.max(initial=1.0)))
        if 1 < largest < 2:
            scaled = y / largest
            bound = max(bound, float(scaled @ image) - self.conjugate(scaled, image, radius))
        return bound


def weights(absolute: Floats, square: Floats) -> Floats:
    """Penalty weights 1/scale^2 of measured entries, 0 of others."""
    return absolute**2 + 2 * square


def _filled(weight: Floats, bounded: np.ndarray, diagonal: Floats) -> Floats:
    """``weight`` with entries that are not measured given what the rows B say of them (``diagonal``), or the middle."""
    known = weight[weight > 0]
    seen = diagonal[diagonal > 0]
    middle = float(np.median(known)) if known.size else float(np.median(seen)) if seen.size else 1.0
    usual = np.where(diagonal > 0, diagonal, middle)
    return np.where(weight > 0, weight, np.where(bounded, usual, SMALL_PENALTY * usual))


def splits_of(form: LikelihoodForm) -> Splits:
    """The splits of a form. A variable's own measurement (first row of M with that variable only) joins its bounds."""
    M, n = form.matrix, form.size
    counts = np.diff(M.indptr)
    used = (form.absolute > 0) | (form.square > 0)
    single = np.flatnonzero((counts == 1) & used)
    at = M.indptr[single]
    factor = M.data[at]
    single, at, factor = single[factor != 0], at[factor != 0], factor[factor != 0]
    _, first = np.unique(M.indices[at], return_index=True)
    own, column, factor = single[first], M.indices[at[first]], factor[first]
    rest = np.setdiff1d(np.flatnonzero(used), own)
    centre, absolute, square = np.zeros(n), np.zeros(n), np.zeros(n)
    centre[column] = form.value[own] / factor
    absolute[column] = form.absolute[own] * np.abs(factor)
    square[column] = form.square[own] * factor**2
    B = sp.csr_array(sp.vstack([M[rest], form.inequality], format="csr"))
    return _assembled(
        B,
        (centre, absolute, square, form.linear, form.lower, form.upper),
        (form.value[rest], form.absolute[rest], form.square[rest]),
        form.inequality_value,
    )


def splits_of_tree(problem: TreeProblem) -> Splits:
    """The splits over all N nodes; further measurements of one node are rows of B with a single 1."""
    N = problem.tree.size
    used = (problem.absolute > 0) | (problem.square > 0)
    kept = np.flatnonzero(used)
    _, first = np.unique(problem.node[kept], return_index=True)
    own = kept[first]
    rest: Integers = np.setdiff1d(kept, own)
    centre, absolute, square = np.zeros(N), np.zeros(N), np.zeros(N)
    at = problem.node[own]
    centre[at], absolute[at], square[at] = problem.value[own], problem.absolute[own], problem.square[own]
    B = sp.csr_array((np.ones(rest.size), (np.arange(rest.size), problem.node[rest])), shape=(rest.size, N))
    return _assembled(
        B,
        (centre, absolute, square, np.zeros(N), problem.lower, problem.upper),
        (problem.value[rest], problem.absolute[rest], problem.square[rest]),
        np.zeros(0),
    )


def _assembled(
    B: sp.csr_array, entries: tuple[Floats, ...], measured: tuple[Floats, Floats, Floats], caps: Floats
) -> Splits:
    centre, absolute, square, linear, lower, upper = entries
    k, q = measured[0].size, caps.size
    squares = sp.csr_array(B.power(2))
    row_weight = weights(measured[1], measured[2])
    diagonal = np.asarray(squares[:k].T @ row_weight)
    # A measured entry has its own weight; what rows say of it is in K anyway.
    weight = _filled(weights(absolute, square), np.isfinite(lower) | np.isfinite(upper) | (linear != 0), diagonal)
    norms = np.asarray(squares[k:].sum(axis=1)).ravel() if q else np.zeros(0)
    cap_weight = np.median(weight) / np.where(norms > 0, norms, 1.0) if weight.size else np.ones(q)
    none = np.zeros(q)
    # A feasible point for the centre of a cap: it has no slope, so any number will do.
    return Splits(
        B,
        np.concatenate([centre, measured[0], caps]),
        np.concatenate([absolute, measured[1], none]),
        np.concatenate([square, measured[2], none]),
        np.concatenate([linear, np.zeros(k + q)]),
        np.concatenate([lower, np.full(k + q, -np.inf)]),
        np.concatenate([upper, np.full(k, np.inf), caps]),
        np.concatenate([weight, row_weight, cap_weight]),
    )
