"""What a mechanism predicts from public facts: ``Forecast``, with an error of the kind that its family compares.

Each kind has its own columns and order in a plan. *Vacuous* is a forecast no better than a point chosen without data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from dpmodel.privacy import Cost
from dpmodel.text import number, plain_fields

if TYPE_CHECKING:
    from dpmodel.contract import Options


Order = tuple[Any, ...]


class Error(ABC):
    """How far an answer may be from the best one, in the terms of one family. ``predictions`` : columns that hold
    simulated means, even where the statement is proved."""

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
        """Whether a larger budget could make it useful; if not, only tighter public bounds can."""
        return math.isfinite(self.alpha)

    @abstractmethod
    def stated(self) -> tuple[float | None, float | None, int]:
        """For a release: bounds on the loss in objective and on the violation (None: none), and rows left out."""

    @abstractmethod
    def numbers(self, proved: bool) -> tuple[float, float]:
        """The two ``columns`` of a plan, nan where there is no number."""

    def drawn(self, proved: bool) -> dict[str, float]:
        """What a figure draws, by name."""
        return dict(zip(self.columns, self.numbers(proved), strict=True))

    def cells(self, proved: bool) -> tuple[str, str]:
        """The ``columns`` as text."""
        first, second = self.numbers(proved)
        return number(first), number(second)

    def expectation(self) -> dict[str, float]:
        """What plans compare by besides the ``columns``, by name: no bound."""
        return {}

    def order(self, forecast: Forecast, options: Options | None) -> Order:
        """Smaller is better; vacuous forecasts come last."""
        return forecast.vacuous, _rounded(self.rank)

    @classmethod
    def best(cls, served: Sequence[Forecast], options: Options | None) -> Forecast:
        """The forecast that a plan chooses; the first among equals."""
        return min(served, key=lambda each: each.error.order(each, options))

    def beats(self, bound: float, forecast: Forecast, options: Options) -> bool:
        """Whether ``forecast``, whose error this is, comes before every error with a ``rank`` of at least ``bound``."""
        return not forecast.vacuous and _rounded(self.rank) < _rounded(bound)

    def contested(self, forecast: Forecast, options: Options) -> bool:
        """Whether simulations decide, although ``forecast``, whose error this is, comes first by ``order``."""
        return False

    @property
    def helps(self) -> bool:
        """Whether it is predicted to be smaller than without data, even if the forecast is vacuous."""
        return False

    @property
    def zero(self) -> bool:
        """Whether there is no error at all."""
        return False

    def records_needed(self) -> str:
        """How many records would help, in words, where that is known."""
        return ""

    def condition(self, options: Options) -> str:
        """What has to be asked for, in words, so that the statement holds at another budget."""
        return ""

    def to_dict(self) -> dict[str, Any]:
        plain: Any = self
        given = {entry.name: getattr(plain, entry.name) for entry in fields(plain)}
        return {"kind": self.kind, **{name: None if value != value else value for name, value in given.items()}}


@dataclass(frozen=True)
class Expected:
    """What an answer is expected to be like, in the mean over the noise: an estimate at a public level of the private
       numbers.

       ``cost`` : how much more it costs than the best answer, shortages at their prices, in the objective's units;
       ``share`` : the same as a share of the best cost. ``short`` : share of the rows with a price that are short, and
       ``amount`` : by how much these are, on average.
    ``maximised`` : the
       objective is, so that the cost lowers it.
    """

    cost: float
    share: float
    short: float
    amount: float
    maximised: bool = False

    @property
    def cost_words(self) -> str:
        """How far the objective is moved, as a share where there is one."""
        sign = -1.0 if self.maximised else 1.0
        if math.isfinite(self.share):
            return f"{float(f'{100 * sign * self.share:.2g}') + 0.0:+g} %"
        return ("" if self.cost < 0 else "-" if self.maximised else "+") + number(self.cost)

    def __str__(self) -> str:
        share = float(f"{100 * self.short:.2g}")
        if share >= 0.1:
            rows = f", {share:g} % of the private rows short, by {number(self.amount)} each"
        else:
            rows = ", under 0.1 % of the private rows short" if share > 0 else ""
        return f"{'value' if self.maximised else 'cost'} {self.cost_words}{rows}"


@dataclass(frozen=True)
class Violation(Error):
    """Programs: what may be lost in objective value, and by how much constraints may be violated.

    ``objective``, ``violation`` : upper bounds, in cones along the interior direction; nan where none is stated.
    ``slack_rows`` : private constraints that the statement leaves out, of ``private_rows``.
    ``width``, ``span`` : public bounds on the violation of one of these, and on how far the objective can vary.
    ``exact`` : all private constraints but ``slack_rows`` hold exactly; preferred if neither number was asked for.
    ``tightening`` : safe and strict feasibility: how far right-hand sides move inwards at most.
    ``against_public`` : predicted error over that of the best point that reads no data; decides between vacuous ones.
    ``expected`` : mean violation of a private constraint that binds, by the law of the noise; nan: ``mean_proved``.
    ``alone`` : bound on the violation where the released program has a point; nan: ``violation``.
    ``relative`` : violations are shares of each constraint's own width and not amounts.
    ``centred`` : rows stand as released; losses are against the best that they allow, not the true optimum.
    ``cost`` : expected loss of the penalised objective (``Expected``), by which those that have one are compared.
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
    cost: float = math.nan

    @property
    def alpha(self) -> float:
        return max((a for a in (self.objective, self.violation) if not math.isnan(a)), default=0.0)

    @property
    def rank(self) -> float:
        """Compared by plans when neither slack rows nor alpha was asked for: the mean violation of a private
        constraint, in its units, or the loss in objective if that is a larger share of ``span``."""
        return self._rank_at(self.mean_proved if math.isnan(self.expected) else self.expected)

    @property
    def mean_proved(self) -> float:
        """The mean violation that the statement allows: alpha, plus the width for the constraints left out."""
        left = 0.0 if math.isnan(self.width) else self.slack_rows / max(self.private_rows, 1)
        return (0.0 if math.isnan(self.violation) else self.violation) + (self.width * left if left else 0.0)

    def _rank_at(self, violated: float) -> float:
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

    def expectation(self) -> dict[str, float]:
        """The expected cost; without one, and where neither number is stated, what prices start from."""
        if math.isfinite(self.cost):
            return {"expected extra cost": self.cost} if self.cost > 0 else {}
        stated = math.isfinite(self.violation) or math.isfinite(self.objective) or math.isnan(self.expected)
        return {} if stated else {"missed on average before pricing": self.expected}

    @classmethod
    def best(cls, served: Sequence[Forecast], options: Options | None) -> Forecast:
        """The first by ``order``. If it leaves rows out, those that do are compared by their errors on synthetic
        databases instead, whatever their statements say."""
        pairs = [(each, each.error) for each in served if isinstance(each.error, Violation)]
        # Losses and violations are weighed alike in all, by whoever tells the width and the span.
        width, span = (
            min((getattr(error, name) for _, error in pairs if math.isfinite(getattr(error, name))), default=math.nan)
            for name in ("width", "span")
        )
        pairs = [(f, replace(e, width=width, span=span) if math.isnan(e.width) else e) for f, e in pairs]
        predicted = any(not math.isnan(error.against_public) and not each.spends_nothing for each, error in pairs)
        best, error = min(pairs, key=lambda pair: pair[1].order(pair[0], options, predicted))
        priced = [(f, e) for f, e in pairs if math.isfinite(e.cost) and f.vacuous <= best.vacuous]
        if math.isfinite(error.cost) and options is not None and not options.by_proof:
            best, error = min(priced, key=lambda pair: (_rounded(pair[1].cost), pair[0] is not best))
        if options is None or math.isnan(error.against_public) or not error.contested(best, options):
            return best
        rivals = [(f, e) for f, e in pairs if e.slack_rows > 0 and not (e.exact or math.isnan(e.against_public))]
        return min(rivals, key=lambda pair: (_rounded(pair[1].against_public), pair[0] is not best))[0]

    def order(self, forecast: Forecast, options: Options | None, predicted: bool = False) -> Order:
        """Compared one after the other, False and smaller first; exact statements that nobody asked otherwise for win:

        1. whether the forecast is vacuous;
        2. vacuous ones: the group by ``against_public`` (better than the public point; no prediction; the point itself;
           no prediction, if others that read data are ``predicted``; worse), then ``against_public``;
        3. whether it breaks what was asked for; whether it is only predicted, which may be far too good;
        4. whether its violations are shares of widths: those come behind amounts;
        5. the error, or rows left out where alpha was asked for; then the tightening, or the noise if it is infinite.
        """
        requested = options is not None and (options.violation, options.slack_rows) != (None, None)
        proved = self._rank_at(self.mean_proved)
        kept, error, tie = True, proved if requested else self.rank, 0.0
        if options is not None and options.violation is not None:
            kept = self.violation <= options.violation * (1 + 1e-9)
            error, tie = (float(self.slack_rows), proved) if kept else (proved, 0.0)
        if options is not None and options.slack_rows is not None:
            kept = kept and self.slack_rows <= options.slack_rows
            if options.violation is None and kept:
                error = self._rank_at(self.violation)
        if not math.isfinite(error):
            sizes = [
                part["largest_noise"]
                for part in forecast.noise.values()
                if isinstance(part, Mapping) and "largest_noise" in part
            ]
            tie = max(sizes, default=math.inf)
        if self.exact and not forecast.vacuous and not requested:
            return False, (), False, False, False, -1.0, 0.0
        if not math.isnan(self.tightening):
            tie = self.tightening
        against: Order = ()
        if forecast.vacuous and math.isnan(self.against_public):
            against = (3.0 if predicted else 1.0, 0.0)
        elif forecast.vacuous:
            share = _rounded(self.against_public)
            against = (0.0 if share < 1 else 2.0 if share == 1 else 4.0, share)
        shares = self.relative and not requested
        return forecast.vacuous, against, not kept, not forecast.proved, shares, _rounded(error), tie

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
    def zero(self) -> bool:
        return not (self.objective > 0 or self.violation > 0 or self.tightening > 0 or self.slack_rows)

    def condition(self, options: Options) -> str:
        unasked = self.slack_rows > 0 and (options.violation, options.slack_rows) == (None, None)
        return "asked for AllBut(alpha=) or AllBut(rows=), " if unasked else ""


