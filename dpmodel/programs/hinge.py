"""Noisy gradient descent on the mean hinge of violations: a nearly feasible point of a covering or packing program."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.contract import YES, Options, Progress, Serves, Verdict
from dpmodel.kernels.direct_measurement import ROUNDING
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.privacy import NoiseSource
from dpmodel.programs.goals import Point, Promise, Task
from dpmodel.programs.model import PrivateNumbers, Program
from dpmodel.programs.nearly_feasible import LeavesRowsOut
from dpmodel.programs.rows import PrivateRows, RowPart, RowTable, plain_linear, private_rows


@dataclass(frozen=True)
class NoisyHingeDescent(LeavesRowsOut):
    """Minimise ``w'x + (1/k) sum_i max(G_i x - h_i, 0)`` over the public set by noisy dual averaging.

    Source
        Noisy gradient descent: Bassily, Smith and Thakurta 2014; dual averaging: Nesterov 2009, Xiao 2010. HRRU14,
        section 3.1, poses the problem (private rows, some of them given up) and solves it by dense multiplicative
        weights; the bounds here are proved in ``forecast.py``.
    Privacy
        Private values enter only through the d sums ``sum_i p(u_i) G_i`` of each step, d the columns that private
        rows reach. Given the released numbers, which fix the point x_t, p(u_i) in [0, 1] is a function of
        row i alone, so one record moves the sums by at most ``sum_sensitivity`` (proof there; products are computed
        row by row, hence what one record does not own is computed alike in both databases, in memory and in blocks).
        Every step adds Gaussian noise calibrated to its 2-norm (Laplace and 1-norm for pure budgets), T steps with a
        public T, adaptively composed by ``Spend``. Everything else is a function of the noisy sums and of public facts.
    Utility
        V is the mean hinge. ``forecast.py`` proves w.p. 1 - beta ``w'x + V(x) <= w'x* + error``. If more than s rows
        were violated by more than ``a = k v / (s + 1)``, V would exceed ``a (s + 1) / k = v``: ``gain = k / (s + 1)``.
        s is what was asked for; or the least that keeps ``gain * error`` below the violation asked for; or the one that
        minimises ``alpha + width s / k``. Asked for s or the violation, it runs what proves most: the accelerated
        method where the rows are so many that it proves an error below 2 % of the width. Else it runs the settings that
        do best on synthetic databases (``nearly_feasible.py``), mostly of the plain method set for practice: tight and
        met rows are given a say (c in ``forecast.py``), the rate is high and only the last half of the iterates is
        averaged. The statement is always that of the settings that are run, and mostly gives no guarantee then.
    Cost
        T products with G and its transpose (of rows in blocks T passes), T projections (exact for a box with one row),
        T d noisy numbers; T at most 2,000, fewer when d or G is large.
    """

    serves: ClassVar[Serves] = Serves(
        Program, ("scalar low", "row low", "row high"), reads_blocks=True, leaves_out=True
    )
    name = "noisy-hinge-descent"
    source = "Bassily, Smith and Thakurta 2014; Nesterov 2009 (dual averaging on the mean violation)"
    gaussian_only = True

    def suits(self, model: Program, options: Options) -> Verdict:
        return plain_linear(model) or YES

    def promise(self, task: Task) -> Promise:
        plans = (self._promise(task, error, plan) for error, plan in plan_descent(task))
        return replace(next(plans), others=cache(lambda: tuple(plans)))

    def least(self, task: Task) -> float:
        """What its noise alone costs: ``k error / (s + 1) + width s / k >= 2 sqrt(error width) - width / k``."""
        (error, width), k = noise_alone(task), max(private_rows(task.model).count, 1)
        return max(2 * math.sqrt(error * width) - width / k, 0.0)

    def _promise(self, task: Task, error: float, plan: DescentPlan) -> Promise:
        rows = private_rows(task.model)
        width = max(rows.residual_range(task.polytope)[1], 0.0)
        slack = _slack(task, rows.count, error, width)
        words = f"{plan.steps} steps: a product with the private rows, a projection and noise on {plan.live.size} sums"
        noise = {
            "kind": plan.kind,
            "scale of each sum": plan.scale,
            "sums": int(plan.live.size),
            "steps": plan.steps,
            "change by one record": sum_sensitivity(task, 1 if plan.kind == "laplace" else 2),
        }
        return Promise(
            error, rows.count / (slack + 1), slack, rows.count, width, words,
            noise=noise, caveats=("the released point is usually far better than the proved bound",), plan=plan,
        )  # fmt: skip

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers | RowTable, source: NoiseSource, progress: Progress
    ) -> Point:
        plan: DescentPlan = promise.plan
        rows = private_rows(task.model)
        table = rows.table(theta)
        k, total = max(rows.count, 1), np.zeros(task.polytope.size)
        z = task.polytope.project(plan.start)
        x, weight = np.zeros(task.polytope.size), 0.0
        for step in range(plan.steps):
            if step % max(plan.steps // 20, 1) == 0:
                progress(f"descent on the violations, {plan.steps} steps", step / plan.steps)
            a = step + 1.0 if plan.accelerated else 1.0
            query = (weight * x + a * z) / (weight + a) if plan.accelerated else z
            total += a * task.tilt
            if plan.live.size:  # else no private entry counts, and there is nothing to ask for
                sums = table.map_reduce(partial(_sums, query, plan))
                draw = source.laplace if plan.kind == "laplace" else source.gaussian
                total[plan.live] += a * draw(sums, plan.scale) / k
            after = task.polytope.project(plan.start - plan.rate * total)
            if step >= plan.steps - plan.kept:
                x, weight = (weight * x + a * (after if plan.accelerated else z)) / (weight + a), weight + a
            z = after
        return Point(task.polytope.nearest(x))


def _sums(x: Floats, plan: DescentPlan, part: RowPart) -> PrivateArray:
    """(d,) ``sum_i p(u_i) G_i`` over the rows of a part, at the point x."""
    return PrivateArray(part.pull(say(part.residual(x), plan))[plan.live])


def say(residual: PrivateArray, plan: DescentPlan) -> PrivateArray:
    """(k,) p(u) of ``forecast.py``, in [0, 1], row by row; in the memory of ``residual``."""
    if plan.accelerated:
        residual /= 2 * plan.say
        residual += 1
        np.clip(residual, 0.0, 1.0, out=residual)
    else:
        np.negative(residual, out=residual)
        np.maximum(residual, plan.say, out=residual)
        np.divide(plan.say, residual, out=residual)
    return residual


def _slack(task: Task, rows: int, error: float, width: float) -> int:
    """Rows to leave out."""
    if task.slack_rows is not None:
        return task.slack_rows
    if task.violation is not None and task.violation > 0:
        # rows error / (s + 1) <= violation.
        return math.ceil(min(max(rows * error / max(task.violation, 1e-300) - 1, 0.0), rows))
    # alpha + width s / rows = rows error / (s + 1) + width s / rows is least at s + 1 = rows sqrt(error / width).
    return min(rows, max(round(rows * math.sqrt(error / width)) - 1, 0)) if width > 0 else 0


NOISY_HINGE_DESCENT = NoisyHingeDescent()


# Most steps, numbers noised in all, and matrix entries read in all: they bound the run time.
_MOST_STEPS, _MOST_NOISE, _MOST_READS = 2000, 1_000_000, 4_000_000_000
# The accelerated method is used where it proves an error below this share of the width. Elsewhere no theorem says much,
# and the plain method is set for practice (tried on approval ballots; its error is proved all the same): so many steps,
# a rate of so many times the best one for noise alone (but at most so many times the best one without noise), and c so
# many times the error that noise alone would prove (but at most the width).
_SURE = 0.02
_STEPS, _RATE, _MOST_RATE, _SAY = 40, 8.0, 20.0, 10.0
# Settings of the plain method among which simulations choose: steps, and c as a share of the width. The same at every
# budget, so that more of it is the same method with less noise; few steps while noise is large (a pure budget's grows
# with them), a small c only with many steps: a hinge that is hardly rounded takes more of them (tried on ballots drawn
# like those of tests/programs/test_hinge_settings.py with other seeds, of no election).
_LADDER = ((10, 1.0), (40, 1.0), (160, 1.0), (640, 0.1), (640, 0.01))
# The accelerated method: c at least this share of the rest of its error; how near the least error is near enough.
_LEAST_SAY, _NEAR = 0.5, 1.1
# Share of beta for the size of the noise (step 4); the rest is for its direction (step 3).
_SIZE_SHARE = {"gaussian": 0.1, "laplace": 0.3}
_CENTRES = 21


@dataclass(frozen=True)
class DescentPlan:
    """Numbers of one descent, from public facts.

    ``accelerated`` : which of the two methods. ``steps`` T; ``rate`` per unit of the mean hinge; ``say`` c;
    ``kept`` T', how many of the last iterates are averaged; ``start`` (n,) x_0; ``live`` (d,) columns in which the
    private rows may have entries; ``kind`` of the noise on the d sums of a step and its ``scale``.

    Proved error of noisy dual averaging on the mean hinge of the private rows, and the plan that it chooses.

    Setting. ``u_i(x) = G_i x - h_i``, ``V(x) = (1/k) sum_i max(u_i(x), 0)``, a tilt w, x* in K with ``u_i(x*) <= 0``.
    Step t asks at x_t in K for ``g_t = w + (1/k) sum_i p(u_i(x_t)) G_i`` and gets ``g_t + n_t``, where
    ``p(u) = 1 for u >= -c and c / |u| below``. Then ``x_{t+1}`` is the Euclidean projection onto K of
    ``x_0 - rate (g_1 + n_1 + ... + g_t + n_t)``; x_0 need not lie in K.

    1. ``p(u) u >= max(u, 0) - c`` (for -c <= u < 0 it is u, below it is -c), and ``p(u_i(x)) u_i(x*) <= 0``. So
       ``<g_t, x_t - x*> >= w'(x_t - x*) + V(x_t) - c``: rows that are met but tight keep a say, which costs c.
    2. Dual averaging (Nesterov 2009; Xiao 2010): for every x in K,
       ``sum_t <g_t + n_t, x_t - x> <= ||x - x_0||^2 / (2 rate) + (rate / 2) sum_t ||g_t + n_t||^2``. With
       ``||x* - x_0|| <= R`` and ``||g_t|| <= L``, ``sum_t [w'(x_t - x*) + V(x_t) - c] <= B``, where
       ``B = R^2 / (2 rate) + (rate / 2) (T L^2 + sum ||n_t||^2) + sum <n_t, x* - x_t + rate g_t>``.
    3. The last sum has independent zero-mean noise against vectors known before it, of 2-norm at most
       ``S = D + rate L``. *Gaussian*, standard deviation s per entry: fill every step up to variance ``(s S)^2`` with
       independent noise, symmetric given all n_t. The filled sum is N(0, T s^2 S^2), and where the sum exceeds q, the
       filled one does so with conditional probability 1/2 at least; so ``P(sum > z s S sqrt(T)) <= 2 (1 - Phi(z))``.
       *Laplace*, scale b: ``E exp(r b y Lap(1)) = 1/(1 - (r b y)^2) <= exp((4/3) (r b y)^2)`` while ``|r b y| <= 1/2``;
       then Chernoff's bound with the best such r.
    4. ``sum ||n_t||^2`` over d entries per step: s^2 times a chi-square of T d degrees (Laurent and Massart 2000, Lemma
       1); for Laplace noise it has mean 2 b^2 T d and variance 20 b^4 T d, and Cantelli's inequality bounds it.
    5. Dividing by T gives the error of the average of all iterates (V is convex): ``B / T + c``. Without a tilt every
       ``V(x_t) - c`` is at least -c, so the last T' of T iterates alone have average V at most ``(B + c T) / T'``.

    The noise's part of B / T does not fall as T grows under zCDP (s grows as sqrt(T)) and rises for pure budgets, and
    ``R L / sqrt(T)`` falls slowly. Where the rows are so many that little else matters, *accelerated* dual averaging
    (Nesterov 2005; Lan 2012) takes over, on the smooth ``F(x) = w'x + (1/k) sum_i f(u_i(x))`` with ``f' = p`` and
    ``p(u) = min(max(1 + u / (2c), 0), 1)``: then ``max(u, 0) <= f(u)``, ``f(u) <= c`` for u <= 0, and the gradient of F
    has the Lipschitz constant ``H = norm2^2 / (2c)``. With weights ``a_t = t``, ``A_t = a_1 + ... + a_t``, it asks at
    ``y_t = (A_{t-1} x_{t-1} + a_t z_{t-1}) / A_t``, projects ``x_0 - rate sum_{s <= t} a_s (g_s + n_s)`` to z_t and
    takes ``x_t = (A_{t-1} x_{t-1} + a_t z_t) / A_t``.

    6. As ``x_t - y_t = (a_t / A_t) (z_t - z_{t-1})`` and ``a_t^2 / A_t <= 2``, smoothness and convexity of F give
       ``A_T (F(x_T) - F(x*)) <= sum a_t <g_t, z_t - x*> + H sum ||z_t - z_{t-1}||^2``.
    7. Be-the-leader for the strongly convex regulariser gives
       ``sum a_t <g_t + n_t, z_t - x*> <= R^2 / (2 rate) - sum ||z_t - z_{t-1}||^2 / (2 rate)``.
    8. With ``1 / rate = 2 H + 1 / r``, the square in ``z_t - z_{t-1}`` completed,
       ``A_T (F(x_T) - F(x*)) <= R^2 H + R^2 / (2r) + (r / 2) sum a_t^2 ||n_t||^2 + sum a_t <n_t, x* - z_{t-1}>``; steps
       3 and 4, with weights, bound the rest, and ``w'x_T + V(x_T) <= F(x_T)``, ``F(x*) <= w'x* + c``.
    """

    accelerated: bool
    steps: int
    rate: float
    say: float
    kept: int
    start: Floats
    live: Integers
    kind: str
    scale: float


@dataclass(frozen=True)
class _Facts:
    """What the bounds are made of: ``steps`` (s,) to choose from, ``scale`` (s,) of the noise in units of the mean."""

    kind: str
    steps: Integers
    scale: Floats
    d: int
    radius: float
    reach: float
    norm: float
    tilt: float
    beta: float
    width: float


def plan_descent(task: Task) -> Iterator[tuple[float, DescentPlan]]:
    """The proved error, in units of V plus tilt, and the plan, of the settings with the best statement; then of those
    among which simulations may choose (none of them says much)."""
    rows, polytope = private_rows(task.model), task.polytope
    kind = "laplace" if task.spend.rho is None else "gaussian"
    sensitivity = sum_sensitivity(task, 1 if kind == "laplace" else 2)
    start, radius = polytope.cached("centre", lambda: centre(polytope))
    live = live_columns(rows, polytope)
    width = max(rows.residual_range(polytope)[1], 0.0)
    most = max(2, min(_MOST_STEPS, _MOST_NOISE // max(live.size, 1), _MOST_READS // max(task.model.entries, 1)))

    def facts(steps: Integers) -> _Facts:
        grows = steps if kind == "laplace" else np.sqrt(steps)
        scale = noise_scale(task, kind, sensitivity, 1) * grows / max(rows.count, 1)
        return _Facts(
            kind, steps, scale, live.size, radius, min(polytope.diameter, 2 * radius), rows.norm2,
            float(np.linalg.norm(task.tilt)), task.beta, width,
        )  # fmt: skip

    def plan(fast: bool, known: _Facts, chosen: int, found: tuple[Floats, Floats, Floats]) -> tuple[float, DescentPlan]:
        error, rate, say = (float(each[chosen]) for each in found)
        t = int(known.steps[chosen])
        kept = t if fast or task.tilted else -(-t // 2)
        scale = noise_scale(task, kind, sensitivity, t)
        # Without a tilt the mean violation cannot exceed the width anyway.
        return (error if task.tilted else min(error, width)), DescentPlan(
            fast, t, rate, say, kept, start, live, kind, scale
        )

    def plain(steps: int, share: float | None = None) -> tuple[float, DescentPlan]:
        known = facts(np.array([min(steps, most)]))
        return plan(False, known, 0, _averaged(known, halved=not task.tilted, share=share))

    known = facts(np.unique(np.geomspace(1, most, 200).astype(np.int64)))
    found = _accelerated(known)
    fast, near = bool(found[0].min() <= _SURE * width), found[0] <= _NEAR * found[0].min()
    yield plan(True, known, int(np.flatnonzero(near)[0]), found) if fast else plain(_STEPS)
    for each in _LADDER:
        if each[0] <= most:
            yield plain(*each)


def noise_alone(task: Task) -> tuple[float, float]:
    """What no error of ``plan_descent`` falls below, without a tilt; and the width.

    Let s be the scale of the noise of a single step, in units of the mean. That of T steps is ``s sqrt(T)`` at least,
    and ``sum a_t^2 ||n_t||^2`` is bounded by no less than ``size = T s^2 d sum a_t^2``. Of it the bounds have
    ``R^2 / (2 rate) + (rate / 2) size >= R sqrt(size)`` at least, whatever the rate, over ``sum a_t``: for ``a_t = 1``
    this is ``R s sqrt(d)``, and for ``a_t = t`` it is no less.
    """
    rows, polytope = private_rows(task.model), task.polytope
    kind, order = ("laplace", 1) if task.spend.rho is None else ("gaussian", 2)
    radius = polytope.cached("centre", lambda: centre(polytope))[1]
    scale = noise_scale(task, kind, sum_sensitivity(task, order), 1) / max(rows.count, 1)
    width = max(rows.residual_range(polytope)[1], 0.0)
    return min(radius * scale * math.sqrt(live_columns(rows, polytope).size), width), width


def noise_scale(task: Task, kind: str, sensitivity: float, steps: int) -> float:
    """Scale of the noise on the sums of one of ``steps`` steps."""
    scale = task.spend.laplace_scale if kind == "laplace" else task.spend.gaussian_sigma
    return scale(sensitivity, steps)


def sum_sensitivity(task: Task, order: int) -> float:
    """Largest 1- or 2-norm sensitivity of ``sum_i p_i G_i`` as computed, by one record, when p_i in [0, 1] is a
    function of row i (and of released numbers) alone.

    Exactly: at most ``per_record`` rows change, each from ``p a`` to ``p' a'`` with a and a' allowed rows (or absent,
    zero); the norm of ``p a - p' a'`` is convex in p and in p', so it is largest at p, p' in {0, 1}, which is what
    ``PrivateRows.sum_sensitivity`` bounds (zero rows included). Rounded: a sum in a fixed order in which a term goes
    through at most a additions is off by at most a 2^-53 (1 + o(1)) of the sum of the absolute values of its k terms,
    at most k times a row's norm, in either database; a is k in memory, and far less where sums of blocks are added.
    """
    rows = private_rows(task.model)
    exact, one = rows.sum_sensitivity(order), rows.norm1 if order == 1 else rows.norm2
    return exact * (1 + ROUNDING) + 2.0 * rows.count * (task.model.additions(rows.count) + 2) * 2.0**-53 * one


def live_columns(rows: PrivateRows, polytope: Polyhedron) -> Integers:
    """(d,) columns that can have an entry in some private row and are not fixed in the public set."""
    lower, upper = polytope.box
    return np.flatnonzero(((rows.lower < 0) | (rows.upper > 0)) & (upper > lower))


def centre(polytope: Polyhedron) -> tuple[Floats, float]:
    """A public point (n,) and a bound on its 2-norm distance to every point of the polytope.

    On the line from the lower to the upper end of the box: ``(x_j - o_j)^2`` is at most its chord over
    ``[lower_j, upper_j]``, so ``max ||x - o||^2`` is at most a linear program; the best of a grid is taken. A share s
    of the way, the chords add up to ``(1 - 2 s) span'(x - lower) + s^2 span'span``.
    """
    lower, upper = np.maximum(polytope.box[0], -polytope.l1), np.minimum(polytope.box[1], polytope.l1)
    span = upper - lower
    best, radius = (lower + upper) / 2, float(np.linalg.norm(span)) / 2
    # All chords are multiples of one: two linear programs do.
    ends = {side: polytope.support(side * span) - side * float(lower @ span) for side in (1.0, -1.0)}
    length = float(span @ span)
    for share in np.linspace(0, 1, _CENTRES).tolist():
        factor = 1 - 2 * share
        square = abs(factor) * ends[1.0 if factor >= 0 else -1.0] + share**2 * length
        if 0 <= square < radius**2 * (1 - 1e-9):
            best, radius = lower + share * span, math.sqrt(square)
    return best, radius


def _averaged(facts: _Facts, *, halved: bool, share: float | None = None) -> tuple[Floats, Floats, Floats]:
    """(s,) x 3: error, rate and c of dual averaging for every number of steps; ``halved``: average the last half;
    ``share`` : c as a share of the width (None: from the error that noise alone would prove)."""
    t, derivative, none = facts.steps, facts.norm + facts.tilt, np.zeros_like(facts.steps)
    size = _size(facts, none)
    alone = (facts.radius * np.sqrt(size) + _turn(facts, none, np.full(t.size, facts.reach))) / t
    wanted = _SAY * alone if share is None else np.full(t.size, share * facts.width)
    say = np.clip(wanted, 1e-300, max(facts.width, 1e-300))
    rate = facts.radius * np.minimum(
        _RATE / np.sqrt(np.maximum(size, 1e-300)), _MOST_RATE / (np.sqrt(t) * max(derivative, 1e-300))
    )
    main = facts.radius**2 / (2 * np.maximum(rate, 1e-300)) + rate / 2 * (t * derivative**2 + size)
    bound = main + _turn(facts, none, facts.reach + rate * derivative)
    # Without a tilt the last half is released: far better in practice, and the error is at most doubled.
    kept = -(-t // 2) if halved else t
    return (bound + say * t) / kept, rate, say


def _accelerated(facts: _Facts) -> tuple[Floats, Floats, Floats]:
    """(s,) x 3: error, rate and c of the accelerated method for every number of steps."""
    t, one = facts.steps, np.ones_like(facts.steps)
    weight = t * (t + 1) / 2
    size = _size(facts, one)
    noise = (facts.radius * np.sqrt(size) + _turn(facts, one, np.full(t.size, facts.reach))) / weight
    # R^2 H / A_T + c with H = norm^2 / (2c) is least at this c; tight rows get no less say than in the other method.
    say = np.maximum(facts.radius * facts.norm / np.sqrt(2 * weight), _LEAST_SAY * noise)
    smooth = facts.norm**2 / (2 * np.maximum(say, 1e-300))
    rate = 1 / (2 * smooth + np.sqrt(size) / max(facts.radius, 1e-300) + 1e-300)
    return noise + facts.radius**2 * smooth / weight + say, rate, say


def _powers(facts: _Facts, order: Integers, power: int) -> Floats:
    """(s,) sums of a_t^power for the weights a_t = t^order, order 0 or 1."""
    t = facts.steps.astype(np.float64)
    squares = t * (t + 1) * (2 * t + 1) / 6
    return np.where(order == 0, t, squares if power == 2 else squares * (3 * t * t + 3 * t - 1) / 5)


def _size(facts: _Facts, order: Integers) -> Floats:
    """(s,) what ``sum a_t^2 ||n_t||^2`` exceeds with the probability set aside for it."""
    share = _SIZE_SHARE[facts.kind] * facts.beta
    squares, fourths = facts.d * _powers(facts, order, 2), facts.d * _powers(facts, order, 4)
    if facts.kind == "laplace":
        return facts.scale**2 * (2 * squares + np.sqrt(20 * fourths * (1 - share) / share))
    log = math.log(1 / share)
    highest = np.where(order == 0, 1.0, facts.steps.astype(np.float64) ** 2)
    return np.asarray(facts.scale**2 * (squares + 2 * np.sqrt(fourths * log) + 2 * highest * log))


def _turn(facts: _Facts, order: Integers, spread: Floats) -> Floats:
    """(s,) what ``sum a_t <n_t, v_t>`` exceeds with the rest of beta; v_t predictable, of 2-norm at most ``spread``."""
    rest = facts.beta * (1 - _SIZE_SHARE[facts.kind])
    squares = _powers(facts, order, 2)
    if facts.kind == "gaussian":
        return facts.scale * spread * np.sqrt(squares) * float(-ndtri(rest / 2))
    # exp(-r q + (4/3) r^2 (b S)^2 sum a_t^2) = rest, at the best r in (0, 1 / (2 b S max a_t)].
    log, highest = math.log(1 / rest), np.where(order == 0, 1.0, facts.steps.astype(np.float64))
    free = np.minimum(np.sqrt(0.75 * log / squares), 0.5 / highest)
    return facts.scale * spread * (log / free + 4 / 3 * free * squares)
