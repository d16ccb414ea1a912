"""``Problem`` from end to end: agreement with CVXPY, budgets, public parameters, threads, words and data."""

from __future__ import annotations

import math
import warnings

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.compile import form as compiled_form
from dpmodel.marks import vault

_HUGE = 1e6  # epsilon at which noise is far below the tolerance
_DELTA = 1e-6
_TOLERANCE = 1e-3


# ------------------------------------------------------------------ agreement with CVXPY at a huge epsilon
def lp_scalar(make):
    b = make([4.25, 3.5, 5.75], name="b", unit="entry", linf=0.01)
    x = cp.Variable((2, 3), nonneg=True, name="x")
    cost = np.array([[1.0, 2.0, 3.5], [2.5, 1.5, 2.0]])
    return cp.Minimize(cp.sum(cp.multiply(cost, x)) + 3), [cp.sum(x, axis=1) <= [6.0, 9.0], cp.sum(x, axis=0) >= b]


def lp_maximise(make):
    b = make([40.5, 30.25], name="b", unit="entry", linf=0.01)
    x = cp.Variable(2, nonneg=True, name="x")
    A = np.array([[2.0, 1.0], [1.0, 3.0]])
    return cp.Maximize(np.array([3.0, 4.0]) @ x - 2), [A @ x <= b, x <= 25.0]


def lp_objective_private(make):
    c = make([3.25, 4.5, 1.125], name="c", unit="entry", linf=0.01)
    x = cp.Variable(3, name="x")
    return cp.Maximize(c @ x), [x >= 0, x <= [1.0, 2.0, 3.0], cp.sum(x) == 4]


def lp_equality(make):
    b = make([7.5, 1.25], name="b", unit="entry", linf=0.01)
    x = cp.Variable(3, name="x", nonneg=True)
    A = np.array([[1.0, 2.0, 1.0], [1.0, -1.0, 2.0]])
    return cp.Minimize(np.array([1.0, 3.0, 2.0]) @ x), [A @ x == b]


def lp_matrix(make):
    A = make([[2.0, 1.5], [1.0, 3.0]], name="A", unit="entry", linf=0.01)
    x = cp.Variable(2, bounds=[0, 50], name="x")
    return cp.Maximize(np.array([3.0, 4.0]) @ x), [A @ x <= [40.0, 30.0]]


def qp(make):
    b = make([3.25, 1.5], name="b", unit="entry", linf=0.01)
    x = cp.Variable(2, name="x")
    return cp.Minimize(cp.sum_squares(x - [0.5, 0.25]) + cp.sum(x)), [x >= b, cp.sum(x) <= 10]


def second_order(make):
    b = make([2.25, 1.5], name="b", unit="entry", linf=0.01)
    x = cp.Variable(2, name="x")
    t = cp.Variable(name="t")
    return cp.Minimize(t + cp.sum(x)), [cp.SOC(t, x), x >= b, t <= 30]


def semidefinite(make):
    b = make([1.5, 2.25], name="b", unit="entry", linf=0.01)
    X = cp.Variable((2, 2), symmetric=True, name="X")
    return cp.Minimize(cp.trace(X) - 0.5 * X[0, 1]), [X >> 0, cp.diag(X) >= b, X[0, 1] <= 1.25]


def exponential(make):
    b = make([1.5, 2.25], name="b", unit="entry", linf=0.01)
    x = cp.Variable(2, name="x")
    return cp.Minimize(cp.sum(cp.exp(x))), [x >= b, x[0] <= 9]


def mixed_integer(make):
    b = make(7.4, name="b", linf=0.001)
    x = cp.Variable(2, integer=True, bounds=[0, 20], name="x")
    return cp.Minimize(np.array([2.0, 3.0]) @ x), [np.array([1.0, 2.0]) @ x >= b]


MODELS = [
    lp_scalar,
    lp_maximise,
    lp_objective_private,
    lp_equality,
    lp_matrix,
    qp,
    second_order,
    semidefinite,
    exponential,
    mixed_integer,
]


