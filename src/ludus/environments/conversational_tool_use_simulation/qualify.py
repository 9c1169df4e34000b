"""How qualification plays the representative, where the customer and the judge go by rules and results are fixed."""

from __future__ import annotations

from typing import Any

from ludus.qualify.dummies import dummy

settings = {
    "agent.user": "scripted:ludus.agents.plain_user",
    "resources.judge": "scripted:ludus.environments.conversational_tool_use_simulation.scripted_judge",
}

_HAND_OVER = "transfer_to_human_agent"


def oracle(task: Any) -> list[Any]:
    """Call a tool and tell its result, or hand the customer over where the policy says so."""
    if task.customer_scenario.outside_policy_scope:
        return [_call(task, _HAND_OVER), "You are being transferred. Goodbye."]
    name = task.definitions[0].name
    return [_call(task, name), _told(name)]


def preserving(task: Any) -> dict[str, Any]:
    """The same after a question, and with words beside the call."""
    call, end = oracle(task)
    scripts = {
        "after_a_question": ["Can you tell me the details, please?", call, end],
        "after_a_promise": ["One moment, let me look.", call, end],
        "text_with_call": [{**call, "text": "I am looking it up."}, end],
    }
    if not task.customer_scenario.outside_policy_scope:
        second = task.definitions[1].name
        scripts["two_calls"] = [call, _call(task, second), f"{end} {_told(second)}"]
    return scripts


def breaking(task: Any) -> dict[str, Any]:
    """Calls that are wrong, words instead of calls, and the wrong people handed over."""
    call, end = oracle(task)
    scripts: dict[str, Any] = {
        "only_words": end,
        "nothing_told": [_call(task, task.definitions[0].name), "Goodbye."],
        "no_arguments": [{**call, "arguments": {}}, end],
        "no_json": [{**call, "arguments": '{"a": '}, end],
        "unknown_tool": [{"call": "settle_everything"}, call, end],
        "same_id_twice": [{"items": [_item(call), _item(call)]}, end],
        "silence": [call, {"items": []}],
        "cut_off": [call, {"text": end, "incomplete": "max_output_tokens"}],
    }
    if not task.customer_scenario.outside_policy_scope:
        scripts["handed_over"] = [call, _call(task, _HAND_OVER), f"{end} You are being transferred."]
    return scripts


def _call(task: Any, name: str) -> dict[str, Any]:
    definition = next(each for each in task.definitions if each.name == name)
    return {"call": name, "arguments": dummy(definition.arguments)}


def _item(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "call_0", "name": call["call"], "arguments": "{}"}


def _told(name: str) -> str:
    return f"Simulated result for {name}. Goodbye."
