"""One private solve of exact linear algebra, from a system to what was found: plan, charge, run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dpmodel.execute import execute
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.forecast import Forecast, RowsMissed
from dpmodel.mechanisms.linalg.found import Found
from dpmodel.mechanisms.linalg.systems import PrivateSystem
from dpmodel.models.systems import system
from dpmodel.plan.comparison import Plan
from dpmodel.privacy import Budget
from dpmodel.release.release import Accuracy, Guarantee
from dpmodel.users_line import users_line

ProgressArgument = Callable[[str, float], None] | bool | None


@dataclass(frozen=True)
class Conducted:
    """``plan``, ``found`` (what the mechanism released) and the ``guarantee``."""

    plan: Plan
    found: Found
    guarantee: Guarantee

    def accuracy(self, missed: float | None = None) -> Accuracy:
        """The chosen forecast as a statement: all hold but ``slack_rows`` records (``missed``, where it is given)."""
        forecast = self._forecast
        if missed is None:
            assert isinstance(forecast.error, RowsMissed)
            missed = forecast.error.missed
        bounded = math.isfinite(missed) and not forecast.vacuous
        slack = math.ceil(missed) if bounded else None
        alpha = 0.0 if bounded else None
        return Accuracy(alpha, forecast.beta, slack, forecast.proved, forecast.statement, vacuous=forecast.vacuous)

    @property
    def notes(self) -> tuple[str, ...]:
        """Of the run, then what the forecast warns of."""
        return (*self.found.notes, *self._forecast.caveats)

    @property
    def _forecast(self) -> Forecast:
        assert self.plan.chosen.forecast is not None
        return self.plan.chosen.forecast


def conduct(
    model: PrivateSystem,
    request: Request,
    *,
    mechanism: Any = "auto",
    budget: Budget | None = None,
    rng: Any = None,
    progress: ProgressArgument = None,
    label: str,
    record: str,
) -> Conducted:
    """Plan, charge the budget, run.

    ``label`` : of the charge, such as "linalg.span". ``record`` : what a record is, for the guarantee.

    Raises
    ------
    SpecificationError, UnsupportedModelError, BudgetExceededError
        Before anything is read or spent. UnsupportedModelError also where the number of records is public and too small
        for any statement, with the number needed (a forced ``mechanism`` runs all the same).
    """
    automatic = isinstance(mechanism, str) and mechanism == "auto"
    done = execute(
        system(model),
        request,
        mechanism,
        label=label,
        budget=budget,
        rng=rng,
        progress=progress,
        compare=automatic,
    )
    if done.failure is not None:
        raise done.failure
    try:
        done.report("done", 1.0)
    except Exception as error:  # the caller's own; what was paid for is worth more
        words = f"progress stopped with {type(error).__name__} at the end; the result is kept"
        warnings.warn(words, stacklevel=users_line())
    if not done.private:
        record = f"NOT PRIVATE (seeded noise for tests); {record}"
    spent = Guarantee(done.forecast.epsilon, done.forecast.delta, model.neighbors, record)
    return Conducted(done.plan, done.outcome, spent)
