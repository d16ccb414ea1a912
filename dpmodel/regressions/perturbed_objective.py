"""A convex quadratic over a simple set or with an l1 term: its minimiser, to nearly the last digit.

For solvers that already hold the (p, p) Hessian: nothing here touches a record, and nothing here is relied upon for
privacy (what is found is certified elsewhere).
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

from dpmodel._types import Floats
from dpmodel.numerics.nearest_point import accelerated
from dpmodel.regressions.losses import Loss, softmax
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.rows import Rows, Table
from dpmodel.regressions.sets import Box, Domain, L1Ball, L2Ball, Product, Simplex

_STIFF = 10.0  # the multiplier method's penalty over a bound on the Hessian, in the end
_GROWTH = 10.0  # of that penalty in a round; soft at first, so that few kinks lie on the way of a step
_SOFT = 6  # rounds of growth
_ROUNDS = 30
_NEWTON = 30
_HALVINGS = 20


@dataclass(frozen=True)
class SimplePart:
    """``I(w)``: the indicator of a set whose projection is in closed form, or ``sum_j l1_j |w_j|``; never both."""

    domain: Domain
    l1: Floats  # (p,)

    def prox(self, x: Floats, step: float) -> Floats:
        """(p,) argmin over v of ``step I(v) + ||v - x||^2 / 2``."""
        if self.l1.any():
            return np.sign(x) * np.maximum(np.abs(x) - step * self.l1, 0.0)
        return self.domain.project(x)

    def value(self, w: Floats) -> float:
        """``I(w)`` for a point of the set."""
        return float(self.l1 @ np.abs(w))

    def bend(self, x: Floats, step: float) -> tuple[Floats, Floats]:
        """(p,) d and (p, k) U: ``diag(d) - U U'`` is a generalised derivative of ``prox(., step)`` at x."""
        if self.l1.any():
            return (np.abs(x) > step * self.l1).astype(np.float64), np.zeros((x.size, 0))
        return _bend(self.domain, x)


def _bend(domain: Domain, x: Floats) -> tuple[Floats, Floats]:
    none = np.zeros((x.size, 0))
    match domain:
        case Box():
            return ((x > domain.lower) & (x < domain.upper)).astype(np.float64), none
        case L2Ball():
            size = float(np.linalg.norm(x))
            if size <= domain.radius:
                return np.ones(x.size), none
            share = domain.radius / size
            return np.full(x.size, share), (np.sqrt(share) * x / size)[:, None]
        case L1Ball() | Simplex():
            v = domain.project(x)
            active = (v != 0).astype(np.float64)
            if isinstance(domain, L1Ball):
                inside = float(np.abs(x).sum()) <= domain.radius
            else:
                inside = domain.solid and float(np.maximum(x, 0.0).sum()) <= domain.total
            if inside or not active.any():
                return active if isinstance(domain, Simplex) else np.ones(x.size), none
            return active, (np.sign(v) / np.sqrt(active.sum()))[:, None]
        case Product():
            parts = [(start, *_bend(part, x[start : start + part.size])) for part, start in domain.parts]
            columns = np.zeros((x.size, sum(each.shape[1] for _, _, each in parts)))
            k = 0
            for start, d, each in parts:
                columns[start : start + d.size, k : k + each.shape[1]] = each
                k += each.shape[1]
            return np.concatenate([d for _, d, _ in parts]), columns
        case _:  # no set
            return np.ones(x.size), none


