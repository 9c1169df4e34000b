"""An environment on an OpenEnv server, played turn by turn.

How the model acts depends on the server's action schema:

- the server has tools: the model has the same tools, and every call is a step;
- an action is one text: the model's whole answer is the action;
- an action is anything else: the model calls the tool `act` with the action's fields.

The server gives the rewards and ends the game. If the model has tools, an answer without a call also ends it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from pydantic import Field

import ludus
from ludus import Failure, Game, ResourcesConfig, Response, Step, Verdict
from ludus.environments.openenv.server import Connection, Observation, OpenEnvError, OpenEnvServer, openenv_server
from ludus.response import Item
from ludus.runtime.encoding import encode
from ludus.tools import error_text, not_found

ACT = "act"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

Way = Literal["tools", "text", "act"]


@dataclass(frozen=True)
class Shared:
    """The server, its action schema, and how the model acts."""

    server: OpenEnvServer
    schema: dict[str, Any]
    way: Way


class OpenEnv(Game):
    """One connection, and with it one environment on the server, for one rollout."""

    class Task(ludus.Task):
        #: The arguments of the environment's reset. The default seed is the rollout's.
        reset: dict[str, Any] = Field(default_factory=dict)

    class Config(ResourcesConfig):
        """The server, and the part of its observations that the model sees."""

        url: str = ""
        #: The environment variable with a token for the server, if the server requires one.
        token_env: str = "OPENENV_TOKEN"
        #: The only field of an observation that the model sees. Empty: all fields, as JSON.
        field: str = ""

    config: Config
    shared: Shared

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Shared]:
        async with openenv_server(config.url, config.token_env) as server:
            schema = await server.action_schema()
            yield Shared(server, schema, way_to_act(schema))

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self._connection: Connection | None = None
        self._tools: list[dict[str, Any]] = []
        self._rewarded = self._acted = False
        self._error = ""

    async def open(self, task: Task) -> None:
        self._connection = await self.shared.server.connect()
        if self.shared.way == "tools":
            listing = await self._ask(self._connection.step({"type": "list_tools"}))
            self._tools = [_as_function(entry) for entry in listing.fields.get("tools") or ()]
        elif self.shared.way == "act":
            self._tools = [_act_tool(self.shared.schema)]

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def tools(self) -> list[dict[str, Any]]:
        """The tools of this rollout: the server's, or `act`, or none."""
        return self._tools

    async def reset(self, task: Task) -> str | None:
        self._rewarded = self._acted = False
        self._error = ""
        observation = await self._ask(self._session().reset(**{"seed": self.seed, **task.reset}))
        return self._shown(observation)

    async def step(self, task: Task, response: Response) -> Step:
        if self.shared.way == "text":
            return await self._text_step(response.output_text)
        if not response.function_calls:
            return Step(truncated=True, info={"stopped": "the model did not act"})
        turn = Step()
        for call in response.function_calls:
            turn.tool_outputs.append((call["call_id"], await self._call(call, turn)))
        return turn

    async def verify(self, task: Task, response: Response) -> Verdict:
        """The sum of the server's rewards. A failure if the server accepted actions but rewarded none."""
        verdict = await super().verify(task, response)
        if not self._acted and self._error:
            raise Failure("crash", f"the environment accepted no action; its last error: {self._error[:300]}")
        if self._acted and not self._rewarded:
            raise Failure("no_reward", "the environment accepted actions but gave no reward for any of them")
        return verdict

    async def _text_step(self, text: str) -> Step:
        """The step whose action is the whole answer."""
        turn = Step()
        [name] = _required(self.shared.schema)
        turn.observation = await self._act({name: text}, turn)
        return turn

    async def _call(self, call: Item, turn: Step) -> str:
        """Take one call of a turn as an action, and return the output that the model sees."""
        if turn.over:
            return error_text("it is over")
        if call["name"] not in {entry["name"] for entry in self._tools}:
            return not_found()
        try:
            arguments = orjson.loads(call["arguments"] or "{}")
        except orjson.JSONDecodeError as error:
            return error_text(f"Invalid tool call arguments: {error}")
        if not isinstance(arguments, dict):
            return error_text("Invalid tool call arguments: they must be an object")
        if self.shared.way == "tools":
            arguments = {"type": "call_tool", "tool_name": call["name"], "arguments": arguments}
        return await self._act(arguments, turn) or ""

    async def _act(self, action: dict[str, Any], turn: Step) -> str | None:
        """Take an action, add its reward and end to the turn, and return the text that the model sees."""
        try:
            observation = await self._session().step(action)
        except OpenEnvError as refusal:
            if refusal.code != "VALIDATION_ERROR":
                self._error = str(refusal)
            return error_text(str(refusal))
        self._acted = True
        if observation.reward is not None:
            self._rewarded = True
            turn.reward += observation.reward
        if observation.done:
            turn.terminated, turn.info = True, {"observation": observation.fields}
        return self._shown(observation)

    def _shown(self, observation: Observation) -> str | None:
        """An observation as the model reads it."""
        fields = observation.fields
        if self.config.field:
            return _text(fields.get(self.config.field))
        if "tool_name" in fields and "result" in fields:
            return _result(fields)
        return _text(next(iter(fields.values())) if len(fields) == 1 else fields or None)

    def _session(self) -> Connection:
        if self._connection is None:
            raise Failure("disconnected", "there is no session: open() has not been called")
        return self._connection

    async def _ask(self, question: Any) -> Observation:
        """The answer to a setup request. A refusal is a failure, since the model has not acted yet."""
        try:
            observation: Observation = await question
        except OpenEnvError as refusal:
            raise Failure("bad_response", f"{self.config.url} refused to start: {str(refusal)[:300]}") from refusal
        return observation


def way_to_act(schema: dict[str, Any]) -> Way:
    """How a model acts, by the server's action schema."""
    fields = _fields(schema)
    if not fields or ("tool_name" in fields and fields.get("type", {}).get("const") == "call_tool"):
        return "tools"
    required = _required(schema)
    if len(required) == 1 and fields[required[0]].get("type") == "string" and "enum" not in fields[required[0]]:
        return "text"
    return "act"


def _fields(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: field for name, field in schema.get("properties", {}).items() if name != "metadata"}


def _required(schema: dict[str, Any]) -> list[str]:
    return [name for name in schema.get("required", []) if name in _fields(schema)]


def _act_tool(schema: dict[str, Any]) -> dict[str, Any]:
    """The tool `act`, whose parameters are the fields of an action."""
    parameters = {**schema, "type": "object", "properties": _fields(schema), "required": _required(schema)}
    description = str(schema.get("description") or "Take an action.")
    return {"type": "function", "name": ACT, "description": description, "parameters": parameters, "strict": False}


def _as_function(entry: Any) -> dict[str, Any]:
    """A tool of the server in the format of the Responses API."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Failure("bad_tools", f"the server lists a tool without a valid name: {str(entry)[:100]}")
    parameters = entry.get("input_schema") or {"type": "object", "properties": {}}
    description = str(entry.get("description") or "")
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


def _result(fields: dict[str, Any]) -> str:
    """The result of a server's tool: the texts of its content if it has any, else the result as JSON."""
    if fields.get("error"):
        error = fields["error"]
        return error_text(str(error.get("message", error)) if isinstance(error, dict) else str(error))
    result = fields["result"]
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        if texts:
            return "\n".join(texts)
    return _text(result) or ""


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return encode(value).decode()
