"""Run one solve: refuse misplaced arguments, plan, then charge and run (``wall.charge_then_run``)."""

from __future__ import annotations

import difflib
import inspect
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cvxpy as cp

from dpmodel.collect import private_parameters, values_of
from dpmodel.compile.refusals import warn_of_no_private
from dpmodel.contract import STOPPED, Model, Options, Ran
from dpmodel.errors import NoGuaranteeWarning, SpecificationError, users_line
from dpmodel.forecast import Forecast
from dpmodel.marks.records import public_count
from dpmodel.marks.rows import watched
from dpmodel.numerics.cone_program import SolverFailure, installed_solvers
from dpmodel.numerics.solvers import SOLVER_ERROR
from dpmodel.options import checked_solver_options
from dpmodel.privacy import Budget, Cost, noise_source
from dpmodel.release import Accuracy, Guarantee, Release
from dpmodel.solve.plan import Plan
from dpmodel.solve.planner import make_plan
from dpmodel.solve.progress import Report, shown
from dpmodel.solve.registry import KINDS, AnyMechanism, by_name
from dpmodel.solve.wall import charge_then_run, check_budget
from dpmodel.text import number

# Arguments of CVXPY's solve that have no meaning under noise.
_CVXPY_ONLY = ("gp", "qcp", "requires_grad", "enforce_dpp", "ignore_dpp", "canon_backend", "warm_start", "solver_path")
# Settings that are arguments of other objects: where to give them.
_SET_ELSEWHERE = {
    "clip": "dpm.Problem(objective, constraints, clip=...)",
    "vertices": "mechanism=dpm.mechanisms.VertexExponential(vertices=...)",
    "slack_rows": "feasibility=dpm.AllBut(rows=...)",
    "rows": "feasibility=dpm.AllBut(rows=...)",
    "alpha": "feasibility=dpm.AllBut(alpha=...)",
    "margin": "feasibility=dpm.Exact(margin=...)",
    "target": "goal=dpm.Target(...)",
    "penalty": "goal=dpm.Penalty(...)",
}
_SYNONYMS = {
    "seed": "rng",
    "random_state": "rng",
    "options": "solver_options",
    "eps": "epsilon",
    "prob": "beta",
    "published": "as_printed",
}


def refuse_misplaced(function: Callable[..., Any], positional: Mapping[str, Any], unknown: Mapping[str, Any]) -> None:
    """Refuse what CVXPY's ``solve`` takes and ``function`` does not: ``positional`` solvers, ``unknown`` keywords.
    Errors: SpecificationError, names the right argument."""
    for place, value in positional.items():
        is_solver = isinstance(value, str) and value.upper() in installed_solvers()
        if is_solver or (isinstance(value, str) and value in _mechanisms()):
            right = f"solver={value.upper()!r}" if is_solver else f"mechanism={value!r}"
            raise SpecificationError(
                f"{place}={value!r} is not a number",
                why=f"the first arguments of {function.__name__} are epsilon and delta",
                remedy=f"{function.__name__}(epsilon=1.0, {right})",
            )
    for name, value in unknown.items():
        own = [each for each in inspect.signature(function).parameters if each not in ("self", "unknown")]
        words = repr(value) if isinstance(value, str | int | float | None) else type(value).__name__
        near = [_SYNONYMS[name]] if name in _SYNONYMS else difflib.get_close_matches(name, own, 1, 0.8)
        if name in _CVXPY_ONLY:
            why, remedy = "it is an argument of CVXPY's solve that has no meaning here", "leave it out"
        elif name in _SET_ELSEWHERE:
            why, remedy = f"no argument of {function.__name__}", _SET_ELSEWHERE[name]
        elif near and near[0] in own:
            why, remedy = f"no argument of {function.__name__}", f"{near[0]}=..."
        else:
            why = f"no argument of {function.__name__}, which does not pass keywords on to a solver"
            remedy = f"solver=..., solver_options={{{name!r}: {words}}}"
        raise SpecificationError(f"{name}={words}", why=why, remedy=remedy)


def refuse_release(model: Model, release: Any) -> None:
    """Refuse ``release="joint"`` for variables that no record owns, and other words.
    Errors: SpecificationError, says what to write."""
    if release == "public" or (release == "joint" and model.hands_out):
        return
    known = isinstance(release, str) and release == "joint"
    raise SpecificationError(
        f"release={release!r}" if isinstance(release, str) else f"release={type(release).__name__}",
        why="each record is handed its own variables, and none of this model belong to a record"
        if known
        else "answers are released to everybody, or to each record its own",
        remedy="x = dpm.Shares((people, entries), records=...) in place of cp.Variable"
        if known
        else 'release="public" or release="joint"',
    )


