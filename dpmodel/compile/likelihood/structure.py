"""Recognising post-processing problems with a closed form: boxes, known totals, monotone chains, table margins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask
from dpmodel.compile.likelihood.constraints import bounds_cross
from dpmodel.compile.likelihood.feasible import require_consistent
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm, Postprocessing, canonical
from dpmodel.compile.likelihood.structure_chains import Chains, chains
from dpmodel.errors import InfeasibleError

Kind = Literal["box", "sums", "chains", "margins"]

_SAME = 1e-12  # relative difference below which computed weights count as equal
_MEETS = 1e-9  # relative excess of a bound that counts as rounding


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
    """What a form was found to be. ``kind`` is None, with the ``reason``, where it is none of these.

    ``lower, upper`` : (n,) bounds, those of rows with one variable included. ``coupling`` : the rest of the rows.
    ``infeasible`` : the contradiction found on the way, or None.
    """

    kind: Kind | None
    reason: str
    separable: Separable | None = None
    lower: Floats | None = None
    upper: Floats | None = None
    coupling: Sums | Chains | Margins | None = None
    infeasible: InfeasibleError | None = None


def structure(model: Postprocessing) -> Structure:
    """The structure of the model; looked for once. O(nonzeros), and rows that rule a structure out are met early."""

    def build() -> Structure:
        form = model.form
        if form is None:
            return Structure(None, "the problem has terms or constraints outside a likelihood under linear constraints")
        single = separable(form)
        if single is None:
            return Structure(None, "some measurement is of several variables at once")
        try:
            require_consistent(model)
            lower, upper, E, e, G, g = _fold(form)
            return _coupled(form, single, lower, upper, E, e, G, g, model.shape)
        except InfeasibleError as error:
            return Structure(None, "no point meets the constraints", single, infeasible=error)

    return model.cached("structure", build)


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


def _fold(
    form: LikelihoodForm,
) -> tuple[Floats, Floats, sp.csr_array, Floats, sp.csr_array, Floats]:
    """Rows with one variable as bounds, and the rest."""
    lower, upper = form.lower.copy(), form.upper.copy()
    rest: list[tuple[sp.csr_array, Floats]] = []
    for matrix, value, equal in (
        (form.equality, form.equality_value, True),
        (form.inequality, form.inequality_value, False),
    ):
        A = canonical(matrix)
        counts = np.diff(A.indptr)
        one = np.flatnonzero(counts == 1)
        var, a = A.indices[A.indptr[one]], A.data[A.indptr[one]]
        bound = value[one] / a
        np.minimum.at(upper, var[(a > 0) | equal], bound[(a > 0) | equal])
        np.maximum.at(lower, var[(a < 0) | equal], bound[(a < 0) | equal])
        many = np.flatnonzero(counts > 1)
        rest.append((A if many.size == A.shape[0] else A[many], value[many]))
    crossed = lower > upper
    if bounds_cross(lower, upper).any():
        worst = int(np.argmax(lower - upper))
        raise InfeasibleError(
            f"entry {worst} must be at least {lower[worst]:.9g} and at most {upper[worst]:.9g}",
            why="its bounds and constraints contradict each other",
        )
    if crossed.any():  # by rounding
        middle = (lower + upper) / 2
        lower, upper = np.where(crossed, middle, lower), np.where(crossed, middle, upper)
    return lower, upper, *rest[0], *rest[1]


def _coupled(
    form: LikelihoodForm,
    single: Separable,
    lower: Floats,
    upper: Floats,
    E: sp.csr_array,
    e: Floats,
    G: sp.csr_array,
    g: Floats,
    shape: tuple[int, ...] | None,
) -> Structure:
    if E.shape[0] + G.shape[0] == 0:
        return Structure("box", "", single, lower, upper)
    if form.integer.any():
        return Structure(None, "integers under constraints on several entries: relax, then round_form")
    touched = np.bincount(E.indices, minlength=form.size) + np.bincount(G.indices, minlength=form.size)
    if touched.max(initial=0) <= 1:
        return _sums(single, lower, upper, E, e, G, g)
    if E.shape[0] == 0:
        found = chains(G, g, lower, upper)
        if isinstance(found, str):
            return Structure(None, found)
        flat = (single.curvature == 0) & (single.derivative != 0)
        if flat[found.order].any():
            return Structure(None, "a linear term on a monotone chain")
        return Structure("chains", "", single, lower, upper, found)
    if G.shape[0]:
        return Structure(None, "equalities and inequalities that overlap")
    return _margins(single, lower, upper, E, e, shape)


def _sums(
    single: Separable, lower: Floats, upper: Floats, E: sp.csr_array, e: Floats, G: sp.csr_array, g: Floats
) -> Structure:
    rows = sp.vstack([E, G], format="csr")
    n = lower.size
    group, coefficient = np.full(n, -1, dtype=np.int64), np.zeros(n)
    group[rows.indices] = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    coefficient[rows.indices] = rows.data
    pull = np.bincount(single.owner, weights=single.weight, minlength=n)
    falls = (single.derivative > pull) & ~np.isfinite(lower) | (single.derivative < -pull) & ~np.isfinite(upper)
    if ((single.curvature == 0) & falls & (group >= 0)).any():
        return Structure(None, "a linear term that only the constraints bound")
    target = np.concatenate([e, g])
    coupling = Sums(group, coefficient, target, np.arange(target.size) < e.size)
    return Structure("sums", "", single, lower, upper, coupling)


def _margins(
    single: Separable, lower: Floats, upper: Floats, E: sp.csr_array, e: Floats, shape: tuple[int, ...] | None
) -> Structure:
    if shape is None or math.prod(shape) != lower.size:
        return Structure(None, "constraints that overlap, of no table known")
    if np.isfinite(lower).any() or np.isfinite(upper).any():
        return Structure(None, "table margins together with bounds have no closed form")
    if single.owner.size or single.curvature.min() <= 0 or np.ptp(single.curvature) > _SAME * single.curvature.max():
        return Structure(None, "table margins have a closed form for least squares with equal weights only")
    found = margins_of(E, e, shape)
    if found is None:
        return Structure(None, "constraints that are not whole margins of the table")
    return Structure("margins", "", single, lower, upper, found)


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
