"""Private rows of a compiled problem as an exact system: vectors for equalities, inequalities with a margin.

``exact_equations`` and ``exact_inequalities`` say from public facts whether the rows can be taken that way, and hold
the one way to their private numbers, for a mechanism's ``run``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.form import value_range
from dpmodel.contract import YES, Verdict
from dpmodel.exact.fields import QQ
from dpmodel.exact.model import PrivateInequalities, PrivateVectors
from dpmodel.exact.subspaces import ExactRows
from dpmodel.marks.records import Neighbors
from dpmodel.mechanisms.lp.private_rows import (
    plain_rows,
    present,
    rows_at,
    rows_per_record,
    rows_vanish,
)
from dpmodel.numerics.polyhedron import Polyhedron

# Whole private numbers beyond this are cut to it (public policy), so that rows are computed exactly in 64 bits.
LARGEST = 2**40
_MOST_COEFFICIENTS = 2**20


# The public constraints, which need not bound x.


def why_not_equations(model: PrivateLP) -> Verdict:
    """Yes, if the private rows are equalities with integers, each owned by one record."""
    zero = model.affine.equalities()
    rows = model.form.private_rows
    if "objective" in model.private_parts() or not rows.any():
        return Verdict(False, "serves problems in which equalities alone are private")
    if not zero[rows].all():
        return Verdict(False, "serves private equalities: a private inequality has no exact system of equations")
    refused = plain_rows(model)
    if refused is not None:
        return refused
    reach = rows_per_record(model)
    if reach > 1:
        return Verdict(False, f"one record reaches {reach} of the private rows: it serves one equation per record")
    reason = why_not_integer(model)
    return Verdict(False, reason) if reason else YES


def why_not_integer(model: PrivateLP) -> str:
    """Why the private rows do not hold integers by public declaration; "" if they do."""
    form = model.form
    for block in model.affine.private_blocks:
        parameter = block.parameter
        if parameter.attributes["integer"] is not True and parameter.attributes["boolean"] is not True:
            return (
                f"exactness needs integers: {block.name} is not declared whole; Private(..., integer=True), after "
                "multiplying decimals by the inverse of their grid"
            )
        if any(math.isfinite(parameter.magnitude[key]) for key in ("max_l1", "max_l2")):
            return f"exactness needs integers: {block.name} is scaled to max_l1 or max_l2"
        ends = np.concatenate(parameter.entry_range)
        if (ends[np.isfinite(ends)] != np.rint(ends[np.isfinite(ends)])).any():
            return f"exactness needs integers: {block.name} has bounds that are not whole"
    rows = form.private_rows
    public = (form.matrix.coefficient, form.scalar.coefficient, sp.csr_array(form.A0[rows]).data, form.b0[rows])
    for values in public:
        if (values != np.rint(values)).any():
            return "exactness needs integers: a private row has a public coefficient that is not whole"
    sums = [
        np.bincount(part.row, weights=np.abs(part.coefficient)).max(initial=0.0) for part in (form.matrix, form.scalar)
    ]
    if max(sums) > _MOST_COEFFICIENTS or max(np.abs(v).max(initial=0.0) for v in public[2:]) > LARGEST:
        return "the public coefficients of the private rows are too large to compute with exactly"
    return ""


def exact_equations(model: PrivateLP) -> PrivateVectors:
    """The private equalities ``a'x = b`` as vectors (a, -b) over the rationals, in the order of the constraints."""
    form = model.form
    rows = np.flatnonzero(form.private_rows)
    neighbors, records = _neighbors(model, rows)

    def read() -> ExactRows:
        A, b = _whole(model, rows, PrivateArray(model.read_private()), present_only=records is None)
        return np.hstack([A, -b[:, None]])

    dimension = model.affine.variables + 1
    return PrivateVectors(QQ, dimension, "equations", neighbors, dimension, records, int(rows.size), read)


def why_not_inequalities(model: PrivateLP) -> Verdict:
    """Yes, if the private rows are inequalities, each owned by one record."""
    zero = model.affine.equalities()
    rows = model.form.private_rows
    if "objective" in model.private_parts() or not rows.any():
        return Verdict(False, "the objective is private, or no constraint is: nothing to satisfy exactly")
    if zero[rows].any():
        return Verdict(
            False, "private equalities and inequalities stand side by side; write both kinds as inequalities"
        )
    refused = plain_rows(model)
    if refused is not None:
        return refused
    reach = rows_per_record(model)
    if reach > 1:
        return Verdict(False, f"one record reaches {reach} of the private rows, and a miss may be any of them")
    return YES


