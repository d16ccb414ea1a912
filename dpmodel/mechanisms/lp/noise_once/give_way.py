"""How far each private row of a linear program has to give way, where the released numbers contradict each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program


def least_each(
    program: ConeProgram, direction: Floats, most: float, *, weights: Any = None, **how: Any
) -> Floats | None:
    """(m,) shortfalls of least sum, none above ``most``, of the rows that ``direction`` (m,) lets give way; None where
    rows lie in other cones, or no solver has an answer.

    The largest is what some row needs; with a slack of that size for all, rows that contradict nothing would be missed
    too. A shortfall variable for each row (two for an equality, up and down) is minimised in sum. Released numbers
    only: post-processing.
    """
    rows = np.flatnonzero(direction > 0)
    kinds = np.repeat([block.kind for block in program.cones], [block.size for block in program.cones])[rows]
    if not set(kinds.tolist()) <= {"zero", "nonneg"}:
        return None
    equal = kinds == "zero"
    ceiling = np.full(program.b.size, np.inf) if program.ceiling is None else program.ceiling
    room = np.where(equal, most, np.minimum(most, np.maximum(ceiling - program.b, 0.0)[rows]))
    # Column k makes row rows[k] easier from above; those of equalities come again, from below.
    place = np.concatenate([rows, rows[equal]])
    sign = np.concatenate([-np.ones(rows.size), np.ones(int(equal.sum()))])
    count, n = place.size, program.c.size
    slacks = sp.csr_array((sign, (place, np.arange(count))), shape=(program.b.size, count))
    wide = program.with_(
        c=np.concatenate([np.zeros(n), np.ones(count)]),
        d=0.0,
        A=sp.hstack([sp.csr_array(program.A), slacks], format="csr"),
        lower=np.concatenate([program.lower, np.zeros(count)]),
        upper=np.concatenate([program.upper, room, np.full(count - rows.size, most)]),
    )
    if weights is not None:
        weights = sp.hstack([sp.csr_array(weights), sp.csr_array((program.b.size, count))], format="csr")
    solution = solve_cone_program(wide, weights=weights, **how)
    if solution.x is None:
        return None
    out = np.zeros(program.b.size)
    np.add.at(out, place, np.maximum(solution.x[n:], 0.0))
    return out
