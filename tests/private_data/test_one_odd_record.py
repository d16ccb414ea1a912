"""One odd record must change how no other record is read, in every function that reads lists, tables or frames."""

from __future__ import annotations

import datetime
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest

import dpmodel as dpm
from dpmodel import learn, linalg
from dpmodel.marks import vault
from dpmodel.marks.domain import key

pd = pytest.importorskip("pandas")

DAY = np.datetime64("2024-03-01")
ODD: list[Any] = [
    "unknown",
    "1",
    b"x",
    0.5,
    1.0,
    -1,
    2**53 + 1,
    2**63,
    10**400,
    True,
    None,
    float("nan"),
    float("inf"),
    Decimal("0.5"),
    Fraction(1, 3),
    1j,
    np.float32(0.1),
    np.longdouble(0.1),
    np.uint64(2**63),
    DAY,
    np.datetime64("2024-03-01T05"),
    np.timedelta64(3, "h"),
    datetime.datetime(2024, 3, 1, 5, tzinfo=datetime.UTC),
    (1, 2),
    [1],
]


class Captured(Exception):
    """What a function read, before it did anything with it."""


def captured(read: Callable[[], Any]) -> Any:
    try:
        read()
    except Captured as seen:
        return seen.args[0]
    raise AssertionError("it went by")


@dataclass(frozen=True)
class Reader:
    """``read(records)`` of a list, array or column of records gives the encodings of all records that it kept.

    ``base`` : records; lists where a record is a row. ``drops`` : records that do not fit are left out, no error.
    """

    read: Callable[[Any], list[Any]]
    base: list[Any]
    drops: bool = False


def raise_captured(found: Any, *_: Any, **__: Any) -> Any:
    raise Captured(found)


def of_table(records: Any, column: str, domain: Any) -> list[Any]:
    """Codes of the records that were kept."""
    where = importlib.import_module("dpmodel.released.faces.query_release")
    kept = where.counts
    where.counts = lambda domain, codes, *_: raise_captured(codes)
    try:
        return captured(
            lambda: dpm.query_release(records, [column], domain=domain, outside="drop", total=9, neighbors="add-remove")
        ).tolist()
    finally:
        where.counts = kept


def of_query(records: Any, categories: Any) -> list[Any]:
    return of_table({"c": records}, "c", {"c": categories})


def of_rows(records: Any, domain: Any) -> list[Any]:
    """Of an array as it is, of lists by column."""
    if isinstance(records, list):
        records = {column: [row[i] for row in records] for i, column in enumerate(domain)}
    return of_table(records, "a", domain)


def of_private(records: Any, **given: Any) -> list[Any]:
    parameter = dpm.Private(records, linf=1, **given)
    return vault.unseal(parameter).reshape(parameter.shape, order="F").tolist()


def of_hierarchy(records: Any) -> list[Any]:
    tree = dpm.released.hierarchy({i: "all" if i != "all" else None for i in ["all", *range(len(records))]})
    return vault.unseal(tree.private(records))[1:].tolist()


def of_tree(records: Any) -> list[Any]:
    tree = dpm.released.tree_query(len(records))
    return vault.unseal(tree.private(records))[-len(records) :].tolist()


def of_features(records: Any) -> list[Any]:
    class Seen(learn.PrivateLinearRegression):  # type: ignore[misc]
        def _fit(self, X: Any, sealed: Any, labels: Any, *more: Any, **named: Any) -> Any:
            raise Captured(X)

    y = np.zeros(len(records))
    return captured(lambda: Seen(bounds=(-9, 9), label_bounds=(-1, 1)).fit(records, y)).tolist()


def of_numbers(records: Any) -> list[Any]:
    class Seen(learn.PrivateLinearRegression):  # type: ignore[misc]
        def _fit(self, X: Any, sealed: Any, labels: Any, *more: Any, **named: Any) -> Any:
            raise Captured(sealed)

    X = np.zeros((len(records), 1))
    return captured(lambda: Seen(bounds=(-9, 9), label_bounds=(-9, 9)).fit(X, records)).tolist()


