"""What a part of the budget measures of a released answer: the share of private constraints that hold, what they are
short by in all, or its cost.

Why it is private. The point x has been released by a mechanism that is (epsilon_1, delta)-DP; here x is a constant.
What is measured of it has an exact sensitivity, for that x:

* *rows*: the number of private rows that x misses. One record's change leaves all rows as they are but those that hold
  its numbers, K at most (``rows_per_record``, from the affine map). Whether a row is missed is computed from its own
  numbers alone, so the count moves by K at most, whatever the numbers are: also where they have no bounds, and where
  add-remove makes a row appear. It gets Laplace noise of scale ``K / epsilon_2``, which every source can draw, and is
  rounded to a whole number: post-processing.
* *shortage*, where so many rows hold a record's numbers that noise would drown their count: the sum over private rows
  of ``(r_i)^+``, of ``|r_i|`` in equalities, where ``r = q + p``: q is a linear function of the private numbers, with
  public coefficients given x, and p is public. Both functions move by no more than r_i does, so the sum moves by at
  most ``sum |q_i - q'_i|``, the 1-norm sensitivity of q (``footprint.sensitivity_of``, with the allowance and the clamp
  of ``noise_design.py``). ``q_i + p_i`` is rounded by at most 2^-53 of ``|q_i| + |p_i|``, and their sum (``math.fsum``)
  once, by 2^-53 of itself; four times that, for two neighbours, is in D too. Not where add-remove makes a row appear:
  its public numbers come with it. It gets Laplace noise of scale ``D / epsilon_2``.
* *objective*: ``c'x`` and the objective's constant are one linear function of the private numbers, with public
  coefficients given x. ``footprint.sensitivity_of`` says how far one record moves it (D, with the allowance for
  rounding and the clamp of ``noise_design.py``). It gets Laplace noise of scale ``D / epsilon_2``.

Each is epsilon_2-DP. Adaptive composition (the second mechanism may depend on what the first one released): both are
(epsilon_1 + epsilon_2, delta)-DP together, and ``solve`` splits its epsilon into the two. All that follows, and the
choice of what is measured, reads released and public numbers only.

The interval: symmetric noise exceeds its (1 - beta)-quantile of the absolute value with probability beta, and what is
public cuts it (a count lies between 0 and the number of rows, an objective in its declared range). Rounded noise R of
a count is beyond the whole number t only where the noise is beyond t + 1/2, and
``P(|Z| > t + 1/2) = exp(-(t + 1/2) / scale)``.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.affine_map import LinearMap
from dpmodel.privacy import Laplace, NoiseSource, public_generator
from dpmodel.programs.model import Program, RecordsProgram
from dpmodel.programs.noise_design import Measurement, scaled
from dpmodel.programs.rows import RowPart, plain_linear, private_rows, rows_at, rows_per_record, rows_vanish
from dpmodel.release import Certificate
from dpmodel.text import interval_ends, number

# What a row may be missed by and still holds: a solver's tolerance, and a share of the row's own numbers.
_MISSED, _RELATIVE = 1e-6, 1e-9


def why_not(model: Program, epsilon: float, beta: float) -> str:
    """Why this budget measures nothing of an answer; "" where it does. Public facts only."""
    # Coefficients of private numbers are affine in x: zero for every x, or at next to no point like this one.
    anywhere = public_generator(0).uniform(1.0, 2.0, model.affine.variables)
    if measures(model) == "objective":
        everywhere = objective_at(model, anywhere).l1  # the constant term with the costs
        finite = math.isfinite(everywhere) and not model.splits_objective
        return "" if finite else "one record may change the objective arbitrarily, or through rows of its own"
    if not model.form.private_rows.any():
        return "no constraint is private, and the objective is not either: the cost is known as it is"
    if not model.linear_where_private or model.split_rows:
        return "constraints are counted that are linear as they are written"
    if isinstance(model, RecordsProgram) and plain_linear(model) is not None:
        return "the public constraints do not bound x, and rows lie in parts"
    if not _drowns(model, epsilon, beta):
        return ""
    here = not isinstance(model, RecordsProgram) and not rows_vanish(model)
    if here and math.isfinite(shortage_at(model, anywhere)[2]):
        return ""
    names = [b.name for b in model.affine.private_blocks if b.parameter.unit == "all" and b.size > 1]
    all_of = f", because one may move every entry of {', '.join(names[:3])} (unit='all')" if names else ""
    return (
        f"counted would be how many of the {_count(model)} private constraints hold, and one record may change that by "
        f"{rows_per_record(model)}{all_of}: noise for epsilon {number(epsilon)} would leave nothing of the count, and "
        "nothing bounds how far it moves what they are short by"
    )


def measures(model: Program) -> Literal["objective", "rows"]:
    """What is measured: the objective where private numbers enter it, else private rows."""
    return "objective" if "objective" in model.private_parts() or model.form.offset.nnz else "rows"


def _drowns(model: Program, epsilon: float, beta: float) -> bool:
    """Whether noise leaves nothing of a count of rows."""
    return _quantile(rows_per_record(model) / epsilon, beta) >= _count(model)


def certify(model: Program, epsilon: float, beta: float, x: Floats, noise: NoiseSource) -> Certificate:
    """The certificate of the released ``x`` (n,). Within a solve's charge only: it reads private values."""
    if measures(model) == "objective":
        return _objective(model, x, epsilon, beta, noise)
    return (_shortage if _drowns(model, epsilon, beta) else _rows)(model, x, epsilon, beta, noise)


