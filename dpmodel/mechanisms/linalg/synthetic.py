"""Synthetic inequalities that keep a promised margin: what forecasts of cone mechanisms simulate on. Public facts only.

Every instance has a unit vector z of the public cone with ``<a, z> >= rho0`` for all rows a, of unit norm. Three kinds:

* "uniform": rows are uniform on the sphere, given the margin;
* "margin": all rows are exactly at the margin, uniform otherwise;
* "skewed": all rows at the margin, and most of them lean to the same side of z, so that the average row is far from z
  and a tenth of the rows lies on the other side of it. This is the hard one for descent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.special import betainc, betaincinv

from dpmodel._types import Floats
from dpmodel.mechanisms.contract import Request
from dpmodel.mechanisms.linalg.cones import Draw
from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.numerics.polytopes.cone_projection import projector
from dpmodel.privacy import PublicGenerator, public_generator

Kind = Literal["uniform", "margin", "skewed"]
KINDS: tuple[Kind, ...] = ("uniform", "margin", "skewed")
SEEDS = 21
# Share of the rows of a skewed instance on the far side, and how much the lean outweighs the rest of a row.
_FAR, _LEAN = 0.1, 1.0
# Multiplications of one forecast, all simulations together, and the fewest rows that a simulation has.
_WORK, _FEWEST = 4e8, 200
_ROWS_PER_DIMENSION = 8
_MANY, _SEEDS_OF_MANY = 100, 7
_TRIES = 20

# (rows, weight, seed) -> cone point; every row stands for ``weight`` equal ones.
Simulation = Callable[[Floats, float, int], Floats]


def public_noise(kind: str, seed: int) -> Draw:
    """Synthetic noise for simulations: Laplace or Gaussian, from a seed."""
    generator = public_generator(seed)
    distribution = generator.laplace if kind == "laplace" else generator.normal
    return lambda values, scale: values + distribution(0.0, scale, np.shape(values))


def instance(model: PrivateInequalities, seed: int, count: int, kind: Kind = "uniform") -> Floats:
    """The rows of ``synthetic``."""
    return synthetic(model, seed, count, kind)[0]


def synthetic(model: PrivateInequalities, seed: int, count: int, kind: Kind = "uniform") -> tuple[Floats, Floats]:
    """(count, D) unit rows with the margin ``model.margin`` (0 where none is promised) inside ``model.cone``, and the
    (D,) unit vector z that keeps it."""
    draw, size = public_generator(seed), model.cone_dimension
    margin = min(max(model.margin or 0.0, 0.0), 1.0)
    z = _direction(model, draw)
    if size == 1:
        return np.tile(z, (count, 1)), z
    along = _heights(draw, size, margin, count) if kind == "uniform" else np.full(count, margin)
    across = draw.standard_normal((count, size))
    if kind == "skewed":
        lean = draw.standard_normal(size)
        lean -= (lean @ z) * z
        lean /= np.linalg.norm(lean)
        across /= np.linalg.norm(across, axis=1)[:, None]
        across += np.where(draw.uniform(size=count) < _FAR, -_LEAN, _LEAN)[:, None] * lean
    across -= np.outer(across @ z, z)
    norms = np.linalg.norm(across, axis=1)
    rows = np.outer(along, z) + across * (np.sqrt(1 - along**2) / np.maximum(norms, 1e-300))[:, None]
    return rows, z


def forecast_missed(
    model: PrivateInequalities,
    request: Request,
    key: str,
    run: Simulation,
    *,
    steps: int = 1,
    seeds: int = SEEDS,
    kinds: tuple[Kind, ...] = KINDS,
    most: int | None = None,
    nothing: float = math.inf,
) -> tuple[float, float]:
    """Rows that simulated runs miss: the median and the quantile ``1 - beta``, each for the worst kind of instance.

    Parameters
    ----------
    key : tells simulations of one model and request apart; the answer is computed once.
    run : ``(rows, weight, seed)`` to the (D,) answer of the mechanism. The rows are capped (at ``most``, or at a number
        that keeps all simulations together below about a second); each then stands for ``weight = expected / rows``
        equal ones (sums and counts are to be multiplied by it), which keeps the ratio of signal and noise. Rows count
        as missed where ``<a, y> < 0`` or y is zero; the quantile is that of counts in steps of ``weight``, at its upper
        end.
    steps : products with the rows and their transpose in one run.
    nothing : a quantile of so many rows says nothing. No more runs are made once it cannot be less.
    """
    seeds, count = _runs(model, steps, seeds, kinds, most)

    def build() -> tuple[float, float]:
        weight = max(model.expected, 1) / count
        median = high = 0.0
        few = seeds - math.ceil((1 - request.beta) * (seeds - 1))  # of the runs, that place the quantile above theirs
        for kind in kinds:
            missed = np.empty(seeds)
            for seed in range(seeds):
                rows = instance(model, seed, count, kind)
                y = run(rows, weight, seed)
                missed[seed] = weight * (np.count_nonzero(rows @ y < 0) if np.any(y) else count)
                if np.count_nonzero(missed[: seed + 1] + (weight - 1) >= nothing) >= few:
                    missed = missed[: seed + 1]
                    break
            median = max(median, float(np.median(missed)))
            high = max(high, float(np.quantile(missed, 1 - request.beta, method="higher")) + (weight - 1))
            if high >= nothing:
                break
        return median, high

    return model.cached(("missed", key, request.epsilon, request.delta, request.beta), build)


def least_seen(model: PrivateInequalities, *, steps: int, seeds: int = SEEDS, kinds: tuple[Kind, ...] = KINDS) -> float:
    """What the quantile of ``forecast_missed`` cannot fall below, whatever is run: it counts rows in steps of
    ``weight`` and takes the upper end of a step, ``weight k + weight - 1`` with k >= 0."""
    return max(model.expected, 1) / _runs(model, steps, seeds, kinds, None)[1] - 1


def _runs(
    model: PrivateInequalities, steps: int, seeds: int, kinds: tuple[Kind, ...], most: int | None
) -> tuple[int, int]:
    """Simulated runs for each kind, and rows of each."""
    # With few rows per dimension nearly any direction fits; many dimensions get fewer runs instead.
    size = model.cone_dimension
    seeds = seeds if size <= _MANY else min(seeds, _SEEDS_OF_MANY)
    work = seeds * len(kinds) * max(steps, 1) * size
    cap = max(int(_WORK / work), _FEWEST, _ROWS_PER_DIMENSION * size) if most is None else most
    return seeds, max(min(model.expected, cap), 1)


def _direction(model: PrivateInequalities, draw: PublicGenerator) -> Floats:
    """(D,) a unit vector of the cone; any where the cone seems to be the apex alone (the promise cannot hold then)."""
    onto = projector(model.cone)
    for _ in range(_TRIES):
        z = draw.standard_normal(model.cone_dimension)
        inside = onto(z)
        norm = float(np.linalg.norm(inside))
        if norm > 1e-6 * np.linalg.norm(z):
            return inside / norm
    return z / float(np.linalg.norm(z))


def _heights(draw: PublicGenerator, size: int, margin: float, count: int) -> Floats:
    """(count,) first coordinates of uniform unit vectors, given that they are at least ``margin`` >= 0.

    ``1 - t^2`` has the distribution Beta((D - 1) / 2, 1 / 2), here cut at ``1 - margin^2`` and drawn by inversion.
    """
    first = (size - 1) / 2
    top = float(betainc(first, 0.5, 1 - margin**2))
    if not math.isfinite(top) or top < 1e-290:  # so rare that all of it lies at the margin
        return np.full(count, margin)
    square = np.asarray(betaincinv(first, 0.5, top * draw.uniform(size=count)), dtype=np.float64)
    return np.clip(np.sqrt(np.maximum(1 - square, 0.0)), margin, 1.0)
