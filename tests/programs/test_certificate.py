"""``solve(certify=)``: exact sensitivity by brute force, an audit with a broken twin, coverage, one charge for both."""

from __future__ import annotations

import math
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from blocks import Broken, features_of, labels_of
from scipy.stats import beta as beta_law

import dpmodel as dpm
from dpmodel import audit
from dpmodel.audit.neighbors import Data
from dpmodel.errors import BudgetExceededError, NotPrivateWarning, SourceError, SpecificationError
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import SourceRows
from dpmodel.privacy import SeededSource
from dpmodel.programs import certificate as rows_certificate
from dpmodel.programs.certificate import _quantile, certify, objective_at, rows_missed
from dpmodel.programs.model import RecordsProgram
from dpmodel.programs.rows import rows_per_record
from dpmodel.regressions import certificate as risk_certificate

BETA, FALSE_ALARM, RUNS = 0.1, 1e-7, 200
BALLOTS = (np.random.default_rng(1).random((60, 5)) < 0.4) * 1.0
NEED = np.array([3.0, 7.0, 2.0])


def seeded(seed: int) -> SeededSource:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        return SeededSource(seed)


def ballots(values: Any, neighbors: Any = "replace-one", **declared: Any) -> dpm.Problem:
    """A row of A for every person."""
    people = dpm.Records("people", neighbors)
    rows = dpm.Private(values, name="ballots", **{"unit": "row", "bounds": [0, 1], "records": people, **declared})
    x = cp.Variable(values.shape[1], bounds=[0, 1], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [rows @ x >= 1])


def needs(values: Any) -> dpm.Problem:
    """Every number stands in two rows, with both signs, and in an equality; people own one each."""
    need = dpm.Private(values, name="need", unit="entry", linf=1)
    x = cp.Variable(3, bounds=[0, 20], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= need, x <= 6.5 - need, x == 2 * need - 3])


def costs(values: Any, sense: Any = cp.Minimize) -> dpm.Problem:
    c = dpm.Private(values, name="c", unit="all", l1=2.0, linf=0.5)
    x = cp.Variable(3, bounds=[-1, 2], name="x")
    return dpm.Problem(sense(c @ x - 2 * x[0] + cp.sum(c)), [cp.sum(x) <= 2])


def fit(values: Any, labels: Any, loss: str = "squared", neighbors: Any = "replace-one") -> dpm.Problem:
    people = dpm.Records("people", neighbors)
    X = dpm.Private(values, name="X", unit="row", bounds=[-1, 1], records=people)
    y = dpm.Private(labels, name="y", unit="entry", bounds=[-1, 2], records=people)
    w = cp.Variable(2, name="w")
    written = {"squared": lambda: cp.sum_squares(X @ w - y) / 7, "absolute": lambda: cp.norm1(X @ w - y) * 3}[loss]
    return dpm.Problem(cp.Minimize(written() + 0.1 * cp.sum_squares(w)), [cp.norm(w, 1) <= 2])


# ------------------------------------------------------------------ sensitivity, by brute force
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_one_record_moves_the_count_of_rows_by_what_is_declared(neighbors: Any) -> None:
    x, model = np.array([0.5, 0.5, 0.2, 0.9, 0.0]), ballots(BALLOTS, neighbors)._model(None)
    first, moved = rows_missed(model, x), rows_per_record(model)
    assert moved == 1
    changes = set()
    for person in (0, 17, 59):
        for row in (np.zeros(5), np.ones(5), np.eye(5)[3]):
            other = BALLOTS.copy()
            other[person] = row
            changes.add(abs(rows_missed(ballots(other, neighbors)._model(None), x) - first))
    assert max(changes) == moved


def test_a_number_in_several_rows_moves_all_of_them() -> None:
    x, model = np.array([3.0, 7.5, 2.0]), needs(NEED)._model(None)
    first, moved = rows_missed(model, x), rows_per_record(model)
    assert moved == 3 and rows_certificate._count(model) == 9
    changes = {
        abs(rows_missed(needs(NEED + step * np.eye(3)[k])._model(None), x) - first)
        for k in range(3)
        for step in (-1.0, -0.5, 0.5, 1.0)
    }
    assert max(changes) == moved


