"""A trainer's live weights as the policy: updates between batches, whole rollouts, and weights by name."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from ludus_transformers.loading import load
from ludus_transformers.model import TransformersModel
from tiny_transformers import llama, parrot, plain_logprobs, tokenizer, torch, write_gguf
from waiting import until_async

import ludus
from ludus import Agent, Episode, Resources, Response
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.model import Request

Config = TransformersModel.Config


@pytest.fixture
async def model() -> AsyncIterator[TransformersModel]:
    async with TransformersModel(llama(), tokenizer(), policy_version="step-0") as model:
        yield model


class TestTraining:
    """Weights that change between batches."""

    async def test_weights_change_while_paused_and_tokens_record_the_policy_version(
        self, model: TransformersModel
    ) -> None:
        asked = Request("the", temperature=0, max_output_tokens=100)
        running = asyncio.create_task(model.respond(asked))
        await until_async(lambda: model.stats()["requests"] == 1, every=0)
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

    async def test_a_model_in_training_mode_generates_without_dropout_and_stays_in_training_mode(self) -> None:
        weights = llama(attention_dropout=0.5).train()
        weights.lm_head.eval()
        async with TransformersModel(weights, tokenizer(), policy_version=3) as model:
            answer = await model.respond(Request("the", max_output_tokens=20, seed=1))
        assert answer.tokens is not None
        assert answer.tokens.policy_version == "3"
        assert (weights.training, weights.lm_head.training) == (True, False)
        assert answer.tokens.logprobs == pytest.approx(plain_logprobs(weights.eval(), answer.tokens), abs=1e-4)

    @pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")  # a slower way on some processors
    async def test_weights_that_a_trainer_runs_in_mixed_precision_generate_what_they_score(self) -> None:
        weights = llama()
        weights.forward = torch.autocast("cpu", dtype=torch.bfloat16)(weights.forward)  # as accelerate does
        async with TransformersModel(weights, tokenizer()) as model:
            asked = [Request(text, temperature=0, max_output_tokens=9) for text in ("the", "the question is")]
            answers = await asyncio.gather(*map(model.respond, asked))
        for answer in answers:
            assert answer.tokens is not None
            assert len(answer.tokens.generated_ids) == 9
            assert answer.tokens.logprobs == pytest.approx(plain_logprobs(weights, answer.tokens), abs=0.05)

    def test_a_rollout_of_several_turns_is_one_sequence_of_the_generated_ids(self) -> None:
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

    async def test_the_ids_of_a_call_with_unusual_whitespace_are_repeated(self, counter: type[Resources]) -> None:
        called = 'aa\n\n<tool_call>{"name":"increment_counter",  "arguments":{"count":1}}</tool_call>  <|im_end|>'
        model = await parrot(called, "done<|im_end|>")
        await model.stop()
        rows = [{"responses_create_params": {"input": "the question"}, "expected_count": 1}]
        (rollout,) = [rollout async for rollout in ludus.stream(counter, model=model, input=rows, tokens=True)]
        assert (rollout.reward, len(rollout.calls)) == (1.0, 2)
        (sequence,) = rollout.sequences()
        masked = [id for id, mask in zip(sequence.ids, sequence.mask, strict=True) if mask]
        assert tokenizer().decode(masked) == f"{called}done<|im_end|>"


def test_sampling_follows_temperature_and_top_p() -> None:
    from ludus_transformers.decode import Row
    from ludus_transformers.sampling import choose

    logits = torch.tensor([0.0, 1.0, 2.0, 3.0, -1.0] + [-9.0] * 2000)
    settings = [(2.0, 1.0), (1.0, 0.7), (0.5, 0.99)]
    rows = [Row([], 1, lambda ids: True, temperature=t, top_p=p, random=Random(1)) for t, p in settings]
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
            answers = [
                await model.respond(Request("the answer", temperature=0, max_output_tokens=20))
                for model in (live, loaded)
            ]
        assert loaded.name == "tiny"
        assert answers[0].output == answers[1].output
        assert answers[1].tokens is not None
        assert answers[1].tokens.policy_version == "tiny"

    def test_a_tokenizer_without_a_limit_gets_that_of_its_model(self, tmp_path: Path) -> None:
        """Servers read the limit from the folder, and SGLang fails on the number that stands for none."""
        model, words = llama(), tokenizer()
        model.save_pretrained(tmp_path)
        words.save_pretrained(tmp_path)
        _, loaded = load(str(tmp_path), None, "float32", "cpu")
        loaded.save_pretrained(tmp_path)
        saved = json.loads((tmp_path / "tokenizer_config.json").read_text())
        assert saved["model_max_length"] == model.config.max_position_embeddings
        words.model_max_length = 77
        words.save_pretrained(tmp_path)
        assert load(str(tmp_path), None, "float32", "cpu")[1].model_max_length == 77

    async def test_a_missing_folder_is_named_in_the_error(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="cannot load .*nothing"):
            await TransformersModel(config=Config(path=str(tmp_path / "nothing"))).start()
        with pytest.raises(UserError, match="names no model"):
            TransformersModel()

    def test_the_error_about_a_missing_library_names_the_install_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(UserError, match=r"pip install (-e )?'.*\[train\]'"):
            TransformersModel(config=Config(path="anything"))

    async def test_a_gguf_file_is_loaded_and_can_be_trained(self, tmp_path: Path) -> None:
        path = tmp_path / "tiny.gguf"
        write_gguf(str(path))
        asked = Request("the answer", temperature=0, max_output_tokens=20)
        config = Config(path=str(path), device="cpu")
        async with TransformersModel(llama(), tokenizer()) as live, TransformersModel(config=config) as loaded:
            one, other = await live.respond(asked), await loaded.respond(asked)
            assert one.tokens is not None
            assert other.tokens is not None
            assert other.tokens.generated_ids == one.tokens.generated_ids
            assert other.tokens.logprobs == pytest.approx(one.tokens.logprobs, abs=1e-4)
            loaded._model(torch.tensor([[1, 2]]), labels=torch.tensor([[1, 2]])).loss.backward()
            assert all(weight.grad is not None for weight in loaded._model.parameters())
