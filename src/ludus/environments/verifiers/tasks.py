"""Loads tasks of the verifiers library, makes rows of them and tasks of rows, and scores conversations.

This module imports verifiers, so import it only inside functions. The collecting process and the child processes that
score use it.
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

#: The decorators of task methods that only verifiers' own harnesses support.
_HARNESS_ONLY = ("stop", "intercept")


@dataclass(frozen=True)
class TasksetSource:
    """A taskset's name, which is a verifiers id or `module:Class`, and its settings as JSON."""

    name: str
    settings: str = "{}"


@dataclass(frozen=True)
class TaskScores:
    """A task's scores of a trace: weighted rewards, and metrics."""

    rewards: dict[str, float | None]
    metrics: dict[str, float | None]


@lru_cache(maxsize=8)
def load(source: TasksetSource) -> Taskset[Any, Any]:
    """The taskset. Raises a `UserError` if its tasks cannot be played here."""
    try:
        kind: type[Taskset[Any, Any]]
        if ":" in source.name:
            kind = load_object(source.name, None, Taskset)
        else:
            kind = taskset_class(source.name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UserError(f"verifiers has no taskset {source.name}: {error}") from error
    if ":" not in source.name and not issubclass(environment_class(source.name), vf.SingleAgentEnv):
        raise UserError(f"tasks of {source.name} need several agents", "Choose a taskset for a single agent")
    task = kind.task_type()
    if task.NEEDS_CONTAINER:
        raise UserError(f"tasks of {source.name} need a container", "Run them with verifiers itself")
    for decorator in _HARNESS_ONLY:
        if any(getattr(getattr(task, name, None), decorator, False) is True for name in dir(task)):
            hint = "Run them with verifiers itself: only its harnesses support that"
            raise UserError(f"tasks of {source.name} use @{decorator}", hint)
    config = concrete_type(kind, vf.TasksetConfig, origin=Taskset) or vf.TasksetConfig
    try:
        return kind(config.model_validate({"id": source.name, **json.loads(source.settings)}))
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"settings of {source.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def rows(source: TasksetSource) -> Iterator[dict[str, Any]]:
    """The tasks of a taskset as rows: the prompt, and the task's data for `task_of`."""
    for task in load(source):
        data = task.data
        if data.prompt is None:
            raise UserError(f"a task of {source.name} has no prompt", "Choose a taskset whose tasks all have a prompt")
        prompt = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        if isinstance(data.prompt, str):
            prompt.append({"role": "user", "content": data.prompt})
        else:
            prompt += [_item(message.model_dump(exclude_none=True)) for message in data.prompt]
        fields = data.model_dump(mode="json", exclude_defaults=True)
        yield {"responses_create_params": {"input": prompt}, "verifiers": fields}


def task_of(source: TasksetSource, data: dict[str, Any]) -> Task[Any, Any, Any]:
    """The task of a row's data."""
    taskset = load(source)
    kind = type(taskset).task_type()
    try:
        fields = kind.data_type().model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise Failure("bad_row", f"verifiers.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if fields.image or fields.agent_user or fields.skills:
        raise Failure("bad_row", "the task sets image, agent_user or skills, which need a container")
    return kind(fields, taskset.config.task)


def needs_runtime(task: Task[Any, Any, Any]) -> bool:
    """Whether the task's `setup`, `finalize` or scoring uses a verifiers runtime, which is a folder of its own."""
    if type(task).setup is not Task.setup or type(task).finalize is not Task.finalize:
        return True
    return any(
        parameter.name == "runtime" and parameter.default is parameter.empty
        for function in (*task.hooks("reward"), *task.hooks("metric"), *(j.score for j in task.plugged_judges()))
        for parameter in inspect.signature(function).parameters.values()
    )


def empty_trace(task: Task[Any, Any, Any]) -> Trace[Any, Any, Any]:
    """The trace of a rollout that has not begun."""
    trace_task = TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    return Trace(task=trace_task, agent=AgentInfo(config=WireAgentConfig()), state=state_cls(type(task))())


def add_conversation(trace: Trace[Any, Any, Any], prompt: list[dict[str, Any]], output: list[dict[str, Any]]) -> None:
    """Add the messages of a prompt and of a model's output to the trace."""
    read = ResponsesDialect().parse_request
    prompt_length = len(read({"input": prompt}).messages)
    for number, message in enumerate(read({"input": [*prompt, *output]}).messages):
        sampled = number >= prompt_length and message.role == "assistant"
        trace.nodes.append(MessageNode(parent=number - 1 if number else None, message=message, sampled=sampled))
    trace.stop("agent_completed")
    trace.ok = True


def scores_of(trace: Trace[Any, Any, Any]) -> TaskScores:
    """The rewards and metrics of a trace. Metrics named like a field of our record are left out."""
    rewards = {name: None if reward is None else reward.value for name, reward in trace.rewards.items()}
    return TaskScores(rewards, {name: value for name, value in trace.metrics.items() if name not in TAKEN})


def score(
    source: TasksetSource, data: dict[str, Any], prompt: list[dict[str, Any]], output: list[dict[str, Any]], state: str
) -> TaskScores:
    """Score a conversation. Run this in a child process, where slow or hostile scoring blocks no other rollout."""
    task = task_of(source, data)
    trace = empty_trace(task)
    trace.state = type(trace.state).model_validate_json(state)
    add_conversation(trace, prompt, output)
    asyncio.run(task.score(trace))
    return scores_of(trace)


def _item(message: dict[str, Any]) -> dict[str, Any]:
    """A prompt's message as an item. Prompts with tool calls are rare and not supported."""
    if message["role"] not in ("system", "user", "assistant") or message.get("tool_calls"):
        raise UserError("a prompt of the taskset holds tool calls, which are not supported")
    content = message.get("content") or ""
    if isinstance(content, list):
        content = [_part(part, message["role"]) for part in content]
    return {"role": message["role"], "content": content}


def _part(part: dict[str, Any], role: str) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"]}
