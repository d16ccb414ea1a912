"""Mechanisms over rows in blocks: the numbers of memory, sensitivity by brute force, and what is refused."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from blocks import MODELS, Broken, P, features_of, labels_of, problem, table
from descents import replayed, seeded, spent

import dpmodel as dpm
from dpmodel.compile import rows as block_module
from dpmodel.contract import Options
from dpmodel.errors import SourceError, SpecificationError, UnsupportedModelError
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import MOST_BLOCKS, RowSource, SourceRows, in_order
from dpmodel.privacy import gaussian_mu
from dpmodel.regressions.descent import NOISY_DESCENT, NoisyDescent
from dpmodel.regressions.model import PrivateRegression
from dpmodel.solve.registry import KINDS

OPTIONS = Options(1.0, 1e-6)
SUBSAMPLED = NoisyDescent(steps=8, rate=0.3)
MECHANISMS = [*KINDS[PrivateRegression].mechanisms, SUBSAMPLED]
READING = [each for each in MECHANISMS if each.serves.reads_blocks]


def model_of(name: str, data: Any, **given: Any) -> PrivateRegression:
    model = problem(name, data, **given)._model(None)
    assert isinstance(model, PrivateRegression)
    return model


def ragged(data: np.ndarray) -> MemoryBlocks:
    """Blocks of different sizes, one of them without rows."""
    return MemoryBlocks(np.split(data, [7, 7, 50, 51, 110]))


# ------------------------------------------------------------------ the same numbers
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_released_numbers_are_those_of_memory(name: str, neighbors: str) -> None:
    data = table()
    inside, outside = (model_of(name, each, neighbors=neighbors) for each in (data, ragged(data)))
    assert outside.in_blocks and not inside.in_blocks
    assert (outside.count, outside.scale, outside.loss) == (inside.count, inside.scale, inside.loss)
    served = 0
    for mechanism in READING:
        for options in (OPTIONS, Options(1.0, 0.0)):
            if mechanism.eligible(inside, options).eligible:
                runs = [mechanism.run(model, options, seeded(3)).x for model in (inside, outside)]
                np.testing.assert_allclose(runs[0], runs[1], rtol=1e-6, atol=1e-8, err_msg=mechanism.name)
                served += 1
    assert served >= 4


def test_every_mechanism_that_may_win_reads_blocks() -> None:
    assert {each.name for each in MECHANISMS if not (each.serves.reads_blocks or each.serves.as_printed)} == set()


def test_outputs() -> None:
    data, found = np.random.default_rng(0).uniform(-1, 1, (60, 5)), []
    for source in (None, MemoryBlocks.of(data, 17)):
        people = dpm.Records("people")
        A: Any = data[:, :3] if source is None else SourceRows(source, _first, 3)
        B: Any = data[:, 3:] if source is None else SourceRows(source, _last, 2)
        X = dpm.Private(A, name="X", unit="row", bounds=(-1, 1), records=people)
        Y = dpm.Private(B, name="Y", unit="row", bounds=(-1, 1), records=people)
        W = cp.Variable((3, 2))
        asked = dpm.Problem(cp.Minimize(cp.sum_squares(X @ W - Y) / 60), [cp.abs(W) <= 1])
        asked.solve(epsilon=1, delta=1e-6, mechanism="sufficient-statistics", rng=5)
        found.append(W.value)
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)


def _first(block: Any) -> np.ndarray:
    return np.asarray(block[:, :3])


def _last(block: Any) -> np.ndarray:
    return np.asarray(block[:, 3:])


def test_coins_belong_to_rows_not_to_blocks() -> None:
    data = table(300)
    models = [model_of("logistic", MemoryBlocks.of(data, rows)) for rows in (300, 41, 1)]
    runs = [SUBSAMPLED.run(model, OPTIONS, seeded(1)).x for model in models]
    for run in runs[1:]:
        np.testing.assert_allclose(run, runs[0], rtol=1e-9)


# ------------------------------------------------------------------ sensitivity, through blocks
def changed(data: np.ndarray, place: int, record: Any) -> np.ndarray:
    out = data.copy()
    out[place] = record
    return out


RECORDS = [
    np.array([1.0, 1, 1, 1]),
    np.array([1.0, 1, 1, -1]),
    np.array([1e300, -1e300, np.inf, -np.inf]),
    np.full(P + 1, np.nan),
]


def largest_move(name: str, make: Any, mechanism: Any = NOISY_DESCENT) -> float:
    """The largest part of the budget that tells apart two databases that differ in one record, over many pairs."""
    data, worst = table(), 0.0
    first = model_of(name, make(data))
    rows: Any = first.read_table()
    for place in (0, 8, 60, 119):
        pairs = [(a, b) for a in RECORDS for b in RECORDS if a is not b]
        for one, other in [(data[place], RECORDS[0]), *pairs]:
            tables = [replace(rows, source=make(changed(data, place, record))) for record in (one, other)]
            models = [replace(first, read=lambda table=table: table, _memo=first._memo) for table in tables]
            runs = replayed(lambda m, s: mechanism.run(m, OPTIONS, s).x, *models)
            gaussian = runs[0].asked[0][0] == "gaussian"
            worst = max(worst, spent(*runs) / (gaussian_mu(1.0, 1e-6) ** 2 if gaussian else 1.0))
    return worst


@pytest.mark.parametrize("name", ["logistic", "squared, ball"])
def test_one_record_moves_no_more_than_is_paid_for(name: str) -> None:
    assert 0.3 < largest_move(name, ragged) <= 1 + 1e-9


def test_a_block_counted_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the table; and by the search of worst records, where the table does not look."""
    with pytest.raises(SourceError, match="counted twice"):
        largest_move("logistic", lambda data: Broken(ragged(data).blocks))
    blind = block_module.Counted

    def together(combine: Any, a: Any, b: Any) -> Any:
        return blind(combine(a.value, b.value), a.blocks | b.blocks)

    monkeypatch.setattr(block_module, "_together", together)
    halves = lambda data: Broken(np.array_split(data, 2))  # noqa: E731
    assert largest_move("logistic", halves) > 1.5