def of_labels(records: Any, classes: Any, kind: Any = learn.PrivateLogisticRegression) -> list[Any]:
    class Seen(kind):  # type: ignore[misc]
        def _fit(self, X: Any, sealed: Any, labels: Any, *more: Any, **named: Any) -> Any:
            raise Captured(sealed)

    X = np.ones((len(records), 1))
    return captured(lambda: Seen(bounds=(-9, 9), classes=classes).fit(X, records)).tolist()


def of_encoder(records: Any) -> list[Any]:
    encoder = learn.PublicEncoder(domain={"c": [1, 2, 3]})
    return np.asarray(encoder.fit_transform(framed(records))).tolist()


def of_dataset(records: Any) -> list[Any]:
    rows = dpm.Dataset(framed(records), domain={"c": [1, 2, 3]}, outside="drop").rows(["c"])
    entries = vault.unseal(rows)
    return entries.reshape(rows.shape, order="F").tolist()


def framed(records: Any) -> Any:
    """One column of objects; of arrays that may have united them already, nobody makes a frame here."""
    if isinstance(records, np.ndarray) and records.dtype.kind in "USmM":
        raise TypeError
    column = pd.Series(list(records), dtype=object)
    return pd.DataFrame({"c": column})


def of_conducted(call: Callable[[], Any], read: Callable[[Any], Any]) -> list[Any]:
    """The private rows that a function of exact linear algebra hands on."""
    with mock.patch.object(dpm.linalg.Request, "solve", lambda _, model, record: raise_captured(model)):
        return read(captured(call))


def unscaled(model: Any) -> list[Any]:
    """Rows up to a positive factor, which changes no span."""
    rows = [[Fraction(int(x)) for x in row] for row in model._rows()]
    return [[x / abs(next((y for y in row if y), 1)) for x in row] for row in rows]


def of_span(task: Any, **given: Any) -> Callable[[Any], list[Any]]:
    def read(records: Any) -> list[Any]:
        return of_conducted(lambda: task(records, epsilon=1, delta=1e-6, **given), unscaled)

    return read


def of_sides(records: Any) -> list[Any]:
    A = np.ones((len(records), 1), dtype=int)
    return of_span(lambda b, **given: linalg.solve_equations(A, b, field=linalg.QQ, **given))(records)


def of_inequalities(records: Any, **given: Any) -> list[Any]:
    def read(model: Any) -> list[Any]:
        A, b = model._rows()
        return [[*row, side] for row, side in zip(A.tolist(), b.tolist(), strict=True)]

    def call() -> Any:
        return linalg.feasible_point(records, epsilon=1, delta=1e-6, **given)

    return of_conducted(call, read)


def of_points(records: Any) -> list[Any]:
    def call() -> Any:
        return linalg.point_in_hull(records, lower=0, upper=9, step="0.7", epsilon=1, delta=1e-6)

    return of_conducted(call, lambda model: model._rows().tolist())


def of_affine_classifier(records: Any) -> list[Any]:
    def call() -> Any:
        y = np.ones(len(records), dtype=int)
        return learn.AffineSubspaceClassifier(epsilon=1, classes=(0, 1)).fit(records, y)

    return of_conducted(call, unscaled)


def of_halfspace(records: Any) -> list[Any]:
    where = importlib.import_module("dpmodel.learn.exact_classifiers")
    kept = where.feasible_point
    where.feasible_point = raise_captured
    try:
        y = np.ones(len(records), dtype=int)
        classifier = learn.HalfspaceClassifier(epsilon=1, margin=0.1, classes=(0, 1))
        return captured(lambda: classifier.fit(records, y)).tolist()
    finally:
        where.feasible_point = kept


