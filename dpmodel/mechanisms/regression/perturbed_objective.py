"""A smooth strongly convex objective with a linear term added: its minimiser, and a proof of how near that was found.

In the unit of a sum of losses: ``sum_i omega_i f(a_i' w + o_i, y_i) + sum_j h_j w_j^2 / 2 + <linear, w> + l1 terms``
over a public set, f with slopes cut to [-reach, reach].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.linalg

from dpmodel.compile.affine_map import Floats
from dpmodel.compile.domain import Domain
from dpmodel.compile.losses import Loss
from dpmodel.compile.penalty import Penalty
from dpmodel.compile.rows import Rows

ULP = 2.0**-53
NEWTON_STEPS = 10
_COARSE = 6  # of them with the Hessian of every k-th row
_SAMPLE = 20_000  # rows, or 20 per column, that suffice for it
_DENSE = 1200  # columns up to which the Hessian is formed
_INNER = 300  # steps of the quadratic subproblem, which touch no rows
_BISECTIONS = 12


@dataclass(frozen=True)
class Facts:
    """Public constants of the objective: ``curvature`` of f, ``reach`` of its slope, largest 2-norm ``row`` of a row,
    sum ``total`` of weights, ``offset`` bound, ``count`` of rows, p ``columns``, least ``strong`` and largest
    ``ridge`` of the h_j, ``size`` : bound on the minimiser's 2-norm, ``exact`` : neither set nor l1 term."""

    curvature: float
    reach: float
    row: float
    total: float
    offset: float
    count: int
    columns: int
    strong: float
    ridge: float
    size: float
    exact: bool

    @property
    def smooth(self) -> float:
        """Lipschitz constant of the gradient."""
        return self.curvature * self.total * self.row**2 + self.ridge

    @property
    def block(self) -> int:
        """Rows per partial sum: rounding errors grow like the square root of n instead of n."""
        return max(256, math.isqrt(self.count))

    def rounding(self, size: float, linear: float) -> float:
        """Error (2-norm) of a certificate's gradients in double precision at ||w|| = size, ||linear|| = linear.

        Predictions: (p + 3) ulp of ``row * size``, times the curvature. Slopes: 8 ulp. Sums in blocks: one
        ulp for each addition on the way of a term (Higham 2002, section 4.2). Two gradients where there is a set.
        """
        prediction = self.curvature * ((self.columns + 3) * self.row * size + 4 * self.offset) * ULP
        sums = (self.block + self.count / self.block + 16) * ULP * self.reach
        one = self.total * self.row * (prediction + sums) + 8 * ULP * (self.ridge * size + linear)
        if self.exact:
            return one
        # The projection is off by ``off``, and enters divided by the step 1/smooth.
        off = 8 * (self.columns + 4) * ULP * (2 * size + linear / self.smooth + self.total * self.reach / self.smooth)
        return 2 * one + (2 * self.smooth + self.strong) * off

    def steps(self, tolerance: float, linear: float) -> int:
        """Accelerated steps after which the certificate holds, whatever the rows (exact arithmetic).

        With q = sqrt(strong / smooth) the error in value falls to (1 - q)^k (gap + strong ||w0 - w*||^2 / 2) (Nesterov
        2004, Theorem 2.2.3; with a set Beck 2017, Theorem 10.42), the gap being at most smooth ||w0 - w*||^2 / 2 for
        a free minimiser and (reach total row + linear + ridge size) ||w0 - w*|| for any. A value within v of
        the least leaves the point within sqrt(2 v / strong), a gradient below smooth times that, and a gradient step
        from there a certificate of at most 4 times smooth times that.
        """
        gap = 2 * self.size * (self.reach * self.total * self.row + linear + self.ridge * self.size)
        gap += self.strong * (2 * self.size) ** 2 / 2
        value = self.strong / 2 * (tolerance / (4 * self.smooth)) ** 2
        return math.ceil(max(math.log(gap / value), 1.0) / -math.log1p(-math.sqrt(self.strong / self.smooth) * 0.999))


