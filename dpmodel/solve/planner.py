"""Compare the mechanisms that apply by their forecast error and choose one; public facts only, nothing spent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, cast, get_args

from dpmodel.contract import ARITHMETIC, Candidate, Model, Options, Progress, Verdict, no_progress
from dpmodel.errors import DPModelError, InfeasibleError, SpecificationError, UnsupportedModelError
from dpmodel.forecast import Forecast, Order, missing_something
from dpmodel.memo import key_of
from dpmodel.solve import kept
from dpmodel.solve.plan import Anew, Plan, nothing
from dpmodel.solve.registry import KINDS, AnyMechanism, load_entry_points, named
from dpmodel.solve.remedies import NO_EPSILON, what_would_help
from dpmodel.text import number

_LOG = logging.getLogger("dpmodel")

Compared = Literal["needed", "all"]
BEHIND = "not forecast, because it cannot win"

__all__ = ["Candidate", "Plan", "make_plan", "select_mechanism"]


def select_mechanism(candidates: Sequence[Candidate], options: Options | None = None) -> Candidate | None:
    """The eligible candidate with the least forecast error; the first in the registry among equals.

    Statements that say nothing come last, and predictions come after theorems. With ``slack_rows`` asked for,
    mechanisms that leave out no more compare by alpha; with ``alpha`` asked for, those that keep it compare by the
    constraints left out; otherwise all compare by ``Violation.rank``. Where one that leaves rows out is best by that,
    those that do compare by how they do on synthetic databases (``simulation.settled``).

    The decision table that follows from the forecasts (D1, D2: 1-norm and 2-norm sensitivity of the noised
    numbers, D: largest change of one of them, k their count, L a public bound on the 1-norm of x, m private rows):

    ================================  ===================================================================
    private part                      usual winner
    ================================  ===================================================================
    objective, simplex or points      vertex-exponential: L D1 ln(k / beta) / epsilon
    objective, otherwise              laplace-once: 2 L D1 ln(k / beta) / epsilon; gaussian-once when
                                      delta > 0 and D2 is far below D1 (one record moves many entries)
    right-hand sides                  laplace-once when one record moves few entries, else gaussian-once;
                                      multiplicative-weights when one record moves very many rows
    equalities, no objective          measure-and-fit: the same noise, then least squares
    matrix (rows, columns, all)       laplace-once or gaussian-once, times the public bound on x;
                                      noisy-multiplicative-weights when A has very many private entries
    equations, integers               exact-equations: all but s rows hold exactly (unless alpha or slack
                                      rows are asked for)
    one record, one constraint        few dimensions or listed points: point-exponential; else
                                      noisy-hinge-descent (many rows) or
                                      dense-multiplicative-weights: all but s rows within alpha
    strict feasibility                strict-truncated-laplace
    several parts                     laplace-once or gaussian-once with the budget split; a private
                                      objective beside constraints that are met nearly: half the budget
    nothing else says anything        public-only, where noise hides more than the declared ranges leave unknown
    nothing private                   no mechanism: solved as it is
    ================================  ===================================================================

    Regressions compare by ``ExcessRisk.predicted``, the excess risk on data drawn from the public bounds (n records, p
    coefficients, e = epsilon):

    ================================  ===================================================================
    regression                        usual winner
    ================================  ===================================================================
    squared loss, p far below         sufficient-statistics: everything measured once, then solved under any
    sqrt(n e)                         public constraints
    l1 ball or simplex, large p       frank-wolfe: error grows with ln p; mirror-descent close behind,
                                      gaussian-frank-wolfe over sets whose vertices cannot be listed
    any loss, small or medium p       noisy-descent (also without constraints, where derivatives are bounded)
    smooth losses                     objective-perturbation, with noisy-descent close by
    logistic losses, delta = 0        pure-objective-perturbation
    absolute, quantile: one number    quantile-exponential
    large n, where time counts        mechanisms.NoisyDescent(rate=.05): fewer passes, a little more noise
    too few records for the budget    public-only: the best point that reads no data
    ================================  ===================================================================

    As printed: adassp-as-printed, frank-wolfe-as-printed, stochastic-mirror-descent.

    Post-processing costs no privacy and its solvers reach the same optimum (to 1e-4 of the objective), so the first
    that serves is taken (``dpmodel.released.decision``):

    ================================  ===================================================================
    post-processing                   solver
    ================================  ===================================================================
    cells alone                       projection: each by itself
    tree, Gaussian noise              least-squares-tree: two passes; active sets where bounds bind
    one total, chains, table margins  projection: closed forms and isotonic regression
    tree, Laplace noise               exact-tree
    anything else, small              general-solver (HiGHS, Clarabel; what is not linear as CVXPY solves it)
    anything else, large              admm-tables under table margins, else admm
    ================================  ===================================================================

    Exact systems (vectors, inequalities or points, one per record, satisfied exactly or not at all) compare by the rows
    that the answer misses, points by the records needed (``RowsMissed``):

    ================================  ===================================================================
    exact system                      usual winner
    ================================  ===================================================================
    span, affine span, equations      stable-span
    inequalities, a public margin     hinge-descent or rescaling-perceptron, whichever misses less in public
                                      simulation
    inequalities, integers            dp-lp, where equations may hide among them or no margin is known
    point in a hull                   tukey-depth while its candidates can be listed, else pin-hull
    ================================  ===================================================================

    The papers' own constants (``Serves.as_printed``) lose, and are compared where ``plan(as_printed=True)`` asks.
    """
    served = [c for c in candidates if c.eligible and c.forecast is not None]
    forecasts = [c.forecast for c in served if c.forecast is not None]
    if not forecasts:
        return None
    best = type(forecasts[0].error).best(forecasts, options)
    return next(c for c in served if c.forecast is best)


def make_plan(
    model: Model[Any],
    options: Options,
    mechanism: str | AnyMechanism = "auto",
    *,
    compare: Compared = "needed",
    as_printed: bool = False,
    report: Progress = no_progress,
) -> Plan:
    """Compare the mechanisms for ``model``; ``mechanism`` forces one (a name, or an object with settings of its own).

    ``compare`` : "needed" forecasts what can win, and of forced ones nothing else; "all" every mechanism that applies.
    ``as_printed`` : all, and the papers' own constants too. ``report`` : told whose forecast is computed.

    Raises
    ------
    ImpossibilityError
        When a cell of the problem is impossible (Theorems 36 to 38).
    SpecificationError, UnsupportedModelError
        For an unknown name; when the forced mechanism, or none at all, is eligible; when planning itself fails.
    """
    if compare not in get_args(Compared):
        raise SpecificationError(
            f"compare={compare!r}", why="a plan forecasts what can win, or all", remedy='compare="needed" or "all"'
        )
    everything, kind = compare == "all" or as_printed, KINDS[model.kind]

    def build() -> Plan:
        return _plan(model, options, mechanism, everything, as_printed, report)

    def found() -> Plan:
        # Settings of somebody else's mechanism may change in place.
        if not model.reads or not all(type(each).__module__.startswith("dpmodel.") for each in kind.mechanisms):
            return build()
        plan = kept.find(model.data, key)
        if plan is None or not _still(plan, model, options):
            started = time.perf_counter()
            plan = build()
            if time.perf_counter() - started > kept.WORTH:
                kept.keep(model.data, key, plan)
            return plan
        compared = [each for each in kind.mechanisms if each.name in {c.mechanism for c in plan.candidates}]
        help = _help(model, options, plan.candidates, plan.chosen)
        return replace(plan, help=help, anew=_anew(model, options, compared))

    load_entry_points()
    try:
        if not isinstance(mechanism, str):  # settings of its own need not be part of what makes it equal to another
            return build()
        offered = tuple(map(id, kind.mechanisms))  # more may be registered later
        key = key_of(("plan", type(model), options, mechanism, everything, as_printed, offered))
        plan: Plan = model.data.cached(key, found)
        return plan
    except DPModelError:
        raise
    except Exception as error:
        _LOG.exception("planning failed")
        numbers = isinstance(error, ARITHMETIC)
        raise UnsupportedModelError(
            f"planning stopped with {type(error).__name__}",
            why=f"{'numbers of this model are beyond what plans compute with' if numbers else 'a defect of dpmodel'}; "
            "nothing was read and nothing was spent",
            remedy="units in which bounds and changes are neither huge nor tiny; the log 'dpmodel' has the place"
            if numbers
            else "report it, with the record in the log 'dpmodel'",
        ) from None


def _still(plan: Plan, model: Model[Any], options: Options) -> bool:
    """Whether the choice of ``plan``, made for a model like this one, says the same of this one: what is charged, and
    what a run computes of public facts before it reads anything, is this model's own."""
    algorithm = next(each for each in KINDS[model.kind].mechanisms if each.name == plan.chosen.mechanism)
    model.refuse(options)
    fresh, then = model.capped(options, _candidate(algorithm, model, options)).forecast, plan.chosen.forecast
    if fresh is None or then is None:
        return False
    return (fresh.epsilon, fresh.delta, fresh.statement) == (then.epsilon, then.delta, then.statement)


