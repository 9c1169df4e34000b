"""One sample while the worker plays it: its model calls, its judges, its sandboxes, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import json
from hashlib import blake2b
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ludus.agents.program_calls import ProgramCalls
from ludus.agents.program_requests import read_items
from ludus.episode import Episode
from ludus.errors import Failure, Stage
from ludus.http.replies import envelope
from ludus.model import Model, Request
from ludus.response import Response
from ludus.runtime.boundary import step
from ludus.sandbox.protocol import Program, Sandbox, SandboxError
from ludus_inspect.boxes import spec_of
from ludus_inspect.inside.ludus_inspect_worker.channel import Message
from ludus_inspect.scores import failure_of_error
from ludus_inspect.settings import POLICY

if TYPE_CHECKING:
    from ludus_inspect.worker import InspectWorker

#: More calls than any solver makes; limits of a sample are `resources.turn_limit` and others.
_MOST_CALLS = 10_000
#: The time limit of a program for which a task sets none.
_PROGRAM_SECONDS = 3600.0
#: The largest file that is read from a sandbox.
_READ_BYTES = 100 << 20


class SampleCalls(ProgramCalls):
    """The calls of a solver to the model of the rollout."""

    sampling_is_operators = False  # how an eval samples is part of its definition
    refuses_long_prompts = False

    broke: Failure | None = None  #: why the last call failed, whatever conversation it belonged to

    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """The model's answer, which enters the trajectory."""
        try:
            answer = await self._call_model({**body, "input": read_items(body["input"])})
        except Failure as failure:
            self.broke = failure
            raise
        self.broke = None
        return answer


