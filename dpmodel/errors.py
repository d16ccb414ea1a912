"""Errors and warnings of the public face: each error says what is wrong, why it is wrong, and what to try.

Messages hold labels, shapes and theorem numbers. They never hold values of private parameters, and
they are raised before any budget is spent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class DPModelError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    what : the offending argument, label or innermost expression.
    why : the rule or theorem behind the refusal.
    remedy : what to try instead.
    """

    def __init__(self, what: str, *, why: str = "", remedy: str = "") -> None:
        self.what = what
        self.why = why
        self.remedy = remedy
        lines = [what]
        if why:
            lines.append(f"  why: {why}")
        if remedy:
            lines.append(f"  try: {remedy}")
        super().__init__("\n".join(lines))


def unsaid(work: Callable[[], T], told: Callable[[str], DPModelError]) -> T:
    """``work()``; where that fails, ``told`` of the type of the error alone: its words may hold private values.
    Errors: DPModelError, that of ``work`` itself, or what ``told`` returns, without a chained one."""
    try:
        return work()
    except DPModelError:
        raise
    except Exception as error:
        failed = type(error).__name__
    # Raised here and not above: the chained error would hold what the other said.
    raise told(failed)


class SpecificationError(DPModelError, ValueError):
    """A wrong annotation or argument: contradicting bounds, NaN, a bad epsilon, an unknown name."""


class UnsupportedModelError(DPModelError, ValueError):
    """A model that cannot be served: not convex, not DPP, or not eligible for the forced mechanism."""


class InfeasibleError(DPModelError):
    """The public part of the model has no feasible point (a fact that owes nothing to private data)."""


class BudgetExceededError(DPModelError):
    """The budget does not cover the request; nothing was read and nothing was spent."""


class MissingValueError(SpecificationError):
    """A parameter has no value at solve time."""


class SourceError(DPModelError):
    """Rows that cannot be read where they lie: a block, a schema, an engine, a cluster. Told without values."""


class MissingExtraError(DPModelError, ImportError):
    """An optional dependency is missing; the message says what to install."""


def install(extra: str, instead: str = "") -> str:
    """The remedy for a missing extra of this package, or ``instead``. No distribution is published: a clone."""
    told = f'python -m pip install ".[{extra}]" in a clone of dpmodel'
    return f"{told}, or {instead}" if instead else told


class ImpossibilityError(DPModelError):
    """No private algorithm can solve this problem to useful accuracy, by a theorem.

    Parameters
    ----------
    theorem : for example ``"Theorem 37"``.
    citation : the paper.
    parameter : name of the offending private parameter.
    constraint : label of the constraint (or the objective) that it enters.
    lower_bound : least error that the theorem leaves to any mechanism with these epsilon, delta and beta.
    remedies : what would make the problem solvable, in order: each a ``programs.remedies.Remedy`` with ``statement``,
        ``apply()``, which returns the changed problem, and ``forecast``, made when looked at. The first that says
        something is printed.
    """

    def __init__(
        self,
        what: str,
        *,
        theorem: str,
        citation: str,
        parameter: str,
        constraint: str,
        lower_bound: float,
        remedies: Sequence[Any],
        why: str = "",
    ) -> None:
        self.theorem = theorem
        self.citation = citation
        self.parameter = parameter
        self.constraint = constraint
        self.lower_bound = lower_bound
        self.remedies = tuple(remedies)
        super().__init__(what, why=why or f"{theorem} of {citation}")
        self.remedy = self.remedies[0].statement if remedies else ""

    def with_first(self, remedy: Any) -> ImpossibilityError:
        """The same error, which offers ``remedy`` before the others."""
        self.remedies = (remedy, *self.remedies)
        self.remedy = remedy.statement
        return self

    def __str__(self) -> str:
        """Made when it is printed, as a forecast takes a plan: the first remedy that says something, then the others'
        names."""
        text, remedies = super().__str__(), self.remedies
        if not remedies:
            return text
        first: Any = remedies[0]
        try:
            first = next((each for each in remedies if each.helps), first)
            told = str(first)
        except Exception:  # an error must not fail while it is printed
            told = first.statement
        others = ", ".join(each.name for each in remedies if each is not first)
        more = f"\n  or: {others} (error.remedies, each with its statement, apply() and forecast)"
        return f"{text}\n  try: {told}{more if others else ''}"


class NotPrivateWarning(UserWarning):
    """What is released is hardly private: its noise is reproducible (whoever knows the seed can subtract it), or its
    epsilon or delta is too large. Given before anything is charged."""


class NewLedgerWarning(UserWarning):
    """A ledger file was not there, and a new one begins: nothing counts as spent."""


class PublicPatternWarning(UserWarning):
    """The positions of a sparse value's stored entries were taken as public."""


class NoGuaranteeWarning(UserWarning):
    """A solve is about to be paid for whose accuracy statement says no more than is known without data, or not what
    was asked for.

    Given before anything is charged: ``warnings.simplefilter("error", dpmodel.errors.NoGuaranteeWarning)`` turns it
    into an error that costs nothing.
    """


class CustodianWarning(UserWarning):
    """Everybody's share goes to one reader, towards whom nothing is private any more."""


class PossibleLeakWarning(UserWarning):
    """Private data may stand in the model as if they were public."""


class ClippedWarning(UserWarning):
    """More than one record in a hundred lies beyond the declared bounds: what is fitted is not what was meant."""


class CompositionWarning(UserWarning):
    """More was computed from the records than the guarantee of one fit covers."""


# ------------------------------ Where a warning belongs: the line of the caller's own code


_BETWEEN = ("sklearn", "joblib")  # call estimators on behalf of somebody


def users_line() -> int:
    """Stack level, seen from the caller, of the nearest frame outside this package and what calls it for others."""
    frame, level, inside = sys._getframe(1), 1, os.path.dirname(__file__) + os.sep
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(inside) or str(frame.f_globals.get("__name__")).split(".")[0] in _BETWEEN
    ):
        frame, level = frame.f_back, level + 1
    return level
