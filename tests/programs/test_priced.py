"""Priced rows: laws and tangents against sums and simulations, programs against brute force, sentences against draws.

Statistical tests have seeds; at five deviations (two sides) a false alarm has probability 6e-7, at six 2e-9.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.special import gammainc
from scipy.stats import gamma, norm

import dpmodel as dpm
from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import Options
from dpmodel.numerics.cone_program import solve_cone_program
from dpmodel.privacy import Gaussian, SeededSource
from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace
from dpmodel.programs import prices as pricing
from dpmodel.programs.feasibility import LEAST_VIOLATION, relaxed_program
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, design_noise
from dpmodel.programs.priced import (
    _laws,
    _released,
    _wide,
    can_price,
    expected_cost,
    shortage,
    solve_priced,
)
from dpmodel.programs.prices import (
    TANGENTS,
    Laws,
    Table,
    _whole,
    default_prices,
    laws_of,
    noise_terms,
    priced_rows,
    short_below,
    unserved,
    usual_prices,
)
from dpmodel.requests import Prices

# Chances lie between the slopes of two tangents: half of the widest step, and more where a solver stops between.
STEP = 0.045
Parts = tuple[Floats | None, Floats | None, Floats | None]


def private(value: Any, name: str = "b", **declared: Any) -> Any:
    return dpm.Private(np.asarray(value, dtype=float), name=name, **{"unit": "entry", "linf": 1, **declared})


def read(objective: Any, rows: list[Any]) -> Program:
    return Program.of(dpm.Problem(objective, rows))


def designed(model: Program, kind: Any = "laplace", epsilon: float = 1.0) -> NoiseDesign:
    return design_noise(model, Options(epsilon, 1e-6), dict.fromkeys(model.private_parts(), kind))


def drawn(model: Program, noise: NoiseDesign, seed: int | None) -> Parts:
    """Private parts with noise, not clipped; ``seed`` None: without."""
    theta, source = PrivateArray(model.read_private()), None if seed is None else SeededSource(seed)
    found: dict[str, Floats] = {}
    for name, part in noise.parts.items():
        values = np.asarray(part.measurement.values(theta))
        if source is not None and part.distribution is not None:
            values = part.distribution.add_to(values, source)
        rebuilt = part.measurement.rebuild(values, clip=False)
        found[name] = rebuilt
        if name != "matrix":
            found[name] = np.zeros(model.affine.variables if name == "objective" else model.affine.rows)
            found[name][part.measurement.positions] = rebuilt
    return found.get("objective"), found.get("scalar"), found.get("matrix")


def at(model: Program, above: float, below: float = 0.0) -> Prices:
    rows = priced_rows(model)
    return Prices(np.where(rows, above, 0.0), np.where(rows & model.affine.equalities(), below, 0.0))


def options(prices: Prices) -> Options:
    return Options(1.0, 1e-6, feasibility="priced", prices=prices)


def penalised(model: Program, prices: Prices, x: Floats, parts: Parts) -> float:
    c, b, A = model.form.with_noise(*parts)
    gap = A @ x - b
    return float(c @ x + prices.above @ np.maximum(gap, 0) + prices.below @ np.maximum(-gap, 0))


# ---------------------------------------------------------------------------------- laws
def laws() -> dict[str, tuple[Laws, Any]]:
    """One row each of unequal scale, and what draws from its noise."""
    one, yes, no = np.ones(1), np.ones(1, dtype=bool), np.zeros(1, dtype=bool)
    row = np.zeros(1, dtype=np.int64)
    found = {
        "laplace": (Laws(2.5 * one, yes), lambda rng, k: rng.laplace(scale=2.5, size=k)),
        "gaussian": (Laws(0.3 * one, no), lambda rng, k: rng.normal(scale=0.3, size=k)),
    }
    for law in (DiscreteLaplace(1.7), DiscreteGaussian(0.9), DiscreteLaplace(0.2)):
        name = f"{law.name} {law.scale}"
        found[name] = (
            Laws(3 * law.scale * one, no, (_whole(row, law),)),
            lambda rng, k, w=law: 3 * w.sample((k,), rng),
        )
    return found


@pytest.mark.parametrize("name", laws())
def test_amounts_and_chances_are_those_of_draws(name: str) -> None:
    law, draw = laws()[name]
    noise = draw(np.random.default_rng(1), 400_000)
    for r in np.array([-4.0, -3.0, -1.5, 0.0, 0.3, 3.0, 6.1]) * float(law.scale[0]) / 2.5:
        # Whole numbers of units are where laws on whole numbers have their kinks.
        r = float(np.round(r / 3) * 3) if law.tables and abs(r) > 1.5 else float(r)
        over, under = np.maximum(noise + r, 0), np.maximum(-noise - r, 0)
        told = (*law.amounts(np.array([r])), *law.chances(np.array([r])))
        for number, seen in zip(told, (over, under, noise + r > 1e-9, noise + r < -1e-9), strict=True):
            assert abs(float(number[0]) - seen.mean()) <= 5.5 * seen.std() / 632 + 1e-5, (name, r)


def test_gaps_undo_chances() -> None:
    share = np.array([0.001, 0.07, 0.5, 0.9])
    for name in ("laplace", "gaussian"):
        law = laws()[name][0]
        many = Laws(np.repeat(law.scale, 4), np.repeat(law.laplace, 4))
        assert np.allclose(many.chances(many.gaps(share))[0], share, rtol=1e-9)
    table = laws()["discrete laplace 1.7"][0]
    gap = table.gaps(np.array([0.2]))
    assert table.chances(gap)[0][0] <= 0.2 <= 1 - table.chances(gap)[1][0]


@pytest.mark.parametrize(("laplace", "least", "most"), [(True, 0.9, 1.01), (False, 0.6, 0.628)])
def test_tangents_leave_the_least_largest_gap(
    laplace: bool, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count in (5, 12, 25):
        monkeypatch.setattr(pricing, "TANGENTS", count)
        law = Laws(np.full(1, 2.0), np.full(1, laplace))
        slopes, heights = (part[0] for part in law.lines())
        r = np.linspace(-40, 40, 200_001)
        gap = Laws(np.full(r.size, 2.0), np.full(r.size, laplace)).amounts(r)[0] - (slopes * r[:, None] + heights).max(
            1
        )
        assert gap.min() > -1e-12
        assert least <= gap.max() * count**2 / 2.0 <= most


def test_thousands_of_rows_have_fewer_pieces_each() -> None:
    for rows, count in ((1, TANGENTS), (500, TANGENTS), (1000, 12), (50_000, 5)):
        assert Laws(np.ones(rows), np.ones(rows, dtype=bool)).lines()[0].shape == (rows, count + 2)


def test_lines_of_whole_numbers_are_exact_where_they_touch() -> None:
    """The closed form of the discrete Laplace law: ``r^+ + q^(|r|+1) / (1 - q^2)``."""
    law = DiscreteLaplace(1.7)
    table = Laws(np.full(1, 1.7), np.zeros(1, dtype=bool), (_whole(np.zeros(1, dtype=np.int64), law),))
    q = np.exp(-1 / 1.7)
    for r in range(-9, 10):
        exact = max(r, 0) + q ** (abs(r) + 1) / (1 - q * q)
        assert table.amounts(np.array([float(r)]))[0][0] == pytest.approx(exact, abs=1e-13)
        slopes, heights = (part[0] for part in table.lines())
        lower = (slopes * r + heights).max()
        assert exact - 2 * 1.7 / TANGENTS**2 <= lower <= exact + 1e-13
        if abs(r) <= 2:
            assert lower == pytest.approx(exact, abs=1e-13)


def test_kinks_are_where_lines_meet_and_same_lines_have_no_piece() -> None:
    values = np.array([-1.0, 0.5, 2.0])
    masses = np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]])
    law = Laws(np.array([1.0, 10.0]), np.zeros(2, dtype=bool), (Table(np.arange(2), values, masses),))
    slopes, kinks = law.kinks()
    assert (np.diff(kinks, axis=1) >= 0).all() and (np.diff(slopes, axis=1) >= 0).all()
    for row, r in itertools.product(range(2), (-30.0, -6.0, -5.0, -1.0, 0.0, 3.0)):
        steps = np.diff(np.append(slopes[row], 0))[:-1] @ np.maximum(r - kinks[row], 0)
        exact = masses[row] @ np.maximum(r + law.scale[row] * values, 0)
        assert steps == pytest.approx(exact, abs=1e-12)


# ---------------------------------------------------------------------------------- rows' laws from a model
def test_each_row_has_the_law_of_its_number() -> None:
    """Two parameters of unequal size and sensitivity, a factor, and a row of two numbers."""
    x = cp.Variable(7, name="x")
    one, other = private([5, 6, 7], "one"), private([50, 60], "other", linf=10)
    model = read(cp.Minimize(cp.sum(x)), [x[:3] >= 2 * one, x[3:5] >= other, x[5] >= one[0] + other[0], x[6] >= 1])
    rows = np.flatnonzero(priced_rows(model))
    assert rows.size == 6
    noise = designed(model)
    law = laws_of(model, noise, rows)
    assert law.laplace.sum() == 5
    part = noise.parts["scalar"]
    assert np.allclose(law.scale[law.laplace] * np.sqrt(2), part.sigma[law.laplace])
    assert np.allclose(law.scale[~law.laplace], part.sigma[~law.laplace])
    assert law.scale[3] == pytest.approx(5 * law.scale[0]) and law.scale[5] > law.scale[3]


def test_noise_in_rows_with_private_coefficients_is_that_of_draws() -> None:
    """A number that two coefficients share is one draw; the right-hand side has draws of its own."""
    x = cp.Variable(3, nonneg=True, name="x")
    a, b = private([1.0, 2.0], "a", linf=0.1), private([3.0, 4.0], "b", linf=0.5)
    left = cp.hstack([a[0] * x[0] + 2 * a[0] * x[1] + a[1] * x[2], a[1] * x[0]])
    model = read(cp.Minimize(cp.sum(x)), [left >= b])
    noise, at_x, rows = designed(model), np.array([1.0, 2.0, 0.5]), np.flatnonzero(priced_rows(model))
    sigma = noise_terms(model, noise, rows).sigma(at_x)
    truth, gaps = drawn(model, noise, None), []
    for seed in range(4000):
        moved = model.form.with_noise(*drawn(model, noise, seed))
        gaps.append((moved[2] @ at_x - moved[1])[rows])
    exact = model.form.with_noise(*truth)
    spread = np.sqrt(np.mean((np.array(gaps) - (exact[2] @ at_x - exact[1])[rows]) ** 2, axis=0))
    assert np.allclose(spread / sigma, 1, atol=6 * np.sqrt(5 / 4 / 4000))


# ---------------------------------------------------------------------------------- programs
def transport(seed: int = 0, plants: int = 3, markets: int = 6, **declared: Any) -> Program:
    rng = np.random.default_rng(seed)
    cost, orders = rng.uniform(5, 40, (plants, markets)), rng.uniform(10, 60, markets)
    x = cp.Variable((plants, markets), nonneg=True, name="x")
    demand = private(orders, "demand", **declared)
    supply = np.full(plants, 1.1 * orders.sum() / plants)
    served = (cp.sum(x, axis=0) >= demand).set_label("served")
    return read(cp.Minimize(cp.sum(cp.multiply(cost, x))), [cp.sum(x, axis=1) <= supply, served])


def test_the_optimum_is_that_of_the_mean_penalty() -> None:
    """Against CVXPY with all tangents as rows, and no point nearby costs less by the exact law."""
    model = transport()
    noise, prices = designed(model), at(model, 60.0)
    parts = drawn(model, noise, 3)
    out = solve_priced(model, options(prices), noise, *parts)
    rows = np.flatnonzero(priced_rows(model))
    c, b, A = model.form.with_noise(*parts)
    law = laws_of(model, noise, rows)
    x, z = cp.Variable(c.size, nonneg=True), cp.Variable(rows.size)
    slopes, heights = law.lines()
    gap = A[rows] @ x - b[rows]
    tangents = [z >= cp.multiply(slopes[:, k], gap) + heights[:, k] for k in range(slopes.shape[1])]
    other = np.setdiff1d(np.flatnonzero(np.asarray(model.public.program.keep)), rows)
    least = cp.Problem(cp.Minimize(c @ x + 60 * cp.sum(z)), [*tangents, A[other] @ x <= b[other]]).solve()
    penalty = (slopes * (A[rows] @ out.x - b[rows])[:, None] + heights).max(axis=1)
    assert c @ out.x + 60 * penalty.sum() == pytest.approx(least, rel=1e-6)
    assert out.value == pytest.approx(c @ out.x) and out.dual is not None and out.dual.size == b.size


def test_duals_say_with_what_probability_a_row_is_short() -> None:
    model = transport()
    noise, prices = designed(model), at(model, 60.0)
    parts = drawn(model, noise, 3)
    out = solve_priced(model, options(prices), noise, *parts)
    assert out.x is not None and out.dual is not None
    missed = shortage(model, noise, prices, out.x, *parts[1:])
    rows = priced_rows(model)
    # A multiplier is a slope of the largest tangent, which is that of the law up to half a step between tangents.
    assert np.abs(out.dual[rows] / 60 - missed.chance_above[rows]).max() < STEP
    assert (missed.above[~rows] == 0).all() and (missed.chance_below == 0).all()
    assert missed.cost(prices) == pytest.approx(60 * missed.above.sum())


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_of_400_separable_rows_as_many_are_short_as_is_said(kind: str) -> None:
    """Two parameters of 300 and 100 entries, the second with five times the noise and two prices each."""
    cost, price = np.repeat([1.0, 2.0], [300, 100]), np.repeat([12.0, 5.0], [300, 100])
    x = cp.Variable(400, name="x")
    need = np.random.default_rng(4).uniform(0, 3000, 400)
    one, other = private(need[:300], "one"), private(need[300:], "other", linf=5)
    model = read(cp.Minimize(cost @ x), [(x[:300] >= one).set_label("one"), (x[300:] >= other).set_label("other")])
    noise, rows = designed(model, kind), priced_rows(model)
    prices = Prices(np.where(rows, price, 0.0), np.zeros(400))
    seen, said, short = [], [], []
    for seed in range(20):
        parts = drawn(model, noise, seed)
        out = solve_priced(model, options(prices), noise, *parts)
        assert out.x is not None and out.dual is not None
        missed = shortage(model, noise, prices, out.x, *parts[1:])
        seen.append([(need - out.x > 0)[:300].mean(), (need - out.x > 0)[300:].mean()])
        short.append(np.maximum(need - out.x, 0).sum() - missed.above.sum())
        said.append([missed.chance_above[:300].mean(), missed.chance_above[300:].mean()])
        assert np.allclose(out.dual, cost, atol=1e-7)
    for k, (share, count) in enumerate(((1 / 12, 300), (2 / 5, 100))):
        assert abs(np.mean(said, axis=0)[k] - share) < STEP
        sigma = np.sqrt(share * (1 - share) / (20 * count))
        assert abs(np.mean(seen, axis=0)[k] - np.mean(said, axis=0)[k]) < 5 * sigma + 0.001
    assert abs(np.mean(short)) < 5 * np.std(short) / np.sqrt(20) + 0.01


def test_a_price_at_or_below_the_multiplier_is_not_served() -> None:
    x = cp.Variable(2, nonneg=True, name="x")
    rows = [(x[0] >= private(90, "a")).set_label("cheap"), (x[1] >= private(900, "b")).set_label("dear")]
    model = read(cp.Minimize(x[0] + 40 * x[1]), rows)
    noise, prices = designed(model), at(model, 30.0)
    m, rows = model.affine.rows, priced_rows(model)
    plain = solve_cone_program(relaxed_program(model, *drawn(model, noise, None), np.zeros(m)))

    def left(cheap: float, dear: float) -> list[bool]:
        above = np.zeros(m)
        above[rows] = cheap, dear
        return unserved(Prices(above, np.zeros(m)), plain.dual)[rows].tolist()

    assert left(30, 30) == [False, True] and left(1, 40) == [True, True] and left(1.1, 41) == [False, False]
    out = solve_priced(model, options(prices), noise, *drawn(model, noise, 0))
    assert out.x is not None and out.x[1] == pytest.approx(0, abs=1e-6) and out.x[0] > 80
    assert next(note for note in out.notes if "not served" in note).startswith("dear: 1 of 1 row")
    served = solve_priced(model, options(at(model, 50.0)), noise, *drawn(model, noise, 0))
    assert not any("not served" in note for note in served.notes)


def flow(both: bool = True) -> Program:
    """Orders at two places, met exactly, by a cheap way of little room and a dear one."""
    x = cp.Variable((2, 2), nonneg=True, name="x")
    orders = private([30.0, 44.0], "orders")
    into = cp.sum(x, axis=0)
    met = (into == orders if both else into >= orders).set_label("met")
    return read(cp.Minimize(cp.sum(cp.multiply(np.array([[1.0, 2.0], [6.0, 8.0]]), x))), [met, x[0] <= 20])


def test_equalities_at_two_equal_prices_are_the_released_numbers() -> None:
    model = flow()
    noise = designed(model)
    for seed in range(5):
        parts = drawn(model, noise, seed)
        centred = solve_cone_program(relaxed_program(model, *parts, np.zeros(model.affine.rows)))
        out = solve_priced(model, options(at(model, 1e4, 1e4)), noise, *parts)
        # With K even, the middle piece lies about the released number: so near is a point on it.
        assert np.abs(out.x - centred.x).max() < 0.2 * float(
            laws_of(model, noise, np.flatnonzero(priced_rows(model))).scale[0]
        )
    rows = np.flatnonzero(priced_rows(model))
    unequal = solve_priced(model, options(at(model, 60.0, 3.0)), noise, *parts)
    _, b, A = model.form.with_noise(*parts)
    gap = (A @ unequal.x - b)[rows]
    law = laws_of(model, noise, rows)
    share = (unequal.dual[rows] + 3) / 63
    assert np.abs(law.chances(gap)[0] - share).max() < STEP


def test_equalities_cost_what_they_are_missed_by_on_either_side() -> None:
    model = flow()
    noise, prices = designed(model), at(model, 60.0, 3.0)
    parts = drawn(model, noise, 1)
    wide = _wide(model, noise, prices, _released(model, prices, *parts), _laws(model, noise, prices, parts[1]))
    n = model.affine.variables
    rows = np.flatnonzero(priced_rows(model))
    law = laws_of(model, noise, rows)
    c, b, A = model.form.with_noise(*parts)
    for shift in (-5.0, -1.0, 0.0, 2.0):
        # With x held, the columns of pieces cost what the lines say, up to a constant.
        x = np.array([15.0, 20.0, 15.0 + shift, 24.0])
        held = wide.with_(lower=np.r_[x, wide.lower[n:]], upper=np.r_[x, wide.upper[n:]])
        found = solve_cone_program(held)
        slopes, heights = law.lines()
        gap = (A @ x - b)[rows]
        phi = (slopes * gap[:, None] + heights).max(axis=1)
        total = c @ x + 60 * phi.sum() + 3 * (phi - gap).sum()
        if shift == -5.0:
            constant = total - found.value
        assert found.value + constant == pytest.approx(total, abs=1e-6)


def test_integers_stay_and_are_the_best_of_all() -> None:
    x = cp.Variable(2, integer=True, name="x")
    need = private([4.3, 2.6], "need")
    model = read(cp.Minimize(x[0] + 2 * x[1]), [(x >= need).set_label("beds"), x >= 0, x <= 30, x[0] + x[1] <= 8])
    noise, prices = designed(model), at(model, 9.0)
    rows = np.flatnonzero(priced_rows(model))
    for seed in range(6):
        parts = drawn(model, noise, seed)
        out = solve_priced(model, options(prices), noise, *parts)
        _, b, A = model.form.with_noise(*parts)
        slopes, heights = laws_of(model, noise, rows).lines()

        def cost(point: Any, A: Any = A, b: Any = b, s: Any = slopes, h: Any = heights) -> float:
            gap = (A @ np.asarray(point, dtype=float) - b)[rows]
            return float(point[0] + 2 * point[1] + 9 * (s * gap[:, None] + h).max(axis=1).sum())

        best = min(cost(p) for p in itertools.product(range(9), range(9)) if sum(p) <= 8)
        assert np.allclose(out.x, np.round(out.x)) and cost(out.x) == pytest.approx(best, abs=1e-5)
        assert out.dual is None


def diet(integer: bool = False, **also: Any) -> Program:
    """Two blocks of private coefficients, of unequal size; a private right-hand side in one."""
    rng = np.random.default_rng(2)
    x = cp.Variable(5, nonneg=True, name="x", integer=integer)
    A = private(rng.uniform(1, 3, (3, 5)), "A", linf=0.1)
    B = private(rng.uniform(10, 30, (1, 5)), "B", linf=1.0)
    need = private([12.0, 9.0, 14.0], "need", linf=0.3)
    return read(cp.Minimize(rng.uniform(1, 2, 5) @ x), [(A @ x >= need).set_label("food"), B @ x <= 190, x <= 9])


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_private_coefficients_are_priced_by_a_cone(kind: str) -> None:
    """The program's value is that of the exact function at its own point, and no direction leads to a better one."""
    model = diet()
    noise, prices = designed(model, kind), at(model, 20.0)
    parts = drawn(model, noise, 0)
    out = solve_priced(model, options(prices), noise, *parts)
    assert out.x is not None and out.dual is not None and out.dual.size == model.affine.rows
    rows = np.flatnonzero(priced_rows(model))
    c, b, A = model.form.with_noise(*parts)
    terms = noise_terms(model, noise, rows)

    def exact(x: Floats) -> float:
        law = Laws(np.maximum(terms.sigma(x), 1e-9), np.zeros(rows.size, dtype=bool))
        return float(c @ x + 20 * law.amounts((A @ x - b)[rows])[0].sum())

    sigma = terms.sigma(out.x)
    here, rng = exact(out.x), np.random.default_rng(0)
    near = [np.clip(out.x + rng.normal(scale=s, size=5), 0, 9) for s in (0.01, 0.1, 1.0) for _ in range(200)]
    assert min(map(exact, near)) >= here - 20 * 0.63 * sigma.sum() / TANGENTS**2 - 1e-6
    missed = shortage(model, noise, prices, out.x, *parts[1:])
    assert missed.cost(prices) == pytest.approx(here - c @ out.x)
    assert np.abs(out.dual[rows] / 20 - missed.chance_above[rows]).max() < STEP


