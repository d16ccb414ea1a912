"""How far one record may move a parameter: the declared bounds, checked and completed.

A *unit* is what one record owns of a parameter. The change of a unit is a vector d; the declared
bounds say ``||d||_1 <= l1``, ``||d||_2 <= l2``, ``||d||_inf <= linf`` and, for every matrix row i,
``||d_i||_1 <= row_l1``. Missing ones follow from the others and from the unit's shape; none at all
means arbitrarily far (infinite bounds).
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, Literal

from dpmodel.errors import SpecificationError

Unit = Literal["all", "entry", "row", "column"]
UNITS: tuple[Unit, ...] = ("all", "entry", "row", "column")

# Declared bounds may disagree by rounding (sqrt(2) typed by hand) without contradicting each other.
_SLACK = 1e-9


@dataclass(frozen=True)
class SensitivityBounds:
    """Completed bounds on the change of one unit; ``inf`` where nothing bounds it.

    ``l1, l2, linf`` are norms over the unit's entries, ``row_l1`` the 1-norm of any one matrix row
    of the change.
    """

    l1: float
    l2: float
    linf: float
    row_l1: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.linf)


@dataclass(frozen=True)
class Ball:
    """Declared norm bounds on the change of one unit, besides the caps of its entries; ``inf`` for none."""

    l1: float
    l2: float
    row_l1: float


def positive(name: str, value: Any, where: str) -> float:
    """``value`` as a positive finite float, or inf for None."""
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        # An array given by mistake may be the private value itself: its type is shown, not its entries.
        shown = repr(value) if isinstance(value, (bool, str)) else f"<{type(value).__name__}>"
        raise SpecificationError(
            f"{where}: {name}={shown}",
            why="a bound is one positive number (entrywise bounds go into bounds=[lo, hi])",
            remedy=f"{name}=1.0, or leave it out",
        )
    try:
        number = float(value)
    except OverflowError:  # integers beyond 1e308
        number = math.inf
    if math.isnan(number) or number <= 0 or math.isinf(number):
        why = "a bound on what one record moves must be a positive finite number"
        remedy = f"leave {name} out if a record may move it arbitrarily far"
        if number == 0:
            why = "a bound of 0 says that no record moves this parameter: then it is public"
            remedy = "a plain cvxpy.Parameter or constant"
        raise SpecificationError(f"{where}: {name}={number:g}", why=why, remedy=remedy)
    return number


def refuse_contradictions(bounds: dict[str, float], where: str) -> None:
    """For every vector linf <= l2 <= l1 and linf <= row_l1 <= l1: a larger left side was a mistake.

    (A bound that is merely loose, such as l1 above size * linf, is tightened and not refused.)
    """
    names = list(bounds)
    prefix = "max_" if names and names[0].startswith("max_") else ""
    for small, large in (("linf", "l2"), ("l2", "l1"), ("linf", "l1"), ("linf", "row_l1"), ("row_l1", "l1")):
        a, b = bounds.get(prefix + small, math.inf), bounds.get(prefix + large, math.inf)
        if math.isfinite(a) and a > b * (1 + _SLACK):
            raise SpecificationError(
                f"{where}: {prefix}{small}={a:g} contradicts {prefix}{large}={b:g}",
                why=f"no vector has an {small} norm above its {large} norm",
                remedy=f"{prefix}{small} at most {b:g}, or leave one of the two out",
            )


def complete(
    l1: float, l2: float, linf: float, row_l1: float, *, size: int, row_size: int, rows: int
) -> SensitivityBounds:
    """Derive the missing bounds for a unit of ``size`` entries in ``rows`` rows of at most ``row_size``."""
    for _ in range(3):  # each pass can only tighten; three reach the fixed point of these rules
        linf = _tighten(linf, l2, l1, row_l1)
        row_l1 = _tighten(row_l1, l1, row_size * linf, math.sqrt(row_size) * l2)
        l1 = _tighten(l1, size * linf, math.sqrt(size) * l2, rows * row_l1)
        l2 = _tighten(l2, l1, math.sqrt(size) * linf)
        if math.isfinite(l1) and math.isfinite(linf):
            l2 = _tighten(l2, math.sqrt(l1) * math.sqrt(linf))
    return SensitivityBounds(l1=l1, l2=l2, linf=linf, row_l1=row_l1)


def _tighten(bound: float, *others: float) -> float:
    """The least of the bounds, where rounding alone never lowers ``bound``."""
    least = min(others)
    return least if least < bound * (1 - 1e-12) else bound
