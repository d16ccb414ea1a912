"""From recognised regressions to models: bounds against brute force, cells, the reader, and what is refused."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.errors import InfeasibleError, MissingValueError, PublicPatternWarning, SpecificationError
from dpmodel.marks.private import Private
from dpmodel.marks.records import Records
from dpmodel.regressions.build import private_regression
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.read import recognise

N = 6
PUBLIC = np.linspace(-1, 2, 2 * N).reshape(N, 2)


def model_of(objective: Any, *constraints: Any, clip: float = math.inf) -> PrivateRegression:
    found = recognise(cp.Problem(cp.Minimize(objective), list(constraints)))
    assert found is not None
    return private_regression(found, clip)


def rows_of(people: Records | None = None, **declared: Any) -> Private:
    return Private(shape=(N, 3), name="X", unit="row", records=people, **(declared or {"max_l2": 1}))


def labels_of(people: Records | None = None, **declared: Any) -> Private:
    return Private(shape=N, name="y", unit="entry", records=people, **(declared or {"bounds": [-1, 1]}))


# ------------------------------------------------------------------------------------ bounds
@pytest.mark.parametrize(
    ("declared", "l1", "l2", "linf"),
    [
        ({"max_l2": 1}, math.sqrt(3), 1, 1),
        ({"max_l1": 2}, 2, 2, 2),
        ({"max_linf": 2}, 6, 2 * math.sqrt(3), 2),
        ({"bounds": [-1, 3]}, 9, 3 * math.sqrt(3), 3),
        ({"bounds": [np.array([0.0, -1, -5]), np.array([3.0, 1, 4])]}, 9, math.sqrt(9 + 1 + 25), 5),
        ({"bounds": [-3, 3], "max_l2": 2}, 2 * math.sqrt(3), 2, 2),
        ({"max_l1": 2, "max_linf": 1}, 2, math.sqrt(3), 1),
        ({"bounds": [0, 1], "max_l1": 1, "linf": 0.5}, 1, 1, 1),
    ],
)
def test_row_bounds_follow_the_declarations(declared: dict[str, Any], l1: float, l2: float, linf: float) -> None:
    row = model_of(cp.norm1(rows_of(**declared) @ cp.Variable(3) - labels_of())).row
    assert (row.l1, row.l2, row.linf) == pytest.approx((l1, l2, linf))
    assert row.label == (-1, 1) and not row.absent


def test_columns_keep_their_own_bounds() -> None:
    low, high = np.array([18.0, 0, -2]), np.array([90.0, 20, -1])
    row = model_of(cp.norm1(rows_of(bounds=[low, high]) @ cp.Variable(3) + cp.Variable() - labels_of())).row
    assert row.lower.tolist() == [18, 0, -2, 1] and row.upper.tolist() == [90, 20, -1, 1]
    assert row.constant.tolist() == [False, False, False, True]
    entrywise = np.arange(3.0 * N).reshape(N, 3)
    row = model_of(cp.norm1(rows_of(bounds=[-entrywise, entrywise + 1]) @ cp.Variable(3) - labels_of())).row
    assert row.upper.tolist() == [16, 17, 18] and row.lower.tolist() == [-15, -16, -17]


def test_blocks_of_a_row_are_added_up() -> None:
    people = Records("people")
    X, Z = rows_of(people), Private(shape=(N, 2), name="Z", unit="row", max_l1=3, records=people)
    x, y = Private(shape=N, name="x", unit="entry", bounds=[-1, 4], records=people), labels_of(people)
    w, v, u, s, b = cp.Variable(3), cp.Variable(2), cp.Variable(2), cp.Variable(), cp.Variable()
    row = model_of(cp.sum_squares(X @ w + Z @ v + PUBLIC @ u + x * s + b - y)).row
    l1 = float(np.abs(PUBLIC).sum(axis=1).max())
    l2 = float(np.linalg.norm(PUBLIC, axis=1).max())
    assert row.l1 == pytest.approx(math.sqrt(3) + 3 + 4 + l1)
    assert row.l2 == pytest.approx(math.hypot(1, 3, 4, l2))
    assert row.linf == 4
    assert row.constant.tolist() == [False] * 8 + [True]


@pytest.mark.parametrize(
    ("declared", "label"),
    [({"bounds": [-2, 5]}, (-2, 5)), ({"max_linf": 3}, (-3, 3)), ({"max_l2": 2, "nonneg": True}, (0, 2))],
)
def test_label_ranges(declared: dict[str, Any], label: tuple[float, float]) -> None:
    assert model_of(cp.norm1(rows_of() @ cp.Variable(3) - labels_of(**declared))).row.label == label


def test_public_labels_and_folded_ones() -> None:
    w = cp.Variable(3)
    assert model_of(cp.sum_squares(rows_of() @ w - np.arange(N))).row.label == (0, N - 1)
    assert model_of(cp.sum(cp.pos(1 - rows_of() @ w))).row.label == (1, 1)


# ------------------------------------------------------------------------------------ brute force
# name -> (how rows and labels are declared, None for public ones, objective)
GAMES: dict[str, tuple[Any, Any, Callable[[Any, Any, Any], Any]]] = {
    "linear": ({}, {}, lambda X, y, w: cp.sum_squares(X @ w + cp.Variable() - y)),
    "columns": (
        {"bounds": [np.array([-1.0, 0, -2]), np.array([1.0, 3, 0])]},
        {},
        lambda X, y, w: cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / N,
    ),
    "weighted": ({"max_l1": 2, "max_linf": 1}, {}, lambda X, y, w: np.arange(1.0, N + 1) @ cp.abs(X @ w - y)),
    "label privacy": (None, {}, lambda X, y, w: cp.sum_squares(PUBLIC @ w[:2] + cp.Variable() - y)),
    "beside public": ({}, None, lambda X, y, w: cp.sum(cp.huber(X @ w + PUBLIC @ cp.Variable(2) - np.ones(N)))),
    "without zero": ({"bounds": [1, 2]}, {}, lambda X, y, w: cp.sum_squares(X @ w - y)),
    "changes too": ({"max_l2": 1, "l2": 0.5}, {}, lambda X, y, w: cp.sum_squares(X @ w - y)),
}


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("game", GAMES)
def test_no_record_moves_the_gradient_further(game: str, neighbors: Any) -> None:
    """Derivatives of either sign that depend on the record alone; wild values, so that clipping is at work.

    The largest move found must come near the bound, or the bound would be idle.
    """
    people, (rows, labels, write) = Records("people", neighbors=neighbors), GAMES[game]
    X, y = rows_of(people, **(rows or {})), labels_of(people, **(labels or {}))
    model = model_of(write(X, y, cp.Variable(3)))
    private = [p for p, declared in ((X, rows), (y, labels)) if declared is not None]
    rng = np.random.default_rng(3)
    moved = dict.fromkeys((1.0, 2.0, math.inf), 0.0)
    for _ in range(200):
        values = [rng.choice([-9.0, 0.0, 9.0], size=p.shape) * rng.random(p.shape) ** rng.integers(3) for p in private]
        victim, derivatives = int(rng.integers(N)), rng.uniform(-1, 1, size=N)
        gradients = []
        for derivative in rng.permutation([-1.0, 1.0]):
            derivatives[victim] = derivative
            for parameter, value in zip(private, values, strict=True):
                parameter.value = value
            gradients.append(model.scale * model.read_rows().combine(derivatives))
            for value in values:  # the neighbour: another record, or none
                other = rng.choice([-9.0, 9.0], size=value[victim].shape)
                value[victim] = other if neighbors == "replace-one" else 0
        for order in moved:
            moved[order] = max(moved[order], float(np.linalg.norm(gradients[1] - gradients[0], ord=order)))
    for order, furthest in moved.items():
        bound = model.scale * model.gradient_sensitivity(order, 1.0)
        cell = model.classification.cells[0].sensitivity
        assert furthest <= bound
        assert cell[{1.0: "l1", 2.0: "l2", math.inf: "linf"}[order]] == pytest.approx(bound)
        assert furthest >= 0.4 * bound
    expected = neighbors == "add-remove" and game in ("linear", "columns", "weighted")
    assert model.row.absent == expected


@pytest.mark.parametrize("weighted", [False, True])
def test_the_rounding_of_two_sums_is_in_the_bound(weighted: bool) -> None:
    """One record of many goes from one end to the other: sums in double precision part further than exact ones."""
    n, rng = 200_000, np.random.default_rng(0)
    weights = rng.uniform(0.2, 1.0, n) if weighted else np.ones(n)
    weights[0] = 1.0
    X = Private(shape=(n, 1), name="X", unit="row", bounds=[-1, 1])
    errors = cp.abs(X @ cp.Variable(1) - np.linspace(0, 1, n))
    model = model_of(weights @ errors if weighted else cp.sum(errors))
    further = 0.0
    for _ in range(20):
        terms = weights * rng.uniform(0.5, 1, n)
        ends = []
        for end in (-1.0, 1.0):
            terms[0] = end
            # Order is the engine's: pairwise, one after the other, backwards.
            ends.append([terms.sum(), float(np.cumsum(terms)[-1]), float(np.cumsum(terms[::-1])[-1])])
        further = max(further, float(np.abs(np.subtract(*ends)).max()))
    assert 2 * (1 + 2e-12) < further <= model.scale * model.gradient_sensitivity(1.0, 1.0) <= 2 * (1 + 1e-4)


def test_public_columns_whose_squares_vanish_still_need_their_noise() -> None:
    """The squares of such a column are 0 in floating point; what a record moves is not."""
    size = 3.4e-162
    Z = cp.Constant(np.where(np.arange(2 * N).reshape(N, 2) % 3 == 0, size, -size), name="Z")
    w = cp.Variable(2)
    model = model_of(cp.sum(cp.logistic(-cp.multiply(labels_of(), Z @ w))) / N, cp.norm(w, 2) <= 1 / size)
    assert model.gradient_sensitivity(2.0, 1.0) >= 2 * math.sqrt(2) * size


# ------------------------------------------------------------------------------------ the model
def test_the_model_holds_what_the_objective_says() -> None:
    people = Records("people")
    X, y, w = rows_of(people), labels_of(people), cp.Variable(3)
    offset = np.linspace(-2, 1, N)
    model = model_of(cp.sum_squares(X @ w + offset - y) / N + cp.norm1(w), cp.norm1(w) <= 2, clip=0.5)
    assert (model.count, model.scale, model.total, model.weight) == pytest.approx((N, 1 / N, N, 1))
    assert model.loss.clip == 0.5 and model.derivative_bound == 0.5
    assert model.domain.kind == "l1" and model.domain.norm(1.0) == pytest.approx(2)
    assert model.offset_bound == 2 and model.prediction_bound == pytest.approx(4)
    assert model.private == (X, y) and model.public is not None
    assert model.penalty.l1.tolist() == [1, 1, 1]
    weighted = model_of(np.arange(1.0, N + 1) @ cp.abs(X @ w - y))
    assert weighted.largest_weight * weighted.scale == pytest.approx(N)
    assert weighted.weight == pytest.approx(N * (N + 1) / 2)


def test_the_cell_says_what_was_recognised() -> None:
    people = Records("people")
    X, y, w, b = rows_of(people), labels_of(people), cp.Variable(3), cp.Variable()
    cells = model_of(cp.sum_squares(X @ w + b - y) / N, cp.norm1(w) <= 1).classification.cells
    assert [cell.parameter for cell in cells] == ["X", "y"]
    for cell in cells:
        assert (cell.part, cell.level, cell.solvable, cell.relaxed) == ("objective", "low", True, False)
        assert cell.theorem == "TTZ15, AMU20"
        assert "the mean squared loss of 6 records with 3 coefficients and an intercept" in cell.reason
        assert "each record owns one term of the objective" in cell.reason
        assert cell.lower_bound(1, 1e-6, 0.05) is None
        assert cell.to_dict()["sensitivity"]["l2"] == pytest.approx(2 * math.sqrt(2) / N)
    assert cells[0].record == "a record of people owns one row of X (which one is public)"
    ball = model_of(cp.norm1(X @ w - y), cp.norm1(w) <= 1).classification
    assert "the summed absolute loss of 6 records with 3 coefficients over an l1 ball" in str(ball.cells[0])
    assert ball.solvable
    assert "weighted hinge" in str(model_of(np.arange(N) @ cp.pos(1 - X @ w)).classification.cells[0])


def test_planning_needs_no_values_and_reading_does() -> None:
    people = Records("people")
    X, y = rows_of(people), labels_of(people)
    model = model_of(cp.norm1(X @ cp.Variable(3) - y))
    with pytest.raises(MissingValueError, match="private parameters X, y without a value"):
        model.read_rows()
    X.value = np.ones((N, 3))
    with pytest.raises(MissingValueError, match="private parameter y without a value"):
        model.read_rows()
    y.value = np.ones(N)
    assert model.read_rows().count == N


def test_dense_rows_are_views_of_what_is_sealed() -> None:
    X = rows_of(bounds=[-1, 1])
    X.value = np.random.default_rng(0).uniform(-1, 1, size=(N, 3))
    model = model_of(cp.sum(cp.pos(1 - X @ cp.Variable(3))))
    first, second = (model.read_rows().blocks[0][0] for _ in range(2))
    assert np.shares_memory(first, second)
    assert not first.flags.writeable


@pytest.mark.parametrize("positions", ["public", "private"])
def test_sparse_rows_stay_sparse(positions: Any) -> None:
    rng = np.random.default_rng(1)
    value = sp.random_array((50, 20), density=0.1, rng=rng, format="csr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PublicPatternWarning)
        X = Private(value, name="X", unit="row", max_linf=1, positions=positions)
    w = cp.Variable(20)
    model = model_of(cp.sum_squares(X @ w - np.ones(50)))
    matrix = model.read_rows().blocks[0][0]
    assert sp.issparse(matrix) and matrix.format == "csr" and matrix.nnz == value.nnz
    np.testing.assert_allclose(matrix.toarray(), value.toarray())


def test_a_column_of_labels_and_a_sparse_public_block() -> None:
    people = Records("people")
    Y = Private(np.arange(N).reshape(N, 1) / N, name="Y", unit="row", bounds=[0, 1], records=people)
    X = Private(np.ones((N, 3)), name="X", unit="row", bounds=[0, 1], records=people)
    public = sp.csr_array(np.eye(N)[:, :2])
    model = model_of(cp.sum_squares(X @ cp.Variable((3, 1)) + public @ cp.Variable((2, 1)) - Y))
    rows = model.read_rows()
    np.testing.assert_allclose(rows.labels, np.arange(N) / N)
    assert sp.issparse(rows.blocks[1][0])
    np.testing.assert_allclose(rows.predict(np.ones(5)), 3 + np.eye(N)[:, :2].sum(axis=1))


# ------------------------------------------------------------------------------------ refusals
def refused(objective: Any, *words: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        model_of(objective)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert caught.value.why and caught.value.remedy


def test_missing_bounds_are_asked_for() -> None:
    w, people = cp.Variable(3), Records("people")
    free = Private(shape=(N, 3), name="X", unit="row", records=people)
    refused(cp.norm1(free @ w - labels_of(people)), "X: no bound on a row", "max_l2=", "bounds=")
    half = rows_of(people, bounds=[np.array([0, -np.inf, 0]), np.array([1, np.inf, 1])])
    refused(cp.norm1(half @ w - labels_of(people)), "no bound on a row (column 1, for one)")
    y = Private(shape=N, name="y", unit="entry", records=people)
    refused(cp.norm1(rows_of(people) @ w - y), "y: no bound on a label", "max_linf=")
    moved = Private(shape=N, name="y", unit="entry", linf=1, records=people)
    refused(cp.norm1(rows_of(people) @ w - moved), "y: no bound on a label")


def test_labels_must_be_declared_in_the_range_of_their_loss() -> None:
    people = Records("people")
    z = rows_of(people) @ cp.Variable(3)
    wide, free = labels_of(people, bounds=[-2, 2]), Private(shape=N, name="y", unit="entry", records=people)
    for y in (wide, free):
        refused(cp.sum(cp.logistic(-cp.multiply(y, z))), "y: labels of a logistic loss", "[-1, 1]", "bounds=[-1, 1]")
        refused(cp.sum(cp.pos(1 - cp.multiply(y, z))), "y: labels of a hinge loss", "-1 and 1")
    signs = labels_of(people)
    refused(cp.sum(cp.logistic(z) - cp.multiply(signs, z)), "binary logistic", "[0, 1]", "0 and 1")
    inside = labels_of(people, bounds=[0, 1])
    assert model_of(cp.sum(cp.logistic(z) - cp.multiply(inside, z))).row.label == (0, 1)


def test_rows_and_labels_must_be_of_the_same_people() -> None:
    w = cp.Variable(3)
    refused(cp.norm1(rows_of(Records("one")) @ w - labels_of(Records("two"))), "one", "same records=")
    alike = rows_of(Records("one")), labels_of(Records("one"))  # two of one name are two
    refused(cp.norm1(alike[0] @ w - alike[1]), "one", "same records=")
    refused(cp.norm1(rows_of(Records("one")) @ w - labels_of()), "records=Records")
    model_of(cp.norm1(rows_of() @ w - labels_of()))  # a table pairs with a vector where nobody named the records
    x, y = (Private(shape=N, name=name, unit="entry", bounds=[0, 1]) for name in "xy")
    refused(cp.norm1(x * cp.Variable() - y), "x and y", "tables of counts")


def test_a_record_must_own_a_row_or_an_entry() -> None:
    people = Records("people")
    X, w = rows_of(people), cp.Variable(3)
    for unit in ("all", "entry", "column"):
        Z = Private(shape=(N, 2), name="Z", unit=unit, max_linf=1, records=people)
        refused(cp.norm1(X @ w + Z @ cp.Variable(2)), f"Z: unit={unit!r}", "unit='row'")
    y = Private(shape=N, name="y", unit="all", max_linf=1, records=people)
    refused(cp.norm1(X @ w - y), "y: unit='all'", "unit='entry'")
    Y = Private(shape=(N, 1), name="Y", unit="entry", max_linf=1, records=people)
    refused(cp.norm1(X @ cp.Variable((3, 1)) - Y), "Y: unit='entry' on shape (6, 1)", "unit='row'")


def test_an_empty_public_set_is_told() -> None:
    w = cp.Variable(3)
    with pytest.raises(InfeasibleError):
        model_of(cp.norm1(rows_of() @ w - labels_of()), cp.norm1(w) <= 1, cp.sum(w) >= 5)
