"""``feasible_point``: what comes in is kept exactly or refused in time, and what goes out is what was released."""

from __future__ import annotations

import functools
import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from exact_standins import PlainSystem, quick_forecasts
from walking import assert_no_trace

import dpmodel as dpm
from dpmodel.errors import DPModelError, InfeasibleError, SpecificationError
from dpmodel.exact.arguments import EXPECTED
from dpmodel.exact.inputs import LARGEST, inequalities_input, margin_of
from dpmodel.linalg import feasible_point as _feasible_point

feasible_point = functools.partial(_feasible_point, neighbors="add-remove")  # unless a test says otherwise

SECRET = 7321.4375
DEFAULTS: dict[str, Any] = {
    "margin": None, "public": None, "nonneg": False, "bound": None, "neighbors": "add-remove", "expected": None
}  # fmt: skip


def system(n: int = 200, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d))
    return A, A @ np.array([5.0, -7.0, 11.0])[:d] + 0.5 + rng.exponential(size=n)


def given(A: Any, b: Any = None, **arguments: Any) -> Any:
    return inequalities_input(A, b, **{**DEFAULTS, **arguments})


# ------------------------------------------------------------------ answers
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.coo_matrix, pd.DataFrame, lambda A: A.tolist()])
@pytest.mark.parametrize("margin", [0.01, {"radius": 0.4, "within": 20.0}])
def test_a_point_in_the_units_of_the_data(form: Any, margin: Any) -> None:
    A, b = system()
    point = feasible_point(form(A), b, epsilon=1, margin=margin, mechanism=PlainSystem(), rng=0)
    assert point.found and point.exact is None and (A @ point.x <= b).all()
    assert not point.x.flags.writeable
    assert point.guarantee.neighbors == "add-remove" and "one row of A with its entry of b" in point.guarantee.record
    assert "NOT PRIVATE" in point.guarantee.record
    assert point.accuracy.slack_rows == 4 and point.accuracy.alpha == 0.0 and point.accuracy.proved
    assert "all but 4 rows" in str(point) and "plain" in str(point) and "a caveat" in str(point)
    json.dumps(point.to_dict(), allow_nan=False)


def test_a_direction() -> None:
    A, _ = system()
    A = A * np.sign(A @ [1.0, 2.0, -1.0])[:, None] * -1
    point = feasible_point(A, epsilon=1, margin=0.001, mechanism=PlainSystem(), rng=0)
    assert (A @ point.x <= 0).all() and np.abs(point.x).max() > 0
    assert point.guarantee.record.endswith("one row of A")


def test_public_rows_and_signs_hold() -> None:
    A, b = system()
    G, h = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), np.array([4.95, 4.05])
    kept = {"radius": 0.1, "within": 20.0}
    point = feasible_point(A, b, epsilon=1, margin=kept, public=(G, h), mechanism=PlainSystem(), rng=0)
    assert (G @ point.x <= h + 1e-9).all()
    point = feasible_point(np.abs(A), 3.0, epsilon=1, margin=0.1, nonneg=True, mechanism=PlainSystem(), rng=0)
    assert (point.x >= -1e-9).all() and (np.abs(A) @ point.x <= 3).all()


def test_rational_answers_stay_rational() -> None:
    exact = np.array([Fraction(1, 3), Fraction(-5)], dtype=object)
    point = feasible_point([[1, 2]], [7], epsilon=1, bound=9, mechanism=PlainSystem(exact), rng=0)
    assert point.exact == (Fraction(1, 3), Fraction(-5)) and point.x.tolist() == [1 / 3, -5.0]
    assert point.to_dict()["exact"] == ["1/3", "-5"] and "1/3" in str(point) and point.missed == 2.0
    scaled = {"radius": 3, "within": 10.0}
    point = feasible_point([[1, 2]], [7], epsilon=1, margin=scaled, mechanism=PlainSystem(exact), rng=0)
    assert point.exact is not None and point.exact[0] / Fraction(1, 3) == given([[1, 2]], [7], margin=scaled).scale


def test_nothing_found_is_a_result() -> None:
    point = feasible_point([[1.0]], [1.0], epsilon=1, margin=0.1, mechanism=PlainSystem(status="nothing"), rng=0)
    assert not point.found and point.x is None and point.exact is None and point.notes == ("a note", "a caveat")
    assert "nothing found" in str(point) and point.to_dict()["x"] is None


def test_a_result_holds_no_private_number() -> None:
    A, b = system()
    fixed = PlainSystem(np.array([8.25, 3.0, 4.0]))
    point = feasible_point(A, b, epsilon=1, margin=0.01, mechanism=fixed, rng=0)
    assert_no_trace([point], [A[:20], b[:20]])
    again = pickle.loads(pickle.dumps(point))
    assert again.to_dict() == point.to_dict() and not any(v.tobytes() in pickle.dumps(point) for v in A.ravel())


