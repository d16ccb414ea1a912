"""Text and HTML tables for people: the bottom of the house, which knows errors and types of arrays alone.

Every cell is data. Square brackets are not read as rich markup, control characters are dropped (a label
could otherwise carry terminal escapes), and HTML is escaped.
"""

from __future__ import annotations

import contextlib
import html
import io
import json
import math
import os
import sys
import textwrap
import types
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Literal, Self, SupportsFloat, Union, get_args, get_origin, get_type_hints

import numpy as np

from dpmodel._types import Array, Labels
from dpmodel.errors import MissingExtraError, SpecificationError

_CELL = "padding:2px 10px;border-bottom:1px solid #ddd;vertical-align:top;text-align:"
_NARROWEST = 40  # below that, tables are cut letter by letter
WIDTH = 100  # of lines, where neither COLUMNS nor a terminal says how wide they may be
_NAMED = 12  # entries that are shown with their names
_SCREEN, _FEWEST = 4000, 40  # characters of a screen, and lines that one has at least
_EDGE = 3  # entries that an abbreviated array shows at each end


def number(x: object) -> str:
    """A real number (Python or numpy scalar) or None for people: four significant digits, integers in full.

    >>> number(0.000123456), number(12345.6), number(1e-6), number(float("inf")), number(None)
    ('0.0001235', '12350', '1e-6', 'unbounded', '-')

    Raises
    ------
    TypeError
        For anything else.
    """
    if x is None:
        return "-"
    if type(x) is not float:  # most are
        if isinstance(x, bool | np.bool_) or not isinstance(x, Real):
            raise TypeError(f"number() formats real numbers, got {type(x).__name__}")
        if isinstance(x, Integral):
            return str(int(x))
    value = float(x)
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "unbounded" if value > 0 else "-unbounded"
    digits = f"{value:.4g}"  # rounded first, so that 999999.9 is shown like 1e6 and not like 999999
    rounded = float(digits)
    if rounded == 0:
        return "0"
    if 1e-4 <= abs(rounded) < 1e6:
        return repr(rounded).removesuffix(".0")
    mantissa, _, exponent = digits.partition("e")
    return f"{mantissa}e{int(exponent)}"


def rounded(x: SupportsFloat, spread: SupportsFloat, rounding: str = ROUND_HALF_EVEN) -> str:
    """A real number with the digits that its noise, or the width of its interval, leaves: two digits of ``spread``.

    What is before the point is written in full. Where ``spread`` says nothing (0, infinite) there are four digits.

    >>> rounded(25933.27, 1.4), rounded(1163456.2, 90), rounded(25933, 1e-3), rounded(0.123456, 0.034)
    ('25933.3', '1163456', '25933', '0.123')
    """
    value, size = float(x), float(spread)
    if not math.isfinite(value):
        return number(value)
    size = size if 0 < size < math.inf else abs(value) / 100
    decimals = 0 if value.is_integer() else max(1 - math.floor(math.log10(size)), 0) if size else 13
    if decimals > 12 or abs(value) >= 1e15:
        return repr(value)
    # Decimals hold a float exactly, so that what is rounded down is no more than it.
    digits = Decimal(value).quantize(Decimal(1).scaleb(-decimals), rounding, Context(prec=30))
    return f"{digits or abs(digits):f}"


def interval_ends(lower: SupportsFloat, upper: SupportsFloat) -> tuple[str, str]:
    """`rounded` outwards: the interval that is printed contains the one from ``lower`` to ``upper``."""
    width = float(upper) - float(lower)
    return rounded(lower, width, ROUND_FLOOR), rounded(upper, width, ROUND_CEILING)


def array_text(values: object, limit: int = 8, spread: object = None) -> str:
    """An array of any shape on one line; above ``limit`` entries both ends and the shape.

    For example ``"[1, 2, 3, ..., 98, 99, 100]  shape (100,)"``. ``spread`` : of each entry, for `rounded`.
    """
    array = np.asarray(values)
    flat = _entries(array, limit, spread)
    if array.ndim == 0:
        return flat[0]
    if array.size > limit:
        flat.insert(_EDGE, "...")
    suffix = "" if array.ndim == 1 and array.size <= limit else f"  shape {array.shape}"
    return f"[{', '.join(flat)}]{suffix}"


