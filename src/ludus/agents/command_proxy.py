"""A model on loopback for programs that drive their rollouts themselves: a seat for each, with a key of its own.

The calls that come with a key become the trajectory of its rollout. A call that is made again because its reply got
lost is answered once.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from time import perf_counter
from typing import Any

from ludus.dialects.chat import request_from_chat
from ludus.dialects.messages import request_from_messages
from ludus.dialects.token_capture import tokens_from_items
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.http.app import App
from ludus.http.listening import Listening, bind
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.http.replies import TRANSPORT, chat_reply, envelope, messages_reply, responses_reply
from ludus.model import Request
from ludus.response import Item, Response, texts_of
from ludus.runtime.boundary import step

REMEMBERED = 16  # answers that were delivered, for a client whose copy got lost on the way

Body = dict[str, Any]
ToRequest = Callable[[Body], Body]
ToReply = Callable[[Body, Body], Reply]


class _Asked:
    """A call to the model: its answer, how many wait for it now, and whether the one who did has left without it."""

    def __init__(self, answer: asyncio.Task[Body]) -> None:
        self.answer = answer
        self.waiting = 0
        self.lost = False


class Seat:
    """The proxy's side of one rollout: its key, and the calls that came with it."""

    def __init__(self, episode: Episode, url: str, most: int) -> None:
        self.key = secrets.token_urlsafe(24)
        self.url = url
        self.failure: Failure | None = None
        self.refused = False
        self._episode = episode
        self._most = most
        self._history: list[Item] = list(episode.items)
        self._start = len(episode.items)
        self._asked: OrderedDict[bytes, _Asked] = OrderedDict()
        self._answering: set[asyncio.Task[Body]] = set()
        self._turn = asyncio.Lock()

    async def answer(self, incoming: Incoming, body: Body) -> Body:
        """The model's answer to one call. A call that is made again because its reply got lost is answered once."""
        key = blake2b(incoming.body, digest_size=16).digest()
        asked = self._asked.get(key)
        again = (incoming.header(b"x-stainless-retry-count") or "0") != "0"
        if asked is None or not (again or asked.lost):
            if len(self._episode.calls) >= self._most:
                self.refused = True
                raise Refusal(400, f"this rollout may make {self._most} model calls, and they are made")
            asked = _Asked(asyncio.create_task(self._call(body)))
            self._answering.add(asked.answer)
            asked.answer.add_done_callback(self._answering.discard)
            self._remember(key, asked)
        asked.waiting += 1
        try:
            answer = await incoming.unless_gone(asyncio.shield(asked.answer))
            asked.lost = False
        except Refusal:  # the client left; it may come back for what it asked
            asked.lost = asked.waiting == 1
            raise
        finally:
            asked.waiting -= 1
        return answer

    async def call_tool(self, name: str, arguments: str) -> str:
        """Run a tool of the task. What it says becomes part of the trajectory when the program tells the model."""
        episode = self._episode
        said: str = await step("tool", episode.limits.tool, episode.call_tool(name, arguments))
        return said

    def close(self) -> None:
        """Nobody waits for an answer any more."""
        for answer in self._answering:
            answer.cancel()

    def _remember(self, key: bytes, asked: _Asked) -> None:
        """Keep an answer for a client that asks again, and forget old ones that were delivered."""
        self._asked[key] = asked
        self._asked.move_to_end(key)
        old = [each for each, it in self._asked.items() if it.answer.done() and not it.waiting and not it.lost]
        for each in old[: max(0, len(self._asked) - REMEMBERED)]:
            del self._asked[each]

    async def _call(self, body: Body) -> Body:
        episode, job = self._episode, self._episode.job
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise Refusal.field(["input"], "value_error", "input must be a string or a list of items")
        items, _ = tokens_from_items(items)
        async with self._turn:  # calls made at the same time enter the trajectory one after the other
            request = Request(
                items,
                session=job.rollout_id,
                seed=job.seed,
                turn=len(episode.calls),
                deadline=perf_counter() + episode.limits.model,
                tokens=episode.last_tokens,
                params={key: value for key, value in body.items() if key not in TRANSPORT and value is not None},
            )
            try:
                response: Response = await step("model", episode.limits.model, episode.model.respond(request))
            except Failure as error:
                self.failure = self.failure or error
                raise
            episode.say(*self._new(items))
            at = len(episode.items) - self._start
            episode.take(response)
            episode.calls[-1]["at"] = at  # what the program put in between may look like answers too
            self._history = [*items, *response.output]
            return envelope(response, body, episode.model.name, tokens=False)

    def _new(self, items: list[Item]) -> list[Item]:
        """What a call's conversation holds that the trajectory does not: all that comes after what they share."""
        shared = 0
        for mine, theirs in zip(self._history, items, strict=False):
            if not _same(mine, theirs):
                break
            shared += 1
        return items[shared:]


