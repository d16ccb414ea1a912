"""Residuals of marginals: what one record moves by brute force, variances by dense algebra, the fit against CVXPY."""

from __future__ import annotations

import dataclasses
import itertools
import math

import cvxpy as cp
import numpy as np
import pytest

from dpmodel.errors import SpecificationError
from dpmodel.privacy import SeededSource, gaussian_mu
from dpmodel.released import pinned_fit
from dpmodel.released import residuals as module
from dpmodel.released.marginal_noise import MarginalNoise, design
from dpmodel.released.pinned_fit import fitted_tables
from dpmodel.released.residuals import Residuals, best_variances, from_tables, largest_change

WORKLOADS = [
    ((2, 2), [(0, 1)]),
    ((2, 3, 4), [(0, 1), (1, 2), (0, 2)]),
    ((2, 3, 4), [(0, 1, 2), (0,)]),
    ((3, 1, 2), [(0, 1), (1, 2)]),
    ((5, 2, 3), [(0,), (1, 2)]),
    ((30,), [(0,)]),
]


def tables_of(residuals, people):
    """(entries of tables,) counts of the people, rows of codes."""
    people = np.asarray(people).reshape(-1, len(residuals.tables.sizes))
    out = []
    for m in residuals.tables.sets:
        flat = np.ravel_multi_index(tuple(people[:, list(m)].T), residuals.tables.shape(m))
        out.append(np.bincount(flat, minlength=math.prod(residuals.tables.shape(m))))
    return np.concatenate(out)


def everybody(sizes):
    return list(itertools.product(*map(range, sizes)))


def summed(residuals):
    """(entries of tables, entries of parts) a table from its parts, dense."""
    spread = residuals.sums.toarray().T * residuals.parts.cells[residuals.parts.which]
    return spread / residuals.tables.cells[residuals.tables.which][:, None]


def some_variances(residuals, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 3, len(residuals.parts.sets))


# ------------------------------------------------------------------ what one record moves
def furthest(residuals, s, neighbors):
    """The largest squared change of the coordinates that are drawn for, over all people or pairs of people."""
    points = []
    for person in everybody(residuals.tables.sizes):
        f, which = residuals.coordinates(tables_of(residuals, person))
        points.append(f / np.sqrt(s[which]))
    points = np.array(points)
    if neighbors == "add-remove":
        return max((points**2).sum(axis=1))
    return max(((a - b) ** 2).sum() for a in points for b in points)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("sizes", "workload"), WORKLOADS)
def test_the_largest_change_is_attained_and_never_exceeded(sizes, workload, neighbors, monkeypatch):
    residuals = Residuals.of(workload, sizes)
    for seed in range(3):
        s = some_variances(residuals, seed)
        change, found = largest_change(residuals, s, neighbors), furthest(residuals, s, neighbors)
        assert change == pytest.approx(found, rel=1e-12)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_EVERY_SET", 0)
            assert largest_change(residuals, s, neighbors) >= found * (1 - 1e-12)


def test_the_bound_for_many_columns_of_pairs_is_close():
    """Of two values each, where every product may be negative: 12 columns by all sets, 40 alike by their number."""
    rng = np.random.default_rng(0)
    residuals = Residuals.of(itertools.combinations(range(12), 2), rng.integers(2, 4, 12).tolist())
    s = some_variances(residuals)
    used = np.flatnonzero(residuals.order > 0)
    exact = largest_change(residuals, s, "replace-one")
    assert exact <= module._of_pairs(residuals, s, used) <= 1.1 * exact
    residuals = Residuals.of(itertools.combinations(range(40), 2), [2] * 40)
    found = largest_change(residuals, np.ones(len(residuals.parts.sets)), "replace-one")
    # k of 40 differ: 2 (1/2 + 1/2) a column of them; 2 (1/4 + 1/4) a pair of which one differs
    exact = max(2 * k + k * (40 - k) for k in range(41))
    assert exact <= found <= 1.03 * exact
    assert found <= 0.6 * 4 * residuals.p[1:].sum()


