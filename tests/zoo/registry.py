"""What a model of the zoo is, and the registry that the family files fill.

A model is one function of ``n`` (its size), ``rng`` (its data) and ``private``. It returns an objective and
constraints, written as for CVXPY. ``private(numbers, ...)`` stands where private numbers enter: it is ``dpm.Private``
in the private problem, and the bare numbers in the truth that releases are compared with.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args

import cvxpy as cp
import numpy as np

import dpmodel as dpm
from dpmodel.requests import Feasibility

SIZES = ("small", "medium", "large")  # tens, hundreds, thousands of variables
# Every feasibility the zoo knows, with those that the package offers; each model says in which a release is due.
MODES = tuple(mode for mode in ("relaxed", "strict", "centred", "safe") if mode in get_args(Feasibility))

# Where a release is due. Everywhere else a refusal will do, as long as nothing is spent on it.
NEARLY = ("relaxed", "centred")  # private equalities, and constraints that cannot be tightened
SAFELY = ("relaxed", "centred", "safe")  # private inequalities with room
ALWAYS = ("relaxed", "centred", "safe", "strict")  # nothing private in the constraints, or public bounds with room
# Where only the objective is private, no feasibility differs from another: one more than "centred" is run.
COSTS: dict[str, Any] = {"due": ALWAYS, "modes": ("centred", "strict")}

Make = Callable[..., Any]
Write = Callable[[int, np.random.Generator, Make], tuple[Any, list[Any]]]


@dataclass(frozen=True)
class Model:
    """``write`` : the model. ``sizes`` : n for each of SIZES. ``due`` : modes in which a release is due; ``modes`` :
    those that differ for it. ``quick`` : its small size runs by default. ``asked`` : further arguments of ``solve``.
    ``family`` : the file it stands in."""

    name: str
    family: str
    write: Write
    sizes: tuple[int, ...]
    due: tuple[str, ...]
    modes: tuple[str, ...] = MODES
    quick: bool = True
    asked: Mapping[str, Any] = field(default_factory=dict)

    def case(self, size: str) -> Case:
        return Case(self, size)

    def built(self, size: str, private: Make) -> tuple[Any, list[Any]]:
        n = self.sizes[SIZES.index(size)]
        return self.write(n, np.random.default_rng([n, zlib.crc32(self.name.encode())]), private)

    def __str__(self) -> str:
        return self.name


MODELS: list[Model] = []


def model(
    *sizes: int, due: tuple[str, ...] = NEARLY, modes: tuple[str, ...] = MODES, quick: bool = True, **asked: Any
) -> Callable[[Write], Model]:
    """Register a model. ``sizes`` : n, such that there are tens, hundreds and thousands of variables."""

    def register(write: Write) -> Model:
        family = write.__module__.rpartition(".")[2]
        MODELS.append(Model(write.__name__, family, write, sizes, due, modes, quick, asked))
        return MODELS[-1]

    return register


class Case:
    """A model at one size: the private ``problem``, the ``truth`` (plain, with the same numbers), public points."""

    def __init__(self, model: Model, size: str) -> None:
        self.model, self.size = model, size
        self.private: list[dpm.Private] = []

        def make(numbers: Any, **declared: Any) -> dpm.Private:
            self.private.append(dpm.Private(numbers, **declared))
            return self.private[-1]

        self.problem = dpm.Problem(*model.built(size, make))

    def __str__(self) -> str:
        return f"{self.model.name}-{self.size}"

    @cached_property
    def truth(self) -> cp.Problem:
        return cp.Problem(*self.model.built(self.size, lambda numbers, **declared: cp.Constant(numbers)))

    @cached_property
    def optimum(self) -> float:
        """What CVXPY finds without privacy."""
        value = float(self.truth.solve())
        assert self.truth.status in ("optimal", "optimal_inaccurate"), f"{self}: {self.truth.status}"
        return value

    def variables(self) -> int:
        return sum(variable.size for variable in self.problem.variables())

    def guessed(self, share: float) -> tuple[Any, list[Any]]:
        """Objective and constraints with a point of the declared ranges (0: the lows, 1: the highs; zero where there
        are none) in place of the private numbers: what a person without the data can write."""
        parameters = iter(self.private)

        def guess(numbers: Any, **declared: Any) -> Any:
            parameter = next(parameters)
            low, high = (np.where(np.isfinite(end), end, np.nan) for end in parameter.entry_range)
            free = np.nan_to_num((1 - share) * low + share * high)
            if free.size == parameter.size:
                return cp.Constant(free.reshape(parameter.shape, order="F"))
            value = np.zeros(parameter.shape)  # symmetric: its lower triangle, column by column
            value[np.triu_indices(parameter.shape[0])] = free
            return cp.Constant(np.triu(value) + np.triu(value, 1).T)

        return self.model.built(self.size, guess)

    @cached_property
    def public_points(self) -> list[list[Any]]:
        """What solves the model with middles, lows and highs in place of the private numbers: its variables."""
        points = []
        for share in (0.5, 0.0, 1.0):
            plain = cp.Problem(*self.guessed(share))
            if solved(plain):
                points.append([variable.value for variable in plain.variables()])
        return points

    @cached_property
    def certain_points(self) -> list[list[Any]]:
        """Those that satisfy the constraints whether the private numbers are at their lows or at their highs."""
        ends = [cp.Problem(*self.guessed(share)).constraints for share in (0.0, 1.0)]

        def holds(values: list[Any], constraints: list[Any]) -> bool:
            variables = cp.Problem(cp.Minimize(0), constraints).variables()
            kept = dict(zip((v.name() for v in self.problem.variables()), values, strict=True))
            for variable in variables:
                variable.save_value(kept[variable.name()])
            return all(np.max(constraint.violation(), initial=0.0) <= 1e-6 for constraint in constraints)

        return [values for values in self.public_points if all(holds(values, end) for end in ends)]

    @cached_property
    def public_range(self) -> float:
        """How far the objective can vary over the public constraints and the declared ranges, where that is easily
        said: linear objectives of non-negative variables; else inf."""
        (low, constraints), (high, _) = self.guessed(0.0), self.guessed(1.0)
        lows = [bounds[0] for bounds in (v.attributes["bounds"] for v in low.variables()) if bounds is not None]
        signed = any(v.attributes["bounds"] is None and not v.attributes["nonneg"] for v in low.variables())
        ranges = [end for p in self.problem.objective.parameters() for end in p.entry_range]
        known = all(np.isfinite(end).all() for end in ranges) and not (signed or any(np.min(end) < 0 for end in lows))
        if not known or not low.expr.is_affine():
            return np.inf
        public = [
            constraint
            for declared, constraint in zip(self.problem.constraints, constraints, strict=True)
            if not any(isinstance(parameter, dpm.Private) for parameter in declared.parameters())
        ]
        # The two objectives have variables of their own; the constraints belong to those of the first.
        same = dict(zip((v.id for v in high.variables()), low.variables(), strict=True))
        top = cp.Problem(cp.Maximize(_renamed(high.expr, same)), public)
        bottom = cp.Problem(cp.Minimize(low.expr), public)
        return float(top.value - bottom.value) if solved(top) and solved(bottom) else np.inf


def _renamed(expression: Any, same: Mapping[int, cp.Variable]) -> Any:
    """The expression in other variables."""
    if isinstance(expression, cp.Variable):
        return same[expression.id]
    if not expression.args:
        return expression
    return expression.copy([_renamed(argument, same) for argument in expression.args])


def solved(problem: cp.Problem) -> bool:
    """Whether CVXPY finds a finite optimum."""
    try:
        problem.solve()
    except (cp.SolverError, ValueError):
        return False
    return problem.status in ("optimal", "optimal_inaccurate")
