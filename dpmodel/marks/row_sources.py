"""Rows in blocks, wherever they lie: in memory, in files, with Dask or Spark, or with an engine of narwhals."""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import narwhals as nw
import numpy as np

from dpmodel.errors import MissingExtraError, SourceError, SpecificationError, install, unsaid
from dpmodel.marks.rows import Failed, RowSource, column_names, handed_out, in_order, joined, numbers, worked


def engine(module: str, extra: str) -> Any:
    """The module, or an error that names its extra."""
    try:
        return import_module(module)
    except ImportError:
        pass
    raise MissingExtraError(
        f"{module.partition('.')[0]} is not installed",
        why="rows are read by the engine that holds them",
        remedy=install(extra),
    )


# ---- Blocks in this process's memory: frames that were read already, or an array in parts


T = TypeVar("T")


class MemoryBlocks(RowSource):
    """``blocks`` : eager data frames of the same columns, or arrays of the same width."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self.blocks = list(blocks)
        if not self.blocks:
            raise SpecificationError("no blocks", why="a table has at least one", remedy="a list of data frames")
        self.columns = column_names(self.blocks[0])
        for number, block in enumerate(self.blocks):
            if column_names(block) != self.columns or block.shape[1:] != self.blocks[0].shape[1:]:
                raise SpecificationError(
                    f"block {number} has other columns than the first",
                    why="a table has the same columns throughout",
                    remedy="frames of the same columns in the same order",
                )

    @classmethod
    def of(cls, table: Any, rows: int) -> MemoryBlocks:
        """An array or frame in parts of so many ``rows``."""
        return cls([table[at : at + rows] for at in range(0, len(table), rows)])

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.blocks))

    def map_reduce(self, function: Callable[[Any, int], T], combine: Callable[[T, T], T]) -> T:
        each = (
            worked(function, lambda number=number: self.blocks[number], number, tries=1)  # type: ignore[misc]
            for number in numbers(len(self.blocks))
        )
        return handed_out(in_order(each, partial(joined, combine)))


# ---- Blocks that an engine hands out one after the other, so that only one of them is in memory


# Rows of a block: tens of megabytes for tens of columns.
ROWS = 1 << 18


class StreamedBlocks(RowSource):
    """Record batches of an engine, cut to blocks of the declared sizes: pyarrow tables."""

    @abstractmethod
    def _open(self) -> Iterator[Any]:
        """Record batches of all rows, in the same order every time."""

    def map_reduce(self, function: Callable[[Any, int], T], combine: Callable[[T, T], T]) -> T:
        stream = _Stream(self._open, self.sizes)
        each = (worked(function, partial(stream.block, number), number) for number in numbers(len(self.sizes)))
        return handed_out(in_order(each, partial(joined, combine)))


class _Stream:
    """The blocks in order; a block that is asked for again is read anew, from the first row on."""

    def __init__(self, opened: Callable[[], Iterator[Any]], sizes: Sequence[int]) -> None:
        self._opened, self._sizes = opened, sizes
        self._blocks: Iterator[Any] = iter(())
        self._next = len(sizes)

    def block(self, number: int) -> Any:
        if self._next != number:
            self._blocks, self._next = cut(self._opened(), self._sizes), 0
        while self._next < number:
            next(self._blocks)
            self._next += 1
        self._next = len(self._sizes)  # if what follows fails, nothing is known of the stream
        block: Any = next(self._blocks)
        self._next = number + 1
        return block


def cut(batches: Iterator[Any], sizes: Sequence[int]) -> Iterator[Any]:
    """Tables of these sizes out of record batches of any."""
    pyarrow = engine("pyarrow", "data")
    waiting: list[Any] = []
    for place, size in enumerate(sizes):
        while sum(len(each) for each in waiting) < size:
            batch = next(batches, None)
            if batch is None:
                raise _changed("fewer")
            waiting.append(batch)
        whole = pyarrow.Table.from_batches(waiting)
        waiting = whole.slice(size).to_batches()
        if place + 1 == len(sizes) and any(map(len, itertools.chain(waiting, batches))):
            raise _changed("more")
        yield whole.slice(0, size)
        del whole


def _changed(how: str) -> SourceError:
    return SourceError(
        f"{how} rows than when the source was made",
        why="the number of rows is public, and the same in every pass",
        remedy="the Dataset made anew, of a file that nobody writes to",
    )


# ---- Rows in parquet files, read a block at a time


_AHEAD = 1 << 16  # bytes of a column


class ParquetBlocks(StreamedBlocks):
    """``paths`` : one file or several of the same schema, in this order. ``columns`` : those that are read (all).
    ``rows`` : most rows in a block, of which memory takes a few times its size. ``read`` : what is made of each batch,
    a table of as many rows; None: the batch itself.

    Sizes come from the files' own tables of contents; no record is read for them.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        columns: Sequence[str] | None = None,
        rows: int = ROWS,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        self._parquet = engine("pyarrow.parquet", "data")
        self.paths = [Path(each) for each in ([paths] if isinstance(paths, str | Path) else paths)]
        self.columns, self.rows, self.read = None if columns is None else list(columns), rows, read
        metadata = [self._of(path) for path in self.paths]
        if not metadata or rows < 1:
            raise SpecificationError("no parquet files, or blocks without rows", remedy="paths=[...], rows=100_000")
        schemas = [each.schema.to_arrow_schema() for each in metadata]
        for path, schema in zip(self.paths, schemas, strict=True):
            if not schema.equals(schemas[0]):
                raise SourceError(
                    f"{path.name} has another schema than {self.paths[0].name}",
                    why="a table has the same columns, of the same types, throughout",
                    remedy="files of one schema",
                )
        missing = [each for each in self.columns or () if each not in schemas[0].names]
        if missing:
            raise SpecificationError(f"column {missing[0]!r} is not in {self.paths[0].name}", remedy="columns it has")
        count = sum(each.num_rows for each in metadata)
        self._sizes = tuple(min(rows, count - at) for at in range(0, count, rows))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._sizes

    def _of(self, path: Path) -> Any:
        return unsaid(
            lambda: self._parquet.read_metadata(path),
            lambda failed: SourceError(
                f"{path.name} cannot be read as parquet", why=failed, remedy="the path of a parquet file"
            ),
        )

    def _open(self) -> Iterator[Any]:
        for path in self.paths:
            # Otherwise a whole row group, or file, is read ahead.
            with self._parquet.ParquetFile(path, pre_buffer=False, buffer_size=_AHEAD) as file:
                for batch in file.iter_batches(batch_size=self.rows, columns=self.columns):
                    # A name is a path there, of which "a.b" is a part of "a".
                    chosen = batch if self.columns is None else batch.select(self.columns)
                    if self.read is None:
                        yield chosen
                    else:
                        yield from self.read(engine("pyarrow", "data").Table.from_batches([chosen])).to_batches()


