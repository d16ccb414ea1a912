"""The forecast of a regression in one form: what is predicted, what is proved, and when neither says anything.

And the mechanism that reads nothing, which every forecast is held against.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import ExcessRisk, Forecast
from dpmodel.known import Known, capped
from dpmodel.memo import cached
from dpmodel.privacy import Cost, NoiseSource, gaussian_mu
from dpmodel.regressions.model import PrivateRegression, objective_range, public_excess, public_point
from dpmodel.regressions.synthetic import populations_of
from dpmodel.text import number


def excess_forecast(
    model: PrivateRegression,
    options: Options,
    *,
    predicted: float,
    at_most: float | None = None,
    work: str,
    noise: Mapping[str, Any] | None = None,
    caveats: tuple[str, ...] = (),
    event: Cost | None = None,
) -> Forecast:
    """``predicted`` : mean excess risk on the simulated populations; ``at_most`` : a bound that a theorem gives for
    any data, exceeded with probability at most ``options.beta``, or None. ``work`` : its cost in words. ``event`` : see
    ``Forecast``.

    A prediction that is no better than the best point that needs no data says nothing, and a bound that this point
    keeps too is left out: then the prediction is all there is.
    """
    known = known_of(model)
    predicted = math.inf if math.isnan(predicted) else predicted  # descents that diverge in simulation
    proved = at_most is not None and bool(at_most < min(public_excess(model), known.objective))
    forecast = Forecast(
        statement=excess_words(max(predicted, 0.0), known, at_most if proved else None, options.beta),
        epsilon=options.epsilon,
        delta=options.delta,
        beta=options.beta,
        error=ExcessRisk(predicted, at_most if proved and at_most is not None else math.inf),
        proved=proved,
        work=work,
        noise=dict(noise or {}),
        caveats=caveats,
        event=event,
    )
    return capped(forecast, known)


def predicted_by(forecast: Forecast) -> float:
    """The excess risk that a regression's forecast predicts."""
    assert isinstance(forecast.error, ExcessRisk)
    return forecast.error.predicted


def excess_words(predicted: float, known: Known, at_most: float | None, beta: float) -> str:
    """What is said of the excess risk; ``at_most`` : a bound for any data, or None."""
    words = (
        f"excess risk about {number(predicted)} on data drawn from the public bounds "
        f"({number(known.predicted)} without data)"
    )
    if at_most is not None:
        words += f"; at most {number(at_most)} on any data with probability {number(1 - beta)}"
    return words


@cached
def known_of(model: PrivateRegression) -> Known:
    """What is known without data: the most that a point of the set can lose, and what the public point is predicted
    to."""
    nothing = float(np.mean(populations_of(model).nothing))
    return Known(objective=objective_range(model), predicted=math.inf if math.isnan(nothing) else nothing)


def clip_note(model: PrivateRegression, clip: float) -> tuple[str, ...]:
    """What a mechanism says that cuts derivatives by its own choice (to ``clip``, a public number)."""
    if clip >= model.derivative_bound:
        return ()
    bound = (
        f"they may reach {number(model.derivative_bound)}"
        if math.isfinite(model.derivative_bound)
        else "they have no bound"
    )
    return (
        f"derivatives of the loss were cut to {number(clip)} (a public choice; {bound}): labels far from the "
        "prediction pull no harder than that",
    )


# ------------------------------------------------------------------------------- Laplace noise where it is less


class PureToo(Mechanism[PrivateRegression], ABC):
    """A mechanism with a distribution of noise for delta = 0 and another for delta > 0, which takes the better one.

    (epsilon, 0) is a part of the budget (epsilon, delta). The choice is a function of public facts. As given, with
    delta > 0, all that is released is Gaussian noise, and mu-GDP with ``mu = gaussian_mu(epsilon, delta)``, where
    ``mu_gdp`` says so. What is accounted for otherwise (secret samples) keeps to (epsilon, delta) alone.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True)

    @property
    def mu_gdp(self) -> bool:
        """Whether a run as given with delta > 0 is mu-GDP with the mu of its budget, as Gaussian composition needs."""
        return True

    @abstractmethod
    def eligible(self, model: PrivateRegression, options: Options) -> Verdict: ...

    def event(self, options: Options) -> Cost | None:
        """Of a run as given."""
        return Cost.all_gaussian(options.epsilon, options.delta) if options.delta and self.mu_gdp else None

    @abstractmethod
    def forecast_as_given(self, model: PrivateRegression, options: Options) -> Forecast:
        """With the distribution that this delta has."""

    @abstractmethod
    def run_as_given(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        """With the distribution that this delta has."""

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast | Verdict:
        return self.forecast_as_given(model, self.spent(model, options))

    def run(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        return self.run_as_given(model, self.spent(model, options), noise, progress)

    def spent(self, model: PrivateRegression, options: Options) -> Options:
        """The request, without its delta where that is predicted to do better."""
        pure = replace(options, delta=0.0)
        if options.delta == 0 or not _may_win(model, options) or not self.eligible(model, pure).eligible:
            return options
        better = model.cached(  # by epsilon and delta alone; the rest of a request is its own
            ("pure is better", self, options.epsilon, options.delta),
            lambda: (
                predicted_by(self.forecast_as_given(model, pure)) < predicted_by(self.forecast_as_given(model, options))
            ),
        )
        return pure if better else options


def _may_win(model: PrivateRegression, options: Options) -> bool:
    """Whether Laplace noise on one sum over the rows deviates less than Gaussian noise. With more releases it only
    falls behind, so that this spares most searches for settings."""
    one, two = (model.row.sensitivity(1.0, order) for order in (1.0, 2.0))
    laplace = math.sqrt(2) * one / options.epsilon
    return math.isfinite(one) and laplace * gaussian_mu(options.epsilon, options.delta) < two


# ------------------------------------------------------------------------------------- the best point without data


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

    serves: ClassVar[Serves] = Serves(
        PrivateRegression, reads_blocks=True, classes=True, weights=True, reads_nothing=True
    )
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
