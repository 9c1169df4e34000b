"""A finished conversation as steps in order: messages, calls, results, and the closing message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ludus.agents.conversation import Ending
from ludus.response import Item, Response, is_message, texts_of
from ludus.task import Task

Source = Literal["user", "agent", "environment"]


@dataclass(frozen=True)
class Step:
    """One message, call or result. A `given` step comes from the row's input, and is not judged."""

    source: Source
    type: Literal["text", "tool_call", "tool_execution"]
    content: Any
    in_prompt: bool = False

    def shown(self) -> dict[str, Any]:
        """The step as the judge sees it."""
        return {"source": self.source, "type": self.type, "content": self.content}


def steps_of(task: Task, response: Response, ending: Ending) -> list[Step]:
    """All steps of a conversation, without reasoning and blank messages."""
    steps = [step for item in task.input for step in _steps(item, in_prompt=True)]
    steps += [step for item in response.output for step in _steps(item, in_prompt=False)]
    if ending.closing and Step("user", "text", ending.closing) not in steps[-1:]:
        steps.append(Step("user", "text", ending.closing))
    return steps


def _steps(item: Item, in_prompt: bool) -> Iterator[Step]:
    kind = item.get("type", "message")
    if kind == "function_call":
        call = {"name": item.get("name"), "arguments": item.get("arguments"), "call_id": item.get("call_id")}
        yield Step("agent", "tool_call", call, in_prompt)
    elif kind == "function_call_output":
        result = {"call_id": item.get("call_id"), "output": item.get("output")}
        yield Step("environment", "tool_execution", result, in_prompt)
    elif kind == "message" and texts_of(item).strip():
        if is_message(item):
            yield Step("agent", "text", texts_of(item), in_prompt)
        elif item.get("role") == "user":
            yield Step("user", "text", texts_of(item), in_prompt)
