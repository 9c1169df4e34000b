"""Compares what an adapter put into the trainer's data with the script."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ludus.train.conformance.script import ConformanceScript, ScriptedRollout, ScriptedSequence, script

_TOLERANCE = 1e-4


@dataclass
class Delivered:
    """One sequence as the trainer holds it, padding removed. `mask` is 1 for tokens in the loss.

    `advantage` is None if the trainer computes it later; it is compared up to a positive factor for each group.
    `version` is the oldest policy version of the rollout, None if the trainer is not told.
    """

    group: Hashable
    ids: Sequence[int]
    mask: Sequence[int]
    logprobs: Sequence[float]
    advantage: float | None = None
    reward: float | None = None
    version: int | None = None


class TrainerAdapter(Protocol):
    """What `ludus conformance` checks. `several_sequences` says whether one rollout may be several sequences.

    An adapter may also say what its trainer cannot do: `threads = False` trains on the main thread of a rollout only,
    and `thread_rewards = False` gives all threads the reward of the rollout.
    """

    name: str
    several_sequences: bool

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        """Play the script (`environment()`, `model()`, `rows`, `policy`) and return what the trainer would train on."""


@dataclass
class ConformanceReport:
    """The problems by task of the script. No problem is an empty list."""

    adapter: str
    problems: dict[str, list[str]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.problems.values())


def check(adapter: TrainerAdapter) -> ConformanceReport:
    """Play the script through an adapter and check every token, mask, logprob, reward and group."""
    scripted = script()
    samples = [sample for sample in adapter.deliver(scripted) if any(sample.mask)]
    report = ConformanceReport(adapter.name, {name: [] for name in scripted.tasks})
    owners = _owners(scripted)
    by_task: dict[str, list[Delivered]] = {name: [] for name in scripted.tasks}
    groups: dict[Hashable, set[str]] = {}
    for sample in samples:
        tasks = {owners[id] for id, mask in zip(sample.ids, sample.mask, strict=True) if mask and id in owners}
        if len(tasks) != 1:
            report.problems.setdefault("other", []).append(
                f"a sequence trains on ids of {len(tasks)} tasks: {sample.ids}"
            )
            continue
        (task,) = tasks
        by_task[task].append(sample)
        groups.setdefault(sample.group, set()).add(task)
    for name, rollouts in scripted.tasks.items():
        trained = [_as_taken(rollout, adapter) for rollout in rollouts if rollout.end == "completed"]
        if not adapter.several_sequences:
            trained = [rollout for rollout in trained if len(rollout.sequences()) == 1]
        report.problems[name] += _task_problems(trained, by_task[name])
        if len({sample.group for sample in by_task[name]}) > 1:
            report.problems[name].append("its sequences are in different groups")
    for tasks in groups.values():
        if len(tasks) > 1:
            report.problems[min(tasks)].append(f"one group holds several tasks: {', '.join(sorted(tasks))}")
    return report


def _as_taken(rollout: ScriptedRollout, adapter: TrainerAdapter) -> ScriptedRollout:
    """A rollout as far as a trainer can take it."""
    threads = rollout.threads if getattr(adapter, "threads", True) else []
    if not getattr(adapter, "thread_rewards", True):
        threads = [replace(thread, reward=None) for thread in threads]
    return replace(rollout, threads=threads)


def _owners(scripted: ConformanceScript) -> dict[int, str]:
    """The task of each generated id."""
    return {
        id: name
        for name, rollouts in scripted.tasks.items()
        for rollout in rollouts
        for calls in (rollout.calls, *(thread.calls for thread in rollout.threads))
        for call in calls
        for id in call.generated
    }


def _task_problems(trained: list[ScriptedRollout], samples: list[Delivered]) -> list[str]:
    problems: list[str] = []
    left = list(samples)
    matched: list[tuple[ScriptedSequence, Delivered]] = []
    for sequence in (sequence for rollout in trained for sequence in rollout.sequences()):
        sample = next((candidate for candidate in left if list(candidate.ids) == sequence.ids), None)
        if sample is None:
            problems.append(f"the sequence {sequence.ids} is missing")
            continue
        left.remove(sample)
        matched.append((sequence, sample))
        problems += _sequence_problems(sequence, sample)
    problems += [f"the sequence {list(sample.ids)} must not be trained on" for sample in left]
    return problems + _advantage_problems(trained, matched)


def _sequence_problems(sequence: ScriptedSequence, sample: Delivered) -> list[str]:
    problems, ids = [], sequence.ids
    if list(sample.mask) != sequence.mask:
        problems.append(f"the loss mask of {ids} is {list(sample.mask)}, not {sequence.mask}")
    wrong = [
        logprob
        for logprob, wanted, counts in zip(sample.logprobs, sequence.logprobs, sequence.mask, strict=True)
        if counts and not math.isclose(logprob, wanted, abs_tol=_TOLERANCE)
    ]
    if wrong:
        problems.append(f"{len(wrong)} logprobs of {ids} are wrong, the first is {wrong[0]}")
    if sample.reward is not None and not math.isclose(sample.reward, sequence.reward, abs_tol=_TOLERANCE):
        problems.append(f"the reward of {ids} is {sample.reward}, not {sequence.reward}")
    if sample.version is not None and sample.version != sequence.version:
        problems.append(f"the policy version of {ids} is {sample.version}, not {sequence.version}")
    return problems


def _advantage_problems(trained: list[ScriptedRollout], matched: list[tuple[ScriptedSequence, Delivered]]) -> list[str]:
    """Advantages must be proportional to the reward minus the mean reward of the members that train."""
    mean = sum(rollout.reward for rollout in trained) / max(1, len(trained))
    factors = Counter(
        round(sample.advantage / (sequence.reward - mean), 3)
        for sequence, sample in matched
        if sample.advantage is not None and abs(sequence.reward - mean) > _TOLERANCE
    )
    if len(factors) > 1 or any(factor <= 0 for factor in factors):
        shown = ", ".join(f"{sample.advantage:.4f} for {sequence.reward}" for sequence, sample in matched)
        return [f"the advantages do not fit a baseline of {mean:.4f}, the mean of the trained rewards: {shown}"]
    return []
