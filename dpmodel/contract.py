"""The contract: what a caller may ask (``Options``), what a mechanism is, what a problem is to a plan (``Model``).

Families and their mechanisms are built on these types. A mechanism gets one line in ``solve/registry.py``;
``solve/wall.py`` charges its budget before ``run`` is called.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import DPModelError, SpecificationError, UnsupportedModelError
from dpmodel.forecast import Error, Forecast
from dpmodel.marks.measured import Measured
from dpmodel.memo import PublicFacts
from dpmodel.privacy import NoiseSource
from dpmodel.requests import Feasibility, Goal, Prices, Satisfy

if TYPE_CHECKING:
    from dpmodel.intervals import IntervalTable
    from dpmodel.release import Certificate, Release

M = TypeVar("M", contravariant=True)

Progress = Callable[[str, float], None]

_LOG = logging.getLogger("dpmodel")
# Raised by numbers too large or too small for floating point.
ARITHMETIC = (ArithmeticError, np.linalg.LinAlgError)


# ------------------------------------------------------------------------------------ what a caller may ask
@dataclass(frozen=True)
class Options:
    """What one solve may spend, and which statement is wanted.

    Before ``Model.check`` the fields are the arguments of ``Problem.solve``, of any type. Mechanisms get the options
    that ``check`` returns, with words and numbers in place of objects.

    ``epsilon``, ``delta`` : budget. ``beta`` : allowed probability that the accuracy statement fails.
    ``feasibility`` : "centred" (the released numbers as they are), "relaxed" (private constraints give way, so that the
    true optimum stays feasible), "safe" (with probability 1 - ``beta`` every true constraint holds, except those that
    the release lists), "strict" (every true constraint holds) or "priced" (least expected cost, with ``prices``; None
    where only the released program tells the multipliers, of which ``service`` makes prices).
    ``by_cost`` : "auto" was asked for: plans start from "centred", and take what is expected to cost least.
    ``vertices`` : (k, n) public candidate points in the order of the standard form's columns, or None.
    ``solver``, ``solver_options`` : for the solve on released data.
    ``slack_rows`` : how many private constraints may be left out, or None to let the mechanism choose;
    ``violation`` : how far the others may be violated, or None. ``goal`` : how mechanisms that only find nearly
    feasible points treat the objective: a public ``target`` value (of the minimisation form), a "search" for one,
    which costs budget, or a "penalty" with weight ``penalty`` (None: chosen from public facts).
    ``clip`` : regressions: derivatives of the loss are cut to this size, or None.
    ``satisfy`` : all private constraints but a few must hold exactly ("exact") or to within alpha ("nearly").
    ``by_proof`` : settings are chosen by their statements alone, as they are where slack rows or a violation are given.
    ``leaves_out`` : whether mechanisms that leave private constraints out are compared.
    ``gaussian`` : the budget composes Gaussian noise alone: "auto" takes what draws no other, where there is such.
    ``release`` : "public", or "joint" where each record is handed its own variables.
    ``mechanism`` : as it was given; "auto" after ``check``, since a plan gets the mechanism as an argument of its own.
    """

    epsilon: float
    delta: float = 0.0
    beta: float = 0.05
    feasibility: Feasibility = "centred"
    by_cost: bool = False
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
    gaussian: bool = False
    release: str = "public"
    mechanism: str = "auto"
    prices: Prices | None = None
    service: float = 0.9


# ------------------------------------------------------------------------------------ mechanisms
def no_progress(stage: str, done: float) -> None:
    """Say nothing."""


def counted(stage: str, count: int, progress: Progress) -> Callable[[], None]:
    """A function to call before each of ``count`` steps, a public number; it reports progress about 20 times."""
    every, done = max(count // 20, 1), 0

    def step() -> None:
        nonlocal done
        if done % every == 0:
            progress(stage, min(done / count, 1.0))
        done += 1

    return step


# Why a mechanism does not apply, where other code decides by it.
Code = Literal[
    "",
    "feasibility",  # it serves another feasibility than the one asked for
    "infeasible",  # no public point satisfies every allowed database
    "failed",  # an error while it was planned
]


class Verdict(NamedTuple):
    """Whether a mechanism applies, and if not, why: in words, and as a ``code`` where a plan decides by it."""

    eligible: bool
    reason: str = ""
    code: Code = ""


YES = Verdict(True)


def refuse_feasibility(options: Options, *served: str) -> Verdict | None:
    """A refusal if ``options.feasibility`` is none of those ``served``, else None."""
    if options.feasibility in served:
        return None
    names = " and ".join(f'"{name}"' for name in served)
    return Verdict(False, f'feasibility="{options.feasibility}" was asked for; it serves {names}', "feasibility")


# Status of a run that found no point to release.
NOTHING_FOUND = "nothing_found"
# Status of a run that an error ended: what it was charged stays spent, and there is no point.
STOPPED = "stopped"


@dataclass(frozen=True)
class Outcome:
    """What ``run`` hands back: released data only.

    ``status`` : decided on released data. ``x`` : (n,) point or None. ``dual`` : (m,) or None. ``value`` : the
    minimisation objective at x from released quantities, or None. ``extra_violation`` : least further relaxation that
    was needed. ``violation`` : a bound on the violation of a private constraint at x, with the statement's probability;
    None where released numbers give none better than the forecast's. ``seconds`` : time of the solve on released data;
    None where every step read private data, because its time may depend on them. ``short`` : private constraints that
    may be missed, with a bound on each violation, where released numbers give one. ``statement`` : replaces the
    forecast's, unless "". ``constant`` : an estimate, from released numbers, of a private constant term of the
    objective, which ``value`` leaves out; None where they give none. ``measured`` : the numbers that were released.
    ``expected`` : estimates at the released point, by name.
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
    measured: tuple[Measured, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Serves:
    """What a mechanism is for. Other code reads these flags and never tests a mechanism's name.

    ``model`` : the type of model that its methods get. ``cells`` : those of Table 1 that it serves, such as "scalar
    low" (programs). ``as_printed`` : it keeps the constants of its paper and is planned by ``plan(as_printed=True)``
    only. ``reads_blocks`` : it reads private rows through ``map_reduce`` only (``Table`` of regressions, ``RowTable``
    of programs), so they may lie in files or on other machines.

    Regressions. ``classes`` : it serves multinomial ones too, where a record has several scores. ``weights`` : it
    serves those of private weights: what it releases rests on bounds of them alone (each is at most
    ``largest_weight``, their sum at most ``total``).

    Programs. ``leaves_out`` : it promises nothing of some private constraints, which is an answer only where one record
    owns one constraint. ``reads_nothing`` : it reads no private data and spends nothing. ``exact`` : all private
    constraints but a few hold exactly. ``strict`` : all of them hold with certainty. ``over_all`` : it minimises the
    released objective over the entire released program, which may be unbounded; others search listed or bounded sets.

    Post-processing. ``any_solver`` : chosen if the caller passes ``solver=``, and runs it with the caller's options.

    Audits. ``adds_up`` : the privacy losses of its draws add up to at most what it charges; false where a sample of the
    records is secret, or where noise is added inside what is solved. ``by_stability`` : it is private because most
    records agree; on data where they do not, its answers mean nothing.
    """

    model: type
    cells: tuple[str, ...] = ()
    as_printed: bool = False
    reads_blocks: bool = False
    classes: bool = False
    weights: bool = False
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
    """One algorithm over models of type ``M``. Its docstring states source, privacy argument, utility and cost.

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
        """Whether it serves ``model``, or why not. Reads public facts only; must be cheap."""
        ...

    def bound(self, model: M, options: Options) -> float:
        """A cheap lower bound on the ``rank`` of the forecast's error; inf where its statement would say nothing, 0
        where no bound is available. A plan skips forecasts that cannot win by it."""
        return 0.0

    def forecast(self, model: M, options: Options) -> Forecast | Verdict:
        """Predicted error, from public facts only; a ``Verdict`` where only this work shows that it does not apply."""
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
    """A finished run: the argument of ``Model.finish``.

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
    hands_out: ClassVar[bool] = False
    error: ClassVar[type[Error]]
    words: ClassVar[str]
    remedy: ClassVar[str]
    halvings: ClassVar[int] = 4

    # ------------------------------------------------------------------ from a problem
    @classmethod
    def recognise(cls, problem: Any) -> Any:
        """What the family reads in a ``Problem``, without private values, cached on it; None if another one serves it.

        Raises
        ------
        UnsupportedModelError
            Where it is of this family and cannot be served.
        """
        raise NotImplementedError

    @classmethod
    def of(cls, problem: Any, solver: str | None = None) -> Self:
        """The model of a ``Problem`` that the family recognises, at the present values of its public parameters; cached
        until they change. ``solver`` : for problems with public data only.

        Raises
        ------
        MissingValueError, SpecificationError, InfeasibleError
            For public values that are missing or contradict each other, and data without the bounds that are needed.
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
        """Solve where ``is_public``, write the solution back and return a note. Reads no private value."""
        raise NotImplementedError

    def check(self, given: Options) -> tuple[Model, Options]:
        """The model (another one, where ``given`` changes what is to be solved) and the options with the family's
        defaults filled in.

        Raises
        ------
        SpecificationError
            For what cannot be asked of this family.
        """
        raise NotImplementedError

    @property
    def protects(self) -> str:
        """Whose records a release protects, and what one record owns; "" where the caller of ``execute`` says it."""
        return ""

    # ------------------------------------------------------------------ planning
    def refuse(self, options: Options) -> None:
        """Raise if no mechanism can serve: by a theorem, or because constraints contradict each other."""

    def serves(self, mechanism: Any, options: Options) -> Verdict:
        """The model's own conditions, checked before ``mechanism.eligible``."""
        return YES

    def settled(
        self, options: Options, mechanisms: Sequence[Any], candidates: Sequence[Candidate], best: Candidate | None
    ) -> list[Candidate]:
        """``candidates``, with simulated errors where statements do not decide; ``best`` is the choice by statements.
        Called only if no mechanism was named."""
        return list(candidates)

    def treated(self, options: Options, chosen: Forecast) -> Options:
        """``options`` with the treatment of private constraints that is expected to cost least, ``by_cost``."""
        return options

    def capped(self, options: Options, candidate: Candidate) -> Candidate:
        """``candidate`` with its forecast compared to what holds without data (``known.capped``)."""
        return candidate

    def needs_data(self, forecast: Forecast) -> bool:
        """Whether, by ``forecast``, every point chosen without data may violate a constraint."""
        return False

    def refuse_auto(self, candidates: Sequence[Candidate]) -> None:
        """Raise where no mechanism should be run unless it is named."""

    def unmet(self, options: Options, forecast: Forecast) -> str:
        """The part of ``options`` that the chosen ``forecast`` does not promise, in words, or ""."""
        return ""

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        """Proved lower bounds on the error of any mechanism, in words."""
        return ()

    def least(self, options: Options) -> Mapping[str, float]:
        """``lower_bounds`` as numbers, where one is in the unit of an error: column -> lower bound."""
        return {}

    @property
    def varies(self) -> tuple[str, ...]:
        """What ``varied`` can change: "records" (their number), "sensitivity" (how far one moves what it owns)."""
        return ()

    def varied(self, what: str, factor: float, parameter: str = "") -> Model:
        """The model, without private values, with ``factor`` times the records or the sensitivity, of ``parameter`` or
        of all.

        Raises
        ------
        SpecificationError
            Where ``what`` is not in ``varies``.
        """
        raise SpecificationError(f"no {self.words} is forecast at another number of {what}", remedy="another epsilon")

    def synthetic(self, seed: int) -> Model:
        """The same public facts over synthetic data, drawn from them; simulations run on it.

        Raises
        ------
        SpecificationError
            Where no data can be drawn, or an error cannot be computed.
        """
        raise SpecificationError(
            f"simulate: no {self.words} is simulated",
            why="databases are drawn for programs and for regressions of one output",
            remedy="plan.plot() draws the forecasts",
        )

    def errors(self, outcome: Any) -> Mapping[str, float]:
        """Column of the error -> the error of ``outcome`` on this synthetic model's data, nan where it cannot be
        computed."""
        raise NotImplementedError

    def refuse_empty(self) -> None:
        """Raise where the public constraints have no common point."""

    def nothing_applies(self, options: Options, candidates: Sequence[Candidate]) -> DPModelError:
        """The error where no candidate is eligible."""
        what = f"no mechanism serves this {self.words}"
        return UnsupportedModelError(what, why=reasons(candidates), remedy=self.remedy)

    # ------------------------------------------------------------------ executing
    def answer(self, measured: tuple[Measured, ...], options: Options) -> tuple[Forecast, Outcome]:
        """An answer from numbers that were released before, with its statement: post-processing."""
        raise SpecificationError(f"resolve: no {self.words} is answered again", remedy="solve(epsilon=...)")

    def optimum(self, measured: tuple[Measured, ...], options: Options, looked: bool = False) -> Any:
        """An interval for the true optimum, from numbers that were released before: post-processing. ``looked`` :
        whether prices may have been chosen after the numbers were seen."""
        raise SpecificationError(f"optimum: no {self.words} has an interval for it", remedy="release.accuracy")

    def intervals(self, release: Release, options: Options, level: float) -> IntervalTable:
        """Intervals for the entries of the variables of ``release``, from the numbers it measured: post-processing."""
        raise SpecificationError(f"intervals: none for the variables of a {self.words}", remedy="release.accuracy")

    def regret(self, measured: tuple[Measured, ...], options: Options) -> float:
        """An estimate of what the answer costs above the optimum, from numbers that were released before."""
        raise SpecificationError(f"regret: no {self.words} is answered again", remedy="release.accuracy")

    def certificate(self, epsilon: float, beta: float) -> str | Callable[[Any, NoiseSource], Certificate]:
        """What measures a released point, or what else an outcome without ``x`` is (it reads private values, within the
        charge); or why nothing does."""
        return f"nothing is measured of the answer of a {self.words}"

    def compared(
        self, measured: tuple[Measured, ...], beta: float, prices: Prices | None
    ) -> Mapping[str, Mapping[str, Any]]:
        """Treatment of private constraints -> what the answer from numbers that were released before is like."""
        raise SpecificationError(f"compare: no {self.words} is answered again", remedy="solve(epsilon=...)")

    def ready(self, chosen: Candidate, serves: Serves) -> None:
        """Raise, before the charge, where a value is missing or the ``chosen`` mechanism could release nothing."""

    @abstractmethod
    def checked(self, outcome: Any) -> Any:
        """``outcome``, validated and in the family's type.

        Raises
        ------
        WrongOutcome
            In words without private numbers.
        """

    def stopped(self, status: str, note: str) -> Any:
        """The outcome of a run that ended with an error, None where the family has none."""
        return None

    def finish(self, ran: Ran) -> Release:
        """Write what was released back to the caller's objects, and collect the release."""
        raise NotImplementedError


class WrongOutcome(Exception):
    """A mechanism returned no valid outcome. The message holds none of its numbers."""


def reasons(candidates: Sequence[Candidate]) -> str:
    """Why no candidate is eligible: each reason once, with its mechanisms."""
    found: dict[str, list[str]] = {}
    for candidate in candidates:
        if candidate.reason and candidate.code != "feasibility":
            found.setdefault(candidate.reason, []).append(candidate.mechanism)
    return "; ".join(f"{reason} ({', '.join(names)})" for reason, names in found.items())