def _mechanisms() -> tuple[str, ...]:
    return tuple(mechanism.name for kind in KINDS.values() for mechanism in kind.mechanisms)


# ------------------------------------------------------------------------------------------------- plan, charge, run
@dataclass(frozen=True)
class Executed:
    """A solve after its charge. ``outcome`` : released data only. ``failure`` : an error that the caller has to raise,
    or None. ``seconds`` : of planning. ``private`` : whether the noise was. ``report`` : the caller's progress.
    ``certified`` : the epsilon of the ``certificate``."""

    plan: Plan
    outcome: Any
    failure: BaseException | None
    seconds: float
    private: bool
    report: Report
    certified: float = 0.0
    certificate: Any = None

    @property
    def forecast(self) -> Forecast:
        """That of the chosen mechanism, with the certificate, which is pure, on top of what it spends."""
        found = self.plan.chosen.forecast
        assert found is not None
        if not self.certified:
            return found
        return replace(found, epsilon=found.epsilon + self.certified, event=found.cost + Cost.pure(self.certified))

    def ran(self, **seconds: float) -> Ran:
        """For ``Model.finish``. ``seconds`` : of steps before the plan.

        The run is never timed here: its duration may depend on private data.
        """
        solve = getattr(self.outcome, "seconds", None)
        timings = {**seconds, "plan": self.seconds, **({} if solve is None else {"solve": solve})}
        return Ran(
            self.plan.chosen.mechanism,
            self.forecast,
            self.plan.without_model().to_dict(),
            self.outcome,
            timings,
            self.private,
        )


def execute(
    model: Model,
    options: Options,
    mechanism: str | AnyMechanism = "auto",
    *,
    label: str,
    budget: Budget | None = None,
    rng: Any = None,
    progress: Any = None,
    verbose: bool = False,
    announce: Callable[[Plan], None] | None = None,
    charged: Callable[[Executed], None] | None = None,
    certify: float = 0.0,
) -> Executed:
    """Plan, charge (in ``wall.charge_then_run``), run; nothing private is read before the charge.

    ``label`` : of the charge, such as "solve". ``announce`` : called with the plan before the charge; it may raise.
    ``charged`` : called after the charge, before the run, with the result if that run never ends: ``STOPPED``.
    ``mechanism, budget, rng, progress, verbose, certify`` : as in ``Problem.solve``.
    It returns also after a failed run, if ``model.stopped`` has an outcome for it. A solver that had no answer on
    released data is no ``failure``. A broken mechanism, an interrupt and an error of the caller's own ``progress`` give
    ``STOPPED`` and the ``failure``.
    Errors: DPModelError, before anything is spent.
    """
    options = for_budget(options, mechanism, budget)
    source = noise_source(rng if model.reads else None)
    certified, measure = _certificate(model, options, certify)
    # The difference is exact: it is at most half of epsilon. So both parts together are epsilon, and no more.
    options = replace(options, epsilon=options.epsilon - certified)
    with shown(progress, verbose and model.reads) as report:
        started = time.perf_counter()
        plan = make_plan(model, options, mechanism, report=report)
        name = plan.chosen.mechanism
        algorithm: Any = by_name(name, model.kind) if plan._algorithm is None else plan._algorithm
        model.ready(plan.chosen, algorithm.serves)
        seconds = time.perf_counter() - started
        if announce is not None:
            announce(plan)
        if plan._first:
            # Finding out what would help takes more plans; the warning says how to ask for it.
            more = plan._forecaster is not None and plan._forecaster.without_answer(plan)
            words = f"{plan._first}{'; plan(...) with the same arguments tells what would help' if more else ''}"
            warnings.warn(words, NoGuaranteeWarning, stacklevel=users_line())
        done = partial(Executed, plan, seconds=seconds, private=source.is_private, report=report, certified=certified)
        forecast = done(None, None).forecast
        spends = f" (epsilon {number(forecast.epsilon)}, delta {number(forecast.delta)} charged)"
        spends = "" if forecast.spends_nothing else spends

        measured: list[Any] = []

        def run(guarded: Report) -> Any:
            # The number of passes may depend on private data (a search, a certificate). Steps are public, so only the
            # first pass after each step is reported.
            pass_since_step, reporting = False, False

            def step(stage: str, done: float) -> None:
                nonlocal pass_since_step
                pass_since_step = False
                guarded(f"{stage}{spends}", done)

            def passes(block: int, count: int) -> None:
                nonlocal pass_since_step, reporting
                if block == 0:
                    reporting, pass_since_step = not pass_since_step, True
                if reporting:
                    guarded(f"a pass over {count} blocks{spends}", block / count)

            with watched(passes):
                outcome = model.checked(algorithm.run(model, plan.options, source, step))
                point = getattr(outcome, "x", outcome)
                if measure is not None and point is not None:
                    step("certificate", 0.9)
                    measured.append(measure(point, source))
                return outcome

        spent = "nothing was spent" if forecast.spends_nothing else "the budget of this solve is spent"
        stopped = model.stopped(STOPPED, f"the run ended with an error; {spent}")
        if_stopped = done(stopped, None)
        problem = getattr(model, "problem", None)  # none where rows are drawn
        outcome, failure = charge_then_run(
            run,
            name=name,
            budget=budget,
            cost=forecast.cost,
            label=f"{label} by {name}",
            report=report,
            charged=None if charged is None else partial(charged, if_stopped),
            public=not model.reads,
            records=public_count(private_parameters(problem)) if problem is not None else 0,
        )
        if isinstance(failure, SolverFailure):
            outcome = model.stopped(SOLVER_ERROR, f"{failure.what}; {spent}")
            failure = None if outcome is not None else failure
        elif failure is not None:
            outcome = stopped
        return done(outcome, failure, certificate=measured[0] if measured and failure is None else None)


