"""Private linear minimisation over a public polyhedron: choosing a vertex, or noise on the cost and an exact solve.

The cost is ``u = G'y``, an average of private rows with weights y from a 1/s-dense projection (``dense_weights.py``).
One record moves u by at most ``share`` times the difference of two rows (proof: ``dense_weights.py``),
``share = min(r / s, 1)``. Oracles state their error for ``share = 1``; it is proportional to it.

Rounding. Sums of m terms in double precision are off by at most (m + 3) 2^-53 of the sum of their sizes, which an
average of rows bounds by ``size`` (or ``swing``), as zero rows are inside all bounds; the weights and their sum are
off by 2^-40 of it. For ``(m + n) s <= 2^40`` and two data sets that is less than ``2^-11 / s <= 2^-11 share``: inside
``ROUNDING``. Public tilts are added with an allowance of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import gammainccinv

from dpmodel._types import Floats, Integers, Mask, PrivateArray
from dpmodel.kernels.direct_measurement import ROUNDING
from dpmodel.numerics.polyhedron import Polyhedron, Product
from dpmodel.privacy import NoiseSource, exponential_mechanism
from dpmodel.privacy.accounting import Spend
from dpmodel.programs.rows import PrivateRows

# (m + n) s at most this: see "Rounding".
MOST_TERMS = 2.0**40
_MOST_BLOCKS = 2_000  # choices drawn one by one in each step
_EACH_PUBLIC = 2.0**-50  # rounding allowance of public scores, relative to their size


class Oracle(Protocol):
    """A private minimiser of ``(tilt + u)'x`` over the public set."""

    @property
    def name(self) -> str: ...

    def error(self, spend: Spend, steps: Floats, beta: float) -> Floats:
        """(k,) for each number T of steps: with probability 1 - beta the mean over the T steps of
        ``(tilt + u)'(x_t - x*)`` is at most this times ``share``, for any x* fixed beforehand."""
        ...

    def minimise(
        self, average: PrivateArray, tilt: Floats, share: float, spend: Spend, steps: int, source: NoiseSource
    ) -> Floats:
        """(n,) a point, chosen with one of ``steps`` equal parts of ``spend``. ``average`` (n,) : u, private."""
        ...

    def noise(self, share: float, spend: Spend, steps: int) -> Mapping[str, Any]:
        """Public numbers for the forecast."""
        ...


@dataclass(frozen=True)
class Selection:
    """The exponential mechanism over vertices.

    Privacy
        Scores are ``-(tilt + u)'v``. ``row_range`` bounds ``(a - b)'(v - w)`` over rows a, b and vertices v, w, so
        the scores move apart by at most ``share * row_range``: bounded range, epsilon^2 / 8 in zCDP for the scale
        ``share * row_range / epsilon``. ``size`` bounds ``sum over blocks of |a_j step_j|``, to which rounding is
        relative.
        On a product the score is a sum over blocks, so the exponential mechanism over all vertices of the product
        *is* independent draws per block with this one scale, and it is paid once.
    Utility
        With k vertices, gaps g_v to the best score and ``p_v ~ exp(-g_v / scale)``: ``E exp(g / scale) = k / sum
        exp(-g_v / scale) <= k`` conditional on the past, so by Markov's inequality the gaps of T steps add up to at
        most ``scale (T ln k + ln(1/beta))`` with probability 1 - beta.
    """

    row_range: float
    size: float
    log_count: float

    @property
    def name(self) -> str:
        return "exponential mechanism"

    def range_bound(self, share: float) -> float:
        """Range of the scores as computed."""
        return share * (self.row_range + ROUNDING * self.size)

    def error(self, spend: Spend, steps: Floats, beta: float) -> Floats:
        each = spend.epsilon / steps if spend.rho is None else np.sqrt(8 * spend.rho / steps)
        worst: Floats = self.range_bound(1.0) / each * (self.log_count + math.log(1 / beta) / steps)
        return worst

    def minimise(
        self, average: PrivateArray, tilt: Floats, share: float, spend: Spend, steps: int, source: NoiseSource
    ) -> Floats:
        return self.select(average, tilt, self.range_bound(share), spend.selection_epsilon(steps), source)

    def select(
        self, average: PrivateArray, tilt: Floats, range_bound: float, epsilon: float, source: NoiseSource
    ) -> Floats:
        """(n,) a vertex, epsilon-DP when the scores of u have range ``range_bound``; the tilt's rounding is added."""
        raise NotImplementedError

    def noise(self, share: float, spend: Spend, steps: int) -> Mapping[str, Any]:
        return {
            "oracle": self.name,
            "range": self.range_bound(share),
            "epsilon of a step": spend.selection_epsilon(steps),
            "ln(vertices)": self.log_count,
        }


