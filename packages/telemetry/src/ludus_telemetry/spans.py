"""The spans of a finished rollout, built from its record: nothing is traced while it is played.

A rollout is one trace. Its root is the rollout; below it are open, the turns, verify and close; below a turn are its
model call and its tool calls. Attributes have the names of OpenTelemetry's conventions for generative AI; others begin
with `ludus.`. Texts of prompts, models and tools, and the causes of failures that may quote them, are attributes only
on request.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ludus.model import Model
from ludus.response import Item
from ludus.rollout import Rollout

#: The conventions' names of providers, by our module of their models.
PROVIDERS = {"azure": "azure.ai.openai"}

Attributes = dict[str, str | int | float | bool | list[str]]


@dataclass
class RolloutSpan:
    """A span with its children. Times are seconds since 1970. `error` is the kind of error, `cause` its text."""

    name: str
    start: float
    end: float
    attributes: Attributes = field(default_factory=dict)
    error: str | None = None
    cause: str = ""
    is_client: bool = False  #: whether it is a call of another service
    children: list[RolloutSpan] = field(default_factory=list)


@dataclass(frozen=True)
class SpanOptions:
    """The model's name, its provider and the address of its server, if it has one, and whether spans hold texts."""

    model: str = ""
    provider: str = ""
    server: str | None = None
    port: int | None = None
    with_texts: bool = False

    @classmethod
    def of(cls, model: Model, *, with_texts: bool = False) -> SpanOptions:
        """The options for the rollouts of a model."""
        kind = type(model)
        room, _, module = kind.__module__.rpartition(".")
        provider = PROVIDERS.get(module, module) if room == "ludus.models" else kind.__name__.strip("_").lower()
        name, place = getattr(model.config, "model", None), urlsplit(model.name.partition("#")[0])
        if place.scheme not in ("http", "https"):
            place = urlsplit("")
        return cls(name if isinstance(name, str) else model.name, provider, place.hostname, place.port, with_texts)


def spans_of(rollout: Rollout, options: SpanOptions) -> RolloutSpan:
    """The span of a rollout, with its children if the record says when its steps began."""
    times, timings = rollout.step_times, rollout.timings
    steps = _steps(times)
    # The clocks of the total and of the steps start at slightly different moments: no step may end after its rollout.
    last = max((step["at"] + step["seconds"] for step in steps), default=0.0)
    total = max(timings.get("total") or 0.0, last + (timings.get("close") or 0.0))
    started = times["started"] if times is not None else time.time() - total
    root = RolloutSpan(_named("invoke_agent", rollout.job.environment), started, started + total)
    root.attributes = _rollout_attributes(rollout, options)
    if rollout.error is not None:
        root.error = f"{rollout.error.stage or 'agent'}/{rollout.error.kind}"
        root.cause = rollout.error.cause if options.with_texts else ""
    if times is not None:
        root.children = [*_children(rollout, steps, started, options)]
        if (seconds := timings.get("close")) is not None:
            root.children.append(RolloutSpan("close", root.end - seconds, root.end))
    return root


