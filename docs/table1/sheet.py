"""A sheet of SVG: shapes and words by their coordinates, the same text for the same picture."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

# Told apart by the colour-blind, and by lightness (Okabe and Ito 2008).
BLUE, ORANGE, GREEN, GREY, PALE, INK = "#0072B2", "#D55E00", "#009E73", "#8A8A8A", "#ECECEC", "#222222"
Point = tuple[float, float]


class Sheet:
    """``title`` and ``words`` are what a screen reader says. Lengths in pixels, from the upper left corner."""

    def __init__(self, width: int, height: int, title: str, words: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(f"{title}. {words}", quote=True)}" '
            f'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#FFFFFF"/>',
        ]

    def _add(self, tag: str, inner: str | None = None, **attributes: object) -> None:
        told = " ".join(f'{name.replace("_", "-")}="{_plain(value)}"' for name, value in attributes.items())
        self._parts.append(f"<{tag} {told}/>" if inner is None else f"<{tag} {told}>{inner}</{tag}>")

    def box(
        self, x: float, y: float, w: float, h: float, fill: str = "none", stroke: str = "none", **more: object
    ) -> None:
        self._add("rect", x=x, y=y, width=w, height=h, fill=fill, stroke=stroke, **more)

    def line(self, points: Iterable[Point], colour: str = INK, width: float = 1.5, **more: object) -> None:
        """Through ``points``; ``stroke_dasharray="5 4"`` makes it dashed."""
        self._add("polyline", points=_path(points), fill="none", stroke=colour, stroke_width=width, **more)

    def area(self, points: Iterable[Point], fill: str = PALE, **more: object) -> None:
        self._add("polygon", points=_path(points), fill=fill, **more)

    def dot(self, at: Point, radius: float = 4, fill: str = INK, **more: object) -> None:
        self._add("circle", cx=at[0], cy=at[1], r=radius, fill=fill, **more)

    def arrow(self, start: Point, end: Point, colour: str = INK, width: float = 1.5) -> None:
        (x0, y0), (x1, y1) = start, end
        long = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        ux, uy = (x1 - x0) / long, (y1 - y0) / long
        bx, by, side = x1 - 8 * ux, y1 - 8 * uy, 3.5
        self.line([start, (bx, by)], colour, width)
        self.area([end, (bx - side * uy, by + side * ux), (bx + side * uy, by - side * ux)], colour)

    def words(self, x: float, y: float, text: str, anchor: str = "start", **more: object) -> None:
        self._add("text", escape(text), x=x, y=y, text_anchor=anchor, **more)

    def __str__(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


def _plain(value: object) -> str:
    """Numbers to a tenth of a pixel, the same on every machine."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value), quote=True)


def _path(points: Iterable[Point]) -> str:
    return " ".join(f"{_plain(float(x))},{_plain(float(y))}" for x, y in points)
