"""Post-processing from a model to a release: planned and solved like every problem, but nothing private is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel._text import number
from dpmodel.annotate.noisy import Noisy
from dpmodel.classify.classifier import Classification
from dpmodel.compile.cvxpy_bridge import evaluate_objective, write_values
from dpmodel.compile.likelihood_feasible import contradiction, require_consistent
from dpmodel.compile.postprocessing import Postprocessing
from dpmodel.mechanisms.mechanism import Outcome, Request
from dpmodel.plan.comparison import Plan
from dpmodel.plan.portfolio import AnyMechanism, by_name
from dpmodel.plan.postprocess_plan import FREE, plan_postprocessing
from dpmodel.privacy import OpenDPSource
from dpmodel.progress import Report, reporter
from dpmodel.release.release import Accuracy, Guarantee, Release
from dpmodel.write_back import values_of

_BIASED = "non-negativity is a constraint: it lowers the error of cells and biases totals of sparse data upwards"


def solve_postprocessing(
    model: Postprocessing,
    mechanism: str | AnyMechanism = "auto",
    *,
    request: Request = FREE,
    progress: Callable[[str, float], None] | bool | None = None,
) -> tuple[Plan, Outcome]:
    """Plan (a forced mechanism alone) and solve; nothing is spent.

    Raises
    ------
    SpecificationError, UnsupportedModelError
        For a mechanism that does not exist or does not serve this model.
    InfeasibleError
        When no point satisfies the public constraints.
    """
    require_consistent(model)
    plan = plan_postprocessing(model, mechanism, request=request, compare=False)
    algorithm: Any = plan.algorithm or by_name(plan.chosen.mechanism, type(model))
    report: Report = reporter(progress, False)
    outcome: Outcome = algorithm.run(model, request, OpenDPSource(), report)
    if outcome.status == "infeasible":
        raise contradiction(model)
    return plan, outcome


def release_of(
    model: Postprocessing,
    plan: Plan,
    outcome: Outcome,
    variables: Mapping[str, Any],
    *,
    timings: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
) -> Release:
    """The release of a solved model: guarantee (0, 0), and what the published numbers cost as far as they tell."""
    forecast = plan.chosen.forecast
    assert forecast is not None
    said = [*outcome.notes, *notes, *published(model.measurements)]
    if model.form is not None and bool((model.form.lower >= 0).any()) and model.form.absolute.any():
        said.append(_BIASED)
    exact = outcome.status == "optimal"
    statement = forecast.statement if exact else f"the solver stopped early ({outcome.status})"
    if outcome.x is None:
        statement = "no solution: the likelihood and the constraints leave the objective without a minimum"
    return Release(
        mechanism=plan.chosen.mechanism,
        guarantee=Guarantee(0.0, 0.0, record="post-processing of published numbers"),
        accuracy=Accuracy(
            alpha=forecast.objective_alpha if exact else None,
            beta=0.0 if exact else None,
            proved=forecast.proved and exact,
            statement=statement,
        ),
        status=outcome.status,
        value=None if outcome.x is None else outcome.value,
        variables=variables,
        timings={"solve": outcome.seconds or 0.0} if timings is None else timings,
        classification=(model.words,),
        plan=plan.to_dict(),
        notes=tuple(dict.fromkeys(said)),
    )


def published(measurements: Sequence[Noisy]) -> list[str]:
    """One line per set of published numbers: its law, and what publishing it cost, if that was declared."""
    lines = []
    for place, noisy in enumerate(measurements):
        least, most = (number(float(end)) for end in (noisy.scale.min(), noisy.scale.max()))
        size = least if least == most else f"{least} to {most}"
        cost = "its own cost was not declared"
        if noisy.epsilon is not None:
            cost = f"it cost epsilon {number(noisy.epsilon)}, delta {number(noisy.delta or 0.0)} when it was published"
        if noisy.record.startswith("NOT PRIVATE"):
            cost += "; NOT PRIVATE (seeded noise for tests)"
        name = noisy.name or f"published numbers {place + 1}"
        lines.append(f"{name}: {noisy.size} with {noisy.noise.name} noise of scale {size}; {cost}")
    return lines


def classify_postprocessing(model: Postprocessing) -> Classification:
    """No cell of the taxonomy: nothing private is read, so nothing is spent."""
    what = model.words[:1].upper() + model.words[1:]
    return Classification((), f"{what}. No private data is read: it costs epsilon = 0, delta = 0 (LWK15).")


def solve_problem(
    problem: cp.Problem,
    model: Postprocessing,
    mechanism: str | AnyMechanism,
    request: Request,
    verbose: bool,
    progress: Any,
    compiled: float,
) -> Release:
    """Solve a user's problem and give its variables their values.

    ``compiled`` : seconds that recognising it took.
    """
    started = time.perf_counter()
    plan, outcome = solve_postprocessing(model, mechanism, request=request, progress=progress)
    solved = time.perf_counter()
    if verbose:
        print(classify_postprocessing(model), plan, sep="\n\n")
    values = {}
    if outcome.x is not None:
        values = {
            variable: np.reshape(outcome.x[where], variable.shape, order="F") for variable, where in model.columns
        }
    write_values(problem, values, outcome.status)
    if values:
        outcome = replace(outcome, value=evaluate_objective(problem))
    took = outcome.seconds or 0.0
    timings = {"compile": compiled, "plan": max(solved - started - took, 0.0), "solve": took}
    release = release_of(model, plan, outcome, values_of(problem) if values else {}, timings=timings)
    if verbose:
        print(release)
    return release
