"""Contradictions among the public constraints of a post-processing problem, by name."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel._types import Floats, Integers
from dpmodel.compile.likelihood.constraints import Origins, bounds_cross
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm, Postprocessing
from dpmodel.errors import InfeasibleError
from dpmodel.privacy import public_generator

_SLACK = 1e-8


def require_consistent(model: Postprocessing) -> None:
    """Raise InfeasibleError, naming the constraints, where one pass over the rows shows a contradiction.

    Seen are constraints without variables that do not hold, bounds that cross, rows that the bounds keep from their
    right side (a total too large or too small), and proportional equalities with different right sides. Contradictions
    that take several constraints together are left to the solver; ``contradiction`` then names them. One pass: linear
    in the entries of the matrices.
    """
    form = model.form
    if form is not None:
        model.cached("consistent", lambda: _check(form, origins_of(model)))


def contradiction(model: Postprocessing) -> InfeasibleError:
    """The error for a problem that a solver found infeasible: names the constraints that must give way for the least
    total violation (HiGHS, phase 1; integers left aside)."""
    form = model.form
    words = "the public constraints contradict each other"
    if form is None:
        return InfeasibleError(words, why="the solver found no point that meets them all", remedy="relax one of them")
    try:
        require_consistent(model)
    except InfeasibleError as error:
        return error
    origins = origins_of(model)
    p, q, n = form.equality.shape[0], form.inequality.shape[0], form.size
    cost = np.concatenate([np.zeros(n), np.ones(2 * p + q)])
    slacks = np.zeros(2 * p + q)
    low, high = np.concatenate([form.lower, slacks]), np.concatenate([form.upper, slacks + np.inf])
    result = linprog(
        cost,
        A_eq=sp.hstack([form.equality, sp.eye_array(p), -sp.eye_array(p), sp.csr_array((p, q))]) if p else None,
        b_eq=form.equality_value if p else None,
        A_ub=sp.hstack([form.inequality, sp.csr_array((q, 2 * p)), -sp.eye_array(q)]) if q else None,
        b_ub=form.inequality_value if q else None,
        bounds=np.column_stack([low, high]),
        method="highs",
    )
    if result.x is None:
        return InfeasibleError(words, why="the solver found no point that meets them all", remedy="relax one of them")
    least = float(result.fun)
    sizes = np.abs(np.concatenate([form.equality_value, form.inequality_value]))
    scale = max(1.0, float(sizes.max(initial=0.0)))
    if least <= 1e-7 * scale:
        if form.integer.any():
            return InfeasibleError(
                "no integers meet the public constraints",
                why="without integer=True there are points that do",
                remedy="relax a constraint, or leave integer out and round",
            )
        return InfeasibleError(words, why="by less than a solver can tell", remedy="relax one of them by a little")
    slack = result.x[n:]
    missed = np.zeros(len(origins.labels))
    np.add.at(missed, origins.equality, slack[:p] + slack[p : 2 * p])
    np.add.at(missed, origins.inequality, slack[2 * p :])
    named = [f"{origins.labels[k]} (by {missed[k]:.4g})" for k in np.argsort(-missed)[:3] if missed[k] > 1e-9 * scale]
    return InfeasibleError(
        f"{words}: at best {', '.join(named)} is missed",
        why=f"no point meets them all; the least total violation is {least:.4g}",
        remedy="correct that number, or one of the constraints over the same entries",
    )


def origins_of(model: Postprocessing) -> Origins:
    """Where the rows came from; for forms that no CVXPY problem stands behind, synthetic labels."""

    def plain() -> Origins:
        form = model.form
        assert form is not None
        none = np.full(form.size, -1, dtype=np.int64)
        p, q = form.equality.shape[0], form.inequality.shape[0]
        labels = ("the equalities", "the inequalities")
        return Origins(labels, np.zeros(p, dtype=np.int64), np.ones(q, dtype=np.int64), none, none)

    return model.cached("origins", plain)


# ------------------------------------------------------------------ one pass
def _check(form: LikelihoodForm, origins: Origins) -> bool:
    if origins.broken:
        raise InfeasibleError(
            f"{origins.labels[origins.broken[0]]} does not hold",
            why="no variable has a say in it",
            remedy="correct its numbers",
        )
    _bounds(form, origins)
    _rows(form, origins, form.equality, form.equality_value, origins.equality, equality=True)
    _rows(form, origins, form.inequality, form.inequality_value, origins.inequality, equality=False)
    _proportional(form, origins)
    return True


def _bounds(form: LikelihoodForm, origins: Origins) -> None:
    crossed = np.flatnonzero(bounds_cross(form.lower, form.upper))
    if crossed.size:
        j = int(crossed[0])
        sides = [origins.labels[k] for k in dict.fromkeys((int(origins.lower[j]), int(origins.upper[j]))) if k >= 0]
        sides = sides or ["the bounds of the variable"]
        least, most = float(form.lower[j]), float(form.upper[j])
        raise InfeasibleError(
            f"{' and '.join(sides)}: {origins.column(j)} must be at least {least:.10g} and at most {most:.10g}",
            why="integers between the bounds do not exist" if form.integer[j] else "the bounds cross",
            remedy="correct one of the two",
        )


def _rows(
    form: LikelihoodForm, origins: Origins, matrix: sp.csr_array, right: Floats, numbers: Integers, *, equality: bool
) -> None:
    """A row's left side reaches an interval under the bounds, exactly; its right side must lie in it."""
    if not right.size:
        return
    coo = matrix.tocoo()
    for sign, side in ((1.0, "at least"), (-1.0, "at most")) if equality else ((1.0, "at least"),):
        least = coo.data * np.where(coo.data * sign > 0, form.lower[coo.col], form.upper[coo.col])
        reach = np.bincount(coo.row, weights=least, minlength=right.size)
        size = np.bincount(coo.row, weights=_finite(least), minlength=right.size)
        bad = np.flatnonzero(sign * (reach - right) > _SLACK * (np.abs(right) + size + 1e-12))
        if bad.size:
            _raise_row(origins, numbers, int(bad[0]), side, float(reach[bad[0]]), float(right[bad[0]]), equality)


