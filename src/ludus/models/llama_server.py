"""llama.cpp's server inside this process, behind a unix socket in a private directory, and a client of it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Protocol, Self

import orjson

from ludus.errors import Failure, UserError
from ludus.http.client import Connections
from ludus.http.connection import HttpReply
from ludus.models import chatml
from ludus.runtime.threads import in_thread

#: How long `close` waits for llama.cpp.
STOP_SECONDS = 10.0


class LlamaOptions(Protocol):
    """How llama.cpp runs: requests at once, tokens for each of them, threads."""

    parallel: int
    context: int
    threads: int | None


class Llama:
    """llama.cpp's server in this process, and a client of it."""

    #: the ids of ChatML's control tokens, and the template inside the file if it shows tools
    turn_start = turn_end = -1
    template: str | None = None

    def __init__(self, server: Any, socket: str, home: tempfile.TemporaryDirectory[str]) -> None:
        self._server, self._home = [server], home
        # llama.cpp may close an idle connection at any time, so no connection is reused.
        headers = {"content-type": "application/json", "connection": "close"}
        self._http = Connections("http://llama", headers, name="the embedded model", unix=socket)
        self._requests: set[asyncio.Task[HttpReply]] | None = set()  # None once it is closed

    @classmethod
    async def load(cls, path: Path, config: LlamaOptions) -> Self:
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
        props = (await llama._http.request("GET", "/props")).json()
        if (props.get("chat_template_caps") or {}).get("supports_tools"):
            llama.template = str(props.get("chat_template") or "")
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

    async def apply_template(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        """Render messages with the template inside the file."""
        body = {"messages": messages, **({"tools": tools} if tools else {})}
        try:
            return str((await self._post("/apply-template", body))["prompt"])
        except Failure as error:
            if error.kind in ("http_400", "http_500"):  # what a template refuses
                raise Failure("bad_request", f"the chat template refuses this conversation: {error.cause}") from error
            raise

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


def _serve(path: Path, config: LlamaOptions, socket: str) -> Any:
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
