"""Every check finds the fault that it is for, in a mechanism that has it, and the report says so."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel import audit
from dpmodel.as_printed import theorem_34
from dpmodel.audit.models import coefficients, needs
from dpmodel.audit.neighbors import Data, clipped, opened
from dpmodel.cli import main
from dpmodel.contract import Mechanism, Outcome, Serves
from dpmodel.errors import SpecificationError
from dpmodel.privacy import Gaussian, Truncated
from dpmodel.privacy.noise import public_generator
from dpmodel.programs import noise_once, strict
from dpmodel.programs.feasibility import LEAST_VIOLATION
from dpmodel.programs.noise_design import NoiseDesign, NoisyPart, measurements
from dpmodel.programs.noise_once import LAPLACE_ONCE
from dpmodel.solve.registry import by_name

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

    def bound(self, model: Any, options: Any) -> float:
        return 1e9 if self.fault == "bound" else 1e-9

    def forecast(self, model: Any, options: Any) -> Any:
        forecast = LAPLACE_ONCE.forecast(model, options)
        if self.fault in ("statement", "forecast"):
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


CENTRED = Data(needs, {"feasibility": "centred"}, name="needs")


@pytest.mark.parametrize("check", [audit.replay, audit.statement, audit.bound, audit.trace])
def test_nothing_is_found_where_no_fault_is(check: Any) -> None:
    assert not check(CENTRED, Other()).faults


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("half the noise", audit.replay),
        ("one draw more", audit.replay),
        ("scale", audit.replay),
        ("note", audit.replay),
        ("status", audit.replay),
        ("statement", audit.statement),
        ("forecast", audit.statement),
        ("bound", audit.bound),
        ("note", audit.trace),
        ("breaks down twice", audit.trace),
    ],
)
def test_a_planted_fault_is_found(fault: str, check: Any) -> None:
    assert check(CENTRED, Other(fault)).faults


# ------------------------------------------------------------------ faults of a design, where noise is drawn once
def running_totals(private: Any) -> Any:
    """Row i needs b_1 + ... + b_i: one record's entry is reused in up to four rows."""
    b = private([3.25, 2.5, 2.75, 4.125], name="b", unit="entry", linf=1.0, bounds=[0, 10])
    x = cp.Variable(4, bounds=[0, 100], name="x")
    return cp.Minimize(cp.sum(x)), [x >= np.tril(np.ones((4, 4))) @ b]


def prices(private: Any) -> Any:
    c = private([3.25, 2.5, 2.75, 4.125], name="c", l1=2.0, linf=1.0, bounds=[0, 10])
    x = cp.Variable(4, nonneg=True, name="x")
    return cp.Minimize(c @ x), [cp.sum(x) == 1]


def scaled(factor: float, window: float = 0.0) -> Any:
    def twin(model: Any, plan: NoiseDesign) -> NoiseDesign:
        def thinner(part: NoisyPart) -> NoisyPart:
            law: Any = replace(part.distribution, scale=part.distribution.scale * factor)
            if isinstance(law, Truncated):
                law = replace(law, half_width=law.half_width * (window or factor))
            return replace(part, distribution=law)

        return replace(plan, parts={name: thinner(part) for name, part in plan.parts.items()})

    return twin


def forgetting_reuse(model: Any, plan: NoiseDesign) -> NoiseDesign:
    """Entries measured one by one, with noise for the change of a single one."""
    parts = {}
    for name, part in plan.parts.items():
        entries, law = measurements(model, name)[0], part.distribution
        moved = max(sensitivity.linf for sensitivity in entries.sensitivity.values())
        old = part.measurement.l2 if isinstance(law, Gaussian) else part.measurement.l1
        parts[name] = replace(part, measurement=entries, distribution=replace(law, scale=law.scale * moved / old))
    return replace(plan, parts=parts)


def prices_and_sides(private: Any) -> Any:
    """The costs are the sides as well."""
    c = private([3.25, 2.5, 2.75, 4.125], name="c", unit="entry", linf=1.0, bounds=[0, 10])
    x = cp.Variable(4, bounds=[0, 100], name="x")
    return cp.Minimize(c @ x), [x >= c]


