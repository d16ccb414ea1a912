"""PublicEncoder: an encoding by declarations, the same whatever other rows hold."""

from __future__ import annotations

import itertools
import math
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.learn import PrivateLogisticRegression, PrivateRidge, PublicEncoder
from dpmodel.marks import Private, vault
from dpmodel.regressions import pure_objective_perturbation
from dpmodel.regressions.features import RowBounds
from dpmodel.regressions.gauge_noise import Gauge, gauge_of

DECLARED: dict[str, Any] = {
    "bounds": {"age": (0, 80), "income": (0.0, 1e5)},
    "domain": {"town": ["Bonn", "Ulm"], "degree": ["none", "school", "college"]},
    "ordinal": "degree",
    "interactions": [("age", "town")],
}
FRAME = pd.DataFrame(
    {
        "degree": ["school", "college", "none", "school"],
        "age": [20, 60, 0, 80],
        "town": ["Ulm", "Bonn", "Ulm", "Bonn"],
        "income": [0.0, 5e4, 1e5, 2.5e4],
        "diary": ["a", "b", "c", "d"],
    }
)
NAMES = ["age", "income", "town=Bonn", "town=Ulm", "degree", "age x town=Bonn", "age x town=Ulm"]
ENCODED = np.array(
    [
        [-0.5, -1.0, 0, 1, 0.0, 0, -0.5],
        [0.5, 0.0, 1, 0, 1.0, 0.5, 0],
        [-1.0, 1.0, 0, 1, -1.0, 0, -1.0],
        [1.0, -0.5, 1, 0, 0.0, 1.0, 0],
    ]
)
FORMS = {
    "pandas": FRAME,
    "pandas, nullable": FRAME.convert_dtypes(),
    "pandas, objects": FRAME.astype({"town": object, "degree": object}),
    "pandas, categories": FRAME.astype({"town": "category"}),
    "pandas, an index that repeats": FRAME.set_axis([7, 7, 7, 8]),
    "polars": pl.from_pandas(FRAME),
    "pyarrow": pa.Table.from_pandas(FRAME),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_encoding_follows_from_the_declarations(form: str) -> None:
    encoder = PublicEncoder(**DECLARED)
    np.testing.assert_array_equal(encoder.fit(FORMS[form]).transform(FORMS[form]), ENCODED)
    assert encoder.get_feature_names_out().tolist() == NAMES
    assert encoder.feature_names_in_.tolist() == list(FRAME.columns) and encoder.n_features_in_ == 5
    low, high = encoder.bounds_
    assert (low >= -1).all() and (high <= 1).all()
    # Nothing was learnt: an encoder of one row, or of none, or one that was not fitted does the same.
    np.testing.assert_array_equal(PublicEncoder(**DECLARED).fit(FRAME[:1]).transform(FORMS[form]), ENCODED)
    np.testing.assert_array_equal(PublicEncoder(**DECLARED).fit(FRAME[:0]).transform(FORMS[form]), ENCODED)
    np.testing.assert_array_equal(PublicEncoder(**DECLARED).transform(FORMS[form]), ENCODED)


def test_set_output() -> None:
    for backend, kind in (("pandas", pd.DataFrame), ("polars", pl.DataFrame)):
        for form in FORMS.values():
            found = clone(PublicEncoder(**DECLARED)).set_output(transform=backend).fit_transform(form)
            assert isinstance(found, kind) and list(found.columns) == NAMES
            np.testing.assert_array_equal(np.asarray(found), ENCODED)


def test_columns_and_ranges_as_asked() -> None:
    encoder = PublicEncoder(**DECLARED | {"columns": ["degree", "income"], "interactions": (), "scale": False})
    np.testing.assert_array_equal(encoder.fit_transform(FRAME), FRAME.assign(degree=[1, 2, 0, 1])[["degree", "income"]])
    assert [end.tolist() for end in encoder.bounds_] == [[0, 0], [2, 1e5]]


# What only a column of Python objects can hold.


def others_move(encode: Any, frame: Any, column: str, odd: Any, form: str) -> bool:
    """Whether the encoding of rows 1, 2, 3 is another once row 0 holds ``odd``."""
    changed = frame.astype({column: object} if form == "objects" or not isinstance(odd, float) else {column: float})
    changed[column] = [odd, *frame[column][1:]]
    if form != "objects":
        changed = changed.astype({"age": "Float64", "income": "float64", "town": "string", "degree": "string"})
    table = {"polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}.get(form, lambda f: f)(changed)
    return not np.array_equal(np.asarray(encode(table))[1:], ENCODED[1:])


def test_a_scaler_that_learns_is_caught() -> None:
    scaler = StandardScaler()
    encode = PublicEncoder(**DECLARED).set_output(transform="pandas")

    def learning(frame: Any) -> Any:
        return scaler.fit_transform(encode.fit_transform(frame))

    plain = learning(FRAME)
    assert not np.array_equal(plain[1:], learning(FRAME.assign(age=[80, 60, 0, 80]))[1:])
    assert others_move(learning, FRAME, "income", 1e308, "pandas")


def test_what_is_outside_has_a_rule_of_its_own() -> None:
    odd = pd.DataFrame(
        {"age": [np.nan, 200.0], "income": [np.inf, -5.0], "town": [None, "Rome"], "degree": ["x", None]}
    )
    np.testing.assert_array_equal(
        PublicEncoder(**DECLARED).fit_transform(odd), [[0, 0, 0, 0, 0, 0, 0], [1, -1, 0, 0, 0, 0, 0]]
    )


@pytest.mark.filterwarnings("ignore::dpmodel.errors.CompositionWarning")
def test_in_pipelines_and_column_transformers() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(0, 81, 3000), "town": rng.choice(["Bonn", "Ulm"], 3000)})
    y = frame["age"] / 80 + (frame["town"] == "Ulm")
    ridge = PrivateRidge(
        bounds=(-1, 1), label_bounds=(0, 2), epsilon=4, mechanism="sufficient-statistics", random_state=0
    )
    parts = {"bounds": {"age": (0, 80)}}, {"domain": {"town": ["Bonn", "Ulm"]}}
    whole = PublicEncoder(**parts[0], **parts[1])
    split = ColumnTransformer([(n, PublicEncoder(**p), [n]) for n, p in zip(("age", "town"), parts, strict=True)])
    split.set_output(transform="pandas")
    first, second = (make_pipeline(each, clone(ridge)).fit(frame, y) for each in (whole, split))
    np.testing.assert_array_equal(first.predict(frame), second.predict(frame))
    assert first.score(frame, y) > 0.9
    assert second[-1].feature_names_in_.tolist() == ["age__age", "town__town=Bonn", "town__town=Ulm"]


