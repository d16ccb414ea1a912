"""The rule computes at home what the release hands out, from one person's data and public numbers alone."""

from __future__ import annotations

import json
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from models_of_shares import Model, advertisers, appointments, charging, marked, timetables

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.joint.even_shares import EVEN_SHARES
from dpmodel.joint.noisy_prices import NoisyPrices
from dpmodel.joint.rule import Rule

N = 40
JOINTLY: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "release": "joint"}


def kinked(mark: Any, shares: Any) -> tuple[Any, list[Any]]:
    """Several limits, and a concave value: each share is a linear program."""
    wish = mark(np.random.default_rng(2).random((N, 3)), name="wish", bounds=[0, 1])
    x = shares((N, 3), nonneg=True)
    rows = [x[:, 0] + x[:, 1] <= 0.8, x[:, 1] + x[:, 2] <= 0.7, x <= 1, cp.sum(x, axis=0) <= 12]
    return cp.Maximize(cp.sum(cp.minimum(x, wish))), rows


MODELS: dict[str, tuple[Model, tuple[str, ...]]] = {
    "charging": (charging(N, 4), ("values", "power", "wish")),
    "timetables": (timetables(N), ("values",)),
    "timetables of their own": (timetables(N, private=True), ("values", "meetings")),
    "advertisers": (advertisers(N), ("bids",)),
    "whole appointments": (appointments(N, boolean=True), ("values",)),
    "several limits": (kinked, ("wish",)),
}


def data_of(model: Model) -> dict[str, np.ndarray]:
    """What is private in the model, by name."""
    found: dict[str, np.ndarray] = {}

    def mark(value: Any, **declared: Any) -> Any:
        found[declared["name"]] = np.asarray(value)
        return cp.Constant(value)

    model(mark, lambda shape, **_: cp.Variable(shape))
    return found


@pytest.mark.parametrize("mechanism", [NoisyPrices(largest_use=1.0, steps=6), EVEN_SHARES], ids=lambda m: m.name)
@pytest.mark.parametrize("name", MODELS)
def test_a_share_at_home_is_the_one_that_is_handed_out(name: str, mechanism: Any) -> None:
    model, names = MODELS[name]
    problem, _ = marked(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(**JOINTLY, mechanism=mechanism)
    own, release = data_of(model), problem.release
    assert sorted(own) == sorted(names)
    sent = Rule.from_json(release.rule.to_json())
    for i in range(N):
        person = {"person": i} if release.rule.prices.seed is not None else {}
        for rule in (release.rule, sent):
            assert np.array_equal(rule.share(**person, **{key: own[key][i] for key in names}), release.share(i))


@pytest.fixture(scope="module")
def rule() -> Rule:
    problem, _ = marked(charging(N, 4))
    problem.solve(**JOINTLY)
    found: Rule = problem.release.rule
    return found


GOOD: dict[str, Any] = {"values": np.ones(4), "power": 0.75, "wish": 3.0}
WRONG = {
    "missing": {"values": np.ones(4), "power": 0.7},
    "another name": {**GOOD, "wishes": 3.0},
    "too long": {**GOOD, "values": np.ones(5)},
    "not finite": {**GOOD, "values": [1, 1, 1, np.nan]},
    "text": {**GOOD, "power": "7321 W"},
    "infinite": {**GOOD, "wish": np.inf},
    "ragged": {**GOOD, "values": [[1], [2, 3]]},
}


@pytest.mark.parametrize("case", WRONG)
def test_data_that_do_not_fit_are_refused_without_their_numbers(case: str, rule: Rule) -> None:
    with pytest.raises(SpecificationError, match="share") as caught:
        rule.share(**WRONG[case])
    assert "7321" not in str(caught.value) and caught.value.remedy


def test_whole_shares_need_the_persons_number() -> None:
    problem, _ = marked(appointments(N, boolean=True))
    problem.solve(**JOINTLY, mechanism=NoisyPrices(largest_use=1.0, steps=6))
    for wrong in (None, -1, True, 1.5):
        with pytest.raises(SpecificationError, match="person="):
            problem.release.rule.share(person=wrong, values=np.ones(9))


def test_a_rule_is_public_numbers(rule: Rule) -> None:
    plain = json.loads(rule.to_json())
    assert {"form", "prices"} <= set(plain) and str(N) not in json.dumps(plain["form"]["shape"])
    with pytest.raises(dpm.DPModelError):
        Rule.from_json("{}")
    for part in ("form", "prices"):
        with pytest.raises(dpm.DPModelError):
            Rule.from_json(json.dumps({**plain, part: {}}))


@pytest.mark.parametrize("odd", [1e300, -1e300, 5e-324, 0.0])
def test_a_share_of_extreme_data_is_a_share(odd: float, rule: Rule) -> None:
    for values in (np.full(4, odd), [odd, 1.0, -odd, 0.0]):
        share = rule.share(**{**GOOD, "values": values})
        assert np.isfinite(share).all() and (share >= 0).all() and (share <= 1).all() and share.sum() <= 3 * (1 + 1e-9)
