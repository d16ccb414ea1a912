"""The public arguments that the functions and ``plan`` share: checked in one place, in the same words."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel._types import Floats
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.exact.entries import rational
from dpmodel.exact.fields import Field
from dpmodel.exact.model import PrivateInequalities
from dpmodel.marks.domain import EXACT_INTEGERS, array_of
from dpmodel.marks.records import NEIGHBORS
from dpmodel.privacy import public_generator

# A public guess of the number of records where one is needed, that number is private and nothing was said.
EXPECTED = 10_000


def not_finite(what: str) -> SpecificationError:
    """The error for private numbers that are none."""
    return SpecificationError(
        f"{what} hold NaN or infinite entries",
        why="every entry must be a number (the entries are not shown)",
        remedy="drop or fill these rows by a public rule",
    )


def require_neighbors(neighbors: Any, where: str) -> None:
    """SpecificationError for anything but the two relations."""
    if neighbors not in NEIGHBORS:
        raise SpecificationError(
            f"{where}: neighbors is neither 'add-remove' nor 'replace-one'",
            why="it decides what one record may change",
            remedy="neighbors='add-remove' or neighbors='replace-one'",
        )


def field_of(field: Any, where: str) -> Field:
    """``field``, if it is one."""
    if isinstance(field, Field) and not isinstance(field, type):
        return field
    whole = isinstance(field, numbers.Integral) and not isinstance(field, bool)
    raise SpecificationError(
        f"{where}: field is of type {type(field).__name__}, which is no field",
        why="arithmetic is exact, in a field that is public",
        remedy=f"field=GF({field})" if whole else "field=QQ for rational numbers, or field=GF(q)",
    )


def expected_of(expected: Any, records: int | None, where: str, default: int = EXPECTED) -> int:
    """``records`` where that is public, else the public guess of it; ``default`` where there is none."""
    if expected is not None and (not is_integer(expected, 1) or expected > 2**53):
        raise SpecificationError(
            f"{where}: expected is not an integer of at least 1 and at most 2^53",
            why="it is a public guess of the number of records, by which mechanisms are compared",
            remedy=f"expected={EXPECTED}",
        )
    if records is not None:
        return records
    return default if expected is None else int(expected)


def each_of(value: Any, d: int, what: str) -> list[Any]:
    """``value`` for each of d coordinates: one for all of them, or one each."""
    one = isinstance(value, str) or not isinstance(value, Sequence | np.ndarray)
    entries = [value] * d if one else list(value)
    if len(entries) != d:
        raise SpecificationError(
            f"{what} has {len(entries)} entries",
            why=f"there are {d} coordinates",
            remedy="one number for all of them, or one each",
        )
    return entries


def rank_of(rank: Any, d: int, added: int, where: str) -> int:
    """The bound on the dimension of vectors with d entries, ``added`` of which are not the user's; d without one."""
    if rank is None:
        return d
    if not is_integer(rank, 1 - added) or int(rank) + added > d:
        raise SpecificationError(
            f"{where}: rank is not an integer between {1 - added} and {d - added}",
            why="it is a public bound on the dimension of what the records span",
            remedy=f"rank={d - added}, or leave it out",
        )
    return int(rank) + added


def share_of(corrupted: Any, where: str) -> float | None:
    """A share in [0, 1), or None."""
    if corrupted is None:
        return None
    if not is_real(corrupted) or not 0 <= float(corrupted) < 1:
        raise SpecificationError(
            f"{where}: corrupted is not a number in [0, 1)",
            why="it is a public guess of the share of records outside the subspace that is wanted",
            remedy="corrupted=0.02, or leave it out",
        )
    return float(corrupted)


def is_integer(value: Any, least: int) -> bool:
    """Whether it is an integer, and at least that."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def is_real(value: Any) -> bool:
    """Whether it is a number that a float can hold, and finite."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


# ------------------------------------------------------------------
# Inequalities as given by the user -> ``PrivateInequalities``: checked numbers, public rows, the promised margin
#
# Everything is checked before any budget is spent, and no message shows an entry.


# Larger numbers could overflow when they are scaled; users have other units.
LARGEST = 1e150
_MARGIN_REMEDY = (
    "margin=rho0, a public promise in (0, 1], or margin=dict(radius=r, within=R): the rows leave a ball of "
    "radius r around a point of norm at most R; or bound=U where all numbers are whole, of at most U in size"
)


@dataclass(frozen=True)
class Input:
    """``model`` speaks of ``x / scale``; ``scale`` is a public power of two."""

    model: PrivateInequalities
    scale: float


