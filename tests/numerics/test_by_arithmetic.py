"""What arithmetic tells of the largest value of a linear function, against CVXPY; and what it must not tell."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.compile.public_set import PublicSet
from dpmodel.numerics.by_arithmetic import maximum

N = 3


def told(objective: cp.Expression, constraints: list) -> tuple[float | None, float]:
    """What arithmetic says of the largest ``-objective`` (as CVXPY lowers it), and what it is."""
    b = dpm.Private(shape=1, name="b", unit="entry", linf=1)
    idle = cp.Variable(1, name="idle")
    model = dpm.Problem(cp.Minimize(objective), [*constraints, idle <= b])._door(None).data
    public: PublicSet = model.public
    largest = maximum(public.program, model.form.c0, *public._implied)
    program, x = public.program, cp.Variable(model.affine.variables)
    gap, rows = program.b - program.A @ x, []
    for block in program.cones:
        keep = np.flatnonzero(program.keep[block.rows]) + block.start
        if not keep.size:
            continue
        if block.kind == "zero":
            rows.append(gap[keep] == 0)
        elif block.kind == "nonneg":
            rows.append(gap[keep] >= 0)
        elif block.kind == "soc":
            start = block.start
            for size in block.sizes:
                rows.append(cp.SOC(gap[start], gap[start + 1 : start + size]))
                start += size
        elif block.kind == "exp":
            rows += [cp.ExpCone(*gap[start : start + 3]) for start in range(block.start, block.start + block.size, 3)]
        elif block.kind == "psd":
            (size,) = block.sizes
            square = cp.reshape(gap[block.rows], (int(size**0.5),) * 2, order="F")
            rows.append((square + square.T) / 2 >> 0)
    lower, upper = public.box
    finite = np.isfinite(lower), np.isfinite(upper)
    rows += [x[finite[0]] >= lower[finite[0]], x[finite[1]] <= upper[finite[1]]]
    plain = cp.Problem(cp.Maximize(model.form.c0 @ x), rows)
    plain.solve(solver=cp.CLARABEL)
    return largest, float(plain.value)


def cases() -> dict[str, tuple[cp.Expression, list, bool]]:
    """An objective, constraints, and whether arithmetic tells."""
    x, X = cp.Variable(N, nonneg=True, name="x"), cp.Variable((N, N), symmetric=True, name="X")
    y = cp.Variable(N, name="y")
    ones = [cp.sum(x) == 1]
    return {
        "epigraph of a square": (cp.sum_squares(x - 1), ones, True),
        "epigraph of a norm": (cp.norm(x), ones, True),
        "epigraph of an entropy": (-cp.sum(cp.entr(x)), ones, True),
        "equality": (2 * cp.sum(x), ones, True),
        "no multiple of an equality": (np.arange(1.0, N + 1) @ x, [*ones, cp.norm(x) <= 0.9], False),
        "fixed by rows": (cp.trace(X), [cp.diag(X) == 2, X >> 0], True),
        "a trace": (cp.trace(X), [cp.trace(X) == 2, X >> 0], True),
        "a matrix": (cp.sum(X), [cp.trace(X) == 2, X >> 0], False),
        "a tail that moves faster than its head": (y[0], [cp.SOC(1 + y[0], cp.hstack([2 * y[0], y[1]]))], False),
        "a tail that moves as its head does": (y[0], [cp.SOC(1 + y[0], cp.hstack([y[0], y[1]]))], True),
        "a head that falls": (y[0], [cp.SOC(5 - y[0], y[1:])], False),
        "two columns together": (y[0], [y[0] <= y[1], cp.norm(x) <= 1], False),
        "what grows in an exponential cone": (y[0], [cp.exp(y[1]) <= y[0]], True),
        "what an exponential cone bounds": (y[1], [cp.exp(y[1]) <= 5 - y[0], y[0] >= 0], False),
    }


@pytest.mark.parametrize("name", cases())
def test_what_is_told_is_true(name: str) -> None:
    objective, constraints, tells = cases()[name]
    largest, true = told(objective, constraints)
    assert (largest is not None) == tells
    if largest is not None:
        assert largest == true or true - 1e-6 <= largest <= true + 1e-5 * (1 + abs(true))


def test_an_objective_of_nothing() -> None:
    assert told(0 * cp.Variable(N, name="z")[0] + 0, [cp.norm(cp.Variable(2, name="w")) <= 1])[0] == 0.0


def test_a_point_of_second_order_cones_is_seen_without_a_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpmodel.compile.public_set.solve_cone_program", None)
    b = dpm.Private(shape=1, name="b", unit="entry", linf=1)
    x = cp.Variable(N, nonneg=True, name="x")
    for centre, inside in ((1.0, True), (2.0, False), (-1.0, True)):
        ball = cp.SOC(cp.Constant(2), x - centre)
        public = dpm.Problem(cp.Minimize(cp.sum_squares(x)), [x[:1] >= b, ball])._door(None).data.public
        assert public.holds(np.zeros(public.form.affine.variables)) == inside
        if inside:
            assert public.feasible


def test_a_point_of_exponential_cones_is_seen_without_a_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpmodel.compile.public_set.solve_cone_program", None)
    b = dpm.Private(shape=1, name="b", unit="entry", linf=1)
    x = cp.Variable(N, nonneg=True, name="x")
    public = dpm.Problem(cp.Maximize(cp.sum(cp.entr(x))), [cp.sum(x) == 1, x[:1] >= b])._door(None).data.public
    assert public.feasible
    entropy = -np.log(N) / -N  # of one entry at 1 / N
    for height, inside in ((entropy - 1e-9, True), (entropy + 1e-6, False)):
        point = np.where(public.form.c0 != 0, height, 1.0 / N)
        assert public.holds(point) == inside
    assert not public.holds(np.where(public.form.c0 != 0, -1.0, 0.0))  # nor is the equality met
