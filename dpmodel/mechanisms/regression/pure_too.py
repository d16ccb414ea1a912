"""Pure privacy stays a candidate where delta is allowed: Laplace noise can be less than Gaussian noise."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import Mechanism, Outcome, Progress, Request, Serves, Verdict, no_progress
from dpmodel.mechanisms.forecast import Bound, Forecast
from dpmodel.mechanisms.regression.excess import predicted_by
from dpmodel.mechanisms.regression.information import too_noisy
from dpmodel.privacy import NoiseSource, gaussian_mu


class PureToo(Mechanism[PrivateRegression], ABC):
    """A mechanism with a distribution of noise for delta = 0 and another for delta > 0, which takes the better one.

    (epsilon, 0) is a part of the budget (epsilon, delta). The choice is a function of public facts. As asked, with
    delta > 0, all that is released is Gaussian noise, and mu-GDP with ``mu = gaussian_mu(epsilon, delta)``.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression)

    @abstractmethod
    def eligible(self, model: PrivateRegression, request: Request) -> Verdict: ...

    @abstractmethod
    def forecast_as_requested(self, model: PrivateRegression, request: Request) -> Forecast:
        """With the distribution that this delta has."""

    @abstractmethod
    def run_as_requested(
        self, model: PrivateRegression, request: Request, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        """With the distribution that this delta has."""

    def at_least(self, model: PrivateRegression, request: Request) -> Iterator[Bound]:
        return iter(()) if _may_win(model, request) else too_noisy(model, request)

    def forecast(self, model: PrivateRegression, request: Request) -> Forecast:
        return self.forecast_as_requested(model, self.spent(model, request))

    def run(
        self, model: PrivateRegression, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        return self.run_as_requested(model, self.spent(model, request), noise, progress)

    def spent(self, model: PrivateRegression, request: Request) -> Request:
        """The request, without its delta where that is predicted to do better."""
        pure = replace(request, delta=0.0)
        if request.delta == 0 or not _may_win(model, request) or not self.eligible(model, pure).eligible:
            return request
        better = model.cached(  # by epsilon and delta alone; the rest of a request is its own
            ("pure is better", self, request.epsilon, request.delta),
            lambda: (
                predicted_by(self.forecast_as_requested(model, pure))
                < predicted_by(self.forecast_as_requested(model, request))
            ),
        )
        return pure if better else request


def _may_win(model: PrivateRegression, request: Request) -> bool:
    """Whether Laplace noise on one sum over the rows deviates less than Gaussian noise. With more releases it only
    falls behind, so that this spares most searches for settings."""
    one, two = (model.row.sensitivity(1.0, order) for order in (1.0, 2.0))
    laplace = math.sqrt(2) * one / request.epsilon
    return math.isfinite(one) and laplace * gaussian_mu(request.epsilon, request.delta) < two
