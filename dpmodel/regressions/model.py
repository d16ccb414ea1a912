"""Private regressions: all that mechanisms and plans may know about them, and the one way to their rows."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.collect import checked_point, collect, private_parameters
from dpmodel.compile.bridge import write_values
from dpmodel.compile.form import public_key, public_values, require_private_values
from dpmodel.contract import YES, Candidate, Model, Options, Outcome, Ran, Serves, Verdict
from dpmodel.forecast import ExcessRisk
from dpmodel.marks.private import Private
from dpmodel.marks.records import record_words
from dpmodel.memo import cached, latest
from dpmodel.options import checked_clip, public_options
from dpmodel.privacy import NoiseSource
from dpmodel.programs.classifier import Classification
from dpmodel.regressions.features import RowBounds
from dpmodel.regressions.losses import Loss
from dpmodel.regressions.outputs import PublicColumns
from dpmodel.regressions.penalties import Penalty
from dpmodel.regressions.rows import Reader, Rows, Table
from dpmodel.regressions.sets import Domain
from dpmodel.release import Certificate, Release
from dpmodel.text import number

if TYPE_CHECKING:
    from dpmodel.regressions.public import PublicPart
    from dpmodel.regressions.read import Outputs, Recognised


class AnyRegression(Model):
    """What a plan needs to know of a regression, of one output or several.

    ``problem`` : the caller's CVXPY problem, which ``finish`` writes to (None in tests that have none).
    """

    clips = by_record = True
    words = "regression"
    error = ExcessRisk
    remedy = "delta > 0, a bounded set such as cp.norm1(w) <= 1, or clip= for losses whose derivative has no bound"
    halvings = 0
    problem: Any
    count: int
    classification: Classification
    private: tuple[Private, ...]
    public: PublicPart | PublicColumns | None
    parts: tuple[PrivateRegression, ...]

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of coefficients."""

    @property
    @abstractmethod
    def clip(self) -> float:
        """What derivatives of the loss are cut to; inf for nothing."""

    @classmethod
    def recognise(cls, problem: Any) -> Recognised | Outputs | None:
        from dpmodel.regressions.read import recognise

        return latest(problem, "regression", public_key(problem), lambda: recognise(problem))

    @classmethod
    def of(cls, problem: Any, solver: str | None = None) -> AnyRegression:
        from dpmodel.regressions.build import regression_of

        found = cls.recognise(problem)
        assert found is not None
        key = cls, problem.clip, public_values(problem.parameters())
        return latest(problem, "model", key, lambda: regression_of(found, checked_clip(problem.clip), problem))

    @property
    def in_blocks(self) -> bool:
        """Whether rows are read block by block: then sums over them are all there is."""
        return any(parameter.in_blocks for parameter in self.private)

    @property
    def protects(self) -> str:
        return record_words(self.private)

    def check(self, given: Options) -> tuple[Model, Options]:
        options = public_options(given, self.words)
        return self, replace(options, clip=self.clip if math.isfinite(self.clip) else None)

    def serves(self, mechanism: Any, options: Options) -> Verdict:
        if self.in_blocks and not mechanism.serves.reads_blocks:
            return Verdict(False, "it needs all rows in memory, and these lie in blocks")
        if any(part.weighed for part in self.parts) and not mechanism.serves.weights:
            return Verdict(False, "it uses the weights of the records as public numbers, and these are private")
        return YES

    def ready(self, chosen: Candidate, serves: Serves) -> None:
        if self.public is not None:
            self.public.require_feasible()
        require_private_values(private_parameters(self.problem))

    def checked(self, outcome: Any) -> Outcome:
        return checked_point(outcome, self.size)

    def stopped(self, status: str, note: str) -> Outcome:
        return Outcome(status, None, None, None, notes=(note,))

    def finish(self, ran: Ran) -> Release:
        """The released coefficients, and with them every variable of the model."""
        outcome, notes = ran.outcome, [*ran.outcome.notes]
        if outcome.x is not None:
            assert self.public is not None
            write_values(self.problem, self.public.complete(outcome.x), outcome.status)
            self.public.forget()
        else:
            write_values(self.problem, {}, outcome.status)
        bounded = [p for p in self.private if any(map(math.isfinite, p.magnitude.values())) or p.bounds is not None]
        if bounded:
            names = ", ".join(p.name() for p in bounded)
            notes.append(f"values of {names} beyond the declared bounds were clipped (how many is private)")
        if math.isfinite(self.clip):
            notes.append(
                f"derivatives of the loss were cut to {self.clip:g}: its minimiser is that of the clipped loss"
            )
        return collect(self.problem, self.private, self.classification.told(), ran, outcome.value, notes, {})


