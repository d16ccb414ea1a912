"""A plan: the mechanisms compared and the one chosen, in words and JSON, drawn and simulated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from dpmodel.contract import Candidate, Options
from dpmodel.errors import SpecificationError
from dpmodel.forecast import Forecast, Violation
from dpmodel.text import Misfit, PlainData, TextTable, number, part, plain_fields, screenful, wrapped

if TYPE_CHECKING:
    from dpmodel.show.explain import PlanExplained
    from dpmodel.solve.planner import Forecaster

# Lines of a printed plan.
_MOST_LINES = 16


@dataclass(frozen=True)
class Simulated:
    """``plan.simulate``: what mechanisms erred by on synthetic databases, drawn from public facts.

    ``errors`` : (mechanism, epsilon) -> column of the error -> its value in each run, nan where it cannot be told.
    """

    errors: Mapping[tuple[str, float], Mapping[str, Sequence[float]]]

    def points(self, column: str) -> dict[str, list[tuple[float, float]]]:
        """Mechanism -> (epsilon, error) of each run."""
        out: dict[str, list[tuple[float, float]]] = {}
        for (name, epsilon), columns in self.errors.items():
            out.setdefault(name, []).extend((epsilon, value) for value in columns[column] if not math.isnan(value))
        return out

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {"mechanism": name, "epsilon": epsilon, **{column: list(values) for column, values in columns.items()}}
            for (name, epsilon), columns in self.errors.items()
        ]

    def __str__(self) -> str:
        rows = []
        for (name, epsilon), columns in self.errors.items():
            told = [[value for value in values if not math.isnan(value)] for values in columns.values()]
            worst = [number(max(values)) if values else "-" for values in told]
            rows.append((name, epsilon, len(next(iter(columns.values()))), *worst))
        heads = [f"{column}, largest" for column in next(iter(self.errors.values()), {})]
        return str(TextTable(("mechanism", "epsilon", "runs", *heads), rows, "Measured on synthetic databases"))


def checked_epsilons(epsilons: Any, here: float, name: str = "epsilons") -> list[float]:
    """Increasing; by default from an eighth to eight times that of the plan. ``name`` : for messages.
    Errors: SpecificationError, for anything but finite numbers above 0."""
    try:
        around = [here * 2.0**power for power in range(-3, 4)]
        given = around if epsilons is None else sorted({float(each) for each in epsilons})
    except (TypeError, ValueError):
        given = []
    if not given or not all(0 < each < math.inf for each in given):
        raise SpecificationError(f"{name} are finite numbers above 0", remedy="[0.1, 1, 10], say, or leave it out")
    return given


def error_words(forecast: Forecast, average: bool = False) -> str:
    """Its error in the columns of its kind, what plans compare besides, and how many constraints are left out. As in
    the statement, in brackets: the violation where only the true numbers leave a point."""
    error = forecast.error
    columns = zip(error.columns, error.cells(forecast.proved), strict=True)
    unbounded = number(math.inf)
    parts = [f"{name.removesuffix(' within' * (v == unbounded))} {v}" for name, v in columns if v != "-"]
    if isinstance(error, Violation):
        if error.alone < error.violation:
            parts[-1] = f"{error.columns[-1]} {number(error.alone)} ({number(error.violation)})"
        # Plans compare by the average, which may be the smaller one where the bound is the larger one.
        parts += [f"{number(error.expected)} on average"] if average and error.expected > 0 else []
        parts += [f"{name} {number(value)}" for name, value in error.expectation().items()]
        parts += [f"tightened by {number(error.tightening)}"] if error.tightening > 0 else []
        parts += [f"{error.slack_rows} constraints left out"] if error.slack_rows else []
    words = ", ".join(parts)
    return f"says nothing here ({words})" if forecast.vacuous else words


def _spends(forecast: Forecast) -> str:
    if forecast.spends_nothing:
        return "spends nothing"
    return f"spends epsilon {number(forecast.epsilon)}, delta {number(forecast.delta)}"


@dataclass(frozen=True)
class Plan(PlainData):
    """The mechanisms compared (``candidates``) and the one ``chosen``, each with its forecast.

    ``options`` : of the request. ``runner_up`` : the name of the best of the others, or "". ``lower_bounds`` : what no
    mechanism can beat, in words (empty where no theorem says anything). ``protects`` : whose records, and what one
    of them has in every parameter. ``answer`` : what to know first and, where the chosen statement says nothing, what
    would help, which is looked for when it is read or printed.

    Prints the choice, what it says and does, and its runner-up; ``table()`` has all, ``why(name)`` one of the others.
    """

    candidates: tuple[Candidate, ...]
    chosen: Candidate
    options: Options
    lower_bounds: tuple[str, ...] = ()
    runner_up: str = ""
    protects: str = ""
    _forced: bool = False
    _first: str = ""
    _cells: tuple[str, ...] = ()  # where the problem stands in Table 1, a line for each kind of private parameter
    _algorithm: Any = field(default=None, compare=False, repr=False)  # where an object was given and no name
    # It holds the model, and with it the way to private data: copies are without.
    _forecaster: Forecaster | None = field(default=None, compare=False, repr=False)

    @cached_property
    def answer(self) -> str:
        """What to know first and, where the chosen statement says nothing, what would help."""
        return self._first + ("" if self._forecaster is None else self._forecaster.help(self))

    @cached_property
    def _better(self) -> str:
        """What twice the epsilon would bring, and at delta 0 the smallest delta; "" where that is nothing, or not
        known: simulated forecasts may be off by more than what more budget brings."""
        if self._forecaster is None or not self.chosen.reads or self._forecast.vacuous:
            return ""
        before, name = error_words(self._forecast), self.chosen.mechanism
        tried = {"twice the epsilon": self._forecaster.at("epsilon", 2 * self.options.epsilon).candidate(name)}
        other = self._forecaster.with_delta(self.candidates)
        if other is not None and other.forecast is not None:
            tried[f"delta {other.forecast.delta:g} ({other.mechanism})"] = other
        forecasts = {what: each.forecast for what, each in tried.items() if each.forecast is not None}
        rank = self._forecast.error.rank
        words = {what: error_words(each) for what, each in forecasts.items() if not each.error.rank >= rank}
        found = [f"with {what}, {then}" for what, then in words.items() if then not in ("", before)]
        return "; ".join(found) + f" (now {before})" * bool(found and before)

    @property
    def _forecast(self) -> Forecast:
        assert self.chosen.forecast is not None
        return self.chosen.forecast

    @property
    def _title(self) -> str:
        """What it is a plan for."""
        if self.options.epsilon == 0 == self.options.delta:
            return "Plan of a post-processing: it costs no privacy"
        return f"Plan for epsilon {number(self.options.epsilon)}, delta {number(self.options.delta)}"

    def without_model(self) -> Plan:
        """For what is handed on, or kept longer than the model."""
        return replace(self, _forecaster=None)

    def __getstate__(self) -> dict[str, Any]:
        """What would help is looked for now: a copy has nothing to look for it in."""
        return {**self.__dict__, "answer": self.answer, "_forecaster": None}

    # ------------------------------------------------------------------ plain data
    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon": self.options.epsilon,
            "delta": self.options.delta,
            "beta": self.options.beta,
            "feasibility": self.options.feasibility,
            "chosen": self.chosen.mechanism,
            "forced": self._forced,
            "answer": self.answer,
            "runner_up": self.runner_up,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "lower_bounds": list(self.lower_bounds),
            "cells": list(self._cells),
            "protects": self.protects,
            "better": self._better,
            "request": plain_fields(self.options),
        }

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Self:
        """It prints and compares."""
        candidates = part(tuple[Candidate, ...], data, "candidates")
        name = part(str, data, "chosen")
        chosen = [each for each in candidates if each.mechanism == name and each.forecast is not None]
        if not chosen:
            raise Misfit("no candidate with a forecast has that name", "chosen")
        words: Any = tuple[str, ...]
        plan = cls(
            candidates,
            chosen[0],
            part(Options, data, "request"),
            part(words, data, "lower_bounds"),
            part(str, data, "runner_up"),
            part(str, data, "protects"),
            part(bool, data, "forced"),
            part(str, data, "answer"),
            part(words, data, "cells"),
        )
        plan.__dict__["_better"] = part(str, data, "better")  # what was found out then
        return plan

    # ------------------------------------------------------------------ in words
    def __repr__(self) -> str:
        return f"<{self._title}: {self.chosen.mechanism}>"

    def __str__(self) -> str:
        """The answer first: the choice, what it says, what it does to the constraints; then what else there is."""
        chosen, forecast = self.chosen, self._forecast
        head = [wrapped(self.answer)] if self.answer else []
        head.append(wrapped(f"{self._title}: {chosen.mechanism}"))
        lines = [*self._expected, *forecast.rows, *self._cells[:2], forecast.statement]
        lines.append(f"{_spends(forecast)}; {forecast.work}")
        lines += [f"protects: {self.protects}"] if self.protects and chosen.reads else []
        head += [wrapped(line, "  ") for line in lines]
        tail, second = [], self._named(self.runner_up)
        if second is not None and second.forecast is not None:
            said = "says nothing here" if second.forecast.vacuous else error_words(second.forecast)
            tail.append(wrapped(", ".join(filter(None, (f"runner-up: {second.mechanism}", said)))))
        tail += [wrapped(f"better: {self._better}")] if self._better else []
        tail += [wrapped(f"{c.mechanism} {c.reason}") for c in self.candidates if c.code == "failed"]
        others = [c for c in self.candidates if c not in (chosen, second)]
        count = f"{len(others)} other{'s' * (len(others) > 1)}: print(plan.table())"
        more = f", plan.why({others[0].mechanism!r})" if others else ""
        tail.append(wrapped(count + more if others else "print(plan.table()) has all"))
        for line in (*self._split(), *forecast.caveats):  # remarks, as many as there is room for
            remark = wrapped(line, "  ")
            if "\n".join([*head, remark, *tail]).count("\n") >= _MOST_LINES:
                break
            head.append(remark)
        return screenful("\n".join([*head, *tail]), "plan.to_dict()")

    @property
    def _expected(self) -> list[str]:
        """What the answer is expected to be like, and what other treatments would give; or why that is not known."""
        remark = self._forecast.remark
        if not self._forecast.expected:
            return [f"expected: {remark}"] if remark else []
        (mode, own), *others = self._forecast.expected.items()
        more = "; ".join(f"{name}: {each.cost_words}" for name, each in others)
        treated = f", {mode}" * bool(others)
        return [f"expected{treated}: {own}" + f" ({more})" * bool(more) + f"; {remark}" * bool(remark)]

    def table(self) -> TextTable:
        """The comparison of all: every forecast with its statement, and why each of the others does not serve."""
        said = [each for each in self.candidates if each.forecast is not None]
        rows, statements = [], []
        forecasts = [each.forecast for each in said if each.forecast is not None]
        besides = list(dict.fromkeys(name for each in forecasts for name in each.error.expectation()))
        for candidate in said:
            forecast = candidate.forecast
            assert forecast is not None
            mark, name = "->" if candidate is self.chosen else "", candidate.mechanism
            spends = number(forecast.epsilon), number(forecast.delta)
            more = (number(forecast.error.expectation().get(each, math.nan)) for each in besides)
            rows.append((mark, name, *forecast.error.cells(forecast.proved), *more, *spends))
            # Below the table: a column of them is long where lines are short.
            statements.append(f"{name}: {forecast.statement}; {forecast.work}")
        stopped: dict[str, list[str]] = {}  # each reason once, with the mechanisms it stops
        for candidate in self.candidates:
            if candidate.forecast is None:
                stopped.setdefault(candidate.reason, []).append(candidate.mechanism)
        forecast = self._forecast
        footer = (*self._expected, *statements, *forecast.rows, *self._split(), *forecast.caveats, *self.lower_bounds)
        others = (f"not {', '.join(names)}: {reason}" for reason, names in stopped.items())
        columns = "", "mechanism", *forecast.error.columns, *besides, "epsilon", "delta"
        title = f"{self.answer}\n{self._title}" if self.answer else self._title
        return TextTable(columns, rows, title, (*footer, *others), said.index(self.chosen))

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def why(self, mechanism: str) -> str:
        """All that the plan knows of one mechanism: its statement and what it spends, or why it was not chosen.

        Raises
        ------
        SpecificationError
            For a name that is not in the plan.
        """
        candidate = self._named(mechanism)
        if candidate is None:
            names = ", ".join(c.mechanism for c in self.candidates)
            raise SpecificationError(f"the plan has no mechanism {mechanism!r}", remedy=f"one of {names}")
        forecast, chosen = candidate.forecast, candidate is self.chosen
        first = f"{candidate.mechanism} ({candidate.source}): {'chosen' if chosen else 'not chosen'}"
        lines = [candidate.reason]
        if forecast is not None:
            lines = [forecast.statement, f"{_spends(forecast)}; {forecast.work}", *forecast.rows, *forecast.caveats]
            if not chosen:
                words, others = error_words(forecast, average=True), error_words(self._forecast, average=True)
                lines.append(f"{words}; {self.chosen.mechanism}: {others}")
        return "\n".join([wrapped(first), *(wrapped(line, "  ") for line in lines)])

    def _named(self, mechanism: str) -> Candidate | None:
        return next((each for each in self.candidates if each.mechanism == mechanism), None)

    def _split(self) -> tuple[str, ...]:
        """How the chosen mechanism splits its budget, when several parts are private."""
        parts = {k: v for k, v in self._forecast.noise.items() if isinstance(v, Mapping) and "share" in v}
        if len(parts) < 2 or all(part["share"] == 1 for part in parts.values()):  # of records that are not the same
            return ()
        shares = ", ".join(f"{name} {number(part['share'])}" for name, part in parts.items())
        return (f"split of the budget (shares of epsilon, or of mu for Gaussian noise): {shares}",)

    # ------------------------------------------------------------------ explained, drawn, simulated
    def explain(self) -> PlanExplained:
        """What the statement means, why each other mechanism was not taken, and what to change to do better."""
        from dpmodel.show.explain import PlanExplained  # only shown where it is asked for

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
        from dpmodel.show.plan_figure import picture

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
            For models other than regressions and linear programs with declared ranges, copies of plans, and mechanisms
            that are not in the plan or do not apply.
        """
        if self._forecaster is None:
            raise SpecificationError("simulate: a copy of a plan holds no model", remedy="problem.plan(...).simulate()")
        if not isinstance(runs, int) or runs < 1:
            raise SpecificationError(f"runs={runs!r}", remedy="an integer of 1 or more")
        applies = [each.mechanism for each in self.candidates if each.eligible]
        names = [n for n in (self.chosen.mechanism, self.runner_up) if n] if mechanisms is None else list(mechanisms)
        for name in names:
            if name not in applies:
                raise SpecificationError(f"simulate: {name!r} does not apply", remedy=f"one of {', '.join(applies)}")
        at = checked_epsilons(epsilons, self.options.epsilon)
        there = {each: self._forecaster.at("epsilon", each) for each in at}
        return Simulated({(name, each): there[each].simulate(name, runs) for name in names for each in at})
