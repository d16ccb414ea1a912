"""How a table is read: every cell by itself, by what was declared of its column.

Privacy: what a cell means is a function of the cell and of public declarations. No type, order or list of categories of
a column takes part, because engines infer those from all cells, and one record could decide how all others are read.
So the same value is the same in every type that a column may have taken: 3, 3.0, True + 2 and " 3.0" are the number 3,
a day is its midnight. A cell that cannot be read as declared is missing. Columns that are neither declared nor named in
``order`` are not read at all.
"""

from __future__ import annotations

import datetime
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, TypeVar

import narwhals as nw
import numpy as np

from dpmodel.marks.domain import elements, key
from dpmodel.marks.row_sources import connected

WHO = "who"  # the column that says whose row it is
_TEXT = (nw.String, nw.Categorical, nw.Enum, nw.Unknown)  # of types that narwhals has no name for, engines make text
_LAST = "\U0010ffff"  # after every text
_MOST = 2.0**1023  # larger integers have no floats
_BLANK = " \t\r\n"
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?\Z")
_UTC = (None, "UTC", "Etc/UTC")
_INSTANT = re.compile(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]+)?$")
_WORDS = ({"false", "False", "FALSE"}, {"true", "True", "TRUE"})

Frame = TypeVar("Frame", nw.DataFrame[Any], nw.LazyFrame[Any])


@dataclass(frozen=True)
class Numbers:
    """A column of finite numbers; what is none is missing.

    ``integer`` : they are rounded to integers. ``decimal`` : what text has before a fraction, "." or ",".
    """

    integer: bool = False
    decimal: str = "."

    dtype: ClassVar[Any] = nw.Float64

    @property
    def _pattern(self) -> str:
        point = re.escape(self.decimal)
        return rf"^[{_BLANK}]*[+-]?(?:[0-9]+{point}?[0-9]*|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?[{_BLANK}]*$"

    def cell(self) -> Callable[[Any], float]:
        """cell -> number, NaN where it is missing."""
        written, integer, decimal = re.compile(self._pattern), self.integer, self.decimal

        def read(value: Any) -> float:
            found, value = math.nan, _text_of(value)
            if isinstance(value, np.generic) and value.dtype.kind not in "mM":
                value = value.item()
            if isinstance(value, complex) and value.imag == 0:
                value = value.real
            if isinstance(value, str):
                word = next((float(k) for k in (0, 1) if value in _WORDS[k]), math.nan)
                found = float(value.replace(decimal, ".")) if written.match(value) else word
            elif isinstance(value, numbers.Real | Decimal) and not isinstance(value, np.timedelta64):
                try:
                    found = float(value)
                except (OverflowError, ValueError):
                    found = math.nan
            if not math.isfinite(found):
                return math.nan
            return float(np.floor(found + 0.5)) if integer else found

        return read

    def expression(self, given: nw.Expr, dtype: Any) -> nw.Expr:
        """The same of a column of a type; null where it is missing."""
        if dtype in _TEXT:
            text = given.cast(nw.String)
            number: nw.Expr = nw.when(text.str.contains(self._pattern)).then(text.str.strip_chars(_BLANK))
            if self.decimal != ".":
                number = number.str.replace_all(self.decimal, ".", literal=True)
            number = number.cast(nw.Float64)
            for k in (0, 1):  # files have words for truths, unless all cells of the column are one
                number = nw.when(text.is_in(sorted(_WORDS[k]))).then(nw.lit(float(k))).otherwise(number)
        elif dtype == nw.Int64:
            # In two halves, each exact, because pyarrow refuses a column with an integer that no float is.
            half = 2**32
            upper = given // half  # and no %, which pandas' columns of pyarrow do not have
            number = upper.cast(nw.Float64) * float(half) + (given - upper * half).cast(nw.Float64)
        elif dtype.is_numeric() or dtype == nw.Boolean:
            number = _floats(given, dtype)
        else:
            number = nw.lit(None).cast(nw.Float64)
        found = nw.when(number.is_finite()).then(number)
        return (found + 0.5).floor() if self.integer else found


