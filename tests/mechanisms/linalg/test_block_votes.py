"""block-votes: one record changes one vote; the winner is (epsilon, delta)-private, exactly; corrupted systems."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from auditing import epsilon_lower_bound
from spans import model_of

from dpmodel.contract import Options
from dpmodel.exact.fields import GF, QQ
from dpmodel.mechanisms.linalg.block_votes import BLOCK_VOTES, Blocks, count_votes, plan_blocks, threshold_of
from dpmodel.privacy import SeededSource

OPTIONS = Options(1.0, 1e-6)


def system(field, rows, *, task="equations", corrupted=0.05, expected=None):
    return model_of(rows, field, task=task, corrupted=corrupted, expected=expected or len(rows))


def planted(field, d, n, share, seed):
    """(n, d + 1) rows (a, -b) of ``a'x = b``, a share of them with a random b; the mask of these."""
    rng = np.random.default_rng(seed)
    q = field.order or 7
    A, x = rng.integers(0, q, (n, d)), rng.integers(0, q, (d, 1))
    b = np.array(field.matmul(field.elements(A), field.elements(x))).astype(np.int64)
    bad = rng.random(n) < share
    b[bad] = rng.integers(0, q, (int(bad.sum()), 1))
    minus = -b if field.order is None else field.subtract(np.zeros_like(b), b)
    return np.hstack([A, minus]).astype(np.int64), bad


@pytest.mark.parametrize("field", [QQ, GF(2)], ids=lambda f: f.name)
@pytest.mark.parametrize("replace_one", [False, True])
def test_one_record_changes_one_vote(field, replace_one) -> None:
    """Labels of the other records given, as in the proof."""
    rng = np.random.default_rng(1)
    largest = 0
    for _ in range(80):
        n, d = 14, 3
        rows = rng.integers(0, 2, (n, d))
        labels = rng.integers(0, 3, n)
        blocks = Blocks(3, 4, 3, 2.0, 10)
        gone = int(rng.integers(n))
        kept = np.delete(np.arange(n), gone)
        other, other_labels = rows[kept], labels[kept]
        if replace_one:
            other, other_labels = rows.copy(), labels
            other[gone] = rng.integers(0, 2, d)
        one, two = (count_votes(field, r, w, blocks) for r, w in ((rows, labels), (other, other_labels)))
        sensitivity = [one.get(key, 0) - two.get(key, 0) for key in {*one, *two}]
        largest = max(largest, sum(map(abs, sensitivity)))
        assert sum(map(abs, sensitivity)) <= 2 and max(map(abs, sensitivity), default=0) <= 1
    assert largest == 2


def outcome_distribution(counts: tuple[int, ...], scale: float, threshold: int) -> np.ndarray:
    """(bins + 1,) exact probabilities of the winner (bins without votes never win) and of none, by summation."""
    k = np.arange(-80, 81)
    distribution = math.tanh(1 / (2 * scale)) * np.exp(-np.abs(k) / scale)
    below = np.append(np.cumsum(distribution), 0.0)
    voted = [i for i, count in enumerate(counts) if count > 0]
    out = np.zeros(len(counts) + 1)
    for i in voted:
        value = counts[i] + k
        win = distribution.copy()
        for j in voted:
            if j != i:
                win = win * below[np.clip(value - (j < i) - counts[j] + 80, -1, 160)]
        out[i] = win[value >= threshold].sum()
    out[-1] = 1 - out.sum()
    return out


def divergence(scale: float, threshold: int, epsilon: float) -> float:
    """Largest hockey-stick divergence over all pairs of histograms of up to 3 subspaces and 3 votes each."""
    distributions = {c: outcome_distribution(c, scale, threshold) for c in itertools.product(range(4), repeat=3)}
    worst = 0.0
    for counts, p in distributions.items():
        for a, b in itertools.permutations(range(4), 2):  # a vote moves from a to b; 3 stands for no vote
            other = [*counts, 0]
            other[a] -= 1
            other[b] += 1
            q = distributions.get(tuple(other[:3]))
            if q is not None:
                worst = max(worst, float(np.maximum(p - math.exp(epsilon) * q, 0).sum()))
    return worst


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (0.5, 0.1), (2.0, 0.01)])
def test_the_winner_is_private_exactly(epsilon, delta) -> None:
    scale, threshold = 2 / epsilon, threshold_of(epsilon, delta)
    worst = divergence(scale, threshold, epsilon)
    assert worst <= delta
    assert worst >= delta / 8, "the threshold would be far too careful"
    # Twins: half the noise, and a threshold that forgets the vote itself and its factor.
    assert divergence(scale / 2, threshold, epsilon) > delta or divergence(scale / 2, 2, epsilon) > delta
    assert divergence(scale, max(threshold - math.ceil(2 * scale), 1), epsilon) > delta


