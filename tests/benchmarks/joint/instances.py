"""People who share what there is: charging cars, timetables, appointments and advertisers, for any number of people.

Every instance is a CVXPY model with private rows and ``dpm.Shares``, as somebody would write it who knows the package
by its first page; nothing bounds what things are worth to people. Beside it stand the same numbers as rows of data, for
what a benchmark computes without privacy. An instance is the same for the same seed; people are drawn one like another,
and capacities grow with their number, so that ``people`` is the only size.

``KINDS`` lists the variants of each kind. In all of them what people like best is not what most of the capacity is for:
prices have something to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import cvxpy as cp
import numpy as np

import dpmodel as dpm
from dpmodel._types import Floats, PrivateArray
from dpmodel.joint.form import Form
from dpmodel.joint.read import read
from dpmodel.joint.table import PeopleTable

# From private numbers by name, public capacities and whose records they are to a problem.
Write = Callable[[dict[str, Floats], Floats, dpm.Records], dpm.Problem]


@dataclass(frozen=True, eq=False)
class Instance:
    """``private`` : numbers of each person (n, .) or (n,), by name. ``capacity`` (m,) : of what all share."""

    kind: str
    variant: str
    people: int
    private: dict[str, Floats]
    capacity: Floats
    write: Write

    def problem(self, neighbors: str = "replace-one") -> dpm.Problem:
        """The model, written in CVXPY."""
        return self.write(self.private, self.capacity, dpm.Records("people", neighbors=neighbors))

    @cached_property
    def form(self) -> Form:
        """One person's problem: the same for any number of people, so that it is read of a few."""
        few = {name: array[:3] for name, array in self.private.items()}
        return read(self.write(few, self.capacity, dpm.Records("people"))).form

    @cached_property
    def table(self) -> PeopleTable:
        """All people as rows of data."""
        columns = [self.private[name].reshape(self.people, -1) for name, _ in self.form.data]
        return PeopleTable(self.form, self.people, PrivateArray(np.concatenate(columns, axis=1)))

    def first(self, people: int) -> Instance:
        """The first of them, with their part of the capacity."""
        few = {name: array[:people] for name, array in self.private.items()}
        part = min(people, self.people) / self.people
        return replace(self, people=min(people, self.people), private=few, capacity=self.capacity * part)


# ------------------------------------------------------------------ charging cars in a street
_HOURS = np.arange(24)


def _charging(n: int, rng: np.random.Generator, variant: str) -> tuple[dict[str, Floats], Floats]:
    """Cars that take 3 to 8 hours of 24, at half to all of the power of the strongest socket."""
    home = rng.normal(19, 3, n)[:, None]
    near = np.exp(-(((_HOURS - home + 12) % 24 - 12) ** 2) / 18)
    eager, taste = rng.uniform(0.5, 2, n)[:, None], rng.random((n, 24))
    if variant == "night tariff":
        cheap = ((_HOURS >= 22) | (_HOURS < 6)) * rng.uniform(0.4, 1.2, n)[:, None]
        worth = eager * (0.3 + 0.4 * near) + cheap + 0.1 * taste
    else:
        worth = eager * (0.3 + near) + 0.2 * taste
    power = rng.uniform(0.5, 1, n)
    hours = rng.integers(3, 9, n).astype(float)
    capacity = np.full(24, 0.1 * n)
    if variant == "what houses leave":
        load = 0.02 + 0.07 * np.exp(-((_HOURS - 19) ** 2) / 18) + 0.03 * np.exp(-((_HOURS - 8) ** 2) / 8)
        capacity = n * (0.14 - load)
    return {"worth": worth * power[:, None], "power": power, "hours": hours}, capacity


def _write_charging(private: dict[str, Floats], capacity: Floats, people: dpm.Records) -> dpm.Problem:
    n = len(private["power"])
    charge = dpm.Shares((n, 24), records=people, nonneg=True, name="charge")
    worth = dpm.Private(private["worth"], name="worth", unit="row", records=people)
    power = dpm.Private(private["power"], name="power", unit="entry", records=people, bounds=[0.5, 1])
    hours = dpm.Private(private["hours"], name="hours", unit="entry", records=people, bounds=[3, 8])
    return dpm.Problem(
        cp.Maximize(cp.sum(cp.multiply(worth, charge))),
        [power @ charge <= capacity, charge <= 1, cp.sum(charge, axis=1) <= hours],
    )


# ------------------------------------------------------------------ timetables
_OPTIONS, _SLOTS, _MEETINGS, _LIKED = 90, 36, 3, 6


def _catalog(courses: bool) -> Floats:
    """(90, 36) public: which slots an option meets in. Every slot is part of about as many options."""
    rng, catalog = np.random.default_rng(33 + courses), np.zeros((_OPTIONS, _SLOTS))
    for option in catalog:
        rare = catalog.sum(axis=0) + rng.random(_SLOTS)
        option[rng.choice(np.argsort(rare)[: 2 * _MEETINGS], _MEETINGS, replace=False)] = 1
    return catalog


def _timetables(n: int, rng: np.random.Generator, variant: str) -> tuple[dict[str, Floats], Floats]:
    """Everybody likes 6 of 90 options; slots are in demand as 1 to 3.4."""
    courses = variant == "courses"
    popular = np.linspace(1, 3.4, _SLOTS)
    chance = np.log(np.prod(np.where(_catalog(courses) > 0, popular, 1.0), axis=1))
    worth = np.zeros((n, _OPTIONS))
    for start in range(0, n, 20_000):
        part = worth[start : start + 20_000]
        drawn = chance + rng.gumbel(size=part.shape)
        liked = np.argpartition(-drawn, _LIKED, axis=1)[:, :_LIKED]
        np.put_along_axis(part, liked, rng.uniform(0.2, 1, liked.shape), 1)
    seats = np.full(_SLOTS, 0.065)
    if courses:
        seats = 0.03 + 0.07 * np.random.default_rng(7).random(_SLOTS)
    return {"worth": worth}, n * seats