@dataclass(frozen=True)
class PerturbedObjective:
    """The objective over the private rows. ``h``, ``linear`` : (p,); the penalty's l1 part counts 1/``scale``."""

    rows: Rows
    loss: Loss
    facts: Facts
    domain: Domain
    penalty: Penalty
    scale: float
    h: Floats
    linear: Floats

    @cached_property
    def _still(self) -> Rows:
        return replace(self.rows, offset=None)

    def slopes(self, z: Floats, rows: Rows) -> Floats:
        return np.clip(self.loss.slope(z, rows.labels), -self.facts.reach, self.facts.reach)

    def gradient(self, w: Floats) -> Floats:
        """(p,) of all but the l1 term. Two passes over the rows."""
        return self.rows.combine(self.slopes(self.rows.predict(w), self.rows)) + self.h * w + self.linear

    def careful_gradient(self, w: Floats) -> Floats:
        """The same, summed in blocks (see ``Facts.rounding``)."""
        sums = []
        for start in range(0, self.rows.count, self.facts.block):
            part = _slice(self.rows, start, start + self.facts.block)
            sums.append(part.combine(self.slopes(part.predict(w), part)))
        total: Floats = np.sum(sums, axis=0)
        return total + self.h * w + self.linear

    def shrink(self, w: Floats, step: float) -> Floats:
        """(p,) the proximal step of the set, or of the l1 term."""
        if self.penalty.l1.any():
            return self.penalty.shrink(w, step / self.scale)
        return self.domain.project(w)

    # ------------------------------------------------------------------ the certificate
    def certify(self, w: Floats) -> tuple[Floats, float]:
        """A point near w and an upper bound on its distance from the minimiser w*.

        Free: by strong convexity ``strong ||w - w*|| <= ||gradient(w)||``. With a set or l1 term I: the step
        ``v = prox(w - t g(w))`` makes ``(w - v)/t - g(w)`` a subgradient of I at v, hence
        ``xi = (w - v)/t - g(w) + g(v)`` one of the whole objective at v, and ``strong ||v - w*|| <= ||xi||``. Rounding
        is added.
        """
        facts = self.facts
        if not np.isfinite(w).all():
            return w, math.inf
        first = self.careful_gradient(w)
        if facts.exact:
            v, xi = w, first
        else:
            step = 1 / facts.smooth
            v = self.shrink(w - step * first, step)
            xi = (w - v) / step - first + self.careful_gradient(v)
        size = max(float(np.linalg.norm(w)), float(np.linalg.norm(v)))
        error = facts.rounding(size, float(np.linalg.norm(self.linear)))
        return v, (float(np.linalg.norm(xi)) * (1 + 1e-12) + error) / facts.strong

    # ------------------------------------------------------------------ the solver
    def minimise(self, start: Floats, radius: float, linear: float) -> tuple[Floats, bool]:
        """(p,) a point within ``radius`` of the minimiser, and whether that was certified.

        Newton's method first, a fixed number of steps whatever the data. If that was not enough, accelerated gradient
        steps until the certificate holds, at most as many as ``Facts.steps`` proves to be enough (half the radius: the
        other half is left to rounding). ``linear`` bounds the 2-norm of the linear and l1 terms.
        """
        w = start
        dense = self.rows.size <= _DENSE
        if dense or self.facts.exact:
            coarse = max(1, self.rows.count // max(_SAMPLE, 20 * self.rows.size))
            for k in range(NEWTON_STEPS):
                w = self._newton_step(w, dense, coarse if k < _COARSE else 1)
        w, found = self.certify(w)
        if found <= radius:
            return w, True
        if not float(np.linalg.norm(w)) <= self.facts.size * (1 + 1e-9):
            w = start
        q = math.sqrt(self.facts.strong / self.facts.smooth)
        momentum, step = (1 - q) / (1 + q), 1 / self.facts.smooth
        limit, ahead = self.facts.steps(radius * self.facts.strong / 2, linear), w
        for k in range(limit):
            after = self.shrink(ahead - step * self.gradient(ahead), step)
            ahead, w = after + momentum * (after - w), after
            if k % 50 == 49:
                point, found = self.certify(w)
                if found <= radius:
                    return point, True
        point, found = self.certify(w)
        return point, found <= radius

    def _newton_step(self, w: Floats, dense: bool, stride: int) -> Floats:
        z = self.rows.predict(w)
        gradient = self.rows.combine(self.slopes(z, self.rows)) + self.h * w + self.linear
        second = curvature(self.loss, z, self.rows.labels, self.facts.reach)
        if dense:
            weights = second if self.rows.weights is None else second * self.rows.weights
            part = _slice(replace(self.rows, weights=weights * stride), 0, self.rows.count, stride)
            hessian = part.gram()
            hessian[np.diag_indices_from(hessian)] += self.h
            if self.facts.exact:
                move = _solve(hessian, -gradient)
            else:
                move = self._quadratic(w, gradient, hessian) - w
        else:
            weighted = self._still

            def product(v: Floats) -> Floats:
                return weighted.combine(second * weighted.predict(v)) + self.h * v

            move = _conjugate_gradients(product, -gradient, 100)
        along = self._still.predict(move)
        return w + self._length(w, z, move, along) * move

    def _length(self, w: Floats, z: Floats, move: Floats, along: Floats) -> float:
        """Where the derivative along the move vanishes in [0, 1], by bisection; 1 where that already halves it."""
        weights = 1.0 if self.rows.weights is None else self.rows.weights

        def derivative(t: float) -> float:
            s = self.slopes(z + t * along, self.rows)
            smooth = float((weights * s) @ along) + float((self.h * (w + t * move) + self.linear) @ move)
            return smooth + float(self.penalty.l1 @ (np.sign(w + t * move) * move)) / self.scale

        low, high, first = 0.0, 1.0, derivative(0.0)
        if derivative(1.0) <= 0.5 * abs(first):
            low = 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if derivative(middle) <= 0 else (low, middle)
        return high if low == 0 else low

    def _quadratic(self, w: Floats, gradient: Floats, hessian: Floats) -> Floats:
        """(p,) near the minimiser of the second-order model over the set: accelerated steps with restarts."""
        smooth = float(np.linalg.eigvalsh(hessian)[-1])
        v, ahead, t = w, w, 1.0
        for _ in range(_INNER):
            after = self.shrink(ahead - (gradient + hessian @ (ahead - w)) / smooth, 1 / smooth)
            if float((ahead - after) @ (after - v)) > 0:
                t = 1.0
            then = (1 + math.sqrt(1 + 4 * t * t)) / 2
            ahead, v, t = after + (t - 1) / then * (after - v), after, then
        return v


def curvature(loss: Loss, z: Floats, y: Floats, reach: float) -> Floats:
    """(n,) second derivatives in z; 0 where the slope is cut (for the solver only: privacy rests on bounds)."""
    match loss.name:
        case "squared":
            out: Floats = np.full(z.size, 2.0)
        case "huber":
            out = np.where(np.abs(z - y) <= loss.parameter, 2.0, 0.0)
        case "squared_hinge":
            out = np.where(y * z < 1, 2.0 * y * y, 0.0)
        case "logistic":
            out = np.square(y) * _bell(y * z)
        case _:
            out = _bell(z)
    return np.where(np.abs(loss.slope(z, y)) >= min(reach, loss.clip) * (1 - 1e-15), 0.0, out)


def _bell(t: Floats) -> Floats:
    """(n,) derivative of the logistic function."""
    return np.asarray(0.25 / np.cosh(np.clip(t, -700, 700) / 2) ** 2, dtype=np.float64)


def _solve(hessian: Floats, right: Floats) -> Floats:
    """(p,) by Cholesky; 0 where rounding leaves no positive definite matrix (then accelerated steps have to do)."""
    try:
        factor = scipy.linalg.cho_factor(hessian, lower=True)
    except np.linalg.LinAlgError:
        return np.zeros_like(right)
    return np.asarray(scipy.linalg.cho_solve(factor, right), dtype=np.float64)


def _conjugate_gradients(product: Callable[[Floats], Floats], right: Floats, steps: int) -> Floats:
    x: Floats = np.zeros_like(right)
    residual = direction = right
    size = float(residual @ residual)
    for _ in range(steps):
        if size == 0:
            break
        image = product(direction)
        length = size / float(direction @ image)
        x = x + length * direction
        residual = residual - length * image
        size, before = float(residual @ residual), size
        direction = residual + size / before * direction
    return x


def _slice(rows: Rows, start: int, end: int, stride: int = 1) -> Rows:
    if stride == 1 and start == 0 and end >= rows.count:
        return rows
    which = slice(start, end, stride)
    return Rows(
        tuple((matrix[which], first) for matrix, first in rows.blocks),
        rows.labels[which],
        rows.size,
        None if rows.offset is None else rows.offset[which],
        None if rows.weights is None else rows.weights[which],
    )
