"""How good a fitted classifier is on a table: one measurement of a few sums, whose budget they share.

Sums. Every row gives integers or counts by itself, by the model's answer for it and its label:
- correct: 1 where the label is predicted. loss: -ln of the predicted probability of the label, cut at a public clip, so
  in [0, c], c = -ln(clip), in 2^20 steps. rows: 1, where the number of rows is private. Each is moved by what one row
  gives at most, by k rows of a person at most k times that, whether they come, go or are replaced.
- bands (two classes): the rows of each label in public bands of the probability of the second class (of a decision
  function: its logistic function, which ranks alike). A row is in one cell: ``declared.of_counts``. The area under the
  curve and the calibration follow from these counts.
Stacked, each times a public weight that sets its share, they move by the sum of their moves in the 1-norm, and by the
root of the sum of squares in the 2-norm; ``measure`` draws the noise. Weights are powers of two, so that products are
exact.

Intervals: the range of each quotient over a box that holds the true sums with probability ``level``. The area is that
of the scores rounded to the bands; its interval rests on a normal law, an estimate. Counting the pairs of rows in the
right order, which one row moves by 2 (n - 1), would need no bands: but errors of the counts of a label in all bands
cancel in their quotient, and those of the pairs do not (twice as wide on Adult).

The model has to answer for every row by itself, wherever that stands: a ``predict`` that standardises the rows it is
given by their mean would let one row move all answers. Scores differ in the last bit with the number of rows that are
multiplied at once, which moves ties together; so the model sees tables of 1,024 rows always, the last one filled up
with a row made of public bounds. That the place in such a table does not matter is assumed of it, and not proved: it is
so for products of a fixed shape (tested for scikit-learn's linear models). Numbers are clipped to their bounds first.
The model runs after the charge; what it warns of is not shown, and an error is told by its type alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import numpy as np
from scipy.special import expit, ndtri

from dpmodel._types import Floats, Integers
from dpmodel.contract import no_progress
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset import declared as moves
from dpmodel.marks.dataset.declared import Bounds, Move, refuse_unknown
from dpmodel.marks.dataset.estimates import Estimates, check_level
from dpmodel.marks.dataset.table import People
from dpmodel.marks.domain import elements, key
from dpmodel.marks.noisy import Noisy
from dpmodel.marks.private import Private
from dpmodel.marks.row_sources import engine
from dpmodel.privacy import Budget, validate_privacy
from dpmodel.released.faces.measure import checked_kind, cost_of, measure
from dpmodel.released.faces.quantiles import affordable, estimates
from dpmodel.solve.wall import charge_then_run
from dpmodel.text import number

METRICS = ("accuracy", "log loss", "auc", "calibration")
_TABLE = 1024  # rows that the model sees at once
_STEPS = 1 << 20  # of the largest loss of a row
# Ends of the bands: finer near 0 and 1, where scores of rare classes are; ten of them are told of.
_EDGES = np.r_[0.005, 0.01, 0.02, 0.05, np.arange(2, 19) / 20, 0.95, 0.98, 0.99, 0.995]
_TENTHS = np.arange(1, 10) / 10


@dataclass(frozen=True)
class Scorer:
    """What each row gives; it pickles, as it runs where the rows are.

    ``features`` : (name, column as read, categories or None). ``places`` : of the model's classes in ``labels``, the
    domain of the target. ``bounds`` : of the features that are numbers. ``edges`` : of the bands.
    """

    model: Any
    features: tuple[tuple[str, str, tuple[Any, ...] | None], ...]
    target: str
    labels: tuple[Any, ...]
    places: tuple[int, ...]
    least: float
    bounds: Mapping[str, Bounds]
    edges: Floats = field(default_factory=lambda: _EDGES)

    @property
    def chances(self) -> bool:
        return hasattr(self.model, "predict_proba")

    @property
    def ranks(self) -> bool:
        """Whether there is a score of the second of two classes."""
        return len(self.places) == 2 and (self.chances or hasattr(self.model, "decision_function"))

    def table(self, columns: Mapping[str, Any]) -> Any:
        """What the model is given: a frame, or an array where it was fitted on one."""
        cells = {
            name: np.clip(np.asarray(columns[place], dtype=np.float64), *self.bounds[name])
            if listed is None
            else _objects(listed)[columns[place]]
            for name, place, listed in self.features
        }
        if hasattr(self.model, "feature_names_in_") or any(listed is not None for _, _, listed in self.features):
            return engine("pandas", "data").DataFrame(cells)
        return np.column_stack(list(cells.values()))

    def answers(self, columns: Mapping[str, Any]) -> tuple[Integers, Floats | None, Floats | None]:
        """(n,) places of the predicted labels; (n, classes) chances; (n,) scores of the second of two classes."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = self.table(columns)
            number = {key(label): place for place, label in enumerate(self.labels)}
            predicted = np.array([number.get(key(each), -1) for each in elements(self.model.predict(table))])
            chances = np.asarray(self.model.predict_proba(table), dtype=np.float64) if self.chances else None
            score = None
            if self.ranks:
                score = chances[:, 1] if chances is not None else expit(self.model.decision_function(table))
        return predicted, chances, score

    def of_tables(self, columns: Mapping[str, Any]) -> tuple[Integers, Floats | None, Floats | None]:
        """``answers`` for tables of one size, whatever the number of rows is."""
        rows = len(next(iter(columns.values())))
        full = {
            place: np.append(columns[place], np.full(-rows % _TABLE, self.bounds[name][0] if listed is None else 0))
            for name, place, listed in self.features
        }
        each = [
            self.answers({place: column[at : at + _TABLE] for place, column in full.items()})
            for at in range(0, rows, _TABLE)
        ]
        found = (None if part[0] is None else np.concatenate(part)[:rows] for part in zip(*each, strict=True))
        return tuple(found)  # type: ignore[return-value]

    def sums(self, block: Any, _: int) -> dict[str, Any]:
        """Of a block."""
        frame = nw.from_native(block, eager_only=True)
        if not len(frame):
            return {}
        columns = {place: frame[place].to_numpy() for _, place, _ in self.features}
        label = frame[self.target].to_numpy().astype(np.int64)
        predicted, chances, score = self.of_tables(columns)
        found: dict[str, Any] = {"rows": len(label), "correct": int((predicted == label).sum())}
        if chances is not None:
            mine = np.full(len(label), self.least)
            for column, place in enumerate(self.places):
                mine[label == place] = chances[label == place, column]
            share = np.log(np.clip(np.nan_to_num(mine, nan=0.0), self.least, 1.0)) / math.log(self.least)
            found["loss"] = int(np.rint(np.clip(share, 0.0, 1.0) * _STEPS).astype(np.int64).sum())
        if score is not None:
            band = np.searchsorted(self.edges, np.nan_to_num(score, nan=0.0), side="right")
            counts = [np.bincount(band[label == place], minlength=self.edges.size + 1) for place in self.places]
            found["bands"] = np.array(counts, dtype=np.int64)
        return found


