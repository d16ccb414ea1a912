"""The linear programs behind Theorems 36, 37 and 38 of HRRU14, built from a database of bits.

Each turns a database D in {0,1}^n into a program whose solutions tell D, such that databases which differ in one
record give programs which differ in one private number. A private solver of such programs would therefore be a
private mechanism that tells D, and that is impossible (Theorem 35). One record is one bit throughout.

=============  ==========================================================================  ==================
gadget         program                                                                     a neighbor differs
=============  ==========================================================================  ==================
`scalar`       find x with x_i = D_i                                                       by one flip
`objective`    maximise sum D_i x_i - n/2 with sum x_i = n/2, x in [0,1]^n                 by one swap
`objective`,   maximise sum (D_i - 1/2) x_i with x in [0,1]^n                              by one flip
sharp
`column`       find x in [0,1]^n with sum x_i = n/2 (public), sum D_i x_i = n/2 (private)  by one swap
=============  ==========================================================================  ==================

A swap of a zero and a one keeps their numbers, which Theorems 37 and 38 take to be n/2 each; it changes two records.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import cvxpy as cp
import numpy as np
import numpy.typing as npt

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.exact.arguments import is_integer, is_real
from dpmodel.marks import Private, Records
from dpmodel.problem import Problem
from dpmodel.programs.theorems import LowerBound
from dpmodel.programs.theorems import lower_bound as least_error
from dpmodel.text import number, wrapped

Bits = npt.NDArray[np.int8]
GadgetPart = Literal["scalar", "objective", "column"]

PARTS: tuple[GadgetPart, ...] = ("scalar", "objective", "column")
THEOREMS: dict[GadgetPart, str] = {"scalar": "Theorem 36", "objective": "Theorem 37", "column": "Theorem 38"}
# How far a solver may leave the public constraints, per entry of x.
_FEASIBLE = 1e-6


@dataclass(frozen=True, eq=False)
class Gadget:
    """One lower-bound program and what its theorem says of it.

    The object belongs to the owner of the bits: it holds them, and ``solve_without_privacy``, ``error`` and
    ``neighbor`` use them. Only ``problem.release`` is private.

    Parameters
    ----------
    problem : the program, with the private parameter ``parameter`` (n,).
    variable : (n,) its variable x.
    parameter : ``scale * D`` as a ``Private`` with unit "entry".
    part : ``"scalar"``, ``"objective"`` or ``"column"``.
    n : number of bits.
    change : B, how far one record is declared to move its entry; None if arbitrarily far.
    ones : number of ones where it is public (n/2), else None.
    sharp : whether the objective is that of the sharper bound.
    """

    problem: Problem = field(repr=False)
    variable: Any = field(repr=False)
    parameter: Private = field(repr=False)
    part: GadgetPart
    n: int
    sensitivity: float | None
    ones: int | None
    sharp: bool
    _bits: Bits = field(repr=False)

    @property
    def theorem(self) -> str:
        """For example ``"Theorem 37"``."""
        return THEOREMS[self.part]

    @property
    def scale(self) -> float:
        """What a one stands for in the private data: B, or 1 where changes are arbitrary."""
        return 1.0 if self.sensitivity is None else self.sensitivity

    @property
    def half(self) -> float:
        """The value of x_i between a zero and a one."""
        return self.scale / 2 if self.part == "scalar" else 0.5

    @property
    def balanced(self) -> bool:
        """Whether neighbors are one swap apart (two records) instead of one flip (one record)."""
        return self.ones is not None

    def neighbor(self, index: int = 0, other: int | None = None) -> Bits:
        """A neighboring database (n,): bit ``index`` flipped, or swapped with an unequal bit.

        ``other`` : index of the bit to swap with; by default the next unequal one, cyclically.
        """
        bits = self._bits.copy()
        for name, value in (("index", index), ("other", other)):
            if value is not None and (not is_integer(value, 0) or value >= self.n):
                raise SpecificationError(f"{name}={value!r}", remedy=f"an integer from 0 to {self.n - 1}")
        if not self.balanced:
            if other is not None:
                raise SpecificationError(
                    f"other={other} for the gadget of {self.theorem}", why="a neighbor is one flip away", remedy="index"
                )
            bits[index] = 1 - bits[index]
            return bits
        if other is None:
            unequal = np.flatnonzero(bits != bits[index])
            other = int(unequal[np.argmin((unequal - index) % self.n)])
        if bits[index] == bits[other]:
            raise SpecificationError(
                "the two bits are equal", why="a swap exchanges a zero and a one", remedy="leave other out"
            )
        bits[[index, other]] = bits[[other, index]]
        return bits

    def rebuilt(self, bits: Any) -> Gadget:
        """The same gadget for another database, for example a neighbor."""
        return build(self.part, bits, sensitivity=self.sensitivity, sharp=self.sharp)

    def _refilled(self, bits: Bits) -> Gadget:
        """The same problem object with other bits sealed in it, which saves compiling; ``self`` is spoiled."""
        self.parameter.value = self.scale * bits
        return dataclasses.replace(self, _bits=bits)

    def solve_without_privacy(self) -> Floats:
        """(n,) the exact solution, by CVXPY and HiGHS on the bits themselves: it tells every bit."""
        data = cp.Constant(self.scale * self._bits)
        x, objective, constraints = _program(self.part, self.sharp, data, self.n, self.scale)
        cp.Problem(objective, constraints).solve(solver=cp.HIGHS)
        return np.asarray(x.value, dtype=np.float64)

    def error(self, x: Any) -> float:
        """The error of ``x`` (n,) in the measure of the theorem; it reads the bits, so it is no release.

        Theorem 36: largest violation, ``max_i |x_i - B D_i|``. Theorem 37: loss in objective value, divided by n.
        Theorem 38: violation of the private constraint, divided by n.

        Raises
        ------
        SpecificationError
            For a wrong shape, NaN, or (Theorems 37 and 38) a point that violates a public constraint.
        """
        point = solution_vector(x, self.n)
        if self.part == "scalar":
            return float(np.abs(point - self.scale * self._bits).max())
        outside = max(float(-point.min()), float(point.max() - 1), 0.0)
        if self.balanced:
            outside = max(outside, abs(float(point.sum()) - self.n / 2) / self.n)
        if outside > _FEASIBLE:
            raise SpecificationError(
                "x violates a public constraint of the gadget",
                why=f"{self.theorem} speaks of solutions that keep the public constraints",
                remedy="x in [0, 1]" + (" with sum n/2" if self.balanced else ""),
            )
        if self.sharp:
            return self.scale * float(np.abs(self._bits - point).sum()) / (2 * self.n)
        short = self.scale * (self.n / 2 - float(self._bits @ point)) / self.n
        return abs(short) if self.part == "column" else short

    def lower_bound(self, epsilon: float, delta: float = 0.0, beta: float = 0.05) -> LowerBound:
        """The least ``error`` that any (epsilon, delta)-private mechanism has on this gadget.

        In full: if the error is at most alpha with probability 1 - beta on every database of the gadget, then alpha is
        at least the value. The proofs (`classify.impossibility`) average over databases, so that the same holds if
        the probability includes the draw of a uniform database. Theorem 37 and 38: the printed constant
        ``c(2 epsilon, delta (1 + e^epsilon), beta)``, because a swap changes two records; sharp: ``c(epsilon, delta,
        beta)``. All times B.
        """
        least = least_error(self.part, epsilon, delta, beta)
        value = least.value if self.sharp else least.as_printed
        scaled = dataclasses.replace(least, value=value, vacuous=value == 0).scaled(self.scale)
        statement = (
            f"no private mechanism keeps the error on this gadget ({scaled.unit}) below {number(scaled.value)} with "
            f"probability {number(1 - beta)} on every database of {self.n} bits"
        )
        return scaled if scaled.vacuous else dataclasses.replace(scaled, statement=statement)

    def __str__(self) -> str:
        moves = "arbitrarily far" if self.sensitivity is None else f"by at most {number(self.sensitivity)}"
        form = ", sharper form" if self.sharp else ""
        told = f"Gadget of {self.theorem}{form}: {self.n} bits, one record moves one entry of {self.part} data {moves}"
        return wrapped(told)

    def __repr__(self) -> str:
        return f"<Gadget of {self.theorem}: {self.n} bits>"


def scalar(bits: Any, *, sensitivity: float | None = None) -> Gadget:
    """The program of Theorem 36: find x with ``x_i = D_i``; a flip moves one right-hand side by 1.

    Parameters
    ----------
    bits : (n,) zeros and ones, n >= 1.
    change : None declares nothing, so that ``problem.solve`` refuses. B > 0 declares that one record moves its entry
        by at most B and uses the data B D, so that mechanisms serve it and the lower bound is B/2.
    """
    return build("scalar", bits, sensitivity=sensitivity)


def objective(bits: Any, *, sensitivity: float | None = None, sharp: bool = False) -> Gadget:
    """The program of Theorem 37: maximise ``sum D_i x_i - n/2`` with ``sum x_i = n/2`` and x in [0,1]^n.

    A swap moves two coefficients by 1, and a single flip one. ``sharp=True`` is the program of the better bound
    proved in `classify.impossibility.lower_bound`: maximise ``sum (D_i - 1/2) x_i`` over [0,1]^n, for any bits;
    neighbors are flips, and randomised response attains the lower bound.

    Parameters
    ----------
    bits : (n,) n/2 zeros and n/2 ones (any zeros and ones if sharp).
    change : as in `scalar`; the data are B D, and the public n/2 and 1/2 become B n/2 and B/2.
    """
    return build("objective", bits, sensitivity=sensitivity, sharp=sharp)


def column(bits: Any, *, sensitivity: float | None = None) -> Gadget:
    """The program of Theorem 38: find x in [0,1]^n with ``sum x_i = n/2`` (public) and ``sum D_i x_i = n/2`` (private).

    A swap moves two coefficients of the private row by 1, in two columns, and a flip one.

    Parameters
    ----------
    bits : (n,) n/2 zeros and n/2 ones.
    change : as in `scalar`; the private row is B D and its right-hand side B n/2.
    """
    return build("column", bits, sensitivity=sensitivity)


def build(part: str, bits: Any, *, sensitivity: float | None = None, sharp: bool = False) -> Gadget:
    """The gadget of a part or theorem: ``"scalar"`` or ``"Theorem 36"``, and so on.

    Parameters
    ----------
    part : ``"scalar"``, ``"objective"``, ``"column"``, or the theorem's name.
    bits, change, sharp : as in `scalar` and `objective`.
    """
    names: dict[str, GadgetPart] = {name: name for name in PARTS} | {words: name for name, words in THEOREMS.items()}
    found = names.get(part) if isinstance(part, str) else None
    if found is None:
        raise SpecificationError(f"no gadget for {part!r}", remedy=", ".join(repr(name) for name in names))
    if sharp and found != "objective":
        raise SpecificationError(
            f"sharp=True with {found!r}", why="the sharper form is one of Theorem 37", remedy="part='objective'"
        )
    balanced = found != "scalar" and not sharp
    database = checked_bits(bits, balanced=balanced)
    if sensitivity is not None and (not is_real(sensitivity) or sensitivity <= 0):
        raise SpecificationError(f"sensitivity={sensitivity!r}", remedy="a number > 0, or None for arbitrary changes")
    n, scale = database.size, 1.0 if sensitivity is None else float(sensitivity)
    declared: dict[str, Any] = {} if sensitivity is None else {"bounds": [0.0, scale]}
    private = Private(scale * database, name="bits", unit="entry", records=Records("the database"), **declared)
    x, goal, constraints = _program(found, sharp, private, n, scale)
    problem = Problem(goal, constraints)
    ones = n // 2 if balanced else None
    return Gadget(problem, x, private, found, n, None if sensitivity is None else scale, ones, sharp, database)


def checked_bits(bits: Any, *, balanced: bool = False, n: int | None = None) -> Bits:
    """A read-only copy (n,) of a database of bits.

    ``balanced`` : require exactly n/2 zeros. Messages say what is wrong and never where or what the bits are.
    """
    try:
        array = np.asarray(bits)
    except (TypeError, ValueError):
        array = np.empty(1, dtype=object)
    example = "a vector of zeros and ones, e.g. [0, 1, 1, 0]"
    half = "Theorems 37 and 38 take databases with exactly n/2 zeros"
    if array.size == 0:
        raise SpecificationError("bits are empty", remedy=example)
    if array.dtype.kind not in "biuf":
        raise SpecificationError("bits are not an array of real numbers", remedy=example)
    if array.ndim != 1:
        raise SpecificationError(f"bits have shape {array.shape}", why="one record owns one bit", remedy=example)
    if np.isnan(array).any():
        raise SpecificationError("bits have NaN entries", remedy=example)
    if not np.isin(array, (0, 1)).all():
        raise SpecificationError("bits have entries other than 0 and 1", remedy=example)
    if n is not None and array.size != n:
        raise SpecificationError(f"{array.size} bits for a gadget of {n}", remedy=f"{n} bits")
    if balanced and array.size % 2:
        raise SpecificationError(f"{array.size} bits: an odd number", why=half, remedy="an even number of bits")
    if balanced and 2 * np.count_nonzero(array) != array.size:
        raise SpecificationError(
            "the bits are not half zeros and half ones",
            why=f"{half}; that number is public",
            remedy="exactly n/2 ones, for example the bits followed by their complement",
        )
    database = array.astype(np.int8)
    database.setflags(write=False)
    return database


def solution_vector(x: Any, n: int | None = None) -> Floats:
    """(n,) a solution as finite floats; anything else is refused."""
    try:
        point = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        point = np.empty((0, 0))
    wanted = "(n,)" if n is None else f"({n},)"
    if point.ndim != 1 or point.size == 0 or (n is not None and point.size != n):
        raise SpecificationError(f"x is not a vector of shape {wanted}", remedy=f"a solution of shape {wanted}")
    if not np.isfinite(point).all():
        raise SpecificationError("x has NaN or infinite entries", remedy="a solution with finite entries")
    return point


def _program(part: GadgetPart, sharp: bool, data: Any, n: int, scale: float) -> tuple[Any, Any, list[Any]]:
    """Variable, objective and constraints for data ``scale * D``; one recipe for private and for plain data."""
    if part == "scalar":
        x = cp.Variable(n, name="x")
        return x, cp.Minimize(0), [(x == data).set_label("x equals the bits")]
    x = cp.Variable(n, name="x", bounds=[0, 1])
    if sharp:
        return x, cp.Maximize(data @ x - scale / 2 * cp.sum(x)), []
    half = (cp.sum(x) == n / 2).set_label("half of the mass")
    if part == "objective":
        return x, cp.Maximize(data @ x - scale * n / 2), [half]
    return x, cp.Minimize(0), [half, (data @ x == scale * n / 2).set_label("all of it on ones")]


def random_bits(n: int, rng: np.random.Generator, *, balanced: bool) -> Bits:
    """A uniform database (n,), or a uniform one with n/2 ones: synthetic data, no noise."""
    drawn = rng.permutation(np.arange(n) % 2) if balanced else rng.integers(0, 2, n)
    return cast(Bits, drawn.astype(np.int8))


# ---- A transportation problem with private demands
#
# Plants, markets, distances, capacities and freight are those of G. B. Dantzig, Linear Programming and
# Extensions (1963), chapter 3.3: cases of canned goods shipped from two canneries to three warehouses at least
# freight cost. The demands of the warehouses are the sums of their customers' orders; here one customer
# changes one warehouse's demand by at most one case, and that must stay private.


PLANTS = ("Seattle", "San Diego")
MARKETS = ("New York", "Chicago", "Topeka")
CAPACITY = np.array([350.0, 600.0])  # cases
DEMAND = np.array([325.0, 300.0, 275.0])  # cases
STORAGE = np.array([340.0, 315.0, 290.0])  # cases a warehouse can hold (public; ours, not the book's)
DISTANCE = np.array([[2.5, 1.7, 1.8], [2.5, 1.8, 1.4]])  # thousand miles
FREIGHT = 90.0  # dollars per case per thousand miles
SHORT = 600.0  # dollars for a case that a market lacks (ours)
SERVED = "demand of each market"


@dataclass(frozen=True)
class Transportation:
    """``problem`` with its variable ``shipments`` (plants x markets, cases) and private ``demand``."""

    problem: Problem
    shipments: Any
    demand: Private
    cost: Any


def transportation(demand: Any = None, *, linf: float = 1.0) -> Transportation:
    """Dantzig's transportation problem; ``demand`` : (3,) cases, private (the book's by default).

    ``linf`` : cases by which one customer can change one warehouse's demand.
    """
    private = Private(
        DEMAND if demand is None else demand,
        name="demand",
        unit="entry",
        linf=linf,
        bounds=[np.zeros(len(MARKETS)), STORAGE],
    )
    shipments = cp.Variable((len(PLANTS), len(MARKETS)), nonneg=True, name="shipments")
    cost = cp.Constant(FREIGHT * DISTANCE, name="cost")
    within = cp.sum(shipments, axis=1) <= cp.Constant(CAPACITY, name="capacity")
    covers = cp.sum(shipments, axis=0) >= private
    within.set_label("capacity of each plant")
    covers.set_label(SERVED)
    problem = Problem(cp.Minimize(cp.sum(cp.multiply(cost, shipments))), [within, covers])
    return Transportation(problem, shipments, private, cost)
