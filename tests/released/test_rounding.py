"""Rounding keeps sums, stays within one of every entry, and keeps means."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from released.admm_cases import margin

from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.rounding import round_form, round_total

SEEDS = 60  # the mean of so many draws is within 0.41 at the stated alarm; the many-draws tests are finer


def _within_one(x: np.ndarray, y: np.ndarray) -> bool:
    """y is the floor or ceiling of x, up to rounding of x."""
    near = np.abs(x - np.rint(x)) < 1e-7
    low, high = np.where(near, np.rint(x), np.floor(x)), np.where(near, np.rint(x), np.ceil(x))
    return bool(((y == low) | (y == high)).all())


def _mixed_table(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A table with whole one-way sums: moves around rectangles leave them alone."""
    x = rng.integers(0, 5, shape).astype(float)
    for _ in range(12):
        i, j = rng.choice(shape[0], 2, replace=False), rng.choice(shape[1], 2, replace=False)
        x[i, j] += (d := rng.random())
        x[i, j[::-1]] -= d
    return x


def _form(x: np.ndarray, margins) -> LikelihoodForm:
    """Sums over the margins held where all are whole, else between floor and ceiling; signs are kept."""
    rows = sp.csr_array(sp.vstack([sp.csr_array((0, x.size)), *(margin(x.shape, m) for m in margins)]))
    sums, signs = rows @ x.ravel(), np.where(x.ravel() >= 0, 0.0, -np.inf)
    if (np.abs(sums - np.rint(sums)) < 1e-7).all():
        return LikelihoodForm.of(sp.eye_array(x.size), 0, equality=rows, equality_value=np.rint(sums), lower=signs)
    both = np.concatenate([np.ceil(sums - 1e-7), -np.floor(sums + 1e-7)])
    return LikelihoodForm.of(
        sp.eye_array(x.size), 0, inequality=sp.vstack([rows, -rows]), inequality_value=both, lower=signs
    )


def _rounded(x: np.ndarray, margins, **options) -> np.ndarray:
    return round_form(_form(x, margins), x, **options).reshape(x.shape)


def _assert_unbiased(x: np.ndarray, draws: list[np.ndarray], alarm: float = 1e-7) -> None:
    """Hoeffding: draws lie in an interval of length one, so the mean of k is off by t with probability at most
    2 exp(-2 k t^2); a union over entries. False alarm at most ``alarm``."""
    k = len(draws)
    allowed = math.sqrt(math.log(2 * x.size / alarm) / (2 * k))
    assert np.abs(np.mean(draws, axis=0) - x).max() < allowed


@pytest.mark.parametrize("margins", [[()], [(1,)], [(0,), (1,), ()]], ids=str)
def test_unbiased_tables_keep_margins_and_means(margins):
    rng = np.random.default_rng(3)
    x = _mixed_table(rng, (4, 5)) + rng.normal(size=(4, 5)) * 1e-10  # what a solver leaves
    form = _form(x, margins)
    draws = [round_form(form, x, seed=s) for s in range(SEEDS)]
    assert all(_within_one(x.ravel(), y) and form.violation(y) < 1e-9 for y in draws)
    _assert_unbiased(x.ravel(), draws)


def test_unbiased_totals():
    x = np.random.default_rng(3).normal(size=20) * 3
    draws = [round_total(x, seed=s) for s in range(SEEDS)]
    assert all(_within_one(x, y) and _within_one(x.sum(), y.sum()) for y in draws)
    _assert_unbiased(x, draws)


def test_the_unbiasedness_check_can_fail():
    x = np.full((4, 5), 0.45)
    with pytest.raises(AssertionError):
        _assert_unbiased(x, [np.zeros((4, 5))] * SEEDS)


def test_a_ring_of_entries_with_what_a_solver_leaves():
    """One cycle through all rows and columns: the corrections travel along a path of 80 entries."""
    rng = np.random.default_rng(1)
    n = 40
    x = np.zeros((n, n))
    x[np.arange(n), np.arange(n)] = 0.3
    x[np.arange(n), (np.arange(n) + 1) % n] = 0.7
    x[x > 0] += rng.uniform(-1e-9, 1e-9, 2 * n)
    form = _form(x, [(0,), (1,)])
    for s in range(20):
        y = round_form(form, x, seed=s).reshape(n, n)
        assert (y.sum(0) == 1).all() and (y.sum(1) == 1).all() and (y[x == 0] == 0).all()
    wrong = x.copy()
    wrong[0, 0] += 0.1
    wrong[1, 1] -= 0.1
    with pytest.raises(SpecificationError, match="floors and ceilings"):
        round_form(form, wrong)


def test_seeds_repeat_and_differ():
    x = np.full(50, 0.5)
    assert (round_total(x, seed=1) == round_total(x, seed=1)).all()
    assert (round_total(x, seed=1) != round_total(x, seed=2)).any()
    assert round_total(x, seed=1).sum() == 25


def test_largest_remainders():
    assert round_total(np.array([0.7, 0.6, 0.5, 2.2]), how="controlled").tolist() == [1, 1, 0, 2]
    rng = np.random.default_rng(1)
    for _ in range(20):
        x = rng.random(15) * 4 - 1
        x[-1] += np.rint(x.sum()) - x.sum()
        y = round_total(x, how="controlled")
        form = LikelihoodForm.of(sp.eye_array(15), 0, equality=np.ones((1, 15)), equality_value=np.rint(x.sum()))
        best = round_form(form, x, how="controlled")
        assert y.sum() == pytest.approx(x.sum())
        assert np.abs(y - x).sum() == pytest.approx(np.abs(best - x).sum(), abs=1e-9)


