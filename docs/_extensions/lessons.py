"""What other folders hold and the site shows: lessons, executed here, and the explorer. Each may be missing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
LESSONS = ROOT / "examples" / "lessons"
PAGES = ROOT / "docs" / "lessons" / "notebooks"  # not under version control
EXPLORER = ROOT / "dpmodel" / "explorer"
PATTERN = re.compile(r"[\w/\[\]-]+\*")


def copy_lessons() -> None:
    """Hold ``PAGES`` equal to ``LESSONS``, links to other pages apart; what did not change is not built again."""
    PAGES.mkdir(exist_ok=True)
    names = {lesson.name for lesson in LESSONS.glob("*.ipynb")}
    for page in PAGES.glob("*.ipynb"):
        if page.name not in names:
            page.unlink()
    for name in names:
        page, text = PAGES / name, (LESSONS / name).read_text().replace("](../../docs/", "](../../")
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def _list_what_is_there(app: Sphinx, docname: str, source: list[str]) -> None:
    """A pattern of a table of contents that fits no page is left out, where Sphinx would warn."""
    folder = (Path(app.srcdir) / docname).parent
    lines = source[0].split("\n")
    source[0] = "\n".join(line for line in lines if not PATTERN.fullmatch(line) or any(folder.glob(f"{line}.*")))


def _copy_explorer(app: Sphinx, failure: Exception | None) -> None:
    """The page to play with is shipped in the package; the site has a copy."""
    if failure is None and app.builder.name == "html" and EXPLORER.exists():
        ignored = shutil.ignore_patterns("*.py", "__pycache__")
        shutil.copytree(EXPLORER, Path(app.outdir) / "explorer", dirs_exist_ok=True, ignore=ignored)


def setup(app: Sphinx) -> dict[str, bool]:
    copy_lessons()
    app.connect("source-read", _list_what_is_there)
    app.connect("build-finished", _copy_explorer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
