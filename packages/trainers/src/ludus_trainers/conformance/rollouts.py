"""The adapters of trainers that ask for rollouts one by one or in batches, in their own classes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from ludus.errors import UserError
from ludus.runtime.imports import import_named
from ludus.train.conformance.checking import Delivered
from ludus.train.conformance.script import SIZE, ConformanceScript
from ludus.train.conformance.tiny import tiny_tokenizer
from ludus_trainers.player import NotTrainable
from ludus_trainers.rows import ROW


def trainer_module(name: str, package: str) -> Any:
    """Import a module of a trainer, or say which package has it."""
    try:
        return import_named(name)
    except ModuleNotFoundError as error:
        hint = f"Install {package} (docs/trainers.md says which version was tried)"
        raise UserError(f"{package} cannot be imported: {error}", hint) from error


async def _each_rollout(
    script: ConformanceScript, play: Callable[[dict[str, Any]], Awaitable[list[Delivered]]]
) -> list[Delivered]:
    """Ask for every rollout of the script, all at once."""
    rollouts = await asyncio.gather(*(play(row) for row in script.rows for _ in range(SIZE)))
    return [sample for samples in rollouts for sample in samples]


class VerlAdapter:
    """`LudusAgentLoop` in verl's `AgentLoopBase`, read from the tensors of `AgentLoopOutput`."""

    name = "verl"
    several_sequences = True

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Run the agent loop once for every rollout."""
        return asyncio.run(self._deliver(script))

    async def _deliver(self, script: ConformanceScript) -> list[Delivered]:
        loops = trainer_module("verl.experimental.agent_loop.agent_loop", "verl")
        omegaconf = import_named("omegaconf")
        from ludus_trainers.verl import LudusAgentLoop

        limits = {"prompt_length": 64, "response_length": 64}
        config = omegaconf.OmegaConf.create({"actor_rollout_ref": {"rollout": limits}, "data": {}})
        wrap, manager = loops.DictConfigWrap, _NoEngine()
        loop = LudusAgentLoop(
            wrap(config),
            manager,
            tiny_tokenizer(),
            None,
            None,
            wrap(config.data),
            environment=script.environment(),
            model=script.model(),
            policy=script.policy,
        )

        async def play(row: dict[str, Any]) -> list[Delivered]:
            made = await loop.run({"temperature": 1.0}, extra_info={ROW: row})
            outputs = made if isinstance(made, list) else [made]
            return [_verl_output(row["task_id"], output.as_dict()) for output in outputs]

        try:
            return await _each_rollout(script, play)
        finally:
            await loop.player.close()


class _NoEngine:
    """Stands where verl passes its engine, which the scripted policy replaces."""


def _verl_output(group: str, fields: dict[str, Any]) -> Delivered:
    prompt = fields["prompts"].tolist()
    context = [0] * len(prompt)
    return Delivered(
        group,
        prompt + fields["responses"].tolist(),
        context + fields["response_mask"].tolist(),
        context + fields["rollout_log_probs"].tolist(),
        reward=float(fields["rm_scores"].sum()),
    )


class SkyRlAdapter:
    """`LudusGenerator`, checked by SkyRL's own `validate_generator_output`; one row for each prompt."""

    name = "skyrl"
    several_sequences = False
    thread_rewards = False

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Generate one batch of all groups."""
        return asyncio.run(self._deliver(script))

    async def _deliver(self, script: ConformanceScript) -> list[Delivered]:
        base = trainer_module("skyrl.train.generators.base", "skyrl")
        checks = trainer_module("skyrl.train.utils.trainer_utils", "skyrl")
        from ludus_trainers.skyrl import LudusGenerator

        several, policy = self.several_sequences, script.policy
        made = LudusGenerator(
            None, tiny_tokenizer(), script.environment(), policy=policy, step_wise=several, model=script.model()
        )
        places = [(row, number) for row in script.rows for number in range(SIZE)]
        batch = {
            "prompts": [[{"role": "user", "content": row["task_id"]}] for row, _ in places],
            "env_classes": ["ludus"] * len(places),
            "env_extras": [{"extra_info": {ROW: row}} for row, _ in places],
            "sampling_params": {"temperature": 1.0},
            "trajectory_ids": [base.TrajectoryID(row["task_id"], number) for row, number in places],
            "batch_metadata": None,
        }
        try:
            output = await made.generate(batch)
        finally:
            await made.player.close()
        checks.validate_generator_output(len(places), output, step_wise=several)
        groups = [trajectory.instance_id for trajectory in output["trajectory_ids"]]
        advantages = _centred(groups, output["rewards"], output["is_last_step"])
        return [
            Delivered(
                group,
                prompt + response,
                [*[0] * len(prompt), *mask],
                [*[0.0] * len(prompt), *logprobs],
                advantage,
                reward,
            )
            for group, prompt, response, mask, logprobs, reward, advantage in zip(
                groups,
                output["prompt_token_ids"],
                output["response_ids"],
                output["loss_masks"],
                output["rollout_logprobs"],
                output["rewards"],
                advantages,
                strict=True,
            )
        ]


class SkyRlStepWiseAdapter(SkyRlAdapter):
    """`LudusGenerator` for SkyRL's step-wise training: each sequence is a row."""

    name = "skyrl-step-wise"
    several_sequences = True


