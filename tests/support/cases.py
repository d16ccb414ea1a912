"""Small private problems for the mechanism tests, and what their true programs say, computed apart.

A ``Case`` is written once; ``open()`` gives a fresh problem with sealed values. ``Truth`` reads the true c, b, A
through exact rational-free numpy (not through measurements) and solves them with CVXPY's default solver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.optimize import brentq

import dpmodel as dpm
from dpmodel._types import Floats
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options
from dpmodel.marks import Private, Records
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program
from dpmodel.programs.margins import interior_direction
from dpmodel.programs.model import Program


@dataclass
class Opened:
    """A problem and its private parameters, by name."""

    problem: dpm.Problem
    private: dict[str, Private]
    options: Options

    @cached_property
    def model(self) -> Program:
        return self.problem._model(None)

    def seal(self, values: dict[str, Any]) -> Floats:
        """Give values and read theta back, as ``run`` does."""
        for name, value in values.items():
            self.private[name].value = value
        return self.model.read_private()


@dataclass(frozen=True)
class Case:
    """``write`` returns objective, constraints and private parameters; ``values`` their data."""

    name: str
    write: Callable[[], tuple[Any, list[Any], list[Private]]]
    values: dict[str, Any]
    neighbour: dict[str, Any]
    delta: float = 1e-3
    epsilon: float = 1.0
    beta: float = 0.1
    feasibility: str = "relaxed"

    def open(self, **sensitivities: Any) -> Opened:
        objective, constraints, private = self.write()
        names = {p.name(): p for p in private}
        asked = {"epsilon": self.epsilon, "delta": self.delta, "beta": self.beta, "feasibility": self.feasibility}
        opened = Opened(dpm.Problem(objective, constraints), names, Options(**{**asked, **sensitivities}))
        opened.seal(self.values)
        return opened

    def __str__(self) -> str:
        return self.name


class Truth:
    """The true program behind a sealed model. Test-only: it reads private values."""

    def __init__(self, model: Program) -> None:
        theta = model.read_private()
        form = model.form
        c, b = form.objective.apply(theta), form.scalar.apply(theta)
        size = form.affine.rows * form.affine.variables
        flat = np.zeros(size)
        if form.matrix.nnz:
            np.add.at(flat, form.matrix.row, form.matrix.coefficient * theta[form.matrix.column])
        A = form.A0.toarray() + flat.reshape((form.affine.rows, form.affine.variables), order="F")
        self.model = model
        self.program: ConeProgram = base_program(form).with_(c=form.c0 + c, b=form.b0 + b, A=A)
        solution = solve_cone_program(self.program)
        assert solution.x is not None, solution.status
        self.x, self.value = solution.x, float(self.program.c @ solution.x)

    def objective(self, x: Floats) -> float:
        return float(self.program.c @ x)

    def violation(self, x: Floats) -> float:
        return violation(self.program, x)


def violation(program: ConeProgram, x: Floats) -> float:
    """Least t >= 0 with ``b - A x + t d`` in every cone (bands counted as part of zero cones), bounds included."""
    gap = np.asarray(program.b - program.A @ x).ravel()
    worst = max(0.0, float((program.lower - x).max(initial=0.0)), float((x - program.upper).max(initial=0.0)))
    for block in program.cones:
        part, keep = gap[block.rows], program.keep[block.rows]
        if block.kind == "zero":
            worst = max(worst, float((np.abs(part) - program.band[block.rows])[keep].max(initial=0.0)))
        elif block.kind == "nonneg":
            worst = max(worst, float((-part)[keep].max(initial=0.0)))
        else:
            start = 0
            for number, size in enumerate(block.sizes):
                worst = max(worst, cone_gap(block.kind, part[start : start + size], block.alphas[number : number + 1]))
                start += size
    return worst


def cone_gap(kind: str, v: Floats, alphas: tuple[float, ...] = ()) -> float:
    """Least t >= 0 with ``v + t d`` in the cone, d its interior direction; written from the cones' definitions."""
    if kind == "soc":
        return max(0.0, float(np.linalg.norm(v[1:]) - v[0]))
    if kind == "psd":
        side = round(v.size**0.5)
        square = v.reshape(side, side)
        return max(0.0, -float(np.linalg.eigvalsh((square + square.T) / 2)[0]))

    def inside(t: float) -> float:
        x, y, z = v + t * (np.array([-1.0, 1.0, 1.0]) if kind == "exp" else np.array([1.0, 1.0, 0.0]))
        if kind == "exp":
            return -1.0 if y <= 0 else float(z - y * np.exp(min(x / y, 700.0)))
        return -1.0 if min(x, y) <= 0 else float(x ** alphas[0] * y ** (1 - alphas[0]) - abs(z))

    if inside(0.0) >= 0:
        return 0.0
    high = 1e-9
    while inside(high) < 0:
        high *= 2
    return float(brentq(inside, 0.0, high, xtol=1e-13)) if high > 1e-9 else 0.0


