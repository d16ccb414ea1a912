"""Regressions: a sum of losses of private records, a public penalty and public constraints."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dpmodel.compile.bridge import write_values
from dpmodel.compile.form import require_private_values
from dpmodel.contract import (
    YES,
    Candidate,
    Model,
    Options,
    Outcome,
    Ran,
    Serves,
    Verdict,
    finite_number,
    public_options,
)
from dpmodel.errors import SpecificationError
from dpmodel.forecast import ExcessRisk
from dpmodel.marks.private import Private
from dpmodel.marks.records import record_words
from dpmodel.regressions.model import AnyRegression, PrivateOutputs, PrivateRegression
from dpmodel.regressions.rates import regression_lower_bounds
from dpmodel.release import Release, checked_point, collect, private_parameters
from dpmodel.text import number


class Regression(Model[AnyRegression]):
    """``problem`` : the caller's CVXPY problem, which ``finish`` writes to."""

    words = "regression"
    error = ExcessRisk
    remedy = "delta > 0, a bounded set such as cp.norm1(w) <= 1, or clip= for losses whose derivative has no bound"
    halvings = 0

    def __init__(self, data: AnyRegression, problem: Any = None) -> None:
        super().__init__(data)
        self.problem = problem

    @property
    def protects(self) -> str:
        return record_words(self.data.private)

    def check(self, given: Options) -> tuple[Model[Any], Options]:
        clip = self.data.loss.clip
        options = public_options(given, self.words)
        return self, replace(options, clip=clip if math.isfinite(clip) else None)

    def serves(self, mechanism: Any, options: Options) -> Verdict:
        if self.data.in_blocks and not mechanism.serves.reads_blocks:
            return Verdict(False, "it needs all rows in memory, and these lie in blocks")
        if isinstance(self.data, PrivateRegression) and self.data.scores > 1 and not mechanism.serves.classes:
            return Verdict(False, "it is for one prediction of a record, not for several classes at once")
        return YES

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        if isinstance(self.data, PrivateOutputs) or self.data.scores > 1:
            return ()  # the theorems speak of one prediction of a record
        return regression_lower_bounds(self.data, options.epsilon, options.delta)

    @property
    def varies(self) -> tuple[str, ...]:
        return ("records",) if isinstance(self.data, PrivateRegression) else ()

    def varied(self, what: str, factor: float, parameter: str = "") -> Model[AnyRegression]:
        """More records of the same kind: each has less weight, and the objective the same."""
        data = self.data
        if what not in self.varies or not isinstance(data, PrivateRegression):
            return super().varied(what, factor, parameter)
        count = max(round(data.count * factor), 1)
        times = count / data.count
        scale, total = data.scale / times, data.total * times
        return Regression(replace(data, count=count, scale=scale, total=total, _memo={}), self.problem)

    def ready(self, chosen: Candidate, serves: Serves) -> None:
        if self.data.public is not None:
            self.data.public.require_feasible()
        require_private_values(private_parameters(self.problem))

    def checked(self, outcome: Any) -> Outcome:
        return checked_point(outcome, self.data.size)

    def stopped(self, status: str, note: str) -> Outcome:
        return Outcome(status, None, None, None, notes=(note,))

    def finish(self, ran: Ran) -> Release:
        """The released coefficients, and with them every variable of the model."""
        model, outcome, notes = self.data, ran.outcome, [*ran.outcome.notes]
        if outcome.x is not None:
            assert model.public is not None
            write_values(self.problem, model.public.complete(outcome.x), outcome.status)
            model.public.forget()
        else:
            write_values(self.problem, {}, outcome.status)
        clipped = [p.name() for p in model.private if _clips(p)]
        if clipped:
            notes.append(
                f"values of {', '.join(clipped)} beyond the declared bounds were clipped (how many is private)"
            )
        if np.isfinite(model.loss.clip):
            notes.append(
                f"derivatives of the loss were cut to {model.loss.clip:g}: its minimiser is that of the clipped loss"
            )
        return collect(self.problem, model.private, model.classification.told(), ran, outcome.value, notes, {})


_LEAST_CLIP, _MOST_CLIP = 1e-100, 1e100


def checked_clip(clip: Any) -> float:
    """``clip`` as a positive number, inf for None.

    Raises
    ------
    SpecificationError
        For anything that is not a positive number between 1e-100 and 1e100: noise to hide others cannot be drawn.
    """
    value = finite_number("clip", clip)
    if value is not None and not _LEAST_CLIP <= value <= _MOST_CLIP:
        why = (
            f"derivatives are cut to [-clip, clip], and noise is drawn for sizes from {_LEAST_CLIP:g} to {_MOST_CLIP:g}"
        )
        raise SpecificationError(f"clip={number(value)}", why=why, remedy="clip=1.0, say")
    return math.inf if value is None else value


def _clips(parameter: Private) -> bool:
    return any(map(np.isfinite, parameter.magnitude.values())) or parameter.bounds is not None
