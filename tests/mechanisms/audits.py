"""Auditing the mechanisms on worst-case neighbours, and planting broken twins of each.

The noise layer is run directly, many draws at a time: everything after it is post-processing, so its output is what an
attacker could wish for at best. The score is the log likelihood ratio of the published distributions, the best there
is. A twin is a change of the calibrated design, or of the captured selection; the audit must find it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from auditing import epsilon_lower_bound
from cases import CASES, Opened
from families import verdict as verdict_of
from replaying import Transcript

from dpmodel._types import Floats
from dpmodel.privacy import Gaussian, SeededSource, TruncatedLaplace
from dpmodel.programs.noise_design import NoiseDesign, NoisyPart, design, measurements
from dpmodel.solve.registry import by_name

# The audit names an honest mechanism with at most this probability.
FALSE_ALARM = 1e-7
RUNS = 300_000
DELTA = {"laplace-once": 0.0, "gaussian-once": 1e-3, "strict-truncated-laplace": 1e-2, "theorem-34": 1e-3}

Designs = Callable[[Opened], NoiseDesign]
Twin = Callable[[Opened, NoiseDesign], NoiseDesign]


@dataclass(frozen=True)
class Audit:
    """One audit: the mechanism on one case, honest (``twin`` is None) or broken."""

    mechanism: str
    case: str
    part: str
    twin: str = ""
    epsilon: float = 1.0

    @property
    def delta(self) -> float:
        return DELTA.get(self.mechanism, 0.0)

    def __str__(self) -> str:
        return "-".join(filter(None, (self.mechanism, self.part, self.twin.replace(" ", "_"))))


def calibrated(mechanism: str, opened: Opened) -> NoiseDesign:
    """The design that the mechanism's ``run`` uses."""
    which: Any = by_name(mechanism)
    model, options = opened.model, opened.options
    if mechanism == "theorem-34":
        noise: NoiseDesign = which._design(model, options)
        return noise
    if mechanism == "strict-truncated-laplace":
        return design(model, options, which._kinds(model))
    return design(model, options, dict.fromkeys(model.private_parts(), which.kind))


def scaled(factor: float) -> Twin:
    def twin(opened: Opened, noise: NoiseDesign) -> NoiseDesign:
        def distribution(part: NoisyPart) -> Any:
            if isinstance(part.distribution, TruncatedLaplace):
                return TruncatedLaplace(part.distribution.scale * factor, part.distribution.half_width * factor)
            return type(part.distribution)(part.distribution.scale * factor)  # type: ignore[union-attr]

        return replace(noise, parts={name: replace(p, distribution=distribution(p)) for name, p in noise.parts.items()})

    return twin


def forgetting_reuse(opened: Opened, noise: NoiseDesign) -> NoiseDesign:
    """Entries measured one by one, with noise for the change of a single one."""
    parts = {}
    for name, part in noise.parts.items():
        entries = measurements(opened.model, name)[0]
        distribution: Any = part.distribution
        moved = max(sensitivity.linf for sensitivity in entries.sensitivity.values())
        old = part.measurement.l2 if isinstance(distribution, Gaussian) else part.measurement.l1
        smaller = replace(distribution, scale=distribution.scale * moved / old)
        if isinstance(distribution, TruncatedLaplace):
            smaller = replace(smaller, half_width=distribution.half_width * moved / old)
        parts[name] = replace(part, measurement=entries, distribution=smaller)
    return replace(noise, parts=parts)


def narrow(opened: Opened, noise: NoiseDesign) -> NoiseDesign:
    """The scale for epsilon, but a window without regard to delta."""
    parts = {}
    for name, part in noise.parts.items():
        distribution: Any = part.distribution
        if isinstance(distribution, TruncatedLaplace):
            distribution = replace(distribution, half_width=distribution.half_width / 2)
        parts[name] = replace(part, distribution=distribution)
    return replace(noise, parts=parts)


def without_epsilon(opened: Opened, noise: NoiseDesign) -> NoiseDesign:
    return scaled(opened.options.epsilon)(opened, noise)


TWINS: dict[str, Twin] = {
    "noise halved": scaled(0.5),
    "noise divided by 30": scaled(1 / 30),
    "reuse forgotten": forgetting_reuse,
    "window too narrow": narrow,
    "epsilon forgotten": without_epsilon,
    "one draw for all": lambda opened, noise: noise,
}
SELECTION_TWIN = "range halved"


def noised(noise: NoiseDesign, theta: Floats, runs: int, source: SeededSource, *, shared: bool) -> list[Floats]:
    """(runs, k) draws of every part."""
    out = []
    for part in noise.parts.values():
        exact = part.measurement.values(theta)
        distribution: Any = part.distribution
        if shared:
            out.append(exact + distribution.add_to(np.zeros((runs, 1)), source))
        else:
            out.append(distribution.add_to(np.tile(exact, (runs, 1)), source))
    return out


def log_density(distribution: Any, z: Floats) -> Floats:
    """Up to a constant; -inf outside the support."""
    if isinstance(distribution, Gaussian):
        return -((z / distribution.scale) ** 2) / 2
    size = np.abs(z)
    inside = -size / distribution.scale
    if isinstance(distribution, TruncatedLaplace):
        return np.where(size <= distribution.half_width * (1 + 1e-12), inside, -np.inf)
    return inside


