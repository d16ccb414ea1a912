"""Recognise problems that read published numbers only, and write them as arrays where they fit."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.affine_reader import (
    OUTER,
    Affine,
    AffineReader,
    Gather,
    NotAffine,
    Scale,
    flat,
    group,
    kind_of,
    spread,
)
from dpmodel.compile.form import public_values
from dpmodel.compile.refusals import constraint_label, refuse_undisciplined, refuse_unserved
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.marks.noisy import Noisy
from dpmodel.marks.private import Private
from dpmodel.privacy import public_generator
from dpmodel.released.constraints import Constraints, Origins, Outside
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.likelihood import Published, name_of, require_one_publication, twice
from dpmodel.released.model import Postprocessing

# Of the entries of a residual r: weights of |r|, of r^2, and how many terms gave each (halves of maxima and minima
# aside: a positive and a negative part make one).
_ABSOLUTE, _SQUARE, _ABSOLUTE_TERMS, _SQUARE_TERMS = range(4)


@dataclass(eq=False)
class Objective:
    """Terms read so far. ``residuals`` : affine expressions, by id, and their (4, size) weights. Weights of terms may
    be negative where the term is linear, or bends the other way."""

    reader: AffineReader
    residuals: dict[int, tuple[Any, Floats]] = field(default_factory=dict)
    linear: list[tuple[Affine, Floats]] = field(default_factory=list)
    constant: float = 0.0

    def add(self, node: Any, weights: Floats) -> None:
        """Add ``sum_k weights_k node_k``, k column by column.
        Errors: Outside, for a term of any other kind."""
        if not weights.any():
            return
        kinds = _kinds()
        if self.reader.is_constant(node):
            self.constant += float(weights @ flat(node.value))
        elif isinstance(node, kinds["abs"]):
            self._absolute(node.args[0], weights)
        elif isinstance(node, kinds["norm1"]):
            self._absolute(node.args[0], group(tuple(node.args[0].shape), node.axis).back(weights))
        elif isinstance(node, kinds["power"]):
            power = getattr(node.p, "value", node.p)
            if power == 2:
                self._square(node.args[0], weights)
            elif power == 1:
                self.add(node.args[0], weights)
            else:
                raise Outside(f"a power of {power}")
        elif isinstance(node, kinds["squares"]) and self.reader.is_constant(node.args[1]):
            over = float(flat(node.args[1].value)[0])
            if over <= 0:
                raise Outside("division by a number that is not positive")
            self._square(node.args[0], group(tuple(node.args[0].shape), node.axis).back(weights) / over)
        elif isinstance(node, kinds["form"]) and self.reader.is_constant(node.args[1]):
            matrix = node.args[1].value
            diagonal = np.asarray(matrix.diagonal(), dtype=np.float64)
            if abs(matrix).sum() != np.abs(diagonal).sum():
                raise Outside("a quadratic form with products")
            self._square(node.args[0], weights * diagonal)
        elif isinstance(node, (kinds["maximum"], kinds["minimum"])) and len(node.args) == 2:
            self._larger(node, weights, 1.0 if isinstance(node, kinds["maximum"]) else -1.0)
        elif node.is_affine():
            self.linear.append((self.reader.read(node), weights))
        elif node.is_atom_convex() and node.is_atom_concave():
            for arg, step in self.reader.steps(node):
                self.add(arg, weights if step is None else step.back(weights))
        else:
            raise Outside(type(node).__name__)

    def _larger(self, node: Any, weights: Floats, sign: float) -> None:
        """max(a, b) = (a + b) / 2 + |a - b| / 2, min with a minus."""
        if not all(arg.is_affine() for arg in node.args):
            raise Outside("the larger of terms that are not affine")
        for arg in node.args:
            step = spread(tuple(arg.shape), tuple(node.shape))
            self.add(arg, (weights if step is None else step.back(weights)) / 2)
        a, b = node.args
        zero = self.reader.is_constant(b) and not np.any(flat(b.value)) and a.shape == node.shape
        self._absolute(a if zero else a - b, sign * weights / 2, half=True)

    def _absolute(self, node: Any, weights: Floats, half: bool = False) -> None:
        if (weights < 0).any():
            raise Outside("an absolute value with a negative weight")
        if not node.is_affine():
            sign = 1.0 if node.is_nonneg() else -1.0 if node.is_nonpos() else 0.0
            if not sign:
                raise Outside("the absolute value of a term that is not affine")
            self.add(node, sign * weights)
            return
        if self.reader.is_constant(node):
            self.constant += float(weights @ np.abs(flat(node.value)))
            return
        node, weights = self._peeled(node, weights, 1)
        _, found = self.residuals.setdefault(id(node), (node, np.zeros((4, node.size))))
        found[_ABSOLUTE] += weights
        found[_ABSOLUTE_TERMS] += (weights > 0) & (not half)

    def _square(self, node: Any, weights: Floats) -> None:
        if (weights < 0).any():
            raise Outside("a square with a negative weight")
        kinds = _kinds()
        if not node.is_affine():
            if isinstance(node, kinds["abs"]):
                self._square(node.args[0], weights)
            elif isinstance(node, kinds["norm2"]) and node.p == 2:
                self._square(node.args[0], group(tuple(node.args[0].shape), node.axis).back(weights))
            else:
                raise Outside("the square of a term that is not affine")
            return
        if self.reader.is_constant(node):
            self.constant += float(weights @ np.square(flat(node.value)))
            return
        node, weights = self._peeled(node, weights, 2)
        _, found = self.residuals.setdefault(id(node), (node, np.zeros((4, node.size))))
        found[_SQUARE] += weights
        found[_SQUARE_TERMS] += weights > 0

    def _peeled(self, node: Any, weights: Floats, power: int) -> tuple[Any, Floats]:
        """Factors and rearrangements outside a residual move into the weights, so that one residual stays one."""
        while kind_of(node) in OUTER:
            steps = self.reader.steps(node)
            if len(steps) != 1:
                break
            arg, step = steps[0]
            if isinstance(step, Scale):
                weights = weights * np.abs(step.factor) ** power
            elif isinstance(step, Gather) and not isinstance(arg, cp.Variable):
                weights = step.back(weights)
            else:
                break
            node = arg
        return node, weights


@cache
def _kinds() -> dict[str, Any]:
    x = cp.Variable(3)
    return {
        "abs": type(cp.abs(x)),
        "norm1": type(cp.norm1(x)),
        "power": cp.Power,
        "squares": type(cp.sum_squares(x)),
        "form": type(cp.quad_form(x, np.eye(3))),
        "norm2": cp.Pnorm,
        "maximum": type(cp.maximum(x, 0)),
        "minimum": type(cp.minimum(x, 0)),
    }


# ------------------------------------------------------------------ residuals as blocks of rows


@dataclass(eq=False)
class Block:
    """Rows of one residual: ``matrix x - value`` with (4, rows) ``weights``; ``tags`` : the publications in it."""

    matrix: sp.csr_array
    value: Floats
    weights: Floats
    tags: list[Noisy]

    def holds(self, noisy: Noisy) -> bool:
        """Whether its values are this publication's numbers, each once."""
        return len(self.tags) == 1 and self.tags[0] is noisy and _enters(self.value, noisy.value)


