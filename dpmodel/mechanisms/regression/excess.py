"""The forecast of a regression in one form: what is predicted, what is proved, and when neither says anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.forecast import ExcessRisk, Forecast
from dpmodel.mechanisms.known import Known, capped
from dpmodel.mechanisms.regression.public_point import objective_range, public_excess
from dpmodel.mechanisms.regression.synthetic import populations_of
from dpmodel.numerics.public_facts import cached
from dpmodel.text import number


def excess_forecast(
    model: PrivateRegression,
    request: Request,
    *,
    predicted: float,
    at_most: float | None = None,
    work: str,
    noise: Mapping[str, Any] | None = None,
    caveats: tuple[str, ...] = (),
) -> Forecast:
    """``predicted`` : mean excess risk on the simulated populations; ``at_most`` : a bound that a theorem gives for
    any data, exceeded with probability at most ``request.beta``, or None. ``work`` : its cost in words.

    A prediction that is no better than the best point that needs no data says nothing, and a bound that this point
    keeps too is left out: then the prediction is all there is.
    """
    known = known_of(model)
    predicted = math.inf if math.isnan(predicted) else predicted  # descents that diverge in simulation
    proved = at_most is not None and bool(at_most < min(public_excess(model), known.objective))
    forecast = Forecast(
        statement=excess_words(predicted, known, at_most if proved else None, request.beta),
        epsilon=request.epsilon,
        delta=request.delta,
        beta=request.beta,
        error=ExcessRisk(predicted, at_most if proved and at_most is not None else math.inf),
        proved=proved,
        work=work,
        noise=dict(noise or {}),
        caveats=caveats,
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
