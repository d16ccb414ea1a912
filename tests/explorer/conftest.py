"""The page in a headless browser of this machine; skipped with the reason where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from dpmodel.cli.commands import PAGE

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with the extra [e2e]")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is on PATH")
    # Its sandbox does not start for root, as in containers.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=found, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """The page, 1200 wide and light; the test fails if it logged an error or asked for anything but its own files."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    folder = PAGE.parent.as_uri()
    opened.on(
        "request",
        lambda asked: None if asked.url.startswith((folder, "data:")) else wrong.append(f"asked for {asked.url}"),
    )
    opened.goto(PAGE.as_uri())
    yield opened
    context.close()
    assert wrong == []
