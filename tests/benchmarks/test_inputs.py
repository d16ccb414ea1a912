"""Every benchmark refuses data that it does not use: a folder without its files, or one that is not there.

A table that silently lacks the lines of the data that were given is worse than none.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
REQUIRED = {"regression_planner.py": ["uci"]}  # what else stands before the data


def _arguments(script: Path) -> list[tuple[str, str]]:
    """(name, kind) of the arguments of a script, read off its calls of ``add_argument``."""
    calls = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.Call) and node.args]
    added = [call for call in calls if getattr(call.func, "attr", "") == "add_argument"]
    return [
        (call.args[0].value, ast.unparse(next((k.value for k in call.keywords if k.arg == "type"), ast.Constant(None))))
        for call in added
    ]


def inputs() -> list[tuple[str, str]]:
    """(script, argument) of everything that names data."""
    return [
        (script.name, name)
        for script in sorted(HERE.glob("*.py"))
        for name, kind in _arguments(script)
        if "data_path" in kind
    ]


def test_whatever_names_data_is_checked() -> None:
    """Folders and files are taken by ``measuring.data_path`` alone."""
    for script in set(HERE.glob("*.py")) - {HERE / "diffprivlib_peer.py"}:  # runs alone, in another environment
        for name, kind in _arguments(script):
            looks = kind == "Path" or name.strip("-") in ("folder", "folders", "files")
            assert not looks or "data_path" in kind, (script.name, name)
    assert len(inputs()) >= 15


def run(monkeypatch: pytest.MonkeyPatch, script: str, *given: str) -> object:
    monkeypatch.setattr(sys, "argv", [script, *given])
    monkeypatch.syspath_prepend(str(HERE))
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(HERE / script), run_name="__main__")
    return stopped.value.code


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False], ids=["empty", "missing"])
@pytest.mark.parametrize(("script", "argument"), inputs())
def test_data_that_are_not_used_are_refused(script, argument, there, tmp_path, monkeypatch, capsys) -> None:
    folder = tmp_path / ("empty" if there else "missing")
    if there:
        folder.mkdir()
    for name in ("some.npz", "adult_pgm.csv.gz"):
        (tmp_path / name).touch()
    before = [str(tmp_path)] if argument.startswith("--") and (script, "folder") in inputs() else []
    given = [argument, str(folder)] if argument.startswith("--") else [str(folder)]
    assert run(monkeypatch, script, *REQUIRED.get(script, []), *before, *given) not in (0, None)
    printed = capsys.readouterr()
    assert f"{folder.name}: no such" in printed.err and not printed.out


def test_histograms_of_another_shape_are_refused(tmp_path, monkeypatch) -> None:
    np.savez(tmp_path / "square.npz", x=np.ones((8, 8)))
    told = run(monkeypatch, "tree_ties.py", "--folder", str(tmp_path), "--repeats", "1")
    assert "no 1-D histogram" in str(told)


@pytest.mark.parametrize("case", ["sparse", "dense"])
def test_compilation_is_measured_on_matrices_that_are_lowered(case, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    import compile_cost

    make, _ = compile_cost.CASES[case]
    assert compile_cost.ours(case, make(0.01)) > 0
