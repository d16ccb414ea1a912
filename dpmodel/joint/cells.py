"""Which cells of Table 1 the private numbers of people would be in if their variables were published."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from dpmodel.contract import Options
from dpmodel.errors import SpecificationError
from dpmodel.joint.form import Affine
from dpmodel.marks.private import Private
from dpmodel.marks.records import record_words
from dpmodel.programs.classifier import Cell, Classification
from dpmodel.programs.taxonomy import Part
from dpmodel.programs.taxonomy import cell as taxonomy_cell
from dpmodel.programs.theorems import impossibility_error

if TYPE_CHECKING:
    from dpmodel.joint.read import Read

_WHERE: dict[Part, str] = {
    "objective": "the objective, beside the shares of its own record",
    "scalar": "limits of the shares of its own record",
    "column": "what the shares of its own record use of a capacity",
    "row": "coefficients of limits of the shares of its own record",
}


def classified(given: Read) -> Classification:
    """All private parameters, in every part that they reach."""
    record = record_words((*given.private, *given.limits))
    stand = [
        _cell(part, parameter, f"{parameter.name()} stands in {_WHERE[part]}", record)
        for part, numbers in _parts(given).items()
        for parameter, columns in _columns(given)
        if any(np.diff(each.matrix.indptr)[columns].any() for each in numbers)
    ]
    capacities = [
        _cell("scalar", p, f"{p.name()} is a capacity, published once with noise", record) for p in given.limits
    ]
    return Classification((*stand, *capacities))


def _parts(given: Read) -> dict[Part, tuple[Affine, ...]]:
    form = given.form
    return {
        "objective": (form.values,),
        "column": (form.use,),
        "scalar": (form.limits, *form.caps),
        "row": (form.coefficients,),
    }


def _columns(given: Read) -> Iterator[tuple[Private, slice]]:
    """Each private parameter with its columns in a row of data, where private ones come first."""
    first = 0
    for parameter, (_, width) in zip(given.private, given.form.data, strict=False):
        yield parameter, slice(first, first + width)
        first += width


def _cell(part: Part, parameter: Private, reason: str, record: str) -> Cell:
    moved = parameter.sensitivity
    found = taxonomy_cell(part, "low" if moved.finite else "high")
    return Cell(
        part=part,
        level=found.level,
        parameter=parameter.name(),
        reason=reason,
        theorem=found.theorem,
        sensitivity={name: getattr(moved, name) if moved.finite else math.inf for name in ("l1", "l2", "linf")},
        solvable=found.solvable,
        relaxed=found.relaxed,
        where=(),
        record=record,
        single_entry=False,
        joint=True,
    )


def refuse_public(given: Read, asked: Options) -> NoReturn:
    """Raise for shares that nobody said are to be handed out one by one: with the theorem that stands against
    publishing them, where there is one."""
    impossible = next((cell for cell in classified(given).cells if not cell.solvable), None)
    if impossible is not None:
        place = {"objective": "objective", "column": "use of"}.get(impossible.part, "limits of")
        place += "" if impossible.part == "objective" else f" {given.shares.name()}"
        reason = f"{impossible.reason}, and all shares, published, would show the records"
        budget = asked.epsilon, asked.delta, asked.beta
        raise impossibility_error(impossible.part, impossible.parameter, place, *budget, reason, [])
    raise SpecificationError(
        f"shares {given.shares.name()} and release='public'",
        why="shares are handed out, each to its own person",
        remedy='release="joint"; or a cp.Variable in place of dpm.Shares, whose value everybody may see',
    )