def _plan(
    model: Model[Any],
    options: Options,
    mechanism: str | AnyMechanism,
    everything: bool,
    as_printed: bool,
    report: Progress,
) -> Plan:
    if isinstance(mechanism, str) and mechanism == "auto":
        mechanism = model.preferred(options)
    kind = model.kind
    forced = None if isinstance(mechanism, str) and mechanism == "auto" else named(mechanism, kind)
    offered = KINDS[kind].compared(as_printed)
    compared = offered if everything or forced is None else (forced,)
    if forced is not None and forced not in compared:  # of the other kind, or with settings of its own
        compared = (*(each for each in compared if each.name != forced.name), forced)
    model.refuse(options)
    candidates = _compared(model, options, compared, everything, report)
    if forced is not None:
        chosen = next(candidate for candidate in candidates if candidate.mechanism == forced.name)
        if not chosen.eligible:
            model.refuse_empty()
            others = (_candidate(each, model, options) for each in offered if each is not forced)
            names = [each.mechanism for each in others if each.eligible]
            raise UnsupportedModelError(
                f"mechanism={forced.name!r} cannot serve this problem",
                why=chosen.reason,
                remedy=f"mechanism={' or '.join(map(repr, names))}" if names else "see plan() for every reason",
            )
    else:
        model.refuse_auto(candidates)
        candidates = model.settled(options, compared, candidates, select_mechanism(candidates, options))
        best = select_mechanism(candidates, options)
        # Where nothing can read the data, what stands in the way is told: the public point has to be asked for, unless
        # it promises all that was asked for, whatever the data are.
        reads = any(candidate.reads for candidate in candidates) or options.feasibility == "strict"
        if best is None or not (reads or _perfect(best) or not model.reads):
            raise model.nothing_applies(options, candidates)
        chosen = best
    own = None if isinstance(mechanism, str) else forced  # with settings that its name does not tell
    first, help = _first(model, options, chosen), _help(model, options, candidates, chosen, compared)
    second = select_mechanism([each for each in candidates if each is not chosen], options)
    runner_up = second.mechanism if second is not None else ""
    bounds = model.lower_bounds(options)
    cells = _cells(model)
    return Plan(
        tuple(candidates), chosen, options, forced is not None, bounds, first, runner_up, own, help, cells,
        _anew(model, options, compared), model.protects,
    )  # fmt: skip