WRONG: dict[str, tuple[dict[str, Any], Any]] = {
    "an array": ({}, np.zeros((2, 2))),
    "a lazy frame": ({}, pl.from_pandas(FRAME).lazy()),
    "a column that is not there": ({}, FRAME.drop(columns="age")),
    "columns that repeat": ({}, pd.concat([FRAME, FRAME], axis=1)),
    "numbers as names": ({}, FRAME.set_axis(range(5), axis=1)),
    "nothing declared": ({"bounds": None, "domain": None, "ordinal": (), "interactions": ()}, FRAME),
    "neither bounds nor domain": ({"columns": ["diary"], "ordinal": ()}, FRAME),
    "crossed bounds": ({"bounds": {"age": (80, 0), "income": (0, 1)}}, FRAME),
    "bounds of all": ({"bounds": (0, 1)}, FRAME),
}


@pytest.mark.parametrize("case", WRONG)
def test_refusals(case: str) -> None:
    given, X = WRONG[case]
    for call in ("fit", "transform"):
        with pytest.raises(SpecificationError) as caught:
            getattr(PublicEncoder(**DECLARED | given), call)(X)
        assert "PublicEncoder" in str(caught.value) and "Dataset" not in str(caught.value)
        assert caught.value.__context__ is None and "7321" not in str(caught.value)


def test_the_same_encoding_as_the_dataset() -> None:
    people = dpm.Dataset(FRAME, bounds=DECLARED["bounds"], domain=DECLARED["domain"])
    rows = people.rows(["age", "income", "town"])
    assert rows.labels[1][1] == tuple(PublicEncoder(**DECLARED).fit(FRAME).get_feature_names_out()[:4])


@pytest.mark.parametrize("interactions", [(), (("town", "job"), ("age", "town"))])
def test_norms_of_rows_are_known_and_attained(interactions):
    """Of all rows that there can be (numbers at both ends and beyond, every category, none), the longest has the norms
    told: sums of 1 for each list and the size of each number."""
    towns, jobs = ["Ulm", "Bonn", "Jena"], ["a", "b"]
    ages = [-5.0, 0.0, 40.0, 80.0, 900.0, None]
    rows = list(itertools.product(ages, [*towns, "elsewhere"], [*jobs, "c"]))
    frame = pd.DataFrame(rows, columns=["age", "town", "job"]).astype({"age": float})
    encoder = PublicEncoder(bounds={"age": (0, 80)}, domain={"town": towns, "job": jobs}, interactions=interactions)
    X = encoder.fit_transform(frame)
    assert np.abs(X).sum(axis=1).max() == pytest.approx(encoder.max_l1_, rel=1e-12)
    assert np.linalg.norm(X, axis=1).max() == pytest.approx(encoder.max_l2_, rel=1e-12)
    assert encoder.max_l1_ == 3 + len(interactions)


