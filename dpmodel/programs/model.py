"""Linear and cone programs with private objectives, right-hand sides or coefficients: all that is public of one, the
one way to its data, and how it is made of a CVXPY problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import cvxpy as cp
import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.collect import checked_point, collect, named_constraints, private_parameters
from dpmodel.compile.affine_map import AffineMap
from dpmodel.compile.bridge import Lowered, evaluate_objective, lower
from dpmodel.compile.footprint import Footprint, footprint
from dpmodel.compile.form import StandardForm, private_theta, public_theta, require_private_values, standard_form
from dpmodel.compile.public_set import PublicSet, base_program
from dpmodel.compile.refusals import square_of_norm, where_used
from dpmodel.compile.rows import BlockRows, FewRows, MemoryRows, cached_rows, few_rows, row_maker, rows_read
from dpmodel.contract import YES, Candidate, Model, Options, Outcome, Ran, Serves, Verdict, reasons
from dpmodel.errors import DPModelError, InfeasibleError, SpecificationError, UnsupportedModelError
from dpmodel.forecast import Forecast, Violation
from dpmodel.marks.measured import Measured
from dpmodel.marks.private import Private
from dpmodel.marks.records import record_words
from dpmodel.marks.rows import MOST_BLOCKS
from dpmodel.memo import latest
from dpmodel.numerics.cone_program import SolverFailure, probe_solver, solve_cone_program
from dpmodel.numerics.solvers import SOLVER_ERROR
from dpmodel.privacy import NoiseSource, Truncated
from dpmodel.programs.classifier import Classification, classify
from dpmodel.programs.remedies import remedies
from dpmodel.programs.theorems import impossibility_error
from dpmodel.release import Certificate, Release
from dpmodel.requests import Exact, Prices
from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.intervals import IntervalTable
    from dpmodel.release import Interval

# What is read of a program: theta (P,) with the private values, or the rows of records where they lie.
PrivateNumbers = PrivateArray | BlockRows | MemoryRows

_LEFT_OUT = (
    "it leaves private constraints out, which suits models in which one person owns one constraint "
    "(feasibility=AllBut(rows=, alpha=) asks for it)"
)


@dataclass(frozen=True, eq=False)
class Program(Model):
    """A compiled and classified program: what mechanisms see of it, and what a plan wants to know.

    ``form`` : public constants and private linear maps; ``classification`` : its cells;
    ``public`` : what the public constraints say about x. ``problem``, ``lowered`` : the caller's CVXPY problem and how
    its columns map back; None where nothing is written back.
    Everything but ``read_private`` (and ``read_rows``) is public.
    """

    drawn = True
    words = "problem"
    error = Violation
    remedy = "declare how far one record can move the private parameters, or bound the variables"

    form: StandardForm
    classification: Classification
    public: PublicSet
    problem: Any = field(default=None, repr=False, kw_only=True)
    lowered: Lowered | None = field(default=None, repr=False, kw_only=True)

    @property
    def affine(self) -> AffineMap:
        return self.form.affine

    @property
    def entries(self) -> int:
        """Numbers that a product with the rows reads."""
        return int(self.form.matrix.nnz + self.form.A0.nnz)

    @property
    def private(self) -> tuple[Private, ...]:
        """The private parameters, each once."""
        return tuple(block.parameter for block in self.affine.private_blocks)

    def private_parts(self) -> tuple[str, ...]:
        """Which of "objective", "scalar", "matrix" depend on private parameters."""
        names = ("objective", "scalar", "matrix")
        return self.cached("private parts", lambda: tuple(each for each in names if self.form.private_part(each).nnz))

    @property
    def split_rows(self) -> int:
        """Private rows that lowering made (epigraphs): an error in them is not one in a constraint the user wrote."""
        private = self.form.private_rows
        return sum(int(private[block.rows].sum()) for block in self.affine.cones if block.constraint < 0)

    @property
    def splits_objective(self) -> bool:
        """Whether private numbers enter the user's objective through such rows."""
        cells = self.classification.cells
        through_rows = any("the objective" in cell.where and cell.part != "objective" for cell in cells)
        return self.split_rows > 0 and through_rows

    @property
    def linear_where_private(self) -> bool:
        """Whether no private row lies in another cone than inequalities and equations."""
        private, linear = self.form.private_rows, ("zero", "nonneg")
        return all(block.kind in linear or not private[block.rows].any() for block in self.affine.cones)

    def all_rows(self, of_form: int) -> int:
        """How many rows of the program as many private rows of the form stand for."""
        return of_form

    def additions(self, terms: int) -> int:
        """The most additions that a term goes through in a sum over so many rows: what it may lose to rounding."""
        return terms

    def read_private(self) -> PrivateArray:
        """(P,) theta with the private values. Only a mechanism's ``run`` may call this."""
        return private_theta(self.affine)

    # ------------------------------------------------------------------ planning
    @classmethod
    def recognise(cls, problem: Any) -> Compiled:
        """Its standard form: whatever no other family reads is a program."""
        return latest(problem, "program", None, lambda: compiled(problem))

    @classmethod
    def of(cls, problem: Any, solver: str | None = None) -> Program:
        read = cls.recognise(problem)
        key = read.key(solver)
        return latest(problem, "model", (cls, *key), lambda: read.program(problem, key[0]))

    @classmethod
    def classified(cls, problem: Any) -> Classification:
        """Needs no values of public parameters."""
        return cls.recognise(problem).classification

    @property
    def kind(self) -> type:
        return Program

    @property
    def protects(self) -> str:
        return record_words(self.private)

    @property
    def is_public(self) -> bool:
        return not self.private_parts()

    def check(self, given: Options) -> tuple[Model, Options]:
        from dpmodel.programs.options import exact_rows, program_options

        options = program_options(self.problem, self, given)
        if not isinstance(given.feasibility, Exact):
            return self, options
        if isinstance(self, RecordsProgram):
            raise UnsupportedModelError(
                "feasibility=Exact() for rows that are read a part at a time",
                why="what satisfies rows exactly looks at all of them together",
                remedy="the rows as an array in memory, or AllBut(rows=, alpha=)",
            )
        self._refuse_impossible(options)
        return exact_rows(self, options, given) or self, options

    def refuse(self, options: Options) -> None:
        affine = self.affine
        kinds = frozenset(block.kind for block in affine.cones)
        probe_solver(kinds, bool(affine.boolean.size or affine.integer.size), options.solver, options.solver_options)
        self._refuse_impossible(options)

    def serves(self, mechanism: Any, options: Options) -> Verdict:
        if isinstance(self, RecordsProgram) and not mechanism.serves.reads_blocks:
            return Verdict(False, "it needs all rows in one array, and these are read a part at a time")
        if options.satisfy == "exact" and not mechanism.serves.exact:
            why = "it satisfies constraints nearly, and feasibility=Exact() was asked for"
            return Verdict(False, why, "feasibility")
        if mechanism.serves.leaves_out and not options.leaves_out:
            return Verdict(False, _LEFT_OUT, "feasibility")
        return YES

    def treated(self, options: Options, chosen: Forecast) -> Options:
        """Priced, where the ``chosen`` one can price rows and that is expected to cost less at the public level;
        without a level, where every private row is an inequality and the objective tells what a unit of it costs
        (tests/benchmarks/programs/without_level.py). Equalities stay as released: of redundant ones, released numbers
        leave no point, and then multipliers say nothing of money."""
        rows, affine, expected = self.form.private_rows, self.affine, chosen.expected
        if not options.by_cost or options.goal != "auto" or not rows.any() or self.slow_to_price:
            return options
        if "priced" in expected:
            better = expected["priced"].cost < expected["centred"].cost * (1 - 1e-9)
        else:
            costs, error = self.form.c0.any() or "objective" in self.private_parts(), chosen.error
            plain = affine.is_linear() and affine.inequalities()[rows].all() and not self.split_rows
            better = bool(costs and plain and isinstance(error, Violation) and error.centred)
        return replace(options, feasibility="priced") if better else options

    @property
    def slow_to_price(self) -> str:
        """Why prices are left to those who ask for them; "" where they are not. Integer programs with prices may take
        minutes where the released one takes seconds, and so do very many rows."""
        integers = " and integers" * bool(self.affine.boolean.size or self.affine.integer.size)
        rows = int(self.form.private_rows.sum())
        if rows <= (60 if integers else 2000):
            return ""
        return (
            f"priced is not taken by itself, because it may take minutes with {rows} private rows{integers}: "
            "feasibility=dpm.Priced() asks for it"
        )

    def capped(self, options: Options, candidate: Candidate) -> Candidate:
        from dpmodel.programs.public import held_against_public_points

        forecast = candidate.forecast
        told = None if forecast is None else held_against_public_points(self, forecast)
        return candidate if told is forecast else replace(candidate, forecast=told)

    def needs_data(self, forecast: Forecast) -> bool:
        """A point that loses and violates nothing keeps every statement, but one of how far constraints are tightened:
        with it, ``forecast`` would say nothing."""
        error = forecast.error
        return not forecast.vacuous and isinstance(error, Violation) and math.isnan(error.tightening)

    def settled(
        self, options: Options, mechanisms: Sequence[Any], candidates: Sequence[Candidate], best: Candidate | None
    ) -> list[Candidate]:
        from dpmodel.programs.in_money import compared_in_money
        from dpmodel.programs.simulation import settled

        found = settled(self, options, mechanisms, candidates, best)
        return compared_in_money(self, options, mechanisms, found, best)

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
        if options.feasibility == "strict":
            from dpmodel.programs.strict import strict_lower_bounds

            return strict_lower_bounds(self, options)
        if options.feasibility == "safe":
            return ()  # they are about missing constraints or optimum by little; it misses the optimum instead
        lines: list[str] = []
        for cell in self.classification.cells:
            least = cell.lower_bound(options.epsilon, options.delta, options.beta)
            if least is not None and least.value > 0:
                proof = f"by the proof of {least.theorem} for a bounded change"
                lines.append(f"lower bound for {cell.parameter}, {proof}: {least.statement}")
        return tuple(dict.fromkeys(lines))

    def least(self, options: Options) -> Mapping[str, float]:
        """Right-hand sides alone: a theorem on the objective counts in coefficients of its own program, not in units of
        this objective."""
        if options.feasibility == "strict":
            from dpmodel.programs.strict import strict_least

            return strict_least(self, options)
        if options.feasibility == "safe":
            return {}
        cells = (cell for cell in self.classification.cells if cell.part == "scalar")
        found = [cell.lower_bound(options.epsilon, options.delta, options.beta) for cell in cells]
        values = [each.value for each in found if each is not None and each.value > 0]
        return {"violation within": max(values)} if values else {}

    @property
    def varies(self) -> tuple[str, ...]:
        """How private numbers come of records is not known; how far a record moves them is declared."""
        bounded = all(cell.level == "low" for cell in self.classification.cells)
        return ("sensitivity",) if bounded and self.problem is not None else ()

    def varied(self, what: str, factor: float, parameter: str = "") -> Model:
        if what not in self.varies:
            return super().varied(what, factor, parameter)
        private = [p for p in self.problem.parameters() if isinstance(p, Private)]
        twins = {id(p): p.moving(factor) for p in private if parameter in ("", p.name())}
        parts = (self.problem.objective, *self.problem.constraints)
        objective, *constraints = (part.tree_copy(id_objects=twins) for part in parts)
        return Program.of(self.problem.copy([objective, constraints]))

    def synthetic(self, seed: int) -> Program:
        from dpmodel.programs.simulation import synthetic

        return synthetic(self, seed)

    def refuse_empty(self) -> None:
        self.public.require_feasible()

    def nothing_applies(self, options: Options, candidates: Sequence[Candidate]) -> DPModelError:
        self.refuse_empty()
        if options.feasibility == "strict":
            from dpmodel.programs.strict import STRICT_TRUNCATED_LAPLACE

            strict = next(c for c in candidates if c.mechanism == STRICT_TRUNCATED_LAPLACE.name)
            what = 'feasibility="strict" cannot be promised for this problem'
            weaker = 'feasibility="safe", which promises it with probability 1 - beta'
            if (self.form.private_rows & self.affine.equalities()).any():  # none is safe
                weaker = 'feasibility="centred"'
            if strict.code == "infeasible":
                remedy = f"tighter public bounds=[lo, hi] on the private parameters, or {weaker}"
                return InfeasibleError(what, why=strict.reason, remedy=remedy)
            remedy = f"{'delta=1e-6, say' if options.delta == 0 else 'mend that'}, or {weaker}"
            return UnsupportedModelError(what, why=strict.reason, remedy=remedy)
        # Mechanisms that serve other cells or another feasibility explain nothing here.
        cells = {f"{cell.taxonomy.part} {cell.taxonomy.level}" for cell in self.classification.cells}
        told = [c for c in candidates if cells & set(c.cells)] or candidates
        remedy = f"{square_of_norm(self.problem)}{self.remedy}"
        if options.feasibility == "safe":
            remedy = f'feasibility="centred" or "relaxed", which promise less; or {remedy}'
        return UnsupportedModelError(f"no mechanism serves this {self.words}", why=reasons(told), remedy=remedy)

    # ------------------------------------------------------------------ executing
    def answer(self, measured: tuple[Measured, ...], options: Options) -> tuple[Forecast, Outcome]:
        from dpmodel.programs.answer import design_of
        from dpmodel.programs.noise_once import LAPLACE_ONCE
        from dpmodel.programs.public import held_against_public_points

        self._refuse_impossible(options)
        self.public.require_feasible()
        if (options.slack_rows, options.violation) != (None, None) or options.goal != "auto":
            raise SpecificationError(
                "resolve with AllBut(...) or a goal",
                why="they are for mechanisms that search for a nearly feasible point, which takes budget",
                remedy='feasibility="centred", "safe", "relaxed" or Priced(...)',
            )
        serves = LAPLACE_ONCE.eligible(self, options)
        if not serves.eligible:
            what, why = f"resolve: these numbers have no answer that is {options.feasibility}", serves.reason
            if any(isinstance(each.distribution, Truncated) for each in measured) and options.feasibility == "strict":
                why = "whether a public point stands whatever is drawn is decided before the draw, for one program"
            first = '"safe", ' if options.feasibility == "strict" else ""
            raise UnsupportedModelError(what, why=why, remedy=f'{first}"centred", "relaxed" or Priced(...)')
        design, numbers = design_of(self, options, measured)
        forecast = held_against_public_points(self, LAPLACE_ONCE.forecast_of(self, options, design))
        treated = self.treated(options, forecast)
        if treated is not options and LAPLACE_ONCE.eligible(self, treated).eligible:
            options = treated
            forecast = held_against_public_points(self, LAPLACE_ONCE.forecast_of(self, options, design))
        return forecast, LAPLACE_ONCE.answer(self, options, design, numbers)

    def optimum(self, measured: tuple[Measured, ...], options: Options, looked: bool = False) -> Interval:
        from dpmodel.programs.how_good import interval_of

        return interval_of(self, options, measured, looked=looked)

    def intervals(self, release: Release, options: Options, level: float) -> IntervalTable:
        from dpmodel.programs.variables import variable_intervals

        return variable_intervals(self, release, options, level)

    def compared(
        self, measured: tuple[Measured, ...], beta: float, prices: Prices | None
    ) -> Mapping[str, Mapping[str, Any]]:
        """Treatment of private constraints -> its row of ``Release.compare``; of those treatments that the program has.
        ``prices`` : of shortages in all of them; None: the usual ones."""
        from dpmodel.programs.how_good import compared

        return compared(self, measured, beta, prices)

    def regret(self, measured: tuple[Measured, ...], options: Options) -> float:
        from dpmodel.programs.how_good import bootstrap_of

        if options.feasibility == "strict" or not (self.form.c0.any() or "objective" in self.private_parts()):
            raise SpecificationError(
                "regret of a strict answer, or without an objective",
                why="the bootstrap answers again from numbers with more noise, and counts what the answers cost",
                remedy="release.accuracy",
            )
        return bootstrap_of(self, options, measured).regret

    def certificate(self, epsilon: float, beta: float) -> str | Callable[[Floats, NoiseSource], Certificate]:
        from dpmodel.programs.certificate import certify, why_not

        return why_not(self, epsilon, beta) or partial(certify, self, epsilon, beta)

    def ready(self, chosen: Candidate, serves: Serves) -> None:
        from dpmodel.programs.unbounded import refuse_unsolvable

        self.public.require_feasible()
        refuse_unsolvable(self, chosen, serves.over_all)
        require_private_values(private_parameters(self.problem))

    def checked(self, outcome: Any) -> Outcome:
        return checked_point(outcome, self.affine.variables, self.affine.rows)

    def stopped(self, status: str, note: str) -> Outcome:
        return Outcome(status, None, None, None, notes=(note,))

    def finish(self, ran: Ran) -> Release:
        problem, outcome = self.problem, ran.outcome
        assert self.lowered is not None
        value = outcome.value
        notes = list(outcome.notes)
        if value is not None and outcome.constant is not None:
            value += outcome.constant
        elif value is not None and self.form.offset.nnz:
            value = None
            notes.append("the objective's constant term is private and was not measured: no objective value")
        if value is not None and self.splits_objective:
            value = None
            notes.append("the objective was split into rows with noise in them: no objective value is released")
        cut = {p.name(): " and ".join(p.cut_by) for p in self.private if p.cut_by}
        if cut:
            after = "; ".join(
                f"{', '.join(name for name in cut if cut[name] == by)} after {by}" for by in dict.fromkeys(cut.values())
            )
            notes.append(f"statements are about {after}: what is beyond is cut (how much is private)")
        if value is not None and "objective" in self.private_parts():
            notes.append(
                "the value is that of the released costs, and looks better than what the answer costs: noise makes "
                "some of them low, and the answer takes these; release.compare() estimates its regret"
            )
        if value is not None and self.affine.maximize:
            value = -value
        status = outcome.status if outcome.status != "least_violation" else "optimal_inaccurate"
        self.lowered.write_back(problem, outcome.x, outcome.dual, status, value)
        if value is not None and not any(isinstance(p, Private) for p in problem.objective.parameters()):
            # A public function of the released point: better than its value in the relaxed standard form.
            value = evaluate_objective(problem)
        return collect(
            problem,
            self.private,
            self.classification.told(),
            ran,
            value,
            notes,
            {} if outcome.x is None else _duals(problem, outcome),
        )

    def solve_public(self, solver: str | None, solver_options: Mapping[str, Any] | None) -> str:
        """Solve where nothing private reaches c, b or A, write the solution back and say so: nothing is read."""
        assert self.lowered is not None
        solution = solve_cone_program(base_program(self.form), solver=solver, options=solver_options)
        if solution.status == SOLVER_ERROR:
            raise SolverFailure("no solver had an answer", why=solution.notes[0], remedy="another solver=")
        value, hidden = solution.value, bool(self.form.offset.nnz)
        value = None if value is None or hidden else -value if self.affine.maximize else value
        self.lowered.write_back(self.problem, solution.x, solution.dual, solution.status, value)
        note = "no private parameter reaches c, b or A: the solution does not depend on private data"
        return note + ", and the objective value, which does, is not released" if hidden else note

    def _refuse_impossible(self, options: Options) -> None:
        """Raise the impossibility theorem of the first cell that cannot be solved."""
        cells = self.classification.cells
        cell = next((cell for cell in cells if not cell.solvable), None)
        if cell is None:
            return
        asked: dict[str, Any] = {"epsilon": options.epsilon, "delta": options.delta, "beta": options.beta}
        request = asked
        if options.feasibility in ("relaxed", "safe", "strict") and (options.slack_rows, options.violation) == (
            None,
            None,
        ):
            request = {**asked, "feasibility": options.feasibility}
        same = [each for each in cells if each.parameter == cell.parameter and each is not cell]
        constraint = cell.where[0] if cell.where and cell.part != "objective" else "objective"
        offered = remedies(self.problem, (cell, *same), request)
        raise impossibility_error(cell.part, cell.parameter, constraint, **asked, reason=cell.reason, remedies=offered)


