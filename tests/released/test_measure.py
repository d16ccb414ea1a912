"""``measure``: captured scales against brute-force neighbours, laws, shapes, rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from auditing import kolmogorov_distance, kolmogorov_limit
from scipy import stats

from dpmodel.marks import Private, Records
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy import Budget, SeededSource, gaussian_mu, zcdp_rho
from dpmodel.privacy.distributions import DiscreteLaplace
from dpmodel.released.faces.measure import measure

# Rounding allowances enlarge scales by less than this share.
CLOSE = 1.1e-3
DELTA = 1e-6


class Asked(SeededSource):
    """Keeps (distribution, values, scale) of everything asked."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.asked: list[tuple[str, np.ndarray, float]] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("laplace", "gaussian", "discrete_laplace", "discrete_gaussian"):
            return found

        def kept(values: Any, scale: float) -> Any:
            self.asked.append((name, np.array(values, dtype=float), scale))
            return found(values, scale)

        return kept


def asked_of(
    expression: Any, epsilon: float, delta: float = 0.0, **options: Any
) -> tuple[str, np.ndarray, float, Noisy]:
    source = Asked()
    noisy = measure(expression, epsilon, delta, rng=source, **options)
    ((distribution, values, scale),) = source.asked
    assert noisy.noise.name.replace(" ", "_") == distribution and noisy.noise.scale == scale
    return distribution, values, scale, noisy


