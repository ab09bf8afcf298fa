"""A headless Chromium whose every request and every console message is kept."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
DESKTOP = {"width": 1200, "height": 900}
PHONE = {"width": 390, "height": 844}


def browser_path() -> str:
    """The browser of this machine; without one a test is skipped, and fails in CI."""
    named = os.environ.get("INFINITY_TEST_BROWSER")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"none of {', '.join(NAMES)} is on PATH; Debian: apt-get install chromium"
        if os.environ.get("INFINITY_TEST_COMPLETE"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    """One browser process."""
    path = browser_path()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True, kw_only=True)
class Visit:
    """One page of a server, with what happened behind it."""

    page: Page
    base_url: str
    urls: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> set[str]:
        """Hosts that the browser asked, other than the server."""
        asked = {urlsplit(url).netloc for url in self.urls if not url.startswith("data:")}
        return asked - {urlsplit(self.base_url).netloc}

    def go(self, path: str) -> None:
        self.page.goto(self.base_url + path)

    def picture(self, name: str) -> None:
        """Keep a screenshot of the whole page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"), full_page=True)

    def is_too_wide(self) -> bool:
        """Whether the page has to be scrolled sideways."""
        found = self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        return bool(found)


@contextmanager
def visiting(
    browser: Browser,
    base_url: str,
    *,
    size: Mapping[str, int] = DESKTOP,
    is_dark: bool = False,
) -> Iterator[Visit]:
    """A fresh profile."""
    with browser.new_context(
        viewport={"width": size["width"], "height": size["height"]},
        color_scheme="dark" if is_dark else "light",
    ) as context:
        visit = Visit(page=context.new_page(), base_url=base_url)

        def hear(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                visit.complaints.append(message.text)

        visit.page.on("console", hear)
        visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        context.on("request", lambda request: visit.urls.append(request.url))
        visit.page.set_default_timeout(20_000)
        yield visit
