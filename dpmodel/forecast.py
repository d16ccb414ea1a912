"""What a mechanism predicts from public facts: ``Forecast``, with an error of the kind that its family compares.

Each kind of error has its own columns in a plan and its own order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.contract import Options


Order = tuple[Any, ...]


class Error(ABC):
    """How far an answer may be from the best one, in the terms of one family. ``predictions`` : columns that are
    predictions although the statement is proved."""

    kind: ClassVar[str]
    columns: ClassVar[tuple[str, str]]
    predictions: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def alpha(self) -> float:
        """The error as one number, in units of the problem."""

    @property
    def rank(self) -> float:
        """The error as plans compare it."""
        return self.alpha

    @property
    def bounded(self) -> bool:
        """Whether it says anything at some budget: else only public bounds would help."""
        return math.isfinite(self.alpha)

    @abstractmethod
    def stated(self) -> tuple[float | None, float | None, int]:
        """For a release: what the objective may lose, what constraints may be violated by, and rows left out."""

    @abstractmethod
    def numbers(self, proved: bool) -> tuple[float, float]:
        """The two ``columns`` of a plan, nan for what is not said."""

    def drawn(self, proved: bool) -> dict[str, float]:
        """What a figure draws, by name."""
        return dict(zip(self.columns, self.numbers(proved), strict=True))

    def cells(self, proved: bool) -> tuple[str, str]:
        """The ``columns`` as text."""
        first, second = self.numbers(proved)
        return number(first), number(second)

    def order(self, forecast: Forecast, options: Options | None) -> Order:
        """Smaller is better. What says nothing comes last."""
        return forecast.vacuous, _rounded(self.rank)

    @classmethod
    def best(cls, served: Sequence[Forecast], options: Options | None) -> Forecast:
        """The one that a plan chooses; the first among equals."""
        return min(served, key=lambda each: each.error.order(each, options))

    def beats(self, bound: float, forecast: Forecast, options: Options) -> bool:
        """Whether ``forecast``, which this error is of, comes before whatever has a ``rank`` of at least ``bound``."""
        return not forecast.vacuous and _rounded(self.rank) < _rounded(bound)

    def contested(self, forecast: Forecast, options: Options) -> bool:
        """Whether the order does not settle the choice of ``forecast``, the first by it: all others are needed then."""
        return False

    @property
    def helps(self) -> bool:
        """Whether it is predicted to be less than without data, although the statement says nothing."""
        return False

    @property
    def nothing(self) -> bool:
        """Whether there is no error at all."""
        return False

    def records_needed(self) -> str:
        """How many records would help, in words, where that is known."""
        return ""

    def condition(self, options: Options) -> str:
        """On what condition the statement holds at another budget, in words."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        plain: Any = self
        given = {entry.name: getattr(plain, entry.name) for entry in fields(plain)}
        return {"kind": self.kind, **{name: None if value != value else value for name, value in given.items()}}


