"""The arrows of DESIGN.md: imports go down the stack, CVXPY's internals stay in one room, and so does randomness."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dpmodel

ROOT = Path(dpmodel.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Higher may import lower, never the other way round; equal levels only inside one room.
LEVEL = {
    "cli": 92,  # the command line shows the others
    "__main__": 95,
    "teach": 90,
    "queries": 90,
    "learn": 90,
    "linalg": 85,  # learn stands on it
    "problem": 80,
    "execute": 70,
    "plan": 60,
    "models": 55,
    "release.explanation": 52,
    "mechanisms": 50,
    "classify": 40,
    "compile": 30,
    "numerics": 25,
    "annotate": 20,
    # The bottom: what everybody may use and what knows nobody above.
    "privacy": 10,
    "release": 10,
    "errors": 5,
    "users_line": 0,
    "_types": 0,
    "text": 0,
}

# The public surface of CVXPY: what its documentation tells users to import.
_PUBLIC_CVXPY = {"cvxpy", "cvxpy.error"}


def room_of(module: str) -> str:
    """``dpmodel.compile.standard_form.footprint`` -> ``compile``; ``dpmodel`` -> ``""``."""
    parts = module.split(".")[1:]
    if parts[:2] == ["release", "explanation"]:
        return "release.explanation"
    return parts[0] if parts else ""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _names(node: ast.AST, module: str, package: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            here = module.split(".") if package else module.split(".")[:-1]
            base = ".".join([*here[: len(here) - node.level + 1], *([base] if base else [])])
        for alias in node.names:
            below = ROOT.parent / Path(*base.split(".")) / alias.name
            is_module = below.is_dir() or below.with_suffix(".py").exists()
            yield f"{base}.{alias.name}" if is_module else base


def imports_of(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree, module = tree_of(path), module_of(path)
    nodes = _eager(tree) if top_level_only else ast.walk(tree)
    return {name for node in nodes for name in _names(node, module, path.name == "__init__.py")}


def _eager(node: ast.AST) -> Iterator[ast.AST]:
    """Statements that run when the module is imported (not bodies of functions, not TYPE_CHECKING)."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from _eager(child)


def test_every_room_has_a_level():
    rooms = {room_of(module_of(path)) for path in FILES} - {""}
    assert rooms <= set(LEVEL), f"rooms without a level: {sorted(rooms - set(LEVEL))}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_down(path):
    module = module_of(path)
    room = room_of(module)
    if module == "dpmodel":
        return  # the public face collects names from everywhere
    if room == "release":
        # explanation.py, which stands above the plan, is imported by its own path only.
        assert all(room_of(name) != "release.explanation" for name in imports_of(path)), module
    for name in imports_of(path):
        if name == "dpmodel" or name.startswith("dpmodel."):
            below = room_of(name)
            if below == "":
                assert LEVEL[room] >= 90, f"{module} imports the public face"
                continue
            assert below == room or LEVEL[below] < LEVEL[room], f"{module} imports {name}, which stands above it"


def test_the_checker_sees_an_arrow_that_goes_up():
    bad = ast.parse("def f():\n    from dpmodel.plan import planner\n")
    names = {name for node in ast.walk(bad) for name in _names(node, "dpmodel.compile.x", False)}
    assert names == {"dpmodel.plan.planner"}
    assert LEVEL[room_of("dpmodel.plan.planner")] > LEVEL["compile"]
    relative = ast.parse("from ..plan import planner")
    assert {n for node in ast.walk(relative) for n in _names(node, "dpmodel.compile.x", False)} == {
        "dpmodel.plan.planner"
    }


@pytest.mark.parametrize("room", ["privacy", "errors", "text"])
def test_the_bottom_knows_nobody_above(room):
    allowed = {"privacy": {"privacy", "errors"}, "errors": set(), "text": set()}[room]
    for path in FILES:
        if room_of(module_of(path)) == room:
            rooms = {room_of(name) for name in imports_of(path) if name.startswith("dpmodel")}
            assert rooms <= allowed, module_of(path)


def test_the_release_knows_only_text():
    for name in ("release", "html"):
        rooms = {room_of(n) for n in imports_of(ROOT / "release" / f"{name}.py") if n.startswith("dpmodel")}
        assert rooms <= {"release", "text"}
    assert {n for n in imports_of(ROOT / "release" / "release.py") if n.startswith("cvxpy")} == set()


def test_protocol_and_registry_do_not_import_each_other():
    for path in (ROOT / "mechanisms").rglob("*.py"):
        assert not any(name.startswith("dpmodel.plan") for name in imports_of(path)), path.name


# ------------------------------------------------------------------ CVXPY's internals
@pytest.mark.parametrize("path", [p for p in FILES if p.name != "cvxpy_bridge.py"], ids=module_of)
def test_only_the_bridge_imports_cvxpys_internals(path):
    names = {name for name in imports_of(path) if name.split(".")[0] == "cvxpy"}
    assert names <= _PUBLIC_CVXPY, module_of(path)


# Private attributes of CVXPY objects that the package may read or write outside the bridge.
_ALLOWED_PRIVATE = {"problem": {"_value"}}


