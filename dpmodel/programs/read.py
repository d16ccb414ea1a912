"""From a CVXPY problem to a program: the standard form, what one record moves in it, its cells, and the model."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import cvxpy as cp

from dpmodel.compile.bridge import Lowered, lower
from dpmodel.compile.footprint import Footprint, footprint
from dpmodel.compile.form import public_theta, standard_form
from dpmodel.compile.public_set import PublicSet
from dpmodel.compile.refusals import where_used
from dpmodel.compile.rows import FewRows, few_rows, row_maker, rows_read
from dpmodel.errors import UnsupportedModelError
from dpmodel.programs.classifier import Classification, classify
from dpmodel.programs.model import Program, RecordsProgram


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

    Raises
    ------
    UnsupportedModelError
        For what is not convex or not DPP, and private problems without variables.
    """
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
