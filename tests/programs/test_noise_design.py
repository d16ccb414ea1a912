"""Calibration: what one record costs, counted a second time; and what the noise may do to numbers and rows."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cases import CASES, Case, Opened, Truth, cone_gap, direction_of, violation
from scipy.stats import binom, norm

import dpmodel as dpm
from dpmodel.contract import no_progress
from dpmodel.marks import Private, Records
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.privacy import (
    Gaussian,
    Laplace,
    SeededSource,
    Truncated,
    TruncatedGaussian,
    TruncatedLaplace,
    gaussian_delta,
    gaussian_mu,
)
from dpmodel.programs.feasibility import relaxed_program
from dpmodel.programs.margins import margin, row_margins
from dpmodel.programs.noise_design import NoiseDesign, design_noise, measurements
from dpmodel.programs.noise_once import released_parts
from dpmodel.solve.registry import by_name

FALSE_ALARM = 1e-7
RELAXED = ["demand", "flow", "coefficients", "signed_coefficients", "ball", "moving_ball", "matrix_above", "entropies"]
KINDS = ("laplace", "gaussian", "truncated", "truncated gaussian")


def designed(opened: Opened, kind: str) -> NoiseDesign:
    parts = opened.model.private_parts()
    unbounded = {"truncated": "laplace", "truncated gaussian": "gaussian"}
    kinds = {p: unbounded.get(kind, kind) if p == "objective" else kind for p in parts}
    return design_noise(opened.model, opened.options, kinds)  # type: ignore[arg-type]


def cost(noise: NoiseDesign, record: Records) -> tuple[float, float, float]:
    """(sum of epsilons, sum of deltas, root of the sum of squared mus) that one record of ``record`` pays."""
    epsilon = delta = squares = 0.0
    for group in noise.numbers:
        part = noise.parts[group[0]]
        sensitivity, distribution = part.measurement.sensitivity[record], part.distribution
        if isinstance(distribution, Gaussian | TruncatedGaussian):
            squares += (sensitivity.l2 / distribution.scale) ** 2
        elif isinstance(distribution, (Laplace, TruncatedLaplace)):
            epsilon += sensitivity.l1 / distribution.scale
            if isinstance(distribution, TruncatedLaplace):
                # Mass outside the other's window, from the docstring's sum at its largest: one entry moves all.
                delta += math.expm1(sensitivity.l1 / distribution.scale) / (
                    2 * math.expm1(distribution.half_width / distribution.scale)
                )
    return epsilon, delta, math.sqrt(squares)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (1.0, 1e-9), (6.0, 1e-9)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_no_record_costs_more_and_the_worst_uses_it_all(case: Case, kind: str, epsilon: float, delta: float) -> None:
    opened = case.open(epsilon=epsilon, delta=delta)
    noise = designed(opened, kind)
    records = {r for part in noise.parts.values() for r in part.measurement.sensitivity}
    spent = [cost(noise, record) for record in records]
    if kind == "gaussian":
        mu = gaussian_mu(epsilon, delta)
        assert max(s[2] for s in spent) <= mu
        assert max(s[2] for s in spent) >= 0.999 * mu
        return
    if kind == "truncated gaussian":
        mu, cut = max(s[2] for s in spent), 0
        windows = set()
        for group in noise.numbers:
            part = noise.parts[group[0]]
            if isinstance(part.distribution, TruncatedGaussian):
                cut += part.measurement.count
                windows.add(round(part.distribution.half_width / part.distribution.scale, 9))
        beyond = cut * norm.sf(min(windows, default=np.inf))
        total = (gaussian_delta(mu, epsilon) + math.exp(epsilon) * beyond) / (1 - 2 * beyond)
        assert 0.99 * delta <= total <= delta or (not windows and total <= delta)
        return
    assert max(s[0] for s in spent) <= epsilon
    assert max(s[0] for s in spent) >= 0.999 * epsilon
    assert max(s[1] for s in spent) <= delta * (1 if kind == "truncated" else 0)
    if kind == "truncated" and "objective" not in noise.parts:
        assert max(s[1] for s in spent) >= 0.5 * delta


def test_different_people_each_get_the_whole_budget() -> None:
    c = Private([1.0, 2.0], name="c", l1=1.0, records=Records("buyers"))
    b = Private([3.0, 4.0], name="b", l1=1.0, records=Records("sellers"))
    x = cp.Variable(2, bounds=[0, 9])
    model = dpm.Problem(cp.Minimize(c @ x), [x >= b])._model(None)
    same = CASES["objective_and_sides"].open()
    for kind in ("laplace", "gaussian"):
        noise = design_noise(model, same.options, {"objective": kind, "scalar": kind})  # type: ignore[dict-item]
        assert [part.share for part in noise.parts.values()] == pytest.approx([1.0, 1.0])
        shared = designed(same, kind)
        power = 2 if kind == "gaussian" else 1
        assert sum(part.share**power for part in shared.parts.values()) == pytest.approx(1.0, rel=2e-3)


def test_shares_are_half_and_half_between_objective_and_rows() -> None:
    people = Records("people")
    c = Private(shape=4, name="c", linf=0.1, records=people)
    A = Private(shape=(3, 4), name="A", l1=0.2, bounds=[0, 2], records=people)
    b = Private(shape=3, name="b", l1=0.5, bounds=[2, 12], records=people)
    x = cp.Variable(4, bounds=[0, 3])
    model = dpm.Problem(cp.Minimize(-c @ x), [A @ x <= b])._model(None)
    options = CASES["prices"].open().options
    for kind, power in (("laplace", 1), ("gaussian", 2)):
        noise = design_noise(model, options, dict.fromkeys(model.private_parts(), kind))  # type: ignore[misc]
        weight = {name: part.share**power for name, part in noise.parts.items()}
        assert weight["objective"] == pytest.approx(0.5, rel=1e-6)
        assert weight["scalar"] + weight["matrix"] == pytest.approx(0.5, rel=1e-6)
        assert min(weight.values()) > 0.01


# ------------------------------------------------------------------------------- reach and margins
def misses_at_most(misses: int, runs: int, beta: float) -> bool:
    """Whether ``misses`` in ``runs`` fit a probability of at most ``beta`` (false alarm 1e-7)."""
    return misses == 0 or float(binom.sf(misses - 1, runs, beta)) > FALSE_ALARM


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["running_totals", "packing", "coefficients", "rows_and_sides", "all_three", "ball"])
def test_reach_holds_with_its_probability(name: str, kind: str) -> None:
    opened = CASES[name].open(beta=0.2)
    noise = designed(opened, kind)
    theta = opened.model.read_private()
    source = SeededSource(8)
    runs = 1500
    for part in noise.parts.values():
        exact = part.measurement.values(theta)
        true = part.measurement.rebuild(exact, clip=False)
        draws = part.distribution.add_to(np.tile(exact, (runs, 1)), source)
        missed = sum(
            bool((np.abs(part.measurement.rebuild(d, clip=part.clip) - true) > part.reach * (1 + 1e-9)).any())
            for d in draws
        )
        assert misses_at_most(missed, runs, 0.0 if isinstance(part.distribution, Truncated) else part.beta)


def mixing() -> Opened:
    """Numbers at the end of their range, each entry the sum of many: clipped noise would have a mean."""
    b = Private(np.zeros(250), name="b", unit="entry", linf=1.0, bounds=[0, 50])
    x = cp.Variable(600, bounds=[0, 9e3])
    sums = np.random.default_rng(1).uniform(0.5, 1.5, size=(600, 250))
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= sums @ b])
    return Opened(problem, {"b": b}, CASES["demand"].open(delta=1e-6).options)


def test_reach_of_sums_at_the_end_of_the_range() -> None:
    opened = mixing()
    part = designed(opened, "gaussian").parts["scalar"]
    assert part.measurement.recover.nnz > part.measurement.count, "this test wants the inputs strategy"
    assert not part.clip
    exact = part.measurement.values(opened.model.read_private())
    true = part.measurement.rebuild(exact)
    draws = part.distribution.add_to(np.tile(exact, (600, 1)), SeededSource(3))  # type: ignore[union-attr]
    missed = sum(bool((np.abs(part.measurement.rebuild(d, clip=part.clip) - true) > part.reach).any()) for d in draws)
    assert misses_at_most(missed, 600, part.beta)


def test_a_true_point_survives_row_noise_at_the_end_of_the_range() -> None:
    """A = 0 at its lower bound and 200 columns: noise moved back into the range would cut off every true point."""
    d = 200
    A = Private(np.zeros((1, d)), name="A", linf=0.001, bounds=[0, 1])
    x = cp.Variable(d, bounds=[0, 1])
    opened = Opened(
        dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= 0.0]), {"A": A}, CASES["demand"].open(delta=1e-6).options
    )
    noise = designed(opened, "gaussian")
    assert not noise.parts["matrix"].clip, "this test wants the margin of single Gaussians per row"
    margins = row_margins(opened.model, noise)
    missed, excess = 0, 0
    for seed in range(400):
        _, _, entries = released_parts(opened.model, noise, SeededSource(seed), no_progress)
        program = relaxed_program(opened.model, None, None, entries, margins.one)
        missed += violation(program, np.ones(d)) > 0
        noisy = np.asarray(program.A[[0]].todense()).ravel()
        # The worst point of the box for this draw: everything where noise is negative.
        worst = (noisy < 0).astype(float)
        uniform = margins.all.max()
        excess += -noisy @ worst > uniform
    assert misses_at_most(missed + excess, 400, opened.options.beta)


BLOCKS = [
    ConeBlock("nonneg", 0, 4, (), (), 0, 0, "linear"),
    ConeBlock("zero", 0, 4, (), (), 0, 0, "equality"),
    ConeBlock("soc", 0, 9, (4, 2, 3), (), 0, 0, "second-order"),
    ConeBlock("psd", 0, 13, (9, 4), (), 0, 0, "semidefinite"),
    ConeBlock("exp", 0, 6, (3, 3), (), 0, 0, "exponential"),
    ConeBlock("pow3d", 0, 6, (3, 3), (0.3, 0.8), 0, 0, "power"),
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.kind)
def test_a_margin_covers_its_box(block: ConeBlock) -> None:
    """box + t d lies in the cone: corners and random points; and a tenth less does not (save equalities)."""
    from types import SimpleNamespace

    affine: Any = SimpleNamespace(rows=block.size, cones=(block,))
    model: Any = SimpleNamespace(affine=affine)
    rng = np.random.default_rng(4)
    for _ in range(8):
        tau = rng.exponential(size=block.size) * 10.0 ** rng.integers(-3, 4) * (rng.random(block.size) < 0.8)
        if block.kind == "psd":
            for start, side in ((0, 3), (9, 2)):
                square = tau[start : start + side**2].reshape(side, side)
                tau[start : start + side**2] = ((square + square.T) / 2).ravel()
        t, d = margin(affine, tau), direction_of(model)
        if not tau.any():
            assert not t.any()
            continue
        corners = np.where(rng.random((60, block.size)) < 0.5, -tau, tau)
        inner = rng.uniform(-1, 1, size=(20, block.size)) * tau
        special = np.array([-tau, tau, np.tile([1.0, 1.0, -1.0], block.size)[: block.size] * tau])
        if block.kind == "psd":  # symmetric noise only: a symmetric matrix stays one
            for points in (corners, inner, special):
                for start, side in ((0, 3), (9, 2)):
                    square = points[:, start : start + side**2].reshape(-1, side, side)
                    lower = np.tril(square) + np.transpose(np.tril(square, -1), (0, 2, 1))
                    points[:, start : start + side**2] = lower.reshape(-1, side**2)
        points = np.concatenate([corners, inner, special])
        assert _outside(block, points + t * d) <= 1e-9 * tau.max()
        if block.kind != "zero":
            assert _outside(block, points + 0.9 * t * d) > 0, "larger than needed"


def _outside(block: ConeBlock, points: np.ndarray) -> float:
    worst = 0.0
    for v in points:
        if block.kind == "nonneg":
            worst = max(worst, float(-v.min()))
        elif block.kind == "zero":
            worst = max(worst, float(-v.min()))  # band: |noise| <= t, that is noise + t >= 0 on either side
        else:
            start = 0
            for number, size in enumerate(block.sizes):
                worst = max(worst, cone_gap(block.kind, v[start : start + size], block.alphas[number : number + 1]))
                start += size
    return worst


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", RELAXED)
def test_relaxing_keeps_the_true_optimum_feasible(name: str, kind: str) -> None:
    opened = CASES[name].open(beta=0.2)
    noise, model = designed(opened, kind), opened.model
    margins, truth = row_margins(model, noise), Truth(model)
    lost, runs = 0, 80
    for seed in range(runs):
        c, b, entries = released_parts(model, noise, SeededSource(seed), no_progress)
        program = relaxed_program(model, c, b, entries, margins.one)
        lost += violation(program, truth.x) > 1e-7 * (1 + np.abs(program.b).max())
    assert misses_at_most(lost, runs, 0.2)


def test_theorem_34_uses_the_papers_scale() -> None:
    opened = CASES["prices"].open(delta=1e-6)
    mechanism: Any = by_name("theorem-34")
    (part,) = mechanism._design(opened.model, opened.options).parts.values()
    measured = measurements(opened.model, "objective")[0]
    assert part.distribution.scale == pytest.approx(measured.l1 * math.sqrt(8 * 4 * math.log(1e6)))
    printed = mechanism.forecast(opened.model, opened.options).noise["printed_alpha_for_unit_norm"]
    assert printed == pytest.approx(4 * measured.l1 * math.sqrt(8 * 4 * math.log(4e6)))
    assert part.reach.max() == pytest.approx(part.distribution.scale * math.log(4 / opened.options.beta))
