"""Problems with fewer of their records: the rows that stay are those of the whole, and simulations of large problems
say what simulations of all of it say."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.privacy import gaussian_mu
from dpmodel.privacy.accounting import Spend
from dpmodel.programs import fewer_records as few
from dpmodel.programs import simulation as synthetic_rows
from dpmodel.programs.fewer_records import as_noisy, fewer_records
from dpmodel.programs.hinge import NOISY_HINGE_DESCENT
from dpmodel.programs.model import Program
from dpmodel.programs.rows import private_rows
from dpmodel.programs.simulation import against_public


def model_of(problem: dpm.Problem) -> Program:
    made = problem._model(None)
    assert isinstance(made, Program)
    return made


def mixed(rows: int = 40) -> tuple[Program, dict[str, np.ndarray]]:
    """Rows of A and entries of b of one person each, beside public rows, one with a public parameter."""
    rng = np.random.default_rng(2)
    people = dpm.Records("people")
    pattern = sp.coo_array((rng.random((rows, 5)) < 0.6) * rng.random((rows, 5)))
    values = {"A": pattern.data, "b": rng.random(rows)}
    A = dpm.Private(pattern, sparsity=pattern.coords, name="A", unit="row", bounds=[0, 1], max_l1=3, records=people)
    b = dpm.Private(values["b"], name="b", unit="entry", bounds=[0, 1], records=people)
    x, cap = cp.Variable(5, bounds=[0, 1]), cp.Parameter(value=3.0)
    constraints = [cp.sum(x) <= cap, 2 * (A @ x) >= b, x[0] + x[1] == 0.5]
    return model_of(dpm.Problem(cp.Minimize(cp.sum(x)), constraints)), values


def test_the_rows_that_stay_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few, "ENTRIES", 60)
    model, _ = mixed()
    part = fewer_records(model)
    assert part is not None and part.whole is model and 0 < part.share < 1
    theta = model.read_private()
    whole, some = private_rows(model), private_rows(part)
    # Values of the part: the entries that stay are listed by the parameters of the part.
    thin = np.zeros(part.affine.theta_size)
    for of_whole, of_part in zip(model.affine.private_blocks, part.affine.private_blocks, strict=True):
        thin[of_part.columns] = theta[of_whole.columns][of_part.parameter.kept]
        assert of_part.parameter.layout.size == of_part.size == of_part.parameter.entry_caps.size
        assert of_part.parameter.layout.units.max() < of_part.parameter.layout.unit_count
    (G, h), (G_all, h_all) = some.values(thin), whole.values(theta)
    assert 10 <= some.count < whole.count == 40 and some.per_record == whole.per_record == 1
    everything = [(*row, right) for row, right in zip(G_all.toarray().tolist(), h_all.tolist(), strict=True)]
    kept = [(*row, right) for row, right in zip(G.toarray().tolist(), h.tolist(), strict=True)]
    places = [everything.index(row) for row in kept]
    assert places == sorted(set(places)) and places[0] == 0 and places[-1] == 39
    assert (some.norm1, some.norm2, some.h_present) == (whole.norm1, whole.norm2, whole.h_present)
    assert np.array_equal(some.upper, whole.upper) and np.array_equal(some.lower, whole.lower)
    public = ~part.form.private_rows
    assert part.form.A0[np.flatnonzero(public)].sum() == model.form.A0[np.flatnonzero(~model.form.private_rows)].sum()
    assert [cone.size for cone in part.affine.cones if cone.kind == "zero"] == [1]


@pytest.mark.parametrize("share", [1.0, 0.1, 0.004])
def test_the_budget_keeps_noise_on_a_mean_what_it_was(share: float) -> None:
    pure = as_noisy(Options(0.5, 0.0, slack_rows=1000), share)
    assert pure.epsilon == pytest.approx(0.5 / share) and pure.slack_rows == round(1000 * share)
    for gaussian_only in (True, False):
        of_all, of_some = (Spend.of(r.epsilon, r.delta, gaussian_only=gaussian_only) for r in
                           (Options(0.5, 1e-6), as_noisy(Options(0.5, 1e-6), share)))  # fmt: skip
        ratio = of_all.gaussian_sigma(1.0) * share / of_some.gaussian_sigma(1.0)
        assert ratio == pytest.approx(1.0, rel=1e-5 if gaussian_only else 0.25)
    assert gaussian_mu(as_noisy(Options(1.0, 1e-6), 1e-7).epsilon, 1e-6) < 200


def test_a_simulation_of_a_part_says_what_one_of_the_whole_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Error as a share of the public point's, of hinge descent: 300 of 3,000 rows and all of them."""

    def shares() -> float:
        rng = np.random.default_rng(4)
        A = dpm.Private((rng.random((3000, 8)) < 0.3) * 1.0, name="A", unit="row", bounds=[0, 1], max_l1=3)
        x = cp.Variable(8, bounds=[0, 1])
        model = model_of(dpm.Problem(cp.Minimize(0), [A @ x >= 1, cp.sum(x) <= 3]))
        return against_public(NOISY_HINGE_DESCENT, model, Options(0.1, 1e-6), 30)

    whole = shares()
    monkeypatch.setattr(few, "ENTRIES", 2400)
    part = shares()
    assert part == pytest.approx(whole, rel=0.25) and part < 1
    monkeypatch.setattr(synthetic_rows, "as_noisy", lambda options, share: options)
    assert shares() > 2 * whole  # a tenth of the records with the budget of all is another problem