def _cells(model: Model[Any]) -> tuple[str, ...]:
    classification = getattr(model.data, "classification", None)
    return () if classification is None else classification.verdicts()


def _anew(model: Model[Any], options: Options, compared: Sequence[AnyMechanism]) -> Anew:
    """What finds out how all of them do at other epsilons."""
    return Anew(model, options, compared, lambda of, then, some: _compared(of, then, some, everything=True))


def _first(model: Model[Any], options: Options, chosen: Candidate) -> str:
    """What to know first: nothing where the chosen statement says something, else that it does not."""
    assert chosen.forecast is not None
    if not _silent(model, chosen):
        return model.unmet(options, chosen.forecast)
    if chosen.forecast.spends_nothing:
        return f"No guarantee beyond what is known without data: {chosen.mechanism} reads none and spends nothing"
    return f"No guarantee: {chosen.mechanism} promises no more than is known without data"


def _silent(model: Model[Any], chosen: Candidate) -> bool:
    return model.reads and chosen.forecast is not None and chosen.forecast.vacuous


def _help(
    model: Model[Any],
    options: Options,
    candidates: Sequence[Candidate],
    chosen: Candidate,
    compared: Sequence[AnyMechanism] = (),
) -> Callable[[], str]:
    """What finds out what would help where the chosen statement says nothing, which takes a forecast for each epsilon
    that is tried. Of mechanisms that read data, the best is asked, and the others where no epsilon helps it."""
    if not _silent(model, chosen):
        return nothing
    offered = {each.name: each for each in compared or KINDS[model.kind].mechanisms}
    told = chosen if chosen.reads else select_mechanism([each for each in candidates if each.reads], options)
    if told is None:
        return nothing
    # Those that a plan did not have to forecast are asked like the others.
    rest = [each for each in candidates if each is not told and each.eligible and each.mechanism in offered]
    rest = [each for each in rest if each.reads or each.forecast is None]
    asked = [(offered[each.mechanism], each) for each in (told, *rest)]
    return partial(_what_helps, model, options, asked)


