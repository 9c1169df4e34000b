"""Generation with a `transformers` model: exact ids and log probabilities, and batches that change no answer."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from ludus_transformers.model import TransformersModel
from tiny_transformers import llama, parrot, plain_logprobs, tokenizer, torch, transformers
from waiting import CEILING, until_async

from ludus import Response
from ludus.errors import Failure
from ludus.model import Request
from ludus.response import Item

ADD: Item = {
    "type": "function",
    "name": "increment_counter",
    "description": "Add to the counter.",
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]},
}
QUESTIONS = [
    Request("the answer", temperature=0, max_output_tokens=20),
    Request("the question of the user is longer than the others " * 3, temperature=0.7, seed=1, max_output_tokens=12),
    Request("tool", temperature=1.5, top_p=0.8, seed=2, max_output_tokens=30),
    Request("name the counter", temperature=0, max_output_tokens=5),
    Request("io ou", temperature=1, seed=3, max_output_tokens=25),
    Request("aa ae", temperature=0, stop=["e", "o"], max_output_tokens=40),
]


@pytest.fixture
async def model() -> AsyncIterator[TransformersModel]:
    async with TransformersModel(llama(), tokenizer(), policy_version="step-0") as model:
        yield model


def held(weights: Any, step: int) -> threading.Event:
    """Have a parrot wait in one of its steps until the event is set."""
    go_on, forward = threading.Event(), weights.forward

    def stop_there(*args: Any, **inputs: Any) -> Any:
        output = forward(*args, **inputs)
        if weights.steps == step:
            go_on.wait(CEILING)
        return output

    weights.forward = stop_there
    return go_on


class TestAnswers:
    """The answer to one request."""

    async def test_logprobs_equal_those_of_a_plain_forward_pass(self, model: TransformersModel) -> None:
        answers = await asyncio.gather(*map(model.respond, QUESTIONS))
        for answer in answers:
            tokens = answer.tokens
            assert tokens is not None
            assert tokens.logprobs == pytest.approx(plain_logprobs(model._model, tokens), abs=1e-4)
            assert tokens.policy_version == "step-0"
            assert answer.usage["output_tokens"] == len(tokens.generated_ids) > 0
            assert answer.usage["input_tokens"] == len(tokens.prompt_ids)

    async def test_the_tokens_of_a_request_are_counted_while_others_run(self, model: TransformersModel) -> None:
        counts, answers = await asyncio.gather(
            asyncio.gather(*map(model.count_tokens, QUESTIONS)), asyncio.gather(*map(model.respond, QUESTIONS))
        )
        assert counts == [answer.usage["input_tokens"] for answer in answers]

    async def test_logprobs_are_those_of_the_distribution_that_was_sampled_from(self, model: TransformersModel) -> None:
        request = Request("io ou", seed=4, temperature=1.7, top_p=0.6)
        answer = await model.respond(request)
        tokens = answer.tokens
        assert tokens is not None
        assert tokens.sampling == {"temperature": 1.7, "top_p": 0.6, "logprobs": "sampled"}
        assert (answer.data["temperature"], answer.data["top_p"]) == (1.7, 0.6)
        sampled = plain_logprobs(model._model, tokens)
        assert tokens.logprobs == pytest.approx(sampled, abs=1e-4)
        tokens.sampling = {"temperature": 1.7, "top_p": 0.6, "logprobs": "model"}
        assert sampled != pytest.approx(plain_logprobs(model._model, tokens), abs=0.1)

    async def test_greedy_logprobs_are_those_of_the_model(self, model: TransformersModel) -> None:
        tokens = (await model.respond(Request("the answer", temperature=0))).tokens
        assert tokens is not None
        assert tokens.sampling == {"temperature": 0, "top_p": 1.0, "logprobs": "model"}

    async def test_greedy_decoding_equals_that_of_the_library(self, model: TransformersModel) -> None:
        tokens = (await model.respond(QUESTIONS[0])).tokens
        assert tokens is not None
        ids = torch.tensor([list(tokens.prompt_ids)])
        settings: dict[str, Any] = {"do_sample": False, "max_new_tokens": 20, "pad_token_id": 0}
        whole = model._model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        assert tokens.generated_ids == whole[0, ids.shape[1] :].tolist()

    async def test_the_token_limit_makes_an_answer_incomplete(self, model: TransformersModel) -> None:
        answer = await model.respond(Request("the", max_output_tokens=3, seed=1))
        assert answer.incomplete_reason == "max_output_tokens"
        assert answer.usage["output_tokens"] == 3
        assert answer.output[-1]["status"] == "incomplete"

    async def test_an_answer_that_ends_by_itself_has_its_end_token(self) -> None:
        model = await parrot("the answer<|im_end|>")
        answer = await model.respond(Request("the question"))
        await model.stop()
        assert (answer.status, answer.output_text) == ("completed", "the answer")
        assert answer.tokens is not None
        assert answer.tokens.generated_ids[-1] == tokenizer().eos_token_id

    async def test_a_stop_string_ends_the_text_but_not_the_tokens(self, model: TransformersModel) -> None:
        whole = await model.respond(Request("the", temperature=0, max_output_tokens=40))
        stop = whole.output_text[10:13]
        cut = await model.respond(Request("the", temperature=0, max_output_tokens=40, stop=stop))
        assert cut.status == "completed"
        assert cut.output_text == whole.output_text[: whole.output_text.index(stop)]
        assert whole.tokens is not None
        assert cut.tokens is not None
        written = len(cut.tokens.generated_ids)
        assert cut.tokens.generated_ids == whole.tokens.generated_ids[:written]
        assert stop in tokenizer().decode(cut.tokens.generated_ids)
        assert stop not in tokenizer().decode(cut.tokens.generated_ids[:-1])

    async def test_a_prompt_beyond_the_context_is_incomplete_and_empty(self, model: TransformersModel) -> None:
        answer = await model.respond(Request("b" * 600))
        assert (answer.output, answer.incomplete_reason) == ([], "max_output_tokens")
        assert answer.prompt_too_long == f"the prompt has {answer.usage['input_tokens']} tokens, the context 512"
        almost = await model.respond(Request("b" * 480, max_output_tokens=99, seed=1))
        assert almost.usage["total_tokens"] == 512
        assert almost.prompt_too_long is None

    async def test_calls_are_parsed_and_parallel_tool_calls_false_allows_only_one(self) -> None:
        call = '<tool_call>{"name": "increment_counter", "arguments": {"count": 4}}</tool_call>'
        model = await parrot(f"aa {call} {call}<|im_end|>", f"aa {call} {call}<|im_end|>")
        both = await model.respond(Request("the", tools=[ADD]))
        one = await model.respond(Request("the", tools=[ADD], parallel_tool_calls=False))
        await model.stop()
        assert [item["type"] for item in both.output] == ["message", "function_call", "function_call"]
        assert [item["type"] for item in one.output] == ["message", "function_call"]

    async def test_images_and_forced_calls_are_unsupported_and_fail_alone(self, model: TransformersModel) -> None:
        image = {"role": "user", "content": [{"type": "input_image", "image_url": "cat.png"}]}
        bad = model.respond(Request([image]))
        good = model.respond(Request("the", max_output_tokens=2))
        failed, answered = await asyncio.gather(bad, good, return_exceptions=True)
        assert isinstance(failed, Failure)
        assert failed.kind == "unsupported"
        assert isinstance(answered, Response)
        with pytest.raises(Failure, match="increment_counter"):
            await model.respond(Request("the", tools=[ADD], tool_choice="required"))


class TestTogether:
    """Batches, cancellation and shutdown."""

    async def test_a_batch_gives_the_same_answers_as_single_requests(self, model: TransformersModel) -> None:
        together = await asyncio.gather(*map(model.respond, QUESTIONS))
        assert model.stats()["batches"] == 1
        for question, answer in zip(QUESTIONS, together, strict=True):
            alone = await model.respond(question)
            assert alone.tokens is not None
            assert answer.tokens is not None
            assert answer.tokens.generated_ids == alone.tokens.generated_ids
            assert answer.tokens.logprobs == pytest.approx(alone.tokens.logprobs, abs=1e-4)

    async def test_a_seed_reproduces_a_text_and_each_turn_samples_differently(self, model: TransformersModel) -> None:
        async def text(**fields: Any) -> str:
            return (await model.respond(Request("the", max_output_tokens=12, **fields))).output_text

        first = await text(seed=1)
        assert first == await text(seed=1) == await text(seed=2, params={"seed": 1})
        assert len({first, await text(seed=2), await text(seed=1, turn=1)}) == 3

    async def test_more_requests_than_the_batch_size_are_all_answered(self) -> None:
        async with TransformersModel(llama(), tokenizer(), config=TransformersModel.Config(max_batch=6)) as model:
            asked = (Request("b" * n, max_output_tokens=n, seed=n) for n in range(1, 17))
            answers = await asyncio.gather(*map(model.respond, asked))
        assert [answer.usage["output_tokens"] for answer in answers] == list(range(1, 17))
        assert model.stats() == {**model.stats(), "requests": 16, "output_tokens": 136}

    async def test_a_request_joins_while_a_longer_one_is_decoded_and_ends_before_it(
        self, model: TransformersModel
    ) -> None:
        alone = await model.respond(Request("b" * 30, max_output_tokens=5, seed=3))
        forward, joined, steps = model._model.forward, threading.Event(), itertools.count(1)

        def go_on_later(*args: Any, **inputs: Any) -> Any:
            if next(steps) == 10:
                joined.wait(CEILING)
            return forward(*args, **inputs)

        model._model.forward = go_on_later
        long = asyncio.create_task(model.respond(Request("the", max_output_tokens=400, seed=1)))
        await until_async(lambda: model.stats()["requests"] == 2)
        late = [asyncio.create_task(model.respond(Request("b" * 30, max_output_tokens=5, seed=3))) for _ in range(2)]
        await asyncio.sleep(0)
        joined.set()
        for answer in await asyncio.gather(*late):
            assert answer.tokens is not None
            assert alone.tokens is not None
            assert not long.done()
            assert answer.tokens.generated_ids == alone.tokens.generated_ids
            assert answer.tokens.logprobs == pytest.approx(alone.tokens.logprobs, abs=1e-4)
        long_tokens = (await long).tokens
        assert long_tokens is not None
        assert long_tokens.logprobs == pytest.approx(plain_logprobs(llama(), long_tokens), abs=1e-4)

    @pytest.mark.parametrize("settings", [{}, {"attn_implementation": "eager"}])
    async def test_logprobs_of_rows_that_come_and_go_are_those_of_a_plain_forward_pass(
        self, settings: dict[str, Any]
    ) -> None:
        weights = llama(**settings)
        async with TransformersModel(weights, tokenizer(), config=TransformersModel.Config(max_batch=5)) as model:
            lengths = [1, 40, 2, 3, 90, 1, 150, 4, 2, 30, 7, 1, 60]
            prompts = ["b" * (1 + 37 * n % 170) if n % 3 else "the" for n in range(len(lengths))]
            asked = (
                Request(prompt, max_output_tokens=length, seed=length, temperature=length % 2)
                for prompt, length in zip(prompts, lengths, strict=True)
            )
            for answer in await asyncio.gather(*map(model.respond, asked)):
                assert answer.tokens is not None
                assert answer.tokens.logprobs == pytest.approx(plain_logprobs(weights, answer.tokens), abs=1e-4)

    async def test_a_model_with_sliding_windows_decodes_batch_by_batch(self) -> None:
        weights = transformers.MistralForCausalLM(
            transformers.MistralConfig(**{**llama().config.to_dict(), "sliding_window": 16, "model_type": "mistral"})
        ).eval()
        async with TransformersModel(weights, tokenizer(), config=TransformersModel.Config(max_batch=2)) as model:
            answers = await asyncio.gather(
                *(model.respond(Request("b" * 20, max_output_tokens=n, seed=n)) for n in (3, 9, 5))
            )
        for answer in answers:
            assert answer.tokens is not None
            assert answer.tokens.logprobs == pytest.approx(plain_logprobs(weights, answer.tokens), abs=1e-4)

    async def test_a_short_answer_does_not_wait_for_a_long_one(self, model: TransformersModel) -> None:
        forward, answered, steps = model._model.forward, threading.Event(), itertools.count(1)

        def go_on_later(*args: Any, **inputs: Any) -> Any:
            if next(steps) == 10:
                answered.wait(CEILING)
            return forward(*args, **inputs)

        model._model.forward = go_on_later
        long = asyncio.create_task(model.respond(Request("the", max_output_tokens=400, seed=1)))
        await model.respond(Request("the", max_output_tokens=2, seed=1))
        assert not long.done()
        answered.set()
        await long
        assert model.stats()["batches"] == 1, "both are in the same batch"

    async def test_a_running_batch_does_not_block_the_event_loop(self, model: TransformersModel) -> None:
        forward, ticked, steps = model._model.forward, threading.Event(), itertools.count(1)

        def after_a_tick(*args: Any, **inputs: Any) -> Any:
            next(steps)
            ticked.clear()
            assert ticked.wait(CEILING), "the loop stands still"
            return forward(*args, **inputs)

        model._model.forward = after_a_tick
        asked = asyncio.gather(*(model.respond(Request("the", max_output_tokens=300, seed=n)) for n in range(16)))
        while not asked.done():
            await asyncio.sleep(0.001)  # without a pause, the loop would fight the batch for the GIL
            ticked.set()
        await asked
        assert next(steps) > 300

    async def test_a_cancelled_request_leaves_the_batch_and_the_others_continue(self) -> None:
        model = await parrot("b" * 400, "b" * 400)
        weights = model._model

        async def ask_and_leave(*limits: int) -> list[asyncio.Task[Response]]:
            """Ask, and leave with the first request in the middle of its answer."""
            weights.steps = 0
            go_on = held(weights, 3)
            asked = [asyncio.create_task(model.respond(Request("the", max_output_tokens=limit))) for limit in limits]
            await until_async(lambda: weights.steps >= 3)
            asked[0].cancel()
            await asyncio.gather(asked[0], return_exceptions=True)
            go_on.set()
            return asked

        await ask_and_leave(400)
        async with asyncio.timeout(CEILING), model.paused():
            assert 3 <= weights.steps < 300
        _, stays = await ask_and_leave(399, 60)
        assert (await stays).usage["output_tokens"] == 60
        async with asyncio.timeout(CEILING), model.paused():
            assert 60 <= weights.steps < 300, "the batch ended with the last request that somebody waited for"
        await model.stop()

    async def test_stop_fails_running_requests_and_the_model_can_be_started_again(self) -> None:
        model = await parrot("b" * 400, "b", max_batch=1)
        asked = [asyncio.create_task(model.respond(Request("the", max_output_tokens=400))) for _ in range(2)]
        go_on = held(model._model, 3)
        await until_async(lambda: model._model.steps >= 3)
        stopping = asyncio.create_task(model.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping
        for task in asked:
            with pytest.raises(Failure, match="stopped") as failure:
                await task
            assert failure.value.kind == "refused"
        with pytest.raises(RuntimeError, match="start"):
            await model.respond(Request("the"))
        async with model:
            assert (await model.respond(Request("the", max_output_tokens=1))).usage["output_tokens"] == 1

    async def test_a_crash_fails_every_request_of_the_batch_but_not_later_ones(self, model: TransformersModel) -> None:
        forward, model._model.forward = model._model.forward, None
        failed = await asyncio.gather(*map(model.respond, QUESTIONS[:2]), return_exceptions=True)
        assert [type(error) for error in failed] == [Failure, Failure]
        model._model.forward = forward
        assert (await model.respond(Request("the", max_output_tokens=1))).usage["output_tokens"] == 1
