"""Every object has a page of its own in notebooks, and no name in it is read as HTML."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import dpmodel as dpm

EVIL = "<script>x</script>"


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    budget = dpm.Budget(3)
    budget.charge(1, 0, label=EVIL)
    frame = pd.DataFrame({EVIL: ["<script>", "b"] * 5})
    x, need = cp.Variable(2, bounds=[0, 100], name=EVIL), dpm.Private([20.0, 30], name=EVIL, unit="entry", linf=1)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= need).set_label(EVIL)])
    problem.solve(5.0, rng=0)
    plan = problem.plan(5.0)
    items = {
        "problem": problem,
        "classification": problem.classify(),
        "plan": plan,
        "plan explained": plan.explain(),
        "explanation": problem.explain(5.0),
        "tree": problem.explain(tree=True),
        "release": problem.release,
        "budget": budget,
        "noisy": dpm.Noisy(np.arange(3.0), noise=dpm.noise.Laplace(1.0), name=EVIL),
        "dataset": dpm.Dataset(frame, domain={EVIL: ["<script>", "b"]}),
        "query release": dpm.query_release(frame, [(EVIL,)], domain={EVIL: ["<script>", "b"]}),
    }
    return {name: item._repr_html_() for name, item in items.items()}


def test_every_object_has_a_page_and_names_are_escaped(shown: dict[str, str]) -> None:
    for name, page in shown.items():
        assert "<table" in page, name
        assert "<script" not in page, name
        assert ("&lt;script&gt;" in page) == (name != "plan explained"), name  # which speaks of mechanisms alone
        assert page.count("<tr") == page.count("</tr>") and page.count("<table") == page.count("</table>")


def test_estimators_have_scikit_learns_page() -> None:
    learn = pytest.importorskip("dpmodel.learn")
    page = learn.PrivateRidge(bounds={EVIL: (-1, 1)}, label_bounds=(-1, 1))._repr_html_()
    assert "PrivateRidge" in page and EVIL not in page
