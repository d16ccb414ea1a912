"""The command line."""

from __future__ import annotations

import json

import pytest

from dpmodel.cli import main


def test_demo_prints_every_room(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out
    for expected in ("Classification", "Plan for epsilon 1", "Solution", "Private release by", "true demand"):
        assert expected in printed


def test_demo_strict_covers_every_true_demand(capsys: pytest.CaptureFixture[str]) -> None:
    from dpmodel.teach.transportation_problem import DEMAND

    assert main(["demo", "--strict", "--json"]) == 0
    release = json.loads(capsys.readouterr().out)
    arrives = [sum(column) for column in zip(*release["variables"]["shipments"], strict=True)]
    assert all(a >= d - 1e-6 for a, d in zip(arrives, DEMAND, strict=True))
    assert release["guarantee"]["delta"] == 1e-6


def test_taxonomy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["taxonomy"]) == 0
    assert "Theorem 37" in capsys.readouterr().out
    assert main(["taxonomy", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cells"]) == 8


def test_errors_are_one_readable_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--epsilon", "0"]) == 2
    error = capsys.readouterr().err
    assert "epsilon" in error and "try:" in error and "Traceback" not in error


def test_unknown_command_is_refused() -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["solve"])
    assert stopped.value.code == 2
