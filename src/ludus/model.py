"""Models generate text, statelessly: a Responses API request in, a response out."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from ludus.response import Item, Items, Response


class ModelConfig(BaseModel):
    """Settings of a model; subclass it as `Config` inside the model. Unknown settings are refused."""

    model_config = ConfigDict(extra="forbid")


class Request:
    """One request: the items so far, and every other field of the Responses API in `params`.

    `seed` is what this rollout should sample with where the request names none. `session` is the same for all calls
    of a rollout, so that a model with several endpoints can keep to one; `turn` counts the calls before this one.

        Request("Which planet is largest?", temperature=0.2)
    """

    __slots__ = ("input", "params", "seed", "session", "turn")

    def __init__(
        self,
        input: str | list[Item],
        *,
        session: str | None = None,
        seed: int | None = None,
        turn: int = 0,
        params: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        if isinstance(input, str):
            input = [{"role": "user", "content": input}]
        self.input = input if isinstance(input, Items) else Items(input)
        self.params = {**params, **fields} if params else fields
        self.session = session
        self.seed = seed
        self.turn = turn


class Model:
    """Base of all models. Override `respond`; override `start` and `stop` if the model holds connections or weights.

    A model raises `Failure` with a kind when it knows what went wrong; anything else it raises counts as a crash.
    It does not know about rollouts, deadlines or rewards.
    """

    Config: ClassVar[type[ModelConfig]] = ModelConfig

    #: How `run.json` and rollouts name this model. Never holds a secret.
    name: str = ""

    #: How many rollouts at once suit this model where the user does not say.
    concurrency: int = 64

    config: Any = None

    def settings(self) -> dict[str, Any]:
        """The settings that `run.json` records. Keys are read from the environment, so none can be among them."""
        return self.config.model_dump(mode="json") if isinstance(self.config, BaseModel) else {}

    async def respond(self, request: Request) -> Response:
        """Answer one request."""
        raise TypeError(f"{type(self).__name__} does not define respond()")

    async def start(self) -> None:
        """Called once before the first request, on the event loop that will make them."""

    async def stop(self) -> None:
        """Called once after the last request."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
