"""Table 1 with the mechanisms that serve each cell, as the registry has them."""

from __future__ import annotations

from dataclasses import replace

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.classify.taxonomy import CELLS, Taxonomy
from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.mechanisms.linalg.systems import PrivateInequalities, PrivatePoints, PrivateVectors
from dpmodel.plan.registry import KINDS, load_entry_points

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
    return Taxonomy(cells, beyond)
