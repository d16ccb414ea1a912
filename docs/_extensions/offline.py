"""No page of the site may load anything from elsewhere: a build in which one would is a failure."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

# What a browser fetches without being asked. A link that a reader may click on is none of it.
LOADED = re.compile(
    r"""<(?:script|link|img|iframe|source|video|audio|object|embed)\b[^>]*?\s(?:src|srcset|href|data)\s*=\s*["']?(?:https?:)?//
    |@import\s+(?:url\()?["']?(?:https?:)?//
    |\burl\(\s*["']?(?:https?:)?//
    |\bimport\s*\(?\s*["']https?://""",
    re.IGNORECASE | re.VERBOSE,
)


def outside(site: Path) -> list[str]:
    """File and text of everything under ``site`` that a browser would fetch from elsewhere."""
    found = []
    for page in sorted(site.rglob("*")):
        if page.suffix in (".html", ".css", ".js", ".svg"):
            found += [
                f"{page.relative_to(site)}: {hit[0]}" for hit in LOADED.finditer(page.read_text(errors="replace"))
            ]
    return found


def _refuse(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html" and (found := outside(Path(app.outdir))):
        raise ExtensionError("pages load from elsewhere:\n" + "\n".join(found))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", _refuse, priority=900)  # after whatever else is copied
    return {"parallel_read_safe": True, "parallel_write_safe": True}
