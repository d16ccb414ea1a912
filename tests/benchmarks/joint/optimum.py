"""The best there is without privacy, by the dual; what shares are worth, and what they use.

``optimum`` minimises ``b'p + sum_i max_{x in X_i} (v_i - A_i'p)'x`` over prices p >= 0 with the package's own best
answers. Any value of it is above the optimum, so what is short of convergence makes a share of it smaller, never
larger. ``by_highs`` solves the linear program of all people at once, and is what it is checked by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from dpmodel._types import Floats
from dpmodel.joint.form import People
from dpmodel.joint.outcome import Prices
from dpmodel.joint.respond import respond
from dpmodel.joint.rule import shares_of
from tests.benchmarks.joint.instances import Instance

# People that a first search for the prices is made on.
_FEW = 20_000
_ROUNDS, _ENOUGH = 6, 1e-7


@dataclass(frozen=True)
class Optimum:
    """``value`` : at least that of the best shares; ``prices`` (m,) at which it was found."""

    value: float
    prices: Floats


def optimum(of: Instance) -> Optimum:
    """The least value of the dual."""
    prices = optimum(of.first(_FEW)).prices if of.people > 2 * _FEW else np.full(of.capacity.size, 0.5)
    form, table, scale = of.form, of.table, 1 / of.people

    def part(people: People, first: int, at: Floats) -> Floats:
        x, use = respond(form, people, at, np.inf)
        return np.append(use.sum(axis=0), (people.values * x).sum())

    def dual(at: Floats) -> tuple[float, Floats]:
        total = table.map_reduce(lambda people, first: part(people, first, at))
        used, value = np.asarray(total[:-1]), float(total[-1])
        return (value + at @ (of.capacity - used)) * scale, (of.capacity - used) * scale

    best = np.inf
    for _ in range(_ROUNDS):  # the dual has kinks, at which a search ends early: begun anew it goes on
        found = minimize(dual, prices, jac=True, bounds=[(0, None)] * prices.size, method="L-BFGS-B")
        better, best, prices = best - found.fun, min(best, found.fun), found.x
        if better < _ENOUGH * abs(best):
            break
    return Optimum(best / scale, prices)


def by_highs(of: Instance) -> float:
    """The optimum of the linear program of all people, by HiGHS."""
    form, n, m = of.form, of.people, of.form.resources
    people = form.people(np.asarray(of.table.rows))
    k, rows = form.size, len(form.personal)
    most = np.full((n, k), np.inf) if people.caps is None else np.broadcast_to(people.caps, (n, k))
    owner = np.arange(n)[:, None] * k
    use = sp.csr_array(_placed(np.broadcast_to(people.use, (n, people.use.shape[1])), form.use_at, owner, 0, m, n * k))
    own = _placed(
        np.broadcast_to(people.coefficients, (n, people.coefficients.shape[1])),
        form.limits_at,
        owner,
        rows,
        n * rows,
        n * k,
    )
    model, matrix = highspy.HighsLp(), sp.csr_array(sp.vstack([use, own]))
    model.num_col_, model.num_row_ = n * k, m + n * rows
    model.col_cost_ = -np.broadcast_to(people.values, (n, k)).ravel()
    model.col_lower_, model.col_upper_ = np.zeros(n * k), np.array(most).ravel()
    model.row_lower_ = np.full(m + n * rows, -np.inf)
    model.row_upper_ = np.concatenate([of.capacity, np.broadcast_to(people.limits, (n, rows)).ravel()])
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.passModel(model)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return -float(solver.getInfo().objective_function_value)


def _placed(numbers: Floats, at: Any, owner: Any, rows: int, height: int, width: int) -> Any:
    """A sparse matrix with each person's ``numbers`` at these places of their columns; ``rows`` of a person's own, or
    0 where the rows are those of all."""
    count = len(numbers)
    row = np.broadcast_to(np.asarray(at[0])[None, :] + np.arange(count)[:, None] * rows, numbers.shape)
    column = np.asarray(at[1])[None, :] + owner
    return sp.coo_array((numbers.ravel(), (row.ravel(), column.ravel())), shape=(height, width))


@dataclass(frozen=True)
class Handed:
    """What was handed out: ``value`` of all shares, and ``used`` (m,) of each resource."""

    value: float
    used: Floats

    def over(self, capacity: Floats) -> int:
        """Resources beyond their capacity (rounding forgiven)."""
        return int((self.used > capacity * (1 + 1e-9)).sum())


def handed(of: Instance, prices: Prices) -> Handed:
    """What all people get together at these prices: shares as each would compute them."""
    form = of.form

    def part(people: People, first: int) -> Floats:
        x = shares_of(form, prices, people, first)
        return np.append(form.used(people, x).sum(axis=0), (people.values * x).sum())

    total = of.table.map_reduce(part)
    return Handed(float(total[-1]), np.asarray(total[:-1]))
