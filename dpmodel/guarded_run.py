"""One run of a mechanism: the budget it is charged to, and a wall that private numbers in an exception do not pass."""

from __future__ import annotations

from typing import Any

from dpmodel.compile.cone_program import SolverFailure
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.mechanisms.mechanism import Request
from dpmodel.plan.comparison import Plan
from dpmodel.plan.portfolio import by_name
from dpmodel.privacy import Budget, NoiseSource
from dpmodel.progress import Report


class RunError(DPModelError):
    """A mechanism stopped in the middle. The cause is not shown, because it may speak of private data."""


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
        algorithm: Any = plan.algorithm or by_name(name)
        return algorithm.run(model, request, source, guarded)
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
