"""The budget of one solve and how steps share it: noise scales for composed releases."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpmodel.privacy import gaussian_mu, per_step, pure_composition_delta, zcdp_rho


@dataclass(frozen=True)
class Spend:
    """A pure budget (``rho`` is None) or a zCDP budget ``rho``; parts of it add up.

    Pure releases of ``epsilon_t`` add up to ``epsilon``; zCDP costs add up to ``rho``, which is (epsilon, delta)-DP by
    ``zcdp_rho``. With Gaussian releases only, ``rho = mu^2 / 2`` for the exact Gaussian ``mu``: costs
    ``D_2^2 / (2 sigma^2)`` that add up to it compose to mu-GDP, which is (epsilon, delta)-DP (Balle and Wang 2018).
    """

    epsilon: float
    rho: float | None

    @staticmethod
    def of(epsilon: float, delta: float, *, gaussian_only: bool = False) -> Spend:
        """The whole budget. ``gaussian_only``: every release will be Gaussian noise."""
        if delta == 0:
            return Spend(epsilon, None)
        return Spend(epsilon, gaussian_mu(epsilon, delta) ** 2 / 2 if gaussian_only else zcdp_rho(epsilon, delta))

    def part(self, share: float) -> Spend:
        """A share in (0, 1] of this budget."""
        return Spend(self.epsilon * share, None if self.rho is None else self.rho * share)

    def selection_epsilon(self, steps: int = 1) -> float:
        """Epsilon of each of ``steps`` exponential mechanisms (rho = epsilon^2 / 8 each)."""
        return self.epsilon / steps if self.rho is None else math.sqrt(8 * self.rho / steps)

    def gaussian_sigma(self, sensitivity_l2: float, steps: int = 1) -> float:
        """Standard deviation of the noise in each of ``steps`` Gaussian releases of 2-norm sensitivity
        ``sensitivity_l2``."""
        assert self.rho is not None  # callers choose Laplace noise for pure budgets
        return sensitivity_l2 * math.sqrt(steps / (2 * self.rho))

    def laplace_scale(self, sensitivity_l1: float, steps: int = 1) -> float:
        """Scale of the noise in each of ``steps`` Laplace releases of 1-norm sensitivity ``sensitivity_l1``.

        Under zCDP a Laplace release of epsilon_t costs at most ``epsilon_t^2 / 2``.
        """
        each = self.epsilon / steps if self.rho is None else math.sqrt(2 * self.rho / steps)
        return sensitivity_l1 / each


def valid_step(printed: float, releases: int, epsilon: float, delta: float) -> float:
    """Epsilon of each of many pure releases: the printed one if all are (epsilon, delta)-DP together, else a smaller.

    Releases may be Laplace noise, exponential mechanisms or both. The smaller of the two values of ``per_step`` is
    valid for every mixture. Up to what composition of any pure steps allows, that covers them. Beyond it both values
    come from zCDP, and releases of either kind cost at most rho / releases.
    """
    if pure_composition_delta(printed, releases, epsilon) <= delta:
        return printed
    noise, choice = per_step(epsilon, delta, releases, "laplace"), per_step(epsilon, delta, releases, "exponential")
    return min(printed, noise.value, choice.value)
