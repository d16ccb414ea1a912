"""Run a model of the zoo as a user would, several times, and hold what comes out to what was said.

``examine`` collects what is broken as sentences: errors of a wrong kind, money gone without a release, public
constraints that do not hold, statements that fail more often than they may, and public points that are better than
every release.
"""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.release import Release

from .registry import Case

EPSILON, DELTA = 1.0, 1e-6
# A statement may fail with probability BETA a run. With three runs, two failures have probability 7.5e-7.
BETA, SEEDS = 5e-4, (0, 1, 2)
FALSE_ALARM = 1e-6
# Relative error allowed to solvers.
SOLVER = 2e-5


@dataclass(frozen=True)
class Run:
    """One release against the truth. ``loss`` : its true objective minus the optimum (or the reverse when maximising);
    ``violations`` : by how much each private row is violated; ``public`` : the largest relative one of the rest."""

    release: Release
    loss: float
    violations: np.ndarray
    public: float
    seconds: float

    @property
    def violation(self) -> float:
        return float(self.violations.max(initial=0.0))


@dataclass
class Examination:
    """The ``runs``, the ``refusal`` if there was one, and ``broken``: sentences that say what is wrong."""

    runs: list[Run] = field(default_factory=list)
    refusal: dpm.DPModelError | None = None
    broken: list[str] = field(default_factory=list)


def examine(
    case: Case,
    mode: str,
    *,
    epsilon: float = EPSILON,
    delta: float = DELTA,
    beta: float = BETA,
    seeds: Sequence[int] = SEEDS,
) -> Examination:
    """Solve ``case`` with the feasibility ``mode``, once per seed, and look at everything that comes out."""
    found = Examination()
    asked = {"epsilon": epsilon, "delta": delta, "beta": beta, "feasibility": mode}
    if mode in ("centred", "relaxed"):  # what a model asks for is a way of giving way
        asked |= case.model.asked
    for seed in seeds:
        budget = dpm.Budget(2 * asked["epsilon"], 2 * asked["delta"])
        started = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                case.problem.solve(**asked, budget=budget, rng=seed)
        except dpm.DPModelError as refusal:
            found.refusal = refusal
            if tuple(budget.spent) != (0, 0):
                found.broken.append(f"spent {tuple(budget.spent)} and then refused: {refusal.what}")
            if mode in case.model.due:
                found.broken.append(f"refused: {refusal}")
            return found
        except Exception as error:
            found.broken.append(f"{type(error).__name__}: {error} (spent {tuple(budget.spent)})")
            return found
        seconds = time.process_time() - started
        release = case.problem.release
        if release is None or release.status in ("infeasible", "unbounded") or not release.variables:
            found.broken.append(f"spent {tuple(budget.spent)}, released nothing: {release and release.status}")
            return found
        if not np.allclose(budget.spent, release.spent, rtol=1e-9):
            found.broken.append(f"the budget says {tuple(budget.spent)}, the release {release.spent}")
        found.broken += _unreadable(release)
        found.runs.append(_against_truth(case, release, seconds))
    found.broken += _false_statements(found.runs, mode)
    found.broken += _empty_statements(case, found.runs)
    found.broken += _beaten(case, found.runs, mode)
    return found


def _unreadable(release: Any) -> list[str]:
    """What cannot be printed, or prints what no user understands."""
    json.dumps(release.to_dict())
    told = re.search(r"\b(nan|None)\b", f"{release.accuracy} {release.guarantee}")
    return [f"prints {told.group()!r}: {release.accuracy}"] if told else []


def _against_truth(case: Case, release: Any, seconds: float) -> Run:
    optimum = case.optimum
    loss, violations, public = judge(case, [variable.value for variable in case.problem.variables()], optimum)
    return Run(release, loss, violations, public, seconds)


def judge(case: Case, values: Sequence[Any], optimum: float) -> tuple[float, np.ndarray, float]:
    """(loss, violation of each private row, largest relative violation of the public ones) of a point."""
    truth = case.truth
    for variable, value in zip(truth.variables(), values, strict=True):
        variable.save_value(value)
    sign = -1.0 if isinstance(truth.objective, cp.Maximize) else 1.0
    loss = sign * (float(np.real(truth.objective.value)) - optimum)
    violations, public = [np.zeros(0)], 0.0
    for declared, constraint in zip(case.problem.constraints, truth.constraints, strict=True):
        violated = np.ravel(violation_of(constraint))
        if any(isinstance(parameter, dpm.Private) for parameter in declared.parameters()):
            violations.append(violated)
        else:
            public = max(public, violated.max(initial=0.0) / scale_of(constraint))
    for variable in truth.variables():
        if variable.attributes["integer"] or variable.attributes["boolean"]:
            public = max(public, float(np.abs(variable.value - np.rint(variable.value)).max(initial=0.0)))
        if variable.attributes["nonneg"]:
            public = max(
                public, float(-np.min(variable.value, initial=0.0)) / (1 + float(np.abs(variable.value).max()))
            )
    return loss, np.concatenate(violations), public


