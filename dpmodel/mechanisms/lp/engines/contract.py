"""What mechanisms that find nearly feasible points share: the task, the promise, and the engine's contract.

Such an *engine* (dense multiplicative weights, hinge descent, ...) knows private rows ``G x <= h`` and a public
polyhedron K. Let V(x) >= 0 be its measure of violation (mean hinge, mean over the s worst rows, largest, ...). For a
``tilt`` w (public or released, zero unless the objective is an exact penalty) it returns a point x of K with

    w'x + V(x) <= w'x* + error    for every x* in K that satisfies all private rows,

with probability at least 1 - beta, and ``V(x) <= v`` means that all but ``slack_rows`` rows are violated by at most
``gain * v``. ``mechanism.py`` makes mechanisms out of engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.contract import YES, Options, Progress, Verdict
from dpmodel.forecast import Bound, Violation
from dpmodel.mechanisms.lp.private_rows import private_rows
from dpmodel.mechanisms.lp.row_tables import RowPart
from dpmodel.mechanisms.spend import Spend
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.privacy import NoiseSource

ONE_CANDIDATE = Verdict(
    False, "at this budget it would select among one candidate point: data could not change it, and would be paid for"
)


@dataclass(frozen=True)
class Task:
    """One feasibility problem for an engine; public or released facts only.

    ``polytope`` : the public set K, cut at the target if there is one. ``tilt`` (n,) : cost added to the violation
    (all zero: none). ``spend`` : the budget; ``epsilon, delta`` : the same for engines with composition rules of their
    own (published variants). ``beta`` : allowed failure probability. ``slack_rows``, ``violation`` : what the
    user asked for, or None. ``vertices`` (k, n) : public candidate points, or None. ``whole`` : the budget
    is not a part of one that others share, so a pure release may take all of ``epsilon``. ``cut`` : the runs happen on
    parts of ``polytope`` that are known later, cut off by one more row: a promise for it has to hold for all of them.
    """

    model: PrivateLP
    polytope: Polyhedron
    tilt: Floats
    spend: Spend
    epsilon: float
    delta: float
    beta: float
    slack_rows: int | None = None
    violation: float | None = None
    vertices: Floats | None = None
    whole: bool = True
    cut: bool = False

    @property
    def tilted(self) -> bool:
        return bool(np.any(self.tilt))


@dataclass(frozen=True)
class Promise:
    """What an engine promises for a task, from public facts alone.

    ``error`` : in units of V (see the module). ``gain``, ``slack_rows`` : ``V(x) <= v`` means that all but
    ``slack_rows`` of the ``rows`` private rows are violated by at most ``gain * v``. ``width`` : how far any row can be
    violated.
    ``proved`` : a theorem, not a prediction. ``work``, ``noise``, ``caveats`` : as in ``Forecast``.
    ``plan`` : the engine's own numbers (steps, rates), handed back to it in ``point``. ``others()`` : what it promises
    with other settings, which say less and may do better; ``simulated_settings.py`` asks and chooses.
    """

    error: float
    gain: float
    slack_rows: int
    rows: int
    width: float
    work: str
    proved: bool = True
    noise: Mapping[str, Any] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    plan: Any = None
    others: Callable[[], tuple[Promise, ...]] = tuple

    @property
    def alpha(self) -> float:
        return self.gain * self.error


@dataclass(frozen=True)
class Point:
    """What an engine releases: ``x`` (n,) in the public set; ``extra_violation`` beyond the promise, known from
    released data; ``notes`` : public words."""

    x: Floats
    extra_violation: float = 0.0
    notes: tuple[str, ...] = ()


def bound_of(promise: Promise, every_row: bool = False) -> Bound:
    """``every_row`` : the engine leaves none out."""
    rows = 0 if every_row else promise.rows
    error = Violation(violation=promise.alpha, slack_rows=promise.slack_rows, private_rows=rows, width=promise.width)
    return Bound(error, promise.proved)


class Engine:
    """An algorithm that finds nearly feasible points privately. Docstring headings as for mechanisms."""

    name: str
    source: str
    # The cells of Table 1 that it serves.
    cells: ClassVar[tuple[str, ...]]
    # Whether it keeps the constants of its paper.
    as_printed: ClassVar[bool] = False
    # Whether every release is Gaussian noise when delta > 0 (then the exact composition is used).
    gaussian_only: bool = False
    # Whether it can serve an exact penalty; else ``task.tilt`` is always zero.
    takes_tilt: bool = True
    # Most steps worth planning in a paid search for the objective's value; 0 when a search makes no sense.
    search_steps: int = 6
    # Whether it keeps to (task.epsilon, task.delta) by composition of its own instead of to ``task.spend``.
    own_composition: bool = False
    # Whether all it reads are sums over the rows (``RowTable.map_reduce``): then they may lie anywhere.
    reads_blocks: bool = False
    # Whether it leaves rows out: ``excess`` counts rows then (else it is the largest violation).
    counts_rows: bool = False

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
        """Yes, or why not; public facts only. The objective (private or not) is not its business."""
        raise NotImplementedError

    def formed(self, model: PrivateLP) -> Verdict:
        """Yes, or why not, where it takes work to see: asked before anything is promised."""
        return YES

    def promise(self, task: Task) -> Promise:
        """Public facts only."""
        raise NotImplementedError

    def least(self, task: Task) -> Iterator[Bound]:
        """What ``promise`` cannot say less than, see ``Mechanism.at_least``. ``task`` has the whole budget, no tilt."""
        yield bound_of(self.promise(task), every_row=not self.counts_rows)

    def point(self, task: Task, promise: Promise, theta: Any, source: NoiseSource, progress: Progress) -> Point:
        """Spend ``task.spend`` on private data. ``theta`` (P,) holds the private values, or says where rows lie; those
        that read blocks also take the table of the rows."""
        raise NotImplementedError

    def excess(self, task: Task, promise: Promise, x: Floats, theta: Any) -> float:
        """Private: how badly x misses the promise, for the paid test of a search: the number of rows violated by
        more than alpha, or the largest violation."""
        raise NotImplementedError

    def excess_sensitivity(self, task: Task) -> float:
        """How far one record moves ``excess`` (the larger direction)."""
        raise NotImplementedError

    def excess_limit(self, promise: Promise) -> float:
        """Value of ``excess`` that the promise allows."""
        return promise.error


class CountingEngine(Engine):
    """An engine that leaves rows out. The test of a search: how many rows are violated by more than alpha."""

    counts_rows = True

    def excess(self, task: Task, promise: Promise, x: Floats, theta: Any) -> float:
        table = private_rows(task.model).table(theta)
        return float(table.map_reduce(partial(_missed, x, promise.alpha)))

    def excess_sensitivity(self, task: Task) -> float:
        return float(private_rows(task.model).per_record)

    def excess_limit(self, promise: Promise) -> float:
        return float(promise.slack_rows)


def _missed(x: Floats, alpha: float, part: RowPart) -> int:
    """Rows violated by more than ``alpha``."""
    return int(np.count_nonzero(part.residual(x) > alpha))
