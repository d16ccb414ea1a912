"""After a solve, nothing that can be reached from a problem holds or depends on private values.

Two walks over everything reachable (attributes, slots, properties, containers, arrays): one looks for the private
numbers themselves; the other solves twins whose private values differ, hands both the same outcome, and demands that
every number and every text be the same.
"""

from __future__ import annotations

import copy
import json
import logging
import pickle
import re
import warnings
from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.error import ParameterError, SolverError
from walking import _CLOSED, _inside, assert_no_trace, numbers_in

import dpmodel as dpm
from dpmodel.execute import conductor
from dpmodel.models.foregone import refuse_foregone
from dpmodel.plan import by_name
from dpmodel.plan.registry import PORTFOLIO, REGRESSIONS

COST = np.array([[1.0, 2.0, 3.0], [2.5, 1.5, 2.0]])


# ------------------------------------------------------------------ problems: (private values) -> problem
def scalar(values):
    b = dpm.Private(values[:3], name="b", unit="entry", linf=1)
    x = cp.Variable((2, 3), nonneg=True, name="x")
    rows = [(cp.sum(x, axis=0) >= b).set_label("need"), (cp.sum(x) <= 4e4).set_label("cap")]
    return dpm.Problem(cp.Minimize(cp.sum(cp.multiply(COST, x))), rows)


def bounded_scalar(values):
    b = dpm.Private(values[:3], name="b", unit="entry", linf=1, bounds=[0, 1e4])
    x = cp.Variable((2, 3), nonneg=True, name="x")
    rows = [(cp.sum(x, axis=0) >= b).set_label("need"), (cp.sum(x) <= 1e6).set_label("cap")]
    return dpm.Problem(cp.Minimize(cp.sum(cp.multiply(COST, x))), rows)


def objective(values):
    c = dpm.Private(values[:4], name="c", unit="entry", linf=1)
    x = cp.Variable(4, nonneg=True, name="x")
    return dpm.Problem(cp.Maximize(c @ x + 1), [(cp.sum(x) == 1).set_label("one")])


def matrix(values):
    A = dpm.Private(np.reshape(values[:6], (2, 3)), name="A", unit="row", linf=0.5, bounds=[0, 1e4])
    x = cp.Variable(3, bounds=[0, 2], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(A @ x <= 5e3).set_label("limit")])


def sparse_matrix(values):
    pattern = ([0, 0, 1, 1], [0, 2, 1, 2])
    stored = sp.coo_array((values[:4], pattern), shape=(2, 3))
    A = dpm.Private(stored, name="A", unit="entry", linf=0.5, sparsity=pattern)
    x = cp.Variable(3, bounds=[0, 2], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(A @ x <= 5e3).set_label("limit")])


def equality(values):
    b = dpm.Private(values[:2], name="b", unit="entry", linf=1)
    x = cp.Variable(3, nonneg=True, name="x")
    A = np.array([[1.0, 2.0, 1.0], [1.0, 1.5, 2.0]])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(A @ x == b).set_label("balance")])


def balances(values):
    """Equalities without an objective."""
    b = dpm.Private(values[:3], name="b", unit="entry", linf=1)
    x = cp.Variable(4, nonneg=True, name="x")
    A = np.array([[1.0, 2.0, 1.0, 0.0], [1.0, 1.5, 2.0, 1.0], [0.0, 1.0, 1.0, 1.0]])
    return dpm.Problem(cp.Minimize(0), [(A @ x == b).set_label("balance")])


def several_parts(values):
    c = dpm.Private(values[:3], name="c", unit="entry", linf=1, records=dpm.Records("one"))
    b = dpm.Private(values[3:6], name="b", unit="entry", linf=1, records=dpm.Records("two"))
    x = cp.Variable(3, bounds=[0, 1e5], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [(x >= b).set_label("need")])


def second_order(values):
    b = dpm.Private(values[:2], name="b", unit="entry", linf=1)
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    rows = [cp.SOC(t, x - b).set_label("ball"), (x <= 1e5).set_label("cap")]
    return dpm.Problem(cp.Minimize(t + cp.norm1(x)), rows)


