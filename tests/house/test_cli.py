"""The command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import dpmodel as dpm
from dpmodel.cli import main


def test_demo_prints_every_room(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= 53
    for expected in (
        "low sensitivity: solvable",
        "Plan for epsilon 1",
        "Solution",
        "Private release by",
        "The same released numbers",
        "true demand",
    ):
        assert expected in printed
    released = printed.split("(what is released)")[1].split("Private release by")[0]
    assert "true" not in released  # a number that was released may be the true one by chance


def test_explain_with_a_budget_tells_what_would_do_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "import cvxpy as cp, dpmodel as dpm\n"
        "x, need = cp.Variable(2, bounds=[0, 9]), dpm.Private(shape=2, name='need', unit='entry', linf=1)\n"
        "problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= need])\n"
    )
    assert main(["explain", str(file), "--epsilon", "4"]) == 0
    assert "What would do better" in capsys.readouterr().out


def test_demo_strict_covers_every_true_demand(capsys: pytest.CaptureFixture[str]) -> None:
    from dpmodel.teach.lower_bounds import DEMAND

    assert main(["demo", "--strict", "--json"]) == 0
    release = json.loads(capsys.readouterr().out)
    arrives = [sum(column) for column in zip(*release["variables"]["shipments"], strict=True)]
    assert all(a >= d - 1e-6 for a, d in zip(arrives, DEMAND, strict=True))
    assert release["guarantee"]["delta"] == 1e-6


def test_taxonomy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["taxonomy"]) == 0
    assert "Theorem 37" in capsys.readouterr().out
    assert main(["taxonomy", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cells"]) == 10


def test_reconstruct_sets_the_plain_solver_beside_private_ones(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["reconstruct", "--n", "10", "--repetitions", "3", "--epsilon", "0.2"]
    assert main(few) == 0
    printed = capsys.readouterr().out
    for expected in ("plain solver", "100.0%", "laplace-once", "randomised response", "Least error of any private"):
        assert expected in printed
    assert main([*few, "--part", "objective", "--printed", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["part"] for row in shown["rows"]} == {"objective"}
    assert not any(row["sharp"] for row in shown["rows"])
    assert shown["rows"][0]["share"] == 1.0
    assert shown["lower_bounds"] and len(shown["epsilons"]) == len(next(iter(shown["lower_bounds"].values())))


def test_reconstruct_refuses_readably(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["reconstruct", "--n", "7"]) == 2
    assert "even" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["reconstruct", "--figure", "lower_bound.png"]) == 2
    printed = capsys.readouterr()
    assert ".[plot]" in printed.err and not printed.out, "refused before the work"


def test_errors_are_one_readable_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--epsilon", "0"]) == 2
    error = capsys.readouterr().err
    assert "epsilon" in error and "try:" in error and "Traceback" not in error


def test_unknown_command_is_refused() -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["solve"])
    assert stopped.value.code == 2


MODEL = """
import cvxpy as cp
import dpmodel as dpm

need = dpm.Private([1.0, 2.0], name="need", unit="entry", linf=1)
x = cp.Variable(2, nonneg=True, name="x")
problem = dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= need).set_label("enough")])
other = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= 2 * need])
if __name__ == "__main__":
    raise RuntimeError("not run")
"""


@pytest.mark.parametrize("release", ["problem.solve(epsilon=1, budget=budget)", "dpm.measure(need, 1, budget=budget)"])
def test_a_script_runs_up_to_its_first_charge(release: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ledger, file = tmp_path / "spent.db", tmp_path / "script.py"
    budget = f"budget = dpm.Budget(5, ledger={str(ledger)!r})"
    swallowed = f"try:\n    {release}\nexcept Exception:\n    print('went on')"
    file.write_text("\n".join([MODEL, budget, swallowed, "raise RuntimeError('went on')"]))
    assert main(["plan", str(file), "--epsilon", "1"]) == 0
    shown = capsys.readouterr()
    assert "Plan for epsilon 1" in shown.out and "went on" not in shown.out + shown.err
    assert "which was not made: nothing is spent" in shown.err
    assert [what for _, what, *_ in dpm.Budget.open(ledger).charges] == ["left for one more"]


def test_a_model_in_a_file_is_explained_and_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    assert main(["explain", str(file)]) == 0
    assert "enough" in capsys.readouterr().out
    assert main(["explain", f"{file}:other", "--tree"]) == 0
    assert "one record moves it by" in capsys.readouterr().out
    assert main(["plan", str(file), "--epsilon", "1", "--feasibility", "safe", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chosen"] == "laplace-once"
    file.write_text(MODEL.replace("linf=1)", "linf=1, typical=2)"))
    assert main(["plan", str(file), "--epsilon", "1"]) == 0  # as plans are by default: by what is expected
    assert capsys.readouterr().out.splitlines()[1].startswith("  expected, priced: cost")
    for wrong, said in (
        (f"{file}:nothing", "one of problem, other"),
        (str(tmp_path / "none.py"), "no file"),
    ):
        assert main(["plan", wrong, "--epsilon", "1"]) == 2
        assert said in capsys.readouterr().err
    file.write_text(MODEL.replace("problem =", "mine ="))
    assert main(["plan", str(file), "--epsilon", "1"]) == 2
    assert "2 problems" in capsys.readouterr().err
    for text, said in (
        ("x = 1", "no dpmodel.Problem"),
        ("import cvxpy as cp\nmine = cp.Problem(cp.Minimize(0))", "mine is a problem of CVXPY"),
        ("x = 1\nimport nothing_such", "line 2: ModuleNotFoundError: No module named 'nothing_such'"),
        ("x = 1\n\nx = = 1", "line 3: SyntaxError: invalid syntax"),
    ):
        file.write_text(text)
        assert main(["explain", str(file)]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_a_ledger_is_shown_and_verified(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import sqlite3

    from dpmodel import Budget

    file = tmp_path / "budget.db"
    Budget(2.0, 1e-6, ledger=file).charge(0.5, label="demand plan")
    assert main(["ledger", "show", str(file)]) == 0
    assert "demand plan" in (printed := capsys.readouterr().out) and "1.5" in printed
    assert main(["ledger", "verify", str(file)]) == 0
    assert "whole: 1 charges, epsilon 0.5 of 2" in capsys.readouterr().out
    assert main(["ledger", "verify", str(tmp_path / "none.db")]) == 2
    assert "there is no ledger" in capsys.readouterr().err and not (tmp_path / "none.db").exists()
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO charges VALUES (2, 'x', '', 9, 0, 'forged', '', '')")
    assert main(["ledger", "verify", str(file)]) == 2
    assert "charge 2 is not as it was written" in " ".join(capsys.readouterr().err.split())
    file.write_bytes(b"not a ledger")
    assert main(["ledger", "show", str(file)]) == 2
    assert "no usable" in (error := capsys.readouterr().err) or "not a usable" in error
