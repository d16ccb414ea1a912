"""Lower bounds of regressions: the rates of the theorems, how they scale, and what is said about them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from regressions import regression

from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import (
    PrivateRegression,
    lasso_lower_bound,
    lipschitz_lower_bound,
    regression_lower_bounds,
)
from dpmodel.regressions.sets import FreeSpace, L1Ball, L2Ball


def lasso(n: int = 1000, p: int = 200, *, bound: float = 1.0, radius: float = 1.0, **how: Any) -> PrivateRegression:
    return regression(
        np.zeros((n, p)), np.zeros(n), "squared", lower=-bound, upper=bound, domain=L1Ball(p, radius), **how
    )


def ball(n: int = 1000, p: int = 9, loss: str = "hinge", radius: float = 2.0, **how: Any) -> PrivateRegression:
    return regression(np.zeros((n, p)), np.zeros(n), loss, l2=3.0, domain=L2Ball(p, radius), **how)


def test_lasso_rate() -> None:
    lower_bound = lasso_lower_bound(lasso(), 0.1, 1e-7)
    assert lower_bound is not None and not lower_bound.unmet
    assert lower_bound.private == pytest.approx((1000 * math.log(1000)) ** (-2 / 3))
    assert lower_bound.statistical == 0


@pytest.mark.parametrize(("bound", "radius", "factor"), [(2.0, 0.5, 1.0), (0.5, 1.0, 0.25), (3.0, 5.0, 1.0)])
def test_lasso_scales_with_predictions(bound: float, radius: float, factor: float) -> None:
    """c = min(A r, Y): rows and radius trade against each other, and labels cap it."""
    lower_bound, one = (
        lasso_lower_bound(lasso(bound=bound, radius=radius), 0.1, 1e-7),
        lasso_lower_bound(lasso(), 0.1, 1e-7),
    )
    assert lower_bound is not None and one is not None
    assert lower_bound.private == pytest.approx(factor * one.private)
    summed = lasso_lower_bound(lasso(mean=False), 0.1, 1e-7)
    assert summed is not None and summed.private == pytest.approx(1000 * one.private)


@pytest.mark.parametrize(
    ("model", "epsilon", "delta", "unmet"),
    [
        (lasso(), 1.0, 1e-7, "epsilon <= 0.1"),
        (lasso(), 0.1, 1e-5, "delta"),
        (lasso(p=50), 0.1, 1e-7, "columns of the order"),
        (lasso(label=(0.0, 1.0)), 0.1, 1e-7, "both signs"),
        (lasso(l2=2.0), 0.1, 1e-7, "entry by entry"),
    ],
)
def test_lasso_says_what_is_missing(model: PrivateRegression, epsilon: float, delta: float, unmet: str) -> None:
    lower_bound = lasso_lower_bound(model, epsilon, delta)
    assert lower_bound is not None and lower_bound.unmet
    assert any(unmet in each for each in lower_bound.unmet)
    assert "not proved here" in str(lower_bound)


def test_lipschitz_terms() -> None:
    lower_bound = lipschitz_lower_bound(ball(), 1.0, 1e-6)
    assert lower_bound is not None and not lower_bound.unmet
    assert lower_bound.statistical == pytest.approx(3 * 2 / math.sqrt(1000))
    assert lower_bound.private == pytest.approx(3 * 2 * 3 / 1000)
    pure = lipschitz_lower_bound(ball(), 1.0, 0.0)
    assert pure is not None and pure.private == pytest.approx(3 * 2 * 9 / 1000)
    capped = lipschitz_lower_bound(ball(), 1e-6, 1e-6)
    assert capped is not None and capped.private == pytest.approx(6)
    summed = lipschitz_lower_bound(ball(mean=False), 1.0, 1e-6)
    assert summed is not None and summed.private == pytest.approx(18)
    loose = lipschitz_lower_bound(ball(), 1.0, 0.1)
    assert loose is not None and loose.unmet


def test_none_where_no_theorem_is_about_it() -> None:
    free = regression(np.zeros((10, 2)), np.zeros(10), "hinge", l2=1.0, domain=FreeSpace(2))
    assert regression_lower_bounds(free, 1.0, 1e-6) == ()
    clipped = regression(
        np.zeros((10, 2)), np.zeros(10), Loss("squared", clip=1.0), lower=-1, upper=1, domain=L1Ball(2, 1.0)
    )
    assert regression_lower_bounds(clipped, 1.0, 1e-6) == ()
    unbounded = regression(np.zeros((10, 2)), np.zeros(10), "hinge", domain=L2Ball(2, 1.0))
    assert regression_lower_bounds(unbounded, 1.0, 1e-6) == ()


def test_lines_are_honest() -> None:
    (line,) = regression_lower_bounds(ball(), 1.0, 1e-6)
    for word in ("constant 1 for an unknown one", "on the rows given", "on the population (privacy or not)", "class"):
        assert word in line
    (line,) = regression_lower_bounds(lasso(), 0.1, 1e-7)
    assert "(n ln n)^(-2/3)" in line and "constant 1 for an unknown one" in line and "population" not in line
