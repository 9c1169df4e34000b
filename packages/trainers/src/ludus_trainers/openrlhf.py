"""OpenRLHF: an agent executor that plays rollouts of an environment with OpenRLHF's own engine.

    # my_agent.py, for --agent_func_path my_agent.py
    from ludus_trainers.openrlhf import executor_class

    AgentExecutor = executor_class("mcqa")

`ludus_trainers.prompts.openrlhf_rows` makes the prompts; the label carries the row. OpenRLHF wants one sequence a
prompt and has no way to leave one out, so a failed or masked rollout, or one of several sequences, is replaced by
another. After `policy.replacements` of them `NotTrainable` is raised: a failure is never a reward.
"""

from __future__ import annotations

from copy import copy
from itertools import groupby
from typing import Any, Unpack

from openrlhf.utils.agent import AgentExecutorBase

from ludus.collection.collection import Environments
from ludus.collection.options import CollectArguments
from ludus.train.policy import GroupPolicy
from ludus.train.rows import with_sampling
from ludus_trainers.player import RolloutPlayer
from ludus_trainers.rows import ROW, TrainingRow, carried_row
from ludus_trainers.token_engine import EngineCall, GeneratedIds, TokenEngine


def executor_class(
    environment: Environments = None, *, policy: GroupPolicy | None = None, **options: Unpack[CollectArguments]
) -> type[AgentExecutorBase]:
    """The class to name `AgentExecutor` in your file. `options` are those of `ludus.collect`."""

    class AgentExecutor(AgentExecutorBase):
        """Plays one rollout for each call."""

        player: RolloutPlayer | None = None

        async def execute(
            self,
            prompt: Any,
            label: Any,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            images: Any = None,
        ) -> dict[str, Any]:
            """Play the row in the label."""
            if self.player is None:
                arguments: CollectArguments = {**options}
                if "model" not in arguments:
                    config = TokenEngine.Config(context=max_length)
                    arguments["model"] = TokenEngine(_engine(llm_engine, sampling_params), hf_tokenizer, config=config)
                self.player = RolloutPlayer(environment, policy=policy, **arguments)
            row = with_sampling(
                carried_row({ROW: label}, "the label of a prompt"),
                temperature=sampling_params.temperature,
                top_p=sampling_params.top_p,
                max_tokens=sampling_params.max_tokens,
            )
            return _result(prompt, label, await self.player.single_row(row))

    return AgentExecutor


def _engine(engine: Any, template: Any) -> Any:
    async def generate(call: EngineCall) -> GeneratedIds:
        sampling = copy(template)
        sampling.temperature, sampling.top_p = call.sampling.temperature, call.sampling.top_p
        sampling.max_tokens, sampling.logprobs = call.sampling.max_tokens, 1
        sampling.stop = call.sampling.stops or template.stop
        made = (await engine.generate(call.ids, sampling)).outputs[0]
        ids = list(made.token_ids)
        logprobs = [drawn[id].logprob for drawn, id in zip(made.logprobs or [], ids, strict=False)]
        return GeneratedIds(ids, logprobs, cut=made.finish_reason == "length")

    return generate


def _result(prompt: Any, label: Any, row: TrainingRow) -> dict[str, Any]:
    mask = row.over_ids(row.mask, 0)
    ranges, start = [], 0
    for written, run in groupby(mask):
        end = start + len(list(run))
        if written:
            ranges.append((start, end))
        start = end
    return {
        "prompt": prompt,
        "label": label,
        "observation_tokens": row.ids,
        "action_ranges": ranges,
        "rollout_log_probs": row.over_ids(row.logprobs, 0.0),
        "reward": row.reward,
        "scores": row.reward,
        "extra_logs": {},
        "truncated": False,
    }
