"""dp-lp: what follows a release depends on releases alone, and each release moves as little as was paid for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from auditing import epsilon_lower_bound

from dpmodel.mechanisms.linalg.dp_lp.descent import ScaledRows, Schedule, descend, reduced_rows, scaled_rows
from dpmodel.mechanisms.linalg.dp_lp.forecast import box
from dpmodel.mechanisms.linalg.dp_lp import rounds as dp_lp_rounds
from dpmodel.mechanisms.linalg.dp_lp.rounds import Searched, search, spending
from dpmodel.mechanisms.linalg.dp_lp.spans import supported_levels
from dpmodel.mechanisms.linalg.dp_lp.synthetic import planted_program
from dpmodel.mechanisms.linalg.stable_span.partition import stable_partition
from dpmodel.mechanisms.linalg.stable_span.tails import Thresholds
from dpmodel.numerics.fields.field import QQ
from dpmodel.numerics.fields.integer_flat import region_of
from dpmodel.numerics.fields.integer_rows import slack_rows
from dpmodel.privacy import SeededSource, compose, zcdp_epsilon

SCHEDULE = Schedule(steps=40)
D = 3
PUBLIC = box(D, 0, 10)
FIRST = region_of(PUBLIC[:0], PUBLIC, D)


class Tape:
    """A source that writes down what it is asked, and answers from a tape where it has one."""

    is_private = False

    def __init__(self, seed: int, answers: list[Any] | None = None) -> None:
        self._source, self._answers = SeededSource(seed), answers
        self.asked: list[tuple[str, Any, float]] = []
        self.told: list[Any] = []

    def _do(self, kind: str, values: Any, scale: float, draw: Any) -> Any:
        at = len(self.asked)
        self.asked.append((kind, np.array(values, dtype=float), scale))
        self.told.append(draw() if self._answers is None else self._answers[at])
        return self.told[-1]

    def gaussian(self, values: Any, scale: float) -> Any:
        return self._do("gaussian", values, scale, lambda: self._source.gaussian(values, scale))

    def laplace(self, values: Any, scale: float) -> Any:
        return self._do("laplace", values, scale, lambda: self._source.laplace(values, scale))

    def truncated_laplace(self, values: Any, scale: float, half_width: float) -> Any:
        raise AssertionError("not used")

    def noisy_max(self, scores: Any, scale: float, *, kind: Any) -> int:
        answer: int = self._do(str(kind), scores, scale, lambda: self._source.noisy_max(scores, scale, kind=kind))
        return answer

    def discrete_laplace(self, values: Any, scale: float) -> Any:
        return self._do("discrete_laplace", values, scale, lambda: self._source.discrete_laplace(values, scale))

    def discrete_gaussian(self, values: Any, scale: float) -> Any:
        return self._do("discrete_gaussian", values, scale, lambda: self._source.discrete_gaussian(values, scale))


SPLIT = spending(2.0, 1e-6, 3)


def searched(rows: Any, tape: Tape, neighbors: Any = "add-remove") -> Searched:
    assert FIRST is not None
    return search(rows, FIRST, PUBLIC, SPLIT, SCHEDULE, 1.5e-3, 0.01, 10, neighbors, tape)


def rows_of(seed: int, hidden: int = 1, records: int = 1500) -> tuple[Any, Any]:
    A, b, x0 = planted_program(np.random.default_rng(seed), records, D, 10, hidden, 200)
    return slack_rows(A, b, 10), A @ x0 == b


def differences(neighbors: str, one: Tape, other: Tape) -> None:
    """The same questions in the same order, on values that differ by no more than the sensitivities."""
    reach = 1.0 if neighbors == "add-remove" else 2.0
    assert len(one.asked) == len(other.asked)
    for (kind, values, scale), (kind_, values_, scale_) in zip(one.asked, other.asked, strict=True):
        assert kind == kind_ and scale == scale_ and values.shape == values_.shape
        moved = values - values_
        if kind == "gaussian":
            assert np.linalg.norm(moved) <= reach
        elif kind == "discrete_laplace":
            assert np.abs(moved).sum() <= reach
        elif kind == "exponential":
            assert np.ptp(moved) <= reach + 1e-9
        else:
            assert kind == "discrete_gaussian" and np.abs(moved).max() <= 1


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_given_the_releases_neighbours_ask_the_same_and_answer_the_same(neighbors: str) -> None:
    """Answers of a run on D are replayed to a run on D': it must ask the same questions, and end at the same answer.

    Spans could differ on an event of probability delta; it does not happen here. This finds any branch on exact
    counts and every wrong sensitivity that these neighbours meet.
    """
    draw = np.random.default_rng(7)
    for hidden in (0, 1, 2):
        rows, equal = rows_of(hidden, hidden)
        first = Tape(hidden)
        result = searched(rows, first, neighbors)
        some = list(draw.choice(rows.shape[0], 3, replace=False)) + list(np.flatnonzero(equal)[:2])
        for i in some:
            if neighbors == "add-remove":
                other = np.delete(rows, i, axis=0)
            else:
                other = rows.copy()
                other[i] = draw.integers(-10, 11, rows.shape[1]) if draw.random() < 0.7 else -other[i]
            tape = Tape(0, first.told)
            again = searched(other, tape, neighbors)
            differences(neighbors, first, tape)
            assert again.best.x == result.best.x and again.missed == result.missed
            assert (again.best.region.flat.equations == result.best.region.flat.equations).all()


def test_a_twin_that_branches_on_the_exact_count_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's step 3: stop sanitising when |J2| is below a constant."""
    rows, equal = rows_of(1)
    honest, sizes = supported_levels, []

    def counting(vectors: Any, *rest: Any) -> Any:
        sizes.append(vectors.shape[0])
        return honest(vectors, *rest)

    monkeypatch.setattr(dp_lp_rounds, "supported_levels", counting)
    first = Tape(1)
    searched(rows, first)
    limit = sizes[0]

    def branching(vectors: Any, *rest: Any) -> Any:
        return honest(vectors, *rest) if vectors.shape[0] >= limit else []

    monkeypatch.setattr(dp_lp_rounds, "supported_levels", branching)
    first = Tape(1)
    searched(rows, first)
    tape = Tape(0, first.told)
    with pytest.raises((AssertionError, IndexError, ValueError)):
        searched(np.delete(rows, np.flatnonzero(equal)[0], axis=0), tape)
        differences("add-remove", first, tape)


