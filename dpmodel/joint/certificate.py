"""What a part of the budget measures of shares: what they are worth, and what the best ones could be.

Why it is private. The prices have been released by a mechanism that is (epsilon_1, delta)-jointly private; here they,
and with them the rule by which a share follows from one person's row, are constants. Declarations bound what a share is
worth to one person by V, for every share that this person may have. Two sums over people are measured:

* *worth*: ``sum_i v_i(x_i)`` of the shares x_i that are handed out. A share is the best answer to some prices, which
  is worth what it costs at least, or a mean of such, and scaled down: worth 0 or more, for a v_i that is linear.
* *surplus*: ``sum_i max_x (v_i(x) - p'A_i x)`` at the mean price p, over all x within the person's own limits: 0 or
  more, as x = 0 is allowed, and V at most, as p and A are 0 or more.

Each term is cut to [0, V] before it is added, so that another row for one person, or none, moves each sum by V at most,
and both in the 1-norm by ``D = 2 V``. A sum of n terms of double precision is off by ``(n + 4) 2^-53`` of n V at most;
that for each of two neighbors and two sums is in D too. With Laplace noise of scale ``D / epsilon_2`` both sums
are epsilon_2-DP, and with the prices (epsilon_1 + epsilon_2, delta)-jointly private by adaptive composition.

What it says. For any p >= 0 the optimum is at most ``b'p + surplus`` (weak duality, for whole shares too). The noise of
both sums is within its quantile for the larger of two with probability 1 - beta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.joint.form import Form, People
from dpmodel.joint.model import JointModel
from dpmodel.joint.outcome import Prices
from dpmodel.joint.respond import respond
from dpmodel.joint.rule import shares_of
from dpmodel.privacy import Laplace, NoiseSource
from dpmodel.release import Certificate
from dpmodel.text import interval_ends, number


def why_not(model: JointModel) -> str:
    """Why nothing is measured of shares; "" where it is. Public facts only."""
    if not model.form.single:
        return (
            "the most that a share may be worth takes a linear program for each person, which is exact to a tolerance"
        )
    if model.capacity_sensitivity:
        return "the optimum depends on private capacities"
    if not math.isfinite(model.most_value):
        return "nothing that was declared (bounds=, max_l1=) bounds what a share is worth to one person"
    return ""


def certify(model: JointModel, epsilon: float, beta: float, prices: Prices, noise: NoiseSource) -> Certificate:
    """Of the shares that follow from ``prices``. Within a solve's charge only: it reads private values."""
    most, mean = model.most_value, np.asarray(prices.weights @ prices.prices)
    law = Laplace(max(sensitivity(model) / epsilon, 1e-300))
    sums = model.read_table().map_reduce(Sums(model.form, prices, mean, most))
    worth, surplus = map(float, law.add_to(np.asarray(sums), noise))
    far, bound, top = law.max_abs_quantile(2, beta), float(model.capacity @ mean), model.count * most
    dual = bound + surplus
    low, high = max(worth - far, 0.0), bound + min(surplus + far, top)
    share = 1.0 if high <= 0 else min(low / high, 1.0)
    ends, percent = interval_ends(low, high), number(math.floor(1000 * share) / 10)
    return Certificate(
        "the share of the optimum",
        float(np.clip(worth / dual, share, 1.0)) if dual > 0 else 1.0,
        share,
        1.0,
        1 - beta,
        f"with probability {number(1 - beta)}, shares are worth {percent} % of the optimum or more: {ends[0]} at "
        f"least, where {ends[1]} is the most that is possible",
        epsilon,
        0.0,
        (low, max(high, 0.0)),
    )


def sensitivity(model: JointModel) -> float:
    """D, of both sums together in the 1-norm."""
    rounding = 2 * (model.count + 4) * 2.0**-53 * model.count
    return 2 * model.most_value * (1 + rounding) * (1 + 1e-12)


@dataclass(frozen=True)
class Sums:
    """(2,) worth and surplus of some people; it travels to where their rows lie. Under a certificate's noise only."""

    form: Form
    prices: Prices
    mean: Floats
    most: float

    def __call__(self, people: People, first: int) -> PrivateArray:
        with np.errstate(all="ignore"):  # a warning would tell of an odd record
            worth = (people.values * shares_of(self.form, self.prices, people, first)).sum(axis=1)
            # Of whole shares the best that need not be whole are looked for: more than the best whole ones.
            best, use = respond(replace(self.form, integral=False), people, self.mean, np.inf)
            surplus = (people.values * best).sum(axis=1) - use @ self.mean
        return PrivateArray(np.array([self._cut(worth).sum(), self._cut(surplus).sum()]))

    def _cut(self, each: Floats) -> Floats:
        return np.maximum(np.where(each < self.most, each, self.most), 0.0)
