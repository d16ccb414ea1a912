"""What a ``Dataset`` releases itself: numbers with an interval each, as public data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpmodel._types import Floats, Labels
from dpmodel.errors import SpecificationError
from dpmodel.text import PlainData, TextTable, interval_ends, long_frame, number, part, rounded, wrapped

_ROWS = 20  # that are printed


def check_level(level: Any, where: str = "intervals", least: float = 0.0) -> float:
    """``level`` as a number above 0, from ``least`` to below 1. ``where`` : the method, in the message."""
    good = isinstance(level, int | float | np.floating) and not isinstance(level, bool)
    if not good or not max(least, 1e-9) <= level < 1 - 1e-9:
        raise SpecificationError(
            f"{where}: level is not a number between {number(least)} and 1",
            why="it is the probability that an interval holds its number",
            remedy="level=0.95",
        )
    return float(level)


@dataclass(frozen=True, eq=False, repr=False)
class Estimates(PlainData):
    """Released numbers: public data, which costs nothing more. It works as an array in NumPy, one number as a float.

    ``value``, ``lower``, ``upper`` : (shape) the numbers and the ends of an interval for each; an end is infinite where
    nothing is said. ``level`` : with which probability an interval holds its number of the table (noise is meant: how
    far a table is from its population is not in it). ``labels`` : per axis its name and its categories.
    ``statement`` : what is proved, or estimated, of the errors. ``epsilon``, ``delta``, ``neighbors``, ``record`` :
    what the release cost, and whose records it protects. ``notes`` : remarks for people.
    """

    name: str
    value: Floats
    lower: Floats
    upper: Floats
    level: float
    statement: str
    epsilon: float
    delta: float
    neighbors: str
    record: str
    labels: Labels = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("value", "lower", "upper"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array[()])  # one number is a scalar, which can be rounded
        labels = tuple((axis, tuple(categories)) for axis, categories in self.labels)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "notes", tuple(self.notes))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.value, dtype=dtype)

    def __float__(self) -> float:
        if self.value.size != 1:
            raise SpecificationError(
                f"{self.name}: {self.value.size} numbers as one", remedy="value, or an entry of it"
            )
        return float(self.value.item())

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value.tolist())

    def __getitem__(self, category: Any) -> float:
        """The number of a category, where there is one axis; of a tuple of them, where there are more."""
        wanted = category if isinstance(category, tuple) and len(self.labels) > 1 else (category,)
        try:
            places = [kinds.index(each) for each, (_, kinds) in zip(wanted, self.labels, strict=True)]
        except ValueError:
            axes = " and ".join(str(axis) for axis, _ in self.labels) or "axes with names"
            raise SpecificationError(f"{self.name}: no such entry", remedy=f"a category of {axes}, or value") from None
        return float(self.value[tuple(places)])

    def to_frame(self, *, backend: str = "pandas") -> Any:
        """A data frame with a row per number: ``value``, ``lower``, ``upper``; errors as ``Noisy.to_frame``."""
        return long_frame({"value": self.value, "lower": self.lower, "upper": self.upper}, self.labels, backend)

    @classmethod
    def _of(cls, data: Any) -> Self:
        kinds: dict[str, Any] = {"level": float, "epsilon": float, "delta": float}
        kinds |= dict.fromkeys(("name", "statement", "neighbors", "record"), str)
        found = {name: part(kind, data, name) for name, kind in kinds.items()}
        found |= {name: np.array(data[name], dtype=np.float64) for name in ("value", "lower", "upper")}
        return cls(**found, labels=part(Any, data, "labels"), notes=part(tuple[str, ...], data, "notes"))

    @property
    def cost(self) -> str:
        """What the release cost, in words."""
        if np.isnan(self.epsilon):  # published by others, who did not say
            return self.record
        amount = f"epsilon = {number(self.epsilon)}" + (f", delta = {number(self.delta)}" if self.delta else "")
        return f"{amount}, {self.neighbors} neighbors; {self.record}"

    def _rows(self) -> list[tuple[Any, ...]]:
        """Categories, number, and the interval in words."""
        rows = []
        for place in np.ndindex(self.value.shape):
            named = zip(place, self.labels, strict=True) if self.labels else ()
            low, high = self.lower[place], self.upper[place]
            between = "" if np.isinf(low) and np.isinf(high) else " to ".join(interval_ends(low, high))
            value = rounded(self.value[place], high - low)
            rows.append((*(kinds[i] if kinds else i for i, (_, kinds) in named), value, between))
        return rows

    def __str__(self) -> str:
        rows, share = self._rows(), f"{number(100 * self.level)} %"
        cost = [f"cost: {self.cost}"] if self.cost else []
        remarks = [*self.notes, *([self.statement] if self.statement else []), *cost]
        below = [wrapped(line, "  ", "  ") for line in remarks]
        if not self.labels:
            between = f" ({share}: {rows[0][-1]})" if rows[0][-1] else ""
            return "\n".join([f"{self.name}: {rows[0][0]}{between}", *below])
        more = [f"  ... and {len(rows) - _ROWS} more: to_frame()"] * (len(rows) > _ROWS)
        return "\n".join([str(self._table(rows[:_ROWS], share)), *more, *below])

    def _table(self, rows: list[tuple[Any, ...]], share: str) -> TextTable:
        spoken = any(row[-1] for row in rows)
        columns = (*(str(axis) for axis, _ in self.labels), self.name, *([share] if spoken else []))
        return TextTable(columns, rows if spoken else [row[:-1] for row in rows])

    def _repr_html_(self) -> str:
        rows, share = self._rows(), f"{number(100 * self.level)} %"
        return self._table(rows[:_ROWS], share)._repr_html_() + f"<p>{self.cost}</p>"

    def __repr__(self) -> str:
        return f"<{self.name}: {self.value.size} number{'s' * (self.value.size != 1)}, epsilon={number(self.epsilon)}>"
