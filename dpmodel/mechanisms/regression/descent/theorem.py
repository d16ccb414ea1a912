"""A bound on the excess of averaged noisy descent over a bounded set, with high probability."""

from __future__ import annotations

import math

import numpy as np

from dpmodel.mechanisms.regression.descent.steps import Settings, StepNoise
from dpmodel.mechanisms.regression.public_point import public_point


def averaged_excess(noise: StepNoise, settings: Settings, beta: float) -> float | None:
    """Proved bound, or None where the theorem does not speak (momentum, other averages, Laplace noise, unbounded sets,
    penalties that are not quadratic, several scores).

    Theorem. Points u_t of a convex set U, ``u_{t+1} = P_U(u_t - h (g_t + x_t))``, g_t a subgradient of f at u_t with
    ``|g_t| <= G``, x_t given the past N(0, s_t^2 I) with s_t <= s, plus a fixed N(0, r^2 I) vector x. The mean of the
    T points has, with probability 1 - beta, ``f(mean) - f(u*) <= R^2 / (2 h T) + (h / 2)(G + N)^2 + D s sqrt(2 l / T) +
    D Q`` with R = max |u_0 - u|, D the diameter, l = ln(3 / beta), ``N = s (sqrt(p) + sqrt(2 l / T)) + Q`` and
    ``Q = r (sqrt(p) + sqrt(2 l))``.

    Proof. Projection does not increase distances: ``<g_t + e_t, u_t - u*> <= (|u_t - u*|^2 - |u_{t+1} - u*|^2) / 2h +
    (h/2) |g_t + e_t|^2``, e_t all noise of step t. Sum over t; convexity turns ``<g_t, u_t - u*>`` into excess. Given
    the past ``<x_t, u* - u_t>`` is normal with variance at most s^2 D^2, so their sum has the tail of a normal of
    variance T s^2 D^2 (supermartingale exp): the third term, except w.p. beta/3. ``|x| <= Q`` except w.p. beta/3
    (Gaussian concentration of the norm), likewise ``sqrt(sum |x_t|^2) <= s (sqrt(T p) + sqrt(2 l))``, where scaling x_t
    up to s only increases it. Minkowski in t bounds the root mean square of |g_t + e_t| by G + N.
    """
    model, metric, penalty = noise.model, noise.metric, noise.model.penalty
    if (
        settings.clip < math.inf
        or settings.momentum
        or settings.averaging != "all"
        or noise.order != 2
        or not penalty.smooth
        or model.scores > 1
    ):
        return None
    if not math.isfinite(model.prediction_bound) or not model.domain.bounded or not metric.diagonal:
        return None
    stretch = float((1 / metric.scale).max())  # |v| <= |w| max 1 / scale
    diameter, far = stretch * model.domain.diameter(2.0), stretch * model.domain.norm(2.0)
    center = float(np.linalg.norm(metric.coordinates(public_point(model))))
    radius = min(diameter, far + center)
    z, y = model.prediction_bound, model.row.label_bound
    reach = model.loss.rest_bound(z, y) if settings.share > 0 else model.loss.derivative_bound(z, y)
    p, steps, log = model.size, settings.steps, math.log(3 / beta)
    wide, once = model.scale * noise.scale(reach), model.scale * noise.middle_scale
    linear = float(np.linalg.norm(metric.sums(penalty.linear)))
    public = float((2 * metric.scale * penalty.ridge).max(initial=0.0)) * model.domain.norm(2.0) + linear
    derivative = model.weight * model.derivative_bound * metric.row.norm(2) + public
    fixed = once * (math.sqrt(p) + math.sqrt(2 * log))
    square = derivative + wide * (math.sqrt(p) + math.sqrt(2 * log / steps)) + fixed
    bound = radius**2 / (2 * settings.step * steps) + settings.step / 2 * square * square
    return bound + diameter * (wide * math.sqrt(2 * log / steps) + fixed)
