"""What the private Frank-Wolfe mechanisms share: steps, the proved bound, and simulations by which steps are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import Progress, counted, no_progress
from dpmodel.errors import SpecificationError
from dpmodel.privacy.accounting import Spend
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.noisy_gradient import StepNoise, plain_metric
from dpmodel.regressions.populations import Populations, Trials
from dpmodel.regressions.search import SIDE_BY_SIDE, Compared, clipped
from dpmodel.regressions.synthetic import populations_of, walkers


@dataclass(frozen=True)
class Steps:
    """The path ``w_{t+1} = w_t + size_t (v_t - w_t)``, of which the mean of the last iterates is released.

    ``count`` : T >= 1. ``rate`` : 0 for sizes 2 / (t + 2), t = 0 .. T - 1, otherwise ``min(1, rate / T)`` in every
    step. ``average`` : share in [0, 1] of the iterates that are averaged (0: the last one alone). ``clip`` :
    derivatives of the loss are cut to this size (inf: not at all). All public.
    """

    count: int
    rate: float = 0.0
    average: float = 0.5
    clip: float = math.inf

    def __post_init__(self) -> None:
        if not (self.count >= 1 and self.rate >= 0 and 0 <= self.average <= 1 and self.clip > 0):
            raise SpecificationError(
                f"Frank-Wolfe with steps={self.count}, rate={self.rate}, average={self.average}, clip={self.clip}",
                why="it takes at least one step, of a size that is not negative, and derivatives of some size",
                remedy="steps >= 1, rate >= 0, average in [0, 1], clip > 0, or None for those that are to be chosen",
            )

    @cached_property
    def sizes(self) -> Floats:
        """(T,) step sizes."""
        t = np.arange(self.count)
        if self.rate == 0:
            return np.asarray(2.0 / (t + 2.0))
        return np.full(self.count, min(1.0, self.rate / self.count))

    @cached_property
    def shares(self) -> Floats:
        """(T,) weight of the iterate after each step; they sum to 1."""
        last = max(1, math.ceil(self.average * self.count))
        return np.where(np.arange(self.count) >= self.count - last, 1.0 / last, 0.0)

    @cached_property
    def pulls(self) -> Floats:
        """(T,) weight of v_t in the released point; the starting point has the rest of the weight 1."""
        pulls, out, later = np.zeros(self.count), 0.0, 1.0 - self.sizes
        for t in range(self.count - 1, -1, -1):
            out = self.shares[t] + (out * later[t + 1] if t + 1 < self.count else 0.0)
            pulls[t] = out * self.sizes[t]
        return pulls

    def to_dict(self) -> dict[str, float]:
        return {"steps": self.count, "rate": self.rate, "average": self.average, "clip": self.clip}


def walk(
    sizes: Floats,
    shares: Floats,
    w: Floats,
    toward: Callable[[Floats], Floats],
    progress: Progress = no_progress,
) -> Floats:
    """(p,) the point to release, from the start w: each step goes from its w towards v = ``toward(w)``.

    ``sizes``, ``shares`` : those of ``Steps``, (T,), or (T, B, 1) for B walks side by side from w (B, p).
    """
    out, count = np.zeros_like(w), len(sizes)
    step = counted(f"walk towards vertices, {count} steps", count, progress)
    for size, share in zip(sizes, shares, strict=True):
        step()
        w = w + size * (toward(w) - w)
        if np.any(share):
            out += share * w
    return out


def bounds_on_derivatives(model: PrivateRegression, clip: float) -> StepNoise:
    """Bounds on derivatives at released points where they are cut to ``clip``. Its noise is a placeholder."""
    return StepNoise(clipped(model, clip), plain_metric(model), Spend(1.0, None), 1, 0.0)


# -------------------------------------------------------------------------------------------------- proved bounds
def row_diameter(model: PrivateRegression) -> float:
    """A bound on ``|<a, w - v>|`` over rows allowed and points w, v of the set."""
    pairs = ((1.0, math.inf), (2.0, 2.0), (math.inf, 1.0))
    sizes = [(model.domain.diameter(order), model.row.norm(dual)) for order, dual in pairs]
    return min(a * b for a, b in sizes if math.isfinite(a) and math.isfinite(b))


def curvature(model: PrivateRegression) -> float:
    """Gamma with ``f(w + s (v - w)) <= f(w) + s <grad f(w), v - w> + s^2 Gamma / 2`` on the set, f the objective.

    The loss of one record has second derivative at most ``smoothness`` (b) in its prediction, and predictions of two
    points differ by at most D = ``row_diameter``: weight b D^2 (8 C^2 for the mean squared loss on the l1 ball of
    radius C and rows in [-1, 1]; TTZ15's Remark 1 says 4 C^2, for half that loss). Ridge adds 2 max ridge_j
    diameter_2^2.
    """
    ridge = float(model.penalty.ridge.max(initial=0.0))
    quadratic = 2 * ridge * model.domain.diameter(2.0) ** 2 if ridge else 0.0
    return model.weight * model.loss.smoothness * row_diameter(model) ** 2 + quadratic


def excess_bound(model: PrivateRegression, steps: Steps, scale: float, candidates: int, beta: float) -> float:
    """With probability 1 - beta the excess risk of the released point is at most this.

    Every v_t is drawn by an exponential mechanism (or permute-and-flip) on the scores ``-<v, grad f(w_t)>``, with
    noise of at most ``scale``, among ``candidates`` k points whose hull is the set.

    Proof. Let h_t = f(w_t) - min f. By convexity min_v <v - w_t, grad f(w_t)> <= -h_t, and v_t misses that minimum by
    e_t: h_{t+1} <= (1 - s_t) h_t + s_t e_t + s_t^2 Gamma / 2. Unrolled, and averaged with ``shares`` by convexity, the
    excess is at most the same recursion's value with e = 0 plus sum_t p_t e_t, p = ``pulls``. A candidate that is worse
    by x is drawn with probability at most e^(-x / scale), given the past, and there are k - 1 others: e_t is
    stochastically at most scale (ln k + E), E a standard exponential. So for every 0 < l < 1 / max(p_t),
    E exp(l sum p_t (e_t / scale - ln k)) <= prod 1 / (1 - l p_t), and Markov's inequality gives
    sum p_t e_t <= scale (ln k sum p_t + (ln(1 / beta) - sum ln(1 - l p_t)) / l) with probability 1 - beta. h_0 is at
    most <grad f(w_0), w_0 - w*>.
    """
    plain, pulls = plain_bound(model, steps), steps.pulls
    if candidates < 2:
        return plain
    lambdas = np.geomspace(1e-3, 1 - 1e-3, 60) / pulls.max()
    tails = (math.log(1 / beta) - np.log1p(-np.outer(lambdas, pulls)).sum(axis=1)) / lambdas
    return plain + scale * (math.log(candidates) * float(pulls.sum()) + float(tails.min()))


def plain_bound(model: PrivateRegression, steps: Steps) -> float:
    """The bound of ``excess_bound`` without noise."""
    gamma, start, out = curvature(model), public_point(model), 0.0
    derivative = model.penalty.derivative(start)
    public = float(np.abs(derivative).max(initial=0.0)) * model.domain.diameter(1.0) if derivative.any() else 0.0
    # Bound on the excess at the start: <grad f(w_0), w_0 - w> over the set.
    gap = model.weight * bounds_on_derivatives(model, math.inf).bound(start) * row_diameter(model) + public
    for size, share in zip(steps.sizes, steps.shares, strict=True):
        gap = (1 - size) * gap + size * size * gamma / 2
        out += share * gap
    return out


# -------------------------------------------------------------------------------- simulated walks


# (settings, populations) mean excess risk of walks of the same number of steps, over runs with these seeds.
Excess = Callable[[Sequence[Steps], Populations, Sequence[int]], Floats]

MOST_STEPS = 256
_SHORT = 64  # walks of fewer steps are simulated several times over, up to so many steps, and try all rates
_NUMBERS = 10_000  # most runs times columns: with many columns the noise averages out
_RATES = (0.0, 0.3, 1.0, 3.0)  # 0 stands for sizes 2 / (t + 2)
_CLIPS = (1.0, 1 / 4, 1 / 16, 1 / 64)  # shares of the derivatives' bound
_NEGLIGIBLE = 0.1  # added to shares of the public point's excess: smaller differences hardly count
_HOPELESS = math.log(0.97 + _NEGLIGIBLE)


def trial_walks(settings: Sequence[Steps], trials: Trials, toward: Callable[[Floats], Floats]) -> Floats:
    """(rows, p) what walks side by side release; they end after ``MOST_STEPS`` steps."""
    few = [replace(steps, count=min(steps.count, MOST_STEPS)) for steps in settings]
    sizes, shares = (trials.each([getattr(steps, name) for steps in few]).T for name in ("sizes", "shares"))
    return walk(sizes[..., None], shares[..., None], trials.rows.start, toward)


def predicted(model: PrivateRegression, steps: Steps, excess: Excess) -> float:
    """Mean excess risk over the populations of forecasts."""
    runs = max(1, min(4, MOST_STEPS // steps.count, _NUMBERS // model.size))
    return float(excess([steps], populations_of(model), range(1000, 1000 + runs)).mean())


def settings_losses(model: PrivateRegression, settings: Sequence[Steps], excess: Excess) -> list[float]:
    """Losses by which settings with the same number of steps are compared: logarithms of geometric means over
    the populations that choose. Means of shares (plus 0.1), as 0.03 in place of 0.3 is worth more than 1 in place of
    1.2: the excess over that of the public point, in the population with most to gain at this strength of signal."""
    populations, unit = walkers(model)
    shares = excess(settings, populations, range(_runs(model, settings[0].count))) / unit
    return list(np.log(np.maximum(shares, 0.0) + _NEGLIGIBLE).mean(axis=1).tolist())


def _runs(model: PrivateRegression, count: int) -> int:
    return max(1, min(_SHORT // count, 4, _NUMBERS // model.size))


def chosen_steps(model: PrivateRegression, excess: Excess, given: dict[str, float], most: int = MOST_STEPS) -> Steps:
    """The settings with the least ``settings_losses``; those ``given`` stay.

    One setting moves at a time: T by factors of 2 and 4, the clip, the rate, T again. Where a few steps learn nothing,
    neither with the least noise nor with short steps, no more is searched.
    """
    bound, populations = model.derivative_bound, walkers(model)[0]
    width = populations.count * max(model.size, populations.points)

    def risks(settings: Sequence[Steps]) -> list[float]:
        at_once = max(1, SIDE_BY_SIDE // (_runs(model, settings[0].count) * width))
        parts = [settings[at : at + at_once] for at in range(0, len(settings), at_once)]
        return [loss for part in parts for loss in settings_losses(model, part, excess)]

    compared = Compared(risks)
    # Others have to be better by more than the tie: less may be luck.
    least = partial(compared.least, rank=float, tie=0.01)
    clips = [share * bound if share < 1 else math.inf for share in _CLIPS] if math.isfinite(bound) else [math.inf]
    clip = given.get("clip", clips[min(2, len(clips) - 1)])
    clips = [clip] if "clip" in given else clips
    start = Steps(int(given.get("steps", 16)), given.get("rate", 0.0), given.get("average", 0.5), clip)
    rates = [start.rate] if "rate" in given else list(_RATES)
    cautious = [
        replace(start, rate=rate, clip=cut)
        for cut in dict.fromkeys((clip, clips[-1]))
        for rate in dict.fromkeys((start.rate, *rates[1:2]))
    ]
    best = least([start, *cautious])
    if compared.risk(best) > _HOPELESS:
        return best
    best, moves = start, "steps" not in given
    # Clips and rates are compared in walks of medium length.
    best = _doubling(best, least, min(most, _SHORT)) if moves else best
    best = least([best, *(replace(best, clip=cut) for cut in clips)])
    best = least([best, *(replace(best, rate=rate) for rate in rates)])
    if not moves:
        return best
    # Long walks favour other rates.
    long = [
        replace(best, count=min(2 * _SHORT, most), rate=rate)
        for rate in dict.fromkeys((best.rate, rates[0], rates[-1]))
    ]
    least(long)
    return _doubling(least([best, *long]), least, most)


def _doubling(start: Steps, least: Callable[[Sequence[Steps]], Steps], most: int) -> Steps:
    """Double or halve T while it helps; a walk four times as long may do better where one twice as long does not."""
    best = start
    for factors in ((2.0, 4.0), (0.5,)):
        tried = list(factors)
        while tried:
            other = replace(best, count=min(max(round(best.count * tried.pop(0)), 1), most))
            least([best]), least([other])
            if other != best and least([best, other]) == other:
                best, tried = other, list(factors)
        if best != start:
            break
    return best
