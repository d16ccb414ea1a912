"""Curved models: entropy, semidefinite relaxations, ellipsoids, geometric means, control, robust counterparts."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

import dpmodel as dpm

from .registry import ALWAYS, COSTS, NEARLY, SAFELY, Make, model


@model(10, 100, 1000, due=NEARLY)
def maximum_entropy(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The most even distribution over n values with the mean and second moment of 5,000 people's answers."""
    grid = np.linspace(0, 1, n)
    answers = rng.beta(2, 5, 5000)
    moments = private(
        np.array([answers.mean(), (answers**2).mean()]), name="moments", unit="all", linf=1 / 5000, bounds=[0, 1]
    )
    share = cp.Variable(n, nonneg=True, name="share")
    return cp.Maximize(cp.sum(cp.entr(share))), [cp.sum(share) == 1, np.vstack([grid, grid**2]) @ share == moments]


@model(10, 100, 1000, **COSTS)
def regularised_choice(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A lottery over n prizes by private votes, with an entropy bonus that keeps it mixed."""
    votes = rng.multinomial(4000, rng.dirichlet(np.ones(n))) / 4000
    share = private(votes, name="votes", unit="all", l1=2 / 4000, linf=1 / 4000, bounds=[0, 1])
    lottery = cp.Variable(n, nonneg=True, name="lottery")
    return cp.Maximize(share @ lottery + 0.05 * cp.sum(cp.entr(lottery))), [cp.sum(lottery) == 1]


@model(5, 12, 35, **COSTS, quick=False)
def max_cut(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The semidefinite relaxation of the largest cut of a friendship graph: one friendship moves two entries."""
    friends = np.triu(rng.random((n, n)) < 0.4, 1).astype(float)
    graph = private(friends + friends.T, name="friends", symmetric=True, unit="entry", linf=1, bounds=[0, 1])
    X = cp.Variable((n, n), symmetric=True, name="X")
    return cp.Minimize(cp.trace(graph @ X)), [X >> 0, cp.diag(X) == 1]


@model(4, 12, 32, **COSTS)
def factor_selection(n: int, rng: np.random.Generator, private: Make) -> Any:
    """The most telling direction of n questions (sparse principal components): a mean of 3,000 people's products."""
    answers = rng.normal(0, 0.4, (3000, n)) @ np.diag(np.linspace(1, 0.3, n))
    second = (answers.clip(-1, 1).T @ answers.clip(-1, 1)) / 3000
    moments = private(second, name="moments", symmetric=True, unit="all", linf=1 / 3000, l2=n / 3000, bounds=[-1, 1])
    X = cp.Variable((n, n), PSD=True, name="X")
    return cp.Maximize(cp.trace(moments @ X) - 0.05 * cp.sum(cp.abs(X))), [cp.trace(X) == 1]


@model(4, 12, 32, **COSTS, quick=False)
def sparse_inverse_covariance(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Which of n symptoms go together (graphical lasso): the covariance is a mean over 4,000 patients."""
    answers = rng.normal(0, 0.5, (4000, n)).clip(-1, 1)
    S = private(
        answers.T @ answers / 4000, name="covariance", symmetric=True, unit="all", linf=2 / 4000, l2=2 * n / 4000
    )
    P = cp.Variable((n, n), PSD=True, name="precision")
    return cp.Maximize(cp.log_det(P) - cp.trace(S @ P) - 0.05 * cp.sum(cp.abs(P))), [P << 20 * np.eye(n)]


@model(10, 100, 1000, due=SAFELY)
def least_power(n: int, rng: np.random.Generator, private: Make) -> Any:
    """n transmitters reach eight villages at least power (a quadratic); a village's need is the sum of its users'."""
    gain = rng.uniform(0.1, 1, (8, n))
    needs = rng.uniform(30, 60, 8)
    need = private(needs, name="need", unit="entry", linf=0.5)
    power = cp.Variable(n, nonneg=True, name="power")
    return cp.Minimize(cp.sum_squares(power)), [gain @ power >= need]


@model(8, 60, 500, due=NEARLY)
def control(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Heat n rooms in a row to within reach of what their tenants wish (each tenant one wish, 15 to 25 degrees)."""
    wishes = rng.uniform(17, 23, n)
    wish = private(wishes, name="wish", unit="entry", bounds=[15, 25])
    heat, room = cp.Variable(n, bounds=[0, 20], name="heat"), cp.Variable(n, bounds=[5, 35], name="room")
    mixing = np.eye(n) + 0.2 * np.eye(n, k=1) + 0.2 * np.eye(n, k=-1)
    return cp.Minimize(cp.sum(heat) + 0.01 * cp.sum_squares(heat)), [mixing @ heat + 8 == room, room >= wish - 4]


@model(9, 100, 1000, due=ALWAYS)
def robust_diet(n: int, rng: np.random.Generator, private: Make) -> Any:
    """A menu that meets private needs even where public contents err: a norm in every constraint."""
    content = rng.uniform(0.2, 1.0, (4, n))
    needs = rng.uniform(20, 30, 4)
    need = private(needs, name="need", unit="all", linf=20 / 500, bounds=[15, 35])
    grams = cp.Variable(n + 3, bounds=[0, 60], name="grams")
    lacking = [content[i] @ grams[:n] - 0.05 * cp.norm2(grams) >= need[i] for i in range(4)]
    return cp.Minimize(rng.uniform(1, 3, n + 3) @ grams), lacking


@model(10, 100, 1000, due=SAFELY)
def geometric_mean(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Land for n crops so that the geometric mean of eight villages' yields is largest, within water farmers report."""
    water = rng.uniform(80, 120, 3)
    people = dpm.Records("farmers", neighbors="add-remove")
    reported = private(water, name="water", unit="all", l1=1, linf=1, bounds=[0, 200], records=people)
    land = cp.Variable(n, bounds=[0, 10], name="land")
    yields = rng.uniform(0.1, 1, (8, n)) @ land
    return cp.Maximize(cp.geo_mean(yields)), [rng.uniform(0.1, 1, (3, n)) * (20 / n) @ land <= reported]


@model(10, 100, 1000, due=NEARLY)
def nearest_schedule(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Departures as near as can be (in absolute value) to riders' mean wishes, at least two minutes apart."""
    wishes = np.sort(rng.uniform(0, 4 * n, n))
    wish = private(wishes, name="wish", unit="entry", linf=0.5, bounds=[0, 4 * n])
    time = cp.Variable(n, bounds=[0, 4 * n], name="time")
    return cp.Minimize(cp.norm1(time - wish)), [cp.diff(time) >= 2]
