"""How a share follows from public prices and one person's data: what a person's own machine runs, and the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.joint.form import Form, People
from dpmodel.joint.integral import coins, seats_of
from dpmodel.joint.outcome import Prices
from dpmodel.joint.respond import respond
from dpmodel.text import Misfit, PlainData, plain


@dataclass(frozen=True, eq=False)
class Rule(PlainData):
    """Prices, and one person's problem: all that is needed to compute a share at home. Public, plain data.

    ``rule.share(values=..., wish=...)`` is the share of the person with these data, the one that
    ``problem.release.share(i)`` hands out. ``rule.to_json()`` is what is sent; ``Rule.from_json(text)`` reads it.

    ``form`` : one person's problem. ``prices`` : as released.
    """

    form: Form
    prices: Prices

    def __repr__(self) -> str:
        steps, resources = self.prices.prices.shape
        return f"<Rule: {steps} prices of {resources} resources; .share(...) with one person's data, .to_json()>"

    def share(self, person: int | None = None, **data: Any) -> Floats:
        """The share of one person, an array of the shape of a share.

        Parameters
        ----------
        person : the person's number, which public coins go by; for shares in whole units only.
        **data : the person's row of each private parameter, by its name, and of public arrays with a row for each
            person; cut to the declared bounds, as a solve cuts them.

        Raises
        ------
        SpecificationError
            For data that are missing, have another name or shape, or are no finite numbers.
        """
        if self.prices.seed is not None and (not isinstance(person, int) or isinstance(person, bool) or person < 0):
            raise SpecificationError(
                "share: person=",
                why="whole shares are drawn by public coins, other ones for each person",
                remedy="person=3, the number of the person whose data these are",
            )
        if self.prices.seats is not None and person is not None and person >= self.prices.people:
            raise SpecificationError(
                f"share: person={person}",
                why=f"people have the numbers 0 to {self.prices.people - 1}",
                remedy="the number of the person whose data these are",
            )
        row = np.concatenate([np.zeros(0), *(self._numbers(name, width, data) for name, width in self.form.data)])
        if unknown := sorted(data.keys() - {name for name, _ in self.form.data}):
            known = ", ".join(f"{name}=" for name, _ in self.form.data)
            raise SpecificationError(f"share: {unknown[0]}=", why="no data of a person in this model", remedy=known)
        found = shares_of(self.form, self.prices, self.form.people(row[None, :]), person or 0)
        return np.asarray(found[0].reshape(self.form.shape))

    @staticmethod
    def _numbers(name: str, width: int, data: Mapping[str, Any]) -> Floats:
        if name not in data:
            raise SpecificationError(f"share: {name} is missing", why="the share depends on it", remedy=f"{name}=...")
        try:
            numbers = np.asarray(data[name], dtype=np.float64).ravel()
        except (TypeError, ValueError):
            numbers = np.zeros(0)
        if numbers.size != width or not np.isfinite(numbers).all():
            raise SpecificationError(
                f"share: {name} is not {width} finite number{'s' * (width != 1)}",
                why="it is one person's row",
                remedy=f"{name}= an array of {width}" if width > 1 else f"{name}=1.5, say",
            )
        return numbers

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = plain({"form": self.form.to_dict(), "prices": self.prices})
        return out

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Self:
        for name in ("form", "prices"):
            if not isinstance(data.get(name), Mapping):
                raise Misfit("it is missing", name)
        return cls(Form.from_dict(data["form"]), Prices.from_dict(data["prices"]))


@np.errstate(all="ignore")  # a warning would tell of an odd record
def shares_of(form: Form, prices: Prices, people: People, first: int) -> Floats:
    """(B, k) the shares of people, of whom the first has the number ``first``. Private to each of them."""
    scales = form.scaled(prices.scales)
    if prices.seed is not None:
        return _drawn(form, prices, people, first, scales)
    out = np.zeros((people.count, form.size))
    for weight, each in zip(prices.weights, prices.prices, strict=True):
        out += weight * respond(form, people, each, prices.radius, prices.ceiling)[0]
    return out * scales


def _drawn(form: Form, prices: Prices, people: People, first: int, scales: Floats) -> Floats:
    """Whole shares: the answer to prices that coins draw. An answer inside the ball is ``c`` times a whole one, which
    is kept with probability c times its scale: so the mean use is that of the answer inside, scaled."""
    assert prices.seed is not None
    drawn = [coins(prices.seed, first + i, prices.weights) for i in range(people.count)]
    steps, tosses = np.array([step for step, _ in drawn], dtype=np.intp), np.array([toss for _, toss in drawn])
    out, most = np.zeros((people.count, form.size)), prices.ceiling
    if prices.seats is not None and prices.ceiling is not None:
        most = prices.ceiling * seats_of(prices.seed, prices.people, prices.seats, first, people.count)
    for step in np.unique(steps):
        which = np.flatnonzero(steps == step)
        some = people.part(which)
        ceiling = most if most is None or most.ndim == 1 else most[which]
        whole = respond(form, some, prices.prices[step], np.inf, ceiling)[0]
        inside = respond(form, some, prices.prices[step], prices.radius, ceiling)[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = np.where(whole > 0, inside / whole, 0.0) * scales
        out[which] = np.where(tosses[which, None] < kept, whole, 0.0)
    return out
