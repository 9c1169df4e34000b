"""A conversation between the policy and a simulated user, with tools in between.

The user speaks first, and again after every text of the policy. The conversation ends when the user writes a marker,
the policy stops answering, the steps are used up, or the resources end it. The policy does not see the user's last
turn. The response's metadata holds the ending; a verifier reads it with `Ending.of(response)`.

Methods of the resources:

- `user(task) -> UserRole`: who the user is. Required.
- `async follow(items) -> str | None`: called with all items at the beginning and after each turn. A text ends the
  conversation with that stop reason. Optional.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel, PositiveInt, ValidationError

from ludus.agent import Agent, AgentConfig
from ludus.agents.simulated_user import SimulatedUser, UserCall, UserMessage
from ludus.agents.user import OUT_OF_SCOPE, STOP, TRANSFER, UserRole
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.model import Model
from ludus.models import open_model
from ludus.response import Item, Response, function_call_output, is_message, texts_of
from ludus.runtime.encoding import encode
from ludus.tools import error_text

#: The stop reason for each marker of the user.
ENDS = {STOP: "user_stop", TRANSFER: "transfer", OUT_OF_SCOPE: "out_of_scope"}

#: The output of every call after the first in a turn, if the task has `parallel_tool_calls: false`.
NOT_CARRIED_OUT = error_text("one call at a time: this one was not carried out")


class Ending(BaseModel):
    """How a conversation ended: the stop reason, the user's last message if it had a marker, and the user's calls."""

    reason: str
    closing: str = ""
    mask: str | None = None
    user_turns: int = 0
    user_calls: list[UserCall] = []

    @property
    def by_user(self) -> bool:
        """Whether the user ended the conversation with a marker, which is the regular end."""
        return self.reason in ENDS.values()

    @classmethod
    def of(cls, response: Response) -> Ending | None:
        """The ending in a response's metadata; None without a valid one."""
        metadata = response.data.get("metadata")
        written = metadata.get("conversation") if isinstance(metadata, dict) else None
        try:
            return cls.model_validate_json(written) if isinstance(written, str) else None
        except ValidationError:
            return None


class ConversationAgent(Agent):
    """Runs a conversation between the policy and a simulated user.

    Stop reasons: `user_stop`, `transfer` and `out_of_scope` (the user's markers), `max_steps`, `no_answer` (a turn of
    the policy held neither text nor a call), the provider's reason for an incomplete answer, `user_failure` (the user's
    model gave no usable message; the rollout is masked), and the texts of `follow`. An unreachable user model is a
    failure in the stage `user`.
    """

    class Config(AgentConfig):
        """Settings of the conversation."""

        #: The user's model, as on the command line or as a block with settings. Null: the policy plays the user too.
        user: str | dict[str, Any] | None = None

        #: Parameters of each request to the user's model besides the conversation, such as `{temperature: 1.0}`.
        user_responses_create_params: dict[str, Any] = {}

        #: The most attempts to get a usable message from the user's model. After that the rollout is masked.
        user_attempts: PositiveInt = 3

        #: The most requests in one turn of a user with tools.
        user_max_calls: PositiveInt = 8

        #: Whether the user speaks first.
        user_starts: bool = True

        #: The most answers of the policy. The user may still end the conversation after a text in the last answer.
        max_steps: PositiveInt = 50

    config: Config
    continues = True
    _model: Model | None = None

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Open the user's model. Gives a copy of the agent that uses it."""
        if self.config.user is None:
            yield self
            return
        async with open_model(self.config.user) as model:
            opened = copy.copy(self)
            opened._model = model
            yield opened

    async def act(self, episode: Episode) -> str:
        """Play one rollout, from the items that the episode already has."""
        config = self.config
        if config.user is not None and self._model is None:  # else the policy would silently play the user too
            raise Failure("no_user", f"the user's model {config.user!r:.80} is not open: play inside `agent.share()`")
        user = SimulatedUser(
            _role(episode),
            self._model or episode.model,
            episode,
            params=config.user_responses_create_params,
            attempts=config.user_attempts,
            max_calls=config.user_max_calls,
        )
        if len(episode.items) > len(episode.task.input) and (before := Ending.of(episode.response)) is not None:
            user.resume(before.user_calls, before.user_turns)
        try:
            reason, closing = await self._talk(episode, user)
        finally:
            user.close()
        ending = Ending(reason=reason, closing=closing, mask=episode.mask, user_turns=user.turns, user_calls=user.calls)
        episode.note(conversation=encode(ending.model_dump()).decode())
        return reason

    async def _talk(self, episode: Episode, user: SimulatedUser) -> tuple[str, str]:
        """Run the conversation. Returns the stop reason, and the user's last message if it has a marker."""
        turn, calls = whose_turn(episode.items, self.config.user_starts)
        if reason := await _ended_by_resources(episode):
            return reason, ""
        if calls:
            await _run(episode, calls)
            if reason := await _ended_by_resources(episode):
                return reason, ""
        if turn == "user" and (end := await _user_turn(episode, user)):
            return end
        if turn == "ended":
            last = UserMessage.of(texts_of(episode.items[-1]))
            return ENDS[last.marker or STOP], last.text
        for step in range(len(episode.calls) + 1, self.config.max_steps + 1):
            response = await episode.ask()
            if response.incomplete_reason is not None:
                return response.incomplete_reason, ""  # run no calls: the arguments may be cut off
            if reason := await _ended_by_resources(episode):
                return reason, ""
            if calls := response.function_calls:
                if step == self.config.max_steps:
                    break
                await _run(episode, calls)
                if reason := await _ended_by_resources(episode):
                    return reason, ""
            elif not response.output_text.strip():
                return "no_answer", ""
            elif end := await _user_turn(episode, user):
                return end
        return "max_steps", ""


