"""Things that move: transportation, flows of least cost and greatest size, several commodities, assignments, paths."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm

from .registry import ALWAYS, COSTS, NEARLY, SAFELY, Make, model


def grid_network(n: int) -> tuple[np.ndarray, int, int]:
    """(nodes, arcs) incidence matrix of an n x n street grid, one way east and one way south; corner to corner."""
    number = np.arange(n * n).reshape(n, n)
    east = [pair for row in number for pair in pairwise(row)]
    south = [pair for row in number.T for pair in pairwise(row)]
    arcs = east + south
    incidence = np.zeros((n * n, len(arcs)))
    for arc, (a, b) in enumerate(arcs):
        incidence[a, arc], incidence[b, arc] = 1.0, -1.0
    return incidence, 0, n * n - 1


@model(5, 16, 50, due=SAFELY)
def transportation(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Plants ship to markets; a market's demand is the sum of its customers' orders, up to two cases each."""
    plants = max(2, n // 2)
    orders = rng.poisson(400, n).astype(float)
    supply = np.full(plants, 1.5 * 400 * n / plants)
    freight = rng.uniform(1, 9, (plants, n))
    demand = private(orders, name="demand", unit="entry", linf=2)
    ship = cp.Variable((plants, n), nonneg=True, name="ship")
    return cp.Minimize(cp.sum(cp.multiply(freight, ship))), [
        cp.sum(ship, axis=1) <= supply,
        cp.sum(ship, axis=0) >= demand,
    ]


@model(5, 16, 50, due=ALWAYS)
def transportation_with_warehouses(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The same where no market orders more than its warehouse holds: every true demand can be met for certain."""
    plants = max(2, n // 2)
    storage = rng.integers(450, 600, n).astype(float)
    orders = np.minimum(rng.poisson(400, n), storage)
    freight = rng.uniform(1, 9, (plants, n))
    demand = private(orders, name="demand", unit="entry", linf=2, bounds=[np.zeros(n), storage])
    ship = cp.Variable((plants, n), nonneg=True, name="ship")
    return cp.Minimize(cp.sum(cp.multiply(freight, ship))), [
        cp.sum(ship, axis=1) <= np.full(plants, 1.2 * storage.sum() / plants),
        cp.sum(ship, axis=0) >= demand,
    ]


@model(5, 16, 50, **COSTS)
def transportation_costs(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Demands are public; the cost of a lane is the mean bid of 200 hauliers, each of whom bids on every lane."""
    plants = max(2, n // 2)
    bids = rng.uniform(2, 9, (plants, n))
    cost = private(bids, name="cost", unit="all", linf=10 / 200, bounds=[0, 10])
    ship = cp.Variable((plants, n), nonneg=True, name="ship")
    return cp.Minimize(cp.sum(cp.multiply(cost, ship))), [
        cp.sum(ship, axis=1) <= 1.5 * n / plants,
        cp.sum(ship, axis=0) == 1,
    ]


@model(4, 11, 36)
def min_cost_flow(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Parcels flow through streets to homes; how many each corner receives is counted from customers."""
    incidence, depot, _ = grid_network(n)
    parcels = rng.poisson(300, n * n).astype(float)
    parcels[depot] = 0
    people = dpm.Records("customers", neighbors="add-remove")
    received = private(parcels[1:], name="parcels", unit="entry", linf=1, nonneg=True, records=people)
    flow = cp.Variable(incidence.shape[1], nonneg=True, name="flow")
    return cp.Minimize(rng.uniform(1, 5, incidence.shape[1]) @ flow), [
        -incidence[1:] @ flow == received,
        flow <= 400.0 * n * n,
    ]


@model(4, 11, 36, due=ALWAYS)
def max_flow(n: int, rng: np.random.Generator, private: Make) -> Any:
    """How much traffic passes a town whose streets have room for what residents' parked cars leave."""
    incidence, source, sink = grid_network(n)
    room = rng.integers(200, 800, incidence.shape[1]).astype(float)
    capacity = private(room, name="capacity", unit="all", l1=2, linf=1, bounds=[100, 900])
    flow = cp.Variable(incidence.shape[1], nonneg=True, name="flow")
    through = incidence[source] @ flow
    inner = [node for node in range(n * n) if node not in (source, sink)]
    return cp.Maximize(through), [incidence[inner] @ flow == 0, flow <= capacity]


@model(3, 6, 14, due=SAFELY)
def multicommodity_flow(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Three kinds of goods share the streets; what corners order is private, an order is one unit of one kind."""
    incidence, _, _ = grid_network(n)
    kinds, arcs = 3, incidence.shape[1]
    ordered = rng.poisson(200, (n * n - 1, kinds)).astype(float)
    orders = private(ordered, name="orders", unit="row", l1=2, linf=2)
    flow = cp.Variable((arcs, kinds), nonneg=True, name="flow")
    cost = rng.uniform(1, 5, (arcs, kinds))
    return cp.Minimize(cp.sum(cp.multiply(cost, flow))), [
        -incidence[1:] @ flow >= orders,
        cp.sum(flow, axis=1) <= 1000.0 * n * n,
    ]


@model(4, 11, 36, **COSTS)
def quickest_path(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The quickest way across town, where a street's time is the mean over 5,000 drivers' trips."""
    incidence, source, sink = grid_network(n)
    minutes = rng.uniform(1, 6, incidence.shape[1])
    times = private(minutes, name="times", unit="all", linf=10 / 5000, l2=0.02, bounds=[0, 10])
    take = cp.Variable(incidence.shape[1], nonneg=True, name="take")
    balance = np.zeros(n * n)
    balance[source], balance[sink] = 1, -1
    return cp.Minimize(times @ take), [incidence @ take == balance, take <= 1]


@model(6, 15, 40, **COSTS)
def assignment(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Each worker gets one job and says how much they mind each of them, from 0 to 10; nobody else may learn it."""
    minds = rng.integers(0, 11, (n, n)).astype(float)
    cost = private(minds, name="minds", unit="row", bounds=[0, 10])
    give = cp.Variable((n, n), nonneg=True, name="give")
    return cp.Minimize(cp.sum(cp.multiply(cost, give))), [cp.sum(give, axis=0) == 1, cp.sum(give, axis=1) == 1]


@model(5, 16, 48, due=NEARLY)
def school_places(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Pupils of each district go to schools nearby; how many live where is counted from a register."""
    schools = max(3, n // 2)
    pupils = rng.poisson(250, n).astype(float)
    register = dpm.Records("pupils", neighbors="add-remove")
    live = private(pupils, name="pupils", unit="entry", linf=1, integer=True, records=register)
    send = cp.Variable((n, schools), nonneg=True, name="send")
    distance = rng.uniform(0.2, 8, (n, schools))
    return cp.Minimize(cp.sum(cp.multiply(distance, send))), [
        cp.sum(send, axis=1) == live,
        cp.sum(send, axis=0) <= 1.4 * 250 * n / schools,
    ]
