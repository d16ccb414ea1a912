"""The public point is the same whatever was asked of the model before."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import dpmodel as dpm
from tests.zoo import cones, finance, flows, health, pipelines, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, Case

# Here the first answer and a later one were 1.0 and .4 apart.
_DIFFERED = ("assignment", "liked_diet")


def _answer(name: str, before: bool) -> list[np.ndarray] | None:
    model = next(each for each in MODELS if each.name == name)
    problem = Case(model, "small").problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if before:
                problem.plan(1.0, compare="all")
                problem.explain(1.0)
            problem.solve(1.0, mechanism="public-only")
        except dpm.DPModelError:
            return None
    return [np.asarray(variable.value) for variable in problem.variables()]


@pytest.mark.parametrize(
    "name", [pytest.param(m.name, marks=[] if m.name in _DIFFERED else pytest.mark.slow) for m in MODELS]
)
def test_the_public_point_does_not_depend_on_what_was_asked_before(name: str) -> None:
    first, then = _answer(name, before=False), _answer(name, before=True)
    assert (first is None) == (then is None)
    for one, other in zip(first or (), then or (), strict=True):
        assert one == pytest.approx(other, rel=1e-7, abs=1e-7)
