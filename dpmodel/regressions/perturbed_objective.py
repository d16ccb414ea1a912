"""The perturbed objective, its minimiser, and the certificate that a point is near it.

In the unit of a sum of losses: ``sum_i omega_i f(a_i' w + o_i, y_i) + sum_j h_j w_j^2 / 2 + <linear, w> + l1 terms``
over a public set, f with derivatives cut to [-clip, clip]. Privacy rests on the certificate, on nothing that a solver
does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, islice

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from dpmodel._types import Floats
from dpmodel.numerics.nearest_point import accelerated
from dpmodel.regressions.losses import Loss, softmax
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.rows import Rows, Table
from dpmodel.regressions.sets import Domain

ULP = 2.0**-53
NEWTON_STEPS = 10  # on all rows, where there are few
_SAMPLE = 5000  # rows, or 10 per column, on which the first steps are made where there are more than twice as many
# Steps on all rows after those on a sample, at most: whether each makes a Hessian or has the one before.
_STEPS = (False, False, True, False, False, False, False)
# Losses made smooth: begins with less sharp ones, by these factors, as Newton's method goes astray between near kinks.
SOFTER = (256, 64, 16, 4, 1)
_MORE = 15  # pairs of further steps where these did not suffice
DENSE = 1200  # columns up to which the Hessian is formed
CONJUGATE = 100  # steps of conjugate gradients in its place
_CHECK = 50  # accelerated steps between certificates
_ROUGH, _FINE = 1e-3, 1e-10  # accuracy of the step for a given Hessian
_NEAR = 1e-6  # share of the point that a step moves it, after which another would be lost in rounding
_HALVINGS = 10  # of a step's length

# (p,) the Newton step at w with this gradient, to this accuracy.
Curve = Callable[[Floats, Floats, float], Floats]


@dataclass(frozen=True)
class Facts:
    """Public constants of the objective: ``curvature`` of f, ``clip`` of its derivative, largest 2-norm ``row`` of a
    row, sum ``total`` of weights, ``offset`` bound, ``count`` of rows, p ``columns`` (K p of K ``scores``), least
    ``strong`` and largest ``ridge`` of the h_j, ``size`` : bound on the minimiser's 2-norm, ``exact`` : neither set nor
    l1 term. ``drawn`` : by what share of its 2-norm the random term may be off, whose linear term has ``public`` more;
    ``starts`` : with so many losses, each sharper than the one before, Newton's method runs.
    """

    curvature: float
    clip: float
    row: float
    total: float
    offset: float
    count: int
    columns: int
    strong: float
    ridge: float
    size: float
    exact: bool
    scores: int = 1
    drawn: float = 0.0
    public: float = 0.0
    starts: int = 1

    @property
    def smooth(self) -> float:
        """Lipschitz constant of the gradient."""
        return self.curvature * self.total * self.row**2 + self.ridge

    @property
    def block(self) -> int:
        """Rows per partial sum: rounding errors grow like the square root of n instead of n."""
        return max(256, math.isqrt(self.count))

    @property
    def stride(self) -> int:
        """Every so many-th row makes the sample for the first steps; 1: no sample."""
        return max(1, self.count // max(_SAMPLE, 10 * self.columns))

    @property
    def dense(self) -> bool:
        """Whether the solver forms Hessians."""
        return self.columns <= DENSE

    @property
    def newton(self) -> bool:
        """Whether the solver has Newton steps."""
        return self.dense or self.exact

    def rounding(self, size: float, linear: float) -> float:
        """Error (2-norm) of a certificate's gradients in double precision at ||w|| = size, ||linear|| = linear.

        Predictions: (p + 3) ulp of ``row * size``, times the curvature. Derivatives: 8 + K ulp. Sums in blocks: one
        ulp for each addition on the way of a term (Higham 2002, section 4.2; between blocks of a source 42 of them,
        ``sources.contract.in_order``). Two gradients where there is a set.
        """
        prediction = self.curvature * ((self.columns + 3) * self.row * size + 4 * self.offset) * ULP
        sums = (self.block + self.count / self.block + 63 + self.scores) * ULP * self.clip
        one = self.total * self.row * (prediction + sums) + 8 * ULP * (self.ridge * size + linear)
        one += self.drawn * (linear + self.public)
        if self.exact:
            return one
        # The projection is off by ``off``, and enters divided by the step 1/smooth.
        off = 8 * (self.columns + 4) * ULP * (2 * size + linear / self.smooth + self.total * self.clip / self.smooth)
        return 2 * one + (2 * self.smooth + self.strong) * off

    def steps(self, tolerance: float, linear: float) -> int:
        """Accelerated steps after which the certificate holds, whatever the rows (exact arithmetic).

        With q = sqrt(strong / smooth) the error in value falls to (1 - q)^k (gap + strong ||w0 - w*||^2 / 2) (Nesterov
        2004, Theorem 2.2.3; with a set Beck 2017, Theorem 10.42), the gap being at most smooth ||w0 - w*||^2 / 2 for
        a free minimiser and (clip total row + linear + ridge size) ||w0 - w*|| for any. A value within v of
        the least leaves the point within sqrt(2 v / strong), a gradient below smooth times that, and a gradient step
        from there a certificate of at most 4 times smooth times that.
        """
        gap = 2 * self.size * (self.clip * self.total * self.row + linear + self.ridge * self.size)
        gap += self.strong * (2 * self.size) ** 2 / 2
        value = self.strong / 2 * (tolerance / (4 * self.smooth)) ** 2
        return math.ceil(max(math.log(gap / value), 1.0) / -math.log1p(-math.sqrt(self.strong / self.smooth) * 0.999))

    def passes(self, tolerance: float, linear: float) -> tuple[int, int]:
        """Products with all rows (two of them read the rows once) that ``minimise`` makes where its first steps suffice
        (with many columns: the fewest, with a tenth of the steps of conjugate gradients), and the largest number it can
        make. Hessians, about p/2 products each, and the sample are not counted."""
        check = 2 if self.exact else 4
        inner = 0 if self.dense else 2 * CONJUGATE + 1
        limit = self.steps(tolerance, linear)
        proved = 2 * limit + check * (limit // _CHECK + 1)
        if not self.newton:
            return min(2 * _CHECK + 2 * check, proved), proved
        steps, most = (NEWTON_STEPS, NEWTON_STEPS) if self.stride == 1 else (4, len(_STEPS))
        longest = 2 + 2 * _HALVINGS + inner
        usual = self.starts * (2 + steps * (2 + inner // 10)) + check
        return usual, self.starts * (2 + most * longest) + check + _MORE * (2 + 2 * longest + check) + proved


@dataclass(frozen=True)
class PerturbedObjective:
    """The objective over the private rows. ``h``, ``linear`` : (p,); the penalty's l1 part counts 1/``scale``.
    ``ball`` : distances are those of the nearest points of the ball of this radius around 0."""

    rows: Table
    loss: Loss
    facts: Facts
    domain: Domain
    penalty: Penalty
    scale: float
    h: Floats
    linear: Floats
    ball: float = math.inf

    def _slopes(self, w: Floats, curved: bool = False, step: int | None = None) -> tuple[Floats, Floats | None]:
        """(p,) gradient of all but the l1 term, and where it is asked for the (p, p) second derivative. One pass."""
        task = partial(part_slopes, loss=self.loss, clip=self.facts.clip, w=w, curved=curved)
        first, *second = self.rows.map_reduce(task, step=1 << 14 if curved else step)
        return first + self.h * w + self.linear, second[0] + np.diag(self.h) if curved else None

    def gradient(self, w: Floats) -> Floats:
        """(p,) of all but the l1 term. One pass over the rows."""
        return self._slopes(w)[0]

    def careful_gradient(self, w: Floats) -> Floats:
        """The same, summed in blocks (see ``Facts.rounding``)."""
        return self._slopes(w, step=self.facts.block)[0]

    def shrink(self, w: Floats, step: float) -> Floats:
        """(p,) the proximal step of the set, or of the l1 term."""
        if self.penalty.l1.any():
            return self.penalty.shrink(w, step / self.scale)
        return self.domain.project(w)

    # ------------------------------------------------------------------ the certificate
    def certify(self, w: Floats) -> tuple[Floats, float]:
        """A point v near w and an upper bound on its distance from the minimiser w*, both projected onto the ball.

        Free: by strong convexity ``strong ||w - w*|| <= ||gradient(w)||``. With a set or l1 term I: the step
        ``v = prox(w - t g(w))`` makes ``(w - v)/t - g(w)`` a subgradient of I at v, hence
        ``xi = (w - v)/t - g(w) + g(v)`` one of the whole objective at v, and ``strong ||v - w*|| <= ||xi||``. Rounding
        is added. Ball: with this distance d, both points are at least ``m = ||v|| - d`` long. For m > ball, projecting
        onto the ball of radius m moves them no further apart, and from its surface to the ball is a scaling by ball /
        m: the distance is at most ``d ball / m``.
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
        found = (float(np.linalg.norm(xi)) * (1 + 1e-12) + error) / facts.strong
        least = float(np.linalg.norm(v)) - found
        return v, found * self.ball / least if least > self.ball else found

    # ------------------------------------------------------------------ the solver
    def minimise(self, start: Floats, radius: float, linear: float) -> tuple[Floats, bool]:
        """(p,) a point within ``radius`` of the minimiser, and whether that was certified.

        Newton's method on a part of the rows, then a fixed number of steps on all of them. If that was not enough, up
        to ``2 _MORE`` steps, then accelerated gradient steps until the certificate holds, at most as many as
        ``Facts.steps`` proves to be enough (half the radius: the other half is left to rounding). ``linear`` bounds
        the 2-norm of the linear and l1 terms. With a set and many columns there is no Newton's method.
        """
        point, found, w, more = start, math.inf, start, 0
        if self.facts.newton and NEWTON_STEPS:
            for softer in SOFTER[-self.facts.starts :]:
                soft = replace(self, loss=replace(self.loss, sharpness=self.loss.sharpness / softer))
                w = soft._approach(w, radius * self.facts.strong / 4)
            more = _MORE
        for k in range(more + 1):
            point, found = self.certify(w)
            if found <= radius:
                return point, True
            if k < more:
                w, _ = self._newton(point if np.isfinite(point).all() else start, (True, False), _FINE)
        w = point
        if not float(np.linalg.norm(w)) <= self.facts.size * (1 + 1e-9):
            w = start
        q = math.sqrt(self.facts.strong / self.facts.smooth)
        momentum, step = (1 - q) / (1 + q), 1 / self.facts.smooth
        limit, ahead = self.facts.steps(radius * self.facts.strong / 2, linear), w
        for k in range(limit):
            after = self.shrink(ahead - step * self.gradient(ahead), step)
            ahead, w = after + momentum * (after - w), after
            if k % _CHECK == _CHECK - 1:
                point, found = self.certify(w)
                if found <= radius:
                    return point, True
        point, found = self.certify(w)
        return point, found <= radius

    def _sample(self, rows: Rows) -> PerturbedObjective:
        """Every k-th row, with k times its weight: near this objective where rows are in no order."""
        stride = self.facts.stride
        part = rows.part(slice(None, None, stride))
        weights = np.full(part.count, 1.0) if part.weights is None else part.weights
        blocks = tuple((np.ascontiguousarray(m) if isinstance(m, np.ndarray) else m, first) for m, first in part.blocks)
        return replace(self, rows=replace(part, blocks=blocks, weights=weights * stride))

    def _approach(self, w: Floats, target: float) -> Floats:
        """Newton's method: on a sample until its minimiser hardly moves; then two steps with its Hessian and the others
        with one of all rows (near the minimiser the Hessian hardly changes: a step costs a pass, a Hessian p/2 more).
        Rows in blocks have no sample, for which rows would have to leave them."""
        rows = self.rows.in_memory
        if rows is None or self.facts.stride == 1:
            return self._newton(w, (True,) * NEWTON_STEPS, _FINE, enough=_NEAR, target=target)[0]
        w, curve = self._sample(rows)._newton(w, (True,) * 15, _ROUGH, enough=_ROUGH)
        return self._newton(w, _STEPS, _FINE, curve, target=target)[0]

    def _newton(
        self,
        w: Floats,
        fresh: Sequence[bool],
        share: float,
        curve: Curve | None = None,
        enough: float = 0.0,
        target: float = 0.0,
    ) -> tuple[Floats, Curve | None]:
        """(p,) after steps with a Hessian of their own, or that of the step before (a pass each, and one), and the last
        Hessian. Ends where a whole step is at most ``enough`` of w; or with a step after which the next one would move
        the gradient by ``target`` at most, without a pass there."""
        forms = self.facts.dense
        gradient, hessian = self._slopes(w, forms and (fresh[0] or curve is None))
        drop = last = math.inf  # how far the step before moved the gradient, and its own size
        for own, later in zip(fresh, (*fresh[1:], False), strict=True):
            if curve is None or own:
                curve = self._curve(w, hessian)
            move = curve(w, gradient, share)
            size = float(np.linalg.norm(move))
            if not math.isfinite(size):
                break
            # Steps shrink by about the same factor each.
            if drop * (size / last) ** 2 <= target:
                return w + move, curve
            near = bool(size < _NEAR * np.linalg.norm(w))  # rounding would decide
            enough_of = 0.5 * abs(self._along(gradient, w, move))
            for k in range(_HALVINGS):
                length = 0.5**k
                ahead = self._slopes(w + length * move, forms and later)
                if near or self._along(ahead[0], w + length * move, move) <= enough_of:
                    break
            drop, last = float(np.linalg.norm(ahead[0] - gradient)), max(length * size, 1e-300)
            w, (gradient, hessian) = w + length * move, ahead
            if length == 1 and size < enough * np.linalg.norm(w):
                break
        return w, curve

    def _along(self, gradient: Floats, w: Floats, move: Floats) -> float:
        """The derivative along the move."""
        return float(gradient @ move) + float(self.penalty.l1 @ (np.sign(w) * move)) / self.scale

    def _curve(self, w: Floats, hessian: Floats | None) -> Curve:
        """Solves for the Newton step from any point and gradient, with the Hessian at w."""
        if hessian is None:
            rows = self.rows.in_memory
            assert rows is not None  # ``eligible`` asks for few columns otherwise
            z, still = rows.predict(w), rows.still
            bent = bending(self.loss, z, rows.labels, self.facts.clip)

            def product(v: Floats) -> Floats:
                return still.combine(bent(still.predict(v))) + self.h * v

            operator = LinearOperator((w.size, w.size), matvec=product)
            return lambda w, gradient, share: _conjugate_gradients(operator, -gradient, share)
        if self.facts.exact:
            return lambda w, gradient, share: solve_positive(hessian, -gradient)
        step = 1 / float(np.linalg.norm(hessian, 2))
        return lambda w, gradient, share: self._over_set(w, gradient, hessian, step, share)

    def _over_set(self, w: Floats, gradient: Floats, hessian: Floats, step: float, share: float) -> Floats:
        """(p,) to where ``<gradient, v - w> + (v - w)' hessian (v - w) / 2`` with the l1 term is least over the set."""
        v = w
        points = accelerated(w, lambda v: self.shrink(v - step * (gradient + hessian @ (v - w)), step))
        for after in islice(points, 5000):
            change, v = float(np.linalg.norm(after - v)), after
            if change <= share * float(np.linalg.norm(v - w)) + 1e-17 * float(np.linalg.norm(v)):
                break
        return v - w


