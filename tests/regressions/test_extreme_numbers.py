"""Budgets, bounds, labels and clips of every size: mechanisms serve them or say why not, and run once they forecast."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from families import REGRESSIONS
from regressions import regression

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.options import checked_clip
from dpmodel.privacy import SeededSource
from dpmodel.regressions.descent import NoisyDescent
from dpmodel.regressions.frank_wolfe import FrankWolfe
from dpmodel.regressions.gaussian_frank_wolfe import GaussianFrankWolfe
from dpmodel.regressions.mirror_descent import MirrorDescent
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import ObjectivePerturbation
from dpmodel.regressions.sets import L1Ball, L2Ball
from dpmodel.solve.planner import _candidate

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

# Of few steps, so that plans take no time.
QUICK = {
    each.name: each
    for each in (
        FrankWolfe(steps=2, rate=0.0),
        NoisyDescent(steps=2),
        MirrorDescent(steps=2, map="entropic"),
        GaussianFrankWolfe(steps=2, memory=1.0),
    )
}
FEW_BUDGETS, BUDGETS = [(1e-12, 1e-6), (3000.0, 1e-6)], [(1e-12, 0.0), (1.0, 1e-190), (3000.0, 0.0)]
SIZES = (1e-90, 1.0, 1e90)
# Size of a row and of a label, radius of the set.
FEW = [(1.0, 1.0, 1.0), (1e-90, 1e90, 1.0), (1e90, 1e-90, 1.0)]
# One needs many records, one logistic losses without constraints, one a single number for all records.
NOT_HERE = ("stochastic-mirror-descent", "pure-objective-perturbation", "private-constant")
CASES = [(size, label, 1.0) for size, label in itertools.product(SIZES, SIZES)]
CASES += [(1.0, 1.0, radius) for radius in (1e-90, 1e90)]


def model_of(size: float, label: float, radius: float, loss: str = "squared") -> PrivateRegression:
    rng = np.random.default_rng(0)
    X, y = size * rng.uniform(-1, 1, (20, 2)), label * rng.choice([-1.0, 1.0], 20)
    domain = (L1Ball if radius == 1.0 else L2Ball)(2, radius)
    if loss != "squared":
        y, label = np.sign(y), 1.0
    return regression(X, y, loss, domain=domain, lower=-size, upper=size, label=(-label, label))


def serve(mechanism: Any, model: PrivateRegression, options: Options) -> bool:
    """Whether it served: it stands in the plan with a forecast, or with the reason why not. Nothing may fail once there
    is a forecast, because that run would be paid for."""
    forecast = _candidate(mechanism, model, options).forecast
    if forecast is None:
        return False
    assert not math.isnan(forecast.error.predicted)
    x = mechanism.run(model, options, SeededSource(0)).x
    assert x is not None and np.isfinite(x).all()
    return True


def named(name: str) -> Any:
    return QUICK.get(name) or next(each for each in REGRESSIONS if each.name == name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in REGRESSIONS])
def test_numbers_of_every_size(name: str) -> None:
    served = [serve(named(name), model_of(*case), Options(*budget)) for case in FEW for budget in FEW_BUDGETS]
    assert any(served) or name in NOT_HERE


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in REGRESSIONS])
def test_more_numbers_of_every_size(name: str) -> None:
    for case in CASES:
        for budget in (*BUDGETS, *FEW_BUDGETS):
            serve(named(name), model_of(*case), Options(*budget))


@pytest.mark.parametrize("epsilon", [1e-12, 3000.0])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_objective_perturbation_judges_without_failing(epsilon: float, loss: str) -> None:
    """Its own words, not the plan's for a mechanism that failed: e^epsilon and 1/epsilon leave double precision."""
    model, options = model_of(1.0, 1.0, 1.0, loss), Options(epsilon, 1e-6)
    for mechanism in (ObjectivePerturbation(), ObjectivePerturbation(ridge=1.0), ObjectivePerturbation(ridge=1e-300)):
        if mechanism.eligible(model, options).eligible:
            assert math.isfinite(mechanism.forecast(model, options).error.predicted)


@pytest.mark.parametrize("value", [1e-300, 1e300, 0.0, -1.0, math.inf, math.nan, 10**400, "1", True])
def test_clips_that_no_noise_hides_are_refused(value: Any) -> None:
    with pytest.raises(dpm.errors.SpecificationError):
        checked_clip(value)


@pytest.mark.parametrize("name", ["l1", "l2", "linf", "max_l1", "max_l2", "max_linf"])
def test_declared_sizes_beyond_double_precision_are_refused(name: str) -> None:
    for value in (10**400,) if name.startswith("max") else (10**400, 1e-300, 1e300):
        with pytest.raises(dpm.errors.SpecificationError):
            dpm.Private([1.0, 2.0], **{name: value})  # type: ignore[arg-type]
