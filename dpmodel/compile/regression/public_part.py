"""The public constraints and penalty of a regression as CVXPY wrote them, and what can be computed over them.

Everything is solved on a copy of the tree with variables of its own, so the user's variables and multipliers stay as
they are. Public parameters are shared with the user's tree: their values are read at each call.
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

from dpmodel._types import Floats
from dpmodel.compile.bridge import forget_solution
from dpmodel.compile.refusals import constraint_label
from dpmodel.compile.regression.domain import no_minimum
from dpmodel.compile.regression.forms import require_values
from dpmodel.compile.regression.public_twin import Lifted, Twin, lifted
from dpmodel.errors import InfeasibleError, UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.numerics.cone_program import SolverFailure, installed_solvers
from dpmodel.numerics.public_facts import PublicFacts

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
_NOT_CONVEX = ("boolean", "integer", "complex", "imag", "hermitian")


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

    Raises
    ------
    UnsupportedModelError
        For integer or complex variables, private parameters, and constraints or penalties that are not convex (DCP).
    """

    coefficients: cp.Expression
    constraints: tuple[Any, ...] = ()
    penalty: cp.Expression | None = None
    solver: str | None = None

    def __post_init__(self) -> None:
        _require_convex(self.coefficients, self.constraints, self.penalty)

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

        Raises
        ------
        UnsupportedModelError
            When there is no minimum.
        """
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

        Raises
        ------
        UnsupportedModelError
            When there is no minimum.
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


def _require_convex(coefficients: cp.Expression, constraints: tuple[Any, ...], penalty: cp.Expression | None) -> None:
    labels = [constraint_label(constraint, number) for number, constraint in enumerate(constraints)]
    parts: list[Any] = [coefficients, *constraints, *([] if penalty is None else [penalty])]
    for label, part in zip(["the coefficients", *labels, "the penalty"], parts, strict=False):
        for variable in part.variables():
            wrong = [name for name in _NOT_CONVEX if variable.attributes[name]]
            if wrong:
                raise UnsupportedModelError(
                    f"variable {variable.name()!r} is {wrong[0]}",
                    why="a regression's public set must be convex and real",
                    remedy="a continuous variable, rounded after release",
                )
        private = [p.name() for p in part.parameters() if isinstance(p, Private)]
        if private:
            raise UnsupportedModelError(
                f"{label}: {private[0]} is private",
                why="a private regression has its private data in the losses and public constraints",
                remedy="public constraints on the coefficients: a cp.Parameter, or released data",
            )
        if not (part.is_convex() if isinstance(part, cp.Expression) else part.is_dcp()):
            raise UnsupportedModelError(
                f"{label}: not convex by CVXPY's rules", why="the public set must be convex (DCP)", remedy="DCP atoms"
            )
