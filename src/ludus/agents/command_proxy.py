"""A model on loopback for programs that drive rollouts: each program has its own key."""

from __future__ import annotations

import contextlib
from typing import Any, Self

from ludus.agents.program_calls import HISTORY_BYTES, Body, ProgramCalls
from ludus.agents.program_requests import read_items
from ludus.episode import Episode
from ludus.http.growing_requests import GrowingRequests
from ludus.http.guard import is_open, token_of
from ludus.http.listening import Listening, bind
from ludus.http.mcp import mcp_reply
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.http.model_routes import ModelRoutes, dialect_of
from ludus.model import Model
from ludus.response import Item
from ludus.runtime.numbers import whole_number

#: The most requests of one program at once: each holds its body in memory, and a hostile program may send many.
AT_ONCE = 64


class Proxy(ModelRoutes):
    """A server for programs: four model dialects, and the tools. A request's key says which rollout it belongs to."""

    #: offer channels: only to programs whose client is ours
    channels = False
    passes_tools_on = False

    def __init__(self) -> None:
        super().__init__()
        self._programs: dict[str, ProgramCalls] = {}
        self._listening: Listening | None = None
        self._url = ""
        self.other = self._tool
        self.routes["POST", "/mcp"] = self._mcp

    async def __aenter__(self) -> Self:
        listening = bind("the model proxy", "127.0.0.1", 0)
        self._url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._listening = Listening(self, listening, channels=self.channels)
        await self._listening.begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._listening is not None:
            await self._listening.stop()

    @contextlib.contextmanager
    def register(self, episode: Episode, max_calls: int, **settings: Any) -> Any:
        """Answer the program of one rollout, while this is entered. `settings` are those of `ProgramCalls`."""
        program = ProgramCalls(episode, self._url, max_calls, **settings)
        self._programs[program.key] = program
        try:
            yield program
        finally:
            del self._programs[program.key]
            program.close()

    def admit(self, incoming: Incoming) -> None:
        """Refuse a request without the key of a running program, and one above its limit at once."""
        if not is_open(incoming):
            program = self._program(incoming)
            if program.at_once >= AT_ONCE:
                raise Refusal(429, f"this program has {AT_ONCE} requests under way: wait for an answer")
            size = self._size(incoming)
            if program.bytes_at_once + size > HISTORY_BYTES:
                raise Refusal(429, f"the requests under way have {HISTORY_BYTES:,} bytes with this: wait for an answer")
            program.at_once += 1
            program.bytes_at_once += size

    def release(self, incoming: Incoming) -> None:
        """An admitted request is over."""
        program = self._programs.get(token_of(incoming))
        if program is not None and not is_open(incoming):
            program.at_once -= 1
            program.bytes_at_once -= self._size(incoming)

    def _size(self, incoming: Incoming) -> int:
        """The bytes of a body, or an estimate of one that comes in chunks."""
        estimated = self.guard.body_bytes // 4 if b"transfer-encoding" in incoming.named else 0
        return min(whole_number(incoming.header(b"content-length") or "") or estimated, self.guard.body_bytes)

    async def respond_to(self, incoming: Incoming, body: Body) -> Body:
        """The answer to a model call of a program, which may continue an earlier response of its rollout."""
        program = self._program(incoming)
        program.dialects.add(str(dialect_of(incoming)))
        if incoming.path != "/v1/responses":
            return await program.answer(incoming, body)
        response = await program.answer(incoming, program.stored.continued(body))
        return program.stored.keep(body, response, len(incoming.body))

    def stored_response(self, incoming: Incoming, response_id: str) -> Body | None:
        """An earlier response of the program's rollout."""
        return self._program(incoming).stored.get(response_id)

    def read_items(self, items: list[Any]) -> list[Item]:
        """Items of a program's request as the policy gets them."""
        return read_items(items)

    def growing_requests(self, incoming: Incoming) -> GrowingRequests:
        """The earlier requests of the program."""
        return self._program(incoming).requests

    def cannot_carry(self, incoming: Incoming, tools: list[str]) -> None:
        """Refuse tools that the provider would run, unless the agent's settings say to leave them out."""
        program, names = self._program(incoming), ", ".join(tools)
        if program.server_tools == "refuse":
            how = "switch it off there, or write agent.server_tools: drop (of a harness: in its declaration)"
            raise Refusal(400, f"the policy cannot use the tool {names}, which the program declares: {how}")
        program.dropped_tools.update(tools)

    def model_for(self, incoming: Incoming) -> Model:
        """The model of the program's rollout."""
        return self._program(incoming).model

    async def _mcp(self, incoming: Incoming) -> Reply:
        program = self._program(incoming)
        return await mcp_reply(incoming, program.tools, program.call_tool)

    async def _tool(self, incoming: Incoming) -> Reply:
        prefix, name = incoming.path[:7], incoming.path[7:]
        if prefix != "/tools/":
            raise Refusal(404, f"there is no {incoming.path:.80} here: the paths of models begin with /v1, once")
        output = await self._program(incoming).call_tool(name, incoming.body.decode("utf-8", "replace"))
        return Reply(output.encode())

    def _program(self, incoming: Incoming) -> ProgramCalls:
        program = self._programs.get(token_of(incoming))  # a lookup by hash: its time reveals nothing about valid keys
        if program is None:
            raise Refusal(401, "this key is not valid, or its rollout is over")
        return program
