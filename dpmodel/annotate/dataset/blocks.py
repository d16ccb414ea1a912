"""Rows of a table that stay where they are: as blocks of a file, of a cluster, or of a temporary file."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import narwhals as nw

from dpmodel.annotate.sources.contract import RowSource
from dpmodel.annotate.sources.memory import MemoryBlocks
from dpmodel.annotate.sources.parquet import ParquetBlocks
from dpmodel.annotate.sources.spark import SparkBlocks
from dpmodel.annotate.sources.streams import ROWS

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
