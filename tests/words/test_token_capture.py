"""Token ids are read from an answer completely and without contradictions, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from conversations import TOKENS, broken, may_fail_as
from hypothesis import given, settings

from ludus.dialects.chat import from_chat
from ludus.errors import Failure
from ludus.token_fields import tokens_from_chat, tokens_from_response
from ludus.tokens import Tokens

EXPECTED = ([1, 2], [3], [-0.5])


def as_lists(tokens: Tokens | None) -> Any:
    return tokens and (list(tokens.prompt_ids), tokens.generated_ids, tokens.logprobs)


def entries(*tokens: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"token": token, "logprob": -0.5, "top_logprobs": [], **fields} for token in tokens]}


def chat(message: dict[str, Any] | None = None, *, top: Any = None, **choice: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "a", **(message or {})}
    return {"id": "x", "choices": [{"message": said, "finish_reason": "stop", **choice}], "prompt_token_ids": top}


@pytest.mark.parametrize(
    "answer",
    [
        chat(TOKENS),
        chat(top=[1, 2], token_ids=[3], logprobs=entries("a")),
        chat(top=[1, 2], logprobs=entries("token_id:3")),
        chat(top=[1, 2], logprobs=entries("a", id=3)),
        chat(top=[1, 2], token_ids=[3], logprobs=entries("token_id:3")),
        chat(TOKENS, top=[1, 2], token_ids=[3], logprobs=entries("token_id:3")),
    ],
)
def test_tokens_in_every_form_are_read_and_removed_from_the_answer(answer):
    assert as_lists(tokens_from_chat(answer)) == EXPECTED
    data = from_chat(answer)
    assert data["output"][-1].keys() == {"id", "type", "role", "status", "content"}
    assert "logprobs" not in data["output"][-1]["content"][0]
    assert "prompt_token_ids" not in data
    assert tokens_from_chat(answer) is None


def test_the_caller_may_supply_the_prompt_ids():
    assert tokens_from_chat(chat(logprobs=entries("token_id:3"))) is None
    assert as_lists(tokens_from_chat(chat(logprobs=entries("token_id:3")), [1, 2])) == EXPECTED


def test_fewer_log_probabilities_than_generated_tokens_give_no_tokens():
    answer = chat(top=[1, 2], logprobs=entries("token_id:3"))
    assert tokens_from_chat({**answer, "usage": {"completion_tokens": 2}}) is None
    assert as_lists(tokens_from_chat({**answer, "usage": {"completion_tokens": 1}})) == EXPECTED


def test_keep_logprobs_leaves_the_log_probabilities_in_the_answer():
    answer = chat(top=[1, 2], token_ids=[3], logprobs=entries("a"))
    assert as_lists(tokens_from_chat(answer, keep_logprobs=True)) == EXPECTED
    assert from_chat(answer)["output"][0]["content"][0]["logprobs"] == entries("a")["content"]


@pytest.mark.parametrize(
    "answer",
    [
        chat(),
        chat(top=[1, 2]),
        chat(top=[1, 2], token_ids=[3]),
        chat(top=[1, 2], logprobs=entries("a")),
        chat(top=[1, 2], logprobs={"content": None}),
        {},
        {"choices": []},
        {"choices": [None]},
        None,
        [],
    ],
)
def test_an_answer_with_incomplete_tokens_gives_none(answer):
    assert tokens_from_chat(answer) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (chat({**TOKENS, "generation_log_probs": None}), "came without generation_log_probs"),
        (chat({"prompt_token_ids": [1]}), "generation_token_ids and generation_log_probs"),
        (chat(TOKENS, top=[1, 9]), "disagree"),
        (chat(TOKENS, token_ids=[9]), "disagree"),
        (chat(top=[1, 2], token_ids=[9], logprobs=entries("token_id:3")), "disagree"),
        (chat({**TOKENS, "generation_log_probs": [-0.5, -0.5]}), "1 token ids came with 2 log probabilities"),
        (chat({**TOKENS, "generation_log_probs": [float("nan")]}), "finite"),
        (chat({**TOKENS, "generation_log_probs": [float("-inf")]}), "finite"),
        (chat({**TOKENS, "generation_log_probs": [None]}), "finite"),
        (chat({**TOKENS, "generation_log_probs": [10**400]}), "finite"),
        (chat({**TOKENS, "generation_token_ids": ["3"]}), "not a list of ids"),
        (chat({**TOKENS, "prompt_token_ids": [1.0]}), "not a list of ids"),
        (chat({**TOKENS, "prompt_token_ids": [-1]}), "not a list of ids"),
        (chat({**TOKENS, "prompt_token_ids": [10**30]}), "not a list of ids"),
        (chat(top=[1, 2], logprobs=entries("token_id:x")), "not a number"),
        ({"choices": [*chat(TOKENS)["choices"], {}]}, "single choice"),
    ],
)
def test_contradictory_or_malformed_tokens_are_a_bad_response(answer, why):
    with pytest.raises(Failure, match=why) as refused:
        tokens_from_chat(answer)
    assert refused.value.kind == "bad_response"


def test_tokens_of_a_response_are_read_from_its_last_item():
    data = {"output": [{"type": "reasoning"}, {"type": "message", **TOKENS, "routed_experts": "nrlre1:x"}]}
    assert as_lists(tokens_from_response(data)) == EXPECTED
    assert data["output"][-1] == {"type": "message", "routed_experts": "nrlre1:x"}
    assert tokens_from_response(data) is None
    for nothing in ({"output": []}, {"output": [None]}, {}, None):
        assert tokens_from_response(nothing) is None
    with pytest.raises(Failure, match="came without"):
        tokens_from_response({"output": [{"prompt_token_ids": [1]}]})


@settings(max_examples=200, deadline=None)
@given(broken(chat(TOKENS, top=[1, 2], token_ids=[3], logprobs=entries("token_id:3"))))
def test_a_malformed_answer_gives_tokens_or_none_or_a_bad_response(answer):
    with may_fail_as("bad_response"):
        tokens = tokens_from_chat(answer)
        assert tokens is None or len(tokens.generated_ids) == len(tokens.logprobs)


@settings(max_examples=200, deadline=None)
@given(broken({"output": [{"type": "message", **TOKENS}]}))
def test_a_malformed_response_gives_tokens_or_none_or_a_bad_response(data):
    with may_fail_as("bad_response"):
        tokens_from_response(data)
