"""What every regression mechanism keeps to: whom it serves, forecasts from public facts, sparse rows as dense ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from families import REGRESSIONS
from regressions import regression

from dpmodel.contract import Mechanism, Options
from dpmodel.privacy import SeededSource
from dpmodel.regressions.descent import NoisyDescent
from dpmodel.regressions.frank_wolfe import FrankWolfe
from dpmodel.regressions.gaussian_frank_wolfe import GaussianFrankWolfe
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.mirror_descent import MirrorDescent
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import ObjectivePerturbation
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.sets import FreeSpace, L1Ball, L2Ball
from dpmodel.regressions.sufficient_statistics import MOST_COLUMNS

OPTIONS, PURE = Options(1.0, 1e-6), Options(1.0, 0.0)
SMALL = Options(0.1, 1e-3)  # what the shuffled mechanism serves
# For one number, and for logistic losses alone: tests of their own.
NAMES = [e.name for e in REGRESSIONS if e.name not in ("private-constant", "pure-objective-perturbation")]
NAMES += ["samples"]
# Of few steps where settings do not matter.
QUICK: dict[str, Any] = {each.name: each for each in REGRESSIONS} | {
    "frank-wolfe": FrankWolfe(steps=3, rate=0.0, clip=0.5),
    "noisy-descent": NoisyDescent(steps=4),
    "mirror-descent": MirrorDescent(steps=4, map="entropic"),
    "samples": NoisyDescent(steps=4, rate=0.5),
    "gaussian-frank-wolfe": GaussianFrankWolfe(steps=3, rate=0.0, clip=0.5, memory=0.3, middle=False),
    "objective-perturbation": ObjectivePerturbation(ridge=300.0),
}


def made(X: Any = None, y: np.ndarray | None = None, loss: Any = "squared", **how: Any) -> PrivateRegression:
    """300 rows of 6 columns, most entries 0, over an l1 ball."""
    rng = np.random.default_rng(0)
    drawn = np.where(rng.random((300, 6)) < 0.3, rng.uniform(-1, 1, (300, 6)), 0.0)
    X, y = drawn if X is None else X, rng.choice([-1.0, 1.0], 300) if y is None else y
    return regression(X, y, loss, **({"lower": -1.0, "upper": 1.0, "domain": L1Ball(X.shape[1], 1.0)} | how))


@pytest.mark.parametrize("name", NAMES)
def test_forecasts_come_from_public_facts_and_sparse_rows_give_the_same_point(name: str) -> None:
    mechanism, dense = QUICK[name], made()
    assert isinstance(mechanism, Mechanism)
    options = SMALL if name == "stochastic-mirror-descent" else OPTIONS
    assert mechanism.eligible(dense, options).eligible
    blind = replace(made(y=np.ones(300)), read=lambda: pytest.fail("a forecast read rows"))
    assert mechanism.forecast(blind, options) == mechanism.forecast(dense, options)
    sparse = made(sp.csr_array(dense.read_rows().blocks[0][0]))
    points = [mechanism.run(model, options, SeededSource(4)).x for model in (dense, sparse)]
    np.testing.assert_allclose(*points, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("lower", "intercept"), [(0.0, False), (0.0, True), (-1000.0, True)])
def test_sums_of_sparse_columns_that_need_centring(lower: float, intercept: bool) -> None:
    """1,000 lies far from all values: these columns are centred before they are summed."""
    X = np.abs(made().read_rows().blocks[0][0])
    models = [made(each, lower=lower, domain=None, intercept=intercept) for each in (X, sp.csr_array(X))]
    points = [QUICK["sufficient-statistics"].run(model, OPTIONS, SeededSource(0)).x for model in models]
    np.testing.assert_allclose(*points, rtol=1e-7, atol=1e-9)


NONE = np.zeros(6)
WIDE, ENDLESS = {"lower": -math.inf, "upper": math.inf}, {"label": (-math.inf, math.inf)}
LASSO = Penalty(NONE, np.ones(6), NONE)
# mechanism, model, budget, word of the reason
REFUSED: list[tuple[str, dict[str, Any], Options, str]] = [
    *((name, {"domain": L2Ball(6, 1.0)}, OPTIONS, "vertices") for name in ("frank-wolfe", "frank-wolfe-as-printed")),
    *((name, {"domain": FreeSpace(6)}, OPTIONS, "vertices") for name in ("frank-wolfe", "frank-wolfe-as-printed")),
    *((name, {"penalty": LASSO}, OPTIONS, "penalty") for name in ("frank-wolfe", "frank-wolfe-as-printed")),
    *((name, WIDE, OPTIONS, "bounds on the features") for name in ("frank-wolfe", "frank-wolfe-as-printed")),
    *((name, ENDLESS, OPTIONS, "bounds on the labels") for name in ("frank-wolfe", "frank-wolfe-as-printed")),
    ("frank-wolfe-as-printed", {}, PURE, "delta"),
    ("frank-wolfe-as-printed", {"loss": "absolute"}, OPTIONS, "curvature"),
    ("gaussian-frank-wolfe", {"domain": FreeSpace(6)}, OPTIONS, "not bounded"),
    ("gaussian-frank-wolfe", WIDE, OPTIONS, "norm of a row"),
    ("gaussian-frank-wolfe", ENDLESS, OPTIONS, "labels"),
    *((name, WIDE, OPTIONS, "2-norm") for name in ("noisy-descent", "mirror-descent", "samples")),
    *((name, ENDLESS, OPTIONS, "derivatives") for name in ("noisy-descent", "mirror-descent", "samples")),
    ("mirror-descent", {"domain": FreeSpace(6)}, OPTIONS, "l1 balls"),
    ("samples", {}, PURE, "delta"),
    *((name, {"loss": "absolute"}, OPTIONS, "loss") for name in ("sufficient-statistics", "adassp-as-printed")),
    *((name, WIDE, OPTIONS, "rows") for name in ("sufficient-statistics", "adassp-as-printed")),
    *(
        (name, {"label": (-math.inf, 1.0)}, OPTIONS, "labels")
        for name in ("sufficient-statistics", "adassp-as-printed")
    ),
    *((name, {}, Options(1.0, 1e-6, clip=1.0), "clip") for name in ("sufficient-statistics", "adassp-as-printed")),
    *(
        (name, {"offset_bound": math.inf}, OPTIONS, "offsets")
        for name in ("sufficient-statistics", "adassp-as-printed")
    ),
    ("sufficient-statistics", {"X": np.zeros((1, MOST_COLUMNS + 1)), "y": np.zeros(1)}, OPTIONS, "coefficients"),
    ("adassp-as-printed", {}, PURE, "delta"),
    ("objective-perturbation", {"loss": "logistic"}, PURE, "delta > 0"),
    *(("objective-perturbation", {"loss": loss}, OPTIONS, "kinks") for loss in ("hinge", "absolute")),
    ("objective-perturbation", {"domain": None}, OPTIONS, "derivatives"),
    ("objective-perturbation", {"loss": "logistic"} | WIDE, OPTIONS, "2-norm of a row"),
    ("stochastic-mirror-descent", {}, PURE, "delta > 0"),
    ("stochastic-mirror-descent", {"domain": None, "loss": "hinge"}, SMALL, "not bounded"),
    ("stochastic-mirror-descent", {"loss": "hinge"} | WIDE, SMALL, "gradients"),
    ("stochastic-mirror-descent", {"weights": np.linspace(0.5, 1, 300)}, SMALL, "weights"),
]


@pytest.mark.parametrize(("name", "how", "request_", "word"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_refusals_say_why(name: str, how: dict[str, Any], request_: Options, word: str) -> None:
    later = {key: how[key] for key in ("penalty", "offset_bound") if key in how}
    model = replace(made(**{key: value for key, value in how.items() if key not in later}), **later, _memo={})
    mechanism = QUICK["samples"] if name == "samples" else next(each for each in REGRESSIONS if each.name == name)
    verdict = mechanism.eligible(model, request_)
    assert not verdict.eligible and word in verdict.reason


def test_a_clip_serves_where_slopes_have_no_bound() -> None:
    clipped = made(loss=Loss("squared", clip=1.0), **ENDLESS)
    for mechanism in (QUICK["noisy-descent"], FrankWolfe()):
        assert mechanism.eligible(clipped, OPTIONS).eligible
    assert NoisyDescent().eligible(made(loss="absolute", **ENDLESS), OPTIONS).eligible
    for model in (clipped, made(loss="absolute")):  # derivatives that are cut further, or jump: no theorem
        assert not QUICK["frank-wolfe"].forecast(model, Options(1e4, 1e-6)).proved


@pytest.mark.parametrize(("ridge", "reason"), [(0.0, "strongly convex"), (0.05, "takes all of epsilon")])
def test_a_ridge_too_small_is_refused(ridge: float, reason: str) -> None:
    model = regression(np.zeros((10, 2)), np.zeros(10), "logistic", l2=1.0)
    verdict = ObjectivePerturbation(ridge=ridge).eligible(model, OPTIONS)
    assert not verdict.eligible and reason in verdict.reason


@pytest.mark.parametrize("mechanism", [GaussianFrankWolfe(as_printed=True), QUICK["frank-wolfe-as-printed"]])
def test_few_rows_are_said_to_be_useless(mechanism: Any) -> None:
    few = made(np.ones((20, 6)), np.ones(20))
    forecast = mechanism.forecast(few, Options(0.1, 1e-6))
    assert forecast.vacuous and not forecast.proved and "says nothing" in forecast.statement