def test_the_number_of_rows_is_public_or_not() -> None:
    A, b = system()
    hidden, public = given(A, b, margin=0.1).model, given(A, b, margin=0.1, neighbors="replace-one").model
    assert (hidden.records, hidden.expected) == (None, EXPECTED)
    assert (public.records, public.expected) == (200, 200)
    assert given(A, b, margin=0.1, expected=50).model.expected == 50
    # One row fewer changes nothing that is public; not even none at all does.
    for fewer in (A[1:], A[:0]):
        other = given(fewer, b[: len(fewer)], margin=0.1).model
        assert {k: v for k, v in vars(other).items() if k in PUBLIC} == {
            k: v for k, v in vars(hidden).items() if k in PUBLIC
        }


PUBLIC = ("variables", "homogeneous", "margin", "largest", "neighbors", "records", "expected")


# ------------------------------------------------------------------ numbers
def test_numbers_are_kept_exactly() -> None:
    huge = 2**70 + 1
    A, b = given([[huge, 1], [2, 3]], [1, -(2**65)], bound=2**71).model.read_rows()
    assert A.dtype == object and A[0, 0] == huge and b[1] == -(2**65)
    mixed = [[Fraction(1, 3), Decimal("0.1")], [0.5, np.int32(7)]]
    A, _ = given(mixed, margin=0.1).model.read_rows()
    assert A.tolist() == [[Fraction(1, 3), Fraction(1, 10)], [Fraction(1, 2), 7]]
    for small in (np.array([[1, 2]], dtype=np.uint8), np.array([[1.0, -2.0]]), [[True, False]], [[np.float32(4), 1]]):
        A, _ = given(small, bound=255).model.read_rows()
        assert A.dtype == np.int64
    A, _ = given(np.array([[2**64 - 1]], dtype=np.uint64), bound=2**64).model.read_rows()
    assert A[0, 0] == 2**64 - 1
    A, b = given(sp.csr_array([[1.0, 0.0], [0.0, 3.0]]), 5, bound=5).model.read_rows()
    assert A.dtype == np.int64 and A.toarray().tolist() == [[1, 0], [0, 3]] and b.tolist() == [5, 5]


def test_the_units_of_x_keep_floats_exactly() -> None:
    A, b = system()
    one = given(A, b, margin={"radius": 0.3, "within": 900.0})
    assert one.scale == 2.0 ** round(math.log2(one.scale)) and 512 <= one.scale <= 1024
    rows, sides = one.model.read_rows()
    assert (rows / one.scale == A).all() and (sides == b).all()
    G = np.eye(3)
    assert (
        given(A, b, margin={"radius": 0.3, "within": 900.0}, public=(G, 1)).model.public_rows == one.scale * G
    ).all()
    assert given([[1, 2]], [3], bound=3, margin={"radius": 0.3, "within": 900.0}).scale == 1.0


