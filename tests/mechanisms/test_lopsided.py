"""Every mechanism of linear programs on models without symmetry (``lopsided.py``), at budgets from .01 to 100.

Run on a database, then on neighbours that get the same answers: the same noise is asked for, the same point is
released, and all draws together lose at most the budget. The other half is that they lose much of it: where noise is
too small for one kind of change, it is found out on these neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from families import PORTFOLIO
from families import verdict as verdict_of
from lopsided import FAMILIES, Model, pairs
from replaying import Replay, Transcript

from dpmodel._types import Floats
from dpmodel.compile.affine_map import LinearMap
from dpmodel.compile.footprint import sensitivity_of
from dpmodel.contract import Options
from dpmodel.programs import dense_oracles as linear_oracles
from dpmodel.programs import dense_weights as dense_multiplicative_weights
from dpmodel.programs import hinge as hinge_forecast
from dpmodel.programs import weights as primal_weights
from dpmodel.programs import weights_rows
from dpmodel.programs.model import Program
from dpmodel.programs.rows import public_polyhedron
from dpmodel.solve.registry import by_name

BUDGETS = [(epsilon, delta) for epsilon in (0.01, 1.0, 100.0) for delta in (0.0, 1e-6)]


@pytest.fixture(autouse=True)
def short_games(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step draws is the same in a long game."""
    monkeypatch.setattr(primal_weights, "MOST_STEPS", 4)
    monkeypatch.setattr(dense_multiplicative_weights, "_grid", lambda most: np.arange(1.0, 5.0))
    monkeypatch.setattr(hinge_forecast, "_MOST_STEPS", 3)


def drawn(family: str, seed: int) -> Model:
    return FAMILIES[family](np.random.default_rng([seed, sum(map(ord, family))]))


def share(mechanism: Any, model: Program, options: Options, one: Floats, two: Floats, seed: int) -> float:
    """What a run on ``one`` and its replay on ``two`` lose, as a share of the budget."""
    first = Transcript(seed)
    second, ends = None, []
    for theta in (one, two):
        source = first if second is None else second
        with mock.patch.object(Program, "read_private", lambda self, theta=theta: theta.copy()):
            ends.append(mechanism.run(model, options, source))
        second = second or first.replay()
    before, after = ends
    assert first.draws and second is not None and not second.astray
    assert (before.status, before.value, before.notes) == (after.status, after.value, after.notes)
    assert (before.x is None) == (after.x is None) and (before.x is None or np.array_equal(before.x, after.x))
    forecast = mechanism.forecast(model, options)
    assert 0 < forecast.epsilon <= options.epsilon and forecast.delta <= options.delta
    return first.lost(forecast.epsilon, forecast.delta)


def shares(
    family: str, name: str, options: Options, seeds: Any, count: int, *, listed: bool = False
) -> Iterator[float]:
    """``listed`` : among eight corners of the public set, given as candidates."""
    for seed in seeds:
        made, declared = drawn(family, seed)
        mechanism = by_name(name)
        if listed:
            polytope, rng = public_polyhedron(made.model), np.random.default_rng(seed)
            corners = [polytope.minimise(rng.normal(size=polytope.size)) for _ in range(8)]
            options = replace(options, vertices=np.unique(np.round(corners, 6), axis=0))
        if not verdict_of(mechanism, made.model, options).eligible:
            continue
        for number, (one, two) in enumerate(pairs(made, declared, np.random.default_rng(seed), count)):
            yield share(mechanism, made.model, options, one, two, number)


def asked(name: str, epsilon: float, delta: float) -> Options:
    strict = name.startswith("strict")
    return Options(epsilon, delta, feasibility="strict" if strict else "relaxed")


def most(family: str, name: str, options: Options, seeds: Any = range(3), count: int = 4, **how: Any) -> float:
    return max(shares(family, name, options, seeds, count, **how), default=-1.0)


def found_out(family: str, name: str, options: Options, seeds: Any = range(9), **how: Any) -> bool:
    """Whether some pair loses more than the budget: the first that does ends the search."""
    return any(share > 1 for share in shares(family, name, options, seeds, 4, **how))


def seeds_of(family: str, name: str) -> range:
    """Games lose all they may on few pairs only."""
    return range(5) if name.endswith("multiplicative-weights") and family != "tables" else range(2)


