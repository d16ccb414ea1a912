"""Warnings of private data that stand in a model as public ones: by memory always, by shape once a process; and of a
budget without anything private."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import dpmodel as dpm
from dpmodel.compile import refusals

DATA = np.array([20.25, 31.5, 25.75])
TABLE = np.array([[20.25, 1.5], [31.5, 2.5], [25.75, 3.5]])


@pytest.fixture
def first_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which nothing was hinted at yet."""
    monkeypatch.setattr(refusals, "_hinted", False)


def warned(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    found = [w for w in caught if w.category is dpm.errors.PossibleLeakWarning]
    assert all(w.filename == __file__ for w in found)  # the user's line
    return [str(w.message) for w in found]


def beside(public: Any, private: Any = None, **declared: Any) -> dpm.Problem:
    b = dpm.Private(private, name="b", unit="entry", linf=1, **declared)
    x = cp.Variable(public.shape if hasattr(public, "shape") else (), name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [cp.sum(x) >= cp.sum(b), x <= public + 100])


# ------------------------------------------------------------------ memory
def parameter(value: Any) -> cp.Parameter:
    return cp.Parameter(value.shape, name="cap", value=value)


def shared() -> Iterator[tuple[str, Any, Any]]:
    """(words, private value, public leaf) that have numbers in common; what owns the memory lives as long."""
    data, table = DATA.copy(), TABLE.copy()
    yield "the same array", data, parameter(data)
    yield "a part of it", data, parameter(data[1:])
    yield "another part of it that overlaps", data[:2], parameter(data[1:])
    yield "turned", table, parameter(table.T)
    yield "a column of it", table, parameter(table[:, 1])
    yield "the matrix of the column", table[:, 1], parameter(table)
    frame = pd.DataFrame(TABLE, columns=["a", "b"])
    yield "a column of a frame and its numbers", frame["a"], parameter(frame["a"].to_numpy())
    yield "a column of a frame, as a constant", frame["a"], cp.Constant(frame["a"])
    yield "a frame and its column", frame, cp.Constant(frame["b"])


def not_shared() -> Iterator[tuple[str, Any, Any]]:
    data, table = DATA.copy(), TABLE.copy()
    yield "the same numbers elsewhere", data, parameter(data.copy())
    yield "other columns of one matrix", table[:, 0], parameter(table[:, 1])
    yield "other rows", data[:1].repeat(2), parameter(data[1:])
    yield "parts side by side", data[:2], parameter(data[1:2].repeat(2))
    frame = pd.DataFrame(TABLE, columns=["a", "b"])
    yield "other columns of a frame", frame["a"], cp.Constant(frame["b"])


@pytest.mark.parametrize("case", [case[0] for case in shared()])
def test_numbers_in_the_memory_of_a_private_value(case: str) -> None:
    _, private, public = next(each for each in shared() if each[0] == case)
    for _ in range(2):  # not once a process
        problem = beside(public, private)
        (text,) = warned(problem.classify)
        assert "in the memory of private parameter 'b'" in text and not re.search(r"\d\.", text)
        assert not warned(problem.classify)


@pytest.mark.parametrize("case", [case[0] for case in not_shared()])
def test_numbers_elsewhere(case: str) -> None:
    _, private, public = next(each for each in not_shared() if each[0] == case)
    assert not warned(beside(public, private).classify)


def test_a_value_given_after_compiling_is_looked_at() -> None:
    data = DATA.copy()
    problem = beside(parameter(data[1:]), shape=3)
    assert not warned(problem.classify)
    next(p for p in problem.parameters() if isinstance(p, dpm.Private)).value = data
    (text,) = warned(lambda: problem.solve(epsilon=1, rng=0))
    assert text.startswith("public parameter 'cap' is in the memory of")


def test_memory_that_is_no_more_is_nobodys() -> None:
    """Something else may lie there by now; here something that says it does."""
    data = DATA.copy()
    b = dpm.Private(data[:], name="b", unit="entry", linf=1)
    there = SimpleNamespace(__array_interface__=data.__array_interface__)
    assert b.shares_memory(np.asarray(there))
    del data
    gc.collect()
    assert not b.shares_memory(np.asarray(there))


# ------------------------------------------------------------------ shape: one hint a process
def test_one_hint_a_process(first_hint: None) -> None:
    problems = [beside(np.array([1.0, 2.0, 3.0]), DATA.copy()) for _ in range(3)]
    (text,) = [text for problem in problems for text in warned(problem.classify)]
    assert text.startswith("in ") and ": a plain constant of shape (3,) has the shape of private parameter 'b'" in text
    assert "once a process" in text and not re.search(r"\d\.", text)


@pytest.mark.parametrize(
    "public",
    [
        pytest.param(cp.Constant([1.0, 2.0, 3.0], name="capacity"), id="named"),
        pytest.param(np.ones(3), id="all equal"),
        pytest.param(np.zeros(3), id="zeros"),
        pytest.param(7.0, id="number"),
        pytest.param(np.arange(4.0), id="another shape"),
        pytest.param(cp.Parameter(3, name="p", value=np.array([1.0, 2.0, 3.0])), id="public parameter"),
    ],
)
def test_what_is_not_hinted_at(public: Any, first_hint: None) -> None:
    assert not warned(beside(public, DATA).classify)


def test_labels_of_a_regression_and_what_is_measured_with_a_constant(first_hint: None, monkeypatch: Any) -> None:
    X, w = dpm.Private(TABLE, name="X", unit="row", bounds=[0, 99]), cp.Variable(2)
    (text,) = warned(dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - DATA)), [cp.norm(w) <= 1]).classify)
    assert "as many rows as private parameter 'X'" in text
    monkeypatch.setattr(refusals, "_hinted", False)
    b = dpm.Private(DATA, name="b", unit="entry", linf=1)
    assert warned(lambda: dpm.measure(b - np.array([1.0, 2.0, 3.0]), 1))


