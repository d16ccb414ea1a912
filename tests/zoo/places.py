"""Where to build, whom to cover, what to choose: facility location, cover, knapsacks, budgets, matching, clusters."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm

from .registry import COSTS, NEARLY, SAFELY, Make, model


@model(5, 15, 46, due=NEARLY)
def facility_location(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Warehouses, built or not, serve the customers of n towns; town counts come from a customer file."""
    sites = max(3, n // 2)
    clients = rng.poisson(200, n).astype(float)
    customers = dpm.Records("customers", neighbors="add-remove")
    count = private(clients, name="customers", unit="entry", linf=1, nonneg=True, records=customers)
    built = cp.Variable(sites, boolean=True, name="built")
    serve = cp.Variable((n, sites), nonneg=True, name="serve")
    distance = rng.uniform(1, 9, (n, sites))
    return cp.Minimize(rng.uniform(500, 900, sites) @ built + cp.sum(cp.multiply(distance, serve))), [
        cp.sum(serve, axis=1) == count,
        cp.sum(serve, axis=0) <= 200.0 * n * built,
    ]


@model(4, 10, 32, **COSTS)
def k_median(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Three clinics for n towns, nearest to where patients live: a private objective over whole decisions."""
    people = rng.poisson(60, n).astype(float)
    patients = dpm.Records("patients", neighbors="add-remove")
    lives = private(people, name="lives", unit="entry", linf=1, bounds=[0, 200], records=patients)
    spot = rng.uniform(0, 5, (n, 2))
    distance = np.linalg.norm(spot[:, None] - spot[None, :], axis=2)
    opened, goes = cp.Variable(n, boolean=True, name="opened"), cp.Variable((n, n), nonneg=True, name="goes")
    return cp.Minimize(lives @ cp.sum(cp.multiply(distance, goes), axis=1)), [
        cp.sum(goes, axis=1) == 1,
        goes <= np.ones((n, 1)) @ cp.reshape(opened, (1, n), order="C"),
        cp.sum(opened) <= 3,
    ]


@model(12, 120, 1200, **COSTS)
def knapsack(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Projects, chosen or not, within a city's money; a project's worth is its number of votes, five to a voter."""
    votes = rng.poisson(2000 * rng.dirichlet(np.ones(n))).astype(float)
    voters = dpm.Records("voters", neighbors="add-remove")
    worth = private(votes, name="votes", unit="all", l1=5, linf=1, records=voters)
    cost = rng.uniform(1, 10, n)
    choose = cp.Variable(n, boolean=True, name="choose")
    return cp.Maximize(worth @ choose), [cost @ choose <= 0.3 * cost.sum()]


@model(12, 120, 1200, **COSTS)
def divisible_budget(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A budget shared over projects that may be funded in part; each of 900 voters gives each project 0 to 1."""
    support = rng.beta(1, 3, n)
    mean = private(support, name="support", unit="all", l1=3 / 900, linf=1 / 900, bounds=[0, 1])
    fund = cp.Variable(n, bounds=[0, 1], name="fund")
    cost = rng.uniform(1, 10, n)
    return cp.Maximize(mean @ fund), [cost @ fund <= 0.3 * cost.sum()]


@model(12, 100, 1000, quick=False, feasibility=dpm.AllBut(alpha=0.5))
def ballots(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Every one of 3,000 voters should get one of the projects they approve; a voter owns a constraint."""
    popular = rng.dirichlet(np.ones(n)) * 5
    approvals = (rng.random((3000, n)) < np.minimum(popular, 0.9)).astype(float)
    approvals[np.arange(3000), rng.choice(n, 3000, p=popular / popular.sum())] = 1
    approvals[np.cumsum(approvals, axis=1) > 10] = 0
    ballot = private(approvals, name="ballots", unit="row", bounds=[0, 1], max_l1=10)
    fund = cp.Variable(n, bounds=[0, 1], name="fund")
    cost = rng.uniform(1, 10, n)
    return cp.Minimize(0), [ballot @ fund >= 1, cost @ fund <= 0.8 * cost.sum()]


@model(12, 100, 1000, due=NEARLY, quick=False)
def staff_wishes(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A roster of n shifts that tires no colleague: each of 40 says how hard a shift is, 0 to 5, and sets a limit."""
    hard = rng.uniform(0, 5, (40, n))
    burden = private(hard, name="hard", unit="row", bounds=[0, 5])
    shift = cp.Variable(n, bounds=[0, 8], name="shift")
    return cp.Minimize(rng.uniform(10, 20, n) @ shift), [burden @ shift <= 12.0 * n, cp.sum(shift) >= 2 * n]


@model(15, 150, 1500, due=SAFELY)
def set_cover(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Cameras, installed or not, that see ten crossings often enough; a crossing's need is its count of accidents."""
    sees = (rng.random((10, n)) < 0.4).astype(float)
    counts = rng.poisson(n, 10).astype(float)
    accidents = private(counts, name="accidents", unit="entry", linf=1)
    install = cp.Variable(n, boolean=True, name="install")
    return cp.Minimize(rng.uniform(1, 4, n) @ install), [20 * sees @ install >= accidents]


@model(4, 14, 45, **COSTS)
def kidney_matching(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Donors to patients by compatibility scores that are private by column: a column is one patient's."""
    score = rng.uniform(0, 1, (n, n))
    fit = private(score, name="fit", unit="column", bounds=[0, 1])
    give = cp.Variable((n, n), nonneg=True, name="give")
    return cp.Maximize(cp.sum(cp.multiply(fit, give))), [cp.sum(give, axis=0) <= 1, cp.sum(give, axis=1) <= 1]


@model(10, 100, 1000, **COSTS)
def best_supplier(n: int, rng: np.random.Generator, private: Make) -> Any:
    """One contract, split as one likes among n suppliers, by satisfaction scores of 800 users: choose a vertex."""
    score = rng.uniform(0, 1, n)
    mean = private(score, name="scores", unit="all", linf=1 / 800, bounds=[0, 1])
    share = cp.Variable(n, nonneg=True, name="share")
    return cp.Maximize(mean @ share), [cp.sum(share) == 1]


@model(6, 18, 56, due=NEARLY)
def fair_districts(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Blocks join districts so that each holds about as many residents: a row of A of private counts, bounded."""
    residents = rng.poisson(300, n).astype(float)
    people = dpm.Records("residents", neighbors="add-remove")
    count = private(residents, name="residents", unit="entry", linf=1, bounds=[0, 600], records=people)
    districts = max(2, n // 3)
    join = cp.Variable((n, districts), nonneg=True, name="join")
    load = cp.matmul(count, join)
    return cp.Minimize(cp.sum(cp.multiply(rng.uniform(0, 9, (n, districts)), join))), [
        cp.sum(join, axis=1) == 1,
        load <= 1.5 * 300 * n / districts,
    ]
