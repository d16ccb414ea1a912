"""What newcomers get wrong: every error says what is wrong, why, and a remedy that works. Nothing is spent."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import dpmodel as dpm
from dpmodel import released
from dpmodel.errors import DPModelError
from dpmodel.noise import Laplace

FRAME = pd.DataFrame({"age": [20.0, 40.0, 60.0], "sex": ["f", "m", "f"], "cost": [1.0, 2.0, 3.0]})
DOMAIN = {"sex": ["f", "m"], "age": 3}


def load(**declared: Any) -> dpm.Private:
    return dpm.Private([10.0, 20.0, 30.0], **{"name": "load", "unit": "entry", "linf": 1, **declared})


def problem(x: Any = None) -> dpm.Problem:
    x = cp.Variable(3, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= load()])


def dataset(frame: pd.DataFrame = FRAME, **declared: Any) -> dpm.Dataset:
    given = {"bounds": {"age": (18, 90), "cost": (0, 100)}, "domain": {"sex": ["f", "m"]}, **declared}
    return dpm.Dataset(frame, **given)


def noisy(values: Any) -> dpm.Noisy:
    return dpm.Noisy(values, noise=Laplace(1.0))


def fit(measured: Any = None, **settings: Any) -> Any:
    return released.consistent_table(measured or {"sex": noisy([1.0, 2])}, domain=DOMAIN, **settings)


def missing() -> dpm.Dataset:
    frame = FRAME.copy()
    frame.loc[1, "age"] = np.nan
    return dataset(frame)


# What is done; what the error says of why, and what to try.
WRONG: dict[str, tuple[Callable[[], Any], str, str]] = {
    "gaussian without delta": (lambda: problem().plan(1, mechanism="gaussian-once"), "delta > 0", "delta=1e-6"),
    "objective without Minimize": (lambda: dpm.Problem(cp.sum(cp.Variable(2)), []), "small or large", "cp.Minimize("),
    "one constraint": (lambda: dpm.Problem(cp.Minimize(0), cp.Variable() >= 1), "a list", "[constraint]"),
    "a solver nobody has": (lambda: problem().plan(1, solver="foo"), "knows no solver", "CLARABEL"),
    "bounds with NaN": (lambda: load(bounds=[0, np.nan]), "clipped to NaN", "None for an end"),
    "bounds the wrong way": (lambda: load(bounds=[9, 0]), "no value lies between", "lower end first"),
    "nothing in it": (lambda: dpm.Private([], unit="entry", linf=1), "nothing to protect", "at least one"),
    "text without a domain": (lambda: dataset(domain=None).rows(["age", "sex"]), "how far one record", "domain={'sex'"),
    "sum of categories": (lambda: dataset().sum("sex"), "categories are counted", "count(by='sex')"),
    "no such column": (lambda: dataset().rows(["agee"]), "named as in the table", "age, sex, cost"),
    "missing values": (lambda: missing().rows(["age"]), "missing values", "outside='drop'"),
    "an array as table": (lambda: dpm.Dataset(np.ones((3, 2))), "by name", "pandas.DataFrame(array"),
    "a path as table": (lambda: dpm.Dataset("visits.csv"), "by name", "Dataset.scan(path)"),
    "domain of no values": (lambda: released.consistent_table({}, domain={"sex": 0}), "how many values", "a list"),
    "form": (lambda: fit(form="ls"), "likelihood or by weighted", "leave it out"),
    "round": (lambda: fit().solve(round="up"), "keep every sum", "'nearest'"),
    "epsilon of a fit": (lambda: fit().solve(epsilon=1), "spends nothing", "leave it out"),
    "another argument of a fit": (lambda: fit().solve(bounds=(0, 1)), "no argument", "leave it out"),
    "columns one by one": (lambda: fit().marginal("sex", "age"), "one argument", "marginal(('sex', 'age'))"),
    "columns twice": (lambda: fit({("sex", "sex"): noisy(np.ones((2, 2)))}), "one axis", "each column once"),
    "bounds of cells": (lambda: fit(bounds=(5, 1)).solve(), "no number lies", "lower end first"),
    "mask of zeros": (lambda: fit(structural_zeros=np.ones((3, 3), bool)), "every cell", "(2, 3)"),
    "zeros of no value": (lambda: fit(structural_zeros=[{"sex": "x"}]), "the domain lists", "'f', 'm'"),
    "zeros of no column": (lambda: fit(structural_zeros=[{"town": "x"}]), "columns of the domain", "'sex', 'age'"),
    "a label of its own": (
        lambda: fit([dpm.Noisy(pd.Series([1.0, 2], index=pd.Index(["f", "x"], name="sex")), noise=Laplace(1))]),
        "by their labels",
        "lists 'x'",
    ),
    "measure without epsilon": (lambda: dpm.measure(load()), "no default could be right", "epsilon=1.0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_why_and_what_to_try(case: str) -> None:
    act, why, remedy = WRONG[case]
    with pytest.raises(DPModelError) as caught:
        act()
    error = caught.value
    assert error.what and why in error.why and remedy in error.remedy, str(error)


def test_a_solver_that_is_not_installed_is_told_from_one_that_is_none() -> None:
    absent = next(name for name in ("GUROBI", "MOSEK", "CPLEX", "XPRESS") if name not in cp.installed_solvers())
    with pytest.raises(DPModelError, match="not installed"):
        problem().plan(1, solver=absent)


def test_the_gaussian_advice_works_and_is_given_only_where_it_does() -> None:
    assert problem().plan(1, 1e-6, mechanism="gaussian-once").chosen.mechanism == "gaussian-once"
    with pytest.raises(DPModelError) as caught:
        problem().plan(1, mechanism="exact-equations")
    assert "delta=1e-6" not in caught.value.remedy


def test_to_frame_without_a_name_has_all_variables() -> None:
    x, y = cp.Variable(3, nonneg=True, name="x"), cp.Variable(2, nonneg=True, name="y")
    both = dpm.Problem(cp.Minimize(cp.sum(x) + cp.sum(y)), [x >= load(), y >= 1])
    both.solve(1, rng=0)
    frame = both.release.to_frame()
    assert list(frame["variable"]) == ["x"] * 3 + ["y"] * 2
    np.testing.assert_allclose(frame["value"], np.r_[x.value, y.value])


def test_estimators_say_what_to_do_with_missing_values_and_unequal_lengths() -> None:
    ridge = dpm.learn.PrivateRidge(bounds=(0, 90), label_bounds=(0, 100), epsilon=1, delta=1e-6)
    X, y = np.linspace(20, 80, 30)[:, None], np.linspace(0, 100, 30)
    with pytest.raises(DPModelError) as caught:
        ridge.fit(np.where(X < 30, np.nan, X), y)
    assert caught.value.what == "PrivateRidge: Input X contains NaN" and "PublicEncoder" in caught.value.remedy
    with pytest.raises(DPModelError) as caught:
        ridge.fit(X, y[:-1])
    assert "30, 29" in caught.value.what and "one label for each row" in caught.value.remedy


# ------------------------------------------------------------------ a norm that is not squared, labels of 0 and 1
def regression(loss: Callable[..., Any], labels: Any = (0, 1), **declared: Any) -> dpm.Problem:
    rng = np.random.default_rng(0)
    X = dpm.Private(rng.uniform(-1, 1, (40, 2)), name="X", unit="row", bounds=(-1, 1))
    y = dpm.Private(rng.integers(0, 2, 40) * 1.0, name="y", unit="entry", bounds=labels, **declared)
    w = cp.Variable(2, name="w")
    return dpm.Problem(cp.Minimize(loss(X, y, w)), [])


def test_the_square_of_a_norm_is_advised_and_works() -> None:
    with pytest.raises(DPModelError) as caught:
        regression(lambda X, y, w: 2 * cp.norm(X @ w - y)).plan(1, 1e-6)
    assert "cp.sum_squares(X @ w - y)" in caught.value.remedy
    assert regression(lambda X, y, w: cp.sum_squares(X @ w - y)).plan(1, 1e-6).chosen.eligible
    x = cp.Variable(3, name="x")
    with pytest.raises(DPModelError) as caught:  # a norm of public numbers is another matter
        dpm.Problem(cp.Minimize(cp.norm(x) + load(linf=1e-3) @ cp.square(x)[:3]), []).plan(1)
    assert "sum_squares" not in caught.value.remedy


LOGISTIC = {
    "logistic": lambda X, y, w: cp.sum(cp.logistic(-cp.multiply(y, X @ w))),
    "hinge": lambda X, y, w: cp.sum(cp.pos(1 - cp.multiply(y, X @ w))),
}


@pytest.mark.parametrize("loss", LOGISTIC)
@pytest.mark.parametrize("labels", [(0, 1), (0, 0.5), (0.25, 1)])
def test_labels_that_are_no_signs_are_warned_of(loss: str, labels: Any) -> None:
    with pytest.warns(UserWarning, match=r"y is declared to be 0 or more .* 2 \* y - 1"):
        regression(LOGISTIC[loss], labels).classify()


@pytest.mark.parametrize("loss", LOGISTIC)
def test_signs_are_not(loss: str) -> None:
    signs = {
        "logistic": lambda X, y, w: cp.sum(cp.logistic(-cp.multiply(2 * y - 1, X @ w))),
        "hinge": lambda X, y, w: cp.sum(cp.pos(1 - cp.multiply(2 * y - 1, X @ w))),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regression(signs[loss]).classify()
        regression(LOGISTIC[loss], (-1, 1)).classify()
        regression(lambda X, y, w: cp.sum(cp.logistic(X @ w) - cp.multiply(y, X @ w))).classify()
