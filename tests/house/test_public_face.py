"""The names and fields that DESIGN.md promises to others, and the screen of code that explains the product."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.privacy import noise
from dpmodel.solve.planner import select_mechanism


@pytest.fixture
def problem() -> dpm.Problem:
    demand = dpm.Private([20.25, 31.5, 25.75], name="demand", unit="entry", linf=1)
    x = cp.Variable((2, 3), nonneg=True, name="x")
    cost = np.array([[1.0, 2.0, 3.0], [2.5, 1.5, 2.0]])
    constraints = [cp.sum(x, axis=1) <= np.array([300.0, 400.0]), cp.sum(x, axis=0) >= demand]
    return dpm.Problem(cp.Minimize(cp.sum(cp.multiply(cost, x))), constraints)


def test_the_screen_of_code_in_the_design_runs(capsys):
    plants, markets = 2, 3
    counts, cost, supply = np.array([20.0, 30.0, 25.0]), np.ones((plants, markets)), np.array([300.0, 400.0])

    demand = dpm.Private(counts, name="demand", unit="entry", linf=1)
    x = cp.Variable((plants, markets), nonneg=True)
    problem = dpm.Problem(
        cp.Minimize(cp.sum(cp.multiply(cost, x))), [cp.sum(x, axis=1) <= supply, cp.sum(x, axis=0) >= demand]
    )
    print(problem.classify())
    print(problem.plan(epsilon=1, delta=1e-6))
    problem.solve(epsilon=1, delta=1e-6)
    print(problem.release)

    printed = capsys.readouterr().out
    assert x.value.shape == (plants, markets)
    for words in ("scalar, low sensitivity", "Theorem 22", "laplace-once", "Private release", "epsilon 1"):
        assert words in printed


def test_every_public_name_can_be_imported_and_is_documented():
    for name in dpm.__all__:
        assert getattr(dpm, name).__doc__, name
    assert len(set(dpm.__all__)) == len(dpm.__all__)


def _parameters(function):
    return inspect.signature(function).parameters


def test_signature_of_private():
    declared = _parameters(dpm.Private.__init__)
    expected = ["value", "shape", "name", "unit", "l1", "l2", "linf", "row_l1", "max_l1", "max_l2", "max_linf"]
    expected += ["typical", "records", "positions", "cvxpy_attributes"]
    assert list(declared)[1:] == expected
    assert declared["unit"].default == "all"
    assert issubclass(dpm.Private, cp.Parameter)


def test_signature_of_solve():
    declared = _parameters(dpm.Problem.solve)
    positional = [n for n, p in declared.items() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional == ["self", "epsilon", "delta"]
    defaults = {
        "delta": 0,
        "beta": 0.05,
        "mechanism": "auto",
        "feasibility": "auto",
        "budget": None,
        "verbose": False,
        "progress": None,
        "rng": None,
    }
    assert {name: declared[name].default for name in defaults} == defaults


def test_problem_is_a_cvxpy_problem(problem):
    assert isinstance(problem, cp.Problem)
    assert problem.is_dp() is True
    assert problem.release is None
    assert "demand" in str(problem.explain())


def test_classification_fields(problem):
    classification = problem.classify()
    assert classification.solvable is True
    (cell,) = classification.cells
    assert cell.part == "scalar"
    assert cell.level == "low"
    assert cell.parameter == "demand"
    assert isinstance(cell.reason, str)
    assert "demand" in cell.reason
    assert cell.theorem == "Theorem 22"
    assert isinstance(cell.sensitivity, Mapping)
    assert {"l1", "l2", "linf"} <= set(cell.sensitivity)
    with pytest.raises(TypeError):
        cell.sensitivity["l1"] = 0.0


def test_change_of_a_has_row_l1():
    a = dpm.Private(shape=(2, 3), name="a", unit="entry", linf=0.5)
    x = cp.Variable(3, bounds=[0, 1])
    (cell,) = dpm.Problem(cp.Minimize(cp.sum(x)), [a @ x >= -1]).classify().cells
    assert "row_l1" in cell.sensitivity


def test_plan_fields(problem):
    plan = problem.plan(epsilon=1, delta=1e-6, compare="all")
    names = [candidate.mechanism for candidate in plan.candidates]
    assert len(set(names)) == len(names)
    assert plan.chosen in plan.candidates
    for candidate in plan.candidates:
        assert isinstance(candidate.eligible, bool)
        if candidate.eligible:
            assert candidate.forecast.alpha >= 0
            assert candidate.forecast.statement
            assert candidate.forecast.work
        else:
            assert candidate.reason
            assert candidate.forecast is None
    assert plan.chosen.eligible


def test_release_fields(problem):
    problem.solve(epsilon=1, delta=1e-6, rng=0)
    release = problem.release
    assert release.mechanism == problem.plan(epsilon=1, delta=1e-6).chosen.mechanism
    assert (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 0.0)
    assert release.guarantee.neighbors == "replace-one"
    assert "demand" in release.guarantee.record
    assert release.accuracy.alpha > 0
    assert release.accuracy.beta == 0.05
    assert release.accuracy.slack_rows == 0
    assert release.accuracy.proved in (True, False)
    assert isinstance(release.value, float)
    assert set(release.variables) == {"x"}
    assert release.variables["x"].shape == (2, 3)


def test_impossibility_error_fields():
    b = dpm.Private([3.25, 4.5], name="secret b", unit="entry")
    x = cp.Variable(2)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= b).set_label("demand row")])
    assert problem.is_dp() is False
    with pytest.raises(dpm.ImpossibilityError) as caught:
        problem.plan(epsilon=1)
    error = caught.value
    assert error.theorem == "Theorem 36"
    assert "Hsu" in error.citation
    assert error.parameter == "secret b"
    assert error.constraint == "demand row"
    assert error.lower_bound == 0.5
    assert error.remedies


def test_taxonomy_is_table_1():
    table = dpm.taxonomy()
    assert len(table) == 10 and sum(not cell.ours for cell in table) == 8
    for cell in table:
        assert cell.verdict in ("yes", "yes*", "no")
        assert cell.theorem
        assert isinstance(cell.mechanisms, tuple)
        # Bounded changes of one entry of c or b carry a lower bound of their own, in proportion to the change B.
        bounded = cell.verdict == "yes" and cell.part in ("objective", "scalar")
        assert bool(cell.lower_bound) == (cell.verdict != "yes" or bounded)
        assert (" B" in cell.lower_bound) == bounded
    printed = str(table)
    assert all(f"Theorem {n}" in printed for n in (22, 28, 32, 34, 36, 37, 38))


def test_no_error_class_of_the_package_stands_outside_the_base():
    found = set()
    for name in ["errors", "problem", "numerics.cone_program", "privacy.budget", "privacy.ledger", "marks.private"]:
        module = importlib.import_module(f"dpmodel.{name}")
        found |= {thing for thing in vars(module).values() if inspect.isclass(thing) and issubclass(thing, Exception)}
    mine = {thing for thing in found if thing.__module__.startswith("dpmodel")}
    assert len(mine) >= 7 and all(issubclass(thing, (dpm.DPModelError, Warning)) for thing in mine)


def test_every_mechanism_stands_among_the_usual_winners():
    from dpmodel.solve.registry import KINDS

    doc = (Path(__file__).parents[2] / "docs" / "reference" / "usual-winners.md").read_text()
    for mechanism in (each for kind in KINDS.values() for each in kind.mechanisms):
        assert mechanism.name in doc or mechanism.serves.as_printed, mechanism.name


def test_select_mechanism_takes_the_least_forecast(problem):
    plan = problem.plan(epsilon=1, delta=1e-6, compare="all")
    eligible = [c for c in plan.candidates if c.eligible]
    assert len(eligible) >= 2
    assert select_mechanism(plan.candidates).forecast.alpha == min(c.forecast.alpha for c in eligible)
    assert select_mechanism([c for c in plan.candidates if not c.eligible]) is None


def test_default_noise_is_exact():
    assert isinstance(noise.noise_source(None), noise.ExactSource)


def _entry_points():
    """(name, parameter) of every function, class and method that a user calls."""
    for module in (dpm, dpm.linalg, importlib.import_module("dpmodel.learn"), importlib.import_module("dpmodel.teach")):
        for name in module.__all__:
            thing = getattr(module, name)
            methods = vars(thing).items() if inspect.isclass(thing) else ()
            called = [(name, thing)] + [
                (f"{name}.{each}", method)
                for each, method in methods
                if inspect.isfunction(method) and not each.startswith("_")
            ]
            for label, function in called:
                if callable(function):
                    try:
                        parameters = inspect.signature(function).parameters.values()
                    except ValueError:  # built in
                        continue
                    yield from ((f"{module.__name__}.{label}", parameter) for parameter in parameters)


def test_one_default_neighbor_relation_one_name_for_seeds_and_beta_by_name():
    """Exceptions: a Noisy is told how it was published, a Dataset has the neighbors of its records; scikit-learn's own
    name for seeds in its estimators."""
    found = list(_entry_points())
    assert len(found) > 300
    for name, parameter in found:
        if parameter.name == "neighbors" and not name.endswith("Noisy"):
            assert parameter.default == (None if name.endswith("Dataset") else "replace-one"), name
        if parameter.name == "beta":
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, name
        if parameter.name == "random_state":
            assert name.startswith("dpmodel.learn."), name
        assert parameter.name != "seed", name


def test_what_is_offered_for_completion_is_public():
    """Names of other packages and rooms of this one are no part of the face."""
    offered = [name for name in dir(dpm) if not name.startswith("__")]
    assert not any(name.startswith("_") for name in offered)
    assert set(offered) == set(dpm.__all__) | {"learn", "released", "teach"}
