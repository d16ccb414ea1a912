"""What all figures share: matplotlib where it is installed, a figure without a window, a caption, inline SVG."""

from __future__ import annotations

import importlib
import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from dpmodel.errors import MissingExtraError, SpecificationError, install

# Colours that differ in lightness too (Okabe and Ito 2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B00", "#000000")
MARKERS = "osv^Dx*P"
_CHARACTERS = 15  # of a caption, in an inch


def require_matplotlib(instead: str = "") -> None:
    """Raise `MissingExtraError` unless matplotlib can be imported; ``instead`` : what has the same numbers as text."""
    try:
        importlib.import_module("matplotlib.figure")
        return
    except ImportError:
        pass
    raise MissingExtraError(
        "figures need matplotlib, which is not installed",
        why="it is an optional extra",
        remedy=install("plot", instead),
    )


@dataclass(frozen=True)
class Canvas:
    """``figure`` with its ``axes``; ``own`` : whether it was made here, or the axes are somebody else's."""

    figure: Any
    axes: Sequence[Any]
    own: bool

    def told(self, title: str, caption: str) -> Any:
        """Write title and caption; returns the figure."""
        width = self.figure.get_size_inches()[0]
        if self.own:
            self.figure.suptitle(title)
            text = _filled(caption, int(width * _CHARACTERS))
            self.figure.supxlabel(text, x=0.02, ha="left", fontsize="small")
        else:
            axes = self.axes[0]
            share = axes.get_position().width
            text = _filled(caption, max(int(width * share * _CHARACTERS), 30))
            axes.set_title(title)
            axes.annotate(text, (0, 0), (0, -40), "axes fraction", "offset points", va="top", fontsize="small")
        return self.figure


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False)  # names of mechanisms have some


def canvas(ax: Any = None, *, panels: int = 1, size: tuple[float, float] = (7.0, 4.6), instead: str = "") -> Canvas:
    """A figure with ``panels`` axes side by side, or ``ax`` and its figure.

    Raises
    ------
    MissingExtraError, SpecificationError
        Without matplotlib; for an ``ax`` that is none.
    """
    require_matplotlib(instead)
    if ax is None:
        figure = _picture()(figsize=(size[0] * (1 + 0.7 * (panels - 1)), size[1]), layout="constrained")
        return Canvas(figure, figure.subplots(1, panels, squeeze=False)[0].tolist(), own=True)
    if not hasattr(ax, "plot") or not hasattr(ax, "figure"):
        raise SpecificationError(f"ax of type {type(ax).__name__}", remedy="one matplotlib Axes, or leave it out")
    return Canvas(ax.figure, [ax], own=False)


@cache
def _picture() -> Any:
    """Figures that notebooks show without a backend; no state and no window."""

    def _repr_svg_(self: Any) -> str:
        return svg(self)

    return type("Picture", (importlib.import_module("matplotlib.figure").Figure,), {"_repr_svg_": _repr_svg_})


def is_figure(item: Any) -> bool:
    """Whether ``item`` is a figure or axes of matplotlib."""
    return hasattr(getattr(item, "figure", None) or item, "savefig")


def svg(figure: Any, prefix: str = "") -> str:
    """``figure`` as an ``<svg>`` element for a page: text stays text, nothing is loaded, the same figure gives the same
    text, and a screen reader says its title. ``prefix`` : before its ids, so that several fit one page."""
    figure = getattr(figure, "figure", None) or figure
    with importlib.import_module("matplotlib").rc_context({"svg.fonttype": "none", "svg.hashsalt": "dpmodel"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    if prefix:
        text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    told = (figure.get_suptitle() if hasattr(figure, "get_suptitle") else "") or "figure"
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(told, quote=True)}"', 1)
