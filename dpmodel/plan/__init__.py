"""Cell -> mechanism: the registry, the planner and the plan."""

from dpmodel.plan.planner import Candidate, Plan, make_plan, select_mechanism
from dpmodel.plan.registry import by_name, register_mechanism

__all__ = ["Candidate", "Plan", "by_name", "make_plan", "register_mechanism", "select_mechanism"]
