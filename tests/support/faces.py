"""Every mechanism behind the door through which people reach it, with data and a neighbour, for what holds of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from private_programs import CASES, SECRETS

import dpmodel as dpm
from dpmodel import linalg
from dpmodel.marks.vault import unseal  # itself: a test may watch the name
from dpmodel.solve.registry import KINDS

Data = Any


@dataclass(frozen=True)
class Face:
    """``data(rng)``: two neighbours. ``release(data, epsilon, delta, **options)``: plain data of all that leaves;
    options are ``budget`` and ``rng``. ``budget``: (epsilon, delta) at which the mechanism says something.

    ``amplified`` : it loses less than its draws show, because who takes part in each is random and secret.
    """

    name: str
    mechanism: str
    data: Callable[[np.random.Generator], tuple[Data, Data]]
    release: Callable[..., Any]
    budget: tuple[float, float] = (1.0, 1e-6)
    amplified: bool = False

    def __str__(self) -> str:
        return f"{self.name}-{self.mechanism}"


FACES: list[Face] = []


def adds_up(mechanism: str) -> bool:
    """Whether its draws pay one by one (``Serves.adds_up``); of others their own tests have the exact losses."""
    named = [each for family in KINDS.values() for each in family.mechanisms if each.name == mechanism]
    return all(each.serves.adds_up for each in named)


# ------------------------------------------------------------------ models in CVXPY
def moved(problem: dpm.Problem, rng: np.random.Generator) -> None:
    """Give one record of ``problem`` other values, at random and as far as its declarations allow."""
    private = [p for p in problem.parameters() if isinstance(p, dpm.Private)]
    records = private[int(rng.integers(len(private)))].records
    mine = [p for p in private if p.records is records]
    at = int(rng.integers(1 << 30))
    for parameter in mine:
        value = _dense(parameter)
        where = np.zeros(value.shape, dtype=bool)
        unit, axis = parameter.unit, 1 if parameter.unit == "column" else 0
        if unit == "all" or not value.shape:
            where[...] = True
        elif unit == "entry" and value.ndim > 1:
            where.ravel()[at % value.size] = True
        else:
            where[(slice(None),) * axis + (at % value.shape[axis],)] = True
        if parameter.sparse_idx is not None:
            stored = np.zeros(value.shape, dtype=bool)
            stored[parameter.sparse_idx] = True
            where &= stored
        parameter.value = _other(parameter, value, where, rng)


def _dense(parameter: dpm.Private) -> np.ndarray:
    entries = unseal(parameter)
    if sp.issparse(entries):
        return np.asarray(entries.toarray(), dtype=float)
    if parameter.sparse_idx is not None:
        value = np.zeros(parameter.shape)
        value[parameter.sparse_idx] = entries
        return value
    return np.array(entries, dtype=float).reshape(parameter.shape, order="F")


def _other(parameter: dpm.Private, value: np.ndarray, where: np.ndarray, rng: np.random.Generator) -> Any:
    """``value`` with the record's entries moved to a corner of what is declared."""
    limits = {1: parameter.l1, 2: parameter.l2, np.inf: parameter.linf}
    size = min(limits.values())
    size = size if np.isfinite(size) else 1e4
    d = np.where(where, rng.choice([-1.0, 1.0], value.shape) * size, 0.0)
    if parameter.bounds is not None:
        low, high = (np.broadcast_to(np.asarray(end, dtype=float), value.shape) for end in parameter.bounds)
        d = np.clip(value + d, low, high) - np.clip(value, low, high)
    norms = {order: np.linalg.norm(d.ravel(), order) for order in limits}
    shrink = min([1.0, *(limit / norms[k] for k, limit in limits.items() if norms[k] > 0)])
    new = value + d * shrink
    if parameter.attributes["integer"]:
        new = np.rint(new)
    if parameter.sparse_idx is not None:
        return sp.coo_array((new[parameter.sparse_idx], parameter.sparse_idx), shape=parameter.shape)
    return new


