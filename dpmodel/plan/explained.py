"""A plan explained: what its statement means, why each other mechanism was not taken, what to change to do better."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpmodel.contract import Candidate
from dpmodel.forecast import ExcessRisk, Forecast, RowsMissed, Seconds, Violation
from dpmodel.plan.changes import changes
from dpmodel.plan.shown import error_words
from dpmodel.text import html_table, number, screenful, table, wrapped

if TYPE_CHECKING:
    from dpmodel.plan.comparison import Plan


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

    def _tables(self) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        forecast = self.plan.chosen.forecast
        assert forecast is not None
        if self.changes:
            rows: list[tuple[str, ...]] = [
                ("as it is", error_words(forecast)),
                *((c["change"], c["error"]) for c in self.changes),
            ]
            yield "What would do better", ("change", "error then"), list(rows)
        alike: dict[tuple[str, str], list[str]] = {}
        for row in sorted(self.others, key=lambda row: _VERDICTS.index(row["verdict"])):
            alike.setdefault((row["verdict"], row["why"]), []).append(row["mechanism"])
        if alike:
            told: list[tuple[str, ...]] = [("\n".join(names), verdict, why) for (verdict, why), names in alike.items()]
            yield "Why not another mechanism", ("mechanism", "verdict", "why"), told

    def __str__(self) -> str:
        parts = [wrapped(self.plan.answer)] if self.plan.answer else []
        parts.append("\n".join([wrapped(f"Chosen: {self.statement}"), *(wrapped(line, "  ") for line in self.meaning)]))
        parts += [table(columns, rows, title=title) for title, columns, rows in self._tables()]
        return screenful("\n\n".join(parts), "plan.explain().to_dict(), plan.why(name)")

    def __repr__(self) -> str:
        return f"<PlanExplained: {self.plan.chosen.mechanism}>"

    def _repr_html_(self) -> str:
        rows = [(line,) for line in (self.plan.answer, *self.meaning) if line]
        parts = [html_table(("",), rows, title=f"Chosen: {self.statement}")]
        parts += [html_table(columns, rows, title=title) for title, columns, rows in self._tables()]
        return "".join(parts)


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
    if forecast.spends_nothing:
        yield "It reads no private data, so it costs no privacy, and its answer is the same for all data."
    else:
        times = number(math.exp(min(forecast.epsilon, 700.0)))
        slack = f", but for a probability of {number(forecast.delta)}" if forecast.delta > 0 else ""
        yield (
            f"Privacy: with one record's data any outcome is at most {times} times (e to the epsilon) as likely as "
            f"with any other data of it{slack}."
        )
    if forecast.vacuous:
        yield "Accuracy: the statement holds, but a public point keeps it too: data add nothing that is proved."
    elif forecast.proved and not isinstance(error, Seconds):
        sure = "" if forecast.spends_nothing else f" in all but {number(100 * forecast.beta)} of 100 runs"
        yield f"Accuracy: proved; it holds{sure} whatever the data are within their declarations."
    elif not isinstance(error, Seconds):
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
    elif isinstance(error, RowsMissed):
        yield "rows missed: records whose row the answer does not satisfy; below the records needed nothing is said."
    elif isinstance(error, Seconds):
        yield "All solvers reach the same optimum of published numbers; they compare by time."
