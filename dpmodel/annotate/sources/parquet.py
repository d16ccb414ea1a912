"""Rows in parquet files, read a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dpmodel.annotate.sources._extra import engine
from dpmodel.annotate.sources.streams import ROWS, StreamedBlocks
from dpmodel.errors import SourceError, SpecificationError, unsaid

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
