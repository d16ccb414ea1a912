"""Time of ``Dataset.count`` and ``sum`` over a table in DuckDB, beside the plain query, in the same run.

The plain query is what one would write without privacy: ``select town, count(*)`` and ``select town, sum(income)``,
and "clipped" with the bounds in it, as a sum that one record moves by a known amount must have them: a bare sum is
shown beside it, and nothing is expected there. --rows rows in --towns towns. Shortest of --repeats.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import duckdb

from dpmodel import Dataset
from tests.benchmarks.measuring import Expectations, Table, header, parser, seconds, short

MOST = 1.2  # times the plain query
CLIPPED = "least(greatest(income, 0), 80000)"


def main() -> int:
    options = parser(__doc__, rows=10_000_000, towns=100, repeats=7).parse_args()
    header(("dpmodel", "duckdb", "narwhals"))
    expected = Expectations()
    connection = duckdb.connect()
    connection.sql(
        "create table visits as select hash(i) % 1000000 as person, 'town ' || (hash(i + 1) % "
        f"{options.towns}) as town, (hash(i + 2) % 100000)::double as income, hash(i + 3) as other "
        f"from range({options.rows}) t(i)"
    )
    towns = [f"town {k}" for k in range(options.towns)]
    people = Dataset(connection.table("visits"), bounds={"income": (0, 80_000)}, domain={"town": towns})
    table = Table(("query", 13), ("plain s", 9), ("Dataset s", 9), ("ratio", 7))
    queries: dict[str, tuple[str, Callable[[], Any]]] = {
        "count": ("select town, count(*) from visits group by town", lambda: people.count("town")),
        "sum": ("select town, sum(income) from visits group by town", lambda: people.sum("income", "town")),
        "sum clipped": (f"select town, sum({CLIPPED}) from visits group by town", lambda: people.sum("income", "town")),
        "total": ("select sum(income) from visits", lambda: people.sum("income")),
        "total clipped": (f"select sum({CLIPPED}) from visits", lambda: people.sum("income")),
    }
    for name, (plain, ours) in queries.items():
        theirs = seconds(lambda plain=plain: connection.sql(plain).fetchall(), options.repeats)
        mine = seconds(ours, options.repeats)
        table.row(name, short(theirs), short(mine), short(mine / theirs))
        if name in ("count", "sum clipped", "total clipped"):
            expected.expect(mine <= MOST * theirs, f"{name}: at most {MOST} times the plain query")
    return expected.close()


if __name__ == "__main__":
    sys.exit(main())
