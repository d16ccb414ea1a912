"""Private cutting planes: how far scores move, what whole transcripts cost, broken twins, and the released bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import families
import numpy as np
import pytest
import scipy.sparse as sp
from auditing import epsilon_lower_bound
from games import asked, log_ratio
from neighbours import owned_of, records_of
from replaying import Draw, Transcript
from scipy.optimize import linprog
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options, Outcome, no_progress
from dpmodel.marks import Private, Records
from dpmodel.mechanisms.lp.cutting_planes import rounds as cutting
from dpmodel.mechanisms.lp.cutting_planes.mechanism import PRIVATE_CUTTING_PLANES as MECHANISM
from dpmodel.mechanisms.lp.cutting_planes.mechanism import _run
from dpmodel.mechanisms.lp.cutting_planes.rounds import Rounds, best_split, cuts_of, plan_of
from dpmodel.mechanisms.lp.noise_once.mechanism import GAUSSIAN_ONCE, LAPLACE_ONCE
from dpmodel.mechanisms.lp.noise_once.solve_released import LEAST_VIOLATION
from dpmodel.mechanisms.lp.private_rows import public_polyhedron
from dpmodel.numerics.cut_program import CutProgram
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.privacy import SeededSource, zcdp_rho

FALSE_ALARM = 1e-7


def packing(
    m: int, n: int, seed: int = 0, scale: float = 1000.0, **declared: Any
) -> tuple[dpm.Problem, Private, np.ndarray, np.ndarray, np.ndarray]:
    """Maximise c'x over m private capacities: problem, b, A, value of b, c."""
    rng = np.random.default_rng(seed)
    A = rng.random((m, n)) * (rng.random((m, n)) < 0.4)
    value = scale * n / 4 * rng.uniform(0.3, 1, size=m)
    b = Private(shape=m, name="b", **(declared or {"linf": 1.0}))
    c = rng.uniform(0.5, 1, size=n)
    x = cp.Variable(n, bounds=[0, scale])
    return dpm.Problem(cp.Maximize(c @ x), [A @ x <= b]), b, A, value, c


def small(**declared: Any) -> tuple[dpm.Problem, list[Private], dict[str, Any]]:
    """Six rows, among them multiples of one number, a covering row and an equality."""
    how = declared or {"linf": 1.0}
    b = Private(shape=4, name="b", **how)
    x = cp.Variable(3, bounds=[-5, 5])
    rows = [x[0] + x[1] <= b[0], x[1] - x[2] <= b[1] + 1, 2 * x[0] + x[2] <= 2 * b[0], x[2] >= b[2] - 3]
    return dpm.Problem(cp.Minimize(cp.sum(x) - 3 * x[0]), [*rows, x[0] + x[2] == b[3]]), [b], {"b": how}


# -------------------------------------------------------------------------------------------- the LP
def test_the_growing_program_against_scipy() -> None:
    """After every cut the same optimum; when cuts cannot hold, the least common relaxation and the best point in it."""
    rng = np.random.default_rng(2)
    for _ in range(25):
        n, p = int(rng.integers(2, 6)), int(rng.integers(0, 3))
        A, b = rng.normal(size=(p, n)), rng.random(p) + 0.1
        none = sp.csr_array((0, n))
        polytope = Polyhedron(sp.csr_array(A), b, none, np.zeros(0), -np.ones(n), np.ones(n))
        cost = rng.normal(size=n) * 10.0 ** rng.integers(-4, 5)
        program = CutProgram(polytope, cost)
        cuts, sides = np.zeros((0, n)), np.zeros(0)
        give = 0.0
        for _ in range(5):
            x = program.solve()
            rows, rhs = np.vstack([A, cuts]), np.r_[b, sides + give]
            expected = linprog(cost, rows if rows.size else None, rhs if rows.size else None, bounds=[(-1, 1)] * n)
            if expected.status == 2 or program.give > give:
                loose = np.c_[np.vstack([A, cuts]), np.r_[np.zeros(p), -np.ones(len(sides))]]
                least = linprog(np.r_[np.zeros(n), 1], loose, np.r_[b, sides], bounds=[(-1, 1)] * n + [(0, None)])
                assert program.give == pytest.approx(least.fun, rel=1e-5, abs=1e-6)
                give = program.give
                expected = linprog(cost, rows, np.r_[b, sides + give], bounds=[(-1, 1)] * n)
            assert cost @ x == pytest.approx(expected.fun, rel=1e-5, abs=1e-6 * np.abs(cost).sum())
            assert polytope.violation(x) <= 1e-7
            index = np.flatnonzero(rng.random(n) < 0.8)
            row = np.zeros(n)
            row[index] = rng.normal(size=index.size)
            side = float(rng.normal() * 0.5)
            program.cut(index.astype(np.int64), row[index], side)
            cuts, sides = np.vstack([cuts, row]), np.r_[sides, side]


