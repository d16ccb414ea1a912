"""Privacy events and filters: the figures, and that what a filter admits loses no more than the total."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm

from dpmodel.errors import BudgetExceededError, SpecificationError
from dpmodel.privacy import Budget, Cost, gaussian_delta, gaussian_mu, laplace_rho, pure_mu, pure_rho, zcdp_rho
from dpmodel.privacy.conversions import PrivacyLoss
from dpmodel.privacy.events import Filter, filters
from dpmodel.privacy.noise import SeededSource

G1, G7 = Cost.all_gaussian(0.1, 1e-8), Cost.all_gaussian(0.1, 1e-7)
LAPLACE, BOX = Cost.laplace(0.1), Cost.approximate(0.1, 1e-7)


# --- one event ------------------------------------------------------------------------------------------------


def test_currencies():
    assert Cost.pure(0.5).rho == pytest.approx(0.5 * math.tanh(0.25)) and Cost.pure(10).rho == pytest.approx(
        10, rel=1e-3
    )
    assert Cost.exponential(0.5).rho == pytest.approx(0.03125)
    assert Cost.laplace(0.5).rho == pytest.approx(0.5 + math.exp(-0.5) - 1)
    assert Cost.gaussian(0.5).rho == pytest.approx(0.125) and Cost.gaussian(0.5).epsilon == math.inf
    assert Cost.approximate(0.5, 0) == Cost.pure(0.5) and Cost.approximate(0.5, 1e-6).leak == 1e-6
    assert Cost.all_gaussian(1, 1e-6).mu == gaussian_mu(1, 1e-6) and Cost.all_gaussian(1, 0) == Cost.pure(1)
    two = Cost.all_gaussian(0.1, 1e-8) + Cost.pure(0.3)
    assert (two.epsilon, two.delta, two.leak) == (pytest.approx(0.4), 1e-8, 0) and two.law == "composed"
    assert two.mu == pytest.approx(math.hypot(gaussian_mu(0.1, 1e-8), pure_mu(0.3)))
    assert (G1 + G1).law == "Gaussian" and (G1 + Cost.zcdp(0.1)).mu == math.inf
    for each in (G1, LAPLACE, BOX, two, Cost.zcdp(0.1).within(1, 1e-6), Cost.exponential(0.2)):
        assert Cost.from_dict(each.to_dict()) == each
    with pytest.raises(SpecificationError):
        Cost()
    for bad in (-1.0, math.nan, math.inf, "1", True):
        for make in (Cost.pure, Cost.zcdp, Cost.gaussian, Cost.laplace, Cost.exponential):
            with pytest.raises(SpecificationError):
                make(bad)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.1, 0.9, 1.1, 3.0, 30.0, 600.0, 900.0])
def test_any_pure_mechanism_in_other_currencies(epsilon):
    """rho bounds every Renyi order of randomised response and is attained; mu passes its corner and lies below it."""
    orders = 1 + np.geomspace(1e-6, 1e4, 300)
    x = epsilon / 2
    log_cosh = lambda u: np.logaddexp(u, -u) - math.log(2)  # noqa: E731
    divergence = (log_cosh((2 * orders - 1) * x) - log_cosh(x)) / (orders - 1)
    assert (divergence <= orders * pure_rho(epsilon) * (1 + 1e-6) + 1e-15 / (orders - 1)).all()  # cancellation
    assert pure_rho(epsilon) == pytest.approx(epsilon * math.tanh(x), rel=1e-9, abs=0)
    assert pure_rho(epsilon) <= min(epsilon, epsilon * x) * (1 + 1e-14)
    mu = pure_mu(epsilon)
    assert norm.logcdf(mu / 2) - norm.logcdf(-mu / 2) == pytest.approx(epsilon, rel=1e-6)
    if epsilon < 30:
        alpha = np.linspace(1e-6, 1 - 1e-6, 2001)
        response = np.maximum(1 - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1 - alpha))
        assert (norm.cdf(norm.isf(alpha) - mu) <= response + 1e-12).all()


def rho_of(log_p, log_q):
    """The largest Renyi divergence over its order."""
    orders = 1 + np.geomspace(1e-5, 100, 200)
    return max(float(logsumexp(a * log_p + (1 - a) * log_q) / (a * (a - 1))) for a in orders)


def test_discrete_laplace_is_not_the_continuous_one():
    """Counts that move by one step lose what randomised response loses: a fifth more at epsilon 1."""
    k = np.arange(-60, 61.0)
    lost = rho_of(*(log_softmax(-np.abs(k - shift)) for shift in (0, 1)))
    assert laplace_rho(1.0) * 1.2 < lost == pytest.approx(pure_rho(1.0), rel=1e-3)
    assert pure_rho(1.0) == pytest.approx(0.462, abs=1e-3) and laplace_rho(1.0) == pytest.approx(0.368, abs=1e-3)
    # On the grid on which real numbers are drawn it is the continuous one.
    k = np.arange(-20_000, 20_001.0)
    fine = rho_of(*(log_softmax(-np.abs(k - shift) / 1000) for shift in (0, 1000)))
    assert fine == pytest.approx(laplace_rho(1.0), rel=1e-3)


def test_discrete_gaussian_is_zcdp_and_not_gaussian():
    """A shift by 1 shows better than under Gaussian noise of the same scale."""
    k = np.arange(-40, 41.0)
    for scale in (0.3, 2.0):
        mass, moved = (log_softmax(-((k - shift) ** 2) / (2 * scale**2)) for shift in (0, 1))
        assert rho_of(mass, moved) <= 1 / (2 * scale**2) * (1 + 1e-6)
        apart = np.maximum(np.exp(mass) - np.exp(moved), 0).sum()
        assert apart > (norm.cdf(0.5 / scale) - norm.cdf(-0.5 / scale)) * 1.01


# --- the figures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "costs, delta, by_sums, by_rho, by_mu",
    [
        ([G7] * 30, 3e-6, 3.0, 0.547, 0.502),
        ([LAPLACE] * 30, 1e-6, 3.0, 2.63, None),
        ([LAPLACE] * 100, 1e-6, 10.0, 5.13, None),
        ([Cost.all_gaussian(1, 1e-7)] * 10, 1e-6, 10.0, 3.37, 3.15),
        ([LAPLACE] * 3, 1e-6, 0.3, 0.76, None),
        ([BOX] * 30, 6e-6, 3.0, 2.54, None),
        ([G7] * 10 + [LAPLACE] * 10 + [BOX] * 10, 3e-6, 3.0, 2.09, None),
    ],
)
def test_what_many_charges_lose(costs, delta, by_sums, by_rho, by_mu):
    leak = math.fsum(cost.leak for cost in costs)
    assert Filter("sums", 1, 0).loss(costs).epsilon == pytest.approx(by_sums)
    assert Filter("zCDP", 1, leak, delta - leak).loss(costs).epsilon == pytest.approx(by_rho, rel=5e-3)
    assert Filter("zCDP", 1, leak, delta - leak).loss(costs).delta == pytest.approx(delta)
    if by_mu is not None:
        assert Filter("Gaussian DP", 1, 0, delta).loss(costs).epsilon == pytest.approx(by_mu, rel=2e-3)


def how_many(budget, *cycle):
    for count, cost in enumerate(itertools.cycle(cycle)):
        if not budget.can_afford(cost):
            return count
        budget.charge(cost)
    return None


def test_how_many_a_budget_holds():
    counts = {c: how_many(Budget(1, 1e-6, composition=c), G1) for c in ("auto", "gaussian", "sums")}
    assert counts == {"auto": 110, "gaussian": 118, "sums": 10}
    assert how_many(Budget(1, 1e-6), LAPLACE) == 10 == how_many(Budget(1, 1e-6, composition="gaussian"), LAPLACE)
    assert how_many(Budget(1, 1e-6), BOX) == 10 and how_many(Budget(1), LAPLACE) == 10
    assert how_many(Budget(1, 1e-6), Cost.zcdp(2e-4).within(0.1, 1e-8)) > 90
    thirty = Budget(1, 3e-6)
    for _ in range(30):
        thirty.charge(G7)
    assert thirty.spent == (pytest.approx(0.524, abs=1e-3), 1.5e-6)


def test_a_budget_is_what_it_says_by_the_first_charge():
    """One solve of all of it, two halves, ten tenths: sums hold; and one of all of it leaves nothing."""
    for share in (1, 2, 10):
        for make in (Cost.approximate, Cost.all_gaussian):
            budget = Budget(1, 1e-6)
            for _ in range(share):
                budget.charge(make(1 / share, 1e-6 / share))
    budget = Budget(1, 1e-6)
    budget.charge(Cost.all_gaussian(1, 1e-6))
    assert budget.remaining.epsilon == 0 and not budget.can_afford(1e-9)
    mixed = Budget(1, 1e-6)
    mixed.charge(G1)
    mixed.charge(0.3, 4e-7)  # half of delta is for sums
    with pytest.raises(BudgetExceededError, match=r"counted by epsilon and delta alone") as caught:
        mixed.charge(0.3, 2e-7)
    assert "sums (delta 5e-7) or Gaussian DP (delta 5e-7)" in caught.value.why
    assert 'composition="sums"' in caught.value.remedy
    only = Budget(1, 1e-6, composition="gaussian")
    only.charge(G1)
    only.charge(Cost.pure(0.1))
    assert not only.can_afford(0.1, 1e-8) and not only.can_afford(Cost.zcdp(1e-4).within(0.1, 1e-8))


SMALL = (Cost.pure(0.02), Cost.approximate(0.01, 1e-9), Cost.exponential(0.05), Cost.all_zcdp(0.1, 1e-8))


@pytest.mark.parametrize("cost", [G1, LAPLACE, BOX, *SMALL], ids=lambda cost: f"{cost.law} {cost.epsilon}")
@pytest.mark.parametrize("composition", ["auto", "gaussian", "sums"])
def test_what_remains_can_be_spent_and_no_more(cost, composition):
    budget = Budget(1, 1e-6, composition=composition)
    if not budget.can_afford(cost):
        return
    for _ in range(7):
        budget.charge(cost)
    left = budget.remaining
    make = {"Gaussian": Cost.all_gaussian, "zCDP": Cost.all_zcdp, "black box": Cost.approximate}.get(cost.law)

    def again(epsilon):
        if make is not None:
            return make(epsilon, cost.delta)
        return {"Laplace": Cost.laplace, "exponential": Cost.exponential, "pure": Cost.pure}[cost.law](epsilon)

    assert 0 < left.epsilon <= 1
    assert budget.can_afford(again(left.epsilon))
    assert left.epsilon == 1 or not budget.can_afford(again(left.epsilon * 1.01))


# --- bad input ------------------------------------------------------------------------------------------------


def test_bad_compositions_and_costs():
    for bad in ("zcdp", "gauss", None, 1):
        with pytest.raises(SpecificationError, match="composition"):
            Budget(1, 1e-6, composition=bad)
    with pytest.raises(SpecificationError, match="delta = 0"):
        Budget(1, composition="gaussian")
    budget = Budget(1, 1e-6)
    for charge in (lambda: budget.charge(Cost.gaussian(0.1)), lambda: budget.charge(G1, 1e-8)):
        with pytest.raises(SpecificationError, match="Cost"):
            charge()
    assert budget.history == ()


# --- what filters admit is within the total ---------------------------------------------------------------------


laws = st.sampled_from(["Gaussian", "Laplace", "pure", "black box", "zCDP"])


def made(law, epsilon, delta):
    return {
        "Gaussian": lambda: Cost.all_gaussian(epsilon, delta),
        "Laplace": lambda: Cost.laplace(epsilon),
        "pure": lambda: Cost.pure(epsilon),
        "black box": lambda: Cost.approximate(epsilon, delta),
        "zCDP": lambda: Cost.all_zcdp(epsilon, delta),
    }[law]()


def exact_delta(costs, epsilon):
    """Of the composition by dp_accounting, each event at its worst: zCDP as Gaussian noise."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    grid, total = 1e-3, None
    for cost in costs:
        if cost.law in ("Gaussian", "zCDP"):
            one = pld.from_gaussian_mechanism(1 / math.sqrt(2 * cost.rho), value_discretization_interval=grid)
        elif cost.law == "Laplace":
            one = pld.from_laplace_mechanism(1 / cost.epsilon, value_discretization_interval=grid)
        else:
            one = pld.from_privacy_parameters(DifferentialPrivacyParameters(cost.epsilon, cost.delta), grid)
        total = one if total is None else total.compose(one)
    return total.get_delta_for_epsilon(epsilon)


