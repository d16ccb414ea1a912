"""The four feasibilities: what each promises on worst cases, and that plan and release say what was done to rows."""

from __future__ import annotations

import re
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.contract import Options, no_progress
from dpmodel.privacy import SeededSource
from dpmodel.programs import inwards as inwards_module
from dpmodel.programs.feasibility import treat
from dpmodel.programs.noise_design import design_noise
from dpmodel.programs.noise_once import released_parts
from dpmodel.programs.public import known_without_data

BETA, DRAWS, FALSE_ALARM = 0.2, 1500, 1e-8
NEED = np.array([12.0, 40.0, 75.0, 22.0, 31.0])


def private(value: Any, **declared: Any) -> Any:
    return dpm.Private(np.asarray(value), name="need", **{"unit": "entry", "linf": 1.0, **declared})


def beds(**declared: Any) -> tuple[dpm.Problem, Any]:
    """Beds for five wards, at least what each needs."""
    x = cp.Variable(5, nonneg=True, name="beds")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= private(NEED, **declared)).set_label("wards")]), x


def cases() -> dict[str, dpm.Problem]:
    x = cp.Variable(3, bounds=[0, 9], name="x")
    total = np.array([[1.0, 1, 0], [0, 1, 1]])
    both = private([1.0, 2, 3])
    apart = private([1.0, 2, 3], bounds=[0, 4])
    A = private([[1.0, 2, 3], [3, 1, 2]])
    return {
        "one number a row": dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private([1.0, 2, 3])]),
        "one number, three rows": dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private(2.0)]),
        "both signs": dpm.Problem(cp.Minimize(cp.sum(x)), [x >= both, x <= 4 + 2 * both]),
        "costs apart": dpm.Problem(cp.Minimize(np.array([1.0, 5, 0]) @ x), [x >= apart]),
        "sums of numbers": dpm.Problem(
            cp.Minimize(cp.sum(x)), [x[:2] >= total @ private([1.0, 2, 3], unit="all", l2=1)]
        ),
        "a cone": dpm.Problem(cp.Minimize(x[0]), [cp.norm(x[1:] - private([1.0, 2])) <= x[0]]),
        "coefficients": dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= private([1.0, 2], linf=0.5)]),
        "and an objective": dpm.Problem(cp.Minimize(private([1.0, 1, 1]) @ x), [x >= private([1.0, 2, 3])]),
    }


def misses(problem: dpm.Problem, kind: Any, feasibility: str, *, shrink: float = 1.0) -> tuple[int, int]:
    """Of ``DRAWS`` releases, how many break the statement on rows for some x: noise beyond what was allowed for.

    Safe: a row that is easier than the true one after tightening, or a coefficient that is off by more than its
    weight. Centred and relaxed: the noise of a row larger than the violation stated leaves room for.
    """
    model = problem._model(None)
    options = Options(1.0, 1e-6, BETA, feasibility)
    noise = design_noise(model, options, dict.fromkeys(model.private_parts(), kind))
    done = treat(model, options, noise)
    theta, source, count = model.read_private(), SeededSource(5), 0
    exact = {name: part.measurement.rebuild(part.measurement.values(theta)) for name, part in noise.parts.items()}
    room = done.alone - done.relax if feasibility != "safe" else -done.relax
    for _ in range(DRAWS):
        _, b, entries = released_parts(model, noise, source, no_progress)
        bad = False
        if b is not None:
            part = noise.parts["scalar"]
            place = part.measurement.positions
            moved = b[place] - exact["scalar"]
            moved = np.abs(moved) if feasibility != "safe" or not model.affine.is_linear() else moved
            bad |= bool((moved > shrink * room[place] + 1e-9).any())
        if entries is not None and feasibility == "safe":
            rows, columns = model.form.matrix_positions()
            allowed = np.asarray(done.weights.todense())[rows, columns]
            bad |= bool((np.abs(entries - exact["matrix"]) > shrink * allowed + 1e-9).any())
        count += bad
    return count, int(binom.isf(FALSE_ALARM, DRAWS, BETA))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", list(cases()))
def test_safe_keeps_its_promise(name: str, kind: Any) -> None:
    count, most = misses(cases()[name], kind, "safe")
    assert count <= most


