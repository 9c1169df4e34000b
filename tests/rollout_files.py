"""Files of rollouts with every part that an export must deal with, written through the public record."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ludus import Response, Rollout, Task, Verdict
from ludus.response import Item, function_call, function_call_output, message, reasoning
from ludus.rollout import Job, rollout_id
from ludus.tokens import TokenLog, Tokens

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Look up the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
COUNTER = {
    "type": "function",
    "name": "count_to",
    "description": "Count.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
}


def rollout(
    task: str = "t",
    repeat: int = 0,
    reward: float = 1.0,
    *,
    items: Iterable[Item] | None = None,
    mask: str | None = None,
    tools: Iterable[dict[str, Any]] = (),
    environment: str = "weather",
    stop_reason: str = "completed",
    prompt: Any = "How is the weather in Oslo?",
    receipt: str | None = "aaaaaaaaaaaa.bbbbbbbbbbbb.cccccccccccc",
    calls: list[dict[str, Any]] | None = None,
    expected: Any = "cold",
    fields: dict[str, Any] | None = None,
    **verdict: Any,
) -> Rollout:
    """A completed or masked rollout; a short answer unless `items` are given."""
    row = {"responses_create_params": {"input": prompt}, "expected_answer": expected, **(fields or {})}
    job = Job(rollout_id(task, repeat), task, repeat, Task.unchecked(row), row, environment=environment)
    output = list(items) if items is not None else [message(f"It is cold, says number {repeat}.")]
    made = Rollout(job, response=Response.of(*output, model="tiny", tools=list(tools)), receipt=receipt)
    made.usage, made.timings = {"input_tokens": 7, "output_tokens": 5}, {"total": 0.25}
    made.calls = calls if calls is not None else [{"items": len(output)}]
    made.stop_reason = stop_reason
    made.judge(Verdict(reward, mask=mask, **verdict))
    return made


def with_tools(task: str = "tools", repeat: int = 0, reward: float = 1.0, **more: Any) -> Rollout:
    """Reasoning, a call, its output and an answer."""
    items = [
        reasoning("I should look."),
        function_call("get_weather", {"city": "Oslo"}, call_id="call_1"),
        function_call_output("call_1", "cold"),
        message(f"It is cold, said try {repeat}."),
    ]
    return rollout(task, repeat, reward, items=items, tools=[WEATHER], calls=[{"items": 2}, {"items": 1}], **more)


def with_tokens(task: str = "tokens", repeat: int = 0, reward: float = 1.0) -> Rollout:
    """Two model calls with token ids: the second prompt continues the first call."""
    log = TokenLog()
    first = Tokens([5, 6, 7], [8, 9], [-0.5, -0.25], "step-3")
    second = Tokens([5, 6, 7, 8, 9, 10, 11], [12], [-1.0], "step-4")
    found = with_tools(task, repeat, reward)
    found.calls = [{"items": 2, **log.add(first)}, {"items": 1, **log.add(second)}]
    return found


def write(path: Path, rollouts: Iterable[Rollout]) -> Path:
    """Write the rollouts as a collection would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(each.encode() + b"\n" for each in rollouts))
    return path
