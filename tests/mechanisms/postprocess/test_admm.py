"""The ADMM engine: against Clarabel on random forms, known values, units, settings, infeasible input."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from mechanisms.postprocess.admm_cases import random_form, reference, table

from dpmodel.compile.likelihood.postprocessing import LikelihoodForm
from dpmodel.mechanisms.postprocess.admm.setup import Settings, solve_admm
from dpmodel.mechanisms.postprocess.admm.splits import splits_of

KINDS = ("laplace", "gaussian", "elastic", "mixed")


def agrees(form: LikelihoodForm, best: float, unit: float = 1.0, **options: object) -> None:
    x, status, info = solve_admm(form, **options)
    assert status == "optimal"
    assert abs(form.objective(x) - best) <= 1e-5 * abs(best) + 1e-6 * max(1, form.value.size)
    assert form.violation(x) <= 1e-6 * unit
    assert info.violation == form.violation(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_random_forms_against_clarabel(kind: str, seed: int) -> None:
    form = random_form(seed, kind)
    agrees(form, reference(form))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_forms_against_clarabel(kind: str) -> None:
    for seed in range(12, 90):
        if (kind, seed) == ("gaussian", 23):  # Clarabel fails there
            continue
        form = random_form(seed, kind)
        agrees(form, reference(form))


@pytest.mark.parametrize("unit", [1e-3, 1e3, 1e6])
def test_units_do_not_matter(unit: float) -> None:
    for kind in KINDS:
        for seed in (0, 3, 5):
            plain, scaled = solve_admm(random_form(seed, kind)), solve_admm(random_form(seed, kind, unit))
            assert scaled[1] == plain[1] == "optimal"
            best = random_form(seed, kind).objective(plain[0])
            form = random_form(seed, kind, unit)
            assert abs(form.objective(scaled[0]) - best) <= 2e-5 * abs(best) + 1e-6 * form.value.size


@pytest.mark.parametrize(
    "settings",
    [
        Settings(penalty=0.3, memory=0),
        Settings(penalty=30.0),
        Settings(relaxation=1.0),
        Settings(relaxation=1.8, memory=0),
        Settings(memory=5),
    ],
)
def test_settings_do_not_change_the_answer(settings: Settings) -> None:
    form = table((4, 3, 3), 1, 7)
    best = form.objective(solve_admm(form)[0])
    x, status, _ = solve_admm(form, settings=settings)
    assert status == "optimal"
    assert form.objective(x) == pytest.approx(best, rel=2e-5)


def test_an_unconstrained_identity_returns_the_measured_values() -> None:
    value = np.array([3.5, -2.0, 0.0, 1e5])
    for weights in ({"absolute": 0.5}, {"square": 2.0}, {"absolute": [1, 2, 3, 4], "square": 1.0}):
        x, status, _ = solve_admm(LikelihoodForm.of(np.eye(4), value, **weights))
        assert status == "optimal"
        np.testing.assert_allclose(x, value, rtol=1e-9, atol=1e-9)


def test_known_values() -> None:
    # The median of five measurements of one number, and their mean.
    five = np.ones((5, 1))
    values = np.array([1.0, 9.0, 4.0, 100.0, 3.0])
    assert solve_admm(LikelihoodForm.of(five, values, absolute=1.0))[0][0] == pytest.approx(4.0, abs=1e-3)
    assert solve_admm(LikelihoodForm.of(five, values, square=1.0))[0][0] == pytest.approx(values.mean(), rel=1e-4)
    # |a - 5| + |b - 5| on a + b = 6: any split loses 4; squares share it.
    sums = {"equality": np.ones((1, 2)), "equality_value": [6.0]}
    form = LikelihoodForm.of(np.eye(2), [5.0, 5.0], absolute=1.0, lower=0.0, **sums)
    assert form.objective(solve_admm(form)[0]) == pytest.approx(4.0, rel=1e-5)
    x = solve_admm(LikelihoodForm.of(np.eye(2), [5.0, 5.0], square=1.0, **sums))[0]
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
            assert splits.proximal(np.array([t]), rho)[0] == pytest.approx(inside[np.argmin(cost)], abs=1e-4)
    # Squares 1/2 (x - x~)^2 with penalty rho: rho/(1 + rho) of the way, not 1/(1 + rho).
    splits = splits_of(LikelihoodForm.of(np.eye(1), [0.0], square=0.5))
    assert splits.proximal(np.array([4.0]), 3.0 / float(splits.weight[0]))[0] == pytest.approx(3.0)


def test_the_bound_is_below_the_optimum() -> None:
    for seed in range(8):
        form = random_form(seed, "laplace")
        best = reference(form)
        _, status, info = solve_admm(form)
        assert status == "optimal"
        assert info.bound <= best + 1e-5 * abs(best) + 1e-6 * form.value.size


def test_linear_terms_and_unbounded_objectives() -> None:
    form = LikelihoodForm.of(np.eye(2), [3.0, 4.0], absolute=1.0, linear=[0.5, -0.5], upper=10.0, lower=0.0)
    x, status, _ = solve_admm(form)
    assert status == "optimal"
    np.testing.assert_allclose(x, [3.0, 4.0], atol=1e-3)
    steep = LikelihoodForm.of(np.eye(2), [3.0, 4.0], absolute=1.0, linear=[2.0, -2.0])
    assert solve_admm(steep, settings=Settings(steps=300))[1] == "unbounded"


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
    _, status, info = solve_admm(form)
    assert status == "infeasible"
    assert info.steps <= 500


def test_redundant_equalities_and_empty_parts() -> None:
    E = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    form = LikelihoodForm.of(np.eye(3), [3.0, 4.0, 1.0], absolute=1.0, equality=E, equality_value=[5, 10, 2, 7])
    x, status, _ = solve_admm(form)
    assert (status, form.violation(x) < 1e-9) == ("optimal", True)
    assert form.objective(x) == pytest.approx(3.0, rel=1e-5)
    nothing = LikelihoodForm.of(np.zeros((0, 2)), np.zeros(0), lower=1.0)
    assert solve_admm(nothing)[1] == "optimal"
    assert solve_admm(LikelihoodForm.of(np.zeros((0, 0)), np.zeros(0)))[1] == "optimal"


def test_sparse_and_dense_updates_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    import dpmodel.mechanisms.postprocess.admm.linear as linear

    forms = [table((4, 3, 3), 2, 3), random_form(4, "laplace"), random_form(9, "elastic")]
    before = [form.objective(solve_admm(form)[0]) for form in forms]
    monkeypatch.setattr(linear, "GRAM", 0)
    monkeypatch.setattr(linear, "DENSE", 0)
    for form, best in zip(forms, before, strict=True):
        x, status, _ = solve_admm(form)
        assert status == "optimal"
        assert form.objective(x) == pytest.approx(best, rel=2e-5, abs=1e-4)


def test_starts_and_factors_are_used_again() -> None:
    """A bootstrap: other values, the same matrices."""
    form = table((6, 5, 4), 2, 1)
    x, _, info = solve_admm(form)
    again, status, second = solve_admm(form, start=info.start, prepared=info.prepared)
    assert status == "optimal"
    assert second.steps <= info.steps
    assert form.objective(again) == pytest.approx(form.objective(x), rel=2e-5)
    other = LikelihoodForm.of(
        sp.eye_array(form.size),
        form.value + 1.5,
        absolute=form.absolute,
        equality=form.equality,
        equality_value=form.equality_value,
        lower=0.0,
    )
    fresh, reused = solve_admm(other), solve_admm(other, start=info.start, prepared=info.prepared)
    assert reused[1] == fresh[1] == "optimal"
    assert other.objective(reused[0]) == pytest.approx(other.objective(fresh[0]), rel=2e-5)


def test_a_cap_on_steps_is_said() -> None:
    form = table((6, 5, 4, 3), 2, 0)
    x, status, info = solve_admm(form, settings=Settings(steps=10))
    assert (status, info.steps) == ("optimal_inaccurate", 10)
    assert form.violation(x) <= 1e-6
