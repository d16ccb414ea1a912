"""The best point that reads no private data: what every regression is measured against, and falls back to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import ExcessRisk, Forecast, capped
from dpmodel.privacy import NoiseSource
from dpmodel.regressions.excess import known_of
from dpmodel.regressions.model import PrivateRegression, public_excess, public_point
from dpmodel.text import number


@dataclass(frozen=True)
class PublicOnlyRegression(Mechanism[PrivateRegression]):
    """The best constant prediction of the declared labels, or the point of the set that comes nearest to it.

    Of several classes: equal chances of all, or the point of the set that comes nearest to them.

    Source
        The minimax point over the declared ranges (robust optimisation: Ben-Tal, El Ghaoui and Nemirovski 2009,
        chapter 1), searched between the set's centre and the best constant (``public_point``).
    Privacy
        ``run`` does not read the rows: its answer is a function of public facts. (0, 0)-DP.
    Utility
        For all data the excess risk is at most the largest objective at this point (``public_excess``), because losses
        and penalties are not negative. The prediction is its mean excess on the simulated populations.
    Cost
        At most one projection onto the set.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, classes=True, reads_nothing=True)
    name: str = "public-only"
    source: str = "Ben-Tal, El Ghaoui and Nemirovski 2009, chapter 1"

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        return YES

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast:
        known, at_most = known_of(model), public_excess(model)
        words = f"excess risk about {number(known.predicted)} on data drawn from the public bounds"
        proved = math.isfinite(at_most)
        if proved:
            words += f"; at most {number(at_most)} on any data"
        forecast = Forecast(
            statement=f"{words}; it is the same for all data",
            epsilon=0.0,
            delta=0.0,
            beta=0.0,
            error=ExcessRisk(known.predicted, at_most),
            proved=proved,
            work="nothing is read",
        )
        return capped(forecast, known)

    def run(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        notes = ("no private data was read: this point is the same for all data",)
        return Outcome("optimal", np.array(public_point(model)), None, None, notes=notes)


PUBLIC_ONLY_REGRESSION = PublicOnlyRegression()
__all__ = ["PUBLIC_ONLY_REGRESSION", "PublicOnlyRegression"]