@dataclass(frozen=True)
class Violation(Error):
    """Programs: what may be lost in objective value, and by how much constraints may be violated.

    ``objective``, ``violation`` : at most this; nan where nothing is noised and nothing to be stated. Violations of
    cones count along their interior direction. ``slack_rows`` : private constraints that the statement leaves out, of
    ``private_rows``; ``width`` : how far any of them can be violated, ``span`` : how far the objective can vary, both
    public. ``exact`` : private constraints hold exactly, all but ``slack_rows``; preferred to small violations of all
    of them where neither was asked for. ``tightening`` : strict feasibility: by how much right-hand sides are moved
    inwards at most. ``against_public`` : the error predicted as a share of that of the best point that reads no data
    (its own is 1). It decides between mechanisms whose statements say nothing. ``expected`` : by how much a private
    constraint that binds is violated on average, where the law of the noise tells; nan: what is proved of it stands for
    that. ``alone`` : by how much one can be violated where no released number contradicts another; nan: ``violation``.
    ``relative`` : violations are shares of each constraint's own width and not amounts. ``centred`` : rows stand as
    released, and of the true optimum nothing is promised; a loss is one against the best that they allow.
    """

    kind: ClassVar[str] = "violation"
    columns: ClassVar[tuple[str, str]] = ("objective within", "violation within")

    objective: float = math.nan
    violation: float = math.nan
    slack_rows: int = 0
    private_rows: int = 0
    width: float = math.nan
    span: float = math.nan
    exact: bool = False
    tightening: float = math.nan
    against_public: float = math.nan
    expected: float = math.nan
    alone: float = math.nan
    relative: bool = False
    centred: bool = False

    @property
    def alpha(self) -> float:
        return max((a for a in (self.objective, self.violation) if not math.isnan(a)), default=0.0)

    @property
    def rank(self) -> float:
        """What plans compare when neither slack rows nor alpha was asked for: the violation that is expected of a
        private constraint, in its units, or the loss in objective if that is a larger part of its span."""
        return self._rank(self.proved if math.isnan(self.expected) else self.expected)

    @property
    def proved(self) -> float:
        """The mean violation that the statement allows: alpha, plus the width for the constraints left out."""
        left = 0.0 if math.isnan(self.width) else self.slack_rows / max(self.private_rows, 1)
        return (0.0 if math.isnan(self.violation) else self.violation) + (self.width * left if left else 0.0)

    def _rank(self, violated: float) -> float:
        if math.isnan(self.width):
            return max(violated, 0.0 if math.isnan(self.objective) else self.objective)
        lost = self.objective * self.width / self.span if self.span > 0 else 0.0
        return max(violated, 0.0 if math.isnan(lost) else lost)

    def stated(self) -> tuple[float | None, float | None, int]:
        objective, violation = (None if math.isnan(each) else each for each in (self.objective, self.violation))
        return objective, violation, self.slack_rows

    def numbers(self, proved: bool) -> tuple[float, float]:
        return self.objective, self.violation

    def drawn(self, proved: bool) -> dict[str, float]:
        return {**super().drawn(proved), "tightened by": self.tightening}

    @classmethod
    def best(cls, served: Sequence[Forecast], options: Options | None) -> Forecast:
        """Where the best by statements leaves rows out, those that do, and whose statements say something too, compare
        by how they do on synthetic databases."""
        told = [(each, each.error) for each in served if isinstance(each.error, Violation)]
        predicted = any(not math.isnan(error.against_public) and not each.spends_nothing for each, error in told)
        best, error = min(told, key=lambda pair: pair[1].order(pair[0], options, predicted))
        if options is None or math.isnan(error.against_public) or not error.contested(best, options):
            return best
        rivals = [
            (f, e) for f, e in told if e.slack_rows > 0 and not (f.vacuous or e.exact or math.isnan(e.against_public))
        ]
        return min(rivals, key=lambda pair: (_rounded(pair[1].against_public), pair[0] is not best))[0]

    def order(self, forecast: Forecast, options: Options | None, predicted: bool = False) -> Order:
        """Says nothing or something, keeps what was asked or not, predicted or proved, then the error; where x is
        unbounded (error infinite) the size of the noise itself. Predictions may be far too good, so they come after
        theorems.

        Statements that say nothing compare by ``against_public`` before all else, so that the point that reads nothing
        is taken where data are predicted to help less: first what is predicted to do better than that point, then what
        predicts nothing, then the point, then what is predicted to do worse. Where some that read
        data are ``predicted``, those that predict nothing come behind the point."""
        requested = options is not None and (options.violation, options.slack_rows) != (None, None)
        proved = self._rank(self.proved)
        kept, error, then = True, proved if requested else self.rank, 0.0
        if options is not None and options.violation is not None:
            kept = self.violation <= options.violation * (1 + 1e-9)
            error, then = (float(self.slack_rows), proved) if kept else (proved, 0.0)
        if options is not None and options.slack_rows is not None:
            kept = kept and self.slack_rows <= options.slack_rows
            if options.violation is None and kept:
                error = self._rank(self.violation)
        if not math.isfinite(error):
            sizes = [part["largest_noise"] for part in forecast.noise.values() if _is_noise(part)]
            then = max(sizes, default=math.inf)
        if self.exact and not forecast.vacuous and not requested:
            return False, (), False, False, False, -1.0, 0.0
        if not math.isnan(self.tightening):  # constraints hold: those that are moved least
            then = self.tightening
        against: Order = ()
        if forecast.vacuous and math.isnan(self.against_public):
            against = (3.0 if predicted else 1.0, 0.0)
        elif forecast.vacuous:
            share = _rounded(self.against_public)
            against = (0.0 if share < 1 else 2.0 if share == 1 else 4.0, share)
        shares = self.relative and not requested  # behind amounts: nothing says how large a share of a width is
        return forecast.vacuous, against, not kept, not forecast.proved, shares, _rounded(error), then

    def beats(self, bound: float, forecast: Forecast, options: Options) -> bool:
        if (options.violation, options.slack_rows) != (None, None) or self.relative or not forecast.proved:
            return False
        return not forecast.vacuous and (self.exact or _rounded(self.rank) < _rounded(bound))

    def contested(self, forecast: Forecast, options: Options) -> bool:
        """Whether rows are left out although no statement was asked for."""
        if (options.violation, options.slack_rows) != (None, None):
            return False
        return not options.by_proof and self.slack_rows > 0 and not (forecast.vacuous or self.exact)

    @property
    def helps(self) -> bool:
        return self.against_public < 1

    @property
    def nothing(self) -> bool:
        return not (self.objective > 0 or self.violation > 0 or self.tightening > 0 or self.slack_rows)

    def condition(self, options: Options) -> str:
        unasked = self.slack_rows > 0 and (options.violation, options.slack_rows) == (None, None)
        return "asked for AllBut(alpha=) or AllBut(rows=), " if unasked else ""


