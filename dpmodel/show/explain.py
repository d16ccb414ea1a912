"""Explanations: of a plan (what its statement means, why no other mechanism, what would do better) and of a problem.

What would do better is computed: the forecast of the chosen mechanism with more budget, less sensitivity, more records.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpmodel.contract import Candidate, Model
from dpmodel.errors import DPModelError, ImpossibilityError
from dpmodel.forecast import ExcessRisk, Forecast, Place, RowsMissed, ShareOfOptimum, Violation
from dpmodel.joint.model import JointModel
from dpmodel.programs.classifier import Classification
from dpmodel.programs.model import Program
from dpmodel.programs.remedies import statements
from dpmodel.programs.words import entries_moved, sentences
from dpmodel.regressions.model import AnyRegression
from dpmodel.release import Release
from dpmodel.released.model import Postprocessing
from dpmodel.solve.plan import error_words
from dpmodel.text import TextTable, escaped, number, plain_fields, screenful, wrapped

if TYPE_CHECKING:
    from dpmodel.solve.plan import Plan


_LOG = logging.getLogger("dpmodel")


def changes(plan: Plan) -> tuple[dict[str, Any], ...]:
    """``change`` in words and the ``error`` that the chosen mechanism forecasts then; changes that bring nothing, or of
    which nothing is known, are left out."""
    now = plan.chosen.forecast
    if plan._forecaster is None or now is None or not plan.chosen.reads:
        return ()
    before = error_words(now)
    out = []
    for change, then in _tried(plan):
        told = "" if then is None or then.vacuous else error_words(replace(then, error=_without_traces(then, now)))
        if told not in ("", before):
            out.append({"change": change, "error": told})
    return tuple(out)


def _without_traces(then: Forecast, now: Forecast) -> Any:
    """Its error with 0 for what is as good as gone."""
    if not isinstance(then.error, Violation) or not isinstance(now.error, Violation):
        return then.error
    objective, violation = (
        0.0 if new < _TRACE * old else new
        for new, old in ((then.error.objective, now.error.objective), (then.error.violation, now.error.violation))
    )
    return replace(then.error, objective=objective, violation=violation)


def _tried(plan: Plan) -> Iterator[tuple[str, Forecast | None]]:
    here, name = plan._forecaster, plan.chosen.mechanism
    assert here is not None

    def at(against: str, value: float, parameter: str = "") -> Forecast | None:
        return _forecast(lambda: here.at(against, value, parameter).candidate(name))

    epsilon = 2 * plan.options.epsilon
    yield f"twice the epsilon, {number(epsilon)}", at("epsilon", epsilon)
    if "records" in here.model.varies:
        yield "twice the records", at("records", 2 * here.here("records"))
    if "sensitivity" in here.model.varies:
        yield "half the sensitivity (as of means over twice the records)", at("sensitivity", 0.5)
        private = dict.fromkeys(cell.parameter for cell in here.cells)
        for part in private if len(private) > 1 else ():
            yield f"{part} public", at("sensitivity", _GONE, part)
    rows = _rows_that_halve(plan)
    if rows is not None:
        yield rows


_GONE = 1e-12  # of the declared sensitivity: as good as none
_TRACE = 1e-6  # of an error


def _rows_that_halve(plan: Plan) -> tuple[str, Forecast] | None:
    """How many constraints have to be left out for the others to be violated by half as much."""
    now, here = plan.chosen.forecast, plan._forecaster
    assert now is not None and here is not None
    if not isinstance(now.error, Violation) or not now.error.slack_rows > 0 or not now.error.violation > 0:
        return None
    rows = now.error.slack_rows
    while rows < now.error.private_rows:
        rows = min(2 * rows, now.error.private_rows)
        there = replace(here, options=replace(plan.options, slack_rows=rows, violation=None))
        then = _forecast(lambda there=there: there.candidate(plan.chosen.mechanism))
        if then is not None and isinstance(then.error, Violation) and then.error.violation <= now.error.violation / 2:
            return f"{then.error.slack_rows} constraints left out instead of {now.error.slack_rows}", then
    return None


def _forecast(found: Any) -> Forecast | None:
    try:
        candidate: Candidate = found()
    except (DPModelError, ArithmeticError) as error:
        _LOG.debug("no forecast of a change: %s", type(error).__name__)
        return None
    return candidate.forecast


# ------------------------------------------------------------------------------------------------------------ a plan
_VERDICTS = ("lost", "does not apply", "failed")


@dataclass(frozen=True)
class PlanExplained:
    """``plan.explain()``: prints, and is plain data. What to change is looked for when it is first read."""

    plan: Plan

    @property
    def statement(self) -> str:
        """The chosen mechanism and what it says."""
        forecast = self.plan.chosen.forecast
        assert forecast is not None
        return f"{self.plan.chosen.mechanism}: {forecast.statement}"

    @property
    def meaning(self) -> tuple[str, ...]:
        """What the statement means, sentence by sentence."""
        forecast = self.plan.chosen.forecast
        assert forecast is not None
        return tuple(_meaning(forecast))

    @property
    def others(self) -> tuple[dict[str, Any], ...]:
        """The other mechanisms: how they compare, or why they do not apply."""
        winner = self.plan.chosen.forecast
        assert winner is not None
        return tuple(
            {"mechanism": each.mechanism, "verdict": verdict, "why": why}
            for each in self.plan.candidates
            if each is not self.plan.chosen
            for verdict, why in [_verdict(each, winner)]
        )

    @cached_property
    def changes(self) -> tuple[dict[str, Any], ...]:
        """What would do better, with the error that the chosen mechanism forecasts then."""
        return changes(self.plan)

    def __getstate__(self) -> dict[str, Any]:
        """What would do better is looked for now: a copy has nothing to look for it in."""
        return {**self.__dict__, "changes": self.changes}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "answer": self.plan.answer,
            "statement": self.statement,
            "meaning": list(self.meaning),
            "others": list(self.others),
            "changes": list(self.changes),
        }

    def _tables(self) -> Iterator[TextTable]:
        forecast = self.plan.chosen.forecast
        assert forecast is not None
        if self.changes:
            rows = [("as it is", error_words(forecast)), *((c["change"], c["error"]) for c in self.changes)]
            yield TextTable(("change", "error then"), rows, "What would do better")
        alike: dict[tuple[str, str], list[str]] = {}
        for row in sorted(self.others, key=lambda row: _VERDICTS.index(row["verdict"])):
            alike.setdefault((row["verdict"], row["why"]), []).append(row["mechanism"])
        if alike:
            reasons = [("\n".join(names), *why) for why, names in alike.items()]
            yield TextTable(("mechanism", "verdict", "why"), reasons, "Why not another mechanism")

    def __str__(self) -> str:
        parts = [wrapped(self.plan.answer)] if self.plan.answer else []
        parts.append("\n".join([wrapped(f"Chosen: {self.statement}"), *(wrapped(line, "  ") for line in self.meaning)]))
        return screenful("\n\n".join([*parts, *map(str, self._tables())]), "plan.explain().to_dict(), plan.why(name)")

    def __repr__(self) -> str:
        return f"<PlanExplained: {self.plan.chosen.mechanism}>"

    def _repr_html_(self) -> str:
        rows = [(line,) for line in (self.plan.answer, *self.meaning) if line]
        parts = [TextTable(("",), rows, f"Chosen: {self.statement}"), *self._tables()]
        return "".join(each._repr_html_() for each in parts)


def _verdict(candidate: Candidate, winner: Forecast) -> tuple[str, str]:
    if candidate.forecast is not None:
        if candidate.forecast.vacuous and not winner.vacuous:
            return "lost", "it says no more than is known without data"
        return "lost", f"{error_words(candidate.forecast)}; chosen: {error_words(winner)}"
    if candidate.eligible:
        return "lost", candidate.reason
    return ("failed" if candidate.code == "failed" else "does not apply"), candidate.reason


def _meaning(forecast: Forecast) -> Iterator[str]:
    error = forecast.error
    joint = isinstance(error, ShareOfOptimum)
    if forecast.spends_nothing and joint:
        yield "A share depends on its own record alone: others learn nothing, and it costs no privacy."
    elif forecast.spends_nothing:
        yield "It reads no private data, so it costs no privacy, and its answer is the same for all data."
    else:
        times = number(math.exp(min(forecast.epsilon, 700.0)))
        slack = f", but for a probability of {number(forecast.delta)}" if forecast.delta > 0 else ""
        yield (
            f"Privacy: with one record's data any outcome{' for all others' * joint} is at most {times} times (e to "
            f"the epsilon) as likely as with any other data of it{slack}."
        )
    if forecast.vacuous:
        yield "Accuracy: the statement holds, but a public point keeps it too: data add nothing that is proved."
    elif forecast.proved and not isinstance(error, Place):
        sure = "" if forecast.spends_nothing else f" in all but {number(100 * forecast.beta)} of 100 runs"
        yield f"Accuracy: proved; it holds{sure} whatever the data are within their declarations."
    elif not isinstance(error, Place):
        yield "Accuracy: predicted, on data drawn from the declarations; on other data it may be better or worse."
    yield from _quantities(error)


def _quantities(error: Any) -> Iterator[str]:
    if isinstance(error, Violation):
        if not math.isnan(error.objective):
            yield "objective within: how much worse than the true optimum the released point may be, in its units."
        if not math.isnan(error.violation) and error.violation > 0:
            yield "violation within: by how much the released point may miss a private constraint, in its units."
        if error.slack_rows:
            yield f"Up to {error.slack_rows} private constraints are left out of it: they may be missed by any amount."
        if not math.isnan(error.tightening):
            yield "tightened by: how much harder constraints were made so that all true ones hold."
    elif isinstance(error, ExcessRisk):
        yield "excess risk: how much more the objective is at the released coefficients than at the best ones."
    elif isinstance(error, ShareOfOptimum):
        yield "share of optimum: what shares are worth, over the most that they could be; a prediction, and no bound."
        yield "capacity left free: what is not handed out, so that noise overloads nothing."
    elif isinstance(error, RowsMissed):
        yield "rows missed: records whose row the answer does not satisfy; below the records needed nothing is said."
    elif isinstance(error, Place):
        yield "All solvers reach the same optimum of published numbers; the first that serves is taken."


# --------------------------------------------------------------------------------------------------------- a problem
_PLANNED = "explain(epsilon, delta) tells what is chosen then, why, and what would do better."
_PLANNED_JOINTLY = 'explain(epsilon, delta, release="joint") tells what is chosen then, why, and what would do better.'
_WORDS = {"objective": "c", "offset": "constant term", "scalar": "b", "matrix": "A"}


@dataclass(frozen=True)
class Explanation:
    """``problem.explain()``: prints, and is plain data.

    ``reached`` : entries of the standard form that records reach. ``sentences`` : cell and theorem in plain words.
    ``choice`` : of a plan, what its statement means, why the others lost, what to change (``Plan.explain``); or None,
    and ``unplanned`` says why.
    """

    size: str
    parameters: tuple[dict[str, Any], ...]
    sensitivities: tuple[dict[str, Any], ...]
    classification: Classification
    advice: tuple[str, ...]
    release: str
    reached: tuple[dict[str, Any], ...] = ()
    sentences: tuple[str, ...] = ()
    choice: Any = None
    unplanned: str = _PLANNED

    def to_dict(self) -> dict[str, Any]:
        told = plain_fields(replace(self, choice=None))
        return {**told, "choice": None if self.choice is None else self.choice.to_dict()}

    def _parts(self) -> Iterator[Any]:
        """Paragraphs, each a list of lines, and what prints and shows by itself, from top to bottom."""
        yield [self.size]
        yield self.classification
        yield list(self.sentences)
        yield [f"advice: {line}" for line in self.advice]
        yield [self.unplanned] if self.choice is None else self.choice
        yield [self.release]
        title = "Private parameters" if self.parameters and "name" in self.parameters[0] else "Published numbers"
        titled = {
            title: self.parameters,
            "What one record does to the standard form": self.sensitivities,
            "Where records reach it": self.reached,
        }
        for name, rows in titled.items():
            if rows:
                yield TextTable(tuple(rows[0]), [tuple(map(str, row.values())) for row in rows], name, width=120)

    def __str__(self) -> str:
        parts = ("\n".join(map(wrapped, each)) if isinstance(each, list) else str(each) for each in self._parts())
        return screenful("\n\n".join(filter(None, parts)), "problem.explain().to_dict(), print(problem.release)")

    def __repr__(self) -> str:
        return f"<Explanation: {self.size}>"

    def _repr_html_(self) -> str:
        parts = (
            "".join(f"<p>{escaped(line)}</p>" for line in each) if isinstance(each, list) else each._repr_html_()
            for each in self._parts()
        )
        return "".join(parts)


def refusal(error: DPModelError) -> str:
    """Why there is no plan to explain, in a sentence."""
    if isinstance(error, ImpossibilityError):
        least = number(error.lower_bound)
        told = f"no plan: by {error.theorem} no private algorithm keeps the error below {least} on all such problems"
        return told + "".join(f"; {each.statement}" for each in error.remedies if each.name == "joint")
    return f"no plan: {error.what}: {error.why}; try {error.remedy}"


def explain(problem: Any, family: type[Model], release: Release | None) -> Explanation:
    """What a problem of ``family`` is; public facts and the last release only."""
    families: dict[type, Any] = {
        Program: _program,
        AnyRegression: _regression,
        Postprocessing: _postprocessing,
        JointModel: _shares,
    }
    found: Explanation = families[family](problem, release)
    return found


def _program(problem: Any, release: Release | None) -> Explanation:
    """Its standard form, of which no public parameter needs a value."""
    lowered, footprint, classification, few = Program.recognise(problem)
    affine = lowered.affine
    kinds: dict[str, int] = {}
    for cone in affine.cones:
        kinds[cone.kind] = kinds.get(cone.kind, 0) + cone.size
    rows = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no"
    entries = affine.public_matrix.nnz + affine.private_matrix.nnz
    size = f"Standard form: {affine.variables} variables, {rows} rows, {entries} coefficients in A."
    private = [block.parameter for block in affine.private_blocks]
    if few is not None:
        size += f" These are of {few.few} of the {few.count} records, which own the same rows each."
        private = [few.originals[id(parameter)] for parameter in private]
    parameters = [_declared(parameter) for parameter in private]
    sensitivities = [
        {
            "part": _WORDS[part],
            **{name: number(getattr(sensitivity, name)) for name in ("l1", "l2", "linf")},
            "bounds are": "attained" if sensitivity.exact else "upper bounds",
        }
        for part, sensitivity in footprint.parts.items()
        if sensitivity.linf > 0
    ]
    advice = []
    for cell in classification.cells:
        if not cell.solvable or cell.relaxed:
            advice += [f"{cell.parameter}: {statement}" for statement in statements(cell.part)]
    unique, told = tuple(dict.fromkeys(advice)), tuple(sensitivities)
    return Explanation(
        size, tuple(parameters), told, classification, unique, _told(release), entries_moved(affine),
        sentences(classification),
    )  # fmt: skip


def _told(release: Release | None) -> str:
    if release is None:
        return "Not solved yet."
    return f"{release.title}: {release.accuracy}; print(problem.release) has its values"


def _declared(p: Any) -> dict[str, Any]:
    whose = p.records.people.name or p.records.name
    return {
        "name": p.name(),
        "shape": str(p.shape),
        "a record": f"{'' if whose is None else f'of {whose} '}({p.records.neighbors}) owns: {p.unit}",
        **{name: number(getattr(p, name)) for name in ("l1", "l2", "linf")},
        "value": "sealed" if p.has_value else "none yet",
    }


def _regression(problem: Any, release: Release | None) -> Explanation:
    """What its loss, rows and set are."""
    model = AnyRegression.of(problem)
    parameters = tuple(_declared(parameter) for parameter in model.private)
    sensitivities = []
    for cell in model.classification.cells[:1]:  # the same for all: one record moves them together
        bounds = {key: number(value) for key, value in cell.sensitivity.items()}
        sensitivities.append({"part": "gradient of the objective, per unit of the loss's derivative", **bounds})
    parts = model.parts
    steepest = max(part.derivative_bound for part in parts)
    derivative = number(steepest) if math.isfinite(steepest) else "no bound"
    outputs = f" of {len(parts)} outputs" if len(parts) > 1 else ""
    sets = " and ".join(dict.fromkeys(part.domain.kind for part in parts))
    size = (
        f"Regression{outputs}: {parts[0].loss.name.replace('_', ' ')} loss, {model.count} rows, {model.size} "
        f"coefficients, {sets} set; derivative of a record's loss: {derivative}."
    )
    told, classification = tuple(sensitivities), model.classification
    said = sentences(classification)
    return Explanation(size, parameters, told, classification, (), _told(release), sentences=said)


def _shares(problem: Any, release: Release | None) -> Explanation:
    """One person's problem, and what all share."""
    model = JointModel.of(problem)
    form, given = model.form, model.given
    own = f"{len(form.personal) + len(form.caps)} kinds of limits of their own"
    use = "no bound" if math.isinf(model.largest_use) else number(model.largest_use)
    size = (
        f"{model.count} people with a share of {form.size} numbers each and {own}; they share {len(model.labels)} "
        f"capacities. One person's use, by what is declared: {use} (2-norm)."
    )
    parameters = tuple(_declared(parameter) for parameter in (*given.private, *given.limits))
    return Explanation(size, parameters, (), model.classification, (), _told(release), unplanned=_PLANNED_JOINTLY)


def _postprocessing(problem: Any, release: Release | None) -> Explanation:
    """How large it is, and which published numbers it speaks of."""
    model = Postprocessing.of(problem)
    size = "Likelihood of published numbers, solved as CVXPY solves it."
    if model.form is not None:
        form = model.form
        rows = form.equality.shape[0] + form.inequality.shape[0]
        size = f"Likelihood of {form.value.size} published numbers: {form.size} variables, {rows} rows."
    parameters = tuple(
        {
            "published": noisy.name or f"number {place + 1}",
            "shape": str(noisy.shape),
            "distribution": noisy.noise.name,
            "largest scale": number(float(noisy.scale.max())),
            "its cost": "not declared" if noisy.epsilon is None else f"epsilon {number(noisy.epsilon)}",
        }
        for place, noisy in enumerate(model.measurements)
    )
    return Explanation(size, parameters, (), model.classification, (), _told(release))
