"""The contract: what a caller may ask (``Options``), what a mechanism is, what a problem is to a plan (``Model``).

Below all families; everything above speaks of them in these words.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    runtime_checkable,
)

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import DPModelError, SpecificationError, UnsupportedModelError
from dpmodel.forecast import Error, Forecast
from dpmodel.memo import PublicFacts
from dpmodel.privacy import NoiseSource

if TYPE_CHECKING:
    from dpmodel.release import Release

M = TypeVar("M", contravariant=True)

Feasibility = Literal["centred", "relaxed", "safe", "strict"]
Goal = Literal["auto", "target", "search", "penalty"]
Satisfy = Literal["nearly", "exact"]
Progress = Callable[[str, float], None]

_LOG = logging.getLogger("dpmodel")
# What numbers too large or too small for floating point raise; anything else that is not ours is a defect.
ARITHMETIC = (ArithmeticError, np.linalg.LinAlgError)


# ------------------------------------------------------------------------------------ what a caller may ask
@dataclass(frozen=True)
class AllBut:
    """``feasibility=AllBut(rows=, alpha=)``: private constraints hold to within alpha, but for a few.

    For problems in which one record owns one constraint. ``rows`` : how many may be left out; ``alpha`` : how far the
    others may be violated, in the constraints' units. With one of them given, the plan finds the best other.
    """

    rows: int | None = None
    alpha: float | None = None


@dataclass(frozen=True)
class Exact:
    """``feasibility=Exact(margin=)``: private constraints hold exactly, but for a few (KMMST24).

    Equalities with integers are satisfied by sanitised equations; inequalities need a ``margin``, or integers
    of declared bounds; an objective then needs a ``Target``.

    ``margin`` : a public promise in (0, 1]: with the rows (b_i, -a_i) of ``a_i x <= b_i`` scaled to unit norm, some
    unit vector y = (x0, x) of the public cone has a product of at least this with each. If it does not hold, more rows
    may be missed; privacy does not depend on it.
    """

    margin: float | None = None


@dataclass(frozen=True)
class Target:
    """``goal=Target(value)``: mechanisms that find nearly feasible points look for one whose objective reaches a public
    ``value``."""

    value: float


@dataclass(frozen=True)
class Search:
    """``goal=Search()``: they find the best value of the objective by bisection, which is paid for."""


@dataclass(frozen=True)
class Penalty:
    """``goal=Penalty(weight)``: they add the violation to the objective, with this ``weight`` (None: one chosen from
    public facts)."""

    weight: float | None = None


@dataclass(frozen=True)
class Options:
    """What one solve is to do: the budget it may use and the statement wanted.

    First the arguments of ``Problem.solve`` as they were given, of any type; ``Model.check`` makes of them the options
    that mechanisms get, with words and numbers in place of objects.

    ``epsilon``, ``delta`` : budget. ``beta`` : allowed probability that the accuracy statement fails.
    ``feasibility`` : "centred" (the released numbers as they are), "relaxed" (private constraints give way, so that the
    true optimum stays feasible), "safe" (every true constraint holds but those that the release lists, except with
    probability ``beta``) or "strict" (every true constraint holds).
    ``vertices`` : (k, n) public candidate points in the order of the standard form's columns, or None.
    ``solver``, ``solver_options`` : for the solve on released data.
    ``slack_rows`` : how many private constraints may be left out, or None to let the mechanism choose;
    ``violation`` : how far the others may be violated, or None. ``goal`` : how mechanisms that only find nearly
    feasible points treat the objective: a public ``target`` value (of the minimisation form), a paid "search" for
    one, or a "penalty" with weight ``penalty`` (None: chosen from public facts).
    ``clip`` : regressions: derivatives of the loss are cut to this size, or None.
    ``satisfy`` : "exact" where private constraints must hold exactly, all but a few; "nearly" to within alpha.
    ``by_proof`` : settings by their statements alone, as where slack rows or a violation are asked for.
    ``leaves_out`` : whether mechanisms that leave private constraints out are compared.
    ``mechanism`` : as it was given, "auto" once it is checked: a plan gets it beside the options.
    """

    epsilon: float
    delta: float = 0.0
    beta: float = 0.05
    feasibility: Feasibility = "centred"
    vertices: Floats | None = None
    solver: str | None = None
    solver_options: Mapping[str, Any] = field(default_factory=dict)
    slack_rows: int | None = None
    violation: float | None = None
    goal: Goal = "auto"
    target: float | None = None
    penalty: float | None = None
    clip: float | None = None
    satisfy: Satisfy = "nearly"
    by_proof: bool = False
    leaves_out: bool = True
    mechanism: str = "auto"


# ------------------------------------------------------------------------------------ mechanisms
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


# Why a mechanism does not apply, where others have to know: another feasibility was asked for, no public point does,
# it failed while it was planned.
Code = Literal["", "feasibility", "infeasible", "failed"]


class Verdict(NamedTuple):
    """Whether a mechanism applies, and if not, why: in words, and as a ``code`` where a plan decides by it."""

    eligible: bool
    reason: str = ""
    code: Code = ""


YES = Verdict(True)


def refuse_feasibility(options: Options, *served: str) -> Verdict | None:
    """No, if another feasibility was asked for than those ``served``."""
    if options.feasibility in served:
        return None
    names = " and ".join(f'"{name}"' for name in served)
    return Verdict(False, f'feasibility="{options.feasibility}" was asked for; it serves {names}', "feasibility")


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


@dataclass(frozen=True)
class Serves:
    """What a mechanism is for, and what others have to know of it: nobody else names mechanisms.

    ``model`` : the type of model that its methods get. ``cells`` : programs: those of Table 1, such as "scalar low".
    ``as_printed`` : it keeps the constants of its paper, as a yardstick: planned where ``plan(as_printed=True)`` asks.
    ``reads_blocks`` : all it reads of private rows are sums (``Table.map_reduce`` of regressions,
    ``RowTable.map_reduce`` of programs): then they may lie anywhere.

    Regressions. ``classes`` : also multinomial ones, with several scores of a record.

    Programs. ``leaves_out`` : it promises nothing of some of the private constraints. Where each is of one record, few
    records can change little more than their own; elsewhere a constraint without a promise is no answer.
    ``reads_nothing`` : it reads no private data and spends nothing.
    ``exact`` : it satisfies private constraints exactly, all but a few. ``strict`` : it promises that all of them hold.
    ``over_all`` : it minimises the released objective over all of the released program, so that a direction without an
    end is followed; others look at listed or bounded sets.

    Post-processing. ``any_solver`` : it hands the model to the solver that was named, with its options; who names one
    gets it.

    Audits. ``adds_up`` : what its draws lose adds up to at most what it charges; not where a sample of the records is
    secret, or noise stands inside what is solved. ``by_stability`` : it is private because most records agree, and on
    data far away its answers mean nothing.
    """

    model: type
    cells: tuple[str, ...] = ()
    as_printed: bool = False
    reads_blocks: bool = False
    classes: bool = False
    leaves_out: bool = False
    exact: bool = False
    strict: bool = False
    over_all: bool = False
    any_solver: bool = False
    adds_up: bool = True
    by_stability: bool = False
    reads_nothing: bool = False


@runtime_checkable
class Mechanism(Protocol[M]):
    """One algorithm over models of type ``M``. Its docstring states source, privacy argument, utility, cost and errors.

    To write one, inherit from it: ``class Mine(Mechanism[Program])``.
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

    def eligible(self, model: M, options: Options) -> Verdict:
        """Yes, or the reason why not; public facts only, and quickly."""
        ...

    def bound(self, model: M, options: Options) -> float:
        """What the ``rank`` of the forecast's error cannot be less than, with less work than a forecast; inf where its
        statement would say nothing, 0 where nothing is known. A plan does not ask for a forecast that cannot win."""
        return 0.0

    def forecast(self, model: M, options: Options) -> Forecast | Verdict:
        """Predicted error; public facts only. A verdict, where it takes the work of a forecast to see why not."""
        ...

    def run(self, model: M, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Any:
        """The only method that reads private values. What it hands back is released: an ``Outcome``, for exact systems
        a ``Found``."""
        ...


# ------------------------------------------------------------------------------------ models
@dataclass(frozen=True)
class Candidate:
    """One mechanism in a plan: ``mechanism`` (its name), ``eligible``, ``reason`` (why not), ``forecast``.

    An eligible one that cannot win has no forecast, and the bound on it is its reason (``plan(compare="all")``).
    ``code`` : the reason for programs, where one was given (``Verdict.code``). ``cells`` : of Table 1 that it serves.
    """

    mechanism: str
    source: str
    eligible: bool
    reason: str
    forecast: Forecast | None
    code: str = ""
    cells: tuple[str, ...] = ()

    @classmethod
    def failed(cls, mechanism: Any, error: Exception) -> Candidate:
        """The line of a mechanism that failed while it was planned; the log has the place."""
        kind = type(error).__name__
        if isinstance(error, DPModelError):
            why = error.what
        elif isinstance(error, ARITHMETIC):
            why = f"{kind} while it was planned: numbers of this model are beyond what it computes with"
        elif isinstance(error, MemoryError):
            why = "it needs more memory than there is"
        else:
            why = f"{kind} while it was planned: a defect of {mechanism.name}, see the log 'dpmodel'"
        _LOG.warning("%s failed to plan: %s", mechanism.name, why, exc_info=error)
        return cls(mechanism.name, mechanism.source, False, f"failed: {why}", None, "failed", mechanism.serves.cells)

    @property
    def reads(self) -> bool:
        """Whether it would read private data."""
        return self.forecast is not None and not self.forecast.spends_nothing

    def to_dict(self) -> dict[str, Any]:
        return {
            "mechanism": self.mechanism,
            "source": self.source,
            "eligible": self.eligible,
            "reason": self.reason,
            "code": self.code,
            "cells": list(self.cells),
            "forecast": None if self.forecast is None else self.forecast.to_dict(),
        }


@dataclass(frozen=True)
class Ran:
    """What ``finish`` needs to know of a run.

    ``mechanism`` and its ``forecast``; ``plan`` : as plain data; ``outcome`` : what ``run`` handed back, checked;
    ``timings`` : seconds of steps that read no private data; ``private`` : whether the noise was.
    """

    mechanism: str
    forecast: Forecast
    plan: Mapping[str, Any]
    outcome: Any
    timings: Mapping[str, float]
    private: bool


class Model(PublicFacts, ABC):
    """A problem of one family, as plans and mechanisms see it: public facts, and one method that reads private values.

    The methods here look at public facts only, but for ``finish``, which gets what was released. Families that a
    ``Problem`` may be of have ``recognise``, ``of`` and ``classified`` too (``solve.registry.FAMILIES``).

    ``reads`` : False where nothing in the family is private (post-processing). ``error`` : the kind of error by which
    its mechanisms compare. ``words`` : the family in a plan's messages. ``remedy`` : what to try where no mechanism
    serves. ``halvings`` : how closely the epsilon is searched at which a statement would say something (0 where
    forecasts take long). ``clips`` : its losses have derivatives that can be cut. ``by_record`` : row i of a private
    parameter is record i. ``drawn`` : its feasible set can be drawn.
    """

    reads: ClassVar[bool] = True
    clips: ClassVar[bool] = False
    by_record: ClassVar[bool] = False
    drawn: ClassVar[bool] = False
    error: ClassVar[type[Error]]
    words: ClassVar[str]
    remedy: ClassVar[str]
    halvings: ClassVar[int] = 4

    # ------------------------------------------------------------------ from a problem
    @classmethod
    def recognise(cls, problem: Any) -> Any:
        """What the family reads in a ``Problem``, without private values and kept with it; None where it is another's.

        Raises
        ------
        UnsupportedModelError
            Where it is of this family and cannot be served.
        """
        raise NotImplementedError

    @classmethod
    def of(cls, problem: Any, solver: str | None = None) -> Self:
        """The model of a ``Problem`` that the family recognises, at the present values of its public parameters; kept
        with it until they change. ``solver`` : of public questions.

        Raises
        ------
        MissingValueError, SpecificationError, InfeasibleError
            For public values that are missing or contradict each other, and data without the bounds that it takes.
        """
        raise NotImplementedError

    @classmethod
    def classified(cls, problem: Any) -> Any:
        """The ``Classification`` of a problem that the family recognises."""
        model: Any = cls.of(problem)
        return model.classification

    @property
    def kind(self) -> type:
        """The type of model whose mechanisms are compared."""
        return type(self)

    @property
    def is_public(self) -> bool:
        """Whether no private parameter reaches the problem, so that it can be solved as it is."""
        return False

    def solve_public(self, solver: str | None, solver_options: Mapping[str, Any] | None) -> str:
        """Solve where ``is_public``, write the solution back and say so in words: nothing is read."""
        raise NotImplementedError

    def check(self, given: Options) -> tuple[Model, Options]:
        """The model (another one, where ``given`` changes what is to be solved) and the options that are meant,
        with the defaults of the family.

        Raises
        ------
        SpecificationError
            For what cannot be asked of this family.
        """
        raise NotImplementedError

    @property
    def protects(self) -> str:
        """Whose records a release protects, and what one of them has in every private parameter; "" where a face says
        it."""
        return ""

    # ------------------------------------------------------------------ planning
    def refuse(self, options: Options) -> None:
        """Raise what stands against any plan: theorems, constraints that contradict each other."""

    def serves(self, mechanism: Any, options: Options) -> Verdict:
        """Whether ``mechanism`` can be asked at all, before it is."""
        return YES

    def settled(
        self, options: Options, mechanisms: Sequence[Any], candidates: Sequence[Candidate], best: Candidate | None
    ) -> list[Candidate]:
        """``candidates`` with what decides where no statement does; ``best`` is the choice by statements. Asked only if
        no mechanism was named."""
        return list(candidates)

    def capped(self, options: Options, candidate: Candidate) -> Candidate:
        """``candidate`` with its forecast held against what is known without data."""
        return candidate

    def needs_data(self, forecast: Forecast) -> bool:
        """Whether ``forecast``, which says something, tells that every point found without data may miss something."""
        return False

    def refuse_auto(self, candidates: Sequence[Candidate]) -> None:
        """Raise where no mechanism should be run unless it is named."""

    def unmet(self, options: Options, forecast: Forecast) -> str:
        """What was asked for and ``forecast``, the chosen one, does not promise; "" for nothing."""
        return ""

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        """What no mechanism can beat, in words."""
        return ()

    def least(self, options: Options) -> Mapping[str, float]:
        """The same as numbers, where a theorem gives one in the unit of an error: its column -> lower bound."""
        return {}

    @property
    def varies(self) -> tuple[str, ...]:
        """What of it can be varied: "records" (how many there are), "sensitivity" (how far one moves what it owns)."""
        return ()

    def varied(self, what: str, factor: float, parameter: str = "") -> Model:
        """The model, without private values, with ``factor`` times the records or the sensitivity, of ``parameter`` or
        of all.

        Raises
        ------
        SpecificationError
            For what it cannot vary.
        """
        raise SpecificationError(f"no {self.words} is forecast at another number of {what}", remedy="another epsilon")

    def synthetic(self, seed: int) -> Model:
        """The same public facts over data drawn from them, which its ``errors`` know: what simulations run on.

        Raises
        ------
        SpecificationError
            Where nothing can be drawn, or an error cannot be told.
        """
        raise SpecificationError(
            f"simulate: no {self.words} is simulated",
            why="databases are drawn for programs and for regressions of one output",
            remedy="plan.plot() draws the forecasts",
        )

    def errors(self, outcome: Any) -> Mapping[str, float]:
        """Column of the error -> what ``outcome`` errs by on the data of a synthetic model, nan where that cannot be
        told."""
        raise NotImplementedError

    def refuse_empty(self) -> None:
        """Raise where the public constraints have no common point."""

    def nothing_applies(self, options: Options, candidates: Sequence[Candidate]) -> DPModelError:
        """The error where no candidate is eligible."""
        what = f"no mechanism serves this {self.words}"
        return UnsupportedModelError(what, why=reasons(candidates), remedy=self.remedy)

    # ------------------------------------------------------------------ executing
    def ready(self, chosen: Candidate, serves: Serves) -> None:
        """Raise, before the charge, where a value is missing or nothing could be released by the mechanism that was
        ``chosen`` and ``serves`` so."""

    @abstractmethod
    def checked(self, outcome: Any) -> Any:
        """``outcome`` in its proper form.

        Raises
        ------
        WrongOutcome
            In words without private numbers.
        """

    def stopped(self, status: str, note: str) -> Any:
        """The outcome of a run that ended without one, None where a family has no such outcome."""
        return None

    def finish(self, ran: Ran) -> Release:
        """Write what was released back to the caller's objects, and collect the release."""
        raise NotImplementedError


class WrongOutcome(Exception):
    """What a mechanism handed back instead of an outcome, in words without its numbers."""


def reasons(candidates: Sequence[Candidate]) -> str:
    """Why not, each reason once with the mechanisms it stops."""
    found: dict[str, list[str]] = {}
    for candidate in candidates:
        if candidate.reason and candidate.code != "feasibility":
            found.setdefault(candidate.reason, []).append(candidate.mechanism)
    return "; ".join(f"{reason} ({', '.join(names)})" for reason, names in found.items())