def minimise_quadratic(hessian: Floats, gradient: Floats, start: Floats, part: SimplePart, share: float) -> Floats:
    """(p,) near the minimiser v of ``<gradient, v - start> + (v - start)' hessian (v - start) / 2 + I(v)``.

    The method of multipliers with semismooth Newton steps (Li, Sun and Toh 2018, for the lasso): with ``x = v + u``,
    ``u = multiplier / rho``, every round minimises over v the smooth convex ``quadratic(v) + min_z (I(z) + rho
    ||x - z||^2 / 2)``, whose gradient is ``quadratic' + rho (x - prox(x))`` and whose Hessian ``hessian + rho (1 -
    prox')``, and puts ``u = x - prox(x)``. A round shrinks the multiplier's error by ``1 + rho / |hessian|`` at least
    where the prox is piecewise linear. Ends where what is left is below ``share`` of the way from ``start``, or
    ``share^2`` of v.

    Errors
        The last iterate where steps run out or rounding leaves no positive definite matrix.
    """
    most = _STIFF * float(np.abs(hessian).sum(axis=1).max())
    rho = most / _GROWTH**_SOFT
    v, u = start, -gradient / rho

    def value(v: Floats) -> float:
        move, x = v - start, v + u
        z = part.prox(x, 1 / rho)
        return float(gradient @ move + move @ (hessian @ move) / 2 + rho * (x - z) @ (x - z) / 2) + part.value(z)

    least, gap = max(share**2, 1e-17), math.inf
    z, scale = start, float(np.linalg.norm(gradient)) + 1e-300
    for k in range(_ROUNDS):
        best = value(v)
        for _ in range(_NEWTON):
            x = v + u
            derivative = gradient + hessian @ (v - start) + rho * (x - part.prox(x, 1 / rho))
            d, columns = part.bend(x, 1 / rho)
            matrix = hessian + rho * (columns @ columns.T)
            matrix[np.diag_indices_from(matrix)] += rho * (1 - d)
            move = solve_positive(matrix, -derivative)
            fall, length = float(derivative @ move), 1.0
            if not fall < 0:
                break
            for _ in range(_HALVINGS):
                now = value(v + length * move)
                if now <= best + 1e-4 * length * fall + 1e-15 * abs(best):
                    break
                length /= 2
            v, best = v + length * move, now
            # Quadratic convergence: after so short a step what is left is rounding.
            if np.abs(move).max() <= 1e-2 * share * np.abs(v - start).max() + max(1e-11, least) * np.abs(v).max():
                break
        x = v + u
        z = part.prox(x, 1 / rho)
        u, gap, before = x - z, float(np.abs(v - z).max()), gap
        if gap <= share * float(np.abs(z - start).max()) + least * float(np.abs(z).max()) or rho * gap <= 1e-17 * scale:
            break
        if before / 2 < gap <= 1e-12 * float(np.abs(z).max()):  # rounding
            break
        if k < _SOFT:
            rho, u = rho * _GROWTH, u / _GROWTH
    return z


def solve_positive(matrix: Floats, right: Floats) -> Floats:
    """(p,) by Cholesky; 0 where rounding leaves no positive definite matrix."""
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return np.zeros_like(right)
    return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False), dtype=np.float64)


# -------------------- the objective, its minimiser, and the certificate
# In the unit of a sum of losses: ``sum_i omega_i f(a_i' w + o_i, y_i) + sum_j h_j w_j^2 / 2 + <linear, w> + l1 terms``
# over a public set, f with derivatives cut to [-reach, reach].


ULP = 2.0**-53
NEWTON_STEPS = 10  # on all rows, where there are few
_SAMPLE = 5000  # rows, or 10 per column, on which the first steps are made where there are more than twice as many
_SAMPLE_STEPS = 15
# Steps on all rows after those on a sample, at most: whether each makes a Hessian or has the one before.
_STEPS = (False, False, True, False, False, False, False)
_MORE = 15  # pairs of further steps where these did not suffice
DENSE = 1200  # columns up to which the Hessian is formed
CONJUGATE = 100  # steps of conjugate gradients in its place
_GUESSED = 1000  # accelerated steps with a guessed length
_POWERS = 20
_CHECK = 50  # accelerated steps between certificates
_CHUNK = 1 << 14  # rows of a Hessian at a time
_ROUGH, _FINE = 1e-3, 1e-10  # accuracy of the step for a given Hessian
_NEAR = 1e-6  # share of the point that a step moves it, after which another would be lost in rounding
_POINTS = 16
_SEARCH = 6  # products of a search for the length of a step

# (p,) the Newton step at w with this gradient, to this accuracy.
Curve = Callable[[Floats, Floats, float], Floats]


