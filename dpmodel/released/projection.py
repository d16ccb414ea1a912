"""Closed forms: measurements of single variables under boxes, disjoint sums, monotone chains or table margins."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.fft import dctn, idctn
from scipy.optimize import isotonic_regression

from dpmodel._types import Floats, Integers
from dpmodel.contract import YES, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError
from dpmodel.forecast import Forecast
from dpmodel.privacy import NoiseSource
from dpmodel.released.constraints import require_consistent
from dpmodel.released.form import LikelihoodForm, running
from dpmodel.released.model import Postprocessing, Solver
from dpmodel.released.structure import Chains, Kind, Margins, Separable, Structure, Sums, structure

_TIE = 1e-12  # derivatives this small against the weights they are sums of are rounding


_WORDS: dict[Kind, str] = {
    "box": "one entry at a time",
    "sums": "known totals, by the breakpoints of their multipliers",
    "chains": "monotone regression",
    "margins": "margins replaced effect by effect",
}


@dataclass(frozen=True)
class Projection(Solver):
    """Solve in closed form where every measurement is of one entry and the constraints have a simple structure.

    Structures (``structure.py``), always with bounds on single entries: nothing else; sums of disjoint sets of
    entries, = or <=, with any coefficients (simplex, known totals); chains x_1 <= x_2 <= ..., with gaps, whose bounds
    are the same all along or pin entries (cumulative histograms); whole margins of a table, for least
    squares with equal weights and no bounds. Losses may be absolute, square or both, several per entry, or none.

    Source
        Textbook: weighted medians and means; the breakpoint method for the continuous knapsack; pool adjacent violators
        and its dynamic program; orthogonal effects of a table. LWK15, section 4.6 for the square loss.
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        The exact optimum, to rounding. If the truth meets the constraints, the least-squares solution is
        never further from it in L2 than the noisy data were (projections on convex sets shrink distances, in the
        norm of the weights). The solution for absolute losses x^ has ``|x^ - x|_1 <= 2 |x~ - x|_1`` only:
        |x^ - x| <= |x^ - x~| + |x~ - x|, and x^ is no further from x~ than x is. Non-negativity biases totals upwards:
        negative noise is cut and positive noise is kept; where the total is known, ask for it as a constraint.
        Ties: see ``sums.start`` and ``chain.project_chains``.
    Cost
        Vectorised, O(r log r) for r measurements and entries; chains with absolute losses run a heap in Python.
    Errors
        InfeasibleError where the constraints contradict, with the totals that the bounds can reach.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing)
    name: str = "projection"
    source: str = "closed forms (LWK15, section 4.6; weighted medians; pool adjacent violators)"

    def place(self, model: Postprocessing) -> int:
        form = model.form
        alone = form is not None and form.equality.shape[0] + form.inequality.shape[0] == 0
        return 1 if alone else 3

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        found = structure(model)
        return Verdict(False, found.reason) if found.kind is None else YES

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        kind = structure(model).kind
        assert kind is not None
        return self.free_of_charge(model, "the optimum, exactly (to rounding)", alpha=0.0, work=_WORDS[kind])

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        begin = time.perf_counter()
        found, form = structure(model), model.form
        assert found.kind is not None and form is not None, found.reason
        progress(_WORDS[found.kind], 0.0)
        try:
            require_consistent(model)
            x = solve(found, form)
        except InfeasibleError as error:
            return Outcome("infeasible", None, None, None, notes=(str(error),))
        seconds = time.perf_counter() - begin
        if not np.isfinite(x).all():
            return Outcome("unbounded", None, None, None, seconds)
        return Outcome("optimal", x, None, form.objective(x), seconds)


PROJECTION = Projection()


def solve(found: Structure, form: LikelihoodForm) -> Floats:
    """The solution of a recognised form, whose rows its bounds do not contradict one by one.

    Errors: InfeasibleError, where margins, or integers and their bounds, contradict each other."""
    single, rest = found.separable, found.coupling
    assert single is not None, found.reason
    if isinstance(rest, Sums):
        return project_sums(single, rest, form.lower, form.upper)
    if isinstance(rest, Margins):
        return MarginProjector(rest).project(single.centre)
    x = start(single, form.lower, form.upper)
    if isinstance(rest, Chains):
        return project_chains(single, rest, x)
    whole = np.flatnonzero(form.integer)
    return _whole(single, x, form.lower, form.upper, whole) if whole.size else x


