"""A rollout in which a person takes part: as the model, or as the user who goes on talking to one.

Both are ordinary rollouts. A person who plays the model is a `Model`; a person who watches one sits behind it. The
environment's own agent drives either, so that its loop is the one that a collection would run.
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
from ludus.cli.calls import Call, read_turn, signature
from ludus.cli.keyboard import Keyboard
from ludus.cli.rollout_view import prompt_of
from ludus.cli.screen import emit, number, pretty, show_block, show_item, text
from ludus.episode import Episode
from ludus.errors import Interrupt
from ludus.game import Game, spoken
from ludus.model import Model, Request
from ludus.resources import Resources
from ludus.response import Item, Response, function_call, message

_COMMANDS = {
    "/tools": "what can be called, with parameters",
    "/task": "the row: what is asked and what the verifier reads",
    "/verify": "end here and see the verdict (Ctrl-D does the same)",
    "/quit": "leave without a verdict (Ctrl-C does the same)",
    "/help": "this list",
}
_PLAYER = {
    "NAME key=value ...": "call a tool",
    "/call NAME {...}": "call it with arguments exactly as written, right or wrong",
    "/say TEXT": "answer with a text that looks like a call or a command",
    "any other text": "the answer, which ends the rollout",
}
_GAMER = {"any text": "your move, as the game asks for it", "/say TEXT": "a move that looks like a command"}
_TALKER = {"/say TEXT": "a text that looks like a command", "any other text": "the next message to the model"}


class EndOfPlay(Interrupt):
    """The person asks for the verdict."""


class Conversation:
    """What has been shown so far, and what the person may type at any time."""

    def __init__(self, console: Console, keyboard: Keyboard, row: dict[str, Any], *, plays: bool) -> None:
        self.console = console
        self.row = row
        self.tools: list[dict[str, Any]] = []
        self.game: Game | None = None
        self.left = False
        self._keyboard = keyboard
        self._shown = self._steps_shown = 0
        self._help = {**(_PLAYER if plays else _TALKER), **_COMMANDS}
        self._plays = plays
        self._prompt = "model> " if plays else "you> "

    def watch(self, resources: Resources) -> None:
        """Follow the rewards of a game, and speak of moves where there are no tools to call."""
        if isinstance(resources, Game):
            self.game = resources
            if self._plays and not resources.toolbox:
                self._help = {**_GAMER, **_COMMANDS}

    def follow(self, request: Request) -> None:
        """Show what a request holds that was not shown yet, and before the first one which tools there are."""
        first = self._shown == 0
        self.tools = [entry for entry in request.params.get("tools") or () if isinstance(entry, dict)]
        self.catch_up(request.input)
        if first and (self.tools or self.game is None):
            named = ", ".join(signature(entry) for entry in self.tools) or "none"
            self.say(f"tools: {named}")

    def catch_up(self, items: list[Item]) -> None:
        """Show what is new: what the last step of a game earned, then the items."""
        steps = self.game.steps if self.game is not None else []
        for step in steps[self._steps_shown :]:
            self.say(f"reward {number(step.reward)}")
        self._steps_shown = len(steps)
        for item in items[self._shown :]:
            show_item(self.console, item)
        self._shown = len(items)

    def show_end(self) -> None:
        """Show what a game said with its last step, which the model never sees."""
        if self.game is not None and self.game.over:
            for item in spoken(self.game.steps[-1].observation):
                show_item(self.console, item)

    def pass_over(self, count: int) -> None:
        """Count items as shown that were typed here, or shown when they arrived."""
        self._shown += count

    async def read(self) -> str | None:
        """A line that is no command of ours; None when the person wants the verdict."""
        while True:
            line = await self._keyboard.line(self._prompt)
            words = (line or "").split(maxsplit=1)
            if line is None or words[:1] == ["/verify"]:
                return None
            if words[:1] == ["/quit"]:
                self.left = True
                if playing := asyncio.current_task():
                    playing.cancel()
                await asyncio.sleep(0)  # where that is raised, and closes the session on its way out, like Ctrl-C
            if not words:
                continue
            if not self._obeyed(words[0]):
                return line.strip()

    def _obeyed(self, word: str) -> bool:
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
            self.say(f"there is no command {word}: /help lists them, /say sends any text")
        else:
            return False
        return True

    def say(self, line: str) -> None:
        """A line of ours, apart from what the rollout says."""
        emit(self.console, text(line, "dim"))


class PersonModel(Model):
    """A person at the keyboard in the place of a model."""

    name = "person"

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    async def respond(self, request: Request) -> Response:
        """Show what is new, and wait for a call or an answer."""
        conversation = self._conversation
        conversation.follow(request)
        if request.turn == 0 and conversation.game is not None and not conversation.tools:
            conversation.say("You play the model: type your move. /help lists more.")
        elif request.turn == 0:
            conversation.say("You play the model: call a tool (NAME key=value) or type your answer. /help lists more.")
        while True:
            line = await conversation.read()
            if line is None:
                raise EndOfPlay
            turn = read_turn(line, conversation.tools)
            if turn is None:
                conversation.say("Nothing to call: write /call NAME {...}. /tools lists the names.")
                continue
            conversation.pass_over(1)
            if isinstance(turn, Call):
                item = function_call(turn.name, turn.arguments, call_id=f"call_{request.turn}")
            else:
                item = message(turn, id=f"msg_{request.turn}")
            return Response.of(item, model=self.name)


class WatchedModel(Model):
    """A model whose every answer is shown when it comes."""

    def __init__(self, model: Model, conversation: Conversation) -> None:
        self.name, self.config, self.concurrency = model.name, model.config, model.concurrency
        self._model = model
        self._conversation = conversation

    async def respond(self, request: Request) -> Response:
        """Show what is new, then what the model makes of it."""
        conversation = self._conversation
        if is_users(request):  # it plays the simulated user as well, whose words are shown when the policy hears them
            return await self._model.respond(request)
        conversation.follow(request)
        with conversation.console.status(text(f"waiting for {self.name}", "dim")):
            response = await self._model.respond(request)
        for item in response.output:
            show_item(conversation.console, item)
        conversation.pass_over(len(response.output))
        return response

    async def start(self) -> None:
        """Start the model behind it."""
        await self._model.start()

    async def stop(self) -> None:
        """Stop the model behind it."""
        await self._model.stop()


class PersonPlays(Agent):
    """The environment's agent, which a person in the model's place may end at any time."""

    def __init__(self, agent: Agent, conversation: Conversation) -> None:
        super().__init__()
        self._agent = agent
        self._conversation = conversation

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """The same with the agent behind it opened."""
        async with self._agent.share() as agent:
            yield PersonPlays(agent, self._conversation)

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        self._conversation.watch(episode.resources)
        try:
            reason = await self._agent.act(episode)
        except EndOfPlay:
            reason = "ended_by_hand"
        self._conversation.catch_up(episode.items)
        self._conversation.show_end()
        return reason


class PersonTalks(Agent):
    """The environment's agent, played again for each message that the person adds, until the verdict is asked for."""

    def __init__(self, agent: Agent, conversation: Conversation) -> None:
        super().__init__()
        self._agent = agent
        self._conversation = conversation

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """The same with the agent behind it opened."""
        async with self._agent.share() as agent:
            yield PersonTalks(agent, self._conversation)

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        conversation = self._conversation
        conversation.watch(episode.resources)
        while True:
            reason = await _with_fresh_steps(self._agent, episode).act(episode)
            conversation.catch_up(episode.items)
            if conversation.game is not None:  # it is the game that the model talks with
                conversation.show_end()
                return reason
            if reason != "completed":
                conversation.say(f"the agent stopped: {reason}")
            said = await conversation.read()
            if said is None:
                return reason
            episode.say({"role": "user", "content": said.removeprefix("/say ")})
            conversation.pass_over(1)


def _with_fresh_steps(agent: Agent, episode: Episode) -> Agent:
    """The agent with all its steps still to go; one that goes on from the middle counts those of earlier messages."""
    steps = getattr(agent.config, "max_steps", None)
    if not agent.continues or steps is None:
        return agent
    fresh = copy.copy(agent)
    fresh.config = agent.config.model_copy(update={"max_steps": steps + len(episode.calls)})
    return fresh
