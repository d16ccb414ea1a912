"""Recognise problems with a closed form: boxes, disjoint sums, monotone chains, table margins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask
from dpmodel.errors import InfeasibleError
from dpmodel.released.form import LikelihoodForm, canonical, running
from dpmodel.released.model import Postprocessing

_MEETS = 1e-9  # relative crossing of bounds that counts as rounding


@dataclass(frozen=True, eq=False)
class Chains:
    """Paths along which z = x - shift does not fall, each between two bounds that are the same all along it.

    ``order`` : (m,) variables, chain after chain, each from its least to its greatest; variables that bounds along a
    chain pin down cut it and are left out. ``start`` : (c + 1,) chain k is ``order[start[k]:start[k + 1]]``.
    ``shift`` : (m,). ``lower, upper`` : (c,) bounds of z. ``pinned, pinned_value`` : variables left out, and their x.
    """

    order: Integers
    start: Integers
    shift: Floats
    lower: Floats
    upper: Floats
    pinned: Integers
    pinned_value: Floats


def chains(G: sp.csr_array, g: Floats, lower: Floats, upper: Floats) -> Chains | str:
    """The rows ``G x <= g`` as chains, or the reason why they are none. O(n log n), vectorised."""
    if (np.diff(G.indptr) != 2).any():
        return "inequalities on several variables that overlap"
    data = G.data.reshape(-1, 2)
    if (data[:, 0] != -data[:, 1]).any():
        return "inequalities that overlap and are not differences"
    pairs = G.indices.reshape(-1, 2).astype(np.int64)
    first_is_low = data[:, 0] > 0
    low = np.where(first_is_low, pairs[:, 0], pairs[:, 1])
    high = np.where(first_is_low, pairs[:, 1], pairs[:, 0])
    gap = -g / np.abs(data[:, 0])
    sort = np.lexsort((gap, high, low))  # of one pair the widest gap counts
    low, high, gap = low[sort], high[sort], gap[sort]
    final = np.append((low[1:] != low[:-1]) | (high[1:] != high[:-1]), True)
    low, high, gap = low[final], high[final], gap[final]
    n = lower.size
    if np.bincount(low, minlength=n).max() > 1 or np.bincount(high, minlength=n).max() > 1:
        return "an order that is not a chain"
    ordered = _paths(low, high, gap, n)
    if ordered is None:
        return "an order that runs in a circle"
    order, chain, shift = ordered
    return _bounded(order, chain, shift, lower[order] - shift, upper[order] - shift)


def _paths(low: Integers, high: Integers, gap: Floats, n: int) -> tuple[Integers, Integers, Floats] | None:
    """Variables in the order of their paths, the path of each, and the gaps added up from its start. By doubling."""
    before = np.arange(n)
    before[high] = low
    steps, along = np.zeros(n, dtype=np.int64), np.zeros(n)
    steps[high], along[high] = 1, gap
    hop = before.copy()
    for _ in range(max(1, n).bit_length()):
        if (hop == hop[hop]).all():
            break
        steps, along, hop = steps + steps[hop], along + along[hop], hop[hop]
    if (before[hop] != hop).any():
        return None
    used = np.zeros(n, dtype=bool)
    used[low] = used[high] = True
    members = np.flatnonzero(used)
    order = members[np.lexsort((steps[members], hop[members]))]
    _, chain = np.unique(hop[order], return_inverse=True)
    return order, chain.astype(np.int64), along[order]


def _bounded(order: Integers, chain: Integers, shift: Floats, lower: Floats, upper: Floats) -> Chains | str:
    """Bounds passed along the chains: a lower bound holds for all later variables, an upper one for all earlier."""
    low = running(np.maximum, lower, chain)
    high = -running(np.maximum, -upper[::-1], chain[::-1])[::-1]
    with np.errstate(invalid="ignore"):
        crossing = np.where(low > high, low - high, 0.0)
    if crossing.any():
        worst = int(np.argmax(crossing))
        if crossing[worst] > _MEETS * max(1.0, abs(float(low[worst])), abs(float(high[worst]))):
            return "bounds of entries before and after another on a monotone chain that contradict each other"
    pinned = low >= high
    free = ~pinned
    order_free, low_free, high_free = order[free], low[free], high[free]
    place = np.flatnonzero(free)
    follows = (place[1:] == place[:-1] + 1) & (chain[free][1:] == chain[free][:-1])
    if (follows & ((low_free[1:] != low_free[:-1]) | (high_free[1:] != high_free[:-1]))).any():
        return "a monotone chain whose bounds change along it"
    new = np.flatnonzero(np.append(True, ~follows)) if place.size else np.zeros(0, dtype=np.int64)
    start = np.append(new, place.size).astype(np.int64)
    value = (low[pinned] + high[pinned]) / 2 + shift[pinned]
    return Chains(order_free, start, shift[free], low_free[new], high_free[new], order[pinned], value)


# ------------------------------------------------------------------ the structures


Kind = Literal["box", "sums", "chains", "margins"]


@dataclass(frozen=True, eq=False)
class Separable:
    """sum_j curvature_j/2 (x_j - centre_j)^2 + slope_j x_j + sum_i weight_i |x[owner_i] - point_i|, up to a constant.

    ``curvature, centre, derivative`` : (n,); the derivative of curved variables is in the centre, so it is 0 there.
    ``owner, point, weight`` : (r,) sorted by owner, then by point; weights > 0.
    """

    curvature: Floats
    centre: Floats
    derivative: Floats
    owner: Integers
    point: Floats
    weight: Floats


@dataclass(frozen=True, eq=False)
class Sums:
    """Disjoint rows ``sum over group_j = g of coefficient_j x_j = target_g`` (or <= where not ``equality_g``).

    ``group`` : (n,) row of each variable, -1 for none. ``coefficient`` : (n,), 0 for none. ``target, equality`` : (g,).
    """

    group: Integers
    coefficient: Floats
    target: Floats
    equality: Mask


@dataclass(frozen=True, eq=False)
class Margins:
    """A table of ``shape`` (C order) whose sums over all axes but ``axes[i]`` are ``targets[i]``."""

    shape: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    targets: tuple[Floats, ...]


@dataclass(frozen=True, eq=False)
class Structure:
    """What a form was found to be. ``kind`` is None, with the ``reason``, where it is none of these. ``coupling`` : its
    rows; there are none about a single entry, which are bounds."""

    kind: Kind | None
    reason: str
    separable: Separable | None = None
    coupling: Sums | Chains | Margins | None = None


def structure(model: Postprocessing) -> Structure:
    """The structure of the model; looked for once. O(nonzeros), and rows that rule a structure out are met early."""
    return model.cached("structure", lambda: _structure(model))


def _structure(model: Postprocessing) -> Structure:
    form = model.form
    if form is None:
        return Structure(None, "the problem has terms or constraints outside a likelihood under linear constraints")
    single, n = separable(form), form.size
    if single is None:
        return Structure(None, "some measurement is of several variables at once")
    E, G = canonical(form.equality), canonical(form.inequality)
    if E.shape[0] + G.shape[0] == 0:
        return Structure("box", "", single)
    if form.integer.any():
        return Structure(None, "integers under constraints on several entries: relax, then round_form")
    touched = np.bincount(E.indices, minlength=n) + np.bincount(G.indices, minlength=n)
    if touched.max(initial=0) <= 1:
        pull = np.bincount(single.owner, weights=single.weight, minlength=n)
        falls = (single.derivative > pull) & ~np.isfinite(form.lower)
        falls |= (single.derivative < -pull) & ~np.isfinite(form.upper)
        if ((single.curvature == 0) & falls & (touched > 0)).any():
            return Structure(None, "a linear term that only the constraints bound")
        rows = sp.vstack([E, G], format="csr")
        group, coefficient = np.full(n, -1, dtype=np.int64), np.zeros(n)
        group[rows.indices] = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        coefficient[rows.indices] = rows.data
        target = np.concatenate([form.equality_value, form.inequality_value])
        return Structure("sums", "", single, Sums(group, coefficient, target, np.arange(target.size) < E.shape[0]))
    if E.shape[0] == 0:
        found = chains(G, form.inequality_value, form.lower, form.upper)
        if isinstance(found, str):
            return Structure(None, found)
        if ((single.curvature == 0) & (single.derivative != 0))[found.order].any():
            return Structure(None, "a linear term on a monotone chain")
        return Structure("chains", "", single, found)
    if G.shape[0]:
        return Structure(None, "equalities and inequalities that overlap")
    if model.shape is None or math.prod(model.shape) != n:
        return Structure(None, "constraints that overlap, of no table known")
    if np.isfinite(form.lower).any() or np.isfinite(form.upper).any():
        return Structure(None, "table margins together with bounds have no closed form")
    # relative difference below which computed weights count as equal
    if single.owner.size or single.curvature.min() <= 0 or np.ptp(single.curvature) > 1e-12 * single.curvature.max():
        return Structure(None, "table margins have a closed form for least squares with equal weights only")
    try:
        margins = margins_of(E, form.equality_value, model.shape)
    except InfeasibleError:
        return Structure(None, "margins that contradict each other")
    if margins is None:
        return Structure(None, "constraints that are not complete margins of the table")
    return Structure("margins", "", single, margins)


def separable(form: LikelihoodForm) -> Separable | None:
    """The loss variable by variable, or None where a measurement mixes variables."""
    M = form.matrix
    counts = np.diff(M.indptr)
    if (counts > 1).any():
        M = canonical(M)
        counts = np.diff(M.indptr)
        if (counts > 1).any():
            return None
    n = form.size
    row = np.flatnonzero(counts)
    var, m = M.indices.astype(np.int64), M.data
    keep = m != 0
    row, var, m = row[keep], var[keep], m[keep]
    square, absolute = form.square[row] * np.square(m), form.absolute[row] * np.abs(m)
    place = form.value[row] / m
    curvature: Floats = 2.0 * np.bincount(var, weights=square, minlength=n).astype(np.float64)
    curved = curvature > 0
    safe = np.where(curved, curvature, 1.0)
    # Deviations from one of a variable's own places, so that a large common value costs no digits.
    base = np.zeros(n)
    base[var[square > 0]] = place[square > 0]
    mean = base + 2 * np.bincount(var, weights=square * (place - base[var]), minlength=n) / safe
    centre = np.where(curved, mean - form.linear / safe, 0.0)
    kinks = absolute > 0
    owner, point, weight = var[kinks], place[kinks], absolute[kinks]
    # Sorting a million numbers takes seconds, and one measurement per variable stands in order already.
    once = bool((np.diff(owner) > 0).all())
    order = np.arange(owner.size) if once else np.lexsort((point, owner))
    return Separable(curvature, centre, np.where(curved, 0.0, form.linear), owner[order], point[order], weight[order])


def margins_of(E: sp.csr_array, e: Floats, shape: tuple[int, ...]) -> Margins | None:
    """The rows as whole margins of a table, or None. Every row must be a constant on the cells that agree on some axes
    and zero elsewhere, and of every such set of axes all rows must be there.

    Errors: InfeasibleError, where rows about the same cell of a margin contradict each other."""
    if E.shape[0] == 0:
        return Margins(shape, (), ())
    E = canonical(E)
    counts = np.diff(E.indptr)
    if (counts == 0).any() or E.shape[1] != math.prod(shape):
        return None
    first, last = E.indptr[:-1], E.indptr[1:] - 1
    scale = E.data[first]
    # In C order the first and the last cell of such a set are its corners.
    low, high = np.unravel_index(E.indices[first], shape), np.unravel_index(E.indices[last], shape)
    sizes, fixed = np.ones(E.shape[0], dtype=np.int64), np.zeros(E.shape[0], dtype=object)
    for axis, d in enumerate(shape):
        free = (low[axis] == 0) & (high[axis] == d - 1)
        if (~free & (low[axis] != high[axis])).any():
            return None
        sizes[free] *= d
        fixed[~free] += 1 << axis  # Python integers: any number of axes
    if (sizes != counts).any():
        return None
    axes, targets = [], []
    for mask in sorted(set(fixed.tolist())):
        own = tuple(a for a in range(len(shape)) if mask >> a & 1)
        mine = fixed == mask
        cells = tuple(shape[a] for a in own)
        label = _labels(shape, own)
        rows = np.flatnonzero(mine)
        part = E[rows]
        of_row = label[E.indices[first[rows]]]
        times = int(counts[rows[0]])  # all rows of one margin are equally long
        if (label[part.indices].reshape(-1, times) != of_row[:, None]).any():
            return None
        if (part.data.reshape(-1, times) != scale[rows][:, None]).any():
            return None
        value = e[rows] / scale[rows]
        table = np.full(math.prod(cells), np.nan)
        table[of_row] = value
        if np.isnan(table).any():
            return None
        if np.abs(table[of_row] - value).max(initial=0.0) > _MEETS * max(1.0, float(np.abs(value).max())):
            raise InfeasibleError("a margin is fixed twice, at different values", why=f"axes {own} of the table")
        axes.append(own)
        targets.append(table.reshape(cells))
    return Margins(shape, tuple(axes), tuple(targets))


def _labels(shape: tuple[int, ...], own: tuple[int, ...]) -> Integers:
    """(cells,) cell of the margin over axes ``own`` that each cell falls in."""
    label = np.zeros(shape, dtype=np.int64)
    for a in own:
        label = label * shape[a] + np.arange(shape[a]).reshape([-1 if b == a else 1 for b in range(len(shape))])
    return label.ravel()


def table_shape(model: Postprocessing) -> tuple[int, ...] | None:
    """Axes of x in C order: of the table, or of the only variable (flattened column by column, so axes reversed)."""
    if model.shape is None and model.form is not None and len(model.columns) == 1:
        shape = tuple(int(d) for d in reversed(model.columns[0][0].shape))
        return shape if len(shape) > 1 and math.prod(shape) == model.form.size else None
    return model.shape
