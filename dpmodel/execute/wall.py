"""The privacy wall: first the charge, then one run, and no exception that carries private numbers out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dpmodel.compile.cone_program import SolverFailure
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.models.contract import WrongOutcome
from dpmodel.privacy import Budget
from dpmodel.progress import Report

T = TypeVar("T")
_SPENT = "the budget of this solve is spent, because private data was read before it failed"


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
    epsilon: float,
    delta: float,
    label: str,
    report: Report,
    remedy: str = "another mechanism",
) -> tuple[T | None, BaseException | None]:
    """What ``run`` hands back, or why it did not, without the frames that hold private numbers.

    The only place where private data is read: ``run`` is called once, after the charge, and its exceptions are told by
    their type alone. Interrupts and errors of the caller's own ``report``, which saw public words only, pass as they
    are. With nothing to spend nothing private is read, and the errors of this package are passed on whole.

    Parameters
    ----------
    run : gets a ``report`` to call with (stage, share done). ``name`` : of the mechanism, for messages.
    epsilon, delta, label : of the charge.

    Raises
    ------
    BudgetExceededError
        Before ``run`` is called.
    """
    free = epsilon == 0 == delta
    if budget is not None and not free:
        budget.charge(epsilon, delta, label=label)
    mine: list[BaseException] = []

    def guarded(stage: str, done: float) -> None:
        try:
            report(stage, done)
        except BaseException as error:
            mine.append(error)
            raise

    spent = "nothing was spent" if free else _SPENT
    failure: BaseException
    try:
        return run(guarded), None
    except WrongOutcome as error:
        failure = RunError(f"{name} handed back {error}", why=spent, remedy=remedy)
    except SolverFailure as error:
        failure = SolverFailure(error.what, why=f"{error.why}; {spent}", remedy=error.remedy)
    except BaseException as error:
        if error in mine or not isinstance(error, Exception) or (free and isinstance(error, DPModelError)):
            failure = error
        else:
            failure = RunError(f"{name} stopped with {type(error).__name__}", why=spent, remedy=remedy)
    # An error chained to the first one would carry its frames, and so would a traceback.
    failure.__cause__ = failure.__context__ = None
    return None, failure.with_traceback(None)