@dataclass(frozen=True)
class Categories:
    """A column of ``listed`` categories, as their places in the list; -1 for what is none of them.

    A cell is the category that equals it. Where none does, it is the one that is written like it: as the same number,
    truth, day or text. Where two are, it is neither.
    """

    listed: tuple[Any, ...]
    decimal: str = "."

    dtype: ClassVar[Any] = nw.Int64

    def _places(self) -> tuple[dict[Any, int], dict[str, int]]:
        """{key of a value that is no text: place}, {text: place}."""
        values = {key(_plain(each)): place for place, each in enumerate(self.listed) if not isinstance(each, str)}
        texts = {each: place for place, each in enumerate(self.listed) if isinstance(each, str)}
        number = Numbers(decimal=self.decimal).cell()
        _fill(values, ((_other_value(text, number), place) for text, place in texts.items()))
        spelled = [(text, place) for place, each in enumerate(self.listed) for text in _spelled(each)]
        words = [(word, values[k]) for k in (0, 1) if k in values for word in _WORDS[k]]
        _fill(texts, [*spelled, *words])
        return values, texts

    def cell(self) -> Callable[[Any], int]:
        """cell -> place."""
        values, texts = self._places()
        number = Numbers(decimal=self.decimal).cell()

        def read(value: Any) -> int:
            if isinstance(value, bytes) and key(value) in values:
                return values[key(value)]
            value = _text_of(value)
            if isinstance(value, str):
                place = texts.get(str(value))
                return values.get(number(value), -1) if place is None else place
            value = _plain(value)
            if type(value).__name__ == "Interval":
                value = key(value) if key(value) in values else str(value)
                return texts.get(value, -1) if isinstance(value, str) else values[value]
            return values.get(key(value), -1)

        return read

    def expression(self, given: nw.Expr, dtype: Any, told: nw.Expr | None = None) -> nw.Expr:
        """The same of a column of a type; ``told`` : ``query`` of it, if it is text."""
        values, texts = self._places()
        absent = values.get(key(None), -1)
        reals: dict[Any, int] = {v: place for v, place in values.items() if isinstance(v, numbers.Real)}
        floats = {float(v): p for v, p in reals.items() if abs(v) < _MOST or isinstance(v, float)}
        floats = {v: p for v, p in floats.items() if v in values}  # not 1 / 3, nor integers that no float is
        missing = given.is_null()
        if dtype in _TEXT:
            place = _switched(given.cast(nw.String), texts) if told is None else told
            if floats:
                number = Numbers(decimal=self.decimal).expression(given, dtype)
                place = nw.when(place >= 0).then(place).otherwise(_switched(number, floats))
        elif dtype == nw.UInt64:  # as text: pyarrow refuses a column with an integer beyond 2^63
            place = _switched(given.cast(nw.String), {str(int(v)): p for v, p in reals.items() if _fits(v, dtype)})
        elif dtype == nw.Boolean or dtype.is_integer():
            column = given.cast(nw.Int64) if dtype == nw.Boolean else given
            place = _switched(column, {int(v): p for v, p in reals.items() if _fits(v, dtype)})
        elif dtype.is_float() or dtype.is_decimal():
            number = _floats(given, dtype) + 0.0  # pyarrow tells -0 from 0
            place = _switched(number, floats)
            missing = missing | number.is_nan().fill_null(True)
        else:
            place = _switched(given, self._of_type(values, dtype))
        return nw.when(missing).then(nw.lit(absent)).otherwise(place).cast(nw.Int64)

    def query(self, column: str) -> str:
        """Places of texts in DuckDB's words: narwhals's own compare a cell with every category."""
        texts = self._places()[1]
        listed = ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
        code = f"enum_code(try_cast(cast({column} as varchar) as enum({listed}))) + 1"
        return f"coalesce(list_extract({[*texts.values()]}, {code}), -1)::bigint" if texts else "-1::bigint"

    def _of_type(self, values: Mapping[Any, int], dtype: Any) -> dict[Any, int]:
        """{value of this type of times or bytes: place}."""
        if dtype in (nw.Date, nw.Datetime, nw.Duration):
            given = [*self.listed, *(datetime.datetime.fromisoformat(c) for c in self.listed if _is_time(c))]
        else:
            kind = bytes if dtype == nw.Binary else datetime.time if dtype == nw.Time else ()
            given = [c for c in self.listed if isinstance(c, kind)]
        typed = ((_in_type(each, dtype), key(each)) for each in given)
        return {v: values[k] for v, k in typed if v is not None and key(v) == k and k in values}


Kind = Numbers | Categories