def _whole(single: Separable, x: Floats, lower: Floats, upper: Floats, whole: Integers) -> Floats:
    """Some variables to integers: next to a minimiser of a convex function of one variable lies its best whole
    number. Ties go down."""
    down, up = x.copy(), x.copy()
    least, most = np.ceil(lower[whole] - 1e-9), np.floor(upper[whole] + 1e-9)
    if (least > most).any():
        j = int(whole[np.flatnonzero(least > most)[0]])
        raise InfeasibleError(f"entry {j} must be whole", why=f"there is none in [{lower[j]:.9g}, {upper[j]:.9g}]")
    down[whole] = np.clip(np.floor(x[whole]), least, most)
    up[whole] = np.clip(np.ceil(x[whole]), least, most)
    finite = np.isfinite(x)
    a, b = (loss(single, np.where(finite, point, 0.0)) for point in (down, up))
    return np.where(b < a, up, down)


# ------------------------------------------------------------------ chains


def project_chains(single: Separable, chains: Chains, x: Floats) -> Floats:
    """x with the variables of the chains set to the minimiser of a separable convex loss along them.

    Bounds that are the same all along a chain are met by cutting the solution without bounds. Proof: let z solve the
    problem without bounds, y = z cut to [L, U], and w any monotone point within [L, U]. Put h = w - y. Where z < L
    (a start of the chain) z + h = z + (w - L) <= w; where z > U (an end of it) z + h = z + (w - U) >= w; between, z + h
    = w. So z + h is monotone, and the directional derivative of the loss F at z along h is not negative. Where z < L,
    h >= 0 and the derivative of a convex loss to the right is no less at y = L than at z; where z > U likewise to the
    left; elsewhere y = z. So F'(y; h) >= F'(z; h) >= 0 for all w: y is optimal.

    Variables that nobody measured take the value of the one before (of the one after, at the start of a chain; the
    number in the bounds nearest to zero where a whole chain has none).

    Cost: least squares O(n) (pool adjacent violators); absolute or mixed losses O(r log r) for r measurements, with a
    heap, about 10 microseconds each; one pass in Python per chain.
    """
    x = x.copy()
    x[chains.pinned] = chains.pinned_value
    if not chains.order.size:
        return x
    q, centre = single.curvature[chains.order], single.centre[chains.order] - chains.shift
    place = np.full(x.size, -1, dtype=np.int64)
    place[chains.order] = np.arange(chains.order.size)
    kept = place[single.owner] >= 0
    at, weight = place[single.owner[kept]], single.weight[kept]
    point = single.point[kept] - chains.shift[at]
    kinks = np.bincount(at, minlength=q.size)
    measured = (q > 0) | (kinks > 0)
    z = np.full(q.size, np.nan)
    sort = np.argsort(at, kind="stable")
    at, point, weight = at[sort], point[sort], weight[sort]
    bounds = np.concatenate([[0], np.cumsum(kinks)])
    for a, b in zip(chains.start[:-1], chains.start[1:], strict=True):
        own = a + np.flatnonzero(measured[a:b])
        if not own.size:
            continue
        if not kinks[a:b].any():
            z[own] = isotonic_regression(centre[own], weights=q[own]).x
            continue
        part = slice(bounds[a], bounds[b])
        node = np.searchsorted(own, at[part])
        z[own] = _mixed(q[own], centre[own], node, point[part], weight[part])
    chain = np.repeat(np.arange(chains.lower.size), np.diff(chains.start))
    z = _filled(z, chain)
    x[chains.order] = np.clip(z, chains.lower[chain], chains.upper[chain]) + chains.shift
    return x


