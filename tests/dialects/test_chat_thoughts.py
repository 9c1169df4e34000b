"""Reasoning in front of one text or one call is converted by a short path: the result is that of the long path."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ludus.dialects.chat_items import to_messages
from ludus.dialects.chat_style import ChatStyle

_thoughts = st.builds(
    lambda texts, more: {"type": "reasoning", "summary": [{"type": "summary_text", "text": t} for t in texts], **more},
    st.lists(st.sampled_from(["", "a", "b c"]), max_size=2),
    st.sampled_from([{}, {"id": "r"}, {"status": "incomplete"}, {"encrypted_content": "e"}, {"odd": 1}]),
)
_others = st.sampled_from(
    [
        {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "o"},
        {"type": "message", "role": "assistant", "content": ""},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t"}]},
        {"role": "user", "content": "u"},
    ]
)


@given(st.lists(_thoughts | _others, max_size=6), st.sampled_from(["reasoning_content", "think", "none"]))
def test_the_short_path_for_reasoning_gives_what_the_long_path_gives(items: list[Any], place: Any) -> None:
    style = ChatStyle(reasoning=place)
    lost: list[str] = []
    lost_long: list[str] = []
    long = [{**item, "content": None} if item.get("type") == "reasoning" else item for item in items]
    found, expected = to_messages(items, style, lost), to_messages(long, style, lost_long)
    assert (found, lost) == (expected, lost_long)
    assert [list(message) for message in found] == [list(message) for message in expected]
