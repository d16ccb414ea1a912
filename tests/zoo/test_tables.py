"""Every publication of ``tables.py``: never further from the truth than what was published, and paid for once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import dpmodel as dpm

from .registry import SIZES
from .tables import EPSILON, PUBLICATIONS, Publication

# If a fit is as often better than what was published as worse, it is worse 20 times in a row with probability 9.5e-7.
TIMES = 20
QUICK = {(each.name, "small") for each in PUBLICATIONS if each.name != "age_by_work_by_district"}


def worse_levels(publication: Publication, size: str) -> dict[str, tuple[float, float]]:
    """Level -> (published, fitted) mean absolute error, of the levels that were worse every time."""
    errors: dict[str, list[tuple[float, float]]] = {}
    for seed in range(TIMES):
        budget = dpm.Budget(EPSILON, 0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            levels = publication.once(size, seed, budget)
        assert tuple(budget.spent) in ((0.0, 0.0), (EPSILON, 0.0), (EPSILON / 4, 0.0))
        for level, (truth, published, fitted) in levels.items():
            pair = np.abs(published - truth).mean(), np.abs(fitted - truth).mean()
            errors.setdefault(level, []).append(pair)
    return {
        level: tuple(np.mean(pairs, axis=0).round(3))
        for level, pairs in errors.items()
        if all(fitted > published * (1 + 1e-9) for published, fitted in pairs)
    }


@pytest.mark.parametrize(
    ("publication", "size"),
    [
        pytest.param(each, size, id=f"{each.name}-{size}", marks=() if (each.name, size) in QUICK else pytest.mark.slow)
        for size in SIZES
        for each in PUBLICATIONS
    ],
)
def test_fitting_never_hurts(publication: Publication, size: str) -> None:
    assert not worse_levels(publication, size)
