"""The arrows of DESIGN.md: imports go down the stack, CVXPY's internals stay in one room, and so does randomness."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from source import ROOT, trees

# Higher may import lower, never the other way round; equal levels only inside one room, and among FAMILIES.
LEVEL = {
    "cli": 92,  # the command line shows the others
    "__main__": 95,
    "teach": 90,
    "audit": 90,
    "released.faces": 90,  # fits plan and solve
    "learn": 90,
    "linalg": 85,  # learn stands on it
    "problem": 80,
    "mechanisms": 75,
    "solve": 60,  # with "show", which says what plans and releases are: two folders of one room
    "as_printed": 52,
    # Families stand beside each other.
    "programs": 51,
    "regressions": 51,
    "released": 51,
    "exact": 51,
    "joint": 51,
    "kernels": 45,
    "contract": 35,  # with its parts: "forecast", "options", "release", "collect", "requests", ...
    "compile": 30,
    "numerics": 25,
    "marks": 20,
    "figures": 7,  # draws what it is handed
    # The bottom: what everybody may use and what knows nobody above.
    "privacy": 10,
    "noise": 11,
    "memo": 8,
    "losses": 6,  # writes what the reader of regressions reads
    "errors": 5,
    "_types": 0,
    "text": 6,
}
OF_CONTRACT = ("forecast", "known", "release", "collect", "options", "requests", "simulate", "intervals")
FAMILIES = {"programs", "regressions", "released", "exact", "joint"}


def room_of(module: str) -> str:
    """``dpmodel.compile.footprint`` -> ``compile``; ``dpmodel`` -> ``""``."""
    parts = module.split(".")[1:]
    if parts[:2] == ["released", "faces"]:
        return "released.faces"
    if parts[:1] == ["show"]:
        return "solve"
    if parts in ([name] for name in OF_CONTRACT):
        return "contract"
    return parts[0] if parts else ""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {path: module_of(path) for path in sorted(ROOT.rglob("*.py"))}
BRIDGE = ROOT / "compile" / "bridge.py"


def _names(node: ast.AST, module: str, package: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            here = module.split(".") if package else module.split(".")[:-1]
            base = ".".join([*here[: len(here) - node.level + 1], *([base] if base else [])])
        for alias in node.names:
            yield f"{base}.{alias.name}" if is_module(f"{base}.{alias.name}") else base


@cache
def is_module(name: str) -> bool:
    below = ROOT.parent.joinpath(*name.split("."))
    return name.startswith("dpmodel.") and (below.is_dir() or below.with_suffix(".py").exists())


def _eager(node: ast.AST) -> Iterator[ast.AST]:
    """Statements that run when the module is imported (not polytopes of functions, not TYPE_CHECKING)."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from _eager(child)


def _imported(path: Path, nodes: Iterator[ast.AST]) -> set[str]:
    return {name for node in nodes for name in _names(node, FILES[path], path.name == "__init__.py")}


@cache
def imports() -> dict[Path, set[str]]:
    return {path: _imported(path, ast.walk(tree)) for path, tree in trees().items()}


@cache
def attributes() -> dict[Path, set[str]]:
    return {path: {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)} for path, tree in trees().items()}


def test_every_room_has_a_level():
    rooms = {room_of(module) for module in FILES.values()} - {""}
    assert rooms <= set(LEVEL), f"rooms without a level: {sorted(rooms - set(LEVEL))}"


def goes_up(module: str, name: str) -> bool:
    """Whether what ``module`` imports stands above it; the public face collects names from everywhere."""
    if module == "dpmodel" or name.split(".")[0] != "dpmodel":
        return False
    room, below = room_of(module), room_of(name)
    if below == "":
        return LEVEL[room] < 90
    return below != room and LEVEL[below] >= LEVEL[room] and not {below, room} <= FAMILIES


def test_imports_go_down():
    up = [
        f"{FILES[path]} -> {name}" for path, names in imports().items() for name in names if goes_up(FILES[path], name)
    ]
    assert up == []


def test_the_checker_sees_an_arrow_that_goes_up():
    for code in ("def f():\n    from dpmodel.solve import planner\n", "from ..solve import planner"):
        names = {n for node in ast.walk(ast.parse(code)) for n in _names(node, "dpmodel.compile.x", False)}
        assert names == {"dpmodel.solve.planner"}
        assert all(goes_up("dpmodel.compile.x", name) for name in names)
    assert goes_up("dpmodel.compile.x", "dpmodel") and goes_up("dpmodel.release", "dpmodel.show.explain")
    assert not goes_up("dpmodel.solve.x", "dpmodel.compile.y") and not goes_up("dpmodel.solve.x", "dpmodel.solve.y")