@dataclass(frozen=True)
class PrivateRegression(AnyRegression):
    """minimise ``scale * sum_i omega_i loss(a_i' w + o_i, y_i) + penalty(w)`` over w in ``domain``.

    A multinomial model has K scores of a record, W (K, p) in place of w, and the loss ``losses.Softmax`` of them all.
    W is the vector of its rows (K p,): so are ``domain`` and ``penalty``, while ``row`` bounds the p features that all
    scores share. Derivatives are vectors (K,), their size is a norm; what stands for the size of predictions, on which
    the derivative depends, is the largest difference of two scores.

    ``count`` : n, the public number of rows (under add-remove a capacity). ``row`` : bounds on rows and labels.
    ``total`` : ``sum_i omega_i`` (n without weights); ``largest_weight`` : max omega_i. ``weighed`` : whether the
    omega_i are private numbers in [0, 1], of which these two are bounds, n and 1: what a record adds to a gradient or a
    Hessian shrinks with omega, so that of all its weights 1 moves the sums furthest. ``offset_bound`` : max |o_i|;
    ``offset_range`` : least and largest o_i.
    ``private`` : the parameters rows are read from. ``public`` : the public constraints and penalty as CVXPY wrote
    them, for post-processing (None in tests that have no CVXPY model). A clip asked for is in
    ``loss.clip``. Everything but ``read``, ``read_table`` and ``read_rows`` is public.
    """

    loss: Loss
    count: int
    scale: float
    row: RowBounds
    domain: Domain
    penalty: Penalty
    classification: Classification
    read: Reader
    public: PublicPart | None = None
    total: float = 0.0
    largest_weight: float = 1.0
    weighed: bool = False
    offset_bound: float = 0.0
    offset_range: tuple[float, float] = (0.0, 0.0)
    private: tuple[Private, ...] = ()
    problem: Any = field(default=None, repr=False, compare=False)

    @property
    def clip(self) -> float:
        return self.loss.clip

    @property
    def parts(self) -> tuple[PrivateRegression, ...]:  # type: ignore[override]
        return (self,)

    @property
    def scores(self) -> int:
        """How many predictions a record has, each with coefficients of its own: K of a multinomial model."""
        return self.loss.scores

    @property
    def size(self) -> int:
        """p, the number of coefficients (intercepts included); of K scores K p."""
        return self.row.size * self.scores

    @property
    def weight(self) -> float:
        """``scale * total``: the objective is this times a weighted mean of losses, plus the penalty."""
        return self.scale * self.total

    @cached_property
    def prediction_bound(self) -> float:
        """Largest |prediction| (of K scores: difference of two) over the set and the rows allowed; inf where the set is
        unbounded."""
        bound = self.row.prediction_bound(*(self.domain.norm(order) for order in (1.0, 2.0, math.inf)))
        return bound + self.offset_bound if self.scores == 1 else 2 * bound

    @cached_property
    def derivative_bound(self) -> float:
        """Largest |derivative of the loss| over the set and the rows allowed; of K scores the 2-norm, below sqrt(2)."""
        return self.loss.derivative_bound(self.prediction_bound, self.row.label_bound if self.scores == 1 else 1.0)

    def largest_predictions(self, w: Floats) -> Floats:
        """(B,) largest |prediction| of w (B, size) over the rows allowed, without the offset; of K scores the largest
        difference of two."""
        row = self.row
        return row.largest_predictions(w) if self.scores == 1 else row.spreads(w.reshape(-1, self.scores, row.size))

    def gradient_sensitivity(self, order: float, bound: float | None = None) -> float:
        """How far one record moves ``sum_i omega_i s_i a_i``, |s_i| <= ``bound`` (default: the loss's derivative), with
        an allowance for the rounding of two such sums in double precision. Of K scores: the vector of the entries of
        ``sum_i omega_i s_i a_i'``, s_i (K,) of norm at most ``bound`` in the same order."""
        if bound is None and self.scores > 1:
            bound = self.loss.measured(order).derivative_bound(self.prediction_bound, 1.0)
        bound = self.derivative_bound if bound is None else bound
        exact = self.largest_weight * self.row.sensitivity(bound, order)
        # n products and sums, each off by at most one part in 2^53 of the sum of sizes (any order of summation).
        rounding = 4 * (self.count + 4) * 2.0**-53 * self.total * bound * self.row.norm(order)
        return exact * (1 + 1e-12) + rounding

    def read_table(self) -> Table:
        """The private rows. Only a mechanism's ``run`` may call this."""
        return self.read()

    def read_rows(self) -> Rows:
        """The same in memory, for mechanisms that do not read blocks."""
        rows = self.read().in_memory
        assert rows is not None, "rows in blocks"
        return rows

    def certificate(self, epsilon: float, beta: float) -> str | Callable[[Floats, NoiseSource], Certificate]:
        from dpmodel.regressions.certificate import certify, why_not

        return why_not(self) or partial(certify, self, epsilon, beta)

    # ------------------------------------------------------------------ what a plan asks
    def serves(self, mechanism: Any, options: Options) -> Verdict:
        if self.scores > 1 and not mechanism.serves.classes:
            return Verdict(False, "it is for one prediction of a record, not for several classes at once")
        return super().serves(mechanism, options)

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        if self.scores > 1:
            return ()  # the theorems speak of one prediction of a record
        return regression_lower_bounds(self, options.epsilon, options.delta)

    def synthetic(self, seed: int) -> PrivateRegression:
        from dpmodel.regressions.synthetic import synthetic_of

        return synthetic_of(self, seed)

    @property
    def varies(self) -> tuple[str, ...]:
        return ("records",)

    def varied(self, what: str, factor: float, parameter: str = "") -> Model:
        """More records of the same kind: each has less weight, and the objective the same."""
        if what not in self.varies:
            return super().varied(what, factor, parameter)
        count = max(round(self.count * factor), 1)
        times = count / self.count
        return replace(self, count=count, scale=self.scale / times, total=self.total * times, _memo={})


