"""The seat of a person who takes part in a rollout: what the person has seen, and the commands that the person types.

`ludus chat` and Play of `ludus view` are two seats. A seat says how items are shown and how lines are read; which items
are new, the rewards of a game and the commands are the same in both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from ludus.agents.typed_calls import signature
from ludus.game import Game, observation_items
from ludus.model import Request
from ludus.resources import Resources
from ludus.response import Item

_AS_MODEL = {
    "NAME key=value ...": "call a tool",
    "/call NAME {...}": "call a tool with these arguments, even if they are invalid",
    "/say TEXT": "answer with text that looks like a call or a command",
    "any other text": "your answer, which ends the rollout",
}
_IN_GAME = {"any text": "your move", "/say TEXT": "a move that looks like a command"}
_AS_USER = {"/say TEXT": "a message that looks like a command", "any other text": "the next message to the model"}
_COMMANDS = {
    "/tools": "list the tools with their parameters",
    "/verify": "end the rollout and see the verdict",
    "/quit": "leave without a verdict",
    "/help": "this list",
}


class PersonSeat(ABC):
    """What a person sees of a rollout while it is played, and where the person types."""

    #: what this kind of seat offers besides, for `/help`
    more_help: dict[str, str] = {}

    def __init__(self, *, as_model: bool) -> None:
        self.as_model = as_model
        self.tools: list[dict[str, Any]] = []
        self.game: Game | None = None
        self._shown = self._steps_shown = 0

    @abstractmethod
    def show(self, items: list[Item]) -> None:
        """Show items."""

    @abstractmethod
    async def read(self) -> str | None:
        """What the person types next, commands left out; None when the person wants the verdict."""

    @abstractmethod
    def say(self, line: str) -> None:
        """Tell the person something."""

    @abstractmethod
    def waiting(self, name: str) -> AbstractContextManager[Any]:
        """While it holds, the person waits for a model."""

    @abstractmethod
    def leave(self) -> None:
        """End the rollout without a verdict; its session is closed."""

    def watch(self, resources: Resources) -> None:
        """The session has opened."""
        self.game = resources if isinstance(resources, Game) else None

    def follow(self, request: Request) -> None:
        """Show the new items of a request."""
        self.tools = [entry for entry in request.params.get("tools") or () if isinstance(entry, dict)]
        self.catch_up(request.input)

    def catch_up(self, items: list[Item]) -> None:
        """Show the new rewards of a game, then the new items."""
        steps = self.game.steps if self.game is not None else []
        for step in steps[self._steps_shown :]:
            self.say(f"reward {step.reward:.4g}")
        self._steps_shown = len(steps)
        self.show(items[self._shown :])
        self._shown = max(self._shown, len(items))

    def mark_shown(self, count: int) -> None:
        """Count the next items as shown: the person typed them, or they were shown on arrival."""
        self._shown += count

    def show_end(self) -> None:
        """Show the last observation of a game, which the model never sees."""
        if self.game is not None and self.game.over:
            self.show(observation_items(self.game.steps[-1].observation))

    def show_tool(self, entry: dict[str, Any]) -> None:
        """Describe a tool, for `/tools`."""
        self.say(f"{signature(entry)} {entry.get('description') or ''}".strip()[:2000])

    def run_command(self, word: str) -> bool:
        """Run the command that a line begins with; False if the word is no command."""
        if word == "/help":
            for name, meaning in self._help().items():
                self.say(f"{name:<20}{meaning}")
        elif word == "/tools":
            for entry in self.tools:
                self.show_tool(entry)
            if not self.tools:
                self.say("there are no tools")
        elif word == "/quit":
            self.leave()
        elif word.startswith("/") and word[1:].isalpha() and word not in ("/call", "/say"):
            self.say(f"unknown command {word}: /help lists commands, /say sends any text")
        else:
            return False
        return True

    def _help(self) -> dict[str, str]:
        if not self.as_model:
            own = _AS_USER
        else:
            own = _IN_GAME if self.game is not None and not self.game.toolbox else _AS_MODEL
        return {**own, **self.more_help, **_COMMANDS}
