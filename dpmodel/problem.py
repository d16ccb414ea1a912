"""``Problem``: CVXPY's face of the house. What it is asked goes to a model, and from there through ``execute``."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import cvxpy as cp

from dpmodel.compile.bridge import forget_cached_forms, forget_solution
from dpmodel.compile.refusals import warn_of_leaves
from dpmodel.compile.written import model_html, model_line, model_text
from dpmodel.contract import Candidate, Model, Options, Ran
from dpmodel.errors import DPModelError, ImpossibilityError, InfeasibleError, SpecificationError, UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.options import checked_clip
from dpmodel.privacy import Budget
from dpmodel.release import Release
from dpmodel.requests import AllBut, Exact, Penalty, Priced, Search, Target
from dpmodel.solve.execute import Executed, execute, for_budget, refuse_misplaced, refuse_release, solve_public
from dpmodel.solve.plan import Plan
from dpmodel.solve.planner import Compared, make_plan
from dpmodel.solve.progress import shown
from dpmodel.solve.registry import AnyMechanism, family_of

if TYPE_CHECKING:
    from dpmodel.programs.classifier import Classification
    from dpmodel.programs.expressions import ExpressionTree
    from dpmodel.show.explain import Explanation

Feasible = str | AllBut | Exact | Priced
Goal = str | Target | Search | Penalty
Progress = Callable[[str, float], None] | bool | None
M = TypeVar("M", bound=Callable[..., Any])


def _alone(method: M) -> M:
    """Other threads wait until ``method`` is through: it fills caches of the problem and values of its variables."""

    @wraps(method)
    def waiting(self: Problem, *given: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *given, **named)

    return cast(M, waiting)


class Problem(cp.Problem):  # type: ignore[misc]
    """A ``cvxpy.Problem`` some of whose parameters are private.

    Parameters
    ----------
    objective, constraints : as in CVXPY, or a plain ``cp.Problem`` alone; private data enters as ``Private`` parameters
        only.
    clip : of regressions: the model's loss with the derivative of every record's loss cut to [-clip, clip] (residuals,
        for the squared loss: that makes it Huber's), which bounds what a record can do where the loss itself does not.

    Notes
    -----
    Threads may share a problem: calls wait for each other. Variables and ``release`` then hold the last solution,
    whoever solved; to read both, give each thread a deep copy. Problems that share variables must not be solved at
    once. Private parameters and budgets may be shared.

    Examples
    --------
    >>> import cvxpy as cp, dpmodel as dpm
    >>> demand = dpm.Private([20.0, 30.0], name="demand", unit="entry", linf=1)
    >>> x = cp.Variable(2, nonneg=True, name="x")
    >>> problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= demand])
    >>> problem.is_dp()
    True
    """

    def __init__(self, objective: Any, constraints: Any = None, *, clip: float | None = None) -> None:
        if isinstance(objective, cp.Problem) and constraints is None:
            objective, constraints = objective.objective, objective.constraints
        _refuse_no_problem(objective, constraints)
        super().__init__(objective, constraints)
        self._lock = threading.RLock()
        self._clip = None if clip is None else checked_clip(clip)
        # What families read in it, each with what it depends on (``memo.latest``): public facts alone.
        self.facts: dict[str, tuple[Hashable, Any]] = {}
        self._release: Release | None = None
        self.last_plan: Plan | None = None  # of the last ``solve`` that came as far as a plan
        self.warned: set[int] = set()

    # ------------------------------------------------------------------ what it is
    def __str__(self) -> str:
        return model_text(self)

    def __repr__(self) -> str:
        return model_line(self)

    def _repr_html_(self) -> str:
        return model_html(self)

    @property
    def clip(self) -> float | None:
        """Where derivatives of the loss are cut, None for nowhere."""
        return self._clip

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

    @_alone
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
        classification: Classification = family_of(self).classified(self)
        return classification

    @_alone
    def plan(
        self,
        epsilon: float | None = None,
        delta: float = 0.0,
        *,
        beta: float = 0.05,
        mechanism: str | AnyMechanism = "auto",
        feasibility: Feasible = "auto",
        goal: Goal = "auto",
        release: str = "public",
        solver: str | None = None,
        compare: Compared = "needed",
        as_printed: bool = False,
        budget: Budget | None = None,
        progress: Progress = None,
        **unknown: Any,
    ) -> Plan:
        """Compare the mechanisms by forecast error. Needs no private values, spends nothing.

        Parameters and errors are those of ``solve``; ``budget`` is not charged. ``compare`` : "needed" forecasts what
        can still win (a forced mechanism alone), "all" every mechanism that applies; ``as_printed`` : all, and the
        papers' algorithms with their own constants too.
        """
        refuse_misplaced(self.plan, {"epsilon": epsilon, "delta": delta, "beta": beta}, unknown)
        with shown(progress) as report:
            report("compile", 0.0)
            model = self._model(solver)
            given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "beta": beta, "feasibility": feasibility}
            given |= {"solver": solver, "mechanism": mechanism, "goal": goal, "release": release}
            if model.is_public:
                raise SpecificationError(
                    "no private parameter reaches c, b or A: there is nothing to plan",
                    why="a plan compares private mechanisms",
                    remedy="mark private data with Private(...), or solve() as it is, which spends nothing",
                )
            refuse_release(model, release)
            model, options = model.check(Options(**given))
            options = for_budget(options, mechanism, budget)
            return make_plan(model, options, mechanism, compare=compare, as_printed=as_printed, report=report)

    @_alone
    def explain(
        self, epsilon: float | None = None, delta: float = 0.0, *, tree: bool = False, **options: Any
    ) -> Explanation | ExpressionTree:
        """What the problem is, cell by cell, in words: the model's analyser. Public facts and the last release alone.

        Parameters
        ----------
        epsilon, delta, options : as in ``plan``, for what is chosen, why, what its statement means and what would do
            better; without epsilon those of the last solve, if any.
        tree : the expression tree instead, node by node with shape, sign, curvature and sensitivity, and the first node
            that breaks a rule; also for a model that is refused.
        """
        from dpmodel.show.explain import explain, refusal

        if tree:
            from dpmodel.programs.expressions import expression_tree

            by_record = False
            with contextlib.suppress(DPModelError):  # a model that is refused has a tree too
                by_record = family_of(self).by_record
            return expression_tree(self, regression=by_record)
        plan = self.last_plan if self._release is not None else None
        unplanned: dict[str, Any] = {}
        if epsilon is not None or options:
            try:
                plan = self.plan(epsilon, delta, **options)
            except (ImpossibilityError, InfeasibleError, UnsupportedModelError) as error:
                plan, unplanned = None, {"unplanned": refusal(error)}
        choice = None if plan is None else plan.explain()
        return replace(explain(self, family_of(self), self._release), choice=choice, **unplanned)

    @_alone
    def plot(self, epsilon: float | None = None, delta: float = 0.0, *, ax: Any = None, **options: Any) -> Any:
        """Draw the feasible set of a linear problem in two variables, with bands as wide as the noise (extra [plot]).

        Reads public facts and the last release, never a private value: private rows are drawn where the release
        put them, if they bind in it, or else at the middle of their declared ranges.

        Parameters
        ----------
        epsilon, delta, options : as in ``plan``, for the bands; without epsilon those of the last solve, if any.
        ax : matplotlib axes to draw on.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingExtraError, SpecificationError
            Without matplotlib; for any other problem. And what ``plan`` raises.
        """
        model: Any = self._model(options.get("solver"))
        if not model.drawn:
            raise SpecificationError(
                "plot: not a linear problem in two variables",
                why=f"this is a {model.words}",
                remedy="release.plot_values() and plan.plot()",
            )

        solved = epsilon is None and self._release is not None
        plan = self.plan(epsilon, delta, **options) if epsilon is not None else self.last_plan if solved else None
        chosen, planned = (None, None) if plan is None else (plan.chosen, plan.options)
        from dpmodel.show.feasible_set import feasible_picture

        return feasible_picture(model, chosen, planned, self._release, ax)

    # ------------------------------------------------------------------ solving
    @_alone
    def solve(
        self,
        epsilon: float | None = None,
        delta: float = 0.0,
        *,
        beta: float = 0.05,
        mechanism: str | AnyMechanism = "auto",
        feasibility: Feasible = "auto",
        goal: Goal = "auto",
        certify: float = 0.0,
        release: str = "public",
        budget: Budget | None = None,
        solver: str | None = None,
        solver_options: Mapping[str, Any] | None = None,
        verbose: bool = False,
        progress: Progress = None,
        rng: Any = None,
        **unknown: Any,
    ) -> float | None:
        """Solve under (epsilon, delta)-differential privacy and keep the release.

        A post-processing of published numbers needs no epsilon and spends nothing, whatever is given.

        Parameters
        ----------
        epsilon, delta : budget of this solve; delta = 0 allows pure mechanisms only.
        beta : probability with which the accuracy statement may fail.
        mechanism : "auto" for the least forecast error, or a name from the plan (then no other is looked at), or an
            object with the methods of a mechanism, such as one of ``dpm.mechanisms`` with settings of its own.
        feasibility : what is done to private constraints. "auto" takes what is expected to cost least, at prices that
            leave a row short in a tenth of the cases, where a public level of the private numbers is known
            (``Private(typical=)``, bounds); without one it prices inequalities alike, and takes equalities as released.
            "centred" takes the released numbers as they are; "relaxed"
            makes them easier by a bound on the noise, which leaves every one that binds short, so that the true optimum
            stays feasible: to bound it, or to compare with other programs; "safe" makes them harder, so that with
            probability 1 - beta every true one holds but those that the release lists (none where a point is left);
            "strict" does so with certainty (delta > 0), for all. Plan and release say by how much, row by row.
            ``Priced(prices)`` weighs what a row is short by, with the noise, against the cost.
            Where one record owns one constraint: ``AllBut(rows=, alpha=)``, all but a few hold to within alpha, and
            ``Exact(margin=)``, all but a few hold exactly.
        goal : how mechanisms that find nearly feasible points treat the objective: ``Target(value)`` (public, to be
            reached), ``Search()`` (bisection, paid for), ``Penalty(weight)`` (added to the violation); "auto": the best
            forecast.
        certify : the share of epsilon (0.1, say) that measures how good the answer is, within the same charge: the
            share of private constraints that hold, or what they are short by in all, the true objective where it is
            private, the risk on the data of a regression, the share of the optimum that shares are worth.
            ``release.certificate`` is an interval with its level.
        release : "public", or "joint" for a model with ``Shares``: prices are released, and each person is handed their
            own share of the variables (``problem.release.share(i)``), which need not be hidden from that person.
        budget : a ``Budget`` to charge before any data is read. With ``composition="gaussian"`` and delta > 0, "auto"
            takes mechanisms of Gaussian noise alone, where there are such.
        verbose : print classification, plan and release. ``progress`` : None for a bar in terminals and notebooks once
            work has taken a second; False for none; True for stages as lines elsewhere too; or a function (stage,
            share).
        rng : None for secure noise; "opendp" for OpenDP's, which is as private; an int or numpy Generator for
            repeatable noise in tests, which is not private and says so.
        solver, solver_options : for the solve on released data, as in CVXPY.

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
        with shown(progress, verbose) as report:
            report("compile", 0.0)
            model = self._model(solver)
            compiled = time.perf_counter() - started
            if model.is_public:
                given = {"epsilon": epsilon, "budget": budget, "solver": solver, "solver_options": solver_options}
                self._release = solve_public(self, model, self._forget, **given)
                return self._release.value
            arguments: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "beta": beta, "feasibility": feasibility}
            arguments |= {"solver": solver, "solver_options": solver_options, "mechanism": mechanism, "goal": goal}
            arguments["release"] = release
            refuse_release(model, release)
            model, options = model.check(Options(**arguments))

            def announce(plan: Plan) -> None:
                self.last_plan = plan
                # Again: a value given after compiling may share memory.
                warn_of_leaves(self, by_record=family_of(self).by_record)
                if verbose:
                    print(self.classify(), plan, sep="\n\n")

            standing: Executed | None = None

            def charged(stopped: Executed) -> None:
                nonlocal standing
                standing = stopped
                self._forget()  # not before: a refused call must not cost the release paid for earlier

            try:
                standing = done = execute(
                    model,
                    options,
                    mechanism,
                    label="solve",
                    budget=budget,
                    rng=rng,
                    progress=report,
                    verbose=verbose,
                    announce=announce,
                    charged=charged,
                    certify=certify,
                )
                if done.outcome is not None:
                    released = model.finish(done.ran(compile=compiled))
                    self._release = replace(released, certificate=done.certificate)
            except (KeyboardInterrupt, SystemExit):  # between the run and here: what was paid for is kept
                if standing is not None and standing.outcome is not None:
                    self._release = model.finish(standing.ran(compile=compiled))
                raise
            if done.failure is not None:
                raise done.failure
            assert self._release is not None
            self._release.answered_by(self, model, options)
            done.report("done", 1.0)
            if verbose:
                print(self._release)
            return self._release.value

    @_alone
    def resolve(
        self,
        feasibility: Feasible = "auto",
        *,
        release: Release | None = None,
        beta: float = 0.05,
        goal: Goal = "auto",
        solver: str | None = None,
        solver_options: Mapping[str, Any] | None = None,
    ) -> float | None:
        """Answer again from the numbers of a release: it costs no privacy, because it reads no private value.

        Public parameters may have other values by now, and another problem over the same private parameters may have
        other public rows, bounds, integers and costs. All of these, and prices, may be chosen after the numbers were
        seen: what is proved then is proved for every program at once. ``beta`` may not, and of several treatments each
        has its statement with probability 1 - beta by itself.

        Parameters
        ----------
        feasibility, beta, goal, solver, solver_options : as in ``solve``.
        release : whose numbers are used; by default the last one of this problem. One that was read from JSON will do:
            private parameters are found by their names, so they need ``name=``.

        Returns
        -------
        float or None
            As ``solve``; ``release`` is the new one, which spends nothing.

        Raises
        ------
        SpecificationError
            Where nothing was released, the mechanism released no numbers, or the problem needs private numbers that
            were not measured, or whose names do not say which they are.
        """
        source = self._release if release is None else release
        if source is None or not source.measured:
            name = "" if source is None else source.mechanism
            measure = "solve(epsilon=..., mechanism='laplace-once') releases numbers, of private parameters with names"
            raise SpecificationError(
                f"resolve: {name} released an answer and no numbers" if name else "resolve: nothing was released yet",
                why="answers are computed from released numbers, with noise of a public law",
                remedy="release.rule: anybody's share follows from the released prices, at no cost"
                if family_of(self).hands_out
                else f"{measure} of their own",
            )
        if source._is_copy:
            _refuse_unnamed(self)
        started = time.perf_counter()
        epsilon, delta = source.measured[0].epsilon, source.measured[0].delta
        given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "beta": beta, "feasibility": feasibility}
        given |= {"solver": solver, "solver_options": solver_options, "goal": goal}
        model, options = self._model(solver).check(Options(**given))
        planned = time.perf_counter()
        forecast, outcome = model.answer(source.measured, options)
        chosen = Candidate(source.mechanism, "", True, "", forecast)
        plan = Plan((chosen,), chosen, model.treated(options, forecast))
        seconds = {"plan": planned - started, "solve": time.perf_counter() - planned}
        ran = Ran(source.mechanism, forecast, plan.to_dict(), model.checked(outcome), seconds, private=True)
        self._forget()
        again = model.finish(ran)
        marks = tuple(note for note in source.notes if note.startswith("NOT PRIVATE"))
        notes = (*marks, "answered from numbers released before: nothing more was spent", *again.notes)
        paid = source.guarantee
        self._release = replace(again, guarantee=paid, measured=source.measured, spent=(0.0, 0.0), notes=notes)
        self._release.answered_by(self, model, options)
        return self._release.value

    def _rows_drawn(self, release: Release, beta: float, ax: Any) -> Any:
        """``Release.plot``."""
        from dpmodel.show.rows_figure import picture

        return picture(self._model(), release, beta, ax)

    def _forget(self) -> None:
        """Drop an earlier solution, so that it cannot be taken for the new one if this one fails."""
        self._release = None
        forget_solution(self)

    def _model(self, solver: str | None = None) -> Model:
        """Its model at the present values of public parameters. ``solver`` : of public questions."""
        return family_of(self).of(self, solver)

    # ------------------------------------------------------------------ CVXPY's own arithmetic keeps the class
    def copy(self, args: list[Any] | None = None, id_objects: dict[int, Any] | None = None) -> Problem:
        """A copy with the same leaves (or with ``args``: objective and constraints)."""
        if id_objects and id(self) in id_objects:
            found: Problem = id_objects[id(self)]
            return found
        objective, constraints = args if args is not None else (self.objective, self.constraints)
        new = Problem(objective, constraints, clip=self.clip)
        new.warned = set(self.warned)  # the same leaves
        return new

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
        state["facts"] = {}
        state.pop("__deepcopy__", None)  # the guard that CVXPY leaves behind would switch deepcopy off
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())