# ------------------------------------------------------------------ rows that hold
def _rows(model: Program, x: Floats, epsilon: float, beta: float, noise: NoiseSource) -> Certificate:
    moved, count = rows_per_record(model), _count(model)
    scale = moved / epsilon * (1 + 1e-12)  # the division may round down
    missed = round(float(Laplace(scale).add_to(np.array([float(rows_missed(model, x))]), noise)[0]))
    far = _quantile(scale, beta)
    estimate, lower, upper = (1 - min(max(each, 0), count) / count for each in (missed, missed + far, missed - far))
    level, ends = number(1 - beta), interval_ends(100 * lower, 100 * upper)
    return Certificate(
        "the share of private constraints that hold",
        estimate,
        lower,
        upper,
        1 - beta,
        f"with probability {level}, between {' % and '.join(ends)} % of the {count} private constraints hold",
        epsilon,
        0.0,
    )


def rows_missed(model: Program, x: Floats) -> int:
    """Private: how many private rows ``x`` (n,) misses. Under a certificate's noise only."""
    if isinstance(model, RecordsProgram):
        # An equality stands there twice, and no point misses both sides.
        return int(private_rows(model).table(model.read_rows()).map_reduce(partial(_missed, x)))
    index = np.flatnonzero(model.form.private_rows)
    A, b = rows_at(model, PrivateArray(model.read_private()), index, absent=rows_vanish(model))
    over = A @ x - b
    over = np.where(model.affine.equalities()[index], np.abs(over), over)
    return int((over > _MISSED + _RELATIVE * (abs(A) @ np.abs(x) + np.abs(b))).sum())


def _missed(x: Floats, part: RowPart) -> int:
    return int((part.residual(x) > _MISSED + _RELATIVE * np.abs(part.h)).sum())


def _count(model: Program) -> int:
    return model.all_rows(int(model.form.private_rows.sum()))


def _quantile(scale: float, beta: float) -> int:
    """The least whole t with ``P(|R| > t) <= beta`` for rounded Laplace noise: ``exp(-(t + 1/2) / scale)``."""
    return max(math.ceil(scale * math.log(1 / beta) - 0.5 - 1e-9), 0)