BIG = [2**53, 2**53 + 1, 2**53 + 2]
ROWS = [[3, 1], [1, 2], [2, 2]]
READERS: dict[str, Reader] = {
    "query_release numbers": Reader(lambda r: of_query(r, [1, 2, 3]), [1, 2, 3, 3, 2], drops=True),
    "query_release other": Reader(lambda r: of_query(r, [1, 2, "other"]), [1, 2, "other", 1], drops=True),
    "query_release text": Reader(lambda r: of_query(r, ["a", "b"]), ["a", "b", "b"], drops=True),
    "query_release large ids": Reader(lambda r: of_query(r, BIG), [*BIG, BIG[1]], drops=True),
    "query_release days": Reader(lambda r: of_query(r, [DAY, DAY + 1]), [DAY, DAY + 1, DAY + 1], drops=True),
    "query_release dates": Reader(
        lambda r: of_query(r, [DAY.item(), (DAY + 1).item()]), [DAY.item(), (DAY + 1).item()], drops=True
    ),
    "query_release codes": Reader(lambda r: of_query(r, 4), [0, 1, 3, 3], drops=True),
    "query_release rows": Reader(lambda r: of_rows(r, {"a": 5, "b": 3}), [[0, 1], [4, 2], [4, 0]], drops=True),
    "Private": Reader(lambda r: of_private(r, unit="entry"), [1, 2, 3, 4]),
    "Private fractions": Reader(lambda r: of_private(r, unit="entry"), [0.1, 2.5, 3]),
    "Private truth": Reader(lambda r: of_private(r, unit="entry"), [True, False]),
    "Private rows": Reader(lambda r: of_private(r, unit="row"), ROWS),
    "hierarchy.private": Reader(of_hierarchy, [1, 2, 3]),
    "tree_query.private": Reader(of_tree, [1, 2, 3, 4, 5, 6, 7]),
    "learn X": Reader(of_features, ROWS),
    "learn y": Reader(of_numbers, [1, 2, 3]),
    "learn classes": Reader(lambda r: of_labels(r, (0, 1)), [0, 1, 1, 0]),
    "learn classes of two kinds": Reader(lambda r: of_labels(r, (0, "other")), [0, "other", 0]),
    "learn large classes": Reader(lambda r: of_labels(r, tuple(BIG[:2])), BIG[:2]),
    "learn public classes": Reader(lambda r: of_labels(r, "public"), [0, 1, 1]),
    "learn several classes": Reader(lambda r: of_labels(r, (0, 1, 2)), [0, 1, 2, 1]),
    "PublicEncoder": Reader(of_encoder, [1, 2, 3, 2]),
    "Dataset": Reader(of_dataset, [1, 2, 3, 2]),
    "HalfspaceClassifier": Reader(of_halfspace, ROWS),
    "AffineSubspaceClassifier": Reader(of_affine_classifier, ROWS),
    "span": Reader(of_span(linalg.span, field=linalg.QQ), ROWS),
    "span on a grid": Reader(of_span(linalg.span, field=linalg.QQ, grid=2), ROWS),
    "span of floats": Reader(of_span(linalg.span, field=linalg.QQ, grid="0.3"), [[0.1, 2.5], [3.5, 7]]),
    "span of text": Reader(of_span(linalg.span, field=linalg.QQ), [["1/3", "2"], ["3", "1/7"]]),
    "span of GF": Reader(of_span(linalg.span, field=linalg.GF(7)), ROWS),
    "affine_span": Reader(of_span(linalg.affine_span, field=linalg.QQ), ROWS),
    "solve_equations b": Reader(of_sides, [1, 2, 3]),
    "feasible_point": Reader(lambda r: of_inequalities(r, margin=0.1), [[2**53 - 1, 1], [1, 2], [2, 2]]),
    "feasible_point whole": Reader(lambda r: of_inequalities(r, bound=2**60), [[2**53 + 1, 1], [1, 2], [2, 2]]),
    "point_in_hull": Reader(of_points, [[1, 2], [3, 4], [0.35, 2.1]]),
}


def objects(records: list[Any]) -> Any:
    if not isinstance(records[0], list):
        out = np.empty(len(records), dtype=object)
        out[:] = records
        return out
    out = np.empty((len(records), len(records[0])), dtype=object)
    for i, row in enumerate(records):
        for j, each in enumerate(row):
            out[i, j] = each
    return out


CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": lambda records: records,
    "objects": objects,
    "array": lambda records: np.array(records),
    "pandas": lambda records: pd.DataFrame(records) if isinstance(records[0], list) else pd.Series(records),
}


