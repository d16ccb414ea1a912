"""What prices are expected to bring: the algorithm on synthetic people, drawn from declarations. Public facts only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.joint.descent import Path, Search, descend, look, looks_share, margin
from dpmodel.joint.form import Form, People
from dpmodel.joint.integral import drawn_scales
from dpmodel.joint.respond import respond
from dpmodel.memo import cached
from dpmodel.privacy import public_generator

if TYPE_CHECKING:
    from dpmodel.joint.model import JointModel

# People of a population, and steps without noise and their pace, by which their optimum is found.
_PEOPLE, _STEPS, _PACE = 300, 25, 3.5
# Steps with noise and their pace. From 1,000 to 100,000 people 40 to 200 steps with paces in proportion differ by .005
# of the optimum.
_ON_DATA, _PACE_ON_DATA = 60, 5.0
# Twice as many where the margin is below this part of a capacity, for as many people as passes over them are short.
_LITTLE, _MANY = 0.02, 500_000
# Limits of one person's use differ by this factor. What noise a larger one takes is known, and what a smaller one costs
# is guessed: it has to bring this much of the optimum.
_FACTOR, _LIMITS, _BRINGS = 1.2, 9, 0.005
_ENOUGH = 0.95
# Declarations do not say how alike people are. In one population all want all, more or less; in the others each person
# values about this part of the entries, and no other.
_WANTED = 1.0, 1 / 4, 1 / 16
# How far the room that people have is moved, after a look at their demand.
_ROOM = 8.0
# Where nothing limits a person's use, it is limited to this many times an even share.
_EVEN_SHARES = 8.0
# Levels of prices are looked for within these powers of two of that of the synthetic people: where values have bounds,
# and where they have none.
_DECLARED, _ANY = (8.0, 5), (32.0, 7)


@dataclass(frozen=True)
class Population:
    """Synthetic people, what they share, and the most that shares can be worth to them. ``scale`` : what noise on the
    demand of all is multiplied by, to be noise on theirs. ``whole`` : what one person's whole share uses at most, times
    that; None where shares are not whole."""

    form: Form
    people: People
    capacity: Floats
    optimum: float
    level: float
    scale: float
    whole: float | None = None


@dataclass(frozen=True)
class Settings:
    """``radius`` of one person's use, ``steps`` and ``pace`` of the descent, ``search`` of the level of prices, and the
    ``share`` of the optimum that is expected; nan where it was not simulated. ``needed`` : how many people of the same
    kind, with as much capacity each, would get .95 of it; nan where they do, or where it was not simulated."""

    radius: float
    steps: int
    pace: float
    search: Search
    share: float
    needed: float = math.nan


def largest_radius(model: JointModel) -> float:
    """What one person's use is limited to at most: the declared bound, or else some even shares."""
    fair = _EVEN_SHARES * float(np.linalg.norm(model.planned_capacity)) / max(model.count, 1)
    return model.largest_use if math.isfinite(model.largest_use) else fair


def settings_of(
    model: JointModel, noise: float, beta: float, taken: Floats, radius: float | None, steps: int | None
) -> Settings:
    """The settings that do best on synthetic people. ``noise`` : 1 / mu per unit of sensitivity; ``taken`` (m,) : how
    much lower capacities are taken than they are; ``radius``, ``steps`` : given ones, or None."""
    best, share, needed = _limits(model)[0] if radius is None else radius, math.nan, math.nan
    if model.form.single:
        populations = _less(populations_of(model), taken)
        if radius is None:
            best = _best_limit(model, noise, beta, populations)
        share = _mean_share(model, noise, beta, populations, best)
        if share < _ENOUGH:
            needed = _people_for(model, noise, beta, share, best, populations)
    free = margin(noise * model.sensitivity(best), beta, model.capacity.size)
    little = free < _LITTLE * float(np.median(model.planned_capacity)) and model.count <= _MANY
    steps = steps or (2 * _ON_DATA if little else _ON_DATA)
    pace = _PACE_ON_DATA * max(steps / _ON_DATA, 1.0)
    return Settings(best, steps, pace, _search(model), share, needed)


