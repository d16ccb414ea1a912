"""Private equalities and inequalities of a program as exact systems, and ``exact-equations``: the public problem is
solved under sanitised equations in place of the private ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.compile.form import value_range
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
from dpmodel.exact.fields import QQ
from dpmodel.exact.model import PrivateInequalities, PrivateVectors
from dpmodel.exact.stable_span import STABLE_SPAN, needed_at_least, release_flag
from dpmodel.exact.subspaces import Basis, ExactRows, show
from dpmodel.forecast import Forecast, RowsMissed, Violation
from dpmodel.marks.records import Neighbors
from dpmodel.numerics.cone_program import SolverFailure
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.privacy import NoiseSource
from dpmodel.programs.model import Program
from dpmodel.programs.rows import (
    plain_rows,
    present,
    private_rows,
    public_polyhedron,
    rows_at,
    rows_per_record,
    rows_vanish,
)

# Private integers are cut to this size (public policy), so that rows are computed exactly in 64 bits.
LARGEST = 2**40


def why_not_equations(model: Program) -> Verdict:
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
    per_record = rows_per_record(model)
    if per_record > 1:
        return Verdict(False, f"one record reaches {per_record} of the private rows: it serves one equation per record")
    reason = why_not_integer(model)
    return Verdict(False, reason) if reason else YES


def why_not_integer(model: Program) -> str:
    """Why the private rows do not hold integers by public declaration; "" if they do."""
    form = model.form
    for block in model.affine.private_blocks:
        if block.why_not_integer:
            return f"exactness needs integers: {block.why_not_integer}"
    rows = form.private_rows
    public = (form.matrix.coefficient, form.scalar.coefficient, sp.csr_array(form.A0[rows]).data, form.b0[rows])
    for values in public:
        if (values != np.rint(values)).any():
            return "exactness needs integers: a private row has a public coefficient that is not whole"
    sums = [
        np.bincount(part.row, weights=np.abs(part.coefficient)).max(initial=0.0) for part in (form.matrix, form.scalar)
    ]
    if max(sums) > 2**20 or max(np.abs(v).max(initial=0.0) for v in public[2:]) > LARGEST:
        return "the public coefficients of the private rows are too large to compute with exactly"
    return ""


def exact_equations(model: Program) -> PrivateVectors:
    """The private equalities ``a'x = b`` as vectors (a, -b) over the rationals, in the order of the constraints."""
    form = model.form
    rows = np.flatnonzero(form.private_rows)
    neighbors, records = _neighbors(model, rows)

    def read() -> ExactRows:
        A, b = _integers(model, rows, PrivateArray(model.read_private()), present_only=records is None)
        return np.hstack([A, -b[:, None]])

    dimension = model.affine.variables + 1
    return PrivateVectors(QQ, dimension, "equations", neighbors, dimension, records, int(rows.size), read)


def why_not_inequalities(model: Program) -> Verdict:
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
    per_record = rows_per_record(model)
    if per_record > 1:
        return Verdict(False, f"one record reaches {per_record} of the private rows, and a miss may be any of them")
    return YES


def exact_inequalities(model: Program, polytope: Polyhedron, margin: float | None) -> PrivateInequalities:
    """The private inequalities ``a'x <= b`` beside the public polyhedron ``polytope``."""
    form = model.form
    rows = np.flatnonzero(form.private_rows)
    neighbors, records = _neighbors(model, rows)
    G, h = _public_rows(polytope)
    largest = None if why_not_integer(model) else _largest(model, rows)

    def read() -> tuple[Any, Any]:
        theta = PrivateArray(model.read_private())
        if largest is not None:
            return _integers(model, rows, theta, present_only=records is None)
        return _floats(model, rows, theta, present_only=records is None)

    return PrivateInequalities(
        model.affine.variables, False, G, h, margin, largest, neighbors, records, int(rows.size), read
    )


def _neighbors(model: Program, rows: Integers) -> tuple[Neighbors, int | None]:
    """(relation, number of records) of the rows. Where an absent record leaves a zero row, which nothing else does and
    which holds nobody else's numbers: add-remove. Else a row is replaced, which covers its absence too."""
    return ("add-remove", None) if rows_vanish(model) else ("replace-one", int(rows.size))


def _largest(model: Program, rows: Integers) -> int | None:
    """Public bound on all numbers of the private rows; None where none is declared, or it is beyond ``LARGEST``."""
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