# ------------------------------------------------------------------------------------------ eligible
def test_what_it_serves() -> None:
    def verdict(problem: dpm.Problem, **asked: Any) -> str:
        return families.verdict(MECHANISM, problem._model(None), Options(1.0, 1e-6, **asked)).reason

    b = Private(shape=2, name="b", linf=1)
    high = Private(shape=2, name="high", unit="entry")
    A = Private(shape=(2, 2), name="A", linf=1)
    c = Private(shape=2, name="c", linf=1)
    x, whole = cp.Variable(2, nonneg=True), cp.Variable(2, integer=True)
    low = cp.Minimize(cp.sum(x))
    assert "measuring every" in verdict(dpm.Problem(low, [x >= b]))
    assert verdict(dpm.Problem(low, [x >= b]), feasibility="strict").startswith("feasibility")
    assert "do not bound the objective" in verdict(dpm.Problem(cp.Maximize(cp.sum(x)), [x <= b]))
    assert verdict(packing(2000, 8)[0]) == ""
    assert "no objective" in verdict(dpm.Problem(cp.Minimize(0), [x >= b, x <= 9]))
    assert "only right-hand sides" in verdict(dpm.Problem(cp.Minimize(c @ x), [x >= b, x <= 9]))
    assert "only right-hand sides" in verdict(dpm.Problem(low, [A @ x >= 1, x <= 9]))
    assert "arbitrarily" in verdict(dpm.Problem(low, [x >= high]))
    assert "cones" in verdict(dpm.Problem(low, [x >= b, cp.norm2(x) <= 9]))
    assert "continuous" in verdict(dpm.Problem(low, [x + whole >= b, whole >= 0, whole <= 3]))
    assert "split" in verdict(dpm.Problem(cp.Minimize(cp.norm1(x - b))))


# --------------------------------------------------------------------------------------- sensitivity
DECLARED: dict[str, dict[str, Any]] = {
    "linf": {"linf": 1.0},
    "l1": {"l1": 1.5},
    "l1 and linf": {"l1": 1.2, "linf": 1.0},
    "l2": {"l2": 1.0},
    "entry": {"unit": "entry", "linf": 1.0},
    "magnitude": {"unit": "entry", "bounds": [-1, 2]},
}


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("which", ["small", "packing"])
def test_how_far_scores_move_apart(which: str, name: str) -> None:
    """The exact supremum of d_i - d_j over every pair of rows and every record; attained where numbers stand alone."""
    if which == "small":
        problem, parameters, declared = small(**DECLARED[name])
    else:
        problem, b, *_ = packing(5, 3, **DECLARED[name])
        parameters, declared = [b], {"b": DECLARED[name]}
    affine = problem._model(None).affine
    cuts = cuts_of(problem._model(None))
    worst, moved = 0.0, 0.0
    for units in records_of(parameters, declared):
        owned = owned_of(affine, units)
        sign = np.sign(
            cuts.gain / cuts.measurement.recover.data[np.searchsorted(cuts.measurement.positions, cuts.rows)]
        )
        M = sign[:, None] * owned.matrices["scalar"][cuts.rows]
        for one in M:
            moved = max(moved, float(one @ owned.largest(one)))
            for other in M:
                worst = max(worst, float((one - other) @ owned.largest(one - other)))
    reach = max(worst, moved)
    assert reach <= cuts.reach
    if which == "packing" and name != "l2":
        assert cuts.reach <= reach * 1.01


