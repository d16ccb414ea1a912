"""Primal multiplicative weights against a private dual oracle: HRRU14, Algorithms 4 to 6, tightened.

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
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import gammainccinv

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.contract import YES, Options, Progress, Serves, Verdict, counted
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.simplex_form import MOST_ROWS, EntropicPolytope, SimplexForm, simplex_form
from dpmodel.privacy import NoiseSource
from dpmodel.programs.goals import Point, Promise, Task
from dpmodel.programs.model import PrivateNumbers, Program, refuse_high
from dpmodel.programs.nearly_feasible import NearlyFeasible
from dpmodel.programs.rows import private_rows, public_polyhedron
from dpmodel.programs.weights_rows import GameRows, PrivateRowsNow, game_rows

# Run time: at most so many steps, and fewer when a step is long (about half a minute of products).
MOST_STEPS, _MOST_WORK, _LEAST_STEPS = 5_000, 4e9, 200
# Beyond this many candidates a selection takes two stages.
_ONE_STAGE = 4096
# Shares of the budget for selections that are tried where rows are released too, which the rest pays for.
_SHARES = np.linspace(0.02, 0.98, 49)[:, None]
# Footprints of the scores take two milliseconds each: they are used in games of at most so many steps.
_EXACT_STEPS = 500
# One drawn number costs as much as reading so many.
_NOISE_WORK, _SELECTION_WORK = 2000, 80


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
    form, steps, k = plan.form, plan.count, rows.h.size
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
        chosen = select(rows.scores(x), scale(x), source)
        if chosen == k + rows.twins.size:
            continue
        index, sign = (chosen, 1.0) if chosen < k else (int(rows.twins[chosen - k]), -1.0)
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


class Game(NearlyFeasible):
    """What the game on right-hand sides and the game on coefficients share: all but whom they serve."""

    search_steps = 5
    words: ClassVar[str]  # what a round does with the row it names

    def shape(self, model: Program, polytope: Polyhedron) -> Shape | Verdict:
        """Of the public set for these rows, or why there is none."""

        def build() -> tuple[Any, Shape | Verdict]:
            found = simplex_of(model, polytope, *rows.entry_bounds)
            return rows, found if isinstance(found, Verdict) else Shape(*found, rows.width(found[0]))

        rows = game_rows(model)
        return polytope.cached(("shape", id(rows)), build)[1]  # with the rows, so that nothing else takes their id

    def formed(self, model: Program) -> Verdict:
        shape = self.shape(model, public_polyhedron(model))
        return YES if isinstance(shape, Shape) else shape

    def least(self, task: Task) -> float:
        rows = game_rows(task.model)
        return selections_alone(task, rows.candidates, self.range_of(rows, task.polytope))

    def promise(self, task: Task) -> Promise:
        rows, shape = game_rows(task.model), self.shape(task.model, task.polytope)
        assert isinstance(shape, Shape)  # eligible() came first
        (plan, error), moved, count = self.plan(rows, shape, task), self.range_of(rows, task.polytope), rows.index.size
        return Promise(
            error=error,
            gain=1.0,
            slack_rows=0,
            rows=int(count),
            width=shape.width,
            work=f"{plan.count} products with the {count} private rows{self.words}",
            noise={
                "steps": plan.count, "range": moved, "selection scale": moved / plan.epsilon,
                "epsilon of a selection": plan.epsilon, "rate": plan.rate, "columns": shape.form.columns,
                "L": shape.form.total,
                **self.details(rows, shape, plan, task),
            },
            plan=plan,
        )  # fmt: skip

    def details(self, rows: GameRows, shape: Shape, plan: Steps, task: Task) -> dict[str, Any]:
        """More public numbers for the forecast."""
        raise NotImplementedError

    def pure(self, task: Task) -> bool:
        """Whether named rows get Laplace noise."""
        return task.spend.rho is None

    def range_of(self, rows: GameRows, polytope: Polyhedron) -> float:
        """R of the selections over the public set."""
        return rows.range_over(polytope)

    def range_at(self, rows: GameRows, task: Task, plan: Steps, x: Floats) -> float:
        """R at a released point, which may lie outside the public set by a solver's tolerance; a relative lower bound
        keeps scores divided by it finite."""
        return max(rows.range_at(x, exact=plan.count <= _EXACT_STEPS), 1e-9 * rows.range_over(task.polytope))

    def plan(self, rows: GameRows, shape: Shape, task: Task) -> tuple[Steps, float]:
        """The plan of least error, and its error: steps, and the share of the selections, on a grid."""
        spend, form, width, beta = task.spend, shape.form, shape.width, task.beta
        work = rows.sizes[0] + 10 * (rows.candidates + form.columns) + shape.work
        if not rows.noised:
            grid, shares = step_grid(work), np.ones((1, 1))
            regret, rate = plain_regret(width, form.columns, grid)
            scale = np.zeros_like(regret)
        else:
            drawing = _SELECTION_WORK * min(rows.candidates, 2 * math.isqrt(rows.candidates) + 1)
            grid, shares = step_grid(work + drawing + _NOISE_WORK * rows.row_entries), _SHARES
            beta = task.beta / 2
            if spend.rho is None:
                scale = rows.row_l1 * grid / (spend.epsilon * (1 - shares))
                variance = width**2 / 8 + 1.151 * (form.diameter * scale) ** 2
                most = 1 / np.maximum(2 * scale * form.step_limit, 1e-300)
            else:
                scale = rows.row_l2 * np.sqrt(grid / (2 * spend.rho * (1 - shares)))
                variance = width**2 / 8 + (form.diameter * scale) ** 2 / 2
                most = np.full_like(scale, np.inf)
            regret, rate = noisy_regret(variance, form.columns, grid, beta, most)
        each = spend.epsilon * shares / grid if spend.rho is None else np.sqrt(8 * spend.rho * shares / grid)
        error = regret + rows.range_over(task.polytope) / each * shortfall(rows.candidates, grid, beta)
        rate, scale = (np.broadcast_to(table, error.shape) for table in (rate, scale))
        found = np.unravel_index(int(np.argmin(error)), error.shape)
        plan = Steps(form, int(grid[found[1]]), float(rate[found]), float(each[found]), float(scale[found]))
        return plan, float(error[found])

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers, source: NoiseSource, progress: Progress
    ) -> Point:
        rows, plan = game_rows(task.model), promise.plan
        now, draw = rows.now(theta), None
        if rows.noised:
            draw = source.laplace if self.pure(task) else source.gaussian

        def scale(x: Floats) -> float:
            # Where no score can move any scale will do.
            return self.range_at(rows, task, plan, x) / plan.epsilon or 1e-9

        def row(i: int) -> tuple[Integers, Floats]:
            return noisy_row(rows, now, i, plan.noise, draw) if draw else row_of(rows.rest, i)

        x = play(plan, task.polytope, now, row, scale, task.tilt, source, progress)
        # Into the public set exactly.
        inside = task.polytope.nearest(x)
        moved = rows.largest_entry * float(np.abs(inside - x).sum())
        return Point(inside, extra_violation=moved if moved > 1e-9 * (1 + rows.largest_entry) else 0.0)

    def excess(self, task: Task, promise: Promise, x: Floats, theta: PrivateNumbers) -> float:
        """V(x): the largest violation."""
        return float(game_rows(task.model).now(theta).scores(x).max())

    def excess_sensitivity(self, task: Task) -> float:
        return game_rows(task.model).single_over(task.polytope)


def noisy_row(
    rows: GameRows, now: PrivateRowsNow, i: int, scale: float, draw: Callable[[PrivateArray, float], Floats]
) -> tuple[Integers, Floats]:
    """Columns and entries of a named row: noise on every private position, the public entries as they are."""
    (private, exact), (public, entries) = row_of(now.parts[0], i), row_of(rows.rest, i)
    # A scale of 0 means that no record moves any entry.
    noisy = draw(PrivateArray(exact), scale) if scale else exact
    return np.concatenate([private, public]), np.concatenate([noisy, entries])


def row_of(matrix: sp.csr_array, i: int) -> tuple[Integers, Floats]:
    """Columns and entries of a row."""
    part = slice(matrix.indptr[i], matrix.indptr[i + 1])
    return matrix.indices[part], matrix.data[part]


@dataclass(frozen=True)
class ScalarMultiplicativeWeights(Game):
    """A nearly feasible point when right-hand sides are private: weights over the columns, rows named privately.

    Source
        HRRU14, Algorithms 3 and 4 and Theorems 20 and 22; Plotkin, Shmoys and Tardos 1995.
    Privacy
        Private values are read by T selections and nothing else: losses are public rows. The score of row i at the
        released point x is ``a_i'x - b_i``. One record moves b by at most linf, l1, l2 in these norms (exact, from the
        footprint of the listed rows, equalities with both signs), and "no row" by 0, so scores move apart by
        R, at most ``min(2 linf, l1, sqrt(2) l2)`` (``score_range``). Every selection is an exponential mechanism of
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
        return refuse_high(model) or YES

    def least(self, task: Task) -> float:
        """With what classification tells of R: scores are moved apart at least as far as one of them, from 0."""
        form, cells = task.model.form, task.model.classification.cells
        count = int(form.private_rows.sum()) + int((form.private_rows & task.model.affine.equalities()).sum()) + 1
        return selections_alone(task, count, max(c.sensitivity["linf"] for c in cells if c.part == "scalar"))

    def details(self, rows: GameRows, shape: Shape, plan: Steps, task: Task) -> dict[str, Any]:
        return {"width of the losses": shape.width}


