"""Several outputs: an objective and constraints that separate by the columns of a variable, one regression for each.

``cp.sum_squares(X @ W - Y)`` is the sum over j of ``cp.sum_squares(X @ w_j - Y[:, j])``. Two coefficients belong to one
output where an entry of a loss uses both: outputs are what is connected then. Each gets variables of its own. A penalty
that is a sum of functions of single outputs is, for one of them, the same expression with the others at a fixed point,
less a constant; of constraints each gets the entries that speak of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_reader import Affine
from dpmodel.compile.refusals import constraint_label, short
from dpmodel.errors import UnsupportedModelError
from dpmodel.regressions.monomials import VARIABLE, Monomials, Product
from dpmodel.regressions.public import PublicPart
from dpmodel.regressions.public_expressions import Dependence, pattern, require_convex
from dpmodel.regressions.terms import Entries, Objective, entries_of

# Attributes of variables that speak of each entry by itself.
_OWN = ("nonneg", "nonpos", "pos", "neg", "bounds")
_REMEDY = (
    "penalties and constraints of each column by itself: cp.sum_squares(W), cp.norm1(W), cp.norm(W[:, 0]), W >= 0, "
    "cp.norm1(W, axis=0) <= 1; or one problem for each output with a share of the budget"
)
_AT_MOST, _EQUAL = type(cp.Variable() <= 0), type(cp.Variable() == 0)
# What of each variable stands for which of its entries: (variable, ((own variable, entries), ...)).
Columns = tuple[tuple[cp.Variable, tuple[tuple[cp.Variable, Integers], ...]], ...]


# ------------------------------------------------------------------ what belongs to an output
@dataclass(frozen=True)
class Output:
    """``found`` : its losses, of the user's variables, and its penalties, of its own. ``constraints`` : of its own.
    ``swap`` : what stands for each of the user's variables, by id; zeros for those of the other outputs."""

    found: Objective
    constraints: tuple[Any, ...]
    swap: dict[int, Any]


def split(problem: cp.Problem, found: Objective) -> tuple[list[Output], Columns] | None:
    """The single outputs; None where the private losses do not separate by the columns of a variable.
    Errors: UnsupportedModelError, where they do, and a penalty or a constraint does not."""
    users = problem.variables()
    depends = Dependence(found.reader, users)
    label = _connected(found, depends.width)
    places = {v.id: depends.start[v.id] + np.arange(v.size) for v in users}
    rows = [rows for each in found.found for rows in each.parts]
    used = _first(found.reader, np.concatenate([each.coo()[1] for each in rows])) if rows else np.zeros(0, np.int64)
    ordered = label[np.sort(np.concatenate(list(places.values())))]
    outputs = list(dict.fromkeys(ordered[np.isin(ordered, label[used[used > 0]])].tolist()))
    if len(outputs) < 2 or not any(_by_columns(v, label[places[v.id]], outputs) for v in users):
        return None
    require_convex(cp.Constant(0.0), tuple(problem.constraints), None)
    for _, expression in found.public:
        if not _join(label, _summands(expression, depends), outputs):
            raise _ties(f"the objective: {short(expression)} ties several outputs to each other")
    for number, constraint in enumerate(problem.constraints):
        if not _join(label, _of_constraint(constraint, depends), outputs):
            raise _ties(f"{constraint_label(constraint, number)}: it ties several outputs to each other")
    label[~np.isin(label, outputs)] = outputs[0]  # what no loss uses goes with the first
    columns = []
    swaps: list[dict[int, Any]] = [{} for _ in outputs]
    for v in users:
        shares = [np.flatnonzero(label[places[v.id]] == o) for o in outputs]
        own = [_own(v, entries) if entries.size else None for entries in shares]
        if any(each is None and entries.size for each, entries in zip(own, shares, strict=True)):
            return None
        for swap, each, entries in zip(swaps, own, shares, strict=True):
            if each is not v:
                swap[id(v)] = _inside(v, each, entries)
        columns.append((v, tuple((e, entries) for e, entries in zip(own, shares, strict=True) if e is not None)))
    public = _penalties(found, depends, label, outputs, swaps)
    constraints = _constraints(problem, depends, label, outputs, swaps)
    losses = _losses(found, label, outputs)
    found_of = [replace(found, found=one, public=two) for one, two in zip(losses, public, strict=True)]
    return list(map(Output, found_of, map(tuple, constraints), swaps)), tuple(columns)


def _ties(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        what, why="each output is a private regression of its own, solved with a share of the budget", remedy=_REMEDY
    )


def _summands(expression: Any, depends: Dependence) -> sp.csr_array:
    """What each of the functions that a public scalar is a sum of depends on."""
    found = entries_of(expression, 1.0, depends.reader)
    rows = [sum(map(depends.of_rows, each.parts)) for each in found if not each.linear]
    return sp.csr_array(sp.vstack([sp.csr_array((0, depends.width)), *rows]))


