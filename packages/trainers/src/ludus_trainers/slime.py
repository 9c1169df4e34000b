"""slime: a custom generate function that plays rollouts of an environment with slime's SGLang router.

    # my_rollout.py, for --custom-generate-function-path my_rollout.custom_generate
    from ludus_trainers.slime import SlimeRollouts

    custom_generate = SlimeRollouts("mcqa")

`ludus_trainers.prompts.slime_rows` makes the data: the row is in `metadata` (`--metadata-key metadata`). Each sequence
of a rollout is a sample; siblings share `rollout_id`. A failed or masked rollout is a sample without loss and without
reward: pass `--dynamic-sampling-filter-path ludus_trainers.slime.keep_group`, which drops its group.
"""

from __future__ import annotations

import asyncio
from copy import copy
from importlib import import_module
from typing import Any, Unpack
from urllib.parse import urlsplit

import orjson

from ludus.collection.collection import Environments
from ludus.collection.options import CollectArguments
from ludus.errors import Failure
from ludus.http.client import Connections
from ludus.train.policy import GroupPolicy
from ludus.train.rows import with_sampling
from ludus_trainers.player import RolloutPlayer
from ludus_trainers.rows import TrainingRow, carried_row, rows_of
from ludus_trainers.token_engine import EngineCall, GeneratedIds, TokenEngine


class SlimeRollouts:
    """A custom generate function. `options` are those of `ludus.collect`."""

    def __init__(
        self,
        environment: Environments = None,
        *,
        policy: GroupPolicy | None = None,
        **options: Unpack[CollectArguments],
    ) -> None:
        self._environment, self._policy, self._options = environment, policy, options
        self.player: RolloutPlayer | None = None

    async def __call__(self, args: Any, sample: Any, sampling_params: dict[str, Any]) -> Any:
        """Play the row in the sample's metadata."""
        if self.player is None:
            self.player = RolloutPlayer(self._environment, policy=self._policy, **self._with_model(args))
        row = with_sampling(
            carried_row(sample.metadata, "the metadata of a sample"),
            temperature=sampling_params.get("temperature"),
            top_p=sampling_params.get("top_p"),
            max_tokens=sampling_params.get("max_new_tokens"),
            engine_extra=sampling_params,
        )
        member = await self.player.member(row)
        rows = rows_of(member) if member is not None else []
        if not rows:
            return _without_loss(sample)
        made = [_sample(sample, row) for row in rows]
        return made[0] if len(made) == 1 else made

    def _with_model(self, args: Any) -> CollectArguments:
        options: CollectArguments = {**self._options}
        if "model" not in options:
            transformers = import_module("transformers")  # slime needs it too
            tokenizer = transformers.AutoTokenizer.from_pretrained(args.hf_checkpoint)
            url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
            options["model"] = TokenEngine(router_engine(url), tokenizer)
        return options


def keep_group(args: Any, samples: list[Any], **_: Any) -> bool:
    """slime's filter: keep a group only if all of its members can be trained on, and their rewards differ."""
    flat = [part for sample in samples for part in (sample if isinstance(sample, list) else [sample])]
    rewards = [part.reward for part in flat]
    return all(reward is not None for reward in rewards) and len(set(rewards)) > 1


def router_engine(url: str, timeout: float = 3600.0) -> Any:
    """The engine behind slime's router: SGLang's `/generate` with ids."""
    parts = urlsplit(url)
    router = Connections(
        f"{parts.scheme}://{parts.netloc}", {"content-type": "application/json"}, name="slime's router"
    )

    async def generate(call: EngineCall) -> GeneratedIds:
        sampling = {**call.extra, "max_new_tokens": call.sampling.max_tokens}
        sampling |= {"stop": call.sampling.stops} if call.sampling.stops else {}
        body = {"input_ids": call.ids, "sampling_params": sampling, "return_logprob": True}
        try:
            async with asyncio.timeout(timeout):
                reply = await router.request("POST", parts.path, orjson.dumps(body))
        except TimeoutError as error:
            raise Failure("timeout", f"slime's router did not answer within {timeout:g} s") from error
        if reply.status != 200:
            raise Failure(f"http_{reply.status}", f"slime's router: {reply.start()}")
        made = reply.json()
        facts = made["meta_info"]
        drawn = facts.get("output_token_logprobs") or []
        ends = (facts.get("finish_reason") or {}).get("type")
        return GeneratedIds(
            [int(token[1]) for token in drawn],
            [float(token[0]) for token in drawn],
            version=facts.get("weight_version"),
            cut=ends in ("length", "abort"),
        )

    return generate


def _sample(asked: Any, row: TrainingRow) -> Any:
    sample = copy(asked)
    sample.tokens = row.ids
    sample.response_length = len(row.response_ids)
    sample.loss_mask = row.mask
    sample.rollout_log_probs = row.logprobs
    sample.reward = row.reward
    sample.status = type(asked).Status.COMPLETED
    sample.weight_versions = [str(version) for version in row.versions]
    return sample


def _without_loss(asked: Any) -> Any:
    sample = copy(asked)
    sample.tokens, sample.response_length = list(asked.tokens or []) or [0, 0], 1
    sample.loss_mask, sample.rollout_log_probs = [0], [0.0]
    sample.reward, sample.remove_sample = None, True
    sample.status = type(asked).Status.ABORTED
    return sample