def _what_helps(model: Model[Any], options: Options, asked: Sequence[tuple[AnyMechanism, Candidate]]) -> str:
    """What the first of ``asked`` that anything helps has to say, else what the first of all has."""
    texts = (_what_helps_one(model, options, *each) for each in asked)
    first = next(texts)
    found = first if NO_EPSILON not in first else next((text for text in texts if NO_EPSILON not in text), first)
    return f"; {found}"


def _what_helps_one(model: Model[Any], options: Options, algorithm: AnyMechanism, told: Candidate) -> str:
    forecast = told.forecast or _candidate(algorithm, model, options).forecast
    if forecast is None or forecast.spends_nothing:
        return NO_EPSILON

    def again(epsilon: float) -> Forecast | None:
        # Settings with the best statement: those that do best in simulations need not prove anything at any budget.
        then = replace(options, epsilon=epsilon, by_proof=True)
        if any(hoped.vacuous for hoped in _bounds(algorithm, model, then)):
            return None
        return model.capped(options, _candidate(algorithm, model, then)).forecast

    helps = what_would_help(told.mechanism, forecast, options.epsilon, again, model.halvings)
    condition = forecast.error.condition(options) if "says something" in helps else ""
    return f"{condition}{helps}"


def _perfect(candidate: Candidate) -> bool:
    """Whether a public point is as good as any answer could be."""
    return candidate.forecast is not None and not candidate.forecast.vacuous


def _verdict(mechanism: AnyMechanism, model: Model[Any], options: Options) -> Verdict:
    kind = mechanism.serves.model
    if kind in KINDS and kind is not model.kind:
        return Verdict(False, f"it serves {KINDS[kind].words}")
    refused = model.serves(mechanism, options)
    if not refused.eligible:
        return refused
    method: Any = mechanism  # the kind of model it serves was checked
    verdict: Verdict = method.eligible(model.data, options)
    return verdict


