"""What holds of every mechanism that searches a cone for a point with a margin."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from exact_standins import quick_forecasts
from inequalities import missed, planted_system, system, unit
from scipy.stats import norm

from dpmodel.contract import Mechanism, Options
from dpmodel.exact import hinge_descent
from dpmodel.exact.cones import KINDS, CountNoise, GridRows, finisher, missed_counts
from dpmodel.exact.rescaling_perceptron import RESCALING_PERCEPTRON, RescalingPerceptron, plan_search
from dpmodel.privacy import SeededSource

ONE, FOUR = Options(1.0, 1e-6), Options(4.0, 1e-6)
HINGE = hinge_descent.HINGE_DESCENT
BOTH = [HINGE, RESCALING_PERCEPTRON]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hinge descent in few steps."""
    monkeypatch.setattr(hinge_descent, "_MOST_STEPS", 200)


def names(mechanisms: Any) -> dict[str, Any]:
    return {"argvalues": mechanisms, "ids": [each.name for each in mechanisms]}


# ---------------------------------------------------------------------- budget


def test_choice_by_noisy_counts() -> None:
    noise, source = CountNoise("gaussian", 5.0), SeededSource(1)
    rows = GridRows.of(np.tile([[1.0, 0.0]], (1000, 1)))
    points = [np.array([-1.0, 0.0]), np.array([1.0, 0.0]), np.zeros(2)]
    counts = missed_counts(rows, points)
    assert counts.tolist() == [1000, 0, 1000]
    chosen = noise.choose(points, source.gaussian(counts, 5.0))
    assert chosen.y is points[1] and 0 <= chosen.missed <= 40
    # Between equals noise does not decide often; a candidate that is clearly better is taken all the same.
    taken = [noise.choose(points, source.gaussian(np.zeros(3), 5.0)).y is points[1] for _ in range(100)]
    assert sum(taken) >= 60
    assert noise.lost(0.05) == pytest.approx(5 * 2**0.5 * (1 + norm.isf(0.025)))


# ---------------------------------------------------------------------- utility
def slow(*cases: Any) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(
    ("mechanism", "size", "margin"),
    [
        (HINGE, 5, 0.1), (RESCALING_PERCEPTRON, 5, 0.05),
        *slow((HINGE, 2, 0.3), (HINGE, 20, 0.2), (HINGE, 50, 0.05), (HINGE, 5, 0.01)),
        *slow(*((RESCALING_PERCEPTRON, *c) for c in [(2, 0.3), (2, 0.005), (5, 0.01), (20, 0.05), (50, 0.2)])),
    ],
)  # fmt: skip
def test_planted_systems_are_solved(mechanism: Any, size: int, margin: float) -> None:
    """Far fewer rows are missed than the tenth that the average row misses."""
    memo: dict[Any, Any] = {}  # simulations of a plan, the same for all kinds
    for kind in KINDS:
        model = replace(planted_system(size, margin, 5000, kind, 9, public=-np.eye(size)), _memo=memo)
        found = mechanism.run(model, FOUR, SeededSource(3))
        assert found.status == "found" and found.answer.min() >= -1e-9
        wrong = missed(model, found.answer)
        assert wrong <= 100 and abs(found.missed - wrong) <= 60


@pytest.mark.parametrize("mechanism", **names(BOTH))
def test_standard_form_with_public_rows(quick: None, mechanism: Any) -> None:
    """Private a'x <= b with 0 <= x <= 10 public: the answer is a point x, dense rows or sparse."""
    draw = np.random.default_rng(4)
    G, h = np.vstack([-np.eye(3), np.eye(3)]), np.r_[np.zeros(3), np.full(3, 10.0)]
    A = unit(draw.standard_normal((3000, 3)))
    b = A @ [2.0, 5.0, 4.0] + draw.uniform(1.0, 3.0, 3000)
    facts: dict[str, Any] = {"homogeneous": False, "public": G, "sides": h, "neighbors": "replace-one"}
    model = system(np.hstack([b[:, None], -A]), 0.1, **facts)
    answers = []
    for each in (model, replace(model, _rows=lambda: (sp.csr_array(A), b))):
        found = mechanism.run(each, ONE, SeededSource(1))
        answers.append(found.answer)
        assert found.answer.shape == (3,) and (G @ found.answer <= h + 1e-9).all()
        assert missed(model, found.answer) <= 30
    np.testing.assert_allclose(*answers, atol=1e-6)


