"""A Hugging Face model in this process: a trainer's live weights are the policy, without a server.

Requests are decoded together on a thread; later requests join as soon as there is room (`max_batch`). Guarantees:

- `prompt_ids` are exactly the ids of the prompt. `generated_ids` are all generated ids, including the end token and the
  stop string, if any. A later call of a rollout repeats them id for id, so that a rollout is one training sequence.
- `logprobs` are those of the distribution that was sampled from, after temperature and top_p; at temperature 0 they
  are those of the model. The model's other generation settings (penalties, suppressed tokens) are ignored.
- `policy_version` is read when a request starts. Update the weights inside `async with paused()`, while none runs.
- A prompt that does not fit the context is an incomplete response without output, not a failure.
- The text of a request with a seed does not depend on its batch, except for the rounding of sums: in 32 bits it rarely
  changes a sampled token, in 16 bits often. Each turn of a rollout has its own random numbers.
- Tool calls in `<tool_call>` tags are parsed, or those of a `family`. A call cannot be forced.
- Broken weights and a tokenizer of another model fail the request (`not_finite`, `unknown_token`); the others go on.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import Field

from ludus.errors import Failure, UserError
from ludus.model import Model, ModelConfig, Request
from ludus.models import chatml
from ludus.models.history import EarlierReasoning
from ludus.models.sampling import sampling_of
from ludus.models.token_answers import RenderedPrompt, TokenAnswers
from ludus.models.transformers_prompt import Prompts
from ludus.response import Response
from ludus.runtime.threads import in_thread
from ludus.tokens import Tokens, sampling_record
from ludus_transformers.batch import BatchedRequest, Batches, Take
from ludus_transformers.loading import end_ids, library, load

if TYPE_CHECKING:
    from ludus_transformers.decode import Decoder, Row

T = TypeVar("T")

_UNBOUNDED = 2**31


class TransformersModel(Model):
    """Generates with a causal language model of `transformers` and its tokenizer.

    model = TransformersModel(policy, tokenizer, policy_version="step-0")
    rollouts = ludus.collect("mcqa", model=model, tokens=True).rollouts
    """

    class Config(ModelConfig):
        """`path` is a folder, a GGUF file or a name on the Hub. `context` defaults to the model's own limit.

        At most `max_batch` requests are decoded at once. After a rest, decoding starts `batch_wait_ms` after a request.
        The last three are defaults for requests without them.
        """

        path: str = ""
        #: the name of the GGUF file inside `path`
        gguf_file: str | None = None
        #: the type of the weights
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
        #: `auto`, `cpu`, `cuda` or `cuda:N`
        device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
        context: int | None = Field(default=None, ge=1)
        #: arguments of the chat template
        chat_template_kwargs: dict[str, Any] = {}
        #: where the template drops earlier reasoning: keep its ids, or begin a new training sequence
        earlier_reasoning: EarlierReasoning = "keep"
        #: whose calls and thinking to read, such as `llama-3` or `gpt-oss`; without it `<think>` and `<tool_call>` tags
        family: str = ""
        max_batch: int = Field(default=16, ge=1)
        batch_wait_ms: float = Field(default=5.0, ge=0)
        #: for requests without their own
        temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
        #: for requests without their own
        top_p: float = Field(default=1.0, gt=0, le=1)
        #: for requests without their own
        max_output_tokens: int = Field(default=256, ge=1)

    config: Config

    def __init__(
        self,
        model: Any = None,
        tokenizer: Any = None,
        *,
        policy_version: str | int | None = None,
        config: Config | None = None,
    ) -> None:
        self.config = config or self.Config()
        if (model is None) != (tokenizer is None) or (model is None and not self.config.path):
            raise UserError("transformers names no model", "Write transformers:FOLDER, or pass a model and a tokenizer")
        library("torch")
        library("transformers")
        self._loaded = (model, tokenizer) if model is not None else None
        self.name = Path(self.config.path or getattr(model, "name_or_path", "") or type(model).__name__).name
        #: Recorded with the tokens of every answer: set it with every update of the weights.
        self.policy_version = self.name if policy_version is None else policy_version
        self.concurrency = self.config.max_batch
        self._batches = Batches(self._generate, self.config.max_batch, self.config.batch_wait_ms / 1000)
        self._answers: TokenAnswers | None = None
        self._counter: Prompts | None = None
        self._counting = Lock()
        self._counts = {"batches": 0, "requests": 0, "output_tokens": 0, "seconds": 0.0}

    async def start(self) -> None:
        """Load the weights, unless they were passed in, and accept requests."""
        self._model, tokenizer = self._loaded or await in_thread(
            load, self.config.path, self.config.gguf_file, self.config.dtype, self.config.device
        )
        model_context = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        self._context: int = self.config.context or model_context or _UNBOUNDED
        self._embeddings = getattr(self._model.get_input_embeddings(), "num_embeddings", None)
        self._decoder: Decoder | None = None
        self._tokenizer, self._counter = tokenizer, None
        template, reasoning = self.config.chat_template_kwargs, self.config.earlier_reasoning
        self._answers = TokenAnswers(
            tokenizer,
            template,
            name=self.name,
            context=self._context,
            earlier_reasoning=reasoning,
            family=self.config.family,
        )
        self._answers.ends.update(end_ids(self._model))
        self._batches.start()

    async def stop(self) -> None:
        """Release the weights. Running requests fail."""
        await self._batches.stop()
        self._model = self._decoder = None

    async def respond(self, request: Request) -> Response:
        """Answer one request, decoded together with others."""
        if forced := chatml.forced_tools(request.params):
            raise Failure("unsupported", f"tool_choice cannot force a call to {forced[0]['name']} on this model")
        began = time.perf_counter()
        response = await self._batches.answer(request)
        if self.observer is not None:
            self.observer.answered(time.perf_counter() - began)
        return response

    async def count_tokens(self, request: Request) -> int | None:
        """The tokens of a request's prompt."""
        return await in_thread(self._count, request) if self._answers is not None else None

    def _count(self, request: Request) -> int:
        with self._counting:
            if self._counter is None:  # a tokenizer is not thread-safe, and the batches use theirs
                self._counter = Prompts(copy.deepcopy(self._tokenizer), self.config.chat_template_kwargs)
            return len(self._counter.ids(self._counter.text(request)))

    def paused(self) -> AbstractAsyncContextManager[None]:
        """Wait until the running requests are answered, to update the weights and `policy_version`. Others wait.

        async with model.paused():
            optimizer.step()
            model.policy_version = f"step-{step}"
        """
        return self._batches.paused()

    def stats(self) -> dict[str, Any]:
        """Counts of batches, requests and generated tokens, and the seconds spent."""
        return {**self._counts, "seconds": round(self._counts["seconds"], 3)}

    def _generate(self, take: Take) -> None:
        """Answer requests as long as some wait, each as soon as its row is complete. Blocks."""
        from ludus_transformers.decode import Decoder

        started = time.perf_counter()
        unfinished: dict[Row, _Prepared] = {}

        def finish(row: Row) -> None:
            prepared = unfinished.pop(row)
            self._counts["output_tokens"] += len(row.generated)
            if not prepared.queued.cancelled:
                prepared.queued.settle(_attempt(self._answer, prepared))

        def take_rows(most: int) -> list[Row]:
            while batch := take(most):
                self._counts["batches"] += 1
                self._counts["requests"] += len(batch)
                rows: list[Row] = []
                for queued in batch:
                    prepared = _attempt(self._prepare, queued)
                    if isinstance(prepared, Exception):
                        queued.settle(prepared)
                        continue
                    unfinished[prepared.row] = prepared
                    if prepared.row.limit > 0:
                        rows.append(prepared.row)
                    else:
                        finish(prepared.row)
                if rows:
                    return rows
            return []

        try:
            if self._decoder is None:
                self._decoder = Decoder(self._model, self.config.max_batch)
            self._decoder.run(take_rows, finish)
        except Exception as error:
            self._decoder = None  # it may hold the memory that was missing
            for prepared in unfinished.values():
                prepared.queued.settle(_failure(error))
        self._counts["seconds"] += time.perf_counter() - started

    def _prepare(self, queued: BatchedRequest) -> _Prepared:
        from ludus_transformers.decode import Row

        request = queued.request
        sampling = sampling_of(request, self.config)
        assert self._answers is not None
        rendered = self._answers.prompt(request)
        prompt = rendered.ids
        if self._embeddings is not None and (largest := max(prompt, default=0)) >= self._embeddings:
            cause = f"the prompt has token {largest:,}, and the model knows {self._embeddings:,} tokens"
            raise Failure("unknown_token", cause)
        row = Row(
            prompt,
            min(self._context - len(prompt), sampling.max_tokens),
            self._end_check(sampling.stops),
            is_cancelled=lambda: queued.cancelled,
            temperature=float(sampling.temperature),
            top_p=float(sampling.top_p),
            random=Random() if sampling.seed is None else Random(f"{sampling.seed}:{request.turn}"),
        )
        return _Prepared(queued, row, rendered, sampling.stops, str(self.policy_version))

    def _end_check(self, stops: list[str]) -> Callable[[list[int]], bool]:
        assert self._answers is not None
        ends, decode = self._answers.ends, self._answers.prompts.decode
        if not stops:
            return lambda ids: ids[-1] in ends
        window = max(len(stop.encode()) for stop in stops) + 8  # a token may hold only part of a character

        def is_complete(ids: list[int]) -> bool:
            latest = decode(ids[-window:])
            return ids[-1] in ends or any(stop in latest for stop in stops)

        return is_complete

    def _answer(self, prepared: _Prepared) -> Response:
        row = prepared.row
        if row.broken:
            cause = f"the logits of token {len(row.generated) + 1} of the answer are not finite"
            raise Failure("not_finite", cause)
        drawn = sampling_record(row.temperature, row.top_p, "sampled" if row.temperature > 0 else "model")
        tokens = Tokens(row.prompt, row.generated, row.logprobs, prepared.version, drawn)
        assert self._answers is not None
        return self._answers.response(
            prepared.queued.request, prepared.prompt, prepared.stops, tokens, complete=row.complete
        )


@dataclass(slots=True)
class _Prepared:
    """A request with its row, its prompt, its stop strings and the policy version."""

    queued: BatchedRequest
    row: Row
    prompt: RenderedPrompt
    stops: list[str]
    version: str


def _attempt(work: Callable[..., T], *args: Any) -> T | Exception:
    """Return the result or the exception of a function, so that one bad request does not fail its batch."""
    try:
        return work(*args)
    except Exception as error:
        return error


def _failure(error: Exception) -> Failure:
    """A new exception for one request of a failed batch."""
    if type(error).__name__ == "OutOfMemoryError":
        return Failure("out_of_memory", f"{str(error).splitlines()[0]} Lower max_batch or max_output_tokens")
    return Failure.of(error, "model")
