"""Ballots and other covering rows, one per record: every row's vote, split over the columns that could cover it, is
summed once or twice, and the program is solved on the noisy sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import ClassVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask, PrivateArray
from dpmodel.contract import YES, Options, Progress, Serves, Verdict
from dpmodel.errors import SpecificationError
from dpmodel.forecast import Forecast
from dpmodel.kernels.direct_measurement import ROUNDING
from dpmodel.memo import cached
from dpmodel.numerics.array_program import ArrayProgram
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.polyhedron import sides
from dpmodel.numerics.solvers import ask
from dpmodel.privacy import Cost, Laplace, NoiseSource
from dpmodel.programs.feasibility import has_integers
from dpmodel.programs.goals import Point, Promise, Task
from dpmodel.programs.model import PrivateNumbers, Program
from dpmodel.programs.nearly_feasible import LeavesRowsOut
from dpmodel.programs.rows import PrivateRows, RowPart, RowTable, plain_linear, private_rows
from dpmodel.text import number

# Two rounds where there are so many rows for every unit of the noise of one: there they lose less than a point on
# ballots that are drawn independently, and gain up to ten on others (tests/benchmarks/programs/ballots.py).
_TWO_ROUNDS = 250.0
# The first round's shares: of the budget, and of what the columns of its answer cost.
_FIRST, _BOUGHT = 0.4, 0.5
# A column at its upper bound, up to a solver's tolerance.
_FULL = 1e-6


@dataclass(frozen=True)
class VotePlan:
    """``scales`` (rounds,) of the noise on the sums of each round; ``epsilons`` : what each spends."""

    scales: tuple[float, ...]
    columns: int
    # Settings are not chosen by simulation: there is one for every number of rows.
    accelerated: ClassVar[bool] = False

    @property
    def steps(self) -> int:
        return len(self.scales)


@dataclass(frozen=True)
class SplitVotes(LeavesRowsOut):
    """Sum every row's split vote with noise, and take the point of the public set with the most votes.

    ``rounds`` : 1, 2, or None (two where the rows are many for the noise).

    Source
        Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006) on votes normalised to one a person, as in the
        cumulative ballots of participatory budgeting; greedy covers of what is left (Gupta, Ligett, McSherry, Roth and
        Talwar 2010) for the second round.
    Privacy
        Rows ``G x <= h`` with ``G <= 0`` by declaration, over ``lower <= x <= upper``. From a public or released point
        z >= lower, a row has the shortage ``v = (G z - h)^+ / (G lower - h)^+``, in [0, 1] (0 where the row holds at
        ``lower``, or is absent); a column j could make up ``g_j = min(-G_j (upper_j - z_j) / (G lower - h)^+, v)``,
        cut at zero from below; and its vote is ``g v / max(v, g_1 + ... + g_d)``: an approval ballot of size L without
        a winner so far gives 1/L to each of its projects, an empty one nothing. A vote is a function of the numbers of
        its row and of z alone, whatever these numbers are (NaN counts as nothing), has no negative entry, and its
        1-norm is at most v <= 1. So one row that changes moves the sum of all votes by at most 2 in 1-norm, whatever
        the length of a ballot; and by at most 1 where neighbors are add-remove and an absent row reads ``0 <= 0``,
        which has no vote. r rows of one record are changed one by one: r times that.
        *Rounded.* A vote as computed has a 1-norm of at most 1 + 2^-10. A sum of k votes, in a fixed order in which a
        term goes through at most a additions, is off by at most a 2^-53 of the sum of their sizes, in either database.
        ``vote_sensitivity`` holds both.
        Round 1 (z = lower) and round 2 (z a function of the noisy sums of round 1 and of public facts) add Laplace
        noise of scale sensitivity / epsilon_r, with epsilon_1 + epsilon_2 = epsilon: adaptive composition of pure
        releases, so delta is not spent. As a part of a search under zCDP, they cost rho_1 + rho_2 = rho. Everything
        else reads the noisy sums and public facts.
    Utility
        Let ``y_j = (x_j - z_j) / (upper_j - z_j)``. As ``g_j`` is at most what column j covers, and votes have a 1-norm
        of at most v, the shortage at x >= z is at most ``v - vote'y``; over both rounds, with z the point between
        them, ``sum_i shortage_i(x) <= k - T_1'y_1 - T_2'y_2`` for the true sums T. Noise on all of them is within its
        quantile at once with probability 1 - beta, whence the bound that a release states in a note. It needs no
        feasible point. What can be promised before is only that no row is short by more than the width W. With a tilt
        one round is run, and x minimises ``tilt'x - W T~'y / k`` over the public set, so ``tilt'x + V(x) <= tilt'x* +
        W + W N'(y - y*) / k`` for every public x*.
        The second round counts the votes of rows that the first answer left short, for what no sum of single columns
        shows: who is covered twice. Its start z has the columns of the first optimum that are full, in the order of
        votes per price (the price of a column by the duals of the public rows), until half of the price is spent; the
        sums of both rounds are combined as a normal estimate whose variance between columns is learnt from them.
    Cost
        One or two passes over the rows, two or three linear programs (or integer ones) over the public set.
    """

    serves: ClassVar[Serves] = Serves(Program, ("row low", "row high"), reads_blocks=True, leaves_out=True)
    name = "split-votes"
    source = "Dwork, McSherry, Nissim and Smith 2006, on votes of one unit a person"
    rounds: int | None = None

    def __post_init__(self) -> None:
        if self.rounds not in (None, 1, 2):
            raise SpecificationError(
                f"rounds={self.rounds!r}", why="votes are summed once or twice", remedy="rounds=1, 2 or None"
            )

    def plain(self, model: Program) -> Verdict | None:
        """Integers too: the public set with whole numbers is searched by a solver."""
        return plain_linear(model, integers=True)

    def suits(self, model: Program, options: Options) -> Verdict:
        rows = private_rows(model)
        if "matrix" not in model.private_parts():
            return Verdict(False, "it sums votes for columns, and no coefficient is private")
        if (rows.upper > 0).any() or not (rows.lower < 0).any():
            return Verdict(
                False,
                "it serves covering rows, A x >= b with A >= 0 (declared: bounds=[0, 1], say)",
            )
        if has_integers(model) and (options.goal in ("target", "search") or options.target is not None):
            return Verdict(False, "with integers it needs no target and no search")
        return YES

    def least(self, task: Task) -> float:
        return private_rows(task.model).residual_range(task.polytope)[1]

    def promise(self, task: Task) -> Promise:
        rows = private_rows(task.model)
        width = max(rows.residual_range(task.polytope)[1], 0.0)
        plan = self._plan(task, rows)
        error = width
        if task.tilted:
            far = Laplace(plan.scales[0]).max_abs_quantile(plan.columns, task.beta) * plan.columns
            error += width * far / max(rows.count, 1)
        slack = max(rows.count - 1, 0) if task.slack_rows is None else task.slack_rows
        rounds = "one sum" if plan.steps == 1 else "two sums"
        return Promise(
            error=error,
            gain=rows.count / (slack + 1),
            slack_rows=slack,
            rows=rows.count,
            width=width,
            work=f"{rounds} of the rows' votes, and {plan.steps + 1} programs over the public set",
            proved=not has_integers(task.model),
            noise={
                "steps": plan.steps,
                "kind": "laplace",
                "scale of each sum": list(plan.scales),
                "sums": plan.columns,
                "change by one record": vote_sensitivity(task),
            },
            caveats=("nothing is promised before the release, which bounds what is missed on average by its sums",),
            plan=plan,
        )

    def event(self, task: Task) -> Cost:
        """Sums with pure noise where the budget is a whole (epsilon, delta)."""
        return Cost.pure(task.epsilon) if task.whole else super().event(task)

    def forecast(self, model: Program, options: Options) -> Forecast | Verdict:
        found = super().forecast(model, options)
        if isinstance(found, Verdict) or model.form.objective.nnz:
            return found
        way = found.noise.get("objective treated by", {})
        # One pure release; a search's parts add up under zCDP.
        return found if way.get("runs", 1) > 1 else replace(found, delta=0.0)

    def point(
        self, task: Task, promise: Promise, theta: PrivateNumbers | RowTable, source: NoiseSource, progress: Progress
    ) -> Point:
        plan: VotePlan = promise.plan
        table, live = private_rows(task.model).table(theta), voted_columns(task)
        lower, upper = task.polytope.box
        progress(f"votes, {plan.steps} rounds", 0.0)
        counted = table.map_reduce(partial(votes, lower, lower, upper, live))
        sums = [source.laplace(counted, plan.scales[0])]
        gains = _gains(promise, live, sums[0], upper - lower)
        points = [lower, _best(task, task.tilt - gains, lower)[0]]
        if plan.steps == 2:
            points[1] = _half_bought(task, gains, points[1])
            progress(f"votes, {plan.steps} rounds", 0.5)
            counted = table.map_reduce(partial(votes, lower, points[1], upper, live))
            sums.append(source.laplace(counted, plan.scales[1]))
            scores = _combined(sums[0], sums[1], plan.scales, (upper > points[1])[live])
            gains = _gains(promise, live, scores, upper - points[1])
            points.append(_best(task, task.tilt - gains, points[1])[0])
        x = points[-1]
        if not has_integers(task.model):
            x = points[-1] = task.polytope.nearest(x)
        return Point(x, notes=_stated(task, promise, live, sums, points))

    def _plan(self, task: Task, rows: PrivateRows) -> VotePlan:
        change, columns = vote_sensitivity(task), voted_columns(task).size
        alone = _scale(task, change, 1.0)
        # A tilt weighs votes against costs: what is promised is of one sum.
        twice = rows.count >= _TWO_ROUNDS * alone if self.rounds is None else self.rounds == 2
        if not twice or task.tilted:
            return VotePlan((alone,), columns)
        return VotePlan((_scale(task, change, _FIRST), _scale(task, change, 1 - _FIRST)), columns)


SPLIT_VOTES = SplitVotes()


# ---------------------------------------------------------------------- public facts
def voted_columns(task: Task) -> Integers:
    """(d,) columns that can have a private entry in some row and are not fixed in the public set."""
    lower, upper = task.polytope.box
    private = _private_columns(task.model)
    return np.asarray(private[(upper > lower)[private]], dtype=np.int64)


@cached
def _private_columns(model: Program) -> Integers:
    return np.unique(model.form.matrix_positions()[1])


def vote_sensitivity(task: Task) -> float:
    """Largest change of the sum of votes as computed, in 1-norm, by one record: the class has the proof."""
    rows = private_rows(task.model)
    exact = rows.per_record * (1.0 if rows.absent else 2.0)
    return exact * (1 + ROUNDING) + 2.0 * rows.count * (task.model.additions(rows.count) + 2) * 2.0**-53


def _scale(task: Task, change: float, share: float) -> float:
    """Of the noise of a round that gets this share of the budget; pure where the task has a whole one."""
    if task.spend.rho is None or task.whole:
        return change / (task.epsilon * share)
    return task.spend.part(share).laplace_scale(change)


# ---------------------------------------------------------------------- private: the votes
def votes(lower: Floats, start: Floats, upper: Floats, live: Integers, part: RowPart) -> PrivateArray:
    """(d,) the sum over a part's rows of their votes for the columns ``live``, from the point ``start``."""
    G = part.matrix()
    row = np.repeat(np.arange(part.count), np.diff(G.indptr))
    place = np.full(part.size, -1, dtype=np.int64)
    place[live] = np.arange(live.size)
    with np.errstate(all="ignore"):  # a warning would tell of an odd row
        alone = part.residual(lower)
        short = np.minimum(part.residual(start) / alone, 1.0)
        short = np.where((alone > 0) & (short > 0), short, 0.0)
        covers = -G.data * (upper - start)[G.indices] / alone[row]
        covers = np.where((covers > 0) & (place[G.indices] >= 0), np.minimum(covers, short[row]), 0.0)
        size = np.bincount(row, weights=covers, minlength=part.count)
        share = np.divide(short, np.maximum(size, short), out=np.zeros_like(short), where=short > 0)
    here = covers > 0
    vote = (covers * share[row])[here]
    return PrivateArray(np.bincount(place[G.indices[here]], weights=vote, minlength=live.size).astype(np.float64))