def test_removing_a_record_moves_counts_one_way() -> None:
    people = Records(neighbors="add-remove")
    how: dict[str, Any] = {"unit": "column", "bounds": [0, 1], "records": people}
    counts = Private(shape=(3, 4), name="counts", **how)
    x = cp.Variable(3, bounds=[0, 9])
    one_way = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= cp.sum(counts, axis=1)])
    assert cuts_of(one_way._model(None)).reach == pytest.approx(1, rel=0.01)
    both = dpm.Problem(cp.Minimize(cp.sum(x)), [x[:2] >= cp.sum(counts, axis=1)[:2], -x[2] >= -cp.sum(counts[2])])
    assert cuts_of(both._model(None)).reach == pytest.approx(2, rel=0.01)
    replaced = Private(shape=(3, 4), name="counts", unit="column", bounds=[0, 1])
    other = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= cp.sum(replaced, axis=1)])
    assert cuts_of(other._model(None)).reach == pytest.approx(2, rel=0.01)


# --------------------------------------------------------------------------------- whole transcripts
class Bench:
    """A problem with a fixed number of rounds, run on values of b."""

    def __init__(self, options: Options, rounds: int, twin: str = "", **declared: Any) -> None:
        self.problem, self.parameters, self.declared = small(**declared)
        self.model = self.problem._model(None)
        self.options, self.cuts = options, cuts_of(self.model)
        plan = best_split(self.cuts, options, rounds, math.inf)
        if twin == "rounds forgotten":
            plan = replace(
                plan,
                distribution=type(plan.distribution)(
                    plan.distribution.scale / (rounds if plan.pure else math.sqrt(rounds))
                ),
            )
        if twin == "selections not paid":
            plan = replace(plan, selection_epsilon=plan.selection_epsilon * 30)
        self.plan = plan
        if twin == "range halved":
            self.cuts = replace(self.cuts, reach=self.cuts.reach / 2)

    def run(self, b: np.ndarray, source: Any) -> Outcome:
        self.parameters[0].value = b
        exact = self.cuts.measurement.values(self.model.read_private())
        return _run(self.model, self.cuts, self.plan, exact, source, no_progress)

    def cost(self, one: np.ndarray, two: np.ndarray, seed: int) -> float:
        """What the transcript of a run on ``one`` costs against ``two``: pure epsilon, or rho."""
        return sum(draw.loss[not self.plan.pure] for draw in self.replayed(one, two, one, seed))

    def replayed(self, one: np.ndarray, two: np.ndarray, truth: np.ndarray, seed: int) -> list[Draw]:
        """The draws of a run on ``truth``, with what each asked on ``one`` and on ``two``."""
        first = Transcript(seed)
        for b in (truth, one, two):
            self.run(b, first.replay() if first.draws else first)
        for draw in first.draws:
            del draw.values[0]
        return first.draws

    def score(self, one: np.ndarray, two: np.ndarray, truth: np.ndarray, seed: int) -> float:
        """Log likelihood ratio (one against two) of the transcript of a run on ``truth``."""
        return log_ratio(self.replayed(one, two, truth, seed))


BASE = np.array([1.0, 0.0, 2.0, 0.5])
# One record moves every number by one, some up and some down.
PAIR = np.array([1.0, -1.0, 1.0, -1.0])
# Here the same change turns the order of the two most violated rows.
TIED = np.array([1.0, 0.0, 0.5, 0.5])
REQUESTS = {"pure": Options(1.0, 0.0), "zcdp": Options(1.0, 1e-2)}


def limit_of(options: Options) -> float:
    return options.epsilon if options.delta == 0 else zcdp_rho(options.epsilon, options.delta)


@pytest.mark.slow
@pytest.mark.parametrize("which", REQUESTS)
@pytest.mark.parametrize("name", DECLARED)
def test_what_whole_transcripts_cost(name: str, which: str) -> None:
    """Replayed on neighbours, every transcript stays inside the budget (both currencies, any declared bounds)."""
    rng = np.random.default_rng(1)
    for rounds in (1, 2, 4):
        bench = Bench(REQUESTS[which], rounds, **DECLARED[name])
        units = [owned_of(bench.model.affine, u) for u in records_of(bench.parameters, bench.declared)]
        for seed in range(12):
            owned = units[int(rng.integers(len(units)))]
            d = np.zeros(4)
            sensitivity = (
                owned.inside(rng)
                if seed % 2
                else owned.largest(rng.choice([-1.0, 1.0], size=len(owned.units[0].cells)))
            )
            d[[cell[0] for cell in owned.units[0].cells]] = sensitivity
            one = np.clip(BASE + rng.normal(size=4) * 0.3, -0.5, 1.5)
            if name == "magnitude":
                d = np.clip(one + d, -1, 2) - one
            assert bench.cost(one, one + d, seed) <= limit_of(REQUESTS[which]) * (1 + 1e-9)


