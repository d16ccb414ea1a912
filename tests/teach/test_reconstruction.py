"""The attack on solutions, randomised response, the demonstration and the figure."""

from __future__ import annotations

import json
import math
import sys
import warnings

import cvxpy as cp
import numpy as np
import pytest
from auditing import clopper_pearson, epsilon_lower_bound
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.teach import demonstration as show
from dpmodel.teach import gadgets

KINDS = ("scalar", "objective", "sharp", "column")


def make(kind: str, bits, sensitivity=None) -> gadgets.Gadget:
    return gadgets.build("objective" if kind == "sharp" else kind, bits, sensitivity=sensitivity, sharp=kind == "sharp")


# ------------------------------------------------------------------ the attack
@pytest.mark.parametrize("kind", KINDS)
def test_the_plain_solver_tells_every_bit(kind):
    rng = np.random.default_rng(1)
    for n in (2, 10, 1000):
        bits = rng.permutation(np.arange(n) % 2)
        for sensitivity in (None, 0.01, 30.0):
            gadget = make(kind, bits, sensitivity)
            found = gadgets.reconstruct(gadget, gadget.solve_without_privacy(), truth=bits)
            assert found.share == 1.0
            assert found.bits.tolist() == bits.tolist()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(
    bits=st.integers(1, 8).flatmap(lambda half: st.permutations([0] * half + [1] * half)),
    seed=st.integers(0, 1000),
)
def test_errors_bound_the_wrong_bits(kind, bits, seed):
    """Rounding at most doubles the 1-norm distance; below error 1/2 Theorem 36 tells all."""
    gadget, rng = make(kind, bits), np.random.default_rng(seed)
    if kind == "scalar":
        x = np.array(bits) + rng.uniform(-0.499, 0.499, len(bits))
        assert gadgets.reconstruct(gadget, x, truth=bits).share == 1.0
        return
    share = rng.uniform()
    x = share * np.array(bits) + (1 - share) * rng.permutation(bits)
    distance = np.abs(x - bits).sum()
    assert distance == pytest.approx(2 * len(bits) * gadget.error(x))  # for sums of n/2, in all three
    found = gadgets.reconstruct(gadget, x)
    assert np.abs(found.bits - bits).sum() <= 2 * distance + 1e-9
    if gadget.balanced:
        assert found.bits.sum() == len(bits) // 2


def test_solved_problems_variables_and_arrays_are_attacked_alike():
    bits = [0, 1, 1, 0, 1, 0]
    gadget = gadgets.objective(bits, sensitivity=1.0)
    gadget.problem.solve(epsilon=1e9, rng=0)
    for solved in (gadget, gadget.problem, gadget.variable, gadget.variable.value, list(gadget.variable.value)):
        assert gadgets.reconstruct(solved, truth=bits).share == 1.0
    x = cp.Variable(6)
    plain = cp.Problem(cp.Minimize(cp.sum(cp.abs(x - np.array(bits)))))
    plain.solve()
    assert gadgets.reconstruct(plain).bits.tolist() == bits
    assert gadgets.reconstruct(plain).share is None


def test_the_number_of_ones_is_used_where_it_is_public():
    x = [0.9, 0.8, 0.7, 0.1]
    assert gadgets.reconstruct(x).bits.tolist() == [1, 1, 1, 0]
    assert gadgets.reconstruct(x, ones=2).bits.tolist() == [1, 1, 0, 0]
    assert gadgets.reconstruct(gadgets.objective([0, 1, 0, 1]), [0.5] * 4).bits.tolist() == [1, 1, 0, 0]  # ties
    assert gadgets.reconstruct([3.0, 6.0], half=5).bits.tolist() == [0, 1]
    assert gadgets.reconstruct(x, ones=0).bits.sum() == 0


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((gadgets.objective([0, 1]),), {}, "no solution"),
        ((gadgets.objective([0, 1]).problem,), {}, "no solution"),
        ((gadgets.objective([0, 1]), [1.0, 0, 0]), {}, "shape"),
        (([0.0, 1.0], [1.0, 0.0]), {}, "no gadget"),
        ((cp.Problem(cp.Minimize(cp.Variable() + cp.Variable())),), {}, "2 variables"),
        ((dpm.Private([0.0, 1.0], unit="entry"),), {}, "shape"),
        ((None,), {}, "no solution"),
        (([math.nan],), {}, "NaN"),
        (([],), {}, "shape"),
        (([0.0, 1.0],), {"ones": 3}, "ones"),
        (([0.0, 1.0],), {"ones": True}, "ones"),
        (([0.0, 1.0],), {"half": math.nan}, "half"),
        (([0.0, 1.0],), {"truth": [0, 1, 1]}, "3 bits"),
        (([0.0, 1.0],), {"truth": [0, 0.5]}, "other than"),
    ],
)
def test_what_cannot_be_attacked(arguments, options, words):
    with pytest.raises(dpm.errors.SpecificationError, match=words):
        gadgets.reconstruct(*arguments, **options)


