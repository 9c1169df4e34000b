"""A worker as the collection sees it: its messages in both directions, and its last report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from typing import Any

from ludus.collection.engines.frames import frame
from ludus.collection.engines.leases import WorkLease
from ludus.collection.recording import Recorder


class WorkerConnection(ABC):
    """A worker that plays leases. `number` is unique: a replacement has another.

    `frames` are the worker's messages until it ends. Iterating may be cancelled and resumed.
    """

    frames: AsyncIterator[tuple[Any, memoryview]]

    def __init__(self, number: int) -> None:
        self.number = number
        self.room = 0  #: how many rollouts it wants to have
        self.ready = False
        self.delivered = False  #: whether it has sent a result
        self.ended = False  #: whether it was told that there is no more work
        self.lost_with_machine = False  #: whether it died because its machine did

    def give(self, leases: Iterable[WorkLease], recorder: Recorder) -> None:
        """Send leases: the row of each, the recorded rollouts of its task, and the saved turns of its repeats."""
        heads, body = [], []
        for lease in leases:
            work = lease.work
            recorded = [recorder.recorded_line(entry) for entry in work.recorded]
            repeats = list(work.repeats.items())
            sizes = [len(line) for line in recorded]
            turns = recorder.with_turns(work).turns
            turn_sizes = [[repeat, len(lines)] for repeat, lines in turns.items()]
            name, size = work.environment.name, len(work.line)
            head = [lease.number, work.task_id, name, repeats, work.good, size, sizes, turn_sizes, lease.is_alone]
            heads.append(head)
            body += [work.line, *recorded, *turns.values()]
            work.turns = {}  # sent: they may be large
        self._send(frame({"leases": heads}, body))

    def confirm_turns(self, count: int) -> None:
        """Tell the worker that `count` of its turns are written."""
        self._send(frame({"saved": count}))

    def end(self) -> None:
        """Tell the worker that there is no more work."""
        self.ended = True
        self._send(frame({"end": True}))

    def stop(self) -> None:
        """Tell the worker to cancel its rollouts, to close their sessions, and to end."""
        self._send(frame({"stop": True}))

    @abstractmethod
    def reports(self) -> AsyncIterator[bytes]:
        """What the watchdog of the worker reports while the worker's event loop is blocked."""

    @abstractmethod
    async def wait(self) -> str | None:
        """Wait for the end of the worker. Returns how it died; None if it ended by itself."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the worker and everything it started."""

    async def kill_machine(self) -> bool:
        """Kill the machine that the worker is on, if others are left to play on. Returns whether it was killed."""
        return False

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Send frames. The reader of its frames notices a dead worker."""
