"""Consistent tables: axes in any order, labelled input, known margins, structural zeros, optima against scipy."""

from __future__ import annotations

from typing import ClassVar

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

import dpmodel as dpm
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Gaussian, Laplace
from dpmodel.released.faces.consistent_table import consistent_table, marginal_query
from dpmodel.released.faces.measure import measure
from dpmodel.released.faces.query_release import MOST_CELLS

DOMAIN = {"age": 3, "sex": ["f", "m"], "town": ["A", "B", "C", "D"]}
TRUTH = np.random.default_rng(0).integers(0, 12, (3, 2, 4)).astype(float)


def exact(columns, scale=1.0, distribution=Laplace):
    """A marginal without noise, axes in the order named."""
    names = list(DOMAIN)
    axes = [names.index(c) for c in columns]
    rest = tuple(i for i in range(3) if i not in axes)
    kept = sorted(axes)
    return Noisy(TRUTH.sum(axis=rest).transpose([kept.index(a) for a in axes]), noise=distribution(scale))


def noisy(columns, distribution, seed=0):
    value = exact(columns).value
    return Noisy(value + distribution.sample(value.shape, np.random.default_rng(seed)), noise=distribution)


def least_absolute(parts, known=()):
    """The optimum by scipy's HiGHS: parts and known as (matrix, value, weight)."""
    A, y = np.vstack([m for m, *_ in parts]), np.concatenate([v for _, v, _ in parts])
    w = np.concatenate([np.full(v.size, weight) for _, v, weight in parts])
    k, n = A.shape
    E = np.vstack([np.hstack([m, np.zeros((m.shape[0], k))]) for m, _ in known]) if known else None
    e = np.concatenate([v for _, v in known]) if known else None
    left = np.block([[A, -np.eye(k)], [-A, -np.eye(k)]])
    return linprog(np.r_[np.zeros(n), w], left, np.r_[y, -y], E, e, [(0, None)] * (n + k)).fun


def summing(columns):
    """(cells, 24) matrix of a marginal, in the order of the domain, by brute force."""
    at = [list(DOMAIN).index(c) for c in columns]
    sizes = [TRUTH.shape[a] for a in at]
    out = np.zeros((int(np.prod(sizes)), TRUTH.size))
    for j, cell in enumerate(np.ndindex(TRUTH.shape)):
        out[np.ravel_multi_index([cell[a] for a in at], sizes) if at else 0, j] = 1
    return out


def test_axes_in_any_order_flat_and_labelled_input_say_the_same():
    frame = pd.DataFrame(
        [(a, s, TRUTH[a, "fm".index(s)].sum()) for s in "mf" for a in (2, 0, 1)], columns=["age", "sex", "n"]
    ).set_index(["sex", "age"])["n"]
    wide = frame.unstack("age")

    class Xarray:
        """As much of an xarray DataArray as is looked at."""

        dims = ("sex", "age")
        coords: ClassVar = {"sex": np.array(["m", "f"]), "age": np.array([1, 0, 2])}
        values = TRUTH.sum(2).T[[1, 0]][:, [1, 0, 2]]
        shape = values.shape

        def __array__(self, dtype=None, copy=None):
            return np.array(self.values, dtype=dtype)

    distribution = Laplace(1.0)
    spellings = {
        "in order": {("age", "sex"): exact(("age", "sex"))},
        "transposed": {("sex", "age"): exact(("sex", "age"))},
        "flat": {("age", "sex"): Noisy(TRUTH.sum(2).ravel(), noise=distribution)},
        "flat, transposed": {("sex", "age"): Noisy(TRUTH.sum(2).T.ravel(), noise=distribution)},
        "series": {("age", "sex"): Noisy(frame, noise=distribution)},
        "series, listed": [Noisy(frame, noise=distribution)],
        "frame": {("age", "sex"): Noisy(wide, noise=distribution)},
        "frame, listed": [Noisy(wide, noise=distribution)],
        "frame without names": {("sex", "age"): Noisy(pd.DataFrame(TRUTH.sum(2).T), noise=distribution)},
        "xarray": [Noisy(Xarray(), noise=distribution)],
    }
    for name, measured in spellings.items():
        fit = consistent_table(measured, domain=DOMAIN)
        np.testing.assert_array_equal(fit.model.measurements[0].value, TRUTH.sum(2).ravel(), err_msg=name)
        np.testing.assert_array_equal(fit.model.form.matrix.toarray(), summing(("age", "sex")), err_msg=name)


