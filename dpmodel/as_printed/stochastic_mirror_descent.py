"""Noisy mirror descent on one fresh record at a time, for non-smooth losses at very small epsilon, as printed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource, gaussian_mu, public_generator
from dpmodel.regressions.excess import excess_forecast
from dpmodel.regressions.model import PrivateRegression, public_point
from dpmodel.regressions.populations import Populations
from dpmodel.regressions.rows import Rows
from dpmodel.regressions.synthetic import each_population
from dpmodel.text import number

_LARGEST_STEP = 0.5  # epsilon <= 1 / (2 sqrt n), in the unit of one step
_SIMULATED_STEPS = 150


@dataclass(frozen=True)
class Descent:
    """Settings from public facts. ``step_epsilon``, ``step_delta`` : guarantee of one step for the record it reads;
    ``epsilon`` : of the whole; ``sigma`` : of the noise; ``rate`` : step size; ``fresh`` : records read;
    ``steps`` : steps at most."""

    step_epsilon: float
    step_delta: float
    epsilon: float
    sigma: float
    rate: float
    fresh: int
    steps: int


@dataclass(frozen=True)
class StochasticMirrorDescent(Mechanism[PrivateRegression]):
    """Draw an index; if its record is new, step along its noisy gradient, otherwise along noise alone; project.

    Source
        Arora, Marinov and Ullah 2020, Algorithm 1 and Theorem 6 (Euclidean potential): step size ``D / (sqrt n (L +
        sigma sqrt d))``, ``sigma = 8 L sqrt(ln 1/delta) / (sqrt n epsilon)``, epsilon <= 1/(2 sqrt n), final
        epsilon ``4 epsilon (sqrt(ln 1/delta') + 2)``. Mended: the noise has *variance* sigma^2; Theorem 2 stops after
        n/2 records, and so does this; steps are capped at 2n, which is a public event; the sensitivity of a
        gradient is that of replacing a record (2 L), with sigma at least what (step_epsilon, step_delta) takes exactly.
    Privacy
        The published proof conditions on the iterates and bounds each step by amplification with p = 1/n. Which records
        were read is hidden state, though, and its distribution given the iterates depends on the data; and an average
        over fresh steps depends on which steps were fresh. So this guarantee rests on another theorem. Whether a draw
        is new given k read has probability 1 - k/n and does not depend on data: the pattern of fresh steps may be
        public. Given the pattern, the records read are the first n/2 of a uniformly random order, and each step is a
        function of what was released before and of one record, (step_epsilon, step_delta)-DP for replacing that record
        (Gaussian noise, sensitivity 2 L, L = derivative bound times the largest 2-norm of a row, also for absent
        records). Steps on noise alone are functions of released numbers. That is a sequence of adaptive local
        randomisers on shuffled records (those after n/2 are not released), so by Feldman, McMillan and Talwar 2021,
        Theorems 3.1 and
        3.8, for ``e0 = step_epsilon <= ln(n / (16 ln(2/delta')))`` it is (epsilon, delta)-DP with

            epsilon = ln(1 + (e^e0 - 1)/(e^e0 + 1) (8 sqrt(e^e0 ln(4/delta')) / sqrt n + 8 e^e0 / n)),
            delta = delta' + (e^epsilon + 1) (1 + e^-e0 / 2) n step_delta.

        Half of delta goes to each part, and the larger of this epsilon and the printed one has to fit. The average
        over fresh steps is a function of what that theorem releases. Order and pattern are drawn from
        the noise source.
    Utility
        Theorem 4: the expected excess risk on the *population* is at most a constant times ``D (L + sigma sqrt d) /
        sqrt n``. With sigma about 70 L at delta = 1e-6 that says something for n far above 5,000 d only.
    Cost
        At most 2n draws of d numbers, one record per fresh step: one pass.
    Errors
        Refuses by ``eligible``: epsilon beyond the theorem's range, delta = 0, weights, unbounded sets or derivatives.
    """

    serves: ClassVar[Serves] = Serves(PrivateRegression, as_printed=True, adds_up=False)
    name: str = "stochastic-mirror-descent"
    source: str = "Arora, Marinov and Ullah 2020, Algorithm 1 and Theorem 6"

    def eligible(self, model: PrivateRegression, options: Options) -> Verdict:
        n = model.count
        if options.delta <= 0:
            return Verdict(False, "its Gaussian noise needs delta > 0")
        if not model.domain.bounded:
            return Verdict(False, "the set of coefficients is not bounded: the step size is its diameter's")
        if not math.isfinite(model.derivative_bound * model.row.norm(2.0)):
            return Verdict(False, "gradients are not bounded: bound the rows, or clip residuals")
        if model.largest_weight != 1 or abs(model.total - n) > 1e-9 * n:
            return Verdict(False, "rows have weights: it reads rows one by one, all alike")
        if n < 16:
            return Verdict(False, "Theorem 6 needs n >= 16")
        reach = largest_epsilon(n, options.delta)
        if reach is None:
            return Verdict(False, "n is too small for amplification by a random order at this delta")
        if options.epsilon > reach:
            rows = applicable_rows(options.epsilon, options.delta)
            return Verdict(
                False,
                f"Theorem 6 needs epsilon <= 1/(2 sqrt n) in its own unit, which is {number(reach)} in all at "
                f"n={n}: it says nothing about epsilon={number(options.epsilon)}; ask for epsilon <= {number(reach)}"
                + (f", or bring at most {rows} rows" if rows else ""),
            )
        if n > 200_000 or n * model.size > 5_000_000:
            return Verdict(False, f"it would draw noise {n} times and more, one call each")
        return YES

    def settings(self, model: PrivateRegression, options: Options) -> Descent:
        return plan_descent(model, options.epsilon, options.delta)

    def forecast(self, model: PrivateRegression, options: Options) -> Forecast:
        plan = self.settings(model, options)
        scale = plan.sigma * math.sqrt(model.size) + gradient_size(model)
        theorem = model.weight * model.domain.diameter(2.0) * scale / math.sqrt(model.count)
        return excess_forecast(
            model,
            options,
            predicted=_predicted(model, plan),
            work=f"at most {plan.steps} steps on one record or none",
            noise={
                "kind": "gaussian",
                "standard deviation of each entry": plan.sigma,
                "epsilon of one step": plan.step_epsilon,
                "delta of one step": plan.step_delta,
                "records read": plan.fresh,
                "step size": plan.rate,
            },
            caveats=(
                f"Theorem 4: a constant times {number(theorem)} on the population, in expectation",
                "for study: larger epsilon or other mechanisms do better",
            ),
        )

    def run(
        self, model: PrivateRegression, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        plan, rows, p = self.settings(model, options), model.read_rows(), model.size
        keys = noise.gaussian(np.zeros((2, model.count)), 1.0)  # two each: ties in double precision are no accident
        order = np.lexsort((keys[0], keys[1]))[: plan.fresh]
        pattern = fresh_pattern(model.count, plan, noise)
        w, total, k = public_point(model), np.zeros(p), 0
        for t, fresh in enumerate(pattern):
            if t % max(pattern.size // 20, 1) == 0:
                progress("mirror descent, one record at a time", t / pattern.size)
            if fresh:
                total += w
                g = noise.gaussian(record_gradient(model, rows, int(order[k]), w), plan.sigma)
                k += 1
            else:
                g = noise.gaussian(np.zeros(p), plan.sigma)
            # The penalty is public: its subgradient needs no noise.
            g = g + model.penalty.subgradient(w) / model.weight if fresh else g
            w = model.domain.project(w - plan.rate * g)
        return Outcome("optimal", model.domain.project(total / max(k, 1)), None, None)


def record_gradient(model: PrivateRegression, rows: Rows, i: int, w: Floats) -> PrivateArray:
    """(p,) a subgradient of record i's loss, the derivative cut to its bound."""
    a = np.zeros(rows.size)
    for matrix, start in rows.blocks:
        row = matrix[[i]]
        a[start : start + matrix.shape[1]] = (row.toarray() if sp.issparse(row) else row).ravel()
    z = np.array([a @ w + (0.0 if rows.offset is None else rows.offset[i])])
    s = np.clip(model.loss.derivative(z, rows.labels[i : i + 1]), -model.derivative_bound, model.derivative_bound)
    return PrivateArray(float(s[0]) * a)


def fresh_pattern(n: int, plan: Descent, noise: NoiseSource) -> np.ndarray:
    """(steps,) whether each step's index was new: new with probability 1 - k/n after k new ones. No data enters."""
    coins = ndtr(noise.gaussian(np.zeros(plan.steps), 1.0))
    out, k = np.zeros(plan.steps, dtype=bool), 0
    for t in range(plan.steps):
        if coins[t] < 1 - k / n:
            out[t], k = True, k + 1
            if k == plan.fresh:
                return out[: t + 1]
    return out


# ---------------------------------------------------------------------- from public facts to noise
def shuffled_epsilon(step: float, n: int, delta: float) -> float:
    """Feldman, McMillan and Talwar 2021, Theorem 3.1; inf outside its range."""
    if n <= 16 * math.log(2 / delta) or step > math.log(n / (16 * math.log(2 / delta))):
        return math.inf
    e = math.exp(step)
    return math.log1p(math.tanh(step / 2) * (8 * math.sqrt(e * math.log(4 / delta) / n) + 8 * e / n))


def printed_epsilon(step: float, n: int, delta: float) -> float:
    """Theorem 6's final epsilon, ``step = sqrt(n) epsilon`` there."""
    return 4 * step / math.sqrt(n) * (math.sqrt(math.log(1 / delta)) + 2)


def whole_epsilon(step: float, n: int, delta: float) -> float:
    """The larger of the two, half of delta in either."""
    return max(shuffled_epsilon(step, n, delta / 2), printed_epsilon(step, n, delta / 2))


def largest_epsilon(n: int, delta: float) -> float | None:
    """The largest final epsilon that the theorem makes a statement about; None where it makes none."""
    reach = whole_epsilon(_LARGEST_STEP, n, delta)
    return reach if math.isfinite(reach) else None


def applicable_rows(epsilon: float, delta: float) -> int:
    """The largest n for which this epsilon is in range; 0 where there is none."""
    low = math.ceil(16 * math.log(4 / delta) * math.exp(_LARGEST_STEP)) + 1
    if whole_epsilon(_LARGEST_STEP, low, delta) < epsilon:
        return 0
    high = 2 * low
    while whole_epsilon(_LARGEST_STEP, high, delta) >= epsilon:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if whole_epsilon(_LARGEST_STEP, middle, delta) >= epsilon else (low, middle)
    return low


def gradient_size(model: PrivateRegression) -> float:
    """L: the Lipschitz constant of one record's loss, in the 2-norm."""
    return model.derivative_bound * model.row.norm(2.0)


@cached
def plan_descent(model: PrivateRegression, epsilon: float, delta: float) -> Descent:
    """The largest step epsilon whose whole costs at most ``epsilon``, and the printed settings for it."""
    n = model.count
    low, high = 0.0, _LARGEST_STEP
    if whole_epsilon(high, n, delta) > epsilon:
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if whole_epsilon(middle, n, delta) <= epsilon else (low, middle)
    else:
        low = high
    step = low
    step_delta = delta / 2 / (n * (math.exp(epsilon) + 1) * (1 + math.exp(-step) / 2))
    lipschitz = gradient_size(model)
    # Amplification compares any two records that may stand in a place, also where neighbours differ by an absent one.
    # Products of one row, each off by an ulp: far below this allowance.
    sensitivity = 2 * lipschitz * (1 + 1e-9)
    sigma = max(sensitivity / gaussian_mu(step, step_delta), 8 * lipschitz * math.sqrt(math.log(1 / step_delta)) / step)
    diameter = model.domain.diameter(2.0)
    steep = lipschitz + float(np.linalg.norm(model.penalty.subgradient(public_point(model)))) / model.weight
    rate = diameter / (math.sqrt(n) * (steep + sigma * math.sqrt(model.size)))
    return Descent(step, step_delta, epsilon, sigma, rate, -(-n // 2), 2 * n)


@cached
def _predicted(model: PrivateRegression, plan: Descent) -> float:
    return float(np.mean([_simulate(model, plan, one) for one in each_population(model)]))


def _simulate(model: PrivateRegression, plan: Descent, one: Populations) -> float:
    """Excess risk on a synthetic population: many steps at a time, with the noise of all of them."""
    generator = public_generator(2)
    n = model.count
    # k new ones take n ln(n / (n - k)) draws; equal parts of the new ones here.
    ends = n * -np.log1p(-np.linspace(0, plan.fresh / n, _SIMULATED_STEPS + 1) * (1 - 1e-12))
    fresh = plan.fresh / _SIMULATED_STEPS
    w, total = public_point(model), np.zeros(model.size)
    for draws in np.diff(ends):
        total += w
        g = (one.gradients(w[None])[0] + model.penalty.subgradient(w)) / model.weight * fresh
        g = g + generator.standard_normal(model.size) * plan.sigma * math.sqrt(draws)
        w = model.domain.project(w - plan.rate * g)
    return float(one.excess(model.domain.project(total / _SIMULATED_STEPS)[None])[0])


STOCHASTIC_MIRROR_DESCENT = StochasticMirrorDescent()
__all__ = ["STOCHASTIC_MIRROR_DESCENT", "StochasticMirrorDescent"]
