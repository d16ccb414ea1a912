"""A private LP (or cone program): all that a mechanism may know about a problem, and the one way to its data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dpmodel._types import PrivateArray
from dpmodel.compile.affine_map import AffineMap
from dpmodel.compile.form import StandardForm, private_theta
from dpmodel.compile.public_set import PublicSet
from dpmodel.compile.rows import BlockRows, MemoryRows, cached_rows
from dpmodel.contract import Verdict
from dpmodel.marks.private import Private
from dpmodel.marks.rows import MOST_BLOCKS
from dpmodel.memo import PublicFacts
from dpmodel.programs.classifier import Classification

# What is read of a program: theta (P,) with the private values, or the rows of records where they lie.
PrivateNumbers = PrivateArray | BlockRows | MemoryRows


@dataclass(frozen=True)
class PrivateLP(PublicFacts):
    """A compiled and classified problem.

    ``form`` : public constants and private linear maps; ``classification`` : its cells;
    ``public`` : what the public constraints say about x.
    Everything but ``read_private`` (and ``read_rows``) is public.
    """

    form: StandardForm
    classification: Classification
    public: PublicSet

    @property
    def affine(self) -> AffineMap:
        return self.form.affine

    @property
    def entries(self) -> int:
        """Numbers that a product with the rows reads."""
        return int(self.form.matrix.nnz + self.form.A0.nnz)

    @property
    def private(self) -> tuple[Private, ...]:
        """The private parameters, each once."""
        return tuple(block.parameter for block in self.affine.private_blocks)

    def private_parts(self) -> tuple[str, ...]:
        """Which of "objective", "scalar", "matrix" depend on private parameters."""
        names = ("objective", "scalar", "matrix")
        return self.cached("private parts", lambda: tuple(each for each in names if self.form.private_part(each).nnz))

    @property
    def split_rows(self) -> int:
        """Private rows that lowering made (epigraphs): an error in them is not one in a constraint the user wrote."""
        private = self.form.private_rows
        return sum(int(private[block.rows].sum()) for block in self.affine.cones if block.constraint < 0)

    @property
    def splits_objective(self) -> bool:
        """Whether private numbers enter the user's objective through such rows."""
        cells = self.classification.cells
        through_rows = any("the objective" in cell.where and cell.part != "objective" for cell in cells)
        return self.split_rows > 0 and through_rows

    def all_rows(self, of_form: int) -> int:
        """How many rows of the program as many private rows of the form stand for."""
        return of_form

    def additions(self, terms: int) -> int:
        """The most additions that a term goes through in a sum over so many rows: what it may lose to rounding."""
        return terms

    def read_private(self) -> PrivateArray:
        """(P,) theta with the private values. Only a mechanism's ``run`` may call this."""
        return private_theta(self.affine)


@dataclass(frozen=True)
class RecordsLP(PrivateLP):
    """A program in which every one of ``count`` records owns the same rows: ``form`` has those of ``few`` records, and
    ``read`` hands out all, where they lie. ``in_blocks`` : whether that is in blocks, of which sums are added up."""

    count: int
    few: int
    in_blocks: bool
    read: Callable[[], BlockRows | MemoryRows]

    @property
    def entries(self) -> int:
        return self.all_rows(super().entries)

    def all_rows(self, of_form: int) -> int:
        return of_form * self.count // self.few

    def additions(self, terms: int) -> int:
        if not self.in_blocks:
            return terms
        # In a part; over the parts of a block, of which every kind of row has its own; in the tree over blocks.
        step, kinds = cached_rows(self.affine.variables), 2 * max(terms // self.count, 1)
        return min(terms, step + terms // step + kinds + 2 * int(math.log2(MOST_BLOCKS)) + 1)

    def read_rows(self) -> BlockRows | MemoryRows:
        """The rows, of which sums can be asked. Only a mechanism's ``run`` may call this."""
        return self.read()


def refuse_high(model: PrivateLP, what: str = "noise") -> Verdict | None:
    """No, if some private parameter may change arbitrarily: ``what`` cannot hide that."""
    high = [cell for cell in model.classification.cells if cell.level == "high"]
    return Verdict(False, f"{high[0].parameter} may change arbitrarily: no {what} can hide it") if high else None
