"""Every lesson is a notebook without outputs, built as a lesson, and runs; what its text says, its outputs show."""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dpmodel.solve.registry import KINDS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LESSONS = sorted((EXAMPLES / "lessons").glob("*.ipynb"))
WIDEST = 100  # columns of a printed line

# Lesson -> patterns of what its text speaks of, in the order of the outputs.
SHOWN = {
    "01_linear_programs": [
        r"hours: scalar, low sensitivity: solvable",
        r"profit +none +objective +high +False",
        r"hours +none +scalar +high +False",
        r"a row of use +none +row +high +True",
        r"a column of use +none +column +high +False",
        r"relaxed +breaks a true limit in +(9\d|100)% .* mean profit 10[1-9]",
        r"safe +breaks a true limit in +[0-5]% .* mean profit 9\d",
        r"10: 'laplace-once', .* 1000: 'gaussian-once', 5000: 'gaussian-once'",
        r"gaussian-once .* 10: 0\.01 .* 1000: 0\.2\d .* 5000: 0\.5\d",
        r"multiplicative-weights .* 10: 0\.1\d .* 1000: 0\.2\d .* 5000: 0\.3\d",
        r"gaussian-once .* a factor of 1\.[89]",
        r"multiplicative-weights .* a factor of 1\.[34]",
    ],
    "02_lasso_and_regression": [
        r" 10 +0\.000\d+ +0\.000\d+",
        r" 640 +0\.2[5-9]\d+ +0\.000\d+",
        r"three true ones: +\[ ?0\.3\d+ +-0\.2\d+ +0\.19\d*\]",
        r"frank-wolfe-as-printed +ran \S+ +error 0\.1",
        r"frank-wolfe +ran frank-wolfe +error 0\.000[1-4]",
        r"auto +ran \S+ +error 0\.000",
        r"Plan for epsilon 1, delta 1e-6: ",
        r"5000 people: mean error 0\.001",
        r"20000 people: mean error 0\.000",
    ],
    "03_published_counts": [
        r"as published: 1859",
        r"sum 1855",
        r"noise on each count +2\.\d +5\.\d +10\.\d +19\.\d +24\.\d",
        r"noisy tree +13\.\d +24\.\d +33\.\d +39\.\d +41\.\d",
        r"most likely tree +5\.\d +8\.\d +13\.\d +17\.\d +21\.\d",
        r"least squares tree +5\.\d +9\.\d +14\.\d +16\.\d +20\.\d",
        r"first busy time: 576, within 560 to 650 \(95%\); true: 595",
        r"published +5\.3\d +5\.0\d",
        r"in one table +3\.\d+ +4\.\d+",
        r"it costs: no private data was read",
    ],
    "04_exact_linear_algebra": [
        r"all true in 8[67]%",
        r"x +\[3, 1, 4, 1, 5\]",
        r"113 equations do not hold, 113 are wrong",
        r"\{40: 0\.0, 80: 0\.1, 120: 0\.8, 160: 1\.0, 240: 1\.0, 400: 1\.0\}",
        r"d = +2: .* \(19 times\)",
        r"d = +40: .* \(23 times\)",
        r"point: 9 29 +by tukey-depth",
        r"cannot be hidden at delta = 0",
    ],
    "05_nonsmooth_learning": [
        r"line of 10%: (9\.[1-9]|10\.\d)% lie below",
        r"line of 50%: (49\.[1-9]|50\.\d)% lie below",
        r"line of 90%: (89\.[1-9]|90\.\d)% lie below",
        r"no sufficient statistics",
        r"has kinks",
        r" 1000 +0\.01\d+ +0\.00\d+",
        r" 9000 +0\.0001[0-3]\d* +0\.0001[4-9]",
        r"0\.08215 in all at n=20000",
        r"says nothing here .*; noisy-descent",
        r"noisy-descent .*\n?.*: chosen",
        r"0\.3674 in all at n=1000",
        r"0\.03674 in all at n=100000",
    ],
    "06_planner": [
        r"expected, priced: cost \+5\.1 %, 1[67](\.\d)? % of the private rows short, .* \(centred: \+7\.5 %",
        r"protects: a record owns one entry of demand",
        r"towns: 4 rows, short with probability 0\.1\d",
        r"relaxed +a town is short in 100% .* cost +\+5\d",
        r"centred +a town is short in +9\d% .* cost +\+[67]\.\d%",
        r"priced +a town is short in +4\d% .* cost +\+[45]\.\d%",
        r"safe +a town is short in +[0-5]% .* cost +\+9\.\d%",
        r"strict +a town is short in +0% ",
        r"safe: .* for epsilon 0\.0\nat 60: .* for epsilon 0\.0",
        r"The same released numbers",
        r"epsilon 1 .* 21\.84 .*\nepsilon 0\.5 .* 43\.67 ",
        r"day 4: requested epsilon=0\.3",
    ],
    "07_hospital": [
        r"read off correctly: 20 of 20",
        r"Theorem 37 .* 0\.115 ",
        r"public-only reads none",
        r"surgery +10[2-6]\.0 +100\n +heart +(7[6-9]|8[0-4])\.0 +74\n.* 64\n.* 19\n",
        r"all but 1\d{3} of the 20000 private constraints",
        r"patients below 0\.8: [1-3]\d\d of 20000",
        r"20000 patients: promises all but 1\d{3} of them.*\n+ *10000 patients: promises nothing",
    ],
    "11_impossibility": [
        r"20 bits, 100% of them right",
        r"Theorem 37: .* below 0\.1152 n",
        r"plain solver +- +100\.0% +0\.0000",
        r"laplace-once +0\.1 .* 0\.2237",
        r"randomised response +1 +7\d\.\d% .* 0\.1152",
        r"bound 0\.1152; runs below it: 30%; 95% quantile of the runs: 0\.2000",
        r"n = +320: mean 0\.13\d+, 95% quantile 0\.15\d+, bound 0\.1152",
        r"nearly\) all runs keep to: 0\.1345",
    ],
    "12_shares": [
        r"9\d% of the households charge; of these (99|100)% are read correctly",
        r"20 bits, 100% of them right",
        r"Theorem 37: .* below 0\.1152 n",
        r"The first remedy: let each record own its variables",
        r"Plan for epsilon 1, delta 1e-6: noisy-prices\n +expected: [89]\d\.?\d* % of the optimum",
        r"worth [89]\d\.\d% of the optimum\nfullest hour: 1[0-4]\d\.\d of 150 used",
        r"on the notice board, charge: None",
        r"the letter and the household agree: True",
        r"household 7 itself: moves [1-3]\.\d+ hours",
        r"the others, same noise: 0\.0\d+ hours each",
        r"the others, other noise: 0\.[1-4]\d* hours each",
        r"0\.[12]\d standard deviations apart, so the best test is right in 5[2-6]%",
        r"at most 73%",
        r" 1000 households: [89]\d\.\d% of the optimum",
        r"16000 households: 9[5-9]\.\d% of the optimum",
    ],
}


