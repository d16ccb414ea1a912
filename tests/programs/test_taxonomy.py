"""Table 1 of HRRU14 as data."""

import copy
import json
import pickle

import pytest

from dpmodel.errors import SpecificationError
from dpmodel.programs import theorems as impossibility
from dpmodel.programs.taxonomy import LEVELS, PARTS, cell
from dpmodel.solve.registry import taxonomy

VERDICTS = {
    ("objective", "high"): ("no", "Theorem 37", "5.2"),
    ("objective", "low"): ("yes", "Theorem 34", "4.5"),
    ("scalar", "high"): ("no", "Theorem 36", "5.1"),
    ("scalar", "low"): ("yes", "Theorem 22", "4.2"),
    ("row", "high"): ("yes*", "Theorems 11, 12", "3"),
    ("row", "low"): ("yes", "Theorem 28", "4.3"),
    ("matrix", "high"): ("no", "Theorem 38", "5.3"),
    ("matrix", "low"): ("yes", "Theorem 28", "4.3"),
    ("column", "high"): ("no", "Theorem 38", "5.3"),
    ("column", "low"): ("yes", "Theorem 32", "4.4"),
}


# As the paper prints it: location of change -> high, low.
PRINTED = {"objective": ("no", "yes"), "scalar": ("no", "yes"), "row": ("yes*", "yes"), "column": ("no", "yes")}


def test_the_cells_and_which_are_ours():
    assert {(c.part, c.level): (c.verdict, c.theorem, c.section) for c in taxonomy()} == VERDICTS
    printed = {(c.part, c.level): c.verdict for c in taxonomy() if not c.ours}
    assert printed == {
        (part, level): v for part, two in PRINTED.items() for level, v in zip(("high", "low"), two, strict=True)
    }
    ours = [c for c in taxonomy() if c.ours]
    assert [c.part for c in ours] == ["matrix", "matrix"] and all("(ours)" in c.label for c in ours)
    assert all(PRINTED["row"][c.level == "low"] in c.ours or "same verdict" in c.ours for c in ours)
    assert [c["ours"] for c in taxonomy().to_dict()["cells"]] == [c.ours for c in taxonomy()]


def test_mechanisms_serve_the_solvable_cells():
    """Which ones exactly is tested against what the registered mechanisms say, in tests/solve/test_registry.py."""
    for item in taxonomy():
        assert bool(item.mechanisms) == item.solvable
        assert len(set(item.mechanisms)) == len(item.mechanisms)


def test_lookup():
    for part in PARTS:
        for level in LEVELS:
            found = cell(part, level)
            assert (found.part, found.level) == (part, level)
    for bad in (("rows", "low"), ("row", "medium")):
        with pytest.raises(SpecificationError, match="unknown"):
            cell(*bad)


def test_impossible_cells_cite_the_theorem_of_their_floor():
    for item in taxonomy():
        if not item.solvable:
            assert impossibility.lower_bound(item.part, 1, 0, 0.05).theorem == item.theorem
            assert item.lower_bound


def test_prints_as_a_table(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = str(taxonomy())
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) <= 45 and "Table 1" in lines[0]
    page = taxonomy()._repr_html_()
    for item in taxonomy():
        assert item.theorem in text
        for word in item.summary.split():
            assert word in text
        for mechanism in item.mechanisms:
            assert mechanism in page
    assert page.count("<tr>") == 11
    assert "Theorem 37" in page
    assert repr(taxonomy()) == "<Taxonomy: 10 cells>"


def test_copies_and_json():
    table = taxonomy()
    for clone in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table), copy.copy(table)):
        assert clone == table
        assert hash(clone) == hash(table)
    assert table != table[:3]
    assert table != "table"
    data = table.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert len(data["cells"]) == 10
