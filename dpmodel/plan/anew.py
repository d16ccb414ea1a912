"""What a plan would be at other epsilons, records or sensitivities: forecasts, lower bounds and simulated runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpmodel.contract import Candidate, Model, Options
from dpmodel.errors import SpecificationError
from dpmodel.forecast import ExcessRisk
from dpmodel.text import number, table

SMALLEST_DELTA = 1e-12  # beyond all doubt: one in the number of all people, over a hundred
_MOST = 4  # constraints that a caption names


@dataclass(frozen=True)
class Anew:
    """``model``, ``options`` : what was planned; ``mechanisms`` : all that were compared; ``compared`` : what some
    of them say of themselves of a model at a request."""

    model: Model[Any]
    options: Options
    mechanisms: Sequence[Any]
    compared: Callable[[Model[Any], Options, Sequence[Any]], Sequence[Candidate]]

    @property
    def constraints(self) -> tuple[str, ...]:
        """Labels of some private constraints."""
        found = dict.fromkeys(label for cell in self._cells if cell.part != "objective" for label in cell.where)
        return (*list(found)[:_MOST], *(["..."] if len(found) > _MOST else []))

    @property
    def varies(self) -> tuple[str, ...]:
        """What besides epsilon can be varied: "records", "sensitivity"."""
        return self.model.varies

    @property
    def private(self) -> tuple[str, ...]:
        """Names of the private parameters."""
        return tuple(dict.fromkeys(cell.parameter for cell in self._cells))

    @property
    def _cells(self) -> Sequence[Any]:
        """Of Table 1; families without them have none."""
        return getattr(getattr(self.model.data, "classification", None), "cells", ())

    def here(self, against: str) -> float:
        """Where the plan stands on an axis: its epsilon, its number of records, 1 for the sensitivity."""
        if against == "epsilon":
            return self.options.epsilon
        return float(self.model.data.count) if against == "records" else 1.0

    def at(self, value: float, against: str = "epsilon") -> Sequence[Candidate]:
        model, options = self._there(value, against)
        return self.compared(model, options, self.mechanisms)

    def of(self, name: str, epsilon: float) -> Candidate:
        """What one of them says at another epsilon."""
        return self.at_options(replace(self.options, epsilon=epsilon), name)

    def at_options(self, options: Options, name: str) -> Candidate:
        """What one of them says of another request."""
        return self.compared(self.model, options, self._named(name))[0]

    def with_delta(self, now: Sequence[Candidate]) -> Candidate | None:
        """Of a regression at delta 0 the best of what does not serve it there, at the smallest delta."""
        if self.options.delta > 0 or not any(c.forecast and isinstance(c.forecast.error, ExcessRisk) for c in now):
            return None
        refused = {c.mechanism for c in now if not c.eligible and c.code == ""}
        others = [each for each in self.mechanisms if each.name in refused]
        found = self.compared(self.model, replace(self.options, delta=SMALLEST_DELTA), others)
        told = [(c.forecast.error.rank, c.mechanism, c) for c in found if c.forecast is not None]
        return min(told)[2] if told else None

    def varied(self, what: str, factor: float, name: str, parameter: str = "") -> Candidate:
        """What one of them says with ``factor`` times the records or the sensitivity (of one parameter, or all)."""
        return self.compared(self.model.varied(what, factor, parameter), self.options, self._named(name))[0]

    def least(self, value: float, against: str = "epsilon") -> Mapping[str, float]:
        model, options = self._there(value, against)
        return model.least(options)

    def _there(self, value: float, against: str) -> tuple[Model[Any], Options]:
        if against == "epsilon":
            return self.model, replace(self.options, epsilon=value)
        return self.model.varied(against, value / self.here(against)), self.options

    def _named(self, name: str) -> list[Any]:
        return [each for each in self.mechanisms if each.name == name]

    def measured(self, name: str, epsilon: float, runs: int) -> Mapping[str, Sequence[float]]:
        mechanism = next(each for each in self.mechanisms if each.name == name)
        return self.model.measured(mechanism, replace(self.options, epsilon=epsilon), runs)


@dataclass(frozen=True)
class Simulated:
    """``plan.simulate``: what mechanisms erred by on synthetic databases, drawn from public facts.

    ``errors`` : (mechanism, epsilon) -> column of the error -> its value in each run, nan where it cannot be told.
    """

    errors: Mapping[tuple[str, float], Mapping[str, Sequence[float]]]

    def points(self, column: str) -> dict[str, list[tuple[float, float]]]:
        """Mechanism -> (epsilon, error) of each run."""
        out: dict[str, list[tuple[float, float]]] = {}
        for (name, epsilon), columns in self.errors.items():
            out.setdefault(name, []).extend((epsilon, value) for value in columns[column] if not math.isnan(value))
        return out

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {"mechanism": name, "epsilon": epsilon, **{column: list(values) for column, values in columns.items()}}
            for (name, epsilon), columns in self.errors.items()
        ]

    def __str__(self) -> str:
        rows = []
        for (name, epsilon), columns in self.errors.items():
            told = [[value for value in values if not math.isnan(value)] for values in columns.values()]
            worst = [number(max(values)) if values else "-" for values in told]
            rows.append((name, epsilon, len(next(iter(columns.values()))), *worst))
        heads = [f"{column}, largest" for column in next(iter(self.errors.values()), {})]
        return table(("mechanism", "epsilon", "runs", *heads), rows, title="Measured on synthetic databases")


def checked_epsilons(epsilons: Any, here: float, name: str = "epsilons") -> list[float]:
    """Increasing; by default from an eighth to eight times that of the plan. ``name`` : for messages.

    Raises
    ------
    SpecificationError
        For anything but finite numbers above 0.
    """
    try:
        given = sorted({float(each) for each in epsilons}) if epsilons is not None else _around(here)
    except (TypeError, ValueError):
        given = []
    if not given or not all(0 < each < math.inf for each in given):
        raise SpecificationError(f"{name} are finite numbers above 0", remedy="[0.1, 1, 10], say, or leave it out")
    return given


def _around(here: float) -> list[float]:
    return [here * 2.0**power for power in range(-3, 4)]
