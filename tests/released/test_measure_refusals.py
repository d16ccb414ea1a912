"""What ``measure`` refuses before anything is read or spent, what it charges, and what its results and failures say."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dpmodel.errors import (
    BudgetExceededError,
    ImpossibilityError,
    MissingValueError,
    NotPrivateWarning,
    SpecificationError,
    UnsupportedModelError,
)
from dpmodel.marks import Private, Records
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy import Budget, SeededSource
from dpmodel.privacy.distributions import Laplace
from dpmodel.released.faces.measure import measure
from dpmodel.solve.wall import RunError

DELTA = 1e-6

SECRET = 31337.25


def secret(**more: Any) -> Private:
    return Private([SECRET, 2 * SECRET], name="pay", **({"unit": "entry", "linf": 1} | more))


def silent(error: BaseException) -> bool:
    seen, words = [error, error.__cause__, error.__context__], ""
    words = " ".join(f"{e} {e!r} {getattr(e, 'why', '')}" for e in seen if e is not None)
    return not any(digits in words for digits in ("31337", "62674", "94011"))


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "array": (lambda: measure([1.0], 1.0), SpecificationError, "not private"),
    "none": (lambda: measure(None, 1.0), SpecificationError, "not private"),
    "published": (lambda: measure(Noisy([1.0], Laplace(1)), 1.0), SpecificationError, "published already"),
    "public": (lambda: measure(cp.Parameter(2, value=[1, 2]), 1.0), SpecificationError, "nothing in the expression"),
    "variable": (lambda: measure(secret() + cp.Variable(2, name="x"), 1.0), SpecificationError, "variable x"),
    "square": (lambda: measure(cp.square(secret()), 1.0), UnsupportedModelError, "not affine"),
    "product": (lambda: measure(cp.multiply(secret(), secret()), 1.0), UnsupportedModelError, "pay"),
    "quotient": (lambda: measure(1 / secret(), 1.0), UnsupportedModelError, "pay"),
    "public factor": (
        lambda: measure(cp.multiply(cp.Parameter(2, name="w", value=[1, 2]), secret()), 1.0),
        UnsupportedModelError,
        "pay",
    ),
    "complex": (lambda: measure(1j * secret(), 1.0), UnsupportedModelError, "complex"),
    "high": (lambda: measure(secret(linf=None), 1.0), ImpossibilityError, "Theorem 36"),
    "high by a part": (
        lambda: measure(cp.hstack([secret(), secret(linf=None)]), 1.0, DELTA),
        ImpossibilityError,
        "no bound is declared",
    ),
    "missing": (lambda: measure(Private(shape=2, name="pay", unit="entry", linf=1), 1.0), MissingValueError, "pay"),
    "missing public": (lambda: measure(secret() + cp.Parameter(2, name="w"), 1.0), MissingValueError, "w"),
    "nan": (lambda: measure(secret() + np.array([np.nan, 1.0]), 1.0), Exception, ""),
    "cancels": (lambda: measure(0 * secret(), 1.0), SpecificationError, "no record can change"),
    "fixed": (lambda: measure(secret(bounds=[1, 1]), 1.0), SpecificationError, "lo == hi"),
    "epsilon": (lambda: measure(secret(), 0.0), SpecificationError, "epsilon"),
    "epsilon text": (lambda: measure(secret(), "1"), SpecificationError, "epsilon"),  # type: ignore[arg-type]
    "delta": (lambda: measure(secret(), 1.0, 1.0), SpecificationError, "delta"),
    "distribution": (lambda: measure(secret(), 1.0, distribution="cauchy"), SpecificationError, "cauchy"),
    "distribution object": (lambda: measure(secret(), 1.0, distribution=Laplace(1)), SpecificationError, "Laplace"),  # type: ignore[arg-type]
    "pure gaussian": (lambda: measure(secret(), 1.0, distribution="gaussian"), SpecificationError, "delta = 0"),
    "discrete": (
        lambda: measure(secret(), 1.0, distribution="discrete-laplace"),
        SpecificationError,
        "not declared whole",
    ),
    "pure discrete gaussian": (
        lambda: measure(
            Private([1], name="k", unit="entry", linf=1, integer=True), 1.0, distribution="discrete-gaussian"
        ),
        SpecificationError,
        "delta = 0",
    ),
    "budget": (lambda: measure(secret(), 1.0, budget=2.0), SpecificationError, "budget"),  # type: ignore[arg-type]
    "spent": (lambda: measure(secret(), 1.0, budget=Budget(0.5)), BudgetExceededError, ""),
    "rng": (lambda: measure(secret(), 1.0, rng="seed"), SpecificationError, "rng"),
    "name": (lambda: measure(secret(), 1.0, name=3), SpecificationError, "name"),  # type: ignore[arg-type]
    "huge": (lambda: measure(secret(linf=1e90), 1e-70), SpecificationError, "scale"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused_before_anything_is_read(case: str, unread: None) -> None:
    call, kind, words = BAD[case]
    with pytest.raises(kind) as caught:
        call()
    assert not isinstance(caught.value, AssertionError)
    assert words in str(caught.value)
    assert silent(caught.value)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_changes_beyond_floating_point_are_refused_before_the_charge() -> None:
    budget = Budget(1.0)
    with pytest.raises(SpecificationError, match="too large"):
        measure(1e250 * Private([1.0], name="p", unit="entry", linf=1e100), 1.0, rng=0, budget=budget)
    assert budget.spent.epsilon == 0


def test_the_budget_is_charged_what_is_spent() -> None:
    budget = Budget(2.0, 1e-5)
    measure(secret(), 0.5, DELTA, budget=budget, rng=0)
    assert (budget.spent.epsilon, budget.spent.delta) == (0.5, 0.0)
    measure(Private(np.zeros(50), name="q", unit="all", l2=1.0), 0.5, DELTA, budget=budget, rng=0, name="second")
    assert (budget.spent.epsilon, budget.spent.delta) == (1.0, DELTA)
    assert [charge.label for charge in budget.history] == ["measure pay", "measure second"]
    with pytest.raises(SpecificationError):
        measure(secret(), 0.5, distribution="gaussian", budget=budget, rng=0)
    with pytest.raises(BudgetExceededError):
        measure(secret(), 1.5, budget=budget, rng=0)
    assert len(budget.history) == 2


def test_a_failure_in_the_middle_tells_nothing() -> None:
    class Failing(SeededSource):
        def laplace(self, values: object, scale: float) -> Any:
            raise ValueError(f"cannot noise {values}")

    budget = Budget(1.0)
    with pytest.raises(RunError, match="ValueError") as caught:
        measure(secret(), 1.0, budget=budget, rng=Failing(0))
    assert silent(caught.value) and caught.value.__context__ is None and caught.value.__cause__ is None
    assert budget.spent.epsilon == 1.0

    class Interrupted(SeededSource):
        def laplace(self, values: object, scale: float) -> Any:
            try:
                raise ValueError(f"cannot noise {values}")
            except ValueError:
                raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt) as stopped:
        measure(secret(), 1.0, rng=Interrupted(0))
    assert stopped.value.__context__ is None
    names = [frame.f_code.co_name for frame, _ in _frames(stopped.value.__traceback__)]
    assert "measure" in names and not {"run", "laplace"} & set(names)


def _frames(traceback: Any) -> Iterator[tuple[Any, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def test_sources_without_discrete_draws() -> None:
    class Old:
        is_private = False
        laplace = gaussian = truncated_laplace = noisy_max = lambda self, values, scale: np.asarray(values, float)
        truncated_gaussian = laplace

    p = Private([1, 2], name="p", unit="entry", linf=1, integer=True)
    budget = Budget(1.0)
    with pytest.raises(SpecificationError, match="discrete laplace"):
        measure(p, 1.0, rng=Old(), budget=budget)
    assert budget.spent.epsilon == 0
    assert measure(p, 1.0, rng=Old(), distribution="laplace").value.tolist() == [1.0, 2.0]


# ------------------------------------------------------------------ what it says
def test_the_result_says_what_it_cost() -> None:
    p = Private(np.arange(4), name="visits", unit="entry", linf=1, records=Records("patients", "add-remove"))
    with pytest.warns(NotPrivateWarning):
        noisy = measure(p, 0.5, rng=3)
    assert (noisy.name, noisy.epsilon, noisy.delta, noisy.neighbors) == ("visits", 0.5, 0.0, "add-remove")
    assert noisy.record == "NOT PRIVATE (seeded noise for tests); a record of patients owns one entry of visits"
    assert measure(2 * p + p[::-1], 0.5, rng=3).name == "function of visits"
    assert measure(p, 0.5, rng=3, name="mine").name == "mine"
    assert noisy.value.tolist() == measure(p, 0.5, rng=3).value.tolist() != measure(p, 0.5, rng=4).value.tolist()
    assert pickle.loads(pickle.dumps(noisy)).record == noisy.record
