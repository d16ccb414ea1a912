"""Making and keeping: production over time, storage, power, blending, cutting, whole batches."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm

from .registry import ALWAYS, NEARLY, SAFELY, Make, model


@model(6, 60, 600, due=SAFELY)
def production_and_storage(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Make, store and deliver one good over n months; a month's demand is the sum of its orders of up to five units."""
    ordered = 800 + 200 * np.sin(np.arange(n)) + rng.normal(0, 30, n)
    demand = private(ordered.round(), name="demand", unit="entry", linf=5)
    make, keep = cp.Variable(n, nonneg=True, name="make"), cp.Variable(n + 1, nonneg=True, name="keep")
    price = rng.uniform(8, 12, n)
    return cp.Minimize(price @ make + 1.5 * cp.sum(keep)), [
        keep[0] == 100,
        keep[:-1] + make - keep[1:] >= demand,
        make <= 1000,
    ]


@model(6, 60, 600)
def production_balance(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The same with every month's balance an equality, and a customer who may order in any month."""
    ordered = 800 + 200 * np.cos(np.arange(n)) + rng.normal(0, 30, n)
    demand = private(ordered.round(), name="demand", unit="all", l1=10, linf=5)
    make, keep = cp.Variable(n, nonneg=True, name="make"), cp.Variable(n + 1, nonneg=True, name="keep")
    return cp.Minimize(rng.uniform(8, 12, n) @ make + 1.5 * cp.sum(keep)), [
        keep[0] == 400,
        keep[:-1] + make - keep[1:] == demand,
        make <= 1200,
    ]


@model(12, 96, 960, due=ALWAYS)
def battery(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A battery and the grid cover a street's load, summed over smart meters; a household draws at most 6 kW."""
    load = 250 + 80 * np.sin(np.arange(n) / 4) + rng.normal(0, 10, n)
    meters = private(np.clip(load, 0, 500), name="load", unit="all", linf=6, l1=60, bounds=[0, 500])
    buy, charge = cp.Variable(n, nonneg=True, name="buy"), cp.Variable(n, bounds=[-50, 50], name="charge")
    stored = 100 + cp.cumsum(charge)
    price = 0.2 + 0.1 * np.sin(np.arange(n) / 3 + 1)
    return cp.Minimize(price @ buy), [buy - charge >= meters, stored >= 0, stored <= 400, buy <= 800]


@model(5, 30, 200, due=SAFELY)
def unit_commitment(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Which power stations run in which hour, on or off, for a load that households make up."""
    stations, hours = 3 if n < 100 else 5, n
    load = 600 + 150 * np.sin(np.arange(hours) / 3) + rng.normal(0, 15, hours)
    meters = private(load, name="load", unit="all", linf=2, l1=2.0 * min(hours, 10))
    on = cp.Variable((hours, stations), boolean=True, name="on")
    power = cp.Variable((hours, stations), nonneg=True, name="power")
    size, fixed, cost = rng.uniform(350, 500, stations), rng.uniform(300, 500, stations), rng.uniform(1, 3, stations)
    return cp.Minimize(cp.sum(on @ fixed) + cp.sum(power @ cost)), [
        cp.sum(power, axis=1) >= meters,
        power <= cp.multiply(on, np.tile(size, (hours, 1))),
    ]


@model(10, 100, 1000, due=SAFELY)
def blending(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A fuel blended of lots whose properties are means of confidential laboratory samples: private rows of A."""
    properties = rng.uniform(20, 80, (3, n))
    laboratory = private(properties, name="properties", unit="all", linf=100 / 2000, bounds=[0, 100])
    share = cp.Variable(n, nonneg=True, name="share")
    return cp.Minimize(rng.uniform(10, 40, n) @ share), [
        cp.sum(share) == 1,
        laboratory @ share <= 65,
        share <= np.maximum(0.3, 2.0 / n),
    ]


@model(10, 100, 1000, due=SAFELY)
def cutting_stock(n: int, rng: np.random.Generator, private: Make) -> Any:
    """How many rolls to cut by each of n patterns, for orders of eight widths; a customer orders at most four."""
    widths = rng.uniform(12, 45, 8)
    patterns = np.zeros((8, n))
    for column in range(n):
        left = 100.0
        for width in rng.permutation(8):
            patterns[width, column] = rng.integers(0, int(left // widths[width]) + 1)
            left -= patterns[width, column] * widths[width]
    patterns[np.arange(8), np.arange(8)] = np.maximum(patterns[np.arange(8), np.arange(8)], 1)
    ordered = rng.poisson(150, 8).astype(float)
    orders = private(ordered, name="orders", unit="all", l1=4, integer=True)
    rolls = cp.Variable(n, integer=True, name="rolls")
    return cp.Minimize(cp.sum(rolls)), [patterns @ rolls >= orders, rolls >= 0, rolls <= 400]


@model(8, 100, 1000, due=ALWAYS)
def machine_hours(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The best product mix, where hours per unit are averages over operators' logs: a private A with a public b."""
    hours = rng.uniform(0.2, 2.0, (5, n))
    logs = private(hours, name="hours", unit="all", linf=3 / 1000, bounds=[0, 3])
    units = cp.Variable(n + 4, bounds=[0, 40], name="units")
    profit = rng.uniform(5, 15, n + 4)
    return cp.Maximize(profit @ units), [logs @ units[:n] <= 40.0 * np.sqrt(n), cp.sum(units) <= 30 * np.sqrt(n)]


@model(6, 60, 600, due=SAFELY)
def newsvendor(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Stock of n goods against their mean demand, and a price for what is short: b inside a positive part."""
    sold = rng.poisson(90, n).astype(float)
    buyers = dpm.Records("buyers", neighbors="add-remove")
    demand = private(sold, name="demand", unit="entry", linf=1, nonneg=True, records=buyers)
    stock, short = cp.Variable(n, nonneg=True, name="stock"), cp.Variable(n, nonneg=True, name="short")
    return cp.Minimize(rng.uniform(2, 4, n) @ stock + 9 * cp.sum(short)), [
        stock + short >= demand,
        cp.sum(stock) <= 80 * n,
    ]


@model(6, 100, 1000, due=NEARLY)
def smoothed_production(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Production that changes little from month to month (a quadratic cost) and adds up to what customers ordered."""
    ordered = rng.poisson(300, n).astype(float)
    orders = private(ordered, name="orders", unit="entry", linf=3)
    make = cp.Variable(n + 5, bounds=[0, 600], name="make")
    return cp.Minimize(cp.sum_squares(cp.diff(make)) + cp.sum(make)), [cp.cumsum(make)[5:] >= cp.cumsum(orders)]