@dataclass(frozen=True)
class Order:
    """A column of any values, of which earlier ones come first: numbers, then texts and times, then all others."""

    def cell(self) -> Callable[[Any], tuple[float, str]]:
        number = Numbers().cell()

        def read(value: Any) -> tuple[float, str]:
            found, value = number(value), _text_of(value)
            if found == found:
                return found, ""
            return math.inf, _spelling(value) if isinstance(value, str) else _spelling(value) or _LAST

        return read

    def expressions(self, given: nw.Expr, dtype: Any) -> tuple[nw.Expr, nw.Expr]:
        """A number and a text to sort by, never null."""
        found = Numbers().expression(given, dtype)
        after = nw.when(found.is_null()).then(_spellings(given, dtype).fill_null(_LAST)).otherwise(nw.lit(""))
        return found.fill_null(math.inf), after


@dataclass(frozen=True)
class Reading:
    """``person`` : the column that says whose row it is. ``kinds`` : {column: what it holds}, the declared columns.
    ``order`` : columns that are not declared, and say which rows come first. All are names as ``renamed`` gives them.

    Read, a table has the columns ``WHO``, those of ``kinds`` (floats, null where missing; or places, -1 where outside)
    and ``sorted_by`` each of ``order``, and no others.
    """

    person: str | None
    kinds: Mapping[str, Kind]
    order: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Those that are read."""
        return list(dict.fromkeys([*([] if self.person is None else [self.person]), *self.kinds, *self.order]))

    def of(self, frame: Frame) -> Frame:
        """The frame as it is read."""
        schema = frame.collect_schema()
        found: list[Any] = []
        objects = any(schema[c] in (nw.Object, nw.Binary) for c in self.columns)
        # DuckDB tells instants in the zone of its connection alone.
        zoned = any(getattr(schema[c], "time_zone", None) not in _UTC for c in self.order)
        if isinstance(frame, nw.LazyFrame) and (objects or zoned):
            read = self.of(frame.select(*self.columns).collect())  # their cells are read here alone
            arrow = read.to_native() if read.implementation.is_pyarrow() else None
            return read.lazy() if arrow is None else nw.from_native(connected().from_arrow(arrow))  # which has windows
        texts: dict[str, nw.Expr] = {}
        if isinstance(frame, nw.LazyFrame) and "duckdb" in type(frame.to_native()).__module__:
            found_in = {c: k for c, k in self.kinds.items() if isinstance(k, Categories) and schema[c] in _TEXT}
            queries: list[str] = [f'{kind.query(column)} as "{column} place"' for column, kind in found_in.items()]
            native: Any = frame.to_native()
            frame = nw.from_native(native.project(", ".join(["*", *queries])))
            texts = {column: nw.col(f"{column} place") for column in found_in}
        apart = {c for c in self.columns if isinstance(frame, nw.DataFrame) and _is_of_objects(frame[c])}

        def read_cells(column: str, cell: Callable[[Any], Any]) -> list[Any]:
            return _cells(frame[column], cell)

        def series(name: str, cells: Any, dtype: Any) -> Any:
            return nw.new_series(name, cells, dtype, backend=nw.get_native_namespace(frame))

        if self.person is not None:
            given, dtype = nw.col(self.person), schema[self.person]
            if self.person in apart:
                found.append(series(WHO, read_cells(self.person, _person), nw.String))
            elif dtype.is_float():
                found.append(nw.when(~given.is_nan()).then(given).alias(WHO))
            else:
                found.append((given.cast(nw.String) if dtype in _TEXT else given).alias(WHO))
        for column, kind in self.kinds.items():
            if column in apart:
                cells = [None if cell != cell else cell for cell in read_cells(column, kind.cell())]
                found.append(series(column, cells, kind.dtype))
            elif column in texts and isinstance(kind, Categories):
                found.append(kind.expression(nw.col(column), schema[column], texts[column]).alias(column))
            else:
                found.append(kind.expression(nw.col(column), schema[column]).alias(column))
        for column in self.order:
            both = sorted_by(column)
            if column in apart:
                pairs = read_cells(column, Order().cell())
                found.append(series(both[0], [number for number, _ in pairs], nw.Float64))
                found.append(series(both[1], [text for _, text in pairs], nw.String))
            else:
                pair = Order().expressions(nw.col(column), schema[column])
                found += [each.alias(name) for name, each in zip(both, pair, strict=True)]
        named = [*([] if self.person is None else [WHO]), *self.kinds, *(n for c in self.order for n in sorted_by(c))]
        # A table of no columns would have no rows.
        return frame.with_columns(*found).select(*named) if named else frame

    def block(self, block: Any) -> Any:
        """The same of a native block in memory, whose columns are ``columns`` in this order by any name."""
        frame = nw.from_native(block, eager_only=True)
        renamed = frame.rename(dict(zip(frame.columns, self.columns, strict=True)))
        return self.of(renamed).to_native()


def placed(count: int) -> list[str]:
    """Names of a table's columns by their places: engines make patterns, paths and fields of names such as ``*``."""
    return [f"c{place}" for place in range(count)]