def test_bounds_play_no_part_in_a_count() -> None:
    """A row of numbers that nobody bounds counts as one row, however large they are."""
    values = np.array([[1.0, 0, 2], [3.0, 1, 0], [0.0, 1, 1]])
    x, wide = np.array([0.5, 0.2, 0.9]), values.copy()
    wide[1] = [-1e12, 1e12, 7.0]
    one, other = (ballots(v, bounds=None, unit="row")._model(None) for v in (values, wide))
    assert abs(rows_missed(one, x) - rows_missed(other, x)) <= rows_per_record(one) == 1


@pytest.mark.parametrize("x", [np.array([1.0, -0.5, 2.0]), np.array([0.0, 0.25, -1.0])])
def test_one_record_moves_the_objective_by_what_is_declared(x: Any) -> None:
    values = np.array([1.0, 2.0, 3.0])
    query = objective_at(costs(values)._model(None), x)
    factor, changes = float(query.recover.sum()), []
    for step in (np.array(s) for s in np.ndindex(3, 3, 3)):
        move = 0.5 * (step - 1)  # l1 at most 1.5, below the bound of 2
        changes.append(abs(float(move @ (x + 1))))
    assert max(changes) <= abs(factor) * query.l1 <= max(changes) * (1 + 2e-3)
    exact = query.values(costs(values)._model(None).read_private())
    assert factor * exact[0] == pytest.approx(values @ (x + 1))


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_one_record_moves_the_risk_by_what_is_declared(loss: str, neighbors: Any) -> None:
    rng, w = np.random.default_rng(4), np.array([1.5, -0.5])
    X, y = rng.uniform(-1, 1, (12, 2)), rng.uniform(-1, 2, 12)
    model: Any = fit(X, y, loss, neighbors)._model(None)
    largest = risk_certificate.largest_loss(model, w)
    moved, first = (
        risk_certificate.sensitivity(model, largest),
        model.scale * risk_certificate.losses(model, w, largest),
    )
    seen = []
    X[0], y[0] = [-1, 1], 2.0  # the worst record, against the best, and against none
    worst = model.scale * risk_certificate.losses(fit(X, y, loss, neighbors)._model(None), w, largest)
    for row, label in (([0, 0], 0.0), ([1, 1], 1.0), ([1, 0.5], 1.25), ([0, 0], 2.0)):
        X[0], y[0] = row, label
        other: Any = fit(X, y, loss, neighbors)._model(None)
        seen.append(abs(worst - other.scale * risk_certificate.losses(other, w, largest)))
    assert 0.99 * moved <= max(seen) <= moved and abs(worst - first) <= moved
    value = {"squared": lambda r: r @ r / 7, "absolute": lambda r: 3 * np.abs(r).sum()}[loss]
    assert model.scale * risk_certificate.losses(other, w, largest) == pytest.approx(value(X @ w - y))


# ------------------------------------------------------------------ what rows are short by, where a record moves all
def counts(values: Any, **declared: Any) -> dpm.Problem:
    """A record moves any of the numbers; each stands in three rows, with both signs, one of them an equality."""
    need = dpm.Private(values, name="need", **{"unit": "all", "l1": 2.0, "linf": 1.0, "bounds": [0, 9], **declared})
    share = dpm.Private([0.5, 1.0], name="share", unit="entry", linf=0.25, bounds=[0, 2], records=need.records)
    x = cp.Variable(3, bounds=[0, 20], name="x")
    rows = [x >= need, x <= 6.5 - 0.5 * need, x == 2 * need - 3, cp.multiply(share, x[:2]) <= 4]
    return dpm.Problem(cp.Minimize(cp.sum(x)), rows)


