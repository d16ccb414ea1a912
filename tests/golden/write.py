"""``python -m tests.golden.write [family ...]`` writes the files anew. One case a line, then one sentence a line."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "support")]

from .face import Case, numbers, skeleton, versions  # noqa: E402, F401
from .families import FAMILIES  # noqa: E402

STATEMENTS = HERE / "statements.json"


def line(observed: dict[str, Any]) -> str:
    """Without the sentences, which have a file of their own: a word changes one line there."""
    kept = {budget: {k: v for k, v in noted.items() if k != "statement"} for budget, noted in observed.items()}
    return json.dumps(kept, separators=(",", ":"))


def sentences(observed: dict[str, Any]) -> set[str]:
    return {skeleton(noted["statement"]) for noted in observed.values() if noted.get("statement")}


def read(family: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / f"{family}.json").read_text())
    return found


def statements() -> dict[str, list[str]]:
    return json.loads(STATEMENTS.read_text()) if STATEMENTS.exists() else {}


def write(family: str) -> None:
    rows, said = [f'"versions": {json.dumps(versions())}'], set()
    cases: list[Case] = FAMILIES[family]()
    for case in cases:
        started = time.process_time()
        observed = case.observed()
        print(f"{family}: {case.name} {time.process_time() - started:.2f} s", flush=True)
        rows.append(f"{json.dumps(case.name)}: {line(observed)}")
        said |= sentences(observed)
    (HERE / f"{family}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
    words = {**statements(), family: sorted(said)}
    STATEMENTS.write_text(json.dumps(dict(sorted(words.items())), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or FAMILIES:
        write(name)
