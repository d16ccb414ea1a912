"""What a person does at given prices: the best share for them, within their limits and a public ball.

``respond`` is a function of one person's numbers and of public ones. So what others hold never decides it, and a person
can compute it at home.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.joint.form import Form, People

_STEPS, _CLOSE = 80, 1e-9  # most steps for a multiplier, and how close what it is for has to come
_TINY = 1e-300
_WHOLE = 1e-9  # by as much less an entry counts as whole


# Warnings of overflow would tell of an odd record.
@np.errstate(all="ignore")
def respond(
    form: Form, people: People, prices: Floats, radius: float, ceiling: Floats | None = None
) -> tuple[Floats, Floats]:
    """Shares x (B, k) and their use u = A x (B, m), with ``||u||_2 <= radius`` and ``u <= ceiling`` for each person.

    ``prices`` (m,), ``ceiling`` (m,) or (B, m) : of a unit of each resource, and the most of it (None: any). x
    maximises ``values' x - prices' u`` exactly where at most one limit and bounds stand (``form.single``): by sorting,
    and by two multipliers where the ball binds and each resource is used by one entry. Where entries share resources
    these multipliers take entries for apart, and x is inside but may not be the best there. Elsewhere each person's
    linear program is solved by HiGHS, and a share outside the ball is moved towards 0. Whole shares (``form.integral``)
    are rounded down first, and moved so too. At 0 a tie is left where answers are sorted: nobody takes what is worth
    nothing to them.
    """
    inside = np.inf if form.integral else radius
    if form.single:
        x = _sorted(form, people, prices, inside, ceiling)
    else:
        from dpmodel.joint.programs import solved

        x = solved(form, people, prices, inside, ceiling)
    if form.integral:
        x = np.floor(x + _WHOLE)
    use = form.used(people, x)
    fits = 1 / _length(use, radius)
    if ceiling is not None:
        fits = np.minimum(fits, np.where(use > 0, ceiling / use, np.inf).min(axis=1, initial=np.inf))
    outside = np.flatnonzero(~(fits >= 1))
    if outside.size:
        # A part in 10^12 covers the rounding of the length, so that the ball holds in exact numbers. Whose numbers
        # overflow gets nothing: no number of one person may become the sum of all.
        shrink = (1 - 1e-12) * fits[outside, None]
        allowed = np.isfinite(shrink) & (shrink > 0)
        x[outside] = np.where(allowed, x[outside] * shrink, 0.0)
        use[outside] = np.where(allowed, use[outside] * shrink, 0.0)
    return x, use


def _sorted(form: Form, people: People, prices: Floats, radius: float, ceiling: Floats | None) -> Floats:
    """(B, k) the best shares under bounds and one limit, inside the ball."""
    scores = people.values - form.charged(people, prices)
    weights, budget, most = _limits(form, people, radius, ceiling)
    if scores.shape[0] < people.count:  # everything but the limits is shared
        scores = np.broadcast_to(scores, (people.count, scores.shape[1]))
    x = best_of(scores, weights, budget, most, alone=not form.caps and weights is not None)
    outside = np.flatnonzero(_length(form.used(people, x), radius) > 1 + 1e-12)
    if outside.size:
        scores, weights, budget, most = (_of(each, outside) for each in (scores, weights, budget, most))
        x[outside] = _in_ball(form, people.part(outside), scores, weights, budget, most, radius)
    return x


def _length(use: Floats, radius: float) -> Floats:
    """(B,) the 2-norms of use (B, m), as parts of the radius, so that no square vanishes that counts; nan where they
    overflow and nothing limits them."""
    unit = radius if np.isfinite(radius) else 1.0
    scaled = use / unit
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", scaled, scaled)) * (unit / radius))


def _of(array: Any, which: Any) -> Any:
    """The rows of these people; all where one row is everybody's, None of nothing."""
    return array if array is None or array.shape[0] == 1 else array[which]


