"""A model in the part of the user, for one rollout.

It hears what the policy says and sees nothing else of it: no tool calls, no results, no reasoning. Seen from here the
roles are exchanged, so its own words are the assistant's. Nothing that it writes is recorded as the policy's: its calls
are not model calls of the rollout, and its tokens are counted apart, under `usage.user`.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pydantic import BaseModel

from ludus.agents.user import MARKERS, TRANSFER, UserRole
from ludus.episode import Episode
from ludus.model import Model, Request
from ludus.response import Item, Items, Response, add_usage, function_call, function_call_output, is_message, texts_of
from ludus.task import derive_seed
from ludus.tools import not_found

_OF_USER = "/user"
_BEGIN = "(The conversation begins. Write your first message.)"
_SILENCE = "(nothing)"
_CONTROL_TOKEN = re.compile(r"<(?=[|\uff5c])")


@dataclass(frozen=True)
class Said:
    """A message of the user, and the marker in it that ends the conversation, if there is one."""

    text: str
    marker: str | None = None

    @classmethod
    def of(cls, text: str) -> Said:
        """Find the marker of a text. Being handed over counts before anything else."""
        found = [marker for marker in (TRANSFER, *MARKERS) if marker in text]
        return cls(text, found[0] if found else None)


class UserCall(BaseModel):
    """A call of one of the user's own tools, and after how many items of the rollout's output it was made."""

    after: int
    name: str
    arguments: str
    output: str


class SimulatedUser:
    """Speaks when asked to. `calls` lists what it did with its tools, and `problem` says why it could not speak."""

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
        self._session = f"{episode.job.rollout_id}{_OF_USER}"
        self._history = Items([{"role": "system", "content": role.prompt()}])
        self._heard = 0
        self._requests = 0
        self._recalled: deque[UserCall] = deque()

    async def speak(self) -> Said | None:
        """The user's next message; None where no attempt gave one that can be used."""
        first = not any(item.get("role") == "user" for item in self._episode.items)
        self.turns += 1
        if first and self.role.opening:
            return Said(self.role.opening)
        self._listen()
        for _ in range(self._attempts):
            response = await self._reply()
            said = Said.of(self._own_words(response))
            if response.incomplete_reason is not None:  # what was cut off is not what the user meant
                self.problem = f"was cut off: {response.incomplete_reason}"
            elif not said.text:
                self.problem = "said nothing"
            elif first and said.marker:
                self.problem = "ended the conversation before it began"
            else:
                return said
        return None

    def remember(self, calls: list[UserCall], turns: int) -> None:
        """Take over what this user did before, in a conversation that goes on from the middle."""
        self.calls, self.turns, self._recalled = list(calls), turns, deque(calls)
        opened = self.role.opening is not None
        self._requests = turns + len(calls) - opened
        if not opened and not any(item.get("role") == "user" for item in self._episode.task.input):
            self._history.append({"role": "user", "content": _BEGIN})

    def forget(self) -> None:
        """The conversation is over."""
        self._model.forget(self._session)

    def _listen(self) -> None:
        """Take in what was said since the last time, with the roles exchanged."""
        items, heard, role = self._episode.items, [], self.role
        given = len(self._episode.task.input)
        for position, item in enumerate(items[self._heard :], start=self._heard - given):
            if is_message(item):
                heard.append(texts_of(item))
            elif item.get("role") == "user":
                self._hear(heard)
                self._recall(position)
                heard = []
                self._history.append({"role": "assistant", "content": f"{role.name}: {texts_of(item)}"})
        self._hear(heard)
        self._heard = len(items)
        if len(self._history) == 1:
            self._history.append({"role": "user", "content": _BEGIN})

    def _hear(self, texts: list[str]) -> None:
        if texts:
            text = _harmless("\n".join(filter(str.strip, texts))) or _SILENCE
            self._history.append({"role": "user", "content": f"{self.role.other}: {text}"})

    def _recall(self, position: int) -> None:
        """Put calls that were made before this rollout went on back where they were made."""
        while self._recalled and self._recalled[0].after <= position:
            call, name = self._recalled.popleft(), f"call_{len(self._history)}"
            self._history.append(function_call(call.name, call.arguments, call_id=name))
            self._history.append(function_call_output(name, call.output))

    async def _reply(self) -> Response:
        """An answer of the model, after whatever it did with its tools."""
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
        return function_call_output(call["call_id"], output)

    def _own_words(self, response: Response) -> str:
        """What was said, without the name in front of it."""
        text = response.output_text.strip()
        label = f"{self.role.name}:"
        return text[len(label) :].strip() if text[: len(label)].casefold() == label.casefold() else text


def is_users(request: Request) -> bool:
    """Whether a request is for the user and not for the policy, where one model plays both."""
    return (request.session or "").endswith(_OF_USER)


def _harmless(text: str) -> str:
    """The policy's words without markers for the user to repeat and without control tokens."""
    for marker in MARKERS:
        text = text.replace(marker, marker.strip("#"))
    return _CONTROL_TOKEN.sub("< ", text).strip()