def _plain(value, **annotation):
    return cp.Constant(np.asarray(value, dtype=float))


@pytest.mark.parametrize("write", MODELS, ids=lambda m: m.__name__)
def test_huge_epsilon_agrees_with_cvxpy(write):
    """In value, points and duals; duals have CVXPY's shapes, and those of a cone are released in parts."""
    private, plain = dpm.Problem(*write(dpm.Private)), cp.Problem(*write(_plain))
    value = private.solve(epsilon=_HUGE, delta=_DELTA, rng=5)
    plain.solve()

    release = private.release
    assert private.status == "optimal" == release.status
    assert value == private.value == release.value
    assert value == pytest.approx(plain.value, abs=_TOLERANCE)
    for mine, theirs in zip(private.variables(), plain.variables(), strict=True):
        assert mine.value == pytest.approx(theirs.value, abs=_TOLERANCE)
        assert release.variables[mine.name()] == pytest.approx(theirs.value, abs=_TOLERANCE)
    if write is mixed_integer:
        assert not release.duals and private.constraints[0].dual_value is None
        return
    for number, (mine, theirs) in enumerate(zip(private.constraints, plain.constraints, strict=True)):
        if isinstance(theirs, cp.SOC):
            parts = [release.duals[f"constraint {number}[{k}]"] for k in range(len(theirs.dual_value))]
            pairs = [*zip(mine.dual_value, theirs.dual_value, strict=True), *zip(parts, theirs.dual_value, strict=True)]
        else:
            pairs = [(mine.dual_value, theirs.dual_value)]
            assert np.shape(mine.dual_value) == np.shape(theirs.dual_value) or write is semidefinite
        for ours, cvxpys in pairs:
            assert np.ravel(ours) == pytest.approx(np.ravel(cvxpys), abs=_TOLERANCE)


def test_variables_and_constraints_of_the_same_name_are_all_released():
    b = dpm.Private([4.25, 3.5], name="b", unit="entry", linf=0.01)
    one, two = cp.Variable(2, name="x"), cp.Variable(2, name="x")
    rows = [(one >= b).set_label("row"), (two >= b).set_label("row"), cp.sum(one) <= 100]
    problem = dpm.Problem(cp.Minimize(cp.sum(one) + 2 * cp.sum(two)), rows)
    problem.solve(epsilon=_HUGE, rng=5)
    assert list(problem.release.variables) == ["x", "x (2)"]
    for name, dual in (("row", [1, 1]), ("row (2)", [2, 2]), ("constraint 2", 0)):
        assert problem.release.duals[name] == pytest.approx(dual, abs=_TOLERANCE)


@pytest.mark.parametrize("attribute", ["nonneg", "symmetric", "diag", "PSD", "bounds", "integer"])
def test_variables_with_attributes_get_values_of_their_shape(attribute):
    b = dpm.Private(3.5, name="b", linf=1e-4)
    x = cp.Variable((2, 2), **{attribute: [-9.0, 9.0] if attribute == "bounds" else True}, name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(cp.abs(x))), [x[0, 0] + 2 * x[1, 1] >= b])
    problem.solve(epsilon=1000, rng=3)
    assert np.asarray(x.value.todense() if hasattr(x.value, "todense") else x.value).shape == (2, 2)
    assert problem.release.variables["x"].shape == (2, 2)
    assert np.isfinite(problem.release.variables["x"].astype(float)).all()


# ------------------------------------------------------------------ parameters change between solves
def _simple(value=(20.25, 31.5), shape=None, linf=1):
    b = dpm.Private(value, shape=shape, name="b", unit="entry", linf=linf)
    x = cp.Variable(2, nonneg=True, name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])


