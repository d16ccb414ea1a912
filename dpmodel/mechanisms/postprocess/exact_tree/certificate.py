"""Prices that prove a point of a tree problem optimal, whoever found it."""

from __future__ import annotations

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.mechanisms.postprocess.exact_tree.plan import TreePlan, tree_plan
from dpmodel.mechanisms.postprocess.exact_tree.sparse import exact_messages
from dpmodel.numerics.trees.tree import TreeProblem


def tree_prices(problem: TreeProblem, x: Floats, *, plan: TreePlan | None = None, near: float = 1e-11) -> Integers:
    """(N,) for each inner node the price of "node = sum of children" that supports x (0 at leaves), in units of the
    plan; with these ``tree_bound`` equals the objective when x is optimal."""
    plan = _fitting(problem, plan)
    tree, units = problem.tree, plan.units
    found = exact_messages(plan, problem.value)
    about = near * (1.0 + np.abs(x))
    apart = x[problem.node] - problem.value
    side = np.where(apart > about[problem.node], 1, np.where(apart < -about[problem.node], -1, 0))
    low = _at_nodes(problem, np.where(side > 0, units, -units))
    high = _at_nodes(problem, np.where(side < 0, -units, units))
    low[x <= plan.lower + about] = -np.inf  # a bound that holds x may add any price
    high[x >= plan.upper - about] = np.inf
    price = np.zeros(tree.size)
    for number, level in enumerate(plan.levels):
        if level.family is None:
            continue
        inner = np.arange(level.nodes.start, level.nodes.stop)
        inner = inner if level.inner is None else inner[level.inner]
        least, most = found.slopes(number, x[inner], about[inner])
        above = tree.parent[inner]
        coming = np.where(above >= 0, price[above], 0.0)
        least = np.maximum(least, coming - high[inner])
        most = np.minimum(most, coming - low[inner])
        price[inner] = np.minimum(np.maximum(coming, least), most)
    return np.asarray(np.rint(np.clip(price, -(2.0**62), 2.0**62)), dtype=np.int64)


def tree_bound(problem: TreeProblem, prices: Integers, *, plan: TreePlan | None = None) -> float:
    """A lower bound on the objective (with the plan's weights) of every consistent point within the bounds, for any
    prices: the Lagrangian's minimum, node by node; -inf where it has none.

    With price q of ``x_v - sum of children = 0`` the Lagrangian is ``sum_v own_v(x_v) - (q_parent(v) - q_v) x_v``, with
    q = 0 at leaves and above roots, since its second part vanishes at consistent points.
    """
    plan = _fitting(problem, plan)
    tree, size = problem.tree, problem.tree.size
    q = np.where(tree.is_leaf, 0, prices)
    slope = (np.where(tree.parent >= 0, q[tree.parent], 0) - q).astype(np.float64)
    order = np.lexsort((problem.value, problem.node))
    order = order[plan.units[order] > 0]
    node, value, weight = problem.node[order], problem.value[order], plan.units[order]
    count = np.bincount(node, minlength=size)
    first = np.cumsum(count) - count
    running = np.cumsum(weight)
    start = np.concatenate([[0], running])[first]
    total = (np.concatenate([[0], running])[first + count] - start).astype(np.float64)
    passed = 2 * (running - start[node]) < total[node] + slope[node]
    at = first + np.minimum(
        np.bincount(node, weights=passed, minlength=size).astype(np.int64), np.maximum(count - 1, 0)
    )
    best = np.append(value, 0.0)[np.minimum(at, value.size)] * (count > 0)
    best = np.where(slope < -total, -np.inf, np.where(slope > total, np.inf, best))
    best = np.clip(best, plan.lower, plan.upper)
    if not np.isfinite(best).all():
        return float("-inf")
    return plan.unit * float(weight @ np.abs(best[node] - value) - slope @ best)


def _at_nodes(problem: TreeProblem, amounts: Floats | Integers) -> Floats:
    return np.bincount(problem.node, weights=amounts, minlength=problem.tree.size).astype(np.float64)


def _fitting(problem: TreeProblem, plan: TreePlan | None) -> TreePlan:
    return plan if plan is not None and plan.fits(problem) else tree_plan(problem)
