"""What follows from declarations alone: bounds of a person's numbers, use and value, and people drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.joint.form import Affine, Form
from dpmodel.joint.respond import best_of
from dpmodel.marks.layout import Layout
from dpmodel.marks.private import Private
from dpmodel.marks.values import limit_entries
from dpmodel.privacy import PublicGenerator

Ranges = tuple[Floats, Floats]
_LIMITS = 8  # of one person's share that are looked at for each resource


def ranges_of(columns: Sequence[tuple[Any, int]]) -> Ranges:
    """(width,), (width,) public bounds of the numbers in a row of data: of private parameters as declared, of public
    arrays (n, w) as they are."""
    low: list[Floats] = [np.zeros(0)]
    high: list[Floats] = [np.zeros(0)]
    for source, width in columns:
        ends = source.column_range if isinstance(source, Private) else (source.min(axis=0), source.max(axis=0))
        for side, end in zip((low, high), ends, strict=True):
            side.append(np.broadcast_to(end, (width,)))
    return np.concatenate(low), np.concatenate(high)


def bounds_of(numbers: Affine, ranges: Ranges) -> Ranges:
    """(q,), (q,) bounds of numbers of a person, whose data lie in ``ranges``."""
    up, down = sp.csr_array(numbers.matrix).maximum(0), sp.csr_array(numbers.matrix).minimum(0)
    low, high = ranges
    with np.errstate(invalid="ignore"):
        ends = low @ up + high @ down + numbers.constant, high @ up + low @ down + numbers.constant
    return np.nan_to_num(ends[0], nan=-inf, posinf=inf, neginf=-inf), np.nan_to_num(
        ends[1], nan=inf, posinf=inf, neginf=-inf
    )


def largest_use(form: Form, ranges: Ranges) -> float:
    """Bound on ``||A x||_2`` of one person.

    With ``R_j`` the most that one person uses of resource j, and T the most of all together,
    ``||u||_2^2 <= sum_j R_j^2`` and ``||u||_2^2 <= max_j u_j * sum_j u_j <= max_j R_j * T``.
    """
    use = np.zeros((form.resources, form.size))
    use[form.use_at] = np.maximum(bounds_of(form.use, ranges)[1], 0.0)
    each = _most_of(form, ranges, use)
    together = _most_of(form, ranges, use.sum(axis=0)[None, :])[0]
    if not np.isfinite(each).all():
        return inf
    return float(np.sqrt(min((each**2).sum(), each.max(initial=0.0) * together)))


def uses_nothing(form: Form, ranges: Ranges) -> bool:
    """Whether a person whose private numbers are all 0, cut to what is declared, uses nothing at any prices.

    So it is where each entry of a share is worth nothing to them, may not be more than 0, or uses nothing. Where people
    are asked through linear programs that is not said: a solver may hand out what is worth nothing.
    """
    if not form.single:
        return False
    private = np.repeat([name in form.private for name, _ in form.data], [width for _, width in form.data])
    low, high = (np.where(private, np.clip(0.0, *ranges), end) for end in ranges)
    nothing = bounds_of(form.values, (low, high))[1] <= 0
    for cap in form.caps:
        nothing |= bounds_of(cap, (low, high))[1] <= 0
    weights = np.zeros((len(form.personal), form.size))
    weights[form.limits_at] = bounds_of(form.coefficients, (low, high))[0]
    full = form.personal & (bounds_of(form.limits, (low, high))[1] <= 0)
    nothing |= (weights[full] > 0).any(axis=0)
    using = bounds_of(form.use, (low, high))[1] > 0
    return bool(nothing[form.use_at[1][using]].all())


def most_value(form: Form, ranges: Ranges) -> float:
    """Bound on the size of one person's value."""
    if form.extra:
        return inf
    low, high = bounds_of(form.values, ranges)
    return float(_most_of(form, ranges, np.array([np.maximum(high, 0.0), np.maximum(-low, 0.0)])).max(initial=0.0))


