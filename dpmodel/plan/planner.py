"""Compare the mechanisms that apply by their forecast error and choose one; public facts only, nothing spent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from dpmodel._text import number
from dpmodel.classify.impossibility import impossibility_error
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.classify.regression_floors import regression_floors
from dpmodel.compile.postprocessing import Postprocessing
from dpmodel.errors import InfeasibleError, UnsupportedModelError
from dpmodel.mechanisms.linalg.lower_bounds import system_floors
from dpmodel.mechanisms.linalg.systems import PrivateInequalities, PrivatePoints, PrivateSystem, PrivateVectors
from dpmodel.mechanisms.lp.private_rows import private_rows
from dpmodel.mechanisms.lp.routes import span_of
from dpmodel.mechanisms.mechanism import Forecast, Request, Verdict, says_nothing
from dpmodel.plan.comparison import Candidate, Plan
from dpmodel.plan.portfolio import EXACT, KINDS, PORTFOLIO, AnyMechanism, named

__all__ = ["PORTFOLIO", "Candidate", "Plan", "make_plan", "refuse_impossible", "select_mechanism"]


def select_mechanism(candidates: Sequence[Candidate], request: Request | None = None) -> Candidate | None:
    """The eligible candidate with the least forecast error; the first in the registry among equals.

    Statements that say nothing come last, and predictions come after theorems. With ``slack_rows`` asked for,
    mechanisms that leave out no more compare by alpha; with ``alpha`` asked for, those that keep it compare by the
    constraints left out; otherwise all compare by ``Forecast.rank``.

    The decision table that follows from the forecasts (D1, D2: 1-norm and 2-norm change of the noised
    numbers, D: largest change of one of them, k their count, L a public bound on the 1-norm of x, m private rows):

    ================================  ===================================================================
    private part                      usual winner
    ================================  ===================================================================
    objective, simplex or points      vertex-exponential: L D1 ln(k / beta) / epsilon
    objective, otherwise              laplace-once: 2 L D1 ln(k / beta) / epsilon; gaussian-once when
                                      delta > 0 and D2 is far below D1 (one record moves many entries)
    right-hand sides                  laplace-once when one record moves few entries, else gaussian-once;
                                      multiplicative-weights when one record moves very many rows;
                                      private-cutting-planes (a prediction) comes after what is proved
    equalities, no objective          measure-and-fit: the same noise, then least squares
    matrix (rows, columns, all)       laplace-once or gaussian-once, times the public bound on x;
                                      noisy-multiplicative-weights when A has very many private entries
    equations, whole numbers          exact-equations: all but s rows hold exactly (unless alpha or slack
                                      rows are asked for)
    one record, one constraint        few dimensions or listed points: point-exponential, with an
                                      objective cheapest-point; else noisy-hinge-descent (many rows) or
                                      dense-multiplicative-weights: all but s rows within alpha
    strict feasibility                strict-truncated-laplace
    several parts                     laplace-once or gaussian-once with the budget split; a private
                                      objective beside constraints that are met nearly: half the budget
    nothing private                   no mechanism: solved as it is
    ================================  ===================================================================

    Regressions compare by ``Forecast.predicted``, the excess risk on data drawn from the public bounds (n records, p
    coefficients, e = epsilon):

    ================================  ===================================================================
    regression                        usual winner
    ================================  ===================================================================
    squared loss, p far below         sufficient-statistics: everything measured once, then solved under any
    sqrt(n e)                         public constraints
    l1 ball or simplex, large p       frank-wolfe: error grows with ln p; mirror-descent close behind,
                                      gaussian-frank-wolfe over sets whose vertices cannot be listed
    any loss, small or medium p       noisy-descent (also without constraints, where slopes are bounded)
    smooth losses                     objective-perturbation, with noisy-descent close by
    large n, where time counts        subsampled-descent: fewer passes, a little more noise
    ================================  ===================================================================

    As published: adassp-published, frank-wolfe-published, stochastic-mirror-descent.

    Post-processing costs no privacy and its solvers reach the same optimum, so those that reach it (to 1e-4 of the
    objective) compare by the time they are expected to take, ``Forecast.seconds``:

    ================================  ===================================================================
    post-processing                   usual winner
    ================================  ===================================================================
    tree, Laplace noise               exact-tree: linear in the nodes
    tree, Gaussian noise              least-squares-tree: two passes; active sets where bounds bind
    tree, both (elastic, mixed laws)  general-solver while small, else admm-tree
    one total, a chain, cells alone   projection: closed forms and isotonic regression
    table under public marginals      projection (squares, no bounds), else admm-tables
    answers of a strategy matrix      admm-strategy
    other linear constraints          general-solver (HiGHS, Clarabel) while small, else admm
    anything else that is convex      general-solver, as CVXPY solves it
    ================================  ===================================================================

    As published, for study: admm-published.

    Exact systems (vectors, inequalities or points, one per record, satisfied exactly or not at all) compare by the rows
    that the answer misses, points by the records needed (``Forecast.missed``):

    ================================  ===================================================================
    exact system                      usual winner
    ================================  ===================================================================
    span, affine span, equations      stable-span; block-votes where a share of the vectors is corrupted
    inequalities, a public margin     hinge-descent or rescaling-perceptron, whichever misses less in public
                                      simulation; dense-weights where the number of rows is public
    inequalities, whole numbers       dp-lp, where equations may hide among them or no margin is known
    point in a hull                   tukey-depth while its candidates can be listed, else pin-hull
    ================================  ===================================================================

    As published, for study: stable-span-published, algorithm-10, dp-lp-published.

    The published algorithms (theorem-34, algorithm-2, algorithm-4, algorithm-5, algorithm-6) are compared as well and
    lose by their constants.
    """
    best: Candidate | None = None
    for candidate in candidates:
        if not candidate.eligible or candidate.forecast is None:
            continue
        if best is None or best.forecast is None or _key(candidate.forecast, request) < _key(best.forecast, request):
            best = candidate
    return best


def _key(forecast: Forecast, request: Request | None) -> tuple[bool, bool, bool, float, float]:
    """Says nothing or something, keeps what was asked or not, predicted or proved, then the error; where x is unbounded
    (error infinite) the size of the noise itself. Predictions may be far too good, so they come after theorems."""
    if not math.isnan(forecast.seconds):  # post-processing: the same optimum, as far as the solver goes
        return forecast.vacuous, forecast.objective_alpha > _SAME_OPTIMUM, False, forecast.seconds, 0.0
    exactly = forecast.needed if math.isnan(forecast.missed) else forecast.missed
    if not math.isnan(exactly):  # exact systems: proved or in the same public simulations
        return forecast.vacuous, False, False, float(f"{exactly:.6g}"), 0.0
    if not math.isnan(forecast.predicted):  # regressions: all promise the same thing, and all are simulated alike
        return forecast.vacuous, False, False, float(f"{forecast.predicted:.6g}"), 0.0
    kept, error, then = True, forecast.rank, 0.0
    if request is not None and request.violation is not None:
        kept = forecast.violation_alpha <= request.violation * (1 + 1e-9)
        error, then = (float(forecast.slack_rows), forecast.rank) if kept else (forecast.rank, 0.0)
    if request is not None and request.slack_rows is not None:
        kept = kept and forecast.slack_rows <= request.slack_rows
        if request.violation is None and kept:
            error = replace(forecast, slack_rows=0).rank
    if not math.isfinite(error):
        sizes = [part["largest_noise"] for part in forecast.noise.values() if _is_noise(part)]
        then = max(sizes, default=math.inf)
    asked = request is not None and (request.violation, request.slack_rows) != (None, None)
    if forecast.exact and not forecast.vacuous and not asked:
        return False, False, False, -1.0, 0.0
    # Equal up to rounding allowances is equal: then the order of the registry decides.
    return forecast.vacuous, not kept, not forecast.proved, float(f"{error:.6g}"), then


# Relative error of the objective up to which two solutions count as the same.
_SAME_OPTIMUM = 1e-4

AnyModel = PrivateLP | PrivateRegression | Postprocessing | PrivateSystem
_SYSTEMS = PrivateVectors, PrivateInequalities, PrivatePoints


def _is_noise(part: object) -> bool:
    return isinstance(part, Mapping) and "largest_noise" in part


def make_plan(
    model: AnyModel,
    request: Request,
    mechanism: str | AnyMechanism = "auto",
    *,
    compare: bool = True,
) -> Plan:
    """Compare all mechanisms for ``model``; ``mechanism`` forces one (a name, or an object with settings of its own),
    without ``compare`` alone.

    Raises
    ------
    ImpossibilityError
        When a cell of the problem is impossible (Theorems 36 to 38).
    SpecificationError, UnsupportedModelError
        For an unknown name; when the forced mechanism, or none at all, is eligible.
    """
    forced = None if isinstance(mechanism, str) and mechanism == "auto" else named(mechanism, type(model))
    portfolio = KINDS[type(model)].mechanisms
    compared = portfolio if compare or forced is None else (forced,)
    if forced is not None and forced not in compared:  # of the other kind, or with settings of its own
        compared = (*(each for each in compared if each.name != forced.name), forced)
    if isinstance(model, PrivateRegression):
        candidates = tuple(_candidate(each, model, request) for each in compared)
        floors = regression_floors(model, request.epsilon, request.delta)
    elif isinstance(model, Postprocessing):
        candidates = tuple(_candidate(each, model, request) for each in compared)
        floors = ()
    elif isinstance(model, _SYSTEMS):
        candidates = tuple(_candidate(each, model, request) for each in compared)
        floors = system_floors(model, request.epsilon, request.delta, request.beta)
        if forced is None and model.records is not None:
            _refuse_too_few(model, candidates)
    else:
        refuse_impossible(model, request)
        candidates = _with_widths(model, [_candidate(each, model, request) for each in compared])
        floors = _floors(model, request)
    if forced is not None:
        chosen = next(candidate for candidate in candidates if candidate.mechanism == forced.name)
        if not chosen.eligible:
            names = [each.name for each in portfolio if _verdict(each, model, request).eligible]
            raise UnsupportedModelError(
                f"mechanism={forced.name!r} cannot serve this problem",
                why=chosen.reason,
                remedy=f"mechanism={' or '.join(map(repr, names))}" if names else "see plan() for every reason",
            )
    else:
        best = select_mechanism(candidates, request)
        if best is None:
            raise _nothing_applies(model, request, candidates)
        chosen = best
    own = None if isinstance(mechanism, str) else forced  # with settings that its name does not tell
    return Plan(candidates, chosen, request, forced is not None, floors, own)


def _refuse_too_few(model: PrivateSystem, candidates: Sequence[Candidate]) -> None:
    """UnsupportedModelError where the number of records is public and no statement covers it."""
    forecasts = [c.forecast for c in candidates if c.eligible and c.forecast is not None]
    if not forecasts or not all(forecast.vacuous for forecast in forecasts):
        return
    needed = min((f.needed for f in forecasts if not math.isnan(f.needed)), default=math.inf)
    at_least = f"at least {math.ceil(needed)} are needed" if math.isfinite(needed) else "no number of them would do"
    raise UnsupportedModelError(
        f"too few records for any guarantee: {model.expected}, and {at_least}",
        why="every mechanism that applies may miss all rows at this size and budget",
        remedy="more records, a larger epsilon or delta, fewer dimensions, or mechanism=... to run one all the same",
    )


def refuse_impossible(model: PrivateLP, request: Request) -> None:
    """Raise the impossibility theorem of the first cell that cannot be solved."""
    for cell in model.classification.cells:
        if not cell.solvable:
            constraint = cell.where[0] if cell.where and cell.part != "objective" else "objective"
            raise impossibility_error(
                cell.part, cell.parameter, constraint, request.epsilon, request.delta, request.beta, cell.reason
            )


def _verdict(mechanism: AnyMechanism, model: AnyModel, request: Request) -> Verdict:
    for kind, (mechanisms, words) in KINDS.items():
        if kind is not type(model) and any(type(mechanism) is type(each) for each in mechanisms):
            return Verdict(False, f"it serves {words}")
    if request.satisfy == "exact" and isinstance(model, PrivateLP) and mechanism.name not in EXACT:
        return Verdict(False, "it satisfies constraints nearly, and satisfy='exact' was asked for")
    method: Any = mechanism  # the kind of model it serves was checked
    verdict: Verdict = method.eligible(model, request)
    return verdict


def _candidate(mechanism: AnyMechanism, model: AnyModel, request: Request) -> Candidate:
    verdict, method = _verdict(mechanism, model, request), cast(Any, mechanism)
    forecast = method.forecast(model, request) if verdict.eligible else None
    return Candidate(mechanism.name, mechanism.source, verdict.eligible, verdict.reason, forecast)


def _with_widths(model: PrivateLP, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Whether the violation stated is more than any public point can have, for mechanisms that do not look."""
    widths = {c.forecast.width for c in candidates if c.forecast is not None and not math.isnan(c.forecast.width)}
    if not widths or private_rows(model).relative:
        return tuple(candidates)
    # Both public: how far rows can be violated, and how far the objective can vary, to weigh its loss against that.
    width, span = min(widths), span_of(model)

    def told(candidate: Candidate) -> Candidate:
        forecast = candidate.forecast
        if forecast is None or not math.isnan(forecast.width) or math.isnan(forecast.violation_alpha):
            return candidate
        vacuous = forecast.violation_alpha >= width
        words = forecast.statement if not vacuous else says_nothing(forecast.statement)
        return replace(candidate, forecast=replace(forecast, width=width, span=span, vacuous=vacuous, statement=words))

    return tuple(told(candidate) for candidate in candidates)