def for_budget(options: Options, mechanism: Any, budget: Budget | None) -> Options:
    """A budget made for Gaussian noise is planned for: that it was is public, and older than every charge."""
    check_budget(budget)
    made = budget is not None and budget.composition == "gaussian" and options.delta > 0
    return replace(options, gaussian=made and isinstance(mechanism, str) and mechanism == "auto")


def _certificate(model: Model, options: Options, share: Any) -> tuple[float, Callable[..., Any] | None]:
    """The epsilon of the certificate, ``share`` of the budget, and what measures it; 0 and None for none."""
    if not isinstance(share, int | float) or isinstance(share, bool) or not (share == 0 or 1e-6 <= share <= 0.5):
        raise SpecificationError(
            f"certify={share!r}" if isinstance(share, str | int | float) else f"certify={type(share).__name__}",
            why="it is the share of epsilon that measures how good the answer is, at most a half",
            remedy="certify=0.1, or 0 for none",
        )
    if share == 0:
        return 0.0, None
    epsilon = options.epsilon - options.epsilon * (1 - share)
    found = model.certificate(epsilon, options.beta)
    if isinstance(found, str):
        remedy = "leave it out: then all of epsilon is for the answer"
        raise SpecificationError(f"certify={number(share)}", why=found, remedy=remedy)
    return epsilon, found


def solve_public(
    problem: Any,
    model: Model,
    forget: Callable[[], None],
    *,
    epsilon: Any,
    budget: Any,
    solver: Any,
    solver_options: Any,
) -> Release:
    """Solve a problem whose solution depends on no private value, as CVXPY does. Nothing is read, nothing is spent.

    ``forget`` : drops an earlier solution; called once the arguments are checked."""
    check_budget(budget)
    options = checked_solver_options(solver_options)
    private = private_parameters(problem)
    if not private and not (epsilon is None and budget is None):
        warn_of_no_private()
    forget()
    if not private:
        cp.Problem.solve(problem, solver=solver, **options)
        note = "nothing is private: solved as CVXPY does, without noise"
    else:  # CVXPY would ask for the values of private parameters that the solution does not depend on
        note = model.solve_public(solver, options)
    return Release(
        mechanism="none",
        guarantee=Guarantee(0.0, 0.0, record="nothing in this problem is private"),
        accuracy=Accuracy(alpha=0.0, beta=0.0, proved=True, statement="solved exactly"),
        status=str(problem.status),
        value=None if problem.value is None else float(problem.value),
        variables={k: v for k, v in values_of(problem).items() if v is not None},
        notes=(note,),
    )
