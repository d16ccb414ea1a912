"""What is printed fits the line and the encoding of where it goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
for shown in (problem.plan(0.01, compare=False, mechanism="laplace-once"), problem.explain(), problem.release):
    print(shown)
print(problem.classify(), dpm.taxonomy(), problem.release.guarantee, problem.classify().cells[0], sep="\\n", file=ALL)
"""


def printed(code: str, encoding: str, columns: str | None) -> str:
    """Standard output of a fresh Python, as bytes of ``encoding``."""
    env = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"PYTHONIOENCODING": encoding}
    env |= {"PYTHONPATH": str(Path(dpm.__file__).parent.parent)} | ({} if columns is None else {"COLUMNS": columns})
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode(encoding)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_every_text_prints_in_the_encoding_of_the_pipe(encoding: str) -> None:
    text = printed(PRINT.replace(", file=ALL", ""), encoding, None)
    assert "laplace-once" in text and "\\u03b4emand" in text and "---" in text


def test_characters_that_can_be_printed_stay() -> None:
    text = printed("import dpmodel as dpm; print(dpm.taxonomy())", "utf-8", None)
    assert "\u2500\u2500" in text


@pytest.mark.parametrize("columns", [60, 75, 100, 133, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_lines_fit_what_columns_says(columns: int, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import cvxpy as cp

    class Pipe:
        def __init__(self) -> None:
            self.encoding = encoding

        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None: ...

    b = dpm.Private([20.0, 30.0], name="\u03b4emand", unit="entry", linf=1, bounds=[0, 50])
    x = cp.Variable(2, bounds=[0, 60], name="\u03c8")
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])
    problem.solve(epsilon=5.0, rng=0, mechanism="laplace-once")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", Pipe())
    shown = (problem.plan(0.01), problem.explain(), problem.release, problem.classify(), dpm.taxonomy())
    texts = [str(each) for each in shown]
    monkeypatch.undo()
    longest = max(len(line) for text in texts for line in text.splitlines())
    assert longest <= columns
    assert longest > 0.9 * columns  # and the room is used
    for text in texts:
        text.encode(encoding)


@pytest.mark.parametrize("given", ["0", "-3", "wide", ""])
def test_a_width_that_is_none_is_the_default(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    plain = str(dpm.taxonomy())
    monkeypatch.setenv("COLUMNS", given)
    assert str(dpm.taxonomy()) == plain