def tree(leaves: int, branching: int = 2) -> sp.csr_array:
    levels, width = [], 1
    while width <= leaves:
        levels.append(sp.kron(sp.eye_array(width), np.ones((1, leaves // width))))
        width *= branching
    return sp.csr_array(sp.vstack(levels))


# ------------------------------------------------------------------ the scale against neighbours found by brute force
Moves = Callable[[np.random.Generator], np.ndarray]


def one_entry(shape: tuple[int, ...], linf: float) -> Moves:
    def draw(rng: np.random.Generator) -> np.ndarray:
        d = np.zeros(shape)
        d[tuple(rng.integers(n) for n in shape)] = rng.choice([-linf, linf, rng.uniform(-linf, linf)])
        return d

    return draw


T8 = tree(8)
CASES: dict[str, tuple[dict[str, Any], Callable[[Any], Any], Moves, tuple[float, float]]] = {
    # annotation, expression, neighbours, (exact l1, exact l2)
    "as it is": ({"shape": 5, "unit": "entry", "linf": 2.0}, lambda p: p, one_entry((5,), 2.0), (2, 2)),
    "tree": ({"shape": 8, "unit": "entry", "linf": 1.0}, lambda p: T8 @ p, one_entry((8,), 1.0), (4, 2)),
    "sum": ({"shape": (3, 2), "unit": "entry", "linf": 1.5}, cp.sum, one_entry((3, 2), 1.5), (1.5, 1.5)),
    "twice": (
        {"shape": 3, "unit": "entry", "linf": 1.0},
        lambda p: cp.hstack([p, -3 * p, p[::-1] / 3]),
        one_entry((3,), 1.0),
        (13 / 3, math.sqrt(1 + 9 + 1 / 9)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("distribution", ["laplace", "gaussian"])
def test_no_neighbour_moves_the_numbers_further_than_the_scale_pays_for(case: str, distribution: str) -> None:
    annotation, expression, moves, exact = CASES[case]
    rng, epsilon = np.random.default_rng(5), 0.7
    p = Private(name="p", **annotation)
    made = expression(p)
    base = rng.normal(size=p.shape) * 5
    p.value = base
    distribution_asked, values, scale, noisy = asked_of(made, epsilon, DELTA, distribution=distribution)
    assert distribution_asked == distribution and noisy.shape == made.shape
    order, paid = (1, scale * epsilon) if distribution == "laplace" else (2, scale * gaussian_mu(epsilon, DELTA))
    found = 0.0
    for _ in range(8):
        p.value = base + moves(rng)
        moved = asked_of(made, epsilon, DELTA, distribution=distribution)[1] - values
        found = max(found, float(np.linalg.norm(moved.ravel(), order)))
    assert found <= paid * (1 + 1e-12)
    assert exact[order - 1] <= paid <= exact[order - 1] * (1 + CLOSE)
    assert found >= 0.7 * paid, "the neighbours are too tame to show anything"
    # The twin: half the noise would not pay for these neighbours.
    assert found > paid / 2


@pytest.mark.parametrize("distribution", ["discrete-laplace", "discrete-gaussian"])
@pytest.mark.parametrize("unit", ["entry", "all"])
def test_whole_neighbours(unit: str, distribution: str) -> None:
    """All neighbours of a small table of counts: one entry moves by up to 2, or up to 2 steps in all."""
    bounds: dict[str, Any] = {"unit": "entry", "linf": 2} if unit == "entry" else {"l1": 2}
    p = Private([5, 0, -3, 8], name="p", integer=True, **bounds)
    T, epsilon = cp.Constant(tree(4), name="T"), 0.7
    made = cp.hstack([T @ p, 3 * p[0] - 2 * p[1]])
    p.value = base = np.array([5.0, 0, -3, 8])
    asked, values, scale, _ = asked_of(made, epsilon, DELTA, distribution=distribution)
    order, paid = (
        (1, scale * epsilon)
        if distribution == "discrete-laplace"
        else (2, scale * math.sqrt(2 * zcdp_rho(epsilon, DELTA)))
    )
    single = [step * row for row in np.eye(4) for step in (-2, -1, 1, 2)]
    double = [a * x + b * y for x, y in combinations(np.eye(4), 2) for a in (-1, 1) for b in (-1, 1)]
    found = 0.0
    for move in single if unit == "entry" else [*single, *double]:
        p.value = base + move
        found = max(
            found, float(np.linalg.norm(asked_of(made, epsilon, DELTA, distribution=distribution)[1] - values, order))
        )
    assert asked == distribution.replace("-", "_")
    assert 0.8 * paid < found <= paid * (1 + 1e-12)
    assert paid == pytest.approx(12 if order == 1 else math.sqrt(48), rel=1e-9)  # 2 (1 + 1 + 1 + 3); 4 (1 + 1 + 1 + 9)


# expression, (parameter, its values on both sides), whether it is made of integers
WorstPair = tuple[Any, list[tuple[Private, Any, Any]], bool]


def rows_and_labels() -> WorstPair:
    people = Records("people")
    A = Private(shape=(3, 2), unit="row", max_linf=1.0, records=people)
    b = Private(shape=3, unit="entry", linf=1.0, records=people)
    row = np.zeros((3, 2))
    row[1] = 7.0  # clipped to 1
    made = cp.hstack([cp.vec(A, order="F"), 2 * b, -b, A[1, 0] + b[1]])
    return made, [(A, row, -row), (b, [0.0, 1, 0], [0.0, 0, 0])], False


def halves_of_a_matrix() -> WorstPair:
    p = Private(shape=(2, 2), unit="entry", linf=1.0, symmetric=True, integer=True)
    return (
        p @ cp.Constant(np.array([[1, -1], [2, 0.0]]), name="public"),
        [(p, [[1, 4], [4, 2]], [[1, 5], [5, 2]])],
        True,
    )


def counts_that_move() -> WorstPair:
    p = Private(shape=3, unit="all", l1=2.9, linf=1.5, integer=True, nonneg=True)
    return cp.hstack([cp.sum(p), p[0] + p[1], p]), [(p, [3, 1, 2], [4, 2, 2])], True


@pytest.mark.parametrize("make", [rows_and_labels, halves_of_a_matrix, counts_that_move])
def test_worst_pairs_move_the_numbers_as_far_as_is_paid_for(make: Callable[[], WorstPair]) -> None:
    made, moves, whole = make()
    sides = []
    for side in (0, 1):
        for p, *values in moves:
            p.value = values[side]
        _, values, scale, _ = asked_of(made, 1.0)
        sides.append(values)
    moved = float(np.abs(sides[0] - sides[1]).sum())
    assert moved <= scale * (1 + 1e-12)
    assert moved >= scale * (0.65 if whole else 0.99)


def test_records_that_move_two_parameters_together_and_people_apart() -> None:
    people = Records("people")
    A = Private(np.zeros((3, 2)), name="A", unit="row", linf=1, records=people)
    b = Private(np.zeros(3), name="b", unit="entry", linf=2, records=people)
    other = Private(np.zeros(3), name="c", unit="entry", linf=3, records=Records("others", "add-remove"))
    both = cp.vstack([A.T, cp.reshape(b, (1, 3), order="F")])
    assert asked_of(both, 1.0)[2] == pytest.approx(4.0, rel=1e-7)  # row i of A: 1 + 1, entry i of b: 2
    scale, noisy = asked_of(cp.hstack([b, other]), 1.0)[2:]
    assert scale == pytest.approx(3.0, rel=1e-7)  # different people: the larger
    assert noisy.neighbors == "add-remove and replace-one"
    assert "people" in noisy.record and "others" in noisy.record
    assert asked_of(b + other, 1.0)[2] == pytest.approx(3.0, rel=CLOSE)


# ------------------------------------------------------------------ audits


def test_the_stated_law_is_the_law_that_is_drawn() -> None:
    """Duplicated and proportional rows included: every entry has a draw of its own."""
    size = 700
    p = Private(np.linspace(-1e6, 1e6, size), name="p", unit="entry", linf=1.0)
    noisy = measure(cp.vstack([p, p, 5 * p]), 7.0)
    assert noisy.shape == (3, size) and noisy.noise.scale == pytest.approx(1.0, rel=CLOSE)
    exact = np.vstack([p_values := np.linspace(-1e6, 1e6, size), p_values, 5 * p_values])
    z = noisy.value - exact
    limit = kolmogorov_limit(z.size, 1e-9)
    assert kolmogorov_distance(z, stats.laplace(scale=noisy.noise.scale).cdf) < limit
    assert kolmogorov_distance(z, stats.laplace(scale=2 * noisy.noise.scale).cdf) > limit
    assert np.abs(np.corrcoef(z)[np.triu_indices(3, 1)]).max() < 7 / math.sqrt(size)
    assert "NOT PRIVATE" not in noisy.record
    whole = Private(np.arange(1500), name="w", unit="entry", linf=1, integer=True)
    found = measure(whole, 1.0)
    assert (found.value == np.rint(found.value)).all() and type(found.noise) is DiscreteLaplace
    assert np.mean((found.value - np.arange(1500)) ** 2) == pytest.approx(found.noise.standard_deviation**2, rel=0.5)


# ------------------------------------------------------------------ shapes and exact values
A23 = np.array([[1.0, 2.0, 3.0], [40.0, 50.0, 60.0]])
SHAPES: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda p: p, A23),
    (lambda p: p.T, A23.T),
    (lambda p: cp.sum(p), A23.sum()),
    (lambda p: cp.sum(p, axis=1, keepdims=True), A23.sum(axis=1, keepdims=True)),
    (lambda p: p[1, 2], A23[1, 2]),
    (lambda p: cp.reshape(p, (3, 2), order="C"), A23.reshape(3, 2)),
    (lambda p: np.array([[1.0, 2], [3, 4]]) @ p, np.array([[1.0, 2], [3, 4]]) @ A23),
    (lambda p: 7 - cp.multiply(cp.Constant(A23, name="public"), p) / 3, 7 - A23 * A23 / 3),
    (lambda p: cp.bmat([[p, 0 * p], [2 * p, -p]]), np.block([[A23, 0 * A23], [2 * A23, -A23]])),
    (lambda p: cp.cumsum(p, axis=1), A23.cumsum(axis=1)),
]


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_values_come_back_in_the_shape_of_the_expression(number: int) -> None:
    build, wanted = SHAPES[number]
    p = Private(A23, name="p", unit="entry", linf=1)
    made = build(p)
    noisy = measure(made, 1e9, rng=1)
    assert noisy.shape == made.shape == np.shape(wanted)
    np.testing.assert_allclose(noisy.value, wanted, atol=1e-4)


def test_structured_parameters() -> None:
    S = np.array([[1.0, 5.0], [5.0, 9.0]])
    symmetric = Private(S, name="S", unit="all", linf=1, symmetric=True)
    noisy = measure(symmetric, 1e9, rng=1)
    np.testing.assert_allclose(noisy.value, S, atol=1e-4)
    assert noisy.value[0, 1] != noisy.value[1, 0]  # the mirrored entry has its own draw
    assert noisy.noise.scale == pytest.approx(4e-9, rel=1e-6)
    sparse = sp.csr_array(np.array([[0.0, 3.0], [4.0, 0.0]]))
    hidden = Private(sparse, name="H", unit="entry", linf=1, positions="private")
    np.testing.assert_allclose(measure(hidden, 1e9, rng=1).value, sparse.toarray(), atol=1e-4)
    shown = Private(sparse, name="P", unit="entry", linf=1, sparsity=sparse.nonzero())
    assert "positions of the entries of P are public" in measure(shown, 1.0, rng=1).record


def test_numbers_near_integers_are_rounded_and_laplace_noise_spends_no_delta() -> None:
    p = Private([3 - 5e-10, -2 + 5e-10], name="p", unit="entry", linf=1, integer=True)
    budget = Budget(50.0, 1e-6)
    for distribution in ("auto", "discrete-laplace"):
        values = asked_of(p, 1.0, distribution=distribution)[1]
        assert values.tolist() == [3.0, -2.0]
    noisy = measure(p, 50.0, 1e-6, distribution="discrete-laplace", budget=budget, rng=0)
    assert noisy.delta == 0 and (budget.spent.epsilon, budget.spent.delta) == (50.0, 0.0)


def moved_by(p: Private, made: Any, one: Any, two: Any) -> tuple[float, float]:
    """1-norm of what the noise is asked to hide, and what Laplace noise at epsilon = 1 pays for."""
    p.value = one
    _, values, scale, _ = asked_of(made, 1.0)
    p.value = two
    return float(np.abs(asked_of(made, 1.0)[1] - values).sum()), scale


def test_rounding_of_huge_sums_is_inside_the_allowance() -> None:
    p = Private(shape=2, name="p", unit="entry", linf=1.0)
    # The exact sums differ by 1, the rounded ones by 256.
    assert float(2.0**60 + 128.5) - float(2.0**60 + 127.5) == 256.0
    found, paid = moved_by(p, p[0] + p[1], [2.0**60, 127.5], [2.0**60, 128.5])
    assert found <= paid
    found, paid = moved_by(p, p[0] + p[1], [2.0**39, 127.5], [2.0**39, 128.5])
    assert found == 1.0
    assert asked_of(p[0] / 3, 1.0)[2] >= (1 + 2.0**-11) / 3
    assert asked_of(4 * p, 1.0)[2] <= 4 * (1 + 2.0**-25)


def test_public_numbers_are_added_to_what_was_released() -> None:
    """Added before, the sum's rounding would depend on private digits and enlarge steps to 256."""
    p = Private([127.5, 128.5], unit="entry", linf=1.0)
    shift = cp.Parameter(2, value=[2.0**60, -(2.0**60)], name="shift")
    for made in (p + shift, p + cp.Constant(np.array([2.0**60, -(2.0**60)]), name="public")):
        assert asked_of(made, 1.0)[1].tolist() == [127.5, 128.5]


def test_whole_products_do_not_overflow() -> None:
    p = Private([2**50, 3], name="p", unit="entry", linf=1, integer=True)
    assert measure(2**20 * p, 1e3, rng=0).value.tolist() == pytest.approx([2.0**52, 3 * 2**20], abs=2**17)
