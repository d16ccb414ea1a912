"""Whole node values on trees: consistent, within one of the truth, and right in the mean."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dpmodel.errors import SpecificationError
from dpmodel.released.rounding import round_tree
from dpmodel.released.trees import Tree

HOWS = ("unbiased", "nearest", "controlled")


@st.composite
def consistent(draw):
    """A tree and consistent values: thirds, halves, integers, tiny and large ones."""
    size = draw(st.integers(1, 25))
    parents = [-1] + [draw(st.integers(-1, i - 1)) for i in range(1, size)]
    tree = Tree.of_parents(parents).tree
    one = st.one_of(
        st.floats(-5, 5),
        st.integers(-3, 3).map(float),
        st.integers(-9, 9).map(lambda k: k / 3),
        st.sampled_from([1e-12, 0.5, 1 - 1e-12, 1e9 + 0.25, 1e-6]),
    )
    return tree, tree.sums(np.array([draw(one) for _ in range(tree.leaves.size)]))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(consistent(), st.sampled_from(HOWS), st.integers(0, 5))
def test_results_are_consistent_whole_and_within_one(case, how, seed):
    tree, x = case
    found = round_tree(tree, x, how, seed)
    np.testing.assert_array_equal(found, np.rint(found))
    np.testing.assert_array_equal(tree.consistency @ found, 0)
    assert (np.abs(found - x) < 1 + 1e-8 * np.abs(x)).all()
    whole = np.abs(x - np.rint(x)) <= 1e-12 * np.maximum(1, np.abs(x))
    np.testing.assert_array_equal(found[whole], np.rint(x)[whole])
    np.testing.assert_array_equal(round_tree(tree, found, how, seed), found)  # What is whole stays.


def test_known_totals_and_zeros_are_kept_under_rounding_errors():
    rng = np.random.default_rng(0)
    tree = Tree.of_parents(np.concatenate([[-1], np.zeros(7), 1 + np.arange(77) // 11, 8 + np.arange(1001) // 13])).tree
    leaves = rng.exponential(size=tree.leaves.size) * (rng.random(tree.leaves.size) < 0.5)
    x = tree.sums(leaves)
    states = x[1:8]
    goal = np.rint(states + 1)  # Every state's total is whole, up to the rounding of a projection.
    scale = (goal / states)[np.repeat(np.arange(7), 11 * 13)]
    x = tree.sums(leaves * scale)
    x += rng.normal(size=x.size) * 1e-12
    x[tree.leaves[leaves == 0]] = 0
    for how in HOWS:
        for seed in range(5):
            found = round_tree(tree, x, how, seed)
            np.testing.assert_array_equal(found[1:8], goal)
            assert (found[tree.leaves][leaves == 0] == 0).all() and (found >= 0).all()


def test_the_mean_is_the_value():
    """Hoeffding: the mean of s results, each within an interval of length 1, is off by more than t with probability
    at most 2 exp(-2 s t^2); over all nodes the false alarm here is below 1e-7."""
    rng = np.random.default_rng(1)
    up = np.array([-1, -1, *(rng.integers(0, i) for i in range(2, 40))])
    tree = Tree.of_parents(up).tree
    x = tree.sums(np.round(rng.normal(size=tree.leaves.size) * 2, 2))
    runs = 800
    mean = np.mean([round_tree(tree, x, "unbiased", seed) for seed in range(runs)], axis=0)
    t = np.sqrt(np.log(2 * tree.size / 1e-7) / (2 * runs))
    assert np.abs(mean - x).max() < t < 0.12
    # And the test can fail: the nearest integers are further off.
    assert np.abs(round_tree(tree, x, "nearest") - x).max() > 0.3


def test_nearest_is_the_largest_remainder():
    tree = Tree.complete(4, 4)
    np.testing.assert_array_equal(
        round_tree(tree, tree.sums(np.array([1.2, 0.7, 0.6, 0.9])), "nearest"), [3, 1, 1, 0, 1]
    )
    np.testing.assert_array_equal(round_tree(tree, tree.sums(np.full(4, 0.25)), "nearest"), [1, 1, 0, 0, 0])


def test_controlled_keeps_runs_of_siblings_within_one():
    rng = np.random.default_rng(2)
    tree = Tree.complete(300, 300)
    x = tree.sums(rng.exponential(size=300))
    off = {how: np.cumsum(round_tree(tree, x, how)[1:] - x[1:]) for how in HOWS}
    assert np.abs(off["controlled"]).max() < 1 and np.abs(off["unbiased"]).max() < 1
    assert np.abs(off["nearest"]).max() > 1


@pytest.mark.parametrize("how", HOWS)
def test_tiny_fractions_that_add_up_are_not_lost(how):
    tree = Tree.complete(1000, 1000)
    x = tree.sums(np.full(1000, 0.003))
    assert round_tree(tree, x, how)[0] == 3
    x = tree.sums(np.full(1000, 1e-10))
    x[0] = 0.0
    np.testing.assert_array_equal(round_tree(tree, x, how), 0)
    x = 1.0 - tree.sums(np.full(1000, 1e-10))
    x[0] = 1000.0
    np.testing.assert_array_equal(round_tree(tree, x, how)[1:], 1)


def test_totals_that_differ_by_rounding_still_hold():
    """Children that look whole although their parent is off by one of their tolerances together."""
    tree = Tree.complete(10, 10)
    x = np.concatenate([[1e10 + 1.0], np.full(10, 1e9)])
    for how in HOWS:
        found = round_tree(tree, x, how)
        assert found[0] == found[1:].sum() == 1e10 + 1 and np.abs(found - x).max() <= 1
        found = round_tree(tree, x - np.concatenate([[2.0], np.zeros(10)]), how)
        assert found[0] == found[1:].sum() == 1e10 - 1 and np.abs(found[1:] - 1e9).max() <= 1


def test_bad_input_is_refused():
    tree = Tree.complete(4)
    good = tree.sums(np.arange(4.0))
    with pytest.raises(SpecificationError, match="not known"):
        round_tree(tree, good, "up")  # type: ignore[arg-type]
    with pytest.raises(SpecificationError, match="finite"):
        round_tree(tree, good[1:])
    with pytest.raises(SpecificationError, match="finite"):
        round_tree(tree, good * np.nan)
    with pytest.raises(SpecificationError, match="not consistent"):
        round_tree(tree, good + np.eye(7)[0])