def test_private_coefficients_with_integers_are_a_mean_over_draws() -> None:
    model = diet(integer=True)
    noise, prices = designed(model), at(model, 20.0)
    parts = drawn(model, noise, 0)
    wide = _wide(model, noise, prices, _released(model, prices, *parts), _laws(model, noise, prices, parts[1]))
    assert {block.kind for block in wide.cones} <= {"zero", "nonneg"}
    out = solve_priced(model, options(prices), noise, *parts)
    relaxed = solve_priced(diet(), options(prices), noise, *parts)
    assert out.x is not None and np.allclose(out.x, np.round(out.x), atol=1e-6)
    rows = np.flatnonzero(priced_rows(model))
    c, b, A = model.form.with_noise(*parts)

    def exact(x: Floats) -> float:
        sigma = noise_terms(model, noise, rows).sigma(x)
        return float(c @ x + 20 * Laws(sigma, np.zeros(rows.size, dtype=bool)).amounts((A @ x - b)[rows])[0].sum())

    corners = (np.floor(relaxed.x) + np.array(step) for step in itertools.product((0, 1), repeat=5))
    assert exact(relaxed.x) - 0.1 <= exact(out.x) <= 1.15 * min(map(exact, corners))


# ---------------------------------------------------------------------------------- what stands, what is refused
def test_rows_without_a_price_stand_and_give_way_only_where_they_must() -> None:
    x = cp.Variable(2, nonneg=True, name="x")
    a, b = private([9.0, 14.0], "a"), private([20.0], "b")
    model = read(cp.Minimize(cp.sum(x)), [(x >= a).set_label("priced"), (cp.sum(x) <= b).set_label("stands")])
    noise = designed(model)
    m, rows = model.affine.rows, np.flatnonzero(priced_rows(model))
    assert rows.size == 3
    prices = Prices(np.zeros(m), np.zeros(m))
    prices.above[rows[:2]] = 5.0
    parts = drawn(model, noise, 0)
    out = solve_priced(model, options(prices), noise, *parts)
    assert out.status == "optimal" and parts[1] is not None
    assert out.x is not None and out.x.sum() <= parts[1][rows[2]] + 1e-6
    never = parts[1].copy()
    never[rows[2]] = -3.0
    out = solve_priced(model, options(prices), noise, None, never, None)
    assert out.status == LEAST_VIOLATION and out.extra_violation == pytest.approx(3.0, abs=1e-4)
    assert out.x is not None and np.abs(out.x).max() < 1e-4


