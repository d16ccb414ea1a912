"""Mirror maps on l1 balls and simplices: from the sum of gradients to a point of the set."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import Options, Outcome, Progress, Serves, Verdict, counted
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource
from dpmodel.privacy.accounting import Spend
from dpmodel.regressions.excess import PureToo, clip_note, excess_forecast
from dpmodel.regressions.model import PrivateRegression
from dpmodel.regressions.noisy_gradient import (
    AVERAGINGS,
    Averaging,
    Gradient,
    Settings,
    StepNoise,
    averages,
    plain_metric,
    private_gradient,
)
from dpmodel.regressions.populations import Populations, Trials, side_by_side
from dpmodel.regressions.search import MANY, NOISY_NUMBERS, Compared, clipped, clips, judge_descent, moved, simulated
from dpmodel.regressions.sets import Domain, Simplex
from dpmodel.regressions.synthetic import choosing_populations, extreme_populations, populations_of

_ROUGH, _FINE = 8, 100  # rounds of false position where points are simulated, and released
Shape = Literal["ball", "simplex", "solid"]


@dataclass(frozen=True)
class MirrorMap(ABC):
    """A function psi, ``strength``-strongly convex in some norm on a set of ``size`` coefficients:
    ``||w||_1 <= radius`` ("ball"), or w >= 0 with ``sum w = radius`` ("simplex") or ``sum w <= radius`` ("solid").

    ``spread`` : max psi - min psi over the set. ``dual`` : order q of the dual norm, in which gradients are measured.
    """

    size: int
    radius: float
    shape: Shape

    @property
    @abstractmethod
    def strength(self) -> float: ...

    @property
    @abstractmethod
    def spread(self) -> float: ...

    @property
    @abstractmethod
    def dual(self) -> float: ...

    @abstractmethod
    def points(self, g: Floats, rounds: int = _ROUGH) -> Floats:
        """(B, p) for every row of g the point of the set where ``<g, w> + psi(w)`` is least; few ``rounds`` for the
        accuracy that a simulation needs."""

    def point(self, g: Floats) -> Floats:
        """(p,) the same for one g, to the last digits."""
        return np.asarray(self.points(g[None], _FINE)[0])

    def noise_norm(self, beta: float) -> float:
        """Size that the dual norm of p standard normals exceeds with probability at most ``beta``.

        Mean: ``(sum E|x_j|^q)^(1/q)`` (Jensen), ``sqrt(2 ln 2p)`` for q = inf; the norm moves by at most the 2-norm of
        the change (q >= 2), hence the tail ``sqrt(2 ln 1/beta)`` above its mean.
        """
        q, p = self.dual, self.size
        if math.isinf(q):
            mean = math.sqrt(2 * math.log(2 * p))
        else:
            moment = q / 2 * math.log(2) + math.lgamma((q + 1) / 2) - math.lgamma(0.5)  # ln E|x|^q
            mean = math.exp((math.log(p) + moment) / q)
        return mean + math.sqrt(2 * math.log(1 / beta))


@dataclass(frozen=True)
class Entropic(MirrorMap):
    """psi(w) = radius^2 sum_k x_k ln x_k, the set being the hull of ``radius`` times (plus and minus) unit vectors (and
    0) and x the weights of these corners: 1-strongly convex in the 1-norm (Pinsker; ``||w||_1 <= radius ||x||_1``).
    """

    @property
    def strength(self) -> float:
        return 1.0

    @property
    def spread(self) -> float:
        corners = {"ball": 2 * self.size, "simplex": self.size, "solid": self.size + 1}[self.shape]
        return self.radius**2 * math.log(max(corners, 2))

    @property
    def dual(self) -> float:
        return math.inf

    def points(self, g: Floats, rounds: int = _ROUGH) -> Floats:
        scores = np.concatenate([g, -g], axis=1) if self.shape == "ball" else g
        if self.shape == "solid":
            scores = np.hstack([scores, np.zeros((g.shape[0], 1))])
        weights = np.exp((scores.min(axis=1, keepdims=True) - scores) / self.radius)
        weights *= self.radius / weights.sum(axis=1, keepdims=True)
        first: Floats = weights[:, : self.size]
        return first - weights[:, self.size :] if self.shape == "ball" else first


@dataclass(frozen=True)
class PNorm(MirrorMap):
    """psi(w) = ||w||_r^2 / 2 for 1 < r <= 2: (r - 1)-strongly convex in the r-norm."""

    r: float

    @property
    def strength(self) -> float:
        return self.r - 1

    @property
    def spread(self) -> float:
        # ||w||_r <= ||w||_1; on a simplex the least r-norm is at equal weights.
        least = self.radius * self.size ** (1 / self.r - 1) if self.shape == "simplex" else 0.0
        return (self.radius**2 - least**2) / 2

    @property
    def dual(self) -> float:
        return self.r / (self.r - 1)

    def points(self, g: Floats, rounds: int = _ROUGH) -> Floats:
        """Stationarity: w is the gradient of the conjugate ``||s||_q^2 / 2`` at ``s = soft(-g, t)`` (ball) or
        ``s = (-g - t)_+`` (simplices), t >= 0 unless the sum is fixed. Its 1-norm falls in t, which false position (the
        Illinois rule) sets to the radius. Sizes and t are measured from the largest size, so that large gradients round
        nothing away.
        """
        u = np.asarray(-g, dtype=np.float64)
        signs, sizes = (np.sign(u), np.abs(u)) if self.shape == "ball" else (1.0, u)
        top = sizes.max(axis=1, keepdims=True)
        # At t = -radius the largest entry of s is the radius, and sum |w| >= ||s||_q >= radius; a little more, so that
        # rounding does not undercut it.
        down, low = sizes - top, np.full_like(top, -self.radius * (1 + 1e-9))
        if self.shape != "simplex":
            low = np.maximum(low, -top)
        high = np.zeros_like(low)

        def at(t: Floats) -> tuple[Floats, Floats]:
            w = self._conjugates(np.maximum(down - t, 0.0))
            return w, w.sum(axis=1, keepdims=True) - self.radius

        w, over = at(low)
        inside = over <= 0  # the sum may be less than the radius there, but on a simplex
        under, before = np.full_like(over, -self.radius), np.zeros_like(over)
        for _ in range(rounds):
            t = low + (high - low) * (np.maximum(over, 0.0) / np.maximum(over - under, 1e-300))
            t = np.where(inside, low, np.clip(t, low, high))
            w, rest = at(t)
            up = rest > 0
            low, high = np.where(up, t, low), np.where(up, high, t)
            # An end that stays twice counts half.
            over = np.where(up, rest, np.where(before == -1, over / 2, over))
            under = np.where(up, np.where(before == 1, under / 2, under), rest)
            before = np.where(up, 1, -1)
            if (inside | (np.abs(rest) <= 1e-15 * self.radius)).all():
                break
        total = w.sum(axis=1, keepdims=True)
        share = np.divide(self.radius, total, out=np.ones_like(total), where=total > 0)
        return np.asarray(signs * w * (share if self.shape == "simplex" else np.where(inside, 1.0, share)))

    def _conjugates(self, s: Floats) -> Floats:
        """(B, p) ``||s||_q^(2-q) s^(q-1)`` for s >= 0, of every row of s."""
        top = s.max(axis=1, keepdims=True)
        scaled, q = s / np.where(top > 0, top, 1.0), self.dual
        power = scaled ** (q - 1)
        norm = (power * scaled).sum(axis=1, keepdims=True) ** (1 / q)
        return np.asarray(top * np.where(norm > 0, norm, 1.0) ** (2 - q) * power)


def mirror_maps(domain: Domain) -> dict[str, MirrorMap]:
    """The maps that serve this set, by name; empty where none does."""
    if domain.kind not in ("l1", "simplex"):
        return {}
    radius, p = domain.norm(1.0), domain.size
    solid = isinstance(domain, Simplex) and domain.solid
    shape: Shape = "ball" if domain.kind == "l1" else "solid" if solid else "simplex"
    if not 0 < radius < math.inf:
        return {}
    sharp = 1 + 1 / max(math.log(max(p, 2)), 1.0)
    return {
        "entropic": Entropic(p, radius, shape),
        "p-norm": PNorm(p, radius, shape, sharp),
        "p-norm 1.5": PNorm(p, radius, shape, 1.5),
    }


# -------------------------------------------------------------------------------- the descent


_STEPS, _PURE_STEPS = 64, 8
_FACTORS = (1 / 16, 1.0, 16.0)  # steps that are tried first, times the one that the theorem has without noise
_HOPELESS = 0.97  # of the excess of knowing nothing: then no details are searched


@dataclass(frozen=True)
class MirrorDescent(PureToo):
    """Minimise the empirical risk over an l1 ball or a simplex by lazy mirror descent on noisy gradients.

    Source
        Nemirovski and Yudin 1983; lazy form (dual averaging): Nesterov 2009; private: Talwar, Thakurta and Zhang 2014,
        and TTZ15, section 1; AMU20 for losses without smoothness.
    Privacy
        As ``NoisyDescent``, in the user's coordinates: each step releases ``sum_i omega_i s_i a_i`` with Gaussian noise
        scaled to how far one record moves it in the 2-norm (Laplace and 1-norm for delta = 0) at the released point
        (``StepNoise``), T steps with a public T in exact Gaussian composition. Maps and averages act on released sums.
    Utility
        ``w_t = argmin <h sum_{s<t} e_s, w> + psi(w)``, e_s the noisy gradients. Theorem: with Gaussian noise of
        standard deviation s a step on the objective's gradient (whose dual norm is at most G), the mean of T points has
        excess at most ``spread / (h T) + h (G + s Q)^2 / (2 strength) + D s sqrt(2 ln(2/beta) / T)`` with probability 1
        - beta, where D is the set's 2-diameter and Q = ``noise_norm(beta / (2 T))``. Proof: ``F(g) = max_w -<g, w> -
        psi(w) / h`` is smooth with constant h / strength in the dual norm and has derivative -w_t at the sum of
        gradients so far, hence ``F_{t+1} <= F_t - <e_t, w_t> + h |e_t|^2 / (2 strength)``; sum, with ``F_0 = -min psi /
        h`` and ``F_T >= -<sum e, u> - psi(u) / h``. Convexity, and the supermartingale of ``averaged_excess`` for the
        noise along w_t - u. Where the last point, the last half or clipped derivatives are predicted to be better, they
        are used and only predicted.
    Cost
        T <= 64 passes over the features and T p noisy numbers; maps cost O(p) (p-norm: ten or so evaluations).

    Parameters
    ----------
    steps, map, averaging : force T, the map ("entropic", "p-norm", "p-norm 1.5"), what is released.
    """

    steps: int | None = None
    map: str | None = None
    averaging: Averaging | None = None
    serves: ClassVar[Serves] = Serves(PrivateRegression, reads_blocks=True, weights=True)
    name: str = "mirror-descent"
    source: str = "Nemirovski and Yudin 1983; Talwar, Thakurta and Zhang 2014 (noisy mirror descent)"

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        if not mirror_maps(model.domain):
            return Verdict(False, "mirror maps are for l1 balls and simplices")
        return judge_descent(model, 1.0 if options.delta == 0 else 2.0)

    def plan(self, model: PrivateRegression, options: Options) -> tuple[Settings, float]:
        """Settings (``momentum`` 0, ``step`` the weight of gradients) and their prediction, from public facts."""
        return _plan(model, self, options.epsilon, options.delta)

    def forecast_as_given(self, model: PrivateRegression, options: Options) -> Forecast:
        settings, predicted = self.plan(model, options)
        noise = step_noise(model, options.epsilon, options.delta, settings)
        return excess_forecast(
            model,
            options,
            predicted=predicted,
            at_most=_proved(noise, mirror_maps(model.domain)[settings.map], settings, options.beta),
            work=f"{settings.steps} passes over the data, noise on {model.size} sums in each",
            noise={**noise.described(settings), "map": settings.map},
            caveats=clip_note(model, settings.clip),
            event=self.event(options),
        )

    def run_as_given(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress
    ) -> Outcome:
        settings = self.plan(model, options)[0]
        steps = step_noise(model, options.epsilon, options.delta, settings)
        gradient = private_gradient(steps, model.read_table(), noise)
        step = counted(f"mirror descent, {settings.steps} steps", settings.steps, progress)

        def counting(w: Floats) -> Floats:
            step()
            return gradient(w)

        point = mirror_maps(model.domain)[settings.map].point
        points = mirror_descend(model, point, settings.steps, settings.step, counting, np.zeros(model.size))
        return Outcome("optimal", points[settings.averaging], None, None, notes=clip_note(model, settings.clip))


def step_noise(model: PrivateRegression, epsilon: float, delta: float, settings: Settings) -> StepNoise:
    """The noise of these settings, in the user's coordinates."""
    spend = Spend.of(epsilon, delta, gaussian_only=True)
    return StepNoise(clipped(model, settings.clip), plain_metric(model), spend, settings.steps, settings.share)


