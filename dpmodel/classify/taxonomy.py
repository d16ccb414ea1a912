"""Table 1 of HRRU14 as data: which private linear programs can be solved, by what, and how well.

Sections are those where the paper treats the cell (its table points low-sensitivity rows to section 4.4; they
are treated in 4.3). Mechanism names are those of the registry in ``plan/registry.py``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Literal

from dpmodel.errors import SpecificationError
from dpmodel.text import html_table, table

Part = Literal["objective", "scalar", "row", "column", "matrix"]
Level = Literal["low", "high"]
PARTS: tuple[Part, ...] = ("objective", "scalar", "row", "column", "matrix")
LEVELS: tuple[Level, ...] = ("low", "high")

_ONCE = ("laplace-once", "gaussian-once")
# Mechanisms that leave a few rows out.
_MOST_ROWS = (
    "noisy-hinge-descent",
    "dense-multiplicative-weights",
    "point-exponential",
    "cheapest-point",
    "algorithm-2",
    "exact-equations",
)
# Regressions are objectives of low sensitivity that the paper does not treat: one convex loss per record.
REGRESSION_MECHANISMS = (
    "public-only",
    "sufficient-statistics",
    "frank-wolfe",
    "noisy-descent",
    "mirror-descent",
    "objective-perturbation",
    "subsampled-descent",
    "gaussian-frank-wolfe",
    "adassp-published",
    "frank-wolfe-published",
    "stochastic-mirror-descent",
)
# Published numbers under public constraints: no cell, because nothing private is read.
POSTPROCESS_MECHANISMS = (
    "exact-tree",
    "least-squares-tree",
    "projection",
    "admm-tree",
    "admm-tables",
    "admm-strategy",
    "admm",
    "general-solver",
    "admm-published",
)
# Vectors, inequalities or points, one per record, to be satisfied exactly: the cell (row, high) without a tolerance.
SYSTEM_MECHANISMS = (
    "stable-span",
    "block-votes",
    "stable-span-published",
    "hinge-descent",
    "rescaling-perceptron",
    "dense-weights",
    "dp-lp",
    "algorithm-10",
    "dp-lp-published",
    "tukey-depth",
    "pin-hull",
)
_NOISY_ROWS = ("noisy-multiplicative-weights", "algorithm-5", "algorithm-6")
_LABEL = {
    "objective": "objective c",
    "scalar": "scalar b",
    "row": "row / all of A",
    "column": "column of A",
}
_COLUMNS = ("location of change", "level", "solvable", "HRRU14", "mechanisms", "floor")
_NOTE = (
    "low: one record changes the part by a bounded amount; high: arbitrarily.",
    "yes*: in the relaxed sense, where all but a few constraints hold.",
    "floors, for a change of one entry by 1 unless it says B: n = number of private entries; alive: beta < (1 - delta)/"
    "(1 + exp(epsilon)); c = c(epsilon, delta, beta), c2 = c(2 epsilon, delta (1 + exp(epsilon)), beta), where "
    "c(e, d, b) = 1/2 - (exp(e) + d)/(2 (1 + exp(e))(1 - b)). dpmodel.classify.impossibility.floor gives the numbers.",
    "regressions (a sum or mean of one convex loss per record, written in CVXPY) are objectives of low sensitivity "
    f"beyond the paper's linear ones (TTZ15, AMU20): {', '.join(REGRESSION_MECHANISMS)}.",
    "post-processing (a likelihood of published noisy numbers under public constraints) reads nothing private and "
    f"costs nothing (LWK15): {', '.join(POSTPROCESS_MECHANISMS)}.",
    "exact systems (dpmodel.linalg: vectors, inequalities or points, one per record) are rows of high sensitivity that "
    f"hold exactly, all but a few (KMMST24): {', '.join(SYSTEM_MECHANISMS)}.",
)


@dataclass(frozen=True)
class TaxonomyCell:
    """One cell of Table 1.

    Parameters
    ----------
    part : ``"objective"``, ``"scalar"``, ``"row"`` (which stands for all of A too) or ``"column"``.
    level : ``"low"`` (bounded change) or ``"high"`` (arbitrary change).
    theorem, section : of HRRU14, behind the verdict.
    summary : one sentence for people.
    solvable : whether the cell can be solved to useful accuracy.
    relaxed : True if only in the relaxed sense, where a few constraints may be violated.
    mechanisms : names of the registered mechanisms that serve the cell.
    floor : least error of any mechanism, in the terms of `impossibility.floor`, or empty.
    """

    part: Part
    level: Level
    theorem: str
    section: str
    summary: str
    solvable: bool = True
    relaxed: bool = False
    mechanisms: tuple[str, ...] = ()
    floor: str = ""

    @property
    def verdict(self) -> str:
        """``"yes"``, ``"yes*"`` (relaxed) or ``"no"``, as printed in Table 1."""
        if not self.solvable:
            return "no"
        return "yes*" if self.relaxed else "yes"

    def to_dict(self) -> dict[str, object]:
        """Return the fields as a JSON-serialisable dict."""
        return {**asdict(self), "mechanisms": list(self.mechanisms)}


class Taxonomy(tuple[TaxonomyCell, ...]):
    """The eight cells, immutable; prints as Table 1."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Taxonomy: {len(self)} cells>"

    def __str__(self) -> str:
        return table(_COLUMNS, self._rows(), title="Private linear programs (HRRU14, Table 1)", footer=_NOTE)

    def _repr_html_(self) -> str:
        return html_table(_COLUMNS, self._rows(), title="Private linear programs (HRRU14, Table 1)", footer=_NOTE)

    def to_dict(self) -> dict[str, object]:
        """Plain data: ``source``, ``cells``, and the names in ``regressions``, ``postprocessing`` and ``systems``."""
        return {
            "source": "HRRU14, Table 1",
            "cells": [item.to_dict() for item in self],
            "regressions": list(REGRESSION_MECHANISMS),
            "postprocessing": list(POSTPROCESS_MECHANISMS),
            "systems": list(SYSTEM_MECHANISMS),
        }

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                _LABEL[item.part],
                item.level,
                item.verdict,
                f"{item.theorem}\nsection {item.section}",
                "\n".join(item.mechanisms) or "-",
                item.floor or "-",
            )
            for item in self
        ]