def _nothing_applies(
    model: AnyModel, request: Request, candidates: Sequence[Candidate]
) -> UnsupportedModelError | InfeasibleError:
    if isinstance(model, Postprocessing):
        remedy = "a convex likelihood under convex constraints, without whole-number variables"
        return UnsupportedModelError("no solver serves this post-processing", why=_reasons(candidates), remedy=remedy)
    if isinstance(model, PrivateRegression):
        return UnsupportedModelError(
            "no mechanism serves this regression", why=_reasons(candidates), remedy=_REGRESSION_REMEDY
        )
    if isinstance(model, _SYSTEMS):
        remedy = _SYSTEM_REMEDIES[type(model)]
        return UnsupportedModelError("no mechanism serves this system", why=_reasons(candidates), remedy=remedy)
    model.public.require_feasible()
    if request.feasibility == "strict":
        strict = next(c for c in candidates if c.mechanism == "strict-truncated-laplace")
        what = 'feasibility="strict" cannot be promised for this problem'
        if "do not leave a point" in strict.reason:
            remedy = 'tighter public bounds=[lo, hi] on the private parameters, or feasibility="relaxed"'
            return InfeasibleError(what, why=strict.reason, remedy=remedy)
        return UnsupportedModelError(what, why=strict.reason, remedy='mend that, or feasibility="relaxed"')
    # Mechanisms that serve other cells or another feasibility explain nothing here.
    fitting = {name for cell in model.classification.cells for name in cell.taxonomy.mechanisms}
    told = [c for c in candidates if not fitting or c.mechanism in fitting]
    return UnsupportedModelError(
        "no mechanism serves this problem",
        why=_reasons(told),
        remedy="declare how far one record can move the private parameters, or bound the variables",
    )


