"""A registry of post-processing problems: name -> a function that builds the same problem anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.released.trees import Tree

Build = Callable[[], dpm.Problem]
BUILD: dict[str, Build] = {}


def model(build: Build) -> Build:
    BUILD[build.__name__] = build
    return build


def noisy(
    values: Any, distribution: Any = dpm.noise.Laplace, scale: Any = 1.0, seed: int = 0, name: str = ""
) -> dpm.Noisy:
    noise = distribution(scale)
    values = np.asarray(values, dtype=float)
    return dpm.Noisy(values + noise.sample(values.shape, np.random.default_rng(seed)), noise=noise, name=name)


@model
def tree_of_nodes() -> dpm.Problem:
    """Every node is a variable and was measured."""
    tree = Tree.complete(8, 2)
    x = cp.Variable(tree.size, name="nodes")
    counts = tree.sums(np.array([0.0, 3, 9, 1, 0, 0, 4, 7]))
    likelihood = dpm.released.neg_log_likelihood(x, noisy(counts, scale=2.0))
    return dpm.Problem(cp.Minimize(likelihood), [tree.consistency @ x == 0, x >= 0])


@model
def tree_of_leaves() -> dpm.Problem:
    """The histogram is the variable, three levels of sums over it were measured with scales of their own."""
    x = cp.Variable(9, nonneg=True, name="histogram")
    true = np.array([0.0, 2, 0, 0, 11, 5, 0, 0, 1])
    thirds = np.kron(np.eye(3), np.ones((1, 3)))
    likelihood = dpm.released.neg_log_likelihood(x, noisy(true, scale=1.0))
    likelihood += dpm.released.neg_log_likelihood(thirds @ x, noisy(thirds @ true, scale=2.0, seed=1))
    return dpm.Problem(cp.Minimize(likelihood), [cp.sum(x) == 19])


@model
def gaussian_tree() -> dpm.Problem:
    tree = Tree.complete(9, 3)
    x = cp.Variable(tree.size, name="nodes")
    counts = tree.sums(np.arange(9.0))
    likelihood = dpm.released.neg_log_likelihood(x, noisy(counts, dpm.noise.Gaussian, 2.0))
    return dpm.Problem(cp.Minimize(likelihood), [tree.consistency @ x == 0])


@model
def gaussian_counts() -> dpm.Problem:
    """The same with counts that may not be negative."""
    tree = Tree.complete(9, 3)
    x = cp.Variable(tree.size, nonneg=True, name="nodes")
    counts = tree.sums(np.array([0.0, 0, 0, 5, 0, 0, 1, 0, 0]))
    likelihood = dpm.released.neg_log_likelihood(x, noisy(counts, dpm.noise.Gaussian, 2.0))
    return dpm.Problem(cp.Minimize(likelihood), [tree.consistency @ x == 0])


def table() -> np.ndarray:
    return np.array([[[4.0, 0], [7, 1]], [[0, 0], [2, 9]]])


@model
def table_with_margins() -> dpm.Problem:
    """A contingency table whose two-way margins are public."""
    true = table()
    x = cp.Variable((2, 2, 2), nonneg=True, name="table")
    margins = [cp.sum(x, axis=axis) == true.sum(axis=axis) for axis in range(3)]
    return dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(x, noisy(true, scale=2.0))), margins)


@model
def elastic_table() -> dpm.Problem:
    """LWK15, 4.5: a share of least squares makes the table unique."""
    true = table().reshape(4, 2)
    x = cp.Variable((4, 2), nonneg=True, name="table")
    likelihood = dpm.released.neg_log_likelihood(x, noisy(true, scale=2.0), alpha=0.9)
    return dpm.Problem(cp.Minimize(likelihood), [cp.sum(x) == true.sum()])


@model
def least_squares_table() -> dpm.Problem:
    """LWK15, 4.6, without signs: a projection onto margins."""
    true = table().reshape(4, 2)
    x = cp.Variable((4, 2), name="table")
    likelihood = dpm.released.neg_log_likelihood(x, noisy(true, scale=2.0), form="least-squares")
    margins = [cp.sum(x, axis=axis) == true.sum(axis=axis) for axis in range(2)]
    return dpm.Problem(cp.Minimize(likelihood), margins)


@model
def overlapping_margins() -> dpm.Problem:
    """Two noisy margins of one table, of different distributions."""
    true = table().reshape(4, 2)
    x = cp.Variable((4, 2), nonneg=True, name="table")
    rows = dpm.released.neg_log_likelihood(cp.sum(x, axis=1), noisy(true.sum(axis=1), dpm.noise.Gaussian, 1.5))
    columns = dpm.released.neg_log_likelihood(cp.sum(x, axis=0), noisy(true.sum(axis=0), scale=3.0, seed=1))
    return dpm.Problem(cp.Minimize(rows + columns + 0.1 * cp.sum_squares(x)))


@model
def strategy() -> dpm.Problem:
    """Answers of the matrix mechanism's strategy."""
    A = np.vstack([np.eye(6), np.tril(np.ones((6, 6)))])
    true = np.array([0.0, 0, 5, 1, 0, 8])
    x = cp.Variable(6, nonneg=True, name="histogram")
    return dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(A @ x, noisy(A @ true, scale=3.0))))


@model
def chain() -> dpm.Problem:
    """A cumulative histogram: it never falls."""
    x = cp.Variable(7, name="cumulative")
    likelihood = dpm.released.neg_log_likelihood(x, noisy(np.cumsum([0.0, 0, 3, 0, 4, 0, 1]), dpm.noise.Gaussian, 2.0))
    return dpm.Problem(cp.Minimize(likelihood), [x[1:] >= x[:-1]])


@model
def known_total() -> dpm.Problem:
    x = cp.Variable(5, nonneg=True, name="counts")
    likelihood = dpm.released.neg_log_likelihood(x, noisy([4.0, 0, 0, 1, 5], dpm.noise.DiscreteLaplace, 2.0))
    return dpm.Problem(cp.Minimize(likelihood), [cp.sum(x) == 10])


@model
def general_rows() -> dpm.Problem:
    rng = np.random.default_rng(3)
    x = cp.Variable(6, bounds=[0, 8], name="x")
    rows = sp.csr_array(rng.integers(-1, 2, (3, 6)).astype(float))
    true = np.array([1.0, 0, 3, 2, 0, 1])
    scale = np.array([1.0, 2, 1, 2, 1, 4])
    likelihood = dpm.released.neg_log_likelihood(x, noisy(true, scale=scale))
    return dpm.Problem(cp.Minimize(likelihood), [rows @ x <= rows @ true + 0.5, cp.sum(x) == true.sum()])


@model
def beyond_linear() -> dpm.Problem:
    """A second-order cone: CVXPY solves it."""
    x = cp.Variable(4, name="x")
    return dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(x, noisy(np.ones(4), scale=2.0))), [cp.norm(x) <= 1])
