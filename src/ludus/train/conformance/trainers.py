"""The adapters of trainers that ask for rollouts one by one or in batches, in their own classes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ludus.errors import UserError
from ludus.runtime.imports import import_named
from ludus.train.conformance.checking import Delivered
from ludus.train.conformance.script import SIZE, ConformanceScript
from ludus.train.conformance.tiny import tiny_tokenizer
from ludus.train.rows import ROW


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
    found = await asyncio.gather(*(play(row) for row in script.rows for _ in range(SIZE)))
    return [each for some in found for each in some]


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
        from ludus.train.verl import LudusAgentLoop

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
            return [_verl_output(row["task_id"], each.as_dict()) for each in outputs]

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