@pytest.mark.parametrize("feasibility", ["relaxed", "centred"])
@pytest.mark.parametrize("name", ["one number a row", "both signs", "sums of numbers"])
def test_violations_stated_are_kept(name: str, feasibility: str) -> None:
    for kind in ("laplace", "gaussian"):
        count, most = misses(cases()[name], kind, feasibility)
        assert count <= most
    model = cases()[name]._model(None)
    options = Options(1.0, 1e-6, BETA, feasibility)
    done = treat(model, options, design_noise(model, options, {"scalar": "laplace"}))
    reach = design_noise(model, options, {"scalar": "laplace"}).parts["scalar"].reach.max()
    # Relaxing lets in twice what the noise can do; so do released numbers that contradict each other.
    assert done.violation == pytest.approx(2 * reach)
    assert done.alone == pytest.approx((2 if feasibility == "relaxed" else 1) * reach)


@pytest.mark.parametrize("name", list(cases()))
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_risk_is_shared_and_adds_up(name: str, kind: Any, monkeypatch: Any) -> None:
    seen: list[np.ndarray] = []
    real = inwards_module._shares

    def watched(*given: Any) -> Any:
        seen.append(real(*given))
        return seen[-1]

    monkeypatch.setattr(inwards_module, "_shares", watched)
    model = cases()[name]._model(None)
    options = Options(1.0, 1e-6, BETA, "safe")
    treat(model, options, design_noise(model, options, dict.fromkeys(model.private_parts(), kind)))
    for shares in seen:
        assert (shares > 0).all() and shares.sum() == pytest.approx(1, rel=1e-12)
    if name == "costs apart":
        assert seen[0][1] > seen[0][0] > seen[0][2] > 0, "rows that cost more get more of the risk"


def test_beds_are_enough_when_safe_and_not_when_relaxed() -> None:
    """Wards that need 12/40/75/22/31 beds; statements at beta = .05, 12 draws."""
    short = {}
    for feasibility in ("relaxed", "centred", "safe"):
        problem, x = beds()
        short[feasibility] = []
        for seed in range(12):
            problem.solve(epsilon=1, rng=seed, feasibility=feasibility, mechanism="laplace-once")
            short[feasibility].append((NEED - x.value).max())
    worst = {name: np.array(values) for name, values in short.items()}
    assert (worst["safe"] > 1e-6).sum() <= binom.isf(FALSE_ALARM, 12, 0.05)
    assert (worst["relaxed"] > 1e-6).mean() > 0.9, "relaxed serves too few: it is easier than the noise is large"
    assert worst["relaxed"].mean() > worst["centred"].mean() > 0 > worst["safe"].mean()


# Quantiles of the largest of five draws of Laplace noise of scale 1, on both sides and on one.
WORDS = {
    "relaxed": (r"wards: made easier by (\S+) \(relaxed\), so that the true optimum", -np.log(1 - 0.95 ** (1 / 5))),
    "centred": (r"wards: solved with the released numbers as they are \(centred\); a row .* short by (\S+) on", 0.5),
    "safe": (r"wards: made harder by (\S+) \(safe\), which covers the noise with probability 0.95", np.log(5 / 0.1)),
    "strict": (r"wards: made harder by (\S+) \(strict\), so that it holds with certainty", None),
}


@pytest.mark.parametrize("feasibility", WORDS)
def test_plan_and_release_say_what_was_done_to_each_constraint(feasibility: str) -> None:
    pattern, amount = WORDS[feasibility]
    how = {"epsilon": 1, "delta": 1e-6 if feasibility == "strict" else 0, "feasibility": feasibility}
    problem, _ = beds(bounds=[0, 100])
    plan = problem.plan(**how)
    problem.solve(**how, rng=0)
    for text in (str(plan), plan.chosen.forecast.rows[0], next(n for n in problem.release.notes if "wards" in n)):
        found = re.search(pattern, " ".join(text.split()))
        assert found, text
        assert amount is None or float(found[1]) == pytest.approx(amount, rel=2e-3)
    cost = any("tightening made the objective at most" in note for note in problem.release.notes)
    assert cost == (feasibility == "safe")


