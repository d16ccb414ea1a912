"""Any post-processing problem by a general solver."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.sparse.linalg import lsmr

from dpmodel._types import Floats
from dpmodel.contract import YES, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast
from dpmodel.numerics.cone_program import SolverFailure, installed_solvers
from dpmodel.privacy import NoiseSource
from dpmodel.released.constraints import contradiction
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import Postprocessing, Solver

# Solvers in CVXPY that take squares together with integers.
_MIXED_SQUARES = ("GUROBI", "MOSEK", "SCIP", "CPLEX", "XPRESS", "COPT")
_LOOSE = ("OSQP", "SCS", "PDLP", "CUOPT")
_TIGHT: dict[str, dict[str, Any]] = {
    "OSQP": {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iter": 100_000},
    "SCS": {"eps": 1e-7, "max_iters": 100_000},
    "CLARABEL": {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9},
}


@dataclass(frozen=True)
class GeneralSolver(Solver):
    """HiGHS for absolute errors and integers, Clarabel for squares, and whatever CVXPY has on demand.

    Source
        Q. Huangfu, J. A. J. Hall, "Parallelizing the dual revised simplex method" (HiGHS); P. J. Goulart, Y. Chen,
        "Clarabel"; B. Stellato et al., "OSQP"; through SciPy and CVXPY.
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        The optimum to the solver's tolerance: objective within about 1e-8 relative (HiGHS), 1e-6 (Clarabel), 1e-4
        (first-order solvers); with integers a gap of 1e-6.
    Cost
        A linear program with one row and two columns per absolute error (residual = p - q), or a cone program; a
        problem outside the array form is handed to CVXPY as it is. The user's variables and multipliers are left as
        they were.

    Parameters
    ----------
    solver : name of a CVXPY solver; ``solver`` of the options comes first. None: HiGHS or Clarabel; CVXPY's choice
        for integers outside the array form. ``solver_options`` are passed on as they are.

    Outcome
    -------
    ``x`` (n,) in the order of the model's columns; ``value`` : the minimised objective there (the negative of a
    maximised one). ``status`` : "optimal", "optimal_inaccurate", "infeasible" (the contradicting constraints named in
    ``notes``) or "unbounded".

    Raises
    ------
    SolverFailure
        When the solver stops without an answer.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing, any_solver=True)
    solver: str | None = None
    name: str = "general-solver"
    source: str = "HiGHS, Clarabel, OSQP or SCS, through SciPy and CVXPY"

    def place(self, model: Postprocessing) -> int:
        # up to 10,000 coefficients a fraction of a second
        return 5 if model.form is None or model.form.coefficients <= 10_000 else 7

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        if model.form is None and model.problem is None:
            return Verdict(False, "there is neither an array form nor a CVXPY problem")
        solver, installed = self._solver(options), _installed()
        if solver is not None and solver not in installed:
            return Verdict(False, f"solver {solver} is not installed; there are {', '.join(sorted(installed))}")
        form = model.form
        mixed = form is not None and form.integer.any() and form.square.any()
        if mixed and (solver == "HIGHS" or (solver is None and _mixed_squares() is None)):
            who = "HiGHS does not take" if solver else "no installed solver takes"  # called anyway, it may crash
            reason = f"{who} squared errors with integers: use absolute errors (Laplace)"
            return Verdict(False, f"{reason}, one of {', '.join(_MIXED_SQUARES)}, or round the solution")
        return YES

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        solver, form = self._chosen(model, options), model.form
        alpha = 1e-4 if solver in _LOOSE else 1e-6
        if solver == "HIGHS" and form is not None and not form.integer.any():
            alpha = 1e-8
        return self.free_of_charge(
            model,
            f"the optimum by {solver or 'the solver that CVXPY chooses'}, to about {alpha:g} of the objective",
            alpha=alpha,
            work=_work(form),
        )

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        progress("solve", 0.0)
        started = time.perf_counter()
        solver, form = self._chosen(model, options), model.form
        if form is None:
            named = self._solver(options) is not None
            status, x, value = _as_written(model, solver, options.solver_options, named)
        elif (form.lower > form.upper).any():
            status, x, value = "infeasible", None, None
        else:
            linear = solver == "HIGHS" and not form.square.any() and not options.solver_options
            center = np.zeros(form.size) if linear or form.integer.any() else _center(form)
            scaled, unit = _scaled(_moved(form, center))
            status, x = linear_program(scaled) if linear else _by_cvxpy(scaled, solver, options.solver_options)
            if x is not None:  # within the bounds exactly, and integer where it must be
                x = center + x * unit
                x = np.asarray(np.clip(np.where(form.integer, np.rint(x), x), form.lower, form.upper))
            value = None if x is None else form.objective(x)
        notes = (str(contradiction(model)),) if status == "infeasible" else ()
        progress("solve", 1.0)
        return Outcome(status, x, None, value, time.perf_counter() - started, notes=notes)

    def _solver(self, options: Options) -> str | None:
        solver = options.solver if options.solver is not None else self.solver
        return None if solver is None else str(solver).upper()

    def _chosen(self, model: Postprocessing, options: Options) -> str | None:
        solver, form = self._solver(options), model.form
        if solver is not None:
            return solver
        if form is None:
            whole = any(v.attributes["integer"] or v.attributes["boolean"] for v, _ in model.columns)
            return None if whole else "CLARABEL"
        if form.integer.any() and form.square.any():
            return _mixed_squares()
        return "CLARABEL" if form.square.any() else "HIGHS"


