"""Post-processing: all solvers give the same optimum and cost no privacy, so plans compare time."""

from __future__ import annotations

from dpmodel.compile.postprocessing import Postprocessing
from dpmodel.mechanisms.mechanism import Request
from dpmodel.plan.comparison import Plan
from dpmodel.plan.planner import make_plan
from dpmodel.plan.portfolio import AnyMechanism

FREE = Request(0.0, 0.0)


def plan_postprocessing(
    model: Postprocessing,
    mechanism: str | AnyMechanism = "auto",
    *,
    request: Request = FREE,
    compare: bool = True,
) -> Plan:
    """The solvers that apply, compared by the time they are expected to take; arguments and errors as ``make_plan``.

    Who asks for one of CVXPY's solvers, or gives it options, gets it: that is what general-solver is for.
    """
    if mechanism == "auto" and (request.solver is not None or request.options):
        mechanism = "general-solver"
    return make_plan(model, request, mechanism, compare=compare)
