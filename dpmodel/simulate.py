"""Simulation: the ``run`` that mechanisms have, on synthetic data, with seeded noise. Nothing in it is private."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dpmodel.contract import Mechanism, Model, Options
from dpmodel.errors import NotPrivateWarning
from dpmodel.privacy import SeededSource


def simulate(mechanism: Mechanism[Any], model: Model, options: Options, runs: int) -> Mapping[str, list[float]]:
    """Column of an error -> what ``mechanism`` errs by on each of ``runs`` databases drawn from the public facts of
    ``model`` (``Model.synthetic``), nan where that cannot be told. Mechanisms get the same databases and seeds.

    Raises
    ------
    SpecificationError
        Where nothing can be drawn, or an error cannot be told.
    """
    out: dict[str, list[float]] = {}
    for drawn, outcome in runs_on(mechanism, map(model.synthetic, range(runs)), options):
        for column, value in drawn.errors(outcome).items():
            out.setdefault(column, []).append(value)
    return out


def runs_on(mechanism: Mechanism[Any], databases: Iterable[Model], options: Options) -> Iterator[tuple[Model, Any]]:
    """Each synthetic model with the outcome of one run on it, whose noise has the model's place as its seed."""
    for seed, drawn in enumerate(databases):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            outcome = mechanism.run(drawn, options, SeededSource(seed))
        yield drawn, outcome