class Proxy(App):
    """The models' three dialects and the tools, for whoever shows the key of a seat."""

    def __init__(self) -> None:
        super().__init__()
        self._seats: dict[str, Seat] = {}
        self._listening: Listening | None = None
        self._url = ""
        self.routes |= {
            ("POST", "/v1/responses"): self._dialect(lambda body: body, responses_reply),
            ("POST", "/v1/chat/completions"): self._dialect(request_from_chat, chat_reply),
            ("POST", "/v1/messages"): self._dialect(request_from_messages, messages_reply),
            ("GET", "/v1/models"): self._models,
        }
        self.other = self._tool

    async def __aenter__(self) -> Proxy:
        listening = bind("the model proxy", "127.0.0.1", 0)
        self._url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._listening = Listening(self, listening)
        await self._listening.begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._listening is not None:
            await self._listening.stop()

    @contextlib.contextmanager
    def seat(self, episode: Episode, most: int) -> Any:
        """A seat for one rollout, while it is entered."""
        seat = Seat(episode, self._url, most)
        self._seats[seat.key] = seat
        try:
            yield seat
        finally:
            del self._seats[seat.key]
            seat.close()

    def _dialect(self, to_request: ToRequest, to_reply: ToReply) -> Any:
        async def handle(incoming: Incoming) -> Reply:
            body = incoming.json()
            return to_reply(body, await self._of(incoming).answer(incoming, to_request(body)))

        return handle

    async def _models(self, incoming: Incoming) -> Reply:
        self._of(incoming)
        entry = {"id": "policy", "object": "model", "created": 0, "owned_by": "ludus"}
        return Reply.of({"object": "list", "data": [entry]})

    async def _tool(self, incoming: Incoming) -> Reply:
        prefix, name = incoming.path[:7], incoming.path[7:]
        if prefix != "/tools/":
            raise Refusal(404, "Not Found")
        said = await self._of(incoming).call_tool(name, incoming.body.decode("utf-8", "replace"))
        return Reply(said.encode())

    def _of(self, incoming: Incoming) -> Seat:
        given = incoming.header(b"authorization") or ""
        key = given[7:] if given[:7].lower() == "bearer " else incoming.header(b"x-api-key") or ""
        seat = self._seats.get(key)  # looked up by its hash: the time it takes says nothing about the keys there are
        if seat is None:
            raise Refusal(401, "this key is not good, or its rollout is over")
        return seat


def _same(ours: Item, theirs: Item) -> bool:
    """Whether two items say the same. Dialects lose ids and status, so only what was said is compared."""
    return _gist(ours) == _gist(theirs)


def _gist(item: Item) -> tuple[Any, ...]:
    kind = item.get("type", "message")
    if kind == "message":
        return kind, item.get("role", "assistant"), texts_of(item)
    if kind == "function_call":
        return kind, item.get("call_id"), item.get("name"), item.get("arguments")
    if kind == "function_call_output":
        return kind, item.get("call_id"), item.get("output")
    return kind, [part.get("text") for part in [*(item.get("summary") or []), *(item.get("content") or [])]]