GENERAL_SOLVER = GeneralSolver()


def _installed() -> set[str]:
    return {str(each).upper() for each in installed_solvers()}


def _mixed_squares() -> str | None:
    return next((each for each in _MIXED_SQUARES if each in _installed()), None)


# ------------------------------------------------------------------ in arrays
def _center(form: LikelihoodForm) -> Floats:
    """A point near the optimum, by least squares over measurements and equalities, within the bounds. Interior points
    stop at errors of 1e-9 of the numbers they see: measured from here, these are residuals of the size of the noise,
    not counts that may be far larger."""
    rows = sp.csr_array(sp.vstack([form.matrix, form.equality]))
    near = lsmr(rows, np.concatenate([form.value, form.equality_value]), maxiter=50)[0]
    return np.asarray(np.clip(near, form.lower, form.upper))


def _moved(form: LikelihoodForm, center: Floats) -> LikelihoodForm:
    """The same problem in ``x - center``, its constant aside."""
    return replace(
        form,
        value=form.value - form.matrix @ center,
        equality_value=form.equality_value - form.equality @ center,
        inequality_value=form.inequality_value - form.inequality @ center,
        lower=form.lower - center,
        upper=form.upper - center,
    )


def _scaled(form: LikelihoodForm) -> tuple[LikelihoodForm, float]:
    """The same problem in ``x / unit`` with weights of at most one, and the unit: solvers stop at errors near 1e-8,
    whatever the numbers mean. Large numbers are left to them where x is whole, and in linear programs."""
    sides = (form.value, form.equality_value, form.inequality_value, form.lower, form.upper)
    # Inequalities and bounds count as far as the origin breaks them; what fits exactly leaves rounding errors.
    broken = (np.minimum(form.inequality_value, 0.0), np.maximum(form.lower, 0.0), np.minimum(form.upper, 0.0))
    sizes = np.abs(np.concatenate(sides))
    # Residuals below this share of the largest number are not told from rounding errors.
    least = 1e-6 * float(sizes[np.isfinite(sizes)].max(initial=0.0))
    largest = max(least, float(np.abs(np.concatenate([*sides[:2], *broken])).max(initial=0.0)))
    unit = largest if largest > 0 and (largest < 1e-2 or form.square.any()) else 1.0
    unit = 1.0 if form.integer.any() else unit
    absolute, square, linear = form.absolute * unit, form.square * unit**2, form.linear * unit
    weight = max(float(np.abs(each).max(initial=0.0)) for each in (absolute, square, linear)) or 1.0
    value, e, g, lower, upper = (side / unit for side in sides)
    scaled = replace(
        form,
        value=value,
        absolute=absolute / weight,
        square=square / weight,
        linear=linear / weight,
        constant=0.0,
        equality_value=e,
        inequality_value=g,
        lower=lower,
        upper=upper,
    )
    return scaled, unit