@dataclass(frozen=True)
class ProductSelection(Selection):
    """Over the vertices of a product of scaled simplices and boxes; blocks without private columns take their best.

    ``drawn`` : (blocks,) which of them have a choice and private columns.
    """

    shape: Product
    drawn: Mask

    @staticmethod
    def of(rows: PrivateRows, polytope: Polyhedron) -> ProductSelection | None:
        """None when the public set is no such product, or one of too many blocks."""
        shape = polytope.product
        if shape is None:
            return None
        columns, sizes = shape.by_block
        caps, step = (rows.upper - rows.lower)[columns], np.abs(shape.step[columns])
        moved = np.zeros(sizes.size)
        np.maximum.at(moved, np.repeat(np.arange(sizes.size), sizes), caps * step)
        drawn = (shape.choices > 1) & (moved > 0) & (rows.swing(1) > 0)
        if np.count_nonzero(drawn) > _MOST_BLOCKS:
            return None
        noisy, sizes = np.repeat(drawn, sizes), sizes[drawn]
        caps, step = caps[noisy], step[noisy]
        apart = math.sqrt(sum(_two_largest(step**2, sizes)))
        size = min(sum(_two_largest(caps * step, sizes)), rows.swing(2) * apart, _most(step, caps, rows.swing(1)))
        count = float(sum(map(math.log, shape.choices[drawn].tolist())))
        return ProductSelection(_both(size, rows, polytope), size, count, shape, drawn)

    def select(
        self, average: PrivateArray, tilt: Floats, range_bound: float, epsilon: float, source: NoiseSource
    ) -> Floats:
        shape = self.shape
        x = shape.base.copy()
        public = tilt * shape.step
        private = average * shape.step
        reach = range_bound + _EACH_PUBLIC * float(np.abs(public).sum())
        for columns, choices, drawn in zip(shape.columns, shape.choices, self.drawn, strict=True):
            if choices == 1:
                continue
            gain = -(public[columns] + private[columns]) if drawn else -public[columns]
            if shape.optional[shape.block[columns[0]]]:
                gain = np.append(gain, 0.0)
            best = exponential_mechanism(gain, reach, epsilon=epsilon, source=source) if drawn else int(gain.argmax())
            if best < columns.size:
                x[columns[best]] += shape.step[columns[best]]
        return x


@dataclass(frozen=True)
class ListedSelection(Selection):
    """Over listed public points: ``points`` (k, n), ``centred`` (k, n) the same about the middle of their box."""

    points: Floats
    centred: Floats

    @staticmethod
    def of(rows: PrivateRows, polytope: Polyhedron, points: Floats) -> ListedSelection | None:
        """The points that lie in the public set; None when none does."""
        tolerance = 1e-9 * (1 + float(np.abs(points).max(initial=0.0)))
        inside = ((points >= polytope.lower - tolerance) & (points <= polytope.upper + tolerance)).all(axis=1)
        inside &= (polytope.A_ub @ points.T <= polytope.b_ub[:, None] + tolerance).all(axis=0)
        inside &= (np.abs(polytope.A_eq @ points.T - polytope.b_eq[:, None]) <= tolerance).all(axis=0)
        if not inside.any():
            return None
        points = points[inside]
        spread = np.ptp(points, axis=0)
        centred = points - (points.max(axis=0) + points.min(axis=0)) / 2
        apart = min(float(np.linalg.norm(spread)), 2 * float(np.linalg.norm(centred, axis=1).max()))
        size = min(rows.swing(2) * apart, _most(spread, rows.upper - rows.lower, rows.swing(1)))
        return ListedSelection(_both(size, rows, polytope), size, math.log(len(points)), points, centred)

    def select(
        self, average: PrivateArray, tilt: Floats, range_bound: float, epsilon: float, source: NoiseSource
    ) -> Floats:
        reach = range_bound + _EACH_PUBLIC * tilt.size * float(np.abs(tilt) @ np.ptp(self.points, axis=0))
        if self.size == 0:  # the points differ only where all rows are zero
            best = int((-self.centred @ tilt).argmax())
        else:
            gain = -(self.centred @ tilt + self.centred @ average)
            best = exponential_mechanism(gain, reach, epsilon=epsilon, source=source)
        return np.asarray(self.points[best], dtype=np.float64)