def _objects(listed: Sequence[Any]) -> Any:
    out = np.empty(len(listed), dtype=object)
    out[:] = listed
    return out


def _added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] + other[name] for name in one} if one and other else one or other


def evaluate(
    people: People,
    model: Any,
    target: Any,
    epsilon: Any,
    delta: Any,
    features: Any,
    metrics: Any,
    clip: Any,
    level: Any,
    budget: Budget | None,
    rng: Any,
) -> Estimates:
    """``Dataset.evaluate``."""
    beta, (epsilon, delta) = 1 - check_level(level, "Dataset.evaluate", 0.5), validate_privacy(epsilon, delta)
    counted = people.records.neighbors == "replace-one" and people.person is None and people.outside == "error"
    scorer = _scorer(people, model, target, features, clip)
    wanted = _wanted(metrics, scorer)
    _try(scorer, people)
    most = people.most("evaluate")
    called = f"{type(model).__name__} on {target}"

    def of(found: dict[str, Any]) -> Any:
        stacked = _parts(found, scorer, wanted, most, people.records.neighbors, counted).values()
        return Private(
            np.concatenate([np.ravel(value) * weight for value, weight, _ in stacked]),
            name=called,
            unit="all",
            l1=sum(move.l1 * weight for _, weight, move in stacked),
            l2=math.hypot(*(move.l2 * weight for _, weight, move in stacked)),
            linf=max(move.linf * weight for _, weight, move in stacked),
            records=people.records,
        )

    kind = checked_kind("auto", delta, budget)

    def run(_: Any) -> tuple[Noisy, int | None]:
        found = rows.blocks(places).map_reduce(scorer.sums, _added)
        noisy = measure(of(found), epsilon, delta, distribution=kind, name=called, rng=rng)
        return noisy, int(found.get("rows", 0)) if counted else None

    cost = cost_of(of({}), epsilon, delta, kind, rng)
    affordable(budget, cost)
    used, places = [*(name for name, _, _ in scorer.features), target], [place for _, place, _ in scorer.features]
    places.append(scorer.target)
    rows = people.bounded(people.used(used), most)
    people.summed(rows, {}, {}, used)  # refuses rows outside, where that is an error
    ran, failure = charge_then_run(
        run,
        name="evaluate",
        budget=budget,
        cost=cost,
        label=f"measure {called}",
        report=no_progress,
        remedy="predict of the model on made-up rows within the bounds",
    )
    if ran is None:
        assert failure is not None
        raise failure
    noisy, count = ran
    parts = _parts({}, scorer, wanted, most, people.records.neighbors, counted)
    released, at = {}, 0
    for name, (value, weight, _) in parts.items():
        size = np.size(value)
        released[name] = np.reshape(noisy.value[at : at + size] / weight, np.shape(value))
        at += size

    def off(name: str, draws: int) -> float:
        """What none of so many numbers of a part is off by more than, with probability 1 - beta."""
        return float(noisy.noise.max_abs_quantile(draws, beta)) / parts[name][1]

    deviation = float(noisy.noise.standard_deviation) / parts["bands"][1] if "bands" in parts else 0.0
    answers = _answers(released, off, deviation, scorer, wanted, count, beta)
    names, values = list(answers), np.array(list(answers.values()), dtype=np.float64).reshape(-1, 3).T
    statement = "intervals: the box of the noise, proved" + ", but for the auc, which is an estimate" * (
        "auc" in wanted
    )
    notes = []
    if "loss" in parts:
        notes.append(f"log loss with probabilities of at least {number(scorer.least)}")
    if "auc" in wanted:
        notes.append(f"auc of scores rounded to {_EDGES.size + 1} bands")
    spent = float(noisy.delta or 0.0)
    labels = (("measure", tuple(names)),)
    return estimates(people, called, list(values), 1 - beta, statement, epsilon, spent, labels, tuple(notes), rng=rng)


