"""What a rollout records while it is played: its model calls with their tokens, its times, and turns to be saved.

An `Episode` has one recorder. `Rollout` gets what it recorded, and a display asks it for the current stage.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from ludus.dialects.usage import add_usage, less_usage
from ludus.errors import Failure, Stage
from ludus.response import Item, Response
from ludus.rollout import Job, Rollout
from ludus.runtime.boundary import INTERRUPTS
from ludus.thread import Thread
from ludus.tokens import TokenLog
from ludus.tools import Raised

T = TypeVar("T")

#: The fields of a model's usage that a traced step keeps.
_USAGE = ("input_tokens", "output_tokens")


class SavesTurns(Protocol):
    """Keeps the turns of one rollout, so that a killed collection can go on with it."""

    def begin(self, saved: int = 0) -> None:
        """The session is open. What comes from now on is new; `saved` turns are kept already."""

    def save(self) -> None:
        """A model call begins: keep what happened since the last one."""

    def settle(self) -> Awaitable[None] | None:
        """The model has answered. Returns what to await if what was saved is not safe yet."""

    def end(self) -> None:
        """The rollout has ended: what is not written yet is not needed any more."""


class KnownCall(NamedTuple):
    """An answer of the model from before the rollout was interrupted, and the record of its call.

    `asked` are the items that the model read then, if the program has written some of them otherwise now.
    """

    answer: dict[str, Any]
    record: dict[str, Any]
    asked: list[Item] | None = None


class KeepsCalls(Protocol):
    """Journals the model calls of a program that drives a rollout, and knows those of an earlier run."""

    @property
    def has_answers(self) -> bool:
        """Whether there are answers of an earlier run that nobody asked for yet."""

    def known(self, key: str, alike: str) -> KnownCall | None:
        """The next answer to what was asked, by its digest, or by its digest without volatile text; else None."""

    def keep(
        self, key: str, response: Response, record: dict[str, Any], alike: str, asked: list[Item] | None = None
    ) -> None:
        """The model has answered: keep the answer, and what was `asked` if that has volatile text."""

    def counts(self) -> dict[str, int]:
        """The answers of an earlier run: `kept_calls`, those `alike_calls` among them, and `lost_calls`."""

    def settle(self) -> Awaitable[None] | None:
        """What to await if kept answers are not safe yet."""


class EpisodeRecorder:
    """Records one rollout. Times are of `time.perf_counter`. With `traces`, each step goes through `traced`."""

    traces: ClassVar[bool] = False

    __slots__ = (
        "_last_usage",
        "_tools_running",
        "_turn_of_last_tool",
        "asides",
        "asked_version",
        "began",
        "calls",
        "first_tools",
        "kept_calls",
        "since",
        "stage",
        "steps",
        "threads",
        "timings",
        "tokens",
        "tool_errors",
        "turns",
        "usage",
    )

    def __init__(self) -> None:
        self.stage: Stage = "open"
        self.began = self.since = perf_counter()
        self.timings: dict[str, float] = {}
        self.steps: list[tuple[str, float, float]] = []  #: stage, time of its begin and seconds of each step
        self.calls: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = {}
        self.tool_errors: list[dict[str, Any]] = []
        self.threads: list[Thread] = []  #: conversations beside the main one
        self.asides: list[Any] = []  #: what is not in the trajectory and a continuation needs, as JSON
        self.turns: SavesTurns | None = None
        self.kept_calls: KeepsCalls | None = None
        self.asked_version: Any = None  #: the policy version of the last model call, as it began
        self.first_tools: list[dict[str, Any]] | None = None  #: the tools of the first model call
        self._last_usage: dict[str, Any] | None = None
        self.tokens: TokenLog | None = None
        self._tools_running = 0
        self._turn_of_last_tool: dict[str, Any] | None = None  # its entry in `calls`

    def enter(self, stage: Stage) -> float:
        """A stage begins. Returns the time."""
        self.stage, self.since = stage, perf_counter()
        return self.since

    def traced(self, stage: Stage, work: Awaitable[T]) -> Awaitable[T]:
        """Await one step, and record it for a trace."""
        return work

    def answered(self, response: Response, tools: list[dict[str, Any]] | None) -> None:
        """Record an answer of the model: its tokens, its usage, and the `tools` that its request offered."""
        if self.first_tools is None:
            self.first_tools = tools or []
        if response.tokens is not None:
            self.tokens = self.tokens or TokenLog()
        self.record_call(response, tools, self.first_tools, self.tokens)

    def record_call(
        self,
        response: Response,
        tools: list[dict[str, Any]] | None,
        first_tools: list[dict[str, Any]],
        log: TokenLog | None,
    ) -> dict[str, Any]:
        """Record an answer in a conversation whose first call had `first_tools`, and whose tokens are in `log`."""
        if response.waited:
            self.timings["connect"] = self.timings.get("connect", 0.0) + response.waited
        record: dict[str, Any] = {"items": len(response.output)}
        if tools is not first_tools and (tools or []) != first_tools:
            record["tools"] = tools or []
        if (why := response.prompt_too_long) is not None:
            record["prompt_too_long"] = why
        if response.tokens is not None and log is not None:
            record |= log.add(response.tokens)
        self.calls.append(record)
        self._last_usage = response.usage
        add_usage(self.usage, self._last_usage)
        return record

    def take_threads(self, threads: list[Thread]) -> None:
        """Sort the calls that were recorded by thread. The first thread is the main one."""
        main, *others = threads
        self.calls[:], self.first_tools = main.calls, main.tools
        self.threads[:] = others

    def adopt(self, response: Response, calls: list[dict[str, Any]], usage: dict[str, Any]) -> None:
        """Record calls that were made elsewhere or before."""
        self.first_tools = response.tools or None
        self.calls += calls
        self._last_usage = response.usage
        add_usage(self.usage, usage)

    def continue_tokens(self, calls: list[dict[str, Any]]) -> None:
        """Let the tokens of the next call continue those of earlier calls of this rollout."""
        if any("prefix" in call for call in calls):
            self.tokens = self.tokens or TokenLog()
            self.tokens.restore(calls)

    def usage_of(self, calls: int) -> dict[str, Any]:
        """The usage of the first `calls` model calls: all of them, or all but the last one."""
        if calls == len(self.calls) or self._last_usage is None:
            return self.usage
        return less_usage(self.usage, self._last_usage)

    def tool_began(self, name: str, is_offered: bool) -> dict[str, Any] | None:
        """A tool call begins: from the second call of a turn on, record whether calls of the turn run at once.

        A replay runs them the same way, because calls that race leave another state than calls in sequence. Returns
        the record of the call, if there is one, for `tool_ended`.
        """
        if is_offered:
            turn = self.calls[-1] if self.calls else None
            if turn is not None and turn is self._turn_of_last_tool:
                turn["parallel"] = self._tools_running > 0 or turn.get("parallel", False)
            self._turn_of_last_tool = turn
            self._tools_running += 1
        return None

    def tool_failed(self, call: dict[str, Any] | None, error: BaseException) -> None:
        """A tool call ends with an error, which fails the rollout."""

    def tool_ended(self, call: dict[str, Any] | None, is_offered: bool) -> None:
        """A tool call has ended."""
        self._tools_running -= is_offered

    def tool_raised(self, name: str, raised: Raised) -> None:
        """Count an exception of a tool."""
        error = {"tool": name, "exception": raised.exception, "where": raised.where}
        for known in self.tool_errors:
            if known.items() >= error.items():
                known["count"] += 1
                return
        self.tool_errors.append({**error, "count": 1})

    def clear(self) -> None:
        """Forget everything that happened, except the start time and where turns are saved."""
        for record in (self.calls, self.usage, self.timings, self.steps, self.tool_errors, self.asides, self.threads):
            record.clear()
        self.first_tools = self._last_usage = self.tokens = self._turn_of_last_tool = None

    def resume(self, began: float, timings: dict[str, float], asides: list[Any]) -> None:
        """The rollout goes on after turns that were played again from `began` on, with the times it had before."""
        replayed = perf_counter() - began
        earlier = sum(taken for stage, taken in timings.items() if stage not in ("connect", "total"))
        self.timings.clear()
        self.timings.update({**timings, "replay": replayed, "total": earlier})
        self.steps[:] = [("replay", began, replayed)]
        self.asides += asides

    def rollout(self, job: Job) -> Rollout:
        """The rollout of a job, which shares what is recorded."""
        return Rollout(job, self.usage, self.timings, self.calls, self.tool_errors, threads=self.threads)

    def end(self, rollout: Rollout) -> None:
        """Give the rollout its steps. Times are whole microseconds: `round` takes four times as long."""
        began = self.began
        rollout.steps = [
            (stage, int((at - began) * 1e6) / 1e6, int(taken * 1e6) / 1e6) for stage, at, taken in self.steps
        ]


class TracingRecorder(EpisodeRecorder):
    """Records also when each step began, for traces: model calls, each tool call, verify and so on.

    A step is `{"stage", "at", "seconds"}`, with `name` for a tool, `error` if it went wrong, and for a model call that
    was answered `model`, `input_tokens` and `output_tokens`. `at` counts from the start of the rollout.
    """

    __slots__ = ("_traced", "_wall")

    traces = True

    def __init__(self) -> None:
        super().__init__()
        self._wall = time.time()
        self._traced: list[dict[str, Any]] = []

    def tool_began(self, name: str, is_offered: bool) -> dict[str, Any] | None:
        """A tool call begins: record it."""
        super().tool_began(name, is_offered)
        return self._begin({"stage": "tool", "name": name})

    def tool_failed(self, call: dict[str, Any] | None, error: BaseException) -> None:
        """A tool call ends with an error, which fails the rollout. A cancel is not the tool's error."""
        if call is not None and (isinstance(error, Failure) or not isinstance(error, (Exception, *INTERRUPTS))):
            call["error"] = Failure.of(error, "tool").kind

    def tool_ended(self, call: dict[str, Any] | None, is_offered: bool) -> None:
        """A tool call has ended."""
        super().tool_ended(call, is_offered)
        if call is not None:
            self._end(call)

    def answered(self, response: Response, tools: list[dict[str, Any]] | None) -> None:
        """Record an answer of the model, and add its tokens to the step of its call."""
        super().answered(response, tools)
        call = next((entry for entry in reversed(self._traced) if entry["stage"] == "model"), None)
        if call is not None and "model" not in call:
            usage = response.usage
            call["model"] = str(response.data.get("model") or "")
            call |= {key: usage[key] for key in _USAGE if isinstance(usage.get(key), int)}

    def tool_raised(self, name: str, raised: Raised) -> None:
        """Count an exception of a tool, and add it to the step of its call."""
        for entry in self._traced:
            if entry.get("name") == name and "seconds" not in entry and "error" not in entry:
                entry["error"] = raised.exception
                break
        super().tool_raised(name, raised)

    def clear(self) -> None:
        """Forget everything that happened."""
        super().clear()
        self._traced.clear()

    def end(self, rollout: Rollout) -> None:
        """Give the rollout its steps, also in the order in which they began."""
        super().end(rollout)
        rollout.step_times = {"started": round(self._wall, 6), "steps": self._traced}

    def traced(self, stage: Stage, work: Awaitable[T]) -> Awaitable[T]:
        """Await one step, and record it. The calls of a turn's tools are recorded one by one."""
        return work if stage == "tool" else self._trace(stage, work)

    async def _trace(self, stage: Stage, work: Awaitable[T]) -> T:
        entry = self._begin({"stage": stage})
        try:
            return await work
        except Failure as failure:
            entry["error"] = failure.kind
            raise
        finally:
            self._end(entry)

    def _begin(self, entry: dict[str, Any]) -> dict[str, Any]:
        entry["at"] = round(perf_counter() - self.began, 6)
        self._traced.append(entry)
        return entry

    def _end(self, entry: dict[str, Any]) -> None:
        entry["seconds"] = round(perf_counter() - self.began - entry["at"], 6)
