"""A private regression: all that a mechanism may know about it, and the one way to its rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dpmodel._types import Floats
from dpmodel.compile.regression.domain import Domain
from dpmodel.compile.regression.losses import Loss
from dpmodel.compile.regression.penalty import Penalty
from dpmodel.compile.regression.row_bounds import RowBounds
from dpmodel.compile.regression.rows import Reader, Rows, Table
from dpmodel.marks.private import Private
from dpmodel.numerics.public_facts import PublicFacts
from dpmodel.programs.classifier import Classification

if TYPE_CHECKING:
    from dpmodel.compile.regression.public_part import PublicPart


@dataclass(frozen=True)
class PrivateRegression(PublicFacts):
    """minimise ``scale * sum_i omega_i loss(a_i' w + o_i, y_i) + penalty(w)`` over w in ``domain``.

    ``count`` : n, the public number of rows (under add-remove a capacity). ``row`` : bounds on rows and labels.
    ``total`` : ``sum_i omega_i`` (n without weights); ``largest_weight`` : max omega_i. ``offset_bound`` : max |o_i|;
    ``offset_range`` : least and largest o_i.
    ``private`` : the parameters rows are read from. ``public`` : the public constraints and penalty as CVXPY wrote
    them, for post-processing (None in tests that have no CVXPY model). A clip asked for is in
    ``loss.clip``. Everything but ``read_rows`` is public.
    """

    loss: Loss
    count: int
    scale: float
    row: RowBounds
    domain: Domain
    penalty: Penalty
    classification: Classification
    read: Reader
    public: PublicPart | None = None
    total: float = 0.0
    largest_weight: float = 1.0
    offset_bound: float = 0.0
    offset_range: tuple[float, float] = (0.0, 0.0)
    private: tuple[Private, ...] = ()

    @property
    def scores(self) -> int:
        """How many predictions a record has, each with coefficients of its own: K of a multinomial model."""
        return 1

    @property
    def size(self) -> int:
        """p, the number of coefficients (intercepts included); of K scores K p."""
        return self.row.size * self.scores

    @property
    def weight(self) -> float:
        """``scale * total``: the objective is this times a weighted mean of losses, plus the penalty."""
        return self.scale * self.total

    @cached_property
    def prediction_bound(self) -> float:
        """Largest |prediction| over the set and the rows allowed; inf where the set is unbounded."""
        norms = (self.domain.norm(order) for order in (1.0, 2.0, float("inf")))
        return self.row.prediction_bound(*norms) + self.offset_bound

    @cached_property
    def derivative_bound(self) -> float:
        """Largest |derivative of the loss| over the set and the rows allowed."""
        return self.loss.derivative_bound(self.prediction_bound, self.row.label_bound)

    def reaches(self, w: Floats) -> Floats:
        """(B,) largest |prediction| of w (B, size) over the rows allowed, without the offset."""
        return self.row.reaches(w)

    def gradient_sensitivity(self, order: float, reach: float | None = None) -> float:
        """How far one record moves ``sum_i omega_i s_i a_i``, |s_i| <= ``reach`` (default: the loss's derivative), with
        an allowance for the rounding of two such sums in double precision."""
        reach = self.derivative_bound if reach is None else reach
        exact = self.largest_weight * self.row.sensitivity(reach, order)
        # n products and sums, each off by at most one part in 2^53 of the sum of sizes (any order of summation).
        rounding = 4 * (self.count + 4) * 2.0**-53 * self.total * reach * self.row.norm(order)
        return exact * (1 + 1e-12) + rounding

    @property
    def in_blocks(self) -> bool:
        """Whether rows are read block by block: then sums over them are all there is."""
        return any(parameter.in_blocks for parameter in self.private)

    def read_table(self) -> Table:
        """The private rows. Only a mechanism's ``run`` may call this."""
        return self.read()

    def read_rows(self) -> Rows:
        """The same in memory, for mechanisms that do not read blocks."""
        rows = self.read().in_memory
        assert rows is not None, "rows in blocks"
        return rows