def _model_face(build: Callable[[Any], dpm.Problem], mechanism: str, options: dict[str, Any]) -> Face:
    def data(rng: np.random.Generator) -> tuple[Data, Data]:
        seed = int(rng.integers(1 << 30))
        return None, seed

    def release(data: Data, epsilon: float, delta: float, **more: Any) -> Any:
        problem = build(SECRETS)
        if isinstance(data, int):
            moved(problem, np.random.default_rng(data))
        settings = {key: value for key, value in options.items() if key != "epsilon"}
        problem.solve(epsilon, delta, mechanism=mechanism, **settings, **more)
        return problem.release.to_dict()

    budget = (options.get("epsilon", 1.0), 1e-6)
    return Face(build.__name__, mechanism, data, release, budget, not adds_up(mechanism))


READ_NOTHING = ("public-only", "even-shares")
FACES += [_model_face(*case) for case in CASES if case[1] not in READ_NOTHING]


# ------------------------------------------------------------------ exact linear algebra
def _in_plane(rng: np.random.Generator, n: int = 900) -> np.ndarray:
    free = rng.integers(0, 7, (n, 2))
    return np.hstack([free, (free @ [[1, 1], [0, 1]]) % 7])


def _one_row(draw: Callable[[np.random.Generator], np.ndarray], stray: Any = None) -> Callable[..., tuple[Data, Data]]:
    """Replace-one: a row becomes another of the kind, or ``stray``."""

    def data(rng: np.random.Generator) -> tuple[Data, Data]:
        rows = draw(rng)
        other = rows.copy()
        other[int(rng.integers(len(rows)))] = draw(rng)[0] if stray is None else stray
        return rows, other

    return data


def _exact(function: Any, mechanism: str, data: Any, **arguments: Any) -> Face:
    def release(rows: Data, epsilon: float, delta: float, **more: Any) -> Any:
        parts = rows if isinstance(rows, tuple) else (rows,)
        asked = {"epsilon": epsilon, "delta": delta, "neighbors": "replace-one", "mechanism": mechanism}
        return function(*parts, **asked, **arguments, **more).to_dict()

    return Face(function.__name__, mechanism, data, release)


GF7 = linalg.GF(7)
for _function in (linalg.span, linalg.affine_span):
    FACES.append(_exact(_function, "stable-span", _one_row(_in_plane, [1, 2, 3, 4]), field=GF7))
FACES += [
    _exact(linalg.span, "stable-span", _one_row(_in_plane, [0, 0, 0, 0]), field=linalg.QQ),
    _exact(linalg.span, "stable-span-as-printed", _one_row(lambda r: _in_plane(r, 9000), [1, 2, 3, 4]), field=GF7),
]


def _one_hot(rng: np.random.Generator) -> np.ndarray:
    first, second = rng.choice(3, 900, p=[0.6, 0.35, 0.05]), rng.choice(2, 900, p=[0.9, 0.1])
    return np.hstack([np.eye(3, dtype=int)[first], np.eye(2, dtype=int)[second]])


_BLOCKS = [range(3), range(3, 5)]
FACES.append(_exact(linalg.span, "category-span", _one_row(_one_hot, [0, 0, 1, 0, 1]), field=linalg.QQ, blocks=_BLOCKS))


def _equations(rng: np.random.Generator) -> tuple[Data, Data]:
    A = rng.integers(7, size=(900, 3))
    b = A @ [3, 1, 4] % 7
    other = b.copy()
    other[int(rng.integers(len(b)))] += 1
    return (A, b), (A, other)


FACES.append(_exact(linalg.solve_equations, "stable-span", _equations, field=GF7))


def _inequalities(rng: np.random.Generator) -> tuple[Data, Data]:
    A = rng.normal(size=(3000, 2))
    b = A @ [1.0, 2.0] + np.linalg.norm(A, axis=1)
    at, other, side = int(rng.integers(3000)), A.copy(), b.copy()
    other[at], side[at] = [5.0, -3.0], -9.0
    return (A, b), (other, side)


def _whole_inequalities(rng: np.random.Generator) -> tuple[Data, Data]:
    A = rng.integers(-3, 4, (4000, 2))
    b = A @ [2, 1] + rng.integers(0, 3, 4000)
    at, other, side = int(rng.integers(4000)), A.copy(), b.copy()
    other[at], side[at] = [1, 1], -9
    return (A, b), (other, side)


FACES += [
    _exact(linalg.feasible_point, name, _inequalities, margin={"radius": 1, "within": 3})
    for name in ("hinge-descent", "rescaling-perceptron")
]
FACES.append(_exact(linalg.feasible_point, "dp-lp", _whole_inequalities, bound=20))


