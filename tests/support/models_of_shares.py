"""Models whose records own their variables, written once: with private parameters and shares, and plainly in CVXPY."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm

# A model: from ``mark(array, **how it is declared)`` and ``shares(shape, **attributes)`` to objective and constraints.
Model = Callable[[Any, Any], tuple[Any, list[Any]]]


def marked(model: Model, records: dpm.Records | None = None) -> tuple[dpm.Problem, dpm.Shares]:
    """The problem of ``model`` with private parameters, and its shares."""
    people = records or dpm.Records("people")
    made: list[dpm.Shares] = []

    def shares(shape: Any, **attributes: Any) -> dpm.Shares:
        made.append(dpm.Shares(shape, records=people, name="x", **attributes))
        return made[0]

    def mark(value: Any, **declared: Any) -> dpm.Private:
        return dpm.Private(value, **{"unit": "row", "records": people, **declared})

    objective, constraints = model(mark, shares)
    return dpm.Problem(objective, constraints), made[0]


def plain(model: Model, value: Any) -> tuple[Any, list[Any]]:
    """The same model of constants, with shares of this value."""

    most: list[Any] = []

    def shares(shape: Any, **attributes: Any) -> cp.Variable:
        x = cp.Variable(shape)
        x.value = value
        most.extend([x <= attributes["bounds"][1]] if "bounds" in attributes else [])
        return x

    objective, constraints = model(lambda array, **declared: cp.Constant(array), shares)
    return objective, most + constraints


def charging(n: int, hours: int = 24, seed: int = 0, *, product: bool = False) -> Model:
    """Households charge cars under the capacity of their street."""
    rng = np.random.default_rng(seed)
    values, power, wish = rng.random((n, hours)), rng.uniform(0.5, 1, n), rng.uniform(3, 8, n)

    def model(mark: Any, shares: Any) -> tuple[Any, list[Any]]:
        x = shares((n, hours), nonneg=True)
        v, p = mark(values, name="values"), mark(power, name="power", unit="entry", bounds=[0.5, 1])
        w = mark(wish, name="wish", unit="entry", bounds=[0, 8])
        used = p @ x if product else cp.multiply(p[:, None], x).sum(axis=0)
        return cp.Maximize(cp.sum(cp.multiply(v, x))), [used <= 0.1 * n, cp.sum(x, axis=1) <= w, x <= 1]

    return model


def timetables(n: int, seed: int = 0, *, private: bool = False) -> Model:
    """Everybody takes a mix of six options of three meetings; a meeting has a supply of seats."""
    rng = np.random.default_rng(seed)
    slots, options = 12, 6
    catalog = np.zeros((n if private else 1, options, slots))
    for person in catalog:
        for option in person:
            option[rng.choice(slots, 3, replace=False)] = 1
    values = rng.random((n, options))

    def model(mark: Any, shares: Any) -> tuple[Any, list[Any]]:
        x = shares((n, options), nonneg=True)
        v = mark(values, name="values")
        if private:
            meetings = mark(catalog, name="meetings", bounds=[0, 1])
            taken = cp.sum(cp.multiply(meetings, x[:, :, None]), axis=(0, 1))
        else:
            taken = cp.sum(x @ catalog[0], axis=0)
        return cp.Maximize(cp.sum(cp.multiply(v, x))), [taken <= 0.2 * n, cp.sum(x, axis=1) <= 1]

    return model


def appointments(n: int, slots: int = 9, seed: int = 0, **attributes: Any) -> Model:
    """Everybody gets one slot at most."""
    values, supply = np.random.default_rng(seed).random((n, slots)), np.full(slots, 0.05 * n)

    def model(mark: Any, shares: Any) -> tuple[Any, list[Any]]:
        x = shares((n, slots), **(attributes or {"nonneg": True}))
        return cp.Maximize(cp.vdot(mark(values, name="values"), x)), [
            cp.sum(x, axis=0) <= supply,
            cp.sum(x, axis=1) <= 1,
        ]

    return model


def advertisers(n: int, count: int = 5, seed: int = 0) -> Model:
    """Everybody sees one advertiser's picture at most, who pays the bid for this person out of a budget."""
    rng = np.random.default_rng(seed)
    bids = rng.random((n, count)) * (rng.random((n, count)) < 0.5)

    def model(mark: Any, shares: Any) -> tuple[Any, list[Any]]:
        x = shares((n, count), nonneg=True)
        b = mark(bids, name="bids", bounds=[0, 1])
        return cp.Maximize(cp.sum(cp.multiply(b, x))), [
            cp.sum(cp.multiply(b, x), axis=0) <= 0.03 * n,
            cp.sum(x, axis=1) <= 1,
        ]

    return model
