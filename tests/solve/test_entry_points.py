"""A package that offers mechanisms through the entry-point group ``dpmodel.mechanisms``, installed for one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "plugin"
SCRIPT = """
import json, cvxpy as cp, dpmodel as dpm
b = dpm.Private([5.0, 30.0], name="b", unit="entry", linf=1)
x = cp.Variable(2, bounds=[0, 100])
problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])
plan = problem.plan(epsilon=1)
budget = dpm.Budget(1)
problem.solve(epsilon=1, budget=budget, rng=0)
refused = {}
for name in ("incomplete", "a-class", "nowhere"):
    try:
        problem.plan(epsilon=1, mechanism=name)
    except dpm.DPModelError as error:
        refused[name] = str(error)
lines = {each.mechanism: each.reason for each in plan.candidates}
print(json.dumps([plan.chosen.mechanism, problem.release.mechanism, budget.spent.epsilon, lines, refused, str(plan)]))
"""


@pytest.fixture(scope="module")
def told() -> list[object]:
    path = os.pathsep.join([str(PACKAGE), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_an_installed_mechanism_is_compared_and_taken(told: list[object]) -> None:
    chosen, released, spent, lines, _, text = told
    assert (chosen, released, spent) == ("again", "again", 1)
    assert lines["again"] == "" and "again" in text


@pytest.mark.parametrize(
    ("name", "words"),
    [("incomplete", "Incomplete is no mechanism"), ("a-class", "the class Again"), ("nowhere", "AttributeError")],
)
def test_what_is_none_is_a_line_by_name_and_stops_nobody(told: list[object], name: str, words: str) -> None:
    _, _, _, lines, refused, _ = told
    assert words in lines[name] and f"'{name}'" in lines[name]
    assert words in refused[name]
