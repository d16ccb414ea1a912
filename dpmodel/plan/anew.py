"""What a plan would be at other epsilons: forecasts, lower bounds and simulated runs, for its figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpmodel.errors import SpecificationError
from dpmodel.mechanisms.contract import Request
from dpmodel.models.contract import Candidate, PrivateModel
from dpmodel.text import number, table

_MOST = 4  # constraints that a caption names


@dataclass(frozen=True)
class Anew:
    """``model``, ``request`` : what was planned; ``mechanisms`` : all that were compared; ``compared`` : what some
    of them say of themselves at a request."""

    model: PrivateModel[Any]
    request: Request
    mechanisms: Sequence[Any]
    compared: Callable[[Request, Sequence[Any]], Sequence[Candidate]]

    @property
    def constraints(self) -> tuple[str, ...]:
        """Labels of some private constraints."""
        cells = getattr(getattr(self.model.data, "classification", None), "cells", ())
        found = dict.fromkeys(label for cell in cells if cell.part != "objective" for label in cell.where)
        return (*list(found)[:_MOST], *(["..."] if len(found) > _MOST else []))

    def at(self, epsilon: float) -> Sequence[Candidate]:
        return self.compared(replace(self.request, epsilon=epsilon), self.mechanisms)

    def of(self, name: str, epsilon: float) -> Candidate:
        """The same of one of them."""
        then = replace(self.request, epsilon=epsilon)
        return self.compared(then, [each for each in self.mechanisms if each.name == name])[0]

    def least(self, epsilon: float) -> Mapping[str, float]:
        return self.model.least(replace(self.request, epsilon=epsilon))

    def measured(self, name: str, epsilon: float, runs: int) -> Mapping[str, Sequence[float]]:
        mechanism = next(each for each in self.mechanisms if each.name == name)
        return self.model.measured(mechanism, replace(self.request, epsilon=epsilon), runs)


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


def checked_epsilons(epsilons: Any, here: float) -> list[float]:
    """Increasing; by default from an eighth to eight times that of the plan.

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
        raise SpecificationError("epsilons are finite numbers above 0", remedy="epsilons=[0.1, 1, 10], or leave it out")
    return given


def _around(here: float) -> list[float]:
    return [here * 2.0**power for power in range(-3, 4)]
