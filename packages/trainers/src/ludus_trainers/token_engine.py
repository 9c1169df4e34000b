"""A trainer's engine as a model: prompt ids in, generated ids and logprobs out.

Trainers generate with engines that know tokens only. `TokenEngine` renders the chat template, parses thinking and tool
calls, and repeats the ids of earlier turns exactly, as `TransformersModel` does. The engine is one function:

    async def generate(call: EngineCall) -> GeneratedIds:
        output = await engine.generate(call.ids, call.sampling.max_tokens)
        return GeneratedIds(output.ids, output.logprobs, version=output.step)

    model = TokenEngine(generate, tokenizer)
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

from pydantic import Field

from ludus.errors import Failure
from ludus.model import Model, ModelConfig, Request
from ludus.models import chatml
from ludus.models.history import EarlierReasoning
from ludus.models.sampling import Sampling, sampling_of
from ludus.models.token_answers import RenderedPrompt, TokenAnswers
from ludus.response import Response
from ludus.runtime.threads import in_thread
from ludus.tokens import Tokens, sampling_record

#: The field of a row's `responses_create_params` whose value reaches the engine as `EngineCall.extra`.
ENGINE_EXTRA = "engine_extra"


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One call of an engine. `extra` is what the trainer's adapter put into the row for its engine."""

    ids: list[int]
    sampling: Sampling
    session: str
    extra: dict[str, Any]


@dataclass(slots=True)
class GeneratedIds:
    """What an engine generated: all sampled ids, the end token among them. `cut` says that a limit ended them.

    `versions` says where the weights changed in the middle: the index of the first id of each version, and the version.
    `extras` are values beside the ids, such as `routed_experts`.
    """

    ids: list[int]
    logprobs: list[float] | None
    version: str | int | None = None
    cut: bool = False
    versions: list[tuple[int, str | int]] | None = None
    extras: dict[str, Any] | None = None


Generate = Callable[[EngineCall], Awaitable[GeneratedIds]]


class TokenEngine(Model):
    """A model on an engine of tokens. The logprobs must be those of the distribution that was sampled from."""

    class Config(ModelConfig):
        """`context` limits a prompt and its answer together. The last three are defaults for requests without them.

        `logprobs` says what the engine's logprobs are, for the record.
        """

        context: int = Field(default=2**31, ge=1)
        #: arguments of the chat template
        chat_template_kwargs: dict[str, Any] = {}
        #: where the template drops earlier reasoning: keep its ids, or begin a new training sequence
        earlier_reasoning: EarlierReasoning = "keep"
        #: whose calls and thinking to read, such as `llama-3` or `gpt-oss`; without it `<think>` and `<tool_call>` tags
        family: str = ""
        logprobs: Literal["sampled", "model"] = "sampled"
        #: for requests without their own
        temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
        #: for requests without their own
        top_p: float = Field(default=1.0, gt=0, le=1)
        #: for requests without their own
        max_output_tokens: int = Field(default=1024, ge=1)

    config: Config

    def __init__(
        self, generate: Generate, tokenizer: Any, *, name: str = "policy", config: Config | None = None
    ) -> None:
        self.config = config or self.Config()
        self.name = name
        self.policy_version = 0
        self._engine = generate
        settings = self.config.chat_template_kwargs
        self._answers = TokenAnswers(
            tokenizer,
            settings,
            name=name,
            context=self.config.context,
            earlier_reasoning=self.config.earlier_reasoning,
            family=self.config.family,
        )
        self._tokenizing = Lock()

    @property
    def end_ids(self) -> set[int]:
        """The ids that end an answer."""
        return self._answers.ends

    async def respond(self, request: Request) -> Response:
        """Answer one request with one call of the engine."""
        if forced := chatml.forced_tools(request.params):
            raise Failure("unsupported", f"tool_choice cannot force a call to {forced[0]['name']} on this model")
        began = time.perf_counter()
        sampling = sampling_of(request, self.config)
        prompt = await in_thread(self._prompt, request)
        room = self.config.context - len(prompt.ids)
        generated = GeneratedIds([], [], cut=True)
        if room > 0:
            sampling = sampling._replace(max_tokens=min(room, sampling.max_tokens))
            extra = request.params.get(ENGINE_EXTRA) or {}
            generated = await self._engine(EngineCall(prompt.ids, sampling, request.session or "", extra))
        response: Response = await in_thread(self._response, request, prompt, sampling, generated)
        if self.observer is not None:
            self.observer.answered(time.perf_counter() - began)
        return response

    async def count_tokens(self, request: Request) -> int:
        """The tokens of a request's prompt."""
        prompt: RenderedPrompt = await in_thread(self._prompt, request)
        return len(prompt.ids)

    def _prompt(self, request: Request) -> RenderedPrompt:
        with self._tokenizing:
            return self._answers.prompt(request)

    def _response(
        self, request: Request, prompt: RenderedPrompt, sampling: Sampling, generated: GeneratedIds
    ) -> Response:
        logprobs = generated.logprobs
        if logprobs is None or len(logprobs) != len(generated.ids) or not all(map(math.isfinite, logprobs)):
            count = "no" if logprobs is None else f"{len(logprobs)}"
            cause = f"the engine returned {count} logprobs for {len(generated.ids)} ids; each id needs a finite one"
            raise Failure("bad_response", cause)
        version = self.policy_version if generated.version is None else generated.version
        drawn = sampling_record(sampling.temperature, sampling.top_p, self.config.logprobs)
        tokens = Tokens(prompt.ids, list(generated.ids), list(logprobs), str(version), drawn)
        tokens.versions = [(at, str(changed)) for at, changed in generated.versions or ()] or None
        tokens.extras = generated.extras
        complete = not generated.cut or (bool(generated.ids) and generated.ids[-1] in self._answers.ends)
        with self._tokenizing:
            return self._answers.response(request, prompt, sampling.stops, tokens, complete=complete)
