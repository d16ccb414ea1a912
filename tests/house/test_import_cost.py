"""What an import loads: modules by name, no clock."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import dpmodel

# Extras, and what only a charge, a page or a file needs.
HEAVY = {"opendp", "dp_accounting", "flint", "rich", "sklearn", "pandas", "polars", "matplotlib", "duckdb", "asyncio"}
FAMILIES = {"dpmodel.solve", "dpmodel.mechanisms", "dpmodel.problem", "dpmodel.released", "dpmodel.linalg"}
# Mechanisms of models that are none of programs.
OTHERS = {
    "dpmodel.regressions.descent",
    "dpmodel.exact.pin_hull",
    "dpmodel.released.admm",
}
PLAN = """
import cvxpy as cp
b = dpmodel.Private([1.5, 2.5], name="b", unit="entry", linf=1)
x = cp.Variable(2, nonneg=True)
dpmodel.Problem(cp.Minimize(cp.sum(x)), [x >= b]).classify()
dpmodel.Problem(cp.Minimize(cp.sum(x)), [x >= b]).plan(epsilon=1)
"""
# In this order in one process: each line is a step, and what is not loaded after it.
STEPS = {
    "import dpmodel": HEAVY | FAMILIES | {"cvxpy", "scipy", "numpy", "highspy"},
    "dpmodel.Private, dpmodel.Records": HEAVY | FAMILIES,
    "dpmodel.Problem, dpmodel.measure": HEAVY | {"dpmodel.learn", "dpmodel.programs.weights"} | OTHERS,
    PLAN: {"opendp", "dpmodel.learn"} | OTHERS,
}


def test_modules_that_are_not_loaded() -> None:
    assert all(importlib.util.find_spec(name) for name in FAMILIES | OTHERS)
    code = "import sys\n" + "\n".join(f"{step}\nprint(*sys.modules)" for step in STEPS)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for (step, absent), loaded in zip(STEPS.items(), run.stdout.splitlines(), strict=True):
        assert not set(loaded.split()) & absent, step


def test_type_checkers_see_the_names_that_are_found_when_asked_for() -> None:
    tree = ast.parse(Path(dpmodel.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in ast.walk(block) if isinstance(node, ast.ImportFrom)]
    seen = {(node.module, each.name) for node in imports for each in node.names}
    modules = set(dpmodel._MODULES) - {"learn"}  # which needs an extra
    assert seen == {(home, name) for name, home in dpmodel._HOME.items()} | {("dpmodel", name) for name in modules}
    assert {name for _, name in seen} == set(dpmodel.__all__) <= set(dir(dpmodel))
    assert "learn" in dir(dpmodel)  # so that completion finds it
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dpmodel.nothing  # noqa: B018
