"""The documentation site builds without a warning, has every public name, and loads nothing from elsewhere."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOMS = ("dpmodel", "dpmodel.linalg", "dpmodel.learn", "dpmodel.mechanisms", "dpmodel.teach", "dpmodel.queries")

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
        for each in {*room.__all__, *getattr(room, "_CLASSES", ())}:  # mechanisms are looked up when asked for
            module = getattr(getattr(room, each), "__name__", "")
            assert not known.isdisjoint({f"{name}.{each}", f"dpmodel.{each}", module}), each


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
