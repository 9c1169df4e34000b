"""Objects of OpenAI's own package are taken wherever a field, an item or a whole answer is expected."""

from __future__ import annotations

from typing import Any

import pytest
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChoice,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
)

pytest.importorskip("openai", reason="needs OpenAI's package: pip install openai")

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.chat.chat_completion import Choice
from openai.types.responses import FunctionTool, Response, ResponseError, ResponseOutputMessage, ResponseOutputText
from openai.types.responses.response import IncompleteDetails
from openai.types.shared import Reasoning

SETTINGS: dict[str, Any] = {
    "id": "r",
    "created_at": 0.0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
TEXT = ResponseOutputText(annotations=[], text="4", type="output_text")
MESSAGE = ResponseOutputMessage(id="m", content=[TEXT], role="assistant", status="completed", type="message")


def test_settings_of_a_response():
    response = NeMoGymResponse(
        **SETTINGS
        | {
            "error": ResponseError(code="server_error", message="down"),
            "incomplete_details": IncompleteDetails(reason="max_output_tokens"),
            "reasoning": Reasoning(effort="low"),
            "tools": [FunctionTool(name="f", parameters={}, strict=True, type="function")],
        }
    )
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    dumped = response.model_dump()
    assert (dumped["error"]["message"], dumped["reasoning"]["effort"]) == ("down", "low")
    assert dumped["tools"] == [{"name": "f", "parameters": {}, "strict": True, "type": "function"}]
    assert NeMoGymResponse.model_validate(dumped) == response


def test_items_and_whole_responses():
    assert NeMoGymResponse(**SETTINGS | {"output": [MESSAGE]}).output_text == "4"
    assert NeMoGymResponse.model_validate(Response(**SETTINGS | {"output": [MESSAGE]})).output_text == "4"
    (item,) = NeMoGymResponseCreateParamsNonStreaming(input=[MESSAGE]).input
    assert type(item) is NeMoGymResponseOutputMessage


def test_answers_of_chat_completions():
    choice = Choice(index=0, finish_reason="stop", message=ChatCompletionMessage(role="assistant", content="4"))
    usage = CompletionUsage(completion_tokens=1, prompt_tokens=2, total_tokens=3)
    head: dict[str, Any] = {"id": "c", "created": 1, "model": "m", "object": "chat.completion"}
    whole = NeMoGymChatCompletion.model_validate(ChatCompletion(**head, choices=[choice], usage=usage))
    parts = NeMoGymChatCompletion(**head, choices=[choice], usage=usage)
    assert whole == parts
    assert (whole.choices[0].message.content, whole.usage and whole.usage.total_tokens) == ("4", 3)
    assert NeMoGymChoice(index=0, finish_reason="stop", message=choice.message).message.content == "4"


def test_every_field_of_openais_answers_can_be_read():
    response = NeMoGymResponse(**SETTINGS)
    known = {"completed_at", "moderation", "prompt_cache_retention", "conversation", "safety_identifier"}
    assert {name: getattr(response, name) for name in known} == dict.fromkeys(known)