def blocks_of(objective: Objective, reader: AffineReader, size: int) -> list[Block]:
    """Every residual's rows, factors moved into the weights."""
    out = []
    for node, weights in objective.residuals.values():
        tags = list({id(c.noisy): c.noisy for c in node.constants() if isinstance(c, Published)}.values())
        rows = reader.read(node)
        block = Block(rows.csr(size), -rows.offset, weights, tags)
        if len(tags) == 1 and _enters(block.value, tags[0].value):
            pass
        elif len(tags) == 1 and _enters(-block.value, tags[0].value):
            block.matrix, block.value = sp.csr_array(-block.matrix), -block.value
        else:
            _normalise(block)
            used = np.flatnonzero(weights[: _SQUARE + 1].any(axis=0))
            if not tags and used.size < block.value.size:
                block = Block(sp.csr_array(block.matrix[used]), block.value[used], block.weights[:, used], tags)
        out.append(block)
    return out


def _enters(value: Floats, published: Floats) -> bool:
    """Whether these are the published numbers, each once."""
    wanted = flat(published)
    return value.size == wanted.size and bool(np.allclose(value, wanted, rtol=1e-12, atol=0.0))


def _normalise(block: Block) -> None:
    """Rows whose coefficients are all of one size become sums of variables: weights take over the factor."""
    matrix = block.matrix
    if (matrix.data == 1.0).all() or not matrix.nnz:
        return
    count = np.diff(matrix.indptr)
    full = np.flatnonzero(count)
    first = matrix.indptr[full]
    size = np.abs(matrix.data)
    even = np.maximum.reduceat(size, first) == np.minimum.reduceat(size, first)
    factor = np.ones(count.size)
    factor[full[even]] = matrix.data[first[even]]
    data = matrix.data / np.repeat(factor, count)
    block.matrix = sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    block.value = block.value / factor
    block.weights[_ABSOLUTE] *= np.abs(factor)
    block.weights[_SQUARE] *= np.square(factor)


