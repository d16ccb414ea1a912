"""Linear minimisation over one polyhedron, again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import highspy
import numpy as np
import scipy.sparse as sp
from cvxpy import CLARABEL, OPTIMAL

from dpmodel._types import Floats
from dpmodel.numerics.array_program import ArrayProgram
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.solvers import (
    AT_ONCE,
    CONTINUOUS,
    DUAL,
    FROM_VERTEX,
    ask,
    from_bounds,
    pass_to_highs,
    patience,
    set_options,
    silent_highs,
)

if TYPE_CHECKING:
    from dpmodel.numerics.polytopes.polyhedron import Polyhedron


def sides(polytope: Polyhedron) -> tuple[Floats, Floats]:
    """(m,), (m,) what ``polytope.rows`` lie between."""
    low = np.concatenate([np.full(polytope.b_ub.size, -np.inf), polytope.b_eq])
    return low, np.concatenate([polytope.b_ub, polytope.b_eq])


def highs(polytope: Polyhedron, cost: Floats, lower: Floats, upper: Floats) -> highspy.Highs:
    """HiGHS with the rows of ``polytope``; columns beyond those of the polytope stand in no row."""
    A, solver = polytope.rows, silent_highs()
    wide = A if A.shape[1] == cost.size else sp.csr_array((A.data, A.indices, A.indptr), shape=(A.shape[0], cost.size))
    set_options(solver, CONTINUOUS | AT_ONCE)
    pass_to_highs(solver, cost, wide, sides(polytope), (lower, upper))
    return solver


class LinearMinimiser:
    """HiGHS keeps its basis between calls: the last vertex is one for every cost, and the primal simplex method takes a
    few steps from it first, until they once were not enough."""

    def __init__(self, polytope: Polyhedron) -> None:
        self._polytope = polytope
        self._columns = np.arange(polytope.size, dtype=np.int32)
        self._bounds = polytope.lower, polytope.upper
        self._highs = highs(polytope, np.zeros(polytope.size), *self._bounds)
        self._from_bounds, self._patience = from_bounds(polytope.rows), patience(polytope.rows)
        self._at_vertex, self._near, self._slow = False, True, False

    def minimise(self, cost: Floats) -> Floats | None:
        cost = np.asarray(cost, dtype=np.float64)
        # HiGHS' tolerances are absolute: a cost of unit size keeps them meaningful.
        size = float(np.abs(cost).max(initial=0.0))
        c = cost / size if size > 0 else cost
        self._highs.changeColsCost(self._columns.size, self._columns, c)
        x = self._in_time(c)
        if x is not None:
            return np.clip(x, *self._bounds)
        if self._highs.getModelStatus() == highspy.HighsModelStatus.kUnknown:  # from a basis that lost its way
            self._highs.clearSolver()
            self._as_long_as_it_takes()
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kOptimal:
            return np.clip(np.asarray(self._highs.getSolution().col_value, dtype=np.float64), *self._bounds)
        if status in (highspy.HighsModelStatus.kUnbounded, highspy.HighsModelStatus.kUnboundedOrInfeasible) and size:
            self._highs.changeColsCost(self._columns.size, self._columns, np.zeros(cost.size))
            self._as_long_as_it_takes()
            if self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                return None
        words = self._highs.modelStatusToString(status)
        raise SolverFailure("HiGHS found no point of the public set", why=str(words), remedy="check the constraints")

    def _in_time(self, c: Floats) -> Floats | None:
        """Run HiGHS; (n,) another solver's optimum where that takes many steps, if it has one."""
        near = FROM_VERTEX if self._at_vertex else self._from_bounds
        if near and self._near:
            begun = self._highs.getBasis()
            status = self._run(near)
            if status == highspy.HighsModelStatus.kOptimal:
                self._at_vertex = True
                return None
            if status == highspy.HighsModelStatus.kIterationLimit:
                self._highs.setBasis(begun)
                self._near = False
        if not self._slow:
            status = self._run(DUAL | self._patience)
            self._at_vertex = status == highspy.HighsModelStatus.kOptimal
            if status != highspy.HighsModelStatus.kIterationLimit:
                return None
        none, no_cones = np.zeros(0, dtype=np.int64), (sp.csr_array((0, c.size)), np.zeros(0))
        rows = self._polytope.rows, *sides(self._polytope)
        answer = ask(ArrayProgram(c, *rows, *self._bounds, none, none, *no_cones), CLARABEL, {})
        if answer.status == OPTIMAL:
            self._slow = True
            return answer.x
        self._as_long_as_it_takes()
        return None

    def _as_long_as_it_takes(self) -> None:
        """Run HiGHS; from now on there is no limit, for a set is called empty where it stops early."""
        self._patience, self._slow = dict.fromkeys(self._patience, highspy.kHighsIInf), False
        self._at_vertex = self._run(DUAL | self._patience) == highspy.HighsModelStatus.kOptimal

    def _run(self, options: Mapping[str, Any]) -> highspy.HighsModelStatus:
        set_options(self._highs, options)
        self._highs.run()
        status: highspy.HighsModelStatus = self._highs.getModelStatus()
        return status