def drawn_for_each(model: Any, plan: NoiseDesign) -> NoiseDesign:
    """Numbers that several parts have in common, drawn for each of them at the price of one."""
    parts = {
        name: replace(part, measurement=replace(part.measurement, queries=replace(part.measurement.queries)))
        for name, part in plan.parts.items()
    }
    return replace(plan, parts=parts)


four_pairs = partial(audit.replay, neighbors=4)
STRICT = Data(coefficients, {"feasibility": "strict"}, name="strict")
TWINS = {
    "laplace-once, halved": ("laplace-once", needs, scaled(0.5)),
    "gaussian-once, halved": ("gaussian-once", needs, scaled(0.5)),
    "laplace-once on costs, halved": ("laplace-once", prices, scaled(0.5)),
    "gaussian-once on A, halved": ("gaussian-once", coefficients, scaled(0.5)),
    "laplace-once, reuse forgotten": ("laplace-once", running_totals, forgetting_reuse),
    "gaussian-once, reuse forgotten": ("gaussian-once", running_totals, forgetting_reuse),
    "laplace-once, shared numbers drawn twice": ("laplace-once", prices_and_sides, drawn_for_each),
    "gaussian-once, shared numbers drawn twice": ("gaussian-once", prices_and_sides, drawn_for_each),
    "strict-truncated-laplace, halved": ("strict-truncated-laplace", STRICT, scaled(0.5)),
    "strict-truncated-laplace, window too narrow": ("strict-truncated-laplace", STRICT, scaled(1.0, 0.5)),
    "strict-truncated-gaussian, halved": ("strict-truncated-gaussian", STRICT, scaled(0.5)),
    "strict-truncated-gaussian, window too narrow": ("strict-truncated-gaussian", STRICT, scaled(1.0, 0.5)),
    "theorem-34, noise divided by 30": ("theorem-34", prices, scaled(1 / 30)),
}


HONEST = {(mechanism, getattr(model, "__name__", "strict")): model for mechanism, model, _ in TWINS.values()}


@pytest.mark.parametrize(("mechanism", "model"), HONEST)
def test_nothing_is_found_in_the_design_itself(mechanism: str, model: str) -> None:
    assert not four_pairs(HONEST[mechanism, model], mechanism).faults


@pytest.mark.parametrize("name", TWINS)
def test_a_broken_design_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism, model, twin = TWINS[name]
    measure = noise_once.measure
    for room in (noise_once, strict):
        monkeypatch.setattr(room, "measure", lambda m, plan, *more: measure(m, twin(m, plan), *more))
    assert any("times what was charged" in fault for fault in four_pairs(model, mechanism).faults)


def test_a_certificate_beside_truncated_noise_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The windows are wide enough for the epsilon that the certificate leaves, and half the noise is too little."""
    model = Data(prices_and_sides, {"feasibility": "strict", "certify": 0.5}, name="certified")
    assert not audit.replay(model, "strict-truncated-gaussian", 8.0).faults
    measure = noise_once.measure
    monkeypatch.setattr(strict, "measure", lambda m, plan, *more: measure(m, scaled(0.5)(m, plan), *more))
    faults = audit.replay(model, "strict-truncated-gaussian", 8.0).faults
    assert any("times what was charged" in fault for fault in faults)


def test_noise_without_regard_to_epsilon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem 34's noise is far too large: with that of epsilon 1 at a thousandth of it, it is not."""
    released = theorem_34.released_parts
    monkeypatch.setattr(theorem_34, "released_parts", lambda m, plan, *more: released(m, scaled(1e-3)(m, plan), *more))
    assert not audit.replay(prices, "laplace-once", 1e-3).faults
    assert audit.replay(prices, "theorem-34", 1e-3).faults


@dataclass(frozen=True)
class Spoiled(Mechanism[Any]):
    """``base`` with another source of noise, or another end."""

    base: Any
    source_of: Any = None
    end: Any = None
    name: str = "spoiled"
    source: str = "a test"

    @property
    def serves(self) -> Serves:
        return self.base.serves

    def eligible(self, model: Any, options: Any) -> Any:
        return self.base.eligible(model, options)

    def forecast(self, model: Any, options: Any) -> Any:
        return self.base.forecast(model, options)

    def run(self, model: Any, options: Any, noise: Any, progress: Any = None) -> Outcome:
        outcome = self.base.run(model, options, self.source_of(noise) if self.source_of else noise)
        return self.end(model, outcome) if self.end else outcome


