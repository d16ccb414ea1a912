"""A regression over rows in blocks, recognised on a few rows: nothing as long as the data is ever made.

What is recognised of the small model (loss, scale, coefficients, penalty) is that of the large one, whose parameters
are put back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.compile.refusals import refuse_blocks
from dpmodel.compile.regression.features import Features, Label
from dpmodel.compile.regression.multinomial import recognise_regression
from dpmodel.compile.regression.recognise import Outputs, Recognised
from dpmodel.compile.rows import CutRows, rows_of_one_source
from dpmodel.marks.private import Private


def recognise_blocks(problem: cp.Problem) -> Recognised | Outputs | None:
    """As ``recognise``, for a problem with private parameters ``in_blocks``; None where private parameters stand in
    constraints, which no regression has.

    Raises
    ------
    UnsupportedModelError, SpecificationError
        For an objective that is no regression over the rows of one source; before any budget is spent.
    """
    private = [p for p in problem.parameters() if isinstance(p, Private)]
    count = rows_of_one_source(private)
    if any(isinstance(p, Private) for c in problem.constraints for p in c.parameters()):
        return None
    objective = problem.objective
    roots = [objective.args[0], *(each for constraint in problem.constraints for each in constraint.args)]
    small = _Small(CutRows(roots, private, count), objective.args[0])
    found = recognise_regression(cp.Problem(type(objective)(small.rows.cut(small.loss)), problem.constraints))
    if found is None:
        refuse_blocks(private)
    assert found is not None
    if isinstance(found, Outputs):
        return replace(found, parts=tuple(small.enlarged(part) for part in found.parts))
    return small.enlarged(found)


@dataclass(frozen=True)
class _Small:
    """``loss`` of all rows, and what cuts them."""

    rows: CutRows
    loss: Any

    def enlarged(self, found: Recognised) -> Recognised:
        """What was recognised, of the user's parameters. Public tables keep their few rows, which are all alike."""
        label = found.label
        ends = [label.scale, label.shift] if isinstance(label, Label) else [label]
        tables = [found.offset, *ends, *(f for f, _ in found.blocks if not isinstance(f, Features))]
        if found.weights is not None or not all(map(_alike, tables)):  # such as a running sum of ones
            self.rows.refuse(self.loss, "public numbers in it differ from row to row")
        if isinstance(label, Label):
            scale, shift = (np.asarray(np.ravel(end)[0]) for end in (label.scale, label.shift))
            label = replace(label, features=self._features(label.features), scale=scale, shift=shift)
        return replace(
            found,
            count=self.rows.count,
            blocks=tuple((self._features(f) if isinstance(f, Features) else f, start) for f, start in found.blocks),
            label=label,
        )

    def _features(self, features: Features) -> Features:
        return replace(features, parameter=self.rows.original(features.parameter))


def _alike(table: Any) -> bool:
    """Whether all rows of a public table are the same; of None and of one number for all rows, too."""
    rows = np.atleast_1d(0.0 if table is None else table.toarray() if sp.issparse(table) else table)
    return np.allclose(rows, rows[:1], rtol=1e-12, atol=0)
