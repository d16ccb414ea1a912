"""What the learners by exact linear algebra share: their checks, and what a fit released."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpmodel.errors import SpecificationError
from dpmodel.plan.comparison import Plan
from dpmodel.release.release import Accuracy, Guarantee, Release


def require_classes(estimator: Any) -> None:
    """Before the data is looked at."""
    if estimator.classes is None:
        raise SpecificationError(
            f"{type(estimator).__name__} has no classes",
            why="a label that only one record has would tell that the record is there",
            remedy="classes=(negative, positive), or classes='public' if it is public which labels occur",
        )


def keep_release(
    estimator: Any,
    *,
    plan: Plan,
    guarantee: Guarantee,
    accuracy: Accuracy,
    status: str,
    variables: Mapping[str, Any],
    notes: tuple[str, ...],
    records: int,
    what: str,
) -> None:
    """Set ``plan_``, ``guarantee_``, ``release_`` and ``error_forecast_`` of a fit.

    ``records`` : public number, or guess, of those (``what``) that may be misclassified; 0: none was given.
    """
    slack = accuracy.slack_rows
    share = math.nan if slack is None or not records else min(1.0, slack / records)
    if slack is not None:
        of = f" of about {records}" if records else ""
        notes = (*notes, f"at most {slack}{of} {what} misclassified: {_how(accuracy)}")
    estimator.plan_, estimator.guarantee_, estimator.error_forecast_ = plan, guarantee, share
    estimator.release_ = Release(
        mechanism=plan.chosen.mechanism,
        guarantee=guarantee,
        accuracy=accuracy,
        status=status,
        variables=variables,
        spent=(guarantee.epsilon, guarantee.delta),
        plan=plan.to_dict(),
        notes=notes,
    )


def _how(accuracy: Accuracy) -> str:
    chance = "" if accuracy.beta is None else f", except with probability {accuracy.beta:g}"
    return f"{'proved' if accuracy.proved else 'a forecast'}{chance}, if the promises about the data hold"
