"""Hypothesis strategies for conversations and malformed JSON, and a normal form to compare conversations in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st

from ludus.errors import Failure

Json = dict[str, Any]

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}

texts = st.text(max_size=12)
words = st.text(min_size=1, max_size=12)
names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
urls = st.sampled_from(["https://example.org/a.png", "data:image/png;base64,aGk="])
json_objects = st.dictionaries(names, st.integers(-5, 5) | words | st.booleans() | st.none(), max_size=3)


def with_optional(strategy: st.SearchStrategy[Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Objects of a strategy, each with a random subset of the optional fields."""
    return st.tuples(strategy, st.fixed_dictionaries({}, optional=fields)).map(lambda pair: {**pair[0], **pair[1]})


def typed(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Objects whose `type` is `kind`."""
    return st.fixed_dictionaries({"type": st.just(kind), **fields})


breakpoints = st.just({"mode": "explicit"})
input_texts = with_optional(typed("input_text", text=texts), prompt_cache_breakpoint=breakpoints)
images = with_optional(typed("input_image", image_url=urls), detail=st.sampled_from(["low", "auto"]))
files = with_optional(typed("input_file", filename=words), file_id=words).filter(
    lambda part: "file_id" in part
) | typed("input_file", file_data=st.just("data:application/pdf;base64,aGk="), filename=words)
audio = typed("input_audio", input_audio=st.just({"data": "aGk=", "format": "wav"}))
videos = typed("video_url", video_url=st.just({"url": "https://example.org/a.mp4"}))


def is_plain(content: Any, kind: str) -> bool:
    return isinstance(content, list) and len(content) == 1 and content[0].keys() == {"type", "text"}


contents = texts | st.lists(input_texts | images | files | audio | videos, max_size=3).filter(
    lambda parts: not is_plain(parts, "input_text")
)
output_texts = typed("output_text", text=texts)
refusals = typed("refusal", refusal=words)
output_parts = (
    st.lists(output_texts, min_size=2, max_size=3)
    | st.lists(output_texts, max_size=2).flatmap(lambda parts: refusals.map(lambda part: [*parts, part]))
).filter(lambda parts: parts[0] != {"type": "output_text", "text": ""})

user_messages = with_optional(
    typed("message", role=st.sampled_from(["user", "system", "critic"]), content=contents), name=names
)
outputs = with_optional(typed("function_call_output", call_id=words, output=contents), name=names)
assistant_messages = with_optional(
    typed("message", role=st.just("assistant"), content=words | output_parts), name=names
)
calls = with_optional(
    typed("function_call", call_id=words, name=names, arguments=texts),
    extra_content=st.just({"google": {"s": "x"}}),
)
reasoning_items = typed("reasoning", summary=words.map(lambda text: [{"type": "summary_text", "text": text}]))
empty_message = {"type": "message", "role": "assistant", "content": ""}


@st.composite
def turns(draw: Any, reasoning: bool = True, tokens: bool = True) -> list[Json]:
    """The items of one assistant turn, in the order of a chat message."""
    turn = draw(st.lists(reasoning_items, max_size=1)) if reasoning else []
    turn = turn + draw(st.lists(assistant_messages, max_size=1)) + draw(st.lists(calls, max_size=3))
    turn = [dict(item) for item in turn or [empty_message]]
    if tokens and draw(st.booleans()):
        turn[-1] |= TOKENS
    return turn


@st.composite
def conversations(draw: Any, reasoning: bool = True) -> list[Json]:
    """Items that chat can hold without loss."""
    items: list[Json] = []
    for _ in range(draw(st.integers(0, 6))):
        last = items[-1] if items else {}
        new_turn = last.get("role", "assistant") != "assistant" or last.get("type") == "function_call_output"
        if not items or new_turn or "prompt_token_ids" in last:
            items += draw(turns(reasoning) | user_messages.map(lambda item: [item]) | outputs.map(lambda item: [item]))
        else:
            items.append(draw(user_messages | outputs))
    return items


def normalised(item: Json) -> Json:
    """An item in the form that converters return. Equivalent items have the same normal form."""
    item = {key: value for key, value in item.items() if value is not None and key != "id"}
    if item.get("status") == "completed":
        del item["status"]
    if "role" in item:
        item.setdefault("type", "message")
    if item["type"] == "reasoning" and not item.get("summary") and item.get("content"):
        item["summary"] = [{"type": "summary_text", "text": part["text"]} for part in item.pop("content")]
    if item["type"] == "reasoning" and not item.get("content"):
        item.pop("content", None)
    for key in ("content", "output"):
        if item["type"] != "reasoning" and isinstance(item.get(key), list):
            item[key] = _as_content([_part(part, item.get("role")) for part in item[key]], item.get("role"))
    return item


def _part(part: Json, role: Any) -> Json:
    part = {key: value for key, value in part.items() if value is not None}
    for key in ("annotations", "logprobs"):
        if part.get(key) == []:
            del part[key]
    if part.get("type") in ("text", "input_text", "output_text"):
        part["type"] = "output_text" if role == "assistant" else "input_text"
    return part


def _as_content(parts: list[Json], role: Any) -> Any:
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return parts[0]["text"]
    return "" if role == "assistant" and not parts else parts


def equivalent(item: Json) -> st.SearchStrategy[Json]:
    """Equivalent forms of an item: with fields that servers add, or without fields that authors leave out."""
    optional: dict[str, st.SearchStrategy[Any]] = {"status": st.just("completed"), "encrypted_content": st.none()}
    if item["type"] != "reasoning":
        optional["id"] = words
    made = st.fixed_dictionaries({}, optional=optional).map(lambda more: {**item, **more})
    content = item.get("content")
    if item["type"] == "message" and isinstance(content, str):
        part = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
        kind = "input_text" if item["role"] != "assistant" else "output_text"
        as_part = {"type": "text", "text": content} if kind == "input_text" else part
        made = made | made.map(lambda whole: {**whole, "content": [as_part]})
        made = made | made.map(lambda whole: {key: value for key, value in whole.items() if key != "type"})
    if item["type"] == "reasoning":
        raw = [{"type": "reasoning_text", "text": item["summary"][0]["text"]}]
        made = made | made.map(lambda whole: {**whole, "summary": [], "content": raw})
    return made


@contextmanager
def may_fail_as(kind: str) -> Iterator[None]:
    """Passes if the block succeeds, or raises a Failure of this kind with a short cause."""
    try:
        yield
    except Failure as failure:
        if failure.kind != kind or len(failure.cause) > 300:
            raise


JUNK: list[Any] = [None, True, 0, -1, 10**400, 1e308, float("nan"), float("-inf"), "", "\0", "x" * 1000, [], {}]
JUNK += [[[]], [None], {"a": 1}, ["a"], {"type": "text"}, {"type": []}, [{"type": {}}], {"\0" * 100: {}}]


@st.composite
def broken(draw: Any, value: Any) -> Any:
    """A JSON value in which one to three values are replaced by junk or removed."""
    for _ in range(draw(st.integers(1, 3))):
        value = _break(draw, value)
    return value


def _break(draw: Any, value: Any) -> Any:
    if not isinstance(value, (dict, list)) or not value or draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(JUNK))
    if isinstance(value, list):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], _break(draw, value[index]), *value[index + 1 :]]
    key = draw(st.sampled_from(sorted(value, key=str)))
    if draw(st.integers(0, 4)) == 0:
        return {name: part for name, part in value.items() if name != key}
    return {**value, key: _break(draw, value[key])}