def test_the_hint_does_not_depend_on_private_values(monkeypatch: pytest.MonkeyPatch) -> None:
    public, texts = np.array([1.0, 2.0, 3.0]), []
    for private in (None, DATA, DATA[::-1].copy(), public.copy(), np.zeros(3)):
        monkeypatch.setattr(refusals, "_hinted", False)
        texts.append(warned(lambda private=private: beside(public, private, shape=3).plan(epsilon=1)))
    assert texts == [texts[0]] * 5 and len(texts[0]) == 1


# ------------------------------------------------------------------ a budget, and nothing private
def forgotten() -> tuple[dpm.Problem, cp.Variable]:
    x = cp.Variable(3, name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= DATA]), x


@pytest.mark.parametrize("given", [{"epsilon": 1}, {"epsilon": 1, "delta": 1e-6}, {"budget": True}], ids=str)
def test_a_forgotten_private_is_warned_of(given: dict[str, Any]) -> None:
    for _ in range(2):
        budget = dpm.Budget(1, 1e-6)
        (problem, x), asked = forgotten(), given | ({"budget": budget} if "budget" in given else {})
        (text,) = warned(lambda problem=problem, asked=asked: problem.solve(**asked))
        assert text.startswith("nothing in this problem is Private: it is solved exactly") and "Private(values" in text
        np.testing.assert_allclose(x.value, DATA)
        assert problem.release.guarantee.epsilon == budget.spent.epsilon == 0


def test_as_an_error_it_comes_before_anything_is_solved() -> None:
    problem, x = forgotten()
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpm.errors.PossibleLeakWarning)
        with pytest.raises(dpm.errors.PossibleLeakWarning):
            problem.solve(epsilon=1)
    assert x.value is None and problem.release is None


def test_where_nothing_is_forgotten() -> None:
    problem, x = forgotten()
    assert not warned(problem.solve)
    noisy = dpm.Noisy([3.0, 4.0, 5.0], noise=dpm.noise.Laplace(2), name="published")
    assert not warned(
        lambda: dpm.Problem(cp.Minimize(dpm.released.neg_log_likelihood(x, noisy)), [x >= 0]).solve(epsilon=1)
    )
    b = dpm.Private(shape=3, name="b", linf=1)  # reaches the objective's value alone
    assert not warned(lambda: dpm.Problem(cp.Minimize(cp.sum(x) + cp.sum(b)), [x >= DATA]).solve(epsilon=1))