def norm_objective(values):
    b = dpm.Private(values[:3], name="b", unit="entry", linf=1)
    x = cp.Variable(2, name="x")
    A = np.array([[1.0, 2.0], [3.0, 1.0], [2.0, 2.0]])
    return dpm.Problem(cp.Minimize(cp.norm1(A @ x - b) + cp.sum_squares(x)), [(x <= 1e5).set_label("cap")])


def semidefinite(values):
    b = dpm.Private(np.abs(values[:2]), name="b", unit="entry", linf=1)
    X = cp.Variable((2, 2), symmetric=True, name="X")
    rows = [(X >> 0).set_label("psd"), (cp.diag(X) >= b).set_label("need"), (X[0, 1] <= 10).set_label("cap")]
    return dpm.Problem(cp.Minimize(cp.trace(X)), rows)


def maximised_integers(values):
    b = dpm.Private(values[:2], name="b", unit="entry", linf=1)
    x = cp.Variable(2, integer=True, bounds=[0, 30], name="x")
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(300.0 * x <= b).set_label("limit")])


def people(values):
    """One record owns a constraint; no objective."""
    A = dpm.Private(np.reshape(values[:6], (2, 3)), name="A", unit="row", bounds=[0, 1e4])
    x = cp.Variable(3, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(0), [(A @ x <= 5e3).set_label("limit"), (cp.sum(x) == 2).set_label("two")])


def people_with_costs(values):
    """The same beside a private objective."""
    A = dpm.Private(np.reshape(values[:6], (2, 3)), name="A", unit="row", bounds=[0, 1e4])
    c = dpm.Private(values[3:6], name="c", unit="entry", linf=1, bounds=[0, 1e4], records=dpm.Records("others"))
    x = cp.Variable(3, bounds=[0, 2], name="x")
    return dpm.Problem(cp.Minimize(c @ x), [(A @ x >= 5e3).set_label("need")])


def shares(values):
    """Private right-hand sides over a simplex, aggregated over records."""
    b = dpm.Private(values[:4], name="b", linf=1, bounds=[0, 1e4])
    x = cp.Variable(3, nonneg=True, name="x")
    A = np.array([[1.0, 2.0, 0.5], [1.0, 0.5, 2.0], [2.0, 1.0, 1.0], [0.1, 1.0, 3.0]])
    return dpm.Problem(cp.Minimize(cp.sum(x[:2])), [(A @ x <= b).set_label("cap"), (cp.sum(x) == 5e3).set_label("sum")])


def many_caps(values):
    """Aggregated right-hand sides of which few bind."""
    b = dpm.Private(np.resize(values, 2000) + np.arange(2000), name="b", linf=1, bounds=[0, 1e5])
    x = cp.Variable(4, bounds=[0, 1e6], name="x")
    A = np.sin(np.arange(8000.0)).reshape(2000, 4) ** 2
    return dpm.Problem(cp.Maximize(cp.sum(x)), [(cp.Constant(A, name="A") @ x <= b).set_label("cap")])


def people_for_least(values):
    """One record owns a constraint, beside a public objective in few dimensions."""
    A = dpm.Private(np.reshape(values[:6], (3, 2)), name="A", unit="row", bounds=[0, 1e4])
    x = cp.Variable(2, bounds=[0, 2], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(A @ x >= 5e3).set_label("need")])


def _rows_of(values, count):
    records = dpm.Records("rows")
    X = dpm.Private(np.resize(values, (count, 2)), name="X", unit="row", bounds=[0, 1e4], records=records)
    y = dpm.Private(np.resize(values[3:], count), name="y", unit="entry", bounds=[0, 1e4], records=records)
    return X, y, cp.Variable(2, name="w"), cp.Variable(name="b")


def least_squares(values, count=300):
    """A regression over an l1 ball."""
    X, y, w, _ = _rows_of(values, count)
    return dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y) / count), [(cp.norm1(w) <= 1).set_label("ball")])


def clipped_least_squares(values):
    problem = least_squares(values)
    return dpm.Problem(problem.objective, problem.constraints, clip=20.0)


def several_outputs(values, count=300):
    """A regression of two outputs with a ridge, each over an l1 ball."""
    records = dpm.Records("rows")
    X = dpm.Private(np.resize(values, (count, 2)), name="X", unit="row", bounds=[0, 1e4], records=records)
    Y = dpm.Private(np.resize(values[3:], (count, 2)), name="Y", unit="row", bounds=[0, 1e4], records=records)
    W = cp.Variable((2, 2), name="W")
    goal = cp.sum_squares(X @ W - Y) / count + 0.1 * cp.sum_squares(W)
    return dpm.Problem(cp.Minimize(goal), [(cp.norm1(W, axis=0) <= 1).set_label("balls")])


