"""Money: portfolios (linear, quadratic, second-order cone), robust ones, lending, taxes, funds."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from .registry import ALWAYS, COSTS, NEARLY, SAFELY, Make, model


def covariance(n: int, rng: np.random.Generator) -> np.ndarray:
    """A factor model's covariance of n returns, in per cent squared."""
    factors = rng.normal(0, 1, (n, 3))
    return factors @ factors.T + np.diag(rng.uniform(0.5, 2, n))


@model(10, 100, 1000, **COSTS)
def portfolio_linear(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Returns expected by 60 advisers, each naming -10 to 10 per cent for every asset; limits are public."""
    expected = rng.normal(2, 2, n).clip(-10, 10)
    returns = private(expected, name="returns", unit="all", linf=20 / 60, bounds=[-10, 10])
    weight = cp.Variable(n, nonneg=True, name="weight")
    return cp.Maximize(returns @ weight), [cp.sum(weight) == 1, weight <= max(0.2, 3 / n)]


@model(10, 100, 1000, **COSTS)
def portfolio_quadratic(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Markowitz: expected returns are private, risk is a public quadratic form."""
    expected = rng.normal(2, 2, n).clip(-10, 10)
    returns = private(expected, name="returns", unit="all", linf=20 / 2000, bounds=[-10, 10])
    weight = cp.Variable(n, nonneg=True, name="weight")
    risk = cp.quad_form(weight, cp.psd_wrap(covariance(n, rng)))
    return cp.Maximize(returns @ weight - 0.5 * risk), [cp.sum(weight) == 1]


@model(10, 100, 1000, **COSTS)
def portfolio_cone(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Returns as before, with the standard deviation held below a limit: a second-order cone."""
    expected = rng.normal(2, 2, n).clip(-10, 10)
    returns = private(expected, name="returns", unit="all", linf=20 / 2000, bounds=[-10, 10])
    weight = cp.Variable(n, nonneg=True, name="weight")
    root = np.linalg.cholesky(covariance(n, rng))
    return cp.Maximize(returns @ weight), [cp.sum(weight) == 1, cp.norm2(root.T @ weight) <= 2]


@model(10, 100, 1000, **COSTS)
def portfolio_robust(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The best worst case when returns may lie in a public ellipsoid around the advisers' private mean."""
    expected = rng.normal(2, 2, n).clip(-10, 10)
    returns = private(expected, name="returns", unit="all", linf=20 / 1000, bounds=[-10, 10])
    weight = cp.Variable(n, nonneg=True, name="weight")
    return cp.Maximize(returns @ weight - 1.5 * cp.norm2(cp.multiply(rng.uniform(0.2, 2, n), weight))), [
        cp.sum(weight) == 1
    ]


@model(10, 50, 500, due=NEARLY)
def portfolio_scenarios(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Conditional value at risk over 2 n scenarios; 30 desks' returns make up each entry of a private A."""
    scenarios = rng.normal(1, 3, (2 * n, n)).clip(-10, 10)
    returns = private(scenarios, name="scenarios", unit="all", linf=20 / 20000, row_l1=n * 20 / 20000, bounds=[-10, 10])
    weight, excess = cp.Variable(n, bounds=[0, 1], name="weight"), cp.Variable(2 * n, bounds=[0, 30], name="excess")
    tail = cp.Variable(bounds=[-20, 20], name="tail")
    return cp.Minimize(tail + cp.sum(excess) / (0.1 * 2 * n)), [
        cp.sum(weight) == 1,
        excess + tail >= -(returns @ weight),
    ]


@model(12, 100, 1000, **COSTS)
def microloans(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Money lent to n applicants by scores, one score per applicant, within a limit for each of four regions."""
    score = rng.uniform(0, 1, n)
    applicants = private(score, name="scores", unit="entry", bounds=[0, 1])
    region = (np.arange(n) % 4 == np.arange(4)[:, None]).astype(float)
    lend = cp.Variable(n, bounds=[0, 1], name="lend")
    return cp.Maximize(applicants @ lend), [region @ lend <= n / 12]


@model(8, 100, 1000, due=SAFELY)
def relief_fund(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Shares of a fund as equal as can be, each town's at least its damage; a claim is at most 2 (thousand)."""
    claims = rng.gamma(3, 40, n)
    damage = private(claims.round(1), name="damage", unit="entry", linf=2)
    pay, largest = cp.Variable(n + 2, nonneg=True, name="pay"), cp.Variable(name="largest")
    return cp.Minimize(10 * largest + cp.sum(pay)), [pay[:n] >= damage, pay <= largest, largest <= 2000]


@model(10, 100, 1000, due=ALWAYS)
def proportional_fairness(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Bandwidth by logarithmic utility, on links whose room is what subscribers leave (private b)."""
    room = rng.uniform(40, 60, max(4, n // 5))
    links = private(room, name="room", unit="all", l1=1, linf=0.5, bounds=[30, 80])
    uses = (rng.random((room.size, n)) < 0.3).astype(float)
    uses[np.arange(n) % room.size, np.arange(n)] = 1
    rate = cp.Variable(n, bounds=[0.01, 100], name="rate")
    return cp.Maximize(cp.sum(cp.log(rate))), [uses @ rate <= links]
