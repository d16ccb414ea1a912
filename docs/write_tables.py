"""Writes README's tables of mechanisms from the registry: ``python docs/write_tables.py``, after a change of one."""

import inspect
import re
from pathlib import Path

from dpmodel.programs.model import Program
from dpmodel.solve.registry import BEYOND, KINDS

README = Path(__file__).parent.parent / "README.md"


def mechanism_table(family: str) -> str:
    """The mechanisms of "programs", or of one of ``BEYOND``, as a Markdown table, those as printed below it.

    The words are the first sentence of each mechanism's docstring, the source its own.
    """
    mechanisms = [each for model in {"programs": (Program,), **BEYOND}[family] for each in KINDS[model].mechanisms]
    cells = family == "programs"  # shares are served in every cell
    head = ["mechanism", *(["cells of Table 1"] if cells else []), "what it does", "source"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for each in (each for each in mechanisms if not each.serves.as_printed):
        text = inspect.getdoc(type(each)) or ""
        words = " ".join(text.split("\n\n")[0].split()).removesuffix(".")
        told = [f"`{each.name}`", *([", ".join(each.serves.cells)] if cells else []), words, each.source]
        lines.append(f"| {' | '.join(part.replace('|', chr(92) + '|').replace('``', '`') for part in told)} |")
    printed = ", ".join(f"`{each.name}`" for each in mechanisms if each.serves.as_printed)
    return "\n".join([*lines, "", f"With the constants of their papers, as yardsticks: {printed}."])


def with_tables(text: str) -> str:
    """``text`` with the table between each pair of marks."""
    pattern = re.compile(r"(<!-- mechanisms: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}{mechanism_table(found[2])}\n{found[3]}", text)


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
