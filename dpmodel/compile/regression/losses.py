"""The losses of one record, ``phi(z, y)`` with prediction z and label y: value, derivative, and how far the derivative
reaches.

Normalised as CVXPY writes them: squared ``(z - y)^2``, absolute ``|z - y|``, Huber ``r^2`` up to its threshold and
``2 M |r| - M^2`` beyond (twice scikit-learn's), quantile ``tau (y - z)_+ + (1 - tau) (z - y)_+``, logistic
``ln(1 + e^(-y z))`` for labels of two signs and ``ln(1 + e^z) - y z`` for labels 0 and 1, hinge ``(1 - y z)_+``
and its square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

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
    """

    name: LossName
    parameter: float = math.nan
    clip: float = math.inf

    @property
    def labels(self) -> LabelKind:
        return _KINDS[self.name]

    @property
    def smoothness(self) -> float:
        """Largest second derivative in z (with labels of size at most 1 for losses of signs); inf where derivatives
        jump."""
        if self.name in ("squared", "huber", "squared_hinge"):
            return 2.0
        return 0.25 if self.name in ("logistic", "binary_logistic") else math.inf

    def value(self, z: Floats, y: Floats) -> Floats:
        """(n,) losses, of the loss without the clip."""
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
                return np.logaddexp(0.0, -y * z)
            case "binary_logistic":
                return np.logaddexp(0.0, z) - y * z
            case "hinge":
                return np.maximum(1 - y * z, 0.0)
            case "squared_hinge":
                return np.maximum(1 - y * z, 0.0) ** 2

    def derivative(self, z: Floats, y: Floats) -> Floats:
        """(n,) derivatives in z (a subgradient where there is a kink), clipped."""
        r = z - y
        match self.name:
            case "squared":
                out = 2 * r
            case "absolute":
                out = np.sign(r)
            case "huber":
                out = 2 * np.clip(r, -self.parameter, self.parameter)
            case "quantile":
                out = np.where(r > 0, 1 - self.parameter, np.where(r < 0, -self.parameter, 0.5 - self.parameter))
            case "logistic":
                out = -y * sigmoid(-y * z)
            case "binary_logistic":
                out = sigmoid(z) - y
            case "hinge":
                out = np.where(y * z < 1, -y, 0.0)
            case "squared_hinge":
                out = -2 * y * np.maximum(1 - y * z, 0.0)
        return out if math.isinf(self.clip) else np.clip(out, -self.clip, self.clip)

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

    # ------------------------------------------------------------------ derivatives with their middle taken out
    def middle(self, y: Floats) -> Floats:
        """(n,) m(y): the part of the derivative that does not depend on the prediction.

        ``derivative = m(y) + rest(z, y)`` with ``|rest| <= rest_bound``. The sum of m(y_i) a_i is a statistic that can
        be measured once, whatever the number of steps, and the rest has half the reach of the derivative for logistic
        and hinge losses: ``-y sigma(-y z) = -y/2 + tanh(z/2)/2`` and ``-y [y z < 1] = -y/2 - (y/2) sign(1 - y z)`` for
        labels +-1. Zero for losses without such a part, and wherever derivatives are clipped.
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


def sigmoid(t: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * t))
