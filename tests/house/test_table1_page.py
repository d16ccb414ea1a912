"""The page on Table 1: its models are of the cells it says, its facts the library's, its pictures the script's."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import dpmodel as dpm

FOLDER = Path(__file__).parents[2] / "docs" / "table1"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="docs are not shipped with this copy")

CELLS = [f"{part} {level}" for part in ("objective", "scalar", "row", "matrix", "column") for level in ("high", "low")]


@pytest.fixture(scope="module")
def page() -> str:
    return (FOLDER / "index.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def writer() -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / "write_facts.py"))


@pytest.fixture(scope="module")
def models(page: str, writer: dict[str, Any]) -> dict[str, dpm.Problem]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a page that warns teaches to ignore warnings
        return writer["models"](page)


def test_every_cell_has_its_section(page: str, models: dict[str, dpm.Problem]) -> None:
    assert list(models) == CELLS
    for name in CELLS:
        heading = name.capitalize().replace(" ", ", ")
        assert f"\n## {heading}\n" in page
        assert f"]({name.replace(' ', '_')}.svg)" in page
        assert f"(#{name.replace(' ', '-')})" in page  # from the table above


def test_facts_are_those_of_the_library(page: str, models: dict[str, dpm.Problem], writer: dict[str, Any]) -> None:
    """Write them anew with ``python docs/table1/write_facts.py``."""
    assert writer["written"](page, models) == page


def test_our_cells_are_marked_and_the_papers_are_not(page: str, writer: dict[str, Any]) -> None:
    for cell in dpm.taxonomy():
        name, ours = f"{cell.part} {cell.level}", bool(cell.ours)
        section = page.split(f"<!-- facts: {name} -->")[1].split("<!-- end -->")[0]
        assert ("Ours:" in section) == (f"| {cell.label} |" in page and "(ours)" in cell.label) == ours
        picture = (FOLDER / f"{name.replace(' ', '_')}.svg").read_text(encoding="utf-8")
        assert ("(ours)" in picture) == ours
    assert {(cell.part, cell.level) for cell in dpm.taxonomy()} == {tuple(name.split()) for name in CELLS}


def test_a_model_of_another_cell_is_found(models: dict[str, dpm.Problem], writer: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="the model of row low is scalar, low"):
        writer["facts"]("row low", models["scalar low"])


@pytest.mark.parametrize("name", CELLS)
def test_the_verdict_is_what_solve_does(name: str, models: dict[str, dpm.Problem]) -> None:
    problem = models[name]
    if name in ("objective high", "scalar high", "column high", "matrix high"):
        with pytest.raises(dpm.ImpossibilityError):
            problem.solve(epsilon=1, delta=1e-6)
    else:
        part, level = name.split()
        served = next(cell.mechanisms for cell in dpm.taxonomy() if (cell.part, cell.level) == (part, level))
        assert problem.plan(epsilon=1, delta=1e-6).chosen.mechanism in served


def test_pictures_are_those_that_the_script_draws() -> None:
    """Draw them anew with ``python docs/table1/draw.py``."""
    drawn = runpy.run_path(str(FOLDER / "draw.py"))
    assert sorted(drawn["CELLS"]) == sorted(CELLS)
    assert {file.stem for file in FOLDER.glob("*.svg")} == {name.replace(" ", "_") for name in CELLS}
    for name in CELLS:
        text = drawn["picture"](name)
        assert (FOLDER / f"{name.replace(' ', '_')}.svg").read_text(encoding="utf-8") == text, name
        assert len(text) < 15_000
        within(ElementTree.fromstring(text))


def within(svg: ElementTree.Element) -> None:
    """No text begins or (by a generous estimate of its width) ends outside of the sheet."""
    width, height = map(float, svg.attrib["viewBox"].split()[2:])
    for text in svg.iter("{http://www.w3.org/2000/svg}text"):
        long = 0.52 * float(text.attrib.get("font-size", 13)) * len(text.text or "")
        left = float(text.attrib["x"]) - (long / 2 if text.attrib["text-anchor"] == "middle" else 0)
        assert left >= 0 and left + long <= width and 10 <= float(text.attrib["y"]) <= height, text.text
