"""The two papers' algorithms with their best settings in hindsight: chosen on the very data that they are judged by.

For each setting (number of steps, size of a step, bound on prices) the least margin, as a part of every capacity, is
looked for with which no resource is over its capacity in a few runs. Settings are those of a grid (3 to 100 steps),
about the printed step size and the true norm of the best prices, and from the best of these on whatever neighbour is
better, until none is, five times at most and with 100 steps at most. The best fifteen run on all seeds, with margins
that grow until no run is over. None of this could be done under privacy; it is what the algorithms could reach if
everything were guessed right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from time import process_time

import numpy as np

from dpmodel._types import Floats
from dpmodel.as_printed.jointly_private_programming import (
    JOINTLY_PRIVATE_PROGRAMMING,
    JointlyPrivateProgramming,
    Public,
)
from dpmodel.as_printed.noisy_dual_mirror_descent import NOISY_DUAL_GRADIENT_DESCENT, NOISY_DUAL_MIRROR_DESCENT
from dpmodel.contract import Options
from dpmodel.joint.form import People
from dpmodel.joint.respond import respond
from tests.benchmarks.joint.instances import Instance
from tests.benchmarks.joint.optimum import Handed, Optimum

ANCHORS: tuple[JointlyPrivateProgramming, ...] = (
    JOINTLY_PRIVATE_PROGRAMMING,
    NOISY_DUAL_GRADIENT_DESCENT,
    NOISY_DUAL_MIRROR_DESCENT,
)
_STEPS, _MARGINS = (3, 10, 30, 100), np.linspace(0, 0.95, 20)
# Bounds on prices as multiples of the norm of the true best ones (a margin needs higher ones; the entropy starts at the
# mean of what its bound allows), and step sizes as multiples of the printed ones.
_GRID = {
    NOISY_DUAL_MIRROR_DESCENT.name: ((1.0, 1.4, 2.0, 16.0), (2.0, 5.0, 12.0, 30.0)),
    NOISY_DUAL_GRADIENT_DESCENT.name: ((2.0, 5.0), (0.5, 1.0, 2.0, 4.0, 8.0)),
    JOINTLY_PRIVATE_PROGRAMMING.name: ((2.0, 5.0), (0.5, 1.0, 2.0, 4.0, 8.0)),
}
# Neighbours of a setting: factors of the number of steps, of the bound on prices and of the step size.
_MOVES = (
    (3, 1, 1),
    (1 / 3, 1, 1),
    (1, 1.2, 1),
    (1, 1 / 1.2, 1),
    (1, 1, 2),
    (1, 1, 1 / 2),
    (3, 1, 2),
    (1 / 3, 1, 1 / 2),
)
_FEWEST, _MOST, _CLIMBS = 2, 100, 5
# Runs that a margin is looked for with, settings that are run on all seeds, and by how much margins grow there.
_TRIES, _FINALISTS, _MORE = 5, 15, 0.025

# Steps, bound on prices, factor of the step size.
Setting = tuple[int, float, float]


@dataclass(frozen=True)
class Best:
    """``shares`` of the optimum in all runs, with these settings; ``seconds`` of a run."""

    anchor: JointlyPrivateProgramming
    shares: tuple[float, ...]
    seconds: float

    @property
    def settings(self) -> str:
        found = self.anchor
        bound = 0.0 if found.dual_bound is None else found.dual_bound
        return f"T {found.steps}, step x {found.pace:.3g}, margin {found.margin:.2f}, prices {bound:.3g}"


def public(of: Instance, largest_use: float, neighbors: str, anchor: JointlyPrivateProgramming) -> Public:
    """What the algorithm is told."""
    moved = largest_use * (1.0 if neighbors == "add-remove" else np.sqrt(2.0))
    assert anchor.dual_bound is not None
    return Public(of.capacity, of.people, largest_use, float(moved), anchor.dual_bound)


def run(anchor: JointlyPrivateProgramming, of: Instance, given: Public, options: Options, seed: int) -> Handed:
    """One run: means of values and uses over the steps are those of the mean shares."""
    form, total, rng = of.form, np.zeros(of.capacity.size + 1), np.random.default_rng(seed)

    def measure(prices: Floats, scale: float) -> Floats:
        def part(people: People, first: int) -> Floats:
            x, use = respond(form, people, prices, given.radius)
            return np.append(use.sum(axis=0), (people.values * x).sum())

        found = np.asarray(of.table.map_reduce(part))
        np.add(total, found, out=total)
        return found[:-1] + rng.normal(0, scale, found.size - 1)

    prices, _ = anchor.walk(measure, given, options)
    return Handed(float(total[-1]) / len(prices), total[:-1] / len(prices))


def best_of(
    anchor: JointlyPrivateProgramming,
    of: Instance,
    best: Optimum,
    largest_use: float,
    neighbors: str,
    options: Options,
    runs: int,
) -> Best | None:
    """None where no setting had all runs without an overloaded resource."""

    def shares(tried: JointlyPrivateProgramming, seeds: range) -> tuple[float, ...]:
        """Those before the first run that is over."""
        given, out = public(of, largest_use, neighbors, tried), []
        for seed in seeds:
            found = run(tried, of, given, options, seed)
            if found.over(of.capacity):
                break
            out.append(found.value / best.value)
        return tuple(out)

    found: dict[Setting, tuple[float, int, JointlyPrivateProgramming]] = {}
    last = _MARGINS.size - 1

    def passes(setting: Setting, place: int) -> bool:
        """Whether no run of a few is over with this margin; enters the mean share."""
        steps, bound, pace = setting
        made = replace(anchor, steps=steps, pace=pace, margin=float(_MARGINS[place]), dual_bound=bound)
        seen = shares(made, range(_TRIES))
        if len(seen) == _TRIES:
            found[setting] = float(np.mean(seen)), place, made
        return len(seen) == _TRIES

    def halved(setting: Setting) -> None:
        """The least margin of all."""
        found[setting] = 0.0, last, anchor
        low, high = -1, last if passes(setting, last) else 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if passes(setting, middle) else (middle, high)

    def beside(setting: Setting, place: int) -> None:
        """The least margin about that of a neighbour."""
        found[setting] = 0.0, last, anchor
        least = next((p for p in range(place, min(place + 5, last + 1)) if passes(setting, p)), 0)
        while least > 0 and passes(setting, least - 1):
            least -= 1

    norm = float(np.linalg.norm(best.prices, 1 if anchor.name == NOISY_DUAL_MIRROR_DESCENT.name else 2))
    for steps, factor, pace in product(_STEPS, *_GRID[anchor.name]):
        halved((steps, factor * norm, pace))
    for _ in range(_CLIMBS if any(value for value, _, _ in found.values()) else 0):
        here = max(found, key=lambda setting: found[setting][0])
        near = [(round(here[0] * a), here[1] * b, here[2] * c) for a, b, c in _MOVES]
        for setting in near:
            if _FEWEST <= setting[0] <= _MOST and setting not in found:
                beside(setting, found[here][1])
        if max(found, key=lambda setting: found[setting][0]) == here:
            break
    winner: Best | None = None
    for value, _, made in sorted(found.values(), key=lambda each: -each[0])[:_FINALISTS]:
        while made.margin < 1 and value > (0.0 if winner is None else np.mean(winner.shares)):
            start = process_time()
            seen = shares(made, range(100, 100 + runs))
            if len(seen) == runs:
                if winner is None or np.mean(seen) > np.mean(winner.shares):
                    winner = Best(made, seen, (process_time() - start) / runs)
                break
            made = replace(made, margin=made.margin + _MORE)
    return winner