def _first(reader: Monomials, column: Integers) -> Integers:
    """The w of monomials, one for all entries of a product of features; 0 where there is none."""
    owner, entry, _ = reader.parts_of(column)
    return np.asarray(reader.firsts[owner] + np.where(reader.kinds[owner] == VARIABLE, entry, 0))


def _connected(found: Objective, width: int) -> Integers:
    """(width,) equal numbers for w that one entry of a loss uses, or one product of features."""
    reader, used, edges = found.reader, set[int](), [np.zeros(0, dtype=np.int64)]
    for each in found.found:
        row, column, _ = (np.concatenate(part) for part in zip(*(rows.coo() for rows in each.parts), strict=True))
        order = np.argsort(row, kind="stable")
        row, w = row[order], _first(reader, column[order])
        row, w = row[w > 0], w[w > 0]
        used.update(np.unique(w).tolist())
        if not each.linear:  # a sum of one function of each
            both = row[1:] == row[:-1]
            edges.append(np.unique(w[:-1][both] * width + w[1:][both]))
    for first, owner in zip(reader.firsts.tolist(), reader.owners, strict=True):
        if isinstance(owner, Product) and first in used:
            edges.append(first * width + _first(reader, reader.read(owner.expression).coo()[1]))
    one, other = np.divmod(np.concatenate(edges), width)
    _, label = connected_components(pattern(one, other, (width, width)), directed=False)
    return np.asarray(label, dtype=np.int64)


def _by_columns(variable: cp.Variable, label: Integers, outputs: list[int]) -> bool:
    """Whether each output has one column of the variable."""
    if variable.ndim != 2:
        return False
    table = label.reshape(variable.shape, order="F")
    columns = [np.unique(np.nonzero(table == o)[1]).tolist() for o in outputs]
    return all(len(each) == 1 for each in columns) and len(set(map(tuple, columns))) == len(outputs)


def _join(label: Integers, depends: sp.csr_array, outputs: list[int]) -> bool:
    """Number alike what one row depends on; False where that are several outputs."""
    for k in np.flatnonzero(np.diff(depends.indptr) > 1):
        mine = np.unique(label[depends.indices[depends.indptr[k] : depends.indptr[k + 1]]])
        theirs = mine[np.isin(mine, outputs)]
        if theirs.size > 1:
            return False
        label[np.isin(label, mine)] = (theirs if theirs.size else mine)[0]
    return True


def _own(variable: cp.Variable, entries: Integers) -> cp.Variable | None:
    """A variable for some entries, with their attributes; None where attributes tie entries to each other."""
    if entries.size == variable.size:
        return variable
    given = {key: value for key, value in variable.attributes.items() if value is not None and value is not False}
    sides = given.get("bounds", ())
    if any(key not in _OWN for key in given) or any(isinstance(side, cp.Expression) for side in sides):
        return None
    if sides:
        given["bounds"] = [np.broadcast_to(side, variable.shape).ravel(order="F")[entries] * 1.0 for side in sides]
    column = int(entries[0]) // (variable.shape[0] if variable.ndim == 2 else 1)
    return cp.Variable(entries.size, name=f"{variable.name()}[{':, ' * (variable.ndim - 1)}{column}]", **given)


def _inside(variable: cp.Variable, own: cp.Variable | None, entries: Integers) -> Any:
    """An expression of the variable's shape: its ``entries`` are ``own``, the others 0."""
    if own is None:
        return cp.Constant(np.zeros(variable.shape))
    place = pattern(entries, np.arange(entries.size), (variable.size, entries.size))
    return cp.reshape(place @ own, variable.shape, order="F")


def _losses(found: Objective, label: Integers, outputs: list[int]) -> list[list[Entries]]:
    """By output, the entries of its losses. Of linear ones it is the part that multiplies its coefficients, and private
    numbers alone go where they stand otherwise."""
    reader, home = found.reader, dict[int, int]()
    parts = []
    for each in found.found:
        row, column, _ = (np.concatenate(part) for part in zip(*(rows.coo() for rows in each.parts), strict=True))
        w, block = _first(reader, column), reader.block_of(reader.parts_of(column)[2])
        where = np.full(each.size, outputs[0])
        where[row[w > 0]] = label[w[w > 0]]
        mine = np.where(w > 0, label[w], -1) if each.linear else where[row]
        size, held = int(label.max()) + 1, mine >= 0
        home.update(divmod(code, size) for code in np.unique(block[held] * size + mine[held]).tolist())
        parts.append((each, where, mine, block))
    out: list[list[Entries]] = [[] for _ in outputs]
    for each, where, mine, block in parts:
        if each.linear:
            rows = each.parts[0]
            row, column, data = rows.coo()
            alone = np.flatnonzero(mine < 0)
            numbers = zip(block[alone].tolist(), where[row[alone]].tolist(), strict=True)
            mine[alone] = [home.get(b, o) for b, o in numbers]
            for j, o in enumerate(outputs):
                keep, offset = mine == o, np.where(where == o, rows.offset, 0.0)
                which = np.union1d(row[keep], np.flatnonzero(offset))
                if which.size:
                    left = Affine(offset, row=row[keep], column=column[keep], data=data[keep])
                    out[j].append(replace(each, parts=(left,)).of(which))
        else:
            for j, o in enumerate(outputs):
                if (which := np.flatnonzero(where == o)).size:
                    out[j].append(each.of(which))
    return out