@dataclass(frozen=True)
class NoisyMultiplicativeWeights(Game):
    """A nearly feasible point when coefficients are private: rows are named privately and released with noise.

    Source
        HRRU14, Algorithms 5 (entrywise change) and 6 (change of a column or any 1-norm of rows), with unbiased
        Gaussian noise on rows, its mean regret, exact sensitivities and zCDP.
    Privacy
        At step t, given the released x_t, two releases read private values.
        (1) The selection. Row i's score is ``a_i'x_t - b_i``. One record moves scores apart by at most R(x_t): for few
        coefficients from the footprint of the scores at x_t (``score_range``); else ``min(row_l1 ||x||_inf, linf
        ||x||_1, row_l2 ||x||_2)``, twice if a record reaches several rows, plus the same for b. If rows may be absent a
        score can also jump between 0 and the residual's public bounds. Exponential mechanism of scale R(x_t) /
        epsilon_t.
        (2) The named row's private entries, whose change by one record has 2-norm at most ``D = min(l2, sqrt(row_l1
        linf))`` (and 1-norm ``row_l1``); if rows may be absent, at most the norm of a row. Gaussian noise of standard
        deviation sigma costs ``D^2 / (2 sigma^2)``; in a pure budget Laplace noise of scale row_l1 / epsilon'. Nothing
        is released when "no row" is named: that is known from (1).
        The costs of T steps add up to the budget; T, the split and the rate come from public facts. Rounding of sums
        enlarges all.
    Utility
        With probability 1 - beta,
        ``error = 2 sqrt(V ln(2d/beta) / T) + (R / epsilon_t) (ln k + q / T)`` with ``V = W^2 / 8 + D_x^2 sigma^2 / 2``
        (proved above; D_x the diameter of the simplex, q the (1 - beta/2)-quantile of Gamma(T)).
    Cost
        One product with the private rows, one selection and noise on one row per step.
    """

    serves: ClassVar[Serves] = Serves(Program, ("row low", "matrix low", "column low"))
    name = "noisy-multiplicative-weights"
    source = "HRRU14, Algorithms 5 and 6, with unbiased Gaussian rows and zCDP accounting"
    words = ", noise on one row each"

    def suits(self, model: Program, options: Options) -> Verdict:
        if not model.form.matrix.nnz:
            return Verdict(False, "serves private coefficients")
        high = refuse_high(model)
        if high is None and private_rows(model).relative:
            return Verdict(
                False, "the private rows have no public magnitude; give A and b bounds=[lo, hi], max_l1 or max_linf"
            )
        return high or YES

    def details(self, rows: GameRows, shape: Shape, plan: Steps, task: Task) -> dict[str, Any]:
        return {
            "row noise": {"distribution": "laplace" if self.pure(task) else "gaussian", "scale": plan.noise},
            "change of a row": {"l1": rows.row_l1, "l2": rows.row_l2, "linf": rows.linf},
        }


MULTIPLICATIVE_WEIGHTS = ScalarMultiplicativeWeights()
NOISY_MULTIPLICATIVE_WEIGHTS = NoisyMultiplicativeWeights()
