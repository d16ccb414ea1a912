"""Running the engines of primal multiplicative weights directly, and models for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from cases import CASES
from neighbours import owned_of, records_of
from replaying import Draw, Transcript

import dpmodel as dpm
from dpmodel._types import Floats
from dpmodel.contract import Options, no_progress
from dpmodel.marks import Private, Records
from dpmodel.privacy import SeededSource
from dpmodel.privacy.accounting import Spend
from dpmodel.programs.goals import Point, Promise, Task
from dpmodel.programs.model import Program
from dpmodel.programs.nearly_feasible import NearlyFeasible
from dpmodel.programs.rows import public_polyhedron


@dataclass
class Game:
    """A problem with sealed values and one engine's task on it."""

    problem: dpm.Problem
    private: dict[str, Private]
    epsilon: float = 1.0
    delta: float = 1e-6
    beta: float = 0.1

    @cached_property
    def model(self) -> Program:
        return self.problem._model(None)

    @cached_property
    def task(self) -> Task:
        spend = Spend.of(self.epsilon, self.delta)
        polytope, tilt = public_polyhedron(self.model), np.zeros(self.model.affine.variables)
        return Task(self.model, polytope, tilt, spend, self.epsilon, self.delta, self.beta)

    @property
    def options(self) -> Options:
        return Options(self.epsilon, self.delta, self.beta)

    def seal(self, **values: Any) -> Floats:
        for name, value in values.items():
            self.private[name].value = value
        return self.model.read_private()

    def play(self, engine: NearlyFeasible, seed: int | Any, theta: Floats | None = None, **sensitivities: Any) -> Point:
        task = replace(self.task, **sensitivities)
        source = SeededSource(seed) if isinstance(seed, int) else seed
        theta = self.model.read_private() if theta is None else theta
        return engine.point(task, engine.promise(self.task), theta, source, no_progress)

    def promise(self, engine: NearlyFeasible) -> Promise:
        return engine.promise(self.task)

    def violation(self, engine: NearlyFeasible, x: Floats) -> float:
        return engine.excess(self.task, self.promise(engine), x, self.model.read_private())


def game(objective: Any, constraints: list[Any], *private: Private, **asked: Any) -> Game:
    return Game(dpm.Problem(objective, constraints), {p.name(): p for p in private}, **asked)


def histogram(cells: int = 64, queries: int = 40, people: int = 20_000, seed: int = 3, **asked: Any) -> Game:
    """Query release: a distribution on cells that answers random counting queries, as shares."""
    rng = np.random.default_rng(seed)
    Q = (rng.random((queries, cells)) < 0.5).astype(float)
    b = Private(shape=queries, name="b", linf=1 / people)
    x = cp.Variable(cells, nonneg=True, name="x")
    out = game(cp.Minimize(0), [cp.sum(x) == 1, Q @ x == b], b, **asked)
    truth = rng.dirichlet(np.full(cells, 0.2))
    out.seal(b=Q @ truth)
    return out


def packing(people: float = 1.0, **asked: Any) -> Game:
    """Capacities are private; boxes and a budget are public."""
    rng = np.random.default_rng(5)
    W = rng.random((30, 12))
    b = Private(shape=30, name="b", unit="entry", linf=0.001 * people)
    x = cp.Variable(12, bounds=[0, 1], name="x")
    out = game(cp.Minimize(0), [W @ x <= b, cp.sum(x) >= 4, np.arange(1.0, 13) @ x <= 30], b, **asked)
    inside = np.full(12, 4.2 / 12)
    out.seal(b=W @ inside + 0.01)
    return out


def noisy_rows(unit: str = "row", scale: float = 1.0, **asked: Any) -> Game:
    """Coefficients are private: one record moves a row, a column or all entries."""
    rng = np.random.default_rng(6)
    declared: dict[str, Any] = {
        "row": {"unit": "row", "linf": 2e-4 * scale, "l1": 4e-4 * scale},
        "column": {"unit": "column", "linf": 2e-4 * scale},
        "all": {"linf": 1e-5 * scale},
    }[unit]
    A = Private(shape=(25, 10), name="A", bounds=[-1, 1], **declared)
    x = cp.Variable(10, nonneg=True, name="x")
    out = game(cp.Minimize(0), [cp.sum(x) == 1, A @ x <= 0.05], A, **asked)
    values = rng.uniform(-1, 1, (25, 10))
    values[:, 3] = -np.abs(values[:, 3]) * 0.2
    out.seal(A=values)
    return out


