"""A plan: the mechanisms compared, the one chosen, and how that prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpmodel._text import html_table, number, table
from dpmodel.mechanisms.mechanism import Forecast, Request

_COLUMNS = ("", "mechanism", "objective within", "violation within", "spends", "statement, or why not")
# Regressions violate nothing: what they may lose is excess risk, forecast and (where a theorem says so) at most.
_RISKS = ("", "mechanism", "excess risk", "at most", "spends", "statement, or why not")
# Solvers of post-processing problems reach the same optimum; they differ in time.
_SOLVERS = ("", "mechanism", "objective within", "seconds, about", "spends", "statement, or why not")
# Exact systems satisfy a row exactly or miss it.
_EXACT = ("", "mechanism", "rows missed", "records needed", "spends", "statement, or why not")


@dataclass(frozen=True)
class Candidate:
    """One mechanism in a plan: ``mechanism`` (its name), ``eligible``, ``reason`` (why not), ``forecast``."""

    mechanism: str
    source: str
    eligible: bool
    reason: str
    forecast: Forecast | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "mechanism": self.mechanism,
            "source": self.source,
            "eligible": self.eligible,
            "reason": self.reason,
            "forecast": None if self.forecast is None else self.forecast.to_dict(),
        }


@dataclass(frozen=True)
class Plan:
    """The mechanisms compared and the one ``chosen`` (a ``Candidate``).

    ``algorithm`` : the mechanism, when an object was given and no name. ``floors`` : what no mechanism can beat, in
    words (empty where no theorem says anything).
    """

    candidates: tuple[Candidate, ...]
    chosen: Candidate
    request: Request
    forced: bool
    floors: tuple[str, ...]
    algorithm: Any = field(default=None, compare=False, repr=False)

    @property
    def _is_regression(self) -> bool:
        return self.chosen.forecast is not None and not math.isnan(self.chosen.forecast.predicted)

    @property
    def _is_postprocessing(self) -> bool:
        return self.chosen.forecast is not None and not math.isnan(self.chosen.forecast.seconds)

    @property
    def _is_exact(self) -> bool:
        return self.chosen.forecast is not None and not math.isnan(self.chosen.forecast.needed)

    @property
    def _columns(self) -> tuple[str, ...]:
        if self._is_postprocessing:
            return _SOLVERS
        if self._is_exact:
            return _EXACT
        return _RISKS if self._is_regression else _COLUMNS

    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon": self.request.epsilon,
            "delta": self.request.delta,
            "beta": self.request.beta,
            "feasibility": self.request.feasibility,
            "chosen": self.chosen.mechanism,
            "forced": self.forced,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "floors": list(self.floors),
        }

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for candidate in self.candidates:
            mark = "->" if candidate is self.chosen else ""
            forecast = candidate.forecast
            if forecast is None:
                rows.append((mark, candidate.mechanism, "-", "-", "-", candidate.reason))
                continue
            spends = f"epsilon {number(forecast.epsilon)}, delta {number(forecast.delta)}"
            words = f"{forecast.statement}; {forecast.work}"
            errors = number(forecast.objective_alpha), number(forecast.violation_alpha)
            if self._is_postprocessing:
                errors = number(forecast.objective_alpha), number(float(f"{forecast.seconds:.1g}"))
                spends = "nothing"
            if self._is_exact:
                errors = number(forecast.missed), number(forecast.needed)
            if self._is_regression:
                errors = number(forecast.predicted), number(forecast.objective_alpha) if forecast.proved else "-"
            rows.append((mark, candidate.mechanism, *errors, spends, words))
        return rows

    def _title(self) -> str:
        if self._is_postprocessing:
            return "Plan of a post-processing: it costs no privacy"
        request = self.request
        return f"Plan for epsilon {number(request.epsilon)}, delta {number(request.delta)}"

    def __str__(self) -> str:
        return table(self._columns, self._rows(), title=self._title(), width=120, footer=self._footer())

    def _repr_html_(self) -> str:
        return html_table(self._columns, self._rows(), title=self._title(), footer=self._footer())

    def _footer(self) -> tuple[str, ...]:
        assert self.chosen.forecast is not None
        return (*self._split(), *self.chosen.forecast.caveats, *self.floors)

    def _split(self) -> tuple[str, ...]:
        """How the chosen mechanism splits its budget, when several parts are private."""
        assert self.chosen.forecast is not None
        parts = {k: v for k, v in self.chosen.forecast.noise.items() if isinstance(v, Mapping) and "share" in v}
        if len(parts) < 2:
            return ()
        shares = ", ".join(f"{name} {number(part['share'])}" for name, part in parts.items())
        return (f"split of the budget (shares of epsilon, or of mu for Gaussian noise): {shares}",)
