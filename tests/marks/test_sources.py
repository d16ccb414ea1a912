"""Sources: every engine gives the same sums in the same order, and its failures are told without values."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpmodel.errors import MissingExtraError, SourceError, SpecificationError
from dpmodel.marks import row_sources
from dpmodel.marks.dataset import Dataset
from dpmodel.marks.row_sources import MemoryBlocks, StreamedBlocks
from dpmodel.marks.rows import RowSource, in_order

COLUMNS = ["a", "b", "label"]
SECRET = "98765.4321"


def frame(rows: int = 1000) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).normal(size=(rows, 3)), columns=COLUMNS)


def numbers(block: Any) -> np.ndarray:
    block = block.to_pandas() if hasattr(block, "to_pandas") else block
    return np.asarray(block[COLUMNS], dtype=float)


def sums(block: Any, number: int) -> tuple[np.ndarray, tuple[int, ...]]:
    return numbers(block).sum(axis=0), (number,)


def both(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1]


def _parquet(folder: Path, table: pd.DataFrame) -> RowSource:
    pytest.importorskip("pyarrow")
    from dpmodel.marks.row_sources import ParquetBlocks

    table[:600].to_parquet(folder / "1.parquet", row_group_size=170, index=False)
    table[600:].to_parquet(folder / "2.parquet", index=False)
    return ParquetBlocks([folder / "1.parquet", folder / "2.parquet"], columns=COLUMNS, rows=90)


def _dask(folder: Path, table: pd.DataFrame) -> RowSource:
    dd = pytest.importorskip("dask.dataframe")
    from dpmodel.marks.row_sources import DaskBlocks

    return DaskBlocks(dd.from_pandas(table, npartitions=7))


def _frames(folder: Path, table: pd.DataFrame) -> RowSource:
    return MemoryBlocks([table[:3], table[3:3], table[3:700], table[700:]])


ENGINES = {"parquet": _parquet, "dask": _dask, "frames": _frames}


@pytest.mark.parametrize("engine", ENGINES)
def test_all_rows_once_and_in_order(engine: str, tmp_path: Path) -> None:
    table = frame()
    source = ENGINES[engine](tmp_path, table)
    assert source.count == 1000 and len(source.sizes) > 3
    found, order = source.map_reduce(sums, both)
    assert order == tuple(range(len(source.sizes)))
    np.testing.assert_allclose(found, table.to_numpy().sum(axis=0), rtol=1e-12)
    parts = source.map_reduce(lambda block, number: (numbers(block),), operator.add)
    assert tuple(map(len, parts)) == source.sizes
    np.testing.assert_allclose(np.concatenate(parts), table.to_numpy(), rtol=1e-15)
    assert source.map_reduce(sums, both)[0].tobytes() == found.tobytes()  # the same roundings every time


def test_the_tree_of_sums() -> None:
    for count in (*range(1, 40), 1000):
        parts = iter([(k,) for k in range(count)])
        assert in_order(parts, operator.add) == tuple(range(count))
        deepest = in_order(iter([0] * count), lambda a, b: max(a, b) + 1)
        assert deepest <= 2 * np.log2(count) + 1


def test_the_tree_keeps_few_parts() -> None:
    alive, most = 0, 0

    def parts() -> Iterator[int]:
        nonlocal alive, most
        for _ in range(1000):
            alive += 1
            most = max(most, alive)
            yield 1

    def combine(a: int, b: int) -> int:
        nonlocal alive
        alive -= 1
        return a + b

    assert in_order(parts(), combine) == 1000 and most <= 11


# ------------------------------------------------------------------ a block that fails
@pytest.mark.parametrize("engine", ENGINES)
def test_a_block_that_fails_is_tried_again_and_never_counted_twice(engine: str, tmp_path: Path) -> None:
    source = ENGINES[engine](tmp_path, frame())
    if engine == "frames":  # nothing to read anew
        return
    failed: list[int] = []

    def now_and_then(block: Any, number: int) -> Any:
        if number in (0, 3) and number not in failed:
            failed.append(number)
            raise OSError(SECRET)
        return sums(block, number)

    found, order = source.map_reduce(now_and_then, both)
    assert order == tuple(range(len(source.sizes))) and sorted(failed) == [0, 3]
    np.testing.assert_allclose(found, source.map_reduce(sums, both)[0], rtol=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_failures_are_told_without_values(engine: str, tmp_path: Path) -> None:
    source = ENGINES[engine](tmp_path, frame())

    def never(block: Any, number: int) -> Any:
        raise ValueError(f"{SECRET} {numbers(block)}")

    def cannot(a: Any, b: Any) -> Any:
        raise ValueError(SECRET)

    for function, combine in ((never, both), (sums, cannot)):
        with pytest.raises(SourceError) as caught:
            source.map_reduce(function, combine)
        assert "ValueError" in str(caught.value) and SECRET not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__context__ is None


class Lines(StreamedBlocks):
    """Record batches made here, as many rows as the test says."""

    sizes = (10, 10, 5)

    def __init__(self, *batches: int) -> None:
        self.batches, self.opened = batches, 0

    def _open(self) -> Iterator[Any]:
        import pyarrow as pa

        self.opened += 1
        at = 0
        for rows in self.batches:
            yield pa.RecordBatch.from_pydict({"x": np.arange(at, at + rows)})
            at += rows


@pytest.mark.parametrize("batches", [(25,), (1,) * 25, (7, 13, 5), (10, 10, 5), (0, 20, 0, 5, 0)])
def test_batches_are_cut_to_blocks(batches: tuple[int, ...]) -> None:
    pytest.importorskip("pyarrow")
    source = Lines(*batches)
    found = source.map_reduce(lambda block, number: block["x"].to_pylist(), operator.add)
    assert found == list(range(25)) and source.opened == 1


@pytest.mark.parametrize(
    ("batches", "said"), [((10, 10, 4), "fewer"), ((10, 10, 6), "more"), ((25, 0, 1), "more"), ((26,), "more")]
)
def test_rows_that_went_away_or_came(batches: tuple[int, ...], said: str) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(SourceError, match=f"{said} rows than when the source was made"):
        Lines(*batches).map_reduce(lambda block, number: len(block), operator.add)


def test_streams_hold_a_block_at_a_time() -> None:
    pa = pytest.importorskip("pyarrow")

    class Wide(StreamedBlocks):
        sizes = (1 << 17,) * 20

        def _open(self) -> Iterator[Any]:
            for _ in self.sizes:
                yield pa.RecordBatch.from_arrays([pa.array(np.ones(1 << 17))], names=["x"])

    held: list[int] = []
    Wide().map_reduce(lambda block, number: held.append(pa.total_allocated_bytes()) or 1, operator.add)
    assert max(held) <= 3 * 8 * (1 << 17) + min(held)


# ------------------------------------------------------------------ schemas, refused when the source is made
def test_schemas_that_change(tmp_path: Path) -> None:
    table = frame(20)
    with pytest.raises(SpecificationError, match="block 1 has other columns"):
        MemoryBlocks([table, table[COLUMNS[:2]]])
    with pytest.raises(SpecificationError, match="other columns"):
        MemoryBlocks([np.zeros((2, 3)), np.zeros((2, 4))])
    with pytest.raises(SpecificationError, match="no blocks"):
        MemoryBlocks([])


def test_parquet_schemas(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from dpmodel.marks.row_sources import ParquetBlocks

    table, first, second = frame(20), tmp_path / "1.parquet", tmp_path / "2.parquet"
    table.to_parquet(first, index=False)
    for other in (table.rename(columns={"a": "z"}), table.astype({"a": "float32"}), table[COLUMNS[::-1]]):
        other.to_parquet(second, index=False)
        with pytest.raises(SourceError, match="another schema"):
            ParquetBlocks([first, second])
    with pytest.raises(SpecificationError, match="'z' is not in"):
        ParquetBlocks(first, columns=["z"])
    with pytest.raises(SpecificationError, match="no parquet"):
        ParquetBlocks([])
    second.write_bytes(SECRET.encode() * 100)
    for path in (second, tmp_path / "none.parquet"):
        with pytest.raises(SourceError, match="cannot be read as parquet") as caught:
            ParquetBlocks(path)
        assert SECRET not in str(caught.value) and caught.value.__context__ is None


def test_a_file_that_breaks_after_it_was_opened(tmp_path: Path) -> None:
    source = _parquet(tmp_path, frame())
    path = tmp_path / "2.parquet"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SourceError, match="could not be read"):
        source.map_reduce(sums, both)


def test_a_cluster_adds_in_the_order_of_every_other_source() -> None:
    da = pytest.importorskip("dask.array")
    from dpmodel.marks.row_sources import DaskBlocks

    for count in (1, 2, 7, 8, 9, 73):
        source = DaskBlocks(da.zeros((count, 1), chunks=(1, 1)))
        found = source.map_reduce(lambda block, number: str(number), lambda a, b: f"({a} {b})")
        assert found == in_order(map(str, range(count)), lambda a, b: f"({a} {b})")


def test_dask_collections(tmp_path: Path) -> None:
    dd, da = pytest.importorskip("dask.dataframe"), pytest.importorskip("dask.array")
    from dask import delayed

    from dpmodel.marks.row_sources import DaskBlocks

    table = frame(40)
    array = DaskBlocks(da.from_array(table.to_numpy(), chunks=(9, 3)))
    assert array.sizes == (9, 9, 9, 9, 4)
    found = array.map_reduce(lambda block, number: block.sum(axis=0), operator.add)
    np.testing.assert_allclose(found, table.to_numpy().sum(axis=0))
    for wrong in (da.from_array(table.to_numpy(), chunks=(9, 2)), table):
        with pytest.raises(SpecificationError):
            DaskBlocks(wrong)
    later = [delayed(table), delayed(table.rename(columns={"a": "z"}))]
    turning = DaskBlocks(dd.from_delayed(later, meta=table, verify_meta=False))
    with pytest.raises(SourceError, match="block 1 has other columns"):
        turning.map_reduce(sums, both)
    gone = DaskBlocks(dd.from_pandas(table, npartitions=2))
    gone._parts[1] = delayed(lambda: reduce(operator.truediv, [1, 0]))()
    with pytest.raises(SourceError, match="did not answer") as caught:
        gone.map_reduce(sums, both)
    assert "ZeroDivisionError" in str(caught.value) and caught.value.__context__ is None


@pytest.mark.parametrize(
    ("module", "extra", "make"),
    [
        ("pyarrow.parquet", "data", lambda: row_sources.ParquetBlocks("x.parquet")),
        ("duckdb", "data", lambda: Dataset.scan("x.csv")),
        ("dask", "dask", lambda: row_sources.DaskBlocks(None)),
        ("pyspark", "spark", lambda: row_sources.SparkBlocks(None)),
    ],
)
def test_engines_that_are_not_there(module: str, extra: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(row_sources, "import_module", missing)
    with pytest.raises(MissingExtraError, match=rf'pip install "\.\[{extra}\]"'):
        make()
