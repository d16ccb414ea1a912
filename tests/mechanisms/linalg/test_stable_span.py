"""The stable span: sensitivity by brute force, exact divergences, audits, broken twins, utility."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats as stats
from auditing import epsilon_lower_bound

from dpmodel.annotate.records import Neighbors
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.linalg.stable_span import mechanism as module
from dpmodel.mechanisms.linalg.stable_span.mechanism import (
    STABLE_SPAN,
    no_subspace,
    outside,
    passing,
    preferred,
    sets_of_at_least,
)
from dpmodel.mechanisms.linalg.stable_span.partition import Partition, stable_partition
from dpmodel.mechanisms.linalg.stable_span.tails import (
    Thresholds,
    log_loss,
    log_tail_one,
    log_tail_two,
    thresholds,
    union_bound,
)
from dpmodel.mechanisms.linalg.systems import PrivateVectors
from dpmodel.numerics.fields.field import GF, QQ
from dpmodel.privacy import SeededSource

FIELDS = [QQ, GF(2), GF(3), GF(4)]  # QQ is slower to start: fewer cases


def model_of(
    rows, field=QQ, *, task="span", neighbors: Neighbors = "add-remove", rank=None, expected=0, corrupted=None
):
    rows = np.asarray(rows)
    return PrivateVectors(
        field=field,
        dimension=rows.shape[1],
        task=task,
        neighbors=neighbors,
        rank=rank or rows.shape[1],
        records=len(rows) if neighbors == "replace-one" else None,
        expected=expected,
        _rows=lambda: rows,
        corrupted=corrupted,
    )


def seeded(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SeededSource(seed)


def discrete_laplace(scale, reach):
    values = np.arange(-reach, reach + 1)
    q = math.exp(-1 / scale)
    return values, (1 - q) / (1 + q) * q ** np.abs(values)


def random_rows(generator, field, n, d):
    """Sequences in which few distinct directions repeat, so that all dimensions get sets."""
    top = 3 if field.order is None else field.order
    pool = generator.integers(0, top, size=(max(d, 3), d))
    return pool[generator.integers(0, len(pool), size=n)]


def levels(partition: Partition):
    """Basis of every dimension that has a set."""
    return {k: partition.basis(k) for k in range(1, len(partition.counts)) if partition.counts[k]}


# ------------------------------------------------------------------ sensitivity
@pytest.mark.parametrize("field", FIELDS, ids=lambda f: f.name)
def test_one_vector_more_moves_one_count_by_one_and_two_subspaces(field):
    generator = np.random.default_rng(7)
    moved = set()
    for _ in range(15 if field is QQ else 60):
        d, n = int(generator.integers(2, 5)), int(generator.integers(1, 14))
        rows = random_rows(generator, field, n, d)
        at = int(generator.integers(0, n))
        big = stable_partition(field, rows)
        small = stable_partition(field, np.delete(rows, at, axis=0))
        change = sets_of_at_least(big.counts)[1:] - sets_of_at_least(small.counts)[1:]
        if not rows[at].any():
            assert not change.any()
            continue
        assert np.abs(change).sum() == 1 and change.max() == 1
        k = int(np.argmax(change)) + 1
        moved.add(k)
        mine, theirs = levels(big), levels(small)
        differing = {j for j in range(1, d + 1) if mine.get(j) != theirs.get(j)}
        assert differing <= {k, k - 1}
        assert all(max(big.counts[j], small.counts[j]) == 1 for j in differing)
    assert len(moved) >= 2


@pytest.mark.parametrize("field", [GF(3), GF(4)], ids=lambda f: f.name)
def test_one_vector_replaced_moves_two_counts(field):
    generator = np.random.default_rng(3)
    distances = set()
    for _ in range(50):
        d, n = 3, int(generator.integers(1, 10))
        rows = random_rows(generator, field, n, d)
        other = rows.copy()
        other[generator.integers(0, n)] = generator.integers(0, 3, size=d)
        one, two = (sets_of_at_least(stable_partition(field, each).counts)[1:] for each in (rows, other))
        distances.add(int(np.abs(one - two).sum()))
    assert max(distances) == 2


def test_a_rank_by_tolerance_breaks_the_sensitivity():
    """The broken twin of Algorithm 1: no matroid, so one vector moves several counts, and one of them down."""
    rows = np.array([[7, -7, 0], [-4, 8, -4], [7, 0, -7], [-6, -6, 6]])

    def by_tolerance(rows, tolerance=2.0):
        left, counts = list(range(len(rows))), np.zeros(4, dtype=int)
        while left:
            chosen: list[int] = []
            for i in left:
                together = rows[[*chosen, i]]
                if len(chosen) < 3 and np.linalg.svd(together, compute_uv=False)[-1] > tolerance:
                    chosen.append(i)
            left = [i for i in left if i not in chosen]
            counts[len(chosen)] += 1
        return sets_of_at_least(counts)[1:]

    def exactly(rows):
        return sets_of_at_least(stable_partition(QQ, rows).counts)[1:]

    assert np.abs(by_tolerance(rows) - by_tolerance(rows[1:])).sum() == 3
    assert np.abs(exactly(rows) - exactly(rows[1:])).sum() == 1


# ------------------------------------------------------------------ tails and thresholds
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_tails_are_those_of_the_noise(scale):
    values, mass = discrete_laplace(scale, 400)
    double = np.convolve(mass, mass)
    for k in (0, 1, 2, 5, 17):
        assert math.exp(log_tail_one(scale, k)) == pytest.approx(mass[values >= k].sum(), rel=1e-9)
        assert math.exp(log_tail_two(scale, k)) == pytest.approx(double[800 + k :].sum(), rel=1e-9)
        if k:
            assert log_tail_one(scale, k) <= log_tail_two(scale, k)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-6), (0.5, 1e-6), (2.0, 1e-9), (1e-3, 1e-5), (40.0, 1e-6), (1, 0.7)]
)
def test_thresholds_are_the_least_that_hold(epsilon, delta, neighbors):
    rule = thresholds(epsilon, delta, neighbors)
    assert log_loss(rule, neighbors) <= math.log(delta)
    if rule.gap > 2:
        assert log_loss(replace(rule, gap=rule.gap - 1, top=rule.gap - 1), neighbors) > math.log(delta)
    if rule.top > 2:
        assert log_loss(replace(rule, top=rule.top - 1), neighbors) > math.log(delta)


def test_thresholds_of_the_reference_case():
    rule = thresholds(1.0, 1e-6, "add-remove")
    assert (rule.gap, rule.top) == (17, 15)
    x = (rule.gap - 1) * 1.0  # the continuous rule theta = 1 + x / epsilon, (2 + x) exp(-x) / 2 <= delta, needs 17.01
    assert (2 + x) * math.exp(-x) / 2 > 1e-6 * 0.99
    # Group privacy would ask for (epsilon / 2, delta / (1 + e^(epsilon/2))).
    group = thresholds(0.5, 1e-6 / (1 + math.exp(0.5)), "add-remove")
    assert thresholds(1.0, 1e-6, "replace-one").gap <= group.gap


def test_union_bound_holds_and_is_not_idle():
    sums = [[(3.0, 1.0, 1), (1.0, 1.0, 4)], [(1.0, 2.0, 2)]]
    base = np.array([10.0, 12.0])
    t = union_bound(base, sums, 0.05)
    generator = np.random.default_rng(1)
    q1, q2 = -math.expm1(-1.0), -math.expm1(-0.5)
    draw = lambda q, size: generator.geometric(q, size) - generator.geometric(q, size)  # noqa: E731
    first = 10 + 3 * draw(q1, 200_000) + draw(q1, (4, 200_000)).sum(axis=0)
    second = 12 + draw(q2, (2, 200_000)).sum(axis=0)
    share = np.mean(first > t) + np.mean(second > t)
    assert 0.001 < share < 0.05


# ------------------------------------------------------------------ exact divergences
def release(rows, model, rule, reach):
    """Over all values of the noisy counts: (N (c, k), probability (c,), which levels pass, level -> basis)."""
    partition = stable_partition(model.field, rows)
    size = min(model.rank + 1, model.dimension)
    at_least = sets_of_at_least(partition.counts)[1 : size + 1]
    grid = np.array(list(itertools.product(range(-reach, reach + 1), repeat=size)))
    q = math.exp(-1 / rule.scale)
    mass = ((1 - q) / (1 + q) * q ** np.abs(grid - at_least)).prod(axis=1)
    return grid, mass, passing(grid, model, rule), partition


def divergences(rows, other, model, rule, epsilon, reach=12):
    """(delta of noisy counts with all subspaces that pass, delta of the algorithm's own output), both ways, largest."""
    _, p, pass_p, first = release(rows, model, rule, reach)
    _, q, _, second = release(other, model, rule, reach)
    one, two = levels(first), levels(second)
    differ = np.zeros(len(p), dtype=bool)
    for k in range(1, model.rank + 1):
        if one.get(k) != two.get(k):
            differ |= pass_p[:, k - 1]
    joint = 0.0
    for mine, theirs in ((p, q), (q, p)):
        excess = np.where(differ, mine, np.maximum(mine - math.exp(epsilon) * theirs, 0.0))
        joint = max(joint, float(excess.sum()))
    outputs: dict = {}
    codes = pass_p @ (1 << np.arange(model.rank))
    for code in np.unique(codes):
        order = [k for k in range(model.rank, 0, -1) if code >> (k - 1) & 1]
        members = codes == code
        for side, (partition, mass) in enumerate(((first, p), (second, q))):
            chosen = module._chosen(partition, order, model)
            basis = chosen[1] if chosen else no_subspace(model)
            outputs.setdefault(basis, [0.0, 0.0])[side] += mass[members].sum()
    table = np.array(list(outputs.values()))
    own = max(float(np.maximum(table[:, i] - math.exp(epsilon) * table[:, 1 - i], 0).sum()) for i in (0, 1))
    return joint, own


PAIRS = {
    "one direction appears": ([[1, 0, 0]], [[1, 0, 0], [0, 1, 0]]),
    "a first vector": (np.zeros((1, 3), dtype=int), [[1, 2, 0]]),
    "the last dimension": ([[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    "in a crowd": ([[1, 0, 0], [0, 1, 0]] * 3, [[1, 0, 0], [0, 1, 0]] * 3 + [[1, 1, 1]]),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("task", ["span", "equations"])
def test_the_release_is_private_exactly(name, rank, task):
    rows, other = (np.array(each) for each in PAIRS[name])
    epsilon, delta = 1.0, 0.02
    rule = thresholds(epsilon, delta, "add-remove")
    joint, own = divergences(rows, other, model_of(rows, rank=rank, task=task), rule, epsilon)
    assert own <= joint + 1e-9
    assert joint <= delta + 1e-6  # of the tails cut off


def test_random_neighbours_are_private_exactly():
    generator = np.random.default_rng(5)
    epsilon, delta = 1.5, 0.01
    rule = thresholds(epsilon, delta, "add-remove")
    worst = 0.0
    for field in (GF(2), GF(3)):
        for _ in range(12):
            rows = random_rows(generator, field, int(generator.integers(2, 6)), 3)
            other = np.delete(rows, generator.integers(0, len(rows)), axis=0)
            joint, own = divergences(rows, other, model_of(rows, field), rule, epsilon, 9)
            assert own <= joint + 1e-9
            assert joint <= delta + 1e-6
            worst = max(worst, joint)
    assert worst > delta / 10


@pytest.mark.parametrize("name", ["one direction appears", "the last dimension"])
def test_delta_is_nearly_attained(name):
    rows, other = (np.array(each) for each in PAIRS[name])
    rule = thresholds(1.0, 1e-3, "add-remove")
    last = name == "the last dimension"
    appears = log_tail_one(rule.scale, rule.top - 1) if last else log_tail_two(rule.scale, rule.gap - 1)
    goes = log_tail_two(rule.scale, rule.gap)
    joint, own = divergences(rows, other, model_of(rows), rule, 1.0, 22)
    stated = math.exp(appears) + math.exp(goes)
    assert stated <= math.exp(log_loss(rule, "add-remove")) <= 1e-3
    assert 0.98 * stated < joint <= stated
    assert own > 0.98 * math.exp(appears)


@pytest.mark.parametrize(
    "pair",
    [
        ([[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 0, 1]]),  # the same count, another subspace
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 0], [1, 0, 0]]),  # levels apart
        ([[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [2, 0, 0]]),  # neighbouring levels: two sets against none
        ([[1, 0, 0]], [[0, 1, 0]]),
    ],
)
def test_replaced_records_are_private_exactly(pair):
    rows, other = (np.array(each) for each in pair)
    epsilon, delta = 2.0, 0.02
    rule = thresholds(epsilon, delta, "replace-one")
    joint, own = divergences(rows, other, model_of(rows, neighbors="replace-one"), rule, epsilon)
    assert own <= joint + 1e-9
    assert joint <= delta + 1e-5


def test_random_replacements_are_private_exactly():
    generator = np.random.default_rng(6)
    epsilon, delta = 3.0, 0.02
    rule = thresholds(epsilon, delta, "replace-one")
    worst = 0.0
    for _ in range(20):
        rows = random_rows(generator, GF(3), int(generator.integers(2, 6)), 3)
        other = rows.copy()
        other[generator.integers(0, len(rows))] = generator.integers(0, 3, size=3)
        joint, own = divergences(rows, other, model_of(rows, GF(3), neighbors="replace-one"), rule, epsilon, 9)
        assert own <= joint + 1e-9
        assert joint <= delta + 1e-4
        worst = max(worst, joint)
    assert worst > delta / 20


def test_broken_twins_are_not_private():
    rows, other = (np.array(each) for each in PAIRS["one direction appears"])
    epsilon, delta = 1.0, 1e-3
    rule = thresholds(epsilon, delta, "add-remove")
    model = model_of(rows)
    assert divergences(rows, other, model, Thresholds(rule.scale, 2, 2), epsilon)[1] > 20 * delta  # threshold forgotten
    halved = Thresholds(rule.scale / 2, rule.gap, rule.top)
    assert divergences(rows, other, model, halved, epsilon)[0] > 0.1
    apart = [np.array(each) for each in ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 0], [1, 0, 0]])]
    assert divergences(*apart, model_of(apart[0]), rule, epsilon)[0] > 0.1  # replace-one without doubling


