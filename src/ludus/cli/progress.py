"""The progress of a collection: a live line on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ludus.cli.screen import one_line, stdout_console, text
from ludus.collection.table import clock, environment_lines

if TYPE_CHECKING:
    from ludus.collection.collection import Collection
    from ludus.collection.collector import Collector
    from ludus.collection.watchdog import BlockingCall

REFRESH = 0.25
STALL = 30.0
PLAIN_EVERY = 5.0


class Display:
    """Progress on stderr, so that stdout stays free for results."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._quiet = quiet
        self._live: Live | None = None
        self._began = self._printed_at = time.perf_counter()
        self._printed = ""  # the last plain line of progress: it is not repeated
        self._next = self._began + 1.0
        self._warn_after = STALL
        self._warned: set[BlockingCall] = set()

    def say(self, line: str) -> None:
        """Print a line."""
        self.console.print(text(line), soft_wrap=True)

    def reading(self, rows: int) -> None:
        """Report the first reading of the rows if it takes more than a second."""
        now = time.perf_counter()
        if not self._quiet and now - self._printed_at > 1.0:
            self._printed_at = now
            self.say(f"checking rows: {rows:,}")

    def show_live(self, line: str) -> bool:
        """Show a line that replaces the previous one. Without a terminal it is printed, and the result is false."""
        if not self.console.is_terminal:
            self.say(line)
            return False
        self._update(text(line))
        return True

    def refresh(self, bar: Callable[[], RenderableType], line: Callable[[], str]) -> None:
        """Show a bar on a terminal, a plain line every few seconds elsewhere."""
        if self._quiet:
            return
        if self.console.is_terminal:
            self._update(bar())
        elif time.perf_counter() - self._printed_at >= PLAIN_EVERY:
            self._printed_at = time.perf_counter()
            if (text := line()) != self._printed:
                self._printed = text
                self.say(text)

    def warn_of_stall(self, idle: float, warning: Callable[[float], str]) -> None:
        """Warn after `STALL` seconds without progress, and again whenever that time has doubled."""
        if idle < STALL:
            self._warn_after = STALL
        elif idle >= self._warn_after:
            self._warn_after = idle * 2
            self.say(warning(idle))

    def _update(self, content: RenderableType) -> None:
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(content, refresh=True)

    def show_share(self, what: str, share: float | None, facts: str = "") -> None:
        """Show which share of the work is done (0 to 1; None: unknown), from the first second on."""
        now = time.perf_counter()
        if self._quiet or now < self._next:
            return
        done = f"{share:.0%} done" if share is not None else ""
        left = f"{clock((now - self._began) * (1 / share - 1))} left" if share else ""
        line = f"{what}: {', '.join(filter(None, (facts, done, left)))}"
        self._next = now + (REFRESH if self.show_live(line) else PLAIN_EVERY)

    def watch(self, collector: Collector) -> Coroutine[Any, Any, None]:
        """Show progress until cancelled, and warn with the stages in flight when nothing changes.

        Call it from the task that collects: it also reports which sessions delay that task after a cancel.
        """
        collector.watchdog.on_blocked = lambda: self.warn_of_blocking(collector)
        return self._watch(collector, asyncio.current_task())

    async def _watch(self, collector: Collector, collecting: asyncio.Task[Any] | None) -> None:
        said_stopping = False
        while True:
            await asyncio.sleep(REFRESH)
            stopping = not said_stopping and collecting is not None and collecting.cancelling()
            if stopping and (sessions := slow_to_close(collector)):
                said_stopping = True
                self.say(f"stopping: {sessions} sessions are being closed. Ctrl-C again leaves them open")
            while collector.progress.notices:  # what happened to worker processes
                self.say(f"warning: {collector.progress.notices.pop(0)}")
            self.refresh(lambda: _bar(collector, self.console.width), lambda: ", ".join(_parts(collector)))
            self.warn_of_stall(idle_seconds(collector), lambda idle: stall(collector, idle))

    def warn_of_blocking(self, collector: Collector) -> None:
        """Say once which code blocks the event loop.

        The watchdog's thread calls this, in time to stop the run: a blocked event loop runs no task.
        """
        for call, warning in collector.watchdog.warnings().items():
            if call not in self._warned:
                self._warned.add(call)
                self.say(f"warning: {warning}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def idle_seconds(collector: Collector) -> float:
    """Seconds since a rollout last ended or changed its stage."""
    progress = collector.progress
    return time.perf_counter() - max(progress.last_change, *(report.changed for report in progress.reports()))


def slow_to_close(collector: Collector) -> int:
    """The number of sessions being closed, once one of them takes more than a second."""
    closing = [report for report in collector.progress.reports() if report.closing_since is not None]
    began = min((report.closing_since or 0.0 for report in closing), default=None)
    sessions = sum(report.stages["close"] for report in closing)
    return sessions if began is not None and time.perf_counter() - began > 1.0 else 0


def stall(collector: Collector, idle: float) -> str:
    """The warning that nothing changed: what the rollouts wait for, and the settings that limit the wait."""
    stages = [stage for stage, _ in collector.progress.waiting().most_common() if stage in _WAITS]
    what = f"nothing has happened for {idle:.0f} s: {waits_of(collector)}"
    if stages[:1] == ["model"] and not collector.plan.model.connects:
        what = f"{what}. It computes on this machine: other programs on it slow it down"
        if any(environment.agent.repeats_calls for environment in collector.plan.environments):
            return f"{what}, and agent programs send long prompts. A model server is faster: --model vllm:URL#MODEL"
        return what
    return f"{what}. To wait less: --set limits.{stages[0]}=SECONDS" if stages else what


#: What a rollout in a stage waits for.
_WAITS = {
    "open": "its session",
    "model": "the model",
    "tool": "a tool",
    "user": "the simulated user",
    "verify": "its verdict",
    "group": "its group",
    "close": "the end of its session",
}


def waits_of(collector: Collector) -> str:
    """What the rollouts in flight wait for; before the first one starts, the model and the environments."""
    stages = collector.progress.waiting().most_common()
    waits = [f"{count} wait{'s' * (count == 1)} for {_WAITS.get(stage, stage)}" for stage, count in stages]
    if waits:
        return ", ".join(waits)
    plan = collector.plan
    names = [plan.model.name, *(environment.name for environment in plan.environments)]
    shown = names[:3] + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return f"waiting for {', '.join(shown[:-1])} and {shown[-1]} to start"


def _rates(collector: Collector) -> tuple[float, float, float | None]:
    """Rollouts per second, tokens per second, and the seconds left at this rate."""
    progress = collector.progress
    seconds = max(time.perf_counter() - progress.started, 1e-9)
    pace = progress.finished / seconds
    left = max(progress.total - progress.skipped - progress.finished, 0)
    return pace, progress.output_tokens / seconds, left / pace if pace else None


def _parts(collector: Collector) -> list[str]:
    metrics, progress = collector.metrics, collector.progress
    pace, tokens, left = _rates(collector)
    reward = metrics.mean_reward
    done = min(metrics.dispatched, progress.total)  # a resumed run may hold more: its input was longer
    if not progress.finished:
        parts = [f"{done}/{progress.total} done", waits_of(collector)]
        if speed := collector.engine.model_stats().get("prompt_tokens_per_second"):  # of an embedded model
            parts.append(f"the model reads {speed:.0f} tokens/s")
        return parts
    parts = [f"{done}/{progress.total} done", f"{metrics.counts['failed']} failed"]
    parts.append(f"reward {reward:.3f}" if reward is not None else "reward -")
    parts.append(f"{pace:.1f} rollouts/s")
    if tokens:
        parts.append(f"{tokens:.0f} tokens/s")
    parts.append(f"{clock(left)} left" if left is not None else "- left")
    return parts


def _bar(collector: Collector, width: int) -> Table:
    metrics, progress = collector.metrics, collector.progress
    grid = Table.grid(padding=(0, 1), expand=True)
    facts = Text(" · ".join(_parts(collector)), overflow="ellipsis", no_wrap=True)
    bar = ProgressBar(total=max(progress.total, 1), completed=metrics.dispatched)
    if width < 100:
        grid.add_row(bar)
        grid.add_row(facts)
    else:
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True)
        grid.add_row(bar, facts)
    return grid


def summarise(collection: Collection) -> None:
    """Print the final table on stdout, and a line for each environment of a mixed collection."""
    names = ", ".join(environment.name for environment in collection.environments())
    table = Table(title=text(f"{names} with {collection.model.name}"), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in collection.facts():
        table.add_row(text(name), text(one_line(value), "yellow" if name == "warning" else ""))
    if collection.files is not None:
        table.add_row("files", text(collection.files.rollouts))
    console = stdout_console()
    console.print(table)
    if lines := environment_lines(collection.metrics):
        console.print(_by_environment(lines))


def _by_environment(lines: list[list[str]]) -> Table:
    table = Table(title_justify="left")
    for name in lines[0]:
        table.add_column(name, justify="left" if name == "environment" else "right", overflow="fold")
    for line in lines[1:]:
        table.add_row(*map(text, line))
    return table
