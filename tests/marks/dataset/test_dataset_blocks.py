"""Rows of a ``Dataset`` that stay where they are: the same releases as from memory, and counts on a Dask cluster."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import polars as pl
import pytest
from small_tables import TOWNS, value_of
from test_dataset_sensitivity import OTHERS, QUERIES, UNIVERSE, dataset, polars

import dpmodel as dpm
from dpmodel.errors import DPModelError
from dpmodel.marks import row_sources as blocks
from dpmodel.marks.dataset import Dataset
from dpmodel.marks.dataset.table import merged

ROWS = 3_000


def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    town = rng.choice(TOWNS, ROWS)
    income = rng.uniform(-1, 8, ROWS)
    paid = income + np.array([TOWNS.index(t) for t in town]) + rng.normal(size=ROWS)
    return pl.DataFrame({"person": np.arange(ROWS), "town": town, "income": income, "paid": paid})


def parquet(folder: Path) -> Any:
    table().write_parquet(folder / "rows.parquet", row_group_size=700)
    return Dataset.scan(folder / "rows.parquet", **DECLARED)


def query(folder: Path) -> Any:
    duckdb = pytest.importorskip("duckdb")
    return Dataset(duckdb.connect().from_arrow(table().to_arrow()).filter("person >= 0"), **DECLARED)


def bounded(folder: Path) -> Any:
    twice = pl.concat([table(), table()]).lazy()
    return Dataset(twice, privacy_id="person", max_rows=3, **DECLARED)


def dask(folder: Path) -> Any:
    frames = pytest.importorskip("dask.dataframe")
    return Dataset(frames.from_pandas(table().to_pandas(), npartitions=3), **DECLARED)


DECLARED: dict[str, Any] = {"bounds": {"income": (-1, 8), "paid": (0, 10)}, "domain": {"town": TOWNS}}
PLACES: dict[str, Callable[[Path], Dataset]] = {
    "parquet": parquet,
    "query": query,
    "bounded": bounded,
    "dask": dask,
    "frame": lambda folder: Dataset(table(), **DECLARED),
}


def fitted(people: Dataset, in_blocks: bool) -> np.ndarray:
    first = people._people.person is not None
    X = people.rows(["income", "town"], scale=True, in_blocks=in_blocks, first=first)
    y = people.rows("paid", in_blocks=in_blocks, first=first)
    w = cp.Variable(4, name="w")
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y) / ROWS), [cp.norm(w) <= 20])
    problem.solve(epsilon=1, delta=1e-6, rng=0, mechanism="sufficient-statistics")
    assert problem.release is not None and problem.release.labels["w"][0][1][0] == "income"
    return np.asarray(w.value)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_blocks_release_what_memory_releases(place: str, tmp_path: Path) -> None:
    expected = fitted(Dataset(table(), **DECLARED), in_blocks=False)
    np.testing.assert_allclose(fitted(PLACES[place](tmp_path), in_blocks=True), expected, atol=1e-6)


def test_what_rows_in_blocks_cannot_do_is_refused_before_the_charge(tmp_path: Path) -> None:
    A, budget = parquet(tmp_path).rows(["town"], in_blocks=True), dpm.Budget(1)
    x = cp.Variable(3, nonneg=True)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1])
    with pytest.raises(DPModelError):
        problem.solve(epsilon=1, budget=budget)
    assert budget.spent.epsilon == 0


@pytest.mark.parametrize("told", [True, False], ids=["without a name", "with one"])
def test_a_temporary_file_goes_with_its_rows(told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if not told:
        monkeypatch.setattr(blocks, "_OPEN", tmp_path / "nowhere")
    people = query(tmp_path)
    X = people.rows(["income"], in_blocks=True)
    (path,) = people._people.blocks.paths
    assert path.exists() and people._people.blocks.count == ROWS
    if told and blocks._OPEN.exists():
        assert not list(tmp_path.iterdir()) and path.stat().st_nlink == 0
    else:
        assert path.is_relative_to(tmp_path) and path.parent.stat().st_mode & 0o077 == 0
    del X, people
    gc.collect()
    assert not path.exists()


def test_people_of_python_objects_are_one_on_all_workers() -> None:
    """1 and 1.0 are one person, and their hashes there are two."""
    frames = pytest.importorskip("dask.dataframe")
    import pandas as pd

    given = pd.DataFrame({"who": pd.Series([1, 1.0, True, "1", 2], dtype=object), "town": ["Ulm"] * 5})
    import dask

    with dask.config.set({"dataframe.convert-string": False}):
        collection = frames.from_pandas(given, npartitions=2)
    people = Dataset(collection, privacy_id="who", max_rows=1, domain={"town": ["Ulm"]})
    np.testing.assert_array_equal(value_of(people.count("town")), [2])


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("name", QUERIES)
def test_dask_counts_on_the_workers(name: str, most: int) -> None:
    frames = pytest.importorskip("dask.dataframe")
    rows = polars([*OTHERS, *((1, *row) for row in UNIVERSE), (None, "Ulm", 3.0)])
    there = frames.from_pandas(rows.to_pandas(), npartitions=3)
    expected = QUERIES[name](dataset(rows, most, "replace-one"))
    np.testing.assert_array_equal(value_of(QUERIES[name](dataset(there, most, "replace-one"))), value_of(expected))


def test_sums_that_are_added_again_count_nothing_twice() -> None:
    """A cluster may add the same two answers once more, after a worker died."""
    one, other = {("Ulm",): (1, 5)}, {("Ulm",): (2, 7), ("Bonn",): (1, 1)}
    first = merged(one, other)
    assert merged(one, other) == first == {("Ulm",): (3, 12), ("Bonn",): (1, 1)}


# ------------------------------------------------------------------ programs in which a person owns a constraint
def covered(people: Dataset, in_blocks: bool) -> np.ndarray:
    """Towns for everybody who can pay, by rows; solved with a plan that is the same for both."""
    A = people.rows(["town", "income"], in_blocks=in_blocks)
    x = cp.Variable(4, name="x", nonneg=True)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1, x <= 1])
    name, left = "dense-multiplicative-weights", dpm.AllBut(rows=200)
    problem.solve(epsilon=1, delta=1e-6, rng=0, mechanism=name, feasibility=left, goal=dpm.Target(3.0))
    assert problem.release is not None and problem.release.labels["x"][0][1][0] == "town=Bonn"
    return np.asarray(x.value)


@pytest.mark.parametrize("place", ["parquet", "query", pytest.param("dask", marks=pytest.mark.slow)])
def test_programs_over_blocks_release_what_memory_releases(place: str, tmp_path: Path) -> None:
    expected = covered(Dataset(table(), **DECLARED), in_blocks=False)
    np.testing.assert_allclose(covered(PLACES[place](tmp_path), in_blocks=True), expected, atol=1e-6)


ITEMS = ["a", "b", "c", "d"]
VISITS = [(1, "a"), (1, "b"), (1, "a"), (2, "c"), (3, "e"), (4, "d"), (4, "c"), (4, "b"), (None, "a"), (5, None)]


def visits(engine: str) -> Any:
    frame = pl.DataFrame(VISITS * 3, schema={"who": pl.Int64, "item": pl.String}, orient="row")
    if engine == "lazy":
        return frame.lazy()
    if engine == "dask":
        frames = pytest.importorskip("dask.dataframe")
        return frames.from_pandas(frame.to_pandas().astype({"who": "Int64"}), npartitions=3)
    if engine == "duckdb":
        return pytest.importorskip("duckdb").connect().from_arrow(frame.to_arrow())
    return frame


@pytest.mark.parametrize("listed", [ITEMS, [*ITEMS, None], ["d", "c"]], ids=["items", "none too", "few"])
@pytest.mark.parametrize("most", [None, 1, 2])
@pytest.mark.parametrize("engine", ["eager", "lazy", "duckdb", pytest.param("dask", marks=pytest.mark.slow)])
def test_incidence_in_blocks_is_that_of_memory(engine: str, most: int | None, listed: list[Any]) -> None:
    """One row per person, also of those who have nothing that is listed."""
    people = Dataset(visits(engine), privacy_id="who", max_rows=most, outside="drop")
    there, here = (people.incidence("who", "item", items=listed, in_blocks=each) for each in (True, False))
    assert there.shape == here.shape == (5, len(listed)) and there.labels == here.labels
    assert (there.sensitivity, there.magnitude, there.in_blocks) == (here.sensitivity, here.magnitude, True)
    rows: Any = dpm.marks.vault.unseal(there)
    limits, whole = there.limits, lambda block, n: limits.hold(limits.checked(rows.numbers(block), len(block), n))
    held = rows.source.map_reduce(lambda block, number: (whole(block, number),), lambda a, b: a + b)
    assert sorted(np.concatenate(held).tolist()) == sorted(value_of(here).tolist())


def test_a_program_over_incidence_in_blocks() -> None:
    rng = np.random.default_rng(1)
    frame = pl.DataFrame({"who": rng.integers(0, 400, 2_000), "item": rng.choice(ITEMS, 2_000, p=[0.7, 0.1, 0.1, 0.1])})
    people = Dataset(frame.lazy(), privacy_id="who", domain={"item": ITEMS})
    x = cp.Variable(4, name="x", nonneg=True)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [people.incidence("who", "item", in_blocks=True) @ x >= 1, x <= 1])
    problem.solve(epsilon=8, delta=1e-6, rng=0, feasibility=dpm.AllBut(rows=40), goal=dpm.Target(1.5))
    assert problem.release is not None and problem.release.variables["x"].argmax() == 0
    assert problem.release.labels["x"] == (("item", tuple(ITEMS)),)