def test_a_block_left_out_is_caught() -> None:
    class Missing(MemoryBlocks):
        def map_reduce(self, function: Any, combine: Any) -> Any:
            return MemoryBlocks(self.blocks[:-1]).map_reduce(function, combine)

    model = model_of("logistic", Missing(ragged(table()).blocks))
    with pytest.raises(SourceError, match="missing"):
        NOISY_DESCENT.run(model, OPTIONS, seeded(0))


# ------------------------------------------------------------------ what one record does to others
@pytest.mark.parametrize("odd", RECORDS, ids=["ends", "other ends", "infinite", "missing"])
def test_one_odd_record_changes_no_other(odd: np.ndarray) -> None:
    data = table()
    parts = []
    for one in (data, changed(data, 9, odd)):
        read = model_of("logistic", ragged(one)).read_table()
        parts.append(read.map_reduce(_copied, lambda a, b: (*a, *b)))
    X, y = ([np.concatenate([each(part) for part in some]) for some in parts] for each in (_rows, _labels))
    for pair in (X, y):
        rest = np.arange(120) != 9
        np.testing.assert_array_equal(pair[0][rest], pair[1][rest])
        assert (np.abs(pair[1]) <= 1).all()
    if np.isnan(odd).all():
        assert not X[1][9].any() and y[1][9] == 0


def _copied(part: Any) -> tuple[Any, ...]:
    """Parts come in the same memory, one after the other."""
    return (copy.deepcopy(part),)


def _rows(part: Any) -> np.ndarray:
    return np.asarray(part.blocks[0][0])


def _labels(part: Any) -> np.ndarray:
    return np.asarray(part.labels)


def test_scaled_like_an_array() -> None:
    data = table() * 5
    data[:, -1] = np.sign(data[:, -1])
    for given in ({"max_l2": 1.0}, {"max_l1": 2.0, "bounds": {0: (-1, 1), 1: (-3, 2), 2: (0, 9)}}):
        inside = dpm.Private(features_of(data), unit="row", **given)
        outside = dpm.Private(SourceRows(ragged(data), features_of, P), unit="row", **given)
        assert outside.sensitivity == inside.sensitivity
        kept = dpm.marks.vault.unseal(inside).reshape(data[:, :-1].shape, order="F")
        np.testing.assert_allclose(outside.limits.hold(features_of(data)), kept, rtol=1e-14)


