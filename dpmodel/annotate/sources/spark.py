"""Rows of a PySpark data frame: blocks stay with the executors, and sums come back."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from dpmodel.annotate.sources._extra import engine
from dpmodel.annotate.sources.contract import RowSource, in_order
from dpmodel.annotate.sources.one_block import Failed, handed_out, joined, worked
from dpmodel.errors import SourceError, unsaid

T = TypeVar("T")


class SparkBlocks(RowSource):
    """``frame`` : a PySpark data frame whose partitions hold the same rows in every pass (files, or persisted ones).

    A partition is a block, a pandas frame. One answer of each is taken, however often Spark ran it; answers are
    combined here, in the order of the partitions.
    """

    def __init__(self, frame: Any) -> None:
        engine("pyspark", "spark")
        self._frame = frame
        self.columns = [str(name) for name in frame.columns]
        counts = self._answers(partial(_work, _length, self.columns))
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


def _length(block: Any, number: int) -> int:
    return len(block)
