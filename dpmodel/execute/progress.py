"""Progress of long work: a callable (stage, share done) that prints to the terminal, calls back, or is silent."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from dpmodel.errors import SpecificationError

Report = Callable[[str, float], None]


def reporter(progress: Any, verbose: bool) -> Report:
    """What ``solve(progress=...)`` means: a function is called, True (or verbose) prints, else silence.

    Raises
    ------
    SpecificationError
        When ``progress`` is neither.
    """
    if callable(progress):
        try:
            inspect.signature(progress).bind("stage", 0.0)
        except TypeError:
            raise SpecificationError(
                f"progress={getattr(progress, '__name__', type(progress).__name__)} does not take two arguments",
                why="it is called with the stage in words and the share done",
                remedy="def progress(stage, share): ...",
            ) from None
        except ValueError:  # builtins that do not tell their arguments
            pass
        report: Report = progress
        return report
    if progress is not None and not isinstance(progress, bool):
        raise SpecificationError(
            f"progress={type(progress).__name__}", remedy="progress=True, or a function (stage, share done)"
        )
    if progress or (progress is None and verbose):
        return _print
    return lambda stage, done: None


def _print(stage: str, done: float) -> None:
    # Stages, not times: how long a stage takes may depend on what is read in it.
    print(f"[dpmodel {done:4.0%}] {stage}", file=sys.stderr, flush=True)
