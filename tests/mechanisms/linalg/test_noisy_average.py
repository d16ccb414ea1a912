"""The noisy average: how far one record moves it, the scales of its noise, and an audit with broken twins."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from auditing import epsilon_lower_bound

from dpmodel._types import Floats
from dpmodel.mechanisms.linalg.pin_hull.noisy_average import average_deviation, noisy_average
from dpmodel.mechanisms.linalg.rescaling_perceptron.rows import GridRows
from dpmodel.mechanisms.lp.noise_once.measurement import ROUNDING
from dpmodel.privacy import SeededSource

FALSE_ALARM = 1e-7


class Captured(SeededSource):
    """Keeps (kind, values, scale), and may answer Laplace requests with a fixed shift."""

    def __init__(self, seed: int, shift: float | None = None) -> None:
        super().__init__(seed)
        self.asked: list[tuple[str, Floats, float]] = []
        self.shift = shift

    def laplace(self, values: Any, scale: float) -> Floats:
        self.asked.append(("laplace", np.array(values), scale))
        return super().laplace(values, scale) if self.shift is None else np.asarray(values) + self.shift

    def gaussian(self, values: Any, scale: float) -> Floats:
        self.asked.append(("gaussian", np.array(values), scale))
        return super().gaussian(values, scale)


def average(rows: Floats, source: SeededSource, epsilon: float = 1.0, delta: float = 1e-3) -> Floats | None:
    return noisy_average(GridRows.of(rows), np.ones(len(rows), dtype=bool), epsilon, delta, source)


def test_scales_are_those_of_the_paper() -> None:
    epsilon, delta, source = 0.7, 1e-4, Captured(0, shift=3.0)
    assert average(np.tile([[0.6, 0.8]], (100, 1)), source, epsilon, delta) is not None
    (_, number, scale), (_, mean, deviation) = source.asked
    assert number == 100 and scale == 2 / epsilon
    assert np.allclose(mean, [0.6, 0.8], atol=1e-8)
    guess = 103 - 2 / epsilon * math.log(2 / delta)
    printed = 4 / (epsilon * guess) * math.sqrt(2 * math.log(8 / delta))
    assert printed <= deviation <= printed * (1 + 2 * ROUNDING)


def test_nothing_for_few_rows() -> None:
    assert average(np.tile([[0.6, 0.8]], (10, 1)), Captured(0, shift=-1.0)) is None
    found = average(np.zeros((0, 2)), Captured(0, shift=20.0))  # the rare case of a guess far above no rows
    assert found is not None and np.isfinite(found).all()


@pytest.mark.parametrize("swap", [False, True])
def test_one_record_moves_the_average_by_two_over_the_larger_number(swap: bool) -> None:
    rng, largest = np.random.default_rng(1), 0.0
    for trial in range(400):
        n, size = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        rows = rng.standard_normal((n, size))
        if trial % 2:
            rows[:-1] = -rows[-1]  # the worst
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        other = np.vstack([rows[:-1], -rows[-1]]) if swap else rows[:-1]
        means = []
        for data in (rows, other):
            source = Captured(0, shift=50.0)
            average(data, source)
            means.append(source.asked[1][1])
        moved = float(np.linalg.norm(means[0] - means[1]))
        largest = max(largest, moved * n / 2)
        assert moved <= 2 / n * (1 + ROUNDING)
    assert largest > 0.99


def drawn(rows: Floats, runs: int, seed: int, epsilon: float, delta: float, twin: str) -> Floats:
    """(runs, D + 1) the law of ``noisy_average``, in one go: whether it answered, and the answer."""
    rng, (n, size) = np.random.default_rng(seed), rows.shape
    shift = 0.0 if twin == "no shift" else 2 / epsilon * math.log(2 / delta)
    guess = n + (0.0 if twin == "exact number" else rng.laplace(scale=2 / epsilon, size=runs)) - shift + np.zeros(runs)
    sigma = np.array([average_deviation(1.0, epsilon, delta)]) / np.maximum(guess, 1e-9)
    if twin == "noise divided by 30":
        sigma = sigma / 30
    mean = rows.sum(axis=0) / max(n, 1)
    answers = mean + sigma[:, None] * rng.standard_normal((runs, size))
    return np.where((guess > 0)[:, None], np.column_stack([np.ones(runs), answers]), 0.0)


@pytest.mark.parametrize(
    ("twin", "count"), [("", 15), ("", 40), ("noise divided by 30", 40), ("exact number", 15)]
)  # fmt: skip
def test_audit(twin: str, count: int) -> None:
    epsilon, delta = 1.0, 1e-3  # the shift is 15.2: the last twin is silent for 15 rows and speaks for 16
    one = np.tile([[1.0]], (count, 1))
    two = np.vstack([one, [[-1.0]]])
    samples = [drawn(rows, 200_000, seed, epsilon, delta, twin) for rows, seed in ((one, 1), (two, 2))]
    middle = (1 + (count - 1) / (count + 1)) / 2
    scores = [
        lambda out: out[:, 0],
        lambda out: np.where(out[:, 0] > 0, out[:, 1] - middle, -1e9),
        lambda out: np.where(out[:, 0] > 0, middle - out[:, 1], -1e9),
        lambda out: np.where(out[:, 0] > 0, np.abs(out[:, 1] - 1), 1e9),
    ]
    found = max(epsilon_lower_bound(*samples, score, delta=delta, confidence=1 - FALSE_ALARM) for score in scores)
    assert (found > epsilon) == bool(twin)


def test_the_audited_law_is_that_of_the_code() -> None:
    """The quick law above against calls: the same share of answers and the same spread, to five deviations."""
    rows, calls = np.ones((14, 1)), 4000
    source = SeededSource(3)
    called = [average(rows, source) for _ in range(calls)]
    quick = drawn(rows, 200_000, 4, 1.0, 1e-3, "")
    share = float(quick[:, 0].mean())
    assert abs(sum(c is not None for c in called) / calls - share) < 5 * math.sqrt(share * (1 - share) / calls)
    answers = np.array([c[0] for c in called if c is not None])
    middle = np.median(np.abs(quick[quick[:, 0] > 0, 1] - 1))
    inside = np.mean(np.abs(answers - 1) < middle)
    assert abs(inside - 0.5) < 5 * 0.5 / math.sqrt(answers.size)
