"""Linear and cone programs with private objectives, right-hand sides or coefficients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.classify.private_lp import PrivateLP, RecordsLP
from dpmodel.compile.bridge import Lowered, evaluate_objective
from dpmodel.compile.form import require_private_values
from dpmodel.contract import YES, Candidate, Exact, Model, Options, Outcome, Ran, Serves, Verdict, reasons
from dpmodel.errors import DPModelError, InfeasibleError, UnsupportedModelError
from dpmodel.forecast import Forecast, Known, Violation, capped, stated
from dpmodel.marks.private import Private
from dpmodel.marks.records import record_words
from dpmodel.models.exact_rows import ExactRows, exact_rows
from dpmodel.models.program_options import program_options
from dpmodel.numerics.cone_program import probe_solver
from dpmodel.programs.noise_design import x_bound
from dpmodel.programs.objective import objective_span
from dpmodel.programs.public import (
    costs_are_open,
    known_without_data,
    largest_violation,
    sides_are_open,
)
from dpmodel.programs.rows import private_rows
from dpmodel.programs.simulation import measured
from dpmodel.programs.theorems import impossibility_error
from dpmodel.programs.tie_break import settled
from dpmodel.programs.unbounded import refuse_foregone
from dpmodel.release import Release, checked_point, collect, named_constraints, private_parameters
from dpmodel.text import number

_LEFT_OUT = (
    "it leaves private constraints out, which suits models in which one person owns one constraint "
    "(feasibility=AllBut(rows=, alpha=) asks for it)"
)
# What counts as equal of two bounds (``known._EQUAL``), and more.
_EQUAL = 1e-5


class Program(Model[PrivateLP]):
    """``problem``, ``lowered`` : the caller's CVXPY problem and how its columns map back."""

    words = "problem"
    error = Violation
    remedy = "declare how far one record can move the private parameters, or bound the variables"

    def __init__(self, data: PrivateLP, problem: Any = None, lowered: Lowered | None = None) -> None:
        super().__init__(data)
        self.problem, self.lowered = problem, lowered

    @property
    def kind(self) -> type:
        return PrivateLP

    @property
    def protects(self) -> str:
        return record_words(self.data.private)

    @property
    def is_public(self) -> bool:
        return not self.data.private_parts()

    def check(self, given: Options) -> tuple[Model[Any], Options]:
        options = program_options(self.problem, self.data, given)
        if not isinstance(given.feasibility, Exact):
            return self, options
        if isinstance(self.data, RecordsLP):
            raise UnsupportedModelError(
                "feasibility=Exact() for rows that are read a part at a time",
                why="what satisfies rows exactly looks at all of them together",
                remedy="the rows as an array in memory, or AllBut(rows=, alpha=)",
            )
        refuse_impossible(self.data, options)
        rows = exact_rows(self.data, options, given)
        return (self if rows is None else ExactRows(rows, self)), options

    # ------------------------------------------------------------------ planning
    def refuse(self, options: Options) -> None:
        affine = self.data.affine
        kinds = frozenset(block.kind for block in affine.cones)
        probe_solver(kinds, bool(affine.boolean.size or affine.integer.size), options.solver, options.solver_options)
        refuse_impossible(self.data, options)

    def serves(self, mechanism: Any, options: Options) -> Verdict:
        if isinstance(self.data, RecordsLP) and not mechanism.serves.reads_blocks:
            return Verdict(False, "it needs all rows in one array, and these are read a part at a time")
        if options.satisfy == "exact" and not mechanism.serves.exact:
            why = "it satisfies constraints nearly, and feasibility=Exact() was asked for"
            return Verdict(False, why, "feasibility")
        if mechanism.serves.leaves_out and not options.leaves_out:
            return Verdict(False, _LEFT_OUT, "feasibility")
        return YES

    def capped(self, options: Options, candidate: Candidate, *, quickly: bool = False) -> Candidate:
        """Held against what is known without data; with how far rows can be violated and the objective can vary, both
        public, to weigh one against the other: all compare alike."""
        forecast = candidate.forecast
        if forecast is None:
            return candidate
        model, error = self.data, forecast.error
        assert isinstance(error, Violation)
        known = self._known(error, quickly or forecast.spends_nothing)
        without = math.isnan(error.width) and not math.isnan(error.violation)
        rows = model.form.private_rows.any()
        if without and math.isfinite(known.violation) and not (rows and private_rows(model).relative):
            span = self._span(error.objective, quickly)
            forecast = replace(forecast, error=replace(error, width=known.violation, span=span))
        told = capped(forecast, known)
        return candidate if told is candidate.forecast else replace(candidate, forecast=told)

    def _known(self, error: Violation, quickly: bool) -> Known:
        """What a statement of this error has to be held against. Points are looked for where neither declarations nor
        what holds for all points tells, and not ``quickly``."""
        model, loss, violation = self.data, error.objective, error.violation
        if error.centred and math.isinf(violation) and not math.isfinite(x_bound(model)):
            return Known()  # it is stated as a multiple of x
        if costs_are_open(model) and not (math.isinf(loss) and model.form.private_rows.any()):
            return Known(violation=largest_violation(model))
        if sides_are_open(model) and math.isnan(loss) and math.isnan(error.width) and not math.isinf(violation):
            return Known()
        lost, missed, width = stated(error, largest_violation(model))
        everything = missed >= width * (1 - _EQUAL)  # all that any row can be violated by
        if quickly or (everything and lost > 0 and math.isnan(error.tightening) and lost >= objective_span(model)):
            span = self._span(loss, quickly)
            if not quickly:
                model.public.require_feasible()  # known by now, where something was solved
            return Known(math.inf if math.isnan(span) else span, largest_violation(model))
        # Equal is equal within less than ``_EQUAL``.
        most = math.inf if everything else missed * (1 + _EQUAL)
        return known_without_data(model, centred=error.centred, loses=not math.isnan(loss), most=most)

    def needs_data(self, forecast: Forecast) -> bool:
        """A point that loses and violates nothing keeps every statement, but one of how far constraints are tightened:
        with it, ``forecast`` would say nothing."""
        error = forecast.error
        return not forecast.vacuous and isinstance(error, Violation) and math.isnan(error.tightening)

    def _span(self, loss: float, quickly: bool) -> float:
        """How far the objective can vary; nan where none is lost, or, ``quickly``, as good as none."""
        if math.isnan(loss) or (quickly and loss <= np.finfo(np.float64).tiny):
            return math.nan
        return objective_span(self.data)

    def settled(
        self, options: Options, mechanisms: Sequence[Any], candidates: Sequence[Candidate], best: Candidate | None
    ) -> list[Candidate]:
        return settled(self.data, options, mechanisms, candidates, best)

    def unmet(self, options: Options, forecast: Forecast) -> str:
        alpha, rows, error = options.violation, options.slack_rows, forecast.error
        if not isinstance(error, Violation):
            return ""
        if alpha is not None and error.violation > alpha * (1 + 1e-9):
            promised = number(error.violation)
            return f"No mechanism reaches alpha={number(alpha)}, which was asked for: the choice promises {promised}"
        if rows is not None and error.slack_rows > rows:
            left = error.slack_rows
            return f"No mechanism leaves out at most {rows} rows, as was asked for: the choice leaves out up to {left}"
        return ""

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        """What the theorems leave to any mechanism, scaled to how far one record moves an entry."""
        if options.feasibility in ("safe", "strict"):
            return ()  # they are about missing constraints or optimum by little; these miss the optimum instead
        lines: list[str] = []
        for cell in self.data.classification.cells:
            least = cell.lower_bound(options.epsilon, options.delta, options.beta)
            if least is not None and least.value > 0:
                proof = f"by the proof of {least.theorem} for a bounded change"
                lines.append(f"lower bound for {cell.parameter}, {proof}: {least.statement}")
        return tuple(dict.fromkeys(lines))

    def least(self, options: Options) -> Mapping[str, float]:
        """Right-hand sides alone: a theorem on the objective counts in coefficients of its own program, not in units of
        this objective."""
        if options.feasibility in ("safe", "strict"):
            return {}
        cells = (cell for cell in self.data.classification.cells if cell.part == "scalar")
        found = [cell.lower_bound(options.epsilon, options.delta, options.beta) for cell in cells]
        values = [each.value for each in found if each is not None and each.value > 0]
        return {"violation within": max(values)} if values else {}

    @property
    def varies(self) -> tuple[str, ...]:
        """How private numbers come of records is not known; how far a record moves them is declared."""
        bounded = all(cell.level == "low" for cell in self.data.classification.cells)
        return ("sensitivity",) if bounded and self.problem is not None else ()

    def varied(self, what: str, factor: float, parameter: str = "") -> Model[PrivateLP]:
        if what not in self.varies:
            return super().varied(what, factor, parameter)
        private = [p for p in self.problem.parameters() if isinstance(p, Private)]
        twins = {id(p): p.moving(factor) for p in private if parameter in ("", p.name())}
        parts = (self.problem.objective, *self.problem.constraints)
        objective, *constraints = (part.tree_copy(id_objects=twins) for part in parts)
        model: Model[PrivateLP] = self.problem.copy([objective, constraints])._door(None)
        return model

    def measured(self, mechanism: Any, options: Options, runs: int) -> Mapping[str, Sequence[float]]:
        return measured(mechanism, self.data, options, runs)

    def refuse_empty(self) -> None:
        self.data.public.require_feasible()

    def nothing_applies(self, options: Options, candidates: Sequence[Candidate]) -> DPModelError:
        self.refuse_empty()
        if options.feasibility == "strict":
            strict = next(c for c in candidates if c.mechanism == "strict-truncated-laplace")
            what = 'feasibility="strict" cannot be promised for this problem'
            if strict.code == "infeasible":
                remedy = 'tighter public bounds=[lo, hi] on the private parameters, or feasibility="relaxed"'
                return InfeasibleError(what, why=strict.reason, remedy=remedy)
            mend = 'delta=1e-6, say, or feasibility="safe", which promises it with probability 1 - beta'
            remedy = mend if options.delta == 0 else 'mend that, or feasibility="relaxed"'
            return UnsupportedModelError(what, why=strict.reason, remedy=remedy)
        # Mechanisms that serve other cells or another feasibility explain nothing here.
        cells = {f"{cell.taxonomy.part} {cell.taxonomy.level}" for cell in self.data.classification.cells}
        told = [c for c in candidates if cells & set(c.cells)] or candidates
        remedy = self.remedy
        if options.feasibility == "safe":
            remedy = f'feasibility="centred" or "relaxed", which promise less; or {remedy}'
        return UnsupportedModelError(f"no mechanism serves this {self.words}", why=reasons(told), remedy=remedy)

    # ------------------------------------------------------------------ executing
    def ready(self, chosen: Candidate, serves: Serves) -> None:
        self.data.public.require_feasible()
        refuse_foregone(self.data, chosen, serves.over_all)
        require_private_values(private_parameters(self.problem))

    def checked(self, outcome: Any) -> Outcome:
        return checked_point(outcome, self.data.affine.variables, self.data.affine.rows)

    def stopped(self, status: str, note: str) -> Outcome:
        return Outcome(status, None, None, None, notes=(note,))

    def finish(self, ran: Ran) -> Release:
        model, problem, outcome = self.data, self.problem, ran.outcome
        assert self.lowered is not None
        value = outcome.value
        notes = list(outcome.notes)
        if value is not None and outcome.constant is not None:
            value += outcome.constant
        elif value is not None and model.form.offset.nnz:
            value = None
            notes.append("the objective's constant term is private and was not measured: no objective value")
        if value is not None and model.splits_objective:
            value = None
            notes.append("the objective was split into rows with noise in them: no objective value is released")
        if value is not None and model.affine.maximize:
            value = -value
        status = outcome.status if outcome.status != "least_violation" else "optimal_inaccurate"
        self.lowered.write_back(problem, outcome.x, outcome.dual, status, value)
        if value is not None and not any(isinstance(p, Private) for p in problem.objective.parameters()):
            # A public function of the released point: better than its value in the relaxed standard form.
            value = evaluate_objective(problem)
        return collect(
            problem,
            model.private,
            model.classification.told(),
            ran,
            value,
            notes,
            {} if outcome.x is None else _duals(problem, outcome),
        )


def refuse_impossible(model: PrivateLP, options: Options) -> None:
    """Raise the impossibility theorem of the first cell that cannot be solved."""
    for cell in model.classification.cells:
        if not cell.solvable:
            constraint = cell.where[0] if cell.where and cell.part != "objective" else "objective"
            raise impossibility_error(
                cell.part, cell.parameter, constraint, options.epsilon, options.delta, options.beta, cell.reason
            )


def _duals(problem: cp.Problem, outcome: Outcome) -> dict[str, Any]:
    if outcome.dual is None:
        return {}
    duals: dict[str, Any] = {}
    for label, constraint in named_constraints(problem).items():
        dual = constraint.dual_value
        # Multipliers of cones come in parts.
        parts = {f"{label}[{k}]": d for k, d in enumerate(dual)} if isinstance(dual, list) else {label: dual}
        duals |= {name: d for name, d in parts.items() if isinstance(d, np.ndarray | float)}
    return duals
