"""Compare the mechanisms that apply by their forecast error and choose one; public facts only, nothing spent."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from dpmodel.contract import ARITHMETIC, Candidate, Model, Options, Progress, Verdict, no_progress
from dpmodel.errors import DPModelError, InfeasibleError, SpecificationError, UnsupportedModelError
from dpmodel.forecast import ExcessRisk, Forecast
from dpmodel.memo import key_of
from dpmodel.simulate import simulate
from dpmodel.solve.joint_remedy import joint_first
from dpmodel.solve.plan import Plan
from dpmodel.solve.registry import KINDS, AnyMechanism, load_entry_points, named
from dpmodel.text import number

_LOG = logging.getLogger("dpmodel")

Compared = Literal["needed", "all"]
SMALLEST_DELTA = 1e-12  # beyond all doubt: one in the number of all people, over a hundred
BEHIND = "not forecast, because it cannot win"


def select_mechanism(candidates: Sequence[Candidate], options: Options | None = None) -> Candidate | None:
    """The eligible candidate with the least forecast error; the first in the registry among equals.

    Statements that say nothing come last, and predictions come after theorems. Programs: with ``slack_rows`` asked
    for, mechanisms that leave out no more compare by alpha; with ``alpha`` asked for, those that keep it compare by the
    constraints left out; otherwise all compare by ``Violation.rank``. Where one that leaves rows out is best by that,
    those that do compare by how they do on synthetic databases (``programs.simulation``). Regressions compare by
    ``ExcessRisk.predicted``, exact systems by the rows that the answer misses, points in hulls by the records needed.
    Solvers of post-processing reach the same optimum, and the first that serves is taken.

    Who usually wins stands in docs/reference/usual-winners.md. The papers' own constants (``Serves.as_printed``) lose,
    and are compared where ``plan(as_printed=True)`` asks.
    """
    served = [c for c in candidates if c.eligible and c.forecast is not None]
    forecasts = [c.forecast for c in served if c.forecast is not None]
    if not forecasts:
        return None
    best = type(forecasts[0].error).best(forecasts, options)
    return next(c for c in served if c.forecast is best)


def make_plan(
    model: Model,
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
    Errors: ImpossibilityError, when a cell of the problem is impossible (Theorems 36 to 38); SpecificationError,
    UnsupportedModelError, for an unknown name; when the forced mechanism, or none at all, is eligible; when planning
    itself fails.
    """
    if compare not in get_args(Compared):
        raise SpecificationError(
            f"compare={compare!r}", why="a plan forecasts what can win, or all", remedy='compare="needed" or "all"'
        )
    everything = compare == "all" or as_printed
    load_entry_points()
    build = partial(_plan, model, options, mechanism, everything, as_printed, report)
    try:
        if not isinstance(mechanism, str):  # settings of its own need not be part of what makes it equal to another
            return build()
        offered = tuple(map(id, KINDS[model.kind].mechanisms))  # more may be registered later
        key = key_of(("plan", type(model), options, mechanism, everything, as_printed, offered))
        plan: Plan = model.cached(key, build)
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


def _plan(
    model: Model,
    options: Options,
    mechanism: str | AnyMechanism,
    everything: bool,
    as_printed: bool,
    report: Progress,
) -> Plan:
    kind = model.kind
    auto = isinstance(mechanism, str) and mechanism == "auto"
    if auto and (options.solver is not None or options.solver_options):
        mechanism = next((each.name for each in KINDS[kind].mechanisms if each.serves.any_solver), "auto")
    forced = None if isinstance(mechanism, str) and mechanism == "auto" else named(mechanism, kind)
    offered = KINDS[kind].compared(as_printed)
    compared = offered if everything or forced is None else (forced,)
    if forced is not None and forced not in compared:  # of the other kind, or with settings of its own
        compared = (*(each for each in compared if each.name != forced.name), forced)
    with joint_first(model, options):
        model.refuse(options)
    candidates = _compared(model, options, compared, everything, report)
    if forced is not None:
        chosen = next(candidate for candidate in candidates if candidate.mechanism == forced.name)
        if not chosen.eligible:
            model.refuse_empty()
            others = (_candidate(each, model, options) for each in offered if each is not forced)
            names = [each.mechanism for each in others if each.eligible]
            remedy = f"mechanism={' or '.join(map(repr, names))}" if names else "see plan() for every reason"
            if options.delta == 0 and _candidate(forced, model, replace(options, delta=SMALLEST_DELTA)).eligible:
                remedy = f"delta=1e-6, say, with which it serves; or {remedy}"
            what = f"mechanism={forced.name!r} cannot serve this problem"
            raise UnsupportedModelError(what, why=chosen.reason, remedy=remedy)
    elif options.gaussian and not any(candidate.reads for candidate in candidates):
        return _plan(model, replace(options, gaussian=False), mechanism, everything, as_printed, report)
    else:
        model.refuse_auto(candidates)
        candidates = model.settled(options, compared, candidates, select_mechanism(candidates, options))
        best = select_mechanism(candidates, options)
        # Where nothing can read the data, what stands in the way is told: the public point has to be asked for, unless
        # it promises all that was asked for, whatever the data are.
        reads = any(candidate.reads for candidate in candidates) or options.feasibility == "strict" or not model.reads
        if best is None or not (reads or (best.forecast is not None and not best.forecast.vacuous)):
            raise model.nothing_applies(options, candidates)
        chosen = best
    treated = options if chosen.forecast is None else model.treated(options, chosen.forecast)
    if treated is not options:
        algorithm = next(each for each in compared if each.name == chosen.mechanism)
        better = model.capped(treated, _candidate(algorithm, model, treated))
        if better.forecast is not None:
            candidates = [better if each is chosen else each for each in candidates]
            chosen, options = better, treated
    second = select_mechanism([each for each in candidates if each is not chosen], options)
    classification = getattr(model, "classification", None)
    return Plan(
        tuple(candidates),
        chosen,
        options,
        model.lower_bounds(options),
        second.mechanism if second is not None else "",
        model.protects,
        forced is not None,
        _first_words(model, options, chosen),
        () if classification is None else classification.verdicts(),
        None if isinstance(mechanism, str) else forced,  # with settings that its name does not tell
        Forecaster(model, options, compared),
    )