def _refuse_unnamed(problem: Problem) -> None:
    """CVXPY counts parameters without a name: in another program their numbers are those of other ones."""
    default = re.compile(r"param\d+")
    for parameter in problem.parameters():
        if isinstance(parameter, Private) and default.fullmatch(parameter.name()):
            raise SpecificationError(
                f"resolve: a release that was read or copied, and the private {parameter.name()} without a name",
                why="numbers of a release are found by names, and CVXPY gives this one to others in other programs",
                remedy="Private(..., name='demand') where the numbers are measured and here",
            )


def _refuse_no_problem(objective: Any, constraints: Any) -> None:
    """What CVXPY's own constructor would stop at with a message for its developers."""
    if not isinstance(objective, cp.Minimize | cp.Maximize):
        raise SpecificationError(
            f"Problem: the objective is a {type(objective).__name__}",
            why="whether it is to be small or large has to be said",
            remedy="dpm.Problem(cp.Minimize(expression), constraints), or cp.Maximize",
        )
    if constraints is not None and not isinstance(constraints, Iterable):
        raise SpecificationError(
            f"Problem: the constraints are one {type(constraints).__name__}",
            why="they are a list, also where there is one",
            remedy="dpm.Problem(objective, [constraint])",
        )


for _operator in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__neg__"):

    def _keeping_class(self: Any, *others: Any, _name: str = _operator) -> Any:
        forward = {"__radd__": "__add__", "__rsub__": "__sub__"}.get(_name)
        if forward is not None and isinstance(others[0], cp.Problem):  # a plain problem stands on the left
            result = getattr(cp.Problem, forward)(others[0], self)
        else:
            result = getattr(cp.Problem, _name)(self, *others)
        if any(getattr(each, "clip", None) is not None for each in (self, *others)):
            raise SpecificationError(
                "arithmetic with a problem that has clip=",
                why="a clip is in the units of its own objective",
                remedy="dpm.Problem(the result's objective and constraints, clip=...)",
            )
        return Problem(result.objective, result.constraints) if type(result) is cp.Problem else result

    setattr(Problem, _operator, _keeping_class)