@dataclass(frozen=True)
class ExcessRisk(Error):
    """Regressions: what the coefficients lose in objective value against the best ones.

    ``predicted`` : the mean on populations drawn from the public bounds. All mechanisms are simulated alike, so plans
    choose by it. ``at_most`` : what a theorem gives for any data, inf where none does.
    """

    kind: ClassVar[str] = "excess risk"
    columns: ClassVar[tuple[str, str]] = ("excess risk", "at most")
    predictions: ClassVar[tuple[str, ...]] = ("excess risk",)

    predicted: float
    at_most: float = math.inf

    @property
    def alpha(self) -> float:
        return self.at_most if math.isfinite(self.at_most) else self.predicted

    @property
    def rank(self) -> float:
        return self.predicted

    def stated(self) -> tuple[float | None, float | None, int]:
        return self.alpha, None, 0

    def numbers(self, proved: bool) -> tuple[float, float]:
        return self.predicted, self.at_most if proved else math.nan


@dataclass(frozen=True)
class RowsMissed(Error):
    """Exact systems, which satisfy a row exactly or miss it.

    ``missed`` : rows that the answer misses, except with probability beta or in simulations; nan for points in hulls.
    ``needed`` : records below which the statement says nothing, by which plans of points in hulls choose.
    """

    kind: ClassVar[str] = "rows missed"
    columns: ClassVar[tuple[str, str]] = ("rows missed", "records needed")

    missed: float = math.nan
    needed: float = math.nan

    @property
    def alpha(self) -> float:
        return 0.0

    @property
    def slack_rows(self) -> int:
        return math.ceil(self.missed) if math.isfinite(self.missed) else 0

    def stated(self) -> tuple[float | None, float | None, int]:
        return None, None, self.slack_rows

    def numbers(self, proved: bool) -> tuple[float, float]:
        return self.missed, self.needed

    @property
    def rank(self) -> float:
        return self.needed if math.isnan(self.missed) else self.missed

    def records_needed(self) -> str:
        return f"at least {math.ceil(self.needed)} records" if math.isfinite(self.needed) else ""


