"""The charge and the run are written once: no other room charges a budget or runs a mechanism."""

from __future__ import annotations

import ast
from pathlib import Path

import dpmodel

ROOT = Path(dpmodel.__file__).parent
# What runs is there, what is charged, and what audits both.
BELOW = {"programs", "regressions", "released", "exact", "joint", "kernels", "as_printed", "privacy", "audit"}


def _callers(source: str, method: str) -> bool:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == method for call in calls)


def _files(method: str) -> set[str]:
    rooms = ((path, path.relative_to(ROOT).parts) for path in ROOT.rglob("*.py"))
    found = (path for path, parts in rooms if parts[0] not in BELOW or "faces" in parts)
    return {str(path.relative_to(ROOT)) for path in found if _callers(path.read_text(), method)}


def test_one_file_charges() -> None:
    assert _files("charge") == {"solve/wall.py"}


def test_the_conductor_and_a_measurement_run() -> None:
    """All hand the run to ``charge_then_run``."""
    found = {each for each in _files("run") if not each.startswith("numerics/")}  # those run solvers
    faces = ("measure", "quantiles", "query_release")
    mine = {"solve/execute.py", *(f"released/faces/{name}.py" for name in faces)}
    # The one of the others reads numbers that are out, the other draws its data.
    assert found == mine | {"released/faces/refits.py", "simulate.py"}
    for name in mine:
        assert "charge_then_run(" in (ROOT / name).read_text()


def test_a_second_place_is_seen() -> None:
    assert _callers("def f(budget):\n    budget.charge(1.0)", "charge")
    assert not _callers("charge(1.0)", "charge")
