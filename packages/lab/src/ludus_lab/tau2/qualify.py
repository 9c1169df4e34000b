"""How qualification plays tau2: the actions of the criteria are right, and a user by rules takes part in them."""

from __future__ import annotations

import json
from typing import Any

from ludus_lab.tau2.domains import original

settings = {"agent.user": "scripted:ludus_lab.tau2.scripted_user"}

#: A call of each domain that only reads.
_READS = {
    "airline": {"call": "list_all_airports", "arguments": {}},
    "retail": {"call": "list_all_product_types", "arguments": {}},
    "telecom": {"call": "get_customer_by_id", "arguments": {"customer_id": "C1001"}},
}

#: A call of each domain that changes the database, and that no task asks for.
_WRITES = {
    "airline": {"call": "send_certificate", "arguments": {"user_id": "raj_sanchez_7340", "amount": 77}},
    "retail": {
        "call": "modify_user_address",
        "arguments": {
            "user_id": "yusuf_rossi_9620",
            "address1": "1 Wrong Street",
            "address2": "",
            "city": "Nowhere",
            "state": "TX",
            "country": "USA",
            "zip": "00000",
        },
    },
}


def answer(task: Any, text: str) -> Any:
    """A message, and the question after which the user ends the conversation."""
    return [f"{text}\nIs there anything else?"]


def oracle(task: Any) -> Any:
    """The actions in order, each in a turn, and what the user must be told."""
    return [*_turns(task), _closing(task)]


def preserving(task: Any) -> dict[str, Any]:
    """The actions after a look around, after a call that fails, and with more words."""
    turns, closing = _turns(task), _closing(task)
    return {
        "reads_first": [_READS[task.domain], *turns, closing],
        "wrong_tool_first": [{"call": "no_such_tool", "arguments": {}}, *turns, closing],
        "wrong_arguments_first": [{"call": _READS[task.domain]["call"], "arguments": "[]"}, *turns, closing],
        "talks_first": ["One moment, please.", *turns, closing],
        "says_it_before": [*turns, _closing(task).replace("\nIs there anything else?", ""), "Is there anything else?"],
    }


def breaking(task: Any) -> dict[str, Any]:
    """The actions without the last one or with one more, nothing but a claim, and a conversation that nobody ends."""
    turns, closing = _turns(task), _closing(task)
    wrong: dict[str, Any] = {
        "claims_success": "I have done all of that for you. Is there anything else?",
        "cut_off": [*turns, {"text": closing, "incomplete": "max_output_tokens"}],
        "silent": [*turns, ""],
        "too_many_errors": [*([{"call": _READS[task.domain]["call"], "arguments": "[]"}] * 10), *turns, closing],
    }
    if changing := [number for number, action in enumerate(_actions(task)) if _changes(task, action)]:
        wrong["last_change_missing"] = [*turns[: changing[-1]], *turns[changing[-1] + 1 :], closing]
    if task.domain in _WRITES:
        wrong["one_change_more"] = [*turns, _WRITES[task.domain], closing]
    if (task.evaluation_criteria or {}).get("communicate_info"):
        wrong["says_nothing"] = [*turns, "Is there anything else?"]
    return wrong


def _turns(task: Any) -> list[Any]:
    """The actions as turns of the assistant: its own are calls, those of the user are requests."""
    turns: list[Any] = []
    for action in _actions(task):
        if action.get("requestor") == "user":
            turns.append(f"Please do this on your phone.\nUSE {action['name']} {json.dumps(action['arguments'])}")
        else:
            turns.append({"call": action["name"], "arguments": action["arguments"]})
    return turns


def _actions(task: Any) -> list[dict[str, Any]]:
    actions: list[dict[str, Any]] = (task.evaluation_criteria or {}).get("actions") or []
    return actions


def _changes(task: Any, action: dict[str, Any]) -> bool:
    """Whether an action writes into a database."""
    toolkit = original(task.domain).user_tools if action.get("requestor") == "user" else original(task.domain).tools
    return str(toolkit.tool_type(action["name"]).value) == "write"


def _closing(task: Any) -> str:
    told = (task.evaluation_criteria or {}).get("communicate_info") or []
    return "\n".join([*told, "Is there anything else?"])
