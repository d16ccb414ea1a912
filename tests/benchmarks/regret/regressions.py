"""Regret of plans of regressions: what the chosen mechanism costs over the best eligible one.

Twenty models (six losses; no set, penalties, balls, boxes and simplices; 4 to 800 columns; 300 to 20,000 rows; dense
and sparse), three budgets with delta 0 and 1e-6, every eligible mechanism, the same seeds for all. Cost: mean excess of
the objective, on the rows given, over its optimum without privacy. Rows are drawn by rules that no population of the
package follows: common factors, lognormal and one-hot columns, moving averages, coefficients of unequal size, labels
with heavy, skewed or zero-inflated noise. ``--bank develop`` draws other models by other rules: settings are developed
on these, and reported on the others, of which ``--bank drawn`` has all sizes, columns, sets and labels drawn.

An optimum takes a solver up to a minute; ``--optima FILE`` keeps them.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.numerics.nearest_point import accelerated
from dpmodel.regressions.model import PrivateRegression
from tests.benchmarks.measuring import Expectations, Table, header, parser, short

DELTA = 1e-6
PUBLIC = "public-only"

# ---------------------------------------------------------------------------------------------------------- losses
# In CVXPY and in NumPy, of predictions z and labels y; the slopes on both sides of a kink.
Loss = tuple[Callable[[Any, Any], Any], Callable[[np.ndarray, np.ndarray], np.ndarray], tuple[float, float] | None]


def quantile(tau: float) -> Loss:
    return (
        lambda z, y: cp.maximum(tau * (y - z), (tau - 1) * (y - z)),
        lambda z, y: np.maximum(tau * (y - z), (tau - 1) * (y - z)),
        (-tau, 1 - tau),
    )


def huber(threshold: float) -> Loss:
    def value(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        r = np.abs(z - y)
        return np.where(r <= threshold, r * r, 2 * threshold * r - threshold**2)

    return lambda z, y: cp.huber(z - y, threshold), value, None


SQUARED: Loss = (lambda z, y: cp.square(z - y), lambda z, y: (z - y) ** 2, None)
ABSOLUTE: Loss = (lambda z, y: cp.abs(z - y), lambda z, y: np.abs(z - y), (-1.0, 1.0))
LOGISTIC: Loss = (lambda z, y: cp.logistic(-cp.multiply(y, z)), lambda z, y: np.logaddexp(0.0, -y * z), None)
HINGE: Loss = (lambda z, y: cp.pos(1 - cp.multiply(y, z)), lambda z, y: np.maximum(1 - y * z, 0.0), (-1.0, 0.0))

# ------------------------------------------------------------------------------------------------------------ sets
# Constraints on w, or the weight of a penalty: objective plus weight ||w||^2.
Within = Callable[[Any], list[Any]]


def l1(radius: float) -> Within:
    return lambda w: [cp.norm1(w) <= radius]


def l2(radius: float) -> Within:
    return lambda w: [cp.norm(w, 2) <= radius]


def box(size: float) -> Within:
    return lambda w: [w >= -size, w <= size]


def simplex(w: Any) -> list[Any]:
    return [w >= 0, cp.sum(w) == 1]


def free(w: Any) -> list[Any]:
    return []


# ---------------------------------------------------------------------------------------------------------- columns
# (n, p) rows in [-1, 1] or [0, 1].
Draw = np.random.Generator


def factors(draw: Draw, n: int, p: int) -> np.ndarray:
    """Four common factors of falling weight, squashed."""
    loads = draw.normal(size=(4, p)) / np.arange(1, 5)[:, None]
    return np.tanh(0.5 * (draw.normal(size=(n, 4)) @ loads + 0.7 * draw.normal(size=(n, p))))


def lognormal(draw: Draw, n: int, p: int) -> np.ndarray:
    """Amounts: most are small shares of the bound."""
    raw = np.exp(0.8 * draw.normal(size=(n, p)) + 0.4 * draw.normal(size=(n, 1)))
    return np.minimum(raw / 8.0, 1.0)


def one_hot(draw: Draw, n: int, p: int) -> sp.csr_array:
    """Five categorical variables of levels with frequencies like 1/k."""
    parts = []
    for size in np.diff(np.linspace(0, p, 6).astype(int)):
        chance = 1 / np.arange(1, size + 1)
        level = draw.choice(size, size=n, p=chance / chance.sum())
        parts.append(sp.csr_array((np.ones(n), (np.arange(n), level)), shape=(n, size)))
    return sp.csr_array(sp.hstack(parts))


def moving(draw: Draw, n: int, p: int) -> np.ndarray:
    """Neighbouring columns are correlated, as measurements along time are."""
    raw = draw.normal(size=(n, p + 6))
    return np.clip(sum(raw[:, k : k + p] for k in range(6)) / math.sqrt(6) / 2.5, -1, 1)


def mixed(draw: Draw, n: int, p: int) -> np.ndarray:
    """A few wide columns, binary ones of rare occurrence, and narrow ones."""
    out = draw.uniform(-1, 1, size=(n, p)) * np.where(np.arange(p) % 3 == 0, 1.0, 0.15)
    rare = np.arange(p) % 3 == 1
    out[:, rare] = draw.uniform(size=(n, int(rare.sum()))) < draw.uniform(0.02, 0.3, size=int(rare.sum()))
    return out


# Those of the other bank.
def autoregressive(draw: Draw, n: int, p: int) -> np.ndarray:
    out = draw.normal(size=(n, p))
    for j in range(1, p):
        out[:, j] = 0.8 * out[:, j - 1] + 0.6 * out[:, j]
    return np.clip(out / 3, -1, 1)


def beta(draw: Draw, n: int, p: int) -> np.ndarray:
    return draw.beta(0.6, 2.5, size=(n, p))


def bernoulli(draw: Draw, n: int, p: int) -> sp.csr_array:
    return sp.csr_array((draw.uniform(size=(n, p)) < 0.4 / np.sqrt(np.arange(1, p + 1))).astype(float))


def blocks(draw: Draw, n: int, p: int) -> np.ndarray:
    """Columns in groups of five that share most of their variance."""
    group = draw.uniform(-1, 1, size=(n, p // 5 + 1))[:, np.arange(p) // 5]
    return 0.75 * group + 0.25 * draw.uniform(-1, 1, size=(n, p))


def narrow(draw: Draw, n: int, p: int) -> np.ndarray:
    """A Laplace distribution well within its bounds."""
    return np.clip(draw.laplace(scale=0.2, size=(n, p)), -1, 1)


# ---------------------------------------------------------------------------------------------- coefficients and labels
def coefficients(draw: Draw, p: int, rule: str) -> np.ndarray:
    """(p,) of unequal size and random sign."""
    if rule == "student":
        return np.asarray(draw.standard_t(2, size=p))
    if rule == "levels":
        return draw.choice([0.001, 0.1, 0.3, 1.0], size=p, p=[0.4, 0.3, 0.2, 0.1]) * draw.choice([-1.0, 1.0], size=p)
    sizes = {
        "power": np.arange(1, p + 1) ** -1.0,
        "root": np.arange(1, p + 1) ** -0.5,
        "gamma": draw.gamma(0.5, size=p),
        "sparse": np.where(np.arange(p) < max(4, p // 20), draw.gamma(1.0, size=p), 0.0),
        "geometric": 0.8 ** np.arange(p),
        "normal": np.abs(draw.normal(size=p)),
        "simplex": draw.gamma(0.3, size=p),
    }[rule]
    signs = 1.0 if rule == "simplex" else draw.choice([-1.0, 1.0], size=p)
    return np.asarray(draw.permutation(sizes * signs))


def noise(draw: Draw, n: int, rule: str) -> np.ndarray:
    """(n,) of deviation about 1."""
    return {
        "normal": lambda: draw.normal(size=n),
        "heavy": lambda: draw.standard_t(3, size=n) / math.sqrt(3),
        "skewed": lambda: np.exp(0.7 * draw.normal(size=n)) - math.exp(0.245),
        "exponential": lambda: draw.exponential(size=n) - 1,
        "uniform": lambda: draw.uniform(-math.sqrt(3), math.sqrt(3), size=n),
        "two": lambda: np.where(draw.uniform(size=n) < 0.15, 2.0, -0.35) + 0.5 * draw.normal(size=n),
    }[rule]()


@dataclass(frozen=True)
class Case:
    """``signal`` : deviation of what columns explain, in the labels' bound (numbers) or in log-odds (signs);
    ``level`` : mean of the labels, or log-odds; ``rest`` : deviation of the noise in that of the signal; ``zero`` :
    labels below it are it, as counts of what is rare are."""

    name: str
    loss: Loss
    n: int
    p: int
    columns: Callable[[Draw, int, int], Any]
    rule: str
    within: Within = free
    ridge: float = 0.0
    intercept: bool = False
    signs: bool = False
    signal: float = 0.25
    level: float = 0.0
    rest: float = 1.0
    law: str = "normal"
    zero: float = -math.inf
    norm: float | None = None

    def rows(self) -> tuple[Any, np.ndarray]:
        draw = np.random.default_rng(sum(map(ord, self.name)))
        X = self.columns(draw, self.n, self.p)
        if self.norm is not None:
            X = X * min(1.0, self.norm / float(np.quantile(np.sqrt((X**2).sum(axis=1)), 0.95)))
        v = coefficients(draw, self.p, self.rule)
        z = np.asarray(X @ v)
        z = (z - z.mean()) * (self.signal / z.std())
        if self.signs:
            chance = 1 / (1 + np.exp(-z - self.level))
            return X, np.where(draw.uniform(size=self.n) < chance, 1.0, -1.0)
        y = self.level + z + self.rest * self.signal * noise(draw, self.n, self.law)
        return X, np.clip(np.maximum(y, self.zero), -1.0, 1.0)


REPORT = (
    Case("squared, 8 columns", SQUARED, 2000, 8, factors, "power", intercept=True, law="heavy"),
    Case(
        "squared ridge, lognormal",
        SQUARED,
        1000,
        20,
        lognormal,
        "gamma",
        ridge=0.01,
        intercept=True,
        level=-0.4,
        law="skewed",
    ),
    Case("squared l1, 400", SQUARED, 5000, 400, moving, "sparse", l1(1.0), rest=0.5),
    Case("squared l2, 60", SQUARED, 20_000, 60, mixed, "normal", l2(1.0), law="heavy"),
    Case("squared simplex, 50", SQUARED, 1500, 50, lognormal, "simplex", simplex, level=0.3, signal=0.15, rest=0.5),
    Case("squared box, 12", SQUARED, 600, 12, mixed, "root", box(0.5), intercept=True),
    Case("absolute l1, 800", ABSOLUTE, 2000, 800, factors, "gamma", l1(2.0), law="heavy"),
    Case("absolute, 5", ABSOLUTE, 800, 5, lognormal, "normal", intercept=True, level=-0.5, law="skewed"),
    Case("absolute l2, 30", ABSOLUTE, 4000, 30, moving, "root", l2(1.0), law="skewed"),
    Case("absolute l1, 40, zeros", ABSOLUTE, 2000, 40, mixed, "sparse", l1(1.0), intercept=True, level=-0.9, zero=-1.0),
    Case("quantile .9, 6", quantile(0.9), 1500, 6, factors, "power", intercept=True, law="skewed"),
    Case("quantile .25 box, 15", quantile(0.25), 6000, 15, moving, "gamma", box(1.0), law="heavy"),
    Case("huber ridge, 25", huber(0.2), 3000, 25, lognormal, "root", ridge=0.005, intercept=True, law="heavy"),
    Case("huber l1, 200", huber(0.1), 2500, 200, moving, "power", l1(1.0), law="heavy"),
    Case(
        "logistic ridge, 10",
        LOGISTIC,
        1000,
        10,
        factors,
        "normal",
        ridge=0.005,
        intercept=True,
        signs=True,
        signal=1.5,
        level=-1.5,
    ),
    Case(
        "logistic, one-hot 100", LOGISTIC, 20_000, 100, one_hot, "normal", signs=True, signal=1.2, level=-2.0, norm=3.0
    ),
    Case("logistic l1, 500", LOGISTIC, 3000, 500, moving, "sparse", l1(6.0), signs=True, signal=2.0),
    Case("logistic l2, 40", LOGISTIC, 5000, 40, mixed, "gamma", l2(3.0), signs=True, signal=1.0),
    Case(
        "hinge ridge, 15",
        HINGE,
        2000,
        15,
        factors,
        "root",
        ridge=0.01,
        intercept=True,
        signs=True,
        signal=2.0,
        level=0.5,
    ),
    Case("hinge l2, one-hot 60", HINGE, 8000, 60, one_hot, "gamma", l2(2.0), signs=True, signal=1.5, norm=3.0),
)
DEVELOP = (
    Case("squared, 5 columns", SQUARED, 500, 5, beta, "geometric", intercept=True, level=-0.3, law="exponential"),
    Case("squared ridge, 30", SQUARED, 4000, 30, blocks, "normal", ridge=0.02, intercept=True, law="uniform"),
    Case("squared l1, 600", SQUARED, 3000, 600, autoregressive, "geometric", l1(1.0)),
    Case("squared l2, 100", SQUARED, 10_000, 100, narrow, "normal", l2(2.0)),
    Case("squared simplex, 20", SQUARED, 3000, 20, beta, "simplex", simplex, level=0.2, signal=0.1),
    Case("squared box, 40", SQUARED, 2000, 40, blocks, "geometric", box(0.3)),
    Case("absolute l1, 500", ABSOLUTE, 2000, 500, autoregressive, "normal", l1(1.5), law="exponential"),
    Case("absolute, 10", ABSOLUTE, 3000, 10, narrow, "geometric", intercept=True, law="exponential", level=-0.6),
    Case("absolute l2, 15", ABSOLUTE, 1000, 15, blocks, "normal", l2(1.0)),
    Case("absolute l1, 80, zeros", ABSOLUTE, 4000, 80, bernoulli, "geometric", l1(2.0), level=-0.85, zero=-1.0),
    Case("quantile .8, 12", quantile(0.8), 3000, 12, autoregressive, "normal", intercept=True, law="exponential"),
    Case("quantile .5 box, 30", quantile(0.5), 1500, 30, beta, "geometric", box(0.5), law="exponential"),
    Case("huber ridge, 8", huber(0.3), 800, 8, blocks, "geometric", ridge=0.01, intercept=True),
    Case("huber l1, 300", huber(0.2), 6000, 300, narrow, "geometric", l1(1.5), law="exponential"),
    Case(
        "logistic ridge, 30",
        LOGISTIC,
        4000,
        30,
        autoregressive,
        "geometric",
        ridge=0.01,
        intercept=True,
        signs=True,
        signal=2.0,
        level=1.0,
    ),
    Case("logistic, binary 50", LOGISTIC, 8000, 50, bernoulli, "normal", signs=True, signal=1.5, level=-1.0, norm=2.0),
    Case("logistic l1, 250", LOGISTIC, 2000, 250, blocks, "geometric", l1(4.0), signs=True, signal=1.5),
    Case("logistic l2, 20", LOGISTIC, 1000, 20, narrow, "normal", l2(5.0), signs=True, signal=2.0),
    Case(
        "hinge ridge, 40",
        HINGE,
        5000,
        40,
        autoregressive,
        "normal",
        ridge=0.005,
        intercept=True,
        signs=True,
        signal=1.5,
    ),
    Case("hinge l1, 100", HINGE, 3000, 100, beta, "geometric", l1(5.0), signs=True, signal=2.0, level=-0.5),
)


def unlike(kinds: Sequence[int], factors: int) -> Callable[[Draw, int, int], np.ndarray]:
    """Columns of several distributions whose normal scores have common factors: each of a kind drawn for it."""

    def columns(draw: Draw, n: int, p: int) -> np.ndarray:
        z = draw.normal(size=(n, factors)) @ (draw.normal(size=(factors, p)) * draw.uniform(0, 1.2, size=p))
        z = (z + draw.normal(size=(n, p))) / np.sqrt(1 + z.var(axis=0))
        cuts, kind = draw.uniform(-0.5, 1.6, size=p), draw.choice(kinds, size=p)
        each = (
            lambda x, cut: (x > cut).astype(float),
            lambda x, cut: np.minimum(np.floor(np.exp(0.6 * x + 0.3)) / 8, 1.0),
            lambda x, cut: np.minimum(np.abs(x) / 3, 1.0),
            lambda x, cut: np.clip(x / 3, -1, 1),
            lambda x, cut: np.clip(0.05 * x + 0.3 * cut, -1, 1),
            lambda x, cut: np.tanh(2 * x),
        )
        return np.stack([each[kind[j]](z[:, j], cuts[j]) for j in range(p)], axis=1)

    return columns


def drawn(seed: int, count: int = 20) -> tuple[Case, ...]:
    """Models whose sizes, columns, sets and labels are all drawn: losses take turns, every other one has a 1-norm
    ball where one can stand."""
    draw, out = np.random.default_rng(seed), list[Case]()
    losses = {"squared": SQUARED, "absolute": ABSOLUTE, "logistic": LOGISTIC, "huber": huber(0.15)}
    losses |= {"quantile .7": quantile(0.7), "hinge": HINGE}
    for k, (name, loss) in enumerate(islice(cycle(losses.items()), count)):
        signs, which = name in ("logistic", "hinge"), ("l1", "l2", "free", "box", "simplex")[int(draw.integers(5))]
        which = "l1" if (k + k // len(losses)) % 2 or (signs and which == "simplex") else which
        p = round(math.exp(draw.uniform(*np.log({"free": (3, 30), "l1": (30, 700)}.get(which, (5, 80))))))
        n = round(math.exp(draw.uniform(math.log(500), math.log(min(10_000, 1.2e6 / p)))))
        size = math.exp(draw.uniform(-0.7, 1.2)) * (3 if signs else 1)
        sets = {"l1": l1(size), "l2": l2(size), "box": box(size / 2), "simplex": simplex, "free": free}
        kinds = (0, 1, 2) if which == "simplex" or draw.uniform() < 0.4 else range(6)
        intercept = which != "simplex" and bool(draw.uniform() < (0.8 if which == "free" else 0.3))
        out.append(
            Case(
                f"{k + 1}: {name} {which}, {p} x {n}",
                loss,
                n,
                p,
                unlike(kinds, int(draw.integers(1, 9))),
                "simplex" if which == "simplex" else str(draw.choice(["student", "levels", "gamma"])),
                sets[which],
                ridge=float(draw.choice([0.003, 0.03])) if which == "free" and name != "quantile .7" else 0.0,
                intercept=intercept,
                signs=signs,
                signal=draw.uniform(0.8, 2.5) if signs else draw.uniform(0.08, 0.3),
                level=draw.uniform(-0.6, 0.6) if intercept else 0.0,
                rest=draw.uniform(0.4, 1.5),
                law=str(draw.choice(["two", "heavy", "skewed", "normal"])),
            )
        )
    return tuple(out)


BANKS = {"report": REPORT, "develop": DEVELOP, "drawn": drawn(310)}


# -------------------------------------------------------------------------------------------------------- one model
class Trial:
    """A case's problem over its rows, and what an answer costs."""

    def __init__(self, case: Case, optima: Mapping[str, float]) -> None:
        self.case, (X, self.labels) = case, case.rows()
        self.columns = X
        low = 0.0 if float(X.min()) >= 0 else -1.0
        bounds: dict[str, Any] = {"bounds": [low, 1.0]} if case.norm is None else {"max_l2": case.norm}
        if sp.issparse(X):
            bounds["positions"] = "private"
        records = dpm.Records("people")
        self.w, self.b = cp.Variable(case.p), cp.Variable() if case.intercept else None
        private = dpm.Private(X, name="X", unit="row", records=records, **bounds)
        y = dpm.Private(self.labels, name="y", unit="entry", bounds=[-1.0, 1.0], records=records)
        self.problem = dpm.Problem(cp.Minimize(self._objective(private, y)), case.within(self.w))
        self.optimum = optima.get(case.name) if optima else None
        if self.optimum is None:
            self.optimum = self._solved()

    def _objective(self, X: Any, y: Any) -> Any:
        z = X @ self.w if self.b is None else X @ self.w + self.b
        objective = cp.sum(self.case.loss[0](z, y)) / self.case.n
        return objective + self.case.ridge * cp.sum_squares(self.w) if self.case.ridge else objective

    def _solved(self) -> float:
        """By accelerated projected steps, which take a hundredth of an interior point's time for many columns; kinks
        smoothed over ever shorter lengths, in the end to less than a part in a hundred of any excess."""
        model, slopes = PrivateRegression.of(self.problem), self.case.loss[2]
        assert isinstance(model, PrivateRegression)
        rows, penalty, y = model.read_rows(), model.penalty, self.labels
        gram = rows.combine(rows.predict(v := np.ones(model.size)))
        for _ in range(100):  # the largest eigenvalue
            gram = rows.combine(rows.predict(v := gram / np.linalg.norm(gram)))
        most, w = 1.05 * model.scale * float(v @ gram), np.zeros(model.size)
        for length in [math.inf] if slopes is None else [0.1, 0.01, 1e-3, 1e-4, 2e-5]:
            curvature = most * (model.loss.smoothness if slopes is None else 1 / length)
            curvature += 2 * float(penalty.ridge.max(initial=0.0))

            def derivative(z: np.ndarray, length: float = length) -> np.ndarray:
                if slopes is None:
                    return np.asarray(model.loss.derivative(z, y))
                if self.case.signs:
                    return np.asarray(y * np.clip((y * z - 1) / length, *slopes))
                return np.clip((z - y) / length, *slopes)

            def step(w: np.ndarray, curvature: float = curvature, of: Any = derivative) -> np.ndarray:
                total = model.scale * rows.combine(of(rows.predict(w))) + penalty.derivative(w)
                return model.domain.project(w - total / curvature)

            for k, after in enumerate(islice(accelerated(w, step), 20_000 if slopes is None else 2000)):
                done, w = k > 100 and float(np.abs(after - w).max()) <= 1e-9 * float(np.abs(w).max(initial=1e-9)), after
                if done:
                    break
        return float(model.scale * model.loss.value(rows.predict(w), y).sum() + penalty.value(w))

    def _value(self) -> float:
        w = np.asarray(self.w.value)
        z = np.asarray(self.columns @ w) + (0.0 if self.b is None else float(self.b.value))
        return float(self.case.loss[1](z, self.labels).mean()) + self.case.ridge * float(w @ w)

    def cost(self, epsilon: float, delta: float, mechanism: str, seed: int) -> float:
        self.problem.solve(epsilon, delta, mechanism=mechanism, rng=seed)
        return self._value() - float(self.optimum or 0.0)


