"""Mathematics as MathML, written while the site is built: browsers draw it without a script from the net."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)


def _markup(node: nodes.Element, *, block: bool) -> str:
    try:
        return str(tex2mathml(node.astext(), as_block=block))
    except MathError as error:
        LOGGER.warning("formula cannot be written as MathML: %s", error, location=node)
        return f"<code>{node.astext()}</code>"


def _inline(self: HTML5Translator, node: nodes.Element) -> None:
    self.body.append(_markup(node, block=False))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.Element) -> None:
    self.body.append(f'<div class="math">{_markup(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
