"""A rollout while it happens: five steps, written once for every agent, engine and transport.

    open resources for the task  ->  agent acts  ->  verify  ->  close (always)  ->  record

Every step runs under a deadline, through the boundary (`ludus.runtime.boundary`). A step that raises makes the rollout
`failed`, with a stage, a first cause and no reward. A cancel (Ctrl-C) closes the session first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import cached_property
from time import perf_counter
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, PositiveFloat

from ludus.errors import Failure, Stage
from ludus.model import Model, Request
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Item, Items, Response, add_usage, function_call_output, less_usage
from ludus.rollout import Job, Rollout
from ludus.runtime.boundary import Deadline, failure_of, finish, reraise, step, together
from ludus.runtime.threads import awaited, call_after, start_call
from ludus.task import Task
from ludus.tokens import TokenLog, Tokens
from ludus.tools import Raised, ToolError, not_found

T = TypeVar("T")


class Limits(BaseModel):
    """Deadlines in seconds. All are finite, so no step can wait forever.

    `tool` limits all tool calls of one turn together. `group` limits how long a finished rollout waits for the other
    rollouts of its task.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    #: `open` of the resources
    open: PositiveFloat = 60.0
    #: one model call, with its retries
    model: PositiveFloat = 600.0
    tool: PositiveFloat = 120.0
    #: `verify`
    verify: PositiveFloat = 120.0
    #: `close` of the resources
    close: PositiveFloat = 30.0
    #: the whole rollout
    rollout: PositiveFloat = 3600.0
    group: PositiveFloat = 3600.0

    @cached_property
    def shortest(self) -> float:
        """The shortest limit of a single step."""
        return min(self.open, self.model, self.tool, self.verify)

    def deadline(self) -> Deadline:
        """A deadline for rollouts under these limits; an asyncio task that plays many rollouts may reuse it."""
        return Deadline(self.rollout, self.shortest)


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


