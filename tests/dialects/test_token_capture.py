"""Token ids come out of an answer whole and agreed, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from conversations import TOKENS, broken, refusing
from hypothesis import given, settings

from ludus.dialects.chat import from_chat
from ludus.dialects.token_capture import tokens_from_chat, tokens_from_response
from ludus.errors import Failure
from ludus.tokens import Tokens

WHOLE = ([1, 2], [3], [-0.5])


def told(tokens: Tokens | None) -> Any:
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
def test_every_way_of_telling_tokens_is_read_and_removed(answer):
    assert told(tokens_from_chat(answer)) == WHOLE
    data = from_chat(answer)
    assert data["output"][-1].keys() == {"id", "type", "role", "status", "content"}
    assert "logprobs" not in data["output"][-1]["content"][0]
    assert "prompt_token_ids" not in data
    assert tokens_from_chat(answer) is None


def test_the_prompt_may_be_known_from_elsewhere():
    assert tokens_from_chat(chat(logprobs=entries("token_id:3"))) is None
    assert told(tokens_from_chat(chat(logprobs=entries("token_id:3")), [1, 2])) == WHOLE


def test_log_probabilities_of_fewer_tokens_than_were_generated_tell_no_tokens():
    answer = chat(top=[1, 2], logprobs=entries("token_id:3"))
    assert tokens_from_chat({**answer, "usage": {"completion_tokens": 2}}) is None
    assert told(tokens_from_chat({**answer, "usage": {"completion_tokens": 1}})) == WHOLE


def test_log_probabilities_stay_where_they_were_asked_for():
    answer = chat(top=[1, 2], token_ids=[3], logprobs=entries("a"))
    assert told(tokens_from_chat(answer, keep_logprobs=True)) == WHOLE
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
def test_tokens_that_were_not_told_whole_are_none(answer):
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
def test_tokens_that_cannot_be_true_are_a_bad_response(answer, why):
    with pytest.raises(Failure, match=why) as refused:
        tokens_from_chat(answer)
    assert refused.value.kind == "bad_response"


def test_a_response_tells_its_tokens_on_the_last_item():
    data = {"output": [{"type": "reasoning"}, {"type": "message", **TOKENS, "routed_experts": "nrlre1:x"}]}
    assert told(tokens_from_response(data)) == WHOLE
    assert data["output"][-1] == {"type": "message", "routed_experts": "nrlre1:x"}
    assert tokens_from_response(data) is None
    for nothing in ({"output": []}, {"output": [None]}, {}, None):
        assert tokens_from_response(nothing) is None
    with pytest.raises(Failure, match="came without"):
        tokens_from_response({"output": [{"prompt_token_ids": [1]}]})


@settings(max_examples=200, deadline=None)
@given(broken(chat(TOKENS, top=[1, 2], token_ids=[3], logprobs=entries("token_id:3"))))
def test_any_answer_gives_tokens_or_none_or_a_bad_response(answer):
    with refusing("bad_response"):
        tokens = tokens_from_chat(answer)
        assert tokens is None or len(tokens.generated_ids) == len(tokens.logprobs)


@settings(max_examples=200, deadline=None)
@given(broken({"output": [{"type": "message", **TOKENS}]}))
def test_any_response_gives_tokens_or_none_or_a_bad_response(data):
    with refusing("bad_response"):
        tokens_from_response(data)