def _write_timetables(private: dict[str, Floats], capacity: Floats, people: dpm.Records, courses: bool) -> dpm.Problem:
    n = len(private["worth"])
    taken = dpm.Shares((n, _OPTIONS), records=people, nonneg=True, name="timetable")
    worth = dpm.Private(private["worth"], name="worth", unit="row", records=people)
    return dpm.Problem(
        cp.Maximize(cp.sum(cp.multiply(worth, taken))),
        [cp.sum(taken @ _catalog(courses), axis=0) <= capacity, cp.sum(taken, axis=1) <= 1],
    )


# ------------------------------------------------------------------ appointments
_TIMES = np.arange(40)


def _appointments(n: int, rng: np.random.Generator, variant: str) -> tuple[dict[str, Floats], Floats]:
    """One of 40 times, 8 on each of 5 days; what one is worth falls with the distance from the time that suits best."""
    day = rng.choice(5, n, p=[0.3, 0.2, 0.15, 0.15, 0.2])
    if variant == "mornings and evenings":
        hour = np.where(rng.random(n) < 0.6, rng.normal(0.5, 1, n), rng.normal(7, 0.8, n))
    else:
        hour = rng.gamma(2, 1.2, n)
    best = 8 * day + np.clip(hour, 0, 7)
    patience, urgent = rng.uniform(1, 12, n)[:, None], rng.uniform(0.2, 1, n)[:, None]
    worth = urgent * np.maximum(1 - np.abs(_TIMES - best[:, None]) / patience, 0) * rng.uniform(0.9, 1, (n, 40))
    seats = np.full(40, 0.022)
    if variant == "mornings and evenings":
        seats = np.tile([0.03, 0.03, 0.025, 0.02, 0.01, 0.02, 0.025, 0.015], 5)
    return {"worth": worth}, n * seats


def _write_appointments(private: dict[str, Floats], capacity: Floats, people: dpm.Records, whole: bool) -> dpm.Problem:
    n = len(private["worth"])
    slot = dpm.Shares((n, 40), records=people, name="slot", **({"boolean": True} if whole else {"nonneg": True}))
    worth = dpm.Private(private["worth"], name="worth", unit="row", records=people)
    return dpm.Problem(
        cp.Maximize(cp.sum(cp.multiply(worth, slot))),
        [cp.sum(slot, axis=0) <= capacity, cp.sum(slot, axis=1) <= 1],
    )


# ------------------------------------------------------------------ advertisers' budgets
_ADVERTISERS = 20


def _advertisers(n: int, rng: np.random.Generator, variant: str) -> tuple[dict[str, Floats], Floats]:
    """Each of 20 advertisers bids for one person in five, some much more than others, and has a budget."""
    size = np.exp(rng.normal(0, 0.6, _ADVERTISERS))
    size /= size.max()
    bids = rng.random((n, _ADVERTISERS)) * (rng.random((n, _ADVERTISERS)) < 0.2) * size
    budget = np.full(_ADVERTISERS, 0.03)
    if variant == "a few large budgets":
        budget = 0.6 / np.arange(1, _ADVERTISERS + 1) / (1 / np.arange(1, _ADVERTISERS + 1)).sum()
        budget = rng.permutation(np.maximum(budget, 0.01))
    return {"bids": bids}, n * budget


def _write_advertisers(private: dict[str, Floats], capacity: Floats, people: dpm.Records) -> dpm.Problem:
    n = len(private["bids"])
    shown = dpm.Shares((n, _ADVERTISERS), records=people, nonneg=True, name="shown")
    bids = dpm.Private(private["bids"], name="bids", unit="row", records=people, bounds=[0, 1])
    paid = cp.multiply(bids, shown)
    return dpm.Problem(cp.Maximize(cp.sum(paid)), [cp.sum(paid, axis=0) <= capacity, cp.sum(shown, axis=1) <= 1])


# ------------------------------------------------------------------ all of them
KINDS: dict[str, tuple[str, ...]] = {
    "charging": ("evening", "night tariff", "what houses leave"),
    "timetables": ("even seats", "courses"),
    "appointments": ("by day", "mornings and evenings", "whole"),
    "advertisers": ("even budgets", "a few large budgets"),
}


def instance(kind: str, people: int, seed: int = 1, variant: str = "") -> Instance:
    """The instance of this kind, by default its first variant."""
    variant = variant or KINDS[kind][0]
    rng = np.random.default_rng([list(KINDS).index(kind), seed])
    write: Write
    if kind == "charging":
        drawn, write = _charging(people, rng, variant), _write_charging
    elif kind == "timetables":
        courses = variant == "courses"
        drawn = _timetables(people, rng, variant)
        write = lambda private, capacity, who: _write_timetables(private, capacity, who, courses)  # noqa: E731
    elif kind == "appointments":
        whole = variant == "whole"
        drawn = _appointments(people, rng, variant)
        write = lambda private, capacity, who: _write_appointments(private, capacity, who, whole)  # noqa: E731
    else:
        drawn, write = _advertisers(people, rng, variant), _write_advertisers
    return Instance(kind, variant, people, *drawn, write)


def instances(kinds: list[str], people: int, every: bool) -> list[Instance]:
    """The first variant of each kind, or ``every`` one."""
    return [instance(k, people, variant=v) for k in kinds for v in (KINDS[k] if every else KINDS[k][:1])]
