"""A real browser for the tests of the page: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> str | None:
    """The browser of this machine, if there is one."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        opened = playwright.chromium.launch(executable_path=program(), args=options)
        try:
            yield opened
        finally:
            opened.close()


class Page:
    """A tab, and what it did: the addresses that it asked for, and what went wrong."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.tab = self.context.new_page()
        self.tab.set_default_timeout(60_000)
        self.asked: list[str] = []
        self.errors: list[str] = []
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def wait_for(self, selector: str, text: str) -> None:
        """Until an element has a text that fits a pattern, seen or only heard."""
        self.tab.locator(selector, has_text=re.compile(text)).wait_for(state="attached")

    def hosts(self) -> set[str]:
        """Where it has asked for something."""
        return {f"{parts.scheme}://{parts.hostname}" for parts in map(urlsplit, self.asked)}

    def close(self) -> None:
        self.context.close()
