"""A release as one self-contained page: nothing is loaded from anywhere, so it can be sent and kept."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpmodel.errors import MissingExtraError, SpecificationError
from dpmodel.release.plots.canvas import is_figure, require_matplotlib, svg
from dpmodel.text import escaped, html_table, number

if TYPE_CHECKING:
    from dpmodel.release.release import Release

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem;border-bottom:1px solid #ccc}
.told{font-size:1.1rem;border-left:4px solid #0072B2;padding:.3rem 1rem;background:#f3f8fb}
section{overflow-x:auto}svg{max-width:100%;height:auto}caption{text-align:left}
"""


def report(release: Release, file: str | os.PathLike[str], more: Sequence[Any]) -> Path:
    """Write the page; ``more`` : objects with an HTML form, and figures, each with a part of its own.

    Raises
    ------
    SpecificationError
        For something in ``more`` that has no HTML form.
    """
    added = [_added(item, place) for place, item in enumerate(more)]
    title = escaped(release.title)
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="told">{escaped(release.accuracy)}</p><p>{escaped(release.guarantee)}</p>',
        _part("Release", release._repr_html_()),
        _figures(release),
        _plan(release.plan),
        *added,
    ]
    page = (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body><main>\n{chr(10).join(parts)}\n</main></body></html>\n"
    )
    path = Path(file)
    path.write_text(page, encoding="utf-8")
    return path


def _part(title: str, content: str) -> str:
    return f"<section><h2>{escaped(title)}</h2>{content}</section>" if content else ""


def _figures(release: Release) -> str:
    """The figures of what the release holds, or what to install for them."""
    try:
        require_matplotlib()
    except MissingExtraError as error:
        return _part("Figures", f"<p>{escaped(f'{error.what}: {error.remedy}')}</p>")
    drawn = [release.plot_constraints()] if release.moved else []
    drawn += [release.plot_values(name) for name, array in release.variables.items() if array.size]
    return _part("Figures", "".join(svg(figure, f"f{place}") for place, figure in enumerate(drawn)))


def _plan(plan: Mapping[str, Any]) -> str:
    """The comparison, from the plain data that a release keeps of its plan."""
    candidates = plan.get("candidates", ())
    if not candidates:
        return ""
    rows = []
    for each in candidates:
        forecast = each["forecast"]
        chosen = "chosen" if each["mechanism"] == plan["chosen"] else ""
        words = each["reason"] if forecast is None else forecast["statement"]
        spends = (
            "-" if forecast is None else f"epsilon {number(forecast['epsilon'])}, delta {number(forecast['delta'])}"
        )
        rows.append((chosen, each["mechanism"], spends, words))
    table = html_table(("", "mechanism", "spends", "statement, or why not"), rows, footer=plan.get("lower_bounds", ()))
    return _part("Mechanisms compared", table)


def _added(item: Any, place: int) -> str:
    if is_figure(item):
        return _part("Figure", svg(item, f"m{place}"))
    if not hasattr(item, "_repr_html_"):
        raise SpecificationError(
            f"report: {type(item).__name__} has no HTML form",
            remedy="figures, and objects that notebooks show: a plan, a classification, a budget",
        )
    return _part(type(item).__name__, item._repr_html_())