def _first_words(model: Model, options: Options, chosen: Candidate) -> str:
    """What to know first: nothing where the chosen statement says something, else that it does not."""
    assert chosen.forecast is not None
    if not (model.reads and chosen.forecast.vacuous):
        return model.unmet(options, chosen.forecast)
    if chosen.forecast.spends_nothing:
        return f"No guarantee beyond what is known without data: {chosen.mechanism} reads none and spends nothing"
    return f"No guarantee: {chosen.mechanism} promises no more than is known without data"


@dataclass(frozen=True)
class Forecaster:
    """What ``mechanisms`` forecast for ``model`` at ``options``, and would elsewhere. It holds the model, and with it
    the way to private data."""

    model: Model
    options: Options
    mechanisms: Sequence[AnyMechanism]

    @property
    def cells(self) -> Sequence[Any]:
        """Of Table 1; families without them have none."""
        return getattr(getattr(self.model, "classification", None), "cells", ())

    def here(self, against: str) -> float:
        """Where it stands on an axis: its epsilon, its number of records, 1 for the sensitivity."""
        model: Any = self.model
        return {"epsilon": self.options.epsilon, "sensitivity": 1.0}.get(against) or float(model.count)

    def at(self, against: str, value: float, parameter: str = "") -> Forecaster:
        """At another value on that axis; the sensitivity of one ``parameter`` or of all."""
        if against == "epsilon":
            return replace(self, options=replace(self.options, epsilon=value))
        return replace(self, model=self.model.varied(against, value / self.here(against), parameter))

    def candidates(self) -> list[Candidate]:
        """What all mechanisms say of themselves."""
        return _compared(self.model, self.options, self.mechanisms, everything=True)

    def candidate(self, name: str) -> Candidate:
        """What one of them says of itself."""
        return self.model.capped(self.options, _candidate(self._named(name), self.model, self.options))

    def _named(self, name: str) -> AnyMechanism:
        return next(each for each in self.mechanisms if each.name == name)

    def with_delta(self, now: Sequence[Candidate]) -> Candidate | None:
        """Of a regression at delta 0 the best of what does not serve it there, at the smallest delta."""
        if self.options.delta > 0 or not any(c.forecast and isinstance(c.forecast.error, ExcessRisk) for c in now):
            return None
        there = replace(self, options=replace(self.options, delta=SMALLEST_DELTA))
        offered = {each.name for each in self.mechanisms}
        refused = [c.mechanism for c in now if not c.eligible and c.code == "" and c.mechanism in offered]
        found = [there.candidate(name) for name in refused]
        ranked = [(c.forecast.error.rank, c.mechanism, c) for c in found if c.forecast is not None]
        return min(ranked)[2] if ranked else None

    def simulate(self, name: str, runs: int) -> Mapping[str, Sequence[float]]:
        """What one of them errs by on synthetic databases."""
        return simulate(self._named(name), self.model, self.options, runs)

    def without_answer(self, plan: Plan) -> list[Candidate]:
        """Where the chosen statement of ``plan`` says nothing: those of which it may be found out when they would. Of
        mechanisms that read data the best comes first; those that a plan did not have to forecast are asked like the
        others."""
        assert plan.chosen.forecast is not None
        readers = [each for each in plan.candidates if each.reads]
        best = plan.chosen if plan.chosen.reads else select_mechanism(readers, self.options)
        if best is None or not (self.model.reads and plan.chosen.forecast.vacuous):
            return []
        offered = {each.name for each in self.mechanisms}
        others = [each for each in plan.candidates if each is not best and each.eligible and each.mechanism in offered]
        return [best, *(each for each in others if each.reads or each.forecast is None)]

    def help(self, plan: Plan) -> str:
        """What would make the chosen statement say something, which takes a forecast for each epsilon that is tried."""
        asked = self.without_answer(plan)
        return _what_helps(self, asked) if asked else ""

    def best_statement(self, name: str, epsilon: float) -> Forecast | None:
        """At another epsilon, with the settings whose statement is best: those that do best in simulations need not
        prove anything at any budget."""
        options = replace(self.options, epsilon=epsilon, by_proof=epsilon != self.options.epsilon)
        if epsilon != self.options.epsilon and _bound(self._named(name), self.model, options) == math.inf:
            return None
        return replace(self, options=options).candidate(name).forecast