@cached
def _plan(model: PrivateRegression, mechanism: MirrorDescent, epsilon: float, delta: float) -> tuple[Settings, float]:
    """The map, step and clip of least mean excess on the choosing populations."""
    maps = mirror_maps(model.domain)
    most = max(NOISY_NUMBERS // max(model.size, 1), 16)
    steps = mechanism.steps or min(most, _PURE_STEPS if delta == 0 else _STEPS)
    kinds = AVERAGINGS if mechanism.averaging is None else (mechanism.averaging,)
    populations = side_by_side([*choosing_populations(model), *extreme_populations(model)])
    draws = 2 if model.size <= 64 else 1

    def excess(settings: Sequence[Settings], among: Populations, seeds: Sequence[int]) -> Mapping[Averaging, Floats]:
        """(settings, populations), all of them with one map."""
        points = maps[settings[0].map].points

        def run(trials: Trials, gradient: Gradient) -> dict[Averaging, Floats]:
            step, zeros = trials.each([one.step for one in settings]), np.zeros_like(trials.rows.mean)
            return mirror_descend(model, points, steps, step, gradient, zeros)

        return simulated([step_noise(model, epsilon, delta, one) for one in settings], among, seeds, run)

    def risks(settings: Sequence[Settings]) -> list[tuple[float, Averaging]]:
        found = excess(settings, populations, range(draws))
        return [min((float(found[kind][k].mean()), kind) for kind in kinds) for k in range(len(settings))]

    compared = Compared(risks, 4)
    least = partial(compared.least, rank=lambda risk: risk[0])

    def around(best: Settings, factors: Sequence[float] = (0.25, 4.0)) -> list[Settings]:
        return [replace(best, step=best.step * by) for by in factors]

    def first(name: str) -> Settings:
        step = maps[name].strength / max(_derivative(model, maps[name]), 1e-300) * maps[name].radius
        return least([Settings(steps, step * by, 0.0, 0.0, "all", map=name) for by in _FACTORS])

    def learns(best: Settings) -> bool:
        return compared.risk(best)[0] < _HOPELESS * float(populations.nothing.mean())

    given = [mechanism.map] if mechanism.map in maps else list(maps)
    best = first(given[0])
    # Of many columns the entropic map alone is simulated, whose points cost the least.
    if learns(best) and model.size <= MANY:
        best = least([best, *map(first, given[1:])])
    best = moved(best, around, least, 4)
    cuts = clips(model) if learns(best) else clips(model)[-1:]
    best = least([best, *(replace(best, clip=cut, step=best.step * by) for cut in cuts for by in (1, 4))])
    if helps := learns(best):
        best = least([best, *around(best, (0.5, 2.0))])
    settings = replace(best, averaging=compared.risk(best)[1])
    predicted = float(np.mean(excess([best], populations_of(model), range(10, 10 + draws))[settings.averaging]))
    # What little is gained may be the luck of the noise that was drawn: no more is predicted than without data.
    if not helps:
        predicted = max(predicted, float(populations_of(model).nothing.mean()))
    return settings, predicted


def _derivative(model: PrivateRegression, chosen: MirrorMap) -> float:
    """Bound on the dual norm of the objective's data gradient (the inf-norm's for q > 2, up to p^(1/q) <= e)."""
    return model.weight * model.derivative_bound * model.row.norm(math.inf if chosen.dual > 2 else 2.0)


def mirror_descend(
    model: PrivateRegression,
    point: Callable[[Floats], Floats],
    steps: int,
    step: float | Floats,
    gradient: Gradient,
    total: Floats,
) -> dict[Averaging, Floats]:
    """Lazy mirror descent: coefficients for every way of averaging. Penalties by subgradient. ``total`` : (p,) zeros,
    or (B, p) with ``step`` (B, 1) for B descents side by side."""
    queried, followed = list[Floats](), list[Floats]()
    w = point(total)
    for _ in range(steps):
        queried.append(w)
        total = total + gradient(w) + model.penalty.subgradient(w)
        w = point(step * total)
        followed.append(w)
    return averages(queried, followed)


def _proved(noise: StepNoise, chosen: MirrorMap, settings: Settings, beta: float) -> float | None:
    """The theorem's bound; None where the last points are released, for Laplace noise or other penalties."""
    model, penalty = noise.model, noise.model.penalty
    if settings.clip < math.inf or settings.averaging != "all" or noise.order != 2 or penalty.other is not None:
        return None
    wide = model.scale * noise.scale(model.derivative_bound)
    # Dual norms of order q >= 2 are at most the 2-norm; of rows the better of that and p^(1/q) times the inf-norm.
    stretch = 1.0 if math.isinf(chosen.dual) else model.size ** (1 / chosen.dual)
    row = min(model.row.norm(2.0), stretch * model.row.norm(math.inf))
    radius = chosen.radius
    public = stretch * float((2 * penalty.ridge * radius + penalty.l1 + np.abs(penalty.linear)).max(initial=0.0))
    derivative = model.weight * model.derivative_bound * row + public
    square = derivative + wide * chosen.noise_norm(beta / (2 * settings.steps))
    bound = chosen.spread / (settings.step * settings.steps) + settings.step * square**2 / (2 * chosen.strength)
    diameter = model.domain.diameter(2.0)
    return bound + diameter * wide * math.sqrt(2 * math.log(2 / beta) / settings.steps)


MIRROR_DESCENT = MirrorDescent()
__all__ = ["MIRROR_DESCENT", "MirrorDescent"]