# ------------------------------------------------------------------ randomised response
def _answers(bit: int, epsilon: float, count: int, seed: int) -> np.ndarray:
    return gadgets.randomised_response(np.full(count, bit), epsilon, rng=seed).astype(float)


def test_randomised_response_keeps_its_promise_and_the_audit_would_see_if_not():
    epsilon, count = 1.0, 12_000
    told, other = _answers(1, epsilon, count, 1), _answers(0, epsilon, count, 2)
    found = epsilon_lower_bound(told, other)
    assert 0.75 * epsilon < found <= epsilon, "it spends nearly all that it promises, and no more"
    broken, twin = _answers(1, 1.3 * epsilon, count, 3), _answers(0, 1.3 * epsilon, count, 4)
    assert epsilon_lower_bound(broken, twin) > epsilon


def test_randomised_response_attains_the_floor_of_the_sharper_gadget():
    """Exact quantiles of its binomial error come within 2% of the lower bound, and never below it."""
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        wrong = 1 / (1 + math.exp(epsilon))
        for n, beta in ((10, 0.05), (1000, 0.05), (10**8, 1e-4)):
            attained = binom.ppf(1 - beta, n, wrong) / (2 * n)
            least = gadgets.objective([0, 1], sharp=True).lower_bound(epsilon, 0.0, beta).value
            assert attained >= least
        assert attained <= 1.02 * least


@pytest.mark.parametrize(("bits", "epsilon"), [([0, 2], 1.0), ([0, 1], 0.0), ([0, 1], -1.0), ([], 1.0)])
def test_randomised_response_refuses(bits, epsilon):
    with pytest.raises(dpm.errors.SpecificationError):
        gadgets.randomised_response(bits, epsilon, rng=0)


# ------------------------------------------------------------------ the demonstration
BETA, RUNS = 0.2, 80


@pytest.fixture(scope="module")
def shown() -> gadgets.Demonstration:
    with warnings.catch_warnings():  # the demonstration states lower bounds: what it runs must not warn besides
        warnings.simplefilter("error", dpm.errors.NoGuaranteeWarning)
        return gadgets.demonstrate(n=10, epsilons=(0.4,), delta=1e-6, beta=BETA, repetitions=RUNS, rng=7)


def _refuted(row: gadgets.Row) -> bool:
    """Whether the runs prove (wrong with probability < 1e-7) an error below the lower bound more often than 1 -
    beta."""
    low, _ = clopper_pearson(row.below, row.runs, 1e-7)
    return bool(low > 1 - BETA)


@pytest.mark.slow
def test_the_plain_solver_reconstructs_every_bit_with_no_error(shown):
    plain = [row for row in shown.rows if row.who == show.PLAIN]
    assert [row.part for row in plain] == ["scalar", "objective", "column"]
    for row in plain:
        assert row.share == 1.0 and row.error < 1e-9 and row.lower_bound is None and row.epsilon is None


@pytest.mark.slow
def test_private_mechanisms_stay_above_the_floor(shown):
    private = [row for row in shown.rows if row.epsilon is not None]
    seen = {(row.part, row.who) for row in private}
    assert {("scalar", "laplace-once"), ("objective", "gaussian-once"), ("column", "laplace-once")} <= seen
    assert {(part, show.RESPONSE) for part in ("scalar", "objective")} <= seen
    assert ("column", show.RESPONSE) not in seen
    assert "public-only" not in {who for _, who in seen}, "it reads no bits"
    alive = [row for row in private if row.lower_bound]
    assert len(alive) >= 5
    for row in alive:
        assert not _refuted(row), row
        assert row.runs == RUNS and row.share < 0.9
        assert row.error >= row.mean * 0.99


def test_the_same_count_refutes_a_solver_without_privacy():
    """The planted violation: the plain solver, held against the lower bound of epsilon = .1."""
    from dpmodel.privacy import noise_source

    for part in ("scalar", "column"):
        gadget = make(part, np.arange(6) % 2, 1.0)
        least = gadget.lower_bound(0.1, 1e-6, BETA).value
        draws = [np.random.default_rng(k).permutation(np.arange(6) % 2).astype(np.int8) for k in range(RUNS)]
        asked = {"delta": 1e-6, "beta": BETA, "rng": noise_source(1)}
        row = show._row(gadget, show.PLAIN, None, least, draws, asked)
        assert row.below == RUNS and _refuted(row)


