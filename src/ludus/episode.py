"""A rollout while it happens: five steps, written once for every agent, engine and transport.

    open resources for the task  ->  agent acts  ->  verify  ->  close (always)  ->  record

Every step runs under a deadline, through the boundary (`ludus.runtime.boundary`). A step that raises makes the rollout
`failed`, with a stage, a first cause and no reward. A cancel (Ctrl-C) closes the session first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import perf_counter
from typing import Any, Protocol, TypeVar

from ludus.errors import Failure, Stage
from ludus.limits import Limits
from ludus.model import Model, Request
from ludus.outcome import Verdict
from ludus.recorder import EpisodeRecorder
from ludus.resources import Resources
from ludus.response import Item, Items, Response, function_call_output
from ludus.rollout import Job, Rollout
from ludus.runtime.boundary import failure_of, finish, reraise, step, together
from ludus.runtime.deadline import Deadline
from ludus.runtime.threads import awaited, call_after, start_call
from ludus.task import Task
from ludus.thread import Thread
from ludus.tools import ToolError, not_found

T = TypeVar("T")


class Episode:
    """One rollout in progress, as its agent uses it: the items so far, the model, and the tools of the task."""

    __slots__ = (
        "_last",
        "_offered",
        "_recorded",
        "_start",
        "deadline",
        "fails_on_tool_errors",
        "items",
        "job",
        "limits",
        "mask",
        "model",
        "opening",
        "params",
        "recorder",
        "resources",
        "task",
    )

    def __init__(
        self,
        job: Job,
        resources: Resources,
        model: Model,
        limits: Limits,
        deadline: Deadline | None = None,
        recorder: EpisodeRecorder | None = None,
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
        self.deadline = deadline if deadline is not None and deadline.whole == limits.rollout else limits.deadline()
        self.recorder = recorder or EpisodeRecorder()
        self.opening: asyncio.Future[Any] | None = None  #: a plain `def open` that may still run on its thread
        self.fails_on_tool_errors = False
        self.mask: str | None = None  #: the reason not to train on this rollout, if the agent knows one
        self._start = len(self.items)
        self._last: Response | None = None
        self._recorded: Response | None = None
        self._offered: set[str] = set()

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The records of the model calls so far."""
        return self.recorder.calls

    @property
    def usage(self) -> dict[str, Any]:
        """The usage of all model calls together."""
        return self.recorder.usage

    @property
    def asides(self) -> list[Any]:
        """What is not in the trajectory and a continuation needs, as JSON."""
        return self.recorder.asides

    @property
    def tool_errors(self) -> list[dict[str, Any]]:
        """The exceptions of tools: which, where and how often."""
        return self.recorder.tool_errors

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
            if self.recorder.turns is not None:
                self.recorder.turns.begin()
        except BaseException as error:
            reraise(error, "open")

    async def ask(self, **overrides: Any) -> Response:
        """Call the model with all items so far and append its answer. `overrides` replaces fields of the request."""
        job, seconds, recorder = self.job, self.limits.model, self.recorder
        # As the call begins: the weights may change before it is answered.
        recorder.asked_version = version = self.model.policy_version
        turns, tokens = recorder.turns, recorder.tokens
        if turns is not None:
            turns.save()
        params = {**self.params, **overrides} if overrides else self.params
        # Positional arguments cost half of what keywords cost.
        request = Request(
            self.items,
            job.rollout_id,
            job.seed,
            len(recorder.calls),
            perf_counter() + seconds,
            tokens.last if tokens is not None else None,
            params,
        )
        response = await self.step("model", seconds, self.model.respond(request))
        if turns is not None and (unsaved := turns.settle()) is not None:
            await unsaved
        stamp_version(response, version)
        self.take(response, params.get("tools"))
        return response

    def take(self, response: Response, tools: list[dict[str, Any]] | None) -> None:
        """Append an answer of the model, and record its tokens, its usage and the `tools` that its request offered.

        An aborted answer is a failure.
        """
        refuse_aborted(response)
        self.items.extend(response.output)
        self._last = response
        self.recorder.answered(response, tools)

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
        self.items.extend(response.output)
        self.recorder.adopt(response, calls, usage)

    def go_on(self, response: Response, calls: list[dict[str, Any]], usage: dict[str, Any]) -> None:
        """Append turns that this rollout played before it was interrupted. Its next call continues their tokens."""
        self.recorder.continue_tokens(calls)
        self.adopt(response, calls, usage)

    def start_over(self, task: Task, resources: Resources) -> None:
        """Forget everything that happened. `open` then opens the new session."""
        self.task = self.job.task = task
        self.resources = resources
        self.items = Items(task.input)
        self.recorder.clear()
        self.mask = self._last = self._recorded = None

    def take_threads(self, threads: list[Thread], last: Response) -> None:
        """Take over the conversations of a program. The first one is the main thread, and ended with `last`."""
        main = threads[0]
        self._last = Response({**last.data, "instructions": main.instructions}, last.tokens)
        del self.items[self._start :]
        self.items = Items([*self.items, *main.items])
        self.recorder.take_threads(threads)

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
        recorder = self.recorder
        tools = recorder.first_tools if recorder.first_tools is not None else self.params.get("tools") or []
        usage = recorder.usage or None
        response = Response({**last, "output": self.items.since(self._start), "usage": usage, "tools": tools})
        response.threads = recorder.threads
        return response

    async def call_tool(self, name: str, arguments: str) -> str:
        """Run one tool, if the task offers it, and return the text that the model sees. No item is appended."""
        recorder, is_offered = self.recorder, name in self._offered
        call = recorder.tool_began(name, is_offered)
        try:
            if not is_offered:
                return str(not_found())
            output = await self.resources.call(name, arguments)
            if not isinstance(output, ToolError):
                return output
            raised = output.raised
            if raised is not None:
                if self.fails_on_tool_errors:
                    raise Failure("crash", f"tool `{name}` raised {raised.text}", stage="tool", where=raised.where)
                recorder.tool_raised(name, raised)
            return str(output)
        except Exception as error:
            recorder.tool_failed(call, error)
            raise
        except BaseException as error:  # `exit()` must not leave an asyncio task: it would end the event loop
            recorder.tool_failed(call, error)
            reraise(error, "tool")
        finally:
            recorder.tool_ended(call, is_offered)

    def step(self, stage: Stage, seconds: float, work: Awaitable[T], name: str = "") -> Awaitable[T]:
        """Await one step under its deadline, record its time, and raise its `Failure`. See `boundary.step`."""
        recorder = self.recorder
        recorder.stage, recorder.since = stage, perf_counter()
        work = step(stage, seconds, work, name, self.deadline, recorder.timings, recorder.since, recorder.steps)
        return recorder.traced(stage, work) if recorder.traces else work


