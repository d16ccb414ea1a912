"""Every model of the zoo, at every size, with every feasibility: see ``examination.py`` for what is asked of it."""

from __future__ import annotations

from functools import lru_cache

import pytest

from . import cones, finance, flows, health, pipelines, places, production, systems  # noqa: F401
from .examination import examine
from .registry import MODELS, SIZES, Case, Model

# What is not mended yet, and why it is a fault; strict, so that the line goes when the fault does.
KNOWN: dict[tuple[str, str, str], str] = {}


@lru_cache(maxsize=2)
def case_of(name: str, size: str) -> Case:
    return next(model for model in MODELS if model.name == name).case(size)


def marks(model: Model, size: str, mode: str) -> list:
    known = KNOWN.get((model.name, size, mode))
    long = [] if size == "small" and model.quick else [pytest.mark.long]
    return long if known is None else [*long, pytest.mark.xfail(reason=known, strict=True)]


def cases() -> list:
    return [
        pytest.param(
            model.name,
            size,
            mode,
            id=f"{model.family}-{model}-{size}-{mode}",
            marks=marks(model, size, mode),
        )
        for size in SIZES
        for model in MODELS
        for mode in model.modes
        if SIZES.index(size) < len(model.sizes)
    ]


@pytest.mark.parametrize(("name", "size", "mode"), cases())
def test_zoo(name: str, size: str, mode: str) -> None:
    broken = examine(case_of(name, size), mode).broken
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("size", ["small", *(pytest.param(size, marks=pytest.mark.long) for size in SIZES[1:])])
def test_sizes_are_as_said(size: str) -> None:
    """Tens, hundreds, thousands of variables."""
    least = 10 ** (1 + SIZES.index(size))
    for model in MODELS:
        if SIZES.index(size) < len(model.sizes):
            assert least <= model.case(size).variables() < 10 * least, model


def test_at_least_forty_models() -> None:
    assert len(MODELS) >= 40
