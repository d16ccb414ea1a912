"""Integers out of fitted trees, tables and solved problems, with their constraints kept. They cost no privacy."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.problem import Problem
from dpmodel.released.faces.consistent import ROUNDINGS, Round
from dpmodel.released.faces.refits import solution_of
from dpmodel.released.model import Postprocessing
from dpmodel.released.rounding import How, round_form, round_total, round_tree
from dpmodel.released.trees import Tree


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
        whole = rounded_tree(tree.tree, nodes, tree.lower, tree.upper, how, rng)[tree.select]
    else:
        whole = round_form(model.form, x, how="unbiased" if how == "unbiased" else "controlled", seed=rng)
    return {variable: np.reshape(whole[where], variable.shape, order="F") for variable, where in model.columns}


def rounded_tree(tree: Tree, x: Floats, lower: Floats, upper: Floats, round: Round, seed: int) -> Floats:
    """(nodes,) whole consistent numbers, each the floor or ceiling of x; see ``round_tree``.

    Raises
    ------
    SpecificationError
        Where a bound or known number is not whole, so that floors and ceilings do not keep it.
    """
    whole = round_tree(tree, x, round, seed)
    wrong = np.maximum(lower - whole, whole - upper)
    at = int(np.argmax(wrong))
    if wrong[at] > 1e-6 * max(1.0, abs(whole[at])):
        raise SpecificationError(
            f"rounded, node {at} would be {whole[at]:.12g}, not in {lower[at]:.12g} to {upper[at]:.12g}",
            why="a bound or known total that is not whole: rounding keeps floors and ceilings only",
            remedy="round=None, or whole bounds and totals",
        )
    return whole


def rounded_table(model: Postprocessing, x: Floats, round: str, seed: int) -> Floats:
    """(n,) integers near x. Without other constraints, the total of a table goes to its floor or ceiling.

    "controlled" and "nearest" are the same here: the nearest whole point that keeps every constraint, or one near it
    where the search for it ends before (``nearest_integer``).

    Raises
    ------
    SpecificationError
        Where no unbiased rounding keeps all constraints.
    InfeasibleError
        Where no integers do.
    DPModelError
        Where none were found before the search ended.
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
    """How a table is rounded to integers, for its plan."""
    form = model.form
    assert form is not None
    rows = form.equality.shape[0] + form.inequality.shape[0]
    if round == "unbiased" or not rows:
        return f"rounding ({round}): one pass over {form.size} cells"
    return (
        f"rounding ({round}): a linear program of {form.size} cells and {rows} sums, and a search of a bounded number "
        "of nodes where its vertex is not whole, which can take many times as long; more than two crossing margins may "
        "be refused: then no rounding, or two of them"
    )
