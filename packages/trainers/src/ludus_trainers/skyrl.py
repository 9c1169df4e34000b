"""SkyRL: a generator that plays rollouts of an environment with SkyRL's own engine.

    class LudusExp(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            step_wise = cfg.generator.step_wise_trajectories
            return LudusGenerator(inference_engine_client, tokenizer, environment="mcqa", step_wise=step_wise)

The rows come from `ludus_trainers.verl_data.write_parquet`, whose columns SkyRL reads too.

- With `step_wise`, each sequence of a rollout is a row, and a failed or masked rollout has none.
- Without it, SkyRL wants one row for each prompt: a rollout that cannot be such a row is a filler (`rows.filler`).
- `rollout_metrics` counts failed, masked and missing rollouts, and those of several sequences.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any, Unpack

from skyrl.train.generators.base import GeneratorInterface, TrajectoryID

from ludus.collection.collection import Environments
from ludus.collection.options import CollectArguments
from ludus.train.group import TrainingGroup, TrainingMember
from ludus.train.policy import GroupPolicy
from ludus.train.rows import with_sampling
from ludus_trainers.player import RolloutPlayer
from ludus_trainers.rows import TrainingRow, carried_row, filler, rows_of
from ludus_trainers.token_engine import EngineCall, GeneratedIds, TokenEngine


class LudusGenerator(GeneratorInterface):
    """A `GeneratorInterface`. `options` are those of `ludus.collect`; `context` limits a prompt and its answer."""

    def __init__(
        self,
        engine: Any,
        tokenizer: Any,
        environment: Environments = None,
        *,
        policy: GroupPolicy | None = None,
        step_wise: bool = False,
        context: int = 2**31,
        **options: Unpack[CollectArguments],
    ) -> None:
        self._step_wise = step_wise
        self._padding = next(
            (token for token in (tokenizer.pad_token_id, tokenizer.eos_token_id) if token is not None), 0
        )
        if "model" not in options:
            config = TokenEngine.Config(context=context)
            options["model"] = TokenEngine(_engine(engine), tokenizer, config=config)
        self.player = RolloutPlayer(environment, policy=policy, **options)

    async def generate(self, input_batch: Any) -> Any:
        """Play the groups of a batch: prompts with the same instance id are one group."""
        before = self.player.counts.copy()
        sampling = dict(input_batch.get("sampling_params") or {})
        numbers = count()
        extras = input_batch.get("env_extras") or []
        trajectories = input_batch.get("trajectory_ids") or [TrajectoryID(str(next(numbers)), 0) for _ in extras]
        groups: dict[str, list[int]] = {}
        for place, trajectory in enumerate(trajectories):
            groups.setdefault(trajectory.instance_id, []).append(place)
        played = await asyncio.gather(
            *(self.player.group(_row(extras[places[0]], sampling), len(places)) for places in groups.values())
        )
        rows: dict[int, list[TrainingRow]] = {}
        for group, places in zip(played, groups.values(), strict=True):
            by_member = [_rows_of(member) for member in group.members][: len(places)]
            by_member += [[] for _ in range(len(places) - len(by_member))]
            rows |= zip(places, by_member if self._step_wise else self._single(group, by_member), strict=True)
        return _output(rows, trajectories, self.player.counts - before)

    def _single(self, group: TrainingGroup, by_member: list[list[TrainingRow]]) -> list[list[TrainingRow]]:
        """Exactly one row for each member. The baseline is that of the members that are rows."""
        kept = [member for member in group.members if len(rows_of(member)) == 1]
        trained = TrainingGroup(group.task_id, group.row, group.number, kept)
        prompt = next((rows[0].prompt_ids for rows in by_member if rows), [])
        return [rows if len(rows) == 1 else [filler(trained, prompt, self._padding)] for rows in by_member]


def _row(extras: dict[str, Any], sampling: dict[str, Any]) -> dict[str, Any]:
    return with_sampling(
        carried_row(extras.get("extra_info") or extras, "env_extras of a prompt"),
        temperature=sampling.get("temperature"),
        top_p=sampling.get("top_p"),
        max_tokens=sampling.get("max_generate_length") or sampling.get("max_tokens"),
        engine_extra=sampling,
    )


def _engine(engine: Any) -> Any:
    async def generate(call: EngineCall) -> GeneratedIds:
        sampling = {"logprobs": 0, **call.extra, "max_tokens": call.sampling.max_tokens}
        sampling |= {"stop": call.sampling.stops} if call.sampling.stops else {}
        batch = {"prompt_token_ids": [call.ids], "session_ids": [call.session], "sampling_params": sampling}
        made = await engine.generate(batch)
        logprobs = made.get("response_logprobs")
        cut = made["stop_reasons"][0] in ("length", "abort")
        return GeneratedIds(list(made["response_ids"][0]), logprobs[0] if logprobs else None, cut=cut)

    return generate


def _rows_of(member: TrainingMember) -> list[TrainingRow]:
    """The rows of a member. SkyRL reads one reward of a rollout, so that its threads cannot have their own."""
    return [replace(row, reward=float(member.reward or 0.0)) for row in rows_of(member)]


def _output(rows: dict[int, list[TrainingRow]], trajectories: list[Any], counts: Counter[str]) -> dict[str, Any]:
    flat = [(place, row, row is rows[place][-1]) for place in sorted(rows) for row in rows[place]]
    return {
        "prompt_token_ids": [row.prompt_ids for _, row, _ in flat],
        "response_ids": [row.response_ids for _, row, _ in flat],
        "rewards": [row.reward for _, row, _ in flat],
        "loss_masks": [row.mask for _, row, _ in flat],
        "rollout_logprobs": [row.logprobs for _, row, _ in flat],
        "stop_reasons": ["stop"] * len(flat),
        "trajectory_ids": [trajectories[place] for place, _, _ in flat],
        "is_last_step": [last for _, _, last in flat],
        "rollout_metrics": {f"ludus/{name}": float(number) for name, number in counts.items()},
    }