# ------------------------------------------------------------------ audit
def sampled_levels(at_least, counts, model, rule, seed, runs):
    """Level told in ``runs`` runs (0: {0}), by the functions of ``run``."""
    noisy = seeded(seed).discrete_laplace(np.broadcast_to(at_least, (runs, len(at_least))).copy(), rule.scale)
    mask = passing(noisy, model, rule)
    level = np.where(mask.any(axis=1), mask.shape[1] - np.argmax(mask[:, ::-1], axis=1), 0)
    exists = np.concatenate([[False], counts > 0])
    return np.where(exists[level], level, 0)


def audited(rule, runs=400_000):
    """Files with a little fewer sets of two vectors than the threshold asks for, 40 sets more of one."""
    model = model_of(np.zeros((1, 2), dtype=int))
    samples = []
    for pairs in (rule.top - 3, rule.top - 2):
        singles = 40 + rule.top - pairs
        counts = np.array([singles, pairs])
        samples.append(sampled_levels(np.array([singles + pairs, pairs]), counts, model, rule, pairs, runs))
    return epsilon_lower_bound(*samples, delta=1e-3)


def test_audit_of_the_level():
    rule = thresholds(1.0, 1e-3, "add-remove")
    assert 0.5 < audited(rule) <= 1.0  # tight enough to notice
    assert audited(Thresholds(rule.scale / 2, rule.gap, rule.top)) > 1.0