def test_one_record_moves_what_rows_are_short_by_as_far_as_is_declared() -> None:
    """All of a record's number of the first kind and all of the second: rows that are short, or off, move fully."""
    x = np.array([4.0, 7.0, 1.0])
    model: Any = counts(NEED)._model(None)
    query, public, moved = rows_certificate.shortage_at(model, x)
    assert rows_certificate._drowns(model, 0.1, BETA)

    def short(values: Any, share: Any = (0.5, 1.0)) -> float:
        made = counts(values)
        next(p for p in made.parameters() if p.name() == "share").value = share
        found = rows_certificate.shortage(model, query, public, made._model(None).read_private())
        need, part = np.clip(values, 0, 9), np.clip(share, 0, 2)
        rows = [need - x, x - 6.5 + 0.5 * need, part * x[:2] - 4]
        truth = sum(np.maximum(each, 0).sum() for each in rows) + np.abs(x - 2 * need + 3).sum()
        assert found == pytest.approx(truth)
        return found

    seen = 0.0
    for base in ([8.0, 8.0, 8.0], NEED, [9.0, 9.0, 9 + 1e-12], [1e9, -1e9, 9.0]):
        for i, j in ((0, 1), (1, 2), (0, 2)):
            for a, b in ((-1, -1), (-1, 0.5), (1, 1)):
                other = np.clip(base, 0, 9)
                other[i] += a
                other[j] += b
                for shares in (([2.0, 2.0], [2.0, 1.75]), ([0.5, 1e9], [0.5, 1.75])):
                    seen = max(seen, abs(short(np.array(base), shares[0]) - short(other, shares[1])))
    assert 0.98 * moved < seen <= moved


def test_intervals_of_what_rows_are_short_by_cover() -> None:
    x = np.array([4.0, 7.0, 1.0])
    truth = np.maximum(NEED - x, 0).sum() + np.maximum(x - 6.5 + 0.5 * NEED, 0).sum() + np.abs(x - 2 * NEED + 3).sum()
    truth += max(7.0 - 4, 0) + max(0.5 * 4 - 4, 0)
    assert covering(counts(NEED)._model(None), x, truth) >= LEAST


def test_counts_that_every_record_moves_have_a_certificate() -> None:
    problem = counts(NEED, l1=0.2, linf=0.1)
    problem.solve(4.0, certify=0.25, feasibility="centred", mechanism="laplace-once", rng=3)
    found = problem.release.certificate
    assert "short by between" in found.statement and found.upper > found.lower >= 0


def test_the_audit_finds_half_the_noise_of_a_shortage(monkeypatch: Any) -> None:
    def model(private: Any) -> Any:
        made = private(np.full(6, 8.0), name="need", unit="all", l1=2.0, linf=1.0, bounds=[0, 9])
        x = cp.Variable(6, bounds=[0, 3], name="x")  # every row is short, so that all moves are seen
        return cp.Minimize(cp.sum(x)), [x >= made]

    data = Data(model, {"feasibility": "centred", "certify": 0.5}, name="short")
    assert not audit.replay(data, "laplace-once").faults
    whole = rows_certificate.shortage_at
    monkeypatch.setattr(rows_certificate, "shortage_at", lambda m, x: (*whole(m, x)[:2], whole(m, x)[2] / 2))
    assert any("times what was charged" in fault for fault in audit.replay(data, "laplace-once").faults)


# ------------------------------------------------------------------ rows of records, in blocks of unequal size
def in_blocks(values: Any, cuts: Any, neighbors: Any = "replace-one", kind: Any = MemoryBlocks) -> dpm.Problem:
    """Two rows for every person, over sources; the second label bounds from below."""
    people = dpm.Records("people", neighbors)
    source = kind(np.split(values, cuts))
    A = dpm.Private(SourceRows(source, features_of, 3), name="A", unit="row", bounds=(0, 1), records=people)
    b = dpm.Private(SourceRows(source, labels_of, None), name="b", unit="entry", bounds=(0, 1), records=people)
    x = cp.Variable(3, bounds=[0, 1], name="x")
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= b, A[:, :2] @ x[1:] <= 1 - b])


