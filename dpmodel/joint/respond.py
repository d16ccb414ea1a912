"""What a person does at given prices: the best share for them, within their limits and a public ball.

``respond`` is a function of one person's numbers and of public ones. So what others hold never decides it, and a person
can compute it at home.
"""

from __future__ import annotations

import numpy as np

from dpmodel._types import Floats
from dpmodel.joint.form import Form, People

_HALVINGS = 24  # of the multiplier of the ball, and of the limit
_TINY = 1e-300
_WHOLE = 1e-9  # by as much less an entry counts as whole


def respond(
    form: Form, people: People, prices: Floats, radius: float, ceiling: Floats | None = None
) -> tuple[Floats, Floats]:
    """Shares x (B, k) and their use u = A x (B, m), with ``||u||_2 <= radius`` and ``u <= ceiling`` for each person.

    ``prices``, ``ceiling`` (m,) : of a unit of each resource, and the most of it (None: any). x maximises ``values' x - prices' u`` exactly where at most one limit
    and bounds stand (``form.single``): by sorting, and by two multipliers where the ball binds and each resource is
    used by one entry. Elsewhere each person's linear program is solved by HiGHS, and a share outside the ball is moved
    towards 0: then it is allowed, and may not be the best one inside. Whole shares (``form.integral``) are rounded
    down first, and moved so too. At 0 a tie is left: nobody takes what is worth nothing to them.
    """
    if form.single:
        x = _sorted(form, people, prices, radius, ceiling)
    else:
        from dpmodel.joint.programs import solved

        x = solved(form, people, prices, radius)
    use = form.used(people, x)
    with np.errstate(divide="ignore", invalid="ignore"):
        fits = radius / np.sqrt(np.einsum("ij,ij->i", use, use))
        if ceiling is not None:
            fits = np.minimum(fits, np.where(use > 0, ceiling / use, np.inf).min(axis=1, initial=np.inf))
    outside = np.flatnonzero(fits < 1)
    if outside.size:
        # A part in 10^12 covers the rounding of the length, so that the ball holds in exact numbers.
        shrink = (1 - 1e-12) * fits[outside, None]
        x[outside] *= shrink
        use[outside] *= shrink
    return x, use


def _sorted(form: Form, people: People, prices: Floats, radius: float, ceiling: Floats | None) -> Floats:
    """(B, k) the best shares under bounds and one limit, inside the ball where ``form.separate``."""
    scores = people.values - form.charged(people, prices)
    weights, budget, most = _limits(form, people, np.inf if form.integral else radius, ceiling)
    if scores.shape[0] < people.count:  # everything but the limits is shared
        scores = np.broadcast_to(scores, (people.count, scores.shape[1]))
    x = best_of(scores, weights, budget, most, alone=not form.caps and weights is not None)
    if form.integral:
        return np.floor(x + _WHOLE)
    if form.separate:
        use = form.used(people, x)
        outside = np.flatnonzero(np.einsum("ij,ij->i", use, use) > radius * radius * (1 + 1e-12))
        if outside.size:
            unit = np.zeros((people.use.shape[0], form.size))
            unit[:, form.use_at[1]] = people.use
            x[outside] = _in_ball(*(_of(each, outside) for each in (scores, weights, budget, most, unit)), radius)
    return x


def _of(array: Floats | None, which: Floats) -> Floats | None:
    return array if array is None or array.shape[0] == 1 else array[which]


