"""One run of a mechanism: the budget it is charged to, and a wall that private numbers in an exception do not pass."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from dpmodel.classify.private_outputs import AnyRegression
from dpmodel.compile.cone_program import SOLVER_ERROR, SolverFailure
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.mechanisms.linalg.protocol import Found
from dpmodel.mechanisms.linalg.systems import PrivateSystem
from dpmodel.mechanisms.mechanism import STOPPED, Outcome, Request
from dpmodel.plan.comparison import Plan
from dpmodel.plan.portfolio import by_name
from dpmodel.privacy import Budget, NoiseSource
from dpmodel.progress import Report


class RunError(DPModelError):
    """A mechanism stopped in the middle. The cause is not shown, because it may speak of private data."""


class _WrongOutcome(Exception):
    """What a mechanism handed back instead of an outcome, in words without its numbers."""


def checked_outcome(outcome: Any, model: Any) -> Any:
    """``outcome`` with its point as an array; mechanisms from elsewhere may hand back anything."""
    exact = isinstance(model, PrivateSystem)
    wanted: Any = Found if exact else Outcome
    if not isinstance(outcome, wanted):
        raise _WrongOutcome(f"{type(outcome).__name__} instead of {wanted.__name__}")
    if exact or outcome.x is None:
        return outcome
    size = model.size if isinstance(model, AnyRegression) else model.affine.variables
    try:
        x = np.asarray(outcome.x, dtype=np.float64)
    except (TypeError, ValueError):
        raise _WrongOutcome("a point that is no array of numbers") from None
    if x.shape != (size,):
        raise _WrongOutcome(f"a point of shape {x.shape}, and the model has {size} variables")
    if not np.isfinite(x).all():
        raise _WrongOutcome("a point with entries that are not finite")
    if not (outcome.value is None or isinstance(outcome.value, Real)):
        raise _WrongOutcome(f"a value of type {type(outcome.value).__name__}")
    return replace(outcome, x=x)


def check_budget(budget: Any) -> None:
    """SpecificationError unless ``budget`` is a ``Budget`` or None."""
    if budget is not None and not isinstance(budget, Budget):
        raise SpecificationError(
            f"budget={type(budget).__name__}", why="a budget keeps account", remedy="budget=Budget(epsilon, delta)"
        )


def run_guarded(plan: Plan, model: Any, request: Request, source: NoiseSource, report: Report) -> Any:
    """Run the chosen mechanism; whatever fails in it leaves without the frames that hold private numbers."""
    name = plan.chosen.mechanism
    mine: list[BaseException] = []

    def guarded(stage: str, done: float) -> None:
        try:
            report(stage, done)
        except BaseException as error:  # the caller's own, who saw public words only
            mine.append(error)
            raise

    spent = "the budget of this solve is spent, because private data was read before it failed"
    failure: BaseException
    try:
        algorithm: Any = plan.algorithm or by_name(name, type(model))
        return checked_outcome(algorithm.run(model, request, source, guarded), model)
    except _WrongOutcome as error:
        failure = RunError(f"{name} handed back {error}", why=spent, remedy="another mechanism")
    except SolverFailure as error:
        failure = SolverFailure(error.what, why=f"{error.why}; {spent}", remedy=error.remedy)
    except BaseException as error:
        if error in mine or not isinstance(error, Exception):
            failure = error
        else:
            failure = RunError(f"{name} stopped with {type(error).__name__}", why=spent, remedy="another mechanism")
    # Raised here and not above: an error chained to the first one would carry its frames, and so would a traceback.
    failure.__cause__ = failure.__context__ = None
    raise failure.with_traceback(None)


def run_to_outcome(
    plan: Plan, model: Any, request: Request, source: NoiseSource, report: Report
) -> tuple[Any, BaseException | None]:
    """What the run found, or an outcome without a point; beside it the error that the caller still has to see.

    After a charge there is always a release. A solver without an answer (on released data) is an ordinary outcome; a
    broken mechanism, an interrupt and an error of the caller's own ``progress`` are released as ``STOPPED`` and raised.
    """
    try:
        return run_guarded(plan, model, request, source, report), None
    except SolverFailure as error:
        note = f"{error.what}; the budget of this solve is spent"
        return Outcome(SOLVER_ERROR, None, None, None, notes=(note,)), None
    except BaseException as error:
        failure = error.with_traceback(None)
    return Outcome(STOPPED, None, None, None, notes=("the run ended with an error; its budget is spent",)), failure
