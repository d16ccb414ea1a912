"""What the theme leaves out for keyboards and screen readers: code can be focused, headings have a level."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def _complete(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    for part in ("body", "furo_navigation_tree"):
        if isinstance(text := context.get(part), str):
            text = text.replace("<pre>", '<pre tabindex="0">')
            context[part] = text.replace('role="heading">', 'role="heading" aria-level="2">')


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", _complete, priority=900)  # after the theme's own
    return {"parallel_read_safe": True, "parallel_write_safe": True}
