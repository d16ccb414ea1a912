"""The benchmark's people: the CVXPY model and the rows of data are one instance, and the optimum beside them is one."""

from __future__ import annotations

import numpy as np
import pytest

from dpmodel.joint.outcome import Prices
from dpmodel.joint.read import read
from dpmodel.joint.table import people_table
from tests.benchmarks.joint.instances import KINDS, Instance, instance
from tests.benchmarks.joint.optimum import by_highs, handed, optimum

ALL = [(kind, variant) for kind, variants in KINDS.items() for variant in variants]
LARGEST_USE = {"charging": np.sqrt(8), "timetables": np.sqrt(3), "appointments": 1.0, "advertisers": 1.0}


def _prices(of: Instance, prices: list[np.ndarray], scales: np.ndarray | None = None) -> Prices:
    size, steps = of.capacity.size, len(prices)
    scales = np.ones(size) if scales is None else scales
    array, weights = np.array(prices), np.full(steps, 1 / steps)
    return Prices("optimal", array, weights, scales, np.inf, np.zeros((0, size)), of.capacity, 0.0)


@pytest.mark.parametrize(("kind", "variant"), ALL)
def test_model_and_rows_are_one_instance(kind: str, variant: str) -> None:
    of = instance(kind, 60, variant=variant)
    found = read(of.problem())
    np.testing.assert_array_equal(people_table(found).rows, of.table.rows)
    np.testing.assert_array_equal(found.capacity, of.capacity)
    assert found.form.to_dict() == of.form.to_dict() and found.form.single
    assert found.form.integral == (variant == "whole") and found.most_value == (1 if kind == "advertisers" else np.inf)
    assert found.largest_use == pytest.approx(LARGEST_USE[kind])
    again = instance(kind, 60, variant=variant)
    assert all(np.array_equal(again.private[name], array) for name, array in of.private.items())


@pytest.mark.parametrize(("kind", "variant"), ALL)
def test_the_dual_finds_the_optimum_of_the_linear_program(kind: str, variant: str) -> None:
    of = instance(kind, 120, variant=variant)
    best, highs = optimum(of), by_highs(of)
    assert highs * (1 - 1e-9) <= best.value <= highs * (1 + 1e-3)
    # Capacities decide: without them people would have a tenth more at the least.
    assert handed(of, _prices(of, [np.zeros(of.capacity.size)])).value > 1.1 * best.value


def test_a_search_that_starts_on_a_few_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    of = instance("charging", 700)
    alone = optimum(of).value
    monkeypatch.setattr("tests.benchmarks.joint.optimum._FEW", 200)
    assert optimum(of).value == pytest.approx(alone, rel=1e-4)


def test_what_is_handed_out_is_what_each_person_computes() -> None:
    of = instance("timetables", 50, variant="courses")
    rng, scales = np.random.default_rng(0), np.ones(36)
    scales[:4] = 0.5
    prices = _prices(of, list(rng.uniform(0, 0.4, (3, 36))), scales)
    worth, catalog = of.private["worth"], np.zeros((90, 36))
    catalog[of.form.use_at[1], of.form.use_at[0]] = of.form.use.constant
    value, used = 0.0, np.zeros(36)
    for person in worth:
        share = np.zeros(90)
        for step in prices.prices:
            gain = person - catalog @ step
            share[gain.argmax()] += (gain.max() > 0) / 3
        share *= np.where(catalog[:, :4].any(axis=1), 0.5, 1.0)
        value, used = value + person @ share, used + share @ catalog
    found = handed(of, prices)
    assert found.value == pytest.approx(value)
    np.testing.assert_allclose(found.used, used)
    assert found.over(used * (1 + 1e-12)) == 0 and found.over(used * 0.99) == (used > 0).sum()


def test_more_people_are_more_of_the_same() -> None:
    few, many = (optimum(instance("advertisers", n)).value / n for n in (2000, 8000))
    assert few == pytest.approx(many, rel=0.1)