# ----------------------------------------------------------------------------------------------------------- regret
@dataclass(frozen=True)
class Cell:
    """One model at one budget. ``costs`` : of every mechanism (and treatment) what it cost in each draw, the same draws
    for all; ``chosen`` : the plan's; ``public`` : the one that reads nothing, or None.
    """

    model: str
    budget: str
    epsilon: float
    costs: Mapping[str, Sequence[float]]
    chosen: str
    public: str | None = None

    def _mean(self, name: str, half: slice) -> float:
        return float(np.mean(np.asarray(self.costs[name], dtype=float)[half]))

    @property
    def best(self) -> str:
        """The least over all draws: for the eye, regret is not measured against it."""
        return min(self.costs, key=lambda name: self._mean(name, slice(None)))

    @property
    def regret(self) -> float:
        """Mean cost of the choice over that of the best, which one half of the draws picks and the other scores, both
        ways: below 1 where the luck of one half picks what the other does not confirm."""
        halves = slice(0, None, 2), slice(1, None, 2)
        ours = theirs = 0.0
        for picks, scores in (halves, halves[::-1]):
            best = min(self.costs, key=lambda name: self._mean(name, picks))
            ours, theirs = ours + self._mean(self.chosen, scores), theirs + self._mean(best, scores)
        return ours / theirs if theirs > 0 else (1.0 if ours <= 0 else math.inf)

    @property
    def over_public(self) -> float:
        """Mean cost of the choice over that of the point that reads nothing; nan without one."""
        if self.public is None:
            return math.nan
        return self._mean(self.chosen, slice(None)) / max(self._mean(self.public, slice(None)), 1e-300)


