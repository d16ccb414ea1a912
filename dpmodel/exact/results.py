"""What the functions of exact linear algebra release."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpmodel._types import Array, Floats
from dpmodel.errors import SpecificationError
from dpmodel.exact.fields import Rationals
from dpmodel.exact.subspaces import Basis, last_first, show
from dpmodel.release import Accuracy, Guarantee
from dpmodel.text import TextTable, array_text, number


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Result:
    """What all have.

    ``found`` : whether anything was found. ``mechanism``, ``guarantee``, ``plan``, ``notes`` : as in a release.
    ``accuracy`` : ``slack_rows`` records may be missed, except with probability ``beta`` (a prediction unless
    ``proved``); ``alpha`` is 0, as all others fit exactly.

    ``missed`` : a noisy count of the records that the answer misses at most (of vectors, each independent set with one
    of them counts with all its vectors). ``estimate`` : one of those that it misses, and ``sigma``, the standard
    deviation of its noise. All three are None where the mechanism has none.
    """

    found: bool
    mechanism: str
    guarantee: Guarantee
    accuracy: Accuracy
    plan: Any  # a ``Plan``, of the room above
    notes: tuple[str, ...] = ()
    missed: float | None = None
    estimate: float | None = None
    sigma: float | None = None
    _grid: Any = field(default=None, repr=False)
    # Of each kind: its title in print, and which of its attributes are plain data.
    _title: ClassVar[str]
    _data: ClassVar[tuple[str, ...]]

    def _rows(self) -> list[tuple[str, object]]:
        """Lines of the printed table, of what each kind of result has of its own."""
        raise NotImplementedError

    def _missed(self) -> list[tuple[str, object]]:
        if self.missed is None:
            return []
        if self.estimate is None or self.sigma is None:
            return [("rows missed, noisy count", number(self.missed))]
        noise = f"noisy count, standard deviation {number(self.sigma)}" if self.sigma else "no noise"
        words = f"{number(self.estimate)} or more ({noise}), at most {number(self.missed)}"
        if self.accuracy.beta and self.missed:
            words += f" except with probability {number(self.accuracy.beta)}"
        return [("records missed", words)]

    def __str__(self) -> str:
        rows = [("status", "found" if self.found else "nothing found"), *self._rows(), *self._missed()]
        rows += [("guarantee", self.guarantee), ("accuracy", self.accuracy)]
        rows += [("note", note) for note in self.notes]
        return str(TextTable(("", ""), rows, title=f"{self._title} by {self.mechanism}"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} by {self.mechanism}: {'found' if self.found else 'nothing found'}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain data; Fractions as text."""
        return {
            "found": self.found,
            **{name: plain(getattr(self, name)) for name in self._data},
            "mechanism": self.mechanism,
            "guarantee": self.guarantee.to_dict(),
            "accuracy": self.accuracy.to_dict(),
            "plan": self.plan.to_dict(),
            "notes": list(self.notes),
        }


class _SetOfVectors(Result):
    """A set of vectors (``v in found``), equal to any other of the same vectors."""

    @property
    def _basis(self) -> Basis:
        """Of the vectors, or of the (u, 1) of points u."""
        raise NotImplementedError

    @property
    def _place(self) -> tuple[Array | None, Basis]:
        """A point of the set (None: the empty set has none), and the directions from there."""
        raise NotImplementedError

    @property
    def _lifted(self) -> bool:
        return self._basis.ambient > self._place[1].ambient

    def contains(self, vectors: Any) -> Any:
        """Which of the vectors (n, d) lie in it, exactly: (n,) bool, or one bool for one vector (d,).

        Floats are put on the grid of the call. Not private: ask about public vectors.
        """
        given, single = _rows_of(vectors)
        rows = self._basis.field.exact_rows(given, grid=self._grid, ones=self._lifted)
        inside = self._basis.contains(_fitting(rows, self._basis.ambient))
        return bool(inside[0]) if single else inside

    def project(self, vectors: Any) -> Array:
        """The nearest points of the set to the vectors (n, d), or to one (d,): exact Fractions, of that shape.

        Raises
        ------
        SpecificationError
            Over finite fields, which have no distance; for vectors of another length, floats without a grid; for the
            empty set, which has no nearest point.
        """
        start, directions = self._place
        if start is None:
            raise SpecificationError("the affine subspace is empty", why="it has no nearest point")
        if not isinstance(directions.field, Rationals):
            raise SpecificationError(
                f"no projection over {directions.field.name}",
                why="a finite field has no distance, and a vector may be orthogonal to itself",
                remedy="contains(vectors), or field=QQ",
            )
        rows, single = _rows_of(vectors)
        given = _fitting(directions.field.fractions(rows, self._grid), directions.ambient)
        nearest = np.asarray(start + directions.project(given - start))
        return np.asarray(nearest[0]) if single else nearest

    def __contains__(self, vector: Any) -> bool:
        inside = self.contains(vector)
        if not isinstance(inside, bool):
            raise SpecificationError(
                "`in` asks about one vector", why="several were given", remedy="contains(vectors), one answer for each"
            )
        return inside

    def __eq__(self, other: object) -> bool:
        return self._basis == other._basis if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._basis)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Subspace(_SetOfVectors):
    """A released linear subspace.

    ``basis`` : its canonical basis (reduced row echelon form); that of {0} where nothing was found. NumPy reads the
    subspace as the (r, d) rows of it, ``np.asarray(found, dtype=float)`` as floats.
    """

    basis: Basis
    _title = "Private span"
    _data = ("dimension", "basis", "missed", "estimate", "sigma")

    @property
    def _basis(self) -> Basis:
        return self.basis

    @property
    def _place(self) -> tuple[Array | None, Basis]:
        return np.zeros(self.basis.ambient, dtype=np.int64), self.basis

    @property
    def dimension(self) -> int:
        return self.basis.dimension

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.basis.rows, dtype=dtype)

    def _rows(self) -> list[tuple[str, object]]:
        return [("subspace", str(self.basis))]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AffineSubspace(_SetOfVectors):
    """A released affine subspace ``point + span(directions)``.

    ``homogeneous`` : canonical basis of the span of the vectors (u, 1). ``point`` (d,) : its canonical point, the one
    with zeros at the pivots of ``directions``, or None where it is empty. ``directions`` : canonical basis.
    """

    homogeneous: Basis
    _title = "Private affine span"
    _data = ("dimension", "point", "directions", "missed", "estimate", "sigma")

    @property
    def _basis(self) -> Basis:
        return self.homogeneous

    @cached_property
    def _place(self) -> tuple[Array | None, Basis]:
        first = last_first(self.homogeneous)
        pointed = first.dimension > 0 and first.pivots[0] == 0
        rows = first.rows[1:, 1:] if pointed else first.rows[:, 1:]
        pivots = tuple(column - 1 for column in first.pivots if column > 0)
        return (frozen(first.rows[0, 1:]) if pointed else None), Basis(first.field, frozen(rows), pivots)

    @property
    def point(self) -> Array | None:
        return self._place[0]

    @property
    def directions(self) -> Basis:
        return self._place[1]

    @property
    def dimension(self) -> int:
        """0 for a point, -1 for the empty set."""
        return self.homogeneous.dimension - 1

    def _rows(self) -> list[tuple[str, object]]:
        if self.point is None:
            return [("affine subspace", "empty")]
        return [("point", shown(self.point)), ("directions", str(self.directions))]


