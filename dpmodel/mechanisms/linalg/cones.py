"""What the mechanisms that search a public cone for a point with a margin share: whom they serve, which of their
candidates is released, how it becomes an answer, and what is forecast of it. Public facts and released numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from dpmodel._types import Floats, PrivateArray
from dpmodel.mechanisms.contract import Request, Verdict
from dpmodel.mechanisms.forecast import Bound, Forecast, RowsMissed
from dpmodel.mechanisms.known import capped
from dpmodel.mechanisms.linalg.found import Found
from dpmodel.mechanisms.linalg.grid_rows import GridRows, allowance, grid_point
from dpmodel.mechanisms.linalg.systems import PrivateInequalities, known_of
from dpmodel.mechanisms.spend import Spend
from dpmodel.numerics.polytopes.cone_projection import project, projector

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
def candidates(requested: Floats) -> tuple[Floats, ...]:
    """The points of ``NAMES``, up to positive factors (answers are rays), from the (T, D) points asked at."""
    return requested.sum(axis=0), requested[len(requested) // 2 :].sum(axis=0), requested[-1]


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
    request: Request,
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
        said = f"{words} with probability {1 - request.beta:g} (proved)"
    statement = (
        f"{said}; in simulations on synthetic rows with the promised margin {median:.0f} in the median, {high:.0f} "
        f"at quantile {1 - request.beta:g}, of about {model.expected} rows"
    )
    forecast = Forecast(
        statement,
        request.epsilon,
        request.delta,
        request.beta,
        proved=theorem,
        work=work,
        noise={**noise, "missed, proved": proved, "missed, simulated": high},
        caveats=(
            "all of it rests on the promised margin; without it privacy holds and utility may fail",
            *(() if theorem else ("simulated on synthetic rows: real ones may be missed more often",)),
        ),
        error=RowsMissed(
            missed=missed, needed=enough if enough <= model.expected else max(enough, noise_lower_bound(model, request))
        ),
    )
    return capped(forecast, known_of(model))


def nothing(model: PrivateInequalities, proved: float) -> float:
    """Missed rows from which on simulations say nothing, where what is proved says nothing either."""
    least = known_of(model).missed
    return least if proved >= least else math.inf


def hoped(model: PrivateInequalities, least: float) -> tuple[Bound, ...]:
    """The bound of a forecast that says ``least`` rows or more; none where it may say nothing, and tells with how many
    records it would."""
    return (Bound(RowsMissed(missed=least)),) if least < known_of(model).missed else ()


def noise_lower_bound(model: PrivateInequalities, request: Request) -> float:
    """Twice the square root of D / (2 rho), over the margin: rows that outweigh the noise that descent in D dimensions
    cannot average away."""
    spend = Spend.of(request.epsilon, request.delta, gaussian_only=True)
    unit = 1 / math.sqrt(2 * spend.rho) if spend.rho is not None else 1 / spend.epsilon
    return 2 * unit * math.sqrt(model.cone_dimension) / float(model.margin or math.nan)
