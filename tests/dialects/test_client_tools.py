"""Custom tools and namespaces of the Responses API become functions for the policy, and calls of them go back."""

from __future__ import annotations

import json
from typing import Any

import orjson
from conversations import json_objects, names, words
from hypothesis import given
from hypothesis import strategies as st

from ludus.agents.echoes import echo_of, is_covered
from ludus.dialects.client_tools import ClientTools, function_items, text_input
from ludus.response import function_call

PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: hunk+"},
}
SHELL = {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}}
TASK = {"type": "namespace", "name": "mcp__task", "description": "The task.", "tools": [SHELL, PATCH]}


def test_every_tool_of_a_client_is_a_function_for_the_policy() -> None:
    tools = ClientTools([SHELL, PATCH, TASK])
    functions = tools.request({"tools": [SHELL, PATCH, TASK]})["tools"]
    assert [tool["type"] for tool in functions] == ["function"] * 4
    assert [tool["name"] for tool in functions] == [
        "shell",
        "apply_patch",
        "mcp__task__shell",
        "mcp__task__apply_patch",
    ]
    assert functions[0] is SHELL
    assert functions[1]["parameters"]["required"] == ["input"]
    assert "lark grammar:\nstart: hunk+" in functions[1]["description"]


def test_a_call_goes_back_as_the_client_declared_its_tool() -> None:
    tools = ClientTools([SHELL, PATCH, TASK])
    calls = [function_call(name, {"input": "x"}, call_id="c") for name in ("shell", "apply_patch", "mcp__task__shell")]
    shell, patch, task = tools.answer({"output": calls})["output"]
    assert shell is calls[0]
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", "x")
    assert "arguments" not in patch
    assert (task["type"], task["name"], task["namespace"]) == ("function_call", "shell", "mcp__task")
    both = tools.answer({"output": [function_call("mcp__task__apply_patch", {"input": "x"}, call_id="c")]})["output"][0]
    assert (both["type"], both["namespace"], both["input"]) == ("custom_tool_call", "mcp__task", "x")


def test_a_demand_for_a_tool_names_its_function() -> None:
    def chosen(choice: Any) -> Any:
        return ClientTools([PATCH, TASK]).request({"tools": [PATCH, TASK], "tool_choice": choice})["tool_choice"]

    assert chosen({"type": "custom", "name": "apply_patch"}) == {"type": "function", "name": "apply_patch"}
    namespaced = {"type": "function", "name": "shell", "namespace": "mcp__task"}
    assert chosen(namespaced) == {"type": "function", "name": "mcp__task__shell"}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "apply_patch"}]}
    assert chosen(allowed)["tools"] == [{"type": "function", "name": "apply_patch"}]
    assert chosen("auto") == "auto"


def test_a_request_without_such_tools_is_left_alone() -> None:
    body = {"tools": [SHELL], "input": [{"role": "user", "content": "hi"}, function_call("shell", {}, call_id="c")]}
    tools = ClientTools(body["tools"])
    assert tools.request(body) is body
    assert function_items(body["input"]) == body["input"]
    assert tools.answer(body) is body


#: What a model may write as the arguments of a function with one text.
arguments = st.one_of(
    words.map(lambda text: json.dumps({"input": text}, indent=1)),
    words.map(lambda text: orjson.dumps({"input": text}).decode()),
    json_objects.map(json.dumps),
    words,
)


@given(st.lists(st.tuples(st.sampled_from(["apply_patch", "mcp__task__apply_patch", "mcp__task__shell"]), arguments)))
def test_the_models_own_calls_are_recognised_in_what_the_client_sends_back(calls: list[tuple[str, str]]) -> None:
    tools = ClientTools([SHELL, PATCH, TASK])
    own = [function_call(name, text, call_id=f"c{number}") for number, (name, text) in enumerate(calls)]
    sent = [
        {key: value for key, value in call.items() if key != "id"} for call in tools.answer({"output": own})["output"]
    ]
    returned = function_items(sent)
    assert [item["type"] for item in returned] == ["function_call"] * len(own)
    echo = echo_of(own, returned)
    assert is_covered(own, echo)
    assert echo.theirs == len(own)


@given(words)
def test_the_text_of_a_custom_tool_survives(text: str) -> None:
    assert text_input(json.dumps({"input": text})) == text


hostile = st.recursive(
    st.one_of(st.none(), st.integers(), words, st.sampled_from(["custom", "namespace", "function"])),
    lambda values: st.one_of(
        st.lists(values, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "name", "tools", "namespace", "input", "format", "description", "arguments"]),
            values,
            max_size=4,
        ),
    ),
    max_leaves=15,
)


@given(hostile, st.lists(hostile, max_size=4), hostile, names)
def test_any_request_is_read(tools: Any, items: list[Any], choice: Any, name: str) -> None:
    client_tools = ClientTools(tools)
    client_tools.request({"tools": tools, "tool_choice": choice})
    assert len(function_items(items)) == len(items)
    client_tools.answer({"output": [function_call(name, "{}", call_id="c")]})
