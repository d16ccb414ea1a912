"""Linear functions of private numbers, each value rounded once, and their release with independent noise.

Values that are exact dot products rounded once and clamped at ``CLAMP`` times their sensitivity differ between two
neighbours by at most 2^-12 of it more than without rounding. ``ROUNDING`` covers that, for up to three parts and the
sums behind the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.affine_map import AffineMap, LinearMap
from dpmodel.compile.footprint import largest, most_touched, sensitivity_of
from dpmodel.compile.form import private_theta, public_theta
from dpmodel.errors import SpecificationError
from dpmodel.privacy import Cost, NoiseSource, gaussian_mu, zcdp_rho
from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace, Distribution, Gaussian, Laplace
from dpmodel.privacy.noise import DiscreteNoiseSource
from dpmodel.privacy.sampling import LARGEST_SCALE, IntArray

CLAMP = 2.0**40
ROUNDING = 2.0**-10
# Entries beyond this are taken as this, so that no product or sum of theirs overflows.
_HUGE = 1e150


def never_rounded(queries: LinearMap) -> bool:
    """Whether every number is one private entry times a power of two."""
    single = queries.nnz == 0 or int(np.bincount(queries.row).max()) == 1
    return single and bool((np.abs(np.frexp(queries.coefficient)[0]) == 0.5).all())


def exact_rows(part: LinearMap, theta: Floats) -> Floats:
    """(height,) ``part`` at ``theta``, each value rounded once (as if computed with unbounded precision)."""
    x = np.clip(theta[part.column], -_HUGE, _HUGE)
    counts = np.bincount(part.row, minlength=part.height)
    product = part.coefficient * x
    if (counts <= 1).all():
        out = np.zeros(part.height)
        out[part.row] = product
        return out
    terms = [product]
    if not (np.abs(part.coefficient) == 1).all():  # else products are not rounded
        terms.append(_product_error(part.coefficient, x, product))
    ends = np.cumsum(counts)
    if (part.row[1:] < part.row[:-1]).any():
        order = np.argsort(part.row, kind="stable")
        terms = [each[order] for each in terms]
    single = counts == 1
    out = np.zeros(part.height)
    out[single] = terms[0][ends[single] - 1]
    for i in np.flatnonzero(counts > 1):
        rows = slice(ends[i] - counts[i], ends[i])
        out[i] = math.fsum(chain.from_iterable(each[rows].tolist() for each in terms))  # Python's floats add up faster
    return out


def _product_error(a: Floats, b: Floats, product: Floats) -> Floats:
    """``a * b - product`` exactly (Dekker's splitting; overflow gives nan, treated as no correction)."""
    with np.errstate(over="ignore", invalid="ignore"):
        split = 134217729.0  # 2^27 + 1
        a_high = split * a - (split * a - a)
        b_high = split * b - (split * b - b)
        a_low, b_low = a - a_high, b - b_high
        error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return np.where(np.isfinite(error), error, 0.0)


# ---------------------------------------------------------------- released as they are
Kind = Literal["auto", "laplace", "gaussian", "discrete-laplace", "discrete-gaussian"]
KINDS: tuple[Kind, ...] = ("auto", "laplace", "gaussian", "discrete-laplace", "discrete-gaussian")

# Room for the sums behind a bound, where the numbers themselves are not rounded.
_SUMS = 2.0**-26
# Integers: released ones are clamped to what floats hold exactly with the noise on top.
_WHOLE_LIMIT = 2**52
_LARGEST_ROW = 2**31


@dataclass(frozen=True)
class DirectMeasurement:
    """k numbers ``queries theta + constant``, released with independent noise of one distribution.

    Nothing is rescaled, merged or rebuilt, as behind a solve: proportional entries get draws of their own, so that the
    distribution that is stated with the numbers is the distribution they have.

    Source
        Laplace mechanism (Dwork, McSherry, Nissim, Smith 2006); Gaussian mechanism with its exact privacy (Balle and
        Wang 2018); discrete Laplace and discrete Gaussian (Canonne, Kamath and Steinke 2020).
    Privacy
        The only reading of private values is f = ``queries theta`` in ``run``; ``constant`` is public and is added to
        what was released. One record changes theta inside the declared bounds. ``footprint.sensitivity_of`` bounds the
        1-norm and the 2-norm of the change of ``queries theta`` by D1 and D2, the largest over Records (one record
        belongs to one). Clamping moves no two values apart, so clamped numbers keep these bounds.

        *Continuous.* Every number is an exact dot product rounded once, at most 2^-53 of its size, and clamped at
        L = 2^40 min(largest change, D1 / t, D2 / sqrt(t)), where at most t numbers depend on one record: between two
        neighbours rounding adds at most t 2^-52 L <= 2^-12 D1 to the 1-norm, sqrt(t) 2^-52 L <= 2^-12 D2 to the 2-norm.
        ``l1`` and ``l2`` hold an allowance of 2^-10 (2^-26, for the sums behind the bounds, where every number is one
        private entry times a power of two and nothing is rounded). Laplace noise of scale l1 / epsilon is epsilon-DP;
        Gaussian noise of standard deviation l2 / mu with mu = ``gaussian_mu(epsilon, delta)`` is (epsilon, delta)-DP.

        *Whole.* Where parameters are declared whole and coefficients are whole, theta is rounded to integers
        (which moves a value that keeps the declaration by at most 1e-9), clamped at B = 2^62 / (largest row sum), and
        f is computed in 64-bit integers without rounding, then clamped at 2^52. Both databases are whole, so the
        change of f is: a whole 1-norm of at most D1 (1 + 2e-9) is at most ``floor(D1 (1 + 2^-26))``, and the same
        for the square of the 2-norm. Discrete Laplace noise of scale l1 / epsilon is epsilon-DP: the log ratio of
        masses is at most |change|_1 / scale. Discrete Gaussian noise costs rho = l2^2 / (2 scale^2) in zCDP for whole
        shifts, in any number of coordinates, and scale = l2 / sqrt(2 ``zcdp_rho(epsilon, delta)``).

        *Weighted.* Where entries have public weights w > 0 (``weighted``), entry i gets scale s / w_i. Its log ratio is
        at most ``|change_i| w_i / s`` under Laplace noise, so the sum is at most D1 / s with D1 the 1-norm of the
        weighted change; the Gaussian cost ``change_i^2 w_i^2 / s^2`` adds up to at most D2^2 / s^2 with D2 its 2-norm,
        and half of that is rho. So s is what the scale was, for the weighted norms.

        The distribution, its scale and all errors before the charge depend on public facts only.
    Utility
        Unbiased, with the distribution stated, for private numbers up to the clamp in size.
    Cost
        One draw per entry (docs/measurements/speed.md has the times); dot products linear in the coefficients.

    ``affine`` : of the problem ``expression == t`` with one scalar variable t. ``queries`` : (k, P). ``constant`` :
    (k,). ``l1, l2`` : sensitivity of the k numbers, allowance included. ``limit`` : where they are clamped under
    continuous noise. ``whole_l1, whole_l2`` : change of integers, or nan; ``not_integer`` says why.
    ``weights`` : (k,) of the entries; None for one scale. Norms are those of the weighted change.
    """

    affine: AffineMap
    queries: LinearMap
    constant: Floats
    l1: float
    l2: float
    limit: float
    whole_l1: float
    whole_l2: float
    not_integer: str
    weights: Floats | None = None

    def weighted(self, weights: Floats, l1: float, l2: float) -> DirectMeasurement:
        """The same private entries, or sums of whole ones, with noise of scale s / weights: (k,) > 0. ``l1, l2`` bound
        the weighted change. Sums are computed whole, and so without rounding, also under continuous noise."""
        assert never_rounded(self.queries) or not self.not_integer
        l1, l2 = l1 * (1 + _SUMS), l2 * (1 + _SUMS)
        return replace(self, weights=weights, l1=l1, l2=l2, whole_l1=l1, whole_l2=l2)

    @staticmethod
    def of(affine: AffineMap) -> DirectMeasurement:
        """Public facts of ``expression == t``; row i of the form is entry i of the expression, column by column."""
        # b_i - A_i t = 0 with A_i = 1 or -1: the entry is b_i / A_i.
        sign = np.zeros(affine.rows)
        sign[affine.public_matrix.row] = affine.public_matrix.coefficient
        scalar = affine.scalar
        entries = LinearMap(scalar.row, scalar.column, scalar.coefficient * sign[scalar.row], scalar.height)
        private = affine.private_columns[entries.column]
        queries = entries.select(private)
        constant = entries.select(~private).apply(public_theta(affine))
        sensitivity = largest(sensitivity_of(affine, queries).values())
        allowance = _SUMS if never_rounded(queries) else ROUNDING
        touched = max(most_touched(affine, queries.row, queries.column), 1)
        limit = CLAMP * min(sensitivity.linf, sensitivity.l1 / touched, sensitivity.l2 / math.sqrt(touched))
        if allowance == _SUMS:
            limit = CLAMP * sensitivity.linf
        reason = _why_not_integer(affine, queries, constant)
        l1 = l2 = math.nan
        if not reason and sensitivity.finite:
            l1 = float(math.floor(sensitivity.l1 * (1 + _SUMS)))
            l2 = math.sqrt(math.floor(sensitivity.l2**2 * (1 + _SUMS)))
        changed = sensitivity.scaled_for_rounding(allowance)
        return DirectMeasurement(affine, queries, constant, changed.l1, changed.l2, limit, l1, l2, reason)

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.l1)

    @property
    def moves(self) -> bool:
        """Whether some record can change some number."""
        # The 2-norm may rule out whole changes that the 1-norm allows: a whole change is at least 1 in both.
        return self.l1 > 0 and self.whole_l1 != 0 and self.whole_l2 != 0

    def distribution(self, epsilon: float, delta: float, kind: Kind) -> tuple[Distribution, float]:
        """The distribution to release under, and the delta that it spends.
        Errors: SpecificationError, when ``kind`` cannot be had with this delta or these numbers."""
        if kind.startswith("discrete") and self.not_integer:
            raise SpecificationError(
                f"distribution={kind!r} for numbers that are not declared whole",
                why=self.not_integer,
                remedy=f"distribution={kind.removeprefix('discrete-')!r}, or integers and integer constants",
            )
        refuse_without_delta(kind, delta)
        if kind == "auto":
            return self._least(epsilon, delta)
        return self._one(kind, epsilon, delta)

    def _least(self, epsilon: float, delta: float) -> tuple[Distribution, float]:
        """Least standard deviation; Laplace, which spends no delta, where they are equal."""
        kinds: list[Kind] = ["laplace", "gaussian"]
        # Beyond the largest scale of discrete noise, which is exact, its steps of 1 are no part of the error.
        if not self.not_integer and self.whole_l1 / epsilon < LARGEST_SCALE:
            kinds = ["discrete-laplace", "discrete-gaussian"]
        distributions = [self._one(kind, epsilon, delta) for kind in kinds if delta > 0 or "gaussian" not in kind]
        return min(distributions, key=lambda pair: float(pair[0].standard_deviation))

    def _one(self, kind: Kind, epsilon: float, delta: float) -> tuple[Distribution, float]:
        each = 1.0 if self.weights is None else 1 / self.weights
        if kind == "laplace":
            return Laplace(self.l1 / epsilon * each), 0.0
        if kind == "gaussian":
            return Gaussian(self.l2 / gaussian_mu(epsilon, delta) * each), delta
        if kind == "discrete-laplace":
            scale = self.whole_l1 / epsilon
            if Fraction(scale) * Fraction(epsilon) < Fraction(self.whole_l1):  # rounded down
                scale = math.nextafter(scale, math.inf)
            return DiscreteLaplace(scale * each), 0.0
        return DiscreteGaussian(self.whole_l2 / math.sqrt(2 * zcdp_rho(epsilon, delta)) * (1 + 1e-14) * each), delta

    @staticmethod
    def event(distribution: Distribution, epsilon: float, delta: float) -> Cost:
        """What ``run`` is charged. Discrete Laplace noise on integers that move by 1 is randomised response, which
        loses more than Laplace noise: it counts as any pure mechanism. Discrete Gaussian noise on integers counts by
        zCDP (Canonne, Kamath and Steinke 2020, theorem 4). It is not mu-GDP: a shift by 1 shows better than
        under Gaussian noise of the same scale.
        """
        if isinstance(distribution, Gaussian):
            return (Cost.all_zcdp if distribution.discrete else Cost.all_gaussian)(epsilon, delta)
        return Cost.pure(epsilon) if distribution.discrete else Cost.laplace(epsilon)

    def check_source(self, distribution: Distribution, source: NoiseSource) -> None:
        """Raise SpecificationError unless ``source`` can draw ``distribution``."""
        if distribution.discrete and not isinstance(source, DiscreteNoiseSource):
            raise SpecificationError(
                f"rng of type {type(source).__name__} cannot draw {distribution.name} noise",
                why="it has no discrete_laplace and discrete_gaussian",
                remedy="distribution='laplace' or 'gaussian', or rng=None",
            )

    def run(self, distribution: Distribution, source: NoiseSource) -> Floats:
        """(k,) released numbers. The only method that reads private values; the charge comes before it."""
        theta = PrivateArray(private_theta(self.affine))
        values: PrivateArray | IntArray
        draw: Callable[[object, float], Any]
        if distribution.discrete:
            assert isinstance(source, DiscreteNoiseSource)
            draw = source.discrete_gaussian if isinstance(distribution, Gaussian) else source.discrete_laplace
            values = self._whole_values(theta)
        else:
            draw = source.gaussian if isinstance(distribution, Gaussian) else source.laplace
            values = self._values(theta)
        if self.weights is None:
            return np.asarray(draw(values, distribution.scale).astype(np.float64) + self.constant)
        released = np.empty(values.size)
        for scale in np.unique(distribution.scale).tolist():  # public: a scale has all its draws at once
            here = distribution.scale == scale
            released[here] = draw(values[here], scale)
        return released + self.constant

    def _values(self, theta: PrivateArray) -> PrivateArray:
        if self.weights is not None and not self.not_integer:
            return PrivateArray(self._whole_values(theta).astype(np.float64))
        return PrivateArray(np.clip(exact_rows(self.queries, theta), -self.limit, self.limit))

    def _whole_values(self, theta: PrivateArray) -> IntArray:
        coefficients = self.queries.tocsr(self.affine.theta_size).astype(np.int64)
        bound = float(2**62 // max(_row_sum(self.queries), 1))
        whole = np.clip(np.rint(theta), -bound, bound).astype(np.int64)
        return np.asarray(np.clip(sp.csr_array(coefficients) @ whole, -_WHOLE_LIMIT, _WHOLE_LIMIT), dtype=np.int64)


def _row_sum(queries: LinearMap) -> int:
    """Largest sum of absolute coefficients of a row (whole ones)."""
    return int(np.bincount(queries.row, weights=np.abs(queries.coefficient)).max(initial=0.0))


def _why_not_integer(affine: AffineMap, queries: LinearMap, constant: Floats) -> str:
    """Why the numbers are not whole by public declaration; "" if they are."""
    used = np.zeros(affine.theta_size, dtype=bool)
    used[queries.column] = True
    for block in affine.private_blocks:
        if used[block.columns].any() and block.why_not_integer:
            return f"{block.name} is not declared whole (integer=True, with whole bounds and no max_l1 or max_l2)"
    for what, values in (("coefficient", queries.coefficient), ("constant", constant)):
        if (values != np.rint(values)).any():
            return f"the expression has a {what} that is not whole"
        if np.abs(values).max(initial=0.0) > _LARGEST_ROW:
            return f"the expression has a {what} above {_LARGEST_ROW} in size"
    if queries.nnz and _row_sum(queries) > _LARGEST_ROW:
        return f"the coefficients of an entry add up to more than {_LARGEST_ROW} in size"
    return ""


def refuse_without_delta(kind: Kind, delta: float) -> None:
    """SpecificationError for Gaussian noise without delta."""
    if kind.endswith("gaussian") and delta == 0:
        raise SpecificationError(
            f"distribution={kind!r} with delta = 0",
            why="Gaussian noise has no pure guarantee",
            remedy=f"delta=1e-6, or distribution={kind.replace('gaussian', 'laplace')!r}",
        )