@pytest.mark.parametrize("twin", [False, True])
def test_audit_of_whole_runs_on_a_lonely_direction(monkeypatch, twin):
    """A vector outside everybody's plane: its span must not be told. The twin forgets the threshold."""
    crowd = np.array([[1, 0, 0], [0, 1, 0]] * 12)
    request = Request(1.0, 1e-3)
    if twin:
        monkeypatch.setattr(module, "thresholds", lambda *a: replace(thresholds(*a), gap=1, top=1))
    samples = []
    for seed, rows in enumerate((crowd, np.vstack([crowd, [[0, 0, 1]]]))):
        model, source = model_of(rows, GF(7)), seeded(seed)
        samples.append(np.array([STABLE_SPAN.run(model, request, source).answer.dimension for _ in range(250)]))
    shown = epsilon_lower_bound(*samples, delta=1e-3)
    assert (shown > 1.0) == twin


# ------------------------------------------------------------------ utility
@pytest.mark.parametrize(("neighbors", "full"), [("add-remove", True), ("add-remove", False), ("replace-one", True)])
def test_the_forecast_holds_on_the_worst_profile(neighbors, full):
    """Every level just fails on average, so the bound is put to the test; the false-alarm rate is 1e-7."""
    d, runs, beta = 5, 40_000, 0.05
    model = model_of(np.zeros((1, d if full else d + 2), dtype=int), neighbors=neighbors, rank=d)
    request = Request(1.0, 1e-6, beta)
    forecast = STABLE_SPAN.forecast(model, request)
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


