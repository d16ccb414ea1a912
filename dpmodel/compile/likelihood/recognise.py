"""Recognising problems that read published numbers only, and writing them as arrays where they fit."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.compile.affine_reader import AffineReader, NotAffine, flat
from dpmodel.compile.form import public_values
from dpmodel.compile.likelihood.blocks import arranged, blocks_of, name_of
from dpmodel.compile.likelihood.constraints import Constraints, Origins
from dpmodel.compile.likelihood.objective import Objective, Outside
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm, Postprocessing
from dpmodel.compile.likelihood.terms import Published
from dpmodel.compile.refusals import constraint_label, refuse_undisciplined, refuse_unserved
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.marks.noisy import Noisy
from dpmodel.marks.private import Private
from dpmodel.privacy import public_generator

_AGREE = 1e-8


def recognise_postprocessing(problem: cp.Problem) -> Postprocessing | None:
    """The problem as post-processing of the published numbers that stand in it; None where there are none, or where a
    parameter is private.

    ``form`` is filled in for objectives made of weighted absolute values, squares and linear terms of affine
    expressions under linear constraints, with public parameters at their present values; a maximisation is written as
    the minimisation of its negative. It agrees with the problem at synthetic points, or is None. Constraints on a
    single entry become bounds (``x[0] == 5``: both).

    ``columns`` : every variable's entries, column by column. ``shape`` : with a single variable of two or more
    dimensions, its axes in reverse order, which makes x the table flattened in C order (the table's axes are the
    transposed variable's). ``rows`` : the slice of ``form.matrix`` whose values are the measurement's numbers, column
    by column, as they were published; empty where they enter in another way (a part of them, in constraints, scaled).

    The same cells may be measured several times, with whatever distributions: the terms add up. The same publication
    may enter once only, since its likelihood would count double.

    Raises
    ------
    UnsupportedModelError
        For problems that are not convex by CVXPY's rules, and complex variables.
    MissingValueError
        For public parameters without a value.
    SpecificationError
        For NaN or infinite numbers, a publication that enters twice for the same cells, and numbers that are declared
        with two distributions.
    """
    if any(isinstance(parameter, Private) for parameter in problem.parameters()):
        return None
    leaves = [leaf for leaf in problem.constants() if isinstance(leaf, Published)]
    if not leaves:
        return None
    measurements = tuple({id(leaf.noisy): leaf.noisy for leaf in leaves}.values())
    variables = list({v.id: v for v in problem.variables()}.values())
    _refuse_unserved(problem, variables)
    starts = np.cumsum([0, *(variable.size for variable in variables)])
    columns = tuple((v, slice(int(a), int(a) + v.size)) for v, a in zip(variables, starts[:-1], strict=True))
    form: LikelihoodForm | None = None
    rows: tuple[slice, ...] = ()
    origins: Origins | None = None
    with suppress(NotAffine):
        form, rows, origins = _read(problem, columns, int(starts[-1]), measurements)
    table = len(variables) == 1 and len(variables[0].shape) >= 2
    model = Postprocessing(
        form=form,
        measurements=measurements,
        rows=rows,
        problem=problem,
        columns=columns,
        shape=tuple(reversed(variables[0].shape)) if table else None,
        words=_words(measurements, form, int(starts[-1])),
    )
    if origins is not None:
        model.cached("origins", lambda: origins)
    return model


def _refuse_unserved(problem: cp.Problem, variables: list[Any]) -> None:
    if not variables:
        raise UnsupportedModelError("a problem without variables", why="there is nothing to solve for")
    complex_ones = any(v.is_complex() or v.attributes["hermitian"] for v in variables)
    if complex_ones or not problem.is_dcp():
        refuse_unserved(problem)
        refuse_undisciplined(problem)  # finds the innermost culprit
    parameters = {p.id: p for p in problem.parameters()}
    for variable in variables:
        for side in variable.attributes["bounds"] or ():
            if isinstance(side, cp.Expression):
                parameters.update({p.id: p for p in side.parameters()})
    public_values(parameters.values())


# ------------------------------------------------------------------ reading
def _read(
    problem: cp.Problem, columns: tuple[tuple[Any, slice], ...], size: int, measurements: tuple[Noisy, ...]
) -> tuple[LikelihoodForm, tuple[slice, ...], Origins]:
    reader = AffineReader({variable.id: place.start for variable, place in columns})
    maximise = isinstance(problem.objective, cp.Maximize)
    objective = Objective(reader)
    objective.add(problem.objective.args[0], np.array([-1.0 if maximise else 1.0]))
    constraints = Constraints(reader, size)
    for variable, _ in columns:
        constraints.add_variable(variable)
    for number, constraint in enumerate(problem.constraints):
        constraints.add(constraint, number)
    constraints.settle()
    blocks, rows = arranged(blocks_of(objective, reader, size), measurements)
    linear, constant = np.zeros(size), objective.constant
    for part, weights in objective.linear:
        row, column, data = part.coo()
        linear += np.bincount(column, weights=weights[row] * data, minlength=size)
        constant += float(weights @ part.offset)
    E, e, from_e = constraints.stacked(True)
    G, g, from_g = constraints.stacked(False)
    form = LikelihoodForm.of(
        sp.vstack([b.matrix for b in blocks]) if blocks else sp.csr_array((0, size)),
        np.concatenate([b.value for b in blocks]) if blocks else 0.0,
        absolute=np.concatenate([b.residual.absolute for b in blocks]) if blocks else 0.0,
        square=np.concatenate([b.residual.square for b in blocks]) if blocks else 0.0,
        linear=linear,
        constant=constant,
        equality=E,
        equality_value=e,
        inequality=G,
        inequality_value=g,
        lower=constraints.lower,
        upper=constraints.upper,
        integer=constraints.integer,
    )
    _require_finite(form)
    _certify(problem, columns, form, constraints, maximise)
    labels = tuple(constraint_label(c, i) for i, c in enumerate(problem.constraints))
    names = tuple((str(variable.name()), int(place.start)) for variable, place in columns)
    lower_from, upper_from = constraints.lower_from, constraints.upper_from
    origins = Origins(labels, from_e, from_g, lower_from, upper_from, tuple(constraints.broken), names)
    return form, rows, origins


# ------------------------------------------------------------------ certainty
def _require_finite(form: LikelihoodForm) -> None:
    arrays = (form.matrix.data, form.value, form.absolute, form.square, form.linear, np.array([form.constant]))
    if not all(np.isfinite(each).all() for each in (*arrays, form.equality.data, form.inequality.data)) or (
        np.isnan(form.lower).any() or np.isnan(form.upper).any()
    ):
        raise SpecificationError(
            "a constant of the model has NaN or infinite entries",
            why="a likelihood must be finite",
            remedy="check the arrays that enter the model (infinite bounds can be left out)",
        )


def _certify(problem: Any, columns: Any, form: LikelihoodForm, constraints: Constraints, maximise: bool) -> None:
    """Raise Outside unless the form agrees with the user's tree at synthetic points."""
    draws = public_generator(5)
    scale = max(1.0, float(np.median(np.abs(form.value)))) if form.value.size else 1.0
    before = [(variable, variable.value) for variable, _ in columns]
    try:
        for factor in (1.0, 10.0):
            x = draws.standard_normal(form.size) * scale * factor
            for variable, place in columns:
                variable.save_value(x[place].reshape(variable.shape, order="F"))
            r = np.abs(form.matrix @ x - form.value)
            linear = np.abs(form.linear) @ np.abs(x) + abs(form.constant)
            gross = form.absolute @ r + form.square @ np.square(r) + linear
            mine = -form.objective(x) if maximise else form.objective(x)
            if not abs(float(problem.objective.value) - mine) <= _AGREE * (gross + 1e-300):
                raise Outside("the objective")
        for expression, rows in constraints.seen:
            row, column, data = rows.coo()
            moves = data * x[column]
            ours = np.bincount(row, weights=moves, minlength=rows.size) + rows.offset
            size = np.bincount(row, weights=np.abs(moves), minlength=rows.size) + np.abs(rows.offset)
            with np.errstate(invalid="ignore"):
                close = np.abs(flat(expression.value) - ours) <= _AGREE * size + 1e-300
            if not (close | np.isinf(rows.offset)).all():
                raise Outside("a constraint")
    finally:
        for variable, value in before:
            variable.save_value(value)


# ------------------------------------------------------------------ words


def _words(measurements: tuple[Noisy, ...], form: LikelihoodForm | None, size: int) -> str:
    distributions = ", ".join(sorted({noisy.noise.name for noisy in measurements}))
    numbers = sum(noisy.size for noisy in measurements)
    many = f"{len(measurements)} measurements" if len(measurements) > 1 else f"{name_of(measurements[0])}"
    text = f"post-processing of {many} ({numbers} published numbers, {distributions} noise): {size} variables"
    if form is None:
        return f"{text}, with terms or constraints for a general solver"
    kinds = [name for name, used in (("absolute", form.absolute.any()), ("squared", form.square.any())) if used]
    errors = f"{' and '.join(kinds)} errors" if kinds else "a linear objective"
    parts = [
        f"{count} {name}"
        for count, name in ((form.equality.shape[0], "equalities"), (form.inequality.shape[0], "inequalities"))
        if count
    ]
    bounded = int((np.isfinite(form.lower) | np.isfinite(form.upper)).sum())
    parts += [f"bounds on {bounded}"] if bounded else []
    parts += [f"{int(form.integer.sum())} whole"] if form.integer.any() else []
    return f"{text}, {errors}" + (f", {', '.join(parts)}" if parts else "")
