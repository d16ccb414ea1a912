"""Synthetic integer programs with equalities hidden in inequalities: for forecasts, tests and benchmarks."""

from __future__ import annotations

import numpy as np

from dpmodel._types import Integers
from dpmodel.privacy import PublicGenerator


def synthetic_program(
    draw: PublicGenerator, records: int, variables: int, largest: int, hidden: int, owners: int, combined: bool = False
) -> tuple[Integers, Integers, Integers]:
    """(n, d) A, (n,) b and a point x0 (d,) with ``A x0 <= b``: integers of size at most U.

    ``hidden`` equalities c'x = f through x0 are owned by ``owners`` records each, half of them as c'x <= f, half as
    -c'x <= -f. ``combined`` : each owner holds a small random combination of the hidden equalities instead. The other
    rows are random, with slack 1, .., U - a'x0 at x0. Order is random.
    """
    d, U = variables, largest
    x0 = draw.integers(0, 4, d)
    third = max(U // 3, 1)
    while True:
        base = np.zeros((0, d), dtype=np.int64)
        while base.shape[0] < hidden:
            some = draw.integers(-third, third + 1, (64, d))
            base = np.vstack([base, some[np.abs(some @ x0) <= third]])[:hidden]
        if hidden == 0 or np.linalg.matrix_rank(base.astype(np.float64)) == hidden:
            break
    f = base @ x0
    equal = np.repeat(np.hstack([base, f[:, None]]), owners, axis=0).reshape(-1, d + 1)
    if combined and hidden > 1:
        equal = draw.integers(-1, 2, (owners * hidden, hidden)) @ np.hstack([base, f[:, None]])
    equal = equal * np.where(np.arange(equal.shape[0]) % 2 == 0, 1, -1)[:, None]
    equal = equal[np.abs(equal).max(axis=1, initial=0) <= U]
    rest = records - equal.shape[0]
    parts: list[Integers] = [equal]
    while rest > 0:
        a = draw.integers(-U, U + 1, (4 * rest + 16, d))
        at = a @ x0
        a, at = a[(at < U) & (at >= -U)][:rest], at[(at < U) & (at >= -U)][:rest]
        b = at + 1 + np.floor(draw.uniform(size=at.size) * (U - at)).astype(np.int64)
        parts.append(np.hstack([a, b[:, None]]))
        rest -= a.shape[0]
    rows = draw.permutation(np.vstack(parts), axis=0)
    return rows[:, :-1], rows[:, -1], x0