def _finite(terms: Floats) -> Floats:
    return np.where(np.isfinite(terms), np.abs(terms), 0.0)


def _raise_row(
    origins: Origins, numbers: Integers, row: int, side: str, reach: float, right: float, equality: bool
) -> None:
    first = int(np.searchsorted(numbers, numbers[row]))
    entry = f", row {row - first}," if (numbers == numbers[row]).sum() > 1 else ""
    wanted = "be" if equality else "be at most"
    raise InfeasibleError(
        f"{origins.labels[int(numbers[row])]}{entry} cannot be met under the bounds of its variables",
        why=f"with the constants on the right, its left side is {side} {reach:.10g} and must {wanted} {right:.10g}",
        remedy="correct the total, or the bounds",
    )


def _proportional(form: LikelihoodForm, origins: Origins) -> None:
    """Equalities with the same left side up to a factor: found by their values at one synthetic point."""
    matrix, right = form.equality, form.equality_value
    if right.size < 2:
        return
    count = np.diff(matrix.indptr)
    full = np.flatnonzero(count)
    lead = np.ones(right.size)
    lead[full] = matrix.data[matrix.indptr[full]]
    key = (matrix @ public_generator(6).standard_normal(form.size)) / lead
    order = np.argsort(key, kind="stable")
    near = np.flatnonzero(np.abs(np.diff(key[order])) <= 1e-11 * np.abs(key[order][1:]))
    for k in near[:1000]:
        a, b = int(order[k]), int(order[k + 1])
        gap = matrix[[a]] / lead[a] - matrix[[b]] / lead[b]
        left, other = right[a] / lead[a], right[b] / lead[b]
        same = not gap.nnz or float(np.abs(gap.data).max()) <= 1e-12
        if same and abs(left - other) > _SLACK * max(abs(left), abs(other)):
            labels = dict.fromkeys([origins.labels[int(origins.equality[a])], origins.labels[int(origins.equality[b])]])
            raise InfeasibleError(
                f"{' and '.join(labels)} contradict each other",
                why=f"the same sum must be {left:.10g} and {other:.10g}",
                remedy="correct one of the two",
            )