def _steps(times: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The steps in the order of their starts. A cancelled step may have no end."""
    steps = [step for step in times["steps"] if "seconds" in step] if times is not None else []
    return sorted(steps, key=lambda step: float(step["at"]))


def _children(
    rollout: Rollout, steps: list[dict[str, Any]], started: float, options: SpanOptions
) -> Iterator[RolloutSpan]:
    calls = _ToolCalls(rollout, options)
    turn: RolloutSpan | None = None
    turns = 0
    for step in steps:
        span = RolloutSpan(step["stage"], started + step["at"], started + step["at"] + step["seconds"])
        span.error = step.get("error")
        if step["stage"] == "model":
            if turn is not None:
                yield turn
            turns += 1
            turn = RolloutSpan(f"turn {turns}", span.start, span.end, {"ludus.turn": turns})
            _describe_model_call(span, step, options)
        elif step["stage"] == "tool":
            span.name, span.attributes = _named("execute_tool", step["name"]), calls.attributes(step["name"])
        elif step["stage"] == "verify":
            if turn is not None:
                yield turn
            turn = None
            if rollout.reward is not None:
                span.attributes = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": rollout.reward}
        if turn is None:
            yield span
        else:
            turn.children.append(span)
            turn.end, turn.error = max(turn.end, span.end), turn.error or (span.error if span.is_client else None)
    if turn is not None:
        yield turn


def _rollout_attributes(rollout: Rollout, options: SpanOptions) -> Attributes:
    job = rollout.job
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": job.environment,
        "gen_ai.conversation.id": job.rollout_id,
        "gen_ai.provider.name": options.provider,
        "gen_ai.request.model": options.model,
        "ludus.rollout_id": job.rollout_id,
        "ludus.task_id": job.task_id,
        "ludus.repeat": job.repeat,
        "ludus.attempt": job.attempt,
        "ludus.outcome": rollout.outcome.value,
        "ludus.turns": len(rollout.calls),
    }
    if rollout.reward is not None:
        attributes["ludus.reward"] = rollout.reward
    if rollout.stop_reason is not None:
        attributes["ludus.stop_reason"] = rollout.stop_reason
    for stage, seconds in rollout.timings.items():
        attributes[f"ludus.seconds.{stage}"] = seconds
    attributes |= _usage(rollout.usage)
    if options.with_texts:
        asked, output = [*rollout.task.input], rollout.response.output if rollout.response is not None else []
        attributes["gen_ai.input.messages"] = _json([_message(item) for item in asked])
        attributes["gen_ai.output.messages"] = _json([_message(item) for item in output])
    return attributes


def _describe_model_call(span: RolloutSpan, step: dict[str, Any], options: SpanOptions) -> None:
    span.name, span.is_client = _named("chat", options.model), True
    span.attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": options.provider,
        "gen_ai.request.model": options.model,
        **({"gen_ai.response.model": step["model"]} if step.get("model") else {}),
        **({"server.address": options.server} if options.server else {}),
        **({"server.port": options.port} if options.port else {}),
        **_usage(step),
    }


class _ToolCalls:
    """The calls in a rollout's trajectory, taken by name in their order."""

    def __init__(self, rollout: Rollout, options: SpanOptions) -> None:
        output = rollout.response.output if rollout.response is not None else []
        self._calls = [item for item in output if item.get("type") == "function_call"]
        self._with_texts = options.with_texts
        outputs = (item for item in output if item.get("type") == "function_call_output")
        self._outputs = {item.get("call_id"): item.get("output") for item in outputs} if options.with_texts else {}

    def attributes(self, name: str) -> Attributes:
        """The attributes of the next call of a tool."""
        attributes: Attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        attributes["gen_ai.tool.type"] = "function"
        for position, call in enumerate(self._calls):
            if call.get("name") == name:
                del self._calls[: position + 1]
                attributes["gen_ai.tool.call.id"] = str(call.get("call_id"))
                if self._with_texts:
                    attributes["gen_ai.tool.call.arguments"] = str(call.get("arguments"))
                    attributes["gen_ai.tool.call.result"] = str(self._outputs.get(call.get("call_id"), ""))
                break
        return attributes


def _usage(usage: dict[str, Any]) -> Attributes:
    names = ("input_tokens", "output_tokens")
    return {f"gen_ai.usage.{name}": usage[name] for name in names if isinstance(usage.get(name), int)}


def _message(item: Item) -> dict[str, Any]:
    """An item as a message of the conventions: a role and parts."""
    kind, role = item.get("type", "message"), item.get("role", "assistant")
    if kind == "function_call":
        call = {"type": "tool_call", "id": item.get("call_id"), "name": item.get("name")}
        return {"role": "assistant", "parts": [{**call, "arguments": item.get("arguments")}]}
    if kind == "function_call_output":
        part = {"type": "tool_call_response", "id": item.get("call_id"), "response": item.get("output")}
        return {"role": "tool", "parts": [part]}
    content = item.get("content") or item.get("summary") or ""
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    part_kind = "reasoning" if kind == "reasoning" else "text"
    return {"role": role, "parts": [{"type": part_kind, "content": text} for text in texts]}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _named(operation: str, name: str) -> str:
    return f"{operation} {name}" if name else operation
