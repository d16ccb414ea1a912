"""A release as one page: it says everything, and loads nothing."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cvxpy as cp
import pytest

import dpmodel as dpm

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def solved() -> dpm.Problem:
    need = dpm.Private([20.0, 30.0], name="need <b>", unit="entry", linf=1, bounds=[0, 60])
    x = cp.Variable(2, bounds=[0, 100], name="x")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [(x >= need).set_label("wards & <more>")])
    problem.solve(epsilon=1, feasibility="centred", rng=0)
    return problem


class Page(HTMLParser):
    """Tags that are open at the end, ids, and what would be loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.loaded, self.titles = [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        found = (given.get(name) or "" for name in ("src", "href", "xlink:href"))
        self.loaded += [value for value in found if value and not value.startswith("#")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_one_page_with_everything(solved: dpm.Problem, tmp_path: Path) -> None:
    release, budget = solved.release, dpm.Budget(1.0)
    path = release.report(tmp_path / "r.html", solved.plan(1.0), budget, budget.plot(), solved.classify())
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == [] and page.loaded == [] and len(set(page.ids)) == len(page.ids)
    assert not re.search(r"@import|url\((?!#)|<script|<link|<img", text)
    assert "wards &amp; &lt;more&gt;" in text and "<more>" not in text and "<b>" not in text
    assert text.count("<svg") == 3  # constraints, x, and the budget
    for words in (str(release.guarantee).split(";")[0], release.accuracy.statement, "Mechanisms compared", "Budget"):
        assert words in text
    for candidate in solved.last_plan.candidates:
        assert candidate.mechanism in text
    for used in re.findall(r'(?:href="|url\()#([^")]+)', text):
        assert used in page.ids
    with pytest.raises(dpm.errors.SpecificationError, match="no HTML form"):
        release.report(tmp_path / "no.html", 3)
    assert not (tmp_path / "no.html").exists()


def test_without_matplotlib_the_page_comes_without_figures(
    solved: dpm.Problem, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    text = solved.release.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<svg" not in text and ".[plot]" in text and solved.release.accuracy.statement in text


def test_a_release_that_was_read_back_gives_the_same_page(solved: dpm.Problem, tmp_path: Path) -> None:
    again = dpm.Release.from_json(solved.release.to_json())
    one, other = (each.report(tmp_path / f"{k}.html") for k, each in enumerate((solved.release, again)))
    assert one.read_text(encoding="utf-8") == other.read_text(encoding="utf-8")


def test_a_post_processing_and_a_regression_have_pages_too(tmp_path: Path) -> None:
    x = cp.Variable(2, nonneg=True, name="x")
    fit = dpm.Problem(
        cp.Minimize(dpm.released.neg_log_likelihood(x, dpm.Noisy([3.0, -1.0], dpm.noise.Laplace(1.0), name="n")))
    )
    fit.solve()
    assert "<svg" in fit.release.report(tmp_path / "f.html").read_text(encoding="utf-8")
