"""What other folders hold and the site shows: lessons, which are executed here, and the explorer."""

from __future__ import annotations

import shutil
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
LESSONS = ROOT / "examples" / "lessons"
PAGES = ROOT / "docs" / "lessons" / "notebooks"  # not under version control
EXPLORER = ROOT / "dpmodel" / "explorer"


def copy_lessons() -> None:
    """Hold ``PAGES`` equal to ``LESSONS``; what did not change keeps its time, so that it is not built again."""
    PAGES.mkdir(exist_ok=True)
    names = {lesson.name for lesson in LESSONS.glob("*.ipynb")}
    for page in PAGES.glob("*.ipynb"):
        if page.name not in names:
            page.unlink()
    for name in names:
        page = PAGES / name
        if not page.exists() or page.read_bytes() != (LESSONS / name).read_bytes():
            shutil.copyfile(LESSONS / name, page)


def _copy_explorer(app: Sphinx, failure: Exception | None) -> None:
    """The page to play with is shipped in the package; the site has a copy."""
    if failure is None and app.builder.name == "html":
        ignored = shutil.ignore_patterns("*.py", "__pycache__")
        shutil.copytree(EXPLORER, Path(app.outdir) / "explorer", dirs_exist_ok=True, ignore=ignored)


def setup(app: Sphinx) -> dict[str, bool]:
    copy_lessons()
    app.connect("build-finished", _copy_explorer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
