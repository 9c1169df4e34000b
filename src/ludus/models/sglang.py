"""SGLang: token ids both ways, on its chat route.

`/tokenize` renders what was added, and `/v1/chat/completions` takes the ids of a prompt as `input_ids` beside the
messages, so that its own parsers read the answer. A server that is too old for `input_ids` ignores the field: it is
found out by the prompt ids of the answer.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ludus.dialects.chat_stream import ChatStream
from ludus.model import Request
from ludus.models.server_stops import Route
from ludus.models.token_server import RENDERED, NoRouteError, TokenServerModel, id_list
from ludus.response import Response

#: The fields of a chat request that change what is rendered.
_RENDERED = (*RENDERED, "tool_choice", "reasoning_effort")


class SglangModel(TokenServerModel):
    """`sglang:URL#NAME`."""

    class Config(TokenServerModel.Config):
        """`history: chat` sends messages only: the server renders the whole conversation at each turn."""

        history: Literal["auto", "input_ids", "chat"] = "auto"

    config: Config

    asks_for_tokens: ClassVar[dict[str, Any]] = {"logprobs": True, "return_token_ids": True}
    ways: ClassVar[tuple[str, ...]] = ("input_ids",)
    stop_routes: ClassVar[dict[str, Route]] = {"pause": ("/pause_generation", {"mode": "in_place"})}
    resume_route: ClassVar[Route] = ("/continue_generation", {})
    stop_hint: ClassVar[str] = "Start a newer SGLang, which has /pause_generation"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if config.history == "chat":
            self._ways = []

    def _from_chat(self, data: Any) -> Response:
        choices = data.get("choices") if isinstance(data, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        finish, matched = choice.get("finish_reason"), choice.get("matched_stop")
        response = super()._from_chat(data)
        if response.tokens is not None:
            self._learn_end(response.tokens, finish, matched)
        return response

    async def _rendered(self, way: str, rendered: list[dict[str, Any]], asked: Request) -> list[int]:
        body = self._chat_body(asked)
        data = await self._json("/tokenize", asked, {key: body[key] for key in _RENDERED if key in body})
        rendered.append({"chat": body})
        return id_list(data.get("tokens"), "the ids of a rendering")

    async def _answer(self, way: str, request: Request, ids: list[int], rendered: dict[str, Any]) -> Response:
        body = {**rendered["chat"], "input_ids": ids}
        reply = await self._ask("/chat/completions", request, body, generates=True)
        response = self._read(reply, body, self._from_chat, ChatStream)
        if response.tokens is not None and list(response.tokens.prompt_ids) != ids:
            raise NoRouteError("input_ids")  # it was ignored
        return response
