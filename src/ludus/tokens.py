"""Tokens: the exact token ids of model calls, for training.

A model call may report the ids of its prompt, the ids that it generated and their logprobs. A rollout stores only what
each call adds to the previous call, so a record grows linearly with its tokens. `sequences` rebuilds whole training
sequences with loss masks.

A server sends the tokens of a call in extra fields of its answer. A chat answer may hold them in three forms, which are
read in this order:

1. three fields on the message: `prompt_token_ids`, `generation_token_ids`, `generation_log_probs`;
2. `prompt_token_ids` at the top or on the choice, and `token_ids` or `response_token_ids` on the choice, with the
   choice's log probabilities;
3. log probabilities whose tokens are ids: `token_id:17` in vLLM, an `id` beside the token in llama.cpp. The prompt ids
   come from `prompt_token_ids` at the top, or from the caller.

Forms that disagree, missing fields and counts that do not match are a `bad_response`: tokens are never guessed. The
fields are removed from the answer, so that a record does not hold them twice. What else a server says about each
token (`routed_experts`, the versions of its weights) is kept beside the ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isnan
from typing import Any, Literal, cast

from ludus.dialects.conversion import TOKEN_IDS
from ludus.errors import Failure
from ludus.runtime.numbers import whole_number

#: What a server may say about each token beside its id. The values are kept as they come.
EXTRAS = ("routed_experts",)

_PREFIX = "token_id:"
_LARGEST = 2**53  # no log probability is larger


@dataclass(slots=True)
class Tokens:
    """The token ids of one model call. A prompt may be an array, which is compared at memory speed.

    `sampling` says how the ids were drawn (`sampling_record`), so that importance ratios can be computed correctly.
    `versions` says where the policy version changed in the middle of the answer: the index of the first generated id of
    each version, and the version. `extras` are values of the server beside the ids, such as `routed_experts`.
    `conversation` is what the ids hold, for the model that continues them (`models.history`); `broke` says why a prompt
    does not continue the call before it.
    """

    prompt_ids: list[int] | array[int]
    generated_ids: list[int]
    logprobs: list[float]
    policy_version: str | None = None
    sampling: dict[str, Any] | None = None
    versions: list[tuple[int, str]] | None = None
    extras: dict[str, Any] | None = None
    conversation: Any = field(default=None, repr=False, compare=False)
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
        if call.sampling is not None:
            record["sampling"] = call.sampling
        if call.versions:
            record["versions"] = call.versions
        if call.extras:
            record["extras"] = call.extras
        if broke:
            record["broke"] = call.broke or "the prompt was rendered anew, and an earlier id changed"
        return record

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


def tokens_from_chat(data: Any, prompt_ids: list[int] | None = None, *, keep_logprobs: bool = False) -> Tokens | None:
    """The tokens of a chat answer; None if it does not hold all of them.

    `prompt_ids` are the ids of the prompt, if the caller knows them. `keep_logprobs` leaves the log probabilities in
    the answer, for a request that asked for them.
    """
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    choice = choices[0]
    message = choice.get("message")
    bundle = _bundle(message) if isinstance(message, dict) else None
    entries = _entries(choice)
    reported = (data.get("prompt_token_ids"), choice.get("prompt_token_ids"), prompt_ids)
    prompts = [ids for ids in reported if ids is not None]
    logprob_ids = _ids(entries)
    if logprob_ids is not None and not _are_all(logprob_ids, data.get("usage")):
        logprob_ids = None
    reported = (choice.get("token_ids"), choice.get("response_token_ids"), logprob_ids)
    generated = [ids for ids in reported if ids is not None]
    logprobs = None if entries is None else [entry.get("logprob") for entry in entries]
    if bundle is not None:
        prompts.insert(0, bundle[0])
        generated.insert(0, bundle[1])
        logprobs = bundle[2]
    if not prompts or not generated or logprobs is None:
        return None
    if len(choices) > 1:
        raise Failure("bad_response", f"token ids need a single choice, not {len(choices)}")
    if any(ids != prompts[0] for ids in prompts[1:]) or any(ids != generated[0] for ids in generated[1:]):
        raise Failure("bad_response", "the token ids that the server sent in two places disagree")
    tokens = _checked(prompts[0], generated[0], logprobs)
    _remove(data, choice, message, keep_logprobs)
    _put_beside(tokens, data, choice)
    return tokens


def _put_beside(tokens: Tokens, data: dict[str, Any], choice: dict[str, Any]) -> None:
    """Take what a server says about each token: the routing of its experts, and the versions of its weights."""
    ours = data.get("sglext") if isinstance(data.get("sglext"), dict) else {}
    extras = {key: holder.pop(key, None) for holder in (ours or {}, choice) for key in EXTRAS if holder.get(key)}
    tokens.extras = extras or None
    metadata = data.get("metadata")
    spans = metadata.get("weight_versions") if isinstance(metadata, dict) else None
    if isinstance(spans, list) and all(isinstance(span, dict) and type(span.get("start")) is int for span in spans):
        versions = [(span["start"], str(span.get("version"))) for span in spans]
        tokens.policy_version = versions[0][1] if versions else None
        tokens.versions = versions if len(versions) > 1 else None


def tokens_from_response(data: Any) -> Tokens | None:
    """The tokens of a Responses answer, from the last item of its output; None if it has none."""
    output = data.get("output") if isinstance(data, dict) else None
    item = output[-1] if isinstance(output, list) and output else None
    bundle = _bundle(item) if isinstance(item, dict) else None
    if not isinstance(item, dict) or bundle is None:
        return None
    tokens = _checked(*bundle)
    for key in TOKEN_IDS:
        del item[key]
    return tokens


def tokens_from_items(items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Tokens | None]:
    """A request's items without their token fields, and the tokens of the last model call among them."""
    if all(item.keys().isdisjoint(TOKEN_IDS) for item in items):
        return items, None
    tokens, stripped = None, []
    for item in items:
        if (bundle := _bundle(item)) is not None:
            tokens = _checked(*bundle)
        stripped.append({key: value for key, value in item.items() if key not in TOKEN_IDS})
    return stripped, tokens


