"""A real Chromium for tests of the page, which notes every error and every request."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

# Debian's browser, as root too, and silent: it looks for nothing on the network by itself.
_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_SECONDS = 120.0


def browser_path() -> str | None:
    """Where a Chromium is, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser without a window."""
    with sync_playwright() as playwright:
        # Its socket has no room in a long TMPDIR, as a process with Spark has it.
        browser = playwright.chromium.launch(
            executable_path=browser_path(), args=_OPTIONS, env={**os.environ, "TMPDIR": "/tmp"}
        )
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A page that somebody looks at, and what went wrong on it."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.address = address
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 720})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WAIT_SECONDS * 1000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.elsewhere.append(request.url)

    def come(self, link: str) -> None:
        """Sign in with a link, and wait for the first view."""
        self.page.goto(link)
        self.page.wait_for_selector("#tab-logical")
        self.wait(lambda: bool(self.state("ready")), "the first message")

    def show(self, view: str) -> None:
        self.page.click(f"#tab-{view}")
        self.wait(lambda: self.page.evaluate("holdfast.viewName") == view, f"the view {view}")

    def state(self, path: str) -> Any:
        """Something of what the page was told."""
        return self.page.evaluate(f"holdfast.store.{path}")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.text_content() or ""

    def wait(self, until: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, f"{what} did not come; errors: {self.errors}"
            self.page.wait_for_timeout(50)

    def wait_text(self, selector: str, text: str) -> None:
        self.wait(lambda: text in self.text(selector), f"{text!r} in {selector}")

    def check(self) -> None:
        """No error in the console, no request to anywhere else."""
        assert self.errors == []
        assert self.elsewhere == []

    def close(self) -> None:
        self.context.close()
