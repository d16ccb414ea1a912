"""What an audit found: one ``Finding`` a check and model, together a ``Report``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from dpmodel.text import TextTable, wrapped

_MOST_FAULTS = 3


@dataclass(frozen=True)
class Finding:
    """One check on one model.

    ``tried`` : what was run; ``faults`` : what is wrong, in words without private values; ``caught`` : planted fault ->
    whether the check found it. A check that misses a planted fault shows little: see ``weak``.
    """

    check: str
    model: str
    tried: str
    faults: tuple[str, ...] = ()
    caught: tuple[tuple[str, bool], ...] = ()

    @property
    def weak(self) -> tuple[str, ...]:
        """Planted faults that were missed."""
        return tuple(fault for fault, found in self.caught if not found)

    def __str__(self) -> str:
        return str(Report(self.model, (self,)))


@dataclass(frozen=True, repr=False)
class Report:
    """All findings about one mechanism. ``left_out`` : (model, why it was not audited)."""

    mechanism: str
    findings: tuple[Finding, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether something was tried and nothing is wrong."""
        return bool(self.findings) and not self.faults

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(f"{each.check}, {each.model}: {fault}" for each in self.findings for fault in each.faults)

    def __repr__(self) -> str:
        return f"<Report on {self.mechanism}: {len(self.findings)} checks, {len(self.faults)} faults>"

    def __str__(self) -> str:
        rows = []
        for each in self.findings:
            found = [f"{fault}: {'caught' if seen else 'missed'}" for fault, seen in each.caught]
            rows.append((each.check, each.model, "FAULT" if each.faults else "ok", each.tried, "; ".join(found) or "-"))
        lines = [
            str(TextTable(("check", "on", "", "tried", "planted faults"), rows, title=f"Audit of {self.mechanism}"))
        ]
        lines += [wrapped(f"{fault}", "  ") for fault in self.faults[: _MOST_FAULTS * 4]]
        for why in dict.fromkeys(why for _, why in self.left_out):
            models = ", ".join(model for model, reason in self.left_out if reason == why)
            lines.append(wrapped(f"left out: {models} ({why})", "  "))
        if not self.findings:
            lines.append("Nothing was tried: no model that it serves.")
        elif self.ok:
            lines.append("Nothing wrong was found. This is no proof: read the privacy argument.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        return {**plain, "ok": self.ok}

    def to_json(self, *, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)
