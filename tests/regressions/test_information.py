"""What gradients under noise can tell: the inequality, and that no forecast says more."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from regressions import regression

from dpmodel.contract import Options
from dpmodel.regressions.descent import NOISY_DESCENT
from dpmodel.regressions.excess import _FAINT, _ROOM, predicted_by, too_noisy
from dpmodel.regressions.gaussian_frank_wolfe import GAUSSIAN_FRANK_WOLFE
from dpmodel.regressions.mirror_descent import MIRROR_DESCENT
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.objective_perturbation import OBJECTIVE_PERTURBATION
from dpmodel.regressions.sets import Domain, L1Ball, L2Ball

DELTA = 1e-6


@pytest.mark.parametrize("carrying", [1, 2, 6])
@pytest.mark.parametrize("a", [0.3, 1.0, _FAINT])
def test_inequality(a: float, carrying: int) -> None:
    """The best function of a gradient under noise, where it may lie on any ``carrying`` of 6 columns with any signs:
    <g, u> by the mean of g given what is seen, exactly."""
    p, rng = 6, np.random.default_rng(0)
    places, signs = itertools.combinations(range(p), carrying), itertools.product((-1.0, 1.0), repeat=carrying)
    gradients = np.zeros((math.comb(p, carrying) * 2**carrying, p))
    for row, (which, sign) in zip(gradients, itertools.product(places, list(signs)), strict=True):
        row[list(which)] = sign
    gradients *= a / math.sqrt(carrying)  # |g| = a, and the noise is 1
    seen = gradients[rng.integers(len(gradients), size=20_000)] + rng.normal(size=(20_000, p))
    weights = np.exp(seen @ gradients.T)
    means = (weights @ gradients) / weights.sum(axis=1, keepdims=True)
    gained = float(np.linalg.norm(means, axis=1).mean())  # = E <g, u> for the u of length 1 that is best
    assert gained <= _ROOM * a * a / math.sqrt(p)
    assert gained >= 0.3 * a * a / math.sqrt(p)  # and the bound is of the right size


def model_of(n: int, p: int, loss: str, domain: Domain) -> PrivateRegression:
    return regression(np.zeros((n, p)), np.zeros(n), loss, domain=domain, lower=-1.0, upper=1.0)


def least(model: PrivateRegression, epsilon: float) -> float:
    return too_noisy(model, Options(epsilon, DELTA))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(("n", "p"), [(300, 400), (100, 100), (1000, 1500)])
def test_no_forecast_is_below(n: int, p: int, loss: str) -> None:
    said = 0
    for domain, epsilon in itertools.product((L1Ball(p, 1.0), L2Ball(p, 1.0)), (0.1, 0.3, 1.0)):
        model, options = model_of(n, p, loss, domain), Options(epsilon, DELTA)
        bound = least(model, epsilon)
        said += bound > 0
        for each in (NOISY_DESCENT, MIRROR_DESCENT, GAUSSIAN_FRANK_WOLFE, OBJECTIVE_PERTURBATION):
            if bound > 0 and each.eligible(model, options).eligible:
                assert predicted_by(each.forecast(model, options)) >= bound, each.name
    assert said >= 2


def test_with_less_noise_than_it_was_told_of_forecasts_are_below() -> None:
    model = model_of(2000, 300, "squared", L1Ball(300, 1.0))
    assert predicted_by(NOISY_DESCENT.forecast(model, Options(10.0, DELTA))) < least(model, 0.05)
