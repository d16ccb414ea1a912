"""The budget in one process: arithmetic, refusals, threads, copies, forks."""

import contextlib
import copy
import multiprocessing
import os
import pickle
import random
import re
import threading
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodel.errors import BudgetExceededError, SpecificationError
from dpmodel.privacy import Budget


def test_charges_add_up_and_the_next_is_refused():
    budget = Budget(1.0, 1e-6)
    charge = budget.charge(0.25, 4e-7, label="demand")
    assert budget.spent == (0.25, 4e-7) and budget.remaining == (0.75, pytest.approx(6e-7))
    assert budget.history == (charge,) and charge.label == "demand" and len(charge.id) == 32
    assert datetime.fromisoformat(charge.time).utcoffset().total_seconds() == 0
    for too_much in ((0.76, 0.0), (0.1, 7e-7)):
        assert not budget.can_afford(*too_much)
        with pytest.raises(BudgetExceededError, match=r"at most epsilon=0\.75, delta=6e-07 is left") as caught:
            budget.charge(*too_much)
        assert caught.value.why and caught.value.remedy
        with pytest.raises(BudgetExceededError):
            budget.require(*too_much)
    assert budget.history == (charge,)
    budget.require(0.75, 6e-7)
    assert budget.history == (charge,)
    budget.charge(0.75, 6e-7)
    assert budget.remaining.epsilon == 0.0


@settings(max_examples=30)
@given(st.integers(1, 400), st.floats(1e-6, 1e6))
def test_equal_shares_always_fit(shares, epsilon):
    budget = Budget(epsilon)
    for _ in range(shares):
        budget.charge(epsilon / shares)
    assert budget.remaining.epsilon <= 1e-12 * epsilon
    with pytest.raises(BudgetExceededError):
        budget.charge(epsilon * 1e-9)


def test_slack_cannot_be_milked():
    budget = Budget(1.0)
    budget.charge(1.0)
    spent = 0
    for _ in range(2000):
        if budget.can_afford(1e-13):
            budget.charge(1e-13)
            spent += 1
    assert spent <= 11


def test_threads_cannot_overspend():
    budget, accepted, start = Budget(1.0), [], threading.Barrier(16)

    def spend(seed):
        rng = random.Random(seed)
        start.wait()
        for _ in range(100):
            epsilon = rng.uniform(0.001, 0.01)
            with contextlib.suppress(BudgetExceededError):
                accepted.append(budget.charge(epsilon).epsilon)

    threads = [threading.Thread(target=spend, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(accepted) <= 1.0 + 1e-9
    assert sum(accepted) > 0.99
    assert sorted(accepted) == sorted(c.epsilon for c in budget.history)
    assert len({c.id for c in budget.history}) == len(accepted)


@pytest.mark.parametrize("arguments", [(0,), (-1,), ("1",), (True,), (float("nan"),), (1, 1), (1, -1), (1, "0")])
def test_bad_totals(arguments):
    with pytest.raises(SpecificationError):
        Budget(*arguments)


@pytest.mark.parametrize("arguments", [(-0.1,), (float("nan"),), (float("inf"),), (None,), (0.1, -1), (0.1, 1)])
def test_bad_charges(arguments):
    budget = Budget(1.0, 0.1)
    for method in (budget.charge, budget.can_afford, budget.require):
        with pytest.raises(SpecificationError):
            method(*arguments)
    with pytest.raises(SpecificationError):
        budget.charge(0.1, 0.0, label=3)
    with pytest.raises(SpecificationError):
        Budget(1.0, ledger=3)
    assert budget.history == ()


def test_copies_are_the_same_budget_and_pickles_are_refused():
    budget = Budget(1.0)
    assert copy.copy(budget) is budget and copy.deepcopy([budget])[0] is budget
    with pytest.raises(SpecificationError, match="pickled"):
        pickle.dumps(budget)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_refused_even_if_the_lock_was_held():
    budget = Budget(1.0)
    budget._ledger._lock.acquire()  # as another thread might at the moment of the fork
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def child():
        answers = [str(budget)]
        for attempt in (
            lambda: budget.charge(0.1),
            lambda: budget.can_afford(0.1),
            lambda: budget.require(0.1),
        ):
            try:
                attempt()
                answers.append("accepted")
            except SpecificationError as error:
                answers.append(str(error))
        results.put(answers)

    process = context.Process(target=child)
    process.start()
    answers = results.get(timeout=20)
    process.join(timeout=20)
    assert all("another process" in answer for answer in answers) and len(answers) == 4


def test_readable():
    budget = Budget(2.0, 1e-6)
    budget.charge(0.5, label="first")
    assert " ".join(str(budget).split()) == (
        "Budget(epsilon=2, delta=1e-06): epsilon 1.5, delta 1e-6 left for one more solve like the last (pure), or 3 "
        "more of epsilon 0.5 1 charge so far, together epsilon 0.5, delta 0 "
        "whatever is charged, a neighbor's best guess goes from 50 % to at most 88 %"
    )
    assert re.fullmatch(r"<Budget\(.*\).*>", repr(budget))
    plain = budget.to_dict()
    assert plain["spent"] == {"epsilon": 0.5, "delta": 0.0} and plain["history"][0]["label"] == "first"
    budget.charge(1.2)
    assert str(budget.remaining) == "epsilon 0.3, delta 1e-6"  # 0.30000000000000004 as a float