class Episode:
    """One rollout in progress, as its agent uses it: the items so far, the model, and the tools of the task."""

    __slots__ = (
        "_last",
        "_offered",
        "_recorded",
        "_start",
        "_tokens",
        "_tools",
        "_tools_running",
        "_turn_of_last_tool",
        "asides",
        "asked_version",
        "began",
        "calls",
        "deadline",
        "fails_on_tool_errors",
        "items",
        "job",
        "limits",
        "mask",
        "model",
        "opening",
        "params",
        "resources",
        "since",
        "stage",
        "steps",
        "task",
        "timings",
        "tool_errors",
        "turns",
        "usage",
    )

    def __init__(
        self, job: Job, resources: Resources, model: Model, limits: Limits, deadline: Deadline | None = None
    ) -> None:
        task = job.task
        self.task: Task = task
        self.resources = resources
        self.model = model
        self.limits = limits
        self.job = job
        self.items = Items(task.input)
        self.params = params = dict(task.responses_create_params)
        params.pop("input", None)
        params.pop("model", None)  # the collection chooses the model, not the row
        self.deadline = deadline or limits.deadline()
        self.opening: asyncio.Future[Any] | None = None  #: a plain `def open` that may still run on its thread
        self.stage: Stage = "open"
        self.began = self.since = perf_counter()
        self.timings: dict[str, float] = {}
        self.steps: list[tuple[str, float, float]] = []  #: stage, time of its begin and seconds of each step
        self.calls: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = {}
        self.tool_errors: list[dict[str, Any]] = []
        self.fails_on_tool_errors = False
        self.asides: list[Any] = []  #: what is not in the trajectory and a continuation needs, as JSON
        self.turns: SavesTurns | None = None
        self.asked_version: Any = None  #: the policy version of the last model call, as it began
        self.mask: str | None = None  #: the reason not to train on this rollout, if the agent knows one
        self._start = len(self.items)
        self._last: Response | None = None
        self._recorded: Response | None = None
        self._tokens: TokenLog | None = None
        self._offered: set[str] = set()
        self._tools: list[dict[str, Any]] | None = None  # the tools of the first model call
        self._tools_running = 0
        self._turn_of_last_tool: dict[str, Any] | None = None  # its entry in `calls`

    async def open(self) -> None:
        """Open the session, and fix which tools the model may call."""
        resources = self.resources
        if type(resources).open is not Resources.open:
            work, self.opening = start_call(resources.open, self.task)
            await self.step("open", self.limits.open, work)
        self.offer_tools()

    def offer_tools(self) -> None:
        """Fix which tools the model may call: the row's `tools`, or all tools of the environment if it has none."""
        tools = self.task.tools
        try:
            if tools is None:
                tools = self.resources.tools()
                if tools:
                    self.params["tools"] = tools
            self._offered = {str(entry["name"]) for entry in tools if "name" in entry}
            if self.turns is not None:
                self.turns.begin()
        except BaseException as error:
            reraise(error, "open")

    async def ask(self, **overrides: Any) -> Response:
        """Call the model with all items so far and append its answer. `overrides` replaces fields of the request."""
        job, seconds, turns = self.job, self.limits.model, self.turns
        if turns is not None:
            turns.save()
        tokens = self._tokens.last if self._tokens is not None else None
        params = {**self.params, **overrides} if overrides else self.params
        # Positional arguments cost half of what keywords cost.
        request = Request(
            self.items, job.rollout_id, job.seed, len(self.calls), perf_counter() + seconds, tokens, params
        )
        # As the call begins: the weights may change before it is answered.
        self.asked_version = version = self.model.policy_version
        response = await self.step("model", seconds, self.model.respond(request))
        if turns is not None and (waits := turns.settle()) is not None:
            await waits
        if version is not None and response.tokens is not None and response.tokens.policy_version is None:
            response.tokens.policy_version = str(version)
        self.take(response, params.get("tools"))
        return response

    def take(self, response: Response, tools: list[dict[str, Any]] | None) -> None:
        """Append an answer of the model, and record its tokens, its usage and the `tools` that its request offered.

        An aborted answer is a failure.
        """
        if (reason := response.aborted) is not None:
            raise Failure("aborted", f"the model's answer ended early, with the reason {reason!r:.80}", stage="model")
        self.items.extend(response.output)
        if response.waited:
            self.timings["connect"] = self.timings.get("connect", 0.0) + response.waited
        self._last = response
        record: dict[str, Any] = {"items": len(response.output)}
        if self._tools is None:
            self._tools = tools or []
        elif tools is not self._tools and (tools or []) != self._tools:
            record["tools"] = tools or []
        if (why := response.prompt_too_long) is not None:
            record["prompt_too_long"] = why
        if response.tokens is not None:
            self._tokens = self._tokens or TokenLog()
            record |= self._tokens.add(response.tokens)
        self.calls.append(record)
        add_usage(self.usage, response.usage)

    async def run_tools(self, calls: list[Item]) -> None:
        """Run the function calls of one turn and append their outputs in order.

        The calls run at the same time unless the task says `parallel_tool_calls: false`.
        """
        limit = self.limits.tool
        if len(calls) > 1 and self.params.get("parallel_tool_calls") is not False:
            works = [self.call_tool(call["name"], call["arguments"]) for call in calls]
            outputs = await self.step("tool", limit, together(works), _tool_names(calls))
        else:
            outputs = []
            for call in calls:
                work = self.call_tool(call["name"], call["arguments"])
                outputs.append(await self.step("tool", limit, work, _tool_names([call])))
        for call, output in zip(calls, outputs, strict=True):
            self.items.append(function_call_output(call["call_id"], output))

    def say(self, *items: Item) -> None:
        """Append items that the model did not write, such as the user's next turn."""
        self.items.extend(items)

    def note(self, **texts: str) -> None:
        """Add texts to the response's metadata. Call this after the last model call: a later answer drops them."""
        last = self._last or Response.of(model=self.model.name, status="incomplete")
        metadata = {**(last.data.get("metadata") or {}), **texts}
        self._last = Response({**last.data, "metadata": metadata}, last.tokens)

    def adopt(self, response: Response, calls: list[dict[str, Any]], usage: dict[str, Any]) -> None:
        """Append a trajectory that was played elsewhere or before, with the records of its model calls."""
        self._last, self._recorded = response, None
        self._tools = response.tools or None
        self.items.extend(response.output)
        self.calls += calls
        add_usage(self.usage, usage)

    def go_on(self, response: Response, calls: list[dict[str, Any]], usage: dict[str, Any]) -> None:
        """Append turns that this rollout played before it was interrupted. Its next call continues their tokens."""
        if any("prefix" in call for call in calls):
            self._tokens = self._tokens or TokenLog()
            self._tokens.restore(calls)
        self.adopt(response, calls, usage)

    def start_over(self, task: Task, resources: Resources) -> None:
        """Forget everything that happened. `open` then opens the new session."""
        self.task = self.job.task = task
        self.resources = resources
        self.items = Items(task.input)
        for kept in (self.calls, self.usage, self.timings, self.steps, self.tool_errors, self.asides):
            kept.clear()
        self.mask = self._last = self._recorded = self._tokens = self._tools = self._turn_of_last_tool = None

    def usage_of(self, calls: int) -> dict[str, Any]:
        """The usage of the first `calls` model calls: all of them, or all but the last one."""
        if calls == len(self.calls) or self._last is None:
            return self.usage
        return less_usage(self.usage, self._last.usage)

    def conclude(self, response: Response) -> None:
        """Make a recorded trajectory the whole response of this episode."""
        self._recorded = response

    @property
    def response(self) -> Response:
        """The trajectory so far as one response: the last answer's fields, all output, summed usage.

        Its `tools` are those that the first model call was offered.
        """
        if self._recorded is not None:
            return self._recorded
        last = self._last.data if self._last else Response.of(model=self.model.name, status="incomplete").data
        tools = self._tools if self._tools is not None else self.params.get("tools") or []
        return Response({**last, "output": self.items.since(self._start), "usage": self.usage or None, "tools": tools})

    async def call_tool(self, name: str, arguments: str) -> str:
        """Run one tool, if the task offers it, and return the text that the model sees. No item is appended."""
        if name not in self._offered:
            return str(not_found())
        self._record_overlap()
        self._tools_running += 1
        try:
            output = await self.resources.call(name, arguments)
        except Exception:
            raise
        except BaseException as error:  # `exit()` must not leave an asyncio task: it would end the event loop
            reraise(error, "tool")
        finally:
            self._tools_running -= 1
        if not isinstance(output, ToolError):
            return output
        if output.raised is not None:
            self._count_tool_error(name, output.raised)
        return str(output)

    def _count_tool_error(self, name: str, raised: Raised) -> None:
        """Count an exception of a tool, or fail the rollout if the agent is set to do so."""
        if self.fails_on_tool_errors:
            raise Failure("crash", f"tool `{name}` raised {raised.text}", stage="tool", where=raised.where)
        error = {"tool": name, "exception": raised.exception, "where": raised.where}
        for known in self.tool_errors:
            if known.items() >= error.items():
                known["count"] += 1
                return
        self.tool_errors.append({**error, "count": 1})

    def _record_overlap(self) -> None:
        """A tool call begins: from the second call of a turn on, record whether calls of the turn run at once.

        A replay runs them the same way, because calls that race leave another state than calls in sequence.
        """
        turn = self.calls[-1] if self.calls else None
        if turn is not None and turn is self._turn_of_last_tool:
            turn["parallel"] = self._tools_running > 0 or turn.get("parallel", False)
        self._turn_of_last_tool = turn

    @property
    def first_tools(self) -> list[dict[str, Any]] | None:
        """The tools of the first model call; None before it."""
        return self._tools

    @property
    def last_tokens(self) -> Tokens | None:
        """The tokens of the last model call, or None if the model reported no token ids."""
        return self._tokens.last if self._tokens is not None else None

    def timed_steps(self) -> list[tuple[str, float, float]]:
        """The steps in the order in which they ended: stage, seconds from the rollout's start to its begin, seconds.

        Times are whole microseconds. `round` takes four times as long.
        """
        began = self.began
        return [(stage, int((at - began) * 1e6) / 1e6, int(taken * 1e6) / 1e6) for stage, at, taken in self.steps]

    def step(self, stage: Stage, seconds: float, work: Awaitable[T], name: str = "") -> Awaitable[T]:
        """Await one step under its deadline, record its time, and raise its `Failure`. See `boundary.step`."""
        self.stage, self.since = stage, perf_counter()
        return step(stage, seconds, work, name, self.deadline, self.timings, self.since, self.steps)


