"""Quantiles and limits that a ``Dataset`` releases: the law of a draw exactly, on all neighbors of small tables."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_tables import ENGINES, SOME_SLOW

import dpmodel as dpm
from dpmodel.errors import BudgetExceededError, SpecificationError
from dpmodel.marks.dataset.estimates import Estimates
from dpmodel.released.faces.quantiles import Decimals, Histogram, Ranks, at_shares

pytestmark = pytest.mark.filterwarnings("ignore:SeededSource")

POINTS = 3
WANTED = {
    "median": ([0.5], [0.0]),
    "a high one": ([0.9], [0.0]),
    "two": ([0.2, 0.7], [0.0, 0.0]),
    "with ends": ([0.3] * 3, [-1.5, 0.0, 1.5]),
    "limits": ([0.0, 1.0], [1.2, -1.2]),
}


def ranks(wanted: str, rows: int, groups: int, neighbors: str, epsilon: float = 1.0) -> Ranks:
    shares, offsets = map(np.array, WANTED[wanted])
    return Ranks(shares, offsets, POINTS, rows, groups, neighbors, epsilon)


def law(each: Ranks, counts: np.ndarray) -> np.ndarray:
    """The logarithm of the probability of every tuple of points: of levels, then of points of their sets."""
    off = each.off(counts)
    levels, logs = each.weights(off)
    share = np.exp(logs - np.logaddexp.reduce(logs))
    out: Any = 0.0
    for level, weight in zip(levels, share, strict=True):
        sets = [(row <= level) / np.count_nonzero(row <= level) for row in off]
        out = out + weight * np.asarray(sets[0] if len(sets) == 1 else np.einsum(_outer(len(sets)), *sets))
    return np.log(out)


def _outer(count: int) -> str:
    letters = "abcdef"[:count]
    return f"{','.join(letters)}->{letters}"


def direct(each: Ranks, counts: np.ndarray) -> np.ndarray:
    """The same from its definition."""
    off, sizes = each.off(counts), (POINTS + 2,) * each.shares.size
    worst = np.array([max(row[t] for row, t in zip(off, draw, strict=True)) for draw in np.ndindex(sizes)])
    logs = -worst.reshape(sizes) / each.scale
    return logs - np.logaddexp.reduce(logs.ravel())


def tables(rows: int, groups: int) -> list[np.ndarray]:
    """Counts of up to ``rows`` rows in the points of all groups."""
    out = []
    for count in range(rows + 1):
        for cells in itertools.combinations_with_replacement(range(POINTS * groups), count):
            out.append(np.bincount(cells, minlength=POINTS * groups).reshape(groups, POINTS))
    return out


def largest_loss(each: Ranks, base: int = 3) -> float:
    """Length of the interval of losses, over all tables of others, and all that a person of ``rows`` rows may have."""
    people = [mine for mine in tables(each.rows, each.groups) if each.rows > 1 or mine.sum() == 1]
    none = np.zeros((each.groups, POINTS), dtype=int)
    pairs = [(mine, none) for mine in people] if each.neighbors == "add-remove" else itertools.combinations(people, 2)
    pairs, laws, worst = list(pairs), {}, 0.0

    def of(counts: np.ndarray) -> np.ndarray:
        key = counts.tobytes()
        if key not in laws:
            laws[key] = law(each, counts)
        return laws[key]

    for others in tables(base, each.groups):
        for one, two in pairs:
            moved = [of(a + c) - of(b + c) for a, b, c in zip(one, two, others, strict=True)]
            worst = max(worst, sum(m.max() - m.min() for m in moved))  # the interval has 0 in it
    return worst


@pytest.mark.parametrize("wanted", WANTED)
def test_the_law_is_that_of_the_exponential_mechanism(wanted: str) -> None:
    each = ranks(wanted, 1, 1, "replace-one")
    for counts in tables(4, 1):
        assert np.allclose(law(each, counts[0]), direct(each, counts[0]), atol=1e-9)


@pytest.mark.parametrize(
    ("rows", "groups", "neighbors"),
    [
        *itertools.product((1, 2), (1,), ("replace-one", "add-remove")),
        *itertools.product((1,), (2,), ("replace-one", "add-remove")),
        pytest.param(2, 2, "replace-one", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("wanted", WANTED)
def test_losses_of_neighbors_lie_in_an_interval_of_length_epsilon(
    wanted: str, rows: int, groups: int, neighbors: str
) -> None:
    found = largest_loss(ranks(wanted, rows, groups, neighbors), base=3 if groups == 1 else 2)
    assert 0.3 < found <= 1.0


@pytest.mark.parametrize(("wanted", "neighbors"), [("median", "add-remove"), ("two", "replace-one")])
def test_a_twin_with_half_the_noise_is_caught(wanted: str, neighbors: str) -> None:
    each = ranks(wanted, 1, 1, neighbors)
    assert largest_loss(replace(each, epsilon=2.0 * each.epsilon)) > 1.0


def test_a_twin_that_takes_groups_for_one_is_caught() -> None:
    """A row that leaves one group for the other moves both."""

    class Twin(Ranks):
        range = 1.0  # type: ignore[assignment]

    each = ranks("median", 1, 2, "replace-one")
    assert largest_loss(Twin(each.shares, each.offsets, POINTS, 1, 2, "replace-one", 1.0), base=2) > 1.0


def test_a_draw_follows_its_law() -> None:
    each, counts = ranks("two", 1, 1, "replace-one"), np.array([2, 0, 5])
    source = dpm.privacy.noise_source(3)
    drawn = np.zeros((POINTS + 2,) * 2)
    for _ in range(4000):
        drawn[tuple(each.run(counts, source) + 1)] += 1
    expected = np.exp(direct(each, counts))
    ordered = np.triu(expected + expected.T, 1) + np.diag(np.diag(expected))
    deviation = np.sqrt(ordered * (1 - ordered) / 4000)
    assert (np.abs(drawn / 4000 - ordered) <= 6 * deviation + 1e-12).all()  # 25 cells: false alarms below 1e-7


# ------------------------------------------------------------------ many quantiles on few points
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_noise_of_a_histogram_covers_every_neighbor(neighbors: str, rows: int, groups: int) -> None:
    """Discrete Laplace noise of scale b on integers: moved by D in the 1-norm, they are told apart by D / b at most."""
    people = [mine.ravel() for mine in tables(rows, groups) if rows > 1 or mine.sum() == 1]
    others = people if neighbors == "replace-one" else [np.zeros(POINTS * groups)]
    moved = max(np.abs(a - b).sum() for a in people for b in others)
    each = Histogram.of(ranks("two", rows, groups, neighbors, epsilon=0.7))
    assert moved / each.scale == pytest.approx(0.7)


@pytest.mark.parametrize(("points", "scale"), [(3, 0.4), (3, 20.0), (74, 20.0)])
def test_no_running_sum_is_off_by_more(points: int, scale: float) -> None:
    """Proved, and so loose that of 2,000 histograms hardly any is beyond the bound at .2."""
    each, counts = Histogram(points, scale), np.tile(np.arange(points) % 3 * 40, (2000, 1))
    sums = each.run(counts, dpm.privacy.noise_source(1))
    assert (np.abs(sums - np.cumsum(counts, axis=1)).max(axis=1) > each.error(0.2)).mean() <= 0.15
    q, off = np.array([0.1, 0.5, 0.9]), 2 * each.error(0.2)
    low, found, high = (at_shares(sums, q, o) for o in (-off, 0.0, off))
    upto = np.cumsum(counts[0])
    worst = np.maximum(upto[found] - counts[0][found] - q * upto[-1], q * upto[-1] - upto[found]).max(axis=1)
    true = np.searchsorted(upto, q * upto[-1])
    assert (worst > off).mean() <= 0.15 and ((low > true) | (high < true)).any(axis=1).mean() <= 0.15


def test_the_closer_mechanism_is_taken() -> None:
    def taken(count: int, points: int) -> bool:
        shares = np.linspace(0.05, 0.95, count)
        each = Ranks(shares, np.zeros(count), points, 1, 1, "replace-one", 0.3)
        return Histogram.of(each).closer(each)

    assert taken(19, 99) and not taken(3, 99) and not taken(19, 10_000)


# ------------------------------------------------------------------ through a Dataset
ROWS = [(1, "Ulm", 3.0), (1, "Bonn", 9.0), (2, "Ulm", 1.0), (3, "Bonn", 4.0), (4, "Ulm", 4.0), (5, "Bonn", -7.0),
        (6, "Ulm", 8.25)]  # fmt: skip


def dataset(engine: str = "polars", rows: Any = ROWS, **options: Any) -> dpm.Dataset:
    declared = {"bounds": {"income": (-1, 8)}, "domain": {"town": ["Bonn", "Ulm"]}, **options}
    return dpm.Dataset(ENGINES[engine](rows), **declared)


@pytest.mark.parametrize("engine", SOME_SLOW)
def test_without_noise_it_is_the_quantile(engine: str) -> None:
    people = dataset(engine)
    clipped = np.clip([row[2] for row in ROWS], -1, 8)
    found = people.quantiles("income", [0.2, 0.5, 0.8], 1e4, rng=1)
    assert np.allclose(found, np.quantile(clipped, [0.2, 0.5, 0.8], method="inverted_cdf"), atol=2e-3)
    assert float(people.median("income", 1e4, rng=1)) == 4.0
    towns = people.median("income", 1e4, by="town", level=None, rng=1)
    for town in ("Bonn", "Ulm"):
        there = np.sort([v for v, row in zip(clipped, ROWS, strict=True) if row[1] == town])
        low, high = (np.quantile(there, 0.5, method=m) for m in ("lower", "higher"))
        assert low - 2e-3 <= towns[town] <= high + 2e-3


def test_decimals_that_many_rows_share_are_released_as_they_are() -> None:
    """Cents, and round incomes beyond 2^14 of them: no power of two is a step of either."""
    for shared, high in ((104.92, 320.0), (50_000.0, 400_000.0)):
        others = [*np.linspace(3, shared - 1, 40), *np.linspace(shared + 1, high - 9, 40)]
        rows = [(i, "Ulm", float(v)) for i, v in enumerate([*others, *[shared] * 60])]
        for low in (0, -1):
            people = dataset(rows=rows, bounds={"income": (low, high)})
            assert float(people.median("income", 50.0, rng=1)) == shared
            assert people.median("income", 50.0, by="town", rng=1)["Ulm"] == shared


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 1),
        (0.29, 0.57),
        (-3.3, 0),
        (17, 90),
        (0, 320),
        (-1e100, 1e100),
        (1e15, 1e15 + 2),
        (0, 1e-100),
        (1e9, 1e9 + 1),
    ],
)
@pytest.mark.parametrize("groups", [1, 11])
def test_every_value_within_bounds_has_a_point_no_farther_than_half_a_step(
    low: float, high: float, groups: int, integers: bool
) -> None:
    grid = Decimals.of(low, high, groups, integers=integers)
    values = np.linspace(low, high, 1001)
    places = np.floor(grid.multiple(values) + 0.5) - grid.first
    assert (
        places.min() == 0 and places.max() == grid.size - 1 and 1 <= grid.size <= (10**5 if groups == 1 else 10**4) + 2
    )
    assert np.abs(grid.value(places) - values).max() <= 0.5001 * float(grid.step) + 1e-15 * max(abs(low), abs(high))
    assert not integers or grid.digits <= 0


@pytest.mark.parametrize("engine", SOME_SLOW)
def test_limits_without_noise(engine: str) -> None:
    rows = [(i, "Ulm", v) for i, v in enumerate([-3.0] * 40 + [0.0] * 40 + [100.0] * 40 + [0.3] * 40)]
    assert list(dpm.Dataset(ENGINES[engine](rows)).bounds("income", 1e4, rng=1)) == [-4.0, 128.0]
    positive = [(i, "Ulm", v) for i, v in enumerate([3.0] * 40 + [4.0] * 40)]
    assert list(dpm.Dataset(ENGINES[engine](positive)).bounds("income", 1e4, rng=1)) == [2.0, 4.0]
    negative = [(i, "Ulm", -v) for i, v in enumerate([3.0] * 40 + [4.0] * 40)]
    assert list(dpm.Dataset(ENGINES[engine](negative)).bounds("income", 1e4, rng=1)) == [-4.0, -2.0]


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("epsilon", [0.2, 2.0])
def test_no_rank_is_off_by_more_than_the_statement_says(wanted: str, epsilon: float) -> None:
    """Exactly, on lopsided tables: the worst of the ranks is at most the level that is drawn."""
    each = replace(ranks(wanted, 1, 1, "replace-one", epsilon), points=41)
    for filled in ({}, {0: 9}, {40: 500}, {3: 1, 39: 60}, {10: 30, 11: 31}, dict.fromkeys(range(41), 7)):
        counts = np.zeros(41, dtype=int)
        counts[list(filled)] = list(filled.values())
        for beta in (0.5, 0.05):
            levels, logs = each.weights(each.off(counts))
            share = np.exp(logs - np.logaddexp.reduce(logs))
            assert share[levels > each.error(beta)].sum() <= beta


@pytest.mark.parametrize("epsilon", [0.2, pytest.param(2.0, marks=pytest.mark.slow)])
def test_intervals_hold_on_lopsided_tables(epsilon: float) -> None:
    """20 releases of each table; intervals are proved, and in fact hardly ever fail."""
    for values in ([0.5] * 30 + [7.0] * 31, [3.0] * 9, np.linspace(-1, 8, 200)):
        people = dataset(rows=[(i, "Ulm", float(v)) for i, v in enumerate(values)], neighbors="add-remove")
        low, high = (np.quantile(values, 0.4, method=m) for m in ("lower", "higher"))
        found = [people.quantile("income", 0.4, epsilon, rng=seed) for seed in range(20)]
        assert sum(not (f.lower <= high + 1e-3 and f.upper >= low - 1e-3) for f in found) <= 3


def test_quantiles_of_groups_have_intervals_that_tell_small_groups() -> None:
    """Of a group of 3 rows nothing is said; of 4,000 rows on a fine grid the ends are close, and hold."""
    values = {"Bonn": np.array([0.0, 1.0, 7.0]), "Ulm": np.linspace(-1, 8, 4000) ** 2 % 7}
    rows = [(i, town, float(v)) for town, many in values.items() for i, v in enumerate(many)]
    people, q, missed = dataset(rows=rows), [0.25, 0.5, 0.75], 0
    for seed in range(10):
        found = people.quantiles("income", q, 1.0, by="town", rng=seed)
        assert (found.lower <= found.value).all() and (found.value <= found.upper).all()
        assert (np.diff(found.lower) >= 0).all() and (np.diff(found.upper) >= 0).all()
        assert (found.upper[0] - found.lower[0] > 8.9).all() and (found.upper[1] - found.lower[1] < 2.5).all()
        true = np.array([np.quantile(many, q, method="inverted_cdf") for many in values.values()])
        missed += int(((true < found.lower - 2e-3) | (true > found.upper + 2e-3)).any(axis=1).sum())
    assert missed <= 2
    assert np.isinf(people.quantiles("income", q, 1.0, by="town", level=None, rng=1).upper).all()


def test_sorting_rows_then_columns_makes_no_worst_rank_worse() -> None:
    rng, each = np.random.default_rng(5), ranks("with ends", 1, 1, "replace-one")
    for _ in range(300):
        shares = np.sort(rng.uniform(size=2))
        wide = replace(each, shares=np.tile(shares, 3), offsets=np.repeat([-1.0, 0.0, 1.0], 2) * rng.uniform(0, 4))
        off = wide.off(rng.integers(0, 4, POINTS))
        drawn = rng.integers(0, POINTS + 2, 6)
        ordered = np.sort(np.sort(drawn.reshape(3, 2), axis=1), axis=0).ravel()
        assert off[np.arange(6), ordered].max() <= off[np.arange(6), drawn].max()


def test_many_quantiles_have_intervals_each() -> None:
    rows = [(i, "Ulm" if i % 3 else "Bonn", float(i * i % 9 - 1)) for i in range(90)]
    people = dataset(rows=rows, integers="income")
    q, values = np.arange(1, 20) / 20, np.array([row[2] for row in rows])
    held = [people.quantiles("income", q, 5.0, rng=seed) for seed in range(10)]
    for share, *ends in zip(
        q, *(np.array([getattr(f, end) for f in held]).T for end in ("lower", "upper")), strict=True
    ):
        true = np.quantile(values, share, method="inverted_cdf")
        assert np.mean((ends[0] <= true) & (true <= ends[1])) >= 0.8
    towns = people.quantiles("income", q, 1e4, by="town", rng=1)
    assert towns.value[1, 9] == np.quantile(values[np.arange(90) % 3 > 0], 0.5, method="inverted_cdf")


@pytest.mark.slow
def test_few_rows_are_beyond_limits() -> None:
    for values in ([0.5] * 300 + [7.0] * 31, [3.0] * 9, [], np.linspace(-1, 8, 200)):
        people = dataset(rows=[(i, "Ulm", float(v)) for i, v in enumerate(values)], neighbors="add-remove")
        most = 2 * Ranks(np.zeros(2), np.zeros(2), 259, 1, 1, "replace-one", 1.0).error(0.05) + 1
        for seed in range(20):
            low, high = people.bounds("income", 1.0, rng=seed)
            assert (np.asarray(values) < low).sum() <= most and (np.asarray(values) > high).sum() <= most


def test_persons_with_several_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every replacement of one person's rows moves the counted rows by two at most, and so much noise is drawn."""
    seen: list[tuple[Ranks, np.ndarray]] = []
    monkeypatch.setattr(Ranks, "run", lambda self, counts, noise: (seen.append((self, counts)), np.zeros(1, int))[1])
    universe = [("Bonn", 3.0), ("Ulm", -7.0), ("Ulm", 1e12), ("Bonn", float("nan")), (None, 2.0)]
    for count in range(3):
        for mine in itertools.combinations_with_replacement(universe, count):
            rows = [*ROWS[2:], *((9, *row) for row in mine)]
            people = dataset(rows=rows, privacy_id="person", max_rows=2, outside="drop")
            people.quantile("income", 0.5, 1.0, level=None)
    counts = np.array([counts for _, counts in seen])
    moved = np.abs(counts[:, None] - counts[None])
    others = counts[0]
    assert (counts >= others).all() and (counts - others).sum(axis=1).max() == 2 and moved.sum(axis=2).max() == 4
    assert {each.rows for each, _ in seen} == {2} and seen[0][0].range == 4