@dataclass(frozen=True)
class Place(Error):
    """Post-processing: all solvers go for the same optimum, and the first that serves is taken.

    ``place`` : in the decision table (``dpmodel.released.model.Solver``), from 1. ``objective`` : the relative error of
    the objective at which the solver stops, 0 where it is exact.
    """

    kind: ClassVar[str] = "place"
    columns: ClassVar[tuple[str, str]] = ("objective within", "place")

    place: int
    objective: float = 0.0

    @property
    def alpha(self) -> float:
        return self.objective

    def stated(self) -> tuple[float | None, float | None, int]:
        return self.objective, None, 0

    def numbers(self, proved: bool) -> tuple[float, float]:
        return self.objective, float(self.place)

    def order(self, forecast: Forecast, options: Options | None) -> Order:
        return (float(self.place),)


@dataclass(frozen=True)
class Forecast:
    """The error a mechanism predicts from public facts alone.

    ``statement`` : the error in words. ``epsilon``, ``delta`` : what the mechanism spends. ``beta`` : probability with
    which the error may be exceeded. ``error`` : see its kind. ``proved`` : a theorem, not a prediction. ``vacuous`` :
    it says no more than is known without any data (``known.capped`` decides). ``work`` : its cost in words. ``noise`` :
    plain data on the noise of each part and the split of the budget. ``caveats`` : what the statement leaves out.
    ``rows`` : what is done to each private constraint, in words, and ``moved`` : by how much, for figures.
    """

    statement: str
    epsilon: float
    delta: float
    beta: float
    error: Violation | ExcessRisk | RowsMissed | Place
    proved: bool = True
    vacuous: bool = False
    work: str = "one solve"
    noise: Mapping[str, Any] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    moved: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unbeatable(self) -> bool:
        """Whether no answer could do better, whatever the data are."""
        return self.proved and not self.vacuous and self.error.nothing

    @property
    def alpha(self) -> float:
        """The ``error`` as one number."""
        return self.error.alpha

    @property
    def spends_nothing(self) -> bool:
        """Whether no private data is read."""
        return self.epsilon == 0 == self.delta

    def to_dict(self) -> dict[str, Any]:
        return {
            "statement": self.statement,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "beta": self.beta,
            "error": self.error.to_dict(),
            "proved": self.proved,
            "vacuous": self.vacuous,
            "work": self.work,
            "noise": dict(self.noise),
            "caveats": list(self.caveats),
            "rows": list(self.rows),
            "moved": dict(self.moved),
        }


def says_nothing(statement: str) -> str:
    """``statement`` marked as one that any public point keeps."""
    return f"no guarantee at this size and budget ({statement}, which says nothing)"


def _rounded(value: float) -> float:
    """Equal up to rounding allowances is equal: then the order of the registry decides."""
    return float(f"{value:.6g}")


def _is_noise(part: object) -> bool:
    return isinstance(part, Mapping) and "largest_noise" in part


# ------------------------------ What is known without data, and the one place where a statement is held against it


# Bounds from solvers are widened by one part in a million, so equal within two is equal.
_EQUAL = 2e-6
# What a few simulated populations cannot tell from luck: a smaller gain is none, at any budget. Near break-even a
# prediction moves by 3.6 % (median) when populations are drawn anew: squared, absolute and logistic loss, six budgets
# each, five draws. Of 13 plans predicted to gain 1 to 5 %, 4 gained nothing by the other draws, all of them 1.7 % on
# average, for the whole budget; test_public_only.py draws anew.
_LUCK = 0.05


