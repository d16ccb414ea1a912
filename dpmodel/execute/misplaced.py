"""What callers really write: CVXPY's own arguments, solvers as first argument, names of other libraries."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from dpmodel.errors import SpecificationError
from dpmodel.numerics.cone_program import installed_solvers
from dpmodel.plan.registry import KINDS

# What CVXPY's own solve takes besides a solver and its options; none of it has a meaning under noise.
_CVXPYS = ("gp", "qcp", "requires_grad", "enforce_dpp", "ignore_dpp", "canon_backend", "warm_start", "solver_path")
# Settings that stand on objects.
_OBJECTS = {
    "clip": "dpm.Problem(objective, constraints, clip=...)",
    "vertices": "mechanism=dpm.mechanisms.VertexExponential(vertices=...)",
    "slack_rows": "feasibility=dpm.AllBut(rows=...)",
    "rows": "feasibility=dpm.AllBut(rows=...)",
    "alpha": "feasibility=dpm.AllBut(alpha=...)",
    "margin": "feasibility=dpm.Exact(margin=...)",
    "target": "goal=dpm.Target(...)",
    "penalty": "goal=dpm.Penalty(...)",
}
_OTHER_NAMES = {"seed": "rng", "random_state": "rng", "options": "solver_options", "eps": "epsilon", "prob": "beta"}


def refuse_misplaced(function: Callable[..., Any], positional: Mapping[str, Any], unknown: Mapping[str, Any]) -> None:
    """What CVXPY's ``solve`` takes and ``function`` does not: solvers as first argument, options as keywords.

    Raises
    ------
    SpecificationError
        With the argument that says it here.
    """
    for place, value in positional.items():
        is_solver = isinstance(value, str) and value.upper() in installed_solvers()
        if is_solver or (isinstance(value, str) and value in _mechanisms()):
            right = f"solver={value.upper()!r}" if is_solver else f"mechanism={value!r}"
            raise SpecificationError(
                f"{place}={value!r} is not a number",
                why=f"the first arguments of {function.__name__} are epsilon and delta",
                remedy=f"{function.__name__}(epsilon=1.0, {right})",
            )
    parameters = inspect.signature(function).parameters if unknown else ()
    own = [name for name in parameters if name not in ("self", "unknown")]
    for name, value in unknown.items():
        shown = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
        near = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else difflib.get_close_matches(name, own, 1, 0.8)
        if name in _CVXPYS:
            why, remedy = "it is an argument of CVXPY's solve that has no meaning here", "leave it out"
        elif name in _OBJECTS:
            why, remedy = f"no argument of {function.__name__}", _OBJECTS[name]
        elif near and near[0] in own:
            why, remedy = f"no argument of {function.__name__}", f"{near[0]}=..."
        else:
            why = f"no argument of {function.__name__}, which does not pass keywords on to a solver"
            remedy = f"solver=..., solver_options={{{name!r}: {shown}}}"
        raise SpecificationError(f"{name}={shown}", why=why, remedy=remedy)


def _mechanisms() -> tuple[str, ...]:
    return tuple(mechanism.name for kind in KINDS.values() for mechanism in kind.mechanisms)
