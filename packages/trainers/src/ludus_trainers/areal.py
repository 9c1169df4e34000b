"""AReaL: a workflow that plays rollouts of an environment with AReaL's own engine.

    workflow = LudusWorkflow("mcqa", tokenizer=tokenizer, gconfig=config.gconfig)
    trainer.train(workflow=workflow, ...)

`ludus_trainers.prompts.areal_rows` makes the data. An episode is one sequence. A failed or masked rollout, or one of
several sequences, is None, which AReaL leaves out of the batch and of the group.
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from areal.api.workflow_api import RolloutWorkflow

from ludus.collection.collection import Environments
from ludus.collection.options import CollectArguments
from ludus.train.policy import GroupPolicy
from ludus.train.rows import with_sampling
from ludus_trainers.player import RolloutPlayer
from ludus_trainers.rows import TrainingRow, carried_row, rows_of
from ludus_trainers.token_engine import EngineCall, GeneratedIds, TokenEngine


class LudusWorkflow(RolloutWorkflow):
    """A `RolloutWorkflow`. `options` are those of `ludus.collect`; `gconfig` is AReaL's of generation."""

    def __init__(
        self,
        environment: Environments = None,
        *,
        tokenizer: Any,
        gconfig: Any,
        policy: GroupPolicy | None = None,
        **options: Unpack[CollectArguments],
    ) -> None:
        self._environment, self._tokenizer, self._gconfig = environment, tokenizer, gconfig
        self._policy, self._options = policy, options
        self.player: RolloutPlayer | None = None

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, torch.Tensor] | None:
        """Play the row in `data` and return its sequence, or None."""
        if self.player is None:
            if "model" not in self._options:
                config = TokenEngine.Config(context=self._gconfig.max_tokens)
                self._options["model"] = TokenEngine(self._engine(engine), self._tokenizer, config=config)
            self.player = RolloutPlayer(self._environment, policy=self._policy, **self._options)
        settings = self._gconfig
        row = with_sampling(
            carried_row(data, "an item of the data"),
            temperature=0.0 if settings.greedy else settings.temperature,
            top_p=settings.top_p,
            max_tokens=settings.max_new_tokens,
        )
        member = await self.player.member(row)
        rows = rows_of(member) if member is not None else []
        return _tensors(rows[0]) if len(rows) == 1 else None

    def _engine(self, engine: Any) -> Any:
        from areal.api.io_struct import ModelRequest

        settings = self._gconfig.new_with_stop_and_pad_token_ids(self._tokenizer)

        async def generate(call: EngineCall) -> GeneratedIds:
            sampling = settings.new(
                n_samples=1, max_new_tokens=call.sampling.max_tokens, stop=call.sampling.stops or settings.stop
            )
            asked = ModelRequest(rid=call.session, input_ids=call.ids, gconfig=sampling, tokenizer=self._tokenizer)
            made = await engine.agenerate(asked)
            version = min(made.output_versions, default=None)
            return GeneratedIds(
                list(made.output_tokens),
                list(made.output_logprobs),
                version=version,
                cut=made.stop_reason in ("length", "abort"),
            )

        return generate


def _tensors(row: TrainingRow) -> dict[str, torch.Tensor]:
    """A batch of one sequence. Each token has the version of the weights that wrote it; context has -1."""
    versions = row.token_versions()
    tensors = {
        "input_ids": torch.tensor(row.ids, dtype=torch.int32),
        "loss_mask": torch.tensor(row.over_ids(row.mask, 0), dtype=torch.int32),
        "logprobs": torch.tensor(row.over_ids(row.logprobs, 0.0), dtype=torch.float32),
        "versions": torch.tensor(versions, dtype=torch.int32),
        "attention_mask": torch.ones(len(row.ids), dtype=torch.bool),
        "rewards": torch.tensor(row.reward, dtype=torch.float32),
    }
    return {name: values.unsqueeze(0) for name, values in tensors.items()}
