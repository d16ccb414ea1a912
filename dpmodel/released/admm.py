"""Algorithms 1 to 4 of LWK15 over one loop: likelihoods under linear constraints by ADMM.

The mechanism, the splits, the loop, and what each algorithm prepares for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.contract import YES, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.forecast import Forecast
from dpmodel.marks.layout import sum_by
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.privacy import NoiseSource
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.general_solver import diagnose
from dpmodel.released.model import Postprocessing, Solver
from dpmodel.released.projection import MarginProjector
from dpmodel.released.structure import margins_of, table_shape
from dpmodel.released.tree_of import form_of_nodes
from dpmodel.released.trees import TreeProblem, TreeProjector, node_ranges
from dpmodel.released.x_updates import InconsistentEqualities, Map, Repair, nearest_point, repairer, x_update

Status = Literal["optimal", "optimal_inaccurate", "infeasible", "unbounded"]
Refactor = Callable[[Floats], Map]

NAT = 1e-3  # of log-likelihood per measurement: gaps of smaller objectives are taken relative to this
NEGLIGIBLE = 1e-9  # of the size of the data: residuals below it count as nothing
NEAR = 20.0  # noise scales: further than an optimum is from its data


@dataclass(frozen=True)
class Admm(Solver):
    """Maximum likelihood under any linear constraints by ADMM.

    The x-update stands on what the problem is:

    * a tree, Algorithm 3: two passes over the levels project onto consistent trees (``TreeProjector``): any branching,
      nodes measured once, several times or not at all, bounds and known values;
    * single cells under complete margins of a table whose axes are public, Algorithm 2: the projection onto them is an
      orthogonal transform (``MarginProjector``), O(cells) whatever their number;
    * else Algorithm 1: one factorisation of A'PA and the equalities, which may be redundant. Without constraints but
      bounds this is Algorithm 4, the matrix mechanism.

    ``tolerance`` : relative duality gap at which it stops; ``steps`` : their most.

    Source
        LWK15, Algorithms 1 to 4 and sections 4.1 to 5.3; Boyd et al., "Distributed optimization and statistical
        learning via ADMM", 2011, sections 3.3 and 3.4 (stopping, penalty, over-relaxation); Hay et al., PVLDB 2010 (the
        projection onto trees). Where this departs from the paper: equalities are kept exactly by the x-update, so (8d)
        and eta are not needed; a variable's measurement and bounds are one split (``Splits``); penalties are per entry,
        1/scale^2, so that units do not matter; (25) is corrected; steps are ended by a duality gap, and finished by
        solving for the active set (``polish``) and moving to the nearest feasible point (``nearest_point``).
    Privacy
        Reads published numbers only: post-processing, costs nothing. Margins must be public or measured.
    Utility
        "optimal": bounds hold exactly, equalities to 1e-8 of the largest entry (on trees with lower bounds on leaves
        only, exactly), and the objective is within ``tolerance`` of the least, relative to the sum of its terms' sizes,
        by a dual bound that holds within 20 noise scales of the point and its data (``Splits.dual_bound``).
        "optimal_inaccurate": the steps ran out before. Infeasible and unbounded problems are recognised with HiGHS when
        the multipliers grow or the steps run out. Of several optima under absolute errors of sums (strategies) it takes
        one near the least-squares point, from which it starts (docs/measurements/post-processing.md, matrix mechanism).
    Cost
        One factorisation (and one per polish, a few in all), 20 to 1,000 steps of one solve with it each; poorly
        conditioned strategies take thousands. Tables: 20 to 100 projections where most cells are positive, up to 1,000
        on small sparse tables. Trees: 100 to 400 passes over the levels.
    Errors
        SpecificationError for settings out of range.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing)
    tolerance: float = 1e-5
    steps: int = 20_000
    name: str = "admm"
    source: str = "LWK15, Algorithms 1 to 4; Boyd et al. 2011"

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1 or self.steps < 1:
            raise SpecificationError(
                f"tolerance {self.tolerance!r}, steps {self.steps!r}", why="a relative error, and a positive number"
            )

    def place(self, model: Postprocessing) -> int:
        return 6

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        return relaxed_linear(model)

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        alpha = 10 * self.tolerance
        return self.free_of_charge(
            model,
            f"the objective within {alpha:.0e} of the optimum, relatively; constraints to 1e-8",
            alpha=alpha,
            work="one factorisation or closed-form projection, and some hundred steps",
            caveats=("the number of steps depends on the data",),
        )

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        form = model.form
        assert form is not None
        began = time.perf_counter()

        def said(status: str, x: Floats | None = None, note: str = "") -> Outcome:
            value, extra = (None, 0.0) if x is None else (form.objective(x), form.violation(x))
            notes = (note,) if note else ()
            return Outcome(status, x, None, value, time.perf_counter() - began, extra_violation=extra, notes=notes)

        if (form.lower > form.upper).any():
            return said("infeasible", note="a lower bound is above its upper bound")
        try:
            ready = self.prepared(model)
        except (InconsistentEqualities, InfeasibleError):
            return said("infeasible", note="no point satisfies the equalities")
        limits = {"tolerance": self.tolerance, "steps": self.steps}
        try:
            start = None if ready.select is not None else self._least_squares(form, limits)
            found = ready.solve(start=start, progress=lambda done: progress("ADMM", done), **limits)
        except InconsistentEqualities:  # they were consistent before penalties changed
            raise SolverFailure(
                "admm lost the equalities to rounding",
                why="weights or coefficients differ by too many orders of magnitude",
                remedy="mechanism='general-solver', or units in which the numbers are of one size",
            ) from None
        if found.status in ("infeasible", "unbounded"):
            return said(found.status)
        x = np.clip(found.x, form.lower, form.upper)
        return said(found.status, x, f"{found.steps} steps, relative duality gap {found.gap:.1e}")

    def prepared(self, model: Postprocessing) -> Prepared:
        """Factors and last step. Errors: InconsistentEqualities and InfeasibleError, where no point is feasible."""
        form, shape = model.form, table_shape(model)
        assert form is not None
        problem = model.tree_problem()
        if problem is not None:
            return prepare_tree(problem)
        return prepare_tables(form, shape) if shape is not None and form.entrywise else prepare(form)

    def _least_squares(self, form: LikelihoodForm, limits: Any) -> Floats | None:
        """Where to begin under absolute errors of sums of variables: their optimum is seldom unique, and steps that
        begin at the least-squares point end at an optimum near it. None where each variable is measured by itself."""
        if form.entrywise or form.square.any():
            return None
        squares = replace(form, absolute=np.zeros_like(form.absolute), square=np.square(form.absolute) / 4)
        found = prepare(squares).solve(**limits)
        return found.x if found.status.startswith("optimal") else None