def _entries(array: Array, limit: int, spread: object) -> list[str]:
    """The entries that are shown, as text."""
    at = [*range(_EDGE), *range(array.size - _EDGE, array.size)] if array.size > limit else slice(None)
    entries = array.ravel()[at].tolist()
    if spread is None:
        return [cell_text(item) for item in entries]
    spreads = np.broadcast_to(np.asarray(spread), array.shape).ravel()[at].tolist()
    return [rounded(item, size) for item, size in zip(entries, spreads, strict=True)]


def named_text(values: object, labels: Sequence[tuple[Any, tuple[Any, ...]]], spread: object = None) -> str:
    """``array_text`` with the names of the entries of a vector, or of the axes of a matrix."""
    array = np.asarray(values)
    if len(labels) != array.ndim or not any(categories for _, categories in labels):
        return array_text(array, spread=spread)
    if array.ndim == 1 and array.size <= _NAMED:
        return ", ".join(f"{c}: {v}" for c, v in zip(labels[0][1], _entries(array, _NAMED, spread), strict=True))
    axes = [cell_text(name) if name is not None else f"axis {k}" for k, (name, _) in enumerate(labels)]
    return f"{array_text(array, spread=spread)}, by {' and '.join(axes)}"


def cell_text(value: object) -> str:
    """Format one cell: numbers by `number`, booleans as yes or no, None as ``-``, the rest by ``str``.

    Control and format characters other than the line feed are removed; a tab becomes a space.
    """
    if value is None:
        return "-"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Real):
        return number(value)
    text = str(value).replace("\t", " ")
    if text.isprintable():
        return text
    return "".join(c for c in text if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf"))


@dataclass(frozen=True)
class TextTable:
    """A table for people: it prints, shows in notebooks, and is plain data.

    Parameters
    ----------
    columns : headings, length k; if all are empty, no heading is drawn.
    rows : rows of k cells each; long cells wrap. Columns that hold only numbers are right-aligned.
    title : line above the table.
    footer : lines below the table.
    marked : the row that stands out in notebooks, if any.
    width : widest line, in characters, where neither COLUMNS nor a terminal says how wide lines may be.

    Raises
    ------
    ValueError
        If a row does not have k cells.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    title: str = ""
    footer: Sequence[str] = ()
    marked: int | None = None
    width: int = WIDTH

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", [tuple(row) for row in self.rows])
        for index, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"row {index} has {len(row)} cells, the table has {len(self.columns)} columns")

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the rows as dictionaries."""
        rows = [dict(zip(self.columns, map(plain, row), strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "footer": list(self.footer)}

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """Without a trailing newline, in characters that standard output can print."""
        # Rich costs tens of milliseconds to import, and most sessions never print a table.
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text

        width, align = line_width(self.width), self._alignment()
        # Escapes are longer than what they stand for, so they come before the layout.
        columns = [printable(cell_text(name)) for name in self.columns]
        content = [[printable(cell_text(item)) for item in row] for row in self.rows]
        widths = _widths(columns, content, width)
        if widths is None:
            told = [wrapped(cell_text(self.title), width=width)] if self.title else []
            below = [wrapped(line, width=width) for line in self.footer]
            return "\n".join([*told, *_stacked(columns, content, width), *([""] if self.footer else []), *below])
        grid = Grid(box=SIMPLE_HEAD, show_header=any(columns), pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        for name, justify, size in zip(columns, align, widths, strict=True):
            grid.add_column(Text(name), justify=justify, overflow="fold", width=size)
        for row in content:
            grid.add_row(*(Text(_hanging(str(item), width)) for item, width in zip(row, widths, strict=True)))

        # Everything else that rich would read from the environment is fixed, so that the text is the same everywhere.
        fixed = dict.fromkeys(("force_terminal", "force_jupyter", "force_interactive", "legacy_windows"), False)
        fixed |= dict.fromkeys(("highlight", "emoji", "markup"), False)
        console = Console(file=io.StringIO(), width=width, color_system=None, no_color=True, **fixed)  # type: ignore[arg-type]
        with console.capture() as capture:
            if self.title:
                console.print(Text(printable(cell_text(self.title))))
            console.print(grid)
            if self.footer:
                console.print()
            for line in self.footer:
                console.print(Text(printable(cell_text(line))))
        return printable("\n".join(line.rstrip() for line in capture.get().splitlines()).rstrip())

    def _repr_html_(self) -> str:
        """One self-contained ``<div>`` with inline styles; everything is escaped."""
        align = self._alignment()
        parts = ['<div style="margin:4px 0"><table style="border-collapse:collapse;font-size:90%">']
        if self.title:
            parts.append(f'<caption style="text-align:left;font-weight:bold">{escaped(self.title)}</caption>')
        if any(self.columns):
            heads = (
                f'<th style="{_CELL}{a}">{escaped(name)}</th>' for name, a in zip(self.columns, align, strict=True)
            )
            parts.append(f"<thead><tr>{''.join(heads)}</tr></thead>")
        parts.append("<tbody>")
        for place, row in enumerate(self.rows):
            cells = (f'<td style="{_CELL}{a}">{escaped(item)}</td>' for item, a in zip(row, align, strict=True))
            look = ' style="background:#e6f2ea;color:#111;font-weight:bold"' if place == self.marked else ""
            parts.append(f"<tr{look}>{''.join(cells)}</tr>")
        parts.append("</tbody></table>")
        parts.extend(f'<p style="margin:2px 0;font-size:85%">{escaped(line)}</p>' for line in self.footer)
        parts.append("</div>")
        return "".join(parts)

    def _alignment(self) -> list[Literal["left", "right"]]:
        """``right`` for each column whose cells are all numbers or None, with at least one number."""

        def numeric(cells: Sequence[object]) -> bool:
            told = [item for item in cells if item is not None]
            return bool(told) and all(isinstance(item, Real) and not isinstance(item, bool | np.bool_) for item in told)

        rows = list(self.rows)
        return ["right" if numeric([row[k] for row in rows]) else "left" for k in range(len(self.columns))]


def _stacked(columns: Sequence[str], content: Iterable[Sequence[object]], width: int) -> Iterator[str]:
    """The rows one below the other, where lines are too short for columns without cutting words: the first cell, and
    what else there is with its heading."""
    for row in content:
        first, *rest = map(str, row)
        heads = columns[1:] if any(columns) else [""] * len(rest)
        told = [(head, cell) for head, cell in zip(heads, rest, strict=True) if cell not in ("", "-")]
        if len(told) == 1:
            head, cell = told[0]
            lead = f"{first}: " if first else ""
            yield wrapped(f"{lead}{head + ' ' if head else ''}{cell}", hanging="  ", width=width)
            continue
        if first:
            yield wrapped(first, width=width)
        yield from (wrapped(f"{head}: {cell}" if head else cell, "  ", "  ", width) for head, cell in told)


def screenful(text: str, more: str) -> str:
    """``text``, or as much of it as fits a screen, and how to see the rest: ``more``."""
    lines = text.split("\n")
    most = max(_SCREEN // line_width(WIDTH), _FEWEST)
    if len(lines) <= most:
        return text
    told = wrapped(f"... {len(lines) - most + 2} more lines: {more}").split("\n")
    return "\n".join([*lines[: most - len(told)], *told])


def _hanging(cell: str, width: int) -> str:
    """An indented cell in lines that are all indented, as a tree wants it; others are left to the table."""
    indent = cell[: len(cell) - len(cell.lstrip(" "))]
    if not indent or len(cell) <= width:
        return cell
    room = max(width, len(indent) + _NARROWEST // 4)
    return textwrap.fill(cell.strip(), room, initial_indent=indent, subsequent_indent=f"{indent}  ")


def line_width(default: int) -> int:
    """How wide lines may be: COLUMNS, else the terminal's width, else ``default`` (a pipe, a file, a notebook)."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return max(int(given), _NARROWEST)
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, _NARROWEST)
    except (AttributeError, OSError, ValueError):  # no terminal, or no file behind standard output
        return default


def wrapped(text: str, indent: str = "", hanging: str = "", width: int = WIDTH) -> str:
    """``text`` in lines that fit, in characters that standard output can print; ``hanging`` : further indent of all
    lines but the first. Words are kept together, where a line is long enough for them."""
    width = line_width(width)
    lines = textwrap.wrap(
        printable(text), width, initial_indent=indent, subsequent_indent=indent + hanging, break_on_hyphens=False
    )  # names of mechanisms have hyphens
    return "\n".join(lines)


def shortened(text: str, most: int = 32) -> str:
    """``text``, or as much of it as fits ``most`` characters, and dots."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def printable(text: str) -> str:
    """``text`` with what standard output cannot encode (cp1252 on a Windows console or pipe) written in ASCII."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.replace("\u2500", "-").encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        pass
    return text


def escaped(value: object) -> str:
    """Format a cell as HTML text, with quotes escaped and line feeds as ``<br>``."""
    return html.escape(cell_text(value), quote=True).replace("\n", "<br>")


def _widths(columns: Sequence[str], content: Sequence[Sequence[object]], total: int) -> list[int] | None:
    """Share ``total`` characters out: the widest columns give way first. None where words would be cut.

    Rich's own sharing cuts words of narrow columns while others could still wrap.
    """
    from rich.cells import cell_len

    texts = [[cell_text(name), *(cell_text(row[k]) for row in content)] for k, name in enumerate(columns)]
    widths = [max(1, *(cell_len(line) for text in column for line in text.split("\n"))) for column in texts]
    words = [max((cell_len(word) for text in column for word in text.split()), default=1) for column in texts]
    room = total - (2 * len(columns) - 1)  # rich counts a space of padding per column and one between two
    while sum(widths) > room:
        spare = [k for k in range(len(widths)) if widths[k] > words[k]]
        if not spare:
            return None
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


# ------------------------------------------------------------------------------------ plain values for JSON and back
def plain_fields(item: Any) -> dict[str, Any]:
    """The fields of a dataclass in JSON types; see ``plain``."""
    return {entry.name: plain(getattr(item, entry.name)) for entry in fields(item)}


def plain(item: Any) -> Any:
    """Turn a value into JSON types: inf and nan become strings, objects that JSON does not know their text."""
    if item is None or isinstance(item, bool | str | int):
        return item
    if isinstance(item, float | np.floating):
        value = float(item)
        return value if math.isfinite(value) else str(value)
    if isinstance(item, np.ndarray | np.generic):
        return plain(item.tolist())
    if isinstance(item, Mapping):
        return {str(key): plain(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [plain(value) for value in item]
    if isinstance(item, set | frozenset):
        return sorted((plain(value) for value in item), key=str)
    if hasattr(item, "to_dict"):
        return plain(item.to_dict())
    if is_dataclass(item) and not isinstance(item, type):
        return plain_fields(item)
    return str(item)


class Misfit(Exception):
    """A value that does not fit; ``where`` : the way to it, innermost part last."""

    def __init__(self, what: str, *where: str) -> None:
        super().__init__(what)
        self.what, self.where = what, where


class PlainData:
    """A dataclass as plain data, as JSON, and back."""

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON types: arrays as nested lists, inf and nan as strings."""
        return plain_fields(self)

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as strict JSON (no NaN or Infinity literals)."""
        return json.dumps(plain(self.to_dict()), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote.

        Raises
        ------
        SpecificationError
            For anything else; it says where.
        """
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            where = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            raise _not_written(cls, "it is no JSON", where) from None
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """What `to_dict` gave, for example after ``json.loads``; errors as `from_json`."""
        if not isinstance(data, Mapping):
            raise _not_written(cls, f"it is a {type(data).__name__}, not fields by name", "")
        try:
            return cls._of(data)
        except Misfit as error:
            raise _not_written(cls, error.what, ".".join(error.where)) from None
        except Exception as error:  # of the constructor: fields that are missing, unknown, or contradict each other
            raise _not_written(cls, str(error) or type(error).__name__, "") from None

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Self:
        found: Self = revived(cls, data)
        return found


def _not_written(cls: type, why: str, where: str) -> SpecificationError:
    return SpecificationError(
        f"this is no {cls.__name__} in JSON" + (f": at {where[:200]}" if where else ""),
        why=why[:200],
        remedy=f"the text that to_json() of a {cls.__name__} wrote, whole and unchanged",
    )


def part(kind: Any, data: Any, name: str | int) -> Any:
    """``revived(kind, data[name])``; a `Misfit` says that it is there."""
    try:
        return revived(kind, data[name])
    except Misfit as error:
        raise Misfit(error.what, str(name), *error.where) from None
    except KeyError:
        raise Misfit("it is missing", str(name)) from None
    except Exception as error:  # of whatever a wrong type does in a constructor
        raise Misfit(str(error) or type(error).__name__, str(name)) from None


def revived(kind: Any, value: Any) -> Any:
    """The value of type ``kind`` (a dataclass, or the annotation of a field) that ``plain`` turned into ``value``.

    A float that is None is nan. Of several dataclasses the one is taken whose ``kind`` is the value's. Keys that are no
    fields are left out; missing ones take their defaults.
    Errors: Misfit, for values that do not fit the type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is float:
        if isinstance(value, bool | list | dict) or (isinstance(value, str) and value not in ("inf", "-inf", "nan")):
            raise Misfit("not a number")
        return math.nan if value is None else float(value)
    if kind in (str, bool, int):
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise Misfit(f"not of type {kind.__name__}")
        return value
    if kind is Any or kind is object:
        return _any(value)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        kind = value.get("kind") if isinstance(value, Mapping) else None
        kinds = [each for each in inner if each is not type(None)]
        return revived(next((each for each in kinds if getattr(each, "kind", None) == kind), kinds[0]), value)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise Misfit("not a list")
        each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(each) != len(value):
            raise Misfit(f"{len(value)} items instead of {len(each)}")
        return tuple(part(kind, value, place) for place, kind in enumerate(each))
    if origin is np.ndarray:
        return np.asarray(value, dtype=float)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: part(inner[1], value, key) for key in _named(value)}
    if origin is Literal and value not in inner:
        raise Misfit(f"none of {', '.join(map(str, inner))}")
    if origin is Literal or not is_dataclass(kind):
        return value
    hints = get_type_hints(kind)
    value = _named(value)
    given = {entry.name: part(hints[entry.name], value, entry.name) for entry in fields(kind) if entry.name in value}
    build: Any = kind
    return build(**given)


def _named(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Misfit("not fields by name")
    return value


def _any(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _any(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_any(item) for item in value)
    return float(value) if value in ("inf", "-inf", "nan") else value


# ------------------------------------------------------------------------------------------------------- data frames
def long_frame(columns: Mapping[str, Array], labels: Labels, backend: str) -> Any:
    """A frame with a column for every axis, its categories (or 0, 1, ... where it has none), and one per array.

    ``columns`` : name -> array, all of one shape. ``labels`` : of its axes, or (). ``backend`` : "pandas", "polars" or
        "pyarrow".
    Errors: SpecificationError, MissingExtraError, for other backends, and for one that is not installed.
    """
    shape = next(iter(columns.values())).shape
    axes = labels if len(labels) == len(shape) else ((None, ()),) * len(shape)
    places = np.indices(shape).reshape(len(shape), math.prod(shape))  # of one number without axes: no columns
    data: dict[str, Any] = {}
    for number, ((name, categories), place) in enumerate(zip(axes, places, strict=True)):
        names = name if isinstance(name, tuple) else (name,)
        listed = [(c if isinstance(name, tuple) else (c,)) for c in categories] or [(i,) for i in range(shape[number])]
        for level, said in enumerate(names):
            called = str(said) if said is not None else f"axis {number}"
            data[_fresh(called, data)] = [listed[i][level] for i in place.tolist()]
    for name, array in columns.items():
        data[_fresh(name, data)] = np.asarray(array).ravel()
    return frame_of(data, backend)


def frame_of(data: Mapping[str, Any], backend: str) -> Any:
    """A frame of these columns; parameters and errors as ``long_frame``."""
    if backend not in ("pandas", "polars", "pyarrow"):
        raise SpecificationError("to_frame: unknown backend", remedy="backend='pandas', 'polars' or 'pyarrow'")
    with contextlib.suppress(ImportError):
        engine = import_module(backend)
        return engine.table(dict(data)) if backend == "pyarrow" else engine.DataFrame(data)
    raise MissingExtraError(
        f"to_frame: {backend} is not installed", why="it is an optional part", remedy=f"pip install {backend}"
    )


def _fresh(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name = f"{name}_"
    return name
