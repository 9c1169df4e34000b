"""The adapters of trainers without a wheel, against doubles of the documented calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from ludus_trainers.player import NotTrainable
from ludus_trainers.token_engine import TokenEngine
from stub_engine import ROW, Doubling, StubEngine
from training import Judged, policy

from ludus.errors import UserError
from ludus.train.conformance.adapters import find_adapter
from ludus.train.conformance.checking import check
from ludus.train.policy import GroupPolicy


@pytest.fixture(autouse=True)
def doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent / "doubles")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["openrlhf", "slime"])
def test_the_adapter_conforms(name: str) -> None:
    report = check(find_adapter(name))
    assert report.passed, report.problems


async def test_openrlhf_gets_both_turns_of_its_own_engine_with_the_ranges_of_its_actions() -> None:
    from ludus_trainers.openrlhf import executor_class

    engine = StubEngine()

    class Engine:
        async def generate(self, prompt_ids: list[int], sampling: Any) -> Any:
            ids, logprobs = engine.generate(prompt_ids, sampling)
            drawn = [{id: SimpleNamespace(logprob=each)} for id, each in zip(ids, logprobs, strict=True)]
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, logprobs=drawn, finish_reason="stop")])

    executor: Any = executor_class(Doubling)()
    sampling = SimpleNamespace(temperature=0.9, top_p=1.0, max_tokens=256, stop=None, logprobs=None)
    label = json.dumps(ROW)
    made = await executor.execute("Double 21.", label, sampling, 2048, engine.tokenizer, Engine())
    await executor.player.close()
    mask = [0] * len(made["observation_tokens"])
    for start, end in made["action_ranges"]:
        mask[start:end] = [1] * (end - start)
    engine.check(made["observation_tokens"], mask, made["rollout_log_probs"])
    assert (made["reward"], made["label"], len(made["action_ranges"])) == (0.75, label, 2)
    assert engine.sampling[0].temperature == 0.9, "the trainer's temperature replaces the row's"


async def test_openrlhf_replaces_a_failed_rollout_and_then_raises_instead_of_scoring_it() -> None:
    from ludus_trainers.openrlhf import executor_class

    played: list[int] = []

    def answers(question: str, repeat: int) -> str:
        played.append(repeat)
        return "mask 0.5" if question == "q0" else "crash" if len(played) % 2 else "1.0"

    executor: Any = executor_class(Judged, policy=GroupPolicy(replacements=2), model=policy(answers))()
    sampling = SimpleNamespace(temperature=1.0, top_p=1.0, max_tokens=64)

    async def execute(question: str) -> Any:
        row = {"responses_create_params": {"input": question}, "task_id": question}
        return await executor.execute(question, json.dumps(row), sampling, 64, None, None)

    assert (await execute("q1"))["reward"] == 1.0
    with pytest.raises(NotTrainable, match="no rollout of task q0 can be trained on: 3 masked"):
        await execute("q0")
    await executor.player.close()


async def test_slimes_router_generates_and_its_sample_holds_both_turns() -> None:
    from ludus_trainers.slime import SlimeRollouts, keep_group, router_engine
    from slime.utils.types import Sample

    engine = StubEngine()

    async def generate(request: web.Request) -> web.Response:
        body = await request.json()
        ids, logprobs = engine.generate(body["input_ids"], body["sampling_params"])
        drawn = [[each, id, None] for id, each in zip(ids, logprobs, strict=True)]
        facts = {"output_token_logprobs": drawn, "finish_reason": {"type": "stop"}, "weight_version": "4"}
        return web.json_response({"text": "", "meta_info": facts})

    site = await _served(generate)
    rollouts = SlimeRollouts(Doubling, model=TokenEngine(router_engine(site.url), engine.tokenizer))
    sample = Sample(prompt="", metadata={"ludus_row": ROW})
    made = await rollouts(None, sample, {"temperature": 0.9, "max_new_tokens": 256})
    context = [0] * (len(made.tokens) - made.response_length)
    engine.check(made.tokens, context + made.loss_mask, context + made.rollout_log_probs)
    assert (made.reward, made.status, made.weight_versions) == (0.75, Sample.Status.COMPLETED, ["4", "4"])
    assert engine.sampling[0]["temperature"] == 0.9
    assert sample.tokens == [], "the given sample is not changed"
    assert not keep_group(None, [made, Sample(reward=None)]), "a group with a failed member is dropped"
    assert keep_group(None, [made, Sample(reward=0.0)])
    assert rollouts.player is not None
    await rollouts.player.close()
    await site.close()


async def test_a_row_that_is_not_ours_is_refused_in_one_line() -> None:
    from ludus_trainers.slime import SlimeRollouts
    from slime.utils.types import Sample

    rollouts = SlimeRollouts(Doubling, model=policy(lambda question, repeat: "1.0"))
    with pytest.raises(UserError, match="the metadata of a sample names no row of Ludus"):
        await rollouts(None, Sample(metadata={}), {})


async def _served(handler: Any) -> Any:
    application = web.Application()
    application.router.add_post("/generate", handler)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    return SimpleNamespace(url=f"http://127.0.0.1:{port}/generate", close=runner.cleanup)


def test_a_missing_trainer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="verl cannot be imported"):
        asyncio.run(_deliver("verl"))


async def _deliver(name: str) -> None:
    from ludus.train.conformance.script import script

    adapter: Any = find_adapter(name)
    await adapter._deliver(script())
