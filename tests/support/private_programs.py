"""Small private problems of every kind, each with the mechanisms that solve it: (private values) -> problem."""

from __future__ import annotations

import re

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpmodel as dpm

COST = np.array([[1.0, 2.0, 3.0], [2.5, 1.5, 2.0]])


def scalar(values, cap=4e4, private=dpm.Private, **declared):
    b = private(values[:3], name="b", unit="entry", linf=1, **declared)
    x = cp.Variable((2, 3), nonneg=True, name="x")
    rows = [(cp.sum(x, axis=0) >= b).set_label("need"), (cp.sum(x) <= cap).set_label("cap")]
    return dpm.Problem(cp.Minimize(cp.sum(cp.multiply(COST, x))), rows)


def bounded_scalar(values, private=dpm.Private):
    return scalar(values, 1e6, private, bounds=[0, 1e4])


def objective(values, private=dpm.Private):
    c = private(values[:4], name="c", unit="entry", linf=1)
    x = cp.Variable(4, nonneg=True, name="x")
    return dpm.Problem(cp.Maximize(c @ x + 1), [(cp.sum(x) == 1).set_label("one")])


def matrix(values, private=dpm.Private):
    A = private(np.reshape(values[:6], (2, 3)), name="A", unit="row", linf=0.5, bounds=[0, 1e4])
    x = cp.Variable(3, bounds=[0, 2], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(A @ x <= 5e3).set_label("limit")])


def sparse_matrix(values, private=dpm.Private):
    pattern = ([0, 0, 1, 1], [0, 2, 1, 2])
    stored = sp.coo_array((values[:4], pattern), shape=(2, 3))
    A = private(stored, name="A", unit="entry", linf=0.5, sparsity=pattern)
    x = cp.Variable(3, bounds=[0, 2], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(A @ x <= 5e3).set_label("limit")])


def equality(values, private=dpm.Private):
    b = private(values[:2], name="b", unit="entry", linf=1)
    x = cp.Variable(3, nonneg=True, name="x")
    A = np.array([[1.0, 2.0, 1.0], [1.0, 1.5, 2.0]])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(A @ x == b).set_label("balance")])


def balances(values, private=dpm.Private):
    """Equalities without an objective."""
    b = private(values[:3], name="b", unit="entry", linf=1)
    x = cp.Variable(4, nonneg=True, name="x")
    A = np.array([[1.0, 2.0, 1.0, 0.0], [1.0, 1.5, 2.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
    return dpm.Problem(cp.Minimize(0), [(A @ x == b).set_label("balance")])


def several_parts(values, private=dpm.Private):
    c = private(values[:3], name="c", unit="entry", linf=1, records=dpm.Records("one"))
    b = private(values[3:6], name="b", unit="entry", linf=1, records=dpm.Records("two"))
    x = cp.Variable(3, bounds=[0, 1e5], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [(x >= b).set_label("need")])


def second_order(values, private=dpm.Private):
    b = private(values[:2], name="b", unit="entry", linf=1)
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    rows = [cp.SOC(t, x - b).set_label("ball"), (x <= 1e5).set_label("cap")]
    return dpm.Problem(cp.Minimize(t + cp.norm1(x)), rows)


def norm_objective(values, private=dpm.Private):
    b = private(values[:3], name="b", unit="entry", linf=1)
    x = cp.Variable(2, name="x")
    A = np.array([[1.0, 2.0], [3.0, 1.0], [2.0, 2.0]])
    return dpm.Problem(cp.Minimize(cp.norm1(A @ x - b) + cp.sum_squares(x)), [(x <= 1e5).set_label("cap")])


def semidefinite(values, private=dpm.Private):
    b = private(np.abs(values[:2]), name="b", unit="entry", linf=1)
    X = cp.Variable((2, 2), symmetric=True, name="X")
    rows = [(X >> 0).set_label("psd"), (cp.diag(X) >= b).set_label("need"), (X[0, 1] <= 10).set_label("cap")]
    return dpm.Problem(cp.Minimize(cp.trace(X) - 0.5 * X[0, 1]), rows)  # one optimum: solvers agree on it


def maximised_integers(values, private=dpm.Private):
    b = private(values[:2], name="b", unit="entry", linf=1)
    x = cp.Variable(2, integer=True, bounds=[0, 30], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(300.0 * x <= b).set_label("limit")])


def people(values, private=dpm.Private):
    """One record owns a constraint; no objective."""
    A = private(np.reshape(values[:6], (2, 3)), name="A", unit="row", bounds=[0, 1e4])
    x = cp.Variable(3, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(0), [(A @ x <= 5e3).set_label("limit"), (cp.sum(x) == 2).set_label("two")])


def people_to_cover(values, private=dpm.Private):
    """One record owns a covering constraint, beside money."""
    A = private(np.reshape(values[:6], (2, 3)), name="A", unit="row", bounds=[0, 1e4])
    x = cp.Variable(3, bounds=[0, 2], name="x")
    return dpm.Problem(cp.Minimize(0), [(A @ x >= 5e3).set_label("need"), (cp.sum(x) <= 2).set_label("money")])


def people_with_costs(values, private=dpm.Private):
    """The same beside a private objective."""
    people, others = dpm.Records("people"), dpm.Records("others")
    A = private(np.reshape(values[:6], (2, 3)), name="A", unit="row", bounds=[0, 1e4], records=people)
    c = private(values[3:6], name="c", unit="entry", linf=1, bounds=[0, 1e4], records=others)
    x = cp.Variable(3, bounds=[0, 2], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [(A @ x >= 5e3).set_label("need")])


def shares(values, private=dpm.Private):
    """Private right-hand sides over a simplex, aggregated over records."""
    b = private(values[:4], name="b", linf=1, bounds=[0, 1e4])
    x = cp.Variable(3, nonneg=True, name="x")
    A = np.array([[1.0, 2.0, 0.5], [1.0, 0.5, 2.0], [2.0, 1.0, 1.0], [0.1, 1.0, 3.0]])
    return dpm.Problem(cp.Minimize(cp.sum(x[:2])), [(A @ x <= b).set_label("cap"), (cp.sum(x) == 5e3).set_label("sum")])


def people_for_least(values, private=dpm.Private):
    """One record owns a constraint, beside a public objective in few dimensions."""
    A = private(np.reshape(values[:6], (3, 2)), name="A", unit="row", bounds=[0, 1e4])
    x = cp.Variable(2, bounds=[0, 2], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(A @ x >= 5e3).set_label("need")])


def _rows_of(values, count, outputs=None, private=dpm.Private):
    """Features and labels of the same records; with ``outputs``, so many labels a record."""
    records = dpm.Records("rows")
    X = private(np.resize(values, (count, 2)), name="X", unit="row", bounds=[0, 1e4], records=records)
    shape, unit = ((count, outputs), "row") if outputs else (count, "entry")
    return X, private(np.resize(values[3:], shape), name="y", unit=unit, bounds=[0, 1e4], records=records)


def least_squares(values, count=300, private=dpm.Private, **asked):
    """A regression over an l1 ball."""
    (X, y), w = _rows_of(values, count, private=private), cp.Variable(2, name="w")
    ball = (cp.norm1(w) <= 1).set_label("ball")
    return dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y) / count), [ball], **asked)


