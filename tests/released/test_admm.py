"""The ADMM engine: against Clarabel on random forms, known values, units, settings, infeasible input."""

from __future__ import annotations

import numpy as np
import pytest
from released.admm_cases import random_form, reference, table

from dpmodel.contract import Options
from dpmodel.privacy import noise_source
from dpmodel.released.admm import ADMM, prepare, splits_of
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import Postprocessing

KINDS = ("laplace", "gaussian", "elastic", "mixed")


def agrees(form: LikelihoodForm, best: float) -> None:
    found = prepare(form).solve()
    assert found.status == "optimal"
    room = 1e-5 * abs(best) + 1e-6 * max(1, form.value.size)
    assert abs(form.objective(found.x) - best) <= room
    assert found.bound <= best + room
    assert form.violation(found.x) <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_random_forms_against_clarabel(kind: str, seed: int) -> None:
    form = random_form(seed, kind)
    agrees(form, reference(form))


@pytest.mark.parametrize("unit", [1e-3, 1e3, 1e6])
def test_units_do_not_matter(unit: float) -> None:
    for kind in KINDS:
        for seed in (0, 3):
            plain, form = random_form(seed, kind), random_form(seed, kind, unit)
            first, second = prepare(plain).solve(), prepare(form).solve()
            assert first.status == second.status == "optimal"
            best = plain.objective(first.x)
            assert abs(form.objective(second.x) - best) <= 2e-5 * abs(best) + 1e-6 * form.value.size


def test_an_unconstrained_identity_returns_the_measured_values() -> None:
    value = np.array([3.5, -2.0, 0.0, 1e5])
    for weights in ({"absolute": 0.5}, {"square": 2.0}, {"absolute": [1, 2, 3, 4], "square": 1.0}):
        found = prepare(LikelihoodForm.of(np.eye(4), value, **weights)).solve()
        assert found.status == "optimal"
        np.testing.assert_allclose(found.x, value, rtol=1e-9, atol=1e-9)


def test_known_values() -> None:
    # The median of five measurements of one number, and their mean.
    five = np.ones((5, 1))
    values = np.array([1.0, 9.0, 4.0, 100.0, 3.0])
    assert prepare(LikelihoodForm.of(five, values, absolute=1.0)).solve().x[0] == pytest.approx(4.0, abs=1e-3)
    assert prepare(LikelihoodForm.of(five, values, square=1.0)).solve().x[0] == pytest.approx(values.mean(), rel=1e-4)
    # |a - 5| + |b - 5| on a + b = 6: any split loses 4; squares share it.
    sums = {"equality": np.ones((1, 2)), "equality_value": [6.0]}
    form = LikelihoodForm.of(np.eye(2), [5.0, 5.0], absolute=1.0, lower=0.0, **sums)
    assert form.objective(prepare(form).solve().x) == pytest.approx(4.0, rel=1e-5)
    x = prepare(LikelihoodForm.of(np.eye(2), [5.0, 5.0], square=1.0, **sums)).solve().x
    np.testing.assert_allclose(x, 3.0, rtol=1e-4)


def test_theta_is_the_proximal_operator() -> None:
    """(14) and the corrected (25), against a fine grid."""
    grid = np.linspace(-10, 10, 400_001)
    for absolute, square, rho in ((0.9, 0.1, 2.0), (1.0, 0.0, 0.5), (0.0, 0.5, 3.0)):
        form = LikelihoodForm.of(np.eye(1), [1.5], absolute=absolute, square=square, lower=-1.0, upper=4.0)
        splits = splits_of(form)
        p = rho * float(splits.weight[0])
        for t in (-7.0, 1.2, 1.6, 3.0, 9.0):
            inside = grid[(grid >= -1) & (grid <= 4)]
            cost = absolute * abs(inside - 1.5) + square * (inside - 1.5) ** 2 + p / 2 * (inside - t) ** 2
            assert splits.proximal(rho)(np.array([t]))[0] == pytest.approx(inside[np.argmin(cost)], abs=1e-4)
    # Squares 1/2 (x - x~)^2 with penalty rho: rho/(1 + rho) of the way, not 1/(1 + rho).
    splits = splits_of(LikelihoodForm.of(np.eye(1), [0.0], square=0.5))
    assert splits.proximal(3.0 / float(splits.weight[0]))(np.array([4.0]))[0] == pytest.approx(3.0)


def test_linear_terms_and_unbounded_objectives() -> None:
    form = LikelihoodForm.of(np.eye(2), [3.0, 4.0], absolute=1.0, linear=[0.5, -0.5], upper=10.0, lower=0.0)
    found = prepare(form).solve()
    assert found.status == "optimal"
    np.testing.assert_allclose(found.x, [3.0, 4.0], atol=1e-3)
    steep = LikelihoodForm.of(np.eye(2), [3.0, 4.0], absolute=1.0, linear=[2.0, -2.0])
    assert prepare(steep).solve(steps=300).status == "unbounded"


@pytest.mark.parametrize(
    "more",
    [
        {"equality": [[1.0, 1.0], [1.0, 1.0]], "equality_value": [1.0, 2.0]},
        {"equality": [[1.0, 1.0]], "equality_value": [-1.0], "lower": 0.0},
        {"inequality": [[1.0, 1.0], [-1.0, -1.0]], "inequality_value": [1.0, -2.0]},
        {"lower": 2.0, "upper": 1.0},
        {"equality": np.zeros((1, 2)), "equality_value": [1.0]},
    ],
)
def test_infeasible_constraints(more: dict[str, object]) -> None:
    form = LikelihoodForm.of(np.eye(2), [3.0, 4.0], absolute=1.0, **more)
    outcome = ADMM.run(Postprocessing(form, ()), Options(0.0, 0.0), noise_source(0))
    assert outcome.status == "infeasible"


def test_redundant_equalities_and_empty_parts() -> None:
    E = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    form = LikelihoodForm.of(np.eye(3), [3.0, 4.0, 1.0], absolute=1.0, equality=E, equality_value=[5, 10, 2, 7])
    found = prepare(form).solve()
    assert (found.status, form.violation(found.x) < 1e-9) == ("optimal", True)
    assert form.objective(found.x) == pytest.approx(3.0, rel=1e-5)
    nothing = LikelihoodForm.of(np.zeros((0, 2)), np.zeros(0), lower=1.0)
    assert prepare(nothing).solve().status == "optimal"
    assert prepare(LikelihoodForm.of(np.zeros((0, 0)), np.zeros(0))).solve().status == "optimal"


def test_a_cap_on_steps_is_said() -> None:
    form = table((6, 5, 4, 3), 2, 0)
    found = prepare(form).solve(steps=10)
    assert (found.status, found.steps) == ("optimal_inaccurate", 10)
    assert form.violation(found.x) <= 1e-6