@pytest.mark.parametrize("shape,margins", [((4, 5), [(0,), (1,)]), ((3, 3, 3), list(combinations(range(3), 2)))])
def test_controlled_keeps_all_margins_and_is_no_further_than_unbiased(shape, margins):
    rng = np.random.default_rng(2)
    for _ in range(3):
        x = _mixed_table(rng, shape)
        y = _rounded(x, margins, how="controlled")
        assert (y == np.rint(y)).all()
        for m in margins:
            out = tuple(a for a in range(len(shape)) if a not in m)
            assert _within_one(x.sum(axis=out), y.sum(axis=out))
        if len(margins) == 2:
            others = [np.abs(_rounded(x, margins, seed=s) - x).sum() for s in range(4)]
            assert np.abs(y - x).sum() <= min(others) + 1e-9


def test_forms_unbiased():
    rng = np.random.default_rng(4)
    n = 12
    x = np.sort(rng.random(n) * 4)
    chain = sp.diags_array([np.ones(n - 1), -np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
    simplex = rng.dirichlet(np.ones(n)) * 7
    cases = [
        (LikelihoodForm.of(sp.eye_array(n), 0, inequality=chain, lower=0, upper=4), x),
        (LikelihoodForm.of(sp.eye_array(n), 0, equality=2 * np.ones((1, n)), equality_value=14, lower=0), simplex),
        (LikelihoodForm.of(sp.eye_array(n), 0, inequality=np.ones((1, n)), inequality_value=7, lower=0), simplex),
        (LikelihoodForm.of(sp.eye_array(n), 0, inequality=-np.ones((1, n)), inequality_value=-7), simplex),
    ]
    for form, point in cases:
        draws = [round_form(form, point, seed=s) for s in range(SEEDS)]
        assert all(_within_one(point, y) and form.violation(y) < 1e-9 for y in draws)
        _assert_unbiased(point, draws)


def test_forms_without_an_unbiased_way_say_so():
    eye = sp.eye_array(3)
    x = np.full(3, 0.5)
    for form in (
        LikelihoodForm.of(eye, 0, upper=0.7),
        LikelihoodForm.of(eye, 0, equality=[[1, 1, 1]], equality_value=1.5),
        LikelihoodForm.of(eye, 0, equality=[[1, 2, 1]], equality_value=2),
        LikelihoodForm.of(eye, 0, equality=[[1, 1, 0], [0, 1, 1], [1, 0, 1]], equality_value=1),
        LikelihoodForm.of(eye, 0, integer=[True, False, False]),
    ):
        with pytest.raises(SpecificationError, match=r"floors and ceilings|unbiased"):
            round_form(form, x)


def test_forms_controlled_against_all_whole_points():
    rng = np.random.default_rng(6)
    grid = np.array(np.meshgrid(*[np.arange(-1, 4)] * 4)).reshape(4, -1).T
    found = 0
    for _ in range(15):
        a = rng.integers(-1, 3, (2, 4)).astype(float)
        inner = rng.random(4) * 3
        b = np.rint(a[0] @ inner)
        form = LikelihoodForm.of(
            sp.eye_array(4),
            0,
            equality=a[:1],
            equality_value=b,
            inequality=a[1:],
            inequality_value=a[1] @ inner + 1,
            lower=-1,
            upper=3,
        )
        feasible = grid[[form.violation(p.astype(float)) < 1e-9 for p in grid]]
        if not feasible.size:
            with pytest.raises(InfeasibleError):
                round_form(form, inner, how="controlled")
            continue
        y = round_form(form, inner, how="controlled")
        assert form.violation(y) < 1e-9 and (y == np.rint(y)).all()
        # Lower bounds and ceilings come first; where some will do, the answer is the best of these.
        close = feasible[(np.abs(feasible - inner) < 1).all(axis=1)]
        best = np.abs((close if close.size else feasible) - inner).sum(axis=1).min()
        assert np.abs(y - inner).sum() == pytest.approx(best, abs=1e-6)
        found += 1
    assert found > 6


def test_controlled_refuses_what_no_whole_point_meets():
    form = LikelihoodForm.of(sp.eye_array(2), 0, equality=[[2, 2]], equality_value=3)
    with pytest.raises(InfeasibleError, match=r"integer|whole"):
        round_form(form, np.array([0.75, 0.75]), how="controlled")
    narrow = LikelihoodForm.of(sp.eye_array(1), 0, lower=0.2, upper=0.8)
    with pytest.raises(InfeasibleError, match=r"integer|whole"):
        round_form(narrow, np.array([0.5]), how="controlled")


def test_some_entries_stay_fractional():
    form = LikelihoodForm.of(sp.eye_array(2), 0, equality=[[1, 1]], equality_value=3.5, integer=[True, False])
    y = round_form(form, np.array([1.2, 2.3]), how="controlled")
    np.testing.assert_allclose(y, [1, 2.5])


@pytest.mark.parametrize(
    "call",
    [
        lambda: round_form(LikelihoodForm.of(sp.eye_array(1), 0), [0.5], how="up"),
        lambda: round_form(LikelihoodForm.of(sp.eye_array(1), 0), [np.nan]),
        lambda: round_form(LikelihoodForm.of(sp.eye_array(2), 0), [1.0]),
    ],
)
def test_bad_input(call):
    with pytest.raises(SpecificationError):
        call()
