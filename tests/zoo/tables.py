"""Published numbers: histograms, geographies, contingency tables, workloads of queries, margins, trends.

Each function publishes once, with ``rng`` for the noise (repeatable, for tests), and returns for every level that
people read: the truth, what was published (or would be, by noise on every cell of the same privacy), and what the
package says.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

import dpmodel as dpm

from .registry import SIZES

EPSILON = 1.0
Levels = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]  # truth, published, fitted
Publish = Callable[[int, np.random.Generator, dpm.Budget, np.random.Generator], Levels]


@dataclass(frozen=True)
class Publication:
    """``publish(n, data, budget, noise)`` : one publication. ``sizes`` : n for each of SIZES."""

    name: str
    publish: Publish
    sizes: tuple[int, ...]

    def once(self, size: str, seed: int, budget: dpm.Budget) -> Levels:
        """The data stay, the noise is that of ``seed``."""
        n = self.sizes[SIZES.index(size)]
        return self.publish(
            n, np.random.default_rng([n, zlib.crc32(self.name.encode())]), budget, np.random.default_rng(seed)
        )


PUBLICATIONS: list[Publication] = []


def publication(*sizes: int) -> Callable[[Publish], Publication]:
    def register(publish: Publish) -> Publication:
        PUBLICATIONS.append(Publication(publish.__name__, publish, sizes))
        return PUBLICATIONS[-1]

    return register


@publication(32, 256, 4096)
def visits_by_hour(n: int, data: np.random.Generator, budget: dpm.Budget, noise: np.random.Generator) -> Levels:
    """A histogram over time as a tree of sums, so that single hours and long ranges are both read."""
    visits = data.poisson(np.where(np.arange(n) % 16 < 3, 20.0, 0.3)).astype(float)
    people = dpm.Records("visitors", neighbors="add-remove")
    histogram = dpm.Private(visits, name="visits", unit="entry", linf=1, integer=True, records=people)
    tree = dpm.released.tree_query(n, branching=4)
    noisy = dpm.measure(tree.query(histogram), epsilon=EPSILON, budget=budget, rng=noise)
    fitted = tree.fit(noisy)
    fitted.solve()
    starts = np.arange(0, n - n // 4 + 1)
    stops = starts + n // 4
    sums = np.concatenate([[0.0], np.cumsum(visits)])
    return {
        "all sums": (tree.answers(visits), np.asarray(noisy.value), fitted.nodes),
        "quarters": (sums[stops] - sums[starts], tree.read_raw(noisy, starts, stops), fitted.ranges(starts, stops)),
    }


@publication(12, 120, 1500)
def counties_and_states(n: int, data: np.random.Generator, budget: dpm.Budget, noise: np.random.Generator) -> Levels:
    """Counts of a nation, its states and counties, each level measured with a third of the budget."""
    states = max(3, n // 12)
    parents = {"nation": None} | {f"state {s}": "nation" for s in range(states)}
    parents |= {f"county {c}": f"state {c % states}" for c in range(n)}
    places = dpm.released.hierarchy(parents)
    people = data.poisson(data.choice([0.5, 5, 60, 300], n)).astype(float)
    records = dpm.Records("residents", neighbors="add-remove")
    counts = dpm.Private(people, name="people", unit="entry", linf=1, integer=True, records=records)
    noisy = dpm.measure(places.query(counts), epsilon=EPSILON, budget=budget, rng=noise)
    fitted = places.fit(noisy)
    fitted.solve()
    return {
        "all places": (
            places.answers(people),
            np.asarray(noisy.value),
            np.array([fitted.read(p) for p in places.names]),
        )
    }


@publication(10, 60, 400)
def unequal_levels(n: int, data: np.random.Generator, budget: dpm.Budget, noise: np.random.Generator) -> Levels:
    """A whole published well and n parts published badly (scales 3 and 8): each level should come out no worse."""
    parts = data.poisson(200, n).astype(float)
    places = dpm.released.hierarchy({"whole": None} | {f"part {k}": "whole" for k in range(n)})
    whole_distribution, part_distribution = dpm.noise.Laplace(8.0), dpm.noise.Laplace(3.0)
    whole = dpm.Noisy(parts.sum() + whole_distribution.sample((1,), noise), noise=whole_distribution, name="whole")
    each = dpm.Noisy(parts + part_distribution.sample((n,), noise), noise=part_distribution, name="parts")
    fitted = places.fit({0: whole, 1: each})
    fitted.solve()
    return {
        "whole": (parts.sum(keepdims=True), np.asarray(whole.value), fitted.level(0)),
        "parts": (parts, np.asarray(each.value), fitted.level(1)),
    }


@publication(4, 9, 24)
def age_by_work_by_district(
    n: int, data: np.random.Generator, budget: dpm.Budget, noise: np.random.Generator
) -> Levels:
    """Three offices published margins of one table, with noise of their own; nobody under fifteen is retired."""
    truth = data.poisson(30, (n, 3, n)).astype(float)
    truth[0, 2] = 0
    domain = {"age": n, "works": ["no", "yes", "retired"], "district": n}
    distributions = {
        ("age", "works"): dpm.noise.Laplace(4.0),
        ("works", "district"): dpm.noise.Gaussian(6.0),
        ("age", "district"): dpm.noise.Laplace(6.0),
    }
    axes = {("age", "works"): 2, ("works", "district"): 0, ("age", "district"): 1}
    published = {}
    for names, distribution in distributions.items():
        true = truth.sum(axis=axes[names])
        published[names] = dpm.Noisy(
            true + distribution.sample(true.shape, noise), noise=distribution, name=" by ".join(names)
        )
    fitted = dpm.released.consistent_table(
        published, domain=domain, known={(): truth.sum()}, structural_zeros=[{"age": 0, "works": "retired"}]
    )
    fitted.solve()
    return {
        " by ".join(names): (truth.sum(axis=axes[names]), np.asarray(noisy.value), fitted.marginal(names).values)
        for names, noisy in published.items()
    }


@publication(6, 18, 60)
def commuters(n: int, data: np.random.Generator, budget: dpm.Budget, noise: np.random.Generator) -> Levels:
    """Trips between n towns, measured; how many leave and reach each town is public. Written in CVXPY."""
    trips = data.poisson(data.gamma(0.5, 40, (n, n))).astype(float)
    records = dpm.Records("commuters", neighbors="add-remove")
    counts = dpm.Private(trips, name="trips", unit="entry", linf=1, integer=True, records=records)
    noisy = dpm.measure(counts, epsilon=EPSILON / 4, budget=budget, rng=noise)
    x = cp.Variable((n, n), nonneg=True, name="trips")
    problem = dpm.Problem(
        cp.Minimize(dpm.released.neg_log_likelihood(x, noisy)),
        [cp.sum(x, axis=1) == trips.sum(axis=1), cp.sum(x, axis=0) == trips.sum(axis=0)],
    )
    problem.solve()
    return {"trips": (trips, np.asarray(noisy.value), x.value)}


@publication(12, 200, 2000)
def waiting_list(n: int, data: np.random.Generator, budget: dpm.Budget, noise: np.random.Generator) -> Levels:
    """How many still wait after each week: never more than the week before. Isotonic, written in CVXPY."""
    waits = np.sort(data.poisson(40 * np.exp(-np.arange(n) / (n / 3))))[::-1].astype(float)
    noisy = dpm.Noisy(
        waits + dpm.noise.Gaussian(5.0).sample((n,), noise), noise=dpm.noise.Gaussian(5.0), name="waiting"
    )
    x = cp.Variable(n, nonneg=True, name="waiting")
    dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(x, noisy)), [cp.diff(x) <= 0]).solve()
    return {"weeks": (waits, np.asarray(noisy.value), x.value)}


@publication(3, 6, 12)
def survey_of_marginals(n: int, data: np.random.Generator, budget: dpm.Budget, noise: np.random.Generator) -> Levels:
    """Age by town, age by work, of 3,000 people; the plain way is Laplace noise on every cell of both."""
    domain = {"age": 3 * n, "town": n, "works": 2}
    age, town = data.binomial(3 * n - 1, 0.4, 3000), data.integers(0, n, 3000)
    people = {"age": age, "town": town, "works": (data.random(3000) < age / (3 * n)).astype(int)}
    marginals = [("age", "town"), ("age", "works")]
    release = dpm.query_release(people, marginals, domain=domain, neighbors="add-remove")
    release.solve(epsilon=EPSILON, budget=budget, rng=noise)
    levels = {}
    for names in marginals:
        true = np.zeros([domain[name] for name in names])
        np.add.at(true, tuple(people[name] for name in names), 1)
        plain = true + noise.laplace(0, len(marginals) / EPSILON, true.shape)
        levels[" by ".join(names)] = true, plain, release.answers(names).values
    return levels