@pytest.mark.parametrize("path", [p for p in FILES if p.name != "cvxpy_bridge.py"], ids=module_of)
def test_no_private_attribute_of_a_cvxpy_problem_is_touched(path):
    watched = {"_value", "_status", "_solution", "_cache", "_solver_cache", "_solver_stats", "_lazy_canonical_form"}
    used = {node.attr for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)} & watched
    allowed = _ALLOWED_PRIVATE.get(room_of(module_of(path)), set())
    own = {"_status"} if "status" in path.stem else set()
    assert used <= allowed | own, module_of(path)


def test_cvxpy_internals_of_the_bridge_are_listed():
    """So that an upgrade of CVXPY has one list to look at."""
    names = {
        name for name in imports_of(ROOT / "compile" / "standard_form" / "cvxpy_bridge.py") if name.startswith("cvxpy")
    }
    assert names == {
        "cvxpy",
        "cvxpy.constraints",
        "cvxpy.reductions.chain",
        "cvxpy.reductions.cvx_attr2constr",
        "cvxpy.reductions.dcp2cone.cone_matrix_stuffing",
        "cvxpy.reductions.dcp2cone.dcp2cone",
        "cvxpy.reductions.eliminate_zero_sized",
        "cvxpy.reductions.flip_objective",
        "cvxpy.reductions.solution",
        "cvxpy.reductions.solvers.conic_solvers.conic_solver",
    }


# ------------------------------------------------------------------ privacy libraries and randomness
_LIBRARIES = ("opendp", "dp_accounting")


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_privacy_libraries_are_imported_lazily_and_only_by_privacy(path):
    eager = {name.split(".")[0] for name in imports_of(path, top_level_only=True)}
    anywhere = {name.split(".")[0] for name in imports_of(path)}
    assert not eager & set(_LIBRARIES), module_of(path)
    if room_of(module_of(path)) != "privacy":
        assert not anywhere & set(_LIBRARIES), module_of(path)


def test_privacy_does_use_both_libraries():
    used = {n.split(".")[0] for p in (ROOT / "privacy").glob("*.py") for n in imports_of(p)}
    assert set(_LIBRARIES) <= used


def _random_uses(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("random", "default_rng", "RandomState", "rvs"):
            found.append(ast.unparse(node))
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in ("random", "secrets")]
            found += [a.name for a in node.names if a.name.startswith("numpy.random")]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("random", "secrets"):
            found.append(str(node.module))
        if isinstance(node, ast.ImportFrom) and (node.module or "") in ("numpy", "numpy.random"):
            found += [f"{node.module}.{a.name}" for a in node.names if node.module != "numpy" or a.name == "random"]
    return found


# Public randomness, with a fixed or given seed, that decides nothing about privacy: shapes of made-up examples.
_MADE_UP_DATA = {"cli", "teach", "__main__"}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_randomness_lives_in_privacy(path):
    if room_of(module_of(path)) in {"privacy", *_MADE_UP_DATA}:
        return
    assert _random_uses(tree_of(path)) == [], module_of(path)


def test_the_search_for_randomness_finds_it():
    for code in ("import random", "from numpy.random import default_rng", "import numpy as np\nnp.random.normal()"):
        assert _random_uses(ast.parse(code)), code
    assert _random_uses(tree_of(ROOT / "privacy" / "noise.py"))


# ------------------------------------------------------------------ private values
def test_only_compile_reads_the_vault():
    readers = {
        module_of(path)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr == "unseal"
    }
    assert readers <= {
        "dpmodel.annotate.private",
        "dpmodel.compile.standard_form.form",
        "dpmodel.compile.regression.read_rows",
    }


def test_only_mechanisms_read_private_values():
    readers = {
        module_of(path)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr in ("read_private", "read_rows")
    }
    assert readers, "somebody must"
    assert all(name.startswith("dpmodel.mechanisms.") for name in readers), readers


def test_private_values_enter_in_run_only():
    """In a mechanism's file, ``read_private`` and ``released_parts`` are called from ``run`` (or a helper of it)."""
    for path in (ROOT / "mechanisms").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef) and node.name in ("eligible", "forecast", "__str__", "__repr__"):
                called = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                called |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                assert not called & {"read_private", "released_parts", "private_theta", "unseal", "read_rows"}, (
                    path.name
                )


# ------------------------------------------------------------------ what importing costs
def _modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    return {line.split(".")[0] for line in done.stdout.splitlines()}


def test_importing_dpmodel_is_light():
    loaded = _modules_after("import dpmodel")
    assert "cvxpy" in loaded
    assert not loaded & {"opendp", "dp_accounting", "sklearn", "pandas", "matplotlib", "rich"}


def test_classifying_and_planning_do_not_load_opendp():
    code = """
import cvxpy as cp, dpmodel as dpm
b = dpm.Private([1.5, 2.5], name="b", unit="entry", linf=1)
x = cp.Variable(2, nonneg=True)
dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b]).plan(epsilon=1)
"""
    assert "opendp" not in _modules_after(code)
