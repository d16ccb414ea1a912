"""Synthetic PrivateInequalities for the tests of the cone mechanisms, and what a run of one asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
from replaying import Transcript

from dpmodel.contract import Options
from dpmodel.exact.cones import synthetic
from dpmodel.exact.model import PrivateInequalities


def system(
    rows: Any,
    margin: float | None = 0.1,
    *,
    homogeneous: bool = True,
    public: np.ndarray | None = None,
    sides: np.ndarray | None = None,
    neighbors: str = "add-remove",
    expected: int | None = None,
) -> PrivateInequalities:
    """The system whose homogeneous form has these (n, D) rows ``a'y >= 0``."""
    d = rows.shape[1] - (0 if homogeneous else 1)
    A, b = (-rows, np.zeros(rows.shape[0])) if homogeneous else (-rows[:, 1:], rows[:, 0])
    n = rows.shape[0]
    G = np.zeros((0, d)) if public is None else public
    h = np.zeros(len(G)) if sides is None else sides
    replaced = neighbors == "replace-one"
    return PrivateInequalities(
        d, homogeneous, G, h, margin, None, neighbors, n if replaced else None,  # type: ignore[arg-type]
        n if expected is None else expected, lambda: (A, b),
    )  # fmt: skip


def planted_system(size: int, margin: float, count: int, kind: Any, seed: int, **facts: Any) -> PrivateInequalities:
    """A system of synthetic rows that keep the margin."""
    return system(synthetic(system(np.zeros((0, size)), margin, **facts), seed, count, kind)[0], margin, **facts)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def missed(model: PrivateInequalities, answer: np.ndarray) -> int:
    A, b = model.read_rows()
    return int(np.count_nonzero(A @ answer > b))


def asked(mechanism: Any, model: PrivateInequalities, options: Options) -> list[tuple[str, float, int]]:
    """(distribution, scale, how many numbers) of every draw of a run."""
    source = Transcript(0)
    mechanism.run(model, options, source)
    return [(draw.distribution, draw.arguments[0], draw.values[0].size) for draw in source.draws]
