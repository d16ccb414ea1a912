"""What the mechanisms that search a public cone for a point with a margin share.

Projections onto the cone, private rows on a grid, the choice among candidates, what is forecast, and synthetic rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import nnls
from scipy.special import betainc, betaincinv
from scipy.stats import norm

from dpmodel._types import Floats, Mask, PrivateArray
from dpmodel.contract import Options, Verdict
from dpmodel.exact.model import Found, PrivateInequalities
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.privacy import Cost, PublicGenerator, public_generator
from dpmodel.privacy.accounting import Spend

# Points whose rows reach this multiple of their norm below zero count as inside.
_INSIDE = 1e-13

Projector = Callable[[Floats], Floats]


def projector(cone_rows: Floats) -> Projector:
    """The map ``(D,) -> (D,)`` onto ``{y : B y >= 0}``; looks at the rows once. See ``project``."""
    B = np.asarray(cone_rows, dtype=np.float64)
    norms = np.linalg.norm(B, axis=1)
    B = B[norms > 0] / norms[norms > 0, None]
    if B.shape[0] == 0:
        return lambda y: np.array(y, dtype=np.float64)
    if ((B != 0).sum(axis=1) == 1).all():
        lower = np.where((B > 0).any(axis=0), 0.0, -np.inf)
        upper = np.where((B < 0).any(axis=0), 0.0, np.inf)
        return lambda y: np.clip(y, lower, upper)
    return lambda y: _onto(B, np.asarray(y, dtype=np.float64))


def project(cone_rows: Floats, y: Floats) -> Floats:
    """The nearest point of ``{y : B y >= 0}``.

    ``cone_rows`` : (k, D) B; zero rows count for nothing, k = 0 is the whole space.
    ``y`` : (D,).
    Returns p : (D,) a new array with ``B p >= -1e-12 ||y||`` for unit rows; coordinate rows hold exactly. A point with
        ``B y >= -1e-13 ||y||`` is returned as it is, so that projecting twice is projecting once.

    The Karush-Kuhn-Tucker conditions of ``min ||p - y||^2 / 2`` say ``p = y + B'l``, where ``l >= 0`` minimises
    ``||B'l + y||``: clipping for coordinate rows, else non-negative least squares (Lawson and Hanson 1974).
    """
    return projector(cone_rows)(y)


def into_ball(point: Floats) -> Floats:
    """(D,) a cone point scaled to norm 1 at most.

    After a projection onto a cone this is the projection onto the cone's part in the unit ball: for the nearest cone
    point p of y, ``<y - p, p> = 0`` and ``<y - p, q> <= 0`` on the cone, so ``<y - p/||p||, q - p/||p||> <= (||p|| - 1)
    (<p/||p||, q> - 1) <= 0`` for cone points q of norm 1 at most where ``||p|| > 1``.
    """
    return np.asarray(point / max(1.0, float(np.linalg.norm(point))))


def _onto(B: Floats, y: Floats) -> Floats:
    size = float(np.linalg.norm(y))
    p = y / size if size > 0 else y.copy()
    if not size or (B @ p).min() >= -_INSIDE:
        return y.copy()
    for _ in range(3):  # rounding of the first solve is mended by the next, which starts next to the cone
        multipliers = np.asarray(nnls(B.T, -p, maxiter=30 * sum(B.shape))[0], dtype=np.float64)
        p = p + B.T @ multipliers
        left = float(np.linalg.norm(p))
        if left <= 1e-12:  # what rounding leaves of the apex
            return np.zeros_like(y)
        if (B @ p).min() >= -_INSIDE * left / 2:
            return p * size
    return p * size if (B @ p).min() >= -1e-12 else np.zeros_like(y)


# ------------------------------------------------------------------ private rows on a grid


ROW_GRID, POINT_GRID, _MOMENT_GRID = 2.0**24, 2.0**28, 2.0**15
# Rows added up in double precision at once: sums of their entries (of moments: entries made dense) stay below 2^53
# units.
_BLOCK, _MOMENT_BLOCK = 2**28, 2**22


@dataclass(frozen=True, eq=False)
class GridRows:
    """(n, D) private rows of norm 1 at most, dense or CSR, rounded to the grid. Build with ``of``.

    ``live`` (n,) : which are not zero. Zero rows always hold and do nothing. ``weight``, ``public`` : for synthetic
    rows of simulations, each of which may stand for several equal ones, and whose rescaling may take the quick way.

    Why. One row more moves the others in memory, and vectorised products then round them differently. A row near a
    threshold would be active in one data set and not in the other, so that sums moved by more than one row. Here
    rows are rounded to multiples of 2^-24 and points to multiples of 2^-28. By Cauchy and Schwarz all partial sums
    of a product are at most 1.01, hence multiples of 2^-52 below 2: exact in double precision in whatever order.
    What a row does depends on this row and on the point alone. Sums of up to 2^28 rows are exact too, and more are
    added up in integers. Second moments are those of rows cut towards zero to multiples of 2^-15, added up in units
    of 2^-30 in the same way.
    """

    rows: Any
    live: Mask
    weight: float = 1.0
    public: bool = False

    @staticmethod
    def of(rows: Any, weight: float = 1.0, *, public: bool = False) -> GridRows:
        """From (n, D) rows, dense or CSR. Unit rows never become zero (D <= 2^16)."""
        if not sp.issparse(rows):
            dense = np.rint(np.asarray(rows, dtype=np.float64) * ROW_GRID) / ROW_GRID
            return GridRows(dense, (dense != 0).any(axis=1), weight, public)
        grid = sp.csr_array(rows, dtype=np.float64, copy=True)
        grid.sum_duplicates()
        grid.data = np.rint(grid.data * ROW_GRID) / ROW_GRID
        grid.eliminate_zeros()
        return GridRows(grid, np.diff(grid.indptr) > 0, weight, public)

    @property
    def count(self) -> int:
        return int(self.rows.shape[0])

    @property
    def size(self) -> int:
        """D."""
        return int(self.rows.shape[1])

    def values(self, point: Floats) -> PrivateArray:
        """(n,) exact products with a grid point of norm 1.01 at most."""
        return PrivateArray(np.asarray(self.rows @ point, dtype=np.float64))

    def below(self, point: Floats, level: float) -> Mask:
        """(n,) rows that are not zero with ``<a, y> < level``."""
        return np.asarray((self.values(point) < level) & self.live)

    def sum(self, mask: Mask) -> PrivateArray:
        """(D,) the exact sum of some rows (rounded once beyond 2^28 of them)."""
        total = np.zeros(self.size, dtype=np.int64)
        for start in range(0, self.count, _BLOCK):
            block = slice(start, start + _BLOCK)
            part = self.rows[block].T @ mask[block].astype(np.float64)
            total += np.rint(np.asarray(part) * ROW_GRID).astype(np.int64)
        return PrivateArray(self.weight * (total / ROW_GRID))

    def number(self, mask: Mask) -> float:
        """How many rows some are."""
        return self.weight * float(np.count_nonzero(mask))

    def second_moments(self) -> PrivateArray:
        """(D, D) the exact sum of ``a a'`` over the rows on the coarser grid."""
        units = np.zeros((self.size, self.size), dtype=np.int64)
        step = max(_MOMENT_BLOCK // max(self.size, 1), 1)
        for start in range(0, self.count, step):
            part = self.rows[start : start + step]
            coarse = np.trunc((part.toarray() if sp.issparse(part) else part) * _MOMENT_GRID)
            units += (coarse.T @ coarse).astype(np.int64)
        return PrivateArray(self.weight * (units / _MOMENT_GRID**2))

    def rescaled(self, by: Floats) -> GridRows:
        """The rows ``a'W`` scaled to unit norm, for a public (D, D) W.

        Sparse products go row by row, so a row of the result depends on its own record alone; dense ones may not.
        """
        moved = np.asarray((self.rows if self.public else sp.csr_array(self.rows)) @ by)
        norms = np.sqrt((moved * moved).sum(axis=1))[:, None]
        unit = np.divide(moved, norms, out=np.zeros_like(moved), where=norms > 0)
        return GridRows.of(unit, self.weight, public=self.public)


def grid_point(point: Floats) -> Floats:
    """(D,) the nearest grid point, at most ``sqrt(D) 2^-29`` away."""
    return np.asarray(np.rint(point * POINT_GRID) / POINT_GRID)


def grid_direction(point: Floats) -> Floats:
    """The grid point nearest to ``point`` scaled to unit norm; zero stays zero."""
    norm = float(np.linalg.norm(point))
    return grid_point(point / norm) if norm > 0 else point


def row_norm(size: int) -> float:
    """Largest norm of a row on the grid: 1 + 1e-11 before (D <= 2^16), entries moved by 2^-25 at most."""
    return 1 + 1e-11 + math.sqrt(size) * 2.0**-25


def allowance(size: int) -> float:
    """How far ``<a, y>`` for a row and a unit vector as they are is from the product on the grids, at most, after the
    answer was projected onto the cone once more: ``sqrt(D) (2^-25 + 2 2^-29)`` and rounding."""
    return math.sqrt(size) * 2.0**-24


# ------------------------------------------------------------------
# What the mechanisms that search a public cone for a point with a margin share: whom they serve, which of their
# candidates is released, how it becomes an answer, and what is forecast of it. Public facts and released numbers only.


# (values, scale) to values with independent noise of that scale.
Draw = Callable[[Floats, float], Floats]
_MOST_VARIABLES = 2**16
# How far an answer of the homogeneous form is moved towards y0 > 0 where it is not there (times the margin, at most).
_LIFT, _LIFT_SHARE = 2.0**-20, 2.0**-6

# The candidates of T steps, of which noisy counts of missed rows choose one.
NAMES = ("average", "average of the second half", "last")
# The candidate that is taken unless another's noisy count is lower by more than the standard deviation of their
# difference: on planted systems it misses nothing most often, and noise is not to decide between equals.
_USUAL, _AHEAD = 1, 2**0.5
# Share of the budget for the counts.
COUNT_SHARE = 0.1


# ------------------------------------------------------------------ whom they serve
def cone_eligible(model: PrivateInequalities, least: float = 64.0) -> Verdict | None:
    """No, where the margin (at least ``least`` times the rounding allowance) or the public cone does not serve."""
    if model.margin is None:
        return Verdict(False, "it needs a public margin rho0 that some point keeps to all rows: give margin=")
    if not model.margin <= 1:
        return Verdict(False, "the margin of unit rows lies in (0, 1]")
    size = model.cone_dimension
    if size > _MOST_VARIABLES:
        return Verdict(False, f"at most {_MOST_VARIABLES} variables are covered by its exact sums")
    if model.margin < least * allowance(size):
        return Verdict(False, f"the margin is below {least * allowance(size):.2g}, too small for double precision")
    if lift(model) is None:
        return Verdict(False, "no public point is near enough to the origin for double precision")
    return None


def lift(model: PrivateInequalities) -> tuple[Floats, float] | None:
    """A public unit vector p of the cone with the largest ``p0``, and by how much of it answers may be moved.

    The projection p of e0 onto the cone has ``<e0, p> = ||p||^2`` and vanishes only if no cone point has y0 > 0. None:
    there is no such point, or it is too far away for double precision. Homogeneous systems need no lift: (0, 0).
    """

    def build() -> tuple[Floats, float] | None:
        size = model.cone_dimension
        if model.homogeneous:
            return np.zeros(size), 0.0
        p = project(model.cone, np.eye(1, size)[0])
        norm = float(np.linalg.norm(p))
        by = min(_LIFT, _LIFT_SHARE * (model.margin or 0.0))
        return (p / norm, by) if norm > 0 and by * p[0] / norm >= math.sqrt(size) * 2.0**-26 else None

    return model.cached("lift", build)


# ------------------------------------------------------------------ which candidate is released
def candidates(iterates: Floats) -> tuple[Floats, ...]:
    """The points of ``NAMES``, up to positive factors (answers are rays), from the (T, D) points asked at."""
    return iterates.sum(axis=0), iterates[len(iterates) // 2 :].sum(axis=0), iterates[-1]


class Chosen(NamedTuple):
    """The released unit grid point (or zero), the noisy count of the rows it misses, and which candidate it is."""

    y: Floats
    missed: float
    name: str


@dataclass(frozen=True)
class CountNoise:
    """Noise on the counts of the candidates.

    One row more or less moves each count by 1 at most, all in the same direction; a row replaced moves each by 1 at
    most. So k counts move by ``sqrt(k)`` in the 2-norm and k in the 1-norm under both relations.
    """

    kind: str
    scale: float

    @staticmethod
    def of(spend: Spend) -> CountNoise:
        k = len(NAMES)
        if spend.rho is None:
            return CountNoise("laplace", spend.laplace_scale(float(k)))
        return CountNoise("gaussian", spend.gaussian_sigma(k**0.5))

    def lost(self, beta: float) -> float:
        """Except with probability ``beta`` the choice misses at most so many rows more than the first candidate.

        Its noisy count is at most the first one's plus the head start, so it is worse by at most that and ``max_j (N_1
        - N_j)``, a maximum of k - 1 Gaussians of standard deviation sqrt(2) scale. For Laplace noise: twice the largest
        of k.
        """
        k = len(NAMES)
        if self.kind == "gaussian":
            return float(self.scale * (_AHEAD + 2**0.5 * norm.isf(beta / (k - 1))))
        return float(self.scale * (_AHEAD + 2 * np.log(k / beta)))

    def choose(self, points: list[Floats], noisy: Floats) -> Chosen:
        """The point with the least noisy count, but for the head start."""
        started = noisy.copy()
        started[_USUAL] -= _AHEAD * self.scale
        best = int(np.argmin(started))
        return Chosen(points[best], max(float(noisy[best]), 0.0), NAMES[best])


def missed_counts(rows: GridRows, points: list[Floats]) -> PrivateArray:
    """How many rows each unit grid point (or zero) misses: those with ``<a, y>`` below the rounding allowance, so that
    all rows that the answer truly misses count."""
    return PrivateArray(np.array([rows.number(rows.below(y, allowance(rows.size))) for y in points]))


# ------------------------------------------------------------------ how it becomes an answer
def finisher(model: PrivateInequalities) -> Callable[[Floats], Floats]:
    """The map from a point that was found to a unit grid point with y0 > 0 (zero stays zero)."""
    found = lift(model)
    assert found is not None  # cone_eligible
    upward, by = found

    def finish(point: Floats) -> Floats:
        norm = float(np.linalg.norm(point))
        y = point / norm if norm > 0 else point
        if not model.homogeneous and y[0] < by * upward[0]:
            y = y + by * upward
            y = y / max(float(np.linalg.norm(y)), 1.0)
        return grid_point(y)

    return finish


def answer(model: PrivateInequalities, chosen: Chosen) -> Found:
    """The answer x of the grid point, projected onto the cone that rounding left."""
    note = f"of three candidates by noisy counts: {chosen.name}"
    if not np.any(chosen.y):
        return Found("nothing", None, chosen.missed, (note, "every direction found was outside the public cone"))
    return Found("found", model.lowered(projector(model.cone)(chosen.y)), chosen.missed, (note,))


# ------------------------------------------------------------------ what is forecast
def cone_forecast(
    model: PrivateInequalities,
    options: Options,
    proved: float,
    median: float,
    high: float,
    noise: dict[str, object],
    work: str,
) -> Forecast:
    """The forecast from a proved and a simulated number of missed rows."""
    missed, theorem = min(proved, high), proved <= high and proved < model.expected
    enough = 2.0 * math.floor(missed) + 1
    said = "nothing proved at this size"
    if proved < model.expected:
        words = f"at most {proved:.0f} of up to {model.expected} rows violated"
        said = f"{words} with probability {1 - options.beta:g} (proved)"
    statement = (
        f"{said}; in simulations on synthetic rows with the promised margin {median:.0f} in the median, {high:.0f} "
        f"at quantile {1 - options.beta:g}, of about {model.expected} rows"
    )
    return model.forecast(
        options,
        statement,
        RowsMissed(
            missed=missed, needed=enough if enough <= model.expected else max(enough, noise_lower_bound(model, options))
        ),
        proved=theorem,
        event=Cost.all_gaussian(options.epsilon, options.delta),
        work=work,
        noise={**noise, "missed, proved": proved, "missed, simulated": high},
        caveats=(
            "all of it rests on the promised margin; without it privacy holds and utility may fail",
            *(() if theorem else ("simulated on synthetic rows: real ones may be missed more often",)),
        ),
    )


def noise_lower_bound(model: PrivateInequalities, options: Options) -> float:
    """Twice the square root of D / (2 rho), over the margin: rows that outweigh the noise that descent in D dimensions
    cannot average away."""
    spend = Spend.of(options.epsilon, options.delta, gaussian_only=True)
    unit = 1 / math.sqrt(2 * spend.rho) if spend.rho is not None else 1 / spend.epsilon
    return 2 * unit * math.sqrt(model.cone_dimension) / float(model.margin or math.nan)


# ------------------------------------------------------------------
# Synthetic inequalities that keep a promised margin: what forecasts of cone mechanisms simulate on. Public facts only
#
# Every instance has a unit vector z of the public cone with ``<a, z> >= rho0`` for all rows a, of unit norm. Three
# kinds:
#
# * "uniform": rows are uniform on the sphere, given the margin;
# * "margin": all rows are exactly at the margin, uniform otherwise;
# * "skewed": all rows at the margin, and most of them lean to the same side of z, so that the average row is far from z
# and a tenth of the rows lies on the other side of it. This is the hard one for descent.


Kind = Literal["uniform", "margin", "skewed"]
KINDS: tuple[Kind, ...] = ("uniform", "margin", "skewed")
SEEDS = 21
# Share of the rows of a skewed instance on the far side, and how much the lean outweighs the rest of a row.
_FAR, _LEAN = 0.1, 1.0
# Multiplications of one forecast, all simulations together, and the fewest rows that a simulation has.
_WORK, _FEWEST = 4e8, 200

# (rows, weight, seed) -> cone point; every row stands for ``weight`` equal ones.
Simulation = Callable[[Floats, float, int], Floats]


def public_noise(kind: str, seed: int) -> Draw:
    """Synthetic noise for simulations: Laplace or Gaussian, from a seed."""
    generator = public_generator(seed)
    distribution = generator.laplace if kind == "laplace" else generator.normal
    return lambda values, scale: values + distribution(0.0, scale, np.shape(values))


def synthetic(model: PrivateInequalities, seed: int, count: int, kind: Kind = "uniform") -> tuple[Floats, Floats]:
    """(count, D) unit rows with the margin ``model.margin`` (0 where none is promised) inside ``model.cone``, and the
    (D,) unit vector z that keeps it."""
    draw, size = public_generator(seed), model.cone_dimension
    margin = min(max(model.margin or 0.0, 0.0), 1.0)
    z = _direction(model, draw)
    if size == 1:
        return np.tile(z, (count, 1)), z
    along = _heights(draw, size, margin, count) if kind == "uniform" else np.full(count, margin)
    across = draw.standard_normal((count, size))
    if kind == "skewed":
        lean = draw.standard_normal(size)
        lean -= (lean @ z) * z
        lean /= np.linalg.norm(lean)
        across /= np.linalg.norm(across, axis=1)[:, None]
        across += np.where(draw.uniform(size=count) < _FAR, -_LEAN, _LEAN)[:, None] * lean
    across -= np.outer(across @ z, z)
    norms = np.linalg.norm(across, axis=1)
    rows = np.outer(along, z) + across * (np.sqrt(1 - along**2) / np.maximum(norms, 1e-300))[:, None]
    return rows, z


def forecast_missed(
    model: PrivateInequalities,
    options: Options,
    key: str,
    run: Simulation,
    *,
    steps: int = 1,
    seeds: int = SEEDS,
    kinds: tuple[Kind, ...] = KINDS,
    most: int | None = None,
) -> tuple[float, float]:
    """Rows that simulated runs miss: the median and the quantile ``1 - beta``, each for the worst kind of instance.

    ``key`` : distinguishes simulations of one model and budget; the answer is computed once.
    ``run`` : ``(rows, weight, seed)`` to the (D,) answer of the mechanism. The rows are capped (at ``most``, or at a
        number that keeps all simulations together below about a second); each then stands for ``weight = expected /
        rows`` equal ones (sums and counts are to be multiplied by it), which keeps the ratio of signal and noise. Rows
        count as missed where ``<a, y> < 0`` or y is zero; the quantile is that of counts in steps of ``weight``, at its
        upper end.
    ``steps`` : products with the rows and their transpose in one run.
    """
    # With few rows per dimension nearly any direction fits; many dimensions get fewer runs instead.
    size = model.cone_dimension
    seeds = seeds if size <= 100 else min(seeds, 7)
    cap = most or max(int(_WORK / (seeds * len(kinds) * max(steps, 1) * size)), _FEWEST, 8 * size)
    count = max(min(model.expected, cap), 1)

    def build() -> tuple[float, float]:
        weight = max(model.expected, 1) / count
        median = high = 0.0
        for kind in kinds:
            missed = np.empty(seeds)
            for seed in range(seeds):
                rows, _ = synthetic(model, seed, count, kind)
                y = run(rows, weight, seed)
                missed[seed] = weight * (np.count_nonzero(rows @ y < 0) if np.any(y) else count)
            median = max(median, float(np.median(missed)))
            high = max(high, float(np.quantile(missed, 1 - options.beta, method="higher")) + (weight - 1))
        return median, high

    return model.cached(("missed", key, options.epsilon, options.delta, options.beta), build)


def _direction(model: PrivateInequalities, draw: PublicGenerator) -> Floats:
    """(D,) a unit vector of the cone; any where the cone seems to be the apex alone (the promise cannot hold then)."""
    onto = projector(model.cone)
    for _ in range(20):
        z = draw.standard_normal(model.cone_dimension)
        inside = onto(z)
        norm = float(np.linalg.norm(inside))
        if norm > 1e-6 * np.linalg.norm(z):
            return inside / norm
    return z / float(np.linalg.norm(z))


def _heights(draw: PublicGenerator, size: int, margin: float, count: int) -> Floats:
    """(count,) first coordinates of uniform unit vectors, given that they are at least ``margin`` >= 0.

    ``1 - t^2`` has the distribution Beta((D - 1) / 2, 1 / 2), here cut at ``1 - margin^2`` and drawn by inversion.
    """
    first = (size - 1) / 2
    top = float(betainc(first, 0.5, 1 - margin**2))
    if not math.isfinite(top) or top < 1e-290:  # so rare that all of it lies at the margin
        return np.full(count, margin)
    square = np.asarray(betaincinv(first, 0.5, top * draw.uniform(size=count)), dtype=np.float64)
    return np.clip(np.sqrt(np.maximum(1 - square, 0.0)), margin, 1.0)