def report(cells: Sequence[Cell], expected: Expectations, mean: float, most: float, worst: float) -> None:
    """Print every cell above ``most``, the summary, and whether it is within the limits: geometric ``mean``, 90 %
    within ``most``, the ``worst``; no worse than the public point by a twentieth; medians that do not grow with the
    budget."""
    regrets = np.array([cell.regret for cell in cells])
    table = Table(
        ("model", 32), ("budget", 14), ("regret", 7), ("chosen", 28), ("its cost", 9), ("best", 28), ("cost", 9)
    )
    for cell in sorted(cells, key=lambda each: -each.regret):
        if cell.regret > most:
            costs = (short(float(np.mean(cell.costs[name]))) for name in (cell.chosen, cell.best))
            ours, theirs = costs
            table.row(cell.model, cell.budget, f"{cell.regret:.2f}", cell.chosen, ours, cell.best, theirs)
    logs = np.log(np.maximum(regrets, 1e-9))
    expected.expect(np.exp(logs.mean()) <= mean, f"geometric mean {np.exp(logs.mean()):.3f} of {len(cells)} cells")
    expected.expect(np.quantile(regrets, 0.9) <= most, f"90 % quantile {np.quantile(regrets, 0.9):.3f}")
    expected.expect(regrets.max() <= worst, f"worst {regrets.max():.2f}")
    over = [cell for cell in cells if cell.over_public > 1.05]
    told = "; ".join(f"{cell.model}, {cell.budget}: {cell.over_public:.2f}" for cell in over)
    expected.expect(not over, f"worse than the public point by more than a twentieth: {told or 'never'}")
    grown = list(_grown(cells))
    expected.expect(not grown, f"medians that grow with epsilon by more than a twentieth: {'; '.join(grown) or 'none'}")


