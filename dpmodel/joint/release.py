"""The release of a joint solve: prices for everybody, and for each person their own share."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dpmodel._types import Floats
from dpmodel.contract import Progress, no_progress
from dpmodel.errors import CustodianWarning, SpecificationError, users_line
from dpmodel.joint.outcome import Prices
from dpmodel.joint.rule import Rule, shares_of
from dpmodel.marks import vault
from dpmodel.marks.rows import watched
from dpmodel.release import Guarantee, Interval, Release
from dpmodel.text import TextTable, interval_ends, long_frame, number

if TYPE_CHECKING:
    from dpmodel.joint.form import Form, People
    from dpmodel.joint.model import JointModel

_WHO = (
    "joint: what all others learn together about a person, from the prices and from their own shares, is "
    "differentially private; a person's own share may show that person's data to whoever sees it, and what is used of "
    "a resource, seen by whoever runs it, tells more than the prices"
)
_MOST_ROWS = 6  # resources that are printed


def joint_guarantee(guarantee: Guarantee) -> Guarantee:
    """``guarantee``, with who may see what."""
    return replace(guarantee, record=f"{guarantee.record}; {_WHO}")


class HiddenShares:
    """Stands for the shares of all people: reads as nothing, like the value of a ``Private``."""

    value = None

    def __repr__(self) -> str:
        return "<shares: release.share(i) for person i, release.deliver(callback) for each>"

    def __reduce__(self) -> Any:
        return HiddenShares, ()


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SharesRelease(Release):
    """What a solve with ``release="joint"`` publishes, and the one way to what it does not.

    ``prices`` is public; a share is handed out to its owner: ``share(i)``, ``deliver(callback)``, or computed at home
    by ``rule``. Nothing here holds a share: they are computed anew from prices and one person's data, so that none is
    printed, pickled, logged or copied. That guards against mistakes, not against whoever holds this object and the
    private data: such a reader can ask for every share, and learns what they tell.

    Parameters
    ----------
    rule : prices, and how a share follows from them. ``resources`` (m,) : what all share, in words. ``capacity`` (m,) :
        of each (nan where it is private). ``people`` : how many have a share.
    """

    rule: Rule
    resources: tuple[str, ...]
    capacity: Floats
    people: int
    _stamps: ClassVar[tuple[int | None, ...]] = ()

    def answered_by(self, problem: Any, model: Any, options: Any) -> None:
        """As for all releases; and shares are computed from the people of ``model``, which copies and pickles lack."""
        super().answered_by(problem, model, options)
        object.__setattr__(self, "_model", model)
        object.__setattr__(self, "_stamps", tuple(map(vault.stamp, model.given.private)))

    # ------------------------------------------------------------------ public
    @property
    def prices(self) -> Floats:
        """(m,) the mean price of each resource, as steps count in shares. All steps: ``rule.prices.prices``."""
        return np.asarray(self.rule.prices.weights @ self.rule.prices.prices)

    @property
    def overload_bound(self) -> Floats:
        """(m,) what is used of each resource at most, in all of them except with probability ``accuracy.beta``."""
        return self.rule.prices.at_most

    @property
    def value_lost(self) -> float:
        """Bound on what mean answers are worth less than the best possible, before they are scaled; nan for none."""
        return self.rule.prices.lost

    @property
    def optimum(self) -> Interval:
        """An interval that covers the most that is possible, where ``certify=`` measured it.

        Raises
        ------
        SpecificationError
            Elsewhere: the dual's value sums private numbers. It is measured where declarations bound what a share is
            worth to one person.
        """
        certificate = self.certificate
        if certificate is None or certificate.optimum is None:
            raise SpecificationError(
                "optimum: the most that is possible is a sum of private numbers",
                why="prices alone do not tell it",
                remedy="solve(..., certify=0.1), where declarations bound what a share is worth to one person",
            )
        # Shares of all are worth no more than the optimum where they keep to the capacities.
        (low, high), level = certificate.optimum, certificate.level - self.rule.prices.beta
        ends = interval_ends(low, high)
        told = f"with probability {number(level)}, the most that is possible lies between {ends[0]} and {ends[1]}"
        form = "shares below, dual above"
        return Interval(low, high, level, "the optimum", form, True, told)

    # ------------------------------------------------------------------ for one person each
    @property
    def shares(self) -> HiddenShares:
        """Reads as nothing: ``share(i)`` is what one person is handed."""
        return HiddenShares()

    def share(self, person: int) -> Floats:
        """The share of one person, for that person alone: an array of the shape of a share.

        Raises
        ------
        SpecificationError
            For a number that no person has, and in copies, which hold no private data (``rule.share(...)`` works).
        """
        model = self._people_of("share")
        whole = isinstance(person, int | np.integer) and not isinstance(person, bool)
        if not whole or not 0 <= person < self.people:
            raise SpecificationError(
                f"share({person!r})" if isinstance(person, int | float | str) else f"share({type(person).__name__})",
                why=f"people have the numbers 0 to {self.people - 1}",
                remedy="the row of that person in the private parameters",
            )
        form = self.rule.form
        found = shares_of(form, self.rule.prices, model.read_table().person(int(person)), int(person))
        return np.asarray(found[0].reshape(form.shape))

    def deliver(
        self,
        callback: Callable[[int, Floats], None] | None = None,
        *,
        to_custodian: bool = False,
        progress: Progress | None = None,
    ) -> Floats | None:
        """Hand each person's share to ``callback(person, share)``, which sends it to that person and keeps nothing.

        Parameters
        ----------
        callback : called here, once for each person, in order. ``progress`` : a function (stage, share).
        to_custodian : give all shares to one reader instead, as an array (people, ...). It voids the guarantee towards
            that reader: everybody's share together shows much of everybody's data. Towards all others it stands, as
            long as the reader passes on to each person their own share alone.

        Raises
        ------
        SpecificationError
            Without either, with both, and in copies, which hold no private data.
        """
        model = self._people_of("deliver")
        if (callback is None) == (not to_custodian) or not (callback is None or callable(callback)):
            raise SpecificationError(
                "deliver: neither a callback nor to_custodian=True" if not to_custodian else "deliver: both ways",
                why="a share is sent to its owner, or all of them go to one reader, who is then trusted with them",
                remedy="deliver(send), send(person, share) being yours; or deliver(to_custodian=True)",
            )
        if to_custodian:
            warnings.warn(
                "all shares go to one reader, towards whom nothing is private any more; each person may be handed "
                "their own share, and nobody else's",
                CustodianWarning,
                stacklevel=users_line(),
            )
        form, report = self.rule.form, progress or no_progress
        # Blocks may lie elsewhere, where work is done again if it fails: nobody is sent a share from there.
        with watched(lambda block, count: report("shares", 0.5 * block / count)):
            found = model.read_table().map_reduce(partial(_part, form, self.rule.prices), _joined)
        parts = sorted(found, key=lambda part: part[0])
        if callback is None:
            return np.concatenate([shares for _, shares in parts]).reshape(self.people, *form.shape)
        for first, shares in parts:
            for place, share in enumerate(shares):
                callback(first + place, share.reshape(form.shape))
            report("shares", 0.5 + 0.5 * (first + len(shares)) / self.people)
        return None

    def _people_of(self, what: str) -> JointModel:
        model: JointModel | None = getattr(self, "_model", None)
        if model is None:
            raise SpecificationError(
                f"{what}: this release was read or copied, and holds no private data",
                why="shares are computed from the data of the people, which only the problem that was solved has",
                remedy="problem.release, or release.rule.share(...) with one person's data",
            )
        for parameter, stamp in zip(model.given.private, self._stamps, strict=True):
            if vault.stamp(parameter) != stamp:
                raise SpecificationError(
                    f"{what}: {parameter.name()} was given a value after the problem was solved",
                    why="what is said of capacities holds for shares of the data that prices were found with",
                    remedy="solve again; release.rule.share(...) takes any one person's data",
                )
        return model

    # ------------------------------------------------------------------ of resources, as tables
    def to_frame(self, name: str | None = None, *, backend: str = "pandas") -> Any:
        """What all share, as a data frame: ``resource``, mean ``price``, use ``at most`` and ``capacity``.

        ``name`` : None, there being no other table. ``backend`` : "pandas", "polars" or "pyarrow".
        """
        if name is not None:
            self._named("to_frame", name)
        columns = {"price": self.prices, "at most": self.overload_bound, "capacity": self.capacity}
        return long_frame(columns, (("resource", self.resources),), backend)

    def summary(self, level: float = 0.95) -> TextTable:
        """Price, use at most and capacity of every resource. ``level`` : not used; nothing here is an estimate."""
        cells = zip(self.prices, self.overload_bound, self.capacity, strict=True)
        told = [(number(p), number(b), number(c) if math.isfinite(c) else "private") for p, b, c in cells]
        rows = [(name, *each) for name, each in zip(self.resources, told, strict=True)]
        return TextTable(("resource", "price", "used at most", "capacity"), rows, self.title, [str(self.accuracy)])

    def intervals(self, level: float = 0.95, *, at: Any = None) -> Any:
        """None: raises a SpecificationError. A share is what it is, and prices estimate nothing."""
        raise SpecificationError(
            "intervals: none for shares",
            why="a share is no estimate: each person's follows exactly from the prices and from their own numbers",
            remedy="release.overload_bound, release.value_lost, or release.optimum after solve(..., certify=0.1)",
        )

    # ------------------------------------------------------------------ printed
    def _rows(self) -> list[tuple[str, object]]:
        bound = self.overload_bound
        order = np.argsort(-self.prices, kind="stable")[:_MOST_ROWS]
        of = [
            f"at most {number(b)}{f' of {number(c)}' * math.isfinite(c)}"
            for b, c in zip(bound, self.capacity, strict=True)
        ]
        lines = [
            ("price", f"{number(self.prices[j])} for {self.resources[j]}, of which {of[j]} is used")
            for j in sorted(order)
        ]
        left = len(self.resources) - len(lines)
        more = [("price", f"... and {left} lower ones: release.prices")] if left > 0 else []
        shares = f"{self.people} people: release.share(i), release.deliver(send), release.rule"
        first, *rows = super()._rows()
        end = [name for name, _ in rows].index("spent") + 1
        return [first, ("shares", shares), *rows[:end], *lines, *more, *rows[end:]]

    @property
    def title(self) -> str:
        return f"Shares by {self.mechanism}"

    @classmethod
    def _of(cls, data: Any) -> Self:
        rule = Rule.from_dict(data["rule"])
        rest = {name: each for name, each in data.items() if name != "rule"}
        known = [entry.name for entry in fields(Release)]
        base = Release._of({name: each for name, each in rest.items() if name in known})
        given = {name: getattr(base, name) for name in known}
        return cls(
            **given,
            rule=rule,
            resources=tuple(rest["resources"]),
            capacity=np.asarray(rest["capacity"], dtype=np.float64),
            people=int(rest["people"]),
        )


def _part(form: Form, prices: Prices, people: People, first: int) -> list[tuple[int, Floats]]:
    return [(first, shares_of(form, prices, people, first))]


def _joined(a: list[tuple[int, Floats]], b: list[tuple[int, Floats]]) -> list[tuple[int, Floats]]:
    return a + b
