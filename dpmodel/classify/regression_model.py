"""Stub by the lead so that the package imports: its owner overwrites this file."""
from typing import Any


def private_regression(recognised: Any, clip: float = float("inf")) -> Any:
    raise NotImplementedError
