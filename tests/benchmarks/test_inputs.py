"""Every benchmark refuses data that it does not use: a folder without its files, or one that is not there.

A table that silently lacks the lines of the data that were given is worse than none.
"""

from __future__ import annotations

import ast
import importlib
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
ALONE = {"diffprivlib_peer", "peer", "query_release_peer"}  # run in environments of their own
SCRIPTS = {path.stem: path for path in sorted(HERE.glob("*/*.py")) if path.stem not in ALONE}
REQUIRED = {"regression_planner": ["uci"]}  # what else stands before the data


def module_of(script: str) -> str:
    return f"tests.benchmarks.{SCRIPTS[script].parent.name}.{script}"


def arguments(script: str) -> list[tuple[str, str]]:
    """(name, kind) of the arguments of a script, read off its calls of ``add_argument``."""
    calls = [each for each in ast.walk(ast.parse(SCRIPTS[script].read_text())) if isinstance(each, ast.Call)]
    added = [call for call in calls if getattr(call.func, "attr", "") == "add_argument"]
    return [
        (call.args[0].value, ast.unparse(next((k.value for k in call.keywords if k.arg == "type"), ast.Constant(None))))
        for call in added
    ]


# (script, argument) of everything that names data.
INPUTS = [(script, name) for script in SCRIPTS for name, kind in arguments(script) if "data_path" in kind]


def test_whatever_names_data_is_checked() -> None:
    """Folders and files are taken by ``measuring.data_path`` alone."""
    for script in SCRIPTS:
        for name, kind in arguments(script):
            looks = kind == "Path" or name.strip("-") in ("folder", "folders", "files")
            assert not looks or "data_path" in kind, (script, name)
    assert len(INPUTS) >= 15


@pytest.mark.slow
def test_every_script_can_be_loaded() -> None:
    for script in SCRIPTS:
        importlib.import_module(module_of(script))


def run(monkeypatch: pytest.MonkeyPatch, script: str, *given: str) -> object:
    monkeypatch.setattr(sys, "argv", [script, *given])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module(module_of(script), run_name="__main__")
    return stopped.value.code


@pytest.mark.slow
@pytest.mark.parametrize(("script", "argument"), INPUTS)
def test_data_that_are_not_used_are_refused(script, argument, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("some.npz", "adult_pgm.csv.gz"):
        (tmp_path / name).touch()
    before = [str(tmp_path)] if argument.startswith("--") and (script, "folder") in INPUTS else []
    for folder in ("empty", "missing"):
        given = [argument] * argument.startswith("--") + [str(tmp_path / folder)]
        assert run(monkeypatch, script, *REQUIRED.get(script, []), *before, *given) not in (0, None)
        printed = capsys.readouterr()
        assert f"{folder}: no such" in printed.err and not printed.out


def test_histograms_of_another_shape_are_refused(tmp_path, monkeypatch) -> None:
    np.savez(tmp_path / "square.npz", x=np.ones((8, 8)))
    told = run(monkeypatch, "tree_ties", "--folder", str(tmp_path), "--repeats", "1")
    assert "no 1-D histogram" in str(told)


@pytest.mark.parametrize("case", ["sparse", "dense"])
def test_compilation_is_measured_on_matrices_that_are_lowered(case) -> None:
    from tests.benchmarks.programs import compile_cost

    make, _ = compile_cost.CASES[case]
    assert compile_cost.ours(case, make(0.01)) > 0
