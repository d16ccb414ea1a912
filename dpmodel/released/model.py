"""Post-processing of published numbers: planned and solved like every problem, but nothing private is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpmodel.collect import checked_point, values_of
from dpmodel.compile.bridge import evaluate_objective, write_values
from dpmodel.compile.form import public_key
from dpmodel.contract import Candidate, Mechanism, Model, Options, Outcome, Ran, Serves, reasons
from dpmodel.errors import DPModelError, UnsupportedModelError
from dpmodel.forecast import Forecast, Place
from dpmodel.marks.noisy import Noisy
from dpmodel.memo import latest
from dpmodel.options import public_options
from dpmodel.programs.classifier import Classification
from dpmodel.release import Accuracy, Guarantee, Release
from dpmodel.released.constraints import contradiction, require_consistent
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.tree_of import tree_of
from dpmodel.released.trees import TreeProblem
from dpmodel.text import number

FREE = Options(0.0, 0.0)
_BIASED = "non-negativity is a constraint: it lowers the error of cells and biases totals of sparse data upwards"


@dataclass(frozen=True, eq=False)
class Postprocessing(Model):
    """A problem that reads published numbers only. It costs no privacy.

    ``form`` : the problem in arrays, or None where it has terms or constraints outside it (then only the general
    solver serves it). ``problem`` : the user's CVXPY problem, or None when a helper built the form. ``measurements`` :
    the published data it speaks of, ``rows`` : for each the rows of ``form.matrix`` (slices; empty without a form).
    ``columns`` : (variable, slice of x) of the user's variables, each flattened column by column. ``shape`` : axes of
    x when it is a contingency table (flattened in C order), or None. ``description`` : one line on what it is.
    """

    reads = False
    words = "post-processing"
    error = Place
    remedy = "a convex likelihood under convex constraints, without integer variables"

    form: LikelihoodForm | None
    measurements: tuple[Noisy, ...]
    rows: tuple[slice, ...] = ()
    problem: Any = None
    columns: tuple[tuple[Any, slice], ...] = ()
    shape: tuple[int, ...] | None = None
    description: str = ""

    @classmethod
    def recognise(cls, problem: Any) -> Postprocessing | None:
        from dpmodel.released.read import recognise_postprocessing

        return latest(problem, "post-processing", public_key(problem), lambda: recognise_postprocessing(problem))

    @classmethod
    def of(cls, problem: Any, solver: str | None = None) -> Postprocessing:
        found = cls.recognise(problem)
        assert found is not None
        return found

    @property
    def classification(self) -> Classification:
        """No cell of the taxonomy: nothing private is read, so nothing is spent."""
        what = self.description[:1].upper() + self.description[1:]
        return Classification((), f"{what}. No private data is read: it costs epsilon = 0, delta = 0 (LWK15).")

    def tree_problem(self) -> TreeProblem | None:
        """The problem as a tree, or None where it is none; looked for once."""
        return self.cached("tree problem", lambda: None if self.form is None else tree_of(self.form))

    def check(self, given: Options) -> tuple[Model, Options]:
        """A budget may be given, is checked, and nothing of it is spent."""
        filled = replace(given, epsilon=1.0 if given.epsilon is None else given.epsilon)
        return self, replace(public_options(filled, self.words), epsilon=0.0, delta=0.0)

    def nothing_applies(self, options: Options, candidates: Sequence[Candidate]) -> DPModelError:
        return UnsupportedModelError(f"no solver serves this {self.words}", why=reasons(candidates), remedy=self.remedy)

    def ready(self, chosen: Candidate, serves: Serves) -> None:
        require_consistent(self)

    def checked(self, outcome: Any) -> Outcome:
        if isinstance(outcome, Outcome) and outcome.status == "infeasible":
            raise contradiction(self)
        size = sum(where.stop - where.start for _, where in self.columns)
        return checked_point(outcome, size if self.form is None else self.form.size)

    def finish(self, ran: Ran) -> Release:
        outcome, values = ran.outcome, {}
        if outcome.x is not None:
            values = {
                variable: np.reshape(outcome.x[where], variable.shape, order="F") for variable, where in self.columns
            }
        write_values(self.problem, values, outcome.status)
        if values:
            ran = replace(ran, outcome=replace(outcome, value=evaluate_objective(self.problem)))
        return self.release(ran, values_of(self.problem) if values else {})

    @property
    def _noise(self) -> str:
        """How far the numbers are off that the optimum is one of: an optimum alone says nothing of the truth."""
        sizes = [np.asarray(noisy.standard_deviation) for noisy in self.measurements]
        ends = dict.fromkeys(map(number, (min(map(np.min, sizes)), max(map(np.max, sizes)))))
        return f"; the published numbers have noise of standard deviation {' to '.join(ends)}"

    def release(self, ran: Ran, variables: Mapping[str, Any], notes: Sequence[str] = ()) -> Release:
        """The release of a solved model: guarantee (0, 0), and what the published numbers cost as far as they tell."""
        forecast, outcome = ran.forecast, ran.outcome
        said = [*outcome.notes, *notes, *published(self.measurements)]
        if self.form is not None and bool((self.form.lower >= 0).any()) and self.form.absolute.any():
            said.append(_BIASED)
        exact = outcome.status == "optimal"
        statement = f"{forecast.statement if exact else f'the solver stopped early ({outcome.status})'}{self._noise}"
        if outcome.x is None:
            statement = "no solution: the likelihood and the constraints leave the objective without a minimum"
        return Release(
            mechanism=ran.mechanism,
            guarantee=Guarantee(0.0, 0.0, record="post-processing of published numbers"),
            accuracy=Accuracy(
                alpha=forecast.error.alpha if exact else None,
                beta=0.0 if exact else None,
                proved=forecast.proved and exact,
                statement=statement,
            ),
            status=outcome.status,
            value=None if outcome.x is None else outcome.value,
            variables=variables,
            timings=ran.timings,
            classification=(self.description,),
            plan=ran.plan,
            notes=tuple(dict.fromkeys(said)),
        )


def published(measurements: Sequence[Noisy]) -> list[str]:
    """One line per set of published numbers: its distribution, and what publishing it cost, if that was declared."""
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


class Solver(Mechanism[Postprocessing]):
    """A solver of post-processing problems. All reach the same optimum (to 1e-4 of the objective), so nothing is timed:
    the first of this table that serves is taken.

    =====  ================================  ===================================================================
    place  problem                           solver
    =====  ================================  ===================================================================
    1      cells alone                       projection: each by itself
    2      tree, squares (Gaussian noise)    least-squares-tree: two passes; active sets under x >= 0
    3      sums, chains, table margins       projection: closed forms and isotonic regression
    4      tree, absolute errors (Laplace)   exact-tree
    5      anything else, small              general-solver (HiGHS, Clarabel; what is not linear as CVXPY solves it)
    6      anything else, large              admm
    7      any                               general-solver where large, algorithms as printed
    =====  ================================  ===================================================================
    """

    def place(self, model: Postprocessing) -> int:
        """Of this solver in the table, whether it serves or not."""
        raise NotImplementedError

    def free_of_charge(
        self, model: Postprocessing, statement: str, *, alpha: float, work: str, caveats: tuple[str, ...] = ()
    ) -> Forecast:
        """Its forecast, which spends nothing. ``alpha`` : relative error of the objective at which it stops, 0 where it
        is exact."""
        error = Place(self.place(model), alpha)
        return Forecast(statement, 0.0, 0.0, 0.0, error, proved=alpha == 0, work=work, caveats=caveats)