def violation_of(constraint: Any) -> Any:
    if isinstance(constraint, cp.constraints.PSD):
        return max(0.0, -float(np.linalg.eigvalsh(constraint.args[0].value)[0]))
    return constraint.violation()


def scale_of(constraint: Any) -> float:
    """1 + the largest number on either side."""
    return 1.0 + max(float(np.abs(np.asarray(side.value)).max(initial=0.0)) for side in constraint.args)


def _false_statements(runs: Sequence[Run], mode: str) -> list[str]:
    """Public constraints always hold. Of the rest, each part of the statement may fail with probability beta a run."""
    broken = []
    for run in runs:
        if run.public > SOLVER:
            broken.append(f"a public constraint is violated by {run.public:.2g} of its size ({run.release.mechanism})")
            break
    failures: dict[str, int] = {}
    for run in runs:
        for failure in unkept(run, mode):
            failures[failure] = failures.get(failure, 0) + 1
    for failure, times in failures.items():
        certain = mode == "strict" and failure == "violation"
        if certain or binom.sf(times - 1, len(runs), runs[0].release.accuracy.beta or 0.0) < FALSE_ALARM:
            stated = [run.release.accuracy.statement for run in runs][-1]
            shown = ", ".join(f"{run.loss:.4g} / {run.violation:.4g}" for run in runs)
            proved = "proved" if runs[0].release.accuracy.proved else "forecast"
            broken.append(
                f"{failure} beyond the statement in {times} of {len(runs)} runs ({runs[0].release.mechanism}, "
                f"{proved}: {stated}; loss / violation: {shown})"
            )
    return broken


def _empty_statements(case: Case, runs: Sequence[Run]) -> list[str]:
    """Statements that hold for every public point and do not say so, and errors below zero."""
    release = runs[0].release
    accuracy = release.accuracy
    broken = [f"an error of {accuracy.alpha:.3g} is promised" for _ in "x" if (accuracy.alpha or 0.0) < 0]
    forecasts = {candidate["mechanism"]: candidate["forecast"] for candidate in release.plan["candidates"]}
    vacuous = forecasts[release.mechanism]["vacuous"]
    if accuracy.objective_alpha is not None and not vacuous:
        most = case.public_range
        if accuracy.objective_alpha > most * (1 + 1e-3) or np.isinf(accuracy.objective_alpha):
            broken.append(
                f"says within {accuracy.objective_alpha:.4g}, where nothing public is further than {most:.4g} away"
            )
    return broken


def unkept(run: Run, mode: str) -> list[str]:
    """Which parts of its statement a release does not keep."""
    accuracy, size = run.release.accuracy, 1.0 + float(np.abs(run.loss))
    broken = []
    # "safe" promises none but those that the release lists, each with its amount.
    allowed = 0.0 if mode == "strict" or (mode == "safe" and not accuracy.short) else accuracy.violation_alpha
    if allowed is not None and len(run.violations):
        tolerance = SOLVER * (
            1 + max(float(np.abs(np.asarray(v)).max(initial=0.0)) for v in run.release.variables.values())
        )
        beyond = int((run.violations > allowed * (1 + 1e-6) + tolerance).sum())
        if beyond > (accuracy.slack_rows or 0):
            broken.append("violation")
    if accuracy.objective_alpha is not None and accuracy.proved:
        value = abs(run.release.value) if run.release.value is not None else size
        if run.loss > accuracy.objective_alpha * (1 + 1e-6) + SOLVER * (1 + value):
            broken.append("loss")
    return broken


def _beaten(case: Case, runs: Sequence[Run], mode: str) -> list[str]:
    """Whether a point that reads no data is at least as good as every release in both respects, and better by more than
    they differ among themselves in one. A release that reads no data is such a point itself: which of two is better on
    these data is luck. Where constraints must hold for certain, the public point has to do so too."""
    if runs[0].release.spent == (0, 0):
        return []
    known = case.certain_points if mode in ("strict", "safe") else case.public_points
    losses = np.array([run.loss for run in runs])
    violations = np.array([run.violation for run in runs])
    for values in known:
        loss, rows, public = judge(case, values, case.optimum)
        violation = float(rows.max(initial=0.0))
        if public > SOLVER or not np.isfinite(loss):
            continue
        if violation > violations.min() or loss > losses.min():
            continue
        gains = losses.min() - loss, violations.min() - violation
        scales = (
            max(np.ptp(losses), 1e-3 * (1 + abs(case.optimum))),
            max(np.ptp(violations), 1e-3 * (1 + violations.max())),
        )
        if any(gain > scale for gain, scale in zip(gains, scales, strict=True)):
            return [
                f"a public point loses {loss:.4g} and violates by {violation:.4g}; releases "
                f"by {runs[0].release.mechanism} "
                f"lose {losses.min():.4g} to {losses.max():.4g} and violate "
                f"by {violations.min():.4g} to {violations.max():.4g}"
            ]
    return []