def large_least_squares(values):
    return least_squares(values, 20_000)


def margins(values):
    """A hinge loss with labels folded into the rows."""
    X = dpm.Private(np.resize(values, (10_000, 2)), name="X", unit="row", max_l2=1, records=dpm.Records("folded"))
    w = cp.Variable(2, name="w")
    return dpm.Problem(cp.Minimize(cp.sum(cp.pos(1 - X @ w)) / 10_000), [(cp.norm(w) <= 1).set_label("ball")])


def whole_equations(values):
    """One equation that everybody has, in whole numbers, under an objective that chooses among its solutions."""
    A = dpm.Private(np.tile(np.rint(values[:2] * 32), (600, 1)), name="A", unit="row", integer=True)
    x = cp.Variable(2, name="x")
    return dpm.Problem(cp.Minimize(cp.norm1(x)), [(A @ x == 5_000_000).set_label("everybody's")])


def huber_over_a_general_set(values):
    """A regression whose set is known to CVXPY only, with an intercept."""
    X, y, w, b = _rows_of(values, 300)
    loss = cp.sum(cp.huber(X @ w + b - y, 100)) / 300
    rows = [(cp.norm(w) <= 1).set_label("one"), (w >= -0.5).set_label("two"), (cp.abs(b) <= 10).set_label("three")]
    return dpm.Problem(cp.Minimize(loss + cp.sum_squares(w)), rows)


CASES = [
    *[(least_squares, name, {}) for name in ("sufficient-statistics", "frank-wolfe")],
    (clipped_least_squares, "noisy-descent", {}),
    *[(least_squares, name, {}) for name in ("mirror-descent", "objective-perturbation", "adassp-published")],
    *[(several_outputs, name, {}) for name in ("sufficient-statistics", "frank-wolfe")],
    (large_least_squares, "subsampled-descent", {}),
    (least_squares, "frank-wolfe-published", {}),
    (margins, "stochastic-mirror-descent", {"epsilon": 0.1}),
    (huber_over_a_general_set, "gaussian-frank-wolfe", {}),
    *[(people, name, {}) for name in ("noisy-hinge-descent", "dense-multiplicative-weights", "point-exponential")],
    *[(people, name, {}) for name in ("noisy-multiplicative-weights", "algorithm-2", "algorithm-5", "algorithm-6")],
    (people_with_costs, "noisy-hinge-descent", {"goal": dpm.Search()}),
    (people_with_costs, "dense-multiplicative-weights", {"goal": dpm.Penalty()}),
    (people_with_costs, "noisy-hinge-descent", {"goal": dpm.Penalty()}),
    (shares, "multiplicative-weights", {"goal": dpm.Penalty()}),
    (shares, "algorithm-4", {"goal": dpm.Target(3e3)}),
    (many_caps, "private-cutting-planes", {}),
    (people_for_least, "cheapest-point", {}),
    (whole_equations, "exact-equations", {}),
    (scalar, "laplace-once", {}),
    (scalar, "gaussian-once", {}),
    (bounded_scalar, "laplace-once", {}),
    (bounded_scalar, "strict-truncated-laplace", {"feasibility": "strict"}),
    (objective, "laplace-once", {}),
    (objective, "gaussian-once", {}),
    (objective, "vertex-exponential", {}),
    (objective, "theorem-34", {}),
    (matrix, "laplace-once", {}),
    (matrix, "gaussian-once", {}),
    (matrix, "strict-truncated-laplace", {"feasibility": "strict"}),
    (sparse_matrix, "laplace-once", {}),
    (equality, "gaussian-once", {}),
    (balances, "measure-and-fit", {}),
    (several_parts, "laplace-once", {}),
    (several_parts, "gaussian-once", {}),
    (second_order, "laplace-once", {}),
    (norm_objective, "gaussian-once", {}),
    (semidefinite, "gaussian-once", {}),
    (maximised_integers, "laplace-once", {}),
    (scalar, "public-only", {}),
]
BUDGET = {"epsilon": 1, "delta": 1e-6}
# They choose among few points, or take so few steps at this budget that both twins end in the same one.
MAY_AGREE = {"vertex-exponential", "dense-multiplicative-weights", "point-exponential", "noisy-multiplicative-weights"}
MAY_AGREE |= {"public-only", "cheapest-point", "algorithm-2", "algorithm-5", "algorithm-6"}
SECRETS = np.array([7321.4375, 5128.8125, 6457.28125, 3983.71875, 4819.59375, 2793.34375])
OTHERS = np.array([2741.15625, 6919.46875, 3407.65625, 5236.90625, 7143.03125, 4480.21875])
DIGITS = re.compile("|".join(re.escape(str(v)[:7]) for v in SECRETS))  # the integer part may be hit by a release