# ------------------------------------------------------------------ nothing as long as the data
class Large(RowSource):
    """As many rows as it is told, of which none exist."""

    def __init__(self, rows: int, blocks: int = 400) -> None:
        self._sizes = (rows // blocks,) * blocks

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._sizes

    def map_reduce(self, function: Any, combine: Any) -> Any:
        raise AssertionError("read")


@pytest.mark.slow
def test_a_block_at_a_time() -> None:
    """While a block is worked on, none before it is alive."""
    alive, most = set[int](), [0]

    class Passing(RowSource):
        sizes = (50,) * 12

        def map_reduce(self, function: Any, combine: Any) -> Any:
            return in_order((function(Watched(k), k) for k in range(12)), combine)

    class Watched:
        def __init__(self, number: int) -> None:
            self.number = number
            alive.add(number)
            most[0] = max(most[0], len(alive))

        def __len__(self) -> int:
            return 50

        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            return table(50, self.number)

        def __del__(self) -> None:
            alive.discard(self.number)

    for mechanism in READING:
        model = model_of("squared, ball", Passing())
        if mechanism.eligible(model, OPTIONS).eligible:
            mechanism.run(model, OPTIONS, seeded(0))
    assert most[0] == 1


# ------------------------------------------------------------------ refusals, before anything is spent
def test_refusals() -> None:
    source = ragged(table())
    X = SourceRows(source, features_of, P)
    for given in (
        {"unit": "all", "l2": 1},
        {"unit": "column", "max_l2": 1},
        {"unit": "entry", "bounds": (-1, 1)},
        {"unit": "row", "bounds": (-1, 1), "nonneg": True},
        {"unit": "row", "bounds": (-np.ones((120, P)), np.ones((120, P)))},
        {"unit": "row", "bounds": (-1, 1), "positions": "private"},
    ):
        with pytest.raises(SpecificationError, match="blocks"):
            dpm.Private(X, **given)
    with pytest.raises(SpecificationError, match="blocks"):
        dpm.Private(X, unit="row", max_l2=1).value = table()[:, :-1]
    with pytest.raises(SpecificationError, match="blocks"):
        dpm.Private(table()[:, :-1], unit="row", max_l2=1).value = X
    with pytest.raises(SpecificationError, match="a source of"):
        SourceRows(Large(MOST_BLOCKS * 2, MOST_BLOCKS + 1), features_of, P)


def test_what_is_no_regression_over_one_source_is_refused_with_a_remedy() -> None:
    source, budget = ragged(table()), dpm.Budget(1.0, 1e-6)
    people = dpm.Records("people")
    X = dpm.Private(SourceRows(source, features_of, P), name="X", unit="row", bounds=(-1, 1), records=people)
    y = dpm.Private(SourceRows(source, labels_of, None), name="y", unit="entry", bounds=(-1, 1), records=people)
    other = dpm.Private(SourceRows(ragged(table()), labels_of, None), unit="entry", bounds=(-1, 1), records=people)
    here = dpm.Private(np.zeros(120), unit="entry", bounds=(-1, 1), records=people)
    w, per_row = cp.Variable(P), cp.Variable(120)
    loss = cp.sum_squares
    cases: dict[str, tuple[Any, list[Any], type[Exception], str]] = {
        "open program": (cp.sum(w), [X @ w <= 1], UnsupportedModelError, "bound x"),
        "right sides": (cp.sum(per_row), [per_row >= y], UnsupportedModelError, "rows"),
        "no sum": (cp.max(cp.abs(X @ w - y)), [], UnsupportedModelError, "Dataset"),
        "another source": (loss(X @ w - other), [], SpecificationError, "same source"),
        "an array": (loss(X @ w - here), [], SpecificationError, "same source"),
        "weights": (loss(cp.multiply(np.arange(120.0), X @ w - y)), [], UnsupportedModelError, "columns of the table"),
        "some rows": (loss(X[:60] @ w - y[:60]), [], UnsupportedModelError, "some of the rows"),
        "a variable a row": (loss(X @ w - y - per_row), [], UnsupportedModelError, "rows"),
        "turned twice": (loss(cp.reshape(X @ w, (2, 60), order="F")), [], UnsupportedModelError, "rows"),
    }
    for name, (objective, constraints, error, words) in cases.items():
        asked = dpm.Problem(cp.Minimize(objective), constraints)
        with pytest.raises(error, match=words):
            asked.solve(epsilon=1, delta=1e-6, budget=budget)
        assert not budget.spent.epsilon, name


def test_measurements_of_rows_in_blocks_are_refused() -> None:
    X = dpm.Private(SourceRows(ragged(table()), features_of, P), unit="row", bounds=(-1, 1))
    budget = dpm.Budget(1.0)
    with pytest.raises(UnsupportedModelError, match="Dataset"):
        dpm.measure(cp.sum(X, axis=0), epsilon=1, budget=budget)
    assert not budget.spent.epsilon


def test_mechanisms_that_need_rows_in_memory_are_refused() -> None:
    asked, budget = problem("squared, ball", ragged(table())), dpm.Budget(1.0, 1e-6)
    published = [each.name for each in MECHANISMS if each.serves.as_printed]
    plan = asked.plan(epsilon=1, delta=1e-6, as_printed=True)
    reasons = {each.mechanism: each.reason for each in plan.candidates}
    assert published and all("lie in blocks" in reasons[name] for name in published)
    with pytest.raises(UnsupportedModelError, match="lie in blocks"):
        asked.solve(epsilon=1, delta=1e-6, mechanism=published[0], budget=budget)
    assert not budget.spent.epsilon


@pytest.mark.parametrize("fault", ["shape", "kind", "error", "rows", "columns", "short"])
def test_faults_of_an_encoder_are_told_without_values(fault: str) -> None:
    secret = 1234.5678

    def numbers(block: Any) -> Any:
        if fault == "error":
            raise ValueError(f"cannot read {secret}")
        n = len(block)
        return {
            "shape": np.full((n, P + 1), secret),
            "kind": np.full((n, P), "x"),
            "columns": (np.full(n, secret),) * (P + 1),
            "short": (*[np.full(n, secret)] * (P - 1), np.full(n - 1, secret)),
        }[fault]

    source: Any = ragged(table())
    if fault == "rows":
        source = Shrunk(source.blocks)
    people, budget = dpm.Records("people"), dpm.Budget(1.0, 1e-6)
    X = dpm.Private(SourceRows(source, numbers, P), name="X", unit="row", bounds=(-1, 1), records=people)
    y = dpm.Private(SourceRows(source, labels_of, None), name="y", unit="entry", bounds=(-1, 1), records=people)
    asked = dpm.Problem(cp.Minimize(MODELS["logistic"](X, y, 120)[0]))
    with pytest.raises(SourceError) as caught:
        asked.solve(epsilon=1, delta=1e-6, mechanism="noisy-descent", budget=budget)
    assert str(secret) not in str(caught.value) and "budget" in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert budget.spent.epsilon == 1 and asked.release is not None


class Shrunk(MemoryBlocks):
    """A block that lost a record since it was counted."""

    def map_reduce(self, function: Any, combine: Any) -> Any:
        return MemoryBlocks([block[1:] for block in self.blocks]).map_reduce(function, combine)


def test_values_can_be_given_anew_and_copied() -> None:
    asked = problem("logistic", ragged(table()))
    twin = copy.deepcopy(asked)
    for each in (asked, twin):
        each.solve(epsilon=1, delta=1e-6, mechanism="noisy-descent", rng=0)
    released = [np.concatenate([np.ravel(v.value) for v in each.variables()]) for each in (asked, twin)]
    np.testing.assert_array_equal(*released)
    parameter = next(p for p in asked.parameters() if p.name() == "X")
    assert not pickle.loads(pickle.dumps(parameter)).has_value


def test_an_odd_record_warns_of_nothing() -> None:
    """Neither what is computed from a block nor how it becomes a float64 number."""

    def logarithms(block: np.ndarray) -> np.ndarray:
        return np.log(block[:, :-1].astype(np.longdouble)) * np.longdouble("1e4000")

    rows, people = np.abs(table()), dpm.Records("people")
    rows[7, 0] = -1
    source = MemoryBlocks.of(rows, 50)
    X = dpm.Private(SourceRows(source, logarithms, P), name="X", unit="row", bounds=(-1, 1), records=people)
    y = dpm.Private(SourceRows(source, labels_of, None), name="y", unit="entry", bounds=(-1, 1), records=people)
    w = cp.Variable(P)
    asked = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y) / len(rows)), [cp.norm1(w) <= 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked.solve(epsilon=1, delta=1e-6, mechanism="noisy-descent")
