"""What a budgeted rescaling perceptron does, as a function of public facts: rounds, noise, thresholds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.mechanisms.lp.noise_once.measurement import ROUNDING
from dpmodel.mechanisms.spend import Spend

# Shares of the budget; the rounds have the rest. Chosen on simulated instances.
_RESCALING, _COUNTS = 0.2, 0.1
_MARKS = 4
# A rescaling releases D (D + 1) / 2 numbers and takes eigenvalues.
MOST_RESCALED = 300


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """A public schedule.

    ``rounds`` : T. ``requested`` : rows with ``<a, y> < requested`` (unit y, in rescaled coordinates) count as
    violated.
    ``slack`` : the same where finished candidates are counted. ``count_weight`` : k of the release (sum, k
    count). ``sigmas`` (T,) : of its noise, round by round. ``rescaling`` : standard deviation of the noise on the
    second moments, or None without a rescaling. ``marks`` : rounds after which a candidate is counted, with noise of
    ``mark_sigma``.
    ``enough`` : the search ends at a noisy count of at most this.
    """

    rounds: int
    requested: float
    slack: float
    count_weight: float
    sigmas: Floats
    rescaling: float | None
    marks: tuple[int, ...]
    mark_sigma: float
    enough: float


def release_sensitivity(replace_one: bool, count_weight: float) -> float:
    """Largest 2-norm by which one record moves (sum of the violated rows, k times their number).

    Which rows are violated is decided row by row, given released numbers. A row that comes or goes moves the release by
    (a, k) or 0, so by ``sqrt(1 + k^2)`` at most. A row a that is replaced by a' moves it by (a - a', 0) if both are
    violated, by (a, k) or (a', k) if one is: by at most ``max(2, sqrt(1 + k^2))``.
    """
    one = math.hypot(1.0, count_weight)
    return (max(2.0, one) if replace_one else one) * (1 + ROUNDING)


def moments_sensitivity(replace_one: bool) -> float:
    """Largest Frobenius norm by which one record moves ``sum a a'``: 1, or sqrt 2 as <aa', bb'> = <a, b>^2 >= 0."""
    return (math.sqrt(2.0) if replace_one else 1.0) * (1 + ROUNDING)


def needs_rescaling(margin: float, size: int) -> bool:
    """Whether the margin is below ``1 / sqrt(D)``, the size of inner products of random directions.

    Wider margins are found by plain steps. Below, in simulations, a rescaling was worth its share of the budget.
    """
    return 1 < size <= MOST_RESCALED and margin * math.sqrt(size) < 1


def plan_search(model: PrivateInequalities, request: Request, rescaling: str = "auto") -> SearchPlan:
    """The schedule for this margin, dimension, neighbor relation and budget."""
    size, margin = model.cone_dimension, float(model.margin or 0.0)
    replace_one = model.neighbors == "replace-one"
    spend = Spend.of(request.epsilon, request.delta, gaussian_only=True)
    rescales = needs_rescaling(margin, size) if rescaling == "auto" else rescaling == "always"
    rounds = math.ceil(np.clip(3 / margin, 40, 300))
    # Counts serve step lengths and need less precision than sums; where rows are replaced they cost nothing more.
    weight = math.sqrt(3.0) if replace_one else size**-0.25
    share = 1 - _COUNTS - (_RESCALING if rescales else 0.0)
    each = np.arange(1, rounds + 1, dtype=np.float64)
    each *= share / each.sum()
    marks = tuple(int(m) for m in np.unique(np.geomspace(rounds / 4, rounds, _MARKS).astype(int)))
    mark_sigma = spend.part(_COUNTS).gaussian_sigma(1.0, len(marks))
    return SearchPlan(
        rounds=rounds,
        requested=max(0.5 * margin, min(2 * margin, 0.25 / math.sqrt(size))),
        slack=0.01 * margin,
        count_weight=weight,
        sigmas=spend.gaussian_sigma(release_sensitivity(replace_one, weight)) / np.sqrt(each),
        rescaling=spend.part(_RESCALING).gaussian_sigma(moments_sensitivity(replace_one)) if rescales else None,
        marks=marks,
        mark_sigma=mark_sigma,
        # Ending saves time alone, so only counts that hardly any violated row is left under do it.
        enough=-mark_sigma,
    )