def _filled(z: Floats, chain: np.ndarray) -> Floats:
    """Gaps (nan) take the value before, or else the one after, within the chain; or else zero."""
    known = ~np.isnan(z)
    if known.all():
        return z
    index = np.arange(z.size)
    before = np.maximum.accumulate(np.where(known, index, -1))
    after = np.minimum.accumulate(np.where(known, index, z.size)[::-1])[::-1]
    has_before = (before >= 0) & (chain[np.maximum(before, 0)] == chain)
    last = np.minimum(after, z.size - 1)
    has_after = (after < z.size) & (chain[last] == chain)
    out: Floats = np.where(has_before, z[np.maximum(before, 0)], np.where(has_after, z[last], 0.0))
    return out


def _mixed(q: Floats, centre: Floats, node: np.ndarray, point: Floats, weight: Floats) -> Floats:
    """Minimise sum q_i/2 (z_i - centre_i)^2 + sum of weight |z_node - point| over monotone z.

    With losses that are not strictly convex there may be several solutions; the mean of the smallest and the largest
    one is taken. It treats up and down alike, and is optimal because the solutions are a convex set.
    """
    base = float(np.median(np.concatenate([centre[q > 0], point])))
    low = _smallest(q, np.where(q > 0, centre - base, 0.0), node, point - base, weight)
    if (q > 0).all():
        return low + base
    n = q.size
    turned = np.where(q > 0, base - centre, 0.0)[::-1]
    high = -_smallest(q[::-1], turned, (n - 1 - node)[::-1], (base - point)[::-1], weight[::-1])[::-1]
    return low + (high - low) / 2 + base


def _smallest(q: Floats, centre: Floats, node: np.ndarray, point: Floats, weight: Floats) -> Floats:
    """The smallest solution, by dynamic programming along the chain.

    F_i(y) = least loss of z_1 <= ... <= z_i = y, and G_i(y) = min over z <= y of F_i(z), whose derivative is that of
    F_i where that is negative and 0 beyond its minimiser m_i. So F_{i+1} = G_i + f_{i+1} needs the derivative of G_i
    only: it is kept as breakpoints (place, jump, change of steepness) in a heap, greatest first, and is 0 to the right
    of all. Adding a loss and cutting at the new minimiser removes each breakpoint at most once: O(r log r). Back along
    the chain z_n = m_n and z_i = min(m_i, z_{i+1}), by convexity.
    """
    heap: list[tuple[float, float, float]] = []
    minimisers: list[float] = []
    n = q.size
    stop = np.searchsorted(node, np.arange(n), side="right").tolist()
    points, weights = point.tolist(), weight.tolist()
    rounding = 0.0 if (q > 0).all() else _TIE * float(weight.max(initial=0.0))
    begin = 0
    for own_q, own_c, end in zip(q.tolist(), centre.tolist(), stop, strict=True):
        # The derivative right of all breakpoints is steep * y + level.
        steep, level = own_q, -own_q * own_c
        for i in range(begin, end):
            level += weights[i]
            heappush(heap, (-points[i], 2 * weights[i], 0.0))
        begin = end
        least, p, left = None, 0.0, 0.0
        while heap:
            minus, jump, change = heap[0]
            p = -minus
            right = steep * p + level
            if right < -rounding:
                break
            heappop(heap)
            left = right - jump
            steep -= change
            level = left - steep * p
            if left < -rounding:
                least = p
                heappush(heap, (minus, -left, -steep))
                break
        if least is None and steep > 0:
            least = -level / steep
            heappush(heap, (-least, 0.0, -steep))
        elif least is None:  # without curvature the derivative left of all points is negative: only rounding hid it
            least = p
            heappush(heap, (-p, abs(left), 0.0))
        minimisers.append(least)
    out: Floats = np.minimum.accumulate(np.array(minimisers)[::-1])[::-1]
    return out


# ------------------------------------------------------------------ bounds and disjoint sums


class Least(NamedTuple):
    """(n,) the smallest and the largest minimiser of each variable's loss without bounds; infinite where there is none
    or where the loss is flat for ever."""

    low: Floats
    high: Floats


def least(single: Separable) -> Least:
    """Minimisers variable by variable: weighted medians, weighted means, and what lies between. O(r log r)."""
    low = _lowest(single)
    if (single.curvature > 0).all():
        return Least(low, low)
    return Least(low, -_lowest(_mirrored(single))[::-1])


