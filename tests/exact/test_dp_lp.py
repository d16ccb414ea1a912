"""dp-lp on planted integer programs: exact answers, forecasts, refusals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpmodel.contract import Options
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.exact.dp_lp import DP_LP
from dpmodel.exact.dp_lp_forecast import synthetic_program
from dpmodel.exact.flats import satisfied, slack_rows
from dpmodel.exact.model import PrivateInequalities
from dpmodel.privacy import SeededSource

OPTIONS = Options(2.0, 1e-6)


def system(A: Any, b: Any, G: Any = None, h: Any = None, U: int | None = 10, **facts: Any) -> PrivateInequalities:
    A = np.asarray(A)
    d = A.shape[1]
    G = np.zeros((0, d)) if G is None else np.asarray(G, dtype=float)
    h = np.zeros(G.shape[0]) if h is None else np.asarray(h, dtype=float)
    known = {"homogeneous": False, "margin": None, "neighbors": "add-remove", "records": None, "expected": A.shape[0]}
    known.update(facts)
    return PrivateInequalities(
        variables=d, public_rows=G, public_sides=h, largest=U, _rows=lambda: (A, np.asarray(b)), **known
    )


def positive(d: int) -> dict[str, Any]:
    return {"G": -np.eye(d), "h": np.zeros(d)}


def in_box(d: int) -> dict[str, Any]:
    return {"G": np.vstack([-np.eye(d), np.eye(d)]), "h": np.r_[np.zeros(d), np.full(d, 10.0)]}


def program(seed: int, *facts: Any) -> tuple[Any, Any, Any]:
    return synthetic_program(np.random.default_rng(seed), *facts)


def check_public(model: PrivateInequalities, x: tuple[Fraction, ...]) -> None:
    for row, side in zip(model.public_rows, model.public_sides, strict=True):
        assert sum(Fraction(g) * v for g, v in zip(row.tolist(), x, strict=True)) <= Fraction(float(side))


@pytest.mark.parametrize(("d", "public", "hidden"), [(3, in_box, 0), (3, in_box, 2), (5, positive, 1)])
def test_planted_programs_hold_exactly(d: int, public: Any, hidden: int) -> None:
    A, b, x0 = program(10 + hidden, 4000, d, 10, hidden, 300)
    model = system(A, b, **public(d))
    found = DP_LP.run(model, OPTIONS, SeededSource(hidden))
    assert found.status == "found" and all(isinstance(v, Fraction) for v in found.answer)
    check_public(model, found.answer)
    # Exact satisfaction, in Python's own integers, and every hidden equality.
    holds = satisfied(slack_rows(A, b, 10), found.answer, 10)
    assert holds.mean() >= 0.97
    equal = A @ x0 == b
    assert holds[equal].all()
    assert found.notes == (f"{hidden} of {d} dimensions removed by sanitised equations",)
    assert abs(found.missed - np.count_nonzero(~holds)) < 150


def test_combinations_of_hidden_equalities_are_found() -> None:
    """Owners hold combinations: hardly any row occurs twice with its negation, only the span is shared."""
    A, b, x0 = program(3, 5000, 6, 60, 3, 150, True)
    found = DP_LP.run(system(A, b, U=60, **in_box(6)), OPTIONS, SeededSource(1))
    holds = satisfied(slack_rows(A, b, 60), found.answer, 60)
    assert holds[A @ x0 == b].all() and holds.mean() >= 0.97 and found.notes[0].startswith("3 of 6")


def test_replace_one_and_large_numbers() -> None:
    A, b, x0 = program(4, 5000, 4, 10**6, 1, 300)
    model = system(A, b, U=10**6, neighbors="replace-one", records=5000, **in_box(4))
    found = DP_LP.run(model, OPTIONS, SeededSource(2))
    x = found.answer
    exact = [sum(int(a) * v for a, v in zip(row, x, strict=True)) <= int(side) for row, side in zip(A, b, strict=True)]
    assert np.mean(exact) >= 0.97 and all(np.array(exact)[A @ x0 == b])
    assert exact == satisfied(slack_rows(A, b, 10**6), x, 10**6).tolist()


def test_a_single_feasible_point_is_found() -> None:
    """As many hidden equalities as variables: the answer is that point."""
    A, b, x0 = program(5, 4000, 3, 10, 3, 400)
    found = DP_LP.run(system(A, b, **in_box(3)), OPTIONS, SeededSource(3))
    assert found.answer == tuple(Fraction(int(v)) for v in x0)


def test_public_equalities_hold_exactly_and_count_as_public() -> None:
    A, b, _ = program(6, 3000, 3, 10, 0, 0)
    G = np.vstack([in_box(3)["G"], [[1, 1, 1]], [[-1, -1, -1]]])
    model = system(A, b, G, np.r_[in_box(3)["h"], 4.5, -4.5])
    found = DP_LP.run(model, OPTIONS, SeededSource(4))
    assert sum(found.answer) == Fraction(9, 2)
    assert found.notes == ("0 of 2 dimensions removed by sanitised equations",)


def test_public_point() -> None:
    model = system([[1, 0]], [5], np.vstack([np.eye(2), -np.eye(2)]), [1, 2, -1, -2])
    assert DP_LP.run(model, OPTIONS, SeededSource(6)).answer == (Fraction(1), Fraction(2))


def test_an_empty_public_part_is_an_error_before_anything_is_read() -> None:
    def unread() -> Any:
        raise AssertionError("read")

    model = system(np.zeros((4, 2), int), np.zeros(4, int), [[1, 0], [-1, 0]], [0, -1])
    object.__setattr__(model, "_rows", unread)
    with pytest.raises(InfeasibleError, match="public constraints"):
        DP_LP.forecast(model, OPTIONS)
    with pytest.raises(InfeasibleError, match="public constraints"):
        DP_LP.run(model, OPTIONS, SeededSource(0))


def test_numbers_that_are_no_small_integers_are_refused_without_showing_them() -> None:
    for A, b in ([[[0.5, 1.0]], [1.0]], [[[77, 1]], [1]], [[[np.nan, 1]], [1]]):
        with pytest.raises(SpecificationError) as caught:
            DP_LP.run(system(A, b, expected=1, **in_box(2)), OPTIONS, SeededSource(0))
        assert "77" not in str(caught.value) and "0.5" not in str(caught.value)


@pytest.mark.slow
def test_forecast_holds_on_fresh_programs() -> None:
    """A prediction, not a theorem: of six fresh programs at most two may miss more."""
    forecast = DP_LP.forecast(system(np.zeros((3000, 3), int), np.zeros(3000, int), **in_box(3)), OPTIONS)
    assert not forecast.vacuous and not forecast.proved and 0 <= forecast.error.missed < 0.03 * 3000
    assert forecast.epsilon == 2.0 and forecast.delta == 1e-6 and forecast.error.needed <= 3000
    worse = 0
    for seed in range(6):
        A, b, _ = program(100 + seed, 3000, 3, 10, seed % 2, 300)
        found = DP_LP.run(system(A, b, **in_box(3)), OPTIONS, SeededSource(seed))
        worse += np.count_nonzero(~satisfied(slack_rows(A, b, 10), found.answer, 10)) > forecast.error.missed
    assert worse <= 2
