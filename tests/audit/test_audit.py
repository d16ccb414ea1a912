"""Every check finds the fault that it is for, in a mechanism that has it, and the report says so."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel import audit
from dpmodel.audit.models import coefficients, needs
from dpmodel.audit.neighbors import clipped, opened
from dpmodel.cli import main
from dpmodel.contract import Mechanism, Outcome, Serves
from dpmodel.forecast import Bound, Violation
from dpmodel.privacy.noise import public_generator
from dpmodel.programs.noise_once import LAPLACE_ONCE

pytestmark = pytest.mark.filterwarnings("ignore")


@dataclass(frozen=True)
class Other(Mechanism[Any]):
    """Laplace noise, with a ``fault`` of its own."""

    fault: str = ""
    name: str = "other"
    source: str = "a test"
    serves: Serves = LAPLACE_ONCE.serves

    def eligible(self, model: Any, options: Any) -> Any:
        return LAPLACE_ONCE.eligible(model, options)

    def at_least(self, model: Any, options: Any) -> Any:
        yield Bound(Violation(violation=1e9 if self.fault == "bound" else 1e-9), True)

    def forecast(self, model: Any, options: Any) -> Any:
        forecast = LAPLACE_ONCE.forecast(model, options)
        if self.fault == "statement":
            error = replace(forecast.error, violation=forecast.error.violation / 1e3)
            return replace(forecast, error=error, statement="within much less than is true")
        return forecast

    def run(self, model: Any, options: Any, noise: Any, progress: Any = None) -> Outcome:
        theta = model.read_private()
        if self.fault == "half the noise":
            noise = Thinner(noise)
        odd = int(8 * theta.sum()) % 2 > 0
        if self.fault == "one draw more" and odd:
            noise.laplace(0.0, 1.0)
        if self.fault == "scale":
            noise = Thinner(noise, 1 + 1e-9 * float(theta.sum()))
        if self.fault == "breaks down twice":
            try:
                return LAPLACE_ONCE.run(model, options, noise)
            except FloatingPointError:
                return LAPLACE_ONCE.run(model, options, noise)
        outcome = LAPLACE_ONCE.run(model, options, noise)
        if self.fault == "note":
            outcome = replace(outcome, notes=(*outcome.notes, f"of {theta[0]!r}"))
        if self.fault == "status":
            outcome = replace(outcome, status="optimal" if odd else "optimal_inaccurate")
        if self.fault == "statement":
            outcome = replace(outcome, violation=1e-6)
        return outcome


@dataclass
class Thinner:
    source: Any
    factor: float = 0.5
    is_private = False

    def __getattr__(self, name: str) -> Any:
        return lambda values, scale, *more, **named: getattr(self.source, name)(
            values, scale * self.factor, *more, **named
        )


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("half the noise", audit.replay),
        ("one draw more", audit.replay),
        ("scale", audit.replay),
        ("note", audit.replay),
        ("status", audit.replay),
        ("statement", audit.statement),
        ("bound", audit.bound),
        ("note", audit.trace),
        ("breaks down twice", audit.trace),
    ],
)
def test_a_planted_fault_is_found(fault: str, check: Any) -> None:
    assert not check(needs, Other()).faults
    assert check(needs, Other(fault)).faults


def test_a_sensitivity_that_is_too_small_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpmodel.audit import checks

    honest = audit.sensitivity(needs)
    assert not honest.faults and honest.caught and not honest.weak
    footprint = checks.footprint
    monkeypatch.setattr(
        checks, "footprint", lambda s: {p: {n: v / 1.1 for n, v in norms.items()} for p, norms in footprint(s).items()}
    )
    assert audit.sensitivity(needs).faults


def test_json_that_loses_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not audit.round_trip(needs, "laplace-once").faults
    from_json = dpm.Release.from_json
    monkeypatch.setattr(dpm.Release, "from_json", lambda text: replace(from_json(text), notes=()))
    assert audit.round_trip(needs, "laplace-once").faults


def test_the_report_says_what_was_tried() -> None:
    report = audit.mechanism(Other("half the noise"), [needs, coefficients], neighbors=4, runs=2)
    assert not report.ok and "FAULT" in str(report) and "times what was charged" in str(report)
    plain = json.loads(report.to_json())
    assert plain["ok"] is False and {each["check"] for each in plain["findings"]} >= {
        "replay",
        "statement",
        "trace",
        "JSON",
    }
    honest = audit.mechanism(Other(), [needs], neighbors=4, runs=2)
    assert honest.ok and "no proof" in str(honest)
    assert all(len(line) <= 120 for line in str(report).splitlines())
    nothing = audit.mechanism("frank-wolfe", [needs])
    assert not nothing.ok and nothing.left_out and "Nothing was tried" in str(nothing)


def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--models", "dpmodel.audit.models:needs", "--neighbors", "2", "--runs", "2"]
    assert main(["audit", "dpmodel.programs.noise_once:LAPLACE_ONCE", *more]) == 0
    assert "Audit of laplace-once" in capsys.readouterr().out
    assert main(["audit", "frank-wolfe", *more, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main(["audit", "nowhere:NOTHING"]) == 2


def test_models_are_functions() -> None:
    b = dpm.Private([1.0, 2.0], name="b", linf=1)
    x = cp.Variable(2)
    with pytest.raises(dpm.DPModelError, match="no model that can be audited"):
        audit.replay(dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b]))


# ------------------------------------------------------------------ neighbours
DECLARED = {
    "l1": {"unit": "all", "l1": 2.0},
    "l2 of a row": {"unit": "row", "l2": 0.5},
    "bounds of a column": {"unit": "column", "bounds": [-1, 3]},
    "entries": {"unit": "entry", "linf": 0.25, "bounds": [0, 3]},
    "absent rows": {"unit": "row", "max_l1": 2.0, "records": dpm.Records("a", neighbors="add-remove")},
    "replaced rows": {"unit": "row", "max_l2": 2.0},
}


@pytest.mark.parametrize("name", DECLARED)
def test_neighbours_are_neighbours_and_some_are_as_far_as_they_may(name: str) -> None:
    """Written again from the declarations: what one record moves, and by how much at most."""
    declared = DECLARED[name]
    values = np.random.default_rng(0).uniform(0.1, 0.9, (3, 4))

    def model(private: Any) -> Any:
        x = cp.Variable((3, 4))
        return cp.Minimize(cp.sum(x)), [x >= private(values, name="b", **declared)]

    rng, most = public_generator(0), 0.0
    order, limit = {
        "l1": (1, 2.0), "l2 of a row": (2, 0.5), "bounds of a column": (np.inf, 4.0), "entries": (np.inf, 0.25),
        "absent rows": (1, 2.0), "replaced rows": (2, 4.0),
    }[name]  # fmt: skip
    for _ in range(60):
        one, two = opened(model).moved(rng)
        d = clipped(two.private[0], two.values[0]) - clipped(one.private[0], one.values[0])
        if declared["unit"] in ("row", "column"):
            assert np.count_nonzero(np.abs(d).sum(axis=1 if declared["unit"] == "row" else 0)) <= 1
        elif declared["unit"] == "entry":
            assert np.count_nonzero(d) <= 1
        size = float(np.linalg.norm(d.ravel(), order))
        assert size <= limit * (1 + 1e-9)
        most = max(most, size / limit)
    assert most > (0.4 if name == "absent rows" else 0.7)
