"""Rows that DuckDB writes to files, because memory is short, are nobody else's to read, and do not stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dpmodel.errors import SpecificationError
from dpmodel.marks import row_sources as spilled
from dpmodel.marks.dataset import Dataset, open_table

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


def table(rows: int = 1_500_000) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame({"who": rng.permutation(rows), "visit": rng.random(rows), "town": rng.choice(["a", "b"], rows)})


def relation() -> Any:
    """Of a connection of the user's own."""
    connection = duckdb.connect(config={"memory_limit": "40MB", "threads": 1})
    return connection.from_arrow(table().to_arrow())


PLACES: dict[str, Callable[[Path], Any]] = {
    "relation": lambda folder: Dataset(relation(), **DECLARED),
    "arrow": lambda folder: Dataset(table().to_arrow(), **DECLARED),
    "csv": lambda folder: (table(400_000).write_csv(folder / "a.csv"), Dataset.scan(folder / "a.csv", **DECLARED))[1],
    "parquet": lambda folder: (
        table().write_parquet(folder / "a.parquet"),
        Dataset.scan(folder / "a.parquet", **DECLARED),
    )[1],
}
DECLARED: dict[str, Any] = {"privacy_id": "who", "max_rows": 1, "order": "visit", "domain": {"town": ["a", "b"]}}


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_nothing_appears_in_the_working_directory(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small() -> Any:
        connection = spilled.connected()
        connection.execute("set memory_limit='40MB'; set threads=1")
        return connection

    monkeypatch.setattr(open_table, "connected", small)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    seen: list[str] = []
    private = Path(spilled._folder().name)
    made = PLACES[place](tmp_path)
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.002):
            seen.extend(os.listdir(private))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        made.count("town")
    finally:
        done.set()
        watcher.join()
    assert seen, "memory was not short enough for the test"
    assert not list((tmp_path / "here").iterdir()) and private.stat().st_mode & 0o077 == 0


def test_a_connection_is_told_where_to_write_unless_somebody_said_so(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)

    def folder(connection: Any) -> str:
        Dataset(connection.sql("select 'a' as town"), domain={"town": ["a"]})
        return str(connection.execute("select current_setting('temp_directory')").fetchall()[0][0])

    private = spilled._folder().name
    assert folder(duckdb.connect()) == folder(duckdb.connect("a.db")) == private
    for chosen in ("", str(tmp_path)):
        assert folder(duckdb.connect(config={"temp_directory": chosen})) == chosen
    assert folder(spilled.connected()) == private


def test_a_connection_that_has_written_already_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    connection = duckdb.connect(config={"memory_limit": "20MB", "threads": 1})
    connection.execute("create table t as select range as who, hash(range) as h, 'a' as town from range(2000000)")
    assert (tmp_path / ".tmp").exists(), "memory was not short enough for the test"
    with pytest.raises(SpecificationError, match="readable by everybody"):
        Dataset(connection.table("t"), domain={"town": ["a"]})


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_a_process_leaves_nothing_that_others_can_read(end: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "temporary").mkdir()
    program = textwrap.dedent(
        """
        import sys
        from dpmodel.marks import row_sources as spilled
        connection = spilled.connected()
        connection.execute("set memory_limit='20MB'; set threads=1")
        connection.execute("create table t as select range as i, hash(range) as h from range(2000000)")
        print("ready", flush=True)
        sys.stdin.readline()
        """
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    run = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path / "here",
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert run.stdin is not None and run.stdout is not None
    assert run.stdout.readline() == b"ready\n"
    (private,) = (tmp_path / "temporary").iterdir()
    assert list(private.iterdir()) and private.stat().st_mode & 0o777 == 0o700
    if end == "kill":
        run.send_signal(signal.SIGKILL)
    run.communicate(b"\n", timeout=60)
    assert not list((tmp_path / "here").iterdir())
    left = list((tmp_path / "temporary").iterdir())
    assert all(each.stat().st_mode & 0o777 == 0o700 for each in left) if end == "kill" else not left
