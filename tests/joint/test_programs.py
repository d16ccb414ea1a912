"""Answers of people with several limits: one linear program for each, decided by nobody else's numbers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel.joint.form import Affine, Form, People
from dpmodel.joint.programs import solved
from dpmodel.joint.respond import respond

K, ROWS = 5, 3


def people_of(rng: np.random.Generator, count: int, *, bounded: bool = True) -> tuple[Form, People]:
    """People with three limits of five entries, all numbers their own."""
    parts = {"values": K, "caps": K, "use": K, "coefficients": ROWS * K, "limits": ROWS}
    width, at, own = sum(parts.values()), 0, {}
    for name, size in parts.items():
        places = at + np.arange(size), np.arange(size)
        own[name] = Affine(sp.csr_array((np.ones(size), places), shape=(width, size)), np.zeros(size))
        at += size
    form = Form(
        data=(("all", width),),
        private=frozenset(["all"]),
        shape=(K,),
        extra=0,
        resources=K,
        use_at=(np.arange(K), np.arange(K)),
        limits_at=(np.repeat(np.arange(ROWS), K), np.tile(np.arange(K), ROWS)),
        values=own["values"],
        caps=(own["caps"],) if bounded else (),
        use=own["use"],
        coefficients=own["coefficients"],
        limits=own["limits"],
        personal=np.ones(ROWS, dtype=bool),
    )
    return form, form.people(rng.random((count, width)))


def best(form: Form, people: People, i: int, prices: np.ndarray, radius: float) -> float:
    """By SciPy, for person i."""
    W = np.zeros((ROWS, K))
    W[form.limits_at] = people.coefficients[i]
    assert people.caps is not None
    most = np.minimum(people.caps[i], radius / people.use[i])
    found = linprog(
        prices * people.use[i] - people.values[i],
        A_ub=W,
        b_ub=people.limits[i],
        bounds=np.column_stack([np.zeros(K), most]),
    )
    return -float(found.fun)


@pytest.mark.parametrize("radius", [np.inf, 0.2])
def test_each_answer_is_the_best_and_within_the_persons_limits(radius: float) -> None:
    form, people = people_of(np.random.default_rng(0), 40)
    prices = np.linspace(0, 1, K)
    x = solved(form, people, prices, radius)
    score = people.values - people.use * prices
    for i in range(people.count):
        assert score[i] @ x[i] == pytest.approx(best(form, people, i, prices, radius), abs=1e-7)
    used = (people.coefficients * np.tile(x, (1, ROWS))).reshape(-1, ROWS, K).sum(axis=2)
    assert (used <= people.limits * (1 + 1e-15)).all()
    assert people.caps is not None and (x >= 0).all() and (x <= people.caps).all()


def test_an_answer_does_not_depend_on_who_came_before() -> None:
    """The solver goes from one person to the next: nothing of the last one may be left, not even a basis at a tie."""
    form, people = people_of(np.random.default_rng(1), 30)
    people.values[:] = 1.0  # ties
    people.use[:] = 0.5
    prices = np.full(K, 0.1)
    whole = solved(form, people, prices, 1.0)
    order = np.random.default_rng(2).permutation(people.count)
    assert np.array_equal(solved(form, people.part(order), prices, 1.0), whole[order])
    for i in range(people.count):
        assert np.array_equal(solved(form, people.part([i]), prices, 1.0)[0], whole[i])


@pytest.mark.parametrize("odd", ["unbounded", "not a number", "infinite", "huge coefficients"])
def test_odd_numbers_of_a_person_give_that_person_nothing(odd: str) -> None:
    form, people = people_of(np.random.default_rng(3), 5, bounded=False)
    prices = np.zeros(K)
    before = solved(form, people, prices, np.inf)
    match odd:
        case "unbounded":
            people.coefficients[2] = 0.0
        case "not a number":
            people.values[2] = np.nan
        case "infinite":
            people.values[2, 1] = np.inf
        case _:
            people.coefficients[2] = 1e300
    x, use = respond(form, people, prices, np.inf)
    assert not x[2].any() and not use[2].any()
    others = [0, 1, 3, 4]
    assert before[others].any(axis=1).all() and np.array_equal(x[others], before[others])


def test_a_solver_that_ran_before_with_other_threads_changes_nothing() -> None:
    """HiGHS keeps its threads for the whole process, and refuses another number of them from then on."""
    lines = """
import highspy, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_programs import people_of, K
from dpmodel.joint.programs import solved
first = highspy.Highs()
first.setOptionValue("output_flag", False)
first.setOptionValue("threads", 2)
first.setOptionValue("parallel", "on")
first.addVariable(0, 1, -1)
first.run()
form, people = people_of(np.random.default_rng(0), 3)
print(float(solved(form, people, np.zeros(K), np.inf).sum()))
"""
    form, people = people_of(np.random.default_rng(0), 3)
    here = __file__.rpartition("/")[0]
    out = subprocess.run([sys.executable, "-c", lines, here], capture_output=True, text=True, check=True).stdout
    assert float(out) == solved(form, people, np.zeros(K), np.inf).sum() > 0


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    form, people = people_of(np.random.default_rng(4), 3, bounded=False)
    people.values[0], people.coefficients[1] = np.nan, 1e300
    solved(form, people, np.zeros(K), np.inf)
    assert capfd.readouterr() == ("", "")
