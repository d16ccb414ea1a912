"""What one person's cells hold changes nobody else's: which rows count, how values are read, which noise is drawn.

Engines infer the type of a column from all its cells: one text among numbers makes text of all numbers, one missing
integer makes floats of all, one list stops every order. The contract: in every engine, whatever stands in a cell of one
person, every parameter has the same sensitivity and the same noise, and moves by no more than that sensitivity.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import importlib.util
import io
import itertools
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_tables import value_of

import dpmodel as dpm
from dpmodel import Private
from dpmodel.marks.dataset import Dataset, reading
from dpmodel.marks.dataset import table as people

if any(importlib.util.find_spec(module) is None for module in ("duckdb", "pyarrow", "pandas", "dask")):
    pytest.skip("engines are not installed", allow_module_level=True)
import duckdb
import pandas as pd

COLUMNS = ["person", "note", "income", "age", "town", "visit"]
# Orders of text and of numbers differ: 9 < 10 < 100, "10" < "100" < "9". A note is not declared, and comes first.
OTHERS: list[list[Any]] = [
    [1, "z", 100, 9, "Ulm", 2],
    [1, "a", 9, 100, "Bonn", 10],
    [1, "m", 10, 10, "Kiel", 1],
    [2, "b", 10, 30, "Ulm", 9],
    [2, "z", 9, 40, "Bonn", 100],
    [3, "c", 10, 50, "Kiel", 9],
    [3, "d", 9, 9, "Ulm", 11],
    [4, "a", 100, 10, "Ulm", 20],
]
MINE: list[list[Any]] = [[7, "y", 100, 10, "Ulm", 3], [7, "b", 9, 9, "Bonn", 20]]
ODD: dict[str, Any] = {
    "integer": 7,
    "fraction": 0.5,
    "word": "x",
    "number in text": " 10.0",
    "empty": "",
    "None": None,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "huge": 10**400,
    "beyond 53 bits": 2**53 + 1,
    "truth": True,
    "bytes": b"x",
    "date": datetime.date(2024, 3, 1),
    "time": datetime.datetime(2024, 3, 1, 5, tzinfo=datetime.UTC),
    "list": [1, 2],
    "complex": 1j,
}
Rows = list[list[Any]]


def cells(rows: Rows) -> dict[str, list[Any]]:
    return {column: [row[place] for row in rows] for place, column in enumerate(COLUMNS)}


def text(rows: Rows) -> str:
    out = io.StringIO()
    csv.writer(out).writerows([COLUMNS, *rows])
    return out.getvalue()


def typed(rows: Rows) -> pl.DataFrame:
    """One type a column: text where cells are of several."""

    def column(given: list[Any]) -> pl.Series:
        kinds = {type(cell) for cell in given if cell is not None}
        if len(kinds) == 1 and not kinds & {list, complex}:
            with contextlib.suppress(OverflowError):
                return pl.Series(given)
        if kinds <= {int, float}:
            with contextlib.suppress(OverflowError):
                return pl.Series([None if cell is None else float(cell) for cell in given])
        return pl.Series([None if cell is None else str(cell) for cell in given])

    return pl.DataFrame({name: column(given) for name, given in cells(rows).items()})


def scanned(name: str, write: Callable[[Path, Rows], Any]) -> Callable[[Rows, Path], Callable[..., Dataset]]:
    def made(rows: Rows, folder: Path) -> Callable[..., Dataset]:
        write(folder / name, rows)
        return lambda **declared: Dataset.scan(folder / name, **declared)

    return made


def framed(native: Callable[[Rows], Any]) -> Callable[[Rows, Path], Callable[..., Dataset]]:
    return lambda rows, folder: lambda **declared: Dataset(native(rows), **declared)


def inferred(rows: Rows, folder: Path) -> Callable[..., Dataset]:
    """A relation whose types DuckDB guesses from a file."""
    (folder / "a.csv").write_text(text(rows))
    return lambda **declared: Dataset(duckdb.connect().read_csv(str(folder / "a.csv")), **declared)


def categorical(rows: Rows) -> pd.DataFrame:
    frame = pd.DataFrame({name: pd.Series(given, dtype=object) for name, given in cells(rows).items()})
    lists = [c for c in frame if any(isinstance(cell, list) for cell in frame[c])]
    return frame.astype({c: "category" for c in frame if c not in lists})


def dask(rows: Rows) -> Any:
    import dask.dataframe as frames

    return frames.from_pandas(pd.DataFrame(cells(rows)), npartitions=2)


ENGINES: dict[str, Callable[[Rows, Path], Callable[..., Dataset]]] = {
    "pandas": framed(lambda rows: pd.DataFrame(cells(rows))),
    "pandas of a csv file": framed(lambda rows: pd.read_csv(io.StringIO(text(rows)))),
    "pandas categories": framed(categorical),
    "polars": framed(typed),
    "polars objects": framed(
        lambda rows: pl.DataFrame({n: pl.Series(c, dtype=pl.Object) for n, c in cells(rows).items()})
    ),
    "polars lazy": framed(lambda rows: typed(rows).lazy()),
    "pyarrow": framed(lambda rows: typed(rows).to_arrow()),
    "duckdb": framed(lambda rows: duckdb.connect().from_arrow(typed(rows).to_arrow())),
    "duckdb of a csv file": inferred,
    "csv": scanned("b.csv", lambda path, rows: path.write_text(text(rows))),
    "parquet": scanned("b.parquet", lambda path, rows: typed(rows).write_parquet(path)),
    "dask": framed(dask),
}
QUERIES: dict[str, Callable[[Dataset], Private]] = {
    "count": lambda d: d.count("town"),
    "sum": lambda d: d.sum("income", "town"),
    "integers": lambda d: d.sum("age"),
    "people": lambda d: d.count("town", distinct=True),
    "mean": lambda d: d.mean("income", "town").ends,
    "histogram": lambda d: d.histogram("age", [0, 9.5, 20, 60]),
    "quantiles": lambda d: d.quantile_counts("income", [9, 20]),
}
DECLARED: dict[str, Any] = {
    "privacy_id": "person",
    "bounds": {"income": (0, 50), "age": (0, 60)},
    "domain": {"town": ["Ulm", "Bonn", "Kiel"]},
    "integers": ["age"],
    "outside": "drop",
}


def law(parameter: Private) -> tuple[Any, ...]:
    """All that is public of a parameter."""
    noise = dpm.measure(parameter, epsilon=1, rng=0).noise
    return parameter.shape, parameter.unit, parameter.sensitivity, parameter.labels, parameter.attributes, noise


def released(engine: str, rows: Rows, folder: Path, order: Any, most: int, queries: Any) -> dict[str, Private]:
    dataset = ENGINES[engine](rows, folder)(max_rows=most, order=order, **DECLARED)
    return {name: QUERIES[name](dataset) for name in queries}


def held(found: dict[str, Private], expected: dict[str, Private], people_moved: int = 1) -> None:
    for name, parameter in found.items():
        assert law(parameter) == law(expected[name]), name
        moved = np.abs(value_of(parameter) - value_of(expected[name])).ravel()
        assert moved.max() <= people_moved * parameter.linf * (1 + 1e-9), name
        assert moved.sum() <= people_moved * parameter.l1 * (1 + 1e-9), name


def with_odd(odd: str, column: str) -> Rows:
    """A cell of mine is odd; the first row of all, so that a type that is read off the first rows is too."""
    mine = [list(row) for row in MINE]
    mine[0][COLUMNS.index(column)] = ODD[odd]
    return [mine[0], *OTHERS[:4], mine[1], *OTHERS[4:]]


ORDERS: dict[str, Any] = {"": None, "undeclared order": "visit", "order of text": ["note", "visit"]}


def engines(*quick: str) -> list[Any]:
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in ENGINES]


@cache
def by_polars(order: str) -> dict[str, np.ndarray]:
    found = released("polars", OTHERS + MINE, Path(), ORDERS[order], 1, QUERIES)
    return {name: value_of(parameter) for name, parameter in found.items()}


QUICK = ("pandas", "pandas of a csv file", "duckdb of a csv file")


@pytest.mark.parametrize(
    ("engine", "order"),
    [
        pytest.param(engine, order, marks=() if engine in QUICK or order == "order of text" else pytest.mark.slow)
        for engine in ENGINES
        for order in ORDERS
        if engine not in ("polars", "dask")
    ],
)
def test_engines_agree(engine: str, order: str, tmp_path: Path) -> None:
    """The first rows are those of the smallest incomes, ages, places in the list, or of the order that was said."""
    found = released(engine, OTHERS + MINE, tmp_path, ORDERS[order], 1, QUERIES)
    assert value_of(found["count"]).tolist() == {"": [2, 3, 0], "undeclared order": [3, 0, 2]}.get(order, [2, 2, 1])
    for name, expected in by_polars(order).items():
        np.testing.assert_array_equal(value_of(found[name]), expected)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_odd_cell_in_every_column(engine: str, order: str, tmp_path: Path) -> None:
    queries = [*QUERIES] if engine in ("pandas", "polars", "duckdb") else ["count", "integers"]
    most = 1 + (order == "undeclared order")
    expected = released(engine, OTHERS + MINE, tmp_path, ORDERS[order], most, queries)
    for odd, column in itertools.product(ODD, COLUMNS):
        found = released(engine, with_odd(odd, column), tmp_path, ORDERS[order], most, queries)
        held(found, expected, 1 + (column == "person"))


@pytest.mark.parametrize("engine", engines("pandas", "polars", "duckdb of a csv file")[:-1])
def test_rows_of_others_stay_as_they_are(engine: str, tmp_path: Path) -> None:
    """Up to one, the rows of the matrix and those of who has what are the same."""
    for odd, column in [("word", "income"), ("None", "age"), ("list", "note"), ("integer", "town"), ("date", "visit")]:
        both = []
        for rows in (OTHERS + MINE, with_odd(odd, column)):
            dataset = ENGINES[engine](rows, tmp_path)(max_rows=2, order="visit", **DECLARED)
            X = value_of(dataset.rows(["income", "age", "town"], first=True))
            has = value_of(dataset.incidence("person", "town"))
            both.append((sorted(map(tuple, X.tolist())), sorted(map(tuple, has.tolist()))))
        for one, other in zip(*both, strict=True):
            left = list(other)
            for row in one:
                if row in left:
                    left.remove(row)
            assert len(one) == len(other) == 5 and len(left) <= 1


def sorted_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the columns in the types that they came in."""
    read, given = reading.Reading.of, [f"c{place}" for place in range(2, 5)]

    def both(self: Any, frame: Any) -> Any:
        return read(self, frame).with_columns(**{f"given {column}": frame[column] for column in given})

    monkeypatch.setattr(reading.Reading, "of", both)
    by = property(lambda self: [reading.nw.col(f"given {column}") for column in given])
    monkeypatch.setattr(people.People, "_earlier", by)


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "text is no number": lambda monkeypatch: monkeypatch.setattr(reading, "_TEXT", ()),
    "sorted as given": sorted_as_given,
}


