"""Any program as an agent.

The program is started for each rollout with `OPENAI_BASE_URL` and `ANTHROPIC_BASE_URL` pointing at a proxy on loopback,
and a key that is good for this rollout only. It gets what it is asked on stdin, as a Responses request without a model.
It may call the task's tools at `LUDUS_TOOLS_URL/NAME`. The trajectory and its tokens are rebuilt from the calls that it
made; what it prints is not part of them.

The program is the operator's own and runs as they do. It sees of our environment only `PATH`, the locale and what
`pass_env` names, works in a folder that is deleted afterwards, and does not outlive its rollout: neither do its
children, unless they leave its process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import secrets
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from pydantic import Field, PositiveInt

from ludus.agent import Agent, AgentConfig
from ludus.dialects.chat import request_from_chat
from ludus.dialects.messages import request_from_messages
from ludus.dialects.token_capture import tokens_from_items
from ludus.encoding import encode
from ludus.episode import Episode
from ludus.model import Request
from ludus.outcome import Failure
from ludus.response import Item, Response, texts_of
from ludus.secrets import public
from ludus.serve.http import App
from ludus.serve.listening import Listening
from ludus.serve.messages import Incoming, Refusal, Reply
from ludus.serve.models import TRANSPORT, chat_reply, envelope, messages_reply, responses_reply
from ludus.serve.plan import bind
from ludus.serve.sessions import within

KEPT_OUTPUT = 64 << 10
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ")

Body = dict[str, Any]
ToRequest = Callable[[Body], Body]
ToReply = Callable[[Body, Body], Reply]


class CommandAgent(Agent):
    """Runs a program that drives the rollout by itself.

    agent: {type: command, command: [python, my_agent.py], pass_env: [MY_SETTING]}
    """

    class Config(AgentConfig):
        """What to run. It is the operator's to say: nothing of a row or of a model reaches the command line."""

        command: list[str] = Field(min_length=1)
        pass_env: list[str] = []
        max_steps: PositiveInt = 200

    config: Config
    _proxy: Proxy | None = None

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """One proxy serves the programs of all rollouts; each has its own key."""
        async with Proxy() as proxy:
            playing = copy.copy(self)
            playing._proxy = proxy
            yield playing

    async def act(self, episode: Episode) -> str:
        """Run the program to its end."""
        if self._proxy is None:
            raise RuntimeError("a command agent plays only while what it shares is open")
        folder = Path(tempfile.mkdtemp(prefix="ludus-agent-"))
        with self._proxy.seat(episode, self.config.max_steps) as seat:
            try:
                work = self._run(episode, seat, folder)
                return await episode.within("agent", episode.limits.rollout, work)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    async def _run(self, episode: Episode, seat: Seat, folder: Path) -> str:
        words = [word if number else shutil.which(word) or word for number, word in enumerate(self.config.command)]
        # Files and no pipes: a child that the program leaves behind cannot hold up its end by holding one open.
        asked, complaints = folder / ".asked.json", folder / ".complaints.txt"
        asked.write_bytes(encode({**episode.params, "input": list(episode.items)}))
        try:
            with asked.open("rb") as reading, complaints.open("wb") as writing:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=reading,
                    stdout=DEVNULL,
                    stderr=writing,
                    env=self._environment(seat, folder),
                    cwd=folder,
                    start_new_session=True,
                )
        except OSError as error:
            raise Failure("no_program", f"cannot start {self.config.command[0]}: {error.strerror}") from error
        try:
            await process.wait()
        finally:
            _kill(process)
            await process.wait()
        if process.returncode:
            said = f"the program ended with status {process.returncode}: {_last_words(complaints)}"
            raise seat.failure or Failure("exit", said)
        if not episode.calls:
            raise Failure("no_calls", "the program never asked the model")
        return "max_steps" if seat.refused else "completed"

    def _environment(self, seat: Seat, folder: Path) -> dict[str, str]:
        names = (*PASSED_ON, *self.config.pass_env)
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        return {
            **inherited,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "OPENAI_BASE_URL": f"{seat.url}/v1",
            "OPENAI_API_KEY": seat.key,
            "ANTHROPIC_BASE_URL": seat.url,
            "ANTHROPIC_API_KEY": seat.key,
            "LUDUS_TOOLS_URL": f"{seat.url}/tools",
            "LUDUS_TOOLS_KEY": seat.key,
        }


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
        self._asked = b""
        self._answer: asyncio.Task[Body] | None = None
        self._delivered = True
        self._turn = asyncio.Lock()

    async def answer(self, incoming: Incoming, body: Body) -> Body:
        """The model's answer to one call. A call that is made again because its reply got lost is answered once."""
        again = (incoming.header(b"x-stainless-retry-count") or "0") != "0" or not self._delivered
        if self._answer is None or incoming.body != self._asked or not again:
            if len(self._episode.calls) >= self._most:
                self.refused = True
                raise Refusal(400, f"this rollout may make {self._most} model calls, and they are made")
            self._asked = incoming.body
            self._answer = asyncio.create_task(self._call(body))
        self._delivered = False
        answer = await incoming.unless_gone(asyncio.shield(self._answer))
        self._delivered = True
        return answer

    async def call_tool(self, name: str, arguments: str) -> str:
        """Run a tool of the task. What it says becomes part of the trajectory when the program tells the model."""
        episode = self._episode
        said: str = await within("tool", episode.limits.tool, episode.call_tool(name, arguments))
        return said

    def close(self) -> None:
        """Nobody waits for an answer any more."""
        if self._answer is not None:
            self._answer.cancel()

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
                response: Response = await within("model", episode.limits.model, episode.model.respond(request))
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


def _last_words(path: Path) -> str:
    """The end of what a program complained of, in one line."""
    with path.open("rb") as complaints:
        complaints.seek(max(0, path.stat().st_size - KEPT_OUTPUT))
        text = complaints.read().decode("utf-8", "replace")
    return public(" ".join(text.split())[-500:])


def _kill(process: Process) -> None:
    """Make sure that a program and its children are gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