def test_replacing_a_record_is_not_the_root_of_two_times_adding_one():
    """A planted twin: noise for sqrt 2 times the change under add-remove gives less privacy than it says."""
    residuals = Residuals.of([(0, 1)], (2, 2))
    s = np.array([np.inf, np.inf, np.inf, 1.0])  # the pair alone
    added = largest_change(residuals, s, "add-remove")
    assert largest_change(residuals, s, "replace-one") == pytest.approx(4 * added)
    noise = residual_noise(residuals, 0.5, 1e-3, "replace-one", 9.0)
    measured = noise.scale > 0
    divided = np.where(measured, noise.scale**2, np.inf)
    found = math.sqrt(furthest(residuals, divided, "replace-one")) / noise.sigma
    twin = math.sqrt(2 * largest_change(residuals, divided, "add-remove")) / gaussian_mu(0.5, 1e-3)
    assert found <= gaussian_mu(0.5, 1e-3)
    assert math.sqrt(furthest(residuals, divided, "replace-one")) / twin > 1.02 * gaussian_mu(0.5, 1e-3)


def residual_noise(residuals, epsilon, delta, neighbors, total, loss="max"):
    """The Gaussian design, whichever is expected to be better."""
    measured = np.ones(len(residuals.parts.sets), dtype=bool)
    measured[0] = total is None
    one = np.ones(len(residuals.tables.sets))
    s = best_variances(residuals, one, loss, measured)
    noise = MarginalNoise(residuals, "residuals", one, loss, neighbors, np.sqrt(s), 1.0, s, delta)
    return noise.at(gaussian_mu(epsilon, delta), 0.0 if total is not None else 0.02, total)


@pytest.mark.parametrize("loss", ["mean", "max"])
@pytest.mark.parametrize("total", [3.0, 1e6, None])
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("sizes", "workload"), WORKLOADS[1:4])
def test_the_noise_that_is_drawn_is_enough(sizes, workload, neighbors, total, loss):
    """What goes to the source, and the scale it is drawn with, for all pairs of neighbours: the exact Gaussian mu."""
    if neighbors == "replace-one" and total is None:
        return
    residuals = Residuals.of(workload, sizes)
    noise = residual_noise(residuals, 1.0, 1e-6, neighbors, total, loss)

    class Recorder:
        def gaussian(self, values, scale):
            drawn.append(np.asarray(values) / scale)
            return np.asarray(values, dtype=float)

    people, points = [(0,) * len(sizes)] * 3, []
    added = everybody(sizes)
    for person in added if neighbors == "replace-one" else [None, *added]:
        drawn: list[np.ndarray] = []
        noise.run(tables_of(residuals, people + ([person] if person is not None else [])), Recorder())
        points.append(np.concatenate(drawn))
    moved = [np.linalg.norm(p - points[0]) for p in points] + [
        np.linalg.norm(p - q) for p in points for q in points if neighbors == "replace-one"
    ]
    mu = gaussian_mu(1.0, 1e-6)
    assert max(moved) <= mu
    assert max(moved) >= 0.99 * mu


