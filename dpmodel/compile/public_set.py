"""What the public constraints alone say about x: a box, feasibility, and bounds on weighted 1-norms.

Rows whose coefficients depend on a private parameter are left out; inequalities with a private right-hand
side count with its largest allowed value, if it has one. So every point that is feasible for any database
lies in this set, and every bound found here is a public fact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from cvxpy import CLARABEL, OPTIMAL, OPTIMAL_INACCURATE, SCS

from dpmodel._types import Floats, Integers
from dpmodel.compile.form import StandardForm
from dpmodel.errors import InfeasibleError
from dpmodel.numerics.cone_program import ConeProgram, ConeSolution, SolverFailure, solve_cone_program
from dpmodel.numerics.implied_bounds import implied_bounds
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.numerics.solvers import SOLVER_ERROR

# Solvers stop near the optimum; bounds are widened by this to stay bounds.
_SOLVER_SLACK = 1e-6
_OPTIMA = {OPTIMAL: _SOLVER_SLACK, OPTIMAL_INACCURATE: 1e-3}


@dataclass(frozen=True)
class PublicSet:
    """The public constraints of a standard form.

    ``program`` : the cone program without the private rows (objective zero); ``box`` : bounds from rows with one
    variable.
    """

    form: StandardForm
    solver: str | None = None

    @cached_property
    def box(self) -> tuple[Floats, Floats]:
        """(n,), (n,): bounds on x read off public rows with one non-zero, nothing solved."""
        base = base_program(self.form)
        lower, upper = base.lower.copy(), base.upper.copy()
        single_variable_rows(self.form, base.keep, lower, upper)
        return lower, upper

    @cached_property
    def _implied(self) -> tuple[Floats, Floats]:
        """(n,), (n,): the box, tightened by what rows and cones of ``program`` imply; nothing solved."""
        lower, upper = self.box
        return implied_bounds(self.program.with_(lower=lower, upper=upper))

    @cached_property
    def program(self) -> ConeProgram:
        form = self.form
        keep = ~form.private_rows
        for block in form.affine.cones:
            # A cone with one private row says nothing for certain about its other rows.
            if block.kind not in ("zero", "nonneg") and not keep[block.rows].all():
                keep[block.rows] = False
        base = base_program(form)
        largest = self.largest_sides
        capped = np.isfinite(largest) & ~keep
        b = np.where(capped, largest, base.b)
        return base.with_(c=np.zeros(form.affine.variables), d=0.0, b=b, keep=base.keep & (keep | capped))

    @cached_property
    def polyhedron(self) -> Polyhedron:
        """The linear rows of ``program`` over continuous variables; its solver keeps a basis from one question to the
        next."""
        return Polyhedron.of(self.program)

    @property
    def endless(self) -> bool:
        """Whether some column is seen to grow or to fall without end from every point of a linear set: neither a bound
        nor a row stops it."""
        A, (lower, upper), equal = self.program.A, self.box, self.form.affine.equalities()
        kept, equal = (np.repeat(rows, np.diff(A.indptr)) for rows in (self.program.keep, equal))
        stops = (A.indices[kept & (equal | side)] for side in (A.data > 0, A.data < 0))
        rise, fall = (np.bincount(columns, minlength=lower.size) == 0 for columns in stops)
        return bool((np.isinf(upper) & rise | np.isinf(lower) & fall).any())

    @property
    def _linear(self) -> bool:
        return self.form.affine.is_linear()

    @property
    def largest_sides(self) -> Floats:
        """(m,) largest right-hand side that any database allows, for inequality rows with public
        coefficients and a private, bounded right-hand side; inf elsewhere."""
        return self._sides[1]

    @property
    def least_sides(self) -> Floats:
        """(m,) least right-hand side that any database allows, in the same rows; -inf elsewhere."""
        return self._sides[0]

    @cached_property
    def _sides(self) -> tuple[Floats, Floats]:
        form = self.form
        least, largest = np.full(form.affine.rows, -np.inf), np.full(form.affine.rows, np.inf)
        if not form.scalar.nnz:
            return least, largest
        low, high = form.side_range
        fits = form.affine.inequalities()
        if form.matrix.nnz:
            fits[form.matrix_coordinates()[0]] = False
        rows = form.scalar.positions
        rows = rows[fits[rows]]
        least[rows], largest[rows] = form.b0[rows] + low[rows], form.b0[rows] + high[rows]
        return least, largest

    def require_feasible(self) -> None:
        """Raise InfeasibleError if the public constraints have no common point."""
        if not self.feasible:
            raise InfeasibleError(
                "the public constraints have no common point",
                why="this does not depend on any private value, so no mechanism can help and nothing was spent",
                remedy="relax or remove constraints without private parameters",
            )

    @cached_property
    def feasible(self) -> bool:
        lower, upper = self.box
        if (lower > upper + 1e-9 * (1 + np.abs(lower))).any():
            return False
        program = self.program
        if not program.keep.any():
            return True
        whole = program.boolean.size or program.integer.size
        if self._linear and not whole and not self.polyhedron.empty:
            return True
        solution = solve_cone_program(program, solver=self.solver)
        if solution.status == SOLVER_ERROR:
            raise SolverFailure(
                "no solver could tell whether the public constraints have a common point",
                why=solution.notes[0].replace("released", "public"),
                remedy="public numbers of moderate size (change the units), or fewer constraints; nothing was spent",
            )
        return "infeasible" not in solution.status

    def weighted_norm(self, weights: Floats) -> float:
        """Upper bound on ``max sum_j weights_j |x_j|`` over the public set (inf when there is none).

        ``weights`` : (n,) non-negative. One program: |x_j| is replaced by x_j or -x_j where the box fixes the
        sign, and by its chord over [lower_j, upper_j] elsewhere. Ends that neither the box nor interval arithmetic
        tells are two programs each.
        """
        weights = np.asarray(weights, dtype=np.float64)
        used = weights > 0
        if not used.any():
            return 0.0
        lower, upper = (bound.copy() for bound in self.box)
        crossing = used & (lower < 0) & (upper > 0)
        if (crossing & ~(np.isfinite(lower) & np.isfinite(upper))).any():
            lower, upper = (bound.copy() for bound in self._implied)
        crossing = used & (lower < 0) & (upper > 0)
        missing = np.flatnonzero(crossing & ~(np.isfinite(lower) & np.isfinite(upper)))
        # Free variables get their own pair of linear programs; beyond this many the set is taken as unbounded.
        if missing.size > 64:
            return np.inf
        for j in missing:
            lower[j], upper[j] = self._range(int(j), lower[j], upper[j])
            if not (np.isfinite(lower[j]) and np.isfinite(upper[j])) and lower[j] < 0 < upper[j]:
                return np.inf
        derivative = np.where(lower >= 0, 1.0, np.where(upper <= 0, -1.0, 0.0))
        constant = 0.0
        crossing = used & (lower < 0) & (upper > 0)
        if crossing.any():
            low, high = lower[crossing], upper[crossing]
            derivative[crossing] = (high + low) / (high - low)
            constant = float((weights[crossing] * (-2 * low * high / (high - low))).sum())
        box_bound = float((weights[used] * np.maximum(np.abs(lower[used]), np.abs(upper[used]))).sum())
        if not self.program.keep.any():
            return box_bound
        slope = weights * derivative
        if np.isfinite(box_bound) and float(np.abs(slope[used]) @ (upper - lower)[used]) <= _SOLVER_SLACK * box_bound:
            return box_bound  # nothing is left for the rows to tell
        best = self._maximise(slope, lower, upper)
        return min(box_bound, best + constant)

    def support(self, direction: Floats) -> float:
        """Upper bound on ``max direction'x`` over the public set (inf when there is none): nothing solved for a box."""
        lower, upper = self.box
        ends = np.where(direction > 0, upper, lower)
        used = direction != 0
        by_box = float((direction[used] * ends[used]).sum())
        return min(by_box, self._maximise(direction, lower, upper)) if self.program.keep.any() else by_box

    def cheapest(self, c: Floats) -> Floats | None:
        """(n,) a point of least ``c'x``, or None. Solved from nothing: of several such points, which one it is does not
        depend on what was asked before."""
        return solve_cone_program(self.program.with_(c=c), solver=self.solver).x

    def magnitudes(self) -> Floats:
        """(n,) bounds on |x_j| from the box (inf where the box has none)."""
        lower, upper = self.box
        return np.maximum(np.abs(lower), np.abs(upper))

    def _range(self, j: int, lower: float, upper: float) -> tuple[float, float]:
        unit = np.zeros(self.form.affine.variables)
        unit[j] = 1.0
        box = self.box
        low = lower if np.isfinite(lower) else -self._maximise(-unit, *box)
        high = upper if np.isfinite(upper) else self._maximise(unit, *box)
        return low, high

    def _maximise(self, objective: Floats, lower: Floats, upper: Floats) -> float:
        """Without integrality the maximum is an upper bound, and one linear program away."""
        if self._linear:
            try:
                best = self.polyhedron.support(objective)
                if not (self.program.boolean.size or self.program.integer.size):
                    self.__dict__["feasible"] = True
                return best
            except SolverFailure:
                pass  # others are asked
        solution = self._least(-objective, lower, upper)
        if solution.status not in _OPTIMA or solution.value is None:  # a point at a solver's limit bounds nothing
            return np.inf
        return -solution.value + _OPTIMA[solution.status] * (1 + abs(solution.value))

    def _least(self, c: Floats, lower: Floats, upper: Floats) -> ConeSolution:
        """Where ``c'x`` is least between these bounds, without integrality; solved once per question."""
        key = self._question(c, lower, upper)
        if key not in self._solutions:
            none = np.zeros(0, dtype=np.int64)
            program = self.program.with_(c=c, lower=lower, upper=upper, boolean=none, integer=none)
            # SCS, CVXPY's choice for semidefinite sets, missed optima by up to 3e-4: too far for a bound.
            near = not self._linear and (self.solver or SCS).upper() == SCS
            self._solutions[key] = solve_cone_program(program, solver=CLARABEL if near else self.solver)
        solution = self._solutions[key]
        if "infeasible" in solution.status and "unbounded" not in solution.status:
            self.__dict__["feasible"] = False
            self.require_feasible()
        if solution.status in _OPTIMA:  # of cones, solvers call empty sets with a ray unbounded
            self.__dict__["feasible"] = True
        return solution

    @staticmethod
    def _question(*numbers: Floats) -> tuple[bytes, ...]:
        return tuple((each + 0.0).tobytes() for each in numbers)  # without the sign of zeros

    @cached_property
    def _solutions(self) -> dict[tuple[bytes, ...], ConeSolution]:
        return {}


