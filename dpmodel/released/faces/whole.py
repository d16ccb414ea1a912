"""Integers out of a solved post-processing problem, with its constraints kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.problem import Problem
from dpmodel.released.faces.consistent import ROUNDINGS, Round
from dpmodel.released.faces.refits import solution_of
from dpmodel.released.faces.tree_query import rounded_tree
from dpmodel.released.model import Postprocessing
from dpmodel.released.rounding import round_form


def round_solution(problem: Problem, how: Round = "unbiased", *, rng: int = 0) -> dict[Any, Floats]:
    """{variable: integers near its value}: they keep the constraints of ``problem``, which stays as it is.

    It reads released values only, so it costs no privacy.

    Parameters
    ----------
    problem : solved, a post-processing with linear constraints.
    how : "unbiased" : at random, every entry its floor or ceiling and its mean over ``rng`` the solution; for trees,
        chains, one total and two-way tables. "controlled" : every entry (and sum of a tree) at its floor or ceiling
        where that can be, or the nearest whole point that keeps all constraints. "nearest" : the least moved.
    rng : a seed of random rounding.

    Raises
    ------
    SpecificationError
        For a problem that is not solved or no such post-processing; where no unbiased rounding is known.
    InfeasibleError
        When no whole point keeps the constraints.
    """
    if how not in ROUNDINGS:
        raise SpecificationError(f"how={how!r}", remedy=" or ".join(map(repr, ROUNDINGS)))
    model = problem._model(None) if isinstance(problem, Problem) else None
    if not isinstance(model, Postprocessing) or model.form is None:
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
        whole = rounded_tree(tree.tree, nodes, tree.lower, tree.upper, how, rng)[tree.select]
    else:
        whole = round_form(model.form, x, how="unbiased" if how == "unbiased" else "controlled", seed=rng)
    return {variable: np.reshape(whole[where], variable.shape, order="F") for variable, where in model.columns}