def test_what_is_missed_is_told_in_the_constraints_own_words() -> None:
    """Few constraints a line each, of many one for all; with units of unequal size."""
    x = cp.Variable(6, nonneg=True, name="x")
    sides = [private([10.0 * k, 7.0], f"b{k}") for k in range(1, 7)]
    rows = [(x[k] >= side[0]).set_label(f"row {k}") for k, side in enumerate(sides)]
    for count, lines in ((2, 2), (6, 1)):
        model = read(cp.Minimize(cp.sum(x)), rows[:count])
        noise, prices = designed(model), at(model, 10.0)
        parts = drawn(model, noise, 0)
        out = solve_priced(model, options(prices), noise, *parts)
        missed = shortage(model, noise, prices, out.x, *parts[1:])
        assert len(out.notes) == lines and out.notes[0].startswith("row 0")
        said = float(re.findall(r"probability ([\d.]+)", out.notes[0])[0])
        told = missed.chance_above[priced_rows(model)]
        assert said == pytest.approx(told[0] if count == 2 else told.mean(), rel=1e-3)
        assert ("and 5 more: 6 rows" in out.notes[0]) == (count == 6)


def test_declared_bounds_are_not_used_for_priced_rows() -> None:
    x = cp.Variable(1, name="x")
    model = read(cp.Minimize(x[0]), [x >= private([2.0], bounds=[0, 5])])
    noise, prices = designed(model), at(model, 4.0)
    answers = [solve_priced(model, options(prices), noise, None, np.array([-v]), None).x[0] for v in (-3.0, 0.0, 8.0)]
    assert np.allclose(np.diff(answers), [3.0, 8.0], atol=1e-6)