def test_public_parameters_are_read_at_each_solve():
    b = dpm.Private([2.0, 3.0], name="b", unit="entry", linf=1e-6)
    price, cap = cp.Parameter(2, name="price", nonneg=True), cp.Parameter(name="cap")
    x = cp.Variable(2, name="x")
    problem = dpm.Problem(cp.Minimize(price @ x), [x >= b, x <= cap])
    for new_price, new_cap in (([1.0, 2.0], 10.0), ([5.0, 1.0], 10.0), ([5.0, 1.0], 4.0)):
        price.value, cap.value = np.array(new_price), new_cap
        value = problem.solve(epsilon=1, rng=1, feasibility="centred")
        assert value == pytest.approx(2 * new_price[0] + 3 * new_price[1], abs=1e-3)
    cap.value = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dpm.errors.NotPrivateWarning)
        assert problem.solve(epsilon=1, rng=1, feasibility="centred") == problem.release.value
    assert problem.release.status == "least_violation"
    assert problem.status == "optimal_inaccurate"


def test_private_values_are_read_at_each_solve():
    problem = _simple(None, shape=2, linf=1e-6)
    for new in ([2.0, 3.0], [7.5, 1.25]):
        problem.parameters()[0].value = new
        assert problem.solve(epsilon=1, rng=1) == pytest.approx(sum(new), abs=1e-3)
        assert problem.variables()[0].value == pytest.approx(new, abs=1e-3)


def test_a_refused_solve_keeps_the_release_that_was_paid_for():
    problem = _simple()
    problem.solve(epsilon=1, rng=1)
    before, point = problem.release, problem.variables()[0].value.copy()
    problem.parameters()[0].value = None
    for wrong in ({"epsilon": 1}, {"epsilon": -1}, {"epsilon": 1, "mechanism": "typo"}):
        with pytest.raises(dpm.DPModelError):
            problem.solve(rng=1, **wrong)
    assert problem.release is before
    assert np.array_equal(problem.variables()[0].value, point)


def test_a_solve_that_fails_on_the_way_leaves_nothing_of_the_last_one():
    problem = _simple()
    problem.solve(epsilon=1, rng=1)

    class Broken:
        is_private = False

        def __getattr__(self, name):
            raise RuntimeError("no noise today")

        laplace = gaussian = truncated_laplace = truncated_gaussian = noisy_max = lambda self, *given, **named: 1 / 0

    with pytest.raises(dpm.DPModelError):
        problem.solve(epsilon=1, rng=Broken())
    assert problem.release.status == "stopped" and not problem.release.variables
    assert problem.value is None
    assert problem.variables()[0].value is None
    assert problem.constraints[0].dual_value is None


# ------------------------------------------------------------------ the budget


def _no_reading(monkeypatch):
    def refuse(parameter):
        raise AssertionError("private data was read")

    monkeypatch.setattr(vault, "unseal", refuse)
    monkeypatch.setattr(compiled_form.vault, "unseal", refuse)


def test_an_exceeded_budget_is_refused_before_data_is_read(monkeypatch):
    problem, budget = _simple(), dpm.Budget(1.5)
    problem.solve(epsilon=1, budget=budget, rng=0)
    _no_reading(monkeypatch)
    with pytest.raises(dpm.errors.BudgetExceededError):
        problem.solve(epsilon=1, budget=budget, rng=0)
    assert budget.spent.epsilon == 1
    assert problem.release is not None  # of the first solve, which was paid for
    with pytest.raises(dpm.DPModelError):  # the guard works: a solve that can be paid for does read
        problem.solve(epsilon=0.5, budget=budget, rng=0)


def test_everything_before_solve_reads_no_data(monkeypatch):
    problem = _simple()
    _no_reading(monkeypatch)
    assert problem.is_dp()
    problem.classify()
    problem.plan(epsilon=1, delta=1e-6)
    str(problem.explain())
    str(problem), repr(problem)


def test_plan_and_classify_need_no_values():
    problem = _simple(None, shape=2)
    empty = problem.plan(epsilon=1, delta=1e-6).to_dict()
    problem.parameters()[0].value = [1e7, -3e5]
    assert problem.plan(epsilon=1, delta=1e-6).to_dict() == empty


