"""A conversation between the policy and a simulated user, with tools in between.

The user speaks first and after every text of the policy, until it writes a marker, the policy stops answering, the
steps are used up, or the resources say that it cannot go on. The turn that ends it is not shown to the policy; how it
ended is kept in the response's metadata, where a verifier reads it with `Ending.of(response)`.

What the resources may define:

- `user(task) -> UserRole`: who the user is. Required.
- `async follow(items) -> str | None`: told everything so far, at the beginning and after each turn; a text ends the
  conversation with that reason.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel, PositiveInt, ValidationError

from ludus.agent import Agent, AgentConfig
from ludus.agents.simulated_user import Said, SimulatedUser, UserCall
from ludus.agents.user import OUT_OF_SCOPE, STOP, TRANSFER, UserRole
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.model import Model
from ludus.models import open_model
from ludus.response import Item, Response, function_call_output, is_message, texts_of
from ludus.runtime.encoding import encode
from ludus.tools import error_text

#: Why a conversation stopped that the user ended.
ENDS = {STOP: "user_stop", TRANSFER: "transfer", OUT_OF_SCOPE: "out_of_scope"}

#: What the policy sees of a call that came with another one where the task wants one at a time.
NOT_CARRIED_OUT = error_text("one call at a time: this one was not carried out")


class Ending(BaseModel):
    """How a conversation ended: why, with which last words of the user, and what the user did with its own tools."""

    reason: str
    closing: str = ""
    mask: str | None = None
    user_turns: int = 0
    user_calls: list[UserCall] = []

    @property
    def by_user(self) -> bool:
        """Whether the user ended it, as it should be."""
        return self.reason in ENDS.values()

    @classmethod
    def of(cls, response: Response) -> Ending | None:
        """Read it from a response; None where the conversation has no proper end."""
        metadata = response.data.get("metadata")
        written = metadata.get("conversation") if isinstance(metadata, dict) else None
        try:
            return cls.model_validate_json(written) if isinstance(written, str) else None
        except ValidationError:
            return None


class ConversationAgent(Agent):
    """Lets the policy and a simulated user talk.

    Stop reasons: `user_stop`, `transfer` and `out_of_scope` (the user's markers), `max_steps`, `no_answer` (a turn of
    the policy held neither text nor a call), whatever the provider gave for an incomplete answer, `user_failure` (the
    user could not speak; the rollout is masked), and what the resources say. A user that cannot be reached is a
    failure in the stage `user`.
    """

    class Config(AgentConfig):
        """Settings of the conversation."""

        #: Who plays the user: a model as on the command line, or a block with its settings. Null is the policy itself.
        user: str | dict[str, Any] | None = None

        #: What each request to it holds besides the conversation, such as `{temperature: 1.0}`.
        user_responses_create_params: dict[str, Any] = {}

        #: How often it is asked for a message before it counts as unable to speak.
        user_attempts: PositiveInt = 3

        #: How many requests one of its turns may take where it has tools.
        user_max_calls: PositiveInt = 8

        #: Whether the user speaks first.
        user_starts: bool = True

        #: How many answers the policy may give. After a text in the last one the user may still end the conversation.
        max_steps: PositiveInt = 50

    config: Config
    continues = True
    _model: Model | None = None

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Start the model that plays the user."""
        if self.config.user is None:
            yield self
            return
        async with open_model(self.config.user) as model:
            ready = copy.copy(self)
            ready._model = model
            yield ready

    async def act(self, episode: Episode) -> str:
        """Play one rollout, from wherever its items stand."""
        config = self.config
        if config.user is not None and self._model is None:  # or the policy would talk with itself unnoticed
            raise Failure("no_user", "the model that plays the user is not open: play inside `agent.share()`")
        user = SimulatedUser(
            _role(episode),
            self._model or episode.model,
            episode,
            params=config.user_responses_create_params,
            attempts=config.user_attempts,
            max_calls=config.user_max_calls,
        )
        if len(episode.items) > len(episode.task.input) and (before := Ending.of(episode.response)) is not None:
            user.remember(before.user_calls, before.user_turns)
        try:
            reason, closing = await self._talk(episode, user)
        finally:
            user.forget()
        ending = Ending(reason=reason, closing=closing, mask=episode.mask, user_turns=user.turns, user_calls=user.calls)
        episode.note(conversation=encode(ending.model_dump()).decode())
        return reason

    async def _talk(self, episode: Episode, user: SimulatedUser) -> tuple[str, str]:
        """Why it stopped, and the user's last words if they were a marker."""
        turn, calls = whose_turn(episode.items, self.config.user_starts)
        if reason := await _over(episode):
            return reason, ""
        if calls:
            await _run(episode, calls)
            if reason := await _over(episode):
                return reason, ""
        if turn == "user" and (end := await _user_turn(episode, user)):
            return end
        if turn == "nobody":
            said = Said.of(texts_of(episode.items[-1]))
            return ENDS[said.marker or STOP], said.text
        for step in range(len(episode.calls) + 1, self.config.max_steps + 1):
            response = await episode.ask()
            if response.incomplete_reason is not None:
                return response.incomplete_reason, ""  # calls of a cut answer may be cut themselves: none is run
            if reason := await _over(episode):
                return reason, ""
            if calls := response.function_calls:
                if step == self.config.max_steps:
                    break
                await _run(episode, calls)
                if reason := await _over(episode):
                    return reason, ""
            elif not response.output_text.strip():
                return "no_answer", ""
            elif end := await _user_turn(episode, user):
                return end
        return "max_steps", ""


def whose_turn(items: list[Item], user_starts: bool = True) -> tuple[str, list[Item]]:
    """Who goes on with a conversation (`user`, `policy`, or `nobody` once it was ended), and the calls that wait."""
    answered = {item.get("call_id") for item in items if item.get("type") == "function_call_output"}
    calls = [item for item in items if item.get("type") == "function_call" and item.get("call_id") not in answered]
    said = [item for item in items if item.get("role") not in ("system", "developer")]
    if calls:
        return "policy", calls
    if not said:
        return ("user" if user_starts else "policy"), []
    last = said[-1]
    if last.get("role") == "user":
        return ("nobody" if Said.of(texts_of(last)).marker else "policy"), []
    return ("user" if is_message(last) else "policy"), []


async def _user_turn(episode: Episode, user: SimulatedUser) -> tuple[str, str] | None:
    """Let the user speak; an end if that was the last of it."""
    said = await user.speak()
    if said is None:
        episode.mask = f"the simulated user {user.problem}"
        return "user_failure", ""
    if said.marker is not None:
        return ENDS[said.marker], said.text
    episode.say({"role": "user", "content": said.text})
    reason = await _over(episode)
    return (reason, "") if reason else None


async def _run(episode: Episode, calls: list[Item]) -> None:
    """Run the calls of a turn: all of them, or the first where the task wants one at a time."""
    one = episode.params.get("parallel_tool_calls") is False
    await episode.run_tools(calls[:1] if one else calls)
    if one:
        episode.say(*(function_call_output(call["call_id"], NOT_CARRIED_OUT) for call in calls[1:]))


async def _over(episode: Episode) -> str | None:
    follow = getattr(episode.resources, "follow", None)
    return await episode.step("agent", episode.limits.tool, follow(episode.items)) if follow is not None else None


def _role(episode: Episode) -> UserRole:
    """Who the user is, by the resources."""
    user = getattr(episode.resources, "user", None)
    if user is None:
        cause = f"{type(episode.resources).__name__} does not define user(task), which the conversation agent asks for"
        raise Failure("no_user", cause)
    role: UserRole = user(episode.task)
    return role
