"""What the learners by exact linear algebra share: their checks, and what a fit released."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpmodel.errors import SpecificationError
from dpmodel.linalg.results import Result
from dpmodel.release.release import Accuracy, Release


def require_classes(estimator: Any) -> None:
    """Before the data is looked at."""
    if estimator.classes is None:
        raise SpecificationError(
            f"{type(estimator).__name__} has no classes",
            why="a label that only one record has would tell that the record is there",
            remedy="classes=(negative, positive), or classes='public' if it is public which labels occur",
        )


def keep_release(estimator: Any, result: Result, variables: Mapping[str, Any], records: int, what: str) -> None:
    """Set ``plan_``, ``guarantee_``, ``release_`` and ``error_forecast_`` of a fit.

    ``records`` : public number, or guess, of those (``what``) that may be misclassified; 0: none was given.
    """
    slack, notes, guarantee = result.accuracy.slack_rows, result.notes, result.guarantee
    share = math.nan if slack is None or not records else min(1.0, slack / records)
    if slack is not None:
        of = f" of about {records}" if records else ""
        notes = (*notes, f"at most {slack}{of} {what} misclassified: {_how(result.accuracy)}")
    estimator.plan_, estimator.guarantee_, estimator.error_forecast_ = result.plan, guarantee, share
    estimator.release_ = Release(
        mechanism=result.mechanism,
        guarantee=guarantee,
        accuracy=result.accuracy,
        status="found" if result.found else "nothing",
        variables=variables,
        spent=(guarantee.epsilon, guarantee.delta),
        plan=result.plan.to_dict(),
        notes=notes,
    )


def _how(accuracy: Accuracy) -> str:
    chance = "" if accuracy.beta is None else f", except with probability {accuracy.beta:g}"
    return f"{'proved' if accuracy.proved else 'a forecast'}{chance}, if the promises about the data hold"