def encodings(reader: Reader, records: list[Any], container: str) -> list[Any] | None:
    """None where the records are refused, or the container cannot hold them."""
    try:
        given = CONTAINERS[container](records)
    except (ValueError, TypeError, OverflowError):
        return None
    try:
        return reader.read(given)
    except (dpm.DPModelError, TypeError):  # scikit-learn has type errors
        return None


def odd_one(reader: Reader, odd: Any) -> Any:
    return [odd, *reader.base[0][1:]] if isinstance(reader.base[0], list) else odd


def changed(reader: Reader, odd: Any, container: str) -> str:
    """What is wrong, or nothing."""
    before = encodings(reader, reader.base, container)
    after = encodings(reader, [*reader.base, odd_one(reader, odd)], container)
    if before is None or after is None:
        # What refuses a record for what it is may refuse it in any container, but no function that leaves records out.
        lost = reader.drops and before is not None and container in ("list", "objects")
        return f"{odd!r} in {container}: refused" if lost else ""
    kept = list(after)
    for each in before:
        if each not in kept:
            return f"{odd!r} in {container}: {before} became {after}"
        kept.remove(each)
    return "" if len(kept) <= 1 else f"{odd!r} in {container}: {before} became {after}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_no_other_record_is_read_differently(name: str) -> None:
    reader = READERS[name]
    assert len(encodings(reader, reader.base, "list") or []) == len(reader.base), "the base itself is read"
    assert not list(filter(None, (changed(reader, odd, each) for odd in ODD for each in CONTAINERS)))


@pytest.mark.filterwarnings("ignore")
def test_a_reader_that_gives_a_column_one_type_is_caught() -> None:
    number = {1: 0, 2: 1, 3: 2}
    united = Reader(lambda r: [number[x] for x in np.asarray(r).tolist() if x in number], [1, 2, 3])
    assert any(changed(united, odd, "list") for odd in ODD)


def test_every_function_that_reads_records_is_here() -> None:
    reads = {"table", "value", "X", "y", "A", "b", "points", "vectors", "counts"}
    # Published numbers, names, structure, and a number that is public.
    public = {"Noisy", "Release", "Target", "hierarchy", "marginal_query"}
    found = set()
    for module in (dpm, learn, linalg):
        for name in module.__all__:
            each = getattr(module, name)
            if not callable(each) or (isinstance(each, type) and issubclass(each, Exception | Warning)):
                continue
            methods = {k: getattr(each, k) for k in ("fit", "private") if hasattr(each, k)}
            for suffix, function in {"": each, **methods}.items():
                try:
                    given = set(inspect.signature(function).parameters)
                except ValueError:
                    continue
                if given & reads and name not in public:
                    found.add(f"{name}.{suffix}" if suffix == "private" else name)
    linear = {n for n in learn.__all__ if n.startswith("Private")}  # their ``fit`` is one of two
    assert found - linear <= {name.split()[0] for name in READERS}


def test_keys_are_equal_for_equal_values_in_any_form() -> None:
    same = [
        [1, 1.0, True, np.int8(1), np.float64(1), Fraction(1), Decimal(1)],
        ["a", np.str_("a")],
        [None, float("nan"), np.float32("nan"), np.datetime64("NaT"), pd.NaT, pd.NA, np.timedelta64("NaT")],
        [
            DAY,
            DAY.item(),
            datetime.datetime(2024, 3, 1),
            pd.Timestamp("2024-03-01"),
            *(DAY.astype(f"datetime64[{unit}]") for unit in ("D", "h", "s", "ms", "us", "ns")),
            np.datetime64("2024-03"),
        ],
        [pd.Timedelta("3h"), np.timedelta64(180, "m"), datetime.timedelta(hours=3)],
        [
            datetime.datetime(2024, 3, 1, 5, tzinfo=datetime.UTC),
            pd.Timestamp("2024-03-01T06", tz="Etc/GMT-1"),
        ],
        [2**53 + 1],
        [2**53],
        [b"a"],
        [np.timedelta64(1, "Y"), np.timedelta64(12, "M")],
    ]
    keys = [{key(value) for value in values} for values in same]
    assert all(len(each) == 1 for each in keys)
    assert len(set.union(*keys)) == len(same)
