"""point_in_hull: what comes in, what goes out, and what is refused before anything is spent."""

from __future__ import annotations

import functools
import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hull_membership import in_hull

from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.exact.arguments import matrix
from dpmodel.exact.inputs import _positions
from dpmodel.exact.tukey_depth import TUKEY_DEPTH
from dpmodel.linalg import point_in_hull as _point_in_hull
from dpmodel.privacy import Budget

point_in_hull = functools.partial(_point_in_hull, neighbors="add-remove")  # unless a test says otherwise

UNIT: dict[str, Any] = {"lower": 0, "upper": 10, "step": 1, "epsilon": 1.0, "delta": 1e-6, "rng": 1}


def some(n: int = 200, d: int = 2) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 11, size=(n, d))


def test_a_point_of_the_hull_and_its_record() -> None:
    points = some()
    result = point_in_hull(points, **UNIT, expected=200)
    assert result.found and result.mechanism == "tukey-depth"
    assert in_hull(points, result.point)
    assert result.accuracy.proved and result.accuracy.alpha == 0.0
    assert result.guarantee.epsilon == 1.0 and result.guarantee.delta == 0.0
    printed = " ".join(str(result).split())
    assert "NOT PRIVATE" in printed and "at least 29 points" in printed
    data = json.loads(json.dumps(result.to_dict()))
    assert data["point"] == [str(v) for v in result.point] and data["levels"] == [11, 11]
    assert "29" in str(result.plan)


def test_pin_hull_by_name() -> None:
    points = some(6000, 1)
    result = point_in_hull(points, **UNIT, mechanism="pin-hull")
    assert result.mechanism == "pin-hull" and not result.accuracy.proved
    assert in_hull(points, result.point)


@pytest.mark.parametrize("kind", ["float", "Fraction", "Decimal", "text", "mixed"])
def test_kinds_of_numbers_land_on_the_same_grid(kind: str) -> None:
    """All records at -0.3 of a grid of tenths: the only grid point of the hull."""
    one = {"float": -0.3, "Fraction": Fraction(-3, 10), "Decimal": Decimal("-0.3"), "text": "-0.3", "mixed": -0.3}[kind]
    rows: list[list[Any]] = [[one] for _ in range(300)]
    if kind == "mixed":
        rows[0] = [Fraction(-3, 10)]
    result = point_in_hull(rows, lower=-1, upper="1.05", step="0.1", epsilon=2.0, rng=0, mechanism=TUKEY_DEPTH)
    assert result.point == (Fraction(-3, 10),)
    assert result.levels == (21,)


def test_rounding_and_the_box() -> None:
    rows = [[2.6, 99.0]] * 300
    result = point_in_hull(rows, lower=[0, 0], upper=[5, 7], step=1, epsilon=2.0, rng=0, mechanism=TUKEY_DEPTH)
    assert result.point == (3, 7)
    whole = point_in_hull([[2**70, -5]] * 300, lower=0, upper=9, step=1, epsilon=2.0, rng=0, mechanism=TUKEY_DEPTH)
    assert whole.point == (9, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"points": []},
        {"points": [[1.0, np.nan]]},
        {"points": [[1.0, np.inf]]},
        {"points": [[Fraction(1), float("nan")]]},
        {"points": [1, 2, 3]},
        {"points": np.zeros((3, 0))},
        {"points": [["a", "b"]]},
        {"points": [[1j, 2]]},
        {"points": np.zeros((0, 2)), "neighbors": "replace-one"},
        {"step": 0},
        {"step": -1},
        {"step": 0.1},
        {"step": None},
        {"upper": -1},
        {"lower": [0, 0, 0]},
        {"lower": 0.5},
        {"upper": float("nan")},
        {"step": Fraction(1, 2**60)},
        {"epsilon": 0},
        {"epsilon": -1.0},
        {"delta": 1.0},
        {"beta": 0.0},
        {"neighbors": "someone"},
        {"expected": 0},
        {"expected": 2.5},
        {"budget": 1.0},
    ],
)
def test_wrong_arguments_spend_nothing(wrong: dict[str, Any]) -> None:
    budget = Budget(1.0, 1e-5)
    arguments = {**UNIT, "budget": budget, "mechanism": TUKEY_DEPTH, "points": some(), **wrong}
    with pytest.raises(SpecificationError) as error:
        point_in_hull(arguments.pop("points"), **arguments)
    assert "nan" not in str(error.value)
    assert not budget.history


def test_too_few_public_records_are_refused_with_the_number() -> None:
    with pytest.raises(UnsupportedModelError, match="61"):
        point_in_hull(some(10), **UNIT, neighbors="replace-one")


def test_no_points_are_no_error_where_their_number_is_private() -> None:
    assert point_in_hull(np.zeros((0, 2)), **UNIT, mechanism=TUKEY_DEPTH).found


@pytest.mark.parametrize("kind", [int, float, object])
def test_a_point_is_moved_alike_however_the_other_points_are_written(kind: Any) -> None:
    """A fraction in one record turns floats into Fractions, a half ints into floats: the rest must stay put."""
    low, step, levels = (Fraction(1, 20),) * 2, Fraction(1, 10), (400, 400)
    whole = np.arange(40).reshape(-1, 2)
    alone = _positions(whole.astype(kind), low, step, levels)
    for other in (0.5, Fraction(1, 3)):
        mixed = [*whole.astype(kind).tolist(), [other, other]]
        assert (_positions(matrix(mixed, "points"), low, step, levels)[:-1] == alone).all()
    assert alone[1].tolist() == [20, 30]  # 2 - 1/20 is 19 steps and a half, which goes up
