"""Audits: what every mechanism owes, tried on models with data, each check with a planted fault that it has to find.

``audit.mechanism(Mine())`` runs all of them, over small models of the package or over yours. Audits know the private
numbers of their models, so give them data that may be known. They find faults; that there are none is shown by the
privacy argument alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from dpmodel.audit.checks import Finding, Report, bound, replay, round_trip, sensitivity, statement, trace
from dpmodel.audit.models import MODELS
from dpmodel.audit.neighbors import Data, System, opened
from dpmodel.errors import DPModelError
from dpmodel.solve.registry import load_entry_points, named
from dpmodel.solve.wall import RunError

__all__ = [
    "Finding",
    "Report",
    "System",
    "bound",
    "mechanism",
    "replay",
    "round_trip",
    "sensitivity",
    "statement",
    "trace",
]


def mechanism(
    mechanism: Any,
    models: Iterable[Any] | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    *,
    neighbors: int = 8,
    runs: int = 8,
    seed: int = 0,
) -> Report:
    """Run every check on every model that the mechanism serves.

    Parameters
    ----------
    mechanism : an object, or a registered name. models : functions of ``private``, or ``System``; by default small
        ones of each kind. neighbors, runs : pairs of neighbours and releases per model.

    Raises
    ------
    SpecificationError
        For a name that is not registered, or an object that is no mechanism.

    Examples
    --------
    >>> from dpmodel import audit
    >>> report = audit.mechanism("laplace-once", neighbors=4, runs=4)
    >>> report.ok
    True
    """
    if mechanism != "auto":
        load_entry_points()
        named(mechanism)
    findings: list[Finding] = []
    left_out: list[tuple[str, str]] = []
    for model in MODELS if models is None else models:
        subject = opened(model)
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
        try:
            found = [replay(subject, mechanism, **budget, neighbors=neighbors, seed=seed)]
        except RunError as error:
            found = [Finding("replay", subject.name, "one run", (f"the run failed after the charge: {error.what}",))]
        except DPModelError as refusal:
            left_out.append((subject.name, refusal.why or refusal.what))
            continue
        checks: dict[str, Callable[[], Finding]] = {}
        if isinstance(subject, Data):
            checks = {
                "statement": partial(statement, subject, mechanism, **budget, runs=runs, seed=seed),
                "bound": partial(bound, subject, mechanism, **budget),
                "trace": partial(trace, subject, mechanism, **budget, seed=seed),
                "round trip": partial(round_trip, subject, mechanism, **budget, seed=seed),
            }
            if is_program(subject):
                checks["sensitivity"] = partial(sensitivity, subject, neighbors=8 * neighbors, seed=seed)
        for check, run in checks.items():
            try:
                found.append(run())
            except DPModelError as error:  # it was served a moment ago
                found.append(Finding(check, subject.name, "one run", (f"it ended in {type(error).__name__}",)))
        findings += [each for each in found if each.check != "bound" or each.caught or each.faults]
    name = mechanism if isinstance(mechanism, str) else mechanism.name
    return Report(name, tuple(findings), tuple(left_out))


def is_program(subject: Data) -> bool:
    return subject.problem._model().drawn
