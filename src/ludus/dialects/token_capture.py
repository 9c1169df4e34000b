"""The exact tokens of one model call, out of what servers send beside their answers.

A chat answer may tell them in three ways, and they are asked in this order:

1. the whole bundle on the message: `prompt_token_ids`, `generation_token_ids`, `generation_log_probs`;
2. `prompt_token_ids` at the top and `token_ids` on the choice, with the choice's log probabilities;
3. log probabilities whose tokens are ids: `token_id:17` in vLLM, an `id` beside the token in llama.cpp. The ids of the
   prompt are not among these, so they must come from elsewhere.

Ways that disagree, halves of a bundle and counts that do not match are a `bad_response`: tokens are never guessed. What
was read is removed from the answer, so that a record does not hold it twice.
"""

from __future__ import annotations

from array import array
from math import isnan
from typing import Any

from ludus.errors import Failure
from ludus.tokens import Tokens, id_array

_BUNDLE = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
_PREFIX = "token_id:"

#: The fields of an item that tell tokens.
TOKEN_FIELDS = frozenset(_BUNDLE)
_END = 2**53  # beyond it, no number is a log probability


def tokens_from_chat(data: Any, prompt_ids: list[int] | None = None, *, keep_logprobs: bool = False) -> Tokens | None:
    """The tokens of a chat answer; None where it does not tell all of them.

    `prompt_ids` are the ids of the prompt where the caller knows them from elsewhere. `keep_logprobs` leaves the log
    probabilities in the answer, for a caller who asked for them too.
    """
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    choice = choices[0]
    message = choice.get("message")
    bundle = _bundle(message) if isinstance(message, dict) else None
    entries = _entries(choice)
    prompts = [ids for ids in (data.get("prompt_token_ids"), prompt_ids) if ids is not None]
    spelled = _ids(entries)
    if spelled is not None and not _are_all(spelled, data.get("usage")):
        spelled = None
    written = [ids for ids in (choice.get("token_ids"), spelled) if ids is not None]
    logprobs = None if entries is None else [entry.get("logprob") for entry in entries]
    if bundle is not None:
        prompts.insert(0, bundle[0])
        written.insert(0, bundle[1])
        logprobs = bundle[2]
    if not prompts or not written or logprobs is None:
        return None
    if len(choices) > 1:
        raise Failure("bad_response", f"token ids need a single choice, not {len(choices)}")
    if any(ids != prompts[0] for ids in prompts[1:]) or any(ids != written[0] for ids in written[1:]):
        raise Failure("bad_response", "the token ids that the server sent in two places disagree")
    tokens = _checked(prompts[0], written[0], logprobs)
    _remove(data, choice, message, keep_logprobs)
    return tokens


def tokens_from_response(data: Any) -> Tokens | None:
    """The tokens of a Responses answer, which sit on the last item of its output; None where there are none."""
    output = data.get("output") if isinstance(data, dict) else None
    item = output[-1] if isinstance(output, list) and output else None
    bundle = _bundle(item) if isinstance(item, dict) else None
    if not isinstance(item, dict) or bundle is None:
        return None
    tokens = _checked(*bundle)
    for key in _BUNDLE:
        del item[key]
    return tokens


def tokens_from_items(items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Tokens | None]:
    """A request's items without their token fields, and the tokens of the model call that is last among them."""
    if all(item.keys().isdisjoint(_BUNDLE) for item in items):
        return items, None
    tokens, kept = None, []
    for item in items:
        if (bundle := _bundle(item)) is not None:
            tokens = _checked(*bundle)
        kept.append({key: value for key, value in item.items() if key not in _BUNDLE})
    return kept, tokens


def put_tokens(output: list[dict[str, Any]], tokens: Tokens) -> None:
    """Write the tokens of a call onto the last item of its output, in the fields that trainers read."""
    if output:
        prompt = tokens.prompt_ids
        ids = prompt if isinstance(prompt, list) else prompt.tolist()
        output[-1] = {**output[-1], **dict(zip(_BUNDLE, (ids, tokens.generated_ids, tokens.logprobs), strict=True))}


def _bundle(holder: dict[str, Any]) -> list[Any] | None:
    if holder.keys().isdisjoint(_BUNDLE):
        return None
    values = [holder.get(key) for key in _BUNDLE]
    if all(value is None for value in values):
        return None
    if missing := [key for key, value in zip(_BUNDLE, values, strict=True) if value is None]:
        raise Failure("bad_response", f"token ids came without {' and '.join(missing)}")
    return values


def _entries(choice: dict[str, Any]) -> list[dict[str, Any]] | None:
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        return None
    return content


def _ids(entries: list[dict[str, Any]] | None) -> list[int] | None:
    """The ids that log probabilities are about, where they tell them."""
    if not entries:
        return None
    if all(type(entry.get("id")) is int for entry in entries):
        return [entry["id"] for entry in entries]
    tokens = [entry.get("token") for entry in entries]
    if not all(isinstance(token, str) and token.startswith(_PREFIX) for token in tokens):
        return None
    digits = [str(token)[len(_PREFIX) :] for token in tokens]
    if wrong := [text for text in digits if not (text.isascii() and text.isdecimal() and len(text) < 16)]:
        raise Failure("bad_response", f"a token id is not a number: {wrong[0]:.40}")
    return [int(text) for text in digits]


def _are_all(ids: list[int], usage: Any) -> bool:
    """Whether as many ids were told as were generated: llama.cpp keeps back a token that ends within a letter."""
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return not isinstance(counted, int) or len(ids) >= counted


def _checked(prompt: Any, written: Any, logprobs: Any) -> Tokens:
    prompt, written = _packed(prompt), _packed(written)
    if not isinstance(logprobs, list) or set(map(type, logprobs)) - {float, int} or not _finite(logprobs):
        raise Failure("bad_response", "the log probabilities are not a list of finite numbers")
    if len(written) != len(logprobs):
        raise Failure("bad_response", f"{len(written)} token ids came with {len(logprobs)} log probabilities")
    return Tokens(prompt, written.tolist(), logprobs)


def _packed(value: Any) -> array[int]:
    """A list of ids, checked by packing it: a tenth of what looking at each id would take."""
    try:
        if isinstance(value, list):
            return id_array(value)
    except (TypeError, OverflowError):
        pass
    raise Failure("bad_response", "the token ids are not a list of ids")


def _finite(numbers: list[float]) -> bool:
    return not numbers or (min(numbers) > -_END and max(numbers) < _END and not isnan(sum(numbers)))


def _remove(data: dict[str, Any], choice: dict[str, Any], message: Any, keep_logprobs: bool) -> None:
    data.pop("prompt_token_ids", None)
    choice.pop("token_ids", None)
    if not keep_logprobs:
        choice.pop("logprobs", None)
    if isinstance(message, dict):
        for key in _BUNDLE:
            message.pop(key, None)
