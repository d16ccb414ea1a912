"""Every model of the zoo, small and medium, with every feasibility: see ``examination.py`` for what is asked of it.

What takes longer is run by hand, by ``tests/benchmarks/programs/zoo_table.py``, which asks the same.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from . import cones, finance, flows, health, pipelines, places, production, systems  # noqa: F401
from .examination import examine
from .registry import MODELS, SIZES, Case

QUICK = ("centred", "strict")
# More than five seconds at medium size.
BY_HAND = {"ballots", "lasso", "absolute_deviations", "logistic", "quantile"}
# What is not mended yet, and why it is a fault; strict, so that the line goes when the fault does.
KNOWN = {
    ("battery", "medium", "relaxed"): "gaussian-once says nothing, and the lows of the ranges do as well for nothing",
    (
        "battery",
        "medium",
        "centred",
    ): "laplace-once says nothing, and the middle of the ranges does as well",
}


@lru_cache(maxsize=2)
def case_of(name: str, size: str) -> Case:
    return next(model for model in MODELS if model.name == name).case(size)


def cases() -> list:
    found = []
    for size in ("small", "medium"):
        for model in (each for each in MODELS if SIZES.index(size) < len(each.sizes)):
            if size == "medium" and model.name in BY_HAND:
                continue
            for mode in model.modes:
                marks = [] if size == "small" and model.quick and mode in QUICK else [pytest.mark.slow]
                if (model.name, size, mode) in KNOWN:
                    marks.append(pytest.mark.xfail(reason=KNOWN[model.name, size, mode], strict=True))
                name = f"{model.family}-{model}-{size}-{mode}"
                found.append(pytest.param(model.name, size, mode, id=name, marks=marks))
    return found


@pytest.mark.parametrize(("name", "size", "mode"), cases())
def test_zoo(name: str, size: str, mode: str) -> None:
    broken = examine(case_of(name, size), mode).broken
    assert not broken, "\n".join(broken)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_as_said(size: str) -> None:
    """Tens, hundreds, thousands of variables."""
    least = 10 ** (1 + SIZES.index(size))
    for model in MODELS:
        if SIZES.index(size) < len(model.sizes):
            assert least <= model.case(size).variables() < 10 * least, model


def test_at_least_forty_models() -> None:
    assert len(MODELS) >= 40
