"""Hinge descent: sensitivities by brute force and the steps of its proof."""

from __future__ import annotations

import math

import numpy as np
import pytest
from inequalities import system, unit
from replaying import Transcript

from dpmodel.contract import Options
from dpmodel.exact.cones import KINDS, GridRows, grid_point, synthetic
from dpmodel.exact.hinge_descent import HINGE_DESCENT, plan_hinge, proved_missed, sum_sensitivity

OPTIONS = Options(1.0, 1e-6)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_sensitivity_of_sums_and_counts(neighbors: str, size: int) -> None:
    """Random neighbours, in random places, some of them opposite rows: never above the bound, and close to it."""
    generator = np.random.default_rng(size)
    model = system(np.zeros((0, size)), neighbors=neighbors)
    most = {1: 0.0, 2: 0.0}
    for _ in range(300):
        rows = unit(generator.standard_normal((6, size)))
        new = unit(generator.standard_normal((1, size)))
        if generator.random() < 0.5:
            new = np.sign(generator.standard_normal((1, size))) / math.sqrt(size)
        rows[0] = -new[0] if generator.random() < 0.5 else rows[0]
        place, level = generator.integers(0, 7), generator.uniform(-1, 1.5)
        other = np.insert(rows, place, new, axis=0) if neighbors == "add-remove" else np.vstack([new, rows[1:]])
        y = grid_point(unit(generator.standard_normal((1, size)))[0] * generator.random())
        one, two = GridRows.of(rows), GridRows.of(other)
        sensitivity = one.sum(one.below(y, level)) - two.sum(two.below(y, level))
        for order in most:
            most[order] = max(most[order], float(np.linalg.norm(sensitivity, order)))
        assert abs(one.number(one.below(y, level)) - two.number(two.below(y, level))) <= 1
    for order, found in most.items():
        bound = sum_sensitivity(model, order)
        assert 0.99 * bound <= found <= bound


def test_the_regret_bound_holds_step_by_step() -> None:
    """Steps 1 to 5 of ``bounds``, with the noise that was drawn: sum f <= C r sqrt(n S) - gamma S + C N + dir."""
    for seed, kind in enumerate(KINDS):
        size, margin, n = 4, 0.3, 800
        rows, z = synthetic(system(np.zeros((0, size)), margin), seed, n, kind)
        model = system(rows, margin)
        plan, source = plan_hinge(model, OPTIONS), Transcript(seed)
        HINGE_DESCENT.run(model, OPTIONS, source)
        y, squares, total, active, direction, size_of_noise = np.zeros(size), 0.0, 0.0, 0, 0.0, 0.0
        for draw in source.draws[:-1]:
            values, extra = rows @ y, draw.answer - draw.values[0]
            total += float(np.maximum(plan.level - values, 0).sum())
            active += int(np.count_nonzero(values < plan.level))
            direction += float(extra @ (y - z))
            size_of_noise += float(extra @ extra)
            squares += float(draw.answer @ draw.answer)
            y = y + draw.answer / max(math.sqrt(squares), plan.least_norm)
            y = grid_point(y / max(1.0, float(np.linalg.norm(y))))
        signal = 3 * math.sqrt(n * active) - (margin - plan.level) * active
        noise = 3 * max(math.sqrt(size_of_noise), plan.least_norm)
        assert total <= (signal + noise + direction) * (1 + 1e-4)
        q = 2 * plan.scale * math.sqrt(plan.steps)
        assert total <= plan.steps * plan.level * proved_missed(model, OPTIONS, plan)
        assert abs(direction) <= 8 * q


def test_the_proof_grows_with_noise_margin_and_relation() -> None:
    def proved(margin: float, epsilon: float, neighbors: str, n: int) -> float:
        model = system(np.zeros((n, 5)), margin, neighbors=neighbors)
        options = Options(epsilon, 1e-6)
        return proved_missed(model, options, plan_hinge(model, options))

    base = proved(0.2, 1.0, "add-remove", 2000)
    assert base < proved(0.1, 1.0, "add-remove", 2000)
    assert base < proved(0.2, 0.5, "add-remove", 2000)
    assert base < proved(0.2, 1.0, "replace-one", 2000) < 2.1 * base
