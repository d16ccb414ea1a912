"""DuckDB, whose rows that do not fit into memory are written where nobody else can read them.

Left alone, DuckDB writes them to ``.tmp`` in the working directory, readable by everybody, and leaves them there when
the process is killed. The folder here is this user's alone (mode 0700), and is removed when the process ends; what a
killed process leaves stays unreadable to others.
"""

from __future__ import annotations

import tempfile
from functools import cache
from typing import Any

from dpmodel.annotate.sources._extra import engine
from dpmodel.errors import SpecificationError

_BESIDE = ".tmp"  # where DuckDB writes by default: this, or the name of the database's file with it


def connected() -> Any:
    """A connection to a new database in memory."""
    return engine("duckdb", "data").connect(config={"temp_directory": _folder().name})


def settled(relation: Any) -> Any:
    """A relation of the user's own connection, which from now on writes to the private folder, unless somebody chose
    another one.

    Raises
    ------
    SpecificationError
        Where the connection has written already, so that its folder cannot be changed.
    """
    ((folder,),) = relation.query("r", "select current_setting('temp_directory')").fetchall()
    files = relation.query("r", "select path from duckdb_databases() where path is not null").fetchall()
    if folder not in (_BESIDE, *(f"{file}{_BESIDE}" for (file,) in files)):
        return relation
    failed = ""
    try:
        relation.query("r", "set temp_directory='" + _folder().name.replace("'", "''") + "'")
    except Exception as error:
        failed = type(error).__name__
    if failed:
        raise SpecificationError(
            f"Dataset: DuckDB writes rows to {folder!r}, readable by everybody, and does not change that ({failed})",
            why="what does not fit into memory is written to files, which may outlive the process",
            remedy="duckdb.connect(config={'temp_directory': a folder of yours alone, or ''}) before the first query",
        )
    return relation


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dpmodel-")
