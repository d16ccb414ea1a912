"""Table 1 of HRRU14 as data: which private linear programs can be solved, by what, and how well.

The only source of the table: texts, figures, the site and the explorer read it here. The paper has eight cells. It
has all of A in the cell of a row; the two cells of ``"matrix"`` are ours and say so (``TaxonomyCell.ours``).
Sections are those where the paper treats the cell (its table points low-sensitivity rows to section 4.4; they
are treated in 4.3). Which mechanisms serve a cell is told by the mechanisms; ``plan.tables`` adds their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

from dpmodel.errors import SpecificationError
from dpmodel.figures import Square, taxonomy_grid
from dpmodel.text import TextTable

Part = Literal["objective", "scalar", "row", "column", "matrix"]
Level = Literal["low", "high"]
PARTS: tuple[Part, ...] = ("objective", "scalar", "row", "column", "matrix")
LEVELS: tuple[Level, ...] = ("low", "high")

_LABEL = {
    "objective": "objective c",
    "scalar": "scalar b",
    "row": "row of A",
    "column": "column of A",
    "matrix": "all of A (ours)",
}
_MARK = " (ours)"
_TITLE = "Private linear programs (HRRU14, Table 1)"
_COLUMNS = ("location of change", "level", "solvable", "HRRU14", "mechanisms", "lower_bound", "joint")
_LEVELS = (
    "low: by at most a declared bound (in the paper, one that vanishes as the database grows; classify() holds it "
    "against the numbers); high: arbitrarily."
)
_OURS = "ours: the paper has all of A with a row."
_NOTE = (
    _LEVELS,
    _OURS,
    "yes*: in the relaxed sense, where all but a few constraints hold.",
    "lower bounds, for a change of one entry by 1 unless it says B: n = number of private entries; "
    "alive: beta < (1 - delta)/(1 + exp(epsilon)); c = c(epsilon, delta, beta), "
    "c2 = c(2 epsilon, delta (1 + exp(epsilon)), beta), where "
    "c(e, d, b) = 1/2 - (exp(e) + d)/(2 (1 + exp(e))(1 - b)). Numbers: dpmodel.programs.theorems.lower_bound.",
)


_JOINT = "joint: where every record owns its variables (dpm.Shares) and is handed them alone; others learn prices."
_SHORT = (f"{_LEVELS} yes*: all but a few constraints hold. {_OURS} {_JOINT} More in to_dict().",)
_BEYOND = {
    "regressions": "regressions (a sum or mean of one convex loss per record, written in CVXPY) are objectives of low "
    "sensitivity beyond the paper's linear ones (TTZ15, AMU20)",
    "postprocessing": "post-processing (a likelihood of published noisy numbers under public constraints) reads "
    "nothing private and costs nothing (LWK15)",
    "shares": 'shares of people who own their variables (dpm.Shares, release="joint") have a private objective, '
    "private limits and private columns of any size: others learn prices alone (HHRW16)",
    "systems": "exact systems (dpmodel.linalg: vectors, inequalities or points, one per record) are rows of high "
    "sensitivity that hold exactly, all but a few (KMMST24)",
}


@dataclass(frozen=True)
class Joint:
    """A part where every record owns its variables and is handed them alone: ``dpm.Shares``, ``release="joint"``.

    ``verdict`` : "yes" or "no". ``theorem`` : behind it. ``summary`` : one sentence. ``others_learn`` : all of them
    together, of a record. ``person_learns`` : whoever the record is about.
    """

    summary: str
    verdict: str = "yes"
    theorem: str = "billboard lemma, HHRRW14; HHRW16"
    others_learn: str = "prices, which are differentially private, and their own shares, which follow from prices"
    person_learns: str = "their own share, which may show their own data, and prices"


_HOLD = "All limits of a record's own variables hold exactly, whatever their coefficients."
JOINT: Mapping[Part, Joint] = MappingProxyType(
    {
        "objective": Joint("Each record may value its own variables by any amount."),
        "scalar": Joint("Limits of a record's own variables may be anything; capacities that all share need a bound."),
        "row": Joint(_HOLD),
        "matrix": Joint(_HOLD),
        "column": Joint("What a record uses of a capacity may be anything, and is cut to a public limit."),
    }
)


@dataclass(frozen=True)
class TaxonomyCell:
    """One cell of Table 1.

    Parameters
    ----------
    part : ``"objective"``, ``"scalar"``, ``"row"``, ``"column"`` or ``"matrix"`` (all of A).
    level : ``"low"`` (a change of at most a declared bound) or ``"high"`` (arbitrary change).
    theorem, section : of HRRU14, behind the verdict.
    summary : one sentence for people.
    solvable : whether the cell can be solved to useful accuracy.
    relaxed : True if only in the relaxed sense, where a few constraints may be violated.
    mechanisms : names of the registered mechanisms that serve the cell, in ``dpmodel.taxonomy()``.
    lower_bound : least error of any mechanism, in the terms of `theorems.lower_bound`, or empty.
    ours : empty for a cell as the paper prints it; else what the paper says, and what this cell adds.
    joint : the same part where every record owns its variables (ours, after HHRW16).
    """

    part: Part
    level: Level
    theorem: str
    section: str
    summary: str
    solvable: bool = True
    relaxed: bool = False
    mechanisms: tuple[str, ...] = ()
    lower_bound: str = ""
    ours: str = ""

    @property
    def verdict(self) -> str:
        """``"yes"``, ``"yes*"`` (relaxed) or ``"no"``, as printed in Table 1."""
        if not self.solvable:
            return "no"
        return "yes*" if self.relaxed else "yes"

    @property
    def label(self) -> str:
        """The part, as Table 1 names it, and whether the cell is ours."""
        return _LABEL[self.part]

    @property
    def joint(self) -> Joint:
        return JOINT[self.part]

    def to_dict(self) -> dict[str, object]:
        """Return the fields as a JSON-serialisable dict."""
        return {**asdict(self), "mechanisms": list(self.mechanisms), "joint": asdict(self.joint)}


class Taxonomy(tuple[TaxonomyCell, ...]):
    """The paper's eight cells and our two, immutable; prints as Table 1.

    ``beyond`` : the mechanisms of families that Table 1 does not have, by name of the family.
    """

    beyond: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"<Taxonomy: {len(self)} cells>"

    def __str__(self) -> str:
        columns = ("part", "solvable", "joint", "HRRU14", "in a sentence")
        rows = [
            (
                f"{cell.label.removesuffix(_MARK)},\n{cell.level}{_MARK * bool(cell.ours)}",
                cell.verdict,
                cell.joint.verdict,
                cell.theorem,
                cell.summary,
            )
            for cell in self
        ]
        return str(TextTable(columns, rows, title=_TITLE, footer=_SHORT))

    def _repr_html_(self) -> str:
        beyond = (f"{_BEYOND[family]}: {', '.join(names)}." for family, names in self.beyond.items())
        return TextTable(_COLUMNS, self._rows(), title=_TITLE, footer=(*_NOTE, *beyond))._repr_html_()

    def plot(self, ax: Any = None) -> Any:
        """Draw the table as a grid (extra ``[plot]``); returns the figure. ``classification.plot()`` lights a model's
        cells in it."""
        return taxonomy_grid(squares(), {}, ax)

    def to_dict(self) -> dict[str, object]:
        """Plain data: ``source``, ``cells``, and the mechanisms of ``beyond``, by family."""
        return {
            "source": "HRRU14, Table 1; a cell with `ours` is an addition",
            "cells": [item.to_dict() for item in self],
            **{family: list(names) for family, names in self.beyond.items()},
        }

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                item.label,
                item.level,
                item.verdict,
                f"{item.theorem}\nsection {item.section}",
                "\n".join(item.mechanisms) or "-",
                item.lower_bound or "-",
                f"{item.joint.verdict}: {item.joint.summary}",
            )
            for item in self
        ]


def cell(part: str, level: str) -> TaxonomyCell:
    """Look up one cell.

    ``part`` : one of `PARTS`.
    ``level`` : one of `LEVELS`.
    Errors: SpecificationError, for an unknown part or level.
    """
    if part not in PARTS:
        raise SpecificationError(f"unknown part {part!r}", remedy=f"one of {', '.join(PARTS)}")
    if level not in LEVELS:
        raise SpecificationError(f"unknown level {level!r}", remedy=f"one of {', '.join(LEVELS)}")
    return next(item for item in CELLS if (item.part, item.level) == (part, level))


def squares() -> list[Square]:
    """The cells for figures."""
    return [Square(item.label, item.level, item.verdict, item.theorem) for item in CELLS]


CELLS = (
    TaxonomyCell(
        part="objective",
        level="high",
        solvable=False,
        theorem="Theorem 37",
        section="5.2",
        lower_bound="loss >= n c",
        summary="Costs that one record changes arbitrarily would reveal the records.",
    ),
    TaxonomyCell(
        part="objective",
        level="low",
        theorem="Theorem 34",
        section="4.5",
        lower_bound="loss >= n B c, a record moving one entry by B",
        summary="Noise on the objective, or a private choice of vertex; constraints hold exactly.",
    ),
    TaxonomyCell(
        part="scalar",
        level="high",
        solvable=False,
        theorem="Theorem 36",
        section="5.1",
        lower_bound="violation of an equality >= 1/2 if alive",
        summary="A right-hand side that one record changes arbitrarily would reveal that record.",
    ),
    TaxonomyCell(
        part="scalar",
        level="low",
        theorem="Theorem 22",
        section="4.2",
        lower_bound="violation of an equality >= B/2 if alive, a record moving one entry by B",
        summary="Noise on the right-hand side once, or multiplicative weights over the variables.",
    ),
    TaxonomyCell(
        part="row",
        level="high",
        relaxed=True,
        theorem="Theorems 11, 12",
        section="3",
        lower_bound="violation >= n/4 if alive, when all rows are to hold (Theorem 38)",
        summary="One record owns a constraint: all but fewer than s hold to within alpha, the others may be violated "
        "arbitrarily.",
    ),
    TaxonomyCell(
        part="row",
        level="low",
        theorem="Theorem 28",
        section="4.3",
        summary="Noise on the coefficients once, or weights with noisy rows; or, where one record owns a constraint, "
        "a few are left out.",
    ),
    TaxonomyCell(
        part="matrix",
        level="high",
        solvable=False,
        theorem="Theorem 38",
        section="5.3",
        lower_bound="violation >= n/4 if alive",
        summary="A record that changes arbitrarily more rows than can be left out would be revealed.",
        ours="The paper's table has all of A with a row, yes*; it proves that where a record owns one row (section 3). "
        "For a record that owns more rows than can be left out, the proof of Theorem 38 says no.",
    ),
    TaxonomyCell(
        part="matrix",
        level="low",
        theorem="Theorem 28",
        section="4.3",
        summary="Noise on the coefficients once, or weights with noisy rows.",
        ours="The paper's table has all of A with a row, and the same verdict.",
    ),
    TaxonomyCell(
        part="column",
        level="high",
        solvable=False,
        theorem="Theorem 38",
        section="5.3",
        lower_bound="violation >= n c2",
        summary="A column that one record changes arbitrarily would reveal the records, rows left out or not.",
    ),
    TaxonomyCell(
        part="column",
        level="low",
        theorem="Theorem 32",
        section="4.4",
        summary="Noise on the coefficients, scaled to how far one record moves each row in the 1-norm.",
    ),
)