ADMM = Admm()


def relaxed_linear(model: Postprocessing) -> Verdict:
    """Whether there is a form without integer variables."""
    if model.form is None:
        return Verdict(False, "the model has terms or constraints outside measurements and linear constraints")
    if model.form.integer.any():
        return Verdict(False, "variables must be whole: round a solution of the relaxed model, or use general-solver")
    return YES


# ------------------------------------------------------------------ splits
@dataclass(frozen=True, eq=False)
class Splits:
    """Minimise ``sum_i h_i((A x)_i)`` with A = [I; B], B : (m - n, n), over x in R^n and equalities kept elsewhere;
    ``h_i(w) = absolute_i |w - centre_i| + square_i (w - centre_i)^2 + linear_i w`` on [lower_i, upper_i].

    This is (8) of LWK15 with its splits y = x - x~ and z = x taken together where a variable is measured by itself:
    a function of one variable on an interval has as proximal point the unconstrained one clipped to the interval, so
    (9) and (10) are one update and two splits become one. Everything else (rows of a strategy, a second measurement
    of the same variable, inequalities G x <= g) is a row of B.

    ``scale`` : (m,) noise scales of measured splits, about those of x_i of others. ``weight`` : (m,) p > 0, fixed: the
    penalty of split i is rho p_i, so that x-updates do not depend on rho. p is 1/scale^2, so that units do not matter,
    drawn together towards its geometric mean (power 1/3).
    """

    rows: sp.csr_array
    centre: Floats
    absolute: Floats
    square: Floats
    linear: Floats
    lower: Floats
    upper: Floats
    scale: Floats
    weight: Floats

    @property
    def size(self) -> int:
        """Number of variables n."""
        return int(self.rows.shape[1])

    @cached_property
    def transposed(self) -> sp.csr_array:
        return sp.csr_array(self.rows.T)

    def apply(self, x: Floats) -> Floats:
        """A x, (m,)."""
        return np.concatenate([x, self.rows @ x]) if self.rows.shape[0] else x

    def adjoint(self, y: Floats) -> Floats:
        """A'y, (n,)."""
        n = self.size
        return y[:n] + self.transposed @ y[n:] if self.rows.shape[0] else y

    def loss(self, w: Floats) -> float:
        """sum of h_i(w_i), bounds aside."""
        r = w - self.centre
        return float(self.absolute @ np.abs(r) + self.square @ (r * r) + self.linear @ w)

    def proximal(self, rho: float) -> Callable[[Floats], Floats]:
        """t -> argmin h(w) + rho/2 sum p_i (w_i - t_i)^2: the operator Theta of (14), which contains (13) and the
        corrected (25), rho/(1 + rho) (x - x~ + mu) (LWK15 prints 1/(1 + rho), right for rho = 1 only), clipped to the
        bounds."""
        penalty = rho * self.weight
        threshold, shrink = self.absolute / penalty, penalty / (penalty + 2 * self.square)
        shift = self.centre + self.linear / penalty

        def operator(t: Floats) -> Floats:
            s = t - shift
            s = (s - np.clip(s, -threshold, threshold)) * shrink
            s += self.centre
            return np.clip(s, self.lower, self.upper, out=s)

        return operator

    def total(self, w: Floats) -> float:
        """Sum of the sizes of the objective's terms: what errors are relative to."""
        r = w - self.centre
        return float(self.absolute @ np.abs(r) + self.square @ (r * r) + np.abs(self.linear @ w))

    @cached_property
    def precision(self) -> Floats:
        """(m,) 1/scale of measured splits, 0 of others."""
        found: Floats = np.sqrt(self.absolute**2 + 2 * self.square)
        return found

    def separates(self, d: Floats, image: Floats) -> bool:
        """Whether d, with A'd in the range of E', looks like a proof of infeasibility: ``d'A x`` is the same for all x
        that keep the equalities, and larger than any w within the bounds allows."""
        allowed = np.where(np.isfinite(self.upper), d, np.minimum(d, 0))
        allowed = np.where(np.isfinite(self.lower), allowed, np.maximum(allowed, 0))
        top = np.where(allowed > 0, self.upper, np.where(allowed < 0, self.lower, 0.0))
        margin = float(d @ image - allowed @ top)
        return margin > 0 and float(np.abs(d - allowed) @ (np.abs(image) + NEAR * self.scale)) < 0.1 * margin

    def dual_bound(self, y: Floats, image: Floats) -> float:
        """A lower bound on the loss of every feasible x' with ``|A x' - A x| <= NEAR scale + |A x - centre|`` entry by
        entry, from ``image`` = A x with E x = e and any y with A'y in the range of E'.

        ``y'A x' = y'A x``, as x' - x is in the kernel of E, so ``h(A x') >= y'A x - sup_w (y'w - h(w))``, the supremum
        over the w in that box and within the bounds. Over all w it would be infinite as soon as one derivative in y
        exceeds those of h by a rounding error. If a feasible x' outside of the box has a loss lower than f(x) by d,
        then by convexity the point where the way from x to x' leaves the box is lower than f(x) by d times the part of
        the way that lies in the box: the bound speaks of such points too, only more weakly. NEAR noise scales beyond
        the measured value are further than an optimum is from its data.
        """
        distance = NEAR * self.scale + np.abs(image - self.centre)
        lower = np.clip(image - distance, self.lower, self.upper)
        upper = np.clip(image + distance, self.lower, self.upper)
        derivative = y - self.linear
        excess = derivative - np.clip(derivative, -self.absolute, self.absolute)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(excess == 0, 0.0, excess / (2 * self.square))
        w = np.clip(self.centre + step, lower, upper)
        r = w - self.centre
        supremum = derivative @ w - self.absolute @ np.abs(r) - self.square @ (r * r)
        return float(y @ image - supremum)


