"""Exact equations: private equalities are replaced by sanitised ones, and the public problem is solved under those."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.contract import (
    NOTHING_FOUND,
    YES,
    Mechanism,
    Options,
    Outcome,
    Progress,
    Serves,
    Verdict,
    no_progress,
    refuse_feasibility,
)
from dpmodel.exact.model import PrivateVectors
from dpmodel.exact.stable_span import STABLE_SPAN, needed_at_least, release_flag
from dpmodel.exact.subspaces import Basis
from dpmodel.forecast import Bound, Forecast, RowsMissed, Violation
from dpmodel.mechanisms.lp.exact_rows import exact_equations, why_not_equations
from dpmodel.mechanisms.lp.private_rows import private_rows, public_polyhedron
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.privacy import NoiseSource

# Solvers keep constraints to this; a unique exact solution is held against the public ones with it.
_TOLERANCE = 1e-7
_MOST_TOLD = 20


@dataclass(frozen=True)
class ExactEquations(Mechanism[PrivateLP]):
    """The stable spans of the rows (a, -b) of ``A x == b`` become equations, under which the objective is minimised.

    Source
        KMMST24, Algorithm 4 (synthetic systems of linear equations) with the tightened release of ``stable-span``.
    Privacy
        The rows are vectors over the rationals, exact because the private numbers are declared whole (and cut at 2^40,
        public policy) and the public ones are whole; one record owns one of them. They enter ``stable-span`` alone:
        its privacy argument is this one's. Under replace-one a row is replaced. Where records may be absent and an
        absent one leaves zeros (add-remove), a row without private numbers is read as the zero vector, which is in no
        set: that is a row more or less. If some row holds numbers of several records, one of them that is absent leaves
        the others' there: a row is replaced, and that is what is charged. What is released is a nested list of
        subspaces; which of them is taken (the largest that the public constraints allow), and the solution, follow
        from the list and public facts.
    Utility
        Every equation in a released subspace follows from private ones, so a point that satisfies all rows stays
        feasible and the objective is no worse than under all of them. All but ``slack_rows`` rows hold exactly at every
        point of the largest stable subspace (the forecast of ``stable-span``); where a few contradicting rows make
        that one unsolvable, the next smaller one is taken, which leaves those rows out too.
    Cost
        One stable partition, and a linear program for each subspace tried.
    """

    serves: ClassVar[Serves] = Serves(PrivateLP, ("scalar low", "row low", "row high"), leaves_out=True, exact=True)
    name: str = "exact-equations"
    source: str = "KMMST24, Algorithm 4, tightened"

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
        other = refuse_feasibility(options, "centred", "relaxed")
        if other is not None:
            return other
        verdict = why_not_equations(model)
        if not verdict.eligible:
            return verdict
        if options.delta == 0:
            return Verdict(False, "equations that one record makes appear can be hidden with delta > 0 only")
        return YES

    def at_least(self, model: PrivateLP, options: Options) -> Iterator[Bound]:
        """Nothing with fewer rows than the thresholds alone take, which is quickly seen; how many are needed takes a
        while in many dimensions."""
        system = exact_equations(model)
        if needed_at_least(system, options) > system.expected:
            yield Bound(Violation(math.inf, math.inf, system.expected, system.expected, exact=True))

    def forecast(self, model: PrivateLP, options: Options) -> Forecast | Verdict:
        system = exact_equations(model)
        forecast = STABLE_SPAN.forecast(system, options)
        if forecast.vacuous:
            return _too_few(system, forecast)
        assert isinstance(forecast.error, RowsMissed)
        missed = math.ceil(min(forecast.error.missed, system.expected))
        sure = f"with probability {1 - options.beta:g}"
        words = f"{sure}, all but {missed} of the {system.expected} equations hold exactly, if they are consistent"
        return replace(
            forecast,
            statement=words,
            error=Violation(0.0, 0.0, missed, system.expected, _width(model), exact=True),
            work="one stable partition, a linear program per subspace tried",
        )

    def run(self, model: PrivateLP, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        system = exact_equations(model)
        flag = release_flag(system, options, noise, progress)
        polytope = public_polyhedron(model)
        told: list[str] = []
        for basis in flag:
            outcome = _solve(model, polytope, basis)
            if outcome is not None:
                return replace(outcome, notes=(*told, *outcome.notes))
            told.append(f"{basis.dimension} independent equations contradict each other or the public constraints")
        told.append("no equations were found in which enough records agree")
        return Outcome(NOTHING_FOUND, None, None, None, notes=tuple(told))


def _too_few(system: PrivateVectors, forecast: Forecast) -> Verdict:
    """The rows are fewer than the statement needs: {0} would be released, which no row helped to find."""
    needed = forecast.error.records_needed()
    what = f"{needed} are needed" if needed else "no number of them would do: beta is too small beside delta"
    return Verdict(False, f"too few equations for any statement: {system.expected}, and {what}")


def _solve(model: PrivateLP, polytope: Polyhedron, basis: Basis) -> Outcome | None:
    """The best public point on the flat of the equations; None where there is none."""
    n = model.affine.variables
    if basis.pivots and basis.pivots[-1] == n:
        return None
    kept = f"{basis.dimension} sanitised equations"
    if basis.dimension == n:
        exact = -basis.rows[:, n]
        told = ", ".join(map(basis.field.show, exact[:_MOST_TOLD])) + (", ..." if n > _MOST_TOLD else "")
        words = f"{kept} have one solution, exactly ({told})"
        try:
            x = np.array([float(entry) for entry in exact])
        except OverflowError:
            return Outcome(NOTHING_FOUND, None, None, None, notes=(f"{words}, which is too large for floats",))
        if polytope.violation(x) > _TOLERANCE * max(1.0, float(np.abs(x).max(initial=0.0))):
            return None
        return _outcome(model, x, words)
    # Scaled while they are fractions, which have no largest size.
    rows = np.array(basis.rows / np.abs(basis.rows).max(axis=1)[:, None], dtype=np.float64)
    flat = replace(
        polytope,
        A_eq=sp.csr_array(sp.vstack([polytope.A_eq, sp.csr_array(rows[:, :n])])),
        b_eq=np.concatenate([polytope.b_eq, -rows[:, n]]),
    )
    try:
        point = flat.minimise(model.form.c0)
    except SolverFailure:
        return None
    if point is None:
        return Outcome("unbounded", None, None, None, notes=(kept,))
    return _outcome(model, point, f"{kept}, which hold to within the solver's tolerance")


def _outcome(model: PrivateLP, x: Floats, note: str) -> Outcome:
    return Outcome("optimal", x, None, float(model.form.c0 @ x + model.form.d0), notes=(note,))


def _width(model: PrivateLP) -> float:
    """How far one row can be violated, where the public set bounds that."""
    polytope: Any = public_polyhedron(model)
    if polytope.empty or not math.isfinite(polytope.l1):
        return math.nan
    rows = private_rows(model)
    return rows.residual_range(polytope)[1]


EXACT_EQUATIONS = ExactEquations()
