"""The lazy measure and its projection: exact, stable, of the sensitivity that Lemma 13 states, with FTRL's regret."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodel.programs.dense_weights import DenseMeasure, project_dense


def by_sorting(log_weights, density, idle=0):
    """(m,) the projection by sorting all weights and trying every number of capped ones, in the log domain."""
    every = np.concatenate([log_weights, np.zeros(idle)])
    if density == every.size:
        return np.full(log_weights.size, 1 / density)
    falling = np.sort(every)[::-1]
    for capped in range(density):
        rest = falling[capped:]
        log_c = np.log(density - capped) - np.logaddexp.reduce(rest)
        if log_c + rest[0] <= 1e-15:
            return np.exp(np.minimum(log_weights + log_c, 0.0)) / density
    return np.exp(np.minimum(log_weights - falling[density - 1], 0.0)) / density


@st.composite
def measures(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    size, kind = draw(st.integers(1, 60)), draw(st.sampled_from(["normal", "ties", "geometric", "extreme", "two"]))
    rng = np.random.default_rng(seed)
    scale = 10 ** rng.uniform(-2, 3.3)
    log = {
        "normal": lambda: rng.normal(size=size) * scale,
        "ties": lambda: np.round(rng.normal(size=size)) * scale,
        "geometric": lambda: -np.arange(size) * scale,
        "extreme": lambda: rng.choice([0.0, -690.0, -1e4, 3e3], size=size),
        "two": lambda: rng.permutation(np.r_[np.zeros(size - size // 2), np.full(size // 2, -scale)]),
    }[kind]()
    density = draw(st.integers(1, size))
    return log, density, draw(st.sampled_from([0, density]))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(measures())
def test_exact(case) -> None:
    log, density, idle = case
    kept = log.copy()
    y = project_dense(log, density, idle)
    assert np.array_equal(log, kept)
    assert y.max() * density <= 1 + 1e-12 and y.min() >= 0
    idle_weight = project_dense(np.concatenate([log, np.zeros(idle)]), density)[log.size :].sum() if idle else 0.0
    assert y.sum() + idle_weight == pytest.approx(1, rel=1e-12)
    assert np.abs(y - by_sorting(log, density, idle)).max() * density < 1e-11
    order = np.argsort(log)
    assert (np.diff(y[order]) >= 0).all()
    assert all(np.ptp(y[log == value]) == 0 for value in np.unique(log))
    # A measure is known up to a factor.
    assert np.allclose(project_dense(log + 3.25, density), project_dense(log, density), rtol=1e-9, atol=1e-15 / density)


@pytest.mark.parametrize("seed", range(8))
def test_nearest_in_relative_entropy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = 8
    density = int(rng.integers(1, size + 1))
    log = rng.normal(size=size) * 2
    y = cp.Variable(size)
    prior = np.exp(log) / np.exp(log).sum()
    cp.Problem(cp.Minimize(cp.sum(cp.kl_div(y, prior))), [cp.sum(y) == 1, y <= 1 / density]).solve(solver=cp.CLARABEL)
    assert np.abs(y.value - project_dense(log, density)).max() < 1e-4


def moves(project, seed: int) -> tuple[float, float, bool]:
    """One weight changed: s times the 1-norm move, s times the move of the changed one, others together or not."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 20))
    density = int(rng.integers(1, size + 1))
    log = rng.normal(size=size) * 10 ** rng.uniform(-1, 1.5)
    other = log.copy()
    other[0] = rng.normal() * 10 ** rng.uniform(-1, 2)
    move = project(other, density) - project(log, density)
    together = bool((move[1:] * np.sign(move[0]) <= 1e-14).all())
    return density * float(np.abs(move).sum()), density * abs(float(move[0])), together


def test_lemma_13() -> None:
    found = np.array([moves(project_dense, seed) for seed in range(2000)])
    assert found[:, 0].max() <= 2 + 1e-12 and found[:, 1].max() <= 1 + 1e-12 and found[:, 2].all()
    assert found[:, 0].max() > 1.9  # the bound is reached
    plain = np.array([moves(lambda log, s: np.exp(log) / np.exp(log).sum(), seed) for seed in range(200)])
    assert plain[:, 0].max() > 3  # without the projection it does not hold


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("idle", [False, True])
def test_regret(seed: int, idle: bool) -> None:
    """FTRL: mean gain of any 1/s-dense distribution minus the algorithm's is at most sqrt(ln(m/s) / (2T))."""
    rng = np.random.default_rng(seed)
    size, density, steps = 40, int(rng.integers(1, 12)), 60
    extra = density if idle else 0
    eta = np.sqrt(8 * np.log((size + extra) / density) / steps)
    measure, earned, total = DenseMeasure(size, density, extra), 0.0, np.zeros(size)
    for _ in range(steps):
        y = measure.projected()
        # Gains against the algorithm: rows that have little weight gain, within a range of one that includes zero.
        gain = np.where(rng.random(size) < 0.2, rng.random(size), (y < np.median(y) + 1e-15) * 0.6) - 0.3 * idle
        earned += y @ gain
        total += gain
        measure.add(eta * gain)
    best = np.sort(np.concatenate([total, np.zeros(extra)]))[-density:].mean()
    bound = np.sqrt(np.log((size + extra) / density) / (2 * steps))
    assert (best - earned) / steps <= bound + 1e-12
    assert (best - earned) / steps > 0.05 * bound
