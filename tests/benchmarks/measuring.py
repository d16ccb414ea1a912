"""What the benchmark scripts share: quartiles, tables, the header that says how to repeat a run, exit status."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

PACKAGES = ("dpmodel", "cvxpy", "highspy", "clarabel", "opendp", "dp-accounting", "numpy", "scipy")


class Expectations:
    """Stated expectations and whether the run met them; ``close`` prints them and gives the exit status."""

    def __init__(self) -> None:
        self._lines: list[tuple[bool, str]] = []

    def expect(self, met: bool, what: str) -> None:
        self._lines.append((bool(met), what))

    def close(self) -> int:
        print()
        for met, what in self._lines:
            print(f"{'met     ' if met else 'NOT MET '} {what}")
        return 0 if all(met for met, _ in self._lines) else 1


def parser(description: str | None, **options: Any) -> argparse.ArgumentParser:
    """A parser with ``--name`` for every option: its default, whose type the given ones have; lists take several."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in options.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            made.add_argument(flag, action="store_true")
        elif isinstance(default, list):
            made.add_argument(flag, nargs="*", type=type(default[0]), default=default)
        else:
            made.add_argument(flag, type=type(default), default=default)
    return made


def data_path(*patterns: str) -> Callable[[str], Path]:
    """An argparse type: a file, or a folder below which some file has one of the ``patterns``; nothing else.

    A run that looked for its data in vain would print its other lines, and nobody would miss those of the data.
    """

    def checked(given: str) -> Path:
        path = Path(given)
        if not path.is_file() and not any(next(path.rglob(pattern), None) for pattern in patterns):
            raise argparse.ArgumentTypeError(f"{given}: no such file, and no folder with {' or '.join(patterns)}")
        return path

    return checked


def header(packages: Iterable[str] = PACKAGES) -> None:
    """Print the command that reproduces the run, the versions and the machine."""
    module = ".".join(Path(os.path.relpath(sys.argv[0])).with_suffix("").parts)
    print("command: python -m", module, shlex.join(sys.argv[1:]))
    found = []
    for name in packages:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} (not installed)" if name == "dpmodel" else f"{name} missing")
    print(f"versions: Python {platform.python_version()}, {', '.join(found)}")
    print(f"machine: {platform.machine()}, {os.cpu_count()} cores\n", flush=True)


def short(value: float | None, digits: int = 3) -> str:
    """``digits`` significant digits; a dash for nothing."""
    if value is None or np.isnan(value):
        return "-"
    return f"{value:.{digits}g}"


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """(median, first quartile, third quartile); nan without values. Infinite values are kept as such."""
    if not len(values):
        return (float("nan"),) * 3
    low, middle, high = np.quantile(np.asarray(values, dtype=float), [0.25, 0.5, 0.75], method="inverted_cdf")
    return float(middle), float(low), float(high)


def spread(values: Sequence[float], digits: int = 3) -> str:
    """ "median [first quartile, third quartile]"."""
    middle, low, high = quartiles(values)
    return f"{short(middle, digits)} [{short(low, digits)}, {short(high, digits)}]"


class Table:
    """Rows printed as soon as they are there, in columns of fixed width."""

    def __init__(self, *columns: tuple[str, int]) -> None:
        self._widths = [max(width, len(name)) for name, width in columns]
        names = [name for name, _ in columns]
        self.row(*names)
        print("  ".join("-" * width for width in self._widths))

    def row(self, *cells: object) -> None:
        texts = [str(cell) for cell in cells]
        line = "  ".join(text.ljust(width) for text, width in zip(texts, self._widths, strict=False))
        print(line.rstrip(), flush=True)


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The shortest of ``repeats``: other work on the machine only adds."""
    taken = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        taken.append(perf_counter() - start)
    return min(taken)
