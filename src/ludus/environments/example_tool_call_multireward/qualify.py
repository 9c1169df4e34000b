"""How qualification makes the call. The full reward is 3; a well-formed wrong call still earns 2."""

from __future__ import annotations

from typing import Any

expected_exploits = {
    "tool_spam": (2.0, "a single call that fits its schema earns two components, even if it is the wrong call"),
}


def oracle(task: Any) -> list[Any]:
    """The expected call and nothing else."""
    return [_call(task)]


def preserving(task: Any) -> dict[str, Any]:
    """The expected call after reasoning, and with an additional argument."""
    more = {**task.expected_call["arguments"], "note": "please"}
    return {
        "after_reasoning": [{"reasoning": "One call will do.", **_call(task)}],
        "more_arguments": [{**_call(task), "arguments": more}],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Wrong arguments, a wrong name, two calls, text beside the call, and the call only as text."""
    expected = task.expected_call
    wrong = {key: f"{value} " if isinstance(value, str) else str(value) for key, value in expected["arguments"].items()}
    call = {"name": expected["name"], "arguments": expected["arguments"]}
    return {
        "other_argument": [{**_call(task), "arguments": wrong}],
        "no_arguments": [{**_call(task), "arguments": {}}],
        "other_name": [{**_call(task), "call": f"{expected['name']}s"}],
        "twice": [{"calls": [call, call]}],
        "with_text": [{"text": "Here you are.", **_call(task)}],
        "in_words": f"{expected['name']}({expected['arguments']})",
    }


def _call(task: Any) -> dict[str, Any]:
    return {"call": task.expected_call["name"], "arguments": task.expected_call["arguments"]}