def test_what_safe_says_it_cost_is_no_less_than_it_cost() -> None:
    for seed in range(5):
        values = {}
        for feasibility in ("centred", "safe"):
            problem, _ = beds()
            values[feasibility] = problem.solve(epsilon=1, rng=seed, feasibility=feasibility, mechanism="laplace-once")
        said = next(note for note in problem.release.notes if "tightening made" in note)
        stated = float(said.split("at most ")[1].split()[0])
        assert values["safe"] - values["centred"] <= stated * (1 + 1e-3) + 1e-6


@pytest.mark.parametrize("feasibility", ["safe", "strict"])
def test_private_equalities_cannot_be_safe(feasibility: str) -> None:
    x, budget = cp.Variable(2, bounds=[0, 9], name="x"), dpm.Budget(1, 1e-6)
    need = dpm.Private([1.0, 2.0], name="need", unit="entry", linf=1, bounds=[0, 5])
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x == need])
    with pytest.raises(dpm.errors.UnsupportedModelError, match="equality"):
        problem.solve(epsilon=1, delta=1e-6, rng=0, feasibility=feasibility, budget=budget)
    assert budget.spent.epsilon == 0


def test_without_noise_every_mode_is_the_true_optimum() -> None:
    for feasibility in ("relaxed", "centred", "safe"):
        problem, x = beds(linf=1e-6)
        problem.solve(epsilon=100, rng=0, feasibility=feasibility, mechanism="laplace-once")
        assert x.value == pytest.approx(NEED, abs=1e-4)


def test_a_tightened_program_without_points_gives_way_and_says_so() -> None:
    x = cp.Variable(2, bounds=[0, 3], name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= private([2.9, 2.9])])
    problem.solve(epsilon=0.1, rng=0, feasibility="safe", mechanism="laplace-once")
    release = problem.release
    assert release.status == "least_violation" and release.variables
    assert "except constraint 0" in release.accuracy.statement and release.accuracy.proved


def test_safe_takes_the_noise_that_tightens_least() -> None:
    x = cp.Variable(30, nonneg=True, name="x")
    one_moves_all = private(np.full(30, 9.0), unit="all", linf=1.0)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= one_moves_all])
    plan = problem.plan(epsilon=1, delta=1e-6, feasibility="safe")
    tightening = {c.mechanism: c.forecast.error.tightening for c in plan.candidates if c.forecast is not None}
    assert tightening["gaussian-once"] < tightening["laplace-once"]
    assert plan.chosen.mechanism == "gaussian-once"


@pytest.mark.filterwarnings("ignore::dpmodel.errors.NoGuaranteeWarning")
@pytest.mark.parametrize("feasibility", ["safe", "strict"])
@pytest.mark.parametrize("bounds", [(0.9, 1.1), (0.5, 1.5)])
@pytest.mark.parametrize("sides", [False, True])
def test_right_hand_sides_end_no_further_inside_than_stated(sides: bool, bounds: Any, feasibility: str) -> None:
    """Nor, where the noise is larger than the declared ranges, than these are wide."""
    x = cp.Variable(2, bounds=[0, 10], name="x")
    side = private([15.0], linf=0.05, bounds=(14.0, 16.0)) if sides else 15.0
    rows = private([[1.0, 1.0]], linf=0.2, bounds=bounds) @ x <= side
    problem = dpm.Problem(cp.Maximize(cp.sum(x)), [rows])
    found = 0.0
    for seed in range(4):
        problem.solve(epsilon=1, delta=1e-6, beta=1e-6, rng=seed, feasibility=feasibility, mechanism=NOISE[feasibility])
        forecast = problem.last_plan.chosen.forecast  # type: ignore[union-attr]
        found = max(found, 15 - float(x.value.sum()))  # the row is what binds
        assert -1e-6 <= found <= forecast.error.tightening  # type: ignore[union-attr]
    public = known_without_data(problem._model(None)).tightening  # type: ignore[arg-type]
    assert found <= public + 1e-6 and forecast.error.tightening <= public * (1 + 1e-9)


NOISE = {"safe": "laplace-once", "strict": "strict-truncated-laplace"}