def weights(absolute: Floats, square: Floats) -> Floats:
    """Penalty weights 1/scale^2 of measured entries, 0 of others."""
    return absolute**2 + 2 * square


def splits_of(form: LikelihoodForm) -> Splits:
    """The splits of a form. A variable's own measurement (first row of M with that variable only) joins its bounds."""
    M, n = form.matrix, form.size
    counts = np.diff(M.indptr)
    used = (form.absolute > 0) | (form.square > 0)
    single = np.flatnonzero((counts == 1) & used)
    at = M.indptr[single]
    factor = M.data[at]
    single, at, factor = single[factor != 0], at[factor != 0], factor[factor != 0]
    _, first = np.unique(M.indices[at], return_index=True)
    own, column, factor = single[first], M.indices[at[first]], factor[first]
    rest = np.setdiff1d(np.flatnonzero(used), own)
    centre, absolute, square = np.zeros(n), np.zeros(n), np.zeros(n)
    centre[column] = form.value[own] / factor
    absolute[column] = form.absolute[own] * np.abs(factor)
    square[column] = form.square[own] * factor**2
    B = sp.csr_array(sp.vstack([M[rest], form.inequality], format="csr"))
    k, q = rest.size, form.inequality_value.size
    lower, upper, caps = form.lower, form.upper, form.inequality_value
    squares = sp.csr_array(B.power(2))
    alone, row_weight = weights(absolute, square), weights(form.absolute[rest], form.square[rest])
    informed = alone + np.asarray(squares[:k].T @ row_weight)
    known = informed[informed > 0]
    informed = np.where(informed > 0, informed, float(np.median(known)) if known.size else 1.0)
    # A bounded entry without a measurement of its own gets that of four measured ones; others a proximal term only.
    bounded = np.isfinite(lower) | np.isfinite(upper) | (form.linear != 0)
    part = np.where(alone > 0, 1.0, np.where(bounded, 4.0, 1e-4))
    norms = np.asarray(squares[k:].sum(axis=1)).ravel()
    cap_weight = (np.median(informed) if n else 1.0) / np.where(norms > 0, norms, 1.0)
    precise = np.concatenate([np.where(alone > 0, alone, informed), row_weight, cap_weight])
    middle = float(np.exp(np.mean(np.log(precise)))) if precise.size else 1.0
    penalty = np.cbrt(precise * middle**2)
    none = np.zeros(q)
    return Splits(
        B,
        np.concatenate([centre, form.value[rest], caps]),
        np.concatenate([absolute, form.absolute[rest], none]),
        np.concatenate([square, form.square[rest], none]),
        np.concatenate([form.linear, np.zeros(k + q)]),
        np.concatenate([lower, np.full(k + q, -np.inf)]),
        np.concatenate([upper, np.full(k, np.inf), caps]),
        1 / np.sqrt(precise),
        np.concatenate([part, np.ones(k + q)]) * penalty,
    )


