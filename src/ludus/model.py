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
    """Settings of a model; subclass it as `Config` inside the model. Unknown settings are refused."""

    model_config = ConfigDict(extra="forbid")


class Request:
    """One request: the items so far, and every other field of the Responses API in `params`.

    `seed` is what this rollout should sample with where the request names none. `session` is the same for all calls
    of a rollout, so that a model with several endpoints can keep to one; `turn` counts the calls before this one, and
    `tokens` are those of the last. `deadline` is when the answer is no longer wanted, as `time.perf_counter` counts.

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


class Observer(Protocol):
    """Told how a model's calls go, so that the number of rollouts in flight can follow."""

    def answered(self, seconds: float) -> None:
        """A call was answered."""

    def pressed(self) -> None:
        """The server said, or showed, that it is too much."""


@dataclass
class _Users:
    """How many use a model on a loop. Who comes while it starts or stops waits at the door."""

    loop: asyncio.AbstractEventLoop
    door: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


class Model:
    """Base of all models. Override `respond`; override `start` and `stop` if the model holds connections or weights.

    A model raises `Failure` with a kind when it knows what went wrong; anything else it raises counts as a crash.
    It does not know about rollouts, deadlines or rewards. Collections on one loop may share a model: with
    `async with model` it is started by the first and stopped by the last.
    """

    Config: ClassVar[type[ModelConfig]] = ModelConfig

    #: How `run.json` and rollouts name this model. Never holds a secret.
    name: str = ""

    #: Ask for token ids with every answer; set before `start` where a collection wants them.
    capture_tokens: bool = False

    #: Whoever wants to know how calls go; set by the collector.
    observer: Observer | None = None

    #: Whether every call in flight holds an open connection, which is an open file.
    connects: bool = False

    #: How many rollouts at once suit this model where the user does not say.
    concurrency: int = 64

    config: Any = None

    _users: _Users | None = None

    def settings(self) -> dict[str, Any]:
        """The settings that `run.json` records. Keys are read from the environment, so none can be among them."""
        return redacted_settings(self.config) if isinstance(self.config, BaseModel) else {}

    async def respond(self, request: Request) -> Response:
        """Answer one request."""
        raise TypeError(f"{type(self).__name__} does not define respond()")

    def forget(self, session: str) -> None:
        """Called when a rollout is over: what was kept for its session can go."""

    def stats(self) -> dict[str, Any]:
        """What `metrics.json` should say of this model: endpoints, retries, waiting."""
        return {}

    async def start(self) -> None:
        """Called once before the first request, on the event loop that will make them."""

    async def stop(self) -> None:
        """Called once after the last request."""

    async def __aenter__(self) -> Self:
        """Start, unless somebody on this loop uses the model already."""
        users = self._users
        if users is None or users.loop is not asyncio.get_running_loop():
            users = self._users = _Users(asyncio.get_running_loop())
        async with users.door:
            if not users.count:
                await self.start()
            users.count += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop, once nobody is left."""
        users = self._users
        if users is not None and users.loop is asyncio.get_running_loop():
            async with users.door:
                users.count -= 1
                if not users.count:
                    await self.stop()
