"""What a mechanism errs by on databases drawn from public facts, in the user's units: for figures alone.

Private numbers are drawn inside their declared ranges; the mechanism runs on them with seeded noise, and its point is
held against the drawn program, which is known here.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from dpmodel.classify.private_lp import PrivateLP, RecordsLP
from dpmodel.compile.form import entry_ends
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options
from dpmodel.errors import NotPrivateWarning, SpecificationError
from dpmodel.mechanisms.lp.engines.synthetic_rows import SyntheticLP, drawn_databases
from dpmodel.numerics.cone_program import solve_cone_program
from dpmodel.privacy import SeededSource


def measured(mechanism: Any, model: PrivateLP, options: Options, runs: int) -> dict[str, list[float]]:
    """Column of ``Violation`` -> its value in each run: what the objective loses against the drawn program's optimum
    (nan where the drawn program has none), and the largest violation of a private row (both nan without a point).

    Raises
    ------
    SpecificationError
        For cones, rows that are not in one array, and where a private number has no declared range to be drawn from.
    """
    form = model.form
    if isinstance(model, RecordsLP):
        raise SpecificationError(
            "simulate: a program whose rows are read a part at a time",
            why="databases are drawn, and programs solved exactly, in memory",
            remedy="simulate a program over fewer people",
        )
    if not model.affine.is_linear():
        raise SpecificationError("simulate: the program has cones", why="violations are told of linear rows")
    parts = [form.private_part(name) for name in model.private_parts()]
    if not all(np.isfinite(end).all() for part in parts for end in entry_ends(model.affine, part)):
        raise SpecificationError(
            "simulate: private numbers without a declared range",
            why="synthetic ones are drawn from public facts alone",
            remedy="bounds=[lo, hi] on every private parameter",
        )
    private, equalities = form.private_rows, model.affine.equalities()
    out: dict[str, list[float]] = {"objective within": [], "violation within": []}
    for seed, theta in enumerate(drawn_databases(model, runs)):
        of_matrix = form.matrix.compact().apply(theta) if form.matrix.nnz else None
        c, b, A = form.with_noise(form.objective.apply(theta), form.scalar.apply(theta), of_matrix)
        best = solve_cone_program(base_program(form).with_(c=c, b=b, A=A), solver=model.public.solver)
        made = SyntheticLP(form, model.classification, model.public, theta, model.entries, _memo=model._memo)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            x = mechanism.run(made, options, SeededSource(seed)).x
        lost = missed = math.nan
        if x is not None:
            beyond = A @ x - b
            missed = float(np.where(equalities, np.abs(beyond), np.maximum(beyond, 0.0))[private].max(initial=0.0))
            lost = float(c @ x - c @ best.x) if best.x is not None and best.solved else math.nan
        out["objective within"].append(lost)
        out["violation within"].append(missed)
    return out
