"""Best answers where limits are more than one: each person's linear program, by HiGHS."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.joint.form import Form, People

_TINY = 1e-300
_LARGE = 1e15  # larger numbers count as infinite for HiGHS


def solved(form: Form, people: People, prices: Floats, radius: float, ceiling: Floats | None = None) -> Floats:
    """(B, k) the best of each person at these prices, without the ball.

    One program a person, never one for several: ties and tolerances would let one person's numbers decide another's
    answer. Whoever's numbers leave no finite answer gets 0. An entry uses at most ``radius`` of a resource, and at most
    the ``ceiling`` (m,) or (B, m) of each.
    """
    k, size, rows = form.size, form.size + form.extra, len(form.personal)
    costs = np.zeros((people.count, size))
    costs[:] = people.values
    costs[:, :k] -= form.charged(people, prices)
    # In units of each person's own largest number: tolerances are of 1, and numbers beyond 1e20 are refused.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        costs /= np.maximum(np.abs(costs).max(axis=1, initial=0.0), _TINY)[:, None]
    most = np.full((people.count, k), np.inf)
    if people.caps is not None:
        most[:] = people.caps
    room = np.minimum(radius, np.inf if ceiling is None else ceiling[..., form.use_at[0]])
    room = np.broadcast_to(room, (people.count, form.use_at[0].size))
    use = np.broadcast_to(people.use, (people.count, form.use_at[0].size))
    limits = np.broadcast_to(people.limits, (people.count, rows))
    coefficients = np.broadcast_to(people.coefficients, (people.count, form.limits_at[0].size))
    # The places of W in the order in which HiGHS wants them: column by column.
    order = np.lexsort((form.limits_at[0], form.limits_at[1]))
    starts = np.searchsorted(form.limits_at[1][order], np.arange(size + 1))
    index = form.limits_at[0][order].astype(np.int32)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    # Not threads=1: where HiGHS has run with other threads in this process it would answer nobody.
    solver.setOptionValue("solver", "simplex")
    solver.setOptionValue("parallel", "off")
    out = np.zeros((people.count, k))
    for i in range(people.count):
        with np.errstate(divide="ignore", invalid="ignore"):
            np.minimum.at(most[i], form.use_at[1], np.where(use[i] > 0, room[i] / use[i], np.inf))
        numbers = costs[i], most[i], limits[i], coefficients[i][order]
        x = _one(solver, *numbers, starts, index)
        if x is not None:
            out[i] = np.clip(x[:k], 0.0, np.where(np.isfinite(most[i]), most[i], np.abs(x[:k])))
    return out * _within(form, coefficients, limits, out)


def _one(
    solver: Any, costs: Floats, most: Floats, limits: Floats, numbers: Floats, starts: Any, index: Any
) -> Floats | None:
    """The answer of one person, None where there is none."""
    size, k = costs.size, most.size
    program: Any = highspy.HighsLp()
    program.num_col_, program.num_row_ = size, limits.size
    program.col_cost_ = -costs
    program.col_lower_ = np.concatenate([np.zeros(k), np.full(size - k, -highspy.kHighsInf)])
    program.col_upper_ = np.concatenate(
        [np.where(most < _LARGE, most, highspy.kHighsInf), np.full(size - k, highspy.kHighsInf)]
    )
    program.row_lower_ = np.full(limits.size, -highspy.kHighsInf)
    program.row_upper_ = np.where(limits < _LARGE, limits, highspy.kHighsInf)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_, program.a_matrix_.index_, program.a_matrix_.value_ = starts, index, numbers
    solver.clearSolver()
    if solver.passModel(program) == highspy.HighsStatus.kError:
        return None
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    x = np.asarray(solver.getSolution().col_value)
    return x if np.isfinite(x).all() else None


def _within(form: Form, coefficients: Floats, limits: Floats, x: Floats) -> Floats:
    """(B, 1) by what answers are multiplied so that personal limits without t hold in spite of tolerances."""
    rows, columns = form.limits_at
    alone = columns < form.size
    used = np.zeros((x.shape[0], len(form.personal)))
    terms = coefficients[:, alone] * x[:, columns[alone]]
    gather = sp.csr_array(
        (np.ones(alone.sum()), (np.arange(alone.sum()), rows[alone])), shape=(alone.sum(), used.shape[1])
    )
    used = np.asarray(terms @ gather)
    mixed = np.zeros(used.shape[1], dtype=bool)
    mixed[rows[~alone]] = True
    with np.errstate(divide="ignore", invalid="ignore"):
        fits = np.where((used > limits) & ~mixed & (used > 0), limits / used, 1.0)
    return np.asarray(fits.min(axis=1, initial=1.0)[:, None])