# ------------------------------------------------------------------ the loop
@dataclass(frozen=True, eq=False)
class Result:
    """``x`` : (n,) the best feasible point found; ``bound`` : the dual bound; ``gap`` : the difference,
    relative to the objective's terms."""

    x: Floats
    status: Status
    steps: int
    bound: float
    gap: float


@dataclass(frozen=True, eq=False)
class Prepared:
    """What the loop needs of a form. ``update`` : q -> argmin over E x = e of 1/2 x'K x - q'x with K = A'diag(p)A, the
    least-squares problem (15) of LWK15. ``repair`` : the last step. ``refactor`` : the x-update for other penalty
    weights, for ``polish``; None for none. ``select`` : the place of each variable of the form among those solved for
    (nodes of a tree), None where the same."""

    form: LikelihoodForm
    splits: Splits
    update: Map
    repair: Repair
    refactor: Refactor | None = None
    select: Integers | None = None

    def solve(self, **options: Any) -> Result:
        """``minimise``; ``Result.x`` in the order of the form."""
        found = minimise(self, **options)
        return found if self.select is None else replace(found, x=found.x[self.select])


def minimise(
    ready: Prepared,
    *,
    tolerance: float = 1e-5,
    steps: int = 20_000,
    start: Floats | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> Result:
    """Scaled ADMM, (9)-(11) of LWK15 in the order x, w, u, over-relaxed (Boyd et al. 2011, 3.4.3):

        x   <- argmin over E x = e of sum p_i ((A x)_i - w_i + u_i)^2          (15), (24)
        t   <- relaxation A x + (1 - relaxation) w + u
        w   <- argmin h(w) + rho/2 sum p_i (w_i - t_i)^2                       (14) clipped: y- and z-updates
        u   <- t - w                                                           mu, nu; eta of Algorithm 1 is not needed

    ``y = rho p u`` is a subgradient of h at w, and ``y~ = rho p (A x - w_old + u_old)`` has A'y~ in the range of E';
    they agree in the limit. Residuals (22) are ||A x - w|| in the norm of p, relative to ||A x - centre||, and ||y~ -
    y|| in that of 1/p, relative to ||y||; rho is changed when they are out of balance, more and more rarely. When both
    are small, ``repair`` makes a feasible point of x and y~ gives a bound (``Splits.dual_bound``); their relative
    difference ends the loop, not the residuals.

    HiGHS decides (``diagnose``) once when the multipliers look like a proof of infeasibility, and when the steps run
    out. ``start`` : x to begin with, (n,); None: the measured values, clipped.
    """
    splits, relaxation, rho = ready.splits, 1.4, 4.0  # residuals move the penalty
    p, n = splits.weight, splits.size
    root, measured = np.sqrt(p), splits.precision
    clipped = np.clip(splits.centre[:n], splits.lower[:n], splits.upper[:n])
    t = splits.apply(clipped if start is None else start)
    theta = splits.proximal(rho)
    w = theta(t)
    u = t - w
    size = max(
        NEGLIGIBLE * float(np.linalg.norm(measured * splits.centre)), NAT * math.sqrt(np.count_nonzero(measured))
    )
    judge = _Judge(splits, ready.repair, tolerance)
    status: Status = "optimal_inaccurate"
    next_look = last_change = changes = 0
    next_polish = 100
    before: Floats | None = None
    diagnosed = False
    for step in range(1, steps + 1):
        x = ready.update(splits.adjoint(p * (w - u)))
        image = splits.apply(x)
        look = step % 5 == 0 or step == steps
        if look:
            y = (rho * p) * (image - w + u)
        t = relaxation * image + (1 - relaxation) * w + u
        w = theta(t)
        u = t - w
        if not look:
            continue
        primal = float(np.linalg.norm(root * (image - w)))
        dual = float(np.linalg.norm(y / root - rho * (root * u)))
        primal_size = max(float(np.linalg.norm(measured * (image - splits.centre))), size)
        dual_size = rho * float(np.linalg.norm(root * u)) + NEGLIGIBLE * math.sqrt(p.size)
        near = 10 * tolerance
        close = primal <= near * primal_size and dual <= near * dual_size
        if close and step >= next_look:
            next_look = step + max(5, step // 20)
            judge.look(x, image, y)
        if ready.refactor is not None and judge.gap > tolerance and step >= (next_polish if close else 2 * next_polish):
            next_polish = step + max(100, step // 3)
            at, at_y = polish(splits, ready.refactor, w, (rho * p) * u, x, rho)
            judge.look(at, splits.apply(at), at_y)
        if judge.gap <= tolerance:
            status = "optimal"
            break
        doubtful = step % 100 == 0 and before is not None and not diagnosed and not close
        if doubtful and before is not None and splits.separates(y - before, image):
            diagnosed = True
            verdict = diagnose(ready.form)
            if verdict is not None:
                status = verdict
                break
        if step % 100 == 95:
            before = y
        if step >= last_change + max(20, last_change // 2) and changes < 30:
            ratio = 2 * (primal / primal_size) / max(dual / dual_size, 1e-300)
            if not 1 / 4 <= ratio <= 4:
                factor = min(max(math.sqrt(ratio), 0.1), 10.0)
                rho, u = rho * factor, u / factor
                theta = splits.proximal(rho)
                changes, last_change = changes + 1, step
        if step % 500 == 0:
            progress(step / steps)
    if status == "optimal_inaccurate" and not diagnosed:
        status = diagnose(ready.form) or status
    if judge.best is None and status == "optimal_inaccurate":
        judge.look(x, image, y, last=True)
    return Result(x if judge.best is None else judge.best, status, step, judge.bound, judge.gap)


class _Judge:
    """The best feasible point so far, and the gap between it and the bound of the last look."""

    def __init__(self, splits: Splits, repair: Repair, tolerance: float) -> None:
        self.splits, self.repair, self.tolerance = splits, repair, tolerance
        self.nats = NAT * (int(np.count_nonzero(splits.precision)) or 1)
        self.best: Floats | None = None
        self.loss, self.bound, self.gap = math.inf, -math.inf, math.inf

    def look(self, x: Floats, image: Floats, y: Floats, *, last: bool = False) -> None:
        """Repair x if the gap is small enough for that to matter, or at the ``last`` chance."""
        splits = self.splits
        bound = splits.dual_bound(y, image)
        scale = max(splits.total(image), self.nats)
        if not last and splits.loss(image) - bound > 2 * self.tolerance * scale:
            return
        point = self.repair(x)
        value = math.inf if point is None else splits.loss(splits.apply(point))
        if value < self.loss:
            self.best, self.loss = point, value
        self.bound, self.gap = bound, (self.loss - bound) / scale


def polish(splits: Splits, refactor: Refactor, w: Floats, y: Floats, x: Floats, rho: float) -> tuple[Floats, Floats]:
    """(x, y): the optimum of the problem in which w_i stays where it is at the kink of h_i or at a bound, and every
    other h_i is continued from the side on which w_i is, as a line or parabola.

    If these are the pieces that meet at an optimum, that is it. Solved by the proximal method of multipliers from the
    given x, (n,), and multipliers y, (m,): each round is one x-update with penalties that stay the same, and its error
    shrinks by about 1e-7 per round where the held splits determine x and y. A'y is in the range of E'.
    """
    kink = (splits.absolute > 0) & (w == splits.centre)
    held = kink | (w == splits.lower) | (w == splits.upper)
    curve = 2 * splits.square
    flat = ~held & (curve == 0)
    p = np.where(held, 1e3 * rho * splits.weight, np.where(flat, 1e-4 * rho * splits.weight, curve))
    derivative = np.sign(w - splits.centre) * splits.absolute + splits.linear
    multiplier = np.where(held, y, derivative)
    centre = np.where(held, w, splits.centre)
    update = refactor(p)
    for _ in range(6):
        centre = np.where(flat, splits.apply(x), centre)
        x = update(splits.adjoint(p * centre - multiplier))
        now = multiplier + p * (splits.apply(x) - centre)
        multiplier = np.where(held, now, derivative)
    # Rounding has left a little of A'y outside of the range of E', which the dual bound would multiply by x.
    zero = update(np.zeros(splits.size))
    for _ in range(2):
        now = now + p * splits.apply(update(-splits.adjoint(now)) - zero)
    return x, now


# ------------------------------------------------------------------ the x-updates
def prepare(form: LikelihoodForm) -> Prepared:
    """Algorithms 1 and 4: one factorisation of A'PA and the equalities.

    Errors: InconsistentEqualities.
    """
    splits = splits_of(form)

    def refactor(weight: Floats) -> Map:
        n, B = form.size, splits.rows
        K = B.T @ sp.diags_array(weight[n:]) @ B + sp.diags_array(weight[:n])
        return x_update(sp.csr_array(K), form.equality, form.equality_value)

    return Prepared(form, splits, refactor(splits.weight), repairer(form), refactor)


def prepare_tables(form: LikelihoodForm, shape: tuple[int, ...]) -> Prepared:
    """Algorithm 2: the x-update projects onto the margins, by a transform in O(n log n) where E is made of complete
    margins of a table of ``shape``; else as in ``prepare``.

    The transform needs the same penalty everywhere, so where weights differ their geometric mean is taken.
    Errors: InconsistentEqualities, InfeasibleError.
    """
    margins = margins_of(form.equality, form.equality_value, shape)
    splits, n = splits_of(form), form.size
    counts = np.ones(n) + sum_by(splits.rows.indices, splits.rows.data**2, n)
    if margins is None or not (counts == counts[0]).all():
        return prepare(form)
    penalty = float(np.exp(np.mean(np.log(splits.weight))))
    splits = replace(splits, weight=np.full(splits.weight.size, penalty))
    project = MarginProjector(margins).project
    diagonal: Floats = penalty * counts
    repair = nearest_point(project, np.ones(n), form.lower, form.upper)
    return Prepared(form, splits, lambda q: project(q / diagonal), repair)


def prepare_tree(problem: TreeProblem) -> Prepared:
    """Algorithm 3, over the nodes of the tree: the projection onto consistent trees is two passes over its levels.

    Errors: InfeasibleError, where bounds contradict each other.
    """
    tree, n = problem.tree, problem.tree.size
    node_ranges(tree, problem.lower, problem.upper)
    form = form_of_nodes(problem)
    splits = splits_of(form)
    fixed = np.where(problem.lower == problem.upper, problem.lower, np.nan)
    diagonal: Floats = splits.weight[:n] + sum_by(splits.rows.indices, splits.weight[n:], n)
    project = TreeProjector(tree, diagonal, fixed).project
    leaves = tree.is_leaf
    least = problem.lower[leaves]
    bounded = np.isfinite(problem.lower).any() or np.isfinite(problem.upper).any()
    simple = np.isfinite(least).all() and (problem.upper == np.inf).all()
    repair: Repair
    if not bounded or (simple and (problem.lower[~leaves] <= tree.sums(least)[~leaves]).all()):

        def repair(x: Floats) -> Floats | None:
            return tree.sums(np.maximum(x[leaves], least))
    else:
        repair = nearest_point(TreeProjector(tree, None, fixed).project, np.ones(n), problem.lower, problem.upper)
    return Prepared(form, splits, lambda q: project(q / diagonal), repair, select=problem.select)
