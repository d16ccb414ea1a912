"""Small models with data, one of each kind, that any mechanism of their family can be audited on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel import linalg
from dpmodel.audit.neighbors import Data, System
from dpmodel.marks import Records
from dpmodel.marks.shares import Shares
from dpmodel.privacy.noise import public_generator

Make = Callable[..., Any]
_COUNT = 400


def costs(private: Make) -> Any:
    """A private objective over a simplex: c, low."""
    c = private([3.25, 2.125, 2.5, 4.0625], name="c", l1=0.05, linf=0.025, bounds=[0, 8])
    x = cp.Variable(4, nonneg=True, name="x")
    return cp.Minimize(c @ x), [cp.sum(x) == 1]


def needs(private: Make) -> Any:
    """Private right-hand sides, two parameters of the same people: b, low."""
    people = Records("people")
    b = private([73.21, 51.28, 64.57], name="b", unit="entry", linf=1, bounds=[0, 200], records=people)
    more = private([3.98, 4.82, 2.79], name="more", unit="entry", linf=0.5, bounds=[0, 20], records=people)
    x = cp.Variable(3, bounds=[0, 300], name="x")
    return cp.Minimize(cp.Constant([1.0, 2.0, 1.5], name="price") @ x), [x >= b + 2 * more, cp.sum(x) <= 600]


def coefficients(private: Make) -> Any:
    """Private coefficients, a record owns a row: A, low."""
    rows = np.array([[1.03, 0.52, 1.24, 0.81], [0.44, 1.57, 0.23, 1.06], [1.02, 1.01, 1.05, 0.33]])
    A = private(rows, name="A", unit="row", l1=0.02, linf=0.01, bounds=[0, 2])
    x = cp.Variable(4, bounds=[0, 3], name="x")
    return cp.Maximize(np.array([1.0, 2.0, 1.5, 3.0]) @ x), [A @ x <= 6.0]


def people(private: Make) -> Any:
    """Everybody owns a constraint: rows, high."""
    rows = public_generator(8).uniform(0, 0.85, (_COUNT, 3))
    A = private(rows, name="A", unit="row", bounds=[0, 1], records=Records("people"))
    x = cp.Variable(3, nonneg=True, name="x")
    return cp.Minimize(0), [A @ x <= 0.9, cp.sum(x) == 1]


def shares(private: Make) -> Any:
    """Private right-hand sides over a simplex, summed over records: b, low."""
    b = private([0.6212, 0.6431, 0.7323, 0.9427], name="b", linf=1e-3, bounds=[0, 1])
    x = cp.Variable(3, nonneg=True, name="x")
    A = np.array([[0.5, 1.0, 0.25], [0.5, 0.25, 1.0], [1.0, 0.5, 0.5], [0.05, 0.5, 1.5]])
    return cp.Minimize(0), [A @ x <= b, cp.sum(x) == 1]


def _rows(private: Make, labels: Callable[[Any], Any], **declared: Any) -> tuple[Any, Any, int]:
    rng, records = public_generator(9), Records("rows")
    X = rng.uniform(-1, 1, (_COUNT, 2))
    y = labels(X @ [0.6, -0.3] + 0.1 * rng.normal(size=_COUNT))
    table = private(X, name="X", unit="row", bounds=[-1, 1], records=records)
    return table, private(y, name="y", unit="entry", records=records, **declared), _COUNT


def least_squares(private: Make) -> Any:
    """A regression over an l1 ball."""
    X, y, count = _rows(private, lambda score: score.clip(-1, 1), bounds=[-1, 1])
    w = cp.Variable(2, name="w")
    return cp.Minimize(cp.sum_squares(X @ w - y) / count), [cp.norm1(w) <= 1]


def chances(private: Make) -> Any:
    """A logistic regression with a ridge."""
    X, s, count = _rows(private, np.sign, bounds=[-1, 1])
    w = cp.Variable(2, name="w")
    return cp.Minimize(cp.sum(cp.logistic(-cp.multiply(s, X @ w))) / count + 0.1 * cp.sum_squares(w)), [
        cp.norm2(w) <= 2
    ]


def households(private: Make) -> Any:
    """Everybody owns shares, and values them as they like: objective, high, under joint privacy."""
    rng, records = public_generator(15), Records("households")
    values = private(rng.uniform(0, 1, (60, 4)), name="values", unit="row", records=records)
    wish = private(rng.uniform(1, 3, 60), name="wish", unit="entry", bounds=[0, 4], records=records)
    x = Shares((60, 4), records=records, nonneg=True, name="x")
    limits = [cp.sum(x, axis=0) <= 15, cp.sum(x, axis=1) <= wish, x <= 1]
    return cp.Maximize(cp.sum(cp.multiply(values, x))), limits


# ------------------------------------------------------------------ exact systems
def _plane() -> Any:
    free = public_generator(10).integers(0, 7, (900, 2))
    return np.hstack([free, (free @ [[1, 1], [0, 1]]) % 7])


def _limits() -> tuple[Any, Any]:
    A = public_generator(11).normal(size=(3000, 2))
    return A, A @ [1.0, 2.0] + np.linalg.norm(A, axis=1)


def _integer_limits() -> tuple[Any, Any]:
    rng = public_generator(12)
    A = rng.integers(-3, 4, (4000, 2))
    return A, A @ [2, 1] + rng.integers(0, 3, 4000)


def _one_hot() -> Any:
    rng = public_generator(14)
    first, second = rng.choice(4, 1500, p=[0.45, 0.3, 0.2, 0.05]), rng.choice(3, 1500, p=[0.6, 0.35, 0.05])
    return np.hstack([np.eye(4, dtype=int)[first], np.eye(3, dtype=int)[second], (first + second)[:, None]])


_TWO = {"blocks": [range(4), range(4, 7)]}
_ONE = {"neighbors": "replace-one"}
SYSTEMS = (
    System(linalg.span, (_plane(),), ([1, 2, 3, 4],), {"field": linalg.GF(7), **_ONE}, "span"),
    System(
        linalg.feasible_point, _limits(), ([5.0, -3.0], -9.0), {"margin": {"radius": 1, "within": 3}, **_ONE}, "limits"
    ),
    System(linalg.feasible_point, _integer_limits(), ([1, 1], -9), {"bound": 20, **_ONE}, "limits in integers"),
    System(
        linalg.point_in_hull,
        (public_generator(13).integers(0, 11, (6000, 1)),),
        ([10],),
        {"lower": 0, "upper": 10, "step": 1, **_ONE},
        "points",
    ),
    System(linalg.span, (_one_hot(),), ([0, 0, 0, 1, 0, 0, 1, 5],), {"field": linalg.QQ, **_TWO, **_ONE}, "one-hot"),
)
# Where shares are handed out one by one.
JOINT = Data(households, {"release": "joint"}, name="households")
MODELS = (
    *(
        Data(write, name=write.__name__)
        for write in (costs, needs, coefficients, people, shares, least_squares, chances)
    ),
    # Where every private constraint has to hold for certain.
    Data(coefficients, {"feasibility": "strict"}, name="coefficients, strict"),
    JOINT,
    *SYSTEMS,
)
