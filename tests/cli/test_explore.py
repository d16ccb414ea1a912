"""``dpmodel explore``: where the page is, and that a browser is asked to open it."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import pytest

from dpmodel.cli import main


def test_the_path_is_that_of_a_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("opened"))
    assert main(["explore", "--path"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.is_file() and "<svg" in path.read_text()
    assert main(["explore", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(path), "url": path.as_uri()}


def test_a_browser_opens_a_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) is None)
    assert main(["explore"]) == 0
    assert opened[0].startswith("file://") and opened[0].endswith("/dpmodel/explorer/index.html")
    assert "Opened" in capsys.readouterr().out


def test_without_a_browser_it_says_what_to_open(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert main(["explore"]) == 2
    error = capsys.readouterr().err
    assert "no browser" in error and "index.html" in error
