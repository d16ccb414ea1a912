"""The registry, the taxonomy and the docstrings agree."""

from __future__ import annotations

import inspect

import pytest

import dpmodel as dpm
from dpmodel.mechanisms.mechanism import Mechanism
from dpmodel.plan import PORTFOLIO, by_name


def test_taxonomy_names_exactly_the_registered_mechanisms() -> None:
    named = {name for cell in dpm.taxonomy() for name in cell.mechanisms}
    assert named == {mechanism.name for mechanism in PORTFOLIO}


@pytest.mark.parametrize("mechanism", PORTFOLIO, ids=lambda m: m.name)
def test_every_mechanism_states_source_privacy_utility_and_cost(mechanism: Mechanism) -> None:
    assert isinstance(mechanism, Mechanism)
    text = inspect.getdoc(type(mechanism)) or ""
    for heading in ("Source", "Privacy", "Utility", "Cost"):
        assert f"\n{heading}" in text, heading
    assert mechanism.source
    assert by_name(mechanism.name) is mechanism


def test_unknown_name_lists_the_names_that_would_do() -> None:
    with pytest.raises(dpm.SpecificationError) as refused:
        by_name("laplce")
    assert all(mechanism.name in str(refused.value) for mechanism in PORTFOLIO)