def exact_inequalities(model: PrivateLP, polytope: Polyhedron, margin: float | None) -> PrivateInequalities:
    """The private inequalities ``a'x <= b`` beside the public polyhedron ``polytope``."""
    form = model.form
    rows = np.flatnonzero(form.private_rows)
    neighbors, records = _neighbors(model, rows)
    G, h = _public_rows(polytope)
    largest = None if why_not_integer(model) else _largest(model, rows)

    def read() -> tuple[Any, Any]:
        theta = PrivateArray(model.read_private())
        if largest is not None:
            return _whole(model, rows, theta, present_only=records is None)
        return _floats(model, rows, theta, present_only=records is None)

    return PrivateInequalities(
        model.affine.variables, False, G, h, margin, largest, neighbors, records, int(rows.size), read
    )


def _neighbors(model: PrivateLP, rows: Integers) -> tuple[Neighbors, int | None]:
    """The relation that the rows are read under: a record that is absent leaves a zero row, where zero can only mean
    that and the row holds nobody else's numbers; else one row is replaced, which covers its absence too."""
    return ("add-remove", None) if rows_vanish(model) else ("replace-one", int(rows.size))


def _largest(model: PrivateLP, rows: Integers) -> int | None:
    """Public bound on all numbers of the private rows; None where none is declared."""
    m = max(model.affine.rows, 1)
    form = model.form
    low, high = value_range(model.affine, form.matrix)
    b_low, b_high = form.side_range
    if form.matrix.nnz:
        position = form.matrix.positions
        constant = np.asarray(form.A0[position % m, position // m]).ravel()
        low, high = low[position] + constant, high[position] + constant
    ends = [low, high, (form.b0 + b_low)[rows], (form.b0 + b_high)[rows], sp.csr_array(form.A0[rows]).data]
    size = max(float(np.abs(end).max(initial=0.0)) for end in ends)
    return math.floor(size * (1 + 1e-9) + 1e-9) if size <= LARGEST else None


def _whole(model: PrivateLP, rows: Integers, theta: PrivateArray, *, present_only: bool) -> tuple[ExactRows, Integers]:
    """(k, n) A and (k,) b, int64, without rounding."""
    form, (m, n) = model.form, (max(model.affine.rows, 1), model.affine.variables)
    whole = np.clip(np.rint(theta), -LARGEST, LARGEST).astype(np.int64)
    place = np.full(m, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    A = np.zeros((rows.size, n), dtype=np.int64)
    np.add.at(
        A,
        (place[form.matrix.row % m], form.matrix.row // m),
        form.matrix.coefficient.astype(np.int64) * whole[form.matrix.column],
    )
    b = np.zeros(rows.size, dtype=np.int64)
    np.add.at(b, place[form.scalar.row], form.scalar.coefficient.astype(np.int64) * whole[form.scalar.column])
    here = present(model, whole)[rows] if present_only else np.ones(rows.size, dtype=bool)
    A += sp.csr_array(form.A0[rows]).toarray().astype(np.int64)
    b += form.b0[rows].astype(np.int64)
    return A * here[:, None], b * here


def _floats(model: PrivateLP, rows: Integers, theta: PrivateArray, *, present_only: bool) -> tuple[Any, Floats]:
    """(k, n) A, CSR, and (k,) b. Numbers that overflow would be told by a warning: such a row always holds instead."""
    with np.errstate(over="ignore", invalid="ignore"):
        A, b = rows_at(model, theta, rows, absent=present_only)
        wild = ~np.isfinite(b) | ~np.isfinite(np.asarray(abs(A).sum(axis=1)).ravel())
    A.data[np.repeat(wild, np.diff(A.indptr))] = 0.0
    return A, PrivateArray(np.where(wild, 0.0, b))


def _public_rows(polytope: Polyhedron) -> tuple[Floats, Floats]:
    """(k, n) G, (k,) h with ``G x <= h``: rows, equalities as pairs, bounds."""
    A_eq = polytope.A_eq.toarray()
    eye = np.eye(polytope.size)
    low, high = np.isfinite(polytope.lower), np.isfinite(polytope.upper)
    G = np.vstack([polytope.A_ub.toarray(), A_eq, -A_eq, eye[high], -eye[low]])
    h = np.concatenate([polytope.b_ub, polytope.b_eq, -polytope.b_eq, polytope.upper[high], -polytope.lower[low]])
    return G, h
