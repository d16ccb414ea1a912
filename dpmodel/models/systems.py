"""Exact systems: vectors, inequalities and points of private records, satisfied exactly or not at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from dpmodel.contract import Candidate, Model, Options, WrongOutcome
from dpmodel.errors import UnsupportedModelError
from dpmodel.exact.model import (
    Found,
    PrivateInequalities,
    PrivatePoints,
    PrivateSystem,
    PrivateVectors,
    system_lower_bounds,
)
from dpmodel.forecast import RowsMissed

S = TypeVar("S", PrivateVectors, PrivateInequalities, PrivatePoints)


class ExactSystem(Model[S]):
    """What the three kinds share."""

    words = "system"
    error = RowsMissed

    def refuse_auto(self, candidates: Sequence[Candidate]) -> None:
        """UnsupportedModelError where the number of records is public and no statement covers it."""
        forecasts = [c.forecast for c in candidates if c.eligible and c.forecast is not None]
        if self.data.records is None or not forecasts or not all(forecast.vacuous for forecast in forecasts):
            return
        errors = [forecast.error for forecast in forecasts]
        needed = min(
            (e.needed for e in errors if isinstance(e, RowsMissed) and not math.isnan(e.needed)), default=math.inf
        )
        at_least = f"at least {math.ceil(needed)} are needed" if math.isfinite(needed) else "no number of them would do"
        raise UnsupportedModelError(
            f"too few records for any guarantee: {self.data.expected}, and {at_least}",
            why="every mechanism that applies may miss all rows at this size and budget",
            remedy="more records, a larger epsilon or delta, fewer dimensions, or mechanism= to run one all the same",
        )

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        return system_lower_bounds(self.data, options.epsilon, options.delta, options.beta)

    def checked(self, outcome: Any) -> Found:
        if not isinstance(outcome, Found):
            raise WrongOutcome(f"{type(outcome).__name__} instead of Found")
        return outcome


class Vectors(ExactSystem[PrivateVectors]):
    """Spans, affine spans and equations."""

    remedy = "delta > 0, such as 1e-6"


class Inequalities(ExactSystem[PrivateInequalities]):
    """Linear inequalities, all but a few of which are to hold."""

    remedy = "a public margin=, or integers of a public bound= and delta > 0"


class Points(ExactSystem[PrivatePoints]):
    """Points of a grid, in whose hull the answer is to lie."""

    remedy = "at most five coordinates, a larger step (fewer grid points), or delta > 0"


def system(data: PrivateSystem) -> ExactSystem[Any]:
    """``data`` as the model of its kind."""
    kinds: dict[type, type[ExactSystem[Any]]] = {
        PrivateVectors: Vectors,
        PrivateInequalities: Inequalities,
        PrivatePoints: Points,
    }
    return kinds[type(data)](data)
