"""The stable partition is Algorithm 1 of KMMST24, and it is stable (Proposition 2)."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from dpmodel.exact import partition as module
from dpmodel.exact.fields import GF, QQ
from dpmodel.exact.partition import largest_modulus, primes_below, reduce, stable_partition

FIELDS = [QQ, GF(2), GF(7), GF(4), GF(9), GF(256), GF(2**31 - 1)]


def exactly(field, rows):
    return len(field.rref(rows)[1]) == len(rows)


def by_tolerance(field, rows):
    """Broken: independence is decided in floating point."""
    return len(rows) == 1 or np.linalg.matrix_rank(rows.astype(float), tol=1.5) == len(rows)


def as_they_come(rows):
    return range(len(rows))


def from_the_mean(rows):
    """Broken: sets take the rows farthest from the mean of those left, an order that depends on all the data."""
    total = rows.sum(axis=0)
    return sorted(range(len(rows)), key=lambda i: (-int(abs(rows[i] * len(rows) - total).sum()), i))


def peeled(field, rows, independent=exactly, order=as_they_come):
    """Algorithm 1, literally: lists of row numbers."""
    left = [i for i in range(len(rows)) if (rows[i] != 0).any()]
    sets = []
    while left:
        taken = []
        for at in order(rows[left]):
            if independent(field, rows[[*taken, left[at]]]):
                taken.append(left[at])
        sets.append(taken)
        left = [i for i in left if i not in taken]
    return sets


def agrees(field, rows):
    """The fast partition has the counts and the spans of the literal one."""
    partition, sets = stable_partition(field, rows), peeled(field, rows)
    d = rows.shape[1]
    assert partition.counts.dtype == np.int64
    assert partition.counts.tolist() == np.bincount([len(s) for s in sets], minlength=d + 1).tolist()
    assert len(partition.flag) == (len(sets[0]) if sets else 0)
    for chosen in sets:
        assert partition.basis(len(chosen)) == field.echelon(rows[chosen])
    return partition


def vectors(field, rng, n, d):
    """Random rows with duplicates, zero rows, low rank and few values, in turn."""
    top = min(field.order or 7, int(rng.choice([2, 3, 2**30])))
    rows = rng.integers(0, top, (n, d))
    if field.order is None and rng.random() < 0.5:
        rows = rows - 3
    if rng.random() < 0.4 and n:
        rows = rows[rng.integers(0, n, n)]
    if rng.random() < 0.3 and d > 1:
        rows[:, rng.integers(1, d) :] = 0
    rows[rng.random(n) < 0.1] = 0
    return field.exact_rows(rows)


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_same_sets_as_the_literal_algorithm(field):
    rng = np.random.default_rng(1)
    for _ in range(25):
        agrees(field, vectors(field, rng, int(rng.integers(0, 18)), int(rng.integers(1, 6))))


def test_big_numbers():
    rng = np.random.default_rng(3)
    wide = rng.integers(-9, 10, (30, 2)).astype(object) @ (rng.integers(1, 9, (2, 5)).astype(object) * 10**40)
    wide[::3] = rng.integers(-9, 10, (10, 5)).astype(object) * 10**25 + 1
    agrees(QQ, QQ.exact_rows(wide))
    agrees(QQ, np.array([[2**63, 1], [2**64, 2], [1, 0], [2**63 - 1, 1]], dtype=object))


def test_rows_that_fool_one_prime():
    # Modulo p the later rows are dependent, over QQ they are not.
    for p in primes_below(largest_modulus(3))[:2]:
        agrees(QQ, np.array([[1, 0, 0], [1, p, 0], [1, 0, p], [1, p, p], [1, 0, 0], [1, 2 * p, 0]]))
        agrees(QQ, np.array([[1, 1, 0], [p, 0, 0], [p, p, 0], [p + 1, 1, p], [1, 1 - p, 0], [0, 0, p * p]]))


@pytest.mark.parametrize("primes", [[2, 3, 5, 7, 11, 13, 17, 19, 23], [2, 2], list(range(0))])
def test_unlucky_primes_change_nothing(monkeypatch, primes):
    """Tiny primes fail nearly always; dropped lanes, new primes and the slow path all give the same sets."""
    slow = []
    pool = (*primes, *primes_below(1000)) if len(primes) > 2 else tuple(primes)
    by_spans = module._by_spans
    monkeypatch.setattr(module, "primes_below", lambda limit: pool)
    monkeypatch.setattr(module, "_by_spans", lambda *a: slow.append(1) or by_spans(*a))
    rng = np.random.default_rng(4)
    for _ in range(25):
        agrees(QQ, vectors(QQ, rng, int(rng.integers(1, 16)), int(rng.integers(1, 5))))
    assert bool(slow) == (len(primes) <= 2)


def test_a_wrong_bound_would_be_noticed(monkeypatch):
    """Without the second, certain pass the rows that fool one prime get a wrong partition."""
    p = int(primes_below(largest_modulus(2))[0])
    rows = np.array([[1, 0], [1, 0], [1, p]])
    assert stable_partition(QQ, rows).counts.tolist() == [0, 1, 1]
    once = module._Run(module.PrimeLanes(np.array([p])), 2, trusted=0)
    assert once.feed(rows)
    assert once.counts == [0, 3, 0]
    assert once.deepest == 1


def stable(field, rows, dropped, partition=stable_partition):
    """Proposition 2 for one record more or less."""
    more, less = partition(field, rows), partition(field, np.delete(rows, dropped, axis=0))
    sensitivity = more.counts - less.counts
    at_least = np.cumsum(more.counts[::-1]) - np.cumsum(less.counts[::-1])
    size = int((rows[dropped] != 0).any())
    moved = np.flatnonzero(sensitivity[1:])
    return (
        int(np.abs(at_least[:-1]).sum()) == size
        and (at_least >= 0).all()
        and np.abs(sensitivity).max(initial=0) <= 1
        and np.abs(sensitivity).sum() <= 2
        and (len(moved) < 2 or moved[1] == moved[0] + 1)
        and all(more.basis(k) == less.basis(k) for k in np.flatnonzero((more.counts > 0) & (less.counts > 0)).tolist())
    )


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_one_record_changes_one_step(field):
    rng = np.random.default_rng(5)
    for _ in range(15):
        rows = vectors(field, rng, int(rng.integers(1, 25)), int(rng.integers(1, 7)))
        assert stable(field, rows, int(rng.integers(len(rows))))


def test_spans_are_nested():
    rng = np.random.default_rng(6)
    for field in FIELDS:
        rows = vectors(field, rng, 40, 6)
        rows[::2, 3:] = 0
        partition = stable_partition(field, rows)
        present = np.flatnonzero(partition.counts).tolist()
        for low, high in pairwise(present):
            assert partition.basis(high).contains(partition.flag[:low]).all()


@pytest.mark.parametrize("broken", [{"independent": by_tolerance}, {"order": from_the_mean}], ids=["rank", "order"])
def test_the_test_of_stability_catches_broken_rules(broken):
    def partition(field, rows):
        sets = peeled(field, rows, **broken)
        bases = {len(chosen): field.echelon(rows[chosen]) for chosen in sets}
        counts = np.bincount([len(chosen) for chosen in sets], minlength=rows.shape[1] + 1)
        return SimpleNamespace(counts=counts, basis=bases.get)

    rng = np.random.default_rng(7)
    pairs = [(rng.integers(0, 2, (10, 4)), int(rng.integers(10))) for _ in range(40)]
    assert sum(not stable(QQ, rows, dropped, partition) for rows, dropped in pairs) > 3
    assert all(stable(QQ, rows, dropped) for rows, dropped in pairs[:20])


def test_remainders_are_exact_up_to_the_limit():
    rng = np.random.default_rng(0)
    for p in (2, 3, 4_194_301, 8_388_593):
        near = rng.integers(0, 2**50 // p, 4000) * p
        for shift in (-1, 0, 1):
            for sign in (1, -1):
                x = sign * np.clip(near + shift, 0, 2**50)
                got = reduce(x.astype(np.float64), float(p), 1.0 / p)
                assert (got == x % p).all()