def _parts(
    found: dict[str, Any], scorer: Scorer, wanted: Sequence[str], most: int, neighbors: Any, counted: bool
) -> dict[str, tuple[Any, float, Move]]:
    """Name -> value, weight, move. Moves times weights are the shares of the budget in Laplace noise, nearly."""
    rows = int(found.get("rows", 0))

    def at_most(each: float) -> Move:
        return Move(most * each, most * each, most * each)

    size = scorer.edges.size + 1
    parts: dict[str, tuple[Any, float, Move]] = {}
    if not counted:
        parts["rows"] = (rows, 0.5, at_most(1.0))
    if "accuracy" in wanted:
        parts["correct"] = (found.get("correct", 0), 1.0, at_most(1.0))
    if "log loss" in wanted:
        parts["loss"] = (found.get("loss", 0) / _STEPS, 1.0, at_most(1.0))
    if {"auc", "calibration"} & {*wanted}:
        counts = found.get("bands", np.zeros((2, size), dtype=np.int64))
        parts["bands"] = (counts, 2.0, moves.of_counts(most, 2 * size, neighbors))
    return {
        name: (value, 2.0 ** round(math.log2(share / move.l1)), move) for name, (value, share, move) in parts.items()
    }


Three = tuple[float, float, float]


def _answers(
    released: dict[str, Any],
    off: Callable[[str, int], float],
    deviation: float,
    scorer: Scorer,
    wanted: Sequence[str],
    count: int | None,
    beta: float,
) -> dict[str, Three]:
    """Name -> number, lower and upper end."""
    draws = 1 if count is not None else 2
    rows = (float(count), 0.0) if count is not None else (float(released["rows"]), off("rows", draws))
    answers: dict[str, Three] = {}
    if "accuracy" in wanted:
        answers["accuracy"] = _share(float(released["correct"]), off("correct", draws), *rows)
    if "log loss" in wanted:
        value, low, high = _share(float(released["loss"]), off("loss", draws), *rows)
        half = 0.5 / _STEPS  # by which the loss of a row is rounded
        share = value, max(low - half, 0.0), min(high + half, 1.0)
        answers["log loss"] = tuple(-each * math.log(scorer.least) for each in share)  # type: ignore[assignment]
    if "auc" in wanted:
        answers["auc"] = area_of_bands(released["bands"], deviation, beta)
    if "calibration" in wanted:
        tenth = np.searchsorted(_TENTHS, np.r_[0.0, scorer.edges] + 1e-9, side="right")
        negative, positive = (np.bincount(tenth, weights=row, minlength=10) for row in released["bands"])
        for i, cells in enumerate(np.bincount(tenth, minlength=10).tolist()):
            name = f"{scorer.labels[scorer.places[1]]}, where {i / 10:g} to {(i + 1) / 10:g} is predicted"
            most = cells * off("bands", 2 * cells)
            answers[name] = _proportion(positive[i], negative[i], most)
    return answers


