"""Stub by the lead so that the package imports: its owner overwrites this file."""
from typing import Any


def regression_floors(model: Any, epsilon: float, delta: float) -> tuple[str, ...]:
    return ()