# -------------------------------------------------------------------------------- several outputs


@dataclass(frozen=True)
class PrivateOutputs(AnyRegression):
    """minimise the sum of the objectives of ``parts``, which share records and have coefficients of their own.

    ``read`` : the private rows of all parts, each parameter read once; a mechanism's ``run`` alone may call it.
    ``public`` : constraints and penalties, for post-processing. ``private`` : the private parameters, each once.
    """

    parts: tuple[PrivateRegression, ...]
    classification: Classification
    read: Callable[[], tuple[Table, ...]]
    public: PublicColumns
    private: tuple[Private, ...]
    problem: Any = field(default=None, repr=False, compare=False)

    @property
    def size(self) -> int:
        """Coefficients of all outputs together."""
        return sum(part.size for part in self.parts)

    @property
    def count(self) -> int:  # type: ignore[override]
        """n, the number of records."""
        return self.parts[0].count

    @property
    def clip(self) -> float:
        return self.parts[0].clip


# -------------------------------------------------------------------------------- the best point without data


_TRIED = 21  # points between the set's centre and the best constant prediction


def public_point(model: PrivateRegression) -> Floats:
    """(p,) the point of the set whose objective can be largest by the least, of those between the set's centre and the
    one that predicts the best constant. Public facts only.

    The best constant c minimises the largest loss over labels in [lo, hi]: their middle for losses of ``|z - y|``,
    ``tau hi + (1 - tau) lo`` for quantiles (there ``tau (hi - c) = (1 - tau)(c - lo)``), 0 for two classes or more. An
    intercept predicts it, or else coefficients along the middles of the columns.
    """
    return _search(model).copy()


def public_excess(model: PrivateRegression) -> float:
    """What the public point can lose against the best of the set, on any data that the declarations allow; inf where
    linear or other penalties leave no least one. Losses are not negative, nor are ridge and l1 terms."""
    penalty = model.penalty
    if penalty.linear.any() or penalty.other is not None:
        return math.inf
    return _worst(model, public_point(model)) - penalty.constant


def objective_range(model: PrivateRegression) -> float:
    """What any point of the set can lose: the largest objective less the least; inf where no bound is known."""
    penalty, bound = model.penalty, model.prediction_bound
    if not math.isfinite(bound) or penalty.linear.any() or penalty.other is not None:
        return math.inf
    public = float(penalty.ridge.max(initial=0.0)) * model.domain.norm(2.0) ** 2 if penalty.ridge.any() else 0.0
    public += float(penalty.l1.max(initial=0.0)) * model.domain.norm(1.0) if penalty.l1.any() else 0.0
    return model.weight * _largest_loss(model, -bound, bound) + public


def shift_of(model: PrivateRegression, mean: Floats) -> Floats:
    """(p,) what adds 1 to the prediction of a row of these columns: the intercept, or else coefficients along it."""
    anchors, out = np.flatnonzero(model.row.constant & (model.row.lower != 0)), np.zeros(model.row.size)
    if anchors.size:
        out[anchors[0]] = 1.0 / model.row.lower[anchors[0]]
    elif mean.any():
        size = float(np.abs(mean).max())  # so that squares neither overflow nor vanish
        unit = mean / size
        out = unit / float(unit @ unit) / size
    return out


