"""Models generate text, statelessly: a Responses API request in, a response out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

from pydantic import BaseModel, ConfigDict

from ludus.response import Item, Items, Response
from ludus.runtime.redaction import redacted_settings
from ludus.tokens import Tokens


class ModelConfig(BaseModel):
    """Settings of a model. Subclass it as `Config` inside your model. Unknown settings are refused."""

    model_config = ConfigDict(extra="forbid")


class Request:
    """One request: the items so far, and every other field of the Responses API in `params`.

    `seed` is the rollout's seed, for sampling if `params` has no seed. `session` is the same for all calls of a
    rollout, so that a model with several endpoints can stay with one (prefix cache). `turn` counts the earlier calls,
    and `tokens` are the previous call's. At `deadline`, a time of `time.perf_counter`, the caller stops waiting.

        Request("Which planet is largest?", temperature=0.2)
    """

    __slots__ = ("deadline", "input", "params", "seed", "session", "tokens", "turn")

    def __init__(
        self,
        input: str | list[Item],
        session: str | None = None,
        seed: int | None = None,
        turn: int = 0,
        deadline: float | None = None,
        tokens: Tokens | None = None,
        params: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        if not isinstance(input, Items):
            input = Items([{"role": "user", "content": input}] if isinstance(input, str) else input)
        self.input = input
        self.params = {**params, **fields} if params and fields else params or fields
        self.session = session
        self.seed = seed
        self.turn = turn
        self.deadline = deadline
        self.tokens = tokens


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """What a model server says about itself; None where it says nothing.

    `running` and `waiting` are requests, of all of its clients. `cache` is the used share of its KV cache, from 0 to 1.
    Since its start it `preempted` requests that did not fit, looked up `queries` prompt tokens in its prefix cache,
    found `hits` of them there, and `generated` tokens.
    """

    running: float | None = None
    waiting: float | None = None
    cache: float | None = None
    preempted: float | None = None
    queries: float | None = None
    hits: float | None = None
    generated: float | None = None


class Observer(Protocol):
    """Follows a model's calls, to adapt the number of rollouts in flight."""

    def answered(self, seconds: float) -> None:
        """A call was answered after this many seconds."""

    def pressed(self) -> None:
        """The server signalled that it is overloaded."""


@dataclass
class _Users:
    """The number of users of a model on an event loop. The lock is held while the model starts or stops."""

    loop: asyncio.AbstractEventLoop
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


class Model:
    """Base of all models. Override `respond`; override `start` and `stop` if the model holds connections or weights.

    Raise a `Failure` with a kind where you know what went wrong; any other exception counts as a crash. A model knows
    nothing of rollouts, limits or rewards. Collections on one event loop may share a model: `async with model` starts
    it for the first user, and stops it after the last.
    """

    Config: ClassVar[type[ModelConfig]] = ModelConfig

    #: How `run.json` and rollouts name this model. Never holds a secret.
    name: str = ""

    #: Whether to ask for token ids with every answer. Set before `start`.
    capture_tokens: bool = False

    #: The version of the weights. Recorded with the tokens of every call, unless the answer names a version.
    policy_version: str | int | None = None

    #: Follows this model's calls. Set by the collector.
    observer: Observer | None = None

    #: Whether each call in flight holds an open connection, and so an open file.
    connects: bool = False

    #: Whether the model knows OpenAI's tools that are no functions: `custom` ones and those in a `namespace`.
    takes_client_tools: bool = False

    #: The default of `--concurrency` for this model.
    concurrency: int = 64

    config: Any = None

    _users: _Users | None = None

    def settings(self) -> dict[str, Any]:
        """The settings that `run.json` records. API keys are not settings: they come from environment variables."""
        return redacted_settings(self.config) if isinstance(self.config, BaseModel) else {}

    async def respond(self, request: Request) -> Response:
        """Answer one request."""
        raise TypeError(f"{type(self).__name__} does not define respond()")

    async def count_tokens(self, request: Request) -> int | None:
        """The tokens of a request's prompt; None if the model's tokenizer is not here."""
        return None

    def forget(self, session: str) -> None:
        """Called when a rollout is over: drop the state of its session."""

    def stats(self) -> dict[str, Any]:
        """Statistics of this model for `metrics.json`: endpoints, retries, waiting."""
        return {}

    async def server_loads(self) -> list[ServerLoad | None]:
        """What each of its servers says about itself now. Answers within seconds and never fails; empty if it has no
        servers that say anything."""
        return []

    async def start(self) -> None:
        """Called once before the first request, on the event loop of all requests."""

    async def stop(self) -> None:
        """Called once after the last request."""

    async def __aenter__(self) -> Self:
        """Start the model, unless it is in use on this event loop already."""
        users = self._users
        if users is None or users.loop is not asyncio.get_running_loop():
            users = self._users = _Users(asyncio.get_running_loop())
        async with users.lock:
            if not users.count:
                await self.start()
            users.count += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the model after its last user."""
        users = self._users
        if users is not None and users.loop is asyncio.get_running_loop():
            async with users.lock:
                users.count -= 1
                if not users.count:
                    await self.stop()
