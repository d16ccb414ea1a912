"""Structural zeros: the cells they leave are counted, and nested columns are one table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.marks.domain import Domain
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Laplace
from dpmodel.released.faces import consistent_table as tables
from dpmodel.released.faces import workload
from dpmodel.released.faces.consistent_table import consistent_table
from dpmodel.released.faces.workload import allowed_cells


def random_rules(rng, sizes):
    rules = []
    for _ in range(int(rng.integers(0, 6))):
        columns = rng.permutation(list(sizes))[: int(rng.integers(1, len(sizes) + 1))]
        rules.append({str(c): [int(v) for v in np.flatnonzero(rng.random(sizes[c]) < 0.6)] for c in columns})
    return [rule for rule in rules if all(rule.values())]


@pytest.mark.parametrize("seed", range(10))
def test_allowed_cells_are_those_that_no_rule_speaks_of(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    sizes = {c: int(rng.integers(1, 5)) for c in rng.permutation(list("abcd"))}
    rules = random_rules(rng, sizes)
    codes = itertools.product(*map(range, sizes.values()))
    left = [c for c in codes if not any(all(c[list(sizes).index(k)] in v for k, v in rule.items()) for rule in rules)]
    domain = Domain.of(sizes)
    found = allowed_cells(rules, domain, len(left))
    assert list(map(tuple, found.tolist())) == left
    mask = np.ones(domain.sizes, dtype=bool)
    mask[tuple(found.T)] = False
    np.testing.assert_array_equal(allowed_cells(mask, domain, len(left)), found)
    if left:
        assert allowed_cells(rules, domain, len(left) - 1) is None
    monkeypatch.setattr(workload, "_LOOKED_AT", 0)
    assert allowed_cells(rules, domain, domain.cells) is None


def nested(rng):
    """Regions, districts and blocks in a random nesting, crossed with sex, columns in any order: sizes, the parent of
    every district and block, rules, a truth over all cells."""
    regions, districts = 2, int(rng.integers(3, 5))
    blocks = districts + int(rng.integers(1, 4))
    region_of = np.r_[np.arange(regions), rng.integers(0, regions, districts - regions)]
    district_of = np.r_[np.arange(districts), rng.integers(0, districts, blocks - districts)]
    sizes = {"region": regions, "district": districts, "block": blocks, "sex": 2}
    sizes = {c: sizes[c] for c in rng.permutation(list(sizes)).tolist()}
    rules = [
        {inner: i, outer: [o for o in range(sizes[outer]) if o != parent]}
        for inner, outer, of in (("district", "region", region_of), ("block", "district", district_of))
        for i, parent in enumerate(of.tolist())
    ]
    truth = np.zeros(tuple(sizes.values()))
    for block in range(blocks):
        district = district_of[block]
        for sex in range(2):
            at = {"region": region_of[district], "district": district, "block": block, "sex": sex}
            truth[tuple(at[c] for c in sizes)] = rng.integers(0, 9)
    return sizes, region_of, district_of, rules, truth


def measured_from(rng, sizes, truth, marginals):
    out = {}
    for marginal in marginals:
        value = truth.sum(tuple(i for i, c in enumerate(sizes) if c not in marginal))
        ordered = tuple(c for c in sizes if c in marginal)
        out[ordered] = Noisy(value + rng.laplace(0, 2, value.shape), noise=Laplace(2.0))
    return out


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("round", [None, "controlled"])
def test_nested_columns_are_one_table_whose_levels_agree(seed, round, monkeypatch):
    rng = np.random.default_rng(seed)
    sizes, region_of, district_of, rules, truth = nested(rng)
    marginals = [("region",), ("district",), ("block",), ("district", "sex"), ("block", "sex"), ()]
    measured = measured_from(rng, sizes, truth, marginals)
    options = {
        "domain": sizes,
        "structural_zeros": rules,
        "form": "least-squares",
        "known": {"sex": truth.sum(tuple(i for i, c in enumerate(sizes) if c != "sex"))},
        "bounds": (np.zeros(truth.shape), np.where(truth > 0, np.inf, 50.0)),
    }
    whole = consistent_table(measured, **options)
    allowed = 2 * district_of.size
    monkeypatch.setattr(tables, "MOST_CELLS", allowed)
    fit = consistent_table(measured, **options)
    assert (fit.over, fit.tables.size) == ("domain", allowed)
    release = fit.solve(round=round)
    assert any(f"{allowed} cells" in note and "all its marginals agree" in note for note in release.notes)
    block, district, region = (fit.marginal(c).values for c in ("block", "district", "region"))
    np.testing.assert_allclose(np.bincount(district_of, block, sizes["district"]), district, atol=1e-9)
    np.testing.assert_allclose(np.bincount(region_of, district, sizes["region"]), region, atol=1e-9)
    np.testing.assert_allclose(fit.marginal("sex").values, options["known"]["sex"], atol=1e-5)
    series = fit.to_series()
    assert series.size == allowed
    by_hand = {tuple(fit.tables.cells[i]): v for i, v in enumerate(fit.x)}
    assert series.to_dict() == pytest.approx(by_hand)
    if round is None:  # the same as over all cells with the structural zeros held at zero
        whole.solve()
        for marginal in marginals[:-1]:
            np.testing.assert_allclose(fit.marginal(marginal).values, whole.marginal(marginal).values, atol=2e-3)
        errors = dpm.released.standard_errors(fit, "district", repetitions=3)
        assert errors.shape == (sizes["district"],) and (errors > 0).all()


def test_cells_are_counted_where_the_domain_is_too_large():
    """What remains of 10^12 cells are 10, or too many."""
    sizes = dict.fromkeys("abcdefghijkl", 10)
    chain = [{p: i, q: [j for j in range(10) if j != i]} for p, q in itertools.pairwise(sizes) for i in range(10)]
    measured = {("a",): Noisy(np.arange(10.0), noise=Laplace(1.0)), ("l",): Noisy(np.ones(10), noise=Laplace(1.0))}
    fit = consistent_table(measured, domain=sizes, structural_zeros=chain)
    assert (fit.over, fit.tables.size) == ("domain", 10)
    fit.solve()
    np.testing.assert_allclose(fit.marginal("a").values, fit.marginal(("g",)).values)
    with pytest.raises(dpm.errors.SpecificationError, match="to_series"):
        _ = fit.table
    pairs = {("a", "b"): Noisy(np.ones((10, 10)), noise=Laplace(1.0))}
    assert consistent_table(pairs, domain=sizes, structural_zeros=chain[:10]).over == "marginals"
    with pytest.raises(dpm.errors.SpecificationError, match="more structural zeros"):
        consistent_table(pairs, domain=sizes, structural_zeros=chain[:10], over="domain")
    nothing = [{"a": list(range(10))}]
    with pytest.raises(dpm.errors.InfeasibleError, match="no cell"):
        consistent_table(pairs, domain=sizes, structural_zeros=nothing)
