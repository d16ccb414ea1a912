"""Synthetic rows: the tree and what is kept of it, what is drawn at random, and moves towards all tables."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.privacy import public_generator
from dpmodel.released import sampled_rows
from dpmodel.released.sampled_rows import drawn, information, moved, tree_of

RNG = np.random.default_rng(0)
SIZES = (4, 5, 3, 2, 7)
PAIRS = list(itertools.combinations(range(5), 2))


def codes(rows: int) -> np.ndarray:
    """A chain 2 - 0 - 1 - 3, of unequal strength, and a column apart."""
    a = RNG.integers(4, size=rows)
    b = (a + RNG.integers(2, size=rows)) % 5
    c = np.where(RNG.random(rows) < 0.8, a % 3, 1)
    d = np.where(RNG.random(rows) < 0.95, b > 2, b < 2)
    return np.column_stack([a, b, c, d, RNG.integers(7, size=rows)])


def tables(data: Any, pairs: Any = PAIRS) -> tuple[dict[tuple[int, int], Any], list[Any]]:
    def counted(*columns: int) -> Any:
        out = np.zeros([SIZES[i] for i in columns])
        np.add.at(out, tuple(data[:, i] for i in columns), 1.0)
        return out

    return {pair: counted(*pair) for pair in pairs}, [counted(i) for i in range(5)]


DATA = codes(3000)
TABLES, SINGLES = tables(DATA)


def test_the_tree_has_the_largest_information_of_all() -> None:
    edges = {(min(edge), max(edge)) for edge in tree_of(TABLES, 5) if edge[0] >= 0}
    worth = {pair: information(table) for pair, table in TABLES.items()}
    spanning = [chosen for chosen in itertools.combinations(PAIRS, 4) if _connected(chosen)]
    assert sum(worth[edge] for edge in edges) == pytest.approx(max(sum(worth[e] for e in each) for each in spanning))
    assert {(0, 1), (0, 2), (1, 3)} < edges
    seen = {-1}
    for parent, child in tree_of(TABLES, 5):
        assert parent in seen and child not in seen
        seen.add(child)


def _connected(edges: Any) -> bool:
    group = list(range(5))
    for a, b in edges:
        group = [group[a] if each == group[b] else each for each in group]
    return len(set(group)) == 1


def off(data: Any, released: dict[tuple[int, int], Any]) -> float:
    """The most that a cell of a pair on the tree is off, given how many rows have its parent's value; of the first
    column, given all rows."""
    mine, singles = tables(data)
    most = 0.0
    for parent, child in tree_of(released, 5):
        if parent < 0:
            most = max(most, float(np.abs(singles[child] - SINGLES[child] * len(data) / 3000).max()))
            continue
        pair = (parent, child) if parent < child else (child, parent)
        table, found = (each[pair] if parent < child else each[pair].T for each in (released, mine))
        wanted = table / table.sum(axis=1, keepdims=True) * found.sum(axis=1, keepdims=True)
        most = max(most, float(np.abs(found - wanted).max()))
    return most


@pytest.mark.parametrize("rows", [1, 17, 3000, 20_011])
def test_pairs_on_the_tree_are_off_by_rounding_alone(rows: int, monkeypatch: Any) -> None:
    assert off(drawn(TABLES, SINGLES, rows, public_generator(1)), TABLES) < 1
    if rows < 100:
        return

    def independent(given: Any, table: Any, generator: Any) -> Any:  # a twin that draws each row by itself
        ends = np.cumsum(table / table.sum(axis=1, keepdims=True), axis=1)[given]
        return (generator.uniform(size=(given.size, 1)) > ends).sum(axis=1).clip(max=table.shape[1] - 1)

    monkeypatch.setattr(sampled_rows, "_dealt", independent)
    assert off(drawn(TABLES, SINGLES, rows, public_generator(1)), TABLES) > 3


class Unmixed:
    """Deals without mixing the rows, with offsets of one half."""

    def uniform(self, size: int) -> Any:
        return np.full(size, 0.5)


def test_columns_apart_on_the_tree_are_independent_given_what_is_between_them() -> None:
    """Of the chain 2 - 0 - 1: within each value of 0, a chi-square statistic of 2 and 1, of at most 16 degrees of
    freedom in all; beyond 70 with probability below 1e-7."""

    def statistic(data: Any) -> float:
        total = 0.0
        for value in range(4):
            mine = data[data[:, 0] == value]
            found = np.zeros((5, 3))
            np.add.at(found, (mine[:, 1], mine[:, 2]), 1.0)
            wanted = found.sum(axis=1, keepdims=True) * found.sum(axis=0) / found.sum()
            total += float(((found - wanted) ** 2 / np.maximum(wanted, 1e-9))[wanted > 0].sum())
        return total

    chain = {pair: TABLES[pair] for pair in ((0, 1), (0, 2))}
    assert statistic(drawn(chain, SINGLES, 20_000, public_generator(2))) < 70
    twin: Any = Unmixed()
    assert statistic(drawn(chain, SINGLES, 20_000, twin)) > 1000


def worst(data: Any, released: Any) -> float:
    """The largest share of rows in wrong cells of a pair."""
    mine, _ = tables(data)
    return max(float(np.abs(mine[p] / len(data) - t / t.sum()).sum()) / 2 for p, t in released.items())


@pytest.mark.parametrize("rows", [200, 20_000])
def test_moves_bring_all_tables_near_what_was_released(rows: int) -> None:
    loop = DATA.copy()
    loop[:, 4] = (loop[:, 2] + 2 * loop[:, 3] + RNG.integers(2, size=3000)) % 7  # no tree has it
    loops, singles = tables(loop)
    generator = public_generator(3)
    tree = drawn(loops, singles, rows, generator)
    found = moved(tree, loops, generator)
    assert worst(tree, loops) > 0.08 and worst(found, loops) < (0.06 if rows == 200 else 0.025)
    joint = {(0, 2, 3): np.zeros((4, 3, 2))}
    np.add.at(joint[0, 2, 3], tuple(loop[:, [0, 2, 3]].T), 1.0)
    three = np.zeros((4, 3, 2))
    np.add.at(three, tuple(moved(tree, joint, generator)[:, [0, 2, 3]].T), 1.0)
    assert np.abs(three / rows - joint[0, 2, 3] / 3000).sum() / 2 < (0.06 if rows == 200 else 0.01)
    np.testing.assert_array_equal(moved(tree[:0], loops, generator), tree[:0])


DOMAIN = {"a": list("wxyz"), "b": 5, "c": ["low", "mid", "high"], "d": [False, True], "e": 7}


def released(marginals: Any, **given: Any) -> Any:
    named = pd.DataFrame(DATA, columns=list(DOMAIN))
    named["a"], named["c"] = named["a"].map(dict(enumerate("wxyz"))), named["c"].map({0: "low", 1: "mid", 2: "high"})
    named["d"] = named["d"].astype(bool)
    return dpm.query_release(named, marginals, domain=DOMAIN, **given).solve(epsilon=2, delta=1e-6, rng=0)


def test_a_frame_of_the_categories_of_the_domain() -> None:
    release = released(list(itertools.combinations(DOMAIN, 2)))
    frame = release.sample()
    assert len(frame) == 3000 and list(frame.columns) == list(DOMAIN)
    assert all(
        set(frame[column]) <= set(values if isinstance(values, list) else range(values))
        for column, values in DOMAIN.items()
    )
    for first, second in itertools.combinations(DOMAIN, 2):
        answer = release.answers((first, second))
        counts = pd.crosstab(frame[first], frame[second])
        counts = counts.reindex(index=answer.categories[0], columns=answer.categories[1], fill_value=0)
        assert np.abs(counts.to_numpy() - answer.values).sum() < 0.03 * 2 * 3000
    for column in DOMAIN:
        counts = frame[column].value_counts().reindex(release.answers(column).categories[0], fill_value=0)
        assert np.abs(counts.to_numpy() - release.answers(column).values).max() < 30
    pd.testing.assert_frame_equal(frame, release.sample(seed=0))
    assert not frame.equals(release.sample(seed=1))
    assert release.sample(7, backend="polars").shape == (7, 5) and release.sample(0).shape == (0, 5)
    assert release.sample(3, backend="pyarrow").num_rows == 3


def test_larger_tables_and_columns_that_no_table_joins() -> None:
    release = released([("a", "b", "d"), "c", ("e",)], neighbors="add-remove")
    frame = release.sample(1000)
    assert frame.shape == (1000, 5)
    correlation = np.corrcoef(frame["b"], frame["d"])[0, 1]
    assert correlation > 0.5 and abs(np.corrcoef(frame["b"], frame["e"])[0, 1]) < 0.2


@pytest.mark.parametrize("n", [-1, 2.5, True, "all"])
def test_what_is_no_number_of_rows_is_refused(n: Any) -> None:
    with pytest.raises(SpecificationError, match="number of rows"):
        released([("a", "b")]).sample(n)


def test_an_empty_table_is_drawn_from_evenly() -> None:
    nothing, generator = {pair: np.zeros_like(table) for pair, table in TABLES.items()}, public_generator(0)
    data = moved(drawn(nothing, [np.zeros(size) for size in SIZES], 50, generator), nothing, generator)
    assert data.shape == (50, 5) and (data.max(axis=0) < SIZES).all()