def _compared(
    model: Model,
    options: Options,
    mechanisms: Sequence[AnyMechanism],
    everything: bool,
    report: Progress = no_progress,
) -> list[Candidate]:
    """What the mechanisms say of themselves, in their order; ``everything`` : all of them are asked.

    Those with the least bound come first, and what reads no data after what does: a statement about data may
    tell that such a point misses something. One whose bound comes after the best so far cannot
    win and is not asked. Where simulations will choose (the best leaves rows out, or no statement says anything and
    none is predicted to help), or the public point is best, and plans tell what would help the others, those that were
    left are asked too.
    """
    if len(mechanisms) == 1:
        report(f"plan: forecast of {mechanisms[0].name}", 0.0)
        return [model.capped(options, _candidate(mechanisms[0], model, options))]
    bounds = {} if everything else {each.name: _bound(each, model, options) for each in mechanisms}
    turns = sorted(mechanisms, key=lambda each: (bounds.get(each.name) or 0.0, each.serves.reads_nothing))
    found: dict[str, Candidate] = {}
    best: Forecast | None = None
    left = []
    for each in turns:
        why = "" if best is None else _behind(each, bounds.get(each.name), best, model, options)
        if why:
            left.append((each, why))
            continue
        report(f"plan: forecast of {each.name}", 0.0)
        found[each.name] = model.capped(options, _candidate(each, model, options))
        first = select_mechanism(list(found.values()), options)
        best = None if first is None else first.forecast
    contested = best is not None and ((best.vacuous and not best.error.helps) or best.error.contested(best, options))
    unread = best is not None and best.spends_nothing and not best.unbeatable
    for each, why in left:
        if unread or (contested and each.serves.leaves_out):
            report(f"plan: forecast of {each.name}", 0.0)
            found[each.name] = model.capped(options, _candidate(each, model, options))
        else:
            source, cells = each.source, each.serves.cells
            found[each.name] = Candidate(each.name, source, True, f"{BEHIND}: {why}", None, "behind", cells)
    return [found[each.name] for each in mechanisms]


def _behind(mechanism: AnyMechanism, bound: float | None, best: Forecast, model: Model, options: Options) -> str:
    """Why the mechanism cannot come before ``best``, "" where it can or where nothing is known of it."""
    if bound is None:
        return ""
    if mechanism.serves.reads_nothing and model.needs_data(best):
        return "it would say nothing"
    if bound == math.inf and (not best.vacuous or best.error.helps):
        return "it would say nothing"
    if bound > 0 and best.error.beats(bound, best, options):
        return f"its error is at least {number(bound)}"
    return ""


def _bound(mechanism: AnyMechanism, model: Model, options: Options) -> float | None:
    """What the mechanism says that its error cannot be less than; None where it does not apply."""
    method: Any = mechanism  # the kind of model it serves was checked
    try:
        return float(method.bound(model, options)) if _verdict(mechanism, model, options).eligible else None
    except Exception:  # what goes wrong here goes wrong in the forecast
        return None


def _verdict(mechanism: AnyMechanism, model: Model, options: Options) -> Verdict:
    kind = mechanism.serves.model
    if kind in KINDS and kind is not model.kind:
        return Verdict(False, f"it serves {KINDS[kind].words}")
    refused = model.serves(mechanism, options)
    if not refused.eligible:
        return refused
    method: Any = mechanism
    verdict: Verdict = method.eligible(model, options)
    return verdict


