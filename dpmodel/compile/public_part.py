"""The public constraints and penalty of a regression as CVXPY wrote them, and what can be computed over them.

Everything is solved on a copy of the tree with variables of its own, so the user's variables and multipliers stay as
they are. Public parameters are shared with the user's tree: their values are read at each call.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.annotate.private import Private
from dpmodel.compile.affine_map import Floats
from dpmodel.compile.cone_program import SolverFailure
from dpmodel.compile.domain import no_minimum
from dpmodel.errors import InfeasibleError, MissingValueError, UnsupportedModelError

T = TypeVar("T")

# Solvers stop near the optimum; bounds are widened by this to stay bounds, and by more where they say "inaccurate".
_SOLVER_SLACK = 1e-6
_INACCURATE_SLACK = 1e-3
# Bounds on single coefficients take two solver runs each; beyond this many they are not looked for.
_MOST_LINEAR, _MOST_CONIC = 150, 40
_TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
_NOT_CONVEX = ("boolean", "integer", "complex", "imag", "hermitian")
_TIED = ("symmetric", "diag", "PSD", "NSD", "sparsity")


@dataclass(frozen=True, eq=False)
class PublicPart:
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
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _require_convex(self._parts, self.penalty)

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
        return Twin.of(self)

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
        """(p,) the nearest point of the set."""
        if self.free or self.twin.violation(w) == 0:
            return np.asarray(w, dtype=np.float64)
        return self._nearest(w)

    def _nearest(self, w: Floats) -> Floats:
        problem, target = self._projection
        target.value = np.asarray(w, dtype=np.float64)
        self._solve(problem)
        return self.twin.point()

    @cached_property
    def _projection(self) -> tuple[cp.Problem, cp.Parameter]:
        target = cp.Parameter(self.size)
        return cp.Problem(cp.Minimize(cp.sum_squares(self.twin.w - target)), self.twin.constraints), target

    def minimise(self, g: Floats) -> Floats:
        """(p,) a point of the set where <g, w> is least: an extreme point where the constraints are linear.

        Raises
        ------
        UnsupportedModelError
            When there is no minimum.
        """
        problem, slope = self._linear_program
        g = np.asarray(g, dtype=np.float64)
        largest = float(np.abs(g).max(initial=0.0))
        slope.value = g / largest if largest > 0 else np.zeros(self.size)  # tolerances are absolute
        self._solve(problem)
        return self.twin.point()

    @cached_property
    def _linear_program(self) -> tuple[cp.Problem, cp.Parameter]:
        slope = cp.Parameter(self.size)
        return cp.Problem(cp.Minimize(slope @ self.twin.w), self.twin.constraints), slope

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
        self._solve(cp.Problem(cp.Minimize(goal), self.twin.constraints))
        return self.twin.point()

    def proximal(self, w: Floats, step: float) -> Floats:
        """(p,) the point v of the set where ``||v - w||^2 / (2 step) + penalty(v)`` is least."""
        if self.twin.penalty is None or step == 0:
            return self.project(w)
        problem, root, target = self._proximal_problem
        root.value = math.sqrt(0.5 / step)
        target.value = root.value * np.asarray(w, dtype=np.float64)
        self._solve(problem)
        return self.twin.point()

    @cached_property
    def _proximal_problem(self) -> tuple[cp.Problem, cp.Parameter, cp.Parameter]:
        # The root of the weight multiplies inside the square: products of parameters would not be DPP.
        root, target = cp.Parameter(nonneg=True), cp.Parameter(self.size)
        goal = cp.sum_squares(root * self.twin.w - target) + self.twin.penalty
        return cp.Problem(cp.Minimize(goal), self.twin.constraints), root, target

    def complete(self, w: Floats) -> dict[cp.Variable, Any]:
        """Values for all the user's variables: exactly ``w`` (p,) in those that the coefficients stack, and for the
        others the values that the constraints leave at (the nearest point to) w, with the least penalty."""
        w, twin = np.asarray(w, dtype=np.float64), self.twin
        if not (twin.plain and not twin.auxiliary):
            at = self._nearest(w)
            if twin.penalty is not None and twin.auxiliary:
                self._least_penalty(w if twin.plain else at)
        if twin.plain:
            twin.assign(w)
        return {user: np.array(copy.value, dtype=np.float64) for user, copy in twin.pairs}

    def _least_penalty(self, w: Floats) -> None:
        before = [copy.value for _, copy in self.twin.pairs]
        problem = cp.Problem(cp.Minimize(self.twin.penalty), [*self.twin.constraints, self.twin.w == w])
        try:
            self._solve(problem)
        except (InfeasibleError, UnsupportedModelError, SolverFailure):
            # w sits on the boundary and misses by rounding: the values of the nearest point do.
            for (_, copy), value in zip(self.twin.pairs, before, strict=True):
                copy.save_value(value)

    # ------------------------------------------------------------------ facts
    def feasible(self) -> bool:
        """Whether the constraints have a common point."""
        return self._remember("feasible", self._find_feasible)

    def _find_feasible(self) -> bool:
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

    def bounds(self) -> tuple[Floats, Floats]:
        """(p,), (p,) bounds on every coefficient, by two solver runs each (infinite where there are too many)."""
        return self._remember("bounds", self._find_bounds)

    def _find_bounds(self) -> tuple[Floats, Floats]:
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
        return value + (_INACCURATE_SLACK if inaccurate else _SOLVER_SLACK) * (1 + abs(value))

    def norm(self, order: float) -> float:
        """Upper bound on ``max ||w||_order`` (1, 2 or inf) over the set; inf where none is found.

        For 1 and 2 the smaller of what the bounds on single entries say and one more linear maximisation: over
        [l, u], ``|w|`` and ``w^2`` lie below their chords, which are linear.
        """
        return self._remember(("norm", float(order)), lambda: self._find_norm(float(order)))

    def _find_norm(self, order: float) -> float:
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
        slope = np.where(crossing, (upper + lower) / safe, np.where(lower >= 0, 1.0, -1.0))
        constant = float(np.where(crossing, -2 * lower * upper / safe, 0.0).sum())
        return min(by_box, max(self.support(slope) + constant, 0.0))

    # ------------------------------------------------------------------ solving
    def _remember(self, key: Hashable, build: Callable[[], T]) -> T:
        """Facts hold for the present values of the public parameters."""
        values = tuple(np.asarray(_value(p)).tobytes() for p in self.twin.parameters)
        if (key, values) not in self._memo:
            self._memo[key, values] = build()
        out: T = self._memo[key, values]
        return out

    def _solve(self, problem: cp.Problem) -> None:
        for parameter in self.twin.parameters:
            _value(parameter)
        solver = self.solver or (cp.HIGHS if self.linear and problem.objective.expr.is_affine() else cp.CLARABEL)
        try:
            status = _attempt(problem, solver)
            if status == "infeasible_or_unbounded":
                status = _attempt(problem, cp.CLARABEL)
        except cp.SolverError as error:
            raise SolverFailure(
                f"solver {solver} failed on the public constraints",
                why=str(error).split("\n")[0][:200],
                remedy="simpler public constraints, better scaled",
            ) from None
        if status.startswith("infeasible"):
            raise _infeasible()
        if status.startswith("unbounded"):
            raise no_minimum()
        if any(copy.value is None for _, copy in self.twin.pairs if copy.id in self.twin.coefficient_ids):
            raise SolverFailure(
                f"solver {solver} stopped without a point of the public set", why=status, remedy="rescale it"
            )


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
    def of(public: PublicPart) -> Twin:
        pairs = tuple((v, cp.Variable(v.shape, **v.attributes)) for v in public.variables)
        swap = {id(user): copy for user, copy in pairs}
        w = public.coefficients.tree_copy(swap)
        parameters = {p.id: p for part in public._parts for p in part.parameters()}
        attributes = [c for _, copy in pairs for c in copy.domain]
        sides = [side for _, copy in pairs for side in copy.attributes["bounds"] or ()]
        parameters.update({p.id: p for side in sides if isinstance(side, cp.Expression) for p in side.parameters()})
        return Twin(
            pairs=pairs,
            w=cp.reshape(w, (public.size,), order="F") if w.ndim != 1 else w,
            constraints=[c.tree_copy(swap) for c in public.constraints],
            penalty=None if public.penalty is None else public.penalty.tree_copy(swap),
            attributes=attributes,
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
    def places(self) -> tuple[tuple[cp.Variable, Any], ...] | None:
        """Where every entry of every coefficient variable stands in w: (variable, (size,) in Fortran order), -1 for
        entries that do not; None when w is not made of plain entries, each once."""
        if self.w.parameters():
            return None
        self.clear()
        maps = self.w.grad
        if np.asarray(self.w.value).any():
            return None
        out, taken = [], np.zeros(self.w.size, dtype=np.int64)
        for variable in self.w.variables():
            jacobian = sp.coo_array(maps[variable])  # (variable's size, p)
            jacobian.eliminate_zeros()
            if (jacobian.data != 1).any() or np.unique(jacobian.row).size != jacobian.row.size:
                return None
            place = np.full(variable.size, -1, dtype=np.int64)
            place[jacobian.row] = jacobian.col
            np.add.at(taken, jacobian.col, 1)
            out.append((variable, place))
        return tuple(out) if (taken == 1).all() else None

    @property
    def plain(self) -> bool:
        """Whether the coefficients are variables, stacked: every entry of theirs once, none tied to another."""
        if any(copy.attributes[name] for _, copy in self.pairs for name in _TIED):
            return False
        return self.places is not None and all((place >= 0).all() for _, place in self.places)

    def clear(self) -> None:
        for _, copy in self.pairs:
            copy.save_value(np.zeros(copy.shape))

    def assign(self, w: Floats) -> None:
        """Give the coefficient variables the values of ``w``; only where they are plain."""
        for variable, place in self.places or ():
            variable.save_value(w[place].reshape(variable.shape, order="F"))

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
        h = self.penalty_slope(zero)
        diagonal = (self.penalty_slope(np.ones(p)) - h) / 2
        wanted = self.penalty_slope(probe) - h
        if np.allclose(2 * diagonal * probe, wanted, rtol=1e-9, atol=1e-12 * float(np.abs(wanted).max(initial=0.0))):
            return diagonal, h
        if p > 200:
            return None
        H = np.stack([self.penalty_slope(unit) - h for unit in np.eye(p)]) / 2
        close = np.allclose(2 * H @ probe, wanted, rtol=1e-8, atol=1e-10 * float(np.abs(wanted).max(initial=0.0)))
        return ((H + H.T) / 2, h) if close else None

    def penalty_slope(self, w: Floats) -> Floats:
        """(p,) gradient (a subgradient, as CVXPY gives it) of the penalty at ``w``; only where w is plain."""
        assert self.penalty is not None
        self.assign(w)
        slopes = self.penalty.grad
        out = np.zeros(self.w.size)
        for variable, place in self.places or ():
            slope = slopes.get(variable)
            if slope is not None:
                out[place] = np.asarray(slope.todense() if sp.issparse(slope) else slope).ravel()
        return out


def largest_violation(constraint: Any) -> float:
    """Largest entry of a CVXPY constraint's violation at its variables' values."""
    return float(np.abs(np.asarray(constraint.violation())).max(initial=0.0))


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
    options: dict[str, Any] = dict(_TIGHT) if solver == cp.CLARABEL else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inaccuracy is reported by the status
        problem.solve(solver=solver, **options)
    return str(problem.status)


def _value(parameter: cp.Parameter) -> Any:
    if parameter.value is None:
        raise MissingValueError(
            f"public parameter {parameter.name()!r} has no value",
            why="the public constraints and penalty need it",
            remedy="set its value before solving",
        )
    return parameter.value


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


def _require_convex(parts: list[Any], penalty: cp.Expression | None) -> None:
    for part in parts:
        for variable in part.variables():
            wrong = [name for name in _NOT_CONVEX if variable.attributes[name]]
            if wrong:
                raise UnsupportedModelError(
                    f"variable {variable.name()!r} is {wrong[0]}",
                    why="a regression's public set must be convex and real",
                    remedy="a continuous variable, rounded after release",
                )
        if any(isinstance(parameter, Private) for parameter in part.parameters()):
            raise UnsupportedModelError(
                "a private parameter in the public constraints or penalty",
                why="they are post-processing and may hold public values only",
                remedy="a cp.Parameter, or released data",
            )
        if part is not penalty and not part.is_dcp():
            raise UnsupportedModelError(
                "a public constraint that is not convex (DCP)", why=str(part)[:120], remedy="a convex form of it"
            )
    if penalty is not None and not penalty.is_convex():
        raise UnsupportedModelError("a penalty that is not convex (DCP)", why=str(penalty)[:120], remedy="a convex one")
