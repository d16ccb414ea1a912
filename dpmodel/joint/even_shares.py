"""Even shares: everybody may use the same part of each capacity, and answers within it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import YES, Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast, ShareOfOptimum
from dpmodel.joint.declared import bounds_of
from dpmodel.joint.integral import seats_of
from dpmodel.joint.model import CELLS, JointModel
from dpmodel.joint.outcome import Prices
from dpmodel.joint.respond import respond
from dpmodel.joint.simulation import Population, expected, populations_of
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource, public_coins


@dataclass(frozen=True)
class EvenShares(Mechanism[JointModel]):
    """Each of n people may use b / n of every resource; where shares are whole, seats of it are dealt by public coins.

    Source
        Rationing; nothing is released.
    Privacy
        A person's share is a function of that person's row and of public numbers: nobody learns anything of anybody
        else, (0, 0)-joint differential privacy, and nothing is spent. Where a person may be absent n is the public
        capacity of the table. Coins look at no data.
    Utility
        No resource over its capacity, with certainty: n times b / n at most. A seat is the most that one unit of an
        entry may use of a resource, by what is declared; b holds so many whole ones, and each is dealt once
        (``integral.seats_of``). The share of the optimum is what synthetic people get. Better than prices where noise
        is as large as the capacities.
    Cost
        No pass over the people: shares are computed when they are handed out.
    Errors
        Refuses by ``eligible``: whole shares of which nothing limits what a unit uses, and private capacities.
    """

    serves: ClassVar[Serves] = Serves(JointModel, cells=CELLS, reads_nothing=True, reads_blocks=True)
    name: str = "even-shares"
    source: str = "rationing"

    def eligible(self, model: JointModel, options: Options) -> Verdict:
        if model.form.integral and not np.isfinite(seat(model)).all():
            return Verdict(False, "shares are whole, and nothing that was declared (bounds=) limits what one unit uses")
        if model.capacity_sensitivity:
            return Verdict(False, "capacities are private, and it reads nothing")
        return YES

    def forecast(self, model: JointModel, options: Options) -> Forecast:
        share = even_share(model)
        return Forecast(
            statement="no resource is used beyond its capacity, with certainty; prices would let people trade",
            epsilon=0.0,
            delta=0.0,
            beta=0.0,
            error=ShareOfOptimum(share, math.nan),
            work="no pass over the people",
            caveats=("with delta > 0, such as 1e-6, people could trade at prices",) * (options.delta == 0),
            remark=model.told(share),
        )

    def run(self, model: JointModel, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Prices:
        size, whole = model.capacity.size, model.form.integral
        each = model.capacity / max(model.count, 1) * (1 - 1e-12)  # the rounding of a sum over people
        return Prices(
            status="optimal",
            prices=np.zeros((1, size)),
            weights=np.ones(1),
            scales=np.ones(size),
            radius=np.inf,
            demand=np.zeros((0, size)),
            at_most=model.capacity,
            beta=0.0,
            statement="no resource is used beyond its capacity, with certainty",
            seed=int(public_coins().integers(2**62)) if whole else None,
            ceiling=seat(model) if whole else each,
            seats=_held(model.capacity, seat(model)) if whole else None,
            people=model.count,
        )


@cached
def even_share(model: JointModel) -> float:
    """The share of the optimum that synthetic people get, nan where that is not simulated."""
    if not model.form.single:
        return float("nan")
    return expected([_share_of(each, seat(model)) for each in populations_of(model)])


def seat(model: JointModel) -> Floats:
    """(m,) the most that a unit of any entry may use of each resource, by what is declared; inf for nothing."""
    most = np.zeros(model.capacity.size)
    np.maximum.at(most, model.form.use_at[0], bounds_of(model.form.use, model.given.ranges)[1])
    return most


def _held(capacity: Floats, one: Floats) -> Floats:
    """(m,) how many seats a capacity holds."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(one > 0, np.floor(np.maximum(capacity, 0.0) / one), 0.0)


def _share_of(of: Population, one: Floats) -> float:
    ceiling = of.capacity / of.people.count
    if of.form.integral:
        ceiling = one * seats_of(0, of.people.count, _held(of.capacity, one), 0, of.people.count)
    x, _ = respond(of.form, of.people, np.zeros(of.capacity.size), np.inf, ceiling)
    return float((of.people.values * x).sum() / of.optimum) if of.optimum > 0 else float("nan")


EVEN_SHARES = EvenShares()
