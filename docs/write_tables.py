"""Writes README's tables of mechanisms from the registry: ``python docs/write_tables.py``, after a change of one."""

import re
from pathlib import Path

from dpmodel.solve.registry import mechanism_table

README = Path(__file__).parent.parent / "README.md"


def with_tables(text: str) -> str:
    """``text`` with the table between each pair of marks."""
    pattern = re.compile(r"(<!-- mechanisms: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}{mechanism_table(found[2])}\n{found[3]}", text)


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