def _candidate(mechanism: AnyMechanism, model: Model, options: Options) -> Candidate:
    """What a mechanism says of itself. One that fails is a line in the plan: others may serve."""
    name = mechanism.name
    try:
        method: Any = mechanism
        verdict = _verdict(mechanism, model, options)
        forecast = method.forecast(model, options) if verdict.eligible else None
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
    if options.gaussian and forecast is not None and not (forecast.spends_nothing or forecast.cost.law == "Gaussian"):
        verdict, forecast = Verdict(False, 'the budget has composition="gaussian", and its noise is another'), None
    cells = mechanism.serves.cells
    return Candidate(name, mechanism.source, verdict.eligible, verdict.reason, forecast, verdict.code, cells)


# ---------------------------------------------------------- what would make a statement say something
# Epsilons are tried up to this many times the one asked for; then the least is found to a few percent.
_FACTOR, _STEPS, _HALVINGS = 4.0, 6, 4
_NO_EPSILON = "no epsilon up to"


def _what_helps(forecaster: Forecaster, asked: Sequence[Candidate]) -> str:
    """What would make the statement say something, for the first of ``asked`` that anything helps, else for the
    first."""

    def one(each: Candidate) -> str:
        again = partial(forecaster.best_statement, each.mechanism)
        options = forecaster.options
        now = again(options.epsilon) if each.forecast is None else each.forecast
        if now is None or now.spends_nothing:
            return _NO_EPSILON
        helps = what_would_help(each.mechanism, now, options.epsilon, again, forecaster.model.halvings)
        return f"{now.error.condition(options) if 'says something' in helps else ''}{helps}"

    texts = map(one, asked)
    first = next(texts)
    found = first if _NO_EPSILON not in first else next((text for text in texts if _NO_EPSILON not in text), first)
    return f"; {found}"


def what_would_help(
    name: str, now: Forecast, epsilon: float, again: Callable[[float], Forecast | None], halvings: int = _HALVINGS
) -> str:
    """From which epsilon on the statement of mechanism ``name`` says something, found by forecasting it again.

    ``now`` : its forecast at ``epsilon``; ``again`` : its forecast at another one, None where it is not eligible;
    ``halvings`` : how often the interval in which the least epsilon lies is halved (0 where forecasts take long).
    """
    if not now.error.bounded:
        return "a public bound on the variables (bounds=, constraints) would help: without one nothing can be stated"
    records = now.error.records_needed()
    enough, found = _least(epsilon, again, halvings)
    if found is None:
        if records:
            return f"{records} would help"
        return f"{_NO_EPSILON} {number(epsilon * _FACTOR**_STEPS)} changes that"
    out = f"from epsilon {number(enough)} on {name} says something"
    if records:
        return f"{out}; at this one with {records}"
    ratio = _noise_ratio(now, found)
    if math.isfinite(ratio) and ratio > 1:
        times = number(float(f"{ratio:.2g}"))
        out += f"; at epsilon {number(epsilon)} it would if one record moved the private numbers {times} times less "
        out += f"(as in means over {times} times more records)"
    return out


def _least(epsilon: float, again: Callable[[float], Forecast | None], halvings: int) -> tuple[float, Forecast | None]:
    """The least epsilon (to a few percent, upper end) at which the statement says something, and the forecast there."""

    def telling(at: float) -> Forecast | None:
        try:
            forecast = again(at)
        except (DPModelError, ArithmeticError) as error:
            _LOG.debug("no forecast at epsilon %g: %s", at, type(error).__name__)
            return None
        return forecast if forecast is not None and not forecast.vacuous else None

    low, high, found = epsilon, epsilon, None
    for _ in range(_STEPS):
        low, high = high, high * _FACTOR
        found = telling(high)
        if found is not None:
            break
    if found is None:
        return math.inf, None
    for _ in range(halvings):
        middle = float(f"{math.sqrt(low * high):.2g}")
        if not low < middle < high:
            break
        better = telling(middle)
        low, high, found = (low, middle, better) if better is not None else (middle, high, found)
    rounded = math.ceil(high * 10 ** (1 - math.floor(math.log10(high)))) / 10 ** (1 - math.floor(math.log10(high)))
    return rounded, found


def _noise_ratio(now: Forecast, then: Forecast) -> float:
    """How many times smaller the noise is in ``then``: as much less may one record move the numbers instead."""
    before, after = (_noises(forecast.noise) for forecast in (now, then))
    ratios = [before[name] / after[name] for name in before if after.get(name, 0.0) > 0]
    return max(ratios, default=math.nan)


def _noises(noise: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(part["largest_noise"])
        for name, part in noise.items()
        if isinstance(part, Mapping) and "largest_noise" in part
    }
