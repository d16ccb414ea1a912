"""What the theme leaves out for keyboards and screen readers: code can be focused, headings have a level, and a figure
that a cell draws is told by the cell's last line instead of by the name of its file."""

from __future__ import annotations

import ast
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def _complete(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    for part in ("body", "furo_navigation_tree"):
        if isinstance(text := context.get(part), str):
            text = text.replace("<pre>", '<pre tabindex="0">')
            context[part] = text.replace('role="heading">', 'role="heading" aria-level="2">')


def _name_figures(app: Sphinx, doctree: nodes.document, page: str) -> None:
    for image in doctree.findall(nodes.image):
        if not image.get("alt"):
            image["alt"] = _drawn_by(image)


def _drawn_by(image: nodes.image) -> str:
    """What draws the image: the last statement of the cell that it is an output of."""
    above: Any = image.parent
    while above is not None and "cell" not in above.get("classes", ()):
        above = above.parent
    code = next((block.astext() for block in above.findall(nodes.literal_block)), "") if above is not None else ""
    last = ast.unparse(ast.parse(code).body[-1]) if code else ""
    return f"Figure that this code draws: {last}" if last else "Figure"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", _name_figures)
    app.connect("html-page-context", _complete, priority=900)  # after the theme's own
    return {"parallel_read_safe": True, "parallel_write_safe": True}
