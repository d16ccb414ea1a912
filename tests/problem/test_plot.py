"""The feasible set of a problem in two variables: public facts and the release, never a private value."""

from __future__ import annotations

import sys
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.marks import vault

pytest.importorskip("matplotlib")
PLANTED = 7.7777


def hours(value: Any = (14.0, 9.0), bounds: Any = (0, 24), unit: str = "entry") -> dpm.Problem:
    free = dpm.Private(value, name="hours", unit=unit, linf=0.2, bounds=bounds)
    x = cp.Variable(2, nonneg=True, name="x")
    rows = [(2 * x[0] + x[1] <= free[0]).set_label("machine"), (x[0] + 3 * x[1] <= free[1]).set_label("staff"), x <= 8]
    return dpm.Problem(cp.Maximize(3 * x[0] + 2 * x[1]), rows)


def areas(figure: Any) -> dict[str, np.ndarray]:
    return {patch.get_gid(): patch.get_xy() for patch in figure.axes[0].patches if patch.get_gid()}


def caption(figure: Any) -> str:
    return figure.get_supxlabel().replace("\n", " ")


def line(figure: Any, label: str) -> np.ndarray:
    return next(each.get_xydata() for each in figure.axes[0].get_lines() if each.get_label() == label)


def test_rows_stand_at_the_middle_of_their_ranges_with_bands_as_wide_as_the_noise() -> None:
    problem = hours()
    figure = problem.plot(1.0)
    corners = areas(figure)
    assert {tuple(p) for p in np.round(corners["public"], 9)} == {(0, 0), (8, 0), (8, 8), (0, 8)}
    assert {tuple(p) for p in np.round(corners["drawn"], 9)} == {(0, 0), (6, 0), (4.8, 2.4), (0, 4)}
    assert np.allclose(line(figure, "machine") @ [2, 1], 12) and np.allclose(line(figure, "staff") @ [1, 3], 12)
    reach = problem.plan(1.0).chosen.forecast.noise["scalar"]["largest_noise"]
    for band, a in zip(figure.axes[0].collections, ([2, 1], [1, 3]), strict=True):
        off = np.concatenate([path.vertices for path in band.get_paths()]) @ a - 12
        assert np.abs(off).max() == pytest.approx(reach, rel=0.02)
    assert "laplace-once at epsilon 1" in caption(figure) and "probability 0.95" in caption(figure)


def test_rows_that_bind_stand_where_the_release_put_them() -> None:
    problem = hours()
    problem.solve(epsilon=1, rng=1, feasibility="centred")
    figure = problem.plot()
    x = problem.release.variables["x"]
    star = line(figure, "released optimum")
    assert star.tolist() == [x.tolist()]
    least, most = problem.release.moved["constraints"]["machine"]
    assert least == most
    assert np.allclose(line(figure, "machine") @ [2, 1], x @ [2, 1] - most)
    assert "As released, because they bind in it: machine, staff" in caption(figure)
    for a, truth in (([2, 1], 14.0), ([1, 3], 9.0)):  # by the proof, except with probability .05 (seed 1: they do)
        assert abs(x @ a - truth) <= problem.release.accuracy.violation_alpha


def test_no_private_value_is_read_or_shown(monkeypatch: Any) -> None:
    problems = [hours(), hours((PLANTED, 2.2222))]
    problems[1].solve(epsilon=1, rng=1)
    solved = problems.pop()
    problems.append(hours((PLANTED, 2.2222)))

    def read(*_: Any) -> Any:
        raise AssertionError("a private value was read")

    monkeypatch.setattr(vault, "unseal", read)
    one, other = (problem.plot(1.0)._repr_svg_() for problem in problems)
    assert one == other
    figure = solved.plot()
    shown = [each.get_xydata() for each in figure.axes[0].get_lines()] + list(areas(figure).values())
    numbers = np.concatenate([np.ravel(each) for each in shown])
    sides = np.concatenate([np.vstack(shown) @ a for a in ([2, 1], [1, 3])])
    for value in (PLANTED, 2.2222):
        assert not np.isclose(np.concatenate([numbers, sides]), value, atol=1e-4).any()
        assert str(value) not in figure._repr_svg_()


def test_rows_without_a_place_are_named() -> None:
    problem = hours(bounds=None)
    figure = problem.plot(1.0)
    assert "Not drawn" in caption(figure) and "machine, staff" in caption(figure)
    problem.solve(epsilon=1, rng=1)
    assert "Not drawn" not in caption(problem.plot()), "the release places them"


def test_private_coefficients_have_bands_that_widen() -> None:
    A = dpm.Private([[2.0, 1.0], [1.0, 3.0]], name="A", unit="entry", linf=0.02, bounds=[0, 4])
    x = cp.Variable(2, nonneg=True, name="x")
    problem = dpm.Problem(cp.Maximize(3 * x[0] + 2 * x[1]), [(A @ x <= 10).set_label("rows"), x <= 8])
    figure = problem.plot(2.0)
    reach = problem.plan(2.0).chosen.forecast.noise["matrix"]["largest_noise"]
    points = np.concatenate([p.vertices for p in figure.axes[0].collections[0].get_paths()])
    beyond = np.abs(points @ [2, 2] - 10) - reach * np.abs(points).sum(axis=1)
    assert np.abs(beyond).min() < 1e-6 and beyond.max() < 1e-2


def test_other_problems_are_refused_with_what_to_draw_instead(monkeypatch: Any) -> None:
    need = dpm.Private(np.ones(3), name="need", unit="entry", linf=1)
    x = cp.Variable(3, nonneg=True)
    with pytest.raises(dpm.errors.SpecificationError, match="two variables"):
        dpm.Problem(cp.Minimize(cp.sum(x)), [x >= need]).plot()
    y = dpm.Private(np.ones(5), name="y", unit="entry", bounds=[-1, 1])
    with pytest.raises(dpm.errors.SpecificationError, match="regression"):
        dpm.Problem(cp.Minimize(cp.sum_squares(cp.Constant(np.ones((5, 2))) @ cp.Variable(2) - y))).plot()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(dpm.errors.MissingExtraError, match=r"\.\[plot\]"):
        hours().plot()


def test_integers_equalities_and_private_objectives_are_told() -> None:
    cost = dpm.Private([1.0, 2.0], name="cost", unit="entry", linf=0.1)
    x = cp.Variable(2, integer=True, name="x")
    figure = dpm.Problem(cp.Minimize(cost @ x), [x >= 0, x <= 5, x[0] + x[1] == 4]).plot()
    assert "only points with integers" in caption(figure) and "No arrow" in caption(figure)
    assert "No constraint is private" in caption(figure)
    assert any(np.allclose(each.get_xydata() @ [1, 1], 4) for each in figure.axes[0].get_lines())