def whose_turn(items: list[Item], user_starts: bool = True) -> tuple[str, list[Item]]:
    """Whose turn is next (`user`, `policy`, or `ended` after a marker), and the calls without an output."""
    answered = {item.get("call_id") for item in items if item.get("type") == "function_call_output"}
    calls = [item for item in items if item.get("type") == "function_call" and item.get("call_id") not in answered]
    spoken = [item for item in items if item.get("role") not in ("system", "developer")]
    if calls:
        return "policy", calls
    if not spoken:
        return ("user" if user_starts else "policy"), []
    last = spoken[-1]
    if last.get("role") == "user":
        return ("ended" if UserMessage.of(texts_of(last)).marker else "policy"), []
    return ("user" if is_message(last) else "policy"), []


async def _user_turn(episode: Episode, user: SimulatedUser) -> tuple[str, str] | None:
    """Let the user speak. Returns the end of the conversation, as `_talk` does, or None."""
    message = await user.speak()
    if message is None:
        episode.mask = f"the simulated user {user.problem}"
        return "user_failure", ""
    if message.marker is not None:
        return ENDS[message.marker], message.text
    episode.say({"role": "user", "content": message.text})
    reason = await _ended_by_resources(episode)
    return (reason, "") if reason else None


async def _run(episode: Episode, calls: list[Item]) -> None:
    """Run the calls of a turn: all, or only the first if the task has `parallel_tool_calls: false`."""
    only_first = episode.params.get("parallel_tool_calls") is False
    await episode.run_tools(calls[:1] if only_first else calls)
    if only_first:
        episode.say(*(function_call_output(call["call_id"], NOT_CARRIED_OUT) for call in calls[1:]))


async def _ended_by_resources(episode: Episode) -> str | None:
    follow = getattr(episode.resources, "follow", None)
    return await episode.step("agent", episode.limits.tool, follow(episode.items)) if follow is not None else None


def _role(episode: Episode) -> UserRole:
    """The user's role, from `user(task)` of the resources."""
    user = getattr(episode.resources, "user", None)
    if user is None:
        cause = f"{type(episode.resources).__name__} does not define user(task), which the conversation agent needs"
        raise Failure("no_user", cause)
    role: UserRole = user(episode.task)
    return role
