"""``PrivateModel``: all that planner and conductor ask of a problem, whatever family it is of."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from dpmodel.errors import DPModelError, SpecificationError, UnsupportedModelError
from dpmodel.mechanisms.contract import YES, Request, Verdict
from dpmodel.mechanisms.forecast import Error, Forecast
from dpmodel.models.options import Options
from dpmodel.release.release import Release

_LOG = logging.getLogger("dpmodel")
# What numbers too large or too small for floating point raise; anything else that is not ours is a defect.
ARITHMETIC = (ArithmeticError, np.linalg.LinAlgError)

M = TypeVar("M")


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


class PrivateModel(ABC, Generic[M]):
    """A problem as planner and conductor see it.

    ``data`` is what mechanisms get to see: public facts, and one method that reads private values. The methods here
    look at public facts only, but for ``finish``, which gets what was released.

    ``reads`` : False where nothing in the family is private (post-processing). ``error`` : the kind of error by which
    its mechanisms compare. ``words`` : the family in a plan's messages. ``remedy`` : what to try where no mechanism
    serves. ``halvings`` : how closely the epsilon is searched at which a statement would say something (0 where
    forecasts take long).
    """

    reads: ClassVar[bool] = True
    error: ClassVar[type[Error]]
    words: ClassVar[str]
    remedy: ClassVar[str]
    halvings: ClassVar[int] = 4

    def __init__(self, data: M) -> None:
        self.data = data

    @property
    def kind(self) -> type:
        """The type of data whose mechanisms are compared."""
        return type(self.data)

    @property
    def is_public(self) -> bool:
        """Whether no private parameter reaches the problem, so that it can be solved as it is."""
        return False

    def ask(self, options: Options) -> tuple[PrivateModel[Any], Request]:
        """The model (another one, where the options change what is to be solved) and the request that are meant.

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
    def preferred(self, request: Request) -> str:
        """The mechanism that "auto" stands for, or "auto" for the best forecast."""
        return "auto"

    def check(self, request: Request) -> None:
        """Raise what stands against any plan: theorems, constraints that contradict each other."""

    def serves(self, mechanism: Any, request: Request) -> Verdict:
        """Whether ``mechanism`` can be asked at all, before it is."""
        return YES

    def settled(
        self, request: Request, mechanisms: Sequence[Any], candidates: Sequence[Candidate], best: Candidate | None
    ) -> list[Candidate]:
        """``candidates`` with what decides where no statement does; ``best`` is the choice by statements. Asked only if
        no mechanism was named."""
        return list(candidates)

    def capped(self, request: Request, candidate: Candidate, *, quickly: bool = False) -> Candidate:
        """``candidate`` with its forecast held against what is known without data; ``quickly`` : against what takes
        little work, which leaves it as good or better."""
        return candidate

    def needs_data(self, forecast: Forecast) -> bool:
        """Whether ``forecast``, which says something, tells that every point found without data may miss something."""
        return False

    def refuse_auto(self, candidates: Sequence[Candidate]) -> None:
        """Raise where no mechanism should be run unless it is named."""

    def unmet(self, request: Request, forecast: Forecast) -> str:
        """What was asked for and ``forecast``, the chosen one, does not promise; "" for nothing."""
        return ""

    def lower_bounds(self, request: Request) -> tuple[str, ...]:
        """What no mechanism can beat, in words."""
        return ()

    def least(self, request: Request) -> Mapping[str, float]:
        """The same as numbers, where a theorem gives one in the unit of an error: its column -> lower bound."""
        return {}

    @property
    def varies(self) -> tuple[str, ...]:
        """What of it can be varied: "records" (how many there are), "sensitivity" (how far one moves what it owns)."""
        return ()

    def varied(self, what: str, factor: float, parameter: str = "") -> PrivateModel[M]:
        """The model, without private values, with ``factor`` times the records or the sensitivity, of ``parameter`` or
        of all.

        Raises
        ------
        SpecificationError
            For what it cannot vary.
        """
        raise SpecificationError(f"no {self.words} is forecast at another number of {what}", remedy="another epsilon")

    def measured(self, mechanism: Any, request: Request, runs: int) -> Mapping[str, Sequence[float]]:
        """Column of the error -> what ``mechanism`` errs by on each of ``runs`` databases drawn from public facts.

        Raises
        ------
        SpecificationError
            Where nothing can be drawn, or an error cannot be told.
        """
        raise SpecificationError(
            f"simulate: no {self.words} is simulated",
            why="forecasts of regressions are means of simulations already, and exact systems are not drawn",
            remedy="plan.plot() draws the forecasts",
        )

    def refuse_empty(self) -> None:
        """Raise where the public constraints have no common point."""

    def nothing_applies(self, request: Request, candidates: Sequence[Candidate]) -> DPModelError:
        """The error where no candidate is eligible."""
        what = f"no mechanism serves this {self.words}"
        return UnsupportedModelError(what, why=reasons(candidates), remedy=self.remedy)

    # ------------------------------------------------------------------ executing
    def ready(self, chosen: Candidate) -> None:
        """Raise, before the charge, where a value is missing or nothing could be released."""

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
