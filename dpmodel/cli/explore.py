"""``dpmodel explore``: a page on this disk to play with, in the browser; no server, nothing fetched."""

from __future__ import annotations

import argparse
import json
import webbrowser
from pathlib import Path

import dpmodel
from dpmodel.errors import SpecificationError

PAGE = Path(dpmodel.__file__).parent / "explorer" / "index.html"


def show_explorer(chosen: argparse.Namespace) -> None:
    """Open the page; with ``--path`` or ``--json`` only say where it is.

    Raises
    ------
    SpecificationError
        If there is no browser to open it in.
    """
    if chosen.json:
        print(json.dumps({"path": str(PAGE), "url": PAGE.as_uri()}, indent=2))
    elif chosen.path:
        print(PAGE)
    elif webbrowser.open(PAGE.as_uri()):
        print(f"Opened {PAGE} in the browser.")
    else:
        raise SpecificationError("no browser to open the page in", remedy=f"open {PAGE} in one")
