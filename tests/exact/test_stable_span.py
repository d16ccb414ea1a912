"""The stable span: what the forecast promises, what is told, and what is asked of the noise."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats as stats
from replaying import Transcript
from spans import model_of, sampled_levels

from dpmodel.contract import Options
from dpmodel.exact import stable_span as module
from dpmodel.exact.fields import GF, QQ
from dpmodel.exact.partition import stable_partition
from dpmodel.exact.stable_span import STABLE_SPAN, Thresholds, outside, preferred, thresholds
from dpmodel.privacy import SeededSource


@pytest.mark.parametrize(("neighbors", "full"), [("add-remove", True), ("add-remove", False), ("replace-one", True)])
def test_the_forecast_holds_on_the_worst_profile(neighbors, full):
    """Every level just fails on average, so the bound is put to the test; the false-alarm rate is 1e-7."""
    d, runs, beta = 5, 20_000, 0.05
    model = model_of(np.zeros((1, d if full else d + 2), dtype=int), neighbors=neighbors, rank=d)
    options = Options(1.0, 1e-6, beta)
    forecast = STABLE_SPAN.forecast(model, options)
    rule = thresholds(1.0, 1e-6, neighbors)
    allowed = stats.binom.isf(1e-7, runs, beta)

    def failures(profile, bound):
        counts = np.asarray(profile)
        at_least = np.cumsum(counts[::-1])[::-1]
        drawn = at_least if full else np.append(at_least, 0)
        level = sampled_levels(drawn, counts, model, rule, 3, runs)
        beyond = np.append(at_least, 0)[level]
        missed = level * beyond + np.array([at_least[k:].sum() for k in range(d + 1)])[level]
        return int(np.count_nonzero(missed > bound))

    hard = np.full(d, rule.gap - 1)
    if full:
        hard[-1] = rule.top - 1
    hard[0] += forecast.error.needed
    worst = [failures(hard + offset, forecast.error.missed) for offset in (0, 1, 2, 4)]
    assert max(worst) <= allowed
    assert failures(hard, 0.6 * forecast.error.missed) > allowed  # a bound that is too good would be noticed


def test_most_vectors_are_in_the_subspace_told():
    generator = np.random.default_rng(2)
    for field in (QQ, GF(2), GF(256)):
        top = 5 if field.order is None else field.order
        basis = generator.integers(0, top, size=(4, 8))
        rows = field.matmul(generator.integers(0, top, size=(800, 4)), basis)
        rows = field.exact_rows(rows)
        rows = np.vstack([rows, generator.integers(0, top, size=(6, 8)).astype(rows.dtype)])
        found = STABLE_SPAN.run(model_of(rows, field), Options(1.0, 1e-6), SeededSource(1))
        assert found.status == "found"
        assert found.answer == field.echelon(rows[:800])
        assert np.count_nonzero(~found.answer.contains(rows)) <= 6


# ------------------------------------------------------------------ what is told
def test_nothing_is_told_of_few_records_and_zero_vectors_count_for_nothing():
    rows = np.zeros((5_000, 3), dtype=int)
    rows[:4] = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    found = STABLE_SPAN.run(model_of(rows), Options(1.0, 1e-6), SeededSource(0))
    assert found.status == "nothing"
    assert found.answer.dimension == 0
    empty = STABLE_SPAN.run(model_of(np.zeros((0, 3), dtype=int)), Options(1.0, 1e-6), SeededSource(0))
    assert empty.status == "nothing"


def test_a_level_without_sets_gives_nothing():
    rows = np.array([[1, 0], [0, 1]] * 3)

    class Loud:
        def discrete_gaussian(self, values, scale):
            raise NotImplementedError

        def discrete_laplace(self, values, scale):
            return np.array([500, 100]) if scale else values

    model = model_of(np.hstack([rows, np.zeros((6, 1), dtype=int)]), rank=1)
    found = STABLE_SPAN.run(model, Options(1.0, 1e-6), Loud())
    assert found.status == "nothing"  # level 1 passes by noise, and all sets have two vectors


@pytest.mark.parametrize("task", ["span", "equations"])
def test_what_gets_noise_and_how_much(task):
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]] * 3)
    for neighbors, scale in (("add-remove", 2.0), ("replace-one", 4.0)):
        for rank, counted in ((3, [9, 6, 3]), (2, [9, 6, 3]), (1, [9, 6])):
            source = Transcript(0)
            STABLE_SPAN.run(model_of(rows, task=task, neighbors=neighbors, rank=rank), Options(0.5, 1e-3), source)
            (draw,) = source.draws
            assert draw.distribution == "discrete_laplace" and draw.values[0].tolist() == counted
            assert scale <= draw.arguments[0] <= scale * (1 + 1e-12)


def test_more_dimensions_than_promised_cost_utility_only():
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]] * 200)
    found = STABLE_SPAN.run(model_of(rows, rank=2), Options(1.0, 1e-6), SeededSource(0))
    assert found.status == "nothing"


def test_corrupted_asks_for_a_small_subspace():
    generator = np.random.default_rng(0)
    rows = np.hstack([generator.integers(-3, 4, size=(2_000, 3)), np.zeros((2_000, 2), dtype=int)])
    wrong = generator.random(2_000) < 0.02
    rows[wrong, 3:] = generator.integers(1, 5, size=(wrong.sum(), 2))
    large = STABLE_SPAN.run(model_of(rows), Options(1.0, 1e-6), SeededSource(0))
    small = STABLE_SPAN.run(model_of(rows, corrupted=0.03), Options(1.0, 1e-6), SeededSource(0))
    assert large.answer.dimension == 5
    assert small.answer == QQ.echelon(rows[~wrong])
    assert small.missed >= wrong.sum() / 4
    forecast = STABLE_SPAN.forecast(model_of(rows, corrupted=0.03, expected=2_000, rank=3), Options(1.0, 1e-6))
    assert not forecast.proved and forecast.error.missed == 60


def test_equations_that_contradict_give_the_consistent_part():
    generator = np.random.default_rng(4)
    A = generator.integers(-5, 6, size=(1_500, 3))
    b = A @ np.array([1, 2, -1])
    wrong = generator.random(1_500) < 0.04
    b[wrong] += 1
    rows = np.hstack([A, -b[:, None]])
    found = STABLE_SPAN.run(model_of(rows, task="equations"), Options(1.0, 1e-6), SeededSource(0))
    assert found.answer == QQ.echelon(rows[~wrong])
    assert module.CONSISTENT_PART in found.notes
    all_wrong = np.tile([[0, 0, 0, 5]], (300, 1))
    found = STABLE_SPAN.run(model_of(all_wrong, task="equations"), Options(1.0, 1e-6), SeededSource(0))
    assert found.answer.rows.tolist() == [[0, 0, 0, 1]]


def test_levels_wanted_and_counts_told():
    model = model_of(np.zeros((1, 4), dtype=int))
    rule = Thresholds(1.0, 5, 5)
    noisy = np.array([300, 60, 50, 10])
    assert preferred(noisy, model, rule, 0.05) == [4, 3, 2, 1]
    assert preferred(noisy, replace(model, corrupted=0.02), rule, 0.05) == [3, 2, 1]
    assert preferred(noisy, replace(model, corrupted=0.2), rule, 0.05) == [1]
    assert preferred(np.array([3, 2, 1, 0]), replace(model, corrupted=0.2), rule, 0.05) == []
    low, high = outside(noisy, 2, model, 1.0, 0.05)
    assert low == 60 and 160 < high < 160 + 30
    assert outside(noisy, 4, model, 1.0, 0.05) == (0, 0)


@pytest.mark.parametrize("wrong", [3, 60])
def test_the_most_that_may_be_missed_is_seldom_exceeded(wrong, monkeypatch):
    """100 runs at beta = .05; more than 18 misses have a probability below 1e-6 at that rate."""
    rng = np.random.default_rng(5)
    left = rng.integers(0, 7, (2000, 4))
    right = (left @ [1, 2, 3, 4]) % 7
    right[:wrong] = (right[:wrong] + 1) % 7
    rows = np.column_stack([left, -right % 7]) % 7
    known = stable_partition(GF(7), rows)  # no chance in it: once for all runs
    bases = functools.cache(known.basis)
    monkeypatch.setattr(module, "stable_partition", lambda *_: SimpleNamespace(counts=known.counts, basis=bases))
    missed = functools.cache(lambda basis: int((~basis.contains(rows)).sum()))
    found = [
        STABLE_SPAN.run(model_of(rows, GF(7), task="equations"), Options(1.0, 1e-6), SeededSource(seed))
        for seed in range(100)
    ]
    assert sum(missed(each.answer) > each.missed for each in found) <= 18


def test_pure_privacy_is_refused_with_the_reason():
    verdict = STABLE_SPAN.eligible(model_of(np.zeros((1, 2), dtype=int)), Options(1.0, 0.0))
    assert not verdict.eligible and "delta" in verdict.reason
    assert not STABLE_SPAN.eligible(model_of(np.zeros((1, 2), dtype=int)), Options(1e-14, 1e-6)).eligible
