"""docs/guide/linear-algebra.md is executed: its blocks run in order, and its table of sizes is what plans say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dpmodel import linalg
from dpmodel.solve.registry import KINDS

DOCS = (Path(__file__).parents[2] / "docs" / "guide" / "linear-algebra.md").read_text()


@pytest.mark.slow  # plans of inequalities simulate for seconds
def test_blocks_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "docs/guide/linear-algebra.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "[1, 2, 3, 4]" in printed and "exact-equations" in printed
    assert names["point"].found and names["point"].accuracy.slack_rows is not None
    assert names["problem"].release.status == "optimal"


def test_the_table_of_sizes() -> None:
    rows = re.findall(r"^\| (\d+) \| ([\d,]+) \| ([\d,]+) \|$", DOCS, re.MULTILINE)
    assert [int(d) for d, *_ in rows] == [5, 10, 20, 50]
    for d, ours, published in rows:
        plan = linalg.plan(
            "span", dimension=int(d), epsilon=1, delta=1e-6, records=10_000, neighbors="add-remove", as_printed=True
        )
        missed = {each.mechanism: each.forecast.error.missed for each in plan.candidates if each.forecast is not None}
        told = [f"{missed[name]:,.0f}" for name in ("stable-span", "stable-span-as-printed")]
        assert told == [ours, published]


def test_every_function_and_mechanism_named_exists() -> None:
    for name in re.findall(r"`linalg\.(\w+)", DOCS):
        assert hasattr(linalg, name), name
    for name in re.findall(r"`learn\.(\w+)`", DOCS):
        assert hasattr(pytest.importorskip("dpmodel.learn"), name), name
    known = {each.name for kind in KINDS.values() for each in kind.mechanisms}
    assert set(re.findall(r"`((?:stable-span|dp-lp)[a-z-]*)`", DOCS)) <= known