def test_counts_beyond_the_cuts_move_no_further():
    residuals = Residuals.of([(0, 1)], (2, 3))
    noise = residual_noise(residuals, 1.0, 1e-6, "add-remove", 5.0)
    drawn = []

    class Recorder:
        def gaussian(self, values, scale):
            drawn.append(values / scale)
            return values

    for count in (2.0**33, 2.0**33 + 1, 2.0**52, 2.0**53, 2.0**62):
        noise.run(np.array([count, 0, 7, 0, 0, count]), Recorder())
    assert np.linalg.norm(drawn[0] - drawn[1]) <= 2 * gaussian_mu(1.0, 1e-6)
    assert np.isfinite(drawn).all() and np.linalg.norm(drawn[-1] - drawn[-2]) == 0


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize("loss", ["mean", "max"])
def test_laplace_scales_cost_epsilon(neighbors, loss):
    residuals = Residuals.of([(0, 1), (1, 2), (2,)], (2, 3, 7))
    noise = design(residuals, 0.7, 0.0, np.array([1.0, 2.0, 1.0]), loss, neighbors, 10.0)
    assert noise.kind == "marginals" and noise.delta == 0
    finite = noise.scale[np.isfinite(noise.scale)]
    assert finite.size == 2  # (2,) lies in (1, 2)
    cost = (1 if neighbors == "add-remove" else 2) * (1 / finite).sum()
    assert 0.7 * (1 - 1e-9) <= cost <= 0.7


@pytest.mark.parametrize("loss", ["mean", "max"])
@pytest.mark.parametrize("people", [2, 1000])
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_laplace_noise_costs_epsilon_also_where_a_first_total_chooses(neighbors, people, loss):
    """What goes to the source, over the scale it is drawn with, for all pairs of neighbours: the 1-norm is epsilon.

    With few records columns alone are measured, with many the pairs. The first answer is the same for all, as
    neighbours are compared at equal answers. A planted twin does not pay for it: what it moves is more.
    """
    sizes, epsilon = (2, 3, 2, 4), 0.5
    residuals = Residuals.of(itertools.combinations(range(4), 2), sizes)
    total = None if neighbors == "add-remove" else float(people)
    noise = design(residuals, epsilon, 0.0, np.ones(6), loss, neighbors, total)

    class Recorder(SeededSource):
        def discrete_laplace(self, values, scale):
            drawn.append(np.asarray(values) / scale)
            return np.array([people]) if values.size == 1 else values

    everyone, moved = everybody(sizes), {}
    many = [everyone[k % len(everyone)] for k in range(people - 1)]
    for which, drawn_by in {"noise": noise, "twin": dataclasses.replace(noise, scale=0.92 * noise.scale)}.items():
        points = []
        for person in everyone if neighbors == "replace-one" else [None, *everyone]:
            drawn: list[np.ndarray] = []
            released, then = drawn_by.run(tables_of(residuals, many + ([person] if person else [])), Recorder(0))
            points.append(np.concatenate(drawn))
        others = points if neighbors == "replace-one" else points[:1]
        moved[which] = max(np.abs(p - q).sum() for p in points for q in others)
        assert then.alone == (people == 2) and (then.fit(people) == "independent") == then.alone
    assert 0.999 * epsilon <= moved["noise"] <= epsilon
    assert moved["twin"] > epsilon or (then.alone and total is not None)  # whose columns were chosen by design
    if then.alone:
        truth = residuals.residuals_of(tables_of(residuals, [*many, person]).astype(float))
        order = residuals.order[residuals.parts.which]
        np.testing.assert_allclose(released[order == 1], truth[order == 1], atol=1e-9)
        assert released[0] == pytest.approx(people) and not released[order > 1].any()


