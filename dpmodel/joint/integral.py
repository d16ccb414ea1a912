"""Whole shares: one of a person's answers is drawn by public coins, and kept or not. Public facts only."""

from __future__ import annotations

import math

import numpy as np

from dpmodel._types import Floats
from dpmodel.privacy import public_generator


def drawn_scales(most: Floats, capacity: Floats, largest: float, beta: float) -> Floats:
    """(m,) with what probability a drawn answer is kept, so that no resource is over its capacity, except with
    probability ``beta`` over the coins.

    ``most`` (m,) : what the mean answers use at most. ``largest`` : what one person's whole answer uses of a resource
    at most, by what is declared; the limit of the mean answers is no such bound, as it makes whole answers rarer and
    not smaller.

    What is used of resource j is a sum of independent numbers in [0, G] with a mean of at most ``m = s_j U_j``: it is
    at least t >= m with probability ``exp(-(t ln(t / m) - t + m) / G)`` at most (Chernoff for such sums). s_j is the
    largest number for which that is ``beta / resources`` at t = b_j, by halving. Coins do not look at data.
    """
    need = math.log(capacity.size / beta) * largest
    low, high = np.zeros_like(capacity), np.minimum(np.maximum(capacity, 0.0), np.maximum(most, 0.0))
    for _ in range(60):
        mean = (low + high) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(mean > 0, capacity * np.log(capacity / mean) - capacity + mean, np.inf)
        low, high = np.where(room >= need, mean, low), np.where(room >= need, high, mean)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(most > 0, np.minimum(low / most, 1.0), 1.0)


def seats_of(seed: int, people: int, seats: Floats, first: int, count: int) -> Floats:
    """(B, m) how many of the ``seats`` (m,) of each resource are dealt to people number ``first`` and on.

    Public coins put the ``people`` in an order, in which seats are dealt in turn, those of one resource after those of
    another: everybody gets as many, or one more, and all seats of each resource are dealt once.
    """
    rank = public_generator(seed).permutation(people)[first : first + count, None]
    ends = np.cumsum(seats)
    before, after = (np.maximum(np.ceil((each - rank) / people), 0.0) for each in (ends - seats, ends))
    return np.asarray(after - before)


def coins(seed: int, person: int, weights: Floats) -> tuple[int, float]:
    """The step whose answer person number ``person`` gets, drawn by ``weights``, and a number in [0, 1): the answer is
    kept where that is below its scale. The same for the same person whenever it is asked."""
    generator = public_generator([seed, person])
    step = int(np.searchsorted(np.cumsum(weights), generator.uniform() * weights.sum(), side="right"))
    return min(step, weights.size - 1), float(generator.uniform())
