"""Populations of a multinomial model, side by side: K scores of a record, and labels that it has by chance.

As in ``populations``, nothing of size n is made: the 2 K predictions of w and of the true coefficients are (nearly)
jointly normal, and all that is asked of them are means over a grid of 2 K coordinates. A record counts with its chances
of all labels, not with one of them, so that the truth is the best point wherever no penalty or set holds it back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.regression.losses import softmax
from dpmodel.mechanisms.regression.populations import Labels, Populations
from dpmodel.mechanisms.regression.public_point import shift_of

# Standard deviation of the log-odds of two classes under the true coefficients, and their mean for the first and last.
SIGNAL = 2.0
BALANCE = -1.0


def class_truths(
    model: PrivateRegression,
    mean: Floats,
    variance: Floats,
    common: Floats,
    chosen: Integers,
    directions: Floats,
) -> Floats:
    """(K p,) coefficients on the ``chosen`` columns in the ``directions`` (K, chosen), with intercepts (or coefficients
    along the columns' means) that make the last class less frequent than the first."""
    out = np.zeros((model.scores, model.row.size))
    size = np.sqrt(np.maximum(variance[chosen] + common[chosen] ** 2, 1e-300))
    for k, level in enumerate(np.linspace(0.0, BALANCE, model.scores)):
        v = directions[k] / size
        if common.any():  # what they do along the factor cancels
            along = common[chosen]
            v -= along * float(along @ v) / float(along @ along)
        spread = math.sqrt(max(float(variance[chosen] @ v**2), 1e-300))
        out[k, chosen] = v * (SIGNAL / math.sqrt(2) / spread)
        out[k] += shift_of(model, mean) * (level - float(mean @ out[k]))
    return model.domain.project(out.ravel())


@dataclass(frozen=True)
class ClassPopulations(Populations):
    """``truth`` : (B, K p). ``grid`` : (k, 2 K) standard normal coordinates: the first K for the predictions of the
    truth, the others for what is left of those of w."""

    along: Floats = field(default_factory=lambda: np.zeros(0))
    across: Floats = field(default_factory=lambda: np.zeros(0))
    labels: tuple[Labels, ...] = ()
    grid: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def points(self) -> int:
        return int(self.grid.size) // 2

    def _each(self, w: Floats) -> Floats:
        """(B, K, p) of (B, K p)."""
        return w.reshape(self.count, self.model.scores, -1)

    def _moved(self, w: Floats) -> Floats:
        """(B, K, p) covariance of the columns with the scores of w (B, K, p)."""
        out: Floats = self.variance[:, None] * w
        out += self.common[:, None] * (w @ self.common[..., None])
        return out

    @cached_property
    def _true(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Of the truth: its covariance with the columns (B, K, p), the inverse root of that of its scores (B, K, K),
        their chances (B, k, K), and the mean of ``diag(chances) - chances chances'`` (B, K, K)."""
        truth = self._each(self.truth)
        moved = self._moved(truth)
        root, inverse = _roots(moved @ truth.transpose(0, 2, 1))
        first = self.grid[:, : self.model.scores]
        chances = softmax(_on_the_grid(self._level(truth), (root, first)))
        return moved, inverse, chances, _second(chances)

    def _level(self, w: Floats) -> Floats:
        """(B, K, 1) mean scores."""
        out: Floats = w @ self.mean[..., None]
        return out

    def _scores(self, w: Floats, moved: Floats) -> Floats:
        """(B, k, K) scores of w (B, K, p) on the grid."""
        moved_true, inverse, *_ = self._true
        along = (w @ moved_true.transpose(0, 2, 1)) @ inverse
        left = moved @ w.transpose(0, 2, 1) - along @ along.transpose(0, 2, 1)
        count = self.model.scores
        first, second = self.grid[:, :count], self.grid[:, count:]
        return _on_the_grid(self._level(w), (along, first), (_roots(left)[0], second))

    def gradients(self, w: Floats, clip: float | Floats = math.inf) -> Floats:
        """(B, K p) gradients of the data part.

        With s = p - chances, both functions of normal scores, ``E[s a] = m E[s] + sum_l E[ds / dz_l] S w_l + ...``
        (Stein), the sum over the scores of w and of the truth: their second derivatives times S w and S truth.
        """
        w = self._each(w)
        moved, (moved_true, _, chances, second_true) = self._moved(w), self._true
        p = softmax(self._scores(w, moved))
        out = (p - chances).mean(axis=1)[..., None] * self.mean[:, None]
        out += _second(p) @ moved - second_true @ moved_true
        out *= self.model.weight
        return np.reshape(out, (self.count, -1))

    def values(self, w: Floats) -> Floats:
        """(B,) objective values of w (B, K p): data part plus penalty."""
        each = self._each(w)
        z = self._scores(each, self._moved(each))
        loss = self.model.loss.value(z, self._true[2])
        return np.asarray(self.model.weight * loss.mean(axis=1) + self.model.penalty.values(w))

    @cached_property
    def best(self) -> Floats:
        """(B,) least values found, by descent from the best of a few multiples of the truth."""
        project = self.model.domain.projected
        points = [self.start, *(project(factor * self.truth) for factor in (0.3, 0.7, 1.0))]
        values = np.stack([self.values(w) for w in points])
        return self.least_from(np.stack(points)[np.argmin(values, axis=0), np.arange(self.count)])

    @cached_property
    def _preconditioned(self) -> Callable[[Floats], Floats]:
        return self.curved(self.model.loss.smoothness, 2 * self.model.penalty.ridge)[1]

    def curved(self, c: float | Floats, h: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
        """Of every score by itself."""
        ridges = self._each(np.broadcast_to(h, self.truth.shape)).transpose(1, 0, 2)
        parts = [Populations.curved(self, c, each) for each in ridges]

        def solve(g: Floats) -> Floats:
            each = self._each(g)
            return np.stack([solver(each[:, k]) for k, (_, solver) in enumerate(parts)], axis=1).reshape(g.shape)

        return np.hstack([diagonal for diagonal, _ in parts]), solve


def _on_the_grid(level: Floats, *parts: tuple[Floats, Floats]) -> Floats:
    """(B, k, K) scores of these means (B, K, 1), and of coordinates (k, K) times factors (B, K, K). The K of a point
    lie apart: sums over them are then sums of long arrays."""
    return sum((factor @ points.T for factor, points in parts), level).transpose(0, 2, 1)


def _second(p: Floats) -> Floats:
    """(B, K, K) mean of ``diag(p) - p p'`` over the grid, for chances p (B, k, K)."""
    out: Floats = -(p.transpose(0, 2, 1) @ p) / p.shape[1]
    classes = np.arange(p.shape[2])
    out[:, classes, classes] += p.mean(axis=1)
    return out


def _roots(matrices: Floats) -> tuple[Floats, Floats]:
    """(B, K, K) symmetric roots of positive semidefinite matrices, and the inverses of these where they have one."""
    values, vectors = np.linalg.eigh(matrices)
    values = np.maximum(values, 0.0)
    live = values > 1e-12 * np.maximum(values[:, -1:], 1e-300)
    root = np.sqrt(np.where(live, values, 0.0))
    inverse = np.divide(1.0, root, out=np.zeros_like(root), where=live)
    turned = vectors.transpose(0, 2, 1)
    return (vectors * root[:, None]) @ turned, (vectors * inverse[:, None]) @ turned