def _most_of(form: Form, ranges: Ranges, gains: Floats) -> Floats:
    """(g,) bounds of ``gains' x`` (g, k), gains >= 0, over all shares x that one person may have.

    Each limit by itself, at its widest, is a knapsack; the least of these bounds holds. Of many limits those are taken
    that leave the least to all gains together.
    """
    most = np.full(form.size, inf)
    for cap in form.caps:
        most = np.minimum(most, np.maximum(bounds_of(cap, ranges)[1], 0.0))
    with np.errstate(invalid="ignore", over="ignore"):
        best: Floats = np.where((gains > 0) & (most > 0), gains * most, 0.0).sum(axis=1)
    weights = np.zeros((len(form.personal), form.size + form.extra))
    weights[form.limits_at] = bounds_of(form.coefficients, ranges)[0]
    budgets = np.maximum(bounds_of(form.limits, ranges)[1], 0.0)
    together, found = gains.sum(axis=0)[None, :], []
    for row in np.flatnonzero(form.personal & ~weights[:, form.size :].any(axis=1)):
        weight = weights[row, : form.size]
        with np.errstate(invalid="ignore"):  # what gives room back does so at most at its bound
            budget = float(budgets[row] + np.where(weight < 0, -weight * most, 0.0).sum())
        if isfinite(budget):
            limit = np.maximum(weight, 0.0), budget
            found.append((float(_knapsack(together, *limit, most)[0]), limit))
    for _, limit in sorted(found, key=lambda each: each[0])[:_LIMITS]:
        best = np.minimum(best, _knapsack(gains, *limit, most))
    return best


def _knapsack(gains: Floats, weight: Floats, budget: float, most: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        most = np.minimum(most, np.where(weight > 0, budget / np.where(weight > 0, weight, 1.0), inf))
    bounded = np.isfinite(most)
    endless = ((gains > 0) & ~bounded).any(axis=1)
    finite = np.where(np.isfinite(gains), gains, 0.0)
    x = best_of(finite, weight[None, :], np.array([[budget]]), np.where(bounded, most, 0.0)[None, :])
    with np.errstate(invalid="ignore"):
        out = np.where(x > 0, gains * x, 0.0).sum(axis=1)
    return np.asarray(np.where(endless | (np.isinf(gains) & (most > 0)).any(axis=1), inf, out))


# ------------------------------------------------------------------ people drawn from declarations


def synthetic_rows(
    private: Sequence[Private], public: Sequence[Floats], count: int, rng: PublicGenerator, wanted: int
) -> Floats:
    """(wanted, width) rows of data of people drawn from declarations; ``count`` : how many there are.

    ``typical`` values, and public arrays, are those of people drawn; others are uniform within their bounds, and where
    nothing bounds them above within [.2, 1] times a factor of the person, which is uniform in [.2, 2] and the same in
    all that they own. Typical rows that are all alike are a level, the mean of such numbers: people differ, and if
    nobody did there would be nothing to trade. Declared bounds and norms hold.
    """
    who = rng.integers(count, size=wanted)
    factor = rng.uniform(0.2, 2.0, size=(wanted, 1))
    parts = [_drawn(parameter, who, factor, rng) for parameter in private]
    return np.concatenate([*parts, *(array[who] for array in public)], axis=1)


def _drawn(parameter: Private, who: Any, factor: Floats, rng: PublicGenerator) -> Floats:
    count = int(parameter.shape[0])
    width = int(parameter.size) // count
    level = None
    if parameter.typical is not None and parameter.typical.size == parameter.size:
        typical = np.asarray(parameter.typical.reshape(parameter.shape, order="F").reshape(count, -1))
        if (typical != typical[0]).any():
            return np.asarray(typical[who])
        level = typical[0]
    uniform = rng.uniform(size=(who.size, width))
    low, high = (np.broadcast_to(end, (width,)) for end in parameter.column_range)
    closed = np.isfinite(low) & np.isfinite(high)
    start = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    sign = np.where(np.isfinite(low) | ~np.isfinite(high), 1.0, -1.0)
    span = np.where(closed, high - np.where(closed, low, 0.0), 1.0)
    varied = factor * (0.2 + 0.8 * uniform)
    if level is None:
        out = start + np.where(closed, span * uniform, sign * varied)
    else:
        out = np.clip(level * varied / (1.1 * 0.6), low, high)
    layout = Layout("row", who.size, out.size, who.size, True, False, lists=parameter.layout.lists)
    flat = PrivateArray(out.reshape(-1, order="F"))
    limit_entries(flat, (np.asarray(-inf), np.asarray(inf)), layout, parameter.magnitude)
    return np.asarray(flat.reshape(out.shape, order="F"))