def _people_for(
    model: JointModel, noise: float, beta: float, share: float, radius: float, populations: Sequence[Population]
) -> float:
    """People for ``_ENOUGH`` of the optimum: what is lost falls as a power of their number, which four times as many
    show, who may use more each, as there is less noise for each."""
    larger = min(_FACTOR**2 * radius, largest_radius(model))
    few = _worth_within(model, noise, beta, radius, populations)
    many = _worth_within(model, noise / 4, beta, larger, populations)
    power = math.log((1 - few) / (1 - many)) / math.log(4) if few < many < 1 else 0.0
    return float(model.count * ((1 - share) / (1 - _ENOUGH)) ** (1 / power)) if power > 0.1 else math.nan


def radius_after(
    model: JointModel, settings: Settings, noise: float, beta: float, taken: Floats, total: float, error: float
) -> float:
    """The limit of one person's use that does best where the demand at no price is ``total`` of all, as released, with
    a standard deviation of ``error``: the synthetic people get as much of what they want as the people do.

    Declared bounds say little of how much people want: where they are wide, synthetic people want too much, and the
    best limit for them is far too tight."""
    populations = _populations(model, max(total, 2 * error) / max(model.count, 1), settings.radius)
    return _best_limit(model, noise, beta, _less(populations, taken), settings.radius)


def _limits(model: JointModel) -> list[float]:
    return [largest_radius(model) / _FACTOR**i for i in range(_LIMITS)]


def _best_limit(
    model: JointModel, noise: float, beta: float, populations: Sequence[Population], near: float = math.nan
) -> float:
    """The limit from which a smaller one does not bring enough, and a larger one loses more: of what shares are worth
    at best that use what the margin leaves. ``near`` : one of them, to begin with; nan for the one in the middle."""
    limits = _limits(model)
    found: dict[int, float] = {}
    here, best = -1, limits.index(near) if near in limits else len(limits) // 2
    while here != best:
        here = best
        for place in range(max(here - 1, 0), min(here + 2, len(limits))):
            if place not in found:
                found[place] = _worth_within(model, noise, beta, limits[place], populations) - _BRINGS * place
        best = max(found, key=found.__getitem__)
    return limits[best]


def _worth_within(
    model: JointModel, noise: float, beta: float, radius: float, populations: Sequence[Population]
) -> float:
    """Mean share of the optimum in what the margin leaves."""
    shares = []
    for each in populations:
        spread = noise * model.sensitivity(radius) * each.scale
        left = np.maximum(each.capacity - margin(spread, beta, each.capacity.size), 0.0)
        best, _ = _best_worth(each.form, each.people, left, radius, each.level)
        shares.append(best / each.optimum if each.optimum > 0 else 1.0)
    return float(np.mean(shares))


def _mean_share(
    model: JointModel, noise: float, beta: float, populations: Sequence[Population], radius: float
) -> float:
    return expected([_share_of(model, noise, beta, radius, each, seed) for seed, each in enumerate(populations)])


def expected(shares: Sequence[float]) -> float:
    """Mean over populations in which there is something to gain, of few people not all; nan where there is none. The
    first one, which is as declared, counts twice."""
    found, weights = np.array(shares), np.array([2] + [1] * (len(shares) - 1))
    some = np.isfinite(found)
    return float(np.average(found[some], weights=weights[some])) if some.any() else math.nan


def _share_of(model: JointModel, noise: float, beta: float, radius: float, population: Population, seed: int) -> float:
    if not population.optimum > 0:
        return math.nan
    smaller = noise * model.sensitivity(radius) * population.scale
    width, looks = _declared(model)
    search = Search(math.log2(population.level) + 0.3, width, looks)  # beside the level, as it is of real people
    return run_on(population, smaller, beta, radius, search, seed) / population.optimum


def run_on(population: Population, noise: float, beta: float, radius: float, search: Search, seed: int) -> float:
    """What the shares are worth that the algorithm hands out, with noise from this seed."""
    form, people, rng = population.form, population.people, public_generator(seed)
    answers: list[Floats] = []

    def measure(prices: Floats, scale: float) -> Floats:
        x, use = respond(form, people, prices, radius)
        answers.append(x)
        demand = use.sum(axis=0)
        return np.asarray(demand + scale * rng.standard_normal(demand.size))

    share = looks_share(noise, population.capacity)
    level, _ = look(measure, population.capacity.size, noise / math.sqrt(share), search)
    left = noise / math.sqrt(1 - (search.looks + 1) * share)
    path = descend(measure, population.capacity, level, left, beta, _ON_DATA, _PACE_ON_DATA)
    scales = scales_of(path, population.capacity, beta, population.whole)
    mean = np.tensordot(path.weights, answers[-_ON_DATA:], 1) * form.scaled(scales)
    return float((people.values * mean).sum())


