"""What is refused as a regression, with its reason, and what is no candidate at all."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from models import MODELS
from regression_spellings import PUBLIC, ROOTS, SHIFT, Leaves, N, P
from test_read import minimise

from dpmodel.errors import DPModelError, MissingValueError, SpecificationError, UnsupportedModelError
from dpmodel.marks import Private, Records
from dpmodel.problem import Problem
from dpmodel.regressions.read import recognise

TRAPS: dict[str, tuple[Any, ...]] = {  # name -> (objective, words of the message)
    "margins of each record": (lambda m: cp.sum(cp.pos(SHIFT + 2 - m.margin)), "maximum", "margin", "cp.pos(1 -"),
    "margin of 0": (lambda m: cp.sum(cp.pos(-m.margin)), "not positive", "cp.pos(1 -"),
    "margin below 0": (lambda m: cp.sum(cp.pos(-1 - m.margin)), "not positive"),
    "two margins": (lambda m: cp.sum(cp.pos(1 - m.margin) + cp.pos(2 - m.margin)), "differs from the others"),
    "two multiples": (
        lambda m: cp.sum_squares(m.X @ m.w - m.y) + cp.sum_squares(m.X @ m.w - 2 * m.y),
        "difference",
        "same public multiple",
    ),
    "other multiples": (lambda m: cp.sum(cp.pos(m.X @ m.w - m.y) + cp.neg(m.X @ m.w - 2 * m.y)), "difference"),
    "label of squares alone": (lambda m: cp.sum_squares(m.X @ m.w) - 2 * m.y @ (m.Z @ m.v), "another prediction"),
    "square of the label": (
        lambda m: cp.sum_squares(m.X @ m.w) - 2 * m.y @ (m.X @ m.w) + cp.sum_squares(m.y),
        "no solution depends",
    ),
    "label times a square": (lambda m: cp.sum_squares(m.X @ m.w) + m.y @ cp.square(m.X @ m.w), "label multiplies"),
    "shifted recoded": (lambda m: cp.sum(cp.logistic(1 - cp.multiply(2 * m.t - 1, m.z))), "nothing is added"),
    "recoded beside": (lambda m: cp.sum(cp.logistic(cp.multiply(1 - 2 * m.t, m.X @ m.w) + m.b)), "another prediction"),
    "two codes": (
        lambda m: cp.sum(cp.logistic(-cp.multiply(2 * m.t - 1, m.z)) + cp.logistic(-cp.multiply(m.t, m.z))),
        "unlike the others",
    ),
    "recoded without a range": (
        lambda m: cp.sum(
            cp.logistic(-cp.multiply(2 * Private(shape=N, name="q", unit="entry", records=m.people) - 1, m.X @ m.w))
        ),
        "does not say",
        "bounds=[0, 1]",
    ),
    "two losses, stacked": (lambda m: cp.sum(cp.hstack([cp.square(m.r), cp.abs(m.r)])), "one loss for all"),
    "three kinks, stacked": (
        lambda m: cp.sum(cp.max(cp.vstack([m.r - 0.1, -m.r - 0.1, np.zeros(N)]), axis=0)),
        "shifted",
    ),
    "largest over records": (lambda m: cp.sum(cp.max(cp.vstack([m.r, -m.r]), axis=1)), "(2,)"),
    "squared one-sided": (lambda m: cp.sum_squares(cp.pos(m.r)), "no margin"),
    "column times label": (
        lambda m: cp.sum_squares(cp.multiply(m.X[:, 0], m.y) * m.s - m.y),
        "multiplies the prediction",
    ),
    "column times column": (
        lambda m: cp.sum_squares(cp.multiply(m.X[:, 0], m.X[:, 1]) * m.s - m.y),
        "neither the label",
    ),
    "column squared": (lambda m: cp.sum_squares(cp.multiply(m.X[:, 0], m.X[:, 0]) * m.s - m.y), "by itself"),
    "rows turned and columns picked": (lambda m: cp.sum_squares(m.X[::-1, :2] @ m.v - m.y), "X[6"),
    "rows weighted unlike": (
        lambda m: cp.sum_squares((cp.diag(ROOTS) @ m.X) @ m.w + m.Z @ m.v - m.y),
        "weighted unlike",
    ),
    "mixed before the columns": (lambda m: cp.sum_squares((np.tri(N) @ m.X) @ m.w - m.y), "mixes the records"),
    "shifted logistic": (lambda m: cp.sum(cp.logistic(1 - m.margin)), "logistic", "nothing is added"),
    "private threshold": (lambda m: cp.sum(cp.huber(m.r, m.t[0])), "t stands where", "public number"),
    "public exponent": (lambda m: cp.sum(cp.power(m.r, cp.Parameter(value=2))), "none of the losses"),
    "label among the features": (lambda m: cp.sum_squares(m.X @ m.w + m.y * m.b - m.y), "another prediction"),
    "label sum apart": (lambda m: cp.sum(cp.pos(1 - m.margin)) + cp.sum(m.y) * m.b, "no loss of single records"),
    "label squared": (lambda m: cp.sum(cp.pos(1 - cp.multiply(cp.multiply(m.y, m.y), m.z))), "multiplied by itself"),
    "other rows": (lambda m: cp.sum_squares(m.X @ m.w - m.y) + cp.sum_squares(m.X[::-1] @ m.w - m.y), "X[6"),
    "two derivatives": (lambda m: cp.sum(cp.abs(m.X @ m.w - m.y)) + cp.norm1(m.X @ m.w * 2 - m.y), "difference"),
    "two predictions": (
        lambda m: cp.sum_squares(m.X @ m.w - m.y) + cp.sum_squares(m.X @ cp.Variable(3) - m.y),
        "another prediction",
    ),
    "other features": (
        lambda m: cp.sum_squares(m.X @ m.w - m.y) + cp.sum_squares(m.Z @ m.v - m.y),
        "another prediction",
        "one prediction",
    ),
    "two losses": (lambda m: cp.sum_squares(m.r) + cp.norm1(m.r), "norm1", "one loss for all"),
    "linear beside": (lambda m: cp.sum_squares(m.r) + cp.sum(m.X @ m.w), "another prediction"),
    "private penalty weight": (lambda m: cp.sum_squares(m.r) + m.t[0] * cp.norm1(m.w), "t[0] * norm1(w)"),
    "private constant": (lambda m: cp.sum_squares(m.r) + cp.sum(m.y), "no solution depends"),
    "negative weights": (lambda m: cp.sum(cp.multiply(SHIFT, cp.square(m.r))), "negative weight"),
    "insensitive": (lambda m: cp.sum(cp.pos(cp.abs(m.r) - 0.1)), "abs", "affine"),
    "two kinks": (lambda m: cp.sum(cp.maximum(m.r - 0.1, -m.r - 0.1, 0)), "maximum", "shifted"),
    "exponential": (lambda m: cp.sum(cp.exp(m.X @ m.w)), "exp(X @ w)", "cp.logistic"),
    "cube": (lambda m: cp.sum(cp.power(cp.abs(m.r), 3)), "**3"),
    "many outputs with one intercept": (
        lambda m: cp.sum_squares(m.X @ cp.Variable((3, 2)) + m.b - m.Z),
        "shape (7, 2)",
        "several outputs",
        "a column (or one entry) for each output",
        "one problem for each output",
        "Y[:, 0]",
    ),
    "many outputs, one by one": (
        lambda m: sum(cp.sum_squares(m.X @ cp.Variable(3) - m.Z[:, j]) for j in range(2)),
        "Z[:, 0] and Z[:, 1]",
        "one private label",
        "X @ W[:, 0] - Y[:, 0]",
    ),
    "cross entropy without a range": (
        lambda m: cp.sum(
            cp.logistic(m.z) - cp.multiply((Private(shape=N, name="q", unit="entry", records=m.people) + 1) / 2, m.z)
        ),
        "beside cp.logistic",
    ),
    "broadcast": (lambda m: cp.sum_squares(m.X @ m.W - m.y), "(7, 7)"),
    "two labels": (lambda m: cp.sum_squares(m.r - m.t), "y and t"),
    "gradient at 0": (lambda m: cp.sum(cp.logistic(m.X @ m.w)) - (m.X.T @ m.t) @ m.w, "y @ (X @ w)"),
    "half binary": (lambda m: cp.sum(cp.logistic(m.z) - 0.5 * cp.multiply(m.t, m.z)), "beside cp.logistic"),
    "half signs": (lambda m: cp.sum(cp.logistic(m.z) - cp.multiply(m.y / 2, m.z)), "beside cp.logistic"),
    "squared margin": (lambda m: cp.sum_squares(1 - m.margin), "multiplies the prediction"),
    "mixing": (lambda m: cp.sum_squares(np.tri(N) @ (m.X @ m.w - m.y)), "mixes the records"),
    "signed private weights": (lambda m: cp.sum(cp.multiply(m.y, cp.square(m.X @ m.w - 1))), "public weights"),
    "variance": (lambda m: cp.var(m.r), "sum("),
    "softmax": (lambda m: cp.sum(cp.log_sum_exp(cp.vstack([np.zeros(N), m.z]), axis=0)), "log_sum_exp"),
    "concave penalty": (lambda m: cp.sum_squares(m.r) + cp.sum(cp.sqrt(m.v)), "not convex", "cp.norm1"),
    "convex with minus": (lambda m: cp.sum_squares(m.r) - cp.norm1(m.w), "not convex"),
    "columns scaled by a matrix": (lambda m: cp.sum_squares(cp.multiply(m.X, PUBLIC[:, [0, 1, 0]]) @ m.w), "X @ cp"),
    "weights of some features": (
        lambda m: cp.sum_squares(m.X @ m.w + cp.multiply(ROOTS, m.Z @ m.v) - m.y),
        "weighted unlike",
    ),
    "huber weights inside": (lambda m: cp.sum(cp.huber(cp.multiply(ROOTS, m.r))), "different thresholds"),
    "huber without threshold": (lambda m: cp.sum(cp.huber(m.r, 0)), "positive threshold"),
    "label between": (lambda m: cp.sum_squares(m.X @ m.w) + cp.sum_squares(m.X @ m.w - m.y), "difference"),
    "a loop of pairs": (
        lambda m: sum(cp.pos(1 - (m.X[i] - m.X[i + 1]) @ m.w) for i in range(N - 1)),
        "one by one",
        "one expression for all",
    ),
    "a loop with another's label": (
        lambda m: sum(cp.abs(m.X[i] @ m.w - m.y[N - 1 - i]) for i in range(N)),
        "one by one",
        "of one record in each term",
    ),
    "a loop of products": (
        lambda m: sum(cp.abs(m.X[i] @ cp.multiply(m.D[i, :3], m.w)) for i in range(N)),
        "neither the label",
    ),
    "a loop of two losses": (
        lambda m: sum((cp.square if i % 2 else cp.abs)(m.X[i] @ m.w - m.y[i]) for i in range(N)),
        "one loss for all",
    ),
    "a loop and a whole": (
        lambda m: cp.sum_squares(m.X @ m.w - m.y) + sum(cp.square(m.X[i] @ m.w - 2 * m.y[i]) for i in range(3)),
        "difference",
    ),
    "scalar parameter": (
        lambda m: cp.sum_squares(m.X @ m.w - Private(shape=(), name="level", linf=1, records=m.people)),
        "all records share",
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_refused(name: str) -> None:
    write, *words = TRAPS[name]
    with pytest.raises(UnsupportedModelError) as caught:
        recognise(minimise(write(Leaves())))
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert caught.value.what.startswith("the objective: ")
    assert caught.value.why and caught.value.remedy


def test_private_constraints_and_bounds_are_refused() -> None:
    m = Leaves()
    radius = Private(shape=(), name="radius", linf=1)
    with pytest.raises(UnsupportedModelError, match="ball: radius is private"):
        recognise(minimise(cp.sum_squares(m.r), (cp.norm1(m.w) <= radius).set_label("ball")))
    with pytest.raises(UnsupportedModelError, match="ring: not convex"):
        recognise(minimise(cp.sum_squares(m.r), (cp.norm2(m.w) >= 1).set_label("ring")))
    w = cp.Variable(3, name="u", bounds=[0, m.t[:3]])
    with pytest.raises(UnsupportedModelError, match="bounds variable u"):
        recognise(minimise(cp.sum_squares(m.X @ w - m.y)))
    with pytest.raises(UnsupportedModelError, match="integer"):
        recognise(minimise(cp.sum_squares(m.X @ cp.Variable(3, integer=True) - m.y)))


@pytest.mark.parametrize("shape", [(1, 20), (10, 2)])
def test_a_record_that_owns_several_labels_is_refused(shape: tuple[int, int]) -> None:
    """Taken for one label per record after reshaping, (1, 20) would get noise too small by a factor of 20."""
    people = Records("people")
    X = Private(shape=(20, 2), unit="row", bounds=[-1, 1], records=people, name="X")
    y = Private(shape=shape, unit="row", bounds=[-1, 1], records=people, name="y")
    w = cp.Variable(2)
    with pytest.raises(UnsupportedModelError, match="shape"):
        recognise(minimise(cp.sum_squares(X @ w - cp.vec(y, order="F")) / 20, cp.norm1(w) <= 1))


def test_other_shapes_than_one_number_for_each_record_are_refused() -> None:
    m = Leaves()
    row = Private(shape=(1, N), unit="row", bounds=[-1, 1], records=m.people, name="f")
    one = Private(shape=(1, 3), unit="row", bounds=[-1, 1], name="X")
    scalar = Private(shape=(), unit="entry", bounds=[-1, 1], name="y")
    for loss in (
        cp.sum_squares(m.X @ m.w + cp.multiply(cp.vec(row, order="F"), cp.Variable()) - m.y),
        cp.sum_squares(one @ m.w - scalar),
    ):
        with pytest.raises(DPModelError, match="shape"):
            recognise(minimise(loss, cp.norm1(m.w) <= 1))


def test_two_parameters_of_one_id_are_refused() -> None:
    m = Leaves()
    other = Private(shape=(N, 2), name="other", unit="row", max_l2=1)
    other.id = m.X.id
    with pytest.raises(UnsupportedModelError, match="same CVXPY id"):
        recognise(minimise(cp.sum_squares(m.X @ m.w + other @ m.v - m.y)))


def test_public_numbers_are_read_and_must_be_there() -> None:
    m = Leaves()
    lam = cp.Parameter(nonneg=True, name="lam")
    problem = minimise(cp.sum(cp.huber(m.r, m.tau)) + lam * cp.norm1(m.w))
    with pytest.raises(MissingValueError, match="lam has no value"):
        recognise(problem)
    lam.value = 2.0
    assert recognise(problem).penalty.l1.max() == 2  # type: ignore[union-attr]
    lam.value, m.tau.value = 3.0, 0.125
    found = recognise(problem)
    assert found is not None and found.penalty.l1.max() == 3 and found.loss.parameter == 0.125
    m.tau.value = None
    with pytest.raises(MissingValueError, match="tau has no value"):
        recognise(problem)
    with pytest.raises(SpecificationError, match="NaN or infinite"):
        recognise(minimise(np.full(N, np.inf) @ cp.abs(m.r)))


# ------------------------------------------------------------------------------------ candidates
def test_which_of_the_models_are_regressions() -> None:
    """Models of changes, of aggregates and of largest residuals keep to the standard form."""
    found = set()
    for model in MODELS:
        problem, _ = model.private()
        for parameter in problem.parameters():
            if not isinstance(parameter, Private):
                parameter.value = np.ones(parameter.shape)
        if recognise(problem) is not None:
            found.add(model.name)
    assert found == {"least_squares", "least_squares_private_rows", "logistic"}


def _moved(m: Leaves) -> Private:
    return Private(shape=(N, 3), name="A", unit="row", linf=1)


NO_CANDIDATES: dict[str, Any] = {
    "linear loss": lambda m: minimise(cp.sum(m.X @ m.w) / N, cp.norm1(m.w) <= 1),
    "labelled linear loss": lambda m: minimise(-m.y @ (m.X @ m.w), cp.norm1(m.w) <= 1),
    "linear beside a public norm": lambda m: minimise(cp.sum(m.X @ m.w) + cp.sum_squares(m.w)),
    "constraints": lambda m: minimise(cp.sum_squares(m.w), m.X @ m.w <= 1),
    "bounded changes": lambda m: minimise(cp.norm1(_moved(m) @ m.w - 1)),
    "bounded change of labels": lambda m: minimise(cp.norm1(PUBLIC @ m.v - Private(shape=N, unit="entry", linf=1))),
    "aggregate": lambda m: minimise(cp.sum_squares(Private(shape=(N, 3), linf=1) @ m.w)),
    "columns": lambda m: minimise(cp.sum_squares(Private(shape=(N, 3), unit="column", max_linf=1) @ m.w)),
    "largest residual": lambda m: minimise(cp.norm_inf(m.r)),
    "norm": lambda m: minimise(cp.norm(m.r)),
    "denoising": lambda m: minimise(cp.sum_squares(cp.Variable(N) - m.y)),
    "total of the records": lambda m: minimise(cp.square(cp.sum(m.X @ m.w) - 3)),
    "a loop and a record of another table": lambda m: minimise(
        sum(cp.square(m.X[i] @ m.w - m.y[i]) for i in range(N))
        + cp.square(Private(shape=(N + 2, 2), name="more", unit="row", max_l2=1, records=m.people)[N + 1] @ m.v)
    ),
    "a loop over part of another table": lambda m: minimise(
        sum(
            cp.square(row @ m.w - m.y[i])
            for i, row in enumerate(Private(shape=(N + 2, P), name="more", unit="row", max_l2=1, records=m.people))
            if i < N
        )
    ),
    "one row": lambda m: minimise(cp.square(m.X[0] @ m.w - cp.sum(m.y))),
    "nothing private": lambda m: minimise(cp.sum_squares(m.w)),
}


@pytest.mark.parametrize("name", NO_CANDIDATES)
def test_no_candidate(name: str) -> None:
    assert recognise(NO_CANDIDATES[name](Leaves())) is None


@pytest.mark.parametrize("where", ["constraint", "penalty"])
def test_complex_constants_are_refused_in_words(where: str) -> None:
    """Their real parts would be another problem."""
    X = Private(shape=(30, 3), name="X", unit="row", bounds=[-1, 1])
    y = Private(shape=30, name="y", unit="entry", bounds=[-1, 1])
    w = cp.Variable(3)
    odd = cp.real(1j * (1j * w))
    penalty, constraints = (cp.norm1(odd), []) if where == "penalty" else (0, [odd >= 0])
    problem = Problem(cp.Minimize(cp.sum_squares(X @ w - y) + penalty), [cp.norm1(w) <= 1, *constraints])
    with pytest.raises(UnsupportedModelError, match="a complex constant"):
        problem.plan(1.0, 1e-6)


def test_imaginary_parts_are_refused_in_words() -> None:
    """CVXPY has no gradient for them: the reader ended in its bare NotImplementedError."""
    X = Private(shape=(30, 3), name="X", unit="row", bounds=[-1, 1])
    w = cp.Variable(3)
    problem = Problem(cp.Minimize(cp.sum_squares(X @ w - np.ones(30)) + cp.sum_squares(cp.imag(w))))
    with pytest.raises(UnsupportedModelError, match="imag"):
        problem.plan(1.0, 1e-6)
