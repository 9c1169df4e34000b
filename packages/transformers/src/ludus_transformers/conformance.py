"""The adapters of TRL's two trainers, for `ludus conformance trl` and `ludus conformance trl-async`."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from ludus.train.conformance.checking import Delivered
from ludus.train.conformance.script import SIZE, ConformanceScript
from ludus.train.conformance.tiny import tiny_model, tiny_tokenizer
from ludus_transformers.loading import library


class TrlAdapter:
    """`TrlRollouts` in TRL's `GRPOTrainer`, read from the tensors that its loss is computed from."""

    name = "trl"
    several_sequences = False

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Have the trainer make one batch of all groups."""
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        trl = library("trl")
        from ludus_transformers.trl import TrlRollouts

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
        from ludus_transformers.trl_worker import TrlWorker

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