# ------------------------------------------------------------------ what rows are short by
def _shortage(model: Program, x: Floats, epsilon: float, beta: float, noise: NoiseSource) -> Certificate:
    query, public, moved = shortage_at(model, x)
    exact = shortage(model, query, public, PrivateArray(model.read_private()))
    distribution = Laplace(moved / epsilon) if moved > 0 else None
    released = exact if distribution is None else float(distribution.add_to(np.array([exact]), noise)[0])
    far = 0.0 if distribution is None else distribution.max_abs_quantile(1, beta)
    estimate, lower, upper = (max(each, 0.0) for each in (released, released - far, released + far))
    beyond = f", for private sums up to {number(query.limit)} in size" if query.furthest > query.limit else ""
    return Certificate(
        "what private constraints are short by in all",
        estimate,
        lower,
        upper,
        1 - beta,
        f"with probability {number(1 - beta)}, the {_count(model)} private constraints are short by between "
        f"{' and '.join(interval_ends(lower, upper))} in all{beyond}",
        epsilon,
        0.0,
    )


def shortage_at(model: Program, x: Floats) -> tuple[Measurement, Floats, float]:
    """At ``x`` (n,): q of the private rows (k,), p, and D."""
    form, index = model.form, np.flatnonzero(model.form.private_rows)
    row, column = form.matrix_coordinates()
    place = np.zeros(model.affine.rows, dtype=np.int64)
    place[index] = np.arange(index.size)
    query = LinearMap.of(
        place[np.concatenate([row, form.scalar.row])],
        np.concatenate([form.matrix.column, form.scalar.column]),
        np.concatenate([form.matrix.coefficient * x[column], -form.scalar.coefficient]),
        index.size,
    )
    each, one = np.arange(index.size), sp.eye_array(index.size, format="csr")
    found = scaled(model, "scalar", "certificate", query, sp.csr_array(one), each, np.ones(index.size))
    public = (form.A0 @ x - form.b0)[index]
    if found.l1 == 0:
        return found, public, 0.0
    size = np.minimum(np.maximum(np.abs(found.lower), np.abs(found.upper)), found.limit) + np.abs(public)
    return found, public, found.l1 * (1 + 1e-12) + 8 * 2.0**-53 * float(size.sum())


def shortage(model: Program, query: Measurement, public: Floats, theta: PrivateArray) -> float:
    """Private: what the rows are short by. Under a certificate's noise only."""
    over = query.values(theta) + public
    equal = model.affine.equalities()[np.flatnonzero(model.form.private_rows)]
    return math.fsum(np.where(equal, np.abs(over), np.maximum(over, 0.0)))


# ------------------------------------------------------------------ the true objective
def _objective(model: Program, x: Floats, epsilon: float, beta: float, noise: NoiseSource) -> Certificate:
    query, form = objective_at(model, x), model.form
    public = float(form.c0 @ x) + form.d0
    sign = -1.0 if model.affine.maximize else 1.0
    distribution = Laplace(query.l1 / epsilon) if query.l1 > 0 else None
    exact = query.values(PrivateArray(model.read_private()))
    released = exact if distribution is None else distribution.add_to(exact, noise)
    factor = float(query.recover.sum())
    far = 0.0 if distribution is None else abs(factor) * distribution.max_abs_quantile(1, beta)
    middle = factor * float(released[0])
    ends = np.sort(factor * np.array([query.lower[0], query.upper[0]]))
    estimate, *both = (sign * (public + float(np.clip(each, *ends))) for each in (middle, middle - far, middle + far))
    lower, upper = sorted(both)
    beyond = f", for private sums up to {number(query.limit)} in size" if query.furthest > query.limit else ""
    return Certificate(
        "the true objective",
        estimate,
        lower,
        upper,
        1 - beta,
        f"with probability {number(1 - beta)}, the true objective at the released point lies between "
        f"{' and '.join(interval_ends(lower, upper))}{beyond}",
        epsilon,
        0.0,
    )


def objective_at(model: Program, x: Floats) -> Measurement:
    """The one number that private values add to the objective at ``x`` (n,), as a linear function of them."""
    costs, offset = model.form.objective, model.form.offset
    column = np.concatenate([costs.column, offset.column])
    weight = np.concatenate([costs.coefficient * x[costs.row], offset.coefficient])
    query = LinearMap.of(np.zeros(column.size, dtype=np.int64), column, weight, 1)
    one = sp.csr_array(np.ones((1, 1)))
    return scaled(model, "objective", "certificate", query, one, np.zeros(1, dtype=np.int64))