def rows_and_sides(**asked: Any) -> Game:
    """A and b of the same people, beside other public entries in the private rows."""
    people = Records("people")
    rng = np.random.default_rng(7)
    A = Private(shape=(6, 4), name="A", unit="row", l1=2e-3, bounds=[0, 2], records=people)
    b = Private(shape=6, name="b", unit="entry", linf=1e-3, bounds=[0, 5], records=people)
    x, y = cp.Variable(4, bounds=[-1, 2], name="x"), cp.Variable(2, nonneg=True, name="y")
    P = rng.random((6, 2))
    rows = [A @ x + x[0] + P @ y <= b, cp.sum(x) + cp.sum(y) <= 3, cp.sum(y) >= 0.5]
    out = game(cp.Minimize(0), rows, A, b, **asked)
    out.seal(A=rng.random((6, 4)), b=rng.random(6) + 1)
    return out


def voters(**asked: Any) -> Game:
    """Rows that may be absent: every voter wants one approved project; zero rows are absent."""
    people = Records("voters", neighbors="add-remove")
    rng = np.random.default_rng(8)
    A = Private(shape=(60, 8), name="A", unit="row", bounds=[0, 1], max_l1=4, records=people)
    x = cp.Variable(8, bounds=[0, 1], name="x")
    out = game(cp.Minimize(0), [A @ x >= 1, cp.sum(x) <= 5], A, **asked)
    ballots = (rng.random((60, 8)) < 0.5).astype(float)
    ballots[50:] = 0
    out.seal(A=ballots)
    return out


# ------------------------------------------------------------------ reading what a game asks of its source
class Scripted:
    """Answers selections from a script and keeps the log probability of its answers; ``factor`` times the noise."""

    def __init__(self, script: Sequence[int], factor: float = 1.0) -> None:
        self.script, self.factor, self.log_probability = list(script), factor, 0.0

    def noisy_max(self, scores: Any, scale: float, *, kind: str) -> int:
        assert kind == "exponential"
        weights, answer = np.asarray(scores) / (scale * self.factor), self.script.pop(0)
        self.log_probability += float(weights[answer] - np.logaddexp.reduce(weights))
        return answer


def asked(source: Transcript) -> list[tuple[str, Floats, float]]:
    """(distribution, exact numbers, scale) of every draw."""
    return [(draw.distribution, draw.values[0].ravel(), draw.arguments[0]) for draw in source.draws]


def private_case(name: str) -> Game:
    """A problem of the mechanisms' registry, sealed."""
    case = CASES[name]
    objective, constraints, private = case.write()
    out = game(objective, constraints, *private)
    out.seal(**case.values)
    return out


def neighbours(made: Game, declared: dict[str, dict[str, Any]], rng: np.random.Generator, draws: int) -> Any:
    """(theta, theta') pairs of neighbours, by the independent sampler of the footprint's tests."""
    affine = made.model.affine
    theta = made.model.read_private()
    for units in records_of(list(made.private.values()), declared):
        owned = owned_of(affine, units)
        for _ in range(draws):
            moved = theta.copy()
            for unit, sensitivity in zip(units, owned.split(owned.inside(rng)), strict=True):
                block = next(b for b in affine.parameters if b.name == unit.name)
                moved[block.columns] += unit.full(sensitivity).ravel(order="F")
            yield theta, moved


def replayed(made: Game, engine: NearlyFeasible, promise: Promise, thetas: Sequence[Floats], seed: int) -> list[Draw]:
    """The draws of a game on the first of ``thetas``, with what each asked on the others, given the same answers."""
    first = Transcript(seed)
    for number, theta in enumerate(thetas):
        engine.point(made.task, promise, theta, first.replay() if number else first, no_progress)
    return first.draws


def excess_moves(made: Game, engine: NearlyFeasible, pairs: Any, points: Any) -> float:
    """The most by which neighbours move the excess that the tests of a search read."""
    promise = made.promise(engine)
    excess = [[engine.excess(made.task, promise, x, theta) for theta in pair] for pair in pairs for x in points]
    return max(abs(one - two) for one, two in excess)


def refusal(engine: NearlyFeasible, made: Game, **asked: Any) -> str:
    verdict = engine.suits(made.model, Options(**{"epsilon": 1.0, "delta": 1e-6, **asked}))
    verdict = engine.formed(made.model) if verdict.eligible else verdict
    assert not verdict.eligible
    return verdict.reason