def _centred(groups: list[str], rewards: list[float], last: list[bool]) -> list[float]:
    """What SkyRL subtracts: the mean of a group's rewards, one for each trajectory."""
    by_group: dict[str, list[float]] = {}
    for group, reward, counts in zip(groups, rewards, last, strict=True):
        if counts:
            by_group.setdefault(group, []).append(reward)
    return [reward - sum(by_group[group]) / len(by_group[group]) for group, reward in zip(groups, rewards, strict=True)]


class OpenRlhfAdapter:
    """`executor_class`, read from the dictionary that OpenRLHF makes its experience of."""

    name = "openrlhf"
    several_sequences = False

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Execute the agent once for every rollout."""
        return asyncio.run(self._deliver(script))

    async def _deliver(self, script: ConformanceScript) -> list[Delivered]:
        trainer_module("openrlhf.utils.agent", "openrlhf")
        from ludus_trainers.openrlhf import executor_class

        executor: Any = executor_class(script.environment(), policy=script.policy, model=script.model())()
        sampling = SimpleNamespace(temperature=1.0, top_p=1.0, max_tokens=64)

        async def play(row: dict[str, Any]) -> list[Delivered]:
            try:
                made = await executor.execute(row["task_id"], json.dumps(row), sampling, 256, None, None)
            except NotTrainable:
                return []
            ids, mask = made["observation_tokens"], [0] * len(made["observation_tokens"])
            for start, end in made["action_ranges"]:
                mask[start:end] = [1] * (end - start)
            return [Delivered(row["task_id"], ids, mask, made["rollout_log_probs"], reward=made["reward"])]

        try:
            return await _each_rollout(script, play)
        finally:
            await executor.player.close()


class ArealAdapter:
    """`LudusWorkflow` in AReaL's `RolloutWorkflow`, read from the tensors of an episode."""

    name = "areal"
    several_sequences = False

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Run one episode for every rollout."""
        return asyncio.run(self._deliver(script))

    async def _deliver(self, script: ConformanceScript) -> list[Delivered]:
        settings = trainer_module("areal.api.cli_args", "areal").GenerationHyperparameters()
        from ludus_trainers.areal import LudusWorkflow

        workflow = LudusWorkflow(
            script.environment(), tokenizer=None, gconfig=settings, policy=script.policy, model=script.model()
        )

        async def play(row: dict[str, Any]) -> list[Delivered]:
            made = await workflow.arun_episode(None, {ROW: row})
            if made is None:
                return []
            ids, mask, logprobs = (made[name][0].tolist() for name in ("input_ids", "loss_mask", "logprobs"))
            return [Delivered(row["task_id"], ids, mask, logprobs, reward=float(made["rewards"][0]))]

        try:
            return await _each_rollout(script, play)
        finally:
            if workflow.player is not None:
                await workflow.player.close()


class SlimeAdapter:
    """`SlimeRollouts`, read from slime's samples."""

    name = "slime"
    several_sequences = True

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Generate once for every rollout."""
        return asyncio.run(self._deliver(script))

    async def _deliver(self, script: ConformanceScript) -> list[Delivered]:
        types = trainer_module("slime.utils.types", "slime")
        from ludus_trainers.slime import SlimeRollouts

        rollouts = SlimeRollouts(script.environment(), policy=script.policy, model=script.model())

        async def play(row: dict[str, Any]) -> list[Delivered]:
            sample = types.Sample(prompt=row["task_id"], metadata={ROW: row})
            made = await rollouts(None, sample, {"temperature": 1.0})
            return [_slime_sample(row["task_id"], sample) for sample in (made if isinstance(made, list) else [made])]

        try:
            return await _each_rollout(script, play)
        finally:
            if rollouts.player is not None:
                await rollouts.player.close()


def _slime_sample(group: str, sample: Any) -> Delivered:
    context = [0] * (len(sample.tokens) - sample.response_length)
    mask, logprobs = context + sample.loss_mask, context + sample.rollout_log_probs
    return Delivered(group, sample.tokens, mask, logprobs, reward=sample.reward)
