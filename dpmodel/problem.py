"""``Problem``: the conductor. ``solve`` reads like the list of rooms that data walks through."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import cvxpy as cp

from dpmodel.annotate.private import Private
from dpmodel.classify.classifier import Classification, classify
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.classify.private_outputs import AnyRegression
from dpmodel.classify.regression_model import private_outputs, private_regression
from dpmodel.compile.cone_program import SOLVER_ERROR, SolverFailure, probe_solver, solve_cone_program
from dpmodel.compile.cvxpy_bridge import Lowered, forget_cached_forms, forget_solution, lower
from dpmodel.compile.footprint import Footprint, footprint
from dpmodel.compile.likelihood import recognise_postprocessing
from dpmodel.compile.postprocessing import Postprocessing
from dpmodel.compile.public_set import PublicSet, base_program
from dpmodel.compile.refusals import where_used
from dpmodel.compile.regression import Outputs, Recognised, recognise
from dpmodel.compile.standard_form import public_theta, public_values, require_private_values, standard_form
from dpmodel.errors import DPModelError, SpecificationError, UnsupportedModelError
from dpmodel.guarded_run import RunError as RunError
from dpmodel.guarded_run import check_budget, run_to_outcome
from dpmodel.leak_warning import warn_of_constants
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.mechanisms.mechanism import Outcome
from dpmodel.plan.asked import Asked, checked_clip
from dpmodel.plan.comparison import Plan
from dpmodel.plan.foregone import refuse_foregone
from dpmodel.plan.no_guarantee import warn_of_no_guarantee
from dpmodel.plan.planner import make_plan, refuse_impossible
from dpmodel.plan.portfolio import AnyMechanism
from dpmodel.plan.postprocess_plan import plan_postprocessing
from dpmodel.plan.request import (
    checked_options,
    make_postprocess_request,
    make_regression_request,
    make_request,
    refuse_misplaced,
)
from dpmodel.privacy import Budget, noise_source
from dpmodel.problem_exact import exact_system, has_private_inequalities, outcome_of, wants_exact
from dpmodel.problem_postprocess import classify_postprocessing, solve_problem
from dpmodel.progress import reporter
from dpmodel.release.explanation import Explanation, explain, explain_postprocessing, explain_regression
from dpmodel.release.release import Accuracy, Guarantee, Release
from dpmodel.write_back import values_of, write_lp, write_regression


class Problem(cp.Problem):  # type: ignore[misc]
    """A ``cvxpy.Problem`` some of whose parameters are private.

    Parameters
    ----------
    objective, constraints : as in CVXPY; private data enters as ``Private`` parameters only.

    Examples
    --------
    >>> import cvxpy as cp, dpmodel as dpm
    >>> demand = dpm.Private([20.0, 30.0], name="demand", unit="entry", linf=1)
    >>> x = cp.Variable(2, nonneg=True, name="x")
    >>> problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= demand])
    >>> problem.is_dp()
    True
    """

    def __init__(self, objective: Any, constraints: Any = None) -> None:
        super().__init__(objective, constraints)
        self._lowered: tuple[Lowered, Footprint, Classification] | None = None
        # None: not looked at yet. Regressions are recognised on the tree and never lowered.
        self._recognised: tuple[bytes | None, Recognised | Outputs | None] | None = None
        self._published: tuple[bytes | None, Postprocessing | None] | None = None
        # Public facts are computed once per set of public parameter values.
        self._last_model: tuple[tuple[Any, ...], PrivateLP | AnyRegression] | None = None
        self._release: Release | None = None
        self.last_plan: Plan | None = None  # of the last ``solve`` that read private data
        self._warned: set[int] = set()

    # ------------------------------------------------------------------ what it is
    @property
    def release(self) -> Release | None:
        """The last release, or None before a successful ``solve``."""
        return self._release

    def is_dp(self) -> bool:
        """Whether the problem can be compiled and no theorem stands against any of its cells.

        That a registered mechanism serves it today is what ``plan`` tells.
        """
        try:
            return self.classify().solvable
        except DPModelError:
            return False

    def classify(self) -> Classification:
        """The cells of the taxonomy that the problem falls into. Needs no private values, spends nothing.

        A regression (a sum or mean of one recognised loss per record) is an objective of low sensitivity, whatever
        rows its data would have in a standard form. A likelihood of published numbers (``neg_log_likelihood``) under
        public constraints is post-processing: it is in no cell and costs nothing.

        Raises
        ------
        UnsupportedModelError
            For problems that are not convex or not DPP, and regressions with a term that is not recognised.
        """
        published = self._postprocessing()
        if published is not None:
            return classify_postprocessing(published)
        if self._regression() is not None:
            model = self._model(None)
            assert not isinstance(model, Postprocessing)
            return model.classification
        return self._compiled()[2]

    def plan(
        self,
        epsilon: float | None = None,
        delta: float = 0.0,
        *,
        beta: float = 0.05,
        mechanism: str | AnyMechanism = "auto",
        feasibility: str = "relaxed",
        vertices: Any = None,
        solver: str | None = None,
        slack_rows: int | None = None,
        alpha: float | None = None,
        goal: str = "auto",
        target: float | None = None,
        penalty: float | None = None,
        clip: float | None = None,
        satisfy: str = "nearly",
        margin: float | None = None,
        compare: bool = True,
        **unknown: Any,
    ) -> Plan:
        """Compare the mechanisms by forecast error. Needs no private values, spends nothing.

        Parameters and errors are those of ``solve``; without ``compare`` a forced mechanism is planned alone.
        """
        refuse_misplaced(self.plan, {"epsilon": epsilon, "delta": delta, "beta": beta}, unknown)
        model = self._model(solver, clip)
        asked = Asked(slack_rows, alpha, goal, target, penalty)
        exact = wants_exact(satisfy, margin)
        _refuse_exact(exact, margin, model)
        if isinstance(model, Postprocessing):
            request = make_postprocess_request(epsilon, delta, beta, feasibility, vertices, solver, {}, asked)
            return plan_postprocessing(model, mechanism, request=request, compare=compare)
        if isinstance(model, AnyRegression):
            request = make_regression_request(epsilon, delta, beta, feasibility, vertices, solver, {}, asked, clip)
            return make_plan(model, request, mechanism, compare=compare)
        request = make_request(self, model, epsilon, delta, beta, feasibility, vertices, solver, {}, asked)
        if not model.private_parts():
            raise SpecificationError(
                "no private parameter reaches c, b or A: there is nothing to plan",
                why="a plan compares private mechanisms",
                remedy="mark private data with Private(...), or solve() as it is, which spends nothing",
            )
        if exact:
            request = replace(request, satisfy="exact")
            if has_private_inequalities(model):
                refuse_impossible(model, request)
                system = exact_system(model, request, margin, asked)
                return make_plan(system, request, mechanism, compare=compare)
        return make_plan(model, request, mechanism, compare=compare)

    def explain(self) -> Explanation:
        """What the problem is, cell by cell, in words: the model's analyser."""
        published = self._postprocessing()
        if published is not None:
            return explain_postprocessing(published, classify_postprocessing(published), self._release)
        if self._regression() is not None:
            model = self._model(None)
            assert isinstance(model, AnyRegression)
            return explain_regression(model, self._release)
        lowered, change, classification = self._compiled()
        return explain(lowered.affine, change, classification, self._release)

    # ------------------------------------------------------------------ solving
    def solve(
        self,
        epsilon: float | None = None,
        delta: float = 0.0,
        *,
        beta: float = 0.05,
        mechanism: str | AnyMechanism = "auto",
        feasibility: str = "relaxed",
        budget: Budget | None = None,
        verbose: bool = False,
        progress: Callable[[str, float], None] | bool | None = None,
        rng: Any = None,
        vertices: Any = None,
        solver: str | None = None,
        solver_options: Mapping[str, Any] | None = None,
        slack_rows: int | None = None,
        alpha: float | None = None,
        goal: str = "auto",
        target: float | None = None,
        penalty: float | None = None,
        clip: float | None = None,
        satisfy: str = "nearly",
        margin: float | None = None,
        **unknown: Any,
    ) -> float | None:
        """Solve under (epsilon, delta)-differential privacy and keep the release.

        A post-processing of published numbers needs no epsilon and spends nothing, whatever is given.

        Parameters
        ----------
        epsilon, delta : budget of this solve; delta = 0 allows pure mechanisms only.
        beta : probability with which the accuracy statement may fail.
        mechanism : "auto" for the least forecast error, or a name from the plan (then no other is looked at), or an
            object with the methods of a mechanism, such as one with settings of its own.
        feasibility : what is done to private constraints. "relaxed" makes them easier by a bound on the noise, so that
            the true optimum stays feasible and they may be missed as the accuracy statement says; "centred" takes the
            released numbers as they are; "safe" makes them harder, so that every true one holds with probability
            1 - beta; "strict" does so with certainty (delta > 0). Plan and release say by how much, row by row.
        budget : a ``Budget`` to charge before any data is read.
        verbose : print classification, plan and release. ``progress`` : True, or a function (stage, share).
        rng : None for OpenDP's secure noise; an int or numpy Generator for repeatable noise in tests,
            which is not private and says so.
        vertices : public candidate points, (k, n) or a list of {variable: value}.
        solver, solver_options : for the solve on released data, as in CVXPY.
        slack_rows : how many private constraints may be left out; alpha : how far the others may be violated.
            With one of them given, the plan finds the best other; with none, the best compromise.
        goal : how mechanisms that find nearly feasible points treat the objective: "target" (public, ``target``:
            the value to reach), "search" (bisection, paid for), "penalty" (added to the violation, with
            weight ``penalty``, or one chosen from public facts); "auto": the best forecast.
        clip : regressions: cut the slope of every record's loss to [-clip, clip] (residuals, for the squared loss: that
            makes it Huber's), which bounds what a record can do where the loss itself does not.
        satisfy : "nearly": private constraints hold to within alpha, but for a few. "exact": they hold exactly, but for
            a few (KMMST24): equalities with whole numbers by sanitised equations, inequalities given a ``margin``, or
            with whole numbers of declared bounds; an objective then needs a ``target``.
        margin : with satisfy="exact", a public promise in (0, 1]: with the rows (b_i, -a_i) of ``a_i x <= b_i`` scaled
            to unit norm, some unit vector y = (x0, x) of the public cone has a product of at least this with each. If
            it does not hold, more rows may be missed; privacy does not depend on it.

        Returns
        -------
        float or None
            The objective value from released quantities only, or None when it is not released.

        Raises
        ------
        SpecificationError, MissingValueError, UnsupportedModelError, ImpossibilityError, InfeasibleError,
        BudgetExceededError
            All before anything is spent and without private values.

        Warns
        -----
        NoGuaranteeWarning
            Before anything is spent, where the accuracy statement says no more than is known without data.
        """
        refuse_misplaced(self.solve, {"epsilon": epsilon, "delta": delta}, unknown)
        started = time.perf_counter()
        model = self._model(solver, clip)
        compiled = time.perf_counter()
        asked, options = Asked(slack_rows, alpha, goal, target, penalty), solver_options
        exact = wants_exact(satisfy, margin)
        _refuse_exact(exact, margin, model)
        if isinstance(model, Postprocessing):
            request = make_postprocess_request(epsilon, delta, beta, feasibility, vertices, solver, options, asked)
            check_budget(budget)
            self._forget()
            self._release = solve_problem(self, model, mechanism, request, verbose, progress, compiled - started)
            return self._release.value
        if isinstance(model, AnyRegression):
            request = make_regression_request(epsilon, delta, beta, feasibility, vertices, solver, options, asked, clip)
        elif not model.private_parts():
            self._forget()
            return self._solve_public(model, solver, checked_options(solver_options))
        else:
            request = make_request(self, model, epsilon, delta, beta, feasibility, vertices, solver, options, asked)
            probe_solver(model.affine, solver, request.options)
        check_budget(budget)
        source = noise_source(rng)
        report = reporter(progress, verbose)
        if exact:
            request = replace(request, satisfy="exact")
        system: PrivateInequalities | None = None
        if exact and isinstance(model, PrivateLP) and has_private_inequalities(model):
            refuse_impossible(model, request)
            system = exact_system(model, request, margin, asked)
        plan = self.last_plan = make_plan(system or model, request, mechanism, compare=False)
        if model.public is not None:
            model.public.require_feasible()
        if isinstance(model, PrivateLP) and system is None:
            refuse_foregone(model, plan.chosen)
        require_private_values(self._private())
        self._warn_of_constants()  # again: a value given after compiling may share memory
        planned = time.perf_counter()
        if verbose:
            print(model.classification, plan, sep="\n\n")
        forecast = plan.chosen.forecast
        assert forecast is not None
        warn_of_no_guarantee(plan)
        if budget is not None and not forecast.spends_nothing:
            budget.charge(forecast.epsilon, forecast.delta, label=f"solve by {plan.chosen.mechanism}")
        self._forget()  # not before: a refused call must not cost the release that an earlier one paid for
        outcome, failure = run_to_outcome(plan, system or model, request, source, report)
        if system is not None and isinstance(model, PrivateLP) and not isinstance(outcome, Outcome):
            outcome = outcome_of(model, outcome)
        # Never the clock around the run, which reads private data: only what the outcome says of released numbers.
        timings = {"compile": compiled - started, "plan": planned - compiled}
        if outcome.seconds is not None:
            timings["solve"] = outcome.seconds
        elif outcome.x is not None and not forecast.spends_nothing:
            outcome = replace(outcome, notes=(*outcome.notes, _UNTIMED))
        about = {"timings": timings, "private": source.is_private}
        if isinstance(model, AnyRegression):
            self._release = write_regression(self, model, plan, outcome, about)
        else:
            self._release = write_lp(self, self._compiled()[0], model, plan, outcome, about)
        if failure is not None:
            raise failure
        report("done", 1.0)
        if verbose:
            print(self._release)
        return self._release.value

    def _forget(self) -> None:
        """Drop an earlier solution, so that it cannot be taken for the new one if this one fails."""
        self._release = None
        forget_solution(self)

    def _solve_public(self, model: PrivateLP, solver: str | None, options: Mapping[str, Any] | None) -> float | None:
        """Nothing private reaches c, b or A: solve as CVXPY does and say so. Nothing is read, nothing is spent."""
        if not any(isinstance(parameter, Private) for parameter in self.parameters()):
            super().solve(solver=solver, **dict(options or {}))
            note = "nothing is private: solved as CVXPY does, without noise"
        else:  # CVXPY would ask for the values of private parameters that the solution does not depend on
            solution = solve_cone_program(base_program(model.form), solver=solver, options=options)
            if solution.status == SOLVER_ERROR:
                raise SolverFailure("no solver had an answer", why=solution.notes[0], remedy="another solver=")
            value = None if solution.value is None or model.form.offset.nnz else solution.value
            value = -value if value is not None and model.affine.maximize else value
            self._compiled()[0].write_back(self, solution.x, solution.dual, solution.status, value)
            note = "no private parameter reaches c, b or A: the solution does not depend on private data"
            if model.form.offset.nnz:
                note += ", and the objective value, which does, is not released"
        self._release = Release(
            mechanism="none",
            guarantee=Guarantee(0.0, 0.0, record="nothing in this problem is private"),
            accuracy=Accuracy(alpha=0.0, beta=0.0, proved=True, statement="solved exactly"),
            status=str(self.status),
            value=None if self._value is None else float(self._value),
            variables={k: v for k, v in values_of(self).items() if v is not None},
            notes=(note,),
        )
        return self._release.value

    # ------------------------------------------------------------------ compiling
    def _compiled(self) -> tuple[Lowered, Footprint, Classification]:
        if self._lowered is None:
            self._warn_of_constants()
            lowered = lower(self)
            if lowered.affine.variables == 0 and lowered.affine.private_blocks:
                raise UnsupportedModelError(
                    "a problem without variables",
                    why="a mechanism releases a solution, and there is nothing to solve for",
                    remedy="a variable that the private parameters have a say in",
                )
            places = {b.name: where_used(self, b.parameter) for b in lowered.affine.private_blocks}
            change = footprint(lowered.affine)
            self._lowered = lowered, change, classify(lowered.affine, change, places)
        return self._lowered

    def _public_key(self) -> bytes | None:
        """Losses and penalties hold the numbers of public parameters; without them it is refused later, if it
        matters."""
        public = [parameter for parameter in self.parameters() if not isinstance(parameter, Private)]
        return None if any(each.value is None for each in public) else public_values(public)

    def _postprocessing(self) -> Postprocessing | None:
        key = self._public_key()
        if self._published is None or self._published[0] != key:
            self._published = (key, recognise_postprocessing(self))
        return self._published[1]

    def _regression(self) -> Recognised | Outputs | None:
        key = self._public_key()
        if self._recognised is None or self._recognised[0] != key:
            self._warn_of_constants()
            self._recognised = (key, recognise(self))
        return self._recognised[1]

    def _private(self) -> list[Private]:
        return [parameter for parameter in self.parameters() if isinstance(parameter, Private)]

    def _model(self, solver: str | None, clip: float | None = None) -> PrivateLP | AnyRegression | Postprocessing:
        published = self._postprocessing()
        recognised = None if published is not None else self._regression()
        key: tuple[Any, ...]
        if recognised is not None:
            key = (clip, public_values(self.parameters()))
            if self._last_model is None or self._last_model[0] != key:
                cut = checked_clip(clip)
                if isinstance(recognised, Outputs):
                    self._last_model = key, private_outputs(recognised, cut)
                else:
                    self._last_model = key, private_regression(recognised, cut)
            return self._last_model[1]
        if clip is not None:
            raise SpecificationError(
                f"clip={clip!r}" if isinstance(clip, int | float | str) else f"clip={type(clip).__name__}",
                why="only the losses of a regression have slopes to cut, and this problem is not a regression",
                remedy="leave it out",
            )
        if published is not None:
            return published
        lowered, _, classification = self._compiled()
        key = (solver, public_theta(lowered.affine).tobytes())
        if self._last_model is None or self._last_model[0] != key:
            form = standard_form(lowered.affine)
            self._last_model = key, PrivateLP(form, classification, PublicSet(form, solver))
        return self._last_model[1]

    def _warn_of_constants(self) -> None:
        warn_of_constants(self, self._warned)

    # ------------------------------------------------------------------ CVXPY's own arithmetic keeps the class
    def copy(self, args: list[Any] | None = None, id_objects: dict[int, Any] | None = None) -> Problem:
        """A copy with the same leaves (or with ``args``: objective and constraints)."""
        if id_objects and id(self) in id_objects:
            found: Problem = id_objects[id(self)]
            return found
        objective, constraints = args if args is not None else (self.objective, self.constraints)
        return Problem(objective, constraints)

    def get_data(self) -> list[Any]:
        return []

    def __deepcopy__(self, memo: dict[Any, Any]) -> Problem:
        new: Problem = super().__deepcopy__(memo)
        self.__dict__.pop("__deepcopy__", None)
        forget_cached_forms(new)
        return new

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # Compiled facts speak of this object's leaves: copies and pickles compile anew.
        state["_lowered"] = state["_last_model"] = state["_recognised"] = state["_published"] = None
        state.pop("__deepcopy__", None)  # the guard that CVXPY leaves behind would switch deepcopy off
        return state


_UNTIMED = "how long the run took is not released: all its steps read private data, and their time may depend on it"

for _operator in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__neg__"):

    def _keeping_class(self: Any, *others: Any, _name: str = _operator) -> Any:
        forward = {"__radd__": "__add__", "__rsub__": "__sub__"}.get(_name)
        if forward is not None and isinstance(others[0], cp.Problem):  # a plain problem stands on the left
            result = getattr(cp.Problem, forward)(others[0], self)
        else:
            result = getattr(cp.Problem, _name)(self, *others)
        return Problem(result.objective, result.constraints) if type(result) is cp.Problem else result

    setattr(Problem, _operator, _keeping_class)


def _refuse_exact(exact: bool, margin: Any, model: Any) -> None:
    if exact and not (isinstance(model, PrivateLP) and (model.form.private_rows.any() or not model.private_parts())):
        raise SpecificationError(
            "satisfy='exact' for a problem without private constraints",
            why="public constraints always hold, and nothing else is to be satisfied",
            remedy="leave it out",
        )
    if margin is not None and not has_private_inequalities(model):
        raise SpecificationError(
            "margin= for private equalities",
            why="a margin is room beside inequalities; equalities have none and need none",
            remedy="leave it out",
        )
