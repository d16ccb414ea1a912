"""A plan: the mechanisms compared and the one chosen, in words and JSON, and at other epsilons, records and so on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpmodel.contract import Candidate, Model, Options
from dpmodel.errors import SpecificationError
from dpmodel.forecast import ExcessRisk, Forecast, Violation
from dpmodel.simulate import simulate
from dpmodel.text import Misfit, html_table, number, part, plain, plain_fields, read, screenful, table, wrapped

if TYPE_CHECKING:
    from dpmodel.show.explain import PlanExplained

SMALLEST_DELTA = 1e-12  # beyond all doubt: one in the number of all people, over a hundred
_MOST = 4  # constraints that a caption names


@dataclass(frozen=True)
class Anew:
    """``model``, ``options`` : what was planned; ``mechanisms`` : all that were compared; ``compared`` : what some
    of them say of themselves of a model at a request."""

    model: Model
    options: Options
    mechanisms: Sequence[Any]
    compared: Callable[[Model, Options, Sequence[Any]], Sequence[Candidate]]

    @property
    def constraints(self) -> tuple[str, ...]:
        """Labels of some private constraints."""
        found = dict.fromkeys(label for cell in self._cells if cell.part != "objective" for label in cell.where)
        return (*list(found)[:_MOST], *(["..."] if len(found) > _MOST else []))

    @property
    def varies(self) -> tuple[str, ...]:
        """What besides epsilon can be varied: "records", "sensitivity"."""
        return self.model.varies

    @property
    def private(self) -> tuple[str, ...]:
        """Names of the private parameters."""
        return tuple(dict.fromkeys(cell.parameter for cell in self._cells))

    @property
    def _cells(self) -> Sequence[Any]:
        """Of Table 1; families without them have none."""
        return getattr(getattr(self.model, "classification", None), "cells", ())

    def here(self, against: str) -> float:
        """Where the plan stands on an axis: its epsilon, its number of records, 1 for the sensitivity."""
        if against == "epsilon":
            return self.options.epsilon
        model: Any = self.model
        return float(model.count) if against == "records" else 1.0

    def at(self, value: float, against: str = "epsilon") -> Sequence[Candidate]:
        model, options = self._there(value, against)
        return self.compared(model, options, self.mechanisms)

    def of(self, name: str, epsilon: float) -> Candidate:
        """What one of them says at another epsilon."""
        return self.at_options(replace(self.options, epsilon=epsilon), name)

    def at_options(self, options: Options, name: str) -> Candidate:
        """What one of them says of another request."""
        return self.compared(self.model, options, self._named(name))[0]

    def with_delta(self, now: Sequence[Candidate]) -> Candidate | None:
        """Of a regression at delta 0 the best of what does not serve it there, at the smallest delta."""
        if self.options.delta > 0 or not any(c.forecast and isinstance(c.forecast.error, ExcessRisk) for c in now):
            return None
        refused = {c.mechanism for c in now if not c.eligible and c.code == ""}
        others = [each for each in self.mechanisms if each.name in refused]
        found = self.compared(self.model, replace(self.options, delta=SMALLEST_DELTA), others)
        told = [(c.forecast.error.rank, c.mechanism, c) for c in found if c.forecast is not None]
        return min(told)[2] if told else None

    def varied(self, what: str, factor: float, name: str, parameter: str = "") -> Candidate:
        """What one of them says with ``factor`` times the records or the sensitivity (of one parameter, or all)."""
        return self.compared(self.model.varied(what, factor, parameter), self.options, self._named(name))[0]

    def least(self, value: float, against: str = "epsilon") -> Mapping[str, float]:
        model, options = self._there(value, against)
        return model.least(options)

    def _there(self, value: float, against: str) -> tuple[Model, Options]:
        if against == "epsilon":
            return self.model, replace(self.options, epsilon=value)
        return self.model.varied(against, value / self.here(against)), self.options

    def _named(self, name: str) -> list[Any]:
        return [each for each in self.mechanisms if each.name == name]

    def measured(self, name: str, epsilon: float, runs: int) -> Mapping[str, Sequence[float]]:
        mechanism = next(each for each in self.mechanisms if each.name == name)
        return simulate(mechanism, self.model, replace(self.options, epsilon=epsilon), runs)


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
        return table(("mechanism", "epsilon", "runs", *heads), rows, title="Measured on synthetic databases")


def checked_epsilons(epsilons: Any, here: float, name: str = "epsilons") -> list[float]:
    """Increasing; by default from an eighth to eight times that of the plan. ``name`` : for messages.

    Raises
    ------
    SpecificationError
        For anything but finite numbers above 0.
    """
    try:
        given = sorted({float(each) for each in epsilons}) if epsilons is not None else _around(here)
    except (TypeError, ValueError):
        given = []
    if not given or not all(0 < each < math.inf for each in given):
        raise SpecificationError(f"{name} are finite numbers above 0", remedy="[0.1, 1, 10], say, or leave it out")
    return given


def _around(here: float) -> list[float]:
    return [here * 2.0**power for power in range(-3, 4)]


# --------------------------------------------------------------------------------------------------- a plan in words
# Lines of a printed plan, and how many of them may go to remarks on the chosen mechanism.
MOST_LINES = 16


def short_text(plan: Plan) -> str:
    """The answer first: the choice, what it says, what it does to the constraints; then what else there is."""
    chosen = plan.chosen
    assert chosen.forecast is not None
    head = [wrapped(plan.answer)] if plan.answer else []
    head.append(wrapped(f"{plan.title}: {chosen.mechanism}"))
    head += [wrapped(line, "  ") for line in (*chosen.forecast.rows, *plan.cells[:2])]
    head.append(wrapped(chosen.forecast.statement, "  "))
    head.append(wrapped(f"{_spends(chosen.forecast)}; {chosen.forecast.work}", "  "))
    if plan.protects and chosen.reads:
        head.append(wrapped(f"protects: {plan.protects}", "  "))
    tail, second = [], _candidate(plan, plan.runner_up)
    if second is not None and second.forecast is not None:
        told = "says nothing here" if second.forecast.vacuous else error_words(second.forecast)
        tail.append(wrapped(f"runner-up: {second.mechanism}, {told}"))
    tail += [wrapped(f"better: {plan.better}")] if plan.better else []
    tail += [wrapped(f"{c.mechanism} {c.reason}") for c in plan.candidates if c.code == "failed"]
    others = [c for c in plan.candidates if c not in (chosen, second)]
    count = f"{len(others)} other{'s' * (len(others) > 1)}"
    more = f"{count}: print(plan.table())" if others else "print(plan.table()) has all"
    if others:
        more += f", plan.why({others[0].mechanism!r})"
    tail.append(wrapped(more))
    remarks: list[str] = []
    for line in (*plan.split(), *chosen.forecast.caveats):
        told = wrapped(line, "  ")
        if _lines([*head, *remarks, told, *tail]) > MOST_LINES:
            break
        remarks.append(told)
    return "\n".join([*head, *remarks, *tail])


def why_text(plan: Plan, mechanism: str) -> str:
    """``Plan.why``."""
    candidate = _candidate(plan, mechanism)
    if candidate is None:
        names = ", ".join(c.mechanism for c in plan.candidates)
        raise SpecificationError(f"the plan has no mechanism {mechanism!r}", remedy=f"one of {names}")
    forecast, winner = candidate.forecast, plan.chosen.forecast
    assert winner is not None
    lines = [f"{candidate.mechanism} ({candidate.source}): {'chosen' if candidate is plan.chosen else 'not chosen'}"]
    if forecast is None:
        lines.append(candidate.reason)
    else:
        lines += [forecast.statement, f"{_spends(forecast)}; {forecast.work}", *forecast.rows, *forecast.caveats]
        if candidate is not plan.chosen:
            words, others = error_words(forecast, average=True), error_words(winner, average=True)
            lines.append(f"{words}; {plan.chosen.mechanism}: {others}")
    first, *rest = lines
    return "\n".join([wrapped(first), *(wrapped(line, "  ") for line in rest)])


def error_words(forecast: Forecast, average: bool = False) -> str:
    """Its error in the columns of its kind, what plans compare besides, and how many constraints are left out. As in
    the statement, in brackets: the violation where only the true numbers leave a point."""
    error = forecast.error
    told = zip(error.columns, error.cells(forecast.proved), strict=True)
    parts = [f"{name} {value}" for name, value in told if value != "-"]
    if isinstance(error, Violation):
        if error.alone < error.violation:
            parts[-1] = f"{error.columns[-1]} {number(error.alone)} ({number(error.violation)})"
        # Plans compare by the average, which may be the smaller one where the bound is the larger one.
        parts += [f"{number(error.expected)} on average"] if average and error.expected > 0 else []
        parts += [f"tightened by {number(error.tightening)}"] if error.tightening > 0 else []
        parts += [f"{error.slack_rows} constraints left out"] if error.slack_rows else []
    words = ", ".join(parts)
    return f"says nothing here ({words})" if forecast.vacuous else words


def _spends(forecast: Forecast) -> str:
    if forecast.spends_nothing:
        return "spends nothing"
    return f"spends epsilon {number(forecast.epsilon)}, delta {number(forecast.delta)}"


def _candidate(plan: Plan, mechanism: str) -> Candidate | None:
    return next((each for each in plan.candidates if each.mechanism == mechanism), None)


def _lines(parts: list[str]) -> int:
    return sum(part.count("\n") + 1 for part in parts)


# ---------------------------------------------------------------------------------------------------------- the plan
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