@pytest.mark.parametrize("twin", BROKEN)
def test_broken_twins_are_caught(twin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN[twin](monkeypatch)
    engine, caught = "polars", 0
    expected = released(engine, OTHERS + MINE, tmp_path, None, 1, ("count", "integers"))
    for odd, column in [("word", "note"), ("word", "income")]:
        try:
            held(released(engine, with_odd(odd, column), tmp_path, None, 1, ("count", "integers")), expected)
        except (AssertionError, dpm.errors.DPModelError):
            caught += 1
    assert caught


CELLS: list[Any] = [
    *(
        "1",
        "01",
        " 1 ",
        "1.0",
        "+1",
        "1.",
        ".5",
        "1e0",
        "1e400",
        "1_0",
        "0x1",
        "nan",
        "inf",
        "True",
        "true",
        "١",
        "1,5",
    ),
    *("Ulm", "Ulm ", "", "\n", "2024-03-01", "2024-03-01 00:00:00", "2024-02-30", "(0, 1]", None),
]
LISTS: dict[str, tuple[Any, ...]] = {
    "numbers": (1, 0.5, 10**20, None),
    "tenths": tuple(k / 10 for k in range(100)),
    "truth": (False, True),
    "numbers in text": ("1", "01", "0.50", "Ulm"),
    "one number in text": ("01", "nan", ""),
    "days": (datetime.date(2024, 3, 1), "2024-03-02"),
    "instants": (datetime.datetime(2024, 3, 1), datetime.datetime(2024, 3, 1, 12)),
    "intervals": (pd.Interval(0, 1), pd.Interval(1, 2)),
}


@pytest.mark.parametrize("kind", [*LISTS, "number", "integer", "decimal comma"])
def test_cells_and_columns_are_read_alike(kind: str) -> None:
    """One by one in Python, or a column at a time in an engine."""
    given: Any = {
        "number": reading.Numbers(),
        "integer": reading.Numbers(True),
        "decimal comma": reading.Numbers(decimal=","),
    }
    declared = given.get(kind) or reading.Categories(LISTS.get(kind, ()))
    columns: list[list[Any]] = [
        CELLS,
        [1, 0, 5, None, 2**53 + 1],
        [1.0, 0.5, float("nan"), float("inf"), None, -0.0, 1e20],
        [True, False, None],
        [datetime.date(2024, 3, 1), datetime.date(2024, 3, 2), None],
        [datetime.datetime(2024, 3, 1), datetime.datetime(2024, 3, 1, 12), None],
        [b"x", None],
        [*(Decimal(k) / 10 for k in range(100)), None],
        [*(Decimal(k) / 10 for k in range(100)), Decimal("0.30000000001"), None],  # its digits make a scale for all
        [*(Decimal(k) / 10 for k in range(100)), Decimal("0." + 25 * "3")],
    ]
    longest, cell = max(map(len, columns)), declared.cell()
    named = {f"c{place}": [*column, *[None] * (longest - len(column))] for place, column in enumerate(columns)}
    expected = {name: [cell(each) for each in column] for name, column in named.items()}
    frame = pl.DataFrame({name: pl.Series(column) for name, column in named.items()})
    typed_pandas = frame.to_pandas(use_pyarrow_extension_array=True)
    relation = duckdb.connect().from_arrow(frame.to_arrow())
    for native in (frame, frame.to_pandas(), typed_pandas, frame.to_arrow(), relation):
        read = reading.Reading(None, dict.fromkeys(named, declared)).of(reading.nw.from_native(native))
        table = read.lazy().collect()
        for name, column in named.items():
            found = [np.nan if pd.isna(each) else each for each in table[name].to_list()]
            np.testing.assert_array_equal(found, expected[name], err_msg=f"{column} {type(native)}")


@pytest.mark.parametrize("engine", ["pandas of a csv file", "polars of a csv file", "duckdb of a csv file", "csv"])
def test_one_word_among_truths(engine: str, tmp_path: Path) -> None:
    """Engines read a file of truths as such, unless one cell is none: then all are words."""

    def of(first: str) -> np.ndarray:
        path = tmp_path / "a.csv"
        path.write_text("\n".join(["smokes", first, *["true", "false"] * 20]))
        declared: Any = {"bounds": {"smokes": (0, 1)}, "outside": "drop", "neighbors": "add-remove"}
        opened: dict[str, Callable[[], Dataset]] = {
            "pandas of a csv file": lambda: Dataset(pd.read_csv(path), **declared),
            "polars of a csv file": lambda: Dataset(pl.read_csv(path), **declared),
            "duckdb of a csv file": lambda: Dataset(duckdb.connect().read_csv(str(path)), **declared),
            "csv": lambda: Dataset.scan(path, **declared),
        }
        return value_of(opened[engine]().sum("smokes"))

    assert (of("true"), of("false"), of("x")) == (21, 20, 20)


@pytest.mark.parametrize("odd", ["x", None, [1], *(pytest.param(odd, marks=pytest.mark.slow) for odd in (1.0, 2**70))])
def test_partitions_of_different_types_bring_people_together(odd: Any) -> None:
    """Everybody has a row in each of two files; one cell decides the type of the second file's column of people."""
    import dask.dataframe as frames

    people = list(range(50))
    first = pd.DataFrame({"person": people, "town": ["Ulm"] * 50})
    parts = [first, pd.DataFrame({"person": [*people[:-1], odd], "town": ["Bonn"] * 50})]
    table = frames.from_map(lambda place: parts[place], [0, 1], meta=first.iloc[:0])
    domain = {"town": ["Ulm", "Bonn"]}
    people_of = Dataset(table, privacy_id="person", max_rows=1, domain=domain, outside="drop")
    for distinct in (False, True):
        counts = value_of(people_of.count("town", distinct=distinct))
        assert counts[0] == 50 and counts[1] <= 1


NINE = datetime.datetime(2024, 3, 1, 9)
INSTANTS: dict[str, Any] = {
    "another midnight": datetime.datetime(2024, 3, 2),
    "an hour": NINE,
    "a microsecond": NINE.replace(microsecond=5),
    "a word": "x",
    "a number": 7,
    "a day": datetime.date(2024, 3, 1),
}


@pytest.mark.parametrize("first", [datetime.datetime(2024, 3, 1), NINE, NINE.replace(tzinfo=datetime.UTC)])
@pytest.mark.parametrize("engine", engines("pandas"))
def test_one_cell_among_instants(engine: str, first: datetime.datetime, tmp_path: Path) -> None:
    """Engines spell a column of instants by all of its cells, and take another type for it if one cell is none."""
    written = f"{first.replace(tzinfo=None)}".removesuffix(" 00:00:00") + "+00:00" * (first.tzinfo is not None)
    odds = {
        name: odd.replace(tzinfo=first.tzinfo) if isinstance(odd, datetime.datetime) else odd
        for name, odd in INSTANTS.items()
    } | {"the same": first}
    if first.tzinfo is not None and "csv" in engine:
        return  # what has a zone is text in a file
    for name, odd in odds.items():
        rows = [[1, first, 1, 1, "Ulm", 1] for _ in range(20)] + [[2, odd, 1, 1, "Ulm", 1]]
        people = ENGINES[engine](rows, tmp_path)(neighbors="add-remove")
        found = people.count("note", keys="private", epsilon=50, delta=1e-6, rng=1)
        keys = found.labels[0][1]
        assert written in keys and keys[0] == written, (name, keys)


def test_orders_are_read_alike() -> None:
    """One by one in Python, or a column at a time in an engine: words, days, instants, and words of instants."""
    days = [datetime.date(2024, 3, 1), None]
    instants = [datetime.datetime(2024, 3, 1), NINE, NINE.replace(microsecond=50), None]
    texts = ["2024-03-01T09:00:00", "2024-03-01 09:00:10.50", "2024-03-01", "a.00", "x", "7.0", None]
    for column in ([*days], instants, texts, [None if t is None else t.replace(tzinfo=datetime.UTC) for t in instants]):
        expected = [reading.Order().cell()(cell) for cell in column]
        frame = pl.DataFrame({"c0": pl.Series(column)})
        berlin = column is not days and isinstance(frame["c0"].dtype, pl.Datetime) and frame["c0"].dtype.time_zone
        natives = [frame, frame.to_pandas(), frame.to_pandas(use_pyarrow_extension_array=True), frame.to_arrow()]
        natives += [frame.lazy(), pd.DataFrame({"c0": pd.Series(column, dtype=object)})]
        natives += [duckdb.connect().from_arrow(frame.to_arrow())]
        if berlin:
            natives += [frame.with_columns(pl.col("c0").dt.convert_time_zone("Europe/Berlin"))]
        for native in natives:
            read = reading.Reading(None, {}, ("c0",)).of(reading.nw.from_native(native))
            assert [*read.lazy().collect().iter_rows()] == expected, (column, type(native))
    assert reading.Order().cell()(np.datetime64("2024-03-01T09")) == reading.Order().cell()(NINE)
