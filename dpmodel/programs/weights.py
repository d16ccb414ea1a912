"""Primal multiplicative weights against a private dual oracle: the game, its regret, and the choice of its length.

HRRU14, Algorithms 3 and 4: one player moves a point x by multiplicative weights over the columns, the other names a
violated row. Notation: p_t = z_t / L in the probability simplex (see ``simplex_form``), W bounds the range of the
losses ``l_t(k) = L (S' a_{i_t})_k`` of a named row, eta is the rate, w the tilt.

Regret (proved here, for any convex part P of the simplex, so the public constraints hold at every step)
    Play ``p_t = grad Phi(psi_t - eta w)`` with ``Phi(g) = max_P <g, p> + entropy(p)`` and
    ``psi_{t+1} = psi_t - eta (w + l_t + n_t)``, ``psi_1 = 0``, where n_t is fresh zero-mean noise.
    1. First-order optimality of ``p = grad Phi(g)`` in P: ``<g, q> + entropy(q) <= Phi(g) - KL(q || p)`` for q in P.
       With Donsker and Varadhan, ``Phi(g + v) <= Phi(g) + max_q (<v, q> - KL(q || p)) <= Phi(g) + ln sum p_k e^{v_k}``.
    2. Convexity gives ``Phi(psi_t - eta w) <= Phi(psi_t) - eta <w, p_t>``. With 1, where l is the mean of l_t by p_t:
       ``Phi(psi_{t+1}) - Phi(psi_t) <= -eta <w + l_t, p_t> + ln sum_k p_tk e^{-eta (l_t(k) - l + n_t(k))}``.
    3. ``Phi(psi_{T+1}) >= <psi_{T+1}, p*> + entropy(p*)`` and ``Phi(psi_1) <= ln d``. Summed over t, for p* in P:
       ``eta sum <w + l_t, p_t - p*> <= ln d + sum_t Z_t``,
       ``Z_t = ln sum_k p_tk e^{-eta (l_t(k) - l) + eta <n_t, p* - e_k>}``.
    Without noise ``Z_t <= eta^2 W^2 / 8`` by Hoeffding's lemma: average regret ``W sqrt(ln d / (2 T))``. With noise
    ``E[e^{Z_t} | past] <= e^{eta^2 V}``, since the noise is independent of p_t and l_t, so ``P[sum Z_t >= ln(1/beta) +
    eta^2 V T] <= beta`` (Markov): average regret ``ln(d / beta) / (eta T) + eta V``. For Gaussian noise of standard
    deviation sigma on entries of a, ``V = W^2 / 8 + D^2 sigma^2 / 2``, where D is the diameter of the x of the
    vertices; for Laplace noise of scale b, ``V = W^2 / 8 + 1.151 D^2 b^2`` as long as ``eta b |x_j - x'_j|`` is at most
    1/2 for vertices x, x', because ``-ln(1 - u) <= 1.151 u`` for u <= 1/4. The tilt costs nothing.

Selections (proved here)
    Each falls short of the best score by more than ``scale (ln k + t)`` with probability at most e^{-t}, whatever came
    before, so the sum of T shortfalls is dominated by ``scale (T ln k + Gamma(T))``.

The game
    The candidates are the private rows, equalities with both signs, and "no row" with score 0: the best score is
    V(x_t). With ``score_i(x*) <= 0``: ``w'xbar + V(xbar) <= mean(w'x_t + V(x_t)) <= w'x* + regret + mean shortfall``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import gammainccinv

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.compile.affine_map import AffineMap, LinearMap
from dpmodel.compile.footprint import entries_under, record_blocks, sensitivity_of
from dpmodel.contract import YES, Options, Progress, Serves, Verdict, counted
from dpmodel.kernels.exact_rows import ROUNDING, exact_rows
from dpmodel.memo import cached
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.simplex_form import MOST_ROWS, EntropicPolytope, SimplexForm, simplex_form
from dpmodel.privacy import NoiseSource
from dpmodel.programs.goals import Point, Promise, Task
from dpmodel.programs.model import PrivateNumbers, Program, refuse_high
from dpmodel.programs.nearly_feasible import NearlyFeasible
from dpmodel.programs.rows import public_polyhedron

# Run time: at most so many steps, and fewer when a step is long (about half a minute of products).
MOST_STEPS, _MOST_WORK, _LEAST_STEPS = 5_000, 4e9, 200
# Beyond this many candidates a selection takes two stages.
_ONE_STAGE = 4096


@dataclass(frozen=True)
class PrivateRowsNow:
    """The private rows at theta; private. Scores are ``residual(x)``, then ``-residual(x)[twins]``, then 0.

    ``parts`` : matrices (k x n) whose sum is G; ``h`` (k,); ``twins`` : equalities among the rows;
    ``limit`` : scores are clamped to [-limit, limit].
    """

    parts: tuple[sp.csr_array, ...]
    fixed: Floats
    h: PrivateArray
    twins: Integers
    limit: float

    def scores(self, x: Floats) -> PrivateArray:
        """(k + e + 1,) scores of the rows, the twins of equalities, and no row."""
        k = self.h.size
        out = np.empty(k + self.twins.size + 1)
        out[-1] = 0.0
        rows = out[:k]
        rows[:] = self.parts[0] @ x
        for part in self.parts[1:]:
            rows += part @ x
        rows -= self.fixed
        rows -= self.h
        if math.isfinite(self.limit):
            np.clip(rows, -self.limit, self.limit, out=rows)
        out[k:-1] = -out[self.twins]
        return PrivateArray(out)

    def name(self, candidate: int) -> tuple[int, float] | None:
        """Row and sign of a candidate; None for no row."""
        k = self.h.size
        if candidate < k:
            return candidate, 1.0
        if candidate < k + self.twins.size:
            return int(self.twins[candidate - k]), -1.0
        return None

    def worst(self, x: Floats) -> float:
        """V(x): the largest violation."""
        return float(self.scores(x).max())


@dataclass(frozen=True)
class Steps:
    """A game's plan. ``form`` : of the public set; ``count`` : T; ``rate`` : eta; ``epsilon`` : of one selection;
    ``noise`` : standard deviation (Gaussian) or scale (Laplace) of the noise on the entries of a named row, 0 for
    none."""

    form: SimplexForm
    count: int
    rate: float
    epsilon: float
    noise: float = 0.0


Row = Callable[[int], tuple[Integers, Floats]]


def play(
    plan: Steps,
    polytope: Polyhedron,
    rows: PrivateRowsNow,
    row: Row,
    scale: Callable[[Floats], float],
    tilt: Floats,
    source: NoiseSource,
    progress: Progress,
) -> Floats:
    """(n,) the mean of the points of all rounds.

    ``row(i)`` : columns and entries of row i of G as they may be released; ``scale(x)`` : scale of the selection at the
    released point x. Memory: log weights, weights and the sum of the points, beside the rows.
    """
    form, steps = plan.form, plan.count
    public = EntropicPolytope.of(polytope, form)
    g, z = np.zeros(form.columns), np.empty(form.columns)
    total = np.zeros(form.shift.size)
    gain = plan.rate * form.total
    tilted = form.pull(np.arange(tilt.size), tilt) if tilt.any() else None
    tick = counted(f"multiplicative weights, {steps} steps", steps, progress)
    for _ in range(steps):
        tick()
        if tilted is not None:
            g[tilted[0]] -= gain * tilted[1]
        x = form.to_x(public.weights(g, z))
        total += x
        chosen = rows.name(select(rows.scores(x), scale(x), source))
        if chosen is None:
            continue
        index, sign = chosen
        columns, values = form.pull(*row(index))
        g[columns] -= gain * sign * values
    total /= steps
    return total


def select(scores: PrivateArray, scale: float, source: NoiseSource) -> int:
    """A candidate i with probability proportional to ``exp(scores[i] / scale)``: the exponential mechanism.

    Many candidates are drawn in two stages, a group by the sum of its weights and then one of the group, which is the
    same distribution: the work is one pass over the scores, and noise is drawn for two short lists. The sums are
    rounded to about 1e-13 of themselves, far inside the rounding allowance of the range. ``scores`` is overwritten.
    """
    scores /= scale
    scaled = scores
    if scaled.size <= _ONE_STAGE:
        return source.noisy_max(scaled, 1.0, kind="exponential")
    width = math.isqrt(scaled.size)
    whole = scaled.size // width * width
    head, tail = scaled[:whole].reshape(-1, width), scaled[whole:]
    tops = head.max(axis=1)
    weights = head - tops[:, None]
    np.exp(weights, out=weights)
    groups = tops + np.log(weights.sum(axis=1))
    if tail.size:
        groups = np.append(groups, np.logaddexp.reduce(tail))
    group = source.noisy_max(groups, 1.0, kind="exponential")
    members = head[group] if group < tops.size else tail
    return group * width + source.noisy_max(members, 1.0, kind="exponential")


def finish(polytope: Polyhedron, x: Floats, row_bound: float) -> Point:
    """x moved into the public set exactly; ``row_bound`` bounds the entries of a private row."""
    inside = polytope.nearest(x)
    moved = row_bound * float(np.abs(inside - x).sum())
    return Point(inside, extra_violation=moved if moved > 1e-9 * (1 + row_bound) else 0.0)


# ------------------------------------------------------------------ planning
class Shape(NamedTuple):
    """A public set as a game on private rows sees it. ``form`` : its simplex form. ``work`` : of a projection onto it,
    as numbers that could be read instead. ``width`` : W, some point satisfies every row, and no row differs by more
    between two."""

    form: SimplexForm
    work: float
    width: float


def simplex_of(
    model: Program, polytope: Polyhedron, lower: Floats, upper: Floats
) -> tuple[SimplexForm, float] | Verdict:
    """The simplex form of a public set for rows between ``lower`` and ``upper``, and the work of a projection; or why
    there is none."""
    form = simplex_form(polytope, lower, upper)
    if not isinstance(form, SimplexForm):
        names = list(dict.fromkeys(model.affine.column_names[j] for j in form))
        which = ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
        return Verdict(
            False,
            f"the public constraints leave {which} unbounded, so they give no L with ||x||_1 <= L; "
            "give bounds=[lo, hi] or a public constraint that bounds the sum",
        )
    projection = EntropicPolytope.of(polytope, form)
    rows = projection.rows.shape[0]
    # The objective may become one more row later: a target, or the runs of a search.
    most = MOST_ROWS - 1 if polytope is public_polyhedron(model) else MOST_ROWS
    if rows > most:
        return Verdict(False, f"{rows} public rows couple the variables; it projects onto at most {most}")
    return form, projection.work


def step_grid(work: float) -> Floats:
    """Numbers of steps to choose from; ``work`` : numbers that one step reads."""
    most = int(min(max(_MOST_WORK / max(work, 1.0), _LEAST_STEPS), MOST_STEPS))
    return np.unique(np.round(np.geomspace(1, most, 240)))


def shortfall(candidates: int, steps: Floats, beta: float) -> Floats:
    """(grid,) bound of the mean shortfall of T selections of scale 1, with probability 1 - beta."""
    return math.log(candidates) + gammainccinv(steps, beta) / steps if candidates > 1 else np.zeros_like(steps)


@lru_cache
def _longest(beta: float) -> tuple[Floats, Floats]:
    """The longest grid of steps, and what ``shortfall`` takes long for: most plans ask, with the same beta."""
    grid = step_grid(0.0)
    return grid, gammainccinv(grid, beta) / grid


def selections_alone(task: Task, candidates: int, reach: float) -> float:
    """What selections with all of the budget fall short by, the regret left out."""
    grid, draws = _longest(task.beta)
    each = task.spend.epsilon / grid if task.spend.rho is None else np.sqrt(8 * task.spend.rho / grid)
    worst = reach / each * (math.log(candidates) + draws)
    return float(worst.min()) if candidates > 1 else 0.0


def plain_regret(width: float, columns: int, steps: Floats) -> tuple[Floats, Floats]:
    """(grid,) average regret without noise, and the rate that attains it."""
    size = math.log(columns) if columns > 1 else 0.0
    regret = width * np.sqrt(size / (2 * steps))
    return regret, np.sqrt(8 * size / steps) / width if width > 0 else np.zeros_like(steps)


def noisy_regret(
    variance: Floats, columns: int, steps: Floats, beta: float, most_rate: Floats | float = math.inf
) -> tuple[Floats, Floats]:
    """Average regret with noise (V of the module's docstring), and the rate (at most ``most_rate``)."""
    size = math.log(columns / beta)
    rate = np.minimum(np.sqrt(size / (np.maximum(variance, 1e-300) * steps)), most_rate)
    return size / (rate * steps) + rate * variance, rate


def longest_game(gap: Callable[[float], float]) -> float | None:
    """Real T >= 1 where the increasing ``gap`` vanishes (1 when it is positive there); None beyond the most steps."""
    top = math.log(MOST_STEPS)
    if gap(MOST_STEPS) < 0:
        return None
    return 1.0 if gap(1.0) >= 0 else math.exp(float(brentq(lambda t: gap(math.exp(t)), 0.0, top)))


def both_signs(part: LinearMap, twins: Integers) -> LinearMap:
    """``part`` with its rows ``twins`` a second time, negated."""
    place = np.full(part.height, -1, dtype=np.int64)
    place[twins] = part.height + np.arange(twins.size)
    again = part.select(place[part.row] >= 0)
    return LinearMap.of(
        np.concatenate([part.row, place[again.row]]),
        np.concatenate([part.column, again.column]),
        np.concatenate([part.coefficient, -again.coefficient]),
        part.height + twins.size,
    )


def apart(affine: AffineMap, scores: LinearMap) -> float:
    """How far one record can move two of the scores, or one of them and 0, apart.

    The two moves u >= 0 >= v satisfy ``u - v <= 2 linf``, ``<= l1`` and ``<= sqrt(2) l2``. And entry d_j of a record's
    change moves score i by ``a_ij d_j``, so ``u - v <= sum_j (max_i a_ij - min_i a_ij) |d_j|`` (0 counted in both), one
    more linear function whose change the footprint knows; it is exact when a record owns one entry.
    """
    if not scores.nnz:
        return 0.0
    high, low = np.zeros(affine.theta_size), np.zeros(affine.theta_size)
    np.maximum.at(high, scores.column, scores.coefficient)
    np.minimum.at(low, scores.column, scores.coefficient)
    columns = np.flatnonzero((high > low) & affine.private_columns)
    spread = LinearMap.of(np.zeros(columns.size), columns, (high - low)[columns], 1)
    most, moved = 0.0, sensitivity_of(affine, scores)
    for group in record_blocks(affine):
        each, by_entries = moved[group.records], float(entries_under(group, spread, affine)[0])
        most = max(most, min(2 * each.linf, each.l1, math.sqrt(2) * each.l2, by_entries))
    return most


def listed_rows(model: Program) -> tuple[Integers, Integers]:
    """Private rows of the standard form, and the equalities among them (numbers in that list)."""
    index = np.flatnonzero(model.form.private_rows)
    return index, np.flatnonzero(model.affine.equalities()[index])


class Game(NearlyFeasible):
    """What the games on right-hand sides and on coefficients share: ``rows`` and ``form`` of a model, and the plan."""

    search_steps = 5
    words: ClassVar[str]  # what a round does with the row it names

    @staticmethod
    def rows(model: Program) -> Any:
        """Public facts on the private rows."""
        raise NotImplementedError

    def entry_bounds(self, model: Program) -> tuple[Floats, Floats]:
        """(n,), (n,): bounds, zero included, of the entries of a private row."""
        raise NotImplementedError

    def width(self, form: SimplexForm, rows: Any) -> float:
        """W, see ``Shape``."""
        raise NotImplementedError

    def range_of(self, rows: Any, polytope: Polyhedron) -> float:
        """R of the selections over the public set."""
        raise NotImplementedError

    def plan(self, rows: Any, shape: Shape, task: Task) -> tuple[Steps, float]:
        """The plan of least error, and its error."""
        raise NotImplementedError

    def details(self, rows: Any, shape: Shape, plan: Steps, task: Task) -> dict[str, Any]:
        """More public numbers for the forecast."""
        return {}

    def shape(self, model: Program, polytope: Polyhedron) -> Shape | Verdict:
        """Of the public set for these rows, or why there is none."""
        rows = self.rows(model)
        bounds = model.cached(("bounds of entries", self.rows.__qualname__), partial(self.entry_bounds, model))

        def build() -> tuple[Any, Shape | Verdict]:
            found = simplex_of(model, polytope, *bounds)
            return rows, found if isinstance(found, Verdict) else Shape(*found, self.width(found[0], rows))

        return polytope.cached(("shape", id(rows)), build)[1]  # with the rows, so that nothing else takes their id

    def formed(self, model: Program) -> Verdict:
        shape = self.shape(model, public_polyhedron(model))
        return YES if isinstance(shape, Shape) else shape

    def least(self, task: Task) -> float:
        rows = self.rows(task.model)
        return selections_alone(task, rows.candidates, self.range_of(rows, task.polytope))

    def promise(self, task: Task) -> Promise:
        rows, shape = self.rows(task.model), self.shape(task.model, task.polytope)
        assert isinstance(shape, Shape)  # eligible() came first
        (plan, error), reach, count = self.plan(rows, shape, task), self.range_of(rows, task.polytope), rows.index.size
        return Promise(
            error=error,
            gain=1.0,
            slack_rows=0,
            rows=int(count),
            width=shape.width,
            work=f"{plan.count} products with the {count} private rows{self.words}",
            noise={
                "steps": plan.count, "range": reach, "selection scale": reach / plan.epsilon,
                "epsilon of a selection": plan.epsilon, "rate": plan.rate, "columns": shape.form.columns,
                "L": shape.form.total,
                **self.details(rows, shape, plan, task),
            },
            plan=plan,
        )  # fmt: skip

    def excess(self, task: Task, promise: Promise, x: Floats, theta: PrivateNumbers) -> float:
        now: PrivateRowsNow = self.rows(task.model).now(theta)
        return now.worst(x)


# Scores are clamped at this many ranges: the value, the difference and their scaling then round by less than
# 2^-12 of the range, on both neighbours and at both ends, which ROUNDING covers.
_CLAMP = 2.0**38


@dataclass(frozen=True)
class ScalarRows:
    """Public facts on the private rows when only right-hand sides are private. Equalities stand twice in the scores.

    ``index`` (k,) rows of the standard form; ``twins`` : the equalities among them; ``matrix`` (k x n) and ``fixed``
    (k,) : public; ``h`` : (k,) private parts of the right-hand sides as functions of theta; ``reach`` : R, how far one
    record moves the scores apart, no row (0) included; ``sensitivity`` : how far it moves one of them.
    """

    index: Integers
    twins: Integers
    matrix: sp.csr_array
    fixed: Floats
    h: LinearMap
    reach: float
    sensitivity: float

    @property
    def candidates(self) -> int:
        return int(self.index.size + self.twins.size + 1)

    def now(self, theta: PrivateNumbers) -> PrivateRowsNow:
        """The rows at theta; private."""
        limit = _CLAMP * self.reach if self.reach > 0 else math.inf
        assert isinstance(theta, np.ndarray)
        h = PrivateArray(np.clip(exact_rows(self.h, theta), -limit, limit))
        return PrivateRowsNow((self.matrix,), self.fixed, h, self.twins, limit)

    def row(self, i: int) -> tuple[Integers, Floats]:
        part = slice(self.matrix.indptr[i], self.matrix.indptr[i + 1])
        return self.matrix.indices[part], self.matrix.data[part]


@dataclass(frozen=True)
class ScalarMultiplicativeWeights(Game):
    """A nearly feasible point when right-hand sides are private: weights over the columns, rows named privately.

    Source
        HRRU14, Algorithms 3 and 4 and Theorems 20 and 22; Plotkin, Shmoys and Tardos 1995.
    Privacy
        Private values are read by T selections and nothing else: losses are public rows. The score of row i at the
        released point x is ``a_i'x - b_i``. One record moves b by at most linf, l1, l2 in these norms (exact, from the
        footprint of the listed rows, equalities with both signs), and "no row" by 0, so scores move apart by
        R, at most ``min(2 linf, l1, sqrt(2) l2)`` (``apart``). Every selection is an exponential mechanism of
        scale R / epsilon_t, costing ``epsilon_t^2 / 8`` in zCDP, or epsilon_t in a pure budget; the costs add up to the
        budget. Scores are clamped and R is enlarged for rounding.
    Utility
        With probability 1 - beta, ``error = W sqrt(ln d / (2 T)) + (R / epsilon_t) (ln k + q / T)``: d columns of z, k
        candidates, q the (1 - beta)-quantile of Gamma(T); T minimises it (proof: above). Public constraints hold by
        projection in relative entropy.
    Cost
        One product with the public rows, one selection and one sparse row per step.
    """

    serves: ClassVar[Serves] = Serves(Program, ("scalar low",))
    name = "multiplicative-weights"
    source = "HRRU14, Algorithm 4, with exact sensitivities and zCDP accounting"
    words = ""

    def suits(self, model: Program, options: Options) -> Verdict:
        if model.form.matrix.nnz or not model.form.scalar.nnz:
            return Verdict(False, "serves private right-hand sides with public coefficients")
        high = refuse_high(model)
        if high is not None:
            return high
        return YES

    @staticmethod
    def rows(model: Program) -> ScalarRows:
        return scalar_rows(model)

    def least(self, task: Task) -> float:
        """With what classification tells of R: scores are moved apart at least as far as one of them, from 0."""
        form, cells = task.model.form, task.model.classification.cells
        count = int(form.private_rows.sum()) + int((form.private_rows & task.model.affine.equalities()).sum()) + 1
        return selections_alone(task, count, max(c.sensitivity["linf"] for c in cells if c.part == "scalar"))

    def entry_bounds(self, model: Program) -> tuple[Floats, Floats]:
        matrix = scalar_rows(model).matrix
        low, high = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1])
        np.minimum.at(low, matrix.indices, matrix.data)
        np.maximum.at(high, matrix.indices, matrix.data)
        return low, high

    def width(self, form: SimplexForm, rows: ScalarRows) -> float:
        return form.widest_rows(rows.matrix)

    def details(self, rows: ScalarRows, shape: Shape, plan: Steps, task: Task) -> dict[str, Any]:
        return {"width of the losses": shape.width}

    def range_of(self, rows: ScalarRows, polytope: Polyhedron) -> float:
        return rows.reach

    def plan(self, rows: ScalarRows, shape: Shape, task: Task) -> tuple[Steps, float]:
        form = shape.form
        grid = step_grid(rows.matrix.nnz + 10 * (rows.candidates + form.columns) + shape.work)
        regret, rate = plain_regret(shape.width, form.columns, grid)
        each = task.spend.epsilon / grid if task.spend.rho is None else np.sqrt(8 * task.spend.rho / grid)
        error = regret + rows.reach / each * shortfall(rows.candidates, grid, task.beta)
        best = int(np.argmin(error))
        return Steps(form, int(grid[best]), float(rate[best]), float(each[best])), float(error[best])

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers, source: NoiseSource, progress: Progress
    ) -> Point:
        rows, plan = scalar_rows(task.model), promise.plan
        # Scores that no record can move are the same for all data: any scale will do.
        scale = self.range_of(rows, task.polytope) / plan.epsilon or 1e-9
        x = play(plan, task.polytope, rows.now(theta), rows.row, lambda x: scale, task.tilt, source, progress)
        return finish(task.polytope, x, float(abs(rows.matrix).max()) if rows.matrix.nnz else 0.0)

    def excess_sensitivity(self, task: Task) -> float:
        return scalar_rows(task.model).sensitivity


@cached
def scalar_rows(model: Program) -> ScalarRows:
    """The private rows of a model with public coefficients; computed once per problem."""
    form, affine = model.form, model.affine
    index, twins = listed_rows(model)
    place = np.full(affine.rows, -1, dtype=np.int64)
    place[index] = np.arange(index.size)
    part = form.scalar
    h = LinearMap.of(place[part.row], part.column, part.coefficient, index.size)
    reach = apart(affine, both_signs(h, twins)) * (1 + ROUNDING)
    single = max((sensitivity.linf for sensitivity in sensitivity_of(affine, h).values()), default=0.0) * (1 + ROUNDING)
    return ScalarRows(index, twins, sp.csr_array(form.A0[index]), form.b0[index], h, reach, single)


MULTIPLICATIVE_WEIGHTS = ScalarMultiplicativeWeights()
