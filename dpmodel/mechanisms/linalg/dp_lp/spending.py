"""How dp-lp splits its budget between the releases of its rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpmodel.privacy import zcdp_rho

# Share of epsilon for the spans (of delta: half), and of the rest (in rho) for each selection and for the count.
SPANS, SELECTION, COUNT = 0.25, 0.02, 0.04


@dataclass(frozen=True)
class Spending:
    """The public split of one budget. Round r of R: solve at ``solve[r]``, sanitise at ``spans[r]`` (not in the last),
    select at ``select[r]``; at the end a count at ``count``. rho in zCDP, spans (epsilon, delta)."""

    solve: tuple[float, ...]
    spans: tuple[tuple[float, float], ...]
    select: tuple[float, ...]
    count: float


def spending(epsilon: float, delta: float, rounds: int) -> Spending:
    """Split (epsilon, delta) between the rounds: 1, 1/2, 1/4 .. for the spans, the first descent twice a later one.

    The spans take SPANS of epsilon and half of delta by basic composition; the rest of epsilon, with the other half of
    delta, is converted to zCDP once, for everything else. Both groups together cost the sum (concurrent composition).
    """
    rho = zcdp_rho((1 - SPANS) * epsilon if rounds > 1 else epsilon, delta / 2 if rounds > 1 else delta)
    rest = rho * (1 - SELECTION * rounds - COUNT)
    weights = np.array([2.0, *[1.0] * (rounds - 1)])
    halves = 0.5 ** np.arange(rounds - 1)
    return Spending(
        tuple(float(v) for v in rest * weights / weights.sum()),
        tuple((float(SPANS * epsilon * h), float(delta / 2 * h)) for h in halves / max(halves.sum(), 1e-300)),
        (rho * SELECTION,) * rounds,
        rho * COUNT,
    )
