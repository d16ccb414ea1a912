"""Where the coefficients may lie: the public set, its size in three norms, and what can be computed over it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.errors import UnsupportedModelError

# Vertices of boxes and products are listed up to this many.
_MOST_VERTICES = 1 << 20


@dataclass(frozen=True)
class Domain(ABC):
    """A closed convex public set of coefficient vectors w (size,).

    ``kind`` : "free", "l1", "l2", "linf", "box", "simplex", "product", "polyhedron" or "general".
    All methods are functions of public facts and of their argument alone.
    """

    size: int
    kind: ClassVar[Any] = ""

    @abstractmethod
    def norm(self, order: float) -> float:
        """Upper bound on ``max ||w||_order`` (1, 2 or inf) over the set; inf where it is unbounded."""

    @abstractmethod
    def diameter(self, order: float) -> float:
        """Upper bound on ``max ||w - v||_order`` over the set."""

    def center(self) -> Floats:
        """(p,) a point of the set to start from, 0 where it lies inside."""
        return np.zeros(self.size)

    @abstractmethod
    def project(self, w: Floats) -> Floats:
        """(p,) the nearest point in the 2-norm."""

    def projected(self, w: Floats) -> Floats:
        """(B, p) the nearest point to every row of w (B, p)."""
        return np.stack([self.project(row) for row in w])

    def minimise(self, g: Floats) -> Floats:
        """(p,) a point of the set where <g, w> is least (an extreme point where that is cheap). Sets have this or
        ``minimised``.

        Raises
        ------
        UnsupportedModelError
            Where there is no minimum.
        """
        out: Floats = self.minimised(g[None])[0]
        return out

    def minimised(self, g: Floats) -> Floats:
        """(B, p) the same for every row of g (B, p)."""
        return np.stack([self.minimise(row) for row in g])

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.norm(2.0))

    # ------------------------------------------------------------------ sets whose vertices can be listed
    @property
    def vertices(self) -> int | None:
        """How many extreme points there are, where they can be listed; else None."""
        return None

    def scores(self, g: Floats) -> Floats:
        """(vertices,) <v_j, g> for every vertex; (B, vertices) for g (B, p)."""
        raise _no_vertices()

    def vertex(self, number: int) -> Floats:
        """(p,) the vertex of this number."""
        out: Floats = self.vertex_rows(np.array([number]))[0]
        return out

    def vertex_rows(self, numbers: Integers) -> Floats:
        """(B, p) the vertices of these numbers."""
        raise _no_vertices()

    def score_range(self, sensitivity_inf: float) -> float:
        """Upper bound on ``max_j <v_j, d> - min_j <v_j, d>`` over all d with ``||d||_inf <= sensitivity_inf``.

        ``<v - u, d> <= ||v - u||_1 ||d||_inf``, so the 1-norm diameter serves; where ``diameter`` is exact, so is this,
        because the sign vector of the longest difference attains it.
        """
        return sensitivity_inf * self.diameter(1.0)


def _no_vertices() -> UnsupportedModelError:
    return UnsupportedModelError("vertices of this set", why="they cannot be listed", remedy="another mechanism")


def no_minimum() -> UnsupportedModelError:
    return UnsupportedModelError(
        "a linear function over coefficients without bounds",
        why="it has no minimum",
        remedy="a constraint such as cp.norm1(w) <= 1",
    )


@dataclass(frozen=True)
class FreeSpace(Domain):
    """No constraint."""

    kind = "free"

    def norm(self, order: float) -> float:
        return math.inf

    def diameter(self, order: float) -> float:
        return math.inf

    def project(self, w: Floats) -> Floats:
        return w

    def projected(self, w: Floats) -> Floats:
        return w

    def minimise(self, g: Floats) -> Floats:
        raise no_minimum()


@dataclass(frozen=True)
class L1Ball(Domain):
    """``||w||_1 <= radius``. Vertex j < p is ``radius e_j``, vertex p + j is ``-radius e_j``."""

    radius: float

    kind = "l1"

    def norm(self, order: float) -> float:
        return self.radius

    def diameter(self, order: float) -> float:
        return 2 * self.radius

    def project(self, w: Floats) -> Floats:
        sizes = np.abs(w)
        if float(sizes.sum()) <= self.radius:
            return w
        return np.sign(w) * onto_simplex(sizes, self.radius)

    def projected(self, w: Floats) -> Floats:
        sizes = np.abs(w)
        out, beyond = w.copy(), sizes.sum(axis=1) > self.radius
        if beyond.any():
            out[beyond] = np.sign(w[beyond]) * onto_simplex(sizes[beyond], self.radius)
        return out

    def minimised(self, g: Floats) -> Floats:
        j = np.argmax(np.abs(g), axis=1)
        return self.vertex_rows(np.where(g[np.arange(j.size), j] < 0, j, j + self.size))

    @property
    def vertices(self) -> int:
        return 2 * self.size

    def scores(self, g: Floats) -> Floats:
        up = self.radius * g
        return np.concatenate([up, -up], axis=-1)

    def vertex_rows(self, numbers: Integers) -> Floats:
        out = np.zeros((numbers.size, self.size))
        out[np.arange(numbers.size), numbers % self.size] = np.where(numbers < self.size, self.radius, -self.radius)
        return out


@dataclass(frozen=True)
class L2Ball(Domain):
    """``||w||_2 <= radius``."""

    radius: float

    kind = "l2"

    def norm(self, order: float) -> float:
        return self.radius * (math.sqrt(self.size) if order == 1 else 1.0)

    def diameter(self, order: float) -> float:
        return 2 * self.norm(order)

    def project(self, w: Floats) -> Floats:
        length = float(np.linalg.norm(w))
        return w if length <= self.radius else w * (self.radius / length)

    def projected(self, w: Floats) -> Floats:
        length = np.linalg.norm(w, axis=1, keepdims=True)
        return np.asarray(w * np.minimum(1.0, self.radius / np.maximum(length, self.radius)))

    def minimised(self, g: Floats) -> Floats:
        largest = np.abs(g).max(axis=1, initial=0.0, keepdims=True)
        g = g / np.where(largest == 0, 1.0, largest)  # so that its length neither overflows nor vanishes
        length = np.linalg.norm(g, axis=1, keepdims=True)
        return np.asarray(g * (-self.radius / np.where(largest == 0, 1.0, length)))


@dataclass(frozen=True, eq=False)
class Box(Domain):
    """``lower <= w <= upper`` entry by entry, (p,) each; infinite sides leave a coordinate unbounded.

    Of kind "linf" when it is ``||w||_inf <= c``. Vertex ``k`` takes ``upper_j`` where bit j of k is set; vertices are
    listed for bounded boxes of at most 12 coordinates (an intercept, mostly).
    """

    size: int = field(init=False)
    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        lower, upper = np.broadcast_arrays(
            np.atleast_1d(np.asarray(self.lower, dtype=np.float64)),
            np.atleast_1d(np.asarray(self.upper, dtype=np.float64)),
        )
        object.__setattr__(self, "lower", lower.copy())
        object.__setattr__(self, "upper", upper.copy())
        object.__setattr__(self, "size", int(lower.size))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Box)
            and np.array_equal(self.lower, other.lower)
            and np.array_equal(self.upper, other.upper)
        )

    def __hash__(self) -> int:
        return hash((self.lower.tobytes(), self.upper.tobytes()))

    @property
    def kind(self) -> str:
        same = self.size > 0 and bool((self.upper == self.upper[0]).all() and (self.lower == -self.upper).all())
        return "linf" if same and math.isfinite(self.upper[0]) else "box"

    def norm(self, order: float) -> float:
        return float(np.linalg.norm(np.maximum(np.abs(self.lower), np.abs(self.upper)), ord=order))

    def diameter(self, order: float) -> float:
        return float(np.linalg.norm(self.upper - self.lower, ord=order))

    def center(self) -> Floats:
        return np.clip(np.zeros(self.size), self.lower, self.upper)

    def project(self, w: Floats) -> Floats:
        return np.clip(w, self.lower, self.upper)

    def projected(self, w: Floats) -> Floats:
        return self.project(w)

    def minimised(self, g: Floats) -> Floats:
        w = np.where(g > 0, self.lower, np.where(g < 0, self.upper, self.center()))
        if not np.isfinite(w).all():
            raise no_minimum()
        return w

    @property
    def vertices(self) -> int | None:
        return 1 << self.size if self.size <= 12 and self.bounded else None

    def scores(self, g: Floats) -> Floats:
        if self.vertices is None:
            return super().scores(g)
        out = np.zeros((*g.shape[:-1], 1))
        for j, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            derivative = g[..., j, None]
            out = np.concatenate([out + low * derivative, out + high * derivative], axis=-1)
        return out

    def vertex_rows(self, numbers: Integers) -> Floats:
        if self.vertices is None:
            return super().vertex_rows(numbers)
        return np.where((numbers[:, None] >> np.arange(self.size)) & 1, self.upper, self.lower)


@dataclass(frozen=True)
class Simplex(Domain):
    """``w >= 0, sum w = total``, or ``<= total`` when ``solid``. Vertex j < p is ``total e_j``, vertex p the origin
    (of the solid one only)."""

    total: float
    solid: bool = False

    kind = "simplex"

    def norm(self, order: float) -> float:
        return self.total

    def diameter(self, order: float) -> float:
        if self.size == 1:
            return self.total if self.solid else 0.0
        return self.total * {1.0: 2.0, 2.0: math.sqrt(2)}.get(float(order), 1.0)

    def center(self) -> Floats:
        return np.zeros(self.size) if self.solid else np.full(self.size, self.total / self.size)

    def project(self, w: Floats) -> Floats:
        if self.solid:
            inside = np.maximum(w, 0.0)
            if float(inside.sum()) <= self.total:
                return inside
        return onto_simplex(w, self.total)

    def projected(self, w: Floats) -> Floats:
        out = onto_simplex(w, self.total)
        inside = np.maximum(w, 0.0)
        return np.where(inside.sum(axis=1, keepdims=True) <= self.total, inside, out) if self.solid else out

    def minimised(self, g: Floats) -> Floats:
        j = np.argmin(g, axis=1)
        return self.vertex_rows(np.where(self.solid & (g[np.arange(j.size), j] >= 0), self.size, j))

    @property
    def vertices(self) -> int:
        return self.size + self.solid

    def scores(self, g: Floats) -> Floats:
        out = self.total * g
        return np.concatenate([out, np.zeros((*g.shape[:-1], 1))], axis=-1) if self.solid else out

    def vertex_rows(self, numbers: Integers) -> Floats:
        out = np.zeros((numbers.size, self.size + 1))
        out[np.arange(numbers.size), numbers] = self.total
        return out[:, : self.size]


@dataclass(frozen=True)
class Product(Domain):
    """A product of sets: part k holds the coordinates from ``start_k`` on, and the parts tile them all.

    Vertices are listed when all parts' are: vertex number ``n_1 + m_1 (n_2 + m_2 (...))`` for m_k vertices in part k.
    """

    size: int = field(init=False)
    parts: tuple[tuple[Domain, int], ...]

    def __post_init__(self) -> None:
        end = 0
        for part, start in self.parts:
            if start != end:
                raise ValueError("the parts of a product must follow each other without gaps")
            end += part.size
        object.__setattr__(self, "size", end)

    kind = "product"

    def norm(self, order: float) -> float:
        return float(np.linalg.norm([part.norm(order) for part, _ in self.parts], ord=order))

    def diameter(self, order: float) -> float:
        return float(np.linalg.norm([part.diameter(order) for part, _ in self.parts], ord=order))

    def center(self) -> Floats:
        return np.concatenate([part.center() for part, _ in self.parts])

    def project(self, w: Floats) -> Floats:
        return np.concatenate([part.project(w[start : start + part.size]) for part, start in self.parts])

    def projected(self, w: Floats) -> Floats:
        return np.hstack([part.projected(w[:, start : start + part.size]) for part, start in self.parts])

    def minimised(self, g: Floats) -> Floats:
        return np.hstack([part.minimised(g[:, start : start + part.size]) for part, start in self.parts])

    @property
    def vertices(self) -> int | None:
        out = 1
        for part, _ in self.parts:
            count = part.vertices
            if count is None or out * count > _MOST_VERTICES:
                return None
            out *= count
        return out

    def scores(self, g: Floats) -> Floats:
        out = np.zeros((*g.shape[:-1], 1))
        for part, start in self.parts:
            own = part.scores(g[..., start : start + part.size])
            out = (own[..., :, None] + out[..., None, :]).reshape(*g.shape[:-1], -1)
        return out

    def vertex_rows(self, numbers: Integers) -> Floats:
        out = []
        for part, _ in self.parts:
            count = part.vertices
            if count is None:
                return super().vertex_rows(numbers)
            numbers, own = np.divmod(numbers, count)
            out.append(part.vertex_rows(own))
        return np.hstack(out)


def onto_simplex(w: Floats, total: float) -> Floats:
    """(p,) the nearest point of ``{v >= 0, sum v = total}``, exact up to rounding; the sum is never above ``total`` by
    more than its rounding. O(p log p). Rows of (B, p) each by itself.

    It is ``max(w - t, 0)``: with k entries left, t is their sum less ``total`` over k; k is the largest number of top
    entries that all stay positive.
    """
    if total == 0:
        return np.zeros_like(w)
    top = np.sort(w, axis=-1)[..., ::-1]
    # From the largest entry down, so that a common shift of any size costs no accuracy.
    first, numbers = top[..., :1], np.arange(1, w.shape[-1] + 1)
    excess = np.cumsum(top - first, axis=-1) - total
    count = np.where(top - first > excess / numbers, numbers, 0).max(axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, count - 1, axis=-1) / count
    out: Floats = np.maximum((w - first) - shift, 0.0)
    return np.asarray(out * (total / out.sum(axis=-1, keepdims=True)))
