"""A watchdog for the event loop: it finds `async def` code that blocks the loop, and says whose code it is.

While such code runs, no other rollout makes progress, and the wait counts as their model's or tools' time. A thread
asks the loop for a heartbeat ten times a second. Without an answer for 50 ms, the thread samples the loop's stack every
50 ms until the loop answers. A call that is seen twice in a row has blocked the loop; a loop that is merely busy shows
a different call each time, and a process that the system has paused shows none.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple, Self

import ludus
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import is_author_code
from ludus.runtime import boundary
from ludus.runtime.threads import in_thread
from ludus.store.statistics import Distribution

#: Seconds between two heartbeats, and between two stack samples of a loop that does not answer.
ASK_EVERY = 0.1
LOOK_EVERY = 0.05

#: After this many samples of a blocked loop, the samples are counted and reported.
COUNT_AFTER = 20

#: Warn only about calls that blocked for this many seconds in all, and this share of the run.
WARN_SECONDS = 0.2
WARN_PART = 0.01

#: The stage of code outside rollouts, such as `share`. No rollout runs yet, so it is no warning.
SHARE = "share"

_LUDUS = str(Path(ludus.__file__).parent) + "/"
#: Code that runs other code. It is never blamed itself.
_MACHINERY = (boundary.__file__, sys.modules[Episode.__module__].__file__ or "", f"{_LUDUS}collection/")


class BlockingCall(NamedTuple):
    """A function that blocked the loop. `function` is its file and name."""

    environment: str
    stage: str
    function: str


@dataclass
class _Look:
    """A sample of the loop's stack: a call, its frame, and the line."""

    call: BlockingCall
    frame: FrameType
    line: int


