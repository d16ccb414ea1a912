"""Tables of mechanisms, made from what the registered ones say of themselves: Table 1, and those of the documents."""

from __future__ import annotations

import inspect
from dataclasses import replace

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.exact.model import PrivateInequalities, PrivatePoints, PrivateVectors
from dpmodel.plan.registry import KINDS, load_entry_points
from dpmodel.programs.taxonomy import CELLS, Taxonomy
from dpmodel.regressions.model import PrivateRegression
from dpmodel.released.model import Postprocessing

_BEYOND: dict[str, tuple[type, ...]] = {
    "regressions": (PrivateRegression,),
    "postprocessing": (Postprocessing,),
    "systems": (PrivateVectors, PrivateInequalities, PrivatePoints),
}


def taxonomy() -> Taxonomy:
    """Return Table 1 of HRRU14: objective, scalar, row (or all of A) and column, each high and low."""
    load_entry_points()
    programs = KINDS[PrivateLP].mechanisms
    cells = [
        replace(cell, mechanisms=tuple(m.name for m in programs if f"{cell.part} {cell.level}" in m.serves.cells))
        for cell in CELLS
    ]
    beyond = {name: tuple(m.name for kind in kinds for m in KINDS[kind].mechanisms) for name, kinds in _BEYOND.items()}
    table = Taxonomy(cells)
    table.beyond = beyond
    return table


# Families of the documents, by name, with the models that they are made of.
FAMILIES: dict[str, tuple[type, ...]] = {"programs": (PrivateLP,), **_BEYOND}


def mechanism_table(family: str) -> str:
    """The mechanisms of one of the ``FAMILIES`` as a Markdown table, and those with their paper's constants below it.

    The words are the first sentence of each mechanism's docstring, the source its own.
    """
    mechanisms = [each for model in FAMILIES[family] for each in KINDS[model].mechanisms]
    cells = any(each.serves.cells for each in mechanisms)
    head = ["mechanism", *(["cells of Table 1"] if cells else []), "what it does", "source"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for each in (each for each in mechanisms if not each.serves.as_printed):
        text = inspect.getdoc(type(getattr(each, "engine", each))) or ""
        words = " ".join(text.split("\n\n")[0].split()).removesuffix(".")
        told = [f"`{each.name}`", *([", ".join(each.serves.cells)] if cells else []), words, each.source]
        lines.append(f"| {' | '.join(part.replace('|', chr(92) + '|').replace('``', '`') for part in told)} |")
    printed = ", ".join(f"`{each.name}`" for each in mechanisms if each.serves.as_printed)
    return "\n".join([*lines, "", f"With the constants of their papers, as yardsticks: {printed}."])
