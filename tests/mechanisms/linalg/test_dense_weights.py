"""Dense weights over a cone: sensitivity by brute force, an audit with a broken twin, and the least proved density."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from auditing import epsilon_lower_bound
from inequalities import system, unit
from replaying import Transcript

from dpmodel.contract import Options
from dpmodel.mechanisms.linalg.dense_weights import mechanism as dense_weights
from dpmodel.mechanisms.linalg.dense_weights import plan as dense_weights_plan
from dpmodel.mechanisms.linalg.dense_weights.mechanism import DENSE_WEIGHTS
from dpmodel.mechanisms.linalg.dense_weights.plan import candidates, dense_plan, proved_missed, sum_sensitivity
from dpmodel.mechanisms.lp.dense_weights.measure import project_dense
from dpmodel.privacy import SeededSource, gaussian_epsilon, gaussian_mu


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("size", "density"), [(1, 1), (2, 3), (4, 6)])
def test_sensitivity_of_the_weighted_sum(neighbors: str, size: int, density: int) -> None:
    """Weights that are functions of their rows alone; few rows and many; opposite rows; close to the bound."""
    generator, most = np.random.default_rng(size), {1: 0.0, 2: 0.0}
    model = system(np.zeros((0, size)), neighbors=neighbors)
    corners = np.sign(generator.standard_normal(size)) / math.sqrt(size)
    for _ in range(1000):
        n, mixed = int(generator.integers(0, 12)), bool(generator.random() < 0.5)
        rows = unit(generator.standard_normal((n + 1, size))) if mixed else np.tile(-corners, (n + 1, 1))
        new = corners if generator.random() < 0.7 else unit(generator.standard_normal((1, size)))[0]
        log = generator.standard_normal(n + 2) * generator.choice([0.1, 3.0, 30.0]) + generator.choice([0.0, 30.0])
        if generator.random() < 0.2:
            log[0] = 80.0  # the row that changes
        start = rows[1:] if neighbors == "add-remove" else rows
        before = log[2:] if neighbors == "add-remove" else np.r_[log[1], log[2:]]
        after_rows, after = np.vstack([new, rows[1:]]), np.r_[log[0], log[2:]]
        sensitivity = after_rows.T @ project_dense(after, density, density)[0]
        sensitivity = sensitivity - start.T @ project_dense(before, density, density)[0]
        for order in most:
            most[order] = max(most[order], float(np.linalg.norm(sensitivity, order)))
    for order, found in most.items():
        bound = sum_sensitivity(model, density, order)
        assert 0.8 * bound <= found <= bound


def audited(monkeypatch: pytest.MonkeyPatch, neighbors: str, runs: int = 100_000) -> float:
    """Lower bound on epsilon from the second step, given the first's release, on neighbours that nearly reach 2 r / s.

    200 rows point one way, and so does the first point. The row that differs is then violated, and at density 1 it
    takes nearly all the weight: the sum changes sign. One run on either side records what noise of which scale is added
    to what. The false-alarm rate is that of ``epsilon_lower_bound``, 1e-7.
    """
    low, high = np.full((200, 1), -1.0), np.array([[1.0]])
    pair = (np.vstack([low, -high]) if neighbors == "replace-one" else low, np.vstack([low, high]))
    with monkeypatch.context() as patch:
        patch.setattr(dense_weights, "best_plan", lambda m, r: replace(dense_plan(m, r, 1, 2, 1.0), rate=4.0))
        for seed in range(100):
            sides, first = [], []
            for rows in pair:
                source = Transcript(seed)
                DENSE_WEIGHTS.run(system(rows, 0.5, neighbors=neighbors, expected=1), Options(1.0, 1e-3), source)
                first.append(source.draws[0].answer[0])
                at = np.full(runs, source.draws[1].values[0][0])
                sides.append(SeededSource(1000 + len(sides)).gaussian(at, source.draws[1].arguments[0]))
            if max(first) < 0:  # the same first point, -1, on both sides
                return epsilon_lower_bound(*sides, delta=1e-3)
    raise AssertionError("no run started as wanted")


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_audit_and_broken_twin(monkeypatch: pytest.MonkeyPatch, neighbors: str) -> None:
    """One of two steps may use 0.9 / 2 of rho."""
    honest = dense_weights_plan.sum_sensitivity
    claimed = gaussian_epsilon(gaussian_mu(1.0, 1e-3) * math.sqrt(0.9 / 2), 1e-3)
    assert 0.3 * claimed <= audited(monkeypatch, neighbors) <= claimed
    monkeypatch.setattr(dense_weights_plan, "sum_sensitivity", lambda *arguments: honest(*arguments) / 2)
    assert audited(monkeypatch, neighbors) > claimed


def test_fewer_rows_cannot_be_promised() -> None:
    """The proved density is the least: below it the error is above the margin, and more noise needs more rows."""
    options, weaker = Options(4.0, 1e-6), Options(1.0, 1e-6)
    empty = system(np.zeros((0, 2)), 0.7, expected=4000)
    plan = candidates(empty, options)[-1]
    assert proved_missed(empty, options, plan) < math.inf
    lower = dense_plan(empty, options, plan.density // 2, plan.steps, 1.0)
    assert proved_missed(empty, options, lower) == math.inf
    assert proved_missed(empty, weaker, dense_plan(empty, weaker, plan.density, plan.steps, 1.0)) == math.inf