def admitted(budget, events):
    for law, epsilon, delta in events:
        cost = made(law, epsilon, delta)
        if budget.can_afford(cost):
            budget.charge(cost)
    return [charge.cost for charge in budget.history]


some_events = st.lists(
    st.tuples(laws, st.floats(-1.5, 0).map(lambda x: 10.0**x), st.floats(-6, -4).map(lambda x: 10.0**x)),
    min_size=3, max_size=25,
)  # fmt: skip


@settings(deadline=None, max_examples=15)
@given(some_events, st.sampled_from([(1.0, 1e-4), (0.5, 1e-3), (3.0, 1e-4)]), st.sampled_from(["auto", "gaussian"]))
def test_what_is_admitted_loses_no_more_than_the_total(events, total, composition):
    costs = admitted(Budget(*total, composition=composition), events)
    if costs:  # the grid of dp_accounting rounds up
        assert exact_delta(costs, total[0] + 2e-3 * len(costs)) <= total[1] * (1 + 1e-3)


def test_the_check_finds_filters_that_hold_too_much():
    """A rho for discrete Laplace noise as if it were continuous, and no conversion at all."""
    holds = Filter("zCDP", 0.05, 0.0, 1e-4)
    assert exact_delta([Cost.pure(0.1)] * 60, 0.05) > 1e-4 and not holds.holds([Cost.pure(0.1)] * 60)
    one = Cost.laplace(1.0)
    assert one.rho < 0.8 * Cost.pure(1.0).rho


