"""Plans, classifications and explanations of every model of the zoo fit a narrow terminal."""

from __future__ import annotations

import warnings

import pytest

from tests.zoo import cones, finance, flows, health, pipelines, places, production, systems, tables  # noqa: F401
from tests.zoo.registry import MODELS, Case

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("width", [80, 50])
@pytest.mark.parametrize("name", [model.name for model in MODELS])
def test_all_that_is_printed_fits(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    model = next(each for each in MODELS if each.name == name)
    problem = Case(model, "small").problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = problem.plan(1.0, 1e-6, **model.asked)
        shown = [plan, problem.classify(), problem.explain(tree=True), plan.table(), plan.explain()]
        texts = list(map(str, shown))
        texts.append(str(problem.explain(1.0, 1e-6, **model.asked)))
    assert width < 80 or len(texts[0].splitlines()) <= 20
    for text in texts:
        assert max(map(len, text.splitlines())) <= width
        assert "Promote(" not in text and ", None, False)" not in text and "Sum(" not in text, "words of CVXPY's own"
