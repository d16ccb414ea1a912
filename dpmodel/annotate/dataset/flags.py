"""Who has what, as a table of flags with a row per person: made in the engine, so that rows can stay in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw

from dpmodel.annotate.dataset.held import held
from dpmodel.annotate.elements import key


@dataclass(frozen=True)
class Flags:
    """One column of zeros and ones for every one of the ``items``; ``most`` : items of one person, the first in their
    own order, that count (None: all)."""

    person: str
    item: str
    items: tuple[Any, ...]
    most: int | None

    @property
    def names(self) -> list[str]:
        return [f"item {place}" for place in range(len(self.items))]

    def of(self, pairs: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The flags of every person in ``pairs``, distinct rows of person and item; items that are not listed are
        nobody's, and persons without any have zeros alone."""
        given, dtype = nw.col(self.item), pairs.collect_schema()[self.item]
        known = {place: given == value for place, value in held(self.items, dtype)}
        missing = given.is_null() | (given.is_nan().fill_null(True) if dtype.is_float() else nw.lit(False))
        absent = {place: missing for place, value in enumerate(self.items) if key(value) == key(None)}
        nothing = nw.lit(False)
        flags = [
            (known | absent).get(place, nothing).fill_null(False).alias(name) for place, name in enumerate(self.names)
        ]
        flagged = pairs.filter(~nw.col(self.person).is_null()).with_columns(*flags)
        if self.most is not None:
            order, place = "item as text", "place of the item"
            listed = dtype in (nw.Categorical, nw.Enum)  # sort by their place in a list that others may decide
            ranked = flagged.with_columns(
                nw.any_horizontal(*map(nw.col, self.names), ignore_nulls=True).cast(nw.Int64).alias(place),
                (given.cast(nw.String) if listed else given).alias(order),
            ).with_columns(nw.col(place).cum_sum().over(self.person, order_by=order))
            flagged = ranked.with_columns(
                *((nw.col(name) & (nw.col(place) <= self.most)).alias(name) for name in self.names)
            )
        numbers = flagged.select(self.person, *(nw.col(name).cast(nw.Int8) for name in self.names))
        return numbers.group_by(self.person).agg(*(nw.col(name).max() for name in self.names))

    def none(self, pairs: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The same of nobody."""
        return pairs.select(self.person, *(nw.lit(0).cast(nw.Int8).alias(name) for name in self.names))

    def numbers(self, block: Any) -> tuple[Any, ...]:
        """The columns of a block of the table, (n,) small whole numbers each."""
        frame = nw.from_native(block, eager_only=True)
        return tuple(frame[name].to_numpy() for name in self.names)
