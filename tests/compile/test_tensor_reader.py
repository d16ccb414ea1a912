"""Coefficients read off the tree are those of CVXPY's own stuffing, on every model of the zoo, and what the expressions
say at any point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.reductions.cvx_attr2constr import CvxAttr2Constr
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel.compile import bridge
from dpmodel.compile.affine_map import AffineMap
from dpmodel.compile.affine_reader import NotAffine, TensorReader, pairs
from dpmodel.compile.bridge import Lowered, lower
from dpmodel.errors import SpecificationError, UnsupportedModelError
from tests.zoo import cones, finance, flows, health, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, Case, Model

PARTS = ("objective", "offset", "scalar", "public_matrix", "private_matrix")


def by_cvxpy(problem: cp.Problem, monkeypatch: pytest.MonkeyPatch) -> Lowered:
    """Lowered as CVXPY does where an atom cannot be read."""

    def refuses(self: Any, problem: cp.Problem) -> Any:
        raise NotAffine("everything")

    with monkeypatch.context() as patch:
        patch.setattr(bridge._Stuffing, "apply", refuses)
        patch.setattr(bridge, "_Bounds", CvxAttr2Constr)
        return lower(problem)


def is_read(lowered: Lowered) -> bool:
    return type(lowered._chain.reductions[-1]) is bridge._Stuffing


def told(objects: Any, *names: str) -> list[list[Any]]:
    return [[getattr(each, name) for name in names] for each in objects]


def assert_same(one: AffineMap, other: AffineMap) -> None:
    for part in PARTS:
        mine, theirs = getattr(one, part), getattr(other, part)
        assert mine.height == theirs.height
        np.testing.assert_array_equal(mine.row, theirs.row)
        np.testing.assert_array_equal(mine.column, theirs.column)
        np.testing.assert_allclose(mine.coefficient, theirs.coefficient, rtol=1e-12)
    shown = ("kind", "start", "size", "sizes", "alphas", "constraint", "label")
    assert told(one.cones, *shown) == told(other.cones, *shown)
    for name in ("variables", "rows", "theta_size", "maximize"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("boolean", "integer"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert list(one.variable_columns.values()) == list(other.variable_columns.values())
    assert told(one.parameters, "name", "offset", "size") == told(other.parameters, "name", "offset", "size")


# Those of pipelines are regressions, which are read another way.
PROGRAMS = [model for model in MODELS if model.family != "pipelines"]


@pytest.mark.parametrize("model", PROGRAMS, ids=lambda model: model.name)
def test_every_model_of_the_zoo_is_read_as_cvxpy_reads_it(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Case(model, "small").problem
    ours = lower(problem)
    assert is_read(ours)
    assert_same(ours.affine, by_cvxpy(problem, monkeypatch).affine)


# ------------------------------------------------------------------ what the expressions say, at a point
P = cp.Parameter((3, 2), name="P")
q = cp.Parameter(3, name="q")
s = cp.Parameter(name="s")
X = cp.Variable((2, 4), name="X")
y = cp.Variable(3, name="y")
t = cp.Variable(name="t")
C = np.array([[1.0, -2.0, 0.0], [0.5, 0.0, 3.0]])


def cube() -> Any:
    return cp.reshape(X, (2, 2, 2), order="F")


EXPRESSIONS: list[Callable[[], Any]] = [
    lambda: P @ X,
    lambda: C @ (P @ X) + 1.0,
    lambda: (P @ X).T,
    lambda: (P @ X)[1:, ::2] - 3.0,
    lambda: cp.multiply(P, X[:, :2].T[[0, 1, 0]]),
    lambda: cp.multiply(y, q) / 4.0,
    lambda: q @ y + s * t,
    lambda: y @ (2.0 * q - 1.0),
    lambda: (P.T @ y) * 3.0,
    lambda: (P + P) @ X[:, 0] - y,
    lambda: cp.hstack([s * y, q, t, 2.0]),
    lambda: cp.vstack([q[0] * X[0], X[1] - q[2]]),
    lambda: cp.sum(P @ X, axis=0, keepdims=True),
    lambda: cp.reshape(s * X, (4, 2), order="C"),
    lambda: cp.diag(cp.multiply(q, y)) + cp.diag(q),
    lambda: cp.trace(P @ X[:, :3]),
    lambda: cp.trace(X[:, :2] @ C[:, :2]),
    lambda: -(C.T @ X @ np.ones((4, 1))),
    lambda: cp.multiply(cp.broadcast_to(t, (3, 2)), P),
    lambda: sp.csr_array(C) @ y - C @ q,
    lambda: sp.csc_array(C) @ (P @ X) - sp.csr_array(C) @ (P @ X),
    lambda: s - s + 0.0 * t,
    lambda: cp.hstack([cube(), 2.0 * cube()]),  # which CVXPY's COO backend (1.9) puts in another order
    lambda: cp.transpose(cp.vstack([cube(), s * cube()]), axes=(2, 1, 0)) / np.array([1.0, 2.0, 4.0, 8.0]),
    lambda: cp.sum(cube() + np.arange(2.0), axis=(0, 2)) - cp.broadcast_to(t, (2,)),
    lambda: cp.concatenate([cp.multiply(P, 3.0), X[:, :2]], axis=0) / np.array([[2.0, 4.0]]),
    lambda: s * (t + 2.0),
]


def evaluated(expression: Any, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
    reader = TensorReader({X.id: 0, y.id: 8, t.id: 11}, 12, {P.id: 0, q.id: 6, s.id: 9}, 11)
    row, variable, parameter, data = reader.coefficients([expression])
    return np.bincount(row, weights=data * np.append(x, 1.0)[variable] * theta[parameter], minlength=expression.size)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from(range(len(EXPRESSIONS))), min_size=1, max_size=3))
def test_coefficients_give_the_values_of_the_expressions(seed: int, chosen: list[int]) -> None:
    """Alone, and summed up with others as in a longer model."""
    rng = np.random.default_rng(seed)
    theta, x = np.append(rng.normal(size=10), 1.0), rng.normal(size=12)
    P.value, q.value, s.value = theta[:6].reshape((3, 2), order="F"), theta[6:9], theta[9]
    X.value, y.value, t.value = x[:8].reshape((2, 4), order="F"), x[8:11], x[11]
    expression = sum(float(rng.normal()) * cp.sum(EXPRESSIONS[k]()) for k in chosen)
    assert evaluated(expression, theta, x) == pytest.approx(np.ravel(expression.value), rel=1e-9, abs=1e-9)
    for k in chosen:
        each = EXPRESSIONS[k]()
        assert evaluated(each, theta, x) == pytest.approx(np.ravel(each.value, order="F"), rel=1e-9, abs=1e-9)


def test_no_value_is_asked_for() -> None:
    bare, x = cp.Parameter((2, 3)), cp.Variable(3)
    reader = TensorReader({x.id: 0}, 3, {bare.id: 0}, 7)
    row, variable, parameter, data = reader.coefficients([bare @ x])
    assert sorted(zip(row, variable, parameter, data, strict=True)) == [
        (i, j, i + 2 * j, 1.0) for i in range(2) for j in range(3)
    ]


@pytest.mark.parametrize(
    "made",
    [lambda: cp.cumsum(y), lambda: cp.convolve(q, y), lambda: cp.kron(P, X), lambda: cp.abs(q), lambda: s * s * t],
    ids=["cumsum", "convolve", "kron", "abs", "square"],
)
def test_what_cannot_be_followed_is_refused(made: Callable[[], Any]) -> None:
    with pytest.raises(NotAffine):
        evaluated(made(), np.ones(11), np.ones(12))


def test_imaginary_parts_are_not_dropped() -> None:
    """Their products may be real."""
    b, x = dpm.Private(shape=2, name="b", linf=1), cp.Variable(2)
    for side in (
        cp.real(1j * (1j * b)),
        cp.real((2 + 1j) * (1j * b + b)),
        cp.real(sp.eye_array(2) * 1j @ (1j * x)) + b,
    ):
        with pytest.raises(UnsupportedModelError):
            lower(cp.Problem(cp.Minimize(cp.sum(x)), [x >= side]))
    seen = lower(cp.Problem(cp.Minimize(cp.sum(x)), [x >= cp.real(np.array([2 + 1j, 3.0])) - cp.conj(b)]))
    assert is_read(seen) and seen.affine.scalar.nnz == 4


def test_a_division_by_zero_is_refused_in_words() -> None:
    """CVXPY's backends take 1 / 0 for 0, so that what is divided is gone."""
    b, x = dpm.Private(shape=2, name="b", linf=1), cp.Variable(2)
    for constraint in (b / 0 <= x, x / np.zeros(2) >= b):
        with pytest.raises(SpecificationError, match="NaN or infinite"):
            lower(cp.Problem(cp.Minimize(cp.sum(x)), [constraint]))