def test_charges_once_and_before_anything_is_drawn() -> None:
    budget = dpm.Budget(1.0)
    dataset().quantiles("income", [0.25, 0.75], 0.75, by="town", budget=budget, rng=1)
    assert [(c.epsilon, c.delta) for c in budget.history] == [(0.75, 0.0)]
    with pytest.raises(BudgetExceededError):
        dataset().median("income", 0.5, budget=budget)
    many = dpm.Budget(1.0, 1e-6)  # draws lose less than the sum of their epsilons, which is 1.5
    for seed in range(30):
        dataset().median("income", 0.05, budget=many, rng=seed)


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (lambda d: d.median("incme", 1), "no column"),
        (lambda d: d.median("person", 1), r"no bounds.*\n.*\n.*\.bounds"),
        (lambda d: d.median("town", 1), "categories"),
        (lambda d: d.quantile("income", 95, 1), "between 0 and 1"),
        (lambda d: d.quantile("income", 0, 1), "between 0 and 1"),
        (lambda d: d.quantiles("income", 0.5, 1), "no list"),
        (lambda d: d.quantiles("income", [], 1), "between 0 and 1"),
        (lambda d: d.quantiles("income", [0.5, 0.5], 1), "increase"),
        (lambda d: d.quantile("income", 0.5, 1, level=95), "level"),
        (lambda d: d.bounds("town", 1), "categories"),
        (lambda d: d.bounds("income", 0), "epsilon"),
        (lambda d: d.median("income", 1, by="person"), "no domain"),
        (lambda d: d.median("income", 1, budget=1.0), "budget"),
    ],
)
def test_wrong_inputs_spend_nothing(release: Any, words: str) -> None:
    with pytest.raises(SpecificationError, match=words):
        release(dataset())


def test_plain_data_that_prints_its_answer_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    found = dataset(rows=ROWS * 20).quantile("income", 0.5, 1.0, by="town", rng=1)
    again = Estimates.from_json(found.to_json())
    assert again.to_dict() == found.to_dict() and list(found.to_frame().columns) == ["town", "value", "lower", "upper"]
    one = dataset(rows=ROWS * 20).median("income", 1.0, rng=1)
    assert str(one).startswith("median of income: ") and "95 %: " in str(one).splitlines()[0]
    assert max(map(len, f"{found}\n{one}".splitlines())) <= 100 and "NOT PRIVATE" in str(one)