class System(NamedTuple):
    """Equations ``C x = d``: C (k, n), d (k,)."""

    C: Array
    d: Array


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Equations(Result):
    """A released system ``C x = d``, which nearly all of the private equations follow from.

    ``equations`` : (C (k, d), right-hand sides (k,)), canonical. ``consistent`` : whether it has a solution. ``x`` (d,)
    : one exact solution, free variables zero; None where there is none, or nothing was found. ``null_space`` : basis of
    the solutions of ``C x = 0``; all solutions are x plus its span.
    """

    equations: System
    consistent: bool
    x: Array | None
    null_space: Basis
    _title = "Private system of equations"
    _data = ("equations", "consistent", "x", "null_space", "dimension", "missed", "estimate", "sigma")

    @property
    def dimension(self) -> int:
        """Of the solutions of the released system: 0 for one solution, -1 for none."""
        return self.null_space.dimension if self.consistent else -1

    def _rows(self) -> list[tuple[str, object]]:
        space = self.null_space
        rows: list[tuple[str, object]] = [
            ("equations", f"{len(self.equations.C)} in {space.ambient} variables over {space.field.name}"),
            ("consistent", self.consistent),
        ]
        return rows if self.x is None else [*rows, ("x", shown(self.x)), ("free dimensions", self.dimension)]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FeasiblePoint(Result):
    """What ``feasible_point`` released.

    ``x`` (d,) : the point in floats, read-only, or None. ``exact`` : the same as a tuple of Fractions where the
    mechanism computes in rationals, else None. ``expected`` : the public number of rows, or guess of it, that forecasts
    speak of (predictions are from synthetic rows).
    """

    x: Floats | None
    exact: tuple[Fraction, ...] | None
    expected: int
    _title = "Feasible point"
    _data = ("x", "exact", "missed", "expected")

    def _rows(self) -> list[tuple[str, object]]:
        x = ("x", "-" if self.x is None else array_text(self.x))
        return [x] if self.exact is None else [x, ("exactly", shown(self.exact))]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PointInHull(Result):
    """What ``point_in_hull`` released.

    ``point`` (d,) : exact coordinates, or None. ``accuracy`` : how many points its statement needs. ``levels`` : of the
    public grid, per coordinate. ``expected`` : the public number of points, or guess of it.
    """

    point: tuple[Fraction, ...] | None
    levels: tuple[int, ...]
    expected: int
    _title = "Point in the convex hull"
    _data = ("point", "levels", "expected")

    def _rows(self) -> list[tuple[str, object]]:
        return [("point", "-" if self.point is None else f"({', '.join(map(str, self.point))})")]


def frozen(array: Array) -> Array:
    """A read-only copy."""
    copied = array.copy()
    copied.setflags(write=False)
    return copied


def plain(value: Any) -> Any:
    """Plain data: lists for arrays, text for Fractions."""
    if isinstance(value, Basis):
        return value.to_dict()
    if isinstance(value, System):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(each) for each in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return show(value) if isinstance(value, Fraction) else value


def shown(entries: Any, most: int = 8, longest: int = 24) -> str:
    """The first entries in words; very long ones by their length."""
    parts = [show(x) for x in entries[:most]]
    parts = [part if len(part) <= longest else f"({len(part)} characters)" for part in parts]
    return f"[{', '.join(parts)}{', ...' if len(entries) > most else ''}]"


def _rows_of(data: Any) -> tuple[Any, bool]:
    """``data`` as rows, and whether it was one vector."""
    listed = isinstance(data, list | tuple)
    if getattr(data, "ndim", None) == 1 or (listed and len(data) > 0 and not any(np.ndim(x) for x in data)):
        return [data], True
    return data, False


def _fitting(rows: Array, width: int) -> Array:
    if rows.shape[1] != width:
        raise SpecificationError(
            f"rows of {rows.shape[1]} entries where {width} are needed", remedy="as many columns as the private data"
        )
    return rows
