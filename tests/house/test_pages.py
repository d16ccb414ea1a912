"""The docs hold together: links and paths resolve, the glossary has every word, decision records have every section."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DECISIONS = sorted((ROOT / "docs" / "develop" / "decisions").glob("*.md"))

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="docs are not shipped with this copy")

WORDS = """
record, neighbors, unit, sensitivity, bounds, magnitude, privacy loss, privacy event, filter, guarantee,
mechanism, release, post-processing, ledger, objective, right-hand side, row, column, standard form, cone, dual,
feasible set, polytope, Lipschitz constant,
gradient, step size, excess risk, violation, shortage and surplus, price, lower bound, part, level, cell, footprint,
treatment, public level, share, joint privacy, forecast, plan, statement, certificate
"""


def python_blocks(text: str) -> list[str]:
    """Code of a page: shown, or executed when the site is built."""
    return re.findall(r"^```(?:python|\{code-cell\}[^\n]*)\n(?::[^\n]*\n)*(.*?)^```", text, re.DOTALL | re.MULTILINE)


# tests/exact/test_docs.py and tests/house/test_table1_page.py run the code of these and look at what it does.
OWN_TESTS = {"guide/linear-algebra.md", "table1/index.md"}
SLOW = {"guide/one-person-one-constraint.md", "guide/regressions.md", "guide/shares.md", "start/reading-a-plan.md"}
CODE = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
    for name in (page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.parent != ROOT)
    if name not in OWN_TESTS and python_blocks((ROOT / "docs" / name).read_text())
]


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


@pytest.mark.parametrize("page", CODE)
def test_the_code_of_a_page_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, object] = {}
    for block in python_blocks((ROOT / "docs" / page).read_text()):
        exec(compile(block, page, "exec"), scope)


def test_code_is_found() -> None:
    text = "```python\na = 1\n```\n\n```{code-cell} ipython3\n:tags: [hide-input]\nb = 2\n```\n\n```{toctree}\nc\n```\n"
    assert python_blocks(text) == ["a = 1\n", "b = 2\n"]


def test_what_is_broken_is_found() -> None:
    page = ROOT / "docs" / "page.md"
    assert broken_links(page, "[a](reference/privacy.md#x) [b](../README.md) [c](https://a.b) [d](#e)") == []
    assert broken_links(page, "[a](README.md) [b](../docs/none.md)") == ["README.md", "../docs/none.md"]
    named = "`tests/house/test_pages.py` and `python tests/none.py --runs 3` and `python -m tests.no -x`"
    assert missing_paths(named) == ["tests/none.py", "tests/no.py"]


def test_the_glossary_defines_every_word_in_a_sentence_or_two() -> None:
    found = definitions((ROOT / "docs" / "reference" / "glossary.md").read_text())
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


def test_every_page_of_the_root_can_be_found() -> None:
    """Sphinx warns of pages of ``docs`` that no table of contents has."""
    texts = "".join((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "docs/index.md"):
        assert f"({name})" in texts


def test_the_citation_is_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
