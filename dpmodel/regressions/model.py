"""A private regression: all that a mechanism may know about it, and the one way to its rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpmodel._types import Floats
from dpmodel.marks.private import Private
from dpmodel.memo import PublicFacts, cached
from dpmodel.programs.classifier import Classification
from dpmodel.regressions.features import RowBounds
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.outputs import PublicColumns
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.rows import Reader, Rows, Table
from dpmodel.regressions.sets import Domain

if TYPE_CHECKING:
    from dpmodel.regressions.public import PublicPart


@dataclass(frozen=True)
class PrivateRegression(PublicFacts):
    """minimise ``scale * sum_i omega_i loss(a_i' w + o_i, y_i) + penalty(w)`` over w in ``domain``.

    A multinomial model has K scores of a record, W (K, p) in place of w, and the loss ``losses.Softmax`` of them all.
    W is the vector of its rows (K p,): so are ``domain`` and ``penalty``, while ``row`` bounds the p features that all
    scores share. Derivatives are vectors (K,), their size is a norm; what stands for the size of predictions, on which
    the derivative depends, is the largest difference of two scores.

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
        return self.loss.scores

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
        """Largest |prediction| (of K scores: difference of two) over the set and the rows allowed; inf where the set is
        unbounded."""
        bound = self.row.prediction_bound(*(self.domain.norm(order) for order in (1.0, 2.0, math.inf)))
        return bound + self.offset_bound if self.scores == 1 else 2 * bound

    @cached_property
    def derivative_bound(self) -> float:
        """Largest |derivative of the loss| over the set and the rows allowed; of K scores the 2-norm, below sqrt(2)."""
        return self.loss.derivative_bound(self.prediction_bound, self.row.label_bound if self.scores == 1 else 1.0)

    def reaches(self, w: Floats) -> Floats:
        """(B,) largest |prediction| of w (B, size) over the rows allowed, without the offset; of K scores the largest
        difference of two."""
        return self.row.reaches(w) if self.scores == 1 else self.row.spreads(w.reshape(-1, self.scores, self.row.size))

    def gradient_sensitivity(self, order: float, reach: float | None = None) -> float:
        """How far one record moves ``sum_i omega_i s_i a_i``, |s_i| <= ``reach`` (default: the loss's derivative), with
        an allowance for the rounding of two such sums in double precision. Of K scores: the vector of the entries of
        ``sum_i omega_i s_i a_i'``, s_i (K,) of norm at most ``reach`` in the same order."""
        if reach is None and self.scores > 1:
            reach = self.loss.measured(order).derivative_bound(self.prediction_bound, 1.0)
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


# -------------------------------------------------------------------------------- several outputs


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


# -------------------------------------------------------------------------------- the best point without data


_TRIED = 21  # points between the set's centre and the best constant prediction


def public_point(model: PrivateRegression) -> Floats:
    """(p,) the point of the set whose objective can be largest by the least, of those between the set's centre and the
    one that predicts the best constant. Public facts only.

    The best constant c minimises the largest loss over labels in [lo, hi]: their middle for losses of ``|z - y|``,
    ``tau hi + (1 - tau) lo`` for quantiles (there ``tau (hi - c) = (1 - tau)(c - lo)``), 0 for two classes or more. An
    intercept predicts it, or else coefficients along the middles of the columns.
    """
    return _search(model).copy()


def public_excess(model: PrivateRegression) -> float:
    """What the public point can lose against the best of the set, on any data that the declarations allow; inf where
    linear or other penalties leave no least one. Losses are not negative, nor are ridge and l1 terms."""
    penalty = model.penalty
    if penalty.linear.any() or penalty.other is not None:
        return math.inf
    return _worst(model, public_point(model)) - penalty.constant


def objective_range(model: PrivateRegression) -> float:
    """What any point of the set can lose: the largest objective less the least; inf where no bound is known."""
    penalty, reach = model.penalty, model.prediction_bound
    if not math.isfinite(reach) or penalty.linear.any() or penalty.other is not None:
        return math.inf
    public = float(penalty.ridge.max(initial=0.0)) * model.domain.norm(2.0) ** 2 if penalty.ridge.any() else 0.0
    public += float(penalty.l1.max(initial=0.0)) * model.domain.norm(1.0) if penalty.l1.any() else 0.0
    return model.weight * _largest_loss(model, -reach, reach) + public


def shift_of(model: PrivateRegression, mean: Floats) -> Floats:
    """(p,) what adds 1 to the prediction of a row of these columns: the intercept, or else coefficients along it."""
    anchors, out = np.flatnonzero(model.row.constant & (model.row.lower != 0)), np.zeros(model.row.size)
    if anchors.size:
        out[anchors[0]] = 1.0 / model.row.lower[anchors[0]]
    elif mean.any():
        size = float(np.abs(mean).max())  # so that squares neither overflow nor vanish
        unit = mean / size
        out = unit / float(unit @ unit) / size
    return out


@cached
def _search(model: PrivateRegression) -> Floats:
    center = np.asarray(model.domain.center(), dtype=np.float64)
    if model.scores > 1:
        return center  # equal chances of all classes, where the set allows them
    low, high = model.row.lower, model.row.upper
    middle = np.where(np.isfinite(low) & np.isfinite(high), low / 2 + high / 2, 0.0)
    with np.errstate(all="ignore"):
        moved = center + shift_of(model, middle) * (_best_constant(model) - float(middle @ center))
        if not np.isfinite(moved).all() or (moved == center).all():
            return center
        moved = model.domain.project(moved)
        points = [center + t * (moved - center) for t in np.linspace(0.0, 1.0, _TRIED)[1:-1]]
        # The centre where nothing is gained; rounding must not move it either.
        best, least = center, _worst(model, center) * (1 - 1e-9)
        for point in (*points, moved):
            if (worst := _worst(model, point)) < least:
                best, least = point, worst
    return best


def _best_constant(model: PrivateRegression) -> float:
    (low, high), (least, most) = model.row.label, model.offset_range
    low, high = low - most, high - least  # of what is left to predict
    if model.loss.labels != "number" or not math.isfinite(high - low):
        return 0.0
    share = model.loss.parameter if model.loss.name == "quantile" else 0.5
    return share * high + (1 - share) * low


def _worst(model: PrivateRegression, w: Floats) -> float:
    """Largest objective at w over the rows and labels allowed."""
    return model.weight * _largest_loss(model, *_predictions(model, w)) + model.penalty.value(w)


def _predictions(model: PrivateRegression, w: Floats) -> tuple[float, float]:
    """Lowest and highest prediction of w over the rows and offsets allowed (missing records only move a zero row)."""
    row, fixed = model.row, model.row.constant
    if model.scores > 1:
        spread = float(model.reaches(w[None])[0])
        return -spread, spread
    base, u = float(row.lower[fixed] @ w[fixed]), w[~fixed]
    with np.errstate(invalid="ignore"):
        ends = np.stack([np.where(u == 0, 0.0, row.lower[~fixed] * u), np.where(u == 0, 0.0, row.upper[~fixed] * u)])
    moving = np.where(fixed, 0.0, w)
    reach = row.reach(moving)  # by the norms of rows, where these say more than columns
    low, high = max(float(ends.min(axis=0).sum()), -reach), min(float(ends.max(axis=0).sum()), reach)
    return base + low + model.offset_range[0], base + high + model.offset_range[1]


def _largest_loss(model: PrivateRegression, low: float, high: float) -> float:
    """Largest loss of a prediction in [low, high]."""
    return model.loss.largest(low, high, model.row.label)
