"""Attempts to break ``measure``: promises that values do not keep, unusual worst pairs, free ways to private data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dpmodel import Problem, neg_log_likelihood
from dpmodel.annotate import Private, Records, vault
from dpmodel.annotate.noise_laws import DiscreteLaplace, Laplace
from dpmodel.annotate.noisy import Noisy
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.mechanisms.postprocess.general_solver import GeneralSolver
from dpmodel.privacy import Budget, SeededSource
from dpmodel.queries.measure import measure


class Seen(SeededSource):
    """Keeps the numbers that noise was asked for, and returns them bare."""

    def __init__(self) -> None:
        super().__init__(0)
        self.values, self.scale = np.zeros(0), math.nan

    def laplace(self, values: object, scale: float) -> Any:
        self.values, self.scale = np.array(values, dtype=np.float64), scale
        return self.values

    discrete_laplace = laplace


def seen(expression: Any, **options: Any) -> tuple[np.ndarray, float]:
    source = Seen()
    measure(expression, 1.0, rng=source, **options)
    return source.values, source.scale


# ------------------------------------------------------------------ whole by promise means whole
SECOND: tuple[dict[str, Any], ...] = (
    {"nonneg": True},
    {"pos": True},
    {"bounds": [0, 9]},
    {"symmetric": True},
    {"PSD": True},
    {"diag": True},
    {"sparsity": ((0, 1), (0, 1))},
    {"positions": "private"},
    {"boolean": True},
    {"nonneg": True, "symmetric": True},
)


@pytest.mark.parametrize("second", SECOND, ids=lambda second: "+".join(second))
def test_a_second_attribute_does_not_switch_off_the_check_of_whole_numbers(second: dict[str, Any]) -> None:
    """CVXPY's projection does nothing where a leaf has two attributes. 0.4 and 1.6 differ by 1.2, so one step of
    discrete noise would be paid for; rounded, they differ by 2."""
    p = Private(shape=(2, 2), name="p", unit="all", l1=1.2, linf=1.2, integer=True, **second)
    for value in (0.4, 0.6, 1e-6):
        with pytest.raises(SpecificationError, match=r"attributes \(integer\)"):
            p.value = np.diag([value, 0.0])
    p.value = np.diag([1.0, 1e-10])
    assert type(measure(p, 1.0, rng=0).noise) is DiscreteLaplace


def test_whole_by_positions() -> None:
    for second in ({}, {"nonneg": True}):
        with pytest.raises(SpecificationError, match="integer"):
            Private([1.5, 2.5], unit="entry", linf=1, integer=[(1,)], **second)
        some = Private([1.5, 2.0], unit="entry", linf=1, integer=[(1,)], **second)
        assert type(measure(some, 1.0, rng=0).noise) is Laplace
    for value in (0.5, 3.0):
        with pytest.raises(SpecificationError, match="integer"):
            Private(value, linf=1, boolean=True)


def test_near_whole_numbers_are_rounded_and_laplace_noise_spends_no_delta() -> None:
    p = Private([3 - 5e-10, -2 + 5e-10], name="p", unit="entry", linf=1, integer=True)
    budget = Budget(50.0, 1e-6)
    for law in ("auto", "discrete-laplace"):
        values, _ = seen(p, law=law)
        assert values.tolist() == [3.0, -2.0]
    noisy = measure(p, 50.0, 1e-6, law="discrete-laplace", budget=budget, rng=0)
    assert noisy.delta == 0 and (budget.spent.epsilon, budget.spent.delta) == (50.0, 0.0)


def test_no_whole_change_is_possible() -> None:
    """The 2-norm allows none, the 1-norm alone would allow five."""
    p = Private(np.zeros(100), name="p", unit="all", l2=0.5, integer=True)
    for options in ({}, {"delta": 1e-6}, {"delta": 1e-6, "law": "discrete-gaussian"}):
        with pytest.raises(SpecificationError, match="no record can change"):
            measure(p, 1.0, rng=0, **options)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_changes_beyond_floating_point_are_refused_before_the_charge() -> None:
    budget = Budget(1.0)
    with pytest.raises(SpecificationError, match="too large"):
        measure(1e250 * Private([1.0], name="p", unit="entry", linf=1e100), 1.0, rng=0, budget=budget)
    assert budget.spent.epsilon == 0


# ------------------------------------------------------------------ worst pairs that reach what is paid for
def rows_and_labels() -> tuple[Any, list[tuple[Private, Any, Any]], bool]:
    people = Records("people")
    A = Private(shape=(3, 2), unit="row", max_linf=1.0, records=people)
    b = Private(shape=3, unit="entry", linf=1.0, records=people)
    row = np.zeros((3, 2))
    row[1] = 7.0  # clipped to 1
    made = cp.hstack([cp.vec(A, order="F"), 2 * b, -b, A[1, 0] + b[1]])
    return made, [(A, row, -row), (b, [0.0, 1, 0], [0.0, 0, 0])], False


def absent_row() -> tuple[Any, list[tuple[Private, Any, Any]], bool]:
    p = Private(shape=(4, 2), unit="row", max_l1=2.0, records=Records("visits", "add-remove"))
    one = np.ones((4, 2))
    one[0] = [5.0, 0.0]
    two = one.copy()
    two[0] = 0.0
    return cp.cumsum(p, axis=0) / 3, [(p, one, two)], False


def halves_of_a_matrix() -> tuple[Any, list[tuple[Private, Any, Any]], bool]:
    p = Private(shape=(2, 2), unit="entry", linf=1.0, symmetric=True, integer=True)
    return (
        p @ cp.Constant(np.array([[1, -1], [2, 0.0]]), name="public"),
        [(p, [[1, 4], [4, 2]], [[1, 5], [5, 2]])],
        True,
    )


def ranges_of_entries() -> tuple[Any, list[tuple[Private, Any, Any]], bool]:
    p = Private(shape=(2, 2), unit="entry", bounds=[np.array([[0, 0], [0, -3.0]]), np.array([[1, 1], [1, 4.0]])])
    made = cp.hstack([p[1, 1], 5 * p[0, 0], p[1, 1]])
    return made, [(p, [[0, 0], [0, 1e9]], [[0, 0], [0, -1e9]])], False


def counts_that_move() -> tuple[Any, list[tuple[Private, Any, Any]], bool]:
    p = Private(shape=3, unit="all", l1=2.9, linf=1.5, integer=True, nonneg=True)
    return cp.hstack([cp.sum(p), p[0] + p[1], p]), [(p, [3, 1, 2], [4, 2, 2])], True


@pytest.mark.parametrize("make", [rows_and_labels, absent_row, halves_of_a_matrix, ranges_of_entries, counts_that_move])
def test_worst_pairs(make: Callable[[], Any]) -> None:
    made, moves, whole = make()
    sides = []
    for side in (0, 1):
        for p, *values in moves:
            p.value = values[side]
        values, scale = seen(made)
        sides.append(values)
    moved = float(np.abs(sides[0] - sides[1]).sum())
    assert moved <= scale * (1 + 1e-12)
    assert moved >= scale * (0.65 if whole else 0.99)


def test_sums_are_exact_where_large_numbers_cancel() -> None:
    """Summed in floating point, a step of 1 in the middle becomes one of 2^28."""
    p = Private(shape=3, unit="entry", linf=1.0)
    found = []
    for middle in (2.0**27, 2.0**27 + 1):
        p.value = [2.0**80, middle, -(2.0**80)]
        values, scale = seen(cp.sum(p))
        found.append(float(values[0]))
    assert (2.0**80 + (2.0**27 + 1)) - (2.0**80 + 2.0**27) == 2.0**28
    assert found == [2.0**27, 2.0**27 + 1] and scale >= 1


def test_public_numbers_are_added_to_what_was_released() -> None:
    """Before it, the sum's rounding would depend on private digits and enlarge steps to 256."""
    p = Private([127.5, 128.5], unit="entry", linf=1.0)
    shift = cp.Parameter(2, value=[2.0**60, -(2.0**60)], name="shift")
    for made in (p + shift, p + cp.Constant(np.array([2.0**60, -(2.0**60)]), name="public")):
        assert seen(made)[0].tolist() == [127.5, 128.5]


