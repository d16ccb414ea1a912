"""What an import loads: modules by name, no clock."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dpmodel

# Extras, and what only a charge, a page or a file needs.
HEAVY = {"opendp", "dp_accounting", "flint", "rich", "sklearn", "pandas", "polars", "matplotlib", "duckdb", "pytest"}
FAMILIES = {"dpmodel.plan", "dpmodel.mechanisms", "dpmodel.problem", "dpmodel.queries", "dpmodel.linalg"}
CASES = {
    "import dpmodel": HEAVY | FAMILIES | {"cvxpy", "scipy", "numpy", "highspy"},
    "import dpmodel; dpmodel.Private, dpmodel.Records": HEAVY | FAMILIES,
    "import dpmodel; dpmodel.Problem, dpmodel.measure": HEAVY | {"dpmodel.learn", "asyncio"},
}


@pytest.mark.parametrize("code", CASES)
def test_modules_that_are_not_loaded(code: str) -> None:
    script = f"{code}\nimport sys\nprint(*sys.modules, sep=chr(10))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    # CVXPY loads some of its solvers' friends itself.
    plain = "import cvxpy, sys\nprint(*sys.modules, sep=chr(10))"
    anyway = subprocess.run([sys.executable, "-c", plain], capture_output=True, text=True, check=True).stdout.split()
    allowed = set(anyway) if "cvxpy" not in CASES[code] else set()
    assert not (loaded & CASES[code]) - allowed


def test_type_checkers_see_the_names_that_are_found_when_asked_for() -> None:
    tree = ast.parse(Path(dpmodel.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (node.module, each.name) for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for each in node.names
    }
    assert seen == {(home, name) for name, home in dpmodel._HOME.items()}
    assert {name for _, name in seen} == set(dpmodel.__all__)
    assert set(dpmodel.__all__) <= set(dir(dpmodel))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dpmodel.nothing  # noqa: B018
