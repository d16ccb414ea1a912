"""The documentation site builds without a warning, has every public name, and loads nothing from elsewhere."""

from __future__ import annotations

import html
import importlib
import inspect
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOMS = ("dpmodel", "dpmodel.linalg", "dpmodel.learn", "dpmodel.mechanisms", "dpmodel.teach", "dpmodel.released")

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="docs are not shipped with this copy")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("sphinx", "myst_nb", "furo"):
        pytest.importorskip(needed, reason="the extra [docs] is not installed")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html"]
    built = subprocess.run(
        [*command, "-D", "nb_execution_mode=off", "-d", out / "doctrees", DOCS, out / "html"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return out / "html"


@pytest.mark.slow
def test_every_page_is_built(site: Path) -> None:
    built = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    assert {page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")} <= built
    assert (site / "searchindex.js").stat().st_size > 10_000
    assert (site / "explorer" / "index.html").exists()


@pytest.mark.slow
def test_the_reference_has_every_public_name(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    known = {line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()} | set(ROOMS)
    for name in ROOMS:
        room = importlib.import_module(name)
        for each in {*room.__all__, *getattr(room, "_classes", dict)()}:  # mechanisms are looked up when asked for
            public = getattr(room, each)
            module = getattr(public, "__name__", "")
            if inspect.ismodule(public) and any(line.startswith(f"{module}.") for line in known):
                continue
            home = f"{getattr(public, '__module__', '')}.{module}"  # errors are documented where they live
            assert not known.isdisjoint({f"{name}.{each}", f"dpmodel.{each}", module, home}), each


@pytest.mark.slow
def test_figures_of_cells_are_told_by_what_draws_them(tmp_path: Path) -> None:
    """A notebook with two stored figures, one of a statement over several lines: no file name is an alt text."""
    pytest.importorskip("myst_nb", reason="the extra [docs] is not installed")
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    output = {"output_type": "display_data", "metadata": {}, "data": {"image/png": pixel, "text/plain": "<Figure>"}}
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [output]}
    sources = ["x = 1\nplan.plot()", 'a = 2\nrelease.plot_values(\n    "coef",\n    intervals=(a, "b"),\n)']
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# A"},
        *({**cell, "source": each} for each in sources),
    ]
    notebook = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 4}
    (tmp_path / "index.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(DOCS / '_extensions')!r})\n"
        "extensions = ['accessible', 'myst_nb']\nnb_execution_mode = 'off'\n"
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", tmp_path, tmp_path / "out"]
    subprocess.run(command, check=True, capture_output=True)
    told = [
        html.unescape(alt) for alt in re.findall(r'<img[^>]*alt="([^"]*)"', (tmp_path / "out/index.html").read_text())
    ]
    assert [each.removeprefix("Figure that this code draws: ") for each in told] == [
        "plan.plot()",
        "release.plot_values('coef', intervals=(a, 'b'))",
    ]


def test_what_would_be_loaded_from_elsewhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="the extra [docs] is not installed")
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    outside = importlib.import_module("offline").outside
    (tmp_path / "fine.html").write_text(
        '<script src="a.js"></script><a href="https://a.b">x</a><svg xmlns="http://www.w3.org/2000/svg"></svg>'
    )
    assert outside(tmp_path) == []
    (tmp_path / "page.html").write_text(
        '<script async src="https://a.b/c.js"></script><link rel="stylesheet" href="//a.b/c.css"><img alt="" src=http://a.b>'
    )
    (tmp_path / "style.css").write_text('@import "https://a.b/c.css"; p { background: url(https://a.b/c.png) }')
    assert len(outside(tmp_path)) == 5