@cached
def _search(model: PrivateRegression) -> Floats:
    center = np.asarray(model.domain.center(), dtype=np.float64)
    if model.scores > 1:
        return center  # equal chances of all classes, where the set allows them
    low, high = model.row.lower, model.row.upper
    middle = np.where(np.isfinite(low) & np.isfinite(high), low / 2 + high / 2, 0.0)
    with np.errstate(all="ignore"):
        moved = center + shift_of(model, middle) * (_best_constant(model) - float(middle @ center))
        if not np.isfinite(moved).all() or (moved == center).all():
            return center
        moved = model.domain.project(moved)
        points = [center + t * (moved - center) for t in np.linspace(0.0, 1.0, _TRIED)[1:-1]]
        # The centre where nothing is gained; rounding must not move it either.
        best, least = center, _worst(model, center) * (1 - 1e-9)
        for point in (*points, moved):
            if (worst := _worst(model, point)) < least:
                best, least = point, worst
    return best


def _best_constant(model: PrivateRegression) -> float:
    (low, high), (least, most) = model.row.label, model.offset_range
    low, high = low - most, high - least  # of what is left to predict
    if model.loss.labels != "number" or not math.isfinite(high - low):
        return 0.0
    share = model.loss.parameter if model.loss.name == "quantile" else 0.5
    return share * high + (1 - share) * low


def _worst(model: PrivateRegression, w: Floats) -> float:
    """Largest objective at w over the rows and labels allowed."""
    return model.weight * _largest_loss(model, *_predictions(model, w)) + model.penalty.value(w)


def _predictions(model: PrivateRegression, w: Floats) -> tuple[float, float]:
    """Lowest and highest prediction of w over the rows and offsets allowed (missing records only move a zero row)."""
    row, fixed = model.row, model.row.constant
    if model.scores > 1:
        spread = float(model.largest_predictions(w[None])[0])
        return -spread, spread
    base, u = float(row.lower[fixed] @ w[fixed]), w[~fixed]
    with np.errstate(invalid="ignore"):
        ends = np.stack([np.where(u == 0, 0.0, row.lower[~fixed] * u), np.where(u == 0, 0.0, row.upper[~fixed] * u)])
    moving = np.where(fixed, 0.0, w)
    bound = row.largest_prediction(moving)  # by the norms of rows, where these say more than columns
    low, high = max(float(ends.min(axis=0).sum()), -bound), min(float(ends.max(axis=0).sum()), bound)
    return base + low + model.offset_range[0], base + high + model.offset_range[1]


def largest_loss_at(model: PrivateRegression, w: Floats, *, missing: bool = False) -> float:
    """Largest loss of a record at w over the rows and labels allowed; ``missing`` : a row and a label of zeros too."""
    (low, high), (least, most), offset = _predictions(model, w), model.row.label, model.offset_range
    if missing:
        low, high, least, most = min(low, offset[0]), max(high, offset[1]), min(least, 0.0), max(most, 0.0)
    return model.loss.largest(low, high, (least, most))


def _largest_loss(model: PrivateRegression, low: float, high: float) -> float:
    """Largest loss of a prediction in [low, high]."""
    return model.loss.largest(low, high, model.row.label)


# ------------------------------------------------------------------------------- what no private algorithm can do
# The theorems give rates without constants. The numbers here are these rates with constant 1: yardsticks for how errors
# must grow, not bounds that a measured error could contradict. Every line says so.
@dataclass(frozen=True)
class RegressionLowerBound:
    """One rate, in the unit of the model's objective.

    ``theorem`` : what is proved and where. ``statistical`` : the part that comes from seeing n rows only (about
    the risk on the population; 0 where the theorem is about the rows themselves). ``private`` : the part that privacy
    costs (about the rows). ``unmet`` : conditions of the theorem that do not hold here.
    """

    theorem: str
    statistical: float
    private: float
    unmet: tuple[str, ...]

    def __str__(self) -> str:
        parts = f"{number(self.private)} for privacy, on the rows given"
        if self.statistical:
            parts += f", and {number(self.statistical)} for the n rows seen, on the population (privacy or not)"
        line = f"lower bound as a rate, constant 1 for an unknown one ({self.theorem}): {parts}"
        return f"{line}; not proved here: {', '.join(self.unmet)}" if self.unmet else line


