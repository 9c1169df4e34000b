"""Tasks of the verifiers library: loaded, rebuilt from a row, and scored over what a model did.

This module needs verifiers to be installed, and is imported only where it is needed: in the process that collects and
in the children that score.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import verifiers.v1 as vf
from pydantic import ValidationError
from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.dialects.responses import ResponsesDialect
from verifiers.v1.graph import MessageNode
from verifiers.v1.state import state_cls
from verifiers.v1.task import Task
from verifiers.v1.taskset import Taskset
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.utils.generic import concrete_type
from verifiers.v1.utils.loaders import environment_class, taskset_class

from ludus.errors import Failure, UserError
from ludus.outcome import TAKEN
from ludus.runtime.imports import load_object

#: What only a harness of verifiers' own can honour, by the mark that its decorators leave.
_HARNESS_ONLY = ("stop", "intercept")


@dataclass(frozen=True)
class Source:
    """Which taskset, by the id that verifiers knows it by or as `module:Class`, and its settings as JSON."""

    name: str
    settings: str = "{}"


@dataclass(frozen=True)
class Scores:
    """What a task made of a trace: rewards with their weight, metrics without."""

    rewards: dict[str, float | None]
    metrics: dict[str, float | None]


@lru_cache(maxsize=8)
def load(source: Source) -> Taskset[Any, Any]:
    """A taskset, if a task of it can be played here."""
    try:
        kind: type[Taskset[Any, Any]]
        if ":" in source.name:
            kind = load_object(source.name, None, Taskset)
        else:
            kind = taskset_class(source.name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UserError(f"verifiers has no taskset {source.name}: {error}") from error
    if ":" not in source.name and not issubclass(environment_class(source.name), vf.SingleAgentEnv):
        raise UserError(f"{source.name} is played by several agents", "Only tasks for one agent can be played here")
    task = kind.task_type()
    if task.NEEDS_CONTAINER:
        raise UserError(f"tasks of {source.name} need a container", "Play them with verifiers itself")
    for mark in _HARNESS_ONLY:
        if any(getattr(getattr(task, name, None), mark, False) is True for name in dir(task)):
            raise UserError(f"tasks of {source.name} use @{mark}", "Only a harness of verifiers can honour that")
    config = concrete_type(kind, vf.TasksetConfig, origin=Taskset) or vf.TasksetConfig
    try:
        return kind(config.model_validate({"id": source.name, **json.loads(source.settings)}))
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"settings of {source.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def rows(source: Source) -> Iterator[dict[str, Any]]:
    """The tasks of a taskset as rows: what the model is asked, and all that the task needs to be rebuilt."""
    for task in load(source):
        data = task.data
        if data.prompt is None:
            raise UserError(f"a task of {source.name} has no prompt", "Only tasks that begin with one can be played")
        asked = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        if isinstance(data.prompt, str):
            asked.append({"role": "user", "content": data.prompt})
        else:
            asked += [_item(message.model_dump(exclude_none=True)) for message in data.prompt]
        held = data.model_dump(mode="json", exclude_defaults=True)
        yield {"responses_create_params": {"input": asked}, "verifiers": held}


def rebuild(source: Source, data: dict[str, Any]) -> Task[Any, Any, Any]:
    """The task that a row holds."""
    taskset = load(source)
    kind = type(taskset).task_type()
    try:
        known = kind.data_type().model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise Failure("bad_row", f"verifiers.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if known.image or known.agent_user or known.skills:
        raise Failure("bad_row", "the task asks for an image, a user or skills, which only a container can give it")
    return kind(known, taskset.config.task)


def needs_a_place(task: Task[Any, Any, Any]) -> bool:
    """Whether a task works in a folder of its own: it prepares one, leaves something there or looks there to score."""
    if type(task).setup is not Task.setup or type(task).finalize is not Task.finalize:
        return True
    return any(
        parameter.name == "runtime" and parameter.default is parameter.empty
        for function in (*task.hooks("reward"), *task.hooks("metric"), *(j.score for j in task.plugged_judges()))
        for parameter in inspect.signature(function).parameters.values()
    )


def begin(task: Task[Any, Any, Any]) -> Trace[Any, Any, Any]:
    """The record of a rollout that has not begun."""
    known = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    return Trace(task=known, agent=AgentInfo(config=WireAgentConfig()), state=state_cls(type(task))())


def write_down(trace: Trace[Any, Any, Any], prompt: list[dict[str, Any]], output: list[dict[str, Any]]) -> None:
    """Put a conversation into a record: what was given, and what the model added to it."""
    read = ResponsesDialect().parse_request
    given = len(read({"input": prompt}).messages)
    for number, message in enumerate(read({"input": [*prompt, *output]}).messages):
        sampled = number >= given and message.role == "assistant"
        trace.nodes.append(MessageNode(parent=number - 1 if number else None, message=message, sampled=sampled))
    trace.stop("agent_completed")
    trace.ok = True


def scores_of(trace: Trace[Any, Any, Any]) -> Scores:
    """What has been recorded, by name."""
    rewards = {name: None if reward is None else reward.value for name, reward in trace.rewards.items()}
    # A metric of theirs may be called like a field of our record, which has no room for it then.
    return Scores(rewards, {name: value for name, value in trace.metrics.items() if name not in TAKEN})


def score(
    source: Source, data: dict[str, Any], prompt: list[dict[str, Any]], output: list[dict[str, Any]], state: str
) -> Scores:
    """Score a conversation in a process of its own, where neither slow nor hostile work can hurt anybody."""
    task = rebuild(source, data)
    trace = begin(task)
    trace.state = type(trace.state).model_validate_json(state)
    write_down(trace, prompt, output)
    asyncio.run(task.score(trace))
    return scores_of(trace)


def _item(message: dict[str, Any]) -> dict[str, Any]:
    """A message of a prompt as an item. Prompts that already hold calls of tools are rare, and not taken."""
    if message["role"] not in ("system", "user", "assistant") or message.get("tool_calls"):
        raise UserError("a prompt that holds calls of tools cannot be played here")
    content = message.get("content") or ""
    if isinstance(content, list):
        content = [_part(part, message["role"]) for part in content]
    return {"role": message["role"], "content": content}


def _part(part: dict[str, Any], role: str) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"]}
