"""A judge without a model, for qualification and demos: it goes by rules that fit the simulated tools' fixed results.

It finds no fault with single steps. Over the whole conversation it wants a tool to have been called and the customer to
have been told its result, or the customer handed over by a call where that is expected. It reads only what stands
between the marks of the prompt, and says so when they are not in order.
"""

from __future__ import annotations

from typing import Any

import orjson

from ludus.errors import Failure
from ludus.model import Request
from ludus.response import texts_of

_HAND_OVER = "transfer_to_human_agent"


def respond(request: Request) -> str:
    """The reply to a question of `judging`."""
    prompt = texts_of(request.input[-1])
    mark = prompt.partition("\n")[0].rpartition(" ")[2]
    if f"\nBEGIN THE STEP {mark}\n" in prompt:
        return _said(True)
    steps, end, question = prompt.partition(f"\nBEGIN STEPS {mark}\n")[2].partition(f"\nEND STEPS {mark}\n")
    if not end:
        raise Failure("bad_prompt", "the scripted judge finds no steps between marks")
    success = _served([orjson.loads(line) for line in steps.split("\n")], "must be transferred" in question)
    if "three parts" in question:
        fine, verdict = ({"success": good, "explanation": "by rule"} for good in (True, success))
        return orjson.dumps({"customer": fine, "tools": fine, "representative": verdict}).decode()
    return _said(success)


def _served(steps: list[dict[str, Any]], hand_over: bool) -> bool:
    called = {step["content"]["name"] for step in steps if step["type"] == "tool_call"}
    if hand_over:
        return _HAND_OVER in called
    results = [str(step["content"]["output"]) for step in steps if step["type"] == "tool_execution"]
    told = "\n".join(step["content"] for step in steps if step["source"] == "agent" and step["type"] == "text")
    return bool(results) and all(orjson.loads(result).get("output", "-") in told for result in results)


def _said(success: bool) -> str:
    return orjson.dumps({"success": success, "explanation": "by rule"}).decode()
