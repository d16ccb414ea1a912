"""The examination finds what it is there to find: each fault is planted in a model that is otherwise in order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.programs.noise_once import NoiseOnce

from . import flows
from .examination import Run, _beaten, examine
from .registry import Case


@pytest.fixture
def case() -> Case:
    return flows.transportation.case("small")


def test_nothing_is_wrong_without_a_fault(case: Case) -> None:
    found = examine(case, "relaxed")
    assert not found.broken and len(found.runs) == 3 and found.refusal is None


def test_false_statement(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = NoiseOnce.forecast

    def boasting(self: Any, model: Any, options: Any) -> Any:
        forecast = honest(self, model, options)
        return replace(forecast, error=replace(forecast.error, violation=forecast.error.violation / 100))

    monkeypatch.setattr(NoiseOnce, "forecast", boasting)
    assert any(broken.startswith("violation beyond the statement") for broken in examine(case, "relaxed").broken)


def test_money_for_a_refusal(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise dpm.DPModelError("no")

    monkeypatch.setattr("dpmodel.programs.model.Program.finish", refuse)
    assert any("and then refused" in broken for broken in examine(case, "relaxed").broken)


def test_error_of_another_kind(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: Any, **__: Any) -> Any:
        raise IndexError("no net")

    monkeypatch.setattr(dpm.Problem, "solve", crash)
    assert examine(case, "relaxed").broken == ["IndexError: no net (spent (0.0, 0.0))"]


def test_worse_than_a_public_point() -> None:
    case = flows.transportation_costs.case("small")
    release = SimpleNamespace(spent=(1.0, 0.0), mechanism="planted")

    def runs(*losses: float) -> list[Run]:
        return [Run(release, loss, np.zeros(0), 0.0, 0.0) for loss in losses]  # type: ignore[arg-type]

    assert _beaten(case, runs(500.0, 501.0, 502.0), "relaxed")
    assert not _beaten(case, runs(500.0, 0.0, 502.0), "relaxed")