# --- adaptively chosen charges: exact values of the worst run ---------------------------------------------------


def response(epsilon, delta):
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    return [((1 - delta) * p, epsilon), ((1 - delta) * (1 - p), -epsilon), (delta, math.inf)]


def test_either_of_two_filters_needs_a_delta_for_each():
    """Exact, over all runs that choose by the answers. With reserved deltas the total holds. Twin: the better of the
    two after the fact, each with all of delta: a run that has not lost much goes where something may leak."""
    epsilon, delta = 1.0, 0.05

    def lost(share):
        reserved = delta * share
        kept = [Filter("sums", epsilon, reserved), Filter("zCDP", zcdp_rho(epsilon, reserved), 0.0, reserved)]
        return worst(epsilon, kept, [(0.25, 0.0), (0.25, 0.999 * reserved)], 14)

    assert lost(0.5) <= delta < lost(1.0)


def worst(epsilon, kept, steps, depth):
    """The largest ``E_P (1 - e^(epsilon - loss))^+`` of runs of these randomised responses (losses are multiples of
    0.25) that go on while a filter holds and choose by the answers. Sums do not mind the order: counts are a state."""

    @cache
    def value(counts, position):
        loss = position * 0.25
        best = max(0.0, 1 - math.exp(epsilon - loss))
        if sum(counts) == depth:
            return best
        for place, step in enumerate(steps):
            after = tuple(c + (i == place) for i, c in enumerate(counts))
            costs = [Cost.approximate(*s) for s, c in zip(steps, after, strict=True) for _ in range(c)]
            if not any(each.holds(costs) for each in kept):
                continue
            total = 0.0
            for p, lost in response(*step):
                total += p * (1.0 if lost == math.inf else value(after, position + round(lost / 0.25)))
            best = max(best, total)
        return best

    return value((0,) * len(steps), 0)


