"""What is asked of a mechanism, and what every mechanism has: ``eligible``, ``forecast`` and ``run``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.mechanisms.forecast import Bound, Forecast
from dpmodel.privacy import NoiseSource

M = TypeVar("M", contravariant=True)

Feasibility = Literal["centred", "relaxed", "safe", "strict"]
Goal = Literal["auto", "target", "search", "penalty"]
Satisfy = Literal["nearly", "exact"]
Progress = Callable[[str, float], None]


def no_progress(stage: str, done: float) -> None:
    """Say nothing."""


def counted(stage: str, count: int, progress: Progress) -> Callable[[], None]:
    """To be called before each of ``count`` steps, a public number: tells every twentieth of them."""
    every, done = max(count // 20, 1), 0

    def step() -> None:
        nonlocal done
        if done % every == 0:
            progress(stage, min(done / count, 1.0))
        done += 1

    return step


@dataclass(frozen=True)
class Request:
    """What is asked of one solve: the budget it may use and the statement wanted.

    ``epsilon``, ``delta`` : budget. ``beta`` : allowed probability that the accuracy statement fails.
    ``feasibility`` : "centred" (the released numbers as they are), "relaxed" (private constraints give way, so that the
    true optimum stays feasible), "safe" (every true constraint holds but those that the release lists, except with
    probability ``beta``) or "strict" (every true constraint holds).
    ``vertices`` : (k, n) public candidate points in the order of the standard form's columns, or None.
    ``solver``, ``options`` : for the solve on released data.
    ``slack_rows`` : how many private constraints may be left out, or None to let the mechanism choose;
    ``violation`` : how far the others may be violated, or None. ``goal`` : how mechanisms that only find nearly
    feasible points treat the objective: a public ``target`` value (of the minimisation form), a paid "search" for
    one, or a "penalty" with weight ``penalty`` (None: chosen from public facts).
    ``clip`` : regressions: derivatives of the loss are cut to this size, or None.
    ``satisfy`` : "exact" where private constraints must hold exactly, all but a few; "nearly" to within alpha.
    ``by_proof`` : settings by their statements alone, as where slack rows or a violation are asked for.
    ``leaves_out`` : whether mechanisms that leave private constraints out are compared.
    """

    epsilon: float
    delta: float
    beta: float = 0.05
    feasibility: Feasibility = "centred"
    vertices: Floats | None = None
    solver: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    slack_rows: int | None = None
    violation: float | None = None
    goal: Goal = "auto"
    target: float | None = None
    penalty: float | None = None
    clip: float | None = None
    satisfy: Satisfy = "nearly"
    by_proof: bool = False
    leaves_out: bool = True


# Why a mechanism does not apply, where others have to know: another feasibility was asked for, no public point does,
# it failed while it was planned.
Code = Literal["", "feasibility", "infeasible", "failed"]


class Verdict(NamedTuple):
    """Whether a mechanism applies, and if not, why: in words, and as a ``code`` where a plan decides by it."""

    eligible: bool
    reason: str = ""
    code: Code = ""


YES = Verdict(True)


def refuse_feasibility(request: Request, *served: str) -> Verdict | None:
    """No, if another feasibility was asked for than those ``served``."""
    if request.feasibility in served:
        return None
    names = " and ".join(f'"{name}"' for name in served)
    return Verdict(False, f'feasibility="{request.feasibility}" was asked for; it serves {names}', "feasibility")


def refuse_high(model: PrivateLP, what: str = "noise") -> Verdict | None:
    """No, if some private parameter may change arbitrarily: ``what`` cannot hide that."""
    high = [cell for cell in model.classification.cells if cell.level == "high"]
    return Verdict(False, f"{high[0].parameter} may change arbitrarily: no {what} can hide it") if high else None


# The status of a run that released no point: the rows that stand out do not determine one.
NOTHING_FOUND = "nothing_found"
# Status of a run that an error ended: the budget is spent and there is no point.
STOPPED = "stopped"


@dataclass(frozen=True)
class Outcome:
    """What ``run`` hands back: released data only.

    ``status`` : decided on released data. ``x`` : (n,) point or None. ``dual`` : (m,) or None. ``value`` : the
    minimisation objective at x from released quantities, or None. ``extra_violation`` : least further
    relaxation that was needed. ``violation`` : by how much a private constraint can be missed at x, except with the
    statement's probability, where released numbers tell more than the forecast. ``seconds`` : time of the solve on
    released data; None where every step read private data, for how long those take may depend on it. ``short`` :
    private constraints that may be missed, with by how much at most, where released numbers tell; ``statement`` : the
    forecast's in view of that ("" where it stays). ``constant`` : of a private constant term of the objective, which
    ``value`` leaves out: what the numbers that were measured make it, None where they do not tell.
    """

    status: str
    x: Floats | None
    dual: Floats | None
    value: float | None
    seconds: float | None = None
    extra_violation: float = 0.0
    notes: tuple[str, ...] = ()
    short: tuple[tuple[str, float], ...] = ()
    statement: str = ""
    violation: float | None = None
    constant: float | None = None


class Serves(NamedTuple):
    """What a mechanism is for: the type of ``model`` that its methods get, and for programs the ``cells`` of Table 1.

    ``cells`` : such as "scalar low" (``classify.taxonomy``).
    """

    model: type
    cells: tuple[str, ...] = ()


@runtime_checkable
class Mechanism(Protocol[M]):
    """One algorithm over models of type ``M``. Its docstring states source, privacy argument, utility, cost and errors.

    To write one, inherit from it: ``class Mine(Mechanism[PrivateLP])``.
    """

    @property
    def name(self) -> str:
        """Name in the registry."""
        ...

    @property
    def source(self) -> str:
        """Paper and theorem."""
        ...

    @property
    def serves(self) -> Serves:
        """The models it is for."""
        ...

    @property
    def published(self) -> bool:
        """Whether it keeps the constants of its paper, as a yardstick: planned where ``plan(published=True)`` asks."""
        return False

    @property
    def reads_blocks(self) -> bool:
        """Whether all it reads of private rows are sums (``Table.map_reduce`` of regressions, ``RowTable.map_reduce``
        of programs): then they may lie anywhere."""
        return False

    @property
    def leaves_out(self) -> bool:
        """Programs: whether it promises nothing of some of the private constraints. Where each is of one record, few
        records can change little more than their own; elsewhere a constraint without a promise is no answer."""
        return False

    def eligible(self, model: M, request: Request) -> Verdict:
        """Yes, or the reason why not; public facts only, and quickly."""
        ...

    def at_least(self, model: M, request: Request) -> Iterable[Bound]:
        """Bounds that the error of ``forecast`` cannot fall below, each with more work than the one before, all with
        less than a forecast; nothing where nothing is known. A plan does not ask for a forecast that cannot win."""
        return ()

    def forecast(self, model: M, request: Request) -> Forecast | Verdict:
        """Predicted error; public facts only. A verdict, where it takes the work of a forecast to see why not."""
        ...

    def run(self, model: M, request: Request, noise: NoiseSource, progress: Progress = no_progress) -> Any:
        """The only method that reads private values. What it hands back is released: an ``Outcome``, for exact systems
        a ``Found``."""
        ...
