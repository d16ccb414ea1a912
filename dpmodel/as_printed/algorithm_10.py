"""KMMST24's Algorithm 10 as printed, with the constants that its proofs need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, Mask
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.exact.cones import GridRows, allowance, cone_eligible, grid_direction
from dpmodel.exact.model import Found, PrivateInequalities
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.kernels.direct_measurement import ROUNDING
from dpmodel.privacy import NoiseSource, zcdp_rho

# More rounds than this are not run.
MOST_ROUNDS = 100_000


@dataclass(frozen=True)
class Constants:
    """Numbers in Algorithm 10 and its proofs; other values than the paper's void the accuracy, never the privacy.

    ``flat`` : Delta = 1 / (flat d). ``steps`` : perceptron steps, times d^2 (Lemma 30). ``growth`` : rescalings are
    ``growth d ln(1 / (flat d rho0))`` (Lemma 34, (17)), at least ``luck ln(1/beta)`` (Azuma's inequality there).
    ``lucky`` : least probability with which an improvement phase starts near a solution (Observation 32).
    ``thresholds`` : factor of nu and zeta.
    """

    flat: float = 500.0
    steps: float = 9_000_000.0
    growth: float = 1000.0
    luck: float = 2.0 * 256**2
    lucky: float = 1 / 8
    thresholds: float = 1.0


AS_PRINTED = Constants()


@dataclass(frozen=True)
class Schedule:
    """Public numbers of a run.

    ``flat`` : Delta. ``tries``, ``inner`` : improvement phases per rescaling and their steps. ``steps`` : perceptron
    steps per rescaling. ``rescalings`` : T. ``epsilon``, ``delta`` : of one noisy average; a count has the same
    epsilon. ``few`` (nu), ``done`` (zeta) : noisy counts that end an improvement and a perceptron phase. ``missed`` :
    rows that the proofs give up.
    """

    flat: float
    tries: int
    inner: int
    steps: int
    rescalings: int
    epsilon: float
    delta: float
    few: float
    done: float
    missed: float

    @property
    def rounds(self) -> int:
        """k: noisy averages in all, with one noisy count each."""
        return self.rescalings * (self.tries * self.inner + self.steps)


def schedule(size: int, margin: float, options: Options, constants: Constants) -> Schedule:
    """The numbers of Algorithm 10 for d = ``size``, each Theta replaced by what its proof uses.

    beta is split evenly over the three ways to fail: too few lucky rescalings, noise in improvement phases, noise in
    perceptron phases (and is at most 1/256 in each, as Lemma 34 asks); a union bound over rounds gives L = ln(6 k /
    beta) for every normal or Laplace variable. Perceptron phase (Lemma 30): ``sigma sqrt(2 L) <= 1 / (12000 d)`` and
    ``sigma^2 (d + 2 sqrt(d L) + 2 L) <= 1/4``. Improvement phase (Lemma 31): ``sigma <= Delta / (2 sqrt(2 L))``,
    ``sigma <= 1 / (2 t sqrt(8 d L))`` and ``2 sigma sqrt(2 L) + 5 d sigma^2 L < 1/2``. A phase that goes on has
    m >= threshold / 2, so the noisy number inside ``noisy_average`` is at least ``threshold / 2 - (2/epsilon) (L +
    ln(2/delta))``, and sigma follows. Counts err by half a threshold at most, so each rescaling gives up at most
    3 nu / 2 rows and the last phase 3 zeta / 2.
    """
    beta = min(options.beta / 3, 1 / 256)
    flat = 1 / (constants.flat * size)
    inner = math.ceil(8 / flat**2 * math.log(3 * math.sqrt(size)))
    tries = math.ceil(math.log(1 / beta) / -math.log1p(beta - constants.lucky))
    steps = math.ceil(constants.steps * size**2)
    growth = constants.growth * size * math.log(max(flat / margin, 1.0))
    rescalings = max(1, math.ceil(max(growth, constants.luck * math.log(1 / beta) if growth > 0 else 0)))
    rounds = rescalings * (tries * inner + steps)
    # k pure counts of epsilon and k averages of (epsilon, delta / 2k): delta/2-approximate zCDP of 2 k epsilon^2 / 2.
    epsilon = min(math.sqrt(zcdp_rho(options.epsilon, options.delta / 2) / rounds), 2.0) * (1 - 1e-12)
    delta = options.delta / (2 * rounds) * (1 - 1e-12)
    log = math.log(6 * rounds / beta)
    square = size + 2 * math.sqrt(size * log) + 2 * log
    narrow = min(1 / (24 * constants.flat * size * math.sqrt(2 * log)), 1 / math.sqrt(4 * square))
    flattest = min(
        flat / (2 * math.sqrt(2 * log)),
        1 / (2 * inner * math.sqrt(8 * size * log)),
        1 / (8 * math.sqrt(2 * log)),
        1 / math.sqrt(20 * size * log),
    )

    def threshold(sigma: float) -> float:
        return (
            2
            * constants.thresholds
            * (average_sigma(1.0, epsilon, delta) / sigma + 2 / epsilon * (log + math.log(2 / delta)))
        )

    few, done = threshold(flattest), threshold(narrow)
    missed = 1.5 * (rescalings * few + done)
    return Schedule(flat, tries, inner, steps, rescalings, epsilon, delta, few, done, missed)


@dataclass(frozen=True)
class Algorithm10(Mechanism[PrivateInequalities]):
    """Dunagan and Vempala's rescaling perceptron with noisy averages, as printed; for study.

    Source
        KMMST24, Algorithms 9 and 10, Lemmas 30, 31, 33 and 34, Theorems 7 and 8.
    Privacy
        Every round releases a count with Laplace noise (sensitivity 1, both neighbor relations) and a noisy average
        (``noisy_average``). Deleting rows and rescaling them is done row by row by released vectors, so a record still
        owns its row alone. Theorem 8 counts only the averages; here both are counted: k rounds cost
        ``k epsilon^2 / 2 + k epsilon^2 / 2`` in zCDP, up to a delta of ``k delta_step``, half of the whole; k is the
        largest number of rounds that can happen. Where no improvement phase succeeds, nothing is deleted or rescaled.
    Utility
        Theorem 7 with its constants (``schedule``): if n exceeds ``needed``, at most ``missed`` rows are missed with
        probability 1 - beta, where the margin is at least rho0. Rows needed and rounds are astronomical.
    Cost
        Up to k rounds of two products with the rows; planned runs of more than 100,000 rounds are refused.
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities, as_printed=True)
    name: str = "algorithm-10"
    source: str = "KMMST24, Algorithm 10 and Theorems 7 and 8, with Laplace counts accounted for"
    constants: Constants = AS_PRINTED

    def eligible(self, model: PrivateInequalities, options: Options) -> Verdict:
        if options.delta == 0:
            return Verdict(False, "KMMST24, Theorem 8, needs delta > 0")
        other = cone_eligible(model)
        if other is not None or model.margin is None:
            return other or YES
        if model.cone.shape[0] > (0 if model.homogeneous else 1):
            return Verdict(False, "KMMST24, Algorithm 10, has no public constraints that must hold")
        plan = schedule(model.cone_dimension, model.margin, options, self.constants)
        if plan.rounds > MOST_ROUNDS:
            return Verdict(
                False,
                f"KMMST24's proofs ask for {plan.rounds:.2g} rounds and {plan.missed:.2g} rows "
                f"(at most {MOST_ROUNDS} rounds are run)",
            )
        if plan.flat / 24 < 2 * allowance(model.cone_dimension):
            return Verdict(False, "double precision does not resolve Delta / 24")
        return YES

    def forecast(self, model: PrivateInequalities, options: Options) -> Forecast:
        plan = schedule(model.cone_dimension, float(model.margin or 0.0), options, self.constants)
        proved = self.constants == AS_PRINTED
        words = f"at most {plan.missed:.3g} rows missed with probability {1 - options.beta:g}"
        return model.forecast(
            options,
            words,
            RowsMissed(missed=plan.missed if proved else math.inf, needed=plan.missed),
            proved=proved,
            work=f"up to {plan.rounds:.3g} rounds of two products with the rows",
            noise={
                "rescalings": plan.rescalings,
                "improvement phases in each": plan.tries,
                "steps of an improvement phase": plan.inner,
                "steps of a perceptron phase": plan.steps,
                "epsilon of a count and of an average": plan.epsilon,
                "delta of an average": plan.delta,
                "nu": plan.few,
                "zeta": plan.done,
            },
            caveats=(
                "all of it rests on the promised margin; without it privacy holds and utility may fail",
                *(() if proved else ("constants were changed: nothing is proved",)),
            ),
        )

    def run(
        self, model: PrivateInequalities, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        size = model.cone_dimension
        plan = schedule(size, float(model.margin or 0.0), options, self.constants)
        given = GridRows.of(model.lifted(*model.read_rows()))
        back, left = np.eye(size), given.live
        for attempt in range(plan.rescalings):
            progress(f"Algorithm 10, at most {plan.rescalings} rescalings", attempt / plan.rescalings)
            rows = given if attempt == 0 else given.rescaled(back)
            rows = GridRows(rows.rows, left & rows.live)
            y = _improved(rows, plan, noise)
            if y is not None:
                left = left & ~rows.below(grid_direction(y), -plan.flat)
                rows = GridRows(rows.rows, left & rows.live)
            found = _perceptron(rows, plan, noise)
            if found is not None:
                x, count = back @ found[0], found[1]
                if not model.homogeneous and not x[0] > 1e-9 * float(np.linalg.norm(x)):
                    return Found("nothing", None, None, ("the point found has x0 <= 0",))
                return Found("found", model.lowered(x), count, (f"{attempt} rescalings",))
            if y is not None:
                unit = y / float(np.linalg.norm(y))
                back = back + np.outer(back @ unit, unit)
        return Found("nothing", None, None, (f"no success in {plan.rescalings} rescalings",))


def noisy_average(rows: GridRows, chosen: Mask, epsilon: float, delta: float, noise: NoiseSource) -> Floats | None:
    """NoisyAVG: (D,) the average of the chosen rows with Gaussian noise, or None (the paper's bottom).

    Source
        KMMST24, Algorithm 9; Nissim, Stemmer and Vadhan 2016.
    Privacy
        (epsilon, delta)-DP for add-remove and replace-one, epsilon < 2, where ``chosen`` is decided row by row. One
        record moves the number of chosen rows by at most 1, so ``M = m + Lap(2/epsilon) - (2/epsilon) ln(2/delta)``
        costs epsilon/2 and exceeds m with probability delta/4 at most. Averages over m rows and over one more differ by
        ``||a - average|| / (m + 1) <= 2 / (m + 1)``; if one of m rows is replaced, by ``2 / m``. So given an M of at
        most the larger number, the average moves by at most 2 / M, and Gaussian noise of standard deviation ``(4 /
        (epsilon M)) sqrt(2 ln(8/delta))`` costs epsilon/2 and ``1.25 delta / 8`` (Dwork and Roth 2014, Theorem A.1). In
        all ``delta (1/4 + 1.25 e^(epsilon/2) / 8) < delta``. The average of no rows is zero. Its rounding, and the
        2^-17 by which the grid makes rows longer at most, are covered by ``ROUNDING``, which widens the noise.

    Parameters
    ----------
    chosen : (n,) mask of rows.
    epsilon, delta : of this release, both positive.
    """
    number = rows.number(chosen)
    guess = float(noise.laplace(np.array([number]), 2 / epsilon)[0]) - 2 / epsilon * math.log(2 / delta)
    if guess <= 0:
        return None
    return noise.gaussian(rows.sum(chosen) / max(number, 1.0), average_sigma(guess, epsilon, delta))


def average_sigma(guess: float, epsilon: float, delta: float) -> float:
    """Standard deviation of the noise on each entry, for a noisy number ``guess`` > 0 of rows."""
    return 4 / (epsilon * guess) * math.sqrt(2 * math.log(8 / delta)) * (1 + ROUNDING)


def _improved(rows: GridRows, plan: Schedule, noise: NoiseSource) -> Floats | None:
    """Step 2: (D,) a direction that few rows oppose, or None."""
    for _ in range(plan.tries):
        y = noise.gaussian(np.zeros(rows.size), 1.0)
        y = y / max(float(np.linalg.norm(y)), 1e-300)
        for _ in range(plan.inner):
            chosen = rows.below(grid_direction(y), -plan.flat)
            count = float(noise.laplace(np.array([rows.number(chosen)]), 1 / plan.epsilon)[0])
            if np.any(y) and count <= plan.few:
                return y
            u = noisy_average(rows, chosen, plan.epsilon, plan.delta, noise)
            if u is None:
                break
            y = y - (u @ y) * u
    return None


def _perceptron(rows: GridRows, plan: Schedule, noise: NoiseSource) -> tuple[Floats, float] | None:
    """Steps 4 and 5: (D,) a point and its noisy count, or None."""
    x = np.eye(1, rows.size)[0]
    # The paper has <a, x> <= Delta / 24; on the grid of the rows < is the same up to one unit of 2^-52.
    least = math.nextafter(plan.flat / 24, 1.0)
    for _ in range(plan.steps):
        chosen = rows.below(grid_direction(x), least)
        count = float(noise.laplace(np.array([rows.number(chosen)]), 1 / plan.epsilon)[0])
        if count <= plan.done:
            return x, count
        u = noisy_average(rows, chosen, plan.epsilon, plan.delta, noise)
        if u is None:
            return None
        x = x + u
    return None


ALGORITHM_10 = Algorithm10()
