"""The adapters of trainers that take whole groups: Tinker's cookbook and ART, in their own classes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ludus.model import Model, Request
from ludus.response import Response
from ludus.tokens import Tokens
from ludus.train.conformance.checking import Delivered
from ludus.train.conformance.script import SIZE, VOCABULARY, ConformanceScript
from ludus.train.contract import GroupFeed
from ludus_trainers.conformance.rollouts import trainer_module
from ludus_trainers.token_engine import ENGINE_EXTRA


class TinkerAdapter:
    """`LudusGroupBuilder`, rolled out by Tinker's own loop, read from the datums that its loss is computed from."""

    name = "tinker"
    several_sequences = True
    threads = False

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Roll out one group for each task."""
        return asyncio.run(self._deliver(script))

    async def _deliver(self, script: ConformanceScript) -> list[Delivered]:
        rollouts = trainer_module("tinker_cookbook.rl.rollouts", "tinker-cookbook")
        data = trainer_module("tinker_cookbook.rl.data_processing", "tinker-cookbook")
        strategy = trainer_module("tinker_cookbook.rl.rollout_strategy", "tinker-cookbook")
        from ludus_trainers.tinker import LudusGroupBuilder

        async def play(row: dict[str, Any]) -> Any:
            sampler = _ScriptedSampler(script.model())

            class Group(LudusGroupBuilder):
                async def make_envs(self) -> Sequence[Any]:
                    sampler.envs = await super().make_envs()
                    return sampler.envs

            options = {"model": sampler}
            builder = Group(row, SIZE, script.environment(), policy=script.policy, options=options)
            partial = strategy.MinViableGroup(min_successful=1, max_retries=0)
            return await rollouts.do_group_rollout(builder, sampler, partial)

        groups = await asyncio.gather(*(play(row) for row in script.rows))
        datums, places = data.assemble_training_data(list(groups), data.compute_advantages(list(groups)))
        return [_datum(datum, place["group_idx"]) for datum, place in zip(datums, places, strict=True)]


class _ScriptedSampler(Model):
    """Both sides of Tinker's sampling: it asks for the turns of the script, and samples them as scripted."""

    def __init__(self, script: Model) -> None:
        self._script = script
        self._turns: dict[int, Tokens] = {}  # by the number of the exchange
        self.envs: Sequence[Any] = ()

    async def respond(self, request: Request) -> Response:
        """Ask Tinker for the scripted turn."""
        response = await self._script.respond(request)
        assert response.tokens is not None
        number = request.params[ENGINE_EXTRA]["exchange"]
        self._turns[number] = response.tokens
        made = await self.envs[number].exchange.ask(list(response.tokens.prompt_ids))
        assert made.ids == response.tokens.generated_ids
        return response

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> Any:
        """Tinker's `TokenCompleter`: the scripted turn of the environment that made this observation."""
        from tinker_cookbook.completers import TokensWithLogprobs

        number = next(place for place, env in enumerate(self.envs) if env.observation is model_input)
        turn = self._turns[number]
        return TokensWithLogprobs(tokens=turn.generated_ids, maybe_logprobs=turn.logprobs)


def _datum(datum: Any, group: int) -> Delivered:
    fields = {name: values.to_torch().tolist() for name, values in datum.loss_fn_inputs.items()}
    mask = [0, *(int(value) for value in fields["mask"])]
    advantage = next(value for value, counts in zip(fields["advantages"], mask[1:], strict=True) if counts)
    first = datum.model_input.to_ints()[0]
    return Delivered(group, [first, *fields["target_tokens"]], mask, [0.0, *fields["logprobs"]], advantage)


class ArtAdapter:
    """`art_group`, tokenised by ART itself."""

    name = "art"
    several_sequences = True
    threads = False

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Tokenise the trajectory groups of a feed."""
        return asyncio.run(self._deliver(script))

    async def _deliver(self, script: ConformanceScript) -> list[Delivered]:
        trainer_module("art.trajectories", "openpipe-art")
        tokenize = trainer_module("art.preprocessing.tokenize", "openpipe-art")
        from ludus_trainers.art import art_group

        groups = []
        async with GroupFeed(
            script.environment(), model=script.model(), input=script.rows, policy=script.policy
        ) as feed:
            async for group in feed:
                groups.append(art_group(group))
        delivered = []
        for number, group in enumerate(groups):
            made = tokenize.tokenize_trajectory_groups(
                _ScriptTokenizer(script), [group], False, False, drop_zero_advantage_trajectories=False
            )
            for result in made:
                logprobs = [
                    value if counts else 0.0
                    for value, counts in zip(result.logprobs, result.assistant_mask, strict=True)
                ]
                delivered.append(
                    Delivered(
                        number,
                        result.token_ids,
                        result.assistant_mask,
                        logprobs,
                        result.advantage,
                        result.trajectory.reward,
                    )
                )
        return delivered


class _ScriptTokenizer:
    """A tokenizer for ART whose chat template writes the prompts of the script."""

    vocab_size, eos_token_id, eos_token, chat_template = VOCABULARY, 0, "t0", ""

    def __init__(self, script: ConformanceScript) -> None:
        self._prompts = {name: rollouts[0].calls[0].prompt for name, rollouts in script.tasks.items()}

    def apply_chat_template(self, messages: list[dict[str, Any]], *, tokenize: bool = True, **_: Any) -> Any:
        """The prompt of a task, the output of the tool, one id for an earlier turn, or a text of one id."""
        ids: list[int] = []
        for message in messages:
            content = message.get("content") or ""
            if message["role"] == "user":
                ids += self._prompts[content]
            elif message["role"] == "tool":
                ids += [41, 42, 43]
            else:
                ids.append(int(content[1:]) if content.startswith("t") else 40)
        return ids if tokenize else self.decode(ids)

    def decode(self, ids: int | list[int]) -> str:
        """The text of ids."""
        return " ".join(f"t{id}" for id in (ids if isinstance(ids, list) else [ids]))
