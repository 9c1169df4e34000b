"""The fields of an answer that hold its tokens, read from it and written into it.

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
from math import isnan
from typing import Any, cast

from ludus.dialects.conversion import TOKEN_IDS
from ludus.errors import Failure
from ludus.runtime.numbers import whole_number
from ludus.tokens import Tokens, id_array

#: What a server may say about each token beside its id. The values are kept as they come.
EXTRAS = ("routed_experts",)

_PREFIX = "token_id:"
_LARGEST = 2**53  # no log probability is larger


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