def start(single: Separable, lower: Floats, upper: Floats) -> Floats:
    """(n,) the minimiser of each variable's loss within its bounds.

    Of several minimisers the middle one, cut to the bounds (the mean of the two middle values of an even number
    of equally good measurements). Where the loss is flat for ever, as for a variable that nobody measured, the number
    nearest to zero. Infinite where the loss falls for ever.
    """
    low, high = least(single)
    with np.errstate(invalid="ignore"):
        middle = low + (high - low) / 2
    flat = (low != high) & ~(np.isfinite(low) & np.isfinite(high))
    x = np.where(flat, np.clip(0.0, low, high), np.where(low == high, low, middle))
    out: Floats = np.clip(x, lower, upper)
    return out


def loss(single: Separable, x: Floats) -> Floats:
    """(n,) each variable's loss at x, up to a constant of its own."""
    away = single.weight * np.abs(x[single.owner] - single.point)
    kinks = np.bincount(single.owner, weights=away, minlength=x.size)
    out: Floats = single.curvature / 2 * np.square(x - single.centre) + single.derivative * x + kinks
    return out


def _mirrored(single: Separable) -> Separable:
    """The loss in -x, variables in reverse order (which keeps the points sorted)."""
    n = single.curvature.size
    return Separable(
        single.curvature[::-1],
        -single.centre[::-1],
        -single.derivative[::-1],
        n - 1 - single.owner[::-1],
        -single.point[::-1],
        single.weight[::-1],
    )


def _lowest(single: Separable) -> Floats:
    """Smallest minimisers. The derivative right of a point is negative at the points before the minimiser only, so
    counting those finds the point or the stretch where it changes sign."""
    n, q = single.curvature.size, single.curvature
    owner, count = single.owner, np.bincount(single.owner, minlength=n)
    total = np.bincount(owner, weights=single.weight, minlength=n)
    sums = running(np.add, single.weight, owner)
    with np.errstate(over="ignore"):
        after = q[owner] * (single.point - single.centre[owner]) + single.derivative[owner] + 2 * sums - total[owner]
    rounding = np.where(q > 0, 0.0, _TIE * (total + np.abs(single.derivative)))
    passed = np.bincount(owner, weights=after < -rounding[owner], minlength=n).astype(np.int64)
    first = np.cumsum(count) - count
    here = passed < count
    next_point = np.full(n, np.inf)
    before = np.full(n, np.inf)  # derivative left of the next point
    place = (first + passed)[here]
    next_point[here], before[here] = single.point[place], after[place] - 2 * single.weight[place]
    done = np.zeros(n)
    done[passed > 0] = sums[(first + passed - 1)[passed > 0]]
    at_point = here & (before <= rounding)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = single.centre - (single.derivative + 2 * done - total) / q
    curved = np.where(at_point, next_point, inside)
    # Without curvature derivatives change at points only: before the first one the loss may be flat or rise for ever.
    straight = np.where((passed == 0) & (single.derivative - total >= -rounding), -np.inf, next_point)
    return np.where(q > 0, curved, straight)


class _Edges(NamedTuple):
    """Stretches that variables can still move along, upwards in their sum. A stretch opens when the multiplier of its
    sum reaches ``price`` and then moves at ``rate`` (infinite: all at once) up to ``length``."""

    variable: Integers
    group: Integers
    price: Floats
    rate: Floats
    length: Floats

    def moved(self, multiplier: Floats, *, with_jumps: bool) -> Floats:
        """How far each stretch has moved at the multipliers (one per group); jumps there done, or not."""
        ahead = multiplier[self.group] - self.price
        jump = np.isinf(self.rate)
        open_ = ahead >= 0 if with_jumps else ahead > 0
        with np.errstate(invalid="ignore"):
            linear = np.minimum(ahead * self.rate, self.length)
        return np.where(open_, np.where(jump, self.length, linear), 0.0)