@dataclass(frozen=True)
class Facts:
    """Public constants of the objective: ``curvature`` of f, ``reach`` of its derivative, largest 2-norm ``row`` of a
    row, sum ``total`` of weights, ``offset`` bound, ``count`` of rows, p ``columns`` (K p of K ``scores``), least
    ``strong`` and largest ``ridge`` of the h_j, ``size`` : bound on the minimiser's 2-norm, ``exact`` : neither set nor
    l1 term."""

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
    scores: int = 1

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
        sums = (self.block + self.count / self.block + 63 + self.scores) * ULP * self.reach
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

    def passes(self, tolerance: float, linear: float) -> tuple[int, int]:
        """Products with all rows (two of them read the rows once) that ``minimise`` makes where its first steps suffice
        (with many columns: the fewest, with a tenth of the steps of conjugate gradients), and the largest number it can
        make. Hessians, about p/2 products each, and the sample are not counted."""
        check = 2 if self.exact else 4
        inner = 0 if self.dense else 2 * CONJUGATE + 1
        limit = self.steps(tolerance, linear)
        proved = 2 * limit + check * (limit // _CHECK + 1)
        if not self.newton:
            first = 2 * _CHECK + 2 * check
            return first, (2 * _GUESSED + check * (_GUESSED // _CHECK + 1) + 2 * _POWERS) + proved
        steps, most = (NEWTON_STEPS, NEWTON_STEPS) if self.stride == 1 else (4, len(_STEPS))
        longest = 2 + _SEARCH + inner
        usual = 2 + steps * (2 + inner // 10) + check
        return usual, 2 + most * longest + check + _MORE * (2 + 2 * longest + check) + proved


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
        task = partial(part_slopes, loss=self.loss, reach=self.facts.reach, w=w, curved=curved)
        first, *second = self.rows.map_reduce(task, step=_CHUNK if curved else step)
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
        the 2-norm of the linear and l1 terms. With a set and many columns accelerated steps with a step length guessed
        from the rows take the place of Newton's method.
        """
        point, found, more = start, math.inf, 0
        target = radius * self.facts.strong / 4
        if self.facts.newton and NEWTON_STEPS:
            w, more = self._approach(start, target), _MORE
        else:
            w = self._guessed(start, radius)
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
        w, curve = self._sample(rows)._newton(w, (True,) * _SAMPLE_STEPS, _ROUGH, enough=_ROUGH)
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
            ahead, length = self._slopes(w + move, forms and later), 1.0
            near = bool(size < _NEAR * np.linalg.norm(w))  # rounding would decide
            if not (near or self._along(ahead[0], w + move, move) <= 0.5 * abs(self._along(gradient, w, move))):
                length = self._length(w, move)
                ahead = self._slopes(w + length * move, forms and later)
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
            bent = bending(self.loss, z, rows.labels, self.facts.reach)

            def product(v: Floats) -> Floats:
                return still.combine(bent(still.predict(v))) + self.h * v

            return lambda w, gradient, share: _conjugate_gradients(product, -gradient, CONJUGATE, share)
        if self.facts.exact:
            return lambda w, gradient, share: solve_positive(hessian, -gradient)
        part = SimplePart(self.domain, self.penalty.l1 / self.scale)
        return lambda w, gradient, share: minimise_quadratic(hessian, gradient, w, part, share) - w

    def _length(self, w: Floats, move: Floats) -> float:
        """Where the derivative along the move vanishes in [0, 1], to 1/256: two passes of sixteen points each."""
        low, width = 0.0, 1.0
        for _ in range(2):
            width /= _POINTS
            points: Floats = low + width * np.arange(1.0, _POINTS)
            task = partial(part_along, loss=self.loss, reach=self.facts.reach, w=w, move=move, points=points)
            along = self.rows.map_reduce(task) + np.array(
                [self._along(self.h * (w + t * move) + self.linear, w + t * move, move) for t in points]
            )
            low = max([low, *points[along <= 0].tolist()])
        return low + width if low == 0 else low

    def _guessed(self, start: Floats, radius: float) -> Floats:
        """(p,) after accelerated steps with restarts (O'Donoghue and Candes 2015), until the certificate holds or
        ``_GUESSED`` of them. Their length is 1/L for a guess of L by power iteration; no result rests on it."""
        rows = self.rows.in_memory
        few = self if rows is None or self.facts.stride == 1 else self._sample(rows)
        v = np.ones(start.size) / math.sqrt(start.size)
        for _ in range(_POWERS):
            image = few.rows.map_reduce(partial(part_image, v=v))
            smooth = float(np.linalg.norm(image))
            v = image / smooth if smooth > 0 else v
        smooth = min(1.2 * self.facts.curvature * smooth + self.facts.ridge, self.facts.smooth)

        def step(ahead: Floats) -> Floats:
            return self.shrink(ahead - self.gradient(ahead) / smooth, 1 / smooth)

        w, last, points = start, math.inf, accelerated(start, step)
        for _ in range(_GUESSED // _CHECK):
            w = next(islice(points, _CHECK - 1, None))
            point, found = self.certify(w)
            if found <= radius:
                return point
            if not found <= 4 * last:  # the guess was too small
                smooth = min(4 * smooth, self.facts.smooth)
                points = accelerated(w if np.isfinite(w).all() else start, step)
            last = found
        return w


def part_slopes(part: Rows, loss: Loss, reach: float, w: Floats, curved: bool) -> tuple[Floats, ...]:
    """(p,) sum of the derivatives of some rows at w; ``curved`` : and the (p, p) sum of their second derivatives."""
    z = part.predict(w)
    first = part.combine(np.clip(loss.derivative(z, part.labels), -reach, reach))
    if not curved:
        return (first,)
    if loss.scores > 1:
        return first, classes_gram(part, softmax(z))
    return first, _weighed(part, curvature(loss, z, part.labels, reach)).gram()


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


def part_along(part: Rows, loss: Loss, reach: float, w: Floats, move: Floats, points: Floats) -> Floats:
    """(points,) derivatives along ``move`` of the losses of some rows at ``w + t move``."""
    z, along = part.predict(w), part.still.predict(move)
    weighted = along if part.weights is None else (along.T * part.weights).T
    each = [np.vdot(np.clip(loss.derivative(z + t * along, part.labels), -reach, reach), weighted) for t in points]
    return np.array(each)


def part_image(part: Rows, v: Floats) -> Floats:
    """(p,) ``sum_i omega_i a_i a_i' v`` of some rows."""
    return part.combine(part.still.predict(v))


def bending(loss: Loss, z: Floats, y: Floats, reach: float) -> Callable[[Floats], Floats]:
    """How derivatives at predictions z (n,) or (n, K) move when these move a little (the same shape)."""
    if loss.scores > 1:
        p = softmax(z)
        return lambda u: p * (u - (p * u).sum(axis=1, keepdims=True))
    second = curvature(loss, z, y, reach)
    return lambda u: second * u


def curvature(loss: Loss, z: Floats, y: Floats, reach: float) -> Floats:
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
        case "logistic":
            out = size * (np.abs(y) - size)  # y^2 s (1 - s), and the derivative is -y s
        case _:
            out = (first + y) * (1 - first - y)  # s (1 - s), and the derivative is s - y
    return np.where(size >= min(reach, loss.clip) * (1 - 1e-15), 0.0, out)


def _conjugate_gradients(product: Callable[[Floats], Floats], right: Floats, steps: int, share: float) -> Floats:
    """(p,) until the residual is ``share`` of the right side, at most so many steps."""
    x: Floats = np.zeros_like(right)
    residual = direction = right
    size = float(residual @ residual)
    enough = share**2 * size
    for _ in range(steps):
        if size <= enough:
            break
        image = product(direction)
        curve = float(direction @ image)
        if not curve > 0:  # tiny features underflow: an error here would tell of them; the certificate decides
            break
        length = size / curve
        x = x + length * direction
        residual = residual - length * image
        size, before = float(residual @ residual), size
        direction = residual + size / before * direction
    return x


def _weighed(rows: Rows, weights: Floats) -> Rows:
    """Each row times the root of its weights: the product of a dense block with itself is then one symmetric update in
    BLAS."""
    root = np.sqrt(weights if rows.weights is None else weights * rows.weights)
    scale = sp.diags_array(root)
    blocks = ((scale @ m if sp.issparse(m) else m * root[:, None], first) for m, first in rows.blocks)
    return replace(rows, blocks=tuple(blocks), weights=None)