def test_whole_entries_that_cvxpy_cannot_find_are_refused_in_words() -> None:
    b, x = dpm.Private(shape=3, name="b", linf=1), cp.Variable(3, boolean=[0, 2])
    with pytest.raises(UnsupportedModelError, match="function of its parameters"):
        lower(cp.Problem(cp.Minimize(cp.sum(x)), [x >= b]))


# ------------------------------------------------------------------ whole problems that are lowered another way
def private(shape: Any, name: str) -> dpm.Private:
    return dpm.Private(np.ones(shape), name=name, unit="entry", linf=1)


def others() -> list[tuple[str, bool, cp.Problem]]:
    """A name, whether the last reduction is a reading, and the problem."""
    x, Z = cp.Variable(4, name="x"), cp.Variable((2, 3), symmetric=False, name="Z")
    p, A = private(4, "p"), private((2, 2), "A")
    S = dpm.Private(shape=(40, 4), sparsity=np.nonzero(np.eye(40, 4)), name="S", unit="entry", linf=1)
    w = cp.Variable(4, nonneg=True, name="w")
    k = cp.Variable((2, 2), PSD=True, name="k")
    u = cp.Variable(4, bounds=[np.array([-np.inf, 0, 1, 2]), 5], integer=True, name="u")
    v, n = cp.Variable((2, 2), bounds=[None, 3.0], name="v"), cp.Variable(nonpos=True, name="n")
    ends = np.array([[0, -np.inf], [1, 2]]), np.array([[5, 6], [np.inf, 8]])
    t = cp.Variable((2, 2), bounds=ends, name="t")
    bounded = [u + x >= p, v + A >= n, cp.exp(n) <= w[0]]
    return [
        ("cumulative sums have variables of their own", True, cp.Problem(cp.Minimize(p @ x), [cp.cumsum(x) >= p])),
        ("a parameter in an atom", True, cp.Problem(cp.Minimize(cp.sum(x)), [x >= cp.abs(p)])),
        ("nothing to keep", True, cp.Problem(cp.Minimize(p @ w + p[0]))),
        ("kron", False, cp.Problem(cp.Minimize(cp.sum(Z)), [cp.kron(np.ones((2, 1)), Z) >= p[0]])),
        ("a sparse table elsewhere", False, cp.Problem(cp.Minimize(cp.sum(x)), [(-S) @ x <= 1])),
        ("attributes", True, cp.Problem(cp.Maximize(p @ w - k[0, 0]), [w <= 1, k[0, 1] == p[0]])),
        ("bounds", True, cp.Problem(cp.Maximize(p @ x - cp.sum(u)), [x <= w, *bounded[:2]])),
        ("bounds of some entries", True, cp.Problem(cp.Maximize(p @ x - w[0]), [A + w[1] <= t.T, x <= 1, w[:0] <= 2])),
        ("bounds and cones", True, cp.Problem(cp.Minimize(cp.sum(v)), bounded)),
        ("cones", True, cp.Problem(cp.Minimize(cp.norm(x - p)), [cp.sum(cp.exp(x)) <= 9, cp.SOC(x[0], x[1:])])),
        ("matrices", True, cp.Problem(cp.Minimize(cp.sum(p) + k[0, 0]), [k - A >> 0])),
        ("cones across rows", False, cp.Problem(cp.Minimize(cp.sum(Z)), [cp.SOC(Z[:, 0] + p[:2], Z[:, 1:], axis=1)])),
    ]


@pytest.mark.parametrize("name, read, problem", others(), ids=lambda each: each if isinstance(each, str) else "")
def test_other_problems(name: str, read: bool, problem: cp.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = lower(problem)
    assert is_read(ours) == read
    assert_same(ours.affine, by_cvxpy(problem, monkeypatch).affine)


def test_pairs_are_those_that_agree() -> None:
    rng = np.random.default_rng(5)
    for size in (0, 1, 7, 40):
        left, right = rng.integers(0, 6, size), rng.integers(0, 9, 20) if size < 40 else np.arange(9)
        left = np.arange(9) if size == 40 else left  # the same, in order
        expected = {(i, k) for i in range(left.size) for k in range(right.size) if left[i] == right[k]}
        i, k = pairs(left, right)
        assert len(i) == len(expected) and set(zip(i.tolist(), k.tolist(), strict=True)) == expected
