"""One browser for all sessions of a worker: each session is a browser context with one page.

The page's clock stands still between actions and moves a second with each of them. So delays, animations and dates
follow from the actions alone, and `ludus verify` can replay them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from ludus import Failure
from ludus.errors import UserError
from ludus.runtime.deadline import queueing
from ludus_lab.browser.pages import Visit, url_of
from ludus_lab.needs import program, require

WIDTH, HEIGHT = 160, 210

#: How far the page's clock moves with each action, in milliseconds.
TICK = 1000

#: The longest that Chromium may take for one command, in milliseconds.
PATIENCE = 60_000

#: The longest that a session may wait for its turn, in seconds.
QUEUE = 900.0

_START, _PAUSE = datetime(2016, 12, 1, 12, tzinfo=UTC), datetime(2016, 12, 1, 13, tzinfo=UTC)

# The page starts its problem once and never again; the frame of counters around it is hidden.
_BEGIN = """seed => {
    core.EPISODE_MAX_TIME = 2147483647;
    Math.seedrandom(seed);
    core.startEpisodeReal();
    core.startEpisode = () => {};
    for (const id of ['reward-display', 'click-canvas', 'sync-task-cover'])
        document.getElementById(id).style.display = 'none';
}"""

# What a person sees by colour or picture only gets a role, so that it stands in the accessibility tree.
_LABEL = """() => {
    for (const link of document.querySelectorAll('.alink')) link.setAttribute('role', 'link');
    for (const icon of document.querySelectorAll('body span, body div, body i, body a')) {
        const label = icon.className || icon.id;
        if (icon.childElementCount || icon.textContent.trim() || !label) continue;
        if (icon.parentElement.closest('button, a, [role=button], [role=menuitem], [role=dialog]')) continue;
        if (!icon.hasAttribute('role')) icon.setAttribute('role', 'img');
        icon.setAttribute('aria-label', label);
    }
}"""

_RESULT = "() => [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL, WOB_REWARD_REASON]"


class Chromium:
    """A running browser. It is started again after it has died."""

    def __init__(self, playwright: Any) -> None:
        self._playwright = playwright
        self._browser: Any = None
        self._starting = asyncio.Lock()
        self._turns = asyncio.Semaphore(2 * (os.cpu_count() or 1))

    async def visit(self, page: str, seed: int) -> Any:
        """A page in a context of its own, with its problem begun."""
        from playwright.async_api import Error

        try:
            browser = await self._running()
            context = await browser.new_context(
                viewport={"width": WIDTH, "height": HEIGHT}, locale="en-US", timezone_id="UTC", accept_downloads=False
            )
            try:
                return await _begun(context, page, seed)
            except BaseException:
                await close(context)
                raise
        except Error as error:
            raise lost(error) from error

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until few other sessions use the browser: many at once would make all of them slow.

        The clocks of the step stand still meanwhile.
        """
        with queueing():
            try:
                await asyncio.wait_for(self._turns.acquire(), QUEUE)
            except TimeoutError:
                raise Failure("browser", f"the browser was busy with other sessions for {QUEUE:g} s") from None
        try:
            yield
        finally:
            self._turns.release()

    async def _running(self) -> Any:
        async with self._starting:
            if self._browser is None or not self._browser.is_connected():
                self._browser = await _start(self._playwright)
            return self._browser

    async def stop(self) -> None:
        """End the browser."""
        if self._browser is not None:
            with suppress(Exception):
                await self._browser.close()


@asynccontextmanager
async def chromium() -> AsyncIterator[Chromium]:
    """Start Playwright and a browser."""
    require("ludus_lab.browser")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        shared = Chromium(playwright)
        try:
            await shared._running()
            yield shared
        finally:
            await shared.stop()


async def observe(page: Any, note: str, with_picture: bool) -> tuple[str, bytes | None]:
    """Let a second pass. The accessibility tree after a note, and a screenshot if wanted."""
    await page.clock.run_for(TICK)
    await page.evaluate(_LABEL)
    tree = await page.locator("body").aria_snapshot(mode="ai", boxes=True)
    picture = await page.screenshot(timeout=PATIENCE) if with_picture else None
    return f"{note}\n{tree}" if note else tree, picture


async def result(page: Any) -> tuple[bool, float, str | None]:
    """Whether the page has ended its problem, its own reward, and its reason."""
    ended, reward, reason = await page.evaluate(_RESULT)
    return bool(ended), float(reward), None if reason is None else str(reason)


async def close(context: Any) -> None:
    """Close a context, also one whose browser has died."""
    with suppress(Exception):
        await context.close()


def lost(error: Exception) -> Failure:
    """The failure of a browser that does not answer as it should."""
    return Failure("browser", f"chromium failed: {str(error).partition(chr(10))[0]:.300}")


async def _begun(context: Any, page: str, seed: int) -> Any:
    context.set_default_timeout(PATIENCE)
    await context.route("**/*", Visit().answer)
    await context.clock.install(time=_START)
    await context.clock.pause_at(_PAUSE)
    tab = await context.new_page()
    await tab.goto(url_of(page))
    await tab.evaluate(_BEGIN, str(seed))
    return tab


async def _start(playwright: Any) -> Any:
    from playwright.async_api import Error

    path = program("chromium")
    # No name resolves, so that a request that slipped past the routes would reach nothing either.
    options = ["--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND", "--renderer-process-limit=64"]
    try:
        return await playwright.chromium.launch(executable_path=path, args=options, timeout=60_000)
    except Error as error:
        text = str(error).partition("\n")[0]
        raise UserError(f"{path} does not start: {text:.300}", "Install it with: apt-get install chromium") from error
