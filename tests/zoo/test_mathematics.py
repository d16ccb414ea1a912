"""Every model of the zoo is written for notebooks with each private name underlined."""

from __future__ import annotations

import pytest

from dpmodel.marks.private import Private
from tests.zoo import cones, finance, flows, health, pipelines, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, SIZES, Case


@pytest.mark.parametrize("size", ["small", pytest.param("medium", marks=pytest.mark.slow)])
def test_every_model_is_written(size: str) -> None:
    for model in (each for each in MODELS if SIZES.index(size) < len(each.sizes)):
        problem = Case(model, size).problem
        if len(problem.constraints) <= 24:
            names = [p.name() for p in problem.parameters() if isinstance(p, Private)]
            assert all(f"<u><b>{name}</b></u>" in problem._repr_html_() for name in names), model