def project_sums(single: Separable, sums: Sums, lower: Floats, upper: Floats) -> Floats:
    """Minimise a separable convex loss subject to disjoint sums and bounds.

    With multiplier m of its sum, variable j minimises ``f_j(x) - m a_j x``; ``a_j x_j`` does not fall as m rises, and
    is piecewise linear in m (with jumps at kinks). From the minimiser without the sum (m = 0), all variables move
    the same way until the sum is met, so nothing cancels. The breakpoints are sorted and halved; between the last
    two the way is straight, so the end is exact. Inequalities: the same if the sum is too large, otherwise nothing.
    Of several minimisers, variables that are free to move at the last multiplier go in proportion to the room they
    have (unlimited room counts as all that is missing from the sum).

    Cost: O(r log r) for r breakpoints, all sums at once. The caller has checked that the bounds reach the targets.
    """
    x = start(single, lower, upper)
    inside = sums.group >= 0
    reached = np.bincount(sums.group[inside], weights=(sums.coefficient * x)[inside], minlength=sums.target.size)
    missing = np.where(sums.equality, sums.target - reached, np.minimum(sums.target - reached, 0.0))
    active = np.flatnonzero(inside & (missing[sums.group] != 0))
    if not active.size:
        return x
    a = sums.coefficient[active]
    direction = np.sign(a) * np.sign(missing[sums.group[active]])
    room = np.where(direction > 0, upper[active], -lower[active])
    edges = _edges(_turned(single, active, direction), direction * x[active], room, np.abs(a), sums.group[active])
    need = np.abs(missing)
    edges = edges._replace(length=np.minimum(edges.length, need[edges.group]))
    moved, moving = _meet(edges, need)
    step = np.bincount(edges.variable, weights=moved, minlength=active.size)
    last = np.bincount(edges.variable, weights=moving, minlength=active.size)
    x[active] = np.clip(x[active] + direction * step / np.abs(a), lower[active], upper[active])
    # Rounding in long sums: what is still missing goes to the variables that moved last.
    group, size = sums.group[active], np.bincount(sums.group[active], weights=last, minlength=need.size)
    share = np.divide(last, size[group], out=np.zeros(last.size), where=size[group] > 0)
    left = sums.target - np.bincount(group, weights=a * x[active], minlength=need.size)
    x[active] += share * left[group] / a
    return np.clip(x, lower, upper)


def _turned(single: Separable, active: Integers, direction: Floats) -> Separable:
    """The losses of some variables, in ``direction * x``."""
    new = np.full(single.curvature.size, -1, dtype=np.int64)
    new[active] = np.arange(active.size)
    keep = new[single.owner] >= 0
    owner = new[single.owner[keep]]
    point = direction[owner] * single.point[keep]
    order = np.lexsort((point, owner))
    return Separable(
        single.curvature[active],
        direction * single.centre[active],
        direction * single.derivative[active],
        owner[order],
        point[order],
        single.weight[keep][order],
    )


def _edges(single: Separable, z: Floats, room: Floats, size: Floats, group: Integers) -> _Edges:
    """The stretches above z, from point to point and up to ``room``."""
    n = z.size
    ahead = (single.point > z[single.owner]) & (single.point < room[single.owner])
    sign = np.where(single.point > z[single.owner], -1.0, 1.0)
    tilt = np.bincount(single.owner, weights=sign * single.weight, minlength=n)
    owner = np.concatenate([np.arange(n), single.owner[ahead]])
    point = np.concatenate([z, single.point[ahead]])
    gain = np.concatenate([tilt, 2 * single.weight[ahead]])
    order = np.lexsort((point, owner))
    owner, point, gain = owner[order], point[order], gain[order]
    derivative = (
        single.curvature[owner] * (point - single.centre[owner])
        + single.derivative[owner]
        + running(np.add, gain, owner)
    )
    end = room[owner].copy()
    follows = owner[1:] == owner[:-1]
    end[:-1][follows] = point[1:][follows]
    with np.errstate(divide="ignore"):
        rate = np.square(size[owner]) / single.curvature[owner]
    # At the start the derivative upwards is not negative, by optimality; what rounding leaves of a zero is a zero.
    pull = np.bincount(single.owner, weights=single.weight, minlength=n) + np.abs(single.derivative)
    derivative[(single.curvature[owner] == 0) & (np.abs(derivative) <= _TIE * pull[owner])] = 0.0
    price = np.maximum(derivative, 0.0) / size[owner]
    return _Edges(owner, group[owner], price, rate, size[owner] * np.maximum(end - point, 0.0))


