"""The adapters that `ludus conformance` knows by name: the contract itself, and those of other packages."""

from __future__ import annotations

import asyncio

from ludus.errors import UserError, did_you_mean, missing_package
from ludus.runtime.imports import import_named
from ludus.runtime.installed import named_entry_points
from ludus.train.conformance.checking import Delivered, TrainerAdapter
from ludus.train.conformance.script import ConformanceScript
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


ADAPTERS: dict[str, type[TrainerAdapter]] = {"feed": FeedAdapter}
#: The entry point group of adapters in other packages.
_GROUP = "ludus.trainers"
#: The packages of ours that know other trainers.
_OTHERS = {"trl": "transformers", "trl-async": "transformers"}
_OTHERS |= dict.fromkeys("areal art openrlhf skyrl skyrl-step-wise slime tinker verl".split(), "trainers")


def find_adapter(name: str) -> TrainerAdapter:
    """The adapter with a name, or your own class as `module:Class`."""
    others = named_entry_points(_GROUP)
    if name in ADAPTERS:
        return ADAPTERS[name]()
    if name in others:
        adapter: TrainerAdapter = others[name].load()()
        return adapter
    if name in _OTHERS:
        raise missing_package(f"the adapter of {name}", _OTHERS[name])
    module, _, attribute = name.partition(":")
    if not attribute:
        known = {*ADAPTERS, *_OTHERS, *others}
        raise UserError(f"unknown trainer {name}", f"{did_you_mean(name, known)} Your own: module:Class")
    try:
        own: TrainerAdapter = getattr(import_named(module), attribute)()
    except (ModuleNotFoundError, AttributeError) as error:
        raise UserError(f"cannot load {name}: {error}", "Write it as module:Class") from error
    return own
