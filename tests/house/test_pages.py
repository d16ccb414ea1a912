"""The docs hold together: links and paths resolve, the glossary has every word, decision records have every section."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="docs are not shipped with this copy")

WORDS = """
record, neighbors, unit, sensitivity, bounds, magnitude, privacy loss, guarantee, mechanism, release, post-processing,
ledger, objective, right-hand side, row, column, standard form, cone, dual, feasible set, polytope, Lipschitz constant,
gradient, step size, excess risk, violation, lower bound, part, level, cell, footprint, forecast, plan, statement
"""


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of ``text`` that lead nowhere, seen from ``page``."""
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    here = [link for link in links if link and not re.match(r"[a-z]+:", link)]
    return [link for link in here if not (page.parent / link).exists()]


def missing_paths(text: str) -> list[str]:
    """Files, folders and modules of this repository that ``text`` names in backticks and that are not there."""
    named = re.findall(r"`(?:python )?((?:dpmodel|tests|docs|examples)/[\w/.-]+)[^`]*`", text)
    named += [f"{module.replace('.', '/')}.py" for module in re.findall(r"`python -m (tests[\w.]+)[^`]*`", text)]
    return [path for path in named if not (ROOT / path).exists()]


def definitions(text: str) -> dict[str, str]:
    """Word -> what it means, of the list of the glossary."""
    found = re.findall(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)", text, re.MULTILINE)
    assert len({word for word, _ in found}) == len(found), "a word is defined twice"
    return {word: " ".join(meaning.split()) for word, meaning in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_resolve(page: Path) -> None:
    text = page.read_text()
    assert broken_links(page, text) == []
    assert missing_paths(text) == []


def test_the_code_of_the_page_on_data_runs() -> None:
    text = (ROOT / "docs" / "data.md").read_text()
    scope: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, scope)


def test_what_is_broken_is_found() -> None:
    page = ROOT / "docs" / "page.md"
    assert broken_links(page, "[a](privacy.md#x) [b](../README.md) [c](https://a.b) [d](#e)") == []
    assert broken_links(page, "[a](README.md) [b](../docs/none.md)") == ["README.md", "../docs/none.md"]
    named = "`tests/house/test_pages.py` and `python tests/none.py --runs 3` and `python -m tests.no -x`"
    assert missing_paths(named) == ["tests/none.py", "tests/no.py"]


def test_the_glossary_defines_every_word_in_a_sentence_or_two() -> None:
    found = definitions((ROOT / "docs" / "glossary.md").read_text())
    assert set(found) == {word.strip() for word in WORDS.split(",")}
    for word, meaning in found.items():
        assert meaning.endswith("."), word
        assert len(re.findall(r"\.(?: |$)", meaning)) <= 2, word


def test_a_word_on_two_lines_is_read_whole() -> None:
    assert definitions("- **a**: one\n  two.\n- **b c**: three.\n\nmore\n") == {"a": "one two.", "b c": "three."}


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_says_why_why_not_and_when_to_look_again(page: Path) -> None:
    sections = re.findall(r"^\*\*([A-Z][a-z ]+?)\.?\*\*", page.read_text(), re.MULTILINE)
    assert sections == ["Context", "Decision", "Alternatives", "Consequences", "To revisit"]


def test_every_page_can_be_found() -> None:
    texts = "".join((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))
    for page in PAGES:
        if page.parent != ROOT:
            assert f"({page.relative_to(ROOT).as_posix()})" in texts, page.name
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CITATION.cff"):
        assert f"({name})" in texts


def test_the_citation_is_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