def test_reference_figures():
    model = model_of(np.zeros((1, 10), dtype=int))
    forecast = STABLE_SPAN.forecast(model, Request(1.0, 1e-6))
    assert forecast.noise["threshold"] == 17
    assert forecast.error.missed < forecast.error.needed < 1_265
    assert forecast.proved and not forecast.vacuous
    few = STABLE_SPAN.forecast(model_of(np.zeros((1, 10), dtype=int), expected=500), Request(1.0, 1e-6))
    assert few.vacuous


def test_most_vectors_are_in_the_subspace_told():
    generator = np.random.default_rng(2)
    for field in (QQ, GF(2), GF(256)):
        top = 5 if field.order is None else field.order
        basis = generator.integers(0, top, size=(4, 8))
        rows = field.matmul(generator.integers(0, top, size=(800, 4)), basis)
        rows = field.exact_rows(rows)
        rows = np.vstack([rows, generator.integers(0, top, size=(6, 8)).astype(rows.dtype)])
        found = STABLE_SPAN.run(model_of(rows, field), Request(1.0, 1e-6), seeded(1))
        assert found.status == "found"
        assert found.answer == field.echelon(rows[:800])
        assert np.count_nonzero(~found.answer.contains(rows)) <= 6


# ------------------------------------------------------------------ what is told
def test_nothing_is_told_of_few_records_and_zero_vectors_count_for_nothing():
    rows = np.zeros((5_000, 3), dtype=int)
    rows[:4] = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    found = STABLE_SPAN.run(model_of(rows), Request(1.0, 1e-6), seeded(0))
    assert found.status == "nothing"
    assert found.answer.dimension == 0
    empty = STABLE_SPAN.run(model_of(np.zeros((0, 3), dtype=int)), Request(1.0, 1e-6), seeded(0))
    assert empty.status == "nothing"