def stamp_version(response: Response, version: Any) -> None:
    """Note the policy version of the weights that a call began with, unless the model reported one."""
    if version is not None and response.tokens is not None and response.tokens.policy_version is None:
        response.tokens.policy_version = str(version)


def refuse_aborted(response: Response) -> None:
    """Raise a failure if an answer ended early, so that it cannot be judged."""
    if (reason := response.aborted) is not None:
        raise Failure("aborted", f"the model's answer ended early, with the reason {reason!r:.80}", stage="model")


class Acting(Protocol):
    """An object that can drive an episode, such as an `Agent`."""

    async def act(self, episode: Episode) -> str:
        """Play one rollout through `episode`, and return the reason why it stopped."""


async def play(episode: Episode, agent: Acting, *, verify: bool = True) -> Rollout:
    """Play one episode from open to close and return its record. Only interrupts are raised.

    Without `verify`, a rollout that did not fail has no verdict: the caller judges it, for example with its group.
    """
    began = perf_counter()
    recorder = episode.recorder
    rollout = recorder.rollout(episode.job)
    deadline, limits = episode.deadline, episode.limits
    deadline.start()
    try:
        await episode.open()
        recorder.stage = "agent"
        rollout.stop_reason = await agent.act(episode)
        rollout.response = response = episode.response
        if verify:
            verify_ = episode.resources.verify
            judged = await episode.step("verify", limits.verify, awaited(verify_, episode.task, response))
            rollout.judge(Verdict.of(judged, verify_), episode.mask)
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
        timings = recorder.timings
        timings["total"] = timings.get("total", 0.0) + perf_counter() - began
        recorder.end(rollout)
    return rollout


async def _close(episode: Episode, rollout: Rollout) -> None:
    """Close the session, however the rollout ended and however often its asyncio task is cancelled meanwhile."""
    recorder, seconds = episode.recorder, episode.limits.close
    recorder.enter("close")
    work = call_after(episode.opening, seconds / 2, episode.resources.close)
    try:
        await finish(step("close", seconds, work, timings=recorder.timings, steps=recorder.steps))
    except Failure as failure:
        rollout.fail(failure)


def _tool_names(calls: list[Item]) -> str:
    if len(calls) == 1:
        return f"tool `{calls[0]['name']}`"
    return "tools " + ", ".join(f"`{call['name']}`" for call in calls)
