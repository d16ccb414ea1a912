"""A registry of small models, each written once and built in three ways.

A model is a function of ``make``, which gives it ``dpmodel.Private`` parameters, plain ``cp.Parameter`` of the same
attributes, or constants. So a private model and an ordinary CVXPY one can be compared number by number.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.marks import Private, Records

ANNOTATION = (
    "unit",
    "l1",
    "l2",
    "linf",
    "row_l1",
    "max_l1",
    "max_l2",
    "max_linf",
    "records",
)
Make = Callable[..., Any]


@dataclass(frozen=True)
class Model:
    """``write(make, public)`` returns the problem; ``exact``: parts whose footprint must be attained."""

    name: str
    write: Callable[[Make, Make], cp.Problem]
    exact: bool = True
    tags: frozenset[str] = field(default_factory=frozenset)

    def private(self) -> tuple[cp.Problem, list[Private]]:
        """A fresh problem and its private parameters, without values."""
        made: list[Private] = []

        def make(name: str, shape: Any = (), **declared: Any) -> Private:
            made.append(Private(shape=shape, name=name, **declared))
            return made[-1]

        def public(name: str, shape: Any = (), **attributes: Any) -> cp.Parameter:
            return cp.Parameter(shape, name=name, **attributes)

        problem = self.write(make, public)
        return problem, made

    def plain(self, values: dict[str, Any], *, constants: bool = False) -> cp.Problem:
        """The same problem with plain parameters (or constants) that have ``values``, by name."""

        def make(name: str, shape: Any = (), **declared: Any) -> Any:
            attributes = {k: v for k, v in declared.items() if k not in ANNOTATION}
            if constants:
                value = cp.Constant(values[name])
                return cp.psd_wrap(value) if attributes.get("PSD") else value
            parameter = cp.Parameter(shape, name=name, **attributes)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # dense values of sparse parameters
                parameter.value = values[name]
            return parameter

        return self.write(make, make)

    def __str__(self) -> str:
        return self.name


MODELS: list[Model] = []


def model(*tags: str, exact: bool = True) -> Callable[[Callable[[Make, Make], cp.Problem]], Model]:
    def register(write: Callable[[Make, Make], cp.Problem]) -> Model:
        MODELS.append(Model(write.__name__, write, exact, frozenset(tags)))
        return MODELS[-1]

    return register


def with_tag(tag: str) -> list[Model]:
    return [m for m in MODELS if tag in m.tags]


def random_value(rng: np.random.Generator, parameter: Any) -> Any:
    """A full-size value that the leaf's attributes admit."""
    attributes, shape = parameter.attributes, parameter.shape
    value = np.asarray(rng.normal(size=shape))
    if attributes["PSD"]:
        value = value @ value.T + np.eye(shape[0])
    elif attributes["symmetric"]:
        value = value + value.T
    elif attributes["diag"]:
        value = np.diag(np.diag(value))
    if attributes["nonneg"]:
        value = np.abs(value) + 0.1
    if attributes["nonpos"]:
        value = -np.abs(value) - 0.1
    if parameter.bounds is not None:
        low, high = (np.broadcast_to(np.asarray(b, dtype=float), shape) for b in parameter.bounds)
        value = low + (high - low) * rng.random(shape)
    if parameter.sparse_idx is not None:
        inside = np.zeros(shape)
        inside[parameter.sparse_idx] = value[parameter.sparse_idx]
        value = inside
    return value


_G = np.random.default_rng(7)
P23 = _G.normal(size=(2, 3))
Q42 = _G.normal(size=(4, 2))
M33 = _G.normal(size=(3, 3))
COSTS = np.array([1.0, 2.0, 1.5])


# --------------------------------------------------------------------------------- private in b
@model("lp")
def scalar_rhs_entry(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, unit="entry", linf=1)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= b])


@model("lp")
def scalar_rhs_aggregate_l1(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, l1=2)
    x = cp.Variable(3, nonneg=True)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= b, cp.sum(x) <= 50])


@model("lp")
def scalar_rhs_reused_and_scaled(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, l2=1.5)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= b, x >= 2 * b - 1, 3 * x >= -b[::-1], x <= 40])


@model("lp", exact=False)
def scalar_rhs_mixed_by_constant(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, linf=0.5, l1=1.2)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= P23 @ b])


@model("lp")
def mixed_l1_ball(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, l1=0.7)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= P23 @ b])