@dataclass(frozen=True)
class Known:
    """What every database that the declarations allow leaves true of points that read none of it. All public.

    ``objective`` : no public point loses more than this; ``violation`` : nor violates a private constraint by more.
    ``points`` : (loss, violation) that single public points keep, found one by one. ``tightening`` : how far right-hand
    sides lie apart between the best and the worst data. ``predicted`` : regressions: mean excess risk of the best
    public point on the simulated populations. ``missed`` : exact systems: rows that an answer found without data
    misses; ``records`` : how many there are, where statements hold from some number on. inf (``records``: nan) where
    nothing is known.
    """

    objective: float = math.inf
    violation: float = math.inf
    points: Iterable[tuple[float, float]] = ()
    tightening: float = math.inf
    predicted: float = math.inf
    missed: float = math.inf
    records: float = math.nan


def capped(forecast: Forecast, known: Known) -> Forecast:
    """``forecast`` with its bounds cut to what is ``known``, and ``vacuous`` where it says no more than that."""
    error, vacuous = _held_against(forecast, known)
    if forecast.spends_nothing:
        vacuous = forecast.error.alpha > 0 or not forecast.proved
    newly = vacuous and not forecast.vacuous and not forecast.spends_nothing
    if error is forecast.error and (forecast.vacuous or not vacuous):
        return forecast
    return replace(
        forecast,
        error=error,
        vacuous=vacuous or forecast.vacuous,
        statement=says_nothing(forecast.statement) if newly else forecast.statement,
    )


def _held_against(forecast: Forecast, known: Known) -> tuple[Violation | ExcessRisk | RowsMissed | Place, bool]:
    error = forecast.error
    if isinstance(error, ExcessRisk):
        bounds = math.isfinite(error.at_most) or not math.isfinite(error.predicted)
        cut = replace(error, at_most=min(error.at_most, known.objective)) if bounds else error
        return cut, not error.predicted < (1 - _LUCK) * known.predicted
    if isinstance(error, RowsMissed):
        return error, error.missed >= known.missed or error.needed >= known.records + 1
    if isinstance(error, Violation):
        return _violation(error, known)
    return error, False


def stated(error: Violation, largest: float) -> tuple[float, float, float]:
    """What a statement leaves open: loss, violation with the rows that are left out, and the ``largest`` violation that
    is known or stated."""
    width = largest if math.isnan(error.width) else min(error.width, largest)
    left_out = error.slack_rows / max(error.private_rows, 1)
    allowed = error.violation if math.isnan(error.alone) else error.alone
    allowed = 0.0 if math.isnan(allowed) else allowed
    allowed += width * left_out if left_out and (math.isfinite(width) or left_out >= 1) else 0.0
    return 0.0 if math.isnan(error.objective) else error.objective, allowed, width


def _violation(error: Violation, known: Known) -> tuple[Violation, bool]:
    """A statement says nothing if some public point keeps all of it. What is left out of ``alpha`` counts with the
    largest violation there can be, where that is known: where it is not, a public point keeps the statement only if it
    keeps ``alpha`` in every row, unless all rows are left out. A loss that is not stated counts as none ("at least as
    good as the optimum"), but for tightened constraints, whose statement is how far right-hand sides move.
    """
    loss, allowed, width = stated(error, known.violation)
    if not math.isnan(error.tightening):
        lost = math.isnan(error.objective) or _reached(known.objective, loss)
        vacuous = _reached(known.tightening, error.tightening) and lost
    else:
        points = chain([(known.objective, width)], ((a, min(v, width)) for a, v in known.points))
        vacuous = any(_reached(a, loss) and _reached(v, allowed) for a, v in points)
    if error.objective > known.objective or error.violation > width:
        error = replace(
            error,
            objective=min(error.objective, known.objective),  # nan stays nan
            violation=min(error.violation, width),
        )
    return error, vacuous


def _reached(known: float, stated: float) -> bool:
    """Whether what is ``known`` is at most what is ``stated``."""
    return known <= stated + _EQUAL * abs(stated)
