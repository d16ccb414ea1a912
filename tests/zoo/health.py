"""Hospitals and diets: beds, staff, vaccines, ambulances, menus."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm

from .registry import ALWAYS, COSTS, NEARLY, SAFELY, Make, model


@model(5, 50, 500, due=SAFELY)
def beds(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Wards get beds and nurses for the patients they expect; one patient is in one ward."""
    counts = rng.integers(12, 90, n).astype(float)
    people = dpm.Records("patients", neighbors="add-remove")
    patients = private(counts, name="patients", unit="entry", linf=1, nonneg=True, records=people)
    bed, nurses = cp.Variable(n, nonneg=True, name="beds"), cp.Variable(n, nonneg=True, name="nurses")
    return cp.Minimize(rng.uniform(200, 400, n) @ bed + 300 * cp.sum(nurses)), [
        bed >= patients,
        4 * nurses >= bed,
        cp.sum(bed) <= 100 * n,
    ]


@model(10, 100, 1000, due=ALWAYS)
def diet(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The cheapest menu that meets the mean needs of 400 patients; needs lie in known ranges."""
    nutrients = 6
    content = rng.uniform(0.1, 1.0, (nutrients, n))
    needs = rng.uniform(45, 55, nutrients)
    need = private(needs, name="need", unit="all", linf=40 / 400, bounds=[30, 70])
    grams = cp.Variable(n, bounds=[0, 80], name="grams")
    return cp.Minimize(rng.uniform(1, 3, n) @ grams), [content @ grams >= need]


@model(10, 100, 1000, **COSTS)
def liked_diet(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The menu that patients like most within a price; 500 rate every dish from 0 to 1, and the mean counts."""
    likes = rng.beta(2, 2, n)
    rating = private(likes, name="rating", unit="all", linf=1 / 500, bounds=[0, 1])
    share = cp.Variable(n, nonneg=True, name="share")
    return cp.Maximize(rating @ share), [cp.sum(share) == 1, rng.uniform(3, 9, n) @ share <= 6, share <= 0.4]


@model(7, 18, 45, due=SAFELY)
def staff_rota(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Five-day shifts that start on any of n days cover the calls of each day and hour; a caller made one call."""
    hours = {7: 6, 18: 8}.get(n, 24)
    calls = rng.poisson(60, (n, hours)).astype(float)
    callers = dpm.Records("callers", neighbors="add-remove")
    demand = private(calls, name="calls", unit="entry", linf=1, nonneg=True, records=callers)
    works = np.array([[(day - start) % n < 5 for start in range(n)] for day in range(n)], dtype=float)
    staff = cp.Variable((n, hours), nonneg=True, name="staff")
    return cp.Minimize(cp.sum(cp.multiply(rng.uniform(90, 120, (n, hours)), staff))), [12 * works @ staff >= demand]


@model(10, 100, 1000, **COSTS)
def vaccines(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Doses go where they save most; a region's risk is estimated from case counts, a case is in one region."""
    cases = rng.poisson(80, n).astype(float)
    people = dpm.Records("cases", neighbors="add-remove")
    risk = private(cases, name="cases", unit="entry", linf=1, nonneg=True, records=people)
    doses = cp.Variable(n, nonneg=True, name="doses")
    return cp.Maximize(risk @ doses / 80), [cp.sum(doses) <= n / 4, doses <= 1]


@model(4, 12, 40, due=SAFELY)
def ambulances(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Stations, whole or not built, and their ambulances for the calls of n districts; a household calls once a day."""
    stations = max(4, n)
    near = rng.random((n, stations)) < 0.5
    near[np.arange(n), np.arange(n)] = True
    calls = rng.poisson(120, n).astype(float)
    demand = private(calls, name="calls", unit="entry", linf=1)
    built = cp.Variable(stations, boolean=True, name="built")
    serve = cp.Variable((n, stations), nonneg=True, name="serve")
    return cp.Minimize(rng.uniform(50, 90, stations) @ built + 0.1 * cp.sum(serve)), [
        cp.sum(cp.multiply(near.astype(float), serve), axis=1) >= demand,
        cp.sum(serve, axis=0) <= 500 * built,
    ]


@model(6, 20, 60, due=NEARLY)
def allocation_with_private_costs_and_needs(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Clinics serve districts; both what a visit costs patients and how many need one come from the same survey."""
    survey = dpm.Records("respondents")
    clinics = max(3, n // 3)
    minutes = rng.uniform(5, 60, (n, clinics))
    needs = rng.poisson(500, n).astype(float)
    time = private(minutes, name="minutes", unit="all", linf=60 / 3000, bounds=[0, 60], records=survey)
    need = private(needs, name="need", unit="all", l1=2, linf=1, bounds=[0, 1000], records=survey)
    visits = cp.Variable((n, clinics), bounds=[0, 1000], name="visits")
    return cp.Minimize(cp.sum(cp.multiply(time, visits))), [
        cp.sum(visits, axis=1) >= need,
        cp.sum(visits, axis=0) <= 900.0 * n / clinics,
    ]