def test_a_ledger_file_outlives_the_budget_object(tmp_path):
    path = tmp_path / "budget.db"
    _simple().solve(epsilon=1, budget=dpm.Budget(1.5, ledger=path), rng=0)
    again = dpm.Budget(1.5, ledger=path)
    assert again.spent.epsilon == 1
    with pytest.raises(dpm.errors.BudgetExceededError):
        _simple().solve(epsilon=1, budget=again, rng=0)


# ------------------------------------------------------------------ nothing private
def test_nothing_private_is_solved_as_cvxpy_does():
    x, price = cp.Variable(2, nonneg=True, name="x"), cp.Parameter(2, name="price")
    price.value = np.array([1.0, 2.0])
    problem = dpm.Problem(cp.Minimize(price @ x), [x >= [3.0, 4.0]])
    budget = dpm.Budget(1)
    assert problem.solve(budget=budget) == pytest.approx(11)
    assert problem.release.value == pytest.approx(11)
    assert x.value == pytest.approx([3, 4])
    assert "nothing is private" in str(problem.release)
    assert "othing is private" in str(problem.classify())
    assert problem.release.guarantee.epsilon == 0
    assert budget.history == ()
    assert problem.is_dp()
    with pytest.raises(dpm.errors.SpecificationError, match="nothing to plan"):
        problem.plan(epsilon=1)


def test_nothing_private_and_infeasible():
    x = cp.Variable(name="x")
    problem = dpm.Problem(cp.Minimize(x), [x >= 2, x <= 1])
    assert problem.solve() == math.inf
    assert problem.release.status == "infeasible"
    assert not problem.release.variables


# ------------------------------------------------------------------ words and data
def test_text_of_labels_is_escaped_in_html():
    b = dpm.Private([2.0, 3.0], name="<b>&", unit="entry", linf=1)
    x = cp.Variable(2, name="<script>")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= b).set_label("<i>row</i>")])
    problem.solve(epsilon=1, rng=0)
    for thing in (problem.classify(), problem.plan(epsilon=1, delta=1e-6), problem.explain(), problem.release):
        html = thing._repr_html_()
        assert "<script>" not in html
        assert "<i>row" not in html
        assert "<b>&" not in html


def test_verbose_and_progress(capsys):
    stages = []
    _simple().solve(epsilon=1, rng=0, progress=lambda stage, done: stages.append((stage, done)))
    assert stages[-1] == ("done", 1.0)
    shares = [done for _, done in stages]
    assert shares == sorted(shares)
    assert capsys.readouterr() == ("", "")
    _simple().solve(epsilon=1, rng=0, verbose=True)
    printed = capsys.readouterr()
    assert "Classification" in printed.out and "Plan" in printed.out and "Private release" in printed.out
    assert "noise on the scalar part" in printed.err
    _simple().solve(epsilon=1, rng=0, progress=True)
    printed = capsys.readouterr()
    assert printed.out == "" and "done" in printed.err


def test_real_noise_differs_from_run_to_run_and_is_not_marked():
    one, two = _simple(), _simple()
    one.solve(epsilon=1)
    two.solve(epsilon=1)
    assert one.release.value != two.release.value
    assert "NOT PRIVATE" not in str(one.release)


def test_maximise_and_minimise_are_mirror_images():
    def build(sense, sign):
        c = dpm.Private([3.25, -4.5], name="c", unit="entry", linf=1)
        x = cp.Variable(2, bounds=[0, 1], name="x")
        return dpm.Problem(sense(sign * (c @ x)), [cp.sum(x) <= 1.5])

    up, down = build(cp.Maximize, 1), build(cp.Minimize, -1)
    assert up.solve(epsilon=1, rng=4) == pytest.approx(-down.solve(epsilon=1, rng=4))
    assert up.variables()[0].value == pytest.approx(down.variables()[0].value)
