"""A rollout in which a person takes part: in place of the model, or as a user who sends the model more messages.

Both are ordinary rollouts, driven by the environment's own agent, so a person plays the same loop as a collection. A
person who plays the model is a `Model`. A watched model is wrapped in a model that shows its answers. A `PersonSeat` is
the terminal or the web page of the person.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ludus.agent import Agent
from ludus.agents.person_seat import PersonSeat
from ludus.agents.simulated_user import is_users
from ludus.agents.typed_calls import Call, Mistyped, read_turn
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import Interrupt
from ludus.model import Model, Request
from ludus.response import Response, function_call, message

A_WEEK = 7 * 24 * 3600.0


class EndedByHand(Interrupt):
    """The person ended the rollout and wants the verdict."""


class PersonModel(Model):
    """A person in place of a model."""

    name = "person"

    def __init__(self, screen: PersonSeat) -> None:
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
            if isinstance(turn, Mistyped):
                screen.say(f"there is no tool {turn.name}: did you mean {turn.meant}? /say TEXT sends any text.")
                continue
            screen.mark_shown(1)
            if isinstance(turn, Call):
                item = function_call(turn.name, turn.arguments, call_id=f"call_{request.turn}")
            else:
                item = message(turn, id=f"msg_{request.turn}")
            return Response.of(item, model=self.name)


class WatchedModel(Model):
    """A model whose answers are shown as they arrive."""

    def __init__(self, model: Model, screen: PersonSeat) -> None:
        self.name, self.config, self.concurrency = model.name, model.config, model.concurrency
        self._model = model
        self._screen = screen

    async def respond(self, request: Request) -> Response:
        """Show the new items, then the model's answer."""
        screen = self._screen
        if is_users(request):  # the model also plays the simulated user; its words are shown as input
            return await self._model.respond(request)
        screen.follow(request)
        with screen.waiting(self.name):
            response = await self._model.respond(request)
        screen.show(list(response.output))
        screen.mark_shown(len(response.output))
        return response

    async def start(self) -> None:
        """Start the watched model."""
        await self._model.start()

    async def stop(self) -> None:
        """Stop the watched model."""
        await self._model.stop()


class _PersonAgent(Agent):
    """The environment's agent in a rollout with a person."""

    def __init__(self, agent: Agent, screen: PersonSeat) -> None:
        super().__init__()
        self._agent = agent
        self._screen = screen

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Open the environment's agent."""
        async with self._agent.share() as agent:
            yield type(self)(agent, self._screen)

    def equip(self, shared: Any, resources: type[Any]) -> Any:
        """What the environment's agent makes of it."""
        return self._agent.equip(shared, resources)


class PersonAsModelAgent(_PersonAgent):
    """The environment's agent with a person as the model, who can end the rollout at any time."""

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


class PersonAsUserAgent(_PersonAgent):
    """The environment's agent with a person as the user: it runs again for each message until /verify."""

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


def seat_person(environment: Environment, seat: PersonSeat, model: Model | None) -> Model:
    """Let a person take part in the rollouts of an environment: as the user of a model, or without one as the model.

    A person has no deadline; every other step keeps its own. Returns the model to play with.
    """
    no_deadline: dict[str, Any] = {"rollout": A_WEEK}
    played: Model
    if model is None:
        played, no_deadline["model"] = PersonModel(seat), A_WEEK
        environment.agent = PersonAsModelAgent(environment.agent, seat)
    else:
        played = WatchedModel(model, seat)
        environment.agent = PersonAsUserAgent(environment.agent, seat)
    environment.limits = environment.limits.model_copy(update=no_deadline)
    return played
