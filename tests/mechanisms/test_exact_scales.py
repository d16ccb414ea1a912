"""Every place in the package that draws noise, and the test that knows its exact scale: half of it is found out.

Statistics do not see a factor of two in a scale, so nothing here is one. Either the draws of a run and of its replay on
neighbours (brute force, from the data alone) lose so much of the budget that half the noise would be too little, or
the arguments that reach the sampler are compared with a formula that is written out again here or in the test named.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from faces import FACES, Face
from replaying import Draw, Transcript, watched
from scipy.optimize import brentq
from scipy.stats import norm

import dpmodel as dpm
from dpmodel.learn import PrivateRidge, PrivateSearchCV
from dpmodel.learn.search import GRID
from dpmodel.privacy import accounting as subsampling
from dpmodel.privacy import zcdp_rho

pytestmark = pytest.mark.filterwarnings("ignore")
ROOM, TESTS = Path(dpm.__file__).parent, Path(__file__).parents[1]
CLOSE = 4e-3  # rounding allowances enlarge scales by less than this share

# Where noise is drawn: the face on whose neighbours half of it is found out, or the test that has the formula.
DRAWS = {
    "learn/search.py:_uniform": "test_a_search_draws_what_its_proof_says",
    "learn/search.py:every": "test_a_search_draws_what_its_proof_says",
    "learn/search.py:stopped": "test_a_search_draws_what_its_proof_says",
    "kernels/direct_measurement.py:run": "measure-laplace",
    "exact/category_span.py:run": "span-category-span",
    "exact/dp_lp.py:_selected": "test_what_is_drawn_is_what_is_paid_for",
    "exact/dp_lp.py:noisy_pull": "test_what_is_drawn_is_what_is_paid_for",
    "exact/dp_lp.py:search": "test_what_is_drawn_is_what_is_paid_for",
    "exact/hinge_descent.py:run": "feasible_point-hinge-descent",
    "exact/pin_hull.py:_search": "test_what_is_drawn_is_what_is_planned",
    "exact/pin_hull.py:run": "test_what_is_drawn_is_what_is_planned",
    "exact/rescaling_perceptron.py:run": "feasible_point-rescaling-perceptron",
    "exact/stable_span.py:_released": "span-stable-span",
    "exact/tukey_depth.py:run": "point_in_hull-tukey-depth",
    "programs/points.py:_run_cheapest": "test_cheapest_point_spends_epsilon_on_the_moves_of_its_counts",
    "programs/dense_oracles.py:minimise": "test_dense_weights_ask_for_the_rows_of_one_record",
    "programs/dense_oracles.py:select": "test_dense_weights_ask_for_the_rows_of_one_record",
    "programs/nearly_feasible.py:_search": "test_tests_of_a_search_for_the_objective_share_a_tenth",
    "programs/hinge.py:point": "people-noisy-hinge-descent",
    "programs/split_votes.py:point": "people_to_cover-split-votes",
    "programs/weights.py:point": "people-noisy-multiplicative-weights",
    "programs/weights.py:select": "shares-multiplicative-weights",
    "programs/noise_once.py:released_numbers": "several_parts-laplace-once",
    "programs/points.py:point": "test_the_exact_privacy_loss",
    "programs/vertex.py:run": "objective-vertex-exponential",
    "programs/certificate.py:_objective": "test_one_record_moves_the_objective_by_what_is_declared",
    "programs/certificate.py:_shortage": "test_one_record_moves_what_rows_are_short_by_as_far_as_is_declared",
    "programs/certificate.py:_rows": "test_one_record_moves_the_count_of_rows_by_what_is_declared",
    "regressions/certificate.py:certify": "test_one_record_moves_the_risk_by_what_is_declared",
    "as_printed/jointly_private_programming.py:measure": "test_demands_of_neighbours_cost_what_is_charged_and_no_more",
    "as_printed/adassp.py:run": "test_adassp_draws_what_its_paper_and_the_relation_demand",
    "as_printed/stable_span.py:index": "test_noise_of_the_printed_scales_doubled_for_replace_one",
    "as_printed/stochastic_mirror_descent.py:fresh_pattern": "test_pattern_of_fresh_steps",
    "as_printed/stochastic_mirror_descent.py:run": "test_transcripts_of_neighbours",
    "regressions/noisy_gradient.py:draw": "test_random_neighbours_cost_all_of_the_budget_and_no_more",
    "regressions/descent.py:_multiplier": "test_what_subsampling_is_told_to_compose",
    "regressions/descent.py:gradient": "test_what_subsampling_is_told_to_compose",
    "regressions/objective_perturbation.py:run": "test_run_releases_that_point",
    "regressions/private_constant.py:run": "test_half_the_range_would_not_do",
    "regressions/objective_perturbation.py:drawn": "test_noise_costs_the_budget",
    "regressions/gauge_noise.py:draw": "test_noise_has_the_density_of_its_norm",
    "released/faces/quantiles.py:run": "test_a_draw_follows_its_law",
    "released/faces/unknown_keys.py:run": "test_no_neighbor_is_told_apart_by_more",
    "released/marginal_noise.py:run": "test_the_noise_that_is_drawn_is_enough",
    "released/marginal_noise.py:_of_residuals": "test_the_noise_that_is_drawn_is_enough",
    "released/marginal_noise.py:_of_marginals": "test_laplace_scales_cost_epsilon",
    "released/marginal_noise.py:_of_columns": "test_laplace_noise_costs_epsilon_also_where_a_first_total_chooses",
    "joint/noisy_prices.py:measure": "test_the_worst_household_loses_all_that_is_charged_and_no_more",
    "joint/noisy_prices.py:run": "test_a_private_capacity_and_the_demands_together_cost_what_is_charged",
    "joint/certificate.py:certify": "test_it_draws_what_one_person_moves_both_sums_by",
    "learn/linear_model.py:run": "test_one_record_moves_the_number_of_clipped_rows_by_one_at_most",
    "regressions/sufficient_statistics.py:run_as_given": "least_squares-sufficient-statistics",
}  # fmt: skip
# They draw about made-up data, for forecasts and demonstrations, or only ask which law noise has.
PUBLIC = {
    "exact/cones.py:public_noise", "regressions/search.py:simulated", "programs/prices.py:amounts",
    "programs/prices.py:chances", "programs/prices.py:gaps", "programs/prices.py:lines",
    "teach/reconstruction.py:randomised_response",
}  # fmt: skip


# ------------------------------------------------------------------ every place is known
_METHODS = {"laplace", "gaussian", "discrete_laplace", "discrete_gaussian", "truncated_laplace", "truncated_gaussian",
            "noisy_max", "add_to"}  # fmt: skip
_FUNCTIONS = {
    "exponential_mechanism", "permute_and_flip", "AboveThreshold", "poisson_coins", "poisson_sample",
    "subsampled_multiplier",
}  # fmt: skip

_DRAWS = re.compile("|".join(rf"\.{name}\b" for name in _METHODS) + "|" + "|".join(_FUNCTIONS))


def places(source: str) -> set[str]:
    """Functions in which a source of noise is asked, or what asks one is called."""

    def walk(node: ast.AST, where: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            name = child.func.id if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) else ""
            asked = isinstance(child, ast.Attribute) and child.attr in _METHODS
            if name in _FUNCTIONS or (
                asked and not ast.unparse(child).startswith(("self.engine.", "Cost.", "options."))
            ):
                yield where
            yield from walk(child, child.name if isinstance(child, ast.FunctionDef) else where)

    return set(walk(ast.parse(source), ""))


def test_every_place_that_draws_has_a_test() -> None:
    found = {
        f"{path.relative_to(ROOM)}:{where}"
        for path in ROOM.rglob("*.py")
        if path.relative_to(ROOM).parts[0] != "privacy" and _DRAWS.search(text := path.read_text())
        for where in places(text)
    }
    assert found == set(DRAWS) | PUBLIC
    tests = set(re.findall(r"^def (test_\w+)", "\n".join(path.read_text() for path in TESTS.rglob("*.py")), re.M))
    assert set(DRAWS.values()) <= tests | {str(face) for face in FACES}
    assert places("def f(x):\n    def g():\n        return x.gaussian\n    permute_and_flip(1)") == {"f", "g"}


# ------------------------------------------------------------------ on neighbours
def losses(face: Face, place: str, budget: tuple[float, float], seeds: range) -> Iterator[tuple[float, float]]:
    """Share of the charge that all draws lose between neighbours: as drawn, and with half the noise at ``place``."""
    for seed in seeds:
        one, two = face.data(np.random.default_rng(seed))
        first, account = Transcript(seed), dpm.Budget(*budget)
        with watched(first):
            face.release(one, *budget, budget=account, rng=first)
        second = first.replay()
        with watched(second):
            face.release(two, *budget, budget=dpm.Budget(*budget), rng=second)
        charged = tuple(account.spent)
        drawn = first.lost(*charged)
        here = [draw for draw in first.draws if place in draw.callers]
        assert here, f"{place} draws nothing"
        for draw in here:
            draw.arguments = (draw.arguments[0] / 2, *draw.arguments[1:])
        yield drawn, first.lost(*charged)


SLOW = {"feasible_point-hinge-descent",
        "least_squares-sufficient-statistics"}  # fmt: skip
ON_NEIGHBOURS = [
    pytest.param(face, place, id=place, marks=[pytest.mark.slow] if str(face) in SLOW else [])
    for place, told in DRAWS.items()
    for face in FACES
    if str(face) == told
]
_first: dict[str, Any] = {}
ON_NEIGHBOURS = [case for case in ON_NEIGHBOURS if _first.setdefault(case.values[1], case) is case]


@pytest.mark.parametrize("times", [1.0, 2.0])
@pytest.mark.parametrize(("face", "place"), ON_NEIGHBOURS)
def test_half_of_the_noise_is_found_on_neighbours(face: Face, place: str, times: float) -> None:
    budget = (times * face.budget[0], face.budget[1])
    most = 0.0
    for drawn, halved in losses(face, place, budget, range(16)):
        assert drawn <= 1 + 1e-6
        most = max(most, halved)
        if most > 1.02:
            break
    assert most > 1.02


# ------------------------------------------------------------------ formulas
def fits(scale: float, expected: float) -> bool:
    return expected * (1 - 1e-9) <= scale <= expected * (1 + CLOSE)


def mu_of(epsilon: float, delta: float) -> float:
    """The mean apart of two unit normals that are exactly (epsilon, delta)-indistinguishable (Balle and Wang 2018)."""

    def excess(mu: float) -> float:
        above = norm.logsf(epsilon / mu - mu / 2), norm.logsf(epsilon / mu + mu / 2)
        return math.exp(above[0]) - math.exp(epsilon + above[1]) - delta

    return float(brentq(excess, 1e-6, 100.0, xtol=1e-14))


def asked_of(work: Callable[..., Any], *given: Any) -> list[Draw]:
    source = Transcript(0)
    work(*given, source)
    return source.draws


def two_sizes() -> tuple[Any, dict[str, float]]:
    """People own an entry of one table and all of another, firms an entry of a third: the larger of both counts."""
    people, firms = dpm.Records("people"), dpm.Records("firms")
    a = dpm.Private([20.0, 30.0, 25.0], name="a", unit="entry", linf=0.5, records=people, bounds=[0, 100])
    b = dpm.Private([40.0, 10.0], name="b", l1=3.0, l2=2.5, linf=2.0, records=people, bounds=[0, 100])
    c = dpm.Private([5.0, 7.0], name="c", unit="entry", linf=4.0, records=firms, bounds=[0, 100])
    # People: |a| <= .5 twice (2 a) and b as it is. Firms: c three times.
    together = cp.hstack([2 * a, b, 3 * c])
    assert together.shape == (7,)
    return together, {"l1": max(1.0 + 3.0, 12.0), "l2": max(math.hypot(1.0, 2.5), 12.0)}


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_measurements_of_two_records_of_unequal_size(epsilon: float) -> None:
    for distribution, scale in (("laplace", 12.0 / epsilon), ("gaussian", 12.0 / mu_of(epsilon, 1e-6))):
        (draw,) = asked_of(
            lambda rng, named=distribution: dpm.measure(
                two_sizes()[0], epsilon, 1e-6 if named == "gaussian" else 0.0, distribution=named, rng=rng
            )
        )
        assert draw.distribution == distribution and fits(draw.arguments[0], scale)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_adassp_draws_what_its_paper_and_the_relation_demand(epsilon: float) -> None:
    """A third each on the least eigenvalue (R^2), X'X (sqrt(2) R^2) and X'y (2 R Y), of rows replaced; Y is not R."""
    rng = np.random.default_rng(0)
    X = dpm.Private(rng.uniform(-1, 1, (40, 2)), name="X", unit="row", bounds=[-1, 1])
    y = dpm.Private(rng.uniform(-3, 3, 40), name="y", unit="entry", bounds=[-3, 3], records=X.records)
    w = cp.Variable(2, name="w")
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.norm1(w) <= 1])
    draws = asked_of(lambda rng: problem.solve(epsilon, 1e-6, mechanism="adassp-as-printed", rng=rng))
    R, Y = math.sqrt(2), 3.0
    unit = max(math.sqrt(math.log(6 / 1e-6)) / (epsilon / 3), math.sqrt(3) / mu_of(epsilon, 1e-6))
    expected = [R**2 * unit, math.sqrt(2) * R**2 * unit, 2 * R * Y * unit]
    assert [draw.values[0].size for draw in draws] == [1, 3, 2]
    assert all(fits(draw.arguments[0], scale) for draw, scale in zip(draws, expected, strict=True))


@pytest.mark.parametrize(
    ("linf", "epsilon", "delta", "count"), [(1e-3, 0.5, 0.0, 1), (1e-3, 3.0, 1e-6, 3), (1e-4, 3.0, 0.0, 3)]
)
def test_tests_of_a_search_for_the_objective_share_a_tenth(
    linf: float, epsilon: float, delta: float, count: int
) -> None:
    """Each asks for the worst violation, which moves as far as one right-hand side."""
    b, x = dpm.Private([0.4, 0.5, 0.6], name="b", linf=linf, bounds=[0, 1]), cp.Variable(4, nonneg=True, name="x")
    rows = [np.random.default_rng(0).random((3, 4)) @ x <= b, cp.sum(x) == 1]
    problem = dpm.Problem(cp.Minimize(np.arange(1.0, 5.0) @ x), rows)
    given = {"mechanism": "multiplicative-weights", "goal": dpm.Search()}
    draws = asked_of(lambda rng: problem.solve(epsilon, delta, rng=rng, **given))
    tests = [draw for draw in draws if draw.distribution != "noisy_max"]
    assert len(tests) == count and all(draw.values[0].size == 1 for draw in tests)
    expected = linf * count / (0.1 * epsilon)
    if delta > 0:
        expected = linf * math.sqrt(count / (2 * 0.1 * zcdp_rho(epsilon, delta)))
    assert {draw.distribution for draw in tests} == {"gaussian" if delta else "laplace"}
    assert all(fits(draw.arguments[0], expected) for draw in tests)


# ------------------------------------------------------------------ a search over parameters
@pytest.mark.parametrize(("epsilon", "share"), [(0.5, 0.5), (3.0, 0.2)])
@pytest.mark.parametrize("strategy", ["every", "random-stopping"])
def test_a_search_draws_what_its_proof_says(strategy: str, share: float, epsilon: float) -> None:
    """``learn/search.py``: a row's score moves by GRID, so two scores part by 2 GRID, and one by GRID."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (90, 2))
    y = X @ [1.0, -0.5]
    ridge = PrivateRidge(bounds=(-1, 1), label_bounds=(-2, 2), mechanism="sufficient-statistics")
    search = PrivateSearchCV(
        ridge, {"alpha": [1.0, 5.0, 9.0]}, epsilon=epsilon, refit_share=share, strategy=strategy, runs=7 * (
            strategy != "every") or None, random_state=(source := Transcript(3)),
    )  # fmt: skip
    search.fit(X, y)
    searched = epsilon * (1 - share)
    named = [draw for draw in source.draws if draw.distribution != "laplace"]
    fits_of = [draw.arguments[0] for draw in source.draws if draw.distribution == "laplace"]
    if strategy == "every":
        (choice,) = named
        assert choice.distribution == "noisy_max" and choice.arguments[1] == "permute_and_flip"
        assert fits(choice.arguments[0], 2 * GRID / searched) and choice.values[0].size == 3
        each = searched / 3
        assert len(fits_of) == 4
    else:
        each = searched / 3  # whatever the number of candidates: 3 e for the best of a geometric number of runs at e
        scores = [draw for draw in named if draw.distribution == "discrete_laplace"]
        coins = [draw for draw in named if draw.distribution == "noisy_max"]
        assert scores and all(fits(draw.arguments[0], GRID / each) for draw in scores)
        assert len(coins) == 2 * len(scores) == 2 * (len(fits_of) - 1)
        sizes = [draw.values[0].size for draw in coins]
        assert sizes == [3, 7] * len(scores) and not any(draw.values[0].any() for draw in coins)
    # The scale of a fit is what its sums move by over its epsilon, whichever rows it reads.
    assert all(fits(scale * each, fits_of[-1] * epsilon * share) for scale in fits_of[:-1])


