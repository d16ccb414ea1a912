"""The release is plain, frozen, portable data."""

import copy
import dataclasses
import gc
import json
import math
import pickle
import weakref

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.release import Accuracy, Guarantee, Release


def make(**sensitivities):
    settings = {
        "mechanism": "laplace-once",
        "guarantee": Guarantee(1.0, 1e-6, "replace-one", "a record is one person's entry of 'demand'"),
        "accuracy": Accuracy(0.5, 0.05, proved=True, statement="violation at most 0.5", violation_alpha=0.5),
        "status": "optimal",
        "value": 12.5,
        "variables": {"x": np.arange(12.0).reshape(3, 4), "y": np.array(1.5)},
        "duals": {"demand": np.array([0.5, -1.0])},
        "spent": (1.0, 1e-6),
        "timings": {"solve": 0.25},
        "classification": ("scalar b, low",),
        "plan": {"chosen": "laplace-once", "alphas": {"a": math.inf, "b": [1, 2]}, "w": np.ones(2)},
        "notes": ("a note",),
    }
    return Release(**{**settings, **sensitivities})


def assert_frozen(release):
    for array in (*release.variables.values(), *release.duals.values(), release.plan["w"]):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    for mapping in (release.variables, release.duals, release.timings, release.plan, release.plan["alphas"]):
        with pytest.raises(TypeError):
            mapping["new"] = 1
    assert release.plan["alphas"]["b"] == (1, 2)
    for name in ("value", "spent", "variables"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(release, name, None)


def test_frozen_and_detached_from_its_sources():
    x = np.zeros(3)
    variables = {"x": x}
    plan = {"inner": {"list": [1]}, "w": np.ones(2), "alphas": {"b": [1, 2]}}
    release = make(variables=variables, plan=plan)
    x[0] = 5
    variables["z"] = x
    plan["inner"]["list"].append(2)
    assert release.variables["x"].tolist() == [0, 0, 0]
    assert list(release.variables) == ["x"]
    assert release.plan["inner"]["list"] == (1,)
    assert_frozen(release)


@pytest.mark.parametrize(
    "clone",
    [lambda r: pickle.loads(pickle.dumps(r)), copy.deepcopy, copy.copy],
    ids=["pickle", "deep", "copy"],
)
def test_copies_stay_frozen(clone):
    release = make()
    twin = clone(release)
    assert twin is not release
    assert twin.to_dict() == release.to_dict()
    assert_frozen(twin)
    assert not np.shares_memory(twin.variables["x"], release.variables["x"])


def test_json_round_trip():
    release = make(value=math.nan, accuracy=Accuracy(math.inf, None, slack_rows=None))
    data = json.loads(release.to_json())
    assert data == release.to_dict()
    assert data["variables"]["x"][1] == [4, 5, 6, 7]
    assert data["value"] == "nan"
    assert data["plan"]["alphas"] == {"a": "inf", "b": [1, 2]}
    back = Release.from_dict(data)
    assert back.to_dict() == data
    assert back.accuracy.alpha == math.inf
    assert math.isnan(back.value)
    assert back.variables["y"].shape == ()
    assert_frozen(make())
    assert "Infinity" not in release.to_json(indent=2)


def test_from_dict_revives_non_finite_arrays():
    release = make(variables={"x": np.array([1.0, np.inf, np.nan])})
    back = Release.from_dict(json.loads(release.to_json()))
    np.testing.assert_array_equal(back.variables["x"], [1.0, np.inf, np.nan])
    with pytest.raises(SpecificationError, match="at unknown"):
        Release.from_dict({**release.to_dict(), "unknown": 1})


def test_to_dict_of_odd_plan_values():
    plan = {
        "np": np.float64(0.5),
        "int": np.int64(3),
        "bool": np.True_,
        "set": {"b", "a"},
        "guarantee": Guarantee(0),
        "object": 1j,
        3: None,
        "w": np.ones(1),
    }
    data = json.loads(make(plan=plan).to_json())["plan"]
    assert data["np"] == 0.5
    assert data["int"] == 3
    assert data["bool"] is True
    assert data["set"] == ["a", "b"]
    assert data["guarantee"]["epsilon"] == 0
    assert data["object"] == "1j"
    assert data["3"] is None


def test_guarantee():
    assert str(Guarantee(0, 0)).startswith("no private data was read")
    text = str(Guarantee(1, 1e-6, "add-remove", "a record is a row"))
    for piece in ("epsilon = 1", "delta = 1e-6", "add-remove", "a record is a row"):
        assert piece in text
    assert "delta" not in str(Guarantee(1))
    for bad in ((-1, 0), (math.nan, 0), (1, 2), (1, math.nan)):
        with pytest.raises(ValueError, match="is"):
            Guarantee(*bad)
    assert json.loads(json.dumps(Guarantee(1).to_dict()))["neighbors"] == "replace-one"


def test_accuracy():
    assert str(Accuracy(0.25, 0.05, slack_rows=3)) == (
        "error at most 0.25 except with probability 0.05, 3 constraints left out (forecast)"
    )
    assert str(Accuracy(None, None)) == "no error bound (forecast)"
    assert str(Accuracy(1, 0.1, proved=True, statement="text")) == "text (proved)"
    assert str(Accuracy(1, 0.1, proved=True, statement="text", vacuous=True)) == "text"
    assert Accuracy(1, 0.1).to_dict()["slack_rows"] == 0


def test_prints_a_panel(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = str(make(variables={"x": np.arange(1000.0)}))
    assert max(map(len, text.splitlines())) <= 100
    for piece in (
        "laplace-once",
        "12.5",
        "[0, 1, 2, ..., 997, 998, 999]",
        "(1000,)",
        "a note",
        "epsilon = 1",
    ):
        assert piece in text
    assert len(text) < 2000
    assert repr(make()) == "<Release laplace-once: optimal, epsilon=1, delta=1e-6>"


def test_html_is_self_contained_and_escaped():
    evil = "<img src=x onerror=alert(1)>"
    release = make(
        mechanism=evil,
        status=evil,
        notes=(evil,),
        classification=(evil,),
        variables={evil: np.ones(2)},
        duals={evil: np.ones(1)},
        timings={evil: 1.0},
        guarantee=Guarantee(1, 0, evil, evil),
        accuracy=Accuracy(math.inf, None, statement=evil),
    )
    page = release._repr_html_()
    assert "<img" not in page
    assert page.count("&lt;img") == 10
    assert "http" not in page
    assert page.count("<div") == page.count("</div>")


def test_a_release_does_not_keep_the_model():
    demand = dpm.Private([3.0, 5.0], name="demand", unit="entry", bounds=[0, 9])
    x = cp.Variable(2, bounds=[0, 10])
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= demand])
    problem.solve(epsilon=1.0, rng=0)
    release, gone = problem.release, [weakref.ref(problem), weakref.ref(demand)]
    del problem, demand, x
    gc.collect()
    assert all(ref() is None for ref in gone)
    assert release.plan["chosen"] == release.mechanism
