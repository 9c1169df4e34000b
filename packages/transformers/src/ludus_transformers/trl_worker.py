"""TRL's asynchronous trainer: a rollout worker (`RolloutWorkerProtocol`) that feeds it groups of an environment.

    worker = TrlWorker("mcqa", model="vllm:http://127.0.0.1:8000/v1#policy", policy=GroupPolicy(size=8))
    trainer = AsyncGRPOTrainer(model, rollout_worker=worker, ...)

Each token sequence of a trainable member is one sample: a rollout of several sequences is several samples with the same
advantage. Failed and masked members are no samples. Generation stops while `unread` samples wait in the buffer.
"""

from __future__ import annotations

import asyncio
import queue
import statistics
import time
from collections.abc import Iterator
from typing import Any, Unpack

from ludus.collection.collection import Environments
from ludus.collection.options import CollectArguments
from ludus.data.advantages import z_score
from ludus.errors import UserError
from ludus.train.contract import GroupFeed
from ludus.train.group import Estimator, TrainingGroup
from ludus.train.policy import GroupPolicy
from ludus_transformers.loop_thread import LoopThread


class _SampleBuffer(queue.Queue[Any]):
    """A queue that calls `taken` after every `get`."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: Any = lambda: None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take a sample."""
        sample = super().get(block, timeout)
        self.taken()
        return sample


class TrlWorker:
    """A rollout worker in the trainer's process. `options` are those of `ludus.collect`.

    `model` is the policy: usually the vLLM server to which the trainer sends its weights, or the adapters that it holds
    (`adapters.AdapterPolicy`). `unread` is how many samples may wait: the samples of a step times the steps that
    generation may be ahead. With `ahead`, the trainer's updates set the pace instead: groups are generated for at most
    that many steps of `groups_per_step` groups beyond the current one, and 0 generates with the newest weights only.
    """

    def __init__(
        self,
        environment: Environments = None,
        *,
        policy: GroupPolicy | None = None,
        unread: int = 64,
        groups_per_step: int = 1,
        ahead: int | None = None,
        estimator: Estimator = z_score,
        epochs: int | None = None,
        **options: Unpack[CollectArguments],
    ) -> None:
        if unread < 1:
            raise UserError(f"unread must be at least 1, not {unread}")
        self.rollout_buffer = _SampleBuffer()
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self.feed = GroupFeed(
            environment, policy=policy, groups_per_step=groups_per_step, ahead=ahead, epochs=epochs, **options
        )
        self.feed.prepare()
        self._unread, self._estimator = unread, estimator
        self._thread: LoopThread | None = None
        self._reading: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._last_sample = time.monotonic()

    def start(self) -> None:
        """Begin to generate. A worker starts only once: after a restart the trainer would read stale samples."""
        if self._reading is not None:
            raise UserError("a TrlWorker can be started once", "Make a new one for another training")
        self._thread = LoopThread("ludus-trl-worker")
        self._thread.run(self._begin())

    def stop(self) -> None:
        """Cancel the rollouts in flight and stop."""
        if self._thread is not None:
            self._thread.run(self._end())
            self._thread.close()
            self._thread = None

    def join(self) -> None:
        """Wait until all tasks are played. Raises the error that ended generation, if one did."""
        if self._thread is not None and self._reading is not None:
            self._thread.run(_finished(self._reading))
        if self._error is not None:
            raise self._error

    def update_model_version(self, model_version: int) -> None:
        """The policy's server has new weights."""
        if self._thread is None:
            self.feed.version = model_version
        else:
            self._thread.call(self.feed.update, model_version)

    def check_health(self, stale_after_s: float) -> None:
        """Raise the error that ended generation, or if no sample came for `stale_after_s` seconds."""
        if self._error is not None:
            raise self._error
        if self._reading is not None and self._reading.done():
            raise UserError("all tasks are played and the trainer waits for more", "Pass epochs=None, or fewer steps")
        waited = time.monotonic() - self._last_sample
        if self.rollout_buffer.empty() and waited > stale_after_s:
            counts = ", ".join(f"{count} {name}" for name, count in self.feed.counts.items())
            raise UserError(f"no sample for {waited:.0f} s. Rollouts: {counts or 'none'}")

    async def _begin(self) -> None:
        room = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.rollout_buffer.taken = lambda: loop.call_soon_threadsafe(room.set)
        self._last_sample = time.monotonic()
        await self.feed.__aenter__()
        self._reading = asyncio.create_task(self._read(room))

    async def _end(self) -> None:
        self.rollout_buffer.taken = lambda: None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self.feed.__aexit__(asyncio.CancelledError, None, None)

    async def _read(self, room: asyncio.Event) -> None:
        try:
            async for group in self.feed:
                for sample in samples_of(group, self._estimator):
                    self.rollout_buffer.put(sample)
                self._last_sample = time.monotonic()
                self.metrics_queue.put({f"ludus/{name}": float(n) for name, n in self.feed.counts.items()})
                while self.rollout_buffer.qsize() >= self._unread:
                    room.clear()
                    await room.wait()
        except Exception as error:
            self._error = error


async def _finished(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})


def samples_of(group: TrainingGroup, estimator: Estimator = z_score) -> Iterator[Any]:
    """TRL's samples of a group: one for each sequence of each trainable member."""
    import numpy
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    rewards = [member.reward or 0.0 for member in group.trainable]
    deviation = statistics.pstdev(rewards) if rewards else 0.0
    for member, advantages in zip(group.members, group.sequence_advantages(estimator), strict=True):
        if not member.trains:
            continue
        messages, asked = member.rollout.messages(), len(member.rollout.task.input)
        known = [version for version in member.versions if version is not None]
        for sequence, advantage in zip(member.sequences, advantages, strict=True):
            if any(sequence.mask):
                reward = float(member.rollout.reward_of(sequence.thread) or 0.0)
                yield RolloutSample(
                    prompt=messages[:asked],
                    completion=messages[asked:],
                    input_ids=numpy.asarray(sequence.ids, dtype=numpy.int64),
                    completion_mask=numpy.asarray(sequence.mask, dtype=numpy.int64),
                    old_log_probs=numpy.asarray(sequence.logprobs, dtype=numpy.float32),
                    advantage=float(advantage),
                    model_version=min(known, default=0),
                    group_id=group.number,
                    metrics={"reward": reward, "reward_std": deviation},
                    enqueued_at=time.time(),
                )
