"""The registry: every mechanism the planner compares. Adding an algorithm is one file and one line here."""

from __future__ import annotations

from dpmodel.errors import SpecificationError
from dpmodel.mechanisms.lp.noise_once import GAUSSIAN_ONCE, LAPLACE_ONCE
from dpmodel.mechanisms.lp.strict_truncated_laplace import STRICT_TRUNCATED_LAPLACE
from dpmodel.mechanisms.lp.theorem_34 import THEOREM_34
from dpmodel.mechanisms.lp.vertex_selection import VERTEX_EXPONENTIAL
from dpmodel.mechanisms.mechanism import Mechanism

PORTFOLIO: tuple[Mechanism, ...] = (
    LAPLACE_ONCE,
    GAUSSIAN_ONCE,
    VERTEX_EXPONENTIAL,
    THEOREM_34,
    STRICT_TRUNCATED_LAPLACE,
)


def by_name(name: str) -> Mechanism:
    """The mechanism called ``name``.

    Raises
    ------
    SpecificationError
        For an unknown name, with the names that would do.
    """
    for mechanism in PORTFOLIO:
        if mechanism.name == name:
            return mechanism
    names = ", ".join(repr(mechanism.name) for mechanism in PORTFOLIO)
    raise SpecificationError(f"mechanism={name!r}", why="no such mechanism", remedy=f"'auto', {names}")