def _compared(
    model: Model[Any],
    options: Options,
    mechanisms: Sequence[AnyMechanism],
    everything: bool,
    report: Progress = no_progress,
) -> list[Candidate]:
    """What the mechanisms say of themselves, in their order. Those that promise most at best are asked first, and those
    that cannot come before the best so far are not asked; ``everything`` : all are."""
    verdict = cache(lambda place: _verdict(mechanisms[place], model, options))  # some take a while
    bounds = [
        iter(()) if everything else _bounds(each, model, options, partial(verdict, place))
        for place, each in enumerate(mechanisms)
    ]
    hopes = [next(each, None) for each in bounds]
    found: list[Candidate | None] = [None] * len(mechanisms)
    best, left = None, []

    def forecast(place: int) -> Candidate:
        report(f"plan: forecast of {mechanisms[place].name}", 0.0)
        return model.capped(options, _candidate(mechanisms[place], model, options, partial(verdict, place)))

    def order(hoped: Forecast | None) -> Order:
        return () if hoped is None else hoped.error.order(hoped, options)

    def behind(place: int) -> bool:
        """Whether what it hopes for, looked at more closely while that may help, comes after the best."""
        while best is not None and (hoped := hopes[place]) is not None:
            if _unread(hoped) and model.needs_data(best):
                hopes[place] = hoped = missing_something(hoped)
            if order(hoped) > order(best):
                return True
            hopes[place] = next(bounds[place], None)
        return False

    places = sorted(range(len(mechanisms)), key=lambda place: order(hopes[place]))
    for turn in range(len(places)):
        # Points that are found without data come after one that reads data: what it says may tell that they miss
        # something.
        if best is None and _unread(hopes[places[turn]]):
            places[turn : turn + 2] = reversed(places[turn : turn + 2])
        place = places[turn]
        if behind(place):
            left.append(place)
            continue
        found[place] = told = forecast(place)
        if told.forecast is not None:
            first = select_mechanism([each for each in found if each is not None], options)
            best = None if first is None else first.forecast
    # Where no statement says anything and none is predicted to help, or the best leaves rows out, simulations choose
    # among those that do.
    contested = best is not None and ((best.vacuous and not best.error.helps) or best.error.contested(best, options))
    # A public point is chosen only where something else could read the data, and plans tell what would help that;
    # nothing would, where it misses nothing.
    unread = best is None or (best.spends_nothing and not best.unbeatable)
    for place in left:
        each, hoped = mechanisms[place], hopes[place]
        assert hoped is not None
        if unread or (contested and hoped.error.rival):
            found[place] = forecast(place)
        else:
            why = "it would say nothing" if hoped.vacuous else f"its error is at least {number(hoped.error.rank)}"
            why = f"{BEHIND}: {why if hoped.proved else 'it would prove nothing'}"
            found[place] = Candidate(each.name, each.source, True, why, None, "behind", each.serves.cells)
    return [each for each in found if each is not None]


def _unread(hoped: Forecast | None) -> bool:
    return hoped is not None and hoped.spends_nothing


def _bounds(
    mechanism: AnyMechanism, model: Model[Any], options: Options, verdict: Callable[[], Verdict] | None = None
) -> Iterator[Forecast]:
    """The best that the mechanism could say, looked at ever more closely, at the end against all that is known without
    data; nothing where its forecast has to tell."""
    method: Any = mechanism
    try:
        eligible = _verdict(mechanism, model, options) if verdict is None else verdict()
        hoped = None
        for bound in method.at_least(model.data, options) if eligible.eligible else ():
            hoped = Candidate(mechanism.name, mechanism.source, True, "", bound.hoped(options))
            yield cast(Forecast, model.capped(options, hoped, quickly=True).forecast)
        if hoped is not None:
            yield cast(Forecast, model.capped(options, hoped).forecast)
    except Exception:  # what goes wrong here goes wrong in the forecast
        return


def _candidate(
    mechanism: AnyMechanism, model: Model[Any], options: Options, eligible: Callable[[], Verdict] | None = None
) -> Candidate:
    """What a mechanism says of itself. One that fails is a line in the plan: others may serve."""
    name = mechanism.name
    try:
        verdict, method = _verdict(mechanism, model, options) if eligible is None else eligible(), cast(Any, mechanism)
        forecast = method.forecast(model.data, options) if verdict.eligible else None
        if isinstance(forecast, Verdict):
            verdict, forecast = forecast, None
        if verdict.eligible and not isinstance(forecast, Forecast):
            raise TypeError(f"a forecast of type {type(forecast).__name__}")
        if forecast is not None and not isinstance(forecast.error, model.error):
            raise TypeError(f"a forecast of {type(forecast.error).__name__} where {model.error.__name__} is compared")
    except InfeasibleError:  # a fact about the public constraints, whoever finds it
        raise
    except Exception as error:
        return Candidate.failed(mechanism, error)
    if forecast is not None and not (0 <= forecast.epsilon <= options.epsilon and 0 <= forecast.delta <= options.delta):
        spends = f"epsilon {number(forecast.epsilon)}, delta {number(forecast.delta)}"
        why = f"failed: it would spend {spends}, and not what was given or less"
        return Candidate(name, mechanism.source, False, why, None, "failed", mechanism.serves.cells)
    cells = mechanism.serves.cells
    return Candidate(name, mechanism.source, verdict.eligible, verdict.reason, forecast, verdict.code, cells)
