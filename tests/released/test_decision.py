"""The decision table: what each kind of problem is solved by, in a plan and without one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from released.admm_cases import table

from dpmodel.contract import Options
from dpmodel.released.faces.refits import solver_of
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import Postprocessing
from dpmodel.released.tree_of import form_of_nodes
from dpmodel.released.trees import Tree, TreeProblem
from dpmodel.solve.planner import make_plan


def tree(leaves: int, **weights: float) -> LikelihoodForm:
    shape = Tree.complete(leaves)
    n, given = shape.size, {"absolute": 0.0, "square": 0.0} | weights
    value = shape.sums(np.arange(float(leaves)))
    arrays = (np.full(n, given["absolute"]), np.full(n, given["square"]), np.zeros(n), np.full(n, np.inf))
    return form_of_nodes(TreeProblem(shape, np.arange(n), value, *arrays, np.arange(n)))


def cells(**weights: float) -> LikelihoodForm:
    return LikelihoodForm.of(sp.eye_array(6), np.arange(6.0), lower=0.0, **weights)


TOTAL = {"equality": np.ones((1, 6)), "equality_value": [20.0]}
FORMS = {
    "projection": [
        cells(absolute=1.0),
        cells(square=1.0),
        LikelihoodForm.of(sp.eye_array(6), np.arange(6.0), absolute=1.0, lower=0.0, **TOTAL),
        LikelihoodForm.of(np.eye(3), [3.0, 1.0, 2.0], absolute=1.0, inequality=[[1, -1, 0], [0, 1, -1]]),
    ],
    "least-squares-tree": [tree(8, square=1.0), tree(8192, square=1.0)],
    "exact-tree": [tree(8, absolute=1.0), tree(8192, absolute=1.0)],
    "general-solver": [tree(8, absolute=1.0, square=1.0), table((3, 2, 2), 1, 0)],
    "admm": [tree(8192, absolute=1.0, square=1.0)],
}


@pytest.mark.parametrize(("name", "form"), [(name, form) for name, forms in FORMS.items() for form in forms])
def test_the_first_that_serves_is_taken(name: str, form: LikelihoodForm) -> None:
    model = Postprocessing(form, ())
    assert solver_of(model).name == name
    plan = make_plan(model, Options(0.0, 0.0))
    assert plan.chosen.mechanism == name
    places = [each.forecast.error.place for each in plan.candidates if each.eligible and each.forecast is not None]
    assert plan.chosen.forecast.error.place == min(places)


def test_large_tables_go_to_the_tables_algorithm() -> None:
    assert solver_of(Postprocessing(table((16, 16, 16), 2, 0), (), shape=(16, 16, 16))).name == "admm"
