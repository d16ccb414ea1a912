"""A private regression of several outputs: one regression each, over the same records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.regression.losses import Loss
from dpmodel.compile.regression.outputs import PublicColumns
from dpmodel.compile.regression.rows import Table
from dpmodel.marks.private import Private
from dpmodel.numerics.public_facts import PublicFacts
from dpmodel.programs.classifier import Classification


@dataclass(frozen=True)
class PrivateOutputs(PublicFacts):
    """minimise the sum of the objectives of ``parts``, which share records and have coefficients of their own.

    ``read`` : the private rows of all parts, each parameter read once; a mechanism's ``run`` alone may call it.
    ``public`` : constraints and penalties, for post-processing.
    """

    parts: tuple[PrivateRegression, ...]
    classification: Classification
    read: Callable[[], tuple[Table, ...]]
    public: PublicColumns

    @property
    def size(self) -> int:
        """Coefficients of all outputs together."""
        return sum(part.size for part in self.parts)

    @property
    def count(self) -> int:
        """n, the number of records."""
        return self.parts[0].count

    @property
    def in_blocks(self) -> bool:
        """Whether rows are read block by block."""
        return any(part.in_blocks for part in self.parts)

    @property
    def loss(self) -> Loss:
        """That of the first output; all have one clip."""
        return self.parts[0].loss

    @property
    def private(self) -> tuple[Private, ...]:
        """The private parameters, each once."""
        return tuple({id(p): p for part in self.parts for p in part.private}.values())


AnyRegression = PrivateRegression | PrivateOutputs