def test_the_rule_reads_the_first_charge_alone():
    total = PrivacyLoss(1.0, 1e-6)
    assert [each.rule for each in filters(total, "auto", G1)] == ["sums", "Gaussian DP"]
    assert [each.rule for each in filters(total, "auto", Cost.laplace(0.005))] == ["sums", "zCDP"]
    assert [each.rule for each in filters(total, "auto", BOX)] == ["sums"]
    for first in (G1, BOX, LAPLACE, Cost.laplace(0.005), Cost.approximate(0.001, 1e-10), None):
        for composition in ("auto", "sums", "gaussian"):
            kept = filters(total, composition, first)
            assert math.fsum(each.deltas + each.reserved for each in kept) <= 1e-6 * (1 + 1e-12)
    large = Cost.all_gaussian(1.2, 1e-12)  # beyond epsilon by sums, and less than (1, 5e-7)
    assert Budget(1, 1e-6).can_afford(large) and not Budget(1, 1e-6, composition="sums").can_afford(large)
    Budget(1, 1e-6).charge(large)
    budget = Budget(1, 1e-6)
    budget.charge(0.0)
    budget.charge(G1)
    assert budget.to_dict()["rules"] == ["sums", "Gaussian DP"]


def test_gaussian_filter_is_exact():
    """Runs of Gaussian noise whose sizes are chosen by the answers lose exactly what one release of the total does."""
    mu, epsilon, steps, runs = 0.5, 1.0, 40, 40_000
    rng = np.random.default_rng(5)
    loss, left = np.zeros(runs), np.full(runs, mu * mu)
    for step in range(steps):
        share = np.where(loss > 0.2, 0.5, 0.02) if step < steps - 1 else 1.0  # bold when it looks well
        taken = left * share
        loss += taken / 2 + np.sqrt(taken) * rng.standard_normal(runs)
        left = left - taken
    late = np.maximum(0.0, 1 - np.exp(epsilon - loss))
    # Six standard errors: a false alarm in 1e9.
    assert abs(late.mean() - gaussian_delta(mu, epsilon)) < 6 * late.std() / math.sqrt(runs)


