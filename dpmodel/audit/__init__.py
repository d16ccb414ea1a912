"""Audits: what every mechanism owes, tried on models with data, each check with a planted fault that it has to find.

``audit.mechanism(Mine())`` runs all of them, over small models of the package or over yours. Audits know the private
numbers of their models, so give them data that may be known. They find faults; that there are none is shown by the
privacy argument alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpmodel.audit.checks import bound, replay, round_trip, sensitivity, statement, trace
from dpmodel.audit.models import MODELS
from dpmodel.audit.neighbors import Data, System, opened
from dpmodel.audit.report import Finding, Report
from dpmodel.errors import DPModelError

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

    Examples
    --------
    >>> from dpmodel import audit
    >>> report = audit.mechanism("laplace-once", neighbors=4, runs=4)
    >>> report.ok
    True
    """
    findings: list[Finding] = []
    left_out: list[tuple[str, str]] = []
    for model in MODELS if models is None else models:
        subject = opened(model)
        budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
        try:
            found = [replay(subject, mechanism, **budget, neighbors=neighbors, seed=seed)]
            if isinstance(subject, Data):
                found += [
                    statement(subject, mechanism, **budget, runs=runs, seed=seed),
                    bound(subject, mechanism, **budget),
                    trace(subject, mechanism, **budget, seed=seed),
                    round_trip(subject, mechanism, **budget, seed=seed),
                ]
                if is_program(subject):
                    found.append(sensitivity(subject, neighbors=8 * neighbors, seed=seed))
        except DPModelError as refusal:
            left_out.append((subject.name, refusal.why or refusal.what))
            continue
        findings += [each for each in found if each.check != "bound" or each.caught]
    name = mechanism if isinstance(mechanism, str) else mechanism.name
    return Report(name, tuple(findings), tuple(left_out))


def is_program(subject: Data) -> bool:
    return hasattr(subject.problem._model(None), "form") and hasattr(subject.problem._model(None), "affine")