# Seconds each; gaussian-frank-wolfe takes a minute over a set that only CVXPY knows.
SLOW = {
    "gaussian-frank-wolfe",
    "noisy-descent",
    "mirror-descent",
    "subsampled-descent",
    "algorithm-2",
    "measure-and-fit",
}


def _case(build, mechanism, options):
    slow = pytest.mark.slow if mechanism in SLOW else ()
    return pytest.param(build, mechanism, options, marks=slow, id=f"{build.__name__}-{mechanism}")


each_case = pytest.mark.parametrize(("build", "mechanism", "options"), [_case(*case) for case in CASES])


def solve(problem, mechanism, options, **more):
    return problem.solve(**BUDGET | options, mechanism=mechanism, rng=7, **more)


def planned(problem, mechanism, options):
    """All mechanisms, except where simulating them takes seconds: those are walked one by one."""
    regression = mechanism in {m.name for m in REGRESSIONS}
    return problem.plan(**BUDGET | options, mechanism=mechanism, compare=not regression)


def surroundings(problem, mechanism, options) -> list[Any]:
    """All that a user can hold on to."""
    return [
        problem,
        problem.objective,
        *problem.constraints,
        *problem.variables(),
        *problem.parameters(),
        *problem.constants(),
        *problem.atoms(),
        problem.release,
        problem.classify(),
        planned(problem, mechanism, options),
        problem.explain(),
        [p.layout for p in problem.parameters()],
        problem.objective.expr,
        [c.args for c in problem.constraints],
        problem.size_metrics,
    ]


@pytest.mark.parametrize("mechanism", [m.name for m in (*PORTFOLIO, *REGRESSIONS)])
def test_every_mechanism_is_walked(mechanism):
    assert mechanism in {name for _, name, _ in CASES}


# ------------------------------------------------------------------ the numbers themselves
@each_case
def test_no_private_number_can_be_reached(build, mechanism, options):
    problem = build(SECRETS)
    solve(problem, mechanism, options)
    assert problem.release.mechanism == mechanism
    assert_no_trace(surroundings(problem, mechanism, options), [SECRETS])


def test_the_walk_finds_what_is_hidden():
    for hide in (
        lambda p: p.__dict__.update(hidden={"a": [np.array([1.0, SECRETS[1]])]}),
        lambda p: p._last_model[1].remember("leak", lambda: -SECRETS),
        lambda p: setattr(p.variables()[0], "note", float(SECRETS[0])),
        lambda p: p.constraints[0].__dict__.update(error=ValueError(SECRETS[2])),
    ):
        problem = scalar(SECRETS)
        solve(problem, "laplace-once", {})
        hide(problem)
        with pytest.raises(AssertionError):
            assert_no_trace(surroundings(problem, "laplace-once", {}), [SECRETS])


# ------------------------------------------------------------------ twins
# What differs between any two problems: ids (also in CVXPY's lowered forms and id maps) and times.
_OWN = re.compile(
    r"(\bid|_id|_token|\.source\[0\]|timings\[.*\]|_time('\])?|seconds|\.key|var_id\w*|id_map\w*)(\[\.\.\.\])?(\[\d+\])*$"
    r"|canonical_form\[0\](\.args\[\d+\]|\.data)*$|\._inverse\[\d+\]\[\d+\]\[\.\.\.\]$"
)


