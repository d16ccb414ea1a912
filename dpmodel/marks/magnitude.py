"""How large a unit may be: scaling it to that, and what follows for how far one record can move it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.marks.bounds import Ball, SensitivityBounds, complete
from dpmodel.marks.layout import Layout, largest_sum, sum_by

# Scaled entries are rounded a few times; the change bounds that carry over are enlarged by it.
_ROUNDING = 2.0**-50
_TINY = float(np.finfo(float).tiny)
_BLOCK = 1 << 18


def scale_units(entries: Floats, layout: Layout, magnitude: Mapping[str, float]) -> None:
    """Scale the units of ``entries`` (size,) in place to the 1-norm ``max_l1`` and then to the 2-norm ``max_l2``."""
    view = layout.by_unit(entries)
    if view is None:
        scale_listed(entries, layout.units, layout.unit_count, magnitude)
        return
    count = view.shape[0]
    blocks = [slice(start, start + _block(count)) for start in range(0, view.shape[1], _block(count))]

    def largest() -> Floats:
        out = np.full(count, _TINY)
        for block in blocks:
            np.maximum(out, np.abs(view[:, block]).max(axis=1), out=out)
        return out

    def sums(largest: Floats, order: int) -> Floats:
        out = np.zeros(count)
        for block in blocks:
            out += ((np.abs(view[:, block]) / largest[:, None]) ** order).sum(axis=1)
        return out

    def multiply(factor: Floats) -> None:
        for block in blocks:
            view[:, block] *= factor[:, None]

    _scale(magnitude, largest, sums, multiply)


def scale_listed(entries: Floats, units: Integers, count: int, magnitude: Mapping[str, float]) -> None:
    """The same for entries with the unit of each in a list (sparse values), ``count`` units in all."""

    def largest() -> Floats:
        out = np.full(count, _TINY)
        np.maximum.at(out, units, np.abs(entries))
        return out

    def sums(largest: Floats, order: int) -> Floats:
        return sum_by(units, weights=(np.abs(entries) / largest[units]) ** order, minlength=count)

    def multiply(factor: Floats) -> None:
        entries[...] *= factor[units]

    _scale(magnitude, largest, sums, multiply)


def _scale(
    magnitude: Mapping[str, float],
    largest: Callable[[], Floats],
    sums: Callable[[Floats, int], Floats],
    multiply: Callable[[Floats], None],
) -> None:
    for key, order in (("max_l1", 1), ("max_l2", 2)):
        limit = magnitude[key]
        if math.isinf(limit):
            continue
        # Squares of huge entries overflow and of tiny ones vanish; scaled by the largest entry of their own
        # unit they do neither. (A scale shared by units would let one record move another's last bits.)
        peaks = largest()
        norms = sums(peaks, order)
        with np.errstate(over="ignore"):
            norms = peaks * (norms if order == 1 else np.sqrt(norms))
        multiply(np.divide(limit, norms, out=np.ones_like(norms), where=norms > limit))


def _block(count: int) -> int:
    """How many entries of each of ``count`` units are worked on at once: temporaries of some megabytes."""
    return max(1, _BLOCK // count)


def sensitivity_bounds(
    sensitivity: Mapping[str, float],
    magnitude: Mapping[str, float],
    entry_range: tuple[Floats, Floats],
    layout: Layout,
    *,
    absent_is_zero: bool,
) -> tuple[Floats, Ball, SensitivityBounds]:
    """Caps of the entries, the norm bounds that say more than the caps, and all norms completed.

    ``sensitivity`` : declared ``l1, l2, linf, row_l1``; ``magnitude`` : ``max_l1, max_l2, max_linf``; ``entry_range`` :
    what entries are clipped to (ranges and caps in the form of ``per_entry``). ``absent_is_zero`` : a record's unit may
    be missing, nothing else happens to it, and its change is its size; otherwise one value is replaced by another.
    """
    lower, upper = entry_range
    size = np.maximum(np.abs(lower), np.abs(upper))
    l1, l2 = magnitude["max_l1"], magnitude["max_l2"]
    if not absent_is_zero:
        l1, l2 = 2 * l1, _apart(l2, entry_range, layout)
    moved, linf = _after_scaling(sensitivity, magnitude, size, layout)
    l1, l2, row_l1 = min(l1, moved["l1"]), min(l2, moved["l2"]), moved["row_l1"]
    caps = np.minimum(size if absent_is_zero else upper - lower, linf)
    largest = float(np.max(caps, initial=0.0))
    # A 2-norm bound above the 1-norm bound, or one no change can reach, says nothing: left out, because
    # fewer norms mean exact and cheaper bounds.
    below = 1 - 1e-12
    ball = Ball(
        l1=l1 if l1 < largest_sum(caps, layout) * below else math.inf,
        l2=l2 if l2 < l1 * below and l2 < _largest_norm(caps, layout) * below else math.inf,
        row_l1=row_l1 if row_l1 < min(l1, layout.unit_row_size * largest) * below else math.inf,
    )
    completed = _complete({"l1": l1, "l2": l2, "linf": largest, "row_l1": row_l1}, layout)
    return np.asarray(np.minimum(caps, completed.linf)), ball, completed


def _apart(norm: float, entry_range: tuple[Floats, Floats], layout: Layout) -> float:
    """The 2-norm between two units x and y of 2-norm at most ``norm`` r and entries in ``entry_range``.

    ``||x - y||^2 <= 2 r^2 - 2 x'y``, where x_j y_j is negative only in entries that may have both signs, and at least
    lower_j upper_j there. So sqrt(2) r for entries of known signs, and 2 r at most.
    """
    if math.isinf(norm):
        return norm
    below, above = (np.maximum(end / norm, 0.0) for end in (-entry_range[0], entry_range[1]))  # products in any units
    return norm * min(2.0, math.sqrt(2 + 2 * largest_sum(np.asarray(below * above), layout)))


def _after_scaling(
    sensitivity: Mapping[str, float], magnitude: Mapping[str, float], size: Floats, layout: Layout
) -> tuple[Mapping[str, float], Floats]:
    """What the declared change bounds still say once units are scaled to max_l1 and max_l2: norms, and entries.

    They speak of the data as given, x and y at distance D; clipping moves no two entries apart. Scaled units are s x
    and t y with s, t in [0, 1], of size at most M.

    - A unit of one entry is clipped by it: nothing changes.
    - Scaling to a 2-norm ball is the projection onto it and never enlarges the 2-norm of a change; scaling to a 1-norm
      ball enlarges its 1-norm at most twofold (Dunkl and Williams 1964, for any norm).
    - In any norm, with s <= t: ``||s x - t y|| <= s ||x - y|| + (t - s) ||y|| <= D + M``, since ``t ||y|| <= M``.
    - An entry: where x_j and y_j have different signs ``|s x_j - t y_j| <= |x_j| + |y_j| = |x_j - y_j| <= D``, and
      otherwise it is at most the larger of the two, ``M_j`` (``size``).
    """
    to_l1, to_l2 = magnitude["max_l1"], magnitude["max_l2"]
    linf = np.asarray(sensitivity["linf"])
    if (math.isinf(to_l1) and math.isinf(to_l2)) or not any(map(math.isfinite, sensitivity.values())):
        return sensitivity, linf
    given = _complete(sensitivity, layout)
    rounding = _ROUNDING * layout.unit_size * min(to_l1, to_l2)
    if layout.unit_size <= 1:
        return dict.fromkeys(sensitivity, given.linf + rounding), np.asarray(given.linf + rounding)
    sizes = _complete({"l1": to_l1, "l2": to_l2, "linf": float(size.max(initial=0.0)), "row_l1": math.inf}, layout)
    kept = {key: getattr(given, key) + getattr(sizes, key) + rounding for key in sensitivity}
    if math.isinf(to_l1):
        kept["l2"] = given.l2 + rounding
    else:  # after the first scaling, and the second does not enlarge the 2-norm
        last = "l2" if math.isfinite(to_l2) else "l1"
        kept[last] = min(kept[last], 2 * given.l1 + rounding)
    return kept, np.maximum(size, given.linf) + rounding


def _complete(norms: Mapping[str, float], layout: Layout) -> SensitivityBounds:
    return complete(**norms, size=layout.unit_size, row_size=layout.unit_row_size, rows=layout.unit_rows)


def _largest_norm(caps: Floats, layout: Layout) -> float:
    """2-norm of the largest change that the entry caps alone allow one unit."""
    return math.sqrt(largest_sum(caps**2, layout)) if np.isfinite(caps).all() else math.inf