@pytest.mark.parametrize("named", ["rows", "columns", "both"])
def test_an_axis_with_a_name_is_called_by_it(named):
    """Categories of two columns may be the same words: neither they nor places tell which is which."""
    yes = ["no", "yes"]
    frame = pd.DataFrame([[5.0, 1.0], [7.0, 2.0]], index=yes, columns=yes)
    frame.index.name = "age" if named != "columns" else None
    frame.columns.name = "sex" if named != "rows" else None
    for columns in (("age", "sex"), ("sex", "age")):
        fit = consistent_table({columns: Noisy(frame, noise=Gaussian(1))}, domain={"sex": yes, "age": yes})
        fit.solve()
        np.testing.assert_allclose(fit.marginal(("sex", "age")).values, [[5, 7], [1, 2]], atol=1e-6)
    with pytest.raises(SpecificationError, match="an axis called"):
        consistent_table(
            {("sex", "old"): Noisy(frame.rename_axis("age"), noise=Gaussian(1))}, domain={"sex": yes, "old": yes}
        )


def test_scales_move_with_their_cells():
    scale = np.arange(1.0, 7).reshape(2, 3)
    measured = {("sex", "age"): Noisy(np.zeros((2, 3)), noise=Laplace(scale))}
    fit = consistent_table(measured, domain=DOMAIN, form="likelihood")
    np.testing.assert_allclose(fit.model.form.absolute, 1 / scale.T.ravel())
    np.testing.assert_array_equal(fit.model.measurements[0].scale, scale.T.ravel())


def test_labelled_cells_may_be_left_out():
    part = pd.Series([5.0, 2.0], index=pd.MultiIndex.from_tuples([("m", 2), ("f", 0)], names=["sex", "age"]))
    fit = consistent_table([Noisy(part, noise=Laplace(np.array([1.0, 2.0])))], domain=DOMAIN, form="likelihood")
    np.testing.assert_array_equal(fit.model.form.matrix.toarray(), summing(("age", "sex"))[[0, 5]])
    np.testing.assert_array_equal(fit.model.form.value, [2, 5])
    np.testing.assert_array_equal(fit.model.form.absolute, [0.5, 1])


@pytest.mark.parametrize("over", ["domain", "marginals"])
def test_optimum_of_overlapping_marginals(over):
    first, second = noisy(("age", "sex"), Laplace(2.0), 1), noisy(("town", "sex"), Laplace(0.5), 2)
    again = noisy(("sex",), Laplace(1.0), 3)
    fit = consistent_table(
        {("age", "sex"): first, ("town", "sex"): second, "sex": [again, noisy(("sex",), Laplace(4.0), 4)]},
        domain=DOMAIN,
        known={(): TRUTH.sum()},
        over=over,
        form="likelihood",
    )
    release = fit.solve()
    assert fit.over == over
    parts = [
        (summing(("age", "sex")), first.value.ravel(), 0.5),
        (summing(("sex", "town")), second.value.T.ravel(), 2.0),
        (summing(("sex",)), again.value, 1.0),
        (summing(("sex",)), noisy(("sex",), Laplace(4.0), 4).value, 0.25),
    ]
    # A decomposable set of marginals: both ways to write x have the same optimum.
    assert release.value == pytest.approx(least_absolute(parts, [(summing(()), [TRUTH.sum()])]), rel=1e-4)
    sex = fit.marginal("sex")
    assert sex.columns == ("sex",)
    assert sex.categories == (("f", "m"),)
    for columns in (("age", "sex"), ("sex", "town")):
        assert fit.marginal(columns).values.min() >= -1e-9
        axis = fit.marginal(columns).columns.index("sex")
        np.testing.assert_allclose(fit.marginal(columns).values.sum(axis=1 - axis), sex.values, atol=1e-5)
    assert fit.marginal(()).values == pytest.approx(TRUTH.sum())


