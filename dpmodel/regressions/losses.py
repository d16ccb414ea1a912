"""The losses of one record, ``phi(z, y)`` with prediction z and label y: values, derivatives in z, and their bounds.

Normalised as CVXPY writes them: squared ``(z - y)^2``, absolute ``|z - y|``, Huber ``r^2`` up to its threshold and
``2 M |r| - M^2`` beyond (twice scikit-learn's), quantile ``tau (y - z)_+ + (1 - tau) (z - y)_+``, logistic
``ln(1 + e^(-y z))`` for labels of two signs and ``ln(1 + e^z) - y z`` for labels 0 and 1, hinge ``(1 - y z)_+``
and its square. ``Softmax`` has K predictions of a record, its scores, and K labels: ``ln sum_k e^(z_k) - <y, z>``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dpmodel._types import Floats

LossName = Literal["squared", "absolute", "huber", "quantile", "logistic", "binary_logistic", "hinge", "squared_hinge"]
# What labels are: numbers, signs that multiply the prediction, or 0 and 1.
LabelKind = Literal["number", "sign", "binary"]

_KINDS: dict[str, LabelKind] = {
    "squared": "number",
    "absolute": "number",
    "huber": "number",
    "quantile": "number",
    "logistic": "sign",
    "binary_logistic": "binary",
    "hinge": "sign",
    "squared_hinge": "sign",
}


@dataclass(frozen=True)
class Loss:
    """A loss by name; ``parameter`` is Huber's threshold M > 0 or the quantile tau in (0, 1).

    ``clip`` : derivatives are cut to [-clip, clip] (inf: not at all); then the loss is the one whose derivative that
    is, for the squared loss Huber's.
    ``sharpness`` : beta (inf: kinks stay). Derivatives of absolute, quantile and hinge losses are ``1 - e^(-beta d)``
    times theirs, d the distance of z (of y z for hinge) from the kink: the loss is convex, smooth, least where it was,
    and less than itself by at most 1/beta times its slope.
    """

    name: LossName
    parameter: float = math.nan
    clip: float = math.inf
    sharpness: float = math.inf

    @property
    def labels(self) -> LabelKind:
        return _KINDS[self.name]

    @property
    def scores(self) -> int:
        """Number of predictions of a record."""
        return 1

    def measured(self, order: float) -> Loss:
        """The loss with bounds on derivatives in this norm (1 or 2), which are the same for a single prediction."""
        return self

    @property
    def smoothness(self) -> float:
        """Largest second derivative in z (with labels of size at most 1 for losses of signs); inf where derivatives
        jump."""
        if self.name in ("squared", "huber", "squared_hinge"):
            return 2.0
        if self.name in ("logistic", "binary_logistic"):
            return 0.25
        return self.sharpness * (max(self.parameter, 1 - self.parameter) if self.name == "quantile" else 1.0)

    def value(self, z: Floats, y: Floats) -> Floats:
        """(n,) losses, without the clip and with the kink."""
        r = z - y
        match self.name:
            case "squared":
                return r * r
            case "absolute":
                return np.abs(r)
            case "huber":
                size = np.abs(r)
                return np.where(size <= self.parameter, r * r, self.parameter * (2 * size - self.parameter))
            case "quantile":
                return np.maximum(-self.parameter * r, (1 - self.parameter) * r)
            case "logistic":
                return softplus(-y * z)
            case "binary_logistic":
                return softplus(z) - y * z
            case "hinge":
                return np.maximum(1 - y * z, 0.0)
            case "squared_hinge":
                return np.maximum(1 - y * z, 0.0) ** 2

    def derivative(self, z: Floats, y: Floats) -> Floats:
        """(n,) derivatives in z (a subgradient where there is a kink), clipped."""
        match self.name:
            case "squared":
                out = z - y
                out *= 2
            case "absolute":
                out = np.sign(z - y)
            case "huber":
                out = 2 * np.clip(z - y, -self.parameter, self.parameter)
            case "quantile":
                r = z - y
                out = np.where(r > 0, 1 - self.parameter, np.where(r < 0, -self.parameter, 0.5 - self.parameter))
            case "logistic":
                out = y * z  # -y sigmoid(-y z), in one array
                out *= -0.5
                out = np.tanh(out, out=out)
                out += 1
                out *= y
                out *= -0.5
            case "binary_logistic":
                out = sigmoid(z) - y
            case "hinge":
                out = np.where(y * z < 1, -y, 0.0)
            case "squared_hinge":
                out = -2 * y * np.maximum(1 - y * z, 0.0)
        if math.isfinite(self.sharpness):
            out = out * -np.expm1(-self.sharpness * np.abs(1 - y * z if self.name == "hinge" else z - y))
        return out if math.isinf(self.clip) else np.minimum(np.maximum(out, -self.clip), self.clip)

    def derivative_bound(self, z: float, y: float) -> float:
        """Largest size of the derivative where |prediction| <= ``z`` and |label| <= ``y`` (either may be inf)."""
        match self.name:
            case "squared":
                bound = 2 * (z + y)
            case "absolute":
                bound = 1.0
            case "huber":
                bound = 2 * min(self.parameter, z + y)
            case "quantile":
                bound = max(self.parameter, 1 - self.parameter)
            case "logistic":
                bound = y / (1 + math.exp(-min(y * z, 700.0)))
            case "binary_logistic":
                bound = max(1 / (1 + math.exp(-min(z, 700.0))), 1 / (1 + math.exp(-min(z, 700.0))) + y - 1)
            case "hinge":
                bound = y
            case "squared_hinge":
                bound = 2 * y * (1 + y * z)
        return min(bound, self.clip)

    def largest(self, low: float, high: float, labels: tuple[float, float]) -> float:
        """Largest loss of predictions in [low, high] and labels in their range, at a corner: losses are convex in each.
        The least loss is 0."""
        with np.errstate(all="ignore"):
            found = self.value(np.array([low, low, high, high]), np.array([*labels, *labels]))
        return float(found.max()) if not np.isnan(found).any() else math.inf

    def cut(self, derivatives: Floats, limit: float) -> Floats:
        """Cut derivatives, or parts of them, to sizes of at most ``limit``, in place."""
        return np.minimum(np.maximum(derivatives, -limit, out=derivatives), limit, out=derivatives)

    # ------------------------------------------------------------------ derivatives less their middle
    def middle(self, y: Floats) -> Floats:
        """(n,) m(y): the part of the derivative that does not depend on the prediction.

        ``derivative = m(y) + rest(z, y)`` with ``|rest| <= rest_bound``. The sum of m(y_i) a_i is a statistic that can
        be measured once, whatever the number of steps. The rest has half the derivative's bound for logistic and hinge
        losses: ``-y sigma(-y z) = -y/2 + tanh(z/2)/2`` and ``-y [y z < 1] = -y/2 - (y/2) sign(1 - y z)`` for
        labels +-1. m is 0 for losses without such a part, and wherever derivatives are clipped.
        """
        if math.isfinite(self.clip):
            return np.zeros_like(y)
        match self.name:
            case "squared":
                return -2 * y
            case "logistic" | "hinge":
                return -y / 2
            case "binary_logistic":
                return 0.5 - y
            case "quantile":
                return np.full_like(y, 0.5 - self.parameter)
            case _:
                return np.zeros_like(y)

    def middle_bound(self, y: float) -> float:
        """Largest |m(y)| for |y| <= ``y`` (labels 0 and 1 for the binary loss)."""
        if math.isfinite(self.clip):
            return 0.0
        match self.name:
            case "squared":
                return 2 * y
            case "logistic" | "hinge":
                return y / 2
            case "binary_logistic":
                return max(0.5, y - 0.5)
            case "quantile":
                return abs(0.5 - self.parameter)
            case _:
                return 0.0

    def rest_bound(self, z: float, y: float) -> float:
        """Largest size of ``derivative - middle`` where |prediction| <= ``z`` and |label| <= ``y`` <= 1 for signs."""
        if math.isfinite(self.clip):
            return self.derivative_bound(z, y)
        match self.name:
            case "squared":
                return 2 * z
            case "logistic" | "binary_logistic":
                # -y sigma(-y z) + y/2 = (y/2) tanh(y z / 2)
                return max(y, 1.0) / 2 * math.tanh(min(max(y, 1.0) * z, 700.0) / 2)
            case "hinge":
                return max(y, 1.0) / 2
            case "quantile":
                return 0.5
            case _:
                return self.derivative_bound(z, y)


@dataclass(frozen=True)
class Softmax(Loss):
    """The multinomial loss ``ln sum_k e^(z_k) - <y, z>`` of K scores z and labels y, a one-hot row.

    Its derivative is the vector p - y, p = softmax(z); its size is the norm of ``order``. Rows y are non-negative with
    a sum of at most 1, the convex hull of 0 and the one-hot e_k; norms are convex, so bounds for e_k (and 0, which is
    never larger here) hold for all of them. The argument ``z`` of bounds is the largest difference s of two scores.

    Derivative. ``|p - e_k|_1 = 2 (1 - p_k)``, and 1 - p_k is at most ``t = (K - 1) / (K - 1 + e^-s)``. ``|p - e_k|^2 =
    (1 - p_k)^2 + sum_{j != k} p_j^2 <= (1 - p_k)^2 + (1 - p_k) max p_j <= t^2 + t q`` with ``q = 1 / (1 + (K - 1)
    e^-s)``, the most that one p_j can be. At s = 0 that is 1 - 1/K, and it grows to 2: ``|p - y| < sqrt(2)``, attained
    in the limit. Smoothness: the second derivative is ``diag(p) - p p'``, and ``u' (diag(p) - p p') u`` is the variance
    of u under p, at most ``(max u - min u)^2 / 4 <= |u|^2 / 2``, attained by two classes of equal chance.

    Middle and rest (``Loss.middle``): ``p - y = (1/K - y) + (p - 1/K)``. The rest is largest where m scores are s above
    the others. 2-norm: ``|p|^2`` has the derivative ``2 p_l (p_l - |p|^2)`` in z_l, negative and then positive as z_l
    grows, so it is largest at the ends, and ``|p - 1/K|^2 = |p|^2 - 1/K``. 1-norm: twice the largest ``P(S) - |S| / K``
    over sets S of classes, which is largest with S on top.
    """

    name: Any = "softmax"
    classes: int = 2
    order: float = 2.0

    @property
    def labels(self) -> LabelKind:
        return "binary"

    @property
    def scores(self) -> int:
        return self.classes

    @property
    def smoothness(self) -> float:
        return 0.5

    def measured(self, order: float) -> Softmax:
        return replace(self, order=order)

    def value(self, z: Floats, y: Floats) -> Floats:
        """(...) losses of scores and labels (..., K)."""
        top = z.max(axis=-1)
        out: Floats = np.log(np.exp(z - top[..., None]).sum(axis=-1)) + top - (y * z).sum(axis=-1)
        return out

    def derivative(self, z: Floats, y: Floats) -> Floats:
        """(..., K) derivatives p - y."""
        out: Floats = softmax(z) - y
        return out

    def derivative_bound(self, z: float, y: float) -> float:
        others, low = self.classes - 1, math.exp(-z)
        t, q = others / (others + low), 1 / (1 + others * low)
        return 2 * t if self.order == 1 else math.sqrt(t * t + t * q)

    def largest(self, low: float, high: float, labels: tuple[float, float]) -> float:
        return math.inf  # where losses count from 0: with labels of zeros they have no lower bound

    def cut(self, derivatives: Floats, limit: float) -> Floats:
        size = np.abs(derivatives) if self.order == 1 else derivatives * derivatives
        size = size.sum(axis=-1, keepdims=True)
        size = size if self.order == 1 else np.sqrt(size)
        with np.errstate(divide="ignore", invalid="ignore"):
            np.multiply(derivatives, np.where(size > limit, limit / size, 1.0), out=derivatives)
        return derivatives

    def middle(self, y: Floats) -> Floats:
        return 1 / self.classes - y

    def middle_bound(self, y: float) -> float:
        left = 1 - 1 / self.classes
        return 2 * left if self.order == 1 else math.sqrt(left)

    def rest_bound(self, z: float, y: float) -> float:
        m, low = np.arange(1, self.classes), math.exp(-z)
        total = m + (self.classes - m) * low
        if self.order == 1:
            return float(2 * (m * (1 / total - 1 / self.classes)).max())
        square = float(((m + (self.classes - m) * low * low) / total**2).max()) - 1 / self.classes
        return math.sqrt(max(square, 0.0))


def softmax(z: Floats) -> Floats:
    """(..., K) chances of scores (..., K)."""
    out: Floats = np.exp(z - z.max(axis=-1, keepdims=True))
    out /= out.sum(axis=-1, keepdims=True)
    return out


def sigmoid(t: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * t))


def softplus(t: Floats) -> Floats:
    """ln(1 + e^t), in half the time of ``logaddexp``."""
    return np.log1p(np.exp(-np.abs(t))) + np.maximum(t, 0.0)
