"""What the model wrote, token by token, for the conversation: text, probability, alternatives and policy version.

The text of a token comes from the tokenizer, if one is named, or from the `logprobs` of the answer, which have it. A
record with ids alone gives ids.
"""

from __future__ import annotations

from typing import Any

from ludus.record import Row
from ludus.store.statistics import finite_number
from ludus.view.entropy import answer_logprobs
from ludus.view.facts import items_of
from ludus.view.index import RunIndex
from ludus.view.one import read_row
from ludus.view.rollout_threads import thread_items
from ludus.view.tokenizer import Tokenizer

#: The most tokens of one rollout, and the most alternatives of one token.
MAX_TOKENS = 30_000
MAX_ALTERNATIVES = 10

#: The longest text of a token: a model's answer may claim any.
MAX_TEXT = 200


def written_payload(index: RunIndex, rollout: int, tokenizer: Tokenizer | None, thread: str = "") -> dict[str, Any]:
    """For each model call of a thread what it wrote. `tokens` is None if the record does not tell."""
    _, row = read_row(index, rollout)
    if thread:
        items, calls_of_thread = thread_items(row, thread)
        row = {"model_calls": calls_of_thread, "response": {"output": items}}
    room, calls = MAX_TOKENS, list[dict[str, Any]]()
    for call, entries in zip(items_of(row.get("model_calls")), answer_logprobs(row), strict=False):
        tokens = _tokens(call, entries, tokenizer)
        version = call.get("policy_version")
        shown = None if tokens is None else tokens[: max(room, 0)]
        room -= len(tokens or ())
        calls.append({"policy": None if version is None else str(version)[:100], "tokens": shown})
    return {"calls": calls, "tokenizer": tokenizer.name if tokenizer is not None else None, "cut": room < 0}


def _tokens(call: Row, entries: list[Row], tokenizer: Tokenizer | None) -> list[Any] | None:
    """Each token as `[text, id, logprob, alternatives]`. Text and id may be unknown, alternatives may be missing."""
    ids, logprobs = call.get("generated_ids"), call.get("logprobs")
    listed: list[list[Any]] = [
        [_text(entry.get("token")), None, finite_number(entry.get("logprob")), _alternatives(entry)]
        for entry in entries[:MAX_TOKENS]
    ]
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        return listed or None
    ids = ids[:MAX_TOKENS]
    known = logprobs if isinstance(logprobs, list) else []
    pieces = tokenizer.pieces(ids) if tokenizer is not None else None
    if pieces is None and listed:  # the answer's own text, without ids
        return listed
    tokens = [
        [pieces[at] if pieces is not None else None, token, finite_number(known[at]) if at < len(known) else None, None]
        for at, token in enumerate(ids)
    ]
    texts = [entry[0] for entry in listed]
    start = _place(texts, pieces) if pieces is not None else None
    if start is not None:
        for at, entry in enumerate(listed):
            tokens[start + at][3] = entry[3]
    return tokens


def _place(texts: list[str], pieces: list[str]) -> int | None:
    """Where the tokens of the answer's text stand among all tokens of the call; None if nowhere."""
    if not texts:
        return None
    places = range(len(pieces) - len(texts) + 1)
    return next((at for at in places if pieces[at] == texts[0] and pieces[at : at + len(texts)] == texts), None)


def _alternatives(entry: Row) -> list[list[Any]] | None:
    listed: list[list[Any]] = [
        [_text(other.get("token")), finite_number(other.get("logprob"))]
        for other in items_of(entry.get("top_logprobs"))
    ]
    return listed[:MAX_ALTERNATIVES] or None


def _text(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""