def single_variable_rows(form: StandardForm, where: Any, lower: Floats, upper: Floats) -> Integers:
    """Public inequalities ``a x_j <= b`` among the rows of the mask ``where`` (m,); their bounds go into ``lower`` and
    ``upper`` (n,)."""
    rows = np.flatnonzero(where & (np.diff(form.A0.indptr) == 1) & ~form.private_rows & form.affine.inequalities())
    column, derivative = (part[form.A0.indptr[rows]] for part in (form.A0.indices, form.A0.data))
    live = derivative != 0
    if not live.all():
        rows, column, derivative = rows[live], column[live], derivative[live]
    value = form.b0[rows] / derivative
    up = derivative > 0
    np.minimum.at(upper, column[up], value[up])
    np.maximum.at(lower, column[~up], value[~up])
    return rows


def base_program(form: StandardForm) -> ConeProgram:
    """The public numbers of ``form`` as a cone program. Rows that CVXPY made from variable attributes become bounds;
    the user's own constraints keep their multipliers. Written once."""
    if "program" not in form.found:
        affine, band = form.affine, np.zeros(form.affine.rows)
        lower, upper = np.full(affine.variables, -np.inf), np.full(affine.variables, np.inf)
        lower[affine.boolean], upper[affine.boolean] = 0.0, 1.0
        made, keep = np.zeros(affine.rows, dtype=bool), np.ones(affine.rows, dtype=bool)
        for block in affine.cones:
            made[block.rows] = block.constraint < 0
        keep[single_variable_rows(form, made, lower, upper)] = False
        for each in (lower, upper, keep, band):
            each.setflags(write=False)  # handed out again and again
        form.found["program"] = ConeProgram(
            c=form.c0,
            d=form.d0,
            b=form.b0,
            A=form.A0,
            cones=affine.cones,
            boolean=affine.boolean,
            integer=affine.integer,
            lower=lower,
            upper=upper,
            band=band,
            keep=keep,
        )
    program: ConeProgram = form.found["program"]
    return program