def test_a_twin_with_rows_of_any_length_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = rows_of(1)

    def unscaled(*args: Any) -> ScaledRows:
        fair = scaled_rows(*args)
        return ScaledRows(fair.directions * 3, fair.offsets * 3, fair.kept)

    monkeypatch.setattr(dp_lp_rounds, "scaled_rows", unscaled)
    first = Tape(1)
    searched(rows, first)
    with pytest.raises(AssertionError):
        for i in range(20):
            tape = Tape(0, first.told)
            searched(np.delete(rows, i, axis=0), tape)
            differences("add-remove", first, tape)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_what_is_drawn_is_what_is_paid_for(neighbors: str) -> None:
    """The scales on the tape, in the order of the split, cost what the split says."""
    rows, _ = rows_of(2, 0)
    tape = Tape(2)
    searched(rows, tape, neighbors)
    reach = 1.0 if neighbors == "add-remove" else 2.0
    gaussians = [scale for kind, _, scale in tape.asked if kind == "gaussian"]
    assert len(gaussians) == 3 * SCHEDULE.steps
    for r, rho in enumerate(SPLIT.solve):
        part = gaussians[r * SCHEDULE.steps : (r + 1) * SCHEDULE.steps]
        assert sum(reach**2 / (2 * s * s) for s in part) == pytest.approx(rho)
    spans = [scale for kind, _, scale in tape.asked if kind == "discrete_laplace"]
    assert [reach / s for s in spans] == pytest.approx([e for e, _ in SPLIT.spans])
    chosen = [scale for kind, _, scale in tape.asked if kind == "exponential"]
    assert all((reach / s) ** 2 / 8 <= rho * (1 + 1e-9) for s, rho in zip(chosen, SPLIT.select[1:], strict=False))
    (count,) = [scale for kind, _, scale in tape.asked if kind == "discrete_gaussian"]
    assert 1 / (2 * count**2) == pytest.approx(SPLIT.count)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("rounds", [1, 2, 3, 6])
def test_the_split_adds_up_and_wastes_little(epsilon: float, rounds: int) -> None:
    split = spending(epsilon, 1e-6, rounds)
    total = compose(split.costs, 1e-6)
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
    rows = ScaledRows(directions, np.zeros(1000), np.ones(1000, dtype=bool))
    mask = draw.random(1000) < 0.5
    whole = rows.pull(mask)
    assert (whole == directions.T @ mask).all()
    monkeypatch.setattr("dpmodel.mechanisms.linalg.dp_lp.descent._BLOCK", 99)
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
    monkeypatch.setattr(
        "dpmodel.mechanisms.linalg.stable_span.mechanism.stable_partition", lambda _, v: known[v.shape[0]]
    )
    fair = epsilon_lower_bound(_levels(more, 1, runs, delta), _levels(few, 2, runs, delta), delta=delta)
    assert fair <= 1.0
    monkeypatch.setattr("dpmodel.mechanisms.linalg.stable_span.mechanism.thresholds", lambda *_: Thresholds(1.0, 1, 1))
    broken = epsilon_lower_bound(_levels(more, 3, runs, delta), _levels(few, 4, runs, delta), delta=delta)
    assert broken > 1.0


def _descents(count: int, sigma: float, seed: int, runs: int = 4000) -> Any:
    directions = np.zeros((count, 1)) + 1.0
    rows = ScaledRows(directions, np.full(count, -4.0), np.ones(count, dtype=bool))
    source, schedule = SeededSource(seed), Schedule(steps=3, first=0.1, last=0.1)
    public = np.array([[1.0, 1.0], [1.0, -1.0]])
    return np.array([descend(rows, public, np.zeros(1), 1.0, schedule, sigma, source)[0] for _ in range(runs)])


@pytest.mark.slow
def test_audit_of_the_descent() -> None:
    """No row against one that pulls at every step; sigma as for rho = 0.5."""
    sigma = math.sqrt(3 / (2 * 0.5))
    promised = zcdp_epsilon(0.5, 1e-3)
    fair = epsilon_lower_bound(_descents(1, sigma, 1), _descents(0, sigma, 2), delta=1e-3)
    assert fair <= promised
    broken = epsilon_lower_bound(_descents(1, sigma / 6, 3), _descents(0, sigma / 6, 4), delta=1e-3)
    assert broken > promised
