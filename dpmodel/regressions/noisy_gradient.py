"""The coordinates in which gradients are noised: columns brought to one size, so that units do not matter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource
from dpmodel.privacy.accounting import Spend
from dpmodel.regressions.features import RowBounds
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.rows import Rows, Table
from dpmodel.regressions.sets import Domain, Product

# Sets whose constraints are on single coefficients: they project, and shrink, in any diagonal coordinates.
SEPARABLE = ("free", "box", "linf")


@dataclass(frozen=True)
class Metric:
    """A public invertible matrix M: gradients are noised as ``M sum_i s_i a_i`` and coefficients are ``w = M' v``.

    Then ``a'w = (M a)'v``. Row j of M is ``scale_j (e_j - middle_j / c e_k)``: column j less its middle (c the value of
    the constant column k, which absorbs it), times a scale. Vectors (p,), or every row of (B, p), are mapped. ``row`` :
    bounds on M a. ``exchange`` : k, or None without centring. ``uncentred`` : norms (order -> size) that rounding acts
    on. ``scores`` : of how many M maps the p sums (and the coefficients) of each, one after the other.
    """

    scale: Floats
    middle: Floats
    exchange: int | None
    row: RowBounds
    uncentred: dict[float, float]
    scores: int = 1

    @cached_property
    def scales(self) -> Floats:
        """(size,) the scale of every coefficient."""
        return np.tile(self.scale, self.scores)

    @cached_property
    def _centres(self) -> bool:
        """Whether a column has another middle than 0."""
        return bool(self.middle.any())

    def sums(self, g: Floats) -> Floats:
        """(p,) M g."""
        if not self._centres:
            return np.asarray(self.scales * g)
        each = self._each(g)
        return np.asarray(self.scale * (each - self.middle * each[..., self.exchange, None])).reshape(g.shape)

    def coefficients(self, v: Floats) -> Floats:
        """(p,) M' v."""
        w = self.scales * v
        if self._centres:
            each = self._each(w)  # a view
            each[..., self.exchange] -= each @ self.middle
        return w

    def coordinates(self, w: Floats) -> Floats:
        """(p,) v with M' v = w."""
        if self._centres:
            w = w.copy()
            each = self._each(w)
            each[..., self.exchange] += each @ self.middle
        return w / self.scales

    def _each(self, w: Floats) -> Floats:
        """(..., K, p) of (..., K p), where there are several scores."""
        return w if self.scores == 1 else w.reshape(*w.shape[:-1], self.scores, -1)

    def largest_predictions(self, w: Floats) -> Floats:
        """(B,) those of ``PrivateRegression`` for w (B, size), centred: sharper, as the constant column has taken the
        columns' middles."""
        v = self.coordinates(w)
        return self.row.largest_predictions(v) if self.scores == 1 else self.row.spreads(self._each(v))

    @property
    def diagonal(self) -> bool:
        return self.exchange is None

    def sensitivity(self, model: PrivateRegression, bound: float, order: float) -> float:
        """How far one record moves ``M sum_i omega_i s_i a_i``, |s_i| <= bound, rounding included.

        ``row`` bounds every row M a, so that ``RowBounds.change`` applies to it as it does to plain rows: two vectors
        of norm at most ``bound * norm``, or (an absent record, never centred) one of them with constant columns only.
        Of several scores, s_i is a vector and what moves the matrix of its outer product with M a, whose norm is the
        product of theirs: the same.
        Rounding: the sum in column j is off by at most ``(n + 4) 2^-53 total bound |a_j|``, which M scales and, where
        it centres, adds to middle_j times the error of the constant column.
        """
        if bound == 0:
            return 0.0
        exact = model.largest_weight * self.row.sensitivity(bound, order)
        rounding = 8 * (model.count + 8) * 2.0**-53 * model.total * bound * self.uncentred[order]
        return exact * (1 + 1e-12) + rounding


def separable(domain: Domain) -> np.ndarray:
    """(p,) bool: coefficients that are free or in a box of their own."""
    if isinstance(domain, Product):
        return np.concatenate([separable(part) for part, _ in domain.parts])
    return np.full(domain.size, domain.kind in SEPARABLE)


def projects_exactly(domain: Domain) -> bool:
    """Whether projections onto the set are in closed form, so that they cost little and certificates hold."""
    if isinstance(domain, Product):
        return all(projects_exactly(part) for part, _ in domain.parts)
    return domain.kind in (*SEPARABLE, "l1", "l2", "simplex")


