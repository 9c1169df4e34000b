"""Tokens are the truth for training.

Each model call may carry the exact ids it was prompted with, the ids it generated and their log probabilities. A
rollout stores only what a call adds to the call before it, so a record grows linearly with its tokens, and gives
back whole training sequences with loss masks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Tokens:
    """What one model call saw and wrote, in token ids. A prompt may be an array, which is compared at memory speed."""

    prompt_ids: list[int] | array[int]
    generated_ids: list[int]
    logprobs: list[float]
    policy_version: str | None = None


@dataclass(slots=True)
class Sequence:
    """One sequence to train on: `mask` is 1 where the policy wrote the id, and `logprobs` holds 0.0 elsewhere."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    policy_versions: list[str | None] = field(default_factory=list)

    def add(self, ids: list[int], logprobs: list[float] | None) -> None:
        """Append ids: the policy's own when `logprobs` is given, context otherwise."""
        self.ids += ids
        self.mask += [0 if logprobs is None else 1] * len(ids)
        self.logprobs += [0.0] * len(ids) if logprobs is None else logprobs


class TokenLog:
    """Turns whole calls into what each adds to the one before it, and forgets the rest at once."""

    __slots__ = ("_before", "last")

    def __init__(self) -> None:
        self.last: Tokens | None = None
        self._before: array[int] = array("I")

    def add(self, call: Tokens) -> dict[str, Any]:
        """What a call adds: `prefix` ids are shared with the call before, `prompt_ids` are the rest of its prompt."""
        prompt = id_array(call.prompt_ids)
        prefix = _shared(self._before, prompt)
        self._before = prompt + id_array(call.generated_ids)
        self.last = call
        return {
            "prefix": prefix,
            "prompt_ids": prompt[prefix:].tolist(),
            "generated_ids": call.generated_ids,
            "logprobs": call.logprobs,
            "policy_version": call.policy_version,
        }


def sequences(stored: Iterable[dict[str, Any]]) -> Iterator[Sequence]:
    """Rebuild training sequences from stored deltas.

    A call whose prompt continues everything before it extends the current sequence; where a template or a
    compaction broke the prefix, a new sequence starts.
    """
    current = Sequence()
    for call in stored:
        if call["prefix"] != len(current.ids):
            yield current
            fresh = Sequence()
            fresh.add(current.ids[: call["prefix"]], None)
            current = fresh
        current.add(call["prompt_ids"], None)
        current.add(call["generated_ids"], call["logprobs"])
        current.policy_versions.append(call["policy_version"])
    if current.ids:
        yield current


def id_array(ids: list[int] | array[int]) -> array[int]:
    """Token ids in one block of memory. Raises TypeError or OverflowError for what is no token id."""
    return ids if isinstance(ids, array) else array("I", ids)


def _shared(before: array[int], after: array[int]) -> int:
    """How many ids two calls have in common at the start."""
    low, high = 0, min(len(before), len(after))
    if before[:high] == after[:high]:  # the usual case: the prompt goes on where the last call ended
        return high
    while low < high:  # the ids at `low` and before are shared, those from `high` on are not
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
