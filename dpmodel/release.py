"""The release: all that leaves the private world, as frozen plain data.

Nothing here computes anything private or checks privacy. Whoever builds a `Release` vouches that every field
is public, paid for, or post-processed from what was paid for; that includes notes and timings.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self, cast, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpmodel._types import Labels
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.figures import entry_names, moved_constraints, released_values
from dpmodel.intervals import IntervalTable, table_of, table_without
from dpmodel.marks.measured import Measured, Moments
from dpmodel.text import Misfit, PlainData, TextTable, long_frame, named_text, number, part, printable, screenful

# Printed cells of a classification, and variables and multipliers; all of them are data.
_MOST_CELLS, _MOST_ARRAYS = 5, 6
# Multipliers that solvers leave at constraints that do not bind are smaller.
_BINDS = 1e-6


@dataclass(frozen=True)
class Guarantee(PlainData):
    """Differential privacy that a release satisfies.

    Parameters
    ----------
    epsilon : privacy parameter >= 0.
    delta : privacy parameter in [0, 1]. Both zero: nothing private was read.
    neighbors : neighbor relation, for example ``"replace-one"``.
    record : a sentence that says what a record is.
    """

    epsilon: float
    delta: float = 0.0
    neighbors: str = "replace-one"
    record: str = ""

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon is {self.epsilon}, it has to be >= 0")
        if not 0 <= self.delta <= 1:
            raise ValueError(f"delta is {self.delta}, it has to be in [0, 1]")

    def __str__(self) -> str:
        if self.epsilon == 0 and self.delta == 0:
            about = f": {self.record}" if self.record else ""
            return f"no private data was read (epsilon = 0, delta = 0){about}"
        amount = f"epsilon = {number(self.epsilon)}"
        if self.delta > 0:
            amount += f", delta = {number(self.delta)}"
        text = f"differential privacy with {amount}, neighbors: {self.neighbors}"
        return printable(f"{text}; {self.record}" if self.record else text)


@dataclass(frozen=True)
class Accuracy(PlainData):
    """How far the released solution may be from a solution of the private program.

    Parameters
    ----------
    alpha : error bound in the units of the statement, or None if there is no bound.
    beta : probability in [0, 1] with which the bound may fail, or None if it never fails or there is none.
    slack_rows : number of constraints that the bound leaves out; None if unknown.
    proved : True for a theorem, False for a forecast.
    statement : the bound in words.
    objective_alpha : part of the bound that concerns the objective value.
    violation_alpha : part of the bound that concerns the violation of constraints.
    vacuous : whether it says no more than is known without data.
    short : private constraints that may be missed all the same, and by how much at most: read off the released numbers.
    """

    alpha: float | None
    beta: float | None
    slack_rows: int | None = 0
    proved: bool = False
    statement: str = ""
    objective_alpha: float | None = None
    violation_alpha: float | None = None
    vacuous: bool = False
    short: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        if self.statement:
            text = self.statement
        elif self.alpha is None:
            text = "no error bound"
        else:
            text = f"error at most {number(self.alpha)}"
            if self.beta is not None:
                text += f" except with probability {number(self.beta)}"
            if self.slack_rows:
                text += f", {self.slack_rows} constraints left out"
        return text if self.vacuous else f"{text} ({'proved' if self.proved else 'forecast'})"


@dataclass(frozen=True)
class Certificate(PlainData):
    """What a part of the budget measured of the released answer: ``solve(certify=)``.

    ``what`` was measured; ``estimate``, with noise; with probability ``level`` the true number lies between ``lower``
    and ``upper``; ``statement`` : in words; ``epsilon``, ``delta`` : what it cost, part of what the release cost.
    ``optimum`` : where the same measurement bounds the optimum, between which numbers it lies, with the same ``level``.
    """

    what: str
    estimate: float
    lower: float
    upper: float
    level: float
    statement: str
    epsilon: float
    delta: float
    optimum: tuple[float, float] | None = None

    def __str__(self) -> str:
        return self.statement


@dataclass(frozen=True)
class Interval:
    """``[lower, upper]`` covers the optimum with probability ``level`` at least.

    ``of`` : "the optimum", or "the optimum at the prices", in which a row may be missed at its price: the two are the
    same where prices exceed multipliers, and ``lower`` holds for both; it says where the objective's private constant
    term is left out. ``form`` : how each end was found; ``proved`` : whether it holds for all data; ``statement`` : in
    words, which it prints. In units of the objective, infinite where nothing bounds an end.
    """

    lower: float
    upper: float
    level: float
    of: str
    form: str
    proved: bool
    statement: str

    def __str__(self) -> str:
        return self.statement


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Release(PlainData):
    """All that leaves the private world.

    Arrays are copied and made read-only, mappings become read-only views, lists tuples. Pickling and copying
    keep that. Two releases are equal if they are the same object.

    Parameters
    ----------
    mechanism : registered name of the mechanism.
    guarantee : privacy of everything in this release together.
    accuracy : the error bound.
    status : for example ``"optimal"``; decided on released data.
    value : objective value computed from released quantities, or None.
    variables : name -> array of the variable's shape.
    duals : constraint label -> array of the constraint's shape, from released data.
    labels : name of a variable or dual -> per axis its name and its categories, where the model has names.
    spent : (epsilon, delta) taken from the budget.
    timings : phase -> seconds. Running times can depend on data, so only of phases that read released data.
    classification : one line per cell of the program.
    plan : the plan in plain values.
    notes : remarks for people.
    certificate : what a part of the budget measured of the answer (``solve(certify=)``), or None.
    measured : the numbers that were released, with the law of their noise; () where the mechanism released none.
    estimates : those of ``expected`` that were found so far.
    """

    _spread: ClassVar[float | None] = None  # of printed variables, for ``text.rounded``; None: four digits

    mechanism: str
    guarantee: Guarantee
    accuracy: Accuracy
    status: str
    value: float | None = None
    variables: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    duals: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    labels: Mapping[str, Labels] = field(default_factory=dict)
    spent: tuple[float, float] = (0.0, 0.0)
    timings: Mapping[str, float] = field(default_factory=dict)
    classification: tuple[str, ...] = ()
    plan: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    measured: tuple[Measured | Moments, ...] = ()
    certificate: Certificate | None = None
    estimates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.spent) != 2:
            raise ValueError("spent is a pair (epsilon, delta)")
        for name in ("variables", "duals"):
            arrays = {key: _frozen_array(np.asarray(item)) for key, item in getattr(self, name).items()}
            object.__setattr__(self, name, MappingProxyType(arrays))
        for name in ("labels", "spent", "timings", "classification", "plan", "notes", "estimates"):
            object.__setattr__(self, name, _freeze(getattr(self, name)))

    # A MappingProxyType can neither be pickled nor copied, and a pickled array comes back writeable.
    def __getstate__(self) -> dict[str, Any]:
        return {item.name: _thaw(getattr(self, item.name)) for item in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, item in state.items():
            object.__setattr__(self, name, item)
        self.__post_init__()

    def __repr__(self) -> str:
        return (
            f"<Release {self.mechanism}: {self.status}, epsilon={number(self.guarantee.epsilon)}, "
            f"delta={number(self.guarantee.delta)}>"
        )

    def _rows(self) -> list[tuple[str, object]]:
        epsilon, delta = self.spent
        rows: list[tuple[str, object]] = [
            ("status", self.status),
            *([("value", f"{self.value:.8g}")] if self.value is not None else []),
            *([("expected", self._expected)] if self._expected else []),
            *(("note", line) for line in self.notes),
            ("accuracy", self.accuracy),
            *([("certificate", self.certificate.statement)] if self.certificate is not None else []),
            ("guarantee", self.guarantee),
            ("spent", f"epsilon {number(epsilon)}, delta {number(delta)}"),
        ]
        for kind, arrays in (("variable", self.variables), ("dual", self.duals)):
            told = list(arrays.items())[: _MOST_ARRAYS if len(arrays) > _MOST_ARRAYS + 1 else None]
            rows += [
                (f"{kind} {name}", named_text(item, self.labels.get(name, ()), self._spread)) for name, item in told
            ]
            left = len(arrays) - len(told)
            rows += [(kind, f"... and {left} more: release.{kind}s[name], release.to_dict()")] if left else []
        rows += [("cell", line) for line in self.classification[:_MOST_CELLS]]
        if len(self.classification) > _MOST_CELLS:
            rows.append(("cell", f"... and {len(self.classification) - _MOST_CELLS} more in to_dict()"))
        if self.timings:
            rows.append(("seconds", ", ".join(f"{name} {item:.2g}" for name, item in self.timings.items())))
        return rows

    @property
    def _expected(self) -> str:
        """The estimates in words."""
        rows, short, amount = (self.estimates.get(name, 0.0) for name in ("rows", "short", "shortage"))
        if not rows:
            return ""
        few, each = float(f"{short:.2g}"), f" ({number(amount / short)} each)" if short > 0 else ""
        return f"{few:g} of {number(rows)} private rows short, by {number(amount)} in all{each}, an estimate"

    def to_frame(self, name: str | None = None, *, backend: str = "pandas") -> Any:
        """A variable or dual as a data frame: a column for every axis with its names, and ``value``.

        Parameters
        ----------
        name : of the variable or dual; None for all variables, of several with columns ``variable`` and ``entry`` (a
            tuple where there are several axes). ``backend`` : "pandas", "polars" or "pyarrow".

        Raises
        ------
        SpecificationError, MissingExtraError
            For an unknown name, and a backend that is not installed.
        """
        if name is None and len(self.variables) > 1:
            axes: list[Any] = []
            for each, value in self.variables.items():
                shape = np.shape(value)
                named = [kinds for _, kinds in self.labels.get(each, ())] or [()] * len(shape)
                listed = [kinds or range(length) for kinds, length in zip(named, shape, strict=True)]
                axes += [(each, place[0] if len(place) == 1 else place) for place in itertools.product(*listed)]
            every = np.concatenate([np.ravel(value) for value in self.variables.values()])
            return long_frame({"value": every}, ((("variable", "entry"), tuple(axes)),), backend)
        name = self._named("to_frame", name)
        return long_frame({"value": {**self.duals, **self.variables}[name]}, self.labels.get(name, ()), backend)

    def _named(self, who: str, name: str | None) -> str:
        """``name``, or that of the only variable."""
        known = {**self.variables, **self.duals}
        if name is None and len(self.variables) == 1:
            name = next(iter(self.variables))
        if name is None or name not in known:
            raise SpecificationError(
                f"{who}: which variable?" if name is None else f"{who}: no variable or dual {name!r}",
                why=f"the release has {len(self.variables)} variables and {len(self.duals)} duals",
                remedy=f"one of {', '.join(map(repr, known)) or 'none: nothing was released'}",
            )
        return name

    @property
    def title(self) -> str:
        """What it is, in a line."""
        if self.guarantee.epsilon == self.guarantee.delta == 0:
            if not self.plan:
                return "Solved without noise"
            return "Solved without data" if self.plan.get("epsilon") else f"Post-processing by {self.mechanism}"
        return f"Private release by {self.mechanism}"

    # ------------------------------------------------------------------ other answers from the same numbers
    def answered_by(self, problem: Any, model: Any, options: Any) -> None:
        """Let figures ask ``problem``, and ``compare``, ``optimum`` and ``expected`` its ``model`` with these
        ``options``, while they live; a copy or a pickle of the release has none."""
        object.__setattr__(self, "_problem", weakref.ref(problem))
        object.__setattr__(self, "_model_and_options", (weakref.ref(model), options))

    @property
    def _is_copy(self) -> bool:
        """Whether it was copied or read, by another program perhaps, and no problem of this one solved for it."""
        return not hasattr(self, "_problem")

    @property
    def _no_numbers(self) -> str:
        return f"{self.mechanism} released no numbers, or two private parameters with one name"

    def _model_options(self) -> tuple[Any, Any]:
        """The model and the options, None where they are gone."""
        found, options = getattr(self, "_model_and_options", (lambda: None, None))
        return found(), options

    @property
    def expected(self) -> Mapping[str, float]:
        """Estimates, no bounds, of how good the released point is, over the law of the noise.

        ``rows`` that have a price or could have one, how many of them are ``short``, and their ``shortage`` in all;
        ``regret``, what the answer costs above the optimum, shortages at their prices, by a bootstrap. The regret takes
        a few programs like the one that was solved, when this is first read, and costs no privacy. It is left out where
        no numbers were released or there is no objective, under "strict", and in a copy that has no problem to ask.
        """
        model, options = self._model_options()
        if "regret" not in self.estimates and self.measured and model is not None:
            with contextlib.suppress(DPModelError):
                regret = model.regret(self.measured, options)
                found = {"regret": regret} if math.isfinite(regret) else {}
                object.__setattr__(self, "estimates", MappingProxyType({**self.estimates, **found}))
        return self.estimates

    @cached_property
    def optimum(self) -> Any:
        """An interval that covers the true optimum with probability 1 - beta, from the released numbers alone.

        It is found when first asked for, a few programs like the one that was solved, and costs no privacy. ``lower``,
        ``upper``, ``level``, ``of`` ("the optimum", or "the optimum at the prices": a constraint may be missed at its
        price, by default the one of the service level; it says where a private constant term is left out), ``form``,
        ``proved``, ``statement``, which it prints.

        Raises
        ------
        SpecificationError
            Where the mechanism released no numbers, and for a copy of a release, which has no problem to ask.
        """
        model, options = self._model_options()
        if not self.measured or model is None:
            gone = "its problem is gone, or has other public numbers by now"
            raise SpecificationError(
                f"optimum: {gone if self.measured else self._no_numbers}",
                why="the interval is found by programs over released numbers",
                remedy="problem.release.optimum after a solve with mechanism='laplace-once', or a resolve",
            )
        # An answer to numbers that were released before spends nothing: its prices may have been chosen after them.
        return model.optimum(self.measured, options, looked=self.spent == (0.0, 0.0))

    def compare(self, *, beta: float = 0.05) -> TextTable:
        """The treatments of private constraints beside each other, from the released numbers: it costs nothing.

        For each its expected cost, which is the objective at the answer and what it is expected to be short by, at the
        prices of this release or the usual ones; the objective alone, as the released numbers have it; how many private
        rows are expected to be short, by how much in all; and its regret, what it costs above the optimum at these
        prices, by a bootstrap. Private costs look better at the answer than they are, because it leans on those that
        noise made low: the bootstrap's figure for that is part of the expected cost. All but the objective are
        estimates over the law of the noise. One row where no constraint is private: nothing is treated.

        Parameters
        ----------
        beta : of "safe" and "relaxed".

        Raises
        ------
        SpecificationError
            Where the mechanism released no numbers, and for a copy of a release, which has no problem to ask.
        """
        model, options = self._model_options()
        if not self.measured or model is None:
            raise SpecificationError(
                f"compare: {'its problem is gone' if self.measured else self._no_numbers}",
                why="treatments are answered by the problem, from released numbers",
                remedy="problem.release.compare() after a solve, or problem.resolve(feasibility, release=release)",
            )
        compared = model.compared(self.measured, beta, None if options is None else options.prices)
        columns = ("", "feasibility", *next(iter(compared.values()), {}))
        own = self.plan.get("feasibility")  # what was chosen, where "auto" was asked for
        rows = [("->" if name == own else "", name, *row.values()) for name, row in compared.items()]
        title = "The same released numbers, treated otherwise: estimates, at no cost in privacy (->: this release)"
        return TextTable(columns, rows, title, marked=list(compared).index(own) if own in compared else None)

    # ------------------------------------------------------------------ intervals
    def intervals(self, level: float = 0.95, *, at: Any = None) -> IntervalTable:
        """Intervals for what was estimated, from released numbers alone: they cost no privacy.

        Of a regression by sufficient statistics: for the coefficients of the population that the rows were drawn from.
        They cover the noise and the sampling (if the residuals have one variance), with labels and columns clipped to
        their bounds and the model's public ridge (``dpmodel.intervals``). They lie around ``estimate``, the least
        squares of the noisy sums; ``released`` is shrunk where noise drowns a direction, and lies elsewhere then.

        Of a linear program whose numbers were measured once: for its variables at the optimum of the program as it is
        written, at the true numbers (rows short at prices, where these were given). An answer that is priced, safe or
        relaxed may lie outside, on purpose. Short where the noise leaves no doubt which rows bind, else the range of
        all optima that it leaves (``dpmodel.programs.variables``). They need the problem; a copy has none.

        ``level`` : probability that an interval holds its truth, each on its own. ``at`` : of a regression: rows (r,
        k), one number for each coefficient but the intercept: intervals for the predictions there, means of the label.
        Where the mechanism released no numbers, or no law is known, a SpecificationError says why, and what has them.
        """
        from dpmodel.marks.dataset.estimates import check_level  # with readers of tables, which few solves need

        level, found = check_level(level), [each for each in self.measured if isinstance(each, Moments)]
        if len(found) == 1 and found[0].values.size and not found[0].refused:
            return table_of(found[0], level, self.variables, self.labels, at)
        model, options = self._model_options()
        if self.measured and not found and at is None and model is not None:
            return cast(IntervalTable, model.intervals(self, options, level))
        why = "no law is known of what it released: it says nothing of the covariance of the data"
        remedy = "mechanism='sufficient-statistics' for least squares without kinks or constraints that bind"
        if found:
            why = found[0].refused or why
        elif self.measured:
            why = "at= is for coefficients" if model is not None else "its problem is gone, which its variables are of"
            remedy = "a program's own problem.release; release.measured[0].noisy.intervals(), of private numbers"
        elif self.guarantee.epsilon == self.guarantee.delta == 0:
            remedy = "dpm.released.intervals(fit) for fits of published numbers"
        raise SpecificationError(f"intervals: none for {self.mechanism}", why=why, remedy=remedy)

    def summary(self, level: float = 0.95) -> TextTable:
        """``intervals`` (at ``level``) under what was solved, as statistics packages print it, or why it has none."""
        from dpmodel.marks.dataset.estimates import check_level

        check_level(level, "summary")
        spent = f"epsilon {number(self.guarantee.epsilon)}, delta {number(self.guarantee.delta)}"
        try:
            table = self.intervals(level)
        except SpecificationError as error:
            below = [f"No intervals: {error.why}. Try: {error.remedy}.", f"Accuracy: {self.accuracy}."]
            return table_without(self.variables, self.labels, f"{self.mechanism}: {spent}", below)
        count = [each.count for each in self.measured if isinstance(each, Moments)]
        what = f"Least squares by {self.mechanism}: {count[0]} records" if count else self.title
        return table.table(f"{what}, {spent}")

    # ------------------------------------------------------------------ figures (extra [plot]) and the report
    @property
    def moved(self) -> Mapping[str, Any]:
        """``constraints`` : label of a private one -> least and largest amount by which its rows were made easier
        (harder: below 0); ``others`` : how many more there are. Empty where that is not known."""
        candidates: Any = self.plan.get("candidates", ())
        chosen = [each for each in candidates if each["mechanism"] == self.mechanism and each["forecast"]]
        found: Mapping[str, Any] = chosen[0]["forecast"].get("moved", {}) if chosen else {}
        return found if found.get("constraints") else {}

    def plot(self, *, beta: float = 0.05, ax: Any = None) -> Any:
        """Draw each private row of a program: the number that was released, what the answer has there, and the band of
        the noise, in which all true numbers lie with probability ``1 - beta``.

        ``ax`` : matplotlib axes to draw on. Returns the figure. Raises MissingExtraError without matplotlib, and
        SpecificationError where no numbers of private rows were released, and for a copy, which has no problem to ask.
        """
        problem = getattr(self, "_problem", lambda: None)()
        if not self.measured or problem is None:
            raise SpecificationError(
                f"plot: {'its problem is gone' if self.measured else self._no_numbers}",
                why="private rows are drawn beside the numbers that were released for them, as the problem has them",
                remedy="problem.release.plot() after a solve, or plot_values()",
            )
        return problem._rows_drawn(self, beta, ax)

    def plot_constraints(self, ax: Any = None) -> Any:
        """Draw how far each private constraint was moved, which of them bind, and by how much a true one may be missed.

        ``ax`` : matplotlib axes to draw on. Returns the figure. Raises MissingExtraError without matplotlib, and
        SpecificationError where the mechanism moves no constraint by an amount that is known.
        """
        if not self.moved:
            raise SpecificationError(
                f"{self.mechanism} moved no constraint by a fixed amount",
                why="no constraint is private, what it did depends on x, or it works without noise on rows",
                remedy="release.accuracy says what is promised of private constraints; release.plot_values() draws x",
            )
        binding = {name for name, array in self.duals.items() if np.abs(array).max(initial=0.0) > _BINDS}
        pairs = {label: (pair[0], pair[1]) for label, pair in self.moved["constraints"].items()}
        # Those without a label of the user's are told with their text besides their number.
        binding |= {label for label in pairs if label.split(" (")[0] in binding}
        missed = self.accuracy.violation_alpha
        return moved_constraints(pairs, self.moved["others"], missed, binding, self._sentence, ax)

    def plot_values(self, name: str | None = None, *, intervals: Any = None, ax: Any = None) -> Any:
        """Draw a released variable or dual, with the names of its entries where the model has them.

        Parameters
        ----------
        name : may be left out where there is one variable. ``intervals`` : a pair of arrays, such as
            ``dpm.released.intervals`` gives for post-processing; releases of other mechanisms know no interval of
            single entries.

        Raises
        ------
        SpecificationError, MissingExtraError
            For an unknown name, intervals of another shape, and without matplotlib.
        """
        name = self._named("plot_values", name)
        array, title = {**self.duals, **self.variables}[name], f"{name}, as released by {self.mechanism}"
        caption = f"{array.size} released number{'s' * (array.size != 1)}. {self._sentence}"
        if intervals is None and self.guarantee.epsilon > 0:
            caption += " The statement is about all of them together: no interval of a single one is known."
        pair = None if intervals is None else tuple(intervals)
        return released_values(array, entry_names(array, self.labels.get(name, ())), title, caption, pair, ax)

    @property
    def _sentence(self) -> str:
        told = str(self.accuracy)
        return f"{told[:1].upper()}{told[1:]}."

    def report(self, file: str | os.PathLike[str], *more: Any) -> Path:
        """Write one self-contained page: statement, guarantee, values, figures (where matplotlib is installed), and the
        mechanisms compared. It loads nothing.

        Parameters
        ----------
        file : where to. ``more`` : what to add, each with a part of its own: figures (``plan.plot()``,
            ``problem.plot()``), and objects that notebooks show (a plan, a classification, a budget).

        Returns
        -------
        pathlib.Path
            Of the page.
        """
        from dpmodel.figures import report

        return report(self, file, more)

    def __str__(self) -> str:
        return screenful(str(TextTable(("", ""), self._rows(), title=self.title)), "release.to_dict()")

    def _repr_html_(self) -> str:
        return TextTable(("", ""), self._rows(), title=self.title)._repr_html_()

    @classmethod
    def _of(cls, data: Mapping[str, Any]) -> Self:
        hints = get_type_hints(cls)
        unknown = [name for name in data if name not in hints]
        if unknown:
            raise Misfit("no release has that", unknown[0])
        return cls(**{name: part(hints[name], data, name) for name in data})


def _frozen_array(array: NDArray[Any]) -> NDArray[Any]:
    copied = np.array(array, copy=True)
    copied.setflags(write=False)
    return copied


_PLAIN = frozenset((str, float, int, bool, type(None)))  # most of what is frozen, and quickly told


def _freeze(item: Any) -> Any:
    """Copy containers and arrays into read-only ones, at every depth; leave other objects alone."""
    if type(item) in (list, tuple):
        return tuple([value if type(value) in _PLAIN else _freeze(value) for value in item])
    if type(item) is dict or isinstance(item, Mapping):
        frozen = {key: value if type(value) in _PLAIN else _freeze(value) for key, value in item.items()}
        return MappingProxyType(frozen)
    return _frozen_array(item) if isinstance(item, np.ndarray) else item


def _thaw(item: Any) -> Any:
    """Undo what `_freeze` did to mappings, so that the result can be pickled."""
    if isinstance(item, Mapping):
        return {key: _thaw(value) for key, value in item.items()}
    return tuple(_thaw(value) for value in item) if type(item) is tuple else item
