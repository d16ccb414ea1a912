"""``dpmodel explain`` and ``dpmodel plan``: the problem that somebody wrote in a Python file.

The file runs up to its first private release, which is not made: nothing is charged.
"""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from dpmodel.errors import SpecificationError
from dpmodel.execute.wall import ChargeReached, before_charges
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
    """The problem of ``FILE.py`` or ``FILE.py:name``; the file runs up to the first charge, and not what stands under
    ``__main__``.

    Raises
    ------
    SpecificationError
        For files that are not there, and where it is not clear which problem is meant.
    """
    named = re.fullmatch(r"(.+\.py):(\w+)", file)
    path, name = (named[1], named[2]) if named else (file, None)
    if not Path(path).is_file():
        raise SpecificationError(f"no file {path}", remedy="dpmodel plan model.py --epsilon 1")
    scope = _run(path)
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


def _run(path: str) -> dict[str, Any]:
    """What the file has made when it ends, or reaches its first charge."""
    module = ModuleType("dpmodel_model")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look for the module that they are of
    sys.path.insert(0, str(Path(path).resolve().parent))  # as when the file is run by itself
    try:
        with before_charges(), redirect_stdout(sys.stderr):
            exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
    except ChargeReached:
        print(f"({path} ran up to its first private release, which was not made: nothing is spent)", file=sys.stderr)
    finally:
        del sys.modules[module.__name__], sys.path[0]
    return module.__dict__


def _choices(found: dict[str, Problem]) -> str:
    return f"one of {', '.join(found)}" if found else "problem = dpm.Problem(...) at the top level of the file"


def _json(data: object) -> str:
    import json

    return json.dumps(data, indent=2)
