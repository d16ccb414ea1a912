"""Which numbers are measured: once for several parts, and by which strategy."""

from __future__ import annotations

import itertools
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cases import CASES, Opened
from scipy.linalg import block_diag
from scipy.stats import binom
from test_measurement import ExceededError, brute_force, without_reuse
from test_noise_design import cost, designed

import dpmodel as dpm
from dpmodel._types import Floats
from dpmodel.contract import no_progress
from dpmodel.marks import Private, Records
from dpmodel.privacy import SeededSource, gaussian_mu
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import best_measurements, design_noise, joint_measurements, measurements
from dpmodel.programs.noise_once import released_parts

KINDS = ("laplace", "gaussian", "truncated")


# ------------------------------------------------------------------------------ one measurement for several parts
def reused(sizes: tuple[int, int] = (3, 5)) -> tuple[dpm.Problem, list[Private], dict[str, dict[str, Any]]]:
    """Two parameters of unequal size: the first enters c and b, the second b and A."""
    people = Records("people")
    declared: dict[str, dict[str, Any]] = {
        "p": {"unit": "entry", "linf": 2.0, "records": people},
        "q": {"l1": 1.0, "linf": 0.5, "records": people},
    }
    k, h = sizes
    p = Private(np.full(k, 6.0), shape=(k,), name="p", **declared["p"])
    q = Private(np.full(h, 2.0), shape=(h,), name="q", **declared["q"])
    x = cp.Variable(k, bounds=[0, 3], name="x")
    rows = [x <= 4 * p, x[0] <= q[-1] - p[0], q[:k] @ x <= 40]
    return dpm.Problem(cp.Maximize(p @ x), rows), [p, q], declared


@pytest.mark.parametrize("kind", KINDS)
def test_shared_numbers_are_drawn_once_with_all_of_the_budget(kind: str) -> None:
    problem = reused()[0]
    opened = Opened(problem, {}, CASES["prices"].open(delta=1e-6).options)
    noise = designed(opened, kind)
    assert noise.numbers == (("objective", "scalar", "matrix"),)
    parts = noise.parts.values()
    assert len({id(part.measurement.queries) for part in parts}) == 1 and len({part.share for part in parts}) == 1
    assert next(iter(parts)).share == pytest.approx(1.0)
    c, b, entries = released_parts(opened.model, noise, SeededSource(1), no_progress)
    # What is rebuilt of one number agrees: -c = p, and the sides are 4 p and q - p.
    assert c is not None and b is not None and entries is not None
    p = -c[:3]
    sides = b[noise.parts["scalar"].measurement.positions]
    assert any(sides[i : i + 3] == pytest.approx(4 * p) for i in range(sides.size - 2))
    assert np.ptp(p) > 0 and entries.size == 3
    spent = [cost(noise, record) for record in {r for part in parts for r in part.measurement.sensitivity}]
    if kind == "gaussian":
        assert max(s[2] for s in spent) == pytest.approx(gaussian_mu(1.0, 1e-6), rel=2e-3)
    else:
        assert max(s[0] for s in spent) == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize("sizes", [(3, 5), (2, 7)])
def test_no_neighbour_moves_the_shared_numbers_further(sizes: tuple[int, int]) -> None:
    problem, private, declared = reused(sizes)
    model = problem._model(None)
    choices = joint_measurements(model, ("objective", "scalar", "matrix"))
    assert [each["scalar"].strategy for each in choices] == ["entries", "inputs"]
    for choice in choices:
        assert len({id(m.queries) for m in choice.values()}) == 1
        brute_force(model, private, declared, [choice["scalar"]], draws=150)
    with pytest.raises(ExceededError):
        brute_force(model, private, declared, [without_reuse(choices[0]["scalar"])], draws=150)


def test_shared_numbers_rebuild_every_part() -> None:
    model = reused()[0]._model(None)
    theta = np.random.default_rng(3).normal(size=model.affine.theta_size)
    for choice in joint_measurements(model, ("objective", "scalar", "matrix")):
        for part, m in choice.items():
            exact = model.form.private_part(part).apply(theta)[m.positions] if part != "matrix" else theta[3:6]
            assert m.recover @ m.queries.apply(theta) == pytest.approx(exact)


