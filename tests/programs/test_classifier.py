"""Which cell of Table 1 a problem falls into, and how far one record moves that part: worked out by hand."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.marks import Records, vault
from dpmodel.programs.theorems import lower_bound

ROOT = np.sqrt
P = np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
Q = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 4.0], [1.0, 0.0]])


def cells_of(problem):
    return problem.classify().cells


def only_cell(problem):
    (cell,) = cells_of(problem)
    return cell


# ------------------------------------------------------------------ the eight cells
def private_objective(**declared):
    c = dpm.Private(shape=3, name="theta", unit="entry", **declared)
    x = cp.Variable(3, bounds=[0, 1])
    return dpm.Problem(cp.Maximize(c @ x), [cp.sum(x) <= 2])


def private_scalar(**declared):
    b = dpm.Private(shape=3, name="theta", unit="entry", **declared)
    x = cp.Variable(3)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])


def private_equality(**declared):
    """The gadget of Theorem 36."""
    b = dpm.Private(shape=3, name="theta", unit="entry", **declared)
    return dpm.Problem(cp.Minimize(0), [cp.Variable(3) == b])


def private_equal_row(**declared):
    """The gadget of Theorem 38: a record owns one coefficient of one equality."""
    a = dpm.Private(shape=4, name="theta", unit="entry", **declared)
    x = cp.Variable(4, bounds=[0, 1])
    return dpm.Problem(cp.Minimize(0), [a @ x == 2, cp.sum(x) == 2])


def private_row(**declared):
    A = dpm.Private(shape=(4, 3), name="theta", unit="row", **declared)
    x = cp.Variable(3, bounds=[0, 1])
    return dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= 1])


def private_column(**declared):
    A = dpm.Private(shape=(4, 3), name="theta", unit="column", **declared)
    x = cp.Variable(3, bounds=[0, 1])
    return dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= 1])


def private_single_row(**declared):
    """The gadget of Theorem 38: one private constraint, a record owns one coefficient."""
    a = dpm.Private(shape=3, name="theta", unit="entry", **declared)
    x = cp.Variable(3, bounds=[0, 1])
    return dpm.Problem(cp.Maximize(cp.sum(x)), [a @ x <= 1])


@pytest.mark.parametrize(
    ("build", "part", "level", "theorem", "solvable", "relaxed"),
    [
        (private_objective, "objective", "low", "Theorem 34", True, False),
        (private_objective, "objective", "high", "Theorem 37", False, False),
        (private_scalar, "scalar", "low", "Theorem 22", True, False),
        (private_scalar, "scalar", "high", "Theorem 36", False, False),
        (private_row, "row", "low", "Theorem 28", True, False),
        (private_row, "row", "high", "Theorems 11, 12", True, True),
        (private_column, "column", "low", "Theorem 32", True, False),
        (private_column, "column", "high", "Theorem 38", False, False),
        (private_single_row, "column", "high", "Theorem 38", False, False),
    ],
)
def test_the_eight_cells(build, part, level, theorem, solvable, relaxed):
    problem = build(**({"linf": 1} if level == "low" else {}))
    cell = only_cell(problem)
    assert (cell.part, cell.level) == (part, level)
    assert cell.theorem == theorem
    assert cell.solvable is solvable
    assert cell.relaxed is relaxed
    assert problem.is_dp() is problem.classify().solvable is solvable
    assert cell.taxonomy.verdict == ("yes*" if relaxed else "yes" if solvable else "no")
    assert cell.parameter == "theta"


def test_an_aggregate_in_a_is_the_whole_matrix():
    A = dpm.Private(shape=(4, 3), name="A", linf=0.5)
    x = cp.Variable(3, bounds=[0, 1])
    cell = only_cell(dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= 1]))
    assert (cell.part, cell.level, cell.solvable) == ("matrix", "low", True)


def test_a_record_in_every_row_of_a_is_a_matrix_that_cannot_be_relaxed():
    A = dpm.Private(shape=(2, 3), name="A", unit="row")
    x = cp.Variable((3, 4), bounds=[0, 1])
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), [cp.sum(A @ x, axis=0) <= 1])
    cell = only_cell(problem)
    assert (cell.part, cell.level, cell.solvable, cell.theorem) == ("matrix", "high", False, "Theorem 38")


# ------------------------------------------------------------------ exact change, by hand
def sensitivity_of(problem, part=None):
    cells = [cell for cell in cells_of(problem) if part is None or cell.part == part]
    return cells[0].sensitivity


def check(sensitivity, **expected):
    for key, value in expected.items():
        assert sensitivity[key] == pytest.approx(value, rel=1e-9), key


def bounded(shape, write, **declared):
    """Minimise the sum of a variable under what ``write`` says of it and of a private parameter."""
    b, x = dpm.Private(shape=shape, name="b", **{"linf": 1, **declared}), cp.Variable(3)
    return dpm.Problem(cp.Minimize(cp.sum(x)), write(b, x))


ENTRY = {"unit": "entry"}
SENSITIVITIES = {
    "entry unit": (private_scalar(linf=2), {"l1": 2, "l2": 2, "linf": 2}),
    "reused in three constraints": (
        bounded(3, lambda b, x: [x >= b, x >= b - 1, x <= 100 + b], **ENTRY),
        {"l1": 3, "l2": ROOT(3), "linf": 1},
    ),
    "scaled": (bounded(3, lambda b, x: [x >= 7 * b, x >= -2 * b], **ENTRY), {"l1": 9, "l2": ROOT(53), "linf": 7}),
    "summed": (bounded((2, 3), lambda b, x: [x[:2] >= cp.sum(b, axis=1)]), {"l1": 6, "l2": ROOT(18), "linf": 3}),
    "sum of one entry unit": (bounded(5, lambda b, x: [x[0] >= cp.sum(b)], **ENTRY), {"l1": 1, "l2": 1, "linf": 1}),
    # A record owns a column of b (2 entries), each in one constraint; entry [1, 2] in one more, doubled.
    "transposed and sliced": (
        bounded((2, 3), lambda b, x: [cp.sum(x) >= b.T, x[0] >= 2 * b[1, 2]], unit="column"),
        {"l1": 4, "l2": ROOT(1 + 1 + 4), "linf": 2},
    ),
    "a slice leaves the others out": (bounded(6, lambda b, x: [x[:2] >= b[1:3]]), {"l1": 2, "l2": ROOT(2), "linf": 1}),
    "a one-norm lands in two rows": (
        bounded(4, lambda b, x: [cp.norm1(np.arange(12.0).reshape(4, 3) @ x - b) <= 1], **ENTRY),
        {"l1": 2, "l2": ROOT(2), "linf": 1},
    ),
    "a matrix in a one-norm": (
        bounded((4, 3), lambda A, x: [cp.norm1(A @ x - np.ones(4)) <= 1], unit="row", linf=0.5),
        {"l1": 3, "l2": ROOT(6) / 2, "linf": 0.5, "row_l1": 1.5},
    ),
    "objective": (private_objective(linf=3), {"l1": 3, "l2": 3, "linf": 3}),
    "rows": (private_row(linf=0.5), {"l1": 1.5, "l2": ROOT(3) / 2, "linf": 0.5, "row_l1": 1.5}),
    "rows by their norm": (private_row(row_l1=0.75), {"l1": 0.75, "linf": 0.75, "row_l1": 0.75}),
    "columns": (private_column(linf=0.5), {"l1": 2, "l2": 1, "linf": 0.5, "row_l1": 0.5}),
}


@pytest.mark.parametrize("name", SENSITIVITIES)
def test_exact_change(name):
    problem, expected = SENSITIVITIES[name]
    check(sensitivity_of(problem), **expected)


def test_multiplied_on_both_sides():
    # b = P theta Q with one entry of theta moving by 1: the largest outer product of a column of P and a row of Q.
    theta = dpm.Private(shape=(3, 4), name="theta", unit="entry", linf=1)
    x = cp.Variable((2, 2))
    columns, rows = np.abs(P), np.abs(Q)
    l1 = max(columns[:, i].sum() * rows[j].sum() for i in range(3) for j in range(4))
    l2 = max(np.linalg.norm(columns[:, i]) * np.linalg.norm(rows[j]) for i in range(3) for j in range(4))
    linf = max(columns[:, i].max() * rows[j].max() for i in range(3) for j in range(4))
    assert (l1, linf) == (20, 12)
    check(sensitivity_of(dpm.Problem(cp.Minimize(cp.sum(x)), [x >= P @ theta @ Q])), l1=l1, l2=l2, linf=linf)


def test_bounds_become_change_by_the_neighbor_relation():
    def build(neighbors):
        records = Records(neighbors=neighbors)
        b = dpm.Private(shape=3, name="b", unit="entry", bounds=[-2, 5], records=records)
        x = cp.Variable(3)
        return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])

    check(sensitivity_of(build("replace-one")), l1=7, linf=7)
    check(sensitivity_of(build("add-remove")), l1=5, linf=5)


# ------------------------------------------------------------------ who moves together
@pytest.mark.parametrize(
    ("same", "turned", "part"),
    [(True, False, "row"), (False, False, "scalar"), (True, True, "scalar")],
    ids=["its own right-hand side", "other people's", "another row's"],
)
def test_a_record_owns_a_constraint_only_with_its_own_right_hand_side(same, turned, part):
    people = Records("people")
    A = dpm.Private(shape=(4, 3), name="A", unit="row", records=people)
    b = dpm.Private(shape=4, name="b", unit="entry", records=people if same else Records("others"))
    x = cp.Variable(3, bounds=[0, 1])
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= (b[::-1] if turned else b)])
    found = [(cell.parameter, cell.part, cell.level) for cell in cells_of(problem)]
    assert found == [("A", "row", "high"), ("b", part, "high")]
    assert problem.is_dp() == (part == "row")


def test_a_row_and_its_right_hand_side_are_paired_by_default():
    x = cp.Variable(2)
    A = dpm.Private(np.ones((3, 2)), unit="row", linf=0.1, name="A")
    b = dpm.Private(np.ones(3), unit="entry", linf=1, name="b")
    assert {cell.part for cell in dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= b]).classify().cells} == {"row"}


def test_the_cell_of_a_paired_right_hand_side_reports_its_own_change():
    x = cp.Variable(2)
    same = Records("people")
    A = dpm.Private(np.ones((3, 2)), unit="row", linf=0.1, name="A", records=same)
    b = dpm.Private(np.ones(3), unit="entry", linf=50, name="b", records=same)
    cells = {c.parameter: c for c in dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= b]).classify().cells}
    assert (cells["A"].sensitivity["linf"], cells["b"].sensitivity["linf"]) == (0.1, 50)
    assert "row_l1" not in cells["b"].sensitivity


def test_two_vectors_nobody_said_anything_about_are_not_paired():
    x = cp.Variable()
    p, q = (dpm.Private([0.0, 0.0], unit="entry", linf=1, name=n) for n in "pq")
    assert sensitivity_of(dpm.Problem(cp.Minimize(x), [x >= p[0] + q[1]]))["linf"] == 2
    same = Records("customers")
    p, q = (dpm.Private([0.0, 0.0], unit="entry", linf=1, name=n, records=same) for n in "pq")
    assert sensitivity_of(dpm.Problem(cp.Minimize(x), [x >= p[0] + q[1]]))["linf"] == 1


def test_two_records_do_not_add_up():
    def build(second):
        one = dpm.Private(shape=3, name="one", l1=1, records=Records("one"))
        two = dpm.Private(shape=3, name="two", l1=5, records=second or one.records)
        x = cp.Variable(3)
        return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= one, x >= two])

    apart = cells_of(build(Records("two")))
    assert [cell.sensitivity["l1"] for cell in apart] == pytest.approx([1, 5])
    together = cells_of(build(None))
    assert [cell.sensitivity["l1"] for cell in together] == pytest.approx([6, 6])


def test_one_parameter_in_several_parts_gives_several_cells():
    theta = dpm.Private(shape=3, name="theta", unit="entry", linf=1)
    x = cp.Variable(3, bounds=[0, 9])
    problem = dpm.Problem(cp.Minimize(theta @ x), [2 * x >= theta, theta @ x <= 30])
    found = {cell.part: cell for cell in cells_of(problem)}
    assert set(found) == {"objective", "scalar", "row"}
    assert {cell.parameter for cell in found.values()} == {"theta"}
    for cell in found.values():
        check(cell.sensitivity, l1=1, linf=1)


def test_two_parameters_in_two_parts():
    c = dpm.Private(shape=3, name="c", unit="entry", linf=1)
    b = dpm.Private(shape=3, name="b", unit="entry")
    x = cp.Variable(3, bounds=[0, 9])
    problem = dpm.Problem(cp.Minimize(c @ x), [(x >= b).set_label("lower_bound")])
    assert [(cell.parameter, cell.part, cell.solvable) for cell in cells_of(problem)] == [
        ("c", "objective", True),
        ("b", "scalar", False),
    ]
    assert not problem.is_dp()
    with pytest.raises(dpm.ImpossibilityError) as caught:
        problem.plan(epsilon=1)
    assert (caught.value.parameter, caught.value.constraint) == ("b", "lower_bound")


# ------------------------------------------------------------------ reasons in words
def test_the_reason_names_constraint_unit_and_bound():
    b = dpm.Private(shape=3, name="demand", unit="entry", linf=2.5)
    x = cp.Variable(3)
    cell = only_cell(dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= b).set_label("meet demand")]))
    for words in ("demand", "meet demand", "right-hand sides b", "owns one entry", "2.5"):
        assert words in cell.reason
    assert cell.where == ("meet demand",)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (private_objective, "the objective"),
        (private_row, "one row of A"),
        (private_column, "one column of A"),
        (private_single_row, "the only private row of A"),
    ],
)
def test_the_reason_says_what_is_reached(build, words):
    assert words in only_cell(build()).reason
    assert "no bound is declared" in only_cell(build()).reason


# ------------------------------------------------------------------ impossible, before anything is spent
IMPOSSIBLE = [
    (private_scalar, "Theorem 36", "scalar"),
    (private_objective, "Theorem 37", "objective"),
    (private_column, "Theorem 38", "column"),
]


@pytest.mark.parametrize(("build", "theorem", "part"), IMPOSSIBLE)
@pytest.mark.parametrize("call", ["plan", "solve"])
def test_impossible_cells_raise_their_theorem(build, theorem, part, call, monkeypatch):
    problem, budget = build(), dpm.Budget(10, 0.5)
    (parameter,) = problem.parameters()
    parameter.value = np.full(parameter.shape, 7321.4375)
    monkeypatch.setattr(vault, "unseal", lambda parameter: pytest.fail("private data was read"))
    with pytest.raises(dpm.ImpossibilityError) as caught:
        if call == "plan":
            problem.plan(epsilon=0.5, delta=1e-6, beta=0.1)
        else:
            problem.solve(epsilon=0.5, delta=1e-6, beta=0.1, budget=budget, rng=0)
    error = caught.value
    assert error.theorem == theorem
    assert error.parameter == "theta"
    assert error.lower_bound == lower_bound(part, 0.5, 1e-6, 0.1).value > 0
    assert error.remedies
    assert all(remedy.statement in str(error) or remedy.name in str(error) for remedy in error.remedies)
    assert "7321" not in str(error)
    assert budget.history == ()
    assert problem.release is None


def test_forcing_a_mechanism_does_not_get_around_the_theorem():
    with pytest.raises(dpm.ImpossibilityError):
        private_scalar().plan(epsilon=1, mechanism="laplace-once")


# ------------------------------------------------------------------ bounded changes carry the lower bound, scaled
@pytest.mark.parametrize(
    ("build", "part"),
    [(private_equality, "scalar"), (private_objective, "objective"), (private_equal_row, "column")],
)
@pytest.mark.parametrize("bound", [1, 2.5, 1000])
def test_a_bounded_change_is_low_and_carries_the_scaled_floor(build, part, bound):
    problem = build(linf=bound)
    cell = only_cell(problem)
    assert cell.level == "low"
    unit = lower_bound(part, 0.5, 1e-6, 0.05).value
    assert cell.lower_bound(0.5, 1e-6, 0.05).value == pytest.approx(bound * unit)
    (line,) = problem.plan(epsilon=0.5, delta=1e-6).lower_bounds
    assert "theta" in line
    # The statement is about this change, not about changes of any size.
    assert f"one record moves an entry by {bound:g}" in line and f"below {bound * unit:.4g} " in line
    assert "for a bounded change" in line
    assert line in str(problem.plan(epsilon=0.5, delta=1e-6).table()).replace("\n", " ")


@pytest.mark.parametrize("unit", ["entry", "all"])
@pytest.mark.parametrize("moves", [1.0, 50.0, 100.0])
@pytest.mark.parametrize(("point", "row"), [(100.0, lambda x, b: x >= b), (0.0, lambda x, b: x <= b)])
def test_no_theorem_is_stated_that_a_point_known_without_data_contradicts(point, row, moves, unit):
    """With a bed for everybody who can come no constraint is ever missed, whatever the theorem says of equalities."""
    b = dpm.Private(shape=3, name="b", unit=unit, linf=moves, bounds=[0, 100])
    x = cp.Variable(3, bounds=[0, 100])
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [row(x, b)])
    held = [np.full(3, point), np.linspace(0, 100, 3)]  # a point, and data at both ends and between
    assert all(bool((row(held[0], data)).all()) for data in (np.zeros(3), np.full(3, 100.0), held[1]))
    assert only_cell(problem).lower_bound(0.1, 0, 0.05) is None
    for feasibility in ("relaxed", "centred"):
        assert problem.plan(epsilon=0.1, feasibility=feasibility).lower_bounds == ()


# ------------------------------------------------------------------ how much "low" is beside the numbers
@pytest.mark.parametrize("build", [private_objective, private_scalar, private_equality, private_row, private_column])
@pytest.mark.parametrize("moves", [0.5, 9.99, 10.0])
def test_the_answer_drowns_where_one_record_moves_a_number_across_its_range(build, moves):
    cell = only_cell(build(linf=moves, bounds=[-3, 7]))
    assert (cell.level, cell.size, cell.drowns) == ("low", 10, moves == 10)
    told = str(build(linf=moves, bounds=[-3, 7]).classify())
    assert f"at most {moves:g} (in a declared range of 10)" in " ".join(told.split())
    assert ("drowns" in cell.verdict) == ("It drowns: one record moves a number by 10" in " ".join(told.split()))
    assert ("drowns" in cell.verdict) == (moves == 10)
    # Rows of which a record owns one of many can be left out; an equality, a cost or a column cannot.
    assert ("a few constraints may be violated" in cell.verdict) == (
        moves == 10 and build in (private_scalar, private_row)
    )


def test_without_a_declared_range_it_says_so():
    cell = only_cell(private_objective(linf=3))
    assert not cell.drowns and cell.size == np.inf and cell.reason.endswith("at most 3 (no range is declared)")


@pytest.mark.parametrize("name", ["scalar", "objective", "column"])
@pytest.mark.parametrize("sensitivity", [0.25, 1, 7])
def test_the_programs_of_the_theorems_drown_with_their_bound_beside_them(name, sensitivity):
    gadget = dpm.teach.gadgets.build(name, [0, 1, 1, 0], sensitivity=sensitivity)
    cell = only_cell(gadget.problem)
    text = " ".join(str(gadget.problem.classify()).split())
    assert (
        "solvable, but at epsilon 1 or less the answer drowns in noise" in text
        and f"{gadget.theorem} at epsilon 1" in text
    )
    least = lower_bound(name, 1, 0, 0.05).scaled(sensitivity)
    assert cell.lower_bound(1, 0, 0.05) == least and least.statement in text
    assert least.value >= gadget.lower_bound(1, 0, 0.05).value > 0
    assert "the answer drowns" in " ".join(gadget.problem.explain().sentences)


def test_a_record_of_some_rows_of_a_is_a_row_and_the_sentences_are_of_its_cell():
    A = dpm.Private(shape=(3, 2), name="A", unit="row")
    x = cp.Variable(2, bounds=[0, 1])
    two_each = dpm.Problem(cp.Maximize(cp.sum(x)), [cp.vstack([A, 2 * A]) @ x <= 1])
    cell = only_cell(two_each)
    assert (cell.part, cell.level, cell.relaxed, cell.taxonomy.verdict) == ("row", "high", True, "yes*")
    Z = cp.Variable((2, 4), bounds=[0, 1])
    every = dpm.Problem(cp.Maximize(cp.sum(Z)), [cp.sum(A @ Z, axis=0) <= 1])
    assert (only_cell(every).part, only_cell(every).taxonomy.verdict) == ("matrix", "no")
    ((said,), (refused,)) = (problem.explain().sentences for problem in (two_each, every))
    assert "all but a few can" in said and "no private algorithm finds one" in refused
    assert "gradient" not in said + refused


def test_the_forecast_is_never_below_the_floor():
    for bound in (1, 10):
        problem = private_equality(linf=bound)
        least = only_cell(problem).lower_bound(1, 1e-6, 0.05).value
        plan = problem.plan(epsilon=1, delta=1e-6, compare="all")
        assert all(c.forecast.alpha >= least for c in plan.candidates if c.eligible)
