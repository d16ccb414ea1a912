"""Models in the notation of mathematics: text and HTML of expressions and of whole problems."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.compile.written import model_html, written

x, y = cp.Variable(3, name="x"), cp.Variable(name="y")
M = np.ones((3, 3))
P = dpm.Private(shape=3, name="need", unit="entry", linf=1)
WRITTEN = [
    (cp.sum(x) + 2 * y - 1, "sum(x) + 2 * y - 1"),
    (cp.Variable((2, 2), name="X") >> 0, "X >> 0"),
    (-(x + y), "-(x + y)"),
    (2 * (x + y), "2 * (x + y)"),
    (M @ x <= P, "[...] @ x <= need"),
    (x[0] + x[1:], "x[0] + x[1:]"),
    ((x + P)[1], "(x + need)[1]"),
    (cp.sum_squares(x) / 4, "sum_squares(x) / 4"),
    (cp.quad_over_lin(x, y), "quad_over_lin(x, y)"),
    (cp.norm(x, 2), "norm2(x)"),
    (cp.square(x + y), "(x + y)**2"),
    (cp.sum(cp.Variable((2, 3), name="s"), axis=0), "sum(s, axis=0)"),
    (x >= 1e-7, "1e-7 <= x"),
    (cp.hstack([x, y]), "hstack(x, y)"),
]


@pytest.mark.parametrize(("node", "text"), WRITTEN, ids=[each[1] for each in WRITTEN])
def test_written(node: object, text: str) -> None:
    assert written(node) == text


def test_an_atom_without_a_rule_is_named_and_its_arguments_are_written() -> None:
    unknown = type("Strange", (cp.atoms.elementwise.entr.entr,), {})(x + P)
    assert written(unknown) == "strange(x + need)"


def test_long_sums_are_cut_in_the_middle() -> None:
    many = [cp.Variable(name=f"v{k}") for k in range(500)]
    assert written(cp.sum(cp.hstack(many))) == "sum(hstack(v0, v1, v2, v3, ..., v499))"
    assert written(sum(many[1:], many[0])) == "v0 + v1 + v2 + v3 + ... + v499"


def test_deep_trees_are_cut() -> None:
    deep = x
    for _ in range(60):
        deep = cp.exp(deep) + y
    assert len(written(deep)) < 200 and "..." in written(deep)


def test_a_problem_has_one_line_for_each_constraint_with_its_label() -> None:
    ward = cp.Variable(3, name="ward", nonneg=True)
    problem = dpm.Problem(cp.Maximize(cp.sum(ward)), [(ward <= P).set_label("beds & <b>"), ward <= 5])
    page = model_html(problem)
    assert "<u><b>need</b></u>" in page and "beds &amp; &lt;b&gt;" in page and "<b>beds" not in page
    assert problem._repr_html_() == page


def test_of_very_many_constraints_some_are_shown() -> None:
    problem = dpm.Problem(cp.Minimize(y), [y >= P[k % 3] for k in range(300)])
    assert "276 more" in model_html(problem)


def test_names_are_escaped_where_they_are_private_too() -> None:
    evil = dpm.Private(shape=(), name="<script>", unit="entry", linf=1)
    page = model_html(dpm.Problem(cp.Minimize(y), [y >= evil]))
    assert "<script>" not in page and "<u><b>&lt;script&gt;</b></u>" in page


def test_a_problem_prints_without_words_of_cvxpys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ward = cp.Variable(3, name="ward", nonneg=True)
    text = str(dpm.Problem(cp.Maximize(cp.sum(ward)), [(ward <= P).set_label("beds"), cp.sum(ward) <= 5]))
    assert text.splitlines() == [
        "maximise   sum(ward)",
        "subject to ward <= need   [beds]",
        "           sum(ward) <= 5   [constraint 1]",
        "           ward >= 0",
    ]


def test_declared_bounds_of_variables_are_written() -> None:
    both, above, each = (
        cp.Variable(2, bounds=[0, 9], name="both"),
        cp.Variable(2, bounds=[None, 1.5], name="above"),
        cp.Variable(2, bounds=[[0, 1], [2, 3]], name="each"),
    )
    problem = dpm.Problem(cp.Minimize(cp.sum(both + above + each)))
    assert {"0 <= both <= 9", "above <= 1.5", "[...] <= each <= [...]"} <= {
        line.strip() for line in str(problem).splitlines()
    }