def _limits(
    form: Form, people: People, radius: float, ceiling: Floats | None
) -> tuple[Floats | None, Floats | None, Floats]:
    """The weights (., k) and the right-hand side (., 1) of the limit, None without one; and the most of each entry."""
    rows, columns = form.use_at
    room = np.minimum(radius, np.inf if ceiling is None else ceiling[rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(people.use > 0, room / people.use, np.inf)
    most = np.full((each.shape[0], form.size), np.inf)
    if form.separate:
        most[:, columns] = each
    else:
        np.minimum.at(most, (slice(None), columns), each)
    if people.caps is not None:
        most = np.minimum(most, people.caps)
    weights = budget = None
    if len(form.personal):
        weights = np.zeros((people.coefficients.shape[0], form.size))
        weights[:, form.limits_at[1]] = np.maximum(people.coefficients, 0.0)
        budget = np.asarray(people.limits)
        most = np.minimum(most, np.where(weights > 0, budget / np.maximum(weights, _TINY), np.inf))
    # What nothing bounds is nobody's: the reader refuses it where that is public.
    return weights, budget, np.where(np.isfinite(most), most, 0.0)


def best_of(
    scores: Floats, weights: Floats | None, budget: Floats | None, most: Floats, *, alone: bool = False
) -> Floats:
    """(B, k) the best of ``scores' x``, 0 <= x <= most, weights' x <= budget: by score per weight.

    ``alone`` : most entries by themselves use up the budget, so that the best one is enough.
    """
    wanted = np.where(scores > 0, most, 0.0)
    if weights is None or budget is None:
        return wanted
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(scores > 0, scores / np.maximum(weights, _TINY), 0.0)
    if alone:
        best = (ratio * (most > 0)).argmax(axis=1)[:, None]
        x = np.zeros_like(wanted)
        np.put_along_axis(x, best, np.take_along_axis(wanted, best, 1), 1)
        left = budget[:, 0] * (1 - 1e-12) > (x * weights).sum(axis=1)
        short = np.flatnonzero(left & (np.count_nonzero(wanted, axis=1) > 1))
        if short.size:  # the ball stops their best entry before the limit does
            x[short] = best_of(*(_of(part, short) for part in (scores, weights, budget, most)))
        return x
    order = np.argsort(-ratio, axis=1, kind="stable")
    wide = np.broadcast_to(weights, wanted.shape)
    sizes = np.take_along_axis(wanted * wide, order, 1)
    left = np.maximum(budget - (np.cumsum(sizes, axis=1) - sizes), 0.0)
    taken = np.take_along_axis(wanted, order, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(sizes > left, left / np.maximum(sizes, _TINY), 1.0)
    x = np.empty_like(wanted)
    np.put_along_axis(x, order, taken * part, 1)
    return x


def _in_ball(
    scores: Floats, weights: Floats | None, budget: Floats | None, most: Floats, unit: Floats, radius: float
) -> Floats:
    """(B, k) the best inside the ball ``||unit x||_2 <= radius``, which binds for all of these people.

    With multipliers kappa of the ball and theta of the limit an entry is ``(score - theta weight) / (kappa unit^2)``,
    within [0, most]. Both are found by halving, each for every person by itself and a public number of times.
    """
    square = np.maximum(unit * unit, _TINY)
    gains = np.maximum(scores, 0.0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        steepest = np.where(unit > 0, gains / np.maximum(unit, _TINY), 0.0)
        high = np.sqrt((steepest**2).sum(axis=1)) / radius
        low = np.zeros_like(high)
        x = np.zeros(np.broadcast_shapes(scores.shape, most.shape))
        for _ in range(_HALVINGS):
            kappa = np.sqrt(np.maximum(low, 1e-6 * high) * high)
            x = _at(kappa, scores, weights, budget, most, square)
            inside = ((unit * x) ** 2).sum(axis=1) <= radius * radius
            high, low = np.where(inside, kappa, high), np.where(inside, low, kappa)
        return _at(high, scores, weights, budget, most, square)


def _at(
    kappa: Floats, scores: Floats, weights: Floats | None, budget: Floats | None, most: Floats, square: Floats
) -> Floats:
    """(B, k) the entries at kappa (B,), with the least theta >= 0 at which the limit holds."""
    scale = np.maximum(kappa[:, None] * square, _TINY)
    x = np.clip(scores / scale, 0.0, most)
    if weights is None or budget is None:
        return x
    over = np.flatnonzero((x * weights).sum(axis=1) > budget[:, 0])
    if not over.size:
        return x
    s, w, b, m, d = (_of(each, over) for each in (scores, weights, budget, most, scale))
    assert s is not None and w is not None and b is not None
    low = np.zeros(over.size)
    high = np.where(w > 0, np.maximum(s, 0.0) / np.maximum(w, _TINY), 0.0).max(axis=1)
    for _ in range(_HALVINGS):
        theta = (low + high) / 2
        more = (np.clip((s - theta[:, None] * w) / d, 0.0, m) * w).sum(axis=1) > b[:, 0]
        low, high = np.where(more, theta, low), np.where(more, high, theta)
    x[over] = np.clip((s - high[:, None] * w) / d, 0.0, m)
    return x