@pytest.mark.slow
def test_the_variances_stated_for_columns_alone_are_those_drawn():
    """2,000 runs; a normal mean of squares is off by 5 standard errors with probability below 1e-6."""
    residuals = Residuals.of(itertools.combinations(range(4), 2), (2, 3, 2, 4))
    noise = design(residuals, 0.5, 0.0, np.ones(6), "max", "add-remove", None)
    truth = tables_of(residuals, [(0, 0, 0, 0), (1, 2, 1, 3)])
    found = []
    for seed in range(2000):
        released, then = noise.run(truth, SeededSource(seed))
        if then.alone:
            found.append(released - residuals.residuals_of(truth.astype(float)))
    assert len(found) > 1000
    column = residuals.order[residuals.parts.which] == 1
    expected = (then.s * residuals.p)[residuals.parts.which][column]
    ratio = (np.array(found)[:, column] ** 2).mean(axis=0) / expected
    assert np.abs(ratio - 1).max() < 5 * math.sqrt(5 / len(found))  # Laplace squares have variance 5 of their mean's


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize("loss", ["mean", "max"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_columns_of_one_value_take_no_share_of_the_noise(delta, loss, neighbors):
    """They doubled the noise of the others: no record moves their table, or it is the sum of another."""
    if neighbors == "add-remove" and delta:
        return  # the number of records is worth a share then
    total = 100.0 if neighbors == "replace-one" else None
    found = []
    for sizes, workload in (((1, 3, 9), [(0,), (1, 2), (2,)]), ((3, 9), [(0, 1), (1,)])):
        if not delta and sizes[0] == 1:
            workload = [*workload, (0, 2)]
        residuals = Residuals.of(workload, sizes)
        noise = design(residuals, 1.0, delta, np.ones(len(workload)), loss, neighbors, total)
        wide = [k for k, m in enumerate(residuals.tables.sets) if residuals.tables.cells[k] in (9, 27) and m != (0, 2)]
        found.append(noise.deviations[wide])
        assert np.isfinite(noise.deviations).all()
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_marginals_that_no_record_can_change_are_refused():
    residuals = Residuals.of([(0,)], (1,))
    for delta in (0.0, 1e-6):
        with pytest.raises(SpecificationError, match="no record can change"):
            design(residuals, 1.0, delta, np.ones(1), "max", "replace-one", 10.0)
        assert design(residuals, 1.0, delta, np.ones(1), "max", "add-remove", None).deviations[0] > 0


def test_scales_that_cannot_be_drawn_leave_the_gaussian_way():
    """They killed the plan; where none is left, the error names epsilon and weights."""
    residuals = Residuals.of([(0, 1), (1,), (2,)], (2, 3, 5))
    for epsilon, importance in ((1e-14, np.ones(3)), (1e-9, np.array([2.0**20, 1, 2.0**-20]))):
        noise = design(residuals, epsilon, 1e-6, importance, "max", "replace-one", 10.0)
        assert noise.kind == "residuals" and np.isfinite(noise.deviations).all()
        with pytest.raises(SpecificationError, match=r"epsilon = 1e-(?s:.*)weights"):
            design(residuals, epsilon, 0.0, importance, "max", "replace-one", 10.0)


@pytest.mark.parametrize(("total", "epsilon", "kind"), [(2000, 1.0, "marginals"), (2000, 0.05, "residuals")])
def test_the_kind_of_noise_goes_by_what_is_released_of_few_records(total, epsilon, kind):
    """For the mean, records replaced: at .05 Laplace noise was taken, with a mean error of 26 where this has 18."""
    residuals = Residuals.of([(0, 1), (1, 2), (0, 2)], (10, 10, 10))
    assert design(residuals, epsilon, 1e-6, np.ones(3), "mean", "replace-one", total).kind == kind


def test_a_first_number_of_records_is_bought_only_where_it_may_choose():
    residuals = Residuals.of(itertools.combinations(range(12), 2), [5] * 12)
    for epsilon, bought in ((1.0, True), (20.0, False)):
        noise = design(residuals, epsilon, 1e-6, np.ones(66), "max", "add-remove", None)
        assert noise.kind == "residuals" and bool(noise.first) == bought


def test_no_count_is_cut_where_records_are_replaced():
    """A replaced record may move a cut cell alone: 2 in place of 0 in what the two records share. So such tables are
    refused; brackets up to the cut are exact, in three columns too."""
    residuals = Residuals.of([(0, 1, 2), (0,)], (9, 8, 7))
    for delta in (0.0, 1e-6):
        with pytest.raises(SpecificationError, match="counts are cut"):
            design(residuals, 1.0, delta, np.ones(2), "max", "replace-one", residuals.most + 1)
        design(residuals, 1.0, delta, np.ones(2), "max", "replace-one", residuals.most)
    signs = np.einsum("i,j,k->ijk", *([1] * (n - 1) + [-1] for n in (9, 8, 7)))
    table = np.where(signs > 0, residuals.most, 0)
    exact = np.concatenate([table.sum(axis=(1, 2)), table.ravel()]).astype(np.int64)
    found, which = residuals.coordinates(exact)
    last = found[which == len(residuals.parts.sets) - 1][-1]  # the bracket of the last row of every axis
    bracket = sum(
        int(t) * math.prod(-(n - 1) if i == n - 1 else 1 for i, n in zip(at, (9, 8, 7), strict=True))
        for at, t in np.ndenumerate(table)
    )
    assert last == pytest.approx(bracket / math.sqrt(math.prod(n * (n - 1) for n in (9, 8, 7))), rel=1e-12)


# ------------------------------------------------------------------ the geometry
@pytest.mark.parametrize(("sizes", "workload"), WORKLOADS)
def test_coordinates_rebuild_residuals_and_residuals_rebuild_tables(sizes, workload):
    residuals = Residuals.of(workload, sizes)
    people = np.random.default_rng(0).integers(0, sizes, (50, len(sizes)))
    truth = tables_of(residuals, people)
    f, which = residuals.coordinates(truth)
    assert f.size == which.size == residuals.dimension.sum()
    parts = residuals.rebuilt(f)
    np.testing.assert_allclose(parts, residuals.residuals_of(truth.astype(float)), atol=1e-9)
    np.testing.assert_allclose(summed(residuals) @ parts, truth, atol=1e-9)
    np.testing.assert_allclose(residuals.parts.centred(parts.copy()), parts, atol=1e-9)


@pytest.mark.parametrize(("sizes", "workload"), WORKLOADS)
def test_variances_of_cells_are_those_of_dense_algebra(sizes, workload):
    residuals = Residuals.of(workload, sizes)
    s = some_variances(residuals)
    centre = np.array([residuals.parts.centred(row) for row in np.eye(residuals.parts.which.size)])
    covariance = summed(residuals) @ (centre * s[residuals.parts.which]) @ centre.T @ summed(residuals).T
    expected = (residuals.variance @ s)[residuals.tables.which]
    np.testing.assert_allclose(np.diag(covariance), expected, rtol=1e-9)


@pytest.mark.parametrize(("sizes", "workload"), WORKLOADS)
def test_residuals_from_noisy_tables_are_least_squares(sizes, workload):
    residuals = Residuals.of(workload, sizes)
    rng = np.random.default_rng(1)
    noisy, variance = rng.normal(size=residuals.tables.which.size), rng.uniform(1, 4, len(residuals.tables.sets))
    found, s = from_tables(residuals, noisy, variance)
    root = 1 / np.sqrt(variance[residuals.tables.which])
    centre = np.array([residuals.parts.centred(row) for row in np.eye(residuals.parts.which.size)])
    design_matrix = summed(residuals) @ centre
    solved = np.linalg.lstsq(design_matrix * root[:, None], noisy * root, rcond=None)[0]
    np.testing.assert_allclose(design_matrix @ found, design_matrix @ solved, atol=1e-8)
    back = design_matrix @ np.linalg.pinv(design_matrix * root[:, None], rcond=1e-9)
    expected = (back**2).sum(axis=1)
    np.testing.assert_allclose((residuals.variance @ s)[residuals.tables.which], expected, rtol=1e-6)


@pytest.mark.parametrize("total", [True, False])
@pytest.mark.parametrize("loss", ["mean", "max"])
@pytest.mark.parametrize(("sizes", "workload"), WORKLOADS)
def test_variances_are_the_best(sizes, workload, loss, total):
    """Against CVXPY, with unequal importance."""
    residuals = Residuals.of(workload, sizes)
    importance = np.linspace(1, 3, len(residuals.tables.sets))
    measured = np.ones(len(residuals.parts.sets), dtype=bool)
    measured[0] = total
    found = best_variances(residuals, importance, loss, measured)
    at = measured.nonzero()[0]
    assert (residuals.p[at] / found[at]).sum() == pytest.approx(1)
    assert (found[~measured] == 0).all()
    K = (residuals.variance.toarray() * importance[:, None] ** 2)[:, at]
    cells = residuals.tables.cells
    s = cp.Variable(at.size)
    goal = cp.max(K @ s) if loss == "max" else cells @ (K @ s)
    best = cp.Problem(cp.Minimize(goal), [residuals.p[at] @ cp.inv_pos(s) <= 1]).solve(solver=cp.CLARABEL)
    value = (K @ found[at]).max() if loss == "max" else cells @ (K @ found[at])
    assert value <= best * 1.01


# ------------------------------------------------------------------ the fit
def margins(residuals, tables):
    """Column -> its tables, one from every table that has it."""
    out = {}
    for k, m in enumerate(residuals.tables.sets):
        table = tables[residuals.tables.start[k] : residuals.tables.start[k + 1]].reshape(residuals.tables.shape(m))
        for axis, column in enumerate(m):
            rest = tuple(j for j in range(len(m)) if j != axis)
            out.setdefault(column, []).append(table.sum(axis=rest))
    return out


@pytest.mark.parametrize("fit", ["plain", "shrunk", "independent"])
@pytest.mark.parametrize("noise", [0.1, 10.0, 1000.0])
@pytest.mark.parametrize(("sizes", "workload"), WORKLOADS)
def test_fitted_tables_are_non_negative_and_agree(sizes, workload, noise, fit):
    residuals = Residuals.of(workload, sizes)
    rng = np.random.default_rng(2)
    truth = tables_of(residuals, rng.integers(0, sizes, (60, len(sizes)))).astype(float)
    s = some_variances(residuals) * noise**2
    drawn = residuals.parts.centred(rng.normal(size=residuals.parts.which.size) * np.sqrt(s)[residuals.parts.which])
    for total in (None, 60.0):
        tables = fitted_tables(residuals, residuals.residuals_of(truth) + drawn, s, total, fit)
        assert tables.min() >= 0
        for column, each in margins(residuals, tables).items():
            np.testing.assert_allclose(each, [each[0]] * len(each), atol=1e-6, err_msg=str(column))
            if total:
                assert each[0].sum() == pytest.approx(60)
        if noise == 0.1 and fit == "plain":
            assert np.abs(tables - truth).max() < 1.5


def test_pairs_are_the_nearest_ones_with_the_fitted_columns():
    residuals = Residuals.of([(0, 1), (1, 2), (0, 2)], (3, 4, 2))
    rng = np.random.default_rng(4)
    truth = tables_of(residuals, rng.integers(0, (3, 4, 2), (40, 3))).astype(float)
    s = some_variances(residuals) * 9
    noisy = residuals.residuals_of(truth) + residuals.parts.centred(rng.normal(size=residuals.parts.which.size) * 3)
    tables = fitted_tables(residuals, noisy, s, 40.0)
    columns = {column: each[0] for column, each in margins(residuals, tables).items()}
    unbounded = summed(residuals) @ noisy
    for k, m in enumerate(residuals.tables.sets):
        at = slice(residuals.tables.start[k], residuals.tables.start[k + 1])
        table = cp.Variable(residuals.tables.shape(m), nonneg=True)
        part = residuals.parts.place[m]
        own = noisy[residuals.parts.start[part] : residuals.parts.start[part + 1]].reshape(table.shape)
        centred = table - cp.sum(table, 1, keepdims=True) / table.shape[1] @ np.ones((1, table.shape[1]))
        centred -= np.ones((table.shape[0], 1)) @ cp.sum(centred, 0, keepdims=True) / table.shape[0]
        rows = [cp.sum(table, 1) == columns[m[0]], cp.sum(table, 0) == columns[m[1]]]
        best = cp.Problem(cp.Minimize(cp.sum_squares(centred - own)), rows).solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(tables[at].reshape(table.shape), table.value, atol=1e-3, err_msg=str((m, best)))
    assert np.abs(unbounded - tables).max() > 1  # the bounds bind


def test_large_triples_agree_to_the_tolerance():
    residuals = Residuals.of([(0, 1, 2), (1, 2, 3), (0, 3)], (3, 4, 2, 3))
    rng = np.random.default_rng(5)
    truth = tables_of(residuals, rng.integers(0, (3, 4, 2, 3), (200, 4))).astype(float)
    s = np.full(len(residuals.parts.sets), 4.0)
    noisy = residuals.residuals_of(truth) + residuals.parts.centred(rng.normal(size=residuals.parts.which.size) * 2)
    tables = fitted_tables(residuals, noisy, s, None)
    shaped = {
        m: tables[residuals.tables.start[k] : residuals.tables.start[k + 1]].reshape(residuals.tables.shape(m))
        for k, m in enumerate(residuals.tables.sets)
    }
    np.testing.assert_allclose(shaped[0, 1, 2].sum(axis=0), shaped[1, 2, 3].sum(axis=2), atol=0.05)


def test_the_variance_of_what_is_drawn_is_what_is_said():
    """Laplace and Gaussian, by 400 seeded runs; the false alarm rate of a ratio beyond 1.35 is below 1e-6."""
    residuals = Residuals.of([(0, 1), (1, 2)], (3, 2, 4))
    truth = tables_of(residuals, np.random.default_rng(0).integers(0, (3, 2, 4), (500, 3)))
    for noise in (
        residual_noise(residuals, 1.0, 1e-6, "add-remove", 500.0),
        design(residuals, 1.0, 0.0, np.ones(2), "max", "add-remove", None),
    ):
        with pytest.warns(UserWarning):
            source = SeededSource(3)
        exact = residuals.residuals_of(truth.astype(float))
        square = np.zeros(len(residuals.parts.sets))
        for _ in range(400):
            found, drawn_for = noise.run(truth, source)
            s = drawn_for.s
            square += np.bincount(residuals.parts.which, (found - exact) ** 2)
        drawn = s > 0
        ratio = (square / 400)[drawn] / (residuals.dimension * s)[drawn]
        assert (np.abs(ratio - 1) < 0.35).all(), ratio


def test_no_records_have_empty_tables():
    residuals = Residuals.of([(0, 1), (2,)], (2, 3, 1))
    noisy = np.random.default_rng(0).normal(size=residuals.parts.which.size)
    for fit in ("plain", "shrunk", "independent"):
        assert not fitted_tables(residuals, noisy, some_variances(residuals), 0.0, fit).any()


@pytest.mark.parametrize("shape", [(2, 3000), (3000, 2), (40, 60)])
def test_wide_pairs_take_no_system_of_their_longer_side(shape, monkeypatch):
    """3,000 values: a system of rows and columns took 20 s and half a gigabyte; the sums are met as before."""
    rng = np.random.default_rng(1)
    truth = rng.poisson(0.5, (2, *shape)).astype(float)
    rows, columns = truth.sum(axis=2, keepdims=True), truth.sum(axis=1, keepdims=True)
    solved = []
    solve = np.linalg.solve
    monkeypatch.setattr(np.linalg, "solve", lambda a, b: solved.append(a.shape) or solve(a, b))
    found = pinned_fit._nearest(truth + rng.normal(size=truth.shape), rows, columns, truth[0].sum())
    assert {size[-1] for size in solved} == {min(shape)} and found.shape == truth.shape and found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=2, keepdims=True), rows, atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1, keepdims=True), columns, atol=1e-5)