@pytest.mark.parametrize("which", REQUESTS)
def test_worst_transcripts_use_the_budget_and_twins_exceed_it(which: str) -> None:
    options = REQUESTS[which]
    limit = limit_of(options)

    def worst(twin: str) -> float:
        bench = Bench(options, 2, twin)
        return max(bench.cost(BASE, BASE + PAIR, seed) for seed in range(12))

    assert 0.8 * limit <= worst("") <= limit
    for twin in ("rounds forgotten", "selections not paid", "range halved"):
        assert worst(twin) > 1.2 * limit, twin


@pytest.mark.slow
def test_the_audit_by_sampling() -> None:
    """From outcomes alone: the honest mechanism passes, twins are found out."""
    options = REQUESTS["zcdp"]

    def found(twin: str, runs: int) -> float:
        bench = Bench(options, 2, twin)
        pair = TIED, TIED + PAIR
        scores = [[bench.score(*pair, pair[i], 10_000 * i + seed) for seed in range(runs)] for i in (0, 1)]
        return epsilon_lower_bound(*scores, delta=options.delta, confidence=1 - FALSE_ALARM)

    assert found("", 250) <= options.epsilon
    assert found("selections not paid", 250) > options.epsilon


def test_a_stop_that_looks_at_private_data_is_found_out() -> None:
    """A twin that stops when no row is violated any more: its number of rounds gives neighbours away."""
    bench = Bench(Options(50.0, 1e-2), 4)

    def rounds(b: np.ndarray, seed: int) -> int:
        selections = chosen_from(bench, b, seed)
        return next((t for t, scores in enumerate(selections) if scores.max() <= 0), len(selections))

    one, two = np.array([1.0, 0.0, 2.0, 0.5]), np.array([6.0, 6.0, -3.0, 0.5])
    assert len(chosen_from(bench, one, 1)) == len(chosen_from(bench, two, 1)) == 4
    p, q = ([float(rounds(b, seed)) for seed in range(120)] for b in (one, two))
    assert epsilon_lower_bound(p, q, delta=0.01, confidence=1 - FALSE_ALARM) > 1


def chosen_from(bench: Bench, b: np.ndarray, seed: int) -> list[np.ndarray]:
    """The scores of every selection of a run."""
    source = Transcript(seed)
    bench.run(b, source)
    return [values for distribution, values, _ in asked(source) if distribution == "noisy_max"]


def test_no_number_is_measured_twice() -> None:
    """Multiples of one number and both sides of an equality become cuts together."""
    bench = Bench(Options(1.0, 1e-2), 4)
    sizes = [values.size for values in chosen_from(bench, BASE, 1)]
    assert bench.cuts.gain.size == 6 and bench.cuts.measurement.count == 4
    assert sorted(np.diff([*sizes, 0])) == [-2, -2, -1, -1]


# ------------------------------------------------------------------------------------------- utility
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_released_bound_and_the_objective(delta: float) -> None:
    """Both hold as often as promised (exact binomial tail), and public constraints always."""
    problem, b, A, value, c = packing(300, 5)
    b.value = value
    options = Options(2.0, delta, beta=0.3)
    model = problem._model(None)
    plan, forecast = plan_of(model, options), MECHANISM.forecast(model, options)
    assert plan.count > 1 and not forecast.proved and "predicted" in forecast.statement
    best = linprog(-c, A, value, bounds=[(0, 1000)] * 5).fun
    runs, failures, smallest = 40, 0, 0
    for seed in range(runs):
        outcome = MECHANISM.run(model, options, SeededSource(seed))
        assert outcome.x is not None and outcome.status == "optimal"
        assert ((outcome.x >= 0) & (outcome.x <= 1000)).all()
        said = float(outcome.notes[0].split("more than ")[1].split(" in")[0])
        assert said >= 2 * plan.quantile * (1 - 1e-3)  # what measured rows may miss
        over = float((A @ outcome.x - value).max())
        failures += over > said * 1.001 or -c @ outcome.x > best + 1e-6 * abs(best)
        smallest += over > said / 4
        assert outcome.value == pytest.approx(-c @ outcome.x)
    assert binom.sf(failures - 1, runs, 0.3) > FALSE_ALARM
    assert smallest > 5  # a quarter of the bound would not do