# ------------------------------------------------------------------ the margin
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("homogeneous", [True, False])
def test_a_ball_promises_its_margin(seed: int, homogeneous: bool) -> None:
    """Rows that touch the ball of radius r around c, as tight as they come: the lifted centre keeps the margin."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    radius, reach = rng.lognormal(0, 2), rng.lognormal(0, 2)
    within = max(radius, reach) if homogeneous else reach
    c = rng.normal(size=d)
    c *= within / np.linalg.norm(c)
    A = rng.normal(size=(500, d)) * rng.lognormal(0, 2, size=(500, 1))
    A[0], A[1] = c, -c  # the worst rows
    b: Any = A @ c + radius * np.linalg.norm(A, axis=1) * np.where(np.arange(500) % 2, 1, rng.lognormal(0, 1, 500) + 1)
    if homogeneous:
        A = A[A @ c + radius * np.linalg.norm(A, axis=1) <= 1e-12]
        b = None
    made = given(A, b, margin={"radius": radius, "within": within})
    z = c if homogeneous else np.concatenate([[1.0], c / made.scale])
    least = (made.model.lifted(*made.model.read_rows()) @ z / np.linalg.norm(z)).min(initial=1.0)
    assert least >= made.model.margin * (1 - 1e-9)
    best = margin_of(radius, within, homogeneous=homogeneous)
    assert 0.94 * best <= made.model.margin <= best * (1 + 1e-12)


def test_a_bound_needs_no_margin_and_rows_of_zeros_need_no_room() -> None:
    assert given([[1, 2]], [3], bound=3).model.margin is None
    model = given(np.zeros((2, 2)), [1.0, 0.0], margin=0.5).model
    assert model.lifted(*model.read_rows()).tolist() == [[1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_the_smallest_and_largest_numbers_become_unit_rows(sparse: bool) -> None:
    """1 over a subnormal number is infinite: one such record would decide every sum (or end the run)."""
    rows = np.array([[5e-324, 0.0], [1e-310, -2e-310], [LARGEST, 1e-300], [3.0, 4.0]])
    model = given(sp.csr_array(rows) if sparse else rows, margin=0.5).model
    lifted = model.lifted(*model.read_rows())
    lifted = lifted.toarray() if sparse else lifted
    assert np.abs(np.linalg.norm(lifted, axis=1) - 1).max() <= 1e-15
    assert lifted[0].tolist() == [-1, 0] and lifted[1] == pytest.approx(np.array([-1, 2]) / math.sqrt(5))


def test_rows_are_lifted_alike_alone_and_among_others_in_every_layout() -> None:
    rows = np.random.default_rng(3).normal(size=(50, 37))
    for order in ("C", "F"):
        models = [given(np.asarray(part, order=order), margin=0.5).model for part in (rows, rows[:1])]
        many, one = (model.lifted(*model.read_rows()) for model in models)
        assert (many[:1] == one).all()


def test_entries_given_twice_are_added_up_before_the_bound_is_checked() -> None:
    twice = sp.csr_array((np.array([40, 40]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    with pytest.raises(SpecificationError, match="bound=50"):
        given(twice, [3], bound=50)
    model = given(twice, [3], bound=80).model
    assert model.read_rows()[0].toarray().tolist() == [[80, 0]]


# ------------------------------------------------------------------ refusals
A3, B3 = system(5)


def at(value: Any, array: np.ndarray = A3) -> Any:
    out = array.astype(object)
    out.flat[1] = value
    return out


REFUSED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "NaN": (at(np.nan), B3, {}),
    "infinite": (at(np.inf).astype(float), B3, {}),
    "NaN among exact numbers": ([[Fraction(1, 3), float("nan")]], [1], {}),
    "NaN of decimals": ([[Decimal("nan"), 1]], [1], {}),
    "words": (at(f"secret {SECRET}"), B3, {}),
    "None": (at(None), B3, {}),
    "complex": (A3 * 1j, B3, {}),
    "ragged": ([[1.0, SECRET], [2.0]], [1, 2], {}),
    "one-dimensional": (A3[0], B3, {}),
    "too large": (A3 * 1e160, B3, {}),
    "NaN side": (A3, at(np.nan, B3), {}),
    "sides of another length": (A3, B3[:-1], {}),
    "sides of two columns": (A3, np.column_stack([B3, B3]), {}),
    "sparse NaN": (sp.csr_array(at(np.nan).astype(float)), B3, {}),
    "sparse complex": (sp.csr_array(A3 * 1j), B3, {}),
    "no columns": (A3[:, :0], B3, {}),
    "no rows of a public number": (A3[:0], B3[:0], {"neighbors": "replace-one"}),
    "neither margin nor bound": (A3, B3, {"margin": None}),
    "margin 0": (A3, B3, {"margin": 0}),
    "negative margin": (A3, B3, {"margin": -0.1}),
    "margin above 1": (A3, B3, {"margin": 1.5}),
    "NaN margin": (A3, B3, {"margin": np.nan}),
    "truth as margin": (A3, B3, {"margin": True}),
    "margin without within": (A3, B3, {"margin": {"radius": 1.0}}),
    "margin of radius 0": (A3, B3, {"margin": {"radius": 0.0, "within": 1.0}}),
    "ball around 0 of a direction": (A3, None, {"margin": {"radius": 2.0, "within": 1.0}}),
    "fractions under a bound": (A3, B3, {"bound": 10}),
    "above the bound": ([[1, 11]], [1], {"bound": 10}),
    "side above the bound": ([[1, 2]], [-11], {"bound": 10}),
    "least int64 under a bound": (np.array([[-(2**63)]]), [1], {"bound": 10}),
    "sparse above the bound": (sp.csr_array([[1, 11]]), [1], {"bound": 10}),
    "bound 0": ([[0]], [0], {"bound": 0}),
    "bound of a half": ([[0]], [0], {"bound": 1.5}),
    "unknown neighbors": (A3, B3, {"neighbors": "swap"}),
    "public of another width": (A3, B3, {"public": (np.eye(2), np.ones(2))}),
    "public sides of another length": (A3, B3, {"public": (np.eye(3), np.ones(2))}),
    "public NaN": (A3, B3, {"public": (np.eye(3) * np.nan, np.ones(3))}),
    "public words": (A3, B3, {"public": (np.eye(3), "high")}),
    "public without sides": (A3, B3, {"public": np.eye(3)}),
    "nonneg as a word": (A3, B3, {"nonneg": "yes"}),
    "expected 0": (A3, B3, {"expected": 0}),
    "zero epsilon": (A3, B3, {"epsilon": 0}),
    "delta 1": (A3, B3, {"delta": 1.0}),
    "beta 1": (A3, B3, {"beta": 1}),
    "a number as budget": (A3, B3, {"budget": 1.0}),
    "unknown mechanism": (A3, B3, {"mechanism": "magic"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_spent_and_nothing_is_shown(case: str) -> None:
    A, b, arguments = REFUSED[case]
    budget = dpm.Budget(10, 1e-3)
    asked: dict[str, Any] = {"epsilon": 1, "margin": 0.1, "budget": budget, "mechanism": PlainSystem(), "rng": 0}
    with pytest.raises(SpecificationError) as caught:
        feasible_point(A, b, **{**asked, **arguments})
    assert budget.spent.epsilon == 0 and caught.value.remedy and caught.value.__context__ is None
    assert "7321" not in str(caught.value)


def test_without_margin_and_bound_both_ways_out_are_named() -> None:
    with pytest.raises(SpecificationError, match=r"margin=rho0.*radius.*bound=U"):
        feasible_point(A3, B3, epsilon=1)


@pytest.mark.parametrize(
    ("b", "public"),
    [
        (B3, ([[1, 0, 0], [-1, 0, 0]], [1, -2])),
        (B3, ([[0, 0, 0]], [-1])),
        (None, (np.vstack([np.eye(3), -np.ones((1, 3))]), None)),
        (None, (np.vstack([np.eye(3), -np.eye(3)]), 0)),
    ],
)
def test_public_constraints_without_a_solution(b: Any, public: Any) -> None:
    budget = dpm.Budget(10)
    with pytest.raises(InfeasibleError):
        feasible_point(A3, b, epsilon=1, margin=0.1, public=public, budget=budget, mechanism=PlainSystem(), rng=0)
    assert budget.spent.epsilon == 0


def test_thin_public_cones_are_no_error() -> None:
    line = np.array([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])
    assert given(A3, margin=0.1, public=(line, None)).model.homogeneous
    # A side that is not zero fixes the scale, so x = 0 is no special case.
    assert not given(A3, margin=0.1, public=(np.ones((1, 3)), [-1])).model.homogeneous


def test_the_largest_number_is_the_largest() -> None:
    assert given([[LARGEST]], [1], margin=0.1).model.variables == 1
    with pytest.raises(DPModelError):
        given([[10 * LARGEST]], [1], margin=0.1)


# ------------------------------------------------------------------ with the mechanisms of the package
def roomy(n: int = 3_000, d: int = 4, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Rows that leave a ball of radius 2 around a point of norm at most 20, and cut close to it."""
    rng = np.random.default_rng(seed)
    c = rng.normal(size=d)
    c *= 20 / np.linalg.norm(c)
    A = rng.normal(size=(n, d)) * rng.lognormal(size=(n, 1))
    return A, A @ c + np.linalg.norm(A, axis=1) * (2 + rng.exponential(2, size=n))


