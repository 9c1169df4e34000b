"""The samples of a task: as rows, found again, and fed into one eval that runs as long as the worker.

Inspect's `SampleSource` adds samples to a running task. Each attempt at a sample is an epoch of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from inspect_ai import SampleSource, Task, enqueue_sample
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample

from .messages import Item, items_of


def digest_of(sample: Sample) -> str:
    """What tells samples apart whose ids are only their place in a dataset that was shuffled."""
    content = sample.model_dump_json(include={"input", "choices", "target"}, exclude={"input": {"__all__": {"id"}}})
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def rows_of(task: Task) -> Iterator[dict[str, Any]]:
    """The samples of a task as rows."""
    for sample in numbered(task):
        prompt = sample.input
        items = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else items_of(prompt)
        about = {"sample_id": sample.id, "digest": digest_of(sample), "target": sample.target}
        others = {"choices": sample.choices, "metadata": plain(sample.metadata)}
        yield {
            "task_id": str(sample.id),
            "responses_create_params": {"input": items},
            "inspect": {**about, **{name: value for name, value in others.items() if value}},
        }


def numbered(task: Task) -> Iterator[Sample]:
    """The samples, with their places as ids where they have none."""
    for place, sample in enumerate(task.dataset, start=1):
        yield sample if sample.id is not None else sample.model_copy(update={"id": place})


def plain(value: Any) -> Any:
    """A value as JSON can hold it; what it cannot hold is its text, and a number that is not finite is None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int, bool)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    try:
        return plain(json.loads(value.model_dump_json()))
    except (AttributeError, ValueError):
        return str(value)


class SampleAttempt:
    """One attempt at a sample."""

    def __init__(self, number: int, sample: Sample, epoch: int) -> None:
        self.number, self.sample, self.epoch = number, sample, epoch
        #: the model's turns as it wrote them, by the id of Inspect's message
        self.written: dict[str, tuple[Any, list[Item]]] = {}


class SampleFeed(SampleSource):
    """Feeds samples to the eval that runs, and tells how each ended."""

    def __init__(self, done: Callable[[SampleAttempt, EvalSample | None], None]) -> None:
        self._done = done
        self._samples: dict[str, Sample] = {}
        self._by_digest: dict[str, Sample] = {}
        self._jobs: dict[tuple[str, int], SampleAttempt] = {}
        self._epochs: dict[str, set[int]] = {}
        self._waiting: list[SampleAttempt] = []
        self._arrived = asyncio.Event()
        self._context: contextvars.Context | None = None

    def know(self, task: Task) -> None:
        """Remember the samples of a task."""
        for sample in numbered(task):
            self._samples[str(sample.id)] = sample
            self._by_digest.setdefault(digest_of(sample), sample)

    def begin(self, number: int, sample_id: str, digest: str, repeat: int) -> SampleAttempt:
        """Play a sample. Raises `KeyError` if the task has no such sample."""
        sample = self._samples.get(sample_id)
        if sample is None or (digest and digest_of(sample) != digest):
            found = self._by_digest[digest]
            sample = found.model_copy(update={"id": sample_id})
        used = self._epochs.setdefault(sample_id, set())
        epoch = next(epoch for epoch in range(repeat + 1, repeat + len(used) + 2) if epoch not in used)
        used.add(epoch)
        job = self._jobs[sample_id, epoch] = SampleAttempt(number, sample, epoch)
        self._waiting.append(job)
        self._start_waiting()
        return job

    def job_of(self, sample_id: Any, epoch: int) -> SampleAttempt | None:
        """The attempt that Inspect calls by a sample and an epoch."""
        return self._jobs.get((str(sample_id), epoch))

    def job(self, number: int) -> SampleAttempt | None:
        """The attempt with a number."""
        return next((job for job in self._jobs.values() if job.number == number), None)

    async def next_samples(self) -> list[Sample] | None:
        """Called while nothing is played: wait for the next sample. It is fed with its epoch, so none is returned."""
        self._context = contextvars.copy_context()  # in it, samples can be added to this eval
        self._start_waiting()
        await self._arrived.wait()
        self._arrived.clear()
        return []

    async def sample_complete(self, sample: EvalSample) -> None:
        """Tell how an attempt ended."""
        self._end(sample.id, sample.epoch, sample)

    async def sample_abandoned(self, sample: Sample, epoch: int) -> None:
        """Tell that an attempt was cancelled before it began."""
        self._end(sample.id, epoch, None)

    def _end(self, sample_id: Any, epoch: int, sample: EvalSample | None) -> None:
        job = self._jobs.pop((str(sample_id), epoch), None)
        if job is not None:
            self._done(job, sample)

    def _start_waiting(self) -> None:
        if self._context is None:
            return
        for job in self._waiting:
            self._context.run(enqueue_sample, job.sample, epoch=job.epoch)
        self._waiting.clear()
        self._arrived.set()