def test_threshold_tail_is_exact() -> None:
    for epsilon, delta in [(1.0, 1e-6), (0.1, 1e-3), (4.0, 1e-9)]:
        t, scale = threshold_of(epsilon, delta), 2 / epsilon
        distribution = lambda k, s=scale: math.tanh(1 / (2 * s)) * math.exp(-abs(k) / s)  # noqa: E731
        factor = max(2, math.exp(epsilon / 2))
        tail = sum(distribution(k) for k in range(t - 1, t + 2000))
        assert factor * tail <= delta * (1 + 1e-9)
        assert t == 2 or factor * (tail + distribution(t - 2)) > delta * (1 - 1e-9)


class Loud(SeededSource):
    """A twin with a third of the noise."""

    def discrete_laplace(self, values, scale):
        return super().discrete_laplace(values, scale / 3)


def test_audit_and_a_broken_twin() -> None:
    """Two subspaces with 40 and 46 votes against 41 and 45, seen through who wins with how many: false alarm 1e-7."""
    options = Options(1.0, 1e-6)
    blocks = plan_blocks(system(GF(2), np.ones((8, 2), dtype=np.int64)), options)

    def sample(source, first: int) -> np.ndarray:
        noisy = source.discrete_laplace(np.tile([first, 86 - first], (100_000, 1)), blocks.scale)
        return np.where(noisy[:, 0] >= noisy[:, 1], noisy[:, 0], -noisy[:, 1])

    honest = epsilon_lower_bound(sample(SeededSource(1), 41), sample(SeededSource(2), 40), delta=1e-6)
    broken = epsilon_lower_bound(sample(Loud(1), 41), sample(Loud(2), 40), delta=1e-6)
    assert 0.3 <= honest <= 1.0 < broken


@pytest.mark.parametrize(
    ("field", "d", "n", "share"), [(QQ, 5, 3000, 0.05), (GF(7), 12, 6000, 0.05), (GF(256), 5, 3000, 0.1)]
)
def test_corrupted_systems_are_recovered(field, d, n, share) -> None:
    rows, bad = planted(field, d, n, share, 3)
    model = system(field, rows, corrupted=share)
    forecast = BLOCK_VOTES.forecast(model, OPTIONS)
    assert not forecast.vacuous and forecast.error.needed < n
    found = BLOCK_VOTES.run(model, OPTIONS, SeededSource(1))
    assert found.status == "found" and found.answer.dimension == d
    assert found.answer.contains(rows[~bad]).all()


def test_too_few_records_find_nothing_and_the_forecast_says_so() -> None:
    rows, _ = planted(GF(7), 12, 300, 0.05, 3)
    model = system(GF(7), rows)
    assert BLOCK_VOTES.forecast(model, OPTIONS).vacuous
    found = BLOCK_VOTES.run(model, OPTIONS, SeededSource(1))
    assert found.status == "nothing" and found.answer.dimension == 0


def test_who_is_eligible() -> None:
    rows, _ = planted(GF(7), 2, 30, 0.0, 3)
    assert BLOCK_VOTES.eligible(system(GF(7), rows), OPTIONS).eligible
    assert "corrupted" in BLOCK_VOTES.eligible(system(GF(7), rows, corrupted=None), OPTIONS).reason
    assert "delta" in BLOCK_VOTES.eligible(system(GF(7), rows), replace(OPTIONS, delta=0.0)).reason


def test_one_enormous_record_stops_nothing() -> None:
    """An error that one record can cause would tell that it is there."""
    rows, _ = planted(QQ, 3, 600, 0.0, 3)
    rows = rows.astype(object)
    rows[:, 2:] = 0
    rows[0] = [1, 1, 1, 10**5000]  # more digits than Python prints
    found = BLOCK_VOTES.run(system(QQ, rows, task="span"), replace(OPTIONS, epsilon=4.0), SeededSource(1))
    assert found.status == "found"


def test_extreme_budgets() -> None:
    rows, _ = planted(GF(7), 2, 30, 0.0, 3)
    assert "epsilon" in BLOCK_VOTES.eligible(system(GF(7), rows), replace(OPTIONS, epsilon=1e-14)).reason
    assert [threshold_of(epsilon, 1e-6) for epsilon in (2000.0, 1e6)] == [3, 3]


def test_no_rows_and_zero_rows() -> None:
    for rows in (np.zeros((0, 3), dtype=np.int64), np.zeros((50, 3), dtype=np.int64)):
        assert BLOCK_VOTES.run(system(GF(2), rows, expected=50), OPTIONS, SeededSource(1)).status == "nothing"
