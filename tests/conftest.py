"""Makes the helpers of this folder (models, walking, auditing) importable from every room's tests; a fixture of all."""

import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ["COLUMNS"] = "120"  # printed tables fit the terminal: the same one wherever the tests run
# Two processes, one thread each: more threads wait for each other.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
gc.disable()  # all that is made while tests are collected stays: a third of that time went into looking for garbage


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any reading of a private value is an error."""
    from dpmodel.marks import vault

    def refuse(parameter: Any) -> Any:
        raise AssertionError("a private value was read")

    monkeypatch.setattr(vault, "unseal", refuse)


@pytest.fixture(autouse=True)
def nothing_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint is given once a process."""
    from dpmodel.compile import refusals

    monkeypatch.setattr(refusals, "_hinted", True)