def _conjugate_gradients(operator: LinearOperator, right: Floats, share: float) -> Floats:
    """(p,) until the residual is ``share`` of the right side, at most ``CONJUGATE`` steps. Tiny features underflow: a
    warning would tell of them, and the certificate decides."""
    with np.errstate(all="ignore"):
        return np.asarray(cg(operator, right, rtol=share, maxiter=CONJUGATE)[0])


def solve_positive(matrix: Floats, right: Floats) -> Floats:
    """(p,) by Cholesky; 0 where rounding leaves no positive definite matrix."""
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return np.zeros_like(right)
    return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False), dtype=np.float64)


def part_slopes(part: Rows, loss: Loss, clip: float, w: Floats, curved: bool) -> tuple[Floats, ...]:
    """(p,) sum of the derivatives of some rows at w; ``curved`` : and the (p, p) sum of their second derivatives."""
    z = part.predict(w)
    first = part.combine(np.clip(loss.derivative(z, part.labels), -clip, clip))
    if not curved:
        return (first,)
    if loss.scores > 1:
        return first, classes_gram(part, softmax(z))
    return first, _weighed(part, curvature(loss, z, part.labels, clip)).gram()


def classes_gram(part: Rows, p: Floats) -> Floats:
    """(K p, K p) ``sum_i omega_i (diag(p_i) - p_i p_i') x a_i a_i'`` for chances p (n, K): of the pairs of classes
    ``sum_i omega_i p_ij p_ik a_i a_i'``, as the sums over a class vanish."""
    classes, size = p.shape[1], part.size
    out = np.zeros((classes, size, classes, size))
    for j, k in combinations(range(classes), 2):
        block = _weighed(part, p[:, j] * p[:, k]).gram()
        out[j, :, k] = out[k, :, j] = -block
        out[j, :, j] += block
        out[k, :, k] += block
    return out.reshape(classes * size, -1)