def sorted_by(column: str) -> tuple[str, str]:
    """The two columns that a column of ``order`` is read to."""
    return f"{column} number", f"{column} text"


def earlier(column: str, kind: Kind) -> nw.Expr:
    """What a declared column is sorted by once it is read: missing values last, and never null."""
    given = nw.col(column)
    if isinstance(kind, Numbers):
        return given.fill_null(math.inf)
    return nw.when(given >= 0).then(given).otherwise(nw.lit(len(kind.listed)))


def inside(column: str, kind: Kind) -> nw.Expr:
    """Whether a cell could be read as declared."""
    return ~nw.col(column).is_null() if isinstance(kind, Numbers) else nw.col(column) >= 0


def _is_of_objects(column: nw.Series[Any]) -> bool:
    """Whether its cells are read one by one: Python's, bytes, categories of pandas, whose types narwhals tells by what
    they hold, and its times of pyarrow, which pandas 2 finds unequal to Python's."""
    native = nw.to_native(column)
    kind = getattr(native, "dtype", None)
    if type(native).__module__.startswith("pandas") and hasattr(kind, "categories"):
        return True
    times = (nw.Date, nw.Datetime, nw.Duration) if str(kind).endswith("[pyarrow]") else ()
    return column.dtype in (nw.Object, nw.Unknown, nw.Binary, *times) or str(kind) == "object"


def _cells(column: nw.Series[Any], read: Callable[[Any], Any]) -> list[Any]:
    """``read`` of every cell; of each text and category once."""
    native = nw.to_native(column)
    if hasattr(getattr(native, "dtype", None), "categories") and hasattr(native, "cat"):
        known = [*map(read, elements(native.cat.categories)), read(None)]
        return [known[code] for code in native.cat.codes.tolist()]  # -1 where missing
    cells = elements(native)
    texts = {text: read(text) for text in {cell for cell in cells if type(cell) is str}}
    return [texts[cell] if type(cell) is str else read(cell) for cell in cells]


def _person(value: Any) -> str | None:
    """A text that is the same for equal names of people, however they are kept."""
    name = key(_text_of(value))
    if name is key(None):
        return None
    if isinstance(name, str):
        return name
    if isinstance(name, float) and name.is_integer():
        name = int(name)
    if isinstance(name, int):
        return str(int(name)) if abs(name) < _MOST else hex(name)  # longer ones have no text
    return repr(value) if name == key(value) else None  # what has no hash equals nothing


def _text_of(value: Any) -> Any:
    """Bytes as the text that they are: one cell of bytes turns all texts of a column of pyarrow into bytes."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _fill(places: dict[Any, int], more: Iterable[tuple[Any, int]]) -> None:
    """Add keys that are not there, of one place alone."""
    found: dict[Any, set[int]] = {}
    for each, place in more:
        if each is not None and each not in places:
            found.setdefault(each, set()).add(place)
    places.update({each: min(of) for each, of in found.items() if len(of) == 1})


def _other_value(text: str, number: Callable[[Any], float]) -> Any:
    """The key of the number, truth or time that a text writes; None for other texts."""
    found = number(text)
    if found == found:
        return found
    if _is_time(text):
        return key(datetime.datetime.fromisoformat(text))
    return next((k for k in (0, 1) if text in _WORDS[k]), None)


def _is_time(value: Any) -> bool:
    if not (isinstance(value, str) and _ISO.match(value)):
        return False
    try:
        datetime.datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _spelling(value: Any) -> str:
    """A text, day or instant as ``Order`` has it; "" for other values.

    Most engines spell a column of instants by all of its cells, and guess from all cells of a file whether texts are
    instants. So instants are spelled here, and texts of instants alike: with a space, to microseconds without
    zeros at the end, a midnight as its day; those with a zone in UTC.
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime.datetime) and value == value:  # NaT is one
        zoned = value.tzinfo is not None
        value = (value.astimezone(datetime.UTC) if zoned else value).replace(tzinfo=None)
        value = value.isoformat(" ", "microseconds")
        return _shortened(value) + "+00:00" * zoned
    if isinstance(value, datetime.datetime) or not isinstance(value, str | datetime.date):
        return ""
    return _shortened(value) if isinstance(value, str) and _INSTANT.match(value) else str(value)


