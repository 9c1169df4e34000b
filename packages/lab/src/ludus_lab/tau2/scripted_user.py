"""A user of tau2 that follows rules instead of a model: `--set agent.user=scripted:ludus_lab.tau2.scripted_user`.

It says what it wants, does what a line `USE tool {arguments}` asks for and reads the outputs out, agrees to everything
else, and ends the conversation when it is asked whether there is anything else. Tests, qualification and demos need it.
Train a policy with a model as the user.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ludus.agents.user import STOP, TRANSFER, UserRole
from ludus.model import Request
from ludus.response import texts_of

#: What the user says to anything that asks for nothing, and how often before it gives up.
AGREES = "Yes, please go on."
PATIENCE = 3

_USE = re.compile(r"^USE (\w{1,80})(?: (\{.*\}))?$", re.MULTILINE)
_ANYTHING_ELSE = re.compile(r"\banything else\b", re.IGNORECASE)
_TRANSFERRED = re.compile(r"\bbeing transferred\b", re.IGNORECASE)


def respond(request: Request) -> Any:
    """The next message or calls of the user whose role is in the system message."""
    items = request.input
    own = [texts_of(item) for item in items if item.get("role") == "assistant"]
    outputs = _outputs(items)
    heard = next((texts_of(item) for item in reversed(items) if item.get("role") == "user"), "")
    if outputs:
        return "I did that. " + " ".join(outputs)
    if not own:
        return UserRole.read(texts_of(items[0])).goal or "Hello, can you help me?"
    if calls := _calls(heard):
        return {"calls": calls}
    if _TRANSFERRED.search(heard):
        return TRANSFER
    weary = sum(AGREES in said for said in own) >= PATIENCE
    return STOP if _ANYTHING_ELSE.search(heard) or weary else AGREES


def _outputs(items: Any) -> list[str]:
    """The outputs at the end of the history."""
    outputs: list[str] = []
    for item in reversed(items):
        if item.get("type") != "function_call_output":
            break
        outputs.insert(0, str(item["output"]))
    return outputs


def _calls(text: str) -> list[dict[str, Any]]:
    calls = []
    for name, arguments in _USE.findall(text):
        try:
            calls.append({"name": name, "arguments": json.loads(arguments or "{}")})
        except ValueError:
            continue
    return calls