@dataclass(frozen=True)
class ExcessRisk(Error):
    """Regressions: what the coefficients lose in objective value against the best ones.

    ``predicted`` : the mean on populations drawn from the public bounds. All mechanisms are simulated alike, so plans
    choose by it; below 0 by as much as the best points of these are inexact, which is said as 0. ``at_most`` : what a
    theorem gives for any data, inf where none does.
    """

    kind: ClassVar[str] = "excess risk"
    columns: ClassVar[tuple[str, str]] = ("excess risk", "at most")
    predictions: ClassVar[tuple[str, ...]] = ("excess risk",)

    predicted: float
    at_most: float = math.inf

    @property
    def alpha(self) -> float:
        return self.at_most if math.isfinite(self.at_most) else max(self.predicted, 0.0)

    @property
    def rank(self) -> float:
        return self.predicted

    def stated(self) -> tuple[float | None, float | None, int]:
        return self.alpha, None, 0

    def numbers(self, proved: bool) -> tuple[float, float]:
        return max(self.predicted, 0.0), self.at_most if proved else math.nan


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


# Of the optimum, for even shares that are not simulated: what households that charge get.
_EVEN = 0.54


@dataclass(frozen=True)
class ShareOfOptimum(Error):
    """Shares of people: how much of the most that is possible they are worth together.

    ``share`` : the mean on synthetic people, by which plans choose; nan where none are simulated. ``unused`` : the part
    of a capacity (the median) that is left free for the noise; nan where capacities are not what limits a person.
    """

    kind: ClassVar[str] = "share of optimum"
    columns: ClassVar[tuple[str, str]] = ("share of optimum", "capacity left free")
    predictions: ClassVar[tuple[str, ...]] = ("share of optimum",)

    share: float
    unused: float = 0.0

    @property
    def alpha(self) -> float:
        return 1 - self._expected

    @property
    def _expected(self) -> float:
        """Where nothing was simulated: what can be used is what is not left free, or a guess for even shares."""
        known = (self.share, 1 - self.unused, _EVEN)
        return max(next(each for each in known if not math.isnan(each)), 0.0)

    def stated(self) -> tuple[float | None, float | None, int]:
        return None, 0.0, 0

    def numbers(self, proved: bool) -> tuple[float, float]:
        return self.share, self.unused