def test_mixed_laws_against_cvxpy():
    measured = {("age", "sex"): noisy(("age", "sex"), Laplace(2.0)), "town": noisy(("town",), Gaussian(1.5))}
    fit = consistent_table(measured, domain=DOMAIN, alpha=0.8)
    problem = fit.problem()
    cp.Problem(problem.objective, problem.constraints).solve(solver=cp.CLARABEL)
    assert fit.solve().value == pytest.approx(problem.objective.value, rel=1e-4)


def test_known_margins_structural_zeros_and_bounds_hold():
    measured = {tuple(DOMAIN): noisy(tuple(DOMAIN), Laplace(3.0))}
    truth = TRUTH.copy()
    truth[0, 1] = 0
    fit = consistent_table(
        measured,
        domain=DOMAIN,
        known={("age", "sex"): truth.sum(2), ("town", "sex"): truth.sum(0).T},
        structural_zeros=[{"age": 0, "sex": "m"}],
        bounds=(0, 30),
    )
    assert fit.model.shape == (3, 2, 4)
    fit.solve()
    np.testing.assert_allclose(fit.marginal(("age", "sex")).values, truth.sum(2), atol=1e-5)
    np.testing.assert_allclose(fit.marginal(("sex", "town")).values, truth.sum(0), atol=1e-5)
    np.testing.assert_allclose(fit.table.values[0, 1], 0, atol=1e-7)
    mask = np.zeros(TRUTH.shape, dtype=bool)
    mask[0, 1] = True
    other = consistent_table(measured, domain=DOMAIN, structural_zeros=mask)
    np.testing.assert_array_equal((other.model.form.upper == 0).reshape(TRUTH.shape), mask)
    several = consistent_table(measured, domain=DOMAIN, structural_zeros={"age": [0, 2], "town": ["A", "D"]})
    assert (several.model.form.upper == 0).sum() == 8


def test_partly_known_margins():
    known = pd.Series([7.0], index=pd.Index(["C"], name="town"))
    fit = consistent_table({tuple(DOMAIN): exact(tuple(DOMAIN))}, domain=DOMAIN, known={"town": known})
    fit.solve()
    assert fit.marginal("town").values[2] == pytest.approx(7)


def test_large_domains_are_tables_of_marginals():
    domain = {f"c{i}": 10 for i in range(8)}
    rng = np.random.default_rng(0)
    measured = {(f"c{i}", f"c{i + 1}"): Noisy(rng.poisson(5, (10, 10)), noise=Laplace(1.0)) for i in range(7)}
    fit = consistent_table(measured, domain=domain, structural_zeros=[{"c0": 3, "c1": 4}])
    assert MOST_CELLS < 10**8
    assert fit.over == "marginals"
    fit.solve()
    assert fit.marginal(("c0", "c1")).values[3, 4] == pytest.approx(0, abs=1e-8)
    with pytest.raises(SpecificationError, match="no fitted table"):
        fit.marginal(("c0", "c5"))


def test_measure_marginals_of_a_private_table():
    people = dpm.Records("people", "add-remove")
    for shape in (TRUTH.shape, (TRUTH.size,)):
        private = dpm.Private(TRUTH.reshape(shape), name="table", unit="all", l1=1, l2=1, linf=1, records=people)
        query = marginal_query(private, ("sex", "age"), domain=DOMAIN)
        answers = measure(query, 100.0, rng=1)
        assert answers.scale.max() == pytest.approx(0.01, rel=0.01)
        np.testing.assert_allclose(answers.value, TRUTH.sum(2).ravel(), atol=0.2)