def _penalties(
    found: Objective, depends: Dependence, label: Integers, outputs: list[int], swaps: list[dict[int, Any]]
) -> list[list[tuple[float, Any]]]:
    """By output, the public terms that it has a part in."""
    out: list[list[tuple[float, Any]]] = [[] for _ in outputs]
    for factor, expression in found.public:
        mine = set(label[depends.of(expression).indices].tolist()) or {outputs[0]}
        at_zero = expression.tree_copy({id(v): cp.Constant(np.zeros(v.shape)) for v in expression.variables()}).value
        if len(mine) > 1 and not np.isfinite(at_zero):
            raise _ties(f"the objective: {short(expression)} ties several outputs to each other")
        for number, j in enumerate(j for j, o in enumerate(outputs) if o in mine):
            out[j].append((factor, expression.tree_copy(swaps[j])))
            if number and at_zero:  # what the others are at 0 counts once
                out[j].append((-factor, cp.Constant(at_zero)))
    return out


def _difference(constraint: Any) -> Any:
    """What a constraint compares with 0 entry by entry; None for cones."""
    if isinstance(constraint, (_AT_MOST, _EQUAL)):
        return constraint.args[0] - constraint.args[1]
    return constraint.args[0] if isinstance(constraint, (cp.Zero, cp.NonNeg, cp.NonPos)) else None


def _of_constraint(constraint: Any, depends: Dependence) -> sp.csr_array:
    """What the entries of a constraint depend on; those of a cone belong together."""
    difference = _difference(constraint)
    if difference is not None:
        return depends.of(difference)
    return sp.csr_array(sum(sp.csr_array(depends.of(arg).sum(axis=0)[None]) for arg in constraint.args))


def _constraints(
    problem: cp.Problem, depends: Dependence, label: Integers, outputs: list[int], swaps: list[dict[int, Any]]
) -> list[list[Any]]:
    """By output, the constraints that speak of it, or their entries that do."""
    out: list[list[Any]] = [[] for _ in outputs]
    for number, constraint in enumerate(problem.constraints):
        rows = _of_constraint(constraint, depends)
        where = np.full(rows.shape[0], outputs[0])
        where[rows.nonzero()[0]] = label[rows.nonzero()[1]]
        for j, o in enumerate(outputs):
            which = np.flatnonzero(where == o)
            if not which.size:
                continue
            mine = constraint
            if which.size < where.size:
                picked = cp.vec(_difference(constraint), order="F")[which]
                same = isinstance(constraint, (_EQUAL, cp.Zero))
                mine = picked == 0 if same else picked >= 0 if isinstance(constraint, cp.NonNeg) else picked <= 0
            out[j].append(mine.tree_copy(swaps[j]).set_label(constraint_label(constraint, number)))
    return out


# ------------------------------------------------------------------ all outputs together
@dataclass(frozen=True, eq=False)
class PublicColumns:
    """The public constraints and penalties of all outputs, and the way back to the user's variables."""

    parts: tuple[PublicPart, ...]
    columns: Columns

    def require_feasible(self) -> None:
        """Raise InfeasibleError if the constraints of an output have no common point."""
        for part in self.parts:
            part.require_feasible()

    def complete(self, w: Floats) -> dict[cp.Variable, Any]:
        """Values of the user's variables, from the coefficients of all outputs one after the other."""
        known: dict[int, Any] = {}
        start = 0
        for part in self.parts:
            known |= {v.id: value for v, value in part.complete(w[start : start + part.size]).items()}
            start += part.size
        out: dict[cp.Variable, Any] = {}
        for variable, shares in self.columns:
            if all(own.id in known for own, _ in shares):
                value = np.zeros(variable.size)
                for own, entries in shares:
                    value[entries] = known[own.id].ravel(order="F")
                out[variable] = value.reshape(variable.shape, order="F")
        return out

    def forget(self) -> None:
        """Drop what earlier solves left behind."""
        for part in self.parts:
            part.forget()
