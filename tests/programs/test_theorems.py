"""The lower bounds: known values, monotonicity, and optimal mechanisms found by linear programming.

`best_success` computes the best private mechanism on a small gadget exactly, so that a lower bound that were too
high would be caught.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from dpmodel.errors import ImpossibilityError, SpecificationError
from dpmodel.programs.theorems import (
    CITATION,
    impossibility_error,
    lower_bound,
    reconstruction_lower_bound,
)
from dpmodel.text import number

PARTS = ("objective", "scalar", "row", "column", "matrix")
epsilons = st.floats(0, 50)
deltas = st.floats(0, 1)
betas = st.floats(0, 0.999)
BUDGETS = [(0.0, 0.0), (0.1, 0.0), (1.0, 0.0), (0.5, 0.1), (1.0, 0.05), (2.0, 1e-3)]


def best_success(tested, databases, neighbors, outputs, good, epsilon, delta):
    """Largest t such that some private mechanism has P[good(M(D), D)] >= t for all tested D."""
    n_d, n_o = len(databases), len(outputs)
    pairs = [(a, b) for a in range(n_d) for b in range(n_d) if neighbors(databases[a], databases[b])]
    # Variables: P[o | D], then t, then for each pair the excess (P_a - e^epsilon P_b)_+ of each output.
    size = n_d * n_o + 1 + len(pairs) * n_o
    t = n_d * n_o
    upper, bound = [], []
    for k, (a, b) in enumerate(pairs):
        start = t + 1 + k * n_o
        for o in range(n_o):
            row = np.zeros(size)
            row[a * n_o + o], row[b * n_o + o], row[start + o] = 1, -math.exp(epsilon), -1
            upper.append(row)
            bound.append(0)
        row = np.zeros(size)
        row[start : start + n_o] = 1
        upper.append(row)
        bound.append(delta)
    for a in range(n_d):
        if tested(databases[a]):
            row = np.zeros(size)
            row[t] = 1
            for o in range(n_o):
                row[a * n_o + o] = -float(good(outputs[o], databases[a]))
            upper.append(row)
            bound.append(0)
    total = np.zeros((n_d, size))
    for a in range(n_d):
        total[a, a * n_o : (a + 1) * n_o] = 1
    cost = np.zeros(size)
    cost[t] = -1
    result = linprog(cost, np.array(upper), bound, total, np.ones(n_d), bounds=(0, 1))
    assert result.status == 0
    return -result.fun


def bits(n):
    return [np.array(b) for b in itertools.product((0, 1), repeat=n)]


def flip(a, b):
    return np.abs(a - b).sum() == 1


def balanced(a):
    return 2 * a.sum() == len(a)


def swap(a, b):
    return np.abs(a - b).sum() == 2


def test_known_values():
    assert reconstruction_lower_bound(1, 0, 0.05) == pytest.approx(0.1152323270, abs=1e-10)
    assert reconstruction_lower_bound(2, 0, 0.05) == pytest.approx(0.0364225905, abs=1e-10)
    assert reconstruction_lower_bound(0, 0, 0) == 0.25
    assert reconstruction_lower_bound(0, 1, 0) == 0
    for epsilon in (710, 1e5, math.inf):
        assert reconstruction_lower_bound(epsilon, 0, 0) == pytest.approx(0, abs=1e-300)
        assert reconstruction_lower_bound(epsilon, 0.5, 0.1) == 0


@given(epsilons, deltas, betas)
def test_agrees_with_the_printed_formula(epsilon, delta, beta):
    e = math.exp(epsilon)
    printed = 0.5 - (e + delta) / (2 * (1 + e) * (1 - beta))
    assert reconstruction_lower_bound(epsilon, delta, beta) == pytest.approx(max(0, printed), abs=1e-12)


@given(epsilons, epsilons, deltas, deltas, betas, betas, st.sampled_from(PARTS))
def test_decreasing_and_within_bounds(e1, e2, d1, d2, b1, b2, part):
    (e1, e2), (d1, d2), (b1, b2) = sorted((e1, e2)), sorted((d1, d2)), sorted((b1, b2))
    tight, loose = (reconstruction_lower_bound(*x) for x in ((e1, d1, b1), (e2, d2, b2)))
    assert 0 <= loose <= tight + 1e-15
    assert tight <= 0.25
    tight, loose = lower_bound(part, e1, d1, b1), lower_bound(part, e2, d2, b2)
    assert 0 <= loose.as_printed <= tight.as_printed + 1e-15
    assert 0 <= loose.value <= tight.value + 1e-15
    assert tight.as_printed <= tight.value + 1e-15
    assert tight.value <= 0.5
    assert tight.vacuous == (tight.value == 0)


def test_floors_of_the_theorems():
    printed = reconstruction_lower_bound(2, 1e-6 * (1 + math.e), 0.05)
    for part, theorem, sharp in (
        ("objective", "Theorem 37", reconstruction_lower_bound(1, 1e-6, 0.05)),
        ("column", "Theorem 38", printed),
        ("row", "Theorem 38", 0.25),
        ("matrix", "Theorem 38", 0.25),
    ):
        least = lower_bound(part, 1, 1e-6, 0.05)
        assert least.theorem == theorem
        assert least.as_printed == pytest.approx(printed)
        assert least.value == pytest.approx(sharp)
        assert not least.vacuous
    assert lower_bound("scalar", 1, 1e-6, 0.05).as_printed == 0.5
    for part in PARTS:
        for epsilon in (1e3, math.inf):
            least = lower_bound(part, epsilon, 1e-6, 0.05)
            assert (least.as_printed, least.value, least.vacuous) == (0, 0, True)
            assert "vacuous" in least.statement


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("n", [1, 2])
def test_theorem_35_with_flips_against_the_best_mechanism(n, alpha, epsilon, delta):
    outputs = [np.array(o) for o in itertools.product((0, 0.5, 1), repeat=n)]
    t = best_success(
        lambda d: True, bits(n), flip, outputs, lambda o, d: np.abs(o - d).sum() <= alpha * n, epsilon, delta
    )
    if t < 1:
        # Twice the printed constant, as proved in the docstring.
        assert 2 * reconstruction_lower_bound(epsilon, delta, 1 - t) <= alpha + 1e-8
    if n == 1 and alpha == 0:
        assert t == pytest.approx((math.exp(epsilon) + delta) / (1 + math.exp(epsilon)))


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("wrong", [0, 2])
def test_theorem_35_with_swaps_against_the_best_mechanism(wrong, epsilon, delta):
    databases = [d for d in bits(4) if balanced(d)]
    t = best_success(balanced, databases, swap, bits(4), lambda o, d: np.abs(o - d).sum() <= wrong, epsilon, delta)
    assert 2 * reconstruction_lower_bound(epsilon, delta, max(0, 1 - t)) <= wrong / 4 + 1e-8


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_theorem_36_boundary_is_attained(epsilon, delta):
    """With one constraint the best mechanism (randomised response if delta = 0) fails as often as stated."""
    grid = [np.array([x]) for x in np.linspace(0, 1, 9)]
    t = best_success(lambda d: True, bits(1), flip, grid, lambda o, d: abs(o - d).max() < 0.5, epsilon, delta)
    edge = (1 - delta) / (1 + math.exp(epsilon))
    assert 1 - t == pytest.approx(edge)
    assert lower_bound("scalar", epsilon, delta, edge - 1e-9).as_printed == 0.5
    assert lower_bound("scalar", epsilon, delta, edge + 1e-9).vacuous


def test_theorem_36_randomised_response_is_private_and_accurate_beyond_the_edge():
    epsilon = 1.0
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert keep / (1 - keep) == pytest.approx(math.exp(epsilon))
    assert lower_bound("scalar", epsilon, 0, 1 - keep - 1e-12).as_printed == 0.5
    assert lower_bound("scalar", epsilon, 0, 1 - keep + 1e-12).as_printed == 0


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("loss", [0.0, 0.5, 1.0])
def test_theorems_37_and_38_against_the_best_mechanism(loss, epsilon, delta):
    """n = 4, privacy between single flips, accuracy on balanced databases: loss = violation = n/2 - D.x."""
    outputs = [np.array(o) for o in itertools.product((0, 0.5, 1), repeat=4) if sum(o) == 2]
    t = best_success(balanced, bits(4), flip, outputs, lambda o, d: 2 - d @ o <= loss + 1e-12, epsilon, delta)
    for part in ("objective", "column"):
        least = lower_bound(part, epsilon, delta, max(0, 1 - t))
        assert least.as_printed * 4 <= loss + 1e-8
    assert lower_bound("column", epsilon, delta, max(0, 1 - t)).value * 4 <= loss + 1e-8


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("loss", [0.0, 0.25, 0.5, 1.0])
def test_sharpened_objective_against_the_best_mechanism(loss, epsilon, delta):
    outputs = [np.array(o) for o in itertools.product((0, 0.5, 1), repeat=2)]
    t = best_success(
        lambda d: True,
        bits(2),
        flip,
        outputs,
        lambda o, d: d.sum() / 2 - (d - 0.5) @ o <= loss + 1e-12,
        epsilon,
        delta,
    )
    if t > 0:
        assert lower_bound("objective", epsilon, delta, max(0, 1 - t)).value * 2 <= loss + 1e-8


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0])
def test_sharpened_objective_is_the_error_of_randomised_response(epsilon):
    """Each wrong bit costs 1/2 and a share 1/(1 + e^epsilon) of the n bits is wrong."""
    assert lower_bound("objective", epsilon, 0, 0).value == pytest.approx(0.5 / (1 + math.exp(epsilon)))


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_sharpened_row_against_the_best_mechanism(epsilon, delta):
    """One record owns the row, so all balanced databases are neighbours; n = 2, violation < n/4."""
    databases = [d for d in bits(2) if balanced(d)]
    outputs = [np.array([x, 1 - x]) for x in np.linspace(0, 1, 9)]
    t = best_success(balanced, databases, swap, outputs, lambda o, d: abs(d @ o - 1) < 0.5, epsilon, delta)
    assert lower_bound("row", epsilon, delta, 1 - t + 1e-9).value == 0
    assert lower_bound("row", epsilon, delta, 1 - t - 1e-9).value == 0.25


@given(st.sampled_from(PARTS), st.floats(0, 1e6))
def test_scaled(part, B):
    least = lower_bound(part, 0.5, 0, 0.05)
    scaled = least.scaled(B)
    assert scaled.as_printed == least.as_printed * B
    assert scaled.value == least.value * B
    assert (scaled.sensitivity, scaled.theorem, scaled.unit) == (B, least.theorem, least.unit)
    assert scaled.scaled(2).sensitivity == 2 * B


@pytest.mark.parametrize("bad", [(-1, 0, 0), (math.nan, 0, 0), (1, -0.1, 0), (1, math.nan, 0), (1, 0, 1), (1, 0, -0.1)])
def test_bad_arguments(bad):
    with pytest.raises(SpecificationError):
        reconstruction_lower_bound(*bad)
    with pytest.raises(SpecificationError):
        lower_bound("objective", *bad)


@pytest.mark.parametrize("part", PARTS)
def test_error(part):
    error = impossibility_error(part, "demand", "capacity", 1, 0, 0.05, "no bound is declared", ())
    assert isinstance(error, ImpossibilityError)
    assert error.lower_bound == lower_bound(part, 1, 0, 0.05).value
    assert error.theorem == lower_bound(part, 1, 0, 0.05).theorem
    assert error.citation == CITATION
    assert (error.parameter, error.constraint) == ("demand", "capacity")
    assert error.remedies == () and error.remedy == ""
    text = str(error)
    for piece in ("demand", "capacity", "no bound is declared", error.theorem, CITATION, "epsilon=1"):
        assert piece in text
    assert number(error.lower_bound) in text


def test_error_in_the_objective_and_when_vacuous():
    assert "in the objective" in str(impossibility_error("objective", "w", "objective", 1, 0, 0.05, "r", ()))
    error = impossibility_error("objective", "w", "objective", 20, 0, 0.05, "r", ())
    assert error.lower_bound == 0
    assert "vacuous" in str(error)
