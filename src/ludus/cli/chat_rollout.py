"""A rollout in which a person takes part: in place of the model, or as a user who sends the model more messages.

Both are ordinary rollouts, driven by the environment's own agent, so `ludus chat` runs the same loop as a collection. A
person who plays the model is a `Model`; a model that is watched is wrapped in one that prints its answers.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rich.console import Console

from ludus.agent import Agent
from ludus.agents.simulated_user import is_users
from ludus.cli.keyboard import Keyboard
from ludus.cli.rollout_view import prompt_of
from ludus.cli.screen import emit, number, pretty, show_block, show_item, text
from ludus.cli.typed_calls import Call, read_turn, signature
from ludus.episode import Episode
from ludus.errors import Interrupt
from ludus.game import Game, observation_items
from ludus.model import Model, Request
from ludus.resources import Resources
from ludus.response import Item, Response, function_call, message

_COMMANDS = {
    "/tools": "list the tools with their parameters",
    "/task": "show the row: the prompt and the fields that the verifier reads",
    "/verify": "end the rollout and see the verdict (or Ctrl-D)",
    "/quit": "leave without a verdict (or Ctrl-C)",
    "/help": "this list",
}
_HELP_AS_MODEL = {
    "NAME key=value ...": "call a tool",
    "/call NAME {...}": "call a tool with these arguments, even if they are invalid",
    "/say TEXT": "answer with text that looks like a call or a command",
    "any other text": "your answer, which ends the rollout",
}
_HELP_IN_GAME = {"any text": "your move", "/say TEXT": "a move that looks like a command"}
_HELP_AS_USER = {"/say TEXT": "a message that looks like a command", "any other text": "the next message to the model"}


class EndedByHand(Interrupt):
    """The person ended the rollout and wants the verdict."""


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
                await asyncio.sleep(0)  # raises CancelledError, which closes the session like Ctrl-C
            if not words:
                continue
            if not self._run_command(words[0]):
                return line.strip()

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

    def say(self, line: str) -> None:
        """Print a message of `ludus chat` itself, dimmed."""
        emit(self.console, text(line, "dim"))


class PersonModel(Model):
    """A person at the keyboard in place of a model."""

    name = "person"

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    async def respond(self, request: Request) -> Response:
        """Show the new items, then read a call or an answer."""
        screen = self._screen
        screen.follow(request)
        if request.turn == 0 and screen.game is not None and not screen.tools:
            screen.say("You play the model: type your move. /help lists commands.")
        elif request.turn == 0:
            screen.say("You play the model: call a tool (NAME key=value) or type your answer. /help lists commands.")
        while True:
            line = await screen.read()
            if line is None:
                raise EndedByHand
            turn = read_turn(line, screen.tools)
            if turn is None:
                screen.say("/call needs a tool: write /call NAME {...}. /tools lists the tools.")
                continue
            screen.mark_shown(1)
            if isinstance(turn, Call):
                item = function_call(turn.name, turn.arguments, call_id=f"call_{request.turn}")
            else:
                item = message(turn, id=f"msg_{request.turn}")
            return Response.of(item, model=self.name)


class WatchedModel(Model):
    """A model whose answers are printed as they arrive."""

    def __init__(self, model: Model, screen: ChatScreen) -> None:
        self.name, self.config, self.concurrency = model.name, model.config, model.concurrency
        self._model = model
        self._screen = screen

    async def respond(self, request: Request) -> Response:
        """Show the new items, then the model's answer."""
        screen = self._screen
        if is_users(request):  # the model also plays the simulated user; its words are shown as input
            return await self._model.respond(request)
        screen.follow(request)
        with screen.console.status(text(f"waiting for {self.name}", "dim")):
            response = await self._model.respond(request)
        for item in response.output:
            show_item(screen.console, item)
        screen.mark_shown(len(response.output))
        return response

    async def start(self) -> None:
        """Start the watched model."""
        await self._model.start()

    async def stop(self) -> None:
        """Stop the watched model."""
        await self._model.stop()


class PersonAsModelAgent(Agent):
    """The environment's agent with a person as the model, who can end the rollout at any time."""

    def __init__(self, agent: Agent, screen: ChatScreen) -> None:
        super().__init__()
        self._agent = agent
        self._screen = screen

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Open the environment's agent."""
        async with self._agent.share() as agent:
            yield PersonAsModelAgent(agent, self._screen)

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        self._screen.watch(episode.resources)
        try:
            reason = await self._agent.act(episode)
        except EndedByHand:
            reason = "ended_by_hand"
        self._screen.catch_up(episode.items)
        self._screen.show_end()
        return reason


class PersonAsUserAgent(Agent):
    """The environment's agent with a person as the user: it runs again for each message until /verify."""

    def __init__(self, agent: Agent, screen: ChatScreen) -> None:
        super().__init__()
        self._agent = agent
        self._screen = screen

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Open the environment's agent."""
        async with self._agent.share() as agent:
            yield PersonAsUserAgent(agent, self._screen)

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        screen = self._screen
        screen.watch(episode.resources)
        while True:
            reason = await _with_fresh_steps(self._agent, episode).act(episode)
            screen.catch_up(episode.items)
            if screen.game is not None:  # in a game the observations take the place of user messages
                screen.show_end()
                return reason
            if reason != "completed":
                screen.say(f"the agent stopped: {reason}")
            message_text = await screen.read()
            if message_text is None:
                return reason
            episode.say({"role": "user", "content": message_text.removeprefix("/say ")})
            screen.mark_shown(1)


def _with_fresh_steps(agent: Agent, episode: Episode) -> Agent:
    """The agent with `max_steps` more steps: an agent that continues counts the steps of earlier messages too."""
    steps = getattr(agent.config, "max_steps", None)
    if not agent.continues or steps is None:
        return agent
    fresh = copy.copy(agent)
    fresh.config = agent.config.model_copy(update={"max_steps": steps + len(episode.calls)})
    return fresh
