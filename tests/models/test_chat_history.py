"""A conversation that grows is converted to chat as if it were converted at once."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from conversations import outputs, turns, user_messages
from hypothesis import given
from hypothesis import strategies as st

from ludus.dialects.chat import OPEN, OPENAI, ChatStyle, to_chat, to_messages
from ludus.errors import Failure
from ludus.models.chat_history import chat_body, chat_messages
from ludus.response import Item, Items, function_call, function_call_output, message

STYLES = [OPEN, OPENAI, ChatStyle(reasoning="think"), ChatStyle(reasoning="reasoning_details")]
unknown = st.just({"type": "item_reference", "id": "x"})
added = st.lists(st.one_of(turns(), outputs.map(lambda one: [one]), user_messages.map(lambda one: [one])), max_size=3)
pieces = st.one_of(added.map(lambda lists: [item for items in lists for item in items]), st.lists(unknown, max_size=1))


def at_once(items: list[Item], style: ChatStyle) -> tuple[Any, list[str]]:
    lost: list[str] = []
    return orjson.loads(orjson.dumps(to_messages(items, style, lost))), lost


@given(st.lists(pieces, max_size=6), st.sampled_from(STYLES))
def test_each_turn_of_a_conversation_is_what_it_is_at_once(parts: list[list[Item]], style: ChatStyle) -> None:
    items = Items()
    for number, part in enumerate(parts):
        if number % 2:
            items = items.extended(part)
        else:
            items += part
        lost: list[str] = []
        messages = orjson.loads(orjson.dumps(chat_messages(items, style, lost)))
        expected, lost_at_once = at_once(items, style)
        assert messages == expected
        assert len(lost) == len(lost_at_once)


def test_two_ways_to_go_on_do_not_disturb_each_other() -> None:
    items = Items([{"role": "user", "content": "hi"}, message("Hello.")])
    chat_messages(items, OPEN, [])
    for text in ("one", "two"):
        longer = items.extended([{"role": "user", "content": text}])
        messages = orjson.loads(orjson.dumps(chat_messages(longer, OPEN, [])))
        assert messages == at_once(longer, OPEN)[0]


def test_a_message_is_encoded_once() -> None:
    items = Items([{"role": "user", "content": "hi"}])
    (first,) = chat_messages(items, OPEN, [])
    items = items.extended([function_call("add", {}, call_id="c"), function_call_output("c", "3")])
    assert chat_messages(items, OPEN, [])[0] is first


def test_parameters_are_converted_once_and_again_when_they_change() -> None:
    tools = [{"type": "function", "name": "add", "parameters": {}}]
    items = Items([{"role": "user", "content": "hi"}])
    bodies = []
    for params in (
        {"model": "m", "tools": tools, "instructions": "Be brief.", "truncation": "auto"},
        {"model": "m", "tools": tools, "instructions": "Be brief.", "truncation": "auto"},
        {"model": "m", "tools": tools, "instructions": "Be kind.", "temperature": 0.5},
        {"model": "m", "tools": [*tools, {"type": "function", "name": "sub", "parameters": {}}]},
        {"model": "m"},
    ):
        items = items.extended([message("Yes."), {"role": "user", "content": "Go on."}])
        lost: list[str] = []
        lost_at_once: list[str] = []
        bodies.append(chat_body(items, params, OPEN, lost))
        expected = to_chat(items, params, style=OPEN, lost=lost_at_once)
        assert orjson.loads(orjson.dumps(bodies[-1])) == orjson.loads(orjson.dumps(expected))
        assert sorted(lost) == sorted(lost_at_once)
    assert bodies[0]["tools"] is bodies[1]["tools"], "they are encoded once"


def test_a_failure_names_the_place_in_the_whole_conversation() -> None:
    items = Items([{"role": "user", "content": "hi"}])
    chat_messages(items, OPEN, [])
    items.append({"type": "function_call_output", "call_id": 5, "output": "x"})
    with pytest.raises(Failure, match=r"input\[1\]\.call_id"):
        chat_messages(items, OPEN, [])