def beyond(count: int) -> Any:
    """Numbers on the bounds, just beyond and far beyond them."""
    rng = np.random.default_rng(6)
    return rng.choice([-1e9, -1e-12, 0.0, 0.4, 0.7, 1.0, 1 + 1e-12, 1e9], size=(count, 4))


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("cuts", [[7], [1, 1, 20]])
def test_one_record_in_blocks_moves_the_count_by_its_rows(cuts: Any, neighbors: Any) -> None:
    x, values = np.array([0.5, 0.25, 1.0]), beyond(31)
    model: Any = in_blocks(values, cuts, neighbors)._model(None)
    first, moved = rows_missed(model, x), rows_per_record(model)
    assert isinstance(model, RecordsProgram) and moved == 2 and rows_certificate._count(model) == 62
    clipped = np.clip(values, 0, 1)
    missed = clipped[:, :3] @ x < clipped[:, 3] - 1e-6, clipped[:, :2] @ x[1:] > 1 - clipped[:, 3] + 1e-6
    assert first == sum(int(each.sum()) for each in missed)
    changes = set()
    for person in (0, 6, 7, 30):  # at the ends of blocks
        for row in ([1, 1, 1, 0], [0, 0, 0, 1], [1, 1, 0, 1], [1e9, 1 + 1e-12, 1e9, 1e9], [-1e9, 0, 0, -1e-12]):
            other = values.copy()
            other[person] = row
            changes.add(abs(rows_missed(in_blocks(other, cuts, neighbors)._model(None), x) - first))
    assert max(changes) == moved


def test_blocks_count_what_memory_counts_and_no_block_counts_twice() -> None:
    x, values = np.array([0.5, 0.25, 1.0]), beyond(31)
    counts = {rows_missed(in_blocks(values, cuts)._model(None), x) for cuts in ([], [7], [30], [1, 1, 20])}
    assert len(counts) == 1
    with pytest.raises(SourceError, match="twice"):
        rows_missed(in_blocks(values, [7], kind=Broken)._model(None), x)


def test_a_solve_over_blocks_has_a_certificate() -> None:
    values = beyond(400)
    problem = in_blocks(values, [150])
    problem.solve(20.0, 1e-6, feasibility=dpm.AllBut(rows=300), certify=0.25, rng=2)
    x, found = problem.release.variables["x"], problem.release.certificate
    truth = 1 - rows_missed(problem._model(None), x) / 800
    assert found.lower <= truth <= found.upper < found.lower + 0.05


# ------------------------------------------------------------------ audit
def loss_shown(epsilon: float) -> float:
    """A lower bound, with a false-alarm rate below 1e-6, on what the certificate of two neighbors reveals."""
    x, source, runs = np.array([3.0, 7.5, 2.0]), seeded(3), 3000
    shares = []
    for value in (3.0, 4.0):  # moves all three rows of the first number at x
        values = NEED.copy()
        values[0] = value
        model = needs(values)._model(None)
        shares.append(np.array([certify(model, epsilon, BETA, x, source).estimate for _ in range(runs)]))
    best = 0.0
    for cut in np.unique(shares[0]):
        for a, b in (shares, shares[::-1]):
            hits = int((a >= cut).sum()), int((b >= cut).sum())
            low = beta_law.ppf(FALSE_ALARM, hits[0], runs - hits[0] + 1) if hits[0] else 0.0
            high = beta_law.ppf(1 - FALSE_ALARM, hits[1] + 1, runs - hits[1]) if hits[1] < runs else 1.0
            best = max(best, math.log(low / high) if low > 0 else 0.0)
    return best


@pytest.mark.slow
def test_the_audit_passes_and_catches_a_twin_that_counts_one_row_of_each(monkeypatch: Any) -> None:
    assert loss_shown(1.0) <= 1.0
    monkeypatch.setattr(rows_certificate, "rows_per_record", lambda model: 1)
    assert loss_shown(1.0) > 1.0


# ------------------------------------------------------------------ coverage
def covering(model: Any, x: Any, truth: float, measure: Any = certify) -> int:
    source = seeded(9)
    found = [measure(model, 0.5, BETA, x, source) for _ in range(RUNS)]
    assert all(each.lower <= each.estimate <= each.upper and each.level == 1 - BETA for each in found)
    assert len({each.estimate for each in found}) > 5
    return sum(each.lower - 1e-12 <= truth <= each.upper + 1e-12 for each in found)