def test_the_bottom_knows_nobody_above():
    """Beside the arrows: what these may know of the rooms at the bottom, and of anything else."""
    allowed = {
        "dpmodel.privacy": {"privacy", "errors", "text", "figures"},
        "dpmodel.errors": set(),
        "dpmodel.text": {"errors", "_types"},
        "dpmodel.figures": {"text", "errors", "_types"},
    }
    for start, rooms in allowed.items():
        for path, module in FILES.items():
            if (module + ".").startswith(start + "."):
                assert {room_of(name) for name in imports()[path] if name.startswith("dpmodel")} <= rooms, module


# ------------------------------------------------------------------ CVXPY's internals
# The public surface of CVXPY: what its documentation tells users to import.
_PUBLIC_CVXPY = {"cvxpy", "cvxpy.error"}
# Private attributes of CVXPY objects, of which the package may touch one outside the bridge.
_PRIVATE_CVXPY = {"_value", "_status", "_solution", "_cache", "_solver_cache", "_solver_stats", "_lazy_canonical_form"}


def test_only_the_bridge_knows_cvxpys_internals():
    found = set()
    for path, module in FILES.items():
        if path == BRIDGE:
            continue
        internal = {name for name in imports()[path] if name.split(".")[0] == "cvxpy"} - _PUBLIC_CVXPY
        touched = attributes()[path] & _PRIVATE_CVXPY
        touched -= {"_value"} if module == "dpmodel.problem" else set()
        touched -= {"_status"} if "status" in path.stem else set()
        found |= {f"{module}: {name}" for name in internal | touched}
    assert found == set()


def test_cvxpy_internals_of_the_bridge_are_listed():
    """So that an upgrade of CVXPY has one list to look at."""
    assert {name for name in imports()[BRIDGE] if name.startswith("cvxpy")} == {
        "cvxpy",
        "cvxpy.constraints",
        "cvxpy.reductions.chain",
        "cvxpy.reductions.cvx_attr2constr",
        "cvxpy.reductions.dcp2cone.cone_matrix_stuffing",
        "cvxpy.reductions.dcp2cone.dcp2cone",
        "cvxpy.reductions.eliminate_zero_sized",
        "cvxpy.reductions.flip_objective",
        "cvxpy.reductions.inverse_data",
        "cvxpy.reductions.matrix_stuffing",
        "cvxpy.reductions.solution",
    }


# ------------------------------------------------------------------ privacy libraries and randomness
_LIBRARIES = {"opendp", "dp_accounting"}


def test_privacy_libraries_are_imported_lazily_and_only_by_privacy():
    used = {path: {name.split(".")[0] for name in names} & _LIBRARIES for path, names in imports().items()}
    eager = {path: {name.split(".")[0] for name in _imported(path, _eager(tree))} for path, tree in trees().items()}
    assert [FILES[path] for path in used if eager[path] & _LIBRARIES] == []
    assert [FILES[path] for path in used if used[path] and room_of(FILES[path]) != "privacy"] == []
    assert set.union(*used.values()) == _LIBRARIES


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


def test_randomness_lives_in_privacy():
    """Elsewhere only public randomness, with a fixed or given seed, that decides nothing about privacy: the shapes of
    synthetic examples."""
    rooms = {"privacy", "cli", "teach", "__main__"}
    found = {FILES[path]: _random_uses(tree) for path, tree in trees().items() if room_of(FILES[path]) not in rooms}
    assert {module: uses for module, uses in found.items() if uses} == {}


def test_the_search_for_randomness_finds_it():
    for code in ("import random", "from numpy.random import default_rng", "import numpy as np\nnp.random.normal()"):
        assert _random_uses(ast.parse(code)), code
    assert _random_uses(trees()[ROOT / "privacy" / "noise.py"])


# ------------------------------------------------------------------ private values
def test_private_values_are_read_where_they_may_be():
    """The vault by the compiler alone, what it hands on by mechanisms alone, and there in ``run`` or a helper of it."""
    unsealing = {FILES[path] for path, names in attributes().items() if "unseal" in names}
    assert unsealing <= {
        "dpmodel.marks.private",
        "dpmodel.compile.form",
        "dpmodel.compile.rows",
        "dpmodel.regressions.rows",
        "dpmodel.joint.table",
    }
    rooms = {"kernels", "programs", "regressions", "released", "exact", "joint", "as_printed"}
    reading = {FILES[path] for path, names in attributes().items() if names & {"read_private", "read_rows"}}
    assert reading and all(room_of(name) in rooms for name in reading), reading
    for path in (path for path in FILES if room_of(FILES[path]) in rooms):
        for node in ast.walk(trees()[path]):
            if isinstance(node, ast.FunctionDef) and node.name in ("eligible", "forecast", "__str__", "__repr__"):
                called = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                called |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                read = called & {
                    "read_private",
                    "released_parts",
                    "private_theta",
                    "private_entries",
                    "unseal",
                    "read_rows",
                }
                assert not read, f"{FILES[path]}.{node.name}: {read}"
