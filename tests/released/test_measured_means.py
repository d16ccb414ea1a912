"""Means that were measured, against what two lines of NumPy give for the same epsilon."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.marks import vault
from dpmodel.marks.dataset.aggregates import Means
from dpmodel.marks.records import Neighbors

GROUPS = 1_500
LOW, HIGH = 0.0, 100.0


def ages(rng: np.random.Generator, size: int, level: float, groups: int = GROUPS) -> np.ndarray:
    """(groups, size), each group around a level of its own."""
    return np.clip(np.floor(rng.normal(level + rng.normal(0, 5, (groups, 1)), 15, (groups, size))), LOW, HIGH)


def by_groups(values: np.ndarray, neighbors: str) -> dpm.Dataset:
    groups, size = values.shape
    frame = pl.DataFrame({"age": values.ravel(), "group": np.repeat(np.arange(groups), size)})
    return dpm.Dataset(frame, bounds={"age": (LOW, HIGH)}, domain={"group": groups}, neighbors=neighbors)  # type: ignore[arg-type]


def two_lines(values: np.ndarray, epsilon: float, moved: int, middle: float, rng: np.random.Generator) -> np.ndarray:
    """A noisy sum around ``middle`` over a noisy count, half of epsilon each, within the bounds."""
    groups, size = values.shape
    largest = max(HIGH - middle, middle - LOW)
    total = (values - middle).sum(axis=1) + rng.laplace(0, 2 * moved * largest / epsilon, groups)
    count = size + rng.laplace(0, 2 * moved / epsilon, groups)
    return np.clip(middle + total / np.maximum(count, 1), LOW, HIGH)


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("size", "epsilon", "level"), [(20, 1, 42), (20, 0.1, 42), (20, 1, 90), (100, 0.5, 15)])
def test_never_worse_than_two_lines(size: int, epsilon: float, level: float, neighbors: str) -> None:
    """1,500 groups, seed 0. Expected are ratios of .66 to .9, with a standard deviation of .03: a ratio of 1.05 is five
    of them away from the largest. ``test_large_groups`` has the others."""
    rng = np.random.default_rng(0)
    values = ages(rng, size, level)
    truth = values.mean(axis=1)
    means = dpm.measure(by_groups(values, neighbors).mean("age", by="group"), epsilon, rng=0)
    error = np.abs(means.value - truth).mean()
    moved = 2 if neighbors == "replace-one" else 1
    for middle in (50.0, 0.0):
        theirs = two_lines(values, epsilon, moved, middle, rng)
        assert error <= 1.05 * np.abs(theirs - truth).mean()


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_error_that_is_stated_is_that_of_simulations(delta: float) -> None:
    """Root mean square of 1,500 errors: a standard deviation of .03 of it; .15 are five."""
    values = ages(np.random.default_rng(2), 200, 30)
    means = dpm.measure(by_groups(values, "add-remove").mean("age", by="group"), 1, delta, rng=3)
    seen = np.sqrt(np.mean((means.value - values.mean(axis=1)) ** 2))
    assert seen == pytest.approx(np.sqrt(np.mean(means.standard_deviation**2)), rel=0.15)
    assert np.abs(means.count - 200).mean() < 10


def test_little_noise_gives_the_means_and_little_data_the_middle() -> None:
    frame = pl.DataFrame({"age": [10, 30, 99, 130], "town": ["a", "a", "b", "b"], "sex": ["f", "f", "m", "f"]})
    domain = {"town": ["a", "b", "c"], "sex": ["f", "m"]}
    people = dpm.Dataset(frame, bounds={"age": (0, 100)}, domain=domain)
    means = dpm.measure(people.mean("age", by=["town", "sex"]), 1e7, rng=0)
    np.testing.assert_allclose(means.value[[0, 1, 1], [0, 0, 1]], [20, 100, 99], atol=1e-3)
    assert ((means.value >= 0) & (means.value <= 100)).all() and (np.asarray(means) == means.value).all()
    table = means.to_frame(backend="polars")
    assert table.columns == ["town", "sex", "value", "standard_deviation", "count"] and table["town"][2] == "b"
    far = dpm.measure(people.mean("age", by="town"), 1e-3, rng=0)
    assert far.ends.epsilon == 1e-3 and "town" in str(far) and "epsilon" in str(far)
    assert far.standard_deviation.min() > 10


def test_means_are_charged_once_and_are_no_expression() -> None:
    people = by_groups(ages(np.random.default_rng(4), 20, 42, 3), "replace-one")
    budget, means = dpm.Budget(1), people.mean("age", by="group")
    assert isinstance(means, Means) and vault.unseal(means.ends).size == 6
    dpm.measure(means, 0.25, budget=budget)
    assert budget.spent.epsilon == pytest.approx(0.25)
    for use in (lambda: cp.Variable(3) >= means, lambda: cp.sum(means)):
        with pytest.raises(SpecificationError, match="measure"):
            use()


def test_all_rows_together_are_a_number_where_their_number_is_public() -> None:
    frame = pl.DataFrame({"age": [10.0, 30.0, 50.0]})
    public = dpm.Dataset(frame, bounds={"age": (0, 100)}).mean("age")
    assert isinstance(public, dpm.Private) and public.linf == pytest.approx(100 / 3)
    for settings in ({"neighbors": "add-remove"}, {"outside": "drop"}):
        assert isinstance(dpm.Dataset(frame, bounds={"age": (0, 100)}, **settings).mean("age"), Means)


@pytest.mark.parametrize("distribution", ["laplace", "gaussian"])
def test_intervals_hold_the_means_of_groups_of_any_size(distribution: str) -> None:
    """3 groups of 500 each, of 1, 4 and 60 rows; less than the level by chance with 1e-6."""
    sizes = np.repeat([1, 4, 60], 500)
    values = np.random.default_rng(5).uniform(20, 60, int(sizes.sum()))
    group = np.repeat(np.arange(sizes.size), sizes)
    frame = pl.DataFrame({"age": values, "group": group})
    data = dpm.Dataset(frame, bounds={"age": (LOW, HIGH)}, domain={"group": sizes.size})
    found = dpm.measure(data.mean("age", by="group"), 2.0, 1e-6, distribution=distribution, rng=1)
    truth = np.bincount(group, values) / sizes
    for level in (0.8, 0.95):
        table = found.intervals(level)
        inside = (table.lower <= truth + 1e-9) & (truth <= table.upper + 1e-9)
        assert (table.lower >= LOW).all() and (table.upper <= HIGH).all()
        for size in (1, 4, 60):
            assert binom.cdf(int(inside[sizes == size].sum()), 500, level) > 1e-6
        width = (table.upper - table.lower)[sizes == 60].mean()
        assert width < (40 if distribution == "laplace" else 60)


@pytest.mark.parametrize("bounds, meets", [((0, 1), True), ((40, 99), True), ((0, 99), False), ((7, 41), False)])
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_a_mean_at_a_declared_bound_says_that_it_may_cut(
    bounds: tuple[int, int], meets: bool, neighbors: Neighbors
) -> None:
    """Of ages 8 and 40, twice as many: the mean is 29.3 or, of what is cut, at an end."""
    frame = pl.DataFrame({"age": [8, 40, 40] * 300})
    mean = dpm.measure(dpm.Dataset(frame, bounds={"age": bounds}, neighbors=neighbors).mean("age"), 1.0, rng=0)
    released, intervals = (" ".join(str(each).split()) for each in (mean, mean.intervals()))
    for text in (released, intervals):
        assert "beyond the declared bounds were cut, nobody counted how many" in text
    assert ("reaches a declared bound" in intervals) == meets
    assert neighbors == "add-remove" or ("reaches a declared bound" in released) == meets
