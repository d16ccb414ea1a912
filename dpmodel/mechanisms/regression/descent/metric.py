"""The coordinates in which gradients are noised: columns brought to one size, so that units do not matter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.regression.domain import Domain, Product
from dpmodel.compile.regression.row_bounds import RowBounds
from dpmodel.numerics.public_facts import cached

# Sets whose constraints are on single coefficients: they project, and shrink, in any diagonal coordinates.
SEPARABLE = ("free", "box", "linf")
# Weight of constant columns against the others: they carry one coefficient but would double the squared norm.
_CONSTANT_SHARE = 0.5


@dataclass(frozen=True)
class Metric:
    """A public invertible matrix M: gradients are noised as ``M sum_i s_i a_i`` and coefficients are ``w = M' v``.

    Then ``a'w = (M a)'v``. Row j of M is ``scale_j (e_j - middle_j / c e_k)``: column j less its middle (c the value of
    the constant column k, which absorbs it), times a scale. Vectors (p,), or every row of (B, p), are mapped. ``row`` :
    bounds on M a. ``exchange`` : k, or None without centring. ``uncentred`` : norms (order -> size) that rounding acts
    on. ``scores`` : of how many M maps the p sums (and the coefficients) of each, one after the other.
    """

    scale: Floats
    middle: Floats
    exchange: int | None
    row: RowBounds
    uncentred: dict[float, float]
    scores: int = 1

    @cached_property
    def scales(self) -> Floats:
        """(size,) the scale of every coefficient."""
        return np.tile(self.scale, self.scores)

    @cached_property
    def _centres(self) -> bool:
        """Whether a column has another middle than 0."""
        return bool(self.middle.any())

    def sums(self, g: Floats) -> Floats:
        """(p,) M g."""
        if not self._centres:
            return np.asarray(self.scales * g)
        each = self._each(g)
        return np.asarray(self.scale * (each - self.middle * each[..., self.exchange, None])).reshape(g.shape)

    def coefficients(self, v: Floats) -> Floats:
        """(p,) M' v."""
        w = self.scales * v
        if self._centres:
            each = self._each(w)  # a view
            each[..., self.exchange] -= each @ self.middle
        return w

    def coordinates(self, w: Floats) -> Floats:
        """(p,) v with M' v = w."""
        if self._centres:
            w = w.copy()
            each = self._each(w)
            each[..., self.exchange] += each @ self.middle
        return w / self.scales

    def _each(self, w: Floats) -> Floats:
        """(..., K, p) of (..., K p), where there are several scores."""
        return w if self.scores == 1 else w.reshape(*w.shape[:-1], self.scores, -1)

    def reaches(self, w: Floats) -> Floats:
        """(B,) ``PrivateRegression.reaches`` of w (B, size), centred: sharper, as the constant column has taken the
        columns' middles."""
        v = self.coordinates(w)
        return self.row.reaches(v) if self.scores == 1 else self.row.spreads(self._each(v))

    @property
    def diagonal(self) -> bool:
        return self.exchange is None

    def sensitivity(self, model: PrivateRegression, reach: float, order: float) -> float:
        """How far one record moves ``M sum_i omega_i s_i a_i``, |s_i| <= reach, rounding included.

        ``row`` bounds every row M a, so that ``RowBounds.change`` applies to it as it does to plain rows: two vectors
        of norm at most ``reach * norm``, or (an absent record, never centred) one of them with constant columns only.
        Of several scores, s_i is a vector and what moves the matrix of its outer product with M a, whose norm is the
        product of theirs: the same.
        Rounding: the sum in column j is off by at most ``(n + 4) 2^-53 total reach |a_j|``, which M scales and, where
        it centres, adds to middle_j times the error of the constant column.
        """
        if reach == 0:
            return 0.0
        exact = model.largest_weight * self.row.sensitivity(reach, order)
        rounding = 8 * (model.count + 8) * 2.0**-53 * model.total * reach * self.uncentred[order]
        return exact * (1 + 1e-12) + rounding


def separable(domain: Domain) -> np.ndarray:
    """(p,) bool: coefficients that are free or in a box of their own."""
    if isinstance(domain, Product):
        return np.concatenate([separable(part) for part, _ in domain.parts])
    return np.full(domain.size, domain.kind in SEPARABLE)


def projects_exactly(domain: Domain) -> bool:
    """Whether projections onto the set are in closed form, so that they cost little and certificates hold."""
    if isinstance(domain, Product):
        return all(projects_exactly(part) for part, _ in domain.parts)
    return domain.kind in (*SEPARABLE, "l1", "l2", "simplex")


@cached
def descent_metric(model: PrivateRegression) -> Metric:
    """The metric for this model, a public fact; the same for all of several scores.

    Columns are divided by their largest size where their coefficients are free or in a box and no norm of the row was
    declared below what the columns allow (then the declared norm says that units are alike). With an intercept and no
    constraints, they are first centred in their interval. Other coefficients keep the user's coordinates, in which
    their set projects.
    """
    row, moving = model.row, ~model.row.constant
    loose = separable(model.domain).reshape(model.scores, -1).all(axis=0)
    size = row.magnitudes
    by_columns = bool(np.isfinite(size[moving]).all()) and float(np.linalg.norm(size[moving])) <= row.l2 * (1 + 1e-9)
    scale, middle, exchange = np.ones(row.size), np.zeros(row.size), None
    lower, upper = row.lower, row.upper
    if by_columns:
        anchors = np.flatnonzero(row.constant & (row.lower != 0))
        smooth = not model.penalty.l1.reshape(model.scores, -1)[:, anchors].any() and model.penalty.other is None
        if model.domain.kind == "free" and anchors.size and not row.absent and smooth:
            exchange = int(anchors[0])
            middle = np.where(moving, (lower + upper) / 2, 0.0)
            lower, upper = lower - middle, upper - middle
            middle = middle / row.lower[exchange]
            size = np.where(moving, upper, size)
        scale = np.where(moving & loose & (size > 0), 1 / np.where(size > 0, size, 1.0), 1.0)
    largest = float(scale[moving].max(initial=0.0))

    def bounds(low: Floats, high: Floats, norms: bool) -> RowBounds:
        factor = largest if norms else math.inf
        return RowBounds.of(
            low * scale,
            high * scale,
            row.constant,
            l1=factor * row.l1,
            l2=factor * row.l2,
            linf=factor * row.linf,
            label=row.label,
            absent=row.absent,
        )

    part = bounds(lower, upper, exchange is None)
    if part.fixed(2) > 0 and math.isfinite(part.l2) and part.l2 > 0:
        weight = _CONSTANT_SHARE * part.l2 / part.fixed(2)
        scale = np.where(row.constant & loose, scale * weight, scale)
        part = bounds(lower, upper, exchange is None)
    plain = bounds(row.lower, row.upper, True)
    ends = np.abs(scale * middle) * (abs(row.lower[exchange]) if exchange is not None else 0.0)
    uncentred = {order: plain.norm(order) + float(np.linalg.norm(ends, ord=order)) for order in (1.0, 2.0, math.inf)}
    return Metric(scale, middle, exchange, part, uncentred, model.scores)


@cached
def plain_metric(model: PrivateRegression) -> Metric:
    """The user's own coordinates."""
    norms = {order: model.row.norm(order) for order in (1.0, 2.0, math.inf)}
    return Metric(np.ones(model.size), np.zeros(model.size), None, model.row, norms)