def bending(loss: Loss, z: Floats, y: Floats, clip: float) -> Callable[[Floats], Floats]:
    """How derivatives at predictions z (n,) or (n, K) move when these move a little (the same shape)."""
    if loss.scores > 1:
        p = softmax(z)
        return lambda u: p * (u - (p * u).sum(axis=1, keepdims=True))
    second = curvature(loss, z, y, clip)
    return lambda u: second * u


def curvature(loss: Loss, z: Floats, y: Floats, clip: float) -> Floats:
    """(n,) second derivatives in z; 0 where the derivative is cut (for the solver only: privacy rests on bounds)."""
    first = loss.derivative(z, y)
    size = np.abs(first)
    match loss.name:
        case "squared":
            out: Floats = np.full(z.size, 2.0)
        case "huber":
            out = np.where(np.abs(z - y) <= loss.parameter, 2.0, 0.0)
        case "squared_hinge":
            out = np.where(y * z < 1, 2.0 * y * y, 0.0)
        case "absolute":
            out = loss.sharpness * (1 - size)
        case "quantile":
            out = loss.sharpness * (np.where(z > y, 1 - loss.parameter, loss.parameter) - size)
        case "hinge":
            out = np.where(y * z < 1, loss.sharpness * np.abs(y) * (np.abs(y) - size), 0.0)
        case "logistic":
            out = size * (np.abs(y) - size)  # y^2 s (1 - s), and the derivative is -y s
        case _:
            out = (first + y) * (1 - first - y)  # s (1 - s), and the derivative is s - y
    return np.where(size >= min(clip, loss.clip) * (1 - 1e-15), 0.0, out)


def _weighed(rows: Rows, weights: Floats) -> Rows:
    """Each row times the root of its weights: the product of a dense block with itself is then one symmetric update in
    BLAS."""
    root = np.sqrt(weights if rows.weights is None else weights * rows.weights)
    scale = sp.diags_array(root)
    blocks = ((scale @ m if sp.issparse(m) else m * root[:, None], first) for m, first in rows.blocks)
    return replace(rows, blocks=tuple(blocks), weights=None)
