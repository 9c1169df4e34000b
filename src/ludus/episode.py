"""A rollout while it happens: five steps, written once for every agent, engine and transport.

    open resources for the task  ->  agent acts  ->  verify  ->  close (always)  ->  record

Every step has a deadline. Whatever goes wrong is attributed to the stage it happened in and ends in a `failed`
rollout with its first cause and no reward. Cancelling (Ctrl-C) still closes what was opened, then goes on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import cached_property
from time import perf_counter
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, PositiveFloat

from ludus.agent import Agent
from ludus.errors import INTERRUPTS, Failure, Stage
from ludus.model import Model, Request
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Item, Items, Response, function_call_output
from ludus.rollout import Job, Rollout
from ludus.runtime.boundary import Deadline, in_time, is_cancelled
from ludus.runtime.threads import awaited, call_after, lasting
from ludus.task import Task
from ludus.tokens import TokenLog, Tokens
from ludus.tools import not_found
from ludus.usage import add_usage

T = TypeVar("T")


class Limits(BaseModel):
    """Deadlines in seconds. All are finite, so nothing waits for ever."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    open: PositiveFloat = 60.0
    model: PositiveFloat = 600.0
    tool: PositiveFloat = 120.0
    verify: PositiveFloat = 120.0
    close: PositiveFloat = 30.0
    rollout: PositiveFloat = 3600.0
    group: PositiveFloat = 3600.0

    @cached_property
    def shortest(self) -> float:
        """The deadline that can pass first."""
        return min(self.open, self.model, self.tool, self.verify)

    def deadline(self) -> Deadline:
        """A deadline for rollouts under these limits; a task that plays many may use one for all of them."""
        return Deadline(self.rollout, self.shortest)


