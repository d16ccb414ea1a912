"""One private solve of exact linear algebra, from a system to what was found: plan, charge, run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

from dpmodel.execute import execute
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.forecast import RowsMissed
from dpmodel.mechanisms.linalg.found import Found
from dpmodel.mechanisms.linalg.systems import PrivatePoints, PrivateSystem
from dpmodel.models.systems import system
from dpmodel.release.release import Accuracy, Guarantee
from dpmodel.users_line import users_line

ProgressArgument = Callable[[str, float], None] | bool | None


def solve_system(
    model: PrivateSystem,
    request: Request,
    *,
    mechanism: Any,
    budget: Any,
    rng: Any,
    progress: ProgressArgument = None,
    label: str,
    record: str,
) -> tuple[Found, dict[str, Any]]:
    """Plan, charge the budget, run: what was found, and the fields that all results have (``results.Result``).

    ``label`` : of the charge, such as "linalg.span". ``record`` : what a record is, for the guarantee.

    Raises
    ------
    SpecificationError, UnsupportedModelError, BudgetExceededError
        Before anything is read or spent. UnsupportedModelError also where the number of records is public and too small
        for any statement, with the number needed (a forced ``mechanism`` runs all the same).
    """
    done = execute(system(model), request, mechanism, label=label, budget=budget, rng=rng, progress=progress)
    if done.failure is not None:
        raise done.failure
    try:
        done.report("done", 1.0)
    except Exception as error:  # the caller's own; what was paid for is worth more
        words = f"progress stopped with {type(error).__name__} at the end; the result is kept"
        warnings.warn(words, stacklevel=users_line())
    if not done.private:
        record = f"NOT PRIVATE (seeded noise for tests); {record}"
    forecast, found = done.forecast, done.outcome
    assert isinstance(forecast.error, RowsMissed)
    missed = 0.0 if isinstance(model, PrivatePoints) else forecast.error.missed  # a hull leaves no point out
    bounded = math.isfinite(missed) and not forecast.vacuous
    accuracy = Accuracy(
        alpha=0.0 if bounded else None,
        beta=forecast.beta,
        slack_rows=math.ceil(missed) if bounded else None,
        proved=forecast.proved,
        statement=forecast.statement,
        vacuous=forecast.vacuous,
    )
    return found, {
        "found": found.status == "found",
        "mechanism": done.plan.chosen.mechanism,
        "guarantee": Guarantee(forecast.epsilon, forecast.delta, model.neighbors, record),
        "accuracy": accuracy,
        "plan": done.plan.alone(),
        "notes": (*found.notes, *forecast.caveats),
    }
