"""Shares are a variable that shows nothing, whatever CVXPY does with it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError

PEOPLE = dpm.Records("people")
SECRET = np.full((3, 2), 7321.4375)


def _shares(**attributes: Any) -> dpm.Shares:
    return dpm.Shares((3, 2), records=PEOPLE, name="charge", **(attributes or {"nonneg": True}))


def _copies(x: dpm.Shares) -> list[dpm.Shares]:
    problem = cp.Problem(cp.Maximize(cp.sum(x)), [x <= 1])
    return [
        x,
        copy.copy(x),
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x)),
        copy.deepcopy(problem).variables()[0],
        pickle.loads(pickle.dumps(problem)).variables()[0],
    ]


def test_copies_are_shares_of_the_same_people() -> None:
    for each in _copies(_shares()):
        assert isinstance(each, dpm.Shares) and each.records is PEOPLE and each.is_nonneg()
        assert each.value is None and each.shape == (3, 2) and each.name() == "charge"


def _assigned(name: str) -> Callable[[dpm.Shares], None]:
    return lambda x: setattr(x, name, SECRET)


ENTRIES = {
    "value": _assigned("value"),
    "value_sparse": _assigned("value_sparse"),
    "save_value": lambda x: x.save_value(SECRET),
    "projected": lambda x: x.project_and_assign(SECRET),
    "CVXPY's solve": lambda x: cp.Problem(cp.Maximize(cp.sum(x)), [x <= SECRET]).solve(),
    "a problem of public numbers": lambda x: dpm.Problem(cp.Maximize(cp.sum(x)), [x <= SECRET]).solve(),
    "an attribute": lambda x: _shares(nonneg=True, value=SECRET),
}


@pytest.mark.parametrize("way", ENTRIES)
def test_nothing_is_stored(way: str) -> None:
    for x in _copies(_shares()):
        with pytest.raises(dpm.DPModelError) as caught:
            ENTRIES[way](x)
        assert "7321" not in str(caught.value) and caught.value.remedy
        assert x.value is None and x.value_sparse is None and cp.sum(x).value is None
        assert not any(np.shape(each) == (3, 2) and np.any(each == SECRET) for each in vars(x).values())


def test_the_search_finds_what_a_plain_variable_holds() -> None:
    x = cp.Variable((3, 2), nonneg=True)
    for way in ("value", "save_value", "projected", "CVXPY's solve"):
        ENTRIES[way](x)
        assert any(np.shape(each) == (3, 2) and np.allclose(each, SECRET) for each in vars(x).values())
        x.value = None


def test_no_value_may_be_said_again() -> None:
    x = _shares()
    x.value = None
    x.save_value(None)
    assert "7321" not in repr(x) and repr(x) == "Shares('charge', shape=(3, 2))"


WRONG = {
    "no records": lambda: dpm.Shares((3, 2), nonneg=True),
    "records as text": lambda: dpm.Shares((3, 2), records="people", nonneg=True),
    "no axis": lambda: dpm.Shares((), records=PEOPLE, nonneg=True),
    "no records on it": lambda: dpm.Shares((0, 2), records=PEOPLE, nonneg=True),
    "no integers": lambda: dpm.Shares((3.5, 2), records=PEOPLE, nonneg=True),
    "a name that is no text": lambda: dpm.Shares((3, 2), records=PEOPLE, nonneg=True, name=SECRET),
    "of any sign": lambda: dpm.Shares((3, 2), records=PEOPLE),
    "bounds below 0": lambda: _shares(bounds=[-1, 1]),
    "bounds above 0": lambda: _shares(nonneg=True, bounds=[0.5, 1]),
    "one bound": lambda: _shares(nonneg=True, bounds=3),
    "private bounds": lambda: _shares(bounds=[0, dpm.Private(SECRET, unit="row", records=PEOPLE)]),
    "symmetric": lambda: _shares(nonneg=True, symmetric=True),
    "complex": lambda: _shares(nonneg=True, complex=True),
    "sparse": lambda: _shares(nonneg=True, sparsity=[(0,), (1,)]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        WRONG[case]()
    assert caught.value.remedy and "7321" not in str(caught.value)


@pytest.mark.parametrize("attributes", [{"nonneg": True}, {"boolean": True}, {"bounds": [0, 3]}, {"bounds": (0, 3)}])
def test_what_is_allowed(attributes: dict[str, Any]) -> None:
    assert _shares(**attributes).shape == (3, 2)
    assert dpm.Shares(3, records=PEOPLE, nonneg=True).shape == (3,)
