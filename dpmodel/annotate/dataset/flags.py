"""Who has what, as a table of flags with a row per person: made in the engine, so that rows can stay in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw

from dpmodel.annotate.dataset.reading import WHO


@dataclass(frozen=True)
class Flags:
    """One column of zeros and ones for every one of ``count`` items, whose places stand in the column ``item``.
    ``most`` : items of one person, the first in the list, that count (None: all)."""

    item: str
    count: int
    most: int | None

    @property
    def names(self) -> list[str]:
        return [f"item {place}" for place in range(self.count)]

    def of(self, pairs: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The flags of every person in ``pairs``, distinct rows of person and item; items that are not listed are
        nobody's, and persons without any have zeros alone."""
        item, one = nw.col(self.item), "one"
        known = pairs.filter(~nw.col(WHO).is_null()).with_columns((item >= 0).cast(nw.Int64).alias(one))
        if self.most is not None:
            known = known.with_columns(nw.col(one).cum_sum().over(WHO, order_by=self.item))
        counts = (nw.col(one) <= self.most) if self.most is not None else nw.lit(True)
        flags = [((item == place) & counts).cast(nw.Int8).alias(name) for place, name in enumerate(self.names)]
        return known.with_columns(*flags).group_by(WHO).agg(*(nw.col(name).max() for name in self.names))

    def none(self, pairs: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The same of nobody."""
        return pairs.select(WHO, *(nw.lit(0).cast(nw.Int8).alias(name) for name in self.names))

    def numbers(self, block: Any) -> tuple[Any, ...]:
        """The columns of a block of the table, (n,) small whole numbers each."""
        frame = nw.from_native(block, eager_only=True)
        return tuple(frame[name].to_numpy() for name in self.names)
