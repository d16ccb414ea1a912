"""Weights of a query release: the forecast against dense linear algebra, and defaults that are no worse than noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.marks.domain import Domain
from dpmodel.programs.measure_and_fit import measured
from dpmodel.released import query_release
from dpmodel.released.faces.query_release import automatic_weights, forecast
from dpmodel.released.faces.workload import Tables, counts

EVERY = [m for k in (1, 2, 3) for m in itertools.combinations("abc", k)]
WORKLOADS = [
    ({"a": 5, "b": 10, "c": 2}, [("a", "b"), ("a", "c")]),
    ({"a": 2, "b": 3, "c": 12}, [("a",), ("b",), ("a", "b", "c")]),
    ({"a": 4, "b": 4, "c": 4}, list(itertools.combinations("abc", 2))),
    ({"a": 30}, [("a",)]),
]
SIX = (dict.fromkeys("abcdef", 3), list(itertools.combinations("abcdef", 2)))


@st.composite
def designs(draw):
    domain = {c: draw(st.integers(1, 4)) for c in "abc"}
    workload = draw(st.lists(st.sampled_from(EVERY), min_size=1, max_size=4, unique=True))
    extra = draw(st.lists(st.sampled_from([(), *EVERY]), max_size=3, unique=True))
    weight = st.sampled_from([0.25, 0.5, 1.0, 2.0])
    return domain, workload, {m: draw(weight) for m in dict.fromkeys(workload + extra)}


@settings(max_examples=30, deadline=None)
@given(designs(), st.sampled_from([1, 2]), st.sampled_from(["mean", "max"]), st.booleans())
def test_the_forecast_is_the_covariance_of_least_squares(design, order, loss, public):
    sizes, workload, weights = design
    domain = Domain.of(sizes)
    tables = Tables.whole(domain)
    rows = [tables.incidence(m).toarray() for m in weights]
    w = np.array(list(weights.values()))
    sigma = w.sum() * math.sqrt(2) if order == 1 else np.linalg.norm(w)
    information = sum((v / sigma) ** 2 * a.T @ a for v, a in zip(w, rows, strict=True))
    basis = np.eye(domain.cells)
    if public:  # moves of x that keep the total
        basis = np.linalg.svd(np.ones((1, domain.cells)))[2][1:].T
    values, vectors = np.linalg.eigh(basis.T @ information @ basis)
    told = values > 1e-9 * np.trace(information)  # below: rounding of directions that nothing measures
    moves = basis @ vectors[:, told]
    covariance = moves / values[told] @ moves.T
    asked = [tables.incidence(m).toarray() for m in workload]
    sd = np.concatenate([np.sqrt(np.maximum(np.diag(a @ covariance @ a.T), 0)) for a in asked])
    expected = sd.mean() if loss == "mean" else sd.max()
    assert forecast(domain, workload, weights, order, loss, public) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("loss", ["mean", "max"])
@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(("sizes", "workload"), WORKLOADS)
def test_automatic_weights_are_forecast_no_worse_than_equal_ones(sizes, workload, public, loss):
    domain = Domain.of(sizes)
    chosen = automatic_weights(domain, workload, loss=loss, total=public)
    equal = dict.fromkeys(workload, 1.0)
    ratio = [
        forecast(domain, workload, chosen, order, loss, public) / forecast(domain, workload, equal, order, loss, public)
        for order in (1, 2)
    ]
    assert max(ratio) <= 1.05


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(("sizes", "workload"), WORKLOADS)
def test_the_default_is_no_worse_than_noise_on_every_cell(sizes, workload, delta, total):
    """Laplace noise at scale q / epsilon on the cells of q marginals misses by that in the mean. The mean of the errors
    of 4 runs of 30 cells or more deviates from its own by .1 of it; a fit adds correlation: twice that. 40 % over is
    a false alarm with probability below 1e-6 if the fit gains nothing at all."""
    rng = np.random.default_rng(5)
    n = 3000
    table = {c: np.minimum(rng.geometric(2 / (k + 1), n) - 1, k - 1) for c, k in sizes.items()}
    domain = Domain.of(sizes)
    release = query_release(table, workload, domain=sizes, neighbors="add-remove", total=n if total else None)
    codes = np.column_stack(list(table.values()))
    errors = []
    for seed in range(4):
        release.solve(1.0, delta, rng=np.random.default_rng(seed))
        for m in workload:
            errors.append(release.answers(m).values.ravel() - counts(domain, codes, domain.columns, m))
    assert np.abs(np.concatenate(errors)).mean() <= 1.4 * len(workload)


@pytest.mark.parametrize("loss", ["mean", "max"])
@pytest.mark.parametrize(("sizes", "workload"), [*WORKLOADS, SIX])
def test_more_budget_is_never_forecast_to_be_worse(sizes, workload, loss):
    model = query_release(None, workload, domain=sizes, loss=loss, neighbors="add-remove").problem._model(None)
    errors = np.array(
        [
            [
                option.sigma.mean() if loss == "mean" else option.reach.max()
                for delta in (0.0, 1e-12, 1e-6, 1e-2)
                for option in [measured(model, Options(epsilon, delta), loss)]
            ]
            for epsilon in (0.01, 0.1, 1.0, 10.0)
        ]
    )
    assert (np.diff(errors, axis=0) <= 1e-9 * errors[1:]).all()
    assert (np.diff(errors, axis=1) <= 1e-9 * errors[:, 1:]).all()


def test_what_is_drawn_follows_the_loss_that_was_asked_for():
    """At these budgets Gaussian noise has the smaller largest reach and the larger standard deviation."""
    cells = {"a": 3000, "b": 2}
    drawn = {}
    for loss in ("mean", "max"):
        table = {"a": np.zeros(5, dtype=int), "b": np.ones(5, dtype=int)}
        release = query_release(table, ["a", "b"], domain=cells, neighbors="add-remove", loss=loss).solve(
            1.0, 1e-3, rng=np.random.default_rng(0)
        )
        drawn[loss] = release.guarantee.delta
    assert drawn == {"mean": 0.0, "max": 1e-3}


@pytest.mark.parametrize(
    ("sensitivity", "words"),
    [({"loss": "median"}, "loss="), ({"weights": {(): 1.0}, "total": 3}, "the total, which is")],
)
def test_bad_input_is_refused(sensitivity, words):
    with pytest.raises(dpm.errors.SpecificationError, match=words):
        query_release(None, [("a", "b")], domain={"a": 2, "b": 3}, **sensitivity)


def test_the_total_is_measured_where_its_weight_is_named():
    release = query_release(None, ["a"], domain={"a": 3, "b": 2}, neighbors="add-remove", weights={(): 2.0})
    assert release.measured == {("a",): 1.0, (): 2.0}
    equal = query_release(None, ["a"], domain={"a": 3, "b": 2}, neighbors="add-remove", weights="equal")
    assert equal.measured == {("a",): 1.0}