_SYSTEM_REMEDIES: dict[type, str] = {
    PrivateVectors: "delta > 0, such as 1e-6",
    PrivateInequalities: "a public margin=, or whole numbers of a public bound= and delta > 0",
    PrivatePoints: "at most five coordinates, a larger step (fewer grid points), or delta > 0",
}
_REGRESSION_REMEDY = "delta > 0, a bounded set such as cp.norm1(w) <= 1, or clip= for losses whose slope has no bound"


def _reasons(candidates: Sequence[Candidate]) -> str:
    """Why not, each reason once with the mechanisms it stops."""
    reasons: dict[str, list[str]] = {}
    for candidate in candidates:
        if "was asked for" not in candidate.reason:
            reasons.setdefault(candidate.reason, []).append(candidate.mechanism)
    return "; ".join(f"{reason} ({', '.join(names)})" for reason, names in reasons.items())


def _floors(model: PrivateLP, request: Request) -> tuple[str, ...]:
    """What the theorems leave to any mechanism, scaled to how far one record moves an entry."""
    lines: list[str] = []
    if request.feasibility == "strict":
        return ()  # the floors are about missing constraints or optimum by little; strict misses the optimum instead
    for cell in model.classification.cells:
        least = cell.floor(request.epsilon, request.delta, request.beta)
        if least is not None and least.value > 0:
            lines.append(
                f"floor for {cell.parameter} ({least.theorem}, worst case over all programs of this cell): "
                f"{number(least.value)} ({least.unit})"
            )
    return tuple(dict.fromkeys(lines))
