"""The arithmetic of synthetic regressions, many side by side: values, gradients and least values on a public grid.

Rows have mean ``m`` and covariance ``S``; predictions at w and at the true coefficients v are then (nearly) jointly
normal, and all that is asked of them are means over a grid of that plane. Nothing of size n is made: one evaluation for
B populations costs O(B (p + grid)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import ndtr

from dpmodel._types import Floats, Integers
from dpmodel.regressions.losses import sigmoid, softmax, softplus
from dpmodel.regressions.model import PrivateRegression, public_point, shift_of

_TRIES = 80  # of the search for least values; half as many where a projection is a solve of its own


_EACH = ("mean", "variance", "common", "truth", "coins", "noise", "tied", "room")


@dataclass(frozen=True)
class Labels:
    """Labels on the grid that a ``share`` of the records has, (B, k) both."""

    share: Floats
    value: Floats


@dataclass(frozen=True)
class Populations:
    """B populations of one model: the mean loss of each, times ``weight``, is what the objective's data part would be.

    ``mean``, ``variance``, ``common``, ``truth`` : (B, p): mean of a row's columns, whose covariance is
    ``diag(variance) + common common'``, and the coefficients labels were made from. ``grid`` : (k, 2) standard normal
    coordinates in the plane of two predictions, the truth's along the first. ``coins`` : (B, k) standard normal, for
    labels; ``noise`` : (B,) standard deviation of a numeric label's noise. ``tied`` : (B,) whether columns have a
    common factor; ``room`` : (B,) how many times larger the variance of a column could be within its bounds. ``given``
    : (B, k) labels, in place of those that records have by chance.
    """

    model: PrivateRegression
    mean: Floats
    variance: Floats
    common: Floats
    truth: Floats
    grid: Floats
    coins: Floats
    noise: Floats
    tied: np.ndarray
    room: Floats
    given: Floats | None = None

    @property
    def count(self) -> int:
        """B"""
        return int(self.mean.shape[0])

    @property
    def points(self) -> int:
        """Predictions on the grid."""
        return int(self.grid.shape[0])

    def at(self, which: Any) -> Self:
        """The populations of these numbers, in their order; the same one may stand more than once."""
        taken: dict[str, Any] = {name: getattr(self, name)[which] for name in _EACH if name != "coins"}
        found = replace(self, **taken, coins=self.coins[:0], given=None)  # labels are drawn already
        # Once for all that are the same.
        found.__dict__["best"] = self.best[which]
        found.__dict__["labels"] = tuple(Labels(each.share[which], each.value[which]) for each in self.labels)
        return found

    @cached_property
    def labels(self) -> tuple[Labels, ...]:
        """Of one kind, or of two, which share the records."""
        ones = np.ones((self.count, self.points))
        if self.given is not None:
            return (Labels(ones, self.given),)
        if self.model.loss.labels == "number":
            return (Labels(ones, self.drawn),)
        yes = sigmoid(self.star)
        return Labels(yes, ones), Labels(1 - yes, self._no * ones)

    @cached_property
    def star(self) -> Floats:
        """(B, k) predictions of the true coefficients on the grid."""
        middle, deviation = self.distribution
        return np.asarray(middle + deviation * self.grid[:, 0])

    @property
    def drawn(self) -> Floats:
        """(B, k) one draw of labels on the grid."""
        if self.model.loss.labels == "number":
            return np.clip(self.star + self.noise[:, None] * self.coins, *self.model.row.label)
        return np.where(ndtr(self.coins) < sigmoid(self.star), 1.0, self._no)

    @property
    def _no(self) -> float:
        return -1.0 if self.model.loss.labels == "sign" else 0.0

    def covariance(self, w: Floats) -> Floats:
        """(B, p) covariance of the columns with the predictions of w (B, p)."""
        out: Floats = self.variance * w
        if self._tied:
            out += self.common * (self.common * w).sum(axis=1, keepdims=True)
        return out

    @cached_property
    def _tied(self) -> bool:
        return bool(self.common.any())

    @cached_property
    def distribution(self) -> tuple[Floats, Floats]:
        """(B, 1) mean and standard deviation of the true coefficients' predictions."""
        own = (self.truth * self.covariance(self.truth)).sum(axis=1, keepdims=True)
        return (self.mean * self.truth).sum(axis=1, keepdims=True), np.sqrt(np.maximum(own, 1e-300))

    @cached_property
    def _direction(self) -> Floats:
        """(B, p) covariance of the columns with the first coordinate."""
        return self.covariance(self.truth) / self.distribution[1]

    @cached_property
    def _plane(self) -> Floats:
        """(3, k) ones and the two coordinates."""
        return np.stack([np.ones(self.points), *self.grid.T])

    def predictions(self, w: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """(B, k) predictions of w (B, p) on the grid, their covariance with each coordinate, (B, 1) twice, and (B, p)
        with the columns."""
        moved = self.covariance(w)
        found = np.empty((3, self.count))  # mean, and the two coordinates' factors
        for out, each in zip(found, (self.mean, self._direction, moved), strict=True):
            np.einsum("ij,ij->i", each, w, out=out)
        _, along, across = found
        across[:] = np.sqrt(np.maximum(across - along * along, 0.0))
        return found.T @ self._plane, along[:, None], across[:, None], moved

    def gradients(self, w: Floats, clip: float | Floats = math.inf) -> Floats:
        """(B, p) gradients of the data part, derivatives clipped ((B, 1) or one for all).

        A row is ``m + S^(1/2) x``, x standard normal. With the plane's orthonormal coordinates ``u = <S^(1/2) v, x> /
        |S^(1/2) v|`` (v the truth) and t, that of ``S^(1/2) (w - (c / d) v)`` (c, d as ``along`` and the deviation of
        the truth's predictions), ``E[s a] = m E[s] + S v E[s u] / d + S (w - (c / d) v) E[s t] / across``: s depends on
        u and t alone.
        """
        z, along, across, moved = self.predictions(w)
        means = self._derivatives(z, clip) @ self._plane.T
        level, first, second = (means * (self.model.weight / z.shape[1])).T[..., None]
        # Nothing lies across where w is along the truth, or zero.
        second = np.divide(second, across, out=np.zeros_like(second), where=across > 1e-9 * np.abs(along) + 1e-12)
        out: Floats = self.mean * level
        out += (first - second * along) * self._direction
        moved *= second
        out += moved
        return out

    def _derivatives(self, z: Floats, clip: float | Floats) -> Floats:
        """(B, k) mean derivatives over the labels at predictions z."""
        cut, loss = bool(np.isfinite(clip).any()), self.model.loss
        if self._logistic and not cut and math.isinf(loss.clip):
            out: Floats = sigmoid(z)
            out -= self._yes
            return out
        parts = [loss.derivative(z, each.value) for each in self.labels]
        for own, each in zip(parts, self.labels, strict=True):
            if cut:
                np.minimum(np.maximum(own, -clip, out=own), clip, out=own)
            if len(parts) > 1:  # one kind of label has them all
                own *= each.share
        return sum(parts[1:], parts[0])

    @property
    def _logistic(self) -> bool:
        """Whether losses are ``ln(1 + e^z)``, less z for labels of the higher kind: linear in the labels, so that
        their mean tells all."""
        return self.model.loss.name in ("logistic", "binary_logistic")

    @cached_property
    def _yes(self) -> Floats:
        """(B, k) share of the records at a point of the grid whose label is the higher of two."""
        return np.asarray(sum((each.share * (each.value > 0) for each in self.labels), np.zeros(())))

    def values(self, w: Floats) -> Floats:
        """(B,) objective values of w (B, p): data part plus penalty."""
        z, *_ = self.predictions(w)
        if self._logistic:
            loss = softplus(z) - self._yes * z
        else:
            loss = sum((each.share * self.model.loss.value(z, each.value) for each in self.labels), np.zeros_like(z))
        return np.asarray(self.model.weight * loss.mean(axis=1) + self.model.penalty.values(w))

    def excess(self, w: Floats) -> Floats:
        """(B,) values above the least that are found."""
        return self.values(w) - self.best

    @cached_property
    def nothing(self) -> Floats:
        """(B,) excess of the best point that needs no data."""
        return self.excess(self.start)

    @cached_property
    def start(self) -> Floats:
        """(B, p) that point."""
        return np.tile(public_point(self.model), (self.count, 1))

    # ------------------------------------------------------------------ the least values
    @cached_property
    def best(self) -> Floats:
        """(B,) least values found. The truth is not the minimiser of every loss (margins grow on, medians and clipped
        labels move), but nearly up to its length and a shift, unless the set or a penalty holds it back: descent begins
        at the best of a few such points."""
        project = self.model.domain.projected
        shift = np.stack([shift_of(self.model, mean) for mean in self.mean])
        shift *= np.maximum(self._label_spread, self.distribution[1])
        points = [self.truth, self.start]
        points += [project(a * self.truth + b * shift) for a in (0.7, 1.0, 1.5) for b in (-0.5, 0.0, 0.5)]
        values = np.stack([self.values(w) for w in points])
        least = np.argmin(values, axis=0)
        rows = np.arange(self.count)
        return self.least_from(np.stack(points)[least, rows])

    @cached_property
    def _label_spread(self) -> Floats:
        """(B, 1) standard deviation of the labels on the grid."""
        square = sum(((each.share * each.value**2).mean(axis=1) for each in self.labels), np.zeros(self.count))
        return np.sqrt(np.maximum(square[:, None] - self.mean_labels**2, 0.0))

    @cached_property
    def mean_labels(self) -> Floats:
        """(B, 1) mean label on the grid; of K classes (B, K) their shares."""
        return np.asarray(sum((each.share * each.value).mean(axis=1, keepdims=True) for each in self.labels))

    def constant_values(self, predictions: Floats) -> Floats:
        """(B, m) the data part where all records have the same prediction, for each of (m,)."""
        value = self.model.loss.value
        parts = (each.share[:, None] * value(predictions[:, None], each.value[:, None]) for each in self.labels)
        return np.asarray(self.model.weight * sum(part.mean(axis=2) for part in parts))

    def least_from(self, w: Floats) -> Floats:
        """(B,) the values that descent from w (B, p) comes to, with steps that double while they help: in the metric
        of the columns' covariance, and, where a set or kinks of the penalty can be in the way of these, plain ones by
        turns."""
        model, penalty = self.model, self.model.penalty
        exact = model.domain.kind not in ("polyhedron", "general")
        plain = model.domain.kind != "free" or bool(penalty.l1.any()) or penalty.other is not None
        value, derivative = self.values(w), self.gradients(w) + penalty.subgradient(w)
        nothing = self.values(self.start)
        steps = np.ones((2, self.count, 1))
        gained = np.full((2, self.count), float(np.abs(value).max(initial=0.0)))
        for k in range(_TRIES if exact else _TRIES // 2):
            way = k % 2 if plain else 0
            move = self._preconditioned(derivative) if way == 0 else derivative
            moved = model.domain.projected(w - steps[way] * move)
            found = self.values(moved)
            helps = found < value
            gained[way] = np.where(helps, value - found, gained[way] / 4)
            steps[way] *= np.where(helps, 2.0, 0.25)[:, None]
            if helps.any():
                w, value = np.where(helps[:, None], moved, w), np.where(helps, found, value)
                derivative = self.gradients(w) + penalty.subgradient(w)
            enough = np.maximum(1e-4 * (nothing - value), 1e-12 * np.abs(value))
            if (gained[: 1 + plain].max(axis=0) <= enough).all():
                break
        return value

    @cached_property
    def _preconditioned(self) -> Callable[[Floats], Floats]:
        smooth, deviation = self.model.loss.smoothness, self.distribution[1]
        c = smooth if math.isfinite(smooth) else 1 / np.maximum(deviation, self._label_spread)
        return self.curved(c, 2 * self.model.penalty.ridge)[1]

    def curved(self, c: float | Floats, h: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
        """(B, p) diag and the inverse of ``c weight (S + m m') + diag(h)``, a bound on (or a guess of) the objective's
        second derivative. ``c`` : (B, 1) or one for all; ``h`` : (B, p) or (p,)."""
        c = self.model.weight * np.broadcast_to(c, (self.count, 1))
        spread = self.variance.max(axis=1, keepdims=True, initial=0.0)
        if not spread.all():  # an intercept alone: nothing varies
            spread = np.where(spread > 0, spread, (self.mean**2).max(axis=1, keepdims=True, initial=0.0))
        least = np.maximum(1e-6 * c * spread, 1e-300)
        diagonal = np.maximum(c * self.variance + h, least)
        factors = np.sqrt(c)[..., None] * np.stack([self.mean, self.common], axis=2)
        along = factors / diagonal[..., None]
        inner = np.linalg.inv(np.eye(2) + np.einsum("ijk,ijl->ikl", factors, along))

        def solve(g: Floats) -> Floats:
            small = np.einsum("ikl,il->ik", inner, np.einsum("ijk,ij->ik", along, g))
            return np.asarray(g / diagonal - np.einsum("ijk,ik->ij", along, small))

        return diagonal, solve


def side_by_side(parts: Sequence[Populations]) -> Populations:
    """All of them in one, of one model and grid."""
    taken: dict[str, Any] = {name: np.concatenate([getattr(each, name) for each in parts]) for name in _EACH}
    given = [each.given for each in parts if each.given is not None]
    return replace(parts[0], **taken, given=np.concatenate(given) if given else None)


@dataclass(frozen=True)
class Trials:
    """Runs of one algorithm side by side: of each of ``settings`` so many ``runs`` (by noise), of each all
    ``populations``. The noise is the same for all settings, in units of its scale."""

    populations: Populations
    settings: int
    runs: int

    @cached_property
    def rows(self) -> Populations:
        """The populations once for every run."""
        return self.populations.at(np.tile(np.arange(self.populations.count), self.settings * self.runs))

    def each(self, values: Sequence[Any]) -> Floats:
        """(rows, 1) numbers, or (rows, k) from (k,) each, that differ by settings."""
        given = np.array(values, dtype=np.float64).reshape(self.settings, -1)
        return np.repeat(given, self.runs * self.populations.count, axis=0)

    def spread(self, drawn: Floats) -> Floats:
        """(rows, k) from (runs, k) or (runs, populations, k)."""
        drawn = drawn if drawn.ndim == 3 else drawn[:, None]
        every = np.broadcast_to(drawn, (self.settings, self.runs, self.populations.count, drawn.shape[-1]))
        return every.reshape(-1, drawn.shape[-1])

    def excess(self, w: Floats) -> Floats:
        """(settings, runs, populations) excess risk of w (rows, p)."""
        return self.rows.excess(w).reshape(self.settings, self.runs, -1)


# -------------------------------------------------------------------------------- several classes
# The 2 K predictions of w and of the true coefficients are (nearly) jointly normal, and all that is needed of them are
# means over a grid of 2 K coordinates. A record counts with its chances of all labels, not with one of them, so that
# the truth is the best point wherever no penalty or set holds it back.


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

    @cached_property
    def labels(self) -> tuple[Labels, ...]:
        """None drawn: records count with their chances."""
        return ()

    @property
    def points(self) -> int:
        return int(self.grid.size) // 2

    @cached_property
    def mean_labels(self) -> Floats:
        return np.asarray(self._true[2].mean(axis=1))

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
