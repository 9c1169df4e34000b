"""A question that one tool call answers. The reward is the sum of three components: whether the call is the right one,
whether its arguments are complete, and whether the answer is exactly one call without a message."""

from __future__ import annotations

from typing import Any

import orjson

import ludus
from ludus import Resources, Response, Verdict, tool
from ludus.response import Item, is_message


class MultiReward(Resources):
    """A weather service that says every city is sunny, and a verifier with three components."""

    class Task(ludus.Task):
        expected_call: dict[str, Any] = {}

    @tool
    async def get_weather(self, city: str) -> dict[str, str]:
        """Get the current weather for a city.

        Args:
            city: The city to get the weather for.
        """
        return {"city": city, "weather_description": f"The weather in {city} is sunny."}

    async def verify(self, task: Task, response: Response) -> Verdict:
        calls = response.function_calls
        parts: dict[str, Any] = {
            "correctness": float(any(self._is_expected(call, task.expected_call) for call in calls)),
            "schema_valid": float(bool(calls) and self._is_complete(calls[0], task)),
            "format": float(len(calls) == 1 and not any(map(is_message, response.output))),
        }
        predicted = [{"name": call["name"], "arguments": arguments_of(call) or {}} for call in calls]
        return Verdict(sum(parts.values()), components=parts, **parts, predicted_calls=predicted)

    def _is_expected(self, call: Item, expected: dict[str, Any]) -> bool:
        """Whether a call has the expected name and every expected argument; it may have more."""
        arguments = arguments_of(call)
        if not expected or call["name"] != expected.get("name"):
            return False
        wanted = expected.get("arguments") or {}
        if self.config.compat:
            return all((arguments or {}).get(name) == value for name, value in wanted.items())
        return arguments is not None and all(
            name in arguments and same(arguments[name], wanted[name]) for name in wanted
        )

    def _is_complete(self, call: Item, task: Task) -> bool:
        """Whether a call's arguments are an object with everything that the row's tool requires.

        A row that lists no tools requires nothing.
        """
        arguments, listed = arguments_of(call), task.tools or []
        schema = next((entry for entry in listed if entry.get("name") == call["name"]), None)
        if arguments is None or (listed and schema is None and not self.config.compat):
            return False
        return all(name in arguments for name in ((schema or {}).get("parameters") or {}).get("required") or ())


def arguments_of(call: Item) -> dict[str, Any] | None:
    """A call's arguments, or None if they are not a JSON object."""
    try:
        arguments = orjson.loads(call["arguments"])
    except orjson.JSONDecodeError:
        return None
    return arguments if isinstance(arguments, dict) else None


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal. Unlike in Python, true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)
