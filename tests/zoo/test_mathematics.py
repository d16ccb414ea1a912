"""Every model of the zoo as mathematics: balanced LaTeX of a sane length, with each private name underlined."""

from __future__ import annotations

import re

import pytest

from dpmodel.marks.private import Private
from tests.zoo import cones, finance, flows, health, pipelines, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, SIZES, Case


def assert_balanced(text: str) -> None:
    plain = re.sub(r"\\[{}]", "", text)
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0, text
    assert depth == 0 and text.count(r"\left") == text.count(r"\right"), text
    assert text.startswith("$$\\begin{aligned}") and text.endswith("\\end{aligned}$$")
    assert all(line.count("&") - line.count(r"\&") <= 3 for line in text.split("\\\\\n")), text


@pytest.mark.parametrize("size", ["small", pytest.param("medium", marks=pytest.mark.slow)])
def test_every_model_is_written(size: str) -> None:
    for model in (each for each in MODELS if SIZES.index(size) < len(each.sizes)):
        problem = Case(model, size).problem
        latex = problem._repr_latex_()
        assert_balanced(latex)
        assert len(latex) < 6000 and max(map(len, latex.split("\n"))) < 1300, model
        if len(problem.constraints) <= 24:
            names = [p.name() for p in problem.parameters() if isinstance(p, Private)]
            assert all(rf"\text{{{name}}}" in latex for name in names) and latex.count(r"\underline") >= len(names)
            assert all(f"<u><b>{name}</b></u>" in problem._repr_html_() for name in names), model


@pytest.mark.slow
def test_every_classification_is_written() -> None:
    for model in MODELS:
        assert_balanced(Case(model, "small").problem.classify()._repr_latex_())
