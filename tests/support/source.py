"""The package's own source, parsed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import dpmodel

ROOT = Path(dpmodel.__file__).parent


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
