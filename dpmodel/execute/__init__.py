"""Options -> plan -> charge -> run behind the privacy wall: written once, for every face of the house."""

from dpmodel.execute.conductor import Executed, execute
from dpmodel.execute.wall import RunError, charge_then_run, check_budget

__all__ = ["Executed", "RunError", "charge_then_run", "check_budget", "execute"]
