"""A copy of a regression's public tree over variables of its own, where values can be tried out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.bridge import lower
from dpmodel.compile.form import standard_form
from dpmodel.compile.public_set import base_program
from dpmodel.compile.regression.forms import rows_of
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.numerics.polyhedron import Polyhedron

# Attributes of matrix variables that tie entries to each other.
_TIED = ("symmetric", "diag", "PSD", "NSD", "sparsity")


@dataclass(frozen=True, eq=False)
class Place:
    """Entry k of a variable (in Fortran order) is coefficient ``index[k]`` over ``scale[k]``; index -1: it is none."""

    variable: cp.Variable
    index: Integers
    scale: Floats

    def assign(self, w: Floats) -> None:
        self.variable.save_value((w[self.index] / self.scale).reshape(self.variable.shape, order="F"))


@dataclass(frozen=True, eq=False)
class Twin:
    """A copy of the public tree over fresh variables.

    ``pairs`` : (user's variable, its copy). ``attributes`` : the constraints that the copies' attributes stand for.
    """

    pairs: tuple[tuple[cp.Variable, cp.Variable], ...]
    w: cp.Expression
    constraints: list[Any]
    penalty: cp.Expression | None
    attributes: list[Any]
    parameters: list[cp.Parameter]

    @staticmethod
    def of(coefficients: cp.Expression, constraints: tuple[Any, ...], penalty: cp.Expression | None) -> Twin:
        parts = [coefficients, *constraints, *([penalty] if penalty is not None else [])]
        users = {v.id: v for part in parts for v in part.variables()}.values()
        pairs = tuple((v, cp.Variable(v.shape, **v.attributes)) for v in users)
        swap = {id(user): copy for user, copy in pairs}
        w = coefficients.tree_copy(swap)
        parameters = {p.id: p for part in parts for p in part.parameters()}
        sides = [side for _, copy in pairs for side in copy.attributes["bounds"] or ()]
        parameters.update({p.id: p for side in sides if isinstance(side, cp.Expression) for p in side.parameters()})
        return Twin(
            pairs=pairs,
            w=w if w.ndim == 1 else cp.reshape(w, (w.size,), order="F"),
            constraints=[c.tree_copy(swap) for c in constraints],
            penalty=None if penalty is None else penalty.tree_copy(swap),
            attributes=[c for _, copy in pairs for c in copy.domain],
            parameters=list(parameters.values()),
        )

    @cached_property
    def coefficient_ids(self) -> frozenset[int]:
        return frozenset(v.id for v in self.w.variables())

    @property
    def auxiliary(self) -> bool:
        """Whether there are variables outside the coefficients."""
        return any(copy.id not in self.coefficient_ids for _, copy in self.pairs)

    def jacobian(self, expression: Any) -> tuple[sp.csr_array, Floats]:
        """``J`` (m, entries of all copies) and ``offset`` (m,) of an affine expression, for the parameters' values."""
        ends = np.cumsum([0, *(copy.size for _, copy in self.pairs)])
        starts = {copy.id: int(end) for (_, copy), end in zip(self.pairs, ends, strict=False)}
        rows = rows_of(expression, starts)
        return rows.csr(int(ends[-1])), rows.offset

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Of each variable of w; none where a coefficient is not a multiple of one entry, or an entry stands twice."""
        jacobian, offset = self.jacobian(self.w)
        column = jacobian.indices
        if offset.any() or (np.diff(jacobian.indptr) != 1).any() or np.unique(column).size != column.size:
            return ()
        index, scale = np.full(jacobian.shape[1], -1, dtype=np.int64), np.ones(jacobian.shape[1])
        index[column], scale[column] = np.arange(column.size), jacobian.data
        out, start = [], 0
        for _, copy in self.pairs:
            part = slice(start, start + copy.size)
            start = part.stop
            if copy.id in self.coefficient_ids:
                out.append(Place(copy, index[part], scale[part]))
        return tuple(out)

    def affine(self, expression: Any) -> tuple[sp.csr_array, Floats] | None:
        """``A`` (m, p) and ``offset`` (m,) with ``expression = A w + offset``; None where it uses other entries."""
        known = {place.variable.id: place for place in self.places}
        if not all(v.id in known for v in expression.variables()):
            return None
        jacobian, offset = self.jacobian(expression)
        # Copies that are no coefficients have columns without entries here.
        each = [known.get(copy.id, Place(copy, np.full(copy.size, -1), np.ones(copy.size))) for _, copy in self.pairs]
        index, scale = (np.concatenate([getattr(place, name) for place in each]) for name in ("index", "scale"))
        column = index[jacobian.indices]
        if (column < 0).any():
            return None
        data = jacobian.data / scale[jacobian.indices]
        return sp.csr_array((data, column, jacobian.indptr), shape=(offset.size, self.w.size)), offset

    @cached_property
    def tied(self) -> bool:
        """Whether an attribute ties entries of a coefficient variable to each other."""
        return any(variable.attributes[name] for variable in self.w.variables() for name in _TIED)

    @cached_property
    def plain(self) -> bool:
        """Whether the coefficients are variables or multiples of them, stacked: every entry once, none tied to
        another."""
        own = {p.id for variable in self.w.variables() for p in variable.parameters()}  # those of bounds
        if self.tied or not self.places or any(p.id not in own for p in self.w.parameters()):
            return False
        return all((place.index >= 0).all() for place in self.places)

    def assign(self, w: Floats) -> None:
        """Give the variables of the coefficients the values that make them ``w``."""
        for place in self.places:
            place.assign(w)

    def point(self) -> Floats:
        out: Floats = np.asarray(self.w.value, dtype=np.float64).ravel(order="F")
        return out

    def violation(self, w: Floats) -> float:
        """Largest amount by which ``w`` misses a constraint; inf where that takes a solver to say."""
        if not self.plain or self.auxiliary:
            return math.inf
        self.assign(w)
        return max((largest_violation(c) for c in [*self.constraints, *self.attributes]), default=0.0)

    def quadratic_penalty(self) -> tuple[Floats, Floats] | None:
        """``H`` ((p,) if diagonal, else (p, p)) and ``h`` (p,) with penalty ``w'Hw + h'w + constant``; else None."""
        if self.penalty is None or not self.penalty.is_quadratic() or not self.plain or self.auxiliary:
            return None
        p = self.w.size
        zero, probe = np.zeros(p), np.cos(1.0 + np.arange(p))
        h = self.penalty_derivative(zero)
        diagonal = (self.penalty_derivative(np.ones(p)) - h) / 2
        wanted = self.penalty_derivative(probe) - h
        if np.allclose(2 * diagonal * probe, wanted, rtol=1e-9, atol=1e-12 * float(np.abs(wanted).max(initial=0.0))):
            return diagonal, h
        if p > 200:
            return None
        H = np.stack([self.penalty_derivative(unit) - h for unit in np.eye(p)]) / 2
        close = np.allclose(2 * H @ probe, wanted, rtol=1e-8, atol=1e-10 * float(np.abs(wanted).max(initial=0.0)))
        return ((H + H.T) / 2, h) if close else None

    def penalty_derivative(self, w: Floats) -> Floats:
        """(p,) gradient (a subgradient, as CVXPY gives it) of the penalty at ``w``; only where w is plain."""
        return self.derivative(self.penalty, w)

    def derivative(self, expression: Any, w: Floats) -> Floats:
        """(p,) the same of any expression of the coefficients; NotImplementedError for atoms that have none."""
        self.assign(w)
        derivatives = expression.grad
        out = np.zeros(self.w.size)
        for place in self.places:
            derivative = derivatives.get(place.variable)
            if derivative is not None:
                out[place.index] = (
                    np.asarray(derivative.todense() if sp.issparse(derivative) else derivative).ravel() / place.scale
                )
        return out


def largest_violation(constraint: Any) -> float:
    """Largest entry of a CVXPY constraint's violation at its variables' values; inf where it has no value."""
    with np.errstate(over="ignore", invalid="ignore"):
        missed = np.abs(np.asarray(constraint.violation(), dtype=np.float64))
    return math.inf if np.isnan(missed).any() else float(missed.max(initial=0.0))


@dataclass(frozen=True)
class Lifted:
    """``w = x[columns]`` for x in a polyhedron of more columns."""

    polyhedron: Polyhedron
    columns: slice


def lifted(twin: Twin) -> Lifted | None:
    """The twin's constraints in standard form, for the present values of the parameters; None if not linear or DPP."""
    w = cp.Variable(twin.w.size)
    try:
        affine = lower(cp.Problem(cp.Minimize(0), [*twin.constraints, w == twin.w])).affine
        if not affine.is_linear() or w.id not in affine.variable_columns:
            return None
        start = affine.variable_columns[w.id]
        return Lifted(Polyhedron.of(base_program(standard_form(affine))), slice(start, start + w.size))
    except (UnsupportedModelError, SpecificationError):
        return None
