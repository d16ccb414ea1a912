"""Print the table of audits: ``PYTHONPATH=.:tests:tests/mechanisms python -m audit_table``, or run this file."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
for _path in (HERE, HERE.parent, HERE.parent.parent):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

from audits import BROKEN, HONEST, lower_bound  # noqa: E402


def rows() -> list[tuple[str, ...]]:
    """mechanism, part, epsilon, delta, lower bound, and the same for every broken twin."""
    out = []
    for audit in HONEST:
        twins = [t for t in BROKEN if (t.mechanism, t.case) == (audit.mechanism, audit.case)]
        bound = f"{lower_bound(audit):.3f}"
        for twin in twins or [None]:
            broken = ("-", "-", "-") if twin is None else (twin.twin, f"{twin.epsilon:g}", f"{lower_bound(twin):.3f}")
            out.append((audit.mechanism, audit.part, f"{audit.epsilon:g}", f"{audit.delta:g}", bound, *broken))
    return out


def main() -> None:
    warnings.simplefilter("ignore")
    head = ("mechanism", "part", "epsilon", "delta", "bound found", "broken twin", "it claims", "bound found")
    table = [head, *rows()]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
