"""Margins of cones from the law of the noise: they cover it as often as they say, and a tenth less does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cases import CASES, cone_gap
from scipy.stats import binom

import dpmodel as dpm
from dpmodel._types import Floats
from dpmodel.contract import Options
from dpmodel.marks import Private
from dpmodel.privacy import SeededSource
from dpmodel.programs.feasibility import treat
from dpmodel.programs.margins import margin, mean_shortfalls, reach_on_b, row_margins, simulated_margins
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, design_noise

BETA, DRAWS = 0.1, 2000


def symmetric(side: int, name: str = "C") -> tuple[list[Any], Any]:
    C = Private(np.eye(side), shape=(side, side), symmetric=True, name=name, unit="entry", linf=1.0)
    X = cp.Variable((side, side), symmetric=True)
    return [X >> C], cp.trace(X)


def ball(size: int) -> tuple[list[Any], Any]:
    b = Private(np.ones(size), shape=(size,), name="b", l2=1.0)
    x = cp.Variable(size)
    return [cp.norm2(x - b) <= 9], cp.sum(x)


def several() -> tuple[list[Any], Any]:
    """Cones of unequal size, with a private radius in one, and linear rows and equalities of the same people."""
    one, first = symmetric(3)
    two, second = symmetric(5, "D")
    three, third = ball(4)
    r = Private([9.0, 7.0, 1.0], shape=(3,), name="r", unit="entry", linf=0.5)
    x = cp.Variable(3)
    rows = [cp.norm2(x) <= r[0], x[0] >= r[1] - 20, x[1] + x[2] == r[2]]
    return [*one, *two, *three, *rows], first + second + third + cp.sum(x)


def entropies() -> tuple[list[Any], Any]:
    b = Private([0.2, -0.1], shape=(2,), name="b", unit="entry", linf=0.1)
    x, y = cp.Variable(2), cp.Variable(2)
    return [cp.exp(x + b) <= y, cp.geo_mean(cp.hstack([x[0] + b[0], y[1]])) >= 1], cp.sum(y) - cp.sum(x)


MODELS: dict[str, Callable[[], tuple[list[Any], Any]]] = {
    **{f"side {side}": (lambda side=side: symmetric(side)) for side in (2, 7, 20)},
    **{f"ball {size}": (lambda size=size: ball(size)) for size in (1, 30)},
    "several": several,
    "entropies": entropies,
}


def opened(name: str, kind: str, feasibility: Any = "relaxed") -> tuple[Program, NoiseDesign, Options]:
    rows, cost = MODELS[name]()
    model = dpm.Problem(cp.Minimize(cost), rows)._model(None)
    options = Options(1.0, 1e-6, BETA, feasibility)
    return model, design_noise(model, options, {"scalar": kind}), options  # type: ignore[dict-item]


def noise_of(model: Program, noise: NoiseDesign, seed: int) -> Floats:
    """(draws, m) of the noise on b."""
    part = noise.parts["scalar"]
    assert part.distribution is not None
    out = np.zeros((DRAWS, model.affine.rows))
    draws = part.distribution.add_to(np.zeros((DRAWS, part.measurement.count)), SeededSource(seed))
    out[:, part.measurement.positions] = draws @ part.measurement.recover.T
    return out


def needed(model: Program, e: Floats) -> Floats:
    """(m,) what each row or cone needs to give way for e, by the definitions of the cones."""
    out = np.zeros(e.size)
    for block in model.affine.cones:
        part = e[block.rows]
        if block.kind == "zero":
            out[block.rows] = np.abs(part)
        elif block.kind == "nonneg":
            out[block.rows] = np.maximum(-part, 0.0)
        else:
            cuts = np.cumsum(block.sizes)[:-1]
            alphas = block.alphas or (0.0,) * len(block.sizes)
            gaps = [cone_gap(block.kind, v, (a,)) for v, a in zip(np.split(part, cuts), alphas, strict=True)]
            out[block.rows] = np.repeat(gaps, block.sizes)
    return out


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", MODELS)
def test_margins_cover_the_noise_as_often_as_they_say(name: str, kind: str) -> None:
    model, noise, _ = opened(name, kind)
    t = simulated_margins(model, noise, sides=2)
    if t is None:
        assert name in ("ball 1", "entropies"), "the box is as good only for the smallest cones"
        return
    few = slice(None, 400) if name in ("entropies", "side 20") else slice(None)
    drawn = noise_of(model, noise, 7)[few]
    need = np.array([np.maximum(needed(model, e), needed(model, -e)) for e in drawn])
    missed = int((need > t * (1 + 1e-9)).any(axis=1).sum())
    assert binom.sf(missed - 1, len(drawn), BETA) > 1e-7
    found = int((need > 0.75 * t).any(axis=1).sum())
    assert binom.sf(found - 1, len(drawn), BETA) < 1e-7, "three quarters of it are too little"
    assert (t <= 1.05 * margin(model.affine, reach_on_b(model, noise)))[t > 0].any()
    margins = row_margins(model, noise)
    assert np.array_equal(margins.one, t) and np.array_equal(margins.all, t)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", ["side 7", "ball 30", "several"])
def test_safe_rows_are_covered_on_their_side(name: str, kind: str) -> None:
    rows, cost = MODELS[name]()
    rows = [row for row in rows if not isinstance(row, cp.constraints.Equality)]
    model = dpm.Problem(cp.Minimize(cost), rows)._model(None)
    options = Options(1.0, 1e-6, BETA, "safe")
    noise = design_noise(model, options, {"scalar": kind})  # type: ignore[dict-item]
    done = treat(model, options, noise)
    need = np.array([needed(model, -e) for e in noise_of(model, noise, 8)])
    missed = int((need > -done.relax * (1 + 1e-9)).any(axis=1).sum())
    assert binom.sf(missed - 1, DRAWS, BETA) > 1e-7
    assert -done.relax.sum() <= row_margins(model, noise).one.sum() * 1.001
    # The other tail, of which the forecast says how far sides can end inside the true ones.
    inside = int((needed(model, 0 * need[0])[None] + np.array([needed(model, e) for e in noise_of(model, noise, 9)])
                  - done.relax > done.tightening * (1 + 1e-9)).any(axis=1).sum())  # fmt: skip
    assert binom.sf(inside - 1, DRAWS, BETA) > 1e-7


@pytest.mark.parametrize("name", ["side 7", "ball 30", "several"])
def test_the_mean_shortfall_is_an_estimate(name: str) -> None:
    model, noise, _ = opened(name, "gaussian")
    mean = mean_shortfalls(model, noise)
    assert mean is not None
    real = np.mean([needed(model, e) for e in noise_of(model, noise, 3)[:500]], axis=0)
    assert mean[mean > 0] == pytest.approx(real[mean > 0], rel=0.15)


def test_a_margin_is_far_below_that_of_the_box() -> None:
    """Entry by entry, the bounds of a matrix of side 20 are those of one in which all are largest at once."""
    model, noise, _ = opened("side 20", "gaussian")
    t = simulated_margins(model, noise, sides=2)
    assert t is not None and t.max() < margin(model.affine, reach_on_b(model, noise)).max() / 7


def test_strict_covers_with_certainty() -> None:
    """Noise with a bound keeps its box, and is moved into its range."""
    model = CASES["ball"].open().model
    noise = design_noise(model, Options(1.0, 1e-3, BETA, "strict"), {"scalar": "truncated"})
    assert simulated_margins(model, noise, sides=1) is None and noise.parts["scalar"].clip
