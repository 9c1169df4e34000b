"""The adapters that `ludus conformance` knows by name: the contract itself, TRL's two trainers, other packages'."""

from __future__ import annotations

import asyncio
import os
import tempfile
from importlib.metadata import entry_points
from typing import Any

from ludus.errors import UserError, did_you_mean, missing_package
from ludus.models.transformers_load import library
from ludus.runtime.imports import import_named
from ludus.train.conformance.checking import Delivered, TrainerAdapter
from ludus.train.conformance.script import SIZE, ConformanceScript
from ludus.train.conformance.tiny import tiny_model, tiny_tokenizer
from ludus.train.contract import GroupFeed


class FeedAdapter:
    """The contract without a trainer: the example for an adapter of your own."""

    name = "feed"
    several_sequences = True

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Read the groups of a feed."""
        return asyncio.run(self._deliver(script))

    async def _deliver(self, script: ConformanceScript) -> list[Delivered]:
        delivered = []
        async with GroupFeed(
            script.environment(), model=script.model(), input=script.rows, policy=script.policy
        ) as feed:
            async for group in feed:
                for member, advantages in zip(group.members, group.sequence_advantages(), strict=True):
                    for sequence, advantage in zip(member.sequences, advantages, strict=False):
                        reward = member.rollout.reward_of(sequence.thread)
                        known = min((version for version in member.versions if version is not None), default=None)
                        tokens = sequence.ids, sequence.mask, sequence.logprobs
                        delivered.append(Delivered(group.number, *tokens, advantage, reward, known))
        return delivered


class TrlAdapter:
    """`TrlRollouts` in TRL's `GRPOTrainer`, read from the tensors that its loss is computed from."""

    name = "trl"
    several_sequences = False

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Have the trainer make one batch of all groups."""
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        trl = library("trl")
        from ludus.train.trl import TrlRollouts

        rollouts = TrlRollouts(script.environment(), model=script.model(), input=script.rows, policy=script.policy)
        weights, tokenizer = tiny_model(), tiny_tokenizer()
        with tempfile.TemporaryDirectory() as folder:
            size = SIZE * len(script.tasks)
            arguments = trl.GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=size,
                num_generations=SIZE,
                max_steps=1,
                report_to=[],
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                log_level="error",
            )
            trainer = trl.GRPOTrainer(
                weights,
                reward_funcs=rollouts.reward,
                rollout_func=rollouts,
                train_dataset=rollouts.dataset(),
                args=arguments,
                processing_class=tokenizer,
            )
            try:
                trainer.model.train()
                rows = [{"prompt": prompt} for prompt in rollouts.prompts() for _ in range(SIZE)]
                batch = trainer._generate_and_score_completions(rows)
            finally:
                rollouts.close()
        return [_trl_row(batch, number) for number in range(size)]


def _trl_row(batch: dict[str, Any], number: int) -> Delivered:
    asked, written = batch["prompt_mask"][number].bool(), batch["completion_mask"][number].bool()
    prompt = batch["prompt_ids"][number][asked].tolist()
    context = [0] * len(prompt)
    return Delivered(
        number // SIZE,
        prompt + batch["completion_ids"][number][written].tolist(),
        context + batch["tool_mask"][number][written].tolist(),
        context + batch["sampling_per_token_logps"][number][written].tolist(),
        float(batch["advantages"][number]),
    )


class TrlAsyncAdapter:
    """`TrlWorker`, read from the buffer of TRL's `AsyncGRPOTrainer`."""

    name = "trl-async"
    several_sequences = True

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Read all samples of one pass over the tasks."""
        library("trl")
        from ludus.train.trl_worker import TrlWorker

        worker = TrlWorker(
            script.environment(),
            model=script.model(),
            input=script.rows,
            policy=script.policy,
            epochs=1,
            unread=SIZE * SIZE * len(script.tasks),
        )
        worker.start()
        try:
            worker.join()
        finally:
            worker.stop()
        delivered = []
        while not worker.rollout_buffer.empty():
            sample = worker.rollout_buffer.get()
            ids, mask, logprobs = (
                sample.input_ids.tolist(),
                sample.completion_mask.tolist(),
                sample.old_log_probs.tolist(),
            )
            reward, version = sample.metrics["reward"], sample.model_version
            delivered.append(Delivered(sample.group_id, ids, mask, logprobs, sample.advantage, reward, version))
        return delivered


ADAPTERS: dict[str, type[TrainerAdapter]] = {
    "feed": FeedAdapter,
    "trl": TrlAdapter,
    "trl-async": TrlAsyncAdapter,
}
#: The entry point group of adapters in other packages.
_GROUP = "ludus.trainers"
#: The trainers that the package ludus-trainers knows.
_OTHERS = ("areal", "art", "openrlhf", "skyrl", "skyrl-step-wise", "slime", "tinker", "verl")


def find_adapter(name: str) -> TrainerAdapter:
    """The adapter with a name, or your own class as `module:Class`."""
    others = entry_points(group=_GROUP)
    if name in ADAPTERS:
        return ADAPTERS[name]()
    if name in others.names:
        adapter: TrainerAdapter = others[name].load()()
        return adapter
    if name in _OTHERS:
        raise missing_package(f"the adapter of {name}", "trainers")
    module, _, attribute = name.partition(":")
    if not attribute:
        known = {*ADAPTERS, *_OTHERS, *others.names}
        raise UserError(f"unknown trainer {name}", f"{did_you_mean(name, known)} Your own: module:Class")
    try:
        own: TrainerAdapter = getattr(import_named(module), attribute)()
    except (ModuleNotFoundError, AttributeError) as error:
        raise UserError(f"cannot load {name}: {error}", "Write it as module:Class") from error
    return own
