"""Docstrings as this package writes them: numpy's sections, with ``name : what it is`` where numpydoc has a type."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

ENTRY = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (\S.*)")
LITERAL = re.compile("(``.*?``)", re.DOTALL)
ERRORS = re.compile(r"\w+(?:, \w+)*")


def as_restructured(lines: list[str]) -> list[str]:
    """``lines`` with a heading for each section, and a list of definitions in it."""
    out: list[str] = []
    section, inside = "", False  # inside: an entry goes on, indented or not
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line and re.fullmatch("-{3,}", following):
            section, inside = line, False
            out += [f".. rubric:: {section}", ""]
        elif re.fullmatch("-{3,}", line):
            continue
        elif section and (entry := ENTRY.fullmatch(line)):
            names = ", ".join(f"**{name.replace('*', '')}**" for name in entry[1].split(", "))
            out += ["", names, f"    {entry[2]}"]
            inside = True
        elif section in ("Raises", "Warns") and ERRORS.fullmatch(line):
            out += ["", ", ".join(f":py:exc:`~.{name}`" for name in line.split(", "))]
        else:
            inside = inside and bool(line.strip())
            out.append(f"    {line}" if inside and not line.startswith(" ") else line)
    return out


def _process(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    # |x| is an absolute value here, never a substitution.
    pieces = LITERAL.split("\n".join(as_restructured(lines)))
    pieces[::2] = [piece.replace("|", "\\|") for piece in pieces[::2]]
    lines[:] = "".join(pieces).split("\n")


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