@dataclass(frozen=True)
class NoisyMinimisation:
    """Noise on u, then an exact linear program (HiGHS, warm-started): any bounded public polyhedron.

    Privacy
        u moves by at most ``share * swing`` in the 2-norm (Gaussian noise) or in the 1-norm (Laplace noise, for a
        pure budget), plus the rounding allowance. Columns that are zero in all rows get no noise.
    Utility
        x_t minimises ``(tilt + u + z)'x``, so it loses at most ``F(z) = max_x z'(x* - x)``. With ``u = x - corner``,
        ``0 <= u <= spans``, ``sum u <= L`` and M the largest span: Gaussian: F has Lipschitz constant D, the diameter,
        and mean sigma w(K), w(K) the Gaussian width (the term with x* has mean zero). The z_t are independent, so the
        mean over T steps is at most ``sigma (w(K) + D sqrt(2 ln(1/beta) / T))`` (Gaussian concentration). ``w(K)`` is
        at most ``sum(spans) / sqrt(2 pi)`` and at most M times the expected sum of the k = ceil(L / M) largest positive
        entries of z, a maximum over N <= (e n / k)^k (and <= 2^n, n + 1 for k = 1) Gaussians of standard deviation sqrt
        k: ``sqrt(2 k ln N)``. Laplace: F is at most ``min(2 L, sum spans) max |z|``, and ``max |z| / b`` is dominated
        by ``ln n + Exp(1)``, so the sum over T steps by ``T ln n`` plus a Gamma(T) variable. Or entry by entry: the
        moment generating function of ``max_x z_j (x*_j - x_j)`` is at most ``(1 + 1 / (1 - theta b span_j)) / 2``
        (convex in x*_j, so largest at an end), and Chernoff's bound holds for every theta.
    """

    polytope: Polyhedron
    columns: Integers
    swings: tuple[float, float]
    width: float
    diameter: float
    spans: Floats
    one: float
    name: str = "noise on the weighted row, exact linear program"

    @staticmethod
    def of(rows: PrivateRows, polytope: Polyhedron) -> NoisyMinimisation:
        columns = np.flatnonzero((rows.upper > rows.lower) & (rows.swing(1) > 0))
        swings = rows.swing(1) * (1 + ROUNDING), rows.swing(2) * (1 + ROUNDING)
        n = columns.size
        if n == 0:
            return NoisyMinimisation(polytope, columns, swings, 0.0, 0.0, np.zeros(0), 0.0)
        low, high = polytope.box[0][columns], polytope.box[1][columns]
        direction = np.zeros(polytope.size)
        direction[columns] = 1.0
        top, bottom = polytope.support(direction), -polytope.support(-direction)
        length = min(float((high - low).sum()), top - float(low.sum()), float(high.sum()) - bottom)
        spans = np.clip(high - low, 0.0, length)
        largest = float(spans.max())
        if largest <= 0:
            return NoisyMinimisation(polytope, columns, swings, 0.0, 0.0, spans, 0.0)
        k = min(max(math.ceil(length / largest), 1), n)
        log_sets = min(n * math.log(2), math.log(n + 1) if k == 1 else k * (1 + math.log(n / k)))
        width = min(float(spans.sum()) / math.sqrt(2 * math.pi), largest * math.sqrt(2 * k * log_sets))
        diameter = min(float(np.linalg.norm(spans)), math.sqrt(2 * length * largest))
        one = min(2 * length, float(spans.sum()))
        return NoisyMinimisation(polytope, columns, swings, width, diameter, spans, one)

    def _scale(self, spend: Spend, steps: Floats) -> Floats:
        """Standard deviation (Gaussian) or scale (Laplace) of the noise at share 1."""
        if spend.rho is None:
            return self.swings[0] * steps / spend.epsilon
        return np.asarray(self.swings[1] * np.sqrt(steps / (2 * spend.rho)), dtype=np.float64)

    def error(self, spend: Spend, steps: Floats, beta: float) -> Floats:
        scale, bad = self._scale(spend, steps), math.log(1 / beta)
        if self.width == 0:
            return np.zeros_like(scale)
        if spend.rho is not None:
            worst: Floats = scale * (self.width + self.diameter * np.sqrt(2 * bad / steps))
            return worst
        by_norm = self.one * (math.log(self.spans.size) + gammainccinv(steps, beta) / steps)
        largest = float(self.spans.max())
        rate = np.linspace(0.02, 0.98, 49)
        moment = np.log((1 + 1 / (1 - np.outer(rate, self.spans / largest))) / 2).sum(axis=1)
        by_entry = (largest * (moment[:, None] + bad / steps) / rate[:, None]).min(axis=0)
        return np.asarray(scale * np.minimum(by_norm, by_entry), dtype=np.float64)

    def minimise(
        self, average: PrivateArray, tilt: Floats, share: float, spend: Spend, steps: int, source: NoiseSource
    ) -> Floats:
        cost = tilt.copy()
        if self.columns.size:
            scale = share * float(self._scale(spend, np.array([float(steps)]))[0])
            draw = source.laplace if spend.rho is None else source.gaussian
            cost[self.columns] += draw(average[self.columns], scale)
        x = self.polytope.minimise(cost)
        assert x is not None  # eligible() asks for a bounded public set
        return x

    def noise(self, share: float, spend: Spend, steps: int) -> Mapping[str, Any]:
        scale = share * float(self._scale(spend, np.array([float(steps)]))[0])
        distribution = "Laplace" if spend.rho is None else "Gaussian"
        return {
            "oracle": self.name,
            "distribution": distribution,
            "scale": scale,
            "numbers noised in a step": int(self.columns.size),
        }