def inequalities_input(A: Any, b: Any, *, bound: Any, neighbors: Any, **facts: Any) -> Input:
    """See ``feasible_point`` for the arguments and errors; ``facts`` are public and go to ``public_inequalities``."""
    where = "feasible_point"
    require_neighbors(neighbors, where)
    largest = _bound(bound, where)
    A = _matrix(A, where)
    n, d = A.shape
    if d == 0 or (n == 0 and neighbors == "replace-one"):
        raise SpecificationError(
            f"{where}: an empty system, A has shape ({n}, {d})",
            why="there is nothing to satisfy" if d else "there is nothing to solve for",
            remedy="one row per record" if d else "at least one column",
        )
    sides = _sides(b, n, where)
    if largest is not None:
        A, sides = _whole(A, largest, where), _whole(sides, largest, where)
    public = n if neighbors == "replace-one" else None

    def read(scale: float) -> tuple[Any, Any]:
        return A if scale == 1.0 else A.astype(np.float64) * scale, sides  # a power of two: exact in floats

    return public_inequalities(d, b is not None, public, read, bound=largest, neighbors=neighbors, where=where, **facts)


def public_inequalities(
    d: int,
    sided: bool,
    records: int | None,
    read: Callable[[float], tuple[Any, Any]],
    *,
    margin: Any,
    public: Any,
    nonneg: Any,
    bound: Any,
    neighbors: Any,
    expected: Any,
    where: str,
) -> Input:
    """The model from public facts, and the one way to the private rows.

    ``sided`` : whether there are right-hand sides. ``records`` : None where their number is private. ``read`` gives
    A times the scale, and b. Errors as ``feasible_point``.
    """
    require_neighbors(neighbors, where)
    largest = _bound(bound, where)
    rows, sides = _public(public, nonneg, d, where)
    homogeneous = not sided and not sides.any()
    if margin is None and largest is None:
        raise SpecificationError(
            f"{where}: neither margin nor bound",
            why="on a continuum no number of records is enough without a public promise (interior points; Bun, Nissim, "
            "Stemmer and Vadhan 2015)",
            remedy=_MARGIN_REMEDY,
        )
    rho, scale = _margin(margin, homogeneous, scalable=largest is None and not homogeneous, where=where)
    guess = expected_of(expected, records, where)
    _require_feasible(rows, sides, homogeneous, where)
    model = PrivateInequalities(
        variables=d,
        homogeneous=homogeneous,
        public_rows=rows * scale,
        public_sides=sides,
        margin=rho,
        largest=largest,
        neighbors=neighbors,
        records=records,
        expected=guess,
        _rows=lambda: read(scale),
    )
    return Input(model, scale)


# ------------------------------------------------------------------ the promised margin
def margin_of(radius: float, within: float, *, homogeneous: bool = False) -> float:
    """The margin rho0 that a ball of feasible points promises.

    ``radius`` : r > 0, ``within`` : R > 0. The promise: all points within distance r of some point c satisfy every
    private row, c satisfies the public ones, and ``||c|| <= R``.

    Returns
    -------
    float
        r / (r + 2 R) in the best units of x; r / R for homogeneous systems.

    Raises
    ------
    SpecificationError
        Unless both are positive numbers.

    Notes
    -----
    *Proof.* Homogeneous: the ball satisfies ``a'x <= 0``, so ``-a'c >= r ||a||``, and z = c / ||c|| has
    ``-a'z / ||a|| >= r / R``. Otherwise the slack ``t = (b - a'c) / ||a||`` is at least r, and
    ``|b| / ||a|| <= t + R``. With x in units of s the homogeneous row is (b, -s a) and z ~ (1, c / s), so the row's
    value at the unit vector is at least ``t s / (sqrt((t + R)^2 + s^2) sqrt(s^2 + R^2))``, which grows with t:
    t = r is the worst. At ``s^2 = R (R + r)`` it is r / (r + 2 R), and no s gives more. Rows with a = 0 and b > 0
    have more than that.
    """
    if not all(is_real(value) and 0 < value < LARGEST for value in (radius, within)):
        raise SpecificationError(
            "margin_of: radius and within are not two positive numbers",
            why="a ball needs a radius, and its centre a bound on its norm",
            remedy="margin_of(0.5, 10)",
        )
    return radius / within if homogeneous else radius / (radius + 2 * within)


def checked_margin(margin: Any, where: str = "", remedy: str = "margin=0.05, a public number in (0, 1]") -> float:
    """A margin in (0, 1], or SpecificationError; ``where`` stands before its words."""
    good = isinstance(margin, numbers.Real) and not isinstance(margin, bool)
    if not good or not 0 < margin <= 1:
        raise SpecificationError(
            f"{where}margin is not a number in (0, 1]",
            why="the margin is a cosine: by how much some unit vector satisfies all rows, scaled to unit norm",
            remedy=remedy,
        )
    return float(margin)