# Which mechanisms serve a family, and the share that some pair is to lose at (1, 1e-6): the published ones draw more
# noise than they need, and long games spread theirs.
SERVED = {
    "sides": {"laplace-once": 0.9, "gaussian-once": 0.9, "multiplicative-weights": 0.25, "algorithm-4": 0.02},
    "prices": {"laplace-once": 0.8, "gaussian-once": 0.9, "vertex-exponential": 0.3, "theorem-34": 0.02},
    "tables": {
        "laplace-once": 0.9, "gaussian-once": 0.9, "strict-truncated-laplace": 0.9,
        "strict-truncated-gaussian": 0.9,
        "noisy-multiplicative-weights": 0.2, "algorithm-5": 0.01, "algorithm-6": 0.01,
    },
    "tables_alone": {"laplace-once": 0.9, "gaussian-once": 0.9, "noisy-multiplicative-weights": 0.6},
    "owners": {
        "laplace-once": 0.9, "gaussian-once": 0.9, "noisy-hinge-descent": 0.9, "dense-multiplicative-weights": 0.3,
        "point-exponential": 0.4,
    },
}  # fmt: skip
PLAYED = [(family, name) for family, names in SERVED.items() for name in names]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), PLAYED)
def test_no_neighbour_loses_more_than_the_budget(family: str, name: str) -> None:
    assert SERVED[family][name] <= most(family, name, asked(name, 1.0, 1e-6), seeds_of(family, name)) <= 1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name"), PLAYED)
def test_at_large_and_pure_budgets_too(family: str, name: str) -> None:
    for epsilon, delta in ((100.0, 1e-6), (1.0, 0.0)):
        assert most(family, name, asked(name, epsilon, delta), range(1), 3) <= 1 + 1e-6


LISTED = [("owners", "dense-multiplicative-weights"), ("owners", "point-exponential"), ("prices", "vertex-exponential")]


@pytest.mark.parametrize("epsilon", [1.0, 100.0])
@pytest.mark.parametrize(("family", "name"), LISTED)
def test_choices_among_listed_points(family: str, name: str, epsilon: float) -> None:
    for delta in (0.0, 1e-6):
        assert 0.1 <= most(family, name, Options(epsilon, delta), range(2), 2, listed=True) <= 1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("name", [each.name for each in PORTFOLIO if each.name != "public-only"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_mechanism_at_every_budget(family: str, name: str, epsilon: float, delta: float) -> None:
    assert most(family, name, asked(name, epsilon, delta), range(10), 8) <= 1 + 1e-6


# ------------------------------------------------------------------ planted faults
def test_coefficients_of_one_sign_only_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_sign(affine: Any, scores: Any) -> float:
        high = np.zeros(affine.theta_size)
        np.maximum.at(high, scores.column, scores.coefficient)
        columns = np.flatnonzero(high > 0)
        spread = LinearMap.of(np.zeros(columns.size), columns, high[columns], 1)
        return max(sensitivity.linf for sensitivity in sensitivity_of(affine, spread).values())

    monkeypatch.setattr(weights_rows, "score_range", one_sign)
    assert found_out("sides", "multiplicative-weights", asked("", 1.0, 0.0))


def test_a_row_that_is_hidden_as_one_entry_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = primal_weights.game_rows

    def broken(model: Program) -> Any:
        rows = honest(model)
        return replace(rows, row_l1=rows.linf, row_l2=rows.linf)

    monkeypatch.setattr(primal_weights, "game_rows", broken)
    for delta in (0.0, 1e-6):
        assert found_out("tables_alone", "noisy-multiplicative-weights", asked("", 1.0, delta))


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_choices_without_noise_at_large_budgets_are_found_out(
    delta: float, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = linear_oracles.exponential_mechanism

    def greedy(scores: Any, reach: float, *, epsilon: float, source: Any) -> int:
        return int(np.argmax(scores)) if epsilon > 2 else honest(scores, reach, epsilon=epsilon, source=source)

    monkeypatch.setattr(linear_oracles, "exponential_mechanism", greedy)
    with pytest.raises(AssertionError):
        most("owners", "dense-multiplicative-weights", asked("", 100.0, delta), range(6), listed=listed)


@pytest.mark.parametrize(("family", "name"), [pair for pair in PLAYED if SERVED[pair[0]][pair[1]] > 0.5])
def test_half_of_the_noise_is_found_out(family: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Transcript, Replay):
        honest = kind._draw

        def halved(
            self: Any, distribution: str, values: Any, scale: float, *rest: Any, honest: Any = honest, **named: Any
        ) -> Any:
            return honest(self, distribution, values, scale / 2, *rest, **named)

        monkeypatch.setattr(kind, "_draw", halved)
    assert found_out(family, name, asked(name, 1.0, 1e-6))