def test_what_has_no_amount_is_refused() -> None:
    x = cp.Variable(2, name="x")
    c = private([1.0, 2.0], "c")
    assert "no constraint is private" in can_price(read(cp.Minimize(c @ x), [x >= 0])).reason
    cone = read(cp.Minimize(cp.sum(x)), [cp.SOC(private(3.0, "r"), x)])
    assert "other cones" in can_price(cone).reason
    split = read(cp.Minimize(cp.norm(x - private([1.0, 2.0], "t"), 1)), [x >= 0])
    assert "split expressions" in can_price(split).reason
    assert can_price(transport()).eligible


# ---------------------------------------------------------------------------------- default prices, closed forms
def test_default_prices_are_multipliers_over_the_share_short() -> None:
    model = flow()
    truth = drawn(model, designed(model), None)
    dual = solve_cone_program(relaxed_program(model, *truth, np.zeros(model.affine.rows))).dual
    rows = priced_rows(model)
    prices = default_prices(model, Options(1.0, service=0.9), *truth)
    size = np.abs(dual[rows])
    assert set(np.round(size, 6)) == {6.0, 8.0}
    short, surplus = np.maximum(prices.above, prices.below)[rows], np.minimum(prices.above, prices.below)[rows]
    assert np.allclose(short, 10 * size) and np.allclose(surplus, size)
    assert ((prices.above > prices.below)[rows] == (dual[rows] > 0)).all(), "missing it to save cost is a shortage"
    assert (prices.above[~rows] == 0).all()
    # Inequalities; a row that does not bind gets the median of the others.
    x = cp.Variable(4, nonneg=True, name="x")
    loose = read(cp.Minimize(np.array([1.0, 2, 6, 0]) @ x), [x >= private([3.0, 4, 5, 6]), x[3] >= 10])
    found = default_prices(loose, Options(1.0, service=0.8), *drawn(loose, designed(loose), None))
    assert np.allclose(found.above[priced_rows(loose)], [5, 10, 30, 10]) and not found.below.any()
    # Sides that contradict each other still tell.
    tight = transport()
    parts = drawn(tight, designed(tight), None)
    assert (
        default_prices(tight, Options(1.0, service=0.9), None, 2 * parts[1], None).above[priced_rows(tight)] > 0
    ).all()