def test_solves_charge_the_mu_of_their_noise():
    import cvxpy as cp

    import dpmodel as dpm

    demand = dpm.Private(np.array([20, 30]), name="demand", unit="entry", linf=1, integer=True)
    x = cp.Variable(2, name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= demand, x <= 100])
    budget = Budget(1, 1e-6)
    with pytest.warns(dpm.errors.NotPrivateWarning):
        problem.solve(0.1, 1e-8, budget=budget, mechanism="gaussian-once", rng=0)
        problem.solve(0.1, 1e-8, budget=budget, mechanism="gaussian-once", certify=0.25, rng=0)
        dpm.measure(demand, 0.1, budget=budget, rng=SeededSource(0))
        dpm.measure(demand, 0.1, 1e-8, distribution="discrete-gaussian", budget=budget, rng=0)
    one, both, counts, whole = [charge.cost for charge in budget.history]
    assert one == Cost.all_gaussian(0.1, 1e-8)
    assert both.law == "composed" and both.mu == pytest.approx(math.hypot(gaussian_mu(0.075, 1e-8), pure_mu(0.025)))
    assert (both.epsilon, both.delta) == (pytest.approx(0.1), 1e-8)
    assert counts.law == "pure" and counts.rho == pytest.approx(0.1 * math.tanh(0.05))
    assert whole.law == "zCDP" and whole.mu == math.inf


class Listening(SeededSource):
    """Which laws were drawn."""

    def __init__(self):
        super().__init__(0)
        self.laws = set()

    def laplace(self, *given):
        self.laws.add("laplace")
        return super().laplace(*given)

    def gaussian(self, *given):
        self.laws.add("gaussian")
        return super().gaussian(*given)

    def discrete_laplace(self, *given):
        self.laws.add("discrete-laplace")
        return super().discrete_laplace(*given)


