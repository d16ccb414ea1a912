"""A release as a small self-contained piece of HTML: inline styles, no scripts, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpmodel.text import array_text, escaped, html_table, number

_BOX = "border:1px solid #ccc;border-radius:4px;padding:8px 12px;font-family:sans-serif;max-width:60em"


def release_html(release_dict: Mapping[str, Any]) -> str:
    """Render the result of ``Release.to_dict()``.

    Parameters
    ----------
    release_dict : JSON types only, as after ``json.loads(release.to_json())``.

    Returns
    -------
    str
        One ``<div>`` element.

    Raises
    ------
    KeyError
        If ``mechanism``, ``guarantee``, ``accuracy`` or ``status`` is missing.
    """
    get = release_dict.get
    guarantee, accuracy = release_dict["guarantee"], release_dict["accuracy"]
    nothing_read = guarantee["epsilon"] == 0 and guarantee["delta"] == 0
    privacy = (
        "no private data was read"
        if nothing_read
        else f"epsilon {_show(guarantee['epsilon'])}, delta {_show(guarantee['delta'])}, "
        f"neighbors: {guarantee['neighbors']}"
    )
    alpha, beta = _show(accuracy["alpha"]), _show(accuracy["beta"])
    kind = "says nothing" if accuracy.get("vacuous") else "proved" if accuracy["proved"] else "forecast"
    spent = get("spent") or (0.0, 0.0)
    rows: list[tuple[str, object]] = [
        ("status", release_dict["status"]),
        ("value", _show(get("value"))),
        ("guarantee", privacy),
        ("record", guarantee["record"] or "-"),
        ("error bound", f"{alpha}, failure probability {beta} ({kind})"),
        ("constraints left out", accuracy["slack_rows"]),
        ("accuracy", accuracy["statement"] or "-"),
        ("spent", f"epsilon {_show(spent[0])}, delta {_show(spent[1])}"),
    ]
    rows += [("cell", line) for line in (get("classification") or ())[:5]]
    rows += [("note", line) for line in get("notes") or ()]
    sections = [html_table(("", ""), rows)]
    arrays = [(name, array_text(item)) for name, item in (get("variables") or {}).items()]
    duals = [(name, array_text(item)) for name, item in (get("duals") or {}).items()]
    times = [(name, _show(item)) for name, item in (get("timings") or {}).items()]
    for title, body in (("variables", arrays), ("duals", duals), ("seconds", times)):
        if body:
            sections.append(f"<details><summary>{title} ({len(body)})</summary>{html_table(('', ''), body)}</details>")
    heading = f"<strong>Private release by {escaped(release_dict['mechanism'])}</strong>"
    return f'<div style="{_BOX}">{heading}{"".join(sections)}</div>'


def _show(item: object) -> str:
    """Format a number of ``to_dict``, where inf and nan are strings."""
    return number(float(item) if isinstance(item, str) else item)
