"""From noised sufficient statistics to a convex quadratic: how much to shrink each direction.

The noise distribution is public, so no budget is spent on the least eigenvalue. In the eigenbasis of the released
matrix S~ (eigenvalues L_i) and with the released right-hand side z, ``z = S~ v + noise``: the noise of z itself and
that of S~ at v, of variance ``v(T)`` per direction if the coefficients v have variance T each. Under a normal prior
N(0, T) the mean of v_i given z_i is ``L_i T z_i / (L_i^2 T + v(T))``, a Wiener filter. T is not known: it is averaged
over a log-normal prior (one e-fold wide, centred where predictions deviate by a third of the label's bound) times the
likelihood of z. What comes out is ``v_i = z_i / (L_i + B_i)`` with B_i >= 0: a ridge of its own for every direction,
which keeps the program a convex quadratic that any public constraint or penalty can be added to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats
from dpmodel.mechanisms.regression.sufficient_statistics.layout import Layout
from dpmodel.mechanisms.regression.sufficient_statistics.measure import Spread, Statistics

_SHARE = 1 / 3  # expected standard deviation of predictions, as a share of the label's width
_LADDER = np.exp(np.linspace(-6.0, 6.0, 61))
_LEAST_TRACE = 0.05
_MOST_LIFT = 1e6  # in totals: coefficients are zero by then


@dataclass(frozen=True)
class Quadratic:
    """``w' P w - 2 q'w``: (p, p) and (p,), in the original coefficients, for the sum of squares."""

    P: Floats
    q: Floats


def shrunk(layout: Layout, s: Statistics, spread: Spread, ridge: Floats, cap: float = math.inf) -> Floats:
    """(k, k) the matrix B to add to the released gram.

    ``ridge`` : (k,) a public ridge that the program has anyway, in the same units. ``cap`` : no eigenvalue of B
    exceeds this, besides what lifts those of S~ to the lower bound.
    """
    k = layout.count
    if k == 0:
        return np.zeros((0, 0))
    S, z, shift, middle = normal_equations(layout, s)
    values, V = np.linalg.eigh(S)
    known = (V**2).T @ ridge  # of the ridge along each eigenvector
    lower_bound = max(math.sqrt(2) * spread.pair, 1e-12 * s.total)
    L = np.maximum(values, lower_bound) + known
    T = _SHARE**2 * s.total / max(float(values.sum()), _LEAST_TRACE * s.total) * _LADDER
    size = float(shift @ shift)
    noise = (
        spread.cross**2
        + spread.pair**2 * k * T
        + spread.first**2 * (middle**2 + size * T)
        + size * (spread.labels**2 / k + spread.first**2 * T)
    )
    variance = (L**2)[:, None] * T + noise + 1e-300
    log = -0.5 * (np.log(variance) + ((V.T @ z) ** 2)[:, None] / variance).sum(axis=0) - np.log(_LADDER) ** 2 / 2
    share = np.exp(log - log.max())
    gain = (T / variance) @ (share / share.sum())
    lifted = np.clip(1 / (L * np.maximum(gain, 1e-300)), L, L + min(cap, _MOST_LIFT * (s.total + L.max())))
    added: Floats = (V * (lifted - known - values)) @ V.T
    return added


def normal_equations(layout: Layout, s: Statistics) -> tuple[Floats, Floats, Floats, float]:
    """(k, k) S and (k,) z with ``S v = z`` at the least squares, v0 being ``shift'v + middle`` (the last two results).

    An intercept is profiled out: v0 = (h - g'v) / total. Without one v0 is a public function, by the columns' middles.
    """
    if layout.constant.any():
        shift, middle = -s.first / s.total, s.labels / s.total
    else:
        shift, middle = layout.middle / layout.width, -layout.label_middle / layout.label_width
    cross = np.outer(shift, s.first)
    S = s.gram + cross + cross.T + s.total * np.outer(shift, shift)
    z = s.cross + shift * s.labels
    if not layout.constant.any():
        z = z - middle * (s.first + s.total * shift)
    return S, z, shift, middle


def quadratic(layout: Layout, s: Statistics, added: Floats) -> Quadratic:
    """The sum of squares as a function of the original coefficients, with ``added`` (k, k) on the gram.

    A prediction minus offset and label middle is ``label_width (v0 + v'u)`` with ``v = width w / label_width`` on
    columns that vary and ``v0 = (middle'w + constant'w - label_middle) / label_width``.
    """
    p, unit = layout.size, layout.label_width
    base, derivative = np.zeros(p), np.zeros(p)
    base[layout.moving], base[layout.fixed] = layout.middle, layout.constant
    derivative[layout.moving] = layout.width
    first, cross = np.zeros(p), np.zeros(p)
    first[layout.moving], cross[layout.moving] = layout.width * s.first, layout.width * s.cross
    P = s.total * np.outer(base, base) + np.outer(base, first) + np.outer(first, base)
    P[np.ix_(layout.moving, layout.moving)] += np.outer(layout.width, layout.width) * (s.gram + added)
    q = unit * (base * s.labels + cross) + layout.label_middle * (s.total * base + first)
    return Quadratic(P, q)
