"""Frank-Wolfe with a noisy gradient: the printed noise, and what it promises."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from descents import Replay
from regressions import objective, regression
from scipy.stats import binom

from dpmodel.contract import Options
from dpmodel.privacy import SeededSource, gaussian_mu
from dpmodel.regressions.gaussian_frank_wolfe import GAUSSIAN_FRANK_WOLFE, GaussianFrankWolfe
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.sets import L1Ball, L2Ball

FALSE_ALARM = 1e-7
CLOSE = 4e-3
pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")


def test_settings_remembered_for_one_budget_set_no_noise_for_another() -> None:
    generator = np.random.default_rng(4)
    X, y = generator.uniform(-1, 1, (30, 2)), generator.uniform(-1, 1, 30)

    def fresh() -> PrivateRegression:
        return regression(X, y, domain=L1Ball(2, 1.0), lower=-1, upper=1)

    mechanism, asked = GaussianFrankWolfe(steps=3), (Options(0.5, 1e-6), Options(5.0, 1e-6), Options(0.5, 0.0))
    warm = fresh()
    for options in asked:
        mechanism.forecast(warm, options)
    for options in asked:
        one, two = Replay(), Replay()
        mechanism.run(warm, options, one)
        mechanism.run(fresh(), options, two)
        assert one.scales == two.scales


def test_published_noise_is_the_printed_one_where_that_is_enough() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.choice([-1.0, 1.0], size=(400, 3)), rng.choice([-1.0, 1.0], size=400)
    model = regression(X, y, domain=L2Ball(3, 0.8), lower=-1, upper=1)
    mechanism, source = GaussianFrankWolfe(as_printed=True, steps=4), Replay()
    mechanism.run(model, Options(0.7, 1e-6), source)
    lipschitz = 2 * (0.8 * math.sqrt(3) + 1) * math.sqrt(3)
    printed = lipschitz * math.sqrt(32 * 4) * math.log(400 / 1e-6) / 0.7
    assert source.scales == pytest.approx([printed] * 4, rel=CLOSE)
    assert "delta" in mechanism.eligible(model, Options(1.0, 0.0)).reason
    # A large delta: the printed standard deviation would be too little.
    source = Replay()
    mechanism.run(model, Options(30.0, 0.5), source)
    sensitivity = [2 * lipschitz / scale for scale in source.scales]
    assert math.sqrt(sum(c * c for c in sensitivity)) <= gaussian_mu(30.0, 0.5) * (1 + 1e-9)


def noisy_line(n: int, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    truth = rng.normal(size=p)
    truth *= 1.5 / np.linalg.norm(truth)
    return X, np.clip(X @ truth + 0.1 * rng.normal(size=n), -1, 1), truth


def test_it_learns_and_says_how_well() -> None:
    X, y, _ = noisy_line(20_000, 8)
    model = regression(X, y, domain=L2Ball(8, 2.0), l2=1.0)
    options = Options(1.0, 1e-6)
    forecast = GAUSSIAN_FRANK_WOLFE.forecast(model, options)
    x = GAUSSIAN_FRANK_WOLFE.run(model, options, SeededSource(0)).x
    assert x is not None and np.linalg.norm(x) <= 2 + 1e-9
    best = objective(model, np.linalg.lstsq(X, y, rcond=None)[0])
    assert objective(model, x) - best < 0.1 * (objective(model, np.zeros(8)) - best)
    assert not forecast.vacuous and abs(forecast.error.predicted) < 0.01
    logistic = regression(X, np.sign(y), "logistic", domain=L2Ball(8, 4.0), l2=1.0)
    x = GAUSSIAN_FRANK_WOLFE.run(logistic, options, SeededSource(0)).x
    assert x is not None and objective(logistic, x) < 0.8 * math.log(2)


@pytest.mark.parametrize("middle", [False, True])
def test_the_proved_statement_holds(middle: bool) -> None:
    X, y, _ = noisy_line(2000, 4)
    model = regression(X, y, domain=L2Ball(4, 1.0), l2=1.0)
    mechanism = GaussianFrankWolfe(steps=64, rate=0.0, clip=math.inf, memory=1.0, middle=middle)
    least = cp.Variable(4)
    cp.Problem(cp.Minimize(cp.sum_squares(X @ least - y)), [cp.norm(least) <= 1]).solve()
    lower_bound = objective(model, model.domain.project(np.asarray(least.value)))
    for epsilon, delta in ((10.0, 1e-6), (100.0, 0.0)):  # so much that the bound is below the public point's
        options = Options(epsilon, delta, beta=0.2)
        forecast = mechanism.forecast(model, options)
        assert forecast.proved and "at most" in forecast.statement and mechanism.spent(model, options).delta == delta
        points = [mechanism.run(model, options, SeededSource(seed)).x for seed in range(40)]
        excess = np.array([objective(model, x) - lower_bound for x in points if x is not None])
        assert binom.sf(int((excess > forecast.alpha).sum()) - 1, 40, 0.2) > FALSE_ALARM
        assert binom.sf(int((excess > np.median(excess) / 2).sum()) - 1, 40, 0.2) < FALSE_ALARM