# ---------------------------------------------------------------------- from noisy sums to a point
def _moved(start: Floats, x: Floats, upper: Floats) -> Floats:
    """(n,) how far x is on the way from ``start`` to the upper bounds, in [0, 1]."""
    room = upper - start
    return np.clip(np.divide(x - start, room, out=np.zeros_like(room), where=room > 0), 0.0, 1.0)


def _gains(promise: Promise, live: Integers, sums: Floats, room: Floats) -> Floats:
    """(n,) the mean violation that a unit of each column takes away, by the sums; a little for those without votes, so
    that money is spent."""
    out = np.zeros(room.size)
    least = 1e-9 * float(np.abs(sums).max(initial=0.0))
    gain = promise.width * np.maximum(sums, least) / max(promise.rows, 1)
    out[live] = np.divide(gain, room[live], out=np.zeros_like(gain), where=room[live] > 0)
    return out


def _best(task: Task, cost: Floats, start: Floats, *, relaxed: bool = False) -> tuple[Floats, Floats]:
    """(n,) the public point of least cost that is nowhere below ``start``, and (n,) the price of the public rows that a
    unit of each column takes (zero with integers). ``relaxed`` : without integers."""
    polytope, affine, n = task.polytope, task.model.affine, task.polytope.size
    least = np.where(start > polytope.box[0], start, polytope.lower)
    size = float(np.abs(cost).max(initial=0.0)) or 1.0
    none = np.zeros(0, dtype=np.int64)
    whole = (none, none) if relaxed else (affine.boolean, affine.integer)
    program = ArrayProgram(
        cost / size, polytope.rows, *sides(polytope), least, polytope.upper, *whole, sp.csr_array((0, n)), np.zeros(0)
    )
    answer = ask(program, cp.HIGHS, {})
    if answer.x is None:
        # It may be below ``start``, of which ``_stated`` says nothing then.
        x = task.model.public.cheapest(cost) if has_integers(task.model) else polytope.minimise(cost)
        if x is None:
            raise SolverFailure("no point of the public set was found", remedy="check the public constraints")
        return x, np.zeros(n)
    x = np.clip(answer.x, least, polytope.upper)
    x[whole[0]], x[whole[1]] = np.rint(x[whole[0]]), np.rint(x[whole[1]])
    return x, np.zeros(n) if answer.rows is None else size * np.maximum(polytope.rows.T @ answer.rows, 0.0)