@cached
def descent_metric(model: PrivateRegression) -> Metric:
    """The metric for this model, a public fact; the same for all of several scores.

    Columns are divided by their largest size where their coefficients are free or in a box and no norm of the row was
    declared below what the columns allow (then the declared norm says that units are alike). With an intercept and no
    constraints, they are first centred in their interval. Other coefficients keep the user's coordinates, in which
    their set projects.
    """
    row, moving = model.row, ~model.row.constant
    loose = separable(model.domain).reshape(model.scores, -1).all(axis=0)
    size = row.magnitudes
    by_columns = bool(np.isfinite(size[moving]).all()) and float(np.linalg.norm(size[moving])) <= row.l2 * (1 + 1e-9)
    scale, middle, exchange = np.ones(row.size), np.zeros(row.size), None
    lower, upper = row.lower, row.upper
    if by_columns:
        anchors = np.flatnonzero(row.constant & (row.lower != 0))
        smooth = not model.penalty.l1.reshape(model.scores, -1)[:, anchors].any() and model.penalty.other is None
        if model.domain.kind == "free" and anchors.size and not row.absent and smooth:
            exchange = int(anchors[0])
            middle = np.where(moving, (lower + upper) / 2, 0.0)
            lower, upper = lower - middle, upper - middle
            middle = middle / row.lower[exchange]
            size = np.where(moving, upper, size)
        scale = np.where(moving & loose & (size > 0), 1 / np.where(size > 0, size, 1.0), 1.0)
    largest = float(scale[moving].max(initial=0.0))

    def bounds(low: Floats, high: Floats, norms: bool) -> RowBounds:
        factor = largest if norms else math.inf
        return RowBounds.of(
            low * scale,
            high * scale,
            row.constant,
            l1=factor * row.l1,
            l2=factor * row.l2,
            linf=factor * row.linf,
            label=row.label,
            absent=row.absent,
        )

    part = bounds(lower, upper, exchange is None)
    if part.fixed(2) > 0 and math.isfinite(part.l2) and part.l2 > 0:
        # Constant columns carry one coefficient but would double the squared norm.
        weight = 0.5 * part.l2 / part.fixed(2)
        scale = np.where(row.constant & loose, scale * weight, scale)
        part = bounds(lower, upper, exchange is None)
    plain = bounds(row.lower, row.upper, True)
    ends = np.abs(scale * middle) * (abs(row.lower[exchange]) if exchange is not None else 0.0)
    uncentred = {order: plain.norm(order) + float(np.linalg.norm(ends, ord=order)) for order in (1.0, 2.0, math.inf)}
    return Metric(scale, middle, exchange, part, uncentred, model.scores)


@cached
def plain_metric(model: PrivateRegression) -> Metric:
    """The user's own coordinates."""
    norms = {order: model.row.norm(order) for order in (1.0, 2.0, math.inf)}
    return Metric(np.ones(model.size), np.zeros(model.size), None, model.row, norms)


# -------------------------------------------------------------------------------- noise and steps


# Coordinates end here. Public terms whose derivatives grow fast can throw points to infinity, where 0 times infinity
# tells a row with a zero from others (by an error or a warning); within this every prediction is a finite number.
_EDGE = 1e100


Averaging = Literal["last", "half", "all"]
AVERAGINGS: tuple[Averaging, ...] = ("last", "half", "all")


@dataclass(frozen=True)
class Settings:
    """Public numbers of one descent: ``steps`` T, ``step`` (in the coordinates of the metric, for the gradient of the
    objective), ``momentum`` in [0, 1), ``share`` of the budget that measures the middles (0: derivatives are noised
    whole), what is released: the last point, the mean of the last half, or of all points where gradients were taken;
    and ``clip``, to which derivatives are cut (inf: as the loss has them). ``map`` : of mirror descent."""

    steps: int
    step: float
    momentum: float
    share: float
    averaging: Averaging
    clip: float = math.inf
    map: str = ""