# ------------------------------------------------------------------ subsampling
class Counted:
    """Stands for a privacy loss distribution: what it is made of, how often it is composed, at which delta it is
    asked."""

    def __init__(self, *made: Any, **how: Any) -> None:
        self.made, self.how, self.steps = made, how, 1

    def self_compose(self, steps: int) -> Any:
        self.steps *= steps
        return self

    def get_epsilon_for_delta(self, delta: float) -> float:
        self.delta = delta
        return 1.0


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize(("multiplier", "rate", "steps", "delta"), [(1.5, 0.1, 40, 1e-6), (0.7, 0.02, 3, 1e-9)])
def test_what_subsampling_is_told_to_compose(
    multiplier: float, rate: float, steps: int, delta: float, replace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps, the declared relation, and a delta below the one asked for by what the transforms may be wrong by."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.privacy_accountant import NeighboringRelation

    made: list[Counted] = []

    def record(*given: Any, **how: Any) -> Any:
        made.append(Counted(*given, **how))
        return made[-1]

    monkeypatch.setattr(pld, "from_gaussian_mechanism", record)
    assert subsampling.subsampled_epsilon(multiplier, rate, steps, delta, replace=replace) == 1.0
    (one,) = made
    assert one.made == (multiplier,) and one.how["sampling_prob"] == rate and one.steps == steps
    assert one.how["value_discretization_interval"] <= 1e-3
    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    assert one.how["neighboring_relation"] == relation
    assert delta * (1 - 2e-3) - 2e-12 <= one.delta <= delta * (1 - 1e-3) - 1e-12
