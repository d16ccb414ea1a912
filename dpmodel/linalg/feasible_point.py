"""A point that satisfies nearly all of many inequalities exactly, when each inequality is one person's record."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.linalg.inequalities_input import inequalities_input
from dpmodel.linalg.results import Result, shown
from dpmodel.linalg.solve import ProgressArgument, solve_system
from dpmodel.marks.records import Neighbors
from dpmodel.models.request import basic_request
from dpmodel.numerics.fields.field import QQ
from dpmodel.privacy import Budget
from dpmodel.text import array_text, number


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FeasiblePoint(Result):
    """What ``feasible_point`` released.

    ``x`` (d,) : the point in floats, read-only, or None. ``exact`` : the same as a tuple of Fractions where the
    mechanism computes in rationals, else None. ``missed`` : a noisy count of the rows that x misses, where the
    mechanism paid for one, else None. ``expected`` : the public number of rows, or guess of it, that forecasts speak of
    (predictions are from synthetic rows).
    """

    x: Floats | None
    exact: tuple[Fraction, ...] | None
    missed: float | None
    expected: int
    _title = "Feasible point"

    def _rows(self) -> list[tuple[str, object]]:
        rows: list[tuple[str, object]] = [("x", "-" if self.x is None else array_text(self.x))]
        if self.exact is not None:
            rows.append(("exactly", shown(QQ, np.array(self.exact, dtype=object))))
        if self.missed is not None:
            rows.append(("rows missed, noisy count", number(self.missed)))
        return rows

    def _plain(self) -> dict[str, Any]:
        exact = None if self.exact is None else [str(value) for value in self.exact]
        x = None if self.x is None else self.x.tolist()
        return {"x": x, "exact": exact, "missed": self.missed, "expected": self.expected}


def feasible_point(
    A: Any,
    b: Any = None,
    *,
    epsilon: float,
    delta: float = 0.0,
    margin: Any = None,
    public: Any = None,
    nonneg: bool = False,
    bound: int | None = None,
    neighbors: Neighbors = "replace-one",
    budget: Budget | None = None,
    expected: int | None = None,
    beta: float = 0.05,
    mechanism: Any = "auto",
    rng: Any = None,
    progress: ProgressArgument = None,
) -> FeasiblePoint:
    """Find x with ``a_i'x <= b_i`` for nearly all rows, exactly; row i of A and entry i of b are one record.

    No private algorithm can satisfy all rows: about (1/epsilon) ln(1/delta) are at risk, more in many dimensions. The
    plan says beforehand how many may be missed. All others hold exactly, not up to a tolerance.

    Parameters
    ----------
    A : (n, d) array or scipy sparse matrix; integers, Fractions and Decimals are kept exactly, floats are taken
        for the binary fractions they are.
    b : (n,) or one number for all rows. None: zeros, and x is a direction: x = 0 is no answer (unless a public
        right-hand side is not zero).
    epsilon, delta : the budget.
    margin : a public promise that the system has room, in one of two forms. A number rho0 in (0, 1]: with rows
        ``(b_i, -a_i)`` (``-a_i`` without b) scaled to unit norm, some unit vector z, which satisfies the public
        constraints, has ``row_i z >= rho0`` for all i. Or ``dict(radius=r, within=R)``: all points within r of some
        point c satisfy the private rows, c satisfies the public ones, and its norm is at most R; that promises
        rho0 = r / (r + 2 R) (``margin_of``; r / R without b), and the units of x are chosen for it. Where the promise
        is broken (say, by a few bad rows) more rows may be missed than stated; privacy does not depend on it. Rows of
        zeros always hold and need no room.
    public : (G, h), rows ``G x <= h`` that x must satisfy; h may be None for zeros.
    nonneg : whether x >= 0 (standard form).
    bound : U, where all private numbers are whole and at most U in size, which is public, and checked. Such systems
        need no margin (``dp-lp``): equations may hide in them.
    neighbors : "replace-one" (their number is public) or "add-remove" (one row more or less; their number is private).
    budget : a ``Budget`` to charge.
    expected : a public guess of the number of rows, for forecasts under "add-remove"; never taken from A.
    beta : probability with which the accuracy statement may fail.
    mechanism : "auto" for the plan's choice, a mechanism's name, or an object with settings of its own.
    rng : a seed, for tests only and not private. ``progress`` : True, or a function (stage, share done).

    Returns
    -------
    FeasiblePoint

    Raises
    ------
    SpecificationError
        Before anything is spent: NaN, wrong shapes, an empty system, neither margin nor bound, a margin outside
        (0, 1], numbers beyond the bound, a bad epsilon, delta, beta, budget or neighbor relation.
    InfeasibleError
        Before anything is spent: the public constraints have no solution.
    UnsupportedModelError, BudgetExceededError
        As ``Problem.solve``.

    Notes
    -----
    A row ``0'x <= b`` with b < 0 never holds and is one of the missed. KMMST24, Theorem 1 (perceptron) and Theorem D
    (integers).
    """
    request = basic_request(epsilon, delta, beta)
    given = inequalities_input(
        A, b, margin=margin, public=public, nonneg=nonneg, bound=bound, neighbors=neighbors, expected=expected
    )
    sides = "" if given.model.homogeneous else " with its entry of b"
    found, shared = solve_system(
        given.model, request, mechanism=mechanism, budget=budget, rng=rng, progress=progress,
        label="linalg.feasible_point", record=f"a record is one row of A{sides}",
    )  # fmt: skip
    x, exact = None, None
    if shared["found"]:
        answer = np.asarray(found.answer)
        if answer.dtype.kind == "O":
            exact = tuple(Fraction(value) * Fraction(given.scale) for value in answer)
            x = np.array([float(value) for value in exact])
        else:
            x = answer.astype(np.float64) * given.scale
        x.setflags(write=False)
    return FeasiblePoint(x=x, exact=exact, missed=found.missed, expected=given.model.expected, **shared)