def test_answers_with_the_leading_variable_at_zero_are_lifted() -> None:
    model = system(np.zeros((0, 3)), 0.1, homogeneous=False, public=np.array([[-1.0, 0.0]]), sides=np.array([-2.0]))
    y = finisher(model)(np.array([0.0, 1.0, 0.0]))
    assert y[0] > 0 and model.lowered(y)[0] >= 2


def test_the_proved_number_of_missed_rows_holds() -> None:
    """A run fails with probability beta = 0.05 at most: 5 of 5 would have a probability of 3e-7."""
    empty = replace(system(np.zeros((0, 2)), 0.5), expected=2000)
    proved = hinge_descent.proved_missed(empty, FOUR, hinge_descent.plan_hinge(empty, FOUR))
    assert proved < 0.3 * 2000
    models = [planted_system(2, 0.5, 2000, KINDS[seed % 3], seed) for seed in range(5)]
    found = [HINGE.run(model, FOUR, SeededSource(seed)) for seed, model in enumerate(models)]
    assert sum(missed(m, f.answer) > proved for m, f in zip(models, found, strict=True)) < 5


# ---------------------------------------------------------------------- what they say
def test_forecast_words_and_vacuity(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_forecasts(monkeypatch)
    many, few = system(np.zeros((0, 3)), 0.3, expected=20_000), system(np.zeros((0, 20)), 0.05, expected=5)
    good = HINGE.forecast(many, ONE)
    assert not good.vacuous and "proved" in good.statement and "simulations" in good.statement
    assert good.error.missed == min(good.noise["missed, proved"], good.noise["missed, simulated"])
    assert good.error.needed > good.error.missed
    bad = HINGE.forecast(few, Options(0.1, 1e-6))
    assert bad.vacuous and not bad.proved
    pure = HINGE.forecast(many, Options(1.0, 0.0))
    assert "nothing proved" in pure.statement and not pure.vacuous
    perceptron = RESCALING_PERCEPTRON.forecast(planted_system(10, 0.05, 60, "margin", 0), ONE)
    assert perceptron.vacuous and perceptron.error.needed > 60


@pytest.mark.parametrize("mechanism", **names(BOTH))
def test_forecasts_read_no_rows_and_are_computed_once(mechanism: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed() -> Any:
        raise AssertionError("a forecast read private rows")

    quick_forecasts(monkeypatch)
    model = replace(planted_system(3, 0.3, 500, "margin", 0), _rows=closed)
    one = mechanism.forecast(model, ONE)
    number = len(model._memo)
    assert mechanism.forecast(model, ONE).error.missed == one.error.missed and len(model._memo) == number


EMPTY = {"public": np.array([[1.0, 0.0], [-1.0, 0.0]]), "sides": np.array([1.0, -2.0]), "homogeneous": False}


@pytest.mark.parametrize("mechanism", **names(BOTH))
def test_reasons_why_not(mechanism: Any) -> None:
    assert isinstance(mechanism, Mechanism)
    assert mechanism.eligible(system(np.zeros((0, 3)), 0.1), ONE).eligible
    for margin, words in ((None, "margin"), (1.5, "margin"), (math.nan, "margin"), (1e-9, "too small")):
        assert words in mechanism.eligible(system(np.zeros((0, 3)), margin), ONE).reason
    assert "no public point" in mechanism.eligible(system(np.zeros((0, 3)), 0.1, **EMPTY), ONE).reason
    assert "delta" in RESCALING_PERCEPTRON.eligible(system(np.zeros((0, 3)), 0.1), Options(1.0, 0.0)).reason


def test_nothing_where_no_point_is_found() -> None:
    """0 <= -1 for everybody: x0 is driven to 0, which stands for no point."""
    model = system(np.tile([[-1.0, 0.0]], (5000, 1)), 0.2, homogeneous=False)
    found = RESCALING_PERCEPTRON.run(model, ONE, SeededSource(0))
    assert (found.status, found.answer) == ("nothing", None)


def test_rescaling_earns_its_share_where_rows_lean() -> None:
    model = planted_system(10, 0.02, 8000, "skewed", 1)
    each = [RescalingPerceptron(rescaling=how) for how in ("auto", "never")]  # type: ignore[arg-type]
    wrong = [missed(model, mechanism.run(model, ONE, SeededSource(2)).answer) for mechanism in each]
    assert wrong[0] <= 20 < 200 < wrong[1]
    assert plan_search(model, ONE).rescaling is not None