# ---- Rows of a Dask collection: blocks stay on the workers, and sums come back


# Sums that one task combines, a power of two: the tree is that of ``in_order`` over all parts, with fewer tasks, each
# of which costs the scheduler a millisecond.
_TOGETHER = 8


class DaskBlocks(RowSource):
    """``collection`` : a Dask data frame, or an array in chunks of whole rows; persist it where a pass should not read
    it anew.

    A partition is a block. Tasks end with a sum or with words, never with an error that carries what a worker holds.
    Sums meet on the workers, in a tree that is the same whatever ends first; a task that is run again on another worker
    takes the place of the first.
    """

    def __init__(self, collection: Any) -> None:
        self._dask, self._distributed = engine("dask", "dask"), engine("distributed", "dask")
        made = getattr(collection, "to_delayed", None)
        if made is None:
            raise SpecificationError(
                f"a collection of type {type(collection).__name__}", remedy="a Dask data frame or array"
            )
        parts = np.asarray(made(), dtype=object)
        if parts.ndim > 1 and parts.size != parts.shape[0]:
            raise SpecificationError(
                "a Dask array in chunks of columns", why="a block holds whole records", remedy="rechunk({1: -1})"
            )
        self._parts = list(parts.ravel())
        self.columns = column_names(collection)
        lengths = self._dask.delayed(_length, pure=False)
        found = self._answer(self._dask.delayed(list)([lengths(part) for part in self._parts]))
        self._sizes = tuple(int(each) for each in found)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._sizes

    @property
    def trusted(self) -> str:
        return "the Dask workers see the rows, and only sums leave them, which are noised here"

    def map_reduce(self, function: Callable[[Any, int], T], combine: Callable[[T, T], T]) -> T:
        # Names of tasks are drawn anew, so that no scheduler takes an answer for another pass's.
        work, join = (self._dask.delayed(each, pure=False) for each in (_on_worker, _joined_in_order))
        sums = [work(function, part, number, self.columns) for number, part in enumerate(self._parts)]
        while len(sums) > 1:
            sums = [join(combine, sums[start : start + _TOGETHER]) for start in range(0, len(sums), _TOGETHER)]
        found: T | Failed = self._answer(sums[0])
        return handed_out(found)

    def _client(self) -> Any:
        """The client of this thread, or None where Dask computes in this process."""
        try:
            return self._distributed.get_client()
        except ValueError:
            return None

    def _answer(self, task: Any) -> Any:
        def computed() -> Any:
            client = self._client()
            return task.compute() if client is None else client.compute(task, retries=2).result()

        return unsaid(
            computed,
            lambda failed: SourceError(
                "the Dask cluster did not answer",
                why=f"it ended with {failed}",
                remedy="its own dashboard and logs, and then another source",
            ),
        )


def _on_worker(function: Callable[[Any, int], T], block: Any, number: int, columns: Any) -> T | Failed:
    return worked(function, partial(_same, block), number, columns)


def _joined_in_order(combine: Callable[[T, T], T], sums: list[T | Failed]) -> T | Failed:
    return in_order(sums, partial(joined, combine))


def _same(block: Any) -> Any:
    return block


def _length(block: Any) -> int:
    return len(block)


# ---- Rows of a PySpark data frame: blocks stay with the executors, and sums come back


