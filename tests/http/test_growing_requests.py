"""A request that is read in pieces is the same as one that is read as a whole, whatever came before it."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from conversations import json_objects, names, texts, urls, words
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.agents.program_requests import read_items
from ludus.dialects.errors import Dialect
from ludus.dialects.histories import HISTORIES
from ludus.errors import Failure
from ludus.http.growing_requests import CONVERSATIONS, GrowingRequests
from ludus.http.messages import Refusal
from ludus.http.model_routes import ModelRoutes

Json = dict[str, Any]
DIALECTS: list[Dialect] = ["responses", "chat", "messages", "gemini"]

calls = st.fixed_dictionaries({"name": names, "arguments": json_objects, "id": words})
results = st.fixed_dictionaries({"name": names, "id": words, "text": texts})
kinds = st.one_of(
    st.tuples(st.just("user"), texts),
    st.tuples(st.just("assistant"), texts),
    st.tuples(st.just("image"), urls),
    st.tuples(st.just("call"), calls),
    st.tuples(st.just("result"), results),
    st.tuples(st.just("odd"), st.one_of(st.none(), words, st.lists(words, max_size=2), json_objects)),
)


def message_of(dialect: Dialect, kind: str, value: Any) -> Any:
    """A message of a program in its dialect; an odd one may be refused."""
    if kind == "odd":
        return value
    makers = {"responses": responses_item, "chat": chat_message, "messages": anthropic_message, "gemini": gemini_turn}
    return makers[dialect](kind, value)


def responses_item(kind: str, value: Any) -> Json:
    if kind == "call":
        return {"type": "custom_tool_call", "call_id": value["id"], "name": value["name"], "input": str(value)}
    if kind == "result":
        return {"type": "custom_tool_call_output", "call_id": value["id"], "output": value["text"]}
    if kind == "image":
        return {"role": "user", "content": [{"type": "input_image", "image_url": value}]}
    return {"type": "message", "role": kind, "content": value}


def chat_message(kind: str, value: Any) -> Json:
    if kind == "call":
        function = {"name": value["name"], "arguments": json.dumps(value["arguments"])}
        call = {"id": value["id"], "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": value["id"]}
    if kind == "result":
        return {"role": "tool", "tool_call_id": value["id"], "content": value["text"]}
    if kind == "image":
        return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": value}}]}
    return {"role": kind, "content": value}


def anthropic_message(kind: str, value: Any) -> Json:
    if kind == "call":
        block = {"type": "tool_use", "id": value["id"], "name": value["name"], "input": value["arguments"]}
        return {"role": "assistant", "content": [{"type": "text", "text": "So:"}, block]}
    if kind == "result":
        block = {"type": "tool_result", "tool_use_id": value["id"], "content": value["text"]}
        return {"role": "user", "content": [block]}
    if kind == "image":
        source = {"type": "url", "url": value}
        return {"role": "user", "content": [{"type": "image", "source": source}]}
    return {"role": kind, "content": value}


def gemini_turn(kind: str, value: Any) -> Json:
    if kind == "call":
        return {"role": "model", "parts": [{"functionCall": {"name": value["name"], "args": value["arguments"]}}]}
    if kind == "result":
        part = {"functionResponse": {"name": value["name"], "response": {"output": value["text"]}}}
        return {"role": "user", "parts": [part]}
    if kind == "image":
        return {"role": "user", "parts": [{"fileData": {"mimeType": "image/png", "fileUri": value}}]}
    return {"role": "model" if kind == "assistant" else "user", "parts": [{"text": value}]}


def convert(dialect: Dialect) -> Any:
    return ModelRoutes._READ[dialect]


def read_whole(dialect: Dialect, body: bytes) -> tuple[Json, Json] | None:
    """The fields and the request of a body; None for one that is refused."""
    try:
        fields = orjson.loads(body)
        if not isinstance(fields, dict) or not isinstance(fields.get(HISTORIES[dialect].field), list):
            return None
        request = convert(dialect)(fields)
        request = {**request, "input": read_items(request["input"])}
    except (orjson.JSONDecodeError, Failure, Refusal):
        return None
    return {key: value for key, value in fields.items() if key != HISTORIES[dialect].field}, request


def read_in_pieces(growing: GrowingRequests, dialect: Dialect, body: bytes) -> tuple[Json, Json] | None:
    return growing.read(dialect, body, convert(dialect), read_items)


FIELDS: dict[Dialect, list[Json]] = {
    "responses": [{"model": "m"}, {"tools": [{"type": "function", "name": "a"}]}, {"instructions": "Be [brief]: {"}],
    "chat": [{"model": "m"}, {"tools": [{"type": "function", "function": {"name": "a"}}]}, {"stream": True}],
    "messages": [{"model": "m"}, {"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {}],
    "gemini": [{"systemInstruction": {"parts": [{"text": '"contents": ['}]}}, {"generationConfig": {"topK": 3}}, {}],
}

#: What happens to a conversation between two requests.
edits = st.one_of(
    st.tuples(st.just("add"), st.lists(kinds, min_size=1, max_size=3)),
    st.tuples(st.just("change"), kinds),
    st.tuples(st.just("drop"), st.integers(0, 5)),
    st.tuples(st.just("summarise"), texts),
    st.tuples(st.just("repeat"), st.none()),
)


@st.composite
def conversations(draw: Any) -> tuple[Dialect, list[bytes]]:
    """The bodies that a program sends in one conversation."""
    dialect: Dialect = draw(st.sampled_from(DIALECTS))
    field, messages = HISTORIES[dialect].field, list[Any]()
    before, after = draw(st.sampled_from(FIELDS[dialect])), draw(st.sampled_from(FIELDS[dialect]))
    style = draw(st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}, {"separators": (",", ":")}]))
    bodies = []
    for kind, value in draw(st.lists(edits, min_size=1, max_size=6)):
        if kind == "add":
            messages = [*messages, *(message_of(dialect, *one) for one in value)]
        elif kind == "change" and messages:
            at = draw(st.integers(0, len(messages) - 1))
            messages = [*messages[:at], message_of(dialect, *value), *messages[at + 1 :]]
        elif kind == "drop":
            messages = messages[:value]
        elif kind == "summarise":
            messages = [message_of(dialect, "user", value)]
        if draw(st.booleans()):
            after = {**after, "metadata": {"call": len(bodies)}} if dialect == "responses" else after
        body = {**before, field: messages, **{key: value for key, value in after.items() if key not in before}}
        bodies.append(json.dumps(body, **style).encode("utf-8", "surrogatepass"))
    return dialect, bodies


@given(st.lists(conversations(), min_size=1, max_size=3), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_request_read_in_pieces_is_the_request_read_as_a_whole(programs: list[Any], random: Any) -> None:
    growing, left = GrowingRequests(), [(dialect, list(bodies)) for dialect, bodies in programs]
    while any(bodies for _, bodies in left):
        dialect, bodies = random.choice([one for one in left if one[1]])
        body = bodies.pop(0)
        assert read_in_pieces(growing, dialect, body) == read_whole(dialect, body)


@given(conversations(), st.data())
@settings(deadline=None)
def test_hostile_bytes_are_read_as_a_whole_or_alike(conversation: Any, data: Any) -> None:
    dialect, bodies = conversation
    growing = GrowingRequests()
    for body in bodies:
        read_in_pieces(growing, dialect, body)
        at = data.draw(st.integers(0, len(body)))
        cut = data.draw(st.integers(0, 8))
        pieces = st.sampled_from(
            [b"", b"]", b"[", b"{", b"}", b'"', b",", b'"messages":[', b'],"input":[', b"\\", b"0"]
        )
        hostile = body[:at] + data.draw(pieces) + body[at + cut :]
        asked = read_in_pieces(growing, dialect, hostile)
        if asked is not None:
            assert asked == read_whole(dialect, hostile)


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"role":"user","content":"a"}],"messages":[{"role":"user","content":"b"}]}',
        b'{"messages":[{"role":"user","content":"a"}],"tools":null,"messages":[]}',
        b'{"x":{"messages":[{"role":"user","content":"a"}]},"messages":[{"role":"user","content":"b"}]}',
        b'{"a":"\\"messages","messages":[{"role":"user","content":"\\\\"}]}',
        b'{"messages":[{"role":"user","content":"a"} {"role":"user","content":"b"}]}',
        b'{"messages":[{"role":"user","content":"a"},]}',
        b'{"messages":[,{"role":"user","content":"a"}]}',
        b'{"messages":[{"role":"user","content":"a"}]}}',
        b'{"messages":[{"role":"user","content":"a"}] "model":"m"}',
        b'[{"messages":[{"role":"user","content":"a"}]}]',
        b'{"mess\\u0061ges":[{"role":"user","content":"a"}]}',
        b'{"messages":[{"role":"user","content":"a"}],"x":"' + b"[" * 10_000 + b'"}',
        b'{"messages":[' + b"[" * 500 + b"]" * 500 + b"]}",
        b'{"messages":["' + b"\\" * 9999,
        b'{"messages":["' + b'"a"' * 20_000,
    ],
)
def test_bodies_that_look_alike_are_told_apart(body: bytes) -> None:
    growing = GrowingRequests()
    usual = b'{"messages":[{"role":"user","content":"a"}]}'
    assert read_in_pieces(growing, "chat", usual) == read_whole("chat", usual)
    asked = read_in_pieces(growing, "chat", body)
    assert asked is None or asked == read_whole("chat", body)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_message_is_converted_once(dialect: Dialect, monkeypatch: pytest.MonkeyPatch) -> None:
    history, converted = HISTORIES[dialect], list[Any]()

    def counting() -> Any:
        read = history.reader()

        def read_and_count(message: Any) -> Any:
            converted.append(message)
            return read(message)

        return read_and_count

    monkeypatch.setitem(HISTORIES, dialect, history._replace(reader=counting))
    growing, messages, items = GrowingRequests(), list[Any](), list[Any]()
    for number in range(5):
        messages += [message_of(dialect, "user", f"q {number}"), message_of(dialect, "assistant", f"a {number}")]
        body = json.dumps({history.field: messages, "metadata": {"call": number}}).encode()
        asked = growing.read(dialect, body, convert(dialect), read_items)
        assert asked is not None
        assert all(map(same_object, items, asked[1]["input"])), "the items of the last request come again"
        items = asked[1]["input"]
    assert len(converted) == len(messages) == len(items)


def same_object(one: Any, other: Any) -> bool:
    return one is other


def test_a_changed_last_message_costs_only_that_message() -> None:
    growing = GrowingRequests()
    messages = [chat_message("user", f"q {number}") for number in range(20)]
    (_, first) = read_in_pieces(growing, "chat", json.dumps({"messages": messages}).encode()) or ({}, {})
    messages[-1] = chat_message("user", "another question")
    (_, then) = read_in_pieces(growing, "chat", json.dumps({"messages": messages}).encode()) or ({}, {})
    assert [one is other for one, other in zip(first["input"], then["input"], strict=True)] == [True] * 19 + [False]


def test_old_conversations_are_forgotten() -> None:
    growing = GrowingRequests()
    for number in range(3 * CONVERSATIONS):
        read_in_pieces(growing, "chat", json.dumps({"messages": [chat_message("user", f"q {number}")]}).encode())
    assert len(growing._known) == CONVERSATIONS
