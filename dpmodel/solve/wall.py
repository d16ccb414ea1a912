"""The privacy wall: first the charge, then one run, and no exception that carries private numbers out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from dpmodel.contract import WrongOutcome
from dpmodel.errors import DPModelError, NotPrivateWarning, SourceError, SpecificationError, users_line
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.privacy import Budget, Cost
from dpmodel.solve.progress import Report
from dpmodel.text import number

T = TypeVar("T")
# What ends a process or a cell of a notebook; whatever else is no Exception is told like one.
_ENDINGS = (KeyboardInterrupt, SystemExit, GeneratorExit)


_public_only: ContextVar[bool] = ContextVar("public_only", default=False)


class ChargeReached(BaseException):
    """A charge within `before_charges`. No Exception, so that no program that goes on after errors goes on here."""


@contextmanager
def before_charges() -> Iterator[None]:
    """Nothing is charged, and no private data read, within: what would, raises `ChargeReached`."""
    token = _public_only.set(True)
    try:
        yield
    finally:
        _public_only.reset(token)


class RunError(DPModelError):
    """A mechanism stopped in the middle. The cause is not shown, because it may speak of private data."""


def check_budget(budget: Any) -> None:
    """SpecificationError unless ``budget`` is a ``Budget`` or None."""
    if budget is not None and not isinstance(budget, Budget):
        raise SpecificationError(
            f"budget={type(budget).__name__}", why="a budget keeps account", remedy="budget=Budget(epsilon, delta)"
        )


def charge_then_run(
    run: Callable[[Report], T],
    *,
    name: str,
    budget: Budget | None,
    cost: Cost,
    label: str,
    report: Report,
    charged: Callable[[], None] | None = None,
    public: bool = False,
    records: int = 0,
    remedy: str = "another mechanism",
) -> tuple[T | None, BaseException | None]:
    """What ``run`` hands back, or why it did not, without the frames that hold private numbers.

    The only place where private data is read: ``run`` is called once, after the charge, and its exceptions are told by
    their type alone. Interrupts pass without what they carry, and errors of the caller's own ``report``, which saw
    public words only, as they are.

    ``run`` : gets a ``report`` to call with (stage, share done). ``name`` : of the mechanism, for messages.
    ``cost, label`` : of the charge. ``charged`` : called after the charge, before the run.
    ``public`` : whether the whole family reads nothing private: then errors of this package are passed on whole.
    ``records`` : their number where it is public, 0 elsewhere, for the warning of a delta that is too large.
    Errors: BudgetExceededError, before ``run`` is called; ChargeReached, within `before_charges`, where there is
    something to charge.
    """
    free = cost.epsilon == 0 == cost.delta
    if _public_only.get() and not free:
        raise ChargeReached
    _warn_of_large(cost, records)
    spent = "nothing was spent" if free else "the budget is spent, because private data was read before it failed"
    mine: list[BaseException] = []

    def guarded(stage: str, done: float) -> None:
        try:
            report(stage, done)
        except BaseException as error:
            mine.append(error)
            raise

    payer = None if free else budget
    before = 0 if payer is None else len(payer.history)
    taken = False
    failure: BaseException
    # An interrupt may come between any two of these lines, also while an error is told: the outer block is for those.
    try:
        try:
            if payer is not None:
                payer.charge(cost, label=label)
            taken = True
            if charged is not None:
                charged()
            return run(guarded), None
        except BaseException as error:
            if not taken and not isinstance(error, _ENDINGS):
                raise  # the budget refused
            if error in mine or (public and isinstance(error, DPModelError)):
                failure = error
            else:
                failure = _told(error, name, spent, remedy)
        # An error chained to the first one would carry its frames, and so would a traceback.
        failure.__cause__ = failure.__context__ = None
        failure = failure.with_traceback(None)
    except _ENDINGS as error:
        failure = _told(error, name, spent, remedy)
    if not taken:
        if payer is None or not _charged(payer, before, (cost.epsilon, cost.delta, label)):
            raise failure
        if charged is not None:
            charged()
    return None, failure


def _warn_of_large(cost: Cost, records: int) -> None:
    """NotPrivateWarning for what promises next to nothing. To publish each record with probability delta is
    (0, delta)-DP, and shows n delta records in the mean: 1 at 1/n. Where n is not public, 1/100 stands for it."""
    said = []
    if 10 < cost.epsilon < math.inf:
        said.append(f"epsilon {number(cost.epsilon)} hardly protects a record: take about 1, or 10 at most")
    if cost.delta >= 1 / (records or 100):
        said.append(
            f"delta {number(cost.delta)} would let one record in {number(1 / cost.delta)} be published as it is: "
            f"take far less than 1/n{f' (n = {records})' if records else ''}, such as 1e-6"
        )
    if said:
        warnings.warn("; ".join(said), NotPrivateWarning, stacklevel=users_line())


def _charged(budget: Budget, before: int, charge: tuple[float, float, str]) -> bool:
    """Whether a charge that was interrupted was recorded all the same, after the first ``before`` ones."""
    try:
        return charge in [(each.epsilon, each.delta, each.label) for each in budget.history[before:]]
    except DPModelError:
        return True  # for all that is known


def _told(error: BaseException, name: str, spent: str, remedy: str) -> BaseException:
    """A new error that says what may be said of ``error``."""
    if isinstance(error, WrongOutcome):
        return RunError(f"{name} handed back {error}", why=spent, remedy=remedy)
    if isinstance(error, RunError):  # of a run within this one, which said no more than a wall may
        return RunError(error.what, why=spent, remedy=remedy)
    if isinstance(error, SourceError):  # words and numbers of blocks only
        return SourceError(error.what, why=f"{error.why}; {spent}" if error.why else spent, remedy=error.remedy)
    if isinstance(error, SolverFailure):
        return SolverFailure(error.what, why=f"{error.why}; {spent}", remedy=error.remedy)
    if isinstance(error, SystemExit):
        # A number is what a handler of signals exits with; words, which would be printed, may come from anywhere.
        return SystemExit(error.code if error.code is None or type(error.code) is int else 1)
    if isinstance(error, _ENDINGS):
        return next(kind for kind in _ENDINGS if isinstance(error, kind))()
    return RunError(f"{name} stopped with {type(error).__name__}", why=spent, remedy=remedy)