def test_a_level_without_sets_gives_nothing():
    rows = np.array([[1, 0], [0, 1]] * 3)

    class Loud:
        def discrete_gaussian(self, values, scale):
            raise NotImplementedError

        def discrete_laplace(self, values, scale):
            return np.array([500, 100]) if scale else values

    model = model_of(np.hstack([rows, np.zeros((6, 1), dtype=int)]), rank=1)
    found = STABLE_SPAN.run(model, Request(1.0, 1e-6), Loud())
    assert found.status == "nothing"  # level 1 passes by noise, and all sets have two vectors


class Spy(SeededSource):
    """Keeps what it was asked for."""

    def __init__(self, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            super().__init__(seed)
        self.calls = []

    def discrete_laplace(self, values, scale):
        self.calls.append((np.asarray(values).tolist(), scale))
        return super().discrete_laplace(values, scale)


@pytest.mark.parametrize("task", ["span", "equations"])
def test_what_gets_noise_and_how_much(task):
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]] * 3)
    for neighbors, scale in (("add-remove", 2.0), ("replace-one", 4.0)):
        for rank, counted in ((3, [9, 6, 3]), (2, [9, 6, 3]), (1, [9, 6])):
            spy = Spy(0)
            STABLE_SPAN.run(model_of(rows, task=task, neighbors=neighbors, rank=rank), Request(0.5, 1e-3), spy)
            assert [values for values, _ in spy.calls] == [counted]
            assert [s for _, s in spy.calls] == pytest.approx([scale], rel=1e-12)
            assert spy.calls[0][1] >= scale