@model("lp", exact=False)
def mixed_l2_ball(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, l2=0.7)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= np.abs(P23) @ b])


@model("lp")
def mixed_box_of_one_sign(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, linf=0.5)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= np.abs(P23) @ b])


@model("lp")
def supply_and_demand(make: Make, public: Make) -> cp.Problem:
    supply, demand = make("supply", 2, unit="entry", linf=3, nonneg=True), make("demand", 3, l1=2, nonneg=True)
    x = cp.Variable((2, 3), nonneg=True)
    shortage = cp.Variable(3, nonneg=True)
    objective = cp.Minimize(cp.sum(cp.multiply(np.abs(P23), x)) + 9 * cp.sum(shortage))
    return cp.Problem(objective, [cp.sum(x, axis=1) <= supply, cp.sum(x, axis=0) + shortage >= demand])


@model("lp")
def equality(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, linf=1, l2=1.2)
    x, y = cp.Variable(3), cp.Variable(3, nonneg=True)
    return cp.Problem(cp.Minimize(cp.sum(y)), [M33 @ x + y == b, cp.abs(x) <= 5, y <= 100])


@model("lp")
def entries_of_a_summed_aggregate(make: Make, public: Make) -> cp.Problem:
    b = make("b", (2, 3), linf=1)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= cp.sum(b, axis=1)])


@model("lp")
def transposed_and_sliced(make: Make, public: Make) -> cp.Problem:
    b = make("b", (2, 3), unit="column", l1=1, linf=0.8)
    x = cp.Variable((3, 2))
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= b.T, x[0, 1] >= b[1, 2], x[1:, 0] >= -b[0, :2]])


@model("lp")
def row_unit_bounds_on_a_matrix_rhs(make: Make, public: Make) -> cp.Problem:
    b = make("b", (2, 3), unit="row", linf=0.6, l1=1)
    x = cp.Variable((2, 3))
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= b, 2 * x >= b])


@model("lp", exact=False)
def row_l1_of_an_aggregate(make: Make, public: Make) -> cp.Problem:
    b = make("b", (2, 3), row_l1=1, l1=1.5, linf=0.75)
    x = cp.Variable((2, 3))
    return cp.Problem(cp.Minimize(cp.sum(x)), [cp.multiply(np.abs(P23), x) >= b])


@model("lp", exact=False)
def row_l1_and_l2(make: Make, public: Make) -> cp.Problem:
    b = make("b", (2, 3), row_l1=1, l2=1.1)
    x = cp.Variable((2, 3))
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= cp.multiply(P23, b)])


@model("lp")
def bounds_as_magnitude(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, unit="entry", bounds=[0, 100])
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= b, -x <= -0.5 * b])


@model("lp")
def entrywise_bounds_replace_one(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, bounds=[np.array([50.0, -1.0, 0.0]), np.array([60.0, 1.0, 5.0])])
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= b])


@model("lp")
def entrywise_bounds_add_remove(make: Make, public: Make) -> cp.Problem:
    records = Records("people", neighbors="add-remove")
    low, high = np.array([-3.0, -1.0, 0.0]), np.array([2.0, 1.0, 5.0])
    b = make("b", 3, unit="entry", bounds=[low, high], records=records)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= b, x >= 0.1 * b])


@model("lp", exact=False)
def entrywise_bounds_and_l1(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, bounds=[np.zeros(3), np.array([1.0, 2.0, 5.0])], l1=4)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= b])


@model("lp")
def different_people(make: Make, public: Make) -> cp.Problem:
    one = make("one", 3, l1=1, records=Records("one"))
    two = make("two", 3, l1=5, records=Records("two"))
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= one, x >= two, x >= one + two])


@model("lp")
def public_parameters_too(make: Make, public: Make) -> cp.Problem:
    b, c, cap = make("b", 3, l1=1), public("c", 3, nonneg=True), public("cap", (), nonneg=True)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(c @ x), [x >= b, x <= 10 + cap, cp.multiply(c, x) >= -30])


@model("lp")
def box_of_a_scalar(make: Make, public: Make) -> cp.Problem:
    s = make("s", (), linf=2)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= s, x[0] >= -2 * s, cp.sum(x) >= 3])


@model("lp", exact=False)
def two_sided_products(make: Make, public: Make) -> cp.Problem:
    t = make("t", (3, 4), unit="row", linf=1, l2=1.5)
    x = cp.Variable((2, 2))
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= P23 @ t @ Q42])


