"""A transportation problem with private demands.

Plants, markets, distances, capacities and freight are those of G. B. Dantzig, Linear Programming and
Extensions (1963), chapter 3.3: cases of canned goods shipped from two canneries to three warehouses at least
freight cost. The demands of the warehouses are the sums of their customers' orders; here one customer
changes one warehouse's demand by at most one case, and that must stay private.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.marks import Private
from dpmodel.problem import Problem

PLANTS = ("Seattle", "San Diego")
MARKETS = ("New York", "Chicago", "Topeka")
CAPACITY = np.array([350.0, 600.0])  # cases
DEMAND = np.array([325.0, 300.0, 275.0])  # cases
STORAGE = np.array([340.0, 315.0, 290.0])  # cases a warehouse can hold (public; ours, not the book's)
DISTANCE = np.array([[2.5, 1.7, 1.8], [2.5, 1.8, 1.4]])  # thousand miles
FREIGHT = 90.0  # dollars per case per thousand miles


@dataclass(frozen=True)
class Transportation:
    """``problem`` with its variable ``shipments`` (plants x markets, cases) and private ``demand``."""

    problem: Problem
    shipments: Any
    demand: Private
    cost: Any


def transportation(demand: Any = None, *, linf: float = 1.0) -> Transportation:
    """Dantzig's transportation problem; ``demand`` : (3,) cases, private (the book's by default).

    ``linf`` : cases by which one customer can change one warehouse's demand.
    """
    private = Private(
        DEMAND if demand is None else demand,
        name="demand",
        unit="entry",
        linf=linf,
        bounds=[np.zeros(len(MARKETS)), STORAGE],
    )
    shipments = cp.Variable((len(PLANTS), len(MARKETS)), nonneg=True, name="shipments")
    cost = cp.Constant(FREIGHT * DISTANCE, name="cost")
    within = cp.sum(shipments, axis=1) <= cp.Constant(CAPACITY, name="capacity")
    covers = cp.sum(shipments, axis=0) >= private
    within.set_label("capacity of each plant")
    covers.set_label("demand of each market")
    problem = Problem(cp.Minimize(cp.sum(cp.multiply(cost, shipments))), [within, covers])
    return Transportation(problem, shipments, private, cost)