class Episode:
    """What an agent holds while it plays: the items so far, the model, and the tools this task offers."""

    __slots__ = (
        "_last",
        "_offered",
        "_start",
        "_tokens",
        "calls",
        "deadline",
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
        "task",
        "timings",
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
        params.pop("model", None)  # which one answers is for whoever collects to say, and not for a row
        self.deadline = deadline or limits.deadline()
        self.opening: asyncio.Future[Any] | None = None  #: an `open` that may still be going on, on a thread
        self.stage: Stage = "open"
        self.since = perf_counter()
        self.timings: dict[str, float] = {}
        self.calls: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = {}
        self.mask: str | None = None  #: why this rollout must not be trained on, where the agent knows
        self._start = len(self.items)
        self._last: Response | None = None
        self._tokens: TokenLog | None = None
        self._offered: set[str] = set()

    async def open(self) -> None:
        """Prepare the session, and fix which tools are on offer."""
        resources = self.resources
        if type(resources).open is not Resources.open:
            work, self.opening = lasting(resources.open, self.task)
            await self.within("open", self.limits.open, work)
        try:
            self.offer_tools()
        except INTERRUPTS:
            raise
        except BaseException as error:
            raise Failure.of(error, "open") from error

    def offer_tools(self) -> None:
        """Fix which tools the model may call: the row's own list, or else all that the environment has now."""
        tools = self.task.tools
        if tools is None:
            tools = self.resources.tools()
            if tools:
                self.params["tools"] = tools
        self._offered = {str(entry["name"]) for entry in tools if "name" in entry}

    async def ask(self, **overrides: Any) -> Response:
        """Call the model with everything so far and append what it answers. `overrides` changes request fields."""
        job, seconds = self.job, self.limits.model
        tokens = self._tokens.last if self._tokens is not None else None
        params = {**self.params, **overrides} if overrides else self.params
        # By position, which costs half of what it costs by name.
        request = Request(
            self.items, job.rollout_id, job.seed, len(self.calls), perf_counter() + seconds, tokens, params
        )
        response = await self.within("model", seconds, self.model.respond(request))
        self.take(response)
        return response

    def take(self, response: Response) -> None:
        """Append an answer of the model, with its tokens and its usage."""
        self.items.extend(response.output)
        if response.waited:
            self.timings["connect"] = self.timings.get("connect", 0.0) + response.waited
        self._last = response
        record: dict[str, Any] = {"items": len(response.output)}
        if response.tokens is not None:
            self._tokens = self._tokens or TokenLog()
            record |= self._tokens.add(response.tokens)
        self.calls.append(record)
        add_usage(self.usage, response.usage)

    async def run_tools(self, calls: list[Item]) -> None:
        """Run the function calls of one turn and append their outputs in order.

        They run at the same time unless the task says `parallel_tool_calls: false`.
        """
        limit = self.limits.tool
        if len(calls) == 1:
            (call,) = calls
            outputs = [await self.within("tool", limit, self.call_tool(call["name"], call["arguments"]))]
        elif self.params.get("parallel_tool_calls") is False:
            outputs = [
                await self.within("tool", limit, self.call_tool(call["name"], call["arguments"])) for call in calls
            ]
        else:
            outputs = await self.within(
                "tool", limit, _all(self.call_tool(call["name"], call["arguments"]) for call in calls)
            )
        for call, output in zip(calls, outputs, strict=True):
            self.items.append(function_call_output(call["call_id"], output))

    def say(self, *items: Item) -> None:
        """Append items that did not come from the model (a user's next turn)."""
        self.items.extend(items)

    def note(self, **texts: str) -> None:
        """Write into the response's metadata what its items do not show. Call it last: the next answer replaces it."""
        last = self._last or Response.of(model=self.model.name, status="incomplete")
        metadata = {**(last.data.get("metadata") or {}), **texts}
        self._last = Response({**last.data, "metadata": metadata}, last.tokens)

    def adopt(self, response: Response, calls: list[dict[str, Any]], usage: dict[str, Any]) -> None:
        """Take over a trajectory that was played elsewhere, with what each model call of it added."""
        self._last = response
        self.items.extend(response.output)
        self.calls += calls
        add_usage(self.usage, usage)

    @property
    def response(self) -> Response:
        """The trajectory so far as one response: the last answer's fields, all output, summed usage."""
        last = self._last.data if self._last else Response.of(model=self.model.name, status="incomplete").data
        return Response({**last, "output": self.items.since(self._start), "usage": self.usage or None})

    async def call_tool(self, name: str, arguments: str) -> str:
        """Run one tool, if this task offers it, and return what the model sees. Nothing is appended."""
        if name not in self._offered:
            return not_found()
        try:
            return await self.resources.call(name, arguments)
        except (Exception, *INTERRUPTS):
            raise
        except BaseException as error:  # must not leave a task: the event loop would end with `exit()`
            raise Failure.of(error, "tool") from error

    @property
    def last_tokens(self) -> Tokens | None:
        """The tokens of the last model call, where the model told them."""
        return self._tokens.last if self._tokens is not None else None

    async def within(self, stage: Stage, seconds: float, work: Awaitable[T]) -> T:
        """Await one step under its deadline, keep its time, and attribute what it raises."""
        self.stage, self.since = stage, (began := perf_counter())
        self.deadline.enter(began, seconds)
        try:
            return await work
        except asyncio.CancelledError as error:
            if self.deadline.took_back_cancel():
                raise self._too_late(stage, seconds) from None
            if is_cancelled():
                raise
            raise Failure.of(error, stage) from error
        except Failure as failure:
            failure.stage = failure.stage or stage
            raise
        except INTERRUPTS:
            raise
        except BaseException as error:
            raise Failure.of(error, stage) from error
        finally:
            self.timings[stage] = self.timings.get(stage, 0.0) + perf_counter() - began
            if self.deadline.leave():  # it kept the cancellation to itself, and went on
                raise self._too_late(stage, seconds)

    def _too_late(self, stage: Stage, seconds: float) -> Failure:
        if self.deadline.passed:
            return Failure("timeout", f"the rollout's deadline of {self.limits.rollout:g} s passed", stage=stage)
        return Failure("timeout", f"no end after {seconds:g} s", stage=stage)


async def play(episode: Episode, agent: Agent, *, verify: bool = True) -> Rollout:
    """Play one episode from open to close and return its record. Only cancellation gets out of here.

    Without `verify` a rollout that did not fail has no verdict yet: whoever plays it judges it later, with others.
    """
    began = perf_counter()
    rollout = Rollout(episode.job, episode.usage, episode.timings, episode.calls)
    episode.deadline.start()
    try:
        verdict = await _act_and_verify(episode, agent, rollout, verify)
        if verdict is not None:
            rollout.judge(verdict, episode.mask)
    except asyncio.CancelledError as error:
        if episode.deadline.took_back_cancel():
            rollout.fail(episode._too_late("agent", episode.limits.rollout))
        elif is_cancelled():
            raise
        else:
            rollout.fail(Failure.of(error, "agent"))
    except INTERRUPTS:
        raise
    except BaseException as error:
        rollout.fail(Failure.of(error, "agent"))
    finally:
        episode.deadline.stop()
        episode.model.forget(episode.job.rollout_id)
        if type(episode.resources).close is not Resources.close and (failure := await _close(episode)) is not None:
            rollout.fail(failure)
        rollout.response = rollout.response or episode.response
        episode.timings["total"] = perf_counter() - began
    return rollout


async def _act_and_verify(episode: Episode, agent: Agent, rollout: Rollout, verify: bool) -> Verdict | None:
    await episode.open()
    episode.stage = "agent"
    rollout.stop_reason = await agent.act(episode)
    rollout.response = episode.response
    if not verify:
        return None
    judging = awaited(episode.resources.verify, episode.task, rollout.response)
    verified = await episode.within("verify", episode.limits.verify, judging)
    try:
        return Verdict.of(verified)
    except Failure as error:
        raise Failure.of(error, "verify") from None


async def _close(episode: Episode) -> Failure | None:
    """Close the session, whatever happened and however often this task is cancelled meanwhile."""
    closing = asyncio.ensure_future(_close_in_time(episode))
    cancelled: asyncio.CancelledError | None = None
    while not closing.done():
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:
            break
    if cancelled is not None:
        raise cancelled
    raised = closing.exception()
    return raised if isinstance(raised, Failure) else None


async def _close_in_time(episode: Episode) -> None:
    episode.stage, episode.since = "close", (began := perf_counter())
    try:
        seconds = episode.limits.close
        await in_time(seconds, call_after(episode.opening, seconds / 2, episode.resources.close))
    except TimeoutError as error:
        cause = str(error) or f"no end after {episode.limits.close:g} s"
        raise Failure("timeout", cause, stage="close") from error
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise Failure.of(error, "close") from error
    except INTERRUPTS:
        raise
    except BaseException as error:
        raise Failure.of(error, "close") from error
    finally:
        episode.timings["close"] = perf_counter() - began


async def _all(works: Any) -> list[str]:
    """Gather that cancels and awaits the others when one fails, so that no tool outlives its turn.

    A task group would pass on a deadline's first cancellation only, and some tools need more than one.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    pending, ended = set(tasks), None
    while pending:
        try:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            failures = [task.exception() for task in done if not task.cancelled()]
            ended = ended or next((failure for failure in failures if failure is not None), None)
        except asyncio.CancelledError as error:
            ended, pending = error, {task for task in pending if not task.done()}
        if ended is not None:
            for task in pending:
                task.cancel()
    if ended is not None:
        for task in tasks:
            if not task.cancelled():
                task.exception()  # seen, so that Python does not complain that nobody has asked
        raise ended
    return [task.result() for task in tasks]
