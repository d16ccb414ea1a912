"""``cached``: one value for each function, model and arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dpmodel.memo import PublicFacts, cached


@dataclass(frozen=True)
class One:
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Other(One):
    pass


@cached
def fresh(model: PublicFacts, *given: Any, **named: Any) -> object:
    return object()


SAME = [1, "a", (1, 2), {"x": 1}, [1, [2]], One({"x": 1}), np.array([1.0, 2.0])]
DIFFERENT = [
    (One({"x": 1}), Other({"x": 1})),
    (One({"x": 1}), One({"x": 2})),
    (np.array([1.0]), np.array([1.0]).view(np.int64)),
    (np.zeros(2), np.zeros((2, 1))),
    ([1, 2], [2, 1]),
]


@pytest.mark.parametrize("given", SAME, ids=repr)
def test_equal_arguments_share_a_value(given: Any) -> None:
    model = PublicFacts()
    assert fresh(model, given) is fresh(model, given) and fresh(model, k=given) is fresh(model, k=given)
    assert fresh(model, given) is not fresh(PublicFacts(), given)


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=repr)
def test_other_arguments_do_not(one: Any, other: Any) -> None:
    model = PublicFacts()
    assert fresh(model, one) is not fresh(model, other)
