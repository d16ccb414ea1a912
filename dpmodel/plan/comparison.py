"""A plan: the mechanisms compared, the one chosen, and how that prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dpmodel.contract import Candidate, Options
from dpmodel.errors import SpecificationError
from dpmodel.plan.anew import SMALLEST_DELTA, Anew, Simulated, checked_epsilons
from dpmodel.plan.explained import PlanExplained
from dpmodel.plan.picture import picture
from dpmodel.plan.shown import error_words, short_text, why_text
from dpmodel.release.plain import Misfit, part, plain, plain_fields, read
from dpmodel.text import html_table, number, screenful, table


def nothing() -> str:
    """Help where there is none to look for."""
    return ""


@dataclass(frozen=True)
class Plan:
    """The mechanisms compared and the one ``chosen`` (a ``Candidate``).

    ``algorithm`` : the mechanism, when an object was given and no name. ``lower_bounds`` : what no mechanism can beat,
    in words (empty where no theorem says anything). ``first`` : what to know first, empty where the chosen statement
    says something; ``answer`` : the same, and what would ``help``, which is looked for when it is read or printed.
    ``runner_up`` : the name of the best of the others, or "".

    ``cells`` : where the problem stands in Table 1, a line for each kind of private parameter. ``protects`` : whose
    records, and what one of them has in every parameter. ``anew`` : forecasts at other epsilons. It and ``help`` hold
    the model, and with it the way to its private data: ``alone`` is without them, as copies are.

    Prints the choice, what it says and does, and its runner-up; ``table()`` has all, ``why(name)`` one of the others.
    """

    candidates: tuple[Candidate, ...]
    chosen: Candidate
    options: Options
    forced: bool
    lower_bounds: tuple[str, ...]
    first: str = ""
    runner_up: str = ""
    algorithm: Any = field(default=None, compare=False, repr=False)
    help: Callable[[], str] = field(default=nothing, compare=False, repr=False)
    cells: tuple[str, ...] = ()
    anew: Anew | None = field(default=None, compare=False, repr=False)
    protects: str = ""

    @cached_property
    def answer(self) -> str:
        """What to know first and, where the chosen statement says nothing, what would help."""
        return self.first + self.help()

    @cached_property
    def better(self) -> str:
        """What twice the epsilon would bring, and at delta 0 the smallest delta; "" where that is nothing, or not
        known."""
        now = self.chosen.forecast
        if self.anew is None or now is None or not self.chosen.reads or now.vacuous:
            return ""
        then = self.anew.of(self.chosen.mechanism, 2 * self.options.epsilon).forecast
        told = [] if then is None else [("twice the epsilon", error_words(then))]
        with_delta = self.anew.with_delta(self.candidates)
        if (
            with_delta is not None
            and with_delta.forecast is not None
            and with_delta.forecast.error.rank < now.error.rank
        ):
            told.append((f"delta {SMALLEST_DELTA:g} ({with_delta.mechanism})", error_words(with_delta.forecast)))
        before = error_words(now)
        told = [(what, words) for what, words in told if words not in ("", before)]
        return "; ".join(f"with {what}, {words}" for what, words in told) + f" (now {before})" * bool(told and before)

    def alone(self) -> Plan:
        """The plan without the model: for what is handed on, or kept longer than the model."""
        return replace(self, help=nothing, anew=None)

    @property
    def helped(self) -> bool:
        """Whether something is to be looked for that would help."""
        return self.help is not nothing

    def __getstate__(self) -> dict[str, Any]:
        """What would help is looked for now: a copy has nothing to look for it in."""
        return {**self.__dict__, "answer": self.answer, "help": nothing, "anew": None}

    @property
    def _columns(self) -> tuple[str, ...]:
        assert self.chosen.forecast is not None
        return "", "mechanism", *self.chosen.forecast.error.columns, "epsilon", "delta", "statement"

    def to_dict(self) -> dict[str, Any]:
        return {**self.told(), "answer": self.answer, "better": self.better}

    def told(self) -> dict[str, Any]:
        """`to_dict` without what would help: nothing is looked for."""
        return {
            "epsilon": self.options.epsilon,
            "delta": self.options.delta,
            "beta": self.options.beta,
            "feasibility": self.options.feasibility,
            "chosen": self.chosen.mechanism,
            "forced": self.forced,
            "answer": self.first,
            "runner_up": self.runner_up,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "lower_bounds": list(self.lower_bounds),
            "cells": list(self.cells),
            "protects": self.protects,
            "better": "",
            "request": plain_fields(self.options),
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as strict JSON: inf and nan are strings."""
        return json.dumps(plain(self.to_dict()), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that `to_json` wrote. It prints and compares; ``algorithm`` is not written.

        Raises
        ------
        SpecificationError
            For text that no plan wrote; it says where.
        """
        return read(cls, text, cls._of)

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Plan:
        candidates = part(tuple[Candidate, ...], data, "candidates")
        name = part(str, data, "chosen")
        chosen = [each for each in candidates if each.mechanism == name and each.forecast is not None]
        if not chosen:
            raise Misfit("no candidate with a forecast has that name", "chosen")
        plan = cls(
            candidates,
            chosen[0],
            part(Options, data, "request"),
            part(bool, data, "forced"),
            part(tuple[str, ...], data, "lower_bounds"),
            part(str, data, "answer"),
            part(str, data, "runner_up"),
            cells=part(tuple[str, ...], data, "cells"),
            protects=part(str, data, "protects"),
        )
        plan.__dict__["better"] = part(str, data, "better")  # what was found out then
        return plan

    def _rows(self, candidates: Sequence[Candidate]) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for candidate in candidates:
            mark = "->" if candidate is self.chosen else ""
            forecast = candidate.forecast
            if forecast is None:
                continue  # below the table
            spends = number(forecast.epsilon), number(forecast.delta)
            words = f"{forecast.statement}; {forecast.work}"
            errors = forecast.error.cells(forecast.proved)
            rows.append((mark, candidate.mechanism, *errors, *spends, words))
        return rows

    def _title(self) -> str:
        return f"{self.answer}\n{self.title}" if self.answer else self.title

    @property
    def title(self) -> str:
        """What it is a plan for."""
        if self.options.epsilon == 0 == self.options.delta:
            return "Plan of a post-processing: it costs no privacy"
        return f"Plan for epsilon {number(self.options.epsilon)}, delta {number(self.options.delta)}"

    def __str__(self) -> str:
        return screenful(short_text(self), "plan.to_dict()")

    def __repr__(self) -> str:
        return f"<{self.title}: {self.chosen.mechanism}>"

    def table(self) -> str:
        """The whole comparison: every forecast with its statement, and why each of the others does not serve."""
        rows = self._rows(self.candidates)  # statements below it: a column of them is long where lines are short
        said = tuple(f"{row[1]}: {row[-1]}" for row in rows)
        footer = (*said, *self._footer(), *self._others())
        return table(self._columns[:-1], [row[:-1] for row in rows], title=self._title(), footer=footer)

    def why(self, mechanism: str) -> str:
        """All that the plan knows of one mechanism: its statement and what it spends, or why it was not chosen.

        Raises
        ------
        SpecificationError
            For a name that is not in the plan.
        """
        return why_text(self, mechanism)

    def explain(self) -> PlanExplained:
        """What the statement means, why each other mechanism was not taken, and what to change to do better."""
        return PlanExplained(self)

    def plot(
        self, values: Any = None, *, against: str = "epsilon", simulated: Simulated | None = None, ax: Any = None
    ) -> Any:
        """Draw the forecast errors, with the lower bound where a theorem gives one (extra ``[plot]``).

        Every value takes the forecasts of ``plan(compare="all")``. Public facts only; nothing is spent.

        Parameters
        ----------
        values : numbers above 0; by default from an eighth to eight times that of the plan. ``against`` : what they
            are: "epsilon"; "records", how many there are (regressions; the objective's weight stays); "sensitivity", as
            a multiple of the declared one (programs). ``simulated`` : of ``simulate``, drawn as points. ``ax`` :
            matplotlib axes, for the first of the figure's panels.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        MissingExtraError, SpecificationError
            Without matplotlib; where there is nothing to draw, or nothing is known at other values.
        """
        return picture(self, values, against, simulated, ax)

    def simulate(self, epsilons: Any = None, *, runs: int = 10, mechanisms: Sequence[str] | None = None) -> Simulated:
        """Run mechanisms on synthetic databases and measure their errors. Reads no private data and spends nothing.

        Databases are drawn from the declared ranges alone, and noise is seeded: what comes out says how the mechanism
        does on such data, not on yours.

        Parameters
        ----------
        epsilons : as in ``plot``. ``runs`` : databases at each epsilon. ``mechanisms`` : names; by default the chosen
            one and its runner-up.

        Raises
        ------
        SpecificationError
            For models that are not linear programs with declared ranges, copies of plans, and mechanisms that are not
            in the plan or do not apply.
        """
        if self.anew is None:
            raise SpecificationError("simulate: a copy of a plan holds no model", remedy="problem.plan(...).simulate()")
        if not isinstance(runs, int) or runs < 1:
            raise SpecificationError(f"runs={runs!r}", remedy="an integer of 1 or more")
        applies = [each.mechanism for each in self.candidates if each.eligible]
        names = [n for n in (self.chosen.mechanism, self.runner_up) if n] if mechanisms is None else list(mechanisms)
        for name in names:
            if name not in applies:
                raise SpecificationError(f"simulate: {name!r} does not apply", remedy=f"one of {', '.join(applies)}")
        at = checked_epsilons(epsilons, self.options.epsilon)
        return Simulated({(name, each): self.anew.measured(name, each, runs) for name in names for each in at})

    def _repr_html_(self) -> str:
        rows = self._rows(self.candidates)
        told = [each for each in self.candidates if each.forecast is not None]
        footer = self._footer() + self._others()
        return html_table(self._columns, rows, title=self._title(), footer=footer, marked=told.index(self.chosen))

    def _footer(self) -> tuple[str, ...]:
        assert self.chosen.forecast is not None
        return (*self.chosen.forecast.rows, *self.split(), *self.chosen.forecast.caveats, *self.lower_bounds)

    def _others(self) -> tuple[str, ...]:
        """What does not serve: each reason once, with the mechanisms it stops."""
        stopped: dict[str, list[str]] = {}
        for candidate in self.candidates:
            if candidate.forecast is None:
                stopped.setdefault(candidate.reason, []).append(candidate.mechanism)
        return tuple(f"not {', '.join(names)}: {reason}" for reason, names in stopped.items())

    def split(self) -> tuple[str, ...]:
        """How the chosen mechanism splits its budget, when several parts are private."""
        assert self.chosen.forecast is not None
        parts = {k: v for k, v in self.chosen.forecast.noise.items() if isinstance(v, Mapping) and "share" in v}
        if len(parts) < 2 or all(part["share"] == 1 for part in parts.values()):  # of records that are not the same
            return ()
        shares = ", ".join(f"{name} {number(part['share'])}" for name, part in parts.items())
        return (f"split of the budget (shares of epsilon, or of mu for Gaussian noise): {shares}",)
