"""A likelihood as separable functions of ``A x``: the splits of the ADMM and their proximal and conjugate functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm

EVEN = 1 / 3  # power of 1/scale^2, about their geometric mean: 0 is one penalty for all
SMALL_PENALTY = 1e-4  # the same of entries that nothing is known of: a proximal term only
NEAR = 20.0  # noise scales
UNMEASURED = 4.0  # penalty of a bounded entry that is not measured by itself, in measured ones of its scale


@dataclass(frozen=True, eq=False)
class Splits:
    """Minimise ``sum_i h_i((A x)_i)`` with A = [I; B], B : (m - n, n), over x in R^n and equalities kept elsewhere;
    ``h_i(w) = absolute_i |w - centre_i| + square_i (w - centre_i)^2 + linear_i w`` on [lower_i, upper_i].

    This is (8) of LWK15 with its splits y = x - x~ and z = x taken together where a variable is measured by itself:
    a function of one variable on an interval has as proximal point the unconstrained one clipped to the interval, so
    (9) and (10) are one update and two splits become one. Everything else (rows of a strategy, a second measurement
    of the same variable, inequalities G x <= g) is a row of B.

    ``scale`` : (m,) noise scales of measured splits, about those of x_i of others. ``weight`` : (m,) p > 0, fixed: the
    penalty of split i is rho p_i, so that x-updates do not depend on rho. p is 1/scale^2, so that units do not matter,
    drawn together towards its geometric mean (power EVEN): with scales that differ by e^3 this took a tenth of the
    steps that powers 1 or 0 took.
    """

    rows: sp.csr_array
    centre: Floats
    absolute: Floats
    square: Floats
    linear: Floats
    lower: Floats
    upper: Floats
    scale: Floats
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

    def proximal(self, rho: float) -> Callable[[Floats], Floats]:
        """t -> argmin h(w) + rho/2 sum p_i (w_i - t_i)^2: the operator Theta of (14), which contains (13) and the
        corrected (25), rho/(1 + rho) (x - x~ + mu) (LWK15 prints 1/(1 + rho), right for rho = 1 only), clipped to the
        bounds."""
        penalty = rho * self.weight
        threshold, shrink = self.absolute / penalty, penalty / (penalty + 2 * self.square)
        shift = self.centre + self.linear / penalty

        def operator(t: Floats) -> Floats:
            s = t - shift
            s = (s - np.clip(s, -threshold, threshold)) * shrink
            s += self.centre
            return np.clip(s, self.lower, self.upper, out=s)

        return operator

    def total(self, w: Floats) -> float:
        """Sum of the sizes of the objective's terms: what errors are relative to."""
        r = w - self.centre
        return float(self.absolute @ np.abs(r) + self.square @ (r * r) + np.abs(self.linear @ w))

    @cached_property
    def precision(self) -> Floats:
        """(m,) 1/scale of measured splits, 0 of others."""
        found: Floats = np.sqrt(self.absolute**2 + 2 * self.square)
        return found

    def separates(self, d: Floats, image: Floats) -> bool:
        """Whether d, with A'd in the range of E', looks like a proof of infeasibility: ``d'A x`` is the same for all x
        that keep the equalities, and larger than any w within the bounds allows."""
        allowed = np.where(np.isfinite(self.upper), d, np.minimum(d, 0))
        allowed = np.where(np.isfinite(self.lower), allowed, np.maximum(allowed, 0))
        top = np.where(allowed > 0, self.upper, np.where(allowed < 0, self.lower, 0.0))
        margin = float(d @ image - allowed @ top)
        return margin > 0 and float(np.abs(d - allowed) @ (np.abs(image) + NEAR * self.scale)) < 0.1 * margin

    def dual_bound(self, y: Floats, image: Floats) -> float:
        """A lower bound on the loss of every feasible x' with ``|A x' - A x| <= NEAR scale + |A x - centre|`` entry by
        entry, from ``image`` = A x with E x = e and any y with A'y in the range of E'.

        ``y'A x' = y'A x``, as x' - x is in the kernel of E, so ``h(A x') >= y'A x - sup_w (y'w - h(w))``, the supremum
        over the w in that box and within the bounds. Over all w it would be infinite as soon as one derivative in y
        exceeds those of h by a rounding error. If a feasible x' outside of the box has a loss lower than f(x) by d,
        then by convexity the point where the way from x to x' leaves the box is lower than f(x) by d times the part of
        the way that lies in the box: the bound speaks of such points too, only more weakly. NEAR noise scales beyond
        the measured value are further than an optimum is from its data.
        """
        reach = NEAR * self.scale + np.abs(image - self.centre)
        lower = np.clip(image - reach, self.lower, self.upper)
        upper = np.clip(image + reach, self.lower, self.upper)
        derivative = y - self.linear
        excess = derivative - np.clip(derivative, -self.absolute, self.absolute)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(excess == 0, 0.0, excess / (2 * self.square))
        w = np.clip(self.centre + step, lower, upper)
        r = w - self.centre
        supremum = derivative @ w - self.absolute @ np.abs(r) - self.square @ (r * r)
        return float(y @ image - supremum)


def weights(absolute: Floats, square: Floats) -> Floats:
    """Penalty weights 1/scale^2 of measured entries, 0 of others."""
    return absolute**2 + 2 * square


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
    k, q = rest.size, form.inequality_value.size
    lower, upper, caps = form.lower, form.upper, form.inequality_value
    squares = sp.csr_array(B.power(2))
    alone, row_weight = weights(absolute, square), weights(form.absolute[rest], form.square[rest])
    informed = alone + np.asarray(squares[:k].T @ row_weight)
    known = informed[informed > 0]
    informed = np.where(informed > 0, informed, float(np.median(known)) if known.size else 1.0)
    held = np.isfinite(lower) | np.isfinite(upper) | (form.linear != 0)
    part = np.where(alone > 0, 1.0, np.where(held, UNMEASURED, SMALL_PENALTY))
    norms = np.asarray(squares[k:].sum(axis=1)).ravel()
    cap_weight = (np.median(informed) if n else 1.0) / np.where(norms > 0, norms, 1.0)
    precise = np.concatenate([np.where(alone > 0, alone, informed), row_weight, cap_weight])
    middle = float(np.exp(np.mean(np.log(precise)))) if precise.size else 1.0
    penalty = precise**EVEN * middle ** (1 - EVEN)
    none = np.zeros(q)
    return Splits(
        B,
        np.concatenate([centre, form.value[rest], caps]),
        np.concatenate([absolute, form.absolute[rest], none]),
        np.concatenate([square, form.square[rest], none]),
        np.concatenate([form.linear, np.zeros(k + q)]),
        np.concatenate([lower, np.full(k + q, -np.inf)]),
        np.concatenate([upper, np.full(k, np.inf), caps]),
        1 / np.sqrt(precise),
        np.concatenate([part, np.ones(k + q)]) * penalty,
    )
