"""A judge without a model, for qualification and demos. Its rules fit the fixed results of the simulated tools.

Every single step passes. The whole conversation passes if the representative called a tool and told the customer every
result, or, where a transfer is expected, called the transfer tool. The judge reads only the text between the prompt's
marks, and fails if the marks are missing.
"""

from __future__ import annotations

from typing import Any

import orjson

from ludus.errors import Failure
from ludus.model import Request
from ludus.response import texts_of

_TRANSFER = "transfer_to_human_agent"


def respond(request: Request) -> str:
    """The reply to a prompt of `judging`."""
    prompt = texts_of(request.input[-1])
    mark = prompt.partition("\n")[0].rpartition(" ")[2]
    if f"\nBEGIN THE STEP {mark}\n" in prompt:
        return _verdict(True)
    steps, end, question = prompt.partition(f"\nBEGIN STEPS {mark}\n")[2].partition(f"\nEND STEPS {mark}\n")
    if not end:
        raise Failure("bad_prompt", "the scripted judge found no BEGIN STEPS and END STEPS marks in the prompt")
    success = _served([orjson.loads(line) for line in steps.split("\n")], "must be transferred" in question)
    if "three parts" in question:
        fine, verdict = ({"success": good, "explanation": "by rule"} for good in (True, success))
        return orjson.dumps({"customer": fine, "tools": fine, "representative": verdict}).decode()
    return _verdict(success)


def _served(steps: list[dict[str, Any]], transfer: bool) -> bool:
    called = {step["content"]["name"] for step in steps if step["type"] == "tool_call"}
    if transfer:
        return _TRANSFER in called
    results = [str(step["content"]["output"]) for step in steps if step["type"] == "tool_execution"]
    told = "\n".join(step["content"] for step in steps if step["source"] == "agent" and step["type"] == "text")
    return bool(results) and all(orjson.loads(result).get("output", "-") in told for result in results)


def _verdict(success: bool) -> str:
    return orjson.dumps({"success": success, "explanation": "by rule"}).decode()