def leaves(things: list[Any]) -> Iterator[tuple[str, Any]]:
    """(path, array or text) of everything reachable, in an order that does not depend on ids."""
    pending = [(f"[{i}]", thing, 0) for i, thing in enumerate(things)]
    seen, kept = set(), []
    while pending:
        path, thing, built = pending.pop()
        if isinstance(thing, (str, bytes, bool)):
            yield path, thing
        elif isinstance(thing, (int, float, complex, np.number)):
            yield path, np.asarray(thing)
        elif thing is None or isinstance(thing, _CLOSED) or id(thing) in seen:
            continue
        else:
            seen.add(id(thing))
            kept.append(thing)
            if isinstance(thing, np.ndarray) and thing.dtype.kind in "biufc":
                yield path, thing
            elif sp.issparse(thing):
                yield path, sp.coo_array(thing).toarray()
            elif not isinstance(thing, (set, frozenset)):  # no order; the other walk looks into them
                pending += [(path + name, value, built + new) for name, value, new in _inside(thing, built)]


def differences(one: list[Any], two: list[Any]) -> list[str]:
    found = []
    for twin in (one, two):  # properties fill caches, which the next walk sees
        list(leaves(twin))
    first, second = list(leaves(one)), list(leaves(two))
    assert len(first) > 300
    if [path for path, _ in first] != [path for path, _ in second]:
        only = {path for path, _ in first} ^ {path for path, _ in second}
        return [f"reachable in one only: {sorted(only)[:5]}"]
    for (path, a), (_, b) in zip(first, second, strict=True):
        if _OWN.search(path):
            continue
        if isinstance(a, np.ndarray):
            same = a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        else:
            same = _without_ids(a) == _without_ids(b)
        if not same:
            found.append(path)
    return found


def _without_ids(text: Any) -> Any:
    return re.sub(r"0x[0-9a-f]+|\b(var|param)\d+|seconds: .*", "", text) if isinstance(text, str) else text