def _share(value: float, off: float, rows: float, rows_off: float) -> Three:
    """value / rows in [0, 1], where each is off by at most so much."""
    low, high = max(value - off, 0.0), max(value + off, 0.0)
    fewest, largest = max(rows - rows_off, 0.0), max(rows + rows_off, 1.0)
    ends = (low / largest, min(high / fewest, 1.0) if fewest > 0 else 1.0)
    middle = value / rows if rows > 0 else 0.5
    return min(max(middle, 0.0), 1.0), min(ends[0], 1.0), ends[1]


def _proportion(one: float, other: float, off: float) -> Three:
    """one / (one + other), where each is off by at most so much."""
    low, high = max(one - off, 0.0), max(one + off, 0.0)
    few, many = max(other - off, 0.0), max(other + off, 0.0)
    one, other = max(one, 0.0), max(other, 0.0)
    return (
        one / (one + other) if one + other > 0 else 0.5,
        low / (low + many) if low > 0 else 0.0,
        high / (high + few) if few > 0 else 1.0,
    )


def area_of_bands(bands: Floats, deviation: float, beta: float) -> Three:
    """The area from noisy counts (negative, positive), and its interval: all areas that a test does not reject.

    With p positive and m negative counts, A the matrix of 1 (a higher band), 1/2 (the same) and 0, and J that of ones,
    an area t satisfies p'(A - t J) m = 0. With independent noise on both the same of the noisy counts has the mean 0,
    no more than the variance s^2 (|(A - t J) m|^2 + |(A - t J)' p|^2) of the noisy ones (s^4 |A - t J|^2 too much, on
    average), and is nearly normal. Where noise drowns the counts no area is rejected.
    """
    negative, positive = bands
    pairs = np.tri(negative.size, k=-1) + np.eye(negative.size) / 2
    under, over, a, b = pairs @ negative, positive @ pairs, float(positive.sum()), float(negative.sum())
    true, both, most = float(positive @ under), a * b, float(ndtri(1 - beta / 2) * deviation) ** 2
    at = min(max(true / both, 0.0), 1.0) if both > 0 else 0.5
    # (true - t both)^2 <= most (|under - t b|^2 + |over - t a|^2), a quadratic inequality in t.
    square = both**2 - most * negative.size * (a**2 + b**2)
    middle = true * both - most * float(b * under.sum() + a * over.sum())
    rest = true**2 - most * float(under @ under + over @ over)
    if square <= 0 or both <= 0:
        return at, 0.0, 1.0
    half = math.sqrt(max(middle**2 - square * rest, 0.0)) / square
    return at, max(middle / square - half, 0.0), min(middle / square + half, 1.0)