def test_parts_are_measured_apart_where_that_is_as_good() -> None:
    """Together, a record moves both numbers as far as apart; and without a parameter in common there is no choice."""
    b = Private(np.ones(400), shape=(400,), name="b", l1=1.0)
    x = cp.Variable(2, bounds=[0, 9])
    both = dpm.Problem(cp.Minimize(b[0] * x[0] + x[1]), [x[0] + x[1] >= cp.sum(b)])
    other = Private(np.ones(2), shape=(2,), name="other", l1=1.0)
    none = dpm.Problem(cp.Minimize(other @ x), [x[0] + x[1] >= cp.sum(b)])
    options = CASES["prices"].open(delta=1e-6).options
    for problem in (both, none):
        noise = design_noise(problem._model(None), options, {"objective": "laplace", "scalar": "laplace"})
        assert noise.numbers == (("objective",), ("scalar",))
    # In the 2-norm there is a combination of the two that is better than either.
    noise = design_noise(both._model(None), options, {"objective": "gaussian", "scalar": "gaussian"})
    assert noise.numbers == (("objective", "scalar"),)


# ------------------------------------------------------------------------------------------- running sums and others
def rows_of(name: str) -> Floats:
    """(k, p) rows of one or several components."""
    rng = np.random.default_rng(5)
    sums = np.tril(np.ones((12, 12)))
    if name == "both sides":
        return np.vstack([sums, -sums, 2 * sums[3:5]])
    if name == "any order":
        return sums[rng.permutation(12)][:, rng.permutation(12)] * rng.choice([-1.0, 3.0], size=(12, 1))
    if name == "from the end":
        return sums.T
    if name == "discounted":
        return np.array([[0.9 ** (t - s) * (s <= t) for s in range(15)] for t in range(15)])
    if name == "unequal terms":  # one to three entries a step
        return np.repeat(sums, rng.integers(1, 4, size=12), axis=1)
    if name == "two products":  # and rows of a single entry
        return block_diag(sums, 3 * np.tril(np.ones((7, 7))), np.eye(2))
    if name == "windows":
        return np.array([[float(i <= j < i + 5) for j in range(40)] for i in range(36)])
    return rng.integers(0, 3, size=(20, 9)) + np.eye(20, 9)


NAMES = ["both sides", "any order", "from the end", "discounted", "unequal terms", "two products", "windows", "any"]


def stocked(name: str) -> tuple[Program, list[Private], dict[str, dict[str, Any]]]:
    """The rows of two parameters: the first k entries are one's, the rest the other's."""
    W = rows_of(name)
    p = W.shape[1]
    people = Records("people")
    declared: dict[str, dict[str, Any]] = {"d": {"unit": "entry", "linf": 1.0, "records": people}}
    declared["e"] = {"unit": "entry", "linf": 1.0, "records": Records("others")}
    k = p - 3
    d = Private(np.ones(k), shape=(k,), name="d", **declared["d"])
    e = Private(np.ones(3), shape=(3,), name="e", **declared["e"])
    x = cp.Variable(W.shape[0])
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= W[:, :k] @ d + W[:, k:] @ e])
    return problem._model(None), [d, e], declared


