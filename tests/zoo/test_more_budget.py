"""More budget must not hurt: in the zoo, errors do not grow with epsilon or delta beyond their spread."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import mannwhitneyu

import dpmodel as dpm

from . import pipelines  # noqa: F401
from .examination import DELTA, FALSE_ALARM, Run, examine
from .registry import MODELS, Case, Make, Model
from .test_zoo import case_of

EPSILONS = (0.1, 1.0, 10.0)
SEEDS = tuple(range(16))
# Planning a regression takes seconds: these stand for the rest (sparse, many zeros, collinear, labels far from 0).
PIPELINES = ("lasso", "ridge", "quantile", "wages")
BOTH = ("lasso", "quantile")
# Slower still, and their budgets decide how many rows may be missed, not how far.
OTHERS = ("ballots", "exact_equations")


def log_wages(n: int, rng: np.random.Generator, private: Make) -> Any:
    """Log wages of 28,000 people on experience, its square and schooling: public ranges in units of their own."""
    years, school = 50 * rng.beta(1.3, 1.8, 28_000), rng.integers(6, 19, 28_000)
    wage = 4.5 + 0.07 * school + 0.06 * years - 0.001 * years**2 + 0.6 * rng.normal(size=years.size)
    people = dpm.Records("workers")
    top = np.array([50.0, 2500.0, 18.0])
    design = np.column_stack([years, years**2, school])
    X = private(design, name="design", unit="row", bounds=[np.zeros(3), top], records=people)
    y = private(wage.clip(3, 10), name="wage", unit="entry", bounds=[3, 10], records=people)
    w, level = cp.Variable(3, name="w"), cp.Variable(name="level")
    return cp.Minimize(cp.sum_squares(X @ w + level - y) / years.size), []


# Not of the zoo: it is no larger than small, and has only few variables.
LOG_WAGES = Model("log_wages", __name__, log_wages, (4,), ("relaxed",), ("relaxed",), quick=False)


def judged() -> list[Any]:
    """(model, delta); regressions with and without delta."""
    chosen = [m for m in MODELS if m.name in PIPELINES or (m.family != "pipelines" and m.name not in OTHERS)]
    return [
        pytest.param(model, delta, id=f"{model}-{delta}")
        for model in chosen
        for delta in ((0.0, DELTA) if model.name in BOTH else (DELTA,))
    ]


@lru_cache(maxsize=2)
def case_at(name: str) -> Case:
    return LOG_WAGES.case("small") if name == LOG_WAGES.name else case_of(name, "small")


@lru_cache(maxsize=32)
def runs_of(name: str, epsilon: float, delta: float) -> list[Run]:
    return examine(case_at(name), "relaxed", epsilon=epsilon, delta=delta, beta=0.05, seeds=SEEDS).runs


def worse(more: np.ndarray, less: np.ndarray, tolerance: float) -> bool:
    """Whether ``more`` is larger than ``less`` by more than ``tolerance``: if it is not, this is true with probability
    below FALSE_ALARM (exact one-sided rank test: where the two lie, against their spread)."""
    p = mannwhitneyu(more - tolerance, less, alternative="greater", method="exact").pvalue
    return bool(p < FALSE_ALARM)


def errors(runs: list[Run]) -> dict[str, np.ndarray]:
    return {
        "loss": np.maximum([run.loss for run in runs], 0.0),
        "violation": np.array([run.violation for run in runs]),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("model", "delta"), judged())
def test_more_budget_does_not_hurt(model: Model, delta: float) -> None:
    case = case_at(model.name)
    found = {}
    for epsilon in EPSILONS:
        runs = runs_of(model.name, epsilon, delta)
        if runs:
            found[epsilon] = errors(runs), runs[0].release.mechanism
    assert EPSILONS[-1] in found, "refused at the largest budget"
    broken = []
    for less, more in combinations(sorted(found), 2):
        (before, plain), (after, chosen) = found[less], found[more]
        for name, other in (("loss", "violation"), ("violation", "loss")):
            scale = 1 + (abs(case.optimum) if name == "loss" else before[name].max())
            # Where a statement trades one for the other, giving up some of one for less of the other is fair.
            traded = np.median(after[other]) < np.median(before[other]) * (1 - 1e-3)
            if worse(after[name], before[name], 1e-3 * scale) and not traded:
                broken.append(
                    f"{name}: {np.median(before[name]):.4g} at epsilon {less} ({plain}), "
                    f"{np.median(after[name]):.4g} at {more} ({chosen})"
                )
    assert not broken, "\n".join(broken)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "epsilons"), [*((name, EPSILONS) for name in BOTH), (LOG_WAGES.name, EPSILONS[-1:])])
def test_a_delta_does_not_hurt(name: str, epsilons: tuple[float, ...]) -> None:
    for epsilon in epsilons:
        plain, loose = (errors(runs_of(name, epsilon, delta))["loss"] for delta in (0.0, DELTA))
        assert not worse(loose, plain, 1e-3), f"{np.median(plain):.4g} without delta, {np.median(loose):.4g} with"


def test_the_rank_test_can_fail() -> None:
    rng = np.random.default_rng(0)
    few, many = rng.normal(1.0, 0.1, len(SEEDS)), rng.normal(2.0, 0.1, len(SEEDS))
    assert worse(many, few, 0.0)
    assert not worse(few, many, 0.0) and not worse(few, few, 0.0)