def test_a_budget_made_for_gaussian_noise_is_charged_and_gets_no_other():
    """What "auto" takes otherwise for the same small numbers is Laplace noise; with delta = 0 it still is."""
    import cvxpy as cp
    import polars as pl

    import dpmodel as dpm

    class Model:
        n_features_in_, classes_ = 1, np.array(["a", "b"])

        def predict(self, X):
            return np.where(np.asarray(X)[:, 0] > 0, "a", "b")

    frame = pl.DataFrame({"x": [-0.5, 0.5, 1.0] * 20, "y": ["a", "b", "a"] * 20})
    people = dpm.Dataset(frame, bounds={"x": (-1, 1)}, domain={"y": ["a", "b"]})
    numbers = dpm.Private(np.array([20, 30]), name="demand", unit="entry", linf=1, integer=True)
    x = cp.Variable(2, name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= numbers, x <= 100])
    tree = dpm.released.tree_query(2)

    def solved(budget, rng):
        problem.solve(0.1, 1e-8, budget=budget, rng=rng)
        assert budget.composition == "auto" or problem.last_plan.chosen == problem.plan(0.1, 1e-8, budget=budget).chosen

    releases = (
        lambda budget, rng: dpm.measure(numbers, 0.1, 1e-8, budget=budget, rng=rng),
        lambda budget, rng: dpm.measure(people.mean("x"), 0.1, 1e-8, budget=budget, rng=rng),
        lambda budget, rng: people.variance("x", 0.1, 1e-8, budget=budget, rng=rng),
        lambda budget, rng: people.evaluate(Model(), "y", 0.1, 1e-8, budget=budget, rng=rng),
        lambda budget, rng: tree.measure([3, 4], 0.1, 1e-8, budget=budget, rng=rng),
        solved,
    )
    for release in releases:
        budget, source = Budget(1, 1e-6, composition="gaussian"), Listening()
        release(budget, source)
        (charge,) = budget.history
        assert charge.cost == G1 and source.laws == {"gaussian"}
    for release in (releases[0], solved):
        budget, source = Budget(1, 1e-6), Listening()
        release(budget, source)
        assert budget.history[0].delta == 0 and "gaussian" not in source.laws
    budget = Budget(1, 1e-6, composition="gaussian")
    assert dpm.measure(numbers, 0.1, budget=budget, rng=SeededSource(0)).noise.name == "discrete laplace"
    laplace = dpm.measure(numbers, 0.1, 1e-8, distribution="laplace", budget=budget, rng=SeededSource(0))
    assert laplace.noise.name == "laplace" and len(budget.history) == 2
    assert problem.plan(0.1, 1e-8, mechanism="laplace-once", budget=budget).chosen.mechanism == "laplace-once"
    # Where no Gaussian noise serves, what is within the budget's rules does.
    rows, w = dpm.Private(np.linspace(-1, 1, 90).reshape(30, 3), unit="row", bounds=(-1, 1)), cp.Variable(3)
    fit = dpm.Problem(cp.Minimize(cp.sum(cp.logistic(-rows @ w)) / 30 + cp.sum_squares(w)))
    assert fit.plan(1, 1e-6, budget=budget).chosen.reads


def test_the_second_of_two_charges_is_refused_before_the_first():
    """Sums hold both, but a first charge of Gaussian noise makes a budget that then does not hold the second."""
    first, second = Cost.all_gaussian(0.3, 6e-7), Cost.pure(0.3)
    budget = Budget(1, 1e-6)
    budget.require(first + second)
    with pytest.raises(BudgetExceededError, match="for one more solve"):
        budget.require(second, after=(first,))
    assert not budget.history and budget.charge(first) and not budget.can_afford(second)


def test_what_is_left_is_said_without_a_delta_that_nothing_takes():
    budget = Budget(1, 1e-6)
    for cost in (G1, Cost.laplace(0.03)):
        budget.charge(cost, label="a solve")
    assert str(budget).startswith("Budget(epsilon=1, delta=1e-06): epsilon 0.87 left for one more solve like the last")
    assert "delta 0" not in str(budget) and "epsilon 0.5, delta 0" not in repr(Budget(0.5))
    with pytest.raises(BudgetExceededError, match=r"at most epsilon=0\.87 is left"):
        budget.charge(Cost.laplace(0.9))
    first, second = repr(budget.history).split("\n")
    assert first.endswith("a solve, epsilon 0.1, delta 1e-8 (Gaussian noise)>") and "0.03" in second
    assert len(first) < 100 and repr(Budget(1).history) == "()"


def test_a_refusal_says_what_holds_many_small_solves():
    budget = Budget(1, 1e-6)
    for _ in range(10):
        budget.charge(LAPLACE)
    with pytest.raises(BudgetExceededError, match=r'composition="gaussian".*distribution="gaussian".* holds 118 of'):
        budget.charge(LAPLACE)
    for few in (Budget(1, 1e-6), Budget(1)):
        few.charge(Cost.laplace(0.8))
        with pytest.raises(BudgetExceededError) as caught:
            few.charge(Cost.laplace(0.7))
        assert "gaussian" not in str(caught.value)