def regression_lower_bounds(model: PrivateRegression, epsilon: float, delta: float) -> tuple[str, ...]:
    """The lower bounds as printable lines, from public facts; empty where no theorem is about this kind of model."""
    found = (lasso_lower_bound(model, epsilon, delta), lipschitz_lower_bound(model, epsilon, delta))
    return tuple(str(lower_bound) for lower_bound in found if lower_bound is not None)


def lasso_lower_bound(model: PrivateRegression, epsilon: float, delta: float) -> RegressionLowerBound | None:
    """``(n ln n)^(-2/3)``: Talwar, Thakurta and Zhang 2015, Theorems 1.2 and 3.1, for least squares over the l1 ball.

    There ``||x||_inf <= 1``, ``|y| <= 1`` and ``||w||_1 <= 1``, epsilon = 0.1, delta = o(1/n^2), and the loss is the
    mean of ``(x'w - y)^2``. With columns in [-A, A], labels in [-Y, Y] and radius r, the hard rows scaled by
    ``c / r`` and the hard labels by ``c = min(A r, Y)`` are allowed, and the same algorithm on the scaled problem has
    its risk multiplied by c^2: so does the lower bound, and by the objective's ``weight``. The proof takes
    ``p = 1000 m^2`` columns for ``n = Theta(m^3 / ln m)`` rows; fewer columns are not covered (sufficient
    statistics beat the rate there, legitimately). Smaller epsilon: covered, as it implies the guarantee at 0.1.

    None for other losses and sets.
    """
    if model.loss.name != "squared" or model.domain.kind != "l1" or math.isfinite(model.loss.clip):
        return None
    n, row = model.count, model.row
    moving = ~row.constant
    column = float(min((-row.lower[moving]).min(initial=math.inf), row.upper[moving].min(initial=math.inf)))
    column = min(column, row.linf)
    label = min(-row.label[0], row.label[1])
    unmet = []
    if epsilon > 0.1:
        unmet.append("epsilon <= 0.1")
    if delta * n * n > 1:
        unmet.append("delta = o(1/n^2)")
    if model.size**1.5 < n:
        unmet.append("columns of the order of n^(2/3) and more")
    if not (column > 0 and label > 0):
        unmet.append("columns and labels of both signs")
    if row.mixed or row.moving(2.0) < math.sqrt(max(int(moving.sum()), 1)) * row.linf * (1 - 1e-9):
        unmet.append("rows bounded entry by entry alone")
    scale = min(max(column, 0.0) * model.domain.norm(1.0), max(label, 0.0))
    scale = scale if math.isfinite(scale) else math.nan
    return RegressionLowerBound(
        theorem="Talwar, Thakurta and Zhang 2015, Theorem 3.1: LASSO, (n ln n)^(-2/3)",
        statistical=0.0,
        private=model.weight * scale**2 * (n * math.log(max(n, 2))) ** (-2 / 3),
        unmet=tuple(unmet),
    )


def lipschitz_lower_bound(model: PrivateRegression, epsilon: float, delta: float) -> RegressionLowerBound | None:
    """``L D (1 / sqrt(n) + min(1, sqrt(d) / (n epsilon)))``: Arora, Marinov and Ullah 2020 after Bassily, Smith and
    Thakurta 2014, for losses of Lipschitz constant L over the 2-norm ball of radius D in d dimensions.

    L is here the loss's largest derivative times the largest 2-norm of a row. The second term is about the empirical
    risk and is what privacy costs (delta = o(1/n); for delta = 0 it is ``min(1, d / (n epsilon))``, Theorem 5.2 of
    2014). The first is statistical: it is about the risk on the population, holds without privacy, and says nothing
    about the excess over the best fit to the rows given, which forecasts are about. Hard cases are linear losses: for
    one loss, curvature may allow less (the word "class" in the line).

    None for other sets, and where the derivative is not bounded.
    """
    if model.domain.kind != "l2":
        return None
    steep = model.derivative_bound * model.row.norm(2.0)
    if not math.isfinite(steep):
        return None
    n, d = model.count, model.size
    size = model.weight * steep * model.domain.norm(2.0)
    dimension = math.sqrt(d) if delta > 0 else float(d)
    unmet = [] if delta * n <= 1 else ["delta = o(1/n)"]
    which = "sqrt(d)" if delta > 0 else "d"
    return RegressionLowerBound(
        theorem="Bassily, Smith and Thakurta 2014, in Arora, Marinov and Ullah 2020: "
        f"class of all losses of this derivative over the ball, L D (1/sqrt(n) + min(1, {which}/(n epsilon)))",
        statistical=size / math.sqrt(n),
        private=size * min(1.0, dimension / (n * epsilon)),
        unmet=tuple(unmet),
    )
