"""Algorithm 2 as printed: its constants, an exact divergence, and the yardstick that it is."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats as stats
from replaying import Transcript
from spans import discrete_laplace, model_of

from dpmodel.as_printed.stable_span import (
    STABLE_SPAN_AS_PRINTED,
    PrintedRule,
    _log_false,
    printed_rule,
    theorem_a,
)
from dpmodel.contract import Options
from dpmodel.exact.fields import GF
from dpmodel.exact.stable_span import STABLE_SPAN
from dpmodel.privacy import SeededSource


def distribution(scale, reach):
    return discrete_laplace(scale, reach)[1]


def test_the_published_constants():
    model = model_of(np.zeros((1, 5), dtype=int))
    rule = printed_rule(model, Options(1.0, 1e-6))
    assert rule.threshold == math.ceil(16 * math.log(100 * 5 / 1e-6)) == 321
    assert (rule.threshold_scale, rule.count_scale) == pytest.approx((2.0, 4.0))
    assert theorem_a(10, 1.0, 1e-6) == pytest.approx(43_600, rel=1e-3)
    halves = printed_rule(replace(model, neighbors="replace-one"), Options(1.0, 1e-6))
    assert halves.epsilon == 0.5
    assert halves.delta * (1 + math.exp(0.5)) == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (8.0, 1e-9), (1.0, 0.5), (80.0, 0.5), (1e3, 1e-6)]
)
def test_the_threshold_keeps_delta(epsilon, delta):
    model = model_of(np.zeros((1, 4), dtype=int))
    options = Options(epsilon, delta)
    assert _log_false(printed_rule(model, options), 1) <= math.log(1.5 * (delta / 400) ** 2)
    assert STABLE_SPAN_AS_PRINTED.eligible(model, options).eligible
    assert not STABLE_SPAN_AS_PRINTED.eligible(model, Options(epsilon, 0.0)).eligible


def index_distribution(counts, rule, reach=40):
    """(r + 1,) distribution of the index, exactly but for the tails cut off."""
    counts = np.asarray(counts)
    thresholds = rule.threshold + np.arange(-reach, reach + 1)
    passes = []
    for count in counts:
        above = np.cumsum(distribution(rule.count_scale, reach)[::-1])[::-1]  # P[Z >= -reach + i]
        need = thresholds + 1 - count + reach
        passes.append(
            np.where(need < 0, 1.0, np.where(need < above.size, above[np.clip(need, 0, above.size - 1)], 0.0))
        )
    out = np.zeros(len(counts) + 1)
    left = distribution(rule.threshold_scale, reach)
    for k in range(len(counts), 0, -1):
        out[k] = (left * passes[k - 1]).sum()
        left = left * (1 - passes[k - 1])
    out[0] = left.sum()
    return out


@pytest.mark.parametrize("shift", list(itertools.product(range(3), repeat=2)))
def test_the_index_is_private_exactly(shift):
    """Discrete noise of the printed scales: every count may move by one, either way."""
    rule = PrintedRule(1.5, 0.1, 6, 2 / 1.5, 4 / 1.5)
    base = np.array([4, 5]) + np.array(shift)
    one = index_distribution(base, rule)
    worst = 0.0
    for sensitivity in itertools.product((-1, 0, 1), repeat=2):
        other = index_distribution(base + np.array(sensitivity), rule)
        worst = max(worst, float(np.abs(np.log(one / other)).max()))
    assert worst <= 1.5 + 1e-9


def test_noise_of_the_printed_scales_doubled_for_replace_one():
    for neighbors, factor in (("add-remove", 1), ("replace-one", 2)):
        source, model = Transcript(0), model_of(np.eye(3, dtype=int), GF(7), neighbors=neighbors)
        STABLE_SPAN_AS_PRINTED.run(model, Options(0.5, 1e-6), source)
        assert [draw.arguments[0] for draw in source.draws] == pytest.approx([4.0 * factor, 8.0 * factor])


def test_the_forecast_holds_and_is_far_above_the_tightened_one():
    d, runs, beta = 4, 20_000, 0.05
    model, options = model_of(np.zeros((1, d), dtype=int)), Options(1.0, 1e-6, beta)
    forecast, tight = STABLE_SPAN_AS_PRINTED.forecast(model, options), STABLE_SPAN.forecast(model, options)
    assert forecast.error.missed > 10 * tight.error.missed
    assert forecast.error.missed < theorem_a(d, 1.0, 1e-6)
    rule, source = printed_rule(model, options), SeededSource(0)
    allowed = stats.binom.isf(1e-7, runs, beta)
    counts = np.full(d, rule.threshold - 8)
    counts[0] = forecast.error.needed
    threshold = source.discrete_laplace(np.full(runs, rule.threshold), rule.threshold_scale)
    above = source.discrete_laplace(np.tile(counts, (runs, 1)), rule.count_scale) > threshold[:, None]
    level = np.where(above.any(axis=1), d - np.argmax(above[:, ::-1], axis=1), 0)
    sizes = np.arange(1, d + 1) * counts
    missed = np.array([sizes[k:].sum() for k in range(d + 1)])[level]
    assert np.count_nonzero(missed > forecast.error.missed) <= allowed
    assert np.count_nonzero(missed > 0.6 * forecast.error.missed) > allowed
