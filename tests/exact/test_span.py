"""``linalg.span``: what it finds, tells, charges, refuses and keeps to itself."""

from __future__ import annotations

import functools
import json
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.errors import DPModelError, SpecificationError, UnsupportedModelError
from dpmodel.exact.fields import GF, QQ
from dpmodel.exact.inputs import sealed, vectors_model
from dpmodel.linalg import span as _span
from dpmodel.privacy import Budget

span = functools.partial(_span, neighbors="add-remove")  # unless a test says otherwise

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")


def planted(field, seed=0, n=600, d=5, rank=3):
    generator = np.random.default_rng(seed)
    top = 7 if field.order is None else field.order
    basis = generator.integers(0, top, size=(rank, d))
    return field.exact_rows(field.matmul(generator.integers(0, top, size=(n, rank)), basis))


def private_span(vectors, **more):
    return span(vectors, **({"field": GF(7), "epsilon": 1.0, "delta": 1e-6, "rng": 0} | more))


@pytest.mark.parametrize(
    ("field", "neighbors"),
    [(QQ, "replace-one"), (GF(2), "add-remove"), (GF(7), "replace-one"), (GF(256), "add-remove")],
)
def test_the_span_of_planted_vectors(field, neighbors):
    rows = planted(field)
    found = private_span(rows, field=field, neighbors=neighbors)
    assert found.basis == field.echelon(rows)
    assert found.found and found.dimension == found.basis.dimension
    assert found.contains(rows).all()
    assert found.mechanism == "stable-span"
    assert (found.guarantee.epsilon, found.guarantee.delta, found.guarantee.neighbors) == (1.0, 1e-6, neighbors)
    assert found.accuracy.proved and found.accuracy.alpha == 0.0 and found.accuracy.slack_rows > 0
    if neighbors == "add-remove":
        assert found.accuracy.slack_rows < 300


def test_floats_need_a_grid_and_are_asked_about_on_it():
    rows = planted(QQ) / 10
    with pytest.raises(SpecificationError, match="grid"):
        private_span(rows, field=QQ)
    found = private_span(rows, field=QQ, grid="0.1")
    assert found.basis == QQ.echelon(planted(QQ))
    assert found.contains(rows[:5]).all()
    assert not found.contains(np.array([[0.1, 0, 0, 0, 0]])).any()


def test_other_shapes_of_data():
    rows = planted(GF(7))
    for shape in (rows.tolist(), sp.csr_array(rows), rows.astype(object), rows - 7):
        assert private_span(shape).basis == GF(7).echelon(rows)
    thirds = [[Fraction(int(x), 3) for x in row] for row in planted(QQ, n=600)]
    assert private_span(thirds, field=QQ).basis == QQ.echelon(planted(QQ, n=600))


def test_result_prints_and_is_plain_data():
    found = private_span(planted(GF(7)))
    text = " ".join(str(found).split())
    for words in ("stable-span", "subspace of GF(7)^5", "epsilon = 1", "NOT PRIVATE", "are missed", "one vector"):
        assert words in text
    data = json.loads(json.dumps(found.to_dict()))
    assert data["dimension"] == 3 and data["basis"]["field"] == "GF(7)"
    assert "Subspace" in repr(found)
    assert "stable-span" in str(found.plan)


def test_few_vectors_give_nothing_under_add_remove():
    found = private_span(planted(GF(7), n=4))
    assert not found.found
    assert found.dimension == 0
    assert not found.contains([[1, 0, 0, 0, 0]]).any() and found.contains([[0, 0, 0, 0, 0]]).all()
    assert private_span(np.zeros((0, 5), dtype=int)).dimension == 0  # their number is private


def test_too_few_public_records_are_refused_with_the_number_needed():
    with pytest.raises(UnsupportedModelError, match=r"too few records.* 40, and at least \d+ are needed"):
        private_span(planted(GF(7), n=40), neighbors="replace-one", budget=(budget := Budget(1.0, 1e-6)))
    assert budget.spent == (0.0, 0.0)
    assert not private_span(planted(GF(7), n=40), neighbors="replace-one", mechanism="stable-span").found


def test_rank_and_corrupted_are_heard():
    rows = planted(GF(7))
    assert private_span(rows, rank=3).accuracy.slack_rows < private_span(rows).accuracy.slack_rows
    generator = np.random.default_rng(1)
    rows = planted(GF(7), n=2_000)
    wrong = generator.random(2_000) < 0.02
    rows[wrong] = generator.integers(0, 7, size=(wrong.sum(), 5))
    clean = GF(7).echelon(rows[~wrong])
    assert private_span(rows).dimension == 5
    assert private_span(rows, corrupted=0.03, mechanism="stable-span", expected=2_000).basis == clean


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"field": 7}, r"GF\(7\)"),
        ({"field": "QQ"}, "field=QQ"),
        ({"field": None}, "no field"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -1e-9}, "delta"),
        ({"beta": 0}, "beta"),
        ({"beta": True}, "beta"),
        ({"rank": 0}, "rank"),
        ({"rank": 6}, "rank"),
        ({"rank": 2.0}, "rank"),
        ({"neighbors": "swap"}, "neighbors"),
        ({"expected": 0}, "expected"),
        ({"corrupted": 1.0}, "corrupted"),
        ({"corrupted": "x"}, "corrupted"),
        ({"budget": 3}, "budget"),
        ({"mechanism": "no-such"}, "no such mechanism"),
        ({"mechanism": "laplace-once"}, "laplace-once"),
        ({"grid": "0.1"}, "grid"),
        ({"rng": "seed"}, "rng"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(DPModelError, match=words):
        private_span(planted(GF(7)), **arguments)


def test_public_emptiness_is_refused():
    with pytest.raises(SpecificationError, match="empty"):
        private_span(np.zeros((0, 3), dtype=int), neighbors="replace-one")


def test_private_values_stay_inside():
    given = planted(GF(256))
    rows, read = given.copy(), sealed(given.copy())
    public = {"neighbors": "add-remove", "rank": None, "corrupted": None, "expected": None}
    model = vectors_model(GF(256), rows.shape, read, task="span", where="span", **public)
    given[:] = 0
    assert (model.read_rows() == rows).all()
    assert not model.read_rows().flags.writeable
    assert "array" not in repr(model) and "lambda" not in repr(model)
    with pytest.raises(SpecificationError) as caught:
        private_span([["31337.5x", 1]], field=QQ)
    assert "31337" not in str(caught.value)


def test_progress_is_told_in_public_words():
    stages = []
    private_span(planted(GF(7)), progress=lambda stage, done: stages.append((stage, done)))
    assert [stage for stage, _ in stages][-1] == "done"
    words = [stage.partition(" (epsilon 1, delta ")[0] for stage, _ in stages]
    assert all(not any(c.isdigit() for c in stage) for stage in words)
