"""Answers of other families than those with tags, as the package `renderers` reads them."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import lazily
import pytest
import smollm2
from hypothesis import given, settings
from hypothesis import strategies as st
from ludus_trainers.token_engine import EngineCall, GeneratedIds, TokenEngine

from ludus.errors import UserError
from ludus.model import Request
from ludus.response import Response

lazily.needs("renderers", "pip install 'ludus-gym[renderers]'")


def _bars(text: str) -> str:
    """With the wide bars of DeepSeek's tokens."""
    return text.replace("|", "\uff5c")


#: The control tokens of some families. Their own vocabularies cannot be had here; these are added to SmolLM2's.
CONTROL = {
    "qwen3": ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"],
    "llama-3": [
        *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
        *("<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"),
    ],
    "kimi-k2": [
        *("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
        *("<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ],
    "minimax-m2": ["]~!b[", "]~b]", "[e~[", "<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"],
    "glm-4.5": [
        *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<think>", "</think>"),
        *("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ],
    "deepseek-v3": [
        _bars(f"<|{token}|>")
        for token in (
            *("begin▁of▁sentence", "end▁of▁sentence", "User", "Assistant", "tool▁sep"),
            *("tool▁calls▁begin", "tool▁calls▁end", "tool▁call▁begin", "tool▁call▁end"),
            *("tool▁outputs▁begin", "tool▁outputs▁end", "tool▁output▁begin", "tool▁output▁end"),
        )
    ],
}
#: How each family calls `add` with a text before it, as its model card says.
CALLS = {
    "qwen3": 'Well.<tool_call>\n{"name": "add", "arguments": {"a": 1, "s": "é"}}\n</tool_call>',
    "llama-3": '{"name": "add", "parameters": {"a": 1, "s": "é"}}',
    "kimi-k2": (
        "Well.<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>"
        '{"a": 1, "s": "é"}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "minimax-m2": (
        'Well.<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">1</parameter>\n'
        '<parameter name="s">é</parameter>\n</invoke>\n</minimax:tool_call>'
    ),
    "glm-4.5": (
        "<think></think>Well.<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key>\n"
        "<arg_value>é</arg_value>\n</tool_call>"
    ),
    "deepseek-v3": _bars(
        "Well.<|tool▁calls▁begin|><|tool▁call▁begin|>function<|tool▁sep|>add\n```json\n"
        '{"a": 1, "s": "é"}\n```<|tool▁call▁end|><|tool▁calls▁end|>'
    ),
}
ADD = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"}}},
}


def tokenizer_of(family: str) -> Any:
    words = copy.deepcopy(smollm2.tokenizer())
    words.add_tokens([smollm2.tokenizers.AddedToken(token, special=True) for token in CONTROL[family]])
    return words


async def answered(words: Any, text: str, family: str, *, cut: bool = False, **params: Any) -> Response:
    """What is read in an answer."""

    async def generate(call: EngineCall) -> GeneratedIds:
        ids = words.encode(text, add_special_tokens=False)
        return GeneratedIds(ids, [-0.5] * len(ids), cut=cut)

    engine = TokenEngine(generate, words, config=TokenEngine.Config(family=family))
    return await engine.respond(Request("?", "s", params={"tools": [ADD], **params}))


@pytest.mark.parametrize("family", CALLS)
async def test_a_call_is_read_as_its_family_writes_it(family: str) -> None:
    response = await answered(tokenizer_of(family), CALLS[family], family)
    (call,) = response.function_calls
    assert (call["name"], call["arguments"]) == ("add", '{"a": 1, "s": "é"}')
    assert response.output_text == ("" if family == "llama-3" else "Well.")


@pytest.mark.parametrize("family", CALLS)
async def test_a_call_that_does_not_end_stays_text(family: str) -> None:
    """It reached the token limit: nobody knows what would have come."""
    whole = CALLS[family]
    response = await answered(tokenizer_of(family), whole[: whole.index("1")], family, cut=True)
    assert not response.function_calls
    assert "add" in response.output_text
    assert response.status == "incomplete"


async def test_thinking_is_read_apart_from_the_answer() -> None:
    response = await answered(tokenizer_of("qwen3"), "<think>hm</think>" + CALLS["qwen3"], "qwen3")
    assert response.reasoning == "hm"
    assert response.output_text == "Well."
    assert len(response.function_calls) == 1


async def test_arguments_that_are_no_json_are_a_call_whose_tool_says_so() -> None:
    broken = CALLS["kimi-k2"].replace('{"a": 1, "s": "é"}', "{a}")
    (call,) = (await answered(tokenizer_of("kimi-k2"), broken, "kimi-k2")).function_calls
    assert call["arguments"] == "{a}"


async def test_a_stop_string_is_no_part_of_the_message() -> None:
    response = await answered(tokenizer_of("kimi-k2"), "Well. And", "kimi-k2", stop=["."])
    assert response.output_text == "Well"


async def test_the_end_of_a_family_is_known() -> None:
    words = tokenizer_of("llama-3")
    response = await answered(words, "Hello<|eom_id|>", "llama-3")
    assert response.output_text == "Hello"


@pytest.mark.parametrize("family", CALLS)
def test_any_answer_is_read(family: str) -> None:
    words = tokenizer_of(family)
    pieces = [*CONTROL[family], CALLS[family], "add", '{"name": "add"', "\n", "1", "```json\n", " é", "functions.:x"]

    @settings(deadline=None)
    @given(st.lists(st.sampled_from(pieces), min_size=1, max_size=8))
    def read(parts: list[str]) -> None:
        response = asyncio.run(answered(words, "".join(parts), family))
        assert response.output

    read()


async def test_a_wrong_family_is_one_line() -> None:
    with pytest.raises(UserError, match=r"no family of models is called 'llama'\. Set family to one of: .*llama-3"):
        await answered(smollm2.tokenizer(), "?", "llama")
    with pytest.raises(
        UserError, match=r"answers of the family llama-3 cannot be read with this tokenizer: .*<\|begin_of_text\|>"
    ):
        await answered(smollm2.tokenizer(), "?", "llama-3")
