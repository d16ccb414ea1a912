"""Plans, classifications and explanations of every model of the zoo fit a narrow terminal."""

from __future__ import annotations

import warnings

import pytest

from tests.zoo import cones, finance, flows, health, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, Case

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [model.name for model in MODELS])
def test_a_plan_is_a_dozen_lines_of_eighty_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    model = next(each for each in MODELS if each.name == name)
    problem = Case(model, "small").problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines = str(problem.plan(1.0, 1e-6, **model.asked)).splitlines()
    assert len(lines) <= 12 and max(map(len, lines)) <= 80
    assert max(map(len, str(problem.classify()).splitlines())) <= 80
    assert max(map(len, str(problem.explain(tree=True)).splitlines())) <= 80