class Acting(Protocol):
    """An object that can drive an episode, such as an `Agent`."""

    async def act(self, episode: Episode) -> str:
        """Play one rollout through `episode`, and return the reason why it stopped."""


async def play(episode: Episode, agent: Acting, *, verify: bool = True) -> Rollout:
    """Play one episode from open to close and return its record. Only interrupts are raised.

    Without `verify`, a rollout that did not fail has no verdict: the caller judges it, for example with its group.
    """
    began = perf_counter()
    rollout = Rollout(episode.job, episode.usage, episode.timings, episode.calls, episode.tool_errors)
    deadline, limits = episode.deadline, episode.limits
    deadline.start()
    try:
        await episode.open()
        episode.stage = "agent"
        rollout.stop_reason = await agent.act(episode)
        rollout.response = response = episode.response
        if verify:
            verify_ = episode.resources.verify
            given = await episode.step("verify", limits.verify, awaited(verify_, episode.task, response))
            rollout.judge(Verdict.of(given, verify_), episode.mask)
        if deadline.leave():
            raise deadline.timeout("agent", limits.rollout, "the rollout")
    except BaseException as error:
        rollout.fail(failure_of(error, "agent", limits.rollout, "the rollout", deadline))
    finally:
        deadline.stop()
        episode.model.forget(episode.job.rollout_id)
        if type(episode.resources).close is not Resources.close:
            await _close(episode, rollout)
        rollout.response = rollout.response or episode.response
        timings = episode.timings
        timings["total"] = timings.get("total", 0.0) + perf_counter() - began
        rollout.steps = episode.timed_steps()
    return rollout


async def _close(episode: Episode, rollout: Rollout) -> None:
    """Close the session, however the rollout ended and however often its asyncio task is cancelled meanwhile."""
    episode.stage, episode.since = "close", perf_counter()
    seconds = episode.limits.close
    work = call_after(episode.opening, seconds / 2, episode.resources.close)
    try:
        await finish(step("close", seconds, work, timings=episode.timings, steps=episode.steps))
    except Failure as failure:
        rollout.fail(failure)


def _tool_names(calls: list[Item]) -> str:
    if len(calls) == 1:
        return f"tool `{calls[0]['name']}`"
    return "tools " + ", ".join(f"`{call['name']}`" for call in calls)
