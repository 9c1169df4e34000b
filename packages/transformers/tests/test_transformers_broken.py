"""Broken weights and foreign tokens: the request fails with a name, and the others of its batch do not notice."""

from __future__ import annotations

import asyncio
import math
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from ludus_transformers.model import TransformersModel
from tiny_transformers import llama, tokenizer, torch

from ludus.errors import Failure
from ludus.model import Request

GOOD = [
    Request(text, temperature=1, seed=3, max_output_tokens=8) for text in ("io ou", "aa ae the answer", "tool name")
]


def poisoned() -> tuple[Any, Any]:
    """A model with NaN for the embedding of `!`, as a broken training step leaves it, and its tokenizer."""
    weights, words = llama(), tokenizer()
    (bad,) = words.encode("!", add_special_tokens=False)
    with torch.no_grad():
        weights.get_input_embeddings().weight[bad] = math.nan
    return weights, words


def drawn(temperature: float = 1.0, top_p: float = 1.0) -> Any:
    return SimpleNamespace(temperature=temperature, top_p=top_p, random=Random(0))


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("kind", ["slots", "batches"])
async def test_a_row_without_finite_logits_fails_and_the_others_answer_as_if_alone(temperature, kind, monkeypatch):
    if kind == "batches":
        monkeypatch.setattr("ludus_transformers.decode.holds", lambda model: False)
    config = TransformersModel.Config(max_batch=2)
    async with TransformersModel(llama(), tokenizer(), config=config) as healthy:
        expected = [(await healthy.respond(request)).output_text for request in GOOD]
    async with TransformersModel(*poisoned(), config=config) as model:
        bad = Request("tool ! name", temperature=temperature, max_output_tokens=8)
        for _ in range(2):  # the second time in the slots that the first left
            bad_answer, *answers = await asyncio.gather(
                model.respond(bad), *map(model.respond, GOOD), return_exceptions=True
            )
            assert isinstance(bad_answer, Failure), bad_answer
            assert (bad_answer.kind, "token 1 of the answer" in bad_answer.cause) == ("not_finite", True)
            assert [getattr(answer, "output_text", answer) for answer in answers] == expected


async def test_a_token_that_the_model_does_not_know_fails_the_request():
    words = tokenizer()
    weights = llama()
    weights.resize_token_embeddings(100)
    async with TransformersModel(weights, words) as model:
        with pytest.raises(Failure, match="the model knows 100 tokens") as error:
            await model.respond(Request("the answer", max_output_tokens=2))
        assert error.value.kind == "unknown_token"


@pytest.mark.parametrize("top_p", [1.0, 0.5])
@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-9, 1.0, 1e30])
def test_every_chosen_id_is_in_the_vocabulary(temperature, top_p):
    from ludus_transformers.sampling import choose

    infinite, size = math.inf, 7
    rows = torch.tensor(
        [
            [math.nan] * size,
            [0.0, math.nan] + [1.0] * 5,
            [infinite] + [0.0] * 6,
            [-infinite] * size,
            [-infinite] * 6 + [2.0],
            [3.0e38, -3.0e38] + [0.0] * 5,
            [1.0] * size,
        ]
    )
    chosen, logprobs = choose(rows, [drawn(temperature, top_p) for _ in rows])
    assert all(0 <= token < size for token in chosen.tolist())
    assert [math.isnan(logprob) for logprob in logprobs.tolist()] == [True] * 4 + [False] * 3
    assert chosen[4] == size - 1
