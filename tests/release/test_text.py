"""Tables for people: alignment, wrapping, escaping."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import DiscreteLaplace, Laplace
from dpmodel.text import TextTable, interval_ends, number, rounded


@pytest.fixture(autouse=True, scope="module")
def no_width_from_outside():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "unbounded"),
        (-math.inf, "-unbounded"),
        (0.0, "0"),
        (-0.0, "0"),
        (0.1152321, "0.1152"),
        (0.1 + 0.2, "0.3"),
        (1e-6, "1e-6"),
        (1.23456e-7, "1.235e-7"),
        (0.0001, "0.0001"),
        (12345.6, "12350"),
        (999999.9, "1e6"),
        (1.5e10, "1.5e10"),
        (1234567, "1234567"),
        (-2.5, "-2.5"),
        (np.float64(0.5), "0.5"),
        (np.float32(0.1), "0.1"),
        (np.int64(7), "7"),
    ],
)
def test_number(x, text):
    assert number(x) == text


@pytest.mark.parametrize(
    ("x", "spread", "text"),
    [
        (25933.27, 1.4, "25933.3"),
        (1163456.2, 90.0, "1163456"),
        (25933.0, 0.2, "25933"),
        (0.123456, 0.034, "0.123"),
        (24.996, 0.1, "25.00"),
        (-0.0004, 0.1, "0.00"),
        (12345.6, math.inf, "12346"),
        (0.123456, 0.0, "0.1235"),
        (0.0, 0.0, "0"),
        (1.5e20, 7.0, "1.5e+20"),
        (math.inf, 1.0, "unbounded"),
    ],
)
def test_numbers_are_rounded_to_their_noise(x, spread, text):
    assert rounded(x, spread) == text


@given(
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300),
    st.one_of(st.just(0.0), st.floats(min_value=1e-14, max_value=1e16)),
    st.floats(0, 1),
)
@settings(max_examples=300)
def test_a_printed_interval_contains_the_interval_and_its_number(lower, width, share):
    upper = lower + width
    value = min(max(lower + share * width, lower), upper)
    ends = interval_ends(lower, upper)
    assert float(ends[0]) <= lower <= upper <= float(ends[1])
    assert float(ends[0]) <= float(rounded(value, upper - lower)) <= float(ends[1])
    if width > 1e-9 and abs(lower) < 1e10:
        assert float(ends[1]) - float(ends[0]) <= 1.2 * width + 2, "wider by a tenth at each end, or a whole number"


@pytest.mark.parametrize("size", [7, 30_162, 52_000_000])
@pytest.mark.parametrize("noise", [Laplace(0.2), Laplace(90.0), DiscreteLaplace(0.2)])
def test_the_intervals_of_published_counts_are_printed_as_they_are(size, noise):
    found = Noisy([size, 3 * size], noise).intervals()
    for row, lower, upper in zip(str(found).splitlines()[2:], found.lower, found.upper, strict=False):
        *_, low, _, high = row.split()
        assert lower - 1 <= float(low) <= lower <= upper <= float(high) <= upper + 1
    assert f"[{size}, {3 * size}]" in str(Noisy([size, 3 * size], noise))


def test_numbers_are_right_aligned_and_text_left():
    lines = str(TextTable(("name", "alpha"), [("a", 1.5), ("longer", 12345), ("none", None)])).splitlines()
    polytope = lines[-3:]
    assert [line.startswith(s) for line, s in zip(polytope, ("a ", "longer", "none"), strict=True)] == [True] * 3
    assert len({len(line) for line in polytope}) == 1  # all end at the same column
    assert polytope[0].endswith("  1.5")


def test_long_cells_wrap_and_nothing_is_lost():
    text = str(TextTable(("k", "v"), [("key", "word " * 60), ("long", "x" * 150)], width=60, footer=("f " * 50,)))
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("word") == 60
    assert text.count("x") == 150
    assert text.count("f") == 50


cells = st.text("ab cd\n漢", max_size=40)


@settings(max_examples=40)
@given(st.lists(st.tuples(cells, cells, cells, cells), max_size=4), st.integers(30, 120))
def test_no_cell_is_ever_cropped(rows, width):
    text = str(TextTable(("one", "two", "three", "four"), rows, width=width))
    assert max(map(len, text.splitlines())) <= width
    for character in "bc漢":
        assert text.count(character) == sum(cell.count(character) for row in rows for cell in row)


def test_words_are_kept_whole_while_another_column_can_wrap():
    rows = [("strict-truncated-laplace", "a sentence of many words " * 5, "another one, also long " * 5)]
    assert "strict-truncated-laplace" in str(TextTable(("name", "x", "y"), rows, width=60))


def test_title_footer_and_hidden_header():
    text = str(TextTable(("", ""), [("a", "b")], title="Title", footer=("last line",)))
    assert text.splitlines()[0] == "Title"
    assert text.splitlines()[-1] == "last line"
    assert "─" not in text


def test_cells_are_data_not_markup():
    text = str(TextTable(("c",), [("[red]x[/red]",), (":smile:",), ("a\x1b[31mb\x07",), ("[/]",)]))
    assert "[red]x[/red]" in text
    assert ":smile:" in text
    assert "[/]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_plain_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert "\x1b" not in str(TextTable(("a",), [("b" * 50,)], title="t"))
    assert "b" * 50 in str(TextTable(("a",), [("b" * 50,)]))


def test_empty_table_and_ragged_rows():
    assert "a" in str(TextTable(("a", "b"), []))
    with pytest.raises(ValueError, match="row 1 has 1 cells"):
        TextTable(("a", "b"), [(1, 2), (3,)])


def test_html_is_escaped():
    evil = "<script>alert('x')</script>\"&"
    page = TextTable((evil,), [(evil,)], title=evil, footer=(evil,))._repr_html_()
    assert "<script" not in page
    assert "'x'" not in page
    assert page.count("&lt;script&gt;") == 4
    assert "&quot;&amp;" in page


def test_html_numbers():
    page = TextTable(("a", "b"), [(math.inf, "x\ny"), (0.25, True)])._repr_html_()
    assert "text-align:right" in page
    assert ">unbounded<" in page
    assert ">x<br>y<" in page
    assert ">yes<" in page


def test_cells_of_a_tree_keep_their_indentation_where_they_wrap():
    text = str(TextTable(("tree", "b"), [("a", "x"), ("    indented words that do not fit", "y" * 24)], width=44))
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    assert len(lines) >= 2 and lines[0].startswith("    indented") and lines[1].startswith("      ")
    assert max(map(len, text.splitlines())) <= 44
