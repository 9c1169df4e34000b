"""ChatML: conversations are converted to turns, and generated text is parsed into items."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.errors import Failure
from ludus.models.chatml import (
    ChatmlTurn,
    assistant_text,
    call_grammar,
    forced_tools,
    offered_tools,
    parse,
    turns,
)
from ludus.response import Item, Response, function_call, function_call_output, message, reasoning

ADD: Item = {
    "type": "function",
    "name": "add",
    "description": "Add to the counter.",
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
}
READ: Item = {"type": "function", "name": "read"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.text(st.characters(categories=["L", "N", "P"]), min_size=1)
calls = st.builds(
    lambda name, arguments, ascii_only: function_call(
        name, json.dumps(arguments, ensure_ascii=ascii_only), call_id="call_1"
    ),
    names,
    st.dictionaries(st.text(), json_values, max_size=3),
    st.booleans(),
)
fragments = st.sampled_from(
    ["<tool_call>", "</tool_call>", '{"name": "add"', ', "arguments": ', '{"count": 1}', "}", '"', "\\ud800", " ", "\n"]
)


def without_ids(items: list[Item]) -> list[Any]:
    """Items without their ids: the text of a message, or the name and arguments of a call."""
    return [
        (item["name"], item["arguments"]) if item["type"] == "function_call" else item["content"][0]["text"]
        for item in items
    ]


def test_a_conversation_is_converted_to_turns_in_order() -> None:
    items: list[Item] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Add "}, {"type": "input_text", "text": "two."}]},
        reasoning("I should call the tool."),
        message("Gladly."),
        function_call("add", '{"count": 2}', call_id="call_1"),
        function_call("read", "", call_id="call_2"),
        function_call_output("call_1", "done"),
        function_call_output("call_2", "5"),
        {"role": "system", "content": "Time is up."},
    ]
    assert turns(items, {"instructions": "You count."}) == [
        ChatmlTurn("system", "You count.\n\nBe brief."),
        ChatmlTurn("user", "Add two.", 1),
        ChatmlTurn(
            "assistant",
            'Gladly.\n<tool_call>{"name": "add", "arguments": {"count": 2}}</tool_call>\n'
            '<tool_call>{"name": "read", "arguments": {}}</tool_call>',
            3,
        ),
        ChatmlTurn("user", "<tool_response>done</tool_response>\n<tool_response>5</tool_response>", 6),
        ChatmlTurn("system", "Time is up.", 8),
    ]


def test_a_request_without_instructions_has_no_system_turn() -> None:
    assert turns([{"role": "user", "content": "Hi"}], {}) == [ChatmlTurn("user", "Hi", 0)]


def test_the_system_turn_lists_the_tools_with_an_example_call() -> None:
    first, *_ = turns([{"role": "user", "content": "Hi"}], {"instructions": "You count.", "tools": [ADD, READ]})
    assert first.role == "system"
    assert first.text.startswith("You count.\n\n")
    assert '{"name": "add", "description": "Add to the counter.", "parameters": ' in first.text
    assert first.text.endswith('<tool_call>{"name": "add", "arguments": {"count": "..."}}</tool_call>')


def test_tool_choice_none_hides_the_tools() -> None:
    params = {"tools": [ADD], "tool_choice": "none"}
    assert turns([{"role": "user", "content": "Hi"}], params) == [ChatmlTurn("user", "Hi", 0)]
    assert forced_tools(params) == []


@pytest.mark.parametrize(
    ("choice", "forced"),
    [
        (None, []),
        ("auto", []),
        ("required", ["add", "read"]),
        ({"type": "function", "name": "read"}, ["read"]),
        ({"type": "function", "function": {"name": "add"}}, ["add"]),
    ],
)
def test_tool_choice_decides_which_tools_are_forced(choice: Any, forced: list[str]) -> None:
    params = {"tools": [ADD, READ], "tool_choice": choice}
    assert [tool["name"] for tool in forced_tools(params)] == forced


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        ({"tool_choice": "required"}, "bad_request"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "name": "fly"}}, "bad_request"),
        ({"tools": [ADD], "tool_choice": {"type": "allowed_tools"}}, "unsupported"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "unsupported"),
    ],
)
def test_an_unsupported_tool_choice_is_a_failure(params: dict[str, Any], kind: str) -> None:
    with pytest.raises(Failure) as failure:
        forced_tools(params)
    assert failure.value.kind == kind


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.org/cat.png"}]},
        {"type": "computer_call", "call_id": "call_1"},
        {"role": "narrator", "content": "Once upon a time"},
    ],
)
def test_images_unknown_items_and_unknown_roles_are_unsupported(item: Item) -> None:
    with pytest.raises(Failure) as failure:
        turns([item], {})
    assert failure.value.kind == "unsupported"


def test_only_function_tools_can_be_offered() -> None:
    with pytest.raises(Failure, match="function tools"):
        offered_tools({"tools": [{"type": "web_search"}]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [""]),
        ("Paris.\n", ["Paris.\n"]),
        ('<tool_call>{"name": "add", "arguments": {"count": 2}}</tool_call>', [("add", '{"count": 2}')]),
        (
            'Sure!\n<tool_call>\n{"arguments": {"a":1}, "name": "add"}\n</tool_call>\n'
            '<tool_call>{"name": "read"}</tool_call> Bye',
            ["Sure!", ("add", '{"a":1}'), ("read", "{}"), "Bye"],
        ),
        # The closing tag or a brace is missing, or there is an extra brace.
        ('<tool_call>{"name": "add", "arguments": {"count": 2}}', [("add", '{"count": 2}')]),
        ('<tool_call>{"name": "add", "arguments": {"count": 2}</tool_call>', [("add", '{"count": 2}')]),
        ('<tool_call>{"name": "add", "arguments": {"count": 2}}}</tool_call>', [("add", '{"count": 2}')]),
        # Arguments that are not JSON are passed to the tool as text.
        ('<tool_call>{"name": "add", "arguments": {count: 2}}</tool_call>', [("add", "{count: 2}}")]),
        # A tag inside an argument is not the end of the call.
        (
            '<tool_call>{"name": "add", "arguments": {"a": "</tool_call>"}}</tool_call>',
            [("add", '{"a": "</tool_call>"}')],
        ),
        # A block without a name or an object, or an unfinished block, stays text.
        ('<tool_call>{"arguments": {}}</tool_call>', ['<tool_call>{"arguments": {}}</tool_call>']),
        ("<tool_call>add(2)</tool_call>", ["<tool_call>add(2)</tool_call>"]),
        ('<tool_call>{"name": "add", "argum', ['<tool_call>{"name": "add", "argum']),
        (
            '<tool_call><tool_call>{"name": "read", "arguments": {}}</tool_call>',
            ["<tool_call>", ("read", "{}")],
        ),
    ],
)
def test_generated_text_is_parsed_into_messages_and_calls(text: str, expected: list[Any]) -> None:
    assert without_ids(parse(text)) == expected


@given(st.lists(fragments | st.text(max_size=5), max_size=12).map("".join) | st.text())
def test_any_text_can_be_parsed_recorded_and_rendered(text: str) -> None:
    items = parse(text)
    assert items
    orjson.dumps(items)
    assert Response.of(*items).output == items
    again = parse(assistant_text(items))
    assert again
    if all(item["type"] == "message" for item in items):
        assert assistant_text(items) == text


@given(st.lists(calls, min_size=1, max_size=3))
def test_parse_reads_back_the_calls_that_assistant_text_writes(written: list[Item]) -> None:
    assert without_ids(parse(assistant_text(written))) == without_ids(written)


def test_deep_nesting_and_huge_numbers_stay_text_arguments() -> None:
    for arguments in ("[" * 100_000, "9" * 5_000):
        (call,) = parse(f'<tool_call>{{"name": "add", "arguments": {arguments}</tool_call>')
        assert call["arguments"] == arguments


def test_call_ids_are_unique_and_repeatable() -> None:
    text = '<tool_call>{"name": "read", "arguments": {}}</tool_call>' * 2
    first, second = parse(text, key="session:1")
    assert first["call_id"] != second["call_id"]
    assert parse(text, key="session:1") == [first, second]
    assert parse(text, key="session:2")[0]["call_id"] != first["call_id"]


def test_the_grammar_names_every_tool_and_allows_no_additional_arguments() -> None:
    grammar = call_grammar([ADD, READ])
    assert grammar.startswith(
        '%llguidance {}\nstart: "<tool_call>" call "</tool_call>" <|im_end|>\ncall: call_0 | call_1\n'
    )
    schemas = [json.loads(line.split("%json ")[1]) for line in grammar.splitlines() if "%json" in line]
    assert schemas[0]["properties"] == {"count": {"type": "integer"}}
    assert [schema["additionalProperties"] for schema in schemas] == [False, False]