def _grown(cells: Sequence[Cell]) -> list[str]:
    out = []
    series: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        series.setdefault((cell.model, cell.budget.partition(",")[2]), []).append(cell)
    for (model, rest), each in series.items():
        ordered = sorted(each, key=lambda cell: cell.epsilon)
        medians = [float(np.median(cell.costs[cell.chosen])) for cell in ordered]
        for before, after, cell in zip(medians, medians[1:], ordered[1:], strict=False):
            if after > 1.05 * before:
                out.append(f"{model},{rest} at {cell.epsilon:g}: {short(before)} to {short(after)}")
    return out


Work = tuple[str, int, list[float], list[float], int, Mapping[str, float]]


def cells_of(given: Work) -> tuple[list[Cell], float, list[str]]:
    bank, which, epsilons, deltas, repeats, optima = given
    case = BANKS[bank][which]
    warnings.simplefilter("ignore")
    trial, found, told = Trial(case, optima), list[Cell](), list[str]()
    for delta in deltas:
        for epsilon in epsilons:
            start = time.perf_counter()
            plan = trial.problem.plan(epsilon, delta, compare="all")
            planned = time.perf_counter() - start
            forecasts = {c.mechanism: c.forecast.error.predicted for c in plan.candidates if c.eligible and c.forecast}
            costs = {
                name: [trial.cost(epsilon, delta, name, seed) for seed in range(1 if name == PUBLIC else repeats)]
                for name in forecasts
            }
            costs[PUBLIC] *= repeats
            budget = f"{epsilon:g}, delta {delta:g}"
            cell = Cell(case.name, budget, epsilon, costs, plan.chosen.mechanism, PUBLIC)
            found.append(cell)
            pairs = sorted((float(np.mean(each)), name) for name, each in costs.items())
            listed = ", ".join(f"{name} {short(cost)} ({short(forecasts[name])})" for cost, name in pairs)
            told.append(
                f"{case.name}, {budget}: {cell.regret:.2f}, {cell.chosen}; cost (forecast): {listed}; "
                f"plan {planned:.1f} s, {time.perf_counter() - start:.0f} s"
            )
    return found, float(trial.optimum or 0.0), told


def main() -> int:
    arguments = parser(
        __doc__, repeats=6, epsilons=[0.3, 1.0, 5.0], deltas=[0.0, DELTA], bank="report", optima="", workers=1
    )
    arguments.add_argument("--only", nargs="+", help="parts of models' names")
    options = arguments.parse_args()
    header(("dpmodel", "cvxpy", "numpy", "scipy"))
    cases = [
        case for case in BANKS[options.bank] if not options.only or any(part in case.name for part in options.only)
    ]
    file = Path(options.optima) if options.optima else None
    optima = json.loads(file.read_text()) if file is not None and file.exists() else {}
    asks = options.epsilons, options.deltas, options.repeats, optima
    work = [(options.bank, BANKS[options.bank].index(case), *asks) for case in cases]
    cells, expected = list[Cell](), Expectations()
    with multiprocessing.get_context("fork").Pool(options.workers) as pool:
        for case, (found, optimum, told) in zip(cases, pool.imap(cells_of, work, chunksize=1), strict=True):
            cells += found
            optima[case.name] = optimum
            print("\n".join(told), flush=True)
    if file is not None:
        file.write_text(json.dumps(optima, indent=1))
    print()
    report(cells, expected, mean=1.05, most=1.1, worst=1.5)
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