@pytest.mark.parametrize("name", NAMES)
def test_factors_rebuild_the_rows_with_less_noise(name: str) -> None:
    model = stocked(name)[0]
    m = best_measurements(model, ("scalar",), "gaussian")["scalar"]
    assert m.strategy == "factor"
    width = model.affine.theta_size
    exact = model.form.scalar.compact().tocsr(width).toarray()
    assert np.abs(m.recover @ m.queries.tocsr(width).toarray() - exact).max() <= 1e-11
    noise = {each.strategy: each.l2 * float(each.gain(2).max()) for each in (*measurements(model, "scalar"), m)}
    assert noise["factor"] <= 0.95 * min(noise["entries"], noise["inputs"])


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ("both sides", "two products", "any") else pytest.mark.slow) for n in NAMES],
)
def test_no_neighbour_moves_a_factor_further(name: str) -> None:
    model, private, declared = stocked(name)
    m = best_measurements(model, ("scalar",), "gaussian")["scalar"]
    assert brute_force(model, private, declared, [m], draws=60) > 0.5, "the bound is nearly attained"
    # A record's entry stands in many rows of S.
    with pytest.raises(ExceededError):
        brute_force(model, private, declared, [without_reuse(m)], draws=60)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_values_beyond_their_bounds_move_no_measured_number_further(kind: str) -> None:
    """Running sums of numbers on, just beyond and far beyond their bounds; two parameters of unequal size."""
    people = Records("people")
    odd = np.array([-1e9, -1e-12, 0.0, 7.0, 30.0, 30 + 1e-9, 1e9])

    b = Private(shape=8, name="b", unit="entry", bounds=[0, 30], records=people)
    d = Private(shape=3, name="d", unit="entry", bounds=[-2, 2], records=people)
    x = cp.Variable(8, bounds=[0, 900], name="x")
    model = dpm.Problem(cp.Minimize(cp.sum(x)), [cp.cumsum(x) >= cp.cumsum(b), x[:3] >= d])._model(None)
    first, last, seen = np.append(odd, 1.0), np.array([-3.0, 2.0, 1e9]), 0.0
    m = best_measurements(model, ("scalar",), kind)["scalar"]  # type: ignore[arg-type]
    assert (m.strategy == "factor") == (kind == "gaussian")
    order, most = (2, m.l2) if kind == "gaussian" else (1, m.l1)
    for i, j, low, high in itertools.product(range(8), range(3), (-1e9, 2.0), odd[3:]):
        numbers = []
        for one, other in ((low, high), (high, low)):  # a record has an entry of each
            first[i], last[j] = one, other
            b.value, d.value = first, last
            numbers.append(m.values(model.read_private()))
        seen = max(seen, float(np.linalg.norm(np.asarray(numbers[1] - numbers[0]), order)))
    assert 0.98 * most < seen <= most


@pytest.mark.parametrize(("T", "noise"), [(12, 1.851), (52, 2.323), (365, 2.943)])
def test_running_sums_have_the_square_root(T: int, noise: float) -> None:
    d = Private(np.ones(T), shape=(T,), name="d", unit="entry", linf=1.0)
    x = cp.Variable(T, nonneg=True)
    stock = cp.cumsum(x) - cp.cumsum(d)
    model = dpm.Problem(cp.Minimize(cp.sum(x)), [stock >= 0, stock <= 9])._model(None)
    m = best_measurements(model, ("scalar",), "gaussian")["scalar"]
    assert m.l2 * m.gain(2).max() == pytest.approx(noise, rel=2e-3)
    assert m.count == T, "both sides are rebuilt from the same numbers"


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", ["both sides", "two products", "any"])
def test_the_reach_of_sums_holds(name: str, kind: str) -> None:
    model = stocked(name)[0]
    options = CASES["prices"].open(beta=0.2, delta=1e-6).options
    part = design_noise(model, options, {"scalar": kind}).parts["scalar"]  # type: ignore[dict-item]
    assert not part.clip and part.distribution is not None, "this test wants sums of independent draws"
    draws = part.distribution.add_to(np.zeros((4000, part.measurement.count)), SeededSource(2))
    missed = int((np.abs(draws @ part.measurement.recover.T) > part.reach).any(axis=1).sum())
    assert binom.sf(missed - 1, 4000, part.beta) > 1e-7
    if kind == "laplace":
        by_draws = part.measurement.gain(1) * part.distribution.max_abs_quantile(part.measurement.count, part.beta)
        assert part.reach.max() < 0.9 * by_draws.max()
        found = int((np.abs(draws @ part.measurement.recover.T) > part.reach / 3).any(axis=1).sum())
        assert binom.sf(found - 1, 4000, part.beta) < 1e-7, "a third of it would be found"