def linear_program(form: LikelihoodForm, **limits: Any) -> tuple[str, Floats | None]:
    """Absolute errors by HiGHS: columns (x, p, q), M x - p + q = value with p, q >= 0 at cost ``absolute``.

    ``limits`` : options of HiGHS."""
    n = form.size
    used = np.flatnonzero(form.absolute)
    k, p = used.size, form.equality.shape[0]
    matrix = form.matrix if k == form.absolute.size else sp.csr_array(form.matrix[used])
    rows = sp.hstack([matrix, -sp.eye_array(k), sp.eye_array(k)]) if k else None
    if p:
        below = sp.hstack([form.equality, sp.csr_array((p, 2 * k))]) if k else form.equality
        rows = below if rows is None else sp.vstack([rows, below])
    weights = form.absolute[used]
    lower, upper = np.concatenate([form.lower, np.zeros(2 * k)]), np.concatenate([form.upper, np.full(2 * k, np.inf)])
    q = form.inequality.shape[0]
    whole = np.concatenate([form.integer, np.zeros(2 * k, dtype=bool)]).astype(np.int64) if form.integer.any() else None

    def solve(**options: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return linprog(
                np.concatenate([form.linear, weights, weights]),
                A_eq=None if rows is None else sp.csc_array(rows),
                b_eq=None if rows is None else np.concatenate([form.value[used], form.equality_value]),
                A_ub=sp.csc_array(sp.hstack([form.inequality, sp.csr_array((q, 2 * k))])) if q else None,
                b_ub=form.inequality_value if q else None,
                bounds=np.column_stack([lower, upper]),
                integrality=whole,
                method="highs",
                options=limits | options | ({} if whole is None else {"mip_rel_gap": 1e-6}),
            )

    result = solve()
    if result.status not in (0, 2, 3):  # "infeasible or unbounded": without presolve it can tell
        result = solve(presolve=False)
    statuses = {0: "optimal", 2: "infeasible", 3: "unbounded"}
    if result.status not in statuses:
        raise SolverFailure("HiGHS failed", why=str(result.message)[:200], remedy="solver='CLARABEL'")
    return statuses[result.status], None if result.status else np.asarray(result.x[:n], dtype=np.float64)


def _by_cvxpy(form: LikelihoodForm, solver: str | None, options: Mapping[str, Any]) -> tuple[str, Floats | None]:
    n = form.size
    whole = np.flatnonzero(form.integer)
    bounds = [form.lower, form.upper] if np.isfinite(form.lower).any() or np.isfinite(form.upper).any() else None
    x = cp.Variable(n, bounds=bounds, **({"integer": (whole,)} if whole.size else {}))
    terms = [form.linear @ x] if form.linear.any() else []
    for weights, squared in ((form.absolute, False), (form.square, True)):
        used = np.flatnonzero(weights)
        if used.size:
            r, w = sp.csr_array(form.matrix[used]) @ x - form.value[used], weights[used]
            terms.append(cp.sum_squares(cp.multiply(np.sqrt(w), r)) if squared else w @ cp.abs(r))
    constraints = []
    if form.equality.shape[0]:
        constraints.append(form.equality @ x == form.equality_value)
    if form.inequality.shape[0]:
        constraints.append(form.inequality @ x <= form.inequality_value)
    problem = cp.Problem(cp.Minimize(sum(terms) if terms else 0.0), constraints)
    status = _solve(problem, solver, options)
    return status, None if x.value is None else np.asarray(x.value, dtype=np.float64).ravel()


# ------------------------------------------------------------------ as the user wrote it
def _as_written(
    model: Postprocessing, solver: str | None, options: Mapping[str, Any], named: bool
) -> tuple[str, Floats | None, float | None]:
    """CVXPY on a plain problem over the user's tree; what it writes into variables and multipliers is taken back."""
    users = model.problem
    plain = cp.Problem(users.objective, users.constraints)
    leaves = [variable for variable, _ in model.columns]
    duals = [dual for constraint in users.constraints for dual in constraint.dual_variables]
    before = [(leaf, leaf.value) for leaf in (*leaves, *duals)]
    try:
        try:
            status = _solve(plain, solver, options)
        except SolverFailure:
            if named or options:
                raise
            status = _solve(plain, None, options)
        if any(variable.value is None for variable in leaves):
            return status, None, None
        values = [_column(variable.value) for variable in leaves]
        value = float(plain.objective.value)
        minimised = -value if isinstance(plain.objective, cp.Maximize) else value
        return status, np.concatenate(values), minimised
    finally:
        for leaf, value_before in before:
            leaf.save_value(value_before)


def _column(value: Any) -> Floats:
    value = value.toarray() if sp.issparse(value) else value
    return np.asarray(value, dtype=np.float64).ravel(order="F")


def _solve(problem: Any, solver: str | None, options: Mapping[str, Any]) -> str:
    chosen = dict(options) if options else _TIGHT.get(solver or "", {})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # inaccuracy is reported by the status
            problem.solve(solver=solver, **chosen)
    except (cp.SolverError, TypeError, ValueError) as error:
        raise SolverFailure(
            f"solver {solver or 'chosen by CVXPY'} failed",
            why=(str(error).splitlines() or [type(error).__name__])[0][:200],
            remedy="another solver, e.g. solver='CLARABEL' or 'SCS', or options that it knows",
        ) from None
    status = str(problem.status)
    for known in ("infeasible", "unbounded"):
        if status == f"{known}_inaccurate":
            return known
    return "infeasible" if status == "infeasible_or_unbounded" else status


def diagnose(form: LikelihoodForm) -> Literal["infeasible", "unbounded"] | None:
    """By HiGHS: "infeasible" where the constraints contradict each other, "unbounded" where some direction that keeps
    them lowers the objective for ever; None for neither."""
    n, k = form.size, form.value.size
    nothing = {"matrix": sp.csr_array((0, n)), "value": np.zeros(0), "absolute": np.zeros(0), "square": np.zeros(0)}
    # Along d the loss grows by absolute |M d| per unit, without end where square is positive and M d is not zero.
    rigid = form.matrix[np.flatnonzero(form.square)]
    directions = replace(
        form,
        value=np.zeros(k),
        square=np.zeros(k),
        equality=sp.csr_array(sp.vstack([form.equality, rigid])),
        equality_value=np.zeros(form.equality_value.size + rigid.shape[0]),
        inequality_value=np.zeros(form.inequality_value.size),
        lower=np.where(np.isfinite(form.lower), 0.0, -np.inf),
        upper=np.where(np.isfinite(form.upper), 0.0, np.inf),
    )
    try:
        if linear_program(replace(form, linear=np.zeros(n), **nothing), time_limit=60.0)[0] == "infeasible":
            return "infeasible"
        if form.linear.any() and linear_program(directions, time_limit=60.0)[0] == "unbounded":
            return "unbounded"
    except SolverFailure:
        pass
    return None


def _work(form: LikelihoodForm | None) -> str:
    if form is None:
        return "one solve by CVXPY"
    kind = "mixed-integer " if form.integer.any() else ""
    kind += "quadratic program" if form.square.any() else "linear program"
    rows = form.matrix.shape[0] + form.equality.shape[0] + form.inequality.shape[0]
    return f"one {kind} of {form.size} variables and {rows} rows"