def likelihood_score(noise: NoiseDesign, one: list[Floats], two: list[Floats]) -> Callable[[list[Floats]], Floats]:
    """Log likelihood ratio of the outputs, clipped to finite numbers."""

    def score(outputs: list[Floats]) -> Floats:
        total = np.zeros(outputs[0].shape[0])
        for part, y, a, b in zip(noise.parts.values(), outputs, one, two, strict=True):
            p, q = log_density(part.distribution, y - a).sum(axis=1), log_density(part.distribution, y - b).sum(axis=1)
            with np.errstate(invalid="ignore"):
                total += np.nan_to_num(p - q, nan=0.0, posinf=1e6, neginf=-1e6)
        return total

    return score


def lower_bound(audit: Audit, runs: int = RUNS, seed: int = 20_260_101) -> float:
    """The epsilon that the audit proves (confidence 1 - 1e-7), for the delta that the mechanism claims."""
    case = CASES[audit.case]
    feasibility = "strict" if audit.mechanism == "strict-truncated-laplace" else "relaxed"
    opened = case.open(epsilon=audit.epsilon, delta=audit.delta, feasibility=feasibility)
    mechanism = by_name(audit.mechanism)
    verdict = verdict_of(mechanism, opened.model, opened.options)
    assert verdict.eligible, verdict.reason
    forecast = mechanism.forecast(opened.model, opened.options)
    assert (forecast.epsilon, forecast.delta) == (audit.epsilon, audit.delta)
    if audit.mechanism == "vertex-exponential":
        p, q = (selections(opened, values, audit.twin, runs, seed + i) for i, values in _pair(case))
        return max(epsilon_lower_bound(p, q, lambda chosen, v=v: chosen == v) for v in range(2))
    noise = calibrated(audit.mechanism, opened)
    if audit.twin:
        noise = TWINS[audit.twin](opened, noise)
    shared = audit.twin == "one draw for all"
    thetas = [opened.seal(values) for _, values in _pair(case)]
    exact = [[part.measurement.values(theta) for part in noise.parts.values()] for theta in thetas]
    outputs = [noised(noise, theta, runs, SeededSource(seed + i), shared=shared) for i, theta in enumerate(thetas)]
    if shared:
        scores = [np.round(parts[0][:, 0] - parts[0][:, 1], 6) for parts in outputs]
    else:
        score = likelihood_score(noise, *exact)
        scores = [score(parts) for parts in outputs]
    return epsilon_lower_bound(*scores, delta=audit.delta, confidence=1 - FALSE_ALARM)


def _pair(case: Any) -> list[tuple[int, dict[str, Any]]]:
    return [(0, case.values), (1, case.neighbour)]


def selections(opened: Opened, values: dict[str, Any], twin: str, runs: int, seed: int) -> Floats:
    """(runs,) chosen indices: ``run`` once, to learn scores and scale, then its selection many times."""
    opened.seal(values)
    source = Transcript(seed)
    by_name("vertex-exponential").run(opened.model, opened.options, source)
    (draw,) = source.draws
    scores, (scale, kind) = draw.values[0], draw.arguments
    assert kind == "permute_and_flip"
    scale = scale / 2 if twin == SELECTION_TWIN else scale
    noise = np.random.default_rng(seed).exponential(scale=scale, size=(runs, scores.size))
    return np.argmax(scores + noise, axis=1).astype(float)


HONEST = [
    Audit("laplace-once", "prices", "objective"),
    Audit("laplace-once", "running_totals", "scalar"),
    Audit("laplace-once", "coefficients", "matrix"),
    Audit("laplace-once", "objective_and_sides", "objective+scalar"),
    Audit("laplace-once", "rows_and_sides", "scalar+matrix"),
    Audit("gaussian-once", "prices", "objective"),
    Audit("gaussian-once", "running_totals", "scalar"),
    Audit("gaussian-once", "coefficients", "matrix"),
    Audit("gaussian-once", "rows_and_sides", "scalar+matrix"),
    Audit("gaussian-once", "all_three", "all"),
    Audit("strict-truncated-laplace", "packing", "scalar"),
    Audit("strict-truncated-laplace", "rows_and_sides", "scalar+matrix"),
    Audit("strict-truncated-laplace", "objective_and_sides", "objective+scalar"),
    Audit("theorem-34", "prices", "objective"),
    Audit("vertex-exponential", "prices", "objective"),
]

BROKEN = [
    *(
        replace(audit, twin="noise halved")
        for audit in HONEST
        if audit.mechanism in ("laplace-once", "gaussian-once", "strict-truncated-laplace")
    ),
    replace(HONEST[1], twin="reuse forgotten"),
    replace(HONEST[6], twin="reuse forgotten"),
    replace(HONEST[10], twin="window too narrow"),
    replace(HONEST[11], twin="window too narrow"),
    Audit("theorem-34", "prices", "objective", "epsilon forgotten", 0.001),
    Audit("theorem-34", "prices", "objective", "noise divided by 30"),
    Audit("theorem-34", "prices", "objective", "one draw for all"),
    Audit("vertex-exponential", "prices", "objective", SELECTION_TWIN),
]
