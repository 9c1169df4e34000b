"""What a trainer gets: a finished group of rollouts of one task, with tokens, masks, logprobs and rewards.

- A completed member trains: its tokens are in the loss and its reward is in the baseline.
- A masked member has a reward and does not train: it is in neither.
- A failed member has no reward. It is listed in `failures` with its stage, kind and cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ludus.data.advantages import group_mean, per_turn, z_score
from ludus.errors import Failure
from ludus.outcome import Outcome
from ludus.rollout import Rollout
from ludus.thread import TRAINED
from ludus.tokens import Sequence as TokenSequence
from ludus.tokens import versions_of

Estimator = Callable[[Sequence[float], Sequence[bool] | None], list[float]]


class TrainingMember:
    """One rollout of a group, as a trainer reads it."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout
        self._oldest: int | None = None  # what policy versions beyond these two wrote is not in the loss
        self._newest: int | None = None

    @property
    def outcome(self) -> Outcome:
        """How the rollout ended."""
        return self.rollout.outcome

    @property
    def trains(self) -> bool:
        """Whether its tokens belong in the loss and its reward in the baseline."""
        return self.rollout.outcome is Outcome.COMPLETED

    @property
    def reward(self) -> float | None:
        """The verifier's reward; None if the rollout failed."""
        return self.rollout.reward

    @property
    def components(self) -> dict[str, float]:
        """The named parts of the reward."""
        return self.rollout.verdict.components if self.rollout.verdict is not None else {}

    @property
    def turn_rewards(self) -> list[float]:
        """One reward for each model call, if the verifier gave them."""
        return self.rollout.verdict.turn_rewards if self.rollout.verdict is not None else []

    @property
    def thread_rewards(self) -> dict[str, float]:
        """The rewards of threads that do not get the rollout's, by the name of the thread."""
        return self.rollout.verdict.thread_rewards if self.rollout.verdict is not None else {}

    @property
    def mask(self) -> str | None:
        """Why a masked rollout is not trained on."""
        return self.rollout.verdict.mask if self.rollout.verdict is not None else None

    @property
    def failure(self) -> Failure | None:
        """Why a failed rollout has no reward: stage, kind and cause."""
        return self.rollout.error

    @property
    def receipt(self) -> str | None:
        """The digests of the verifier, the task and the response that belong to the reward."""
        return self.rollout.receipt

    @cached_property
    def sequences(self) -> list[TokenSequence]:
        """The token sequences with loss masks and logprobs; several if a template or a compaction changed earlier ids,
        or if the rollout has several threads.

        Empty if a member that does not train has no tokens.
        """
        if not self.trains and not any("prefix" in call for call in self.rollout.calls if not call.get("given")):
            return []
        sequences = list(self.rollout.sequences())
        for sequence in sequences:
            for first, after, version in sequence.version_spans:
                if not self._keeps(_number(version)):
                    sequence.mask[first:after] = [0] * (after - first)
        return sequences

    @cached_property
    def versions(self) -> list[int | None]:
        """The policy versions that wrote each model call, in order: several if the weights changed in the middle of it.

        None for a version that is not a number. Versions that were cut are left out.
        """
        versions = [_number(version) for call in self.rollout.trained_calls for version in versions_of(call)]
        return [version for version in versions if self._keeps(version)]

    def cut(self, *, oldest: int | None = None, newest: int | None = None) -> bool:
        """Take what older or newer policy versions wrote out of the loss. False if nothing is left in it.

        Ids, log probabilities and the reward stay: the rest is trained on in the context in which it was written.
        """
        self._oldest = self._oldest if oldest is None else oldest
        self._newest = self._newest if newest is None else newest
        for name in ("sequences", "versions"):
            self.__dict__.pop(name, None)
        return any(any(sequence.mask) for sequence in self.sequences)

    def _keeps(self, version: int | None) -> bool:
        if self._oldest is None and self._newest is None:
            return True
        if version is None or (self._oldest is not None and version < self._oldest):
            return False
        return self._newest is None or version <= self._newest

    def per_token(self, values: Sequence[float]) -> list[list[float]]:
        """One value for each of `rollout.trained_calls`, such as an advantage, spread over the tokens of each sequence.

        Tokens that are not in the loss get 0.0.
        """
        lengths = [len(call["generated_ids"]) for call in self.rollout.trained_calls]
        written = iter([value for value, length in zip(values, lengths, strict=True) for _ in range(length)])
        listed = []
        for sequence in self.sequences:
            spread = [0.0] * len(sequence.ids)
            for first, after, _ in sequence.version_spans:
                spread[first:after] = [next(written) for _ in range(first, after)]
            listed.append([value if mask else 0.0 for value, mask in zip(spread, sequence.mask, strict=True)])
        return listed


