"""The explorer's files: they need nobody else, travel with the package, and its numbers are what the script writes."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from dpmodel.cli.commands import PAGE
from dpmodel.requests import Feasibility

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "write_explorer.py"
FILES = sorted(PAGE.parent.iterdir())
# Numbers have four digits, and solvers of other versions differ by less.
CLOSE = 2e-3


def written() -> Any:
    """The script as a module."""
    specification = importlib.util.spec_from_file_location("write_explorer", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def differences(found: Any, expected: Any, where: str = "") -> list[str]:
    """Where two trees of plain data differ by more than rounding."""
    if isinstance(expected, dict) and isinstance(found, dict) and found.keys() == expected.keys():
        return [line for key in expected for line in differences(found[key], expected[key], f"{where}/{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        pairs = zip(found, expected, strict=True)
        return [line for k, (f, e) in enumerate(pairs) for line in differences(f, e, f"{where}/{k}")]
    numbers = all(isinstance(each, (int, float)) for each in (found, expected))
    same = math.isclose(found, expected, rel_tol=CLOSE, abs_tol=1e-6) if numbers else found == expected
    return [] if same else [f"{where}: {found!r} is not {expected!r}"]


def without_digits(data: Any) -> Any:
    """Statements with the last digits of their numbers left out."""
    if isinstance(data, dict):
        return {key: without_digits(value) for key, value in data.items()}
    if isinstance(data, list):
        return [without_digits(value) for value in data]
    if isinstance(data, str):
        return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2g}", data)
    return data


def test_differences_are_found() -> None:
    assert differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.0001]}) == []
    assert differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.1]}) == ["/a/1: 2.0 is not 2.1"]
    assert differences({"a": 1}, {"b": 1}) and differences([1], [1, 2]) and differences(None, 0)


def test_the_page_names_its_own_files_and_nothing_else() -> None:
    text = PAGE.read_text()
    named = set(re.findall(r'(?:src|href)="([^"#][^"]*)"', text)) - {"data:,"}
    assert named | {"index.html"} == {file.name for file in FILES}
    for file in FILES:
        links = set(re.findall(r"https?://[^\s\"'`]+", file.read_text()))
        assert links <= {"http://www.w3.org/2000/svg"}, file.name
    assert sum(file.stat().st_size for file in FILES) < 400_000


def test_every_script_is_small_and_strict() -> None:
    for file in FILES:
        if file.suffix == ".js" and file.name != "data.js":
            text = file.read_text()
            assert text.startswith("// ") and '"use strict";' in text, file.name
            assert len(text.splitlines()) <= 200 and "innerHTML" not in text, file.name


def test_every_control_of_the_page_is_a_choice_in_the_address() -> None:
    """But those of the last part, which are answers."""
    scripts = {"plane": "plane.js", "map": "table1.js", "attack": "attack.js"}
    controls = re.findall(r'<(?:input type="radio" name|input id|select id)="(\w+)-(\w+)"', PAGE.read_text())
    assert {part for part, _ in controls} == {*scripts, "cells"}
    for part, file in scripts.items():
        choices = (PAGE.parent / file).read_text().split("choices = {")[1].split("};")[0]
        kept = set(re.findall(r"(\w+): (?:oneOf|placeIn|{)", choices))
        assert {name for where, name in controls if where == part} <= kept, part


@pytest.mark.skipif(not SCRIPT.exists(), reason="docs are not shipped with this copy")
def test_the_page_has_every_feasibility_but_auto_and_begins_with_the_released_numbers() -> None:
    """In the numbers, which the page takes its default from, and among the choices."""
    script = written()
    modes = list(script.read(script.FILE.read_text())["plane"]["scalar"])
    assert {*modes, "auto"} == set(get_args(Feasibility))
    assert modes == re.findall(r'name="plane-mode" value="(\w+)"', PAGE.read_text()) and modes[0] == "centred"


@pytest.mark.slow
@pytest.mark.skipif(not SCRIPT.exists(), reason="docs are not shipped with this copy")
def test_the_numbers_are_what_the_script_writes() -> None:
    script = written()
    kept = script.read(script.FILE.read_text())
    again = script.read(script.written(script.data()))
    assert differences(without_digits(kept), without_digits(again)) == []
