"""How qualification takes the next step of a conversation: with the expected calls, or with a message."""

from __future__ import annotations

import json
from typing import Any

_WHY = "if a message is expected, any message is right: its content is not compared"
_TALK = "echo constant enumeration tag_stuffing judge_injection premature_stop"

expected_exploits = {family: (0.5, _WHY) for family in _TALK.split()} | {
    "empty/answer": (0.5, _WHY),
    "empty/reasoning": (0.0, "reasoning alone is not a step"),
}


def oracle(task: Any) -> Any:
    """The expected step."""
    calls = _calls(task)
    return [{"calls": calls}] if calls else "You are welcome!"


def preserving(task: Any) -> dict[str, Any]:
    """The same step in another order, or with words before it."""
    calls = _calls(task)
    if not calls:
        return {"other_words": "Glad to help."}
    turned = [{**call, "arguments": dict(reversed(call["arguments"].items()))} for call in calls]
    return {
        "keys": [{"calls": turned}],
        "order": [{"calls": calls[::-1]}],
        "with_words": [{"text": "One moment.", "calls": calls}],
        "reasoned": [{"reasoning": "That needs a tool.", "calls": calls}],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Another tool, other arguments, fewer calls, or only words."""
    calls = _calls(task)
    if not calls:
        return {"call": [{"call": "set_light", "arguments": {}}], "nothing": "  "}
    in_words = "\n".join(f"{call['name']}({json.dumps(call['arguments'])})" for call in calls)
    wrong = {
        "tool": [{**calls[0], "name": "other_tool"}, *calls[1:]],
        "no_arguments": [{**calls[0], "arguments": {}}, *calls[1:]],
        "more_arguments": [{**calls[0], "arguments": {**calls[0]["arguments"], "extra": 1}}, *calls[1:]],
        "value": [{**call, "arguments": _other(call["arguments"])} for call in calls],
        "as_text": [{**calls[0], "arguments": json.dumps(json.dumps(calls[0]["arguments"]))}, *calls[1:]],
        "guessing": [{**calls[0], "arguments": _other(calls[0]["arguments"])}] * 20 + calls,
    }
    if len(calls) > 1:
        wrong |= {"one_missing": calls[:-1], "one_twice": [calls[0]] * len(calls)}
    return {name: [{"calls": wrong_calls}] for name, wrong_calls in wrong.items()} | {"in_words": in_words}


def _calls(task: Any) -> list[dict[str, Any]]:
    expected = task.expected_action
    if expected.type == "message":
        return []
    actions = expected.calls if expected.type == "function_call_batch" else [expected]
    return [{"name": call.name, "arguments": json.loads(call.arguments)} for call in actions]


def _other(value: Any) -> Any:
    """The same shape with other content."""
    if isinstance(value, dict):
        return {key: _other(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_other(part) for part in value]
    if isinstance(value, bool) or value is None:
        return not value
    return value + 1 if isinstance(value, (int, float)) else "zzz"
