"""Stub by the lead so that the package imports: its owner overwrites this file."""
from typing import Any


class Recognised: ...


def recognise(problem: Any) -> Recognised | None:
    return None