def scales_of(path: Path, capacity: Floats, beta: float, whole: float | None = None) -> Floats:
    """(m,) by what shares are multiplied, so that no resource is used beyond its capacity with probability 1 - beta.
    ``whole`` : what one person uses at most, where whole shares are drawn and kept with these probabilities."""
    if whole is not None:
        most = path.mean_demand + margin(path.noise, beta / 2, capacity.size)
        return drawn_scales(most, capacity, whole, beta / 2)
    most = path.mean_demand + margin(path.noise, beta, capacity.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(most > capacity, np.maximum(capacity, 0.0) / most, 1.0))


@cached
def populations_of(model: JointModel) -> tuple[Population, ...]:
    """Populations of ``_PEOPLE`` synthetic people with their part of the capacity, all of it as much in demand."""
    radius = largest_radius(model)
    return _populations(model, _wanted(model, _people(model, _WANTED[0]), radius), radius)


def _populations(model: JointModel, total: float, radius: float) -> tuple[Population, ...]:
    """Those in which a person uses ``total`` in all where prices are 0, as near as ``_ROOM`` allows."""
    out = []
    for part in _WANTED:
        people = _people(model, part)
        room = _wanted(model, people, radius) / total if total > 0 else 1.0
        out.append(_population(model, people, float(np.clip(room, 1 / _ROOM, _ROOM))))
    return tuple(out)


def _less(populations: Sequence[Population], taken: Floats) -> tuple[Population, ...]:
    """The same with that much less of each capacity, against the optimum of all of it."""
    return tuple(replace(p, capacity=np.maximum(p.capacity - p.scale * taken, 0.0)) for p in populations)


def _wanted(model: JointModel, people: People, radius: float) -> float:
    """What a person uses in all, on average, where prices are 0."""
    _, use = respond(model.form, people, np.zeros(model.capacity.size), radius)
    return float(use.sum()) / max(people.count, 1)


def _people(model: JointModel, part: float) -> People:
    """Synthetic people who want about this ``part`` of all entries."""
    count, rng = min(_PEOPLE, max(model.count, 1)), public_generator(round(1 / part))
    people = model.form.people(model.synthetic_rows(rng, count))
    if part < 1:
        wanted = rng.uniform(size=(count, people.values.shape[1])) < part
        people = replace(people, values=PrivateArray(np.where(wanted, people.values, np.minimum(people.values, 0.0))))
    return people


def _population(model: JointModel, people: People, room: float) -> Population:
    """These people with ``room`` times their part of the capacity, and of the noise, as if there were fewer of them.
    The optimum is the least value of the dual, which is above it, on the way without noise."""
    form = model.form
    scale = room * people.count / max(model.count, 1)
    capacity = scale * model.planned_capacity
    optimum, level = _best_worth(form, people, capacity, largest_radius(model))
    whole = scale * model.largest_use if form.integral and math.isfinite(model.largest_use) else None
    return Population(form, people, capacity, optimum, level, scale, whole)


def _best_worth(
    form: Form, people: People, capacity: Floats, radius: float, level: float = math.nan
) -> tuple[float, float]:
    """The most that shares are worth, by the least value of the dual on the way of the algorithm without noise, which
    is above it; and the ``level`` of prices, which is looked for where it is not given."""
    least = math.inf

    def dual(prices: Floats, _: float) -> Floats:
        nonlocal least
        x, use = respond(form, people, prices, radius)
        demand = np.asarray(use.sum(axis=0))
        least = min(least, float((people.values * x).sum() + prices @ (capacity - demand)))
        return demand

    if math.isnan(level):
        level, _ = look(dual, capacity.size, 0.0, Search(0.0, *_ANY))
    path = descend(dual, capacity, level, 0.0, 0.5, _STEPS, _PACE)
    dual(np.asarray(path.weights @ path.prices), 0.0)
    return least, level


def _search(model: JointModel) -> Search:
    declared = math.isfinite(model.most_value) and model.form.single
    return Search(math.log2(populations_of(model)[0].level) if declared else 0.0, *_declared(model))


def _declared(model: JointModel) -> tuple[float, int]:
    return _DECLARED if math.isfinite(model.most_value) and model.form.single else _ANY
