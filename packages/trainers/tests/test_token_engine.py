"""A trainer's engine as a model: exact ids, the trainer's logprobs, and no guesses where they are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ludus_trainers.player import NotTrainable, RolloutPlayer
from ludus_trainers.rows import filler, rows_of
from ludus_trainers.token_engine import EngineCall, GeneratedIds, TokenEngine
from ludus_trainers.verl_data import compute_score, verl_rows, write_parquet
from stub_engine import ROW, Doubling, StubEngine, whole
from tiny_transformers import tokenizer

from ludus.model import Request
from ludus.train.group import TrainingGroup
from ludus.train.policy import GroupPolicy

THOUGHT = "<think>Use the tool.</think>"


def engine_of(stub: StubEngine, **settings: Any) -> TokenEngine:
    async def generate(call: EngineCall) -> GeneratedIds:
        return GeneratedIds(*stub.generate(call.ids, call.sampling), version=len(stub.calls))

    return TokenEngine(generate, stub.tokenizer, config=TokenEngine.Config(**settings))


async def test_a_rollout_of_two_turns_is_one_row_with_the_ids_of_the_engine() -> None:
    stub = StubEngine()
    player = RolloutPlayer(Doubling, model=engine_of(stub))
    member = await player.member(ROW)
    await player.close()
    assert member is not None
    (row,) = rows_of(member)
    stub.check(*whole(row))
    assert (row.reward, row.versions, dict(player.counts)) == (0.75, [1, 2], {"trained": 1, "failed": 0, "missing": 0})


async def test_versions_that_change_in_the_middle_and_extras_reach_the_row() -> None:
    stub = StubEngine()

    async def generate(call: EngineCall) -> GeneratedIds:
        ids, logprobs = stub.generate(call.ids, call.sampling)
        spans: list[tuple[int, str | int]] = [(0, 3), (2, 4)]
        return GeneratedIds(ids, logprobs, version=3, versions=spans, extras={"routed_experts": len(stub.calls)})

    policy = GroupPolicy(max_span=0, replacements=0)
    player = RolloutPlayer(Doubling, model=TokenEngine(generate, stub.tokenizer), policy=policy)
    assert await player.member(ROW) is None, "its tokens span one update of the weights"
    player = RolloutPlayer(Doubling, model=TokenEngine(generate, stub.tokenizer))
    member = await player.member(ROW)
    await player.close()
    assert member is not None
    assert member.versions == [3, 4, 3, 4]
    (row,) = rows_of(member)
    assert (row.versions, row.extras) == ([3, 4, 3, 4], [{"routed_experts": 3}, {"routed_experts": 4}])
    versions = row.token_versions()
    assert [version >= 0 for version in versions] == [bool(mask) for mask in row.over_ids(row.mask, 0)]
    assert versions[len(row.prompt_ids) :][:3] == [3, 3, 4]


async def test_thinking_that_a_template_drops_makes_two_rows_if_the_setting_says_so() -> None:
    stub = StubEngine("forgetful")
    spoken = stub.tokenizer.encode(THOUGHT, add_special_tokens=False)

    async def generate(call: EngineCall) -> GeneratedIds:
        ids, logprobs = stub.generate(call.ids)
        return GeneratedIds(spoken + ids, [-0.5] * len(spoken) + logprobs)

    config = TokenEngine.Config(earlier_reasoning="new_sequence")
    model = TokenEngine(generate, stub.tokenizer, config=config)
    player = RolloutPlayer(Doubling, model=model, policy=GroupPolicy(replacements=0))
    member = await player.member(ROW)
    assert member is not None
    rows = rows_of(member)
    assert len(rows) == 2
    for row, (prompt, ids, _) in zip(rows, stub.calls, strict=True):
        assert (row.prompt_ids, row.response_ids, set(row.mask)) == (prompt, spoken + ids, {1})
    with pytest.raises(NotTrainable, match="1 several_sequences"):
        await player.single_row(ROW)
    await player.close()


@pytest.mark.parametrize("logprobs", [None, [-0.5], [float("nan")] * 2])
async def test_an_engine_without_a_logprob_for_each_id_fails_the_rollout(logprobs: list[float] | None) -> None:
    async def generate(call: EngineCall) -> GeneratedIds:
        return GeneratedIds([5, 6], logprobs)

    model = TokenEngine(generate, tokenizer())
    player = RolloutPlayer(Doubling, model=model, policy=GroupPolicy(replacements=0))
    group = await player.group(ROW, 1)
    await player.close()
    assert group.members == []
    assert "logprobs for 2 ids" in str(group.failures[0].failure)


async def test_the_tokens_of_a_request_are_counted_with_the_engines_tokenizer() -> None:
    model, request = engine_of(StubEngine()), Request("a question")
    count = await model.count_tokens(request)
    assert count == (await model.respond(request)).usage["input_tokens"] > 0


async def test_a_prompt_that_fills_the_context_is_not_sent_to_the_engine() -> None:
    stub = StubEngine()
    response = await engine_of(stub, context=4).respond(Request("a long question"))
    assert (response.status, stub.calls) == ("incomplete", [])


async def test_a_cut_answer_is_incomplete_unless_its_last_id_ends_it() -> None:
    words = tokenizer()
    for text, status in (("an answer", "incomplete"), ("an answer<|im_end|>", "completed")):
        ids = words.encode(text, add_special_tokens=False)

        async def generate(call: EngineCall, ids: list[int] = ids) -> GeneratedIds:
            return GeneratedIds(ids, [-0.5] * len(ids), cut=True)

        response = await TokenEngine(generate, words).respond(Request("?"))
        assert (response.status, response.output_text) == (status, "an answer")


def test_a_filler_moves_neither_the_baseline_nor_the_mean() -> None:
    class Member:
        def __init__(self, reward: float, trains: bool) -> None:
            self.reward, self.trains = reward, trains

    members: Any = [Member(0.0, True), Member(1.0, True), Member(100.0, False)]
    row = filler(TrainingGroup("t", {}, 0, members), [1, 2], 9)
    assert (row.reward, row.mask, row.ids) == (0.5, [0], [1, 2, 9])


async def test_verls_rows_carry_the_task_and_its_reward_function_judges_a_text(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    count = write_parquet(tmp_path / "train.parquet", "mcqa", limit=2)
    rows = parquet.read_table(tmp_path / "train.parquet").to_pylist()
    assert (len(rows), count) == (2, 2)
    assert rows == verl_rows("mcqa", limit=2)
    row, info = rows[0], rows[0]["extra_info"]
    assert (row["agent_name"], row["prompt"][0]["role"]) == ("ludus", "user")
    right = json.loads(info["ludus_row"])["expected_answer"]
    for answer, score in ((right, 1.0), ("A" if right != "A" else "B", 0.0)):
        text = f"<think>Hm.</think>\\boxed{{{answer}}}"
        made = await compute_score(row["data_source"], text, row["reward_model"]["ground_truth"], info)
        assert made["score"] == score


async def test_a_verdict_that_failed_is_no_score() -> None:
    class Broken(Doubling):
        async def verify(self, task: Any, response: Any) -> float:
            raise RuntimeError("the judge is dead")

    with pytest.raises(NotTrainable, match="has no reward: .*the judge is dead"):
        await compute_score("ludus/x", "42", "double", {"ludus_row": ROW}, environment=Broken)