def test_equalities_are_short_below_their_numbers_where_no_multiplier_tells() -> None:
    """x_0 binds from below (missing it there saves cost), x_1 from above; x_2 costs nothing, written either way."""
    x = cp.Variable(3, bounds=[0, 9], name="x")
    need = private([1.0, 2.0, 3.0])
    for sign in (1, -1):
        rows = [x[:2] == need[:2], sign * x[2] == sign * need[2]]
        model = read(cp.Minimize(x[0] - 2 * x[1]), rows)
        prices = default_prices(model, Options(1.0), *drawn(model, designed(model), None))
        assert prices.below[0] == pytest.approx(10) and prices.above[0] == pytest.approx(1)
        assert prices.above[1] == pytest.approx(20) and prices.below[1] == pytest.approx(2)
        short, surplus = (prices.below, prices.above)[::sign]
        assert short[2] == pytest.approx(10 * surplus[2]) and np.array_equal(
            short_below(model)[:3], [True, True, sign > 0]
        )


def test_default_prices_of_integers_are_those_of_the_relaxation() -> None:
    x = cp.Variable(2, integer=True, name="x")
    model = read(cp.Minimize(x[0] + 2 * x[1]), [x >= private([4.3, 2.6])])
    prices = default_prices(model, Options(1.0, service=0.9), *drawn(model, designed(model), None))
    assert np.allclose(prices.above[priced_rows(model)], [10, 20])


