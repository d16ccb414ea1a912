"""Frank-Wolfe with a noisy gradient: what it asks of the noise against neighbours, what it promises, broken twins."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from auditing import epsilon_lower_bound
from descents import Replay, random_pair, replayed, spent
from regressions import objective, regression
from scipy.stats import binom

from dpmodel.contract import Options, no_progress
from dpmodel.privacy import SeededSource, gaussian_mu
from dpmodel.regressions.gaussian_frank_wolfe import GAUSSIAN_FRANK_WOLFE, GaussianFrankWolfe, _noisy
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.sets import L1Ball, L2Ball

FALSE_ALARM = 1e-7
CLOSE = 4e-3
pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")


@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.slow
def test_a_run_spends_the_budget_and_no_more(delta: float, middle: bool) -> None:
    """Over random neighbours; the worst ones cost (nearly) all of it, so half of the noise would be found out."""
    generator, worst, options = np.random.default_rng(2), 0.0, Options(0.7, delta)
    budget = gaussian_mu(0.7, delta) ** 2 if delta else 0.7
    mechanism = GaussianFrankWolfe(steps=3, rate=0.0, clip=math.inf if middle else 0.3, memory=0.5, middle=middle)
    for number in range(80):
        model, *rows = random_pair(generator, str(generator.choice(["l1", "solid", "product"])))
        pair = [replace(model, read=lambda each=each: each) for each in rows]
        run = lambda m, s: mechanism.run_as_given(m, options, s, no_progress).x  # noqa: E731
        first, second = replayed(run, *pair, number)
        assert {kind for kind, *_ in first.asked} == {"gaussian" if delta else "laplace"}
        worst = max(worst, spent(first, second) / budget)
    assert (0.99 if delta else 0.8) < worst <= 1 + 1e-9


def test_sums_without_a_scale_are_not_released() -> None:
    """Where no derivative reaches anything, the sums are zero; they are not passed on as they are."""
    assert not _noisy(SeededSource(0).gaussian, np.ones(3), 0.0).any()


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


def audit(model_pair: tuple[PrivateRegression, PrivateRegression], epsilon: float, factor: float) -> float:
    """Lower bound on epsilon from the released points of one record's two labels, along its row; ``factor`` scales the
    noise."""

    class Weaker(SeededSource):
        def gaussian(self, values: object, scale: float) -> Any:
            return super().gaussian(values, scale * factor)

        def laplace(self, values: object, scale: float) -> Any:
            return super().laplace(values, scale * factor)

    mechanism = GaussianFrankWolfe(steps=1, rate=0.5, clip=0.3, memory=1.0, middle=False)
    options = Options(epsilon, 1e-5)
    samples = []
    for number, model in enumerate(model_pair):
        source = Weaker(number)
        samples.append(np.array([mechanism.run(model, options, source).x for _ in range(3000)]).sum(axis=1))
    return epsilon_lower_bound(*samples, delta=1e-5)


@pytest.mark.parametrize(("columns", "pure"), [(1, True), (9, False)])
@pytest.mark.slow
def test_an_audit_from_outside(columns: int, pure: bool) -> None:
    """A row of equal entries: the released point tells the sign of the noisy sum along it. Laplace noise is less on one
    column, Gaussian noise on many."""
    row, ball = np.full((1, columns), 1 / math.sqrt(columns)), L2Ball(columns, 1.0)
    models = tuple(regression(row, np.array([y]), domain=ball, l2=1.0) for y in (1.0, -1.0))
    options = Options(1.0, 1e-5)
    assert (GaussianFrankWolfe(steps=1, rate=0.5, clip=0.3, memory=1.0).spent(models[0], options).delta == 0) == pure
    assert audit(models, 1.0, 1.0) <= 1.0  # type: ignore[arg-type]
    assert audit(models, 1.0, 0.1) > 1.0  # type: ignore[arg-type]


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


class Slow(L2Ball):
    """A set over which linear problems take long."""

    calls = 0

    @property
    def kind(self) -> str:
        return "general"

    def minimise(self, g: np.ndarray) -> np.ndarray:
        Slow.calls += 1
        return super().minimise(g)


def test_sets_without_a_closed_form_are_not_simulated() -> None:
    X, y, _ = noisy_line(50_000, 4)
    model = regression(X, y, domain=Slow(4, 1.0), l2=1.0)
    forecast = GAUSSIAN_FRANK_WOLFE.forecast(model, Options(1.0, 1e-6))
    assert Slow.calls == 0 and forecast.proved and forecast.error.predicted == forecast.error.alpha
    x = GAUSSIAN_FRANK_WOLFE.run(model, Options(1.0, 1e-6), SeededSource(0)).x
    assert x is not None and objective(model, x) < 0.7 * objective(model, np.zeros(4))
    assert Slow.calls == forecast.noise["steps"]