class _SameOutcome:
    """Runs the real mechanism, then hands out the outcome of the first twin."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcomes: list[Any] = []

    def run(self, model, request, source, progress):
        self.outcomes.append(by_name(self.name, type(model)).run(model, request, source, progress))
        return self.outcomes[0]


@each_case
def test_twins_with_other_private_values_are_the_same_all_over(build, mechanism, options, monkeypatch):
    stub = _SameOutcome(mechanism)
    monkeypatch.setattr(conductor, "by_name", lambda name, kind: stub)
    twins = [build(SECRETS), build(OTHERS)]
    for twin in twins:
        solve(twin, mechanism, options)
    assert len(stub.outcomes) == 2
    if mechanism not in MAY_AGREE and build is not maximised_integers:
        assert not np.allclose(stub.outcomes[0].x, stub.outcomes[1].x), "the data had no say at all"
    one, two = ([t, t.release, t.classify(), planned(t, mechanism, options), t.explain()] for t in twins)
    assert differences(one, two) == []


def test_the_comparison_of_twins_finds_a_dependence(monkeypatch):
    stub = _SameOutcome("laplace-once")
    monkeypatch.setattr(conductor, "by_name", lambda name, kind: stub)
    for spoil in (
        lambda p, v: p._last_model[1].remember("spoiled", lambda: v.sum()),
        lambda p, v: p.variables()[0].__dict__.update(note=f"about {v[0]:.0f}"),
        lambda p, v: setattr(p.constraints[0].dual_variables[0], "hint", v > 5000),
    ):
        twins = []
        for values in (SECRETS, OTHERS):
            twin = scalar(values)
            solve(twin, "laplace-once", {})
            spoil(twin, values)
            twins.append(surroundings(twin, "laplace-once", {}))
        assert differences(*twins) != []


def test_memory_of_the_model_is_not_written_by_a_run():
    """What `run` remembers lives on with the problem: it must be the same before and after. Plans, and the checks that
    a solve makes of public facts before its charge, may write."""
    problem = scalar(SECRETS)
    plan = problem.plan(epsilon=1, delta=1e-6, mechanism="laplace-once")
    refuse_foregone(problem._last_model[1], plan.chosen)
    memo = problem._last_model[1]._memo
    before = set(memo)
    solve(problem, "laplace-once", {})
    assert problem._last_model[1]._memo is memo
    assert set(memo) == before


# ------------------------------------------------------------------ CVXPY's own doors
@pytest.fixture
def solved():
    problem = scalar(SECRETS)
    solve(problem, "laplace-once", {})
    return problem


@pytest.mark.parametrize("after", [False, True])
def test_plain_solving_fails(after):
    problem = scalar(SECRETS)
    if after:
        solve(problem, "laplace-once", {})
    with pytest.raises(ParameterError) as caught:
        cp.Problem.solve(problem)
    assert not DIGITS.search(str(caught.value))
    with pytest.raises(ParameterError):
        cp.Problem(problem.objective, problem.constraints).solve()
    for sub in problem.constraints:
        with pytest.raises(ParameterError):
            if sub.parameters():
                cp.Problem(cp.Minimize(0), [sub]).solve()
            else:
                raise ParameterError


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "OSQP", "HIGHS"])
def test_problem_data_holds_no_values(solved, solver):
    try:
        data, _, inverse = solved.get_problem_data(solver)
    except (ParameterError, SolverError, ValueError):
        return
    assert_no_trace([data, inverse, solved], [SECRETS])
    assert any(np.isnan(numbers).any() for _, numbers in numbers_in([data])), "the private part reads as NaN"


def test_expressions_fail_closed(solved):
    need = solved.constraints[0]
    assert need.residual is None
    for call in (need.violation, need.value):
        with pytest.raises(ValueError) as caught:
            call()
        assert not DIGITS.search(str(caught.value))
    (b,) = solved.parameters()
    for expression in (b, b + 1, cp.sum(b), b[0], -b, b.T, cp.hstack([b, b]), need.expr):
        assert expression.value is None
    assert b.value is None and b.value_sparse is None if b.sparse_idx is not None else b.value is None
    assert not DIGITS.search(str(b) + repr(b) + str(need) + repr(solved) + solved.format_labeled())


def test_objective_with_private_data_has_no_value():
    problem = objective(SECRETS)
    value = solve(problem, "laplace-once", {})
    assert problem.objective.value is None
    assert problem.objective.expr.value is None
    assert problem.value == value == problem.release.value
    problem = objective(SECRETS)
    assert solve(problem, "vertex-exponential", {}) is None
    assert problem.value is None


def test_gradients_and_signs_say_nothing(solved):
    (b,) = solved.parameters()
    assert b.sign == "UNKNOWN"
    for call in (solved.backward, solved.derivative):
        with pytest.raises(Exception) as caught:
            call()
        assert not DIGITS.search(str(caught.value))


def test_public_constraints_keep_their_values(solved):
    cap = solved.constraints[1]
    assert cap.violation() == 0
    assert cap.expr.value is not None


# ------------------------------------------------------------------ words
@each_case
def test_warnings_logs_and_progress_hold_no_private_number(build, mechanism, options, caplog, capfd):
    seen: list[Any] = []
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        problem = build(SECRETS)
        solve(problem, mechanism, options, verbose=True, progress=lambda *stage: seen.append(stage))
        print(problem.explain(), problem.release._repr_html_(), problem.explain()._repr_html_(), repr(problem))
        print(json.dumps(problem.release.to_dict()))
        print(problem.classify().to_dict(), problem.explain().to_dict())
    printed = capfd.readouterr()
    text = " ".join((printed.out, printed.err, caplog.text, repr(seen), *(str(w.message) for w in caught)))
    assert seen
    assert mechanism in text
    assert not DIGITS.search(text), DIGITS.search(text)


def test_progress_reports_are_public_facts():
    reports = []
    for values in (SECRETS, OTHERS):
        seen: list[Any] = []
        solve(several_parts(values), "laplace-once", {}, progress=lambda *stage, seen=seen: seen.append(stage))
        reports.append(seen)
    assert reports[0] == reports[1]


# ------------------------------------------------------------------ copies and arithmetic
def _other():
    return dpm.Problem(cp.Minimize(cp.norm1(cp.Variable(2, name="y") - 3)))


ARITHMETIC = [
    ("copy", lambda p: p.copy()),
    ("copy.copy", copy.copy),
    ("tree_copy", lambda p: p.tree_copy()),
    ("negated twice", lambda p: (-p).__neg__()),
    ("plus", lambda p: p + _other()),
    ("plus plain", lambda p: p + cp.Problem(cp.Minimize(cp.Variable(name="z", nonneg=True)))),
    ("plain plus", lambda p: cp.Problem(cp.Minimize(cp.Variable(name="z", nonneg=True))) + p),
    ("minus", lambda p: p - (-_other())),
    ("plain minus", lambda p: cp.Problem(cp.Minimize(cp.Variable(name="z", nonneg=True))) - (-p)),
    ("times", lambda p: 2 * p),
    ("times from the right", lambda p: p * 2),
    ("over", lambda p: p / 4),
    ("sum", lambda p: sum([p, _other(), _other()])),
]


@pytest.mark.parametrize("operation", [f for _, f in ARITHMETIC], ids=[n for n, _ in ARITHMETIC])
@pytest.mark.parametrize("after", [False, True])
def test_copies_and_arithmetic_keep_class_and_protection(operation, after):
    problem = scalar(SECRETS)
    if after:
        solve(problem, "laplace-once", {})
    result = operation(problem)
    assert type(result) is dpm.Problem
    assert result.release is None
    assert [type(p) for p in result.parameters()] == [dpm.Private]
    assert_no_trace([result, *result.constraints, *result.variables()], [SECRETS])
    with pytest.raises(ParameterError):
        cp.Problem.solve(result)
    result.solve(epsilon=1, rng=7)
    assert result.release.status == "optimal"
    assert result.classify().cells[0].parameter == "b"


def test_values_of_scaled_problems():
    one, three = scalar(SECRETS), 3 * scalar(SECRETS)
    assert three.solve(epsilon=1, rng=7) == pytest.approx(3 * one.solve(epsilon=1, rng=7))
    assert (-one).solve(epsilon=1, rng=7) == pytest.approx(-one.value)


def _deep_copy(problem):
    twin = copy.deepcopy(problem)
    assert type(twin) is dpm.Problem
    (mine,), (theirs,) = problem.parameters(), twin.parameters()
    assert theirs is not mine
    assert theirs.has_value
    assert theirs.value is None
    return twin, mine


def test_a_deep_copy_carries_the_sealed_value():
    problem = scalar(SECRETS)
    twin, mine = _deep_copy(problem)
    copy.deepcopy(copy.deepcopy(twin))
    value = solve(twin, "laplace-once", {})
    assert value == solve(problem, "laplace-once", {})
    mine.value = OTHERS[:3]
    assert solve(problem, "laplace-once", {}) != value
    assert solve(twin, "laplace-once", {}) == value
    assert_no_trace([twin, *twin.constraints, *twin.variables()], [SECRETS])


def test_a_deep_copy_of_a_solved_problem_keeps_the_release_and_the_protection():
    problem = scalar(SECRETS)
    solve(problem, "laplace-once", {})
    twin, _ = _deep_copy(problem)
    assert twin.release.to_dict() == problem.release.to_dict()
    assert_no_trace([twin, *twin.constraints, *twin.variables()], [SECRETS])


def test_a_deep_copy_of_a_solved_problem_can_be_solved():
    problem = scalar(SECRETS)
    value = solve(problem, "laplace-once", {})
    assert solve(copy.deepcopy(problem), "laplace-once", {}) == value


@pytest.mark.parametrize("after", [False, True])
def test_a_pickle_carries_no_value(after):
    problem = scalar(SECRETS)
    if after:
        solve(problem, "laplace-once", {})
    dumped = pickle.dumps(problem)
    for secret in SECRETS[:3]:
        assert np.float64(secret).tobytes() not in dumped
        assert np.float64(secret).byteswap().tobytes() not in dumped
        assert str(secret).encode() not in dumped
    twin = pickle.loads(dumped)
    assert type(twin) is dpm.Problem
    assert not twin.parameters()[0].has_value
    assert twin.is_dp()
    if after:
        assert twin.release.to_dict() == problem.release.to_dict()
    with pytest.raises(dpm.MissingValueError):
        twin.solve(epsilon=1, rng=7)
    twin.parameters()[0].value = SECRETS[:3]
    assert solve(twin, "laplace-once", {}) == solve(problem, "laplace-once", {})


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_releases_and_plans_can_be_copied(solved, how):
    twin = how(solved.release)
    assert twin.to_dict() == solved.release.to_dict()
    with pytest.raises(ValueError):
        twin.variables["x"][0, 0] = 1.0