@cache
def taxonomy() -> Taxonomy:
    """Return Table 1 of HRRU14: objective, scalar, row (or all of A) and column, each high and low."""
    return Taxonomy(_CELLS)


def cell(part: str, level: str) -> TaxonomyCell:
    """Look up one cell.

    Parameters
    ----------
    part : one of `PARTS`; ``"matrix"`` shares the cell of ``"row"``, as in the paper.
    level : one of `LEVELS`.

    Raises
    ------
    SpecificationError
        For an unknown part or level.
    """
    if part not in PARTS:
        raise SpecificationError(f"unknown part {part!r}", remedy=f"one of {', '.join(PARTS)}")
    if level not in LEVELS:
        raise SpecificationError(f"unknown level {level!r}", remedy=f"one of {', '.join(LEVELS)}")
    wanted = "row" if part == "matrix" else part
    return next(item for item in _CELLS if (item.part, item.level) == (wanted, level))


_CELLS = (
    TaxonomyCell(
        part="objective",
        level="high",
        solvable=False,
        theorem="Theorem 37",
        section="5.2",
        floor="loss >= n c",
        summary="An objective that one record changes arbitrarily would reveal the records (reconstruction).",
    ),
    TaxonomyCell(
        part="objective",
        level="low",
        theorem="Theorem 34",
        section="4.5",
        mechanisms=(*_ONCE, "vertex-exponential", "public-only", "theorem-34"),
        floor="loss >= n B c, a record moving one entry by B",
        summary="Noise on the objective, or a private choice of vertex; constraints hold exactly.",
    ),
    TaxonomyCell(
        part="scalar",
        level="high",
        solvable=False,
        theorem="Theorem 36",
        section="5.1",
        floor="violation >= 1/2 if alive",
        summary="A right-hand side that one record changes arbitrarily would reveal that record.",
    ),
    TaxonomyCell(
        part="scalar",
        level="low",
        theorem="Theorem 22",
        section="4.2",
        mechanisms=(
            *_ONCE,
            "strict-truncated-laplace",
            "measure-and-fit",
            "multiplicative-weights",
            "private-cutting-planes",
            "public-only",
            "algorithm-4",
            *_MOST_ROWS,
        ),
        floor="violation >= B/2 if alive, a record moving one entry by B",
        summary="Noise on the right-hand side once, or multiplicative weights over the variables.",
    ),
    TaxonomyCell(
        part="row",
        level="high",
        relaxed=True,
        theorem="Theorems 11, 12",
        section="3",
        mechanisms=(*_MOST_ROWS, "public-only"),
        floor="violation >= n/4 if alive, when all rows are to hold (Theorem 38)",
        summary="One record owns a constraint: all but fewer than s constraints hold to within alpha, "
        "the others may be violated arbitrarily (dense multiplicative weights, hinge descent).",
    ),
    TaxonomyCell(
        part="row",
        level="low",
        theorem="Theorem 28",
        section="4.3",
        mechanisms=(*_ONCE, "strict-truncated-laplace", *_NOISY_ROWS, "public-only", *_MOST_ROWS),
        summary="Noise on the coefficients once, or multiplicative weights with noisy rows; for one row as for all "
        "of A. Where one record owns a constraint, leaving a few out is open too.",
    ),
    TaxonomyCell(
        part="column",
        level="high",
        solvable=False,
        theorem="Theorem 38",
        section="5.3",
        floor="violation >= n c2",
        summary="A column that one record changes arbitrarily would reveal the records, even if some "
        "constraints may be left out.",
    ),
    TaxonomyCell(
        part="column",
        level="low",
        theorem="Theorem 32",
        section="4.4",
        mechanisms=(*_ONCE, "strict-truncated-laplace", *_NOISY_ROWS, "public-only"),
        summary="Noise on the coefficients, scaled to how far one record moves each row in the 1-norm.",
    ),
)
