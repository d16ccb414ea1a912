"""What a release under ``feasibility="safe"`` lists, held against the true program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cases import cone_gap

from dpmodel._types import Floats
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options, Outcome
from dpmodel.numerics.cone_program import ConeProgram
from dpmodel.privacy import SeededSource
from dpmodel.programs.feasibility import short_rows
from dpmodel.programs.model import Program
from dpmodel.programs.noise_once import NoiseOnce

Listed = Callable[[Outcome], tuple[tuple[str, float], ...]]


def released(model: Program, draws: int, beta: float, kind: Any = "laplace", epsilon: float = 1.0) -> list[Outcome]:
    """So many answers under "safe", a seed each."""
    options, which = Options(epsilon, 1e-6 if kind == "gaussian" else 0.0, beta, "safe"), NoiseOnce(kind)
    assert which.eligible(model, options).eligible
    return [which.run(model, options, SeededSource(seed)) for seed in range(draws)]


def true_program(model: Program) -> ConeProgram:
    theta, form = model.read_private(), model.form
    entries = form.matrix.compact().apply(theta) if form.matrix.nnz else None
    c, b, A = form.with_noise(form.objective.apply(theta), form.scalar.apply(theta), entries)
    return base_program(form).with_(c=c, b=b, A=A)


def missed(model: Program, truth: ConeProgram, x: Floats) -> dict[str, float]:
    """By how much every true private row is missed at x; from the definitions of the cones."""
    gap, short, private = np.asarray(truth.b - truth.A @ x), np.zeros(truth.b.size), model.form.private_rows
    for block in model.affine.cones:
        if not private[block.rows].any():
            continue
        if block.kind == "nonneg":
            short[block.rows] = np.where(private, np.maximum(-gap, 0.0), 0.0)[block.rows]
            continue
        start = block.start
        for size in block.sizes:
            short[start : start + size] = cone_gap(block.kind, gap[start : start + size])
            start += size
    return dict(short_rows(model.affine, short))


def false_lists(model: Program, outcomes: list[Outcome], told: Listed = lambda outcome: outcome.short) -> int:
    """In how many draws some true row is missed by more than the list says, which says 0 where it has no line."""
    truth, count = true_program(model), 0
    tolerance = 1e-4 if not model.affine.is_linear() else 5e-6
    for outcome in outcomes:
        assert outcome.x is not None
        listed = dict(told(outcome))
        true = missed(model, truth, outcome.x)
        count += any(amount > listed.get(name, 0.0) + tolerance * (1 + amount) for name, amount in true.items())
    return count
