"""The terminal of `ludus chat`: prints a rollout while a person takes part in it, and reads what the person types."""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console

from ludus.agents.person_seat import PersonSeat
from ludus.agents.typed_calls import signature
from ludus.cli.keyboard import Keyboard
from ludus.cli.rollout_view import prompt_of
from ludus.cli.screen import emit, pretty, show_block, show_item, text
from ludus.model import Request
from ludus.response import Item

_FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)$")


def _fence_after(fence: str, line: str) -> str:
    """The fence of the code block that is open after a line; empty if none is open. `fence` was open before it."""
    match = _FENCE.match(line)
    if match is None:
        return fence
    if not fence:
        return match[1]
    closes = match[1].startswith(fence) and not match[2].strip()
    return "" if closes else fence


class ChatScreen(PersonSeat):
    """Prints a rollout while it is played, and reads what the person types."""

    more_help = {
        "several lines": "a line that ends with \\ goes on; a block that begins with ``` ends with ```",
        "/paste": "start a text of several lines; a line /end ends it",
        "/task": "show the row: the prompt and the fields that the verifier reads",
        "Ctrl-D, Ctrl-C": "as /verify and /quit",
    }

    def __init__(self, console: Console, keyboard: Keyboard, row: dict[str, Any], *, as_model: bool) -> None:
        super().__init__(as_model=as_model)
        self.console = console
        self.row = row
        self.left = False
        self._keyboard = keyboard
        self._prompt = "model> " if as_model else "you> "

    def follow(self, request: Request) -> None:
        """Show the new items of a request, and the tools with the first request."""
        first = self._shown == 0
        super().follow(request)
        if first and (self.tools or self.game is None):
            named = ", ".join(signature(entry) for entry in self.tools) or "none"
            self.say(f"tools: {named}")

    def show(self, items: list[Item]) -> None:
        """Print items."""
        for item in items:
            show_item(self.console, item)

    async def read(self) -> str | None:
        """Read a line, handling /commands; None when the person wants the verdict."""
        while True:
            line = await self._keyboard.line(self._prompt)
            words = (line or "").split(maxsplit=1)
            if line is None or words[:1] == ["/verify"]:
                return None
            if words == ["/paste"]:
                if (typed := await self._pasted()).strip():
                    return f"/say {typed}"
            elif words[:1] == ["/task"]:
                self._show_task()
            elif words and not self.run_command(words[0]):
                return (await self._continued(line)).strip()
            await asyncio.sleep(0)  # raises CancelledError after /quit: the session closes as after Ctrl-C

    async def _pasted(self) -> str:
        """The lines up to `/end`, as they are."""
        lines = []
        while (line := await self._keyboard.line("... ")) is not None and line.strip() != "/end":
            lines.append(line)
        return "\n".join(lines)

    async def _continued(self, line: str) -> str:
        """A text that begins with a line and continues after a backslash, and while a fence is open."""
        lines, fence = [line], _fence_after("", line)
        while fence or line.endswith("\\"):
            if not fence:
                lines[-1] = line[:-1]
            following = await self._keyboard.line("... ")
            if following is None:
                break
            line = following
            lines.append(line)
            fence = _fence_after(fence, line)
        return "\n".join(lines)

    def leave(self) -> None:
        """Close the session, as Ctrl-C does."""
        self.left = True
        if task := asyncio.current_task():
            task.cancel()

    def show_tool(self, entry: dict[str, Any]) -> None:
        """Print a tool with its parameters."""
        emit(self.console, text(signature(entry), "bold yellow"))
        show_block(self.console, text(f"{entry.get('description', '')}\n{pretty(entry.get('parameters'))}"))

    def _show_task(self) -> None:
        self.show(prompt_of(self.row))
        fields = {key: value for key, value in self.row.items() if key != "responses_create_params"}
        show_block(self.console, text(pretty(fields)))

    def waiting(self, name: str) -> AbstractContextManager[Any]:
        """Show that the person waits for `name`."""
        return self.console.status(text(f"waiting for {name}", "dim"))

    def say(self, line: str) -> None:
        """Print a message of `ludus chat` itself, dimmed."""
        emit(self.console, text(line, "dim"))
