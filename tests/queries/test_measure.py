"""``measure``: captured scales against brute-force neighbours, audits with broken twins, shapes, refusals, silence."""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from auditing import epsilon_lower_bound, kolmogorov_distance, kolmogorov_limit
from scipy import stats

from dpmodel.annotate import Private, Records
from dpmodel.annotate.noisy import Noisy
from dpmodel.compile.leak_warning import PossibleLeakWarning
from dpmodel.errors import (
    BudgetExceededError,
    ImpossibilityError,
    MissingValueError,
    SpecificationError,
    UnsupportedModelError,
)
from dpmodel.execute import RunError
from dpmodel.privacy import Budget, NotPrivateWarning, SeededSource, gaussian_mu, zcdp_rho
from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace, Distribution, Gaussian, Laplace
from dpmodel.queries.measure import measure

# Rounding allowances enlarge scales by less than this share.
CLOSE = 1.1e-3
DELTA = 1e-6


class Asked(SeededSource):
    """Keeps (law, values, scale) of everything asked."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.asked: list[tuple[str, np.ndarray, float]] = []

    def _keep(self, law: str, values: Any, scale: float) -> Any:
        self.asked.append((law, np.array(values, dtype=float), scale))
        return getattr(super(), law)(values, scale)

    def laplace(self, values: object, scale: float) -> Any:
        return self._keep("laplace", values, scale)

    def gaussian(self, values: object, scale: float) -> Any:
        return self._keep("gaussian", values, scale)

    def discrete_laplace(self, values: object, scale: float) -> Any:
        return self._keep("discrete_laplace", values, scale)

    def discrete_gaussian(self, values: object, scale: float) -> Any:
        return self._keep("discrete_gaussian", values, scale)


def asked_of(
    expression: Any, epsilon: float, delta: float = 0.0, **options: Any
) -> tuple[str, np.ndarray, float, Noisy]:
    source = Asked()
    noisy = measure(expression, epsilon, delta, rng=source, **options)
    ((law, values, scale),) = source.asked
    assert noisy.noise.name.replace(" ", "_") == law and noisy.noise.scale == scale
    return law, values, scale, noisy


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


def one_line(shape: tuple[int, int], axis: int, l1: float) -> Moves:
    """A row (axis 0) or column moves, inside a 1-norm ball: corners and inner points."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        d = np.zeros(shape)
        line: Any = (rng.integers(shape[0]), slice(None)) if axis == 0 else (slice(None), rng.integers(shape[1]))
        size = shape[1 - axis]
        d[line] = (
            l1
            * rng.choice([-1, 1], size)
            * (rng.dirichlet(np.ones(size)) if rng.random() < 0.5 else np.eye(size)[rng.integers(size)])
        )
        return d

    return draw


def any_entries(shape: tuple[int, ...], l2: float, linf: float) -> Moves:
    def draw(rng: np.random.Generator) -> np.ndarray:
        d = rng.choice([-1.0, 1.0], shape) if rng.random() < 0.5 else rng.normal(size=shape)
        d *= l2 / np.linalg.norm(d)
        return np.asarray(d * min(1.0, linf / np.abs(d).max()))

    return draw


