"""Engines that are not installed with the package, and the extra that brings them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dpmodel.errors import MissingExtraError, install


def engine(module: str, extra: str) -> Any:
    """The module, or an error that names its extra."""
    try:
        return import_module(module)
    except ImportError:
        pass
    raise MissingExtraError(
        f"{module.partition('.')[0]} is not installed",
        why="rows are read by the engine that holds them",
        remedy=install(extra),
    )
