"""What no mechanism for exact systems can do, whatever its algorithm: the facts shown beside forecasts."""

from __future__ import annotations

import math

from dpmodel.mechanisms.linalg.systems import PrivateInequalities, PrivatePoints, PrivateSystem, PrivateVectors
from dpmodel.text import number


def rows_at_risk(epsilon: float, delta: float, beta: float) -> float:
    """Records that may stand alone for a direction and still be missed with probability more than beta.

    *Proof, for vectors.* Let a mechanism never leave the span of its input (KMMST24, Theorem A, item 1) and let
    p_t be the probability that it finds a direction which t records carry and no other does. Then p_0 = 0, and by
    privacy ``p_t <= e^epsilon p_(t-1) + delta``, so ``p_t <= delta (e^(epsilon t) - 1) / (e^epsilon - 1)``. For
    p_t >= 1 - beta, t must be at least ``ln(1 + (1 - beta)(e^epsilon - 1) / delta) / epsilon``, about
    (1/epsilon) ln(1/delta). The same holds where an answer that satisfies the t rows is never given without them.
    """
    if delta <= 0:
        return math.inf
    # ln(1 + e^u), where u = ln((1 - beta)(e^epsilon - 1) / delta) and e^epsilon may be out of range.
    u = epsilon + math.log(-math.expm1(-epsilon)) + math.log1p(-beta) - math.log(delta)
    return (max(u, 0.0) + math.log1p(math.exp(-abs(u)))) / epsilon


def iterated_logarithm(value: float) -> int:
    """log*: how often the binary logarithm must be taken until at most 1 is left."""
    steps = 0
    while value > 1:
        value = math.log2(value)
        steps += 1
    return steps


def system_lower_bounds(model: PrivateSystem, epsilon: float, delta: float, beta: float) -> tuple[str, ...]:
    """The facts as printable lines."""
    lines = []
    if isinstance(model, PrivateVectors):
        risk = rows_at_risk(epsilon, delta, beta)
        if math.isfinite(risk):
            lines.append(
                f"lower bound: a direction that fewer than {math.ceil(risk)} records carry is missed with probability "
                f"above {number(beta)} by every ({number(epsilon)}, {number(delta)})-private mechanism that never "
                "leaves the span (about (1/epsilon) ln(1/delta); group privacy)"
            )
        size = model.rank
    else:
        size = model.cone_dimension if isinstance(model, PrivateInequalities) else model.dimension
        if delta > 0:
            lines.append(
                f"about (1/epsilon) ln(1/delta) = {number(math.log(1 / delta) / epsilon)} rows are at risk under any "
                "private mechanism (an order, not a constant)"
            )
    lines.append(
        f"lower bound as a rate, constant unknown: linear in the dimension, here {size} "
        "(VC dimension; KMMST24, section 2.4)"
    )
    levels = float(max(model.levels)) if isinstance(model, PrivatePoints) else None
    if isinstance(model, PrivateInequalities) and model.largest is not None:
        levels = 2.0 * model.largest + 1.0
    if levels is not None:
        lines.append(
            "lower bound as a rate, constant unknown: log* of the number of values U, here "
            f"{iterated_logarithm(levels)}; on a continuum no number of records suffices (interior points; Bun, "
            "Nissim, Stemmer and Vadhan 2015)"
        )
    return tuple(lines)
