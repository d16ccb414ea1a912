"""dp-lp: what is drawn is what is paid for, and a row has the same numbers alone and among others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from replaying import Transcript

from dpmodel._types import PrivateArray
from dpmodel.exact.dp_lp import (
    DPLinearProgram,
    ScaledRows,
    Schedule,
    reduced_rows,
    scaled_rows,
    spending,
)
from dpmodel.exact.dp_lp_forecast import Setting, box, synthetic_program
from dpmodel.exact.flats import region_of, slack_rows
from dpmodel.privacy import zcdp_epsilon

SCHEDULE = Schedule(steps=40)
MECHANISM = DPLinearProgram(schedule=SCHEDULE)
D = 3
PUBLIC = box(D, 0, 10)
FIRST = region_of(PUBLIC[:0], PUBLIC, D)


SPLIT = spending(2.0, 1e-6, 3)


def searched(rows: Any, source: Any, neighbors: Any = "add-remove") -> Any:
    assert FIRST is not None
    return MECHANISM.search(rows, FIRST, PUBLIC, Setting(D, 10, 2.0, 1e-6, neighbors), source)


def rows_of(seed: int, hidden: int = 1, records: int = 1500) -> tuple[Any, Any]:
    A, b, x0 = synthetic_program(np.random.default_rng(seed), records, D, 10, hidden, 200)
    return slack_rows(A, b, 10), A @ x0 == b


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_what_is_drawn_is_what_is_paid_for(neighbors: str) -> None:
    """The scales on the tape, in the order of the split, cost what the split says."""
    rows, _ = rows_of(2, 0)
    source, reach = Transcript(2), 1.0 if neighbors == "add-remove" else 2.0
    searched(rows, source, neighbors)

    def scales(distribution: str) -> list[float]:
        return [draw.arguments[0] for draw in source.draws if draw.distribution == distribution]

    gaussians = np.reshape(scales("gaussian"), (3, SCHEDULE.steps))
    assert (reach**2 / (2 * gaussians**2)).sum(axis=1) == pytest.approx(SPLIT.solve)
    assert [reach / s for s in scales("discrete_laplace")] == pytest.approx([e for e, _ in SPLIT.spans])
    chosen = zip(scales("noisy_max"), SPLIT.select[1:], strict=False)
    assert all((reach / s) ** 2 / 8 <= rho * (1 + 1e-9) for s, rho in chosen)
    (count,) = scales("discrete_gaussian")
    assert 1 / (2 * count**2) == pytest.approx(SPLIT.count)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("rounds", [1, 2, 3, 6])
def test_the_split_adds_up_and_wastes_little(epsilon: float, rounds: int) -> None:
    split = spending(epsilon, 1e-6, rounds)
    of_spans, leak = (math.fsum(amounts) for amounts in zip((0.0, 0.0), *split.spans, strict=True))
    total = of_spans + zcdp_epsilon(math.fsum((*split.solve, *split.select, split.count)), 1e-6 - leak)
    assert 0.9 * epsilon <= total <= epsilon * (1 + 1e-9)
    assert len(split.solve) == len(split.select) == rounds == len(split.spans) + 1
    assert sum(e for e, _ in split.spans) == pytest.approx(0.25 * epsilon if rounds > 1 else 0.0)


def test_a_row_has_the_same_numbers_alone_and_among_others_and_sums_are_exact() -> None:
    assert FIRST is not None
    draw = np.random.default_rng(3)
    rows = draw.integers(-(10**6), 10**6 + 1, (3001, D + 1))
    origin, radius = FIRST.middle, FIRST.radius
    many = scaled_rows(reduced_rows(rows, FIRST, 10**6), FIRST, origin, radius)
    w = np.round(draw.normal(size=D) * 2**10) / 2**14
    for i in (0, 1, 1500, 3000):
        one = scaled_rows(reduced_rows(rows[i : i + 1], FIRST, 10**6), FIRST, origin, radius)
        assert (one.directions == many.directions[i]).all() and (one.offsets == many.offsets[i]).all()
        assert one.slack(w)[0] == many.slack(w)[i]
    assert np.linalg.norm(many.directions, axis=1).max() <= 1.0
    total = many.directions.T @ np.ones(3001)
    for j in range(D):
        assert total[j] == math.fsum(many.directions[:, j])
    order = draw.permutation(3001)
    assert (many.directions[order].T @ np.ones(3001) == total).all()


def test_sums_of_more_rows_than_doubles_add_exactly_are_put_together_in_integers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(4)
    directions = np.rint(draw.uniform(-0.5, 0.5, (1000, 2)) * 2**26) / 2**26
    rows = scaled(directions, np.zeros(1000))
    mask = draw.random(1000) < 0.5
    whole = rows.pull(mask)
    assert (whole == directions.T @ mask).all()
    monkeypatch.setattr("dpmodel.exact.dp_lp._BLOCK", 99)
    assert (rows.pull(mask) == whole).all()


def test_rows_of_any_size_on_a_flat_have_finite_directions_and_offsets() -> None:
    """Denominators of a flat grow beyond doubles; a row that nearly vanishes on it must not become infinite."""
    assert FIRST is not None
    huge = 10**400
    reduced = np.array([[5, 0, 1, 0], [huge, 0, 1, 1], [1, huge, 0, huge], [1, 0, 0, 0]], dtype=object)
    made = scaled_rows(reduced, FIRST, FIRST.middle, FIRST.radius)
    assert np.isfinite(made.directions).all() and np.isfinite(made.offsets).all()
    assert np.linalg.norm(made.directions, axis=1) == pytest.approx(np.ones(3), abs=1e-7)
    small = scaled_rows(reduced[:1] * huge, FIRST, FIRST.middle, FIRST.radius)
    assert (small.directions == made.directions[0]).all() and (small.offsets == made.offsets[0]).all()


def scaled(directions: Any, offsets: Any) -> ScaledRows:
    return ScaledRows(PrivateArray(directions), PrivateArray(offsets), np.ones(len(offsets), dtype=bool))
