"""Linear models as their users write them, and what these do not tell: the private numbers, what a unit short costs.

A model is one function of ``n`` (its size), ``rng`` (its data) and ``private``. It returns an objective, constraints
and the prices of those that are private: money for a unit short, or for (short, surplus) of an equality.
``private(numbers, ...)`` is ``dpm.Private`` in the problem, and the bare numbers in the truth that releases are judged
by. No setting of the package was chosen on these models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints import Inequality

import dpmodel as dpm

SIZES = ("small", "medium", "large")

Make = Callable[..., Any]
Price = float | np.ndarray | tuple[float, float]
Written = tuple[Any, list[Any], dict[Any, Price]]


@dataclass(frozen=True)
class Case:
    """A model with data. ``problem`` : the private one; ``prices`` : of its constraints, which the plan does not know;
    ``truth`` : the same over bare numbers."""

    name: str
    problem: dpm.Problem
    prices: Mapping[Any, Price]
    truth: Written

    @cached_property
    def best(self) -> float:
        """Least cost with the true numbers: what is short is paid for."""
        objective, rows, prices = self.truth
        kept, total = [row for row in rows if row not in prices], _sign(objective) * objective.expr
        for row, price in prices.items():  # variables of their own: CVXPY bounds positive parts wrongly (0 times inf)
            off = [cp.Variable(row.shape, nonneg=True) for _ in _both(row, price)]
            kept.append(row.args[0] - row.args[1] == off[0] - off[1] if len(off) > 1 else _over(row) <= off[0])
            total += sum(cp.sum(cp.multiply(each, by)) for each, by in zip(_both(row, price), off, strict=True))
        return float(cp.Problem(cp.Minimize(total), kept).solve(solver="HIGHS"))

    def cost(self) -> float:
        """What the values of the problem's variables cost at the true numbers: objective, and what is short of it."""
        if not self._take():
            return np.inf
        objective, _, prices = self.truth
        return float(_sign(objective) * objective.value) + sum(
            float(np.sum(by * np.maximum(sign * _over(row).value, 0)))
            for row, price in prices.items()
            for by, sign in zip(_both(row, price), (1, -1), strict=False)
        )

    def short(self) -> np.ndarray:
        """What each priced row is short by there; equalities: what they are off by."""
        self._take()
        over = [_over(row).value if isinstance(row, Inequality) else np.abs(_over(row).value) for row in self.truth[2]]
        return np.concatenate([np.maximum(np.ravel(each), 0) for each in over])

    @property
    def size(self) -> float:
        """Sum of the sizes of the priced rows' numbers."""
        sides = [row.args[0] if row.args[0].is_constant() else row.args[1] for row in self.truth[2]]
        return float(sum(np.abs(side.value).sum() for side in sides))

    def _take(self) -> bool:
        """Give the truth's variables the values of the problem's, and say whether there are any."""
        released = {variable.name(): variable.value for variable in self.problem.variables()}
        objective, rows, _ = self.truth
        for variable in cp.Problem(objective, rows).variables():
            variable.save_value(released[variable.name()])
        return all(value is not None for value in released.values())


def _sign(objective: Any) -> float:
    return 1.0 if isinstance(objective, cp.Minimize) else -1.0


def _over(row: Any) -> Any:
    """By how much the left side of a row is more than its right side: short, of an inequality."""
    return row.args[0] - row.args[1]


def _both(row: Any, price: Price) -> tuple[Any, ...]:
    """What a unit more on the left side costs, and of an equality what a unit less does."""
    return price[::-1] if isinstance(price, tuple) else (price,)


@dataclass(frozen=True)
class Model:
    """``write`` : the model; ``sizes`` : n for each of SIZES."""

    write: Callable[[int, np.random.Generator, Make], Written]
    sizes: tuple[int, ...]

    def __call__(self, seed: int, size: str = "small") -> Case:
        n, name = self.sizes[SIZES.index(size)], self.write.__name__
        objective, rows, prices = self.write(n, np.random.default_rng([seed, n]), dpm.Private)
        truth = self.write(n, np.random.default_rng([seed, n]), lambda numbers, **declared: cp.Constant(numbers))
        return Case(name, dpm.Problem(objective, rows), prices, truth)


MODELS: dict[str, Model] = {}


def model(*sizes: int) -> Callable[[Callable[..., Written]], Model]:
    """Register a model. ``sizes`` : n, for tens, hundreds and thousands of variables."""

    def register(write: Callable[..., Written]) -> Model:
        MODELS[write.__name__] = Model(write, sizes)
        return MODELS[write.__name__]

    return register


