"""The entropy of the model at each token, if the record holds it or the model's alternatives.

A model that knows the entropy stores it as `entropies` of its call. Otherwise the alternatives of a request with
`top_logprobs` give a lower bound: everything that is not listed counts as one more alternative.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import Any

from ludus.record import Row, is_input
from ludus.store.statistics import finite_number
from ludus.view.facts import items_of

#: The most tokens of one call whose alternatives are read.
MAX_TOKENS = 30_000


def call_entropies(row: Row) -> list[list[float | None]]:
    """The entropy of each token of each model call, in nats. Empty for a call without the data."""
    entropies = list[list[float | None]]()
    for call, entries in zip(items_of(row.get("model_calls")), answer_logprobs(row), strict=True):
        stored = call.get("entropies")
        if isinstance(stored, list):
            entropies.append([finite_number(value) for value in stored[:MAX_TOKENS]])
        else:
            has_alternatives = any(entry.get("top_logprobs") for entry in entries)
            entropies.append([lower_bound(entry) for entry in entries] if has_alternatives else [])
    return entropies


def answer_logprobs(row: Row) -> list[list[Row]]:
    """The entries of `logprobs` that each model call's answer has for its text: a token each, with alternatives."""
    response = row.get("response")
    output = items_of(response.get("output")) if isinstance(response, dict) else []
    answers, at = list[list[Row]](), 0
    for call in items_of(row.get("model_calls")):
        if type(call.get("at")) is int and call["at"] >= 0:
            at = call["at"]
        while at < len(output) and is_input(output[at]):
            at += 1
        count = call.get("items")
        count = count if isinstance(count, int) and count > 0 else 0
        answers.append(list(_entries(output[at : at + count])))
        at += count
    return answers


def lower_bound(entry: Row) -> float | None:
    """The least entropy of a token with its listed alternatives; None without any."""
    listed = {
        str(alternative.get("token")): finite_number(alternative.get("logprob"))
        for alternative in items_of(entry.get("top_logprobs"))
    }
    if not listed:
        return None
    listed.setdefault(str(entry.get("token")), finite_number(entry.get("logprob")))
    chances = [exp(min(value, 0.0)) for value in listed.values() if value is not None]
    rest = 1.0 - sum(chances)
    return -sum(chance * log(chance) for chance in (*chances, rest) if chance > 0)


def _entries(items: list[Row]) -> Iterator[Row]:
    left = MAX_TOKENS
    for item in items:
        for part in items_of(item.get("content")):
            entries = items_of(part.get("logprobs"))[:left]
            left -= len(entries)
            yield from entries


def mean(values: list[Any]) -> float | None:
    """The mean of the known values."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