def _margin(margin: Any, homogeneous: bool, *, scalable: bool, where: str) -> tuple[float | None, float]:
    """rho0 and the units of x. A power of two near the best unit keeps floats exact and costs at most 6 % of rho0."""
    if margin is None:
        return None, 1.0
    if not isinstance(margin, Mapping):
        return checked_margin(margin, f"{where}: ", _MARGIN_REMEDY), 1.0
    if set(margin) != {"radius", "within"} or not all(is_real(v) and 0 < float(v) < LARGEST for v in margin.values()):
        raise SpecificationError(
            f"{where}: margin is not dict(radius=r, within=R) with positive numbers",
            why="it promises a ball of feasible points, of radius r around a point of norm at most R",
            remedy=_MARGIN_REMEDY,
        )
    radius, within = float(margin["radius"]), float(margin["within"])
    if homogeneous:
        if radius > within:
            raise SpecificationError(
                f"{where}: a ball of radius {radius:g} around a point within {within:g} holds 0 in its interior",
                why="then every row would be zero",
                remedy="radius of at most within",
            )
        return margin_of(radius, within, homogeneous=True), 1.0
    scale = 2.0 ** round((math.log2(within) + math.log2(within + radius)) / 2) if scalable else 1.0
    rho = radius / math.hypot(radius + within, scale) * (scale / math.hypot(scale, within))
    if not rho > 0:
        raise SpecificationError(f"{where}: the margin of this ball is zero in floating point", remedy=_MARGIN_REMEDY)
    return min(rho, 1.0), scale


# ------------------------------------------------------------------ private numbers
def _matrix(A: Any, where: str) -> Any:
    """(n, d): CSR, or a dense array of int64, float64 or Python numbers."""
    if sp.issparse(A):
        if A.ndim != 2 or A.dtype.kind not in "biuf":
            raise _not_numbers("A", where)
        A = sp.csr_array(A, copy=True)
        A.data = _numbers(A.data, "A", where)
        A.sum_duplicates()
        return A
    A = _numbers(A, "A", where)
    if A.ndim != 2:
        raise SpecificationError(
            f"{where}: A has {A.ndim} dimension{'s' * (A.ndim != 1)}",
            why="its rows are the records",
            remedy="an array of shape (n, d)",
        )
    return A


def _sides(b: Any, n: int, where: str) -> Any:
    if b is None:
        return np.zeros(n, dtype=np.int64)
    b = _numbers(b.toarray() if sp.issparse(b) else b, "b", where)
    b = b[:, 0] if b.ndim == 2 and b.shape[1] == 1 else b
    if b.ndim == 0:
        return np.full(n, b[()], dtype=b.dtype)
    if b.shape != (n,):
        raise SpecificationError(
            f"{where}: b has another shape than the rows of A", why="entry i belongs to row i", remedy="b of shape (n,)"
        )
    return b


def _numbers(given: Any, name: str, where: str) -> Any:
    """An array of int64, float64 or, where neither is exact, Python integers and Fractions."""
    array: Any = None
    with contextlib.suppress(TypeError, ValueError):
        array = array_of(given)
    if array is None or array.dtype.kind not in "biufO":
        raise _not_numbers(name, where)
    if array.dtype.kind == "O":
        array = _python_numbers(array, name, where)
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            raise not_finite(f"{where}: {name}")
    elif array.dtype.kind != "O":
        fits = array.dtype.kind != "u" or not array.size or int(array.max()) < 2**63
        array = array.astype(np.int64 if fits else object)
    if _size(array) > LARGEST:
        raise SpecificationError(f"{where}: {name} holds numbers above {LARGEST:g}", remedy="other units")
    return array


def _size(array: Any) -> Any:
    """Largest absolute value, 0 without entries; in Python numbers, which do not overflow."""
    if array.dtype.kind == "O" or not array.size:
        return max((abs(value) for value in array.flat), default=0)
    return max(array.max().item(), -array.min().item())


def _python_numbers(array: Any, name: str, where: str) -> Any:
    """Python integers and Fractions; floats are taken for what they are, binary fractions.

    Floats beyond 2^53 stay Fractions: they may be integers that were rounded when an array gave all entries one type.
    """
    exact: list[Any] = []
    for value in array.ravel().tolist():
        if isinstance(value, float) and not math.isfinite(value):
            raise not_finite(f"{where}: {name}")
        found = None
        if not isinstance(value, str | bytes | bool):
            with contextlib.suppress(SpecificationError):
                found = Fraction(value) if isinstance(value, float) else rational(value, name)
        if found is None:
            raise _not_numbers(name, where)
        rounded = isinstance(value, float) and abs(value) >= EXACT_INTEGERS
        exact.append(int(found) if found.denominator == 1 and not rounded else found)
    whole = all(isinstance(value, int) and abs(value) < 2**62 for value in exact)
    out = np.empty(len(exact), dtype=np.int64 if whole else object)
    out[:] = exact
    return out.reshape(array.shape)


