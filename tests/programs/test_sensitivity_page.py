"""The page on sensitivities is right: its table of nodes is evaluated, its refusals are tried."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "sensitivity.md"
if not PAGE.exists():
    pytest.skip("docs are not shipped with this copy", allow_module_level=True)
TEXT = PAGE.read_text()
T = np.array([[1.0, 1, 0], [0, 1, 1]])
ROWS = re.findall(r"^\| .*? \| .*? \| `(.+?)` \| ([\d.]+), ([\d.]+), ([\d.]+) \|$", TEXT, re.MULTILINE)


@cache
def names() -> dict[str, Any]:
    """The parameters that the page begins with."""
    first = re.search(r"```\{code-cell\} ipython3\n(.*?)```", TEXT, re.DOTALL)
    assert first is not None
    scope: dict[str, Any] = {}
    exec(first[1], scope)
    return scope


@pytest.mark.parametrize(("expression", "l1", "l2", "linf"), ROWS, ids=[row[0] for row in ROWS])
def test_the_table_of_nodes(expression: str, l1: str, l2: str, linf: str) -> None:
    found = dpm.sensitivity(eval(expression.replace("[[1, 1, 0], [0, 1, 1]]", "T"), names() | {"T": T}))
    assert [found.l1, found.l2, found.linf] == pytest.approx([float(l1), float(l2), float(linf)], abs=5e-4)


@pytest.mark.parametrize(
    "expression",
    [
        "cp.multiply(p, q)", "p @ q", "cp.quad_form(p, np.eye(3))", "1 / p[0]", "p @ cp.Variable(3)",
        "cp.abs(p)", "cp.max(p)", "cp.square(p)", "cp.norm1(p)",
        "cp.multiply(cp.Parameter(3), p)", "cp.kron(cp.diag(p), np.eye(2))",
    ],
)  # fmt: skip
def test_what_has_no_sensitivity(expression: str) -> None:
    with pytest.raises(dpm.DPModelError):
        dpm.sensitivity(eval(expression, names() | {"np": np, "cp": cp}))


def test_the_table_was_read() -> None:
    assert len(ROWS) == 14
