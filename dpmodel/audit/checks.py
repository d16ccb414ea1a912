"""The checks, each with planted faults that it has to find on the same model; what they find is a ``Report``.

They go through the public face, so they also find faults outside the mechanism. Nothing here is a
proof. A neighbour that was not tried may lose more, and a rare branch of a mechanism may never run.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.stats import binom

from dpmodel._types import Floats
from dpmodel.audit.neighbors import Data, System, clipped, opened
from dpmodel.audit.transcript import Transcript
from dpmodel.contract import Candidate, Serves
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.forecast import Forecast, Violation
from dpmodel.marks.layout import free_entries
from dpmodel.privacy import Budget
from dpmodel.privacy.noise import public_generator
from dpmodel.programs.model import Program
from dpmodel.release import Release
from dpmodel.solve.registry import by_name
from dpmodel.text import TextTable, wrapped

_MOST_FAULTS = 3


@dataclass(frozen=True)
class Finding:
    """One check on one model.

    ``tried`` : what was run; ``faults`` : what is wrong, in words without private values; ``caught`` : planted fault ->
    whether the check found it. A check that misses a planted fault shows little: see ``weak``.
    """

    check: str
    model: str
    tried: str
    faults: tuple[str, ...] = ()
    caught: tuple[tuple[str, bool], ...] = ()

    @property
    def weak(self) -> tuple[str, ...]:
        """Planted faults that were missed."""
        return tuple(fault for fault, found in self.caught if not found)

    def __str__(self) -> str:
        return str(Report(self.model, (self,)))


@dataclass(frozen=True, repr=False)
class Report:
    """All findings about one mechanism. ``left_out`` : (model, why it was not audited)."""

    mechanism: str
    findings: tuple[Finding, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether something was tried and nothing is wrong."""
        return bool(self.findings) and not self.faults

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(f"{each.check}, {each.model}: {fault}" for each in self.findings for fault in each.faults)

    def __repr__(self) -> str:
        return f"<Report on {self.mechanism}: {len(self.findings)} checks, {len(self.faults)} faults>"

    def __str__(self) -> str:
        rows = []
        for each in self.findings:
            found = [f"{fault}: {'caught' if seen else 'missed'}" for fault, seen in each.caught]
            rows.append((each.check, each.model, "FAULT" if each.faults else "ok", each.tried, "; ".join(found) or "-"))
        lines = [
            str(TextTable(("check", "on", "", "tried", "planted faults"), rows, title=f"Audit of {self.mechanism}"))
        ]
        lines += [wrapped(f"{fault}", "  ") for fault in self.faults[: _MOST_FAULTS * 4]]
        for why in dict.fromkeys(why for _, why in self.left_out):
            models = ", ".join(model for model, reason in self.left_out if reason == why)
            lines.append(wrapped(f"left out: {models} ({why})", "  "))
        if not self.findings:
            lines.append("Nothing was tried: no model that it serves.")
        elif self.ok:
            lines.append("Nothing wrong was found. This is no proof: read the privacy argument.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        return {**plain, "ok": self.ok}

    def to_json(self, *, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)


# ------------------------------------------------------------------ what all checks share
Subject = Data | System
# Rounding may add this share to a budget or a sensitivity.
_ROUNDING = 1e-6
# Probability with which an honest statement, which may fail with probability beta, is found to fail too often.
_FALSE_ALARM = 1e-6
# Relative error of solvers.
_SOLVER = 2e-5
# Fields that may differ between two runs with the same answers: seconds of steps that read released data alone.
_CLOCKS = ("timings", "seconds")


class NotedBudget(Budget):
    """A budget that notes its charges among the draws of a transcript."""

    def __init__(self, epsilon: float, delta: float, source: Transcript) -> None:
        super().__init__(epsilon, delta, composition="sums")
        self._noted = source

    def charge(self, *given: Any, **named: Any) -> Any:
        self._noted.events.append("charge")
        return super().charge(*given, **named)


def released(
    subject: Subject, mechanism: Any, epsilon: float, delta: float, source: Any
) -> tuple[dict[str, Any], Budget]:
    """All that is released, as plain data, and the budget that was charged."""
    account = (
        NotedBudget(epsilon, delta, source)
        if isinstance(source, Transcript)
        else Budget(epsilon, delta, composition="sums")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return subject.release(mechanism, epsilon, delta, account, source), account


def last(subject: Data) -> Release:
    """The last release of the problem."""
    release = subject.problem.release
    assert release is not None
    return release


def differences(one: Any, two: Any, path: str = "released") -> list[str]:
    """Where two releases differ, bit by bit; clocks aside."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        return [each for key in one if key not in _CLOCKS for each in differences(one[key], two[key], f"{path}.{key}")]
    if isinstance(one, list | tuple) and isinstance(two, list | tuple) and len(one) == len(two):
        return [
            each for i, pair in enumerate(zip(one, two, strict=True)) for each in differences(*pair, f"{path}[{i}]")
        ]
    if isinstance(one, np.ndarray | float | int) and isinstance(two, np.ndarray | float | int):
        return [] if np.array_equal(one, two, equal_nan=True) else [path]
    return [] if one == two else [path]


# ------------------------------------------------------------------ replay
def replay(
    model: Any,
    mechanism: Any = "auto",
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    neighbors: int = 8,
    seed: int = 0,
) -> Finding:
    """Run on data, and again on neighbours and on other data with the same noisy answers.

    Everything released has to be the same, as steps may depend on these answers alone. Each draw has to have the same
    scale. The budget has to be charged once, before the first draw. And all draws together, computed from the exact
    values of both runs, may lose at most what was charged, in (epsilon, delta) and in rho and mu of the privacy event.

    Parameters
    ----------
    model : a function of ``private``, or a ``System``. mechanism : as ``solve`` takes it.
    neighbors : pairs of neighbours to try.

    ``Serves.adds_up`` says whether losses are compared with the charge, ``Serves.by_stability`` that no other data are
    tried. Of what ``mechanism="auto"`` chooses both are.
    """
    subject, rng = opened(model), public_generator(seed)
    serves = serves_of(subject, mechanism)
    adds_up = serves is None or serves.adds_up
    other_data = serves is None or not serves.by_stability
    faults: list[str] = []
    most, draws, caught = 0.0, 0, dict.fromkeys((_LEAK, _SCALE), False)
    divided = dict.fromkeys(_DIVISORS, 0.0)
    for number in range(neighbors):
        one, two = subject.moved(rng)
        first = Transcript(seed + number)
        base, account = released(one, mechanism, epsilon, delta, first)
        draws = max(draws, len(first.draws))
        faults += _charged(first, account.spent, epsilon, delta)
        run = partial(released, two, mechanism, epsilon, delta)
        if not first.draws:
            # What draws nothing may read nothing: the release is the same for all data.
            runs = [run]
            if not isinstance(one, System):
                runs.append(partial(released, one.elsewhere(rng), mechanism, epsilon, delta))
            faults += [f"{fault} (nothing was drawn)" for each in runs for fault in _replayed(each, first, base)]
            continue
        faults += _replayed(run, first, base)
        if all(len(draw.values) == 2 for draw in first.draws):
            most = max(most, first.lost(*account.spent))
            charged = account.history[0].cost if adds_up and account.history else None
            if charged is not None and not charged.leak:
                faults += [f"the draws lose {fault}" for fault in [first.beyond(charged)] if fault]
                less = replace(charged, rho=charged.rho * 1e-6)
                caught[_LAW] = caught.get(_LAW, False) or bool(first.beyond(less))
            divided = {k: max(share, first.lost(*account.spent, factor=1 / k)) for k, share in divided.items()}
            caught[_SCALE] = caught[_SCALE] or _finds_scale(run, first, base)
        if isinstance(one, System):
            caught[_LEAK] = caught[_LEAK] or bool(_replayed(run, first, base, leak=True))
        elif number == 0:
            run = partial(released, one.elsewhere(rng), mechanism, epsilon, delta)
            caught[_LEAK] = bool(_replayed(run, first, base, leak=True))
            # Neighbours are too alike for most decisions to differ between them.
            faults += [f"{fault} (on other data)" for fault in (_replayed(run, first, base) if other_data else [])]
    tried = f"{neighbors} pairs of neighbours at epsilon {epsilon:g}, delta {delta:g}"
    if not draws:
        said = "nothing was drawn" if faults else "nothing was drawn, and all data have the same release"
        return Finding("replay", subject.name, f"{tried}: {said}", tuple(dict.fromkeys(faults)))
    if adds_up:
        if most > 1 + _ROUNDING:
            faults.append(f"the draws lose {most:.4g} times what was charged")
        least = next((k for k, share in divided.items() if share > 1 + _ROUNDING), None)
        caught[f"the noise divided by {least or _DIVISORS[-1]}"] = least is not None
    share = f", which lose at most {most:.3g} of the charge" if adds_up else ""
    return Finding(
        "replay", subject.name, f"{tried}; draws: {draws}{share}", tuple(dict.fromkeys(faults)), tuple(caught.items())
    )


_LEAK, _SCALE = "a number that is not noised", "a scale that the data move"
_LAW = "a privacy event that says less than what is drawn"
_DIVISORS = (2, 5, 20, 100)


def _charged(source: Transcript, charged: Any, epsilon: float, delta: float) -> list[str]:
    faults = []
    if source.draws and (source.events[0] != "charge" or source.events.count("charge") != 1):
        faults.append("the budget is not charged once, before the first draw")
    if not (charged.epsilon <= epsilon * (1 + _ROUNDING) and charged.delta <= delta * (1 + _ROUNDING)):
        faults.append("more was charged than was requested")
    if charged.epsilon > 0 and not source.draws:
        faults.append("something was charged and nothing was drawn")
    if any(not 0 < draw.arguments[0] < math.inf for draw in source.draws):
        faults.append("a scale of noise is not positive and finite")
    return faults


def _replayed(run: Any, first: Transcript, base: dict[str, Any], leak: bool = False) -> list[str]:
    """What differs in a second run, whose values replace those of an earlier one."""
    second = first.replay(leak)
    second.forget()
    try:
        again, _ = run(second)
    except (DPModelError, AssertionError) as error:
        return second.astray[:1] or [f"the second run ended in {type(error).__name__}"]
    if not second.complete:
        return ["the second run drew less often than the first"]
    return [f"{path} differs, although the noise answered the same" for path in differences(base, again)[:3]]


def _finds_scale(run: Any, first: Transcript, base: dict[str, Any]) -> bool:
    """Whether a replay finds a scale that is too large by a millionth (less where the data moved by less than 1)."""
    moved = [float(np.abs(draw.moved).max(initial=0.0)) for draw in first.draws]
    draw = first.draws[int(np.argmax(moved))]
    scale, *others = draw.arguments
    draw.arguments = (scale * (1 + 1e-6 * min(max(moved), 1.0)), *others)
    found = bool(_replayed(run, first, base))
    draw.arguments = (scale, *others)
    return found


# ------------------------------------------------------------------ sensitivity
def sensitivity(model: Any, *, neighbors: int = 64, seed: int = 0) -> Finding:
    """The footprint against brute force: one record of a program is moved as far as its declarations allow, many times,
    and the numbers of the standard form may move no further than the footprint says."""
    subject, rng = opened(model), public_generator(seed)
    if not isinstance(subject, Data):
        raise SpecificationError("an exact system has no standard form", remedy="audit.replay")
    claimed = {(part, norm): limit for part, norms in footprint(subject).items() for norm, limit in norms.items()}
    shares = dict.fromkeys(claimed, 0.0)
    for _ in range(neighbors):
        one, two = subject.moved(rng)
        for part, d in standard_form_change(subject, one, two).items():
            sizes = {"l1": np.abs(d).sum(), "l2": np.linalg.norm(d), "linf": np.abs(d).max(initial=0.0)}
            for norm, size in sizes.items():
                limit = claimed.get((part, norm), 0.0)
                if size and math.isfinite(limit):
                    shares[part, norm] = max(shares.get((part, norm), 0.0), float(size) / limit if limit else math.inf)
    faults = [
        f"{part} moves by {share:.4g} times its {norm}"
        for (part, norm), share in shares.items()
        if share > 1 + _ROUNDING
    ]
    most = {part: max(share for (each, _), share in shares.items() if each == part) for part, _ in claimed}
    moves = ", ".join(f"{part} by {share:.3g} of what is claimed" for part, share in most.items() if share)
    caught = tuple((f"half the sensitivity of {part}", share > 0.5) for part, share in most.items() if share)
    return Finding(
        "sensitivity", subject.name, f"{neighbors} pairs; {moves or 'nothing bounded moves'}", tuple(faults), caught
    )


def footprint(subject: Data) -> dict[str, dict[str, float]]:
    """Part of the standard form -> norm -> its sensitivity, as the package computes it."""
    parts = Program.recognise(subject.problem).footprint.parts
    return {
        part: {n: getattr(claim, n) for n in ("l1", "l2", "linf")} for part, claim in parts.items() if claim.linf > 0
    }


def standard_form_change(subject: Data, one: Data, two: Data) -> dict[str, Floats]:
    """Part -> how its numbers differ between two data sets of one model."""
    model: Any = subject.problem._model()
    form = model.form
    ends = [
        np.concatenate([free_entries(p, clipped(p, v)) for p, v in zip(d.private, d.values, strict=True)])
        for d in (one, two)
    ]
    names = [p.name() for p in subject.private]
    offsets = np.cumsum([0, *(p.layout.size for p in subject.private)])
    theta = np.zeros(form.affine.theta_size)
    for block in form.affine.private_blocks:
        at = names.index(block.name)
        theta[block.columns] = (ends[1] - ends[0])[offsets[at] : offsets[at + 1]]
    return {part: getattr(form.affine, part).apply(theta) for part in ("objective", "offset", "scalar", "matrix")}


# ------------------------------------------------------------------ statement
def statement(
    model: Any,
    mechanism: Any = "auto",
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    beta: float = 1e-3,
    runs: int = 8,
    seed: int = 0,
) -> Finding:
    """Release many times and compare each with the true optimum, which CVXPY finds from the private numbers.

    A run fails if the objective loses more, or private constraints are violated by more, than the statement says. Each
    may fail with probability ``beta``: more failures than an honest statement has with probability 1e-6 are a fault.
    Losses are compared with proved bounds alone: forecasts are of means. Where a release bounds violations by its
    point, the forecast's bound is tried too: the true model has an optimum.
    """
    subject = opened(model)
    if not isinstance(subject, Data):
        raise SpecificationError("an exact system is not simulated", remedy="audit.replay")
    if subject.options.get("release") == "joint":
        return Finding("statement", subject.name, "not tried: shares are handed out one by one")
    subject = replace(subject, options={**subject.options, "beta": beta})
    try:
        optimum = float(subject.truth.solve())
    except (cp.SolverError, ValueError):
        optimum = math.nan
    if not math.isfinite(optimum):
        return Finding("statement", subject.name, "not tried: the true model has no optimum that CVXPY finds")

    forecast = subject.problem.plan(epsilon, delta, mechanism=mechanism, **subject.options).chosen.forecast

    def failures(factor: float) -> tuple[int, str]:
        failed, said = 0, ""
        for number in range(runs):
            released(subject, mechanism, epsilon, delta, Transcript(seed + number, factor=factor))
            release = last(subject)
            said = said or ("" if release.accuracy.vacuous else release.accuracy.statement)
            failed += bool(release.variables) and fails(subject, release, optimum, forecast)
        return failed, said

    failed, said = failures(1.0)
    if not said:
        return Finding("statement", subject.name, f"{runs} runs; the statement says nothing")
    allowed = binom.isf(_FALSE_ALARM, runs, beta)
    fault = [f"it fails in {failed} of {runs} runs, where {beta:g} of them may"] if failed > allowed else []
    larger = next((factor for factor in (5.0, 50.0, 500.0) if failures(factor)[0] > allowed), None)
    planted = (f"{larger:g} times the noise" if larger else "500 times the noise", larger is not None)
    return Finding("statement", subject.name, f"{runs} runs, {failed} beyond it", tuple(fault), (planted,))


def fails(subject: Data, release: Any, optimum: float, forecast: Forecast | None) -> bool:
    """Whether the point of ``release`` loses more, or violates more, than its statement or the ``forecast`` says."""
    truth, accuracy = subject.truth, release.accuracy
    for variable in truth.variables():
        variable.save_value(release.variables[variable.name()])
    private = [
        constraint
        for declared, constraint in zip(subject.problem.constraints, truth.constraints, strict=True)
        if {p.name() for p in declared.parameters()} & {p.name() for p in subject.private}
    ]
    violations = np.concatenate([np.zeros(0), *(np.ravel(constraint.violation()) for constraint in private)])
    size = 1 + max((float(np.abs(value).max(initial=0.0)) for value in release.variables.values()), default=0.0)
    stated, error = accuracy.violation_alpha, None if forecast is None or not forecast.proved else forecast.error
    if isinstance(error, Violation) and error.centred and stated is not None:
        stated = min(stated, error.violation)
    if stated is not None:
        beyond = int((violations > stated * (1 + _ROUNDING) + _SOLVER * size).sum())
        if beyond > (accuracy.slack_rows or 0):
            return True
    if accuracy.objective_alpha is None or not accuracy.proved:
        return False
    sign = -1.0 if isinstance(truth.objective, cp.Maximize) else 1.0
    loss = sign * (float(truth.objective.value) - optimum)
    return bool(loss > accuracy.objective_alpha * (1 + _ROUNDING) + _SOLVER * (1 + abs(optimum)))


# ------------------------------------------------------------------ bound, trace, JSON
def bound(model: Any, mechanism: Any, epsilon: float = 1.0, delta: float = 1e-6) -> Finding:
    """The mechanism's lower bound on its own error is at most its forecast."""
    subject = opened(model)
    if not isinstance(subject, Data):
        raise SpecificationError("bounds of exact systems are not audited", remedy="audit.replay")
    least, forecast = bounded(subject, mechanism, epsilon, delta)

    def late(least: float) -> bool:
        if least == math.inf:
            return not forecast.vacuous
        return not forecast.vacuous and least > forecast.error.rank * (1 + 1e-6)

    fault = ["its bound is above its forecast"] if late(least) else []
    caught = (("a bound of twice the forecast", late(2 * forecast.error.rank + 1e-9)),) if least > 0 else ()
    return Finding("bound", subject.name, "its bound against the forecast", tuple(fault), caught)


def serves_of(subject: Subject, mechanism: Any) -> Serves | None:
    """``Serves`` of a mechanism; None where a plan chooses it, and for a mechanism of exact systems by its name."""
    if not isinstance(mechanism, str):
        serves: Serves = mechanism.serves
        return serves
    if mechanism == "auto" or isinstance(subject, System):
        return None
    return by_name(mechanism, subject.problem._model().kind).serves


def bounded(subject: Data, mechanism: Any, epsilon: float, delta: float) -> tuple[float, Forecast]:
    """(lower bound, forecast) of the mechanism; the forecast is capped as in plans."""
    planned = subject.problem._model()
    options = subject.problem.plan(epsilon, delta, mechanism=mechanism, **subject.options).options
    chosen: Any = by_name(mechanism, planned.kind) if isinstance(mechanism, str) else mechanism
    candidate = Candidate(chosen.name, "", True, "", chosen.forecast(planned, options))
    forecast = planned.capped(options, candidate).forecast
    assert forecast is not None
    return float(chosen.bound(planned, options)), forecast


def trace(model: Any, mechanism: Any = "auto", epsilon: float = 1.0, delta: float = 1e-6, *, seed: int = 0) -> Finding:
    """No private number stands in a release, its texts, the problem's, or the error of a run that breaks down."""
    subject = opened(model)
    if not isinstance(subject, Data):
        raise SpecificationError("traces of exact systems are not audited", remedy="audit.replay")
    subject = subject.told_apart(public_generator(seed))
    secrets = subject.secrets()
    plain, _ = released(subject, mechanism, epsilon, delta, Transcript(seed))
    release = last(subject)
    texts = [json.dumps(plain, default=str), str(release), repr(release), repr(subject.problem), release.to_json()]
    faults = (
        [f"a private number is in what is released ({found} of {len(secrets)})"]
        if (found := stands_in(secrets, texts))
        else []
    )
    source = Transcript(seed, crash_at=0)
    try:
        released(subject, mechanism, epsilon, delta, source)
    except DPModelError as error:
        if error.__cause__ is not None or error.__context__ is not None or stands_in(secrets, [str(error)]):
            faults.append("a run that breaks down shows the error that it broke down with")
        if source.events.count("draw") > 1 or source.events.count("charge") != 1:
            faults.append("a run that breaks down is tried again, or charged more than once")
    except Exception as error:
        faults.append(f"a run that breaks down ends in {type(error).__name__}")
    planted = (
        [json.dumps({**plain, "notes": [f"about {secrets[len(secrets) // 2]:.12g}"]}, default=str)]
        if len(secrets)
        else []
    )
    caught = (("a note with a private number", bool(stands_in(secrets, planted))),) if len(secrets) else ()
    tried = f"{len(secrets)} private numbers in {len(texts)} texts, and a run that breaks down"
    return Finding("trace", subject.name, tried, tuple(faults), caught)


def stands_in(secrets: Floats, texts: list[str]) -> int:
    """How many of the numbers stand in the texts, to 6, 8 or 12 digits."""
    joined = "\n".join(texts)
    return sum(any(form in joined for form in _forms(number)) for number in secrets)


def _forms(number: float) -> Iterator[str]:
    for digits in (6, 8, 12):
        form = f"{number:.{digits}g}"
        if len(form.replace(".", "").strip("0")) >= 6:
            yield form


def round_trip(
    model: Any, mechanism: Any = "auto", epsilon: float = 1.0, delta: float = 1e-6, *, seed: int = 0
) -> Finding:
    """A release is the same after it is written to JSON and read."""
    subject = opened(model)
    if not isinstance(subject, Data):
        raise SpecificationError("exact systems have their own JSON", remedy="audit.replay")
    plain, _ = released(subject, mechanism, epsilon, delta, Transcript(seed))
    release = last(subject)
    again = type(release).from_json(release.to_json()).to_dict()
    faults = [f"{path} differs after JSON" for path in differences(plain, again)[:3]]
    caught = (("another mechanism's name", bool(differences(plain, {**again, "mechanism": "another"}))),)
    return Finding("JSON", subject.name, "one release, written and read", tuple(faults), caught)
