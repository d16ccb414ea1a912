"""Where a warning belongs: the line of the caller's own code."""

from __future__ import annotations

import os
import sys

_BETWEEN = ("sklearn", "joblib")  # call estimators on behalf of somebody


def users_line() -> int:
    """Stack level, seen from the caller, of the nearest frame outside this package and what calls it for others."""
    frame, level, inside = sys._getframe(1), 1, os.path.dirname(__file__) + os.sep
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(inside) or str(frame.f_globals.get("__name__")).split(".")[0] in _BETWEEN
    ):
        frame, level = frame.f_back, level + 1
    return level