def selections(
    rows: PrivateRows, polytope: Polyhedron, points: Floats | None
) -> ListedSelection | ProductSelection | None:
    """Selection among the user's points where there are any, else among the vertices of a recognised product."""
    if points is not None:
        listed = ListedSelection.of(rows, polytope, points)
        if listed is not None:
            return listed
    return ProductSelection.of(rows, polytope)


def oracles(rows: PrivateRows, polytope: Polyhedron, points: Floats | None) -> tuple[Oracle, ...]:
    """The oracles that can serve: listed points alone where given; else product selection and noise. Found once."""

    def build() -> tuple[Any, tuple[Oracle, ...]]:
        found, held = selections(rows, polytope, points), (rows, points)  # so that nothing else takes their identity
        if isinstance(found, ListedSelection):
            return held, (found,)
        noisy = NoisyMinimisation.of(rows, polytope)
        return held, (noisy,) if found is None else (found, noisy)

    return polytope.cached(("oracles", id(rows), id(points)), build)[1]


def _two_largest(values: Floats, sizes: Integers) -> list[float]:
    """Sum of the two largest of the values (k,) of each group (one where there is one); ``sizes`` (groups,)."""
    if not sizes.size:
        return []
    ends = np.cumsum(sizes)
    values = values[np.lexsort((values, np.repeat(np.arange(sizes.size), sizes)))]
    found: list[float] = (values[ends - 1] + np.where(sizes > 1, values[ends - 2], 0.0)).tolist()
    return found


def _most(sizes: Floats, caps: Floats, total: float) -> float:
    """``max sum sizes_j d_j`` over ``0 <= d <= caps`` with ``sum d <= total``."""
    order = np.argsort(-sizes)
    taken = np.concatenate([[0.0], np.cumsum(caps[order])])[:-1]
    return float(sizes[order] @ np.clip(total - taken, 0.0, caps[order]))


def _both(size: float, rows: PrivateRows, polytope: Polyhedron) -> float:
    """``size``, or twice the range of a residual: ``(a - b)'(v - w)`` is a difference of changes of two residuals."""
    low, high = rows.residual_range(polytope)
    return min(size, 2 * (high - low))
