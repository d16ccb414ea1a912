"""The release: all that leaves the private world, as frozen plain data.

Nothing here computes anything private or checks privacy. Whoever builds a `Release` vouches that every field
is public, paid for, or post-processed from what was paid for; that includes notes and timings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpmodel.release.plain import plain_fields, revived
from dpmodel.text import array_text, html_table, number, printable, table

# Printed cells of a classification; all of them are data.
_MOST_CELLS = 5


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy that a release satisfies.

    Parameters
    ----------
    epsilon : privacy parameter >= 0.
    delta : privacy parameter in [0, 1]. Both zero: nothing private was read.
    neighbors : neighbor relation, for example ``"replace-one"``.
    record : a sentence that says what a record is.
    """

    epsilon: float
    delta: float = 0.0
    neighbors: str = "replace-one"
    record: str = ""

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon is {self.epsilon}, it has to be >= 0")
        if not 0 <= self.delta <= 1:
            raise ValueError(f"delta is {self.delta}, it has to be in [0, 1]")

    def __str__(self) -> str:
        if self.epsilon == 0 and self.delta == 0:
            about = f": {self.record}" if self.record else ""
            return f"no private data was read (epsilon = 0, delta = 0){about}"
        amount = f"epsilon = {number(self.epsilon)}"
        if self.delta > 0:
            amount += f", delta = {number(self.delta)}"
        text = f"differential privacy with {amount}, neighbors: {self.neighbors}"
        return printable(f"{text}; {self.record}" if self.record else text)

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON types."""
        return plain_fields(self)


@dataclass(frozen=True)
class Accuracy:
    """How far the released solution may be from a solution of the private program.

    Parameters
    ----------
    alpha : error bound in the units of the statement, or None if there is no bound.
    beta : probability in [0, 1] with which the bound may fail, or None if it never fails or there is none.
    slack_rows : number of constraints that the bound leaves out; None if unknown.
    proved : True for a theorem, False for a forecast.
    statement : the bound in words.
    objective_alpha : part of the bound that concerns the objective value.
    violation_alpha : part of the bound that concerns the violation of constraints.
    vacuous : whether it says no more than is known without data.
    """

    alpha: float | None
    beta: float | None
    slack_rows: int | None = 0
    proved: bool = False
    statement: str = ""
    objective_alpha: float | None = None
    violation_alpha: float | None = None
    vacuous: bool = False

    def __str__(self) -> str:
        if self.statement:
            text = self.statement
        elif self.alpha is None:
            text = "no error bound"
        else:
            text = f"error at most {number(self.alpha)}"
            if self.beta is not None:
                text += f" except with probability {number(self.beta)}"
            if self.slack_rows:
                text += f", {self.slack_rows} constraints left out"
        return text if self.vacuous else f"{text} ({'proved' if self.proved else 'forecast'})"

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON types."""
        return plain_fields(self)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Release:
    """All that leaves the private world.

    Arrays are copied and made read-only, mappings become read-only views, lists tuples. Pickling and copying
    keep that. Two releases are equal if they are the same object.

    Parameters
    ----------
    mechanism : registered name of the mechanism.
    guarantee : privacy of everything in this release together.
    accuracy : the error bound.
    status : for example ``"optimal"``; decided on released data.
    value : objective value computed from released quantities, or None.
    variables : name -> array of the variable's shape.
    duals : constraint label -> array of the constraint's shape, from released data.
    spent : (epsilon, delta) taken from the budget.
    timings : phase -> seconds. Running times can depend on data, so only of phases that read released data.
    classification : one line per cell of the program.
    plan : the plan in plain values.
    notes : remarks for people.
    """

    mechanism: str
    guarantee: Guarantee
    accuracy: Accuracy
    status: str
    value: float | None = None
    variables: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    duals: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    spent: tuple[float, float] = (0.0, 0.0)
    timings: Mapping[str, float] = field(default_factory=dict)
    classification: tuple[str, ...] = ()
    plan: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.spent) != 2:
            raise ValueError("spent is a pair (epsilon, delta)")
        for name in ("variables", "duals"):
            arrays = {key: _frozen_array(np.asarray(item)) for key, item in getattr(self, name).items()}
            object.__setattr__(self, name, MappingProxyType(arrays))
        for name in ("spent", "timings", "classification", "plan", "notes"):
            object.__setattr__(self, name, _freeze(getattr(self, name)))

    # A MappingProxyType can neither be pickled nor copied, and a pickled array comes back writeable.
    def __getstate__(self) -> dict[str, Any]:
        return {item.name: _thaw(getattr(self, item.name)) for item in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, item in state.items():
            object.__setattr__(self, name, item)
        self.__post_init__()

    def __repr__(self) -> str:
        return (
            f"<Release {self.mechanism}: {self.status}, epsilon={number(self.guarantee.epsilon)}, "
            f"delta={number(self.guarantee.delta)}>"
        )

    def _rows(self) -> list[tuple[str, object]]:
        epsilon, delta = self.spent
        rows: list[tuple[str, object]] = [
            ("status", self.status),
            ("value", "-" if self.value is None else f"{self.value:.8g}"),
            ("guarantee", self.guarantee),
            ("accuracy", self.accuracy),
            ("spent", f"epsilon {number(epsilon)}, delta {number(delta)}"),
        ]
        rows += [("variable " + name, array_text(item)) for name, item in self.variables.items()]
        rows += [("dual " + name, array_text(item)) for name, item in self.duals.items()]
        rows += [("cell", line) for line in self.classification[:_MOST_CELLS]]
        if len(self.classification) > _MOST_CELLS:
            rows.append(("cell", f"... and {len(self.classification) - _MOST_CELLS} more in to_dict()"))
        rows += [("seconds: " + name, number(item)) for name, item in self.timings.items()]
        return rows + [("note", line) for line in self.notes]

    def _title(self) -> str:
        if self.guarantee.epsilon == self.guarantee.delta == 0:
            free = f"Post-processing by {self.mechanism}"
            return {"none": "Solved without noise", "public-only": "Solved without data"}.get(self.mechanism, free)
        return f"Private release by {self.mechanism}"

    def __str__(self) -> str:
        return table(("", ""), self._rows(), title=self._title())

    def _repr_html_(self) -> str:
        return html_table(("", ""), self._rows(), title=self._title())

    def to_dict(self) -> dict[str, Any]:
        """Return all fields in JSON types: arrays as nested lists, inf and nan as strings."""
        return plain_fields(self)

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as strict JSON (no NaN or Infinity literals)."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Release:
        """Rebuild a release from `to_dict`, for example after ``json.loads``; arrays become float arrays.

        Raises
        ------
        KeyError, TypeError
            If fields are missing or unknown.
        """
        hints = get_type_hints(cls)
        # Unknown names are left to the class to refuse.
        return cls(**{name: revived(hints.get(name, Any), item) for name, item in data.items()})

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Rebuild a release from `to_json`; see `from_dict`."""
        return cls.from_dict(json.loads(text))


def _frozen_array(array: NDArray[Any]) -> NDArray[Any]:
    copied = np.array(array, copy=True)
    copied.setflags(write=False)
    return copied


def _freeze(item: Any) -> Any:
    """Copy containers and arrays into read-only ones, at every depth; leave other objects alone."""
    if isinstance(item, Mapping):
        return MappingProxyType({key: _freeze(value) for key, value in item.items()})
    if type(item) in (list, tuple):
        return tuple(_freeze(value) for value in item)
    return _frozen_array(item) if isinstance(item, np.ndarray) else item


def _thaw(item: Any) -> Any:
    """Undo what `_freeze` did to mappings, so that the result can be pickled."""
    if isinstance(item, Mapping):
        return {key: _thaw(value) for key, value in item.items()}
    return tuple(_thaw(value) for value in item) if type(item) is tuple else item
