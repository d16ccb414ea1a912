"""What a fit by exact linear algebra released."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpmodel.linalg.results import Result
from dpmodel.release.release import Accuracy, Release


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
        plan=result.plan.told(),
        notes=notes,
    )


def _how(accuracy: Accuracy) -> str:
    chance = "" if accuracy.beta is None else f", except with probability {accuracy.beta:g}"
    return f"{'proved' if accuracy.proved else 'a forecast'}{chance}, if the promises about the data hold"
