"""Made-up integer programs with equalities hidden in inequalities: for forecasts, tests and benchmarks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpmodel.privacy import PublicGenerator

Integers = npt.NDArray[np.int64]


def planted_program(
    draw: PublicGenerator, records: int, variables: int, largest: int, hidden: int, owners: int, combined: bool = False
) -> tuple[Integers, Integers, Integers]:
    """(n, d) A, (n,) b and a point x0 (d,) with ``A x0 <= b``: integers of size at most U.

    ``hidden`` equalities c'x = f through x0 are owned by ``owners`` records each, half of them as c'x <= f, half as
    -c'x <= -f. ``combined`` : each owner holds a small random combination of the hidden equalities instead. The other
    rows are random, with slack 1, .., U - a'x0 at x0. Order is random.
    """
    d, U = variables, largest
    x0 = draw.integers(0, 4, d)
    while True:
        base = draw.integers(-max(U // 3, 1), max(U // 3, 1) + 1, (hidden, d))
        f = base @ x0
        if hidden == 0 or (np.linalg.matrix_rank(base) == hidden and np.abs(f).max() <= max(U // 3, 1)):
            break
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
        b = at + 1 + np.floor(draw.random(at.size) * (U - at)).astype(np.int64)
        parts.append(np.hstack([a, b[:, None]]))
        rest -= a.shape[0]
    rows = draw.permutation(np.vstack(parts), axis=0)
    return rows[:, :-1], rows[:, -1], x0
