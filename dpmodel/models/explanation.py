"""What a problem is, in words: its private parameters, what one record changes, its cells, and what to do."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.affine_map import AffineMap
from dpmodel.compile.footprint import Footprint
from dpmodel.compile.rows import FewRows
from dpmodel.contract import STOPPED, Outcome
from dpmodel.errors import DPModelError, ImpossibilityError
from dpmodel.forecast import Forecast, Violation, says_nothing
from dpmodel.marks.private import Private
from dpmodel.numerics.solvers import SOLVER_ERROR
from dpmodel.programs.classifier import Classification, record_words
from dpmodel.programs.theorems import remedies
from dpmodel.programs.words import reached, sentences
from dpmodel.regressions.model import AnyRegression, PrivateOutputs
from dpmodel.release.plain import plain_fields
from dpmodel.release.release import Accuracy, Guarantee, Release
from dpmodel.released.model import Postprocessing
from dpmodel.text import escaped, html_table, number, screenful, table, wrapped

_PLANNED = "explain(epsilon, delta) tells what is chosen then, why, and what would do better."
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

    def _tables(self) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        title = "Private parameters" if self.parameters and "name" in self.parameters[0] else "Published numbers"
        titled = {
            title: self.parameters,
            "What one record does to the standard form": self.sensitivities,
            "Where records reach it": self.reached,
        }
        return [
            (name, tuple(rows[0]), [tuple(str(v) for v in row.values()) for row in rows])
            for name, rows in titled.items()
            if rows
        ]

    def __str__(self) -> str:
        parts = [wrapped(self.size)]
        parts.append(str(self.classification))
        parts += ["\n".join(wrapped(line) for line in self.sentences)] if self.sentences else []
        parts += ["\n".join(wrapped(f"advice: {line}") for line in self.advice)] if self.advice else []
        parts.append(wrapped(self.unplanned) if self.choice is None else str(self.choice))
        parts.append(wrapped(self.release))
        parts += [table(columns, rows, title=title, width=120) for title, columns, rows in self._tables()]
        return screenful("\n\n".join(parts), "problem.explain().to_dict(), print(problem.release)")

    def __repr__(self) -> str:
        return f"<Explanation: {self.size}>"

    def _repr_html_(self) -> str:
        parts = [f"<p>{escaped(self.size)}</p>"]
        parts += [html_table(columns, rows, title=title) for title, columns, rows in self._tables()]
        parts.append(self.classification._repr_html_())
        parts += [f"<p>{escaped(line)}</p>" for line in self.sentences]
        parts += [f"<p>advice: {escaped(line)}</p>" for line in self.advice]
        parts.append(f"<p>{escaped(self.unplanned)}</p>" if self.choice is None else self.choice._repr_html_())
        parts.append(f"<p>{escaped(self.release)}</p>")
        return "".join(parts)


def refusal(error: DPModelError) -> str:
    """Why there is no plan to explain, in a sentence."""
    if isinstance(error, ImpossibilityError):
        least = number(error.lower_bound)
        return f"no plan: by {error.theorem} no private algorithm keeps the error below {least} on all such problems"
    return f"no plan: {error.what}: {error.why}; try {error.remedy}"


def explain(
    affine: AffineMap,
    footprint: Footprint,
    classification: Classification,
    release: Release | None,
    few: FewRows | None = None,
) -> Explanation:
    """Collect the explanation; public facts and the last release only. ``few`` : of which records the form has rows."""
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
            # A row already owns its constraint: that advice was taken.
            advice += [
                f"{cell.parameter}: {r}" for r in remedies(cell.part) if not (cell.relaxed and "own one row" in r)
            ]
    unique, told = tuple(dict.fromkeys(advice)), tuple(sensitivities)
    return Explanation(
        size, tuple(parameters), told, classification, unique, _told(release), reached(affine),
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


def explain_regression(model: AnyRegression, release: Release | None) -> Explanation:
    """The same for a regression: what its loss, rows and set are."""
    parameters = tuple(_declared(parameter) for parameter in model.private)
    sensitivities = []
    for cell in model.classification.cells[:1]:  # the same for all: one record moves them together
        bounds = {key: number(value) for key, value in cell.sensitivity.items()}
        sensitivities.append({"part": "gradient of the objective, per unit of the loss's derivative", **bounds})
    parts = model.parts if isinstance(model, PrivateOutputs) else (model,)
    steepest = max(part.derivative_bound for part in parts)
    derivative = number(steepest) if math.isfinite(steepest) else "no bound"
    outputs = f" of {len(parts)} outputs" if len(parts) > 1 else ""
    sets = " and ".join(dict.fromkeys(part.domain.kind for part in parts))
    size = (
        f"Regression{outputs}: {model.loss.name.replace('_', ' ')} loss, {model.count} rows, {model.size} "
        f"coefficients, {sets} set; derivative of a record's loss: {derivative}."
    )
    told, classification = tuple(sensitivities), model.classification
    said = sentences(classification)
    return Explanation(size, parameters, told, classification, (), _told(release), sentences=said)


def explain_postprocessing(
    model: Postprocessing, classification: Classification, release: Release | None
) -> Explanation:
    """The same for a post-processing: how large it is, and which published numbers it speaks of."""
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
    return Explanation(size, parameters, (), classification, (), _told(release))


def private_of(model: PrivateLP | AnyRegression) -> tuple[Private, ...]:
    """The private parameters, each once."""
    if isinstance(model, AnyRegression):
        return model.private
    return tuple(block.parameter for block in model.affine.private_blocks)


def guarantee_of(model: PrivateLP | AnyRegression, epsilon: float, delta: float) -> Guarantee:
    """The guarantee, with what a record is and what besides the release is public."""
    parameters = private_of(model)
    record = record_words(parameters)
    neighbors = sorted({parameter.records.neighbors for parameter in parameters})
    patterns = list(dict.fromkeys(p.name() for p in parameters if p.sparse_idx is not None))
    if patterns:
        record += f"; the positions of the entries of {', '.join(patterns)} are public"
    return Guarantee(epsilon, delta, " and ".join(neighbors), record)


def accuracy_of(forecast: Forecast, outcome: Outcome) -> Accuracy:
    """The forecast as a statement on this release: what the solve on released data left of it."""
    if outcome.x is None:
        why = f"the released program is {outcome.status}"
        if outcome.status in (SOLVER_ERROR, STOPPED):
            why = "no solver had an answer" if outcome.status == SOLVER_ERROR else "the mechanism stopped with an error"
        return Accuracy(alpha=None, beta=None, statement=f"no point: {why}")
    extra = outcome.extra_violation
    centred = isinstance(forecast.error, Violation) and forecast.error.centred
    # A statement that lists what may be missed counts it, and so does what is told of the released point.
    within = extra == 0 or bool(outcome.statement) or outcome.violation is not None
    text = outcome.statement or forecast.statement
    if outcome.statement and forecast.vacuous:
        text = says_nothing(text)
    exact = outcome.status in ("optimal", "least_violation")
    if not exact:
        text += f"; the solver stopped early ({outcome.status}), and what that costs is not counted"
    if extra > 0 and not outcome.statement:
        why = ", because no point meets the released numbers" if centred else ""
        text += f"; but this draw needed a further violation of up to {number(extra)}{why}"
    objective, violation, slack_rows = forecast.error.stated()
    if violation is not None:
        violation += extra
    if outcome.violation is not None:
        violation = outcome.violation
        text += f"; at the released point none is by more than {number(violation)}"
    return Accuracy(
        alpha=max((each for each in (objective, violation) if each is not None), default=0.0),
        beta=forecast.beta,
        slack_rows=slack_rows,
        proved=forecast.proved and exact and within,
        statement=text,
        objective_alpha=objective,
        violation_alpha=violation,
        vacuous=forecast.vacuous,
        short=outcome.short,
    )