@model("lp")
def two_sided_products_of_entries(make: Make, public: Make) -> cp.Problem:
    t = make("t", (3, 4), unit="entry", linf=1)
    x = cp.Variable((2, 2))
    return cp.Problem(cp.Minimize(cp.sum(x)), [x >= P23 @ t @ Q42, x[0, 0] >= t[1, 1]])


# --------------------------------------------------------------------------------- private in c
@model("lp")
def objective(make: Make, public: Make) -> cp.Problem:
    c = make("c", 3, l1=1, linf=0.4)
    x = cp.Variable(3, bounds=[-1, np.array([1.0, 2.0, 3.0])])
    return cp.Problem(cp.Minimize(c @ x + cp.sum(c)), [cp.sum(x) == 1])


@model("lp")
def objective_maximised(make: Make, public: Make) -> cp.Problem:
    c = make("c", (2, 3), unit="row", max_l2=1, max_linf=0.9)
    x = cp.Variable((2, 3), bounds=[0, 1])
    return cp.Problem(cp.Maximize(cp.sum(cp.multiply(c, x)) + 3), [cp.sum(x) <= 2.5])


@model("lp", exact=False)
def objective_through_a_matrix(make: Make, public: Make) -> cp.Problem:
    c = make("c", 2, linf=1)
    x = cp.Variable(3, bounds=[-1, 1])
    return cp.Problem(cp.Maximize(c @ P23 @ x), [cp.sum(x) <= 1])


@model("lp")
def high_sensitivity_objective(make: Make, public: Make) -> cp.Problem:
    c = make("c", 3, unit="entry")
    x = cp.Variable(3, bounds=[0, 1])
    return cp.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1])


# --------------------------------------------------------------------------------- private in A
@model("lp")
def rows_of_a(make: Make, public: Make) -> cp.Problem:
    A = make("A", (4, 3), unit="row", max_l1=2, nonneg=True)
    x = cp.Variable(3, nonneg=True)
    return cp.Problem(cp.Maximize(COSTS @ x), [A @ x <= 1, x <= 7])


@model("lp")
def columns_of_a(make: Make, public: Make) -> cp.Problem:
    A = make("A", (4, 3), unit="column", linf=0.5, l1=1.2)
    x = cp.Variable(3, bounds=[-2, 2])
    return cp.Problem(cp.Maximize(COSTS @ x), [A @ x <= 1, -2 * (A @ x) <= 10])


@model("lp")
def entries_of_a(make: Make, public: Make) -> cp.Problem:
    A = make("A", (2, 3), unit="entry", linf=0.5)
    x = cp.Variable(3, bounds=[-2, 2])
    return cp.Problem(cp.Maximize(COSTS @ x), [A @ x <= 1])


@model("lp", exact=False)
def all_of_a_with_row_l1(make: Make, public: Make) -> cp.Problem:
    A = make("A", (3, 3), linf=0.5, row_l1=1, l1=2.2)
    x = cp.Variable(3, bounds=[-2, 2])
    return cp.Problem(cp.Maximize(COSTS @ x), [A @ x <= 1])


@model("lp")
def sparse_a(make: Make, public: Make) -> cp.Problem:
    pattern = (np.array([2, 0, 1, 0, 2]), np.array([0, 0, 1, 2, 2]))
    A = make("A", (3, 3), sparsity=pattern, unit="row", l1=1, linf=0.9)
    x = cp.Variable(3, bounds=[-2, 2])
    return cp.Problem(cp.Maximize(COSTS @ x), [A @ x <= 1, A.T @ x <= 5])


@model("lp", exact=False)
def sparse_aggregate_with_ragged_rows(make: Make, public: Make) -> cp.Problem:
    pattern = (np.array([0, 0, 0, 1, 2]), np.array([0, 1, 2, 1, 2]))
    A = make("A", (3, 3), sparsity=pattern, row_l1=1)
    x = cp.Variable(3, bounds=[-2, 2])
    return cp.Problem(cp.Maximize(COSTS @ x), [A @ x <= 1])


@model("lp")
def diagonal_a(make: Make, public: Make) -> cp.Problem:
    D = make("D", (3, 3), diag=True, l2=1, linf=0.8)
    x = cp.Variable(3, bounds=[-2, 2])
    return cp.Problem(cp.Maximize(COSTS @ x), [D @ x <= 1])


