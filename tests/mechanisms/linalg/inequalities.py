"""Made-up PrivateInequalities and recording noise for the tests of the cone mechanisms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpmodel.mechanisms.linalg.systems import PrivateInequalities
from dpmodel.privacy import SeededSource


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


@dataclass
class Recorder:
    """Noise as from a seed, with every draw written down: (law, scale, values, released)."""

    source: SeededSource
    draws: list[tuple[str, float, np.ndarray, np.ndarray]] = field(default_factory=list)
    is_private: bool = False

    @staticmethod
    def of(seed: int) -> Recorder:
        return Recorder(SeededSource(seed))

    def _note(self, law: str, values: Any, scale: float, released: np.ndarray) -> np.ndarray:
        self.draws.append((law, scale, np.array(values, dtype=float), released))
        return released

    def laplace(self, values: Any, scale: float) -> np.ndarray:
        return self._note("laplace", values, scale, self.source.laplace(values, scale))

    def gaussian(self, values: Any, scale: float) -> np.ndarray:
        return self._note("gaussian", values, scale, self.source.gaussian(values, scale))