def put_tokens(output: list[dict[str, Any]], tokens: Tokens) -> None:
    """Write the tokens of a call onto the last item of its output, in the fields that trainers read."""
    if output:
        prompt = tokens.prompt_ids
        ids = prompt if isinstance(prompt, list) else prompt.tolist()
        output[-1] = {**output[-1], **dict(zip(TOKEN_IDS, (ids, tokens.generated_ids, tokens.logprobs), strict=True))}


def _bundle(holder: dict[str, Any]) -> list[Any] | None:
    if holder.keys().isdisjoint(TOKEN_IDS):
        return None
    values = [holder.get(key) for key in TOKEN_IDS]
    if all(value is None for value in values):
        return None
    if missing := [key for key, value in zip(TOKEN_IDS, values, strict=True) if value is None]:
        raise Failure("bad_response", f"token ids came without {' and '.join(missing)}")
    return values


def _entries(choice: dict[str, Any]) -> list[dict[str, Any]] | None:
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        return None
    return content


def _ids(entries: list[dict[str, Any]] | None) -> list[int] | None:
    """The token ids in log probability entries; None if the entries hold no ids."""
    if not entries:
        return None
    if all(type(entry.get("id")) is int for entry in entries):
        return [entry["id"] for entry in entries]
    tokens = [entry.get("token") for entry in entries]
    if not all(isinstance(token, str) and token.startswith(_PREFIX) for token in tokens):
        return None
    ids = [whole_number(text[len(_PREFIX) :], digits=15) for text in map(str, tokens)]
    if None in ids:
        wrong = str(tokens[ids.index(None)])[len(_PREFIX) :]
        raise Failure("bad_response", f"a token id is not a number: {wrong:.40}")
    return cast("list[int]", ids)


def _are_all(ids: list[int], usage: Any) -> bool:
    """Whether no id is missing: llama.cpp omits a token that ends inside a character."""
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return not isinstance(counted, int) or len(ids) >= counted


def _checked(prompt: Any, generated: Any, logprobs: Any) -> Tokens:
    prompt, generated = _packed(prompt), _packed(generated)
    if not isinstance(logprobs, list) or set(map(type, logprobs)) - {float, int} or not _finite(logprobs):
        raise Failure("bad_response", "the log probabilities are not a list of finite numbers")
    if len(generated) != len(logprobs):
        raise Failure("bad_response", f"{len(generated)} token ids came with {len(logprobs)} log probabilities")
    return Tokens(prompt, generated.tolist(), logprobs)


def _packed(value: Any) -> array[int]:
    """Check a list of ids by packing it into an array."""
    try:
        if isinstance(value, list):
            return id_array(value)
    except (TypeError, OverflowError):
        pass
    raise Failure("bad_response", "the token ids are not a list of ids")


def _finite(numbers: list[float]) -> bool:
    return not numbers or (min(numbers) > -_LARGEST and max(numbers) < _LARGEST and not isnan(sum(numbers)))


def _remove(data: dict[str, Any], choice: dict[str, Any], message: Any, keep_logprobs: bool) -> None:
    data.pop("prompt_token_ids", None)
    for key in ("prompt_token_ids", "token_ids", "response_token_ids"):
        choice.pop(key, None)
    if not keep_logprobs:
        choice.pop("logprobs", None)
    if isinstance(message, dict):
        for key in TOKEN_IDS:
            message.pop(key, None)
