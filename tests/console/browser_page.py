"""EDGE: the Chromium of this machine, and a page in it that records all errors.

Needs the extra `browser` and a Chromium: Debian's package, or `playwright install chromium`.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from console.processes import Console
from semel_protocol.extras import install_command

LIMIT_MS = 20_000
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def why_not() -> str:
    """The missing program or package that the browser tests need; empty if there is none."""
    if importlib.util.find_spec("playwright") is None:
        return f"the extra `browser` is not installed: {install_command('browser')}"
    if CHROMIUM is None:
        return "no Chromium on this machine: apt install chromium, or any program `chromium` or `google-chrome`"
    return ""


class BrowserPage:
    """A page in a browser, with a record of all its errors."""

    def __init__(self, page: Any, console: Console) -> None:
        self.page, self.console = page, console
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.console.base):
            self.wrong.append(f"asked {request.url}")

    async def enter(self) -> None:
        """The first visit, with the token."""
        await self.page.goto(f"{self.console.base}#token={self.console.token}")
        try:
            await self.page.wait_for_selector(".figure", timeout=LIMIT_MS)
        except Exception as e:
            e.add_note(f"the page shows: {await self.page.inner_text('body')}; {self.wrong}")
            raise

    async def see(self, address: str, text: str) -> None:
        """Go to a page and wait for a text on it."""
        await self.page.evaluate("address => { location.hash = address }", address)
        main = self.page.locator(f'main[data-page="{address}"]')
        await main.get_by_text(text).first.wait_for(state="attached", timeout=LIMIT_MS)

    async def draw_ms(self) -> float:
        """The time of the last drawing of the timeline."""
        return float(await self.page.locator(".lanes canvas").get_attribute("data-ms") or 0)


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """A headless browser, closed at the end."""
    from playwright.async_api import async_playwright

    async with async_playwright() as tools:
        browser = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


async def eye_on(
    browser: Any, console: Console, *, width: int = 1280, height: int = 860, theme: str = "light"
) -> BrowserPage:
    """A new page of the browser, which has entered the console."""
    page = await browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
    made = BrowserPage(page, console)
    await made.enter()
    return made
