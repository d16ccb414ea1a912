"""What a part of the budget measures of released coefficients: the objective on the data.

Why it is private. The coefficients w have been released by a mechanism that is (epsilon_1, delta)-DP; here they are a
constant. The data enter the objective through ``scale sum_i omega_i loss_i(w)`` alone, weights omega_i public. Public
bounds on rows and labels bound every loss by L at this w (and losses are at least 0, cut at both ends as they are
summed). So replacing, adding or removing one record moves the sum by ``D = scale max omega_i L`` at most; a sum of n
terms of double precision is off by (n + 4) 2^-53 of itself at most, twice of which D has on top. With Laplace noise of
scale ``D / epsilon_2`` it is epsilon_2-DP, and both are (epsilon_1 + epsilon_2, delta)-DP together by adaptive
composition: the second may depend on what the first one released.

The interval: the noise is beyond ``scale ln(1 / beta)`` with probability beta, and the sum lies in [0, total L].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.privacy import Laplace, NoiseSource
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression, largest_loss_at
from dpmodel.regressions.rows import Rows
from dpmodel.release import Certificate
from dpmodel.text import interval_ends, number


def why_not(model: PrivateRegression) -> str:
    """Why nothing is measured; "" where it is. Public facts only."""
    if model.penalty.other is not None:
        return "the penalty has a part that is not computed here"
    if not math.isfinite(largest_loss(model, np.ones(model.size))):
        return "public bounds on rows and labels (bounds=, max_l2=) bound no record's loss"
    return ""


def certify(model: PrivateRegression, epsilon: float, beta: float, w: Floats, noise: NoiseSource) -> Certificate:
    """The certificate of the released ``w`` (p,). Within a solve's charge only: it reads private values."""
    largest = largest_loss(model, w)
    most, moved = model.scale * model.total * largest, sensitivity(model, largest)
    public = model.penalty.value(w)
    if moved > 0:
        distribution = Laplace(moved / epsilon)
        noised = float(distribution.add_to(np.array([model.scale * losses(model, w, largest)]), noise)[0])
        far = distribution.max_abs_quantile(1, beta)
    else:
        noised = far = 0.0
    estimate, lower, upper = (public + float(np.clip(each, 0.0, most)) for each in (noised, noised - far, noised + far))
    return Certificate(
        "the objective on the data",
        estimate,
        lower,
        upper,
        1 - beta,
        f"with probability {number(1 - beta)}, the objective on the data at the released coefficients lies between "
        f"{' and '.join(interval_ends(lower, upper))}",
        epsilon,
        0.0,
    )


def largest_loss(model: PrivateRegression, w: Floats) -> float:
    """L: public. Where records may be missing, rows and labels of zeros count."""
    missing = any(parameter.records.neighbors == "add-remove" for parameter in model.private)
    return largest_loss_at(model, w, missing=missing)


def sensitivity(model: PrivateRegression, largest: float) -> float:
    """D."""
    rounding = 2 * (model.count + 4) * 2.0**-53 * model.total
    return model.scale * largest * (model.largest_weight + rounding) * (1 + 1e-12)


def losses(model: PrivateRegression, w: Floats, largest: float) -> float:
    """Private: ``sum_i omega_i loss_i(w)``. Under a certificate's noise only."""
    return float(model.read_table().map_reduce(_Losses(model.loss, w, largest)))


@dataclass(frozen=True)
class _Losses:
    """The sum over some rows; it travels to where they lie."""

    loss: Loss
    w: Floats
    largest: float

    def __call__(self, rows: Rows) -> float:
        with np.errstate(all="ignore"):  # a warning would tell of an odd record
            each = self.loss.value(rows.predict(self.w), PrivateArray(rows.labels))
        each = np.maximum(np.where(each < self.largest, each, self.largest), 0.0)
        return float(each.sum() if rows.weights is None else each @ rows.weights)