@dataclass(frozen=True)
class StepNoise:
    """Noise on ``M sum_i omega_i s_i a_i``: what each step needs, and the middles once.

    Privacy
        A step uses a released point w. The part of the derivative that it noises, cut to ``bound(w)``, is a function of
        record i and of w; one record moves the sums by at most ``sensitivity(bound(w))`` (``Metric.sensitivity``), and
        the noise is scaled to exactly that. So whatever was released before, every step is a Gaussian mechanism of the
        same mu (a Laplace mechanism of the same epsilon), which is what adaptive composition asks for: mu^2 (epsilon)
        add up. The scale itself is a function of the released w. ``bound(w) = 0`` means that the part is 0 for all
        rows.
    """

    model: PrivateRegression
    metric: Metric
    spend: Spend
    steps: int
    share: float

    @property
    def order(self) -> float:
        return 1.0 if self.spend.rho is None else 2.0

    @property
    def loss(self) -> Loss:
        """The loss, with bounds in the norm that the noise hides."""
        return self.model.loss.measured(self.order)

    def bound(self, w: Floats) -> float:
        """Bound on the part of the derivatives that a step at w noises."""
        fixed = self.fixed_bound
        return self.bound_at(float(self.predictions(w[None])[0])) if fixed is None else fixed

    @cached_property
    def fixed_bound(self) -> float | None:
        """That bound where it is the same for all w."""
        least = self._bound(0.0)
        return least if least == self._bound(math.inf) else None

    def predictions(self, w: Floats) -> Floats:
        """(B,) largest predictions of w (B, p) over the rows allowed, or what stands for them in the metric."""
        largest = self.model.largest_predictions if self.metric.exchange is None else self.metric.largest_predictions
        return largest(w) + self.model.offset_bound

    def bound_at(self, z: float) -> float:
        """``bound`` where predictions are at most z, and a little more for their rounding."""
        return min(self._bound(z * (1 + 1e-9)), self._most)

    @cached_property
    def _most(self) -> float:
        """Coefficients that noise drove far away must not drive noise to infinity, where no set holds them back."""
        label = self.model.row.label_bound
        return math.inf if self.model.domain.bounded or math.isinf(label) else 1e3 * self._bound(max(label, 1.0))

    def _bound(self, z: float) -> float:
        loss = self.loss
        return (loss.rest_bound if self.share > 0 else loss.derivative_bound)(z, self.model.row.label_bound)

    def sensitivity(self, clip: float) -> float:
        return self.metric.sensitivity(self.model, clip, self.order)

    def scale(self, clip: float) -> float:
        """Standard deviation (Laplace scale for pure budgets) of the noise on each sum of one step."""
        return self._scale(self.sensitivity(clip), self.spend.part(1 - self.share), self.steps)

    @property
    def middle_scale(self) -> float:
        """The same for the one measurement of the middles."""
        clip = self.loss.middle_bound(self.model.row.label_bound)
        return self._scale(self.sensitivity(clip), self.spend.part(self.share), 1) if self.share > 0 else 0.0

    def _scale(self, sensitivity: float, spend: Spend, steps: int) -> float:
        if spend.rho is None:
            return spend.laplace_scale(sensitivity, steps)
        return spend.gaussian_sigma(sensitivity, steps)

    def described(self, settings: Settings) -> dict[str, Any]:
        """What a forecast says of the noise."""
        return {
            "kind": "laplace" if self.order == 1 else "gaussian",
            "steps": settings.steps,
            "step": settings.step,
            "momentum": settings.momentum,
            "released": settings.averaging,
            "derivatives clipped to": settings.clip,
            "scale of each sum in the first step": self.scale(self.bound(public_point(self.model))),
        }

    def draw(self, source: NoiseSource, sums: PrivateArray, scale: float) -> Floats:
        """``sums`` with noise; sums that are 0 for all rows allowed come without."""
        if scale == 0:
            return np.zeros_like(sums)
        return source.laplace(sums, scale) if self.order == 1 else source.gaussian(sums, scale)

    @property
    def simulated_scale(self) -> float:
        """Scale of what the sums of one step are off by, on synthetic rows, for each unit of ``bound``."""
        return self.scale(1.0)


Gradient = Callable[[Floats], Floats]


def private_gradient(noise: StepNoise, rows: Table, source: NoiseSource) -> Gradient:
    """w -> noisy gradient of the data part in the metric's coordinates; measures the middles first."""
    model, metric, loss = noise.model, noise.metric, noise.loss
    bound, fixed = None, np.zeros(model.size)
    if noise.share > 0:
        bound = loss.middle_bound(model.row.label_bound)
        middles = rows.map_reduce(partial(part_middles, loss=loss, bound=bound))
        fixed = noise.draw(source, PrivateArray(metric.sums(middles)), noise.middle_scale)

    def gradient(w: Floats) -> Floats:
        clip = noise.bound(w)
        total = rows.map_reduce(partial(part_gradient, loss=loss, w=w, clip=clip, middle=bound))
        return model.scale * (fixed + noise.draw(source, PrivateArray(metric.sums(total)), noise.scale(clip)))

    return gradient