def _meet(edges: _Edges, need: Floats) -> tuple[Floats, Floats]:
    """How far each stretch moves so that every group moves by what it needs, and the last step of the way."""

    def total(moved: Floats) -> Floats:
        return np.bincount(edges.group, weights=moved, minlength=need.size).astype(np.float64)

    with np.errstate(divide="ignore"):
        closing = edges.price + edges.length / edges.rate
    when = np.concatenate([edges.price, closing])
    whose = np.concatenate([edges.group, edges.group])
    order = np.lexsort((when, whose))
    when, whose = when[order], whose[order]
    count = np.bincount(whose, minlength=need.size)
    first = np.cumsum(count) - count
    low, high = first.copy(), first + np.maximum(count, 1) - 1  # the answer lies in [low, high]
    at = np.minimum(low, when.size - 1)
    while (low < high).any():
        at = np.minimum((low + high) // 2, when.size - 1)
        enough = total(edges.moved(when[at], with_jumps=True)) >= need
        high = np.where(enough, np.minimum(high, at), high)
        low = np.where(enough, low, np.minimum(at + 1, high))
    at = np.minimum(low, when.size - 1)
    here = when[at]
    upto, beyond = edges.moved(here, with_jumps=False), edges.moved(here, with_jumps=True)
    early = total(upto) > need  # met on the straight way from the breakpoint before
    previous = when[np.maximum(at - 1, np.minimum(first, when.size - 1))]
    back = edges.moved(previous, with_jumps=True)
    one = np.where(early[edges.group], back, upto)
    two = np.where(early[edges.group], upto, beyond)
    gain = total(two) - total(one)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(gain > 0, np.clip((need - total(one)) / gain, 0.0, 1.0), 1.0)
    return one + share[edges.group] * (two - one), two - one


# ------------------------------------------------------------------ table margins


class MarginProjector:
    """Orthogonal projection of tables onto {x : margin S of x equals t_S for every given S}.

    The space of tables is the orthogonal sum of effects W_E, E a set of axes: tables that depend on the axes E only and
    sum to zero along each of them. Margin S fixes exactly the components of x in W_E for E within S and says nothing
    about the others. So the projection takes the fixed components from the targets and the others from v: any family
    of margins will do. Targets fit together if and only if any two give the same margin over their common axes.

    The discrete cosine transform along each axis is orthogonal and has the constant vector first (for two categories it
    is the Walsh-Hadamard transform), so effects are blocks of coefficients: transform, overwrite, transform back.

    Cost: a table of N cells, O(N log N) in the set-up and in each projection, whatever the margins are.
    Errors: InfeasibleError for targets that contradict each other.
    """

    def __init__(self, margins: Margins) -> None:
        self.shape = margins.shape
        size = max(math.prod(self.shape), 1)
        fixed = np.full(self.shape, np.nan)
        for axes, target in zip(margins.axes, margins.targets, strict=True):
            block = tuple(slice(None) if a in axes else 0 for a in range(len(self.shape)))
            count = max(target.size, 1)
            # A coefficient of the table is one of the margin times this root.
            root = math.sqrt(count / size)
            fresh = (dctn(target, norm="ortho") if target.ndim else target) * root
            known = ~np.isnan(fixed[block])
            gap = np.abs(fixed[block] - fresh)[known].max(initial=0.0) / root
            # how far targets may disagree, relative to the largest of them
            if gap > 1e-8 * max(1.0, float(np.abs(target).max(initial=0.0))) * math.sqrt(count):
                raise InfeasibleError(f"the margin over the axes {axes} contradicts another")
            fixed[block] = np.where(known, fixed[block], fresh)
        self._free, self._fixed = np.isnan(fixed), fixed

    def project(self, table: Floats) -> Floats:
        """(N,) the nearest table with the margins, flattened."""
        if not table.size:
            return table.copy()
        effects = dctn(table.reshape(self.shape), norm="ortho")
        return np.asarray(idctn(np.where(self._free, effects, self._fixed), norm="ortho").ravel())