def _points(count: int, d: int) -> Callable[..., tuple[Data, Data]]:
    return _one_row(lambda rng: rng.integers(0, 11, (count, d)), [10] * d)


FACES += [
    _exact(linalg.point_in_hull, "tukey-depth", _points(200, 2), lower=0, upper=10, step=1),
    _exact(linalg.point_in_hull, "pin-hull", _points(6000, 1), lower=0, upper=10, step=1),
]


# ------------------------------------------------------------------ tables and published numbers
def _counts(rng: np.random.Generator) -> tuple[Data, Data]:
    counts = rng.poisson(20, 16)
    other = counts.copy()
    other[int(rng.integers(16))] += 1
    return counts, other


def _measure(distribution: str, unit: str = "entry") -> Face:
    def release(counts: Data, epsilon: float, delta: float, budget: Any = None, rng: Any = None) -> Any:
        whole = distribution.startswith("discrete")
        histogram = dpm.Private(counts, name="visits", unit="entry", linf=1, integer=whole)
        noisy = dpm.measure(
            dpm.released.tree_query(16).query(histogram),
            epsilon=epsilon,
            delta=delta,
            distribution=distribution,
            budget=budget,
            rng=rng,
        )
        return {"value": np.asarray(noisy.value), "distribution": str(noisy.noise), "words": noisy.record}

    return Face("measure", distribution, _counts, release)


FACES += [_measure(distribution) for distribution in ("laplace", "gaussian", "discrete-laplace", "discrete-gaussian")]


def _people(rng: np.random.Generator) -> tuple[Data, Data]:
    codes = rng.integers(0, 3, (300, 3))
    other = codes.copy()
    other[int(rng.integers(300))] = [2, 0, 1]
    return codes, other


def _query_release(epsilon_of: str) -> Face:
    def release(codes: Data, epsilon: float, delta: float, **more: Any) -> Any:
        query = dpm.query_release(
            codes, [("a", "b"), ("b", "c")], domain={"a": 3, "b": 3, "c": 3}, neighbors="replace-one"
        )
        return query.solve(epsilon, delta, **more).to_dict()

    return Face("query_release", epsilon_of, _people, release)


FACES.append(_query_release("auto"))


def _likelihood(counts: Data, epsilon: float, delta: float, **more: Any) -> Any:
    noisy = dpm.Noisy(np.arange(4.0), noise=dpm.noise.Laplace(1.0))
    x = cp.Variable(4, nonneg=True)
    problem = dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(x, noisy)), [cp.sum(x) == 6])
    problem.solve(epsilon, delta, **more)
    return problem.release.to_dict()


# What costs nothing, because nothing private is read.
FREE = [Face("post-processing", "general-solver", _counts, _likelihood)]
FREE += [_model_face(*case) for case in CASES if case[1] in READ_NOTHING]


# ------------------------------------------------------------------ estimators
def _labelled(rng: np.random.Generator) -> tuple[Data, Data]:
    X = rng.uniform(-1, 1, (2000, 3))
    y = X @ [0.5, -0.25, 0.1] + 0.1 * rng.normal(size=2000)
    at, other, label = int(rng.integers(2000)), X.copy(), y.copy()
    other[at], label[at] = [1.0, -1.0, 1.0], -1.0
    return (X, y), (other, label)


def _estimator(name: str, **arguments: Any) -> Face:
    def release(rows: Data, epsilon: float, delta: float, budget: Any = None, rng: Any = None) -> Any:
        from dpmodel import learn

        X, y = rows
        if "classes" in arguments:
            y = np.where(y > 0, 1, -1)
        made = getattr(learn, name)(epsilon=epsilon, delta=delta, budget=budget, random_state=rng, **arguments)
        made.fit(X, y)
        return {"release": made.release_.to_dict(), "coef": made.coef_, "intercept": made.intercept_}

    # Plans of logistic regressions take objective-perturbation at many budgets.
    return Face(name, "auto", _labelled, release, amplified=name == "PrivateLogisticRegression")


FACES += [
    _estimator("PrivateRidge", bounds=(-1, 1), label_bounds=(-1, 1)),
    _estimator("PrivateLogisticRegression", bounds=(-1, 1), classes=(-1, 1)),
]