def _integers(model: Program, rows: Integers, theta: PrivateArray, *, present_only: bool) -> tuple[ExactRows, Integers]:
    """(k, n) A and (k,) b, int64, without rounding."""
    form, (m, n) = model.form, (max(model.affine.rows, 1), model.affine.variables)
    integers = np.clip(np.rint(theta), -LARGEST, LARGEST).astype(np.int64)
    place = np.full(m, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    A = np.zeros((rows.size, n), dtype=np.int64)
    np.add.at(
        A,
        (place[form.matrix.row % m], form.matrix.row // m),
        form.matrix.coefficient.astype(np.int64) * integers[form.matrix.column],
    )
    b = np.zeros(rows.size, dtype=np.int64)
    np.add.at(b, place[form.scalar.row], form.scalar.coefficient.astype(np.int64) * integers[form.scalar.column])
    here = present(model, integers)[rows] if present_only else np.ones(rows.size, dtype=bool)
    A += sp.csr_array(form.A0[rows]).toarray().astype(np.int64)
    b += form.b0[rows].astype(np.int64)
    return A * here[:, None], b * here


def _floats(model: Program, rows: Integers, theta: PrivateArray, *, present_only: bool) -> tuple[Any, Floats]:
    """(k, n) A, CSR, and (k,) b. A row with numbers that overflow becomes ``0 <= 0``; no warning tells of it."""
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


# Solvers satisfy constraints up to this; a unique exact solution has to satisfy the public ones up to it too.
_TOLERANCE = 1e-7
_MOST_ENTRIES = 20  # of a solution, in a note


@dataclass(frozen=True)
class ExactEquations(Mechanism[Program]):
    """The stable spans of the rows (a, -b) of ``A x == b`` become equations, under which the objective is minimised.

    Source
        KMMST24, Algorithm 4 (synthetic systems of linear equations) with the tightened release of ``stable-span``.
    Privacy
        The rows are vectors over the rationals, exact because the private numbers are declared integers (and cut at
        2^40, public policy) and the public ones are integers; a record owns one row. They enter ``stable-span`` alone:
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

    serves: ClassVar[Serves] = Serves(
        Program, ("scalar low", "row low", "row high"), leaves_out=True, exact=True, by_stability=True
    )
    name: str = "exact-equations"
    source: str = "KMMST24, Algorithm 4, tightened"

    def run(self, model: Program, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        system = exact_equations(model)
        flag = release_flag(system, options, noise, progress)
        polytope = public_polyhedron(model)
        notes: list[str] = []
        for basis in flag:
            outcome = _solve(model, polytope, basis)
            if outcome is not None:
                return replace(outcome, notes=(*notes, *outcome.notes))
            notes.append(f"{basis.dimension} independent equations contradict each other or the public constraints")
        notes.append("no equations were found in which enough records agree")
        return Outcome(NOTHING_FOUND, None, None, None, notes=tuple(notes))

    def eligible(self, model: Program, options: Options) -> Verdict:
        other = refuse_feasibility(options, "centred", "relaxed")
        if other is not None:
            return other
        verdict = why_not_equations(model)
        if not verdict.eligible:
            return verdict
        if options.delta == 0:
            return Verdict(False, "equations that one record makes appear can be hidden with delta > 0 only")
        return YES

    def bound(self, model: Program, options: Options) -> float:
        """Infinite with fewer rows than the thresholds alone take, which is cheap to see. The number that is needed is
        not, in many dimensions."""
        system = exact_equations(model)
        return math.inf if needed_at_least(system, options) > system.expected else 0.0

    def forecast(self, model: Program, options: Options) -> Forecast | Verdict:
        system = exact_equations(model)
        forecast = STABLE_SPAN.forecast(system, options)
        if forecast.vacuous:
            return _too_few(system, forecast)
        assert isinstance(forecast.error, RowsMissed)
        missed = math.ceil(min(forecast.error.missed, system.expected))
        chance = f"with probability {1 - options.beta:g}"
        words = f"{chance}, all but {missed} of the {system.expected} equations hold exactly, if they are consistent"
        return replace(
            forecast,
            statement=words,
            error=Violation(0.0, 0.0, missed, system.expected, _width(model), exact=True),
            work="one stable partition, a linear program per subspace tried",
        )


def _too_few(system: PrivateVectors, forecast: Forecast) -> Verdict:
    """The rows are fewer than the statement needs: {0} would be released, which no row helped to find."""
    needed = forecast.error.records_needed()
    what = f"{needed} are needed" if needed else "no number of them would do: beta is too small beside delta"
    return Verdict(False, f"too few equations for any statement: {system.expected}, and {what}")


def _solve(model: Program, polytope: Polyhedron, basis: Basis) -> Outcome | None:
    """The best public point on the flat of the equations; None where there is none."""
    n = model.affine.variables
    if basis.pivots and basis.pivots[-1] == n:
        return None
    equations = f"{basis.dimension} sanitised equations"
    if basis.dimension == n:
        exact = -basis.rows[:, n]
        solution = ", ".join(map(show, exact[:_MOST_ENTRIES])) + (", ..." if n > _MOST_ENTRIES else "")
        words = f"{equations} have one solution, exactly ({solution})"
        try:
            x = np.array([float(entry) for entry in exact])
        except OverflowError:
            return Outcome(NOTHING_FOUND, None, None, None, notes=(f"{words}, which is too large for floats",))
        if polytope.violation(x) > _TOLERANCE * max(1.0, float(np.abs(x).max(initial=0.0))):
            return None
        return _outcome(model, x, words)
    # Scaled as fractions, which cannot overflow.
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
        return Outcome("unbounded", None, None, None, notes=(equations,))
    return _outcome(model, point, f"{equations}, which hold to within the solver's tolerance")


def _outcome(model: Program, x: Floats, note: str) -> Outcome:
    return Outcome("optimal", x, None, float(model.form.c0 @ x + model.form.d0), notes=(note,))


def _width(model: Program) -> float:
    """How far one row can be violated, where the public set bounds that."""
    polytope: Any = public_polyhedron(model)
    if polytope.empty or not math.isfinite(polytope.l1):
        return math.nan
    rows = private_rows(model)
    return rows.residual_range(polytope)[1]


EXACT_EQUATIONS = ExactEquations()
