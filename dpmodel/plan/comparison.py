"""A plan: the mechanisms compared, the one chosen, and how that prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpmodel.mechanisms.contract import Request
from dpmodel.models.contract import Candidate
from dpmodel.release.plain import plain, plain_fields, revived
from dpmodel.text import html_table, number, table


@dataclass(frozen=True)
class Plan:
    """The mechanisms compared and the one ``chosen`` (a ``Candidate``).

    ``algorithm`` : the mechanism, when an object was given and no name. ``lower_bounds`` : what no mechanism can beat,
    in words (empty where no theorem says anything). ``answer`` : what to know first, empty where the chosen statement
    says something: that it does not, and what would help. ``runner_up`` : the name of the best of the others, or "".

    Prints the choice, its runner-up, and the rest in a line each; ``details()`` has every statement and every reason.
    """

    candidates: tuple[Candidate, ...]
    chosen: Candidate
    request: Request
    forced: bool
    lower_bounds: tuple[str, ...]
    answer: str = ""
    runner_up: str = ""
    algorithm: Any = field(default=None, compare=False, repr=False)

    @property
    def _columns(self) -> tuple[str, ...]:
        assert self.chosen.forecast is not None
        return "", "mechanism", *self.chosen.forecast.error.columns, "spends", "statement"

    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon": self.request.epsilon,
            "delta": self.request.delta,
            "beta": self.request.beta,
            "feasibility": self.request.feasibility,
            "chosen": self.chosen.mechanism,
            "forced": self.forced,
            "answer": self.answer,
            "runner_up": self.runner_up,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "lower_bounds": list(self.lower_bounds),
            "request": plain_fields(self.request),
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as strict JSON: inf and nan are strings."""
        return json.dumps(plain(self.to_dict()), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that `to_json` wrote. It prints and compares; ``algorithm`` is not written.

        Raises
        ------
        ValueError, KeyError, TypeError
            For text that no plan wrote.
        """
        data = json.loads(text)
        candidates = revived(tuple[Candidate, ...], data["candidates"])
        chosen = next(each for each in candidates if each.mechanism == data["chosen"])
        request = revived(Request, data["request"])
        lower_bounds = tuple(data["lower_bounds"])
        return cls(candidates, chosen, request, data["forced"], lower_bounds, data["answer"], data["runner_up"])

    def _rows(self, candidates: Sequence[Candidate]) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for candidate in candidates:
            mark = "->" if candidate is self.chosen else ""
            forecast = candidate.forecast
            if forecast is None:
                continue  # below the table
            spends = f"epsilon {number(forecast.epsilon)}, delta {number(forecast.delta)}"
            spends = "nothing" if forecast.spends_nothing else spends
            words = f"{forecast.statement}; {forecast.work}"
            errors = forecast.error.cells(forecast.proved)
            rows.append((mark, candidate.mechanism, *errors, spends, words))
        return rows

    def _title(self) -> str:
        if self.request.epsilon == 0 == self.request.delta:
            return "Plan of a post-processing: it costs no privacy"
        request = self.request
        title = f"Plan for epsilon {number(request.epsilon)}, delta {number(request.delta)}"
        return f"{self.answer}\n{title}" if self.answer else title

    def __str__(self) -> str:
        second = next((each for each in self.candidates if each.mechanism == self.runner_up), None)
        shown = [each for each in (self.chosen, second) if each is not None]
        shown += [each for each in self.candidates if each not in shown and each.forecast and not each.forecast.vacuous]
        rows = [row[:-1] for row in self._rows(shown)]
        return table(self._columns[:-1], rows, title=self._title(), width=120, footer=self._short(second))

    def details(self) -> str:
        """The whole comparison in words: every statement, and why each of the others does not serve."""
        footer = self._footer() + self._others()
        return table(self._columns, self._rows(self.candidates), title=self._title(), width=120, footer=footer)

    def _repr_html_(self) -> str:
        rows = self._rows(self.candidates)
        return html_table(self._columns, rows, title=self._title(), footer=self._footer() + self._others())

    def _short(self, second: Candidate | None) -> tuple[str, ...]:
        """The statement of the choice and what belongs to it, the others by name."""
        assert self.chosen.forecast is not None
        lines = [f"{self.chosen.mechanism}: {self.chosen.forecast.statement}; {self.chosen.forecast.work}"]
        lines += self._footer()
        lines += [f"runner-up: {second.mechanism}"] if second is not None else []
        others = [each for each in self.candidates if each not in (self.chosen, second)]
        silent = [each.mechanism for each in others if each.forecast is not None and each.forecast.vacuous]
        failed = [each for each in others if each.code == "failed"]
        behind = [each.mechanism for each in others if each.forecast is None and each.eligible]
        useless = [each.mechanism for each in others if not each.eligible and each not in failed]
        lines += [f"{each.mechanism} {each.reason}" for each in failed]
        lines += [f"say nothing here: {', '.join(silent)}"] if silent else []
        lines += [f"cannot win here: {', '.join(behind)}"] if behind else []
        lines += [f"do not serve here: {', '.join(useless)}"] if useless else []
        return (*lines, "print(plan.details()) has all statements and reasons")

    def _footer(self) -> tuple[str, ...]:
        assert self.chosen.forecast is not None
        return (*self._split(), *self.chosen.forecast.caveats, *self.lower_bounds)

    def _others(self) -> tuple[str, ...]:
        """What does not serve: each reason once, with the mechanisms it stops."""
        stopped: dict[str, list[str]] = {}
        for candidate in self.candidates:
            if candidate.forecast is None:
                stopped.setdefault(candidate.reason, []).append(candidate.mechanism)
        return tuple(f"not {', '.join(names)}: {reason}" for reason, names in stopped.items())

    def _split(self) -> tuple[str, ...]:
        """How the chosen mechanism splits its budget, when several parts are private."""
        assert self.chosen.forecast is not None
        parts = {k: v for k, v in self.chosen.forecast.noise.items() if isinstance(v, Mapping) and "share" in v}
        if len(parts) < 2 or all(part["share"] == 1 for part in parts.values()):  # of records that are not the same
            return ()
        shares = ", ".join(f"{name} {number(part['share'])}" for name, part in parts.items())
        return (f"split of the budget (shares of epsilon, or of mu for Gaussian noise): {shares}",)