class LoopWatchdog:
    """Watches the running event loop, from `async with` to its end.

    `on_blocked` is called in the watchdog's thread, also while the loop is blocked, when a blocking call was counted.

    async with LoopWatchdog() as watchdog:
        ...
    print(watchdog.warnings())
    """

    def __init__(self) -> None:
        self.on_blocked: Callable[[], None] = lambda: None
        self._lag = Distribution()
        self._blocked: dict[BlockingCall, float] = {}  # seconds
        self._lines: dict[BlockingCall, int] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._began = perf_counter()
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        """Start the thread."""
        self._began = perf_counter()
        arguments = (asyncio.get_running_loop(), threading.get_ident())
        self._thread = threading.Thread(target=self._watch, args=arguments, name="ludus-watchdog", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the thread, and wait until it has counted its samples."""
        self._stop.set()
        if self._thread is not None:
            await in_thread(self._thread.join)

    def summary(self) -> dict[str, Any]:
        """The fields for metrics.json: the loop's lag, and the seconds for which each call blocked it."""
        with self._lock:
            calls = [
                {**call._asdict(), "line": self._lines[call], "seconds": round(seconds, 3)}
                for call, seconds in self._longest_first()
            ]
            return {"lag": self._lag.summary(), "blocked": calls}

    def warnings(self) -> dict[BlockingCall, str]:
        """A sentence for each call that blocked the loop for long."""
        least = max(WARN_SECONDS, WARN_PART * (perf_counter() - self._began))
        with self._lock:
            return {
                call: _sentence(call, self._lines[call], seconds)
                for call, seconds in self._longest_first()
                if seconds >= least and call.stage != SHARE
            }

    def drain(self) -> list[Any]:
        """The blocking calls since the last drain, as JSON for `merge` in another process."""
        with self._lock:
            lag, self._lag = self._lag, Distribution()
            blocked = [[*call, self._lines[call], seconds] for call, seconds in self._blocked.items()]
            self._blocked = {}
        return [lag.state(), blocked]

    def merge(self, drained: list[Any]) -> None:
        """Add the drained counts of another process."""
        lag, blocked = drained
        with self._lock:
            self._lag.merge(lag)
            for environment, stage, function, line, seconds in blocked:
                call = BlockingCall(environment, stage, function)
                self._lines.setdefault(call, line)
                self._blocked[call] = self._blocked.get(call, 0.0) + seconds

    def _longest_first(self) -> list[tuple[BlockingCall, float]]:
        return sorted(self._blocked.items(), key=lambda entry: -entry[1])

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._stop.wait(ASK_EVERY):
            answer, asked = _Answer(), perf_counter()
            try:
                loop.call_soon_threadsafe(answer.give)
            except RuntimeError:  # the loop is closed
                return
            looks: list[_Look | None] = []
            counted = asked
            while not answer.given.wait(LOOK_EVERY) and not self._stop.is_set():
                looks.append(_look(sys._current_frames().get(thread)))
                if len(looks) == COUNT_AFTER:
                    now = perf_counter()
                    self._count(looks, now - counted)
                    looks, counted = [], now
            answered = answer.at or perf_counter()
            self._count(looks, max(answered - counted, 0.0))
            with self._lock:
                self._lag.add([answered - asked])

    def _count(self, looks: list[_Look | None], seconds: float) -> None:
        """Divide the seconds of the samples among the calls that were seen twice in a row."""
        blocking = {first.call for first, two in pairwise(looks) if first and two and first.frame is two.frame}
        with self._lock:
            for look in looks:
                if look is not None and look.call in blocking:
                    self._lines.setdefault(look.call, look.line)
                    self._blocked[look.call] = self._blocked.get(look.call, 0.0) + seconds / len(looks)
        if blocking:
            with contextlib.suppress(OSError):  # the terminal is gone: go on watching
                self.on_blocked()


class _Answer:
    """A heartbeat of the loop."""

    def __init__(self) -> None:
        self.given = threading.Event()
        self.at = 0.0

    def give(self) -> None:
        self.at = perf_counter()
        self.given.set()


def _sentence(call: BlockingCall, line: int, seconds: float) -> str:
    file, _, name = call.function.rpartition(" in ")
    remedy = "Await what it waits for" if call.stage == "model" else "Write def instead of async def, or await its work"
    return (
        f"{call.stage} of {call.environment} blocked the event loop for {seconds:.1f} s ({file}:{line} in {name}). The "
        f"other rollouts waited, also in their model time. {remedy}"
    )


def _look(frame: FrameType | None) -> _Look | None:
    """The author's call that the loop is in, or None if the loop runs our own code or waits for events."""
    frames = list(_frames(frame))
    files = [entry.f_code.co_filename for entry in frames]
    own = next((at for at, file in enumerate(files) if file.startswith(_MACHINERY)), None)
    if own is None:
        return None
    below = [
        entry for entry, file in zip(frames[:own], files, strict=False) if file.startswith(_LUDUS) or _is_author(entry)
    ]
    authors = [entry for entry in below if _is_author(entry)]
    if not below:
        return None
    shown, code = (authors or below)[0], (authors or below)[0].f_code
    environment, stage = _attribution(frames[own:])
    function = f"{Path(code.co_filename).name} in {code.co_name}"
    return _Look(BlockingCall(environment, stage, function), (authors or below)[-1], shown.f_lineno)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of a stack, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_author(frame: FrameType) -> bool:
    return is_author_code(frame.f_code.co_filename)


def _attribution(frames: list[FrameType]) -> tuple[str, str]:
    """The environment and the stage that the innermost frames of our own belong to."""
    environment, stage = "", ""
    for frame in frames:
        if frame.f_code is boundary.step.__code__:
            stage = stage or frame.f_locals["stage"]
        elif frame.f_code is Episode.call_tool.__code__:
            stage = stage or "tool"
        for name in ("episode", "environment", "self"):
            value = frame.f_locals.get(name)
            if isinstance(value, Episode):
                return value.job.environment, stage or "agent"
            if isinstance(value, Environment):
                environment = environment or value.name
    return environment or "an environment", stage or SHARE
