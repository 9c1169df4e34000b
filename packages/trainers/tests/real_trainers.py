"""Runs our adapters in the trainers' own classes, and prints what came of it as JSON.

The environment that `make interop` makes holds the trainers (trainers.txt). Each is checked by the conformance kit, and
driven once through its own base class by a stub of its engine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
import typing
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import typing_extensions

# SkyRL declares fields of pydantic with typing.TypedDict, which pydantic refuses before Python 3.12.
typing.TypedDict = typing_extensions.TypedDict  # type: ignore[misc,assignment]

from stub_engine import ROW, Doubling, StubEngine  # noqa: E402

from ludus.train.conformance.adapters import find_adapter  # noqa: E402
from ludus.train.conformance.checking import check  # noqa: E402


async def drive_verl() -> None:
    import hydra
    from ludus_trainers.verl import LudusAgentLoop
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
    from verl.workers.rollout.replica import TokenOutput

    engine = StubEngine()

    class ServerManager:
        async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
            ids, logprobs = engine.generate(prompt_ids, sampling_params)
            return TokenOutput(token_ids=ids, log_probs=logprobs, extra_fields={"min_global_steps": 7})

    limits = {"prompt_length": 512, "response_length": 512}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": limits}, "data": {}})
    named = {"_target_": "ludus_trainers.verl.LudusAgentLoop", "policy": {"replacements": 0}}
    manager = ServerManager()
    loop, other = (
        hydra.utils.instantiate(
            OmegaConf.create(named),
            trainer_config=DictConfigWrap(config),
            server_manager=manager,
            tokenizer=engine.tokenizer,
            processor=None,
            hf_model_type=None,
            dataset_cls=None,
            data_config=DictConfigWrap(config.data),
            environment=Doubling,
        )
        for _ in range(2)
    )
    assert isinstance(loop, LudusAgentLoop)
    assert loop.player is other.player, "verl makes a loop for each rollout; the player is made once"
    made = await loop.run({"temperature": 0.9, "top_k": 50}, extra_info={"ludus_row": json.dumps(ROW)})
    await loop.player.close()
    assert isinstance(made, AgentLoopOutput)
    engine.check(
        made.prompt_ids + made.response_ids,
        [0] * len(made.prompt_ids) + made.response_mask,
        [0.0] * len(made.prompt_ids) + (made.response_logprobs or []),
    )
    assert (made.reward_score, made.num_turns) == (0.75, 3)
    assert (made.extra_fields["min_global_steps"], made.extra_fields["max_global_steps"]) == (7, 7)
    assert engine.sampling[0]["temperature"] == 0.9, "the trainer's temperature replaces the row's"
    assert engine.sampling[0]["top_k"] == 50


async def drive_skyrl() -> None:
    from ludus_trainers.skyrl import LudusGenerator
    from skyrl.train.generators.base import GeneratorInterface, TrajectoryID
    from skyrl.train.utils.trainer_utils import validate_generator_output

    engine = StubEngine()

    class Client:
        async def generate(self, input_batch: dict[str, Any]) -> dict[str, Any]:
            ids, logprobs = engine.generate(input_batch["prompt_token_ids"][0], input_batch["sampling_params"])
            return {"response_ids": [ids], "response_logprobs": [logprobs], "stop_reasons": ["stop"]}

    generator = LudusGenerator(Client(), engine.tokenizer, Doubling)
    assert isinstance(generator, GeneratorInterface)
    batch = {
        "prompts": [[]],
        "env_classes": ["ludus"],
        "env_extras": [{"extra_info": {"ludus_row": json.dumps(ROW)}}],
        "sampling_params": {"temperature": 0.9},
        "trajectory_ids": [TrajectoryID("a", 0)],
    }
    made = await generator.generate(batch)
    await generator.player.close()
    validate_generator_output(1, made)
    prompt = made["prompt_token_ids"][0]
    engine.check(
        prompt + made["response_ids"][0],
        [0] * len(prompt) + made["loss_masks"][0],
        [0.0] * len(prompt) + made["rollout_logprobs"][0],
    )
    assert made["rewards"] == [0.75]
    assert engine.sampling[0]["temperature"] == 0.9


async def drive_areal() -> None:
    from areal.api.cli_args import GenerationHyperparameters
    from areal.api.io_struct import ModelRequest, ModelResponse
    from areal.api.workflow_api import RolloutWorkflow
    from areal.utils.data import concat_padded_tensors
    from ludus_trainers.areal import LudusWorkflow

    engine = StubEngine()

    class Engine:
        async def agenerate(self, asked: ModelRequest) -> ModelResponse:
            ids, logprobs = engine.generate(asked.input_ids, asked.gconfig)
            return ModelResponse(
                input_tokens=asked.input_ids,
                output_tokens=ids,
                output_logprobs=logprobs,
                output_versions=[3] * len(ids),
            )

    engine.tokenizer.pad_token = engine.tokenizer.eos_token
    settings = GenerationHyperparameters(temperature=0.9, max_new_tokens=256)
    workflow = LudusWorkflow(Doubling, tokenizer=engine.tokenizer, gconfig=settings)
    assert isinstance(workflow, RolloutWorkflow)
    made = await workflow.arun_episode(Engine(), {"ludus_row": json.dumps(ROW)})
    assert workflow.player is not None
    assert made is not None
    await workflow.player.close()
    made = concat_padded_tensors([made])
    engine.check(*(made[name][0].tolist() for name in ("input_ids", "loss_mask", "logprobs")))
    assert (float(made["rewards"][0]), set(made["versions"][0].tolist())) == (0.75, {-1, 3})
    assert engine.sampling[0].temperature == 0.9


async def drive_tinker() -> None:
    import pickle

    from ludus_trainers.tinker import LudusGroupBuilder
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.data_processing import trajectory_to_data
    from tinker_cookbook.rl.rollouts import do_group_rollout
    from tinker_cookbook.tokenizer_utils import register_tokenizer

    engine = StubEngine()

    async def sample(model_input: Any, stop: Any, *, max_tokens: int | None = None) -> TokensWithLogprobs:
        assert engine.tokenizer.eos_token_id in stop
        ids, logprobs = engine.generate(model_input.to_ints())
        return TokensWithLogprobs(tokens=ids, maybe_logprobs=logprobs)

    register_tokenizer("stub", lambda: engine.tokenizer)
    builder = LudusGroupBuilder(ROW, 1, Doubling, tokenizer="stub")
    group = await do_group_rollout(builder, sample)
    assert group.get_total_rewards() == [0.75]
    (datum,) = trajectory_to_data(group.trajectories_G[0], 1.0)
    fields = {name: values.to_torch().tolist() for name, values in datum.loss_fn_inputs.items()}
    ids = [datum.model_input.to_ints()[0], *fields["target_tokens"]]
    engine.check(ids, [0, *map(int, fields["mask"])], [0.0, *fields["logprobs"]])
    pickled = pickle.loads(pickle.dumps(LudusGroupBuilder(ROW, 4, "mcqa", tokenizer="stub")))
    assert (pickled.row, pickled.size) == (ROW, 4)


async def drive_art() -> None:
    from art.trajectories import TrajectoryGroup
    from ludus_trainers.art import art_group
    from ludus_trainers.player import RolloutPlayer
    from ludus_trainers.token_engine import EngineCall, GeneratedIds, TokenEngine

    engine = StubEngine()

    async def generate(call: EngineCall) -> GeneratedIds:
        return GeneratedIds(*engine.generate(call.ids), version=5)

    player = RolloutPlayer(Doubling, model=TokenEngine(generate, engine.tokenizer))
    made = art_group(await player.group(ROW, 1))
    await player.close()
    assert isinstance(made, TrajectoryGroup)
    (trajectory,) = made.trajectories
    assert (trajectory.reward, trajectory.initial_policy_version) == (0.75, 5)
    choices = [each for each in trajectory.messages_and_choices if not isinstance(each, dict)]
    drawn = [(each.token, each.logprob) for choice in choices for each in choice.logprobs.content]
    written = [pair for _, ids, logprobs in engine.calls for pair in zip(ids, logprobs, strict=True)]
    assert drawn == [(f"token_id:{id}", logprob) for id, logprob in written]
    assert choices[0].message.tool_calls[0].function.name == "double"


TRAINERS = {
    "verl": SimpleNamespace(package="verl", adapters=["verl"], drive=drive_verl),
    "skyrl": SimpleNamespace(package="skyrl", adapters=["skyrl", "skyrl-step-wise"], drive=drive_skyrl),
    "areal": SimpleNamespace(package="areal", adapters=["areal"], drive=drive_areal),
    "tinker": SimpleNamespace(package="tinker-cookbook", adapters=["tinker"], drive=drive_tinker),
    "art": SimpleNamespace(package="openpipe-art", adapters=["art"], drive=drive_art),
}


def run(name: str) -> dict[str, Any]:
    trainer, report = TRAINERS[name], {}
    try:
        report["version"] = version(trainer.package)
        asyncio.run(trainer.drive())
        for adapter in trainer.adapters:
            report[adapter] = check(find_adapter(adapter)).problems
    except Exception:
        report["error"] = traceback.format_exc()
    return report


if __name__ == "__main__":
    found = {name: run(name) for name in sys.argv[2:] or TRAINERS}
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