def _half_bought(task: Task, gains: Floats, x: Floats) -> Floats:
    """(n,) the full columns of the optimum x, in the order of gain per price, until half of the price is spent; the
    rest at the lower bounds."""
    lower, upper = task.polytope.box
    relaxed, price = _best(task, task.tilt - gains, lower, relaxed=True)
    total = float(price @ np.maximum(relaxed - lower, 0.0))
    room = upper - lower
    full = np.flatnonzero((np.minimum(x, relaxed) >= upper - _FULL * room) & (gains > 0) & (room > 0))
    spent = price[full] * room[full]
    order = np.argsort(-gains[full] / np.maximum(price[full], 1e-300), kind="stable")
    taken = full[order][np.cumsum(spent[order]) <= _BOUGHT * total]
    start = lower.copy()
    start[taken] = upper[taken]
    return start


def _combined(first: Floats, second: Floats, scales: tuple[float, ...], rest: Mask) -> Floats:
    """(d,) the votes of the second round by both: a share of the first ones, in so far as columns are found to keep to
    that share. Normal estimates with the variances of the noise, and between columns as they are seen."""
    total = float(first[rest].sum())
    share = min(max(float(second[rest].sum()) / total, 0.0), 1.0) if total > 0 else 0.0
    by_first, by_second = share**2 * 2 * scales[0] ** 2, 2 * scales[1] ** 2
    seen = float(((second - share * first)[rest] ** 2).mean()) if rest.any() else 0.0
    guess = by_first + max(seen - by_first - by_second, 0.0)
    weight = guess / (guess + by_second)
    return np.where(rest, (1 - weight) * share * first + weight * second, 0.0)


def _stated(task: Task, promise: Promise, live: Integers, sums: list[Floats], points: list[Floats]) -> tuple[str, ...]:
    """What the noisy sums bound, with probability 1 - beta; nothing where that is no less than all."""
    plan, (lower, upper), met = promise.plan, task.polytope.box, 0.0
    if any((x < start - _FULL * (upper - lower)).any() for start, x in pairwise(points)):
        return ()  # the sums are about points above their start
    for counted, scale, start, x in zip(sums, plan.scales, points[:-1], points[1:], strict=True):
        moved = _moved(start, x, upper)[live]
        far = Laplace(scale).max_abs_quantile(live.size, task.beta / plan.steps)
        met += float(moved @ counted) - far * float(moved.sum())
    missed = 1 - met / max(promise.rows, 1)
    if missed >= 1:
        return ()
    return (
        f"with probability {number(1 - task.beta)}, the private constraints miss on average at most "
        f"{max(missed, 0.0):.0%} of what they miss at the lower bounds of x (proved from the noisy sums)",
    )