def test_an_interruption_leaves_without_the_frames_that_hold_private_numbers() -> None:
    class Interrupted(SeededSource):
        def laplace(self, values: object, scale: float) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        measure(Private([31337.0], unit="entry", linf=1), 1.0, rng=Interrupted(0))
    names, traceback = [], stopped.value.__traceback__
    while traceback is not None:
        names.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert "measure" in names and not {"run", "laplace"} & set(names)


# ------------------------------------------------------------------ no free way to private data
@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(parameter: Any) -> Any:
        raise AssertionError("a private value was read")

    monkeypatch.setattr(vault, "unseal", refuse)


def test_private_data_never_passes_as_post_processing(unread: None) -> None:
    counts = Noisy([1.0, 2.0], Laplace(1.0), name="counts")
    x = cp.Variable(2, name="x")
    p = Private([31337.0, 2.0], name="p", unit="entry", linf=1)
    near = neg_log_likelihood(x, counts)
    bounded = cp.Variable(2, name="y", bounds=[p, None])
    problems = (
        Problem(cp.Minimize(near), [x >= p]),
        Problem(cp.Minimize(near + p @ x)),
        Problem(cp.Minimize(neg_log_likelihood(x - p, counts))),
        Problem(cp.Minimize(neg_log_likelihood(bounded, counts))),
    )
    for problem in problems:
        with pytest.raises((SpecificationError, UnsupportedModelError)):
            problem.solve()
        assert problem.release is None
    for mechanism in ("general-solver", "exact-tree", "admm", "projection", GeneralSolver(solver="HIGHS")):
        with pytest.raises(UnsupportedModelError):
            Problem(cp.Minimize(cp.sum(x)), [x >= p]).solve(epsilon=1.0, mechanism=mechanism)
    added = Problem(cp.Minimize(near + cp.sum(p)))
    assert added.solve() is None  # the value would tell sum(p)
    np.testing.assert_allclose(x.value, [1.0, 2.0], atol=1e-6)