def _shortened(instant: str) -> str:
    instant = f"{instant[:10]} {instant[11:26]}"
    instant = instant.rstrip("0").removesuffix(".") if "." in instant else instant
    return instant.removesuffix(" 00:00:00")


def _spellings(given: nw.Expr, dtype: Any) -> nw.Expr:
    """``_spelling`` of a column, null for other values."""
    if dtype == nw.Date:
        return given.cast(nw.String)
    if dtype not in (*_TEXT, nw.Datetime):
        return nw.lit(None).cast(nw.String)
    zoned = dtype == nw.Datetime and dtype.time_zone
    text = given.cast(nw.String)
    if dtype == nw.Datetime:
        given = given.dt.convert_time_zone("UTC") if dtype.time_zone not in _UTC else given
        # Some engines add digits to the seconds, others have none, or leave out zeros of the year.
        second = given.dt.to_string("%Y-%m-%d %H:%M:%S").str.slice(0, 19).str.zfill(19)
        micro = given.dt.microsecond().fill_null(0).cast(nw.Int64).cast(nw.String).str.zfill(6)
        text = nw.concat_str(second, micro, separator=".")
    short = text.str.replace_all("T", " ", literal=True).str.slice(0, 26)
    trimmed = short.str.replace_all("0+$", "").str.replace_all(r"\.$", "")
    short = nw.when(short.str.contains(".", literal=True).fill_null(False)).then(trimmed).otherwise(short)
    short = short.str.replace_all(" 00:00:00$", "")
    if dtype == nw.Datetime:
        return nw.concat_str(short, nw.lit("+00:00")) if zoned else short
    return nw.when(text.str.contains(_INSTANT.pattern).fill_null(False)).then(short).otherwise(text)


def _plain(value: Any) -> Any:
    """A decimal as the float that engines make of it."""
    return float(value) if isinstance(value, Decimal) and value.is_finite() else value


def _spelled(value: Any) -> Sequence[str]:
    """How a category that is no text stands in a file."""
    if isinstance(value, str | bytes) or key(value) is key(None):
        return ()
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime.datetime):
        day = [str(value.date())] if value.time() == datetime.time() and value.tzinfo is None else []
        return [str(value), value.isoformat(), *day]
    if isinstance(value, datetime.date):
        return [str(value), f"{value} 00:00:00", f"{value}T00:00:00"]
    return [str(value)]


def _floats(given: nw.Expr, dtype: Any) -> nw.Expr:
    """A column of numbers or Booleans as floats."""
    # Some by way of text: engines divide decimals by the power of ten of the column, which the longest value decides,
    # and pyarrow refuses a column with an integer beyond 2^53, or 2^63 in arithmetic.
    by_text = dtype.is_decimal() or dtype == nw.UInt64
    return (given.cast(nw.String) if by_text else given).cast(nw.Float64)


def _switched(given: nw.Expr, places: Mapping[Any, int]) -> nw.Expr:
    """The place of each value, -1 for others."""
    if not places:
        return nw.lit(-1)
    return given.replace_strict(list(places), list(places.values()), default=-1, return_dtype=nw.Int64)


def _fits(value: Any, dtype: Any) -> bool:
    """Whether a column of Booleans or integers of this type may hold the number."""
    if value != value or math.isinf(value) or value != int(value):
        return False
    name = str(dtype)
    bits = 1 if name == "Boolean" else int(name.lstrip("UInt"))
    low = 0 if name[0] in "UB" else -(2 ** (bits - 1))
    return bool(low <= value < low + 2**bits)


def _in_type(value: Any, dtype: Any) -> Any:
    """The value of this type of times or bytes; None where there is none."""
    if key(value) is key(None):
        return None
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, np.timedelta64):
        value = value.astype("timedelta64[us]").item()
    if dtype == nw.Duration:
        return value if isinstance(value, datetime.timedelta) else None
    if dtype == nw.Date:
        return value.date() if isinstance(value, datetime.datetime) else value if _is_day(value) else None
    if dtype == nw.Datetime:
        if _is_day(value):
            value = datetime.datetime(value.year, value.month, value.day)
        if not isinstance(value, datetime.datetime):
            return None
        return value if (value.tzinfo is None) == (dtype.time_zone is None) else None
    return value


def _is_day(value: Any) -> bool:
    return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
