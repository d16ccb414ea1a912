"""Everything that prints fits a screen, in lines of 40 to 120 characters, cuts no word in two and says how to see the
rest: every class with a ``__str__`` of its own, of small models and of one whose 1,500 rows were written in a loop."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from models_of_shares import charging, marked
from source import trees

import dpmodel as dpm
from dpmodel import audit, linalg, teach
from dpmodel.teach.lower_bound_figure import lower_bounds
from dpmodel.text import _FEWEST, _SCREEN

WIDTHS = (40, 50, 80, 120)


@cache
def solved(rows: int) -> dpm.Problem:
    """``rows`` constraints written one by one, some with labels, and two private parameters."""
    need = dpm.Private(np.full(rows, 20.0), name="need", unit="entry", linf=1, bounds=[0, 50])
    limit = dpm.Private([400.0 * rows, 217.5], name="limit", unit="all", l1=2)
    x = cp.Variable(rows, nonneg=True, name="staff")
    constraints = [(x[i] >= need[i]) for i in range(rows)]
    constraints[0] = constraints[0].set_label("the first of all wards")
    budget = (cp.sum(x) <= limit[0]).set_label("budget of the hospitals")
    problem = dpm.Problem(cp.Minimize(0.217512 * cp.sum(x)), [*constraints, budget, x[0] <= limit[1]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(1.0, 1e-6, rng=0)
    return problem


@cache
def fitted() -> dpm.Problem:
    rng = np.random.default_rng(0)
    X = dpm.Private(rng.uniform(-1, 1, (400, 3)), name="X", unit="row", bounds=[-1, 1])
    w = cp.Variable(3, name="w")
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - 1) / 400), [cp.norm1(w) <= 1])
    problem.solve(1.0, 1e-6, rng=0)
    return problem


@cache
def handed_out() -> dpm.Problem:
    """Shares of 100 people, of which 24 capacities have no label."""
    problem, _ = marked(charging(100))
    problem.solve(1.0, 1e-6, release="joint", rng=0)
    return problem


def spent() -> dpm.Budget:
    budget = dpm.Budget(3, 1e-6)
    for place in range(60):
        budget.charge(0.01, 1e-9, label=f"charge number {place}")
    return budget


def _measured() -> Any:
    counts = dpm.Private(np.arange(40.0), name="counts", unit="entry", linf=1)
    return dpm.measure(counts, epsilon=1, rng=0)


def _span() -> Any:
    vectors = [[1, 2, 3], [2, 4, 6]] * 200
    return linalg.span(np.array(vectors), field=linalg.QQ, epsilon=5, delta=1e-3, rng=0)


def _finding(faults: int) -> Any:
    found = tuple(f"the scale of draw {k} is half of what it owes" for k in range(faults))
    return audit.Finding("replay", "two rows", "200 neighbours", found, (("half the noise", True), ("one draw", False)))


SIZES: dict[str, Callable[[], dpm.Problem]] = {
    "two rows": lambda: solved(2),
    "60 rows": lambda: solved(60),
    "shares": handed_out,
    "1,500 rows": lambda: solved(1500),
    "a regression": fitted,
}
OF_MODELS: dict[str, Callable[[dpm.Problem], Any]] = {
    "Problem": lambda problem: problem,
    "Release": lambda problem: problem.release,
    "Plan": lambda problem: problem.last_plan,
    "PlanExplained": lambda problem: problem.last_plan.explain(),  # type: ignore[union-attr]
    "Classification": lambda problem: problem.classify(),
    "Explanation": lambda problem: problem.explain(),
    "ExpressionTree": lambda problem: problem.explain(tree=True),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "Taxonomy": dpm.taxonomy,
    "Budget": spent,
    "Noisy": _measured,
    "LevelSplit": lambda: dpm.released.tree_query(4096).split(1.0, 1e-6, weights="nodes"),
    "MeasuredTree": lambda: dpm.released.tree_query(4096).measure(np.ones(4096), 1.0, rng=0),
    "Estimates": lambda: _deciles(),
    "MarginalPlan": lambda: dpm.query_release(
        None, combinations("abcdefg", 2), domain=dict.fromkeys("abcdefg", 9), total=1e6
    ).plan(1, 1e-6),
    "MarginalIntervals": lambda: _marginals().intervals(draws=2),
    "IntervalTable": lambda: _intervals(),
    "Question": lambda: teach.quiz(rng=1),
    "Demonstration": lambda: teach.demonstrate("scalar", n=4, epsilons=(1.0,), repetitions=2, rng=0),
    "Simulated": lambda: _simulated(),
    "Result": _span,
    "Gadget": lambda: teach.gadgets.objective([0, 1] * 300, sensitivity=1),
    "LowerBoundTable": lambda: lower_bounds([0.1, 1.0, 10.0]),
    "Report": lambda: audit.Report("mine", (_finding(0), _finding(40)), (("small", "it serves no such model"),)),
    "Finding": lambda: _finding(2),
    "ExpressionSensitivity": lambda: dpm.sensitivity(2 * dpm.Private([1.0, 2.0], name="p", unit="entry", linf=1)),
}
# Values of one sentence, which stand in the text of others, and what is told apart by a table of its own.
SENTENCES = {
    "Guarantee", "Accuracy", "Cell", "Distribution", "PrivacyLoss", "RegressionLowerBound", "Reconstruction", "Basis",
    "Intervals", "MeasuredMeans", "_PaidFor", "TextTable", "Remedy", "ImpossibilityError",
    "Expected", "Interval", "Certificate",
}  # fmt: skip


def _deciles() -> Any:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": range(100), "town of birth, as it was called then": ["Ulm", "Bonn"] * 50})
    people = dpm.Dataset(frame, bounds={"age": (0, 99)}, domain={frame.columns[1]: ["Bonn", "Ulm"]})
    return people.quantiles("age", [k / 20 for k in range(1, 20)], 1.0, by=frame.columns[1], rng=1)


def _simulated() -> Any:
    need = dpm.Private([20.0, 30.0], name="need", unit="entry", linf=1, bounds=[0, 60])
    x = cp.Variable(2, bounds=[0, 99], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= need]).plan(1.0).simulate([0.5, 1.0], runs=2)


def _marginals() -> Any:
    table = {column: np.arange(200) % (4 + place) for place, column in enumerate("abcdefgh")}
    query = dpm.query_release(table, combinations("abcdefgh", 2), domain=dict.fromkeys("abcdefgh", 12), loss="mean")
    return query.solve(1.0, 1e-6, rng=0)


def _intervals() -> Any:
    rng = np.random.default_rng(0)
    X = dpm.Private(rng.uniform(-1, 1, (400, 30)), name="X", unit="row", bounds=[-1, 1])
    w = cp.Variable(30, name="coefficients")
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - 1) / 400))
    problem.solve(100.0, mechanism="sufficient-statistics", rng=0)
    assert problem.release is not None
    return problem.release.intervals()


def faults(text: Callable[[], str], width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong with what prints at ``width``."""
    monkeypatch.setenv("COLUMNS", "2000")
    with monkeypatch.context() as endless:
        endless.setattr("dpmodel.text._FEWEST", 10**6)
        words = {word.rstrip(":,") for word in text().split()}
    monkeypatch.setenv("COLUMNS", str(width))
    lines = text().splitlines()
    found = [f"{len(lines)} lines"] if len(lines) > max(_SCREEN // width, _FEWEST) else []
    # One word alone may be longer than a line.
    found += [f"long: {line}" for line in lines if len(line) > width and len(line.split()) > 1]
    cut = next((place for place, line in enumerate(lines) if "more lines:" in line), len(lines))
    told = {word for line in lines[:cut] for word in line.split()}
    broken = {word for word in told if word.rstrip(":,") not in words and not set(word) <= set("─-")}
    return found + [f"broken: {word}" for word in sorted(broken)]


@pytest.mark.parametrize(
    "size", [*list(SIZES)[:3], *(pytest.param(s, marks=pytest.mark.slow) for s in list(SIZES)[3:])]
)
@pytest.mark.parametrize("name", OF_MODELS)
def test_models_fit_a_screen(name: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = OF_MODELS[name](SIZES[size if name != "ExpressionTree" else size.replace("1,500", "60")]())
    for width in WIDTHS:
        assert not faults(lambda: str(made), width, monkeypatch), width
    assert len(repr(made).splitlines()) == 1 and len(repr(made)) < 400


@pytest.mark.parametrize("name", OTHERS)
def test_others_fit_a_screen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = OTHERS[name]()
    for width in WIDTHS:
        assert not faults(lambda: str(made), width, monkeypatch), width
    assert len(repr(made)) < 1500


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [2, 1500])
def test_what_is_done_to_the_rows_is_always_told_first(rows: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    problem = solved(rows)
    plan, release = problem.last_plan, problem.release
    assert plan is not None and release is not None and plan.chosen.forecast is not None
    printed = " ".join(str(plan).split())
    for line in plan.chosen.forecast.rows:
        assert line in printed and printed.index(line) < printed.index("with probability")
    told = " ".join(" ".join(line.replace("note", "", 1).split()) for line in str(release).splitlines())
    done = "short with probability"
    assert done in told and told.index(done) < told.index("accuracy")


def test_what_was_left_out_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    release = solved(1500).release
    assert release is not None
    assert "more: release.duals[name], release.to_dict()" in " ".join(str(release).split())
    assert len(release.duals) == 1502 and len(release.to_dict()["duals"]) == 1502


def test_a_cut_word_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what a table of fixed columns did at 50 characters, and a text that never ends."""
    from dpmodel.text import line_width

    def cut() -> str:
        return "0.2175" if line_width(100) > 50 else "0.217\n5"

    assert faults(cut, 50, monkeypatch) == ["broken: 0.217", "broken: 5"]
    assert faults(lambda: "\n".join(["a"] * 500), 80, monkeypatch) == ["500 lines"]


def test_every_class_that_prints_is_here() -> None:
    printing = {
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(each, ast.FunctionDef) and each.name == "__str__" for each in node.body)
    }
    known = {*OF_MODELS, *OTHERS, *SENTENCES}
    assert not printing - known, f"new ones: {sorted(printing - known)}"
    assert not known - printing, f"gone: {sorted(known - printing)}"
