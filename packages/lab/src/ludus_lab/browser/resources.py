"""A small web page in a real browser: the model reads its accessibility tree and acts with mouse and keyboard.

The model's text is only ever typed: it becomes no script, no selector and no address. Elements are named by the
references of the tree, keys by a fixed list.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

import ludus
from ludus import Resources, ResourcesConfig, Response, Verdict, tool
from ludus.errors import did_you_mean
from ludus.response import PicturedText
from ludus_lab.browser.chromium import HEIGHT, WIDTH, Chromium, chromium, close, lost, observe, result
from ludus_lab.browser.pages import PAGES

ENDED = "The page has taken your answer. Nothing more can be done: say that you are done."

Reference = Annotated[str, Field(pattern=r"^e[0-9]{1,6}$", description="the element's ref in the tree, such as e5")]
Across = Annotated[int, Field(ge=0, lt=WIDTH)]
Down = Annotated[int, Field(ge=0, lt=HEIGHT)]
Text = Annotated[str, Field(max_length=1000)]
Key = Literal[
    "Enter", "Tab", "Shift+Tab", "Escape", "Backspace", "Delete", "Space", "Home", "End", "PageUp", "PageDown",
    "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Control+A", "Control+Home", "Control+End",
]  # fmt: skip

#: Something that is done on a page.
Action = Callable[[Any], Awaitable[None]]

_FIELD = "element => [element.tagName, element.type || '', element.multiple === true]"

#: Inputs whose value is set at once: their keys depend on the browser's language.
_SET_AT_ONCE = ("date", "time", "month", "week", "datetime-local", "color", "range")


class MiniWob(Resources):
    """One page. Actions run one after another, and the page's first result is final."""

    class Task(ludus.Task):
        #: the name of the page
        page: str
        #: the seed of the page's problem
        seed: int = Field(0, ge=0, lt=2**31)

        @field_validator("page")
        @classmethod
        def _is_known(cls, page: str) -> str:
            if page not in PAGES:
                raise ValueError(f"{page!r:.60} is not a page. {did_you_mean(page, PAGES)}")
            return page

    class Config(ResourcesConfig):
        """Settings of what the model sees."""

        #: Whether `look` shows a screenshot beside the tree. The model must be able to read pictures.
        pictures: bool = False

    config: Config
    shared: Chromium
    _page: Any = None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Chromium]:
        async with chromium() as shared:
            yield shared

    async def open(self, task: Task) -> None:
        self._task, self._acting = task, asyncio.Lock()
        self.actions = 0
        self.result: tuple[bool, float, str | None] = (False, 0.0, None)

    @tool
    async def look(self) -> str:
        """Read the page: its accessibility tree with a ref and a box (left, top, width, height) for each element."""
        return await self._act(None, with_picture=self.config.pictures)

    @tool
    async def click(self, ref: Reference) -> str:
        """Click on an element of the tree."""
        return await self._act(lambda page: _click(page, ref))

    @tool
    async def click_at(self, x: Across, y: Down) -> str:
        """Click on a point of the page, which is 160 pixels wide and 210 high."""
        return await self._act(lambda page: page.mouse.click(x, y))

    @tool
    async def drag(self, from_x: Across, from_y: Down, to_x: Across, to_y: Down) -> str:
        """Press the mouse button on one point, move to another and release it there."""
        return await self._act(lambda page: _drag(page, (from_x, from_y), (to_x, to_y)))

    @tool
    async def type(self, ref: Reference, text: Text) -> str:
        """Replace the text of a field. In a list, choose the option of that name.

        Args:
            text: what to type; several options of a list that takes several are separated by a comma and a space
        """
        return await self._act(lambda page: _type(page, ref, text))

    @tool
    async def press(self, key: Key) -> str:
        """Press a key on the element that has the focus."""
        return await self._act(lambda page: page.keyboard.press(key))

    async def verify(self, task: Task, response: Response) -> Verdict:
        ended, reward, reason = self.result
        paid = min(1.0, max(0.0, reward)) if ended else 0.0
        verdict = Verdict(paid, page=task.page, ended=ended, actions=self.actions)
        if ended:
            verdict.values |= {"page_reward": reward, "page_reason": reason}
        return verdict

    async def close(self) -> None:
        if self._page is not None:
            await close(self._page.context)

    async def _act(self, action: Action | None, *, with_picture: bool = False) -> str:
        """Run an action, let a second pass, and show the page. Actions after the page's end do nothing.

        The page is opened with the first action: many bad answers have none, and a page costs a process of Chromium.
        """
        from playwright.async_api import Error

        async with self._acting, self.shared.turn():
            if self.result[0]:
                return ENDED
            if self._page is None:
                self._page = await self.shared.visit(self._task.page, self._task.seed)
            try:
                note = await self._tried(action) if action is not None else ""
                text, picture = await observe(self._page, note, with_picture)
                self.result = await result(self._page)
            except Error as error:
                raise lost(error) from error
            if self.result[0]:
                return ENDED
            return text if picture is None else PicturedText(text, _data_url(picture))

    async def _tried(self, action: Action) -> str:
        """Run an action. Returns what to tell the model if the page does not allow it."""
        from playwright.async_api import Error, TimeoutError

        self.actions += 1
        try:
            await action(self._page)
        except LookupError:
            return "error: there is no such element. The page is:"
        except TimeoutError:
            return "error: the element cannot be used now. The page is:"
        except Error as error:
            if not self._page.context.browser.is_connected() or self._page.is_closed() or "crash" in str(error):
                raise
            return "error: the page does not allow this on that element. The page is:"
        return ""


async def _element(page: Any, ref: str) -> Any:
    """The element of a reference. It must be there: on a busy machine a short wait would depend on the load."""
    element = page.locator(f"aria-ref={ref}")
    if not await element.count():
        raise LookupError(ref)
    return element


async def _click(page: Any, ref: str) -> None:
    await (await _element(page, ref)).click(force=True)


async def _drag(page: Any, start: tuple[int, int], end: tuple[int, int]) -> None:
    await page.mouse.move(*start)
    await page.mouse.down()
    await page.mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2, steps=4)
    await page.mouse.move(*end, steps=4)
    await page.mouse.up()


async def _type(page: Any, ref: str, text: str) -> None:
    element = await _element(page, ref)
    tag, kind, takes_several = await element.evaluate(_FIELD)
    if tag == "SELECT":
        labels = text.split(", ") if takes_several else [text]
        await element.select_option(label=labels, force=True)
    elif kind in _SET_AT_ONCE:
        await element.fill(text, force=True)
    else:
        await element.click(force=True)
        await page.keyboard.press("Control+A")
        await page.keyboard.press("Delete")
        await page.keyboard.type(text)


def _data_url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"
