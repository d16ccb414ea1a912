"""What the commands of ``dpmodel`` do: demo, explore, ledger, explain and plan."""

from __future__ import annotations

import argparse
import json
import re
import sys
import traceback
import webbrowser
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.privacy import Budget
from dpmodel.privacy.budget import CHARGE_COLUMNS
from dpmodel.problem import Problem
from dpmodel.requests import Priced
from dpmodel.solve.wall import ChargeReached, before_charges
from dpmodel.text import TextTable, number, wrapped


def show_demo(chosen: argparse.Namespace) -> None:
    """Print it, or its release as JSON."""
    from dpmodel.teach import lower_bounds as lesson

    model = lesson.transportation()
    requested: dict[str, Any] = {"epsilon": chosen.epsilon, "delta": chosen.delta}
    requested["feasibility"] = "strict" if chosen.strict else Priced({lesson.SERVED: lesson.SHORT})
    if not chosen.json:
        about = "Shipping from two plants to three markets at least cost; the markets' demands are private"
        short = "" if chosen.strict else f", and a case that is missing there costs {number(lesson.SHORT)} dollars"
        print(wrapped(f"{about}{short}."), "\n")
        print(model.problem.plan(**requested), "\n")
    model.problem.solve(**requested)
    release = model.problem.release
    assert release is not None
    if chosen.json:
        print(release.to_json(indent=2))
        return
    shipped = np.asarray(model.shipments.value)
    rows = [(plant, *(number(round(v, 1)) for v in shipped[i])) for i, plant in enumerate(lesson.PLANTS)]
    rows.append(("arrives", *(number(round(v, 1)) for v in shipped.sum(axis=0))))
    print(str(TextTable(("cases shipped", *lesson.MARKETS), rows, title="Solution (what is released)")), "\n")
    print(release)
    if release.measured and not chosen.strict:
        print("", release.compare(), sep="\n")
    truth = ", ".join(f"{market} {number(v)}" for market, v in zip(lesson.MARKETS, lesson.DEMAND, strict=True))
    print(f"\n{wrapped(f'Not released, but in the textbook that this is from: the true demand is {truth}.')}")
    following = "dpmodel explore, dpmodel demo --strict, taxonomy, reconstruct, and for your own: dpmodel plan FILE.py"
    print(wrapped(f"Next: {following}"))


# ---- ``dpmodel explore``: a page on this disk to play with, in the browser; no server, nothing fetched


PAGE = Path(dpmodel.__file__).parent / "explorer" / "index.html"


def show_explorer(chosen: argparse.Namespace) -> None:
    """Open the page; with ``--path`` or ``--json`` only say where it is.
    Errors: SpecificationError, if there is no browser to open it in."""
    if chosen.json:
        print(json.dumps({"path": str(PAGE), "url": PAGE.as_uri()}, indent=2))
    elif chosen.path:
        print(PAGE)
    elif webbrowser.open(PAGE.as_uri()):
        print(f"Opened {PAGE} in the browser.")
    else:
        raise SpecificationError("no browser to open the page in", remedy=f"open {PAGE} in one")


# ---- ``dpmodel ledger``: what a budget's file says was spent, and whether it can be trusted to be whole


def audit_mechanism(chosen: argparse.Namespace) -> int:
    """Print the report, or it as JSON; 1 where something is wrong or nothing was tried.
    Errors: SpecificationError, if there is no such package or name in it."""
    from dpmodel import audit

    mechanism = _imported(chosen.mechanism) if ":" in chosen.mechanism else chosen.mechanism
    models = None if chosen.models is None else _imported(chosen.models)
    report = audit.mechanism(
        mechanism() if isinstance(mechanism, type) else mechanism,
        [models] if callable(models) else models,
        chosen.epsilon,
        chosen.delta,
        neighbors=chosen.neighbors,
        runs=chosen.runs,
    )
    print(report.to_json(indent=2) if chosen.json else report)
    return 0 if report.ok else 1


def _imported(path: str) -> Any:
    """``package.module:NAME``, also of the folder that the command is run in."""
    module, _, name = path.partition(":")
    sys.path.insert(0, "")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SpecificationError(
            f"{path}: {error}", remedy="package.module:NAME, installed or in this folder"
        ) from None
    finally:
        sys.path.remove("")


def show_ledger(chosen: argparse.Namespace) -> None:
    """Print the charges; ``verify`` says one line, or raises what is wrong.
    Errors: SpecificationError, for files that are not there or no ledger, and where one was changed: it says which
    charge."""
    budget = Budget.open(chosen.file)
    told = budget.to_dict()
    spent = budget.spent
    if chosen.json:
        print(json.dumps(told, indent=2))
    elif chosen.what == "verify":
        print(
            f"whole: {len(told['history'])} charges, epsilon {number(spent.epsilon)} of {number(budget.epsilon)}, "
            f"delta {number(spent.delta)} of {number(budget.delta)}"
        )
    else:
        title = f"Budget of epsilon {number(budget.epsilon)}, delta {number(budget.delta)}"
        print(str(TextTable(CHARGE_COLUMNS, budget.charges, title=title)))


# ---- ``dpmodel explain`` and ``dpmodel plan``: the problem that somebody wrote in a Python file
#
# The file runs up to its first private release, which is not made: nothing is charged.


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
    Errors: SpecificationError, for files that are not there or do not run, and where it is not clear which problem is
    meant."""
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
        plain = next((key for key, value in scope.items() if isinstance(value, cp.Problem)), None)
        raise SpecificationError(
            f"{path} has no dpmodel.Problem at its top level before its first private release",
            why="" if plain is None else f"{plain} is a problem of CVXPY, in which nothing is private",
            remedy="problem = dpm.Problem(...) outside of functions and of __main__, before anything is released",
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
    except DPModelError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        line, words = lines[-1] if lines else None, str(error)
        if isinstance(error, SyntaxError):
            line, words = error.lineno, error.msg
        raise SpecificationError(
            f"{path}{'' if line is None else f', line {line}'}: {type(error).__name__}: {words}",
            why="the file runs up to its first private release",
            remedy=f"python {path}",
        ) from None
    finally:
        del sys.modules[module.__name__], sys.path[0]
    return module.__dict__


def _choices(found: dict[str, Problem]) -> str:
    return f"one of {', '.join(found)}" if found else "problem = dpm.Problem(...) at the top level of the file"


def _json(data: object) -> str:
    import json

    return json.dumps(data, indent=2)