T8 = tree(8)
M23 = np.array([[1.0, -2.0], [0.5, 3.0], [1 / 3, 0.1]])
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
    "rows": (
        {"shape": (3, 2), "unit": "row", "l1": 2.0},
        lambda p: M23.T @ p,
        one_line((3, 2), 0, 2.0),
        (2 * 3.5, 2 * math.sqrt(0.25 + 9)),
    ),
    "columns": (
        {"shape": (3, 2), "unit": "column", "l1": 1.0},
        lambda p: p.T + 4.0,
        one_line((3, 2), 1, 1.0),
        (1, 1),
    ),
    "aggregate": (
        {"shape": 4, "unit": "all", "l2": 1.0, "linf": 0.5},
        lambda p: 2 * p - 1,
        any_entries((4,), 1.0, 0.5),
        (4.0, 2.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_no_neighbour_moves_the_numbers_further_than_the_scale_pays_for(case: str, law: str) -> None:
    annotation, expression, moves, exact = CASES[case]
    rng, epsilon = np.random.default_rng(5), 0.7
    p = Private(name="p", **annotation)
    made = expression(p)
    base = rng.normal(size=p.shape) * 5
    p.value = base
    law_asked, values, scale, noisy = asked_of(made, epsilon, DELTA, law=law)
    assert law_asked == law and noisy.shape == made.shape
    order, paid = (1, scale * epsilon) if law == "laplace" else (2, scale * gaussian_mu(epsilon, DELTA))
    found = 0.0
    for _ in range(8):
        p.value = base + moves(rng)
        moved = asked_of(made, epsilon, DELTA, law=law)[1] - values
        found = max(found, float(np.linalg.norm(moved.ravel(), order)))
    assert found <= paid * (1 + 1e-12)
    assert exact[order - 1] <= paid <= exact[order - 1] * (1 + CLOSE)
    assert found >= 0.7 * paid, "the neighbours are too tame to show anything"
    # The twin: half the noise would not pay for these neighbours.
    assert found > paid / 2


@pytest.mark.parametrize("law", ["discrete-laplace", "discrete-gaussian"])
@pytest.mark.parametrize("unit", ["entry", "all"])
def test_whole_neighbours(unit: str, law: str) -> None:
    """All neighbours of a small table of counts: one entry moves by up to 2, or up to 2 steps in all."""
    bounds: dict[str, Any] = {"unit": "entry", "linf": 2} if unit == "entry" else {"l1": 2}
    p = Private([5, 0, -3, 8], name="p", integer=True, **bounds)
    T, epsilon = cp.Constant(tree(4), name="T"), 0.7
    made = cp.hstack([T @ p, 3 * p[0] - 2 * p[1]])
    p.value = base = np.array([5.0, 0, -3, 8])
    asked, values, scale, _ = asked_of(made, epsilon, DELTA, law=law)
    order, paid = (
        (1, scale * epsilon) if law == "discrete-laplace" else (2, scale * math.sqrt(2 * zcdp_rho(epsilon, DELTA)))
    )
    single = [step * row for row in np.eye(4) for step in (-2, -1, 1, 2)]
    double = [a * x + b * y for x in np.eye(4) for y in np.eye(4) for a in (-1, 1) for b in (-1, 1)]
    found = 0.0
    for move in single if unit == "entry" else [*single, *double]:
        p.value = base + move
        found = max(found, float(np.linalg.norm(asked_of(made, epsilon, DELTA, law=law)[1] - values, order)))
    assert asked == law.replace("-", "_")
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


def absent_row() -> WorstPair:
    p = Private(shape=(4, 2), unit="row", max_l1=2.0, records=Records("visits", "add-remove"))
    one = np.ones((4, 2))
    one[0] = [5.0, 0.0]
    two = one.copy()
    two[0] = 0.0
    return cp.cumsum(p, axis=0) / 3, [(p, one, two)], False


def halves_of_a_matrix() -> WorstPair:
    p = Private(shape=(2, 2), unit="entry", linf=1.0, symmetric=True, integer=True)
    return (
        p @ cp.Constant(np.array([[1, -1], [2, 0.0]]), name="public"),
        [(p, [[1, 4], [4, 2]], [[1, 5], [5, 2]])],
        True,
    )


def ranges_of_entries() -> WorstPair:
    p = Private(shape=(2, 2), unit="entry", bounds=[np.array([[0, 0], [0, -3.0]]), np.array([[1, 1], [1, 4.0]])])
    made = cp.hstack([p[1, 1], 5 * p[0, 0], p[1, 1]])
    return made, [(p, [[0, 0], [0, 1e9]], [[0, 0], [0, -1e9]])], False


def counts_that_move() -> WorstPair:
    p = Private(shape=3, unit="all", l1=2.9, linf=1.5, integer=True, nonneg=True)
    return cp.hstack([cp.sum(p), p[0] + p[1], p]), [(p, [3, 1, 2], [4, 2, 2])], True


@pytest.mark.parametrize("make", [rows_and_labels, absent_row, halves_of_a_matrix, ranges_of_entries, counts_that_move])
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
def score_of(law: Distribution, draws: np.ndarray, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Log likelihood ratio of the published law, the best score there is; rounded, because simulated noise is added in
    floating point, whose last bits tell the centre (which OpenDP's do not)."""

    def negative_log(z: np.ndarray) -> np.ndarray:
        return np.asarray((law.absolute * np.abs(z) + law.square * z * z).sum(axis=1))

    return np.round(negative_log(draws - two) - negative_log(draws - one), 7)


def audited(law: str, twin: str, epsilon: float = 1.0, delta: float = 1e-2, runs: int = 200_000) -> float:
    """Lower bound on epsilon of ``T @ p`` between neighbouring counts, through what measure asked of the noise."""
    delta = delta if law.endswith("gaussian") else 0.0
    p = Private(name="p", shape=4, unit="entry", linf=1.0, integer=law.startswith("discrete"))
    T = tree(4)
    sides, scale = [], 0.0
    for values in (np.array([3.0, 1, 4, 1]), np.array([3.0, 2, 4, 1])):
        p.value = values
        _, exact, scale, noisy = asked_of(T @ p, epsilon, delta, law=law)
        sides.append(exact)
    if twin == "noise halved":
        scale /= 2
    if twin == "rows forgotten":  # the scale of the root alone, and then the whole tree is released
        scale = asked_of(T[:1] @ p, epsilon, delta, law=law)[2]
    stated = type(noisy.noise)(scale)
    method = {"laplace": "laplace", "gaussian": "gaussian"}.get(law, law.replace("-", "_"))
    outputs = []
    for seed, exact in enumerate(sides):
        draw = getattr(SeededSource(seed + 11), method)
        draws = draw(np.tile(exact, (runs, 1)), scale)
        if twin == "one draw for all":
            draws = exact + draw(np.zeros((runs, 1)), scale)
            draws = np.round(draws, 9)
        outputs.append(draws.astype(float))
    if twin == "one draw for all":
        scores = [np.round(o[:, 0] - o[:, 3], 6) for o in outputs]
    else:
        scores = [score_of(stated, o, *sides) for o in outputs]
    return epsilon_lower_bound(*scores, delta=delta)


@pytest.mark.parametrize("law", ["laplace", "gaussian", "discrete-laplace", "discrete-gaussian"])
def test_an_audit_passes_and_catches_broken_twins(law: str) -> None:
    runs = 50_000
    assert 0.25 < audited(law, "", runs=runs) <= 1.0
    assert audited(law, "noise halved", runs=runs) > 1.0
    assert audited(law, "rows forgotten", runs=runs) > 1.0
    assert audited(law, "one draw for all", runs=4000) > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("law", ["laplace", "gaussian", "discrete-laplace", "discrete-gaussian"])
def test_an_audit_with_many_runs(law: str, epsilon: float) -> None:
    assert 0.3 * epsilon < audited(law, "", epsilon, runs=400_000) <= epsilon
    assert audited(law, "noise halved", epsilon, runs=400_000) > epsilon


def test_the_stated_law_is_the_law_that_opendp_draws() -> None:
    """Duplicated and proportional rows included: every entry has a draw of its own."""
    size = 1500
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
    (lambda p: cp.sum(p, axis=0), A23.sum(axis=0)),
    (lambda p: cp.sum(p, axis=1, keepdims=True), A23.sum(axis=1, keepdims=True)),
    (lambda p: p[1], A23[1]),
    (lambda p: p[1, 2], A23[1, 2]),
    (lambda p: p[:, ::-1], A23[:, ::-1]),
    (lambda p: cp.vec(p, order="F"), A23.ravel(order="F")),
    (lambda p: cp.vec(p, order="C"), A23.ravel()),
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


def test_three_axes_and_public_parameters() -> None:
    values = np.arange(24.0).reshape(2, 3, 4)
    p = Private(values, name="p", unit="entry", linf=1)
    q = cp.Parameter((2, 3, 4), value=100 * np.ones((2, 3, 4)), name="q")
    np.testing.assert_allclose(measure(p - q, 1e9, rng=1).value, values - 100, atol=1e-4)
    q.value = 200 * np.ones((2, 3, 4))
    np.testing.assert_allclose(measure(p - q, 1e9, rng=1).value, values - 200, atol=1e-4)


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


# ------------------------------------------------------------------ choice of the law
def test_auto_takes_the_least_deviation() -> None:
    few = Private(np.zeros(8), name="p", unit="entry", linf=1)
    many = Private(np.zeros(100), name="q", unit="all", l2=1.0)
    assert type(measure(few, 1.0, DELTA, rng=0).noise) is Laplace
    noisy = measure(many, 1.0, DELTA, rng=0)
    assert type(noisy.noise) is Gaussian and noisy.delta == DELTA
    assert noisy.noise.scale == pytest.approx(1 / gaussian_mu(1.0, DELTA), rel=CLOSE)
    assert type(measure(many, 1.0, rng=0).noise) is Laplace
    assert measure(few, 1.0, DELTA, rng=0).delta == 0.0


def test_whole_numbers_stay_whole() -> None:
    p = Private([3, 4, 5], name="p", unit="entry", linf=1, integer=True)
    q = Private(np.zeros(100), name="q", unit="all", l2=3.0, boolean=True)
    for expression in (p, cp.sum(p), 2 * p - 7, cp.cumsum(p), p + cp.Parameter(3, value=[1.0, 2, 3], name="r")):
        noisy = measure(expression, 0.5, rng=0)
        assert type(noisy.noise) is DiscreteLaplace and (noisy.value == np.rint(noisy.value)).all()
    assert measure(2 * p - 7, 0.5, rng=0).noise.scale == 4.0 and measure(p, 0.5, rng=0).noise.scale == 2.0
    noisy = measure(q, 1.0, DELTA, rng=0)
    assert type(noisy.noise) is DiscreteGaussian
    assert noisy.noise.scale == pytest.approx(3 / math.sqrt(2 * zcdp_rho(1.0, DELTA)), rel=1e-12)
    assert type(measure(p, 0.5, law="laplace", rng=0).noise) is Laplace
    assert type(measure(q, 0.5, DELTA, law="gaussian", rng=0).noise) is Gaussian
    # A whole change of at most 1.5 is at most 1.
    half = Private([3, 4], name="h", unit="entry", linf=1.5, integer=True)
    assert measure(half, 1.0, rng=0).noise.scale == 1.0
    exact = Private([2**52, -(2**52)], name="e", unit="entry", linf=1, integer=True)
    assert measure(exact, 50.0, rng=0).value.tolist() == [2.0**52, -(2.0**52)]
    assert measure(cp.sum(exact) + 3 * exact[0], 50.0, rng=0).value == 2.0**52  # clamped, by public policy


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1 / 3, 0.7, 3.0])
def test_the_quotient_is_never_rounded_in_favour_of_noise(epsilon: float) -> None:
    from fractions import Fraction

    for reach in (1, 3, 7):
        p = Private([3], name="p", unit="entry", linf=reach, integer=True)
        scale = measure(p, epsilon, rng=0).noise.scale
        assert Fraction(reach) / Fraction(scale) <= Fraction(epsilon)


def test_what_is_not_whole_by_declaration() -> None:
    def whole(**more: Any) -> Private:
        return Private(shape=3, value=[1, 2, 1], name="p", unit="entry", **({"linf": 1, "integer": True} | more))

    p = whole()
    fractional = [
        whole(integer=False), whole(bounds=[0, 2.5]), p / 2, p + 0.5, p * 2.0**40, cp.sum(p) / 3,
        whole(max_linf=1.5), p + Private([1, 2, 3], name="r", unit="entry", linf=1), whole(max_l2=2), whole(max_l1=2),
    ]  # fmt: skip
    for expression in fractional:
        assert type(measure(expression, 1.0, rng=0).noise) is Laplace
        with pytest.raises(SpecificationError, match="not declared whole") as caught:
            measure(expression, 1.0, law="discrete-laplace", rng=0)
        assert caught.value.why
    assert type(measure(whole(bounds=[0, 5]), 1.0, rng=0).noise) is DiscreteLaplace


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
def test_a_second_attribute_does_not_switch_off_the_check_of_integers(second: dict[str, Any]) -> None:
    """CVXPY's projection does nothing where a leaf has two attributes. 0.4 and 1.6 differ by 1.2, so one step of
    discrete noise would be paid for; rounded, they differ by 2."""
    p = Private(shape=(2, 2), name="p", unit="all", l1=1.2, linf=1.2, integer=True, **second)
    for value in (0.4, 0.6, 1e-6):
        with pytest.raises(SpecificationError, match=r"attributes \(integer\)"):
            p.value = np.diag([value, 0.0])
    p.value = np.diag([1.0, 1e-10])
    assert type(measure(p, 1.0, rng=0).noise) is DiscreteLaplace


def test_integers_by_positions() -> None:
    for second in ({}, {"nonneg": True}):
        with pytest.raises(SpecificationError, match="integer"):
            Private([1.5, 2.5], unit="entry", linf=1, integer=[(1,)], **second)
        some = Private([1.5, 2.0], unit="entry", linf=1, integer=[(1,)], **second)
        assert type(measure(some, 1.0, rng=0).noise) is Laplace
    for value in (0.5, 3.0):
        with pytest.raises(SpecificationError, match="integer"):
            Private(value, linf=1, boolean=True)


def test_numbers_near_integers_are_rounded_and_laplace_noise_spends_no_delta() -> None:
    p = Private([3 - 5e-10, -2 + 5e-10], name="p", unit="entry", linf=1, integer=True)
    budget = Budget(50.0, 1e-6)
    for law in ("auto", "discrete-laplace"):
        values = asked_of(p, 1.0, law=law)[1]
        assert values.tolist() == [3.0, -2.0]
    noisy = measure(p, 50.0, 1e-6, law="discrete-laplace", budget=budget, rng=0)
    assert noisy.delta == 0 and (budget.spent.epsilon, budget.spent.delta) == (50.0, 0.0)


def test_integers_that_no_record_can_change_are_refused() -> None:
    """The 2-norm allows none, the 1-norm alone would allow five."""
    p = Private(np.zeros(100), name="p", unit="all", l2=0.5, integer=True)
    for options in ({}, {"delta": 1e-6}, {"delta": 1e-6, "law": "discrete-gaussian"}):
        with pytest.raises(SpecificationError, match="no record can change"):
            measure(p, 1.0, rng=0, **options)


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


def test_rounding_in_many_numbers_of_one_record_is_inside_the_allowance() -> None:
    """One record moves 12000 numbers by 1e-6 each, and in all of them across the middle between two floats."""
    rows = 12_000
    p = Private(shape=rows + 1, name="p", unit="entry", linf=1.0)
    base = np.full(rows + 1, 2.0**39)
    one, two = base.copy(), base.copy()
    one[0], two[0] = 60.9, 61.9
    assert rows * ((2.0**39 + 61.9e-6) - (2.0**39 + 60.9e-6)) > 1.4
    found, paid = moved_by(p, p[1:] + 1e-6 * p[0], one, two)
    assert paid == pytest.approx(1.0, rel=0.02) and found <= paid


def test_sums_are_exact_where_large_numbers_cancel() -> None:
    """Summed in floating point, a step of 1 in the middle would become one of 2^28."""
    p = Private(shape=3, unit="entry", linf=1.0)
    found = []
    for middle in (2.0**27, 2.0**27 + 1):
        p.value = [2.0**80, middle, -(2.0**80)]
        _, values, scale, _ = asked_of(cp.sum(p), 1.0)
        found.append(float(values[0]))
    assert (2.0**80 + (2.0**27 + 1)) - (2.0**80 + 2.0**27) == 2.0**28
    assert found == [2.0**27, 2.0**27 + 1] and scale >= 1


def test_public_numbers_are_added_to_what_was_released() -> None:
    """Added before, the sum's rounding would depend on private digits and enlarge steps to 256."""
    p = Private([127.5, 128.5], unit="entry", linf=1.0)
    shift = cp.Parameter(2, value=[2.0**60, -(2.0**60)], name="shift")
    for made in (p + shift, p + cp.Constant(np.array([2.0**60, -(2.0**60)]), name="public")):
        assert asked_of(made, 1.0)[1].tolist() == [127.5, 128.5]


def test_whole_products_do_not_overflow() -> None:
    p = Private([2**50, 3], name="p", unit="entry", linf=1, integer=True)
    assert measure(2**20 * p, 1e3, rng=0).value.tolist() == pytest.approx([2.0**52, 3 * 2**20], abs=2**17)


# ------------------------------------------------------------------ refusals, before anything is spent or read
SECRET = 31337.25


def secret(**more: Any) -> Private:
    return Private([SECRET, 2 * SECRET], name="pay", **({"unit": "entry", "linf": 1} | more))


def silent(error: BaseException) -> bool:
    seen, words = [error, error.__cause__, error.__context__], ""
    words = " ".join(f"{e} {e!r} {getattr(e, 'why', '')}" for e in seen if e is not None)
    return not any(digits in words for digits in ("31337", "62674", "94011"))


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "array": (lambda: measure([1.0], 1.0), SpecificationError, "not private"),
    "none": (lambda: measure(None, 1.0), SpecificationError, "not private"),
    "published": (lambda: measure(Noisy([1.0], Laplace(1)), 1.0), SpecificationError, "published already"),
    "public": (lambda: measure(cp.Parameter(2, value=[1, 2]), 1.0), SpecificationError, "nothing in the expression"),
    "constant": (lambda: measure(cp.Constant([1.0]), 1.0), SpecificationError, "nothing in the expression"),
    "variable": (lambda: measure(secret() + cp.Variable(2, name="x"), 1.0), SpecificationError, "variable x"),
    "square": (lambda: measure(cp.square(secret()), 1.0), UnsupportedModelError, "not affine"),
    "absolute": (lambda: measure(cp.abs(secret()), 1.0), UnsupportedModelError, "not affine"),
    "product": (lambda: measure(cp.multiply(secret(), secret()), 1.0), UnsupportedModelError, "pay"),
    "quotient": (lambda: measure(1 / secret(), 1.0), UnsupportedModelError, "pay"),
    "public factor": (
        lambda: measure(cp.multiply(cp.Parameter(2, name="w", value=[1, 2]), secret()), 1.0),
        UnsupportedModelError,
        "pay",
    ),
    "complex": (lambda: measure(1j * secret(), 1.0), UnsupportedModelError, "complex"),
    "high": (lambda: measure(secret(linf=None), 1.0), ImpossibilityError, "Theorem 36"),
    "high by a part": (
        lambda: measure(cp.hstack([secret(), secret(linf=None)]), 1.0, DELTA),
        ImpossibilityError,
        "no bound is declared",
    ),
    "missing": (lambda: measure(Private(shape=2, name="pay", unit="entry", linf=1), 1.0), MissingValueError, "pay"),
    "missing public": (lambda: measure(secret() + cp.Parameter(2, name="w"), 1.0), MissingValueError, "w"),
    "nan": (lambda: measure(secret() + np.array([np.nan, 1.0]), 1.0), Exception, ""),
    "cancels": (lambda: measure(0 * secret(), 1.0), SpecificationError, "no record can change"),
    "fixed": (lambda: measure(secret(bounds=[1, 1]), 1.0), SpecificationError, "lo == hi"),
    "epsilon": (lambda: measure(secret(), 0.0), SpecificationError, "epsilon"),
    "epsilon text": (lambda: measure(secret(), "1"), SpecificationError, "epsilon"),  # type: ignore[arg-type]
    "epsilon nan": (lambda: measure(secret(), math.nan), SpecificationError, "epsilon"),
    "delta": (lambda: measure(secret(), 1.0, 1.0), SpecificationError, "delta"),
    "law": (lambda: measure(secret(), 1.0, law="cauchy"), SpecificationError, "cauchy"),
    "law object": (lambda: measure(secret(), 1.0, law=Laplace(1)), SpecificationError, "Laplace"),  # type: ignore[arg-type]
    "pure gaussian": (lambda: measure(secret(), 1.0, law="gaussian"), SpecificationError, "delta = 0"),
    "discrete": (lambda: measure(secret(), 1.0, law="discrete-laplace"), SpecificationError, "not declared whole"),
    "pure discrete gaussian": (
        lambda: measure(Private([1], name="k", unit="entry", linf=1, integer=True), 1.0, law="discrete-gaussian"),
        SpecificationError,
        "delta = 0",
    ),
    "budget": (lambda: measure(secret(), 1.0, budget=2.0), SpecificationError, "budget"),  # type: ignore[arg-type]
    "spent": (lambda: measure(secret(), 1.0, budget=Budget(0.5)), BudgetExceededError, ""),
    "rng": (lambda: measure(secret(), 1.0, rng="seed"), SpecificationError, "rng"),
    "name": (lambda: measure(secret(), 1.0, name=3), SpecificationError, "name"),  # type: ignore[arg-type]
    "huge": (lambda: measure(secret(linf=1e90), 1e-70), SpecificationError, "scale"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused_before_anything_is_read(case: str, unread: None) -> None:
    call, kind, words = BAD[case]
    with pytest.raises(kind) as caught:
        call()
    assert not isinstance(caught.value, AssertionError)
    assert words in str(caught.value)
    assert silent(caught.value)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_changes_beyond_floating_point_are_refused_before_the_charge() -> None:
    budget = Budget(1.0)
    with pytest.raises(SpecificationError, match="too large"):
        measure(1e250 * Private([1.0], name="p", unit="entry", linf=1e100), 1.0, rng=0, budget=budget)
    assert budget.spent.epsilon == 0


def test_the_budget_is_charged_what_is_spent() -> None:
    budget = Budget(2.0, 1e-5)
    measure(secret(), 0.5, DELTA, budget=budget, rng=0)
    assert (budget.spent.epsilon, budget.spent.delta) == (0.5, 0.0)
    measure(Private(np.zeros(50), name="q", unit="all", l2=1.0), 0.5, DELTA, budget=budget, rng=0, name="second")
    assert (budget.spent.epsilon, budget.spent.delta) == (1.0, DELTA)
    assert [charge.label for charge in budget.history] == ["measure pay", "measure second"]
    with pytest.raises(SpecificationError):
        measure(secret(), 0.5, law="gaussian", budget=budget, rng=0)
    with pytest.raises(BudgetExceededError):
        measure(secret(), 1.5, budget=budget, rng=0)
    assert len(budget.history) == 2


def test_a_failure_in_the_middle_tells_nothing() -> None:
    class Failing(SeededSource):
        def laplace(self, values: object, scale: float) -> Any:
            raise ValueError(f"cannot noise {values}")

    budget = Budget(1.0)
    with pytest.raises(RunError, match="ValueError") as caught:
        measure(secret(), 1.0, budget=budget, rng=Failing(0))
    assert silent(caught.value) and caught.value.__context__ is None and caught.value.__cause__ is None
    assert budget.spent.epsilon == 1.0

    class Interrupted(SeededSource):
        def laplace(self, values: object, scale: float) -> Any:
            try:
                raise ValueError(f"cannot noise {values}")
            except ValueError:
                raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt) as stopped:
        measure(secret(), 1.0, rng=Interrupted(0))
    assert stopped.value.__context__ is None
    names = [frame.f_code.co_name for frame, _ in _frames(stopped.value.__traceback__)]
    assert "measure" in names and not {"run", "laplace"} & set(names)


def _frames(traceback: Any) -> Iterator[tuple[Any, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def test_sources_without_discrete_draws() -> None:
    class Old:
        is_private = False
        laplace = gaussian = truncated_laplace = noisy_max = lambda self, values, scale: np.asarray(values, float)

    p = Private([1, 2], name="p", unit="entry", linf=1, integer=True)
    budget = Budget(1.0)
    with pytest.raises(SpecificationError, match="discrete laplace"):
        measure(p, 1.0, rng=Old(), budget=budget)
    assert budget.spent.epsilon == 0
    assert measure(p, 1.0, rng=Old(), law="laplace").value.tolist() == [1.0, 2.0]


# ------------------------------------------------------------------ what it says
def test_the_result_says_what_it_cost() -> None:
    p = Private(np.arange(4), name="visits", unit="entry", linf=1, records=Records("patients", "add-remove"))
    with pytest.warns(NotPrivateWarning):
        noisy = measure(p, 0.5, rng=3)
    assert (noisy.name, noisy.epsilon, noisy.delta, noisy.neighbors) == ("visits", 0.5, 0.0, "add-remove")
    assert noisy.record == "NOT PRIVATE (seeded noise for tests); a record of patients owns one entry of visits"
    assert measure(2 * p + p[::-1], 0.5, rng=3).name == "function of visits"
    assert measure(p, 0.5, rng=3, name="mine").name == "mine"
    assert noisy.value.tolist() == measure(p, 0.5, rng=3).value.tolist() != measure(p, 0.5, rng=4).value.tolist()
    assert pickle.loads(pickle.dumps(noisy)).record == noisy.record


def test_suspicious_constants_are_warned_of() -> None:
    p = secret()
    with pytest.warns(PossibleLeakWarning):
        measure(p - np.array([1.5, 2.5]), 1.0, rng=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PossibleLeakWarning)
        measure(p - cp.Constant([1.5, 2.5], name="public"), 1.0, rng=0)


def test_a_large_tree() -> None:
    leaves = 2**13
    p = Private(np.ones(leaves), name="p", unit="entry", linf=1, integer=True)
    noisy = measure(tree(leaves) @ p, 1.0, rng=0)
    assert noisy.shape == (2 * leaves - 1,) and noisy.noise.scale == 14.0
    assert abs(noisy.value[0] - leaves) < 14 * 40


@pytest.mark.slow
def test_a_very_large_tree_with_real_noise() -> None:
    leaves = 2**17
    p = Private(np.ones(leaves), name="p", unit="entry", linf=1, integer=True)
    noisy = measure(tree(leaves) @ p, 1.0)
    assert noisy.shape == (2 * leaves - 1,) and noisy.noise.scale == 18.0
    spread = np.sqrt(np.mean((noisy.value[-leaves:] - 1) ** 2))
    assert spread == pytest.approx(noisy.noise.standard_deviation, rel=0.05)