@model("lp", exact=False)
def symmetric_a(make: Make, public: Make) -> cp.Problem:
    S = make("S", (3, 3), symmetric=True, l1=1.5, row_l1=1.2)
    x = cp.Variable(3, bounds=[-2, 2])
    return cp.Problem(cp.Maximize(COSTS @ x), [S @ x <= 1])


@model("lp")
def symmetric_a_entries(make: Make, public: Make) -> cp.Problem:
    S = make("S", (3, 3), symmetric=True, unit="entry", linf=1)
    x = cp.Variable(3, bounds=[-2, 2])
    return cp.Problem(cp.Maximize(COSTS @ x), [S @ x <= 1])


@model("lp", exact=False)
def products_around_a(make: Make, public: Make) -> cp.Problem:
    A = make("A", (3, 4), unit="row", l1=1)
    x = cp.Variable(2, bounds=[-2, 2])
    return cp.Problem(cp.Maximize(cp.sum(x)), [P23 @ A @ Q42 @ x <= 1, (M33 @ A)[:2] @ (Q42 @ x) <= 20])


# ------------------------------------------------------------------------ several parameters, same records
@model("lp")
def row_of_a_with_entry_of_b(make: Make, public: Make) -> cp.Problem:
    people = Records("people")
    A = make("A", (4, 3), unit="row", max_l1=1, records=people)
    b = make("b", 4, unit="entry", bounds=[-1, 1], records=people)
    x = cp.Variable(3, bounds=[-5, 5])
    return cp.Problem(cp.Minimize(COSTS @ x), [A @ x <= b + 3, cp.sum(x) + b[0] >= -9])


@model("lp")
def paired_rows_add_remove(make: Make, public: Make) -> cp.Problem:
    people = Records("people", neighbors="add-remove")
    A = make("A", (4, 3), unit="row", max_l1=1, records=people)
    b = make("b", 4, unit="entry", max_linf=2, records=people)
    x = cp.Variable(3, bounds=[-5, 5])
    return cp.Problem(cp.Minimize(COSTS @ x), [A @ x <= b + 3])


@model("lp", exact=False)
def two_aggregates_of_the_same_people(make: Make, public: Make) -> cp.Problem:
    people = Records("people")
    one, two = make("one", 3, l1=1, records=people), make("two", 3, linf=0.5, records=people)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= one, x >= one + two, cp.sum(x) >= cp.sum(two)])


@model("lp")
def two_disjoint_aggregates(make: Make, public: Make) -> cp.Problem:
    people = Records("people")
    one, two = make("one", 3, l2=1, records=people), make("two", 3, linf=0.5, records=people)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= one, x >= 2 * two])


@model("lp")
def unpaired_units(make: Make, public: Make) -> cp.Problem:
    people = Records("people")
    one = make("one", (2, 2), unit="entry", linf=1, records=people)
    two = make("two", (2, 2), unit="entry", linf=1, records=people)
    x = cp.Variable((2, 2))
    return cp.Problem(
        cp.Minimize(cp.sum(x)),
        [x >= cp.multiply(np.array([[5.0, 1], [1, 1]]), one), x >= cp.multiply(np.array([[1.0, 1], [1, 7]]), two)],
    )


@model("lp")
def unpaired_symmetric_and_dense(make: Make, public: Make) -> cp.Problem:
    people = Records("people")
    one = make("one", (2, 2), unit="entry", linf=1, symmetric=True, records=people)
    two = make("two", (2, 2), unit="entry", linf=1, records=people)
    x, y = cp.Variable((2, 2)), cp.Variable((2, 2))
    return cp.Problem(cp.Minimize(cp.sum(x + y)), [x >= one, y >= two])


@model("lp", exact=False)
def overlapping_pair(make: Make, public: Make) -> cp.Problem:
    people = Records("people")
    one, two = (make(name, 3, unit="entry", linf=1, records=people) for name in ("one", "two"))
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= one - two, x >= 2 * two])


@model("lp")
def row_unit_of_a_vector(make: Make, public: Make) -> cp.Problem:
    people = Records("people")
    A = make("A", (2, 4), unit="column", linf=1, records=people)
    w = make("w", 4, unit="row", linf=2, records=people)
    x = cp.Variable(4, bounds=[-5, 5])
    return cp.Problem(cp.Minimize(cp.sum(x)), [A @ x <= 3, cp.multiply(w, x) <= 8])


