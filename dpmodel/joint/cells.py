"""Which cells of Table 1 the private numbers of people would be in if their variables were published."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dpmodel.contract import Options
from dpmodel.errors import SpecificationError
from dpmodel.joint.form import Affine
from dpmodel.marks.records import record_words
from dpmodel.programs.classifier import Cell, Classification
from dpmodel.programs.taxonomy import Level, Part
from dpmodel.programs.taxonomy import cell as taxonomy_cell
from dpmodel.programs.theorems import impossibility_error

if TYPE_CHECKING:
    from dpmodel.joint.read import Read

_WHERE: dict[Part, str] = {
    "objective": "the coefficients c",
    "scalar": "right-hand sides of a person's own limits",
    "column": "coefficients of what all share",
    "row": "coefficients of a person's own limits",
}
JOINT = 'release="joint": each person is handed their own share, and everybody learns prices'


def classified(given: Read) -> Classification:
    """The cells, each with what is joint about it."""
    cells = [
        _cell(given, part, parameter, numbers)
        for part, numbers in _parts(given).items()
        for parameter in given.private
        if _stands_in(given, parameter.name(), numbers)
    ]
    return Classification(tuple(cells), joint=JOINT if cells else "")


def _parts(given: Read) -> dict[Part, tuple[Affine, ...]]:
    form = given.form
    return {
        "objective": (form.values,),
        "column": (form.use,),
        "scalar": (form.limits, *form.caps),
        "row": (form.coefficients,),
    }


def _stands_in(given: Read, name: str, numbers: tuple[Affine, ...]) -> bool:
    first = 0
    for each, width in given.form.data:
        if each == name and any(np.diff(part.matrix.indptr)[first : first + width].any() for part in numbers):
            return True
        first += width
    return False


def _cell(given: Read, part: Part, parameter: Any, numbers: tuple[Affine, ...]) -> Cell:
    level: Level = "low" if parameter.sensitivity.finite else "high"
    found, moved = taxonomy_cell(part, level), parameter.sensitivity
    sensitivity = {"l1": moved.l1, "l2": moved.l2, "linf": moved.linf}
    reason = f"{parameter.name()} stands in {_WHERE[part]}; each record owns its shares"
    return Cell(
        part=part,
        level=level,
        parameter=parameter.name(),
        reason=reason,
        theorem=found.theorem,
        sensitivity=sensitivity if level == "low" else dict.fromkeys(sensitivity, math.inf),
        solvable=found.solvable,
        relaxed=found.relaxed,
        where=(),
        record=record_words(given.private),
        single_entry=False,
    )


def refuse_public(given: Read, asked: Options) -> NoReturn:
    """Raise for shares that nobody said are to be handed out one by one: with the theorem that stands against
    publishing them, where there is one."""
    if asked.release != "public":
        raise SpecificationError(
            f"release={asked.release!r}", why="what is released goes to all or to each", remedy=JOINT
        )
    impossible = [cell for cell in classified(given).cells if not cell.solvable]
    if impossible:
        cell = impossible[0]
        where = "objective" if cell.part == "objective" else _WHERE[cell.part]
        reason = f"{cell.reason}; published, all shares together would show the records"
        raise impossibility_error(cell.part, cell.parameter, where, asked.epsilon, asked.delta, asked.beta, reason, [])
    raise SpecificationError(
        f"shares {given.shares.name()} and release='public'",
        why="shares are handed out, each to its own person",
        remedy=f"{JOINT}; or a cp.Variable in place of dpm.Shares, whose value everybody may see",
    )