def clipped_least_squares(values, private=dpm.Private):
    return least_squares(values, private=private, clip=20.0)


def several_outputs(values, count=300, private=dpm.Private):
    """A regression of two outputs with a ridge, each over an l1 ball."""
    (X, Y), W = _rows_of(values, count, 2, private=private), cp.Variable((2, 2), name="W")
    goal = cp.sum_squares(X @ W - Y) / count + 0.1 * cp.sum_squares(W)
    return dpm.Problem(cp.Minimize(goal), [(cp.norm1(W, axis=0) <= 1).set_label("balls")])


def three_classes(values, count=300, private=dpm.Private):
    """A multinomial regression over an l2 ball, with classes read off the values."""
    X, y = _rows_of(values, count, private=private)
    place = (np.resize(values[3:], count) // 7 + np.arange(count)).astype(int) % 3
    Y = private(np.eye(3)[place], name="Y", unit="row", bounds=[0, 1], max_l1=1, records=y.records)
    W = cp.Variable((2, 3), name="W")
    scores = X @ W
    goal = cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(Y, scores))
    return dpm.Problem(cp.Minimize(goal / count), [(cp.norm(W, "fro") <= 1e-3).set_label("ball")])


def margins(values, private=dpm.Private):
    """A hinge loss with labels folded into the rows."""
    X = private(np.resize(values, (10_000, 2)), name="X", unit="row", max_l2=1, records=dpm.Records("folded"))
    w = cp.Variable(2, name="w")
    return dpm.Problem(cp.Minimize(cp.sum(cp.pos(1 - X @ w)) / 10_000), [(cp.norm(w) <= 1).set_label("ball")])


def whole_equations(values, private=dpm.Private):
    """One equation that everybody has, in integers, under an objective that chooses among its solutions."""
    A = private(np.tile(np.rint(values[:2] * 32), (600, 1)), name="A", unit="row", integer=True)
    x = cp.Variable(2, name="x")
    return dpm.Problem(cp.Minimize(cp.norm1(x)), [(A @ x == 5_000_000).set_label("everybody's")])


def huber_over_a_general_set(values, private=dpm.Private):
    """A regression whose set is known to CVXPY only, with an intercept."""
    X, y = _rows_of(values, 300, private=private)
    w, b = cp.Variable(2, name="w"), cp.Variable(name="b")
    loss = cp.sum(cp.huber(X @ w + b - y, 100)) / 300
    rows = [(cp.norm(w) <= 1).set_label("one"), (w >= -0.5).set_label("two"), (cp.abs(b) <= 10).set_label("three")]
    return dpm.Problem(cp.Minimize(loss + cp.sum_squares(w)), rows)