def test_series():
    fit = consistent_table({tuple(DOMAIN): exact(tuple(DOMAIN))}, domain=DOMAIN)
    named = fit.solve().to_frame("age x sex x town").set_index(list(DOMAIN))["value"]
    assert named.loc[(1, "m", "C")] == pytest.approx(TRUTH[1, 1, 2])
    series = fit.to_series(("town", "age"))
    assert series.index.names == ["age", "town"]
    assert series.loc[(1, "C")] == pytest.approx(TRUTH[1, :, 2].sum())
    assert fit.to_series("sex")["m"] == pytest.approx(TRUTH[:, 1].sum())
    assert fit.to_series().size == 24
    assert fit.to_series(()).iloc[0] == pytest.approx(TRUTH.sum())


@pytest.mark.parametrize("how", ["unbiased", "controlled", "nearest"])
def test_rounding_keeps_known_margins(how):
    measured = {tuple(DOMAIN): noisy(tuple(DOMAIN), Gaussian(3.0))}
    fit = consistent_table(measured, domain=DOMAIN, known={"town": TRUTH.sum((0, 1))})
    fit.solve(round=how, rng=2)
    np.testing.assert_array_equal(fit.x, np.rint(fit.x))
    np.testing.assert_array_equal(fit.marginal("town").values, TRUTH.sum((0, 1)))