LEAST = RUNS * (1 - BETA) - 3 * np.sqrt(RUNS * BETA * (1 - BETA))


def test_intervals_of_rows_cover() -> None:
    x = np.array([0.5, 0.5, 0.2, 0.9, 0.0])
    assert covering(ballots(BALLOTS)._model(None), x, float((BALLOTS @ x >= 1 - 1e-6).mean())) >= LEAST


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
def test_intervals_of_the_objective_cover(sense: Any) -> None:
    values, x = np.array([1.0, 2.0, 3.0]), np.array([1.0, -0.5, 2.0])
    truth = float(values @ x - 2 * x[0] + values.sum())
    assert covering(costs(values, sense)._model(None), x, truth) >= LEAST


def test_intervals_of_the_risk_cover() -> None:
    rng, w = np.random.default_rng(4), np.array([1.5, -0.5])
    X, y = rng.uniform(-1, 1, (50, 2)), rng.uniform(-1, 2, 50)
    truth = float(((X @ w - y) ** 2).sum() / 7 + 0.1 * w @ w)
    assert covering(fit(X, y)._model(None), w, truth, risk_certificate.certify) >= LEAST


def test_quantiles_of_rounded_noise() -> None:
    draws = np.rint(np.random.default_rng(5).laplace(size=200_000))
    for scale in (0.3, 1.0, 7.5, 200.0):
        for beta in (0.01, 0.1, 0.5):
            t = _quantile(scale, beta)
            assert math.exp(-(t + 0.5) / scale) <= beta * (1 + 1e-9)
            assert t == 0 or math.exp(-(t - 0.5) / scale) > beta * (1 - 1e-9)
    assert (np.abs(draws) > _quantile(1.0, 0.1)).mean() == pytest.approx(math.exp(-2.5), rel=0.1)


# ------------------------------------------------------------------ through solve
class Plain:
    """A source of another package: the methods of ``NoiseSource``, and no discrete noise."""

    is_private = False

    def __init__(self, seed: int) -> None:
        source = seeded(seed)
        for name in ("laplace", "gaussian", "truncated_laplace", "truncated_gaussian", "noisy_max"):
            setattr(self, name, getattr(source, name))


def test_every_source_of_noise_can_certify() -> None:
    problem, budget = ballots(BALLOTS), dpm.Budget(2.0)
    problem.solve(2.0, feasibility=dpm.AllBut(rows=20), certify=0.25, budget=budget, rng=Plain(2))
    assert problem.release.certificate.epsilon == pytest.approx(0.5) and len(budget.history) == 1


def test_one_charge_pays_for_both_and_no_more() -> None:
    problem, budget = costs(np.array([1.0, 2.0, 3.0])), dpm.Budget(1.0)
    problem.solve(1.0, budget=budget, certify=0.1, mechanism="laplace-once", rng=1)
    release = problem.release
    assert len(budget.history) == 1 and budget.history[0].epsilon == 1.0
    assert release.spent == (1.0, 0.0) and release.guarantee.epsilon == 1.0
    assert release.certificate.epsilon == pytest.approx(0.1)
    # The answer's noise is that of the rest.
    scales = []
    for epsilon in (1.0, 0.9):
        problem.solve(epsilon, mechanism="laplace-once", rng=1, certify=0.1 if epsilon == 1 else 0.0)
        chosen = problem.release.plan["candidates"][0]
        scales.append(chosen["forecast"]["noise"]["objective"]["distribution"]["scale"])
    assert scales[0] == pytest.approx(scales[1])
    with pytest.raises(BudgetExceededError):
        problem.solve(1.0, budget=budget, certify=0.1, rng=1)


