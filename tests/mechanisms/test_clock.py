"""Releases tell the time of solves on released numbers: nothing under a clock that moves only while noise is drawn."""

from __future__ import annotations

import time
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cases import CASES, Case
from families import PORTFOLIO

from dpmodel.annotate import Private
from dpmodel.plan.registry import by_name
from dpmodel.privacy import SeededSource

SHOWN = ("packing", "prices", "flow", "coefficients", "rows_and_sides", "objective_and_sides")


class Slow(SeededSource):
    """Noise that takes an hour a draw."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__(0)
        self.clock = clock

    def __getattribute__(self, name: str) -> Any:
        if name in ("laplace", "gaussian", "noisy_max", "truncated_laplace", "exponential", "uniform"):
            object.__getattribute__(self, "clock")[0] += 3600.0
        return super().__getattribute__(name)


def many_capacities() -> tuple[Any, list[Any], list[Private]]:
    """One record moves all of 60 capacities, of which few bind."""
    b = Private(shape=60, name="b", linf=1.0)
    x = cp.Variable(3, bounds=[0, 100], name="x")
    return cp.Maximize(cp.sum(x)), [np.random.default_rng(0).random((60, 3)) @ x <= b], [b]


MANY = Case("many_capacities", many_capacities, {"b": np.full(60, 50.0)}, {})


def opened_for(name: str) -> Any:
    """The first case that a mechanism serves."""
    mechanism = by_name(name)
    for case in (MANY, *(CASES[name] for name in SHOWN)):
        opened = case.open(feasibility="strict" if "strict" in name else "relaxed")
        if mechanism.eligible(opened.model, opened.request).eligible:
            return mechanism, opened
    return None


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    # public-only draws nothing.
    SERVED = [m.name for m in PORTFOLIO if m.name != "public-only" and opened_for(m.name) is not None]


def test_most_mechanisms_are_timed() -> None:
    assert {"laplace-once", "gaussian-once", "private-cutting-planes", "strict-truncated-laplace"} <= set(SERVED)


@pytest.mark.parametrize("name", SERVED)
def test_private_time_is_not_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism, opened = opened_for(name)
    mechanism.forecast(opened.model, opened.request)
    clock = [0.0]
    for read in ("perf_counter", "monotonic", "time", "process_time"):
        monkeypatch.setattr(time, read, lambda: clock[0])
    outcome = mechanism.run(opened.model, opened.request, Slow(clock))
    assert clock[0] > 0 and outcome.seconds in (None, 0)
