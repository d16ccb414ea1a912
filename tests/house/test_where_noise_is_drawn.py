"""Noise is drawn where a reader looks for it: in the file whose ``run`` it is, or in a named kernel."""

from __future__ import annotations

import ast

from source import ROOT, trees

DRAWS = {
    "laplace",
    "gaussian",
    "truncated_laplace",
    "truncated_gaussian",
    "discrete_laplace",
    "discrete_gaussian",
    "noisy_max",
    "exponential_mechanism",
    "permute_and_flip",
    "report_noisy_max",
    "AboveThreshold",
    "poisson_sample",
    "add_to",
}
# The main file of a mechanism has one of these: ``point`` for engines, of which ``nearly_feasible.py`` makes
# mechanisms, ``run_as_given`` where Laplace and Gaussian noise are compared first.
RUNS = {"run", "run_as_given", "point"}
# Draws that several mechanisms share, each with its privacy argument in the file's docstring.
KERNELS = {
    "joint/certificate.py",
    "programs/certificate.py",
    "programs/dense_oracles.py",
    "regressions/certificate.py",
    "regressions/gauge_noise.py",
    "regressions/noisy_gradient.py",
    "teach/reconstruction.py",  # randomised response, for lessons on synthetic bits
}


def draws(tree: ast.AST) -> set[str]:
    """What a file draws: calls by name, and methods of a noise source looked up by name. A ``Cost`` draws nothing."""
    found = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        cost = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "Cost"
        if name in DRAWS and not cost:
            found.add(name)
        if name == "getattr" and getattr(call.args[0], "id", "") in ("noise", "source"):
            found.add(ast.unparse(call))
    return found


def runs(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name in RUNS for node in ast.walk(tree))


def test_noise_is_drawn_in_main_files_and_named_kernels():
    outside = set()
    for path, tree in trees().items():
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(("privacy/", "marks/")) and draws(tree) and not runs(tree):
            outside.add(name)
    assert outside <= KERNELS, f"draws outside: {sorted(outside - KERNELS)}"
    assert outside == KERNELS, f"no draws any more in {sorted(KERNELS - outside)}"


def test_the_search_finds_draws():
    assert draws(ast.parse("noise.gaussian(sums, 3.0)")) and draws(ast.parse("getattr(noise, kind)(sums, 3.0)"))
    assert draws(ast.parse("permute_and_flip(scores, 1, 1)")) and not draws(ast.parse("design.scale(3)"))