def test_prices_come_of_the_public_level_or_of_the_released_numbers() -> None:
    """Two parameters of unequal size. A level that leaves no point tells nothing: its multipliers are those of giving
    way."""

    def made(**declared: Any) -> tuple[Program, Floats]:
        x = cp.Variable(3, nonneg=True, name="x")
        one, other = private([30.0, 4.0], "one", **declared), private([9.0], "other", linf=3, typical=8.0)
        rows = [x[:2] >= one, x[2:] >= other, x[0] <= 50]
        model = read(cp.Minimize(np.array([2.0, 3.0, 4.0]) @ x + cp.pos(x[0] - 20)), rows)
        level = Options(1.0, feasibility="priced", service=0.8)
        return model, usual_prices(model, level, *drawn(model, designed(model), None)).above[priced_rows(model)]

    assert np.allclose(made(typical=5.0)[1], [10, 15, 20]), "at 5 the first is below 20"
    assert np.allclose(made()[1], [15, 15, 20]), "no level: as released"
    assert np.allclose(made(typical=[60.0, 5.0])[1], [15, 15, 20]), "no point at that level"
    model, _ = made()
    given = at(model, 7.0)
    assert usual_prices(model, options(given), None, None, None) is given


def test_service_is_kept() -> None:
    """Default prices for .9: a tenth of the rows is short."""
    x, need = cp.Variable(60, name="x"), np.random.default_rng(7).uniform(0, 3000, 60)
    model = read(cp.Minimize(np.linspace(1, 9, 60) @ x), [x >= private(need)])
    noise, short = designed(model), []
    prices = default_prices(model, Options(1.0, service=0.9), *drawn(model, noise, None))
    for seed in range(30):
        out = solve_priced(model, options(prices), noise, *drawn(model, noise, seed))
        short.append((out.x < need).mean())
    assert abs(np.mean(short) - 0.1) < 5 * np.sqrt(0.09 / 1800) + STEP / 2


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_closed_forms_are_what_is_realised(kind: str) -> None:
    """Two parameters of unequal size and noise in rows that always bind; and the note's formulas for one row."""
    cost = np.array([1.0, 3.0, 2.0, 5.0, 4.0])
    x = cp.Variable(5, name="x")
    one, other = private([90.0, 80.0, 70.0], "one"), private([900.0, 800.0], "other", linf=4)
    model = read(cp.Minimize(cost @ x), [x[:3] >= one, x[3:] >= other])
    noise, prices = designed(model, kind), at(model, 12.0)
    truth = drawn(model, noise, None)
    best = penalised(model, prices, np.array([90.0, 80, 70, 900, 800]), truth)
    law = laws_of(model, noise, np.arange(5))
    y, s = cost, law.scale
    by_hand = y * s * (1 + np.log(12 / (2 * y)))
    if kind == "gaussian":
        by_hand = 12 * s * norm.pdf(norm.ppf(y / 12))
    tau = 4 * s
    told = {
        "priced": expected_cost(model, noise, prices, y).cost,
        "centred": expected_cost(model, noise, prices, y, np.zeros(5)).cost,
        "safe": expected_cost(model, noise, prices, y, -tau).cost,
        "relaxed": expected_cost(model, noise, prices, y, tau).cost,
    }
    assert told["priced"] == pytest.approx(by_hand.sum())
    mean = (s / 2 if kind == "laplace" else s / np.sqrt(2 * np.pi)).sum() * 12
    assert told["centred"] == pytest.approx(mean)
    assert told["safe"] == pytest.approx((y * tau).sum(), rel=0.05)
    assert told["relaxed"] == pytest.approx(((12 - y) * tau).sum(), rel=0.05)
    found: dict[str, list[float]] = {name: [] for name in told}
    for seed in range(600):
        parts = drawn(model, noise, seed)
        if seed < 150:
            out = solve_priced(model, options(prices), noise, *parts)
            found["priced"].append(penalised(model, prices, out.x, truth) - best)
        for name, move in (("centred", 0 * s), ("safe", -tau), ("relaxed", tau)):
            moved = relaxed_program(model, *parts, move)
            found[name].append(penalised(model, prices, -moved.b[np.argmax(-moved.A.toarray(), axis=0)], truth) - best)
    for name, costs in found.items():
        assert abs(np.mean(costs) - told[name]) < 5.5 * np.std(costs) / np.sqrt(len(costs)) + 0.02 * told[name], name
    assert told["priced"] < min(told[name] for name in told if name != "priced")


