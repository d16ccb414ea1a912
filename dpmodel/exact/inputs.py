"""What users give ``linalg`` -> models: checked numbers, public rows, the promised margin, sealed rows.

Everything is checked before any budget is spent, and no message shows an entry.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel._types import Floats
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.exact.arguments import (
    EXPECTED,
    blocks_of,
    each_of,
    expected_of,
    integers,
    is_real,
    matrix,
    not_finite,
    rank_of,
    rational,
    refuse_other_fields,
    require_levels,
    require_neighbors,
    share_of,
)
from dpmodel.exact.model import PrivateInequalities, PrivatePoints, PrivateVectors, VectorTask
from dpmodel.exact.subspaces import ExactRows, Field
from dpmodel.marks.domain import EXACT_INTEGERS, array_of
from dpmodel.privacy import public_generator

# Larger numbers could overflow when they are scaled; users have other units.
LARGEST = 1e150
_HULL = "point_in_hull"
_MARGIN_REMEDY = (
    "margin=rho0, a public promise in (0, 1], or margin=dict(radius=r, within=R): the rows leave a ball of "
    "radius r around a point of norm at most R; or bound=U where all numbers are integers, of at most U in size"
)


# ------------------------------------------------------------------ vectors, points and equations
def sealed(rows: ExactRows) -> Callable[[], ExactRows]:
    """The one way to the rows, which nobody else holds or changes."""
    kept = np.ascontiguousarray(rows)
    kept.setflags(write=False)
    return lambda: kept


def vectors_model(
    field: Field,
    shape: tuple[int, ...],
    read: Callable[[], ExactRows],
    *,
    task: VectorTask,
    neighbors: Any,
    rank: Any,
    corrupted: Any,
    expected: Any,
    where: str,
    blocks: Any = None,
) -> PrivateVectors:
    """The model of (n, d) exact rows from public facts (and n, where it is public); errors as ``span``.

    ``rank`` : bound on the dimension of their span, of which points have one more than their affine span.
    """
    require_neighbors(neighbors, where)
    share, public = share_of(corrupted, where), neighbors == "replace-one"
    model = PrivateVectors(
        field=field,
        dimension=shape[1],
        task=task,
        neighbors=neighbors,
        rank=rank_of(rank, shape[1], int(task == "affine span"), where),
        records=shape[0] if public else None,
        expected=expected_of(expected, shape[0] if public else None, where, default=0 if share is None else EXPECTED),
        _rows=read,
        corrupted=share,
        blocks=blocks_of(blocks, shape[1] - int(task == "affine span"), where),
    )
    if public and not shape[0]:
        raise SpecificationError(
            f"{where}: an empty system, without any record",
            why="their number is public under replace-one, and there is nothing to replace",
            remedy="one row per record",
        )
    return model


def equation_rows(A: Any, b: Any, field: Field, grid: Any, where: str) -> ExactRows:
    """(n, d + 1) exact rows (a, -b)."""
    left = matrix(A, f"{where}: A", field)
    refuse_other_fields(b, f"{where}: b", field)
    b = b.toarray() if sp.issparse(b) else b
    if not hasattr(b, "__len__") or isinstance(b, str | bytes):
        raise SpecificationError(f"{where}: b is not a list of numbers", remedy="one right-hand side for each row of A")
    try:
        side = array_of(b)
    except (ValueError, TypeError):
        side = np.asarray(None)  # ragged: refused with the other shapes
    side = side.reshape(-1) if side.ndim == 2 and 1 in side.shape else side
    if side.ndim != 1 or side.size != left.shape[0]:
        raise SpecificationError(  # without their numbers: how many records there are may be private
            f"{where}: b does not fit the rows of A",
            why="row i of A and entry i of b are one record's equation",
            remedy="a vector with one entry for each row of A",
        )
    if left.dtype.kind != side.dtype.kind or left.dtype.kind in "OUS":
        left, side = left.astype(object), side.astype(object)  # each entry keeps its own type
    rows = field.exact_rows(np.hstack([left, side[:, None]]), grid=grid, what=f"{where}: A and b")
    last = rows[:, -1:]
    return np.hstack([rows[:, :-1], -last if field.order is None else field.subtract(np.zeros_like(last), last)])


# ------------------------------------------------------------------ inequalities
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
    short = all(isinstance(value, int) and abs(value) < 2**62 for value in exact)
    out = np.empty(len(exact), dtype=np.int64 if short else object)
    out[:] = exact
    return out.reshape(array.shape)


def _whole(array: Any, largest: int, where: str) -> Any:
    """The same as int64 or, beyond 2^62, Python integers."""
    data = array.data if sp.issparse(array) else array
    rounded = data
    if data.dtype.kind == "f":
        exact = bool((data == np.floor(data)).all()) and _size(data) < EXACT_INTEGERS
        rounded = data.astype(np.int64) if exact else data
    else:
        exact = data.dtype.kind == "i" or all(isinstance(value, int) for value in data.flat)
    if not exact or _size(rounded) > largest:
        raise SpecificationError(
            f"{where}: with bound={largest}, not all numbers are integers of at most that size",
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


# ------------------------------------------------------------------ points of a grid
def points_model(points: Any, *, lower: Any, upper: Any, step: Any, neighbors: Any, expected: Any) -> PrivatePoints:
    """The model of points on a public grid; arguments and errors as ``point_in_hull``."""
    require_neighbors(neighbors, _HULL)
    given = matrix(points, "points")
    n, d = given.shape
    if given.dtype.kind in "US":
        raise SpecificationError(
            f"{_HULL}: points is an array of text",
            why="the array may have turned floats into text, which stands for other numbers",
            remedy="lists, or an array of objects, in which every entry keeps its own type",
        )
    if n == 0 and neighbors == "replace-one":
        raise SpecificationError(f"{_HULL}: no points", why="there is no hull", remedy="one row per record")
    low, high = (
        tuple(_exact(entry, name) for entry in each_of(value, d, f"{_HULL}: {name}"))
        for name, value in (("lower", lower), ("upper", upper))
    )
    width = _exact(step, "step")
    if width <= 0:
        raise SpecificationError(f"{_HULL}: step is not positive", why="it is the grid's", remedy='step="0.1"')
    if any(b < a for a, b in zip(low, high, strict=True)):
        raise SpecificationError(
            f"{_HULL}: upper is below lower", why="the box is empty", remedy="lower <= upper in every coordinate"
        )
    levels = tuple(math.floor((b - a) / width) + 1 for a, b in zip(low, high, strict=True))
    require_levels(levels, _HULL)
    positions = _positions(given, low, width, levels)
    records = n if neighbors == "replace-one" else None
    guess = expected_of(expected, records, _HULL)
    return PrivatePoints(low, width, levels, neighbors, records, guess, lambda: positions)


def _exact(value: Any, name: str) -> Fraction:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return Fraction(int(value))
    try:
        return rational(value, name)
    except SpecificationError as error:
        raise SpecificationError(
            f"{_HULL}: {name} is not an exact number",
            why="as a float, 0.1 is not a tenth, and NaN is no number" if isinstance(value, float) else error.why,
            remedy=f'{name}="0.1", Fraction(1, 10), Decimal("0.1") or an integer',
        ) from None


def _positions(
    given: npt.NDArray[Any], low: tuple[Fraction, ...], step: Fraction, levels: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """(n, d) nearest positions in the box, exactly: a function of the value of each entry alone, however the others are
    written (one record with a fraction in it turns a list of integers into floats, or floats into Fractions)."""
    most = np.array(levels, dtype=np.int64) - 1
    if given.dtype.kind == "f" or (given.dtype.kind == "O" and all(type(v) is float for v in given.flat)):
        wide = given.astype(np.float64)
        if not np.isfinite(wide).all():
            raise not_finite(f"{_HULL}: points")
        corner = np.array([float(a) for a in low])
        with np.errstate(over="ignore", invalid="ignore"):
            at = (wide - corner) / float(step) + 0.5
            unsure = np.abs(at - np.rint(at)) <= 2.0**-50 * (np.abs(wide) + np.abs(corner) + float(step)) / float(step)
        nearest: npt.NDArray[np.int64] = np.clip(np.floor(at), 0, most).astype(np.int64)
        for i, j in np.argwhere(unsure & (at > -1.0) & (at < most + 2.0)):
            nearest[i, j] = _nearest(Fraction(float(wide[i, j])), low[j], step, int(most[j]))
        return nearest
    if given.dtype.kind in "biu":
        exact = integers(given).astype(object)
    else:
        exact = np.empty(given.size, dtype=object)
        exact[:] = [_entry(value) for value in given.flat]
        exact = exact.reshape(given.shape)
    # floor((x - a) / s + 1/2), in integers where x is one.
    columns = [
        np.array([_nearest(x, a, step, k - 1) for x in exact[:, j]], dtype=np.int64)
        for j, (a, k) in enumerate(zip(low, levels, strict=True))
    ]
    return np.column_stack(columns)


def _nearest(x: Fraction | int, low: Fraction, step: Fraction, most: int) -> int:
    return min(max(math.floor((x - low) / step + Fraction(1, 2)), 0), most)


def _entry(value: Any) -> Fraction:
    if not isinstance(value, float | np.floating):
        return rational(value, "points")
    if not math.isfinite(value):
        raise not_finite(f"{_HULL}: points")
    return Fraction(float(value))