def _limits(
    form: Form, people: People, radius: float, ceiling: Floats | None
) -> tuple[Floats | None, Floats | None, Floats]:
    """The weights (., k) and the right-hand side (., 1) of the limit, None without one; and the most of each entry."""
    rows, columns = form.use_at
    room = np.minimum(radius, np.inf if ceiling is None else ceiling[..., rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(people.use > 0, room / people.use, np.inf)
    most = np.full((each.shape[0], form.size), np.inf)
    if form.separate:
        most[:, columns] = each
    else:
        where: Any = (slice(None), columns)
        np.minimum.at(most, where, each)
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
    # Places in the memory of the whole, the best entry of each person first, ties alike on every machine.
    order = np.argsort(-ratio, axis=1, kind="stable") + np.arange(0, ratio.size, ratio.shape[1])[:, None]
    sizes = (wanted * weights).take(order)
    left = np.maximum(budget - (np.cumsum(sizes, axis=1) - sizes), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(sizes > left, left / np.maximum(sizes, _TINY), 1.0)
    x = np.empty_like(wanted)
    x.put(order, wanted.take(order) * part)
    return x


def _in_ball(
    form: Form,
    people: People,
    scores: Floats,
    weights: Floats | None,
    budget: Floats | None,
    most: Floats,
    radius: float,
) -> Floats:
    """(B, k) the best inside the ball ``||A x||_2 <= radius``, which binds for all of these people, if each resource is
    used by one entry; else a good one (on bundles of 3 out of 36 slots .97 of the best in the mean).

    With multipliers kappa of the ball and theta of the limit an entry is ``(score - theta weight) / (kappa unit^2)``,
    within [0, most]; unit is the length of what one unit of it uses. Both are found inside brackets by Newton's steps,
    by halving where these leave them, each for every person by itself, and what rounding is left over is scaled away.
    """
    shape = np.broadcast_shapes(scores.shape, most.shape)
    weight = np.zeros((1, 1)) if weights is None else weights
    limit = np.full((1, 1), np.inf) if budget is None else budget
    square = np.maximum(form.squares(people), _TINY)
    out, left = np.empty(shape), np.arange(shape[0], dtype=np.intp)
    # In units of each person's own best score: their squares neither overflow nor vanish.
    scores = scores / np.maximum(scores.max(axis=1, initial=0.0), _TINY)[:, None]
    with np.errstate(all="ignore"):
        # The length of a sum is at most the sum of lengths.
        alone = np.where(square > _TINY, np.maximum(scores, 0.0) / np.sqrt(square), 0.0)
        high, start = alone.sum(axis=1) / radius, np.sqrt((alone * alone).sum(axis=1)) / (2 * radius)
        low, kappa, theta = 1e-18 * high, start, np.zeros(shape[0])
        some = people
        for _ in range(_STEPS):
            s, w, b, m, q = (_of(each, left) for each in (scores, weight, limit, most, square))
            d = np.maximum(kappa[:, None] * q, _TINY)
            x, theta = _under_limit(theta, s, w, b, m, d)
            use = form.used(some, x) / radius
            length = (use * use).sum(axis=1)
            out[left] = x
            low, high = np.where(length > 1, kappa, low), np.where(length > 1, high, kappa)
            # d length / d kappa: entries inside [0, most] move by -x / kappa, and by what theta has to give back.
            inside = (x > 0) & (x < m)
            back = (w * x * inside).sum(axis=1) / (w * w / d * inside).sum(axis=1) * (theta > 0)
            back = np.where(np.isfinite(back), back, 0.0)
            move = (x - w / d * back[:, None]) * inside
            fall = 2 / kappa * (use * form.used(some, move)).sum(axis=1) / radius
            # Newton for length^(-1/2), which is nearly linear in kappa.
            guess = kappa + 2 * length * (1 - np.sqrt(1 / length)) * np.sqrt(length) / fall
            kappa = np.where((guess > low) & (guess < high), guess, np.sqrt(low * high))
            again = np.flatnonzero((np.abs(length - 1) > _CLOSE) & (high > low * (1 + _CLOSE)))
            if not again.size:
                break
            left, some = left[again], some.part(again)
            low, high, kappa, theta = low[again], high[again], kappa[again], theta[again]
        used, length = (out * weight).sum(axis=1), _length(form.used(people, out), radius)
        fits = np.minimum(np.where(used > limit[:, 0], limit[:, 0] / used, 1.0), 1 / length)
        return np.asarray(out * np.minimum(fits, 1.0)[:, None])


def _under_limit(theta: Floats, s: Floats, w: Floats, b: Floats, m: Floats, d: Floats) -> tuple[Floats, Floats]:
    """(B, k) the entries ``(s - theta w) / d`` within [0, m], and the least theta >= 0 (B,) with which ``w' x <= b``;
    ``theta`` : where to begin. Where that jumps over b, as entries do that use next to nothing (d near 0), a mean of
    the entries on both sides: they are equally good there."""
    x = np.clip(s / d, 0.0, m)
    left = np.flatnonzero((x * w).sum(axis=1) > b[:, 0])
    out = np.zeros(x.shape[0])
    over_limit, under_limit = x[left], np.zeros((left.size, x.shape[1]))
    every, at, low = left, theta[left], np.zeros(left.size)
    place = np.arange(left.size)
    high = np.where(w > 0, np.maximum(s, 0.0) / np.maximum(w, _TINY), 0.0).max(axis=1)
    high = (np.broadcast_to(high, x.shape[:1]))[left]
    for _ in range(_STEPS):
        if not left.size:
            break
        S, W, M, D = (_of(each, left) for each in (s, w, m, d))
        y = (S - at[:, None] * W) / D
        inside = (y > 0) & (y < M)
        np.clip(y, 0.0, M, out=y)
        target = np.broadcast_to(b[:, 0], x.shape[:1])[left]
        over = (y * W).sum(axis=1) - target
        out[left] = at
        over_limit[place[over > 0]], under_limit[place[over <= 0]] = y[over > 0], y[over <= 0]
        low, high = np.where(over > 0, at, low), np.where(over > 0, high, at)
        guess = at + over / (W * W / D * inside).sum(axis=1)
        step = np.where((guess > low) & (guess < high), guess, (low + high) / 2)
        again = np.flatnonzero((np.abs(over) > _CLOSE * target) & (high > low * (1 + _CLOSE)))
        left, place, low, high, at = left[again], place[again], low[again], high[again], step[again]
    if every.size:
        W, target = _of(w, every), np.broadcast_to(b[:, 0], x.shape[:1])[every]
        most, least = (over_limit * W).sum(axis=1), (under_limit * W).sum(axis=1)
        part = np.clip(np.nan_to_num((target - least) / (most - least)), 0.0, 1.0)[:, None]
        x[every] = under_limit + part * (over_limit - under_limit)
    return x, out
