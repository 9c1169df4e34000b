"""The worker of a collection: started once, started again if it dies, shared by all rollouts of a process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ludus.errors import Failure, UserError
from ludus.model import Model
from ludus.models import open_model
from ludus.sandbox.choice import open_provider
from ludus.sandbox.protocol import SandboxProvider
from ludus_inspect.inside.ludus_inspect_worker.channel import Message
from ludus_inspect.process import InspectProcess
from ludus_inspect.sample import PlayedSample
from ludus_inspect.settings import POLICY, InspectConfig


class InspectWorker:
    """Hands samples to the worker process, and its requests to the samples they belong to."""

    def __init__(self, config: InspectConfig, models: dict[str, Model]) -> None:
        self.config, self.models = config, models
        self._numbers = itertools.count(1)
        self._samples: dict[int, PlayedSample] = {}
        self._boxes: dict[int, PlayedSample] = {}
        self._process: InspectProcess | None = None
        self._provider: SandboxProvider | None = None
        self._lock = asyncio.Lock()
        self._late: set[asyncio.Task[Any]] = set()
        self._said = ""

    def sample(self, task: Any, repeat: int) -> PlayedSample:
        """A sample to play."""
        number = next(self._numbers)
        sample = self._samples[number] = PlayedSample(self, number, task, repeat)
        return sample

    async def start(self) -> InspectProcess:
        """The process, started if there is none."""
        async with self._lock:
            if self._process is None:
                self._process = process = await InspectProcess.start(self.config, self._answer, self._hear)
                process.ended.add_done_callback(lambda _: self._lost(process))
            return self._process

    async def begin(self, played: PlayedSample, **fields: Any) -> None:
        """Let the process play a sample."""
        process = await self.start()
        process.channel.note(op="play", job=played.number, **fields)

    def cancel(self, number: int) -> None:
        """Let the process stop playing a sample."""
        if self._process is not None:
            self._process.channel.note(op="cancel", job=number)

    def forget(self, number: int) -> None:
        """A sample is over."""
        self._samples.pop(number, None)
        self._boxes = {box: sample for box, sample in self._boxes.items() if sample.number != number}

    def number_box(self, sample: PlayedSample) -> int:
        """A number for a sandbox of a sample."""
        number = next(self._numbers)
        self._boxes[number] = sample
        return number

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def sandboxes(self) -> SandboxProvider:
        """The provider of sandboxes, opened when the first sample needs one."""
        async with self._lock:
            if self._provider is None:
                chosen = self.config.sandbox
                image = chosen.image is not None or bool(set(self.config.images.values()) - {"host"})
                try:
                    self._provider = await open_provider(
                        chosen.provider, image=image, urls=chosen.urls, warm=chosen.warm
                    )
                except UserError as error:
                    raise Failure("sandbox", str(error)) from error
            return self._provider

    async def stop(self) -> None:
        """End the process and what it used."""
        await asyncio.gather(*self._late, return_exceptions=True)
        if (process := self._process) is not None:
            self._process = None
            await process.stop()
        if self._provider is not None:
            await self._provider.close()

    async def _answer(self, message: Message) -> Any:
        sample = self._boxes.get(message["box"]) if "box" in message else self._samples.get(message.get("job") or 0)
        if sample is None:
            raise Failure("crash", "this request belongs to no rollout that is being played")
        return await sample.answer(message)

    def _hear(self, message: Message) -> None:
        op = message["op"]
        if op == "ended":
            self._said = message["text"]
            return
        if op == "close":
            if (owner := self._boxes.pop(message["box"], None)) is not None:
                owner.close_box(message["box"])
            return
        sample = self._samples.get(message.get("job") or 0)
        if sample is None:
            return
        if op == "scoring":
            sample.scoring()
        elif op == "unknown":
            cause = f"{self.config.task.text} has no such sample: its dataset is another one than that of the rows"
            sample.end(Failure("bad_row", cause, stage="open"))
        elif op == "done":
            lost = Failure("crash", "the sample was cancelled before it began", stage="agent")
            sample.end(lost if message.get("lost") else message)

    def _lost(self, process: InspectProcess) -> None:
        """The process has ended although nobody told it to: its samples have failed, and the next starts another."""
        if self._process is not process:
            return
        self._process = None
        self.later(self._fail(process, list(self._samples.values())))

    async def _fail(self, process: InspectProcess, samples: list[PlayedSample]) -> None:
        """End the samples of a process, with the reason why it ended."""
        await process.stop()  # its socket closes before its status can be read
        words = f"ended: {self._said[:500]}" if self._said else process.last_words()
        self._said = ""
        for sample in samples:
            sample.end(Failure("crash", f"the worker of {self.config.task.text} {words}", stage="agent"))


@asynccontextmanager
async def worker_of(config: InspectConfig) -> AsyncIterator[InspectWorker]:
    """A worker whose process runs, with the models that judge and play users."""
    async with AsyncExitStack() as stack:
        models: dict[str, Model] = {}
        for spec in dict.fromkeys([config.judge, config.user, *config.models.values()]):
            if spec and spec != POLICY:
                models[spec] = await stack.enter_async_context(open_model(spec))
        worker = InspectWorker(config, models)
        stack.push_async_callback(worker.stop)
        await worker.start()
        yield worker