def auto_cases() -> dict[str, tuple[dpm.Problem, str]]:
    """What "auto" takes at epsilon 2."""
    x, y = cp.Variable(3, bounds=[0, 9], name="x"), cp.Variable(3, bounds=[0, 9], integer=True, name="y")
    t = cp.Variable(70, integer=True, name="t")
    cost, A = np.array([1.0, 2, 4]), private([[1.0, 2, 3], [3, 1, 2]], linf=0.1)
    coarse = private([[1.0, 2, 3], [3, 1, 2]], bounds=[0, 4], linf=0.7)
    ballot = private([[1.0, 1, 0], [0, 1, 0], [0, 1, 1]], unit="row", linf=None, bounds=[0, 1])
    return {
        "inequalities": (dpm.Problem(cp.Minimize(cost @ x), [x >= private([1.0, 2, 3])]), "priced"),
        "integers": (dpm.Problem(cp.Minimize(cost @ y), [y >= private([1.0, 2, 3])]), "priced"),
        "many integers": (dpm.Problem(cp.Minimize(cp.sum(t)), [t >= private(np.arange(70.0))]), "centred"),
        "coefficients": (dpm.Problem(cp.Minimize(cost @ x), [A @ x >= 2]), "priced"),
        "coefficients that noise hides": (dpm.Problem(cp.Minimize(cost @ x), [coarse @ x >= 2]), "priced"),
        "an equality": (
            dpm.Problem(cp.Minimize(cost @ x), [x[:2] >= private([1.0, 2]), x[2] == private(3)]),
            "centred",
        ),
        "an equality and a level": (
            dpm.Problem(cp.Minimize(cost @ x), [x == private([1.0, 2, 3], typical=2)]),
            "priced",
        ),
        "no objective": (dpm.Problem(cp.Minimize(0), [x >= private([1.0, 2, 3])]), "centred"),
        "a private objective": (dpm.Problem(cp.Minimize(private([1.0, 2, 3]) @ x), [cp.sum(x) == 9]), "centred"),
        "a norm": (dpm.Problem(cp.Minimize(cost @ x), [cp.norm1(x - private([1.0, 2, 3])) <= 4]), "centred"),
        "ballots": (dpm.Problem(cp.Minimize(0), [ballot @ x >= 1, cp.sum(x) <= 1]), "centred"),
    }


@pytest.mark.filterwarnings("ignore::dpmodel.errors.NoGuaranteeWarning")
@pytest.mark.parametrize("name", auto_cases())
def test_auto_prices_inequalities_without_a_level_and_says_what_it_does_not_know(name: str) -> None:
    problem, treatment = auto_cases()[name]
    plan = problem.plan(epsilon=2, delta=1e-6)
    assert plan.options.feasibility == treatment and plan.chosen.reads, plan
    if treatment == "priced" and not plan.chosen.forecast.expected:  # type: ignore[union-attr]
        assert "unknown before the release" in " ".join(str(plan).split())
    problem.solve(epsilon=2, delta=1e-6, rng=0)
    assert problem.release.variables
    if problem.release.measured and treatment == "priced":
        first = problem.release.variables
        problem.resolve()
        assert all(np.array_equal(first[each], problem.release.variables[each]) for each in first)


def test_at_one_price_ballots_are_those_that_are_short_least() -> None:
    rng = np.random.default_rng(0)
    votes = private(rng.random((60, 4)) < 0.4, unit="row", linf=None, bounds=[0, 1])
    x = cp.Variable(4, bounds=[0, 1], name="x")
    heard = votes @ x >= 1
    problem = dpm.Problem(cp.Minimize(0), [heard, cp.sum(x) <= 2])
    prices = (dpm.Priced(3), dpm.Priced(), dpm.Priced({heard: 1 + np.arange(60.0)}))
    assert [problem.plan(2, 1e-6, feasibility=each).options.feasibility for each in prices] == [
        "centred",
        "centred",
        "priced",
    ]
    costly = dpm.Problem(cp.Minimize(cp.sum(x)), problem.constraints)
    assert costly.plan(2, 1e-6, feasibility=prices[0]).options.feasibility == "priced"