def _whole(array: Any, largest: int, where: str) -> Any:
    """The same as int64 or, beyond 2^62, Python integers."""
    data = array.data if sp.issparse(array) else array
    rounded = data
    if data.dtype.kind == "f":
        whole = bool((data == np.floor(data)).all()) and _size(data) < EXACT_INTEGERS
        rounded = data.astype(np.int64) if whole else data
    else:
        whole = data.dtype.kind == "i" or all(isinstance(value, int) for value in data.flat)
    if not whole or _size(rounded) > largest:
        raise SpecificationError(
            f"{where}: with bound={largest}, not all numbers are whole and of at most that size",
            why="the bound is a public promise that is checked on entry (the entries are not shown)",
            remedy="multiply rows by a public denominator, a larger bound, or margin= without bound",
        )
    if not sp.issparse(array):
        return rounded
    if rounded.dtype.kind == "O":
        raise SpecificationError(f"{where}: sparse rows hold numbers above 2^62", remedy="a dense A")
    return sp.csr_array((rounded, array.indices, array.indptr), shape=array.shape)


def _not_numbers(name: str, where: str) -> SpecificationError:
    return SpecificationError(
        f"{where}: {name} is not an array of real numbers",
        why="its rows are inequalities (the entries that do not fit are not shown)",
        remedy="integers, fractions.Fraction, decimal.Decimal or floats; dense, or a scipy sparse matrix",
    )


# ------------------------------------------------------------------ public facts
def _public(public: Any, nonneg: Any, d: int, where: str) -> tuple[Floats, Floats]:
    rows, sides = np.zeros((0, d)), np.zeros(0)
    if public is not None:
        if not isinstance(public, Sequence) or len(public) != 2:
            raise SpecificationError(f"{where}: public is not a pair (G, h)", remedy="public=(G, h) for G x <= h")
        G: Any = public[0].toarray() if sp.issparse(public[0]) else public[0]
        h: Any = 0 if public[1] is None else public[1]
        rows, sides = (np.asarray(_numbers(x, "public", where), dtype=np.float64) for x in (G, h))
        sides = np.full(len(rows), sides) if sides.ndim == 0 and rows.ndim else sides
        if rows.ndim != 2 or rows.shape[1] != d or sides.shape != (len(rows),):
            raise SpecificationError(
                f"{where}: public rows of shape {rows.shape} with sides of shape {sides.shape}",
                why=f"A has {d} columns",
                remedy=f"G of shape (k, {d}) and h of shape (k,)",
            )
    if not isinstance(nonneg, bool):
        raise SpecificationError(
            f"{where}: nonneg is not True or False", why="x >= 0 holds or does not", remedy="nonneg=True for x >= 0"
        )
    if nonneg:
        rows, sides = np.vstack([rows, -np.eye(d)]), np.concatenate([sides, np.zeros(d)])
    return rows, sides


def _require_feasible(rows: Floats, sides: Floats, homogeneous: bool, where: str) -> None:
    """InfeasibleError where the public rows alone leave no point (homogeneous: none but 0)."""
    if not len(rows):
        return
    d = rows.shape[1]
    if not homogeneous:
        if linprog(np.zeros(d), A_ub=rows, b_ub=sides, bounds=(None, None), method="highs").status == 2:
            raise InfeasibleError(
                f"{where}: the public constraints have no solution",
                why="found without the private rows",
                remedy="fewer or wider public constraints",
            )
        return
    # A cone that is more than {0} has a point off any generic hyperplane.
    direction = public_generator(0).normal(size=d)
    found = [linprog(sign * direction, A_ub=rows, b_ub=sides, bounds=(-1, 1), method="highs") for sign in (1, -1)]
    if all(result.status == 0 and result.fun > -1e-9 for result in found):
        raise InfeasibleError(
            f"{where}: the public constraints allow x = 0 only",
            why="in a system without right-hand sides x = 0 is no answer",
            remedy="fewer public constraints",
        )


def _bound(bound: Any, where: str) -> int | None:
    if bound is None:
        return None
    if isinstance(bound, bool) or not is_real(bound) or float(bound) != int(bound) or not 1 <= int(bound) <= LARGEST:
        raise SpecificationError(
            f"{where}: bound is not an integer of at least 1",
            why="it is the largest size of the private integers, and public",
            remedy="bound=100",
        )
    return int(bound)
