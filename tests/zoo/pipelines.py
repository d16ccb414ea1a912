"""Regressions and classifiers, written as CVXPY models: a row and a label per person, bounds that are public."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm

from .registry import Make, model

# Planning one takes seconds of simulation, so none of them is quick.
DEFAULT = ("centred",)  # no constraint is private: nothing to be feasible about


def table(n: int, rng: np.random.Generator, rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Answers in [-1, 1] of ``rows`` people to n questions, and a score that five of them explain."""
    answers = rng.uniform(-1, 1, (rows, n))
    weights = np.zeros(n)
    weights[:5] = 0.4, -0.3, 0.2, 0.1, -0.1
    return answers, answers @ weights + 0.1 * rng.normal(size=rows)


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def lasso(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A score from few of many answers: least squares in an l1 ball."""
    answers, score = table(n, rng)
    people = dpm.Records("people")
    X = private(answers, name="answers", unit="row", bounds=[-1, 1], records=people)
    y = private(score.clip(-1.5, 1.5), name="score", unit="entry", bounds=[-1.5, 1.5], records=people)
    w = cp.Variable(n, name="w")
    return cp.Minimize(cp.sum_squares(X @ w - y) / y.size), [cp.norm1(w) <= 1.2]


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def ridge(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Rent from n traits of flats, with an intercept; a tenant may be absent."""
    traits, score = table(n, rng)
    rent = (3 + score).clip(1, 5)
    tenants = dpm.Records("tenants", neighbors="add-remove")
    X = private(traits / np.sqrt(n), name="traits", unit="row", max_l2=1, records=tenants)
    y = private(rent, name="rent", unit="entry", bounds=[0, 5], records=tenants)
    w, level = cp.Variable(n, name="w"), cp.Variable(name="level")
    return cp.Minimize(cp.sum_squares(X @ w + level - y) / y.size + 0.05 * cp.sum_squares(w)), [
        cp.norm2(w) <= 8,
        cp.abs(level) <= 5,
    ]


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def logistic(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Who will move house, from n answers."""
    answers, score = table(n, rng)
    moves = np.sign(score + 0.2 * rng.logistic(size=score.size))
    people = dpm.Records("people")
    X = private(answers, name="answers", unit="row", bounds=[-1, 1], records=people)
    y = private(moves, name="moves", unit="entry", bounds=[-1, 1], records=people)
    w = cp.Variable(n, name="w")
    return cp.Minimize(cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / y.size), [cp.norm1(w) <= 5]


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def support_vectors(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A support vector machine that tells spam by n traits of the text; unit 2-norm rows, an intercept, a ridge."""
    traits, score = table(n, rng)
    spam = np.where(score > 0.1, 1.0, -1.0)
    people = dpm.Records("senders")
    X = private(traits / np.sqrt(n), name="traits", unit="row", max_l2=1, records=people)
    y = private(spam, name="spam", unit="entry", bounds=[-1, 1], records=people)
    w, level = cp.Variable(n, name="w"), cp.Variable(name="level")
    return cp.Minimize(cp.sum(cp.pos(1 - cp.multiply(y, X @ w + level))) / y.size + 0.01 * cp.sum_squares(w)), [
        cp.norm2(w) <= 10,
        cp.abs(level) <= 3,
    ]


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def huber(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Heating bills with a few wild ones: Huber's loss inside a box."""
    answers, score = table(n, rng)
    bill = np.where(rng.random(score.size) < 0.03, 4.0, score).clip(-4, 4)
    people = dpm.Records("households")
    X = private(answers, name="answers", unit="row", bounds=[-1, 1], records=people)
    y = private(bill, name="bill", unit="entry", bounds=[-4, 4], records=people)
    w = cp.Variable(n, bounds=[-1, 1], name="w")
    return cp.Minimize(cp.sum(cp.huber(X @ w - y, 0.5)) / y.size), []


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def quantile(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The upper quartile of waiting times, most of which are zero: a pinball loss."""
    answers, score = table(n, rng)
    wait = np.where(rng.random(score.size) < 0.6, 0.0, (1 + score)).clip(0, 3)
    people = dpm.Records("patients")
    X = private(answers, name="answers", unit="row", bounds=[-1, 1], records=people)
    y = private(wait, name="wait", unit="entry", bounds=[0, 3], records=people)
    w, level = cp.Variable(n, name="w"), cp.Variable(name="level")
    short = y - X @ w - level
    return cp.Minimize(cp.sum(cp.maximum(0.75 * short, -0.25 * short)) / y.size), [cp.norm1(w) <= 2, cp.abs(level) <= 3]


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def absolute_deviations(n: int, rng: np.random.Generator, private: Make) -> Any:
    """House prices by least absolute deviations; columns in units of their own (rooms, area, distance)."""
    answers, score = table(n, rng)
    low, high = np.resize([1.0, 20.0, 0.0], n), np.resize([8.0, 300.0, 30.0], n)
    houses = (low + high) / 2 + answers * (high - low) / 2
    people = dpm.Records("owners")
    X = private(houses, name="houses", unit="row", bounds=[low, high], records=people)
    y = private((2 + score).clip(0, 4), name="price", unit="entry", bounds=[0, 4], records=people)
    w, level = cp.Variable(n, name="w"), cp.Variable(name="level")
    return cp.Minimize(cp.sum(cp.abs(X @ w + level - y)) / y.size), [cp.norm1(w) <= 1, cp.abs(level) <= 10]


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def synthetic_control(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The mixture of n public regions that goes like ours did in 2,000 private weeks: weights on a simplex."""
    others = rng.uniform(0, 1, (2000, n))
    ours = (others[:, :3] @ [0.5, 0.3, 0.2] + 0.05 * rng.normal(size=2000)).clip(0, 1)
    y = private(ours, name="ours", unit="entry", bounds=[0, 1])
    w = cp.Variable(n, nonneg=True, name="w")
    return cp.Minimize(cp.sum_squares(others @ w - y) / 2000), [cp.sum(w) == 1]


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def nonnegative_least_squares(n: int, rng: np.random.Generator, private: Make) -> Any:
    """How much of n sources is in 2,000 people's exposure: coefficients are at least zero and at most one."""
    sources = rng.beta(1, 4, (2000, n))
    exposure = (sources[:, :4] @ [0.6, 0.3, 0.2, 0.1] + 0.02 * rng.normal(size=2000)).clip(0, 2)
    people = dpm.Records("people")
    X = private(sources, name="sources", unit="row", bounds=[0, 1], records=people)
    y = private(exposure, name="exposure", unit="entry", bounds=[0, 2], records=people)
    w = cp.Variable(n, bounds=[0, 1], name="w")
    return cp.Minimize(cp.sum_squares(X @ w - y) / 2000), []


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def wages(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Log wages on experience, its powers and dummies: columns that go together, thousands of rows, no constraints."""
    years = rng.uniform(0, 1, 4000)
    columns = [years, years**2, years**3]
    dummies = (rng.random((4000, n - 3)) < 0.3).astype(float)
    design = np.column_stack([*columns, dummies])
    wage = (2 + 1.2 * years - 0.8 * years**2 + 0.2 * dummies[:, 0] + 0.3 * rng.normal(size=4000)).clip(0, 5)
    people = dpm.Records("workers")
    X = private(design, name="design", unit="row", bounds=[0, 1], records=people)
    y = private(wage, name="wage", unit="entry", bounds=[0, 5], records=people)
    w, level = cp.Variable(n, name="w"), cp.Variable(name="level")
    return cp.Minimize(cp.sum_squares(X @ w + level - y) / 4000 + 1e-3 * cp.sum_squares(w)), []


@model(12, 100, 1000, due=DEFAULT, modes=DEFAULT, quick=False)
def elastic_net(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A risk score from n genes' activity: squared loss, an l1 and an l2 penalty."""
    genes, score = table(n, rng)
    people = dpm.Records("patients")
    X = private(genes, name="genes", unit="row", bounds=[-1, 1], records=people)
    y = private(score.clip(-2, 2), name="risk", unit="entry", bounds=[-2, 2], records=people)
    w = cp.Variable(n, bounds=[-2, 2], name="w")
    return cp.Minimize(cp.sum_squares(X @ w - y) / 2000 + 0.02 * cp.norm1(w) + 0.02 * cp.sum_squares(w)), []
