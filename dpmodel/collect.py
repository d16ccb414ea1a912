"""From the outcome of a run to a release: what all families of CVXPY problems share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Labels
from dpmodel.compile.names import names_of
from dpmodel.contract import NOTHING_FOUND, STOPPED, Outcome, Ran, WrongOutcome
from dpmodel.forecast import Forecast, Violation
from dpmodel.known import says_nothing
from dpmodel.marks import vault
from dpmodel.marks.measured import Measured
from dpmodel.marks.private import Private
from dpmodel.marks.records import record_words
from dpmodel.numerics.solvers import ANSWERS, SOLVER_ERROR
from dpmodel.release import Accuracy, Guarantee, Release
from dpmodel.text import (
    number,
)

_UNTIMED = "how long the run took is not released: all its steps read private data, and their time may depend on it"


# What a released solve may say of itself.
_STATUSES = {*ANSWERS, "least_violation", SOLVER_ERROR, NOTHING_FOUND, STOPPED}


def checked_point(outcome: Any, size: int, rows: int = 0) -> Outcome:
    """``outcome`` with its point as an array of ``size`` numbers; mechanisms from elsewhere may hand back anything.

    ``rows`` : how many multipliers there are, if any.
    Errors: WrongOutcome, in words without numbers.
    """
    if not isinstance(outcome, Outcome):
        raise WrongOutcome(f"{type(outcome).__name__} instead of Outcome")
    if outcome.status not in _STATUSES:
        raise WrongOutcome("a status that is none")
    if not isinstance(outcome.notes, tuple) or not all(isinstance(note, str) for note in outcome.notes):
        raise WrongOutcome("notes that are no tuple of text")
    if not (isinstance(outcome.statement, str) and isinstance(outcome.short, tuple)):
        raise WrongOutcome("a statement or rows in other types than theirs")
    for name in ("value", "seconds", "extra_violation", "violation"):
        number = getattr(outcome, name)
        if not (number is None or (isinstance(number, Real) and not math.isnan(number))):
            raise WrongOutcome(f"a {name} of type {type(number).__name__} that is no number")
    if outcome.dual is not None and not (isinstance(outcome.dual, np.ndarray) and outcome.dual.shape == (rows,)):
        raise WrongOutcome("multipliers of another shape than the rows")
    if not (isinstance(outcome.measured, tuple) and all(isinstance(each, Measured) for each in outcome.measured)):
        raise WrongOutcome("released numbers that are no tuple of Measured")
    for each in outcome.measured:
        if each.fault:
            raise WrongOutcome(f"released numbers with {each.fault}")
    expected = outcome.expected.items() if isinstance(outcome.expected, Mapping) else [(None, None)]
    if not all(isinstance(k, str) and isinstance(v, Real) and math.isfinite(v) for k, v in expected):
        raise WrongOutcome("estimates that are no finite numbers by name")
    if outcome.x is None:
        return replace(outcome, value=None, dual=None)
    try:
        x = np.asarray(outcome.x, dtype=np.float64)
    except (TypeError, ValueError):
        raise WrongOutcome("a point that is no array of numbers") from None
    if x.shape != (size,):
        raise WrongOutcome(f"a point of shape {x.shape}, and the model has {size} variables")
    if not np.isfinite(x).all():
        raise WrongOutcome("a point with entries that are not finite")
    return replace(outcome, x=x)


def private_parameters(problem: cp.Problem) -> list[Private]:
    """The private ones among the parameters of ``problem``."""
    return [parameter for parameter in problem.parameters() if isinstance(parameter, Private)]


def collect(
    problem: cp.Problem,
    parameters: Sequence[Private],
    classification: tuple[str, ...],
    ran: Ran,
    value: float | None,
    notes: Sequence[str],
    duals: Mapping[str, Any],
) -> Release:
    """The release, once the values have been written to the variables of ``problem``. ``parameters`` : the private
    ones that reach it; ``classification`` : of the model, in words."""
    if "solve" not in ran.timings and ran.outcome.x is not None and not ran.forecast.spends_nothing:
        notes = (*notes, _UNTIMED)
    guarantee = guarantee_of(parameters, ran.forecast.epsilon, ran.forecast.delta)
    sources = [vault.source_of(p) for p in private_parameters(problem)]
    trusted = {source.trusted for source in sources if source is not None and not ran.forecast.spends_nothing}
    for words in sorted(trusted - {""}):
        guarantee = replace(guarantee, record=f"{guarantee.record}; trusted: {words}")
    if not ran.private:
        notes = ("NOT PRIVATE: seeded noise for tests was used", *notes)
        guarantee = replace(guarantee, record=f"NOT PRIVATE (seeded noise for tests); {guarantee.record}")
    return Release(
        mechanism=ran.mechanism,
        guarantee=guarantee,
        accuracy=accuracy_of(ran.forecast, ran.outcome),
        status=ran.outcome.status,
        value=value,
        variables={} if ran.outcome.x is None else values_of(problem),
        duals=duals,
        labels={} if ran.outcome.x is None else _labels(problem, duals),
        spent=(ran.forecast.epsilon, ran.forecast.delta),
        timings=ran.timings,
        classification=classification,
        plan=ran.plan,
        notes=tuple(notes),
        measured=ran.outcome.measured,
        estimates=ran.outcome.expected,
    )


def values_of(problem: cp.Problem) -> dict[str, Any]:
    """Name -> value of each variable, dense."""
    variables = problem.variables()
    dense = (v.value.toarray() if sp.issparse(v.value) else v.value for v in variables)  # diagonal ones
    return dict(zip(unique(v.name() for v in variables), dense, strict=True))


def named_constraints(problem: cp.Problem) -> dict[str, cp.Constraint]:
    """Label -> constraint; those without a label are numbered."""
    labels = unique(str(c.label or f"constraint {number}") for number, c in enumerate(problem.constraints))
    return dict(zip(labels, problem.constraints, strict=True))


def _labels(problem: cp.Problem, duals: Mapping[str, Any]) -> dict[str, Labels]:
    """Names of the entries of variables and duals, where the model has any."""
    names, variables = names_of(problem), problem.variables()
    found = {
        name: names.variables.get(id(v)) for name, v in zip(unique(v.name() for v in variables), variables, strict=True)
    }
    found |= {name: names.constraints.get(id(c)) for name, c in named_constraints(problem).items() if name in duals}
    return {name: labels for name, labels in found.items() if labels}


def unique(names: Iterable[str]) -> list[str]:
    """The names, with (2), (3) and so on where CVXPY objects share one."""
    out: list[str] = []
    for name in names:
        fresh, number = name, 1
        while fresh in out:
            number += 1
            fresh = f"{name} ({number})"
        out.append(fresh)
    return out


def guarantee_of(parameters: Sequence[Private], epsilon: float, delta: float) -> Guarantee:
    """The guarantee, with what a record is and what besides the release is public."""
    record = record_words(parameters)
    neighbors = sorted({parameter.records.neighbors for parameter in parameters})
    patterns = list(dict.fromkeys(p.name() for p in parameters if p.sparse_idx is not None))
    if patterns:
        record += f"; the positions of the entries of {', '.join(patterns)} are public"
    return Guarantee(epsilon, delta, " and ".join(neighbors), record)


def accuracy_of(forecast: Forecast, outcome: Outcome) -> Accuracy:
    """The forecast as a statement on this release: what the solve on released data left of it."""
    if outcome.x is None:
        why = f"the released program is {outcome.status}"
        if outcome.status in (SOLVER_ERROR, STOPPED):
            why = "no solver had an answer" if outcome.status == SOLVER_ERROR else "the mechanism stopped with an error"
        return Accuracy(alpha=None, beta=None, statement=f"no point: {why}")
    extra = outcome.extra_violation
    centred = isinstance(forecast.error, Violation) and forecast.error.centred
    # A statement that lists what may be missed counts it, and so does what is told of the released point.
    within = extra == 0 or bool(outcome.statement) or outcome.violation is not None
    text = outcome.statement or forecast.statement
    if outcome.statement and forecast.vacuous:
        text = says_nothing(text)
    exact = outcome.status in ("optimal", "least_violation")
    if not exact:
        text += f"; the solver stopped early ({outcome.status}), and what that costs is not counted"
    if extra > 0 and not outcome.statement:
        why = ", because no point meets the released numbers" if centred else ""
        text += f"; but this draw needed a further violation of up to {number(extra)}{why}"
    objective, violation, slack_rows = forecast.error.stated()
    if violation is not None:
        violation += extra
    if outcome.violation is not None:
        violation = outcome.violation
    if outcome.violation is not None and not outcome.statement:
        text += f"; at the released point none is by more than {number(outcome.violation)}"
    return Accuracy(
        alpha=max((each for each in (objective, violation) if each is not None), default=0.0),
        beta=forecast.beta,
        slack_rows=slack_rows,
        proved=forecast.proved and exact and within,
        statement=text,
        objective_alpha=objective,
        violation_alpha=violation,
        vacuous=forecast.vacuous,
        short=outcome.short,
    )