def chances(values, private=dpm.Private):
    """A logistic regression."""
    X, _ = _rows_of(values, 300, private=private)
    t = private(np.resize([0.0, 1.0, 1.0], 300), name="t", unit="entry", bounds=[0, 1], records=X.records)
    z = (X / 1e4) @ cp.Variable(2, name="w")
    return dpm.Problem(cp.Minimize(cp.sum(cp.logistic(z) - cp.multiply(t, z)) / 300))


def chances_with_a_level(values, private=dpm.Private):
    """The same with an intercept."""
    X, _ = _rows_of(values, 300, private=private)
    t = private(np.resize([0.0, 1.0, 1.0], 300), name="t", unit="entry", bounds=[0, 1], records=X.records)
    z = (X / 1e4) @ cp.Variable(2, name="w") + cp.Variable(name="b")
    return dpm.Problem(cp.Minimize(cp.sum(cp.logistic(z) - cp.multiply(t, z)) / 300))


def one_order(values, private=dpm.Private):
    """One number for all records: bought is paid, what is short costs more."""
    D, x = private(values, name="D", unit="entry", bounds=[0, 1e4]), cp.Variable(name="x")
    return dpm.Problem(cp.Minimize(cp.sum(cp.maximum(3 * (D - x), x - D))), [(x >= 0).set_label("some")])


def drivers(values, private=dpm.Private):
    """Three who charge in two hours, each of their own."""
    own = dpm.Records("drivers")
    v = private(np.reshape(values[:6], (3, 2)), name="v", unit="row", records=own)
    x = dpm.Shares((3, 2), records=own, nonneg=True, name="x")
    street = (cp.sum(x, axis=0) <= 2).set_label("street")
    return dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), [street, cp.sum(x, axis=1) <= 1])


CASES = [
    (one_order, "private-constant", {"epsilon": 200}),
    (chances_with_a_level, "private-constant", {}),
    (chances, "pure-objective-perturbation", {"epsilon": 20}),
    *[(least_squares, name, {}) for name in ("sufficient-statistics", "frank-wolfe", "mirror-descent")],
    *[(least_squares, name, {}) for name in ("objective-perturbation", "adassp-as-printed", "frank-wolfe-as-printed")],
    *[(several_outputs, name, {}) for name in ("sufficient-statistics", "frank-wolfe")],
    (clipped_least_squares, "noisy-descent", {}),
    *[(three_classes, name, {}) for name in ("noisy-descent", "objective-perturbation")],
    (margins, "stochastic-mirror-descent", {"epsilon": 0.1}),
    (huber_over_a_general_set, "gaussian-frank-wolfe", {}),
    *[(people, name, {}) for name in ("noisy-hinge-descent", "dense-multiplicative-weights", "point-exponential")],
    *[(people, name, {}) for name in ("noisy-multiplicative-weights", "algorithm-2", "algorithm-5", "algorithm-6")],
    (people_to_cover, "split-votes", {}),
    (people_with_costs, "split-votes", {"goal": dpm.Penalty()}),
    (people_with_costs, "noisy-hinge-descent", {"goal": dpm.Search()}),
    (people_with_costs, "dense-multiplicative-weights", {"goal": dpm.Penalty()}),
    (people_with_costs, "noisy-hinge-descent", {"goal": dpm.Penalty()}),
    (shares, "multiplicative-weights", {"goal": dpm.Penalty()}),
    (shares, "algorithm-4", {"goal": dpm.Target(3e3)}),
    (people_for_least, "cheapest-point", {}),
    (whole_equations, "exact-equations", {}),
    *[(objective, name, {}) for name in ("laplace-once", "gaussian-once", "vertex-exponential", "theorem-34")],
    *[(build, name, {}) for build in (scalar, matrix, several_parts) for name in ("laplace-once", "gaussian-once")],
    *[(build, "laplace-once", {}) for build in (bounded_scalar, sparse_matrix, second_order, maximised_integers)],
    *[(build, "gaussian-once", {}) for build in (equality, norm_objective, semidefinite)],
    *[(build, "strict-truncated-laplace", {"feasibility": "strict"}) for build in (bounded_scalar, matrix)],
    (matrix, "strict-truncated-gaussian", {"feasibility": "strict"}),
    (balances, "measure-and-fit", {}),
    (scalar, "public-only", {}),
    *[(drivers, name, {"release": "joint"}) for name in ("noisy-prices", "even-shares")],
]
SECRETS = np.array([7321.4375, 5128.8125, 6457.28125, 3983.71875, 4819.59375, 2793.34375])
OTHERS = np.array([2741.15625, 6919.46875, 3407.65625, 5236.90625, 7143.03125, 4480.21875])
DIGITS = re.compile("|".join(re.escape(str(v)[:7]) for v in SECRETS))  # the integer part may be hit by a release
