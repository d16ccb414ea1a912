"""Sums of squares in the objective against the same as cones: points and multipliers agree, and t is let go alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.compile.public_set import base_program
from dpmodel.numerics import solvers
from dpmodel.numerics.array_program import ArrayProgram, squares
from dpmodel.numerics.cone_program import ConeProgram, _in_arrays, solve_cone_program

RNG = np.random.default_rng(0)
F, SHIFT = RNG.normal(size=(7, 6)), RNG.normal(size=7)
CHAIN = np.eye(5, 6) - np.eye(5, 6, k=1)


def program(objective: Any, constraints: Any = lambda x: []) -> ConeProgram:
    b = dpm.Private(np.ones(2), name="b", unit="entry", linf=1)
    x = cp.Variable(6, name="x")
    own = [x[0] + x[1] >= b[0], cp.sum(x) == b[1], *constraints(x)]
    return base_program(dpm.Problem(cp.Minimize(objective(x)), own)._model(None).form)


def arrays(of: ConeProgram) -> ArrayProgram:
    return _in_arrays(of, None, None, False, None).program


TAKEN = {
    "plain": lambda x: cp.sum_squares(x),
    "dense": lambda x: 3 * cp.sum_squares(F @ x - SHIFT),
    "a chain, and a linear part": lambda x: cp.sum_squares(CHAIN @ x) + cp.sum(x) + 0.1 * cp.sum_squares(x - 1),
    "a form": lambda x: cp.quad_form(x, F.T @ F) - x[0],
    "each for itself": lambda x: cp.sum(cp.square(x - 1)) + x[2],
    "rows of a product, each for itself": lambda x: cp.sum(cp.square(F @ x - SHIFT)),
    "near zero only": lambda x: cp.sum(cp.huber(x)),
    "long and short rows": lambda x: cp.sum_squares(F @ x - SHIFT) + cp.sum_squares(x),
    "beside a norm": lambda x: cp.sum_squares(x) + cp.norm(x - 1),
}


@pytest.mark.parametrize("name", TAKEN)
def test_points_and_multipliers_are_those_of_the_cones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = program(TAKEN[name])
    of = of.with_(b=of.b + RNG.normal(size=of.b.size) * (of.b == 0) * (np.arange(of.b.size) < 3))
    found = squares(arrays(of))
    assert found is not None and found.program.h.size < arrays(of).h.size
    ours = solve_cone_program(of, solver=cp.CLARABEL)
    monkeypatch.setattr(solvers, "squares", lambda program: None)
    theirs = solve_cone_program(of, solver=cp.CLARABEL)
    assert ours.status == theirs.status == "optimal"
    assert ours.x is not None and theirs.x is not None and ours.dual is not None and theirs.dual is not None
    assert np.allclose(ours.x, theirs.x, atol=1e-3) and np.isclose(ours.value or 0, theirs.value or 0, atol=1e-6)
    assert np.allclose(ours.dual, theirs.dual, atol=1e-3)
    # The multipliers prove the optimum of the program as it was: every column's cost is theirs.
    assert np.abs(of.c + of.A.T @ ours.dual).max() < 1e-5


def test_a_square_that_is_held_elsewhere_stays() -> None:
    t = cp.Variable(name="t")
    assert squares(arrays(program(lambda x: t, lambda x: [cp.sum_squares(x) <= t, t <= 9 + x[0]]))) is None
    assert squares(arrays(program(lambda x: cp.quad_over_lin(x, 1 + x[0])))) is None
    assert squares(arrays(program(lambda x: cp.norm(x)))) is None
    plain = arrays(program(TAKEN["plain"]))
    column = int(np.flatnonzero(plain.c)[0])
    bounded, free = plain.upper.copy(), plain.c.copy()
    bounded[column], free[column] = 5.0, 0.0
    assert squares(plain) is not None
    assert squares(replace(plain, upper=bounded)) is None
    assert squares(replace(plain, c=free)) is None
    assert squares(replace(plain, h=plain.h * 1.5 * (np.arange(plain.h.size) == 0) + plain.h)) is None


def test_a_few_long_rows_stay_a_cone() -> None:
    """Their product would have more entries than they have."""
    assert squares(arrays(program(lambda x: cp.sum_squares(F[:1] @ x)))) is None


def test_nothing_but_squares() -> None:
    of = program(TAKEN["plain"])
    alone = of.with_(keep=np.array([kind == "soc" for kind in _kinds(of)]))
    found = solve_cone_program(alone, solver=cp.CLARABEL)
    assert found.status == "optimal" and found.x is not None and np.allclose(found.x, 0, atol=1e-4)


def _kinds(of: ConeProgram) -> list[str]:
    return [block.kind for block in of.cones for _ in range(block.size)]
