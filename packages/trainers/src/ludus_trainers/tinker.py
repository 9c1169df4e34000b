"""Tinker's cookbook: groups of environments whose turns Tinker samples.

    dataset = [LudusGroupBuilder(row, 8, "mcqa", tokenizer="Qwen/Qwen3-8B") for _, row in rows_in("mcqa")]

Tinker samples the actions and keeps their logprobs; the environment runs the tools and judges. Each observation repeats
the earlier ids exactly; where the chat template changes them, Tinker makes a new datum. A failed or masked rollout
raises, and Tinker leaves it out of the group: train with `MinViableGroup` or `RetryOnFailure`, not with `FailFast`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import tinker
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, StepResult
from tinker_cookbook.tokenizer_utils import get_tokenizer

from ludus.collection.collection import Environments
from ludus.collection.options import CollectArguments
from ludus.train.group import TrainingMember
from ludus.train.policy import GroupPolicy
from ludus.train.rows import with_sampling
from ludus_trainers.player import NotTrainable, RolloutPlayer
from ludus_trainers.token_engine import EngineCall, GeneratedIds, TokenEngine


class Exchange:
    """Between one rollout, which asks for a turn, and the trainer, which samples it."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[list[int]] = asyncio.Queue()
        self.sampled: asyncio.Queue[GeneratedIds] = asyncio.Queue()

    async def ask(self, ids: list[int]) -> GeneratedIds:
        """Have the trainer sample a turn after a prompt."""
        self.asked.put_nowait(ids)
        return await self.sampled.get()


class LudusEnv(Env):
    """One rollout. It is played in the background; its model calls become Tinker's steps."""

    def __init__(
        self, player: RolloutPlayer, row: dict[str, Any], exchange: Exchange, stop: list[int], number: int
    ) -> None:
        self._player, self.exchange, self._stop = player, exchange, stop
        self._row = with_sampling(row, engine_extra={"exchange": number})
        self._playing: asyncio.Task[TrainingMember | None] | None = None
        self.observation = tinker.ModelInput.from_ints([])

    async def initial_observation(self) -> tuple[Any, list[int]]:
        """Start the rollout; the prompt of its first model call."""
        self._playing = asyncio.create_task(self._player.member(self._row))
        if not await self._asked():
            self._judged()
            raise NotTrainable("the rollout ended before its first model call")
        return self.observation, self._stop

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        """Take a sampled turn; the next prompt, or the reward."""
        cut = (extra or {}).get("stop_reason") == "length"
        # Tinker keeps the logprobs and trains with them. Those of our own record are not read.
        self.exchange.sampled.put_nowait(GeneratedIds(list(action), [0.0] * len(action), cut=cut))
        if await self._asked():
            return StepResult(0.0, False, self.observation, self._stop)
        member = self._judged()
        assert member.reward is not None
        return StepResult(
            float(member.reward), True, tinker.ModelInput.from_ints([]), self._stop, metrics={**member.components}
        )

    async def _asked(self) -> bool:
        """Wait for the next model call; false if the rollout is over."""
        assert self._playing is not None
        asking = asyncio.ensure_future(self.exchange.asked.get())
        await asyncio.wait({asking, self._playing}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
            return False
        self.observation = tinker.ModelInput.from_ints(asking.result())
        return True

    def _judged(self) -> TrainingMember:
        assert self._playing is not None
        member = self._playing.result()
        if member is None:
            raise NotTrainable("the rollout failed: the log says why")
        if not member.trains:
            raise NotTrainable(f"the rollout is masked: {member.mask}")
        return member


@dataclass
class LudusGroupBuilder(EnvGroupBuilder):
    """A group of one task. It pickles if `environment` is a name or None. `options` are those of `ludus.collect`."""

    row: dict[str, Any]
    size: int
    environment: Environments = None
    tokenizer: str = ""
    policy: GroupPolicy = field(default_factory=lambda: GroupPolicy(replacements=0))
    options: dict[str, Any] = field(default_factory=dict)
    exchanges: dict[int, Exchange] = field(default_factory=dict, repr=False)
    player: RolloutPlayer | None = field(default=None, repr=False)

    async def make_envs(self) -> Sequence[Env]:
        """One environment for each member of the group."""
        options = dict(self.options)
        if "model" not in options:
            options["model"] = TokenEngine(self._generate, get_tokenizer(self.tokenizer))
        model = options["model"]
        if self.player is None:
            self.player = RolloutPlayer(self.environment, policy=self.policy, **cast("CollectArguments", options))
        stop = sorted(model.end_ids) if isinstance(model, TokenEngine) else []
        numbers = count(len(self.exchanges))
        made = {next(numbers): Exchange() for _ in range(self.size)}
        self.exchanges |= made
        return [LudusEnv(self.player, self.row, exchange, stop, number) for number, exchange in made.items()]

    async def cleanup(self) -> None:
        """Cancel what runs and close the sessions."""
        if self.player is not None:
            await self.player.close()
            self.player = None
        self.exchanges.clear()

    def logging_tags(self) -> list[str]:
        """The environment's name."""
        return [self.environment] if isinstance(self.environment, str) else []

    async def _generate(self, call: EngineCall) -> GeneratedIds:
        return await self.exchanges[call.extra["exchange"]].ask(call.ids)