def test_closed_forms_of_equalities_and_of_rows_that_do_not_bind() -> None:
    model = flow()
    noise, prices = designed(model), at(model, 60.0, 3.0)
    dual = np.zeros(model.affine.rows)
    rows = np.flatnonzero(priced_rows(model))
    assert expected_cost(model, noise, prices, dual).cost == 0
    dual[rows] = 6.0, -1.0
    s = laws_of(model, noise, rows).scale
    share = (dual[rows] + 3) / 63
    expected = 63 * (s * share * (1 + np.log(1 / (2 * share)))).sum()
    assert expected_cost(model, noise, prices, dual).cost == pytest.approx(expected)
    assert expected_cost(model, noise, prices, dual, 0 * dual).cost == pytest.approx(63 / 2 * s.sum())


def test_closed_form_with_private_coefficients_uses_the_deviation_at_x() -> None:
    model = diet()
    noise, prices = designed(model, "gaussian"), at(model, 20.0)
    rows = np.flatnonzero(priced_rows(model))
    dual, x = np.zeros(model.affine.rows), np.array([1.0, 2, 0, 3, 1])
    dual[rows[0]] = 2.0
    sigma = noise_terms(model, noise, rows).sigma(x)[0]
    assert expected_cost(model, noise, prices, dual, 0 * dual, x).cost == pytest.approx(20 * sigma / np.sqrt(2 * np.pi))


# ---------------------------------------------------------------------------------- the learnt prior
def needs(values: Any, **declared: Any) -> Program:
    x = cp.Variable(len(values), name="x")
    cost = np.linspace(1, 3, len(values))
    return read(cp.Minimize(cost @ x), [x >= private(values, "need", **{"bounds": [0, 1000], **declared})])


def excess(values: Floats, epsilon: float, seeds: range, **declared: Any) -> tuple[float, float, int]:
    """Mean excess of the penalised cost with the flat prior and with the learnt one, and how often it is on."""
    model = needs(values, **declared)
    noise, rows = designed(model, epsilon=epsilon), np.flatnonzero(priced_rows(model))
    column = np.asarray(np.abs(model.form.A0[rows]).argmax(axis=1)).ravel()
    y, true, flat, learnt, on = model.form.c0[column], values[column], [], [], 0
    for seed in seeds:
        b = drawn(model, noise, seed)[1]
        for law, found in ((laws_of(model, noise, rows), flat), (laws_of(model, noise, rows, b), learnt)):
            stock = -b[rows] - law.gaps(y / 12)
            found.append(float((y * (stock - true) + 12 * np.maximum(true - stock, 0)).sum()))
            on += bool(law.tables)
    return float(np.mean(flat)), float(np.mean(learnt)), on


def test_a_prior_helps_where_noise_is_as_large_as_the_spread_and_is_off_where_it_is_small() -> None:
    values = np.random.default_rng(0).poisson(4, 60).astype(float)
    flat, learnt, on = excess(values, 0.5, range(20))
    assert on >= 17 and learnt < 0.75 * flat
    wide = np.round(np.random.default_rng(0).uniform(100, 600, 60))
    assert excess(wide, 1.0, range(5))[2] == 0
    assert excess(values[:11], 0.5, range(5))[2] == 0, "few entries"


def test_a_prior_that_the_numbers_contradict_is_off() -> None:
    """Planted, without the comparison of the fitted law with the numbers: one entry of 200 among 60 of about 4 made a
    gamma cost half as much again."""
    values = np.r_[200.0, np.random.default_rng(0).poisson(4, 59)]
    flat, learnt, on = excess(values, 0.25, range(12))
    assert on <= 1 and learnt <= 1.02 * flat


def test_a_prior_never_costs_more_than_noise() -> None:
    rng = np.random.default_rng(5)
    for values in (np.full(40, 10.0), np.zeros(40), rng.poisson(30, 40), np.where(rng.random(40) < 0.5, 2.0, 14.0)):
        for declared in ({}, {"bounds": None}):
            flat, learnt, _ = excess(np.asarray(values, dtype=float), 0.5, range(16), **declared)
            assert learnt <= 1.03 * flat