# ------------------------------------------------------------------------------------ private right-hand sides
def _transport(n: int, rng: np.random.Generator, private: Make, spare: float, **declared: Any) -> Written:
    plants, orders = max(n // 5, 2), np.round(rng.uniform(10, 60, n))
    cost = rng.uniform(5, 40, (plants, n))
    demand = private(orders, name="demand", unit="entry", linf=1, **declared)
    x = cp.Variable((plants, n), nonneg=True, name="shipped")
    served = (cp.sum(x, axis=0) >= demand).set_label("served")
    supply = spare * orders.sum() / plants
    return cp.Minimize(cp.sum(cp.multiply(cost, x))), [cp.sum(x, axis=1) <= supply, served], {served: 120.0}


@model(12, 100, 300)
def transport(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Plants serve markets; a third more supply than orders. A unit short costs 120, one shipped 5 to 40."""
    return _transport(n, rng, private, 1.3)


@model(12, 100, 300)
def transport_tight(n: int, rng: np.random.Generator, private: Make) -> Written:
    """The same with 2 % of spare supply, and a guess of what a market orders."""
    return _transport(n, rng, private, 1.02, typical=30.0)


@model(4, 10, 20)
def flow(n: int, rng: np.random.Generator, private: Make) -> Written:
    """A grid of n by n nodes, and sinks that receive exactly what was ordered there: 300 short, 30 left over."""
    right = [(i * n + j, i * n + j + 1) for i in range(n) for j in range(n - 1)]
    down = [(i * n + j, i * n + n + j) for i in range(n - 1) for j in range(n)]
    arcs = right + down + [(j, i) for i, j in right + down]
    network = np.zeros((n * n, len(arcs)))
    for place, (i, j) in enumerate(arcs):
        network[i, place], network[j, place] = -1, 1
    where = rng.choice(np.arange(1, n * n), n * n * 2 // 5, replace=False)
    others = np.setdiff1d(np.arange(1, n * n), where)
    orders = private(np.round(rng.uniform(10, 60, where.size)), name="orders", unit="entry", linf=1, bounds=[0, 100])
    carried = cp.Variable(len(arcs), nonneg=True, name="carried")
    received = (network[where] @ carried == orders).set_label("received")
    cost = rng.uniform(1, 5, len(arcs))
    return cp.Minimize(cost @ carried), [received, network[others] @ carried == 0], {received: (300.0, 30.0)}


@model(24, 96, 672)
def storage(n: int, rng: np.random.Generator, private: Make) -> Written:
    """A battery and the grid cover a street's load; power bought later costs three times the price of the hour."""
    load = np.clip(250 + 80 * np.sin(np.arange(n) / 4) + rng.normal(0, 10, n), 0, 500)
    meters = private(load, name="load", unit="all", linf=6, l1=60, bounds=[0, 500])
    price = 0.2 + 0.1 * np.sin(np.arange(n) / 3 + 1)
    buy, charge = cp.Variable(n, nonneg=True, name="buy"), cp.Variable(n, bounds=[-50, 50], name="charge")
    stored = 100 + cp.cumsum(charge)
    covered = (buy - charge >= meters).set_label("covered")
    return cp.Minimize(price @ buy), [covered, stored >= 0, stored <= 400, buy <= 800], {covered: 3 * price}


@model(12, 52, 208)
def inventory(n: int, rng: np.random.Generator, private: Make) -> Written:
    """What is made up to a week covers what was ordered up to it; a unit waits a week for 4, at the end for 40."""
    ordered = private(
        rng.poisson(100 + 30 * np.sin(np.arange(n) / 4)), name="ordered", unit="entry", linf=4, typical=90
    )
    make = cp.Variable(n, bounds=[0, 160], name="make")
    in_time = (cp.cumsum(make) >= cp.cumsum(ordered)).set_label("in time")
    price = rng.uniform(8, 12, n)
    return (
        cp.Minimize(price @ make + 0.5 * cp.sum(cp.cumsum(make))),
        [in_time],
        {in_time: np.r_[np.full(n - 1, 4.0), 40.0]},
    )


@model(12, 52, 208)
def reservoir(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Water is let through turbines so that what farms draw leaves the lake between 0 and its height, week by week."""
    drawn = private(np.round(rng.gamma(9, 3, n)), name="drawn", unit="entry", linf=2, bounds=[0, 90], integer=True)
    through = cp.Variable(n, bounds=[0, 60], name="through")
    level = 150 + 50.0 * np.arange(1, n + 1) - cp.cumsum(through) - cp.cumsum(drawn)
    dry, full = (level >= 0).set_label("not dry"), (level <= 300).set_label("not full")
    worth = rng.uniform(1, 3, n)
    return cp.Maximize(worth @ through), [dry, full], {dry: 12.0, full: 8.0}


@model(12, 60, 252)
def beds(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Whole beds, own or hired, for the patients of each ward and day; a missing bed costs 900, one made ready 90."""
    patients = private(
        rng.poisson(rng.uniform(3, 25, n)), name="patients", unit="entry", linf=1, integer=True, nonneg=True,
        records=dpm.Records("patients", neighbors="add-remove"),
    )  # fmt: skip
    own = cp.Variable(n, integer=True, name="own")
    hired = cp.Variable(n, integer=True, name="hired")
    enough = (own + hired >= patients).set_label("enough beds")
    rows = [own >= 0, hired >= 0, own <= 18, cp.sum(own) <= 14 * n, enough]
    return cp.Minimize(90 * cp.sum(own) + 150 * cp.sum(hired)), rows, {enough: 900.0}


@model(5, 10, 20)
def facility(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Which of n depots to open for four towns each; what is not delivered is bought in the town."""
    sites, towns = rng.uniform(0, 10, (n, 2)), rng.uniform(0, 10, (4 * n, 2))
    far = np.linalg.norm(sites[:, None] - towns[None], axis=2)
    people = private(np.round(rng.lognormal(3, 0.5, 4 * n)), name="people", unit="entry", linf=1, typical=20)
    open_, sent = cp.Variable(n, boolean=True, name="open"), cp.Variable((n, 4 * n), nonneg=True, name="sent")
    delivered = (cp.sum(sent, axis=0) >= people).set_label("delivered")
    cost = 150 * cp.sum(open_) + cp.sum(cp.multiply(far, sent))
    return cp.Minimize(cost), [delivered, cp.sum(sent, axis=1) <= 200 * open_], {delivered: 25.0}


@model(10, 100, 1000)
def newsvendor(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Stock of n goods in one store; a customer who finds none is a margin lost."""
    sold = rng.poisson(rng.uniform(2, 60, n))
    demand = private(
        sold, name="demand", unit="entry", linf=1, nonneg=True, records=dpm.Records("buyers", neighbors="add-remove")
    )
    stock = cp.Variable(n, nonneg=True, name="stock")
    found = (stock >= demand).set_label("found")
    return cp.Minimize(rng.uniform(2, 4, n) @ stock), [found, cp.sum(stock) <= 60 * n], {found: rng.uniform(6, 14, n)}


@model(12, 80, 400)
def zones(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Ambulances stand in zones on a ring and cover their neighbors too; calls of a zone are private."""
    near = np.array([[min((i - j) % n, (j - i) % n) <= 1 for j in range(n)] for i in range(n)], dtype=float)
    calls = private(rng.gamma(2, 4, n).round(), name="calls", unit="entry", linf=2, bounds=[0, 60])
    ready = cp.Variable(n, nonneg=True, name="ready")
    covered = (near @ ready >= calls).set_label("covered")
    return cp.Minimize(rng.uniform(3, 6, n) @ ready), [covered, ready <= 40], {covered: 15.0}


@model(1, 7, 28)
def staffing(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Shifts of eight hours cover the calls of n days; a caller rings in three hours at most."""
    hours = 24 * n
    shape = 20 + 12 * np.sin((np.arange(hours) - 8) * 2 * np.pi / 24)
    calls = private(rng.poisson(shape), name="calls", unit="all", l1=3, linf=1, typical=18)
    cover = np.array([[(h - s) % hours < 8 for s in range(hours)] for h in range(hours)], dtype=float)
    start = cp.Variable(hours, nonneg=True, name="start")
    staffed = (cover @ start >= calls).set_label("staffed")
    return cp.Minimize(rng.uniform(7, 10, hours) @ start), [staffed], {staffed: 6.0}


@model(1, 3, 7)
def crews(n: int, rng: np.random.Generator, private: Make) -> Written:
    """The same with whole crews of five, and a promise of at most 60 calls in an hour."""
    hours = 24 * n
    shape = 20 + 12 * np.sin((np.arange(hours) - 8) * 2 * np.pi / 24)
    calls = private(rng.poisson(shape), name="calls", unit="entry", linf=1, bounds=[0, 60], integer=True)
    cover = np.array([[(h - s) % hours < 8 for s in range(hours)] for h in range(hours)], dtype=float)
    start = cp.Variable(hours, integer=True, name="start")
    staffed = (5 * (cover @ start) >= calls).set_label("staffed")
    return cp.Minimize(40 * cp.sum(start)), [staffed, start >= 0], {staffed: 9.0}


@model(12, 24, 240)
def capped_rows(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Each clinic has room for a tenth more than its patients need, and all share a budget."""
    need = np.round(rng.uniform(20, 80, n))
    doses = private(need, name="doses", unit="entry", linf=1, bounds=[0, 100])
    given = cp.Variable(n, bounds=[np.zeros(n), 1.1 * need], name="given")
    met = (given >= doses).set_label("met")
    return cp.Minimize(rng.uniform(5, 9, n) @ given), [met, cp.sum(given) <= 1.05 * need.sum()], {met: 40.0}


@model(60, 400, 2000)
def wide(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Many activities and five totals that they must come to."""
    use = rng.uniform(0, 2, (5, n)) * (rng.random((5, n)) < 0.4)
    totals = private(rng.uniform(150, 400, 5), name="totals", unit="all", l1=5, linf=2)
    x = cp.Variable(n, bounds=[0, 30], name="x")
    reached = (use @ x >= totals).set_label("reached")
    return cp.Minimize(rng.uniform(1, 4, n) @ x), [reached], {reached: 20.0}


@model(40, 400, 3000)
def deep(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Six rates that must meet many small accounts: rows far more than columns, and few of them bind."""
    parts = rng.dirichlet(np.ones(6), n)
    due = private(np.round(parts @ rng.uniform(20, 60, 6) + rng.normal(0, 3, n)), name="due", unit="entry", linf=1)
    rate = cp.Variable(6, nonneg=True, name="rate")
    met = (parts @ rate >= due).set_label("met")
    return cp.Minimize(n * cp.sum(rate) / 6), [met], {met: 3.0}


@model(200, 4000, 40_000)
def many(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Every account needs its own number, under one generous budget."""
    need = private(rng.integers(0, 50, n), name="need", unit="entry", linf=1, typical=20)
    x = cp.Variable(n, nonneg=True, name="x")
    met = (x >= need).set_label("met")
    return cp.Minimize(cp.sum(x)), [met, cp.sum(x) <= 50 * n], {met: 5.0}


@model(10, 60, 300)
def donations(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Parcels packed from what donors brought: stocks are private upper limits, and what lacks is bought."""
    recipe = rng.integers(0, 4, (n, max(n // 2, 4))).astype(float)
    brought = private(np.round(rng.gamma(20, 5, n)), name="brought", unit="all", l1=12, linf=4, bounds=[0, 400])
    parcels = cp.Variable(recipe.shape[1], bounds=[0, 40], name="parcels")
    within = (recipe @ parcels <= brought).set_label("within stock")
    return cp.Maximize(rng.uniform(8, 15, recipe.shape[1]) @ parcels), [within], {within: 7.0}


@model(6, 24, 96)
def power(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Capacity of three kinds of stations for n hours of load, built once and run by the hour."""
    drawn = np.round(300 + 120 * np.sin(np.arange(n) / 4) + rng.normal(0, 12, n))
    load = private(drawn, name="load", unit="all", linf=3, l1=24, typical=280)
    size, run = cp.Variable(3, nonneg=True, name="size"), cp.Variable((n, 3), nonneg=True, name="run")
    met = (cp.sum(run, axis=1) >= load).set_label("met")
    cost = np.array([40.0, 25.0, 8.0]) @ size * n / 24 + cp.sum(run @ np.array([0.5, 2.0, 6.0]))
    return cp.Minimize(cost), [met, *(run[:, k] <= size[k] for k in range(3))], {met: 50.0}


# ------------------------------------------------------------------------------------ private coefficients
@model(15, 40, 200)
def diet(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Foods whose content is the mean of some laboratory's samples; what a patient lacks is given as tablets."""
    contents = rng.gamma(2, 10, (8, n))
    content = private(contents, name="content", unit="all", linf=0.2, l2=0.5, bounds=[0, 150])
    eaten = cp.Variable(n, bounds=[0, 5], name="eaten")
    enough = (content @ eaten >= contents.mean(axis=1) * 12).set_label("enough")
    return cp.Minimize(rng.uniform(1, 6, n) @ eaten), [enough, cp.sum(eaten) <= 30], {enough: 1.5}


@model(20, 60, 300)
def packing(n: int, rng: np.random.Generator, private: Make) -> Written:
    """The best mix of jobs where hours per job are means of workers' logs; overtime costs three times the margin."""
    hours = rng.uniform(0.2, 2.0, (6, n))
    logs = private(hours, name="hours", unit="all", linf=0.02, bounds=[0, 3])
    jobs = cp.Variable(n, bounds=[0, 10], name="jobs")
    in_time = (logs @ jobs <= 2.0 * n).set_label("in time")
    return cp.Maximize(rng.uniform(5, 15, n) @ jobs), [in_time], {in_time: 30.0}


@model(10, 15, 60)
def outreach(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Campaigns that find so many of each group an hour, counted from people's answers: private rates."""
    groups = n + 5
    counted = rng.poisson(rng.uniform(20, 200, (groups, n))) / 100
    rates = private(counted, name="rates", unit="entry", linf=0.02, bounds=[0, 4])
    spent = cp.Variable(n, bounds=[0, 40], name="hours")
    found = (rates @ spent >= np.full(groups, 8.0 * n / 5)).set_label("found")
    return cp.Minimize(rng.uniform(20, 30, n) @ spent), [found], {found: 60.0}


@model(8, 40, 200)
def blending(n: int, rng: np.random.Generator, private: Make) -> Written:
    """A fuel of lots with private sulphur and water, and a fine for what is above the norm."""
    found = rng.uniform(20, 80, (2, n))
    tests = private(found, name="tests", unit="row", linf=0.4, l2=1.0, bounds=[0, 100])
    share = cp.Variable(n, nonneg=True, name="share")
    clean = (tests @ share <= 45).set_label("clean")
    return cp.Minimize(rng.uniform(10, 40, n) @ share), [cp.sum(share) == 1, clean, share <= 0.6], {clean: 8.0}


# ------------------------------------------------------------------------------------ private objectives
@model(20, 100, 500)
def assortment(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Which goods fill the shelf, by margins that are sums over customers."""
    earned = private(np.round(rng.gamma(2, 20, n)), name="earned", unit="all", l1=15, linf=5, bounds=[0, 400])
    shown = cp.Variable(n, bounds=[0, 1], name="shown")
    return cp.Maximize(earned @ shown), [rng.uniform(1, 4, n) @ shown <= n / 2], {}


@model(6, 20, 40)
def assignment(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Who does what, by what each thinks of each task: one person's row of private costs."""
    cost = private(rng.uniform(5, 60, (n, n)), name="cost", unit="entry", linf=1, bounds=[0, 60])
    does = cp.Variable((n, n), nonneg=True, name="does")
    return cp.Minimize(cp.sum(cp.multiply(cost, does))), [cp.sum(does, axis=0) == 1, cp.sum(does, axis=1) == 1], {}


@model(20, 100, 500)
def knapsack(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Projects, or not, by how many asked for them."""
    asked = private(rng.poisson(rng.uniform(2, 60, n)), name="asked", unit="all", l1=5, linf=1, integer=True)
    built = cp.Variable(n, boolean=True, name="built")
    return cp.Maximize(asked @ built), [np.round(rng.uniform(1, 9, n)) @ built <= 2 * n], {}


@model(10, 50, 250)
def clinics(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Private demand of patients, and private costs of two ways to serve it, of the staff."""
    need = private(rng.poisson(30, n), name="need", unit="entry", linf=1, records=dpm.Records("patients"))
    wages = private(
        rng.uniform(5, 15, n), name="wages", unit="entry", linf=0.5, bounds=[0, 20], records=dpm.Records("staff")
    )
    own, hired = cp.Variable(n, bounds=[0, 60], name="own"), cp.Variable(n, bounds=[0, 80], name="hired")
    served = (own + hired >= need).set_label("served")
    return cp.Minimize(wages @ own + 13 * cp.sum(hired)), [served, cp.sum(own) <= 25 * n], {served: 45.0}


# ------------------------------------------------------------------------------------ one person, one constraint
def _ballots(n: int, rng: np.random.Generator, private: Make, most: int, popular: float) -> Written:
    projects = 12 if n < 1000 else 30
    liked = rng.random(projects) ** popular
    votes = np.zeros((n, projects))
    for voter in votes:
        size = rng.integers(1, most + 1)
        voter[rng.choice(projects, size, replace=False, p=liked / liked.sum())] = 1
    ballots = private(votes, name="ballots", unit="row", bounds=[0, 1], max_l1=most)
    built = cp.Variable(projects, bounds=[0, 1], name="built")
    heard = (ballots @ built >= 1).set_label("heard")
    return cp.Minimize(0), [heard, rng.uniform(1, 5, projects) @ built <= projects], {heard: 1.0}


@model(400, 2000, 6000)
def ballots(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Four approvals at most, for projects under a budget; a voter who gets less than one project is short."""
    return _ballots(n, rng, private, 4, 1.0)


@model(400, 2000, 6000)
def popular_ballots(n: int, rng: np.random.Generator, private: Make) -> Written:
    """Up to ten approvals, most of them for the same few projects."""
    return _ballots(n, rng, private, 10, 3.0)
