"""How qualification plays the representative. Customer and judge are scripted, and tool results are fixed texts."""

from __future__ import annotations

from typing import Any

from ludus.qualify.dummies import dummy

settings = {
    "agent.user": "scripted:ludus.agents.plain_user",
    "resources.judge": "scripted:ludus.environments.conversational_tool_use_simulation.scripted_judge",
}

_TRANSFER = "transfer_to_human_agent"


def oracle(task: Any) -> list[Any]:
    """Call a tool and tell the customer its result, or transfer the customer if the policy says so."""
    if task.customer_scenario.outside_policy_scope:
        return [_call(task, _TRANSFER), "You are being transferred. Goodbye."]
    name = task.definitions[0].name
    return [_call(task, name), _report(name)]


def preserving(task: Any) -> dict[str, Any]:
    """The right calls after a question, with text beside the call, or with a second call."""
    call, end = oracle(task)
    scripts = {
        "after_a_question": ["Can you tell me the details, please?", call, end],
        "after_a_promise": ["One moment, let me look.", call, end],
        "text_with_call": [{**call, "text": "I am looking it up."}, end],
    }
    if not task.customer_scenario.outside_policy_scope:
        second = task.definitions[1].name
        scripts["two_calls"] = [call, _call(task, second), f"{end} {_report(second)}"]
    return scripts


def breaking(task: Any) -> dict[str, Any]:
    """Wrong calls, text instead of calls, unfinished answers, and a transfer without a reason."""
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
        scripts["handed_over"] = [call, _call(task, _TRANSFER), f"{end} You are being transferred."]
    return scripts


def _call(task: Any, name: str) -> dict[str, Any]:
    definition = next(tool for tool in task.definitions if tool.name == name)
    return {"call": name, "arguments": dummy(definition.arguments)}


def _item(call: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "call_0", "name": call["call"], "arguments": "{}"}


def _report(name: str) -> str:
    return f"Simulated result for {name}. Goodbye."
