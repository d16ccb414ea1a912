"""What a release of shares shows, to whom, and what it keeps to itself whatever is done with it."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from models_of_shares import appointments, charging, marked

import dpmodel as dpm
from dpmodel.errors import CustodianWarning, SpecificationError
from dpmodel.joint.noisy_prices import NoisyPrices
from dpmodel.release import Release

PRICES = NoisyPrices(largest_use=1.0, steps=8)
JOINTLY: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "release": "joint", "mechanism": PRICES}
N, HOURS = 57, 4


@pytest.fixture(scope="module")
def street() -> dpm.Problem:
    problem, _ = marked(charging(N, HOURS))
    problem.solve(**JOINTLY, rng=0)  # some noise leaves everybody the same share
    return problem


@pytest.fixture(scope="module")
def shares(street: dpm.Problem) -> np.ndarray:
    return np.array([street.release.share(i) for i in range(N)])


def digits(shares: np.ndarray, release: Any) -> re.Pattern[str]:
    """Any of the shares, by its first six digits; but for those that are a scale times weights of steps, all public."""
    whole = 8 * 9
    parts = np.arange(whole + 1) / whole
    public = {f"{each:.6g}" for each in np.outer(parts, [1.0, *release.rule.prices.scales]).ravel()}
    odd = {f"{each:.6g}" for each in shares.ravel() if 0 < each < 1 and len(f"{each:.6g}") >= 8} - public
    assert len(odd) > N  # nothing would be found everywhere
    return re.compile("|".join(map(re.escape, odd)))


TEXTS: dict[str, Callable[[Any], str]] = {
    "repr": repr,
    "str": str,
    "shares": lambda release: f"{release.shares} {np.asarray(release.shares)} {vars(release.shares)}",
    "JSON": lambda release: release.to_json(),
    "a dictionary": lambda release: json.dumps(release.to_dict(), default=repr),
    "HTML": lambda release: release._repr_html_(),
    "fields": lambda release: repr({name: getattr(release, name) for name in release.__dataclass_fields__}),
    "vars": lambda release: repr(vars(release)),
    "a pickle": lambda release: repr(vars(pickle.loads(pickle.dumps(release)))),
    "a copy": lambda release: repr(vars(copy.copy(release))),
    "a deep copy": lambda release: repr(vars(copy.deepcopy(release))),
    "an error": lambda release: _said(lambda: release.share(N)),
    "a frame": lambda release: _said(release.to_frame),
    "an optimum": lambda release: _said(lambda: release.optimum),
}  # fmt: skip


def _said(work: Callable[[], Any]) -> str:
    try:
        return repr(work())
    except dpm.DPModelError as error:
        return str(error)


@pytest.mark.parametrize("way", TEXTS)
def test_no_share_is_shown(way: str, street: dpm.Problem, shares: np.ndarray) -> None:
    shown = digits(shares, street.release)
    assert shown.search(repr(shares.round(6).tolist()))  # the search finds them where they are
    assert not shown.search(TEXTS[way](street.release))


def test_no_array_of_a_release_has_a_row_for_each_person(street: dpm.Problem) -> None:
    def walk(value: Any) -> list[tuple[int, ...]]:
        if isinstance(value, dict):
            return [shape for each in value.values() for shape in walk(each)]
        if isinstance(value, list | tuple):
            return [np.shape(value)] * (len(value) == N) + [shape for each in value for shape in walk(each)]
        return [np.shape(value)] if N in np.shape(value) else []

    assert walk(street.release.to_dict()) == [] != walk({"x": [np.zeros((N, HOURS))]})


def test_nothing_is_logged_or_printed(street: dpm.Problem, caplog: Any, capfd: Any) -> None:
    with caplog.at_level(logging.DEBUG):
        street.release.share(0)
        street.release.deliver(lambda person, share: None)
    assert not caplog.records and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r)),
                                  lambda r: type(r).from_json(r.to_json())])  # fmt: skip
def test_copies_are_public(made: Any, street: dpm.Problem) -> None:
    again = made(street.release)
    assert np.array_equal(again.prices, street.release.prices) and str(again) == str(street.release)
    assert again.rule.to_json() == street.release.rule.to_json()
    for ask in (lambda: again.share(0), lambda: again.deliver(print), lambda: again.deliver(to_custodian=True)):
        with pytest.raises(SpecificationError, match="holds no private data") as caught:
            ask()
        assert "rule.share" in caught.value.remedy


def test_json_says_of_what_kind_it_is(street: dpm.Problem) -> None:
    release = street.release
    again = type(release).from_json(release.to_json())
    assert type(again) is type(release) and again.to_json() == release.to_json()
    assert again.guarantee == release.guarantee and again.accuracy == release.accuracy
    assert isinstance(again, Release) and "joint" in again.guarantee.record


def test_everybody_is_sent_their_own_share_once(street: dpm.Problem, shares: np.ndarray) -> None:
    sent: list[tuple[int, np.ndarray]] = []
    assert street.release.deliver(lambda person, share: sent.append((person, share))) is None
    assert [person for person, _ in sent] == list(range(N))
    assert np.array_equal(np.array([share for _, share in sent]), shares)
    before = shares.copy()
    for _, share in sent:  # what is sent is the receiver's: nobody else's share moves with it
        share[:] = -1
    assert np.array_equal(np.array([street.release.share(i) for i in range(N)]), before)


def test_a_custodian_is_warned(street: dpm.Problem, shares: np.ndarray) -> None:
    with pytest.warns(CustodianWarning, match="nothing is private any more"):
        everything = street.release.deliver(to_custodian=True)
    assert np.array_equal(everything, shares)
    for wrong in ({}, {"callback": print, "to_custodian": True}, {"callback": 3}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(SpecificationError) as caught:
                street.release.deliver(**wrong)  # type: ignore[arg-type]
        assert "to_custodian=True" in caught.value.remedy


@pytest.mark.parametrize("wrong", [-1, N, True, 1.0, "0", None, np.arange(3), slice(0, N)])
def test_shares_are_asked_for_one_by_one(wrong: Any, street: dpm.Problem) -> None:
    with pytest.raises(SpecificationError, match="share"):
        street.release.share(wrong)
    assert np.array_equal(street.release.share(np.int64(3)), street.release.share(3))


def test_shares_fail_closed(street: dpm.Problem) -> None:
    x = street.variables()[0]
    assert x.value is None and street.value is None and street.release.shares.value is None
    assert cp.sum(x).value is None and street.objective.value is None
    assert all(each.residual is None for each in street.constraints)
    with pytest.raises((TypeError, SpecificationError)):
        iter(street.release.shares)
    with pytest.raises((TypeError, SpecificationError)):
        street.release.shares[0]


def test_a_record_says_who_may_see_what(street: dpm.Problem) -> None:
    text = " ".join(str(street.release).split())
    assert "what all others learn together" in text and "own share may show" in text
    assert "tells more than the prices" in text  # realised use


def test_whole_shares_are_the_same_every_time() -> None:
    problem, _ = marked(appointments(N, boolean=True))
    problem.solve(**JOINTLY)
    first = np.array([problem.release.share(i) for i in range(N)])
    sent: dict[int, np.ndarray] = {}
    problem.release.deliver(sent.__setitem__)
    assert np.isin(first, (0.0, 1.0)).all() and all(np.array_equal(first[i], sent[i]) for i in range(N))


def test_a_callback_that_fails_is_the_callers(street: dpm.Problem, shares: np.ndarray) -> None:
    def fail(person: int, share: np.ndarray) -> None:
        raise RuntimeError("no such address")

    with pytest.raises(RuntimeError, match="no such address") as caught:
        street.release.deliver(fail)
    assert not digits(shares, street.release).search(str(caught.value))


def test_shares_are_of_the_data_that_prices_were_found_with() -> None:
    """Values that are set later, or taken away, are refused: capacities may not stand them."""
    people = dpm.Records("people")
    wish = dpm.Private(np.full((20, 2), 0.5), unit="row", records=people, name="wish", bounds=[0, 1])
    x = dpm.Shares((20, 2), records=people, nonneg=True, name="x")
    rows = [x <= wish, cp.sum(x, axis=0) <= 15]
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), rows)
    problem.solve(1, 1e-6, release="joint", mechanism="even-shares")
    release: Any = problem.release
    assert release.share(3).shape == (2,)
    for value in (np.ones((20, 2)), None, np.full((20, 2), 0.5)):
        wish.value = value
        for ask in (lambda: release.share(3), lambda: release.deliver(print)):
            with pytest.raises(SpecificationError, match="wish was given a value after"):
                ask()
    problem.solve(1, 1e-6, release="joint", mechanism="even-shares")
    release = problem.release
    assert release.share(3).shape == (2,)