def test_a_posterior_is_that_of_bayes() -> None:
    """Against sums over a fine grid; for a negative factor too, where the noise of the row is the other way round."""
    x = cp.Variable(30, name="x")
    values = np.random.default_rng(1).poisson(4, 30).astype(float)
    need = private(values, "need", bounds=[0, 100])
    model = read(cp.Minimize(cp.sum(x)), [x[:15] >= 2 * need[:15], -x[15:] >= need[15:], x[15:] >= -50])
    noise, rows = designed(model, epsilon=0.4), np.flatnonzero(priced_rows(model))
    b = drawn(model, noise, 2)[1]
    law = laws_of(model, noise, rows, b)
    assert law.tables and "need: a gamma prior" in law.notes[0]
    mean, deviation = map(float, re.findall(r"[\d.]+", law.notes[0])[:2])
    theta = np.linspace(1e-6, 150, 300_001)
    prior = gamma(mean**2 / deviation**2, scale=deviation**2 / mean).pdf(theta)
    released = np.abs(b[rows] / np.where(np.abs(law.scale - law.scale.min()) > 1e-9, 2.0, 1.0)) * np.sign(-b[rows])
    for k in (0, 5, 20, 29):
        factor = -2.0 if law.scale[k] > law.scale.min() * 1.5 else -1.0
        weight = prior * np.exp(-np.abs(theta - released[k]) / law.scale.min())
        gap = -1.0
        # The true right-hand side is factor theta: the gap grows by what the released one is above it.
        exact = (weight * np.maximum(gap + b[rows][k] - factor * theta, 0)).sum() / weight.sum()
        r = np.full(rows.size, gap)
        assert law.amounts(r)[0][k] == pytest.approx(exact, rel=0.02, abs=0.02)


def test_gaussian_noise_of_sums_is_exact() -> None:
    assert isinstance(designed(transport(), "gaussian").parts["scalar"].distribution, Gaussian)
    law = laws_of(transport(), designed(transport(), "gaussian"), np.flatnonzero(priced_rows(transport())))
    assert not law.laplace.any() and not law.tables


# ---------------------------------------------------------------------------------- parameters of whole numbers
@pytest.mark.parametrize("spread", [3.0, 500.0], ids=["a prior", "no prior"])
def test_whole_numbers_have_their_mass_there(spread: float) -> None:
    """Rows of both signs and of a factor: masses by enumeration of the true whole numbers."""
    rng = np.random.default_rng(5)
    need = np.rint(rng.gamma(4, spread, 40))
    x = cp.Variable(80, name="x")
    made = private(need, "need", integer=True, nonneg=True)
    model = read(cp.Minimize(cp.sum(x)), [x[:40] >= made, 3 * x[40:] <= 2 * made + 0.5])
    noise, rows = designed(model), np.flatnonzero(priced_rows(model))
    scale = float(noise.parts["scalar"].distribution.scale)  # type: ignore[union-attr]
    drawn = need + scale * rng.laplace(size=40)
    b, released = np.concatenate([-drawn, 2 * drawn]), np.concatenate([drawn, drawn])
    law = laws_of(model, noise, rows, b)
    assert bool(law.notes) is (spread == 3.0) and len(law.tables) == 1
    whole = np.arange(-60, 20_001.0)
    gap = rng.normal(size=80) - 0.5
    for row, z in enumerate(gap):
        weight = np.exp(-np.abs(whole - released[row]) / scale)
        if law.notes:
            words = re.search(r"gamma prior \(mean ([\d.]+), deviation ([\d.]+)\)", law.notes[0])
            assert words is not None
            shape = (float(words[1]) / float(words[2])) ** 2
            edges = np.append(whole - 0.5, whole[-1] + 0.5)
            weight = weight * np.diff(gammainc(shape, np.maximum(edges, 0) * shape / float(words[1])))
        true = z + np.where(row < 40, 1.0, -2.0) * (whole - released[row])  # the true gap at each whole number
        weight = weight / weight.sum()
        seen = [float(weight @ each) for each in (np.maximum(true, 0), np.maximum(-true, 0), true > 0, true < 0)]
        told = [float(each[row]) for each in (*law.amounts(gap), *law.chances(gap))]
        assert told == pytest.approx(seen, rel=2e-3, abs=2e-3), row
    share = np.full(80, 0.2)
    at = law.gaps(share)
    assert (law.chances(at + 1e-3)[0] >= 0.2).all() and (law.chances(at - 1e-3)[0] <= 0.2).all()
    slopes, kinks = law.kinks()
    assert (np.diff(kinks, axis=1) >= 0).all() and np.allclose(slopes[:, -1], 1)


def test_whole_rows_are_short_as_often_as_is_said() -> None:
    """Whole staff for whole needs: of 1,000 rows .22 are short, and .32 would be if needs could lie between. Deviations
    of the count are below 14; the bound is passed with probability below 1e-6."""
    need = np.random.default_rng(3).integers(10, 400, 1000).astype(float)
    staff = cp.Variable(1000, integer=True, name="staff")
    problem = dpm.Problem(cp.Minimize(cp.sum(staff)), [staff >= private(need, "need", integer=True)])
    problem.solve(1.0, feasibility="centred", rng=0)
    assert problem.release is not None
    told, short = problem.release.expected["short"], (staff.value < need - 1e-6).sum()
    assert abs(told - short) < 70 and abs(short - 220) < 70
    missed = np.maximum(need - staff.value, 0).sum()
    assert problem.release.expected["shortage"] == pytest.approx(missed, rel=0.25)