def test_release_tells_it_and_reads_it_back() -> None:
    problem = ballots(BALLOTS)
    problem.solve(2.0, feasibility=dpm.AllBut(rows=20), certify=0.25, rng=2)
    release, found = problem.release, problem.release.certificate
    assert str(found) == found.statement
    assert found.statement in " ".join(str(release).split()) and "constraints hold" in found.statement
    again = dpm.Release.from_json(release.to_json()).certificate
    assert again == found and found.to_dict()["epsilon"] == pytest.approx(0.5)
    problem.solve(2.0, feasibility=dpm.AllBut(rows=20), rng=2)
    assert problem.release.certificate is None


def test_another_answer_has_no_certificate_of_the_first() -> None:
    problem = costs(np.array([1.0, 2.0, 3.0]))
    problem.solve(1.0, certify=0.1, mechanism="laplace-once", rng=1)
    problem.resolve()
    assert problem.release.certificate is None


def test_a_fit_gets_its_risk() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.uniform(-1, 1, (400, 2)), rng.uniform(-1, 2, 400)
    problem = fit(X, y)
    problem.solve(4.0, 1e-6, certify=0.25, rng=3)
    w = problem.release.variables["w"]
    found = problem.release.certificate
    assert found.lower <= ((X @ w - y) ** 2).sum() / 7 + 0.1 * w @ w <= found.upper


@pytest.mark.parametrize("share", [-0.1, 0.6, 1, True, "a tenth", [0.1], math.nan])
def test_shares_that_are_none_are_refused(share: Any) -> None:
    budget = dpm.Budget(1.0)
    with pytest.raises(SpecificationError, match="certify="):
        costs(np.array([1.0, 2.0, 3.0])).solve(1.0, budget=budget, certify=share, rng=1)
    assert not budget.history


def test_a_constant_term_without_a_bound_is_refused_before_the_charge() -> None:
    """Planted: the costs have a bound, the constant term has none."""
    c = dpm.Private([1.0, 2.0], name="c", unit="entry", linf=1)
    a = dpm.Private([1.0], name="a", unit="entry")
    x, budget = cp.Variable(2, bounds=[0, 1]), dpm.Budget(1)
    problem = dpm.Problem(cp.Minimize(c @ x + cp.sum(a)), [cp.sum(x) == 1])
    with pytest.raises(dpm.DPModelError):
        problem.solve(1, certify=0.1, budget=budget, rng=0)
    with pytest.raises(SpecificationError, match="certify="):
        problem.solve(1, certify=1e-17, budget=budget, rng=0)
    assert budget.spent.epsilon == 0


def test_what_cannot_be_measured_is_refused_before_the_charge() -> None:
    budget = dpm.Budget(10.0)
    three = dpm.Private(NEED, name="need", unit="entry")
    x = cp.Variable(3, nonneg=True)
    few = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= three])
    with pytest.raises(SpecificationError, match="noise for epsilon"):
        few.solve(1.0, budget=budget, certify=0.1, rng=1)
    half = dpm.Private(NEED, name="need", unit="entry", linf=1)
    cone = dpm.Problem(cp.Minimize(x[0]), [cp.norm(x[1:] - half[1:]) <= x[0]])
    with pytest.raises(SpecificationError, match="linear"):
        cone.solve(1.0, budget=budget, certify=0.1, rng=1)
    assert not budget.history


@pytest.mark.parametrize("at", [0.0, 1.0, 1.5, 2.0])
def test_numbers_that_one_point_cancels_have_no_certificate(at: float) -> None:
    """A record moves them as far as it likes, wherever the released point is not that one."""
    u, d = (dpm.Private(np.ones(k), name=name, unit="entry") for k, name in ((3, "u"), (2, "d")))
    x, y = cp.Variable(3, bounds=[0, 10]), cp.Variable(2, bounds=[0, 10])
    rows = dpm.Problem(cp.Minimize(cp.sum(x)), [cp.multiply(u, x) >= at * u])._model(None)
    assert "nothing bounds how far" in rows_certificate.why_not(rows, 0.1, BETA)
    objective = dpm.Problem(cp.Minimize(d @ (y - at)), [cp.sum(y) <= 2])._model(None)
    assert "may change the objective arbitrarily" in rows_certificate.why_not(objective, 1.0, BETA)