def direction_of(model: Program) -> Floats:
    return interior_direction(model.affine)


# ------------------------------------------------------------------------------------------ the cases
COST = np.array([1.0, 2.0, 1.5, 3.0])
PREFIX = np.tril(np.ones((4, 4)))


def prices() -> tuple[Any, list[Any], list[Private]]:
    c = Private(shape=4, name="c", l1=2.0, linf=1.0)
    x = cp.Variable(4, nonneg=True, name="x")
    return cp.Minimize(c @ x), [cp.sum(x) == 1], [c]


def profits() -> tuple[Any, list[Any], list[Private]]:
    c = Private(shape=4, name="c", unit="entry", linf=0.5, bounds=[0, 10])
    x = cp.Variable(4, bounds=[0, 2], name="x")
    return cp.Maximize(c @ x + 3), [COST @ x <= 5], [c]


def demand() -> tuple[Any, list[Any], list[Private]]:
    b = Private(shape=4, name="b", unit="entry", linf=1.0)
    x = cp.Variable(4, name="x")
    return cp.Minimize(COST @ x), [x >= b], [b]


def running_totals() -> tuple[Any, list[Any], list[Private]]:
    """Row i needs b_1 + ... + b_i: one record's entry is reused in up to four rows."""
    b = Private(shape=4, name="b", unit="entry", linf=1.0)
    x = cp.Variable(4, name="x")
    return cp.Minimize(COST @ x), [x >= PREFIX @ b], [b]


def packing() -> tuple[Any, list[Any], list[Private]]:
    b = Private(shape=3, name="b", l1=1.0, bounds=[5, 100])
    x = cp.Variable(4, nonneg=True, name="x")
    return cp.Maximize(COST @ x), [WEIGHTS @ x <= b], [b]


WEIGHTS = np.array([[1.0, 2.0, 0.5, 1.0], [0.3, 1.0, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0]])


def flow() -> tuple[Any, list[Any], list[Private]]:
    b = Private(shape=2, name="b", linf=0.5)
    x = cp.Variable(4, bounds=[0, 60], name="x")
    return cp.Minimize(COST @ x), [x[0] + x[1] == b[0], x[1] + x[2] + x[3] == b[1]], [b]


def coefficients() -> tuple[Any, list[Any], list[Private]]:
    A = Private(shape=(3, 4), name="A", unit="row", l1=0.2, linf=0.1, nonneg=True)
    x = cp.Variable(4, bounds=[0, 3], name="x")
    return cp.Maximize(COST @ x), [A @ x <= 6.0], [A]


def signed_coefficients() -> tuple[Any, list[Any], list[Private]]:
    A = Private(shape=(3, 4), name="A", unit="entry", linf=0.05, bounds=[-2, 2])
    x = cp.Variable(4, bounds=[-3, 3], name="x")
    return cp.Maximize(COST @ x), [A @ x <= 6.0], [A]


