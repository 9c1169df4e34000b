"""Streams: any chunking of the bytes gives the same events, and a split answer is joined to the same answer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from conversations import TOKENS, broken, may_fail_as, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from joined_messages import MessagesStream
from test_chat_answers import CITATION, DETAILS, FULL, LOGPROBS, STYLES, responses
from test_messages_conversion import answers

from ludus.dialects.chat import answer_to_chat, from_chat
from ludus.dialects.chat_stream import ChatStream, chat_chunks
from ludus.dialects.messages_stream import message_events
from ludus.dialects.responses_stream import ResponsesStream, response_events
from ludus.dialects.sse import DONE, EventParser, ServerSentEvent, encode_event, values
from ludus.errors import Failure
from ludus.response import Response, function_call, message, reasoning

STREAM = (
    b"\xef\xbb\xbf: a comment\n\n"
    b"event: one\r\ndata: a\r\ndata: b\r\n\r\n"
    b"id: 7\rdata:c\r\r"
    b"data\n\n"
    b"retry: 5\nevent: nothing\n\n"
    b'data: {"x": "\xc3\xa9"}\nunknown: y\n\n'
    b"data: \xff\0\n\n"
    b"data: cut off"
)
EVENTS = [
    ServerSentEvent("one", "a\nb"),
    ServerSentEvent("message", "c", "7"),
    ServerSentEvent("message", "", "7"),
    ServerSentEvent("message", '{"x": "é"}', "7"),
    ServerSentEvent("message", "�\0", "7"),
]


def parsed(data: bytes, cuts: list[int]) -> list[ServerSentEvent]:
    parser = EventParser()
    places = [0, *sorted(cuts), len(data)]
    return [event for start, end in pairwise(places) for event in parser.feed(data[start:end])]


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM))))
def test_any_chunking_of_the_bytes_gives_the_same_events(cuts):
    assert parsed(STREAM, cuts) == EVENTS


def test_one_byte_at_a_time_gives_the_same_events():
    assert parsed(STREAM, list(range(len(STREAM)))) == EVENTS


@settings(deadline=None)
@given(st.binary(max_size=60), st.lists(st.integers(0, 60)))
def test_arbitrary_bytes_are_parsed_without_an_error(data, cuts):
    cuts = [min(cut, len(data)) for cut in cuts]
    assert parsed(data, cuts) == parsed(data, [])


@settings(deadline=None)
@given(st.lists(st.tuples(texts, st.sampled_from(["message", "a.b"]))), st.data())
def test_encoded_events_are_parsed_to_the_same_values(sent, data):
    encoded = b"".join(encode_event({"text": text}, name) for text, name in sent) + encode_event(DONE)
    events = parsed(encoded, data.draw(st.lists(st.integers(0, len(encoded)))))
    assert [event.name for event in events] == [*(name for _, name in sent), "message"]
    assert list(values(events)) == [{"text": text} for text, _ in sent]


def test_the_last_event_may_lack_its_blank_line():
    parser = EventParser()
    assert parser.feed(b"data: x") == []
    assert parser.finish() == [ServerSentEvent("message", "x")]
    assert parser.finish() == []


def test_an_event_larger_than_the_limit_is_a_bad_response():
    parser = EventParser(largest=1000)
    for _ in range(100):
        parser.feed(b"x" * 10)
    with pytest.raises(Failure, match="larger than 1000 bytes"):
        parser.feed(b"x")


@pytest.mark.usefixtures("processor_limit")
def test_ten_megabytes_in_small_pieces_are_read_in_linear_time():
    parser = EventParser()
    parser.feed(b"data: ")
    for _ in range(200_000):
        parser.feed(b"x" * 50)
    (event,) = parser.feed(b"\n\n")
    assert len(event.data) == 10_000_000


def test_an_event_that_is_not_json_is_a_bad_response():
    with pytest.raises(Failure, match="event is not JSON"):
        list(values([ServerSentEvent("message", "{")]))


# --- chat


def joined(stream: Any, pieces: Any) -> Any:
    for piece in pieces:
        stream.add(piece)
    return stream.result()


@settings(deadline=None)
@given(st.sampled_from(STYLES), responses())
def test_the_chunks_of_a_completion_are_joined_to_the_same_completion(style, response):
    whole = answer_to_chat(response, style=style)
    assert joined(ChatStream(), chat_chunks(whole)) == whole


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def called(index: int | None, id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {"tool_calls": [{**place, "id": id, "function": {"name": name, "arguments": arguments}}]}


def test_pieces_of_text_reasoning_and_calls_are_joined():
    detail = {"type": "reasoning.text", "index": 0}
    whole = joined(
        ChatStream(),
        [
            delta(role="assistant", content=""),
            delta(reasoning_content="H", reasoning_details=[{**detail, "text": "H"}]),
            delta(reasoning_content="m.", reasoning_details=[{**detail, "text": "m.", "signature": "s"}]),
            delta(content="Let me "),
            delta(content="see."),
            delta(**called(0, "c1", "weather")),
            delta(**called(0, None, None, '{"city":')),
            delta(**called(1, "c2", "weather", "{}")),
            delta(**called(0, None, None, '"Oslo"}')),
            delta("tool_calls"),
            {"id": "x", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
        ],
    )
    joined_message = whole["choices"][0]["message"]
    assert (joined_message["content"], joined_message["reasoning_content"]) == ("Let me see.", "Hm.")
    assert joined_message["reasoning_details"] == [{**detail, "text": "Hm.", "signature": "s"}]
    assert [(call["id"], call["function"]["arguments"]) for call in joined_message["tool_calls"]] == [
        ("c1", '{"city":"Oslo"}'),
        ("c2", "{}"),
    ]
    assert from_chat(whole)["usage"]["total_tokens"] == 3


def test_calls_without_an_index_are_distinguished_by_id():
    pieces = [called(None, "c1", "f"), called(None, None, None, "{}"), called(None, "c2", "g", "[]")]
    whole = joined(ChatStream(), [*(delta(**piece) for piece in pieces), delta("tool_calls")])
    calls = whole["choices"][0]["message"]["tool_calls"]
    assert [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
        ("c1", "f", "{}"),
        ("c2", "g", "[]"),
    ]


def test_token_ids_and_logprobs_are_joined():
    pieces = [delta(content="a"), delta("stop", content="b")]
    for index, piece in enumerate(pieces):
        piece["choices"][0] |= {"token_ids": [index], "logprobs": {"content": LOGPROBS, "refusal": None}}
    whole = joined(ChatStream(), [{**pieces[0], "prompt_token_ids": [7]}, pieces[1]])
    assert (whole["prompt_token_ids"], whole["choices"][0]["token_ids"]) == ([7], [0, 1])
    assert whole["choices"][0]["logprobs"] == {"content": LOGPROBS * 2, "refusal": None}


@pytest.mark.parametrize(
    ("stream", "pieces"),
    [
        (ChatStream, []),
        (ChatStream, [delta(content="half")]),
        (ChatStream, [{"error": {"message": "overloaded"}}]),
        (ResponsesStream, [{"type": "response.created", "response": {}}]),
        (ResponsesStream, [{"type": "error", "message": "overloaded"}]),
        (MessagesStream, [{"type": "message_start", "message": {}}]),
        (MessagesStream, [{"type": "error", "error": {"message": "overloaded"}}]),
    ],
)
def test_an_unfinished_stream_is_a_bad_response(stream, pieces):
    with pytest.raises(Failure) as refused:
        joined(stream(), pieces)
    assert refused.value.kind == "bad_response"


# --- responses

FULL_RESPONSE = Response.of(
    {**reasoning("Hm."), "content": [{"type": "reasoning_text", "text": "raw"}]},
    {
        **message(""),
        "content": [
            {"type": "output_text", "text": "a", "annotations": [CITATION], "logprobs": LOGPROBS},
            {"type": "refusal", "refusal": "b"},
        ],
    },
    function_call("f", {"a": 1}, call_id="c"),
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}},
    model="m",
).data


@settings(deadline=None)
@given(responses())
def test_the_events_of_a_response_are_joined_to_the_same_response(response):
    assert joined(ResponsesStream(), response_events(response)) == response


def test_an_empty_output_in_the_last_event_is_filled_from_earlier_events():
    *events, last = response_events(FULL_RESPONSE)
    last = {**last, "response": {**FULL_RESPONSE, "output": []}}
    assert joined(ResponsesStream(), [*events, last]) == FULL_RESPONSE


def test_events_have_the_order_of_the_responses_api():
    events = list(response_events(FULL_RESPONSE))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        *("reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done"),
        *("content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"),
        "output_item.done",
        "output_item.added",
        *("content_part.added", "output_text.delta", "output_text.annotation.added", "output_text.done"),
        *("content_part.done", "content_part.added", "refusal.delta", "refusal.done", "content_part.done"),
        "output_item.done",
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        *("output_item.added", "output_item.done"),
        "completed",
    ]
    assert events[0]["response"]["output"] == []


def test_deltas_hold_the_texts_of_the_items():
    events = list(response_events(FULL_RESPONSE))
    assert [event["delta"] for event in events if event["type"].endswith(".delta")] == [
        "Hm.",
        "raw",
        "a",
        "b",
        '{"a":1}',
    ]
    for status in ("incomplete", "failed"):
        *_, last = response_events({**FULL_RESPONSE, "status": status})
        assert last["type"] == f"response.{status}"


# --- messages


@settings(deadline=None)
@given(answers())
def test_the_events_of_a_message_are_joined_to_the_same_message(answer):
    assert joined(MessagesStream(), message_events(answer)) == answer


def test_pieces_of_a_message_are_joined():
    def piece(index: int, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}

    whole = joined(
        MessagesStream(),
        [
            {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 5}}},
            {"type": "ping"},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            piece(0, "text_delta", text="a"),
            piece(0, "text_delta", text="b"),
            piece(0, "citations_delta", citation={"type": "x"}),
            {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "input": {}}},
            piece(1, "input_json_delta", partial_json='{"a":'),
            piece(1, "input_json_delta", partial_json="1}"),
            {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "input": {}}},
            piece(2, "input_json_delta", partial_json='{"cut'),
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ],
    )
    assert whole["content"] == [
        {"type": "text", "text": "ab", "citations": [{"type": "x"}]},
        {"type": "tool_use", "input": {"a": 1}},
        {"type": "tool_use", "input": '{"cut'},
    ]
    assert (whole["stop_reason"], whole["usage"]) == ("max_tokens", {"input_tokens": 5, "output_tokens": 9})


# --- malformed input

MESSAGE = {
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    ],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
CHAT = {**FULL, "choices": [{**FULL["choices"][0], "message": {**FULL["choices"][0]["message"], "content": "a"}}]}
CHAT["choices"][0]["message"] |= {"reasoning_details": DETAILS, **TOKENS}
STREAMS: list[tuple[Any, list[Any]]] = [
    (ChatStream, list(chat_chunks(CHAT))),
    (ResponsesStream, list(response_events(FULL_RESPONSE))),
    (MessagesStream, list(message_events(MESSAGE))),
]


@given(st.sampled_from(STREAMS), st.data())
def test_a_malformed_stream_is_joined_or_a_bad_response(kind, data):
    stream, pieces = kind
    made = data.draw(broken(pieces))
    with may_fail_as("bad_response"):
        joined(stream(), made if isinstance(made, list) else [made])


# --- the official SDKs


def test_the_openai_sdk_parses_our_chunks():
    chat = pytest.importorskip("openai.types.chat", reason="needs the openai SDK: pip install openai")
    response = Response.of(reasoning("Hm."), message("a"), function_call("f", {"a": 1}, call_id="c"), model="m")
    for chunk in chat_chunks(answer_to_chat(response.data)):
        assert chat.ChatCompletionChunk.model_validate(chunk).object == "chat.completion.chunk"


def test_the_openai_sdk_parses_our_events():
    types = pytest.importorskip("openai.types.responses", reason="needs the openai SDK: pip install openai")
    from pydantic import TypeAdapter

    adapter = TypeAdapter(types.ResponseStreamEvent)
    for event in response_events(FULL_RESPONSE):
        assert adapter.validate_python(event).type == event["type"]


def test_the_anthropic_sdk_parses_our_events():
    types = pytest.importorskip("anthropic.types", reason="needs the anthropic SDK: pip install anthropic")
    from pydantic import TypeAdapter

    adapter = TypeAdapter(types.RawMessageStreamEvent)
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None, **MESSAGE}
    for event in message_events(whole):
        assert adapter.validate_python(event).type == event["type"]