@dataclass(frozen=True, eq=False)
class RecordsProgram(Program):
    """A program in which every one of ``count`` records owns the same rows: ``form`` has those of ``few`` records, and
    ``read`` hands out all, where they lie. ``in_blocks`` : whether that is in blocks, of which sums are added up."""

    count: int
    few: int
    in_blocks: bool
    read: Callable[[], BlockRows | MemoryRows]

    @property
    def entries(self) -> int:
        return self.all_rows(super().entries)

    def all_rows(self, of_form: int) -> int:
        return of_form * self.count // self.few

    def additions(self, terms: int) -> int:
        if not self.in_blocks:
            return terms
        # In a part; over the parts of a block, of which every kind of row has its own; in the tree over blocks.
        step, kinds = cached_rows(self.affine.variables), 2 * max(terms // self.count, 1)
        return min(terms, step + terms // step + kinds + 2 * int(math.log2(MOST_BLOCKS)) + 1)

    def read_rows(self) -> BlockRows | MemoryRows:
        """The rows, of which sums can be asked. Only a mechanism's ``run`` may call this."""
        return self.read()


def refuse_high(model: Program, what: str = "noise") -> Verdict | None:
    """No, if some private parameter may change arbitrarily: ``what`` cannot hide that."""
    high = [cell for cell in model.classification.cells if cell.level == "high"]
    return Verdict(False, f"{high[0].parameter} may change arbitrarily: no {what} can hide it") if high else None


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


# ---------------------------------------------------------------------- from a CVXPY problem to a program
class Compiled(NamedTuple):
    """What is known of a problem without the values of any parameter. ``few`` : what was lowered in the problem's
    place, where every record owns the same rows."""

    lowered: Lowered
    footprint: Footprint
    classification: Classification
    few: FewRows | None

    def key(self, solver: str | None) -> tuple[Any, ...]:
        """What a program depends on besides: the solver of public questions, and the values of public parameters."""
        affine = self.lowered.affine
        if affine.is_linear() and not (affine.boolean.size or affine.integer.size):
            solver = None  # HiGHS keeps its basis between questions about the public set, and plans do not depend on it
        return solver, public_theta(affine).tobytes()

    def program(self, problem: cp.Problem, solver: str | None) -> Program:
        """The program at the present values of public parameters; ``solver`` as in ``key``."""
        form, few = standard_form(self.lowered.affine), self.few
        public = PublicSet(form, solver)
        if few is None:
            return Program(form, self.classification, public, problem=problem, lowered=self.lowered)
        facts = form, self.classification, public, few.count, few.few, few.in_blocks
        return RecordsProgram(
            *facts, partial(rows_read, few, row_maker(form, few)), problem=problem, lowered=self.lowered
        )


def compiled(problem: cp.Problem) -> Compiled:
    """``problem`` as a standard form.
    Errors: UnsupportedModelError, for what is not convex or not DPP, and private problems without variables."""
    few = few_rows(problem)
    lowered = lower(problem) if few is None else few.lowered
    if lowered.affine.variables == 0 and lowered.affine.private_blocks:
        raise UnsupportedModelError(
            "a problem without variables",
            why="a mechanism releases a solution, and there is nothing to solve for",
            remedy="a variable that the private parameters have a say in",
        )
    originals = {} if few is None else few.originals
    labels = {} if originals else {cone.constraint: cone.label for cone in lowered.affine.cones}
    places = {
        b.name: where_used(problem, originals.get(id(b.parameter), b.parameter), labels)
        for b in lowered.affine.private_blocks
    }
    sensitivity = footprint(lowered.affine)
    return Compiled(lowered, sensitivity, classify(lowered.affine, sensitivity, places), few)
