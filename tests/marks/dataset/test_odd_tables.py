"""Tables as people have them: each works in every engine, or gets an error that says what is the matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_tables import NATIVE, SOME_SLOW, value_of

import dpmodel as dpm
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.marks.dataset import Dataset

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

NAMES = ["a.b", "a", "*", "^.*$", 'q"x', "a b", "who", "c0", "rows", "cell", "é", "'", "%s", "{}", ""]


@pytest.mark.parametrize("engine", SOME_SLOW)
def test_any_name_of_a_column(engine: str) -> None:
    names = [name for name in NAMES if name or engine != "duckdb"]  # which has no column without a name
    frame = pl.DataFrame({name: ["u", "v", "u"] for name in names} | {"n.1": [1.0, 2.0, 3.0], "person.id": [1, 2, 2]})
    for name in names:
        people = Dataset(
            NATIVE[engine](frame), privacy_id="person.id", max_rows=2, domain={name: ["u", "v"]}, bounds={"n.1": (0, 4)}
        )
        np.testing.assert_array_equal(value_of(people.count(name)), [2, 1])
        np.testing.assert_array_equal(value_of(people.sum("n.1", name)), [4, 2])
        X = people.rows([name, "n.1"], first=True)
        assert X.labels[1][1] == (f"{name}=u", f"{name}=v", "n.1") and X.shape == (2, 3)
        assert value_of(people.incidence("person.id", name)).sum() == 3


@pytest.mark.parametrize("name", ["a.b", "*", 'q"x', "a b", ""])
def test_any_name_of_a_column_of_a_file(name: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": ["v"] * 3, name: ["u", "v", "u"], "n": [1.0, 2.0, 3.0]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_csv(tmp_path / "a.csv")
    for file in ("a.csv", "a.parquet")[: 2 if name else 1]:  # DuckDB gives such a column of parquet a name
        people = Dataset.scan(tmp_path / file, domain={name: ["u", "v"]}, bounds={"n": (0, 4)})
        np.testing.assert_array_equal(value_of(people.count(name)), [2, 1])
        rows: Any = dpm.marks.vault.unseal(people.rows([name, "n"], in_blocks=True))
        found = rows.source.map_reduce(lambda block, number, rows=rows: rows.numbers(block), lambda a, b: a)
        np.testing.assert_array_equal(found, [[1, 0, 1], [0, 1, 2], [1, 0, 3]])


CATEGORICALS: dict[str, tuple[Any, Any]] = {
    "integers": ([1, 2, 1], [1, 2]),
    "truth": ([True, False, True], [True, False]),
    "fractions": ([0.5, 1.5, 0.5], [0.5, 1.5]),
    "text": (["a", "b", "a"], ["a", "b"]),
    "days": (pd.to_datetime(["2024-03-01", "2024-03-02", "2024-03-01"]), ["2024-03-01", "2024-03-02"]),
    "intervals": (pd.cut([1, 2, 1], [0, 1, 3]), [pd.Interval(0, 1), pd.Interval(1, 3)]),
    "intervals in words": (pd.cut([1, 2, 1], [0, 1, 3]), ["(0, 1]", "(1, 3]"]),
    "intervals by their index": (pd.cut([1, 2, 1], [0, 1, 3]), pd.cut([1, 2], [0, 1, 3]).categories),
}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("case", CATEGORICALS)
def test_categories_of_pandas(case: str, ordered: bool) -> None:
    given, listed = CATEGORICALS[case]
    column = pd.Series(pd.Categorical(given, ordered=ordered))
    people = Dataset(pd.DataFrame({"c": column, "who": column}), domain={"c": listed})
    np.testing.assert_array_equal(value_of(people.count("c")), [2, 1])
    np.testing.assert_array_equal(value_of(people.rows(["c"])), [[1, 0], [0, 1], [1, 0]])
    by_person = Dataset(pd.DataFrame({"c": column, "who": column}), privacy_id="who", max_rows=1, domain={"c": listed})
    np.testing.assert_array_equal(value_of(by_person.count("c")), [1, 1])
    if case in ("integers", "truth", "fractions"):
        bounded = Dataset(pd.DataFrame({"c": column}), bounds={"c": (0, 4)})
        assert value_of(bounded.sum("c")) == sum(given)


@pytest.mark.parametrize("epsilon", [1, 1e-4])
@pytest.mark.parametrize("high", [1e6, 1e12, 4e13, 1e15, 1e30, 1e99])
@pytest.mark.parametrize("whole", [True, False])
def test_sums_of_any_scale(high: float, epsilon: float, whole: bool) -> None:
    frame = pl.DataFrame({"v": [high, high / 2]})
    people = Dataset(frame, bounds={"v": (0, high)}, integers=["v"] if whole else [], neighbors="add-remove")
    total = people.sum("v")
    assert value_of(total) == pytest.approx(1.5 * high) and total.linf >= high
    noisy = dpm.measure(total, epsilon=epsilon, rng=0)
    assert noisy.noise.scale == pytest.approx(total.l1 / epsilon)
    assert noisy.noise.discrete == (whole and total.l1 / epsilon < 2**45)


def test_noise_of_sums_is_discrete_where_integers_were_declared() -> None:
    """Not where a column happens to be one of integers, nor where bounds are so wide that the grid is."""
    frame = pl.DataFrame({"n": [1, 2, 3], "v": [0.6, 2.5, -0.4], "wide": [1, 2, 3]})
    people = Dataset(frame, bounds={"n": (0, 5), "v": (-1, 5), "wide": (0, 1e8)}, integers="v")
    assert [people.sum(c).attributes["integer"] is True for c in ("n", "v", "wide")] == [False, True, False]
    assert value_of(people.sum("v")) == 4  # 1, 3 and 0: each is rounded by itself


def file(folder: Path, content: bytes) -> Path:
    (folder / "a.csv").write_bytes(content)
    return folder / "a.csv"


def test_decimal_commas(tmp_path: Path) -> None:
    path = file(tmp_path, b"town;v\nUlm;1,5\nUlm;-2\nBonn;1.5\nBonn;1.000,5\n")
    settings: dict[str, Any] = {"bounds": {"v": (-4, 4)}, "domain": {"town": ["Ulm", "Bonn"]}, "outside": "drop"}
    people = Dataset.scan(path, separator=";", decimal=",", **settings)
    np.testing.assert_array_equal(value_of(people.sum("v", "town")), [-0.5, 0])
    with pytest.raises(SpecificationError, match="no value in the domain or bounds of 'v'"):
        Dataset.scan(path, separator=";", bounds={"v": (-4, 4)}).sum("v")


def test_encodings(tmp_path: Path) -> None:
    path = file(tmp_path, "Straße;v\nGülle;1\nx;2\n".encode("latin-1"))
    settings: dict[str, Any] = {"separator": ";", "domain": {"Straße": ["Gülle", "x"]}}
    np.testing.assert_array_equal(value_of(Dataset.scan(path, encoding="latin-1", **settings).count("Straße")), [1, 1])
    with pytest.raises(SpecificationError, match="encoding='latin-1'"):
        Dataset.scan(path, **settings)
    with pytest.raises(SpecificationError, match="iconv"):
        Dataset.scan(path, encoding="cp437", **settings)
    body = file(tmp_path, "street;v\nGülle;1\n".encode("latin-1"))
    with pytest.raises(SpecificationError, match="encoding='latin-1'") as error:
        Dataset.scan(body, separator=";", domain={"v": [1]}).count("v")
    assert "lle" not in str(error.value)


@pytest.mark.parametrize("content", [b"a,b\r\nx,1\ny,2\r\n", b"a,b\nx,1\r\ny,2\n"])
def test_line_ends(content: bytes, tmp_path: Path) -> None:
    try:
        found = value_of(Dataset.scan(file(tmp_path, content), domain={"b": [1, 2]}).count("b"))
    except SpecificationError as error:
        assert "dos2unix" in str(error)
    else:
        np.testing.assert_array_equal(found, [1, 1])
    for ends in (b"\n", b"\r\n", b"\r"):
        people = Dataset.scan(file(tmp_path, ends.join([b"a,b", b"x,1", b"y,2", b""])), domain={"b": [1, 2]})
        np.testing.assert_array_equal(value_of(people.count("b")), [1, 1])


@pytest.mark.parametrize("grown", [400, 100])
def test_a_file_that_grew_or_shrank(grown: int, tmp_path: Path) -> None:
    def write(rows: int) -> None:
        pl.DataFrame({"v": np.arange(float(rows))}).write_parquet(tmp_path / "a.parquet")

    write(200)
    people = Dataset.scan(tmp_path / "a.parquet", bounds={"v": (0, 500)})
    X: Any = dpm.marks.vault.unseal(people.rows(["v"], in_blocks=True))
    write(grown)
    with pytest.raises(DPModelError, match=f"{'more' if grown > 200 else 'fewer'} rows than when the source was made"):
        X.source.map_reduce(lambda block, number: len(block), lambda a, b: a + b)
    again = Dataset.scan(tmp_path / "a.parquet", bounds={"v": (0, 500)})
    assert again.rows(["v"]).shape == (grown, 1)


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes(b"")
    with pytest.raises(SpecificationError, match="it is empty"):
        Dataset.scan(tmp_path / "people.csv", privacy_id="person")


def test_neighbors_are_those_of_the_records() -> None:
    table, staff = pl.DataFrame({"g": [0, 1]}), dpm.Records("staff", neighbors="add-remove")
    assert Dataset(table, domain={"g": 2}, records=staff).records.neighbors == "add-remove"
    assert Dataset(table, domain={"g": 2}).records.neighbors == "replace-one"
    assert Dataset(table, domain={"g": 2}, records=staff, neighbors="add-remove").records.neighbors == "add-remove"
    with pytest.raises(SpecificationError, match="neighbors"):
        Dataset(table, domain={"g": 2}, records=staff, neighbors="replace-one")