@dataclass(frozen=True)
class Place(Error):
    """Post-processing: all solvers look for the same optimum, and the first eligible one is chosen.

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


AnyError = Violation | ExcessRisk | RowsMissed | ShareOfOptimum | Place


@dataclass(frozen=True)
class Forecast:
    """The error a mechanism predicts from public facts alone.

    ``statement`` : the error in words. ``epsilon``, ``delta`` : what the mechanism spends. ``beta`` : probability with
    which the error may be exceeded. ``error`` : see its kind. ``proved`` : a theorem, not a prediction. ``vacuous`` :
    no better than a point chosen without data, by ``capped``. ``work`` : its cost in words. ``noise`` : plain
    data on the noise of each part and the split of the budget. ``caveats`` : what the statement leaves out.
    ``rows`` : what is done to each private constraint, in words, and ``moved`` : by how much, for figures.
    ``expected`` : treatment of private constraints -> what the answer is expected to be like, its own first; empty
    where no public level tells. ``remark`` : on this, in words: why it is unknown, or why one that is expected to cost
    less was not taken. ``event`` : the law of what is released, which composes better than (epsilon, delta) in a
    ``Budget``; None where these are all that is proved (a black box).
    """

    statement: str
    epsilon: float
    delta: float
    beta: float
    error: AnyError
    proved: bool = True
    vacuous: bool = False
    work: str = "one solve"
    noise: Mapping[str, Any] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    moved: Mapping[str, Any] = field(default_factory=dict)
    expected: Mapping[str, Expected] = field(default_factory=dict)
    remark: str = ""
    event: Cost | None = None

    @property
    def cost(self) -> Cost:
        """What a budget is charged."""
        if self.event is None:
            return Cost.approximate(self.epsilon, self.delta)
        return self.event.within(self.epsilon, self.delta)

    @property
    def unbeatable(self) -> bool:
        """Whether no answer could do better, whatever the data are."""
        return self.proved and not self.vacuous and self.error.zero

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
            "expected": {name: plain_fields(each) for name, each in self.expected.items()},
            "remark": self.remark,
            "event": self.cost.to_dict(),
        }


def _rounded(value: float) -> float:
    """Equal up to rounding allowances is equal: then the order of the registry decides."""
    return float(f"{value:.6g}")
