"""The transcripts of ``dpmodel.audit``, watched from inside: charges, reads and times as well as draws."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dpmodel import linalg as solving
from dpmodel.audit import transcript
from dpmodel.audit.transcript import Draw  # noqa: F401
from dpmodel.exact import model as systems
from dpmodel.marks import vault
from dpmodel.privacy import Budget


@dataclass
class Transcript(transcript.Transcript):
    """That of ``dpmodel.audit``, with a ``clock`` that goes by the data and the place that each draw came from."""

    clock: float = 0.0

    def _draw(self, distribution: str, values: Any, *arguments: Any, **named: Any) -> Any:
        self.spend(values)
        answer = super()._draw(distribution, values, *arguments, **named)
        self.draws[-1].callers = _callers()
        return answer

    def spend(self, values: Any) -> None:
        """A private step takes as long as its data say."""
        self.clock += 1.0 + float(np.abs(np.asarray(values, dtype=float)).sum()) % 7.0

    def replay(self, leak: bool = False) -> Replay:
        return Replay(self.seed, draws=self.draws, leak=leak)


@dataclass
class Replay(transcript.Replay):
    """The same of the second run."""

    clock: float = 0.0
    spend = Transcript.spend

    def _draw(self, distribution: str, values: Any, *arguments: Any, **named: Any) -> Any:
        self.spend(values)
        return super()._draw(distribution, values, *arguments, **named)


_ROOM = str(Path(vault.__file__).parents[1]) + os.sep


def _callers() -> frozenset[str]:
    frame, found = sys._getframe(1), set()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_ROOM):
            found.add(f"{file[len(_ROOM) :]}:{frame.f_code.co_name}")
        frame = frame.f_back
    return frozenset(found)


@contextmanager
def watched(source: Transcript) -> Iterator[None]:
    """Notes charges and reads in ``source.events``, and makes all clocks run by what the private steps take."""

    def charge(self: Any, *given: Any, **named: Any) -> Any:
        source.events.append("charge")
        return Budget_charge(self, *given, **named)

    def unseal(parameter: Any) -> Any:
        source.events.append(f"read {parameter.name()}")
        entries = vault_unseal(parameter)
        source.spend(getattr(entries, "data", entries))
        return entries

    def reading(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def read_rows(self: Any) -> Any:
            rows = read(self)
            if id(self._rows) not in own:  # made up for a forecast, or a part of what was read
                return rows
            source.events.append("read rows")
            for part in rows if isinstance(rows, tuple) else (rows,):
                source.spend(getattr(part, "data", part))
            return rows

        return read_rows

    def now() -> float:
        source.clock += 2.0**-10
        return source.clock

    own: set[int] = set()

    def execute(model: Any, *given: Any, **named: Any) -> Any:
        own.add(id(model._rows))
        return run(model, *given, **named)

    run = solving.execute
    Budget_charge, vault_unseal = Budget.charge, vault.unseal
    with mock.patch.object(Budget, "charge", charge), mock.patch.object(vault, "unseal", unseal):
        kinds = (systems.PrivateVectors, systems.PrivateInequalities, systems.PrivatePoints)
        patches = [mock.patch.object(kind, "read_rows", reading(kind.read_rows)) for kind in kinds]
        patches.append(mock.patch("time.perf_counter", now))
        patches.append(mock.patch.object(solving, "execute", execute))
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()
