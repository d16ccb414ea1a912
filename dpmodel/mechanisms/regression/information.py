"""What noise on gradients leaves to be learnt: a bound on forecasts where that is next to nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.forecast import Bound, ExcessRisk
from dpmodel.mechanisms.regression.synthetic import populations_of
from dpmodel.mechanisms.spend import Spend
from dpmodel.numerics.public_facts import cached

_SMALL = 1e-6  # of the derivatives' bound: cut there, derivatives tell their sign alone
_SYMMETRIC = ("l1", "l2", "linf")
_ROOM = 2.0  # for the higher orders, and for gradients asked for at other points than the first
_FAINT = 1.5  # standard deviations of the noise: a column of h beyond that is found, whatever the others are


def too_noisy(model: PrivateRegression, request: Request) -> Iterator[Bound]:
    """A bound on the forecast of whatever sees the rows through gradients with Gaussian noise (objective perturbation
    is one of them: b is such a gradient). Nothing where it says nothing.

    Losses are convex: from the public point w0, at which the gradient is g, a point w of the set gains at most
    ``<-g, w - w0>``. Many noisy gradients tell no more than one with the noise s of the whole budget. Where all columns
    are alike to the mechanism, so that the truth might as well lie at other columns with other signs, a function u of
    ``h + N(0, s^2)``, |u| <= R, has ``E <-g, u> <= R (E <g, g'> e^(<h, h'> / s^2))^(1/2)`` for two such truths (Cauchy
    and Schwarz against the noise alone), which is ``R |g| a / sqrt(p)`` to first order, a = |h| / s. h is what is
    noised; a is largest for derivatives that are cut to their signs. Higher orders are largest where few columns carry
    h: where k do alike, ``k sinh(a^2 / k)`` stands for a^2, but for truths that share more than one of them. So no
    column may have more than ``_FAINT`` s of it.
    """
    least = _least(model, request.epsilon, request.delta) if request.delta > 0 else 0.0
    if least > 0:
        yield Bound(ExcessRisk(least))


@cached
def _least(model: PrivateRegression, epsilon: float, delta: float) -> float:
    row, clip = model.row, _SMALL * model.derivative_bound
    alike = model.scores == 1 and not row.constant.any() and bool((row.magnitudes == row.magnitudes[0]).all())
    if not (alike and model.domain.kind in _SYMMETRIC and 0 < clip * row.norm(2.0) < math.inf):
        return 0.0
    populations = populations_of(model)
    start = populations.start
    radius = model.domain.norm(2.0) + float(np.linalg.norm(start[0]))
    if populations.mean.any() or model.penalty.subgradient(start).any():
        return 0.0
    noise = model.scale * Spend.of(epsilon, delta, gaussian_only=True).gaussian_sigma(
        model.gradient_sensitivity(2.0, clip)
    )
    h, gained = populations.gradients(start, clip), np.linalg.norm(populations.gradients(start, math.inf), axis=1)
    gain = _ROOM * radius * gained * np.linalg.norm(h, axis=1) / (noise * math.sqrt(model.size))
    gain[np.abs(h).max(axis=1) > _FAINT * noise] = math.inf
    return float(np.maximum(populations.nothing - gain, 0.0).mean())
