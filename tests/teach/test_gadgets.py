"""The programs of Theorems 36, 37 and 38: neighbors, cells, solutions, errors, lower bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel.programs import theorems as impossibility
from dpmodel.teach import gadgets

BALANCED = [0, 1, 1, 0, 1, 0]
# kind: theorem, whether in the sharper form, how neighbors differ, which part of the standard form moves
KINDS = {
    "scalar": ("Theorem 36", False, "flip", "scalar"),
    "objective": ("Theorem 37", False, "swap", "objective"),
    "sharp": ("Theorem 37", True, "flip", "objective"),
    "column": ("Theorem 38", False, "swap", "matrix"),
}


def make(kind: str, bits, sensitivity=None) -> gadgets.Gadget:
    return gadgets.build("objective" if kind == "sharp" else kind, bits, sensitivity=sensitivity, sharp=kind == "sharp")


def standard_form(gadget: gadgets.Gadget) -> dict[str, np.ndarray]:
    """c (n,), b (m,) and A (m, n) in full, private numbers included."""
    model = gadget.problem._model(None)
    form, theta = model.form, model.read_private()
    columns, rows = model.affine.variables, model.affine.rows
    matrix = form.A0.toarray()
    matrix += form.matrix.apply(theta).reshape(columns, rows).T if form.matrix.nnz else 0.0
    return {
        "objective": form.c0 + form.objective.apply(theta),
        "scalar": form.b0 + form.scalar.apply(theta),
        "matrix": matrix,
    }


balanced_bits = st.integers(1, 8).flatmap(lambda half: st.permutations([0] * half + [1] * half))


# ------------------------------------------------------------------ neighboring databases, neighboring programs
@pytest.mark.slow
@pytest.mark.parametrize("sensitivity", [None, 2.5])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(bits=balanced_bits, data=st.data())
def test_neighboring_databases_give_neighboring_programs(kind, sensitivity, bits, data):
    _, _, neighbors, part = KINDS[kind]
    gadget = make(kind, bits, sensitivity)
    index = data.draw(st.integers(0, len(bits) - 1))
    other = gadget.neighbor(index)
    moved = np.flatnonzero(other != np.array(bits))
    assert moved.size == (2 if neighbors == "swap" else 1)
    assert index in moved
    if neighbors == "swap":
        assert other.sum() == sum(bits)

    before, after = standard_form(gadget), standard_form(gadget.rebuilt(other))
    for name in before:
        difference = after[name] - before[name]
        if name != part:
            assert not difference.any(), name
            continue
        where = np.argwhere(difference)
        assert len(where) == moved.size
        np.testing.assert_allclose(np.abs(difference[difference != 0]), gadget.scale, rtol=1e-12)
        if neighbors == "swap":
            assert difference.sum() == pytest.approx(0.0, abs=1e-12)
        if part == "matrix":
            assert len(set(where[:, 0])) == 1, "one private row"
            assert len(set(where[:, 1])) == 2, "two columns"


def test_neighbors_may_be_named():
    gadget = gadgets.objective(BALANCED)
    assert gadget.neighbor(0, 4).tolist() == [1, 1, 1, 0, 0, 0]
    assert gadget.neighbor(5).tolist() == [0, 0, 1, 0, 1, 1]  # the next unequal bit, cyclically
    assert gadgets.scalar(BALANCED).neighbor(1).tolist() == [0, 0, 1, 0, 1, 0]
    assert gadget.neighbor(0).tolist() != BALANCED and BALANCED == [0, 1, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        ("scalar", (6,), "index"),
        ("scalar", (-1,), "index"),
        ("scalar", (0.0,), "index"),
        ("scalar", (0, 1), "one flip"),
        ("objective", (0, 9), "other"),
        ("objective", (0, 3), "equal"),
    ],
)
def test_neighbors_that_are_none(kind, arguments, words):
    with pytest.raises(dpm.errors.SpecificationError, match=words):
        make(kind, BALANCED).neighbor(*arguments)


# ------------------------------------------------------------------ cells
@pytest.mark.parametrize("kind", KINDS)
def test_every_gadget_is_refused_by_its_theorem(kind):
    theorem, _, _, _ = KINDS[kind]
    gadget = make(kind, BALANCED)
    assert gadget.theorem == theorem
    (cell,) = gadget.problem.classify().cells
    assert (cell.part, cell.level, cell.theorem, cell.solvable) == (gadget.part, "high", theorem, False)
    assert not gadget.problem.is_dp()
    with pytest.raises(dpm.ImpossibilityError) as refused:
        gadget.problem.solve(epsilon=1, delta=1e-6)
    assert refused.value.theorem == theorem
    assert refused.value.lower_bound == impossibility.lower_bound(gadget.part, 1, 1e-6, 0.05).value > 0
    assert gadget.variable.value is None


@pytest.mark.parametrize("kind", KINDS)
def test_declared_changes_make_it_solvable(kind):
    gadget = make(kind, BALANCED, 0.5)
    (cell,) = gadget.problem.classify().cells
    assert cell.level == "low" and cell.solvable and cell.sensitivity["linf"] == 0.5
    with pytest.warns(dpm.errors.NoGuaranteeWarning):  # solvable, and six bits are too few to promise anything
        gadget.problem.solve(epsilon=1, mechanism="laplace-once", rng=0)
    assert gadget.error(gadget.variable.value) >= 0
    assert gadget.problem.release.guarantee.epsilon == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_budget_gives_the_optimum(kind):
    gadget = make(kind, BALANCED, 2.0)
    gadget.problem.solve(epsilon=1e9, rng=0)
    assert gadget.error(gadget.variable.value) < 1e-4


# ------------------------------------------------------------------ solutions and errors
@pytest.mark.parametrize("sensitivity", [None, 3.0])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(bits=balanced_bits)
def test_without_privacy_the_solution_is_the_database(kind, sensitivity, bits):
    gadget = make(kind, bits, sensitivity)
    x = gadget.solve_without_privacy()
    wanted = np.array(bits) * (gadget.scale if kind == "scalar" else 1.0)
    np.testing.assert_allclose(x, wanted, atol=1e-9)
    assert gadget.error(x) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_by_hand(kind):
    """At x = the complement of D everything is wrong."""
    complement = 1.0 - np.array(BALANCED)
    error = make(kind, BALANCED).error(complement)
    assert error == {"scalar": 1.0, "objective": 0.5, "sharp": 0.5, "column": 0.5}[kind]
    if kind != "scalar":
        assert make(kind, BALANCED, 4.0).error(complement) == 4 * error
        assert make(kind, BALANCED).error(np.full(6, 0.5)) == pytest.approx(0.25)


@pytest.mark.parametrize("kind", ["objective", "sharp"])
def test_the_error_is_the_loss_in_the_objective(kind):
    gadget = make(kind, BALANCED, 2.0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        weights = rng.dirichlet(np.ones(20)) @ np.array([rng.permutation(BALANCED) for _ in range(20)])
        data = 2.0 * np.array(BALANCED)
        if kind == "sharp":
            loss = (data - 1) @ BALANCED - (data - 1) @ weights
        else:
            loss = 6.0 - data @ weights  # the optimum, B n/2
        assert gadget.error(weights) == pytest.approx(loss / 6)


@pytest.mark.parametrize(
    ("kind", "x", "words"),
    [
        ("scalar", [0.0] * 5, "shape"),
        ("scalar", [math.nan] * 6, "NaN"),
        ("scalar", "no", "shape"),
        ("scalar", None, "shape"),
        ("sharp", [2.0, 0, 0, 0, 0, 0], "public constraint"),
        ("objective", [1.0] * 6, "public constraint"),
        ("column", [-0.5, 1, 1, 0.5, 1, 0], "public constraint"),
    ],
)
def test_points_without_an_error(kind, x, words):
    with pytest.raises(dpm.errors.SpecificationError, match=words):
        make(kind, BALANCED).error(x)


# ------------------------------------------------------------------ lower bounds
@pytest.mark.parametrize("kind", KINDS)
def test_floors_are_those_of_the_theorems(kind):
    for epsilon, delta, beta in ((0.1, 0.0, 0.05), (1.0, 1e-6, 0.01), (6.0, 0.0, 0.2)):
        found = make(kind, BALANCED).lower_bound(epsilon, delta, beta)
        swap = impossibility.reconstruction_lower_bound(2 * epsilon, delta * (1 + math.exp(epsilon)), beta)
        flip = impossibility.reconstruction_lower_bound(epsilon, delta, beta)
        wanted = {"scalar": 0.5 if flip > 0 else 0.0, "objective": swap, "sharp": flip, "column": swap}[kind]
        assert found.value == pytest.approx(wanted)
        assert found.theorem == KINDS[kind][0]
        assert found.vacuous == (wanted == 0)
        scaled = make(kind, BALANCED, 7.0).lower_bound(epsilon, delta, beta)
        assert scaled.value == pytest.approx(7 * wanted) and scaled.sensitivity == 7.0
        if wanted:
            assert "6 bits" in scaled.statement


# ------------------------------------------------------------------ wrong databases
SECRET = 0.123456789


@pytest.mark.parametrize(
    ("kind", "bits", "words"),
    [
        ("objective", [0, 1, 1], "odd"),
        ("column", [0, 1, 1], "odd"),
        ("objective", [0, 1, 1, 1], "half zeros"),
        ("column", [0, 0, 0, 0], "half zeros"),
        *[
            (kind, bits, words)
            for kind in KINDS
            for bits, words in (
                ([0, 1, SECRET, 1], "other than 0 and 1"),
                ([0, 1, -1, 1], "other than 0 and 1"),
                ([0, 1, math.inf, 1], "other than 0 and 1"),
                ([0, 1, math.nan, 1], "NaN"),
                ([], "empty"),
                (np.zeros(0), "empty"),
                ([[0, 1], [1, 0]], "shape"),
                (1, "shape"),
                ("01", "real numbers"),
                (None, "real numbers"),
                ([0, 1j], "real numbers"),
                ([[0, 1], [1]], "real numbers"),
            )
        ],
    ],
)
def test_each_wrong_database_has_its_own_error(kind, bits, words):
    with pytest.raises(dpm.errors.SpecificationError, match=words) as refused:
        make(kind, bits)
    assert str(SECRET) not in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("sensitivity", [0, -1, math.inf, math.nan, True, "1"])
def test_bad_changes(sensitivity):
    with pytest.raises(dpm.errors.SpecificationError, match="sensitivity"):
        gadgets.scalar([0, 1], sensitivity=sensitivity)


def test_gadgets_by_theorem():
    for theorem, part in (("Theorem 36", "scalar"), ("Theorem 37", "objective"), ("Theorem 38", "column")):
        assert gadgets.build(theorem, BALANCED).part == part
    for name in ("Theorem 35", "row", None, 36):
        with pytest.raises(dpm.errors.SpecificationError, match="no gadget"):
            gadgets.build(name, BALANCED)
    with pytest.raises(dpm.errors.SpecificationError, match="sharp"):
        gadgets.build("scalar", BALANCED, sharp=True)


# ------------------------------------------------------------------ what a gadget shows
def test_a_gadget_does_not_print_its_bits_and_keeps_its_own_copy():
    bits = np.array([1, 0] * 8)
    gadget = gadgets.objective(bits)
    bits[:] = 0
    assert gadget.error(np.array([1, 0] * 8)) == 0
    for text in (str(gadget), repr(gadget)):
        assert "1, 0" not in text and "1 0" not in text and "16" in text
    assert gadget.parameter.value is None
