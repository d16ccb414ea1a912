"""What is printed fits the line and the encoding of where it goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cvxpy as cp
import pytest

import dpmodel as dpm

PRINT = """
import warnings
import cvxpy as cp, dpmodel as dpm
warnings.simplefilter("ignore")
b = dpm.Private([20.0, 30.0], name="\u03b4emand \u20ac \u4eba", unit="entry", linf=1, bounds=[0, 50])
x = cp.Variable(2, bounds=[0, 60], name="\u03c8")
problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])
problem.solve(epsilon=1.0, rng=0, mechanism="laplace-once", verbose=True)
for shown in (problem.plan(0.01, mechanism="laplace-once"), problem.explain(), problem.release):
    print(shown)
print(problem.classify(), dpm.taxonomy(), problem.release.guarantee, problem.classify().cells[0], sep="\\n")
"""


@pytest.mark.slow
def test_every_text_prints_in_the_encoding_of_the_pipe() -> None:
    """In ASCII, the least that a pipe can be."""
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"PYTHONIOENCODING": "ascii"}
    env |= {"PYTHONPATH": str(Path(dpm.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", PRINT], env=env, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    text = done.stdout.decode("ascii")
    assert "laplace-once" in text and "\\u03b4emand" in text and "---" in text


class Pipe:
    """Standard output of an encoding, which keeps nothing."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...


@pytest.fixture(scope="module")
def problem() -> dpm.Problem:
    b = dpm.Private([20.0, 30.0], name="\u03b4emand", unit="entry", linf=1, bounds=[0, 50])
    x = cp.Variable(2, bounds=[0, 60], name="\u03c8")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])
    problem.solve(epsilon=5.0, rng=0, mechanism="laplace-once")
    return problem


@pytest.fixture(scope="module")
def plan(problem: dpm.Problem) -> dpm.Plan:
    return problem.plan(0.01)


@pytest.mark.parametrize("columns", [60, 75, 100, 133, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii"])
def test_lines_fit_what_columns_says(
    columns: int, encoding: str, problem: dpm.Problem, plan: dpm.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", Pipe(encoding))
    shown = (plan, problem.explain(), problem.release, problem.classify(), dpm.taxonomy(), problem.explain(tree=True))
    texts = [*map(str, shown), str(plan.table()), str(plan.explain()), str(problem.explain(5.0))]
    monkeypatch.undo()
    longest = max(len(line) for text in texts for line in text.splitlines())
    assert longest <= columns
    assert longest > 0.9 * columns  # and the room is used
    for text in texts:
        text.encode(encoding)
    assert ("\u2500\u2500" in texts[1]) == (encoding == "utf-8"), "what can be printed stays"


@pytest.mark.parametrize("given", ["0", "-3", "wide", ""])
def test_a_width_that_is_none_is_the_default(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    plain = str(dpm.taxonomy())
    monkeypatch.setenv("COLUMNS", given)
    assert str(dpm.taxonomy()) == plain


def test_notebooks_show_tables_of_what_is_public() -> None:
    """Escaped, and without the private numbers."""
    pl = pytest.importorskip("polars")
    budget = dpm.Budget(2)
    budget.charge(0.5, label="<first>")
    people = dpm.Dataset(pl.DataFrame({"town": ["Ulm"] * 4177}), domain={"town": ["<Bonn>", "Ulm"]})
    queries = dpm.query_release(people, [("town",)])
    noisy = dpm.Noisy([1.0, 2.0], noise=dpm.noise.Laplace(1.0), labels=(("town", ("<Bonn>", "Ulm")),))
    for shown, words in (
        (budget, ("&lt;first&gt;", "left", "1.5")),
        (people, ("&lt;Bonn&gt;, Ulm", "bounds or categories")),
        (queries, ("nothing released yet", "weight")),
        (noisy, ("&lt;Bonn&gt;", "standard deviation", "Laplace")),
        (noisy.reshape(2, 1), ("axis 1",)),
    ):
        page = shown._repr_html_()
        assert "<table" in page and "4177" not in page + repr(shown).replace("4177.0", "")
        for word in words:
            assert word in page
    assert "nothing released yet" in repr(queries)