class PlayedSample:
    """A sample of one rollout. What it needs from this process is answered here."""

    def __init__(self, worker: InspectWorker, number: int, task: Any, repeat: int) -> None:
        self.number = number
        self._worker = worker
        self._task, self._repeat = task, repeat
        self._episode: Episode | None = None
        self._calls: SampleCalls | None = None
        self._boxes: dict[int, tuple[Sandbox, str | None]] = {}
        self._failed: dict[bytes, Failure] = {}  # calls of judges and users, by their content
        self._broken: Failure | None = None  # a sandbox that failed
        self._scoring = asyncio.Event()
        self._done: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    async def play(self, episode: Episode) -> Message:
        """Let the worker play the sample, and wait until it is scored. Raises the `Failure` of what failed."""
        self._episode = episode
        self._calls = calls = SampleCalls(episode, "", _MOST_CALLS)
        await self._worker.begin(self, sample=str(self._task.sample_id), digest=self._task.digest, repeat=self._repeat)
        try:
            scoring: asyncio.Future[Any] = asyncio.ensure_future(self._scoring.wait())
            try:
                await asyncio.wait({scoring, self._done}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                scoring.cancel()
            result: Message = await step("verify", episode.limits.verify, asyncio.shield(self._done))
        finally:
            calls.close()
        failure = calls.failure or self._broken or next(iter(self._failed.values()), None)
        failure = failure or (calls.broke if result.get("error") else None) or failure_of_error(result)
        if failure is not None:
            raise failure
        return result

    def scoring(self) -> None:
        """The solver has ended, and the scorers begin."""
        self._scoring.set()

    def end(self, result: Message | Failure) -> None:
        """The sample has ended."""
        if self._done.done():
            return
        if isinstance(result, Failure):
            self._done.set_exception(result)
            self._done.exception()  # it may be asked for by nobody
        else:
            self._done.set_result(result)

    async def close(self) -> None:
        """Stop playing, and close the sandboxes."""
        if self._episode is not None and not self._done.done():
            self._worker.cancel(self.number)
        self._worker.forget(self.number)
        if self._calls is not None:
            self._calls.close()
        boxes = [box for box, _ in self._boxes.values()]
        self._boxes.clear()
        for result in await asyncio.gather(*(box.close() for box in boxes), return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def answer(self, message: Message) -> Any:
        """What a request of the worker gets."""
        op = message["op"]
        if op == "model":
            return await self._model(message["route"], message["body"])
        try:
            if op == "open":
                return await self._open(message["services"])
            box, folder = self._boxes[message["box"]]
            if op == "exec":
                return await self._exec(box, folder, message)
            path = _inside(folder, message["file"])
            if op == "write":
                await box.write(path, base64.b64decode(message["data"]))
                return None
            return base64.b64encode(await box.read(path, _READ_BYTES)).decode()
        except SandboxError as error:
            error.stage = error.stage or ("verify" if self._scoring.is_set() else "tool")
            self._broken = self._broken or error
            raise
        except OSError as error:
            return {"raise": _kind(error), "text": str(error)}

    def close_box(self, number: int) -> None:
        """The worker needs a sandbox no longer."""
        if (opened := self._boxes.pop(number, None)) is not None:
            self._worker.later(opened[0].close())

    async def _model(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        assert self._calls is not None
        scoring, name = self._scoring.is_set(), "" if route == POLICY else route
        part, spec = self._worker.config.route(name, scoring=scoring)
        if not scoring and POLICY in (route, spec):
            return await self._calls.ask(body)
        key = blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).digest()
        try:
            answer = await self._other(name, part, spec, body)
        except Failure as failure:
            self._failed.setdefault(key, failure)
            raise
        self._failed.pop(key, None)
        return answer

    async def _other(self, name: str, part: str, spec: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of a judge or of a simulated user. It is not part of the trajectory."""
        episode = self._episode
        assert episode is not None
        stage: Stage = "user" if part == "user" else "verify"
        if not spec:
            called = f"the model {name}" if name else "a model for its verdict"
            also = f", or --set resources.models.{name}=SPEC" if name else ""
            cause = f"{self._worker.config.task.text} asks {called}, and none is set: --set resources.{part}=SPEC{also}"
            raise Failure(f"no_{part}", cause, stage=stage)
        model = episode.model if spec == POLICY else self._worker.models[spec]
        seconds = episode.limits.model
        params = {key: value for key, value in body.items() if key != "input"}
        request = Request(body["input"], seed=episode.job.seed, deadline=perf_counter() + seconds, params=params)
        try:
            response = await step(stage, seconds, _respond(model, request))
        except Failure as failure:
            kind = "judge" if part == "judge" else failure.kind
            raise Failure(kind, f"the {part} {name or 'model'}: {failure.kind}: {failure.cause}", stage=stage) from None
        return envelope(response, body, model.name, tokens=False)

    async def _open(self, services: dict[str, Any]) -> dict[str, int]:
        spec, folder, name = spec_of(services, self._worker.config)
        provider = await self._worker.sandboxes()
        box = await provider.open(spec)
        number = self._worker.number_box(self)
        self._boxes[number] = box, folder
        if folder is not None:
            await box.exec(["mkdir", "-p", folder])
        return {name: number}

    async def _exec(self, box: Sandbox, folder: str | None, message: Message) -> Message:
        if message["user"] not in (None, "root", "user"):
            raise ValueError(f"programs run as one user here, and not as {message['user']!r:.40}")
        argv = [str(word) for word in message["cmd"]]
        place = _inside(folder, message["cwd"]) if message["cwd"] else folder
        if place is not None:
            argv = ["/bin/sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh", place, *argv]
        program = Program(
            tuple(argv),
            stdin=base64.b64decode(message["stdin"]),
            timeout=float(message["timeout"] or _PROGRAM_SECONDS),
            env={str(key): str(value) for key, value in message["env"].items()},
        )
        result = await box.run(program)
        return {
            "code": result.exit_code,
            "timed_out": result.timed_out,
            "stdout": base64.b64encode(result.stdout).decode(),
            "stderr": base64.b64encode(result.stderr).decode(),
        }


async def _respond(model: Model, request: Request) -> Response:
    response = await model.respond(request)
    if (reason := response.aborted) is not None:
        raise Failure("aborted", f"the answer ended early, with the reason {reason!r:.80}")
    return response


def _inside(folder: str | None, path: str) -> str:
    """A path of a task: relative ones are in the folder of its programs."""
    return path if folder is None or path.startswith("/") else f"{folder.rstrip('/')}/{path}"


def _kind(error: OSError) -> str:
    if "larger than" in str(error):
        return "TooLarge"
    kinds = ("FileNotFoundError", "IsADirectoryError", "PermissionError")
    return type(error).__name__ if type(error).__name__ in kinds else "OSError"
