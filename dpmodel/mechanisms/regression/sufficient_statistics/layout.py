"""Which sufficient statistics of a least-squares problem to measure, in which units, and how far one record moves them.

Columns ``x`` that vary are written ``x = middle + width * u`` and labels less offsets
``y - o = label_middle + label_width * r`` with public middles and widths, so that ``||u||_2 <= 1`` and ``|r| <= 1`` for
every row allowed. What is measured is

    (G, alpha g, beta t, gamma h) with G = sum omega u u', g = sum omega u, t = sum omega r u, h = sum omega r,

G by its upper triangle (off-diagonal entries times sqrt 2 for Gaussian noise, which makes the 2-norm of the triangle
the Frobenius norm of G). g and h are only needed where middles or constant columns exist. Every least-squares objective
in the original columns is an affine change of variables of these numbers, because the number of rows is public.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from dpmodel._types import Floats
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.regression.row_bounds import RowBounds

# Rows per partial sum: rounding grows like the rows of one plus the number of them.
CHUNK = 4096
# Sparse columns are centred after summing (which keeps them sparse) where that costs at most so much accuracy.
MOST_AMPLIFICATION = 16.0
# What the weights are tuned for: ||v||^2 of the coefficients in these units, and the squared mean residual.
_COEFFICIENTS, _MEAN_RESIDUAL = 0.5, 0.1

Sensitivity = Callable[[float, float, float], float]


@dataclass(frozen=True)
class Layout:
    """Units of the measured numbers and how far one record moves them.

    ``moving``, ``fixed`` : column numbers (k,), (f,) of those that vary and of public constants ``constant`` (f,).
    ``middle``, ``width`` : (k,). ``alpha``, ``beta``, ``gamma`` : weights; alpha = gamma = 0 without g and h.
    ``pure`` : for Laplace noise: 1-norm, and plain off-diagonal entries. ``sensitivity`` : largest move of the measured
    vector by one record, weights of rows and rounding included. ``boxed`` : |u_j| <= k^-1/2 for each column.
    ``amplification`` : largest 2-norm of |x / width| + |middle / width|, by which late centring loses accuracy.
    """

    size: int
    moving: np.ndarray
    fixed: np.ndarray
    middle: Floats
    width: Floats
    constant: Floats
    label_middle: float
    label_width: float
    alpha: float
    beta: float
    gamma: float
    pure: bool
    boxed: bool
    amplification: float
    sensitivity: float

    @property
    def count(self) -> int:
        """k, the columns that vary."""
        return int(self.moving.size)

    @property
    def shifted(self) -> bool:
        """Whether g and h are measured."""
        return self.alpha > 0

    @property
    def entries(self) -> int:
        """How many numbers are measured."""
        k = self.count
        return k * (k + 1) // 2 + k + (k + 1 if self.shifted else 0)


def layout_of(model: PrivateRegression, pure: bool) -> Layout | None:
    """The layout of least noise, a public fact; None where rows or labels are unbounded."""
    return model.cached(("statistics layout", pure), lambda: _build(model, pure))


@dataclass(frozen=True)
class _Option:
    middle: Floats
    width: Floats
    boxed: bool
    absent: bool  # the change is that of one row against the zero row
    acute: bool  # rows have non-negative entries, so <u, v> >= 0


def _build(model: PrivateRegression, pure: bool) -> Layout | None:
    row = model.row
    lower, upper = row.lower.copy(), row.upper.copy()
    if row.absent:  # the row of an absent record is allowed too
        lower, upper = (
            np.where(row.constant, lower, np.minimum(lower, 0)),
            np.where(row.constant, upper, np.maximum(upper, 0)),
        )
    fixed = row.constant | (lower == upper)
    moving = ~fixed
    if not (math.isfinite(row.label_bound) and math.isfinite(model.offset_bound)):
        return None
    best: Layout | None = None
    least = math.inf
    for option in _options(row, lower[moving], upper[moving]):
        made = _layout(model, option, moving, fixed, lower[fixed], pure)
        score = made.sensitivity * float(np.mean(option.width**2)) if option.width.size else made.sensitivity
        if score < least * (1 - 1e-3):
            best, least = made, score
    return best


def _options(row: RowBounds, lower: Floats, upper: Floats) -> list[_Option]:
    k = max(lower.size, 1)
    acute = bool((lower >= 0).all())
    options = []
    if np.isfinite(upper - lower).all():
        options.append(_Option((lower + upper) / 2, (upper - lower) / 2 * math.sqrt(k), True, False, False))
        if row.absent:
            size = np.maximum(np.abs(lower), np.abs(upper)) * math.sqrt(k)
            options.append(_Option(np.zeros(lower.size), size, True, True, acute))
    if math.isfinite(row.l2) and row.l2 > 0:
        flat = np.zeros(lower.size), np.full(lower.size, row.l2), False
        options.extend(_Option(*flat, absent, acute) for absent in ([True] if row.absent else [False]))
    return options


def _layout(
    model: PrivateRegression, option: _Option, moving: np.ndarray, fixed: np.ndarray, constant: Floats, pure: bool
) -> Layout:
    row = model.row
    k = int(moving.sum())
    shifted = bool(option.middle.any() or constant.any())
    low, high = row.label
    if row.absent:
        low, high = min(low, 0.0), max(high, 0.0)
    label_middle = (low + high) / 2 if shifted and not option.absent else 0.0
    label_width = max(high - label_middle, label_middle - low) + model.offset_bound
    label_width = label_width if label_width > 0 else 1.0
    if pure:
        largest = min(math.sqrt(max(k, 1)), row.l1 / row.l2) if not option.boxed else math.sqrt(max(k, 1))
        sensitivity = sensitivity_l1(k, largest, option.boxed, option.absent)
    else:
        sensitivity = sensitivity_l2(option.absent, option.acute)
    alpha, beta, gamma = _weights(sensitivity, k, shifted, pure)
    sizes = np.maximum(np.abs(row.lower), np.abs(row.upper))[moving] + np.abs(option.middle)
    with np.errstate(invalid="ignore"):
        amplification = min(float(np.linalg.norm(sizes / option.width)), math.inf) if k else 1.0
    if not option.boxed:
        amplification = 1.0
    # Two such sums, each off by less than (rows per part + parts + a few) parts in 2^53 of the sum of sizes.
    terms = CHUNK + model.count / CHUNK + 64
    size = math.sqrt(1 + alpha**2 + beta**2 + gamma**2) * (math.sqrt(k * k + 3 * k + 1) if pure else 1.0)
    rounding = 4 * terms * 2.0**-53 * model.total * size * min(max(amplification, 1.0), MOST_AMPLIFICATION) ** 2
    return Layout(
        size=row.size,
        moving=np.flatnonzero(moving),
        fixed=np.flatnonzero(fixed),
        middle=option.middle,
        width=option.width,
        constant=constant,
        label_middle=label_middle,
        label_width=label_width,
        alpha=alpha,
        beta=beta,
        gamma=gamma,
        pure=pure,
        boxed=option.boxed,
        amplification=amplification,
        sensitivity=model.largest_weight * sensitivity(alpha, beta, gamma) * (1 + 1e-9) + rounding,
    )


def sensitivity_l2(absent: bool = False, acute: bool = False) -> Sensitivity:
    """Largest 2-norm move of ``(u u', alpha u, beta r u, gamma r)``, Frobenius norm for the first part.

    Proof. For (u, r) against (v, q), convex in r and in q, so r, q = +-1 with s = r q. With k = <u, v> the square is
    ``|u|^4 + |v|^4 - 2 k^2 - 2 (alpha^2 + s beta^2) k + (alpha^2 + beta^2)(|u|^2 + |v|^2) + 2 gamma^2 (1 - s)``. It
    grows with |u| and |v| at fixed k, and longer vectors allow more k: so |u| = |v| = 1 and -1 <= k <= 1 (0 <= k for
    ``acute``: all entries of u and v non-negative). What is left is a concave parabola in k, greatest at
    ``k = -(alpha^2 + s beta^2) / 2`` or at the nearer end. Attained in two dimensions or more.
    ``absent`` : against the zero row, without middles: all parts are at their largest, 1, alpha, beta and gamma
    (the label of an absent record is zero: beta r u is lost whole, and r moves by |y| / label_width <= 1).
    """

    def sensitivity(alpha: float, beta: float, gamma: float) -> float:
        if absent:
            return math.sqrt(1 + alpha**2 + beta**2 + gamma**2)
        worst = 0.0
        for s in (1.0, -1.0):
            a = alpha**2 + s * beta**2
            k = min(max(-a / 2, 0.0 if acute else -1.0), 1.0)
            worst = max(worst, 2 - 2 * k * k - 2 * a * k + 2 * (alpha**2 + beta**2) + 2 * gamma**2 * (1 - s))
        return math.sqrt(worst)

    return sensitivity


def sensitivity_l1(k: int, largest: float, boxed: bool, absent: bool = False) -> Sensitivity:
    """Largest 1-norm move of the upper triangle of u u' and of alpha u, beta r u, gamma r; ``largest`` >= ||u||_1.

    Boxed, with U = sqrt(k) u in [-1, 1]^k, p = |U - V| and q = |U + V| entrywise, so p_j + q_j <= 2:
    ``|U_i U_j - V_i V_j| <= (p_i q_j + q_i p_j) / 2``, and the triangle with its diagonal moves by at most
    ``(P Q + sum p_j q_j) / 2 <= P (2k - P) (1 + 1/k) / 2`` with P = sum p, Q = sum q <= 2k - P. Likewise r U moves
    by ``(P (2 - d) + (2k - P) d) / 2`` with d = |r - q|. Linear in d: so d = 0 or 2; then a parabola in P.
    Otherwise twice the largest 1-norm: the triangle's is (||u||_1^2 + ||u||_2^2) / 2.
    """

    def boxed_sensitivity(alpha: float, beta: float, gamma: float) -> float:
        root = math.sqrt(max(k, 1))
        a, b, c = alpha * root, beta * root, gamma * root * root  # in units of U, times k
        worst = 0.0
        for d in (0.0, 2.0):
            curve, derivative = (1 + 1 / max(k, 1)) / 2, a + b * (1 - d)
            P = min(max(k + derivative / (2 * curve), 0.0), 2.0 * k)
            worst = max(worst, curve * P * (2 * k - P) + derivative * P + b * k * d + c * d)
        return worst / max(k, 1)

    def plain(alpha: float, beta: float, gamma: float) -> float:
        return (largest**2 + 1) / 2 + (alpha + beta) * largest + gamma

    if absent:
        return plain
    return boxed_sensitivity if boxed else lambda *weights: 2 * plain(*weights)


def _weights(sensitivity: Sensitivity, k: int, shifted: bool, pure: bool) -> tuple[float, float, float]:
    """The weights of least mean squared noise in a gradient at coefficients of ordinary size."""
    k = max(k, 1)
    pair = 1.0 if pure else 0.5

    def cost(logs: Floats) -> float:
        alpha, beta, gamma = (
            (math.exp(logs[0]), math.exp(logs[1]), math.exp(logs[2])) if shifted else (0.0, math.exp(logs[0]), 0.0)
        )
        noise = pair * _COEFFICIENTS + 1 / beta**2
        if shifted:
            noise += (_MEAN_RESIDUAL + _COEFFICIENTS / k) / alpha**2 + 1 / (k * gamma**2)
        return math.log(noise) + 2 * math.log(sensitivity(alpha, beta, gamma))

    start = np.zeros(3 if shifted else 1)
    best = np.exp(minimize(cost, start, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-8}).x)
    if not shifted:
        return 0.0, float(best[0]), 0.0
    return float(best[0]), float(best[1]), float(best[2])
