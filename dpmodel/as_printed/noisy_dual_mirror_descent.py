"""Noisy dual mirror descent (Chen and Chua 2024), with the negative entropy and with the squared 2-norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dpmodel._types import Floats
from dpmodel.as_printed.jointly_private_programming import JointlyPrivateProgramming, Public, Steps, within
from dpmodel.contract import Options, Serves
from dpmodel.joint.model import JointModel

# What the paper's experiments take.
_STEPS, _BEYOND = 10_000, 1.1


@dataclass(frozen=True)
class NoisyDualMirrorDescent(JointlyPrivateProgramming):
    """Mirror descent on prices with Gaussian noise counted by Renyi divergences, as a yardstick.

    ``potential="entropy"`` : prices ``K p`` with p in the simplex of m + 1 (the last one is of nothing),
    ``p_j <- p_j exp(eta (d~_j - b_j))``, normalised; from the even point. ``"euclidean"`` : projected steps in p >= 0
    with ``||p||_2 <= K``; from 0. A person's share is the plain mean of the T answers.

    Source
        Chen and Chua, Noisy Dual Mirror Descent: A Near Optimal Algorithm for Jointly-DP Convex Resource Allocation,
        NeurIPS 2024. Of the text the abstract and a summary by others were at hand (``K = 1.1 u / (gamma b)``,
        T = 10^4, negative entropy and the squared 2-norm, Renyi divergences, plain averages); step sizes, which the
        summary leaves out, are those of mirror descent's regret bound for T noisy gradients, not compared with the
        paper's.
        Added, 0 as in the paper: ``margin``, a part of each capacity that is not planned with.
    Privacy
        Sensitivity and joint privacy as in ``NoisyPrices``. T Gaussian mechanisms, adaptively: Renyi divergence
        ``a rho`` of each order a, ``rho = T Delta^2 / (2 sigma^2)``, so (epsilon, delta)-DP for
        ``epsilon = rho + 2 sqrt(rho ln(1 / delta))``; sigma is the one for which that is the budget. What is charged is
        the exact law, which is below the budget.
    Utility
        Under strong duality gap and violation of each constraint are bounded by a constant times ``sqrt(ln(1 / delta))
        / epsilon``, up to logarithms: capacities are exceeded. Nothing scales shares down.
    Cost
        T passes over the people; 10,000 unless ``steps`` says otherwise.
    Errors
        Refuses by ``eligible``: as ``JointlyPrivateProgramming``. K is 1.1 times the bound on prices: in the 1-norm
        for the entropy, and the same number in the 2-norm else.

    ``steps`` : T, ``pace`` : a factor of eta, ``margin``, and ``dual_bound`` : K / 1.1.
    """

    serves: ClassVar[Serves] = Serves(JointModel, as_printed=True, reads_blocks=True)
    potential: Literal["entropy", "euclidean"] = "entropy"
    name: str = "noisy-dual-mirror-descent"
    source: str = "Chen and Chua 2024"

    def settings(self, given: Public, options: Options) -> Steps:
        count, size, log = self.steps or _STEPS, given.capacity.size, math.log(1 / options.delta)
        rho = (math.sqrt(log + options.epsilon) - math.sqrt(log)) ** 2
        noise = given.sensitivity * math.sqrt(count / (2 * rho))
        width = given.people * given.radius
        if self.potential == "entropy":
            steep = width + noise * math.sqrt(2 * math.log(2 * size))
            rate = math.sqrt(2 * math.log(size + 1) / count) / steep
        else:
            steep = math.sqrt(width**2 + size * noise**2)
            rate = _BEYOND * given.bound / (math.sqrt(count) * steep)
        return Steps(count, noise, self.pace * rate)

    def start(self, given: Public) -> Floats:
        size = given.capacity.size
        return np.full(size, _BEYOND * given.bound / (size + 1)) if self.potential == "entropy" else np.zeros(size)

    def moved(self, prices: Floats, gradient: Floats, rate: float, given: Public) -> Floats:
        most = _BEYOND * given.bound
        if self.potential == "euclidean":
            return within(np.maximum(prices + rate * gradient, 0.0), most)
        rest = max(most - float(prices.sum()), 1e-300)
        with np.errstate(divide="ignore"):
            logs = np.append(np.log(prices) + rate * gradient, math.log(rest))
        parts = np.exp(logs - logs.max())
        return np.asarray(most * parts[:-1] / parts.sum())


NOISY_DUAL_MIRROR_DESCENT = NoisyDualMirrorDescent()
NOISY_DUAL_GRADIENT_DESCENT = NoisyDualMirrorDescent(potential="euclidean", name="noisy-dual-gradient-descent")
__all__ = ["NOISY_DUAL_GRADIENT_DESCENT", "NOISY_DUAL_MIRROR_DESCENT", "NoisyDualMirrorDescent"]
