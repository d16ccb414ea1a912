"""Equations and efficiency: exact systems of integers, data envelopment analysis, calibration, balances."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm

from .registry import NEARLY, SAFELY, Make, model


@model(12, 100, 1000, due=NEARLY, quick=False)
def efficiency(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Data envelopment analysis of one branch against n others: each owns a column of inputs and one of outputs."""
    inputs, outputs = rng.uniform(2, 9, (3, n)), rng.uniform(1, 6, (2, n))
    branches = dpm.Records("branches")
    used = private(inputs, name="inputs", unit="column", bounds=[0, 10], records=branches)
    made = private(outputs, name="outputs", unit="column", bounds=[0, 10], records=branches)
    mix, share = cp.Variable(n, bounds=[0, 1], name="mix"), cp.Variable(bounds=[0, 1], name="share")
    own_use, own_make = np.full(3, 8.0), np.full(2, 2.0)
    return cp.Minimize(share), [used @ mix <= share * own_use, made @ mix >= own_make, cp.sum(mix) == 1]


@model(12, 100, 1000, due=NEARLY)
def efficiency_of_averages(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The same where each branch's figures are means over 50,000 customers, so that one person moves little."""
    inputs, outputs = rng.uniform(2, 9, (3, n)), rng.uniform(1, 6, (2, n))
    customers = dpm.Records("customers")
    small = 10 / 50000
    used = private(inputs, name="inputs", unit="column", linf=small, bounds=[0, 10], records=customers)
    made = private(outputs, name="outputs", unit="column", linf=small, bounds=[0, 10], records=customers)
    mix, share = cp.Variable(n, bounds=[0, 1], name="mix"), cp.Variable(bounds=[0, 1], name="share")
    own_use, own_make = np.full(3, 8.0), np.full(2, 2.0)
    return cp.Minimize(share), [used @ mix <= share * own_use, made @ mix >= own_make, cp.sum(mix) == 1]


@model(10, due=NEARLY, quick=False)
def exact_equations(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The ten whole prices behind 2,000 private receipts (quantities and a sum), solved exactly."""
    prices = rng.integers(1, 9, n)
    quantities = rng.integers(0, 3, (2000, n))
    people = dpm.Records("receipts")
    A = private(quantities, name="quantities", unit="row", bounds=[0, 2], integer=True, records=people)
    b = private(quantities @ prices, name="sums", unit="entry", bounds=[0, 200], integer=True, records=people)
    price = cp.Variable(n, bounds=[0, 20], name="price")
    return cp.Minimize(0), [A @ price == b]


@model(14, 120, 1200, due=NEARLY)
def survey_weights(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Weights near one for n public strata, such that weighted totals meet the counts of a private register."""
    groups = (np.arange(n) % 6 == np.arange(6)[:, None]).astype(float)
    people = dpm.Records("register", neighbors="add-remove")
    counts = rng.poisson(40 * n / 6, 6).astype(float)
    totals = private(counts, name="totals", unit="entry", linf=1, nonneg=True, records=people)
    weight = cp.Variable(n, nonneg=True, name="weight")
    return cp.Minimize(cp.sum_squares(weight - 40)), [groups @ weight == totals]


@model(4, 11, 35, due=NEARLY)
def trade_table(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A table of trade between n regions nearest to an old one, with private totals of rows and columns."""
    old = rng.gamma(2, 30, (n, n))
    new = old * rng.uniform(0.8, 1.3, (n, n))
    firms = dpm.Records("firms")
    out = private(new.sum(axis=1), name="exports", unit="entry", linf=5, records=firms)
    into = private(new.sum(axis=0), name="imports", unit="entry", linf=5, records=firms)
    flow = cp.Variable((n, n), nonneg=True, name="flow")
    return cp.Minimize(cp.sum(cp.abs(flow - old))), [cp.sum(flow, axis=1) == out, cp.sum(flow, axis=0) == into]


@model(10, 100, 1000, due=SAFELY)
def emission_limits(n: int, rng: np.random.Generator, private: Make) -> Any:
    """What n factories may emit without any of twelve towns, whose background load is private, passing its limit."""
    spreads = rng.uniform(0, 1, (12, n)) / n
    background = rng.uniform(10, 30, 12)
    load = private(background, name="load", unit="entry", linf=0.2)
    emit = cp.Variable(n, bounds=[0, 200], name="emit")
    return cp.Maximize(rng.uniform(1, 3, n) @ emit), [spreads @ emit <= 100 - load]


@model(10, 100, 1000, due=NEARLY, quick=False)
def chebyshev_centre(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The plan farthest from any of twenty limits that departments set as they please between 50 and 100."""
    share = rng.uniform(0, 2, (20, n)) / n
    wishes = rng.uniform(60, 100, 20)
    limits = private(wishes, name="limits", unit="entry", bounds=[50, 100])
    x, room = cp.Variable(n, bounds=[0, 100], name="x"), cp.Variable(bounds=[0, 100], name="room")
    return cp.Maximize(room + 0.01 * cp.sum(x) / n), [
        share @ x + room * np.linalg.norm(share, axis=1) <= limits,
        x >= room / n,
    ]


@model(10, 100, 1000, due=NEARLY)
def crop_rotation(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Crops by private yields (means over 300 farms) within private water rights: c and b, two registers."""
    yields, rights = rng.uniform(2, 8, n), rng.uniform(90, 140, 5)
    farms = private(yields, name="yields", unit="all", linf=10 / 300, bounds=[0, 10], records=dpm.Records("farms"))
    water = private(rights, name="rights", unit="entry", linf=1, bounds=[0, 200], records=dpm.Records("wells"))
    area = cp.Variable(n, bounds=[0, 30], name="area")
    return cp.Maximize(farms @ area), [rng.uniform(0, 2, (5, n)) @ area <= water, cp.sum(area) <= 60]