# --------------------------------------------------------------------------------- lowered atoms
@model("lp")
def norm1_regression(make: Make, public: Make) -> cp.Problem:
    y = make("y", 4, unit="entry", linf=1)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.norm1(Q42 @ x - y)))


@model("lp")
def norm_inf_of_a_private_matrix(make: Make, public: Make) -> cp.Problem:
    people = Records("people")
    A = make("A", (4, 2), unit="row", max_l2=1, records=people)
    y = make("y", 4, unit="entry", max_linf=1, records=people)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.norm_inf(A @ x - y) + 0.1 * cp.norm1(x)))


@model("lp")
def maximum_of_parameters(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, unit="entry", linf=1)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x + cp.sum(cp.maximum(b, 0.5))), [x >= cp.abs(b)])


@model("cone")
def least_squares(make: Make, public: Make) -> cp.Problem:
    y = make("y", 4, unit="entry", max_linf=1)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum_squares(Q42 @ x - y) + 0.3 * cp.norm1(x)))


@model("cone")
def least_squares_private_rows(make: Make, public: Make) -> cp.Problem:
    A = make("A", (4, 2), unit="row", max_l2=1)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ x - np.arange(4.0)) + 0.3 * cp.sum_squares(x)))


@model("cone")
def second_order(make: Make, public: Make) -> cp.Problem:
    b, r = make("b", 3, l2=1), make("r", (), linf=0.5, nonneg=True)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [cp.norm2(M33 @ x - b) <= 1 + r, cp.norm2(x[:2] - b[1:]) <= 9])


@model("cone")
def logistic(make: Make, public: Make) -> cp.Problem:
    X = make("X", (4, 2), unit="row", max_l2=1)
    w = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(cp.logistic(X @ w)) / 4 + 0.5 * cp.sum_squares(w - 1)))


@model("cone")
def huber_with_private_threshold(make: Make, public: Make) -> cp.Problem:
    M, y = make("M", (), linf=0.1, nonneg=True), make("y", 4, unit="entry", linf=1)
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(cp.huber(Q42 @ x - y, M)) + cp.sum_squares(x)))


@model("cone")
def exponential_of_a_parameter(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, unit="entry", bounds=[-1, 1])
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(COSTS @ x), [x >= cp.exp(b), x >= b])


@model("cone")
def entropy(make: Make, public: Make) -> cp.Problem:
    c = make("c", 3, l1=1)
    x = cp.Variable(3)
    return cp.Problem(cp.Maximize(cp.sum(cp.entr(x)) - c @ x), [cp.sum(x) == 1])


@model("cone")
def log_det_of_symmetric(make: Make, public: Make) -> cp.Problem:
    S = make("S", (2, 2), PSD=True, linf=0.5)
    X = cp.Variable((2, 2), PSD=True)
    return cp.Problem(cp.Maximize(cp.log_det(X) - cp.trace(S @ X)), [X << 5 * np.eye(2)])


@model("cone")
def semidefinite(make: Make, public: Make) -> cp.Problem:
    C = make("C", (2, 2), symmetric=True, unit="entry", linf=1)
    X = cp.Variable((2, 2), symmetric=True)
    return cp.Problem(cp.Minimize(cp.trace(X)), [X >> C, X >> np.eye(2)])


@model("cone")
def diagonal_variable(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, unit="entry", linf=1)
    D = cp.Variable((3, 3), diag=True)
    return cp.Problem(cp.Minimize(cp.norm(D, "fro") + cp.sum(D)), [cp.diag(D) >= b])


@model("cone")
def power_cone(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, unit="entry", bounds=[0.5, 2])
    x = cp.Variable(3)
    y = cp.Variable(3)
    return cp.Problem(cp.Minimize(cp.sum(x) + cp.sum(y)), [cp.PowCone3D(x, y, b, np.array([0.3, 0.5, 0.8]))])


@model("cone")
def geometric_mean(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, bounds=[1, 2])
    x = cp.Variable(3)
    return cp.Problem(cp.Maximize(cp.geo_mean(x) + cp.sum(cp.power(x, 0.3))), [x <= b, cp.sum(x) <= 4])


@model("lp", "integer")
def integer_programme(make: Make, public: Make) -> cp.Problem:
    b = make("b", 3, unit="entry", linf=1)
    x, y = cp.Variable(3, integer=True), cp.Variable(3, boolean=True)
    return cp.Problem(cp.Minimize(COSTS @ x + cp.sum(y)), [x + y >= b, x >= -3])
