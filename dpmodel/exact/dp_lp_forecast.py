"""How many rows ``dp-lp`` misses, by simulation on integer programs with equalities hidden in inequalities."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dpmodel._types import Integers
from dpmodel.errors import NotPrivateWarning
from dpmodel.exact.flats import FractionRows, fractions, region_of, satisfied, slack_rows
from dpmodel.exact.model import PUBLIC_INTEGERS
from dpmodel.marks.records import Neighbors
from dpmodel.privacy import PublicGenerator, SeededSource, public_generator

if TYPE_CHECKING:
    from dpmodel.exact.dp_lp import DPLinearProgram


def synthetic_program(
    draw: PublicGenerator, records: int, variables: int, largest: int, hidden: int, owners: int, combined: bool = False
) -> tuple[Integers, Integers, Integers]:
    """(n, d) A, (n,) b and a point x0 (d,) with ``A x0 <= b``; entries of A and b are integers of size at most U.

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


# ------------------------------------------------------------------ simulated runs of the mechanism's own rounds


# Programs per number of hidden equalities, and the most rows of each.
SEEDS, MOST = 3, 5_000
# Numbers of records of which the least that suffices is looked for.
SIZES = tuple(125 * 2**k for k in range(6))


@dataclass(frozen=True)
class Misses:
    """``missed`` : most rows missed in a simulation. ``by_hidden`` : the same by number of hidden equalities."""

    missed: float
    by_hidden: tuple[tuple[int, float], ...]


def box(variables: int, low: int, high: int) -> FractionRows:
    """(2d, d + 1) public rows of ``low <= x <= high``."""
    one = np.eye(variables, dtype=int)
    rows = np.vstack([np.c_[np.full(variables, -low), one], np.c_[np.full(variables, high), -one]])
    return fractions(rows)


@dataclass(frozen=True)
class Setting:
    """The public facts that a search depends on."""

    variables: int
    largest: int
    epsilon: float
    delta: float
    neighbors: Neighbors


@lru_cache(maxsize=64)
def simulated_misses(mechanism: DPLinearProgram, setting: Setting, records: int) -> Misses:
    """Most rows missed over SEEDS synthetic programs each with 0, 1 and d // 2 hidden equalities.

    With hidden equalities, a tenth of the rows belongs to them. Beyond MOST rows, programs have MOST and the share is
    scaled up, which errs on the safe side: the noise does not grow with the rows. Real rows may have thinner margins.
    """
    n, d = min(records, MOST), setting.variables
    kinds = sorted({0, min(1, d - 1), d // 2})
    worst = [(h, math.ceil(_worst(mechanism, setting, n, h, SEEDS) * records / max(n, 1))) for h in kinds]
    return Misses(float(max(m for _, m in worst)), tuple(worst))


@lru_cache(maxsize=64)
def simulated_need(mechanism: DPLinearProgram, setting: Setting) -> float:
    """The least of SIZES with which simulations miss less than the share that says nothing; inf for none."""
    for n in SIZES:
        if max(_worst(mechanism, setting, n, h, 2) for h in (0, setting.variables // 2)) < PUBLIC_INTEGERS * n:
            return float(n)
    return math.inf


def _worst(mechanism: DPLinearProgram, setting: Setting, n: int, hidden: int, seeds: int) -> int:
    d, U = setting.variables, setting.largest
    public = box(d, 0, 10)
    first = region_of(public[:0], public, d)
    assert first is not None
    worst = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        for seed in range(seeds):
            A, b, _ = synthetic_program(public_generator(seed), n, d, U, hidden, n // 10 // max(hidden, 1))
            rows, source = slack_rows(A, b, U), SeededSource(seed)
            best, _ = mechanism.search(rows, first, public, setting, source)
            worst = max(worst, int(np.count_nonzero(~satisfied(rows, best.x, U))))
    return worst
