"""Twenty problems of published numbers: trees, hierarchies, tables, chains, releases of queries; Laplace and Gaussian.

The budget sets the scale of the noise that the numbers were published with (2 / epsilon), drawn from one seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from .face import (
    Case,
    Gaussian,
    Laplace,
    Noisy,
    Noted,
    NotedSource,
    Private,
    Problem,
    Records,
    RoundedGaussian,
    RoundedLaplace,
    consistent_table,
    hierarchy,
    measure,
    neg_log_likelihood,
    query_release,
    released,
    solved,
    tree_query,
)

BUDGETS = ((0.2, 0.0), (1.0, 0.0), (5.0, 0.0))
HISTOGRAM = np.array([0.0, 3, 9, 1, 0, 0, 4, 7, 0, 0, 0, 12, 5, 2, 0, 1])
TABLE = np.array([[4.0, 0, 3], [7, 1, 0], [0, 0, 5], [2, 9, 1]])
CASES: list[Case] = []
Publish = Callable[..., Noisy]


def _add(name: str, run: Callable[[float, Publish, NotedSource], Noted]) -> None:
    """``run(epsilon, publish, source)`` : ``publish(numbers, kind of noise, times)``, of ``times`` the scale."""

    def whole(epsilon: float, delta: float, source: NotedSource) -> Noted:
        rng = np.random.default_rng(30)

        def publish(values: Any, kind: Any = Laplace, times: Any = 1.0, name: str = "") -> Noisy:
            law, values = kind(2 / epsilon * np.asarray(times)), np.asarray(values, dtype=float)
            drawn = 2 / epsilon * np.asarray(times) * rng.laplace(size=values.shape)
            discrete = kind in (RoundedGaussian, RoundedLaplace)
            return Noisy(values + (np.rint(drawn) if discrete else drawn), noise=law, name=name)

        return run(epsilon, publish, source)

    CASES.append(Case(f"{len(CASES):02d} {name}", whole, BUDGETS))


def _problem(name: str, write: Callable[[Publish], tuple[Any, list[Any]]], **options: Any) -> None:
    def run(epsilon: float, publish: Publish, source: NotedSource) -> Noted:
        likelihood, rows = write(publish)
        return solved(Problem(cp.Minimize(likelihood), rows), 1.0, 0.0, source, **options)

    _add(name, run)


def _fit(name: str, write: Callable[[Publish], tuple[Any, Callable[[Any], Any]]], **options: Any) -> None:
    """``write`` : (a fit, what is read of it)."""

    def run(epsilon: float, publish: Publish, source: NotedSource) -> Noted:
        fitted, read = write(publish)
        fitted.solve(**options)
        return released(fitted.release, {"read": read(fitted)})

    _add(name, run)


def _nodes(fitted: Any) -> Any:
    return fitted.nodes


def _tree(bins: int, branching: int, kind: Any, **fit: Any) -> Callable[[Publish], Any]:
    def write(publish: Publish) -> Any:
        tree = tree_query(bins, branching=branching)
        return tree.fit(publish(tree.answers(HISTOGRAM[:bins]), kind), **fit), _nodes

    return write


_fit("tree, l1", _tree(16, 2, Laplace))
_fit("tree, l1, likelihood", _tree(16, 4, Laplace, form="likelihood"))
_fit("tree, integer noise, likelihood", _tree(16, 2, RoundedLaplace, form="likelihood"))
_fit("tree, l2", _tree(9, 3, Gaussian))
_fit("tree, l2, likelihood", _tree(9, 3, Gaussian, form="likelihood"))
_fit("tree, rounded", _tree(16, 2, Laplace), round="unbiased")


def _places(publish: Publish, kinds: tuple[Any, ...] = (Laplace, Laplace, Laplace), **fit: Any) -> Any:
    parents: dict[str, Any] = {"nation": None, "north": "nation", "south": "nation"}
    parents |= {f"place {k}": "north" if k < 5 else "south" for k in range(12)}
    places = hierarchy(parents)
    levels = [HISTOGRAM[:12].sum(keepdims=True), [HISTOGRAM[:5].sum(), HISTOGRAM[5:12].sum()], HISTOGRAM[:12]]
    times = (0.5, 1.0, 2.0)
    parts = {at: publish(values, kinds[at], times[at], f"level {at}") for at, values in enumerate(levels)}
    return places.fit(parts, **fit), lambda fitted: [fitted.read(name) for name in places.names]


_fit("hierarchy, three levels", _places)
_fit(
    "hierarchy, mixed noise, likelihood",
    lambda publish: _places(publish, (Gaussian, Laplace, Gaussian), form="likelihood"),
)
_fit("hierarchy, l2", lambda publish: _places(publish, (Gaussian, Gaussian, Gaussian)))


def _margins(kinds: tuple[Any, Any], known: bool, **fit: Any) -> Callable[[Publish], Any]:
    def write(publish: Publish) -> Any:
        domain = {"age": 4, "works": 3}
        parts = {("age",): publish(TABLE.sum(axis=1), kinds[0], 1.0, "age")}
        parts[("age", "works")] = publish(TABLE, kinds[1], 2.0, "both")
        total = {"known": {(): TABLE.sum()}} if known else {}
        return consistent_table(
            parts, domain=domain, **total, **fit
        ), lambda fitted: fitted.marginal(("age", "works")).values

    return write


_fit("table, l1, total", _margins((Laplace, Laplace), True, form="likelihood"))
_fit("table, l2", _margins((Gaussian, Gaussian), False))
_fit("table, mixed", _margins((Gaussian, Laplace), True))


def _chain(publish: Publish) -> Any:
    x = cp.Variable(16, name="cumulative")
    return neg_log_likelihood(x, publish(np.cumsum(HISTOGRAM), Gaussian)), [x[1:] >= x[:-1]]


def _chain_l1(publish: Publish) -> Any:
    x = cp.Variable(16, nonneg=True, name="cumulative")
    return neg_log_likelihood(x, publish(np.cumsum(HISTOGRAM))), [cp.diff(x) >= 0]


def _projection(publish: Publish) -> Any:
    x = cp.Variable((4, 3), name="table")
    likelihood = neg_log_likelihood(x, publish(TABLE), form="least-squares")
    return likelihood, [cp.sum(x, axis=axis) == TABLE.sum(axis=axis) for axis in range(2)]


def _elastic(publish: Publish) -> Any:
    x = cp.Variable((4, 3), nonneg=True, name="table")
    return neg_log_likelihood(x, publish(TABLE), alpha=0.9), [cp.sum(x) == TABLE.sum()]


def _strategy(publish: Publish) -> Any:
    A = np.vstack([np.eye(6), np.tril(np.ones((6, 6)))])
    x = cp.Variable(6, nonneg=True, name="histogram")
    return neg_log_likelihood(A @ x, publish(A @ HISTOGRAM[:6])), []


def _general(publish: Publish) -> Any:
    x = cp.Variable(4, name="x")
    return neg_log_likelihood(x, publish(np.ones(4))), [cp.norm(x) <= 1]


_problem("chain, l2", _chain)
_problem("chain, l1", _chain_l1)
_problem("projection onto margins", _projection)
_problem("elastic table", _elastic)
_problem("strategy", _strategy)
_problem("ball", _general)


def _queries(epsilon: float, publish: Publish, source: NotedSource) -> Noted:
    rng = np.random.default_rng(7)
    people = {"age": rng.integers(0, 4, 900), "works": rng.integers(0, 3, 900), "town": rng.integers(0, 3, 900)}
    pairs = [("age", "works"), ("works", "town")]
    query = query_release(people, pairs, domain={"age": 4, "works": 3, "town": 3}, neighbors="add-remove")
    release = query.solve(epsilon, rng=source)
    return released(release, {"read": query.answers(pairs[0]).values})


def _measured(epsilon: float, publish: Publish, source: NotedSource) -> Noted:
    visitors = Records("visitors", neighbors="add-remove")
    counts = Private(HISTOGRAM, name="visits", unit="entry", linf=1, integer=True, records=visitors)
    tree = tree_query(16)
    fitted = tree.fit(measure(tree.query(counts), epsilon=epsilon, rng=source))
    fitted.solve()
    return released(fitted.release, {"read": fitted.nodes, "ranges": fitted.ranges([2, 5], [9, 16])})


_add("query release", _queries)
_add("measured tree", _measured)
