"""measure-and-fit: sensitivity by brute force, its statement, its fit by another solver."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.kernels.direct_measurement import ROUNDING
from dpmodel.marks import Private, Records
from dpmodel.numerics.nearest_point import DiagonalQP, solve_diagonal_qp
from dpmodel.privacy import SeededSource
from dpmodel.programs.measure_and_fit import MEASURE_AND_FIT, in_row_units, measured
from dpmodel.programs.noise_design import measurements

OPTIONS = Options(epsilon=1.0, delta=0.05, beta=0.1)
CELLS, WEIGHTS = 6, (2.0, 1.0, 0.5)
# Cells of a 2 x 3 table; its two margins, then all of it.
MARGINS = (np.kron(np.eye(2), np.ones((1, 3))), np.kron(np.ones((1, 2)), np.eye(3)), np.eye(CELLS))


def opened(histogram, *, total=None, weights=WEIGHTS, neighbors="add-remove"):
    """Margins of a 2 x 3 table, weighted; model, problem, x and the private parameters."""
    people = Records("people", neighbors)
    most = 1.0 if neighbors == "add-remove" else 2.0
    x = cp.Variable(CELLS, nonneg=True, name="x")
    private, rows = [], []
    for k, (W, w) in enumerate(zip(MARGINS, weights, strict=True)):
        y = Private(W @ histogram, name=f"y{k}", l1=most, l2=most**0.5, linf=1.0, records=people)
        private.append(y)
        rows.append((w * W) @ x == w * y)
    if total is not None:
        rows.append(cp.sum(x) == total)
    problem = dpm.Problem(cp.Minimize(0), rows)
    return SimpleNamespace(problem=problem, model=problem._model(None), x=x, private=private)


HISTOGRAM = np.array([30.0, 2.0, 0.0, 0.0, 5.0, 60.0])


# ------------------------------------------------------------------ sensitivity
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_sensitivity_is_that_of_the_worst_neighbour(neighbors):
    """Every pair of records: the calibrated 2-norm and 1-norm are the largest of all, up to the rounding allowance."""
    m = opened(HISTOGRAM, neighbors=neighbors).model
    own = in_row_units(m, measurements(m, "scalar")[0])
    sensitivities = list(np.eye(CELLS))
    if neighbors == "replace-one":
        sensitivities = [a - b for a in np.eye(CELLS) for b in np.eye(CELLS)]
    moved = [np.concatenate([w * (W @ d) for W, w in zip(MARGINS, WEIGHTS, strict=True)]) for d in sensitivities]
    l2, l1 = max(np.linalg.norm(v) for v in moved), max(np.abs(v).sum() for v in moved)
    assert l2 <= own.l2 <= l2 * (1 + 2 * ROUNDING)
    assert l1 <= own.l1 <= l1 * (1 + 2 * ROUNDING)


# ------------------------------------------------------------------ utility
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_no_private_row_is_missed_by_more_than_alpha(delta):
    options = replace(OPTIONS, delta=delta)
    case = opened(HISTOGRAM)
    forecast = MEASURE_AND_FIT.forecast(case.model, options)
    runs, missed = 60, 0
    for seed in range(runs):
        out = MEASURE_AND_FIT.run(case.model, options, SeededSource(seed))
        rows = [w * (W @ (out.x - HISTOGRAM)) for W, w in zip(MARGINS, WEIGHTS, strict=True)]
        missed += np.abs(np.concatenate(rows)).max() > forecast.alpha + 0.01
        assert out.x.min() >= 0
    assert binom.sf(missed - 1, runs, options.beta) > 1e-7


# ------------------------------------------------------------------ the fit
def test_fit_is_the_weighted_least_squares_point():
    case = opened(HISTOGRAM, total=97.0)
    out = MEASURE_AND_FIT.run(case.model, replace(OPTIONS, epsilon=0.2), SeededSource(5))
    # Residuals are the multipliers of the rows, so the released numbers can be had back from the release.
    noised = measured(case.model, replace(OPTIONS, epsilon=0.2))
    rows = noised.measurement.positions
    W = case.model.form.A0.toarray()[rows]
    released = W @ out.x + out.dual[rows] * (noised.sigma / noised.sigma.min()) ** 2
    z = cp.Variable(CELLS, nonneg=True)
    fit = cp.Problem(cp.Minimize(cp.sum_squares((W @ z - released) / noised.sigma)), [cp.sum(z) == 97])
    fit.solve(solver=cp.CLARABEL)
    assert out.status == "optimal"
    assert out.x.sum() == pytest.approx(97, abs=1e-3)
    np.testing.assert_allclose(out.x, z.value, atol=0.02 * noised.sigma.min())


def test_band_is_kept_where_it_can_be():
    """A released number far from the rest: least squares leaves the band, the answer does not."""
    from dpmodel.programs import measure_and_fit as module

    case = opened(HISTOGRAM)
    noised = measured(case.model, OPTIONS)
    tight = replace(noised, reach=np.full(noised.reach.size, 1.0))
    b = case.model.form.b0.copy()
    b[noised.measurement.positions] = (case.model.form.A0 @ HISTOGRAM)[noised.measurement.positions]
    b[noised.measurement.positions[0]] += 1.9
    out = module._fit(case.model, tight, b)
    assert out.extra_violation == 0.0
    b[noised.measurement.positions[0]] += 400.0
    out = module._fit(case.model, tight, b)
    assert out.extra_violation > 1.0


@pytest.mark.parametrize(
    ("sensitivity", "reason"),
    [
        ("objective", "objective"),
        ("inequality", "equalities"),
        ("integer", "continuous"),
        ("strict", "strict"),
        ("matrix", "right-hand sides"),
    ],
)
def test_refusals(sensitivity, reason):
    y = Private([3.0, 4.0], name="y", l1=1.0)
    x = cp.Variable(2, nonneg=True, integer=sensitivity == "integer")
    rows = [x >= y] if sensitivity == "inequality" else [x == y]
    if sensitivity == "matrix":
        A = Private(np.eye(2), name="A", unit="entry", linf=0.1)
        rows.append(A @ x <= 9)
    problem = dpm.Problem(cp.Minimize(x[0] if sensitivity == "objective" else 0), rows)
    options = replace(OPTIONS, feasibility="strict") if sensitivity == "strict" else OPTIONS
    verdict = MEASURE_AND_FIT.eligible(problem._model(None), options)
    assert not verdict.eligible
    assert reason in verdict.reason


# ------------------------------------------------------------------ the solver
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("strict", [True, False])
def test_diagonal_program_against_a_conic_solver(seed, strict):
    rng = np.random.default_rng(seed)
    m, n = 8, 30
    A = sp.random_array((m, n), density=0.3, rng=rng, format="csr")
    inside = rng.uniform(0, 3, n)
    weight = rng.uniform(0.3, 2, n) * (1 if strict else rng.random(n) < 0.7)
    program = DiagonalQP(A, A @ inside, weight, rng.normal(0, 3, n), np.zeros(n), np.full(n, 5.0))
    found, ended = solve_diagonal_qp(program, start=np.zeros(n), tolerance=1e-7)
    z = cp.Variable(n)
    loss = cp.sum(cp.multiply(weight, cp.square(z - program.target))) / 2
    best = cp.Problem(cp.Minimize(loss), [A @ z == program.b, z >= 0, z <= 5]).solve(solver=cp.CLARABEL)
    assert ended
    assert (weight * (found - program.target) ** 2).sum() / 2 == pytest.approx(best, rel=1e-5, abs=1e-5)
    assert np.abs(A @ found - program.b).max() < 1e-5


def test_infeasible_program_does_not_converge():
    program = DiagonalQP(
        sp.csr_array([[1.0, 1.0]]), np.array([-1.0]), np.ones(2), np.ones(2), np.zeros(2), np.full(2, 9.0)
    )
    assert not solve_diagonal_qp(program, start=np.zeros(2), tolerance=1e-6)[1]