@dataclass
class TrainingGroup:
    """The finished members of one task. `members` are completed or masked; `failures` have no reward.

    `cancelled` counts stragglers, `dropped` members whose weights were too old or changed too often; `cut` members that
    lost a part of their tokens for that reason. `closed` says how the group ended: `full`, `short` (no member was left
    to wait for) or `deadline`.
    """

    task_id: str
    row: dict[str, Any]
    number: int
    members: list[TrainingMember]
    failures: list[TrainingMember] = field(default_factory=list)
    cancelled: int = 0
    dropped: int = 0
    closed: str = "full"
    cut: int = 0

    @property
    def trainable(self) -> list[TrainingMember]:
        """The members that train."""
        return [member for member in self.members if member.trains]

    @property
    def has_signal(self) -> bool:
        """Whether the rewards or the turn rewards of the trainable members differ."""
        return len({(member.reward, *member.turn_rewards) for member in self.trainable}) > 1

    def advantages(self, estimator: Estimator = z_score) -> list[float]:
        """The advantage of each member against the trainable ones; 0.0 for a masked member."""
        counts = [member.trains for member in self.members]
        values = estimator([member.reward or 0.0 for member in self.members], counts)
        return [value if counted else 0.0 for value, counted in zip(values, counts, strict=True)]

    def sequence_advantages(self, estimator: Estimator = z_score) -> list[list[float]]:
        """The advantage of each sequence of each member: the member's, unless its thread has a reward of its own.

        That reward is compared with the rewards of the trainable members. A masked member has none.
        """
        listed = []
        for member, advantage in zip(self.members, self.advantages(estimator), strict=True):
            own = {name: self._compared(reward, estimator) for name, reward in member.thread_rewards.items()}
            sequences = member.sequences if member.trains else []
            listed.append([own.get(sequence.thread, advantage) for sequence in sequences])
        return listed

    def _compared(self, reward: float, estimator: Estimator) -> float:
        """The advantage of a reward that is not in the baseline."""
        rewards = [member.reward or 0.0 for member in self.trainable]
        return estimator([*rewards, reward], [*[True] * len(rewards), False])[-1]

    def turn_advantages(self, discount: float = 1.0) -> list[list[float]]:
        """The advantage of each turn of each member, from turn rewards. Spread it with `member.per_token`.

        A member without turn rewards gets its reward with its last call. Turn rewards are those of the main thread: a
        call of another thread gets its thread's reward minus the mean reward. A masked member gets zeros.
        """
        rewards = [_turn_rewards(member) for member in self.members]
        counts = [member.trains for member in self.members]
        values = per_turn(rewards, counts, discount)
        for member, turns in zip(self.members, values, strict=True):
            for thread in (thread for thread in member.rollout.threads if thread.kind in TRAINED):
                advantage = self._compared(member.rollout.reward_of(thread.name) or 0.0, group_mean)
                turns += [advantage for call in thread.calls if "prefix" in call]
        return [turns if counted else [0.0] * len(turns) for turns, counted in zip(values, counts, strict=True)]


def _turn_rewards(member: TrainingMember) -> list[float]:
    """The rewards of the calls with tokens. If there is a reward for every call, rewards and calls are paired."""
    rewards, calls = member.turn_rewards, member.rollout.calls
    if len(rewards) == len(calls):
        return [reward for reward, call in zip(rewards, calls, strict=True) if "prefix" in call]
    count = sum("prefix" in call for call in calls)
    spread = rewards or [*[0.0] * (count - 1), member.reward or 0.0]
    return [*spread, *[0.0] * (count - len(spread))][:count]


def _number(version: Any) -> int | None:
    try:
        return int(version)
    except (TypeError, ValueError):
        return None
