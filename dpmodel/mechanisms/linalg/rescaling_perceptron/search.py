"""The search of the rescaling perceptron, with the noise left open: mechanisms and simulations share it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats
from dpmodel.mechanisms.contract import Progress, no_progress
from dpmodel.mechanisms.linalg.rescaling_perceptron.plan import SearchPlan
from dpmodel.mechanisms.linalg.rescaling_perceptron.rows import GridRows
from dpmodel.numerics.polytopes.cone_projection import projector

# (values, deviation) to values with independent normal noise of that deviation.
Draw = Callable[[Floats, float], Floats]
# Steps are the mean of the violated rows, shrunk where these are few: by this many norms of the noise on their sum.
_DAMPING = 3.0
# The part of the noise's size that is added to the eigenvalues of noisy second moments.
_RIDGE = 0.2
# A candidate other than the last one must have a smaller count by so many deviations of a difference.
_SURELY = 2.0
# Least x0 of a unit cone point (x0, x) that stands for the point x / x0.
_LEAST_FIRST = 1e-9


@dataclass(frozen=True, eq=False)
class Searched:
    """Released: ``point`` (D,) in the cone, of norm 1, or None; ``missed`` : its noisy count; ``rounds`` : used."""

    point: Floats | None
    missed: float
    rounds: int


def search(
    rows: GridRows, plan: SearchPlan, cone: Floats, homogeneous: bool, draw: Draw, progress: Progress = no_progress
) -> Searched:
    """Run the schedule on ``rows``, releasing only what ``draw`` returns.

    Round t: ``y <- P(y + s / max(c, damping))`` with s and c the noisy sum and number of the violated rows and P the
    projection onto the (rescaled) public cone C. P harms nothing: by Moreau ``w = P w + q`` with q in the polar cone of
    C and orthogonal to P w, so ``||P w|| <= ||w||``, and ``<P w, z> = <w, z> - <q, z> >= <w, z>`` for every z of C. At
    every mark t the mean of the iterates of the rounds t/2 .. t (in C, which is convex) is counted on the given rows;
    the search ends when such a noisy count is at most ``plan.enough``. The answer is the last candidate, or one with a
    surely smaller count.
    """
    size = rows.rows.shape[1]
    change = _rescaling(rows, plan.rescaling, draw) if plan.rescaling is not None else None
    work = rows if change is None else rows.rescaled(change)
    onto = projector(cone if change is None else cone @ change)
    home = projector(cone)
    y, kept = np.zeros(size), np.zeros((plan.rounds + 1, size))
    found: list[tuple[float, Floats]] = []
    done = 0
    for t in range(plan.rounds):
        if t % max(plan.rounds // 20, 1) == 0:
            progress(f"rescaling perceptron, {plan.rounds} rounds", t / plan.rounds)
        total, number = work.sum_and_count(work.below(y, plan.asked))
        deviation = float(plan.deviations[t])
        noisy = draw(np.append(total, plan.count_weight * number), deviation)
        length = max(noisy[-1] / plan.count_weight, _DAMPING * deviation * math.sqrt(size))
        y = onto(y + noisy[:-1] / length)
        kept[t + 1] = kept[t] + y
        done = t + 1
        if done in plan.marks:
            mean = (kept[done] - kept[done // 2]) / (done - done // 2)
            point = home(mean if change is None else change @ mean)
            norm = float(np.linalg.norm(point))
            if not norm > 0 or not (homogeneous or point[0] > _LEAST_FIRST * norm):
                continue
            point = point / norm
            _, missed = rows.sum_and_count(rows.below(point, plan.slack))
            count = float(draw(np.array([missed]), plan.mark_deviation)[0])
            found.append((count, point))
            if count <= plan.enough:
                break
    if not found:
        return Searched(None, math.nan, done)
    best, last = min(found, key=lambda pair: pair[0]), found[-1]
    surely = best[0] < last[0] - _SURELY * math.sqrt(2.0) * plan.mark_deviation
    count, answer = best if surely else last
    return Searched(answer, count, done)


def _rescaling(rows: GridRows, deviation: float, draw: Draw) -> Floats:
    """(D, D) W, about the inverse square root of the second moments of the rows, of norm 1.

    ``W a`` is large where few rows point, above all along directions that are nearly orthogonal to all rows, as the
    solutions of systems with a small margin are. A rescaling changes no solution: ``<a, W u> = <W a, u>``. The upper
    triangle is released, its off-diagonal entries times sqrt 2, so that 2-norms are Frobenius norms.
    """
    size = rows.rows.shape[1]
    upper = np.triu_indices(size)
    factor = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
    noisy = np.zeros((size, size))
    noisy[upper] = draw(rows.second_moments()[upper] * factor, deviation) / factor
    noisy = noisy + np.triu(noisy, 1).T
    values, vectors = np.linalg.eigh(noisy)
    # The noise has norm about deviation sqrt(2 D).
    scales = 1 / np.sqrt(np.maximum(values, 0.0) + _RIDGE * deviation * math.sqrt(2.0 * size))
    W: Floats = (vectors * (scales / scales.max())) @ vectors.T
    return (W + W.T) / 2


__all__ = ["Draw", "Searched", "search"]
