"""Sensitivity of expressions: the calculus against all changes of one record, and the tree that shows it."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.programs.expressions import expression_tree

ENTRY = dpm.Private([20.0, 30.0, 40.0], name="entry", unit="entry", linf=2)
ALL = dpm.Private([1.0, 2.0, 3.0], name="all", unit="all", l1=3, linf=2)
ROWS = dpm.Private(np.zeros((4, 3)), name="rows", unit="row", bounds=(-1, 1))
T = np.array([[1.0, -2.0, 0.0], [3.0, 1.0, 1.0]])

AFFINE = [
    (ENTRY, np.eye(3) * 2),
    (2 * ENTRY - 1, np.eye(3) * 4),
    (T @ ENTRY, 2 * T.T),
    (cp.sum(ENTRY), np.full((3, 1), 2.0)),
    (ENTRY[1:] - ENTRY[:2], 2 * np.array([[-1.0, 0], [1, -1], [0, 1]])),
    (cp.hstack([ENTRY, 3 * ENTRY[0]]), 2 * np.array([[1.0, 0, 0, 3], [0, 1, 0, 0], [0, 0, 1, 0]])),
]


@pytest.mark.parametrize(("expression", "moves"), AFFINE)
def test_every_move_of_one_record_is_within_the_norms_and_one_attains_them(expression: Any, moves: np.ndarray) -> None:
    found = dpm.sensitivity(expression)
    for name, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        assert getattr(found, name) == pytest.approx(np.linalg.norm(moves, order, axis=1).max())
    assert found.exact and found.neighbors == "replace-one"
    assert len(found.entry) == expression.ndim
    if expression.ndim:
        assert np.abs(moves[:, found.entry[0]]).max() == found.linf


def test_bounds_that_are_not_attained_say_so_and_are_no_smaller() -> None:
    rng = np.random.default_rng(0)
    found = dpm.sensitivity(T @ ALL + cp.sum(ROWS[0]))
    worst = np.zeros(3)
    for _ in range(2_000):
        step = rng.normal(size=3) * (rng.random(3) < 0.6)
        step *= min(3 / max(np.abs(step).sum(), 1e-9), 2 / max(np.abs(step).max(), 1e-9))
        moved = T @ step + rng.choice([-6.0, 6.0])
        worst = np.maximum(worst, [np.linalg.norm(moved, order) for order in (1, 2, np.inf)])
    assert (worst <= np.array([found.l1, found.l2, found.linf]) * (1 + 1e-12)).all()
    assert "upper bounds" in str(found) and not found.exact


def test_public_expressions_move_by_nothing() -> None:
    assert dpm.sensitivity(cp.Constant([1.0, 2.0])).linf == 0
    assert str(dpm.sensitivity(cp.Parameter(2))) == "0: no record moves it"


@pytest.mark.parametrize(
    ("expression", "innermost", "why"),
    [
        (1 + cp.sum(cp.multiply(ENTRY, ALL)), "entry * all", "product of two private"),
        (ENTRY @ ALL, "entry @ all", "product of two private"),
        (2 * cp.square(ENTRY), "entry", "square|Power"),
        (1 / ENTRY[0] + 3, "1 / entry", "private divisor"),
        (cp.norm1(ENTRY), "entry", "not affine"),
    ],
)
def test_what_breaks_a_rule_is_named_innermost(expression: Any, innermost: str, why: str) -> None:
    with pytest.raises(SpecificationError, match=why) as error:
        dpm.sensitivity(expression)
    assert innermost in error.value.what


def test_what_is_no_expression() -> None:
    with pytest.raises(SpecificationError, match="no expression"):
        dpm.sensitivity(3)


def test_variables_are_refused() -> None:
    with pytest.raises(SpecificationError, match="depends on their values"):
        dpm.sensitivity(ENTRY @ cp.Variable(3))  # "no record moves it" would be false: the coefficients are private


def test_the_tree_shows_every_node_and_marks_the_first_broken_rule() -> None:
    x = cp.Variable(3, name="x")
    fine = (T @ x <= T @ ENTRY).set_label("covered")
    problem = dpm.Problem(cp.Minimize(cp.Constant([7.0, 8.0, 9.0]) @ x), [fine, 1 + cp.multiply(ENTRY, ALL) <= x])
    tree = problem.explain(tree=True)
    text = str(tree)
    assert text.count("BROKEN") == 1 and "-> entry * all" in text and "covered" in text
    assert "7.0" not in text and "constant" in text
    broken = [node for node in tree.nodes if node.rule]
    assert [node.expression for node in broken] == ["entry * all"]
    moved = {node.expression: node.sensitivity for node in expression_tree(cp.Problem(cp.Minimize(0), [fine])).nodes}
    assert moved["entry"] == "l1 2, l2 2, linf 2" and moved["x"] == "-"
    assert "<table" in tree._repr_html_() and tree.to_dict()["nodes"]
    wild = dpm.Private(np.ones(3), name="wild", unit="entry")
    assert "arbitrarily far" in str(expression_tree(cp.Problem(cp.Minimize(cp.sum(x)), [x >= wild])))