class SparkBlocks(RowSource):
    """``frame`` : a PySpark data frame whose partitions hold the same rows in every pass (files, or persisted ones).

    A partition is a block, a pandas frame. One answer of each is taken, however often Spark ran it; answers are
    combined here, in the order of the partitions.
    """

    def __init__(self, frame: Any) -> None:
        engine("pyspark", "spark")
        self._frame = frame
        self.columns = [str(name) for name in frame.columns]
        counts = self._answers(partial(_work, _counted, self.columns))
        self._sizes = tuple(handed_out(each) for each in counts)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._sizes

    @property
    def trusted(self) -> str:
        return "the Spark executors see the rows, and only sums leave them, which are noised here"

    def map_reduce(self, function: Callable[[Any, int], T], combine: Callable[[T, T], T]) -> T:
        found: list[T | Failed] = self._answers(partial(_work, function, self.columns))
        return handed_out(in_order(iter(found), partial(joined, combine)))

    def _answers(self, work: Callable[[Iterator[Any]], Iterator[Any]]) -> list[Any]:
        def told(failed: str) -> SourceError:
            remedy = "Spark's own logs, and then another source"
            return SourceError("Spark did not answer", why=f"it ended with {failed}", remedy=remedy)

        rows = unsaid(lambda: self._frame.mapInPandas(work, "block long, answer binary").collect(), told)
        answers = {int(row.block): bytes(row.answer) for row in rows}
        if len(answers) != len(rows) or sorted(answers) != list(range(len(rows))):
            raise told("partitions that were answered for twice, or not at all")
        return [pickle.loads(answers[number]) for number in range(len(rows))]


def _work(function: Callable[[Any, int], T], columns: Sequence[str], batches: Iterator[Any]) -> Iterator[Any]:
    """On an executor: the answer of one partition, as one row."""
    import pandas
    from pyspark import TaskContext, cloudpickle

    number = TaskContext.get().partitionId()
    frames = list(batches)

    def whole() -> Any:
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(columns=list(columns))

    answer: T | Failed = worked(function, whole, number, columns)
    yield pandas.DataFrame({"block": [number], "answer": [cloudpickle.dumps(answer)]})


def _counted(block: Any, number: int) -> int:
    return len(block)


_OPEN = Path("/proc/self/fd")  # files that this process has open, where the system tells (Linux)


def blocks_of(frame: nw.LazyFrame[Any] | nw.DataFrame[Any], columns: Sequence[str], engine: str) -> RowSource:
    """Blocks of a frame that narwhals speaks; ``engine`` : the name of its module."""
    chosen = frame.select(*columns)
    native = chosen.to_native()
    if engine == "pyspark":
        return SparkBlocks(native)
    if isinstance(chosen, nw.DataFrame):
        return MemoryBlocks.of(native, ROWS)
    # A query may hand out its rows in another order every time. Written once, they stay where they are.
    folder = tempfile.TemporaryDirectory(prefix="dpmodel-")  # for this user only
    path = Path(folder.name) / "rows.parquet"
    if engine == "polars":
        native.sink_parquet(path)
    else:
        native.to_parquet(str(path))
    if not _OPEN.exists():
        source = ParquetBlocks(path)
        weakref.finalize(source, folder.cleanup)
        return source
    # A file without a name is gone with the process, however that ends.
    number = os.open(path, os.O_RDONLY)
    folder.cleanup()
    source = ParquetBlocks(_OPEN / str(number))
    weakref.finalize(source, os.close, number)
    return source


# ---- DuckDB, whose rows that do not fit into memory are written where nobody else can read them
#
# Left alone, DuckDB writes them to ``.tmp`` in the working directory, readable by everybody, and leaves them there when
# the process is killed. The folder here is this user's alone (mode 0700), and is removed when the process ends; what a
# killed process leaves stays unreadable to others.


_BESIDE = ".tmp"  # where DuckDB writes by default: this, or the name of the database's file with it


def connected() -> Any:
    """A connection to a new database in memory."""
    return engine("duckdb", "data").connect(config={"temp_directory": _folder().name})


def settled(relation: Any) -> Any:
    """A relation of the user's own connection, which from now on writes to the private folder, unless somebody chose
    another one.
    Errors: SpecificationError, where the connection has written already, so that its folder cannot be changed."""
    ((folder,),) = relation.query("r", "select current_setting('temp_directory')").fetchall()
    files = relation.query("r", "select path from duckdb_databases() where path is not null").fetchall()
    if folder not in (_BESIDE, *(f"{file}{_BESIDE}" for (file,) in files)):
        return relation
    failed = ""
    try:
        relation.query("r", "set temp_directory='" + _folder().name.replace("'", "''") + "'")
    except Exception as error:
        failed = type(error).__name__
    if failed:
        raise SpecificationError(
            f"Dataset: DuckDB writes rows to {folder!r}, readable by everybody, and does not change that ({failed})",
            why="what does not fit into memory is written to files, which may outlive the process",
            remedy="duckdb.connect(config={'temp_directory': a folder of yours alone, or ''}) before the first query",
        )
    return relation


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dpmodel-")