# ------------------------------------------------------------------ what is checked before any row is read
def _scorer(people: People, model: Any, target: Any, features: Any, clip: Any) -> Scorer:
    declared = people.declared
    refuse_unknown(target, declared.columns)
    if not hasattr(model, "predict"):
        raise SpecificationError(
            f"Dataset.evaluate: a {type(model).__name__} has no predict",
            remedy="a fitted classifier, as scikit-learn's",
        )
    if not hasattr(model, "classes_"):
        raise SpecificationError(
            f"Dataset.evaluate: {type(model).__name__} has no classes_",
            why="evaluate compares labels: it is for classifiers, not regressions, and one that is not fitted has none",
            remedy="a classifier that was fitted (on other data, or privately: dpmodel.learn)",
        )
    if not declared.listed(target):
        raise SpecificationError(
            f"Dataset.evaluate: the target {target!r} has no domain",
            why="labels come from a public list",
            remedy=f"Dataset(..., domain={{{target!r}: [...]}}) with the classes of the model",
        )
    labels = declared.categories(target)
    number = {key(label): place for place, label in enumerate(labels)}
    classes = elements(model.classes_)
    missing = [each for each in classes if key(each) not in number]
    if missing:
        raise SpecificationError(
            f"Dataset.evaluate: the model has the class {missing[0]!r}, which is not in the domain of {target!r}",
            why="a label is right if it equals the predicted one",
            remedy=f"the domain with the classes as the model has them: {classes[:6]}",
        )
    given = features if features is not None else getattr(model, "feature_names_in_", None)
    names = [c for c in declared.names if c != target] if given is None else [str(c) for c in elements(given)]
    for column in names:
        refuse_unknown(column, declared.columns)
    undeclared = [c for c in names if c not in declared.names]
    if undeclared or not names or target in names:
        raise SpecificationError(
            f"Dataset.evaluate: the feature {undeclared[0]!r} has neither bounds nor a domain"
            if undeclared
            else f"Dataset.evaluate: {'no features' if not names else 'the target is a feature'}",
            why="every cell is read by itself, as it was declared",
            remedy="bounds= or domain= of all columns that the model reads; features=[...] for which these are",
        )
    if isinstance(clip, bool) or not isinstance(clip, int | float) or not 1e-12 <= clip < 0.5:
        raise SpecificationError(
            "Dataset.evaluate: clip is no number from 1e-12 to below 0.5",
            why="a row costs at most -ln(clip), and noise is as wide as that",
            remedy="clip=0.001",
        )
    cells = ((c, declared.place(c), declared.categories(c) if declared.listed(c) else None) for c in names)
    places = tuple(number[key(each)] for each in classes)
    bounds = {c: declared.bounds[c] for c in names if not declared.listed(c)}
    return Scorer(model, tuple(cells), declared.place(target), labels, places, float(clip), bounds)


def _wanted(metrics: Any, scorer: Scorer) -> tuple[str, ...]:
    can = ["accuracy"]
    can += ["log loss"] * scorer.chances
    can += ["auc"] * scorer.ranks
    can += ["calibration"] * (scorer.ranks and scorer.chances)
    if metrics is None:
        return tuple(can)
    chosen = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    wrong = [each for each in chosen if each not in can]
    if wrong or not chosen:
        raise SpecificationError(
            f"Dataset.evaluate: metrics={list(chosen)}",
            why="the model has no probabilities, or not two classes"
            if wrong and wrong[0] in METRICS
            else f"metrics are {', '.join(METRICS)}",
            remedy=f"metrics={can}",
        )
    return chosen


def _try(scorer: Scorer, people: People) -> None:
    """Two made-up rows, from public facts: what fails of them may be shown."""
    columns = {}
    for name, place, listed in scorer.features:
        column = np.array([0, len(listed) - 1]) if listed is not None else np.array(people.declared.bounds[name])
        columns[place] = column
    try:
        predicted, chances, score = scorer.answers(columns)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise SpecificationError(
            "Dataset.evaluate: the model fails on a made-up row of the declared columns",
            why=failed,
            remedy=f"features={[name for name, _, _ in scorer.features][:4]}... as the model was fitted on them",
        ) from None
    wrong = chances is not None and chances.shape != (2, len(scorer.places))
    if predicted.shape != (2,) or wrong or (score is not None and score.shape != (2,)):
        raise SpecificationError(
            "Dataset.evaluate: the model's answers are not one per row",
            remedy="predict with shape (n,), predict_proba with shape (n, classes)",
        )