# Lesson -> its paper, as mechanisms name their source.
PAPERS = {
    "01_linear_programs": "HRRU14",
    "02_lasso_and_regression": "TTZ15",
    "03_published_counts": "LWK15",
    "04_exact_linear_algebra": "KMMST24",
    "05_nonsmooth_learning": "Arora, Marinov and Ullah",
}


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def faults(notebook: dict[str, Any]) -> list[str]:
    """Where a notebook is not as all lessons are."""
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    found = [f"outputs in {cell['id']}" for cell in code if cell["outputs"] or cell["execution_count"] is not None]
    found += [f"metadata in {cell['id']}" for cell in cells if cell["metadata"]]
    if notebook["metadata"] != {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}:
        found.append("metadata beyond the kernel")
    words = [source(cell) if cell["cell_type"] == "markdown" else "" for cell in cells]
    if not re.match(r"# [^\n]+\n\n[^.]+\.", words[0]):
        found.append("the first cell is not a title and a sentence")
    if not words[-1].startswith("## What to take away\n"):
        found.append("the last cell is not what to take away")
    headings = " ".join(re.findall(r"^(?:##+ |\*\*)(.*)", "\n".join(words), re.MULTILINE)).lower()
    found += [f"no {part}" for part in ("question", "guess", "exercise") if part not in headings]
    for node in (node for cell in code for node in ast.walk(ast.parse(source(cell)))):
        inner = isinstance(node, ast.ImportFrom) and node.module not in ("dpmodel", "dpmodel.learn", "dpmodel.linalg")
        if inner and node.module.startswith("dpmodel"):
            found.append(f"{node.module} is not public")
    return found


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_it_is_built_as_a_lesson(path: Path) -> None:
    assert faults(json.loads(path.read_text())) == []


def test_faults_are_found() -> None:
    notebook = json.loads(LESSONS[0].read_text())
    cells = notebook["cells"]
    spoilt = next(cell for cell in cells if cell["cell_type"] == "code")
    spoilt.update(execution_count=1, source=["from dpmodel.solve.planner import plan"])
    assert faults({**notebook, "metadata": {}, "cells": [spoilt, {**cells[0], "metadata": {"tags": []}}]}) == [
        f"outputs in {spoilt['id']}",
        "metadata in cell-01",
        "metadata beyond the kernel",
        "the first cell is not a title and a sentence",
        "the last cell is not what to take away",
        "no question",
        "no guess",
        "no exercise",
        "dpmodel.solve.planner is not public",
    ]


def test_every_lesson_with_claims_is_there() -> None:
    assert set(SHOWN) <= {path.stem for path in LESSONS}


@pytest.mark.parametrize("lesson", PAPERS)
def test_a_lesson_lists_what_the_library_has_of_its_paper(lesson: str) -> None:
    mechanisms = [each for kind in KINDS.values() for each in kind.mechanisms]
    cells = json.loads((EXAMPLES / "lessons" / f"{lesson}.ipynb").read_text())["cells"]
    text = next(source(cell) for cell in cells if source(cell).startswith("## What the library has of this paper"))
    listed = {
        name for line in text.splitlines() if line.startswith("|") for name in re.findall(r"`([a-z0-9-]+)`", line)
    }
    assert listed == {each.name for each in mechanisms if PAPERS[lesson] in each.source}


def printed(notebook: Any) -> str:
    """What the cells of an executed notebook print; results that notebooks show as HTML or figures left out."""
    texts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", output.text  # a lesson that warns teaches to ignore warnings
            data = output.get("data", {})
            texts.append(output.get("text", "") if set(data) != {"text/plain"} else data["text/plain"])
    return "\n".join(texts)


@pytest.mark.slow
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_it_runs_and_shows_what_it_says(path: Path, tmp_path: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    place = {"metadata": {"path": str(tmp_path)}}
    paths = os.pathsep.join([str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")])
    # As a notebook runs: nothing says how wide the terminal is.
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"PYTHONPATH": paths}
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place)
    client.execute(env=environment)

    text = printed(notebook)
    assert [line for line in text.splitlines() if len(line) > WIDEST] == []
    start = 0
    for pattern in SHOWN.get(path.stem, []):
        found = re.compile(pattern).search(text, start)
        assert found, f"{pattern!r} is missing in what follows:\n{text[start:]}"
        start = found.end()
