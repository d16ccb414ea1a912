"""The public constraints and penalty of a regression as CVXPY wrote them, and what can be computed over them.

Everything is solved on a copy of the tree with variables of its own, the twin, so the user's variables and multipliers
stay as they are. Public parameters are shared with the user's tree: their values are read at each call.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_reader import Affine
from dpmodel.compile.atoms import require_values
from dpmodel.compile.bridge import forget_solution, lower
from dpmodel.compile.form import standard_form
from dpmodel.compile.public_set import base_program
from dpmodel.errors import InfeasibleError, SpecificationError, UnsupportedModelError
from dpmodel.memo import PublicFacts
from dpmodel.numerics.cone_program import SolverFailure, installed_solvers
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.regressions.monomials import Monomials
from dpmodel.regressions.public_expressions import Dependence, require_convex, rows_of
from dpmodel.regressions.sets import no_minimum

# Attributes of matrix variables that tie entries to each other.
_TIED = ("symmetric", "diag", "PSD", "NSD", "sparsity")


@dataclass(frozen=True, eq=False)
class Place:
    """Entry k of a variable (in Fortran order) is coefficient ``index[k]`` over ``scale[k]``; index -1: it is none."""

    variable: cp.Variable
    index: Integers
    scale: Floats

    def assign(self, w: Floats) -> None:
        self.variable.save_value((w[self.index] / self.scale).reshape(self.variable.shape, order="F"))


@dataclass(frozen=True, eq=False)
class Twin:
    """A copy of the public tree over fresh variables.

    ``pairs`` : (user's variable, its copy). ``attributes`` : the constraints that the copies' attributes stand for.
    """

    pairs: tuple[tuple[cp.Variable, cp.Variable], ...]
    w: cp.Expression
    constraints: list[Any]
    penalty: cp.Expression | None
    attributes: list[Any]
    parameters: list[cp.Parameter]

    @staticmethod
    def of(coefficients: cp.Expression, constraints: tuple[Any, ...], penalty: cp.Expression | None) -> Twin:
        parts = [coefficients, *constraints, *([penalty] if penalty is not None else [])]
        users = {v.id: v for part in parts for v in part.variables()}.values()
        pairs = tuple((v, cp.Variable(v.shape, **v.attributes)) for v in users)
        swap = {id(user): copy for user, copy in pairs}
        w = coefficients.tree_copy(swap)
        parameters = {p.id: p for part in parts for p in part.parameters()}
        sides = [side for _, copy in pairs for side in copy.attributes["bounds"] or ()]
        parameters.update({p.id: p for side in sides if isinstance(side, cp.Expression) for p in side.parameters()})
        return Twin(
            pairs=pairs,
            w=w if w.ndim == 1 else cp.reshape(w, (w.size,), order="F"),
            constraints=[c.tree_copy(swap) for c in constraints],
            penalty=None if penalty is None else penalty.tree_copy(swap),
            attributes=[c for _, copy in pairs for c in copy.domain],
            parameters=list(parameters.values()),
        )

    @cached_property
    def coefficient_ids(self) -> frozenset[int]:
        return frozenset(v.id for v in self.w.variables())

    @property
    def auxiliary(self) -> bool:
        """Whether there are variables outside the coefficients."""
        return any(copy.id not in self.coefficient_ids for _, copy in self.pairs)

    @cached_property
    def _starts(self) -> Integers:
        """Where the entries of each copy begin, all copies one after the other; last, how many there are."""
        return np.cumsum([0, *(copy.size for _, copy in self.pairs)])

    def _rows(self, expression: Any) -> Affine:
        starts = zip((copy.id for _, copy in self.pairs), self._starts.tolist(), strict=False)
        return rows_of(expression, dict(starts))

    def jacobian(self, expression: Any) -> tuple[sp.csr_array, Floats]:
        """``J`` (m, entries of all copies) and ``offset`` (m,) of an affine expression, for the parameters' values."""
        rows = self._rows(expression)
        return rows.csr(int(self._starts[-1])), rows.offset

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Of each variable of w; none where a coefficient is not a multiple of one entry, or an entry stands twice."""
        jacobian, offset = self.jacobian(self.w)
        column = jacobian.indices
        if offset.any() or (np.diff(jacobian.indptr) != 1).any() or np.unique(column).size != column.size:
            return ()
        index, scale = np.full(jacobian.shape[1], -1, dtype=np.int64), np.ones(jacobian.shape[1])
        index[column], scale[column] = np.arange(column.size), jacobian.data
        out, start = [], 0
        for _, copy in self.pairs:
            part = slice(start, start + copy.size)
            start = part.stop
            if copy.id in self.coefficient_ids:
                out.append(Place(copy, index[part], scale[part]))
        return tuple(out)

    @cached_property
    def _coefficient(self) -> tuple[Integers, Floats]:
        """The coefficient that each entry of a copy is, over its scale; -1 for none."""
        known = {place.variable.id: place for place in self.places}
        each = [known.get(copy.id, Place(copy, np.full(copy.size, -1), np.ones(copy.size))) for _, copy in self.pairs]
        return np.concatenate([place.index for place in each]), np.concatenate([place.scale for place in each])

    def affine(self, expression: Any) -> tuple[sp.csr_array, Floats] | None:
        """``A`` (m, p) and ``offset`` (m,) with ``expression = A w + offset``; None where it uses other entries."""
        return self.of_coefficients(self._rows(expression))

    def of_coefficients(self, rows: Affine) -> tuple[sp.csr_array, Floats] | None:
        """The same of rows over the entries of all copies."""
        jacobian, (index, scale) = rows.csr(int(self._starts[-1])), self._coefficient
        column = index[jacobian.indices]
        if (column < 0).any():
            return None
        data = jacobian.data / scale[jacobian.indices]
        return sp.csr_array((data, column, jacobian.indptr), shape=(rows.size, self.w.size)), rows.offset

    def reader(self) -> Monomials:
        """A fresh one, for the present values of public parameters; entry k of all copies has the w k + 1."""
        out = Monomials(count=1)
        for _, copy in self.pairs:
            out.read(copy)
        return out

    def depends(self, expression: Any) -> sp.csr_array:
        """(m, p) pattern of the coefficients that entries of an expression of them depend on; only where w is plain."""
        own = Dependence(self.reader(), [copy for _, copy in self.pairs]).of(expression)
        column = self._coefficient[0][own.indices - 1]
        return sp.csr_array((own.data, column, own.indptr), shape=(expression.size, self.w.size))

    @cached_property
    def tied(self) -> bool:
        """Whether an attribute ties entries of a coefficient variable to each other."""
        return any(variable.attributes[name] for variable in self.w.variables() for name in _TIED)

    @cached_property
    def plain(self) -> bool:
        """Whether the coefficients are variables or multiples of them, stacked: every entry once, none tied to
        another."""
        own = {p.id for variable in self.w.variables() for p in variable.parameters()}  # those of bounds
        if self.tied or not self.places or any(p.id not in own for p in self.w.parameters()):
            return False
        return all((place.index >= 0).all() for place in self.places)

    def assign(self, w: Floats) -> None:
        """Give the variables of the coefficients the values that make them ``w``."""
        for place in self.places:
            place.assign(w)

    def point(self) -> Floats:
        out: Floats = np.asarray(self.w.value, dtype=np.float64).ravel(order="F")
        return out

    def violation(self, w: Floats) -> float:
        """Largest amount by which ``w`` misses a constraint; inf where that takes a solver to say."""
        if not self.plain or self.auxiliary:
            return math.inf
        self.assign(w)
        return max((largest_violation(c) for c in [*self.constraints, *self.attributes]), default=0.0)

    def quadratic_penalty(self) -> tuple[Floats, Floats] | None:
        """``H`` ((p,) if diagonal, else (p, p)) and ``h`` (p,) with penalty ``w'Hw + h'w + constant``; else None."""
        if self.penalty is None or not self.penalty.is_quadratic() or not self.plain or self.auxiliary:
            return None
        p = self.w.size
        zero, probe = np.zeros(p), np.cos(1.0 + np.arange(p))
        h = self.penalty_derivative(zero)
        diagonal = (self.penalty_derivative(np.ones(p)) - h) / 2
        wanted = self.penalty_derivative(probe) - h
        if np.allclose(2 * diagonal * probe, wanted, rtol=1e-9, atol=1e-12 * float(np.abs(wanted).max(initial=0.0))):
            return diagonal, h
        if p > 200:
            return None
        H = np.stack([self.penalty_derivative(unit) - h for unit in np.eye(p)]) / 2
        close = np.allclose(2 * H @ probe, wanted, rtol=1e-8, atol=1e-10 * float(np.abs(wanted).max(initial=0.0)))
        return ((H + H.T) / 2, h) if close else None

    def penalty_derivative(self, w: Floats) -> Floats:
        """(p,) gradient (a subgradient, as CVXPY gives it) of the penalty at ``w``; only where w is plain."""
        return self.derivative(self.penalty, w)

    def derivative(self, expression: Any, w: Floats) -> Floats:
        """(p,) the same of any expression of the coefficients; NotImplementedError for atoms that have none."""
        self.assign(w)
        derivatives = expression.grad
        out = np.zeros(self.w.size)
        for place in self.places:
            derivative = derivatives.get(place.variable)
            if derivative is not None:
                out[place.index] = (
                    np.asarray(derivative.todense() if sp.issparse(derivative) else derivative).ravel() / place.scale
                )
        return out


def largest_violation(constraint: Any) -> float:
    """Largest entry of a CVXPY constraint's violation at its variables' values; inf where it has no value."""
    with np.errstate(over="ignore", invalid="ignore"):
        missed = np.abs(np.asarray(constraint.violation(), dtype=np.float64))
    return math.inf if np.isnan(missed).any() else float(missed.max(initial=0.0))


@dataclass(frozen=True)
class Lifted:
    """``w = x[columns]`` for x in a polyhedron of more columns."""

    polyhedron: Polyhedron
    columns: slice


def lifted(twin: Twin) -> Lifted | None:
    """The twin's constraints in standard form, for the present values of the parameters; None if not linear or DPP."""
    w = cp.Variable(twin.w.size)
    try:
        affine = lower(cp.Problem(cp.Minimize(0), [*twin.constraints, w == twin.w])).affine
        if not affine.is_linear() or w.id not in affine.variable_columns:
            return None
        start = affine.variable_columns[w.id]
        return Lifted(Polyhedron.of(base_program(standard_form(affine))), slice(start, start + w.size))
    except (UnsupportedModelError, SpecificationError):
        return None


# ------------------------------------------------------------------ the public part
T = TypeVar("T")

# Solvers stop near the optimum; bounds are widened by this to stay bounds, and by more where they say "inaccurate".
SOLVER_SLACK = 1e-6
_INACCURATE_SLACK = 1e-3
# Bounds on single coefficients take two solver runs each; beyond this many they are not looked for.
_MOST_LINEAR, _MOST_CONIC = 400, 40
_TIGHT: dict[str, dict[str, Any]] = {
    cp.CLARABEL: {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9},
    cp.OSQP: {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 50_000},
    cp.SCS: {"eps": 1e-8, "max_iters": 50_000},
}


def _cached(method: Callable[..., T]) -> Callable[..., T]:
    """Find a fact once for the present values of the public parameters."""

    @wraps(method)
    def once(self: PublicPart, *args: Any) -> T:
        self.require_values()
        key = method.__name__, args, tuple(np.asarray(p.value).tobytes() for p in self.twin.parameters)
        return self.cached(key, lambda: method(self, *args))

    return once


@dataclass(frozen=True, eq=False)
class PublicPart(PublicFacts):
    """The set ``{coefficients(x) : constraints(x)}`` and ``penalty``, all public.

    ``coefficients`` : affine expression (p,) of the variables, often the variables themselves, stacked. Constraints and
    penalty may use other variables too (auxiliaries), and public parameters.

    Errors: UnsupportedModelError, for integer or complex variables, private parameters, and constraints or penalties
    that are not convex (DCP).
    """

    coefficients: cp.Expression
    constraints: tuple[Any, ...] = ()
    penalty: cp.Expression | None = None
    solver: str | None = None

    def __post_init__(self) -> None:
        require_convex(self.coefficients, self.constraints, self.penalty)

    @property
    def _parts(self) -> list[Any]:
        return [self.coefficients, *self.constraints, *([self.penalty] if self.penalty is not None else [])]

    @property
    def size(self) -> int:
        return int(self.coefficients.size)

    @cached_property
    def variables(self) -> tuple[cp.Variable, ...]:
        """The user's variables in coefficients, constraints and penalty, each once."""
        return tuple({v.id: v for part in self._parts for v in part.variables()}.values())

    @cached_property
    def twin(self) -> Twin:
        """The same tree over variables of its own."""
        return Twin.of(self.coefficients, self.constraints, self.penalty)

    @cached_property
    def linear(self) -> bool:
        """Whether the constraints, lowered, are linear."""
        return all(_is_linear(c) for c in [*self.constraints, *self.twin.attributes])

    @cached_property
    def free(self) -> bool:
        """Whether nothing constrains the coefficients, which are plain variables."""
        return not self.constraints and not self.twin.attributes and self.twin.plain

    # ------------------------------------------------------------------ points
    def project(self, w: Floats) -> Floats:
        """(p,) the nearest point of the set, to about 1e-5 of the distance; ``w`` itself where that can be checked."""
        w = np.asarray(w, dtype=np.float64)
        self.require_values()
        return w if self.free or self.twin.violation(w) == 0 else self._nearest(w)

    def _nearest(self, w: Floats) -> Floats:
        problem, root, derivative, _ = self._projection
        scale = max(1.0, 2 * float(np.abs(w).max(initial=0.0)))
        root.value, derivative.value = scale**-0.5, 2 * w / scale
        return self._solve(problem)

    @cached_property
    def _projection(self) -> Any:
        return self._near(None)

    def _near(self, penalty: cp.Expression | None) -> tuple[cp.Problem, cp.Parameter, cp.Parameter, cp.Parameter]:
        """``||root w||^2 - <derivative, w> + weight penalty(w)``. The caller scales it so that no number is large:
        solvers take a target far from the set, in a square, for an infeasible problem. The root multiplies inside, as
        DPP wants, and a penalty with parameters of its own gets no weight."""
        root, derivative, weight = cp.Parameter(nonneg=True), cp.Parameter(self.size), cp.Parameter(nonneg=True)
        goal = cp.sum_squares(root * self.twin.w) - derivative @ self.twin.w
        if penalty is not None:
            goal = goal + (penalty if penalty.parameters() else weight * penalty)
        return cp.Problem(cp.Minimize(goal), self.twin.constraints), root, derivative, weight

    def minimise(self, g: Floats) -> Floats:
        """(p,) a point of the set where <g, w> is least: an extreme point where the constraints are linear.
        Errors: UnsupportedModelError, when there is no minimum."""
        g = np.asarray(g, dtype=np.float64)
        polytope = self._polyhedron()
        if polytope is not None:
            cost = np.zeros(polytope.polyhedron.size)
            cost[polytope.columns] = g
            try:
                x = polytope.polyhedron.minimise(cost)
            except SolverFailure:
                x = cost  # the solvers below say what is wrong
            if x is None:
                raise no_minimum()
            if x is not cost:
                return x[polytope.columns]
        problem, derivative = self._linear_program
        largest = float(np.abs(g).max(initial=0.0))
        derivative.value = g / largest if largest > 0 else np.zeros(self.size)  # tolerances are absolute
        return self._solve(problem)

    @_cached
    def _polyhedron(self) -> Lifted | None:
        """The set lowered, when it is linear: its linear programs are warm-started."""
        return lifted(self.twin) if self.linear and not self.free else None

    @cached_property
    def _linear_program(self) -> tuple[cp.Problem, cp.Parameter]:
        derivative = cp.Parameter(self.size)
        return cp.Problem(cp.Minimize(derivative @ self.twin.w), self.twin.constraints), derivative

    def minimise_quadratic(self, P: Floats, q: Floats, with_penalty: bool = True) -> Floats:
        """(p,) a point of the set where ``w'Pw - 2 q'w (+ penalty(w))`` is least.

        ``P`` : (p, p) symmetric; eigenvalues below zero count as zero. Solved directly where nothing constrains w and
        the penalty is quadratic, else by a solver.
        Errors: UnsupportedModelError, when there is no minimum.
        """
        P, q = positive_part(np.asarray(P, dtype=np.float64)), np.asarray(q, dtype=np.float64)
        penalty = self.twin.penalty if with_penalty else None
        known = (np.zeros(self.size), np.zeros(self.size)) if penalty is None else self.twin.quadratic_penalty()
        if self.free and known is not None:
            H, h = known
            return _solve_normal_equations(P + (np.diag(H) if H.ndim == 1 else H), q - h / 2)
        scale = max(float(np.abs(P).max(initial=0.0)), float(np.abs(q).max(initial=0.0))) or 1.0
        goal = cp.quad_form(self.twin.w, cp.psd_wrap(P / scale)) - (2 * q / scale) @ self.twin.w
        if penalty is not None:
            goal = goal + penalty / scale
        return self._solve(cp.Problem(cp.Minimize(goal), self.twin.constraints))

    def proximal(self, w: Floats, step: float) -> Floats:
        """(p,) the point v of the set where ``||v - w||^2 / (2 step) + penalty(v)`` is least."""
        if self.twin.penalty is None or step == 0:
            return self.project(w)
        w = np.asarray(w, dtype=np.float64)
        problem, root, derivative, weight = self._proximal_problem
        scale = max(1.0, 0.5 / step, float(np.abs(w).max(initial=0.0)) / step)
        scale = 1.0 if self.twin.penalty.parameters() else scale
        root.value, derivative.value, weight.value = (0.5 / step / scale) ** 0.5, w / step / scale, 1 / scale
        return self._solve(problem)

    @cached_property
    def _proximal_problem(self) -> Any:
        return self._near(self.twin.penalty)

    def complete(self, w: Floats) -> dict[cp.Variable, Any]:
        """Values for all the user's variables: exactly ``w`` (p,) in those that the coefficients stack, and for the
        others the values that the constraints leave at (the nearest point to) w, with the least penalty. Others that no
        solver finds are left out."""
        w, twin = np.asarray(w, dtype=np.float64), self.twin
        left_out: frozenset[int] = frozenset()
        if not twin.plain or twin.auxiliary:
            try:
                at = self._nearest(w)
                if twin.penalty is not None and twin.auxiliary:
                    self._least_penalty(w if twin.plain else at)
            except SolverFailure:
                if not twin.plain:
                    raise
                left_out = frozenset(copy.id for _, copy in twin.pairs) - twin.coefficient_ids
        if twin.plain:
            twin.assign(w)
        return {user: np.array(copy.value, dtype=np.float64) for user, copy in twin.pairs if copy.id not in left_out}

    def _least_penalty(self, w: Floats) -> None:
        before = [copy.value for _, copy in self.twin.pairs]
        problem = cp.Problem(cp.Minimize(self.twin.penalty), [*self.twin.constraints, self.twin.w == w])
        try:
            self._solve(problem)
        except (InfeasibleError, UnsupportedModelError, SolverFailure):
            # w sits on the boundary and misses by rounding: the values of the nearest point do.
            for (_, copy), value in zip(self.twin.pairs, before, strict=True):
                copy.save_value(value)

    def forget(self) -> None:
        """Drop what earlier solves left in the twin: iterates of a mechanism are nobody's business after it."""
        for name in ("_projection", "_linear_program", "_proximal_problem"):
            self.__dict__.pop(name, None)
        forget_solution(cp.Problem(cp.Minimize(0), self.twin.constraints))
        for _, copy in self.twin.pairs:
            copy.save_value(None)

    # ------------------------------------------------------------------ facts
    def require_values(self) -> None:
        """Raise MissingValueError if a public parameter has no value."""
        require_values(self.twin.parameters)

    @_cached
    def feasible(self) -> bool:
        """Whether the constraints have a common point."""
        if self.free:
            return True
        try:
            self.minimise(np.zeros(self.size))
        except InfeasibleError:
            return False
        return True

    def require_feasible(self) -> None:
        """Raise InfeasibleError if the constraints have no common point."""
        if not self.feasible():
            raise _infeasible()

    @_cached
    def bounds(self) -> tuple[Floats, Floats]:
        """(p,), (p,) bounds on every coefficient, by two solver runs each (infinite where there are too many)."""
        lower, upper = np.full(self.size, -math.inf), np.full(self.size, math.inf)
        if self.free or self.size > (_MOST_LINEAR if self.linear else _MOST_CONIC):
            return lower, upper
        for j in range(self.size):
            unit = np.zeros(self.size)
            unit[j] = 1.0
            upper[j], lower[j] = self.support(unit), -self.support(-unit)
        return lower, upper

    def support(self, direction: Floats) -> float:
        """Upper bound on ``max <direction, w>`` over the set; inf where there is none."""
        try:
            value = float(direction @ self.minimise(-direction))
        except UnsupportedModelError:
            return math.inf
        inaccurate = "inaccurate" in str(self._linear_program[0].status)
        return value + (_INACCURATE_SLACK if inaccurate else SOLVER_SLACK) * (1 + abs(value))

    @_cached
    def norm(self, order: float) -> float:
        """Upper bound on ``max ||w||_order`` (1, 2 or inf) over the set; inf where none is found.

        For 1 and 2 the smaller of what the bounds on single entries say and one more linear maximisation: over
        [l, u], ``|w|`` and ``w^2`` lie below their chords, which are linear.
        """
        lower, upper = self.bounds()
        sizes = np.maximum(np.abs(lower), np.abs(upper))
        by_box = float(np.linalg.norm(sizes, ord=order))
        if math.isinf(order) or not math.isfinite(by_box):
            return by_box
        if order == 2:
            square = self.support(lower + upper) - float(lower @ upper)
            return min(by_box, math.sqrt(max(square, 0.0)))
        width = upper - lower
        crossing = (lower < 0) & (upper > 0)
        safe = np.where(crossing, width, 1.0)
        derivative = np.where(crossing, (upper + lower) / safe, np.where(lower >= 0, 1.0, -1.0))
        constant = float(np.where(crossing, -2 * lower * upper / safe, 0.0).sum())
        return min(by_box, max(self.support(derivative) + constant, 0.0))

    # ------------------------------------------------------------------ solving
    def _solve(self, problem: cp.Problem) -> Floats:
        """Solve over the twin: (p,) its coefficients. A solver that says "infeasible" of a set known to have points, or
        that stops early, is followed by the next one."""
        self.require_values()
        linear_goal = problem.objective.expr.is_affine()
        solvers = [cp.CLARABEL, cp.OSQP, cp.SCS] if self.linear else [cp.CLARABEL, cp.SCS]
        if self.linear and linear_goal:
            solvers = [cp.HIGHS, cp.CLARABEL]
        solvers = [s for s in solvers if s in installed_solvers()]
        status = ""
        for solver in [self.solver, *solvers] if self.solver else solvers:
            status = _attempt(problem, solver)
            if status.startswith("optimal"):
                return self.twin.point()
            if status == "unbounded":
                raise no_minimum()
            if status == "infeasible" and (problem is self._linear_program[0] or not self.feasible()):
                raise _infeasible()
        if status == "unbounded_inaccurate":
            raise no_minimum()
        raise SolverFailure(
            "no solver found a point of the public set", why=status, remedy="simpler public constraints, better scaled"
        )


def positive_part(P: Floats) -> Floats:
    """(p, p) ``P`` made symmetric, without the negative part of its spectrum."""
    P = (P + P.T) / 2
    size = float(np.abs(P).max(initial=0.0))
    try:
        np.linalg.cholesky(P + 1e-13 * size * P.shape[0] * np.eye(P.shape[0]))
        return P
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(P)
        out: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return out


def _solve_normal_equations(P: Floats, q: Floats) -> Floats:
    """``P w = q``; the shortest solution where P is singular."""
    w, _, _, _ = np.linalg.lstsq(P, q, rcond=None)
    out: Floats = np.asarray(w, dtype=np.float64)
    if float(np.abs(P @ out - q).max(initial=0.0)) > 1e-6 * (float(np.abs(q).max(initial=0.0)) or 1.0):
        raise no_minimum()
    return out


def _attempt(problem: cp.Problem, solver: str) -> str:
    """The status, or the solver's complaint."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inaccuracy is reported by the status
        try:
            problem.solve(solver=solver, **_TIGHT.get(solver, {}))
        except cp.SolverError as error:
            return str(error).split("\n")[0][:200]
    return str(problem.status)


def _infeasible() -> InfeasibleError:
    return InfeasibleError(
        "the public constraints on the coefficients have no common point",
        why="this does not depend on any private value, so no mechanism can help and nothing was spent",
        remedy="relax or remove constraints",
    )


def _is_linear(constraint: Any) -> bool:
    """Whether a constraint is linear once lowered: an affine equality or a piecewise linear inequality."""
    if isinstance(constraint, (type(cp.Variable() <= 0), cp.NonNeg, cp.NonPos)):
        return bool(all(arg.is_pwl() for arg in constraint.args))
    return isinstance(constraint, (type(cp.Variable() == 0), cp.Zero))
