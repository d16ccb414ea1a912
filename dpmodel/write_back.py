"""After a mechanism has run: the user's CVXPY objects get the released values, and the release is collected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.annotate.private import Private
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.classify.private_outputs import AnyRegression
from dpmodel.compile.cvxpy_bridge import Lowered, evaluate_objective, write_values
from dpmodel.mechanisms.mechanism import Outcome
from dpmodel.plan.comparison import Plan
from dpmodel.release.explanation import accuracy_of, guarantee_of
from dpmodel.release.release import Release


def write_lp(
    problem: cp.Problem, lowered: Lowered, model: PrivateLP, plan: Plan, outcome: Outcome, about: Mapping[str, Any]
) -> Release:
    """``about`` : ``timings`` and ``private`` (whether noise was), for ``collect``."""
    value = outcome.value
    notes = list(outcome.notes)
    if value is not None and model.form.offset.nnz:
        value = None
        notes.append("the objective's constant term is private and was not measured: no objective value")
    if value is not None and model.splits_objective:
        value = None
        notes.append("the objective was split into rows with noise in them: no objective value is released")
    if value is not None and model.affine.maximize:
        value = -value
    status = outcome.status if outcome.status != "least_violation" else "optimal_inaccurate"
    lowered.write_back(problem, outcome.x, outcome.dual, status, value)
    if value is not None and not any(isinstance(p, Private) for p in problem.objective.parameters()):
        # A public function of the released point: better than its value in the relaxed standard form.
        value = evaluate_objective(problem)
    duals: dict[str, Any] = {}
    if outcome.dual is not None and outcome.x is not None:
        labels = _unique(str(c.label or f"constraint {number}") for number, c in enumerate(problem.constraints))
        for label, constraint in zip(labels, problem.constraints, strict=True):
            dual = constraint.dual_value
            # Multipliers of cones come in parts.
            parts = {f"{label}[{k}]": d for k, d in enumerate(dual)} if isinstance(dual, list) else {label: dual}
            duals |= {name: d for name, d in parts.items() if isinstance(d, np.ndarray | float)}
    return _collect(problem, model, plan, outcome, value, notes, duals, **about)


def write_regression(
    problem: cp.Problem, model: AnyRegression, plan: Plan, outcome: Outcome, about: Mapping[str, Any]
) -> Release:
    """The released coefficients, and with them every variable of the model."""
    notes = [*outcome.notes]
    if outcome.x is not None:
        assert model.public is not None
        write_values(problem, model.public.complete(outcome.x), outcome.status)
        model.public.forget()
    else:
        write_values(problem, {}, outcome.status)
    clipped = [p.name() for p in model.private if _clips(p)]
    if clipped:
        notes.append(f"values of {', '.join(clipped)} beyond the declared bounds were clipped (how many is private)")
    if np.isfinite(model.loss.clip):
        notes.append(f"slopes of the loss were cut to {model.loss.clip:g}: its minimiser is that of the clipped loss")
    return _collect(problem, model, plan, outcome, outcome.value, notes, {}, **about)


def _clips(parameter: Private) -> bool:
    return any(map(np.isfinite, parameter.magnitude.values())) or parameter.bounds is not None


def _collect(
    problem: cp.Problem,
    model: PrivateLP | AnyRegression,
    plan: Plan,
    outcome: Outcome,
    value: float | None,
    notes: list[str],
    duals: Mapping[str, Any],
    *,
    timings: Mapping[str, float],
    private: bool,
) -> Release:
    forecast = plan.chosen.forecast
    assert forecast is not None
    guarantee = guarantee_of(model, forecast.epsilon, forecast.delta)
    if not private:
        notes.insert(0, "NOT PRIVATE: seeded noise for tests was used")
        guarantee = replace(guarantee, record=f"NOT PRIVATE (seeded noise for tests); {guarantee.record}")
    return Release(
        mechanism=plan.chosen.mechanism,
        guarantee=guarantee,
        accuracy=accuracy_of(plan, outcome),
        status=outcome.status,
        value=value,
        variables={} if outcome.x is None else values_of(problem),
        duals=duals,
        spent=(forecast.epsilon, forecast.delta),
        timings=timings,
        classification=tuple(str(cell) for cell in model.classification.cells),
        plan=plan.to_dict(),
        notes=tuple(notes),
    )


def values_of(problem: cp.Problem) -> dict[str, Any]:
    """Name -> value of each variable, dense."""
    variables = problem.variables()
    dense = (v.value.toarray() if sp.issparse(v.value) else v.value for v in variables)  # diagonal ones
    return dict(zip(_unique(v.name() for v in variables), dense, strict=True))


def _unique(names: Iterable[str]) -> list[str]:
    """The names, with (2), (3) and so on where CVXPY objects share one."""
    out: list[str] = []
    for name in names:
        fresh, number = name, 1
        while fresh in out:
            number += 1
            fresh = f"{name} ({number})"
        out.append(fresh)
    return out
