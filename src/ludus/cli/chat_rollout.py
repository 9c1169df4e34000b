"""The terminal of `ludus chat`: prints a rollout while a person takes part in it, and reads what the person types."""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console

from ludus.agents.typed_calls import signature
from ludus.cli.keyboard import Keyboard
from ludus.cli.rollout_view import prompt_of
from ludus.cli.screen import emit, number, pretty, show_block, show_item, text
from ludus.game import Game, observation_items
from ludus.model import Request
from ludus.resources import Resources
from ludus.response import Item

_COMMANDS = {
    "/tools": "list the tools with their parameters",
    "/task": "show the row: the prompt and the fields that the verifier reads",
    "/paste": "begin a text of several lines, which a line /end ends",
    "/verify": "end the rollout and see the verdict (or Ctrl-D)",
    "/quit": "leave without a verdict (or Ctrl-C)",
    "/help": "this list",
}
_HELP_AS_MODEL = {
    "NAME key=value ...": "call a tool",
    "/call NAME {...}": "call a tool with these arguments, even if they are invalid",
    "/say TEXT": "answer with text that looks like a call or a command",
    "any other text": "your answer, which ends the rollout",
    "several lines": "a line that ends with \\ goes on; a block that begins with ``` ends with ```",
}
_HELP_IN_GAME = {"any text": "your move", "/say TEXT": "a move that looks like a command"}
_HELP_AS_USER = {
    "/say TEXT": "a message that looks like a command",
    "any other text": "the next message to the model",
    "several lines": "a line that ends with \\ goes on; a block that begins with ``` ends with ```",
}


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


class ChatScreen:
    """Prints a rollout while it is played, and reads what the person types."""

    def __init__(self, console: Console, keyboard: Keyboard, row: dict[str, Any], *, as_model: bool) -> None:
        self.console = console
        self.row = row
        self.tools: list[dict[str, Any]] = []
        self.game: Game | None = None
        self.left = False
        self._keyboard = keyboard
        self._shown = self._steps_shown = 0
        self._help = {**(_HELP_AS_MODEL if as_model else _HELP_AS_USER), **_COMMANDS}
        self._as_model = as_model
        self._prompt = "model> " if as_model else "you> "

    def watch(self, resources: Resources) -> None:
        """Show the rewards if the resources are a game, and offer help on moves if the game has no tools."""
        if isinstance(resources, Game):
            self.game = resources
            if self._as_model and not resources.toolbox:
                self._help = {**_HELP_IN_GAME, **_COMMANDS}

    def follow(self, request: Request) -> None:
        """Show the new items of a request, and the tools with the first request."""
        first = self._shown == 0
        self.tools = [entry for entry in request.params.get("tools") or () if isinstance(entry, dict)]
        self.catch_up(request.input)
        if first and (self.tools or self.game is None):
            named = ", ".join(signature(entry) for entry in self.tools) or "none"
            self.say(f"tools: {named}")

    def catch_up(self, items: list[Item]) -> None:
        """Show the new rewards of a game, then the new items."""
        steps = self.game.steps if self.game is not None else []
        for step in steps[self._steps_shown :]:
            self.say(f"reward {number(step.reward)}")
        self._steps_shown = len(steps)
        for item in items[self._shown :]:
            show_item(self.console, item)
        self._shown = len(items)

    def show_end(self) -> None:
        """Show the last observation of a game, which the model never sees."""
        if self.game is not None and self.game.over:
            for item in observation_items(self.game.steps[-1].observation):
                show_item(self.console, item)

    def mark_shown(self, count: int) -> None:
        """Count the next items as shown: the person typed them, or they were printed on arrival."""
        self._shown += count

    async def read(self) -> str | None:
        """Read a line, handling /commands; None when the person wants the verdict."""
        while True:
            line = await self._keyboard.line(self._prompt)
            words = (line or "").split(maxsplit=1)
            if line is None or words[:1] == ["/verify"]:
                return None
            if words[:1] == ["/quit"]:
                self.left = True
                if task := asyncio.current_task():
                    task.cancel()
                await asyncio.sleep(0)  # raises CancelledError: the session closes as after Ctrl-C
            if not words:
                continue
            if words == ["/paste"]:
                if (typed := await self._pasted()).strip():
                    return f"/say {typed}"
            elif not self._run_command(words[0]):
                return (await self._continued(line)).strip()

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

    def _run_command(self, word: str) -> bool:
        """Run a command of `ludus chat`; False if the word is not one."""
        if word == "/tools":
            for entry in self.tools:
                emit(self.console, text(signature(entry), "bold yellow"))
                show_block(self.console, text(f"{entry.get('description', '')}\n{pretty(entry.get('parameters'))}"))
        elif word == "/task":
            for item in prompt_of(self.row):
                show_item(self.console, item)
            fields = {key: value for key, value in self.row.items() if key != "responses_create_params"}
            show_block(self.console, text(pretty(fields)))
        elif word == "/help":
            for name, meaning in self._help.items():
                self.say(f"{name:<20}{meaning}")
        elif word.startswith("/") and word[1:].isalpha() and word not in ("/call", "/say"):
            self.say(f"unknown command {word}: /help lists commands, /say sends any text")
        else:
            return False
        return True

    def show_answer(self, items: list[Item]) -> None:
        """Print an answer of the model."""
        for item in items:
            show_item(self.console, item)

    def waiting(self, name: str) -> AbstractContextManager[Any]:
        """Show that the person waits for `name`."""
        return self.console.status(text(f"waiting for {name}", "dim"))

    def say(self, line: str) -> None:
        """Print a message of `ludus chat` itself, dimmed."""
        emit(self.console, text(line, "dim"))
