"""What a program echoes of a conversation is recognised, however it writes it, and given back as the model wrote it."""

from __future__ import annotations

import copy
import json
from typing import Any

from conversations import json_objects, names, words
from hypothesis import given
from hypothesis import strategies as st

from ludus.agents.echoes import echo_of, is_same
from ludus.response import Item, function_call, function_call_output, message, reasoning

USER = {"type": "message", "role": "user", "content": "Go."}


def rewritten(items: list[Item], *, ids: bool, thoughts: bool) -> list[Item]:
    """A conversation as programs send it back: JSON with spaces and sorted keys, other ids, or without reasoning."""
    sent = []
    for item in copy.deepcopy(items):
        if item["type"] == "reasoning" and not thoughts:
            continue
        if item["type"] == "function_call":
            item["arguments"] = json.dumps(json.loads(item["arguments"]), sort_keys=True)
        if ids and "call_id" in item:
            item["call_id"] = f"theirs_{item['call_id']}"
        sent.append({key: value for key, value in item.items() if key not in ("id", "status")})
    return sent


@st.composite
def turns(draw: Any) -> list[Item]:
    """A conversation with reasoning, texts, calls and their outputs."""
    items: list[Item] = [USER]
    for number in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            items.append(reasoning(draw(words)))
        if draw(st.booleans()):
            items.append(message(draw(words)))
        else:
            arguments = json.dumps(draw(json_objects), separators=(",", ":"))
            items.append(function_call(draw(names), arguments, call_id=f"c{number}"))
            items.append(function_call_output(f"c{number}", draw(words)))
    return items


@given(turns(), st.booleans(), st.booleans())
def test_a_rewritten_conversation_is_given_back_as_it_was(items: list[Item], ids: bool, thoughts: bool) -> None:
    new = {"type": "message", "role": "user", "content": "And now?"}
    sent = [*rewritten(items, ids=ids, thoughts=thoughts), new]
    kept = items if items[-1]["type"] != "reasoning" or thoughts else items[:-1]  # a last thought has nothing after it
    echo = echo_of(items, sent)
    assert echo.theirs == len(sent) - 1
    assert echo.restored(items, sent) == [*kept, new]


def test_an_output_that_follows_a_renumbered_call_gets_our_id() -> None:
    ours = [USER, function_call("look", "{}", call_id="c1")]
    sent = [USER, {**ours[1], "call_id": "toolu_9"}, function_call_output("toolu_9", "nothing")]
    assert echo_of(ours, sent).restored(ours, sent) == [*ours, function_call_output("c1", "nothing")]


def said(text: str) -> Item:
    """An answer as programs send it."""
    return {"type": "message", "role": "assistant", "content": text}


def test_reasoning_that_a_program_writes_as_text_is_given_back_as_the_model_wrote_it() -> None:
    call = function_call("look", "{}", call_id="c1")
    ours = [USER, reasoning("Hm.\nLook."), message("I look."), call]
    together = [USER, said("<think>\nHm.\nLook.\n</think>\n\nI look."), call, USER]
    apart = [USER, said("<thinking>Hm.\nLook.</thinking>"), said("I look."), call, USER]
    for sent in (together, apart):
        echo = echo_of(ours, sent)
        assert (echo.ours, echo.theirs) == (4, len(sent) - 1)
        assert echo.restored(ours, sent) == [*ours, USER]
        assert echo.changed
    silent = [USER, reasoning("Hm."), call]
    sent = [USER, said("<think>Hm.</think>"), call]
    assert echo_of(silent, sent).restored(silent, sent) == silent


def test_text_in_tags_is_no_echo_of_another_answer() -> None:
    ours = [USER, reasoning("Hm."), message("I look.")]
    for text in ("<think>Hm.</think>I wait.", "<think>Other.</think>", "<think>I look.", "Hm.</think>I look."):
        assert echo_of(ours, [USER, said(text)]).ours == 1, text
    user = {**said("<think>Hm.</think>I look."), "role": "user"}
    assert echo_of(ours, [USER, user]).ours == 1, "what a user says is not the model's turn"
    plain = [USER, message("<think>Hm.</think>I look.")]
    assert echo_of(plain, [USER, said("I look.")]).ours == 1, "a model that writes tags must get them back"


def test_a_changed_turn_ends_the_echo() -> None:
    ours = [USER, message("four"), {**USER, "content": "Sure?"}, message("yes")]
    sent = [USER, message("five"), {**USER, "content": "Sure?"}]
    echo = echo_of(ours, sent)
    assert (echo.ours, echo.theirs) == (1, 1)
    assert echo.restored(ours, sent) == sent


def test_images_and_custom_calls_count() -> None:
    def picture(url: str) -> Item:
        return {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url}]}

    def patch(text: str) -> Item:
        return {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c1", "input": text}

    assert is_same(picture("a.png"), {**picture("a.png"), "id": "m1"})
    assert not is_same(picture("a.png"), picture("b.png"))
    assert is_same(patch("x"), {**patch("x"), "status": "completed"})
    assert not is_same(patch("x"), patch("y"))
