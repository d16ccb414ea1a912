"""The public part of a regression's objective: ridge, l1, linear and other convex terms of the coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpmodel._types import Floats


@dataclass(frozen=True)
class Penalty:
    """``sum_j ridge_j w_j^2 + sum_j l1_j |w_j| + <linear, w> + constant + other(w)``.

    ``ridge``, ``l1``, ``linear`` : (p,), the first two non-negative. ``other`` : a convex function of w that is none of
    these (then only mechanisms that post-process with CVXPY or subgradients serve), ``other_derivative`` a subgradient.
    """

    ridge: Floats
    l1: Floats
    linear: Floats
    constant: float = 0.0
    other: Callable[[Floats], float] | None = None
    other_derivative: Callable[[Floats], Floats] | None = None

    @staticmethod
    def none(size: int) -> Penalty:
        return Penalty(np.zeros(size), np.zeros(size), np.zeros(size))

    @cached_property
    def smooth(self) -> bool:
        """Whether it is quadratic."""
        return self.other is None and not self.l1.any()

    @cached_property
    def absent(self) -> bool:
        return self.smooth and not (self.ridge.any() or self.linear.any())

    def value(self, w: Floats) -> float:
        return float(self.values(w[None])[0])

    def values(self, w: Floats) -> Floats:
        """(B,) of every row of w (B, p)."""
        out: Floats = (w * w) @ self.ridge + np.abs(w) @ self.l1 + w @ self.linear + self.constant
        return out if self.other is None else out + np.array([self.other(row) for row in w])

    def derivative(self, w: Floats) -> Floats:
        """(p,) gradient of the quadratic part."""
        return np.zeros_like(w) if self.absent else 2 * self.ridge * w + self.linear

    def subgradient(self, w: Floats) -> Floats:
        """(p,) a subgradient of all of it; (B, p) for every row of such a w."""
        out = self.derivative(w)
        return out if self.smooth else out + self.l1 * np.sign(w) + self.other_subgradient(w)

    def other_subgradient(self, w: Floats) -> Floats | float:
        """The same of ``other`` alone."""
        if self.other_derivative is None:
            return 0.0
        return self.other_derivative(w) if w.ndim == 1 else np.stack([self.other_derivative(row) for row in w])

    def shrink(self, w: Floats, step: float | Floats) -> Floats:
        """(p,) proximal step of the l1 part: soft thresholding by ``step * l1``."""
        return np.sign(w) * np.maximum(np.abs(w) - step * self.l1, 0.0)
