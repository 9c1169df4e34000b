"""One tracker of a collection, on daemon threads: a tracker that hangs does not keep a run from ending."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from ludus.runtime.threads import in_thread
from ludus_telemetry.state import RunState
from ludus_telemetry.writers import ChartWriter

#: Seconds between two points of a chart.
WRITE_EVERY = 10.0
#: Timeouts for the last values: after a completed run, and after a failed or stopped one.
CLOSE_WITHIN = 30.0
STOP_WITHIN = 5.0


class Chart:
    """Writes the state of a run to one tracker. `say` gets the tracker's exceptions."""

    def __init__(self, name: str, writer: ChartWriter, say: Callable[[str, Exception], None]) -> None:
        self.name = name
        self._writer, self._say = writer, say
        self._written: RunState | None = None
        self._writing = threading.Lock()

    async def follow(self, state: Callable[[], RunState]) -> None:
        """Write every few seconds until cancelled."""
        while True:
            await asyncio.sleep(WRITE_EVERY)
            await in_thread(self._write, state())

    def start_closing(self, last: RunState | None, *, completed: bool) -> threading.Thread:
        """Write the last values and finish the tracker's run on a thread."""
        arguments = {"last": last, "completed": completed}
        thread = threading.Thread(target=self._close, kwargs=arguments, name=f"ludus-{self.name}", daemon=True)
        thread.start()
        return thread

    def _close(self, last: RunState | None, *, completed: bool) -> None:
        if last is not None:
            self._write(last)
        with self._writing:
            try:
                self._writer.close(completed=completed)
            except Exception as error:
                self._say(self.name, error)

    def _write(self, now: RunState) -> None:
        """Write the values if a rollout has ended since the last ones."""
        with self._writing:
            before, self._written = self._written, now
            if before is not None and now.finished == before.finished:
                return
            try:
                self._writer.write(now.step, now.scalars(before))
            except Exception as error:
                self._say(self.name, error)


def close_all(charts: list[Chart], last: RunState | None, *, completed: bool) -> list[Chart]:
    """Close trackers concurrently. Returns those that timed out: their threads are abandoned."""
    ends = time.monotonic() + close_limit(completed=completed)
    closing = [(chart, chart.start_closing(last, completed=completed)) for chart in charts]
    for _, thread in closing:
        thread.join(max(0.0, ends - time.monotonic()))
    return [chart for chart, thread in closing if thread.is_alive()]


def close_limit(*, completed: bool) -> float:
    """Seconds that trackers have for the last values."""
    return CLOSE_WITHIN if completed else STOP_WITHIN