def rows_and_sides() -> tuple[Any, list[Any], list[Private]]:
    people = Records("people")
    A = Private(shape=(3, 4), name="A", unit="row", l1=0.2, bounds=[0, 2], records=people)
    b = Private(shape=3, name="b", unit="entry", linf=0.5, bounds=[10, 30], records=people)
    x = cp.Variable(4, bounds=[0, 9], name="x")
    return cp.Maximize(COST @ x), [A @ x <= b], [A, b]


def objective_and_sides() -> tuple[Any, list[Any], list[Private]]:
    people = Records("people")
    c = Private(shape=4, name="c", linf=0.1, records=people)
    b = Private(shape=3, name="b", unit="entry", linf=0.5, bounds=[2, 12], records=people)
    x = cp.Variable(4, bounds=[0, 3], name="x")
    return cp.Maximize(c @ x), [WEIGHTS @ x <= b], [c, b]


def all_three() -> tuple[Any, list[Any], list[Private]]:
    people = Records("people")
    c = Private(shape=4, name="c", linf=0.1, records=people)
    A = Private(shape=(3, 4), name="A", unit="row", l1=0.2, bounds=[0, 2], records=people)
    b = Private(shape=3, name="b", unit="entry", linf=0.5, bounds=[2, 12], records=Records("others"))
    x = cp.Variable(4, bounds=[0, 3], name="x")
    return cp.Minimize(-c @ x), [A @ x <= b], [c, A, b]


def shared_numbers() -> tuple[Any, list[Any], list[Private]]:
    """Two parameters of unequal size: one is the objective's and the sides', the other the sides' and a row's."""
    people = Records("people")
    p = Private(shape=4, name="p", unit="entry", linf=0.5, bounds=[2, 12], records=people)
    q = Private(shape=6, name="q", l1=0.2, linf=0.1, bounds=[0, 2], records=people)
    x = cp.Variable(4, bounds=[0, 3], name="x")
    return cp.Maximize(p @ x), [WEIGHTS @ x <= p[:3] + q[3:], q[:4] @ x <= 6.0], [p, q]


def integers() -> tuple[Any, list[Any], list[Private]]:
    b = Private(shape=3, name="b", unit="entry", linf=1.0, bounds=[0, 30])
    x = cp.Variable(4, integer=True, bounds=[0, 6], name="x")
    return cp.Maximize(COST @ x), [WEIGHTS @ x <= b], [b]


def ball() -> tuple[Any, list[Any], list[Private]]:
    """Second-order: the centre and the radius are private."""
    b = Private(shape=3, name="b", l2=0.2, bounds=[-2, 2])
    r = Private(shape=(), name="r", linf=0.3, bounds=[5, 12])
    x = cp.Variable(3, bounds=[-20, 20], name="x")
    return cp.Minimize(COST[:3] @ x), [cp.norm2(x - b) <= r], [b, r]


def moving_ball() -> tuple[Any, list[Any], list[Private]]:
    """Second-order with a private coefficient."""
    A = Private(shape=(2, 3), name="A", unit="entry", linf=0.05, bounds=[-0.1, 0.1])
    x = cp.Variable(3, bounds=[-4, 4], name="x")
    return cp.Minimize(COST[:3] @ x), [cp.norm2((A + WEIGHTS[:2, :3]) @ x) <= 3.0], [A]


def matrix_above() -> tuple[Any, list[Any], list[Private]]:
    """Semidefinite: X above a private symmetric matrix."""
    C = Private(shape=(2, 2), name="C", symmetric=True, unit="entry", linf=0.2, bounds=[-3, 3])
    X = cp.Variable((2, 2), symmetric=True, name="X")
    return cp.Minimize(cp.trace(X)), [X >> C, cp.abs(X) <= 50], [C]


