"""A model that plays the user in one rollout.

The user's model sees the policy's messages, but not its tool calls, tool results or reasoning. In requests to the
user's model the roles are exchanged: the user's messages are the assistant's. These requests are not model calls of the
rollout, and their tokens are counted separately, under `usage.user`.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pydantic import BaseModel

from ludus.agents.user import MARKERS, TRANSFER, UserRole
from ludus.dialects.usage import add_usage
from ludus.episode import Episode
from ludus.model import Model, Request
from ludus.response import Item, Items, Response, function_call, function_call_output, is_message, texts_of
from ludus.task import derive_seed
from ludus.tools import not_found

_USER_SUFFIX = "/user"
_BEGIN = "(The conversation begins. Write your first message.)"
_SILENCE = "(nothing)"
_CONTROL_TOKEN = re.compile(r"<(?=[|\uff5c])")


@dataclass(frozen=True)
class UserMessage:
    """A message of the user, and the marker in it that ends the conversation, if it holds one."""

    text: str
    marker: str | None = None

    @classmethod
    def of(cls, text: str) -> UserMessage:
        """The message with its marker. Of several markers, TRANSFER counts first."""
        markers = [marker for marker in (TRANSFER, *MARKERS) if marker in text]
        return cls(text, markers[0] if markers else None)


class UserCall(BaseModel):
    """A call of a user's tool. `after` is the number of output items in the rollout before the call."""

    after: int
    name: str
    arguments: str
    output: str


class SimulatedUser:
    """The user of one rollout. `calls` lists its tool calls; `problem` says why its last reply was not usable."""

    def __init__(
        self,
        role: UserRole,
        model: Model,
        episode: Episode,
        *,
        params: dict[str, Any] | None = None,
        attempts: int = 3,
        max_calls: int = 8,
    ) -> None:
        self.role = role
        self.calls: list[UserCall] = []
        self.turns = 0
        self.problem = ""
        self._model, self._episode = model, episode
        self._attempts, self._max_calls = attempts, max_calls
        self._tools = {tool.name: tool for tool in role.tools}
        self._params = dict(params or {})
        if role.tools:
            self._params["tools"] = [tool.tool.schema() for tool in role.tools]
        self._session = f"{episode.job.rollout_id}{_USER_SUFFIX}"
        self._history = Items([{"role": "system", "content": role.prompt()}])
        self._items_read = 0
        self._requests = 0
        self._earlier_calls: deque[UserCall] = deque()

    async def speak(self) -> UserMessage | None:
        """The user's next message; None if no attempt gave a usable one."""
        first = not any(item.get("role") == "user" for item in self._episode.items)
        self.turns += 1
        if first and self.role.opening:
            return UserMessage(self.role.opening)
        self._read_new_items()
        for _ in range(self._attempts):
            response = await self._reply()
            message = UserMessage.of(self._without_label(response))
            if response.incomplete_reason is not None:
                self.problem = f"was cut off: {response.incomplete_reason}"
            elif not message.text:
                self.problem = "said nothing"
            elif first and message.marker:
                self.problem = "ended the conversation before it began"
            else:
                return message
        return None

    def resume(self, calls: list[UserCall], turns: int) -> None:
        """Restore the user's earlier calls and turns, in a conversation that continues from a record."""
        self.calls, self.turns, self._earlier_calls = list(calls), turns, deque(calls)
        opened = self.role.opening is not None
        self._requests = turns + len(calls) - opened
        if not opened and not any(item.get("role") == "user" for item in self._episode.task.input):
            self._history.append({"role": "user", "content": _BEGIN})

    def close(self) -> None:
        """Let the user's model drop its session."""
        self._model.forget(self._session)

    def _read_new_items(self) -> None:
        """Add the messages since the last turn to the user's history, with the roles exchanged."""
        items, heard, role = self._episode.items, [], self.role
        prompt_length = len(self._episode.task.input)
        for position, item in enumerate(items[self._items_read :], start=self._items_read - prompt_length):
            if is_message(item):
                heard.append(texts_of(item))
            elif item.get("role") == "user":
                self._add_heard(heard)
                self._add_earlier_calls(position)
                heard = []
                self._history.append({"role": "assistant", "content": f"{role.name}: {texts_of(item)}"})
        self._add_heard(heard)
        self._items_read = len(items)
        if len(self._history) == 1:
            self._history.append({"role": "user", "content": _BEGIN})

    def _add_heard(self, texts: list[str]) -> None:
        if texts:
            text = _harmless("\n".join(filter(str.strip, texts))) or _SILENCE
            self._history.append({"role": "user", "content": f"{self.role.other}: {text}"})

    def _add_earlier_calls(self, position: int) -> None:
        """Add the restored calls that were made up to this position of the output."""
        while self._earlier_calls and self._earlier_calls[0].after <= position:
            call, call_id = self._earlier_calls.popleft(), f"call_{len(self._history)}"
            self._history.append(function_call(call.name, call.arguments, call_id=call_id))
            self._history.append(function_call_output(call_id, call.output))

    async def _reply(self) -> Response:
        """Ask the model and run its tool calls, until it replies without calls or `max_calls` is reached."""
        for _ in range(self._max_calls):
            response = await self._ask()
            calls = response.function_calls if self._tools else []
            if not calls or response.incomplete_reason is not None:
                return response
            self._history.extend(item for item in response.output if item.get("type") == "function_call")
            self._history.extend([await self._run(call) for call in calls])
        return Response.of()

    async def _ask(self) -> Response:
        episode, seconds = self._episode, self._episode.limits.model
        request = Request(
            self._history,
            session=self._session,
            seed=derive_seed(episode.job.seed, "user", self._requests),
            turn=self._requests,
            deadline=perf_counter() + seconds,
            params=self._params,
        )
        self._requests += 1
        response = await episode.step("user", seconds, self._model.respond(request))
        if response.usage:
            add_usage(episode.usage.setdefault("user", {}), response.usage)
        return response

    async def _run(self, call: Item) -> Item:
        episode, tool = self._episode, self._tools.get(call["name"])
        if tool is None:
            output = str(not_found())
        else:
            work = tool.run(call["arguments"])
            output = str(await episode.step("user", episode.limits.tool, work, f"tool `{tool.name}` of the user"))
            after = len(episode.items) - len(episode.task.input)
            self.calls.append(UserCall(after=after, name=tool.name, arguments=call["arguments"], output=output))
            episode.asides.append(self.calls[-1].model_dump())
        return function_call_output(call["call_id"], output)

    def _without_label(self, response: Response) -> str:
        """The response's text without the user's name in front."""
        text = response.output_text.strip()
        label = f"{self.role.name}:"
        return text[len(label) :].strip() if text[: len(label)].casefold() == label.casefold() else text


def is_users(request: Request) -> bool:
    """Whether a request asks for the user's turn rather than the policy's, if one model plays both."""
    return (request.session or "").endswith(_USER_SUFFIX)


def _harmless(text: str) -> str:
    """The policy's text without markers, which the user might repeat, and without control tokens."""
    for marker in MARKERS:
        text = text.replace(marker, marker.strip("#"))
    return _CONTROL_TOKEN.sub("< ", text).strip()