@pytest.mark.slow
def test_the_demonstration_is_repeatable_plain_data(shown):
    again = gadgets.demonstrate("scalar", n=20, epsilons=(1,), repetitions=3, rng=7)
    assert again == gadgets.demonstrate(["scalar"], n=20, epsilons=(1,), repetitions=3, rng=7)
    plain = json.loads(json.dumps(shown.to_dict()))
    assert plain["n"] == 10 and plain["beta"] == BETA and len(plain["rows"]) == len(shown.rows)
    assert {"who", "share", "error", "lower_bound", "epsilon", "below", "runs"} <= set(plain["rows"][0])
    text = str(shown)
    assert "plain solver" in text and "100.0%" in text and "randomised response" in text and "quantile" in text
    assert "<table" in shown._repr_html_() and "plain solver" in shown._repr_html_()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 7}, "even"),
        ({"n": 0}, "n=0"),
        ({"n": 2.0}, "n=2.0"),
        ({"repetitions": 0}, "repetitions"),
        ({"database_rng": -1}, "database_rng"),
        ({"epsilons": ()}, "nothing"),
        ({"parts": ()}, "nothing"),
        ({"parts": "row"}, "no gadget"),
        ({"epsilons": (0.0,)}, "epsilon"),
        ({"epsilons": (math.nan,)}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"beta": 0.0}, "beta"),
        ({"rng": "seed"}, "rng"),
    ],
)
def test_a_demonstration_refuses(options, words):
    with pytest.raises(dpm.errors.SpecificationError, match=words):
        gadgets.demonstrate(**options)


# ------------------------------------------------------------------ lower bounds against epsilon
def test_the_table_of_floors():
    lines = gadgets.lower_bounds((0.1, 1.0, 5.0), delta=1e-6, beta=0.1)
    assert list(lines.columns) == [
        "Theorem 36 (scalar)",
        "Theorem 37 (objective), sharper",
        "Theorems 37, 38 (objective, column)",
    ]
    for kind, values in zip(("scalar", "sharp", "column"), lines.columns.values(), strict=True):
        gadget = make(kind, [0, 1])
        assert list(values) == [gadget.lower_bound(epsilon, 1e-6, 0.1).value for epsilon in (0.1, 1.0, 5.0)]
    assert json.loads(json.dumps(lines.to_dict()))["epsilons"] == [0.1, 1.0, 5.0]
    text = str(lines)
    assert "####" in text and "Theorem 36" in text
    assert "<table" in lines._repr_html_()
    assert "#" not in str(gadgets.lower_bounds((20.0,)))
    with pytest.raises(dpm.errors.SpecificationError, match="no epsilon"):
        gadgets.lower_bounds(())


@pytest.mark.slow
def test_the_figure(tmp_path, shown):
    pytest.importorskip("matplotlib")
    file = tmp_path / "lower_bound.png"
    drawn = gadgets.figure(shown, file=file)
    assert file.stat().st_size > 10_000
    panels = drawn.axes
    assert ["36" in panels[0].get_title(), "37" in panels[1].get_title(), "38" in panels[2].get_title()] == [True] * 3
    lines = {line.get_label(): line for line in panels[1].get_lines()}
    x, y = lines["lower bound, sharper form"].get_data()
    for epsilon, value in list(zip(x, y, strict=True))[::50]:
        least = gadgets.objective([0, 1], sharp=True).lower_bound(epsilon, 1e-6, BETA).value
        assert (math.isnan(value) and least == 0) or value == pytest.approx(least)
    rows = [row for row in shown.rows if row.part == "objective" and row.who == "laplace-once"]
    assert list(lines["laplace-once"].get_data()[1]) == [row.error for row in rows]
    assert "matplotlib.pyplot" not in sys.modules, "no state and no window"
    assert "<svg" in drawn._repr_svg_()  # shown by notebooks as it is
    assert panels[0].get_legend_handles_labels()[1][0] == "lower bound"
    with pytest.raises(dpm.errors.SpecificationError, match="delta"):
        gadgets.figure(shown, delta=0.5)
    with pytest.raises(dpm.errors.SpecificationError, match="above 0"):
        gadgets.figure(epsilons=(0.0, 1.0))
    gadgets.figure(epsilons=(1.0,), beta=0.01)
