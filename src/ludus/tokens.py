"""Tokens: the exact token ids of model calls, for training.

A model call may report the ids of its prompt, the ids that it generated and their logprobs. A rollout stores only what
each call adds to the previous call, so a record grows linearly with its tokens. `sequences` rebuilds whole training
sequences with loss masks. `token_fields.py` reads them from the answers of servers.
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
    `versions` says where the policy version changed in the middle of the answer: the index of the first generated id of
    each version, and the version. `extras` are values of the server beside the ids, such as `routed_experts`.
    `conversation` is what the ids hold, for the model that continues them (`models.history`), `media` what its server
    made of images among them; `broke` says why a prompt does not continue the call before it.
    """

    prompt_ids: list[int] | array[int]
    generated_ids: list[int]
    logprobs: list[float]
    policy_version: str | None = None
    sampling: dict[str, Any] | None = None
    versions: list[tuple[int, str]] | None = None
    extras: dict[str, Any] | None = None
    conversation: Any = field(default=None, repr=False, compare=False)
    media: Any = field(default=None, repr=False, compare=False)
    broke: str | None = None


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

    `policy_versions`, `samplings` and `extras` have one entry for each model call. `version_spans` are the stretches of
    ids that one policy version wrote: the first index, the index after the last, and the version. `thread` names the
    conversation, and `kind` says what that is (`ludus.thread`).
    """

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    policy_versions: list[str | None] = field(default_factory=list)
    samplings: list[dict[str, Any] | None] = field(default_factory=list)
    extras: list[dict[str, Any] | None] = field(default_factory=list)
    version_spans: list[tuple[int, int, str | None]] = field(default_factory=list)
    thread: str = "main"
    kind: str = "main"

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
        prefix = common_prefix(self._previous, prompt)
        broke = prefix < len(self._previous)
        self._previous = prompt + id_array(call.generated_ids)
        self.last = call
        record: dict[str, Any] = {
            "prefix": prefix,
            "prompt_ids": prompt[prefix:].tolist(),
            "generated_ids": call.generated_ids,
            "logprobs": call.logprobs,
            "policy_version": call.policy_version,
        }
        why = broke and (call.broke or "the prompt was rendered anew, and an earlier id changed")
        more = {"sampling": call.sampling, "versions": call.versions, "extras": call.extras, "broke": why}
        return record | {name: part for name, part in more.items() if part}

    def restore(self, calls: Iterable[dict[str, Any]]) -> None:
        """Continue after stored calls: the results of `add`, or less for a call without ids."""
        for call in calls:
            if "prefix" in call:
                prompt = self._previous[: call["prefix"]] + id_array(call["prompt_ids"])
                self._previous = prompt + id_array(call["generated_ids"])
                version, sampling = call.get("policy_version"), call.get("sampling")
                self.last = Tokens(prompt, call["generated_ids"], call["logprobs"], version, sampling)


def sequences(stored: Iterable[dict[str, Any]], thread: str = "main", kind: str = "main") -> Iterator[Sequence]:
    """Rebuild the training sequences of a thread from stored deltas.

    A call whose prompt begins with the whole current sequence extends it. If a template or a compaction changed an
    earlier id, a new sequence starts.
    """
    current = Sequence(thread=thread, kind=kind)
    for call in stored:
        if call["prefix"] != len(current.ids):
            yield current
            kind = "compacted" if call.get("compacted") else kind
            fresh = Sequence(thread=thread, kind=kind)
            fresh.add(current.ids[: call["prefix"]], None)
            current = fresh
        current.add(call["prompt_ids"], None)
        start = len(current.ids)
        current.add(call["generated_ids"], call["logprobs"])
        current.policy_versions.append(call["policy_version"])
        current.samplings.append(call.get("sampling"))
        current.extras.append(call.get("extras"))
        current.version_spans += [(start + first, start + after, version) for first, after, version in spans_of(call)]
    if current.ids:
        yield current


def spans_of(call: dict[str, Any]) -> list[tuple[int, int, str | None]]:
    """Which policy version wrote which generated ids of a stored call: first index, index after the last, version."""
    count = len(call.get("generated_ids") or ())
    starts: list[tuple[int, str | None]] = [(int(at), version) for at, version in call.get("versions") or ()]
    if not starts or starts[0][0] > 0:
        starts.insert(0, (0, call.get("policy_version")))
    ends = [*(at for at, _ in starts[1:]), count]
    return [(at, end, version) for (at, version), end in zip(starts, ends, strict=True) if at < end]


def versions_of(call: dict[str, Any]) -> list[str | None]:
    """The policy versions that wrote a stored call, in order: one, unless the weights changed in the middle of it."""
    return [version for _, _, version in spans_of(call)] or [call.get("policy_version")]


def id_array(ids: list[int] | array[int]) -> array[int]:
    """Token ids in one block of memory. Raises TypeError or OverflowError for a value that is not a token id."""
    return ids if isinstance(ids, array) else array("I", ids)


def common_prefix(before: array[int], after: array[int]) -> int:
    """The length of the common prefix of two calls' ids."""
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
