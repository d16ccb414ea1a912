"""What a review of the descents and Frank-Wolfe asked: log-likelihood replays on neighbours, and runs that diverge."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from regressions import regression

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.domain import Box, Domain, FreeSpace, L1Ball, Product, Simplex
from dpmodel.compile.losses import Loss
from dpmodel.compile.penalty import Penalty
from dpmodel.compile.rows import Rows
from dpmodel.mechanisms.mechanism import Request
from dpmodel.mechanisms.regression.descent_metric import descent_metric
from dpmodel.mechanisms.regression.descent_steps import Settings, StepNoise, descend, private_gradient
from dpmodel.mechanisms.regression.frank_wolfe import select_signed, walk
from dpmodel.mechanisms.regression.frank_wolfe_steps import Steps
from dpmodel.mechanisms.regression.gaussian_frank_wolfe import GaussianFrankWolfe, _noisy
from dpmodel.mechanisms.regression.mirror_maps import PNorm
from dpmodel.mechanisms.regression.subsampled_descent import SampledNoise, sampled_gradient
from dpmodel.mechanisms.spend import Spend
from dpmodel.privacy import gaussian_mu

_EPSILON, _DELTA = 1.0, 1e-6


class Tape:
    """Seeded noise that keeps what it was asked; with ``answers`` it repeats those, whatever the values are."""

    is_private = False

    def __init__(self, seed: int, answers: list[Any] | None = None) -> None:
        self.generator, self.answers = np.random.default_rng(seed), answers
        self.values: list[np.ndarray] = []
        self.scales: list[float] = []
        self.told: list[Any] = []

    def laplace(self, values: Any, scale: float) -> Any:
        return self._tell(values, scale, lambda v: v + self.generator.laplace(scale=scale, size=v.shape))

    def gaussian(self, values: Any, scale: float) -> Any:
        return self._tell(values, scale, lambda v: v + self.generator.normal(scale=scale, size=v.shape))

    def truncated_laplace(self, values: Any, scale: float, half_width: float) -> Any:
        raise AssertionError

    def noisy_max(self, scores: Any, scale: float, *, kind: str) -> int:
        return int(self._tell(scores, scale, lambda v: np.argmax(v + self.generator.gumbel(scale=scale, size=v.shape))))

    def _tell(self, values: Any, scale: float, draw: Any) -> Any:
        values = np.array(values, dtype=float)
        assert np.isfinite(values).all() and 0 < scale < math.inf
        out = draw(values) if self.answers is None else self.answers[len(self.told)]
        self.values.append(values)
        self.scales.append(scale)
        self.told.append(out)
        return np.copy(out)


def _pair(generator: np.random.Generator, domain: str) -> tuple[PrivateRegression, Rows, Rows]:
    """A model and the rows of two neighbours within its bounds, the worst ones in half of the cases."""
    n, p, intercept = 12, int(generator.integers(1, 5)), bool(generator.random() < 0.5)
    name = str(generator.choice(["squared", "huber", "quantile", "logistic", "binary_logistic", "hinge"]))
    clip = float(generator.choice([math.inf, math.inf, 0.3]))
    loss = Loss(name, {"huber": 0.5, "quantile": 0.3}.get(name, math.nan), clip)  # type: ignore[arg-type]
    absent = bool(generator.random() < 0.4)
    label = {"number": (-1.0, 2.0), "sign": (-1.0, 1.0), "binary": (0.0, 1.0)}[loss.labels]
    low, high = -generator.uniform(0, 3, p), generator.uniform(0.1, 3, p) * 10.0 ** generator.integers(-2, 3, p)
    if not absent and generator.random() < 0.5:
        low, high = low + 4, high + 4
    l2 = float(generator.choice([math.inf, 1.0])) if (low <= 0).all() else math.inf

    def row() -> np.ndarray:
        a = np.where(generator.random(p) < 0.5, low, high)
        return a * min(1.0, l2 / max(float(np.linalg.norm(a)), 1e-9))

    X, y = np.array([row() for _ in range(n)]), generator.choice(label, n)
    other, labels = X.copy(), y.copy()
    other[3], labels[3] = (0.0, 0.0) if absent else (row(), label[0])
    if not absent and generator.random() < 0.5:
        other[3], y[3] = X[3], label[1]
    size = p + intercept
    over: dict[str, Domain] = {
        "free": FreeSpace(size),
        "l1": L1Ball(size, 2.0),
        "solid": Simplex(size, 2.0, solid=True),
        "product": Product(((L1Ball(p, 2.0), 0), (Box(np.array([-9.0]), np.array([1.0])), p)))
        if intercept
        else L1Ball(p, 2.0),
    }
    weights = generator.uniform(0.1, 3, n) if generator.random() < 0.3 else None
    offset = generator.normal(size=n) if generator.random() < 0.3 else None
    model = regression(
        X, y, loss, domain=over[domain], lower=low, upper=high, l2=l2, label=label, intercept=intercept,
        absent=absent, weights=weights,
    )  # fmt: skip
    sparse = bool(generator.random() < 0.3)

    def rows(matrix: np.ndarray, told: np.ndarray) -> Rows:
        blocks: list[tuple[Any, int]] = [(sp.csr_array(matrix) if sparse else matrix, 0)]
        if intercept:
            blocks.append((np.ones((n, 1)), p))
        return Rows(tuple(blocks), told, size, offset, weights)

    bound = 0.0 if offset is None else float(np.abs(offset).max())
    return replace(model, offset_bound=bound, _memo={}), rows(X, y), rows(other, labels)


def _moves(first: Tape, second: Tape, order: float) -> np.ndarray:
    """How far each release moved, in scales; what was asked for must not depend on the rows."""
    assert first.scales == second.scales
    changes = [a - b for a, b in zip(first.values, second.values, strict=True)]
    if order == 0:
        return np.array([np.ptp(d) / s for d, s in zip(changes, first.scales, strict=True)])
    return np.array([np.linalg.norm(d, ord=order) / s for d, s in zip(changes, first.scales, strict=True)])


@pytest.mark.parametrize("delta", [0.0, _DELTA])
def test_a_whole_descent_costs_the_budget_on_neighbours(delta: float) -> None:
    generator, worst = np.random.default_rng(0), 0.0
    spend, order = Spend.of(_EPSILON, delta, gaussian_only=True), 1.0 if delta == 0 else 2.0
    for number in range(150):
        model, rows, others = _pair(generator, str(generator.choice(["free", "l1", "product"])))
        share = 0.4 if 0 < model.loss.middle_bound(model.row.label_bound) < math.inf and number % 2 else 0.0
        noise = StepNoise(model, descent_metric(model), spend, 4, share)
        first = Tape(number)
        settings = Settings(4, float(10.0 ** generator.uniform(-4, 2)), 0.3, share, "last")
        one = descend(model, noise.metric, settings, private_gradient(noise, rows, first))
        second = Tape(number, first.told)
        two = descend(model, noise.metric, settings, private_gradient(noise, others, second))
        assert np.array_equal(one["last"], two["last"])
        moved = _moves(first, second, order)
        spent = moved.sum() / _EPSILON if delta == 0 else math.hypot(*moved) / gaussian_mu(_EPSILON, delta)
        worst = max(worst, float(spent))
    assert 0.99 < worst <= 1 + 1e-12  # the worst neighbours cost all of it, and no more


def test_samples_with_and_without_one_record() -> None:
    generator, worst = np.random.default_rng(1), 0.0
    for number in range(150):
        model, rows, others = _pair(generator, "free")
        noise = SampledNoise(model, descent_metric(model), Spend(1.0, 1.0), 4, 0.0, 0.5, 2.0)
        settings, first = Settings(4, float(10.0 ** generator.uniform(-4, 0)), 0.0, 0.0, "last"), Tape(number)
        descend(model, noise.metric, settings, sampled_gradient(noise, rows, first))
        second = Tape(number, first.told)
        descend(model, noise.metric, settings, sampled_gradient(noise, others, second))
        vectors = 1 if model.row.absent and model.row.fixed(2.0) == 0 else 2
        moved = _moves(first, second, 2.0)[1::2]  # every other call draws the coins
        worst = max(worst, float(moved.max()) * noise.multiplier / vectors)
    assert 0.99 < worst <= 1 + 1e-12


def test_choices_of_vertices_stay_within_their_range() -> None:
    generator, worst = np.random.default_rng(2), 0.0
    for number in range(200):
        model, rows, others = _pair(generator, str(generator.choice(["l1", "solid", "product"])))
        steps = Steps(4, clip=float(generator.choice([0.2, math.inf])))
        first = Tape(number)
        one = walk(replace(model, read=lambda rows=rows: rows), steps, 0.3, False, first)
        second = Tape(number, first.told)
        two = walk(replace(model, read=lambda rows=others: rows), steps, 0.3, False, second)
        assert np.array_equal(one, two)
        worst = max(worst, float(_moves(first, second, 0).max()))
    assert 0.2 < worst <= 0.3 * (1 + 1e-12)


def test_signs_drawn_apart_have_the_law_of_one_choice() -> None:
    """Log-probability of every (coordinate, sign) from the scores of both draws, against one softmax over 2 p."""
    slopes, apart, epsilon = np.array([3.0, -1.0, 0.0, 40.0, -2.5]), 2.0, 0.7
    whole = np.concatenate([-slopes, slopes]) * epsilon / apart
    whole -= np.logaddexp.reduce(whole)
    for sign in (0, 1):
        for j in range(slopes.size):
            tape = Tape(0, [j, sign])
            assert select_signed(slopes, apart, epsilon, tape) == j + sign * slopes.size
            logs = [v / s for v, s in zip(tape.values, tape.scales, strict=True)]
            found = logs[0][j] - np.logaddexp.reduce(logs[0]) + logs[1][sign] - np.logaddexp.reduce(logs[1])
            assert math.isclose(found, whole[j + sign * slopes.size], rel_tol=1e-12)


def test_sums_without_a_scale_are_not_released() -> None:
    """Where no slope reaches anything, the sums are zero; they are not passed on as they are."""
    assert not _noisy(Tape(0).gaussian, np.ones(3), 0.0).any()


@pytest.mark.parametrize("shape", ["ball", "simplex", "solid"])
@pytest.mark.parametrize("p", [1, 2, 7, 300])
def test_p_norm_maps_find_a_point_for_gradients_of_any_size(shape: Any, p: int) -> None:
    """On a simplex one in five gradients used to end in an error of the root finder."""
    generator = np.random.default_rng(p)
    for radius in (0.1, 37.0):
        for r in (1.5, 1 + 1 / max(math.log(max(p, 2)), 1.0)):
            chosen = PNorm(p, radius, shape, r)
            for size in (1e-3, 1.0, 1e3, 1e8, 1e150):
                g = generator.normal(size=p) * size
                w = chosen.point(g)
                assert float(np.abs(w).sum()) <= radius * (1 + 1e-12)
                assert shape == "ball" or (w >= 0).all()
                assert shape != "simplex" or math.isclose(float(w.sum()), radius, rel_tol=1e-12)
                if size == 1.0:  # least: no other point of the set is better
                    for _ in range(20):
                        v = generator.dirichlet(np.ones(p)) * radius
                        assert _goal(g, w, r) <= _goal(g, v, r) + 1e-9 * max(1.0, radius**2)


def _goal(g: np.ndarray, w: np.ndarray, r: float) -> float:
    return float(g @ w + np.linalg.norm(w, ord=r) ** 2 / 2)


@pytest.mark.parametrize("steps", [5, 6, 7, 9])
def test_a_descent_that_diverges_tells_nothing_of_zeros(steps: int) -> None:
    """A public penalty throws points to infinity, where 0 times infinity would be an error for some rows only."""
    generator = np.random.default_rng(0)
    X, y = generator.choice([-1.0, 1.0], (40, 1)), generator.choice([-1.0, 1.0], 40)
    zero = X.copy()
    zero[3] = 0.0
    none = np.zeros(1)
    steep = Penalty(none, none, none, other=lambda w: 1e6 * float((w**4).sum()), other_slope=lambda w: 4e6 * w**3)
    model = replace(regression(X, y, "logistic", lower=-1, upper=1), penalty=steep)
    spend = Spend.of(_EPSILON, _DELTA, gaussian_only=True)
    noise = StepNoise(model, descent_metric(model), spend, steps, 0.0)
    found = []
    for matrix in (X, zero):
        rows = Rows(((matrix, 0),), y, 1)
        with np.errstate(all="raise", under="ignore"):
            told = private_gradient(noise, rows, Tape(1))

            def gradient(w: np.ndarray, told: Any = told) -> np.ndarray:
                assert np.isfinite(w).all()
                out: np.ndarray = told(w)
                return out

            found.append(descend(model, noise.metric, Settings(steps, 1.0, 0.0, 0.0, "last"), gradient)["last"])
    assert all(np.isfinite(w).all() for w in found)


def test_settings_remembered_for_one_budget_set_no_noise_for_another() -> None:
    generator = np.random.default_rng(4)
    X, y = generator.uniform(-1, 1, (30, 2)), generator.uniform(-1, 1, 30)

    def fresh() -> PrivateRegression:
        return regression(X, y, domain=L1Ball(2, 1.0), lower=-1, upper=1)

    mechanism, asked = GaussianFrankWolfe(steps=3), (Request(0.5, 1e-6), Request(5.0, 1e-6), Request(0.5, 0.0))
    warm = fresh()
    for request in asked:
        mechanism.forecast(warm, request)
    for request in asked:
        one, two = Tape(0), Tape(0)
        mechanism.run(warm, request, one)
        mechanism.run(fresh(), request, two)
        assert one.scales == two.scales
