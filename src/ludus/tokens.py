"""Tokens: the exact token ids of model calls, for training.

A model call may report the ids of its prompt, the ids that it generated and their logprobs. A rollout stores only what
each call adds to the previous call, so a record grows linearly with its tokens. `sequences` rebuilds whole training
sequences with loss masks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(slots=True)
class Tokens:
    """The token ids of one model call. A prompt may be an array, which is compared at memory speed.

    `sampling` says how the ids were drawn (`sampling_record`), so that importance ratios can be computed correctly.
    """

    prompt_ids: list[int] | array[int]
    generated_ids: list[int]
    logprobs: list[float]
    policy_version: str | None = None
    sampling: dict[str, Any] | None = None


def sampling_record(
    temperature: float | None, top_p: float | None, logprobs: Literal["sampled", "model"] | None
) -> dict[str, Any]:
    """How ids were drawn; None is unknown: the server chose.

    The logprobs are those of the distribution that was `sampled` from, after temperature and top_p, or those of the
    `model` before both.
    """
    return {"temperature": temperature, "top_p": top_p, "logprobs": logprobs}


@dataclass(slots=True)
class Sequence:
    """One sequence to train on. `mask` is 1 for ids that the policy wrote; `logprobs` is 0.0 for all others.

    `policy_versions` and `samplings` have one entry for each model call.
    """

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    policy_versions: list[str | None] = field(default_factory=list)
    samplings: list[dict[str, Any] | None] = field(default_factory=list)

    def add(self, ids: list[int], logprobs: list[float] | None) -> None:
        """Append ids: with `logprobs` they were written by the policy, without they are context."""
        self.ids += ids
        self.mask += [0 if logprobs is None else 1] * len(ids)
        self.logprobs += [0.0] * len(ids) if logprobs is None else logprobs


class TokenLog:
    """Reduces each call to what it adds to the previous call."""

    __slots__ = ("_previous", "last")

    def __init__(self) -> None:
        self.last: Tokens | None = None
        self._previous: array[int] = array("I")

    def add(self, call: Tokens) -> dict[str, Any]:
        """What a call adds: it shares `prefix` ids with the previous call, `prompt_ids` are the rest of its prompt."""
        prompt = id_array(call.prompt_ids)
        prefix = _common_prefix(self._previous, prompt)
        self._previous = prompt + id_array(call.generated_ids)
        self.last = call
        record: dict[str, Any] = {
            "prefix": prefix,
            "prompt_ids": prompt[prefix:].tolist(),
            "generated_ids": call.generated_ids,
            "logprobs": call.logprobs,
            "policy_version": call.policy_version,
        }
        if call.sampling is not None:
            record["sampling"] = call.sampling
        return record

    def restore(self, calls: Iterable[dict[str, Any]]) -> None:
        """Go on after calls that were stored: what `add` returned for each, or less for a call without ids."""
        for call in calls:
            if "prefix" in call:
                prompt = self._previous[: call["prefix"]] + id_array(call["prompt_ids"])
                self._previous = prompt + id_array(call["generated_ids"])
                version, sampling = call.get("policy_version"), call.get("sampling")
                self.last = Tokens(prompt, call["generated_ids"], call["logprobs"], version, sampling)


def sequences(stored: Iterable[dict[str, Any]]) -> Iterator[Sequence]:
    """Rebuild training sequences from stored deltas.

    A call whose prompt begins with the whole current sequence extends it. If a template or a compaction changed an
    earlier id, a new sequence starts.
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
        current.samplings.append(call.get("sampling"))
    if current.ids:
        yield current


def id_array(ids: list[int] | array[int]) -> array[int]:
    """Token ids in one block of memory. Raises TypeError or OverflowError for a value that is not a token id."""
    return ids if isinstance(ids, array) else array("I", ids)


def _common_prefix(before: array[int], after: array[int]) -> int:
    """How many ids two calls share at their start."""
    low, high = 0, min(len(before), len(after))
    if before[:high] == after[:high]:  # the usual case: the prompt continues the previous call
        return high
    while low < high:  # binary search: at least `low` and at most `high` ids are shared
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
