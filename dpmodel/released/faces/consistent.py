"""What every fit of published numbers has (model, plan, solve, release, problem), and what builds and rounds it."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Labels
from dpmodel.errors import DPModelError, InfeasibleError, SpecificationError
from dpmodel.marks.noisy import Noisy
from dpmodel.problem import Problem
from dpmodel.release import Accuracy, Release
from dpmodel.released.faces.refits import Setting, solution_of, worse_than_published
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.least_squares_tree import LeastSquaresTree
from dpmodel.released.likelihood import distribution_weights, neg_log_likelihood, require_one_publication
from dpmodel.released.model import FREE, Postprocessing
from dpmodel.released.rounding import How, round_form, round_total, round_tree
from dpmodel.released.trees import Tree
from dpmodel.solve.execute import execute
from dpmodel.solve.plan import Plan
from dpmodel.solve.planner import make_plan
from dpmodel.solve.registry import AnyMechanism

Round = Literal["unbiased", "controlled", "nearest"]
ROUNDINGS = ("unbiased", "controlled", "nearest")
_FORMS = {
    "likelihood": "fitted by maximum likelihood",
    "least-squares": "fitted by least squares, weighted by the variances of the noise",
    "top-down": "fitted by least squares, weighted by the variances of the noise, with bounds from the top level down",
}
# Known numbers contradict each other where they differ by more than this share of their size.
SLACK = 1e-9


@dataclass
class _Last:
    release: Release | None = None
    x: Floats | None = None
    mechanism: str | AnyMechanism = "auto"


@dataclass(frozen=True, eq=False, repr=False)
class Consistent:
    """Published numbers made consistent, by maximum likelihood or least squares: costs no privacy.

    ``model`` : the problem in arrays, nothing of it private. ``setting`` : the form of the fit.
    """

    model: Postprocessing
    setting: Setting
    _last: _Last = field(default_factory=_Last, repr=False)

    def plan(self, mechanism: str | AnyMechanism = "auto", *, round: Round | None = None) -> Plan:
        """The solvers that apply, by their places in the decision table. Below: the levels or marginals that
        the fit is forecast to leave less accurate than published, and what rounding takes."""
        _check_round(round)
        plan = make_plan(self.model, FREE, self.setting.solver(mechanism))
        rounding = () if round is None else (rounding_words(self.model, round),)
        return replace(
            plan, lower_bounds=(*plan.lower_bounds, *worse_than_published(self.model, self.setting), *rounding)
        )

    def solve(
        self,
        mechanism: str | AnyMechanism = "auto",
        *,
        round: Round | None = None,
        rng: int | None = None,
        progress: Callable[[str, float], None] | bool | None = None,
        **unknown: Any,
    ) -> Release:
        """Solve, store and return the release; epsilon = delta = 0.

        Parameters
        ----------
        mechanism : "auto", a name from the plan, or an object with settings of its own.
        round : integers that keep every sum: "unbiased" (at random; the mean of each is the solution),
            "controlled" (every entry and sum at its floor or ceiling where that can be), "nearest" (the least
            moved). None: as solved.
        rng : a seed of random rounding (None: 0), so that results repeat.
        progress : True, or a function (stage, share).

        Raises
        ------
        SpecificationError
            For an epsilon or a budget, which a fit does not spend, and other arguments that it does not have.
        InfeasibleError
            When no point satisfies the constraints. An earlier release stays when the call fails.
        DPModelError
            When the search for integers under crossing margins found none in its bounded number of nodes.
        """
        for name in unknown:
            raise SpecificationError(
                f"solve: {name}= of a fit",
                why="published numbers were paid for when they came out: what is computed from them spends nothing"
                if name in ("epsilon", "delta", "budget")
                else "no argument of solve",
                remedy="leave it out",
            )
        _check_round(round)
        mechanism = self.setting.solver(mechanism)
        done = execute(self.model, FREE, mechanism, label="post-processing", progress=progress)
        if done.failure is not None:
            raise done.failure
        outcome = done.outcome
        descends = isinstance(mechanism, LeastSquaresTree) and mechanism.top_down
        notes = [_FORMS["top-down" if descends else self.setting.form], *self._agreement()]
        plain = outcome.x
        if round is not None and outcome.x is not None:
            integers = self._rounded(np.asarray(outcome.x, dtype=np.float64), round, rng or 0)
            outcome = replace(outcome, x=integers, value=self._form.objective(integers))
            notes.append(f"rounded to integers ({round})" + ("" if round == "unbiased" else self._near))
        variables = {} if outcome.x is None else self._variables(outcome.x)
        release = self.model.release(replace(done.ran(), outcome=outcome), variables, notes)
        if variables:
            release = replace(release, labels=self._labels())
        if outcome.x is not plain:
            said = f"integers beside the solution, whose likelihood they may miss ({release.accuracy.statement})"
            release = replace(release, accuracy=Accuracy(alpha=None, beta=None, proved=False, statement=said))
        self._last.release, self._last.x, self._last.mechanism = release, outcome.x, mechanism
        return release

    @property
    def release(self) -> Release | None:
        """The last release, or None before ``solve``."""
        return self._last.release

    @property
    def mechanism(self) -> str | AnyMechanism:
        """What the last ``solve`` was given, or the name of what it chose."""
        given = self._last.mechanism
        return self._last.release.mechanism if given == "auto" and self._last.release is not None else given

    @property
    def x(self) -> Floats:
        """(n,) the solution, in the order of ``model.form``.

        Raises
        ------
        SpecificationError
            Before ``solve``.
        """
        if self._last.release is not None and self._last.x is None:
            raise SpecificationError(
                f"the last solve found no numbers ({self._last.release.status})",
                why="the measurements and bounds leave some numbers undetermined",
                remedy="measure them, or bound them",
            )
        if self._last.x is None:
            raise SpecificationError("nothing was solved yet", remedy="solve() first")
        return self._last.x

    def problem(self) -> Problem:
        """The same as a ``dpm.Problem`` in CVXPY, to add constraints to.

        Its variable ``problem.var_dict["x"]`` is (n,), in the order of ``model.form``.
        """
        form = self._form
        x = cp.Variable(form.size, name="x")
        loss = sum(
            neg_log_likelihood(
                form.matrix[rows] @ x, noisy, alpha=self.setting.alpha_for(noisy), form=self.setting.form
            )
            for noisy, rows in zip(self.model.measurements, self.model.rows, strict=True)
        )
        constraints = []
        if form.equality.shape[0]:
            constraints.append((form.equality @ x == form.equality_value).set_label("sums"))
        fixed = form.lower == form.upper
        low, high = np.isfinite(form.lower) & ~fixed, np.isfinite(form.upper) & ~fixed
        if fixed.any():
            constraints.append((_pick(x, fixed) == form.lower[fixed]).set_label("known"))
        if low.any():
            constraints.append((_pick(x, low) >= form.lower[low]).set_label("at least"))
        if high.any():
            constraints.append((_pick(x, high) <= form.upper[high]).set_label("at most"))
        return Problem(cp.Minimize(loss), constraints)

    def functions(self, of: Any) -> tuple[sp.csr_array, tuple[int, ...]] | None:
        """What ``of=`` of ``standard_errors`` and ``intervals`` means for this kind of fit: rows over x and the shape
        of the answer; None where it has no meaning of its own."""
        return None

    def __repr__(self) -> str:
        done = "not solved yet" if self.release is None else f"{self.release.status}, by {self.release.mechanism}"
        return f"<{type(self).__name__}: {self.model.description}; {done}>"

    @property
    def _form(self) -> LikelihoodForm:
        assert self.model.form is not None
        return self.model.form

    def _variables(self, x: Floats) -> Mapping[str, Any]:
        raise NotImplementedError

    def _labels(self) -> Mapping[str, Labels]:
        """Names of the entries of ``_variables``, where there are some."""
        return {}

    def _rounded(self, x: Floats, round: Round, seed: int) -> Floats:
        raise NotImplementedError

    def _agreement(self) -> tuple[str, ...]:
        """Which numbers agree, where not all agree with all."""
        return ()

    @property
    def _near(self) -> str:
        """Words on integers that are not drawn at random."""
        return ""


def _check_round(round: Any) -> None:
    if round is not None and round not in ROUNDINGS:
        raise SpecificationError(
            f"round={round!r}",
            why="integers that keep every sum are chosen at random, next to the solution, or nearest to it",
            remedy="None, 'unbiased', 'controlled' or 'nearest'",
        )


def _pick(x: cp.Variable, mask: Any) -> Any:
    return x if mask.all() else x[np.flatnonzero(mask)]


# ------------------------------------------------------------------ measurements
def checked_noisy(noisy: Any, what: str) -> Noisy:
    if not isinstance(noisy, Noisy):
        raise SpecificationError(
            f"{what} is a {type(noisy).__name__}",
            why="a likelihood needs the distribution of the noise that the numbers were published with",
            remedy="Noisy(values, noise=Laplace(scale)), or what measure(...) returned",
        )
    return noisy


def flattened(noisy: Noisy, order: Any = None, name: str = "") -> Noisy:
    """The measurement as a vector, its entries (and their scales) in the order ``order`` of the flat value."""
    value, scale = noisy.value.ravel(), np.asarray(noisy.noise.scale, dtype=np.float64)
    if scale.ndim:
        scale = np.broadcast_to(scale, noisy.shape).ravel()
    if order is not None:
        value, scale = value[order], scale[order] if scale.ndim else scale
    distribution = replace(noisy.noise, scale=scale if scale.ndim else float(scale))
    return replace(noisy, value=value, noise=distribution, name=noisy.name or name, labels=())


def assembled(
    parts: Sequence[tuple[Noisy, sp.csr_array]], setting: Setting, size: int, **constraints: Any
) -> tuple[LikelihoodForm, tuple[Noisy, ...], tuple[slice, ...]]:
    """The form of flat measurements, each with the (k, n) matrix of what it measured; and the rows of each.
    Errors: SpecificationError, for no measurement, and for the same published numbers of the same cells given twice or
    with two distributions."""
    if not parts:
        raise SpecificationError("nothing was measured", remedy="at least one Noisy")
    cells: dict[Any, list[Noisy]] = {}
    for noisy, matrix in parts:
        require_one_publication(noisy, cells.setdefault((matrix.indptr.tobytes(), matrix.indices.tobytes()), []))
    weight = [distribution_weights(noisy, setting.alpha_for(noisy), setting.form) for noisy, _ in parts]
    form = LikelihoodForm.of(
        sp.vstack([matrix for _, matrix in parts], format="csr") if len(parts) > 1 else parts[0][1],
        np.concatenate([noisy.value for noisy, _ in parts]),
        absolute=np.concatenate([np.broadcast_to(a, n.shape) for (a, _), (n, _) in zip(weight, parts, strict=True)]),
        square=np.concatenate([np.broadcast_to(s, n.shape) for (_, s), (n, _) in zip(weight, parts, strict=True)]),
        **constraints,
    )
    assert form.size == size
    ends = np.cumsum([0, *(noisy.size for noisy, _ in parts)])
    rows = tuple(slice(a, b) for a, b in itertools.pairwise(ends.tolist()))
    return form, tuple(noisy for noisy, _ in parts), rows


# ------------------------------------------------------------------ public facts
def box(size: int, nonneg: bool, bounds: Any) -> tuple[Floats, Floats]:
    """(size,) lower and upper bounds.
    Errors: SpecificationError, for bounds that are no pair of numbers or arrays of this size; InfeasibleError, where no
    number lies between them."""
    low, high = np.full(size, 0.0 if nonneg else -np.inf), np.full(size, np.inf)
    if bounds is not None:
        try:
            given = [np.broadcast_to(np.asarray(b, dtype=np.float64).ravel(), (size,)) for b in bounds]
            first, second = given
        except (TypeError, ValueError):
            raise SpecificationError(
                "bounds is not a pair", remedy=f"bounds=(low, high): numbers, or arrays of {size} entries"
            ) from None
        if np.isnan(first).any() or np.isnan(second).any():
            raise SpecificationError("bounds hold NaN", remedy="numbers, -inf or inf")
        low, high = np.maximum(low, first), np.minimum(high, second)
    if (low > high).any():
        at = int(np.argmax(low > high))
        raise InfeasibleError(
            f"bounds: entry {at} is at least {low[at]:g} and at most {high[at]:g}",
            why="no number lies between them" + (" (nonneg=True makes the lower one at least 0)" if nonneg else ""),
            remedy="bounds=(lo, hi), the lower end first",
        )
    return low, high


def public_array(value: Any, what: str) -> Floats:
    """(k,) public numbers.
    Errors: SpecificationError, for private or noisy ones, and what is no array of finite numbers."""
    if isinstance(value, cp.Expression | Noisy):
        raise SpecificationError(
            f"{what} is a {type(value).__name__}",
            why="these numbers hold exactly, so they must be public",
            remedy="measure private ones, and fit noisy ones",
        )
    try:
        array = np.asarray(value, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        array = np.full(1, np.nan)
    if not np.isfinite(array).all():
        raise SpecificationError(f"{what} is not made of finite numbers", remedy="public numbers")
    return array


def finite(value: Any, what: str) -> float:
    good = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(float(value))
    if not good:
        raise SpecificationError(f"{what} is not a finite number", remedy="a public number")
    return float(value)


def slack(*sizes: float) -> float:
    return SLACK * max(1.0, *(abs(s) for s in sizes if math.isfinite(s)))


def refuse_contradiction(what: str, value: float, other: str, low: float, high: float) -> None:
    """Refuse ``value`` unless it lies between ``low`` and ``high``."""
    if low - slack(low, value) <= value <= high + slack(high, value):
        return
    if high - low <= slack(low, high):
        said = f"{low:.12g}"
    elif value < low:
        said = f"at least {low:.12g}"
    else:
        said = f"at most {high:.12g}"
    raise InfeasibleError(
        f"{what} is known to be {value:.12g}, but {other} {said}",
        why="no numbers satisfy both; the published noisy ones play no part in that",
        remedy="known numbers that agree with each other, with the bounds and with the structural zeros",
    )


# ------------------------------------------------------------------ integers out of fits


def round_solution(problem: Problem, how: Round = "unbiased", *, rng: int = 0) -> dict[Any, Floats]:
    """{variable: integers near its value}: they keep the constraints of ``problem``, which stays as it is.

    It reads released values only, so it costs no privacy.

    Parameters
    ----------
    problem : solved, a post-processing with linear constraints.
    how : "unbiased" : at random, every entry its floor or ceiling and its mean over ``rng`` the solution; for trees,
        chains, one total and two-way tables. "controlled" : every entry (and sum of a tree) at its floor or ceiling
        where that can be, or the nearest integer point that keeps all constraints. "nearest" : the least moved.
    rng : a seed of random rounding.

    Raises
    ------
    SpecificationError
        For a problem that is not solved or no such post-processing; where no unbiased rounding is known.
    InfeasibleError
        When no integers keep the constraints.
    """
    if how not in ROUNDINGS:
        raise SpecificationError(f"how={how!r}", remedy=" or ".join(map(repr, ROUNDINGS)))
    model = Postprocessing.recognise(problem) if isinstance(problem, Problem) else None
    if model is None or model.form is None:
        raise SpecificationError(
            "rounding of what is no post-processing with linear constraints",
            remedy="a Problem of neg_log_likelihood terms under linear constraints",
        )
    if any(variable.value is None for variable, _ in model.columns):
        raise SpecificationError("nothing was solved yet", remedy="problem.solve() first")
    x = solution_of(model)
    tree = model.tree_problem()
    if tree is not None and np.isin(np.flatnonzero(tree.tree.is_leaf), tree.select).all():
        nodes = np.empty(tree.tree.size)
        nodes[tree.select] = x
        nodes = tree.tree.sums(nodes[tree.tree.is_leaf])
        integers = rounded_tree(tree.tree, nodes, tree.lower, tree.upper, how, rng)[tree.select]
    else:
        integers = round_form(model.form, x, how="unbiased" if how == "unbiased" else "controlled", seed=rng)
    return {variable: np.reshape(integers[where], variable.shape, order="F") for variable, where in model.columns}


def rounded_tree(tree: Tree, x: Floats, lower: Floats, upper: Floats, round: Round, seed: int) -> Floats:
    """(nodes,) consistent integers, each the floor or ceiling of x; see ``round_tree``.
    Errors: SpecificationError, where a bound or known number is no integer, so that floors and ceilings break it."""
    integers = round_tree(tree, x, round, seed)
    wrong = np.maximum(lower - integers, integers - upper)
    at = int(np.argmax(wrong))
    if wrong[at] > 1e-6 * max(1.0, abs(integers[at])):
        raise SpecificationError(
            f"rounded, node {at} would be {integers[at]:.12g}, not in {lower[at]:.12g} to {upper[at]:.12g}",
            why="a bound or known total that is not whole: rounding keeps floors and ceilings only",
            remedy="round=None, or whole bounds and totals",
        )
    return integers


def rounded_table(model: Postprocessing, x: Floats, round: str, seed: int) -> Floats:
    """(n,) integers near x. Without other constraints, the total of a table goes to its floor or ceiling.

    "controlled" and "nearest" are the same here: a near integer point that keeps every constraint
    (``nearest_integer``).
    Errors: SpecificationError, where no unbiased rounding keeps all constraints; InfeasibleError, where no integers do;
    DPModelError, where none were found before the search ended.
    """
    form = model.form
    assert form is not None
    how: How = "unbiased" if round == "unbiased" else "controlled"
    alone = form.equality.shape[0] == form.inequality.shape[0] == 0
    edges = np.concatenate([form.lower, form.upper])
    try:
        if alone and model.shape is not None and (edges[np.isfinite(edges)] % 1 == 0).all():
            return round_total(x, how=how, seed=seed)
        return round_form(form, x, how=how, seed=seed)
    except DPModelError as error:
        raise type(error)(error.what, why=error.why, remedy=error.remedy.replace("how=", "round=")) from None


def rounding_words(model: Postprocessing, round: str) -> str:
    """How a fit is rounded to integers, for its plan."""
    form = model.form
    assert form is not None
    rows = form.equality.shape[0] + form.inequality.shape[0]
    if round == "unbiased" or not rows or model.tree_problem() is not None:
        return f"rounding ({round}): one pass over {form.size} numbers"
    return (
        f"rounding ({round}): a linear program of {form.size} cells and {rows} sums, and a search of a bounded number "
        "of nodes where its vertex is not whole, which can take many times as long; more than two crossing margins may "
        "be refused: then no rounding, or two of them"
    )
