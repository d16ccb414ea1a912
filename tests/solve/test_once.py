"""The charge and the run are written once: no other room charges a budget or runs a mechanism."""

from __future__ import annotations

import ast
from pathlib import Path

import dpmodel

ROOT = Path(dpmodel.__file__).parent
BELOW = {"mechanisms", "privacy"}  # what runs is there, and what is charged


def _callers(source: str, method: str) -> bool:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == method for call in calls)


def _files(method: str) -> set[str]:
    found = (path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in BELOW)
    return {str(path.relative_to(ROOT)) for path in found if _callers(path.read_text(), method)}


def test_one_file_charges() -> None:
    assert _files("charge") == {"execute/wall.py"}


def test_the_conductor_and_a_measurement_run() -> None:
    """Both hand the run to ``charge_then_run``."""
    found = {each for each in _files("run") if not each.startswith("numerics/")}  # those run solvers
    assert found == {"execute/conductor.py", "queries/measure.py"}
    for name in ("execute/conductor.py", "queries/measure.py"):
        assert "charge_then_run(" in (ROOT / name).read_text()


def test_a_second_place_is_seen() -> None:
    assert _callers("def f(budget):\n    budget.charge(1.0)", "charge")
    assert not _callers("charge(1.0)", "charge")
