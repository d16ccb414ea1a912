"""The maxima over one record's changes against a solver, and the rounding and overflow corners."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from neighbours import largest_by_clarabel

from dpmodel.compile.affine_map import group_ids, max_linear, max_squares
from dpmodel.marks.bounds import Ball

AMOUNT = st.one_of(st.sampled_from([1.0, 2.0, 0.5]), st.floats(0.05, 8.0))
SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, np.ndarray, Ball]:
    size, count = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    weights = np.array([draw(st.one_of(st.just(0.0), AMOUNT)) for _ in range(size)])
    equal = draw(st.booleans())
    cap = draw(AMOUNT)
    caps = np.array([cap if equal else draw(st.one_of(AMOUNT, st.just(math.inf))) for _ in range(size)])
    groups = np.array([draw(st.integers(0, count - 1)) for _ in range(size)])
    rows = np.array([draw(st.integers(0, 2)) for _ in range(size)])
    l1, l2, row_l1 = (draw(st.one_of(st.just(math.inf), AMOUNT)) for _ in range(3))
    if not (np.isfinite(caps).all() or min(l1, l2, row_l1) < math.inf):
        l1 = draw(AMOUNT)
    return weights, caps, groups, count, rows, Ball(l1, l2, row_l1)


def best_sensitivity(case: Any, group: int, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(weights of the group, a maximising change by Clarabel, shrunk into the set)."""
    _, caps, groups, _, rows, ball = case
    mine = np.flatnonzero(groups == group)
    sums = np.array([np.ones(mine.size)] + [(rows[mine] == r).astype(float) for r in range(3)])
    limits = np.array([ball.l1] + [ball.row_l1] * 3)
    d = largest_by_clarabel(weights[mine], caps[mine], ball.l2, sums, limits)
    return mine, np.clip(d, 0, caps[mine]) * (1 - 1e-7)


@SETTINGS
@given(cases())
def test_max_linear_is_the_maximum(case: Any) -> None:
    weights, _, groups, count, _, ball = case
    found = max_linear(*case)
    assert found.shape == (count,)
    for group in range(count):
        if not weights[groups == group].any():
            assert found[group] == 0.0
            continue
        mine, d = best_sensitivity(case, group, weights)
        value = float(weights[mine] @ d)
        assert found[group] >= value * (1 - 1e-9)
        if not (math.isfinite(ball.row_l1) and math.isfinite(ball.l2)):
            assert found[group] <= value * (1 + 1e-5) + 1e-9


@SETTINGS
@given(cases(), st.integers(0, 2**32 - 1))
def test_max_squares_is_never_below_the_maximum(case: Any, seed: int) -> None:
    weights, caps, groups, count, _, ball = case
    found = max_squares(*case)
    rng = np.random.default_rng(seed)
    for group in range(count):
        mine = np.flatnonzero(groups == group)
        if not weights[mine].any():
            assert found[group] == 0.0
            continue
        best = 0.0
        for start in [np.ones(mine.size), *np.eye(mine.size), *rng.random((3, mine.size))]:
            direction = np.zeros(weights.size)
            direction[mine] = start
            value = -1.0
            for _ in range(40):  # ascent, which may be slow
                _, d = best_sensitivity(case, group, direction)
                before, value = value, float(weights[mine] @ d**2)
                best = max(best, value)
                if value <= before * (1 + 1e-7):
                    break
                direction[mine] = weights[mine] * d
                if not direction.any():
                    break
        assert found[group] >= best * (1 - 1e-9)
        alone = sum(map(math.isfinite, (ball.l1, ball.l2))) <= 1 and math.isinf(ball.row_l1)
        flat = math.isinf(ball.l1) or bool((caps == caps[0]).all())
        if alone and flat:
            assert found[group] <= best * (1 + 1e-4) + 1e-9


def test_known_maxima() -> None:
    one = np.zeros(3, dtype=np.int64)
    w = np.array([3.0, 2.0, 1.0])
    everywhere = np.full(3, math.inf)
    assert max_linear(w, np.ones(3), one, 1, one, Ball(1.5, math.inf, math.inf)) == pytest.approx(4.0)
    assert max_linear(w, everywhere, one, 1, one, Ball(math.inf, 2.0, math.inf)) == pytest.approx(2 * math.sqrt(14))
    assert max_linear(w, everywhere, one, 1, np.arange(3), Ball(math.inf, math.inf, 1.0)) == pytest.approx(6.0)
    assert max_squares(w, np.ones(3), one, 1, one, Ball(1.5, math.inf, math.inf)) == pytest.approx(3 + 2 / 4)
    assert max_linear(w, everywhere, one, 1, one, Ball(math.inf, math.inf, math.inf)) == math.inf
    assert max_squares(w, everywhere, one, 1, one, Ball(math.inf, math.inf, math.inf)) == math.inf


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scales_do_not_matter(scale: float) -> None:
    rng = np.random.default_rng(0)
    w, caps = rng.random(50), rng.random(50)
    groups = rng.integers(0, 4, 50)
    ball, scaled = Ball(2.0, 1.0, math.inf), Ball(2.0 * scale, scale, math.inf)
    plain = max_linear(w, caps, groups, 4, groups, ball)
    np.testing.assert_allclose(max_linear(w, caps * scale, groups, 4, groups, scaled), plain * scale, rtol=1e-9)
    np.testing.assert_allclose(max_linear(w * scale, caps, groups, 4, groups, ball), plain * scale, rtol=1e-9)


def test_many_entries_do_not_understate() -> None:
    """Rounded running sums may only leave more room, never less."""
    size = 200_000
    rng = np.random.default_rng(0)
    w, caps, groups = rng.random(size), rng.random(size), np.zeros(size, dtype=np.int64)
    total = caps.sum() / 3
    found = float(max_linear(w, caps, groups, 1, groups, Ball(total, math.inf, math.inf))[0])
    order = np.argsort(-w)
    filled = np.clip(total - (np.cumsum(caps[order]) - caps[order]), 0, caps[order])
    true = math.fsum(w[order] * filled)
    assert true * (1 - 1e-12) <= found <= true * (1 + 1e-6)


def test_group_ids_number_distinct_tuples() -> None:
    ids, count = group_ids(np.array([5, 5, 2, 5]), np.array([0, 1, 1, 0]))
    assert count == 3 and ids[0] == ids[3] and len({*ids.tolist()}) == 3
    assert group_ids(np.zeros(0, dtype=np.int64))[1] == 0