def test_estimators_after_it_know_the_norm(monkeypatch):
    """Six lists and five numbers: sqrt(11) and 11, not sqrt(p) and p; and a row that is longer is scaled."""
    rng = np.random.default_rng(0)
    n, lists, numbers = 400, 6, 5
    frame = pd.DataFrame({f"c{k}": rng.choice(list("abcdefgh"), n) for k in range(lists)})
    frame = frame.assign(**{f"x{k}": rng.uniform(0, 9, n) for k in range(numbers)})
    y = rng.choice(["no", "yes"], n)
    encoder = PublicEncoder(
        bounds={f"x{k}": (0, 9) for k in range(numbers)}, domain={f"c{k}": list("abcdefgh") for k in range(lists)}
    )
    seen = []
    solve = dpm.Problem.solve

    def watched(self, *args, **how):
        seen.append(next(p for p in self.parameters() if p.name() == "X"))
        return solve(self, *args, **how)

    monkeypatch.setattr(dpm.Problem, "solve", watched)
    model = PrivateLogisticRegression(epsilon=20, bounds=(-1, 1), classes=("no", "yes"), random_state=0)
    fitted = make_pipeline(encoder, model).fit(frame, y)
    assert seen[0].magnitude["max_l1"] == 11
    assert seen[0].magnitude["max_l2"] == pytest.approx(11**0.5)
    assert fitted[-1].release_.mechanism == "pure-objective-perturbation"
    PrivateLogisticRegression(epsilon=1, bounds=(-1, 1), classes=("no", "yes"), random_state=0).fit(
        encoder.transform(frame), y
    )
    assert not np.isfinite(seen[1].magnitude["max_l1"])  # nobody told


def test_estimators_and_hand_written_problems_know_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an encoder, of two side by side in another order, and of ``Dataset.rows``."""
    frame = pd.DataFrame({"age": [20.0, 60.0] * 20, "town": ["Bonn", "Ulm"] * 20, "job": ["a", "b", "c", "d"] * 10})
    lists = {"domain": {"town": ["Bonn", "Jena", "Ulm"], "job": list("abcd")}}
    seen: list[RowBounds] = []

    def watched(row: RowBounds, scores: int = 1) -> Gauge:
        seen.append(row)
        return gauge_of(row, scores)

    monkeypatch.setattr(pure_objective_perturbation, "gauge_of", watched)
    y = np.resize([0, 1], 40)
    numbers = PublicEncoder(bounds={"age": (0, 80)})
    both = ColumnTransformer([("lists", PublicEncoder(**lists), ["town", "job"]), ("age", numbers, ["age"])])
    for encoder, wanted in (
        (PublicEncoder(bounds={"age": (0, 80)}, **lists), ((1, 4, 1.0), (4, 8, 1.0))),
        (both, ((0, 3, 1.0), (3, 7, 1.0))),
    ):
        estimator = PrivateLogisticRegression(epsilon=50.0, bounds=(-1, 1), classes=(0, 1))
        make_pipeline(encoder, estimator).fit(frame, y)
        assert seen[-1].lists == wanted
        assert seen[-1].l1 == 3 and seen[-1].l2 == pytest.approx(math.sqrt(3))
    data = dpm.Dataset(frame.assign(y=y), bounds={"age": (0, 80), "y": (0, 1)}, **lists)
    X, t = data.rows(["age", "town", "job"], scale=False), data.rows("y", scale=False)
    z = X @ cp.Variable(8) + cp.Variable()
    dpm.Problem(cp.Minimize(cp.sum(cp.logistic(z)) - t @ z)).plan(epsilon=50.0)
    assert seen[-1].lists == ((1, 4, 1.0), (4, 8, 1.0))  # in the units of columns: ages are divided by 80
    assert seen[-1].l2 == pytest.approx(math.sqrt(3))


def test_rows_are_scaled_to_their_lists_wherever_they_lie() -> None:
    """What a row holds beyond a list's size is scaled, whoever computed it; other rows and columns stay."""
    rows = np.array([[1.0, 0.5, 0.75, 0.0], [1.0, 0.0, 1.0, 0.0], [0.5, 1.0, 1.0, 1.0]])
    wanted = rows.copy()
    wanted[0, 1:] /= 1.25
    wanted[2, 1:] /= 3
    given: dict[str, Any] = {"unit": "row", "bounds": (0, 1), "lists": ((1, 4, 1.0),)}
    dense = Private(rows, **given)
    sparse = Private(sp.csr_array(rows), positions="private", **given)
    assert vault.unseal(dense).reshape(rows.shape, order="F") == pytest.approx(wanted)
    assert vault.unseal(sparse).toarray() == pytest.approx(wanted)
    assert dense.limits.hold(rows) == pytest.approx(wanted)
    assert dense.twin(bounds=(0, 2)).layout.lists == ((1, 4, 1.0),)