def entropies() -> tuple[Any, list[Any], list[Private]]:
    """Exponential cone with private right-hand sides inside it."""
    b = Private(shape=2, name="b", unit="entry", linf=0.1, bounds=[-0.3, 0.3])
    x = cp.Variable(2, bounds=[-5, 5], name="x")
    y = cp.Variable(2, bounds=[0, 50], name="y")
    return cp.Minimize(cp.sum(y) - 2 * cp.sum(x)), [cp.exp(x + b) <= y], [b]


def shift(value: Any, index: Any, amount: float) -> np.ndarray:
    out = np.array(value, dtype=float)
    out[index] += amount
    return out


_A = np.array([[1.0, 0.5, 1.2, 0.8], [0.4, 1.5, 0.2, 1.0], [1.0, 1.0, 1.0, 0.3]])
_S = np.array([[1.0, -0.5, 1.2, 0.8], [-0.4, 1.5, 0.2, -1.0], [1.0, 1.0, -1.0, 0.3]])
_b3 = np.array([7.0, 6.0, 8.0])

CASES: dict[str, Case] = {}


def _case(write: Any, values: dict[str, Any], neighbour: dict[str, Any], **more: Any) -> None:
    CASES[write.__name__] = Case(write.__name__, write, values, {**values, **neighbour}, **more)


_case(prices, {"c": [3.0, 2.0, 2.5, 4.0]}, {"c": [4.0, 1.0, 2.5, 4.0]})
_case(profits, {"c": [3.0, 2.0, 2.5, 4.0]}, {"c": [3.0, 2.0, 3.0, 4.0]})
_case(demand, {"b": [3.0, 2.0, 2.5, 4.0]}, {"b": [3.0, 3.0, 2.5, 4.0]})
_case(running_totals, {"b": [3.0, 2.0, 2.5, 4.0]}, {"b": [4.0, 2.0, 2.5, 4.0]})
_case(packing, {"b": [40.0, 35.0, 50.0]}, {"b": [41.0, 35.0, 50.0]})
_case(flow, {"b": [30.0, 25.0]}, {"b": [30.5, 24.5]})
_case(coefficients, {"A": _A}, {"A": shift(_A, (0, slice(0, 2)), 0.1)})
_case(signed_coefficients, {"A": _S}, {"A": shift(_S, (0, 0), 0.05)})
_case(rows_and_sides, {"A": _A, "b": 2 * _b3}, {"A": shift(_A, (1, 1), 0.2), "b": shift(2 * _b3, 1, 0.5)})
_case(
    objective_and_sides,
    {"c": [3.0, 2.0, 2.5, 4.0], "b": _b3},
    {"c": [3.1, 2.1, 2.6, 4.1], "b": shift(_b3, 1, 0.5)},
)
_case(
    all_three,
    {"c": [3.0, 2.0, 2.5, 4.0], "A": _A, "b": _b3},
    {"c": [3.1, 2.1, 2.6, 4.1], "A": shift(_A, (1, 1), 0.2)},
)
_q = np.array([1.0, 0.5, 1.2, 0.8, 0.3, 0.1])
_case(
    shared_numbers,
    {"p": [3.0, 6.0, 2.5, 4.0], "q": _q},
    {"p": [3.5, 6.0, 2.5, 4.0], "q": shift(_q, [0, 3], 0.1)},
)
_case(integers, {"b": [15.0, 14.0, 16.0]}, {"b": [15.0, 14.0, 15.0]})
_case(ball, {"b": [0.5, -0.3, 0.2], "r": 8.0}, {"b": [0.5, -0.1, 0.2], "r": 8.3})
_case(moving_ball, {"A": _S[:2, :3] / 20}, {"A": shift(_S[:2, :3] / 20, (1, 2), 0.05)})
_case(matrix_above, {"C": [[1.0, 0.5], [0.5, 2.0]]}, {"C": [[1.0, 0.7], [0.7, 2.0]]})
_case(entropies, {"b": [0.2, -0.1]}, {"b": [0.2, 0.0]})
