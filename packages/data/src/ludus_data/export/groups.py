"""`grpo`: the rollouts of each task with their rewards and advantages."""

from __future__ import annotations

from collections.abc import Iterator

from ludus.thread import MAIN
from ludus_data.export.format import OWN_REWARD, ExportRow, Format, Unit
from ludus_data.export.token_rows import token_rows


class Grpo(Format):
    """One row a rollout, or one for each of its token sequences. The rows of a group follow each other."""

    name = "grpo"
    summary = "groups with rewards and advantages, a row for each rollout; --tokens for token sequences"
    takes = "member"
    offers = frozenset({"reasoning", "tokens"})

    def rows(self, unit: Unit) -> Iterator[ExportRow]:
        """The rows of one rollout; its advantage is added when its group is known."""
        (sample,) = unit
        if not self.choices.tokens:
            prompt, completion, tools = self.conversations.of(sample)
            yield {
                "prompt": prompt,
                "completion": completion,
                "tools": tools,
                "group": sample.group,
                "reward": sample.reward,
                "turn_rewards": sample.turn_rewards,
                "ludus": sample.origin(),
            }
            return
        sequences = token_rows(sample)
        for index, sequence in enumerate(sequences):
            own = sample.own_reward(sequence.thread)
            yield {
                **({} if own is None else {OWN_REWARD: own}),
                "input_ids": sequence.ids,
                "completion_mask": sequence.mask,
                "logprobs": sequence.logprobs,
                "sequence": index,
                "sequences": len(sequences),
                "thread": sequence.thread,
                "kind": sequence.kind,
                "group": sample.group,
                "reward": sample.reward if own is None else own,
                "turn_rewards": sample.turn_rewards if sequence.thread == MAIN else [],
                "ludus": sample.origin(),
            }
