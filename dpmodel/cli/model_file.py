"""``dpmodel explain`` and ``dpmodel plan``: the problem that somebody wrote in a Python file."""

from __future__ import annotations

import argparse
import re
import runpy
from pathlib import Path

from dpmodel.errors import SpecificationError
from dpmodel.problem import Problem


def explain_file(chosen: argparse.Namespace) -> None:
    """Print ``problem.explain(...)``: public facts only, nothing is spent."""
    shown = problem_in(chosen.file).explain(chosen.epsilon, chosen.delta, tree=chosen.tree)
    print(_json(shown.to_dict()) if chosen.json else shown)


def plan_file(chosen: argparse.Namespace) -> None:
    """Print ``problem.plan(...)``: public facts only, nothing is spent."""
    plan = problem_in(chosen.file).plan(chosen.epsilon, chosen.delta, beta=chosen.beta, feasibility=chosen.feasibility)
    print(plan.to_json(indent=2) if chosen.json else plan)


def problem_in(file: str) -> Problem:
    """The problem of ``FILE.py`` or ``FILE.py:name``; the file runs, but not what stands under ``__main__``.

    Raises
    ------
    SpecificationError
        For files that are not there, and where it is not clear which problem is meant.
    """
    named = re.fullmatch(r"(.+\.py):(\w+)", file)
    path, name = (named[1], named[2]) if named else (file, None)
    if not Path(path).is_file():
        raise SpecificationError(f"no file {path}", remedy="dpmodel plan model.py --epsilon 1")
    scope = runpy.run_path(path, run_name="dpmodel_model")
    found = {key: value for key, value in scope.items() if isinstance(value, Problem)}
    if name is not None and name not in found:
        raise SpecificationError(f"{path} has no problem called {name}", remedy=_choices(found))
    if name is None and len(found) > 1 and "problem" not in found:
        raise SpecificationError(f"{path} has {len(found)} problems", remedy=f"{path}:name, {_choices(found)}")
    if not found:
        raise SpecificationError(
            f"{path} has no dpmodel.Problem at its top level",
            why="what stands inside functions, or under __main__, is not run",
            remedy="problem = dpm.Problem(...) outside of functions",
        )
    return found[name or ("problem" if "problem" in found else next(iter(found)))]


def _choices(found: dict[str, Problem]) -> str:
    return f"one of {', '.join(found)}" if found else "problem = dpm.Problem(...) at the top level of the file"


def _json(data: object) -> str:
    import json

    return json.dumps(data, indent=2)
