"""Closed forms against general solvers, known values, and corners."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from released.admm_cases import reference

from dpmodel.contract import Options
from dpmodel.errors import InfeasibleError
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import Postprocessing
from dpmodel.released.projection import PROJECTION, MarginProjector
from dpmodel.released.structure import Margins, structure

OPTIONS = Options(epsilon=0.0, delta=0.0)


def _run(form: LikelihoodForm, shape: tuple[int, ...] | None = None):
    return PROJECTION.run(Postprocessing(form, (), shape=shape), OPTIONS, None)


def _steps(n):
    return sp.diags_array([np.ones(n - 1), -np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n)).tocsr()


def _measured(rng, n):
    """Some entries measured several times, some never, with absolute, square or both losses, with ties."""
    k = int(rng.integers(0, 2 * n + 1))
    pick, sign = rng.integers(0, n, k), rng.choice([1.0, 1.0, -1.0, 2.0], k)
    M = sp.csr_array((sign, (np.arange(k), pick)), shape=(k, n))
    value = rng.integers(-5, 6, k).astype(float) if rng.random() < 0.5 else rng.normal(size=k) * 4
    mode = rng.integers(3)
    absolute = rng.choice([0.5, 1.0, 1.0, 2.0], k) * (mode != 1)
    square = rng.choice([0.5, 1.0, 3.0], k) * (mode != 0) * (rng.random(k) < (0.7 if mode == 2 else 1.1))
    return M, value, absolute, square


def _random(rng, kind):
    n = int(rng.integers(2, 9))
    M, value, absolute, square = _measured(rng, n)
    lower = np.where(rng.random(n) < 0.6, rng.integers(-4, 1, n), -np.inf)
    upper = np.where(rng.random(n) < 0.6, rng.integers(1, 6, n), np.inf)
    rows = {}
    if kind == "sums":
        groups = int(rng.integers(1, 4))
        A = np.zeros((groups, n))
        member = rng.integers(-1, groups, n)
        A[member[member >= 0], np.flatnonzero(member >= 0)] = rng.choice([1, 1, 1, 2, -1.5], int((member >= 0).sum()))
        b = A @ np.clip(rng.normal(size=n) * 4, lower, upper)
        eq = rng.random(groups) < 0.6
        rows = {"equality": A[eq], "equality_value": b[eq], "inequality": A[~eq], "inequality_value": b[~eq]}
    if kind == "chains":
        D = _steps(n).toarray()[:, rng.permutation(n)]
        keep = rng.random(n - 1) < 0.9
        gap = rng.integers(-1, 2, n - 1) * (rng.random() < 0.3)
        rows = {"inequality": D[keep], "inequality_value": -gap[keep].astype(float)}
        bounded = rng.random() < 0.5 and not gap.any()
        lower, upper = np.full(n, -3.0 if bounded else -np.inf), np.full(n, 2.0 if bounded else np.inf)
        if rng.random() < 0.4:
            j = rng.integers(n)
            lower[j] = upper[j] = 0.5
    return LikelihoodForm.of(M, value, absolute=absolute, square=square, lower=lower, upper=upper, **rows)


@pytest.mark.parametrize("kind", ["box", "sums", "chains"])
def test_random_small_problems_against_clarabel(kind):
    rng = np.random.default_rng({"box": 1, "sums": 2, "chains": 3}[kind])
    _compare(rng, kind, 20)


def _compare(rng, kind, times):
    seen = 0
    for _ in range(times):
        form = _random(rng, kind)
        found = structure(Postprocessing(form, ()))
        if found.kind is None:
            assert "contradict" in found.reason
            continue
        x = _run(form).x
        if x is None:
            continue
        best = reference(form, 1e-11)
        assert form.objective(x) == pytest.approx(best, rel=1e-7, abs=1e-7)
        assert form.violation(x) < 1e-10
        seen += found.kind == kind
    assert seen > times / 2


def test_known_values():
    simplex = LikelihoodForm.of(
        sp.eye_array(3), [2.0, 1.0, -1.0], square=1, equality=np.ones((1, 3)), equality_value=1.0, lower=0
    )
    np.testing.assert_allclose(_run(simplex).x, [1, 0, 0], atol=1e-14)
    chain = LikelihoodForm.of(sp.eye_array(4), [1.0, 3.0, 2.0, 4.0], square=1, inequality=_steps(4))
    np.testing.assert_allclose(_run(chain).x, [1, 2.5, 2.5, 4])
    median = LikelihoodForm.of(np.ones((3, 1)), [1.0, 5.0, 9.0], absolute=[1, 1, 3])
    assert _run(median).x.tolist() == [9]
    mixed = LikelihoodForm.of(np.ones((2, 1)), [0.0, 4.0], absolute=[1, 0], square=[0, 1])
    assert _run(mixed).x.tolist() == [3.5]  # derivative 2 (x - 4) + 1 = 0


def test_ties_take_the_middle_and_the_unmeasured_zero():
    M = [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
    form = LikelihoodForm.of(M, [2.0, 6.0, 1.0], absolute=1, lower=[-9, -3, -9], upper=[9, 8, 9])
    assert _run(form).x.tolist() == [4, 0, 1]
    free = LikelihoodForm.of(sp.csr_array((0, 2)), np.zeros(0), lower=[-np.inf, 3])
    assert _run(free).x.tolist() == [0, 3]
    # What is left of a total is shared among the entries that nobody measured.
    shared = LikelihoodForm.of([[1, 0, 0]], [4.0], square=1, equality=np.ones((1, 3)), equality_value=10.0)
    np.testing.assert_allclose(_run(shared).x, [4, 3, 3])
    # Smallest and largest solution along a chain, averaged: any common value in [2, 6] is optimal for the first two.
    chain = LikelihoodForm.of(np.eye(3), [6.0, 2.0, 7.0], absolute=1, inequality=_steps(3))
    flipped = LikelihoodForm.of(np.eye(3), [-7.0, -2.0, -6.0], absolute=1, inequality=_steps(3))
    assert _run(chain).x.tolist() == [4, 4, 7] and _run(flipped).x.tolist() == [-7, -4, -4]


def test_unmeasured_entries_of_a_chain_take_their_neighbours_value():
    M = np.eye(5)[[1, 3]]
    for kw in ({"square": 1}, {"absolute": 1}):
        form = LikelihoodForm.of(M, [2.0, 5.0], **kw, inequality=_steps(5))
        assert _run(form).x.tolist() == [2, 2, 2, 5, 5]
    nothing = LikelihoodForm.of(sp.csr_array((0, 3)), np.zeros(0), inequality=_steps(3), lower=2)
    assert _run(nothing).x.tolist() == [2, 2, 2]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_scales(scale):
    rng = np.random.default_rng(2)
    v = rng.normal(size=40) * scale
    base = {"equality": np.ones((1, 40)), "lower": 0}
    for kw in ({"square": 1 / scale**2}, {"absolute": 1 / scale}, {"absolute": 1 / scale, "square": 1 / scale**2}):
        form = LikelihoodForm.of(sp.eye_array(40), v, **kw, **base, equality_value=20 * scale)
        unit = LikelihoodForm.of(sp.eye_array(40), v / scale, **dict.fromkeys(kw, 1), **base, equality_value=20.0)
        np.testing.assert_allclose(_run(form).x / scale, _run(unit).x, atol=1e-9)
        assert form.violation(_run(form).x) <= 1e-12 * scale * 40
        chain = LikelihoodForm.of(sp.eye_array(40), v, **kw, inequality=_steps(40))
        unit_chain = LikelihoodForm.of(sp.eye_array(40), v / scale, **dict.fromkeys(kw, 1), inequality=_steps(40))
        np.testing.assert_allclose(_run(chain).x / scale, _run(unit_chain).x, atol=1e-9)


def test_whole_numbers_in_a_box():
    form = LikelihoodForm.of(np.eye(3), [1.4, 1.6, 9.0], square=1, upper=[9, 9, 4.5], integer=True)
    assert _run(form).x.tolist() == [1, 2, 4]
    none = LikelihoodForm.of(np.eye(1), [1.4], square=1, lower=0.2, upper=0.8, integer=True)
    assert _run(none).status == "infeasible"


def test_infeasible_and_unbounded():
    form = LikelihoodForm.of(np.eye(3), 0, square=1, equality=np.ones((1, 3)), equality_value=7.0, lower=0, upper=2)
    model = Postprocessing(form, ())
    assert PROJECTION.eligible(model, OPTIONS).eligible
    outcome = _run(form)
    assert outcome.status == "infeasible" and outcome.x is None and "at most 6" in outcome.notes[0]
    falls = LikelihoodForm.of(np.eye(2)[:1], [1.0], square=1, linear=[0, -1])
    assert _run(falls).status == "unbounded"
    held = LikelihoodForm.of(np.eye(2)[:1], [1.0], square=1, linear=[0, -1], upper=3)
    assert _run(held).x.tolist() == [1, 3]


def test_least_squares_never_goes_further_from_the_truth_and_nonnegativity_lifts_totals():
    rng = np.random.default_rng(5)
    n, lifted = 60, 0.0
    for _ in range(25):
        truth = np.sort(rng.poisson(1, n)).astype(float)
        noisy = truth + rng.laplace(scale=2, size=n)
        rows = {"equality": np.ones((1, n)), "equality_value": truth.sum()}
        for kw in ({"lower": 0}, {"lower": 0, **rows}, {"inequality": _steps(n), "lower": 0}):
            x = _run(LikelihoodForm.of(sp.eye_array(n), noisy, square=1, **kw)).x
            assert np.linalg.norm(x - truth) <= np.linalg.norm(noisy - truth) + 1e-9
            x = _run(LikelihoodForm.of(sp.eye_array(n), noisy, absolute=1, **kw)).x
            assert np.abs(x - truth).sum() <= 2 * np.abs(noisy - truth).sum() + 1e-9
        lifted += _run(LikelihoodForm.of(sp.eye_array(n), noisy, absolute=1, lower=0)).x.sum() - truth.sum()
    # Cut negative noise: mean lift per entry is at least E(-Lap(2) - 1)+ > 0.1 for small counts; it cannot be chance.
    assert lifted / (25 * n) > 0.1


FAMILIES = [
    ((2, 3, 4), [(0, 1), (1, 2)]),
    ((2, 3, 4), [(0, 2), (1,)]),
    ((70, 3), [(0,), (1,)]),
    ((5,), [()]),
    ((2,) * 6, list(combinations(range(6), 2))),
    ((1, 3), [(0,), (1,)]),
    ((3, 3), [(0, 1)]),
    ((3, 2), []),
]


@pytest.mark.parametrize("shape,margins", FAMILIES, ids=str)
def test_margin_projection_against_the_pseudoinverse(shape, margins):
    rng = np.random.default_rng(0)
    truth, v = rng.integers(0, 9, shape).astype(float), rng.normal(size=shape) * 5
    others = [tuple(a for a in range(len(shape)) if a not in m) for m in margins]
    targets, rows = [np.asarray(truth.sum(axis=axes)) for axes in others], []
    for m in margins:
        for index in np.ndindex(*[shape[a] for a in m]):
            row = np.zeros(shape)
            row[tuple(index[m.index(a)] if a in m else slice(None) for a in range(len(shape)))] = 1
            rows.append(row.ravel())
    A = np.array(rows).reshape(len(rows), truth.size)
    expected = v.ravel() + np.linalg.pinv(A) @ (A @ (truth - v).ravel())
    projector = MarginProjector(Margins(shape, tuple(margins), tuple(targets)))
    x = projector.project(v.ravel())
    np.testing.assert_allclose(x, expected, atol=1e-11)
    np.testing.assert_allclose(projector.project(x), x, atol=1e-11)
    np.testing.assert_allclose(A @ x, A @ truth.ravel(), atol=1e-10)
    if rows:
        form = LikelihoodForm.of(
            sp.eye_array(truth.size), v.ravel(), square=2, equality=A, equality_value=A @ truth.ravel()
        )
        outcome = _run(form, shape)
        assert outcome.status == "optimal"
        np.testing.assert_allclose(outcome.x, expected, atol=1e-10)


def test_margins_that_contradict():
    one, two = np.array([1.0, 2.0]), np.array([2.0, 2.0])
    with pytest.raises(InfeasibleError, match="contradicts"):
        MarginProjector(Margins((2, 2), ((0,), (1,)), (one, two)))
    tables = np.array([[1.0, 2], [3, 4]]), np.array([[5.0, 0], [5, 0]])
    with pytest.raises(InfeasibleError, match="contradicts"):
        MarginProjector(Margins((2, 2, 2), ((0, 1), (1, 2)), tables))
    MarginProjector(Margins((2, 2), ((0,), (1,)), (one, one[::-1] * (1 + 1e-12))))  # off by rounding


def test_a_contradiction_of_margins_is_a_status():
    E = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]], dtype=float)
    form = LikelihoodForm.of(np.eye(4), 0, square=1, equality=E, equality_value=[1, 2, 2, 2])
    assert _run(form, (2, 2)).status == "infeasible"
