"""Which sufficient statistics of a least-squares problem to measure, in which units, and how far one record moves them.

Columns ``x`` that vary are written ``x = middle + width * u`` and labels less offsets
``y - o = label_middle + label_width * r`` with public middles and widths, so that ``||u||_2 <= 1`` and ``|r| <= 1`` for
every row allowed. What is measured is

    (G, alpha g, beta t, gamma h, kappa s) with G = sum omega u u', g = sum omega u, t = sum omega r u, h = sum omega r,
    s = sum omega (r^2 - less |u|^2),

s for intervals only: it costs no noise (``square_weight``). G by its upper triangle (off-diagonal entries times sqrt 2
for Gaussian noise, which makes the 2-norm of the triangle the Frobenius norm of G). g and h are only needed where
middles or constant columns exist. Every least-squares objective in the original columns is an affine change of
variables of these numbers, because the number of rows is public.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from dpmodel._types import Floats
from dpmodel.compile.rows import added
from dpmodel.memo import cached
from dpmodel.regressions.features import RowBounds
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.rows import Rows, Table

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
    ``middle``, ``width`` : (k,). ``alpha``, ``beta``, ``gamma``, ``kappa`` : weights; alpha = gamma = 0 without g, h.
    ``less`` : 1 where sum omega |u|^2 is taken off the squares of labels before they are measured, else 0.
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
    kappa: float
    less: float
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
        return k * (k + 1) // 2 + k + (k + 1 if self.shifted else 0) + 1


@dataclass(frozen=True)
class _Option:
    middle: Floats
    width: Floats
    boxed: bool
    absent: bool  # the change is that of one row against the zero row
    acute: bool  # rows have non-negative entries, so <u, v> >= 0


@cached
def layout_of(model: PrivateRegression, pure: bool) -> Layout | None:
    """The layout of least noise, a public fact; None where rows or labels are unbounded."""
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
    kappa = square_weight(k, largest if pure else 0.0, option.boxed, option.absent, pure, (alpha, beta, gamma))
    sizes = np.maximum(np.abs(row.lower), np.abs(row.upper))[moving] + np.abs(option.middle)
    with np.errstate(invalid="ignore"):
        amplification = min(float(np.linalg.norm(sizes / option.width)), math.inf) if k else 1.0
    if not option.boxed:
        amplification = 1.0
    # Two such sums, each off by less than (rows per part + parts + a few) parts in 2^53 of the sum of sizes.
    terms = CHUNK + model.count / CHUNK + 64
    size = math.sqrt(1 + alpha**2 + beta**2 + gamma**2 + 4 * kappa**2) * (math.sqrt(k * k + 3 * k + 2) if pure else 1.0)
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
        kappa=kappa,
        less=float(option.absent),
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


def square_weight(
    k: int, largest: float, boxed: bool, absent: bool, pure: bool, weights: tuple[float, float, float]
) -> float:
    """kappa: the squares of labels can be measured with this weight for nothing: ``sensitivity`` stays what it is.

    Why: a record moves everything else most where labels go from one end to the other, and squares do not see that.
    Proofs, with p = r^2, s = q^2 in [0, 1] and the notation of ``sensitivity_l2`` and ``sensitivity_l1``.

    Gaussian, replaced: kappa (p - s) is measured. At fixed r, q and k everything grows with |u| and |v|, so both are 1.
    What depends on labels is ``B (p + s) + 2 c sqrt(p s) + kappa^2 (p - s)^2``, B = beta^2 + gamma^2, c >= 0 by the
    best signs. It grows when p and s grow in proportion, so p = 1; then s = 1 is best where
    ``B (1 - s) >= kappa^2 (1 - s)^2``: kappa^2 <= B.
    Gaussian, absent: kappa (p - |u|^2), a = |u|^2: ``a^2 + alpha^2 a + beta^2 p a + gamma^2 p + kappa^2 (p - a)^2`` is
    convex in p and in a, so largest at a corner of [0, 1]^2: at (1, 1) where kappa^2 <= beta^2 + gamma^2 and
    kappa^2 <= 1 + alpha^2 + beta^2.
    Laplace, boxed and replaced: with d = |r - q|, ``|p - s| <= d (2 - d)``. In units of U the bound becomes
    ``F(P) + L d + kappa k d (2 - d)``, L = gamma k + beta sqrt(k) (k - P). Where |L| >= 2 kappa k it is largest at
    d = 0 or 2, as without squares. Elsewhere it is largest at ``F(P) + (L + 2 kappa k)^2 / (4 kappa k)``, convex in P
    where ``beta^2 k >= 2 kappa k (1 + 1/k)``, so largest where |L| = 2 kappa k, or at P = 0 or 2k; these ends lie
    outside where ``2 kappa k <= beta k sqrt(k) -+ gamma k``.
    Laplace otherwise: the bound is |u|_1 and |u|_2 at their largest, l and 1, for each row. If |r| = 1 - x, it loses
    (beta l + gamma) x, and |p - s| or |p - |u|^2| gains at most 2 x: kappa <= (beta l + gamma) / 2. Where |u|^2 is
    taken off, a row with |u|^2 < p loses (p - |u|^2) / 2 of the triangle: kappa <= 1/2 too.
    """
    alpha, beta, gamma = weights
    if not pure:
        both = beta**2 + gamma**2
        return math.sqrt(min(both, 1 + alpha**2 + beta**2) if absent else both)
    if absent:
        return min(0.5, (beta * largest + gamma) / 2)
    if not boxed:
        return (beta * largest + gamma) / 2
    k = max(k, 1)
    return max(min(beta**2 * k / (2 * (k + 1)), (beta * math.sqrt(k) - gamma) / 2), 0.0)


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


# -------------------------------------------------------------------------------- sums over the rows


@dataclass(frozen=True)
class Statistics:
    """``gram`` (k, k) sum omega u u', ``first`` (k,) sum omega u, ``cross`` (k,) sum omega r u, ``labels`` sum omega r,
    ``squares`` sum omega r^2, in the units of a ``Layout``; ``total`` : sum omega."""

    gram: Floats
    first: Floats
    cross: Floats
    labels: float
    total: float
    squares: float = 0.0


@dataclass(frozen=True)
class Spread:
    """Deviations of the noise in released statistics: ``pair`` in an off-diagonal entry of gram, and in each entry of
    the rest; ``own`` on the diagonal."""

    pair: float
    own: float
    first: float
    cross: float
    labels: float

    @staticmethod
    def of(layout: Layout, sigma: float) -> Spread:
        """For noise of this standard deviation on each measured number."""
        off = 1.0 if layout.pure else math.sqrt(0.5)
        first, labels = (sigma / layout.alpha, sigma / layout.gamma) if layout.shifted else (0.0, 0.0)
        return Spread(sigma * off, sigma, first, sigma / layout.beta, labels)


def summed(layout: Layout, rows: Table) -> Statistics:
    """Sums over all rows, at most ``CHUNK`` rows at a time. PRIVATE: to be noised."""
    gram, first, cross, labels, total, squares, loose = rows.map_reduce(
        partial(part_summed, layout), _together, step=CHUNK
    )
    if not loose:
        return Statistics(gram, first, cross, labels, total, squares)
    m, width = layout.middle, layout.width
    s, t = first[layout.moving], cross[layout.moving]
    gram = gram[np.ix_(layout.moving, layout.moving)]
    if m.any():
        gram = gram - np.outer(s, m) - np.outer(m, s) + total * np.outer(m, m)
    gram, first, cross = gram / np.outer(width, width), (s - total * m) / width, (t - labels * m) / width
    return Statistics(gram, first, cross, labels, total, squares)


_Sums = tuple[Floats, Floats, Floats, float, float, float, bool]


def part_summed(layout: Layout, part: Rows) -> _Sums:
    """gram, first, cross, labels, total, squares of some rows, and whether columns are raw: a fact of the model."""
    loose = any(sp.issparse(m) for m, _ in part.blocks) and layout.amplification <= MOST_AMPLIFICATION
    shift = part.labels if part.offset is None else part.labels - part.offset
    residual = np.clip((shift - layout.label_middle) / layout.label_width, -1, 1)
    raw = (part.gram(), part.combine(np.ones(part.count)), part.combine(residual)) if loose else None
    gram, first, cross = raw or _centred(layout, part, residual)
    weights = np.ones(part.count) if part.weights is None else part.weights
    return gram, first, cross, float(residual @ weights), float(weights.sum()), float(residual**2 @ weights), loose


def _together(a: _Sums, b: _Sums) -> _Sums:
    return (*added(a[:-1], b[:-1]), a[-1])


def _centred(layout: Layout, rows: Rows, residual: Floats) -> tuple[Floats, Floats, Floats]:
    first: Any = rows.blocks[0][0]
    if rows.own and not sp.issparse(first) and first.shape[1] == layout.size:
        x = first  # memory asked for anew, part by part, may cost as much as the sums
    else:
        x = np.empty((rows.count, layout.size), order="F")
        for matrix, start in rows.blocks:
            x[:, start : start + matrix.shape[1]] = matrix.toarray() if sp.issparse(matrix) else matrix
    u = x if layout.count == layout.size else x[:, layout.moving]
    u -= layout.middle
    u /= layout.width
    # Readers clip rows to their bounds; a second time here, because sensitivity rests on it.
    if layout.boxed:
        limit = 1 / math.sqrt(max(layout.count, 1))
        np.clip(u, -limit, limit, out=u)
    else:
        u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1.0)
    weighted = u if rows.weights is None else u * rows.weights[:, None]
    return weighted.T @ u, weighted.sum(axis=0), weighted.T @ residual


def to_vector(layout: Layout, s: Statistics) -> Floats:
    """(entries,) the numbers that are measured."""
    upper = np.triu_indices(layout.count)
    triangle = s.gram[upper]
    if not layout.pure:
        triangle = np.where(upper[0] == upper[1], triangle, math.sqrt(2) * triangle)
    parts = [triangle, layout.beta * s.cross]
    if layout.shifted:
        parts += [layout.alpha * s.first, np.array([layout.gamma * s.labels])]
    return np.concatenate([*parts, [layout.kappa * (s.squares - layout.less * float(np.trace(s.gram)))]])


def from_vector(layout: Layout, vector: Floats, total: float) -> Statistics:
    """The statistics that these released numbers stand for. g and h are moved to the nearest values that rows allow,
    ``|g|, |h| <= total``, which brings them no further from the truth."""
    k = layout.count
    upper = np.triu_indices(k)
    triangle, rest = vector[: upper[0].size], vector[upper[0].size :]
    if not layout.pure:
        triangle = np.where(upper[0] == upper[1], triangle, triangle / math.sqrt(2))
    gram = np.zeros((k, k))
    gram[upper] = triangle
    gram = gram + np.triu(gram, 1).T
    first, labels = np.zeros(k), 0.0
    if layout.shifted:
        first, labels = rest[k : 2 * k] / layout.alpha, float(rest[2 * k]) / layout.gamma
        first = first * min(1.0, total / max(float(np.linalg.norm(first)), 1e-300))
        labels = min(max(labels, -total), total)
    squares = float(rest[-1]) / layout.kappa + layout.less * float(np.trace(gram)) if layout.kappa else math.inf
    return Statistics(gram, first, rest[:k] / layout.beta, labels, total, squares)


# -------------------------------------------------------------------------------- how much to shrink each direction
# The noise distribution is public, so no budget is spent on the least eigenvalue. In the eigenbasis of the released
# matrix S~ (eigenvalues L_i) and with the released right-hand side z, ``z = S~ v + noise``: the noise of z itself and
# that of S~ at v, of variance ``v(T)`` per direction if the coefficients v have variance T each. Under a normal prior
# N(0, T) the mean of v_i given z_i is ``L_i T z_i / (L_i^2 T + v(T))``, a Wiener filter. T is not known: it is averaged
# over a log-normal prior (one e-fold wide, centred where predictions deviate by a third of the label's bound) times the
# likelihood of z. What comes out is ``v_i = z_i / (L_i + B_i)`` with B_i >= 0: a ridge of its own for every direction,
# which keeps the program a convex quadratic that any public constraint or penalty can be added to.


_SHARE = 1 / 3  # expected standard deviation of predictions, as a share of the label's width
_LADDER = np.exp(np.linspace(-6.0, 6.0, 61))


def shrunk(layout: Layout, s: Statistics, spread: Spread, ridge: Floats, cap: float = math.inf) -> Floats:
    """(k, k) the matrix B to add to the released gram.

    ``ridge`` : (k,) a public ridge that the program has anyway, in the same units. ``cap`` : no eigenvalue of B
    exceeds this, besides what lifts those of S~ to the lower bound.
    """
    k = layout.count
    if k == 0:
        return np.zeros((0, 0))
    S, z, shift, middle = normal_equations(layout, s)
    values, V = np.linalg.eigh(S)
    known = (V**2).T @ ridge  # of the ridge along each eigenvector
    smallest = max(math.sqrt(2) * spread.pair, 1e-12 * s.total)
    L = np.maximum(values, smallest) + known
    T = _SHARE**2 * s.total / max(float(values.sum()), 0.05 * s.total) * _LADDER
    size = float(shift @ shift)
    noise = (
        spread.cross**2
        + spread.pair**2 * k * T
        + spread.first**2 * (middle**2 + size * T)
        + size * (spread.labels**2 / k + spread.first**2 * T)
    )
    variance = (L**2)[:, None] * T + noise + 1e-300
    log = -0.5 * (np.log(variance) + ((V.T @ z) ** 2)[:, None] / variance).sum(axis=0) - np.log(_LADDER) ** 2 / 2
    share = np.exp(log - log.max())
    gain = (T / variance) @ (share / share.sum())
    lifted = np.clip(1 / (L * np.maximum(gain, 1e-300)), L, L + min(cap, 1e6 * (s.total + L.max())))
    added: Floats = (V * (lifted - known - values)) @ V.T
    return added


def normal_equations(layout: Layout, s: Statistics) -> tuple[Floats, Floats, Floats, float]:
    """(k, k) S and (k,) z with ``S v = z`` at the least squares, v0 being ``shift'v + middle`` (the last two results).

    An intercept is profiled out: v0 = (h - g'v) / total. Without one v0 is a public function, by the columns' middles.
    """
    if layout.constant.any():
        shift, middle = -s.first / s.total, s.labels / s.total
    else:
        shift, middle = layout.middle / layout.width, -layout.label_middle / layout.label_width
    cross = np.outer(shift, s.first)
    S = s.gram + cross + cross.T + s.total * np.outer(shift, shift)
    z = s.cross + shift * s.labels
    if not layout.constant.any():
        z = z - middle * (s.first + s.total * shift)
    return S, z, shift, middle


def quadratic(layout: Layout, s: Statistics, added: Floats) -> tuple[Floats, Floats]:
    """(p, p) P and (p,) q: the sum of squares is ``w' P w - 2 q'w`` in the original coefficients, but for a constant.
    ``added`` : (k, k) on the gram.

    A prediction minus offset and label middle is ``label_width (v0 + v'u)`` with ``v = width w / label_width`` on
    columns that vary and ``v0 = (middle'w + constant'w - label_middle) / label_width``.
    """
    p, unit = layout.size, layout.label_width
    base, derivative = np.zeros(p), np.zeros(p)
    base[layout.moving], base[layout.fixed] = layout.middle, layout.constant
    derivative[layout.moving] = layout.width
    first, cross = np.zeros(p), np.zeros(p)
    first[layout.moving], cross[layout.moving] = layout.width * s.first, layout.width * s.cross
    P = s.total * np.outer(base, base) + np.outer(base, first) + np.outer(first, base)
    P[np.ix_(layout.moving, layout.moving)] += np.outer(layout.width, layout.width) * (s.gram + added)
    q = unit * (base * s.labels + cross) + layout.label_middle * (s.total * base + first)
    return P, q