def part_gradient(part: Rows, loss: Loss, w: Floats, clip: float, middle: float | None = None) -> PrivateArray:
    """(p,) ``sum_i omega_i s_i a_i`` of some rows, the derivatives at w cut to this size; ``middle`` : less their
    middles, which are at most that large."""
    derivatives = loss.derivative(part.predict(w), part.labels)
    if middle is not None:
        derivatives = derivatives - loss.cut(loss.middle(part.labels), middle)
    return part.combine(loss.cut(derivatives, clip))


def part_middles(part: Rows, loss: Loss, bound: float) -> PrivateArray:
    """(p,) ``sum_i omega_i m(y_i) a_i`` of some rows."""
    return part.combine(loss.cut(loss.middle(part.labels), bound))


def descend(
    model: PrivateRegression,
    metric: Metric,
    settings: Settings,
    gradient: Gradient,
    start: Floats | None = None,
    step: float | Floats | None = None,
    momentum: float | Floats | None = None,
) -> dict[Averaging, Floats]:
    """Projected descent with Nesterov's momentum: coefficients, for every way of averaging.

    ``gradient`` : noisy gradient of the data part in the metric's coordinates, at coefficients w. Public terms: the
    quadratic penalty and others by (sub)gradient; the l1 penalty by shrinking where constraints are on single
    coefficients, else by subgradient. ``start`` : (p,), the public point by default; or (B, p), with ``step`` and
    ``momentum`` (B, 1) in place of those of ``settings``, for B descents side by side.
    """
    step, momentum = settings.step if step is None else step, settings.momentum if momentum is None else momentum
    project = model.domain.project if start is None else model.domain.projected
    start = public_point(model) if start is None else start
    penalty, domain = model.penalty, model.domain
    shrinks = domain.kind in SEPARABLE and bool(penalty.l1.any())
    projects = domain.kind != "free"
    v = metric.coordinates(start)
    threshold = step * penalty.l1 * metric.scales
    velocity, queried, followed = np.zeros_like(v), list[Floats](), list[Floats]()
    for _ in range(settings.steps):
        u = v + momentum * velocity
        w = metric.coefficients(u)
        move = gradient(w)
        if not penalty.absent:
            public = penalty.derivative(w) + penalty.other_subgradient(w) if shrinks else penalty.subgradient(w)
            move = move + metric.sums(public)
        new = u - step * move
        if shrinks:
            new = np.sign(new) * np.maximum(np.abs(new) - threshold, 0.0)
        new = np.minimum(np.maximum(np.where(np.isnan(new), v, new), -_EDGE), _EDGE)
        if projects:
            new = metric.coordinates(project(metric.coefficients(new)))
        velocity, v = new - v, new
        queried.append(u)
        followed.append(v)
    return {name: project(metric.coefficients(end)) for name, end in averages(queried, followed).items()}


def averages(queried: list[Floats], followed: list[Floats]) -> dict[Averaging, Floats]:
    """What may be released of the points where gradients were ``queried`` and those that followed."""
    later = followed[len(followed) // 2 :]
    return {
        "last": followed[-1],
        "half": np.sum(later, axis=0) / len(later),
        "all": np.sum(queried, axis=0) / len(queried),
    }


def curvature(model: PrivateRegression, metric: Metric) -> float:
    """Bound on the second derivative of the objective in the metric's coordinates.

    Where derivatives jump, the second derivative of a mean over many records stands in: jumps of size one spread over
    predictions of the size of the labels (a margin for signs). A choice of step size, no privacy rests on it.
    """
    smoothness = model.loss.smoothness
    if math.isinf(smoothness):
        label = model.row.label_bound
        smoothness = 0.5 if model.loss.labels == "sign" else 2 / label if 0 < label < math.inf else 1.0
    data = model.weight * smoothness * metric.row.norm(2) ** 2
    ridge = model.penalty.ridge
    moved = metric.scales * np.sqrt(ridge)
    public = 2 * float((moved**2).max(initial=0.0))
    if metric.exchange is not None:
        anchored = float(ridge[metric.exchange :: model.row.size].max())
        public += 2 * anchored * float(np.sum((metric.middle * metric.scale) ** 2))
    return data + public