class OneForAll(Thinner):
    """One draw, added to all entries by hand."""

    def __getattr__(self, name: str) -> Any:
        return lambda values, *more: np.asarray(values) + getattr(self.source, name)(np.zeros(1), *more)


def peeking(model: Any, outcome: Outcome) -> Outcome:
    """Falls back on the true data where the noised program is infeasible."""
    if outcome.status != LEAST_VIOLATION:
        return outcome
    exact = model.form.b0 + model.form.scalar.apply(model.read_private())
    return replace(outcome, status="optimal", x=-exact[model.form.private_rows])


def tight(private: Any) -> Any:
    """Infeasible in half of all releases."""
    x = cp.Variable(1, name="x")
    return cp.Minimize(cp.sum(x)), [x >= private([2.99], name="b", l1=0.5), x <= 3]


def from_afar(model: Any, outcome: Outcome) -> Outcome:
    """Decides by what no neighbours differ in."""
    return replace(outcome, status="optimal" if model.read_private().sum() < 250 else "optimal_inaccurate")


def test_what_no_scale_shows_is_found() -> None:
    vertex = by_name("vertex-exponential")
    assert not audit.replay(prices, vertex).faults
    assert any("times" in fault for fault in audit.replay(prices, Spoiled(vertex, Thinner)).faults)
    assert any("differs" in fault for fault in audit.replay(prices, Spoiled(LAPLACE_ONCE, OneForAll)).faults)
    infeasible = Data(tight, {"feasibility": "centred"}, name="tight")
    assert not audit.replay(infeasible, LAPLACE_ONCE).faults
    assert any("differs" in fault for fault in audit.replay(infeasible, Spoiled(LAPLACE_ONCE, end=peeking)).faults)


@dataclass(frozen=True)
class Silent(Mechanism[Any]):
    """Draws nothing, spends nothing, and releases a sum of private numbers."""

    name: str = "silent"
    source: str = "a test"
    serves: ClassVar[Serves] = LAPLACE_ONCE.serves

    def eligible(self, model: Any, options: Any) -> Any:
        return LAPLACE_ONCE.eligible(model, options)

    def forecast(self, model: Any, options: Any) -> Any:
        return replace(LAPLACE_ONCE.forecast(model, options), epsilon=0.0, delta=0.0)

    def run(self, model: Any, options: Any, noise: Any, progress: Any = None) -> Outcome:
        return Outcome("optimal", np.full(model.form.affine.variables, float(model.read_private().sum())), None, None)


def crashing(model: Any, outcome: Outcome) -> Outcome:
    raise FloatingPointError


def test_what_draws_nothing_may_read_nothing() -> None:
    assert any("nothing was drawn" in fault for fault in audit.replay(needs, Silent()).faults)
    assert not audit.replay(needs, "public-only", neighbors=2).faults
    assert not audit.mechanism(Silent(), [needs], neighbors=2, runs=2).ok


def test_a_fault_stays_when_a_later_check_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*given: Any, **named: Any) -> Any:
        raise SpecificationError("no")

    monkeypatch.setattr(audit, "statement", refusing)
    report = audit.mechanism(Spoiled(LAPLACE_ONCE, Thinner), [coefficients], runs=2)
    assert any("times" in fault for fault in report.faults) and any("statement" in fault for fault in report.faults)
    assert not report.left_out


def test_a_run_that_fails_after_the_charge_is_a_fault() -> None:
    report = audit.mechanism(Spoiled(LAPLACE_ONCE, end=crashing), [needs])
    assert not report.ok and any("after the charge" in fault for fault in report.faults)


def test_what_only_other_data_show_is_found() -> None:
    found = (audit.replay(needs, Spoiled(LAPLACE_ONCE, end=from_afar), neighbors=1, seed=seed) for seed in range(8))
    assert any("on other data" in fault for each in found for fault in each.faults)


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


@pytest.mark.parametrize("mechanism", ["laplace", object()])
def test_what_is_no_mechanism_is_refused(mechanism: Any) -> None:
    with pytest.raises(dpm.errors.SpecificationError, match="no such mechanism"):
        audit.mechanism(mechanism)
