"""Tools that only a provider's servers run are told from those that the client runs, in four dialects."""

from __future__ import annotations

from typing import Any

import pytest
from conversations import broken
from hypothesis import given
from hypothesis import strategies as st

from ludus.dialects.errors import Dialect
from ludus.dialects.messages import request_from_messages
from ludus.dialects.server_tools import split_tools

FUNCTIONS: dict[Dialect, dict[str, Any]] = {
    "responses": {"type": "function", "name": "look"},
    "chat": {"type": "function", "function": {"name": "look"}},
    "messages": {"name": "look", "input_schema": {"type": "object"}},
    "gemini": {"functionDeclarations": [{"name": "look"}]},
}
SERVER: list[tuple[Dialect, dict[str, Any], str]] = [
    *(("responses", {"type": kind}, kind) for kind in ("web_search", "file_search", "code_interpreter", "tool_search")),
    *(("responses", {"type": kind}, kind) for kind in ("mcp", "image_generation", "local_shell", "web_search_preview")),
    ("chat", {"type": "web_search"}, "web_search"),
    *(
        ("messages", {"type": kind, "name": kind[:-9]}, kind)
        for kind in ("web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "computer_20250124")
    ),
    ("messages", {"type": "tool_search_tool_regex_20251119", "name": "t"}, "tool_search_tool_regex_20251119"),
    *(("gemini", {kind: {}}, kind) for kind in ("googleSearch", "codeExecution", "urlContext", "google_search")),
]


@pytest.mark.parametrize(("dialect", "tool", "name"), SERVER)
def test_a_tool_of_the_provider_is_named_and_the_clients_are_kept(dialect: Dialect, tool: dict[str, Any], name: str):
    function = FUNCTIONS[dialect]
    body, names = split_tools(dialect, {"tools": [function, tool], "tool_choice": "auto", "a": 1})
    assert names == [name]
    assert body == {"tools": [function], "tool_choice": "auto", "a": 1}
    assert split_tools(dialect, {"tools": [tool], "tool_choice": "required", "a": 1}) == ({"a": 1}, [name])


@pytest.mark.parametrize("dialect", FUNCTIONS)
def test_a_request_with_the_clients_own_tools_is_left_alone(dialect: Dialect):
    body = {"tools": [FUNCTIONS[dialect]], "tool_choice": {"type": "function", "name": "look"}}
    assert split_tools(dialect, body) == (body, [])


def test_one_object_of_gemini_may_hold_tools_of_both_kinds():
    both = {**FUNCTIONS["gemini"], "googleSearch": {}, "codeExecution": None}
    assert split_tools("gemini", {"tools": [both]}) == ({"tools": [FUNCTIONS["gemini"]]}, ["googleSearch"])


def test_a_demand_for_a_dropped_tool_is_dropped_with_it():
    for dialect, tool, choice in (
        ("responses", {"type": "web_search"}, {"type": "web_search"}),
        ("messages", {"type": "web_search_20250305", "name": "web_search"}, {"type": "tool", "name": "web_search"}),
    ):
        function = FUNCTIONS[dialect]  # type: ignore[index]
        body, _ = split_tools(dialect, {"tools": [function, tool], "tool_choice": choice})  # type: ignore[arg-type]
        assert body == {"tools": [function]}
    kept = {"type": "tool", "name": "look"}
    tools = [FUNCTIONS["messages"], {"type": "tool_search_tool_bm25_20251119", "name": "t"}]
    assert split_tools("messages", {"tools": tools, "tool_choice": kept})[0]["tool_choice"] == kept


def test_fields_that_switch_a_tool_on_count_as_tools():
    assert split_tools("chat", {"web_search_options": {"search_context_size": "low"}})[1] == ["web_search_options"]
    assert split_tools("chat", {"web_search_options": {}})[1] == ["web_search_options"], "on, with its defaults"
    assert split_tools("chat", {"web_search_options": None})[1] == []
    assert split_tools("messages", {"mcp_servers": [{"url": "u"}]})[1] == ["mcp_servers"]
    assert split_tools("messages", {"mcp_servers": []})[1] == []


@pytest.mark.parametrize(
    ("kind", "name", "fields"),
    [
        ("bash_20250124", "bash", {"command", "restart"}),
        ("bash_20241022", "bash", {"command", "restart"}),
        ("text_editor_20250728", "str_replace_based_edit_tool", {"command", "path", "insert_text", "new_str"}),
        ("text_editor_20250124", "str_replace_editor", {"command", "path", "new_str"}),
        ("memory_20250818", "memory", {"command", "path", "old_path", "new_path"}),
    ],
)
def test_tools_that_the_client_runs_become_functions(kind: str, name: str, fields: set[str]):
    body = {"messages": [], "tools": [{"type": kind, "name": name}]}
    assert split_tools("messages", body) == (body, [])
    lost: list[str] = []
    (function,) = request_from_messages(body, lost=lost)["tools"]
    assert (function["type"], function["name"], lost) == ("function", name, [])
    assert fields <= function["parameters"]["properties"].keys()
    commands = function["parameters"]["properties"]["command"].get("enum", [])
    assert ("undo_edit" in commands) == (kind == "text_editor_20250124")


@given(st.sampled_from(sorted(FUNCTIONS)).flatmap(lambda dialect: st.tuples(st.just(dialect), tools_of(dialect))))
def test_any_request_is_split_and_nothing_is_left_to_split(case: Any):
    dialect, body = case
    if not isinstance(body, dict):
        return
    rest, names = split_tools(dialect, body)
    assert split_tools(dialect, rest) == (rest, [])
    assert (rest is body) == (not names)


def tools_of(dialect: Any) -> st.SearchStrategy[Any]:
    """Requests with tools of all kinds, and junk among them."""
    tools = [FUNCTIONS[dialect], *(tool for spoken, tool, _ in SERVER if spoken == dialect)]
    choice = {"type": "tool", "name": "web_search"}
    chosen = st.lists(st.sampled_from(tools), max_size=4)
    return chosen.flatmap(lambda some: broken({"tools": some, "tool_choice": choice, "web_search_options": {}}))