def arranged(blocks: list[Block], measurements: tuple[Noisy, ...]) -> tuple[list[Block], tuple[slice, ...]]:
    """Equal blocks merged (their weights add up), publications checked, and where each measurement's rows lie."""
    merged: dict[Any, Block] = {}
    cells: dict[Any, list[Noisy]] = {}
    for block in blocks:
        arrays = (block.matrix.indptr, block.matrix.indices, block.matrix.data, block.value)
        same = hash((block.matrix.shape, *(each.tobytes() for each in arrays)))
        for tag in block.tags:
            require_one_publication(tag, cells.setdefault(same, []))
        other = merged.setdefault((same, *map(id, block.tags)), block)
        if other is not block:
            other.weights += block.weights
    for block in merged.values():
        for tag in block.tags:
            if block.weights[_ABSOLUTE_TERMS:].max(initial=0) > 1:
                raise twice(tag)
    blocks = list(merged.values())
    for noisy in measurements:
        blocks = _gathered(blocks, noisy)
    places: dict[int, slice] = {}
    at = 0
    for block in blocks:
        place = slice(at, at + block.value.size)
        at = place.stop
        if block.tags and block.holds(block.tags[0]):
            places[id(block.tags[0])] = place if id(block.tags[0]) not in places else slice(0, 0)
    return blocks, tuple(places.get(id(noisy), slice(0, 0)) for noisy in measurements)


def _gathered(blocks: list[Block], noisy: Noisy) -> list[Block]:
    """One block in the publication's order, where its numbers enter once each, in several terms: ``x[i] - p[i]``."""
    parts = [block for block in blocks if any(tag is noisy for tag in block.tags)]
    if len(parts) < 2 or any(len(part.tags) > 1 for part in parts) or any(part.holds(noisy) for part in parts):
        return blocks
    wanted, value = flat(noisy.value), np.concatenate([part.value for part in parts])
    if value.size != wanted.size or np.unique(wanted).size != wanted.size:
        return blocks
    order = np.empty(wanted.size, dtype=np.int64)
    order[np.argsort(wanted)] = np.argsort(value)
    if not _enters(value[order], noisy.value):
        return blocks
    weights = np.concatenate([part.weights for part in parts], axis=1)[:, order]
    matrix = sp.csr_array(sp.csr_array(sp.vstack([part.matrix for part in parts]))[order])
    mine = {id(part) for part in parts}
    return [Block(matrix, value[order], weights, [noisy]), *(block for block in blocks if id(block) not in mine)]


# ------------------------------------------------------------------ the reader


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
    Errors: UnsupportedModelError, for problems that are not convex by CVXPY's rules, and complex variables;
    MissingValueError, for public parameters without a value; SpecificationError, for NaN or infinite numbers, a
    publication that enters twice for the same cells, and numbers that are declared with two distributions.
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
        description=_words(measurements, form, int(starts[-1])),
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
        absolute=np.concatenate([b.weights[_ABSOLUTE] for b in blocks]) if blocks else 0.0,
        square=np.concatenate([b.weights[_SQUARE] for b in blocks]) if blocks else 0.0,
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
        f"{count} {name}{'ies' if count > 1 else 'y'}"
        for count, name in ((form.equality.shape[0], "equalit"), (form.inequality.shape[0], "inequalit"))
        if count
    ]
    bounded = int((np.isfinite(form.lower) | np.isfinite(form.upper)).sum())
    parts += [f"bounds on {bounded}"] if bounded else []
    parts += [f"{int(form.integer.sum())} whole"] if form.integer.any() else []
    return f"{text}, {errors}" + (f", {', '.join(parts)}" if parts else "")
