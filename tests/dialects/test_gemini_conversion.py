"""Requests in Gemini's dialect are converted, answers are converted back, and `lost` lists what has no place."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from conversations import broken, json_objects, may_fail_as, names, words
from hypothesis import given
from hypothesis import strategies as st
from ludus_nemo_gym.in_process import send_request

from ludus import Failure, Response, ScriptedModel
from ludus.dialects.gemini import request_from_gemini
from ludus.dialects.gemini_answer import answer_to_gemini, gemini_chunks
from ludus.response import function_call, message, reasoning
from ludus.serve.models import ModelApp

BODY: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Weather?"}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"text": "Let me see."},
                {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Oslo"}}, "thoughtSignature": "s"},
                {"functionCall": {"name": "weather"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "weather", "response": {"output": "rain"}}},
                {"functionResponse": {"name": "weather", "response": {"error": "no city"}}},
                {"text": "And now?"},
            ],
        },
    ],
    "tools": [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": {"type": "object"}}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    "generationConfig": {
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 5,
        "maxOutputTokens": 100,
        "stopSequences": ["END"],
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"},
    },
}


def test_a_request_is_converted_without_loss() -> None:
    lost: list[str] = []
    params = request_from_gemini(BODY, lost=lost)
    assert lost == []
    thought = {key: value for key, value in params["input"][1].items() if key != "id"}
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert [item for index, item in enumerate(params.pop("input")) if index != 1] == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Weather?"},
                {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
            ],
        },
        {"type": "message", "role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "function_call_output", "call_id": "call_2", "output": '{"error":"no city"}'},
        {"type": "message", "role": "user", "content": "And now?"},
    ]
    assert params == {
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
        "tool_choice": "required",
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "max_output_tokens": 100,
        "stop": ["END"],
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low"},
    }


def test_geminis_own_schema_becomes_json_schema() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True},
            "sizes": {"type": "ARRAY", "items": {"type": "NUMBER"}},
        },
        "required": ["type"],
    }
    tools = [{"functionDeclarations": [{"name": "make", "description": "d", "parameters": schema}]}]
    (tool,) = request_from_gemini({"contents": [], "tools": tools})["tools"]
    assert tool["parameters"] == {
        "type": "object",
        "properties": {"type": {"type": ["string", "null"]}, "sizes": {"type": "array", "items": {"type": "number"}}},
        "required": ["type"],
    }


def test_tools_of_geminis_servers_are_listed_as_lost() -> None:
    lost: list[str] = []
    body = {"contents": [{"parts": [{"executableCode": {}}]}], "tools": [{"googleSearch": {}}], "cachedContent": "c"}
    request_from_gemini(body, lost=lost)
    assert [entry.partition(":")[0] for entry in lost] == [
        "body.cachedContent",
        "contents[0].parts[0]",
        "tools[0].googleSearch",
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "contents must be a list of objects, not null"),
        ({"contents": [{"role": "tool", "parts": []}]}, "contents[0].role must be user or model, not 'tool'"),
        ({"contents": [{"parts": [{"text": 3}]}]}, "contents[0].parts[0].text must be text, not 3"),
        ({"contents": [], "generationConfig": {"candidateCount": 2}}, "candidateCount must be 1, not 2"),
    ],
)
def test_a_malformed_request_names_the_place(body: dict[str, Any], message: str) -> None:
    with pytest.raises(Failure) as raised:
        request_from_gemini(body)
    assert raised.value.kind == "bad_request"
    assert message in raised.value.cause


@given(broken(BODY))
def test_any_json_is_converted_or_refused(body: Any) -> None:
    with may_fail_as("bad_request"):
        request_from_gemini(body)


@given(st.lists(st.tuples(names, json_objects), max_size=4), st.lists(words, max_size=2), st.booleans())
def test_an_answer_comes_back_as_the_turn_that_it_was(
    calls: list[tuple[str, dict[str, Any]]], texts: list[str], thinks: bool
) -> None:
    items = [reasoning("I think.")] if thinks else []
    items += [message("".join(texts))] if texts else []
    items += [
        function_call(name, orjson.dumps(arguments).decode(), call_id=f"c{number}")
        for number, (name, arguments) in enumerate(calls)
    ]
    answer = answer_to_gemini(Response.of(*items).data)
    turn = answer["candidates"][0]["content"]
    joined = [part for chunk in gemini_chunks(answer) for part in chunk["candidates"][0]["content"]["parts"]]
    assert joined == (turn["parts"] or [{"text": ""}])
    back = request_from_gemini({"contents": [turn]})["input"]
    assert [item for item in back if item["type"] == "function_call"] == [
        {key: item[key] for key in ("type", "call_id", "name", "arguments")}
        for item in items
        if item["type"] == "function_call"
    ]
    assert [item["content"] for item in back if item["type"] == "message" and item["content"]] == (
        ["".join(texts)] if texts else []
    )
    assert [item["summary"][0]["text"] for item in back if item["type"] == "reasoning"] == ["I think."] * thinks


def test_an_answer_that_was_cut_says_so() -> None:
    response = Response.of(message("x"), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert answer_to_gemini(response.data)["candidates"][0]["finishReason"] == "MAX_TOKENS"


def test_a_model_server_answers_in_geminis_dialect() -> None:
    app = ModelApp(ScriptedModel(["It rains."]))
    body = orjson.dumps({"contents": [{"role": "user", "parts": [{"text": "Weather?"}]}]})

    async def ask(action: str) -> tuple[int, bytes]:
        reply = await send_request(app, "POST", f"/v1beta/models/policy:{action}", body)
        return reply.status, reply.body

    status, whole = asyncio.run(ask("generateContent"))
    assert (status, orjson.loads(whole)["candidates"][0]["content"]["parts"]) == (200, [{"text": "It rains."}])
    _, streamed = asyncio.run(ask("streamGenerateContent?alt=sse"))
    assert streamed.startswith(b"data: {")
    _, chunks = asyncio.run(ask("streamGenerateContent"))
    assert orjson.loads(chunks)[-1]["candidates"][0]["finishReason"] == "STOP"
    assert orjson.loads(asyncio.run(ask("countTokens"))[1]) == {"totalTokens": 2}
    assert asyncio.run(ask("embedContent"))[0] == 404
