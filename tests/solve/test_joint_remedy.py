"""The first remedy of an impossible cell: a variable of the records is made into shares, or nothing is offered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.joint import simulation
from dpmodel.joint.model import JointModel
from dpmodel.marks import vault
from dpmodel.solve.joint_remedy import JointRemedy

N, K = 40, 3
VALUES = np.random.default_rng(3).uniform(0.2, 1, (N, K))
Constraints = Callable[[Any, Any], list[Any]]


@pytest.fixture(autouse=True)
def few_synthetic_people(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("_PEOPLE", 20), ("_STEPS", 6), ("_LIMITS", 3), ("_WANTED", (1.0,))):
        monkeypatch.setattr(simulation, name, few)


def _limits(x: Any, v: Any) -> list[Any]:
    return [x <= 1, (cp.sum(x, axis=0) <= 8).set_label("street")]


def problem(constraints: Constraints = _limits, maximise: bool = True, **attributes: Any) -> dpm.Problem:
    people = dpm.Records("households")
    v = dpm.Private(VALUES, unit="row", records=people, name="worth")
    x = cp.Variable((N, K), name="charge", **(attributes or {"nonneg": True}))
    value = cp.sum(cp.multiply(v, x))
    return dpm.Problem(cp.Maximize(value) if maximise else cp.Minimize(value), constraints(x, v))


def error_of(refused: dpm.Problem, **request: Any) -> dpm.ImpossibilityError:
    with pytest.raises(dpm.ImpossibilityError) as caught:
        refused.solve(**{"epsilon": 1.0, **request})
    return caught.value


def test_it_comes_first_and_runs() -> None:
    refused = problem()
    error = error_of(refused, epsilon=2.0, beta=0.1)
    assert error.theorem == "Theorem 37" and [each.name for each in error.remedies][:2] == ["joint", "declared-change"]
    remedy = error.remedies[0]
    assert isinstance(remedy, JointRemedy) and error.remedy == remedy.statement and "charge becomes" in str(error)
    assert remedy.request == {"epsilon": 2.0, "delta": 1e-6, "beta": 0.1, "release": "joint"}
    changed = remedy.apply()
    (shares,) = changed.variables()
    assert type(shares) is dpm.Shares and shares.records.name == "households"
    assert [each.label for each in changed.constraints] == [None, "street"] and changed.is_dp()
    assert remedy.forecast == remedy.plan().chosen.forecast and "share of optimum" in remedy.outlook
    changed.solve(**remedy.request)
    given = np.array([changed.release.share(i) for i in range(N)])
    assert (given >= 0).all() and (given <= 1 + 1e-9).all()
    assert refused.release is None and type(refused.variables()[0]) is cp.Variable


def test_the_asked_for_delta_stays() -> None:
    assert error_of(problem(), delta=1e-4).remedies[0].request["delta"] == 1e-4


def test_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "unseal", lambda parameter: pytest.fail("a private value was read"))
    error = error_of(problem())
    assert error.remedies[0].plan() and str(error)


@pytest.mark.parametrize(
    "attributes", [{"bounds": [0, 1]}, {"bounds": [0, np.linspace(1, 2, N * K).reshape(N, K)]}, {"boolean": True}]
)
def test_what_a_variable_declares_is_kept(attributes: dict[str, Any]) -> None:
    (shares,) = error_of(problem(**attributes)).remedies[0].apply().variables()
    assert all(np.array_equal(shares.attributes[name], given) for name, given in attributes.items() if name != "bounds")
    if "bounds" in attributes:
        assert np.array_equal(np.asarray(shares.attributes["bounds"][1]), np.asarray(attributes["bounds"][1]))


def test_a_constraint_may_say_that_shares_are_not_negative() -> None:
    for row in (lambda x: x >= 0, lambda x: x >= 0):
        (shares,) = (
            error_of(problem(lambda x, v, row=row: [row(x), *_limits(x, v)], integer=True))
            .remedies[0]
            .apply()
            .variables()
        )
        assert shares.attributes["nonneg"] and shares.attributes["integer"]


NOT_OFFERED: dict[str, Callable[[], dpm.Problem]] = {
    "may be negative": lambda: problem(integer=True),
    "a bound below 0": lambda: problem(bounds=[-1, 1]),
    "must be covered": lambda: problem(lambda x, v: [cp.sum(x, axis=0) >= 8], maximise=False),
    "nothing is shared": lambda: problem(lambda x, v: [x <= 1]),
    "neighbors meet": lambda: problem(lambda x, v: [*_limits(x, v), x[0] + x[1] <= 1]),
}


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_other_shapes_are_not_offered_it(name: str) -> None:
    error = error_of(NOT_OFFERED[name]())
    assert [each.name for each in error.remedies] == ["declared-change", "bounds", "public"]


def test_records_of_another_axis_own_nothing() -> None:
    c = dpm.Private(np.ones((K, N)), unit="column", name="worth")
    x = cp.Variable((K, N), nonneg=True)
    error = error_of(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(c, x))), [cp.sum(x, axis=1) <= 8]))
    assert "joint" not in [each.name for each in error.remedies]


def test_the_column_cell_has_it_too() -> None:
    people = dpm.Records("advertisers")
    use = dpm.Private(VALUES, unit="row", records=people, name="bids", nonneg=True)
    x = cp.Variable((N, K), nonneg=True, name="shown")
    refused = dpm.Problem(cp.Maximize(cp.sum(x)), [x <= 1, cp.sum(cp.multiply(use, x), axis=0) <= 8])
    error = error_of(refused)
    assert error.theorem == "Theorem 38" and error.remedies[0].name == "joint"
    assert JointModel.of(error.remedies[0].apply()).count == N


def test_shares_without_a_word_are_told_the_word() -> None:
    refused = error_of(problem()).remedies[0].apply()
    error = error_of(refused)
    assert error.theorem == "Theorem 37" and len(error.remedies) == 1 and refused.release is None
    remedy = error.remedies[0]
    assert remedy.apply() is refused and "dpm.Shares" not in remedy.statement and 'release="joint"' in str(error)


def test_a_setting_and_another_problem_are_refused() -> None:
    remedy = error_of(problem()).remedies[0]
    with pytest.raises(SpecificationError, match="linf="):
        remedy.apply(linf=1)
    with pytest.raises(SpecificationError, match="no variable of this problem"):
        remedy.apply(problem(lambda x, v: [x <= 1]))
