"""Which numbers are measured: once for several parts, and by which strategy."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cases import CASES, Opened
from test_measurement import ExceededError, brute_force, without_reuse
from test_noise_design import cost, designed

import dpmodel as dpm
from dpmodel.contract import no_progress
from dpmodel.marks import Private, Records
from dpmodel.privacy import SeededSource, gaussian_mu
from dpmodel.programs.noise_design import design_noise, joint_measurements
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
    for kind in ("laplace", "gaussian"):
        for problem in (both, none):
            noise = design_noise(problem._model(None), options, {"objective": kind, "scalar": kind})  # type: ignore[dict-item]
            assert noise.numbers == (("objective",), ("scalar",))
