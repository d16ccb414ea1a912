"""dp-lp: what follows a release depends on releases alone, and each release moves as little as was paid for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from auditing import epsilon_lower_bound
from replaying import Transcript

from dpmodel._types import PrivateArray
from dpmodel.exact import dp_lp
from dpmodel.exact.dp_lp import (
    DPLinearProgram,
    ScaledRows,
    Schedule,
    Searched,
    descend,
    reduced_rows,
    scaled_rows,
    spending,
    supported_levels,
)
from dpmodel.exact.dp_lp_forecast import Setting, box, synthetic_program
from dpmodel.exact.fields import QQ
from dpmodel.exact.flats import region_of, slack_rows
from dpmodel.exact.partition import stable_partition
from dpmodel.exact.stable_span import Thresholds
from dpmodel.privacy import Cost, SeededSource, compose, zcdp_epsilon

SCHEDULE = Schedule(steps=40)
MECHANISM = DPLinearProgram(schedule=SCHEDULE)
D = 3
PUBLIC = box(D, 0, 10)
FIRST = region_of(PUBLIC[:0], PUBLIC, D)


SPLIT = spending(2.0, 1e-6, 3)


def searched(rows: Any, source: Any, neighbors: Any = "add-remove") -> Searched:
    assert FIRST is not None
    return MECHANISM.search(rows, FIRST, PUBLIC, Setting(D, 10, 2.0, 1e-6, neighbors), source)


def rows_of(seed: int, hidden: int = 1, records: int = 1500) -> tuple[Any, Any]:
    A, b, x0 = synthetic_program(np.random.default_rng(seed), records, D, 10, hidden, 200)
    return slack_rows(A, b, 10), A @ x0 == b


def replayed(rows: Any, other: Any, seed: int, neighbors: str = "add-remove") -> None:
    """Answers of a run on one data set are replayed to a run on the other: it must ask the same questions, on values
    that differ by no more than the sensitivities, and end at the same answer."""
    reach, first = 1.0 if neighbors == "add-remove" else 2.0, Transcript(seed)
    result, second = searched(rows, first, neighbors), first.replay()
    again = searched(other, second, neighbors)
    assert all(len(draw.values) == 2 for draw in first.draws)
    for draw in first.draws:
        moved = draw.moved
        size = {
            "gaussian": np.linalg.norm(moved) / reach,
            "discrete_laplace": np.abs(moved).sum() / reach,
            "noisy_max": np.ptp(moved) / reach - 1e-9,
            "discrete_gaussian": np.abs(moved).max(),
        }[draw.distribution]
        assert size <= 1, draw.distribution
    assert again.best.x == result.best.x and again.missed == result.missed
    assert (again.best.region.flat.equations == result.best.region.flat.equations).all()


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_given_the_releases_neighbours_ask_the_same_and_answer_the_same(neighbors: str) -> None:
    """This finds any branch on exact counts and every wrong sensitivity that these neighbours meet. Spans could differ
    on an event of probability delta; it does not happen here."""
    draw = np.random.default_rng(7)
    for hidden in (0, 1, 2):
        rows, equal = rows_of(hidden, hidden)
        for i in [*draw.choice(rows.shape[0], 2, replace=False), *np.flatnonzero(equal)[:2]]:
            other = np.delete(rows, i, axis=0)
            if neighbors == "replace-one":
                new = draw.integers(-10, 11, rows.shape[1]) if draw.random() < 0.7 else -rows[i]
                other = np.insert(other, i, new, axis=0)
            replayed(rows, other, hidden, neighbors)


def test_twins_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's step 3: stop sanitising when |J2| is below a constant; and rows of any length."""
    rows, equal = rows_of(1)
    other = np.delete(rows, np.flatnonzero(equal)[0], axis=0)
    honest, sizes = supported_levels, []

    def branching(vectors: Any, *rest: Any) -> Any:
        sizes.append(vectors.shape[0])
        return honest(vectors, *rest) if vectors.shape[0] >= sizes[0] else []

    with monkeypatch.context() as patch, pytest.raises((AssertionError, IndexError, ValueError)):
        patch.setattr(dp_lp, "supported_levels", branching)
        replayed(rows, other, 1)

    def unscaled(*args: Any) -> ScaledRows:
        fair = scaled_rows(*args)
        return ScaledRows(PrivateArray(fair.directions * 3), PrivateArray(fair.offsets * 3), fair.kept)

    with monkeypatch.context() as patch, pytest.raises(AssertionError):
        patch.setattr(dp_lp, "scaled_rows", unscaled)
        for i in range(20):
            replayed(rows, np.delete(rows, i, axis=0), 1)


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
    costs = [Cost.zcdp(rho, "") for rho in (*split.solve, *split.select, split.count)]
    total = compose([*costs, *(Cost.approximate(*span, "") for span in split.spans)], 1e-6)
    assert total.epsilon <= epsilon * (1 + 1e-9) and total.delta <= 1e-6
    assert total.epsilon >= 0.9 * epsilon
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


def _levels(vectors: Any, seed: int, runs: int, delta: float) -> Any:
    source = SeededSource(seed)
    return np.array(
        [
            max((basis.shape[0] for basis in supported_levels(vectors, 1.0, delta, "add-remove", source)), default=0)
            for _ in range(runs)
        ]
    )


@pytest.mark.slow
def test_audit_of_the_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """One vector more opens a level of its own, which only the neighbour with it can release."""
    few = np.array([[1, 0]] * 12)
    more = np.array([[1, 0]] * 12 + [[0, 1]])
    delta, runs = 0.05, 2500
    # The partition is no chance: compute it once per input.
    known = {v.shape[0]: stable_partition(QQ, v) for v in (few, more)}
    monkeypatch.setattr("dpmodel.exact.stable_span.stable_partition", lambda _, v: known[v.shape[0]])
    fair = epsilon_lower_bound(_levels(more, 1, runs, delta), _levels(few, 2, runs, delta), delta=delta)
    assert fair <= 1.0
    monkeypatch.setattr("dpmodel.exact.stable_span.thresholds", lambda *_: Thresholds(1.0, 1, 1))
    broken = epsilon_lower_bound(_levels(more, 3, runs, delta), _levels(few, 4, runs, delta), delta=delta)
    assert broken > 1.0


def _descents(count: int, sigma: float, seed: int, runs: int = 4000) -> Any:
    rows = scaled(np.ones((count, 1)), np.full(count, -4.0))
    source, schedule = SeededSource(seed), Schedule(steps=3, first=0.1, last=0.1)
    public = np.array([[1.0, 1.0], [1.0, -1.0]])
    noisy = lambda below: source.gaussian(rows.pull(below), sigma)  # noqa: E731
    return np.array([descend(rows, public, np.zeros(1), 1.0, schedule, sigma, noisy)[0] for _ in range(runs)])


@pytest.mark.slow
def test_audit_of_the_descent() -> None:
    """No row against one that pulls at every step; sigma as for rho = 0.5."""
    sigma = math.sqrt(3 / (2 * 0.5))
    promised = zcdp_epsilon(0.5, 1e-3)
    fair = epsilon_lower_bound(_descents(1, sigma, 1), _descents(0, sigma, 2), delta=1e-3)
    assert fair <= promised
    broken = epsilon_lower_bound(_descents(1, sigma / 6, 3), _descents(0, sigma / 6, 4), delta=1e-3)
    assert broken > promised