def test_more_dimensions_than_promised_cost_utility_only():
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]] * 200)
    found = STABLE_SPAN.run(model_of(rows, rank=2), Request(1.0, 1e-6), seeded(0))
    assert found.status == "nothing"


def test_corrupted_asks_for_a_small_subspace():
    generator = np.random.default_rng(0)
    rows = np.hstack([generator.integers(-3, 4, size=(2_000, 3)), np.zeros((2_000, 2), dtype=int)])
    wrong = generator.random(2_000) < 0.02
    rows[wrong, 3:] = generator.integers(1, 5, size=(wrong.sum(), 2))
    large = STABLE_SPAN.run(model_of(rows), Request(1.0, 1e-6), seeded(0))
    small = STABLE_SPAN.run(model_of(rows, corrupted=0.03), Request(1.0, 1e-6), seeded(0))
    assert large.answer.dimension == 5
    assert small.answer == QQ.echelon(rows[~wrong])
    assert small.missed >= wrong.sum() / 4
    forecast = STABLE_SPAN.forecast(model_of(rows, corrupted=0.03, expected=2_000, rank=3), Request(1.0, 1e-6))
    assert not forecast.proved and forecast.error.missed == 60


def test_equations_that_contradict_give_the_consistent_part():
    generator = np.random.default_rng(4)
    A = generator.integers(-5, 6, size=(1_500, 3))
    b = A @ np.array([1, 2, -1])
    wrong = generator.random(1_500) < 0.04
    b[wrong] += 1
    rows = np.hstack([A, -b[:, None]])
    found = STABLE_SPAN.run(model_of(rows, task="equations"), Request(1.0, 1e-6), seeded(0))
    assert found.answer == QQ.echelon(rows[~wrong])
    assert module.CONSISTENT_PART in found.notes
    all_wrong = np.tile([[0, 0, 0, 5]], (300, 1))
    found = STABLE_SPAN.run(model_of(all_wrong, task="equations"), Request(1.0, 1e-6), seeded(0))
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
def test_the_most_that_may_be_missed_is_seldom_exceeded(wrong):
    """100 runs at beta = .05; more than 18 misses have a probability below 1e-6 at that rate."""
    rng = np.random.default_rng(5)
    left = rng.integers(0, 7, (3000, 4))
    right = (left @ [1, 2, 3, 4]) % 7
    right[:wrong] = (right[:wrong] + 1) % 7
    model = model_of(np.column_stack([left, -right % 7]), GF(7), task="equations")
    exceeded = 0
    for seed in range(100):
        found = STABLE_SPAN.run(model, Request(1.0, 1e-6), seeded(seed))
        missed = int((~found.answer.contains(model.field.exact_rows(model.read_rows()))).sum())
        exceeded += missed > found.missed
    assert exceeded <= 18


def test_pure_privacy_is_refused_with_the_reason():
    verdict = STABLE_SPAN.eligible(model_of(np.zeros((1, 2), dtype=int)), Request(1.0, 0.0))
    assert not verdict.eligible and "delta" in verdict.reason
    assert not STABLE_SPAN.eligible(model_of(np.zeros((1, 2), dtype=int)), Request(1e-14, 1e-6)).eligible
    assert not STABLE_SPAN.eligible("vectors", Request(1.0, 1e-6)).eligible


def test_private_noise_runs():
    from dpmodel.privacy import noise_source

    rows = np.array([[1, 0], [0, 1]] * 300)
    assert STABLE_SPAN.run(model_of(rows), Request(1.0, 1e-6), noise_source(None)).answer.dimension == 2