def test_forecasts_against_noise_once() -> None:
    """It wins where one record moves all rows and few bind; with unit="entry" it cannot and is not eligible."""
    problem, *_ = packing(2000, 8)
    model, options = problem._model(None), Options(1.0, 1e-6)
    forecast = MECHANISM.forecast(model, options)
    assert forecast.alpha < 0.5 * GAUSSIAN_ONCE.forecast(model, options).alpha
    assert forecast.noise["rounds"] == plan_of(model, options).count > 1
    pure = Options(1.0, 0.0)
    assert MECHANISM.forecast(model, pure).alpha < 0.1 * LAPLACE_ONCE.forecast(model, pure).alpha
    entries = packing(500, 8, unit="entry", linf=1.0)[0]._model(None)
    for budget in (options, pure):
        refused = families.verdict(MECHANISM, entries, budget)
        assert not refused.eligible and "measuring every right-hand side once" in refused.reason


@pytest.mark.parametrize(("linf", "wins"), [(1.0, False), (100.0, True)])
def test_the_plan_is_the_best_of_all_numbers_of_rounds(
    linf: float, wins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the whole table; what cannot win is not rehearsed to the end."""
    model, options = packing(60, 5, linf=linf)[0]._model(None), Options(1.0, 1e-6)
    cuts, once = cuts_of(model), plan_of(model, options).once
    splits = [best_split(cuts, options, t, once) for t in range(1, 61)]
    *_, left = cutting.rehearse(model, cuts, 60)
    total = np.array([split.alpha(cuts) for split in splits]) + left
    assert (total.min() < once) == wins
    tried, original = [], cutting._exact_rounds
    monkeypatch.setattr(cutting, "_exact_rounds", lambda *given: tried.append(given) or original(*given))
    plan = plan_of(packing(60, 5, linf=linf)[0]._model(None), options)
    assert plan.count == (int(np.argmin(total)) + 1 if wins else 0)
    assert len(tried) == len(cutting._REHEARSALS) if wins else len(tried) < len(cutting._REHEARSALS)
    if wins:
        assert plan.alpha(cuts) == pytest.approx(total.min())


def test_forecasts_are_the_same_again_and_read_nothing() -> None:
    made = [packing(400, 6)[0] for _ in range(2)]  # no values at all
    one, two = (MECHANISM.forecast(p._model(None), Options(1.0, 1e-6)).to_dict() for p in made)
    assert one == two


def test_equalities_and_scaled_rows() -> None:
    """Much epsilon: the true optimum, with equalities as two cuts."""
    problem, parameters, _ = small()
    parameters[0].value = BASE
    model = problem._model(None)
    options = Options(1e6, 1e-6)
    x = cp.Variable(3, bounds=[-5, 5])
    rows = [x[0] + x[1] <= 1, x[1] - x[2] <= 1, 2 * x[0] + x[2] <= 2, x[2] >= -1, x[0] + x[2] == 0.5]
    best = cp.Problem(cp.Minimize(cp.sum(x) - 3 * x[0]), rows).solve()
    bench = Bench(options, 4)
    # Four rounds measure every number; the last point is not released, so one number is still open at the best one.
    outcome = bench.run(BASE, SeededSource(1))
    assert outcome.value is not None and outcome.value <= best + 1e-3
    assert isinstance(plan_of(model, options), Rounds)


def test_infeasible_data_give_the_point_of_least_violation() -> None:
    b = Private([9.0, 9.0, 9.0], name="b", linf=0.01)
    x = cp.Variable(3, bounds=[0, 1])
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [np.ones((3, 3)) @ x / 3 >= b])
    model = problem._model(None)
    options = Options(100.0, 1e-6)
    bench_plan = best_split(cuts_of(model), options, 3, math.inf)
    exact = cuts_of(model).measurement.values(model.read_private())
    outcome = _run(model, cuts_of(model), bench_plan, exact, SeededSource(1), no_progress)
    assert outcome.x is not None and public_polyhedron(model).violation(outcome.x) <= 1e-7
    assert outcome.status == LEAST_VIOLATION and outcome.extra_violation == pytest.approx(8, abs=1)
    assert any("give way" in note for note in outcome.notes)
