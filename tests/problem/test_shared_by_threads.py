"""One problem in several threads: each call has it alone, so that no solve sees half of another one."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm

THREADS, TURNS = 8, 6


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def program() -> dpm.Problem:
    x = cp.Variable(2, name="x", bounds=[0, 1e3])
    b = dpm.Private([20.0, 30.0], name="b", unit="entry", linf=1)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])


def regression() -> dpm.Problem:
    rng = np.random.default_rng(0)
    X = dpm.Private(rng.uniform(-1, 1, (50, 2)), name="X", unit="row", bounds=[-1, 1])
    y = dpm.Private(rng.uniform(-1, 1, 50), name="y", unit="entry", bounds=[-1, 1])
    w = cp.Variable(2, name="w")
    return dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.norm1(w) <= 1])


def at_once(work: Callable[[int], Any]) -> list[BaseException]:
    """``work(0)`` .. ``work(THREADS - 1)``, begun together; what they raised."""
    barrier, raised = threading.Barrier(THREADS), []

    def one(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("build", "mechanism"), [(program, "laplace-once"), (regression, "sufficient-statistics")])
def test_every_charge_has_its_release(build: Callable[[], dpm.Problem], mechanism: str) -> None:
    problem, budget = build(), dpm.Budget(1e6, 0.1)
    values: list[float | None] = []

    def work(number: int) -> None:
        for turn in range(TURNS):
            if number % 4 == 3:
                assert problem.plan(1, 1e-6, mechanism=mechanism).chosen.mechanism == mechanism
                assert problem.classify().cells and problem.explain() and problem.is_dp()
            else:
                values.append(problem.solve(1, 1e-6, budget=budget, rng=number * TURNS + turn, mechanism=mechanism))

    assert at_once(work) == []
    assert len(budget.history) == len(values) == 6 * TURNS
    alone = build()
    expected = [
        alone.solve(1, 1e-6, rng=number * TURNS + turn, mechanism=mechanism)
        for number in range(THREADS)
        for turn in range(TURNS)
        if number % 4 != 3
    ]
    np.testing.assert_allclose(np.sort(np.array(values, dtype=float)), np.sort(np.array(expected, dtype=float)))


@pytest.mark.filterwarnings("ignore")
def test_problems_of_their_own_that_share_a_parameter() -> None:
    """Each with its variables: the parameter is only read, and what is kept for the process has its own locks."""
    b = dpm.Private([20.0, 30.0], name="b", unit="entry", linf=1)
    budget = dpm.Budget(1e6)

    def work(number: int) -> None:
        for turn in range(TURNS):
            x = cp.Variable(2, name="x", bounds=[0, 1e3])
            problem = dpm.Problem(cp.Minimize((number % 2 + 1) * cp.sum(x)), [x >= b])
            assert problem.solve(1, budget=budget, rng=turn) is not None
            assert problem.release is not None and problem.release.variables["x"] == pytest.approx(x.value)

    assert at_once(work) == [] and len(budget.history) == THREADS * TURNS


def test_copies_and_pickles_have_locks_of_their_own() -> None:
    problem = program()
    problem.solve(1, rng=0)
    for other in (copy.deepcopy(problem), copy.copy(problem), pickle.loads(pickle.dumps(problem)), problem + problem):
        assert other._lock is not problem._lock
        with problem._lock:
            raised = at_once(lambda number, other=other: other.classify())
        assert raised == []
