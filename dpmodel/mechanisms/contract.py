"""What every mechanism has: ``eligible``, ``forecast`` and ``run``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.privacy import NoiseSource

Feasibility = Literal["relaxed", "centred", "safe", "strict"]
Goal = Literal["auto", "target", "search", "penalty"]
Satisfy = Literal["nearly", "exact"]
Progress = Callable[[str, float], None]


def no_progress(stage: str, done: float) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Request:
    """What is asked of one solve: the budget it may use and the statement wanted.

    ``epsilon``, ``delta`` : budget. ``beta`` : allowed probability that the accuracy statement fails.
    ``feasibility`` : "relaxed" (private constraints give way, so that the true optimum stays feasible), "centred" (the
    released numbers as they are), "safe" (every true constraint holds, except with probability ``beta``) or "strict"
    (every true constraint holds).
    ``vertices`` : (k, n) public candidate points in the order of the standard form's columns, or None.
    ``solver``, ``options`` : for the solve on released data.
    ``slack_rows`` : how many private constraints may be left out, or None to let the mechanism choose;
    ``violation`` : how far the others may be violated, or None. ``goal`` : how mechanisms that only find nearly
    feasible points treat the objective: a public ``target`` value (of the minimisation form), a paid "search" for
    one, or a "penalty" with weight ``penalty`` (None: chosen from public facts).
    ``clip`` : regressions: slopes of the loss are cut to this size, or None.
    ``satisfy`` : "exact" where private constraints must hold exactly, all but a few; "nearly" to within alpha.
    ``by_proof`` : settings by their statements alone, as where slack rows or a violation are asked for.
    """

    epsilon: float
    delta: float
    beta: float = 0.05
    feasibility: Feasibility = "relaxed"
    vertices: Floats | None = None
    solver: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    slack_rows: int | None = None
    violation: float | None = None
    goal: Goal = "auto"
    target: float | None = None
    penalty: float | None = None
    clip: float | None = None
    satisfy: Satisfy = "nearly"
    by_proof: bool = False


# Why a mechanism does not apply, where others have to know: another feasibility was asked for, no public point does,
# it failed while it was planned.
Code = Literal["", "feasibility", "infeasible", "failed"]


class Verdict(NamedTuple):
    """Whether a mechanism applies, and if not, why: in words, and as a ``code`` where a plan decides by it."""

    eligible: bool
    reason: str = ""
    code: Code = ""


YES = Verdict(True)


def refuse_feasibility(request: Request, *served: str) -> Verdict | None:
    """No, if another feasibility was asked for than those ``served``."""
    if request.feasibility in served:
        return None
    names = " and ".join(f'"{name}"' for name in served)
    return Verdict(False, f'feasibility="{request.feasibility}" was asked for; it serves {names}', "feasibility")


def refuse_high(model: PrivateLP, what: str = "noise") -> Verdict | None:
    """No, if some private parameter may change arbitrarily: ``what`` cannot hide that."""
    high = [cell for cell in model.classification.cells if cell.level == "high"]
    return Verdict(False, f"{high[0].parameter} may change arbitrarily: no {what} can hide it") if high else None


@dataclass(frozen=True)
class Forecast:
    """The error a mechanism predicts from public facts alone.

    ``alpha`` : the larger of ``objective_alpha`` (loss in objective value) and ``violation_alpha`` (violation
    of any constraint, along the cone's interior direction for conic ones); nan where a part is not noised.
    ``beta`` : probability with which it may be exceeded. ``proved`` : a theorem, not a prediction.
    ``statement`` : the same in words. ``epsilon``, ``delta`` : what the mechanism spends. ``work`` : its cost in
    words. ``noise`` : plain data on the noise of each part and the split of the budget. ``caveats`` : what the
    statement leaves out. ``slack_rows`` : private constraints that ``alpha`` leaves out, of ``private_rows``;
    ``width`` : how far any of them can be violated, ``span`` : how far the objective can vary, both public.
    ``vacuous`` : it says no more than is known without any data (``known.capped`` decides). ``predicted`` :
    regressions: the mean excess risk on data simulated from the public bounds, by which their plans choose; nan
    elsewhere. ``seconds`` : post-processing: about how long the solver takes, by which those plans choose; nan
    elsewhere. ``missed`` : exact linear algebra: rows that the answer misses, except with probability ``beta``
    (``proved``) or in simulations, by which those plans choose (nan for points in hulls, and elsewhere). ``needed`` :
    records below which the statement says nothing, by which plans of points in hulls choose; nan elsewhere.
    ``exact`` : private constraints hold exactly, all but
    ``slack_rows``; preferred to small violations of all of them where neither was asked for. ``tightening`` : strict
    feasibility: by how much right-hand sides are moved inwards at most; nan elsewhere. ``against_public`` : the error
    predicted as a share of that of the best point that reads no data (its own is 1; nan: not predicted). It decides
    between mechanisms whose statements say nothing.
    """

    statement: str
    epsilon: float
    delta: float
    beta: float
    objective_alpha: float = math.nan
    violation_alpha: float = math.nan
    proved: bool = True
    slack_rows: int = 0
    private_rows: int = 0
    width: float = math.nan
    span: float = math.nan
    vacuous: bool = False
    predicted: float = math.nan
    seconds: float = math.nan
    missed: float = math.nan
    needed: float = math.nan
    exact: bool = False
    tightening: float = math.nan
    against_public: float = math.nan
    work: str = "one solve"
    noise: Mapping[str, Any] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()

    @property
    def alpha(self) -> float:
        known = [a for a in (self.objective_alpha, self.violation_alpha) if not math.isnan(a)]
        return max(known) if known else 0.0

    @property
    def spends_nothing(self) -> bool:
        """Whether no private data is read."""
        return self.epsilon == 0 == self.delta

    @property
    def rank(self) -> float:
        """What plans compare when neither slack rows nor alpha was asked for: the mean violation that the statement
        allows (alpha, plus the width for the share of the constraints left out), or the loss in objective if
        that is a larger part of its span."""
        if math.isnan(self.width):
            return self.alpha
        violated = self.violation_alpha + self.width * self.slack_rows / max(self.private_rows, 1)
        lost = self.objective_alpha * self.width / self.span if self.span > 0 else 0.0
        return max(violated, 0.0 if math.isnan(lost) else lost)

    def to_dict(self) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "objective_alpha": None if math.isnan(self.objective_alpha) else self.objective_alpha,
            "violation_alpha": None if math.isnan(self.violation_alpha) else self.violation_alpha,
            "beta": self.beta,
            "proved": self.proved,
            "statement": self.statement,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "slack_rows": self.slack_rows,
            "private_rows": self.private_rows,
            "width": None if math.isnan(self.width) else self.width,
            "span": None if math.isnan(self.span) else self.span,
            "vacuous": self.vacuous,
            "predicted": None if math.isnan(self.predicted) else self.predicted,
            "seconds": None if math.isnan(self.seconds) else self.seconds,
            "missed": None if math.isnan(self.missed) else self.missed,
            "needed": None if math.isnan(self.needed) else self.needed,
            "exact": self.exact,
            "tightening": None if math.isnan(self.tightening) else self.tightening,
            "against_public": None if math.isnan(self.against_public) else self.against_public,
            "work": self.work,
            "noise": dict(self.noise),
            "caveats": list(self.caveats),
        }


def says_nothing(statement: str) -> str:
    """``statement`` marked as one that any public point keeps."""
    return f"no guarantee at this size and budget ({statement}, which says nothing)"


# The status of a run that released no point: the rows that stand out do not determine one.
NOTHING_FOUND = "nothing_found"
# Status of a run that an error ended: the budget is spent and there is no point.
STOPPED = "stopped"


@dataclass(frozen=True)
class Outcome:
    """What ``run`` hands back: released data only.

    ``status`` : decided on released data. ``x`` : (n,) point or None. ``dual`` : (m,) or None. ``value`` : the
    minimisation objective at x from released quantities, or None. ``extra_violation`` : least further
    relaxation that was needed. ``seconds`` : time of the solve on released data; None where every step read private
    data, for how long those take may depend on it.
    """

    status: str
    x: Floats | None
    dual: Floats | None
    value: float | None
    seconds: float | None = None
    extra_violation: float = 0.0
    notes: tuple[str, ...] = ()


@runtime_checkable
class Mechanism(Protocol):
    """One algorithm. Its docstring states source, privacy argument, utility, cost and errors."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        ...

    @property
    def source(self) -> str:
        """Paper and theorem."""
        ...

    def eligible(self, model: PrivateLP, request: Request) -> Verdict:
        """Yes, or the reason why not; public facts only."""
        ...

    def forecast(self, model: PrivateLP, request: Request) -> Forecast:
        """Predicted error; public facts only."""
        ...

    def run(self, model: PrivateLP, request: Request, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        """The only method that reads private values."""
        ...
