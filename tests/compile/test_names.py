"""Names of labelled parameters reach the variables and constraints that they meet, and the release."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import dpmodel as dpm
from dpmodel.compile.names import labels_of_expression, names_of

TOWNS, MODES = ("Bonn", "Kiel", "Ulm"), ("bus", "car")
NOTHING = (None, ())


def labelled(shape: tuple[int, ...], labels: Any) -> dpm.Private:
    parameter = dpm.Private(np.ones(shape), unit="all", linf=1)
    parameter.labels = labels
    return parameter


DEMAND = labelled((3,), (("town", TOWNS),))
SUPPLY = labelled((2,), (("mode", MODES),))
FEATURES = labelled((9, 3), (NOTHING, ("column", TOWNS)))


@pytest.mark.parametrize(
    ("shape", "constraint", "expected"),
    [
        ((3,), lambda x: x >= DEMAND, (("town", TOWNS),)),
        ((3,), lambda x: 2 * x - 1 <= DEMAND + 4, (("town", TOWNS),)),
        ((3,), lambda x: cp.multiply(DEMAND, x) <= 1, (("town", TOWNS),)),
        ((3,), lambda x: FEATURES @ x <= 1, (("column", TOWNS),)),
        ((3, 2), lambda x: FEATURES @ x <= 1, (("column", TOWNS), NOTHING)),
        ((9,), lambda x: FEATURES.T @ x <= 1, ()),
        ((2, 3), lambda x: cp.sum(x, axis=0) >= DEMAND, (NOTHING, ("town", TOWNS))),
        ((3, 2), lambda x: cp.sum(x.T, axis=0) >= DEMAND, (("town", TOWNS), NOTHING)),
        ((3, 4), lambda x: x @ np.ones(4) >= DEMAND, (("town", TOWNS), NOTHING)),
        ((3,), lambda x: cp.square(x) <= cp.abs(x) + DEMAND, (("town", TOWNS),)),
        ((3,), lambda x: cp.sum(x) >= cp.sum(DEMAND), ()),
        ((3,), lambda x: x[:2] <= SUPPLY, ()),
    ],
)
def test_what_a_variable_is_called(shape: tuple[int, ...], constraint: Any, expected: Any) -> None:
    x = cp.Variable(shape)
    names = names_of(cp.Problem(cp.Minimize(cp.sum(x)), [constraint(x)]))
    assert names.variables.get(id(x), ()) == expected


def test_both_axes_come_from_different_constraints() -> None:
    x = cp.Variable((2, 3))
    rows, columns = cp.sum(x, axis=1) <= SUPPLY, cp.sum(x, axis=0) >= DEMAND
    names = names_of(cp.Problem(cp.Minimize(cp.sum(x)), [rows, columns]))
    assert names.variables[id(x)] == (("mode", MODES), ("town", TOWNS))
    assert names.constraints == {id(rows): (("mode", MODES),), id(columns): (("town", TOWNS),)}


def test_without_labels_there_are_none() -> None:
    x = cp.Variable(3)
    assert (
        names_of(cp.Problem(cp.Minimize(cp.sum(x)), [x >= dpm.Private(np.ones(3), unit="entry", linf=1)])).variables
        == {}
    )
    assert labels_of_expression(2 * DEMAND + 1) == (("town", TOWNS),)
    assert labels_of_expression(cp.sum(DEMAND)) == ()


def test_columns_of_a_frame_are_names_and_its_index_is_not() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "size": [3.0, 4.0]}, index=["Ann", "Bob"])
    assert dpm.Private(frame, unit="row", bounds=(0, 9)).labels == (NOTHING, ("column", ("age", "size")))


def test_the_release_and_measurements_keep_names() -> None:
    people = dpm.Dataset(pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm"]}), domain={"town": TOWNS})
    x = cp.Variable(3, name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= people.count("town")).set_label("demand")])
    problem.solve(epsilon=1, rng=0)
    release = problem.release
    assert release is not None and release.labels == {"x": (("town", TOWNS),), "demand": (("town", TOWNS),)}
    again = dpm.Release.from_json(release.to_json())
    assert again.labels == release.labels and "Kiel: " in str(release)
    frame = release.to_frame()
    assert list(frame.columns) == ["town", "value"] and list(frame["town"]) == list(TOWNS)
    np.testing.assert_array_equal(frame["value"], release.variables["x"])
    assert list(release.to_frame("demand", backend="polars").columns) == ["town", "value"]
    for name, said in (("y", "no variable"), (None, "unknown backend")):
        with pytest.raises(dpm.errors.SpecificationError, match=said):
            release.to_frame(name, backend="pandas" if name else "excel")
    noisy = dpm.measure(people.count("town"), epsilon=1, rng=0)
    assert noisy.labels == (("town", TOWNS),) and "Kiel: " in str(noisy)
    assert list(noisy.to_frame().columns) == ["town", "value", "standard_deviation"]
    flat = dpm.Noisy(np.zeros((2, 3)), noise=dpm.noise.Laplace(1.0)).to_frame()
    assert list(flat.columns) == ["axis 0", "axis 1", "value", "standard_deviation"] and len(flat) == 6
    crossed = dpm.Noisy(
        np.zeros(2), noise=dpm.noise.Laplace(1.0), labels=((("a", "b"), ((0, "x"), (1, "y"))),)
    ).to_frame()
    assert crossed["a"].tolist() == [0, 1] and crossed["b"].tolist() == ["x", "y"]