ONE = {"sex": Noisy([1.0, 2.0], noise=Laplace(1.0))}
BIG = dict.fromkeys("abcdefgh", 10)
WRONG = {
    "nothing": ({}, {}),
    "no distribution": ({"sex": [1.0, 2.0]}, {}),
    "no names": ([Noisy([1.0, 2.0], noise=Laplace(1.0))], {}),
    "no domain": (ONE, {"domain": None}),
    "column": ({"height": ONE["sex"]}, {}),
    "column twice": ({("sex", "sex"): ONE["sex"]}, {}),
    "size": ({"age": ONE["sex"]}, {}),
    "label": ({"sex": Noisy(pd.Series([1.0, 2], index=pd.Index(["f", "x"], name="sex")), noise=Laplace(1))}, {}),
    "label twice": ({"sex": Noisy(pd.Series([1.0, 2], index=pd.Index(["f", "f"], name="sex")), noise=Laplace(1))}, {}),
    "known column": (ONE, {"known": {"height": [1]}}),
    "known size": (ONE, {"known": {"age": [1, 2]}}),
    "known noisy": (ONE, {"known": {"sex": ONE["sex"]}}),
    "known twice": (ONE, {"known": {("age", "sex"): np.ones((3, 2)), ("sex", "age"): np.ones((2, 3))}}),
    "over": (ONE, {"over": "everything"}),
    "over too many": ({"a": Noisy(np.ones(10), noise=Laplace(1))}, {"over": "domain", "domain": BIG}),
    "mask shape": (ONE, {"structural_zeros": np.zeros((2, 3), dtype=bool)}),
    "mask over marginals": (ONE, {"structural_zeros": np.zeros((3, 2, 4), dtype=bool), "over": "marginals"}),
    "rule column": (ONE, {"structural_zeros": [{"height": 1}]}),
    "rule value": (ONE, {"structural_zeros": [{"sex": "x"}]}),
    "rule without table": (ONE, {"structural_zeros": [{"age": 1}], "over": "marginals"}),
    "no rule": (ONE, {"structural_zeros": ["f"]}),
    "bounds over marginals": (ONE, {"bounds": (0, 1), "over": "marginals"}),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_input_is_refused(what):
    measured, options = WRONG[what]
    with pytest.raises(SpecificationError):
        consistent_table(measured, **{"domain": DOMAIN, **options})


def test_a_publication_enters_once_and_with_one_distribution():
    values, domain = np.arange(6.0).reshape(2, 3) + 0.5, {"a": 2, "b": 3}
    first = Noisy(values, noise=Laplace(1.0))
    with pytest.raises(SpecificationError, match="twice"):
        consistent_table({("a", "b"): [first, first]}, domain=domain)
    with pytest.raises(SpecificationError, match="two distributions"):
        consistent_table({("a", "b"): [first, Noisy(values, noise=Gaussian(1.0))]}, domain=domain)


CONTRADICTIONS = {
    r"the total \(margin total\) is known to be 10, but by sex it is 9": {"known": {(): 10, "sex": [4, 5]}},
    r"sex=m \(margin age x sex\) is known to be 3, but by sex it is 5": {
        "known": {("age", "sex"): np.ones((3, 2)), "sex": [3, 5]}
    },
    "sex=f is known to be -1": {"known": {"sex": [-1, 5]}},
    "sex=f is known to be 13, but its cells can sum to at most 12": {"known": {"sex": [13, 5]}, "bounds": (0, 1)},
    "sex=m is known to be 5, but its cells can sum to 0": {"known": {"sex": [4, 5]}, "structural_zeros": {"sex": "m"}},
}


@pytest.mark.parametrize("said", CONTRADICTIONS)
def test_contradictions_name_both_numbers(said):
    with pytest.raises(InfeasibleError, match=said):
        consistent_table(ONE, domain=DOMAIN, **CONTRADICTIONS[said])


def test_contradictions_that_only_the_solver_sees():
    """Three known two-way margins that agree pairwise, of no table at all."""
    domain = dict.fromkeys("abc", 2)
    same, other = np.eye(2), 1 - np.eye(2)
    fit = consistent_table(
        {"a": Noisy([1.0, 1.0], noise=Laplace(1.0))},
        domain=domain,
        known={("a", "b"): same, ("b", "c"): same, ("a", "c"): other},
    )
    with pytest.raises(InfeasibleError):
        fit.solve()


# ------------------------------------------------------------------ rounding
def crossed(**options):
    measured = {m: noisy(m, Laplace(2.0)) for m in (("age", "sex"), ("sex", "town"))}
    fit = consistent_table(measured, domain=DOMAIN, form="least-squares", **options)
    fit.solve()
    return fit


@pytest.mark.parametrize("total", [30.5, 30.0])
@pytest.mark.parametrize("over", ["domain", "marginals"])
def test_remedies_of_rounding_are_none_that_fail_as_well(total, over):
    """What a refusal advises is done, as long as it advises another rounding."""
    fit = crossed(known={(): total}, over=over)
    try:
        fit.solve(round="unbiased")
        assert total == 30.0
    except dpm.errors.SpecificationError as error:
        assert "how=" not in str(error)
        if "round='controlled'" not in error.remedy:
            assert total == 30.5
            return
        x = fit.solve(round="controlled") and fit.x
        np.testing.assert_array_equal(x, np.rint(x))


@pytest.mark.parametrize("how", ["unbiased", "controlled", "nearest"])
def test_plans_count_the_rounding(how):
    lines = crossed(known={(): 30.0}).plan(round=how).lower_bounds
    assert any(line.startswith(f"rounding ({how})") for line in lines)
    with pytest.raises(dpm.errors.SpecificationError, match="round="):
        crossed().plan(round="up")


@pytest.mark.parametrize("over", ["domain", "marginals"])
def test_releases_say_what_agrees_with_what(over):
    notes = crossed(over=over).release.notes
    said = [note for note in notes if "agree on the columns they share and on nothing else" in note]
    assert len(said) == (over == "marginals")
    assert all("age x sex" in note and "sex x town" in note for note in said)
