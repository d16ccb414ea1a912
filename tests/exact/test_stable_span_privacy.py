"""The stable span: exact divergences, broken twins (how stable the partition is: test_partition.py)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from spans import discrete_laplace, model_of, random_rows

from dpmodel.exact import stable_span as module
from dpmodel.exact.fields import GF
from dpmodel.exact.partition import Partition, stable_partition
from dpmodel.exact.stable_span import (
    Thresholds,
    log_loss,
    log_tail_one,
    log_tail_two,
    no_subspace,
    passing,
    sets_of_at_least,
    thresholds,
    union_bound,
)


def levels(partition: Partition):
    """Basis of every dimension that has a set."""
    return {k: partition.basis(k) for k in range(1, len(partition.counts)) if partition.counts[k]}


# ------------------------------------------------------------------ sensitivity
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
    "in a populations": ([[1, 0, 0], [0, 1, 0]] * 3, [[1, 0, 0], [0, 1, 0]] * 3 + [[1, 1, 1]]),
}


REPLACED = {
    "the same count, another subspace": ([[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 0, 1]]),
    "levels apart": ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 0], [1, 0, 0]]),
    "neighbouring levels: two sets against none": ([[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [2, 0, 0]]),
    "another direction": ([[1, 0, 0]], [[0, 1, 0]]),
}


@pytest.mark.parametrize("name", [*PAIRS, *REPLACED])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("task", ["span", "equations"])
def test_the_release_is_private_exactly(name, rank, task):
    neighbors, epsilon = ("add-remove", 1.0) if name in PAIRS else ("replace-one", 2.0)
    rows, other = (np.array(each) for each in (PAIRS | REPLACED)[name])
    rule = thresholds(epsilon, 0.02, neighbors)
    model = model_of(rows, rank=rank, task=task, neighbors=neighbors)
    joint, own = divergences(rows, other, model, rule, epsilon)
    assert own <= joint + 1e-9
    assert joint <= 0.02 + 1e-5  # of the tails cut off


@pytest.mark.parametrize(("neighbors", "epsilon", "delta"), [("add-remove", 1.5, 0.01), ("replace-one", 3.0, 0.02)])
def test_random_neighbours_are_private_exactly(neighbors, epsilon, delta):
    generator, worst = np.random.default_rng(5), 0.0
    rule = thresholds(epsilon, delta, neighbors)
    for field in [GF(2), GF(3)] * 10:
        rows = random_rows(generator, field, int(generator.integers(2, 6)), 3)
        at = int(generator.integers(0, len(rows)))
        other = np.delete(rows, at, axis=0)
        if neighbors == "replace-one":
            other = np.insert(other, at, generator.integers(0, field.order, size=3), axis=0)
        joint, own = divergences(rows, other, model_of(rows, field, neighbors=neighbors), rule, epsilon, 9)
        assert own <= joint + 1e-9
        assert joint <= delta + 1e-4
        worst = max(worst, joint)
    assert worst > delta / 20


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


def test_broken_twins_are_not_private():
    rows, other = (np.array(each) for each in PAIRS["one direction appears"])
    epsilon, delta = 1.0, 1e-3
    rule = thresholds(epsilon, delta, "add-remove")
    model = model_of(rows)
    assert divergences(rows, other, model, Thresholds(rule.scale, 2, 2), epsilon)[1] > 20 * delta  # threshold forgotten
    halved = Thresholds(rule.scale / 2, rule.gap, rule.top)
    assert divergences(rows, other, model, halved, epsilon)[0] > 0.1
    apart = [np.array(each) for each in REPLACED["levels apart"]]
    assert divergences(*apart, model_of(apart[0]), rule, epsilon)[0] > 0.1  # replace-one without doubling
