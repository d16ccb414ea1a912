"""Models in the notation of mathematics: text, LaTeX and HTML of expressions and of whole problems."""

from __future__ import annotations

import re
import string

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.compile.written import LATEX, latex_words, model_html, model_latex, written

x, y = cp.Variable(3, name="x"), cp.Variable(name="y")
M = np.ones((3, 3))
P = dpm.Private(shape=3, name="need", unit="entry", linf=1)
WRITTEN = [
    (cp.sum(x) + 2 * y - 1, "sum(x) + 2 * y - 1", r"\sum x + 2\, y - 1"),
    (cp.Variable((2, 2), name="X") >> 0, "X >> 0", r"X \succeq 0"),
    (-(x + y), "-(x + y)", r"-\left(x + y\right)"),
    (2 * (x + y), "2 * (x + y)", r"2\, \left(x + y\right)"),
    (M @ x <= P, "[...] @ x <= need", r"\left[3\times 3\right]\, x \le \underline{\text{need}}"),
    (x[0] + x[1:], "x[0] + x[1:]", "x_{0} + x_{1:}"),
    ((x + P)[1], "(x + need)[1]", r"\left(x + \underline{\text{need}}\right)_{1}"),
    (cp.sum_squares(x) / 4, "sum_squares(x) / 4", r"\frac{\left\lVert x \right\rVert_2^2}{4}"),
    (cp.quad_over_lin(x, y), "quad_over_lin(x, y)", r"\frac{\left\lVert x \right\rVert_2^2}{y}"),
    (cp.norm(x, 2), "norm2(x)", r"\left\lVert x \right\rVert_{2}"),
    (cp.square(x + y), "(x + y)**2", r"\left(x + y\right)^{2}"),
    (cp.sum(cp.Variable((2, 3), name="s"), axis=0), "sum(s, axis=0)", r"\sum_{\text{axis 0}} s"),
    (x >= 1e-7, "1e-7 <= x", r"1 \cdot 10^{-7} \le x"),
    (cp.hstack([x, y]), "hstack(x, y)", r"\left[x, y\right]"),
]


@pytest.mark.parametrize(("node", "text", "latex"), WRITTEN, ids=[each[1] for each in WRITTEN])
def test_written(node: object, text: str, latex: str) -> None:
    assert written(node) == text and written(node, LATEX) == latex


def test_an_atom_without_a_rule_is_named_and_its_arguments_are_written() -> None:
    unknown = type("Strange", (cp.atoms.elementwise.entr.entr,), {})(x + P)
    assert written(unknown) == "strange(x + need)"
    assert written(unknown, LATEX) == r"\text{strange}\left(x + \underline{\text{need}}\right)"


def test_long_sums_are_cut_in_the_middle() -> None:
    many = [cp.Variable(name=f"v{k}") for k in range(500)]
    assert written(cp.sum(cp.hstack(many))) == "sum(hstack(v0, v1, v2, v3, ..., v499))"
    assert written(sum(many[1:], many[0])) == "v0 + v1 + v2 + v3 + ... + v499"


def test_deep_trees_are_cut() -> None:
    deep = x
    for _ in range(60):
        deep = cp.exp(deep) + y
    assert len(written(deep)) < 200 and "..." in written(deep)


def test_words_hold_no_commands() -> None:
    assert latex_words(r"a_b\c{d}$") == r"\text{a}\_\text{b}\backslash \text{c}\{\text{d}\}\$"


def test_a_problem_has_one_line_for_each_constraint_with_its_label() -> None:
    ward = cp.Variable(3, name="ward", nonneg=True)
    problem = dpm.Problem(cp.Maximize(cp.sum(ward)), [(ward <= P).set_label("beds & <b>"), ward <= 5])
    told = model_latex(problem).split("\\\\\n")
    assert len(told) == 4 and "maximise" in told[0] and r"\ge 0" in told[3]
    assert r"\underline{\text{need}}" in told[1] and r"\text{beds }\&\text{ } < \text{b} > " in told[1]
    page = model_html(problem)
    assert "<u><b>need</b></u>" in page and "beds &amp; &lt;b&gt;" in page and "<b>beds" not in page
    assert problem._repr_latex_() == model_latex(problem) and problem._repr_html_() == page


def test_of_very_many_constraints_some_are_shown() -> None:
    problem = dpm.Problem(cp.Minimize(y), [y >= P[k % 3] for k in range(300)])
    assert r"\text{276 more}" in model_latex(problem) and len(model_latex(problem)) < 3000
    assert "276 more" in model_html(problem)


def test_names_are_escaped_where_they_are_private_too() -> None:
    evil = dpm.Private(shape=(), name="<script>", unit="entry", linf=1)
    page = model_html(dpm.Problem(cp.Minimize(y), [y >= evil]))
    assert "<script>" not in page and "<u><b>&lt;script&gt;</b></u>" in page


def test_a_classification_tells_the_standard_form() -> None:
    latex = dpm.Problem(cp.Minimize(y), [y >= P[0]]).classify()._repr_latex_()
    assert r"c^{\top} x" in latex and r"\underline{b}" in latex and r"\Delta b" in latex
    assert r"\underline{A}" not in latex
    nothing = dpm.Problem(cp.Minimize(y), [y >= 0]).classify()._repr_latex_()
    assert "Nothing is private" in nothing


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
    assert r"0 \le \text{both} \le 9" in model_latex(problem)


ODD = ("", "\n", "\x00", "é", "x_1", "$$", r"\\", r"\end{aligned}", "<script>")


@pytest.mark.parametrize("sign", [*string.punctuation, *ODD])
def test_no_name_or_label_is_read_as_a_command(sign: str) -> None:
    """Every sign of the keyboard in every name of a model: what stands in ``\\text{}`` is plain, all else is known."""
    for name in (sign, f"a{sign}b"):
        d = dpm.Private(shape=2, name=f"d{name}", unit="entry", linf=1)
        x = cp.Variable(2, name=name, nonneg=True)
        factor, public = cp.Constant([1.0, 3.0], name=name), cp.Parameter(2, name=name)
        cost = cp.sum(cp.multiply(factor, x)) + x[0] ** 2 + cp.sum(public @ x)
        problem = dpm.Problem(cp.Minimize(cost), [(x >= d).set_label(f"l{name}")])
        for text in (problem._repr_latex_(), problem.classify()._repr_latex_()):
            assert text.startswith("$$\\begin{aligned}\n") and text.endswith("\n\\end{aligned}$$")
            body = text[len("$$\\begin{aligned}") : -len("\\end{aligned}$$")]
            for words in re.findall(r"\\text\{([^}]*)\}", body):
                assert not set(words) & set("\\{}$&#%_^~<>|\n")
            rest = re.sub(r"\\text\{[^}]*\}|\\[a-zA-Z]+|\\[{}$&#%_,\\]", " ", body)
            assert set(rest) <= set("xbdAc0123456789+=.:;,-(){}[]^_& \n<>"), rest
            assert not re.search(r"<\S|\S>", rest) and rest.count("{") == rest.count("}")
            assert not re.search(r"(?:\\text\{[^}]*\}\\.|\\\w+ |\\.)[_^]\{", body), "an index of a part of a name"
