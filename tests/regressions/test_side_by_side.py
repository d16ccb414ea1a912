"""What simulations compute for many at once is what mechanisms compute for one."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import scipy.sparse as sp
from regressions import regression

from dpmodel._types import PrivateArray
from dpmodel.compile import rows as rows_module
from dpmodel.marks.private import Private
from dpmodel.marks.values import Handed
from dpmodel.marks.vault import unseal
from dpmodel.regressions.mirror_descent import mirror_maps
from dpmodel.regressions.rows import WHOLE, Rows
from dpmodel.regressions.sets import Box, Domain, FreeSpace, L1Ball, L2Ball, Product, Simplex
from dpmodel.regressions.synthetic import each_population, populations_of

BALL = L1Ball(4, 0.7)
DOMAINS: list[Domain] = [FreeSpace(4), BALL, L2Ball(4, 0.7), Box(-np.ones(4) / 2, np.ones(4)), Simplex(4, 0.7)]
DOMAINS += [Simplex(4, 0.7, solid=True), Product(((L1Ball(3, 0.5), 0), (Box(-np.ones(1), np.ones(1)), 3)))]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: f"{domain.kind}-{getattr(domain, 'solid', '')}")
def test_sets(domain: Domain) -> None:
    w = np.random.default_rng(0).normal(size=(50, 4)) * np.linspace(0.01, 2, 50)[:, None]
    np.testing.assert_allclose(domain.projected(w), [domain.project(row) for row in w], atol=1e-14)
    if domain.bounded:
        w[0] = 0
        np.testing.assert_allclose(domain.minimised(w), [domain.minimise(row) for row in w], atol=1e-14)
        values = (domain.minimised(w) * w).sum(axis=1)
        assert (values <= (domain.projected(10 * np.flip(w, axis=0)) * w).sum(axis=1) + 1e-12).all()
    if domain.vertices is not None:
        every = np.arange(domain.vertices)
        np.testing.assert_array_equal(domain.vertex_rows(every), [domain.vertex(k) for k in every])
        np.testing.assert_allclose((domain.minimised(w) * w).sum(axis=1), domain.scores(w).min(axis=1), atol=1e-14)
        np.testing.assert_array_equal(domain.scores(w), [domain.scores(row) for row in w])
        np.testing.assert_allclose(
            domain.scores(w), [[domain.vertex(k) @ row for k in range(domain.vertices)] for row in w], atol=1e-14
        )


@pytest.mark.parametrize("domain", [BALL, Simplex(4, 0.7), Simplex(4, 0.7, solid=True)])
def test_mirror_maps(domain: Domain) -> None:
    """To the accuracy that simulations need: a thousandth of the set's radius."""
    g = np.random.default_rng(0).normal(size=(60, 4)) * np.geomspace(0.01, 100, 60)[:, None]
    for name, each in mirror_maps(domain).items():
        exact = np.array([each.point(row) for row in g])
        np.testing.assert_allclose(each.points(g), exact, atol=7e-4, err_msg=name)


def test_parts_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "_CACHED", 1)
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(700, 3)), rng.normal(size=700)
    rows = Rows(((X, 0),), PrivateArray(rng.normal(size=700)), 3, offset=s, weights=s**2)
    parts, ends = parts_of(rows), [256, 512]
    assert [part.count for part in parts] == [256, 256, 188]
    total = sum(part.combine(cut) for part, cut in zip(parts, np.split(s, ends), strict=True))
    np.testing.assert_allclose(total, rows.combine(s))
    np.testing.assert_array_equal(
        np.concatenate([part.predict(np.ones(3)) for part in parts]), rows.predict(np.ones(3))
    )
    assert np.shares_memory(parts[1].blocks[0][0], X)
    assert [part.first for part in parts] == [0, 256, 512]
    assert len(parts_of(Rows(((sp.csr_array(X), 0),), rows.labels, 3))) == 1
    assert [part.count for part in parts_of(rows, 300)] == [300, 300, 100]
    assert len(parts_of(rows, WHOLE)) == 1


def parts_of(rows: Rows, step: int | None = None) -> tuple[Rows, ...]:
    return rows.map_reduce(lambda part: (part,), operator.add, step)


def test_an_array_that_is_handed_over_is_the_private_value() -> None:
    X = np.asfortranarray([[0.5, 3.0], [-2.0, 0.25]])
    for given, same in ((X.copy(order="F").view(Handed), True), (X, False)):
        entries = unseal(Private(given, name="X", unit="row", bounds=[-1, 1]))
        assert entries is not None and np.shares_memory(entries, given) == same
        np.testing.assert_array_equal(entries, [0.5, -1.0, 1.0, 0.25])  # clipped, column by column
    assert X[0, 1] == 3.0


def test_populations_side_by_side() -> None:
    model = regression(np.zeros((9, 5)), np.zeros(9), "logistic", domain=L2Ball(5, 3.0), lower=0, upper=1)
    together, risks = populations_of(model), each_population(model)
    which = np.array([1, 0, 1])
    w = np.random.default_rng(0).normal(size=(3, 5))
    part = together.at(which)
    np.testing.assert_allclose(
        part.excess(w), [risks[k].excess(x[None])[0] for k, x in zip(which, w, strict=True)], rtol=1e-5
    )
    np.testing.assert_allclose(
        part.gradients(w), [risks[k].gradients(x[None])[0] for k, x in zip(which, w, strict=True)]
    )