@pytest.mark.parametrize("mechanism", ["hinge-descent", "rescaling-perceptron"])
def test_a_private_point(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_forecasts(monkeypatch)
    A, b = roomy()
    G, h = np.vstack([np.eye(4), -np.eye(4)]), 30.0
    point = feasible_point(
        A, b, epsilon=1, delta=1e-6, margin={"radius": 2, "within": 20}, public=(G, h), expected=3_000,
        mechanism=mechanism, rng=0,
    )  # fmt: skip
    assert point.found and point.mechanism == mechanism and (G @ point.x <= h + 1e-9).all()
    missed = int((A @ point.x > b).sum())
    assert missed <= point.accuracy.slack_rows <= 1_000
    assert point.guarantee.epsilon <= 1 and point.guarantee.delta <= 1e-6


def test_a_private_point_of_a_whole_system_is_rational() -> None:
    """x + y = 7 hides in two inequalities of half of the people each; the others leave room."""
    rng = np.random.default_rng(2)
    n = 6_000
    A = np.vstack([np.tile([[1, 1], [-1, -1]], (n // 4, 1)), rng.integers(-5, 6, size=(n // 2, 2))])
    b = np.concatenate([np.tile([7, -7], n // 4), A[n // 2 :] @ [3, 4] + rng.integers(3, 9, size=n // 2)])
    box = (np.vstack([np.eye(2), -np.eye(2)]), 20.0)
    point = feasible_point(A, b, epsilon=2, delta=1e-6, bound=100, public=box, expected=n, mechanism="dp-lp", rng=0)
    assert point.exact is not None and sum(point.exact) == 7
    holds = [
        sum(int(a) * x for a, x in zip(row, point.exact, strict=True)) <= int(s) for row, s in zip(A, b, strict=True)
    ]
    assert n - sum(holds) <= point.accuracy.slack_rows
